"""What every outer method shares: how it is run within its limits, and the result it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from foldwise.arguments import Table, check_arguments
from foldwise.bilevel import Bilevel, Evaluation
from foldwise.optimizers.trace import REMEDY, Observer, StopSearch, Trace, plain_params
from foldwise.result import KINKED_TOL, KKT_TOL, MESSAGES, SMOOTH_TOL, Record, Result, Status, judged
from foldwise.space import Space

__all__ = [
    "Minimizer",
    "Observer",
    "Optimizer",
    "StopSearch",
    "Trace",
    "largest_promise",
    "plain_params",
    "run",
    "run_to_end",
]


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


LOOK_ROWS, LOOK_SIZE = 300, 8
"""A point is looked around for up to this many rows and hyper-parameters; of more rows, each counts for little."""
ROUNDS, RESTARTS = 10, 2
"""How often a better point around the end is gone on from, and how often by the method itself."""


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
