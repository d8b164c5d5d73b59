"""Factors and small systems that survive rounding: Cholesky with a ridge, pivoted Cholesky, borders, pseudo-inverses.

Every routine says what it does where its matrix is singular or not positive definite. Factors are lower ones; what
stands above their diagonal has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs, dpstrf

__all__ = [
    "Bordered",
    "LowRank",
    "cholesky",
    "cholesky_solve",
    "null_space",
    "pivoted_cholesky",
    "pseudo_inverse",
    "semidefinite_factor",
]


def cholesky(
    H: np.ndarray,
    *,
    ridge: float = 0.0,
    unit: float | None = None,
    most: float = np.inf,
    name: str = "the Hessian of a training problem",
) -> np.ndarray:
    """Lower factor of ``H + s I`` with a ridge ``s`` that is no larger than it must be.

    Tried in turn are ``s = ridge``, then 1e-14 (or a hundred times ``ridge``) and a hundred times more each time, all
    in ``unit``, until LAPACK finds the matrix positive definite. A matrix that is singular to rounding so gets a ridge
    of the size of rounding. An indefinite one is factored too, with a ridge beyond its lowest eigenvalue: that is
    another matrix, and a caller that must not have it sets ``most``. Where LAPACK does not notice that ``H`` is not
    finite, the factor is not finite either.

    Parameters
    ----------
    H : ndarray, shape (n, n)
        Symmetric; it is not changed, and its lower part alone is read.
    ridge : float
        The first ridge that is tried, in ``unit``.
    unit : float, optional
        What ridges are multiplied by: by default the largest entry of the diagonal, or 1 where that is zero.
    most : float
        The largest ridge that may be added, in ``unit``.
    name : str
        What the matrix is, for errors.

    Raises
    ------
    FloatingPointError
        When LAPACK fails and ``H`` is not finite, or not positive definite with the largest ridge that may be added.

    Examples
    --------
    >>> import numpy as np
    >>> L = np.tril(cholesky(np.ones((2, 2))))  # singular
    >>> bool(abs(L @ L.T - 1.0).max() < 1e-13)
    True
    """
    if not len(H):
        return H
    unit = _unit(float(np.abs(np.diagonal(H)).max())) if unit is None else unit
    share, lifted = ridge, H
    while True:
        if share > 0:
            lifted = H.copy()
            lifted.flat[:: len(H) + 1] += share * unit
        factor: np.ndarray
        factor, info = dpotrf(lifted, lower=1, clean=0)
        if info == 0:
            return factor
        if not np.all(np.isfinite(H)):
            raise FloatingPointError(f"{name} has values that are not finite; check X for huge values")
        share = 100.0 * max(share, 1e-16)
        if share > most or not np.isfinite(share * unit):
            raise FloatingPointError(
                f"{name} is not positive definite; check the kernel, and X for huge values"
            )


def _unit(size: float) -> float:
    """The size of a matrix as a unit for ridges; 1 for a matrix of zeros, where any unit serves."""
    return 1.0 if size <= 1e-200 else size


def cholesky_solve(factor: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """``H^-1 rhs`` from the factor of ``H``, for a vector or columns."""
    return dpotrs(factor, rhs, lower=1)[0] if rhs.size else rhs.copy()


def semidefinite_factor(K: np.ndarray, tol: float = 1e-14) -> np.ndarray:
    """``L`` (rank, n) with ``L'L = K`` for a positive semi-definite matrix, by LAPACK's pivoted Cholesky.

    It ends at the first pivot below ``tol`` times the trace: what an indefinite matrix has beyond that is left out.
    """
    part, order, rank, _ = dpstrf(K, lower=1, tol=tol * float(np.trace(K)))
    L = np.zeros((rank, len(K)))
    L[:, order - 1] = np.tril(part)[:, :rank].T
    return L


def pseudo_inverse(M: np.ndarray, tol: float = 1e-13, indefinite: bool = False) -> np.ndarray:
    """The inverse of a symmetric matrix on the eigenvectors that rounding leaves, zero on the others.

    Eigenvalues up to ``tol`` times the largest count as zero, and so do negative ones, which only rounding makes of a
    semi-definite matrix; of an ``indefinite`` one they are kept by their absolute values.

    >>> import numpy as np
    >>> pseudo_inverse(np.diag([4.0, 0.0]))
    array([[0.25, 0.  ],
           [0.  , 0.  ]])
    """
    if len(M) == 1:
        return 1.0 / M if M[0, 0] > 1e-300 or (indefinite and M[0, 0] < -1e-300) else np.zeros((1, 1))
    factor, info = dpotrf(M, lower=1, clean=0) if len(M) else (M, 1)
    size = np.diagonal(factor)
    if info == 0 and size.min() > 1e-5 * size.max():
        return cholesky_solve(factor, np.eye(len(M)))
    values, vectors = np.linalg.eigh(0.5 * (M + M.T))
    size = np.abs(values) if indefinite else values
    keep = size > tol * max(float(size.max(initial=0.0)), np.finfo(float).tiny)
    inverse: np.ndarray = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T
    return inverse


def null_space(A: np.ndarray, tol: float = 1e-9) -> np.ndarray:
    """Orthonormal directions that ``A`` maps to zero, as columns: singular values up to ``tol`` of the largest.

    >>> import numpy as np
    >>> abs(null_space(np.array([[0.0, 2.0]])))
    array([[1.],
           [0.]])
    """
    _, size, Vt = np.linalg.svd(A, full_matrices=A.shape[0] < A.shape[1])
    rank = int(np.sum(size > tol * max(float(size.max(initial=0.0)), np.finfo(float).tiny)))
    return Vt[rank:].T


class Bordered:
    """Solves ``H v - G b = r`` and ``G'v = total`` for ``v`` and ``b``: ``v`` is eliminated, then ``b`` solved for.

    Where columns of ``G`` depend on each other on the rows, ``b`` is the shortest that there is, and ``total`` is met
    as far as it can be.

    Parameters
    ----------
    inner : callable
        ``(H + lift GG')^-1`` times a vector or columns.
    G : ndarray, shape (n, k)
    lift : float
        It only moves ``b`` by ``lift total``, since ``G'v`` is known.
    """

    def __init__(self, inner: Callable[[np.ndarray], np.ndarray], G: np.ndarray, lift: float = 0.0) -> None:
        self.inner, self.G, self.lift = inner, G, lift
        self.border = inner(G)
        self.mass = G.T @ self.border
        self.inverse = pseudo_inverse(self.mass)

    @classmethod
    def of(cls, H: np.ndarray, G: np.ndarray, name: str = "a kernel matrix") -> Bordered:
        """From a semi-definite ``H``, which is overwritten.

        It may be singular where the system is not, so ``H + s GG'`` is factored, both terms of one size, with a ridge
        of 1e-13 of that size, or the smallest larger one that serves.
        """
        n = max(len(H), 1)
        size = float(np.trace(H)) / n
        if not np.isfinite(size):
            raise FloatingPointError(f"{name} has values that are not finite; check X and the kernel")
        size, squares = _unit(size), float(np.einsum("ij,ij->", G, G)) / n
        lift = size / squares if squares > 1e-200 else 0.0
        if lift:
            H += lift * (G @ G.T)
        factor = cholesky(H, ridge=1e-13, unit=size, name=name)
        return cls(partial(cholesky_solve, factor), G, lift)

    def solve(self, r: np.ndarray, total: Any) -> tuple[np.ndarray, np.ndarray]:
        """``v`` and ``b``; ``r`` is (n,) or (n, p), ``total`` (k,) or (k, p)."""
        v = self.inner(r)
        b = self.inverse @ (total - self.G.T @ v)
        return v + self.border @ b, b - self.lift * total


@dataclass(frozen=True, eq=False)
class LowRank:
    """``K = L'L + E`` with ``E`` positive semi-definite and its diagonal known.

    Attributes
    ----------
    L : ndarray, shape (rank, n)
    residual : ndarray, shape (n,)
        Diagonal of ``E``.
    pivots : ndarray of int, shape (rank,)
        Rows on which ``E`` is zero, in the order in which they were taken.
    """

    L: np.ndarray
    residual: np.ndarray
    pivots: np.ndarray

    @property
    def rank(self) -> int:
        """Number of pivots."""
        return len(self.L)

    def product(self, delta: np.ndarray) -> np.ndarray:
        """``L'L delta``."""
        out: np.ndarray = (self.L @ delta) @ self.L
        return out

    def error(self, delta: np.ndarray) -> float:
        """Bound on ``max_i |(K delta - L'L delta)_i|``, from ``|E_ij| <= sqrt(E_ii E_jj)``."""
        root = np.sqrt(self.residual)
        return float(root.max(initial=0.0) * (root @ np.abs(delta)))


def pivoted_cholesky(
    diagonal: np.ndarray,
    columns: Callable[[np.ndarray], np.ndarray],
    limit: float,
    max_rank: int,
    start: LowRank | None = None,
    *,
    block: int = 16,
    single: int = 32,
    rounding: float = 1e-13,
) -> tuple[LowRank, bool]:
    """Factor a semi-definite matrix until the largest diagonal residual is at most ``limit``; False if the rank ends.

    The next pivots are the largest residuals. Of a matrix that is not positive semi-definite residuals turn negative;
    they count as zero, and ``E`` is no longer bounded by them.

    Parameters
    ----------
    diagonal : ndarray, shape (n,)
    columns : callable
        Columns of the matrix by their numbers, as rows of a new array (k, n).
    limit : float
        Absolute.
    max_rank : int
    start : LowRank, optional
        A factor with fewer pivots, to go on from.
    block, single : int
        From rank ``single`` on that many candidates are taken together; those that the others explain are left out.
    rounding : float
        Residual, relative to the largest entry of the diagonal, at which rounding takes over: a floor of ``limit``.
    """
    n = len(diagonal)
    diagonal = np.maximum(diagonal, 0.0)
    limit = max(limit, rounding * float(diagonal.max(initial=0.0)))
    max_rank = min(max_rank, n)
    rank = 0 if start is None else start.rank
    residual = diagonal if start is None else start.residual.copy()
    L = np.empty((min(max_rank, max(64, 2 * rank)), n))
    pivots: list[int] = []
    if start is not None:
        L[:rank], pivots = start.L, start.pivots.tolist()
    while rank < max_rank and float(residual.max(initial=0.0)) > limit:
        size = min(1 if rank < single else block, max_rank - rank)
        if size == 1:
            candidates = np.array([int(residual.argmax())])
        else:
            candidates = np.argpartition(residual, n - size)[n - size :]
            candidates = candidates[np.argsort(-residual[candidates])]
        if rank + size > len(L):
            L = np.concatenate([L[:rank], np.empty((min(max_rank, 2 * len(L)) - rank, n))])
        rows = columns(candidates)
        if rank:
            rows -= L[:rank, candidates].T @ L[:rank]
        pivots += _append(L, rank, rows, candidates, residual)
        rank = len(pivots)
    fine = float(residual.max(initial=0.0)) <= limit
    return LowRank(L[:rank], residual, np.array(pivots, dtype=int)), fine


def _append(
    L: np.ndarray, rank: int, rows: np.ndarray, candidates: np.ndarray, residual: np.ndarray
) -> list[int]:
    """Factor the candidates' residual rows in turn, leaving out those that the others explain; the pivots taken."""
    first, top, taken = rank, float(residual.max()), []
    for i, row in zip(candidates.tolist(), rows, strict=True):
        if rank > first:
            row = row - L[first:rank, i] @ L[first:rank]
        if row[i] < 0.1 * top and rank > first:
            continue
        L[rank] = row / np.sqrt(max(row[i], np.finfo(float).tiny))
        residual -= L[rank] ** 2
        residual[i] = 0.0
        rank += 1
        taken.append(i)
    np.maximum(residual, 0.0, out=residual)
    return taken
