"""Kernel matrices as problems use them: in full, or through landmarks.

:class:`DenseGram` keeps the matrix. :class:`LandmarkGram` replaces the kernel by ``k~(x, z) = k_U(x)' K_UU^-1 k_U(z)``
for a few landmark rows ``U``: a kernel in its own right, whose matrix has low rank, with exact derivatives in
the parameters of ``k``. Products then cost ``n r`` and systems ``n r^2``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular

from foldwise.kernels import RowPairs
from foldwise.linalg import Bordered, cholesky, cholesky_solve, pivoted_cholesky

__all__ = ["ActiveSystem", "DenseGram", "Gram", "LandmarkGram", "System", "choose_landmarks", "submatrix"]

Array: TypeAlias = np.ndarray[Any, Any]


class System(Protocol):
    """The factored system of one task."""

    rows: Array

    def solve(self, r: Array, total: Any) -> tuple[Array, Any]:
        """``v`` on the rows with ``sum v = total``, or what stands for it, and the multiplier ``b``.

        ``r`` is (rows,) or (rows, p); ``total`` and ``b`` have a last axis p then.
        """


class Gram(ABC):
    """A kernel matrix at the parameters that were asked for last: the workspace of a kernel problem."""

    @abstractmethod
    def twin(self) -> Gram:
        """Another one at no parameters yet; what does not depend on parameters is shared."""

    @abstractmethod
    def at(self, log_p: Array) -> Any:
        """Itself, brought to these log-parameters."""

    @abstractmethod
    def product(self, A: Array) -> Array:
        """``A K`` for row vectors ``A`` (tasks, n)."""

    @abstractmethod
    def values_at(self, rows: Array, v: Array) -> Array:
        """``(K v)`` on some rows."""

    @abstractmethod
    def spread(self, rows: Array, V: Array) -> Array:
        """``K[:, rows] V``."""

    @abstractmethod
    def system(self, rows: Array, D: Array, intercept: bool) -> ActiveSystem:
        """The factored system of the rows with curvature ``D``."""

    @abstractmethod
    def contract(self, a: Array, alpha: Array) -> Array:
        """``sum_m a_m' (dK / dlog p) alpha_m`` for every parameter."""

    @abstractmethod
    def apply(self, alpha: Array) -> Array:
        """``(dK / dlog p) alpha_m``: shape (parameters, n, tasks)."""

    @abstractmethod
    def scaled_rows(self) -> Array | None:
        """The rows, where the kernel is Gaussian with one width for each of their columns; None otherwise."""

    def unseen(self) -> tuple[int, float] | None:
        """Number of landmarks, and the most that they cannot see of a row; None where the matrix is whole."""
        return None


def submatrix(K: Array, rows: Array) -> Array:
    """A copy of ``K`` on these rows and columns; a slice where they are contiguous."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        return K[part, part].copy()
    return K.take(rows, axis=0).take(rows, axis=1)


@dataclass(eq=False)
class ActiveSystem:
    """``M = I + D^1/2 K_QQ D^1/2`` of one task, with or without the border of a free intercept.

    Attributes
    ----------
    root : ndarray
        ``D^1/2``.
    inverse : callable
        ``M^-1`` times a vector or columns.
    border : Bordered or None
    stiffness : float
        About the largest eigenvalue of ``M``; the smallest is 1.
    """

    rows: Array
    root: Array
    inverse: Callable[[Array], Array]
    border: Bordered | None
    stiffness: float = 0.0
    slope: ClassVar[None] = None
    """No row pins anything."""

    @classmethod
    def build(cls, H: Array, rows: Array, D: Array, intercept: bool) -> ActiveSystem:
        """Factor the system of the rows with curvature ``D``, where ``H = K_QQ``; it is overwritten."""
        root = np.sqrt(D)
        H *= root[:, None]
        H *= root
        factor = _factor(H)
        return cls._with_border(rows, root, partial(cholesky_solve, factor), intercept, factor)

    @classmethod
    def through(cls, B: Array, rows: Array, D: Array, intercept: bool) -> ActiveSystem:
        """The same for ``K = B B'``: with ``S = D^1/2 B_Q`` the inverse is ``I - S (I + S'S)^-1 S'``."""
        root = np.sqrt(D)
        S = B[rows] * root[:, None]
        factor = _factor(S.T @ S)
        inverse = partial(_through, S, factor, _refinements(_stiffness(factor)))
        return cls._with_border(rows, root, inverse, intercept, factor)

    @classmethod
    def _with_border(
        cls, rows: Array, root: Array, inverse: Callable[[Array], Array], intercept: bool, factor: Array
    ) -> ActiveSystem:
        border = Bordered(inverse, root[:, None]) if intercept else None
        return cls(rows, root, inverse, border, _stiffness(factor) if len(rows) else 0.0)

    @property
    def mass(self) -> float:
        """How much curvature the intercept has."""
        return 0.0 if self.border is None else float(self.border.mass[0, 0])

    def core(self, r: Array) -> Array:
        """``D u`` where ``u + K D u = r`` on the active rows."""
        root = self.root if r.ndim == 1 else self.root[:, None]
        return root * self.inverse(root * r)

    def solve(self, r: Array, total: Any) -> tuple[Array, Any]:
        """``D u`` and ``b`` with ``u + K D u = r + b`` and ``sum(D u) = total`` (without intercept: ``b = 0``)."""
        if self.border is None or not len(self.rows):
            return self.core(r), 0.0 if r.ndim == 1 else np.zeros(r.shape[1])
        root = self.root if r.ndim == 1 else self.root[:, None]
        u, b = self.border.solve(root * r, np.asarray(total)[None])
        return root * u, b[0]


