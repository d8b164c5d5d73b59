"""The minimum of a convex function along a step that may be too long."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["step_length"]


def step_length(slope: Callable[[float], float], first: float, last: float, rounds: int = 40) -> float:
    """Length in (0, 1] near which ``slope``, an increasing function, is zero; ``first`` and ``last`` are its ends.

    Regula falsi, with a bisection every third round against one-sided creeping, until the slope is a hundredth of
    the first.

    >>> round(step_length(lambda t: 4 * t - 1, -1, 3), 3)
    0.25
    """
    if first >= 0 or last <= 0:
        return 1.0
    low, high, f_low, f_high = 0.0, 1.0, first, last
    for i in range(rounds):
        t = 0.5 * (low + high) if i % 3 == 2 else low + (high - low) * f_low / (f_low - f_high)
        f = slope(t)
        if abs(f) <= 0.01 * abs(first):
            return t
        if f < 0:
            low, f_low = t, f
        else:
            high, f_high = t, f
    return low if low > 0 else high
