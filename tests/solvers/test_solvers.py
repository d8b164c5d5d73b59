"""Inner solvers: the contract, against scikit-learn, and against an independent QP solver."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC, LinearSVR

from foldwise.design import make_design
from foldwise.losses import (
    Huber,
    Logistic,
    QuarticHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.penalties import Quadratic
from foldwise.problems.base import TaskData
from foldwise.problems.folds import Folds
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import ParameterMap
from foldwise.solvers.fista import Fista
from foldwise.solvers.newton import Newton
from foldwise.space import Lin, Log, Space
from foldwise.testing import SMOOTH_LOSSES, check_solver, relative_error, small_bilevel
from tests.referees import quadratic_program

NO_THETA = np.zeros(0)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
@pytest.mark.parametrize("solver", [Newton(), Fista()], ids=lambda s: type(s).__name__)
def test_contract(solver, loss, seed):
    check_solver(solver, losses=[loss], seed=seed)


@dataclass(frozen=True)
class Hasty(Newton):
    """Claims convergence whatever it reached."""

    def solve(self, problem, theta, state, workspace):
        point = Newton(tol=1e-3, max_iter=self.max_iter).solve(problem, theta, state, workspace)
        point.converged[:] = True
        return point


@dataclass(frozen=True)
class Wrong(Newton):
    """Solves another problem."""

    def solve(self, problem, theta, state, workspace):
        return super().solve(problem, theta + 0.1, state, workspace)


@pytest.mark.parametrize(
    ("solver", "words"), [(Hasty(), "claims convergence"), (Wrong(), "decisions|claims")]
)
def test_contract_can_fail(solver, words):
    with pytest.raises(AssertionError, match=words):
        check_solver(solver)


# One problem on all rows, nothing tuned.


def solve(X, y, loss, *, C=1.0, lam=1.0, intercept=True, weight=None, strength=0.0, solver=None):
    """Coefficients, intercept and objective of one training problem, on the user's columns."""
    n, d = X.shape
    folds, design = Folds.whole(n), make_design(X, intercept)
    lam = np.broadcast_to(np.asarray(lam, float), (1, d))
    tube = np.full((1, 1), float(getattr(loss, "epsilon", 0.0)))
    parameters = ParameterMap(Space.build({}, {}), {}, np.full((1, 1), np.log(C)), tube, np.log(lam))
    form = None
    if strength:
        # The user's intercept as a linear form in the stored variables.
        form = np.append(-design.shift / design.scale, 1.0)[None]
    penalty = Quadratic(1.0 / design.scale[None] ** 2, design.n_columns, form, strength)
    problem = LinearProblem(TaskData(y[None], folds, loss, parameters, weight), design, penalty)
    point = problem.solved(solver or Newton(tol=1e-12), NO_THETA)
    assert point.converged.all()
    coef, bias = design.to_user(point.W)
    value = float(problem.value(point, None)[0])
    weight = np.ones(n) if weight is None else weight
    direct = primal(coef[0], bias[0], X, y, loss, C, lam[0], weight, strength)
    assert value == pytest.approx(direct, rel=1e-9)
    return coef[0], bias[0], value


def primal(w, b, X, y, loss, C, lam, weight, strength=0.0):
    """The training objective, written out."""
    return 0.5 * lam @ w**2 + 0.5 * strength * b**2 + C * weight @ loss.value(X @ w + b, y)


