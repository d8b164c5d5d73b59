"""Minimise a convex piecewise quadratic function exactly: an active-set method with an exact line search.

The active set is the rows held on a kink and the columns held at a bound or, with an L1 penalty, at zero. A round
solves the optimality system on it, goes there, and stops early where the derivative along the step turns positive:
kinks on the way are passed as long as that lowers the objective, and the one where it stops joins the active set. At
the minimum over the active set, what has a multiplier of the wrong sign or size is let go. Every round is one small
linear system and one pass over the rows; from the active set of a nearby problem one round often suffices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.pieces import AT_LOWER, AT_UPPER, AT_ZERO, ActiveSet, KinkSystem, Pieces, box_unit

__all__ = ["Ended", "descend"]


@dataclass(eq=False)
class Ended:
    """A solution: weights, decisions, dual variables, the active set, whether it is optimal, the duality gap."""

    w: np.ndarray
    Z: np.ndarray
    alpha: np.ndarray
    active: ActiveSet
    optimal: bool
    rounds: int
    gap: float


PATIENCE = 40
"""Rounds after which the objective must have fallen."""


def descend(
    problem: Pieces,
    w: np.ndarray | None = None,
    active: ActiveSet | None = None,
    *,
    max_rounds: int | None = None,
) -> Ended:
    """Minimise ``problem`` from ``w`` and, if given, a guess of the active set.

    Parameters
    ----------
    problem : Pieces
    w : ndarray, shape (D,), optional
        Where to start; clipped to the bounds. By default from a least-squares fit.
    active : ActiveSet, optional
        Of a nearby problem: the start is then the minimum on it.
    max_rounds : int, optional
        200 and ten for every column by default.
    """
    w = least_squares(problem) if w is None else w
    max_rounds = 200 + 10 * len(w) if max_rounds is None else max_rounds
    ended = _rounds(problem, w, active, max_rounds)
    if ended.optimal or ended.rounds >= max_rounds:
        return ended
    # Ties between kinks make rounds without progress: break them, then put the kinks back.
    spread = 1e-7 * max(float(np.abs(problem.kinks).max(initial=0.0)), 1e-300)
    shifts = np.random.default_rng(0).uniform(-spread, spread, len(problem.c))[:, None]
    shaken = _rounds(replace(problem, kinks=problem.kinks + shifts), ended.w, None, max_rounds)
    final = _rounds(problem, shaken.w, shaken.active, max_rounds)
    return replace(final, rounds=ended.rounds + shaken.rounds + final.rounds)


def _rounds(problem: Pieces, w: np.ndarray, active: ActiveSet | None, max_rounds: int) -> Ended:
    """The method; it ends early when it makes no progress."""
    state = _State(problem, w) if active is None else _State.settled(problem, w, active)
    optimal, careful, rounds, before = False, False, 0, float(np.finfo(float).max)
    while rounds < max_rounds:
        look_at_clock()
        rounds += 1
        # 1. The way to the minimum over the active set.
        state.aim()
        if state.moves():
            # 2. As far along it as the objective falls.
            careful = state.search() <= 0.0 and careful
        else:
            # 3. There: let go what wants to leave, or end.
            state.arrive()
            if not state.release(careful):
                optimal = True
                break
            careful = True
        if rounds % PATIENCE == 0:
            value = problem.value(state.w, state.Z)
            if not value < before - 1e-13 * abs(before):
                break
            before = value
    return state.ended(optimal, rounds)


def least_squares(p: Pieces) -> np.ndarray:
    """Weights that put the decisions near the middle of each row's kinks, with a little shrinkage."""
    rows = p.c > 0
    X, middle = p.X.take(np.flatnonzero(rows)), p.kinks[rows].mean(axis=1)
    n, D = X.n_rows, X.n_columns
    rhs = X.back(middle)
    if 2 * n + 100 < D:  # too wide for a dense system: one step of steepest descent
        Xg = X.times(rhs)
        return rhs * float(rhs @ rhs) / max(float(Xg @ Xg), 1e-300)
    H = X.gram()
    size = np.maximum(H.diagonal(), 1e-3 * max(H.diagonal().max(initial=0.0), 1e-300))
    return np.linalg.solve(H + 1e-3 * np.diag(size), rhs)


