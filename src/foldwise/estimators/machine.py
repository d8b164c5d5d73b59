"""What linear and kernel machines share: their loss, the strength of its terms, and a fit that is all or nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import validate_data

from foldwise.arguments import FLAG, Table, check_arguments, instance, integer, number, numbers
from foldwise.estimators.encoding import (
    CallbackSupportMixin,
    all_or_nothing,
    check_target,
    encode_class_weight,
    fitted_rows,
    with_callbacks,
)
from foldwise.losses import Loss, get_loss
from foldwise.models.base import Role, Rows

__all__ = ["Machine", "largest_one"]


def _knows(attribute: str, method: str) -> Callable[[Any], bool]:
    """Whether a search left what a method needs."""

    def check(machine: Any) -> bool:
        if not hasattr(machine, attribute):
            raise AttributeError(
                f"{method} needs out-of-fold decisions, which a fit alone does not have; fit a BilevelSearchCV around "
                f"this {type(machine).__name__}, and its best_estimator_ has it"
            )
        return True

    return check


class Machine(CallbackSupportMixin, BaseEstimator):
    """A machine with fixed hyper-parameters; subclasses define ``_model`` and ``_solve``."""

    _task = ""
    _also: ClassVar[tuple[str, ...]] = ()
    """Losses of the other task that serve this one too."""
    _arguments: ClassVar[Table] = {
        "loss": instance((str, Loss), "the name of a loss or a Loss object"),
        "C": numbers(above=0),
        "fit_intercept": FLAG,
        "tol": number(at_least=0),
        "max_iter": integer(),
    }

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, sample_groups: Any = None) -> Self:
        """Train on ``X`` (n, d), dense or sparse, and targets or class labels ``y`` (n,).

        ``sample_groups`` (n,) tells which entry of an array-valued ``C`` (or ``epsilon``, in regression) a row uses.
        """
        return self._fit(X, y, sample_weight, sample_groups)

    def _fit(self, X: Any, y: Any, sample_weight: Any, sample_groups: Any, start: Any = None) -> Self:
        """Check, and train."""
        with all_or_nothing(self):
            self.adopt(None, None)
            check_arguments(self)
            y = check_target(y, self._task)
            numeric = self._task == "regression"
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=float, y_numeric=numeric)
            X = self._as_stored(X)
            rows = fitted_rows(self, X, y, sample_weight, sample_groups)
            self._solve(self._model(getattr(self, "classes_", None), X.shape[1]), X, rows, start)
        return self

    def adopt(self, probabilities: Any, residuals: Any) -> None:
        """Take what a search learned from its folds, for ``predict_proba`` and ``predict_interval``; None forgets."""
        for name, value in (("probabilities_", probabilities), ("residuals_", residuals)):
            self.__dict__.pop(name, None)
            if value is not None:
                setattr(self, name, value)

    @available_if(_knows("probabilities_", "predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, shape (n, classes), by the out-of-fold decisions of the search that fitted this."""
        return self.probabilities_.of(self.decision_function(X))

    @available_if(_knows("residuals_", "predict_interval"))
    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Intervals, shape (n, 2), by the out-of-fold residuals of the search that fitted this."""
        low, high = self.residuals_.between(coverage)
        prediction = self.predict(X)
        return np.column_stack([prediction + low, prediction + high])

    def _as_stored(self, X: Any) -> Any:
        """The rows as the machine keeps them."""
        return X

    def _model(self, classes: Any = None, d: int = 0) -> Any:
        """The machine as an optimisation problem, for these classes and so many features."""
        raise TypeError(f"{type(self).__name__} does not define _model(classes, d)")

    def _solve(self, model: Any, X: Any, rows: Rows, start: Any = None) -> None:
        """Train on all rows and set what predicts; ``start`` is for machines that can begin near a solution."""
        raise TypeError(f"{type(self).__name__} does not define _solve(model, X, rows)")

    def _loss(self) -> Loss:
        loss = get_loss(self.loss)
        if loss.task != self._task and type(loss).__name__ not in self._also:
            own = type(self).__name__
            other = own[:-1] + ("C" if self._task == "regression" else "R")
            raise ValueError(f"{own} is for {self._task}; {self.loss!r} is a loss of {other}")
        return loss

    def _strength(
        self, classes: Any, per: tuple[str | None, ...] = (None, "group")
    ) -> tuple[dict[str, Role], dict[str, Any], Any]:
        """Roles and values of ``C`` and of the tube or the class weights; these last by code. ``per`` is the tube's."""
        if self._task == "classification":
            roles = {
                "C": Role("log_c", per=(None, "group", "class")),
                "class_weight": Role("log_c", per=("class",)),
            }
            return roles, {"C": self.C}, encode_class_weight(self.class_weight, classes)
        loss = self._loss()
        roles, values = {"C": Role("log_c", per=(None, "group"))}, {"C": self.C}
        if "epsilon" in loss.tunable:
            roles["epsilon"] = Role("epsilon", per=per)
            values["epsilon"] = self.epsilon if isinstance(self.loss, str) else getattr(loss, "epsilon", 0.0)
        return roles, values, None

    def _check_converged(self, point: Any) -> None:
        """Set ``n_iter_`` and warn of training problems that stopped short."""
        self.n_iter_ = point.steps
        if point.converged.all():
            return
        name = type(self).__name__
        if point.steps < self.max_iter:
            text = (
                f"{name} could not be solved to its tolerance: rounding is larger, as where features are far from "
                "zero or of very different sizes. Standardise the features"
            )
        else:
            text = f"{name} did not converge in {point.steps} iterations; raise max_iter, or standardise the features"
        warnings.warn(text, ConvergenceWarning, stacklevel=5)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def largest_one(score: np.ndarray) -> np.ndarray:
    """Scores divided by the largest of them."""
    return score / max(float(score.max()), np.finfo(float).tiny)
