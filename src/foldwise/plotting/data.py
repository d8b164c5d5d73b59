"""The numbers behind each picture: plain arrays, without a plotting library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from foldwise.fit_time import limited
from foldwise.frames import column_names
from foldwise.result import Record, Result
from foldwise.space import Block, Lin, Log

__all__ = [
    "Contour",
    "Folds",
    "Growth",
    "History",
    "PartialEffect",
    "Path",
    "Relevance",
    "ValidationTest",
    "contour_data",
    "folds_data",
    "growth_data",
    "history_data",
    "partial_effect_data",
    "path_data",
    "relevance_data",
    "validation_test_data",
]


@dataclass(frozen=True, eq=False)
class History:
    """The course of a search: one entry per evaluation; ``gradient_norm`` is nan where none was computed.

    ``criterion`` is what the errors are, in words.
    """

    evaluation: np.ndarray
    start: np.ndarray
    objective: np.ndarray
    best: np.ndarray
    gradient_norm: np.ndarray
    elapsed: np.ndarray
    criterion: str = ""

    @property
    def wide(self) -> bool:
        """Whether the errors want a logarithmic axis."""
        errors = self.objective[np.isfinite(self.objective)]
        return bool(len(errors) and errors.min() > 0 and errors.max() > 20 * errors.min())


@dataclass(frozen=True, eq=False)
class Path:
    """Hyper-parameters by evaluation: ``values[i, p]``, with the bounds and the scale of each."""

    evaluation: np.ndarray
    start: np.ndarray
    names: list[str]
    values: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    log: np.ndarray

    def normalised(self) -> np.ndarray:
        """Values between 0 (lower bound) and 1 (upper bound), each on its own scale."""
        values, lower, upper = self.values.copy(), self.lower.copy(), self.upper.copy()
        values[:, self.log] = np.log(values[:, self.log])
        lower[self.log], upper[self.log] = np.log(lower[self.log]), np.log(upper[self.log])
        width = np.where(upper > lower, upper - lower, 1.0)
        return np.asarray((values - lower) / width)

    def moved_most(self, most: int) -> np.ndarray:
        """The ``most`` entries with the widest ways, in their order."""
        ways = np.ptp(self.normalised(), axis=0) if len(self.values) else np.zeros(len(self.names))
        return np.sort(np.argsort(-ways, kind="stable")[:most])


@dataclass(frozen=True, eq=False)
class Folds:
    """The error of every fold at the selected point; ``criterion`` is what it is, in words."""

    error: np.ndarray
    criterion: str = ""


@dataclass(frozen=True, eq=False)
class Contour:
    """The cross-validation error over two hyper-parameters: ``objective[j, i]`` at ``(x[i], y[j])``."""

    names: tuple[str, str]
    x: np.ndarray
    y: np.ndarray
    objective: np.ndarray
    log: tuple[bool, bool]
    path: np.ndarray
    best: np.ndarray

    def levels(self, count: int) -> np.ndarray:
        """Values between which the error is told apart: about ``count``, most of them in the valley.

        Quantiles of the different errors on the grid, whose shares grow as squares: half of them lie in the lowest
        quarter, however high and wide the plateau beside it is.
        """
        finite = np.unique(self.objective[np.isfinite(self.objective)])
        levels = np.unique(np.quantile(finite, np.linspace(0.0, 1.0, count + 1) ** 2))
        wide = 1e-6 * max(float(np.ptp(levels)), np.finfo(float).tiny)
        levels = levels[np.concatenate([[True], np.diff(levels) > wide])]
        if len(levels) > 1:
            return np.asarray(levels)
        pad = 1e-3 * abs(levels[0]) or 1.0  # a flat error has one level
        return np.array([levels[0] - pad, levels[0] + pad])

    def shades(self, levels: np.ndarray) -> np.ndarray:
        """Where each value lies among the levels: 0 between the lowest two, 1 between the highest two; nan stays."""
        bands = len(levels) - 1
        band = np.clip(np.searchsorted(levels, self.objective, side="right") - 1, 0, bands - 1)
        return np.where(np.isfinite(self.objective), band / max(bands - 1, 1), np.nan)


@dataclass(frozen=True, eq=False)
class Relevance:
    """How much each feature counts; ``box`` is its bound on the weight, where the model has one."""

    names: list[str]
    values: np.ndarray
    selected: np.ndarray
    what: str
    box: np.ndarray | None = None

    @property
    def order(self) -> np.ndarray:
        """The features, the one that counts most first."""
        return np.argsort(-self.values, kind="stable")


@dataclass(frozen=True, eq=False)
class ValidationTest:
    """Cross-validation error and error on test rows, at points that a search evaluated."""

    evaluation: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    metric: str

    @property
    def selected(self) -> int:
        """The point with the lowest cross-validation error."""
        return int(np.argmin(self.validation))


@dataclass(frozen=True, eq=False)
class PartialEffect:
    """The model's output along one feature, the others held at ``at``.

    ``parametric`` is the part of the basis functions, for models that have one.
    """

    name: str
    grid: np.ndarray
    effect: np.ndarray
    at: np.ndarray
    parametric: np.ndarray | None = None
    output: str = "output of the model"


@dataclass(frozen=True, eq=False)
class Growth:
    """Time against size; ``exponent`` is the slope of the line through the logarithms."""

    name: str
    size: np.ndarray
    seconds: np.ndarray
    exponent: float


def history_data(source: Any) -> History:
    """The course of a search: cross-validation errors, without the penalty that some searches add.

    Parameters
    ----------
    source : Result or fitted BilevelSearchCV

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from foldwise import BilevelSearchCV, LinearSVR
    >>> search = BilevelSearchCV(LinearSVR(), ["C"]).fit(*load_diabetes(return_X_y=True))
    >>> history = history_data(search)
    >>> bool(history.best[-1] == search.result_.objective)
    True
    """
    result = _result(source)
    records = result.history
    norms = [np.nan if r.gradient_norm is None else r.gradient_norm for r in records]
    return History(
        np.array([r.evaluation for r in records]),
        np.array([r.start for r in records]),
        np.array([r.error for r in records]),
        _best_errors(records),
        np.array(norms, float),
        np.array([r.elapsed for r in records]),
        criterion_words(source),
    )


def folds_data(source: Any) -> Folds:
    """The error of every fold at the selected point.

    Parameters
    ----------
    source : Result or fitted BilevelSearchCV
    """
    return Folds(np.array(_result(source).fold_objectives, float), criterion_words(source))


def _best_errors(records: Sequence[Record]) -> np.ndarray:
    """The error of the best point so far, which is the one of the lowest objective."""
    best: list[float] = []
    for record in records:
        lowest = record.admissible and record.objective <= record.best
        best.append(record.error if lowest else best[-1] if best else np.nan)
    return np.array(best)


def path_data(search: Any, names: Sequence[str] | None = None) -> Path:
    """Where a search has been: every entry of every hyper-parameter, by evaluation.

    Parameters
    ----------
    search : fitted BilevelSearchCV
    names : sequence of str, optional
        Hyper-parameters to show, without the name of the pipeline's step; all by default.
    """
    check_is_fitted(search, "space_")
    blocks = {block.name: block for block in search.space_.blocks}
    for name in names or ():
        if name not in blocks:
            raise ValueError(f"unknown hyper-parameter {name!r}; this search has: {', '.join(blocks)}")
    chosen = [blocks[name] for name in (names or blocks)]
    records = [r for r in search.result_.history if all(block.name in r.params for block in chosen)]
    columns = [np.array([np.atleast_1d(r.params[block.name]) for r in records], float) for block in chosen]
    return Path(
        np.array([r.evaluation for r in records]),
        np.array([r.start for r in records]),
        [label for block in chosen for label in block.labels],
        np.hstack(columns),
        np.concatenate([np.atleast_1d(block.lower[block.index]) for block in chosen]),
        np.concatenate([np.atleast_1d(block.upper[block.index]) for block in chosen]),
        np.concatenate([np.full(len(block.index), block.scale == "log") for block in chosen]),
    )


def contour_data(
    search: Any,
    X: Any = None,
    y: Any = None,
    names: Sequence[str] | None = None,
    *,
    points: int = 21,
    **fit_params: Any,
) -> Contour:
    """The cross-validation error on a grid over two hyper-parameters, the others at their selected values.

    The folds are those of the search as long as its ``cv`` gives the same folds again: pass a number, or a splitter
    with a ``random_state``. Costs ``points ** 2`` evaluations; a search by ``method="grid"`` over these two alone has
    them already.

    Parameters
    ----------
    search : fitted BilevelSearchCV
    X, y : the data of the search; not needed where it was a grid over two hyper-parameters
    names : two hyper-parameters, without the name of the pipeline's step; by default the first two single numbers
    points : int
        Grid points per axis.
    **fit_params : passed to ``fit``, such as ``sample_weight``
    """
    check_is_fitted(search, "space_")
    scalars = {block.name: block for block in search.space_.blocks if block.scalar}
    pair = list(scalars)[:2] if names is None else list(names)
    if len(pair) != 2 or any(name not in scalars for name in pair):
        raise ValueError(
            f"a contour needs two hyper-parameters that are single numbers; got {pair}. "
            f"This search has: {', '.join(scalars) or 'none'}"
        )
    if points < 2:
        raise ValueError(f"a contour needs at least two points per axis; got points={points!r}")
    records = (
        search.result_.history if X is None else _on_a_grid(search, X, y, scalars, pair, points, fit_params)
    )
    grid = np.array([[*(r.params[name] for name in pair), r.error] for r in records])
    axes = [_distinct(grid[:, k]) for k in (0, 1)]
    objective = np.full((len(axes[1]), len(axes[0])), np.nan)
    columns = [np.abs(grid[:, k, None] - axes[k]).argmin(axis=1) for k in (0, 1)]
    objective[columns[1], columns[0]] = grid[:, 2]
    if X is None and (np.isnan(objective).any() or min(objective.shape) < 2):
        raise TypeError(
            "the points of this search are no grid over two hyper-parameters: give its data too, X and y, for the "
            "error on one"
        )
    # The points of a grid are the picture; those of another search are its way through it.
    way = np.zeros((0, 2)) if X is None else path_data(search, pair).values
    best = np.array([float(search.result_.params[name]) for name in pair])
    log = scalars[pair[0]].scale == "log", scalars[pair[1]].scale == "log"
    return Contour((pair[0], pair[1]), axes[0], axes[1], objective, log, way, best)


def _on_a_grid(
    search: Any,
    X: Any,
    y: Any,
    scalars: Mapping[str, Block],
    pair: Sequence[str],
    points: int,
    fit_params: Mapping[str, Any],
) -> list[Record]:
    """The records of a grid over two hyper-parameters, the others as they were selected."""
    first = next(iter(search.space_.slices))
    prefix = next(iter(search.best_params_)).removesuffix(first)
    others = {
        key: value for key, value in search.best_params_.items() if key.removeprefix(prefix) not in pair
    }
    bounds = {
        prefix + name: (Log if scalars[name].scale == "log" else Lin)(
            float(scalars[name].lower[0]), float(scalars[name].upper[0])
        )
        for name in pair
    }
    plan = clone(search).set_params(
        estimator=clone(search.estimator).set_params(**others),
        space=bounds,
        method="grid",
        method_options={"points": points},
        criterion=search.criterion_,
        refit=False,
        n_starts=None,
        callbacks=(),
        verbose=0,
    )
    history: list[Record] = plan.fit(X, y, **fit_params).result_.history
    return history


def relevance_data(model: Any, names: Sequence[str] | None = None) -> Relevance:
    """How much each feature counts in a fitted model.

    ``relevance_`` where the model has it (kernel machines with one width per feature or several kernels, models with a
    box), else the size of the coefficients, summed over classes and divided by the largest.

    Parameters
    ----------
    model : fitted estimator, pipeline or search
    names : names of the features; by default those that the model was fitted with
    """
    model = getattr(model, "best_estimator_", model)
    step = model[-1] if isinstance(model, Pipeline) else model
    check_is_fitted(step)
    if names is None:
        names = _feature_names(model, step)
    box = _box(step)
    relevance = getattr(step, "relevance_", None)
    if relevance is not None:
        values, what = np.asarray(relevance, float), "relevance"
    elif hasattr(step, "coef_"):
        sizes = np.abs(np.atleast_2d(np.asarray(step.coef_, float))).sum(axis=0)
        values, what = (
            sizes / max(float(sizes.max(initial=0.0)), np.finfo(float).tiny),
            "|coefficient|",
        )
    else:
        raise ValueError(
            f"{type(step).__name__} does not say what features count; use a linear model, RBF(ard=True) or a Sum of "
            "kernels"
        )
    labels = [f"x{i}" for i in range(len(values))] if names is None else [str(name) for name in names]
    if len(labels) != len(values):
        raise ValueError(f"got {len(labels)} names for {len(values)} features")
    selected = np.asarray(step.get_support(), bool) if hasattr(step, "get_support") else values > 0
    return Relevance(labels, values, selected, what, box)


def validation_test_data(
    search: Any, X: Any, y: Any, X_test: Any, y_test: Any, *, most: int = 30
) -> ValidationTest:
    """Cross-validation error against the error on test rows, at points that the search evaluated.

    The estimator is fitted again to ``X, y`` at up to ``most`` of them, the best one included.
    """
    check_is_fitted(search, "result_")
    params = search.cv_results_["params"]
    chosen = np.unique(
        np.append(np.linspace(0, len(params) - 1, min(most, len(params))).astype(int), search.best_index_)
    )
    errors = []
    for index in chosen:
        fitted = clone(search.estimator).set_params(**params[index])
        with limited(fitted, len(y)):
            fitted.fit(X, y)
        predicted = fitted.predict(X_test)
        wrong = (
            predicted != np.asarray(y_test)
            if is_classifier(search)
            else (predicted - np.asarray(y_test)) ** 2
        )
        errors.append(float(np.mean(wrong)))
    metric = "error rate" if is_classifier(search) else "mean squared error"
    return ValidationTest(chosen, -search.cv_results_["mean_test_score"][chosen], np.array(errors), metric)


def partial_effect_data(model: Any, X: Any, feature: int | str, *, points: int = 50) -> PartialEffect:
    """The model's output along one feature, the others held at their medians.

    For classifiers of two classes the output is the decision; a semiparametric model also gives its parametric part.

    Parameters
    ----------
    model : fitted estimator, pipeline or search
    X : array or data frame; its medians and the range of the feature are used
    feature : str or int, a column
    points : int
    """
    model = getattr(model, "best_estimator_", model)
    names = column_names(X)
    table = np.asarray(X, float)
    if isinstance(feature, str):
        if names is None or feature not in names:
            known = "X has no names; give its number" if names is None else f"X has: {', '.join(names[:20])}"
            raise ValueError(f"unknown feature {feature!r}; {known}")
        feature = names.index(feature)
    if not 0 <= feature < table.shape[1]:
        raise ValueError(f"feature {feature} is not among the {table.shape[1]} columns of X")
    at = np.median(table, axis=0)
    rows: Any = np.tile(at, (points, 1))
    grid = np.linspace(table[:, feature].min(), table[:, feature].max(), points)
    rows[:, feature] = grid
    if names is not None:
        rows = type(X)(rows, columns=X.columns)
    decides = is_classifier(model)
    effect = model.decision_function(rows) if decides else model.predict(rows)
    if np.ndim(effect) > 1:
        raise ValueError("a partial effect needs one output; this model has several classes")
    parametric = model.parametric_part(rows) if hasattr(model, "parametric_part") else None
    label = f"x{feature}" if names is None else names[feature]
    output = "decision (positive: second class)" if decides else "prediction (unit of the target)"
    return PartialEffect(label, grid, np.asarray(effect, float), at, parametric, output)


def growth_data(timings: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> list[Growth]:
    """Curves of time against size, with the exponent of the power law that fits best.

    Parameters
    ----------
    timings : dict, sizes and seconds of every contender

    Examples
    --------
    >>> (curve,) = growth_data({"quadratic": ([10, 20, 40], [1.0, 4.0, 16.0])})
    >>> round(curve.exponent, 6)
    2.0
    """
    out = []
    for name, (size, seconds) in timings.items():
        x, t = np.asarray(size, float), np.asarray(seconds, float)
        if x.shape != t.shape or x.ndim != 1 or np.any(x <= 0) or np.any(t <= 0):
            raise ValueError(f"{name!r} needs as many positive sizes as positive times")
        exponent = float(np.polyfit(np.log(x), np.log(t), 1)[0]) if len(np.unique(x)) > 1 else float("nan")
        out.append(Growth(name, x, t, exponent))
    return out


def _result(source: Any) -> Result:
    if isinstance(source, Result):
        return source
    check_is_fitted(source, "result_")
    result: Result = source.result_
    return result


def criterion_words(source: Any) -> str:
    """What a search minimises, in words: "squared"; nothing for a result alone."""
    criterion = getattr(source, "criterion_", None)
    name = "" if criterion is None else type(criterion).__name__
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()


def _distinct(values: np.ndarray) -> np.ndarray:
    """Values that differ by more than rounding."""
    ordered = np.sort(values)
    gap = np.diff(ordered) > 1e-9 * np.maximum(np.abs(ordered[1:]), np.finfo(float).tiny)
    return np.asarray(ordered[np.concatenate([[True], gap])])


def _feature_names(model: Any, step: Any) -> Sequence[str] | None:
    if isinstance(model, Pipeline) and len(model) > 1:
        try:
            return list(model[:-1].get_feature_names_out())
        except (AttributeError, ValueError):  # a step that does not name its columns
            return None
    return getattr(step, "feature_names_in_", None)


def _box(step: Any) -> np.ndarray | None:
    """The upper end of each weight's box."""
    box = getattr(step, "box", None)
    if box is None:
        return None
    ends = box[1] if isinstance(box, tuple) else box
    return np.broadcast_to(np.asarray(ends, float), np.atleast_2d(step.coef_).shape[1:]).copy()
