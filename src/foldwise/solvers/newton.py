"""Semismooth Newton on all tasks of a problem in lockstep.

On a piecewise quadratic loss a full step that changes no row's piece lands on the exact solution. A full step is
taken first; only when it overshoots (the derivative along it has turned clearly positive) an exact line search
along the step follows, which needs no further pass over X.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.base import Array
from foldwise.problems.curvature import LossCurvature
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import Canonical
from foldwise.problems.weights import LinearSolution, Weights
from foldwise.result import KKT_TOL
from foldwise.solvers.liblinear import first_guess
from foldwise.solvers.line_search import step_length

__all__ = ["Newton"]


@dataclass(frozen=True)
class Newton:
    """Semismooth Newton for smooth losses.

    Parameters
    ----------
    tol : float
        Stop when the gradient is this small relative to the norms of its two parts, loss and penalty.
    max_iter : int
        Newton steps at most; tasks that need more are reported as not converged.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"weights", "smooth"})

    tol: float = 1e-9
    max_iter: int = 100

    def solve(
        self, problem: LinearProblem, theta: Array, state: Weights, workspace: LossCurvature
    ) -> LinearSolution:
        """Minimise every task at ``theta``, starting from the weights of ``state``."""
        par, curvature = problem.parameters(theta), workspace
        diagonal = problem.diagonal(par)
        W = first_guess(problem, theta, state.W).copy()
        Z = problem.design.decisions(W)
        live = np.arange(problem.n_tasks)
        curvature.refresh(Z, par, live)
        g, size = _gradient(problem, curvature, W, par, diagonal, live)
        steps, searched = 0, np.zeros(problem.n_tasks, dtype=bool)
        while True:
            look_at_clock()
            far = _far_out(problem, W[live], Z[live], g, par, diagonal, live)
            if far.any() and _come_back(problem, W, Z, par, diagonal, live[far]):
                curvature.refresh(Z[live], par, live)
                g, size = _gradient(problem, curvature, W[live], par, diagonal, live)
            keep = far | (np.linalg.norm(g, axis=1) > self.tol * size)
            live, g = live[keep], g[keep]
            if not len(live) and searched.any():
                # Long steps that were cut back left rounding errors in Z: look again with clean decisions.
                live, searched = np.flatnonzero(searched), np.zeros(problem.n_tasks, dtype=bool)
                Z[live] = problem.design.decisions(W[live])
                curvature.refresh(Z[live], par, live)
                g, size = _gradient(problem, curvature, W[live], par, diagonal, live)
                continue
            if not len(live) or steps >= self.max_iter:
                break
            # 1. Newton direction of every unfinished task.
            step = curvature.factor(par, diagonal, live, _forcing(g, size[keep]))(-g[:, :, None])[:, :, 0]
            dZ = problem.design.decisions(step)
            slope = np.sum(g * step, axis=1)
            # 2. The full step, and what the derivative along it has become.
            W[live] += step
            Z[live] += dZ
            curvature.refresh(Z[live], par, live)
            g, size = _gradient(problem, curvature, W[live], par, diagonal, live)
            end = np.sum(g * step, axis=1)
            over = np.flatnonzero(end > (0.1 if steps < 8 else 1e-3) * np.abs(slope))
            # 3. Where it overshoots: the minimum along the segment.
            for i in over:
                m = live[i]
                back = 1.0 - _line_search(
                    problem, par, m, W[m] - step[i], step[i], Z[m] - dZ[i], dZ[i], diagonal, slope[i], end[i]
                )
                W[m] -= back * step[i]
                Z[m] -= back * dZ[i]
            if len(over):
                searched[live[over]] = True
                curvature.refresh(Z[live[over]], par, live[over])
                which = live[over]
                g[over], size[over] = _gradient(problem, curvature, W[which], par, diagonal, which)
            steps += 1
        pins = problem.centre(W, Z, par, np.setdiff1d(np.arange(problem.n_tasks), live))
        converged = np.ones(problem.n_tasks, dtype=bool)
        converged[live] = False
        # A penalty that is nothing beside the rows, and decides on the weights all the same, is not seen by the above.
        tasks = np.arange(problem.n_tasks)
        curvature.refresh(Z, par, tasks)
        pull = np.matmul(par.c[:, None, :], curvature.phi(W, par, tasks))[:, 0]
        converged &= problem.neglected(Z, pull, problem.push(W, par), par, tasks) <= KKT_TOL
        return problem.at(W, theta, Z, converged, steps, pins)


