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
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import block_diag

from foldwise.linalg import Bordered, null_space
from foldwise.losses import Loss
from foldwise.problems.base import Array, State, TaskData
from foldwise.problems.dual import DualLinearization, DualProblem
from foldwise.problems.gram import Gram, System, submatrix
from foldwise.problems.kernel import KernelLinearization, KernelSolution
from foldwise.problems.parameters import Canonical
from foldwise.problems.written import Written

__all__ = ["BorderedSystem", "MiddleIntercepts", "SemiparametricProblem", "Shares", "centre", "spans"]


@dataclass(eq=False)
class BorderedSystem:
    """``K v = r + Q b`` and ``Q'v = total`` for ``v`` in the range of ``B``: the first one in the sense of ``B'``.

    ``B`` is the identity when all rows are free. Pinned rows only move together, as their ``null`` says.
    """

    rows: Array
    B: Array | None
    system: Bordered
    slope: Array | None = None

    @classmethod
    def build(cls, K: Array, free: Array, Q: Array, pins: MiddleIntercepts | None = None) -> BorderedSystem:
        """Factor the system of these rows; dependent ones get a vanishing ridge."""
        if pins is None:
            return cls(free, None, Bordered.of(submatrix(K, free), Q[free]))
        rows, B = np.concatenate([free, pins.rows]), block_diag(np.eye(len(free)), pins.null)
        return cls(rows, B, Bordered.of(B.T @ K[np.ix_(rows, rows)] @ B, B.T @ Q[rows]), pins.slope)

    def solve(self, r: Array, total: Any) -> tuple[Array, Any]:
        """``v`` and ``b``; ``r`` is (rows,) or (rows, p), ``total`` (K,) or (K, p)."""
        if not len(self.system.G):
            return np.zeros_like(r), np.zeros_like(total)
        w, b = self.system.solve(r if self.B is None else self.B.T @ r, total)
        return (w if self.B is None else self.B @ w), b


def spans(Q: Array) -> bool:
    """Whether these rows determine every coefficient."""
    return not null_space(Q).size


@dataclass(frozen=True, eq=False)
class MiddleIntercepts:
    """Coefficients ``q`` in the middle of where they may be, and the rows that put them there.

    ``reach`` is the distance of the nearest kinks; below 0, the largest violation. ``null`` (pinned rows, directions)
    are the combinations of their decisions that stay where they are, and ``slope`` is how their kinks move with the
    width of the tube. ``limits`` are the rows that limit ``reach``, the first of them.
    """

    q: Array
    reach: float
    limits: Array
    rows: Array
    null: Array
    slope: Array


def centre(Q: Array, f: Array, low: Array, up: Array, free: Array, at_bound: Array) -> MiddleIntercepts:
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
    pins: list[Array] = []
    slopes: list[Array] = []
    nulls: list[Array] = []
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
    return MiddleIntercepts(
        q,
        reach,
        limits,
        np.concatenate([np.zeros(0, dtype=int), *pins]),
        block_diag(*nulls) if nulls else np.zeros((0, 0)),
        np.concatenate([np.zeros(0), *slopes]),
    )


def _widest(A: Array, side: Array, gap: Array) -> tuple[Array, float, Array]:
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


@dataclass(frozen=True, eq=False)
class Shares(State):
    """``alpha`` in units of its bounds, (tasks, n)."""

    share: Array

    def moved(self, change: Array) -> Shares:
        return Shares(self.share + change[:, self.share.shape[1] :])


