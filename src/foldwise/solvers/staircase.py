"""Kernel machines with a polyhedral loss, to rounding: active sets on staircases.

Every row is held on a step of its staircase or free on a kink. A round solves for the free rows and corrects all rows
at once: free ones that left their range are held, held ones with a decision beyond the ends of their step are let go.
From the places of a nearby solution that mostly ends after a few rounds. Without one, and where it does not end, the
same problem with a ridge on the kernel matrix comes first, which gets smaller and smaller; the last resort takes one
bound after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.base import Array
from foldwise.problems.dual import EDGE, FreeSystem, Kinds, interval_ends
from foldwise.problems.gram import DenseGram, submatrix
from foldwise.problems.kernel import KernelSolution
from foldwise.problems.staircase import RowStairs, StaircaseProblem
from foldwise.solvers.active_set import NEAR, Finished

__all__ = ["ActiveSteps", "StairRows"]


@dataclass(frozen=True)
class ActiveSteps:
    """Kernel machines with any polyhedral loss.

    Parameters
    ----------
    tol : float
        Violation of optimality, in units of the target's spread, up to which a task counts as converged; what is left
        is rounding mostly.
    max_rounds : int
        Rounds that correct all rows at once, for each ridge.
    ridges : int
        How many ridges come before none: the first is the trace of the kernel matrix, each next a tenth of it.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"staircase"})

    tol: float = 1e-6
    max_rounds: int = 30
    ridges: int = 9

    @np.errstate(over="ignore", invalid="ignore")
    def solve(
        self, problem: StaircaseProblem, theta: Array, state: Kinds, workspace: DenseGram
    ) -> KernelSolution:
        """Solve every task at ``theta``, from the places of rows that are expected there, or from nothing."""
        par = problem.parameters(theta)
        gram = workspace.at(par.log_kernel[0])
        alpha, b = np.zeros((problem.n_tasks, problem.n_rows)), np.zeros(problem.n_tasks)
        converged, steps = np.ones(problem.n_tasks, dtype=bool), 0
        for m in range(problem.n_tasks):
            look_at_clock()
            stairs = problem.stairs(m, par)
            rows = np.flatnonzero(stairs.c > 0)
            task = StairRows(
                submatrix(gram.K, rows).astype(float, copy=False), stairs.take(rows), problem.intercept
            )
            start = None if state.kinds is None else (state.kinds[m][rows], state.Z[m][rows])
            done = self.fit(task, start)
            alpha[m, rows], b[m] = done.alpha, done.b
            steps += done.rounds
            y = problem.Y[problem.target[m]]
            scale = 1.0 if problem.loss.task == "classification" else float(np.std(y))
            converged[m] = done.gap <= self.tol * max(scale, 1e-3 * float(np.abs(y).max()))
        return problem.solution(theta, par, alpha, b, gram, converged, steps)

    def fit(self, task: StairRows, start: tuple[Array, Array] | None) -> Finished:
        """The solution of one task, from the places and decisions of a nearby one if there is one."""
        if start is not None:
            task.place(*start)
            if task.correct(0.0, self.max_rounds):
                return task.finished()
        task.place_at_zero()
        best = task.alpha.copy()
        for k in range(self.ridges):
            if task.correct(float(np.trace(task.K)) * 0.1**k, self.max_rounds):
                best = task.alpha.copy()
            else:
                task.begin(best)
        if not task.correct(0.0, self.max_rounds):
            task.begin(best)
            task.descend()
            slow = task.finished()
            task.begin(slow.alpha)  # rows at an end of their range but for rounding are held there
            if not task.correct(0.0, self.max_rounds):
                return slow
        return task.finished()


