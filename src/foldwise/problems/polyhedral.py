r"""Linear machines with polyhedral losses (hinge, tube, pinball, a stranger's), exactly, with boxes.

Task ``m = (target k, split t)`` minimises over ``w`` with ``lower <= w <= upper``

.. math::  \sum_d \lambda_d \left(\tfrac{1 - \rho}{2} w_d^2 + \rho |w_d|\right) + \tfrac{\nu}{2} \|w - w^0\|^2
           + \sum_{j \in \mathrm{train}(t)} c_j v_j \, \ell(x_j'w + b, y_j; \varepsilon_j)

with ``rho = l1_ratio`` (0: the classical machine), ``nu`` the proximity to reference weights (bennett2006 (2)) and a
free intercept if there is one. Everything is kept in the stored columns of the design (see
:class:`foldwise.design.Design`).

At a solution every training row is left of, on, or right of a kink of its loss, and every weight is free or held at a
bound (or at zero by the L1 penalty). While ``theta`` moves a little nothing changes kind, so the free weights and the
dual variables of the rows on kinks follow from one linear system (:class:`foldwise.problems.pieces.KinkSystem`), whose
transpose is the adjoint. Where a multiplier vanishes the solution has two one-sided derivatives: such pairs are counted
by :meth:`PolyhedralProblem.n_kinks`, and the derivative is that of the piece whose active set was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from foldwise.design import Design
from foldwise.losses import Loss
from foldwise.penalties import Quadratic
from foldwise.problems.base import Array, Linearization, Slopes, Solution, State, TaskData
from foldwise.problems.parameters import Canonical
from foldwise.problems.pieces import AT_LOWER, AT_UPPER, ActiveSet, KinkSystem, Pieces, box_unit
from foldwise.problems.weights import WeightProblem
from foldwise.problems.written import Task, Written

__all__ = ["ActiveSets", "KinkLinearization", "PolyhedralProblem", "PolyhedralSolution"]

EDGE = 1e-9
"""Distance of a dual variable from the end of its range, in units of ``c``, below which it is on it."""


@dataclass(frozen=True, eq=False)
class ActiveSets(State):
    """Weights (tasks, columns), and the active sets as :class:`ActiveSet` has them; None before the first solution."""

    W: Array
    on: Array | None = None
    level: Array | None = None
    held: Array | None = None

    @classmethod
    def of(cls, W: Array, active: Sequence[ActiveSet]) -> ActiveSets:
        """From the active set of every task."""
        on, level, held = (np.stack([getattr(a, name) for a in active]) for name in ("on", "level", "held"))
        return cls(W, on, level, held)

    def active(self, m: int) -> ActiveSet | None:
        """The active set of one task."""
        if self.on is None or self.level is None or self.held is None:
            return None
        return ActiveSet(self.on[m], self.level[m], self.held[m])

    def moved(self, change: Array) -> ActiveSets:
        """Rows and columns keep their kinds."""
        return ActiveSets(self.W + change, self.on, self.level, self.held)


class Ended(Protocol):
    """What a solver found for one task."""

    w: Array
    Z: Array
    alpha: Array
    active: ActiveSet
    rounds: int
    gap: float


@dataclass(frozen=True, eq=False)
class PolyhedralSolution(Solution):
    """Exact solutions of all tasks at one ``theta``, primal and dual, in stored columns.

    Attributes
    ----------
    alpha : ndarray, shape (tasks, n)
        Dual variables: minus the slope of each row's loss times its weight, zero off the training set. For the hinge
        ``y_j alpha_j`` is in ``[0, c_j]``; for losses of residuals ``alpha_j`` is positive below and negative above.
    gamma : ndarray, shape (tasks, columns)
        Multipliers of the bounds: positive at the upper one, negative at the lower one, zero between.
    gap : ndarray, shape (tasks,)
        Duality gaps.
    active : list of ActiveSet
        With rows and columns on the side that derivatives use.
    pins : list
        Per task the two rows that hold an intercept in the middle of its interval, with their kinks, where no row on a
        kink does; None otherwise.
    """

    alpha: Array
    gamma: Array
    gap: Array
    active: list[ActiveSet]
    pins: list[Any]

    @property
    def W(self) -> Array:
        """Weights; the intercept, if any, is the last column: shape (tasks, columns)."""
        weights: Array = self.state.W
        return weights


class PolyhedralProblem(WeightProblem):
    """Exact linear support vector machines on shared rows.

    Parameters
    ----------
    data, design, penalty : as in :class:`foldwise.problems.weights.WeightProblem`; the loss is polyhedral.
    l1_ratio : float
        Share of the L1 norm in the penalty: 0 quadratic, 1 L1, between them the elastic net.
    reference : ndarray, shape (features,), optional
        ``w0`` in the user's columns; zero by default, and where it is tuned.
    """

    state_type: ClassVar[Any] = ActiveSets
    form: ClassVar[str] = "pieces"

    def __init__(
        self,
        data: TaskData,
        design: Design,
        penalty: Quadratic,
        l1_ratio: float = 0.0,
        reference: Array | None = None,
    ) -> None:
        super().__init__(data, design, penalty)
        if self.penalty.form is not None:
            raise ValueError(
                "a polyhedral loss needs a free intercept or none; a penalised one is not supported"
            )
        self.l1_ratio = float(l1_ratio)
        self.reference = self.stored(reference)

    def check_loss(self, loss: Loss) -> None:
        if not loss.polyhedral:
            raise ValueError(
                f"the exact linear machine is for polyhedral losses such as Hinge, EpsilonInsensitive and Pinball; got "
                f"{type(loss).__name__}. Smooth losses go with LinearProblem"
            )

    def workspace(self) -> None:
        """Nothing is kept between solves: the state has the active sets."""
        return None

    def start(self, leader: tuple[Any, Any] | None = None) -> ActiveSets:
        return ActiveSets(np.zeros((self.n_tasks, self.n_columns)))

    # The training problem of one task.

    def pieces(self, m: int, par: Canonical) -> Pieces:
        """Task ``m`` as a piecewise quadratic function."""
        steps, c = self.steps(m, par), self._strength(m, par)
        ridge, near, l1 = self._penalties(m, par)
        q = ridge + near
        centre = np.divide(near * self.pulled_to(m, par), q, out=np.zeros_like(q), where=q > 0)
        lower, upper = self.bounds(m, par)
        pad = (0, self.n_columns - self.design.n_features)
        return Pieces(
            self.design,
            steps.kinks,
            steps.heights * c[:, None],
            c,
            np.pad(q, pad),
            np.pad(centre, pad),
            np.pad(l1, pad),
            np.pad(lower, pad, constant_values=-np.inf),
            np.pad(upper, pad, constant_values=np.inf),
        )

    def _strength(self, m: int, par: Canonical) -> Array:
        """``c_j v_j`` times how often a row trains the task: zero off its training rows."""
        return par.c[m][self.folds.cell] * self.weight * self.folds.count[self.split[m]]

    def _penalties(self, m: int, par: Canonical) -> tuple[Array, Array, Array]:
        """Curvature of the ridge and of the proximity term, and weights of the L1 norm, per feature."""
        k, scale = self.target[m], self.penalty.scale[m]
        lam = par.lam[k]
        return lam * (1.0 - self.l1_ratio) * scale, par.near[k] * scale, lam * self.l1_ratio * self.root[m]

    def pulled_to(self, m: int, par: Canonical) -> Array:
        """The stored weights that the proximity term pulls to: the fixed ones, or those in ``theta``."""
        return self.reference[m] + par.reference[self.target[m]] / self.root[m]

    def bounds(self, m: int, par: Canonical) -> tuple[Array, Array]:
        """Lower and upper bounds of the stored weights of a task's features."""
        k = self.target[m]
        return par.lower[k] / self.root[m], par.upper[k] / self.root[m]

    def value(self, solution: PolyhedralSolution, workspace: Any) -> Array:
        par, d = solution.par, self.design.n_features
        out = self.loss_value(solution.W, par)
        for m in range(self.n_tasks):
            ridge, near, l1 = self._penalties(m, par)
            w = solution.W[m, :d]
            gap = w - self.pulled_to(m, par)
            out[m] += 0.5 * ridge @ w**2 + 0.5 * near @ gap**2 + l1 @ np.abs(w)
        return out

    # Solutions.

    def solution(
        self, theta: Array, par: Canonical, ends: Sequence[Ended], converged: Array
    ) -> PolyhedralSolution:
        """The solution from what a solver found for every task."""
        W, alpha = np.stack([end.w for end in ends]), np.stack([end.alpha for end in ends])
        Z, gamma = np.stack([end.Z for end in ends]), np.zeros_like(W)
        active, pins = [end.active for end in ends], []
        for m, end in enumerate(ends):
            p = self.pieces(m, par)
            gamma[m] = self._multipliers(p, W[m], alpha[m])
            active[m], pin, W[m], Z[m] = self._settle(p, W[m], Z[m], alpha[m], gamma[m], end.active)
            pins.append(pin)
        gap, steps = np.array([end.gap for end in ends]), sum(end.rounds for end in ends)
        state = ActiveSets.of(W, [end.active for end in ends])
        return PolyhedralSolution(theta, par, state, Z, converged, steps, alpha, gamma, gap, active, pins)

    @staticmethod
    def _multipliers(p: Pieces, w: Array, alpha: Array) -> Array:
        """``gamma``: what the other terms of the optimality condition leave at a bound, zero between the bounds."""
        pull = p.X.back(alpha) - p.q * (w - p.centre)
        at_zero = np.clip(pull, -p.l1, p.l1)
        pull = pull - np.where(w > 0, p.l1, np.where(w < 0, -p.l1, at_zero))
        low, high = np.minimum(pull, 0.0), np.maximum(pull, 0.0)
        return np.where(w >= p.upper, high, 0.0) + np.where(w <= p.lower, low, 0.0)

    def _settle(
        self, p: Pieces, w: Array, Z: Array, alpha: Array, gamma: Array, active: ActiveSet
    ) -> tuple[ActiveSet, Any, Array, Array]:
        """The active set with rows and columns on the side that derivatives use, and an intercept put in its middle.

        A box of width zero counts as held at the side its multiplier points to: there the weight goes when the box
        opens. An intercept that no row holds is free within an interval; under an L1 penalty alone it goes to the
        middle where all weights are held, since free ones would not be unique either.
        """
        held = active.held.copy()
        shut = (p.lower == p.upper) & (held != 0)
        held[shut] = np.where(gamma[shut] >= 0, AT_UPPER, AT_LOWER)
        rows = np.flatnonzero(active.on)
        low, high = p.range_of(rows, active.level[rows])
        edge = EDGE * box_unit(alpha, p.c)[rows]
        inside = (alpha[rows] - low > edge) & (high - alpha[rows] > edge)
        out = ActiveSet(active.on, active.level, held)
        loose = self.l1_ratio == 1.0 and bool(np.any(held[:-1] == 0))
        if not self.design.intercept or inside.any() or loose:
            return out, None, w, Z
        # Every multiplier is at an end of its range: the interval of the intercept, and the rows at its ends.
        level = p.nearest_step(alpha)
        ends = np.where(p.c > 0, p.on_step(level), 0.0)
        if p.q[-1] == 0 and abs(ends.sum()) > 1e-12 * np.abs(ends).sum():
            return out, None, w, Z  # a multiplier near its end that balances the others holds the intercept
        if np.all(p.q[:-1] > 0):  # then the weights are known to rounding from the multipliers without theirs
            exact = np.append(p.smallest(p.X.back(ends))[:-1], w[-1])
            Z, w = Z + p.X.times(exact - w), exact
        padded = np.column_stack([np.full(len(Z), -np.inf), p.kinks, np.full(len(Z), np.inf)])
        index = np.arange(len(Z))
        takes_part = p.c > 0
        below = np.where(takes_part, padded[index, level] - Z, -np.inf)
        above = np.where(takes_part, padded[index, level + 1] - Z, np.inf)
        first, last = int(np.argmax(below)), int(np.argmin(above))
        if not (np.isfinite(below[first]) and np.isfinite(above[last]) and above[last] >= below[first]):
            return out, None, w, Z
        shift = 0.5 * float(below[first] + above[last])
        on, w = np.zeros_like(active.on), w.copy()
        w[-1] += shift
        return ActiveSet(on, level, held), ((first, level[first] - 1), (last, level[last])), w, Z + shift

    def residual(self, solution: PolyhedralSolution, workspace: Any) -> Array:
        """Duality gaps relative to the size of the objective, computed anew from the rows."""
        out = np.zeros(self.n_tasks)
        for m in range(self.n_tasks):
            p, w = self.pieces(m, solution.par), solution.W[m].copy()
            if level := p.level():
                p = p.moved(level)
                w[-1] -= level
            unit = p.unit()
            p, w, alpha = p.scaled(unit), w / unit, solution.alpha[m] / unit
            Z = p.X.times(w)
            out[m] = p.gap(w, alpha, Z) / p.scale(w, Z, alpha)
        return out

    def linearize(self, solution: PolyhedralSolution, workspace: Any) -> KinkLinearization:
        return KinkLinearization(self, solution)

    def flat_intercepts(self, solution: PolyhedralSolution) -> int:
        return sum(pin is not None for pin in solution.pins)

    def n_kinks(self, solution: PolyhedralSolution, tol: float = EDGE) -> int:
        """Pairs that are both active: rows on a kink or weights at a bound whose multiplier is at its end.

        An intercept that no row holds counts as one.
        """
        count = 0
        for m in range(self.n_tasks):
            p, active = self.pieces(m, solution.par), solution.active[m]
            rows = np.flatnonzero(active.on)
            low, high = p.range_of(rows, active.level[rows])
            alpha, edge = solution.alpha[m][rows], tol * box_unit(solution.alpha[m], p.c)[rows]
            count += int(np.sum(np.minimum(alpha - low, high - alpha) <= edge))
            scale = 1.0 + np.abs(p.kinks)
            touching = np.any(np.abs(solution.decisions[m][:, None] - p.kinks) <= tol * scale, axis=1)
            count += int(np.sum(touching & ~active.on & (p.c > 0)))
            size = np.abs(p.X.back(solution.alpha[m])).max(initial=0.0) + 1e-300
            at_bound = (active.held == AT_LOWER) | (active.held == AT_UPPER)
            count += int(np.sum(at_bound & (np.abs(solution.gamma[m]) <= tol * size)))
            w = solution.W[m]
            room = np.minimum(w - p.lower, p.upper - w)
            count += int(np.sum((active.held == 0) & (room <= tol * (np.abs(w) + tol))))
            count += solution.pins[m] is not None
        return count

    def written(self, theta: Array) -> Written:
        """Every task in arrays, in columns whose weights are the user's; refused with an L1 part of the penalty."""
        if self.l1_ratio:
            raise ValueError(
                f"got a penalty with an L1 part (a share of {self.l1_ratio:g}); set penalty='l2'"
            )
        par, d = self.parameters(theta), self.design.n_features
        X = np.asarray(self.design.dense()[:, :d], float)
        tasks = []
        for m in range(self.n_tasks):
            weight, own, y = self._strength(m, par), X / self.root[m], self.Y[self.target[m]]
            train, rows = weight > 0, self.folds.validation[self.split[m]]
            cost = np.asarray(self.validation_weight[m], float)
            tasks.append(Task(own[train], y[train], own[rows], y[rows], weight[train], cost))
        return Written(tasks, bool(self.design.intercept), reference=self.reference[0] * self.root[0])


