"""Linear support vector machines with fixed hyper-parameters, in scikit-learn's manner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from foldwise.arguments import CLASS_WEIGHT, NONE, Table, number, numbers, one_of
from foldwise.criteria import own_criterion
from foldwise.design import column_spread
from foldwise.estimators.machine import Machine, largest_one
from foldwise.estimators.tunable import Tunable
from foldwise.losses import Loss
from foldwise.models.base import Role, Rows
from foldwise.models.linear import LinearModel, assemble
from foldwise.problems.base import Solver
from foldwise.solvers.registry import SOLVER
from foldwise.space import Space

__all__ = ["LinearSVC", "LinearSVR"]

PENALTIES = ("l2", "l1", "elasticnet")


class _Linear(Machine):
    """What both linear estimators share: the training problem and its solution."""

    _arguments: ClassVar[Table] = {
        **Machine._arguments,
        "lam": numbers(above=0),
        "penalty": one_of(*PENALTIES),
        "l1_ratio": number(at_least=0, at_most=1),
        "box": numbers(finite=False) | NONE,
        "box_lower": numbers(finite=False) | NONE,
        "proximity": number(at_least=0),
        "reference": numbers() | NONE,
        "solver": SOLVER,
    }

    def _options(self) -> tuple[dict[str, Role], dict[str, Any], dict[str, Any]]:
        """Roles and values of the bounds and of the proximity term, and how the penalty is shaped."""
        loss = self._loss()
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
        if self.penalty == "elasticnet" and not loss.polyhedral:
            roles["l1_ratio"] = Role("l1_ratio")
            values["l1_ratio"] = self.l1_ratio
        ratio = float(self.l1_ratio) if self.penalty == "elasticnet" else float(self.penalty == "l1")
        return roles, values, {"l1_ratio": ratio, "reference": self.reference}

    def _model(self, classes: Any = None, d: int = 0) -> LinearModel:
        own, strength, weights = self._strength(classes)
        more, limits, form = self._options()
        form["chosen_solver"] = self.solver
        roles = {"C": own["C"], "lam": Role("log_lam", per=(None, "feature")), **more, **own}
        values = {"C": self.C, "lam": self.lam, **limits, **strength}
        return LinearModel(self._loss(), roles, values, self.fit_intercept, class_weight=weights, **form)

    def _solve(self, model: LinearModel, X: Any, rows: Rows, start: Any = None) -> None:
        """Train on all rows and set ``coef_``, ``intercept_``, ``n_iter_``."""
        problem = assemble(model, X, rows, [], Space(()))
        self._spread = column_spread(X)
        solver = model.solver(problem, self.tol, self.max_iter)
        point = problem.solved(solver, np.zeros(0))
        self._check_converged(point)
        self._set_solution(*problem.design.to_user(point.W))

    @property
    def relevance_(self) -> np.ndarray:
        """How much each feature matters: its largest weight times the feature's standard deviation, largest 1."""
        check_is_fitted(self)
        score = np.abs(np.atleast_2d(self.coef_)).max(axis=0) * self._spread
        return largest_one(score)

    def get_support(self, threshold: float = 1e-8, indices: bool = False) -> np.ndarray:
        """Features whose relevance reaches ``threshold``: a mask, or their numbers. A box of 0 deselects a feature."""
        mask = self.relevance_ >= threshold
        return np.flatnonzero(mask) if indices else mask


class LinearSVR(RegressorMixin, _Linear):
    r"""Linear support vector regression in the primal.

    Minimises over ``w, b``

    .. math::  \tfrac12 \sum_d \lambda_d w_d^2 + \tfrac\nu2 \|w - w^0\|^2
               + \sum_j C_{g(j)} v_j \, \ell(x_j'w + b - y_j; \varepsilon_{g(j)})

    with a free intercept and, if asked for, a box ``box_lower <= w <= box``. ``C`` and ``epsilon`` mean what they mean
    in scikit-learn's ``LinearSVR``. Losses with corners ("epsilon_insensitive", "pinball") are solved exactly, as a
    quadratic program.

    Parameters
    ----------
    loss : str or Loss, default="squared_epsilon_insensitive"
        "squared_epsilon_insensitive", "epsilon_insensitive", "squared", "huber" or "pinball" (the median). An object
        carries its own parameters: ``Pinball(0.9)`` learns what nine of ten targets lie below.
    C : float or array of shape (groups,), default=1.0
        Weight of the loss; an array gives one value per group of samples, in the order of the sorted labels.
    epsilon : float or array of shape (groups,), default=0.0
        Half width of the tube in which errors do not count.
    lam : float or array of shape (features,), default=1.0
        Multiplies the penalty.
    penalty : {"l2", "l1", "elasticnet"}, default="l2"
        Or ``sum lam_d |w_d|``, or ``sum lam_d (l1_ratio |w_d| + (1 - l1_ratio) / 2 w_d^2)``: weights may be zero.
    l1_ratio : float, default=0.5
        For the elastic net; it can be tuned where the loss is smooth.
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
        name first, finished to rounding by the active-set method. Or a solver of your own, an object or the name given
        to :func:`foldwise.solvers.registry.register`. A search trains its folds with it as well.

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
        loss: str | Loss = "squared_epsilon_insensitive",
        *,
        C: ArrayLike = 1.0,
        epsilon: ArrayLike = 0.0,
        lam: ArrayLike = 1.0,
        penalty: str = "l2",
        l1_ratio: float = 0.5,
        box: ArrayLike | None = None,
        box_lower: ArrayLike | None = None,
        proximity: ArrayLike = 0.0,
        reference: ArrayLike | None = None,
        fit_intercept: bool = True,
        tol: float = 1e-8,
        max_iter: int = 100,
        solver: str | Solver = "auto",
    ) -> None:
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
        return Tunable(
            self, self._task, self._model, names, default, own_criterion=own_criterion(self._loss())
        )

    def _set_solution(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef[0], float(intercept[0])

    def predict(self, X: Any) -> np.ndarray:
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
        Or ``sum lam_d |w_d|``, or ``sum lam_d (l1_ratio |w_d| + (1 - l1_ratio) / 2 w_d^2)``: weights may be zero.
    l1_ratio : float, default=0.5
        For the elastic net; it can be tuned where the loss is smooth.
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
    _also = ("Squared",)
    _arguments: ClassVar[Table] = {**_Linear._arguments, "class_weight": CLASS_WEIGHT}

    def __init__(
        self,
        loss: str | Loss = "squared_hinge",
        *,
        C: ArrayLike = 1.0,
        lam: ArrayLike = 1.0,
        penalty: str = "l2",
        l1_ratio: float = 0.5,
        box: ArrayLike | None = None,
        box_lower: ArrayLike | None = None,
        proximity: ArrayLike = 0.0,
        reference: ArrayLike | None = None,
        fit_intercept: bool = True,
        class_weight: str | Mapping[Any, float] | None = None,
        tol: float = 1e-8,
        max_iter: int = 100,
        solver: str | Solver = "auto",
    ) -> None:
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

    def _set_solution(self, coef: np.ndarray, intercept: np.ndarray) -> None:
        self.coef_, self.intercept_ = coef, intercept
