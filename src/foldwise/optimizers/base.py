"""What every outer method shares: the record of its evaluations, its limits, and the result it returns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from foldwise.arguments import Table, check_arguments
from foldwise.bilevel import Bilevel, Evaluation
from foldwise.deadline import OutOfTime, until
from foldwise.optimizers.quadratic import REACH, natural_units, promising_step
from foldwise.result import KINKED_TOL, KKT_TOL, MESSAGES, SMOOTH_TOL, Record, Result, Status, judged
from foldwise.space import Space

__all__ = [
    "Minimizer",
    "Observer",
    "Optimizer",
    "StopSearch",
    "Trace",
    "largest_promise",
    "run",
    "run_to_end",
]


Observer = Callable[[Bilevel, Evaluation, bool], dict[str, list[float]]]
"""What is to be known of a point beside its objective; see :class:`Trace`."""


class StopSearch(Exception):
    """Raised inside a method when a limit is reached; carries the status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status


class Optimizer(Protocol):
    """An outer method: moves ``theta`` to lower the cross-validation error."""

    name: str
    needs_gradient: ClassVar[bool]
    looks_around: ClassVar[bool]
    finds_own_start: ClassVar[bool]

    def feasible(self, space: Space, theta: np.ndarray) -> np.ndarray:
        """The point near ``theta`` that the method may start from."""
        ...

    def admits(self, space: Space, theta: np.ndarray) -> bool:
        """Whether ``theta`` keeps the constraints of the method beyond the bounds: only such points are returned."""
        ...

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``, evaluating through ``trace``; return how it ended."""
        ...

    def check(self, bilevel: Bilevel) -> None:
        """Refuse a program that the method cannot minimise; called before any evaluation."""
        ...

    def message(self, status: Status) -> str:
        """What the ending means, in a sentence."""
        ...

    def accuracy(self) -> float:
        """The relative accuracy of the objective that was asked for; 0 where the method has no such tolerance."""
        ...

    def minimize(
        self, bilevel: Bilevel, theta0: np.ndarray, *, callback: Callable[[Record], Any] | None = None
    ) -> Result:
        """Run from ``theta0`` and return the best evaluated point with its certificate."""
        ...


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


LOOKS = (-REACH, -0.2 * REACH, 0.2 * REACH, REACH)
"""Steps of a look around, in natural units: the one by which a promised decrease is defined, and a smaller one."""
LOOK_ROWS, LOOK_SIZE = 300, 8
"""A point is looked around for up to this many rows and hyper-parameters; of more rows, each counts for little."""
ROUNDS, RESTARTS = 10, 2
"""How often a better point around the end is gone on from, and how often by the method itself."""


REMEDY = "scale the features (StandardScaler), narrow the bounds, or start elsewhere (method_options={'start': ...})"
"""What to do where a training problem has no finite answer."""


def run(optimizer: Optimizer, bilevel: Bilevel, theta0: np.ndarray, **options: Any) -> Result:
    """The result of :func:`run_to_end`, which has the options, without the evaluation."""
    return run_to_end(optimizer, bilevel, theta0, **options)[0]


def run_to_end(
    optimizer: Optimizer,
    bilevel: Bilevel,
    theta0: np.ndarray,
    *,
    callback: Callable[[Record], Any] | None = None,
    deadline: float | None = None,
    start: int = 0,
    began: float | None = None,
    candidates: Sequence[np.ndarray] = (),
    may_abandon: bool = False,
    look: bool = False,
    observe: Observer | None = None,
) -> tuple[Result, Evaluation]:
    """Run a method within its limits. The point returned is the best admissible one evaluated, certified from the rows;
    with it the evaluation that it comes from.

    Ctrl-C ends the search, not the program: the best point so far is returned with that status. Before any
    evaluation is complete there is nothing to return, and the interrupt passes through. ``candidates`` are further
    starting points: all are evaluated and the method starts from the best.

    An evaluation that is under way at the deadline is abandoned, but the first is completed: without it there is
    nothing to return. With ``may_abandon`` that one is abandoned too, and :class:`StopSearch` passes through.

    ``observe`` is called with every point that is recorded; see :class:`Trace`. With ``look`` an end that a method
    calls a minimum is looked around where rows are few, and gone on from where that shows a better point.
    """
    optimizer.check(bilevel)
    admits = partial(optimizer.admits, bilevel.space)
    trace = Trace(bilevel, callback, deadline, start, began, admits, may_abandon, observe)
    try:
        theta0 = optimizer.feasible(bilevel.space, np.asarray(theta0, float))
        if np.any(bilevel.space.upper > bilevel.space.lower):
            if len(candidates):
                theta0 = _scan(trace, [theta0, *(optimizer.feasible(bilevel.space, c) for c in candidates)])
            status = optimizer.iterate(trace, theta0)
            if look and optimizer.looks_around and _worth_a_look(trace):
                status = _settled(optimizer, trace, status)
        else:  # nothing to move
            trace.evaluate(theta0, note="start")
            status = Status.EXHAUSTED
    except StopSearch as stop:
        if trace.best is None and may_abandon:
            raise
        status = stop.status
    except KeyboardInterrupt:
        if trace.best is None:
            raise
        bilevel.reset()
        status = Status.INTERRUPTED
    if trace.best is None and trace.history:
        raise ValueError(
            f"method {optimizer.name!r} ended ({status.value}) before any of its {len(trace.history)} points kept its "
            "constraints, so there is nothing to return; give it a start that keeps them, more time, or wider limits"
        )
    if trace.best is None:
        raise ValueError(
            f"method {optimizer.name!r} evaluated no point; its max_iter or points must be at least 1"
        )
    if not np.isfinite(trace.best.objective):
        raise ValueError(
            f"the cross-validation error is not finite at any point that was evaluated; {REMEDY}"
        )
    return _result(optimizer, trace, status), trace.best


def _scan(trace: Trace, candidates: list[np.ndarray]) -> np.ndarray:
    """The candidate with the lowest objective."""
    warm = None
    for theta in candidates:
        warm = trace.evaluate(theta, warm=warm, note="scan")
    return candidates[0] if trace.best is None else trace.best.theta


def _worth_a_look(trace: Trace) -> bool:
    """Whether evaluations around the end cost little and can tell something."""
    bilevel = trace.bilevel
    rows = max(problem.Y.shape[-1] for problem in bilevel.problems)
    small = rows <= LOOK_ROWS and bilevel.space.size <= LOOK_SIZE
    return small and bilevel.criterion.differentiable


def _settled(optimizer: Optimizer, trace: Trace, status: Status) -> Status:
    """Look around the end of a method, and go on from a better point while there is one.

    A method that finds its own starts, and describes where it ended, is not gone on from: what is seen is said.
    """
    limit = np.inf if optimizer.finds_own_start else largest_promise(optimizer, trace.bilevel)
    for k in range(ROUNDS):
        if status not in (Status.CONVERGED, Status.STALLED) or trace.best is None:
            return status
        try:
            if not trace.look_around(limit):
                return status
        except StopSearch as stop:
            if stop.status is Status.TIME_LIMIT:
                return status  # the method had ended by then
            raise
        if k < RESTARTS:
            status = optimizer.iterate(trace, trace.best.theta)
    trace.look_around(np.inf)  # what is left, for the judgement
    return status


def largest_promise(optimizer: Optimizer, bilevel: Bilevel) -> float:
    """The largest promised decrease of a point that is called converged."""
    kinked = bilevel.criterion.polyhedral or any(problem.loss.polyhedral for problem in bilevel.problems)
    return max(KINKED_TOL if kinked else SMOOTH_TOL, 10.0 * optimizer.accuracy())


def _result(optimizer: Optimizer, trace: Trace, status: Status) -> Result:
    best, bilevel = trace.best, trace.bilevel
    assert best is not None
    certificate = bilevel.certify(best)
    warnings = list(trace.warnings)
    if not best.converged:
        warnings.append(
            "a training problem did not converge; scale the features (StandardScaler), or raise the solver's max_iter"
        )
    result = Result(
        theta=best.theta.tolist(),
        params=plain_params(bilevel.space.params(best.theta)),
        objective=best.objective,
        objective_start=next(record.objective for record in trace.history if record.admissible),
        fold_objectives=bilevel.by_fold(best).tolist(),
        status=status,
        message=optimizer.message(status),
        method=optimizer.name,
        history=trace.history,
        n_evaluations=len(trace.history),
        n_inner_steps=bilevel.n_inner_steps - trace.steps_before,
        elapsed=time.perf_counter() - trace.began,
        warnings=warnings,
        details=trace.details,
        promised_decrease=trace.promised(),
        tolerances={"promised_decrease": largest_promise(optimizer, bilevel), "kkt": KKT_TOL},
        **certificate,
    )
    return judged(result)


def plain_params(params: dict[str, Any]) -> dict[str, Any]:
    """Parameter values as floats and lists, which JSON keeps."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in params.items()
    }


