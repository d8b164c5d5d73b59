"""From a plan to a result: stages, the method from every starting point, and what is checked at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from joblib import Parallel, delayed

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.checkpoint import Checkpoint
from foldwise.deadline import OutOfTime
from foldwise.models.base import Array
from foldwise.models.kernel import MemoryLimitError
from foldwise.optimizers.base import Minimizer, Trace, plain_params, run_to_end
from foldwise.result import CUT_SHORT, MESSAGES, Record, Result, Status, foremost, merge
from foldwise.search.choice import OneStandardError
from foldwise.search.confirm import Confirmation
from foldwise.search.findings import constant_error, findings
from foldwise.search.judge import Judge
from foldwise.search.plan import NEWTON_SIZE, SearchPlan
from foldwise.search.prepare import Program
from foldwise.search.stages import Prelude, StagePlayer
from foldwise.search.trust import Trust
from foldwise.space import Space

__all__ = ["Halt", "SearchRun"]


@dataclass(frozen=True)
class Halt(Minimizer):
    """Evaluates its start and ends with a given status: a search that was cut short in a stage before it.

    ``method`` is the one which did not come to run: its name is shown, and what it does not admit is not returned.
    ``order`` says which derivatives the end is judged by.
    """

    looks_around: ClassVar[bool] = False
    status: Status
    method: Minimizer
    order: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.method.name)

    def feasible(self, space: Space, theta: Array) -> Array:
        """The point near ``theta`` that the method may start from."""
        return self.method.feasible(space, theta)

    def admits(self, space: Space, theta: Array) -> bool:
        """Whether the method may return ``theta``."""
        return self.method.admits(space, theta)

    def check(self, bilevel: Bilevel) -> None:
        """Refuse what the method refuses."""
        self.method.check(bilevel)

    def accuracy(self) -> float:
        """The accuracy that was asked of the method."""
        return self.method.accuracy()

    def iterate(self, trace: Trace, theta: Array) -> Status:
        """Evaluate ``theta``."""
        trace.evaluate(theta, order=self.order, note="start")
        return self.status


@dataclass(eq=False)
class _Ending:
    """How a search ended: results of before, those that count, their program, and what is known about landmarks."""

    before: list[Result]
    outcomes: list[Result]
    bilevel: Bilevel
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    objective_start: float | None = None


@dataclass(eq=False)
class SearchRun:
    """One run of a plan: call :meth:`result` once.

    Attributes
    ----------
    program, plan : what is searched, and how
    journal : where evaluations are kept, or None
    limits : callback, deadline, and when the search began
    n_jobs : threads for starting points
    choice : how a simpler point than the best is chosen; None for the best
    confirmation : when many values of one kind are better than one; None for a search that does not ask
    value_without_landmarks : whether the end is valued without landmarks, even where they serve
    judge : the user's metric, which chooses among the points; None where the criterion does
    landmark_bound : change of a decision by landmarks, in units of the target, above which a search goes on without
    ends : evaluations where runs ended
    selected, ended_in : the point that was selected and the program that it was found in, once they are known
    """

    program: Program
    plan: SearchPlan
    journal: Checkpoint | None
    limits: Mapping[str, Any]
    n_jobs: int | None = None
    value_without_landmarks: bool = False
    landmark_bound: ClassVar[float] = 0.01
    judge: Judge | None = None
    choice: OneStandardError | None = None
    confirmation: Confirmation | None = None
    ends: list[Evaluation] = field(default_factory=list)
    selected: Array | None = None
    ended_in: Bilevel | None = None

    @property
    def end(self) -> Evaluation | None:
        """Where the search ended; None before any evaluation, and for one that came from a checkpoint."""
        if self.selected is None:
            return min(self.ends, key=lambda end: end.objective, default=None)
        return next((end for end in self.ends if np.array_equal(end.theta, self.selected)), None)

    def result(self) -> Result:
        """Run the method from every starting point; the best result, with the history of all."""
        # 1. Stages before the search.
        prelude = self._play_stages()
        # 2. The method from each starting point.
        method, outcomes = self._search(prelude)
        # 3. Where landmarks do not serve at the end, or the user asks for them, the end without them.
        ending = self._leave_landmarks(method, prelude.results, outcomes)
        # 4. A search that ends above a constant has missed the valley: once more from where the model is nearly one.
        ending.outcomes += self._from_the_flattest(method, ending)
        result = merge(ending.before, ending.outcomes)
        self.selected, self.ended_in = np.array(result.theta), ending.bilevel
        # 5. The user's metric has the last word.
        if self.judge is not None:
            result = self._judged(self.judge, result, method, ending)
        began = result.objective_start if ending.objective_start is None else ending.objective_start
        result = replace(
            result,
            objective_start=began,
            details={**result.details, **prelude.details, **ending.facts},
            warnings=[*result.warnings, *ending.notes],
        )
        # 6. One value where many have not proved to be better, and a point that the folds cannot tell from the best.
        result = self._settled(method, prelude, result)
        return replace(result, warnings=[*result.warnings, *findings(self.program, self.end)])

    def _settled(self, method: Minimizer, prelude: Prelude, best: Result) -> Result:
        """The result at a simpler point, where one is to be taken; what the best was is kept beside."""
        whole, result, reasons = self.ended_in, best, []
        if (
            self.confirmation is not None
            and best.status not in CUT_SHORT
            and self.confirmation.applies(self.program, method)
        ):
            result, reason = self._one_value(self.confirmation, method, prelude, result)
            reasons += [reason] if reason else []
        if self.choice is not None and result.status not in CUT_SHORT:
            result, moved = self._simpler(self.choice, method, result)
            reasons += ["a simpler point was chosen"] if moved else []
        if not reasons:
            return result
        assert whole is not None
        return self._taken(whole, result, "; ".join(reasons))

    def _one_value(
        self, rule: Confirmation, method: Minimizer, prelude: Prelude, result: Result
    ) -> tuple[Result, str]:
        """Hold many values of one kind against one; the reason why the one is taken, if it is."""
        program, many = self.program, (self.ended_in, self.end)
        if many[0] is None or many[1] is None:
            return result, ""
        one = program.recipe.bilevel(program.model, rule.dimensions(program), relatives=many[0].problems)
        values = prelude.values or {name: np.asarray(value) for name, value in result.params.items()}
        found = self._run(method, one, "one value", [program.model.point(one.space, values)])[0]
        end = self.ends[-1]
        result = _longer(result, found.history, found.n_inner_steps)
        if found.status in CUT_SHORT:
            return replace(result, status=found.status, message=found.message), ""
        verdict = rule.judge(program, (many[0].twin(), many[1]), (one.twin(), end))
        if verdict is None:
            return result, ""
        result = replace(result, details={**result.details, **verdict.details()})
        if verdict.confirmed:
            return result, ""
        self.ended_in, self.selected = one, end.theta
        return result, rule.reason(program)

    def _simpler(self, rule: OneStandardError, method: Minimizer, result: Result) -> tuple[Result, bool]:
        """Go from the point that was selected to the one that the rule takes, if it is another."""
        assert self.ended_in is not None
        assert self.selected is not None
        bilevel, limits = self._kept(self.ended_in, "choice")(0), self.limits
        admits = partial(method.admits, bilevel.space)
        trace = Trace(bilevel, limits["callback"], limits["deadline"], 0, limits["began"], admits, True)
        try:
            chosen = rule.choose(self.program, trace, self.selected)
        except (OutOfTime, KeyboardInterrupt) as stop:  # before the best point was evaluated again
            status = Status.TIME_LIMIT if isinstance(stop, OutOfTime) else Status.INTERRUPTED
            return replace(result, status=status, message=MESSAGES[status]), False
        result = _longer(result, trace.history, bilevel.n_inner_steps)
        if chosen.status is not None:
            result = replace(result, status=chosen.status, message=MESSAGES[chosen.status])
        if np.array_equal(chosen.evaluation.theta, self.selected):
            return result, False
        bilevel.solutions(chosen.evaluation)  # which one from a checkpoint has to compute
        self.ends.append(chosen.evaluation)
        self.selected = chosen.evaluation.theta
        return result, True

    def _taken(self, whole: Bilevel, best: Result, reason: str) -> Result:
        """The result at the point that was selected instead of the best, as a point of the whole program."""
        bilevel, end = self.ended_in, self.end
        assert bilevel is not None
        assert end is not None
        result = best
        if bilevel is not whole:  # many values are one there
            theta = whole.space.theta(bilevel.space.params(end.theta))
            bilevel = self._kept(whole, "taken")(0)
            trace = Trace(bilevel, None, began=self.limits["began"])
            end = trace.evaluate(theta, note="taken")
            result = _longer(result, trace.history, bilevel.n_inner_steps)
        certificate = bilevel.certify(end)
        del certificate["gradient_norm"]  # as promised_decrease it is that of the search's own end
        result = replace(
            result,
            theta=end.theta.tolist(),
            params=plain_params(bilevel.space.params(end.theta)),
            objective=end.objective,
            fold_objectives=bilevel.by_fold(end).tolist(),
            **certificate,
        )
        facts = {"params": best.params, "error": best.error, "objective": best.objective}
        return replace(result, best={**facts, "difference": result.error - best.error, "reason": reason})

    def settled(self, result: Result, record: Record) -> Result:
        """The result at the point of one of its records, which the criterion did not choose."""
        assert self.ended_in is not None
        bilevel, theta = self.ended_in, _point_of(record, self.program.bilevel.space)
        if self.selected is not None and np.array_equal(theta, self.selected):
            return result
        self.selected = theta
        if self.end is None:
            self.ends.append(bilevel.twin().evaluate(theta, None))
        assert self.end is not None
        before = {"objective": result.objective, "params": result.params}
        return replace(
            result,
            theta=theta.tolist(),
            params=record.params,
            objective=record.objective,
            fold_objectives=record.fold_objectives,
            promised_decrease=None,
            details={"criterion_minimum": before, **result.details},
            **bilevel.twin().certify(self.end),
        )

    def _judged(self, judge: Judge, result: Result, method: Minimizer, ending: _Ending) -> Result:
        """The result at the point that the user's metric likes best, after a few more steps around it."""
        first = 0 if self.program.landmarks is None else sum(len(one.history) for one in ending.before)
        best = judge.best(result.history[first:])
        if result.status not in CUT_SHORT and self.end is not None and (method.needs_gradient or judge.extra):
            bilevel = self._kept(ending.bilevel, "polish")(0)
            history, status, end = judge.polished(
                bilevel,
                self.end,
                _point_of(best, self.program.bilevel.space),
                best,
                self.limits,
                method,
            )
            if end is not None:
                bilevel.solutions(end)  # which one from a checkpoint has to compute
                self.ends.append(end)
            result = _extended(result, history, status)
            best = judge.best(result.history[first:])
        return self.settled(result, best)

    def trust(self) -> Trust | None:
        """What the end says about new rows; None where no end is known."""
        if self.end is None or self.ended_in is None:
            return None
        return Trust(self.program, self.ended_in.twin(), self.end)

    def _play_stages(self) -> Prelude:
        """What the stages found; with a start for the search where they found one."""
        program, stages = self.program, self.plan.stages
        if not stages:
            return Prelude()
        player = StagePlayer(
            program.model,
            program.starting_values,
            program.bilevel.space,
            program.facts.n_rows,
            self.limits,
            lambda bilevel, name: self._kept(bilevel, name)(0),
        )
        prelude = player.play(stages)
        # What follows a stage that was cut short is not on the way of the whole search.
        if prelude.ended is not None:
            self.journal = None
        return prelude

    def _search(self, prelude: Prelude) -> tuple[Minimizer, list[Result]]:
        """The method's results, and the method: one that halts where a stage was cut short."""
        program, plan = self.program, self.plan
        bilevel, method = program.bilevel, plan.method
        starts, candidates = list(plan.starts), plan.candidates
        if prelude.values is not None:
            starts[0] = program.model.point(bilevel.space, prelude.values)
            candidates = [program.model.point(bilevel.space, other) for other in prelude.others]
            bilevel = prelude.seed(bilevel, starts[0], [sheet.index for sheet in program.recipe.sheets])
        if prelude.ended is not None:
            method, starts, candidates = Halt(prelude.ended, method), starts[:1], []
        try:
            return method, self._run(method, bilevel, "search", starts, candidates)
        except KeyboardInterrupt:  # before the first evaluation; the stages' end is worth one
            if prelude.values is None:
                raise
            self.journal = None
            method = Halt(Status.INTERRUPTED, method)
            return method, self._run(method, bilevel, "search", starts[:1])

    def _leave_landmarks(self, method: Minimizer, before: list[Result], outcomes: list[Result]) -> _Ending:
        """Go on without landmarks where they do not serve, or value the end without them where they were asked for."""
        bilevel, best = self.program.bilevel, foremost(outcomes)
        seen = best.approximation
        rough = seen is not None and seen["bound"] > self.landmark_bound * _decision_unit(bilevel)
        if seen is None or not (self.value_without_landmarks or rough):
            return _Ending(before, outcomes, bilevel)
        facts: dict[str, Any] = {f"landmark_{name}": value for name, value in seen.items()}
        facts["landmark_objective"] = best.objective
        first = _first_point([*before, *outcomes], bilevel.space)
        if self.value_without_landmarks:
            method = self._halt_at(best.status, method)
        try:
            whole = self.program.without_landmarks()
        except MemoryLimitError as error:
            note = (
                f"the error is that of the kernel seen through {seen['landmarks']} landmarks, which may change a "
                f"decision by {seen['bound']:.2g}, and it could not be checked: {error}"
            )
            return _Ending(before, outcomes, bilevel, facts, [note])
        self.ends.clear()
        again = self._run(method, whole, "exact", [np.array(best.theta)], [first])
        began = _value_at(first, again, whole.space)
        return _Ending([*before, *outcomes], again, whole, facts, objective_start=began)

    def _halt_at(self, status: Status, method: Minimizer) -> Halt:
        """Value the end once more; whether training problems are solved without landmarks is judged anew."""
        criterion, size = self.program.bilevel.criterion, self.program.bilevel.space.size
        follows = method.needs_gradient and criterion.differentiable
        order = 0 if not follows else 2 if criterion.has_curvature and size <= NEWTON_SIZE else 1
        return Halt(Status.STALLED if status is Status.UNSOLVED else status, method, order)

    def _from_the_flattest(self, method: Minimizer, ending: _Ending) -> list[Result]:
        """Results of one more run where the search ended above the error of a constant; none otherwise."""
        best, level = foremost(ending.outcomes), constant_error(self.program, self.end)
        again = method.restarts and not method.finds_own_start  # others would repeat what they did
        if not again or best.status in CUT_SHORT or level is None or best.objective <= level:
            return []
        flattest = self.program.model.flattest(ending.bilevel.space)
        return self._run(method, ending.bilevel, "flat", [flattest])

    def _run(
        self,
        method: Minimizer,
        bilevel: Bilevel,
        name: str,
        starts: list[Array],
        candidates: list[Array] | None = None,
    ) -> list[Result]:
        """One result per starting point; a search that was cut short ends there."""
        program = self._kept(bilevel, name)

        def one(index: int) -> Result:
            points, own = candidates or [] if index == 0 else [], program(index)
            options = {"start": index, "candidates": points, "look": True, **self.limits}
            result, end = run_to_end(method, own, starts[index], **options)
            self.ends.append(end)
            return result

        if len(starts) > 1 and self.n_jobs not in (None, 1):
            threads = Parallel(n_jobs=self.n_jobs, prefer="threads")
            return list(threads(delayed(one)(i) for i in range(len(starts))))
        outcomes: list[Result] = []
        for index in range(len(starts)):
            try:
                outcomes.append(one(index))
            except KeyboardInterrupt:  # before this start had a point to return
                if not outcomes:
                    raise
                status = Status.INTERRUPTED
                outcomes[-1] = replace(outcomes[-1], status=status, message=MESSAGES[status])
            if outcomes[-1].status in CUT_SHORT:
                break
        return outcomes

    def _kept(self, bilevel: Bilevel, name: str) -> Callable[[int], Bilevel]:
        """From the number of a starting point to a program of its own, whose evaluations the checkpoint keeps."""
        journal = self.journal
        if journal is None:
            return lambda index: bilevel.twin()
        return lambda index: journal.wrap(bilevel.twin(), f"{name} {index}")


