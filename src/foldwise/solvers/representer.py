"""Newton's method for kernel problems in representer form, on the rows with curvature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.base import Array
from foldwise.problems.flat import middle
from foldwise.problems.gram import ActiveSystem, Gram
from foldwise.problems.kernel import Decisions, KernelProblem, KernelSolution
from foldwise.problems.weights import Pins
from foldwise.result import KKT_TOL
from foldwise.solvers.line_search import step_length

__all__ = ["RepresenterNewton"]


@dataclass(frozen=True)
class RepresenterNewton:
    """Newton on the active set, all tasks of a kernel problem in lockstep.

    The loss is linearised at decisions ``z``: ``alpha = alpha0 - D (z_new - z)`` with ``alpha0 = -c l'(z)``; then
    ``z_new = K alpha + b`` is a linear system on the active rows. It is solved for the change of ``alpha``, so that
    errors of rounding shrink from step to step. A step that overshoots is cut by an exact line search along it, which
    needs no product with ``K``. Where hardly any row is curved the intercept goes to where the slopes balance.

    Parameters
    ----------
    tol : float
        ``||alpha + c l'(K alpha + b)||`` relative to ``||alpha||`` at which a task is finished.
    max_iter : int
    """

    needs: ClassVar[frozenset[str]] = frozenset({"representer", "smooth"})

    tol: float = 1e-9
    max_iter: int = 100

    @np.errstate(over="ignore", invalid="ignore")
    def solve(
        self, problem: KernelProblem, theta: Array, state: Decisions, workspace: Gram
    ) -> KernelSolution:
        """Solve every task at ``theta``, starting from decisions."""
        par = problem.parameters(theta)
        gram = workspace.at(par.log_kernel[0])
        terms = _Terms(problem.loss_at(par), problem.targets(), problem.strength(par), problem.intercept)
        at = _Place(np.zeros((problem.n_tasks, problem.n_rows)), state.b.copy(), state.Z.copy())
        steps, unfinished = 0, np.zeros(problem.n_tasks, dtype=bool)
        for tasks, leaders in _order(problem, state):
            if leaders is not None:
                at.Z[tasks], at.b[tasks] = at.Z[leaders], at.b[leaders]
            more, left = self._descend(gram, terms, at, tasks)
            steps += more
            unfinished[left] = True
        pins: Pins = {}
        for m in np.flatnonzero(~unfinished).tolist() if terms.intercept else ():
            loss, y, c = terms.of(m)
            found = middle(loss, y, c, at.Z[m], lambda alpha: gram.product(alpha[None])[0])
            if found is not None:
                at.alpha[m], at.b[m] = found.alpha, found.b
                pins[m] = found.rows, found.slope
        end = Decisions(gram.product(at.alpha) + at.b[:, None], at.b)
        # Steps add to decisions. What kernels that are huge make of rounded coefficients shows in these alone.
        converged = ~unfinished & (problem.violation(par, at.alpha, end.Z) <= KKT_TOL)
        return KernelSolution(theta, par, end, end.Z, converged, steps, at.alpha, at.b, pins)

    def _descend(self, gram: Gram, terms: _Terms, state: _Place, tasks: Array) -> tuple[int, Array]:
        """Solve some tasks in lockstep from their decisions; the number of steps, and tasks that are not finished."""
        n = state.Z.shape[1]
        floor = 1e-10 * np.linalg.norm(terms.c, axis=1)
        # 1. From decisions to a consistent point (alpha, b, z): zero, or the end of a first step from a warm start.
        self._enter(gram, terms, state, tasks)
        live, lost, steps = tasks, tasks[:0], 0
        slopes = terms.slopes(state.Z[live], live)
        while True:
            # 2. Which tasks are finished?
            alpha = state.alpha[live]
            gap = np.linalg.norm(alpha + slopes, axis=1)
            if terms.intercept:
                gap += np.abs(slopes.sum(axis=1)) / np.sqrt(n)
            size = np.linalg.norm(alpha, axis=1)
            wanting = gap > self.tol * np.maximum(size, floor[live])
            if terms.intercept:
                wanting |= terms.intercept_is_open(state.Z[live], slopes, live)
            live, slopes = live[wanting], slopes[wanting]
            steps += 1
            if not len(live) or steps > self.max_iter:
                return steps, np.concatenate([live, lost])
            # 3. A Newton step of the others.
            far = gap[wanting] > 1e-2 * size[wanting]
            d_alpha, d_b = self._step(gram, terms, state, slopes, live, secant=size[wanting] == 0, far=far)
            # 4. In full, or cut where it overshoots; a step that leads nowhere ends its task.
            slopes, moved = self._move(gram, terms, state, live, slopes, d_alpha, d_b)
            lost, live, slopes = np.concatenate([lost, live[~moved]]), live[moved], slopes[moved]

    def _move(
        self,
        gram: Gram,
        terms: _Terms,
        state: _Place,
        live: Array,
        slopes: Array,
        d_alpha: Array,
        d_b: Array,
    ) -> tuple[Array, Array]:
        """Take steps in full, or to the objective's minimum along those that overshoot.

        With ``K d_alpha = dz - d_b`` the derivative is ``(alpha + t d_alpha)'(dz - d_b) + sum c l'(z + t dz) dz``.
        The slopes there, and which tasks moved: not those whose numbers overflow, nor those whose step rounding has
        turned uphill and away from where slopes and coefficients agree.
        """
        push = gram.product(d_alpha)
        dZ = push + d_b[:, None]
        linear, quadratic = np.sum(state.alpha[live] * push, axis=1), np.sum(d_alpha * push, axis=1)
        first = linear + np.sum(slopes * dZ, axis=1)
        before = np.linalg.norm(state.alpha[live] + slopes, axis=1)
        slopes = terms.slopes(state.Z[live] + dZ, live)
        last = linear + quadratic + np.sum(slopes * dZ, axis=1)
        after = np.linalg.norm(state.alpha[live] + d_alpha + slopes, axis=1)
        moved = np.isfinite(first) & np.isfinite(last) & ((first < 0) | ~(after > LOST * before))
        t = np.where(moved, 1.0, 0.0)
        cut = np.flatnonzero(moved & (first < 0) & (last > OVERSHOOT * np.abs(first)))
        for i in cut:
            own, y, c = terms.of(live[i])
            z, weight = state.Z[live[i]], c * dZ[i]
            along = [own, y, z, dZ[i], weight, linear[i], quadratic[i]]
            t[i] = step_length(partial(_derivative, *along), first[i], last[i])
        going = live[moved]
        state.alpha[going] += t[moved, None] * d_alpha[moved]
        state.b[going] += t[moved] * d_b[moved]
        state.Z[going] += t[moved, None] * dZ[moved]
        if len(cut):
            slopes[cut] = terms.slopes(state.Z[live[cut]], live[cut])
        return slopes, moved

    def _enter(self, gram: Gram, terms: _Terms, state: _Place, tasks: Array) -> None:
        """A consistent point near the decisions of these tasks; zero for tasks that no step from there serves.

        Decisions of other rows or of another fold may be far from a task's own. Where Newton's step from them leads
        to slopes that have nothing in common with its coefficients, a step with secant curvature is taken instead.
        """
        warm = tasks[state.Z[tasks].any(axis=1) | (state.b[tasks] != 0)]
        if not len(warm):
            return
        origin = _Place(np.zeros_like(state.alpha), state.b.copy(), state.Z.copy())
        state.alpha[warm], state.b[warm], state.Z[warm] = 0.0, 0.0, 0.0
        for secant in (False, True):
            if not len(warm):
                return
            slopes = terms.slopes(origin.Z[warm], warm)
            alpha, shift = self._step(gram, terms, origin, slopes, warm, fresh=True, secant=secant)
            b, KA = origin.b[warm] + shift, gram.product(alpha)
            Z = KA + b[:, None]
            values = 0.5 * np.sum(alpha * KA, axis=1) + terms.values(Z, warm)
            gap = np.linalg.norm(alpha + terms.slopes(Z, warm), axis=1)
            hit = secant | (gap <= MISSED * np.linalg.norm(alpha, axis=1))
            served = hit & (values <= terms.values(np.zeros_like(Z), warm))
            near = warm[served]
            state.alpha[near], state.b[near], state.Z[near] = alpha[served], b[served], Z[served]
            warm = warm[~served]

    def _step(
        self,
        gram: Gram,
        terms: _Terms,
        state: _Place,
        slopes: Array,
        live: Array,
        fresh: bool = False,
        secant: Any = False,
        far: Any = None,
    ) -> tuple[Array, Array]:
        """Changes ``(d_alpha, d_b)`` of the Newton steps of the live tasks.

        With ``r = alpha + c l'(z)`` and ``d_alpha = -r - D dz`` the decisions change by ``dz = K d_alpha + d_b``, and
        ``alpha + d_alpha`` sums to zero. ``fresh``: ``alpha`` is zero and ``Z`` not ``K alpha + b``.
        ``secant``: which tasks (or all, or none) take the curvature of :meth:`_Terms.curvatures` for far targets.
        ``far``: which are not near their solution; near it a change refines what rounding has left.
        """
        far = np.ones(len(live), bool) if far is None else far
        curvatures, c = terms.curvatures(state.Z[live], live, secant), terms.c[live]
        curvatures[curvatures <= 1e-14 * c.max(axis=1, keepdims=True)] = 0.0
        r = state.alpha[live] + slopes
        reach = -gram.product(r)
        if fresh:
            reach += state.b[live][:, None] - state.Z[live]
        out, shift = -r, np.zeros(len(live))
        for i, m in enumerate(live):
            look_at_clock()
            rows = np.flatnonzero(curvatures[i])
            system = gram.system(rows, curvatures[i][rows], terms.intercept)
            total = -float(slopes[i].sum())
            if terms.intercept and system.mass <= 1e-12 * c[i].sum():
                # No curvature: balance the slopes, or when they are balanced go to where they say.
                own, row, _ = terms.of(m)
                move = _balance(own, row, c[i], state.Z[m])
                if abs(move) > 1e-6 * (1.0 + np.abs(state.Z[m]).max()):
                    out[i], shift[i] = 0.0, move
                continue
            if far[i] and system.stiffness > STIFF:
                alpha, b = self._afresh(gram, system, state.Z[m], slopes[i], curvatures[i], rows)
                out[i], shift[i] = alpha - state.alpha[m], b - state.b[m]
                continue
            Du, shift[i] = system.solve(reach[i][rows], total)
            out[i, rows] -= Du
        return out, shift

    @staticmethod
    def _afresh(
        gram: Gram, system: ActiveSystem, z: Array, slopes: Array, curvatures: Array, rows: Array
    ) -> tuple[Array, float]:
        """Coefficients and intercept that solve the model at decisions ``z``, not as a change of others.

        Active rows want ``alpha / D + K alpha + b = z - c l'/D``, the others have ``alpha = -c l'``. Where the kernel
        is huge beside the regularisation, a change is the small difference of large numbers, and the kernel multiplies
        its rounding.
        """
        alpha = -slopes
        alpha[rows] = 0.0
        rest = gram.product(alpha[None])[0][rows]
        goal = z[rows] - slopes[rows] / curvatures[rows] - rest
        alpha[rows], b = system.solve(goal, -float(alpha.sum()))
        return alpha, -float(b)


@dataclass(eq=False)
class _Place:
    """Where the tasks are: coefficients, intercepts, decisions."""

    alpha: Array
    b: Array
    Z: Array


@dataclass(frozen=True, eq=False)
class _Terms:
    """The loss of every task, with its targets and strengths ``c``."""

    loss: Any
    y: Array
    c: Array
    intercept: bool

    def of(self, m: int) -> tuple[Any, Array, Array]:
        """Loss, targets and strengths of one task."""
        return _own(self.loss, m), self.y[0 if len(self.y) == 1 else m], self.c[m]

    def _some(self, tasks: Array) -> tuple[Any, Array]:
        return _own(self.loss, tasks), self.y if len(self.y) == 1 else self.y[tasks]

    def values(self, Z: Array, tasks: Array) -> Array:
        """``sum c l(z)`` of tasks at decisions ``Z`` (tasks, n)."""
        loss, y = self._some(tasks)
        return np.sum(self.c[tasks] * loss.value(Z, y), axis=1)

    def slopes(self, Z: Array, tasks: Array) -> Array:
        """``c l'(z)`` of tasks at decisions ``Z`` (tasks, n)."""
        loss, y = self._some(tasks)
        return loss.grad(Z, y) * self.c[tasks]

    def intercept_is_open(self, Z: Array, slopes: Array, tasks: Array) -> Array:
        """Which tasks have hardly any curvature, so that slopes that nearly balance are far from where they do."""
        off, mass = np.abs(slopes.sum(axis=1)), self.curvatures(Z, tasks).sum(axis=1)
        far = off > 1e-6 * mass * (1.0 + np.abs(Z).max(axis=1, initial=0.0))
        return far & (off > BALANCED * np.abs(slopes).sum(axis=1))

    def curvatures(self, Z: Array, tasks: Array, secant: Any = False) -> Array:
        """``c l''(z)`` of tasks at decisions ``Z``.

        ``secant`` tasks take the mean curvature between decision and target where that is larger. A hinge has none at
        a far decision, and a step that knows of none goes too far.
        """
        loss, y = self._some(tasks)
        curvatures = loss.hess(Z, y)
        if np.any(secant):
            wanted = np.reshape(secant, (-1, 1))
            slopes = loss.grad(Z, y)
            near = (slopes != 0) | (np.abs(y - Z) < NEAR)
            way = np.where(wanted & near & (np.abs(y - Z) > AT_TARGET), y - Z, np.inf)
            curvatures = np.maximum(curvatures, (loss.grad(y, y) - slopes) / way)
        return curvatures * self.c[tasks]


