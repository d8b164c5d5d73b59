"""Nested cross-validation: the whole search judged on rows that it has not seen, fold by fold.

The slow referee of what one search says about new rows: every outer fold has a search of its own, inner folds and final
fit included, and its rows are predicted by a model that never saw them.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import clone
from sklearn.utils import _safe_indexing, get_tags

from foldwise.arguments import FLAG, FOLDS, NONE, Rule, check_arguments, check_value, integer, is_splitter
from foldwise.callbacks import ProgressBar
from foldwise.criteria import Criterion, OutOfFold, Part, as_criterion, criterion_name
from foldwise.estimators.adapters import describe
from foldwise.estimators.encoding import check_target
from foldwise.estimators.tunable import Tunable
from foldwise.losses import Loss
from foldwise.models.base import Array
from foldwise.models.binding import criterion_weights
from foldwise.problems.folds import Folds
from foldwise.result import CUT_SHORT, Record, Status
from foldwise.search.branches import has_choices
from foldwise.search.data import read_data
from foldwise.search.nested_result import COMPLETE, INTERRUPTED, Nested, OuterFold
from foldwise.search.prepare import Data
from foldwise.search.scoring import read_scoring
from foldwise.version import __version__

__all__ = ["Nested", "OuterFold", "run_nested"]

JOBS = Rule("an integer that is not 0", lambda jobs: jobs != 0 and integer(-(2**31)).allows(jobs)) | NONE
VERBOSE = FLAG | integer(0) | NONE


def run_nested(
    search: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    sample_weight: Any = None,
    sample_groups: Any = None,
    groups: Any = None,
    n_jobs: int | None = None,
    verbose: int | None = None,
) -> Nested:
    """Nested cross-validation of a search, which is not changed; see ``BilevelSearchCV.nested``."""
    check_value("cv of nested", cv, FOLDS)
    check_value("n_jobs of nested", n_jobs, JOBS)
    check_value("verbose of nested", verbose, VERBOSE)
    given = {"sample_weight": sample_weight, "sample_groups": sample_groups, "groups": groups}
    given = {name: value for name, value in given.items() if value is not None}
    began = time.perf_counter()
    outer = Outer.of(search, X, y, cv, given)
    watch = search.verbose if verbose is None else verbose
    jobs = min(effective_n_jobs(n_jobs), len(outer.data.splits))
    runner = _Threads(outer, watch, jobs) if jobs > 1 else _OneByOne(outer, watch)
    found = runner.run()
    if not found:
        raise KeyboardInterrupt("interrupted before the first outer fold was finished; nothing is known")
    return outer.result(found, time.perf_counter() - began)


@dataclass(frozen=True, eq=False)
class FoldAnswer:
    """What a search that has ended says of an outer fold: predictions and decisions, before they are valued."""

    fold: OuterFold
    decisions: Array
    criterion: Loss | Criterion


@dataclass(frozen=True, eq=False)
class Outer:
    """The outer folds of a search on some data, looked through before any work.

    Attributes
    ----------
    search : the search; copies of it are fitted
    tunable : its estimator
    X, y : as given, the target as a flat array
    given : what ``fit`` takes for every row
    data : the outer folds, with classes and weights
    """

    search: Any
    tunable: Tunable
    X: Any
    y: Array
    given: Mapping[str, Any]
    data: Data

    @classmethod
    def of(cls, search: Any, X: Any, y: Any, cv: Any, given: Mapping[str, Any]) -> Outer:
        """Read the data and refuse what some search would stumble over."""
        probe = clone(search)
        check_arguments(probe)
        if isinstance(search.cv, Iterable) and not is_splitter(search.cv):
            raise ValueError(
                "cv of the search is a list of rows, which are other rows in every outer fold; give the search a "
                "number of folds or a splitter"
            )
        if has_choices(probe):
            raise ValueError(
                "nested compares searches by one criterion of one machine, and this space has choices, with a search "
                "for each; use sklearn.model_selection.cross_validate(search, X, y, scoring=...)"
            )
        tunable = describe(probe.estimator)
        probe._check_together(tunable, given.get("sample_groups"), given.get("sample_weight"))
        probe._criterion(tunable, read_scoring(probe, tunable))
        rows = (given.get("sample_weight"), given.get("sample_groups"), given.get("groups"))
        data = read_data(probe.set_params(cv=cv, repeats=1), tunable, X, y, *rows)
        outer = cls(search, tunable, X, check_target(y, tunable.task), given, data)
        for t, (train, _) in enumerate(data.splits):
            with _named(t, len(data.splits)):
                part, target, own = outer.training(train)
                rows = (own.get("sample_weight"), own.get("sample_groups"), own.get("groups"))
                read_data(clone(search), tunable, part, target, *rows)
        outer._check_checkpoints()
        return outer

    def _check_checkpoints(self) -> None:
        if self.search.checkpoint is None or self.search.resume:
            return
        for t in range(len(self.data.splits)):
            if (path := self.checkpoint(t)) is not None and path.exists():
                raise ValueError(f"the checkpoint {path} exists; set resume=True, or choose another file")

    def checkpoint(self, t: int) -> Path | None:
        """The file of one search: that of the whole with the fold's number."""
        path = None if self.search.checkpoint is None else Path(self.search.checkpoint)
        return None if path is None else path.with_name(f"{path.name}.fold{t + 1}")

    def training(self, train: Array) -> tuple[Any, Array, dict[str, Any]]:
        """Features, target and what else ``fit`` takes, of the training rows."""
        own = {
            name: value if isinstance(value, Real) else np.asarray(value)[train]
            for name, value in self.given.items()
        }
        return self._features(train, train), self.y[train], own

    def _features(self, rows: Array, train: Array) -> Any:
        """These rows; of a kernel matrix their columns are the training rows."""
        part = _safe_indexing(self.X, rows)
        return _safe_indexing(part, train, axis=1) if get_tags(self.search).input_tags.pairwise else part

    def fit(self, t: int, callbacks: Sequence[Callable[[Record], Any]], n_jobs: Any) -> FoldAnswer | None:
        """The search of one outer fold; None where Ctrl-C cut it short."""
        train, test = self.data.splits[t]
        X, y, own = self.training(train)
        search = clone(self.search).set_params(
            refit=self._refit(), verbose=0, n_jobs=n_jobs, checkpoint=self.checkpoint(t)
        )
        search.callbacks = callbacks  # as they are: a clone would have copies
        began = time.perf_counter()
        with _named(t, len(self.data.splits)):
            search.fit(X, y, **own)
            if search.result_.status is Status.INTERRUPTED or "best_estimator_" not in vars(search):
                return None
            seconds = time.perf_counter() - began
            return self._answer(t, search, self._features(test, train), seconds)

    def _refit(self) -> Any:
        """What decides in the copies, as in the search, with a final fit."""
        refit = self.search.refit
        if isinstance(refit, str) or callable(refit):
            return refit
        scoring = read_scoring(self.search, self.tunable)
        return scoring.driver if scoring is not None and scoring.multimetric else True

    def _answer(self, t: int, search: Any, X: Any, seconds: float) -> FoldAnswer:
        train, test = self.data.splits[t]
        result, predictions = search.result_, np.asarray(search.predict(X))
        decisions = predictions if self.data.classes is None else search._decisions(X, self._by_pairs)
        fold = OuterFold(
            number=t,
            n_train=len(train),
            rows=test,
            predictions=predictions,
            params={name: _plain(value) for name, value in search.best_params_.items()},
            inner_error=result.error,
            inner_error_rate=result.error_rate,
            optimism=result.optimism,
            expected_error=result.expected_error,
            error=np.nan,
            error_rate=None,
            status=result.status.value,
            seconds=seconds,
        )
        return FoldAnswer(fold, np.asarray(decisions, float).reshape(len(test), -1), search.criterion_)

    # What the decisions are worth.

    @cached_property
    def _model(self) -> Any:
        """The machine as a model, which knows what rows count."""
        classes = self.data.classes
        shape: tuple[int, ...] = getattr(self.data.X, "shape", ())
        model = self.tunable.model(classes, shape[1] if len(shape) == 2 else 1)
        scoring = self.search._scoring(self.tunable, classes)
        return model.with_criterion_weight(self.search._criterion_weight(classes, scoring))

    @property
    def _by_pairs(self) -> bool:
        classes = self.data.classes
        return classes is not None and len(classes) > 2 and bool(self._model.pairs_of_classes)

    def result(self, found: Sequence[FoldAnswer], seconds: float) -> Nested:
        """The answers, valued by the criterion of all of them together."""
        found = sorted(found, key=lambda one: one.fold.number)
        counts = self._counts([*found[0].fold.params])
        parts: list[Part] = []
        owner: list[int] = []
        for k, one in enumerate(found):
            own = [part for part in self._targets(one, counts[one.fold.number]) if part[2].sum() > 0]
            for z, y, v in own:
                share = v / v.sum() / len(own) / len(found)
                parts.append(Part(0, len(parts), len(parts), None, z, y, share))
                owner.append(k)
        criterion = as_criterion(found[0].criterion)
        values = criterion.by_task(OutOfFold(parts, len(parts)))
        errors = len(found) * np.bincount(owner, values, len(found))
        folds = tuple(
            replace(one.fold, error=float(error), error_rate=self._rate(one.fold, counts))
            for one, error in zip(found, errors, strict=True)
        )
        n_folds = len(self.data.splits)
        done = len(folds) == n_folds
        message = (
            f"Every one of {n_folds} outer folds was predicted by a search that had not seen it."
            if done
            else f"Ctrl-C ended it: {len(folds)} of {n_folds} outer folds are finished, and all figures are theirs."
        )
        name = criterion_name(found[0].criterion)
        return Nested(
            self.tunable.task,
            name,
            len(self.y),
            n_folds,
            folds,
            COMPLETE if done else INTERRUPTED,
            message,
            seconds,
            __version__,
        )

    def _counts(self, tuned: Sequence[str]) -> Array:
        """What every row counts in the criterion of every outer fold: shape (folds, rows), as in a search."""
        n = len(self.y)
        names: Any = dict.fromkeys(name.removeprefix(self.tunable.prefix) for name in tuned)
        folds = Folds.build(n, self.data.splits, blocks=False)
        counts = criterion_weights(self._model, self.data.rows, folds, names)
        return np.broadcast_to(np.ones(n) if counts is None else counts, (len(self.data.splits), n))

    def _targets(self, one: FoldAnswer, counts: Array) -> Iterator[tuple[Array, Array, Array]]:
        """Decisions, targets and weights of every machine that an outer fold's model is made of."""
        test, Z = one.fold.rows, one.decisions
        v = counts[test]
        if not self._by_pairs:
            for z, y in zip(Z.T, self.data.rows.Y, strict=True):
                yield z, y[test], v
            return
        label = self.data.rows.label
        assert label is not None
        assert self.data.classes is not None
        codes = label[test]
        for z, (i, j) in zip(Z.T, combinations(range(len(self.data.classes)), 2), strict=True):
            own = (codes == i) | (codes == j)
            yield z[own], np.where(codes[own] == i, 1.0, -1.0), v[own]

    def _rate(self, fold: OuterFold, counts: Array) -> float | None:
        """The share of wrong predictions, rows counted as in ``error_rate`` of a search."""
        if self.data.classes is None:
            return None
        weight = self.data.rows.weight if self._by_pairs else counts[fold.number]
        v = np.ones(len(fold.rows)) if weight is None else np.asarray(weight, float)[fold.rows]
        return float(np.average(fold.predictions != self.y[fold.rows], weights=v))


