r"""The classical kernel machines: hinge and epsilon-insensitive loss, through the dual's box.

At the solution of task ``m`` every training row is of one of three kinds: outside (``alpha_j = 0``), at its bound
(``alpha_j = s_j c_j v_j`` with ``s_j`` the sign of its side), or free, and then its decision sits exactly on the kink:
``z_j = y_j`` for the hinge, ``z_j = y_j - s_j epsilon_j`` for the tube. While ``theta`` moves a little no row changes
kind, so ``alpha`` of the free rows and the intercept follow from ``K_FF alpha_F + b = ...`` and ``sum alpha = 0``: the
same adjoint and sensitivities as for smooth losses, with the system of the free rows in place of the curved ones.

Without free rows ``alpha`` moves with its bounds alone and the intercept is free within an interval, whose ends are set
by two rows. Its middle is taken, and follows these two rows. LIBSVM means to do so too; but it tells free rows by exact
comparison, and where bounds that differ between classes add up to nothing (balanced weights, a small ``C``) rounding
leaves a row just short of its bound, which then sets the intercept alone: the end of the interval instead of its
middle. Where scikit-learn's machine is tuned, that row is found by the same run (:class:`Original`) and held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.linalg import Bordered
from foldwise.losses import Loss
from foldwise.problems.base import Array, TaskData
from foldwise.problems.gram import ActiveSystem, DenseGram, Gram, PinnedSystem, System
from foldwise.problems.kernel import Decisions, KernelLinearization, KernelProblem, KernelSolution
from foldwise.problems.parameters import Canonical
from foldwise.problems.pieces import box_unit
from foldwise.problems.written import Task, Written

__all__ = [
    "BOUND",
    "FREE",
    "DualLinearization",
    "DualProblem",
    "FreeSystem",
    "Kinds",
    "Original",
    "PinnedSystem",
    "coded",
    "decision_limits",
    "interval_ends",
]

EDGE = 1e-11
"""Distance from a bound, in units of the box, below which a coefficient is on it."""
FREE, BOUND = 1, 2
"""Kinds of rows, with the sign of their coefficient; 0 is outside."""


def coded(alpha: Array, free: Array, at_bound: Array) -> Array:
    """The kinds of rows as numbers: 0, plus or minus ``FREE``, plus or minus ``BOUND``."""
    return (np.sign(alpha) * np.where(free, FREE, np.where(at_bound, BOUND, 0))).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Kinds(Decisions):
    """Decisions, and the kind of every row as :func:`coded`, (tasks, n); None before the first solution."""

    kinds: Array | None = None

    def moved(self, change: Array) -> Kinds:
        """Rows keep their kinds, whatever their decisions have become: a solver compares them."""
        return Kinds(self.Z + change[:, :-1], self.b + change[:, -1], self.kinds)


class FreeSystem(ActiveSystem):
    """``K_FF`` of the free rows, factored; ``solve`` gives ``v, b`` with ``K v = r + b`` and ``sum v = total``."""

    @classmethod
    def build(cls, H: Array, rows: Array, D: Any, intercept: bool) -> FreeSystem:
        """Factor ``H = K_FF``, which is overwritten; dependent rows get a vanishing ridge. ``D`` is not used."""
        system, ones = Bordered.of(H, np.ones((len(rows), int(intercept)))), np.ones(len(rows))
        return cls(rows, ones, system.inner, system if intercept else None)


def decision_limits(y: Array, tube: Any, side: Array, free: Array, at_bound: Array) -> tuple[Array, Array]:
    """Interval in which optimality wants each row's decision, from its kind; ``tube`` is None for the hinge.

    Outside: beyond the margin, or within the tube. At the bound: the other side of that kink. Free: on it. ``side`` is
    the sign of ``alpha``.
    """
    if tube is None:
        above = (y > 0) != at_bound
        low, up = np.where(above | free, y, -np.inf), np.where(above & ~free, np.inf, y)
        return low, up
    kink = y - side * tube
    outside = ~(free | at_bound)
    low = np.where(outside, y - tube, np.where(at_bound & (side > 0), -np.inf, kink))
    up = np.where(outside, y + tube, np.where(at_bound & (side < 0), np.inf, kink))
    return low, up


def interval_ends(low: Array, up: Array, f: Array) -> tuple[int, int] | None:
    """Rows that bound the intercept from below and above, given decisions ``f`` without it; None if one is missing."""
    if not len(f) or np.all(np.isinf(low)) or np.all(np.isinf(up)):
        return None
    return int(np.argmax(low - f)), int(np.argmin(up - f))


@dataclass(frozen=True, eq=False)
class Original:
    """The training problems as scikit-learn's own machine is given them: its rows, in their order, and its numbers.

    Attributes
    ----------
    machine : SVC or SVR
    by_fold : mapping from hyper-parameter name to callable(X) -> float
        Its values that follow from the training rows.
    X : ndarray or csr_array
        Rows as the user has them, like ``y``: codes of classes, or targets.
    trains : list of ndarray of int
        Rows of ``X`` that train each split, in the order of the split, with repeats.
    weight : ndarray, optional
        Sample weights of these rows.
    class_weight : ndarray, shape (splits, classes), optional
    pairs : list of (int, int)
        The two classes of each target.
    place : ndarray of int
        Where each row is stored.
    """

    machine: Any
    by_fold: Mapping[str, Callable[[Any], float]]
    X: Any
    y: Array
    trains: list[Array]
    weight: Array | None
    class_weight: Array | None
    pairs: list[tuple[int, int]]
    place: Array


class DualProblem(KernelProblem):
    """Exact support vector machines on shared rows; parameters as in :class:`KernelProblem`.

    Parameters
    ----------
    original : Original, optional
        For scikit-learn's machines: an intercept that is not unique is where LIBSVM puts it. Without it, in the middle.
    """

    state_type: ClassVar[Any] = Kinds
    form: ClassVar[str] = "box"
    gram: DenseGram

    def __init__(
        self,
        data: TaskData,
        gram: Any,
        intercept: bool = True,
        rows: Array | None = None,
        original: Original | None = None,
    ) -> None:
        super().__init__(data, gram, intercept, rows)
        self.original = original

    def check_loss(self, loss: Loss) -> None:
        if not loss.classical:
            raise ValueError(f"the dual form is for Hinge and EpsilonInsensitive; got {type(loss).__name__}")

    def written(self, theta: Array) -> Written:
        """Every task in arrays; refused unless the kernel is Gaussian with one width per feature."""
        X = self.gram.scaled_rows()
        if X is None:
            raise ValueError("the kernel is not an RBF with one gamma per feature")
        strength = self.strength(self.parameters(theta))
        tasks = []
        for m in range(self.n_tasks):
            train, y = strength[m] > 0, self.Y[self.target[m]]
            rows, cost = self.folds.validation[self.split[m]], np.asarray(self.validation_weight[m], float)
            tasks.append(Task(X[train], y[train], X[rows], y[rows], strength[m][train], cost))
        return Written(tasks, self.intercept, gaussian=True)

    def start(self, leader: tuple[Any, Any] | None = None) -> Any:
        """Nothing: of another problem's decisions an exact machine makes no use."""
        return Kinds(np.zeros((self.n_tasks, self.n_rows)), np.zeros(self.n_tasks))

    def kinds(self, alpha: Array, par: Canonical, edge: float = EDGE) -> tuple[Array, Array]:
        """Masks (tasks, n) of the free rows and of those at their bound, or within ``edge`` of it, in units of it."""
        c = self.strength(par)
        size = np.abs(alpha)
        at_bound = (size >= c * (1 - edge)) & (c > 0)
        free = (size > edge * box_unit(alpha, c)) & ~at_bound & (c > 0)
        return free, at_bound

    def tube(self, par: Canonical) -> Array | None:
        """Tube widths, broadcastable to (tasks, n); None for the hinge."""
        return None if self.loss.task == "classification" else self.by_row(par.epsilon)

    def limits(self, alpha: Array, par: Canonical) -> tuple[Array, Array]:
        """Interval in which optimality wants every training row's decision: two arrays (tasks, n)."""
        y = np.broadcast_to(self.targets(), alpha.shape)
        return decision_limits(y, self.tube(par), np.sign(alpha), *self.kinds(alpha, par))

    def linearize(self, solution: KernelSolution, workspace: Gram) -> KernelLinearization:
        return DualLinearization(self, solution, workspace)

    def flat_intercepts(self, solution: KernelSolution) -> int:
        free, _ = self.kinds(solution.alpha, solution.par)
        low, up = self.limits(solution.alpha, solution.par)
        Z, count = solution.decisions, 0
        for m in np.flatnonzero(~free.any(axis=1)) if self.intercept else ():
            rows = self.trains[m] & (self.weight > 0)
            room = (up[m] - Z[m])[rows].min() - (low[m] - Z[m])[rows].max()
            count += bool(room > 1e-9 * (1.0 + np.abs(self.Y).max()))
        return count

    def gap(self, Z: Array, solution: KernelSolution) -> Array:
        """Largest distance of a training row's decision from where optimality wants it, per task."""
        low, up = self.limits(solution.alpha, solution.par)
        gap = np.maximum(np.maximum(low - Z, Z - up), 0.0) * (self.trains & (self.weight > 0))
        scale = 1.0 if self.loss.task == "classification" else max(float(np.std(self.Y)), 1e-300)
        return np.asarray(gap.max(axis=1) / scale)

    def residual(self, solution: KernelSolution, workspace: Gram) -> Array:
        """Violation of the dual's optimality conditions in units of the decision, and of ``sum alpha``."""
        alpha = solution.alpha
        Z = workspace.at(solution.par.log_kernel[0]).product(alpha) + solution.b[:, None]
        total = np.abs(alpha.sum(axis=1)) / np.maximum(np.abs(alpha).sum(axis=1), 1e-300)
        return np.asarray(self.gap(Z, solution) + (total if self.intercept else 0.0))

    def n_kinks(self, solution: KernelSolution, tol: float = 1e-9) -> int:
        """Rows that sit on the kink without being free: there the solution has two one-sided derivatives."""
        free, _ = self.kinds(solution.alpha, solution.par)
        y, Z, tube = self.targets(), solution.decisions, self.tube(solution.par)
        distance = 1.0 - y * Z if tube is None else np.abs(Z - y) - tube
        return int(np.sum((np.abs(distance) <= tol) & self.trains & ~free))