def _order(problem: KernelProblem, state: Decisions) -> Iterator[tuple[Array, Array | None]]:
    """Tasks in the order in which they are solved, and for the later ones whose decisions they start from.

    Folds share most of their rows. Where there is nothing to start from, the first fold is solved alone and the others
    from its solution.
    """
    tasks = np.arange(problem.n_tasks)
    cold = ~(state.Z.any(axis=1) | (state.b != 0)) & (problem.split > 0)
    yield tasks[~cold], None
    if cold.any():
        yield tasks[cold], tasks[cold] - problem.split[cold]


MISSED = 1.5
"""Distance of a first step's coefficients from their slopes, in units of their size, at which it missed."""
AT_TARGET = 1e-3
"""Distance to the target below which a chord of the slope says nothing."""
STIFF = 1e13
"""Size of the system ``I + D^1/2 K D^1/2`` beyond which Newton's steps are solved for coefficients, not for changes."""
NEAR = 2.0
"""A row that its decision satisfies takes part in a step with secant curvature if it is this near to its label."""
BALANCED = 1e-12
"""Share of the slopes' sizes up to which their sum is rounding."""
LOST = 10.0
"""Growth of the distance between slopes and coefficients over a step uphill at which a task is given up."""
OVERSHOOT = 0.1
"""Share of the first derivative along a step that its end may have with the other sign."""


