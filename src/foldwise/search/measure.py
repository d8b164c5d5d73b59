"""Metrics of every point of a search, from the out-of-fold decisions that it has anyway: nothing is fitted again."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils import _safe_indexing

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.calibration import fit_pairs_of_rows, fit_probabilities
from foldwise.fit_time import limited
from foldwise.models.base import Array
from foldwise.result import Record
from foldwise.search.metrics import counted, formula
from foldwise.search.prepare import Program
from foldwise.search.scoring import SINGLE, Scoring
from foldwise.search.stand_in import Answers, FoldRows, StandIn, predicted_codes
from foldwise.search.thresholds import best_threshold, candidates

__all__ = ["Measure", "metric_mean"]

FEW = 25
"""Thresholds that are tried for a metric that is no function of counts."""


@dataclass(frozen=True, eq=False)
class Fold:
    """A fold of a program: which problem and tasks, and where its rows are stored, in the order of the user's split."""

    problem: int
    tasks: Array
    train: Array
    validation: Array


class Measure:
    """Called with every point that is recorded; gives its metrics by name, a list with a number for every fold.

    "test f1" are those of the validation rows, "train f1" of the training rows, "plain f1" those without a tuned
    threshold; "threshold" and "seconds" are single numbers.

    Parameters
    ----------
    program : Program
    scoring : Scoring
    estimator : the user's
    X, y : the user's rows
    given : what ``fit`` is given for every row, by its full name
    """

    def __init__(
        self,
        program: Program,
        scoring: Scoring,
        estimator: Any,
        X: Any,
        y: Any,
        given: Mapping[str, Any],
    ) -> None:
        self.program, self.scoring, self.estimator = program, scoring, estimator
        self.X, self.y, self.given = X, np.asarray(y), given
        data = program.data
        by_pairs = program.model.pairs_of_classes and data.classes is not None and len(data.classes) > 2
        several = data.classes is None and len(data.rows.Y) > 1
        direct = not several and not program.tunable.refitted and program.tunable.retarget is None
        self.answers = Answers.of(estimator, data.classes, by_pairs, direct)
        self.rows = [(FoldRows(X, train), FoldRows(X, validation)) for train, validation in data.splits]
        self.target = data.rows.Y[0] if data.classes is None else np.asarray(data.rows.label)
        self.driver = scoring.driver
        self.names: list[str] = []
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._layouts: dict[tuple[int, ...], tuple[Any, list[Fold]]] = {}

    def __call__(self, bilevel: Bilevel, evaluation: Evaluation, admissible: bool) -> dict[str, list[float]]:
        """The metrics of a point; none of a stage that holds some of the values fixed."""
        if set(bilevel.space.slices) != set(self.program.bilevel.space.slices):
            return {}
        found = bilevel.noted(evaluation, lambda: self._measured(bilevel, evaluation))
        with self._lock:
            self.names = self.names or [n.removeprefix("test ") for n in found if n.startswith("test ")]
            if self.driver not in self.names:
                self.driver = self.names[0]
        return found

    def value(self, record: Record) -> float:
        """The metric that decides, as a mean over the folds; nan where it has none."""
        return metric_mean(record.metrics, f"test {self.driver}")

    # The decisions of every fold.

    def _folds(self, bilevel: Bilevel) -> list[Fold]:
        """Where the folds of a program are; the same for all programs with the same problems."""
        key = tuple(id(problem) for problem in bilevel.problems)
        with self._lock:
            if key not in self._layouts:
                self._layouts[key] = bilevel.problems, list(self._find(bilevel))
            return self._layouts[key][1]

    def _find(self, bilevel: Bilevel) -> Sequence[Fold]:
        out = []
        for i, (problem, sheet) in enumerate(zip(bilevel.problems, self.program.recipe.sheets, strict=True)):
            place = np.empty(len(problem.folds.order), int)
            place[problem.folds.order] = np.arange(len(place))
            for t, (train, validation) in enumerate(sheet.splits):
                tasks = np.flatnonzero(problem.split == t)
                out.append(Fold(i, tasks, place[train], place[validation]))
        return out

    def _measured(self, bilevel: Bilevel, evaluation: Evaluation) -> dict[str, list[float]]:
        began, solutions = time.perf_counter(), bilevel.solutions(evaluation)
        tests, trains = [], []
        for fold in self._folds(bilevel):
            decisions = solutions[fold.problem].decisions[fold.tasks]
            target = self.program.recipe.sheets[fold.problem].target
            if target is not None:  # transformed for training: metrics are of the user's
                decisions = target.inverse(decisions)
            tests.append(np.array(decisions[:, fold.validation].T))
            trains.append(np.array(decisions[:, fold.train].T) if self.scoring.train else None)
        point = _Point(self, bilevel.space.params(evaluation.theta), tests, trains)
        threshold = point.threshold() if self.scoring.threshold else 0.0
        out = point.scores("test", threshold)
        if self.scoring.threshold:
            plain = point.scores("plain", 0.0, [self.driver]) if threshold else {}
            out |= plain or {f"plain {self.driver}": out[f"test {self.driver}"]}
            out["threshold"] = [threshold]
        if self.scoring.train:
            out |= point.scores("train", threshold)
        out["seconds"] = [time.perf_counter() - began]
        return out

    def failed(self, error: Exception) -> float:
        """What a metric that raises is worth, or its error."""
        if isinstance(self.scoring.error_score, str):
            raise error
        with self._lock:
            self.failures.append(f"{type(error).__name__}: {error}")
        return float(self.scoring.error_score)

    def warn(self, chosen: float) -> None:
        """Say how often metrics failed, and how the first time, or else that the one that decides is no number."""
        if not self.failures and not np.isfinite(chosen):
            warnings.warn(
                f"the mean of scoring over the folds is {chosen} at best_params_ (where no point has a finite one the "
                "criterion chooses); cv_results_ has the single folds",
                UserWarning,
                stacklevel=4,
            )
        if self.failures:
            warnings.warn(
                f"scoring failed {len(self.failures)} times and was set to error_score="
                f"{self.scoring.error_score!r} there; error_score='raise' shows where. The first time it was "
                f"{self.failures[0]}",
                UserWarning,
                stacklevel=4,
            )


