"""The record of a method's evaluations, and the limits at which it is stopped."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.deadline import OutOfTime, until
from foldwise.optimizers.quadratic import REACH, promising_step
from foldwise.result import KKT_TOL, Record, Status
from foldwise.space import natural_units

__all__ = ["Observer", "StopSearch", "Trace", "plain_params"]


Observer = Callable[[Bilevel, Evaluation, bool], dict[str, list[float]]]
"""What is to be known of a point beside its objective; see :class:`Trace`."""


class StopSearch(Exception):
    """Raised inside a method when a limit is reached; carries the status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status


LOOKS = (-REACH, -0.2 * REACH, 0.2 * REACH, REACH)
"""Steps of a look around, in natural units: the one by which a promised decrease is defined, and a smaller one."""
REMEDY = "scale the features (StandardScaler), narrow the bounds, or start elsewhere (method_options={'start': ...})"
"""What to do where a training problem has no finite answer."""


class Trace:
    """Evaluates for a method, remembers the best point, and stops it when a limit is reached.

    A method may evaluate points that it must not return; only those that it admits count as best, and before the first
    of them ``best`` is None. Points whose training problems are not solved count only where none are.

    What a method knows beyond its evaluations it writes into ``details``, as plain values; the result carries them. A
    method that sees further than the gradient at a point (kinks around it) says with :meth:`vouch` what is left there;
    what was seen to be left, by evaluations around it, goes before that: :meth:`look_around`.

    Parameters
    ----------
    bilevel : Bilevel
    callback : callable(Record) -> bool or None
        Called after every evaluation; True stops the search.
    deadline : float, optional
        ``time.perf_counter()`` value after which the search stops.
    start : int
        Index of the starting point, for the records.
    admits : callable(theta) -> bool, optional
        Whether a point keeps the method's constraints; by default every point does.
    may_abandon : bool
        Whether the first evaluation, too, is abandoned when the deadline is over.
    observe : callable(bilevel, evaluation, admissible) -> dict, optional
        What else is to be known of every point that is recorded: numbers by name, for ``Record.metrics``.
    """

    def __init__(
        self,
        bilevel: Bilevel,
        callback: Callable[[Record], Any] | None = None,
        deadline: float | None = None,
        start: int = 0,
        began: float | None = None,
        admits: Callable[[np.ndarray], bool] | None = None,
        may_abandon: bool = False,
        observe: Observer | None = None,
    ) -> None:
        self.admits, self.may_abandon, self.observe = admits, may_abandon, observe
        self.bilevel, self.callback, self.deadline, self.start = bilevel, callback, deadline, start
        self.space = bilevel.space
        self.history: list[Record] = []
        self.best: Evaluation | None = None
        self._best_record: Record | None = None
        self._best_solved = False
        self.details: dict[str, Any] = {}
        self.warnings: list[str] = []
        self._vouched: tuple[Evaluation, float] | None = None
        self._seen: tuple[Evaluation, float] | None = None
        self.began = time.perf_counter() if began is None else began
        self.steps_before = bilevel.n_inner_steps

    def go_on_from(self, evaluation: Evaluation) -> None:
        """Know a point that was found and recorded before, so that there is something to return."""
        self.best, self._best_solved = evaluation, self._solved(evaluation)

    def evaluate(
        self,
        theta: np.ndarray,
        warm: Evaluation | None = None,
        order: int = 0,
        exact: bool = True,
        note: str = "",
    ) -> Evaluation:
        """The objective at ``theta`` and, for ``order`` 1 or 2, its derivatives; recorded.

        The best point so far is not evaluated again, only differentiated.
        """
        if self.best is not None and order and np.array_equal(theta, self.best.theta):
            return self.differentiate(self.best, order, exact)
        if self.best is not None and not np.all(np.isfinite(theta)):  # derivatives that are not, lead nowhere
            raise StopSearch(Status.STALLED)
        with self._within(self.best is not None or self.may_abandon):
            evaluation = self.bilevel.evaluate(theta, warm)
        if order and not np.isfinite(evaluation.objective):
            if self.best is None:
                raise ValueError(f"the cross-validation error is not finite at the first point; {REMEDY}")
            raise StopSearch(Status.STALLED)
        if order:
            try:
                with self._within(True):
                    self.bilevel.differentiate(evaluation, order, exact)
            except StopSearch:
                self.record(evaluation, note)  # its value is known
                raise
        self.record(evaluation, note)
        return evaluation

    @contextmanager
    def _within(self, limited: bool, refuse: bool = True) -> Iterator[None]:
        """Solvers inside look at the deadline, if ``limited``; what they leave unfinished is forgotten.

        Where rounding leaves no system that can be solved, the search ends at what it has, unless that is not to be
        refused here.
        """
        try:
            with until(self.deadline if limited else None):
                yield
        except OutOfTime:
            self.bilevel.reset()
            raise StopSearch(Status.TIME_LIMIT) from None
        except FloatingPointError as error:
            if not refuse:
                raise
            self.bilevel.reset()
            if self.best is None:
                raise ValueError(
                    f"the training problems of the first point cannot be solved: {error}; {REMEDY}"
                ) from error
            self.warnings.append(
                f"the search ended at a point whose training problems cannot be solved: {error}; {REMEDY}"
            )
            raise StopSearch(Status.STALLED) from None

    def differentiate(self, evaluation: Evaluation, order: int = 1, exact: bool = True) -> Evaluation:
        """Derivatives of an evaluation that was recorded without them."""
        with self._within(True):
            self.bilevel.differentiate(evaluation, order, exact)
        if evaluation is self.best and self._best_record is not None:
            self._best_record.gradient_norm = self.bilevel.gradient_norm(evaluation)
        return evaluation

    def record(self, evaluation: Evaluation, note: str = "") -> None:
        """Remember an evaluation; stop the search when a limit is reached.

        What training problems that are not solved say of a point is worth nothing beside a point where they are: such
        points may be returned only as long as there are no others.
        """
        value, solved = evaluation.objective, self._solved(evaluation)
        admissible = self.admits is None or self.admits(evaluation.theta)
        admissible = admissible and (solved or not self._best_solved)
        lower = self.best is None or (np.isfinite(value) and not self.best.objective <= value)
        better = admissible and (lower or (np.isfinite(value) and solved and not self._best_solved))
        if better:
            self.best = evaluation
            if solved and not self._best_solved:
                self._best_solved = True
                for earlier in self.history:
                    earlier.admissible = False
        norm = None
        if evaluation.gradient is not None:
            norm = self.bilevel.gradient_norm(evaluation)
        record = Record(
            start=self.start,
            evaluation=len(self.history),
            objective=evaluation.objective,
            best=float("inf") if self.best is None else self.best.objective,
            params=plain_params(self.space.params(evaluation.theta)),
            gradient_norm=norm,
            elapsed=time.perf_counter() - self.began,
            note=note,
            fold_objectives=self.bilevel.by_fold(evaluation).tolist(),
            admissible=admissible,
            metrics={} if self.observe is None else self.observe(self.bilevel, evaluation, admissible),
        )
        self.history.append(record)
        if better:
            self._best_record = record
        if self.callback is not None and self.callback(deepcopy(record)):
            raise StopSearch(Status.STOPPED)
        if self.deadline is not None and time.perf_counter() > self.deadline:
            raise StopSearch(Status.TIME_LIMIT)

    def _solved(self, evaluation: Evaluation) -> bool:
        """Whether the training problems of a point are solved: by their solver's word, or else by their residuals."""
        if evaluation.converged:
            return True
        with np.errstate(all="ignore"):
            return bool(np.all(np.array(self.bilevel.residuals(evaluation)) <= KKT_TOL))

    def vouch(self, evaluation: Evaluation, promised: float) -> None:
        """Say that, kinks around it included, a point promises this share of the objective within a tenth of a unit."""
        self._vouched = evaluation, promised

    def look_around(self, enough: float, steps: Sequence[float] | None = None, note: str = "") -> bool:
        """Evaluate steps along every entry of the best point; whether one gains more than ``enough`` of it.

        Derivatives say what a step gains while no row changes its kind. Of few rows each counts for much, and at a
        kink, or where a slope changes within a step, they promise too little.

        Parameters
        ----------
        enough : float
            Share of the objective.
        steps : sequence of float, optional
            In natural units; small ones by default.
        note : str
            Every evaluation is recorded with it. Without one only a point that gains enough is.
        """
        here, unit = self.best, natural_units(self.space)
        assert here is not None
        best = here
        for i, step in itertools.product(range(self.space.size), LOOKS if steps is None else steps):
            theta = here.theta.copy()
            theta[i] += step * unit[i]
            theta = self.space.clip(theta)
            if theta[i] == here.theta[i] or not (self.admits is None or self.admits(theta)):
                continue
            try:
                with self._within(True, refuse=False):
                    there = self.bilevel.evaluate(theta, here)
            except FloatingPointError:  # nothing to be seen there
                self.bilevel.reset()
                continue
            if note:
                self.record(there, note)
            else:
                self.details["looks"] = self.details.get("looks", 0) + 1
            if there.objective < best.objective and (self._solved(there) or not self._best_solved):
                best = there
        gain = (here.objective - best.objective) / max(abs(here.objective), np.finfo(float).tiny)
        self._seen = here, gain
        if gain > enough and not note:
            self.record(best, "look")
        return gain > enough

    def promised(self) -> float | None:
        """The share of the objective that a small step from the best point may gain.

        By its derivatives, or less where a method vouches for that and the step that these promise does not gain it: at
        a kink. But not less than what evaluations around showed.
        """
        assert self.best is not None
        found = promising_step(self.bilevel, self.best)
        promised = None if found is None else found[1]
        vouched, seen = self._known(self._vouched), self._known(self._seen)
        if vouched is not None and found is None:
            promised = vouched
        elif vouched is not None and found is not None and vouched < found[1]:
            promised = max(vouched, min(found[1], self._gain(found[0])))
        if seen is not None and promised is not None:
            promised = max(promised, seen)
        return promised

    def _gain(self, step: np.ndarray) -> float:
        """The share of the objective that a step from the best point gains, or a fifth of it; infinite when unknown."""
        here = self.best
        assert here is not None
        lowest = here.objective if np.any(step) else -np.inf
        for share in (1.0, 0.2):
            theta = self.space.clip(here.theta + share * step)
            if not (self.admits is None or self.admits(theta)):
                continue
            try:
                with self._within(True, refuse=False):
                    there = self.bilevel.evaluate(theta, here)
            except (StopSearch, FloatingPointError):
                self.bilevel.reset()
                return np.inf
            self.details["looks"] = self.details.get("looks", 0) + 1
            if self._solved(there):
                lowest = min(lowest, there.objective)
        return (here.objective - lowest) / max(abs(here.objective), np.finfo(float).tiny)

    def _known(self, said: tuple[Evaluation, float] | None) -> float | None:
        """What was said of the best point."""
        if said is None or self.best is None:
            return None
        point, share = said
        return share if point is self.best or np.array_equal(point.theta, self.best.theta) else None


def plain_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameter values as floats and lists, which JSON keeps."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in params.items()
    }
