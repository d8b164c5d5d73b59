"""PDSG and MPD as subproblem solvers: estimates of the dual curvature around the compiled loops.

We differ from the papers: both start from an estimate of the dual curvature by Gauss-Seidel sweeps and have an
augmented term. MPD as published builds its estimate up step by step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foldwise.solvers.semiparametric.subproblem import Subproblem

__all__ = ["first_order"]

SWEEPS = 3
"""Sweeps of Gauss-Seidel for the estimate of the dual curvature."""

RATE = 0.3
"""Part of a dual Newton step that PDSG takes after every primal step."""

AUGMENTED = 2.0
"""Weight of the augmented term, in units of the inverse dual curvature."""


def first_order(
    name: str,
    sub: Subproblem,
    tol: float,
    *,
    max_steps: int,
    chunk: int = 2000,
    pause: Callable[[int, float, float], bool] = lambda step, dual, primal: False,
) -> int:
    """Solve a subproblem in place by ``"pdsg"`` or ``"mpd"``; the number of steps.

    Parameters
    ----------
    max_steps : int
    chunk : int
        Steps between two estimates of the dual curvature, and between two pauses.
    pause : callable
        Gets the steps so far and the two violations; True ends the solve.
    """
    from foldwise.solvers.semiparametric import _first_order

    balance = min(1.0, float(sub.C.max(initial=0.0)) or 1.0) / max(
        float(np.abs(sub.Q).max(initial=0.0)), 1e-300
    )
    taken = 0
    while True:
        G = _first_order.curvature(sub.K, sub.Q, sub.delta, sub.C, SWEEPS)
        state = (sub.K, sub.Q, sub.e, sub.delta, sub.C, sub.epsilon, sub.total, sub.eta)
        allowed = min(chunk, max_steps - taken)
        if name == "pdsg":
            steps, dual, primal = _first_order.pdsg(*state, G, AUGMENTED / G, RATE, tol, balance, allowed)
        else:
            steps, dual, primal = _first_order.mpd(*state, 1.0 / G, tol, balance, allowed)
        taken += steps
        if pause(taken, dual, primal) or max(dual, primal) <= tol or taken >= max_steps:
            return taken
