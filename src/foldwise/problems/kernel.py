r"""Kernel training problems of all folds (and classes) on one kernel matrix, in representer form.

Task ``m`` minimises over ``f = sum_i alpha_i k(x_i, .) + b``

.. math::  \tfrac12 \|f\|_K^2 + \sum_{j \in \mathrm{train}} c_j v_j \, \ell(f(x_j), y_j; \varepsilon_j),

whose solution has ``alpha_j = -c_j v_j l'(z_j)`` on training rows, zero elsewhere, with ``z = K alpha + b`` and, for
a free intercept, ``sum alpha = 0``. The equation is solved in this form and never multiplied by ``K``: ``alpha`` is
zero where ``l'`` is, and the linear systems live on the rows ``Q`` with ``l'' > 0``. With ``D = c v l''`` there,

.. math::  (I + D^{1/2} K_{QQ} D^{1/2})

is well conditioned and serves Newton's step, the adjoint and the sensitivities (thesis 3.1 forms ``cK + K D K``). The
workspace is a :class:`~foldwise.problems.gram.Gram`: the kernel matrix at the parameters that were asked for last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from foldwise.losses import Loss
from foldwise.problems.base import Array, Linearization, Problem, Slopes, Solution, State, TaskData
from foldwise.problems.gram import DenseGram, Gram, PinnedSystem, System
from foldwise.problems.parameters import Canonical
from foldwise.problems.weights import Pins

__all__ = ["Decisions", "KernelLinearization", "KernelProblem", "KernelSolution"]


@dataclass(frozen=True, eq=False)
class Decisions(State):
    """Decisions on all rows, (tasks, n), and intercepts, (tasks,)."""

    Z: Array
    b: Array

    def moved(self, change: Array) -> Decisions:
        return Decisions(self.Z + change[:, :-1], self.b + change[:, -1])


@dataclass(frozen=True, eq=False)
class KernelSolution(Solution):
    """Solutions of kernel machines: coefficients (tasks, n) and intercepts (tasks,).

    In place of an intercept a semiparametric machine has coefficients of its columns, (tasks, r).
    """

    alpha: Array
    b: Array
    pins: Pins = field(default_factory=dict)


class KernelProblem(Problem):
    """Training problems of a kernel model on shared rows.

    Parameters
    ----------
    data : TaskData
    gram : Gram, rows in the order of ``data.folds``
        Or what ``kernel.pairs(X)`` returns, for a dense one.
    intercept : bool
        A free intercept.
    rows : ndarray of int, shape (n,), optional
        Numbers of the stored rows among all rows of a program, whose problems then start from each other's decisions.
    """

    state_type: ClassVar[Any] = Decisions
    form: ClassVar[str] = "representer"

    def __init__(self, data: TaskData, gram: Any, intercept: bool = True, rows: Array | None = None) -> None:
        super().__init__(data)
        self.gram: Gram = gram if isinstance(gram, Gram) else DenseGram(gram)
        self.intercept, self.rows = intercept, rows
        self.times = self.folds.count[self.split]
        if self.present is not None:
            self.times = self.times * self.present[self.target]

    def check_loss(self, loss: Loss) -> None:
        if not loss.smooth:
            raise ValueError(
                f"the representer form needs a loss with a second derivative; got {type(loss).__name__}. "
                "Use its squared or smoothed form (SquaredHinge, QuarticHinge, SquaredEpsilonInsensitive)"
            )

    def workspace(self) -> Gram:
        """The kernel matrix, at no parameters yet; distances are shared with the problem."""
        return self.gram.twin()

    def start(self, leader: tuple[Any, Any] | None = None) -> Any:
        """Zero on all rows; or the leader's decisions for the same rows, where they are numbered."""
        if leader is None or self.rows is None or leader[0].rows is None:
            return Decisions(np.zeros((self.n_tasks, self.n_rows)), np.zeros(self.n_tasks))
        other, solution = leader
        lead = np.flatnonzero(other.split == 0)
        by_row = np.zeros((len(lead), max(int(self.rows.max()), int(other.rows.max())) + 1))
        by_row[:, other.rows] = solution.decisions[lead]
        return Decisions(by_row[:, self.rows][self.target], solution.b[lead][self.target])

    def strength(self, par: Canonical) -> Array:
        """``c_j v_j`` times how often a row trains the task: shape (tasks, n)."""
        return np.asarray(self.by_row(par.c) * self.weight * self.times)

    def value(self, solution: KernelSolution, workspace: Gram) -> Array:
        par, alpha = solution.par, solution.alpha
        KA = workspace.at(par.log_kernel[0]).product(alpha)
        losses = self.strength(par) * self.loss_at(par).value(KA + solution.b[:, None], self.targets())
        return np.asarray(0.5 * np.sum(alpha * KA, axis=1) + losses.sum(axis=1))

    def residual(self, solution: KernelSolution, workspace: Gram) -> Array:
        """``||alpha + c l'(K alpha + b)||`` (and ``sum alpha``) relative to ``||alpha||``, from the rows.

        A millionth of ``||c||`` times the scale of the target keeps the comparison meaningful where all rows lie within
        the tube and ``alpha`` vanishes.
        """
        Z = workspace.at(solution.par.log_kernel[0]).product(solution.alpha) + solution.b[:, None]
        return self.violation(solution.par, solution.alpha, Z)

    def violation(self, par: Canonical, alpha: Array, Z: Array) -> Array:
        """The same, of coefficients whose decisions are ``Z``."""
        c = self.strength(par)
        gap = alpha + c * self.loss_at(par).grad(Z, self.targets())
        scale = 1.0 if self.loss.task == "classification" else float(np.std(self.Y))
        size = np.linalg.norm(alpha, axis=1)
        size += 1e-6 * scale * np.linalg.norm(c, axis=1)
        total = np.abs(alpha.sum(axis=1)) / np.sqrt(self.n_rows) if self.intercept else 0.0
        return np.asarray((np.linalg.norm(gap, axis=1) + total) / np.maximum(size, np.finfo(float).tiny))

    def linearize(self, solution: KernelSolution, workspace: Gram) -> KernelLinearization:
        return KernelLinearization(self, solution, workspace)

    def approximation(self, solution: KernelSolution, workspace: Gram) -> tuple[int, float] | None:
        """Number of landmarks, and a bound on what they change in a decision at fixed coefficients; None if dense.

        ``|(K - K~) alpha|_i <= max_j (k - k~)(x_j, x_j) ||alpha||_1`` since ``K - K~`` is positive semi-definite.
        """
        unseen = workspace.at(solution.par.log_kernel[0]).unseen()
        return unseen and (unseen[0], unseen[1] * float(np.abs(solution.alpha).sum(axis=1).max()))

    def flat_intercepts(self, solution: KernelSolution) -> int:
        return len(solution.pins)


