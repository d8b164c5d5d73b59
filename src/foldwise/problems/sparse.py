r"""Smooth training losses with an L1 part of the penalty, and with bounds on the weights if there are any.

Task ``m`` minimises over ``lower <= w <= upper``, with ``rho`` the share of the L1 norm,

.. math::  \sum_d \lambda_d \left(\tfrac{1 - \rho}{2} w_d^2 + \rho |w_d|\right) + \tfrac{\nu}{2} \|w - w^0\|^2
           + \sum_j c_j v_j \, \ell(x_j'w, y_j).

At the solution some weights are zero, held there by the corner of the L1 norm while the slope of the rest is smaller;
others may be held at a bound. The free ones have a sign, and while none changes they solve a smooth problem of their
own: with ``H`` the Hessian and ``F`` the free columns, ``H_FF dw_F = -(cross_F dtheta + H_FA dw_A)``. Only columns that
are free are ever looked at in pairs, so that wide data cost what their free columns do.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from foldwise.linalg import cholesky, cholesky_solve
from foldwise.problems.base import Array, Slopes
from foldwise.problems.boxed import BoxedLinearization, BoxedProblem
from foldwise.problems.parameters import Canonical
from foldwise.problems.pieces import AT_LOWER, AT_UPPER, AT_ZERO
from foldwise.problems.weights import LinearSolution, Pins

__all__ = ["SparseLinearization", "SparseProblem", "slopes_left"]


SHARE_OF_ROWS = 1e-3
"""Share of the rows' terms in a slope that it is compared with in any case."""


