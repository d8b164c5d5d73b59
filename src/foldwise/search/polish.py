"""The last steps of a search with a metric of its own: no derivatives, only the metric, around the best point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from foldwise.bilevel import Evaluation
from foldwise.models.base import Array
from foldwise.optimizers.base import Trace
from foldwise.result import Record
from foldwise.space import natural_units

__all__ = ["PolishRule", "polish", "polish_rule"]


@dataclass(frozen=True)
class PolishRule:
    """How far and how long a polish looks.

    Attributes
    ----------
    radius : first step, in natural units (an e-fold on a log scale, a quarter of the range on a linear one)
    smallest : step below which it ends
    points, by_value : evaluations at most: so many, and so many for every value that is tuned
    most : evaluations at most, in any case
    """

    radius: float = 1.0
    smallest: float = 0.2
    points: int = 4
    by_value: int = 6
    most: int = 40

    def budget(self, size: int) -> int:
        """Evaluations at most for so many values."""
        return min(self.points + self.by_value * size, self.most)


COUNTS = PolishRule()
"""For metrics that count rows: steps across the scale on which single rows change sides."""
SMOOTH = PolishRule(radius=0.25, smallest=0.1, points=2, by_value=2, most=12)
"""For metrics that follow the criterion closely, such as the root mean squared error."""


def polish_rule(metric: str) -> PolishRule:
    """How the polish for a metric of scikit-learn, by its function's name, looks."""
    close = ("mean_squared_error", "root_mean_squared_error", "r2_score", "explained_variance_score")
    return SMOOTH if metric in (*close, "log_loss", "brier_score_loss", "mean_absolute_error") else COUNTS


def polish(
    trace: Trace,
    warm: Evaluation,
    theta: Array,
    best: Record,
    better: Callable[[Record, Record], bool],
    rule: PolishRule | None = COUNTS,
    extra: Sequence[Array] = (),
    limit: int | None = None,
) -> Iterator[Evaluation]:
    """Yield evaluations that are better than all before them.

    Parameters
    ----------
    trace : Trace
        Evaluates; stops by raising.
    warm : an evaluation to start from
    theta, best : the point that it starts from, and its record
    better : callable(Record, Record) -> bool
        Whether the first is better than the second.
    rule : PolishRule or None
        None for no steps of its own.
    extra : points that are evaluated first, such as those of a grid
    limit : evaluations at most, beside ``extra``
    """
    space, here = trace.space, np.asarray(theta, float)
    # 1. Points that were asked for.
    for point in extra:
        warm = trace.evaluate(space.clip(point), warm=warm, note="grid")
        if better(trace.history[-1], best):
            here, best = warm.theta, trace.history[-1]
            yield warm
    if rule is None:
        return
    # 2. Steps to either side of every value, the last good direction first; halved where none is better.
    unit, radius = natural_units(space), rule.radius
    left = rule.budget(space.size) if limit is None else min(limit, rule.budget(space.size))
    seen, directions = {here.tobytes()}, [s * row for row in np.eye(space.size) for s in (1.0, -1.0)]
    while radius >= rule.smallest and left > 0:
        moved = False
        for direction in list(directions):
            there = space.clip(here + radius * unit * direction)
            if there.tobytes() in seen or left <= 0:
                continue
            seen.add(there.tobytes())
            warm, left = trace.evaluate(there, warm=warm, note="polish"), left - 1
            if better(trace.history[-1], best):
                here, best, moved = warm.theta, trace.history[-1], True
                yield warm
                directions = sorted(directions, key=lambda d: -float(d @ direction))
                break
        radius *= 1.0 if moved else 0.5
