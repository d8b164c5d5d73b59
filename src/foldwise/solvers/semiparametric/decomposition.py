"""Algorithm 1 of lee2009: working sets by violation of the optimality conditions, gradients kept up to date."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from foldwise.result import Status
from foldwise.solvers.semiparametric.columns import ColumnCache
from foldwise.solvers.semiparametric.dual import Dual, rebalanced
from foldwise.solvers.semiparametric.subproblem import Subproblem

__all__ = ["DualPoint", "Limits", "Progress", "decompose"]

LARGEST = 4000
"""Rows that a working set never exceeds, whatever the number of free ones."""

PATIENCE = 30
"""Outer steps without a lower violation after which the framework gives up."""


@dataclass(frozen=True)
class Progress:
    """One step of a solver: its number, the time, violations of (4a) to (4c) and of (4d), coefficients of the basis."""

    iteration: int
    elapsed: float
    dual: float
    primal: float
    beta: tuple[float, ...]


@dataclass(eq=False)
class Limits:
    """Limits of a solve, and who wants to know how it goes."""

    max_time: float | None = None
    callback: Callable[[Progress], object] | None = None
    keep: bool = False
    trace: list[Progress] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    stopped: bool = False

    def late(self) -> bool:
        """Whether the time is used up or the callback asked to stop."""
        return self.stopped or (
            self.max_time is not None and time.perf_counter() - self.began > self.max_time
        )

    def note(self, iteration: int, dual: float, primal: float, beta: np.ndarray) -> None:
        """Record a step."""
        if not self.keep and self.callback is None:
            return
        record = Progress(iteration, time.perf_counter() - self.began, dual, primal, tuple(beta.tolist()))
        if self.keep:
            self.trace.append(record)
        if self.callback is not None:
            self.stopped |= self.callback(record) is True

    @property
    def status(self) -> Status:
        """The ending, once :meth:`late` is true."""
        return Status.STOPPED if self.stopped else Status.TIME_LIMIT


@dataclass(eq=False)
class DualPoint:
    """Coefficients, multipliers of the orthogonal basis, and the kernel part of the decisions."""

    delta: np.ndarray
    eta: np.ndarray
    f: np.ndarray

    def violation(self, dual: Dual) -> tuple[np.ndarray, float]:
        """Violations by row, and of the equalities."""
        return dual.violations(self.delta, self.f + self.eta @ dual.basis.Q), dual.unbalance(self.delta)


def decompose(
    dual: Dual,
    point: DualPoint,
    subsolver: Callable[[Subproblem, float], None],
    cache: ColumnCache,
    watch: Limits,
    *,
    tol: float,
    max_iter: int,
    size: int = 500,
    fresh: int = 100,
    grow: bool = False,
    share: float = 0.0,
) -> tuple[Status, int]:
    """Improve ``point`` in place until no violation is above ``tol``; the ending and the number of outer steps.

    Parameters
    ----------
    subsolver : callable
        Gets a :class:`Subproblem` and its tolerance, half of ``tol`` or more.
    size, fresh : int
        Rows in a working set (``n_B``) and how many of them may be new (``n_c``); the latter falls as fewer enter.
    grow : bool
        Whether the working set grows so that all free rows have a place in it.
    share : float
        Part of the largest violation that a subproblem may leave, where that is more than half of ``tol``.
    """
    n = dual.source.n
    size = min(max(size, 2 * dual.basis.rank + 2), n)
    fresh = max(1, min(fresh, size - 1)) if size < n else n
    working = np.zeros(0, dtype=np.int64)
    lowest, waited = np.inf, 0
    for step in range(max_iter + 1):
        # 4. Convergence check, with the gradient of the whole problem.
        wrong, primal = point.violation(dual)
        top = float(wrong.max(initial=0.0))
        watch.note(step, top, primal, dual.basis.beta(point.eta))
        if max(top, primal) <= tol:
            _settle(dual, point, cache, tol)
            return Status.CONVERGED, step
        if watch.late():
            return watch.status, step
        waited = 0 if max(top, primal) < 0.999 * lowest else waited + 1
        lowest = min(lowest, max(top, primal))
        if waited > PATIENCE:
            return Status.STALLED, step
        if step == max_iter:
            break
        # 5. Working set: the worst rows first, then those of the last set, off their bounds first.
        free = (point.delta != 0) & (np.abs(point.delta) < dual.C)
        if grow:
            size = min(n, LARGEST, max(size, int(free.sum()) + fresh))
        chosen = _working_set(wrong, free, point.delta, working, size, fresh, 0.5 * tol, grow)
        entered = len(np.setdiff1d(chosen, working, assume_unique=True))
        if step and not grow:
            fresh = max(min(fresh, entered), min(10, size))
        working = chosen
        # 2. Subproblem.
        sub = Subproblem(
            K=_block(dual, cache, working, grow),
            Q=np.ascontiguousarray(dual.basis.Q[:, working]),
            e=dual.y[working] - point.f[working],
            delta=point.delta[working],
            C=dual.C[working],
            epsilon=dual.epsilon[working],
            total=dual.basis.Q @ point.delta,
            eta=point.eta.copy(),
        )
        subsolver(sub, max(0.5 * tol, share * top))
        # 3. Gradient update, by the columns whose coefficients changed.
        change = sub.delta - point.delta[working]
        moved = np.flatnonzero(change)
        cache.add_to(point.f, working[moved], change[moved])
        point.delta[working] = sub.delta
        point.eta = sub.eta
    return Status.MAX_ITER, max_iter


def _block(dual: Dual, cache: ColumnCache, working: np.ndarray, grow: bool) -> np.ndarray:
    """The working set's part of the kernel matrix: from the cached columns, which its update needs anyway."""
    if grow or cache.slots < 2 * len(working):
        return np.ascontiguousarray(dual.source.block(working, working))
    return cache.block(working)


