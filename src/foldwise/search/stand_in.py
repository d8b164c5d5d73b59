"""A fold's machine as a scorer sees it, without a fit: what it decides of the fold's rows is known from the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    Lasso,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metaestimators import available_if

from foldwise.estimators.adapters import OURS
from foldwise.models.base import Array

__all__ = ["Answers", "FoldRows", "StandIn", "predicted_codes"]

PLAIN = (
    *(SVC, SVR, NuSVC, NuSVR, LinearSVC, LinearSVR, KernelRidge, Ridge, RidgeClassifier, Lasso, ElasticNet),
    *(LogisticRegression, SGDClassifier, SGDRegressor),
)
"""Machines of scikit-learn that predict by nothing but their decisions."""


class FoldRows:
    """Some of the user's rows, taken out when they are looked at; scorers pass them on without a look."""

    def __init__(self, X: Any, rows: Array) -> None:
        self._X, self.rows = X, rows

    @property
    def values(self) -> Any:
        """The rows themselves."""
        if not hasattr(self, "_values"):
            self._values = _safe_indexing(self._X, self.rows)
        return self._values

    def __len__(self) -> int:
        return len(self.rows)


def predicted_codes(Z: Array, n_classes: int, by_pairs: bool, threshold: float = 0.0) -> Array:
    """Codes of the classes that decisions, shape (rows, targets), mean."""
    if Z.shape[1] == 1:
        return np.asarray(Z[:, 0] > threshold, int)
    return np.asarray((_votes(Z, n_classes) if by_pairs else Z).argmax(axis=1))


def _votes(Z: Array, n_classes: int) -> Array:
    """How many pairs every class wins."""
    votes = np.zeros((len(Z), n_classes))
    for column, (i, j) in enumerate(combinations(range(n_classes), 2)):
        votes[:, i] += Z[:, column] > 0
        votes[:, j] += Z[:, column] <= 0
    return votes


def _one_by_class(Z: Array, n_classes: int) -> Array:
    """scikit-learn's decisions of classes from those of pairs: votes, and below one vote the sum of confidences."""
    confidence = np.zeros((len(Z), n_classes))
    for column, (i, j) in enumerate(combinations(range(n_classes), 2)):
        confidence[:, i] += Z[:, column]
        confidence[:, j] -= Z[:, column]
    return np.asarray(_votes(Z, n_classes) + confidence / (3.0 * (np.abs(confidence) + 1.0)))


@dataclass(frozen=True, eq=False)
class Answers:
    """What follows from decisions alone, for one estimator.

    Attributes
    ----------
    machine : the last step, as the user made it
    classes : the labels, or None for a regression
    by_pairs : whether there is a decision for every pair of classes
    direct : whether the target is one column that the machine itself is fitted to
    """

    machine: Any
    classes: Array | None
    by_pairs: bool
    direct: bool = True

    @classmethod
    def of(cls, estimator: Any, classes: Array | None, by_pairs: bool, direct: bool = True) -> Answers:
        """For an estimator, a pipeline or not."""
        while isinstance(estimator, Pipeline):
            estimator = estimator.steps[-1][1]
        return cls(estimator, classes, by_pairs, direct)

    def know(self, name: str) -> bool:
        """Whether a method's answer follows."""
        machine = self.machine
        if not self.direct or not (isinstance(machine, OURS) or type(machine) in PLAIN):
            return False  # a wrapper, which does more with decisions
        if self.classes is None or name == "predict":
            return name == "predict" and not getattr(machine, "break_ties", False)
        if name == "decision_function":
            return True
        logistic = type(machine) is LogisticRegression and len(self.classes) == 2
        return name == "predict_proba" and logistic

    def give(self, name: str, Z: Array, threshold: float = 0.0) -> Array:
        """A method's answer for decisions of shape (rows, targets)."""
        if self.classes is None:
            return Z[:, 0]
        k = len(self.classes)
        if name == "predict":
            return np.asarray(self.classes[predicted_codes(Z, k, self.by_pairs, threshold)])
        if name == "predict_proba":
            p = expit(Z[:, 0])
            return np.column_stack([1.0 - p, p])
        if Z.shape[1] == 1:
            return Z[:, 0]
        pairs = self.by_pairs and getattr(self.machine, "decision_function_shape", "ovr") == "ovr"
        return _one_by_class(Z, k) if pairs else Z


ANSWERED = ("predict", "decision_function", "predict_proba")
"""Methods that a stand-in has where the estimator has them."""


def _has(name: str) -> Callable[[Any], bool]:
    """Whether the estimator has a method, or the search gives it probabilities."""

    def check(stand: Any) -> bool:
        return hasattr(stand._plain(), name) or (name == "predict_proba" and stand._probabilities is not None)

    return check


class StandIn:
    """In the place of an estimator that was fitted to a fold's training rows.

    What is asked of the fold's own rows (the very object that the scorer was given) is answered from the decisions of
    the search; for anything else (attributes such as ``coef_``, other rows, probabilities by the machine's own method)
    the estimator is fitted to the fold, once, and asked.

    Parameters
    ----------
    answers : Answers
    known : sequence of (rows, decisions)
    configured : callable() -> estimator with the values of the point, not fitted
    fit : callable(estimator) -> the same, fitted to the fold's training rows
    probabilities : callable(decisions) -> ndarray, optional
        For a machine that has no probabilities of its own.
    threshold : float
    """

    def __init__(
        self,
        answers: Answers,
        known: list[tuple[FoldRows, Array]],
        configured: Callable[[], Any],
        fit: Callable[[Any], Any],
        probabilities: Callable[[Array], Array] | None = None,
        threshold: float = 0.0,
    ) -> None:
        self._answers, self._known, self._configured, self._fit = answers, known, configured, fit
        self._probabilities, self._threshold = probabilities, threshold
        self._held: dict[str, Any] = {}
        if answers.classes is not None:
            self.classes_ = answers.classes

    def __sklearn_tags__(self) -> Any:
        return get_tags(self._plain())

    @available_if(_has("predict"))
    def predict(self, X: Any) -> Any:
        """Predictions, with the threshold."""
        return self._respond("predict", X)

    @available_if(_has("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Decisions."""
        return self._respond("decision_function", X)

    @available_if(_has("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Probabilities of classes."""
        return self._respond("predict_proba", X)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ANSWERED:
            raise AttributeError(name)
        if name.endswith("_") or hasattr(self._plain(), name):
            return getattr(self._fitted(), name)
        raise AttributeError(f"{type(self._plain()).__name__!r} object has no attribute {name!r}")

    def __getitem__(self, step: Any) -> Any:
        return self._fitted()[step]

    def _plain(self) -> Any:
        if "plain" not in self._held:
            self._held["plain"] = self._configured()
        return self._held["plain"]

    def _fitted(self) -> Any:
        if "fitted" not in self._held:
            self._held["fitted"] = self._fit(self._configured())
        return self._held["fitted"]

    def _respond(self, name: str, X: Any) -> Any:
        Z = next((Z for rows, Z in self._known if X is rows or X is vars(rows).get("_values")), None)
        own = hasattr(self._plain(), name)
        if Z is not None and not own and self._probabilities is not None:
            return self._probabilities(Z)
        if Z is not None and self._answers.know(name):
            return self._answers.give(name, Z, self._threshold)
        given = X.values if isinstance(X, FoldRows) else X
        if name == "predict" and self._threshold != 0.0:
            above = np.asarray(self._fitted().decision_function(given)) > self._threshold
            return self.classes_[above.astype(int)]
        return getattr(self._fitted(), name)(given)
