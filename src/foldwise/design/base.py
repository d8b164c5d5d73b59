"""The rows of X, and the products that problems need of them.

A design stores rows of ``X`` with an optional last column of ones, so that products are accurate and quick. Columns
that are badly scaled or far from zero are shifted and scaled: with ``X_stored = (X - shift) / scale`` a model
``(w, b)`` on the stored columns is ``(w / scale, b - shift . w / scale)`` on the user's. Penalties compensate, so the
model does not change.

How rows are stored is a subclass's own affair: :class:`~foldwise.design.dense.DenseDesign` and
:class:`~foldwise.design.sparse.SparseDesign` keep them all; what reads them otherwise, in blocks say, needs
the same methods. Each of these is a sum over rows, or one number per row, so it can be made block by block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

__all__ = ["ALL", "Array", "Design", "MatrixDesign", "Rows"]

Array: TypeAlias = np.ndarray[Any, Any]
Rows: TypeAlias = "slice | Array"
"""Rows by their numbers, which may repeat, or a range of them."""
ALL = slice(None)


class Design(ABC):
    """Rows of ``X``, with a last column of ones if ``intercept``.

    Attributes
    ----------
    n_rows, n_features : int
    n_columns : int
        Features, and one for the intercept.
    shift, scale : ndarray, shape (n_features,)
    is_dense : bool
        Whether rows are full, so that Gram matrices of columns cost what BLAS makes of them.
    entries : int
        Numbers that are stored.
    """

    is_dense: bool

    def __init__(
        self, n_rows: int, n_columns: int, intercept: bool, shift: Array | None, scale: Array | None
    ) -> None:
        self.n_rows, self.n_columns, self.intercept = n_rows, n_columns, intercept
        self.n_features = n_columns - intercept
        self.shift = np.zeros(self.n_features) if shift is None else shift
        self.scale = np.ones(self.n_features) if scale is None else scale

    @property
    @abstractmethod
    def entries(self) -> int:
        """Numbers that are stored."""

    @classmethod
    @abstractmethod
    def takes(cls, X: Any) -> bool:
        """Whether this is how rows ``X``, an array or a CSR matrix of floats, are to be stored."""

    @classmethod
    @abstractmethod
    def of(cls, X: Any, intercept: bool, order: Array | None = None) -> Design:
        """From the user's rows, stored in this order."""

    # Products of rows with vectors.

    @abstractmethod
    def times(self, V: Array) -> Array:
        """``X V`` for a vector or for columns."""

    @abstractmethod
    def back(self, U: Array) -> Array:
        """``X' U`` for a vector or for columns."""

    @abstractmethod
    def decisions(self, W: Array, rows: Rows = ALL) -> Array:
        """``W X'`` for the given rows: shape (tasks, rows)."""

    @abstractmethod
    def pull(self, U: Array, rows: Rows = ALL) -> Array:
        """``U X`` for the given rows: shape (tasks, columns)."""

    # Products of rows with rows.

    @abstractmethod
    def gram(self, weight: Array | None = None, rows: Rows = ALL) -> Array:
        """``X' diag(weight) X`` over the given rows, as a dense matrix; weights are one by default."""

    @abstractmethod
    def sweep(self, weight: Array, lines: Array, rows: Rows = ALL) -> tuple[Array, Array]:
        """One pass over rows: ``X' diag(weight) X``, weights of any sign, and ``lines X`` for lines (k, rows)."""

    @abstractmethod
    def kernel(self, some: Array, others: Array, scale: Array) -> Array:
        """``X_some diag(1 / scale) X_others'`` of the features: shape (some, others)."""

    # Sizes of rows and columns.

    @abstractmethod
    def row_squares(self, factor: Array, rows: Rows = ALL) -> Array:
        """``sum_d factor_d x_d^2`` over the features of the given rows."""

    @abstractmethod
    def column_squares(self, weight: Array) -> Array:
        """``sum_j weight_j x_j^2`` of every column; ``weight`` (n,) or (n, k)."""

    @abstractmethod
    def row_norms(self) -> Array:
        """Euclidean norm of every stored row."""

    @abstractmethod
    def column_statistics(self, parts: list[Rows]) -> tuple[Array, Array]:
        """Mean and variance of the stored features over several sets of rows together."""

    # Parts.

    @abstractmethod
    def take(self, rows: Array, features: bool = False) -> Design:
        """The design of these rows; of their features alone if asked."""

    @abstractmethod
    def dense(self, rows: Rows = ALL) -> Array:
        """These rows as an array (rows, columns): a view where they are stored so."""

    @abstractmethod
    def csr(self, rows: Rows = ALL) -> sp.csr_array:
        """These rows as a sparse matrix."""

    # The user's columns.

    def to_user(self, W: Array) -> tuple[Array, Array]:
        """Coefficients and intercepts on the user's columns, for stored-column models ``W``."""
        coef = W[:, : self.n_features] / self.scale
        bias = W[:, self.n_features] if self.intercept else np.zeros(len(W))
        return coef, bias - coef @ self.shift


class MatrixDesign(Design):
    """Rows in one matrix, full or sparse."""

    array: Any

    def _block(self, rows: Rows) -> Any:
        return self.array if everything(rows) else self.array[rows]

    def times(self, V: Array) -> Array:
        return self.array @ V

    def back(self, U: Array) -> Array:
        return self.array.T @ U


def everything(rows: Rows) -> bool:
    """Whether these are all rows in their order."""
    return isinstance(rows, slice) and rows == ALL
