r"""Smooth training losses with bounds on the weights, or with a pull to reference weights.

Task ``m`` minimises over ``lower <= w <= upper``

.. math::  \tfrac12 \sum_d \lambda_d s_d w_d^2 + \tfrac{\nu}{2} \sum_d s_d (w_d - w^0_d)^2
           + \sum_j c_j v_j \, \ell(x_j'w, y_j),

with the scales ``s`` of :class:`foldwise.penalties.Quadratic`. At the solution some weights are held at a bound and
follow it; the others are free. With ``H`` the Hessian, ``F`` the free and ``A`` the held columns,

.. math::  dw_A = d\,\mathrm{bound}, \qquad  H_{FF} \, dw_F = -(\mathrm{cross}_F \, d\theta + H_{FA} \, dw_A).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq

from foldwise.linalg import cholesky, cholesky_solve
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import Canonical
from foldwise.problems.pieces import AT_LOWER, AT_UPPER

__all__ = ["BoxedPoint", "BoxedProblem", "held_columns"]


@dataclass(eq=False)
class BoxedPoint:
    """Solutions of all tasks at one ``theta``.

    ``held`` (tasks, columns) is 0 for free weights, ``AT_LOWER`` or ``AT_UPPER`` for held ones; ``gamma`` the
    multipliers of the bounds, positive at the upper one and negative at the lower one.
    """

    theta: np.ndarray
    par: Canonical
    W: np.ndarray
    Z: np.ndarray
    gamma: np.ndarray
    held: np.ndarray
    phi: np.ndarray
    hessians: np.ndarray
    converged: np.ndarray
    steps: int
    pins: dict = field(default_factory=dict)


def held_columns(w: np.ndarray, g: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Which weights a gradient ``g`` holds at a bound; a box of width zero holds at the side the gradient points to."""
    at_lower, at_upper = (w <= lower) & (g >= 0), (w >= upper) & (g <= 0)
    return np.where(
        at_upper & (g < 0), AT_UPPER, np.where(at_lower, AT_LOWER, np.where(at_upper, AT_UPPER, 0))
    )