class KernelLinearization(Linearization):
    """The systems of the active rows, and what a change of each kind does at fixed decisions.

    Adjoints have ``2 n`` entries and one for the intercept: first ``a``, the slope on validation rows plus, on active
    ones, the solution of the transposed system; then this solution alone, as a row may validate and be active at once;
    last the multiplier of the intercept.
    """

    def __init__(self, problem: KernelProblem, solution: KernelSolution, workspace: Gram) -> None:
        self.problem, self.solution, self.par = problem, solution, solution.par
        self.gram = workspace.at(solution.par.log_kernel[0])
        self.systems = self.build_systems()
        self.direct, self.shifts = self.effects()

    # What machines differ in.

    def build_systems(self) -> list[System]:
        """The factored system of every task at its solution."""
        problem, solution = self.problem, self.solution
        c = problem.strength(self.par)
        curvatures = problem.loss_at(self.par).hess(solution.decisions, problem.targets()) * c
        out: list[System] = []
        for m in range(problem.n_tasks):
            if m in solution.pins:
                out.append(PinnedSystem.build(self.gram, problem.n_rows, *solution.pins[m]))
                continue
            rows = np.flatnonzero(curvatures[m] > 1e-14 * c[m].max())
            out.append(self.gram.system(rows, curvatures[m][rows], problem.intercept))
        return out

    def effects(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """How kinds that are tuned act at fixed decisions, by kind: the change of ``alpha``, and how the decisions of
        rows held at a kink move; (tasks, n) each.
        """
        problem, par, Z = self.problem, self.par, self.solution.decisions
        out, shifts = {}, {}
        if par.tunes("log_c"):
            out["log_c"] = self.solution.alpha
        for name in problem.loss.tunable:
            if par.tunes(name):
                slope = problem.loss_at(par).grad_in(name, Z, problem.targets())
                out[name] = -problem.strength(par) * slope
        if par.tunes("epsilon") and self.solution.pins:
            shifts["epsilon"] = np.zeros_like(Z)
            for m, (rows, moves) in self.solution.pins.items():
                shifts["epsilon"][m, rows] = moves
        return out, shifts

    def totals(self, m: int, v: Array) -> Any:
        """What the multipliers of a task see of coefficients (n,): their sum, for an intercept."""
        return float(v.sum())

    def lift(self, m: int, b: Any) -> Any:
        """Decisions that an intercept makes."""
        return b

    def pack(self, m: int, Z: Array, b: Array, v: Array) -> Array:
        """Sensitivities of one task as its state has variables: decisions and the intercept, (n + 1, p)."""
        return np.vstack([Z, b])

    # The contract.

    @cached_property
    def reach(self) -> dict[str, Array]:
        """Where decisions would go with the direct changes of ``alpha`` alone, by cell: shape (tasks, cells, n)."""
        out = {}
        for kind, direct in self.direct.items():
            by_cell = self._by_cell(direct)
            shape = by_cell.shape
            out[kind] = self.gram.product(by_cell.reshape(-1, shape[2])).reshape(shape)
        return out

    def _by_cell(self, values: Array) -> Array:
        """Values of rows (..., n), separately for each cell: (..., cells, n)."""
        Q = self.problem.n_cells
        own = self.problem.folds.cell == np.arange(Q)[:, None]
        return np.ascontiguousarray(values[..., None, :] if Q == 1 else values[..., None, :] * own)

    def adjoint(self, slopes: Slopes) -> Array:
        n, multipliers = self.problem.n_rows, []
        out = np.zeros((self.problem.n_tasks, 2 * n))
        for m, rows, g in slopes:
            if isinstance(rows, slice):
                out[m, :n][rows] += g
            else:  # a row that comes several times gets the sum
                np.add.at(out[m, :n], rows, g)
        for m, system in enumerate(self.systems):
            values = self.gram.values_at(system.rows, out[m, :n])
            v, kappa = system.solve(values, self.totals(m, out[m, :n]))
            out[m, system.rows] -= v
            out[m, n + system.rows] = -v
            multipliers.append(np.atleast_1d(kappa))
        last = np.zeros((len(out), max((len(kappa) for kappa in multipliers), default=0)))
        for m, kappa in enumerate(multipliers):
            last[m, : len(kappa)] = kappa
        return np.hstack([out, last])

    def pullback(self, u: Array) -> dict[str, Array]:
        problem, n = self.problem, self.problem.n_rows
        a, held, kappa = u[:, :n], u[:, n : 2 * n], u[:, 2 * n :]
        out = {}
        if self.par.tunes("log_kernel"):
            out["log_kernel"] = self.gram.contract(a, self.solution.alpha)[None]
        for kind, direct in self.direct.items():
            lifted = np.stack([self.lift(m, kappa[m]) * direct[m] for m in range(problem.n_tasks)])
            out[kind] = np.einsum("mj,mqj->mq", a, self.reach[kind]) + problem.by_cell(lifted)
        for kind, shift in self.shifts.items():
            out[kind] = out.get(kind, 0.0) - problem.by_cell(held * shift)
        return out

    def sensitivities(self) -> Array:
        problem, par = self.problem, self.par
        changes = self.gram.apply(self.solution.alpha) if par.tunes("log_kernel") else None
        out = []
        for m, system in enumerate(self.systems):
            r = np.zeros((problem.n_rows, par.size))
            total: Any = 0.0
            for kind, direct in self.direct.items():
                slope = par.slope(kind, m)
                r += self.reach[kind][m].T @ slope
                cells = [self.totals(m, part) for part in self._by_cell(direct[m])]
                total = total + np.moveaxis(np.array(cells), 0, -1) @ slope
            if not self.direct:
                total = np.multiply.outer(self.totals(m, np.zeros(problem.n_rows)), np.zeros(par.size))
            if changes is not None:
                r += changes[:, :, m].T @ par.slope("log_kernel", 0)
            goal = r[system.rows]
            for kind, shift in self.shifts.items():
                goal = goal - (shift[m, :, None] * self._slope(kind, m))[system.rows]
            v, b = system.solve(goal, total)
            out.append(self.pack(m, r - self.gram.spread(system.rows, v) + self.lift(m, b), b, v))
        return np.stack(out)

    def _slope(self, kind: str, m: int) -> Array:
        """How a parameter of the loss of a task's rows moves with theta: (n, p), or (1, p) with one cell."""
        return self.par.slope(kind, m, slice(None) if self.problem.n_cells == 1 else self.problem.folds.cell)

    def moves(self, J: Array, m: int, rows: Any) -> Array:
        return np.asarray(J[m, : self.problem.n_rows][rows].T)
