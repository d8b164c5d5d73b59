r"""How good a point of a program with complementarity is: residual, biactive pairs, class of stationarity.

At a complementary point every pair has a side that is zero. To first order the feasible points around it are the
directions ``d`` that keep active rows and bounds, hold a side at zero where the other is not, and keep biactive pairs
(both sides zero) complementary. The point is **B-stationary** when none of them lowers the objective:

.. math::  \min_d \{ c'd : \text{active rows and bounds}, \ 0 \le (Gd)_k \perp (Hd)_k \ge 0 \text{ on biactive pairs},
           \ \|d\|_\infty \le 1 \} = 0 ,

a small linear program with complementarity, which :func:`b_stationary` solves by branching on the biactive pairs. Rows
that are not linear are replaced by their derivative.

The multipliers' signs tell less or more: with ``nu`` and ``xi`` the multipliers of the two sides,

.. math::  c = A'y + \text{(bounds)} + G'\nu + H'\xi, \qquad \nu_k g_k = 0, \ \xi_k h_k = 0

is weak stationarity. On biactive pairs ``nu, xi >= 0`` is strong stationarity (S), which implies B-stationarity and is
implied by it where multipliers are unique. ``nu xi >= 0`` is C-, both positive or one zero M-stationarity.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.optimizers.mpec.highs import LinearProgram
from foldwise.optimizers.mpec.mpcc import Mpcc

__all__ = ["StationarityVerdict", "b_stationary", "certify"]

NEAR = 1e-5
"""Distance below which a bound, a row or a side counts as active."""
SMALL = 1e-7
"""Descent, or sum of the violations of stationarity, relative to the sum of the cost's sizes, that is none ..."""
CURVED = 1e-4
"""... and where rows are not linear, so that the derivatives depend on how exactly the point is known."""
MOST_PROGRAMS = 500
"""Linear programs after which branching gives up ..."""
MOST_SECONDS = 10.0
"""... and seconds."""


@dataclass(frozen=True, eq=False)
class StationarityVerdict:
    """Whether a point is B-stationary: True, False, or None where it was not decided, with the reason in words.

    Attributes
    ----------
    biactive : int
        Pairs with both sides zero.
    programs, limit : int
        Linear programs that were solved, and how many were allowed.
    rate : float
        Change of the objective along the direction found, per unit of its largest entry; 0 without one.
    reach : float
        How far one can go along it before another row, bound or side becomes active, at most 1. Where all rows are
        linear the objective falls by ``rate * reach`` there.
    direction : ndarray or None
    """

    holds: bool | None
    reason: str
    biactive: int
    programs: int
    limit: int
    rate: float = 0.0
    reach: float = 0.0
    direction: np.ndarray | None = None

    def facts(self) -> dict[str, Any]:
        """The verdict as plain values by name."""
        return {
            "b_stationary": self.holds,
            "b_reason": self.reason,
            "b_programs": self.programs,
            "b_limit": self.limit,
            "b_rate": self.rate,
            "b_reach": self.reach,
        }


@dataclass(frozen=True, eq=False)
class Local:
    """A program around a point: its rows to first order, and what is active there.

    Attributes
    ----------
    mpcc : Mpcc
    x : the point
    A : csr matrix, derivative of the rows; rows : their values
    near, small : distance below which a quantity is active, and slope that counts as none
    """

    mpcc: Mpcc
    x: np.ndarray
    A: sp.csr_matrix
    rows: np.ndarray
    near: float
    small: float

    @classmethod
    def at(cls, mpcc: Mpcc, x: np.ndarray, near: float = NEAR) -> Local:
        """Around ``x``."""
        x = np.asarray(x, float)
        return cls(mpcc, x, mpcc.linearised(x), mpcc.values(x), near, SMALL if mpcc.linear else CURVED)

    @property
    def zero(self) -> tuple[np.ndarray, np.ndarray]:
        """Which first and which second sides are zero."""
        g, h = self.mpcc.sides(self.x)
        return np.abs(g) <= self.near, np.abs(h) <= self.near

    @property
    def both(self) -> np.ndarray:
        """The biactive pairs."""
        g, h = self.zero
        return np.flatnonzero(g & h)

    def violation(self) -> float:
        """Largest violation of a row, a bound or complementarity."""
        m = self.mpcc
        parts = (m.row_lower - self.rows, self.rows - m.row_upper, m.lower - self.x, self.x - m.upper)
        return max(m.residual(self.x), *(float(np.max(part, initial=0.0)) for part in parts))


