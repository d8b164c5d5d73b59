"""From an estimator, data and folds to the bilevel program of their cross-validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_array

from foldwise.bilevel import Bilevel
from foldwise.bounds import check_size, check_varies, data_facts, dimensions_of, read_space
from foldwise.criteria import Criterion, ValueAlone, as_criterion
from foldwise.estimators.retarget import Retarget
from foldwise.estimators.tunable import Tunable
from foldwise.frames import column_names
from foldwise.losses import Loss
from foldwise.models.base import Array, Assembly, DataFacts, Model, Rows, Sheet, make_space
from foldwise.prior import CentrePenalty, Prior
from foldwise.search.retargeted import Retargeted
from foldwise.space import Dimension, Space, natural_units
from foldwise.splits import Splits

__all__ = ["Data", "Program", "Recipe", "prepare"]


@dataclass(frozen=True, eq=False)
class Data:
    """What a search is fitted to.

    Attributes
    ----------
    X : features, as the pipeline or the model takes them
    rows : targets, weights, groups and classes of the rows
    classes : the class labels, or None
    splits : the folds
    names : names of the columns of X, or None
    chosen : numbers of the rows in the user's data, of a sample; None for all of them
    first : how many of the folds are the first of several partitions; None where there is one
    """

    X: Any
    rows: Rows
    classes: Array | None
    splits: Splits
    names: Sequence[str] | None = None
    chosen: Array | None = None
    first: int | None = None

    @property
    def index(self) -> Array:
        """Numbers of the rows in the user's data."""
        return np.arange(self.rows.Y.shape[1]) if self.chosen is None else self.chosen

    def take(self, chosen: Array, splits: Splits) -> Data:
        """These rows only, with folds of their own."""
        return replace(
            self,
            X=_safe_indexing(self.X, chosen),
            rows=self.rows.take(chosen),
            splits=splits,
            chosen=self.index[chosen],
            first=None,
        )


@dataclass(frozen=True, eq=False)
class Recipe:
    """What the programs of a search have in common: that of the search itself and those of its stages.

    Attributes
    ----------
    criterion : what is minimised
    sheets : the features and folds
    names : names of the columns
    n_rows : number of the user's rows
    shrinkage : strength of the penalty on the spread of per-feature widths, None for the usual one
    tol : accuracy of the training problems
    pull, centre : strength of the pull of every hyper-parameter to a moderate value, and these values by name
    refitted : why folds are refitted and nothing is differentiated; "" where it is
    """

    criterion: Loss | Criterion
    sheets: Sequence[Sheet]
    names: Sequence[str]
    n_rows: int
    shrinkage: float | None
    tol: float
    pull: float = 0.0
    centre: Mapping[str, Any] = field(default_factory=dict)
    refitted: str = ""

    def bilevel(
        self,
        model: Model,
        dimensions: Mapping[str, Dimension],
        *,
        landmarks: Sequence[Array] | None = None,
        relatives: Sequence[Any] | None = None,
        tol: float | None = None,
    ) -> Bilevel:
        """The program of a model; ``landmarks`` and ``relatives`` as in :class:`foldwise.models.base.Assembly`."""
        d = len(self.names)
        entries = {
            name: self.names if size == d else range(size)
            for name, size in model.sizes(d).items()
            if size > 1
        }
        space = make_space(dimensions, self.sheets[0].rows, self.names, entries)
        problems = model.problems(Assembly(self.sheets, space, dimensions, landmarks, relatives))
        prior = self._prior(model, space)
        solver = model.solver(problems[0], self.tol if tol is None else tol)
        return Bilevel(problems, self._criterion(problems), space, solver, prior)

    def _criterion(self, problems: Sequence[Any]) -> Loss | Criterion:
        """The criterion of these problems' decisions, in units of the user's target."""
        targets = [
            replace(sheet.target, y=sheet.target.y[problem.folds.order])
            for sheet, problem in zip(self.sheets, problems, strict=True)
            if sheet.target is not None
        ]
        criterion = Retargeted(as_criterion(self.criterion), targets) if targets else self.criterion
        return ValueAlone(as_criterion(criterion), self.refitted) if self.refitted else criterion

    def _prior(self, model: Model, space: Space) -> Prior | None:
        """The model's own penalty on theta and, where it is asked for, the pull to moderate values."""
        own = model.prior(space, self.n_rows, self.shrinkage)
        if not self.pull:
            return own
        centre = space.theta({name: value for name, value in self.centre.items() if name in space.slices})
        pull = CentrePenalty(centre, natural_units(space), self.pull / self.n_rows)
        return pull if own is None else own + pull


