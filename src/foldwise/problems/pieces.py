r"""One training problem with a polyhedral loss, as a convex piecewise quadratic function of the weights.

.. math::  E(w) = \tfrac12 \sum_d q_d (w_d - o_d)^2 + \sum_d p_d |w_d| + \sum_j \phi_j(x_j'w),
           \qquad \mathrm{lower} \le w \le \mathrm{upper}

where ``phi_j`` is piecewise linear with slope ``-alpha_j``: ``alpha_j`` is a staircase of ``x_j'w``, whose steps have
the heights ``ends_j``, and every kink passed leads one step down. The hinge of a row with ``y = 1`` has one kink at 1
and the steps ``c, 0``; with ``y = -1`` one at -1 and the steps ``0, -c``. The tube has kinks at ``y - epsilon`` and
``y + epsilon`` and the steps ``c, 0, -c``; the loss of a quantile ``q`` one kink and the steps ``q c, (q - 1) c``.

The optimality conditions, with the signs used everywhere in the package:

.. math::  q (w - o) + p s - X'\alpha + \gamma = 0, \quad s \in \partial |w|, \quad \alpha_j \in -\partial\phi_j(x_j'w),

``gamma_d`` positive at the upper bound, negative at the lower one, zero between. An intercept is a column of ones with
``q = p = 0`` and no bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dgecon, dgetrf, dgetrs

from foldwise.design import Design
from foldwise.linalg import pseudo_inverse

__all__ = ["AT_LOWER", "AT_UPPER", "AT_ZERO", "ActiveSet", "KinkSystem", "Pieces", "Stairs", "box_unit"]

AT_LOWER, AT_UPPER, AT_ZERO = -1, 1, 2

FAR = 1e3
"""Kinks are far from zero when they lie further away than this many of their standard deviations."""


def box_unit(alpha: np.ndarray, c: np.ndarray) -> np.ndarray:
    """What the distance of a multiplier from zero is relative to: its box, or the largest of all where that is less.

    Far below every bound, where ``C`` does not matter, multipliers are compared with each other.

    Parameters
    ----------
    alpha : ndarray, shape (..., n)
    c : ndarray, broadcastable to it
    """
    return np.minimum(c, np.abs(alpha).max(axis=-1, keepdims=True, initial=0.0))


class Stairs:
    """Dual variables of rows as staircases of their decisions.

    Attributes
    ----------
    kinks, ends, c : as of :class:`Pieces`
    """

    kinks: np.ndarray
    ends: np.ndarray
    c: np.ndarray

    def levels(self, Z: np.ndarray) -> np.ndarray:
        """Number of kinks that each decision has passed."""
        return np.sum(Z[:, None] > self.kinks, axis=1)

    def steps_at(self, rows: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Steps left and right of the kink number ``which`` of these rows; equal kinks count together."""
        at = self.kinks[rows, which][:, None]
        near = 1e-14 * (1.0 + np.abs(at))
        return np.sum(self.kinks[rows] < at - near, axis=1), np.sum(self.kinks[rows] <= at + near, axis=1)

    def range_of(self, rows: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest ``alpha`` of rows on their kink number ``which``."""
        left, right = self.steps_at(rows, which)
        return self.ends[rows, right], self.ends[rows, left]

    def on_step(self, level: np.ndarray) -> np.ndarray:
        """``alpha`` of rows that have passed so many kinks."""
        return self.ends[np.arange(len(self.c)), level]

    def nearest_step(self, alpha: np.ndarray) -> np.ndarray:
        """The step whose height each ``alpha`` is nearest to."""
        return np.argmin(np.abs(self.ends - alpha[:, None]), axis=1)

    def kink_of(self, alpha: np.ndarray) -> np.ndarray:
        """The kink at which a row with this ``alpha`` sits; on a step, that at its right end."""
        return np.sum(self.ends[:, 1:-1] >= alpha[:, None], axis=1)


@dataclass(frozen=True, eq=False)
class Pieces(Stairs):
    """The numbers of one training problem.

    Parameters
    ----------
    X : Design, n rows and D columns
        Rows with ``c = 0`` take no part.
    kinks : ndarray, shape (n, k)
        Positions of the kinks of every row, increasing.
    ends : ndarray, shape (n, k + 1)
        ``alpha`` left of the first kink, between kinks, and right of the last one: from positive (or zero) down to
        negative (or zero).
    c : ndarray, shape (n,)
        What a row weighs: the unit in which its ``alpha`` is compared.
    q, centre, l1, lower, upper : ndarray, shape (D,)
        ``o`` is ``centre`` and ``p`` is ``l1``.
    """

    X: Design
    kinks: np.ndarray
    ends: np.ndarray
    c: np.ndarray
    q: np.ndarray
    centre: np.ndarray
    l1: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def unit(self) -> float:
        """A power of two in which decisions are of ordinary size: 1 unless the kinks spread over far less or more."""
        spread = float(np.std(self.kinks[self.c > 0, 0])) if np.any(self.c > 0) else 0.0
        ordinary = spread == 0 or not np.isfinite(spread) or 1e-3 <= spread <= 1e3
        return 1.0 if ordinary else float(2.0 ** np.round(np.log2(spread)))

    def scaled(self, unit: float) -> Pieces:
        """The same problem with decisions, weights and multipliers in another unit; ``E`` is divided by its square."""
        parts = {
            name: getattr(self, name) / unit
            for name in ("kinks", "ends", "c", "centre", "l1", "lower", "upper")
        }
        return replace(self, **parts)

    def level(self) -> float:
        """Where the kinks lie, if that is far from zero beside their spread and the last column is a free intercept.

        The intercept can take it, and rounding is then that of the spread. Otherwise 0.
        """
        kinks = self.kinks[self.c > 0, 0]
        if not len(kinks):
            return 0.0
        middle = float(np.median(kinks))
        if not (np.isfinite(middle) and abs(middle) > FAR * float(np.std(kinks))):
            return 0.0
        free = self.q[-1] == 0 and self.l1[-1] == 0 and self.lower[-1] == -np.inf and self.upper[-1] == np.inf
        return middle if free and bool(np.all(self.X.times(np.eye(len(self.q))[-1]) == 1.0)) else 0.0

    def moved(self, level: float) -> Pieces:
        """The same problem with decisions and intercept counted from ``level``."""
        return replace(self, kinks=self.kinks - level)

    def losses(self, Z: np.ndarray) -> np.ndarray:
        """``phi_j`` at decisions ``Z``, less its minimum."""
        out = np.zeros(len(self.c))
        # What lies above zero of the step at a kink counts on its left, what lies below zero on its right.
        rise, fall = (
            -np.diff(np.maximum(self.ends, 0.0), axis=1),
            -np.diff(np.minimum(self.ends, 0.0), axis=1),
        )
        for k in range(self.kinks.shape[1]):
            distance = Z - self.kinks[:, k]
            out += rise[:, k] * np.maximum(-distance, 0.0) + fall[:, k] * np.maximum(distance, 0.0)
        return out

    def value(self, w: np.ndarray, Z: np.ndarray | None = None) -> float:
        """``E(w)``; bounds are not looked at."""
        Z = self.X.times(w) if Z is None else Z
        smooth = 0.5 * float(self.q @ (w - self.centre) ** 2)
        return smooth + float(self.l1 @ np.abs(w)) + float(self.losses(Z).sum())

    def scale(self, w: np.ndarray, Z: np.ndarray, alpha: np.ndarray) -> float:
        """What a duality gap is compared with: the size of the terms that make up the objective and its dual.

        Where these vanish, since no row needs a weight, it is the penalty of weights whose decisions are a thousandth
        of the kinks.
        """
        rows = self.c > 0
        size = np.abs(self.kinks).max(axis=1)
        away = np.where((self.q > 0) | (self.l1 > 0), w - self.centre, 0.0)
        moved = self.X.times(away)[rows]
        seen = float(np.sqrt(np.mean(moved**2))) if np.any(rows) else 0.0
        times = 1e-3 * float(size[rows].max(initial=0.0)) / seen if seen > 0 else 0.0
        least = 0.5 * float(self.q @ away**2) * times**2 + float(self.l1 @ np.abs(away)) * times
        dual = min(1e-3 * float(self.c @ size), 1e-3 * float(np.abs(alpha) @ size) + least)
        return abs(self.value(w, Z)) + dual + 1e-300

    def gap(self, w: np.ndarray, alpha: np.ndarray, Z: np.ndarray | None = None) -> float:
        """Duality gap of ``w`` and ``alpha``: a sum of terms none of which is negative, zero at the solution.

        A column that has neither curvature nor bounds needs ``|x'alpha| <= l1``; what exceeds it is charged with the
        size of ``w`` there. Decisions that are on a kink but for their rounding are on it, however large ``c`` is.
        """
        Z = self._snapped(self.X.times(w) if Z is None else Z)
        # -phi*(-alpha): the smallest of phi + alpha z is on the kink where alpha is.
        at = self.kinks[np.arange(len(alpha)), self.kink_of(alpha)]
        rows = self.losses(Z) + alpha * Z - alpha * at - self.losses(at)
        v = self.X.back(alpha)
        best = self.smallest(v)
        flat = (self.q == 0) & (np.isinf(self.lower) | np.isinf(self.upper))
        own = 0.5 * self.q * (w - self.centre) ** 2 + self.l1 * np.abs(w) - v * w
        there = 0.5 * self.q * (best - self.centre) ** 2 + self.l1 * np.abs(best) - v * best
        excess = np.maximum(np.abs(v) - self.l1, 0.0) * np.maximum(np.abs(w), 1.0)
        slack = np.maximum(self.l1 * np.abs(w) - v * w, 0.0)
        columns = np.where(flat, excess + slack, own - there)
        return float(np.maximum(rows, 0.0)[self.c > 0].sum() + np.maximum(columns, 0.0).sum())

    def _snapped(self, Z: np.ndarray) -> np.ndarray:
        """Decisions, those on a kink but for rounding put there."""
        for at in self.kinks.T:
            Z = np.where(np.abs(Z - at) <= 1e-14 * (np.abs(Z) + np.abs(at)), at, Z)
        return Z

    def smallest(self, v: np.ndarray) -> np.ndarray:
        """Minimiser of ``q/2 (w - o)^2 + p |w| - v w`` between the bounds, column by column."""
        t = self.q * self.centre + v
        shrunk = np.sign(t) * np.maximum(np.abs(t) - self.l1, 0.0)
        curved = self.q > 0
        w = np.where(curved, shrunk / np.where(curved, self.q, 1.0), 0.0)
        linear = ~curved & (shrunk != 0)
        w = np.where(linear, np.copysign(np.inf, shrunk), w)
        out = np.clip(w, self.lower, self.upper)
        return np.where(np.isinf(out), 0.0, out)


@dataclass(eq=False)
class ActiveSet:
    """Which rows sit on which kink, how many kinks the others have passed, and which columns are held where.

    Attributes
    ----------
    on : ndarray of bool, shape (n,)
    level : ndarray of int, shape (n,)
        For rows on a kink, its number.
    held : ndarray of int, shape (D,)
        0 for free columns, ``AT_LOWER`` (-1), ``AT_UPPER`` (1), or ``AT_ZERO`` (2) by the L1 penalty.
    """

    on: np.ndarray
    level: np.ndarray
    held: np.ndarray


class KinkSystem:
    """The optimality system of the free columns and the rows held on a kink, factored.

    ``solve(a, b)`` gives ``(dw, dalpha)`` with ``q dw - X_K' dalpha = a`` and ``X_K dw = b``: right-hand sides of shape
    (columns, k) and (rows, k). Columns with much curvature are eliminated; what is left has the size of the kinks and
    the flat columns. Where that is singular the shortest solution is taken (in scaled units).
    """

    def __init__(self, X_K: np.ndarray, q: np.ndarray) -> None:
        self.curved = q > 1e-4 * q.max(initial=0.0)
        self.q = q[self.curved]
        self.P, self.N = X_K[:, self.curved], X_K[:, ~self.curved]
        k, flat = len(X_K), self.N.shape[1]
        M = np.zeros((k + flat, k + flat))
        M[:k, :k] = (self.P / self.q) @ self.P.T
        M[:k, k:] = self.N
        M[k:, :k] = self.N.T
        M[k:, k:] = -np.diag(q[~self.curved])
        self.M, self.k = M, k
        self.size = np.ones(len(M))
        self.factor: Any = None
        self.pinv: np.ndarray | None = None
        if not len(M):
            return
        largest = np.abs(M).max(axis=1)
        self.size = np.sqrt(np.where(largest > 0, largest, 1.0))
        scaled = M / np.outer(self.size, self.size)
        lu, pivots, info = dgetrf(scaled)
        if info == 0 and dgecon(lu, np.abs(scaled).sum(axis=0).max())[0] > 1e-12:
            self.factor = lu, pivots
            return
        self.pinv = pseudo_inverse(scaled, 1e-11, indefinite=True)

    @property
    def singular(self) -> bool:
        """Whether rows on kinks depend on each other, or a flat column is held by none."""
        return self.pinv is not None

    def _apply(self, rhs: np.ndarray) -> np.ndarray:
        scaled = rhs / self.size[:, None]
        if self.pinv is not None:
            out = self.pinv @ scaled
        else:
            out, _ = dgetrs(*self.factor, scaled)
        return out / self.size[:, None]

    def solve(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """``dw`` (columns, k), ``dalpha`` (rows, k), and what no solution reaches on rows and flat columns.

        On the flat columns minus what is left over, divided by ``size**2``, is a direction that keeps the rows on their
        kinks, meets no curvature, and descends.
        """
        dw, dalpha, rest = self._solve(a, b)
        # Where C is large, rounding of large multipliers moves dw off the kinks; the same system takes it back.
        left = a.copy()
        left[self.curved] -= self.q[:, None] * dw[self.curved] - self.P.T @ dalpha
        left[~self.curved] = 0.0
        more, slope, _ = self._solve(left, b - self.P @ dw[self.curved] - self.N @ dw[~self.curved])
        return dw + more, dalpha + slope, rest

    def _solve(self, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Eliminate the curved columns, solve for the rest."""
        bent = a[self.curved] / self.q[:, None]
        rhs = np.concatenate([b - self.P @ bent, a[~self.curved]])
        rhs[self.k :] *= -1.0
        y = np.zeros_like(rhs)
        rest = rhs
        if len(rhs):
            y = self._apply(rhs)
            rest = rhs - self.M @ y
            y = y + self._apply(rest)
            rest = rhs - self.M @ y
        dw = np.empty_like(a)
        dw[~self.curved] = y[self.k :]
        dw[self.curved] = bent + (self.P.T @ y[: self.k]) / self.q[:, None]
        return dw, y[: self.k], rest
