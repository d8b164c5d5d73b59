r"""Semiparametric support vector regression: a kernel part and columns ``Q`` without a penalty.

Task ``m`` minimises over ``f`` and ``q``

.. math::  \tfrac12 \|f\|_K^2 + \sum_j c_j v_j \max(|f(x_j) + Q_j q - y_j| - \varepsilon, 0),

whose dual has the equality ``Q' alpha = 0`` in place of the intercept's ``sum alpha = 0`` (lee2009 (3)); ``q`` are its
multipliers. The columns are those of the basis, made independent on the task's training rows, so ``q`` is determined
wherever they are independent on the free rows. Elsewhere ``q`` may move within a polytope; its centre is taken, the
point farthest from the kinks of all other rows (for a constant, the middle of LIBSVM's interval); the rows that set it
are held: they *pin* ``q``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from foldwise.linalg import Bordered, null_space
from foldwise.problems.dual import DualProblem
from foldwise.problems.gram import submatrix
from foldwise.problems.kernel import KernelPoint
from foldwise.problems.parameters import Canonical
from foldwise.problems.written import Written

__all__ = ["BorderedSystem", "Centre", "SemiparametricProblem", "centre", "spans"]


@dataclass(eq=False)
class BorderedSystem:
    """``K v = r + Q b`` and ``Q'v = total`` for ``v`` in the range of ``B``: the first one in the sense of ``B'``.

    ``B`` is the identity when all rows are free. Pinned rows only move together, as their ``null`` says.
    """

    rows: np.ndarray
    B: np.ndarray | None
    system: Bordered
    slope: np.ndarray | None = None

    @classmethod
    def build(
        cls, K: np.ndarray, free: np.ndarray, Q: np.ndarray, pins: Centre | None = None
    ) -> BorderedSystem:
        """Factor the system of these rows; dependent ones get a vanishing ridge."""
        if pins is None:
            return cls(free, None, Bordered.of(submatrix(K, free), Q[free]))
        rows, B = np.concatenate([free, pins.rows]), block_diag(np.eye(len(free)), pins.null)
        return cls(rows, B, Bordered.of(B.T @ K[np.ix_(rows, rows)] @ B, B.T @ Q[rows]), pins.slope)

    def solve(self, r: np.ndarray, total: Any) -> tuple[np.ndarray, Any]:
        """``v`` and ``b``; ``r`` is (rows,) or (rows, p), ``total`` (K,) or (K, p)."""
        if not len(self.system.G):
            return np.zeros_like(r), np.zeros_like(total)
        w, b = self.system.solve(r if self.B is None else self.B.T @ r, total)
        return (w if self.B is None else self.B @ w), b


def spans(Q: np.ndarray) -> bool:
    """Whether these rows determine every coefficient."""
    return not null_space(Q).size


@dataclass(frozen=True, eq=False)
class Centre:
    """Coefficients ``q`` in the middle of where they may be, and the rows that put them there.

    ``reach`` is the distance of the nearest kinks; below 0, the largest violation. ``null`` (pinned rows, directions)
    are the combinations of their decisions that stay where they are, and ``slope`` is how their kinks move with the
    width of the tube. ``limits`` are the rows that limit ``reach``, the first of them.
    """

    q: np.ndarray
    reach: float
    limits: np.ndarray
    rows: np.ndarray
    null: np.ndarray
    slope: np.ndarray


def centre(
    Q: np.ndarray, f: np.ndarray, low: np.ndarray, up: np.ndarray, free: np.ndarray, at_bound: np.ndarray
) -> Centre:
    """``max t`` such that ``low + t <= f + Q q <= up - t`` off the free rows, on which ``f + Q q = low`` is kept.

    Where that leaves a choice, the rows that limit ``t`` keep their decisions and the same is asked of the others, and
    so on: the answer is unique. ``f`` are decisions without the columns; ``low`` and ``up`` come from
    :func:`~foldwise.problems.dual.decision_limits`.
    """
    r = Q.shape[1]
    q, N = np.zeros(r), np.eye(r)
    if free.any():
        q = np.linalg.lstsq(Q[free], (low - f)[free], rcond=1e-9)[0]
        N = null_space(Q[free])
    below, above = np.flatnonzero(np.isfinite(low) & ~free), np.flatnonzero(np.isfinite(up) & ~free)
    rows, side = np.concatenate([below, above]), np.repeat([1.0, -1.0], [len(below), len(above)])
    kink = np.concatenate([low[below], up[above]]) - f[rows]
    size = float(np.abs(Q).max(initial=0.0))
    reach, limits = 0.0, np.zeros(0, dtype=int)
    pins: list[np.ndarray] = []
    slopes: list[np.ndarray] = []
    nulls: list[np.ndarray] = []
    while N.shape[1]:
        A = Q[rows] @ N
        moves = np.abs(A).max(axis=1) > 1e-10 * size
        if not moves.any():
            break
        rows, side, kink, A = rows[moves], side[moves], kink[moves], A[moves]
        move, t, held = _widest(A, side, kink - Q[rows] @ q)
        q = q + N @ move
        if not pins:
            reach, limits = t, rows[held]
        if not len(held):
            break
        own, pinned = side[held], rows[held]
        slope, null = np.where(at_bound[pinned], own, -own), null_space(own[None])
        unique, first, count = np.unique(pinned, return_index=True, return_counts=True)
        if len(unique) < len(pinned):
            # Both kinks of one row: t is the tube's width, and every decision is held on its own.
            pinned, slope = unique, np.where(count > 1, 0.0, (slope + own)[first])
            null = np.eye(len(unique))
        pins.append(pinned)
        slopes.append(slope)
        nulls.append(null)
        N = N @ null_space(A[held])
    return Centre(
        q,
        reach,
        limits,
        np.concatenate([np.zeros(0, dtype=int), *pins]),
        block_diag(*nulls) if nulls else np.zeros((0, 0)),
        np.concatenate([np.zeros(0), *slopes]),
    )


def _widest(A: np.ndarray, side: np.ndarray, gap: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """``p`` and ``t`` with ``max t`` such that ``side (A p - gap) >= t``, and the rows that limit ``t``."""
    k = A.shape[1]
    lower, upper = np.flatnonzero(side > 0), np.flatnonzero(side < 0)
    if k == 1 and len(lower) and len(upper) and np.ptp(A) <= 1e-12 * np.abs(A).max():
        held = np.array([lower[np.argmax(gap[lower])], upper[np.argmin(gap[upper])]])
        low, up = gap[held]
        return np.array([0.5 * (low + up) / A[0, 0]]), 0.5 * float(up - low), held
    from scipy.optimize import linprog

    scale = max(float(np.abs(gap).max()), np.finfo(float).tiny)
    found = linprog(
        np.eye(k + 1)[k] * -1.0,
        A_ub=np.column_stack([-side[:, None] * A, np.ones(len(A))]),
        b_ub=-side * gap / scale,
        bounds=[(None, None)] * (k + 1),
        method="highs-ds",
    )
    if found.status != 0:
        raise FloatingPointError(f"the coefficients of the basis are not bounded: {found.message}")
    # A row with a price limits t in every solution.
    held = np.flatnonzero(found.ineqlin.marginals < -1e-9)
    x, border = found.x * scale, np.column_stack([A, -side])[held]
    x = x + np.linalg.lstsq(border, gap[held] - border @ x, rcond=None)[0]
    return x[:-1], float(x[-1]), held


class SemiparametricProblem(DualProblem):
    """Semiparametric machines of all folds on shared rows.

    A point keeps, beside decisions (n) and coefficients of the columns (r), ``alpha`` in units of its bounds (n): where
    the next solution starts.

    Parameters
    ----------
    gram, Y, folds, loss, parameters, weight, n_total : as in :class:`~foldwise.problems.kernel.KernelProblem`
    columns : list of ndarray, shape (n, r_t)
        Independent columns of every split, on all rows.
    """

    def __init__(self, gram, Y, folds, loss, parameters, columns, weight=None, n_total=None) -> None:
        super().__init__(gram, Y, folds, loss, parameters, True, weight, n_total)
        self.columns = columns
        self.n_free = max((Q.shape[1] for Q in columns), default=0)

    def _check_loss(self, loss) -> None:
        super()._check_loss(loss)
        if loss.task != "regression":
            raise ValueError(f"semiparametric models are for regression; got {type(loss).__name__}")

    def written(self, theta: np.ndarray) -> Written:
        """Refused: columns without a penalty have no place there."""
        raise ValueError("a semiparametric machine cannot be written out")

    def start(self) -> np.ndarray:
        """Nothing yet: decisions, coefficients of the columns and ``alpha`` are zero."""
        return np.zeros((self.n_tasks, 2 * self.n_rows + self.n_free))

    def point(self, theta: np.ndarray, par: Canonical, alpha, q, converged, steps: int) -> KernelPoint:
        """The point with these coefficients; ``q`` has ``n_free`` columns, unused ones zero."""
        Z = self.gram(theta, par).product(alpha)
        for m, t in enumerate(self.split):
            Z[m] += self.columns[t] @ q[m, : self.columns[t].shape[1]]
        c = self.strength(par)
        W = np.column_stack([Z, q, alpha / np.where(c > 0, c, 1.0)])
        return KernelPoint(theta, par, W, Z, alpha, converged, steps)

    def coefficients(self, point: KernelPoint, m: int) -> np.ndarray:
        """``q`` of one task."""
        return point.W[m, self.n_rows : self.n_rows + self.columns[self.split[m]].shape[1]]

    def systems(self, point: KernelPoint) -> list:
        """The factored system of every task's free rows, with those that pin the coefficients; built once."""
        if not point.systems:
            K = self.gram(point.theta, point.par).K
            free, at_bound = self.kinds(point.alpha, point.par)
            low, up = self.limits(point.alpha, point.par)
            for m, mask in enumerate(free):
                Q, pins = self.columns[self.split[m]], None
                if not spans(Q[mask]):
                    trains = np.flatnonzero(self.trains[m] & (self.weight > 0))
                    f = point.Z[m] - Q @ self.coefficients(point, m)
                    parts = (Q, f, low[m], up[m], mask, at_bound[m])
                    pins = _numbered(centre(*(part[trains] for part in parts)), trains)
                point.systems.append(BorderedSystem.build(K, np.flatnonzero(mask), Q, pins))
        return point.systems

    def _pins(self, system: Any) -> tuple[np.ndarray, np.ndarray]:
        slope = np.zeros(0) if system.slope is None else system.slope
        return system.rows[len(system.rows) - len(slope) :], slope

    def adjoint(self, point: KernelPoint, slopes) -> np.ndarray:
        """Adjoints (tasks, 2 n + r) from the criterion's slopes, as for kernel machines.

        The last columns are the multipliers of ``Q'a = 0``.
        """
        n = self.n_rows
        out = np.zeros((self.n_tasks, 2 * n + self.n_free))
        for m, rows, g in slopes:
            self.collect(out[m, :n], rows, g)
        P = self.gram(point.theta, point.par).product(out[:, :n])
        for m, system in enumerate(self.systems(point)):
            Q = self.columns[self.split[m]]
            v, kappa = system.solve(P[m][system.rows], Q.T @ out[m, :n])
            out[m, system.rows] -= v
            out[m, n + system.rows] = -v
            out[m, 2 * n : 2 * n + len(kappa)] = kappa
        return out

    def contract(self, point: KernelPoint, A: np.ndarray) -> np.ndarray:
        """``dF/dtheta`` from the adjoints."""
        par, n = point.par, self.n_rows
        a, held = A[:, :n], A[:, n : 2 * n]
        out = np.zeros(self.parameters.space.size)
        gram = self.gram(point.theta, par)
        if self.parameters.tunes["log_kernel"]:
            out += gram.contract(a, point.alpha) @ par.d_log_kernel[0]
        direct, shift = self.direct(point)
        if direct is not None:
            push = gram.product(a)
            for m, t in enumerate(self.split):
                Q = self.columns[t]
                push[m] += Q @ A[m, 2 * n : 2 * n + Q.shape[1]]
            out += np.einsum("mj,mjp->p", push, direct)
        if shift is not None:
            out -= np.einsum("mj,mjp->p", held, shift)
        return out

    def sensitivities(self, point: KernelPoint) -> np.ndarray:
        """``d(z, q, alpha / c)/dtheta``: shape (tasks, 2 n + r, p)."""
        par, gram = point.par, self.gram(point.theta, point.par)
        n, p = self.n_rows, self.parameters.space.size
        direct, shift = self.direct(point)
        free, _ = self.kinds(point.alpha, par)
        c = self.strength(par)
        out = np.zeros((self.n_tasks, 2 * n + self.n_free, p))
        changes = gram.apply(point.alpha) if self.parameters.tunes["log_kernel"] else None
        for m, system in enumerate(self.systems(point)):
            Q = self.columns[self.split[m]]
            r = np.zeros((n, p)) if direct is None else gram.product(direct[m].T).T
            if changes is not None:
                r += changes[:, :, m].T @ par.d_log_kernel[0]
            held = 0.0 if shift is None else shift[m][system.rows]
            total = np.zeros((Q.shape[1], p)) if direct is None else Q.T @ direct[m]
            v, b = system.solve(r[system.rows] - held, total)
            out[m, :n] = r - gram.spread(system.rows, v) + Q @ b
            out[m, n : n + len(b)] = b
            # In units of the bound: rows at it stay, free ones follow -v less the growth of the bound.
            rows = np.flatnonzero(free[m])
            moves = -v[: len(rows)]
            if direct is not None:
                moves = (
                    moves
                    - point.alpha[m, rows, None] * self.by_row(par.d_log_c)[m if len(par.d_log_c) > 1 else 0]
                )
            out[m, n + self.n_free + rows] = moves / c[m, rows, None]
        return out

    def moves(self, J: np.ndarray, m: int, rows: Any) -> np.ndarray:
        """``dz/dtheta`` on rows of a task: shape (p, rows)."""
        return J[m, : self.n_rows][rows].T

    def residual(self, point: KernelPoint) -> np.ndarray:
        """Violation of the dual's optimality conditions in units of the decision, and of ``Q' alpha = 0``."""
        Z = self.gram(point.theta, point.par).product(point.alpha)
        equality = np.zeros(self.n_tasks)
        for m, t in enumerate(self.split):
            Q = self.columns[t]
            Z[m] += Q @ self.coefficients(point, m)
            size = max(float(np.abs(point.alpha[m]) @ np.abs(Q).max(axis=1, initial=0.0)), 1e-300)
            equality[m] = float(np.abs(Q.T @ point.alpha[m]).max(initial=0.0)) / size
        low, up = self.limits(point.alpha, point.par)
        gap = np.maximum(np.maximum(low - Z, Z - up), 0.0) * (self.trains & (self.weight > 0))
        return gap.max(axis=1) / max(float(np.std(self.Y)), 1e-300) + equality

    row_residual = residual


def _numbered(found: Centre, rows: np.ndarray) -> Centre:
    """The same with rows counted among all."""
    return replace(found, limits=rows[found.limits], rows=rows[found.rows])