def _own(loss: Any, m: Any) -> Any:
    """The loss of one task, or of some."""
    if not loss.tunable:
        return loss
    own = {name: getattr(loss, name) for name in loss.tunable}
    return loss.replace(**{name: value[m] for name, value in own.items() if np.ndim(value) == 2})


def _balance(loss: Any, y: Array, c: Array, z: Array, rounds: int = 30) -> float:
    """Change of the intercept to the middle of where ``sum c l'(z)`` is zero to rounding, by bisection."""

    def total(shift: float) -> float:
        return float(c @ loss.grad(z + shift, y))

    trains = c > 0
    small = BALANCED * float(c @ np.abs(loss.grad(z, y)))
    far = 4.0 * float(np.abs(z[trains]).max() + np.abs(y[trains]).max() + 1.0)
    ends = []
    for side in (-1.0, 1.0):
        inner, outer = -side * far, side * far
        if side * total(outer) > small:
            for _ in range(rounds):
                middle = 0.5 * (inner + outer)
                inner, outer = (inner, middle) if side * total(middle) > small else (middle, outer)
        ends.append(outer)
    return 0.5 * (ends[0] + ends[1])


def _derivative(
    loss: Any, y: Array, z: Array, dz: Array, weight: Array, linear: float, quadratic: float, t: float
) -> float:
    """Derivative of the objective along a step."""
    return linear + t * quadratic + float(weight @ loss.grad(z + t * dz, y))