def slopes_left(w: Array, g: Array, l1: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """What holds every weight, and the slope that is left of one that nothing holds.

    ``g`` is the gradient of all but the L1 norm. Kinds are 0 for free weights, ``AT_ZERO`` where the corner of the L1
    norm holds a weight, ``AT_LOWER`` and ``AT_UPPER`` where a bound does.
    """
    up = g + np.where(w >= 0, l1, -l1)  # the derivative to the right, and that to the left
    down = g - np.where(w <= 0, l1, -l1)
    at_lower, at_upper = (w <= lower) & (up >= 0), (w >= upper) & (down <= 0)
    at_zero = (w == 0) & (l1 > 0) & (up >= 0) & (down <= 0)
    held = np.where(at_lower, AT_LOWER, np.where(at_upper, AT_UPPER, np.where(at_zero, AT_ZERO, 0)))
    slope = np.where(w != 0, g + np.sign(w) * l1, np.where(up < 0, up, np.where(down > 0, down, 0.0)))
    return held, np.where(held != 0, 0.0, slope)


class SparseProblem(BoxedProblem):
    """Training problems of a linear model with a smooth loss and an L1 part of the penalty.

    Parameters
    ----------
    design, Y, folds, loss, parameters, penalty, weight, validation_weight, n_total, reference
        As in :class:`foldwise.problems.boxed.BoxedProblem`.
    """

    form: ClassVar[str] = "sparse"

    def l1(self, par: Canonical) -> Array:
        """Weights of the L1 norm of the stored columns: shape (tasks, columns)."""
        return self._padded(self.per_task(par.lam * par.l1_ratio) * self.root)

    def diagonal(self, par: Canonical) -> Array:
        """Diagonal of the Hessian of the quadratic part, one row per task."""
        return self.penalty.diagonal(self.per_task(par.lam * (1.0 - par.l1_ratio)))

    def objective(self, W: Array, par: Canonical) -> Array:
        """``E_m`` at any weights, one number per task; bounds are not looked at."""
        return np.asarray(super().objective(W, par) + np.sum(self.l1(par) * np.abs(W), axis=1))

    def centre(self, W: Array, Z: Array, par: Canonical, tasks: Array) -> Pins:
        """Nothing: weights under an L1 norm are not known from the multipliers of the rows."""
        return {}

    def held(self, solution: LinearSolution) -> tuple[Array, Array]:
        """What holds the weights, and minus the slopes there.

        A weight of zero has no sign to move with: of two columns that are equal one is held, whatever rounding says.
        """
        par, W = solution.par, solution.W
        g, l1 = self.grad(W, par), self.l1(par)
        held, _ = slopes_left(W, g, l1, *self.bounds(par))
        held = np.where((held == 0) & (W == 0) & (l1 > 0), AT_ZERO, held)
        return held, np.where(held != 0, -g, 0.0)

    def size(self, pull: Array, push: Array, par: Canonical, held: Array) -> Array:
        """What slopes of free weights are compared with: the norms of their parts, the L1 norm's among them.

        A thousandth of what the rows could add keeps the comparison meaningful where the intercept alone is free.
        """
        free = held == 0
        parts = [np.linalg.norm(np.where(free, part, 0.0), axis=1) for part in (pull, push, self.l1(par))]
        terms = np.sum(par.c * self._terms[self.target], axis=1)
        return np.asarray(np.maximum(sum(parts) + SHARE_OF_ROWS * terms, np.finfo(float).tiny))

    def residual(self, solution: LinearSolution, workspace: Any) -> Array:
        """What is left of the slopes, relative to the norms of their parts, computed anew from the rows."""
        par = solution.par
        pull, push = self.loss_grad(solution.W, par), self.push(solution.W, par)
        held, rest = slopes_left(solution.W, pull + push, self.l1(par), *self.bounds(par))
        return np.asarray(np.linalg.norm(rest, axis=1) / self.size(pull, push, par, held))

    def linearize(self, solution: LinearSolution, workspace: Any) -> SparseLinearization:
        return SparseLinearization(self, solution)

    def n_kinks(self, solution: LinearSolution, tol: float = 1e-9) -> int:
        """Training rows at a kink of the loss, and held weights that hardly are."""
        par, W = solution.par, solution.W
        g, l1, (lower, upper) = self.grad(W, par), self.l1(par), self.bounds(par)
        held, _ = slopes_left(W, g, l1, lower, upper)
        size = np.abs(self.loss_grad(W, par)).max(axis=1, keepdims=True, initial=0.0) + 1e-300
        idle = (held == AT_ZERO) & (l1 - np.abs(g) <= tol * size)
        sides = ((held == AT_LOWER) | (held == AT_UPPER)) & (np.abs(g + np.sign(W) * l1) <= tol * size)
        return super(BoxedProblem, self).n_kinks(solution, tol) + int(np.sum(idle | sides))

    # Some of the columns.

    @cached_property
    def _by_column(self) -> Any:
        """The stored rows, quick to take columns of."""
        return self.design.dense() if self.design.is_dense else sp.csc_array(self.design.csr())

    def some_columns(self, columns: Array) -> Any:
        """These stored columns of all rows: shape (n, len(columns))."""
        return self._by_column[:, columns]

    def block(self, A: Any, bend: Array, m: int, par: Canonical, columns: Array) -> Array:
        """The Hessian of task ``m`` on some columns ``A``, for second derivatives ``bend`` of its rows' losses."""
        rows = np.flatnonzero(bend)
        part = A[rows]
        H = np.asarray(
            (part.T @ (part * bend[rows, None])) if self.design.is_dense else _gram(part, bend[rows])
        )
        H[np.diag_indices(len(columns))] += (self.diagonal(par)[m] + self.near(par)[m])[columns]
        return H

    def bends(self, Z: Array, par: Canonical) -> Array:
        """``c_j v_j l''`` of every row and task."""
        out = np.broadcast_to(self.loss_at(par).hess(Z, self.targets()) * self.by_row(par.c), Z.shape)
        return self.training(np.array(out), np.arange(self.n_tasks))


def _gram(part: Any, weight: Array) -> Array:
    return np.asarray((part.T @ sp.csr_array(part.multiply(weight[:, None]))).toarray())


class SparseLinearization(BoxedLinearization):
    """Newton's system of the free weights; weights at zero stay there, others at a bound follow it."""

    problem: SparseProblem

    def __init__(self, problem: SparseProblem, solution: LinearSolution) -> None:
        self.problem, self.solution, self.par = problem, solution, solution.par
        par, Z, tasks = solution.par, solution.decisions, np.arange(problem.n_tasks)
        loss, y = problem.loss_at(par), problem.targets()
        self.place, _ = problem.held(solution)
        self.phi = problem.pulled_by_cell(problem.training(loss.grad(Z, y) + np.zeros_like(Z), tasks))
        self.psi = {
            name: problem.pulled_by_cell(problem.training(loss.grad_in(name, Z, y) + np.zeros_like(Z), tasks))
            for name in problem.loss.tunable
            if par.tunes(name)
        }
        self.curvatures = problem.training(loss.hess(Z, y) + np.zeros_like(Z), tasks)
        self.weighted = problem.bends(Z, par)
        self.free = [np.flatnonzero(place == 0) for place in self.place]
        self.factors: list[Any] = []
        for m, free in enumerate(self.free):
            H = problem.block(problem.some_columns(free), self.weighted[m], m, par, free)
            self.factors.append(cholesky(H) if len(free) else None)
        self.moving = par.tunes("lower") or par.tunes("upper")

    def _free(self, m: int, rhs: Array) -> Array:
        out = np.zeros_like(rhs)
        if len(self.free[m]):
            out[self.free[m]] = cholesky_solve(self.factors[m], rhs[self.free[m]])
        return out

    def _times(self, m: int, V: Array) -> Array:
        """The Hessian of task ``m`` times columns ``V``."""
        design, par = self.problem.design, self.par
        pad = (self.problem.diagonal(par) + self.problem.near(par))[m]
        return np.asarray(design.back(self.weighted[m][:, None] * design.times(V)) + pad[:, None] * V)

    def adjoint(self, slopes: Slopes) -> Array:
        """``-H_FF^-1 dF/dw_F`` on free columns; on those at a bound ``dF`` for a unit move of it."""
        out = np.zeros_like(self.solution.W)
        for m, rows, weight in slopes:
            g = self.problem.design.pull(weight[None], rows)[0]
            u = -self._free(m, g[:, None])
            out[m] = u[:, 0]
            if self.moving:
                out[m] = np.where(self.place[m] == 0, out[m], g + self._times(m, u)[:, 0])
        return out

    def sensitivities(self) -> Array:
        """``dw_m/dtheta``: shape (tasks, columns, p)."""
        problem, cross = self.problem, self.cross()
        out = np.zeros_like(cross)
        for kind, moves in self._sides().items():
            out[:, : moves.shape[1]] += moves[:, :, None] * self.par.slope(kind, problem.target)
        for m in range(problem.n_tasks):
            out[m] -= self._free(m, cross[m] + self._times(m, out[m]) if self.moving else cross[m])
        return out

    # Penalties.

    def pulls(self) -> dict[str, tuple[Array, Array]]:
        """The L1 norm pulls as well, and has no curvature."""
        d, out = self.problem.design.n_features, super().pulls()
        if self.par.tunes("log_lam"):
            pull, ridge = out["log_lam"]
            out["log_lam"] = pull + self.problem.l1(self.par)[:, :d] * np.sign(self.solution.W[:, :d]), ridge
        return out

    def ratio_pull(self) -> tuple[Array, Array]:
        """The derivatives in the share of the L1 norm: of the gradient of the penalty, and of its curvature."""
        d, problem = self.problem.design.n_features, self.problem
        lam, W = problem.per_task(self.par.lam), self.solution.W[:, :d]
        scale = problem.penalty.scale
        return lam * (problem.root * np.sign(W) - scale * W), -lam * scale

    def cross(self) -> Array:
        out = super().cross()
        if self.par.tunes("l1_ratio"):
            pull, _ = self.ratio_pull()
            out[:, : pull.shape[1]] += pull[:, :, None] * self.par.slope("l1_ratio", self.problem.target)
        return out

    def contract(self, U: Array) -> dict[str, Array]:
        out = super().contract(U)
        if self.par.tunes("l1_ratio"):
            pull, _ = self.ratio_pull()
            out["l1_ratio"] = self.problem.by_target(pull * U[:, : pull.shape[1]])
        return out

    def curvature(self, u: Array, J: Array, window: float | None) -> Array:
        out = super().curvature(u, J, window)
        par, target = self.par, self.problem.target
        if not par.tunes("l1_ratio"):
            return out
        free = np.where(self.place == 0, u, 0.0)
        pull, curvature = self.ratio_pull()
        d = pull.shape[1]
        mixed = par.outer("l1_ratio", (curvature * free[:, :d])[:, :, None] * J[:, :d], target)
        if par.tunes("log_lam"):
            slope = par.slope("l1_ratio", target)
            mixed += par.outer("log_lam", (pull * free[:, :d])[:, :, None] * slope, target)
        return out + mixed + mixed.T
