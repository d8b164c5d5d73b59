"""Linear support vector machines with fixed hyper-parameters, in scikit-learn's manner."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from foldwise.arguments import (
    CLASS_WEIGHT,
    FLAG,
    NONE,
    Table,
    check_arguments,
    instance,
    integer,
    number,
    numbers,
    one_of,
)
from foldwise.criteria import own_criterion
from foldwise.design import column_spread
from foldwise.estimators.encoding import (
    CallbackSupportMixin,
    all_or_nothing,
    check_target,
    encode_class_weight,
    fitted_rows,
    with_callbacks,
)
from foldwise.estimators.tunable import Tunable
from foldwise.losses import Loss, get_loss
from foldwise.models.base import Role, Rows
from foldwise.models.linear import EXACT_SOLVERS, SMOOTH_SOLVERS, LinearModel, assemble
from foldwise.space import Space

__all__ = ["LinearSVC", "LinearSVR"]

PENALTIES = ("l2", "l1", "elasticnet")


class _Linear(CallbackSupportMixin, BaseEstimator):
    """What both linear estimators share: the training problem and its solution."""

    _task = ""
    _arguments: ClassVar[Table] = {
        "loss": instance((str, Loss), "the name of a loss or a Loss object"),
        "C": numbers(above=0),
        "lam": numbers(above=0),
        "penalty": one_of(*PENALTIES),
        "l1_ratio": number(at_least=0, at_most=1),
        "box": numbers(finite=False) | NONE,
        "box_lower": numbers(finite=False) | NONE,
        "proximity": number(at_least=0),
        "reference": numbers() | NONE,
        "fit_intercept": FLAG,
        "tol": number(at_least=0),
        "max_iter": integer(),
        "solver": one_of("auto", *SMOOTH_SOLVERS, *EXACT_SOLVERS),
    }

    def _loss(self) -> Loss:
        loss = get_loss(self.loss)
        if loss.task != self._task and not (
            self._task == "classification" and type(loss).__name__ == "Squared"
        ):
            other = "LinearSVR" if loss.task == "regression" else "LinearSVC"
            raise ValueError(f"{type(self).__name__} is for {self._task}; {self.loss!r} is a loss of {other}")
        return loss

    def _check_solver(self) -> None:
        exact = self._loss().polyhedral
        if exact and self.solver in SMOOTH_SOLVERS:
            raise ValueError(
                f"solver {self.solver!r} needs a loss with a second derivative; got {self.loss!r}. Use "
                "solver='auto', or the squared form of the loss"
            )
        if not exact and self.solver in EXACT_SOLVERS:
            raise ValueError(
                f"solver {self.solver!r} is for 'hinge' and 'epsilon_insensitive'; got {self.loss!r}. Use solver='auto'"
            )
        bounded = any(value is not None for value in (self.box, self.box_lower, self.reference))
        if bounded and self.solver in SMOOTH_SOLVERS:
            raise ValueError(
                f"solver {self.solver!r} has no bounds and no reference weights; use solver='auto'"
            )

    def _options(self) -> tuple[dict[str, Role], dict[str, Any], dict[str, Any]]:
        """Roles and values of the bounds and of the proximity term, and how the penalty is shaped."""
        loss = self._loss()
        if self.penalty != "l2" and not loss.polyhedral:
            raise ValueError(
                f"penalty={self.penalty!r} goes with loss 'hinge' or 'epsilon_insensitive'; got loss={self.loss!r}. "
                "Use penalty='l2'"
            )
        if self.reference is None and np.ndim(self.proximity) == 0 and self.proximity != 0:
            raise ValueError(
                "proximity pulls to reference weights; give reference as well, one number per feature"
            )
        roles = {
            "box": Role("box", per=(None, "feature")),
            "box_lower": Role("box_lower", per=(None, "feature")),
        }
        values = {"box": self.box, "box_lower": self.box_lower}
        if self.reference is not None:
            roles["proximity"] = Role("log_near")
            values["proximity"] = self.proximity
            if loss.polyhedral:
                roles["reference"] = Role("reference", per=("feature",))
                values["reference"] = self.reference
        ratio = float(self.l1_ratio) if self.penalty == "elasticnet" else float(self.penalty == "l1")
        return roles, values, {"l1_ratio": ratio, "reference": self.reference}

    def _solve(self, model: LinearModel, X: Any, rows: Rows) -> None:
        """Train on all rows and set ``coef_``, ``intercept_``, ``n_iter_``."""
        self._check_solver()
        problem = assemble(model, X, rows, [], Space(()))
        self._spread = column_spread(X)
        solver = model.solver(problem, self.tol, self.max_iter, self.solver)
        self._adopt(problem, solver.solve(problem, np.zeros(0), problem.start()))

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

    @property
    def relevance_(self) -> np.ndarray:
        """How much each feature matters: its largest weight times the feature's standard deviation, largest 1."""
        check_is_fitted(self)
        score = np.abs(np.atleast_2d(self.coef_)).max(axis=0) * self._spread
        return score / max(float(score.max()), np.finfo(float).tiny)

    def get_support(self, threshold: float = 1e-8, indices: bool = False) -> np.ndarray:
        """Features whose relevance reaches ``threshold``: a mask, or their numbers. A box of 0 deselects a feature."""
        mask = self.relevance_ >= threshold
        return np.flatnonzero(mask) if indices else mask

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class LinearSVR(RegressorMixin, _Linear):
    r"""Linear support vector regression in the primal.

    Minimises over ``w, b``

    .. math::  \tfrac12 \sum_d \lambda_d w_d^2 + \tfrac\nu2 \|w - w^0\|^2
               + \sum_j C_{g(j)} v_j \, \ell(x_j'w + b - y_j; \varepsilon_{g(j)})

    with a free intercept and, if asked for, a box ``box_lower <= w <= box``. ``C`` and ``epsilon`` mean what they mean
    in scikit-learn's ``LinearSVR``. The loss "epsilon_insensitive" is solved exactly, as a quadratic program.

    Parameters
    ----------
    loss : str or Loss, default="squared_epsilon_insensitive"
        "squared_epsilon_insensitive", "epsilon_insensitive", "squared" or "huber".
    C : float or array of shape (groups,), default=1.0
        Weight of the loss; an array gives one value per group of samples, in the order of the sorted labels.
    epsilon : float or array of shape (groups,), default=0.0
        Half width of the tube in which errors do not count.
    lam : float or array of shape (features,), default=1.0
        Multiplies the penalty.
    penalty : {"l2", "l1", "elasticnet"}, default="l2"
        With the exact losses ("hinge", "epsilon_insensitive") also ``sum lam_d |w_d|``, or
        ``sum lam_d (l1_ratio |w_d| + (1 - l1_ratio) / 2 w_d^2)``.
    l1_ratio : float, default=0.5
        For the elastic net.
    box : float or array of shape (features,), optional
        Bounds ``|w_d| <= box_d``; 0 deselects a feature.
    box_lower : float or array of shape (features,), optional
        Lower bounds, when they are not ``-box``.
    proximity : float, default=0.0
        The factor ``nu`` of the pull to ``reference``.
    reference : array of shape (features,), optional
        Weights ``w0`` of a related problem.
    fit_intercept : bool, default=True
    tol : float, default=1e-8
        Relative size of the gradient at which training stops.
    max_iter : int, default=100
    solver : str, default="auto"
        "newton" or "fista" for smooth losses. "active_set" for exact ones, or "piqp" or "clarabel": the package of that
        name first, finished to rounding by the active-set method.

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
    _arguments: ClassVar[Table] = {**_Linear._arguments, "epsilon": numbers(at_least=0)}

    def __init__(
        self,
        loss="squared_epsilon_insensitive",
        *,
        C=1.0,
        epsilon=0.0,
        lam=1.0,
        penalty="l2",
        l1_ratio=0.5,
        box=None,
        box_lower=None,
        proximity=0.0,
        reference=None,
        fit_intercept=True,
        tol=1e-8,
        max_iter=100,
        solver="auto",
    ):
        self.loss = loss
        self.C = C
        self.epsilon = epsilon
        self.lam = lam
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.box = box
        self.box_lower = box_lower
        self.proximity = proximity
        self.reference = reference
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver

    def _tunable(self) -> Tunable:
        """The estimator as a search sees it."""
        names = tuple(self._model(None, 0).roles)
        default = tuple(name for name in ("C", "epsilon") if name in names)
        return Tunable(self, self._task, self._model, names, default)

    def _model(self, classes: None, d: int) -> LinearModel:
        loss = self._loss()
        more, limits, form = self._options()
        roles = {
            "C": Role("log_c", per=(None, "group")),
            "lam": Role("log_lam", per=(None, "feature")),
            **more,
        }
        values = {"C": self.C, "lam": self.lam, **limits}
        if "epsilon" in loss.tunable:
            roles["epsilon"] = Role("epsilon", per=(None, "group"))
            values["epsilon"] = self.epsilon if isinstance(self.loss, str) else getattr(loss, "epsilon", 0.0)
        return LinearModel(loss, roles, values, self.fit_intercept, **form)

    @with_callbacks
    def fit(self, X, y, sample_weight=None, sample_groups=None):
        """Train on ``X`` (n, d), dense or sparse, and targets ``y`` (n,).

        ``sample_groups`` (n,) tells which entry of an array-valued ``C`` or ``epsilon`` a row uses.
        """
        with all_or_nothing(self):
            check_arguments(self)
            y = check_target(y, self._task)
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=float, y_numeric=True)
            self._solve(
                self._model(None, X.shape[1]), X, fitted_rows(self, X, y, sample_weight, sample_groups)
            )
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

    .. math::  \tfrac12 \sum_d \lambda_d w_d^2 + \tfrac\nu2 \|w - w^0\|^2 + C \sum_j v_j \, \ell(y_j (x_j'w + b))

    with a free intercept and, if asked for, a box ``box_lower <= w <= box``. ``C`` means what it means in
    scikit-learn's ``LinearSVC`` and ``LogisticRegression``.

    Parameters
    ----------
    loss : str or Loss, default="squared_hinge"
        "squared_hinge", "modified_huber", "hinge" (solved exactly), "logistic", "modified_log_hinge" or
        "quartic_hinge". An object carries its own parameters: ``QuarticHinge(epsilon=0.25)``.
    C : float or array, default=1.0
        An array gives one value per group of samples or, without groups and with more than two classes, one per
        class (for its one-against-the-rest problem).
    lam : float or array of shape (features,), default=1.0
        Multiplies the penalty.
    penalty : {"l2", "l1", "elasticnet"}, default="l2"
        With the exact losses ("hinge", "epsilon_insensitive") also ``sum lam_d |w_d|``, or
        ``sum lam_d (l1_ratio |w_d| + (1 - l1_ratio) / 2 w_d^2)``.
    l1_ratio : float, default=0.5
        For the elastic net.
    box : float or array of shape (features,), optional
        Bounds ``|w_d| <= box_d``; 0 deselects a feature.
    box_lower : float or array of shape (features,), optional
        Lower bounds, when they are not ``-box``.
    proximity : float, default=0.0
        The factor ``nu`` of the pull to ``reference``.
    reference : array of shape (features,), optional
        Weights ``w0`` of a related problem.
    fit_intercept : bool, default=True
    class_weight : None, "balanced" or dict, default=None
        Multiplies ``C`` for rows of each class.
    tol : float, default=1e-8
    max_iter : int, default=100
    solver : str, default="auto"
        "newton" or "fista" for smooth losses. "active_set" for exact ones, or "piqp" or "clarabel": the package of that
        name first, finished to rounding by the active-set method.

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
    _arguments: ClassVar[Table] = {**_Linear._arguments, "class_weight": CLASS_WEIGHT}

    def __init__(
        self,
        loss="squared_hinge",
        *,
        C=1.0,
        lam=1.0,
        penalty="l2",
        l1_ratio=0.5,
        box=None,
        box_lower=None,
        proximity=0.0,
        reference=None,
        fit_intercept=True,
        class_weight=None,
        tol=1e-8,
        max_iter=100,
        solver="auto",
    ):
        self.loss = loss
        self.C = C
        self.lam = lam
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.box = box
        self.box_lower = box_lower
        self.proximity = proximity
        self.reference = reference
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver

    def _tunable(self) -> Tunable:
        """The estimator as a search sees it."""
        names = ("C", "lam", "class_weight", *self._options()[0])
        criterion = own_criterion(self._loss())
        return Tunable(self, self._task, self._model, names, ("C",), own_criterion=criterion)

    def _model(self, classes: np.ndarray, d: int) -> LinearModel:
        more, limits, form = self._options()
        roles = {
            "C": Role("log_c", per=(None, "group", "class")),
            "lam": Role("log_lam", per=(None, "feature")),
            "class_weight": Role("log_c", per=("class",)),
            **more,
        }
        weights = encode_class_weight(self.class_weight, classes)
        values = {"C": self.C, "lam": self.lam, **limits}
        return LinearModel(self._loss(), roles, values, self.fit_intercept, class_weight=weights, **form)

    @with_callbacks
    def fit(self, X, y, sample_weight=None, sample_groups=None):
        """Train on ``X`` (n, d), dense or sparse, and class labels ``y`` (n,)."""
        with all_or_nothing(self):
            check_arguments(self)
            y = check_target(y, self._task)
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=float)
            rows = fitted_rows(self, X, y, sample_weight, sample_groups)
            self._solve(self._model(self.classes_, X.shape[1]), X, rows)
        return self

    def _set_solution(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef, intercept
