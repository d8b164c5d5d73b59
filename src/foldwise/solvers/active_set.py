"""The dual of a support vector machine to rounding: an active-set method for its box, from a nearby start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.base import Array
from foldwise.problems.dual import BOUND, EDGE, FREE, FreeSystem, decision_limits, interval_ends
from foldwise.problems.gram import DenseGram, submatrix
from foldwise.problems.pieces import box_unit

__all__ = ["NEAR", "BoxedRows", "Finished", "finish", "reach", "snapped", "solve_from_kinds"]

NEAR = 1e-8
"""Distance from its kink, relative to ``1 + |y|``, up to which a decision does not tell on which side its row is."""


@dataclass(frozen=True, eq=False)
class Finished:
    """Coefficients, the intercept or what unpenalised columns have instead, and the largest violation that is left.

    That is one of optimality, in units of the decision.
    """

    alpha: Array
    b: Any
    gap: float
    rounds: int


class BoxedRows:
    """Coefficients of a dual within their bounds, while rows are let go and held: what every loop over them shares.

    Minimised is ``1/2 alpha'K alpha - alpha'y + tube |alpha|_1`` with ``|alpha_j| <= c_j``, for the hinge (``tube``
    None) ``y_j alpha_j`` in ``[0, c_j]``; what ties the rows together is up to the loop.

    Attributes
    ----------
    side : ndarray
        Sign that each coefficient has or would get.
    free : ndarray of bool
        Rows that no bound holds.
    f : ndarray
        ``K alpha``.
    """

    def __init__(self, K: Array, y: Array, tube: Any, c: Array, alpha: Array) -> None:
        self.K, self.y, self.tube, self.c = K, y, tube, c
        self.place(alpha)

    def place(self, alpha: Array) -> None:
        """Begin with these coefficients."""
        self.alpha = alpha
        self.side = self.y.copy() if self.tube is None else np.sign(alpha)
        self.free = (alpha != 0) & (np.abs(alpha) < self.c)
        self.f = alpha @ self.K
        self.settled = np.zeros(len(alpha), dtype=bool)

    @property
    def at_bound(self) -> Array:
        """Rows held at a bound that is not zero."""
        return ~self.free & (self.alpha != 0)

    def limits(self) -> tuple[Array, Array]:
        """Interval in which optimality wants each decision."""
        return decision_limits(self.y, self.tube, self.side, self.free, self.at_bound)

    def rounding(self) -> float:
        """What rounding may do to a decision."""
        size = float(np.abs(self.K.diagonal()).max()) * float(np.abs(self.alpha).sum())
        return 1e-14 * (size + float(np.abs(self.y).max()))

    def go(self, rows: Array, step: Array, pull: Array | None = None) -> bool:
        """Move the free rows by ``step``, or as far as the first bound, which holds its row; whether one is held now.

        With ``pull``, minus the slope at the free rows, nothing ties them together: all that leave the box stop at its
        sides, if that descends.
        """
        c, side = self.c[rows], self.side[rows]
        a, push = side * self.alpha[rows], side * step
        t, hit = reach(a, push, c)
        new = np.where(hit, np.where(push > 0, c, 0.0), a + t * push)
        if hit.any() and pull is not None:
            clipped = np.clip(a + push, 0.0, c)
            d = side * (clipped - a)
            if 0.5 * d @ self.K[np.ix_(rows, rows)] @ d < d @ pull:
                new, hit = clipped, clipped != a + push
        self.alpha[rows] = side * new
        if not hit.any():
            # A row that ends on its bound to rounding is not free; each is put there once, lest it come and go.
            edge = EDGE * box_unit(self.alpha, self.c)[rows]
            hit = ((new <= edge) | (new >= (1 - EDGE) * c)) & ~self.settled[rows]
            near = rows[hit]
            self.alpha[near] = side[hit] * np.where(new[hit] > 0.5 * c[hit], c[hit], 0.0)
            self.settled[near] = True
        self.free[rows[hit]] = False
        self.f = self.alpha @ self.K
        return bool(hit.any())

    def let_go(self, loose: Array, upward: Array) -> None:
        """Free these rows; a tube's that have no coefficient get a positive one where ``upward``."""
        if self.tube is not None:
            self.side = np.where(loose & (self.alpha == 0), np.where(upward, 1.0, -1.0), self.side)
        self.free |= loose


