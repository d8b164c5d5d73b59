"""The search space: hyper-parameter names, their scale and bounds, and the flat vector ``theta``.

``theta`` holds the logarithm of an entry on a ``Log`` scale and the entry itself on a ``Lin`` scale, block after
block in the order in which the names were given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import NONE, Table, check_arguments, numbers, one_of, sequence

__all__ = ["PER", "Block", "Dimension", "Lin", "Log", "Space", "as_dimension", "natural_units"]

PER = (None, "feature", "group", "class")


@dataclass(frozen=True, eq=False)
class Dimension:
    """Bounds, scale and multiplicity of one hyper-parameter. Use :class:`Log` or :class:`Lin`.

    Parameters
    ----------
    lower, upper : float or array
        Bounds in the parameter's own units; an array gives one bound per entry.
    per : {None, "feature", "group", "class"}
        None: one value. "feature": one per column of X. "group": one per group of samples
        (``fit(..., sample_groups=...)``). "class": one per one-vs-rest problem of a multiclass model.
    tie : sequence, optional
        One label per entry; entries with the same label share their value.
    """

    lower: Any
    upper: Any
    per: str | None = None
    tie: Sequence[Any] | None = None

    scale = "lin"
    _arguments: ClassVar[Table] = {
        "lower": numbers(),
        "upper": numbers(),
        "per": one_of(*PER),
        "tie": sequence(lambda label: True, "a list with a label for every entry") | NONE,
    }

    def __post_init__(self) -> None:
        check_arguments(self)
        lower, upper = np.asarray(self.lower, float), np.asarray(self.upper, float)
        if lower.ndim and upper.ndim and lower.shape != upper.shape:
            raise ValueError(
                f"the bounds have {lower.size} and {upper.size} entries; they must be equal in number"
            )
        if np.any(lower > upper):
            raise ValueError(
                f"the lower bound exceeds the upper one in ({self.lower}, {self.upper}); swap them"
            )
        if self.scale == "log" and np.any(lower <= 0):
            raise ValueError(
                f"a log scale needs positive bounds; got ({self.lower}, {self.upper}). Raise the lower one, or use Lin"
            )
        if self.tie is not None and self.per is None:
            raise ValueError(
                "tie shares values between entries, so it needs per='feature', 'group' or 'class'"
            )


class Log(Dimension):
    """A positive hyper-parameter searched on a logarithmic scale.

    >>> Log(1e-3, 1e3, per="feature").per
    'feature'
    """

    scale = "log"


class Lin(Dimension):
    """A hyper-parameter searched on a linear scale; use it for a tube width, whose optimum may be 0."""

    scale = "lin"


def as_dimension(name: str, spec: Any) -> Dimension:
    """A ``Dimension`` from what a user may write: the object itself or a pair of bounds.

    A bare pair is ``Log`` when the lower bound is positive and the bounds differ by a factor of 100 or more.

    >>> type(as_dimension("C", (1e-3, 1e3))).__name__, type(as_dimension("epsilon", (0, 1))).__name__
    ('Log', 'Lin')
    """
    if isinstance(spec, Dimension):
        return spec
    try:
        lower, upper = spec
        lower_array, upper_array = np.asarray(lower, float), np.asarray(upper, float)
    except (TypeError, ValueError):
        raise ValueError(
            f"the space entry for {name!r} must be a pair (lower, upper), Log(lower, upper) or Lin(lower, upper); "
            f"got {spec!r}{_instead_of_a_grid(spec)}"
        ) from None
    wide = np.all(lower_array > 0) and np.all(upper_array >= 100 * lower_array)
    try:
        return Log(lower, upper) if wide else Lin(lower, upper)
    except ValueError as error:
        raise ValueError(f"the space entry for {name!r}: {error}") from None


@dataclass(frozen=True, eq=False)
class Block:
    """One named block of ``theta``: ``size`` free values, spread over ``index.size`` entries."""

    name: str
    scale: str
    lower: np.ndarray
    upper: np.ndarray
    index: np.ndarray
    labels: tuple[str, ...]
    scalar: bool

    @property
    def size(self) -> int:
        return len(self.lower)

    def values(self, theta: np.ndarray) -> np.ndarray:
        """Parameter values of the free entries (before ties are spread)."""
        return np.exp(theta) if self.scale == "log" else theta


def _instead_of_a_grid(spec: Any) -> str:
    """What to write for a list of values to try."""
    try:
        values = np.asarray(spec, float)
    except (TypeError, ValueError):
        return ""
    if values.ndim != 1 or len(values) < 3 or not np.all(np.isfinite(values)):
        return ""
    low, high = values.min(), values.max()
    return f". The search finds the value between the ends by itself: write ({low:g}, {high:g})"


def _ties(labels: Sequence[Any]) -> np.ndarray:
    """The number of every entry's tie: in the order of the labels, or of appearance where they have none."""
    try:
        known = sorted(set(labels))
    except TypeError:  # labels of several types
        known = list(dict.fromkeys(labels))
    place = {label: k for k, label in enumerate(known)}
    return np.array([place[label] for label in labels])