@dataclass(eq=False)
class PinnedSystem:
    """The intercept in its interval, set by the rows at the two ends or by those that LIBSVM holds; no other has a say.

    With ``e`` the weights of these rows, ``v = e total`` and ``e'(K v - r - b) = 0``: ``alpha`` does not answer, and
    the mean decision of these rows is held. ``slope`` is how the held decisions move with the tube's width.
    """

    rows: Array
    slope: Array
    spread: float

    @classmethod
    def build(cls, gram: Any, n: int, rows: Array, slope: Array) -> PinnedSystem:
        """From those of ``n`` rows that hold the intercept."""
        e = np.zeros(n)
        e[rows] = 1.0 / len(rows)
        return cls(rows, slope, float(gram.values_at(rows, e).mean()))

    def solve(self, r: Array, total: Any) -> tuple[Array, Any]:
        """``v`` and ``b``."""
        e = np.full(len(self.rows), 1.0 / len(self.rows))
        return (e * total if r.ndim == 1 else np.outer(e, total)), self.spread * total - e @ r


def _factor(H: Array) -> Array:
    """Cholesky factor of ``I + H``; ``H`` is overwritten. A ridge is for rounding, where ``H`` is huge, and no more."""
    H.flat[:: len(H) + 1] += 1.0
    return cholesky(H, unit=float(np.trace(H)), most=1.01e-8, name="a kernel system")


def _stiffness(factor: Array) -> float:
    """About the largest eigenvalue of a matrix, by its Cholesky factor."""
    return float(np.max(np.diagonal(factor) ** 2, initial=0.0))


def _refinements(stiffness: float) -> int:
    """How often a solve through a factor is repeated for what it has left: each leaves ``eps * stiffness`` of that."""
    eps = np.finfo(float).eps
    if not 1.0 < stiffness < 0.1 / eps:
        return 0
    return min(int(np.ceil(np.log(eps) / np.log(eps * stiffness))) - 1, 6)


def _through(S: Array, factor: Array, rounds: int, s: Array) -> Array:
    """``x = (I + SS')^-1 s`` from the factor of ``I + S'S``.

    The formula is a difference of numbers as large as ``s``, and its rounding is an error of ``x`` that the matrix
    multiplies. Solved again for what it leaves, ``x`` is as accurate as from a factor of ``I + SS'`` itself.
    """
    x = s - S @ cholesky_solve(factor, S.T @ s)
    for _ in range(rounds):
        rest = s - x - S @ (S.T @ x)
        x = x + rest - S @ cholesky_solve(factor, S.T @ rest)
    return x


def _times(A: Array, K: Array, block: int = 512) -> Array:
    """``A K`` in double precision; a matrix in single precision is converted by blocks of rows."""
    if K.dtype == A.dtype:
        return A @ K
    out = np.zeros((len(A), K.shape[1]))
    for first in range(0, len(K), block):
        part = A[:, first : first + block]
        if part.any():
            out += part @ K[first : first + block].astype(float)
    return out


