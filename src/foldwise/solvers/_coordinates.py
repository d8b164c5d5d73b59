"""Coordinate descent on a quadratic function with an L1 norm and bounds, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["descend"]


@njit(cache=True)
def descend(
    H: np.ndarray,
    g: np.ndarray,
    w: np.ndarray,
    l1: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    sweeps: int,
    tol: float,
) -> np.ndarray:
    """Minimise ``g's + s'Hs/2 + sum l1 |w + s|`` within ``lower <= w + s <= upper``; returns ``w + s``.

    Ends when no coordinate of a sweep changes the function by more than ``tol`` of what the first sweep's best did.
    """
    x = w.copy()
    slope = g.copy()
    largest = 0.0
    for sweep in range(sweeps):
        change = 0.0
        for i in range(len(x)):
            h = H[i, i]
            if h <= 0.0:
                continue
            target = x[i] - slope[i] / h
            reach = l1[i] / h
            if target > reach:
                new = target - reach
            elif target < -reach:
                new = target + reach
            else:
                new = 0.0
            new = min(max(new, lower[i]), upper[i])
            step = new - x[i]
            if step != 0.0:
                x[i] = new
                for j in range(len(x)):
                    slope[j] += H[i, j] * step
                change = max(change, h * step * step)
        if sweep == 0:
            largest = change
        if change <= tol * largest:
            break
    return x
