"""Full rows, in one array."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.design.base import ALL, Array, MatrixDesign, Rows

__all__ = ["DenseDesign"]

STEPS = 4.0
"""Rounding steps of its mean within which the values of a column are the same but for rounding."""
GATHER = 4096
"""Rows that are put into order at a time: they stay in cache."""


class DenseDesign(MatrixDesign):
    """Rows in one array of floats.

    Parameters
    ----------
    array : ndarray, shape (n, columns)
        With the column of ones, if there is one.
    intercept : bool
        Whether there is.
    shift, scale : ndarray, shape (features,), optional
        What was done to the user's columns; nothing by default.
    """

    is_dense = True

    def __init__(
        self, array: Array, intercept: bool = False, shift: Array | None = None, scale: Array | None = None
    ) -> None:
        super().__init__(array.shape[0], array.shape[1], intercept, shift, scale)
        self.array = array

    @classmethod
    def takes(cls, X: Any) -> bool:
        return not sp.issparse(X)

    @classmethod
    def of(cls, X: Array, intercept: bool, order: Array | None = None) -> DenseDesign:
        """From the user's rows, stored in this order; ``X`` itself serves where nothing is to be done to it."""
        n, d = X.shape
        sample = X[:: max(1, n // 1000)] if order is None else X[order[:: max(1, n // 1000)]]
        scaled = _needs_scaling(sample, intercept)
        if order is None and not (intercept or scaled):
            return cls(np.ascontiguousarray(X))
        out = np.empty((n, d + intercept))
        if order is None:
            out[:, :d] = X
        else:
            for first in range(0, n, GATHER):
                part = order[first : first + GATHER]
                out[first : first + len(part), :d] = X[part]
        shift, scale = _scale(out[:, :d], intercept) if scaled else (None, None)
        if intercept:
            out[:, d] = 1.0
        return cls(out, intercept, shift, scale)

    @property
    def entries(self) -> int:
        return self.array.size

    def decisions(self, W: Array, rows: Rows = ALL) -> Array:
        return W @ self._block(rows).T

    def pull(self, U: Array, rows: Rows = ALL) -> Array:
        return U @ self._block(rows)

    def gram(self, weight: Array | None = None, rows: Rows = ALL) -> Array:
        block = self._block(rows)
        if weight is None:
            return block.T @ block
        if len(weight) and weight.min() >= 0:
            root = block * np.sqrt(weight)[:, None]
            return root.T @ root
        return block.T @ (block * weight[:, None])

    def sweep(self, weight: Array, lines: Array, rows: Rows = ALL) -> tuple[Array, Array]:
        block = self._block(rows)
        return (block.T * weight) @ block, lines @ block

    def kernel(self, some: Array, others: Array, scale: Array) -> Array:
        d = self.n_features
        return (self.array[some][:, :d] / scale) @ self.array[others][:, :d].T

    def row_squares(self, factor: Array, rows: Rows = ALL) -> Array:
        block = self._block(rows)[:, : self.n_features]
        return (block * block) @ factor

    def column_squares(self, weight: Array) -> Array:
        return (self.array**2).T @ weight

    def row_norms(self) -> Array:
        return np.sqrt(np.einsum("ij,ij->i", self.array, self.array))

    def column_statistics(self, parts: list[Rows]) -> tuple[Array, Array]:
        blocks = [self.array[rows, : self.n_features] for rows in parts]
        count = sum(len(block) for block in blocks)
        mean = sum(block.sum(axis=0) for block in blocks) / count
        square = sum(np.einsum("ij,ij->j", block - mean, block - mean) for block in blocks)
        return mean, square / count

    def take(self, rows: Array, features: bool = False) -> DenseDesign:
        part = self.array[rows]
        if features:
            return DenseDesign(part[:, : self.n_features], False, self.shift, self.scale)
        return DenseDesign(part, self.intercept, self.shift, self.scale)

    def dense(self, rows: Rows = ALL) -> Array:
        return self._block(rows)

    def csr(self, rows: Rows = ALL) -> sp.csr_array:
        return sp.csr_array(self._block(rows))


def _needs_scaling(sample: Array, intercept: bool) -> bool:
    """Whether columns lie far from zero beside their spread, or their spreads far apart or far from one."""
    centre = sample.mean(axis=0) if intercept else np.zeros(sample.shape[1])
    spread = np.sqrt(np.mean((sample - centre) ** 2, axis=0))
    typical = spread[spread > 0]
    far = np.any(np.abs(centre) > 10 * np.maximum(spread, 1e-300))
    uneven = len(typical) > 0 and (typical.max() > 1e3 * typical.min() or not 1e-3 < np.median(typical) < 1e3)
    return bool(far or uneven)


def _scale(features: Array, intercept: bool) -> tuple[Array, Array]:
    """Shift and scale columns in place; what was done."""
    shift = np.zeros(features.shape[1])
    if intercept:
        shift = features.mean(axis=0)
        features -= shift
    # Dividing by the largest magnitude first keeps squares of extreme columns in range.
    largest = np.maximum(np.abs(features).max(axis=0), np.finfo(float).tiny)
    rms = largest * np.sqrt(np.mean((features / largest) ** 2, axis=0))
    # A column that varies in its last digits is constant; its range does not see how the mean was rounded.
    rounding = STEPS * np.finfo(float).eps * np.abs(shift)
    flat = (rms == 0) | ((rounding > 0) & (np.ptp(features, axis=0) <= rounding))
    scale = np.where(flat, 1.0, rms)
    features[:, flat] = 0.0
    features /= scale
    return shift, scale
