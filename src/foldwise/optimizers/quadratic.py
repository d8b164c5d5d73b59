"""Quadratic models in a box, of the objective around a point."""

from __future__ import annotations

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.space import natural_units

__all__ = ["REACH", "absolute", "box_qp", "promising_step"]

REACH = 0.1
"""How far a step may go, in natural units, when asking what a point still promises."""


def promising_step(bilevel: Bilevel, evaluation: Evaluation) -> tuple[np.ndarray, float] | None:
    """The step of at most a tenth of a natural unit that gains most by the model at a point, and the share it gains.

    The model is quadratic with the absolute values of the Hessian's eigenvalues where the Hessian is known, and linear
    where only the gradient is. None without a gradient; infinite, with no step, where that is not finite.
    """
    if evaluation.gradient is None:
        return None
    space = bilevel.space
    unit = natural_units(space)
    low = np.maximum((space.lower - evaluation.theta) / unit, -REACH)
    high = np.minimum((space.upper - evaluation.theta) / unit, REACH)
    g = evaluation.gradient * unit
    if not np.all(np.isfinite(g)):
        return np.zeros(space.size), np.inf
    if evaluation.hessian is None or not np.all(np.isfinite(evaluation.hessian)):
        step = np.where(g > 0, low, high)
        promised = -float(g @ step)
    else:
        H = absolute(evaluation.hessian * np.outer(unit, unit))
        step = box_qp(H, g, low, high)
        promised = -float(g @ step + 0.5 * step @ H @ step)
    return unit * step, promised / max(abs(evaluation.objective), np.finfo(float).tiny)


def absolute(H: np.ndarray) -> np.ndarray:
    """The matrix with the absolute values of its eigenvalues, none below a small share of the largest."""
    values, vectors = np.linalg.eigh(H)
    size = np.abs(values)
    size = np.maximum(size, max(1e-8 * size.max(initial=0.0), 1e-300))
    return np.asarray((vectors * size) @ vectors.T)


def box_qp(
    H: np.ndarray, g: np.ndarray, low: np.ndarray, high: np.ndarray, max_iter: int = 200
) -> np.ndarray:
    """Minimise ``g'x + x'Hx/2`` over ``low <= x <= high`` for positive definite ``H``, by projected Newton.

    >>> box_qp(np.eye(2), np.array([-2.0, 0.5]), -np.ones(2), np.ones(2))
    array([ 1. , -0.5])
    """
    x = np.clip(np.zeros(len(g)), low, high)
    for _ in range(max_iter):
        slope = g + H @ x
        free = ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))
        if not free.any() or np.max(np.abs(slope[free])) <= 1e-14 * np.max(np.abs(g)):
            break
        d = np.zeros(len(g))
        d[free] = -np.linalg.solve(H[np.ix_(free, free)], slope[free])
        value, a = g @ x + 0.5 * x @ H @ x, 1.0
        for _ in range(30):
            trial = np.clip(x + a * d, low, high)
            if g @ trial + 0.5 * trial @ H @ trial <= value + 1e-4 * slope @ (trial - x):
                break
            a *= 0.5
        if np.max(np.abs(trial - x)) <= 1e-15 * max(1.0, np.max(np.abs(x))):
            break
        x = trial
    return x
