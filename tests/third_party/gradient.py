"""A solver of training problems: gradient descent."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foldwise.solvers.registry import register


@dataclass(frozen=True)
class Gradient:
    """Gradient descent with steps as long as the last two gradients suggest (Barzilai and Borwein)."""

    tol: float = 1e-9
    max_iter: int = 20_000

    needs: ClassVar[frozenset[str]] = frozenset({"weights", "smooth"})

    def solve(self, problem, theta, state, workspace):
        par = problem.parameters(theta)
        W, tasks = state.W.copy(), np.arange(problem.n_tasks)
        moved, turned, value = np.ones_like(W), 1e3 * np.ones_like(W), np.full(len(W), np.inf)
        for steps in range(self.max_iter + 1):
            pull, push = problem.loss_grad(W, par), problem.push(W, par)
            g = pull + push
            done = np.linalg.norm(g, axis=1) <= self.tol * problem.gradient_size(pull, push, par, tasks)
            if done.all() or steps == self.max_iter:
                return problem.at(W, theta, converged=done, steps=steps)
            if steps % 10 == 0:  # the objective may rise in single steps, not in ten
                now = problem.objective(W, par)
                turned *= np.where(now > value, 2.0, 1.0)[:, None]
                value = now
            length = np.sum(moved * moved, axis=1) / np.maximum(np.sum(moved * turned, axis=1), 1e-300)
            step = np.where(done, 0.0, length)[:, None] * -g
            new = problem.grad(W + step, par)
            W = W + step
            moved, turned = np.where(done[:, None], moved, step), np.where(done[:, None], turned, new - g)


register("gradient", Gradient)
