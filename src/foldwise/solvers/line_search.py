"""The minimum of a convex function along a step that may be too long."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["step_length"]


def step_length(slope: Callable[[float], float], overshoot: float = 0.0, rounds: int = 40) -> float:
    """Length in (0, 1] near which ``slope``, an increasing function with ``slope(0) < 0``, is zero.

    The full step is taken when its slope is at most ``overshoot`` times the first one's size. Regula falsi, with a
    bisection every third round against one-sided creeping, until the slope is a hundredth of the first.

    >>> round(step_length(lambda t: 4 * t - 1), 3)
    0.25
    """
    first, last = slope(0.0), slope(1.0)
    if last <= overshoot * abs(first) or first >= 0:
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