@dataclass(frozen=True, eq=False)
class Program:
    """A cross-validation as a bilevel program, and what it was made of.

    Attributes
    ----------
    bilevel : the program
    model : the machine that is tuned
    dimensions : what is tuned, with bounds
    recipe : how other programs on the same rows are made
    tunable, data : the estimator and the rows
    facts : what bounds and starts are derived from
    landmarks : rows through which ``bilevel`` sees kernels; None for none
    starting_values : values by name that are worth a start, for models that know some
    notes : what a user should know before the search
    """

    bilevel: Bilevel
    model: Model
    dimensions: Mapping[str, Dimension]
    recipe: Recipe
    tunable: Tunable
    data: Data
    facts: DataFacts
    landmarks: Sequence[Array] | None
    starting_values: Sequence[Mapping[str, Any]]
    notes: Sequence[str]

    def without_landmarks(self) -> Bilevel:
        """The program on whole kernel matrices; one that has no landmarks is itself."""
        return self.bilevel if self.landmarks is None else self.recipe.bilevel(self.model, self.dimensions)

    def one_partition(self) -> Recipe:
        """The recipe on the folds of the first partition, where there are several."""
        count, sheets = self.data.first, self.recipe.sheets
        if count is None:
            return self.recipe
        few = sheets[:count] if len(sheets) > 1 else [replace(sheets[0], splits=sheets[0].splits[:count])]
        return replace(self.recipe, sheets=few)

    def sample(self, model: Model, dimensions: Mapping[str, Dimension], data: Data) -> Recipe:
        """The recipe of a few of the rows."""
        sheets = cut_sheets(self.tunable, model, data).sheets
        return replace(self.recipe, sheets=separated(model, dimensions, sheets))

    def starts(self, reasoned: Sequence[Array], count: int, seed: int) -> list[Array]:
        """Starting points: first the ones with a reason, then random ones."""
        space, rng, out = self.bilevel.space, np.random.default_rng(seed), list(reasoned[:count])
        while len(out) < count:
            out.append(rng.uniform(space.lower, space.upper))
        return out


def prepare(
    tunable: Tunable,
    data: Data,
    criterion: Loss | Criterion,
    space: Any = None,
    *,
    shrinkage: float | None = None,
    low_rank: bool | str = "auto",
    criterion_weight: Any = "auto",
    pull: float = 0.0,
) -> Program:
    """The bilevel program of these folds.

    Parameters
    ----------
    tunable : the estimator
    data : the rows and folds
    criterion : what is minimised
    space : the user's space, or None
    shrinkage : strength of the penalty on the spread of per-feature kernel widths; None for the usual one
    low_rank : whether kernels may be seen through landmarks
    criterion_weight : weights of the classes in the criterion, by code
    pull : strength of the pull of every hyper-parameter to a moderate value
    """
    tunable = tunable.named(data.names)

    def build(d: int) -> Model:
        return tunable.model(data.classes, d).with_criterion_weight(criterion_weight)

    # 1. What can be refused before any work: names, and settings of scikit-learn's machines.
    wanted = read_space(tunable, space)
    has_steps = tunable.standardize() is not None
    tunable.rehearse(wanted, data.classes, not has_steps and sp.issparse(data.X))
    width = _width(data.X)
    model = build(width)
    if has_steps:
        model.check_steps()
    # 2. The features and folds, behind the earlier steps of a pipeline.
    data = replace(data, rows=model.with_rows(data.rows))
    cut = cut_sheets(tunable, model, data)
    X = cut.sheets[0].X
    check_varies(X)
    if model.loss.task == "regression":
        check_size(data.rows.Y)
    d = X.shape[1]
    model = (build(d) if d != width else model).named(cut.frame_names)
    # 3. What is tuned, and between which bounds.
    rows = data.rows
    if tunable.retarget is not None:
        rows = replace(rows, Y=tunable.retarget.of(rows.Y[0])[0][None])
    facts = data_facts(model, cut.sheets, rows, data.splits)
    dimensions = dimensions_of(model, facts, wanted)
    # 4. The program itself.
    names = cut.names if cut.names is not None and len(cut.names) == d else [f"x{i}" for i in range(d)]
    sheets = separated(model, dimensions, cut.sheets)
    centre = model.centre(dimensions, facts) if pull else {}
    tol = min(INNER_TOL, _own_tol(tunable))
    valued = model.criterion(criterion)
    recipe = Recipe(valued, sheets, names, facts.n_rows, shrinkage, tol, pull, centre, tunable.refitted)
    landmarks = model.landmarks(sheets, low_rank)
    return Program(
        recipe.bilevel(model, dimensions, landmarks=landmarks),
        model,
        dimensions,
        recipe,
        tunable,
        data,
        facts,
        landmarks,
        model.starting_values(dimensions, facts),
        [*model.notes(facts), *tunable.notes, *([tunable.refitted] if tunable.refitted else [])],
    )


