r"""The contract between training problems, solvers and the bilevel program.

A :class:`Problem` holds the training problems of all folds and classes on shared rows: its *tasks*. It is immutable. A
:class:`Solver` takes it from a :class:`State` to a :class:`Solution` at ``theta``; a :class:`Linearization` says how
that solution answers to ``theta``. What is worth keeping between solves (Gram matrices, kernel rows, factors) is in a
*workspace*, which the problem makes and a run of :class:`~foldwise.bilevel.Bilevel` owns::

    workspace = problem.workspace()
    state = problem.start()
    solution = solver.solve(problem, theta, state, workspace)
    response = problem.linearize(solution, workspace)
    u = response.adjoint(slopes)                         # one linear system per task, whatever the length of theta
    gradient = solution.par.pull(response.pullback(u))   # by kind; the map of parameters knows the way to theta
    J = response.sensitivities()
    state = solution.state.moved(J @ step)               # where the solution is expected at theta + step

A solution depends on the problem, ``theta`` and the state, up to rounding; the workspace makes it quicker and changes
nothing else. A linearization may use the workspace, and serves until the next solve with it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from foldwise.losses import Loss
from foldwise.losses.polyhedral import Staircase, staircase
from foldwise.problems.folds import Folds
from foldwise.problems.parameters import Canonical, ParameterMap

__all__ = ["OFFERS", "Array", "Linearization", "Problem", "Slopes", "Solution", "Solver", "State", "TaskData"]

Array: TypeAlias = np.ndarray[Any, Any]
Slopes: TypeAlias = Sequence[tuple[int, Any, Array]]
"""The criterion's slopes in validation decisions: task, rows, ``dF/dz`` on these rows."""


OFFERS = {
    "smooth": "a loss with a second derivative",
    "polyhedral": "a loss with corners",
    "piecewise_quadratic": "a piecewise quadratic loss",
    "classical": "the hinge or the tube",
    "pieces": "a linear machine with a loss with corners ('hinge', 'epsilon_insensitive', 'pinball')",
    "weights": "a linear machine without bounds and reference weights",
    "bounds": "a linear machine with bounds or reference weights",
    "sparse": "a linear machine with a smooth loss and an L1 norm",
    "multinomial": "a logistic regression of several classes together",
    "representer": "a kernel machine with a smooth loss",
    "box": "a kernel machine with the hinge or the tube",
    "staircase": "a kernel machine with another loss with corners",
    "columns": "a semiparametric machine",
    "refitted": "an estimator that is refitted in every fold",
}
"""What a solver may need, in a word and in words: first of the loss, then the form of the problem."""


@dataclass(frozen=True, eq=False)
class State(ABC):
    """What the next solve starts from: arrays with one row per task, as fields; None for what is not known."""

    @abstractmethod
    def moved(self, change: Array) -> State:
        """The state after a change (tasks, variables) of what :meth:`Linearization.sensitivities` are of."""

    def arrays(self) -> dict[str, Array]:
        """The fields that are known, by name: what a checkpoint keeps."""
        every = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: array for name, array in every.items() if array is not None}


@dataclass(frozen=True, eq=False)
class Solution:
    """Solutions of all tasks at one ``theta``; a value that nobody touches later.

    Attributes
    ----------
    theta : ndarray
    par : Canonical
        What problems make of ``theta``.
    state : State
    decisions : ndarray, shape (tasks, n)
        On all rows in stored order; ``problem.folds.order`` maps to the user's.
    converged : ndarray of bool, shape (tasks,)
    steps : int
    """

    theta: Array
    par: Canonical
    state: Any
    decisions: Array
    converged: Array
    steps: int


class Linearization(ABC):
    """How the solutions of all tasks answer to ``theta``, factored once."""

    @abstractmethod
    def adjoint(self, slopes: Slopes) -> Array:
        """Adjoints of the tasks, one row each, for a criterion with these slopes."""

    @abstractmethod
    def pullback(self, u: Array) -> Mapping[str, Array]:
        """``dF/dkind`` from the adjoints, each of the shape of its kind in :class:`Canonical`; tuned kinds at least."""

    @abstractmethod
    def sensitivities(self) -> Array:
        """``d variables / d theta``: shape (tasks, variables, p)."""

    @abstractmethod
    def moves(self, J: Array, m: int, rows: Any) -> Array:
        """``dz/dtheta`` on rows of a task, from the sensitivities: shape (p, rows)."""

    def curvature(self, u: Array, J: Array, window: float | None) -> Array:
        """``u' d2(optimality conditions)`` along the solution: the second-order part of the hyper-Hessian, (p, p).

        With a ``window`` the rows near a kink of the loss stand for the density of rows that change piece as ``theta``
        moves. Without an own definition it is left out, and the hyper-Hessian is that of Gauss and Newton.
        """
        return np.zeros((J.shape[2], J.shape[2]))


