"""Where the hyper-parameters of a model act: rows in cells, class weights, the parameter map of its problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldwise.models.base import Array, Model, Role, Rows
from foldwise.problems.folds import Folds
from foldwise.problems.parameters import BOX, Binding, ParameterMap
from foldwise.space import Dimension, Space

__all__ = ["Cells", "Layout", "build_parameters", "criterion_weights", "make_cells", "weights_by_label"]


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of rows that share their hyper-parameters: (group, class) pairs, as far as they matter.

    Attributes
    ----------
    row : cell of every row
    group, label : group and class of every cell
    """

    row: Array
    group: Array
    label: Array


@dataclass(frozen=True, eq=False)
class Layout:
    """Sizes of the tables in which hyper-parameters act.

    Attributes
    ----------
    targets, splits, features : counts
    cells : cells of the rows; of these the first ``n_cells`` have rows
    slots : where each kernel hyper-parameter's values stand among the kernel's parameters
    """

    targets: int
    splits: int
    features: int
    cells: Cells
    n_cells: int
    slots: Mapping[str, slice] = field(default_factory=dict)

    @property
    def n_tasks(self) -> int:
        """Training problems: one for every target and split."""
        return self.targets * self.splits

    @property
    def n_slots(self) -> int:
        """Parameters of the kernel."""
        return max((part.stop for part in self.slots.values()), default=0)

    @property
    def group(self) -> Array:
        """Groups of the cells that have rows."""
        return self.cells.group[: self.n_cells]

    @property
    def label(self) -> Array:
        """Classes of the cells that have rows."""
        return self.cells.label[: self.n_cells]


