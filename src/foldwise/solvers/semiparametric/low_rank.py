"""A low-rank factor of a kernel matrix by pivoted Cholesky, with a bound on what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldwise.solvers.semiparametric.columns import Columns

__all__ = ["Factor", "pivoted_cholesky"]

ROUNDING = 1e-13
"""Residual of the diagonal, relative to its largest entry, at which rounding takes over."""

SINGLE = 32
"""Ranks below which pivots are taken one by one."""

BLOCK = 16
"""Candidates that are taken together afterwards."""


@dataclass(frozen=True, eq=False)
class Factor:
    """``K = L'L + E`` with ``E`` positive semi-definite and its diagonal known.

    Attributes
    ----------
    L : ndarray, shape (rank, n)
    residual : ndarray, shape (n,)
        Diagonal of ``E``.
    """

    L: np.ndarray
    residual: np.ndarray

    @property
    def rank(self) -> int:
        """Number of pivots."""
        return len(self.L)

    def product(self, delta: np.ndarray) -> np.ndarray:
        """``L'L delta``."""
        return (self.L @ delta) @ self.L

    def error(self, delta: np.ndarray) -> float:
        """Bound on ``max_i |(K delta - L'L delta)_i|``, from ``|E_ij| <= sqrt(E_ii E_jj)``."""
        root = np.sqrt(self.residual)
        return float(root.max(initial=0.0) * (root @ np.abs(delta)))


def pivoted_cholesky(
    source: Columns, limit: float, max_rank: int, start: Factor | None = None
) -> tuple[Factor, bool]:
    """Factor until the largest diagonal residual is at most ``limit``; False when the rank is used up.

    Parameters
    ----------
    source : Columns
    limit : float
        Absolute; rounding sets a floor below it.
    max_rank : int
    start : Factor, optional
        A factor with fewer pivots, to go on from.
    """
    n = source.n
    diagonal = np.maximum(source.diagonal(), 0.0)
    limit = max(limit, ROUNDING * float(diagonal.max(initial=0.0)))
    max_rank = min(max_rank, n)
    rank = 0 if start is None else start.rank
    residual = diagonal if start is None else start.residual.copy()
    L = np.empty((min(max_rank, max(64, 2 * rank)), n))
    if start is not None:
        L[:rank] = start.L
    while rank < max_rank:
        top = float(residual.max(initial=0.0))
        if top <= limit:
            return Factor(L[:rank], residual), True
        size = min(1 if rank < SINGLE else BLOCK, max_rank - rank)
        if size == 1:
            candidates = np.array([int(residual.argmax())])
        else:
            candidates = np.argpartition(residual, n - size)[n - size :]
            candidates = candidates[np.argsort(-residual[candidates])]
        if rank + size > len(L):
            L = np.concatenate([L[:rank], np.empty((min(max_rank, 2 * len(L)) - rank, n))])
        rows = source.columns(candidates)
        if rank:
            rows -= L[:rank, candidates].T @ L[:rank]
        rank = _append(L, rank, rows, candidates, residual, top)
        np.maximum(residual, 0.0, out=residual)
    return Factor(L[:rank], residual), bool(residual.max(initial=0.0) <= limit)


def _append(
    L: np.ndarray, rank: int, rows: np.ndarray, candidates: np.ndarray, residual: np.ndarray, top: float
) -> int:
    """Factor the candidates' residual rows in turn, leaving out those that the others explain; the new rank."""
    first = rank
    for k, row in enumerate(rows):
        i = candidates[k]
        if rank > first:
            row = row - L[first:rank, i] @ L[first:rank]
        if row[i] < 0.1 * top and rank > first:
            continue
        L[rank] = row / np.sqrt(max(row[i], np.finfo(float).tiny))
        residual -= L[rank] ** 2
        residual[i] = 0.0
        rank += 1
    return rank
