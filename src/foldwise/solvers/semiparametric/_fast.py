"""The compiled loops of the semiparametric solvers; arrays and scalars only.

Numba is imported with this module, so it is imported where a solver runs, never with the package.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = [
    "add_columns",
    "advance",
    "complementarity",
    "directions",
    "first_point",
    "gather",
    "right_side",
    "snapped",
    "weights",
]


@njit(cache=True)
def add_columns(f: np.ndarray, store: np.ndarray, slots: np.ndarray, weights: np.ndarray) -> None:
    """``f += sum_k weights_k store[slots_k]``."""
    n = f.shape[0]
    width = 2048
    for first in range(0, n, width):
        last = min(first + width, n)
        # Four columns at a time: the sum is read and written once for all of them.
        whole = slots.shape[0] // 4 * 4
        for k in range(0, whole, 4):
            r0, r1, r2, r3 = store[slots[k]], store[slots[k + 1]], store[slots[k + 2]], store[slots[k + 3]]
            w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
            for i in range(first, last):
                f[i] += (w0 * r0[i] + w1 * r1[i]) + (w2 * r2[i] + w3 * r3[i])
        for k in range(whole, slots.shape[0]):
            row, w = store[slots[k]], weights[k]
            for i in range(first, last):
                f[i] += w * row[i]


@njit(cache=True)
def gather(store: np.ndarray, slots: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Entries ``index`` of the rows ``slots``, in double precision."""
    out = np.empty((slots.shape[0], index.shape[0]))
    for a in range(slots.shape[0]):
        row = store[slots[a]]
        for b in range(index.shape[0]):
            out[a, b] = row[index[b]]
    return out


# The interior point method. Z has one row for each of a, C - a, their multipliers u, v, and b, C - b, their
# multipliers p, q; D the directions in the same order.


@njit(cache=True)
def first_point(gap: np.ndarray, C: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """The middle of the box, with positive multipliers that make every residual zero."""
    n = gap.shape[0]
    Z = np.empty((8, n))
    shift = 1e-3
    for i in range(n):
        shift += abs(gap[i]) / n
    for i in range(n):
        Z[0, i] = Z[1, i] = Z[4, i] = Z[5, i] = 0.5 * C[i]
        up, down = epsilon[i] + gap[i], epsilon[i] - gap[i]
        Z[2, i], Z[3, i] = max(up, 0.0) + shift, max(-up, 0.0) + shift
        Z[6, i], Z[7, i] = max(down, 0.0) + shift, max(-down, 0.0) + shift
    return Z


@njit(cache=True)
def complementarity(Z: np.ndarray, D: np.ndarray, length: float) -> float:
    """Mean of the products of the four pairs after a step of this length."""
    n = Z.shape[1]
    total = 0.0
    for k in (0, 1, 4, 5):
        for i in range(n):
            total += (Z[k, i] + length * D[k, i]) * (Z[k + 2, i] + length * D[k + 2, i])
    return total / (4 * n)


@njit(cache=True)
def weights(Z: np.ndarray, W: np.ndarray) -> None:
    """``1 / (u/a + v/s) + 1 / (p/b + q/t)``."""
    for i in range(Z.shape[1]):
        W[i] = 1.0 / (Z[2, i] / Z[0, i] + Z[3, i] / Z[1, i]) + 1.0 / (Z[6, i] / Z[4, i] + Z[7, i] / Z[5, i])


@njit(cache=True)
def right_side(
    Z: np.ndarray,
    D: np.ndarray,
    gap: np.ndarray,
    epsilon: np.ndarray,
    target: float,
    second: bool,
    c: np.ndarray,
) -> None:
    """The part of ``d delta`` that does not depend on the system's solution."""
    order = 1.0 if second else 0.0
    for i in range(Z.shape[1]):
        left = -(gap[i] + epsilon[i]) + (target - order * D[0, i] * D[2, i]) / Z[0, i]
        left -= (target - order * D[1, i] * D[3, i]) / Z[1, i]
        right = (gap[i] - epsilon[i]) + (target - order * D[4, i] * D[6, i]) / Z[4, i]
        right -= (target - order * D[5, i] * D[7, i]) / Z[5, i]
        c[i] = left / (Z[2, i] / Z[0, i] + Z[3, i] / Z[1, i])
        c[i] -= right / (Z[6, i] / Z[4, i] + Z[7, i] / Z[5, i])


@njit(cache=True)
def directions(
    Z: np.ndarray,
    D: np.ndarray,
    gap: np.ndarray,
    epsilon: np.ndarray,
    target: float,
    second: bool,
    move: np.ndarray,
) -> float:
    """Directions of all eight blocks from the change of the decisions; the longest step that stays positive."""
    order = 1.0 if second else 0.0
    steepest = 0.0
    for i in range(Z.shape[1]):
        t0 = target - order * D[0, i] * D[2, i]
        t1 = target - order * D[1, i] * D[3, i]
        t2 = target - order * D[4, i] * D[6, i]
        t3 = target - order * D[5, i] * D[7, i]
        a, s, b, t = 1.0 / Z[0, i], 1.0 / Z[1, i], 1.0 / Z[4, i], 1.0 / Z[5, i]
        u, v, p, q = Z[2, i], Z[3, i], Z[6, i], Z[7, i]
        da = (t0 * a - t1 * s - gap[i] - epsilon[i] - move[i]) / (u * a + v * s)
        db = (t2 * b - t3 * t + gap[i] - epsilon[i] + move[i]) / (p * b + q * t)
        D[0, i], D[1, i], D[4, i], D[5, i] = da, -da, db, -db
        D[2, i] = (t0 - u * da) * a - u
        D[3, i] = (t1 + v * da) * s - v
        D[6, i] = (t2 - p * db) * b - p
        D[7, i] = (t3 + q * db) * t - q
        steepest = max(steepest, -da * a, da * s, -db * b, db * t)
        steepest = max(steepest, -D[2, i] / u, -D[3, i] / v, -D[6, i] / p, -D[7, i] / q)
    return 1.0 / max(steepest, 0.995)


@njit(cache=True)
def advance(Z: np.ndarray, D: np.ndarray, length: float) -> None:
    """``Z += length D``."""
    for k in range(8):
        for i in range(Z.shape[1]):
            Z[k, i] += length * D[k, i]


@njit(cache=True)
def snapped(Z: np.ndarray, C: np.ndarray, small: float) -> np.ndarray:
    """``a - b`` with every ``a`` and ``b`` whose bound has a multiplier above ``small`` put on that bound."""
    n = Z.shape[1]
    delta = np.empty(n)
    for i in range(n):
        a, b = Z[0, i], Z[4, i]
        if Z[2, i] > small:
            a = 0.0
        elif Z[3, i] > small:
            a = C[i]
        if Z[6, i] > small:
            b = 0.0
        elif Z[7, i] > small:
            b = C[i]
        delta[i] = min(max(a - b, -C[i]), C[i])
    return delta
