"""Semiparametric problems of the folds: exact solutions, and derivatives where no row changes its kind."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

from foldwise.bilevel import Bilevel
from foldwise.kernels import RBF, Polynomial, Sum
from foldwise.losses import Absolute, EpsilonInsensitive, Hinge, Squared
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.kernel import assemble_kernel
from foldwise.models.semiparametric import SemiparametricModel
from foldwise.problems.dual import decision_limits, interval_ends
from foldwise.problems.semiparametric import BorderedSystem, centre, spans
from foldwise.solvers.active_set import finish
from foldwise.solvers.bordered import ExactSemiparametric, finish_with_columns
from foldwise.space import Lin, Log
from foldwise.testing import check_hypergradient, relative_error


def indicators(rows):
    return (rows[:, :2] > 0).astype(float)


BASES = {
    "constant": None,
    "linear": [0],
    "polynomial": PolynomialFeatures(2),
    "spline": SplineTransformer(4),
    "indicators": [indicators],
}
KERNELS = {
    "rbf": RBF(0.4),
    "ard": RBF([0.2, 0.5, 0.9]),
    "sum": Sum([RBF(0.4), Polynomial(2, 0.3, 0.8)], [0.5, 0.3]),
}


def program(basis, kernel, C=1.0, epsilon=0.2, *, n=54, weighted=False, criterion=None, seed=0):
    """Three folds of a seeded problem with every hyper-parameter free, and the point where they have these values."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(1.5 * X[:, 0]) + 0.7 * X[:, 1] * X[:, 2] + X[:, 0] + 0.4 * rng.normal(size=n)
    rows = Rows(y[None], rng.uniform(0.5, 2.0, n) if weighted else None)
    own = {f"kernel__{name}": value for name, value in kernel.parameters(3).items()}
    tune = {"C": Log(1e-6, 1e6), "epsilon": Lin(0, 5)}
    tune |= {name: Log(1e-8, 1e8, per=None if v.size == 1 else "feature") for name, v in own.items()}
    roles = {"C": Role("log_c"), "epsilon": Role("epsilon")}
    roles |= {name: Role("log_kernel", per=(None, "feature")) for name in own}
    values = {"C": C, "epsilon": epsilon, **own}
    slots = {name: name.removeprefix("kernel__") for name in own}
    model = SemiparametricModel(EpsilonInsensitive(), kernel, roles, values, slots, basis=basis)
    space = make_space(tune, rows, range(3), {name: range(v.size) for name, v in own.items() if v.size > 1})
    order = rng.permutation(n)
    splits = [(np.setdiff1d(order, part), np.sort(part)) for part in np.array_split(order, 3)]
    problem = assemble_kernel(model, X, rows, splits, space, dimensions=tune)
    bilevel = Bilevel([problem], criterion or Squared(), space, ExactSemiparametric())
    return bilevel, space.theta(values)


