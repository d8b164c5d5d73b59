"""Projected Newton for smooth training losses with bounds on the weights.

A step solves the Newton system of the weights that no bound holds and follows it, cut off at the bounds, until the
objective has fallen enough. Once the right weights are held this is Newton's method on the others. Cut off, a Newton
step may lead uphill; then the quadratic model is minimised within the bounds, and the way there leads downhill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.linalg import cholesky, cholesky_solve
from foldwise.problems.base import Array
from foldwise.problems.boxed import BoxedProblem, held_columns
from foldwise.problems.parameters import Canonical
from foldwise.problems.weights import LinearSolution, Weights

__all__ = ["ProjectedNewton"]


@dataclass(frozen=True)
class ProjectedNewton:
    """Projected Newton on every task of a problem with bounds.

    Parameters
    ----------
    tol : float
        Stop when the projected gradient is this small relative to the norms of its two parts, loss and penalty.
    max_iter : int
        Steps at most; tasks that need more are reported as not converged.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"bounds", "smooth"})

    tol: float = 1e-9
    max_iter: int = 100

    def solve(self, problem: BoxedProblem, theta: Array, state: Weights, workspace: Any) -> LinearSolution:
        """Minimise every task at ``theta``, starting from the weights of ``state``."""
        par = problem.parameters(theta)
        lower, upper = problem.bounds(par)
        W = np.clip(state.W, lower, upper)
        tasks = np.arange(problem.n_tasks)
        live, steps = np.ones(problem.n_tasks, dtype=bool), 0
        value = problem.objective(W, par)
        while True:
            look_at_clock()
            # 1. Gradients, and which weights they hold at a bound.
            pull = problem.loss_grad(W, par)
            push = problem.push(W, par)
            g = pull + push
            held = held_columns(W, g, lower, upper) != 0
            rest = np.linalg.norm(np.where(held, 0.0, g), axis=1)
            live &= rest > self.tol * problem.gradient_size(pull, push, par, tasks)
            if not live.any() or steps >= self.max_iter:
                break
            # 2. An intercept without curvature (every row on a straight piece) goes to its minimum first.
            H = problem.hess(W, par)
            mass = np.sum(par.c * problem.training_mass, axis=1)
            flat = live & (H[:, -1, -1] <= 1e-10 * mass) & (np.abs(g[:, -1]) > self.tol * mass)
            if problem.design.intercept and flat.any():
                for m in np.flatnonzero(flat).tolist():
                    W[m, -1] += problem.way_of_intercept(W[m], m, par)
                value, steps = problem.objective(W, par), steps + 1
                continue
            # 3. Newton steps of the free weights.
            step = np.zeros_like(W)
            for m in np.flatnonzero(live).tolist():
                free = np.flatnonzero(~held[m])
                H[m].flat[:: len(g[m]) + 1] += np.where(H[m].diagonal() <= 1e-10 * mass[m], mass[m], 0.0)
                step[m, free] = _newton(H[m], g[m], free)
            # 4. Along them, cut off at the bounds, until the objective falls enough.
            start, before = W, value
            W, value, moved = self._search(problem, par, start, step, g, before, (lower, upper), live)
            # 5. Where that leads nowhere, along the way to the minimiser of the quadratic model within the bounds.
            stuck = live & ~moved
            for m in np.flatnonzero(stuck).tolist():
                step[m] = _within(H[m], g[m], held[m], lower[m] - start[m], upper[m] - start[m])
            if stuck.any():
                W, value, again = self._search(problem, par, W, step, g, value, (lower, upper), stuck)
                moved |= again
            live &= moved
            steps += 1
        converged = rest <= max(self.tol, 1e-9) * problem.gradient_size(pull, push, par, tasks)
        pins = problem.centre(W, problem.design.decisions(W), par, np.flatnonzero(converged))
        return problem.at(W, theta, None, converged, steps, pins)

    @staticmethod
    def _search(
        problem: BoxedProblem,
        par: Canonical,
        W: Array,
        step: Array,
        g: Array,
        value: Array,
        bounds: tuple[Array, Array],
        live: Array,
    ) -> tuple[Array, Array, Array]:
        """Halve the steps of all tasks until each has fallen enough; which tasks moved."""
        length, waiting = np.ones(len(W)), live.copy()
        best, out = value.copy(), W.copy()
        for _ in range(40):
            trial = np.clip(W + length[:, None] * step, *bounds)
            there = problem.objective(trial, par)
            promise = np.sum(g * (trial - W), axis=1)
            fine = waiting & (there <= value + 1e-4 * promise + 1e-15 * np.abs(value)) & (promise <= 0)
            out[fine], best[fine] = trial[fine], there[fine]
            waiting &= ~fine
            if not waiting.any():
                break
            length = np.where(waiting, 0.5 * length, length)
        return out, best, live & ~waiting


def _newton(H: Array, slope: Array, free: Array) -> Array:
    """The Newton step of the free entries alone."""
    return -cholesky_solve(cholesky(H[np.ix_(free, free)]), slope[free])


def _within(H: Array, g: Array, held: Array, lower: Array, upper: Array) -> Array:
    """The minimiser of ``g's + s'Hs/2`` with ``lower <= s <= upper``, from zero and the entries held there.

    An active-set method: to the minimiser of the free entries, or as far as the first bound, which then holds its
    entry; when no bound is in the way, the entry that gains most is let go.
    """
    s, held = np.zeros_like(g), held.copy()
    for _ in range(20 * len(g)):
        free, slope = np.flatnonzero(~held), g + H @ s
        way = _newton(H, slope, free) if len(free) else np.zeros(0)
        ends = np.where(way > 0, upper[free], lower[free])
        shares = np.divide(ends - s[free], way, out=np.full(len(free), np.inf), where=way != 0)
        if shares.min(initial=np.inf) < 1.0:
            first = int(np.argmin(shares))
            s[free] += shares[first] * way
            s[free[first]], held[free[first]] = ends[first], True
            continue
        s[free] += way
        slope = g + H @ s
        gain = np.where(held, np.where(s <= lower, -slope, slope), -np.inf)
        gain[held & (lower == upper)] = -np.inf
        best = int(np.argmax(gain))
        if gain[best] <= 1e-12 * np.abs(g).max():
            break
        held[best] = False
    return s
