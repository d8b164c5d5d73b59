"""Semiparametric support vector regression with fixed hyper-parameters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from foldwise.arguments import FLAG, NONE, Rule, Table, check_arguments, integer, number, one_of
from foldwise.basis import as_basis, columns, independent, with_constant
from foldwise.estimators.encoding import (
    CallbackSupportMixin,
    all_or_nothing,
    check_target,
    check_weight,
    with_callbacks,
)
from foldwise.estimators.kernel import KERNEL, KernelByName, as_kernel, kernel_roles, kernel_tunable
from foldwise.estimators.tunable import Tunable
from foldwise.frames import as_frame
from foldwise.kernels import Kernel, Precomputed
from foldwise.losses import EpsilonInsensitive
from foldwise.models.base import Role
from foldwise.models.kernel import dense_rows
from foldwise.models.semiparametric import SemiparametricModel
from foldwise.result import Status
from foldwise.solvers.bordered import finish_with_columns, nearby
from foldwise.solvers.semiparametric import SOLVERS, columns_of, solve

__all__ = ["PartialEffect", "SemiparametricSVR"]

EXACT_ROWS = 1_000
"""Up to this many rows "auto" goes on until the answer is exact to rounding."""
CONSTANT = "1"
"""Name of the constant that is added to a basis."""


@dataclass(frozen=True, eq=False)
class PartialEffect:
    """How the prediction changes with one feature, averaged over the other ones.

    Attributes
    ----------
    feature : int
    name : str
    values : ndarray, shape (points,)
        Where the feature was set.
    parametric, kernel, total : ndarray, shape (points,)
        The two parts of the prediction, and their sum.
    """

    feature: int
    name: str
    values: np.ndarray
    parametric: np.ndarray
    kernel: np.ndarray

    @property
    def total(self) -> np.ndarray:
        return self.parametric + self.kernel


def _is_basis(value: Any) -> bool:
    if isinstance(value, (str, bytes, type)):
        return False
    return (
        value is None
        or isinstance(value, (Sequence, Mapping, np.ndarray))
        or (hasattr(value, "fit") and hasattr(value, "transform"))
    )


class SemiparametricSVR(CallbackSupportMixin, RegressorMixin, KernelByName):
    r"""Support vector regression with a kernel part and basis functions that are not penalised.

    .. math::  h(x) = f(x) + \sum_k \beta_k \psi_k(x), \qquad
               \min \tfrac12 \|f\|^2 + C \sum_j v_j \max(|h(x_j) - y_j| - \varepsilon, 0).

    The parametric part holds what is known or wanted of the answer, and its coefficients can be read; the kernel part
    learns the rest (lee2009). With a constant alone this is the usual support vector regression.

    Parameters
    ----------
    basis : list, transformer, array or None, default=None
        A list of callables of ``X``, pairs ``(name, callable)`` and columns of ``X`` by number or name (or a mapping
        from name to callable); a scikit-learn transformer, which is fitted to the training rows; or an array (n, K)
        with the columns on the training rows, and then ``predict`` takes those of the new ones. None is the empty
        basis.
    kernel : Kernel or {"rbf", "linear", "poly", "precomputed"}, default="rbf"
    C : float, default=1.0
    epsilon : float, default=0.1
    fit_intercept : bool, default=True
        Add a constant, named "1", where the basis does not span one.
    solver : str, default="auto"
        "auto" takes an interior point on a low-rank factor of the kernel matrix where its rank is low, and otherwise
        decomposition with an active-set subproblem; its answer is certified on the kernel matrix itself, and exact to
        rounding with up to 1,000 rows. The others by
        name: "interior_point"; "active_set", "pdsg" and "mpd" inside the decomposition of lee2009; "pdsg_alone" and
        "mpd_alone" on the whole problem.
    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of ``y``.
    cache_size : float, default=200
        Megabytes for columns of the kernel matrix.
    max_iter : int, optional
        Of the solver; its own limit by default.
    memory_limit : float, default=8e9
        Bytes that the kernel matrices of a search may take. ``fit`` does not need it.

    Attributes
    ----------
    basis_coef_ : ndarray, shape (K,)
        Coefficients ``beta``. Where columns depend on one another (``basis_rank_ < K``) these are, of all coefficients
        with the same predictions on the training rows, the ones with the smallest norm, columns counted at unit root
        mean square.
    basis_names_ : ndarray of str, shape (K,)
    basis_rank_ : int
    basis_ : fitted transformer, or None for an array
    dual_coef_, support_, support_vectors_, kernel_ : the kernel part
    kkt_ : float
        Violation of the optimality conditions that is left, in units of ``y``.
    status_, solver_ : str
        How the solver ended, and which one it was.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from foldwise import RBF
    >>> X = np.linspace(-3, 3, 80)[:, None]
    >>> y = 2.0 * X[:, 0] + np.cos(3.0 * X[:, 0])
    >>> model = SemiparametricSVR([0], RBF(5.0), epsilon=0.01, C=10.0).fit(X, y)
    >>> model.basis_names_.tolist(), round(float(model.basis_coef_[0]), 2)
    (['x0', '1'], 2.0)
    """

    _arguments: ClassVar[Table] = {
        "basis": Rule("a list of functions or columns, a transformer, an array or None", _is_basis),
        "kernel": KERNEL,
        "C": number(above=0),
        "epsilon": number(at_least=0),
        "fit_intercept": FLAG,
        "solver": one_of(*SOLVERS),
        "tol": number(above=0),
        "cache_size": number(above=0),
        "max_iter": integer() | NONE,
        "memory_limit": number(above=0),
    }

    def __init__(
        self,
        basis: Any = None,
        kernel: str | Kernel = "rbf",
        *,
        C: float = 1.0,
        epsilon: float = 0.1,
        fit_intercept: bool = True,
        solver: str = "auto",
        tol: float = 1e-3,
        cache_size: float = 200,
        max_iter: int | None = None,
        memory_limit: float = 8e9,
    ) -> None:
        self.basis = basis
        self.kernel = kernel
        self.C = C
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.cache_size = cache_size
        self.max_iter = max_iter
        self.memory_limit = memory_limit

    def _kernel(self, names: Any = None) -> Kernel:
        kernel = as_kernel(self.kernel).resolved(names)
        if kernel.precomputed and self.basis is not None and not isinstance(as_basis(self.basis), np.ndarray):
            raise ValueError(
                "basis functions act on features, and kernel='precomputed' gives the machine a matrix of similarities "
                "instead, of which every fold sees other columns; give basis as an array with one row for every row of "
                "the matrix, or None"
            )
        return kernel

    def _model(self, classes: Any, d: int) -> SemiparametricModel:
        """The model as a search sees it."""
        kernel = self._kernel(getattr(self, "feature_names_in_", None))
        own = kernel_roles(kernel, d)
        fixed = {f"kernel__{name}": array for name, array in kernel.parameters(d).items()}
        return SemiparametricModel(
            EpsilonInsensitive(),
            kernel,
            {"C": Role("log_c"), "epsilon": Role("epsilon"), **own},
            {"C": self.C, "epsilon": self.epsilon, **fixed},
            {name: name.removeprefix("kernel__") for name in own},
            self.fit_intercept,
            memory_limit=self.memory_limit,
            adjustable=("memory_limit",),
            basis=self.basis,
        )

    def _tunable(self) -> Tunable:
        """The estimator as a search sees it."""
        return kernel_tunable(self, "regression")

    def _loss(self) -> EpsilonInsensitive:
        return EpsilonInsensitive()

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on ``X`` (n, d), dense or sparse (made dense), and targets ``y`` (n,)."""
        with all_or_nothing(self):
            check_arguments(self)
            y = check_target(y, "regression")
            X, y = validate_data(self, X, y, accept_sparse="csr", dtype=float, y_numeric=True)
            X = dense_rows(X, self.memory_limit)
            self._init_callback_context()
            y = y.astype(float)
            weight = np.ones(len(y))
            if sample_weight is not None:
                weight = check_weight(sample_weight, X)
            kernel = self._kernel(getattr(self, "feature_names_in_", None))
            kernel.parameters(X.shape[1])
            # 1. The columns of the basis, made independent on the rows that count.
            Psi = self._fit_basis(X)
            T = independent(Psi, weight)
            # 2. The dual with K equality constraints.
            delta, q = self._solve(kernel, X, y, weight, Psi @ T)
            # 3. What predicts.
            support = np.arange(len(y)) if kernel.precomputed else np.flatnonzero(delta)
            self.kernel_ = kernel
            self.support_ = support
            self.support_vectors_ = X[support]
            self.dual_coef_ = delta[support][None]
            self.basis_coef_ = T @ q
            self.basis_rank_ = T.shape[1]
        return self

    def _solve(
        self, kernel: Kernel, X: np.ndarray, y: np.ndarray, weight: np.ndarray, Q: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients of the rows and of the independent columns."""
        c, epsilon = self.C * weight, float(self.epsilon)
        if self.solver == "auto" and len(y) <= EXACT_ROWS:
            rows = np.flatnonzero(weight > 0)
            K = kernel(X, X)[np.ix_(rows, rows)]
            start = nearby(K, y[rows], epsilon, c[rows], Q[rows])
            done = finish_with_columns(K, y[rows], epsilon, c[rows], start, Q[rows])
            if done.gap <= self.tol:
                self.kkt_, self.status_, self.solver_ = done.gap, Status.CONVERGED.value, "active_set"
                self.n_iter_ = done.rounds
                delta = np.zeros(len(y))
                delta[rows] = done.alpha
                return delta, done.b
        found = solve(
            columns_of(kernel, X),
            Q,
            y,
            c,
            epsilon,
            solver=self.solver,
            tol=self.tol,
            cache_size=self.cache_size,
            max_iter=self.max_iter,
        )
        if found.status is not Status.CONVERGED:
            warnings.warn(
                f"SemiparametricSVR ended with a violation of {found.kkt:.2g} (tol={self.tol:g}) after {found.n_iter} "
                f"steps: {found.message}",
                ConvergenceWarning,
                stacklevel=4,
            )
        self.kkt_, self.status_, self.solver_ = float(found.kkt), found.status.value, found.solver
        self.n_iter_ = max(int(found.n_iter), 1)
        return found.delta, found.beta

    def _fit_basis(self, X: np.ndarray) -> np.ndarray:
        """Fit the basis and return its columns on the training rows, with a constant where one is missing."""
        basis = as_basis(self.basis)
        names = getattr(self, "feature_names_in_", None)
        if isinstance(basis, np.ndarray):
            if len(basis) != len(X):
                raise ValueError(
                    f"the array in basis has {len(basis)} rows and X has {len(X)}; give the columns of the training "
                    "rows. Splits of the rows need a basis of functions, or a BilevelSearchCV"
                )
            self.basis_, Psi = None, basis
            labels = [f"psi{k}" for k in range(basis.shape[1])]
        else:
            frame = as_frame(X, names)
            self.basis_ = basis.fit(frame)
            Psi = columns(basis, frame)
            labels = _labels(basis, Psi.shape[1], names)
        self.constant_added_ = bool(self.fit_intercept and with_constant(Psi, slice(None)))
        if self.constant_added_:
            Psi, labels = np.column_stack([Psi, np.ones(len(Psi))]), [*labels, CONSTANT]
        self.basis_names_ = np.asarray(labels, dtype=object)
        return Psi

    def _psi(self, X: np.ndarray, basis: Any) -> np.ndarray:
        """The columns of the basis on new rows."""
        if self.basis_ is not None:
            if basis is not None:
                raise ValueError("this model makes its basis from X; leave basis out")
            Psi = columns(self.basis_, as_frame(X, getattr(self, "feature_names_in_", None)))
        else:
            K = len(self.basis_coef_) - self.constant_added_
            given = None if basis is None else as_basis(np.asarray(basis, float))
            if given is None or given.shape != (len(X), K):
                got = "none" if given is None else f"the shape {given.shape}"
                raise ValueError(
                    f"this model was trained with an array as basis; pass basis= with the {K} columns of the new rows, "
                    f"shape ({len(X)}, {K}); got {got}"
                )
            Psi = given
        return np.column_stack([Psi, np.ones(len(Psi))]) if self.constant_added_ else Psi

    def _rows(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return dense_rows(
            validate_data(self, X, accept_sparse="csr", dtype=float, reset=False), self.memory_limit
        )

    def _kernel_part(self, X: np.ndarray) -> np.ndarray:
        out = np.zeros(len(X))
        step = max(1, int(2e7 // max(len(self.support_), 1)))
        for first in range(0, len(X) if len(self.support_) else 0, step):
            block = X[first : first + step]
            out[first : first + step] = self.kernel_(block, self.support_vectors_) @ self.dual_coef_[0]
        return out

    def predict(self, X: Any, basis: Any = None) -> np.ndarray:
        """Predicted targets, shape (n,); ``basis`` are the new rows' columns for a model trained with an array."""
        X = self._rows(X)
        return self._kernel_part(X) + self._psi(X, basis) @ self.basis_coef_

    def kernel_part(self, X: Any) -> np.ndarray:
        """The part ``f(x)`` that the kernel learns, shape (n,)."""
        return self._kernel_part(self._rows(X))

    def parametric_part(self, X: Any, basis: Any = None) -> np.ndarray:
        """The part ``sum_k beta_k psi_k(x)``, shape (n,)."""
        return self._psi(self._rows(X), basis) @ self.basis_coef_

    @property
    def intercept_(self) -> float:
        """Coefficient of the constant that was added to the basis; 0 without one."""
        check_is_fitted(self)
        return float(self.basis_coef_[-1]) if self.constant_added_ else 0.0

    def partial_effects(
        self,
        X: Any,
        features: Sequence[int | str] | None = None,
        *,
        points: int = 50,
        max_rows: int = 200,
    ) -> list[PartialEffect]:
        """How the two parts of the prediction change with single features.

        Each feature is set to ``points`` values between its smallest and largest in ``X``, and the predictions of (at
        most ``max_rows``) rows of ``X`` are averaged.

        Parameters
        ----------
        X : array or data frame, shape (n, d)
        features : sequence of int or str, optional
            All of them by default.
        points, max_rows : int
        """
        X = self._rows(X)
        if self.basis_ is None or self.kernel_.precomputed:
            raise ValueError(
                "partial effects need a basis and a kernel that are functions of X; this model has an array or a matrix"
            )
        given = getattr(self, "feature_names_in_", None)
        names = [f"x{j}" for j in range(X.shape[1])] if given is None else list(given)
        sample = X[:: -(-len(X) // max_rows)]
        out = []
        for feature in range(len(names)) if features is None else features:
            if isinstance(feature, str) and feature not in names:
                raise ValueError(f"unknown feature {feature!r}; the model has: {', '.join(names)}")
            j = names.index(feature) if isinstance(feature, str) else int(feature)
            values = np.linspace(X[:, j].min(), X[:, j].max(), points)
            rows = np.repeat(sample[None], points, axis=0)
            rows[:, :, j] = values[:, None]
            flat = rows.reshape(-1, X.shape[1])
            parts = [
                part.reshape(points, -1).mean(axis=1)
                for part in (self._effect(flat), self._kernel_part(flat))
            ]
            out.append(PartialEffect(j, names[j], values, *parts))
        return out

    def _effect(self, X: np.ndarray) -> np.ndarray:
        return self._psi(X, None) @ self.basis_coef_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed" or isinstance(self.kernel, Precomputed)
        tags.input_tags.sparse = True
        return tags


def _labels(basis: Any, count: int, names: Any) -> list[str]:
    """Names of a fitted basis's columns; numbered where it does not name them."""
    for given in ((), (None if names is None else np.asarray(names, dtype=object),)):
        try:
            found = [str(name) for name in basis.get_feature_names_out(*given)]
        except (AttributeError, ValueError, TypeError):
            continue
        if len(found) == count:
            return found
    return [f"psi{k}" for k in range(count)]
