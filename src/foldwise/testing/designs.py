"""The contract of a storage of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldwise.design import ALL, Design, Rows
from foldwise.testing.comparison import relative_error, require

__all__ = ["check_design"]


def check_design(storage: type[Design], X: Any, *, seed: int = 0) -> None:
    """Check every product of a storage against the rows that it stores.

    Parameters
    ----------
    storage : subclass of Design
    X : ndarray or sparse matrix, shape (n, d)
        Rows that it takes.
    seed : int

    Notes
    -----
    Rows are stored with and without a column of ones, in their own order and in another one; each product is asked for
    all rows, a range, numbers that repeat, and none. Decisions of stored weights must be those of the user's weights,
    so that a storage may shift and scale columns.

    Examples
    --------
    >>> from foldwise.design import DenseDesign
    >>> check_design(DenseDesign, np.random.default_rng(0).normal(size=(20, 3)))
    """
    rng = np.random.default_rng(seed)
    name = storage.__name__
    require(storage.takes(X), f"{name}.takes(X) is False for these rows")
    for intercept in (False, True):
        for order in (None, rng.permutation(X.shape[0])):
            _check(storage.of(X, intercept, order), X, intercept, order, rng, name)


def _near(got: Any, wanted: np.ndarray, rtol: float, what: str) -> None:
    """Relative agreement; with no rows chosen both are zero or empty."""
    error = relative_error(got, wanted)
    require(error <= rtol, f"{what}: relative error {error:.3g} exceeds {rtol:.3g}")


def _check(
    design: Design, X: Any, intercept: bool, order: np.ndarray | None, rng: np.random.Generator, name: str
) -> None:
    n, d = X.shape
    D = d + intercept
    given = np.asarray(X.toarray() if hasattr(X, "toarray") else X, float)
    given = given if order is None else given[order]
    sizes = design.n_rows, design.n_features, design.n_columns
    require(
        sizes == (n, d, D), f"{name}: n_rows, n_features and n_columns are {sizes}; they must be {(n, d, D)}"
    )
    W, V, U = rng.normal(size=(3, D)), rng.normal(size=(D, 2)), rng.normal(size=(n, 2))
    coef, bias = design.to_user(W)
    _near(
        design.decisions(W), coef @ given.T + bias[:, None], 1e-9, f"{name}: decisions of the user's weights"
    )
    stored = np.array(design.dense())
    _near(design.times(V), stored @ V, 1e-12, f"{name}.times")
    _near(design.back(U), stored.T @ U, 1e-12, f"{name}.back")
    _near(design.row_norms(), np.sqrt(np.sum(stored**2, axis=1)), 1e-12, f"{name}.row_norms")
    _near(design.column_squares(U), (stored**2).T @ U, 1e-12, f"{name}.column_squares")
    choices: list[Rows] = [ALL, slice(2, n // 2), rng.integers(0, n, n), np.zeros(0, dtype=int)]
    for rows in choices:
        _check_rows(design, stored[rows], rows, rng, name)
    some, others, scale = np.arange(0, n, 3), np.arange(1, n, 2), rng.uniform(0.5, 2.0, d)
    wanted = (stored[some][:, :d] / scale) @ stored[others][:, :d].T
    _near(design.kernel(some, others, scale), wanted, 1e-12, f"{name}.kernel")
    parts: list[Rows] = [slice(0, n // 3), np.arange(n // 2, n)]
    both = np.concatenate([stored[part][:, :d] for part in parts])
    mean, variance = design.column_statistics(parts)
    _near(mean, both.mean(axis=0), 1e-10, f"{name}.column_statistics: means")
    _near(variance, both.var(axis=0), 1e-9, f"{name}.column_statistics: variances")
    _near(design.take(some).dense(), stored[some], 1e-15, f"{name}.take")
    _near(design.take(some, features=True).dense(), stored[some][:, :d], 1e-15, f"{name}.take of features")


def _check_rows(design: Design, part: np.ndarray, rows: Any, rng: np.random.Generator, name: str) -> None:
    """Products over some rows, which are ``part``."""
    D, k = part.shape[1], len(part)
    W, lines, factor = rng.normal(size=(2, D)), rng.normal(size=(2, k)), rng.normal(size=design.n_features)
    positive, signed = rng.uniform(0.1, 2.0, k), rng.normal(size=k)
    _near(design.dense(rows), part, 1e-15, f"{name}.dense")
    _near(design.csr(rows).toarray(), part, 1e-15, f"{name}.csr")
    _near(design.decisions(W, rows), W @ part.T, 1e-12, f"{name}.decisions")
    _near(design.pull(lines, rows), lines @ part, 1e-12, f"{name}.pull")
    _near(design.gram(None, rows), part.T @ part, 1e-12, f"{name}.gram")
    for weight in (positive, signed):
        wanted = part.T @ (part * weight[:, None])
        _near(design.gram(weight, rows), wanted, 1e-11, f"{name}.gram with weights")
        G, pulled = design.sweep(weight, lines, rows)
        _near(G, wanted, 1e-11, f"{name}.sweep: Gram matrix")
        _near(pulled, lines @ part, 1e-12, f"{name}.sweep: lines")
    squares = part[:, : design.n_features] ** 2 @ factor
    _near(design.row_squares(factor, rows), squares, 1e-12, f"{name}.row_squares")
