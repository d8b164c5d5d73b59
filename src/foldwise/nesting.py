"""Estimators inside others: the last step of a pipeline, and what scikit-learn's wrappers wrap."""

from __future__ import annotations

from typing import Any

from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline

__all__ = ["WRAPPED", "innermost", "is_wrapped"]

WRAPPED: dict[type, str] = {
    OneVsRestClassifier: "estimator",
    OneVsOneClassifier: "estimator",
    TransformedTargetRegressor: "regressor",
    CalibratedClassifierCV: "estimator",
    MultiOutputRegressor: "estimator",
}
"""Wrappers, and the parameter that holds the estimator inside."""


def innermost(estimator: Any) -> Any:
    """The machine inside pipelines and wrappers.

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import SVC
    >>> innermost(make_pipeline(OneVsRestClassifier(SVC())))
    SVC()
    """
    while True:
        if isinstance(estimator, Pipeline):
            estimator = estimator.steps[-1][1]
        elif type(estimator) in WRAPPED:
            estimator = getattr(estimator, WRAPPED[type(estimator)])
        else:
            return estimator


def is_wrapped(estimator: Any) -> bool:
    """Whether there is a wrapper around the machine, behind the steps of pipelines or before them."""
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[-1][1]
    return type(estimator) in WRAPPED