class KinkLinearization(Linearization):
    """The optimality system of every task while nothing changes kind.

    Adjoints have one entry for every column and row: on free columns the adjoint weight, on held ones ``dF`` for a unit
    move of their bound; on rows of a kink ``dF`` for a unit move of the kink.
    """

    def __init__(self, problem: PolyhedralProblem, solution: PolyhedralSolution) -> None:
        self.problem, self.par = problem, solution.par
        self.systems = [_TaskSystem(problem, solution, m) for m in range(problem.n_tasks)]

    def adjoint(self, slopes: Slopes) -> Array:
        problem = self.problem
        out = np.zeros((problem.n_tasks, problem.n_columns + problem.n_rows))
        for m, rows, g in slopes:
            out[m] = self.systems[m].adjoint(problem.design.pull(g[None], rows)[0])
        return out

    def pullback(self, u: Array) -> dict[str, Array]:
        by_task = [system.pullback(row) for system, row in zip(self.systems, u, strict=True)]
        stacked = {kind: np.stack([part[kind] for part in by_task]) for kind in by_task[0]}
        per_cell = ("log_c", *self.problem.loss.tunable)
        return {k: v if k in per_cell else self.problem.by_target(v) for k, v in stacked.items()}

    def sensitivities(self) -> Array:
        """``dw_m/dtheta``: shape (tasks, columns, p)."""
        return np.stack([system.sensitivity() for system in self.systems])

    def moves(self, J: Array, m: int, rows: Any) -> Array:
        return self.problem.design.decisions(np.ascontiguousarray(J[m].T), rows)

    def curvature(self, u: Array, J: Array, window: float | None) -> Array:
        pairs = zip(self.systems, u, J, strict=True)
        return np.asarray(sum(system.curvature(row, own) for system, row, own in pairs))