class _Point:
    """The scores of one point, fold by fold."""

    def __init__(self, measure: Measure, params: Mapping[str, Any], tests: list[Array], trains: list[Any]):
        self.measure, self.params, self.tests, self.trains = measure, params, tests, trains
        self.stands: dict[tuple[int, float], StandIn] = {}

    def scores(
        self, kind: str, threshold: float, names: Sequence[str | None] | None = None
    ) -> dict[str, list[float]]:
        """The metrics of all folds by name; ``kind`` "train" is of training rows, others of validation rows."""
        measure, out = self.measure, {}
        for name, scorer in measure.scoring.scorers.items():
            if names is not None and name not in names and name != SINGLE:
                continue
            values = [self._score(t, scorer, kind == "train", threshold) for t in range(len(self.tests))]
            keys = next((list(value) for value in values if isinstance(value, dict)), None)
            for value in values:
                _check_alike(value, keys)
            for key in keys or [name]:
                parts = [value[key] if isinstance(value, dict) else value for value in values]
                out[f"{kind} {key}"] = [float(one) for one in parts]
        return out

    def _score(self, t: int, scorer: Any, train: bool, threshold: float) -> Any:
        """One metric of one fold: by its formula, or by the scorer itself."""
        measure = self.measure
        rows, Z = measure.rows[t][0 if train else 1], (self.trains if train else self.tests)[t]
        known = formula(scorer, measure.program.data.classes)
        if known is not None and measure.answers.know(known[1]):
            answer = Z[:, 0]
            if measure.answers.classes is not None and known[1] == "predict":
                answer = predicted_codes(Z, len(measure.answers.classes), measure.answers.by_pairs, threshold)
            value = known[0](answer, measure.target[rows.rows])
            if value is not None:
                return value
        own = hasattr(scorer, "_score_func")  # of scikit-learn, which passes rows on without a look
        try:
            with config_context(enable_metadata_routing=False):
                found = scorer(
                    self._stand_in(t, threshold), rows if own else rows.values, measure.y[rows.rows]
                )
        except Exception as error:
            return _Failed(measure.failed(error))
        if isinstance(found, dict):
            return {key: _number(value, key) for key, value in found.items()}
        return _number(found, "scoring")

    def _stand_in(self, t: int, threshold: float) -> StandIn:
        """In the place of the estimator that is fitted to the training rows of a fold."""
        if (t, threshold) not in self.stands:
            measure = self.measure
            train, test = measure.rows[t]
            known = [(test, self.tests[t])]
            if self.trains[t] is not None:
                known.append((train, self.trains[t]))
            proba = self._probabilities(t) if measure.answers.classes is not None else None
            stand = StandIn(
                measure.answers, known, self._configured, lambda e: self._fit(e, t), proba, threshold
            )
            self.stands[t, threshold] = stand
        return self.stands[t, threshold]

    def _configured(self) -> Any:
        program = self.measure.program
        return program.tunable.configure(clone(self.measure.estimator), self.params, program.data.classes)

    def _fit(self, estimator: Any, t: int) -> Any:
        """Fit to the training rows of a fold, as the final fit would to all."""
        rows, measure = self.measure.rows[t][0], self.measure
        given = {name: _safe_indexing(value, rows.rows) for name, value in measure.given.items()}
        with warnings.catch_warnings(), limited(estimator, len(rows)):
            warnings.simplefilter("ignore")
            with config_context(enable_metadata_routing=False):
                return estimator.fit(rows.values, measure.y[rows.rows], **given)

    def _probabilities(self, t: int) -> Callable[[Array], Array] | None:
        """Probabilities for a machine without: from the decisions of the other folds, so that none judges itself."""
        measure, classes = self.measure, self.measure.program.data.classes
        assert classes is not None
        own, seen = measure.rows[t][1].rows, []
        for s, (_, test) in enumerate(measure.rows):
            if s != t:  # without the fold's own rows, which another partition has too
                new = ~np.isin(test.rows, own)
                seen.append((self.tests[s][new], measure.target[test.rows[new]]))
        if not seen or len(np.unique(np.concatenate([codes for _, codes in seen]))) < len(classes):
            return None
        stack, codes = (np.concatenate(parts) for parts in zip(*seen, strict=True))

        def of(Z: Array) -> Array:
            if measure.answers.by_pairs:
                return fit_pairs_of_rows(stack, codes, len(classes)).of(Z)
            fitted = fit_probabilities(stack[:, 0] if stack.shape[1] == 1 else stack, codes)
            return fitted.of(Z[:, 0] if Z.shape[1] == 1 else Z)

        return of

    def threshold(self) -> float:
        """The decision threshold that serves the metric that decides best in all folds together."""
        measure = self.measure
        scorer, classes = measure.scoring.main, measure.program.data.classes
        assert classes is not None
        z = [Z[:, 0] for Z in self.tests]
        if not all(np.all(np.isfinite(one)) for one in z):
            return 0.0
        function = counted(scorer, classes)
        if function is not None:
            codes = [measure.target[test.rows] for _, test in measure.rows]
            return best_threshold(z, codes, *function)
        tried = candidates(z, FEW)
        means = []
        for threshold in tried:
            scores = self.scores("test", float(threshold), [measure.driver])
            means.append(float(np.mean(next(iter(scores.values())))))
        if not np.any(np.isfinite(means)):
            return 0.0
        best = np.flatnonzero(np.array(means) == np.nanmax(means))
        return 0.0 if 0.0 in tried[best] else float(tried[best[len(best) // 2]])


def metric_mean(metrics: Mapping[str, Sequence[float]], name: str) -> float:
    """The mean over the folds; nan where it was not measured."""
    return float(np.mean(metrics[name])) if metrics.get(name) else np.nan


class _Failed(float):
    """What stands for a score that could not be computed."""


def _check_alike(value: Any, keys: Sequence[str] | None) -> None:
    """Refuse a fold's scores that have other names than those of the first fold with names."""
    if keys is None or isinstance(value, _Failed):
        return
    if not isinstance(value, dict) or set(value) != set(keys):
        names = ", ".join(map(repr, keys))
        got = ", ".join(map(repr, value)) if isinstance(value, dict) else repr(value)
        raise ValueError(
            f"scoring must return numbers by the same names in every fold; got {got} in one and {names} in another. "
            "Return nan under a name that a fold has no number for"
        )


def _number(value: Any, name: str) -> float:
    """A score as a number; an error as in scikit-learn for anything else."""
    if hasattr(value, "item") and np.size(value) == 1:
        value = value.item()
    if not isinstance(value, Number) or isinstance(value, complex):
        raise ValueError(
            f"{name} must return a number, or numbers by name; got {value!r} ({type(value).__name__})"
        )
    return float(value)  # type: ignore[arg-type]
