"""Exact machines with any polyhedral loss: solutions against other solvers, derivatives against differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor

from foldwise import RBF, BilevelSearchCV, KernelSVR, LinearSVR, Pinball
from foldwise.bilevel import Bilevel
from foldwise.kernels import Linear
from foldwise.losses import Absolute, EpsilonInsensitive, Hinge, Polyhedral, Squared
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.kernel.model import KernelModel
from foldwise.models.linear import LinearModel, assemble
from foldwise.problems.staircase import RowStairs, StaircaseProblem
from foldwise.solvers.qp import ExactQP
from foldwise.solvers.staircase import ActiveSteps, StairRows
from foldwise.space import Lin, Log
from foldwise.testing import check_hypergradient, small_kernel_bilevel


@dataclass(frozen=True)
class Uneven(Polyhedral):
    """A tube that is dearer to leave upwards, of a width to tune."""

    epsilon: Any = 0.0
    tunable = ("epsilon",)

    def pieces(self, y):
        return [(-1.0, y - self.epsilon), (0.0, 0.0), (2.5, 2.5 * (-y - self.epsilon))]

    def pieces_epsilon(self, y):
        return [-1.0, 0.0, -2.5]


def rows(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.standard_t(3, size=n)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_kernel_machine_solves_the_dual_that_a_library_solves(C, intercept):
    clarabel, sp = pytest.importorskip("clarabel"), pytest.importorskip("scipy.sparse")
    X, y = rows()
    n, q, v = len(y), 0.8, np.random.default_rng(1).uniform(0.5, 2.0, 60)
    own = KernelSVR(RBF(0.3), loss=Pinball(q), C=C, fit_intercept=intercept).fit(X, y, sample_weight=v)
    alpha = np.zeros(n)
    alpha[own.support_] = own.dual_coef_[0]
    K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    eye, ones = sp.identity(n), sp.csc_matrix(np.ones((int(intercept), n)))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    found = clarabel.DefaultSolver(
        sp.triu(sp.csc_matrix(C * K)).tocsc(),
        -y,
        sp.vstack([ones, eye, -eye]).tocsc(),
        np.r_[np.zeros(int(intercept)), q * v, (1 - q) * v],
        [clarabel.ZeroConeT(int(intercept)), clarabel.NonnegativeConeT(2 * n)],
        settings,
    ).solve()
    np.testing.assert_allclose(alpha, C * np.array(found.x), atol=1e-5 * C)
    assert np.all(alpha <= q * C * v * (1 + 1e-15))
    assert np.all(alpha >= -(1 - q) * C * v * (1 + 1e-15))
    if intercept:
        assert abs(alpha.sum()) < 1e-12 * np.abs(alpha).sum()


@pytest.mark.parametrize("q", [0.2, 0.9])
def test_a_large_strength_is_quantile_regression(q):
    X, y = rows(101)
    theirs = QuantileRegressor(quantile=q, alpha=0.0).fit(X, y)
    linear = LinearSVR(Pinball(q), C=1e4).fit(X, y)
    np.testing.assert_allclose(linear.coef_, theirs.coef_, atol=1e-3)
    assert linear.intercept_ == pytest.approx(theirs.intercept_, abs=1e-3)
    kernel = KernelSVR(Linear(), loss=Pinball(q), C=1e4).fit(X, y)
    np.testing.assert_allclose(kernel.predict(X), theirs.predict(X), atol=1e-3)


def test_the_median_is_half_the_absolute_error():
    X, y = rows()
    for machine in (LinearSVR, KernelSVR):
        half = machine(loss=Pinball(), C=0.8).fit(X, y).predict(X)
        for loss, C in ((Absolute(), 0.4), (EpsilonInsensitive(0.0), 0.4), ("pinball", 0.8)):
            other = machine(loss=loss, C=C, epsilon=0.0).fit(X, y).predict(X)
            np.testing.assert_allclose(half, other, atol=1e-9)


@pytest.mark.parametrize(
    ("loss", "criterion"), [(EpsilonInsensitive(), Squared()), (Hinge(), Squared())], ids=["tube", "hinge"]
)
@pytest.mark.parametrize("C", [1e-3, 0.5, 30.0])
def test_the_hinge_and_the_tube_on_staircases_are_the_classical_machines(loss, criterion, C):
    theirs, theta = small_kernel_bilevel(loss, criterion, RBF(0.5), C=C)
    first = theirs.problems[0]
    problem = StaircaseProblem(first.data, first.gram, first.intercept)
    own = Bilevel([problem], criterion, theirs.space, ActiveSteps())
    here, there = (b.differentiate(b.evaluate(theta), order=2) for b in (own, theirs))
    one, two = own.solutions(here)[0], theirs.solutions(there)[0]
    np.testing.assert_allclose(one.alpha, two.alpha, atol=1e-9 * C)
    np.testing.assert_allclose(one.decisions, two.decisions, atol=1e-9)
    np.testing.assert_allclose(here.gradient, there.gradient, rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(here.hessian, there.hessian, rtol=1e-5, atol=1e-8)
    assert problem.flat_intercepts(one) == first.flat_intercepts(two)
    assert max(problem.residual(one, problem.workspace())) < 1e-9


@pytest.mark.parametrize("loss", [Pinball(0.7), Absolute(), Uneven()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("C", [1e-3, 0.5, 30.0])
def test_derivatives_of_kernel_machines_are_those_of_differences(loss, intercept, C):
    bilevel, theta = small_kernel_bilevel(loss, Squared(), RBF(0.5), C=C, intercept=intercept)
    check_hypergradient(bilevel, theta, floor=1e-6 if C < 0.1 else 1e-3)


def linear_program(loss, C, tune):
    X, y = rows(45)
    roles = {"C": Role("log_c"), "lam": Role("log_lam", per=(None, "feature"))}
    roles |= {
        "box": Role("box", per=(None, "feature")),
        "box_lower": Role("box_lower", per=(None, "feature")),
    }
    values = {"C": C, "lam": 1.0, "box": None, "box_lower": None}
    if "epsilon" in loss.tunable:
        roles["epsilon"], values["epsilon"] = Role("epsilon"), 0.3
    table = Rows(y[None])
    splits = [(np.setdiff1d(np.arange(45), np.arange(t, 45, 3)), np.arange(t, 45, 3)) for t in range(3)]
    space = make_space(tune, table, range(3))
    problem = assemble(LinearModel(loss, roles, values), X, table, splits, space, dimensions=tune)
    start = {"C": C, "lam": np.array([0.8, 1.1, 1.3]), "box": np.array([0.3, 0.4, 2.0]), "epsilon": 0.3}
    theta = space.theta({name: start[name] for name in space.slices})
    return Bilevel([problem], Squared(), space, ExactQP()), theta


@pytest.mark.parametrize("loss", [Pinball(0.7), Absolute(), Uneven()], ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("C", [3e-3, 0.5, 30.0])
def test_derivatives_of_linear_machines_are_those_of_differences(loss, C):
    tune = {"C": Log(1e-6, 1e6), "lam": Log(1e-6, 1e6, per="feature"), "box": Lin(0, 3, per="feature")}
    if "epsilon" in loss.tunable:
        tune["epsilon"] = Lin(0, 5)
    bilevel, theta = linear_program(loss, C, tune)
    here = bilevel.differentiate(bilevel.evaluate(theta))
    assert np.abs(here.gradient).max() > 1e-4
    for i, g in enumerate(here.gradient):
        step = 1e-6 * np.eye(len(theta))[i]
        up, down = bilevel.evaluate(theta + step).objective, bilevel.evaluate(theta - step).objective
        assert g == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-7)


def test_the_slow_way_ends_at_the_same_point():
    X, y = rows(50)
    K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    ends = np.tile([2.0, -0.3, -1.5], (50, 1))
    stairs = RowStairs(np.stack([y, y + 0.4], axis=1), ends, np.ones(50))
    for intercept in (True, False):
        slow, quick = StairRows(K, stairs, intercept), StairRows(K, stairs, intercept)
        slow.descend()
        done = ActiveSteps().fit(quick, None)
        assert slow.gap < 1e-10
        np.testing.assert_allclose(slow.alpha, done.alpha, atol=1e-9)
        assert slow.b == pytest.approx(done.b, abs=1e-9)


def test_a_solution_does_not_depend_on_where_the_solver_starts():
    bilevel, theta = small_kernel_bilevel(Pinball(0.7), Squared(), RBF(0.5))
    problem, solver, workspace = bilevel.problems[0], ActiveSteps(), bilevel.problems[0].workspace()
    there = problem.solved(solver, theta + 0.3, None, workspace)
    warm = problem.solved(solver, theta, there.state, workspace)
    cold = problem.solved(solver, theta)
    np.testing.assert_allclose(warm.alpha, cold.alpha, atol=1e-10)
    again = problem.solved(solver, theta, cold.state, workspace)
    assert again.steps == problem.n_tasks
    for found in (warm, cold):
        assert found.converged.all()


def test_a_tunable_parameter_says_how_its_pieces_move():
    class Mute(Uneven):
        pieces_epsilon = None

    X, y = rows(30)
    with pytest.raises(ValueError, match=r"defines no pieces_epsilon\(y\)"):
        KernelSVR(loss=Mute()).fit(X, y)


@pytest.mark.parametrize("machine", [LinearSVR, KernelSVR])
def test_a_search_learns_a_quantile_and_is_judged_by_it(machine):
    X, y = rows(300)
    search = BilevelSearchCV(machine(loss=Pinball(0.9)), cv=3, random_state=0).fit(X[:150], y[:150])
    assert search.criterion_ == Pinball(0.9)
    below = np.mean(y[150:] < search.predict(X[150:]))
    assert abs(below - 0.9) < 3 * np.sqrt(0.09 / 150) + 0.02
    named = BilevelSearchCV(machine(), criterion="pinball", cv=3, random_state=0, max_iter=5).fit(
        X[:60], y[:60]
    )
    assert named.criterion_ == Pinball(0.5)


def test_second_derivatives_of_linear_machines_are_those_of_differences():
    bilevel, theta = linear_program(
        Pinball(0.7), 0.5, {"C": Log(1e-6, 1e6), "lam": Log(1e-6, 1e6, per="feature")}
    )
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    numeric = []
    for step in 1e-6 * np.eye(len(theta)):
        up, down = (bilevel.differentiate(bilevel.evaluate(theta + s * step)).gradient for s in (1, -1))
        numeric.append((up - down) / 2e-6)
    np.testing.assert_allclose(here.hessian, numeric, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("quantile", [0.0, 1.0, -1, "half", None])
def test_a_quantile_lies_between_zero_and_one(quantile):
    with pytest.raises((ValueError, TypeError), match="quantile"):
        Pinball(quantile)


def test_models_choose_their_problem_by_the_loss():
    model = KernelSVR(loss=Pinball())._model(d=3)
    assert isinstance(model, KernelModel)
    bilevel, _ = small_kernel_bilevel(Absolute(), Squared(), RBF(0.5))
    assert isinstance(model.solver(bilevel.problems[0], 1e-6), ActiveSteps)
    with pytest.raises(ValueError, match="polyhedral losses such as Pinball"):
        StaircaseProblem.check_loss(None, Squared())
