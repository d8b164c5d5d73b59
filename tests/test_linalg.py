"""Factors and small systems against exact rational arithmetic and numpy."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import scipy.linalg

from foldwise.linalg import (
    Bordered,
    cholesky,
    cholesky_solve,
    null_space,
    pivoted_cholesky,
    pseudo_inverse,
    semidefinite_factor,
)


def exact_solve(A, b):
    """``A^-1 b`` in rational arithmetic, rounded once at the end."""
    n = len(b)
    rows = [[Fraction(float(x)) for x in row] + [Fraction(float(y))] for row, y in zip(A, b, strict=True)]
    for k in range(n):
        pivot = next(i for i in range(k, n) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        for i in range(n):
            if i != k and rows[i][k] != 0:
                share = rows[i][k] / rows[k][k]
                rows[i] = [x - share * y for x, y in zip(rows[i], rows[k], strict=True)]
    return np.array([float(row[n] / row[k]) for k, row in enumerate(rows)])


def hilbert(n):
    return 1.0 / (np.arange(n)[:, None] + np.arange(n) + 1.0)


def gram(n, d, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X @ X.T


@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_definite_matrix_gets_no_ridge(n):
    H, b = hilbert(n), np.arange(1.0, n + 1)
    L = cholesky(H)
    np.testing.assert_array_equal(np.tril(L), scipy.linalg.cholesky(H, lower=True))
    assert np.allclose(cholesky_solve(L, b), exact_solve(H, b), rtol=1e-16 * np.linalg.cond(H) * 10)


def test_a_singular_matrix_gets_a_ridge_like_rounding():
    H = gram(30, 3) * 1e6
    L = np.tril(cholesky(H))
    assert np.abs(L @ L.T - H).max() <= 2e-12 * np.diagonal(H).max()
    before = H.copy()
    cholesky(H)
    np.testing.assert_array_equal(H, before)


def test_the_first_ridge_is_the_one_asked_for():
    L = np.tril(cholesky(np.eye(2), ridge=0.5, unit=2.0))
    np.testing.assert_allclose(L @ L.T, 2.0 * np.eye(2), rtol=1e-15)


def test_an_indefinite_matrix_is_lifted_or_refused():
    H = np.diag([1.0, -1e-5])
    L = np.tril(cholesky(H))
    added = np.diagonal(L @ L.T - H)
    assert 1e-5 < added[0] <= 1e-2
    assert added[0] == pytest.approx(added[1])
    with pytest.raises(FloatingPointError, match="the kernel is not positive definite"):
        cholesky(H, most=1e-8, name="the kernel")


@pytest.mark.parametrize("where", [(0, 0), (1, 0)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_matrix_that_is_not_finite_has_no_finite_factor(where, value):
    """LAPACK may not see it; nobody gets numbers that look sound."""
    H = np.eye(2)
    H[where] = H[where[::-1]] = value
    assert refused(H) or not np.all(np.isfinite(np.diagonal(cholesky(H))))


def refused(H):
    try:
        cholesky(H)
    except FloatingPointError:
        return True
    return False


def test_matrices_of_zeros_and_of_nothing():
    assert np.all(np.isfinite(cholesky_solve(cholesky(np.zeros((2, 2))), np.ones(2))))
    assert cholesky(np.zeros((0, 0))).shape == (0, 0)
    assert cholesky_solve(np.zeros((0, 0)), np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_bordered_system_is_solved_where_the_inner_one_is_singular(columns):
    rng = np.random.default_rng(1)
    H, G = gram(4, 4 - columns, seed=2), rng.normal(size=(4, columns))
    r, total = rng.normal(size=4), rng.normal(size=columns)
    whole = np.block([[H, -G], [G.T, np.zeros((columns, columns))]])
    wanted = exact_solve(whole, np.r_[r, total])
    v, b = Bordered.of(H.copy(), G).solve(r, total)
    np.testing.assert_allclose(np.r_[v, b], wanted, atol=1e-10 * np.abs(wanted).max())
    V, B = Bordered.of(H.copy(), G).solve(np.column_stack([r, 2 * r]), np.column_stack([total, 2 * total]))
    np.testing.assert_allclose(V[:, 1], 2 * v, rtol=1e-9)
    np.testing.assert_allclose(B[:, 1], 2 * b, rtol=1e-9)


def test_the_unit_of_the_border_does_not_matter():
    rng = np.random.default_rng(3)
    H, G, r = gram(5, 3), rng.normal(size=(5, 2)), rng.normal(size=5)
    v, b = Bordered.of(H.copy(), G).solve(r, np.array([0.5, -1.0]))
    for unit in (1e-6, 1e6):
        w, c = Bordered.of(H.copy(), unit * G).solve(r, unit * np.array([0.5, -1.0]))
        np.testing.assert_allclose(w, v, rtol=1e-8)
        np.testing.assert_allclose(unit * c, b, rtol=1e-8)


def test_a_border_with_dependent_columns_meets_what_can_be_met():
    H, r = np.diag([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 0.5])
    one = Bordered(partial(cholesky_solve, cholesky(H)), np.ones((3, 1)))
    two = Bordered(partial(cholesky_solve, cholesky(H)), np.ones((3, 2)))
    v, b = one.solve(r, np.array([0.3]))
    w, c = two.solve(r, np.array([0.3, 0.3]))
    np.testing.assert_allclose(w, v, rtol=1e-12)
    np.testing.assert_allclose(c, [b[0] / 2, b[0] / 2], rtol=1e-12)


def test_borders_of_no_columns_and_of_no_rows():
    H = np.diag([2.0, 4.0])
    v, b = Bordered.of(H.copy(), np.zeros((2, 0))).solve(np.ones(2), np.zeros(0))
    np.testing.assert_allclose(v, [0.5, 0.25], rtol=1e-12)
    assert b.shape == (0,)
    v, b = Bordered.of(np.zeros((0, 0)), np.zeros((0, 2))).solve(np.zeros(0), np.ones(2))
    assert v.shape == (0,)
    np.testing.assert_array_equal(b, 0.0)


@pytest.mark.parametrize("indefinite", [False, True])
@pytest.mark.parametrize("values", [(3.0, 1.0, 0.5), (3.0, 1.0, 0.0), (2.0, 0.0, 0.0), (0.0, 0.0, 0.0)])
def test_pseudo_inverses_are_numpys(values, indefinite):
    V = np.linalg.qr(np.random.default_rng(4).normal(size=(3, 3)))[0]
    M = (V * np.array(values)) @ V.T
    if indefinite:
        M = M - 2.0 * np.outer(V[:, 0], V[:, 0]) * values[0]
    wanted = np.linalg.pinv(M, rcond=1e-13, hermitian=True)
    np.testing.assert_allclose(pseudo_inverse(M, indefinite=indefinite), wanted, atol=1e-12)


@pytest.mark.parametrize(("value", "wanted"), [(4.0, 0.25), (0.0, 0.0), (-4.0, 0.0)])
def test_pseudo_inverses_of_one_number(value, wanted):
    assert pseudo_inverse(np.array([[value]])) == wanted
    assert pseudo_inverse(np.array([[-4.0]]), indefinite=True) == -0.25


@pytest.mark.parametrize(
    ("shape", "rank"), [((2, 5), 2), ((5, 2), 1), ((40, 3), 3), ((0, 3), 0), ((4, 3), 0)]
)
def test_null_spaces(shape, rank):
    rng = np.random.default_rng(5)
    A = rng.normal(size=(shape[0], rank)) @ rng.normal(size=(rank, shape[1]))
    N = null_space(A)
    assert N.shape == (shape[1], shape[1] - rank)
    np.testing.assert_allclose(N.T @ N, np.eye(N.shape[1]), atol=1e-13)
    np.testing.assert_allclose(A @ N, 0.0, atol=1e-12)


def test_a_semidefinite_matrix_has_a_factor_of_its_rank():
    K = gram(12, 4)
    L = semidefinite_factor(K)
    assert L.shape == (4, 12)
    np.testing.assert_allclose(L.T @ L, K, atol=1e-12 * np.trace(K))


@pytest.mark.parametrize("block", [1, 16])
def test_pivots_are_taken_until_the_residual_is_small(block):
    X = np.random.default_rng(6).uniform(size=(150, 2))
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2))
    found, fine = pivoted_cholesky(np.diagonal(K), lambda rows: K[rows], 1e-6, 150, block=block, single=4)
    assert fine
    E = K - found.L.T @ found.L
    np.testing.assert_allclose(np.diagonal(E), found.residual, atol=1e-13)
    assert 0 < found.residual.max() <= 1e-6
    np.testing.assert_allclose(E[:, found.pivots], 0.0, atol=1e-7 if block > 1 else 1e-12)
    # The projection on the pivots' columns, by numpy.
    part = K[:, found.pivots]
    np.testing.assert_allclose(
        part @ np.linalg.lstsq(part[found.pivots], part.T, rcond=None)[0], K, atol=2e-6
    )
    half, fine = pivoted_cholesky(np.diagonal(K), lambda rows: K[rows], 1e-6, found.rank // 2, block=1)
    assert not fine
    assert half.rank == found.rank // 2
    longer, fine = pivoted_cholesky(np.diagonal(K), lambda rows: K[rows], 1e-6, 150, half, block=1)
    assert fine
    assert len(set(longer.pivots.tolist())) == longer.rank


def test_the_rank_of_a_matrix_ends_its_factor():
    K = gram(40, 5)
    found, fine = pivoted_cholesky(np.diagonal(K), lambda rows: K[rows], 0.0, 40)
    assert (found.rank, fine) == (5, True)
    np.testing.assert_allclose(found.product(np.ones(40)), K @ np.ones(40), atol=1e-10)
