r"""The penalised objective (34) of moore2011, its convex approximation (45), and the rows that sit at a kink.

.. math::  f(W, \theta) = F(W) + \beta \sum_m \| \nabla_w E_m(w_m, \theta) \|^2

``F`` is the cross-validation criterion of the weights as they are, solved or not. Variables are scaled: a column of
the design counts in units of its root mean square, a hyper-parameter in units of an e-fold (a quarter of its range on
a linear scale), both such that a step of length one changes ``F`` by about its own size. The proximity parameter is
then a pure number, and nothing depends on the units of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel
from foldwise.criteria import WINDOW, row_curvature
from foldwise.optimizers.pbp.subproblem import ArrowModel, Polyhedron
from foldwise.problems.curvature import PieceGram, WeightedGram, is_gram_free
from foldwise.problems.linear import LinearProblem, SmoothLinearization
from foldwise.problems.weights import LinearSolution
from foldwise.space import natural_units

__all__ = ["Centre", "Kinks", "Penalised", "check_problems"]


@dataclass(eq=False)
class Centre:
    """A point ``(W, theta)`` with what its value needed; lists have one entry per problem of the program.

    ``residual`` is the gradient of the training problems in scaled columns, ``infeasibility`` its largest norm over
    the tasks, relative to the two parts, loss and penalty, that cancel in it.
    """

    W: list[np.ndarray]
    theta: np.ndarray
    Z: list[np.ndarray]
    residual: list[np.ndarray]
    outer: float
    penalty: float
    infeasibility: float

    def value(self, beta: float) -> float:
        """``f`` at this point."""
        return self.outer + beta * self.penalty


@dataclass(frozen=True, eq=False)
class Kinks:
    """Rows at a kink of the loss, where the derivative of the residual is a set.

    Row ``i`` adds ``share_i columns_i (columns_i' dw - side_i tube_i' dtheta)`` to the change of its task's residual
    with a share of the jump between ``low_i`` and ``high_i``, counted from the one that the model uses. ``spin`` marks
    rows at residual zero in a closed tube, whose slope in the weights is certain and whose side is not.

    Attributes
    ----------
    task : ndarray of int, shape (k,)
        Task, counted over all problems.
    columns : ndarray, shape (k, D)
        Scaled rows, times the root of the jump that they make.
    tube : ndarray, shape (k, p)
        Derivative of the row's tube width in scaled hyper-parameters, times the same root.
    side, low, high : ndarray, shape (k,)
    spin : ndarray of bool, shape (k,)
    """

    task: np.ndarray
    columns: list[np.ndarray]
    tube: np.ndarray
    side: np.ndarray
    low: np.ndarray
    high: np.ndarray
    spin: np.ndarray

    def __len__(self) -> int:
        return len(self.task)


def check_problems(bilevel: Bilevel) -> None:
    """Refuse training problems that are not linear ones with dense columns."""
    for problem in bilevel.problems:
        if type(problem) is not LinearProblem or is_gram_free(problem):
            raise ValueError(
                "method 'pbp' needs a linear model with a smooth loss, without boxes or reference weights, on "
                "dense columns, at most 3,000 and at most twice as many as rows; use method='newton' or 'lbfgsb'"
            )


class Penalised:
    """The penalised objective of a program, as a function of all weights and hyper-parameters.

    Parameters
    ----------
    bilevel : Bilevel
        Its problems must be linear, with dense columns.
    """

    def __init__(self, bilevel: Bilevel) -> None:
        check_problems(bilevel)
        assert bilevel.criterion.loss is not None
        self.bilevel, self.space, self.criterion = bilevel, bilevel.space, bilevel.criterion.loss
        self.problems: list[Any] = bilevel.problems
        # Of its own: what happens here does not depend on evaluations in between.
        self.workspaces: list[PieceGram | WeightedGram] = [p.workspace() for p in self.problems]
        # A unit step of a weight changes F by about one unit squared of the target.
        self.column = [self._column_unit(problem) for problem in self.problems]
        self._outer_hessians: list[np.ndarray] | None = None
        self.unit = natural_units(self.space)

    def calibrate(self, outer: float) -> None:
        """Set the unit of the hyper-parameters, given the size of the outer objective."""
        self.unit = natural_units(self.space) / np.sqrt(max(outer, np.finfo(float).tiny))

    def _column_unit(self, problem: LinearProblem) -> np.ndarray:
        """What a column is divided by: its root mean square, times the root of a task's share of the curvature."""
        square = problem.design.column_squares(np.ones(problem.n_rows)) / max(problem.n_rows, 1)
        square = np.where(square > 1e-12 * square.max(initial=0.0), square, 1.0)
        return np.asarray(np.sqrt(2.0 * square / self.bilevel.n_tasks))

    def region(
        self, theta: np.ndarray, rows: np.ndarray, limit: np.ndarray, frozen: np.ndarray
    ) -> Polyhedron:
        """Steps in scaled hyper-parameters that keep the bounds and ``rows theta <= limit``."""
        return Polyhedron(
            np.where(frozen, 0.0, (self.space.lower - theta) / self.unit),
            np.where(frozen, 0.0, (self.space.upper - theta) / self.unit),
            rows * self.unit,
            np.maximum(limit - rows @ theta, 0.0),
        )

    def at(self, W: list[np.ndarray], theta: np.ndarray, Z: list[np.ndarray] | None = None) -> Centre:
        """Evaluate a point."""
        residuals, decisions, penalty, outer, worst = [], [], 0.0, 0.0, 0.0
        for i, (problem, w, unit) in enumerate(zip(self.problems, W, self.column, strict=True)):
            z = problem.design.decisions(w) if Z is None else Z[i]
            par, tasks = problem.parameters(theta), np.arange(problem.n_tasks)
            pull = problem.loss_grad(w, par, z)
            push = problem.penalty.times(problem.diagonal(par), w, tasks)
            size = problem.gradient_size(pull, push, par, tasks)
            worst = max(worst, float(np.max(np.linalg.norm(pull + push, axis=1) / size)))
            residual = (pull + push) / unit
            penalty += float(np.sum(residual**2))
            for _, _, decision, y, v in problem.validation(problem.at(w, theta, z)):
                outer += float(v @ self.criterion.value(decision, y))
            residuals.append(residual)
            decisions.append(z)
        if self.bilevel.prior is not None:
            outer += float(self.bilevel.prior(theta)[0])
        return Centre(W, theta, decisions, residuals, outer, penalty, worst)

    def move(self, centre: Centre, steps: list[np.ndarray], delta: np.ndarray) -> Centre:
        """The point at a scaled step from a centre; within the bounds to the last bit."""
        theta = self.space.clip(centre.theta + self.unit * delta)
        W, first = [], 0
        for problem, w, unit in zip(self.problems, centre.W, self.column, strict=True):
            W.append(w + np.array(steps[first : first + problem.n_tasks]) / unit)
            first += problem.n_tasks
        return self.at(W, theta)

    def corrected(self, centre: Centre, beta: float) -> Centre:
        """The weights moved to where the model around this point has its minimum; the hyper-parameters stay."""
        model = self.model(centre, beta)
        return self.move(centre, model.weights_only(), np.zeros(self.space.size))

    def model(self, centre: Centre, beta: float) -> ArrowModel:
        """The convex approximation (45): the outer objective to second order, the residual to first."""
        H, K, g, R = [], [], [], []
        p = self.space.size
        for problem, workspace, w, z, residual, unit in zip(
            self.problems, self.workspaces, centre.W, centre.Z, centre.residual, self.column, strict=True
        ):
            par, tasks = problem.parameters(centre.theta), np.arange(problem.n_tasks)
            at = problem.at(w, centre.theta, z)
            response = SmoothLinearization(problem, at, workspace, factored=False)
            both = np.outer(unit, unit)
            H += [h / both for h in workspace.hessians(par, problem.diagonal(par), tasks)]
            K += list(response.cross() / unit[:, None] * self.unit)
            g += list(self._outer_gradient(problem, at) / unit)
            R += list(residual)
        q, Q = np.zeros(p), np.zeros((p, p))
        if self.bilevel.prior is not None:
            _, slope, curvature = self.bilevel.prior(centre.theta)
            q, Q = slope * self.unit, curvature * np.outer(self.unit, self.unit)
        return ArrowModel(self._outer_hessian(centre), H, K, g, R, q, Q, beta)

    def _outer_gradient(self, problem: LinearProblem, point: LinearSolution) -> np.ndarray:
        out = np.zeros_like(point.W)
        for m, rows, z, y, v in problem.validation(point):
            out[m] = problem.design.pull((v * self.criterion.grad(z, y))[None], rows)[0]
        return out

    def _outer_hessian(self, centre: Centre) -> list[np.ndarray]:
        """Second derivative of the criterion in the scaled weights of every task; negative curvature is left out."""
        if self._outer_hessians is not None:
            return self._outer_hessians
        criterion, out = self.criterion, []
        constant = criterion.constant_curvature
        for problem, w, z, unit in zip(self.problems, centre.W, centre.Z, self.column, strict=True):
            both, D = np.outer(unit, unit), problem.n_columns
            part = [np.zeros((D, D)) for _ in range(problem.n_tasks)]
            point = problem.at(w, centre.theta, z)
            for m, rows, decision, y, v in problem.validation(point):
                gram = None if constant is None else problem.validation_gram(m)
                if gram is not None:
                    part[m] = constant * gram / both
                    continue
                curvature = v * np.maximum(row_curvature(criterion, decision, y, v, WINDOW), 0.0)
                part[m] = problem.design.gram(curvature, rows) / both
            out += part
        if constant is not None:
            self._outer_hessians = out
        return out

    def kinks(self, centre: Centre, tol: float, missed: Centre | None = None) -> Kinks:
        """Training rows within ``tol`` of a kink of the loss; ``tol`` in units of the target's largest value.

        With a point ``missed`` also the rows between which and the centre a kink lies.
        """
        found: list[tuple[Any, ...]] = []
        first = 0
        for i, (problem, unit) in enumerate(zip(self.problems, self.column, strict=True)):
            if problem.loss.piecewise_quadratic:
                found += self._kinks_of(problem, i, centre, missed, unit, first, tol)
            first += problem.n_tasks
        p = self.space.size
        if not found:
            none = np.zeros(0)
            return Kinks(none.astype(int), [], np.zeros((0, p)), none, none, none, none.astype(bool))
        task, columns, tube, side, low, high, spin = zip(*found, strict=True)
        numbers = [np.array(part) for part in (task, tube, side, low, high, spin)]
        return Kinks(numbers[0], list(columns), *numbers[1:])

    def _kinks_of(
        self,
        problem: LinearProblem,
        i: int,
        centre: Centre,
        missed: Centre | None,
        unit: np.ndarray,
        first: int,
        tol: float,
    ) -> Iterator[tuple[Any, ...]]:
        """One tuple per task and row at a kink."""
        theta, Z = centre.theta, centre.Z[i]
        par, tasks = problem.parameters(theta), np.arange(problem.n_tasks)
        loss, Y = problem.loss_at(par, tasks), problem.targets(tasks)
        tol = tol * max(1.0, float(np.abs(problem.Y).max(initial=0.0)))
        times = problem.folds.count[problem.split]
        trains = (times > 0) & (problem.weight > 0)
        has_tube = "epsilon" in problem.loss.tunable
        tuned = par.tunes("epsilon")
        width = np.broadcast_to(problem.by_row(par.epsilon), Z.shape) if has_tube else None
        hess = loss.hess(Z, Y)
        for which, (distance, direction, jump) in enumerate(loss.kinks(Z, Y)):
            near = np.abs(distance) <= tol
            if missed is not None:
                other = problem.loss_at(problem.parameters(missed.theta), tasks)
                near |= (distance > 0) != (other.kinks(missed.Z[i], Y)[which][0] > 0)
            for m, j in np.argwhere(near & trains):
                cell = problem.folds.cell[j]
                spin = width is not None and width[m, j] <= tol
                if spin and not tuned:
                    continue  # a tube of fixed width zero has no kink
                size = par.c[m, cell] * problem.weight[j] * times[m, j] * abs(jump[m, j])
                root = np.sqrt(size)
                row = root * problem.design.dense(slice(j, j + 1))[0] / unit
                tube = root * par.slope("epsilon", m, cell) * self.unit
                used = hess[m, j] / jump[m, j] + (jump[m, j] < 0)
                sign = np.sign(jump[m, j])
                if spin:
                    low, high = -1.0 - direction[m, j], 1.0 - direction[m, j]
                elif sign > 0:
                    low, high = -used, 1.0 - used
                else:
                    low, high = used - 1.0, used
                yield first + m, row, tube, 1.0 if spin else direction[m, j], low, high, spin