FAR_OUT = 1e6
"""Weights of columns in their own units beyond which a small gradient may still be worth much of the objective."""


def _far_out(
    problem: LinearProblem, W: Array, Z: Array, g: Array, par: Canonical, diagonal: Array, tasks: Array
) -> Array:
    """Which tasks have weights so large, where a penalty hardly counts, that the gradient along them is not small."""
    far = np.abs(W).max(axis=1, initial=0.0) > FAR_OUT
    if far.any():
        value = _values(problem, W, Z, par, diagonal, tasks)
        far &= np.abs(np.sum(g * W, axis=1)) > 1e-6 * value
    return far


def _values(
    problem: LinearProblem, W: Array, Z: Array, par: Canonical, diagonal: Array, tasks: Array
) -> Array:
    """The training objectives of the tasks at weights with these decisions."""
    loss = problem.loss_at(par, tasks).value(Z, problem.targets(tasks))
    cost = problem.training(problem.by_row(par.c, tasks) * loss, tasks).sum(axis=1)
    return cost + 0.5 * np.sum(problem.penalty.times(diagonal, W, tasks) * W, axis=1)


def _come_back(
    problem: LinearProblem, W: Array, Z: Array, par: Canonical, diagonal: Array, tasks: Array
) -> bool:
    """Shrink weights that are far out to where the objective is lowest on the way to zero, in place; whether any moved.

    A first step where no row has curvature is as long as the penalty lets it be, and ends beyond every margin.
    """
    moved = False
    for m in tasks.tolist():
        one = np.array([m])
        shares = 10.0 ** -np.arange(0.0, 31.0, 0.5)
        values = [_values(problem, t * W[one], t * Z[one], par, diagonal, one)[0] for t in shares]
        t = shares[int(np.nanargmin(values))]
        if t < 1.0:
            W[m] *= t
            Z[m] *= t
            moved = True
    return moved


def _forcing(g: Array, size: Array) -> float:
    """Relative residual that suffices for the linear systems: the smaller the gradient, the finer."""
    ratio = float(np.min(np.linalg.norm(g, axis=1) / size))
    return min(max(np.sqrt(ratio), 1e-4), 0.1)


def _gradient(
    problem: LinearProblem, curvature: LossCurvature, W: Array, par: Canonical, diagonal: Array, tasks: Array
) -> tuple[Array, Array]:
    """Gradient of the tasks, and the size of the parts that cancel in it."""
    pull = np.matmul(par.c[tasks][:, None, :], curvature.phi(W, par, tasks))[:, 0]
    push = problem.penalty.times(diagonal, W, tasks)
    return pull + push, problem.gradient_size(pull, push, par, tasks)


def _line_search(
    problem: LinearProblem,
    par: Canonical,
    m: int,
    w: Array,
    step: Array,
    z: Array,
    dz: Array,
    diagonal: Array,
    first: float,
    last: float,
) -> float:
    """Step length in (0, 1] that minimises ``E_m(w + a step)``: a root of its increasing derivative."""
    tasks = np.array([m])
    loss, y = problem.loss_at(par, tasks), problem.targets(tasks)
    weight = problem.training(np.broadcast_to(problem.by_row(par.c, tasks), (1, len(z))) * dz, tasks)[0]
    linear = float(problem.penalty.times(diagonal, w[None], tasks)[0] @ step)
    quadratic = float(problem.penalty.times(diagonal, step[None], tasks)[0] @ step)

    def derivative(a: float) -> float:
        return linear + a * quadratic + float(weight @ loss.grad((z + a * dz)[None], y)[0])

    return step_length(derivative, first, last)
