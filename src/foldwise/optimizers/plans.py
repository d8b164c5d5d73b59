"""Grid and random search on the same folds, criterion and inner solver: the baselines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import NONE, Rule, Table, instance, integer, numbers
from foldwise.bilevel import Bilevel
from foldwise.optimizers.base import Minimizer, Trace
from foldwise.result import Status
from foldwise.space import Space

__all__ = ["VALUES", "Grid", "Random", "check_plan", "snake"]

VALUES = Rule(
    "a dict from parameter name to a list of numbers",
    lambda given: isinstance(given, Mapping) and all(numbers().allows(v) for v in given.values()),
)


@dataclass(frozen=True)
class Grid(Minimizer):
    """Every combination of some values of each entry of ``theta``, visited so that neighbours warm-start.

    Parameters
    ----------
    points : int
        Values per entry, evenly spaced on its scale, bounds included.
    values : mapping from parameter name to sequence, optional
        Explicit values, in the parameter's units, used for every entry of that name.
    max_points : int
        Refuse a larger plan: a grid over many hyper-parameters is never what one wants.
    """

    points: int = 7
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    max_points: int = 10_000

    _arguments: ClassVar[Table] = {"points": integer(), "values": VALUES, "max_points": integer()}
    name = "grid"
    needs_gradient = False
    uses_start = False
    restarts = False
    limits: ClassVar[Mapping[str, str]] = {}

    def axes(self, space: Space) -> list[np.ndarray]:
        """The values of every entry of ``theta``."""
        unknown = [name for name in self.values if name not in space.slices]
        if unknown:
            raise ValueError(
                f"grid values for unknown {unknown[0]!r}; this space has: {', '.join(space.slices)}"
            )
        out = []
        for block in space.blocks:
            for k in range(block.size):
                i = space.slices[block.name].start + k
                if block.name in self.values:
                    array = np.sort(np.atleast_1d(np.asarray(self.values[block.name], float)))
                    if array[0] < block.lower[k] or array[-1] > block.upper[k]:
                        raise ValueError(
                            f"grid values of {block.name!r} must lie within its bounds, {block.lower[k]:g} to "
                            f"{block.upper[k]:g}; got {array[0]:g} to {array[-1]:g}"
                        )
                    out.append(np.log(array) if block.scale == "log" else array)
                else:
                    out.append(np.unique(np.linspace(space.lower[i], space.upper[i], self.points)))
        return out

    def check(self, bilevel: Bilevel) -> None:
        """Refuse a plan that is too large."""
        super().check(bilevel)
        check_plan(self.axes(bilevel.space), self.max_points)

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Evaluate the whole plan; ``theta`` is not used."""
        warm = None
        for point in snake(self.axes(trace.space)):
            warm = trace.evaluate(np.array(point), warm=warm)
        return Status.EXHAUSTED


def check_plan(axes: list[np.ndarray], max_points: int) -> None:
    """Refuse axes whose product has more points than that."""
    total = float(np.prod([float(len(axis)) for axis in axes]))
    if total > max_points:
        raise ValueError(
            f"this grid has {total:,.0f} points ({len(axes)} hyper-parameters), more than max_points={max_points}; use "
            "fewer points or values, a method that follows gradients (newton, lbfgsb), or "
            "method_options={'max_points': ...} to evaluate them all the same"
        )


def snake(axes: list[np.ndarray]) -> Iterator[tuple[float, ...]]:
    """The product of the axes in an order where successive points differ in one entry."""
    if not axes:
        yield ()
        return
    *first, last = axes
    for i, head in enumerate(snake(first)):
        for value in last if i % 2 == 0 else last[::-1]:
            yield (*head, value)


@dataclass(frozen=True)
class Random(Minimizer):
    """Points drawn uniformly on each entry's scale.

    Parameters
    ----------
    n_iter : int
    seed : int or None
    """

    n_iter: int = 50
    seed: Any = None

    _arguments: ClassVar[Table] = {
        "n_iter": integer(),
        "seed": integer(0) | instance(np.random.Generator, "a Generator") | NONE,
    }
    name = "random"
    needs_gradient = False
    restarts = False
    limits: ClassVar[Mapping[str, str]] = {"max_iter": "n_iter"}

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Evaluate ``theta`` and then ``n_iter - 1`` random points."""
        rng = np.random.default_rng(self.seed)
        warm = trace.evaluate(theta, note="start")
        for _ in range(self.n_iter - 1):
            warm = trace.evaluate(rng.uniform(trace.space.lower, trace.space.upper), warm=warm)
        return Status.EXHAUSTED
