"""What is tuned and between which bounds: the user's space, completed from the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.design import is_wide
from foldwise.estimators.adapters import Tunable
from foldwise.estimators.adapters.kernel import as_often, kernel_dimension, slot_sizes
from foldwise.estimators.adapters.linear import default_dimension
from foldwise.models.base import Rows
from foldwise.models.kernel import KernelModel
from foldwise.problems.parameters import BOX
from foldwise.space import PER, Dimension, as_dimension
from foldwise.splits import Splits

__all__ = ["check_size", "check_varies", "dimensions_of", "read_space", "training_mass"]


def read_space(tunable: Tunable, user: Any) -> dict[str, Any]:
    """What the user says about every tuned hyper-parameter, by its bare name; None where nothing."""
    if user is None:
        return dict.fromkeys(tunable.default)
    spec = tunable.check_names(user if isinstance(user, Mapping) else dict.fromkeys(user))
    if not spec:
        raise ValueError("the space is empty; name at least one hyper-parameter, or leave space=None")
    return spec


def dimensions_of(model, X, rows, splits, how, spec: Mapping[str, Any]) -> tuple[dict[str, Dimension], float]:
    """The user's dimensions, with bounds from the data where none were given, and the spread of the target."""
    kernel = isinstance(model, KernelModel)
    second, spread = _moments(X, rows, splits, isinstance(how, tuple) and how[1], model.fit_intercept)
    mass = training_mass(rows, splits)
    row_moment = second.sum() / mass if is_wide(X) else None
    sizes = slot_sizes(model, X.shape[1]) if kernel else {}
    out = {}
    for name, entry in spec.items():
        if isinstance(entry, str) and entry not in PER:
            raise ValueError(
                f"the space entry for {name!r} must be a pair (lower, upper), a Log or a Lin, None, or 'feature', "
                f"'group' or 'class' for bounds from the data; got {entry!r}"
            )
        if entry is not None and not isinstance(entry, str):
            dimension = as_dimension(name, entry)
        elif kernel:
            often = as_often(X, rows.weight, model)
            dimension = kernel_dimension(name, model, often, spread, rows.group is not None)
            dimension = replace(dimension, per=dimension.per if entry is None else entry)
        else:
            grouped = rows.group is not None
            dimension = default_dimension(name, model, entry, second, spread, grouped, row_moment, mass)
        per_feature = model.roles[name].kind in (*BOX, "reference")
        if per_feature and not isinstance(entry, Dimension) and dimension.per is None:
            dimension = replace(dimension, per="feature")
        if name == "class_weight" and dimension.per is None:
            dimension = replace(dimension, per="class")
        if sizes.get(name, 1) > 1 and dimension.per is None:
            dimension = replace(dimension, per="feature")
        if dimension.per not in model.roles[name].per:
            allowed = ", ".join(repr(per) for per in model.roles[name].per)
            width = kernel and model.is_width(name)
            hint = "; use KernelSVC or KernelSVR with RBF(ard=True)" if width else ""
            raise ValueError(f"{name!r} cannot be tuned per {dimension.per}; per may be {allowed}{hint}")
        lower, kind = np.min(np.asarray(dimension.lower, float)), model.roles[name].kind
        two_sided = "box_lower" in spec or model.values.get("box_lower") is not None
        if kind == "reference" or (kind in BOX and (name == "box_lower" or two_sided)):
            lower = np.inf
        if lower < 0 or (lower == 0 and kind != "epsilon" and kind not in BOX):
            must = "not be negative" if kind == "epsilon" or kind in BOX else "be positive"
            raise ValueError(f"the bounds of {name!r} must {must}; got a lower bound of {lower:g}")
        out[name] = dimension
    _check_sides(out, model)
    if "reference" in out and "proximity" not in out and not model.values["proximity"]:
        raise ValueError(
            "reference acts through proximity, which is 0; tune it as well, or give the estimator a positive one"
        )
    for pair in (("C", "lam"), ("C", "kernel__weights")):
        if all(name in out for name in pair):
            raise ValueError(
                f"{pair[0]} and {pair[1]} scale each other, so their optimum is not unique. Tune one of them"
            )
    return out, spread


def _check_sides(dimensions: Mapping[str, Dimension], model: Any) -> None:
    """Two-sided boxes whose sides may cross are refused."""
    if not {"box", "box_lower"} & set(dimensions) or isinstance(model, KernelModel):
        return
    sides = {}
    for name, end, other in (("box_lower", "upper", -np.inf), ("box", "lower", np.inf)):
        fixed = model.values.get(name)
        sides[name] = (
            getattr(dimensions[name], end) if name in dimensions else other if fixed is None else fixed
        )
    if np.any(np.asarray(sides["box_lower"], float) > np.asarray(sides["box"], float)):
        raise ValueError(
            "box_lower may exceed box within their bounds; let the bounds of box_lower end where those of box begin, "
            "such as Lin(-2, 0) and Lin(0, 2)"
        )


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


def check_size(Y: np.ndarray) -> None:
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


def _moments(X, rows: Rows, splits: Splits, standardized: bool, centred: bool) -> tuple[np.ndarray, float]:
    """Typical sum of squares of each column over a training set, and the spread of the target."""
    n = X.shape[0]
    step = max(1, n // 2000)
    weight = np.ones(len(rows.Y[0])) if rows.weight is None else rows.weight
    y = rows.Y[0]
    spread = np.sqrt(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight))
    if len(weight) != n:  # the rows of one fold only
        weight = np.ones(n)
    sample = X[::step]
    share = weight[::step] / max(weight[::step].sum(), np.finfo(float).tiny)
    if standardized:
        mean_square = np.ones(X.shape[1])
    elif sp.issparse(X):
        mean_square = np.asarray(sample.multiply(sample).T @ share).ravel()
    else:
        mean = share @ sample if centred else 0.0
        mean_square = share @ (sample - mean) ** 2
        # What rounding leaves of a constant column is no spread.
        mean_square[mean_square <= (16.0 * np.finfo(float).eps * np.abs(mean)) ** 2] = 0.0
    return mean_square * training_mass(rows, splits), float(spread)