class SemiparametricProblem(DualProblem):
    """Semiparametric machines of all folds on shared rows.

    Parameters
    ----------
    data, gram : as in :class:`~foldwise.problems.kernel.KernelProblem`
    columns : list of ndarray, shape (n, r_t)
        Independent columns of every split, on all rows.
    """

    state_type: ClassVar[Any] = Shares
    form: ClassVar[str] = "columns"

    def __init__(self, data: TaskData, gram: Any, columns: list[Array]) -> None:
        super().__init__(data, gram)
        self.columns = columns
        self.n_free = max((Q.shape[1] for Q in columns), default=0)

    def check_loss(self, loss: Loss) -> None:
        super().check_loss(loss)
        if loss.task != "regression":
            raise ValueError(f"semiparametric models are for regression; got {type(loss).__name__}")

    def written(self, theta: Array) -> Written:
        """Refused: columns without a penalty have no place there."""
        raise ValueError("a semiparametric machine cannot be written out")

    def start(self, leader: tuple[Any, Any] | None = None) -> Shares:
        return Shares(np.zeros((self.n_tasks, self.n_rows)))

    def decisions(self, alpha: Array, q: Array, gram: Gram) -> Array:
        """``K alpha + Q q``: shape (tasks, n); ``q`` has ``n_free`` columns, unused ones zero."""
        Z = gram.product(alpha)
        for m, t in enumerate(self.split):
            Q = self.columns[t]
            Z[m] += Q @ q[m, : Q.shape[1]]
        return Z

    def solution(
        self, theta: Array, par: Canonical, alpha: Array, q: Array, gram: Gram, converged: Array, steps: int
    ) -> KernelSolution:
        """The solution with these coefficients."""
        c = self.strength(par)
        state = Shares(alpha / np.where(c > 0, c, 1.0))
        Z = self.decisions(alpha, q, gram)
        return KernelSolution(theta, par, state, Z, converged, steps, alpha, q)

    def value(self, solution: KernelSolution, workspace: Gram) -> Array:
        par, alpha = solution.par, solution.alpha
        gram = workspace.at(par.log_kernel[0])
        Z = self.decisions(alpha, solution.b, gram)
        losses = self.strength(par) * self.loss_at(par).value(Z, self.targets())
        return np.asarray(0.5 * np.sum(alpha * gram.product(alpha), axis=1) + losses.sum(axis=1))

    def residual(self, solution: KernelSolution, workspace: Gram) -> Array:
        """Violation of the dual's optimality conditions in units of the decision, and of ``Q' alpha = 0``."""
        alpha, equality = solution.alpha, np.zeros(self.n_tasks)
        Z = self.decisions(alpha, solution.b, workspace.at(solution.par.log_kernel[0]))
        for m, t in enumerate(self.split):
            Q = self.columns[t]
            size = max(float(np.abs(alpha[m]) @ np.abs(Q).max(axis=1, initial=0.0)), 1e-300)
            equality[m] = float(np.abs(Q.T @ alpha[m]).max(initial=0.0)) / size
        return np.asarray(self.gap(Z, solution) + equality)

    def linearize(self, solution: KernelSolution, workspace: Gram) -> KernelLinearization:
        return ColumnLinearization(self, solution, workspace)


class ColumnLinearization(DualLinearization):
    """The systems of the free rows, with those that pin the coefficients of the columns."""

    problem: SemiparametricProblem

    def columns(self, m: int) -> Array:
        """The columns of a task."""
        return self.problem.columns[self.problem.split[m]]

    def system_of(self, m: int, rows: Array) -> System:
        problem, (low, up) = self.problem, self.limits
        Q, pins = self.columns(m), None
        if not spans(Q[rows]):
            trains = np.flatnonzero(problem.trains[m] & (problem.weight > 0))
            f = self.solution.decisions[m] - self.lift(m, self.solution.b[m])
            parts = (Q, f, low[m], up[m], self.free[m], self.at_bound[m])
            pins = _numbered(centre(*(part[trains] for part in parts)), trains)
        return BorderedSystem.build(self.gram.K, rows, Q, pins)

    def totals(self, m: int, v: Array) -> Array:
        """``Q' v``."""
        return np.asarray(self.columns(m).T @ v)

    def lift(self, m: int, b: Array) -> Array:
        """``Q b``; there may be entries for more columns than this task has."""
        Q = self.columns(m)
        return np.asarray(Q @ b[: Q.shape[1]])

    def pack(self, m: int, Z: Array, b: Array, v: Array) -> Array:
        """Decisions and shares, (2 n, p): rows at their bound stay, free ones follow ``-v`` less the bound's growth."""
        problem, par, rows = self.problem, self.par, np.flatnonzero(self.free[m])
        share = np.zeros_like(Z)
        growth = problem.by_row(par.slope("log_c", [m]))[0] if par.tunes("log_c") else np.zeros((1, par.size))
        growth = np.broadcast_to(growth, Z.shape)[rows]
        alpha, c = self.solution.alpha[m, rows, None], problem.strength(par)[m, rows, None]
        share[rows] = (-v[: len(rows)] - alpha * growth) / c
        return np.vstack([Z, share])


def _numbered(found: MiddleIntercepts, rows: Array) -> MiddleIntercepts:
    """The same with rows counted among all."""
    return replace(found, limits=rows[found.limits], rows=rows[found.rows])
