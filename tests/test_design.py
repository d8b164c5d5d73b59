"""Design: the products of X, dense and CSR, and the change of columns behind them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from foldwise import design as module
from foldwise.design import Design


def columns(kind, rng, n=40, d=5):
    X = rng.normal(size=(n, d))
    if kind == "far":
        X += 1e4
    elif kind == "uneven":
        X *= 10.0 ** np.arange(-3, 2 * d - 3, 2)
    elif kind == "tiny":
        X *= 1e-9
    elif kind == "constant":
        X[:, 2] = 7.0
    elif kind == "zero":
        X[:, 1] = 0.0
    return X


KINDS = ["plain", "far", "uneven", "tiny", "constant", "zero"]


def user_design(X, intercept, order=None, sparse=False, monkeypatch=None):
    if sparse:
        monkeypatch.setattr(module, "DENSIFY_LIMIT", 0)
        X = sp.csr_array(X)
    return Design(X, intercept, order)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_stored_models_give_the_users_decisions(kind, intercept, sparse, rng, monkeypatch):
    X = columns(kind, rng)
    design = user_design(X, intercept, sparse=sparse, monkeypatch=monkeypatch)
    assert design.is_dense is not sparse
    assert (design.n_rows, design.n_columns, design.n_features) == (40, 5 + intercept, 5)
    W = rng.normal(size=(3, design.n_columns))
    coef, bias = design.to_user(W)
    live = np.abs(X).max(axis=0) > 0
    if kind == "constant" and intercept and not sparse:
        live[2] = False  # the column that the intercept absorbs
    wanted = X[:, live] @ coef[:, live].T + bias
    if kind == "constant" and intercept and not sparse:
        wanted += 7.0 * coef[:, 2]
    stored = design.decisions(W)
    np.testing.assert_allclose(stored.T, wanted, atol=1e-9 * np.abs(stored).max())


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("kind", ["plain", "far", "uneven", "tiny"])
def test_from_user_inverts_to_user(kind, sparse, rng, monkeypatch):
    design = user_design(columns(kind, rng), True, sparse=sparse, monkeypatch=monkeypatch)
    W = rng.normal(size=(2, design.n_columns))
    np.testing.assert_allclose(design.from_user(*design.to_user(W)), W, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["far", "uneven", "tiny"])
def test_badly_scaled_columns_are_stored_well_scaled(kind, rng):
    design = Design(columns(kind, rng), True)
    spread = np.sqrt(np.mean(design.array[:, :5] ** 2, axis=0))
    np.testing.assert_allclose(spread, 1.0, rtol=1e-6)
    gram = design.gram(np.ones(40))
    assert np.linalg.cond(gram) < 100


def test_well_scaled_columns_are_stored_as_they_are(rng):
    X = columns("plain", rng)
    design = Design(X, True)
    np.testing.assert_array_equal(design.array, np.column_stack([X, np.ones(40)]))
    assert not design.shift.any()
    assert (design.scale == 1).all()


def test_x_itself_is_never_changed(rng):
    for kind in KINDS:
        X = columns(kind, rng)
        kept = X.copy()
        Design(X, True)
        np.testing.assert_array_equal(X, kept)


def test_rows_are_stored_in_the_given_order(rng, monkeypatch):
    X, order = columns("plain", rng), np.random.default_rng(1).permutation(40)
    dense = Design(X, False, order)
    np.testing.assert_array_equal(dense.array, X[order])
    csr = user_design(X, False, order, sparse=True, monkeypatch=monkeypatch)
    np.testing.assert_array_equal(csr.array.toarray(), X[order])


@pytest.mark.parametrize("rows", [slice(None), slice(3, 17), np.array([1, 5, 30]), np.zeros(0, dtype=int)])
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["weights>=0", "any weights"])
def test_products_agree_between_dense_and_csr(rows, sign, rng, monkeypatch):
    X = columns("plain", rng) * (rng.random((40, 5)) < 0.5)
    dense, csr = Design(X, True), user_design(X, True, sparse=True, monkeypatch=monkeypatch)
    full = np.column_stack([X, np.ones(40)])[rows]
    weight = rng.random(len(full))
    weight[::2] *= sign
    W, U = rng.normal(size=(3, 6)), rng.normal(size=(2, len(full)))
    for design in (dense, csr):
        np.testing.assert_allclose(design.decisions(W, rows), W @ full.T, atol=1e-13)
        np.testing.assert_allclose(design.pull(U, rows), U @ full, atol=1e-13)
        np.testing.assert_allclose(design.gram(weight, rows), full.T @ (weight[:, None] * full), atol=1e-13)


def test_small_sparse_input_is_stored_dense_and_wide_input_is_not(rng):
    assert Design(sp.csr_array(columns("plain", rng)), True).is_dense
    wide = sp.csr_array(rng.uniform(size=(5, module.DENSIFY_COLUMNS + 1)) < 0.01, dtype=float)
    assert not Design(wide, True).is_dense


def test_csr_columns_are_never_shifted(rng, monkeypatch):
    X = sp.csr_array(columns("far", rng))
    design = user_design(X, True, sparse=True, monkeypatch=monkeypatch)
    assert not design.shift.any()


@pytest.mark.parametrize("levels", [20, 100, 10_000])
def test_a_far_column_that_varies_is_not_taken_as_constant(levels, rng):
    """Values that double precision tells apart: the stored column is that of the same values near zero."""
    step = np.spacing(1e6)
    near = step * rng.integers(-levels, levels, size=(50, 1))
    far, plain = Design(1e6 + near, True), Design(near, True)
    assert far.array[:, 0].std() == pytest.approx(1.0, rel=0.05)
    apart = np.diff(far.array[:, 0]) - np.diff(plain.array[:, 0])
    assert np.abs(apart).max() < 2.0 / levels  # the mean itself is rounded to a step


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 0.1, -1e-9])
@pytest.mark.parametrize("n", [50, 100_000])
def test_a_column_that_is_constant_but_for_rounding_is_stored_as_zeros(value, n, rng):
    X = rng.normal(size=(n, 3))
    X[:, 0] = value
    X[:, 1] = np.where(X[:, 2] > 0, value, np.nextafter(value, np.inf))
    stored = Design(X, True)
    assert not stored.array[:, :2].any()
    assert stored.scale[:2].tolist() == [1.0, 1.0]
    assert np.all(Design(X[:, :1], False).array)  # without an intercept a constant is a feature
