"""The rows of a working set, with the others held."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldwise.solvers.semiparametric.dual import violations

__all__ = ["Subproblem"]


@dataclass(eq=False)
class Subproblem:
    """Problem (5) of lee2009 in ``delta``; solvers change it in place.

    Attributes
    ----------
    K : ndarray, shape (n, n)
    Q : ndarray, shape (rank, n)
    e : ndarray, shape (n,)
        ``y - K delta`` of these rows, with the held rows in it.
    delta, C, epsilon : ndarray, shape (n,)
    total : ndarray, shape (rank,)
        ``Q delta`` over all rows.
    eta : ndarray, shape (rank,)
    """

    K: np.ndarray
    Q: np.ndarray
    e: np.ndarray
    delta: np.ndarray
    C: np.ndarray
    epsilon: np.ndarray
    total: np.ndarray
    eta: np.ndarray

    def violations(self) -> np.ndarray:
        """Violation of (4a) to (4c) by every row."""
        return violations(self.delta, self.e - self.eta @ self.Q, self.C, self.epsilon)

    def move(self, rows: np.ndarray, value: np.ndarray) -> None:
        """Give ``delta`` of these rows a new value."""
        d = value - self.delta[rows]
        self.e -= d @ self.K[rows]
        self.total += self.Q[:, rows] @ d
        self.delta[rows] = value
