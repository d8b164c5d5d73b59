"""Kernel matrices formed row by row against the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest

from foldwise import RBF, ExpChi2, Polynomial
from foldwise.problems.gram import ActiveSystem, DenseGram
from foldwise.testing import relative_error


@pytest.mark.parametrize("kernel", [RBF(0.4), ExpChi2(0.7)], ids=str)
def test_rows_are_formed_when_they_are_asked_for(kernel):
    rng = np.random.default_rng(0)
    X = rng.gamma(2.0, 0.5, size=(60, 3))
    log_p = np.log([float(kernel.gamma)])
    gram, whole = DenseGram(kernel.pairs(X)), DenseGram(kernel.pairs(X))
    gram.at(log_p)
    whole.at(log_p)
    K = whole.K
    np.testing.assert_allclose(K, kernel(X, X), rtol=1e-12)
    rows = np.array([3, 41, 7])
    v, V = rng.normal(size=60), rng.normal(size=(3, 2))
    A = np.zeros((2, 60))
    A[:, [7, 20, 41]] = rng.normal(size=(2, 3))
    for _ in range(2):  # the second time from what is kept
        assert relative_error(gram.values_at(rows, v), K[rows] @ v) < 1e-14
        assert relative_error(gram.block(rows), K[np.ix_(rows, rows)]) < 1e-14
        assert relative_error(gram.spread(rows, V), K[:, rows] @ V) < 1e-14
        assert relative_error(gram.product(A), A @ K) < 1e-14
        assert relative_error(gram.apply(A), whole.apply(A)) < 1e-13
    assert gram._matrix is None
    assert gram._count == 4  # rows 3, 7, 20, 41
    dense = rng.normal(size=(2, 60))
    assert relative_error(gram.contract(dense, A), whole.pairs.contract(dense.T @ A)) < 1e-12
    assert gram._matrix is None
    assert relative_error(gram.product(dense), dense @ K) < 1e-14
    assert gram._matrix is not None
    assert relative_error(gram.values_at(rows, v), K[rows] @ v) < 1e-14


def test_new_parameters_and_twins_forget_the_rows():
    X = np.random.default_rng(1).normal(size=(30, 2))
    gram = DenseGram(RBF().pairs(X))
    rows = np.arange(4)
    for gamma in (0.3, 1.5):
        gram.at(np.log([gamma]))
        np.testing.assert_allclose(gram.block(rows), RBF(gamma)(X[rows], X[rows]), rtol=1e-12)
    other = gram.twin()
    other.at(np.log([0.1]))
    np.testing.assert_allclose(other.block(rows), RBF(0.1)(X[rows], X[rows]), rtol=1e-12)
    np.testing.assert_allclose(gram.block(rows), RBF(1.5)(X[rows], X[rows]), rtol=1e-12)


def test_a_kernel_without_rows_is_formed_whole():
    X = np.random.default_rng(2).normal(size=(20, 2))
    kernel = Polynomial(2, 0.5, 1.0)
    gram = DenseGram(kernel.pairs(X))
    gram.at(np.log([0.5, 1.0]))
    np.testing.assert_allclose(gram.block(np.arange(3)), kernel(X[:3], X[:3]), rtol=1e-12)
    assert gram._matrix is not None


@pytest.mark.parametrize("kernel", [RBF(0.4), ExpChi2(0.7)], ids=str)
def test_single_precision_keeps_matrices_in_half_the_memory(kernel):
    rng = np.random.default_rng(3)
    X = rng.gamma(2.0, 0.5, size=(600, 3))
    double, single = DenseGram(kernel.pairs(X)), DenseGram(kernel.single_pairs(X))
    np.testing.assert_array_equal(single.pairs.D, single.pairs.D.T)
    assert not single.pairs.D.diagonal().any()
    for gram in (double, single):
        gram.at(np.log([float(kernel.gamma)]))
    rows = np.array([3, 41, 7, 500])
    A = np.zeros((2, 600))
    A[:, rows] = rng.normal(size=(2, 4))
    for few in (True, False):
        if not few:
            assert single.K.dtype == np.float32
            assert 2 * single.K.nbytes == double.K.nbytes
            assert single.pairs.D.dtype == np.float32
        for name in ("product", "apply"):
            got = getattr(single, name)(A.copy())
            assert got.dtype == np.float64
            assert 0 < relative_error(got, getattr(double, name)(A.copy())) < 1e-6
        assert relative_error(single.block(rows), double.block(rows)) < 1e-6
        assert relative_error(single.values_at(rows, A[0]), double.values_at(rows, A[0])) < 1e-6
        V = rng.normal(size=(4, 2))
        assert relative_error(single.spread(rows, V), double.spread(rows, V)) < 1e-6


@pytest.mark.parametrize("size", [1e-2, 1.0, 1e2, 1e4])
def test_systems_through_a_factor_are_as_accurate_as_those_of_the_matrix(size):
    """What is left of the right-hand side is rounding of matrix times solution, not of the right-hand side."""
    rng = np.random.default_rng(4)
    S = np.sqrt(2e3) * np.column_stack([np.full(30, size), rng.normal(size=30), 1e-3 * rng.normal(size=30)])
    M, x = np.eye(30) + S @ S.T, rng.normal(size=30)
    s = M @ x
    for found in (
        ActiveSystem.through(S, np.arange(30), np.ones(30), intercept=False).inverse(s),
        ActiveSystem.build(S @ S.T, np.arange(30), np.ones(30), intercept=False).inverse(s),
    ):
        assert np.linalg.norm(M @ found - s) <= 1e-14 * np.linalg.norm(M, 2) * np.linalg.norm(x)
