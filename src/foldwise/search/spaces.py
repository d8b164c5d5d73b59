"""What is to be tried, as users of grids and of random search write it: branches of choices, ranges inside each.

Lists of numbers and distributions of a value that has a derivative become a range; everything else (texts, objects,
booleans, and numbers such as the components of a PCA) is a choice, and every combination of choices is a branch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone

from foldwise.estimators.adapters import describe
from foldwise.space import Lin, Log

__all__ = ["MOST_POINTS", "Branch", "grid_points", "range_of", "read_branches", "space_of"]

MOST_POINTS = 500
"""Points of a grid of numbers that are all visited; of larger ones evenly spread points, so many."""
SPREAD = 9
"""Of an integer range that has to be enumerated, so many values at most, evenly spread."""
KERNEL_VALUES: dict[str, tuple[str, ...]] = {
    "linear": ("gamma", "degree", "coef0"),
    "rbf": ("degree", "coef0"),
    "sigmoid": ("degree",),
    "precomputed": ("gamma", "degree", "coef0"),
}
"""Values of scikit-learn's machines that mean nothing to a kernel."""


@dataclass(frozen=True, eq=False)
class Branch:
    """One combination of choices.

    Attributes
    ----------
    choices : what is chosen, by full name
    estimator : the user's, with these choices
    space : what is searched in it, as the user wrote it; None for what is usual
    """

    choices: Mapping[str, Any]
    estimator: Any
    space: Any


def space_of(search: Any) -> Any:
    """``space``, or what is given under one of its other names; more than one is refused."""
    names = ("space", "param_grid", "param_distributions")
    given = [name for name in names if getattr(search, name) is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} mean the same; give one of them")
    return getattr(search, given[0]) if given else None


def read_branches(search: Any) -> list[Branch]:
    """The branches of a search; one without choices where there are none."""
    space = space_of(search)
    if isinstance(space, Mapping):
        return _branches(search.estimator, space)
    if isinstance(space, (list, tuple)) and space and all(isinstance(one, Mapping) for one in space):
        return [branch for one in space for branch in _branches(search.estimator, one)]
    return [Branch({}, search.estimator, space)]


def _branches(estimator: Any, space: Mapping[str, Any]) -> list[Branch]:
    """The branches of one dict: choices that are seen as such first, then what each of them leaves to be chosen."""
    if (other := next((name for name in space if not isinstance(name, str)), None)) is not None:
        raise ValueError(f"the names of a space are texts, such as 'C'; got {other!r}")
    out, unheard = [], set(space)
    specs = {name: _unrolled(name, spec) for name, spec in space.items()}
    for first in _combinations({name: spec for name, spec in specs.items() if _is_choice(spec)}):
        numeric = {name: value for name, value in first.items() if isinstance(value, _Numbers)}
        fixed = {name: value for name, value in first.items() if name not in numeric}
        rest = {name: numeric[name].values if name in numeric else spec for name, spec in specs.items()}
        rest = {name: spec for name, spec in rest.items() if name not in fixed}
        here = _with(estimator, fixed)
        if not fixed and not any(isinstance(spec, (list, Integers)) for spec in rest.values()):
            out.append(Branch(fixed, here, rest))
            unheard = set()
            continue
        names, ignored = _tunable_names(here)
        unheard &= ignored
        rest = {
            name: spec.spread() if isinstance(spec, Integers) and name not in names else spec
            for name, spec in rest.items()
            if name not in ignored
        }
        listed = {
            name: spec
            for name, spec in rest.items()
            if isinstance(spec, list) and (name not in names or len(set(spec)) == 1)
        }
        for second in _combinations(listed):
            choices = {name: {**fixed, **second}[name] for name in space if name in {**fixed, **second}}
            left = {name: spec for name, spec in rest.items() if name not in choices}
            out.append(Branch(choices, _with(here, second), left))
    if space and unheard:
        name = sorted(unheard)[0]
        raise ValueError(
            f"{name!r} means nothing to the kernels of this space; leave it out, or add a kernel that has it"
        )
    if not space:
        raise ValueError("the space is empty; name at least one hyper-parameter, or leave space=None")
    return out


@dataclass(frozen=True, eq=False)
class _Numbers:
    """The numbers of a list that has other things too: together one branch."""

    values: list[Any]


def _unrolled(name: str, spec: Any) -> Any:
    """A list of values, a range, or what the user wrote where it is neither."""
    kind = type(spec).__name__
    if type(spec).__module__.startswith("optuna.distributions"):
        if kind == "CategoricalDistribution":
            return list(spec.choices)
        if kind == "IntDistribution":
            return Integers(int(spec.low), int(spec.high), int(spec.step), bool(spec.log))
        return Log(spec.low, spec.high) if spec.log else Lin(spec.low, spec.high)
    if hasattr(spec, "dist") and hasattr(spec, "support"):
        return _support(name, spec)
    if isinstance(spec, np.ndarray) and spec.ndim == 1:
        spec = spec.tolist()
    if isinstance(spec, tuple) and spec and not all(_is_number(value) or _is_bounds(value) for value in spec):
        spec = list(spec)
    if isinstance(spec, list):
        if not spec:
            raise ValueError(f"the space entry for {name!r} is an empty list; give values, or leave it out")
        if all(_is_bounds(value) for value in spec):
            return tuple(spec)  # bounds of several values
    return spec


