"""From a program and what the user asks for to a plan: the method, its starting points, the stages before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel
from foldwise.models.base import Array, Rows, SearchStage, Sheet
from foldwise.optimizers import METHODS
from foldwise.optimizers.base import Minimizer
from foldwise.search.prepare import Data, Program, Recipe
from foldwise.splits import Splits

__all__ = ["PlannedStage", "SampleRule", "SearchOptions", "SearchPlan", "choose_method", "make_plan"]


@dataclass(frozen=True, eq=False)
class SearchOptions:
    """What the user asks for, as :class:`~foldwise.search.BilevelSearchCV` documents it.

    ``start`` holds starting values by name, or None; ``options`` are the method's.
    """

    method: Any = "auto"
    start: Mapping[str, Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tol: float | None = None
    max_iter: int | None = None
    n_starts: int | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False)
class PlannedStage:
    """A stage with its program.

    Attributes
    ----------
    stage : what it is
    build : makes its program
    index : for every design, the user's numbers of its rows
    glance : makes a program of fewer folds, on which many points are compared before the stage runs from a few; None
        where the stage's own serves
    """

    stage: SearchStage
    build: Callable[[], Bilevel]
    index: list[Array]
    glance: Callable[[], Bilevel] | None = None


@dataclass(frozen=True, eq=False)
class SearchPlan:
    """What is to be run.

    Attributes
    ----------
    method : the outer method
    starts : its starting points; where stages are played the first is where they end
    candidates : further points to look at before the first start, where no stages are played
    stages : cheaper searches that come first
    """

    method: Minimizer
    starts: list[Array]
    candidates: list[Array]
    stages: list[PlannedStage]


def make_plan(program: Program, method: Minimizer, options: SearchOptions) -> SearchPlan:
    """Where to start: stages before the search, points with a reason, random ones."""
    bilevel, model = program.bilevel, program.model
    space, values = bilevel.space, program.starting_values
    if "seed" in _option_names(method) and getattr(method, "seed", None) is None:
        method = replace(method, seed=options.seed)  # type: ignore[type-var]
    if options.start is not None:
        more = 0 if options.n_starts is None or method.finds_own_start else options.n_starts - 1
        others = program.starts(model.starting_points(bilevel, values, more), more, options.seed)
        return SearchPlan(method, [space.theta(options.start), *others], [], [])
    if not method.uses_start:
        return SearchPlan(method, [0.5 * (space.lower + space.upper)], [], [])
    if method.finds_own_start:
        return SearchPlan(method, model.starting_points(bilevel, values, 1), [], [])
    scan = space.size <= model.few and not model.many_valleys(space)
    reasoned = model.starting_points(bilevel, values, None if scan else options.n_starts or 2)
    stages: list[PlannedStage] = []
    if method.needs_gradient and bilevel.criterion.has_curvature:  # which the stages' own method needs
        stages = [one for one in _planned_stages(program) if one.stage.real or method.plays_stages]
    alone = scan or bool(stages) or not method.needs_gradient
    count = options.n_starts or (1 if alone else min(2, len(reasoned)))
    candidates = reasoned[1:LOOKS] if method.needs_gradient and options.n_starts is None and scan else []
    return SearchPlan(method, program.starts(reasoned, count, options.seed), candidates, stages)


def _planned_stages(program: Program) -> list[PlannedStage]:
    """The model's stages with their programs; those on a sample only where the rows can be sampled."""
    values = program.starting_values
    out = []
    stages = program.model.stages(program.dimensions, values[0], program.facts) if values else []
    if program.data.first is not None and values:
        accuracy = program.model.accuracy(program.facts, program.bilevel.space.size)
        stages.append(SearchStage("partition", program.model, program.dimensions, accuracy["tol"], False))
    for stage in stages:
        if not stage.sampled:
            out.append(_on_all_rows(program, stage))
        elif (sample := SampleRule().choose(program.data.rows, program.data.splits)) is not None:
            out.append(_on_a_sample(program, stage, program.data.take(*sample)))
    return out


def _on_all_rows(program: Program, stage: SearchStage) -> PlannedStage:
    recipe = program.one_partition()
    if program.data.first is not None:
        stage = replace(stage, real=False)  # its evaluations are means over fewer folds
    if stage.change is not None:
        recipe = replace(recipe, sheets=[stage.change(sheet) for sheet in recipe.sheets])

    def build(recipe: Recipe = recipe) -> Bilevel:
        return recipe.bilevel(
            stage.model,
            stage.dimensions,
            landmarks=program.landmarks if stage.landmarks else None,
            relatives=program.bilevel.problems[: len(recipe.sheets)],
            tol=stage.inner_tol,
        )

    few = replace(recipe, sheets=_few_folds(recipe.sheets)) if stage.several else None
    glance = None if few is None else lambda: build(few)
    return PlannedStage(stage, build, [sheet.index for sheet in recipe.sheets], glance)


def _few_folds(sheets: Sequence[Sheet]) -> list[Sheet]:
    """The sheets with their first folds alone: as many as have enough rows to tell valleys apart."""
    seen = np.cumsum([len(validation) for sheet in sheets for _, validation in sheet.splits])
    count = int(np.searchsorted(seen, GLANCE_ROWS)) + 1
    if len(sheets) > 1:
        return list(sheets[:count])
    return [replace(sheet, splits=sheet.splits[:count]) for sheet in sheets]


def _on_a_sample(program: Program, stage: SearchStage, data: Data) -> PlannedStage:
    recipe = program.sample(stage.model, stage.dimensions, data)
    index = [sheet.index for sheet in recipe.sheets]
    return PlannedStage(
        stage, lambda: recipe.bilevel(stage.model, stage.dimensions, tol=stage.inner_tol), index
    )


