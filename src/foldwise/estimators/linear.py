"""Linear support vector machines with fixed hyper-parameters, in scikit-learn's manner."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from foldwise.estimators.encoding import (
    CallbackSupportMixin,
    check_class_mass,
    encode_class_weight,
    encode_classes,
    encode_groups,
    with_callbacks,
)
from foldwise.losses import Loss, get_loss
from foldwise.problems.assemble import LinearModel, Role, Rows, assemble
from foldwise.solvers.fista import Fista
from foldwise.solvers.newton import Newton
from foldwise.solvers.qp import ExactQP
from foldwise.space import Space

__all__ = ["LinearSVC", "LinearSVR"]

SOLVERS = {"newton": Newton, "fista": Fista}


class _Linear(CallbackSupportMixin, BaseEstimator):
    """What both linear estimators share: the training problem and its solution."""

    _task = ""

    def _loss(self) -> Loss:
        loss = get_loss(self.loss)
        if loss.task != self._task and not (
            self._task == "classification" and type(loss).__name__ == "Squared"
        ):
            other = "LinearSVR" if loss.task == "regression" else "LinearSVC"
            raise ValueError(f"{type(self).__name__} is for {self._task}; {self.loss!r} is a loss of {other}")
        return loss

    def _solver(self) -> Any:
        if self.solver not in SOLVERS:
            raise ValueError(f"unknown solver {self.solver!r}; use one of: {', '.join(SOLVERS)}")
        if self._loss().polyhedral:
            return ExactQP()
        return SOLVERS[self.solver](tol=self.tol, max_iter=self.max_iter)

    def _solve(self, model: LinearModel, X: Any, rows: Rows) -> None:
        """Train on all rows and set ``coef_``, ``intercept_``, ``n_iter_``."""
        problem = assemble(model, X, rows, [], Space(()))
        self._adopt(problem, self._solver().solve(problem, np.zeros(0), problem.start()))

    def _adopt(self, problem, point) -> None:
        coef, intercept = problem.design.to_user(point.W)
        self.n_iter_ = point.steps
        if not point.converged.all():
            warnings.warn(
                f"{type(self).__name__} did not converge in {point.steps} iterations; raise max_iter, "
                "or standardise the features",
                ConvergenceWarning,
                stacklevel=3,
            )
        self._set_solution(coef, intercept)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LinearSVR(RegressorMixin, _Linear):
    r"""Linear support vector regression in the primal.

    Minimises over ``w, b``

    .. math::  \tfrac12 \sum_d \lambda_d w_d^2 + \sum_j C_{g(j)} v_j \, \ell(x_j'w + b - y_j; \varepsilon_{g(j)})

    with a free intercept. ``C`` and ``epsilon`` mean what they mean in scikit-learn's ``LinearSVR``.

    Parameters
    ----------
    loss : {"squared_epsilon_insensitive", "squared", "huber"} or Loss, default="squared_epsilon_insensitive"
    C : float or array of shape (groups,), default=1.0
        Weight of the loss; an array gives one value per group of samples, in the order of the sorted labels.
    epsilon : float or array of shape (groups,), default=0.0
        Half width of the tube in which errors do not count.
    lam : float or array of shape (features,), default=1.0
        Multiplies the penalty.
    fit_intercept : bool, default=True
    tol : float, default=1e-8
        Relative size of the gradient at which training stops.
    max_iter : int, default=100
    solver : {"newton", "fista"}, default="newton"

    Attributes
    ----------
    coef_ : ndarray, shape (features,)
    intercept_ : float
    n_iter_ : int
    group_labels_ : list
        Labels of the groups of samples, if any.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(6.0)[:, None]
    >>> LinearSVR(C=100.0).fit(X, 2 * X[:, 0] + 1).predict([[10.0]]).round(2)
    array([21.])
    """

    _task = "regression"

    def __init__(
        self,
        loss="squared_epsilon_insensitive",
        *,
        C=1.0,
        epsilon=0.0,
        lam=1.0,
        fit_intercept=True,
        tol=1e-8,
        max_iter=100,
        solver="newton",
    ):
        self.loss = loss
        self.C = C
        self.epsilon = epsilon
        self.lam = lam
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver

    def _model(self) -> LinearModel:
        loss = self._loss()
        roles = {"C": Role("log_c", per=(None, "group")), "lam": Role("log_lam", per=(None, "feature"))}
        values = {"C": self.C, "lam": self.lam}
        if "epsilon" in loss.tunable:
            roles["epsilon"] = Role("epsilon", per=(None, "group"))
            values["epsilon"] = self.epsilon if isinstance(self.loss, str) else getattr(loss, "epsilon", 0.0)
        return LinearModel(loss, roles, values, self.fit_intercept)

    @with_callbacks
    def fit(self, X, y, sample_weight=None, sample_groups=None):
        """Train on ``X`` (n, d), dense or sparse, and targets ``y`` (n,).

        ``sample_groups`` (n,) tells which entry of an array-valued ``C`` or ``epsilon`` a row uses.
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=float, y_numeric=True)
        if hasattr(self, "_init_callback_context"):
            self._init_callback_context()
        weight = (
            None
            if sample_weight is None
            else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        )
        group, self.group_labels_ = encode_groups(sample_groups, len(y))
        self._solve(self._model(), X, Rows(y[None].astype(float), weight, group, self.group_labels_))
        return self

    def _set_solution(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef[0], float(intercept[0])

    def predict(self, X):
        """Predicted targets, shape (n,)."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=float, reset=False)
        return np.asarray(X @ self.coef_).ravel() + self.intercept_


class LinearSVC(LinearClassifierMixin, ClassifierMixin, _Linear):
    r"""Linear support vector classification in the primal; more than two classes one against the rest.

    Minimises over ``w, b``, with labels in {-1, +1},

    .. math::  \tfrac12 \sum_d \lambda_d w_d^2 + C \sum_j v_j \, \ell(y_j (x_j'w + b))

    with a free intercept. ``C`` means what it means in scikit-learn's ``LinearSVC`` and ``LogisticRegression``.

    Parameters
    ----------
    loss : {"squared_hinge", "logistic", "modified_log_hinge", "quartic_hinge"} or Loss, default="squared_hinge"
        An object carries its own parameters: ``QuarticHinge(epsilon=0.25)``.
    C : float or array, default=1.0
        An array gives one value per group of samples or, without groups and with more than two classes, one per
        class (for its one-against-the-rest problem).
    lam : float or array of shape (features,), default=1.0
        Multiplies the penalty.
    fit_intercept : bool, default=True
    class_weight : None, "balanced" or dict, default=None
        Multiplies ``C`` for rows of each class.
    tol : float, default=1e-8
    max_iter : int, default=100
    solver : {"newton", "fista"}, default="newton"

    Attributes
    ----------
    classes_ : ndarray
    coef_ : ndarray, shape (1 or classes, features)
    intercept_ : ndarray, shape (1 or classes,)
    n_iter_ : int

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(LinearSVC().fit(X, y).score(X, y), 2)
    0.97
    """

    _task = "classification"

    def __init__(
        self,
        loss="squared_hinge",
        *,
        C=1.0,
        lam=1.0,
        fit_intercept=True,
        class_weight=None,
        tol=1e-8,
        max_iter=100,
        solver="newton",
    ):
        self.loss = loss
        self.C = C
        self.lam = lam
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver

    def _model(self, classes: np.ndarray) -> LinearModel:
        roles = {
            "C": Role("log_c", per=(None, "group", "class")),
            "lam": Role("log_lam", per=(None, "feature")),
            "class_weight": Role("log_c", per=("class",)),
        }
        weights = encode_class_weight(self.class_weight, classes)
        return LinearModel(
            self._loss(), roles, {"C": self.C, "lam": self.lam}, self.fit_intercept, class_weight=weights
        )

    @with_callbacks
    def fit(self, X, y, sample_weight=None, sample_groups=None):
        """Train on ``X`` (n, d), dense or sparse, and class labels ``y`` (n,)."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=float)
        if hasattr(self, "_init_callback_context"):
            self._init_callback_context()
        self.classes_, Y, codes = encode_classes(y)
        weight = (
            None
            if sample_weight is None
            else _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        )
        check_class_mass(self.classes_, codes, weight)
        group, self.group_labels_ = encode_groups(sample_groups, len(codes))
        rows = Rows(Y, weight, group, self.group_labels_, codes, self.classes_.tolist())
        self._solve(self._model(self.classes_), X, rows)
        return self

    def _set_solution(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef, intercept
