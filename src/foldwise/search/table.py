"""``cv_results_``: the table of all evaluations, with the columns of ``GridSearchCV``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from foldwise.models.base import Array
from foldwise.result import Record
from foldwise.search.scoring import CRITERION, SINGLE

__all__ = ["SAME", "chosen_row", "cv_results", "param_columns", "score_columns"]

SAME = 1e-12
"""Relative difference of metrics up to which they are equal: the criterion decides between such points."""


def cv_results(
    history: Sequence[Record], export: Callable[[dict[str, Any]], dict[str, Any]], names: Sequence[str] = ()
) -> dict[str, Any]:
    """One row per evaluation.

    Parameters
    ----------
    history : records
    export : gives parameters their full names
    names : the metrics that were measured; without them the score is the negative criterion
    """
    n_splits = max((len(record.fold_objectives) for record in history), default=0)
    admissible = np.array([record.admissible for record in history])
    params = [export(_arrays(record.params)) for record in history]
    out: dict[str, Any] = {
        **_times(history, n_splits),
        **param_columns(params),
        "params": params,
        "elapsed": np.array([record.elapsed for record in history]),
    }
    folds = -np.array([record.fold_objectives for record in history])
    if not names:
        return out | score_columns(folds, "test", SINGLE, admissible)
    out |= score_columns(folds, "test", CRITERION, admissible)
    for kind in ("test", "plain", "train"):
        for name in names:
            if any(f"{kind} {name}" in record.metrics for record in history):
                own = _metric(history, f"{kind} {name}", n_splits)
                out |= score_columns(own, kind, name, admissible if kind == "test" else None)
    if any("threshold" in record.metrics for record in history):
        out["threshold"] = np.array([record.metrics.get("threshold", [np.nan])[0] for record in history])
    return out


def chosen_row(refit: Callable[[dict[str, Any]], Any], table: dict[str, Any]) -> int:
    """The row that a callable ``refit`` takes."""
    given, n = refit(table), len(table["params"])
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise TypeError(f"refit must return the number of a row of cv_results_, an integer; got {given!r}")
    index = int(given)
    if not 0 <= index < n:
        raise IndexError(f"refit must return the number of a row of cv_results_, 0 to {n - 1}; got {index}")
    return index


def score_columns(folds: Array, kind: str, name: str, admissible: Array | None) -> dict[str, Any]:
    """Columns of a metric of shape (rows, folds): of every fold, mean, spread, and the rank where rows may be chosen.

    Rows that may not, and those without a finite value, come last.
    """
    out: dict[str, Any] = {f"split{t}_{kind}_{name}": folds[:, t] for t in range(folds.shape[1])}
    with np.errstate(over="ignore", invalid="ignore"):  # points whose error is not finite
        out[f"mean_{kind}_{name}"], out[f"std_{kind}_{name}"] = folds.mean(axis=1), folds.std(axis=1)
    if admissible is not None:
        mean = out[f"mean_{kind}_{name}"]
        out[f"rank_{kind}_{name}"] = _ranks(np.where(admissible & np.isfinite(mean), mean, -np.inf))
    return out


def _ranks(means: Array) -> Array:
    """Ranks from 1 for the highest on; means that differ by rounding alone share one."""
    order = np.argsort(-means, kind="stable")
    above, below = means[order][:-1], means[order][1:]
    finite = np.isfinite(above) & np.isfinite(below)
    with np.errstate(invalid="ignore"):  # between rows that come last
        apart = above - below > SAME * np.maximum(np.abs(above), np.abs(below))
    new = np.where(finite, apart, above != below)
    first = np.maximum.accumulate(np.where(np.append(True, new), np.arange(len(means)), 0))
    out = np.empty(len(means), np.int32)
    out[order] = first + 1
    return out


def param_columns(params: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A masked column for every parameter: what a row does not have is masked."""
    out = {}
    for name in dict.fromkeys(name for one in params for name in one):
        column = np.ma.MaskedArray(np.empty(len(params), dtype=object), mask=True)
        for k, one in enumerate(params):
            if name in one:
                column[k : k + 1] = np.ma.array([None], dtype=object)
                column.data[k] = one[name]
        out[f"param_{name}"] = column
    return out


def _metric(history: Sequence[Record], name: str, n_splits: int) -> Array:
    """A metric of every fold, shape (rows, folds); nan where it was not measured."""
    return np.array([record.metrics.get(name, [np.nan] * n_splits) for record in history], float)


def _times(history: Sequence[Record], n_splits: int) -> dict[str, Any]:
    """Seconds by fold: all folds are solved together, so that their times are equal shares and do not spread.

    The time of a fit is what passed since the scores of the record before it, derivatives included.
    """
    scoring = np.array([record.metrics.get("seconds", [0.0])[0] for record in history])
    elapsed = np.array([record.elapsed for record in history])
    before = np.concatenate([[0.0], (elapsed + scoring)[:-1]])
    passed = np.where(elapsed >= before, elapsed - before, elapsed)  # starts in threads overlap
    share, zero = 1.0 / max(n_splits, 1), np.zeros(len(history))
    return {
        "mean_fit_time": passed * share,
        "std_fit_time": zero,
        "mean_score_time": scoring * share,
        "std_score_time": zero.copy(),
    }


def _arrays(params: dict[str, Any]) -> dict[str, Any]:
    return {name: np.array(value) if isinstance(value, list) else value for name, value in params.items()}