class _TaskSystem:
    """How the solution of one task answers to ``theta``."""

    def __init__(self, problem: PolyhedralProblem, solution: PolyhedralSolution, m: int) -> None:
        self.problem, self.m, self.par = problem, m, solution.par
        p, active, pins = problem.pieces(m, solution.par), solution.active[m], solution.pins[m]
        self.p, self.w, self.alpha, self.held = p, solution.W[m], solution.alpha[m], active.held
        self.free = np.flatnonzero(active.held == 0)
        self.fixed = np.flatnonzero(active.held != 0)
        if pins is None:
            self.rows = np.flatnonzero(active.on)
            kink, share = active.level[self.rows], np.eye(len(self.rows))
            left, right = p.steps_at(self.rows, kink)
            kink = np.where(right > left + 1, p.kink_of(self.alpha)[self.rows], kink)
        else:
            self.rows = np.array([row for row, _ in pins])
            kink, share = np.array([k for _, k in pins]), np.full((1, 2), 0.5)
        self.share = share
        # How the kinks move with parameters of the loss that are tuned: of a tube the first one down, the other one up.
        moves = problem.steps(m, self.par).moves
        self.slopes = {name: move[self.rows, kink] for name, move in moves.items() if self.par.tunes(name)}
        self.X_K = share @ p.X.dense(self.rows)
        self.system = KinkSystem(self.X_K[:, self.free], p.q[self.free])
        bound = np.where(active.on, 0.0, self.alpha)
        self.bound = bound

    def adjoint(self, g: Array) -> Array:
        """From ``dF/dw`` to the adjoint on columns and rows."""
        D = len(self.w)
        out = np.zeros(D + len(self.alpha))
        push, pull, _ = self.system.solve(g[self.free][:, None], np.zeros((len(self.X_K), 1)))
        out[self.free] = push[:, 0]
        r = -pull[:, 0]
        out[self.fixed] = g[self.fixed] - self.X_K[:, self.fixed].T @ r
        np.add.at(out, D + self.rows, self.share.T @ r)
        return out

    def step(self, u: Array) -> Array:
        """The adjoint weights of the free columns."""
        out = np.zeros(len(self.w))
        out[self.free] = u[self.free]
        return out

    def pullback(self, u: Array) -> dict[str, Array]:
        """``dF/dkind`` of this task, per cell or per feature."""
        par, problem, D = self.par, self.problem, len(self.w)
        d = problem.design.n_features
        step, out = self.step(u), {}
        if par.tunes("log_c"):
            out["log_c"] = problem.by_cell(self.bound * self.p.X.times(step))
        for name, slope in self.slopes.items():
            rows = np.zeros(len(self.alpha))
            np.add.at(rows, self.rows, slope)
            out[name] = problem.by_cell(rows * u[D:])
        out |= {kind: -step[:d] * pull for kind, (pull, _) in self._pulls().items()}
        if par.tunes("reference"):
            out["reference"] = step[:d] * self._reference_push()
        return out | {kind: moves * u[:d] for kind, moves in self._sides().items()}

    def _pulls(self) -> dict[str, tuple[Array, Array]]:
        """Penalties that are tuned, by kind: the derivative of their gradient in the logarithm, and their curvature."""
        ridge, near, l1 = self.problem._penalties(self.m, self.par)
        w = self.w[: len(ridge)]
        pulls = {
            "log_lam": (ridge * w + l1 * np.sign(w), ridge),
            "log_near": (near * (w - self.problem.pulled_to(self.m, self.par)), near),
        }
        return {kind: pull for kind, pull in pulls.items() if self.par.tunes(kind)}

    def _sides(self) -> dict[str, Array]:
        """How held weights move with their bounds, by kind."""
        root, held = self.problem.root[self.m], self.held[: self.problem.design.n_features]
        places = {"upper": AT_UPPER, "lower": AT_LOWER}
        return {
            kind: np.where(held == place, 1.0 / root, 0.0)
            for kind, place in places.items()
            if self.par.tunes(kind)
        }

    def _reference_push(self) -> Array:
        """Minus the derivative of the penalty's gradient in each feature's reference."""
        _, near, _ = self.problem._penalties(self.m, self.par)
        return np.asarray(near / self.problem.root[self.m])

    def sensitivity(self) -> Array:
        """``dw/dtheta``: shape (columns, p)."""
        problem, par, p = self.problem, self.par, self.p
        D, d, k, cell = len(self.w), problem.design.n_features, problem.target[self.m], problem.folds.cell
        out, a, shift = np.zeros((D, par.size)), np.zeros((D, par.size)), np.zeros((len(self.rows), par.size))
        if par.tunes("log_c"):
            for q, slope in enumerate(par.slope("log_c", self.m)):
                a += np.outer(p.X.back(self.bound * (cell == q)), slope)
        for name, moves in self.slopes.items():
            shift += moves[:, None] * par.slope(name, self.m, cell[self.rows])
        for kind, (pull, _) in self._pulls().items():
            a[:d] -= pull[:, None] * par.slope(kind, k)
        if par.tunes("reference"):
            a[:d] += self._reference_push()[:, None] * par.slope("reference", k)
        for kind, side in self._sides().items():
            out[:d] += side[:, None] * par.slope(kind, k)
        b = self.share @ shift - self.X_K @ out
        out[self.free] = self.system.solve(a[self.free], b)[0]
        return out

    def curvature(self, u: Array, J: Array) -> Array:
        """``u`` times the second derivative of the optimality conditions along ``w(theta)``."""
        problem, par = self.problem, self.par
        d, k, m = problem.design.n_features, [problem.target[self.m]], [self.m]
        step, out = self.step(u), np.zeros((par.size, par.size))
        if par.tunes("log_c"):
            inner = problem.by_cell(self.bound * self.p.X.times(step))
            out += par.outer("log_c", inner[:, None] * par.slope("log_c", m), m)
        for kind, (pull, curvature) in self._pulls().items():
            out -= par.outer(kind, (step[:d] * pull)[:, None] * par.slope(kind, k), k)
            one_sided = par.outer(kind, (step[:d] * curvature)[:, None] * J[:d], k)
            out -= one_sided + one_sided.T
        if par.tunes("log_near") and par.tunes("reference"):
            push = (step[:d] * self._reference_push())[:, None] * par.slope("reference", k)
            mixed = par.outer("log_near", push, k)
            out += mixed + mixed.T
        return out
