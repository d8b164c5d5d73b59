"""What is tuned and between which bounds: the user's space, completed from the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.design import is_wide
from foldwise.estimators.tunable import Tunable
from foldwise.models.base import Array, DataFacts, Model, Rows, Sheet
from foldwise.problems.parameters import BOX
from foldwise.space import PER, Dimension, as_dimension
from foldwise.splits import Splits

__all__ = ["check_size", "check_varies", "data_facts", "dimensions_of", "read_space", "training_mass"]


def read_space(tunable: Tunable, user: Any) -> dict[str, Any]:
    """What the user says about every tuned hyper-parameter, by its bare name; None where nothing."""
    if user is None:
        return dict.fromkeys(tunable.default)
    spec = tunable.check_names(user if isinstance(user, Mapping) else dict.fromkeys(user))
    if not spec:
        raise ValueError("the space is empty; name at least one hyper-parameter, or leave space=None")
    return spec


def dimensions_of(model: Model, facts: DataFacts, spec: Mapping[str, Any]) -> dict[str, Dimension]:
    """The user's dimensions, with bounds from the data where none were given."""
    sizes = model.sizes(facts.X.shape[1])
    two_sided = "box_lower" in spec or model.values.get("box_lower") is not None
    out = {}
    for name, entry in spec.items():
        dimension = _read_dimension(name, entry, model, facts)
        if dimension.per is None and (per := _usual_per(name, entry, model, sizes)) is not None:
            dimension = replace(dimension, per=per)
        _check_dimension(name, dimension, model, sizes, two_sided)
        out[name] = dimension
    model.check_dimensions(out)
    for pair in (("C", "lam"), ("C", "kernel__weights")):
        if all(name in out for name in pair):
            raise ValueError(
                f"{pair[0]} and {pair[1]} scale each other, so their optimum is not unique. Tune one of them"
            )
    return out


def _read_dimension(name: str, entry: Any, model: Model, facts: DataFacts) -> Dimension:
    """What the user gives for one hyper-parameter, or bounds from the data."""
    if entry is None or (isinstance(entry, str) and entry in PER):
        return model.default_dimension(name, entry, facts)
    if isinstance(entry, str):
        raise ValueError(
            f"the space entry for {name!r} must be a pair (lower, upper), a Log or a Lin, None, or 'feature', "
            f"'group' or 'class' for bounds from the data; got {entry!r}"
        )
    return as_dimension(name, entry)


def _usual_per(name: str, entry: Any, model: Model, sizes: Mapping[str, int]) -> str | None:
    """How many values a hyper-parameter has where the user does not say."""
    if model.roles[name].kind in (*BOX, "reference") and not isinstance(entry, Dimension):
        return "feature"
    if name == "class_weight":
        return "class"
    return "feature" if sizes.get(name, 1) > 1 else None


def _check_dimension(
    name: str, dimension: Dimension, model: Model, sizes: Mapping[str, int], two_sided: bool
) -> None:
    """Refuse numbers of values, and signs of bounds, that a hyper-parameter cannot have."""
    role = model.roles[name]
    if dimension.per not in role.per:
        allowed = ", ".join(repr(per) for per in role.per)
        hint = "; use KernelSVC or KernelSVR with RBF(ard=True)" if model.is_width(name) else ""
        raise ValueError(f"{name!r} cannot be tuned per {dimension.per}; per may be {allowed}{hint}")
    if role.kind in ("reference", "own") or (role.kind in BOX and (name == "box_lower" or two_sided)):
        return
    if role.kind == "l1_ratio" and np.max(np.asarray(dimension.upper, float)) > 1:
        raise ValueError(
            f"the bounds of {name!r} must lie between 0 and 1; got an upper bound of {dimension.upper}"
        )
    zero = ("epsilon", "l1_ratio", *BOX)
    lower, may_be_zero = np.min(np.asarray(dimension.lower, float)), role.kind in zero
    if lower < 0 or (lower == 0 and not may_be_zero):
        must = "not be negative" if may_be_zero else "be positive"
        raise ValueError(f"the bounds of {name!r} must {must}; got a lower bound of {lower:g}")


