r"""Successive linearisation: the penalised bilinear objective by Frank-Wolfe steps, one linear program each.

.. math::  \min_{x \in P} \ c'x + \mu \sum_k (Gx + g_0)_k (Hx + h_0)_k

over the polyhedron ``P`` of the rows and bounds. The linear programs differ in their costs alone, so one HiGHS model
serves all of them and every solve starts from the basis before. The line search is exact: along a segment the objective
is a parabola. A step of length one lands on a vertex; there the pairs are complementary or ``mu`` is too small.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foldwise.optimizers.mpec.highs import LinearProgram
from foldwise.optimizers.mpec.mpcc import Mpcc

__all__ = ["LinearPrograms", "Linearised", "settle", "successive_linearisation"]

SPAN = 5
"""Steps over which the decrease is judged."""


class LinearPrograms:
    """``min cost'x`` over the polyhedron of a program, for one cost after another."""

    def __init__(self, mpcc: Mpcc) -> None:
        if not mpcc.linear:
            raise ValueError("successive linearisation needs linear rows; use form='C'")
        self._program = LinearProgram(
            mpcc.cost,
            mpcc.lower,
            mpcc.upper,
            mpcc.A,
            mpcc.row_lower,
            mpcc.row_upper,
            presolve="off",
            simplex_strategy=4,
            primal_feasibility_tolerance=1e-10,
        )

    def solve(self, cost: np.ndarray, seconds: float | None = None) -> np.ndarray | None:
        """A minimiser, or None when HiGHS did not find one."""
        self._program.set_costs(cost)
        return self._program.solve(seconds)


@dataclass(eq=False)
class Linearised:
    """Where a run ended: the point, a status in words, and the number of linear programs."""

    x: np.ndarray
    status: str
    n_programs: int
    weight: float


def successive_linearisation(
    mpcc: Mpcc,
    x: np.ndarray,
    *,
    weight: float,
    tol: float = 1e-6,
    slow: float = 0.0,
    max_iter: int = 200,
    deadline: float | None = None,
    programs: LinearPrograms | None = None,
    watch: Callable[[np.ndarray, float], bool] | None = None,
) -> Linearised:
    """Frank-Wolfe on the penalised objective from a feasible ``x``, with the weight ``mu`` fixed.

    Parameters
    ----------
    tol : float
        Stop when the linearised objective cannot fall by more than ``tol`` relatively.
    slow : float
        Also stop when five steps have lowered the objective by less than ``slow`` relatively ("slow"): near an
        interior minimiser Frank-Wolfe creeps.
    watch : callable(x, step) -> bool, optional
        Called after every step; True stops the run ("stopped").
    """
    programs = LinearPrograms(mpcc) if programs is None else programs
    values: list[float] = []
    for iteration in range(max_iter):
        left = None if deadline is None else deadline - time.perf_counter()
        if left is not None and left <= 0:
            return Linearised(x, "time limit", iteration, weight)
        g, h = mpcc.sides(x)
        gradient = mpcc.cost + weight * (mpcc.G.T @ h + mpcc.H.T @ g)
        vertex = programs.solve(gradient, left)
        if vertex is None:
            late = deadline is not None and time.perf_counter() > deadline
            return Linearised(x, "time limit" if late else "failed", iteration + 1, weight)
        move = vertex - x
        slope = float(gradient @ move)
        value = float(mpcc.cost @ x + weight * (g @ h))
        if slope > -tol * max(abs(value), 1e-12):
            return Linearised(x, "solved", iteration + 1, weight)
        values.append(value)
        if len(values) > SPAN and values[-1 - SPAN] - value < slow * abs(value):
            return Linearised(x, "slow", iteration + 1, weight)
        curvature = weight * float((mpcc.G @ move) @ (mpcc.H @ move))
        step = 1.0 if curvature <= 0 else min(1.0, -slope / (2.0 * curvature))
        x = vertex if step == 1.0 else x + step * move
        if watch is not None and watch(x, step):
            return Linearised(x, "stopped", iteration + 1, weight)
    return Linearised(x, "iteration limit", max_iter, weight)


def settle(
    mpcc: Mpcc,
    x: np.ndarray,
    programs: LinearPrograms,
    weight: float,
    deadline: float | None = None,
    max_iter: int = 20,
) -> np.ndarray | None:
    """A minimiser of the linear programs around ``x`` that hold the smaller side of every pair at zero.

    The sides are held by a cost of ``weight``, so that only costs change. Where the minimiser has another smaller side
    the next program holds that one; the objective falls until no pair changes. None when the sides would not be zero.
    """
    value = np.inf
    best = None
    for _ in range(max_iter):
        left = None if deadline is None else deadline - time.perf_counter()
        if left is not None and left <= 0:
            break
        g, h = mpcc.sides(x)
        first = g <= h
        hold = mpcc.G.T @ first.astype(float) + mpcc.H.T @ (~first).astype(float)
        vertex = programs.solve(mpcc.cost + weight * hold, left)
        if vertex is None or mpcc.residual(vertex) > 1e-6:
            break
        now = float(mpcc.cost @ vertex)
        if now >= value - 1e-9 * max(abs(value), 1.0):
            break
        x, value, best = vertex, now, vertex
    return best