INNER_TOL = 1e-9
"""Accuracy of training problems."""


def _own_tol(tunable: Tunable) -> float:
    """The tolerance of our own estimators, where finer than the search's; scikit-learn's mean something else."""
    return float(getattr(tunable.estimator, "tol", np.inf)) if tunable.ours else np.inf


def _width(X: Any) -> int:
    """Number of columns; 1 for rows that are no table."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return shape[1] if len(shape) == 2 else 1


@dataclass(frozen=True, eq=False)
class CutSheets:
    """Sheets, the names of their columns, and those that data frames have there (None where there are none)."""

    sheets: list[Sheet]
    names: Sequence[str] | None
    frame_names: Sequence[str] | None


def cut_sheets(tunable: Tunable, model: Model, data: Data) -> CutSheets:
    """The features of every fold: one sheet for all, or one for each where earlier steps are fitted in every fold."""
    scaling = tunable.standardize()
    if isinstance(scaling, tuple) and not model.scales_inside(scaling, data.X):
        scaling = "general"
    if scaling == "general":
        cut = _transformed(tunable, model, data)
    else:
        flags = scaling if isinstance(scaling, tuple) else None
        sheet = Sheet(model.features(data.X), data.rows, data.splits, data.index, flags)
        cut = CutSheets([sheet], data.names, data.names)
    if tunable.retarget is None:
        return cut
    return replace(cut, sheets=_retargeted(tunable.retarget, cut.sheets))


def _retargeted(retarget: Retarget, sheets: list[Sheet]) -> list[Sheet]:
    """The same with transformed targets; one for every fold where training rows say how."""
    out = []
    for sheet in sheets:
        y = sheet.rows.Y[0]
        for splits in [[split] for split in sheet.splits] if retarget.fitted_by_fold else [sheet.splits]:
            train = splits[0][0] if retarget.fitted_by_fold else slice(None)
            seen, target = retarget.of(y, train)
            out.append(replace(sheet, splits=splits, rows=replace(sheet.rows, Y=seen[None]), target=target))
    return out


def separated(model: Model, dimensions: Mapping[str, Dimension], sheets: list[Sheet]) -> list[Sheet]:
    """A sheet for every fold where fixed values follow from the training rows."""
    if model.shares_sheet(dimensions):
        return sheets
    return [replace(sheet, splits=[split]) for sheet in sheets for split in sheet.splits]


def _transformed(tunable: Tunable, model: Model, data: Data) -> CutSheets:
    """The earlier steps fitted on each split's training rows and applied to all its rows."""
    rows, X = data.rows, model.with_names(data.X, data.names)
    y = rows.Y[0] if rows.label is None else np.asarray(rows.class_labels)[rows.label]
    if rows.label is None and len(rows.Y) > 1:
        y = rows.Y.T
    sheets = []
    for train, validation in data.splits:
        steps: Any = clone(tunable.steps)
        head = steps.fit_transform(_safe_indexing(X, train), y[train])
        tail = steps.transform(_safe_indexing(X, validation))
        stacked = (
            sp.vstack([head, tail]).tocsr()
            if sp.issparse(head)
            else np.vstack([np.asarray(head), np.asarray(tail)])
        )
        part = check_array(stacked, accept_sparse="csr", dtype=float)
        index = np.concatenate([train, validation])
        split = np.arange(len(train)), np.arange(len(train), len(index))
        sheets.append(Sheet(model.features(part), rows.take(index), [split], data.index[index]))
    widths = {sheet.X.shape[1] for sheet in sheets}
    if len(widths) > 1:
        raise ValueError(
            f"the pipeline gives {sorted(widths)} columns in different folds; it must give the same"
        )
    try:
        names = steps.get_feature_names_out()
    except (AttributeError, ValueError):  # a step that does not name its columns
        names = None
    return CutSheets(sheets, names, column_names(head))