def data_facts(model: Model, sheets: Sequence[Sheet], rows: Rows, splits: Splits) -> DataFacts:
    """What bounds and starting values are derived from; ``rows`` and ``splits`` are the user's."""
    sheet, mass = sheets[0], training_mass(rows, splits)
    y, weight = rows.Y[0], np.ones(len(rows.Y[0])) if rows.weight is None else rows.weight
    spread = np.sqrt(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
    standardized = sheet.standardize is not None and sheet.standardize[1]
    second = mass * _mean_squares(sheet, standardized, model.fit_intercept)
    return DataFacts(
        X=sheet.X,
        weight=sheet.rows.weight,
        n_rows=len(y),
        spread=float(spread),
        second_moment=second,
        total=float(len(y) if rows.weight is None else rows.weight.sum()),
        mass=mass,
        row_moment=float(second.sum() / mass) if is_wide(sheet.X) else None,
        grouped=rows.group is not None,
    )


def _mean_squares(sheet: Sheet, standardized: bool, centred: bool) -> Array:
    """Mean squares of the columns of a sheet, as the training problems see them."""
    X = sheet.X
    if standardized:
        return np.ones(X.shape[1])
    step = max(1, X.shape[0] // 2000)
    sample, weight = X[::step], np.ones(X.shape[0]) if sheet.rows.weight is None else sheet.rows.weight
    share = weight[::step] / max(weight[::step].sum(), np.finfo(float).tiny)
    if sp.issparse(X):
        return np.asarray(sample.multiply(sample).T @ share).ravel()
    mean = share @ sample if centred else 0.0
    out: Array = share @ (sample - mean) ** 2
    # What rounding leaves of a constant column is no spread.
    out[out <= (16.0 * np.finfo(float).eps * np.abs(mean)) ** 2] = 0.0
    return out


def check_varies(X: Any) -> None:
    """Refuse columns that are all constant: every value of every hyper-parameter would predict the same."""
    ends = [X.max(axis=0), X.min(axis=0)]
    high, low = (np.asarray(e.todense() if sp.issparse(e) else e, float).ravel() for e in ends)
    size = np.maximum(np.abs(high), np.abs(low))
    if X.shape[0] > 1 and np.all(high - low <= 16.0 * np.finfo(float).eps * size):
        raise ValueError(
            f"every column of X is constant ({X.shape[1]} columns, {X.shape[0]} rows): there is nothing to learn from, "
            "and nothing to select. Check the columns, and what the steps before the machine make of them"
        )
    if X.shape[0] > 1 and np.all(high - low < 1.0 / LARGEST):
        raise ValueError(
            f"no column of X varies by more than {np.max(high - low):.3g}, the square of which underflows; rescale the "
            "features, for example with StandardScaler in a pipeline"
        )
    if not np.all(size < LARGEST):
        raise ValueError(
            f"column {int(np.argmax(size))} of X has values of size {size.max():.3g}, whose squares overflow; rescale "
            "the features, for example with StandardScaler in a pipeline"
        )


LARGEST = 1e150
"""Features of this size and beyond are refused, and those that vary by less than its inverse."""


def check_size(Y: Array) -> None:
    """Refuse targets whose squared errors, or the squares of their gradients, cannot be held."""
    size, half = float(np.abs(Y).max()), float(np.ptp(Y / 2.0))
    if size >= WIDEST or 0.0 < half <= 0.5 / WIDEST:
        raise ValueError(
            f"the target y has values up to {size:.3g} and varies by {2.0 * half:.3g}: its squared errors overflow or "
            f"vanish; values must stay below {WIDEST:g} and vary by more than {1.0 / WIDEST:g}. Give it in another unit"
        )


WIDEST = 1e75
"""Targets of this size and beyond, or that vary by less than its reciprocal, are refused."""


def training_mass(rows: Rows, splits: Splits) -> float:
    """Mean total weight of a training set."""
    return float(
        np.mean([len(train) if rows.weight is None else rows.weight[train].sum() for train, _ in splits])
    )
