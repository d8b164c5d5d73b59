r"""Linear training problems of all folds (and classes) on one design, solved in lockstep.

Task ``m = (target k, split t)`` minimises over ``w``

.. math::  E_m(w; \theta) = \tfrac12 \sum_d \lambda_{kd} s_{td} w_d^2
           + \sum_{j \in \mathrm{train}(t)} c_{m q(j)} \, v_j \, \ell(x_j' w, y_{kj}; \varepsilon_{m q(j)})

where ``q(j)`` is the cell of row ``j`` (its group of samples, its class), ``v`` are sample weights and ``s`` the
penalty scales of :class:`foldwise.penalties.Quadratic`. Weights ``W`` have one row per task.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldwise.design import Design
from foldwise.losses import Loss
from foldwise.penalties import Quadratic
from foldwise.problems.curvature import make_curvature
from foldwise.problems.flat import middle
from foldwise.problems.folds import Folds
from foldwise.problems.parameters import Canonical, ParameterMap
from foldwise.problems.ridge import balance, scout

__all__ = ["LinearProblem", "Point"]

DENSITY_ROWS = 2_000


NEGLIGIBLE = 1e-6
"""Share of the rows' terms in a gradient below which what is left of it may be their rounding."""


@dataclass(eq=False)
class Point:
    """Weights at one ``theta`` with what Newton's method and the hypergradient reuse.

    ``solve(rhs)`` applies the inverse Hessian to right-hand sides of shape (tasks, columns, k).
    """

    theta: np.ndarray
    par: Canonical
    W: np.ndarray
    Z: np.ndarray
    phi: np.ndarray
    solve: Any
    converged: np.ndarray
    steps: int
    stamp: int
    pins: dict = field(default_factory=dict)
    """By task, rows on whose kinks an intercept is held that no curved row holds, and how they move with the tube."""
    extra: dict = field(default_factory=dict)


