"""Columns of a kernel matrix on demand, and a cache of the latest ones."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np

from foldwise.kernels import RBF, Kernel, Precomputed

__all__ = ["ColumnCache", "Columns", "KernelColumns", "MatrixColumns", "RbfColumns", "columns_of"]

BLOCK = 1 << 17
"""Entries that are computed at a time: they stay in the processor's cache between the passes."""


class Columns:
    """A symmetric kernel matrix of which blocks are computed when they are asked for.

    Attributes
    ----------
    n : int
        Number of rows.
    """

    n: int

    def block(self, rows: Any, columns: Any, out: np.ndarray | None = None) -> np.ndarray:
        """``K[rows][:, columns]`` for an index array of rows, and one of columns or a slice of all."""
        raise TypeError(f"{type(self).__name__} does not define block(rows, columns)")

    def diagonal(self) -> np.ndarray:
        """``K_ii`` of every row."""
        raise TypeError(f"{type(self).__name__} does not define diagonal()")

    def columns(self, index: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Columns ``index``, one per row of the answer: shape (len(index), n)."""
        out = np.empty((len(index), self.n)) if out is None else out
        step = max(1, BLOCK // max(self.n, 1))
        for first in range(0, len(index), step):
            self.block(index[first : first + step], slice(None), out[first : first + step])
        return out

    def product(self, delta: np.ndarray) -> np.ndarray:
        """``K delta``, from the columns of its support."""
        support = np.flatnonzero(delta)
        out = np.zeros(self.n)
        step = max(1, BLOCK // max(self.n, 1))
        buffer = np.empty((step, self.n))
        for first in range(0, len(support), step):
            index = support[first : first + step]
            out += delta[index] @ self.columns(index, buffer[: len(index)])
        return out


class RbfColumns(Columns):
    """``exp(-sum_d gamma_d (x_d - z_d)^2)`` of the rows of a dense matrix.

    ``-||z_i - z_j||^2`` is one product of two matrices with two more columns each, then comes the exponential.
    """

    def __init__(self, X: np.ndarray, gamma: Any) -> None:
        Z = (X - X.mean(axis=0)) * np.sqrt(np.asarray(gamma, float))
        size = np.einsum("ij,ij->i", Z, Z)
        one = np.ones(len(Z))
        self.n = len(Z)
        self.left = np.column_stack([2.0 * Z, -size, -one])
        self.right = np.ascontiguousarray(np.column_stack([Z, one, size]).T)

    def block(self, rows: Any, columns: Any, out: np.ndarray | None = None) -> np.ndarray:
        right = self.right if isinstance(columns, slice) else self.right[:, columns]
        out = np.matmul(self.left[rows], right, out=out)
        np.minimum(out, 0.0, out=out)
        return np.exp(out, out=out)

    def diagonal(self) -> np.ndarray:
        return np.ones(self.n)


class KernelColumns(Columns):
    """Any kernel of the library, through its own blocks."""

    def __init__(self, kernel: Kernel, X: np.ndarray) -> None:
        self.kernel, self.X, self.n = kernel, X, len(X)

    def block(self, rows: Any, columns: Any, out: np.ndarray | None = None) -> np.ndarray:
        value = self.kernel(self.X[rows], self.X[columns])
        if out is None:
            return value
        out[:] = value
        return out

    def diagonal(self) -> np.ndarray:
        return np.asarray(self.kernel.diagonal(self.X), float)


class MatrixColumns(Columns):
    """A kernel matrix that is there already."""

    def __init__(self, K: np.ndarray) -> None:
        if K.ndim != 2 or K.shape[0] != K.shape[1]:
            raise ValueError(f"a precomputed kernel must be square in training; got shape {K.shape}")
        self.K, self.n = K, len(K)

    def block(self, rows: Any, columns: Any, out: np.ndarray | None = None) -> np.ndarray:
        value = self.K[rows] if isinstance(columns, slice) else self.K[np.ix_(rows, columns)]
        if out is None:
            return value
        out[:] = value
        return out

    def diagonal(self) -> np.ndarray:
        return np.diagonal(self.K).copy()

    def product(self, delta: np.ndarray) -> np.ndarray:
        return self.K @ delta


def columns_of(kernel: Kernel, X: np.ndarray) -> Columns:
    """The kernel matrix of the rows of ``X``, computed on demand.

    Parameters
    ----------
    kernel : Kernel
        RBF has its own fast form; with ``Precomputed`` the square matrix is ``X`` itself.
    X : ndarray, shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> from foldwise.kernels import RBF
    >>> columns_of(RBF(0.5), np.array([[0.0], [2.0]])).columns(np.array([0])).round(4).tolist()
    [[1.0, 0.1353]]
    """
    X = np.asarray(X, float)
    if isinstance(kernel, Precomputed):
        return MatrixColumns(X)
    if isinstance(kernel, RBF):
        return RbfColumns(X, kernel.parameters(X.shape[1])["gamma"])
    if kernel.precomputed:
        return MatrixColumns(np.asarray(kernel(X, X), float))
    return KernelColumns(kernel, X)


class ColumnCache:
    """The latest columns of a kernel matrix in at most ``megabytes`` of memory; the least recently used go first.

    One column serves ``alpha_i`` and ``alpha*_i``: with ``delta = alpha - alpha*`` there is only one. In ``single``
    precision twice as many fit, and adding them takes half the time; sums are kept in double precision.
    """

    def __init__(self, source: Columns, megabytes: float, single: bool = False) -> None:
        dtype = np.dtype(np.float32 if single else np.float64)
        self.source = source
        self.slots = int(min(source.n, max(1.0, megabytes * 1e6 // (dtype.itemsize * max(source.n, 1)))))
        self.store = np.empty((self.slots, source.n), dtype)
        self.slot_of: OrderedDict[int, int] = OrderedDict()
        self.hits = self.misses = 0

    def add_to(self, f: np.ndarray, index: np.ndarray, weights: np.ndarray) -> None:
        """``f += sum_j weights_j K[:, index_j]``, taking cached columns first."""
        from foldwise.solvers.semiparametric import _fast

        order = np.arange(len(index))
        if len(index) > self.slots:
            order = np.argsort([int(i) not in self.slot_of for i in index], kind="stable")
        for first in range(0, len(order), self.slots):
            part = order[first : first + self.slots]
            _fast.add_columns(f, self.store, self.fetch(index[part]), weights[part])

    def block(self, index: np.ndarray) -> np.ndarray:
        """``K[index][:, index]`` in double precision, for at most ``slots`` rows."""
        from foldwise.solvers.semiparametric import _fast

        return _fast.gather(self.store, self.fetch(index), index)

    def fetch(self, index: np.ndarray) -> np.ndarray:
        """Slots of the columns ``index`` (at most ``slots`` of them), computing those that are missing."""
        missing = []
        for i in index.tolist():
            if i in self.slot_of:
                self.slot_of.move_to_end(i)
            else:
                missing.append(i)
        self.hits += len(index) - len(missing)
        self.misses += len(missing)
        step = max(1, BLOCK // max(self.source.n, 1))
        for first in range(0, len(missing), step):
            part = missing[first : first + step]
            for i in part:
                self.slot_of[i] = self._place()
            self.store[[self.slot_of[i] for i in part]] = self.source.columns(np.array(part))
        return np.array([self.slot_of[i] for i in index.tolist()], dtype=np.int64)

    def _place(self) -> int:
        if len(self.slot_of) < self.slots:
            return len(self.slot_of)
        return self.slot_of.popitem(last=False)[1]
