"""Design: the products of X, dense and CSR, and the change of columns behind them."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import foldwise
from foldwise import design as module
from foldwise.design import make_design


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


def user_design(X, intercept, order=None, sparse=False):
    if sparse:
        X = sp.csr_array(X)
    return make_design(X, intercept, order, densify=not sparse)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_stored_models_give_the_users_decisions(kind, intercept, sparse, rng):
    X = columns(kind, rng)
    design = user_design(X, intercept, sparse=sparse)
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


@pytest.mark.parametrize("kind", ["far", "uneven", "tiny"])
def test_badly_scaled_columns_are_stored_well_scaled(kind, rng):
    design = make_design(columns(kind, rng), True)
    spread = np.sqrt(np.mean(design.array[:, :5] ** 2, axis=0))
    np.testing.assert_allclose(spread, 1.0, rtol=1e-6)
    gram = design.gram(np.ones(40))
    assert np.linalg.cond(gram) < 100


def test_well_scaled_columns_are_stored_as_they_are(rng):
    X = columns("plain", rng)
    design = make_design(X, True)
    np.testing.assert_array_equal(design.array, np.column_stack([X, np.ones(40)]))
    assert not design.shift.any()
    assert (design.scale == 1).all()


def test_x_itself_is_never_changed(rng):
    for kind in KINDS:
        X = columns(kind, rng)
        kept = X.copy()
        make_design(X, True)
        np.testing.assert_array_equal(X, kept)


def test_rows_are_stored_in_the_given_order(rng):
    X, order = columns("plain", rng), np.random.default_rng(1).permutation(40)
    dense = make_design(X, False, order)
    np.testing.assert_array_equal(dense.array, X[order])
    csr = user_design(X, False, order, sparse=True)
    np.testing.assert_array_equal(csr.array.toarray(), X[order])


@pytest.mark.parametrize("rows", [slice(None), slice(3, 17), np.array([1, 5, 30]), np.zeros(0, dtype=int)])
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["weights>=0", "any weights"])
def test_products_agree_between_dense_and_csr(rows, sign, rng):
    X = columns("plain", rng) * (rng.random((40, 5)) < 0.5)
    dense, csr = make_design(X, True), user_design(X, True, sparse=True)
    full = np.column_stack([X, np.ones(40)])[rows]
    weight = rng.random(len(full))
    weight[::2] *= sign
    W, U = rng.normal(size=(3, 6)), rng.normal(size=(2, len(full)))
    for design in (dense, csr):
        np.testing.assert_allclose(design.decisions(W, rows), W @ full.T, atol=1e-13)
        np.testing.assert_allclose(design.pull(U, rows), U @ full, atol=1e-13)
        np.testing.assert_allclose(design.gram(weight, rows), full.T @ (weight[:, None] * full), atol=1e-13)


def test_small_sparse_input_is_stored_dense_and_wide_input_is_not(rng):
    assert make_design(sp.csr_array(columns("plain", rng)), True).is_dense
    wide = sp.csr_array(rng.uniform(size=(5, module.DENSIFY_COLUMNS + 1)) < 0.01, dtype=float)
    assert not make_design(wide, True).is_dense


def test_csr_columns_are_never_shifted(rng):
    X = sp.csr_array(columns("far", rng))
    design = user_design(X, True, sparse=True)
    assert not design.shift.any()


@pytest.mark.parametrize("levels", [20, 100, 10_000])
def test_a_far_column_that_varies_is_not_taken_as_constant(levels, rng):
    """Values that double precision tells apart: the stored column is that of the same values near zero."""
    step = np.spacing(1e6)
    near = step * rng.integers(-levels, levels, size=(50, 1))
    far, plain = make_design(1e6 + near, True), make_design(near, True)
    assert far.array[:, 0].std() == pytest.approx(1.0, rel=0.05)
    apart = np.diff(far.array[:, 0]) - np.diff(plain.array[:, 0])
    assert np.abs(apart).max() < 2.0 / levels  # the mean itself is rounded to a step


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e6 + 0.1, -1e-9])
@pytest.mark.parametrize("n", [50, 100_000])
def test_a_column_that_is_constant_but_for_rounding_is_stored_as_zeros(value, n, rng):
    X = rng.normal(size=(n, 3))
    X[:, 0] = value
    X[:, 1] = np.where(X[:, 2] > 0, value, np.nextafter(value, np.inf))
    stored = make_design(X, True)
    assert not stored.array[:, :2].any()
    assert stored.scale[:2].tolist() == [1.0, 1.0]
    assert np.all(make_design(X[:, :1], False).array)  # without an intercept a constant is a feature


def test_nothing_outside_the_room_touches_the_stored_rows():
    source = Path(foldwise.__file__).parent
    readers = [
        f"{path.relative_to(source)}:{node.lineno}"
        for path in source.rglob("*.py")
        if "design" not in path.relative_to(source).parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr == "array"
        and ast.unparse(node.value).split(".")[0] not in ("np", "numpy")
    ]
    assert not readers


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("part", [None, np.array([1, 5, 30, 5])], ids=["all", "part"])
def test_every_product_is_that_of_the_full_matrix(sparse, part, rng):
    X = columns("plain", rng) * (rng.random((40, 5)) < 0.5)
    design, full = user_design(X, True, sparse=sparse), np.column_stack([X, np.ones(40)])
    rows = slice(None) if part is None else part
    if part is not None:
        only = design.take(part, features=True)
        np.testing.assert_array_equal(only.dense(), X[part])
        assert (only.n_columns, only.intercept) == (5, False)
        np.testing.assert_allclose(design.take(part).times(np.arange(6.0)), full[part] @ np.arange(6.0))
    block = full[rows]
    n = len(block)
    weight, lines, V = rng.normal(size=n), rng.normal(size=(2, n)), rng.normal(size=(6, 3))
    gram, pulled = design.sweep(weight, lines, rows)
    np.testing.assert_allclose(gram, block.T @ (weight[:, None] * block), atol=1e-13)
    np.testing.assert_allclose(pulled, lines @ block, atol=1e-13)
    np.testing.assert_allclose(design.gram(rows=rows), block.T @ block, atol=1e-13)
    np.testing.assert_allclose(design.times(V), full @ V, atol=1e-13)
    np.testing.assert_allclose(design.back(full @ V), full.T @ (full @ V), atol=1e-12)
    np.testing.assert_array_equal(design.dense(rows), block)
    np.testing.assert_array_equal(design.csr(rows).toarray(), block)
    factor = rng.uniform(1, 2, 5)
    np.testing.assert_allclose(design.row_squares(factor, rows), X[rows] ** 2 @ factor)
    np.testing.assert_allclose(design.row_norms(), np.linalg.norm(full, axis=1))
    np.testing.assert_allclose(design.column_squares(np.arange(40.0)), full.T**2 @ np.arange(40.0))
    few = np.array([0, 7])
    np.testing.assert_allclose(
        design.kernel(few, np.arange(9), factor), (X[few] / factor) @ X[:9].T, atol=1e-13
    )
    mean, variance = design.column_statistics([slice(0, 10), np.array([20, 20, 30])])
    chosen = X[np.r_[0:10, 20, 20, 30]]
    np.testing.assert_allclose(mean, chosen.mean(axis=0))
    np.testing.assert_allclose(variance, chosen.var(axis=0))
    assert design.entries == (np.count_nonzero(full) if sparse else full.size)


def test_rows_that_need_nothing_done_are_not_copied(rng, tmp_path):
    stored = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=(40, 5))
    stored[:] = columns("plain", rng)
    assert np.shares_memory(make_design(stored, False).dense(), stored)
    assert not np.shares_memory(make_design(np.asarray(stored) + 1e6, False).dense(), stored)
