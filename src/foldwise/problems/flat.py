"""Intercepts that are not unique under a smooth loss: the middle of their interval.

Where every training row is on a straight piece of its loss (in the tube, beyond the margin, in the tail of Huber's
loss) the coefficients are known: each row has the slope of its piece. If these slopes add up to nothing, the intercept
may be anywhere between the ends that the pieces set. A solver stops somewhere in that interval, depending on where it
came from; the middle does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.losses import Loss

__all__ = ["Middle", "middle"]

SLACK = 0.05
"""Distance from a straight piece, in units of ``1 + |y|``, up to which a row is tried on it; what is found is exact."""


@dataclass(frozen=True, eq=False)
class Middle:
    """A solution on straight pieces: coefficients, decisions without intercept, its middle and the rows at the ends.

    ``slope`` is how the ends move with the width of a tube.
    """

    alpha: np.ndarray
    f: np.ndarray
    b: float
    rows: np.ndarray
    slope: np.ndarray


def middle(
    loss: Loss, y: np.ndarray, c: np.ndarray, z: np.ndarray, decide: Callable[[np.ndarray], np.ndarray]
) -> Middle | None:
    """The solution near decisions ``z`` with its intercept in the middle; None where the intercept is unique.

    ``decide(alpha)`` gives the decisions without intercept of coefficients ``alpha = -c l'``.
    """
    pieces = loss.straight(y)
    if not pieces:
        return None
    low, high = (np.array(end, float) for end in pieces[0])
    away = np.maximum(np.maximum(low - z, z - high), 0.0)
    for other in pieces[1:]:
        distance = np.maximum(np.maximum(other[0] - z, z - other[1]), 0.0)
        nearer = distance < away
        low, high = np.where(nearer, other[0], low), np.where(nearer, other[1], high)
        away = np.where(nearer, distance, away)
    trains = np.flatnonzero(c > 0)
    if not len(trains) or np.any(away[trains] > SLACK * (1.0 + np.abs(y[trains]))):
        return None
    alpha = -c * loss.grad(np.clip(z, low, high), y)
    if abs(alpha.sum()) > 1e-12 * np.abs(alpha).sum():
        return None
    f = decide(alpha)
    below, above = (low - f)[trains], (high - f)[trains]
    first, last = int(np.argmax(below)), int(np.argmin(above))
    if not -np.inf < below[first] < above[last] < np.inf:
        return None
    slope: Any = np.array([-1.0, 1.0]) if "epsilon" in loss.tunable else np.zeros(2)
    rows = trains[[first, last]]
    if rows[0] == rows[1]:
        rows, slope = rows[:1], np.zeros(1)
    return Middle(alpha, f, 0.5 * float(below[first] + above[last]), rows, slope)