@dataclass(eq=False)
class _OneByOne:
    """Outer folds one after the other, each with a line of progress that is kept up to date."""

    outer: Outer
    verbose: int

    def run(self) -> list[FoldAnswer]:
        """The answers of the folds before Ctrl-C."""
        found: list[FoldAnswer] = []
        count = len(self.outer.data.splits)
        for t in range(count):
            try:
                answer = self._one(t, count)
            except KeyboardInterrupt:
                answer = None
            if answer is None:
                break
            found.append(answer)
            _announce(answer, count, self.verbose)
        return found

    def _one(self, t: int, count: int) -> FoldAnswer | None:
        callbacks, jobs = self.outer.search.callbacks, self.outer.search.n_jobs
        if not self.verbose:
            return self.outer.fit(t, callbacks, jobs)
        with ProgressBar(title=f"outer fold {t + 1} of {count}") as bar:
            return self.outer.fit(t, (*callbacks, bar), jobs)


@dataclass(eq=False)
class _Threads:
    """Outer folds side by side in threads; Ctrl-C asks those under way to stop at their next evaluation."""

    outer: Outer
    verbose: int
    jobs: int

    def run(self) -> list[FoldAnswer]:
        """The answers of the folds that were finished before Ctrl-C."""
        self.stop, self.lock = threading.Event(), threading.Lock()
        count = len(self.outer.data.splits)
        found: list[FoldAnswer] = []
        # Searches change the filters of warnings for a moment, which threads have in common.
        with warnings.catch_warnings(), ThreadPoolExecutor(self.jobs) as pool:
            tasks: list[Future[FoldAnswer | None]] = [pool.submit(self._one, t) for t in range(count)]
            try:
                for task in as_completed(tasks):
                    answer = task.result()
                    if answer is not None:
                        found.append(answer)
                        _announce(answer, count, self.verbose)
            except KeyboardInterrupt:
                self._give_up(pool)
                done = [task.result() for task in tasks if not task.cancelled() and task.exception() is None]
                return [answer for answer in done if answer is not None]
            except BaseException:
                self._give_up(pool)
                raise
        return found

    def _give_up(self, pool: ThreadPoolExecutor) -> None:
        self.stop.set()
        pool.shutdown(cancel_futures=True)

    def _one(self, t: int) -> FoldAnswer | None:
        answer = self.outer.fit(t, (self._watch,), None)
        cut = answer is not None and answer.fold.status in {status.value for status in CUT_SHORT}
        return None if cut and self.stop.is_set() else answer

    def _watch(self, record: Record) -> bool:
        """The user's callbacks, which see one record at a time, and whether it is time to stop."""
        with self.lock:
            asked = [bool(call(record)) for call in self.outer.search.callbacks]
        return any(asked) or self.stop.is_set()


@contextmanager
def _named(t: int, count: int) -> Iterator[None]:
    """Say in which outer fold something went wrong."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in outer fold {t + 1} of {count}")
        raise


def _announce(answer: FoldAnswer, count: int, verbose: int) -> None:
    """A line about a fold that is finished."""
    if not verbose:
        return
    from rich.console import Console

    fold = answer.fold
    text = f"outer fold {fold.number + 1} of {count}: {fold.status}, {fold.seconds:.1f} s"
    Console(stderr=True).print(text, markup=False, highlight=False, soft_wrap=True, emoji=False)


def _plain(value: Any) -> Any:
    """A selected value as a number, a list or a dict."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return float(value) if isinstance(value, Real) else value