class StairRows:
    """Training rows while they are held and let go.

    Minimised is ``1/2 alpha'K alpha`` plus what the staircases ask for, with ``sum alpha = 0`` for an intercept.

    Attributes
    ----------
    on : ndarray of bool
        Free rows.
    level : ndarray of int
        The kink of free rows, the step of held ones.
    alpha, b, gap, rounds : as in :class:`~foldwise.solvers.active_set.Finished`
    """

    def __init__(self, K: Array, stairs: RowStairs, intercept: bool) -> None:
        self.K, self.p, self.intercept = K, stairs, intercept
        self.b, self.gap, self.rounds = 0.0, np.inf, 0
        self.place_at_zero()

    def place_at_zero(self) -> None:
        """Every coefficient zero: on the step of that height, or free on the kink where the slope turns."""
        self.begin(np.zeros(len(self.p.c)))

    def begin(self, alpha: Array) -> None:
        """Begin with these coefficients."""
        self.alpha = alpha.copy()
        step = self.p.nearest_step(alpha)
        self.on = np.abs(alpha - self.p.on_step(step)) > EDGE * self.p.c
        self.level = np.where(self.on, self.p.kink_of(alpha), step)
        self.alpha = np.where(self.on, alpha, self.p.on_step(step))

    def place(self, codes: Array, z: Array) -> None:
        """Begin where rows were, but for held ones whose expected decision tells that they are on another step."""
        self.on, self.level = codes % 2 == 1, (codes // 2).astype(int)
        near = NEAR * (1.0 + np.abs(z))
        least, most = self.p.levels(z - near), self.p.levels(z + near)
        self.level = np.where(self.on, self.level, np.clip(self.level, least, most))
        self.alpha = np.where(self.on, 0.0, self.p.on_step(np.where(self.on, 0, self.level)))

    def finished(self) -> Finished:
        """What was found."""
        return Finished(self.alpha, self.b, self.gap, self.rounds)

    def rounding(self) -> float:
        """What rounding may do to a decision."""
        size = float(np.abs(self.K.diagonal()).max()) * float(np.abs(self.alpha).sum())
        return 1e-14 * (size + float(np.abs(self.p.kinks).max()))

    def wrong(self, f: Array) -> tuple[Array, Array]:
        """How far decisions lie below and above where optimality wants them."""
        low, up = self.p.limits(self.on, self.level)
        return low - f - self.b, f + self.b - up

    def aim(self, ridge: float) -> tuple[Array, Array]:
        """The free rows, and the step that puts their decisions on their kinks; the intercept goes there at once."""
        rows = np.flatnonzero(self.on)
        if not len(rows):
            return rows, np.zeros(0)
        H = self.K[np.ix_(rows, rows)]
        H.flat[:: len(H) + 1] += ridge
        f = self.alpha @ self.K + ridge * self.alpha
        system = FreeSystem.build(H, rows, None, self.intercept)
        pull = self.p.limits(self.on, self.level)[0][rows] - f[rows] - self.b
        step, shift = system.solve(pull, -float(self.alpha.sum()))
        self.b -= float(shift)
        return rows, step

    def to_the_middle(self, f: Array) -> bool:
        """Without free rows, put the intercept in the middle of its interval; whether the coefficients balance."""
        low, up = self.p.limits(self.on, self.level)
        ends = interval_ends(low, up, f)
        if ends is None or not self.balanced():
            return False
        self.b = 0.5 * float((low - f)[ends[0]] + (up - f)[ends[1]])
        return True

    def balance(self, f: Array) -> None:
        """Move the intercept, at these decisions without it, to where the coefficients sum to zero.

        Every row goes to its step there; the one whose kink the sum crosses zero at is free.
        """
        order = np.argsort(self.p.kinks - f[:, None], axis=None)
        row, kink = np.unravel_index(order, self.p.kinks.shape)
        totals = self.p.ends[:, 0].sum() - np.cumsum(self.p.ends[row, kink] - self.p.ends[row, kink + 1])
        size = float(np.abs(self.p.ends).max(axis=1).sum())
        last = min(int(np.sum(totals > 1e-12 * size)), len(totals) - 1)
        self.b = float((self.p.kinks - f[:, None]).ravel()[order[last]])
        passed = np.zeros(len(f), dtype=int)
        np.add.at(passed, row[:last], 1)
        self.on, self.level = np.zeros(len(f), dtype=bool), passed
        self.on[row[last]] = totals[last] < -1e-12 * size
        self.level[row[last]] += not self.on[row[last]]
        self.alpha = self.p.on_step(self.level)

    def balanced(self) -> bool:
        """Whether coefficients sum to zero but for rounding, where they must."""
        return not self.intercept or abs(float(self.alpha.sum())) <= 1e-12 * float(np.abs(self.alpha).sum())

    def correct(self, ridge: float, max_rounds: int, patience: int = 6) -> bool:
        """Solve for the free rows and correct all others at once, until none is wrong; whether that succeeded."""
        fewest, waited = len(self.alpha) + 1, 0
        for _ in range(max_rounds):
            look_at_clock()
            self.rounds += 1
            # 1. The free rows go to their kinks, whatever their ranges say.
            rows, step = self.aim(ridge)
            self.alpha[rows] += step
            f = self.alpha @ self.K + ridge * self.alpha
            if not len(rows) and self.intercept and not self.to_the_middle(f):
                waited += 1
                if waited > patience:
                    return False
                self.balance(f)
                continue
            # 2. Which rows are in the wrong place?
            tol = self.rounding() + 1e-14 * ridge * float(np.abs(self.alpha).max(initial=0.0))
            below, above = self.wrong(f)
            wrong = np.maximum(below, above)
            loose = ~self.on & (wrong > tol)
            low, high = self.p.range_of(rows, self.level[rows])
            edge = EDGE * self.p.c[rows]
            over, under = self.alpha[rows] > high - edge, self.alpha[rows] < low + edge
            changes = int(loose.sum() + over.sum() + under.sum())
            self.gap = float(wrong.max(initial=0.0))
            if not changes and self.balanced() and self.gap <= tol:
                return True
            waited = 0 if changes < fewest and changes else waited + (1 if changes else 2)
            fewest = min(fewest, changes) if changes else fewest
            if waited > patience:
                return not changes and self.balanced() and ridge == 0.0
            # 3. Put them right.
            self.hold(rows[over], left=True)
            self.hold(rows[under & ~over], left=False)
            self.let_go(loose, below > 0)
        return False

    def hold(self, rows: Array, left: bool) -> None:
        """Free rows go to the step on this side of their kink."""
        before, after = self.p.steps_at(rows, self.level[rows])
        self.level[rows] = before if left else after
        self.on[rows] = False
        self.alpha[rows] = self.p.ends[rows, self.level[rows]]

    def let_go(self, loose: Array, low: Array) -> None:
        """Held rows go on a kink: that at the left end of their step where the decision is too low, else the other."""
        self.level = np.where(loose & low, self.level - 1, self.level)
        self.on |= loose

    def descend(self) -> None:
        """One bound after the other: slow, and it ends."""
        repeats = 0
        for _ in range(500 + 20 * len(self.alpha)):
            look_at_clock()
            self.rounds += 1
            rows, step = self.aim(0.0)
            if len(rows):
                # 1. As far towards the kinks as the first range allows, which then holds its row.
                low, high = self.p.range_of(rows, self.level[rows])
                room = np.where(step > 0, high - self.alpha[rows], low - self.alpha[rows])
                with np.errstate(divide="ignore", invalid="ignore"):
                    reach = np.where(step != 0, room / step, np.inf)
                t = max(float(reach.min()), 0.0)
                self.alpha[rows] += min(t, 1.0) * step
                if t < 1.0:
                    hit = reach <= t
                    self.hold(rows[hit & (step > 0)], left=True)
                    self.hold(rows[hit & (step < 0)], left=False)
                    continue
            f = self.alpha @ self.K
            if not len(rows) and self.intercept:
                self.to_the_middle(f)
            below, above = self.wrong(f)
            wrong, tol = np.maximum(below, above), self.rounding()
            if (
                (np.abs(wrong[rows]).max(initial=0.0) > tol or not self.balanced())
                and repeats < 2
                and len(rows)
            ):
                repeats += 1
                continue
            # 2. Held rows whose decisions are on the wrong side are let go.
            repeats, self.gap = 0, float(wrong.max(initial=0.0))
            loose = ~self.on & (wrong > max(tol, 0.1 * self.gap))
            if not loose.any():
                return
            self.let_go(loose, below > 0)