class LinearProblem:
    """Training problems of a linear model on shared rows.

    Parameters
    ----------
    design : Design
        Rows in the order of ``folds``.
    Y : ndarray, shape (targets, n)
        Targets in stored order: one row for regression and two classes, one per class for one-vs-rest.
    folds : Folds
    loss : Loss
        A smooth training loss.
    parameters : ParameterMap
    penalty : Quadratic
        One row per task.
    weight : ndarray, shape (n,), optional
        Sample weights in training.
    validation_weight : ndarray, shape (n,) or (splits, n), optional
        What rows count in the criterion; one by default.
    n_total : int, optional
        Number of tasks over which the outer objective averages, when several problems share it.
    """

    def __init__(
        self,
        design: Design,
        Y: np.ndarray,
        folds: Folds,
        loss: Loss,
        parameters: ParameterMap,
        penalty: Quadratic,
        weight: np.ndarray | None = None,
        validation_weight: np.ndarray | None = None,
        n_total: int | None = None,
    ) -> None:
        self._check_loss(loss)
        self.design, self.Y, self.folds, self.loss = design, Y, folds, loss
        self.parameters, self.penalty = parameters, penalty
        self.n_targets, self.n_splits = len(Y), folds.n_splits
        self.n_tasks = self.n_targets * self.n_splits
        self.n_rows, self.n_columns, self.n_cells = design.n_rows, design.n_columns, folds.n_cells
        self.weight = np.ones(self.n_rows) if weight is None else weight
        self.target = np.repeat(np.arange(self.n_targets), self.n_splits)
        self.split = np.tile(np.arange(self.n_splits), self.n_targets)
        self.uniform = bool(np.all(self.weight == 1.0))
        counts = np.ones(self.n_rows) if validation_weight is None else validation_weight
        counts = np.broadcast_to(counts, (self.n_splits, self.n_rows))
        self._grams_validate = validation_weight is weight
        self.validation_weight = []
        for own, rows in zip(counts, folds.validation, strict=True):
            v = own[rows]
            total = v.sum()
            if len(v) and total <= 0:
                raise ValueError(
                    "a validation fold has no positive sample weight; use other folds or weights"
                )
            self.validation_weight.append(v / (total * (n_total or self.n_tasks)) if len(v) else v)
        mass = [np.bincount(folds.cell, self.weight * times, folds.n_cells) for times in folds.count]
        self.training_mass = np.tile(np.stack(mass), (self.n_targets, 1))
        self._lengths = design.row_norms()
        lengths = self.weight * self._lengths
        self._terms = np.stack([np.bincount(folds.cell, lengths * np.abs(y), folds.n_cells) for y in Y])
        self._grams: np.ndarray | None = None
        self._begin()

    def _check_loss(self, loss: Loss) -> None:
        if not loss.smooth:
            raise ValueError(
                f"a linear model in the primal needs a loss with a second derivative; got {type(loss).__name__}. "
                "Use its squared or smoothed form (SquaredHinge, QuarticHinge, SquaredEpsilonInsensitive)"
            )

    def _begin(self) -> None:
        """A fresh state."""
        self.curvature: Any = make_curvature(self)

    def reset(self) -> None:
        """Forget the curvature kept from earlier points; the next solve starts afresh."""
        stamp = self.curvature.stamp
        self.curvature = make_curvature(self)
        self.curvature.stamp += stamp + 1  # no earlier point may take the new state for its own

    def twin(self) -> LinearProblem:
        """The same problem with a curvature state of its own; rows and Gram matrices are shared."""
        other = copy.copy(self)
        other._begin()
        return other

    def block_grams(self) -> np.ndarray:
        """Weighted Gram matrix of every validation block and cell: shape (blocks, cells, columns, columns)."""
        if self._grams is None:
            D = self.n_columns
            self._grams = np.zeros((len(self.folds.segments), self.n_cells, D, D))
            for b, block in enumerate(self.folds.segments):
                for q, rows in enumerate(block):
                    weight = None if self.uniform else self.weight[rows]
                    self._grams[b, q] = self.design.gram(weight, rows)
        return self._grams

    def start(self) -> np.ndarray:
        """Weights to start from when nothing better is known.

        All zero; but a loss without curvature far away, such as Huber's, would never see targets far from zero, so the
        intercept is then the mean target of the training rows.
        """
        W = np.zeros((self.n_tasks, self.n_columns))
        far = not self.loss.hess(np.array([1e100]), np.zeros(1)).any()
        if self.loss.task == "regression" and self.loss.smooth and far and self.design.intercept:
            weight = self.weight * self.folds.count[self.split]
            W[:, -1] = (weight * self.Y[self.target]).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
        return W

    def per_task(self, values: np.ndarray) -> np.ndarray:
        """One row per task from one row per target."""
        return values if self.n_splits == 1 else np.repeat(values, self.n_splits, axis=0)

    def per_row(self, values: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Values per task and cell, spread to (tasks, n) or, with one cell, (tasks, 1)."""
        chosen = values[tasks]
        return chosen if self.n_cells == 1 else chosen[:, self.folds.cell]

    def targets(self, tasks: np.ndarray) -> np.ndarray:
        """Targets of the tasks: shape (tasks, n), or (1, n) when all share one."""
        return self.Y if self.n_targets == 1 else self.Y[self.target[tasks]]

    def loss_at(self, par: Canonical, tasks: np.ndarray) -> Loss:
        """The training loss with its tube widths, one per row, at these tasks."""
        if "epsilon" not in self.loss.tunable:
            return self.loss
        return self.loss.replace(epsilon=self.per_row(par.epsilon, tasks))

    def training(self, values: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """``values`` (tasks, n) times the sample weights and how often a row trains the task; in place."""
        if not self.uniform:
            values *= self.weight
        if self.folds.partition:
            for row, m in zip(values, tasks, strict=True):
                row[self.folds.validation[self.split[m]]] = 0.0
        else:
            values *= self.folds.count[self.split[tasks]]
        return values

    def by_cell(self, U: np.ndarray) -> np.ndarray:
        """``sum_j U_mj x_j`` separately for each cell: (tasks, n) -> (tasks, cells, columns)."""
        if self.n_cells == 1:
            return self.design.pull(U)[:, None, :]
        out = np.zeros((len(U), self.n_cells, self.n_columns))
        for block in self.folds.segments:
            for q, rows in enumerate(block):
                if rows.stop > rows.start:
                    out[:, q] += self.design.pull(U[:, rows], rows)
        return out

    def scout(self, theta: np.ndarray, factors: np.ndarray) -> np.ndarray | None:
        """Least-squares validation error at ``theta`` for each factor on the loss; see :mod:`.ridge`."""
        return scout(self, theta, factors)

    def balance(self, theta: np.ndarray) -> float | None:
        """A moderate factor on the loss at ``theta`` for wide data, else None; see :mod:`.ridge`."""
        return balance(self, theta)

    # The Problem contract: value and derivatives at any (W, theta), straight from the rows.

    def value(self, W: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """``E_m``, one number per task."""
        par, tasks = self.parameters(theta), np.arange(self.n_tasks)
        return self.loss_value(W, par) + 0.5 * np.sum(
            W * self.penalty.times(self.diagonal(par), W, tasks), axis=1
        )

    def loss_value(self, W: np.ndarray, par: Canonical, Z: np.ndarray | None = None) -> np.ndarray:
        """The loss part of ``E_m``."""
        tasks = np.arange(self.n_tasks)
        Z = self.design.decisions(W) if Z is None else Z
        losses = self.loss_at(par, tasks).value(Z, self.targets(tasks)) * self.per_row(par.c, tasks)
        return self.training(losses, tasks).sum(axis=1)

    def loss_grad(self, W: np.ndarray, par: Canonical, Z: np.ndarray | None = None) -> np.ndarray:
        """Gradient of the loss part of ``E_m``."""
        tasks = np.arange(self.n_tasks)
        Z = self.design.decisions(W) if Z is None else Z
        slopes = self.loss_at(par, tasks).grad(Z, self.targets(tasks)) * self.per_row(par.c, tasks)
        return self.design.pull(self.training(slopes, tasks))

    def grad(self, W: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """``dE_m/dw``, one row per task."""
        par = self.parameters(theta)
        return self.loss_grad(W, par) + self.penalty.times(self.diagonal(par), W, np.arange(self.n_tasks))

    def hess(self, W: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """``d2E_m/dw2``: shape (tasks, columns, columns)."""
        par, tasks = self.parameters(theta), np.arange(self.n_tasks)
        bends = self.loss_at(par, tasks).hess(self.design.decisions(W), self.targets(tasks))
        bends = self.training(bends * self.per_row(par.c, tasks), tasks)
        diagonal = self.diagonal(par)
        out = np.stack([self.design.gram(row) for row in bends])
        for m in tasks:
            self.penalty.add_to(out[m], diagonal, int(m))
        return out

    def cross_vjp(self, W: np.ndarray, theta: np.ndarray, U: np.ndarray) -> np.ndarray:
        """``sum_m u_m' d2E_m/dw dtheta``: shape (p,)."""
        point = self.point(W, theta)
        return self.contract(point, U)

    def feasible(self, theta: np.ndarray) -> tuple[None, None, None]:
        """Lower and upper bounds on ``w`` and equality rows: none here."""
        return None, None, None

    def decision(self, W: np.ndarray, theta: np.ndarray, X: np.ndarray) -> np.ndarray:
        """Decisions on new rows, shape (tasks, rows)."""
        coef, bias = self.design.to_user(W)
        return np.asarray((X @ coef.T).T) + bias[:, None]

    # What solvers and the hypergradient use: the same quantities from the curvature state.

    def diagonal(self, par: Canonical) -> np.ndarray:
        """Diagonal of the penalty's Hessian, one row per task."""
        return self.penalty.diagonal(self.per_task(par.lam))

    def point(self, W: np.ndarray, theta: np.ndarray, steps: int = 0, Z: np.ndarray | None = None) -> Point:
        """Everything about ``(W, theta)`` that derivatives need."""
        par, tasks = self.parameters(theta), np.arange(self.n_tasks)
        Z = self.design.decisions(W) if Z is None else Z
        self.curvature.refresh(Z, par, tasks)
        phi = self.curvature.phi(W, par, tasks)
        solve = self.curvature.factor(par, self.diagonal(par), tasks)
        return Point(theta, par, W, Z, phi, solve, np.ones(self.n_tasks, bool), steps, self.curvature.stamp)

    def unsolved(self, W: np.ndarray, theta: np.ndarray, Z: np.ndarray) -> Point:
        """Weights that no solver has seen, with decisions ``Z``: enough to validate them or to start from them."""
        none = np.zeros((self.n_tasks, self.n_cells, 0))
        return Point(theta, self.parameters(theta), W, Z, none, None, np.zeros(self.n_tasks, bool), 0, -1)

    def revive(self, point: Point) -> Point:
        """The point with derivatives that are valid now: the problem keeps the curvature of one point only."""
        if point.stamp == self.curvature.stamp:
            return point
        fresh = self.point(point.W, point.theta, point.steps, point.Z)
        fresh.converged, fresh.pins = point.converged, point.pins
        return fresh

    def row_residual(self, point: Point) -> np.ndarray:
        """The relative KKT residual computed anew from the rows, whatever was kept up to date before."""
        tasks = np.arange(self.n_tasks)
        pull = self.loss_grad(point.W, point.par)
        push = self.penalty.times(self.diagonal(point.par), point.W, tasks)
        residual = np.linalg.norm(pull + push, axis=1) / self.gradient_size(pull, push, point.par, tasks)
        return np.maximum(residual, self.neglected(point.Z, pull, push, point.par, tasks))

    def neglected(
        self, Z: np.ndarray, pull: np.ndarray, push: np.ndarray, par: Canonical, tasks: np.ndarray
    ) -> np.ndarray:
        """The residual of tasks whose penalty is far too weak to show in the other one; 0 of all others.

        Rows that a machine separates leave a gradient of the penalty alone, which is nothing beside what the rows
        could add to it, and still decides on the weights. It is compared with the slopes that the rows have, and what
        decisions leave open that are known to a billionth of their range is not held against it.
        """
        size = np.linalg.norm(pull, axis=1) + np.linalg.norm(push, axis=1)
        terms = np.sum(par.c[tasks] * self._terms[self.target[tasks]], axis=1)
        out = np.zeros(len(tasks))
        for i in np.flatnonzero((size > 0) & (size < NEGLIGIBLE * terms)):
            one, z = tasks[i : i + 1], Z[i : i + 1]
            loss, y, c = self.loss_at(par, one), self.targets(one), self.per_row(par.c, one)
            near = 1e-9 * np.ptp(z) + 1e-15 * np.abs(z)
            below, here, above = (self.training(c * loss.grad(z + t * near, y), one)[0] for t in (-1, 0, 1))
            unknown = 0.5 * (above - below) @ self._lengths
            left = max(float(np.linalg.norm(pull[i] + push[i]) - unknown), 0.0)
            out[i] = left / (size[i] + NEGLIGIBLE * np.abs(here) @ self._lengths)
        return out

    def gradient_size(
        self, pull: np.ndarray, push: np.ndarray, par: Canonical, tasks: np.ndarray
    ) -> np.ndarray:
        """What a gradient ``pull + push`` (loss, penalty) is compared with: the norms of the two parts.

        A millionth of the rows' terms, as large as they are before they cancel in ``pull``, keeps the comparison
        meaningful where the solution is zero and both parts vanish.
        """
        terms = np.sum(par.c[tasks] * self._terms[self.target[tasks]], axis=1)
        size = np.linalg.norm(pull, axis=1) + np.linalg.norm(push, axis=1) + NEGLIGIBLE * terms
        return np.maximum(size, np.finfo(float).tiny)

    def cross(self, point: Point) -> np.ndarray:
        """``d2E_m/dw dtheta``: shape (tasks, columns, p)."""
        par = point.par
        out = np.zeros((self.n_tasks, self.n_columns, self.parameters.space.size))
        if self.parameters.tunes["log_c"]:
            out += np.matmul((par.c[:, :, None] * point.phi).transpose(0, 2, 1), par.d_log_c)
        if self.parameters.tunes["epsilon"]:
            psi = self.psi(point)
            out += np.matmul((par.c[:, :, None] * psi).transpose(0, 2, 1), par.d_epsilon)
        if self.parameters.tunes["log_lam"]:
            d = par.lam.shape[1]
            out[:, :d] += (self.diagonal(par)[:, :d] * point.W[:, :d])[:, :, None] * par.d_log_lam[
                self.target
            ]
        return out

    def adjoint(self, point: Point, slopes) -> np.ndarray:
        """``u_m = -H_m^-1 dF/dw_m`` from the criterion's slopes: a list of (task, rows, dF/dz on these rows)."""
        F_w = np.zeros_like(point.W)
        for m, rows, g in slopes:
            F_w[m] = self.design.pull(g[None], rows)[0]
        held = F_w[:, -1].copy()
        for m, (rows, _) in point.pins.items():
            F_w[m] -= held[m] * self._mean_row(
                rows
            )  # the intercept follows the decisions of the rows at its ends
        out = -point.solve(F_w[:, :, None])[:, :, 0]
        for m in point.pins:
            out[m, -1] = held[m]
        return out

    def sensitivities(self, point: Point) -> np.ndarray:
        """``dw_m/dtheta``: shape (tasks, columns, p)."""
        cross = self.cross(point)
        for m in point.pins:
            cross[m, -1] = 0.0
        out = -point.solve(cross)
        for m, (rows, slope) in point.pins.items():
            out[m, -1] = self._kink_moves(point, m, rows, slope) - self._mean_row(rows)[:-1] @ out[m, :-1]
        return out

    def _mean_row(self, rows: np.ndarray) -> np.ndarray:
        return self.design.dense(rows).mean(axis=0)

    def _kink_moves(self, point: Point, m: int, rows: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """How the middle of an intercept's interval moves with the tube, in ``theta``: shape (p,)."""
        if not self.parameters.tunes["epsilon"]:
            return np.zeros(self.parameters.space.size)
        return np.mean(slope[:, None] * point.par.d_epsilon[m][self.folds.cell[rows]], axis=0)

    def centre(self, W: np.ndarray, Z: np.ndarray, par: Canonical, tasks: np.ndarray) -> dict:
        """Put intercepts of solved tasks that are not unique in the middle, in place; the rows that hold them there.

        See :mod:`foldwise.problems.flat`.
        """
        n, pins = self.n_rows, {}
        if (
            not self.design.intercept
            or self.penalty.form is not None
            or not self.loss.straight(self.Y[0][:1])
        ):
            return {}
        for m in tasks.tolist():
            one = np.array([m])
            loss = self.loss
            if "epsilon" in loss.tunable:
                loss = loss.replace(epsilon=np.broadcast_to(self.per_row(par.epsilon, one)[0], n))
            c = self.training(np.array(np.broadcast_to(self.per_row(par.c, one), (1, n))), one)[0]

            def decide(alpha: np.ndarray, m: int = m) -> np.ndarray:
                return self.design.decisions(self.weights_of(alpha, m, par))[0]

            found = middle(loss, self.targets(one)[0], c, Z[m], decide)
            if found is not None:
                W[m] = self.weights_of(found.alpha, m, par)[0]
                W[m, -1] = found.b
                Z[m] = found.f + found.b
                pins[m] = found.rows, found.slope
        return pins

    def weights_of(self, alpha: np.ndarray, m: int, par: Canonical) -> np.ndarray:
        """Weights of a task whose rows have coefficients ``alpha = -c l'``, with intercept 0: shape (1, columns)."""
        d = self.design.n_features
        return np.pad(self.design.pull(alpha[None])[:, :d] / self.diagonal(par)[m, :d], ((0, 0), (0, 1)))

    def moves(self, J: np.ndarray, m: int, rows: Any) -> np.ndarray:
        """``dz/dtheta`` on rows of a task: shape (p, rows)."""
        return self.design.decisions(np.ascontiguousarray(J[m].T), rows)

    def contract(self, point: Point, U: np.ndarray) -> np.ndarray:
        """``sum_m u_m' cross_m`` without the cross matrices."""
        par = point.par
        out = np.zeros(self.parameters.space.size)
        if self.parameters.tunes["log_c"]:
            inner = par.c * np.einsum("md,mqd->mq", U, point.phi)
            out += np.einsum("mq,mqp->p", inner, par.d_log_c)
        if self.parameters.tunes["epsilon"]:
            inner = par.c * np.einsum("md,mqd->mq", U, self.psi(point))
            out += np.einsum("mq,mqp->p", inner, par.d_epsilon)
        if self.parameters.tunes["log_lam"]:
            d = par.lam.shape[1]
            inner = (self.diagonal(par) * point.W * U)[:, :d]
            out += np.einsum("md,mdp->p", inner, par.d_log_lam[self.target])
        for m, (rows, slope) in point.pins.items():
            out += U[m, -1] * self._kink_moves(point, m, rows, slope)
        return out

    def psi(self, point: Point) -> np.ndarray:
        """``d phi / d epsilon`` per cell: shape (tasks, cells, columns)."""
        if "psi" not in point.extra:
            point.extra["psi"] = self.curvature.psi(point.Z, point.par)
        return point.extra["psi"]

    def bend(self, point: Point, U: np.ndarray, J: np.ndarray, window: float | None) -> np.ndarray:
        """Second-order part of the hyper-Hessian: ``u' d2(dE/dw)/dtheta2`` along ``w(theta)``; shape (p, p).

        ``J`` is ``dw/dtheta``, shape (tasks, columns, p). With a ``window`` the rows near a kink of the loss stand
        for the density of rows that change piece as ``theta`` moves.
        """
        par = point.par
        p = self.parameters.space.size
        out = np.zeros((p, p))
        one_sided = np.zeros((p, p))
        if self.parameters.tunes["log_c"]:
            c, L = par.c, par.d_log_c
            inner = c * np.einsum("md,mqd->mq", U, point.phi)
            out += np.einsum("mq,mqa,mqb->ab", inner, L, L, optimize=True)
            GU = self.curvature.gram_times(U, point.Z, par)
            reach = np.matmul(c[:, :, None] * GU, J)
            one_sided += np.einsum("mqa,mqb->ab", L, reach)
            if self.parameters.tunes["epsilon"]:
                inner = c * np.einsum("md,mqd->mq", U, self.psi(point))
                one_sided += np.einsum("mq,mqa,mqb->ab", inner, L, par.d_epsilon, optimize=True)
        if self.parameters.tunes["log_lam"]:
            d = par.lam.shape[1]
            diagonal, L = self.diagonal(par)[:, :d], par.d_log_lam[self.target]
            for m in range(self.n_tasks):
                out += (L[m] * (diagonal[m] * U[m, :d] * point.W[m, :d])[:, None]).T @ L[m]
                one_sided += L[m].T @ ((diagonal[m] * U[m, :d])[:, None] * J[m, :d])
        out += one_sided + one_sided.T
        return out + self._third(point, U, J, window)

    def _third(self, point: Point, U: np.ndarray, J: np.ndarray, window: float | None) -> np.ndarray:
        """The part of :meth:`bend` that comes from the third derivative of the loss, or from its kinks."""
        out = np.zeros((J.shape[2], J.shape[2]))
        if self.loss.piecewise_quadratic and window is None:
            return out
        for m in range(self.n_tasks):
            tasks = np.array([m])
            loss, y, z = self.loss_at(point.par, tasks), self.targets(tasks[:1]), point.Z[m : m + 1]
            c = self.per_row(point.par.c, tasks)
            factor = self.training(np.broadcast_to(c, z.shape).copy(), tasks)[0]
            if self.loss.piecewise_quadratic:
                out += self._kink_density(point, m, loss, y, z, factor, U[m], J[m], window)
                continue
            third = loss.third(z, y)[0] * factor
            rows = np.flatnonzero(third)
            if len(rows):
                moves = self.design.decisions(np.vstack([U[m], J[m].T]), rows)
                out += (moves[1:] * (third[rows] * moves[0])) @ moves[1:].T
        return out

    def _kink_density(self, point, m, loss, y, z, factor, u, J, window) -> np.ndarray:
        """Curvature that rows make by changing piece, from those within a window of the kink.

        ``l'`` moves by ``jump * max(t, 0) * dt/dz`` where ``t`` is the distance past the kink, so its second derivative
        along ``theta`` is a density at ``t = 0``. Beyond ``DENSITY_ROWS`` rows a regular subsample estimates it.
        On sparse designs with fewer curved rows than columns a row that crosses is fitted at once and bends the
        solution itself, by more than a density can tell: there no estimate is the better one.
        """
        out = np.zeros((J.shape[1], J.shape[1]))
        if not self.parameters.tunes["epsilon"] and not np.any(getattr(loss, "epsilon", 1.0)):
            return out  # a tube of fixed width zero has no kink
        if not self.design.is_dense and np.count_nonzero(loss.hess(z, y)[0] * factor) <= self.n_columns:
            return out
        width = window * self._spread(z[0], y[0]) if self.loss.task == "regression" else window
        for distance, direction, jump in loss.kinks(z, y):
            rows = np.flatnonzero((np.abs(distance[0]) < width) & (factor > 0))
            stride = max(1, len(rows) // DENSITY_ROWS)
            rows = rows[::stride]
            if not len(rows):
                continue
            side = direction[0][rows]
            moves = self.design.decisions(np.vstack([u, J.T]), rows)
            shift = moves[1:] * side
            if self.parameters.tunes["epsilon"]:
                shift = shift - point.par.d_epsilon[m][self.folds.cell[rows]].T
            mass = stride * factor[rows] * jump[0][rows] * side * moves[0] / (2.0 * width)
            out += (shift * mass) @ shift.T
        return out

    def _spread(self, z: np.ndarray, y: np.ndarray) -> float:
        """Root mean square residual."""
        r = z - y
        return float(np.sqrt(max(self.weight @ (r * r) / self.weight.sum(), 1e-24)))

    # The outer level: decisions on validation rows, and their adjoint.

    def validation(self, point: Point):
        """Yield ``(task, rows, decisions, targets, weights)`` of every task that validates on some row."""
        for m in range(self.n_tasks):
            rows, v = self.folds.validation[self.split[m]], self.validation_weight[self.split[m]]
            if len(v):
                yield m, rows, point.Z[m][rows], self.Y[self.target[m]][rows], v

    def validation_gram(self, m: int) -> np.ndarray | None:
        """``X' diag(v) X`` over the validation rows of a task, where it is at hand."""
        if self._grams is None or not self.folds.partition or not self._grams_validate:
            return None
        t = self.split[m]
        rows, v = self.folds.validation[t], self.validation_weight[t]
        return self._grams[t].sum(axis=0) * (v.sum() / self.weight[rows].sum()) if len(v) else None

    def flat_intercepts(self, point: Any) -> int:
        """In how many tasks the intercept is not unique."""
        return len(point.pins)

    def n_kinks(self, point: Point, tol: float = 1e-9) -> int:
        """Training rows that sit at a kink of the loss, over all tasks."""
        tasks = np.arange(self.n_tasks)
        scale = max(1.0, float(np.abs(self.Y).max(initial=0.0)))
        count = 0
        trains = self.folds.train[self.split] & (self.weight > 0)
        for u, _, _ in self.loss_at(point.par, tasks).kinks(point.Z, self.targets(tasks)):
            count += int(np.sum((np.abs(u) <= tol * scale) & trains))
        return count
