"""The rows of X, and the few products that problems need of them.

Nothing else in the package touches X. A dense array and a CSR matrix serve through the same methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["Design", "column_spread", "is_wide"]

STEPS = 4.0
"""Rounding steps of its mean within which the values of a column are the same but for rounding."""
DENSIFY_LIMIT = 50_000_000
"""Sparse input with at most this many cells and few columns is stored dense: BLAS is then faster."""
DENSIFY_COLUMNS = 1_000


class Design:
    """Rows of ``X`` with an optional last column of ones, stored so that products are accurate and quick.

    Columns that are badly scaled or far from zero are shifted and scaled: with
    ``X_stored = (X - shift) / scale`` a model ``(w, b)`` on the stored columns is ``(w / scale,
    b - shift . w / scale)`` on the user's. Penalties compensate, so the model does not change.

    Parameters
    ----------
    X : ndarray or sparse matrix, shape (n, d)
    intercept : bool
        Append a column of ones.
    order : ndarray of int, optional
        Row order to store.

    Attributes
    ----------
    array : ndarray or csr_array, shape (n, d + intercept)
    shift, scale : ndarray, shape (d,)
    """

    def __init__(self, X, intercept: bool, order: np.ndarray | None = None) -> None:
        self.intercept = intercept
        d = X.shape[1]
        self.shift = np.zeros(d)
        self.scale = np.ones(d)
        if _densified(X):
            X = X.toarray()
        self.is_dense = not sp.issparse(X)
        if self.is_dense:
            self.array = self._dense(np.asarray(X, float), order)
        else:
            self.array = self._sparse(sp.csr_array(X, dtype=float), order)
        self.n_rows, self.n_columns = self.array.shape
        self.n_features = d

    def _dense(self, X: np.ndarray, order: np.ndarray | None) -> np.ndarray:
        n, d = X.shape
        out = np.empty((n, d + self.intercept))
        if order is None:
            out[:, :d] = X
        else:
            for first in range(0, n, 4096):  # small pieces: the gathered rows stay in cache
                part = order[first : first + 4096]
                out[first : first + len(part), :d] = X[part]
        features = out[:, :d]
        sample = features[:: max(1, n // 1000)]
        centre = sample.mean(axis=0) if self.intercept else np.zeros(d)
        spread = np.sqrt(np.mean((sample - centre) ** 2, axis=0))
        typical = spread[spread > 0]
        far = np.any(np.abs(centre) > 10 * np.maximum(spread, 1e-300))
        uneven = len(typical) > 0 and (
            typical.max() > 1e3 * typical.min() or not 1e-3 < np.median(typical) < 1e3
        )
        if far or uneven:
            if self.intercept:
                self.shift = features.mean(axis=0)
                features -= self.shift
            # Dividing by the largest magnitude first keeps squares of extreme columns in range.
            largest = np.maximum(np.abs(features).max(axis=0), np.finfo(float).tiny)
            rms = largest * np.sqrt(np.mean((features / largest) ** 2, axis=0))
            # A column that varies in its last digits is constant; its range does not see how the mean was rounded.
            rounding = STEPS * np.finfo(float).eps * np.abs(self.shift)
            flat = (rms == 0) | ((rounding > 0) & (np.ptp(features, axis=0) <= rounding))
            self.scale = np.where(flat, 1.0, rms)
            features[:, flat] = 0.0
            features /= self.scale
        if self.intercept:
            out[:, d] = 1.0
        return out

    def _sparse(self, X: sp.csr_array, order: np.ndarray | None) -> sp.csr_array:
        if order is not None:
            X = X[order]
        mean_square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        rms = np.sqrt(mean_square[mean_square > 0])
        if len(rms) and (rms.max() > 1e3 or np.median(rms) < 1e-6):
            self.scale = np.where(mean_square > 0, np.sqrt(mean_square), 1.0)
            X = X @ sp.diags_array(1.0 / self.scale)
        if self.intercept:
            X = sp.hstack([X, np.ones((X.shape[0], 1))])
        return sp.csr_array(X)

    def decisions(self, W: np.ndarray, rows=slice(None)) -> np.ndarray:
        """``W X'`` for the given rows: shape (tasks, rows)."""
        block = self.array if _everything(rows) else self.array[rows]
        if self.is_dense:
            return W @ block.T
        return np.ascontiguousarray((block @ W.T).T)

    def pull(self, U: np.ndarray, rows=slice(None)) -> np.ndarray:
        """``U X`` for the given rows: shape (tasks, columns)."""
        block = self.array if _everything(rows) else self.array[rows]
        if self.is_dense:
            return U @ block
        return np.ascontiguousarray((block.T @ U.T).T)

    def gram(self, weight: np.ndarray, rows=slice(None)) -> np.ndarray:
        """``X' diag(weight) X`` over the given rows, as a dense matrix."""
        block = self.array if _everything(rows) else self.array[rows]
        if not self.is_dense:
            return (block.T @ (sp.diags_array(weight) @ block)).toarray()
        if len(weight) and weight.min() >= 0:
            root = block * np.sqrt(weight)[:, None]
            return root.T @ root
        return block.T @ (block * weight[:, None])

    def row_norms(self) -> np.ndarray:
        """Euclidean norm of every stored row."""
        if self.is_dense:
            return np.sqrt(np.einsum("ij,ij->i", self.array, self.array))
        rows: Any = self.array
        return np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())

    def dense(self, rows=slice(None)) -> np.ndarray:
        """These rows as an array (rows, columns): a view where they are stored so."""
        block = self.array if _everything(rows) else self.array[rows]
        return block if isinstance(block, np.ndarray) else block.toarray()

    def to_user(self, W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients and intercepts on the user's columns, for stored-column models ``W``."""
        coef = W[:, : self.n_features] / self.scale
        bias = W[:, self.n_features] if self.intercept else np.zeros(len(W))
        return coef, bias - coef @ self.shift

    def from_user(self, coef: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """The inverse of :meth:`to_user`."""
        W = coef * self.scale
        if self.intercept:
            W = np.column_stack([W, bias + coef @ self.shift])
        return W


def column_spread(X) -> np.ndarray:
    """Standard deviation of every column, dense or sparse."""
    if not sp.issparse(X):
        return np.asarray(X, float).std(axis=0)
    mean = np.asarray(X.mean(axis=0)).ravel()
    square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
    return np.sqrt(np.maximum(square - mean**2, 0.0))


def is_wide(X) -> bool:
    """Whether rows rather than columns set the scale of X: more columns than rows, or stored sparse."""
    return X.shape[1] > X.shape[0] or (sp.issparse(X) and not _densified(X))


def _densified(X) -> bool:
    n, d = X.shape
    return sp.issparse(X) and d <= DENSIFY_COLUMNS and n * d <= DENSIFY_LIMIT


def _everything(rows) -> bool:
    return isinstance(rows, slice) and rows == slice(None)
