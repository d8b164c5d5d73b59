"""Exact solves on the free rows: the subproblem solver for a working set."""

from __future__ import annotations

import numpy as np

from foldwise.linalg import Bordered, semidefinite_factor
from foldwise.solvers.active_set import reach
from foldwise.solvers.semiparametric.dual import violations
from foldwise.solvers.semiparametric.first_order import first_order
from foldwise.solvers.semiparametric.interior_point import interior_point
from foldwise.solvers.semiparametric.subproblem import Subproblem

__all__ = ["active_set"]

MANY = 20
"""Rows on the wrong side above which a few steps of PDSG sort out the sides first."""

ROUGH = 4000
"""How many steps these are at most."""

SINGLE = 20
"""Steps to the first bound, one row held after each, that are taken before the interior point method is called."""


def active_set(sub: Subproblem, tol: float, max_rounds: int = 50) -> None:
    """Solve a subproblem in place.

    Every round 1. goes to the minimum over the free rows, those that leave the box held on its sides; 2. lets go the
    held rows whose decisions are on the wrong side. Where rows want to move and none can, as when too few are free to
    fix the multipliers, or where the free rows meet bound after bound, an interior point method solves the subproblem.
    """
    wrong = sub.violations()
    top = float(wrong.max(initial=0.0))
    if np.sum(wrong > max(tol, 0.1 * top)) > MANY:
        first_order("pdsg", sub, max(tol, 0.02 * top), max_steps=ROUGH)
    side = np.sign(sub.delta)
    free = (side != 0) & (np.abs(sub.delta) < sub.C)
    for _ in range(max_rounds):
        gained = _to_minimum(sub, free, side)
        wrong = sub.violations()
        loose = ~free & (wrong > tol)
        if not loose.any() and wrong.max(initial=0.0) <= tol and not _unbalanced(sub):
            return
        if not gained or not loose.any():
            break
        zero = loose & (sub.delta == 0)
        side[zero] = np.sign(sub.e - sub.eta @ sub.Q)[zero]
        free |= loose
    _by_interior_point(sub, tol)


def _to_minimum(sub: Subproblem, free: np.ndarray, side: np.ndarray) -> bool:
    """Go to the minimum over the free rows within the box; whether that gained anything, or there was nothing to do."""
    gained = not free.any()
    single = 0
    infeasible = _unbalanced(sub)
    while free.any():
        rows = np.flatnonzero(free)
        H = sub.K[np.ix_(rows, rows)]
        s, C = side[rows], sub.C[rows]
        pull = sub.e[rows] - s * sub.epsilon[rows]
        # 1. Everybody who leaves the box is held where they left it, until nobody does.
        d = np.zeros(len(rows))
        held = np.zeros(len(rows), dtype=bool)
        first: tuple[np.ndarray, np.ndarray] | None = None
        while not held.all():
            kept = ~held
            step, eta, met = _solve(
                H[np.ix_(kept, kept)],
                sub.Q[:, rows[kept]],
                pull[kept] - H[np.ix_(kept, held)] @ d[held],
                -sub.total - sub.Q[:, rows[held]] @ d[held],
                sub.eta,
            )
            d[kept] = step
            first = (step, eta) if first is None else first
            size = s * (sub.delta[rows] + d)
            out = kept & ((size < 0) | (size > C))
            if not met or not out.any():
                break
            d[out] = s[out] * np.where(size[out] < 0, 0.0, C[out]) - sub.delta[rows[out]]
            held |= out
        lower = float(d @ pull) - 0.5 * float(d @ (H @ d))
        if not held.all() and met and (infeasible or lower > 0 or not held.any()):
            sub.move(rows, _placed(sub.delta[rows] + d, s, C, held))
            sub.eta = eta
            free[rows[held]] = False
            return gained or lower > 0 or infeasible
        single += 1
        if single > SINGLE:
            return False
        # 2. That did not pay: only as far as the first bound, and its row is held.
        assert first is not None
        step, sub.eta = first
        push = s * step
        t, hit = reach(s * sub.delta[rows], push, C)
        d = np.where(hit, s * np.where(push > 0, C, 0.0) - sub.delta[rows], t * step)
        gained |= t > 0
        sub.move(rows, _placed(sub.delta[rows] + d, s, C, hit))
        if t >= 1.0:
            return True
        free[rows[hit]] = False
    return gained


def _unbalanced(sub: Subproblem) -> bool:
    """Whether the equalities are off by more than rounding."""
    return float(np.abs(sub.total).max(initial=0.0)) > 1e-9 * float(sub.C.max(initial=0.0))


def _placed(value: np.ndarray, side: np.ndarray, C: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Held rows exactly on their bounds."""
    return np.where(held, np.where(np.abs(value) > 0.5 * C, side * C, 0.0), value)


def _solve(
    H: np.ndarray, Q: np.ndarray, pull: np.ndarray, goal: np.ndarray, eta: np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool]:
    """``d, eta`` with ``H d + Q'eta = pull`` and ``Q d = goal``; whether the latter could be met. ``H`` is overwritten.

    Multipliers that the rows leave open stay as they are.
    """
    d, change = Bordered.of(H, Q.T).solve(pull - eta @ Q, goal)
    if not len(Q):
        return d, eta, True
    scale = np.abs(goal).max() + np.abs(Q).max() * np.abs(d).max()
    return d, eta - change, bool(np.abs(Q @ d - goal).max() <= 1e-8 * scale)


def _by_interior_point(sub: Subproblem, tol: float) -> None:
    """The subproblem as a whole, by the interior point method on a full factor of its kernel matrix."""
    y = sub.e + sub.K @ sub.delta

    def accept(delta: np.ndarray, eta: np.ndarray) -> bool:
        h = sub.K @ delta + eta @ sub.Q
        return float(violations(delta, y - h, sub.C, sub.epsilon).max()) <= tol

    goal = sub.Q @ sub.delta - sub.total
    end = interior_point(semidefinite_factor(sub.K), sub.Q, y, sub.C, sub.epsilon, accept, tol=tol, goal=goal)
    sub.move(np.arange(len(y)), end.delta)
    sub.eta = end.eta