@pytest.mark.parametrize("C", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("basis", BASES.values(), ids=BASES)
def test_hypergradients_against_differences(basis, kernel, C):
    bilevel, theta = program(basis, kernel, C, weighted=C == 1.0, seed=1)
    evaluation = bilevel.evaluate(theta)
    assert evaluation.converged
    assert bilevel.problems[0].residual(evaluation.solutions[0], bilevel.workspaces[0]).max() < 1e-11
    check_hypergradient(bilevel, theta, rtol=1e-5)


@pytest.mark.parametrize("basis", [BASES["linear"], BASES["polynomial"]], ids=["linear", "polynomial"])
def test_another_criterion(basis):
    check_hypergradient(*program(basis, RBF(0.4), criterion=Absolute(), seed=2))


def variables(solution):
    """Decisions, and coefficients in units of their bounds."""
    return np.column_stack([solution.decisions, solution.state.share])


def pinned(bilevel, theta):
    point = bilevel.evaluate(theta).solutions[0]
    return [system.slope is not None for system in bilevel.linearized(0, point).systems]


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_coefficients_that_free_rows_leave_open_follow_the_rows_that_pin_them(seed):
    bilevel, theta = program(BASES["indicators"], RBF(0.4), 0.1, 0.2, n=60, seed=seed)
    assert any(pinned(bilevel, theta))
    check_hypergradient(bilevel, theta, rtol=1e-5)


def test_sensitivities_against_differences():
    bilevel, theta = program(BASES["polynomial"], RBF([0.3, 0.6, 0.2]), 2.0, seed=3)
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    J = here.sensitivities[0]
    for i, step in enumerate(1e-6 * np.eye(len(theta))):
        up, down = (variables(bilevel.evaluate(theta + sign * step, here).solutions[0]) for sign in (1, -1))
        assert relative_error(J[:, :, i], (up - down) / 2e-6) < 1e-5
        assert np.abs(J[:, :, i]).max() > 1e-3


def test_a_warm_start_ends_where_a_cold_one_does():
    bilevel, theta = program(BASES["polynomial"], RBF(0.4), seed=4)
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    away = theta + np.array([0.3, 0.05, -0.2])
    warm, cold = bilevel.evaluate(away, here), bilevel.evaluate(away)
    assert relative_error(warm.solutions[0].decisions, cold.solutions[0].decisions) < 1e-11
    assert warm.solutions[0].steps < 120


# The pieces.


def test_an_intercept_is_one_column():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    K = RBF(0.7)(X, X)
    for C in (0.02, 0.7, 20.0):
        c = np.full(40, C)
        ours = finish_with_columns(K, y, 0.3, c, np.zeros(40), np.ones((40, 1)))
        theirs = finish(K, y, 0.3, c, np.zeros(40), 0.0, True)
        assert np.allclose(ours.alpha, theirs.alpha, atol=1e-11 * C)
        assert ours.b[0] == pytest.approx(theirs.b, abs=1e-11)


def test_a_start_that_breaks_the_equalities():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    K, Q, c = RBF(0.7)(X, X), np.column_stack([np.ones(30), X]), np.full(30, 0.5)
    wanted = finish_with_columns(K, y, 0.1, c, np.zeros(30), Q)
    for start in (c, np.where(y > 0, c, -c), rng.uniform(-0.5, 0.5, 30)):
        got = finish_with_columns(K, y, 0.1, c, start, Q)
        assert got.gap < 1e-12
        assert np.allclose(got.alpha, wanted.alpha, atol=1e-11)
        assert np.allclose(got.b, wanted.b, atol=1e-10)


def test_the_centre_of_a_constant_is_the_middle_of_its_interval():
    rng = np.random.default_rng(2)
    y = rng.normal(size=20)
    none = np.zeros(20, dtype=bool)
    low, up = decision_limits(y, 5.0, np.zeros(20), none, none)
    f = 0.1 * rng.normal(size=20)
    found = centre(np.ones((20, 1)), f, low, up, none, none)
    first, last = interval_ends(low, up, f)
    assert found.q[0] == pytest.approx(0.5 * (low[first] - f[first] + up[last] - f[last]))
    assert set(found.rows) == {first, last}
    assert found.reach == pytest.approx(0.5 * (up[last] - f[last] - low[first] + f[first]))


def test_the_centre_is_farthest_from_all_kinks_and_unique():
    rng = np.random.default_rng(3)
    Q = np.column_stack([np.ones(15), rng.normal(size=(15, 2)), rng.normal(size=15) * (np.arange(15) < 6)])
    y, none = rng.normal(size=15), np.zeros(15, dtype=bool)
    low, up = decision_limits(y, 4.0, np.zeros(15), none, none)
    found = centre(Q, np.zeros(15), low, up, none, none)
    room = np.minimum(Q @ found.q - low, up - Q @ found.q)
    assert room.min() == pytest.approx(found.reach)
    for q in found.q + 0.1 * rng.normal(size=(200, 4)):
        assert np.minimum(Q @ q - low, up - Q @ q).min() <= found.reach + 1e-12
    order = rng.permutation(15)
    again = centre(Q[order], np.zeros(15), low[order], up[order], none, none)
    assert np.allclose(again.q, found.q, atol=1e-9)
    assert found.null.shape == (len(found.rows), 4)


def test_as_many_columns_as_rows_interpolate():
    rng = np.random.default_rng(4)
    Q, y, none = rng.normal(size=(4, 4)), rng.normal(size=4), np.zeros(4, dtype=bool)
    low, up = decision_limits(y, 0.5, np.zeros(4), none, none)
    found = centre(Q, np.zeros(4), low, up, none, none)
    assert np.allclose(Q @ found.q, y, atol=1e-9)
    assert np.allclose(found.slope, 0.0)


def test_bordered_systems():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(12, 2))
    X[1] = X[0]  # K is singular, the bordered system is not
    K, Q = RBF(0.5)(X, X), np.column_stack([np.ones(12), np.arange(12.0)])
    rows = np.array([0, 1, 4, 7, 9])
    assert spans(Q[rows])
    assert not spans(np.ones((5, 2)))
    system = BorderedSystem.build(K, rows, Q)
    r, total = rng.normal(size=(5, 3)), rng.normal(size=(2, 3))
    r[1] = r[0]
    r[1] -= Q[0, 1] - Q[1, 1]  # consistent: the twins may differ by what the columns allow
    v, b = system.solve(r, total)
    assert np.allclose(Q[rows].T @ v, total, atol=1e-9)
    one, single = system.solve(r[:, 0], total[:, 0])
    assert np.allclose(one, v[:, 0])
    assert np.allclose(single, b[:, 0])


def test_classification_is_refused():
    with pytest.raises(ValueError, match="regression; got Hinge"):
        from foldwise.problems.semiparametric import SemiparametricProblem

        SemiparametricProblem.check_loss(SemiparametricProblem.__new__(SemiparametricProblem), Hinge())


@pytest.mark.parametrize("seed", range(3))
def test_equalities_hold_where_targets_are_far_larger_than_coefficients(seed):
    """Multipliers of 1e4 beside coefficients of 1e-8: the rounding of the former is no imbalance of the latter."""
    rng = np.random.default_rng(seed)
    X, y, c = rng.uniform(size=(12, 2)), 1e4 + 1e4 * rng.normal(size=12), 1e-8 * rng.uniform(0.2, 2, 12)
    K = RBF(1.0)(X, X)
    Q = np.column_stack([np.ones(12), X[:, 0]])
    for done in (
        finish_with_columns(K, y, 0.1, c, np.zeros(12), Q),
        finish(K, y, 0.1, c, np.zeros(12), 0.0, intercept=True),
    ):
        assert done.gap <= 1e-10
        assert abs(done.alpha.sum()) <= 1e-14 * np.abs(done.alpha).sum()
        assert np.any((done.alpha != 0) & (np.abs(done.alpha) < c))
