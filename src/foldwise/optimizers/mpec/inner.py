"""Exact training of the machines of a program with complementarity, primal and dual."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from foldwise.optimizers.mpec.formulation import Choice, Description, Solution, Task

__all__ = ["Evaluator"]


class Evaluator:
    """Trains every task at given hyper-parameters and values the criterion: the true objective.

    Remembers the best choice seen.
    """

    def __init__(self, description: Description) -> None:
        self.description = description
        self.n_evaluations = 0
        self.best: tuple[float, Choice] | None = None

    def __call__(self, choice: Choice) -> tuple[float, list[Solution]]:
        """The true objective and the machines."""
        choice = self.description.clip(choice)
        solutions = [train(self.description, task, choice) for task in self.description.tasks]
        value = self.value(solutions)
        self.n_evaluations += 1
        if self.best is None or value < self.best[0]:
            self.best = (value, choice)
        return value, solutions

    def value(self, solutions: Sequence[Solution]) -> float:
        """The criterion at these machines."""
        pairs = zip(self.description.tasks, solutions, strict=True)
        return sum(self.description.criterion_value(task, task.X_val @ s.w + s.b) for task, s in pairs)


def train(description: Description, task: Task, choice: Choice) -> Solution:
    """One training problem as a quadratic program in ``(w, b, excess)``."""
    import piqp

    D, (n, d) = description, task.X.shape
    assert task.weight is not None and D.curvature is not None and D.pull is not None
    k = 1 if D.intercept else 0
    N = d + k + n
    P = sp.diags(np.concatenate([D.curvature, np.zeros(k + n)]), format="csc")
    c = np.concatenate([-D.pull, np.zeros(k), choice.C * task.weight])
    low, up = choice.sides(d)
    x_l = np.concatenate([low, np.full(k, -np.inf), np.zeros(n)])
    x_u = np.concatenate([up, np.full(k + n, np.inf)])
    eye = sp.identity(n)
    if D.loss == "hinge":
        Z = task.y[:, None] * np.hstack([task.X, np.ones((n, k))])
        G = sp.hstack([Z, eye], format="csc")
        h_l, h_u = np.ones(n), np.full(n, np.inf)
    else:
        Z = np.hstack([task.X, np.ones((n, k))])
        G = sp.vstack([sp.hstack([Z, -eye]), sp.hstack([Z, eye])], format="csc")
        h_l = np.concatenate([np.full(n, -np.inf), task.y - choice.epsilon])
        h_u = np.concatenate([task.y + choice.epsilon, np.full(n, np.inf)])
    solver = piqp.SparseSolver()
    solver.settings.eps_abs = 1e-10
    solver.settings.eps_rel = 1e-11
    solver.setup(P, c, sp.csc_matrix((0, N)), np.zeros(0), G, h_l, h_u, x_l, x_u)
    solver.solve()
    r = solver.result
    w = np.clip(r.x[:d], low, up)
    b = float(r.x[d]) if k else 0.0
    cap = choice.C * task.weight
    if D.loss == "hinge":
        return Solution(w, b, np.clip(r.z_l, 0.0, cap))
    return Solution(w, b, np.clip(r.z_u[:n], 0.0, cap), np.clip(r.z_l[n:], 0.0, cap))
