r"""Derivatives of the cross-validation error in ``theta``, by implicit differentiation.

With ``H_m`` the Hessian of task ``m`` at its solution and ``F`` the criterion summed over validation rows,

.. math::  u_m = -H_m^{-1} \, dF/dw_m, \qquad  dF/d\theta = \sum_m u_m' \, \partial^2 E_m / \partial w\, \partial\theta,

one adjoint solve per task whatever the length of ``theta`` (thesis 2.7; moore2011 (17)-(27) with the sign of the
epsilon block corrected). The hyper-Hessian adds the sensitivities ``J_m = dw_m/dtheta = -H_m^{-1} cross_m``:

.. math::  \sum_m J_m' F_{ww} J_m + u_m' \, d^2(\partial E_m/\partial w).

Dropping the second sum gives the Gauss-Newton matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from foldwise.criteria import WINDOW, Part
from foldwise.problems.base import Array, Linearization
from foldwise.problems.parameters import Canonical

__all__ = ["gradient", "hessian"]


def gradient(
    response: Linearization, par: Canonical, parts: Sequence[Part], slopes: Sequence[Array]
) -> tuple[Array, Array]:
    """``dF/dtheta`` and the adjoints ``u``, one row per task.

    ``parts`` are the problem's own, with the criterion's ``slopes`` in their decisions.
    """
    u = response.adjoint([(part.m, part.rows, g) for part, g in zip(parts, slopes, strict=True)])
    return par.pull(response.pullback(u)), u


def hessian(
    response: Linearization,
    parts: Sequence[Part],
    curvatures: Sequence[Array],
    columns: Sequence[Array],
    u: Array,
    exact: bool = True,
    window: float | None = WINDOW,
    grams: Callable[[int], Array | None] | None = None,
    constant: float | None = None,
) -> tuple[Array, Array, Array]:
    """Hyper-Hessian without the change-of-scale term, the sensitivities ``J``, and the columns moved by them.

    ``curvatures`` is the diagonal of the criterion's curvature on the problem's ``parts`` and ``columns`` what it adds
    to that, (rows, k) each. ``J`` has shape (tasks, variables, p). The columns of all problems together are one matrix,
    so they come back as they are in ``theta``, (p, k), to be added up. ``grams`` gives Gram matrices of validation rows
    that are at hand, which serve where the diagonal is ``constant`` times the weights.
    """
    J = response.sensitivities()
    p = J.shape[2]
    out, moved = np.zeros((p, p)), np.zeros((p, columns[0].shape[1] if len(columns) else 0))
    for i, part in enumerate(parts):
        gram = None if grams is None or constant is None else grams(part.m)
        if gram is not None:
            out += constant * J[part.m].T @ gram @ J[part.m]
        if gram is None or len(columns):
            move = response.moves(J, part.m, part.rows)
        if gram is None:
            out += (move * curvatures[i]) @ move.T
        if len(columns):
            moved += move @ columns[i]
    if exact:
        out += response.curvature(u, J, window)
    return out, J, moved