def make_cells(model: Model, rows: Rows, dimensions: Mapping[str, Dimension], n: int) -> Cells:
    """Cells by group where a hyper-parameter differs by group, and by class where weights do."""
    by_group = rows.group is not None and (
        any(dim.per == "group" for dim in dimensions.values())
        or any(np.ndim(model.values[name]) > 0 for name in ("C", "epsilon") if name in model.values)
    )
    by_class = rows.label is not None and ("class_weight" in dimensions or model.class_weight is not None)
    group = rows.group if by_group else np.zeros(n, dtype=int)
    label = rows.label if by_class else np.zeros(n, dtype=int)
    assert group is not None
    assert label is not None
    n_groups = len(rows.group_labels) if by_group else 1
    n_labels = len(rows.class_labels) if by_class else 1
    pairs = np.arange(n_groups * n_labels)
    return Cells(group * n_labels + label, pairs // n_labels, pairs % n_labels)


def build_parameters(
    model: Model,
    rows: Rows,
    folds: Folds,
    dimensions: Mapping[str, Dimension],
    space: Space,
    layout: Layout,
) -> ParameterMap:
    """Fixed parts and bindings of every hyper-parameter; ``model.values`` holds the values that are fixed."""
    by_cell, by_feature = (layout.n_tasks, layout.n_cells), (layout.targets, layout.features)
    base = {"log_c": np.zeros(by_cell), "epsilon": np.zeros(by_cell), "log_lam": np.zeros(by_feature)}
    base |= {"log_kernel": np.zeros((1, layout.n_slots)), "log_near": np.full(by_feature, -np.inf)}
    base["l1_ratio"] = np.full(
        by_feature, 0.0 if "l1_ratio" in dimensions else getattr(model, "l1_ratio", 0.0)
    )
    bounds = _bounds(model, dimensions, *by_feature)
    bindings = {}
    for name, role in model.roles.items():
        if name in dimensions:
            kind = role.kind
            if kind == "box" and ("box_lower" in dimensions or model.values.get("box_lower") is not None):
                kind = "box_upper"
            bindings[name] = Binding(kind, _index(name, role, dimensions[name], layout), role.sign)
            if role.kind == "log_near":
                base["log_near"][:] = 0.0
            elif role.kind not in ("epsilon", "reference", "l1_ratio", *BOX):
                base[role.kind] += np.log(role.factor)
        elif role.kind in (*BOX, "reference", "l1_ratio"):
            continue
        elif role.kind == "log_near":
            with np.errstate(divide="ignore"):
                base["log_near"][:] = np.log(_proximity(name, model.values[name]))
        elif role.kind == "log_kernel":
            with np.errstate(divide="ignore"):
                base["log_kernel"][0, layout.slots[name]] = np.log(model.values[name])
        elif name in model.values:
            base[role.kind] += _fixed(name, role, model.values[name], layout)
    if model.class_weight is not None and "class_weight" not in dimensions:
        base["log_c"] += np.log(_class_weights(model, rows, folds, layout))
    mass = folds.count.sum(axis=1) if rows.weight is None else folds.count @ rows.weight
    base["log_c"] += np.tile(np.log(model.share_of_row(mass)), layout.targets)[:, None]
    parts = (base["log_c"], base["epsilon"], base["log_lam"], base["log_kernel"])
    return ParameterMap(space, bindings, *parts, bounds, base["log_near"], l1_ratio=base["l1_ratio"])


def _bounds(model: Model, dimensions: Mapping[str, Dimension], K: int, d: int) -> tuple[Array, Array]:
    """Fixed parts of the lower and upper bounds of the weights, (targets, features) each; zero where tuned."""
    sides = {}
    for name in ("box_lower", "box"):
        value = model.values.get(name) if name in model.roles else None
        if name in dimensions:
            value = 0.0
        elif value is not None:
            value = np.asarray(value, float)
            if value.ndim > 1 or (value.ndim and len(value) != d):
                raise ValueError(
                    f"{name} has shape {value.shape}; X has {d} features. Give one number or one per feature"
                )
            if np.any(np.isnan(value)):
                raise ValueError(f"{name} has entries that are not numbers; use inf for no bound")
        sides[name] = None if value is None else np.array(np.broadcast_to(value, (K, d)), float)
    upper, lower = sides["box"], sides["box_lower"]
    if lower is None and upper is not None:
        if np.any(upper < 0):
            raise ValueError(
                f"box must not be negative; got {upper.min():g}. Give box_lower for a two-sided box"
            )
        lower = -upper
    upper = np.full((K, d), np.inf) if upper is None else upper
    lower = np.full((K, d), -np.inf) if lower is None else lower
    if not {"box", "box_lower"} & set(dimensions) and np.any(lower > upper):
        raise ValueError("box_lower exceeds box for some feature; swap them")
    return lower, upper


def _proximity(name: str, value: Any) -> float:
    if not (np.ndim(value) == 0 and value >= 0 and np.isfinite(value)):
        raise ValueError(f"{name} must be one number, finite and not negative; got {value!r}")
    return float(value)


def _index(name: str, role: Role, dimension: Dimension, layout: Layout) -> Array:
    """Which entry of a tuned hyper-parameter acts where, as :class:`Binding` wants it."""
    targets, per = np.arange(layout.targets), dimension.per
    if role.kind == "log_kernel":
        out, part = np.full((1, layout.n_slots), -1), layout.slots[name]
        out[0, part] = np.arange(part.stop - part.start) if per is not None else 0
        return out
    if role.kind in ("log_lam", "log_near", "reference", "l1_ratio", *BOX):
        if per == "feature":
            return np.tile(np.arange(layout.features), (layout.targets, 1))
        own = targets if per == "class" else np.zeros_like(targets)
        return np.tile(own[:, None], (1, layout.features))
    if name == "class_weight":
        return np.tile(layout.label - 1, (layout.n_tasks, 1))
    if per == "group":
        return np.tile(layout.group, (layout.n_tasks, 1))
    own = np.repeat(targets if per == "class" else np.zeros_like(targets), layout.splits)
    return np.tile(own[:, None], (1, layout.n_cells))


def _fixed(name: str, role: Role, given: Any, layout: Layout) -> Array:
    """What a fixed value adds to the table of its kind."""
    value: Array = np.asarray(given, float)
    if role.kind != "epsilon":
        if np.any(value <= 0) or not np.all(np.isfinite(value)):
            raise ValueError(f"{name} must be positive and finite; got {value}")
        value = np.asarray(role.sign * np.log(value) + np.log(role.factor))
    elif not (np.all(value >= 0) and np.all(np.isfinite(value))):
        raise ValueError(f"{name} must be finite and not negative; got {value}")
    if value.ndim == 0:
        return value
    if role.kind == "log_lam":
        if len(value) != layout.features:
            raise ValueError(
                f"{name} has {len(value)} entries; X has {layout.features} features. Give one number or one per feature"
            )
        return value[None, :]
    groups = int(layout.cells.group.max()) + 1
    if groups == 1 and "class" in role.per and len(value) == layout.targets > 1:
        return np.repeat(value, layout.splits)[:, None]
    if len(value) != groups:
        raise ValueError(
            f"{name} has {len(value)} entries but there are {groups} groups of samples; give one number, or one per "
            "group together with fit(X, y, sample_groups=...)"
        )
    out: Array = value[layout.group]
    return out[None, :]


def _class_weights(model: Model, rows: Rows, folds: Folds, layout: Layout) -> Array:
    """What fixed class weights multiply the loss of every task's cells by."""
    by_label = weights_by_label(model.class_weight, model, rows, folds)
    out = np.ones((layout.n_tasks, layout.n_cells))
    for t in range(layout.splits):
        for k in range(layout.targets):
            weights = by_label[t][layout.label]
            if model.class_weight_rule == "own" and layout.targets > 1:
                weights = _balanced_pair(model, rows, folds, t, k)[(layout.label == k).astype(int)]
            if model.class_weight_rule == "positive" and layout.targets > 1:
                weights = np.where(layout.label == k, weights, 1.0)
            out[k * layout.splits + t] = weights
    return out


def _balanced_pair(model: Model, rows: Rows, folds: Folds, t: int, k: int) -> Array:
    """What the rest and class ``k`` weigh in a problem of their own whose weights are balanced."""
    assert rows.label is not None
    times = folds.count[t]
    weight = times if rows.weight is None or model.balances == "rows" else times * rows.weight
    counts = np.bincount((rows.label == k).astype(int), weight, minlength=2)
    return np.asarray(counts.sum() / (2.0 * np.where(counts > 0, counts, 1.0)))


def weights_by_label(class_weight: Any, model: Model, rows: Rows, folds: Folds) -> Array:
    """What each class weighs in every split's training loss: shape (splits, classes)."""
    n_labels, T = len(rows.class_labels), folds.n_splits
    if class_weight != "balanced":
        by_label = np.array([float(class_weight.get(code, 1.0)) for code in range(n_labels)])
        return np.tile(by_label, (T, 1))
    assert rows.label is not None
    out = np.ones((T, n_labels))
    for t, times in enumerate(folds.count):
        weight = times if rows.weight is None or model.balances == "rows" else times * rows.weight
        counts = np.bincount(rows.label, weight, minlength=n_labels)
        out[t] = counts.sum() / (n_labels * np.where(counts > 0, counts, 1.0))
    return out


def criterion_weights(
    model: Model, rows: Rows, folds: Folds, dimensions: Mapping[str, Dimension]
) -> Array | None:
    """What validation rows count in the criterion: their sample weight, times the weight of their own class.

    Of shape (n,), or (splits, n) where classes weigh; None for rows that count equally. Class weights that are tuned
    cannot weigh the criterion: it would fall as they move towards the class that is easier to tell.
    """
    spec = model.criterion_weight
    if isinstance(spec, str) and spec == "auto":
        spec = None if "class_weight" in dimensions else model.class_weight
    if spec is None or rows.label is None:
        return rows.weight
    counts = weights_by_label(spec, model, rows, folds)[:, rows.label]
    return counts if rows.weight is None else counts * rows.weight
