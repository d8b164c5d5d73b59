"""The kernel form of the program with complementarity: derivatives, exact points, solvers, limits."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp

from foldwise.optimizers.mpec.certificate import Local, b_stationary
from foldwise.optimizers.mpec.description import Choice, Description, Task
from foldwise.optimizers.mpec.inner import Evaluator
from foldwise.optimizers.mpec.kernel import KernelFormulation
from foldwise.optimizers.mpec.nlp import RELAXATIONS, relax
from foldwise.optimizers.mpec.run import Run
from foldwise.optimizers.mpec.slams import solve_slams
from foldwise.optimizers.mpec.solve import solve_mpec


def rings(n=21, d=2, seed=1, criterion="hinge") -> Description:
    """Two classes, one around the other; a third feature is noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] ** 2 + X[:, 1] ** 2 + 0.3 * rng.normal(size=n) > 1.2, 1.0, -1.0)
    fold = np.arange(n) % 3
    tasks = [Task(X[fold != t], y[fold != t], X[fold == t], y[fold == t]) for t in range(3)]
    return Description(tasks, "hinge", criterion, C=(1e-1, 1e2), gamma=(0.0, 5.0))


@pytest.mark.parametrize("criterion", ["hinge", "misclassification"])
def test_libsvm_machines_are_feasible_and_complementary(criterion):
    D = rings(criterion=criterion)
    choice = Choice(3.0, gamma=np.array([0.5, 0.2]))
    value, machines = Evaluator(D)(choice)
    F = KernelFormulation(D, unit=2.0)
    x = F.encode(choice, machines)
    assert relax(F.mpcc, 1e-5).infeasibility(x) < 1e-5
    assert F.mpcc.residual(x) < 1e-5
    assert F.mpcc.cost @ x == pytest.approx(value, abs=1e-6)
    back = F.decode(x)
    np.testing.assert_allclose(back.C, 3.0)
    np.testing.assert_allclose(back.gamma, choice.gamma)


@pytest.mark.parametrize("kind", RELAXATIONS)
@pytest.mark.parametrize("criterion", ["hinge", "misclassification"])
def test_derivatives_against_differences(criterion, kind):
    P = relax(KernelFormulation(rings(n=12, d=3, criterion=criterion), unit=2.0).mpcc, 1e-2, kind)
    rng = np.random.default_rng(0)
    x, e, y, h = rng.uniform(0, 1, P.n), rng.normal(size=P.n), rng.normal(size=P.m), 1e-5

    def lagrangian_gradient(point):
        J = sp.csr_matrix((P.jacobian(point), (P.jacobian_rows, P.jacobian_columns)), (P.m, P.n))
        return J, 1.3 * P.gradient(point) + J.T @ y

    J, _ = lagrangian_gradient(x)
    numeric = (P.constraints(x + h * e) - P.constraints(x - h * e)) / (2 * h)
    assert np.abs(numeric).max() > 1.0
    np.testing.assert_allclose(J @ e, numeric, rtol=1e-6, atol=1e-7)
    assert np.all(P.hessian_rows >= P.hessian_columns)
    H = sp.csr_matrix((P.hessian(x, 1.3, y), (P.hessian_rows, P.hessian_columns)), (P.n, P.n))
    H = H + sp.tril(H, -1).T
    bend = (lagrangian_gradient(x + h * e)[1] - lagrangian_gradient(x - h * e)[1]) / (2 * h)
    assert np.abs(bend).max() > 1.0
    np.testing.assert_allclose(H @ e, bend, rtol=1e-5, atol=1e-6)


def test_both_solvers_find_the_same_machine_below_a_grid():
    pytest.importorskip("ipyopt")
    pytest.importorskip("unopy")
    D = rings()
    evaluate = Evaluator(D)
    scales = np.geomspace(1e-2, 5.0, 5)
    for C in np.geomspace(*D.C, 3):
        for first in scales:
            for second in scales:
                evaluate(Choice(C, gamma=np.array([first, second])))
    answers = [solve_mpec(Run.begin(D)), solve_mpec(Run.begin(D), backend="uno")]
    for answer in answers:
        assert answer.status == "solved"
        assert answer.gap < 1e-3
        assert answer.objective <= 1.02 * evaluate.best[0]
        assert answer.objective == pytest.approx(Evaluator(D)(answer.choice)[0], abs=1e-9)
        assert answer.certificate["complementarity"] < 1e-2


def test_misclassification_reports_the_true_error():
    pytest.importorskip("ipyopt")
    D = rings(criterion="misclassification")
    answer = solve_mpec(Run.begin(D), first_tol=1e-3)
    assert answer.objective == pytest.approx(Evaluator(D)(answer.choice)[0])
    assert answer.objective <= answer.stages[0].objective


def test_limits_and_bad_arguments(monkeypatch):
    D = rings()
    with pytest.raises(ValueError, match=r"max_rows=10.*KernelSVC"):
        Description(D.tasks, gamma=(0.0, 5.0), max_rows=10)
    with pytest.raises(ValueError, match="uno, ipopt"):
        solve_mpec(Run.begin(D), backend="snopt")
    with pytest.raises(ValueError, match="criterion"):
        Description(D.tasks, criterion="absolute", gamma=(0.0, 1.0))
    with pytest.raises(ValueError, match="gamma must have bounds"):
        Description(D.tasks, gamma=(-1.0, 1.0))
    with pytest.raises(ValueError, match="leave the other terms out"):
        Description(D.tasks, gamma=(0.0, 1.0), box=(0.0, 1.0))
    with pytest.raises(ValueError, match="not linear"):
        solve_slams(Run.begin(D))
    pytest.importorskip("ipyopt")
    assert solve_mpec(Run.begin(D, 0.01)).status == "time limit"
    monkeypatch.setitem(sys.modules, "ipyopt", None)
    with pytest.raises(ImportError, match=r"ipyopt.*foldwise\[mpec\]"):
        solve_mpec(Run.begin(D))


@pytest.mark.parametrize("criterion", ["hinge", "misclassification"])
def test_answers_are_certified_and_other_points_refuted(criterion):
    """The kernel program has curved rows; its certificate is that of their derivatives at the exact machines."""
    pytest.importorskip("ipyopt")
    pytest.importorskip("highspy")
    D = rings(seed=2, criterion=criterion)
    answer = solve_mpec(Run.begin(D))
    assert answer.certificate["b_stationary"] is True
    assert answer.certificate["stationarity"] in ("S", "B")
    if criterion == "misclassification":
        return
    F = KernelFormulation(D, unit=1.0)
    other = Choice(0.7, gamma=np.array([0.8, 0.1]))
    value, machines = Evaluator(D)(other)
    x = F.encode(other, machines)
    verdict = b_stationary(Local.at(F.mpcc, x))
    assert verdict.holds is False
    # Machines trained anew at the new hyper-parameters are better at least at that rate: in the direction no single
    # error may fall faster than its largest entry, in truth it may.
    step = 2e-4 * verdict.reach
    there = F.decode(x + step * verdict.direction)
    gained = Evaluator(D)(there)[0] - value
    assert 2.0 * verdict.rate * step < gained < 0.99 * verdict.rate * step