def finish(
    K: Array,
    y: Array,
    tube: Any,
    c: Array,
    alpha: Array,
    b: float,
    intercept: bool,
    *,
    snap: float = 1e-7,
    max_rounds: int | None = None,
) -> Finished:
    """The minimum of :class:`BoxedRows`, with ``sum alpha = 0`` if there is an intercept.

    Each round solves for the free rows exactly and goes there, or as far as the first bound, which then holds its row;
    when no bound is in the way, rows whose decisions are on the wrong side of their kink are let go. ``K_FF`` may be
    singular: a direction without curvature leads to a bound.

    Parameters
    ----------
    K : ndarray, shape (n, n)
    y, c : ndarray, shape (n,)
        Targets and positive bounds.
    tube : None, float or ndarray
    alpha, b : a start within the bounds
    snap : float
        Coefficients this near to a bound, in units of ``c``, begin on it.
    max_rounds : int, optional
        500 and twenty for every row by default.
    """
    max_rounds = 500 + 20 * len(y) if max_rounds is None else max_rounds
    state = BoxedRows(K, y, tube, c, _start(alpha, c, snap, intercept))
    b = b if intercept else 0.0
    repeats, gap, rounds = 0, np.inf, 0
    while rounds < max_rounds:
        look_at_clock()
        rounds += 1
        tol = state.rounding()
        (low, up), rows = state.limits(), np.flatnonzero(state.free)
        # 1. The free rows go to where their decisions are on the kink, or as far as a bound allows.
        if len(rows):
            # For the change of b: targets far larger than the coefficients would leave their rounding in these.
            system, pull = (
                FreeSystem.build(submatrix(K, rows), rows, None, intercept),
                (low - state.f)[rows] - b,
            )
            step, shift = system.solve(pull, -float(state.alpha.sum()))
            b -= float(shift)
            if state.go(rows, step, None if intercept else pull):
                continue
            off = np.abs(low[rows] - state.f[rows] - b).max() > tol
            if (off or (intercept and not _balanced(state.alpha))) and repeats < 2:
                repeats += 1
                continue
        elif intercept:
            ends = interval_ends(low, up, state.f)
            if ends is not None:
                b = 0.5 * float((low - state.f)[ends[0]] + (up - state.f)[ends[1]])
        # 2. Held rows whose decisions are on the wrong side are let go.
        repeats = 0
        below, above = low - state.f - b, state.f + b - up
        wrong = np.maximum(below, above)
        gap = float(wrong.max(initial=0.0))
        loose = ~state.free & (wrong > max(tol, 0.1 * gap))
        if not loose.any():
            break
        state.let_go(loose, below > 0)
    return Finished(state.alpha, b, gap, rounds)


