"""Machines without a training problem of ours: their folds are refitted, and nothing is differentiated."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.losses import Loss
from foldwise.models.base import Array, Assembly, DataFacts, Model, Role, Rows
from foldwise.models.binding import criterion_weights
from foldwise.models.kernel.assemble import one_vs_one
from foldwise.problems.base import TaskData
from foldwise.problems.folds import Folds
from foldwise.problems.refitted import RefittedProblem, Refitting, no_parameters
from foldwise.space import Dimension, Lin, Log, Space

__all__ = ["RefittedModel"]


@dataclass(frozen=True)
class RefittedModel(Model):
    """An estimator as a search without derivatives sees it.

    Parameters
    ----------
    loss : Loss
        What tells regressions from classifications, and how far decisions reach.
    roles : mapping from hyper-parameter name to Role
        Of the kind "own": nothing is known about them.
    machine : estimator
    widths : callable(X) -> float, optional
        The usual kernel width for some rows.
    pairs : bool
        Whether several classes are told apart pair by pair.
    class_weight, criterion_weight
        As in :class:`foldwise.models.base.Model`.
    """

    loss: Loss
    roles: Mapping[str, Role]
    machine: Any
    widths: Any = None
    pairs: bool = False
    class_weight: Any = None
    criterion_weight: Any = "auto"
    values: Mapping[str, Any] = None  # type: ignore[assignment]
    fit_intercept: bool = True
    class_weight_rule: str = "row"
    balances: str = "weights"
    chosen_solver: Any = "auto"

    warns_if_flat: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", {})

    def shares_sheet(self, tuned: Collection[str]) -> bool:
        """All folds see the same features."""
        return True

    def default_dimension(self, name: str, per: str | None, facts: DataFacts) -> Dimension:
        """Bounds by the usual meaning of the name."""
        own = name.split("__")[-1]
        usual: dict[str, Dimension] = {
            "C": Log(1e-2, 1e3),
            "alpha": Log(1e-5, 1e2),
            "coef0": Lin(-1.0, 1.0),
            "epsilon": Lin(0.0, facts.spread),
            "nu": Lin(0.05, 0.5 if self.loss.task == "classification" else 0.95),
            "l1_ratio": Lin(0.0, 1.0),
        }
        if own == "gamma" and self.widths is not None:
            width = float(self.widths(facts.X))
            return Log(1e-2 * width, 1e2 * width)
        if own not in usual:
            raise ValueError(
                f"{name!r} has no usual bounds; give them in the space, such as {{{name!r}: (0.1, 10)}}"
            )
        return usual[own]

    def problems(self, parts: Assembly) -> list[Any]:
        """One problem for every sheet."""
        out, sheets = [], parts.sheets
        K = len(sheets[0].rows.Y)
        total = (K * (K - 1) // 2 if self.pairs and K > 1 else K) * sum(len(s.splits) for s in sheets)
        for sheet in sheets:
            n = sheet.X.shape[0]
            folds = Folds.build(n, sheet.splits, blocks=False)
            stored = sheet.rows.take(folds.order)
            Y, present = one_vs_one(stored) if self.pairs and len(stored.Y) > 1 else (stored.Y, None)
            X = sheet.X[folds.order]
            counts = criterion_weights(self, stored, folds, parts.dimensions)
            nowhere = no_parameters(parts.space, len(Y), folds)
            data = TaskData(Y, folds, self.loss, nowhere, stored.weight, counts, total, present)
            problem = RefittedProblem(
                self.machine,
                {name: name for name in self.roles},
                X[:, folds.order] if self.pairwise else X,
                _target(stored),
                parts.space,
                data,
            )
            out.append(problem)
        return out

    def solver(self, problem: Any, tol: float, max_iter: int | None = None) -> Any:
        """The estimator's own fit."""
        return Refitting()

    def accuracy(self, facts: DataFacts, size: int) -> dict[str, Any]:
        """No method that follows derivatives is used."""
        return {}

    def starting_values(self, dimensions: Mapping[str, Dimension], facts: DataFacts) -> list[dict[str, Any]]:
        """The middle of the bounds."""
        return [{}]

    def point(self, space: Space, values: Mapping[str, Any]) -> Array:
        """The point with these values; others are in the middle of their bounds."""
        return np.asarray(
            space.theta({name: value for name, value in values.items() if name in space.slices})
        )

    @property
    def pairwise(self) -> bool:
        """Whether the features are a kernel matrix."""
        return getattr(self.machine, "kernel", None) == "precomputed"

    @property
    def pairs_of_classes(self) -> bool:
        return self.pairs


def _target(rows: Rows) -> Array:
    """What ``fit`` is given: numbers, or classes."""
    if rows.label is not None:
        labels: Array = np.asarray(rows.class_labels)
        return np.asarray(labels[rows.label])
    return np.asarray(rows.Y[0] if len(rows.Y) == 1 else rows.Y.T)
