"""What a fitted search offers of its best estimator: predictions, scores, tags, a page in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import numpy as np
from sklearn import config_context, get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import check_scoring
from sklearn.pipeline import Pipeline
from sklearn.utils import estimator_html_repr, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from foldwise.calibration import PairProbabilities
from foldwise.estimators.adapters import describe
from foldwise.search.scoring import read_scoring

__all__ = ["BestEstimatorMixin"]

WITHOUT_REFIT = "this search was run with refit=False; use best_params_, or set refit=True"


def _delegates(name: str) -> Callable[[Any], bool]:
    """Whether there is a final estimator, or will be, that has this method."""

    def check(search: Any) -> bool:
        if not search.refit:
            raise AttributeError(WITHOUT_REFIT)
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return check


def _offers(estimator: Any, method: str) -> bool:
    """Whether an estimator has a method, with its present parameters."""
    return hasattr(estimator, method)


def _learned(search: Any, what: str) -> bool:
    """Whether the folds of a fitted search gave this; one that is not fitted may get it."""
    return "result_" not in vars(search) or getattr(search, what, None) is not None


def _gives_probabilities(search: Any) -> bool:
    """Whether the best estimator has probabilities of its own, or the folds' decisions give them."""
    if not search.refit:
        raise AttributeError(WITHOUT_REFIT)
    if _offers(getattr(search, "best_estimator_", search.estimator), "predict_proba"):
        return True
    if not is_classifier(search.estimator) or not _learned(search, "probabilities_"):
        raise AttributeError("this search has no probabilities: it is a regression, or its folds gave none")
    return True


def _gives_intervals(search: Any) -> bool:
    """Whether the search is a regression with out-of-fold residuals, or will be."""
    if not search.refit:
        raise AttributeError(WITHOUT_REFIT)
    if not is_regressor(search.estimator) or not _learned(search, "residuals_"):
        raise AttributeError("this search has no prediction intervals: its folds gave no residuals")
    return True


class BestEstimatorMixin(MetaEstimatorMixin, BaseEstimator):
    """For a search with ``estimator`` and ``refit`` that sets ``result_`` and ``best_estimator_``."""

    estimator: Any
    refit: Any
    scoring: Any
    best_threshold_: float | None
    best_estimator_: Any
    probabilities_: Any
    residuals_: Any

    def _best(self) -> Any:
        check_is_fitted(self, "result_")
        if not self.refit:
            raise AttributeError(WITHOUT_REFIT)
        if "best_estimator_" not in vars(self):
            raise NotFittedError(getattr(self, "_unfinished", "the final fit did not end; fit again"))
        return self.best_estimator_

    @property
    def scorer_(self) -> Any:
        """What scores: a scorer, or a dict of them where ``scoring`` has several."""
        check_is_fitted(self, "result_")
        if self.scoring is None:
            return check_scoring(self.estimator)
        scoring = read_scoring(self, describe(self.estimator))
        assert scoring is not None
        return scoring.given

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The score of the best estimator: by the metric that decided, else accuracy or R^2."""
        params = {} if sample_weight is None else {"sample_weight": sample_weight}
        if getattr(self, "scoring", None) is not None:
            return self._scored(X, y, params)
        with config_context(enable_metadata_routing=False):  # as in the final fit: for the last step
            return float(self._best().score(X, y, **params))

    def _scored(self, X: Any, y: Any, params: dict[str, Any]) -> float:
        """By ``scoring``. The search itself is asked where it predicts more than its estimator."""
        best = self._best()
        more = self.best_threshold_ is not None or not hasattr(best, "predict_proba")
        scorer, metric = self.scorer_, self.refit if isinstance(self.refit, str) else None
        with config_context(enable_metadata_routing=False):
            if isinstance(scorer, dict):
                scorer = scorer[metric] if metric in scorer else next(iter(scorer.values()))
            own = more and is_classifier(self.estimator) and hasattr(scorer, "_score_func")
            found = scorer(self if own else best, X, y, **params)
        return float(found[metric] if isinstance(found, dict) and metric in found else found)

    @available_if(_delegates("predict"))
    def predict(self, X: Any) -> Any:
        """Predictions of the best estimator, with ``best_threshold_`` where that was selected."""
        best = self._best()
        if getattr(self, "best_threshold_", None):
            return best.classes_[(np.asarray(best.decision_function(X)) > self.best_threshold_).astype(int)]
        return best.predict(X)

    @available_if(_delegates("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Decisions of the best estimator."""
        return self._best().decision_function(X)

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Class probabilities, shape (n, classes): the best estimator's own, or those of its decisions.

        A machine without probabilities gets them from the out-of-fold decisions at the selected values, under the scale
        with the lowest log loss; nothing is fitted again. The most probable class is the predicted one, but for single
        rows of several classes that are told apart pair by pair.
        """
        best = self._best()
        if _offers(best, "predict_proba"):
            return best.predict_proba(X)
        return self.probabilities_.of(self._decisions(X, isinstance(self.probabilities_, PairProbabilities)))

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Any) -> Any:
        """Logarithms of the class probabilities."""
        best = self._best()
        if _offers(best, "predict_log_proba"):
            return best.predict_log_proba(X)
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def _decisions(self, X: Any, by_pairs: bool) -> Any:
        """Decisions of the best estimator; of a machine that is made of pairs of classes by pairs, if asked for."""
        best = self._best()
        if not by_pairs:
            return best.decision_function(X)
        steps = isinstance(best, Pipeline)
        last = copy(best[-1] if steps else best)
        last.decision_function_shape = "ovo"
        return last.decision_function(best[:-1].transform(X) if steps and len(best) > 1 else X)

    @available_if(_gives_intervals)
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Any:
        """Intervals, shape (n, 2), that hold the targets of new rows with this probability.

        The prediction with quantiles of the out-of-fold residuals added: for all rows together, not for every kind of
        row alike.
        """
        low, high = self.residuals_.between(coverage)
        prediction = np.asarray(self.predict(X), float)
        return np.column_stack([prediction + low, prediction + high])

    # In a notebook: scikit-learn's diagram and, once fitted, what was selected.

    def _repr_html_inner(self) -> str:
        result = getattr(self, "result_", None)
        return str(estimator_html_repr(self)) + ("" if result is None else result._repr_html_())

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        out = {"text/plain": repr(self)}
        if get_config()["display"] == "diagram":
            out["text/html"] = self._repr_html_inner()
        return out

    @property
    def _estimator_type(self) -> Any:
        return getattr(self.estimator, "_estimator_type", None)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags = copy(inner.classifier_tags)
        tags.regressor_tags = inner.regressor_tags
        tags.input_tags.sparse = inner.input_tags.sparse
        tags.input_tags.pairwise = inner.input_tags.pairwise
        tags.target_tags.required = True
        return tags
