r"""Derivatives of the cross-validation error in ``theta``, by implicit differentiation.

With ``H_m`` the Hessian of task ``m`` at its solution and ``F`` the criterion summed over validation rows,

.. math::  u_m = -H_m^{-1} \, dF/dw_m, \qquad  dF/d\theta = \sum_m u_m' \, \partial^2 E_m / \partial w\, \partial\theta,

one adjoint solve per task whatever the length of ``theta`` (thesis 2.7; moore2011 (17)-(27) with the sign of the
epsilon block corrected). The hyper-Hessian adds the sensitivities ``J_m = dw_m/dtheta = -H_m^{-1} cross_m``:

.. math::  \sum_m J_m' F_{ww} J_m + u_m' \, d^2(\partial E_m/\partial w).

Dropping the second sum gives the Gauss-Newton matrix.
"""

from __future__ import annotations

import numpy as np

from foldwise.losses import Loss, Squared

__all__ = ["criterion_curvature", "criterion_value", "gradient", "hessian"]

WINDOW = 0.2
"""Half width, in root mean square residuals (margins: absolute), of the band that stands for a kink."""


def criterion_value(problem, point, criterion: Loss) -> np.ndarray:
    """Weighted criterion of every task; their sum is the outer objective."""
    out = np.zeros(problem.n_tasks)
    for m, _, z, y, v in problem.validation(point):
        out[m] = v @ criterion.value(z, y)
    return out


def gradient(problem, point, criterion: Loss) -> tuple[np.ndarray, np.ndarray]:
    """``dF/dtheta`` and the adjoints ``u``, one row per task."""
    slopes = [(m, rows, v * criterion.grad(z, y)) for m, rows, z, y, v in problem.validation(point)]
    u = problem.adjoint(point, slopes)
    return problem.contract(point, u), u


def hessian(
    problem, point, criterion: Loss, u: np.ndarray, exact: bool = True, window: float | None = WINDOW
) -> tuple[np.ndarray, np.ndarray]:
    """Hyper-Hessian without the change-of-scale term, and the sensitivities ``J`` (tasks, variables, p)."""
    J = problem.sensitivities(point)
    p = J.shape[2]
    out = np.zeros((p, p))
    for m, rows, z, y, v in problem.validation(point):
        gram = problem.validation_gram(m) if isinstance(criterion, Squared) else None
        if gram is not None:
            out += 2.0 * J[m].T @ gram @ J[m]
            continue
        curvature = v * criterion_curvature(criterion, z, y, v, window)
        move = problem.moves(J, m, rows)
        out += (move * curvature) @ move.T
    if exact:
        out += problem.bend(point, u, J, window)
    return out, J


def criterion_curvature(
    criterion: Loss, z: np.ndarray, y: np.ndarray, v: np.ndarray, window: float | None
) -> np.ndarray:
    """Second derivative of the criterion; a jump of the first is spread over a window."""
    out = criterion.hess(z, y)
    for distance, jump in criterion.corners(z, y):
        width = max((window or WINDOW) * float(np.sqrt(v @ distance**2 / v.sum())), 1e-12)
        out = out + jump * (np.abs(distance) < width) / (2.0 * width)
    return out
