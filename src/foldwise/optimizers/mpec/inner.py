"""Exact training of the machines of a program with complementarity, primal and dual."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foldwise.design import DenseDesign
from foldwise.optimizers.mpec.description import Choice, Description, Task, TrainedMachine
from foldwise.problems.dual import decision_limits
from foldwise.problems.pieces import ActiveSet, Pieces, box_unit
from foldwise.solvers.qp import ExactQP

__all__ = ["Evaluator", "gaussian", "pieces"]

EDGE = 1e-9
"""Distance of a multiplier from an end of its range, in units of it, below which it is there."""
MOST = 1_000_000
"""Iterations of LIBSVM for one training problem: with a large C its tolerance may be out of reach."""


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

    def __call__(self, choice: Choice) -> tuple[float, list[TrainedMachine]]:
        """The true objective and the machines."""
        D, choice = self.description, self.description.clip(choice)
        if D.gamma is None:
            solutions = [self._train(t, choice) for t in range(len(D.tasks))]
        else:
            solutions = [_train_kernel(D, task, choice) for task in D.tasks]
        value = D.value(solutions)
        self.n_evaluations += 1
        if D.admits(choice) and (self.best is None or value < self.best[0]):
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

    def _train(self, t: int, choice: Choice) -> TrainedMachine:
        """A linear machine, by the active-set method."""
        D, task = self.description, self.description.tasks[t]
        problem, w = pieces(D, task, choice), self._w[t]
        first = np.zeros(problem.X.n_columns) if w is None else w
        end = ExactQP().solve_pieces(problem, first, self._active[t])
        self._active[t], self._w[t] = end.active, end.w
        weights, b = (end.w[:-1], float(end.w[-1])) if D.intercept else (end.w, 0.0)
        shift = _to_the_middle(D, task, choice, problem.c, end.alpha, end.Z) if D.intercept else None
        b += shift or 0.0
        if D.loss == "hinge":
            alpha, beta = np.clip(task.y * end.alpha, 0.0, problem.c), None
        else:
            alpha, beta = np.maximum(-end.alpha, 0.0), np.maximum(end.alpha, 0.0)
        z, z_val = task.X @ weights + b, task.X_val @ weights + b
        return TrainedMachine(weights, b, alpha, z, z_val, beta, shift is not None)


def gaussian(A: np.ndarray, B: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """``exp(-sum_d gamma_d (a_d - b_d)^2)`` for all pairs of rows."""
    exponent = ((A[:, None, :] - B[None, :, :]) ** 2) @ gamma
    return np.asarray(np.exp(-exponent))


def _train_kernel(D: Description, task: Task, choice: Choice) -> TrainedMachine:
    """A machine with a Gaussian kernel, by LIBSVM."""
    from sklearn.svm import SVC

    assert choice.gamma is not None
    K, K_val = (gaussian(rows, task.X, choice.gamma) for rows in (task.X, task.X_val))
    machine = SVC(C=choice.C, kernel="precomputed", tol=1e-9, max_iter=MOST, cache_size=50).fit(K, task.y)
    alpha = np.zeros(len(task.y))
    alpha[machine.support_] = np.abs(machine.dual_coef_[0])
    signed, b = task.y * alpha, float(machine.intercept_[0])
    z, z_val = K @ signed + b, K_val @ signed + b
    c = np.full(len(alpha), choice.C)
    loose = _to_the_middle(D, task, choice, c, signed, z) is not None
    return TrainedMachine(np.zeros(0), b, alpha, z, z_val, loose=loose)


def _to_the_middle(
    D: Description, task: Task, choice: Choice, c: np.ndarray, alpha: np.ndarray, Z: np.ndarray
) -> float | None:
    """Shift of an intercept that no row holds to the middle of its interval, as in the folds' problems; else None."""
    size = np.abs(alpha)
    at_bound = size >= c * (1.0 - EDGE)
    free = (size > EDGE * box_unit(alpha, c)) & ~at_bound
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
    ends = left[:, None] - c[:, None] * np.arange(kinks.shape[1] + 1)
    low, up = choice.sides(D.d)
    curvature, pull = D.quadratic(choice)
    pad = (0, k)
    return Pieces(
        DenseDesign(np.hstack([task.X, np.ones((n, k))])),
        kinks,
        ends,
        c,
        np.pad(curvature, pad),
        np.pad(np.divide(pull, curvature, out=np.zeros(D.d), where=curvature > 0), pad),
        np.zeros(D.d + k),
        np.pad(low, pad, constant_values=-np.inf),
        np.pad(up, pad, constant_values=np.inf),
    )
