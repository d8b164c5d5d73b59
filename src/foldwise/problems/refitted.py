"""Folds valued by fitting an estimator to each of them: for machines that have no training problem of ours.

Nothing is known about such an estimator but what it decides, so that there are no derivatives, and no optimality
conditions to check: its fits are as accurate as its own solver leaves them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning

from foldwise.deadline import look_at_clock
from foldwise.losses import Loss
from foldwise.problems.base import Array, Linearization, Problem, Solution, State, TaskData
from foldwise.problems.folds import Folds
from foldwise.problems.parameters import Binding, ParameterMap
from foldwise.problems.written import Written
from foldwise.space import Space

__all__ = ["Nothing", "RefittedProblem", "Refitting", "no_parameters"]


@dataclass(frozen=True, eq=False)
class Nothing(State):
    """A state that says nothing: every fit starts anew."""

    def moved(self, change: Array) -> Nothing:
        return self


def no_parameters(space: Space, n_targets: int, folds: Folds) -> ParameterMap:
    """The map from a space to training problems that know nothing of it."""
    shape = n_targets * folds.n_splits, folds.n_cells
    nowhere = {block.name: Binding("log_c", np.full(shape, -1)) for block in space.blocks}
    return ParameterMap(space, nowhere, np.zeros(shape), np.zeros(shape), np.zeros((n_targets, 0)))


class RefittedProblem(Problem):
    """The fits of an estimator to the training rows of all splits.

    Parameters
    ----------
    estimator : the machine, fitted as a copy with the values of ``theta`` set
    names : mapping from names of the space to the estimator's parameters
    X : the rows, in stored order
    target : what ``fit`` is given, in stored order
    space : Space
    data : TaskData
        Its parameters act nowhere: :func:`no_parameters`.
    """

    state_type: ClassVar[Any] = Nothing
    form: ClassVar[str] = "refitted"

    def __init__(
        self,
        estimator: Any,
        names: Mapping[str, str],
        X: Any,
        target: Array,
        space: Space,
        data: TaskData,
    ) -> None:
        super().__init__(data)
        self.space = space
        self.estimator, self.names, self.X, self.target_values = estimator, dict(names), X, target
        self.given_weight = data.weight

    def check_loss(self, loss: Loss) -> None:
        """Any loss: training is the estimator's own affair."""

    def workspace(self) -> None:
        return None

    def start(self, leader: tuple[Any, Any] | None = None) -> Nothing:
        return Nothing()

    def linearize(self, solution: Any, workspace: Any) -> Linearization:
        raise TypeError("an estimator that is refitted has no derivatives; use method='grid' or 'random'")

    def written(self, theta: Array) -> Written:
        """Refused: nothing is known to write down."""
        raise ValueError("got an estimator whose training problem is not written down anywhere here")

    def value(self, solution: Any, workspace: Any) -> Array:
        return np.zeros(self.n_tasks)

    def residual(self, solution: Any, workspace: Any) -> Array:
        """Nothing is known: the estimator's own solver says where it stopped early."""
        return np.zeros(self.n_tasks)

    def flat_intercepts(self, solution: Any) -> int:
        return 0

    def n_kinks(self, solution: Any, tol: float = 1e-9) -> int:
        return 0

    def decisions(self, theta: Array) -> Array:
        """What the fits decide on all rows; not a number where a fit is refused."""
        out = np.zeros((self.n_tasks, self.n_rows))
        for t in range(self.n_splits):
            look_at_clock()
            out[t :: self.n_splits] = self._fold(theta, t)
        return out

    def _fold(self, theta: Array, t: int) -> Array:
        """Decisions of split ``t``: shape (targets, n)."""
        params = {self.names[name]: value for name, value in self.space.params(theta).items()}
        machine: Any = clone(self.estimator).set_params(**{k: _plain(v) for k, v in params.items()})
        train = np.repeat(np.arange(self.n_rows), self.folds.count[t].astype(int))
        given = {} if self.given_weight is None else {"sample_weight": self.given_weight[train]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of the final fit they are shown
            try:
                machine.fit(self._features(train, train), self.target_values[train], **given)
            except ValueError:  # such as a nu that these classes do not allow
                return np.full((self.n_targets, self.n_rows), np.nan)
            seen = self._features(np.arange(self.n_rows), train)
            z = machine.decision_function(seen) if is_classifier(machine) else machine.predict(seen)
        return np.atleast_2d(np.asarray(z, float).T)

    def _features(self, rows: Array, train: Array) -> Any:
        """Rows as the machine takes them: of a kernel matrix the columns of the training rows alone."""
        X = self.X[rows]
        return X[:, train] if getattr(self.estimator, "kernel", None) == "precomputed" else X


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value


@dataclass(frozen=True)
class Refitting:
    """Fits the estimator to every fold."""

    needs: ClassVar[frozenset[str]] = frozenset({"refitted"})

    def solve(self, problem: RefittedProblem, theta: Array, state: Any, workspace: Any) -> Solution:
        """The decisions of all folds at ``theta``."""
        Z = problem.decisions(theta)
        done = np.ones(problem.n_tasks, dtype=bool)
        return Solution(theta, problem.parameters(theta), Nothing(), Z, done, problem.n_splits)
