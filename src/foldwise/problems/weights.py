"""What linear machines share: weights of columns, and the loss of all tasks as a function of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from foldwise.design import Design
from foldwise.penalties import Quadratic
from foldwise.problems.base import Array, Problem, Solution, State, TaskData
from foldwise.problems.parameters import Canonical
from foldwise.problems.ridge import balance, scout

__all__ = ["LinearSolution", "Pins", "WeightProblem", "Weights"]

Pins = dict[int, tuple[Array, Array]]
"""By task, rows on whose kinks an intercept is held that no other row holds, and how they move with the tube."""

NEGLIGIBLE = 1e-6
"""Share of the rows' terms in a gradient below which what is left of it may be their rounding."""


@dataclass(frozen=True, eq=False)
class Weights(State):
    """Weights in stored columns, the intercept if any in the last: shape (tasks, columns)."""

    W: Array

    def moved(self, change: Array) -> Weights:
        return Weights(self.W + change)


@dataclass(frozen=True, eq=False)
class LinearSolution(Solution):
    """Solutions of linear machines with smooth losses."""

    pins: Pins = field(default_factory=dict)

    @property
    def W(self) -> Array:
        """Weights in stored columns: shape (tasks, columns)."""
        weights: Array = self.state.W
        return weights


class WeightProblem(Problem):
    """Training problems of a linear model on shared rows.

    Parameters
    ----------
    data : TaskData
    design : Design
        Rows in the order of ``data.folds``.
    penalty : Quadratic
        One row per task.
    """

    state_type: ClassVar[Any] = Weights

    def __init__(self, data: TaskData, design: Design, penalty: Quadratic) -> None:
        super().__init__(data)
        folds, Y = data.folds, data.Y
        self.design, self.penalty, self.n_columns = design, penalty, design.n_columns
        mass = [np.bincount(folds.cell, self.weight * times, folds.n_cells) for times in folds.count]
        self.training_mass = np.tile(np.stack(mass), (self.n_targets, 1))
        self._lengths = design.row_norms()
        lengths = self.weight * self._lengths
        self._terms = np.stack([np.bincount(folds.cell, lengths * np.abs(y), folds.n_cells) for y in Y])

    def start(self, leader: tuple[Any, Any] | None = None) -> Any:
        """Weights to start from: all zero."""
        return Weights(np.zeros((self.n_tasks, self.n_columns)))

    def flat_intercepts(self, solution: Any) -> int:
        return len(solution.pins)

    @cached_property
    def root(self) -> Array:
        """Stored weights times ``root`` are the user's: shape (tasks, features)."""
        return np.sqrt(self.penalty.scale)

    def stored(self, reference: Array | None) -> Array:
        """Weights of the user's columns, zero if None, as stored weights of every task: (tasks, features)."""
        d = self.design.n_features
        w0 = np.zeros(d) if reference is None else np.asarray(reference, float)
        if w0.shape != (d,) or not np.all(np.isfinite(w0)):
            raise ValueError(
                f"reference has shape {w0.shape}; it needs one finite number for each of {d} features"
            )
        return w0 / self.root

    @cached_property
    def block_grams(self) -> Array:
        """Weighted Gram matrix of every validation block and cell: shape (blocks, cells, columns, columns)."""
        D = self.n_columns
        out = np.zeros((len(self.folds.segments), self.n_cells, D, D))
        for b, block in enumerate(self.folds.segments):
            for q, rows in enumerate(block):
                out[b, q] = self.design.gram(None if self.uniform else self.weight[rows], rows)
        return out

    def scout(self, theta: Array, factors: Array) -> Array | None:
        """Least-squares validation error at ``theta`` for each factor on the loss; see :mod:`.ridge`."""
        return scout(self, theta, factors)

    def balance(self, theta: Array) -> float | None:
        """A moderate factor on the loss at ``theta`` for wide data, else None; see :mod:`.ridge`."""
        return balance(self, theta)

    def training(self, values: Array, tasks: Array) -> Array:
        """``values`` (tasks, n) times the sample weights and how often a row trains the task; in place."""
        if not self.uniform:
            values *= self.weight
        if self.folds.partition:
            for row, m in zip(values, tasks, strict=True):
                row[self.folds.validation[self.split[m]]] = 0.0
        else:
            values *= self.folds.count[self.split[tasks]]
        return values

    def pulled_by_cell(self, U: Array) -> Array:
        """``sum_j U_mj x_j`` separately for each cell: (tasks, n) -> (tasks, cells, columns)."""
        if self.n_cells == 1:
            return self.design.pull(U)[:, None, :]
        out = np.zeros((len(U), self.n_cells, self.n_columns))
        for block in self.folds.segments:
            for q, rows in enumerate(block):
                if rows.stop > rows.start:
                    out[:, q] += self.design.pull(U[:, rows], rows)
        return out

    def loss_value(self, W: Array, par: Canonical, Z: Array | None = None) -> Array:
        """The loss part of ``E_m``, one number per task."""
        tasks = np.arange(self.n_tasks)
        Z = self.design.decisions(W) if Z is None else Z
        losses = self.loss_at(par).value(Z, self.targets()) * self.by_row(par.c)
        return np.asarray(self.training(losses, tasks).sum(axis=1))

    def loss_grad(self, W: Array, par: Canonical, Z: Array | None = None) -> Array:
        """Gradient of the loss part of ``E_m``, one row per task."""
        tasks = np.arange(self.n_tasks)
        Z = self.design.decisions(W) if Z is None else Z
        slopes = self.loss_at(par).grad(Z, self.targets()) * self.by_row(par.c)
        return self.design.pull(self.training(slopes, tasks))

    def gradient_size(self, pull: Array, push: Array, par: Canonical, tasks: Array) -> Array:
        """What a gradient ``pull + push`` (loss, penalty) is compared with: the norms of the two parts.

        A millionth of the rows' terms, as large as they are before they cancel in ``pull``, keeps the comparison
        meaningful where the solution is zero and both parts vanish.
        """
        terms = np.sum(par.c[tasks] * self._terms[self.target[tasks]], axis=1)
        size = np.linalg.norm(pull, axis=1) + np.linalg.norm(push, axis=1) + NEGLIGIBLE * terms
        return np.maximum(size, np.finfo(float).tiny)
