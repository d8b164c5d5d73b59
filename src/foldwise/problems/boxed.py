r"""Smooth training losses with bounds on the weights, or with a pull to reference weights.

Task ``m`` minimises over ``lower <= w <= upper``

.. math::  \tfrac12 \sum_d \lambda_d s_d w_d^2 + \tfrac{\nu}{2} \sum_d s_d (w_d - w^0_d)^2
           + \sum_j c_j v_j \, \ell(x_j'w, y_j),

with the scales ``s`` of :class:`foldwise.penalties.Quadratic`. At the solution some weights are held at a bound and
follow it; the others are free. With ``H`` the Hessian, ``F`` the free and ``A`` the held columns,

.. math::  dw_A = d\,\mathrm{bound}, \qquad  H_{FF} \, dw_F = -(\mathrm{cross}_F \, d\theta + H_{FA} \, dw_A).

Nothing is kept between solves.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from foldwise.design import Design
from foldwise.linalg import cholesky, cholesky_solve
from foldwise.penalties import Quadratic
from foldwise.problems.base import Array, Slopes, TaskData
from foldwise.problems.linear import LinearProblem, SmoothLinearization
from foldwise.problems.parameters import Canonical
from foldwise.problems.pieces import AT_LOWER, AT_UPPER
from foldwise.problems.weights import LinearSolution

__all__ = ["BoxedLinearization", "BoxedProblem", "held_columns"]


def held_columns(w: Array, g: Array, lower: Array, upper: Array) -> Array:
    """Which weights a gradient ``g`` holds at a bound; a box of width zero holds at the side the gradient points to.

    0 for free weights, ``AT_LOWER`` or ``AT_UPPER`` for held ones.
    """
    at_lower, at_upper = (w <= lower) & (g >= 0), (w >= upper) & (g <= 0)
    return np.where(
        at_upper & (g < 0), AT_UPPER, np.where(at_lower, AT_LOWER, np.where(at_upper, AT_UPPER, 0))
    )


class BoxedProblem(LinearProblem):
    """Training problems of a linear model with a smooth loss and bounds on shared rows.

    Parameters
    ----------
    data, design, penalty : as in :class:`foldwise.problems.linear.LinearProblem`.
    reference : ndarray, shape (features,), optional
        ``w0`` in the user's columns; zero by default.
    """

    form: ClassVar[str] = "bounds"

    def __init__(
        self, data: TaskData, design: Design, penalty: Quadratic, reference: Array | None = None
    ) -> None:
        super().__init__(data, design, penalty)
        if self.penalty.form is not None:
            raise ValueError(
                "bounds on weights need a free intercept or none; a penalised one is not supported"
            )
        self.reference = self._padded(self.stored(reference))

    def workspace(self) -> None:
        return None

    def _padded(self, values: Array, fill: float = 0.0) -> Array:
        """With an entry for the intercept, if there is one."""
        extra = self.n_columns - values.shape[1]
        return np.pad(values, ((0, 0), (0, extra)), constant_values=fill) if extra else values

    def near(self, par: Canonical) -> Array:
        """Curvature of the proximity term: shape (tasks, columns)."""
        return self._padded(self.per_task(par.near) * self.penalty.scale)

    def bounds(self, par: Canonical) -> tuple[Array, Array]:
        """Lower and upper bounds of the stored weights: shape (tasks, columns) each."""
        lower, upper = self.per_task(par.lower) / self.root, self.per_task(par.upper) / self.root
        return self._padded(lower, -np.inf), self._padded(upper, np.inf)

    def push(self, W: Array, par: Canonical) -> Array:
        """Gradient of both penalties, one row per task."""
        return np.asarray(self.diagonal(par) * W + self.near(par) * (W - self.reference))

    def objective(self, W: Array, par: Canonical) -> Array:
        """``E_m`` at any weights, one number per task; bounds are not looked at."""
        pull = 0.5 * np.sum(self.near(par) * (W - self.reference) ** 2, axis=1)
        return np.asarray(self.loss_value(W, par) + 0.5 * np.sum(self.diagonal(par) * W**2, axis=1) + pull)

    def hess(self, W: Array, par: Canonical) -> Array:
        out = super().hess(W, par)
        columns = np.arange(self.n_columns)
        out[:, columns, columns] += self.near(par)
        return out

    def weights_of(self, alpha: Array, m: int, par: Canonical) -> Array:
        """The same, with the pull to the reference and within the bounds: each weight has a minimum of its own."""
        d, near = self.design.n_features, self.near(par)[m]
        pull = self.design.pull(alpha[None])[:, :d] + (near * self.reference[0])[:d]
        lower, upper = (bound[m, :d] for bound in self.bounds(par))
        w = np.clip(pull / (self.diagonal(par)[m] + near)[:d], lower, upper)
        return np.pad(w, ((0, 0), (0, 1)))

    def way_of_intercept(self, w: Array, m: int, par: Canonical) -> float:
        """How far the intercept of a task is from where the loss, as a function of it alone, is lowest."""
        one = np.array([m])
        loss, y, z = self.loss_at(par, one), self.targets(one), self.design.decisions(w[None])
        c = self.training(np.array(np.broadcast_to(self.by_row(par.c, one), z.shape)), one)[0]

        def slope(b: float) -> float:
            return float(c @ loss.grad(z + b, y)[0])

        first = slope(0.0)
        if first == 0:
            return 0.0
        reach = -np.sign(first) * max(float(np.abs(z - y).min()), 1e-3)
        for _ in range(200):
            if slope(reach) * first <= 0:
                break
            reach *= 2.0
        return float(brentq(slope, 0.0, reach)) if slope(reach) * first < 0 else float(reach)

    def held(self, solution: LinearSolution) -> tuple[Array, Array]:
        """Which weights are held where, and the multipliers of their bounds: positive at the upper one."""
        g = self.grad(solution.W, solution.par)
        held = held_columns(solution.W, g, *self.bounds(solution.par))
        return held, np.where(held != 0, -g, 0.0)

    def residual(self, solution: LinearSolution, workspace: Any) -> Array:
        """The projected gradient, relative to the norms of its parts, computed anew from the rows."""
        pull, push = self.loss_grad(solution.W, solution.par), self.push(solution.W, solution.par)
        g = pull + push
        g = np.where(held_columns(solution.W, g, *self.bounds(solution.par)) != 0, 0.0, g)
        size = self.gradient_size(pull, push, solution.par, np.arange(self.n_tasks))
        return np.asarray(np.linalg.norm(g, axis=1) / size)

    def linearize(self, solution: LinearSolution, workspace: Any) -> BoxedLinearization:
        return BoxedLinearization(self, solution)

    def n_kinks(self, solution: LinearSolution, tol: float = 1e-9) -> int:
        """Training rows at a kink of the loss, and weights at a bound whose multiplier vanishes."""
        W, (lower, upper), (held, gamma) = solution.W, self.bounds(solution.par), self.held(solution)
        size = np.abs(self.loss_grad(W, solution.par)).max(axis=1, keepdims=True, initial=0.0) + 1e-300
        idle = (held != 0) & (np.abs(gamma) <= tol * size)
        touching = (held == 0) & (np.minimum(W - lower, upper - W) <= tol * np.abs(W))
        return super().n_kinks(solution, tol) + int(np.sum(idle | touching))


class BoxedLinearization(SmoothLinearization):
    """Newton's system of the free weights; held ones follow their bounds."""

    problem: BoxedProblem

    def __init__(self, problem: BoxedProblem, solution: LinearSolution) -> None:
        self.problem, self.solution, self.par = problem, solution, solution.par
        par, Z, tasks = solution.par, solution.decisions, np.arange(problem.n_tasks)
        loss, y = problem.loss_at(par), problem.targets()
        self.place, _ = problem.held(solution)
        self.hessians = problem.hess(solution.W, par)
        self.phi = problem.pulled_by_cell(problem.training(loss.grad(Z, y), tasks))
        self.psi = {
            name: problem.pulled_by_cell(problem.training(loss.grad_in(name, Z, y), tasks))
            for name in problem.loss.tunable
            if par.tunes(name)
        }
        self.curvatures = problem.training(loss.hess(Z, y), tasks)

    def gram_times(self, U: Array) -> Array:
        return self.problem.pulled_by_cell(self.curvatures * self.problem.design.decisions(U))

    def pulls(self) -> dict[str, tuple[Array, Array]]:
        """Both penalties."""
        d, out = self.problem.design.n_features, super().pulls()
        if self.par.tunes("log_near"):
            near = self.problem.near(self.par)[:, :d]
            out["log_near"] = near * (self.solution.W - self.problem.reference)[:, :d], near
        return out

    def _free(self, m: int, rhs: Array) -> Array:
        """``H_FF^-1`` times the free part of ``rhs`` (columns, k), zero on held columns."""
        free = np.flatnonzero(self.place[m] == 0)
        out = np.zeros_like(rhs)
        if len(free):
            out[free] = cholesky_solve(cholesky(self.hessians[m][np.ix_(free, free)]), rhs[free])
        return out

    def adjoint(self, slopes: Slopes) -> Array:
        """``-H_FF^-1 dF/dw_F`` on free columns; on held ones ``dF`` for a unit move of their bound."""
        out = np.zeros_like(self.solution.W)
        for m, rows, weight in slopes:
            g = self.problem.design.pull(weight[None], rows)[0]
            b = g[-1]
            if m in self.solution.pins:  # the intercept follows the decisions of the rows at its ends
                g = g - b * self.mean_row(m)
            u = -self._free(m, g[:, None])[:, 0]
            out[m] = np.where(self.place[m] == 0, u, g + self.hessians[m] @ u)
            if m in self.solution.pins:
                out[m, -1] = b
        return out

    def _sides(self) -> dict[str, Array]:
        """How held weights move with their bounds, by kind: shape (tasks, features)."""
        d, root = self.problem.design.n_features, self.problem.root
        sides = {"upper": AT_UPPER, "lower": AT_LOWER}
        return {
            kind: np.where(self.place[:, :d] == place, 1.0 / root, 0.0)
            for kind, place in sides.items()
            if self.par.tunes(kind)
        }

    def pullback(self, u: Array) -> dict[str, Array]:
        free = np.where(self.place == 0, u, 0.0)
        for m in self.solution.pins:
            free[m, -1] = 0.0
        out = self.held_back(u, self.contract(free))
        for kind, moves in self._sides().items():
            out[kind] = self.problem.by_target(moves * u[:, : moves.shape[1]])
        return out

    def sensitivities(self) -> Array:
        """``dw_m/dtheta``: shape (tasks, columns, p)."""
        problem, cross = self.problem, self.cross()
        out = np.zeros_like(cross)
        for m in self.solution.pins:
            cross[m, -1] = 0.0
        for kind, moves in self._sides().items():
            out[:, : moves.shape[1]] += moves[:, :, None] * self.par.slope(kind, problem.target)
        for m in range(problem.n_tasks):
            out[m] -= self._free(m, cross[m] + self.hessians[m] @ out[m])
        return self.held(out)

    def curvature(self, u: Array, J: Array, window: float | None) -> Array:
        """The same while no weight meets or leaves a bound."""
        return super().curvature(np.where(self.place == 0, u, 0.0), J, window)
