"""What may be written for a basis, and the independent columns that a training problem sees."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

from foldwise.basis import BasisFunctions, as_basis, columns, independent, with_constant
from foldwise.frames import as_frame

X = np.random.default_rng(0).normal(size=(30, 3))
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


def cube(rows):
    return np.asarray(rows)[:, 0] ** 3


def test_entries_of_a_list():
    basis = BasisFunctions(
        [cube, ("b twice", lambda rows: 2.0 * rows[:, 1]), 2, -3, lambda rows: rows[:, :2], lambda _: 1]
    )
    Psi = basis.fit(X).transform(X)
    assert basis.get_feature_names_out().tolist() == [
        "cube",
        "b twice",
        "x2",
        "x0",
        "psi4[0]",
        "psi4[1]",
        "psi5",
    ]
    wanted = np.column_stack([X[:, 0] ** 3, 2 * X[:, 1], X[:, 2], X[:, 0], X[:, :2], np.ones(30)])
    assert np.array_equal(Psi, wanted)


def test_mappings_and_data_frames():
    basis = as_basis({"product": lambda rows: rows["a"] * rows["b"]}).fit(FRAME)
    assert basis.get_feature_names_out().tolist() == ["product"]
    assert np.array_equal(columns(basis, FRAME)[:, 0], X[:, 0] * X[:, 1])
    assert as_basis(["c", 0]).fit(FRAME).get_feature_names_out().tolist() == ["c", "a"]
    assert as_frame(X, None) is X
    assert as_frame(X, ["a", "b", "c"]).equals(FRAME)


def test_transformers_are_copied_and_sparse_ones_made_dense():
    given_basis = SplineTransformer(sparse_output=True)
    basis = as_basis(given_basis)
    assert basis is not given_basis
    assert columns(basis.fit(X), X).shape == (30, 21)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("a", "must be a list"),
        ([True], "use a callable"),
        ([None], "use a callable"),
        (np.zeros((2, 2, 2)), r"needs the shape \(n, K\)"),
        (np.array([1.0, np.nan]), "not finite"),
        ([5], "uses column 5 of X, which has 3"),
        (["a"], "needs a data frame"),
        ([lambda rows: rows[:3, 0]], "for 30 rows"),
    ],
)
def test_errors_say_what_is_wrong(spec, words):
    with pytest.raises(ValueError, match=words):
        as_basis(spec).fit(X)


def test_unknown_names_and_values_that_are_not_finite():
    with pytest.raises(ValueError, match="X has: a, b, c"):
        as_basis(["d"]).fit(FRAME)
    with (
        pytest.raises(ValueError, match="column 1 of the basis is not finite"),
        np.errstate(invalid="ignore"),
    ):
        columns(as_basis([0, lambda rows: np.log(rows[:, 0])]).fit(X), X)


def test_a_constant_is_added_where_there_is_none():
    assert with_constant(np.zeros((5, 0)), slice(None))
    assert with_constant(X, slice(None))
    for basis in (PolynomialFeatures(2), SplineTransformer()):
        assert not with_constant(basis.fit_transform(X), slice(None))
    half = (np.arange(30) < 15).astype(float)[:, None]
    assert with_constant(half, slice(None))
    assert not with_constant(half, np.arange(15))


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(0, 3), st.floats(-6, 6))
def test_independent_columns_and_shortest_coefficients(seed, k, copies, size):
    rng = np.random.default_rng(seed)
    Psi = rng.normal(size=(12, k))
    Psi = np.column_stack([Psi, Psi @ rng.normal(size=(k, copies))]) * 10.0**size
    T = independent(Psi)
    Q = Psi @ T
    assert T.shape == (k + copies, k)
    assert np.allclose(Q.T @ Q, 12 * np.eye(k), atol=1e-6)
    # The coefficients are orthogonal to whatever the columns, at unit size, map to zero.
    scale = np.sqrt(np.mean(Psi**2, axis=0))
    zero = np.linalg.svd(Psi / scale)[2][k:]
    assert np.abs(zero @ (scale[:, None] * T)).max(initial=0.0) < 1e-6 * np.abs(scale[:, None] * T).max()


def test_columns_of_zeros_get_no_coefficient():
    T = independent(np.column_stack([np.zeros(5), np.ones(5)]))
    assert np.allclose(np.abs(T), [[0.0], [1.0]], atol=1e-14)
