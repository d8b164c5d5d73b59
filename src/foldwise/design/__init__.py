"""The only room that touches X: rows as problems use them, full or sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.design.base import ALL, Array, Design, Rows
from foldwise.design.dense import DenseDesign
from foldwise.design.sparse import SparseDesign

__all__ = [
    "ALL",
    "STORAGES",
    "DenseDesign",
    "Design",
    "Rows",
    "SparseDesign",
    "column_spread",
    "is_wide",
    "make_design",
    "register",
]

DENSIFY_LIMIT = 50_000_000
"""Sparse input with at most this many cells and few columns is stored dense: BLAS is then faster."""
DENSIFY_COLUMNS = 1_000


STORAGES: list[type[Design]] = [SparseDesign, DenseDesign]
"""The first one that takes the user's rows stores them."""


def register(storage: type[Design]) -> None:
    """Let a storage of your own come first: it stores the rows that it ``takes``, in every linear machine from then on.

    Examples
    --------
    >>> class Mine(DenseDesign):
    ...     pass
    >>> register(Mine)
    >>> type(make_design(np.eye(2), True)).__name__
    'Mine'
    >>> STORAGES.remove(Mine)
    """
    if not (isinstance(storage, type) and issubclass(storage, Design)):
        raise TypeError(f"a storage is a subclass of Design; got {storage!r}. Give the class, not an object")
    if storage not in STORAGES:
        STORAGES.insert(0, storage)


def make_design(X: Any, intercept: bool, order: Array | None = None, densify: bool = True) -> Design:
    """The design of the user's rows.

    Parameters
    ----------
    X : ndarray or sparse matrix, shape (n, d)
    intercept : bool
        Append a column of ones.
    order : ndarray of int, optional
        Row order to store.
    densify : bool
        Store small sparse input dense.
    """
    if densify and _densified(X):
        X = X.toarray()
    X = sp.csr_array(X, dtype=float) if sp.issparse(X) else np.asarray(X, float)
    storage = next(storage for storage in STORAGES if storage.takes(X))
    return storage.of(X, intercept, order)


def column_spread(X: Any) -> Array:
    """Standard deviation of every column, dense or sparse."""
    if not sp.issparse(X):
        return np.asarray(np.asarray(X, float).std(axis=0))
    mean = np.asarray(X.mean(axis=0)).ravel()
    square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
    return np.asarray(np.sqrt(np.maximum(square - mean**2, 0.0)))


def is_wide(X: Any) -> bool:
    """Whether rows rather than columns set the scale of X: more columns than rows, or stored sparse."""
    if isinstance(X, Design):
        return X.n_features > X.n_rows or not X.is_dense
    return X.shape[1] > X.shape[0] or (sp.issparse(X) and not _densified(X))


def _densified(X: Any) -> bool:
    n, d = X.shape
    return sp.issparse(X) and d <= DENSIFY_COLUMNS and n * d <= DENSIFY_LIMIT