@dataclass(frozen=True)
class Integers:
    """Integers from low to high."""

    low: int
    high: int
    step: int = 1
    log: bool = False

    def spread(self) -> list[int]:
        """All of them, or of many some that are evenly spread."""
        every = np.arange(self.low, self.high + 1, self.step)
        if len(every) <= SPREAD:
            return [int(value) for value in every]
        if self.log and self.low > 0:
            wanted = np.geomspace(self.low, self.high, SPREAD)
        else:
            wanted = np.linspace(self.low, self.high, SPREAD)
        nearest = np.abs(every[None, :] - wanted[:, None]).argmin(axis=1)
        return sorted({int(every[k]) for k in nearest})


def _support(name: str, spec: Any) -> Any:
    """The support of a frozen distribution of SciPy as a range."""
    low, high = spec.support()
    if hasattr(spec.dist, "pmf"):
        low, high = (spec.ppf(0.001), spec.ppf(0.999)) if not np.isfinite([low, high]).all() else (low, high)
        return Integers(int(low), int(high))
    if not np.isfinite([low, high]).all():
        low, high = float(spec.ppf(0.001)), float(spec.ppf(0.999))
    if not np.isfinite([low, high]).all():
        raise ValueError(f"the distribution of {name!r} has no bounds; write (lower, upper)")
    if getattr(spec.dist, "name", "") in ("loguniform", "reciprocal"):
        return Log(float(low), float(high))
    return (float(low), float(high))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def _is_bounds(value: Any) -> bool:
    """Whether a value is an array of numbers: one bound of several values."""
    return isinstance(value, (list, np.ndarray)) and len(value) > 0 and all(_is_number(one) for one in value)


def _is_choice(spec: Any) -> bool:
    return isinstance(spec, list) and not all(_is_number(value) for value in spec)


def _combinations(lists: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """All combinations of values; the numbers among other things stay together."""
    columns = []
    for values in lists.values():
        others = [value for value in values if not _is_number(value)]
        numbers = [value for value in values if _is_number(value)]
        columns.append([*others, _Numbers(numbers)] if others and numbers else values)
    return [dict(zip(lists, values, strict=True)) for values in product(*columns)]


def _with(estimator: Any, choices: Mapping[str, Any]) -> Any:
    """A copy of the estimator with these choices."""
    if not choices:
        return estimator
    try:
        copies = {name: _copied(value) for name, value in choices.items()}
        return clone(estimator).set_params(**copies)
    except (ValueError, AttributeError, TypeError) as error:  # of a name inside what has no parameters
        names = ", ".join(map(repr, choices))
        known = estimator.get_params()
        meant = [
            name for name in known for other in choices if name.endswith(f"__{other}") and other not in known
        ]
        more = f"Did you mean {', '.join(map(repr, meant))}?" if meant else str(error)
        raise ValueError(
            f"the space cannot be applied to the estimator ({names}): {more.rstrip('.')} "
            "(clone(estimator).set_params(...) must take every name)"
        ) from error


def _copied(value: Any) -> Any:
    return clone(value, safe=False) if hasattr(value, "get_params") and not isinstance(value, type) else value


def _tunable_names(estimator: Any) -> tuple[set[str], set[str]]:
    """Full names of what has derivatives in an estimator, and of what means nothing to its kernel."""
    tunable = describe(estimator)
    names = {tunable.prefix + name for name in tunable.names}
    names |= {tunable.prefix + name.removeprefix("kernel__") for name in tunable.names}
    kernel = getattr(tunable.estimator, "kernel", None)
    ignored = KERNEL_VALUES.get(kernel, ()) if isinstance(kernel, str) else ()
    return names, {tunable.prefix + name for name in ignored} - names


def range_of(spec: Any) -> tuple[Any, list[float]]:
    """What a search takes for one name, and the values that are to be visited in any case."""
    if isinstance(spec, Integers):
        return (float(spec.low), float(spec.high)), [float(value) for value in spec.spread()]
    if isinstance(spec, list) and len(spec) > 1 and all(_is_number(value) for value in spec):
        values = sorted({float(value) for value in spec})
        return (values[0], values[-1]), values
    return spec, []


def grid_points(space: Mapping[str, Sequence[float]]) -> list[dict[str, float]]:
    """The points of a grid, so that neighbours follow each other; of many, some that are evenly spread."""
    if not space or not all(space.values()):
        return []
    points: list[dict[str, float]] = [{}]
    for name, values in space.items():
        turns = [values if k % 2 == 0 else list(reversed(values)) for k in range(len(points))]
        points = [{**point, name: value} for point, turn in zip(points, turns, strict=True) for value in turn]
    if len(points) > MOST_POINTS:
        keep = np.linspace(0, len(points) - 1, MOST_POINTS).round().astype(int)
        points = [points[k] for k in keep]
    return points