class BoxedProblem(LinearProblem):
    """Training problems of a linear model with a smooth loss and bounds on shared rows.

    Parameters
    ----------
    design, Y, folds, loss, parameters, penalty, weight, validation_weight, n_total
        As in :class:`foldwise.problems.linear.LinearProblem`.
    reference : ndarray, shape (features,), optional
        ``w0`` in the user's columns; zero by default.
    """

    def __init__(self, *args, reference: np.ndarray | None = None, **options) -> None:
        super().__init__(*args, **options)
        if self.penalty.form is not None:
            raise ValueError(
                "bounds on weights need a free intercept or none; a penalised one is not supported"
            )
        d = self.design.n_features
        self.root = np.sqrt(self.penalty.scale)
        w0 = np.zeros(d) if reference is None else np.asarray(reference, float)
        if w0.shape != (d,) or not np.all(np.isfinite(w0)):
            raise ValueError(
                f"reference has shape {w0.shape}; it needs one finite number for each of {d} features"
            )
        self.reference = self._padded(w0 / self.root)

    def _begin(self) -> None:
        """There is no state to keep."""

    def reset(self) -> None:
        """There is no state to forget."""

    def twin(self) -> BoxedProblem:
        """The same problem; nothing is shared but rows."""
        return copy.copy(self)

    def _padded(self, values: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """With an entry for the intercept, if there is one."""
        extra = self.n_columns - values.shape[1]
        return np.pad(values, ((0, 0), (0, extra)), constant_values=fill) if extra else values

    def near(self, par: Canonical) -> np.ndarray:
        """Curvature of the proximity term: shape (tasks, columns)."""
        return self._padded(self.per_task(par.near) * self.penalty.scale)

    def bounds(self, par: Canonical) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the stored weights: shape (tasks, columns) each."""
        lower, upper = self.per_task(par.lower) / self.root, self.per_task(par.upper) / self.root
        return self._padded(lower, -np.inf), self._padded(upper, np.inf)

    def feasible(self, theta: np.ndarray):
        """Lower and upper bounds of the stored weights; there are no equality rows."""
        return (*self.bounds(self.parameters(theta)), None)

    def value(self, W: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """``E_m``, one number per task; bounds are not looked at."""
        par = self.parameters(theta)
        pull = 0.5 * np.sum(self.near(par) * (W - self.reference) ** 2, axis=1)
        return self.loss_value(W, par) + 0.5 * np.sum(self.diagonal(par) * W**2, axis=1) + pull

    def grad(self, W: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """``dE_m/dw``, one row per task."""
        par = self.parameters(theta)
        return self.loss_grad(W, par) + self.diagonal(par) * W + self.near(par) * (W - self.reference)

    def hess(self, W: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """``d2E_m/dw2``: shape (tasks, columns, columns)."""
        out = super().hess(W, theta)
        columns = np.arange(self.n_columns)
        out[:, columns, columns] += self.near(self.parameters(theta))
        return out

    def weights_of(self, alpha: np.ndarray, m: int, par: Canonical) -> np.ndarray:
        """The same, with the pull to the reference and within the bounds: each weight has a minimum of its own."""
        d, near = self.design.n_features, self.near(par)[m]
        pull = self.design.pull(alpha[None])[:, :d] + (near * self.reference[0])[:d]
        lower, upper = (bound[m, :d] for bound in self.bounds(par))
        w = np.clip(pull / (self.diagonal(par)[m] + near)[:d], lower, upper)
        return np.pad(w, ((0, 0), (0, 1)))

    def way_of_intercept(self, w: np.ndarray, m: int, par: Canonical) -> float:
        """How far the intercept of a task is from where the loss, as a function of it alone, is lowest."""
        one = np.array([m])
        loss, y, z = self.loss_at(par, one), self.targets(one), self.design.decisions(w[None])
        c = self.training(np.array(np.broadcast_to(self.per_row(par.c, one), z.shape)), one)[0]

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

    def boxed_point(
        self, theta: np.ndarray, W: np.ndarray, converged: np.ndarray, steps: int, pins: dict | None = None
    ) -> BoxedPoint:
        """Everything about solutions ``W`` that derivatives need."""
        par, tasks = self.parameters(theta), np.arange(self.n_tasks)
        Z, g = self.design.decisions(W), self.grad(W, theta)
        lower, upper = self.bounds(par)
        held = held_columns(W, g, lower, upper)
        slopes = self.training(self.loss_at(par, tasks).grad(Z, self.targets(tasks)), tasks)
        phi, gamma = self.by_cell(slopes), np.where(held != 0, -g, 0.0)
        hessians = self.hess(W, theta)
        return BoxedPoint(theta, par, W, Z, gamma, held, phi, hessians, converged, steps, pins or {})

    def revive(self, point: Any) -> Any:
        """The point itself: it carries all that derivatives need."""
        return point

    def row_residual(self, point: Any) -> np.ndarray:
        """The projected gradient, relative to the norms of its parts, computed anew from the rows."""
        tasks = np.arange(self.n_tasks)
        pull = self.loss_grad(point.W, point.par)
        push = self.diagonal(point.par) * point.W + self.near(point.par) * (point.W - self.reference)
        g = pull + push
        lower, upper = self.bounds(point.par)
        g = np.where(held_columns(point.W, g, lower, upper) != 0, 0.0, g)
        return np.linalg.norm(g, axis=1) / self.gradient_size(pull, push, point.par, tasks)

    # Derivatives on the free set.

    def _solve(self, point: BoxedPoint, m: int, rhs: np.ndarray) -> np.ndarray:
        """``H_FF^-1`` times the free part of ``rhs`` (columns, k), zero on held columns."""
        free = np.flatnonzero(point.held[m] == 0)
        out = np.zeros_like(rhs)
        if len(free):
            out[free] = cholesky_solve(cholesky(point.hessians[m][np.ix_(free, free)]), rhs[free])
        return out

    def adjoint(self, point: Any, slopes) -> np.ndarray:
        """``-H_FF^-1 dF/dw_F`` on free columns; on held ones ``dF`` for a unit move of their bound."""
        out = np.zeros_like(point.W)
        for m, rows, g in slopes:
            g = self.design.pull(g[None], rows)[0]
            b = g[-1]
            if m in point.pins:  # the intercept follows the decisions of the rows at its ends
                g = g - b * self._mean_row(point.pins[m][0])
            u = -self._solve(point, m, g[:, None])[:, 0]
            out[m] = np.where(point.held[m] == 0, u, g + point.hessians[m] @ u)
            if m in point.pins:
                out[m, -1] = b
        return out

    def psi(self, point: Any) -> np.ndarray:
        """``d phi / d epsilon`` per cell: shape (tasks, cells, columns)."""
        tasks = np.arange(self.n_tasks)
        loss: Any = self.loss_at(point.par, tasks)
        return self.by_cell(self.training(loss.grad_epsilon(point.Z, self.targets(tasks)), tasks))

    def _pulls(self, point: Any) -> list[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
        """Both penalties: name, derivative of the gradient in the logarithm, curvature, derivative of the logarithm."""
        par, d = point.par, self.design.n_features
        ridge, near = self.diagonal(par)[:, :d], self.near(par)[:, :d]
        W = point.W[:, :d]
        return [
            (
                "log_lam",
                ridge * W,
                ridge,
                par.d_log_lam[self.target] if self.parameters.tunes["log_lam"] else ridge,
            ),
            (
                "log_near",
                near * (W - self.reference[:, :d]),
                near,
                par.d_log_near[self.target] if self.parameters.tunes["log_near"] else near,
            ),
        ]

    def cross(self, point: Any) -> np.ndarray:
        """``d2E_m/dw dtheta`` at fixed bounds: shape (tasks, columns, p)."""
        par, d = point.par, self.design.n_features
        out = np.zeros((self.n_tasks, self.n_columns, self.parameters.space.size))
        if self.parameters.tunes["log_c"]:
            out += np.matmul((par.c[:, :, None] * point.phi).transpose(0, 2, 1), par.d_log_c)
        if self.parameters.tunes["epsilon"]:
            out += np.matmul((par.c[:, :, None] * self.psi(point)).transpose(0, 2, 1), par.d_epsilon)
        for name, pull, _, L in self._pulls(point):
            if self.parameters.tunes[name]:
                out[:, :d] += pull[:, :, None] * L
        for m in point.pins:
            out[m, -1] = 0.0
        return out

    def _moves_of_bounds(self, point: Any) -> np.ndarray:
        """``dw/dtheta`` of held columns: shape (tasks, columns, p)."""
        par, d = point.par, self.design.n_features
        out = np.zeros((self.n_tasks, self.n_columns, self.parameters.space.size))
        for place, kind, moves in ((AT_UPPER, "upper", par.d_upper), (AT_LOWER, "lower", par.d_lower)):
            if self.parameters.tunes[kind]:
                here = np.where(point.held[:, :d] == place, 1.0 / self.root, 0.0)
                out[:, :d] += here[:, :, None] * moves[self.target]
        return out

    def contract(self, point: Any, U: np.ndarray) -> np.ndarray:
        """``dF/dtheta`` from the adjoints."""
        free = np.where(point.held == 0, U, 0.0)
        out = np.einsum("md,mdp->p", free, self.cross(point))
        for m, (rows, slope) in point.pins.items():
            out += U[m, -1] * self._kink_moves(point, m, rows, slope)
        return out + np.einsum("md,mdp->p", U - free, self._moves_of_bounds(point))

    def sensitivities(self, point: Any) -> np.ndarray:
        """``dw_m/dtheta``: shape (tasks, columns, p)."""
        out = self._moves_of_bounds(point)
        cross = self.cross(point)
        for m in range(self.n_tasks):
            out[m] -= self._solve(point, m, cross[m] + point.hessians[m] @ out[m])
        for m, (rows, slope) in point.pins.items():
            out[m, -1] = self._kink_moves(point, m, rows, slope) - self._mean_row(rows)[:-1] @ out[m, :-1]
        return out

    def bend(self, point: Any, U: np.ndarray, J: np.ndarray, window: float | None) -> np.ndarray:
        """Second-order part of the hyper-Hessian while no weight meets or leaves a bound: shape (p, p)."""
        par, p, d = point.par, self.parameters.space.size, self.design.n_features
        U = np.where(point.held == 0, U, 0.0)
        out, one_sided = np.zeros((p, p)), np.zeros((p, p))
        if self.parameters.tunes["log_c"]:
            tasks, c, L = np.arange(self.n_tasks), par.c, par.d_log_c
            inner = c * np.einsum("md,mqd->mq", U, point.phi)
            out += np.einsum("mq,mqa,mqb->ab", inner, L, L, optimize=True)
            bends = self.training(self.loss_at(par, tasks).hess(point.Z, self.targets(tasks)), tasks)
            GU = self.by_cell(bends * self.design.decisions(U))
            one_sided += np.einsum("mqa,mqb->ab", L, np.matmul(c[:, :, None] * GU, J))
            if self.parameters.tunes["epsilon"]:
                inner = c * np.einsum("md,mqd->mq", U, self.psi(point))
                one_sided += np.einsum("mq,mqa,mqb->ab", inner, L, par.d_epsilon, optimize=True)
        for name, pull, curvature, L in self._pulls(point):
            if self.parameters.tunes[name]:
                for m in range(self.n_tasks):
                    u = U[m, :d]
                    out += (L[m] * (pull[m] * u)[:, None]).T @ L[m]
                    one_sided += L[m].T @ ((curvature[m] * u)[:, None] * J[m, :d])
        out += one_sided + one_sided.T
        return out + self._third(point, U, J, window)

    def n_kinks(self, point: Any, tol: float = 1e-9) -> int:
        """Training rows at a kink of the loss, and weights at a bound whose multiplier vanishes."""
        lower, upper = self.bounds(point.par)
        size = np.abs(self.loss_grad(point.W, point.par)).max(axis=1, keepdims=True, initial=0.0) + 1e-300
        idle = (point.held != 0) & (np.abs(point.gamma) <= tol * size)
        room = np.minimum(point.W - lower, upper - point.W)
        touching = (point.held == 0) & (room <= tol * np.abs(point.W))
        return super().n_kinks(point, tol) + int(np.sum(idle | touching))