def data(loss, n=80, d=6, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(0.3, 2.0, d) + offset
    y = (X - offset) @ rng.normal(size=d) + 1.5 * rng.standard_t(3, size=n) + 0.7
    return X, (np.where(y > 0, 1.0, -1.0) if loss.task == "classification" else y)


def quietly(fit):
    """scikit-learn's dual coordinate descent warns at tolerances that it reaches anyway."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit()


@pytest.mark.parametrize("C", [0.01, 0.3, 5.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_linear_svr_without_intercept(C, epsilon):
    loss = SquaredEpsilonInsensitive(epsilon)
    X, y = data(loss)
    coef, _, value = solve(X, y, loss, C=C, intercept=False)
    model = LinearSVR(
        loss="squared_epsilon_insensitive", C=C, epsilon=epsilon, fit_intercept=False, dual=False, tol=1e-10
    )
    model = quietly(lambda: model.set_params(max_iter=100_000).fit(X, y))
    assert value <= primal(model.coef_, 0.0, X, y, loss, C, np.ones(6), np.ones(80)) * (1 + 1e-9)
    assert relative_error(coef, model.coef_) < 1e-5


@pytest.mark.parametrize("offset", [0.0, 300.0], ids=["centred", "far from zero"])
def test_linear_svr_penalises_its_intercept(offset):
    """LIBLINEAR's intercept is the coefficient of a constant column of ``intercept_scaling``."""
    loss = SquaredEpsilonInsensitive(0.4)
    X, y = data(loss, offset=offset)
    scaling = 2.0
    solver = Newton(tol=1e-9)
    coef, bias, value = solve(X, y, loss, C=0.3, strength=1 / scaling**2, solver=solver)
    assert bool(make_design(X, True).shift.any()) is (offset > 0)
    wide = np.column_stack([X, np.full(len(y), scaling)])
    wide_coef, _, wide_value = solve(wide, y, loss, C=0.3, intercept=False, solver=solver)
    assert value == pytest.approx(wide_value, rel=1e-8)
    assert relative_error(np.append(coef, bias / scaling), wide_coef) < 1e-6
    if not offset:
        model = LinearSVR(
            loss="squared_epsilon_insensitive",
            C=0.3,
            epsilon=0.4,
            intercept_scaling=scaling,
            dual=False,
            tol=1e-10,
        ).fit(X, y)
        assert relative_error(np.append(coef, bias), np.append(model.coef_, model.intercept_)) < 1e-5


@pytest.mark.parametrize("C", [0.01, 1.0, 20.0])
def test_linear_svc_without_intercept(C):
    X, y = data(SquaredHinge())
    coef, _, value = solve(X, y, SquaredHinge(), C=C, intercept=False)
    model = LinearSVC(loss="squared_hinge", C=C, fit_intercept=False, dual=False, tol=1e-12).fit(X, y)
    assert value <= primal(model.coef_[0], 0.0, X, y, SquaredHinge(), C, np.ones(6), np.ones(80)) * (1 + 1e-9)
    assert relative_error(coef, model.coef_[0]) < 1e-6


def test_linear_svc_with_a_nearly_free_intercept():
    X, y = data(SquaredHinge())
    coef, bias, _ = solve(X, y, SquaredHinge(), C=0.5)
    model = LinearSVC(C=0.5, dual=False, tol=1e-12, intercept_scaling=1e4, max_iter=10_000).fit(X, y)
    assert relative_error(np.append(coef, bias), np.append(model.coef_[0], model.intercept_)) < 1e-5


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_ridge(C, intercept):
    X, y = data(Squared())
    weight = np.random.default_rng(1).uniform(0.3, 2.0, 80)
    coef, bias, _ = solve(X, y, Squared(), C=C, intercept=intercept, weight=weight)
    model = Ridge(alpha=1 / (2 * C), fit_intercept=intercept).fit(X, y, sample_weight=weight)
    assert relative_error(np.append(coef, bias), np.append(model.coef_, model.intercept_)) < 1e-9


def test_ridge_with_one_penalty_per_feature():
    X, y = data(Squared())
    lam = np.geomspace(0.01, 100, 6)
    coef, bias, _ = solve(X, y, Squared(), C=0.5, lam=lam)
    model = Ridge(alpha=1.0).fit(X / np.sqrt(lam), y)
    assert (
        relative_error(np.append(coef, bias), np.append(model.coef_ / np.sqrt(lam), model.intercept_)) < 1e-9
    )


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("C", [1e-3, 0.5, 50.0])
def test_logistic_regression(C, intercept):
    X, y = data(Logistic())
    weight = np.random.default_rng(1).uniform(0.3, 2.0, 80)
    coef, bias, _ = solve(X, y, Logistic(), C=C, intercept=intercept, weight=weight)
    model = LogisticRegression(C=C, fit_intercept=intercept, tol=1e-10, solver="newton-cholesky")
    model.fit(X, y, sample_weight=weight)
    wanted = np.append(model.coef_[0], model.intercept_ if intercept else 0.0)
    assert relative_error(np.append(coef, bias), wanted) < 1e-6


# An independent QP solver.


def qp_objective(X, y, loss, C, lam, weight):
    """Optimal value by Clarabel: the training problem as a quadratic program over ``(w, b, slacks)``."""
    n, d = X.shape
    one, eye = np.ones((n, 1)), sp.eye_array(n)
    slack = C * weight
    if isinstance(loss, SquaredHinge):
        # xi >= 1 - y (x'w + b), cost C xi^2
        P = sp.block_diag([sp.diags_array(lam), sp.csc_array((1, 1)), sp.diags_array(2 * slack)])
        A = sp.hstack([-y[:, None] * X, -y[:, None], -eye])
        b, q = -np.ones(n), np.zeros(d + 1 + n)
    elif isinstance(loss, SquaredEpsilonInsensitive):
        # xi >= |x'w + b - y| - epsilon
        P = sp.block_diag([sp.diags_array(lam), sp.csc_array((1, 1)), sp.diags_array(2 * slack)])
        A = sp.vstack([sp.hstack([X, one, -eye]), sp.hstack([-X, -one, -eye])])
        b, q = np.concatenate([y + loss.epsilon, -y + loss.epsilon]), np.zeros(d + 1 + n)
    else:
        # Huber: r = u + v, cost u^2/2 + delta |v|, |v| <= t
        P = sp.block_diag(
            [sp.diags_array(lam), sp.csc_array((1, 1)), sp.diags_array(slack), sp.csc_array((n, n))]
        )
        A = sp.vstack([sp.hstack([X, one, -eye, -eye]), sp.hstack([-X, -one, eye, -eye])])
        b = np.concatenate([y, -y])
        q = np.concatenate([np.zeros(d + 1 + n), loss.delta * slack])
    x, value = quadratic_program(P, q, A, b, tol=1e-11)
    return x[:d], x[d], value


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("C", [0.02, 1.0, 30.0])
@pytest.mark.parametrize(
    "loss", [SquaredHinge(), SquaredEpsilonInsensitive(0.5), Huber(0.7)], ids=lambda loss: type(loss).__name__
)
def test_against_an_independent_qp_solver(loss, C, seed):
    X, y = data(loss, n=60, d=5, seed=seed)
    rng = np.random.default_rng(seed + 10)
    weight, lam = rng.uniform(0.3, 2.0, 60), np.geomspace(0.2, 5.0, 5)
    coef, bias, value = solve(X, y, loss, C=C, lam=lam, weight=weight)
    w, b, wanted = qp_objective(X, y, loss, C, lam, weight)
    assert value == pytest.approx(wanted, rel=1e-6)
    assert relative_error(np.append(coef, bias), np.append(w, b)) < 1e-4
    # The referee's point cannot be better: ours is a minimum.
    assert value <= primal(w, b, X, y, loss, C, lam, weight) * (1 + 1e-12)


# Two of our own.


@pytest.mark.parametrize("options", [{}, {"sparse": True}, {"overlap": True, "n_targets": 2}], ids=str)
@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_newton_and_fista_agree(loss, options):
    tune = {"C": Log(1e-4, 1e2, per="group"), "lam": Log(1e-3, 1e3, per="feature")}
    if "epsilon" in loss.tunable:
        tune["epsilon"] = Lin(0, 2)
    bilevel, theta = small_bilevel(loss, Squared(), tune, sample_weight=True, **options)
    problem = bilevel.problems[0]
    newton = problem.solved(Newton(tol=1e-12), theta)
    fista = problem.solved(Fista(tol=1e-11), theta)
    assert newton.converged.all()
    assert fista.converged.all()
    assert relative_error(fista.W, newton.W) < 1e-8


def test_newton_and_fista_agree_with_a_penalised_intercept():
    loss = SquaredEpsilonInsensitive(0.4)
    X, y = data(loss)
    newton = solve(X, y, loss, C=0.3, strength=0.5)
    fista = solve(X, y, loss, C=0.3, strength=0.5, solver=Fista(tol=1e-11))
    assert relative_error(np.append(*fista[:2]), np.append(*newton[:2])) < 1e-8


@pytest.mark.parametrize(
    ("loss", "seed", "C"),
    [(Logistic(), 10, 0.003), (SquaredHinge(), 22, 0.03), (SquaredHinge(), 31, 0.003), (Huber(), 10, 0.003)],
)
def test_fista_leaves_finished_tasks_alone(loss, seed, C):
    """While other tasks go on, one that is finished must not drift away again."""
    problem = small_bilevel(loss, Squared(), n_splits=5, seed=seed)[0].problems[0]
    point = problem.solved(Fista(tol=1e-9), np.log([C]))
    assert point.converged.all()
    assert problem.residual(point, None).max() <= 1.001e-9


@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_dense_and_csr_agree(loss):
    dense, theta = small_bilevel(loss, Squared(), sparse=True, seed=2)
    csr = dense.problems[0]
    rows = csr.design.array.toarray()[:, :-1]
    design = make_design(rows, True)
    assert design.is_dense
    assert not csr.design.is_dense
    penalty = Quadratic(csr.penalty.scale * csr.design.scale**2 / design.scale**2, design.n_columns)
    other = LinearProblem(csr.data, design, penalty)
    a, b = (p.solved(Newton(tol=1e-12), theta) for p in (csr, other))
    assert relative_error(b.decisions, a.decisions) < 1e-8


# Hard cases.


@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_fewer_rows_than_columns_and_a_weak_penalty(loss):
    X, y = data(loss, n=30, d=60)
    coef, bias, value = solve(X, y, loss, C=1e4, solver=Newton(tol=1e-9))
    perturbed = [
        primal(coef + d[:-1], bias + d[-1], X, y, loss, 1e4, np.ones(60), np.ones(30))
        for d in 1e-3 * np.random.default_rng(0).normal(size=(20, 61))
    ]
    assert value < min(perturbed)


def test_too_few_steps_are_reported():
    bilevel, theta = small_bilevel(Logistic(), Squared(), solver=Newton(max_iter=1))
    evaluation = bilevel.evaluate(theta)
    assert not evaluation.converged
    assert not evaluation.solutions[0].converged.any()


def test_newton_takes_a_handful_of_steps_and_none_from_its_solution():
    for loss in SMOOTH_LOSSES:
        bilevel, theta = small_bilevel(loss, Squared())
        problem = bilevel.problems[0]
        point = problem.solved(Newton(), theta)
        assert 1 <= point.steps <= 12
        assert problem.solved(Newton(), theta, point.state).steps == 0


@pytest.mark.parametrize("loss", [Squared(), SquaredEpsilonInsensitive(), Huber()], ids=repr)
def test_a_constant_target_is_solved(loss):
    for seed in range(5):
        X, _ = data(loss, seed=seed)
        coef, bias, _ = solve(X, np.full(80, 1 / 3), loss, C=1.0, solver=Newton())
        assert np.abs(coef).max() < 1e-12
        assert bias == pytest.approx(1 / 3)


@pytest.mark.parametrize("loss", [Logistic(), QuarticHinge()], ids=repr)
def test_columns_of_zeros_are_solved(loss):
    for seed in range(5):
        X, y = data(loss, seed=seed)
        coef, _, _ = solve(0 * X, y, loss, C=1.0, solver=Newton())
        assert not coef.any()