def certify(mpcc: Mpcc, x: np.ndarray, near: float = NEAR, seconds: float | None = None) -> dict[str, Any]:
    """Residual, biactive pairs, verdict on B-stationarity and class of stationarity of a complementary point.

    The class is one of "S", "B", "M", "C", "W" (weak only), "none", or "undecided" when a linear program failed.
    """
    local = Local.at(mpcc, x, near)
    verdict = b_stationary(local, seconds=MOST_SECONDS if seconds is None else min(seconds, MOST_SECONDS))
    return {
        "complementarity": mpcc.residual(x),
        "pairs": mpcc.n_pairs,
        "biactive": verdict.biactive,
        "stationarity": _classify(local, verdict, seconds),
        **verdict.facts(),
    }


def b_stationary(
    local: Local, most: int = MOST_PROGRAMS, seconds: float = MOST_SECONDS
) -> StationarityVerdict:
    """Certify or refute B-stationarity by branching on the biactive pairs.

    A node holds one side of some biactive pairs at zero and lets the others be merely nonnegative: a linear program
    whose value bounds that of every branch below. It is closed when that value is zero. A direction that keeps all
    pairs complementary and lowers the objective refutes the point.
    """
    both, began = local.both, time.perf_counter()
    scale = float(np.abs(local.mpcc.cost).sum()) or 1.0
    count = 0

    def verdict(holds: bool | None, reason: str, **found: Any) -> StationarityVerdict:
        return StationarityVerdict(holds, reason, len(both), count, most, **found)

    if (wrong := local.violation()) > local.near:
        return verdict(None, f"the point keeps rows, bounds and pairs to {wrong:.1g} only")
    cone = _Cone(local, both)
    nodes: list[dict[int, int]] = [{}]
    while nodes:
        held = nodes.pop()
        if count >= most:
            return verdict(None, f"not decided within {most} linear programs")
        left = seconds - (time.perf_counter() - began)
        if left <= 0:
            return verdict(None, f"not decided within {seconds:.3g} s")
        found = cone.solve(held, left)
        count += 1
        if found is None:
            return verdict(None, "a linear program was not solved")
        value, d = found
        if value >= -local.small * scale:
            continue
        g, h = cone.sides(d)
        open_pair = np.minimum(g, h)
        if np.max(open_pair, initial=0.0) > 1e-7 and len(held) < len(both):
            k = int(np.argmax(open_pair))
            smaller = 0 if g[k] <= h[k] else 1
            nodes += [{**held, k: 1 - smaller}, {**held, k: smaller}]  # the nearer branch first
            continue
        size = float(np.max(np.abs(d)))
        rate, d = value / size, d / size
        reach = _reach(local, d)
        return verdict(
            False,
            f"a direction lowers the objective at the rate {rate:.3g}",
            rate=rate,
            reach=reach,
            direction=d,
        )
    how = "without branching" if count == 1 else f"in all branches, {count} linear programs"
    return verdict(True, f"no direction lowers the objective, {how}")