class _State:
    """Weights, decisions and active set while they move."""

    def __init__(self, p: Pieces, w: np.ndarray) -> None:
        self.p = p
        self.w = np.clip(w, p.lower, p.upper)
        fixed = p.lower == p.upper
        self.held = np.where(fixed, AT_LOWER, 0)
        self.held[(p.l1 > 0) & (self.w == 0) & ~fixed] = AT_ZERO
        self.sign = np.where(self.w >= 0, 1.0, -1.0)
        self.takes_part = p.c > 0
        self.Z = p.X.times(self.w)
        self.on = np.zeros(len(p.c), dtype=bool)
        self.level = p.levels(self.Z)

    @classmethod
    def settled(cls, p: Pieces, w: np.ndarray, active: ActiveSet) -> _State:
        """At the minimum on a guessed active set, as far as the bounds allow it."""
        self = cls(p, w)
        held = np.where(p.lower == p.upper, AT_LOWER, active.held)
        held[(held == AT_LOWER) & np.isinf(p.lower)] = 0
        held[(held == AT_UPPER) & np.isinf(p.upper)] = 0
        held[(held == AT_ZERO) & ((p.l1 == 0) | (p.lower > 0) | (p.upper < 0))] = 0
        self.held, self.on, self.level = held, active.on & self.takes_part, active.level.copy()
        for _ in range(4):
            self._hold()
            self.Z = p.X.times(self.w)
            self.aim()
            if not self.flat:
                self.w = self.w + self.step
            out = ((self.w > p.upper) | (self.w < p.lower)) & (self.held == 0)
            if not out.any():
                break
            self.held = np.where(out & (self.w > p.upper), AT_UPPER, np.where(out, AT_LOWER, self.held))
        self._hold()
        self.w = np.clip(self.w, p.lower, p.upper)
        self.sign = np.where(self.w > 0, 1.0, np.where(self.w < 0, -1.0, self.sign))
        self.Z = p.X.times(self.w)
        rows = np.flatnonzero(self.on)
        at = p.kinks[rows, self.level[rows]]
        self.on[rows[np.abs(self.Z[rows] - at) > 1e-9 * (1.0 + np.abs(at))]] = False
        # Rows that only touch a kink keep the side of the guess.
        near = 1e-9 * (1.0 + np.abs(self.Z))
        least, most = p.levels(self.Z - near), p.levels(self.Z + near)
        self.level = np.where(self.on, self.level, np.clip(self.level, least, most))
        return self

    def _hold(self) -> None:
        """Put held columns where they are held."""
        p = self.p
        self.w = np.where(self.held == AT_LOWER, p.lower, np.where(self.held == AT_UPPER, p.upper, self.w))
        self.w[self.held == AT_ZERO] = 0.0

    def aim(self) -> None:
        """The step to the minimum over the active set, or a direction of descent without curvature."""
        p = self.p
        while True:
            self.K, free = np.flatnonzero(self.on), np.flatnonzero(self.held == 0)
            alpha = np.where(self.on, 0.0, p.on_step(self.level))
            self.g = p.q * (self.w - p.centre) + p.l1 * self.sign - p.X.back(alpha)
            self.X_K = p.X.dense(self.K)
            at = p.kinks[self.K, self.level[self.K]]
            system = KinkSystem(self.X_K[:, free], p.q[free])
            dw, alpha_K, rest = system.solve(-self.g[free][:, None], (at - self.Z[self.K])[:, None])
            self.step = np.zeros(len(self.w))
            self.step[free] = dw[:, 0]
            self.alpha_K, self.flat = alpha_K[:, 0], False
            if not system.singular:
                return
            apart, push = rest[: len(self.K), 0], rest[len(self.K) :, 0]
            if len(self.K) and np.max(np.abs(apart)) > 1e-8 * (1.0 + np.abs(at).max()):
                # Rows that cannot all be on their kinks: only a guess puts them there.
                self.on[self.K[int(np.argmax(np.abs(apart)))]] = False
                self.level = np.where(self.on, self.level, p.levels(self.Z))
                continue
            size = np.abs(alpha).sum() + np.abs(alpha_K).sum() + p.l1.max(initial=0.0)
            if len(push) and np.max(np.abs(push)) > 1e-11 * size:
                self.flat = True
                self.step = np.zeros(len(self.w))
                self.step[free[~system.curved]] = -push / system.size[len(self.K) :] ** 2
            return

    def moves(self) -> bool:
        """Whether the step is more than rounding."""
        return self.flat or bool(np.max(np.abs(self.step)) > 1e-10 * (1e-6 + np.abs(self.w).max(initial=0.0)))

    def arrive(self) -> None:
        """Take the last, smallest step."""
        self.w = np.clip(self.w + self.step, self.p.lower, self.p.upper)
        self.Z = self.p.X.times(self.w)

    def release(self, careful: bool) -> bool:
        """Let go of rows and columns whose multipliers say so: the worst one, or with it those nearly as bad."""
        p, K = self.p, self.K
        low, high = p.range_of(K, self.level[K])
        alpha = np.where(self.takes_part, p.on_step(self.level), 0.0)
        alpha[K] = self.alpha_K
        unit = box_unit(alpha, p.c)[K]
        rows = np.maximum(self.alpha_K - high, low - self.alpha_K) / np.where(unit > 0, unit, 1.0)
        slope = self.g - self.X_K.T @ self.alpha_K - p.l1 * self.sign
        right = np.where(self.w < p.upper, -(slope + np.where(self.w >= 0, p.l1, -p.l1)), -np.inf)
        left = np.where(self.w > p.lower, slope + np.where(self.w > 0, p.l1, -p.l1), -np.inf)
        scale = np.abs(p.q * (self.w - p.centre)).max(initial=0.0) + np.abs(slope).max(initial=0.0) + 1e-300
        columns = np.where(self.held != 0, np.maximum(right, left), -np.inf) / scale
        worst = max(rows.max(initial=-np.inf), columns.max(initial=-np.inf))
        if worst <= 1e-10:
            return False
        bar = worst if careful else max(0.3 * worst, 1e-10)
        go = rows >= bar
        leave = columns >= bar
        if careful:  # exactly one
            go &= np.cumsum(go) == 1
            leave &= (np.cumsum(leave) == 1) & ~go.any()
        gone = K[go]
        before, after = p.steps_at(gone, self.level[gone])
        self.on[gone], self.level[gone] = False, np.where(self.alpha_K[go] > high[go], before, after)
        self.sign = np.where(leave & (self.w == 0), np.where(right > left, 1.0, -1.0), self.sign)
        self.held = np.where(leave, 0, self.held)
        return True

    def search(self) -> float:
        """Go along the step to where the derivative of the objective turns positive; returns how far."""
        p, d = self.p, self.step
        dz = p.X.times(d)
        dz[self.on] = 0.0
        slope, curvature = float(self.g @ d), float(p.q @ (d * d))
        limit = -slope / curvature if curvature > 0 else np.inf
        if not self.flat:
            limit = 1.0 if curvature > 0 else limit
        times, jumps, which, level = self._events(d, dz, limit)
        order = np.argsort(times, kind="stable")
        times, jumps, which, level = times[order], jumps[order], which[order], level[order]
        after = slope + (curvature * times if curvature > 0 else 0.0) + np.cumsum(jumps)
        stop = int(np.argmax(after >= 0)) if np.any(after >= 0) else len(times)
        if stop == len(times) and not np.isfinite(limit):
            return 0.0  # the objective is bounded: a derivative that no kink turns is rounding
        passed = slice(0, stop)
        t = float(times[stop]) if stop < len(times) else min(limit, 1e300)
        before = slope + float(jumps[:stop].sum())
        hit = stop < len(times)
        if curvature > 0 and before + curvature * t > 0:  # the derivative turns between two events
            t, hit = max(-before / curvature, 0.0), False
        n = len(p.c)
        rows = which[passed] < n
        crossed = which[passed][rows]
        np.add.at(self.level, crossed, np.where(dz[crossed] > 0, 1, -1))
        crossed = which[passed][~rows] - n
        self.sign[crossed] = np.sign(d[crossed])
        self.w = np.clip(self.w + t * d, p.lower, p.upper)
        self.Z = self.Z + t * dz
        if hit:
            i = int(which[stop])
            if i < n:
                self.on[i], self.level[i] = True, int(level[stop])
            else:
                self.held[i - n] = int(level[stop])
                self._hold()
        return t

    def _events(self, d: np.ndarray, dz: np.ndarray, limit: float) -> Iterator[np.ndarray]:
        """Where along a step kinks are met: times, jumps of the derivative, row or column, kink or place."""
        p, n = self.p, len(self.p.c)
        parts: list[tuple[np.ndarray, ...]] = []
        live = self.takes_part & ~self.on & (dz != 0)
        for k in range(p.kinks.shape[1]):
            ahead = live & np.where(dz > 0, self.level <= k, self.level > k)
            rows = np.flatnonzero(ahead)
            t = np.maximum((p.kinks[rows, k] - self.Z[rows]) / dz[rows], 0.0)
            near = t <= limit
            rows = rows[near]
            fall = p.ends[rows, k] - p.ends[rows, k + 1]
            parts.append((t[near], fall * np.abs(dz[rows]), rows, np.full(len(rows), k)))
        for place, bound in ((AT_UPPER, p.upper), (AT_LOWER, p.lower)):
            columns = np.flatnonzero((d > 0) if place == AT_UPPER else (d < 0))
            t = np.maximum((bound[columns] - self.w[columns]) / d[columns], 0.0)
            near = (t <= limit) & np.isfinite(t)
            columns = columns[near]
            parts.append((t[near], np.full(len(columns), np.inf), n + columns, np.full(len(columns), place)))
        columns = np.flatnonzero((p.l1 > 0) & (self.sign * d < 0))
        t = np.maximum(-self.w[columns] / np.where(d[columns] != 0, d[columns], 1.0), 0.0)
        near = t <= limit
        columns = columns[near]
        jump = 2.0 * p.l1[columns] * np.abs(d[columns])
        parts.append((t[near], jump, n + columns, np.full(len(columns), AT_ZERO)))
        return (np.concatenate([part[i] for part in parts]) for i in range(4))

    def ended(self, optimal: bool, rounds: int) -> Ended:
        """The solution, with every number recomputed from the weights."""
        p = self.p
        self.aim()
        low, high = p.range_of(self.K, self.level[self.K])
        alpha = np.where(self.on, 0.0, p.on_step(self.level))
        alpha[self.K] = np.clip(self.alpha_K, low, high)
        alpha[~self.takes_part] = 0.0
        active = ActiveSet(self.on.copy(), self.level.copy(), self.held.copy())
        Z = p.X.times(self.w)
        gap = p.gap(self.w, alpha, Z)
        optimal = bool(np.isfinite(gap)) and (optimal or gap <= 1e-11 * abs(p.value(self.w, Z)))
        return Ended(self.w, Z, alpha, active, optimal, rounds, gap)
