"""One selection: from a program, through stages and starting points, to the best result of a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.checkpoint import Checkpoint
from foldwise.design import is_wide
from foldwise.models.kernel import KernelModel, MemoryLimitError
from foldwise.optimizers import METHODS
from foldwise.optimizers.base import Minimizer, plain_params, run
from foldwise.optimizers.starts import has_boxes, several_penalties
from foldwise.problems.polyhedral import PolyhedralProblem
from foldwise.result import CUT_SHORT, MESSAGES, Result, Status, foremost, merge
from foldwise.search.plan import Halt, Prelude
from foldwise.search.prepare import Program
from foldwise.space import Space

__all__ = ["Settings", "choose_method", "select"]

LOW_RANK_BOUND = 0.01
"""Change of a decision by landmarks, in units of the target, above which a search goes on without them."""
NEWTON_SIZE = 300
"""Hyper-parameters up to which second derivatives are worth their cost."""
SCAN_SIZE = 4
"""With at most this many hyper-parameters a scan of a few points chooses the start; with more, two starts run."""
KERNEL_TOL = 1e-4
"""Relative accuracy of the objective for kernel machines, whose evaluations are dear."""
EXACT_TOL = 1e-3
"""The same for exact machines (hinge, tube), whose error has a kink wherever a row changes its kind."""
WIDE_TOL = 1e-5
"""The same for linear models on sparse data, with more columns than rows, or with many hyper-parameters."""
POLLS = 2
"""How often the search over an exact kernel machine with few hyper-parameters looks around before it ends."""
BUNDLE_ROWS = 300
"""Rows up to which "auto" takes the bundle method for an exact machine and a criterion with kinks."""


@dataclass(frozen=True, eq=False)
class Settings:
    """What the user asked for, as :class:`~foldwise.search.BilevelSearchCV` documents it.

    ``start`` holds starting values by name, or None; ``options`` are the method's; ``mass`` is the total weight of the
    rows.
    """

    method: Any
    start: Mapping[str, Any] | None
    options: Mapping[str, Any]
    tol: float | None
    max_iter: int | None
    n_starts: int | None
    n_jobs: int | None
    low_rank: bool | str
    mass: float
    seed: int


def select(
    program: Program, optimizer: Any, settings: Settings, journal: Checkpoint | None, limits: dict[str, Any]
) -> Result:
    """Run the method from every starting point; the best result, with the history of all."""
    bilevel = program.bilevel
    optimizer.check(bilevel)
    before: list[Result] = []
    ends: list[Evaluation] = []
    # 1. Where to start: stages before the search, points with a reason, random ones.
    optimizer, starts, candidates, prelude = _starts(program, optimizer, settings, journal, limits)
    before += prelude.results
    # 2. The method from each of them. What follows a stage that was cut short is not on the way of the whole search.
    journal = journal if prelude.ended is None else None
    kept = _kept(bilevel, journal, "search")
    try:
        outcomes = _run(optimizer, kept, starts, candidates, limits, ends, settings.n_jobs)
    except KeyboardInterrupt:  # before the first evaluation; the stages' end is worth one
        if prelude.values is None:
            raise
        optimizer = Halt(Status.INTERRUPTED, optimizer)
        outcomes = _run(optimizer, _kept(bilevel, None, ""), starts[:1], [], limits, ends, None)
    # 3. Where landmarks do not serve at the end, go on without them; where they were asked for, value the end without.
    best = foremost(outcomes)
    facts, notes, began = dict(prelude.details), [], None
    if best.approximation is not None and (settings.low_rank is True or _rough(best, bilevel)):
        facts |= {f"landmark_{name}": value for name, value in best.approximation.items()}
        facts["landmark_objective"] = best.objective
        points = [_first([*before, *outcomes], bilevel.space), np.array(best.theta)]
        follows = optimizer.needs_gradient and bilevel.criterion.differentiable
        second = bilevel.criterion.has_curvature and bilevel.space.size <= NEWTON_SIZE
        order = 0 if not follows else 2 if second else 1
        # Whether training problems are solved without landmarks is judged anew.
        ended = Status.STALLED if best.status is Status.UNSOLVED else best.status
        method = Halt(ended, optimizer, order) if settings.low_rank is True else optimizer
        try:
            bilevel = program.without_landmarks()
        except MemoryLimitError as error:
            notes.append(
                f"the error is that of the kernel seen through {best.approximation['landmarks']} landmarks, which may "
                f"change a decision by {best.approximation['bound']:.2g}, and it could not be checked: {error}"
            )
        else:
            before += outcomes
            ends.clear()
            kept = _kept(bilevel, journal, "exact")
            outcomes = _run(method, kept, points[1:], points[:1], limits, ends, settings.n_jobs)
            began = _value_at(points[0], outcomes, bilevel.space)
    # 4. A search that ends above a constant has missed the valley: once more from where the model is nearly one.
    best = foremost(outcomes)
    level = program.constant_error(min(ends, key=lambda end: end.objective, default=None))
    again = optimizer.restarts and not optimizer.finds_own_start  # others would repeat what they did
    if again and best.status not in CUT_SHORT and level is not None and best.objective > level:
        kept = _kept(bilevel, journal, "flat")
        outcomes += _run(optimizer, kept, [program.flattest()], [], limits, ends, settings.n_jobs)
    result = merge(before, outcomes)
    program.end = next((end for end in ends if np.array_equal(end.theta, result.theta)), None)
    return replace(
        result,
        objective_start=result.objective_start if began is None else began,
        details={**result.details, **facts},
        warnings=[*result.warnings, *notes, *program.warnings()],
    )


def _value_at(theta: np.ndarray, results: list[Result], space: Space) -> float:
    """The objective that was found at a point; at the start of these runs where it was not evaluated."""
    params = plain_params(space.params(theta))
    found = [record.objective for result in results for record in result.history if record.params == params]
    return found[0] if found else results[0].objective_start


def _first(results: list[Result], space: Space) -> np.ndarray:
    """The first point that was evaluated at all."""
    params = results[0].history[0].params
    return space.clip(space.theta({name: np.asarray(value) for name, value in params.items()}))


def _starts(
    program: Program, optimizer: Any, settings: Settings, journal: Checkpoint | None, limits: dict[str, Any]
) -> tuple[Any, list[np.ndarray], list[np.ndarray], Prelude]:
    """The method, its starting points, further points to look at before the first, and what stages found."""
    bilevel, prelude = program.bilevel, Prelude()
    space = bilevel.space
    if settings.start is not None:
        more = 0 if settings.n_starts is None or optimizer.finds_own_start else settings.n_starts - 1
        others = program.starts(program.candidates(space, more), more, np.random.default_rng(settings.seed))
        return optimizer, [space.theta(settings.start), *others], [], prelude
    if not optimizer.uses_start:
        return optimizer, [0.5 * (space.lower + space.upper)], [], prelude
    if optimizer.finds_own_start:
        return optimizer, program.candidates(space, 1), [], prelude
    scan = space.size <= SCAN_SIZE and not (several_penalties(bilevel) or has_boxes(bilevel))
    reasoned = program.candidates(space, None if scan else settings.n_starts or 2)
    if optimizer.needs_gradient and bilevel.criterion.has_curvature:  # which the stages' own method needs
        prelude = program.play(
            not optimizer.plays_stages, limits, lambda part, stage: _kept(part, journal, stage)(0)
        )
    alone = scan or prelude.values is not None or not optimizer.needs_gradient
    count = settings.n_starts or (1 if alone else min(2, len(reasoned)))
    starts = program.starts(reasoned, count, np.random.default_rng(settings.seed))
    candidates: list[np.ndarray] = []
    if prelude.values is not None:
        starts[0] = program.theta(space, prelude.values)
        prelude.seed(bilevel, starts[0], program.index)
    elif optimizer.needs_gradient and settings.n_starts is None and scan:
        candidates = reasoned[1:]
    if prelude.ended is not None:
        optimizer, starts = Halt(prelude.ended, optimizer), starts[:1]
    return optimizer, starts, candidates, prelude


def _rough(result: Result, bilevel: Bilevel) -> bool:
    """Whether landmarks change a decision by more than they may."""
    if result.approximation is None:
        return False
    return result.approximation["bound"] > LOW_RANK_BOUND * _scale(bilevel)


def _run(
    optimizer, program: Callable[[int], Bilevel], starts, candidates, limits, ends: list[Evaluation], n_jobs
) -> list[Result]:
    """One result per starting point, and in ``ends`` its evaluation; a search that was cut short ends there."""

    def one(index: int) -> Result:
        points, own = candidates if index == 0 else [], program(index)
        result = run(optimizer, own, starts[index], start=index, candidates=points, look=True, **limits)
        ends.extend([] if own.end is None else [own.end])
        return result

    if len(starts) > 1 and n_jobs not in (None, 1):
        return Parallel(n_jobs=n_jobs, prefer="threads")(delayed(one)(i) for i in range(len(starts)))
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


def choose_method(settings: Settings, program: Program) -> Any:
    """The outer method with its options; "auto" chooses by the criterion, the model and the number of values."""
    method, options = settings.method, dict(settings.options)
    space, criterion = program.bilevel.space, program.bilevel.criterion
    if method == "auto":
        if criterion.differentiable:
            method = "newton" if space.size <= NEWTON_SIZE and criterion.has_curvature else "lbfgsb"
            first = program.bilevel.problems[0]
            if criterion.polyhedral and isinstance(first, PolyhedralProblem) and settings.mass <= BUNDLE_ROWS:
                method = "bundle"
        else:
            method = "grid" if space.size <= 2 else "random"
    given = {"tol": settings.tol, "max_iter": settings.max_iter}
    limits = {name: value for name, value in given.items() if value is not None}
    if isinstance(method, Minimizer):
        if options:
            raise ValueError("method_options belong to a method's name; set options on the object you passed")
        return _equipped(method, settings, limits)
    if method not in METHODS:
        raise ValueError(
            f"unknown method {method!r}; use one of: auto, {', '.join(METHODS)}, or an object of a class that "
            "extends foldwise.optimizers.Minimizer"
        )
    kind: Any = METHODS[method]
    known = [field.name for field in fields(kind)]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r} of method {method!r}; it has: {', '.join(known)}")
    if kind.tol_by_model and settings.tol is None:
        kernel = isinstance(program.model, KernelModel)
        flat = is_wide(program.X) or space.size > SCAN_SIZE
        fine = WIDE_TOL if flat else np.clip(1e-3 / max(settings.mass, 1.0), 1e-8, 1e-5)
        tol = (EXACT_TOL if program.model.loss.polyhedral else KERNEL_TOL) if kernel else float(fine)
        options.setdefault("tol", tol)
        if kernel and program.model.loss.polyhedral and space.size <= SCAN_SIZE:
            options.setdefault("polls", POLLS)
    # An option of the method by its own name goes before the search's limit.
    return _equipped(
        kind(**options),
        settings,
        {n: v for n, v in limits.items() if kind.limits.get(n) not in options},
        options,
    )


def _equipped(
    method: Any, settings: Settings, limits: dict[str, Any], options: Mapping[str, Any] = {}
) -> Any:
    """The method with what a search says about limits, starts and seed; what it has no place for is refused."""
    if settings.n_starts is not None and method.finds_own_start and "n_starts" not in options:
        limits = {**limits, "n_starts": settings.n_starts}
    elif settings.n_starts not in (None, 1) and not method.restarts:
        raise ValueError(
            f"method {method.name!r} goes through a plan of points and does not start from several; got "
            f"n_starts={settings.n_starts}. Leave it out, and set the number of points by the method's options"
        )
    if settings.start is not None and not method.uses_start:
        raise ValueError(
            f"method {method.name!r} goes through a plan of points and uses no start; leave 'start' out of "
            "method_options"
        )
    method = method.with_limits(**limits)
    known = {field.name for field in fields(method)} if is_dataclass(method) else set()
    if "from_start" in known and settings.start is not None and "from_start" not in options:
        method = replace(method, from_start=True)
    if "seed" in known and method.seed is None:
        method = replace(method, seed=settings.seed)
    return method


def _kept(bilevel: Bilevel, journal: Checkpoint | None, stage: str) -> Callable[[int], Bilevel]:
    """From the number of a starting point to a program of its own, with its evaluations kept in the checkpoint."""
    if journal is None:
        return lambda index: bilevel.twin()
    return lambda index: journal.wrap(bilevel.twin(), f"{stage} {index}")


def _scale(bilevel: Bilevel) -> float:
    """Unit of a decision: 1 for classes, the standard deviation of the target otherwise."""
    return max(float(np.std(bilevel.problems[0].Y)), np.finfo(float).tiny) if bilevel.problems else 1.0
