"""Least squares as a scout: its cross-validation error for every strength of penalty at once.

At ``epsilon = 0`` the squared tube loss is least squares, and for other losses least squares on the targets has its
optimum nearby. One eigendecomposition per fold gives the error for all strengths, which makes a good first guess
for a search on the real loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foldwise.design import is_wide
from foldwise.losses import typical_curvature

if TYPE_CHECKING:
    from foldwise.problems.weights import WeightProblem

__all__ = ["balance", "scout"]

MAX_COLUMNS = 600
BALANCE = 8.0


def scout(problem: WeightProblem, theta: np.ndarray, factors: np.ndarray) -> np.ndarray | None:
    """Mean squared validation error of ridge regression when the loss at ``theta`` is multiplied by each factor.

    Parameters
    ----------
    problem : WeightProblem
    theta : ndarray
        Reference point: its penalties and relative weights of cells are kept.
    factors : ndarray, shape (R,)

    Returns
    -------
    ndarray, shape (R,), or None when the folds are no partition or the design is too wide or sparse.
    """
    folds, D = problem.folds, problem.n_columns
    if not folds.partition or not problem.design.is_dense or D > MAX_COLUMNS:
        return None
    par = problem.parameters(theta)
    grams, curvature = problem.block_grams, typical_curvature(problem.loss, float(np.std(problem.Y)))
    d = problem.design.n_features
    total_error = np.zeros(len(factors))
    for k in range(problem.n_targets):
        # With an intercept a shift of the targets changes nothing but the digits that are left.
        y = problem.Y[k] - (np.mean(problem.Y[k]) if d < D else 0.0)
        weighted = problem.weight * y
        moments = np.stack(
            [
                [problem.design.pull(weighted[None, rows], rows)[0] for rows in block]
                for block in folds.segments
            ]
        )
        ends = [slice(block[0].start, block[-1].stop) for block in folds.segments]
        squares = [float(weighted[rows] @ y[rows]) for rows in ends]
        for t in range(problem.n_splits):
            m = k * problem.n_splits + t
            G, b = np.tensordot(grams, par.c[m], axes=(1, 0)), np.tensordot(moments, par.c[m], axes=(1, 0))
            penalty = par.lam[k] * problem.penalty.scale[m]
            w = _path(G.sum(axis=0) - G[t], b.sum(axis=0) - b[t], penalty, d, curvature * factors)
            Gv, bv = grams[t].sum(axis=0), moments[t].sum(axis=0)
            mass = problem.weight[folds.validation[t]].sum()
            error = np.einsum("dr,dr->r", w, Gv @ w) - 2.0 * bv @ w + squares[t]
            total_error += np.maximum(error, 0.0) / max(mass, np.finfo(float).tiny)
    return total_error / problem.n_tasks


def balance(problem: WeightProblem, theta: np.ndarray) -> float | None:
    """A moderate strength for wide data: the factor on the loss at which a row's curvature is ``BALANCE``.

    For a row alone, ``x' P^-1 x`` times the curvature of its loss says how far its residual is closed. Training
    problems are easy there, and the validation error is not far from its best. None when the data are not wide.
    """
    if not is_wide(problem.design):
        return None
    par = problem.parameters(theta)
    penalty = par.lam[0] * problem.penalty.scale[0]
    sample = slice(None, None, max(1, problem.n_rows // 2_000))
    squares = problem.design.row_squares(1.0 / penalty, sample)
    norms = problem.weight[sample] * par.c[0][problem.folds.cell[sample]] * squares
    typical = float(np.mean(norms))
    return (
        BALANCE / (typical_curvature(problem.loss, float(np.std(problem.Y))) * typical)
        if typical > 0
        else 1.0
    )


def _path(G: np.ndarray, b: np.ndarray, penalty: np.ndarray, d: int, strengths: np.ndarray) -> np.ndarray:
    """Columns minimise ``1/2 w'Pw + s (1/2 w'Gw - b'w)`` for each strength ``s``; the intercept is free."""
    has_intercept = len(G) > d
    Gf, bf = G[:d, :d], b[:d]
    if has_intercept:
        mass = max(G[d, d], np.finfo(float).tiny)
        Gf = Gf - np.outer(G[:d, d], G[:d, d]) / mass
        bf = bf - G[:d, d] * (b[d] / mass)
    root = np.sqrt(np.maximum(penalty, np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(Gf / np.outer(root, root))
    values = np.maximum(values, 0.0)
    shrink = strengths / (1.0 + np.outer(values, strengths))
    w = (vectors @ (shrink * (vectors.T @ (bf / root))[:, None])) / root[:, None]
    if has_intercept:
        w = np.vstack([w, (b[d] - G[:d, d] @ w) / mass])
    return w
