r"""Kernel training problems of all folds (and classes) on one kernel matrix, in representer form.

Task ``m`` minimises over ``f = sum_i alpha_i k(x_i, .) + b``

.. math::  \tfrac12 \|f\|_K^2 + \sum_{j \in \mathrm{train}} c_j v_j \, \ell(f(x_j), y_j; \varepsilon_j),

whose solution has ``alpha_j = -c_j v_j l'(z_j)`` on training rows, zero elsewhere, with ``z = K alpha + b`` and, for
a free intercept, ``sum alpha = 0``. The equation is solved in this form and never multiplied by ``K``: ``alpha`` is
zero where ``l'`` is, and the linear systems live on the rows ``Q`` with ``l'' > 0``. With ``D = c v l''`` there,

.. math::  (I + D^{1/2} K_{QQ} D^{1/2})

is well conditioned and serves Newton's step, the adjoint and the sensitivities (thesis 3.1 forms ``cK + K D K``).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from foldwise.losses import Loss
from foldwise.problems.folds import Folds
from foldwise.problems.parameters import Canonical, ParameterMap

__all__ = ["ActiveSystem", "KernelPoint", "KernelProblem"]


def submatrix(K: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A copy of ``K`` on these rows and columns; a slice where they are contiguous."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        part = slice(int(rows[0]), int(rows[-1]) + 1)
        return K[part, part].copy()
    return K.take(rows, axis=0).take(rows, axis=1)


@dataclass(eq=False)
class ActiveSystem:
    """``(I + D^1/2 K_QQ D^1/2)`` of one task, factored; with or without the border of a free intercept."""

    rows: np.ndarray
    root: np.ndarray
    factor: np.ndarray
    ones: np.ndarray | None
    mass: float

    @classmethod
    def build(cls, K: np.ndarray, rows: np.ndarray, D: np.ndarray, intercept: bool) -> ActiveSystem:
        """Factor the system of the rows with curvature ``D``."""
        root = np.sqrt(D)
        H = submatrix(K, rows)
        H *= root[:, None]
        H *= root
        H.flat[:: len(rows) + 1] += 1.0
        factor, info = dpotrf(H, lower=1, clean=0) if len(rows) else (H, 0)
        if info != 0:
            raise FloatingPointError(
                "a kernel system is not positive definite; the kernel is not, or its values are not finite"
            )
        self = cls(rows, root, factor, None, 0.0)
        if intercept:
            self.ones = self.core(np.ones(len(rows)))
            self.mass = float(self.ones.sum())
        return self

    def core(self, r: np.ndarray) -> np.ndarray:
        """``D u`` where ``u + K D u = r`` on the active rows."""
        if not len(self.rows):
            return r.copy()
        root = self.root if r.ndim == 1 else self.root[:, None]
        return root * dpotrs(self.factor, root * r, lower=1)[0]

    def solve(self, r: np.ndarray, total: Any) -> tuple[np.ndarray, Any]:
        """``D u`` and ``b`` with ``u + K D u = r + b`` and ``sum(D u) = total`` (without intercept: ``b = 0``)."""
        Du = self.core(r)
        if self.ones is None or self.mass <= 1e-300:
            return Du, 0.0 if r.ndim == 1 else np.zeros(r.shape[1])
        b = (total - Du.sum(axis=0)) / self.mass
        return Du + (self.ones * b if r.ndim == 1 else np.outer(self.ones, b)), b


@dataclass(eq=False)
class KernelPoint:
    """Solutions of all tasks at one ``theta``: coefficients and decisions on all rows."""

    theta: np.ndarray
    par: Canonical
    W: np.ndarray
    Z: np.ndarray
    alpha: np.ndarray
    converged: np.ndarray
    steps: int
    systems: list = field(default_factory=list)
    """The factored systems of the derivatives; filled in when the first derivative is asked for."""


class KernelProblem:
    """Training problems of a kernel model on shared rows.

    Parameters
    ----------
    pairs : what ``kernel.pairs(X)`` returns, rows in the order of ``folds``
    Y, folds, loss, parameters, weight, n_total : as in :class:`foldwise.problems.linear.LinearProblem`
    intercept : bool
        A free intercept.
    present : ndarray of bool, shape (targets, n), optional
        Rows that belong to each target's problem, in training and validation: for one-vs-one.
    """

    def __init__(
        self,
        pairs: Any,
        Y: np.ndarray,
        folds: Folds,
        loss: Loss,
        parameters: ParameterMap,
        intercept: bool,
        weight: np.ndarray | None = None,
        n_total: int | None = None,
        present: np.ndarray | None = None,
    ) -> None:
        self._check_loss(loss)
        self.pairs, self.Y, self.folds, self.loss = pairs, Y, folds, loss
        self.parameters, self.intercept = parameters, intercept
        self.n_targets, self.n_splits, self.n_rows = len(Y), folds.n_splits, Y.shape[1]
        self.n_tasks, self.n_cells = self.n_targets * self.n_splits, folds.n_cells
        self.weight = np.ones(self.n_rows) if weight is None else weight
        self.target = np.repeat(np.arange(self.n_targets), self.n_splits)
        self.split = np.tile(np.arange(self.n_splits), self.n_targets)
        self.trains = folds.train[self.split]
        if present is not None:
            self.trains = self.trains & present[self.target]
        self.validation_weight = []
        for m in range(self.n_tasks):
            rows = folds.validation[self.split[m]]
            v = self.weight[rows] if present is None else self.weight[rows] * present[self.target[m]][rows]
            if len(v) and v.sum() <= 0:
                raise ValueError(
                    "a validation fold has no positive sample weight; use other folds or weights"
                )
            self.validation_weight.append(v / (v.sum() * (n_total or self.n_tasks)) if len(v) else v)
        self.K: np.ndarray | None = None
        self._theta: np.ndarray | None = None

    def _check_loss(self, loss: Loss) -> None:
        if not loss.smooth:
            raise ValueError(
                f"the representer form needs a loss with a second derivative; got {type(loss).__name__}. "
                "Use its squared or smoothed form (SquaredHinge, QuarticHinge, SquaredEpsilonInsensitive)"
            )

    def reset(self) -> None:
        """Forget the kernel matrix of the last ``theta``."""
        self.K, self._theta = None, None

    def twin(self) -> KernelProblem:
        """The same problem with a state of its own; distances are shared."""
        other = copy.copy(self)
        other.pairs = copy.copy(self.pairs)
        if hasattr(other.pairs, "parts"):
            other.pairs.parts = [copy.copy(part) for part in other.pairs.parts]
        other.reset()
        return other

    def start(self) -> np.ndarray:
        """Decisions to start from: zero on all rows, and the intercept in the last column."""
        return np.zeros((self.n_tasks, self.n_rows + 1))

    def matrix(self, theta: np.ndarray, par: Canonical) -> np.ndarray:
        """The kernel matrix at ``theta``; kept until ``theta`` changes."""
        if self.K is None or self._theta is None or not np.array_equal(self._theta, theta):
            self.K = self.pairs.value(par.log_kernel[0])
            self._theta = np.array(theta)
        return self.K

    def strength(self, par: Canonical) -> np.ndarray:
        """``c_j v_j`` on training rows, zero elsewhere: shape (tasks, n)."""
        return self.by_row(par.c) * self.weight * self.trains

    def loss_at(self, par: Canonical) -> Loss:
        """The training loss with its tube widths, one per task and row."""
        if "epsilon" not in self.loss.tunable:
            return self.loss
        return self.loss.replace(epsilon=self.by_row(par.epsilon))

    def targets(self) -> np.ndarray:
        """Targets per task: (tasks, n), or (1, n) when all share one."""
        return self.Y if self.n_targets == 1 else self.Y[self.target]

    def value(self, alpha: np.ndarray, b: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """``E_m`` at coefficients ``alpha`` (tasks, n) and intercepts ``b`` (tasks,)."""
        par = self.parameters(theta)
        KA = alpha @ self.matrix(theta, par)
        losses = self.strength(par) * self.loss_at(par).value(KA + b[:, None], self.targets())
        return 0.5 * np.sum(alpha * KA, axis=1) + losses.sum(axis=1)

    def residual(self, point: KernelPoint) -> np.ndarray:
        """``||alpha + c l'(K alpha + b)||`` (and ``sum alpha``) relative to ``||alpha||``, from the rows."""
        K = self.matrix(point.theta, point.par)
        Z = point.alpha @ K + point.W[:, -1:]
        gap = point.alpha + self.strength(point.par) * self.loss_at(point.par).grad(Z, self.targets())
        size = np.linalg.norm(point.alpha, axis=1)
        total = np.abs(point.alpha.sum(axis=1)) / np.sqrt(self.n_rows) if self.intercept else 0.0
        return (np.linalg.norm(gap, axis=1) + total) / np.maximum(size, np.finfo(float).tiny)

    row_residual = residual

    def revive(self, point: KernelPoint) -> KernelPoint:
        """The point itself: the kernel matrix is formed anew when a derivative needs it."""
        return point

    def systems(self, point: KernelPoint) -> list:
        """The factored system of every task at its solution; built once."""
        if not point.systems:
            K, c = self.matrix(point.theta, point.par), self.strength(point.par)
            bends = self.loss_at(point.par).hess(point.Z, self.targets()) * c
            for m in range(self.n_tasks):
                rows = np.flatnonzero(bends[m] > 1e-14 * c[m].max())
                point.systems.append(ActiveSystem.build(K, rows, bends[m][rows], self.intercept))
        return point.systems

    def adjoint(self, point: KernelPoint, slopes) -> np.ndarray:
        """Adjoints ``a`` (tasks, n + 1) from the criterion's slopes: a list of (task, rows, dF/dz on these rows).

        ``a`` is the slope on validation rows and solves the transposed system on active ones; the last column is the
        multiplier of the intercept.
        """
        K = self.matrix(point.theta, point.par)
        out = np.zeros((self.n_tasks, self.n_rows + 1))
        for m, rows, g in slopes:
            out[m, :-1][rows] = g
        P = out[:, :-1] @ K
        for m, system in enumerate(self.systems(point)):
            Du, kappa = system.solve(P[m][system.rows], float(out[m, :-1].sum()))
            out[m, system.rows] = -Du
            out[m, -1] = kappa
        return out

    def contract(self, point: KernelPoint, A: np.ndarray) -> np.ndarray:
        """``dF/dtheta`` from the adjoints."""
        par, a = point.par, A[:, :-1]
        out = np.zeros(self.parameters.space.size)
        K = self.matrix(point.theta, par)
        if self.parameters.tunes["log_kernel"]:
            out += self.pairs.contract(a.T @ point.alpha) @ par.d_log_kernel[0]
        direct, shift = self.direct(point)
        if direct is not None:
            out += np.einsum("mj,mjp->p", a @ K + A[:, -1:], direct)
        if shift is not None:
            out -= np.einsum("mj,mjp->p", a, shift)
        return out

    def direct(self, point: KernelPoint) -> tuple[np.ndarray | None, np.ndarray | None]:
        """How ``theta`` acts at fixed decisions: changes of ``alpha``, and of the decisions of rows held at a kink.

        Each is None or of shape (tasks, n, p).
        """
        par, tunes = point.par, self.parameters.tunes
        out = None
        if tunes["log_c"]:
            out = point.alpha[:, :, None] * self.by_row(par.d_log_c)
        if tunes["epsilon"]:
            loss: Any = self.loss_at(par)
            slope = self.strength(par) * loss.grad_epsilon(point.Z, self.targets())
            change = -slope[:, :, None] * self.by_row(par.d_epsilon)
            out = change if out is None else out + change
        return out, None

    def by_row(self, values: np.ndarray) -> np.ndarray:
        """Values per cell (second axis) spread to rows; one cell broadcasts."""
        return values if self.n_cells == 1 else values[:, self.folds.cell]

    def sensitivities(self, point: KernelPoint) -> np.ndarray:
        """``d(z, b)/dtheta``: shape (tasks, n + 1, p)."""
        par, K = point.par, self.matrix(point.theta, point.par)
        p = self.parameters.space.size
        direct, shift = self.direct(point)
        out = np.zeros((self.n_tasks, self.n_rows + 1, p))
        changes = None
        if self.parameters.tunes["log_kernel"]:
            changes = self.pairs.apply(np.ascontiguousarray(point.alpha.T))
        for m, system in enumerate(self.systems(point)):
            r = np.zeros((self.n_rows, p)) if direct is None else K @ direct[m]
            if changes is not None:
                r += changes[:, :, m].T @ par.d_log_kernel[0]
            held = 0.0 if shift is None else shift[m][system.rows]
            total = np.zeros(p) if direct is None else direct[m].sum(axis=0)
            Du, b = system.solve(r[system.rows] - held, total)
            out[m, :-1] = r - K[:, system.rows] @ Du + b
            out[m, -1] = b
        return out

    def moves(self, J: np.ndarray, m: int, rows: Any) -> np.ndarray:
        """``dz/dtheta`` on rows of a task: shape (p, rows)."""
        return J[m, :-1][rows].T

    def bend(self, point: KernelPoint, U: np.ndarray, J: np.ndarray, window: float | None) -> np.ndarray:
        """The second-order part of the hyper-Hessian is left out for kernels: Gauss-Newton."""
        return np.zeros((J.shape[2], J.shape[2]))

    def validation_gram(self, m: int) -> None:
        """Not available for kernels."""
        return None

    def validation(self, point: KernelPoint):
        """Yield ``(task, rows, decisions, targets, weights)`` of every task that validates on some row."""
        for m in range(self.n_tasks):
            rows, v = self.folds.validation[self.split[m]], self.validation_weight[m]
            if len(v):
                yield m, rows, point.Z[m][rows], self.Y[self.target[m]][rows], v

    def n_kinks(self, point: KernelPoint, tol: float = 1e-9) -> int:
        """Training rows that sit at a kink of the loss, over all tasks."""
        scale = max(1.0, float(np.abs(self.Y).max(initial=0.0)))
        trains = self.trains & (self.weight > 0)
        kinks = self.loss_at(point.par).kinks(point.Z, self.targets())
        return sum(int(np.sum((np.abs(u) <= tol * scale) & trains)) for u, _, _ in kinks)
