"""Stages before a search: each starts where the one before it ended.

A smooth machine's first solution starts from the decisions found so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.deadline import OutOfTime, until
from foldwise.models.base import Array, Model, SearchStage
from foldwise.optimizers.base import StopSearch, plain_params, run_to_end
from foldwise.optimizers.newton import TrustRegionNewton
from foldwise.problems.kernel import Decisions
from foldwise.result import CUT_SHORT, MESSAGES, Result, Status
from foldwise.search.plan import PlannedStage
from foldwise.space import Space

__all__ = ["Prelude", "StagePlayer", "decisions_by_row"]


@dataclass(eq=False)
class Prelude:
    """What the stages found: values by name, results of real stages, facts about the others.

    ``others`` are values of other valleys that are nearly as good. ``ended`` is set when a stage was cut short: nothing
    is searched after it.
    """

    values: dict[str, Any] | None = None
    others: list[dict[str, Any]] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    ended: Status | None = None
    coefficients: tuple[Array, Array] | None = None

    def seed(self, bilevel: Bilevel, theta: Array, index: list[Array]) -> Bilevel:
        """The program, with the decisions found so far as the start of its smooth problems."""
        if self.coefficients is None:
            return bilevel
        alpha, b = self.coefficients
        starts: list[Any] = [None] * len(bilevel.problems)
        for i, (problem, rows) in enumerate(zip(bilevel.problems, index, strict=True)):
            if not problem.loss.smooth or len(alpha) != problem.n_targets:
                continue
            gram = problem.workspace().at(problem.parameters(theta).log_kernel[0])
            own, known = rows[problem.folds.order], np.zeros((len(alpha), problem.n_rows))
            row, first = np.unique(own, return_index=True)  # one copy of a row that a split repeats
            known[:, first] = alpha[:, row]
            Z = gram.product(known) + b[:, None]
            leads = problem.split == 0
            starts[i] = Decisions(Z[problem.target] * leads[:, None], b[problem.target] * leads)
            if len(bilevel.problems) > 1:  # the other folds' start from its solution
                break
        return bilevel.twin(starts)


@dataclass(frozen=True, eq=False)
class _Scan:
    """Points to run from, how many evaluations chose them, the best point of these, and why it ended early."""

    starts: list[Array]
    evaluations: int = 0
    best: Array | None = None
    ended: Status | None = None


@dataclass(frozen=True, eq=False)
class StagePlayer:
    """Plays the stages of a plan.

    Attributes
    ----------
    model : the machine that is tuned
    values : values by name to start from, the best reason first
    space : the space of the search itself
    n_rows : number of the user's rows
    limits : what :func:`foldwise.optimizers.base.run` takes: callback, deadline, when the search began, what observes
    kept : gives a stage's program as it is run, by its name
    n_scouts : from how many points at most a stage runs that runs from several: the best of those that it is given
        whose neighbours are no better
    neighbours : points are neighbours up to this distance, in factors of e
    nearly : nearly as good as the best is an objective that is larger by at most this factor
    """

    model: Model
    values: Sequence[Mapping[str, Any]]
    space: Space
    n_rows: int
    limits: Mapping[str, Any]
    kept: Callable[[Bilevel, str], Bilevel]
    n_scouts: int = 3
    neighbours: float = 2.6
    nearly: float = 1.05

    def play(self, stages: Sequence[PlannedStage]) -> Prelude:
        """Run the stages one after the other: the first from the given values, each later one from the last's end.

        A stage that is cut short is the last one.
        """
        prelude, values = Prelude(), [dict(one) for one in self.values]
        for planned in stages:
            stage, program = planned.stage, planned.build()
            points = [program.space.clip(self.model.point(program.space, one)) for one in values]
            thetas = _distinct(points)
            if stage.several and len(thetas) == 1 and not stage.sampled:
                continue  # nothing to choose from
            program = prelude.seed(program, thetas[0], planned.index)
            try:
                scan = self._scan(planned, program, thetas)
                if (
                    scan.best is not None
                ):  # worth an evaluation of the search, should what follows be cut short
                    prelude.values = {**(prelude.values or values[0]), **program.space.params(scan.best)}
                if scan.ended is not None:
                    prelude.ended = scan.ended
                    break
                runs = self._runs(stage, program, scan.starts)
            except StopSearch as stop:  # the time was over before this stage had a point
                prelude.ended = stop.status
                break
            except KeyboardInterrupt:  # before this stage had a point
                if prelude.values is None:
                    raise
                prelude.ended = Status.INTERRUPTED
                break
            result, end = min(runs, key=lambda one: one[0].objective)
            self._note(prelude, stage, [one for one, _ in runs], scan.evaluations)
            found = program.space.params(np.array(result.theta))
            if stage.easiest is not None:
                found = self._easiest(result, *stage.easiest)
            held = prelude.values or values[0]
            prelude.values = {**held, **found}
            prelude.others = [
                {**held, **program.space.params(np.array(other.theta))}
                for other, _ in runs
                if other is not result and other.objective <= _worse(result.objective, stage.margin)
            ]
            values = [prelude.values, *prelude.others]
            prelude.coefficients = _coefficients(program, end, planned.index, self.n_rows)
            if runs[-1][0].status in CUT_SHORT:
                prelude.ended = runs[-1][0].status
                break
        return prelude

    def _note(self, prelude: Prelude, stage: SearchStage, results: list[Result], scanned: int) -> None:
        """Keep the results of a stage: of a real one with its history, of others how many evaluations they took."""
        if not stage.real:
            total = scanned + sum(result.n_evaluations for result in results)
            prelude.details[f"{stage.name}_evaluations"] = total
            return
        # Its evaluations belong to the history with the values that it held fixed.
        held = plain_params(self.space.params(self.model.point(self.space, self.values[0])))
        prelude.results += [
            replace(result, history=[replace(r, params={**held, **r.params}) for r in result.history])
            for result in results
        ]

    def _runs(
        self, stage: SearchStage, program: Bilevel, thetas: list[Array]
    ) -> list[tuple[Result, Evaluation]]:
        """The results of a stage, each with the evaluation at its end: one, or one for every starting point."""
        other = {"callback": None, "observe": None, "may_abandon": True}
        options = {**self.limits, **({} if stage.real else other)}
        method = TrustRegionNewton(tol=stage.tol)
        groups = [[theta] for theta in thetas] if stage.several else [thetas]
        runs: list[tuple[Result, Evaluation]] = []
        for k, (first, *others) in enumerate(groups):
            bilevel = self.kept(program, f"{stage.name} {k}" if k else stage.name)
            try:
                runs.append(run_to_end(method, bilevel, first, candidates=others, **options))
            except KeyboardInterrupt:  # before this start had a point to return
                if not runs:
                    raise
                status = Status.INTERRUPTED
                runs[-1] = replace(runs[-1][0], status=status, message=MESSAGES[status]), runs[-1][1]
            if runs[-1][0].status in CUT_SHORT:
                break
        return runs

    def _scan(self, planned: PlannedStage, program: Bilevel, thetas: list[Array]) -> _Scan:
        """The points to run from, in their order: all, or of many the best that stand for a valley."""
        stage, glance = planned.stage, planned.glance
        if not stage.several or len(thetas) <= self.n_scouts:
            return _Scan(thetas)
        bilevel = self.kept(glance() if glance else program, f"{stage.name} scan")
        values, warm, ended = np.full(len(thetas), np.inf), None, None
        try:
            with until(self.limits.get("deadline")):
                for k, theta in enumerate(thetas):
                    warm = bilevel.evaluate(theta, warm)
                    values[k] = np.nan_to_num(warm.objective, nan=np.inf)
        except OutOfTime:
            ended = Status.TIME_LIMIT
        except KeyboardInterrupt:
            if warm is None:
                raise
            ended = Status.INTERRUPTED
        if ended is not None and warm is None:
            raise StopSearch(ended)
        lowest = thetas[int(np.argmin(values))]
        if ended is not None:
            return _Scan([], best=lowest, ended=ended)
        scales = [block.scale == "log" for block in program.space.blocks for _ in range(block.size)]
        logs = np.array(thetas)[:, scales]
        apart = np.linalg.norm(logs[:, None] - logs[None], axis=2)
        lowest_near = np.where(apart < self.neighbours, values, np.inf).min(axis=1)
        valleys = np.flatnonzero((values <= lowest_near) & (values <= _worse(values.min(), stage.margin)))
        best = valleys[np.argsort(values[valleys], kind="stable")[: self.n_scouts]]
        return _Scan([thetas[k] for k in np.sort(best)], len(thetas), lowest)

    def _easiest(self, result: Result, name: str, sign: float) -> dict[str, Any]:
        """The values with the lowest (highest) value of ``name`` among points nearly as good as the best."""
        good = [r.params for r in result.history if r.objective <= _worse(result.objective, self.nearly)]
        pick = min(good, key=lambda params: sign * float(np.mean(params[name])))
        return {key: np.array(value) if isinstance(value, list) else value for key, value in pick.items()}


def _worse(objective: float, factor: float) -> float:
    """An objective that is larger by a factor; criteria of others may be negative."""
    return objective + (factor - 1.0) * abs(objective)


def _distinct(thetas: list[Array]) -> list[Array]:
    """Without points that were there before."""
    return [t for k, t in enumerate(thetas) if not any(np.array_equal(t, other) for other in thetas[:k])]


def _coefficients(
    bilevel: Bilevel, end: Evaluation, index: list[Array], n_rows: int
) -> tuple[Array, Array] | None:
    """Coefficients (targets, all rows) and intercepts of one fold's smooth machines where a stage ended."""
    if not bilevel.problems[0].loss.smooth:
        return None
    problem, point = bilevel.problems[0], bilevel.solutions(end)[0]
    tasks = np.flatnonzero(problem.split == 0)
    alpha = np.zeros((len(tasks), n_rows))
    np.add.at(alpha.T, index[0][problem.folds.order], point.alpha[tasks].T)  # a row may come several times
    return alpha, point.b[tasks]


def decisions_by_row(
    bilevel: Bilevel, best: Evaluation, index: list[Array], n_rows: int
) -> tuple[Array, Array]:
    """Decisions (targets, rows) and intercepts (targets,), averaged over the folds, at an evaluation."""
    first = bilevel.problems[0]
    total, count, b = np.zeros((first.n_targets, n_rows)), np.zeros(n_rows), []
    for problem, point, rows in zip(bilevel.problems, bilevel.solutions(best), index, strict=True):
        shape = (problem.n_targets, problem.n_splits, -1)
        own = rows[problem.folds.order]
        total[:, own] += point.decisions.reshape(shape).sum(axis=1)
        count[own] += problem.n_splits
        b.append(point.b.reshape(shape[:2]).mean(axis=1))
    return total / np.maximum(count, 1.0), np.mean(b, axis=0)