@dataclass(frozen=True, eq=False)
class Space:
    """Maps names to the flat vector ``theta`` and back; holds the bounds.

    Examples
    --------
    >>> space = Space.build({"C": Log(1e-2, 1e2), "epsilon": Lin(0, 1)}, {})
    >>> theta = space.theta({"C": 1.0, "epsilon": 0.5})
    >>> space.params(theta)
    {'C': 1.0, 'epsilon': 0.5}
    """

    blocks: tuple[Block, ...]
    slices: dict[str, slice] = field(init=False)
    lower: np.ndarray = field(init=False)
    upper: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        slices, start = {}, 0
        for block in self.blocks:
            slices[block.name] = slice(start, start + block.size)
            start += block.size
        object.__setattr__(self, "slices", slices)
        for side in ("lower", "upper"):
            parts = [np.log(getattr(b, side)) if b.scale == "log" else getattr(b, side) for b in self.blocks]
            object.__setattr__(self, side, np.concatenate(parts) if parts else np.zeros(0))

    @classmethod
    def build(cls, dimensions: Mapping[str, Dimension], labels: Mapping[str, Sequence[Any]]) -> Space:
        """Fix the sizes: ``labels`` names the entries for each value of ``per`` ("feature", "group", "class").

        A key of ``labels`` that is a hyper-parameter's name goes before its ``per``.
        """
        blocks = []
        for name, dim in dimensions.items():
            if dim.per is None:
                entries: tuple[str, ...] = (name,)
                index = np.zeros(1, dtype=int)
            else:
                if name not in labels and dim.per not in labels:
                    hint = {
                        "group": "pass fit(X, y, sample_groups=...)",
                        "class": "it needs three or more classes; for the cost of a class tune class_weight",
                        "feature": "this model has no per-feature parameters",
                    }[dim.per]
                    raise ValueError(
                        f"{name!r} asks for one value per {dim.per}, which is not available here: {hint}"
                    )
                entries = tuple(f"{name}[{label}]" for label in labels.get(name, labels.get(dim.per, ())))
                index = np.arange(len(entries))
                if dim.tie is not None:
                    if len(dim.tie) != len(entries):
                        raise ValueError(
                            f"tie of {name!r} has {len(dim.tie)} labels; it needs {len(entries)}, one per {dim.per}"
                        )
                    index = _ties(dim.tie)
            size = int(index.max()) + 1
            bounds = []
            for bound in (dim.lower, dim.upper):
                array = np.asarray(bound, float)
                if array.ndim and len(array) not in (1, size, len(entries)):
                    raise ValueError(
                        f"the bounds of {name!r} have {len(array)} entries; it has {len(entries)}"
                    )
                if array.ndim and len(array) == len(entries) != size:
                    # Entries that are tied keep the bounds of each of them.
                    tightest = np.max if bound is dim.lower else np.min
                    array = np.array([tightest(array[index == k]) for k in range(size)])
                bounds.append(np.broadcast_to(array, size).astype(float))
            if dim.tie is not None and np.any(bounds[0] > bounds[1]):
                k = int(np.argmax(bounds[0] > bounds[1]))
                tied = ", ".join(np.asarray(entries)[index == k])
                raise ValueError(
                    f"{tied} are tied and have no value in common: the largest of their lower bounds is "
                    f"{bounds[0][k]:g}, the smallest of their upper bounds {bounds[1][k]:g}. Widen them, or untie"
                )
            blocks.append(Block(name, dim.scale, bounds[0], bounds[1], index, entries, dim.per is None))
        return cls(tuple(blocks))

    @property
    def size(self) -> int:
        """Length of ``theta``."""
        return len(self.lower)

    @property
    def names(self) -> list[str]:
        """One name per entry of ``theta`` (the first entry's where entries are tied)."""
        return [
            block.labels[int(np.argmax(block.index == k))] for block in self.blocks for k in range(block.size)
        ]

    def params(self, theta: np.ndarray) -> dict[str, Any]:
        """Parameter values by name: floats, or arrays with one value per entry."""
        out: dict[str, Any] = {}
        for block in self.blocks:
            where = self.slices[block.name]
            part = np.asarray(theta)[where]
            values = np.clip(block.values(part), block.lower, block.upper)
            # exp(log(bound)) may miss the bound by some last digits, and by how many depends on NumPy's version.
            values = np.where(part <= self.lower[where], block.lower, values)
            values = np.where(part >= self.upper[where], block.upper, values)
            out[block.name] = float(values[0]) if block.scalar else values[block.index]
        return out

    def theta(self, params: Mapping[str, Any]) -> np.ndarray:
        """The vector for these parameter values, clipped to the bounds; missing names take the middle."""
        unknown = [name for name in params if name not in self.slices]
        if unknown:
            raise ValueError(
                f"unknown hyper-parameter {unknown[0]!r}; this space has: {', '.join(self.slices)}"
            )
        parts = []
        for block in self.blocks:
            low, high = self.lower[self.slices[block.name]], self.upper[self.slices[block.name]]
            if block.name not in params:
                parts.append(0.5 * (low + high))
                continue
            values = np.asarray(params[block.name], float).ravel()
            if values.size == 1:
                free = np.full(block.size, values[0])
            elif values.size == block.index.size:
                free = np.array([values[block.index == k].mean() for k in range(block.size)])
            else:
                raise ValueError(f"{block.name!r} needs 1 or {block.index.size} values; got {values.size}")
            if block.scale == "log":
                free = np.log(np.maximum(free, np.finfo(float).tiny))
            parts.append(np.clip(free, low, high))
        return np.concatenate(parts) if parts else np.zeros(0)

    def clip(self, theta: np.ndarray) -> np.ndarray:
        """Projection of ``theta`` on the bounds."""
        clipped: np.ndarray = np.clip(theta, self.lower, self.upper)
        return clipped

    def at_bound(self, theta: np.ndarray) -> dict[str, str]:
        """Which entries sit at a bound: name -> "lower" or "upper" (entries with equal bounds are left out)."""
        width = self.upper - self.lower
        out = {}
        for name, value, low, high, w in zip(self.names, theta, self.lower, self.upper, width, strict=True):
            if w > 0 and value <= low + 1e-9 * w:
                out[name] = "lower"
            elif w > 0 and value >= high - 1e-9 * w:
                out[name] = "upper"
        return out


def natural_units(space: Space) -> np.ndarray:
    """A fair step of every entry of ``theta``: one e-fold on a log scale, a quarter of the range on a linear one."""
    unit = [np.full(b.size, 1.0) if b.scale == "log" else 0.25 * (b.upper - b.lower) for b in space.blocks]
    return np.where((flat := np.concatenate([*unit, np.zeros(0)])) > 0, flat, 1.0)
