r"""Kernel machines with any polyhedral loss: pinball, a stranger's, exactly.

As :mod:`foldwise.problems.dual`, with the coefficient of a row on a staircase instead of in the box of the hinge or the
tube: ``alpha_j`` is ``c_j v_j`` times minus the slope of its loss. A row is *held* on a step, whose height times
``c_j v_j`` is its coefficient, its decision between the kinks at the two ends of the step; or it is *free* on a kink,
between two steps. While ``theta`` moves a little no row changes its step or kink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foldwise.losses import Loss
from foldwise.problems.base import Array
from foldwise.problems.dual import EDGE, DualLinearization, DualProblem, Kinds, interval_ends
from foldwise.problems.gram import Gram
from foldwise.problems.kernel import KernelLinearization, KernelSolution
from foldwise.problems.parameters import Canonical
from foldwise.problems.pieces import Stairs
from foldwise.problems.written import Written

__all__ = ["RowStairs", "StaircaseLinearization", "StaircaseProblem"]


@dataclass(frozen=True, eq=False)
class RowStairs(Stairs):
    """The staircases of some rows."""

    kinks: Array
    ends: Array
    c: Array

    def take(self, rows: Array) -> RowStairs:
        """Those of these rows."""
        return RowStairs(self.kinks[rows], self.ends[rows], self.c[rows])

    def limits(self, on: Array, level: Array) -> tuple[Array, Array]:
        """Interval in which optimality wants each decision: its kink for rows ``on`` one, the step for the others."""
        index, far = np.arange(len(self.c)), np.full(len(self.c), np.inf)
        padded = np.column_stack([-far, self.kinks, far])
        low = padded[index, level + on]
        return low, np.where(on, low, padded[index, level + 1])


class StaircaseProblem(DualProblem):
    """Exact kernel machines with a polyhedral loss; parameters as in :class:`KernelProblem`."""

    form: ClassVar[str] = "staircase"

    def check_loss(self, loss: Loss) -> None:
        if not loss.polyhedral:
            raise ValueError(
                f"exact kernel machines are for polyhedral losses such as Pinball; got {type(loss).__name__}. "
                "Smooth losses go with KernelProblem"
            )

    def written(self, theta: Array) -> Written:
        """Refused: only the hinge and the tube can be."""
        raise ValueError(f"a kernel machine with {type(self.loss).__name__} loss cannot be written out")

    def stairs(self, m: int, par: Canonical) -> RowStairs:
        """The staircases of task ``m``; rows that do not train it have ``c = 0``."""
        steps, c = self.steps(m, par), self.strength(par)[m]
        return RowStairs(steps.kinks, steps.heights * c[:, None], c)

    def places(self, m: int, alpha: Array, par: Canonical, edge: float = EDGE) -> tuple[Array, Array]:
        """Which rows of a task are free, and on which kink; of the others, on which step they are held."""
        stairs = self.stairs(m, par)
        step = stairs.nearest_step(alpha)
        free = (stairs.c > 0) & (np.abs(alpha - stairs.on_step(step)) > edge * stairs.c)
        return free, np.where(free, stairs.kink_of(alpha), step)

    def kinds(self, alpha: Array, par: Canonical, edge: float = EDGE) -> tuple[Array, Array]:
        """Masks (tasks, n) of the free rows and of those that are held on a step."""
        free = np.stack([self.places(m, alpha[m], par, edge)[0] for m in range(self.n_tasks)])
        return free, ~free & (self.strength(par) > 0)

    def limits(self, alpha: Array, par: Canonical) -> tuple[Array, Array]:
        """Interval in which optimality wants every training row's decision: two arrays (tasks, n)."""
        pairs = [self.stairs(m, par).limits(*self.places(m, alpha[m], par)) for m in range(self.n_tasks)]
        return np.stack([low for low, _ in pairs]), np.stack([up for _, up in pairs])

    def coded(self, alpha: Array, par: Canonical) -> Array:
        """The places of all rows as numbers: twice the step, or one more than twice the kink; (tasks, n)."""
        pairs = [self.places(m, alpha[m], par) for m in range(self.n_tasks)]
        return np.stack([2 * level + free for free, level in pairs]).astype(np.int8)

    def solution(
        self, theta: Array, par: Canonical, alpha: Array, b: Array, gram: Gram, converged: Array, steps: int
    ) -> KernelSolution:
        """The solution with these coefficients and intercepts."""
        end = Kinds(gram.product(alpha) + b[:, None], b, self.coded(alpha, par))
        return KernelSolution(theta, par, end, end.Z, converged, steps, alpha, b)

    def linearize(self, solution: KernelSolution, workspace: Gram) -> KernelLinearization:
        return StaircaseLinearization(self, solution, workspace)

    def n_kinks(self, solution: KernelSolution, tol: float = 1e-9) -> int:
        """Rows that sit on a kink without being free: there the solution has two one-sided derivatives."""
        count = 0
        for m in range(self.n_tasks):
            stairs = self.stairs(m, solution.par)
            free, _ = self.places(m, solution.alpha[m], solution.par)
            near = np.abs(solution.decisions[m][:, None] - stairs.kinks).min(axis=1) <= tol
            count += int(np.sum(near & ~free & (stairs.c > 0)))
        return count


class StaircaseLinearization(DualLinearization):
    """The systems of the free rows; held ones move with their step."""

    problem: StaircaseProblem

    def _ends(self, m: int) -> tuple[Array, Array] | None:
        """Rows that pin an intercept; how they move is in :meth:`effects`."""
        trains = np.flatnonzero(self.problem.strength(self.par)[m] > 0)
        low, up = (limit[m][trains] for limit in self.limits)
        ends = interval_ends(low, up, self.solution.decisions[m][trains])
        if ends is None:
            return None
        rows = trains[list(ends)] if ends[0] != ends[1] else trains[[ends[0]]]
        return rows, np.zeros(len(rows))

    def effects(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Held rows move with ``c``; free ones, and those that pin an intercept, with their kinks."""
        alpha, problem, par = self.solution.alpha, self.problem, self.par
        direct = {"log_c": alpha * self.at_bound} if par.tunes("log_c") else {}
        shifts = {name: np.zeros_like(alpha) for name in problem.loss.tunable if par.tunes(name)}
        for m, system in enumerate(self.systems) if shifts else ():
            free, level = problem.places(m, alpha[m], par)
            kink = level.copy()
            pinned, _ = self.pinned(system)
            if len(pinned) == 2:
                kink[pinned[0]] -= 1  # the first is held from below, by the kink at the left end of its step
            rows = np.union1d(np.flatnonzero(free), pinned if len(pinned) == 2 else np.zeros(0, int))
            for name, moves in problem.steps(m, par).moves.items():
                if name in shifts:
                    shifts[name][m, rows] = moves[rows, kink[rows]]
        return direct, shifts