class Solver(Protocol):
    """What solves training problems.

    ``needs`` are words of :data:`OFFERS`; see :mod:`foldwise.solvers.registry`.
    """

    needs: ClassVar[frozenset[str]]

    def solve(self, problem: Any, theta: Array, state: Any, workspace: Any) -> Any:
        """A :class:`Solution` of every task at ``theta``, from ``state``, which is not changed."""


@dataclass(frozen=True, eq=False)
class TaskData:
    """What the tasks of every problem are given, in the order in which ``folds`` stores rows.

    Attributes
    ----------
    Y : ndarray, shape (targets, n)
        Targets: one row for regression and two classes, one per class or pair of classes for more.
    folds : Folds
    loss : Loss
    parameters : ParameterMap
    weight : ndarray, shape (n,), optional
        Sample weights in training.
    validation_weight : ndarray, shape (n,) or (splits, n), optional
        What rows count in the criterion; one by default.
    n_total : int, optional
        Number of tasks over which the outer objective averages, when several problems share it.
    present : ndarray of bool, shape (targets, n), optional
        Rows that belong to each target's problem, in training and validation: for one-vs-one.
    """

    Y: Array
    folds: Folds
    loss: Loss
    parameters: ParameterMap
    weight: Array | None = None
    validation_weight: Array | None = None
    n_total: int | None = None
    present: Array | None = None


