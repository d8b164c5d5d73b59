"""The subgradient of greatest feasible descent: problem (39), in the form (46), of moore2011.

Where rows sit at a kink the gradient of the penalised objective is a set. Its member of least norm, less what active
constraints can balance, is zero at a local minimum (Theorem 1) and otherwise points against the steepest feasible
descent (Theorem 2; the paper prints the direction without its minus sign).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foldwise.optimizers.pbp.penalised import Kinks
from foldwise.optimizers.pbp.subproblem import ArrowModel, Polyhedron

__all__ = ["Subgradient", "choose", "chosen_model"]


@dataclass(frozen=True, eq=False)
class Subgradient:
    """The chosen member of the subdifferential.

    Attributes
    ----------
    share : ndarray, shape (k,)
        Change of each kink row's share against the model's.
    weights, theta : list of ndarray, ndarray
        ``g + A' lambda``: the part of each task, and of the hyper-parameters.
    norm2 : float
        Its squared norm, the optimality measure of Theorem 1, in units of the objective.
    usual2 : float
        The same for the subgradient as the model had it.
    """

    share: np.ndarray
    weights: list[np.ndarray]
    theta: np.ndarray
    norm2: float
    usual2: float


def choose(model: ArrowModel, kinks: Kinks, region: Polyhedron) -> Subgradient:
    """Solve (46) by bounded least squares."""
    weights, theta = model.gradient()
    normals = region.active()
    alone = _balance(theta, normals)
    usual = float(sum(g @ g for g in weights) + alone @ alone)
    if not len(kinks):
        return Subgradient(np.zeros(0), weights, alone, usual, usual)
    from scipy.optimize import lsq_linear

    # Columns: what each kink row adds per unit of its share, then the normals of active constraints.
    slope = np.array(
        [2.0 * model.beta * (c @ model.R[m]) for c, m in zip(kinks.columns, kinks.task, strict=True)]
    )
    touched = sorted(set(kinks.task.tolist()))
    first = {m: i for i, m in enumerate(touched)}
    D = max(len(g) for g in weights)
    k, p = len(kinks), len(theta)
    matrix = np.zeros((D * len(touched) + p, k + len(normals)))
    target = np.zeros(len(matrix))
    for m in touched:
        target[D * first[m] : D * first[m] + len(weights[m])] = -weights[m]
    target[len(target) - p :] = -theta
    for i, (m, column) in enumerate(zip(kinks.task, kinks.columns, strict=True)):
        if not kinks.spin[i]:
            matrix[D * first[m] : D * first[m] + len(column), i] = slope[i] * column
        matrix[len(matrix) - p :, i] = -slope[i] * kinks.side[i] * kinks.tube[i]
    matrix[len(matrix) - p :, k:] = normals.T
    low = np.concatenate([kinks.low, np.zeros(len(normals))])
    high = np.concatenate([kinks.high, np.full(len(normals), np.inf)])
    found = lsq_linear(matrix, target, (low, high + 1e-300), method="bvls", tol=1e-12).x
    found[np.abs(found) < 1e-14] = 0.0
    rest = matrix @ found - target
    out = list(weights)
    for m in touched:
        out[m] = rest[D * first[m] : D * first[m] + len(weights[m])]
    norm2 = float(sum(g @ g for g in out) + rest[len(rest) - p :] @ rest[len(rest) - p :])
    if norm2 > usual:  # rounding in the least squares; the usual choice is then as good
        return Subgradient(np.zeros(k), weights, alone, usual, usual)
    return Subgradient(found[:k], out, rest[len(rest) - p :], norm2, usual)


def chosen_model(model: ArrowModel, kinks: Kinks, share: np.ndarray) -> ArrowModel:
    """The model with the chosen derivative of the residual; the same object where it is the usual one."""
    if not share.any():
        return model
    H, K = list(model.H), list(model.K)
    for i in np.flatnonzero(share):
        m, column = kinks.task[i], kinks.columns[i]
        if not kinks.spin[i]:
            H[m] = H[m] + share[i] * np.outer(column, column)
        K[m] = K[m] - share[i] * kinks.side[i] * np.outer(column, kinks.tube[i])
    return replace(model, H=H, K=K)


def _balance(theta: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """``theta + normals' lambda`` of least norm over ``lambda >= 0``."""
    if not len(normals):
        return theta
    from scipy.optimize import nnls

    return np.asarray(theta + normals.T @ nnls(normals.T, -theta)[0])
