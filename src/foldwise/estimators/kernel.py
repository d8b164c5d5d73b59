"""Kernel support vector machines with fixed hyper-parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from foldwise.arguments import CLASS_WEIGHT, Table, instance, number, numbers, one_of
from foldwise.criteria import own_criterion
from foldwise.estimators.encoding import with_callbacks
from foldwise.estimators.machine import Machine, largest_one
from foldwise.estimators.tunable import Tunable
from foldwise.kernels import RBF, Kernel, Linear, Polynomial, Precomputed
from foldwise.losses import Loss
from foldwise.models.base import Role, Rows
from foldwise.models.kernel import KernelModel, assemble_kernel, dense_rows
from foldwise.problems.base import Solver
from foldwise.problems.gram import choose_landmarks
from foldwise.problems.kernel import Decisions
from foldwise.solvers.registry import SOLVER
from foldwise.space import Space

__all__ = ["KERNEL", "KernelByName", "KernelSVC", "KernelSVR", "as_kernel", "kernel_roles", "kernel_tunable"]

KERNELS: dict[str, type[Kernel]] = {
    "rbf": RBF,
    "linear": Linear,
    "poly": Polynomial,
    "precomputed": Precomputed,
}
KERNEL = instance((str, Kernel), "the name of a kernel or a Kernel object")


def as_kernel(spec: Any) -> Kernel:
    """A kernel object from a name or the object itself.

    >>> as_kernel("rbf")
    RBF()
    """
    if isinstance(spec, Kernel):
        spec.check()
        return spec
    if isinstance(spec, str) and spec in KERNELS:
        return KERNELS[spec]()
    raise ValueError(f"unknown kernel {spec!r}; use a Kernel object or one of: {', '.join(KERNELS)}")


def kernel_roles(kernel: Kernel, d: int) -> dict[str, Role]:
    """Roles of the kernel's parameters, named ``kernel__<name>``."""
    out = {}
    for name, values in kernel.parameters(d).items():
        per: tuple[str | None, ...] = (None, "feature") if values.size > 1 else (None,)
        out[f"kernel__{name}"] = Role("log_kernel", per=per)
    return out


def kernel_tunable(machine: Any, task: str) -> Tunable:
    """One of our kernel machines as a search sees it; ``C`` is not tuned beside the weights of a sum."""
    kernel, loss = as_kernel(machine.kernel), machine._loss()
    own = tuple(f"kernel__{name}" for name in kernel.names())
    names = ("C", *(("epsilon",) if "epsilon" in loss.tunable else ()), *own)
    default = names if "kernel__weights" not in own else tuple(n for n in names if n != "C")
    if task == "classification":
        names = (*names, "class_weight")
    criterion = own_criterion(loss, curved=not kernel.is_linear)
    return Tunable(machine, task, machine._model, names, default, kernel=kernel, own_criterion=criterion)


LANDMARK_ROWS = 1_500
"""From this many rows on the solution through landmarks, where few suffice, is the start of the exact one."""