class Minimizer:
    """Gives a method its public ``minimize``.

    A search asks a method what it is by these fields, never by its name; subclasses inherit them.

    Attributes
    ----------
    name : what results call it
    needs_gradient : whether it follows hypergradients
    uses_start : whether the point that it is started from matters
    finds_own_start : whether it looks for starting points itself, so that it is given one only
    plays_stages : whether cheaper searches come first that value a similar machine (a smoothed hinge, few rows)
    tol_by_model : whether its ``tol`` is a relative accuracy of the objective, with a default for every kind of model
    restarts : whether a search may run it from several points
    looks_around : whether, on few rows, an end that it calls a minimum is looked around and gone on from
    shrinks : whether its objective may have the penalty on the spread of per-feature widths
    needs_curvature : whether it follows second derivatives
    needs_loss : whether it follows criteria that are the mean of a loss alone
    limits : the method's own field for each limit of a search, such as ``tol`` and ``max_iter``
    messages : a method's own words for endings that the usual ones do not fit

    Options of a method that is a dataclass are checked against the rules in ``_arguments``.
    """

    name = ""
    needs_gradient: ClassVar[bool] = True
    uses_start: ClassVar[bool] = True
    finds_own_start: ClassVar[bool] = False
    plays_stages: ClassVar[bool] = False
    tol_by_model: ClassVar[bool] = False
    restarts: ClassVar[bool] = True
    looks_around: ClassVar[bool] = True
    shrinks: ClassVar[bool] = True
    needs_curvature: ClassVar[bool] = False
    needs_loss: ClassVar[bool] = False
    limits: ClassVar[Mapping[str, str]] = {"tol": "tol", "max_iter": "max_iter"}
    messages: ClassVar[Mapping[Status, str]] = {}
    _arguments: ClassVar[Table] = {}

    def __post_init__(self) -> None:
        check_arguments(self)

    def with_limits(self, **limits: Any) -> Minimizer:
        """The method with limits that a search was given; an error where it has none such or another value."""
        usual: dict[str, Any] = {f.name: f.default for f in fields(self)} if is_dataclass(self) else {}
        changes = {}
        for limit, value in limits.items():
            name = self.limits.get(limit, "")
            if name not in usual:
                own = ", ".join(usual) or "none that a search can set"
                raise ValueError(
                    f"method {self.name!r} has no {limit}, so {limit}={value!r} of the search cannot reach it; leave "
                    f"it out and set the method's own options ({own})"
                )
            if getattr(self, name) not in (usual[name], value):
                raise ValueError(
                    f"the search has {limit}={value!r} and the method object {name}={getattr(self, name)!r}; give it "
                    "in one of the two places"
                )
            changes[name] = value
        return replace(self, **changes) if changes else self  # type: ignore[type-var]

    def feasible(self, space: Space, theta: np.ndarray) -> np.ndarray:
        """The point near ``theta`` that the method may start from: within the bounds."""
        return space.clip(theta)

    def admits(self, space: Space, theta: np.ndarray) -> bool:
        """Whether ``theta`` keeps the constraints of the method beyond the bounds: only such points are returned."""
        return True

    def check(self, bilevel: Bilevel) -> None:
        """Refuse a program that the method cannot minimise; called before any evaluation."""
        why = bilevel.criterion.without_gradient
        if self.needs_gradient and why:
            raise ValueError(
                f"method {self.name!r} follows gradients, and there are none: {why}. Use method='grid' or 'random'"
            )
        if self.needs_gradient and not bilevel.criterion.differentiable:
            raise ValueError(
                f"method {self.name!r} follows gradients, and "
                f"{type(bilevel.criterion.loss or bilevel.criterion).__name__} has none; "
                "use method='grid' or 'random', or criterion='smooth_misclassification' or 'logistic'"
            )
        if self.needs_curvature and not bilevel.criterion.has_curvature:
            raise ValueError(
                f"method {self.name!r} needs second derivatives, and {type(bilevel.criterion).__name__} defines no "
                "curvature(out); use method='lbfgsb'"
            )
        if self.needs_loss and bilevel.criterion.loss is None:
            raise ValueError(
                f"method {self.name!r} needs a criterion that is the mean of a loss over validation rows; "
                f"{type(bilevel.criterion).__name__} is one of all rows together. Use method='newton' or 'lbfgsb'"
            )

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``; subclasses define it."""
        raise TypeError(f"{type(self).__name__} does not define iterate(trace, theta)")

    def message(self, status: Status) -> str:
        """What the ending means, in a sentence."""
        return self.messages.get(status, MESSAGES[status])

    def accuracy(self) -> float:
        """The relative accuracy of the objective that was asked for; 0 where the method has no such tolerance."""
        return float(getattr(self, "tol", 0.0)) if self.tol_by_model else 0.0

    def minimize(
        self, bilevel: Bilevel, theta0: np.ndarray, *, callback: Callable[[Record], Any] | None = None
    ) -> Result:
        """Run from ``theta0`` and return the best evaluated point with its certificate."""
        return run(self, bilevel, theta0, callback=callback)
