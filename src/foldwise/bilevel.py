"""The bilevel program: cross-validation error as a function of ``theta``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldwise import hypergradient
from foldwise.criteria import WINDOW, Criterion, OutOfFold, Part, as_criterion
from foldwise.deadline import look_at_clock
from foldwise.losses import Loss
from foldwise.space import Space

__all__ = ["Bilevel", "Evaluation"]


@dataclass(eq=False)
class Evaluation:
    """The reduced objective at one ``theta``: value, and derivatives once they were asked for."""

    theta: np.ndarray
    objective: float
    task_objectives: np.ndarray
    points: list
    converged: bool
    gradient: np.ndarray | None = None
    hessian: np.ndarray | None = None
    sensitivities: list = field(default_factory=list)
    adjoints: list = field(default_factory=list)


class Bilevel:
    """``H(theta)``: the mean criterion on validation rows, with every training problem solved at ``theta``.

    Parameters
    ----------
    problems : sequence of Problem
        One when all folds share a design; one per fold when each has its own columns.
    criterion : Criterion or Loss
        A loss stands for its mean over the validation rows of every fold.
    space : Space
    solver : object with ``solve(problem, theta, W)``
    prior : callable, optional
        ``prior(theta) -> (value, gradient, hessian)``, added to the objective.
    """

    def __init__(
        self, problems: Sequence[Any], criterion: Criterion | Loss, space: Space, solver: Any, prior=None
    ) -> None:
        self.problems, self.space, self.solver = list(problems), space, solver
        self.criterion = as_criterion(criterion)
        self.prior = prior
        self.n_tasks = sum(problem.n_tasks for problem in self.problems)
        self.n_evaluations = 0
        self.n_inner_steps = 0
        self.end: Evaluation | None = None
        """The evaluation that was certified last: where a search ended."""

    def twin(self) -> Bilevel:
        """The same program with a state of its own, for another start or another thread."""
        return Bilevel([p.twin() for p in self.problems], self.criterion, self.space, self.solver, self.prior)

    def reset(self) -> None:
        """Forget what the problems keep between evaluations: the next one depends on its arguments alone."""
        for problem in self.problems:
            problem.reset()

    @np.errstate(over="ignore")
    def evaluate(self, theta: np.ndarray, warm: Evaluation | None = None) -> Evaluation:
        """Solve all training problems at ``theta`` and value the criterion.

        ``warm`` is a former evaluation to start from; with its sensitivities the start is a first-order prediction.
        Numbers that overflow show in an objective that is not finite, or in training problems that are not solved.
        """
        theta = self.space.clip(np.asarray(theta, float))
        points: list[Any] = []
        for i, problem in enumerate(self.problems):
            look_at_clock()
            if warm is None:
                alike = i > 0 and hasattr(problem, "start_like")
                W = problem.start_like(self.problems[0], points[0]) if alike else problem.start()
            else:
                W = warm.points[i].W
                if warm.sensitivities:
                    W = W + warm.sensitivities[i] @ self._reach(theta - warm.theta)
            points.append(self.solver.solve(problem, theta, W))
        self.n_evaluations += 1
        self.n_inner_steps += sum(point.steps for point in points)
        values = self.criterion.by_task(self.out_of_fold(points))
        objective = float(values.sum())
        if self.prior is not None:
            objective += self.prior(theta)[0]
        return Evaluation(
            theta, objective, values * self.n_tasks, points, all(bool(p.converged.all()) for p in points)
        )

    def out_of_fold(self, points: Sequence[Any]) -> OutOfFold:
        """The decisions of all tasks on their validation rows, with what the rows count."""
        parts, first = [], 0
        for i, (problem, point) in enumerate(zip(self.problems, points, strict=True)):
            for m, rows, z, y, v in problem.validation(point):
                parts.append(Part(i, m, first + m, rows, z, y, v))
            first += problem.n_tasks
        return OutOfFold(parts, self.n_tasks)

    def _reach(self, move: np.ndarray) -> np.ndarray:
        """A step of ``theta`` as the prediction sees it: on a log scale solutions saturate, at either end.

        Where the fit is tight, slacks fall like ``1 / C``; to first order both forms agree.
        """
        log = np.concatenate([np.full(b.size, b.scale == "log") for b in self.space.blocks])
        return np.where(log, np.sign(move) * -np.expm1(-np.abs(move)), move)

    @np.errstate(over="ignore", invalid="ignore")
    def differentiate(self, evaluation: Evaluation, order: int = 1, exact: bool = True) -> Evaluation:
        """Fill in the gradient (``order=1``) and the Hessian (``order=2``) of an evaluation.

        Derivatives of numbers near the end of the range may not be finite; they promise nothing.
        """
        pairs = zip(self.problems, evaluation.points, strict=True)
        evaluation.points = [problem.revive(point) for problem, point in pairs]
        if evaluation.gradient is None:
            total = np.zeros(self.space.size)
            evaluation.adjoints = []
            out = self.out_of_fold(evaluation.points)
            slopes = self.criterion.slopes(out)
            for i, (problem, point) in enumerate(zip(self.problems, evaluation.points, strict=True)):
                look_at_clock()
                own = [k for k, part in enumerate(out.parts) if part.problem == i]
                slope, u = hypergradient.gradient(
                    problem, point, [out.parts[k] for k in own], [slopes[k] for k in own]
                )
                total += slope
                evaluation.adjoints.append(u)
            if self.prior is not None:
                total += self.prior(evaluation.theta)[1]
            evaluation.gradient = total
        if order >= 2 and evaluation.hessian is None:
            p = self.space.size
            total, evaluation.sensitivities = self.second_order(evaluation, exact)
            total[np.diag_indices(p)] += evaluation.points[0].par.bend * evaluation.gradient
            if self.prior is not None:
                total += self.prior(evaluation.theta)[2]
            evaluation.hessian = 0.5 * (total + total.T)
        return evaluation

    def second_order(
        self, evaluation: Evaluation, exact: bool = True, window: float | None = WINDOW
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """The hyper-Hessian of an evaluation with a gradient, and the sensitivities of every problem.

        Without the prior and the change of scale. ``window``: see :data:`foldwise.criteria.WINDOW`.
        """
        out = self.out_of_fold(evaluation.points)
        bend = self.criterion.curvature(out, window)
        total, moved = (
            np.zeros((self.space.size, self.space.size)),
            np.zeros((self.space.size, len(bend.signs))),
        )
        sensitivities = []
        rows = zip(self.problems, evaluation.points, evaluation.adjoints, strict=True)
        for i, (problem, point, u) in enumerate(rows):
            look_at_clock()
            own = [k for k, part in enumerate(out.parts) if part.problem == i]
            part, J, columns = hypergradient.hessian(
                problem,
                point,
                [out.parts[k] for k in own],
                [bend.diagonal[k] for k in own],
                [bend.columns[k] for k in own] if bend.columns else [],
                u,
                exact,
                window,
                bend.grams,
            )
            total += part
            moved += columns if bend.columns and own else 0.0
            sensitivities.append(J)
        return total + (moved * bend.signs) @ moved.T, sensitivities

    def by_fold(self, evaluation: Evaluation) -> np.ndarray:
        """The criterion of every fold, averaged over the classes' problems: shape (folds,)."""
        values, first = [], 0
        for problem in self.problems:
            part = evaluation.task_objectives[first : first + problem.n_tasks]
            values.append(part.reshape(problem.n_targets, problem.n_splits).mean(axis=0))
            first += problem.n_tasks
        return np.concatenate(values)

    @np.errstate(over="ignore")
    def certify(self, evaluation: Evaluation) -> dict[str, Any]:
        """KKT residuals from the rows, hypergradient norm, entries at a bound, samples at a kink."""
        self.end = evaluation
        kkt, kinks = [], 0
        for problem, point in zip(self.problems, evaluation.points, strict=True):
            kkt += problem.row_residual(point).tolist()
            kinks += problem.n_kinks(point)
        out: dict[str, Any] = {
            "kkt": kkt,
            "n_kinks": kinks,
            "at_bound": self.space.at_bound(evaluation.theta),
        }
        out["gradient_norm"] = None
        out["approximation"] = self._approximation(evaluation)
        if self.criterion.differentiable:
            self.differentiate(evaluation)
            out["gradient_norm"] = self.gradient_norm(evaluation)
        return out

    def _approximation(self, evaluation: Evaluation) -> dict[str, Any] | None:
        """How kernels were approximated, over all problems."""
        parts = []
        for problem, point in zip(self.problems, evaluation.points, strict=True):
            part = problem.approximation(point) if hasattr(problem, "approximation") else None
            if part is not None:
                parts.append(part)
        return {"landmarks": max(r for r, _ in parts), "bound": max(b for _, b in parts)} if parts else None

    def projected(self, evaluation: Evaluation) -> np.ndarray:
        """The gradient without the components that push against an active bound."""
        assert evaluation.gradient is not None
        theta, g = evaluation.theta, evaluation.gradient
        blocked = ((theta <= self.space.lower) & (g > 0)) | ((theta >= self.space.upper) & (g < 0))
        return np.where(blocked, 0.0, g)

    def gradient_norm(self, evaluation: Evaluation) -> float:
        """The norm of the projected gradient, also where its square overflows."""
        return math.hypot(*self.projected(evaluation).tolist())