class Problem(ABC):
    """Training problems of all splits, times targets, on shared rows.

    Task ``m = (target k, split t)`` is number ``k n_splits + t``.

    Parameters
    ----------
    data : TaskData
        Its ``Y``, ``folds``, ``loss``, ``parameters`` and ``present`` are attributes of the problem as well.

    Attributes
    ----------
    n_tasks, n_targets, n_splits, n_rows, n_cells : int
    target, split : ndarray of int, shape (tasks,)
    uniform : bool
        Whether all rows weigh one.
    validation_weight : list of ndarray
        What the validation rows of every task count in the outer objective.
    """

    state_type: ClassVar[Any]
    """The class of its states."""
    form: ClassVar[str]
    """What kind of problem it is to a solver: a word of :data:`OFFERS`."""

    def __init__(self, data: TaskData) -> None:
        self.check_loss(data.loss)
        Y, folds, present = data.Y, data.folds, data.present
        self.data, self.Y, self.folds, self.present = data, Y, folds, present
        self.loss, self.parameters = data.loss, data.parameters
        self.n_targets, self.n_splits, self.n_rows = len(Y), folds.n_splits, Y.shape[1]
        self.n_tasks, self.n_cells = self.n_targets * self.n_splits, folds.n_cells
        self.target = np.repeat(np.arange(self.n_targets), self.n_splits)
        self.split = np.tile(np.arange(self.n_splits), self.n_targets)
        self.weight = np.ones(self.n_rows) if data.weight is None else data.weight
        self.uniform = bool(np.all(self.weight == 1.0))
        counts = np.ones(self.n_rows) if data.validation_weight is None else data.validation_weight
        counts = np.broadcast_to(counts, (self.n_splits, self.n_rows))
        shares: dict[tuple[int, int], Array] = {}
        for k, t in zip(self.target.tolist(), self.split.tolist(), strict=True):
            if present is None and k:
                shares[k, t] = shares[0, t]
                continue
            rows = folds.validation[t]
            v = counts[t][rows] if present is None else counts[t][rows] * present[k][rows]
            if len(v) and v.sum() <= 0:
                raise ValueError(
                    "a validation fold has no positive sample weight; use other folds or weights"
                )
            shares[k, t] = v / (v.sum() * (data.n_total or self.n_tasks)) if len(v) else v
        self.validation_weight = list(shares.values())

    # What a family of problems gives.

    @abstractmethod
    def check_loss(self, loss: Loss) -> None:
        """Refuse a loss that these problems are not for, with words on what to use."""

    @abstractmethod
    def workspace(self) -> Any:
        """What may be kept between solves, as it is before the first: for one run, in one thread."""

    @abstractmethod
    def start(self, leader: tuple[Any, Any] | None = None) -> Any:
        """A state to start from when nothing better is known.

        ``leader`` is another problem of the same program with its solution, from which this one may take what it knows.
        """

    @abstractmethod
    def linearize(self, solution: Any, workspace: Any) -> Linearization:
        """How a solution answers to ``theta``."""

    @abstractmethod
    def value(self, solution: Any, workspace: Any) -> Array:
        """The training objectives ``E_m`` where a solution is, one number per task; bounds are not looked at."""

    @abstractmethod
    def residual(self, solution: Any, workspace: Any) -> Array:
        """Relative violation of the optimality conditions, one number per task, computed anew from the rows."""

    @abstractmethod
    def flat_intercepts(self, solution: Any) -> int:
        """In how many tasks the intercept is not unique."""

    def n_kinks(self, solution: Any, tol: float = 1e-9) -> int:
        """Training rows that sit at a kink of the loss, over all tasks."""
        scale = max(1.0, float(np.abs(self.Y).max(initial=0.0)))
        kinks = self.loss_at(solution.par).kinks(solution.decisions, self.targets())
        trains = self.trains & (self.weight > 0)
        return sum(int(np.sum((np.abs(u) <= tol * scale) & trains)) for u, _, _ in kinks)

    def validation_gram(self, m: int) -> Array | None:
        """``X' diag(v) X`` over the validation rows of a task, where it is at hand."""
        return None

    def approximation(self, solution: Any, workspace: Any) -> tuple[int, float] | None:
        """Number of landmarks of a kernel, and a bound on what they change in a decision; None without them."""
        return None

    # What all share.

    @property
    def offers(self) -> frozenset[str]:
        """What solvers may need and find here: words of :data:`OFFERS`."""
        return frozenset({self.form, *(word for word in OFFERS if getattr(self.loss, word, False) is True)})

    @cached_property
    def trains(self) -> Array:
        """Which rows train a task: shape (tasks, n)."""
        own = self.folds.train[self.split]
        return own if self.present is None else own & self.present[self.target]

    def solved(self, solver: Solver, theta: Array, state: Any = None, workspace: Any = None) -> Any:
        """The solution at ``theta``; from nothing and with nothing kept, unless they are given."""
        state = self.start() if state is None else state
        return solver.solve(self, theta, state, self.workspace() if workspace is None else workspace)

    def validation(self, solution: Any) -> Iterator[tuple[int, Any, Array, Array, Array]]:
        """Yield ``(task, rows, decisions, targets, weights)`` of every task that validates on some row."""
        for m, v in enumerate(self.validation_weight):
            rows = self.folds.validation[self.split[m]]
            if len(v):
                yield m, rows, solution.decisions[m][rows], self.Y[self.target[m]][rows], v

    def per_task(self, values: Array) -> Array:
        """One row per task from one row per target."""
        return values if self.n_splits == 1 else np.repeat(values, self.n_splits, axis=0)

    def by_target(self, values: Array) -> Array:
        """Sums over splits of one row per task: the transpose of :meth:`per_task`."""
        return np.asarray(values.reshape(self.n_targets, self.n_splits, *values.shape[1:]).sum(axis=1))

    def by_row(self, values: Array, tasks: Any = slice(None)) -> Array:
        """Values per task and cell, spread to rows (second axis); one cell broadcasts."""
        chosen: Array = values[tasks]
        return chosen if self.n_cells == 1 else chosen[:, self.folds.cell]

    def by_cell(self, values: Array) -> Array:
        """Sums over the rows of each cell: (tasks, n) -> (tasks, cells), or (n,) -> (cells,)."""
        if self.n_cells == 1:
            return np.asarray(values.sum(axis=-1, keepdims=True))
        lines = np.atleast_2d(values)
        out = np.stack([np.bincount(self.folds.cell, line, self.n_cells) for line in lines])
        return out if values.ndim == 2 else out[0]

    def targets(self, tasks: Any = slice(None)) -> Array:
        """Targets of the tasks: shape (tasks, n), or (1, n) when all share one."""
        return self.Y if self.n_targets == 1 else np.asarray(self.Y[self.target[tasks]])

    def loss_at(self, par: Canonical, tasks: Any = slice(None)) -> Loss:
        """The training loss with its own parameters, one per task and row."""
        if not self.loss.tunable:
            return self.loss
        own = {name: par.values[name] for name in self.loss.tunable if name in par.values}
        return self.loss.replace(**{name: self.by_row(values, tasks) for name, values in own.items()})

    def steps(self, m: int, par: Canonical) -> Staircase:
        """The loss of every row of task ``m``, where it is polyhedral."""
        own = {
            name: np.broadcast_to(par.values[name][m][self.folds.cell], self.n_rows)
            for name in self.loss.tunable
            if name in par.values
        }
        return staircase(self.loss.replace(**own) if own else self.loss, self.Y[self.target[m]])
