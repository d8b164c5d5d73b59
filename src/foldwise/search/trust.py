"""How far a search can be trusted: what its folds say about new rows, computed where it ended.

From the out-of-fold decisions at the selected values come an estimate of the error on new rows, error bars of the
selected values, probabilities of classes and prediction intervals. Nothing is fitted again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.calibration import (
    PairProbabilities,
    Probabilities,
    Residuals,
    fit_pairs_of_rows,
    fit_probabilities,
)
from foldwise.deadline import OutOfTime
from foldwise.models.base import Array
from foldwise.result import CUT_SHORT, Result
from foldwise.search.prepare import Program
from foldwise.search.retargeted import Retargeted
from foldwise.uncertainty import Influence, Uncertainty, assess

__all__ = ["FoldDecisions", "Trust", "fold_decisions"]

LARGEST = 20_000_000
"""Rows times hyper-parameters beyond which error bars are not computed."""
MOST_VALUES = 300
"""Hyper-parameters beyond which they are not."""


@dataclass(frozen=True, eq=False)
class FoldDecisions:
    """Decisions of the folds' machines at one point: an entry for every row that a fold validates.

    Attributes
    ----------
    row, fold : ndarray of int, shape (entries,)
        The user's row, and the number of the fold that validates it.
    decisions : ndarray, shape (entries, targets)
        One column for a regression or two classes, else one for every class or pair of classes.
    weight : ndarray, shape (entries,)
        What an entry counts in the criterion; they sum to one.
    parts : list of (int, ndarray)
        For every part of the criterion's decisions its target and the entries that it is about.
    """

    row: Array
    fold: Array
    decisions: Array
    weight: Array
    parts: list[tuple[int, Array]]


def fold_decisions(program: Program, bilevel: Bilevel, end: Evaluation) -> FoldDecisions:
    """The decisions of an evaluation, put together by row."""
    out = bilevel.out_of_fold(bilevel.solutions(end))
    first: dict[tuple[int, int], int] = {}
    rows, folds, parts, total = [], [], [], 0
    for part in out.parts:
        problem = bilevel.problems[part.problem]
        key = part.problem, int(problem.split[part.m])
        if key not in first:
            index = program.recipe.sheets[part.problem].index[problem.folds.order]
            first[key] = total
            rows.append(index[part.rows])
            folds.append(np.full(len(part.z), len(first) - 1))
            total += len(part.z)
        parts.append((int(problem.target[part.m]), first[key] + np.arange(len(part.z))))
    decisions, weight = np.zeros((total, 1 + max(target for target, _ in parts))), np.zeros(total)
    for part, (target, entries) in zip(out.parts, parts, strict=True):
        decisions[entries, target] = part.z
        weight[entries] += part.v
    return FoldDecisions(np.concatenate(rows), np.concatenate(folds), decisions, weight, parts)


@dataclass(eq=False)
class Trust:
    """What the end of a search says about new rows.

    Attributes
    ----------
    program : what was searched
    bilevel : the program in which the search ended
    end : its last evaluation
    """

    program: Program
    bilevel: Bilevel
    end: Evaluation

    def __post_init__(self) -> None:
        self.folds = fold_decisions(self.program, self.bilevel, self.end)

    def told(self, result: Result) -> Result:
        """The result with its optimism, a corrected error with an interval, and error bars of the selected values.

        As it is where the criterion has no second derivatives or no rows of its own, where the search was cut short,
        or where there are too many values.
        """
        assessed = None if result.status in CUT_SHORT else self.assessed()
        if assessed is None:
            return result
        found = assessed[1]
        return replace(
            result,
            optimism=found.optimism,
            expected_error=found.error,
            error_interval=list(found.interval),
            error_rate=found.rate,
            error_bars=found.bars(self.bilevel.space, self.end.theta),
        )

    def assessed(self) -> tuple[Influence, Uncertainty] | None:
        """How the rows' losses move at the end, and what follows from that; None where it is not known."""
        criterion, space = self.bilevel.criterion, self.bilevel.space
        size = space.size * len(self.folds.row)
        if not criterion.has_curvature or space.size > MOST_VALUES or size > LARGEST:
            return None
        try:
            with np.errstate(all="ignore"):
                self.bilevel.differentiate(self.end, 2)
                influence = self.influence()
        except (OutOfTime, FloatingPointError):
            return None
        finite = influence is not None and np.all(np.isfinite(influence.gradients))
        if influence is None or not finite or self.end.hessian is None:
            return None
        out = self.bilevel.out_of_fold(self.bilevel.solutions(self.end))
        return influence, assess(influence, self.end.hessian, space, self.end.theta, criterion.n_fitted(out))

    def influence(self) -> Influence | None:
        """How the losses of the rows move with theta; None for a criterion whose rows cannot be told apart."""
        criterion, folds = self.bilevel.criterion, self.folds
        out = self.bilevel.out_of_fold(self.bilevel.solutions(self.end))
        by_row = criterion.by_row(out)
        if by_row is None:
            return None
        losses, gradients = np.zeros(len(folds.row)), np.zeros((self.bilevel.space.size, len(folds.row)))
        moves, slopes = self.bilevel.moves(self.end, out), criterion.slopes(out)
        terms = zip(out.parts, folds.parts, out.by_part(by_row), slopes, moves, strict=True)
        for part, (_, entries), loss, slope, move in terms:
            losses[entries] += part.v * loss
            gradients[:, entries] += slope * move
        scale = np.where(folds.weight > 0, folds.weight, 1.0)
        wrong = None if self.program.data.classes is None else self.predicted() != self._codes()
        counts = self._counts() if self._by_pairs() else None
        return Influence(
            losses / scale, gradients / scale, folds.weight, wrong, folds.row, self._n_folds(), counts
        )

    def _counts(self) -> Array:
        """What an entry counts where the weights of several pairs of classes add up: alike, within its fold."""
        weight = self._row_weight()
        w = np.ones(len(self.folds.row)) if weight is None else weight
        total = np.bincount(self.folds.fold, w)[self.folds.fold]
        return np.asarray(w / np.where(total > 0, total, 1.0) / (self.folds.fold.max(initial=0) + 1))

    def _n_folds(self) -> int:
        """Into how many parts the rows are cut, so that one of them validates."""
        counts = [(len(train), len(validation)) for train, validation in self.program.data.splits]
        return max(2, round(float(np.mean([(t + v) / max(v, 1) for t, v in counts]))))

    def _codes(self) -> Array:
        """Numbers of the rows' classes."""
        label = self.program.data.rows.label
        assert label is not None
        return np.asarray(label)[self.folds.row]

    def _by_pairs(self) -> bool:
        classes = self.program.data.classes
        return classes is not None and len(classes) > 2 and self.program.model.pairs_of_classes

    def predicted(self) -> Array:
        """Numbers of the classes that the folds' machines predict."""
        Z, classes = self.folds.decisions, self.program.data.classes
        assert classes is not None
        if Z.shape[1] == 1:
            return np.asarray(Z[:, 0] > 0, int)
        if not self._by_pairs():
            return np.asarray(Z.argmax(axis=1))
        votes = np.zeros((len(Z), len(classes)))
        for column, (i, j) in enumerate(combinations(range(len(classes)), 2)):
            votes[:, i] += Z[:, column] > 0
            votes[:, j] += Z[:, column] <= 0
        return np.asarray(votes.argmax(axis=1))

    def _row_weight(self) -> Array | None:
        weight = self.program.data.rows.weight
        return None if weight is None else np.asarray(weight, float)[self.folds.row]

    def probabilities(self) -> Probabilities | PairProbabilities | None:
        """How decisions become probabilities of classes; None for regressions, and where a class has no weight."""
        classes, Z, weight = self.program.data.classes, self.folds.decisions, self._row_weight()
        if classes is None or not np.all(np.isfinite(Z)):
            return None
        codes = self._codes()
        present = np.bincount(codes, weight, minlength=len(classes))
        if np.any(present <= 0):
            return None
        if not self._by_pairs():
            return fit_probabilities(Z[:, 0] if Z.shape[1] == 1 else Z, codes, weight)
        return fit_pairs_of_rows(Z, codes, len(classes), weight)

    def residuals(self) -> Residuals | None:
        """Out-of-fold residuals of a regression; None for classes and for several targets."""
        Y: Any = self.program.data.rows.Y
        if self.program.data.classes is not None or len(Y) > 1:
            return None
        z, criterion = self.folds.decisions[:, 0], self.bilevel.criterion
        if isinstance(criterion, Retargeted):
            out = criterion.turned_back(self.bilevel.out_of_fold(self.bilevel.solutions(self.end)))
            z = np.empty(len(z))
            for part, (_, entries) in zip(out.parts, self.folds.parts, strict=True):
                z[entries] = part.z
        if not np.all(np.isfinite(z)):
            return None
        return Residuals.of(Y[0][self.folds.row] - z, self._row_weight())
