"""Choices beside ranges: a search in every branch, of many branches first on few rows, and the best of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import KFold, StratifiedKFold, check_cv, train_test_split
from sklearn.utils import _safe_indexing, check_random_state, indexable

from foldwise.estimators.adapters import describe
from foldwise.result import CUT_SHORT, MESSAGES, Status
from foldwise.search.spaces import Branch, read_branches
from foldwise.search.table import param_columns, score_columns

__all__ = ["HalvingRule", "fit_branches", "has_choices"]


@dataclass(frozen=True)
class HalvingRule:
    """How many branches are searched on few rows before all rows are used.

    Attributes
    ----------
    few : so many branches are searched in full
    rows : rows of the first round; every further round has ``factor`` times as many
    factor : one in so many branches goes on to the next round
    steps : iterations of a search on few rows
    """

    few: int = 6
    rows: int = 200
    factor: int = 3
    steps: int = 3


RULE = HalvingRule()


def has_choices(search: Any) -> bool:
    """Whether a search is one of several branches, or has something chosen beside ranges."""
    branches = read_branches(search)
    return len(branches) > 1 or bool(branches[0].choices)


@dataclass(eq=False)
class Leaf:
    """A branch with the search that was run in it.

    Attributes
    ----------
    branch : Branch
    place : names that are searched only because a search needs one, with their values
    search : the search, once it was run
    final : its final fit
    error : why it failed
    number : which one it is, from 1 on, among all
    """

    branch: Branch
    place: dict[str, tuple[float, float]]
    search: Any = None
    final: Callable[[], None] | None = None
    error: Exception | None = None
    number: int = 0

    @property
    def score(self) -> float:
        """The score of its best point; the lowest where there is none."""
        score = -np.inf if self.search is None else self.search.best_score_
        return float(score) if not np.isnan(score) else -np.inf


def fit_branches(
    search: Any, X: Any, y: Any, rows: dict[str, Any], began: float
) -> Callable[[], None] | None:
    """Run every branch and set the attributes of the whole; returns the final fit of the best.

    Parameters
    ----------
    search : BilevelSearchCV
    rows : ``sample_weight``, ``sample_groups`` and ``groups`` of ``fit``
    began : when the search began
    """
    if callable(search.refit):
        raise ValueError(
            "a callable refit chooses among the rows of one search, and this space has choices, with a search for "
            "each; set refit=False and take the row from cv_results_, or refit=True"
        )
    leaves = [_leaf(branch) for branch in read_branches(search)]
    for number, leaf in enumerate(leaves, 1):
        leaf.number = number
    options = {**search.get_params(deep=False), **_shared(search, leaves)}
    X, y = indexable(X, y)
    folds = options["cv"]
    # The same folds in every branch; a number stands for the same ones in all, repeated or not.
    if not (folds is None or isinstance(folds, (Integral, list, tuple))):
        checked = check_cv(folds, y, classifier=is_classifier(search.estimator))
        options["cv"] = list(checked.split(X, y, rows["groups"]))
    run = _Branches(search, options, X, y, {**rows, "groups": None}, began)
    alive = run.survivors(leaves)
    return run.finish(leaves, alive, run.all_rows(alive))


def _leaf(branch: Branch) -> Leaf:
    """A branch without ranges holds one of its values where it is, which a search can evaluate."""
    if branch.space is None or len(branch.space):
        return Leaf(branch, {})
    tunable = describe(branch.estimator)
    own = tunable.estimator.get_params(deep=False)
    for name in tunable.names:
        value = own.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return Leaf(branch, {tunable.prefix + name: (float(value), float(value))})
    for name, value in branch.choices.items():
        if name in [tunable.prefix + one for one in tunable.names]:
            raise ValueError(f"the values of {name!r} must be positive numbers here; got {value!r}")
    raise ValueError(
        f"with {dict(branch.choices)!r} nothing is left to tune in {type(tunable.estimator).__name__}; give a range of "
        f"one of: {', '.join(tunable.prefix + name for name in tunable.names)}"
    )


def _shared(search: Any, leaves: Sequence[Leaf]) -> dict[str, Any]:
    """What all branches have in common: a given seed, and one criterion with the same weights, to compare them by."""
    out: dict[str, Any] = {"param_grid": None, "param_distributions": None}
    if search.random_state is not None:  # else every branch draws its own, which its checkpoint keeps
        out["random_state"] = int(check_random_state(search.random_state).randint(2**31))
    if search.scoring is None and isinstance(search.criterion, str) and search.criterion == "auto":
        usual = [describe(leaf.branch.estimator).criterion() for leaf in leaves]
        if any(one != usual[0] for one in usual):
            out["criterion"] = "profiled_logistic" if is_classifier(search.estimator) else "squared"
    weights = [getattr(describe(leaf.branch.estimator).estimator, "class_weight", None) for leaf in leaves]
    if search.criterion_weight == "auto" and any(one != weights[0] for one in weights):
        out["criterion_weight"] = None
    return out


@dataclass(eq=False)
class _Branches:
    """Runs the branches of one search."""

    search: Any
    options: dict[str, Any]
    X: Any
    y: Any
    rows: dict[str, Any]
    began: float

    def child(self, leaf: Leaf, **changes: Any) -> Any:
        """The search of one branch."""
        space = leaf.place or leaf.branch.space
        held = {"rescale": False} if leaf.place else {}  # a value that is not searched stays what it is
        options = {
            **self.options,
            "estimator": clone(leaf.branch.estimator),
            "space": space,
            **held,
            **changes,
        }
        return type(self.search)(**options)

    def left(self) -> float | None:
        """Seconds that are left."""
        limit = self.search.max_time
        return None if limit is None else max(limit - (time.perf_counter() - self.began), 1e-3)

    def survivors(self, leaves: list[Leaf]) -> list[Leaf]:
        """The branches that are worth all rows: of many, those that do best on few."""
        n, rows, alive = len(self.y), RULE.rows, list(leaves)
        plain = all(value is None for value in self.rows.values()) and hasattr(self.X, "shape")
        while len(alive) > RULE.few and plain and 2 * rows <= n:
            sample = self._sample(rows)
            if sample is None:
                break
            Xs, ys = _safe_indexing(self.X, sample), _safe_indexing(self.y, sample)
            folds: Any = StratifiedKFold(3) if is_classifier(self.search.estimator) else KFold(3)
            quick = {
                "cv": folds,
                "repeats": 1,
                "choice": "best",
                "refit": self._named_refit(),
                "checkpoint": None,
                "resume": False,
            }
            scores = []
            for k, leaf in enumerate(alive):
                share = self.left()
                limit = None if share is None else 0.5 * share / (len(alive) - k)
                quiet = {"max_time": limit, "verbose": 0, "callbacks": ()}
                scores.append(self._trial(leaf, {**quick, **quiet}, Xs, ys))
            keep = max(RULE.few // 2, -(-len(alive) // RULE.factor))
            order = np.argsort(-np.array(scores), kind="stable")[:keep]
            alive, rows = [alive[k] for k in sorted(order)], rows * RULE.factor
            if len(alive) <= RULE.few:
                break
        return alive

    def _trial(self, leaf: Leaf, options: dict[str, Any], X: Any, y: Any) -> float:
        """The score of a branch on few rows, in few steps; methods that count points have no steps."""
        for limit in ({"max_iter": RULE.steps}, {}):
            child = self.child(leaf, **options, **limit)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    child._select(X, y, None, None, None)
                except (ValueError, TypeError, AttributeError, np.linalg.LinAlgError):
                    continue
            if child.result_.status == Status.INTERRUPTED:  # nothing is known of all rows yet
                raise KeyboardInterrupt
            return float(child.best_score_) if not np.isnan(child.best_score_) else -np.inf
        return -np.inf

    def _named_refit(self) -> Any:
        """A refit that the reading of several metrics accepts, without a final fit."""
        return self.search.refit if isinstance(self.search.refit, str) else False

    def _sample(self, size: int) -> Any:
        """A sample of the rows, with the classes in their shares."""
        classes = self.y if is_classifier(self.search.estimator) else None
        index = np.arange(len(self.y))
        try:
            return np.sort(train_test_split(index, train_size=size, stratify=classes, random_state=0)[0])
        except ValueError:  # a class with too few rows
            return None

    def all_rows(self, leaves: list[Leaf]) -> Status | None:
        """Search every branch on all rows; how that ended where it was cut short."""
        path = self.search.checkpoint
        for k, leaf in enumerate(leaves):
            share = self.left()
            limit = None if share is None else share / (len(leaves) - k)
            own: dict[str, Any] = {
                "max_time": limit,
                "checkpoint": None if path is None else f"{path}.branch{leaf.number}",
            }
            child = self.child(leaf, **own)
            try:
                leaf.final = child._select(self.X, self.y, *self.rows.values())
                leaf.search = child
            except KeyboardInterrupt:
                if not any(one.search is not None for one in leaves):
                    raise
                return Status.INTERRUPTED
            except Exception as error:
                if isinstance(self.search.error_score, str):
                    raise
                leaf.error = error
                continue
            status = child.result_.status
            if status in CUT_SHORT and status is not Status.TIME_LIMIT:
                return Status(status)
            if status is Status.TIME_LIMIT and self.left() == 1e-3:
                return Status.TIME_LIMIT
        return None

    def finish(self, leaves: list[Leaf], alive: list[Leaf], cut: Status | None) -> Callable[[], None] | None:
        """Publish the whole, with the best branch as its result."""
        search, run = self.search, [leaf for leaf in leaves if leaf.search is not None]
        failed = [leaf for leaf in leaves if leaf.error is not None]
        if not run:
            assert failed[0].error is not None
            raise failed[0].error
        if failed:
            warnings.warn(
                f"{len(failed)} of {len(leaves)} branches failed and are left out; the first, "
                f"{dict(failed[0].branch.choices)!r}, with {type(failed[0].error).__name__}: {failed[0].error}",
                FitFailedWarning,
                stacklevel=4,
            )
        best = max(run, key=lambda leaf: leaf.score)
        child = best.search
        for name in [n for n in vars(child) if n[0] != "_" and n[-1] == "_"]:
            setattr(search, name, getattr(child, name))
        search.cv_results_, first = _table(run), _first(run, best)
        search.best_index_ = first + child.best_index_
        search.best_params_ = search.cv_results_["params"][search.best_index_]
        tuned = {name: value for name, value in child.refit_params_.items() if name not in best.place}
        search.refit_params_ = {**best.branch.choices, **tuned}
        search.n_iter_ = sum(leaf.search.n_iter_ for leaf in run)
        search.n_resumed_ = sum(leaf.search.n_resumed_ for leaf in run)
        result = child.result_
        summary = [
            {"choices": {n: str(v) for n, v in leaf.branch.choices.items()}, "score": leaf.score}
            for leaf in run
        ]
        halved, missed = len(leaves) - len(alive), len(alive) - len(run) - len(failed)
        details = {
            **result.details,
            "branches": summary,
            "branches_halved": halved,
            "branches_not_reached": missed,
        }
        elapsed = time.perf_counter() - self.began
        given = int(search.random_state) if isinstance(search.random_state, Integral) else None
        search.result_ = replace(result, details=details, elapsed=elapsed, seed=given)
        if cut is not None:
            search.result_ = replace(search.result_, status=cut, message=MESSAGES[cut])
        return None if best.final is None else lambda: self._final(best)

    def _final(self, best: Leaf) -> None:
        """The final fit of the best branch."""
        assert best.final is not None
        best.final()
        self.search.best_estimator_ = best.search.best_estimator_
        self.search.refit_time_ = best.search.refit_time_
        self.search.result_ = replace(self.search.result_, warnings=best.search.result_.warnings)


def _first(run: Sequence[Leaf], best: Leaf) -> int:
    """The number of the first row of a branch in the table of all."""
    counts = [len(leaf.search.cv_results_["params"]) for leaf in run]
    return int(np.sum(counts[: [leaf is best for leaf in run].index(True)]))


def _table(run: Sequence[Leaf]) -> dict[str, Any]:
    """The tables of all branches, one below the other; what a branch does not have is masked, or nan."""
    tables = [leaf.search.cv_results_ for leaf in run]
    params = [
        {**leaf.branch.choices, **{n: v for n, v in one.items() if n not in leaf.place}}
        for leaf, table in zip(run, tables, strict=True)
        for one in table["params"]
    ]
    counts = [len(table["params"]) for table in tables]
    plain = [
        n for n in dict.fromkeys(n for table in tables for n in table) if n[:6] not in ("params", "param_")
    ]
    out: dict[str, Any] = {}
    for name in plain:
        parts = [
            np.asarray(t.get(name, np.full(k, np.nan)), float) for t, k in zip(tables, counts, strict=True)
        ]
        out[name] = np.concatenate(parts)
    admissible = np.concatenate([[r.admissible for r in leaf.search.result_.history] for leaf in run])
    for name in [n.removeprefix("rank_test_") for n in plain if n.startswith("rank_test_")]:
        splits = [n for n in plain if n.startswith("split") and n.endswith(f"_test_{name}")]
        folds = np.column_stack([out[n] for n in splits])
        out |= score_columns(folds, "test", name, admissible)
    return {**out, **param_columns(params), "params": params}