def _settle(dual: Dual, point: DualPoint, cache: ColumnCache, tol: float) -> None:
    """Meet the equalities to rounding, if the free rows can without a violation above ``tol``."""
    Q = dual.basis.Q
    delta = rebalanced(point.delta.copy(), dual.C, Q, np.zeros(len(Q)))
    moved = np.flatnonzero(delta != point.delta)
    if len(moved):
        f = point.f.copy()
        cache.add_to(f, moved, (delta - point.delta)[moved])
        settled = DualPoint(delta, point.eta, f)
        wrong, primal = settled.violation(dual)
        if max(float(wrong.max(initial=0.0)), primal) <= tol:
            point.delta, point.f = delta, f


def _working_set(
    wrong: np.ndarray,
    free: np.ndarray,
    delta: np.ndarray,
    last: np.ndarray,
    size: int,
    fresh: int,
    small: float,
    all_free: bool,
) -> np.ndarray:
    """Row numbers of the next working set, in rising order."""
    n = len(wrong)
    if size >= n:
        return np.arange(n)
    taken = np.zeros(n, dtype=bool)
    # Problem (6): the largest violations.
    worst = np.argpartition(wrong, n - fresh)[n - fresh :]
    taken[worst[wrong[worst] > small]] = True
    # Then by priority: off the bounds, at zero, at a bound; rows of the last set only, or all that are free.
    older = np.zeros(n, dtype=bool)
    older[last] = True
    groups = [free if all_free else free & older, older & (delta == 0), older & (delta != 0) & ~free]
    for group in groups:
        room = size - int(taken.sum())
        rows = np.flatnonzero(group & ~taken)
        if len(rows) > room:
            rows = rows[np.argsort(-wrong[rows], kind="stable")[:room]]
        taken[rows] = True
    # The first set, or one that shrank: fill up with the next violations.
    room = size - int(taken.sum())
    if room > 0:
        rest = np.flatnonzero(~taken)
        taken[rest[np.argsort(-wrong[rest], kind="stable")[:room]]] = True
    return np.flatnonzero(taken)