def _landmark_start(model: KernelModel, X: np.ndarray, rows: Rows, solver: Any, start: Any) -> Any:
    """Decisions of the model seen through landmarks; ``start`` itself where many landmarks would be needed."""
    landmarks, unseen = choose_landmarks(model.kernel, X, 1e-4, min(len(X) // 10, 400))
    if unseen > 1e-4:
        return start
    problem = assemble_kernel(model, X, rows, [], Space(()), landmarks=landmarks)
    return problem.solved(solver, np.zeros(0), start).state


class KernelByName(BaseEstimator):
    """An estimator whose kernel may be given by its name and its parameters set all the same."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__gamma`` and the like also where the kernel was given by its name."""
        given = params.get("kernel", self.kernel)
        if isinstance(given, str) and any(name.startswith("kernel__") for name in params):
            params = {**params, "kernel": as_kernel(given)}
        return super().set_params(**params)


class _Kernel(KernelByName, Machine):
    """What both kernel estimators share."""

    _arguments: ClassVar[Table] = {
        **Machine._arguments,
        "kernel": KERNEL,
        "memory_limit": number(above=0),
        "precision": one_of("double", "single"),
        "solver": SOLVER,
    }

    def _tunable(self) -> Tunable:
        """The estimator as a search sees it."""
        return kernel_tunable(self, self._task)

    def _kernel(self, names: Any = None) -> Kernel:
        return as_kernel(self.kernel).resolved(names)

    def _as_stored(self, X: Any) -> np.ndarray:
        X = dense_rows(X, self.memory_limit)
        self._variance = X.var(axis=0)
        return X

    def _model(self, classes: Any = None, d: int = 0) -> KernelModel:
        loss, kernel = self._loss(), self._kernel(getattr(self, "feature_names_in_", None))
        roles, values, weights = self._strength(classes, (None,) if loss.polyhedral else (None, "group"))
        own = kernel_roles(kernel, d)
        fixed = {f"kernel__{name}": array for name, array in kernel.parameters(d).items()}
        return KernelModel(
            loss,
            kernel,
            {**roles, **own},
            {**values, **fixed},
            {name: name.removeprefix("kernel__") for name in own},
            self.fit_intercept,
            weights,
            memory_limit=self.memory_limit,
            precision=self.precision,
            adjustable=("memory_limit", "precision"),
            chosen_solver=self.solver,
        )

    @with_callbacks
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, sample_groups: Any = None, start: Any = None
    ) -> Self:
        """Train on ``X`` (n, d), dense or sparse (made dense), and targets or class labels ``y`` (n,).

        ``start``, decisions (problems, n) and intercepts (problems,) near the solution, saves time and does not change
        what is found; exact losses have no use for it.
        """
        return self._fit(X, y, sample_weight, sample_groups, start=start)

    def _solve(self, model: KernelModel, X: np.ndarray, rows: Rows, start: Any = None) -> None:
        problem = assemble_kernel(model, X, rows, [], Space(()))
        solver = model.solver(problem, self.tol, self.max_iter)
        state = problem.start()
        if start is not None and start[0].shape == problem.Y.shape:
            state = Decisions(start[0][:, problem.folds.order], np.asarray(start[1], float))
        elif len(X) >= LANDMARK_ROWS and not (model.loss.polyhedral or model.kernel.precomputed):
            state = _landmark_start(model, X, rows, solver, state)
        point = problem.solved(solver, np.zeros(0), state)
        self._check_converged(point)
        alpha = np.empty_like(point.alpha)
        alpha[:, problem.folds.order] = point.alpha
        used = np.flatnonzero(np.any(alpha != 0, axis=0))
        if model.kernel.precomputed:
            used = np.arange(len(X))
        self.kernel_ = model.kernel
        self.support_ = used
        self.support_vectors_ = X[used]
        self.dual_coef_ = alpha[:, used]
        self.intercept_ = point.b

    def _decisions(self, X: Any) -> np.ndarray:
        """Decisions on new rows, shape (rows, problems); formed in blocks of rows."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=float, reset=False)
        n = X.shape[0]
        out = np.empty((n, len(self.dual_coef_)))
        if not len(self.support_):  # every row within its tube: the intercept alone
            out[:] = self.intercept_
            return out
        step = max(1, int(2e7 // max(len(self.support_), X.shape[1], 1)))
        for first in range(0, n, step):
            K = self.kernel_(dense_rows(X[first : first + step]), self.support_vectors_)
            out[first : first + step] = K @ self.dual_coef_.T + self.intercept_
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed" or isinstance(self.kernel, Precomputed)
        return tags

    @property
    def relevance_(self) -> np.ndarray:
        """How much each feature matters: its width (``gamma_d`` of an RBF) times the feature's variance, largest 1.

        For a kernel with one width for all features, the variance alone.
        """
        check_is_fitted(self)
        kinds, d = self.kernel_.kinds(), self.n_features_in_
        own = [v for n, v in self.kernel_.parameters(d).items() if kinds[n] == "width" and v.size == d]
        score = (own[0] if own else np.ones(d)) * self._variance
        return largest_one(score)

    def get_support(self, threshold: float = 0.01, indices: bool = False) -> np.ndarray:
        """Features whose relevance reaches ``threshold``: a mask, or their numbers."""
        mask = self.relevance_ >= threshold
        return np.flatnonzero(mask) if indices else mask


class KernelSVR(RegressorMixin, _Kernel):
    r"""Kernel support vector regression.

    Minimises ``1/2 ||f||^2 + C sum_j v_j loss(f(x_j) + b, y_j; epsilon)`` over the functions of the kernel's space.

    Parameters
    ----------
    kernel : Kernel or {"rbf", "linear", "poly", "precomputed"}, default=RBF()
    loss : {"squared_epsilon_insensitive", "squared", "huber", "epsilon_insensitive", "pinball"} or Loss
        "epsilon_insensitive" is solved exactly by LIBSVM, "pinball" (the median; ``Pinball(0.9)`` learns another
        quantile) by an active-set method, the others by Newton's method.
    C : float or array of shape (groups,), default=1.0
    epsilon : float or array of shape (groups,), default=0.1
    fit_intercept : bool, default=True
    tol : float, default=1e-8
    max_iter : int, default=100
    memory_limit : float, default=8e9
        Bytes that kernel matrices may take; a larger problem is refused.
    precision : {"double", "single"}, default="double"
        How distances and kernel matrices are kept. "single" halves their memory; the kernel is then rounded to 7
        digits, and systems are still solved in double precision. For RBF with one width and ExpChi2.
    solver : str or Solver, default="auto"
        Of the training problems: one of your own, an object or the name given to
        :func:`foldwise.solvers.registry.register`. A search trains its folds with it as well.

    Attributes
    ----------
    dual_coef_, support_, support_vectors_, intercept_, kernel_, n_iter_

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> model = KernelSVR(C=100.0).fit(X, np.sin(X[:, 0]))
    >>> round(float(model.predict([[1.5]])[0]), 2)
    0.9
    """

    _task = "regression"
    _arguments: ClassVar[Table] = {**_Kernel._arguments, "epsilon": numbers(at_least=0)}

    def __init__(
        self,
        kernel: str | Kernel = "rbf",
        *,
        loss: str | Loss = "squared_epsilon_insensitive",
        C: ArrayLike = 1.0,
        epsilon: ArrayLike = 0.1,
        fit_intercept: bool = True,
        tol: float = 1e-8,
        max_iter: int = 100,
        memory_limit: float = 8e9,
        precision: str = "double",
        solver: str | Solver = "auto",
    ) -> None:
        self.kernel = kernel
        self.loss = loss
        self.C = C
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.precision = precision
        self.solver = solver

    def predict(self, X: Any) -> np.ndarray:
        """Predicted targets, shape (n,)."""
        return self._decisions(X)[:, 0]


class KernelSVC(ClassifierMixin, _Kernel):
    r"""Kernel support vector classification; more than two classes one against the rest.

    Minimises ``1/2 ||f||^2 + C sum_j v_j loss(y_j (f(x_j) + b))`` over the functions of the kernel's space.

    Parameters
    ----------
    kernel : Kernel or {"rbf", "linear", "poly", "precomputed"}, default=RBF()
    loss : {"quartic_hinge", "squared_hinge", "modified_huber", "logistic", "modified_log_hinge", "hinge"} or Loss
        "hinge" is solved exactly by LIBSVM, the others by Newton's method. The default is the quartic hinge with a band
        of 0.5.
    C : float or array, default=1.0
    fit_intercept : bool, default=True
    class_weight : None, "balanced" or dict, default=None
    tol : float, default=1e-8
    max_iter : int, default=100
    memory_limit : float, default=8e9
    precision : {"double", "single"}, default="double"
    solver : str or Solver, default="auto"
        As in :class:`KernelSVR`.

    Attributes
    ----------
    classes_, dual_coef_, support_, support_vectors_, intercept_, kernel_, n_iter_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(KernelSVC(RBF(0.2)).fit(X, y).score(X, y), 2)
    0.99
    """

    _task = "classification"
    _arguments: ClassVar[Table] = {**_Kernel._arguments, "class_weight": CLASS_WEIGHT}

    def __init__(
        self,
        kernel: str | Kernel = "rbf",
        *,
        loss: str | Loss = "quartic_hinge",
        C: ArrayLike = 1.0,
        fit_intercept: bool = True,
        class_weight: str | Mapping[Any, float] | None = None,
        tol: float = 1e-8,
        max_iter: int = 100,
        memory_limit: float = 8e9,
        precision: str = "double",
        solver: str | Solver = "auto",
    ) -> None:
        self.kernel = kernel
        self.loss = loss
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.precision = precision
        self.solver = solver

    def _loss(self) -> Loss:
        loss = super()._loss()
        return loss.replace(epsilon=0.5) if self.loss == "quartic_hinge" else loss

    def decision_function(self, X: Any) -> np.ndarray:
        """Decisions: (n,) for two classes, else (n, classes)."""
        out = self._decisions(X)
        return out[:, 0] if out.shape[1] == 1 else out

    def predict(self, X: Any) -> np.ndarray:
        """Predicted classes, shape (n,)."""
        z = self.decision_function(X)
        index = (z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)
        return self.classes_[index]
