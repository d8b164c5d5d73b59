"""FISTA with backtracking (thesis 4.1), on all tasks of a problem at once.

The loss is the smooth part, the quadratic penalty the part with a proximal map:
``prox(v) = v / (1 + lam / M)``, elementwise; a penalised intercept's rank-one term joins the smooth part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.base import Array
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import Canonical
from foldwise.problems.weights import LinearSolution, Weights

__all__ = ["Fista"]


@dataclass(frozen=True)
class Fista:
    """Accelerated proximal gradient with backtracking.

    Parameters
    ----------
    tol : float
        Relative KKT residual at which a task is finished.
    max_iter : int
    growth : float
        ``zeta > 1`` of the backtracking rule: ``M`` grows by this factor until the quadratic model majorises.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"weights", "smooth"})

    tol: float = 1e-9
    max_iter: int = 20_000
    growth: float = 2.0

    def solve(self, problem: LinearProblem, theta: Array, state: Weights, workspace: Any) -> LinearSolution:
        """Minimise every task at ``theta``, starting from the weights of ``state``."""
        par = problem.parameters(theta)
        diagonal = problem.diagonal(par)
        x, y, tau = state.W.copy(), state.W.copy(), 1.0
        f_y, g_y = _smooth(problem, y, par, diagonal)
        M = np.maximum(np.linalg.norm(g_y, axis=1), 1.0)
        steps, done = 0, self._finished(problem, par, g_y, diagonal * y)
        while steps < self.max_iter and not done.all():
            look_at_clock()
            # 1. Backtracking: the smallest M on the list for which the model at y lies above f at the prox point.
            while True:
                p = (y - g_y / M[:, None]) / (1.0 + diagonal / M[:, None])
                d = p - y
                f_p, g_p = _smooth(problem, p, par, diagonal)
                model = f_y + np.sum(g_y * d, axis=1) + 0.5 * M * np.sum(d * d, axis=1)
                short = (f_p > model + 1e-12 * np.abs(model)) & ~done
                if not short.any():
                    break
                M = np.where(short, self.growth * M, M)
            # 2. Extrapolation; restart where the momentum points uphill, which the thesis's form lacks. Finished
            # tasks stay where they are: without backtracking a further step could leave the solution.
            p = np.where(done[:, None], x, p)
            done |= self._finished(problem, par, g_p, diagonal * p)
            tau_next = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * tau * tau))
            uphill = np.sum((y - p) * (p - x), axis=1) > 0
            momentum = np.where(uphill, 0.0, (tau - 1.0) / tau_next)
            y = p + momentum[:, None] * (p - x)
            x, tau = p, (1.0 if uphill.any() else tau_next)
            f_y, g_y = _smooth(problem, y, par, diagonal)
            steps += 1
        return problem.at(x, theta, converged=done, steps=steps)

    def _finished(self, problem: LinearProblem, par: Canonical, pull: Array, push: Array) -> Array:
        size = problem.gradient_size(pull, push, par, np.arange(problem.n_tasks))
        return np.linalg.norm(pull + push, axis=1) <= self.tol * size


def _smooth(problem: LinearProblem, W: Array, par: Canonical, diagonal: Array) -> tuple[Array, Array]:
    """Value and gradient of everything but the diagonal penalty."""
    Z = problem.design.decisions(W)
    value, grad = problem.loss_value(W, par, Z), problem.loss_grad(W, par, Z)
    rank_one = problem.penalty.times(diagonal, W, np.arange(problem.n_tasks)) - diagonal * W
    return value + 0.5 * np.sum(rank_one * W, axis=1), grad + rank_one
