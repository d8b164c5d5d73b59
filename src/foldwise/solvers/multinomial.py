"""Newton's method for logistic regressions of several classes that are trained together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.base import Array
from foldwise.problems.multinomial import MultinomialProblem
from foldwise.problems.parameters import Canonical
from foldwise.problems.sparse import slopes_left
from foldwise.problems.weights import LinearSolution, Weights
from foldwise.solvers.sparse import SparseNewton

__all__ = ["MultinomialNewton"]


@dataclass(frozen=True)
class MultinomialNewton(SparseNewton):
    """The steps of :class:`SparseNewton` for all classes of a split together.

    Parameters
    ----------
    tol, max_iter, sweeps, growth
        As there.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"multinomial"})

    def solve(self, problem: Any, theta: Array, state: Weights, workspace: Any) -> LinearSolution:
        """Minimise every split at ``theta``, starting from the weights of ``state``."""
        par = problem.parameters(theta)
        ends, W = problem.bounds(par), state.W.copy()
        l1 = problem.l1(par)
        live, steps = np.ones(problem.n_splits, dtype=bool), 0
        value = problem.by_class(problem.objective(W, par)).sum(axis=0)
        while True:
            look_at_clock()
            # 1. The slopes, and what holds weights at zero.
            Z = problem.design.decisions(W)
            pull, push = problem.loss_grad(W, par, Z), problem.push(W, par)
            held, rest = slopes_left(W, pull + push, l1, *ends)
            size, left = problem.size(pull, push, par, held), np.linalg.norm(rest, axis=1)
            live &= np.any(problem.by_class(left > self.tol * size), axis=0)
            if not live.any() or steps >= self.max_iter:
                break
            # 2. The minimiser of the quadratic model of every split on the weights that move.
            P, step = problem.by_class(problem.probabilities(Z)), np.zeros_like(W)
            for t in np.flatnonzero(live).tolist():
                self._step(problem, par, t, P[:, t], W, pull + push, l1, held, rest, ends, step)
            # 3. On the way there, as far as the objective falls enough.
            W, value, moved = self._descend(problem, par, W, step, pull + push, l1, value, live)
            live &= moved
            steps += 1
        converged = left <= max(self.tol, 1e-9) * size
        return problem.at(W, theta, Z, converged, steps)

    def _step(
        self,
        problem: MultinomialProblem,
        par: Canonical,
        t: int,
        P: Array,
        W: Array,
        g: Array,
        l1: Array,
        held: Array,
        rest: Array,
        ends: tuple[Array, Array],
        step: Array,
    ) -> None:
        """Set the step of the weights of a split."""
        tasks = problem.tasks_of(t)
        some = [
            self._moving(W[m], held[m], rest[m]) if l1[m].any() else np.flatnonzero(held[m] == 0)
            for m in tasks
        ]
        cuts = np.cumsum([len(columns) for columns in some])[:-1]

        def end_to_end(values: Array) -> Array:
            return np.concatenate([values[m, columns] for m, columns in zip(tasks, some, strict=True)])

        if l1[tasks].any():
            H = problem.system(t, par, P, some)
            H.flat[:: len(H) + 1] += 1e-12 * max(float(np.trace(H)) / max(len(H), 1), 1e-300)
            w = end_to_end(W)
            new = (
                self._minimiser(H, end_to_end(g), w, end_to_end(l1), end_to_end(ends[0]), end_to_end(ends[1]))
                - w
            )
        else:
            new = -problem.solver(t, par, P, some)(end_to_end(g)[:, None])[:, 0]
        for m, columns, part in zip(tasks, some, np.split(new, cuts), strict=True):
            step[m, columns] = part

    @staticmethod
    def _descend(
        problem: MultinomialProblem,
        par: Canonical,
        W: Array,
        step: Array,
        g: Array,
        l1: Array,
        value: Array,
        live: Array,
    ) -> tuple[Array, Array, Array]:
        """Halve the steps of all splits until each has fallen enough; which of them moved.

        A short step that gains no more than rounding leads nowhere: what is left of the slopes there is rounding too.
        """
        length, waiting = np.ones(problem.n_splits), live.copy()
        best, out = value.copy(), W.copy()
        while length.min() > SHORT:
            trial = W + np.tile(length, problem.n_targets)[:, None] * step
            there = problem.by_class(problem.objective(trial, par)).sum(axis=0)
            promise = np.sum(g * (trial - W) + l1 * (np.abs(trial) - np.abs(W)), axis=1)
            promise = problem.by_class(promise).sum(axis=0)
            fine = waiting & (there <= value + 1e-4 * promise + 1e-15 * np.abs(value)) & (promise <= 0)
            out = np.where(np.tile(fine, problem.n_targets)[:, None], trial, out)
            best[fine] = there[fine]
            waiting &= ~fine
            if not waiting.any():
                break
            length = np.where(waiting, 0.5 * length, length)
        idle = (length < 1.0) & (value - best <= 1e-13 * np.abs(value))
        return out, best, live & ~waiting & ~idle


SHORT = 1e-5
"""Length of a step below which its split is given up."""
