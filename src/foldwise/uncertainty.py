r"""What the folds cannot tell: how optimistic a minimised cross-validation error is, and how sure the selected values.

A search minimises the mean of the out-of-fold losses ``l_i(theta)``, so the mean at its end is lower than the error on
new rows. With the gradients ``g_i`` of the rows' losses at the end and the hyper-Hessian ``A``, to second order [1]_,

.. math::  \mathrm{optimism} = \mathrm{tr}(A^{-1} B), \qquad \mathrm{Cov}(\hat\theta) = A^{-1} B A^{-1}, \qquad
           B = \sum_i v_i^2 (g_i - \bar g)(g_i - \bar g)',

where ``v_i`` is what a row counts. Both need what a search has computed already: sensitivities of the decisions and the
Hessian at its end. Only entries away from their bounds take part.

References
----------
.. [1] K. Takeuchi, Distribution of information statistics and criteria for adequacy of models, Mathematical Sciences
   153, 1976; for cross-validation M. Stone, An asymptotic equivalence of choice of model by cross-validation and
   Akaike's criterion, Journal of the Royal Statistical Society B 39, 1977.
.. [2] C. Nadeau, Y. Bengio, Inference for the generalization error, Machine Learning 52, 2003.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.space import Space, natural_units

__all__ = ["Influence", "Uncertainty", "assess"]

Array = np.ndarray

REACH = 3.0
"""How far, in natural units of a hyper-parameter, an estimate may wander along a direction that the folds leave open.

