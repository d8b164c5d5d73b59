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

from foldwise.losses import Loss
from foldwise.problems.folds import Folds
from foldwise.problems.gram import DenseGram, PinnedSystem
from foldwise.problems.parameters import Canonical, ParameterMap

__all__ = ["KernelPoint", "KernelProblem"]


@dataclass(frozen=True, eq=False)
class Push:
    """How ``theta`` acts at fixed decisions: see :meth:`KernelProblem.direct`; ``reach`` is ``K direct``."""

    direct: np.ndarray | None
    shift: np.ndarray | None
    reach: np.ndarray | None


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
    pins: dict = field(default_factory=dict)
    """By task, rows on whose kinks an intercept without free rows is held, and how they move with the tube."""
    systems: list = field(default_factory=list)
    push: Push | None = None
    """The factored systems of the derivatives and what acts directly; filled in when a derivative is asked for."""


class KernelProblem:
    """Training problems of a kernel model on shared rows.

    Parameters
    ----------
    gram : DenseGram or LandmarkGram, rows in the order of ``folds``
        Or what ``kernel.pairs(X)`` returns, for a dense one.
    Y, folds, loss, parameters, weight, n_total : as in :class:`foldwise.problems.linear.LinearProblem`
    intercept : bool
        A free intercept.
    present : ndarray of bool, shape (targets, n), optional
        Rows that belong to each target's problem, in training and validation: for one-vs-one.
    validation_weight : ndarray, shape (n,) or (splits, n), optional
        What rows count in the criterion; ``weight`` by default.
    """

    def __init__(
        self,
        gram: Any,
        Y: np.ndarray,
        folds: Folds,
        loss: Loss,
        parameters: ParameterMap,
        intercept: bool,
        weight: np.ndarray | None = None,
        n_total: int | None = None,
        present: np.ndarray | None = None,
        validation_weight: np.ndarray | None = None,
    ) -> None:
        self._check_loss(loss)
        self._gram = gram if hasattr(gram, "update") else DenseGram(gram)
        self.Y, self.folds, self.loss = Y, folds, loss
        self.parameters, self.intercept = parameters, intercept
        self.n_targets, self.n_splits, self.n_rows = len(Y), folds.n_splits, Y.shape[1]
        self.n_tasks, self.n_cells = self.n_targets * self.n_splits, folds.n_cells
        self.weight = np.ones(self.n_rows) if weight is None else weight
        self.target = np.repeat(np.arange(self.n_targets), self.n_splits)
        self.split = np.tile(np.arange(self.n_splits), self.n_targets)
        self.trains, self.times = folds.train[self.split], folds.count[self.split]
        if present is not None:
            self.trains, self.times = self.trains & present[self.target], self.times * present[self.target]
        counts = self.weight if validation_weight is None else validation_weight
        counts = np.broadcast_to(counts, (self.n_splits, self.n_rows))
        self.validation_weight = []
        for m in range(self.n_tasks):
            rows = folds.validation[self.split[m]]
            v = counts[self.split[m]][rows]
            v = v if present is None else v * present[self.target[m]][rows]
            if len(v) and v.sum() <= 0:
                raise ValueError(
                    "a validation fold has no positive sample weight; use other folds or weights"
                )
            self.validation_weight.append(v / (v.sum() * (n_total or self.n_tasks)) if len(v) else v)
        self._theta: np.ndarray | None = None
        self.first: np.ndarray | None = None
        self.rows: np.ndarray | None = None

    def _check_loss(self, loss: Loss) -> None:
        if not loss.smooth:
            raise ValueError(
                f"the representer form needs a loss with a second derivative; got {type(loss).__name__}. "
                "Use its squared or smoothed form (SquaredHinge, QuarticHinge, SquaredEpsilonInsensitive)"
            )

    def reset(self) -> None:
        """Forget the kernel matrix of the last ``theta``."""
        self._theta = None

    def twin(self) -> KernelProblem:
        """The same problem with a state of its own; distances are shared."""
        other = copy.copy(self)
        other._gram = self._gram.twin()
        other.reset()
        return other

    def start(self) -> np.ndarray:
        """Decisions to start from, with the intercept in the last column: ``first`` if set, else zero on all rows."""
        return np.zeros((self.n_tasks, self.n_rows + 1)) if self.first is None else self.first.copy()

    def start_like(self, other: KernelProblem, point: KernelPoint) -> np.ndarray:
        """Decisions to start from: those of another fold's problem for the same rows, where ``rows`` numbers them."""
        if not self.loss.smooth or self.rows is None or other.rows is None or self.first is not None:
            return self.start()
        lead = np.flatnonzero(other.split == 0)
        by_row = np.zeros((len(lead), max(int(self.rows.max()), int(other.rows.max())) + 1))
        by_row[:, other.rows] = point.Z[lead]
        return np.column_stack([by_row[:, self.rows], point.W[lead, -1]])[self.target]

    def gram(self, theta: np.ndarray, par: Canonical) -> Any:
        """The kernel matrix at ``theta``; kept until ``theta`` changes."""
        if self._theta is None or not np.array_equal(self._theta, theta):
            self._theta = None
            self._gram.update(par.log_kernel[0])
            self._theta = np.array(theta)
        return self._gram

    def strength(self, par: Canonical) -> np.ndarray:
        """``c_j v_j`` times how often a row trains the task: shape (tasks, n)."""
        return self.by_row(par.c) * self.weight * self.times

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
        KA = self.gram(theta, par).product(alpha)
        losses = self.strength(par) * self.loss_at(par).value(KA + b[:, None], self.targets())
        return 0.5 * np.sum(alpha * KA, axis=1) + losses.sum(axis=1)

    def residual(self, point: KernelPoint) -> np.ndarray:
        """``||alpha + c l'(K alpha + b)||`` (and ``sum alpha``) relative to ``||alpha||``, from the rows.

        A millionth of ``||c||`` times the scale of the target keeps the comparison meaningful where all rows lie within
        the tube and ``alpha`` vanishes.
        """
        Z = self.gram(point.theta, point.par).product(point.alpha) + point.W[:, -1:]
        gap = point.alpha + self.strength(point.par) * self.loss_at(point.par).grad(Z, self.targets())
        scale = 1.0 if self.loss.task == "classification" else float(np.std(self.Y))
        size = np.linalg.norm(point.alpha, axis=1)
        size += 1e-6 * scale * np.linalg.norm(self.strength(point.par), axis=1)
        total = np.abs(point.alpha.sum(axis=1)) / np.sqrt(self.n_rows) if self.intercept else 0.0
        return (np.linalg.norm(gap, axis=1) + total) / np.maximum(size, np.finfo(float).tiny)

    row_residual = residual

    def revive(self, point: KernelPoint) -> KernelPoint:
        """The point itself: the kernel matrix is formed anew when a derivative needs it."""
        return point

    def systems(self, point: KernelPoint) -> list:
        """The factored system of every task at its solution; built once."""
        if not point.systems:
            gram, c = self.gram(point.theta, point.par), self.strength(point.par)
            bends = self.loss_at(point.par).hess(point.Z, self.targets()) * c
            for m in range(self.n_tasks):
                if m in point.pins:
                    point.systems.append(PinnedSystem.build(gram, self.n_rows, *point.pins[m]))
                    continue
                rows = np.flatnonzero(bends[m] > 1e-14 * c[m].max())
                point.systems.append(gram.system(rows, bends[m][rows], self.intercept))
        return point.systems

    def adjoint(self, point: KernelPoint, slopes) -> np.ndarray:
        """Adjoints (tasks, 2 n + 1) from the criterion's slopes: a list of (task, rows, dF/dz on these rows).

        First ``a``: the slope on validation rows plus, on active ones, the solution of the transposed system; then this
        solution alone, as a row may validate and be active at once; last the multiplier of the intercept.
        """
        n = self.n_rows
        out = np.zeros((self.n_tasks, 2 * n + 1))
        for m, rows, g in slopes:
            self.collect(out[m, :n], rows, g)
        gram = self.gram(point.theta, point.par)
        for m, system in enumerate(self.systems(point)):
            reach = gram.values_at(system.rows, out[m, :n])
            Du, kappa = system.solve(reach, float(out[m, :n].sum()))
            out[m, system.rows] -= Du
            out[m, n + system.rows] = -Du
            out[m, -1] = kappa
        return out

    @staticmethod
    def collect(total: np.ndarray, rows: Any, g: np.ndarray) -> None:
        """Add ``g`` on these rows; one that comes several times gets the sum."""
        if isinstance(rows, slice):
            total[rows] += g
        else:
            np.add.at(total, rows, g)

    def contract(self, point: KernelPoint, A: np.ndarray) -> np.ndarray:
        """``dF/dtheta`` from the adjoints."""
        par, n = point.par, self.n_rows
        a, held = A[:, :n], A[:, n : 2 * n]
        out = np.zeros(self.parameters.space.size)
        gram = self.gram(point.theta, par)
        if self.parameters.tunes["log_kernel"]:
            out += gram.contract(a, point.alpha) @ par.d_log_kernel[0]
        if point.push is None:
            point.push = self._push(gram, *self.direct(point))
        push = point.push
        if push.direct is not None and push.reach is not None:
            out += np.einsum("mj,mjp->p", a, push.reach) + A[:, -1] @ push.direct.sum(axis=1)
        if push.shift is not None:
            out -= np.einsum("mj,mjp->p", held, push.shift)
        return out

    @staticmethod
    def _push(gram: Any, direct: np.ndarray | None, shift: np.ndarray | None) -> Push:
        """What acts directly, and where the decisions would go with it alone."""
        if direct is None:
            return Push(None, shift, None)
        reach = np.zeros_like(direct)
        used = np.flatnonzero(direct.any(axis=(0, 1)))  # a kernel's own parameters do not act on alpha
        if len(used):
            moves = np.ascontiguousarray(direct[:, :, used].transpose(0, 2, 1)).reshape(-1, direct.shape[1])
            moved = gram.product(moves).reshape(len(direct), len(used), -1)
            reach[:, :, used] = moved.transpose(0, 2, 1)
        return Push(direct, shift, reach)

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
            if point.pins:
                held = np.zeros_like(point.Z)
                for m, (rows, moves) in point.pins.items():
                    held[m, rows] = moves
                return out, held[:, :, None] * self.by_row(par.d_epsilon)
        return out, None

    def by_row(self, values: np.ndarray) -> np.ndarray:
        """Values per cell (second axis) spread to rows; one cell broadcasts."""
        return values if self.n_cells == 1 else values[:, self.folds.cell]

    def sensitivities(self, point: KernelPoint) -> np.ndarray:
        """``d(z, b)/dtheta``: shape (tasks, n + 1, p)."""
        par, gram = point.par, self.gram(point.theta, point.par)
        p = self.parameters.space.size
        if point.push is None:
            point.push = self._push(gram, *self.direct(point))
        direct, shift, reach = point.push.direct, point.push.shift, point.push.reach
        out = np.zeros((self.n_tasks, self.n_rows + 1, p))
        changes = None
        if self.parameters.tunes["log_kernel"]:
            changes = gram.apply(point.alpha)
        for m, system in enumerate(self.systems(point)):
            r = np.zeros((self.n_rows, p)) if reach is None else reach[m].copy()
            if changes is not None:
                r += changes[:, :, m].T @ par.d_log_kernel[0]
            held = 0.0 if shift is None else shift[m][system.rows]
            total = np.zeros(p) if direct is None else direct[m].sum(axis=0)
            Du, b = system.solve(r[system.rows] - held, total)
            out[m, :-1] = r - gram.spread(system.rows, Du) + b
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

    def approximation(self, point: KernelPoint) -> tuple[int, float] | None:
        """Number of landmarks, and a bound on what they change in a decision at fixed coefficients; None if dense.

        ``|(K - K~) alpha|_i <= max_j (k - k~)(x_j, x_j) ||alpha||_1`` since ``K - K~`` is positive semi-definite.
        """
        gram = self.gram(point.theta, point.par)
        if not hasattr(gram, "error"):
            return None
        return gram.B.shape[1], gram.error() * float(np.abs(point.alpha).sum(axis=1).max())

    def validation(self, point: KernelPoint):
        """Yield ``(task, rows, decisions, targets, weights)`` of every task that validates on some row."""
        for m in range(self.n_tasks):
            rows, v = self.folds.validation[self.split[m]], self.validation_weight[m]
            if len(v):
                yield m, rows, point.Z[m][rows], self.Y[self.target[m]][rows], v

    def flat_intercepts(self, point: KernelPoint) -> int:
        """In how many tasks the intercept is not unique."""
        return len(point.pins)

    def n_kinks(self, point: KernelPoint, tol: float = 1e-9) -> int:
        """Training rows that sit at a kink of the loss, over all tasks."""
        scale = max(1.0, float(np.abs(self.Y).max(initial=0.0)))
        trains = self.trains & (self.weight > 0)
        kinks = self.loss_at(point.par).kinks(point.Z, self.targets())
        return sum(int(np.sum((np.abs(u) <= tol * scale) & trains)) for u, _, _ in kinks)
