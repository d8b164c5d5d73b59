"""Newton's method for smooth training losses with an L1 part of the penalty.

A step minimises the quadratic model of the loss with the L1 norm as it is, on the weights that are not zero and those
zero ones that want to move most: by coordinate descent until the signs settle, and then exactly for these signs. Once
the signs are right this is Newton's method on the free weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.linalg import cholesky, cholesky_solve
from foldwise.problems.base import Array
from foldwise.problems.parameters import Canonical
from foldwise.problems.sparse import SparseProblem, slopes_left
from foldwise.problems.weights import LinearSolution, Weights

__all__ = ["SparseNewton"]


@dataclass(frozen=True)
class SparseNewton:
    """Newton's method on every task of a problem with an L1 norm.

    Parameters
    ----------
    tol : float
        Stop when what is left of the slopes is this small relative to the norms of their parts.
    max_iter : int
        Steps at most; tasks that need more are reported as not converged.
    sweeps : int
        Sweeps of coordinate descent in a step, at most.
    growth : int
        Zero weights that join in a step: at most twice as many as there are others, and at least this many.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"sparse", "smooth"})

    tol: float = 1e-9
    max_iter: int = 100
    sweeps: int = 50
    growth: int = 50

    def solve(self, problem: SparseProblem, theta: Array, state: Weights, workspace: Any) -> LinearSolution:
        """Minimise every task at ``theta``, starting from the weights of ``state``."""
        par = problem.parameters(theta)
        lower, upper = problem.bounds(par)
        l1, W = problem.l1(par), np.clip(state.W, lower, upper)
        mass = np.sum(par.c * problem.training_mass, axis=1)
        live, steps = np.ones(problem.n_tasks, dtype=bool), 0
        value = problem.objective(W, par)
        while True:
            look_at_clock()
            # 1. The slopes, and what holds weights at zero or at a bound.
            Z = problem.design.decisions(W)
            pull, push = problem.loss_grad(W, par, Z), problem.push(W, par)
            held, rest = slopes_left(W, pull + push, l1, lower, upper)
            size, left = problem.size(pull, push, par, held), np.linalg.norm(rest, axis=1)
            live &= left > self.tol * size
            if not live.any() or steps >= self.max_iter:
                break
            bends, step = problem.bends(Z, par), np.zeros_like(W)
            for m in np.flatnonzero(live).tolist():
                # 2. An intercept without curvature (every row on a straight piece) goes to its minimum first.
                if problem.design.intercept and self._is_flat(bends[m], rest[m], mass[m]):
                    step[m, -1] = problem.way_of_intercept(W[m], m, par)
                    continue
                # 3. The minimiser of the quadratic model on the weights that move.
                some = self._moving(W[m], held[m], rest[m])
                A = problem.some_columns(some)
                H = problem.block(A, bends[m], m, par, some)
                H.flat[:: len(some) + 1] += np.where(H.diagonal() <= 1e-12 * mass[m], 1e-8 * mass[m], 0.0)
                ends = (lower[m, some], upper[m, some])
                new = self._minimiser(H, (pull + push)[m, some], W[m, some], l1[m, some], *ends)
                step[m, some] = new - W[m, some]
            # 4. On the way there, as far as the objective falls enough.
            W, value, moved = self._search(problem, par, W, step, pull + push, l1, value, live)
            live &= moved
            steps += 1
        converged = left <= max(self.tol, 1e-9) * size
        return problem.at(W, theta, Z, converged, steps)

    def _is_flat(self, bend: Array, rest: Array, mass: float) -> bool:
        return bool(bend.sum() <= 1e-10 * mass and abs(rest[-1]) > self.tol * mass)

    def _moving(self, w: Array, held: Array, rest: Array) -> Array:
        """The weights that a step moves: those that are not zero, and the zero ones with the largest slopes."""
        some = (w != 0) & (held == 0)
        joining = np.flatnonzero((held == 0) & ~some)
        most = max(self.growth, 2 * int(some.sum()))
        if len(joining) > most:
            joining = joining[np.argsort(-np.abs(rest[joining]), kind="stable")[:most]]
        some[joining] = True
        return np.flatnonzero(some)

    def _minimiser(self, H: Array, g: Array, w: Array, l1: Array, lower: Array, upper: Array) -> Array:
        """The minimiser of ``g's + s'Hs/2 + sum l1 |w + s|`` within the bounds, ``w + s``."""
        from foldwise.solvers._coordinates import descend

        signs = np.where(w != 0, np.sign(w), -np.sign(g))
        exact = _for_signs(H, g, w, l1, signs, lower, upper)
        if exact is not None:
            return exact
        x = np.asarray(descend(H, g, w, l1, lower, upper, self.sweeps, 1e-6))
        free = np.flatnonzero((x != 0) & (x > lower) & (x < upper) | (l1 == 0) & (x > lower) & (x < upper))
        if not len(free):
            return x
        # The others stay where the sweeps left them.
        slope = g + H @ (x - w)
        part = H[np.ix_(free, free)]
        better = _for_signs(part, slope[free], x[free], l1[free], np.sign(x[free]), lower[free], upper[free])
        if better is not None:
            x[free] = better
        return x

    @staticmethod
    def _search(
        problem: SparseProblem,
        par: Canonical,
        W: Array,
        step: Array,
        g: Array,
        l1: Array,
        value: Array,
        live: Array,
    ) -> tuple[Array, Array, Array]:
        """Halve the steps of all tasks until each has fallen enough; which tasks moved."""
        length, waiting = np.ones(len(W)), live & step.any(axis=1)
        moved, best, out = waiting.copy(), value.copy(), W.copy()
        for _ in range(40):
            trial = W + length[:, None] * step
            there = problem.objective(trial, par)
            promise = np.sum(g * (trial - W) + l1 * (np.abs(trial) - np.abs(W)), axis=1)
            fine = waiting & (there <= value + 1e-4 * promise + 1e-15 * np.abs(value)) & (promise <= 0)
            out[fine], best[fine] = trial[fine], there[fine]
            waiting &= ~fine
            if not waiting.any():
                break
            length = np.where(waiting, 0.5 * length, length)
        return out, best, moved & ~waiting


def _for_signs(
    H: Array, g: Array, w: Array, l1: Array, signs: Array, lower: Array, upper: Array
) -> Array | None:
    """The minimiser for weights of these signs; None where it has others, or is out of bounds."""
    try:
        x = w - cholesky_solve(cholesky(H), g + l1 * signs)
    except np.linalg.LinAlgError:
        return None
    keeps = (x * signs > 0) | (l1 == 0)
    return np.asarray(x) if np.all(keeps & (x >= lower) & (x <= upper)) else None