class DualLinearization(KernelLinearization):
    """The systems of the free rows, or of the rows that pin an intercept without any."""

    problem: DualProblem
    gram: DenseGram

    def build_systems(self) -> list[System]:
        problem, solution = self.problem, self.solution
        self.free, self.at_bound = problem.kinds(solution.alpha, self.par)
        self.limits = problem.limits(solution.alpha, self.par)
        return [self.system_of(m, np.flatnonzero(free)) for m, free in enumerate(self.free)]

    def system_of(self, m: int, rows: Array) -> System:
        """The system of a task with these free rows."""
        if self.problem.intercept and not len(rows):
            pins = self._ends(m)
            if pins is not None:
                return PinnedSystem.build(self.gram, self.problem.n_rows, *pins)
        return FreeSystem.build(self.gram.block(rows), rows, None, self.problem.intercept)

    def _ends(self, m: int) -> tuple[Array, Array] | None:
        """Rows that pin an intercept, and how their held decisions move with the tube's width."""
        if m in self.solution.pins:
            return self.solution.pins[m]
        problem, (low, up) = self.problem, self.limits
        trains = np.flatnonzero(problem.trains[m] & (problem.weight > 0))
        ends = interval_ends(low[m][trains], up[m][trains], self.solution.decisions[m][trains])
        if ends is None:
            return None
        first, last = trains[ends[0]], trains[ends[1]]
        if first == last:
            return np.array([first]), np.zeros(1)
        # The lower end is y - epsilon of a row outside or y + epsilon of one at its bound; the upper end mirrors it.
        bound = self.at_bound[m]
        return np.array([first, last]), np.array(
            [1.0 if bound[first] else -1.0, -1.0 if bound[last] else 1.0]
        )

    def effects(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Rows at their bound move with it; free rows of a tube, and those that pin an intercept, with its width."""
        alpha, shifts = self.solution.alpha, {}
        direct = {"log_c": alpha * self.at_bound} if self.par.tunes("log_c") else {}
        if self.par.tunes("epsilon"):
            shift = -np.sign(alpha) * self.free
            for m, system in enumerate(self.systems):
                rows, slope = self.pinned(system)
                shift[m, rows] = slope
            shifts["epsilon"] = shift
        return direct, shifts

    def pinned(self, system: Any) -> tuple[Array, Array]:
        """Rows of a system that pin unpenalised coefficients, and how their decisions move with the tube's width."""
        slope = np.zeros(0) if system.slope is None else system.slope
        return system.rows[len(system.rows) - len(slope) :], slope
