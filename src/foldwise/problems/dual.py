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
from typing import Any

import numpy as np

from foldwise.linalg import Bordered
from foldwise.losses import EpsilonInsensitive, Hinge, Loss
from foldwise.problems.gram import ActiveSystem, PinnedSystem
from foldwise.problems.kernel import KernelPoint, KernelProblem
from foldwise.problems.parameters import Canonical
from foldwise.problems.written import Task, Written

__all__ = ["DualProblem", "FreeSystem", "Original", "PinnedSystem", "decision_limits", "interval_ends"]

EDGE = 1e-11
"""Distance from a bound, in units of the box, below which a coefficient is on it."""


class FreeSystem(ActiveSystem):
    """``K_FF`` of the free rows, factored; ``solve`` gives ``v, b`` with ``K v = r + b`` and ``sum v = total``."""

    @classmethod
    def build(cls, H: np.ndarray, rows: np.ndarray, D: Any, intercept: bool) -> FreeSystem:
        """Factor ``H = K_FF``, which is overwritten; dependent rows get a vanishing ridge. ``D`` is not used."""
        system, ones = Bordered.of(H, np.ones((len(rows), int(intercept)))), np.ones(len(rows))
        return cls(rows, ones, system.inner, system if intercept else None)


def decision_limits(
    y: np.ndarray, tube: Any, side: np.ndarray, free: np.ndarray, at_bound: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
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


def interval_ends(low: np.ndarray, up: np.ndarray, f: np.ndarray) -> tuple[int, int] | None:
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
    y: np.ndarray
    trains: list
    weight: np.ndarray | None
    class_weight: np.ndarray | None
    pairs: list
    place: np.ndarray


class DualProblem(KernelProblem):
    """Exact support vector machines on shared rows; parameters as in :class:`KernelProblem`.

    Parameters
    ----------
    original : Original, optional
        For scikit-learn's machines: an intercept that is not unique is where LIBSVM puts it. Without it, in the middle.
    """

    def __init__(self, *args, original: Original | None = None, **options) -> None:
        super().__init__(*args, **options)
        self.original = original

    def _check_loss(self, loss: Loss) -> None:
        if not isinstance(loss, (Hinge, EpsilonInsensitive)):
            raise ValueError(f"the dual form is for Hinge and EpsilonInsensitive; got {type(loss).__name__}")

    def written(self, theta: np.ndarray) -> Written:
        """Every task in arrays; refused unless the kernel is Gaussian with one width per feature."""
        X = self._gram.scaled_rows()
        if X is None:
            raise ValueError("the kernel is not an RBF with one gamma per feature")
        strength = self.strength(self.parameters(theta))
        tasks = []
        for m in range(self.n_tasks):
            train, y = strength[m] > 0, self.Y[self.target[m]]
            rows, cost = self.folds.validation[self.split[m]], np.asarray(self.validation_weight[m], float)
            tasks.append(Task(X[train], y[train], X[rows], y[rows], strength[m][train], cost))
        return Written(tasks, self.intercept, gaussian=True)

    def kinds(self, alpha: np.ndarray, par: Canonical, edge: float = EDGE) -> tuple[np.ndarray, np.ndarray]:
        """Masks (tasks, n) of the free rows and of those at their bound, or within ``edge`` of it, in units of it."""
        c = self.strength(par)
        size = np.abs(alpha)
        at_bound = (size >= c * (1 - edge)) & (c > 0)
        # Far below every bound, where C does not matter, coefficients are compared with the largest of them.
        unit = np.minimum(c, size.max(axis=1, keepdims=True, initial=0.0))
        free = (size > unit * edge) & ~at_bound & (c > 0)
        return free, at_bound

    def tube(self, par: Canonical) -> np.ndarray | None:
        """Tube widths, broadcastable to (tasks, n); None for the hinge."""
        return None if self.loss.task == "classification" else self.by_row(par.epsilon)

    def limits(self, alpha: np.ndarray, par: Canonical) -> tuple[np.ndarray, np.ndarray]:
        """Interval in which optimality wants every training row's decision: two arrays (tasks, n)."""
        y = np.broadcast_to(self.targets(), alpha.shape)
        return decision_limits(y, self.tube(par), np.sign(alpha), *self.kinds(alpha, par))

    def systems(self, point: KernelPoint) -> list:
        """The factored system of every task's free rows, or of the rows that pin its intercept; built once."""
        if not point.systems:
            gram = self.gram(point.theta, point.par)
            free, at_bound = self.kinds(point.alpha, point.par)
            low, up = self.limits(point.alpha, point.par)
            for m, mask in enumerate(free):
                rows = np.flatnonzero(mask)
                system: Any = FreeSystem.build(gram.block(rows), rows, None, self.intercept)
                if self.intercept and not len(rows):
                    system = self._pinned(gram, m, point, low[m], up[m], at_bound[m]) or system
                point.systems.append(system)
        return point.systems

    def _pinned(self, gram, m: int, point: KernelPoint, low, up, at_bound) -> PinnedSystem | None:
        if m in point.pins:
            return PinnedSystem.build(gram, self.n_rows, *point.pins[m])
        trains = np.flatnonzero(self.trains[m] & (self.weight > 0))
        ends = interval_ends(low[trains], up[trains], point.Z[m][trains])
        if ends is None:
            return None
        first, last = trains[ends[0]], trains[ends[1]]
        # The lower end is y - epsilon of a row outside or y + epsilon of one at its bound; the upper end mirrors it.
        slope = np.array([1.0 if at_bound[first] else -1.0, -1.0 if at_bound[last] else 1.0])
        rows = np.array([first, last])
        if first == last:
            rows, slope = rows[:1], np.zeros(1)
        return PinnedSystem.build(gram, self.n_rows, rows, slope)

    def flat_intercepts(self, point: KernelPoint) -> int:
        """In how many tasks the intercept is not unique."""
        free, _ = self.kinds(point.alpha, point.par)
        low, up = self.limits(point.alpha, point.par)
        count = 0
        for m in np.flatnonzero(~free.any(axis=1)) if self.intercept else ():
            rows = self.trains[m] & (self.weight > 0)
            room = (up[m] - point.Z[m])[rows].min() - (low[m] - point.Z[m])[rows].max()
            count += bool(room > 1e-9 * (1.0 + np.abs(self.Y).max()))
        return count

    def direct(self, point: KernelPoint) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Rows at their bound move with it; free rows of a tube, and those that pin an intercept, with its width."""
        par, tunes = point.par, self.parameters.tunes
        free, at_bound = self.kinds(point.alpha, par)
        direct = shift = None
        if tunes["log_c"]:
            direct = (point.alpha * at_bound)[:, :, None] * self.by_row(par.d_log_c)
        if tunes["epsilon"]:
            slope = -np.sign(point.alpha) * free
            for m, system in enumerate(self.systems(point)):
                rows, pinned = self._pins(system)
                slope[m, rows] = pinned
            shift = slope[:, :, None] * self.by_row(par.d_epsilon)
        return direct, shift

    def _pins(self, system: Any) -> tuple[np.ndarray, np.ndarray]:
        """Rows that pin unpenalised coefficients, and how their held decisions move with the tube's width."""
        pinned = isinstance(system, PinnedSystem)
        return (system.rows, system.slope) if pinned else (np.zeros(0, int), np.zeros(0))

    def residual(self, point: KernelPoint) -> np.ndarray:
        """Violation of the dual's optimality conditions in units of the decision, and of ``sum alpha``."""
        Z = self.gram(point.theta, point.par).product(point.alpha) + point.W[:, -1:]
        low, up = self.limits(point.alpha, point.par)
        gap = np.maximum(np.maximum(low - Z, Z - up), 0.0) * (self.trains & (self.weight > 0))
        scale = 1.0 if self.loss.task == "classification" else max(float(np.std(self.Y)), 1e-300)
        total = np.abs(point.alpha.sum(axis=1)) / np.maximum(np.abs(point.alpha).sum(axis=1), 1e-300)
        return gap.max(axis=1) / scale + (total if self.intercept else 0.0)

    row_residual = residual

    def n_kinks(self, point: KernelPoint, tol: float = 1e-9) -> int:
        """Rows that sit on the kink without being free: there the solution has two one-sided derivatives."""
        free, _ = self.kinds(point.alpha, point.par)
        if self.loss.task == "classification":
            at = np.abs(1.0 - self.targets() * point.Z) <= tol
        else:
            at = np.abs(np.abs(point.Z - self.targets()) - self.by_row(point.par.epsilon)) <= tol
        return int(np.sum(at & self.trains & ~free))