@dataclass(frozen=True)
class SampleRule:
    """How rows are sampled for a first search.

    Attributes
    ----------
    least_rows : with fewer rows nothing is sampled
    share, fewest, most : rows of the sample: this share of all, but within those limits
    n_splits : folds of the sample
    """

    least_rows: int = 400
    share: float = 0.4
    fewest: int = 200
    most: int = 500
    n_splits: int = 2

    def choose(self, rows: Rows, splits: Splits) -> tuple[Array, Splits] | None:
        """Rows of a sample, with the classes in their shares, and its folds.

        None when the rows are too few or too special. Groups of samples and sample weights are not sampled: a group
        might be lost.
        """
        n = rows.Y.shape[1]
        size = int(np.clip(self.share * n, self.fewest, self.most))
        if n < self.least_rows or size > n // 2 or rows.group is not None or rows.weight is not None:
            return None
        few = list(splits[: self.n_splits])
        # One stratum for every class and way to take part in the folds; of each an even share.
        label = np.zeros(n, dtype=int) if rows.label is None else np.asarray(rows.label)
        stratum = label * 4 ** len(few)
        for k, (train, validation) in enumerate(few):
            stratum[train] += 4**k
            stratum[validation] += 2 * 4**k  # 3 with the line above: a row may do both
        order = np.random.default_rng(0).permutation(n)
        order = order[np.argsort(stratum[order], kind="stable")]
        chosen = np.sort(order[np.floor(np.arange(size) * (n / size)).astype(int)])
        place = np.full(n, -1)
        place[chosen] = np.arange(size)
        out = []
        for train, validation in few:
            inner, outer = place[train], place[validation]
            inner, outer = inner[inner >= 0], outer[outer >= 0]
            present = np.bincount(label[chosen][inner], minlength=int(label.max()) + 1)
            if not len(outer) or np.any(present < 2):
                return None
            out.append((inner, outer))
        return chosen, out


GLANCE_ROWS = 200
"""Validation rows on which many points are compared; the best of them are compared on all."""
LOOKS = 8
"""Points that are looked at before a search without stages, whose evaluations are those of the machine itself."""
NEWTON_SIZE = 300
"""Hyper-parameters up to which second derivatives are worth their cost."""
BUNDLE_ROWS = 300
"""Rows up to which "auto" takes the bundle method for an exact machine and a criterion with kinks."""


def choose_method(options: SearchOptions, program: Program) -> Minimizer:
    """The outer method with its options; what it cannot minimise is refused."""
    method = _named_method(options, program)
    method.check(program.bilevel)
    return method


def _named_method(options: SearchOptions, program: Program) -> Minimizer:
    """The method by its name, or the object itself, with what the search says about it."""
    given = {"tol": options.tol, "max_iter": options.max_iter}
    limits = {name: value for name, value in given.items() if value is not None}
    if isinstance(options.method, Minimizer):
        if options.options:
            raise ValueError("method_options belong to a method's name; set options on the object you passed")
        return _equipped(options.method, options, limits, {})
    name = _usual_method(program) if options.method == "auto" else options.method
    if name not in METHODS:
        raise ValueError(
            f"unknown method {name!r}; use one of: auto, {', '.join(METHODS)}, or an object of a class that "
            "extends foldwise.optimizers.Minimizer"
        )
    kind: Any = METHODS[name]
    known = [one.name for one in fields(kind)]
    unknown = [option for option in options.options if option not in known]
    if unknown:
        raise ValueError(f"unknown option {unknown[0]!r} of method {name!r}; it has: {', '.join(known)}")
    own = dict(options.options)
    if kind.tol_by_model and options.tol is None:
        own = {**program.model.accuracy(program.facts, program.bilevel.space.size), **own}
    # An option of the method by its own name goes before the search's limit.
    limits = {limit: value for limit, value in limits.items() if kind.limits.get(limit) not in own}
    return _equipped(kind(**own), options, limits, own)


def _usual_method(program: Program) -> str:
    """What "auto" stands for: by the criterion, the model and the number of values."""
    size, criterion = program.bilevel.space.size, program.bilevel.criterion
    if not criterion.differentiable:
        return "grid" if size <= 2 else "random"
    if criterion.polyhedral and program.model.suits_bundle and program.facts.total <= BUNDLE_ROWS:
        return "bundle"
    return "newton" if size <= NEWTON_SIZE and criterion.has_curvature else "lbfgsb"


def _equipped(
    method: Minimizer, options: SearchOptions, limits: dict[str, Any], own: Mapping[str, Any]
) -> Minimizer:
    """The method with what a search says about limits and starts; what it has no place for is refused."""
    if options.n_starts is not None and method.finds_own_start and "n_starts" not in own:
        limits = {**limits, "n_starts": options.n_starts}
    elif options.n_starts not in (None, 1) and not method.restarts:
        raise ValueError(
            f"method {method.name!r} goes through a plan of points and does not start from several; got "
            f"n_starts={options.n_starts}. Leave it out, and set the number of points by the method's options"
        )
    if options.start is not None and not method.uses_start:
        raise ValueError(
            f"method {method.name!r} goes through a plan of points and uses no start; leave 'start' out of "
            "method_options"
        )
    method = method.with_limits(**limits)
    if options.start is not None and "from_start" not in own and "from_start" in _option_names(method):
        method = replace(method, from_start=True)  # type: ignore[type-var]
    return method


def _option_names(method: Any) -> set[str]:
    """The options of a method: the fields of a dataclass."""
    return {one.name for one in fields(method)} if is_dataclass(method) else set()
