r"""The dual of semiparametric regression in ``delta = alpha - alpha*``, and how far a point is from solving it.

.. math:: \min_\delta\ \tfrac12 \delta'K\delta - y'\delta + \epsilon'|\delta|
          \quad\text{with } \Psi'\delta = 0,\ |\delta_i| \le C_i

The printed ``Q`` of lee2009 has factors ``y_i y_j``, which belong to classification; here it is ``K`` with signs, and
in ``delta`` there are ``M`` columns instead of ``2 M``. The multipliers of ``Psi'delta = 0`` are the coefficients of
the basis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldwise.solvers.semiparametric.columns import Columns

__all__ = ["Basis", "Dual", "rebalanced", "violations"]

DEPENDENT = 1e-10
"""Singular values of the scaled basis, relative to the largest, below which a direction counts as dependent."""


def violations(delta: np.ndarray, r: np.ndarray, C: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """How far every row's residual ``r = y - h`` is from where its coefficient wants it, in units of ``y``."""
    side = np.sign(delta)
    beyond = np.where(side == 0, np.abs(r), side * r) - epsilon
    held = np.abs(delta) >= C
    out = np.where(side == 0, beyond, np.where(held, -beyond, np.abs(beyond)))
    return np.maximum(np.where(C > 0, out, 0.0), 0.0)


def rebalanced(delta: np.ndarray, C: np.ndarray, Q: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """``Q delta = goal`` again after coefficients went to their bounds: the others give a little, each by its room."""
    free = np.flatnonzero((delta != 0) & (np.abs(delta) < C))
    if not len(Q) or not len(free):
        return delta
    size = np.abs(delta[free])
    room = np.minimum(size, C[free] - size)
    part = Q[:, free] * room
    change = room * np.linalg.lstsq(part, goal - Q @ delta, rcond=None)[0]
    if np.all(np.abs(change) < room):
        delta[free] += change
    return delta


@dataclass(frozen=True, eq=False)
class Basis:
    """Columns with the span of ``Psi`` that are orthogonal and of mean square one.

    Attributes
    ----------
    Q : ndarray, shape (rank, M)
        ``Q'eta = Psi beta`` for ``beta = back eta``, which is the shortest such vector in units of the columns' sizes.
    back : ndarray, shape (K, rank)
    """

    Psi: np.ndarray
    Q: np.ndarray
    back: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, Psi: np.ndarray) -> Basis:
        """Orthogonalise the columns of ``Psi``."""
        M, K = Psi.shape
        size = np.abs(Psi).max(axis=0, initial=0.0)
        scale = np.where(size > 0, size, 1.0)
        left, R = np.linalg.qr(Psi / scale)
        U, s, Vt = np.linalg.svd(R)
        rank = int(np.sum(s > DEPENDENT * s.max(initial=0.0))) if K else 0
        root = np.sqrt(M)
        Q = np.ascontiguousarray((left @ U[:, :rank]).T) * root
        return cls(Psi, Q, (Vt[:rank].T / s[:rank]) * root / scale[:, None], scale)

    @property
    def rank(self) -> int:
        """Number of independent columns."""
        return len(self.Q)

    def beta(self, eta: np.ndarray) -> np.ndarray:
        """Coefficients of the given basis."""
        return self.back @ eta

    def eta(self, beta: np.ndarray) -> np.ndarray:
        """Coefficients of the orthogonal basis with the same values."""
        return self.Q @ (self.Psi @ beta) / self.Q.shape[1]


@dataclass(frozen=True, eq=False)
class Dual:
    """One problem: the kernel's columns, the basis, targets, bounds and tube of every row."""

    source: Columns
    basis: Basis
    y: np.ndarray
    C: np.ndarray
    epsilon: np.ndarray

    def violations(self, delta: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Violation of (4a) to (4c) of lee2009 by every row, for decisions ``h``."""
        return violations(delta, self.y - h, self.C, self.epsilon)

    def unbalance(self, delta: np.ndarray) -> float:
        """``max_k |Psi_k'delta|`` for columns scaled to largest entry one, in units of ``min(1, largest bound)``."""
        if not self.basis.Psi.shape[1]:
            return 0.0
        total = np.abs(delta @ self.basis.Psi) / self.basis.size
        return float(total.max()) / min(1.0, float(self.C.max(initial=0.0)) or 1.0)

    def values(self, delta: np.ndarray, f: np.ndarray, eta: np.ndarray) -> tuple[float, float]:
        """Training objective, and the dual one, which is below it where ``Psi'delta = 0``."""
        half = 0.5 * float(delta @ f)
        loss = np.maximum(np.abs(self.y - f - eta @ self.basis.Q) - self.epsilon, 0.0)
        dual = float(self.y @ delta) - half - float(self.epsilon @ np.abs(delta))
        return half + float(self.C @ loss), dual