class DenseGram(Gram):
    """The kernel matrix of all rows, kept in the precision of its distances.

    Coefficients are sparse and systems live on a few rows, so where the kernel allows it
    (:class:`~foldwise.kernels.RowPairs`) only the rows that are asked for are formed; the whole matrix is once they are
    more than ``FEW`` of all.
    """

    FEW = 0.5

    def __init__(self, pairs: Any) -> None:
        self.pairs = pairs
        self.by_row: RowPairs | None = pairs if isinstance(pairs, RowPairs) else None
        self.log_p: Array = np.zeros(0)
        self.n = 0 if self.by_row is None else self.by_row.n_rows
        self._matrix: Array | None = None
        self._store: Array | None = None
        self._slot = np.full(self.n, -1)
        self._count = 0
        self._applied: tuple[Array, Array] | None = None

    def twin(self) -> DenseGram:
        return DenseGram(copy(self.pairs))

    def at(self, log_p: Array) -> DenseGram:
        if not np.array_equal(log_p, self.log_p):
            self._matrix, self._count, self._applied = None, 0, None
            self._slot = np.full(self.n, -1)
            self.log_p = np.array(log_p)
        return self

    def scaled_rows(self) -> Array | None:
        return self.pairs.X if getattr(self.pairs, "width_per_column", False) else None

    @property
    def K(self) -> Array:
        """The whole matrix."""
        if self._matrix is None:
            self._store = None
            self._matrix = self.pairs.value(self.log_p)
        return self._matrix

    def _holds(self, rows: Array) -> bool:
        """Form these rows, or say that the whole matrix is the better choice."""
        if self._matrix is not None or self.by_row is None:
            return False
        new = rows[self._slot[rows] < 0]
        count = self._count + len(new)
        if count > self.FEW * self.n:
            return False
        if len(new) or self._store is None:
            formed = self.by_row.rows(self.log_p, new)
            if self._store is None:
                self._store = np.empty((int(self.FEW * self.n) + 1, self.n), dtype=formed.dtype)
            self._store[self._count : count] = formed
            self._slot[new] = np.arange(self._count, count)
            self._count = count
        return True

    def product(self, A: Array) -> Array:
        """``A K`` for row vectors ``A`` (tasks, n)."""
        if self._matrix is None:
            used = np.flatnonzero(A.any(axis=0))
            if self._holds(used):
                assert self._store is not None
                few = np.zeros((len(A), self._count))
                few[:, self._slot[used]] = A[:, used]
                return _times(few, self._store[: self._count])
        return _times(A, self.K)

    def values_at(self, rows: Array, v: Array) -> Array:
        """``(K v)`` on some rows."""
        if self._holds(rows):
            assert self._store is not None
            return self._store[self._slot[rows]].astype(float, copy=False) @ v
        return self.K[rows].astype(float, copy=False) @ v

    def spread(self, rows: Array, V: Array) -> Array:
        """``K[:, rows] V``."""
        if self._holds(rows):
            assert self._store is not None
            return self._store[self._slot[rows]].astype(float, copy=False).T @ V
        return self.K[:, rows].astype(float, copy=False) @ V

    def block(self, rows: Array) -> Array:
        """A copy of the matrix on these rows and columns."""
        if self._holds(rows):
            assert self._store is not None
            return self._store.take(self._slot[rows], axis=0).take(rows, axis=1).astype(float, copy=False)
        return submatrix(self.K, rows).astype(float, copy=False)

    def system(self, rows: Array, D: Array, intercept: bool) -> ActiveSystem:
        """The factored system of the rows with curvature ``D``."""
        return ActiveSystem.build(self.block(rows), rows, D, intercept)

    def contract(self, a: Array, alpha: Array) -> Array:
        """``sum_m a_m' (dK / dlog p) alpha_m`` for every parameter."""
        if self.by_row is not None:
            return np.einsum("pnm,mn->p", self.apply(alpha), a)
        return self.pairs.contract(a.T @ alpha)

    def apply(self, alpha: Array) -> Array:
        """``(dK / dlog p) alpha_m``: shape (parameters, n, tasks); that of the last ``alpha`` is kept."""
        if self._applied is None or self._applied[0] is not alpha:
            self._applied = alpha, self._apply(alpha)
        return self._applied[1]

    def _apply(self, alpha: Array) -> Array:
        used = np.flatnonzero(alpha.any(axis=0))
        if self._holds(used):
            assert self._store is not None
            assert self.by_row is not None
            own = self._store[self._slot[used]]
            return self.by_row.apply_rows(self.log_p, used, own, np.ascontiguousarray(alpha[:, used].T))
        if self._matrix is None:
            self.K  # noqa: B018  (forms the matrix, whose derivative follows)
        return self.pairs.apply(np.ascontiguousarray(alpha.T))


