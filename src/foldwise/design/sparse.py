"""Rows with few entries, as a CSR matrix. Columns are scaled, never shifted."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.design.base import ALL, Array, MatrixDesign, Rows

__all__ = ["SparseDesign"]


class SparseDesign(MatrixDesign):
    """Rows in a CSR matrix; parameters as in :class:`~foldwise.design.dense.DenseDesign`."""

    is_dense = False

    def __init__(
        self,
        array: sp.csr_array,
        intercept: bool = False,
        shift: Array | None = None,
        scale: Array | None = None,
    ) -> None:
        super().__init__(array.shape[0], array.shape[1], intercept, shift, scale)
        self.array = array

    @classmethod
    def takes(cls, X: Any) -> bool:
        return bool(sp.issparse(X))

    @classmethod
    def of(cls, X: sp.csr_array, intercept: bool, order: Array | None = None) -> SparseDesign:
        """From the user's rows, stored in this order."""
        X, scale = X if order is None else X[order], None
        mean_square = np.asarray(X.multiply(X).mean(axis=0)).ravel()
        rms = np.sqrt(mean_square[mean_square > 0])
        if len(rms) and (rms.max() > 1e3 or np.median(rms) < 1e-6):
            scale = np.where(mean_square > 0, np.sqrt(mean_square), 1.0)
            X = X @ sp.diags_array(1.0 / scale)
        if intercept:
            X = sp.hstack([X, np.ones((X.shape[0], 1))])
        return cls(sp.csr_array(X), intercept, None, scale)

    @property
    def entries(self) -> int:
        return int(self.array.nnz)

    def decisions(self, W: Array, rows: Rows = ALL) -> Array:
        return np.ascontiguousarray((self._block(rows) @ W.T).T)

    def pull(self, U: Array, rows: Rows = ALL) -> Array:
        return np.ascontiguousarray((self._block(rows).T @ U.T).T)

    def gram(self, weight: Array | None = None, rows: Rows = ALL) -> Array:
        block = self._block(rows)
        return (block.T @ (block if weight is None else sp.diags_array(weight) @ block)).toarray()

    def sweep(self, weight: Array, lines: Array, rows: Rows = ALL) -> tuple[Array, Array]:
        return self.gram(weight, rows), self.pull(lines, rows)

    def kernel(self, some: Array, others: Array, scale: Array) -> Array:
        d = self.n_features
        left, right = self.array[some][:, :d], self.array[others][:, :d]
        return (left @ sp.diags_array(1.0 / scale) @ right.T).toarray()

    def row_squares(self, factor: Array, rows: Rows = ALL) -> Array:
        block = self._block(rows)[:, : self.n_features]
        return block.multiply(block) @ factor

    def column_squares(self, weight: Array) -> Array:
        return self.array.multiply(self.array).T @ weight

    def row_norms(self) -> Array:
        return np.sqrt(np.asarray(self.array.multiply(self.array).sum(axis=1)).ravel())

    def column_statistics(self, parts: list[Rows]) -> tuple[Array, Array]:
        block = sp.vstack([self.array[rows][:, : self.n_features] for rows in parts])
        mean = np.asarray(block.mean(axis=0)).ravel()
        return mean, np.asarray(block.multiply(block).mean(axis=0)).ravel() - mean**2

    def take(self, rows: Array, features: bool = False) -> SparseDesign:
        part = self.array[rows]
        if features:
            return SparseDesign(part[:, : self.n_features], False, self.shift, self.scale)
        return SparseDesign(part, self.intercept, self.shift, self.scale)

    def dense(self, rows: Rows = ALL) -> Array:
        return np.asarray(self._block(rows).toarray())

    def csr(self, rows: Rows = ALL) -> sp.csr_array:
        return self._block(rows)