def _longer(result: Result, history: list[Record], steps: int) -> Result:
    """The result with further evaluations, which were none of its own objective's."""
    count, lowest = len(result.history), result.history[-1].best
    more = [replace(one, evaluation=count + k, best=lowest) for k, one in enumerate(history)]
    return replace(
        result,
        history=[*result.history, *more],
        n_evaluations=count + len(more),
        n_inner_steps=result.n_inner_steps + steps,
    )


def _value_at(theta: Array, results: list[Result], space: Space) -> float:
    """The objective that was found at a point; at the start of these runs where it was not evaluated."""
    params = plain_params(space.params(theta))
    found = [record.objective for result in results for record in result.history if record.params == params]
    return found[0] if found else results[0].objective_start


def _first_point(results: list[Result], space: Space) -> Array:
    """The first point that was evaluated at all."""
    return _point_of(results[0].history[0], space)


def _point_of(record: Record, space: Space) -> Array:
    """The point of a record."""
    return space.clip(space.theta({name: np.asarray(value) for name, value in record.params.items()}))


def _extended(result: Result, history: list[Record], status: Status) -> Result:
    """The result with evaluations that came after it, and the status of these where they were cut short."""
    lowest, records = result.objective, list(result.history)
    for record in history:
        lowest = min(lowest, record.objective if record.admissible else np.inf)
        records.append(replace(record, evaluation=len(records), best=lowest))
    result = replace(result, history=records, n_evaluations=len(records))
    return replace(result, status=status, message=MESSAGES[status]) if status in CUT_SHORT else result


def _decision_unit(bilevel: Bilevel) -> float:
    """Unit of a decision: 1 for classes, the standard deviation of the target otherwise."""
    return max(float(np.std(bilevel.problems[0].Y)), np.finfo(float).tiny)