class LandmarkGram(Gram):
    """The matrix ``N G^-1 N'`` of a kernel seen through landmarks: ``N = K_nU``, ``G = K_UU``.

    Parameters
    ----------
    across, among : pairs of all rows with the landmarks, and of the landmarks with each other
    diagonal : callable(log_p) -> ndarray
        ``k(x, x)`` of every row, for :meth:`unseen`.
    """

    JITTER = 1e-9

    def __init__(self, across: Any, among: Any, diagonal: Any) -> None:
        self.across, self.among, self.diagonal = across, among, diagonal
        self.log_p: Array | None = None

    def twin(self) -> LandmarkGram:
        return LandmarkGram(copy(self.across), copy(self.among), self.diagonal)

    def at(self, log_p: Array) -> LandmarkGram:
        """The factor ``B`` with ``K~ = B B'``; ``G`` has a ridge that is a share of its mean diagonal."""
        if self.log_p is None or not np.array_equal(log_p, self.log_p):
            self.log_p = None
            self.N = self.across.value(log_p)
            G = self.among.value(log_p).copy()
            G.flat[:: len(G) + 1] += self.JITTER * float(np.trace(G)) / max(len(G), 1)
            self.L = cholesky(G, name="the kernel matrix of the landmarks")
            self.B = np.ascontiguousarray(solve_triangular(self.L, self.N.T, lower=True).T)
            self.log_p = np.array(log_p)
        return self

    def scaled_rows(self) -> None:
        return None

    def unseen(self) -> tuple[int, float]:
        """Number of landmarks, and the largest ``k(x, x) - k~(x, x)`` over the rows."""
        assert self.log_p is not None
        rest = self.diagonal(self.log_p) - np.einsum("ij,ij->i", self.B, self.B)
        return self.B.shape[1], float(np.max(rest))

    def product(self, A: Array) -> Array:
        """``A K`` for row vectors ``A`` (tasks, n)."""
        return (A @ self.B) @ self.B.T

    def values_at(self, rows: Array, v: Array) -> Array:
        """``(K v)`` on some rows."""
        return self.B[rows] @ (self.B.T @ v)

    def spread(self, rows: Array, V: Array) -> Array:
        """``K[:, rows] V``."""
        return self.B @ (self.B[rows].T @ V)

    def system(self, rows: Array, D: Array, intercept: bool) -> ActiveSystem:
        """The factored system of the rows with curvature ``D``."""
        return ActiveSystem.through(self.B, rows, D, intercept)

    def _dual(self, A: Array) -> Array:
        """``G^-1 N' A'``: shape (landmarks, tasks)."""
        return cholesky_solve(self.L, self.N.T @ A.T)

    def contract(self, a: Array, alpha: Array) -> Array:
        """``sum_m a_m' (dK / dlog p) alpha_m`` for every parameter."""
        left, right = self._dual(a), self._dual(alpha)
        inner = left @ right.T
        inner.flat[:: len(inner) + 1] += self.JITTER * np.trace(inner) / max(len(inner), 1)
        return np.asarray(self.across.contract(a.T @ right.T + alpha.T @ left.T) - self.among.contract(inner))

    def apply(self, alpha: Array) -> Array:
        """``(dK / dlog p) alpha_m``: shape (parameters, n, tasks)."""
        right = self._dual(alpha)
        rest = self.across.apply_transposed(np.ascontiguousarray(alpha.T))
        rest -= self.among.apply(right)
        ridge = self.JITTER * self.among.contract(np.eye(len(right))) / max(len(right), 1)
        rest -= ridge[:, None, None] * right
        inner = np.stack([self.N @ cholesky_solve(self.L, part) for part in rest]) if len(rest) else rest
        return self.across.apply(right) + inner


def choose_landmarks(kernel: Any, X: Array, tol: float, limit: int) -> tuple[Array, float]:
    """Rows that see all others to ``tol``: greedy pivoted Cholesky of the kernel matrix, ``limit`` rows at most.

    Returns the rows and the largest ``k(x, x)`` that is left, relative to the largest to begin with.
    """
    diagonal = np.asarray(kernel.diagonal(X), float)
    first = max(float(diagonal.max()), np.finfo(float).tiny)
    seen, _ = pivoted_cholesky(diagonal, lambda rows: kernel(X, X[rows]).T, tol * first, limit, block=1)
    return seen.pivots, float(seen.residual.max()) / first
