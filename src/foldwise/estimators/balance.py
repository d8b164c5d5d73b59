"""What "balanced" class weights mean to scikit-learn's classifiers where rows have weights."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from sklearn.svm import NuSVC

__all__ = ["balances"]


def balances(estimator: Any) -> str:
    """What ``class_weight="balanced"`` makes, or would make, equal among the classes: "weights" (totals) or "rows".

    scikit-learn's versions and estimators differ: ``SVC`` counts rows, ``LinearSVC`` and ``LogisticRegression`` add up
    weights from version 1.7 on. So the class of the estimator is asked, with four rows.
    """
    if "class_weight" not in estimator.get_params(deep=False):
        return "weights"  # a regressor has no classes
    if isinstance(estimator, NuSVC):
        return "rows"  # as SVC; the four rows are too few for it
    kind: Any = type(estimator)
    return _balances(kind)


@cache
def _balances(kind: Any) -> str:
    X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), np.array([0, 1, 0, 1])
    weight = np.array([1.0, 1.0, 1.0, 5.0])
    options: dict[str, Any] = {"C": 0.1, "tol": 1e-8}
    if "kernel" in (known := kind().get_params()):
        options |= {"kernel": "linear", "max_iter": 10_000}
    options = {name: value for name, value in options.items() if name in known}
    found = {}
    for name, given in (("balanced", "balanced"), ("rows", None), ("weights", {0: 2.0, 1: 2.0 / 3.0})):
        machine = kind(class_weight=given, **options).fit(X, y, sample_weight=weight)
        found[name] = machine.decision_function(X)
    near = [np.abs(found["balanced"] - found[name]).max() for name in ("rows", "weights")]
    return "rows" if near[0] < near[1] else "weights"
