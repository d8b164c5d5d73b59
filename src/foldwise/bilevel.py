"""The bilevel program: cross-validation error as a function of ``theta``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldwise import hypergradient
from foldwise.criteria import WINDOW, Criterion, OutOfFold, Part, as_criterion
from foldwise.deadline import look_at_clock
from foldwise.losses import Loss
from foldwise.problems.base import Array, Linearization, Problem, Solution, Solver, State
from foldwise.solvers.registry import check
from foldwise.space import Space

__all__ = ["Bilevel", "Evaluation", "Prior"]

Prior = Callable[[Array], tuple[float, Array, Array]]
"""``theta`` to value, gradient and Hessian of what is added to the objective."""


@dataclass(eq=False)
class Evaluation:
    """The reduced objective at one ``theta``: value, and derivatives once they were asked for.

    ``states`` are what another evaluation starts from. ``solutions`` are None where the value was looked up and not
    computed: :meth:`Bilevel.solutions` has them in any case.
    """

    theta: Array
    objective: float
    task_objectives: Array
    states: list[Any]
    converged: bool
    solutions: list[Any] | None = None
    gradient: Array | None = None
    hessian: Array | None = None
    sensitivities: list[Array] = field(default_factory=list)
    adjoints: list[Array] = field(default_factory=list)


class Bilevel:
    """``H(theta)``: the mean criterion on validation rows, with every training problem solved at ``theta``.

    Parameters
    ----------
    problems : sequence of Problem
        One when all folds share a design; one per fold when each has its own columns.
    criterion : Criterion or Loss
        A loss stands for its mean over the validation rows of every fold.
    space : Space
    solver : Solver
    prior : callable, optional
        ``prior(theta) -> (value, gradient, hessian)``, added to the objective.
    starts : sequence of State or None, optional
        Where an evaluation begins that has none to start from; None for a problem's own start.

    Notes
    -----
    What problems keep between solves is here: one program serves one run, in one thread. :meth:`twin` is for another.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        criterion: Criterion | Loss,
        space: Space,
        solver: Solver,
        prior: Prior | None = None,
        starts: Sequence[State | None] | None = None,
    ) -> None:
        self.problems: list[Any] = list(problems)  # of any family
        self.space, self.solver = space, solver
        for problem in self.problems:
            check(solver, problem)
        self.criterion = as_criterion(criterion)
        self.prior = prior
        self.starts: list[State | None] = [None] * len(self.problems) if starts is None else list(starts)
        self.n_tasks = sum(problem.n_tasks for problem in self.problems)
        self.n_evaluations = 0
        self.n_inner_steps = 0
        self.reset()

    def twin(self, starts: Sequence[State | None] | None = None) -> Bilevel:
        """The same program for another run; with other starts, if they are given."""
        starts = self.starts if starts is None else starts
        return Bilevel(self.problems, self.criterion, self.space, self.solver, self.prior, starts)

    def reset(self) -> None:
        """Forget what was kept between evaluations: the next one depends on its arguments alone."""
        self.workspaces = [problem.workspace() for problem in self.problems]
        self._linear: list[tuple[Solution, Linearization] | None] = [None] * len(self.problems)

    def evaluate(self, theta: Array, warm: Evaluation | None = None) -> Evaluation:
        """Solve all training problems at ``theta`` and value the criterion.

        ``warm`` is a former evaluation to start from; with its sensitivities the start is a first-order prediction.
        Numbers that overflow show in an objective that is not finite, or in training problems that are not solved.
        """
        theta = self.space.clip(np.asarray(theta, float))
        evaluation = self._solve(theta, warm)
        assert evaluation.solutions is not None
        self.n_evaluations += 1
        self.n_inner_steps += sum(solution.steps for solution in evaluation.solutions)
        return evaluation

    @np.errstate(over="ignore")
    def _solve(self, theta: Array, warm: Evaluation | None) -> Evaluation:
        solutions: list[Any] = []
        for i, problem in enumerate(self.problems):
            look_at_clock()
            if warm is not None:
                state = warm.states[i]
                if warm.sensitivities:
                    state = state.moved(warm.sensitivities[i] @ self._reach(theta - warm.theta))
            else:
                leader = (self.problems[0], solutions[0]) if i else None
                state = self.starts[i] or problem.start(leader)
            self._linear[i] = None
            solutions.append(self.solver.solve(problem, theta, state, self.workspaces[i]))
        values = self.criterion.by_task(self.out_of_fold(solutions))
        objective = float(values.sum())
        if self.prior is not None:
            objective += self.prior(theta)[0]
        converged = all(bool(solution.converged.all()) for solution in solutions)
        states = [solution.state for solution in solutions]
        return Evaluation(theta, objective, values * self.n_tasks, states, converged, solutions)

    def solutions(self, evaluation: Evaluation) -> list[Any]:
        """The solutions of the training problems at an evaluation, one per problem."""
        assert evaluation.solutions is not None
        return evaluation.solutions

    def noted(
        self, evaluation: Evaluation, compute: Callable[[], dict[str, list[float]]]
    ) -> dict[str, list[float]]:
        """What ``compute`` finds out about an evaluation; a program that keeps a journal keeps that too."""
        return compute()

    def out_of_fold(self, solutions: Sequence[Solution]) -> OutOfFold:
        """The decisions of all tasks on their validation rows, with what the rows count."""
        parts, first = [], 0
        for i, (problem, solution) in enumerate(zip(self.problems, solutions, strict=True)):
            for m, rows, z, y, v in problem.validation(solution):
                parts.append(Part(i, m, first + m, rows, z, y, v, int(problem.split[m])))
            first += problem.n_tasks
        return OutOfFold(parts, self.n_tasks)

    def linearized(self, i: int, solution: Solution) -> Linearization:
        """How a solution of problem ``i`` answers to ``theta``; that of the last one is kept until the next solve."""
        known = self._linear[i]
        if known is None or known[0] is not solution:
            known = solution, self.problems[i].linearize(solution, self.workspaces[i])
            self._linear[i] = known
        return known[1]

    def _reach(self, move: Array) -> Array:
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
        solutions = self.solutions(evaluation)
        out = self.out_of_fold(solutions)
        if evaluation.gradient is None:
            total = np.zeros(self.space.size)
            evaluation.adjoints = []
            slopes = self.criterion.slopes(out)
            for i, solution in enumerate(solutions):
                look_at_clock()
                own = [k for k, part in enumerate(out.parts) if part.problem == i]
                response = self.linearized(i, solution)
                slope, u = hypergradient.gradient(
                    response, solution.par, [out.parts[k] for k in own], [slopes[k] for k in own]
                )
                total += slope
                evaluation.adjoints.append(u)
            if self.prior is not None:
                total += self.prior(evaluation.theta)[1]
            evaluation.gradient = total
        if order >= 2 and evaluation.hessian is None:
            p = self.space.size
            total, evaluation.sensitivities = self.second_order(evaluation, exact)
            total[np.diag_indices(p)] += solutions[0].par.scale_curvature * evaluation.gradient
            if self.prior is not None:
                total += self.prior(evaluation.theta)[2]
            evaluation.hessian = 0.5 * (total + total.T)
        return evaluation

    def second_order(
        self, evaluation: Evaluation, exact: bool = True, window: float | None = WINDOW
    ) -> tuple[Array, list[Array]]:
        """The hyper-Hessian of an evaluation with a gradient, and the sensitivities of every problem.

        Without the prior and the change of scale. ``window``: see :data:`foldwise.criteria.WINDOW`.
        """
        solutions = self.solutions(evaluation)
        out = self.out_of_fold(solutions)
        curvature = self.criterion.curvature(out, window)
        total, moved = (
            np.zeros((self.space.size, self.space.size)),
            np.zeros((self.space.size, len(curvature.signs))),
        )
        sensitivities = []
        for i, (solution, u) in enumerate(zip(solutions, evaluation.adjoints, strict=True)):
            look_at_clock()
            own = [k for k, part in enumerate(out.parts) if part.problem == i]
            part, J, columns = hypergradient.hessian(
                self.linearized(i, solution),
                [out.parts[k] for k in own],
                [curvature.diagonal[k] for k in own],
                [curvature.columns[k] for k in own] if curvature.columns else [],
                u,
                exact,
                window,
                self.problems[i].validation_gram,
                curvature.constant,
            )
            total += part
            moved += columns if curvature.columns and own else 0.0
            sensitivities.append(J)
        return total + (moved * curvature.signs) @ moved.T, sensitivities

    def moves(self, evaluation: Evaluation, out: OutOfFold) -> list[Array]:
        """How its decisions ``out`` move with ``theta``, by part: shape (p, rows). It must have second derivatives."""
        responses = [self.linearized(i, solution) for i, solution in enumerate(self.solutions(evaluation))]
        return [
            responses[part.problem].moves(evaluation.sensitivities[part.problem], part.m, part.rows)
            for part in out.parts
        ]

    def by_fold(self, evaluation: Evaluation) -> Array:
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
        kkt = self.residuals(evaluation)
        kinks = sum(problem.n_kinks(solution) for problem, solution, _ in self._triples(evaluation))
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

    def residuals(self, evaluation: Evaluation) -> list[float]:
        """Violation of the optimality conditions of every task, computed anew from the rows."""
        found = [
            problem.residual(solution, workspace)
            for problem, solution, workspace in self._triples(evaluation)
        ]
        return [float(value) for part in found for value in part]

    def _triples(self, evaluation: Evaluation) -> list[tuple[Problem, Any, Any]]:
        """Problems, their solutions, and what is kept for them."""
        return list(zip(self.problems, self.solutions(evaluation), self.workspaces, strict=True))

    def _approximation(self, evaluation: Evaluation) -> dict[str, Any] | None:
        """How kernels were approximated, over all problems."""
        found = [
            problem.approximation(solution, workspace)
            for problem, solution, workspace in self._triples(evaluation)
        ]
        parts = [part for part in found if part is not None]
        return {"landmarks": max(r for r, _ in parts), "bound": max(b for _, b in parts)} if parts else None

    def projected(self, evaluation: Evaluation) -> Array:
        """The gradient without the components that push against an active bound."""
        assert evaluation.gradient is not None
        theta, g = evaluation.theta, evaluation.gradient
        blocked = ((theta <= self.space.lower) & (g > 0)) | ((theta >= self.space.upper) & (g < 0))
        return np.where(blocked, 0.0, g)

    def gradient_norm(self, evaluation: Evaluation) -> float:
        """The norm of the projected gradient, also where its square overflows."""
        return math.hypot(*self.projected(evaluation).tolist())
