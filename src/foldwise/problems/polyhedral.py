r"""Linear machines with the hinge or the epsilon-insensitive loss, exactly: the classical ones, with boxes.

Task ``m = (target k, split t)`` minimises over ``w`` with ``lower <= w <= upper``

.. math::  \sum_d \lambda_d \left(\tfrac{1 - \rho}{2} w_d^2 + \rho |w_d|\right) + \tfrac{\nu}{2} \|w - w^0\|^2
           + \sum_{j \in \mathrm{train}(t)} c_j v_j \, \ell(x_j'w + b, y_j; \varepsilon_j)

with ``rho = l1_ratio`` (0: the classical machine), ``nu`` the proximity to reference weights (bennett2006 (2)) and a
free intercept if there is one. Everything is kept in the stored columns of the design (see
:class:`foldwise.design.Design`); :meth:`PolyhedralProblem.in_user_units` converts.

At a solution every training row is left of, on, or right of a kink of its loss, and every weight is free or held at a
bound (or at zero by the L1 penalty). While ``theta`` moves a little nothing changes kind, so the free weights and the
dual variables of the rows on kinks follow from one linear system (:class:`foldwise.problems.pieces.KinkSystem`), whose
transpose is the adjoint. Where a multiplier vanishes the solution has two one-sided derivatives: such pairs are counted
by :meth:`PolyhedralProblem.n_kinks`, and the derivative is that of the piece whose active set was found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldwise.losses import Loss
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import Canonical
from foldwise.problems.pieces import AT_LOWER, AT_UPPER, ActiveSet, KinkSystem, Pieces
from foldwise.problems.written import Task, Written

__all__ = ["PolyhedralPoint", "PolyhedralProblem", "UserUnits"]

EDGE = 1e-9
"""Distance of a dual variable from the end of its range, in units of ``c``, below which it is on it."""


@dataclass(eq=False)
class PolyhedralPoint:
    """Exact solutions of all tasks at one ``theta``, primal and dual, in stored columns.

    Attributes
    ----------
    W : ndarray, shape (tasks, columns)
        Weights; the intercept, if any, is the last column.
    Z : ndarray, shape (tasks, n)
        Decisions on all rows, in stored order (``problem.folds.order`` maps to the user's).
    alpha : ndarray, shape (tasks, n)
        Dual variables: minus the slope of each row's loss times its weight, zero off the training set. For the hinge
        ``y_j alpha_j`` is in ``[0, c_j]``; for the tube ``alpha_j`` is positive below it and negative above.
    gamma : ndarray, shape (tasks, columns)
        Multipliers of the bounds: positive at the upper one, negative at the lower one, zero between.
    gap : ndarray, shape (tasks,)
        Duality gaps.
    active : list of ActiveSet
    pins : list
        Per task the two rows that hold an intercept in the middle of its interval, where no row on a kink does; None
        otherwise.
    """

    theta: np.ndarray
    par: Canonical
    W: np.ndarray
    Z: np.ndarray
    alpha: np.ndarray
    gamma: np.ndarray
    gap: np.ndarray
    active: list[ActiveSet]
    pins: list
    converged: np.ndarray
    steps: int
    systems: list = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class UserUnits:
    """A task's data and solution in the user's columns, training rows only.

    Attributes
    ----------
    rows : ndarray of int, shape (n_train,)
        Row numbers in the user's X.
    y, c, epsilon, alpha, z : ndarray, shape (n_train,)
    w, lower, upper, gamma_lower, gamma_upper : ndarray, shape (features,)
        Weights, bounds (infinite where there are none) and the bounds' multipliers, not negative.
    b : float
    lam : ndarray, shape (features,)
        Factor of the penalty: ``lam_d``, times the variance of a column that folds standardise.
    gap : float
    """

    rows: np.ndarray
    y: np.ndarray
    c: np.ndarray
    epsilon: np.ndarray
    alpha: np.ndarray
    z: np.ndarray
    w: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    gamma_lower: np.ndarray
    gamma_upper: np.ndarray
    b: float
    lam: np.ndarray
    gap: float


class PolyhedralProblem(LinearProblem):
    """Exact linear support vector machines on shared rows.

    Parameters
    ----------
    design, Y, folds, loss, parameters, penalty, weight, validation_weight, n_total
        As in :class:`foldwise.problems.linear.LinearProblem`; the loss is ``Hinge`` or ``EpsilonInsensitive``.
    l1_ratio : float
        Share of the L1 norm in the penalty: 0 quadratic, 1 L1, between them the elastic net.
    reference : ndarray, shape (features,), optional
        ``w0`` in the user's columns; zero by default, and where it is tuned.
    """

    def __init__(self, *args, l1_ratio: float = 0.0, reference: np.ndarray | None = None, **options) -> None:
        super().__init__(*args, **options)
        if self.penalty.form is not None:
            raise ValueError(
                "a polyhedral loss needs a free intercept or none; a penalised one is not supported"
            )
        self.l1_ratio = float(l1_ratio)
        self.root = np.sqrt(self.penalty.scale)
        """Stored weights times ``root`` are the user's: shape (tasks, features)."""
        d = self.design.n_features
        w0 = np.zeros(d) if reference is None else np.asarray(reference, float)
        if w0.shape != (d,) or not np.all(np.isfinite(w0)):
            raise ValueError(
                f"reference has shape {w0.shape}; it needs one finite number for each of {d} features"
            )
        self.reference = w0 / self.root

    def _check_loss(self, loss: Loss) -> None:
        if type(loss).__name__ not in ("Hinge", "EpsilonInsensitive"):
            raise ValueError(
                f"the exact linear machine is for Hinge and EpsilonInsensitive; got {type(loss).__name__}. "
                "Smooth losses go with LinearProblem"
            )

    def reset(self) -> None:
        """Forget the active sets of the last point."""
        self._begin()

    def _begin(self) -> None:
        self.memory: list[ActiveSet | None] = [None] * self.n_tasks
        """Active set of every task at the last point, from which a solver starts."""

    # The training problem of one task.

    def pieces(self, m: int, par: Canonical) -> Pieces:
        """Task ``m`` as a piecewise quadratic function."""
        y, c = self.Y[self.target[m]], self._strength(m, par)
        if self.loss.task == "classification":
            kinks, left = y[:, None].copy(), np.where(y > 0, c, 0.0)
        else:
            tube = np.broadcast_to(par.epsilon[m][self.folds.cell], y.shape)
            kinks, left = np.stack([y - tube, y + tube], axis=1), c
        ridge, near, l1 = self._penalties(m, par)
        q = ridge + near
        centre = np.divide(near * self.pulled_to(m, par), q, out=np.zeros_like(q), where=q > 0)
        lower, upper = self.bounds(m, par)
        pad = (0, self.n_columns - self.design.n_features)
        return Pieces(
            self.design,
            kinks,
            left,
            c,
            np.pad(q, pad),
            np.pad(centre, pad),
            np.pad(l1, pad),
            np.pad(lower, pad, constant_values=-np.inf),
            np.pad(upper, pad, constant_values=np.inf),
        )

    def _strength(self, m: int, par: Canonical) -> np.ndarray:
        """``c_j v_j`` times how often a row trains the task: zero off its training rows."""
        return par.c[m][self.folds.cell] * self.weight * self.folds.count[self.split[m]]

    def _penalties(self, m: int, par: Canonical) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Curvature of the ridge and of the proximity term, and weights of the L1 norm, per feature."""
        k, scale = self.target[m], self.penalty.scale[m]
        lam = par.lam[k]
        return lam * (1.0 - self.l1_ratio) * scale, par.near[k] * scale, lam * self.l1_ratio * self.root[m]

    def pulled_to(self, m: int, par: Canonical) -> np.ndarray:
        """The stored weights that the proximity term pulls to: the fixed ones, or those in ``theta``."""
        return self.reference[m] + par.reference[self.target[m]] / self.root[m]

    def bounds(self, m: int, par: Canonical) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper bounds of the stored weights of a task's features."""
        k = self.target[m]
        return par.lower[k] / self.root[m], par.upper[k] / self.root[m]

    def feasible(self, theta: np.ndarray):
        """Lower and upper bounds of the stored weights, (tasks, columns) each; there are no equality rows."""
        par = self.parameters(theta)
        parts = [self.pieces(m, par) for m in range(self.n_tasks)]
        return np.stack([p.lower for p in parts]), np.stack([p.upper for p in parts]), None

    def value(self, W: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """``E_m``, one number per task; bounds are not looked at."""
        par, d = self.parameters(theta), self.design.n_features
        out = self.loss_value(W, par)
        for m in range(self.n_tasks):
            ridge, near, l1 = self._penalties(m, par)
            w = W[m, :d]
            gap = w - self.pulled_to(m, par)
            out[m] += 0.5 * ridge @ w**2 + 0.5 * near @ gap**2 + l1 @ np.abs(w)
        return out

    def grad(self, W: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """One subgradient of ``E_m`` per task: the derivative where there is one."""
        par, d = self.parameters(theta), self.design.n_features
        out = self.loss_grad(W, par)
        for m in range(self.n_tasks):
            ridge, near, l1 = self._penalties(m, par)
            w = W[m, :d]
            out[m, :d] += ridge * w + near * (w - self.pulled_to(m, par)) + l1 * np.sign(w)
        return out

    # Solutions.

    def point_at(
        self, theta: np.ndarray, par: Canonical, ends: list, converged: np.ndarray
    ) -> PolyhedralPoint:
        """A point from the solver's solutions, each with ``w, Z, alpha, active, rounds, gap``."""
        W, alpha = np.stack([end.w for end in ends]), np.stack([end.alpha for end in ends])
        Z, gamma = np.stack([end.Z for end in ends]), np.zeros_like(W)
        active, pins = [end.active for end in ends], []
        for m, end in enumerate(ends):
            p = self.pieces(m, par)
            gamma[m] = self._multipliers(p, W[m], alpha[m])
            active[m], pin, W[m], Z[m] = self._settle(p, W[m], Z[m], alpha[m], gamma[m], end.active)
            pins.append(pin)
        gap = np.array([end.gap for end in ends])
        steps = sum(end.rounds for end in ends)
        return PolyhedralPoint(theta, par, W, Z, alpha, gamma, gap, active, pins, converged, steps)

    @staticmethod
    def _multipliers(p: Pieces, w: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """``gamma``: what the other terms of the optimality condition leave at a bound, zero between the bounds."""
        pull = p.X.back(alpha) - p.q * (w - p.centre)
        at_zero = np.clip(pull, -p.l1, p.l1)
        pull = pull - np.where(w > 0, p.l1, np.where(w < 0, -p.l1, at_zero))
        low, high = np.minimum(pull, 0.0), np.maximum(pull, 0.0)
        return np.where(w >= p.upper, high, 0.0) + np.where(w <= p.lower, low, 0.0)

    def _settle(
        self, p: Pieces, w, Z, alpha, gamma, active: ActiveSet
    ) -> tuple[ActiveSet, Any, np.ndarray, np.ndarray]:
        """The active set with rows and columns on the side that derivatives use, and an intercept put in its middle.

        A box of width zero counts as held at the side its multiplier points to: there the weight goes when the box
        opens. An intercept that no row holds is free within an interval; under an L1 penalty alone it goes to the
        middle where all weights are held, since free ones would not be unique either.
        """
        held = active.held.copy()
        shut = (p.lower == p.upper) & (held != 0)
        held[shut] = np.where(gamma[shut] >= 0, AT_UPPER, AT_LOWER)
        rows = np.flatnonzero(active.on)
        low, high = p.range_of(rows, active.level[rows])
        inside = (alpha[rows] - low > EDGE * p.c[rows]) & (high - alpha[rows] > EDGE * p.c[rows])
        out = ActiveSet(active.on, active.level, held)
        loose = self.l1_ratio == 1.0 and bool(np.any(held[:-1] == 0))
        if not self.design.intercept or inside.any() or loose:
            return out, None, w, Z
        # Every multiplier is at an end of its range: the interval of the intercept, and the rows at its ends.
        level = np.rint(np.divide(p.left - alpha, p.c, out=np.zeros_like(alpha), where=p.c > 0)).astype(int)
        ends = np.where(p.c > 0, p.left - p.c * level, 0.0)
        if p.q[-1] == 0 and abs(ends.sum()) > 1e-12 * np.abs(ends).sum():
            return out, None, w, Z  # a multiplier near its end that balances the others holds the intercept
        if np.all(p.q[:-1] > 0):  # then the weights are known to rounding from the multipliers without theirs
            exact = np.append(p.smallest(p.X.back(ends))[:-1], w[-1])
            Z, w = Z + p.X.times(exact - w), exact
        padded = np.column_stack([np.full(len(Z), -np.inf), p.kinks, np.full(len(Z), np.inf)])
        index = np.arange(len(Z))
        takes_part = p.c > 0
        below = np.where(takes_part, padded[index, level] - Z, -np.inf)
        above = np.where(takes_part, padded[index, level + 1] - Z, np.inf)
        first, last = int(np.argmax(below)), int(np.argmin(above))
        if not (np.isfinite(below[first]) and np.isfinite(above[last]) and above[last] >= below[first]):
            return out, None, w, Z
        shift = 0.5 * float(below[first] + above[last])
        on, w = np.zeros_like(active.on), w.copy()
        w[-1] += shift
        return ActiveSet(on, level, held), ((first, level[first] - 1), (last, level[last])), w, Z + shift

    def point(self, W, theta, steps: int = 0, Z=None):
        """Not available: derivatives need a solution with its active set, which the solver gives."""
        raise TypeError(
            "a polyhedral problem has points at solutions only; use ExactQP().solve(problem, theta, W)"
        )

    def revive(self, point: PolyhedralPoint) -> PolyhedralPoint:  # type: ignore[override]
        """The point itself: it carries all that derivatives need."""
        return point

    def row_residual(self, point: PolyhedralPoint) -> np.ndarray:  # type: ignore[override]
        """Duality gaps relative to the size of the objective, computed anew from the rows."""
        out = np.zeros(self.n_tasks)
        for m in range(self.n_tasks):
            p, w = self.pieces(m, point.par), point.W[m].copy()
            if level := p.level():
                p = p.moved(level)
                w[-1] -= level
            unit = p.unit()
            p, w = p.scaled(unit), w / unit
            Z = p.X.times(w)
            out[m] = p.gap(w, point.alpha[m] / unit, Z) / p.scale(w, Z)
        return out

    def in_user_units(self, point: PolyhedralPoint, m: int) -> UserUnits:
        """Task ``m`` with its primal and dual solution in the user's columns; see :class:`UserUnits`."""
        d, scale, par = self.design.n_features, self.design.scale, point.par
        coef, bias = self.design.to_user(point.W[m : m + 1])
        train = np.flatnonzero(self._strength(m, par) > 0)
        lower, upper = self.bounds(m, par)
        gamma = point.gamma[m, :d] * scale
        epsilon = np.broadcast_to(par.epsilon[m][self.folds.cell], self.n_rows)
        return UserUnits(
            rows=self.folds.order[train],
            y=self.Y[self.target[m]][train],
            c=self._strength(m, par)[train],
            epsilon=epsilon[train],
            alpha=point.alpha[m][train],
            z=point.Z[m][train],
            w=coef[0],
            lower=lower / scale,
            upper=upper / scale,
            gamma_lower=np.maximum(-gamma, 0.0),
            gamma_upper=np.maximum(gamma, 0.0),
            b=float(bias[0]),
            lam=par.lam[self.target[m]] * (self.root[m] * scale) ** 2,
            gap=float(point.gap[m]),
        )

    def written(self, theta: np.ndarray) -> Written:
        """Every task in arrays, in columns whose weights are the user's; refused with an L1 part of the penalty."""
        if self.l1_ratio:
            raise ValueError("an L1 part of the penalty cannot be written out")
        par, d = self.parameters(theta), self.design.n_features
        X = np.asarray(self.design.dense()[:, :d], float)
        tasks = []
        for m in range(self.n_tasks):
            weight, own, y = self._strength(m, par), X / self.root[m], self.Y[self.target[m]]
            train, rows = weight > 0, self.folds.validation[self.split[m]]
            cost = np.asarray(self.validation_weight[self.split[m]], float)
            tasks.append(Task(own[train], y[train], own[rows], y[rows], weight[train], cost))
        return Written(tasks, bool(self.design.intercept), reference=self.reference[0] * self.root[0])

    # Derivatives.

    def systems(self, point: PolyhedralPoint) -> list[_TaskSystem]:
        """The factored optimality system of every task; built once."""
        if not point.systems:
            point.systems = [_TaskSystem(self, point, m) for m in range(self.n_tasks)]
        return point.systems

    def adjoint(self, point: PolyhedralPoint, slopes) -> np.ndarray:  # type: ignore[override]
        """Adjoints (tasks, columns + n) from the criterion's slopes: a list of (task, rows, dF/dz on these rows).

        On free columns the adjoint weight, on held ones ``dF`` for a unit move of their bound; on rows of a kink ``dF``
        for a unit move of the kink.
        """
        out = np.zeros((self.n_tasks, self.n_columns + self.n_rows))
        systems = self.systems(point)
        for m, rows, g in slopes:
            out[m] = systems[m].adjoint(self.design.pull(g[None], rows)[0])
        return out

    def contract(self, point: PolyhedralPoint, U: np.ndarray) -> np.ndarray:  # type: ignore[override]
        """``dF/dtheta`` from the adjoints."""
        out = np.zeros(self.parameters.space.size)
        for m, system in enumerate(self.systems(point)):
            out += system.contract(U[m])
        return out

    def sensitivities(self, point: PolyhedralPoint) -> np.ndarray:  # type: ignore[override]
        """``dw_m/dtheta``: shape (tasks, columns, p)."""
        return np.stack([system.sensitivity() for system in self.systems(point)])

    def cross(self, point) -> np.ndarray:
        """Not available: the weights are held by kinks, not by a Hessian."""
        raise TypeError("a polyhedral problem has no mixed derivative; use adjoint and contract")

    def bend(self, point: PolyhedralPoint, U: np.ndarray, J: np.ndarray, window) -> np.ndarray:  # type: ignore[override]
        """Second-order part of the hyper-Hessian while nothing changes kind: shape (p, p)."""
        out = np.zeros((J.shape[2], J.shape[2]))
        for m, system in enumerate(self.systems(point)):
            out += system.bend(U[m], J[m])
        return out

    def validation_gram(self, m: int) -> np.ndarray | None:
        """Not kept."""
        return None

    def flat_intercepts(self, point: PolyhedralPoint) -> int:
        """In how many tasks the intercept is not unique."""
        return sum(pin is not None for pin in point.pins)

    def n_kinks(self, point: PolyhedralPoint, tol: float = EDGE) -> int:  # type: ignore[override]
        """Pairs that are both active: rows on a kink or weights at a bound whose multiplier is at its end.

        An intercept that no row holds counts as one.
        """
        count = 0
        for m in range(self.n_tasks):
            p, active = self.pieces(m, point.par), point.active[m]
            rows = np.flatnonzero(active.on)
            low, high = p.range_of(rows, active.level[rows])
            count += int(
                np.sum(np.minimum(point.alpha[m][rows] - low, high - point.alpha[m][rows]) <= tol * p.c[rows])
            )
            scale = 1.0 + np.abs(p.kinks)
            touching = np.any(np.abs(point.Z[m][:, None] - p.kinks) <= tol * scale, axis=1)
            count += int(np.sum(touching & ~active.on & (p.c > 0)))
            size = np.abs(p.X.back(point.alpha[m])).max(initial=0.0) + 1e-300
            at_bound = (active.held == AT_LOWER) | (active.held == AT_UPPER)
            count += int(np.sum(at_bound & (np.abs(point.gamma[m]) <= tol * size)))
            w = point.W[m]
            room = np.minimum(w - p.lower, p.upper - w)
            count += int(np.sum((active.held == 0) & (room <= tol * (np.abs(w) + tol))))
            count += point.pins[m] is not None
        return count


class _TaskSystem:
    """How the solution of one task answers to ``theta``."""

    def __init__(self, problem: PolyhedralProblem, point: PolyhedralPoint, m: int) -> None:
        self.problem, self.m, self.par = problem, m, point.par
        p, active, pins = problem.pieces(m, point.par), point.active[m], point.pins[m]
        self.p, self.w, self.alpha, self.held = p, point.W[m], point.alpha[m], active.held
        self.free = np.flatnonzero(active.held == 0)
        self.fixed = np.flatnonzero(active.held != 0)
        if pins is None:
            self.rows = np.flatnonzero(active.on)
            kink, share = active.level[self.rows], np.eye(len(self.rows))
            double = np.zeros(len(self.rows), dtype=bool)
            if p.kinks.shape[1] > 1:
                double = np.abs(p.kinks[self.rows, 1] - p.kinks[self.rows, 0]) <= 1e-14 * (
                    1.0 + np.abs(p.kinks[self.rows, 0])
                )
            kink = np.where(double, np.where(self.alpha[self.rows] > 0, 0, 1), kink)
        else:
            self.rows = np.array([row for row, _ in pins])
            kink, share = np.array([k for _, k in pins]), np.full((1, 2), 0.5)
        self.share = share
        # How the kinks move with the tube: the first one down, the second one up.
        self.slope = np.where(kink == 0, -1.0, 1.0) if p.kinks.shape[1] > 1 else np.zeros(len(kink))
        self.X_K = share @ p.X.dense(self.rows)
        self.system = KinkSystem(self.X_K[:, self.free], p.q[self.free])
        bound = np.where(active.on, 0.0, self.alpha)
        self.bound = bound

    def adjoint(self, g: np.ndarray) -> np.ndarray:
        """From ``dF/dw`` to the adjoint on columns and rows."""
        D = len(self.w)
        out = np.zeros(D + len(self.alpha))
        push, pull, _ = self.system.solve(g[self.free][:, None], np.zeros((len(self.X_K), 1)))
        out[self.free] = push[:, 0]
        r = -pull[:, 0]
        out[self.fixed] = g[self.fixed] - self.X_K[:, self.fixed].T @ r
        np.add.at(out, D + self.rows, self.share.T @ r)
        return out

    def contract(self, u: np.ndarray) -> np.ndarray:
        """``dF/dtheta`` of this task."""
        problem, par, p = self.problem, self.par, self.p
        D, d, k = len(self.w), problem.design.n_features, problem.target[self.m]
        out = np.zeros(problem.parameters.space.size)
        step = np.zeros(D)
        step[self.free] = u[self.free]
        tunes = problem.parameters.tunes
        if tunes["log_c"]:
            inner = self._by_cell(self.bound * p.X.times(step))
            out += inner @ par.d_log_c[self.m]
        if tunes["epsilon"]:
            rows = np.zeros(len(self.alpha))
            np.add.at(rows, self.rows, self.slope)
            out += self._by_cell(rows * u[D:]) @ par.d_epsilon[self.m]
        if tunes["log_lam"]:
            out -= (step[:d] * self._lam_pull()) @ par.d_log_lam[k]
        if tunes["log_near"]:
            out -= (step[:d] * self._near_pull()) @ par.d_log_near[k]
        if tunes["reference"]:
            out += (step[:d] * self._reference_push()) @ par.d_reference[k]
        root = problem.root[self.m]
        for place, tuned, moves in ((AT_UPPER, "upper", par.d_upper), (AT_LOWER, "lower", par.d_lower)):
            if tunes[tuned]:
                out += np.where(self.held[:d] == place, u[:d] / root, 0.0) @ moves[k]
        return out

    def _by_cell(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.problem.folds.cell, values, self.problem.n_cells)

    def _lam_pull(self) -> np.ndarray:
        """Derivative of the penalty's gradient in each feature's ``log lam``."""
        ridge, _, l1 = self.problem._penalties(self.m, self.par)
        w = self.w[: len(ridge)]
        return ridge * w + l1 * np.sign(w)

    def _near_pull(self) -> np.ndarray:
        _, near, _ = self.problem._penalties(self.m, self.par)
        return near * (self.w[: len(near)] - self.problem.pulled_to(self.m, self.par))

    def _reference_push(self) -> np.ndarray:
        """Minus the derivative of the penalty's gradient in each feature's reference."""
        _, near, _ = self.problem._penalties(self.m, self.par)
        return near / self.problem.root[self.m]

    def sensitivity(self) -> np.ndarray:
        """``dw/dtheta``: shape (columns, p)."""
        problem, par, p = self.problem, self.par, self.p
        D, d, k = len(self.w), problem.design.n_features, problem.target[self.m]
        size = problem.parameters.space.size
        tunes, cell = problem.parameters.tunes, problem.folds.cell
        out, a, shift = np.zeros((D, size)), np.zeros((D, size)), np.zeros((len(self.rows), size))
        if tunes["log_c"]:
            for q in range(problem.n_cells):
                a += np.outer(p.X.back(self.bound * (cell == q)), par.d_log_c[self.m][q])
        if tunes["epsilon"]:
            shift += self.slope[:, None] * par.d_epsilon[self.m][cell[self.rows]]
        if tunes["log_lam"]:
            a[:d] -= self._lam_pull()[:, None] * par.d_log_lam[k]
        if tunes["log_near"]:
            a[:d] -= self._near_pull()[:, None] * par.d_log_near[k]
        if tunes["reference"]:
            a[:d] += self._reference_push()[:, None] * par.d_reference[k]
        root = problem.root[self.m]
        for place, tuned, moves in ((AT_UPPER, "upper", par.d_upper), (AT_LOWER, "lower", par.d_lower)):
            if tunes[tuned]:
                out[:d] += np.where(self.held[:d] == place, 1.0 / root, 0.0)[:, None] * moves[k]
        b = self.share @ shift - self.X_K @ out
        out[self.free] = self.system.solve(a[self.free], b)[0]
        return out

    def bend(self, u: np.ndarray, J: np.ndarray) -> np.ndarray:
        """``u`` times the second derivative of the optimality conditions along ``w(theta)``."""
        problem, par, p = self.problem, self.par, self.p
        d, k = problem.design.n_features, problem.target[self.m]
        size = problem.parameters.space.size
        out, tunes = np.zeros((size, size)), problem.parameters.tunes
        step = np.zeros(len(self.w))
        step[self.free] = u[self.free]
        if tunes["log_c"]:
            inner, L = self._by_cell(self.bound * p.X.times(step)), par.d_log_c[self.m]
            out += (L * inner[:, None]).T @ L
        ridge, near, _ = problem._penalties(self.m, par)
        for tuned, pull, curvature, L in (
            ("log_lam", self._lam_pull(), ridge, par.d_log_lam[k]),
            ("log_near", self._near_pull(), near, par.d_log_near[k]),
        ):
            if tunes[tuned]:
                out -= (L * (step[:d] * pull)[:, None]).T @ L
                one_sided = L.T @ ((step[:d] * curvature)[:, None] * J[:d])
                out -= one_sided + one_sided.T
        if tunes["log_near"] and tunes["reference"]:
            mixed = par.d_log_near[k].T @ ((step[:d] * self._reference_push())[:, None] * par.d_reference[k])
            out += mixed + mixed.T
        return out