The quadratic model says nothing about more. Measured on small problems, docs/uncertainty.md.
"""
NORMAL_95 = 1.959963984540054
"""Half width of a 95% interval in standard deviations."""


@dataclass(frozen=True, eq=False)
class Influence:
    """How the loss of every out-of-fold decision moves with theta, at the end of a search.

    Attributes
    ----------
    losses : ndarray, shape (decisions,)
    gradients : ndarray, shape (p, decisions)
        Derivatives of the losses in ``theta``.
    weights : ndarray, shape (decisions,)
        What a decision counts; they sum to one.
    wrong : ndarray of bool, shape (decisions,), or None
        Whether a class is predicted wrongly; None for regressions.
    row : ndarray of int, shape (decisions,)
        The user's row that a decision is about: several decisions may be about one row.
    folds : int
        Folds that a row is divided among, for the spread between folds.
    counts : ndarray, shape (decisions,), optional
        What a decision counts in the share of wrong predictions, where that is not its weight; they sum to one.
    """

    losses: Array
    gradients: Array
    weights: Array
    wrong: Array | None
    row: Array
    folds: int
    counts: Array | None = None

    def by_row(self, values: Array) -> Array:
        """Sums of values over the decisions about one row, each row once: shape (..., rows)."""
        _, place = np.unique(self.row, return_inverse=True)
        out = np.zeros((*values.shape[:-1], place.max(initial=-1) + 1))
        np.add.at(np.moveaxis(out, -1, 0), place, np.moveaxis(values, -1, 0))
        return out


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """How far the cross-validation error of a search may be trusted.

    Attributes
    ----------
    optimism : float
        How much lower the cross-validation error is than the error on new rows, because it was minimised: never
        negative.
    error, interval : float and pair of floats
        The cross-validation error with the optimism added, and a 95% interval for the error on new rows; of classes it
        is the share of wrong predictions, of regressions the criterion.
    rate : float or None
        The share of wrong out-of-fold predictions as it is; None for regressions.
    covariance : ndarray, shape (p, p)
        Of the selected ``theta``; zero in entries that sit at a bound.
    """

    optimism: float
    error: float
    interval: tuple[float, float]
    rate: float | None
    covariance: Array

    def bars(self, space: Space, theta: Array) -> dict[str, Any]:
        """A 95% interval, within the bounds, of every selected value by its name."""
        half = NORMAL_95 * np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))
        low, high = (space.params(space.clip(theta + sign * half)) for sign in (-1.0, 1.0))
        return {
            name: [np.minimum(low[name], high[name]).tolist(), np.maximum(low[name], high[name]).tolist()]
            for name in low
        }


def assess(influence: Influence, hessian: Array, space: Space, theta: Array, fitted: int = 0) -> Uncertainty:
    """The optimism and the spread of a search that ended at ``theta``.

    Parameters
    ----------
    influence : Influence
    hessian : ndarray, shape (p, p)
        Of the objective, penalties included.
    fitted : int
        How many constants the criterion itself fits to the out-of-fold decisions, such as a scale: each adds what one
        parameter of a likelihood does, 1 / rows.
    """
    v = influence.by_row(influence.weights)
    rows = np.count_nonzero(v)
    effective = 1.0 / max(float(np.sum(v**2)), np.finfo(float).tiny)
    optimism, covariance = _spread(influence, hessian, space, theta)
    optimism += fitted / max(effective, 1.0)
    mean = float(influence.weights @ influence.losses)
    # Machines of different folds share most of their training rows, so errors of folds are alike: [2], (9).
    inflation = 1.0 + influence.folds / max(influence.folds - 1.0, 1.0)
    effective = max(effective / inflation, 1.0)
    if influence.wrong is None:
        losses = influence.by_row(influence.weights * influence.losses) / np.where(v > 0, v, 1.0)
        error = mean + optimism
        spread = np.sqrt(float(v @ (losses - mean) ** 2) / effective)
        factor = float(np.exp(NORMAL_95 * spread / error)) if error > 0 and rows > 1 else 1.0
        return Uncertainty(optimism, error, (error / factor, error * factor), None, covariance)
    wrong = influence.wrong.astype(float)
    rate = float((influence.weights if influence.counts is None else influence.counts) @ wrong)
    error = min(rate + _slope(influence, wrong) * optimism, 1.0)
    return Uncertainty(optimism, error, _wilson(error, effective), rate, covariance)


def _spread(influence: Influence, hessian: Array, space: Space, theta: Array) -> tuple[float, Array]:
    """``tr(A^-1 B)`` and ``A^-1 B A^-1`` over the entries away from their bounds."""
    p, span = len(theta), space.upper - space.lower
    covariance = np.zeros((p, p))
    free = (theta > space.lower + 1e-9 * span) & (theta < space.upper - 1e-9 * span)
    if not free.any() or not np.all(np.isfinite(hessian)):
        return 0.0, covariance
    unit = natural_units(space)[free]
    g = influence.by_row(influence.weights * influence.gradients)[free] * unit[:, None]
    v = influence.by_row(influence.weights)
    g = g - v * g.sum(axis=1, keepdims=True)  # a penalty on theta leaves the rows' gradients a mean
    A = hessian[np.ix_(free, free)] * np.outer(unit, unit)
    if not np.all(np.isfinite(g)):
        return 0.0, covariance
    curvature, axes = np.linalg.eigh(0.5 * (A + A.T))
    along = axes.T @ g
    size = np.sqrt(np.sum(along**2, axis=1))
    curvature = np.maximum(np.abs(curvature), size / REACH + np.finfo(float).tiny)
    optimism = float(np.sum(size**2 / curvature))
    moves = unit[:, None] * (axes @ (along / curvature[:, None]))
    covariance[np.ix_(free, free)] = moves @ moves.T
    return optimism, covariance


def _slope(influence: Influence, wrong: Array) -> float:
    """By how much the share of wrong predictions grows with the criterion: from row to row, and at most 1."""
    v, losses = influence.weights, influence.losses
    gap = losses - v @ losses
    spread = float(v @ gap**2)
    return float(np.clip(v @ (gap * wrong) / spread, 0.0, 1.0)) if spread > 0 else 0.0


def _wilson(rate: float, rows: float) -> tuple[float, float]:
    """Wilson's 95% interval of a share."""
    z2 = NORMAL_95**2
    centre = (rate * rows + 0.5 * z2) / (rows + z2)
    half = NORMAL_95 * np.sqrt(max(rate * (1.0 - rate), 0.0) * rows + 0.25 * z2) / (rows + z2)
    return max(float(centre - half), 0.0), min(float(centre + half), 1.0)
