"""Bounds and starting values of a kernel machine's hyper-parameters, from the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from foldwise.kernels import Kernel, Sum
from foldwise.losses import typical_curvature
from foldwise.models.base import Array, DataFacts
from foldwise.space import Dimension, Lin, Log

if TYPE_CHECKING:
    from foldwise.models.kernel.model import KernelModel

__all__ = ["kernel_dimension", "kernel_starts"]

TUBE = 0.1
"""Half width of the tube from which a search starts, in units of the target's spread."""
VALLEYS = ((10.0, 0.25, 1.0), (100.0, 0.06, 1.0))
"""Further points to look at first: factors of C, of widths (of a kernel) and of the tube."""
CLASS_VALLEYS = tuple(
    (more, wider, 1.0)
    for wider, strengths in (
        (0.08, (20.0, 200.0, 2000.0, 2.0)),
        (0.012, (200.0, 2000.0, 20.0, 2.0)),
        (0.002, (20.0, 200.0, 2000.0)),
        (0.5, (200.0, 20.0, 2.0, 0.2)),
        (3.0, (0.2, 2.0, 20.0)),
    )
    for more in strengths
)
"""The same for classes, whose valleys are far apart: a lattice of the space."""
MORE_VALLEYS = (
    (10.0, 0.25, 1.0),
    (100.0, 0.06, 1.0),
    (10.0, 1.0, 3.0),
    (1.0, 0.25, 3.0),
    (100.0, 0.25, 0.2),
    (1000.0, 0.06, 1.0),
    (3.0, 3.0, 1.0),
)
"""The same for exact machines with a tube, whose error has many local minima."""


def kernel_dimension(name: str, model: KernelModel, facts: DataFacts) -> Dimension:
    """Bounds from the data for a hyper-parameter of a kernel machine that has none."""
    role = model.roles[name]
    per = "group" if facts.grouped and "group" in role.per else None
    if name == "class_weight":
        return Log(0.05, 20.0, per="class")
    if role.kind == "epsilon":
        return Lin(0.0, facts.spread, per=per)
    X = _weighted_rows(model, facts)
    if role.kind == "log_c":
        size = _diagonal(model.kernel, X) / _unit(model, facts.spread)
        low, high = 1e-2 / size, 1e4 / size
        return Log(low, high, per=per) if role.sign > 0 else Log(0.5 / high, 0.5 / low, per=per)
    return Log(*model.kernel.bounds(X)[model.slot_names[name]])


def _weighted_rows(model: KernelModel, facts: DataFacts) -> Array:
    """The rows as often as they weigh, so that bounds and starts do not depend on which way that is said.

    Whole weights are taken as they are, others in tenths of their mean; of many rows a part stands for all.
    """
    X: Array = facts.X
    weight = facts.weight
    if weight is None or model.kernel.precomputed:
        return X
    step = max(1, len(X) // 2_000)
    X, weight = X[::step], weight[::step]
    whole = np.all(weight == np.rint(weight)) and weight.sum() <= 20 * len(weight)
    times = weight if whole else np.rint(10.0 * weight / max(weight.mean(), np.finfo(float).tiny))
    return np.repeat(X, times.astype(int), axis=0) if np.any(times > 0) else X


def _diagonal(kernel: Kernel, X: Array) -> float:
    """Typical ``k(x, x)``."""
    if isinstance(kernel, Sum):
        return 1.0
    if kernel.precomputed:
        return max(float(np.mean(np.diagonal(X))), 1e-12)
    sample = X[:: max(1, len(X) // 100)]
    return max(float(np.mean(kernel.with_parameters(kernel.typical(X)).diagonal(sample))), 1e-12)


def _unit(model: KernelModel, spread: float) -> float:
    """What ``C`` is measured in.

    A loss that grows like the distance bounds coefficients by ``C``, which are in units of the target. One that does so
    beyond some distance, such as Huber's, is steeper by the share of the spread that this is.
    """
    if model.loss.task != "regression":
        return 1.0
    if model.loss.polyhedral:
        return spread
    return max(1.0, 1.0 / typical_curvature(model.loss, spread))


def kernel_starts(
    model: KernelModel, tuned: Mapping[str, Dimension], facts: DataFacts
) -> list[dict[str, Any]]:
    """Starting values of the tuned hyper-parameters, and a few more points to look at first.

    All lie within the bounds.
    """
    X, spread = _weighted_rows(model, facts), facts.spread
    values: dict[str, float] = {}
    typical = model.kernel.typical(X)
    strength = _unit(model, spread) / _diagonal(model.kernel, X)
    for name in tuned:
        role = model.roles[name]
        if role.kind == "log_kernel":
            values[name] = typical[model.slot_names[name]]
        elif role.kind == "log_c" and name != "class_weight":
            values[name] = strength if role.sign > 0 else 0.5 / strength
        elif role.kind == "epsilon":
            values[name] = TUBE * spread
    tubes = [n for n in values if model.roles[n].kind == "epsilon"]
    c_names = [n for n in values if model.roles[n].kind == "log_c"]
    widths = [n for n in values if model.is_width(n)]
    points = [_within(values, tuned)]
    for more, wider, tube in _valleys(model):
        point = dict(values)
        for name in c_names:
            point[name] *= more ** model.roles[name].sign
        for name in widths:
            point[name] *= wider
        for name in tubes:
            point[name] *= tube
        point = _within(point, tuned)
        if point not in points:
            points.append(point)
    return points


def _valleys(model: KernelModel) -> Sequence[tuple[float, float, float]]:
    """Factors of further points: many where the error has many local minima."""
    if model.loss.task == "classification":
        return CLASS_VALLEYS
    return MORE_VALLEYS if model.loss.polyhedral else VALLEYS


def _within(values: dict[str, float], dimensions: Mapping[str, Dimension]) -> dict[str, float]:
    """The values, moved into the bounds; where an entry's bounds differ, into those of the first."""
    out = {}
    for name, value in values.items():
        low, high = (
            np.ravel(np.asarray(b, float))[0] for b in (dimensions[name].lower, dimensions[name].upper)
        )
        out[name] = float(np.clip(value, low, high))
    return out