def solve_from_kinds(
    gram: DenseGram,
    y: Array,
    tube: Any,
    c: Array,
    kinds: Array,
    z: Array,
    intercept: bool,
    *,
    near: float = NEAR,
    max_rounds: int = 30,
    patience: int = 6,
) -> Finished | None:
    """The same problem from the kinds of rows and decisions of a nearby one; None when that does not succeed.

    Rows that were free begin so. The others are where their decision ``z`` tells, on this or that side of their kink;
    those within ``near`` of it as they were. Each round solves for the free rows and corrects all kinds at once: free
    rows that left the box are held at its side, held rows with the wrong decision are let go. It ends where no kind
    changes, mostly after a few rounds; it may also never end, and is given up when for ``patience`` rounds the rows to
    correct have not become fewer.

    Parameters
    ----------
    gram : DenseGram
        The kernel matrix; only rows with a coefficient are asked for.
    y, c : ndarray, shape (n,)
        Targets and bounds; rows with ``c_j = 0`` do not take part.
    tube : None, float or ndarray
    kinds : ndarray of int, shape (n,)
        As :func:`~foldwise.problems.dual.coded`.
    z : ndarray, shape (n,)
    """
    trains = c > 0
    side, free, held = _expected(y, tube, kinds, z, near * (1.0 + np.abs(y)))
    free &= trains
    alpha = np.where(held & trains & ~free, side * c, 0.0)
    fewest, waited, b, size = len(y) + 1, 0, 0.0, 1.0
    for rounds in range(1, max_rounds + 1):
        rows = np.flatnonzero(free)
        f = gram.product(alpha[None])[0]
        low, up = decision_limits(y, tube, side, free, ~free & (alpha != 0))
        # 1. The free rows go to where their decisions are on the kink, whatever their bounds say.
        a = np.zeros(0)
        if len(rows):
            H = gram.block(rows)
            size = float(np.abs(H.diagonal()).max())
            system = FreeSystem.build(H, rows, None, intercept)
            step, shift = system.solve(low[rows] - f[rows] - b, -float(alpha.sum()))
            b -= float(shift)
            alpha[rows] += step
            a = side[rows] * alpha[rows]
            f = gram.product(alpha[None])[0]
        elif intercept:
            ends = interval_ends(low[trains], up[trains], f[trains])
            if ends is None or abs(alpha.sum()) > 1e-13 * np.abs(alpha).sum():
                return None
            b = 0.5 * float((low - f)[trains][ends[0]] + (up - f)[trains][ends[1]])
        # 2. Which rows are of the wrong kind?
        tol = 1e-14 * (size * float(np.abs(alpha).sum()) + float(np.abs(y).max()))
        below, above = np.where(trains, low - f - b, 0.0), np.where(trains, f + b - up, 0.0)
        wrong = np.maximum(below, above)
        loose = ~free & (wrong > tol)
        out = (a < EDGE * box_unit(alpha, c)[rows]) | (a > (1 - EDGE) * c[rows])
        changes = int(out.sum() + loose.sum())
        balanced = not intercept or _balanced(alpha)
        if not changes and balanced and wrong.max(initial=0.0) <= tol:
            return Finished(alpha, b, float(wrong.max(initial=0.0)), rounds)
        if changes:
            waited = 0 if changes < fewest else waited + 1
            fewest = min(fewest, changes)
        else:  # rounding in the free rows' decisions: solved again for what is left
            waited += 2
            if waited > patience:
                return Finished(alpha, b, float(wrong.max()), rounds)
        if waited > patience:
            return None
        # 3. Put them right.
        left = rows[out]
        alpha[left] = np.where(a[out] > 0.5 * c[left], side[left] * c[left], 0.0)
        free[left] = False
        if tube is not None:
            side = np.where(loose & (alpha == 0), np.where(below > 0, 1.0, -1.0), side)
        free |= loose
    return None


def _expected(y: Array, tube: Any, kinds: Array, z: Array, near: Any) -> tuple[Array, Array, Array]:
    """Sides of the rows, and which of them are free and which at their bound, by their kinds and decisions."""
    free, held = np.abs(kinds) == FREE, np.abs(kinds) == BOUND
    slack = y * (y - z) if tube is None else np.abs(y - z) - tube
    tells = ~free & (np.abs(slack) > near)
    held = np.where(tells, slack > 0, held)
    if tube is None:
        return y.copy(), free, held
    return np.where(tells | (kinds == 0), np.where(z < y, 1.0, -1.0), np.sign(kinds)), free, held


def snapped(alpha: Array, c: Array, snap: float) -> Array:
    """Coefficients next to a bound put on it."""
    size = np.abs(alpha)
    return np.where(size >= (1 - snap) * c, np.sign(alpha) * c, np.where(size <= snap * c, 0.0, alpha))


def _balanced(alpha: Array) -> bool:
    """Whether coefficients sum to zero but for rounding."""
    return abs(float(alpha.sum())) <= 1e-12 * float(np.abs(alpha).sum())


def _start(alpha: Array, c: Array, snap: float, intercept: bool) -> Array:
    """The same, unless that leaves no free row to restore ``sum alpha = 0``."""
    out = snapped(alpha, c, snap)
    held = not np.any((out != 0) & (np.abs(out) < c))
    if intercept and held and abs(out.sum()) > 1e-13 * np.abs(out).sum():
        return np.clip(alpha, -c, c)
    return out


def reach(a: Array, step: Array, c: Array) -> tuple[float, Array]:
    """The part of a step that keeps ``0 <= a <= c``, and which entries stop it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(step > 0, (c - a) / step, np.where(step < 0, -a / step, np.inf))
    t = float(room.min())
    return (1.0, np.zeros(len(a), dtype=bool)) if t >= 1.0 else (max(t, 0.0), room <= max(t, 0.0))
