"""Every solver of the semiparametric dual against an independent QP solver, scikit-learn and its own certificate."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.svm import SVR

from foldwise.kernels import RBF, Linear, Polynomial, Precomputed, Sum
from foldwise.linalg import pivoted_cholesky
from foldwise.result import Status
from foldwise.solvers.semiparametric import SOLVERS, columns_of, solve
from foldwise.solvers.semiparametric.columns import ColumnCache
from tests.referees import quadratic_program

clarabel = pytest.importorskip("clarabel")

EXACT = ("auto", "interior_point", "active_set")
FIRST_ORDER = tuple(name for name in SOLVERS if name not in EXACT)


def hat(M, seed=0):
    """The modified Mexican hat of lee2009: rows, basis, targets."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.0, 10.0, M)
    Psi = np.column_stack([np.sin(t), np.sinc(2.0 * (t - 5.0))])
    return t[:, None], Psi, Psi.sum(axis=1) + 0.2 * rng.normal(size=M)


def instance(seed, M, d, K, C, duplicates=0):
    """A random problem: kernel, rows, basis, targets, bound, tube."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(M, d))
    if duplicates:
        X[:duplicates] = X[duplicates : 2 * duplicates]
    Psi = np.column_stack([np.ones(M), rng.normal(size=(M, K - 1))])
    y = np.sin(5.0 * X[:, 0]) + Psi @ rng.normal(size=K) + 0.3 * rng.normal(size=M)
    return RBF(rng.uniform(0.5, 5.0)), X, Psi, y, C, 0.1


def reference(K, Psi, y, C, epsilon):
    """Optimal objective by Clarabel on ``(alpha, alpha*)``."""
    M, k = Psi.shape
    C, epsilon = np.broadcast_to(C, M), np.broadcast_to(epsilon, M)
    P = np.block([[K, -K], [-K, K]]) + 1e-13 * np.eye(2 * M)
    A = np.vstack([np.hstack([Psi.T, -Psi.T]), np.eye(2 * M), -np.eye(2 * M)])
    b = np.r_[np.zeros(k), C, C, np.zeros(2 * M)]
    return -quadratic_program(P, np.r_[epsilon - y, epsilon + y], A, b, equal=k, tol=1e-10)[1]


def certificate(K, Psi, y, C, epsilon, solution):
    """The violation of the optimality conditions, written out again from their statement."""
    r = y - K @ solution.delta - Psi @ solution.beta
    worst = 0.0
    for delta, residual in zip(solution.delta, r, strict=True):
        assert abs(delta) <= C
        if delta == 0:
            worst = max(worst, abs(residual) - epsilon)
        elif delta == C:
            worst = max(worst, epsilon - residual)
        elif delta == -C:
            worst = max(worst, residual + epsilon)
        else:
            worst = max(worst, abs(residual - np.sign(delta) * epsilon))
    balance = np.abs(Psi.T @ solution.delta) / np.abs(Psi).max(axis=0)
    return max(worst, float(balance.max()) / min(1.0, C))


CASES = [
    (0, 60, 1, 1, 0.01, 0),
    (1, 60, 1, 2, 1.0, 10),
    (2, 80, 3, 5, 0.1, 0),
    (3, 80, 10, 20, 1.0, 0),
    (4, 80, 2, 3, 10.0, 20),
    (5, 120, 5, 10, 10.0, 0),
    (6, 60, 1, 3, 100.0, 0),
    (7, 100, 4, 8, 100.0, 10),
]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_agrees_with_a_qp_solver(solver, case):
    kernel, X, Psi, y, C, epsilon = instance(*case)
    K = kernel(X, X)
    best = reference(K, Psi, y, C, epsilon)
    tol = 1e-3 if solver in EXACT else 1e-5
    solution = solve(columns_of(kernel, X), Psi, y, C, epsilon, solver=solver, tol=tol)
    assert solution.status is Status.CONVERGED, solution.message
    assert solution.kkt <= tol
    assert certificate(K, Psi, y, C, epsilon, solution) <= tol + 1e-9
    assert solution.dual_objective == pytest.approx(best, rel=1e-5)


def test_the_hat_is_solved_on_a_factor_of_low_rank():
    X, Psi, y = hat(2000)
    source = columns_of(RBF(0.25), X)
    solution = solve(source, Psi, y, 1.0, 0.05)
    assert (solution.solver, solution.status) == ("interior_point", Status.CONVERGED)
    assert solution.low_rank < 30
    np.testing.assert_allclose(solution.beta, 1.0, atol=0.1)
    # The certificate counts what the factor leaves out: the violation with the true kernel is no larger.
    np.testing.assert_allclose(solution.f, source.product(solution.delta), atol=1e-4)
    assert certificate(RBF(0.25)(X, X), Psi, y, 1.0, 0.05, solution) <= solution.kkt + 1e-12


@pytest.mark.parametrize("solver", ["auto", "active_set"])
def test_small_tolerances_are_reached(solver):
    X, Psi, y = hat(300)
    K = RBF(0.25)(X, X)
    solution = solve(columns_of(Precomputed(), K), Psi, y, 1.0, 0.05, solver=solver, tol=1e-9)
    assert solution.kkt <= 1e-9
    assert solution.objective == pytest.approx(reference(K, Psi, y, 1.0, 0.05), rel=1e-8)
    assert solution.objective - solution.dual_objective < 1e-6


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_a_constant_basis_is_ordinary_svr(C):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 3))
    y = np.sin(5 * X[:, 0]) + 0.2 * rng.normal(size=150)
    theirs = SVR(C=C, epsilon=0.1, gamma=3.0, tol=1e-8).fit(X, y)
    ours = solve(columns_of(RBF(3.0), X), np.ones((150, 1)), y, C, 0.1, tol=1e-7)
    np.testing.assert_allclose(ours.f + ours.beta, theirs.predict(X), atol=1e-5)
    np.testing.assert_array_equal(np.flatnonzero(ours.delta), theirs.support_)


@pytest.mark.parametrize(
    "kernel", [Linear(), Polynomial(2), Sum([RBF(2.0), Linear()]), RBF([0.5, 2.0, 8.0])], ids=str
)
def test_any_kernel_serves(kernel):
    _, X, Psi, y, C, epsilon = instance(0, 60, 3, 2, 1.0)
    K = kernel(X, X)
    solution = solve(columns_of(kernel, X), Psi, y, C, epsilon)
    assert certificate(K, Psi, y, C, epsilon, solution) <= 1e-3 + 1e-9
    assert solution.dual_objective == pytest.approx(reference(K, Psi, y, C, epsilon), rel=1e-5)


def test_a_kernel_of_high_rank_takes_the_working_sets():
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(600, 6))
    y = X[:, 0] + 0.1 * rng.normal(size=600)
    Psi = np.ones((600, 1))
    solution = solve(columns_of(RBF(25.0), X), Psi, y, 0.1, 0.01)
    assert solution.solver == "pdsg"
    assert solution.status is Status.CONVERGED
    assert certificate(RBF(25.0)(X, X), Psi, y, 0.1, 0.01, solution) <= 1e-3 + 1e-9


def test_rows_have_their_own_bounds_and_tubes():
    kernel, X, Psi, y, _, _ = instance(3, 60, 2, 3, 1.0)
    C, epsilon = np.linspace(0.0, 2.0, 60), np.linspace(0.0, 0.3, 60)
    solution = solve(columns_of(kernel, X), Psi, y, C, epsilon, tol=1e-6)
    assert solution.delta[0] == 0
    assert np.all(np.abs(solution.delta) <= C)
    assert solution.objective == pytest.approx(reference(kernel(X, X), Psi, y, C, epsilon), rel=1e-5)


@pytest.mark.parametrize("solver", SOLVERS)
def test_without_a_basis(solver):
    kernel, X, _, y, C, epsilon = instance(4, 50, 2, 1, 1.0)
    Psi = np.zeros((50, 0))
    solution = solve(columns_of(kernel, X), Psi, y, C, epsilon, solver=solver, tol=1e-5)
    assert solution.status is Status.CONVERGED
    assert solution.beta.shape == (0,)
    assert solution.objective == pytest.approx(reference(kernel(X, X), Psi, y, C, epsilon), rel=1e-4)


def test_a_dependent_basis_gives_its_rank_and_the_same_decisions():
    X, Psi, y = hat(200)
    source = columns_of(RBF(0.25), X)
    plain = solve(source, Psi, y, 1.0, 0.05, tol=1e-8)
    doubled = solve(source, np.column_stack([Psi, Psi[:, 0]]), y, 1.0, 0.05, tol=1e-8)
    assert (plain.rank, doubled.rank) == (2, 2)
    assert doubled.beta[0] == pytest.approx(doubled.beta[2])
    assert doubled.beta[0] + doubled.beta[2] == pytest.approx(plain.beta[0], abs=1e-6)


@pytest.mark.parametrize("solver", ["pdsg", "mpd", "active_set", "pdsg_alone", "mpd_alone"])
def test_a_small_budget_is_reported(solver):
    X, Psi, y = hat(700)
    solution = solve(columns_of(RBF(0.25), X), Psi, y, 10.0, 0.05, solver=solver, max_iter=1)
    assert solution.status is Status.MAX_ITER
    assert solution.kkt > 1e-3
    assert "solver='auto'" in solution.message
    late = solve(columns_of(RBF(0.25), X), Psi, y, 10.0, 0.05, solver=solver, max_time=0.0)
    assert late.status is Status.TIME_LIMIT


@pytest.mark.parametrize("solver", ["pdsg", "pdsg_alone", "mpd_alone"])
def test_traces_and_callbacks(solver):
    X, Psi, y = hat(300)
    seen = []
    solution = solve(
        columns_of(RBF(0.25), X),
        Psi,
        y,
        1.0,
        0.05,
        solver=solver,
        trace=True,
        callback=seen.append,
        options={"chunk": 100, "size": 100, "fresh": 20},
    )
    assert solution.trace == seen
    assert len(seen) > 3
    assert max(seen[-1].dual, seen[-1].primal) <= 1e-3
    assert seen[-1].beta[0] == pytest.approx(solution.beta[0])
    stopped = solve(columns_of(RBF(0.25), X), Psi, y, 1.0, 0.05, solver=solver, callback=lambda record: True)
    assert stopped.status is Status.STOPPED


def test_a_warm_start_saves_steps():
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(1200, 5))
    y = X[:, 0] + 0.1 * rng.normal(size=1200)
    source, Psi = columns_of(RBF(10.0), X), np.ones((1200, 1))
    first = solve(source, Psi, y, 0.1, 0.01, solver="pdsg")
    again = solve(source, Psi, y, 0.1, 0.01, solver="pdsg", warm=(first.delta, first.beta))
    near = solve(source, Psi, y, 0.105, 0.01, solver="pdsg", warm=(first.delta, first.beta))
    assert again.n_iter == 0
    assert near.status is Status.CONVERGED
    assert near.n_iter < first.n_iter


def test_the_cache_keeps_the_latest_columns_within_its_memory():
    X, _, _ = hat(500)
    source = columns_of(RBF(0.25), X)
    cache = ColumnCache(source, 0.04)  # ten columns of 500 numbers
    assert cache.slots == 10
    K = RBF(0.25)(X, X)
    rng = np.random.default_rng(0)
    f, expected = np.zeros(500), np.zeros(500)
    for _ in range(5):
        index = rng.choice(500, 25, replace=False)
        weights = rng.normal(size=25)
        cache.add_to(f, index, weights)
        expected += K[:, index] @ weights
    np.testing.assert_allclose(f, expected, atol=1e-12)
    assert cache.store.nbytes <= 40_000
    hits = cache.hits
    latest = np.array(list(cache.slot_of))[-3:]
    cache.fetch(latest)
    assert cache.hits == hits + 3


@pytest.mark.parametrize("rank", [5, 60])
def test_the_factor_bounds_what_it_leaves_out(rank):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 3))
    source = columns_of(RBF(4.0), X)
    factor, fine = pivoted_cholesky(source.diagonal(), source.columns, 1e-12, rank)
    assert (factor.rank, fine) == (rank, False)
    delta = rng.normal(size=200)
    true = np.abs(source.product(delta) - factor.product(delta)).max()
    assert 0 < true <= factor.error(delta)
    longer, _ = pivoted_cholesky(source.diagonal(), source.columns, 1e-12, 2 * rank, factor)
    assert longer.error(delta) < factor.error(delta)


def test_a_cache_in_single_precision_sums_in_double():
    rng = np.random.default_rng(3)
    source = columns_of(RBF(2.0), rng.uniform(size=(300, 4)))
    cache = ColumnCache(source, 0.12, single=True)
    assert cache.slots == 100
    assert cache.store.nbytes <= 0.12e6
    index, weights = rng.permutation(300)[:230], rng.normal(size=230)
    f = np.zeros(300)
    cache.add_to(f, index, weights)
    np.testing.assert_allclose(f, weights @ source.columns(index), atol=1e-5)
    rows = np.sort(index[:60])
    np.testing.assert_allclose(cache.block(rows), source.block(rows, rows), atol=1e-7)


def test_a_kernel_matrix_that_is_too_large_is_refused():
    n = 30_000
    source = columns_of(RBF(), np.zeros((n, 1)))
    with pytest.raises(ValueError, match=r"7.2 GB for 30000 rows.*use solver='pdsg'"):
        solve(source, np.ones((n, 1)), np.arange(float(n)), 1.0, 0.1, solver="pdsg_alone")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"solver": "smo"}, "choose one of"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"C": -1.0}, "C must not be negative"),
        ({"epsilon": np.nan}, "epsilon has values that are not finite"),
        ({"Psi": np.ones((3, 1))}, "same number"),
        ({"warm": (np.zeros(2), np.zeros(1))}, "warm has shapes"),
        ({"options": {"speed": 2}}, "are not known"),
        ({"cache_size": 0}, "megabytes"),
    ],
)
def test_bad_input_gets_an_error_that_helps(change, words):
    arguments = {"Psi": np.ones((20, 1)), "y": np.arange(20.0), "C": 1.0, "epsilon": 0.1} | change
    with pytest.raises(ValueError, match=words):
        solve(columns_of(RBF(), np.arange(20.0)[:, None]), **arguments)
