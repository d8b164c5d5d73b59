"""What a report says, as plain data: gathered from a fitted search, kept as JSON, drawn later."""

from __future__ import annotations

import json
import math
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from foldwise.plotting.data import Contour, Relevance, criterion_words, path_data, relevance_data
from foldwise.result import Result, as_json
from foldwise.version import __version__

__all__ = ["SCHEMA", "certificate", "gather", "meaning"]

SCHEMA = "foldwise-report-1"

MEANINGS = {
    "C": "weight of the training errors; larger fits the training rows more closely",
    "alpha": "strength of the penalty; larger gives a smoother model",
    "lam": "penalty of a feature's weight; larger makes the feature count less",
    "epsilon": "half width of the tube in which errors do not count",
    "gamma": "width of the kernel as 1 / distance²; larger makes the model more local",
    "weights": "weight of each kernel in the sum",
    "coef0": "constant inside the polynomial kernel",
    "class_weight": "cost of errors on a class, relative to the first class",
    "box": "largest size of a feature's weight; 0 leaves the feature out",
}


def meaning(name: str) -> str:
    """A hyper-parameter in a few words; empty for one that is not known.

    >>> meaning("svc__gamma")
    'width of the kernel as 1 / distance²; larger makes the model more local'
    """
    return MEANINGS.get(name.rsplit("__", 1)[-1].split("[")[0], "")


def gather(
    search: Any,
    *,
    title: str = "Selection of hyper-parameters",
    feature_names: Sequence[str] | None = None,
    errors: Mapping[str, float] | None = None,
    comparison: Sequence[Mapping[str, Any]] = (),
    contour: Contour | None = None,
    code: str | None = None,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything a report shows, as lists, dicts, numbers and strings that JSON can hold.

    Parameters
    ----------
    search : fitted BilevelSearchCV
    title : str
    feature_names : names of the features; by default those the search was fitted with
    errors : mapping from a description ("test mean squared error") to its value
    comparison : rows of a table, each a mapping from column to text or number; all with the same columns
    contour : Contour, optional
        From :func:`foldwise.plotting.contour_data`.
    code : str, optional
        How to get the same result again; by default the search's constructor call.
    warnings : sequence of str
        Added to those of the result.
    """
    check_is_fitted(search, "result_")
    result: Result = search.result_
    path = path_data(search)
    best = np.concatenate([np.atleast_1d(result.params[block.name]) for block in search.space_.blocks])
    selected = [
        {
            "name": name,
            "value": value,
            "lower": low,
            "upper": high,
            "log": bool(log),
            "meaning": meaning(name),
            "at_bound": result.at_bound.get(name),
        }
        for name, value, low, high, log in zip(
            path.names, best, path.lower, path.upper, path.log, strict=True
        )
    ]
    facts: dict[str, Any] = {
        "schema": SCHEMA,
        "title": title,
        "criterion": criterion_words(search),
        "estimator": _short(search.estimator),
        "n_splits": search.n_splits_,
        "selected": selected,
        "refit": {name: _plain(value) for name, value in getattr(search, "refit_params_", {}).items()},
        "result": json.loads(result.to_json()),
        "path": {
            "names": path.names,
            "evaluation": path.evaluation,
            "start": path.start,
            "values": path.normalised(),
        },
        "relevance": _relevance(search, feature_names),
        "contour": contour,
        "errors": dict(errors or {}),
        "comparison": [dict(row) for row in comparison],
        "code": _code(search) if code is None else code,
        "warnings": [*result.warnings, *warnings],
        "versions": _versions(),
    }
    return {name: as_json(value) for name, value in facts.items()}


def certificate(result: Result) -> list[str]:
    """What is known about the answer, one plain sentence each."""
    start, end = result.error_start, result.error
    sentences = [f"The search ended: {result.status.value}. {result.message}"]
    if start:
        change = 100 * (end / start - 1)
        sentences.append(
            f"The cross-validation error went from {start:.5g} at the first point to {end:.5g} ({change:+.1f}%)."
        )
    if result.penalty and not math.isnan(result.penalty):
        sentences.append(
            f"What was minimised is {result.objective:.5g}: that error and a penalty of {result.penalty:.5g} on "
            "hyper-parameters that would over-fit the folds."
        )
    kkt = max(result.kkt, default=None)
    if kkt is not None:
        grade = (
            "solved to rounding" if kkt < 1e-8 else "solved well" if kkt < 1e-4 else "not solved accurately"
        )
        sentences.append(
            f"The training problems of all folds are {grade}: their optimality conditions hold to {kkt:.1g}."
        )
    if result.gradient_norm is not None:
        sentences.append(
            f"The derivative of the cross-validation error with respect to the hyper-parameters that can still move "
            f"has size {result.gradient_norm:.2g}; at a smooth minimum it is zero."
        )
    else:
        sentences.append("The criterion has no derivative, so nothing is known about a minimum nearby.")
    if result.at_bound:
        names = [f"{name} ({side})" for name, side in result.at_bound.items()]
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        sentences.append(f"At a bound: {', '.join(names[:6])}{more}. A wider range may give a lower error.")
    else:
        sentences.append("No hyper-parameter sits at a bound.")
    if result.n_kinks:
        sentences.append(
            f"{result.n_kinks} training rows sit exactly on a kink of the loss, where the derivative is one-sided."
        )
    if result.approximation:
        rank, bound = result.approximation["landmarks"], result.approximation["bound"]
        sentences.append(
            f"During the search the kernel was seen through {rank} landmarks, which changes any decision by at most "
            f"{bound:.1g}; the final model does not use them."
        )
    sentences.append(
        "A search finds a local minimum at best, and the error on the folds is an optimistic estimate of the error on "
        "new rows: judge the model by rows that the search has not seen."
    )
    return sentences


def _relevance(search: Any, names: Sequence[str] | None) -> Relevance | None:
    if not hasattr(search, "best_estimator_"):
        return None
    try:
        data = relevance_data(search, names)
    except ValueError:  # this kind of model has none
        return None
    if data.what == "relevance" and data.box is None and np.ptp(data.values) < 1e-9 and len(data.values) > 1:
        return None  # one width for all features, all scaled: it says nothing
    return data


def _code(search: Any) -> str:
    """The search's constructor call, without what only watches or keeps it."""
    settings = {**search.get_params(deep=False), "callbacks": (), "checkpoint": None, "resume": False}
    return f"search = {type(search)(**settings)!r}\nsearch.fit(X, y)"


def _versions() -> dict[str, str]:
    import scipy
    import sklearn

    return {
        "foldwise": __version__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _short(estimator: Any) -> str:
    return (
        " → ".join(type(step).__name__ for _, step in estimator.steps)
        if hasattr(estimator, "steps")
        else type(estimator).__name__
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, list, dict, np.ndarray)) else repr(value)