class _Cone:
    """The directions at a point, with some sides of biactive pairs held at zero: one HiGHS model, warm."""

    def __init__(self, local: Local, both: np.ndarray) -> None:
        m = local.mpcc
        self.cost, self.G, self.H, self.k = m.cost, m.G[both], m.H[both], len(both)
        low, high = _moves(local.rows, m.row_lower, m.row_upper, local.near)
        below, above = _moves(local.x, m.lower, m.upper, local.near)
        zero_g, zero_h = local.zero
        active = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
        single = np.flatnonzero(zero_g & ~zero_h), np.flatnonzero(zero_h & ~zero_g)
        fixed = np.zeros(len(single[0]) + len(single[1]))
        self.program = LinearProgram(
            m.cost,
            np.maximum(below, -1.0),
            np.minimum(above, 1.0),
            sp.vstack([self.G, self.H, local.A[active], m.G[single[0]], m.H[single[1]]], format="csr"),
            np.concatenate([np.zeros(2 * self.k), low[active], fixed]),
            np.concatenate([np.full(2 * self.k, np.inf), high[active], fixed]),
            primal_feasibility_tolerance=1e-9,
        )

    def solve(self, held: dict[int, int], seconds: float) -> tuple[float, np.ndarray] | None:
        """The steepest direction in the box and its slope; ``held`` maps a biactive pair to its side that is zero."""
        top = np.full(2 * self.k, np.inf)
        for pair, side in held.items():
            top[pair + side * self.k] = 0.0
        for row in range(2 * self.k):
            self.program.set_row(row, 0.0, top[row])
        d = self.program.solve(seconds)
        return None if d is None else (float(self.cost @ d), d)

    def sides(self, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How the sides of the biactive pairs change along ``d``."""
        return self.G @ d, self.H @ d


def _moves(
    value: np.ndarray, low: np.ndarray, high: np.ndarray, near: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of a change: not down at a lower bound, not up at an upper one."""
    return np.where(value <= low + near, 0.0, -np.inf), np.where(value >= high - near, 0.0, np.inf)


def _reach(local: Local, d: np.ndarray) -> float:
    """Longest step along ``d`` up to 1 that keeps the rows, bounds and sides that are not active."""
    m, near = local.mpcc, local.near
    g, h = m.sides(local.x)
    step = 1.0
    for value, slope, low, high in (
        (local.x, d, m.lower, m.upper),
        (local.rows, local.A @ d, m.row_lower, m.row_upper),
        (g, m.G @ d, np.zeros(len(g)), np.full(len(g), np.inf)),
        (h, m.H @ d, np.zeros(len(h)), np.full(len(h), np.inf)),
    ):
        down, up = (slope < -1e-12) & (value > low + near), (slope > 1e-12) & (value < high - near)
        ends = np.concatenate([(value - low)[down] / -slope[down], (high - value)[up] / slope[up]])
        step = min(step, float(np.min(ends, initial=1.0)))
    return step


def _classify(local: Local, verdict: StationarityVerdict, seconds: float | None) -> str:
    """The strongest class that the multipliers, or the verdict, show."""
    (zero_g, zero_h), both = local.zero, local.both
    system = _System(local, seconds)
    low = np.where(zero_g, -np.inf, 0.0), np.where(zero_h, -np.inf, 0.0)
    high = np.where(zero_g, np.inf, 0.0), np.where(zero_h, np.inf, 0.0)
    strong = low[0].copy(), low[1].copy()
    strong[0][both] = strong[1][both] = 0.0
    holds = system.holds(strong, high)
    if holds is None:
        return "undecided"
    if holds[0]:
        return "S"
    if verdict.holds:
        return "B"
    weak = system.holds(low, high)
    if weak is None:
        return "undecided"
    if not weak[0]:
        return "none"
    nu, xi = weak[1][both], weak[2][both]
    tiny = 1e-9 * max(float(np.max(np.abs(local.mpcc.cost), initial=0.0)), 1e-300)
    if np.all((np.minimum(nu, xi) >= -tiny) | (np.minimum(np.abs(nu), np.abs(xi)) <= tiny)):
        return "M"
    return "C" if np.all(nu * xi >= -(tiny**2)) else "W"


Sides = tuple[np.ndarray, np.ndarray]
"""Bounds of the multipliers of the first and of the second sides."""


class _System:
    """The stationarity conditions at a point as linear programs: least violation over the multipliers' signs."""

    def __init__(self, local: Local, seconds: float | None) -> None:
        mpcc = self.mpcc = local.mpcc
        n, m, k = mpcc.n, len(local.rows), mpcc.n_pairs
        y_low, y_high = _signs(local.rows, mpcc.row_lower, mpcc.row_upper, local.near)
        b_low, b_high = _signs(local.x, mpcc.lower, mpcc.upper, local.near)
        # Columns: y, bound multipliers, nu, xi, and the positive and negative part of the violation.
        eye = sp.identity(n)
        self.matrix = sp.hstack([local.A.T, eye, mpcc.G.T, mpcc.H.T, eye, -eye], format="csr")
        self.fixed = np.concatenate([y_low, b_low]), np.concatenate([y_high, b_high])
        self.split = m + n, m + n + k, m + n + 2 * k
        self.cost = np.concatenate([np.zeros(m + n + 2 * k), np.ones(2 * n)])
        self.scale = float(np.abs(mpcc.cost).sum()) or 1.0
        self.seconds, self.small = seconds, local.small

    def holds(self, lower: Sides, upper: Sides) -> tuple[bool, np.ndarray, np.ndarray] | None:
        """Whether multipliers with these signs exist, and those of the pairs; None when it was not decided."""
        n, wanted = self.mpcc.n, self.mpcc.cost
        low = np.concatenate([self.fixed[0], *lower, np.zeros(2 * n)])
        high = np.concatenate([self.fixed[1], *upper, np.full(2 * n, np.inf)])
        value = LinearProgram(self.cost, low, high, self.matrix, wanted, wanted).solve(self.seconds)
        if value is None:
            return None
        a, b, c = self.split
        violation = float(self.cost @ value)
        return violation <= self.small * self.scale, value[a:b], value[b:c]


def _signs(
    value: np.ndarray, low: np.ndarray, high: np.ndarray, near: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the multipliers: nonnegative at a lower bound, nonpositive at an upper one, else zero."""
    at_low, at_high = value <= low + near, value >= high - near
    return np.where(at_high, -np.inf, 0.0), np.where(at_low, np.inf, 0.0)
