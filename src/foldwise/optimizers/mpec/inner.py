"""Exact training of the machines of a program with complementarity, primal and dual."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foldwise.design import DenseDesign
from foldwise.optimizers.mpec.formulation import Choice, Description, Solution, Task
from foldwise.problems.dual import decision_limits
from foldwise.problems.pieces import ActiveSet, Pieces
from foldwise.solvers.qp import ExactQP

__all__ = ["Evaluator", "pieces"]

EDGE = 1e-9
"""Distance of a multiplier from an end of its range, in units of it, below which it is there."""


class Evaluator:
    """Trains every task at given hyper-parameters and values the criterion: the true objective.

    Remembers the best admissible choice seen, and the active sets of the last one, from which training starts.
    """

    def __init__(self, description: Description) -> None:
        self.description = description
        self.n_evaluations = 0
        self.best: tuple[float, Choice] | None = None
        self._active: list[ActiveSet | None] = [None] * len(description.tasks)
        self._w: list[np.ndarray | None] = [None] * len(description.tasks)

    def __call__(self, choice: Choice) -> tuple[float, list[Solution]]:
        """The true objective and the machines."""
        choice = self.description.clip(choice)
        solutions = [self._train(t, choice) for t in range(len(self.description.tasks))]
        value = self.value(solutions)
        self.n_evaluations += 1
        if self.description.admits(choice) and (self.best is None or value < self.best[0]):
            self.best = (value, choice)
        return value, solutions

    def narrowed(self, choice: Choice) -> Choice:
        """The choice with boxes shut, one after the other, until at most ``n_max`` are open.

        The next one is that of the feature with the smallest weights over all tasks: recursive feature elimination.
        """
        D = self.description
        while not D.admits(choice):
            assert choice.box is not None
            assert D.box is not None
            _, solutions = self(choice)
            size = np.sum([solution.w**2 for solution in solutions], axis=0)
            size[(choice.box == 0) | (D.box[0] > 0)] = np.inf
            box = choice.box.copy()
            box[np.argmin(size)] = 0.0
            choice = replace(choice, box=box)
        return choice

    def value(self, solutions: Sequence[Solution]) -> float:
        """The criterion at these machines."""
        pairs = zip(self.description.tasks, solutions, strict=True)
        return sum(self.description.criterion_value(task, task.X_val @ s.w + s.b) for task, s in pairs)

    def _train(self, t: int, choice: Choice) -> Solution:
        D, task = self.description, self.description.tasks[t]
        problem = pieces(D, task, choice)
        w = self._w[t]
        end = ExactQP().solve_pieces(
            problem, np.zeros(problem.X.n_columns) if w is None else w, self._active[t]
        )
        self._active[t], self._w[t] = end.active, end.w
        weights, b = (end.w[:-1], float(end.w[-1])) if D.intercept else (end.w, 0.0)
        loose = False
        if D.intercept:
            shift = _to_the_middle(D, task, choice, problem, end.alpha, end.Z)
            loose = shift is not None
            b += shift or 0.0
        if D.loss == "hinge":
            return Solution(weights, b, np.clip(task.y * end.alpha, 0.0, problem.c), loose=loose)
        return Solution(weights, b, np.maximum(-end.alpha, 0.0), np.maximum(end.alpha, 0.0), loose)


def _to_the_middle(D: Description, task: Task, choice: Choice, problem: Pieces, alpha, Z) -> float | None:
    """Shift of an intercept that no row holds to the middle of its interval, as in the folds' problems; else None."""
    size = np.abs(alpha)
    at_bound = size >= problem.c * (1.0 - EDGE)
    free = (size > problem.c * EDGE) & ~at_bound
    if free.any():
        return None
    tube = None if D.loss == "hinge" else choice.epsilon
    low, up = decision_limits(task.y, tube, np.sign(alpha), free, at_bound)
    below, above = float(np.max(low - Z)), float(np.min(up - Z))
    return 0.5 * (below + above) if np.isfinite(below) and np.isfinite(above) and below < above else None


def pieces(description: Description, task: Task, choice: Choice) -> Pieces:
    """One training problem as a piecewise quadratic function, with a last column of ones for an intercept."""
    D, n = description, len(task.y)
    k = 1 if D.intercept else 0
    c = choice.C * task.weight
    if D.loss == "hinge":
        kinks, left = task.y[:, None].astype(float), np.where(task.y > 0, c, 0.0)
    else:
        kinks, left = np.stack([task.y - choice.epsilon, task.y + choice.epsilon], axis=1), c
    low, up = choice.sides(D.d)
    curvature, pull = D.quadratic(choice)
    pad = (0, k)
    return Pieces(
        DenseDesign(np.hstack([task.X, np.ones((n, k))])),
        kinks,
        left,
        c,
        np.pad(curvature, pad),
        np.pad(np.divide(pull, curvature, out=np.zeros(D.d), where=curvature > 0), pad),
        np.zeros(D.d + k),
        np.pad(low, pad, constant_values=-np.inf),
        np.pad(up, pad, constant_values=np.inf),
    )
