"""Cross-validation by hand: the plain estimator refitted fold by fold, the criterion by its formula.

Nothing here shares code with our problems and solvers. A criterion of somebody else has no other formula than its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize, minimize_scalar
from scipy.spatial.distance import cdist
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.class_weight import compute_class_weight

from foldwise.criteria import Criterion, OutOfFold, Part
from foldwise.frames import is_frame
from foldwise.testing.certificates import optimality

__all__ = ["CrossValidation", "criterion_values", "is_exact", "last_step"]


def criterion_values(criterion: Any, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The criterion of decisions ``z`` and targets ``y``, row by row, written down from docs/criteria.md.

    A loss that is not in the table there is valued by its own formula, which ``check_loss`` holds against differences.

    >>> from foldwise.losses import Hinge
    >>> criterion_values(Hinge(), np.array([0.5]), np.array([1.0])).tolist()
    [0.5]
    """
    name, m, r = type(criterion).__name__, y * z, z - y
    s = float(getattr(criterion, "s", 1.0))
    formulas: dict[str, Callable[[], np.ndarray]] = {
        "Squared": lambda: r * r,
        "Absolute": lambda: np.abs(r),
        "Pinball": lambda: 0.5 * np.abs(r) + (0.5 - criterion.quantile) * r,
        "Hinge": lambda: np.clip(1 - m, 0, None),
        "SquaredHinge": lambda: np.clip(1 - m, 0, None) ** 2,
        "ModifiedHuber": lambda: np.where(m < -1, -4 * m, np.clip(1 - m, 0, None) ** 2),
        "Logistic": lambda: np.logaddexp(0, -s * m) / s,
        "SmoothMisclassification": lambda: np.exp(-np.logaddexp(0, s * m)),
        "Misclassification": lambda: (np.where(z >= 0, 1, -1) != y).astype(float),
    }
    return formulas[name]() if name in formulas else criterion.value(z, y)


class CrossValidation:
    """The objective of a search, by refitting the plain estimator fold by fold.

    Parameters
    ----------
    search : BilevelSearchCV
        Fitted: its ``criterion_`` is used, and nothing else that it found.
    X, y, fit_params
        What ``fit`` was given.
    """

    def __init__(self, search: Any, X: Any, y: Any, fit_params: Mapping[str, Any]) -> None:
        self.estimator, self.criterion = search.estimator, search.criterion_
        self.X = X.toarray() if sp.issparse(X) else X
        self.y = np.asarray(y)
        self.fit_params = {k: np.asarray(v) for k, v in fit_params.items() if k != "groups" and v is not None}
        self.classes = np.unique(self.y) if is_classifier(search) else None
        cv = check_cv(search.cv, y, classifier=self.classes is not None)
        pairs = cv.split(X, y, fit_params.get("groups"))
        self.splits = [tuple(_numbers(side) for side in pair) for pair in pairs]
        self.last = last_step(self.estimator)
        self.exact = is_exact(self.last)
        self.criterion_weight = search.criterion_weight
        if self.criterion_weight == "auto":
            tuned = any(name.endswith("class_weight") for name in search.best_params_)
            self.criterion_weight = None if tuned else getattr(self.last, "class_weight", None)
        kernel = getattr(self.last, "kernel", None)
        self.pairwise = kernel == "precomputed" or type(kernel).__name__ == "Precomputed"
        self.unsure = ""
        self.tight = True
        """Whether LIBSVM works to its highest accuracy, or to the one that the user set."""
        self.careful = False
        """Whether scikit-learn's machines are fitted with more digits than they keep: see :func:`_careful`."""

    def value(self, params: Mapping[str, Any], order: np.random.Generator | None = None) -> float:
        """``H`` at these parameters: the mean over folds; ``order`` shuffles the training rows."""
        if not isinstance(self.criterion, Criterion):
            return float(np.mean(self.by_fold(params, order)))
        found = [self._machines_of(params, train, test, order) for train, test in self.splits]
        parts = [
            Part(0, task, task, None, z, y, v / v.sum() / len(fold) / len(found), t)
            for task, (z, y, v, fold, t) in enumerate(
                (*one, fold, t) for t, fold in enumerate(found) for one in fold
            )
        ]
        out = OutOfFold(parts, len(parts))
        if type(self.criterion).__name__ == "ProfiledLogistic":
            return self._profiled(out.z, out.y, out.v)
        return self.criterion.value(out)

    def _profiled(self, z: np.ndarray, y: np.ndarray, v: np.ndarray) -> float:
        """The logistic loss in the best unit of all decisions together, by a solver that knows nothing of it."""
        s, unit = self.criterion.smoothing, max(float(np.abs(z).max()), np.finfo(float).tiny)

        def loss(log_a: float, b: float = 0.0) -> float:
            m = y * (np.exp(log_a) * z / unit + b)
            return float(v @ (np.logaddexp(0.0, -m) + s * m))

        # With one minimum at most in the unit: on a lattice first, then between its neighbours there.
        lattice = np.linspace(-16.0, 16.0, 65)
        k = int(np.argmin([loss(one) for one in lattice]))
        span = lattice[max(k - 1, 0)], lattice[min(k + 1, len(lattice) - 1)]
        best = minimize_scalar(loss, bounds=span, method="bounded", options={"xatol": 1e-9})
        flat = float(v @ (np.log(2.0) * np.ones(len(v))))
        if not self.criterion.offset:
            return min(float(best.fun), flat)
        options = {"xatol": 1e-10, "fatol": 1e-15, "maxiter": 4000}
        starts = [(-8.0, 0.0), (float(best.x), 0.0), (8.0, 0.0)]
        return min(
            float(minimize(lambda x: loss(*x), x, method="Nelder-Mead", options=options).fun) for x in starts
        )

    def by_fold(self, params: Mapping[str, Any], order: np.random.Generator | None = None) -> np.ndarray:
        """The criterion of every fold, averaged over the machines of a classifier of several classes."""
        return np.array([self._fold(params, train, test, order) for train, test in self.splits])

    def loose(self, params: Mapping[str, Any]) -> float:
        """The same with LIBSVM as the user set it: where an intercept is not unique, its choice depends on that."""
        before, self.tight, self.careful = (self.tight, self.careful), False, False
        try:
            return self.value(params)
        finally:
            self.tight, self.careful = before

    def shaken(self, params: Mapping[str, Any], rng: np.random.Generator) -> float:
        """The same with features that differ in their last digits: what no solver can tell apart."""
        whole = self.X
        numbers = np.asarray(whole, float)
        noise = numbers * (1.0 + 4.0 * np.finfo(float).eps * rng.uniform(-1, 1, numbers.shape))
        try:
            self.X = type(whole)(noise, columns=whole.columns) if is_frame(whole) else noise
            return self.value(params)
        finally:
            self.X = whole

    def _fold(
        self,
        params: Mapping[str, Any],
        train: np.ndarray,
        test: np.ndarray,
        order: np.random.Generator | None,
    ) -> float:
        parts = self._machines_of(params, train, test, order)
        losses = [np.average(criterion_values(self.criterion, z, y), weights=v) for z, y, v in parts]
        return float(np.mean(losses))

    def _machines_of(
        self,
        params: Mapping[str, Any],
        train: np.ndarray,
        test: np.ndarray,
        order: np.random.Generator | None,
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Decisions, targets and weights of the validation rows of every machine that is fitted to a fold."""
        train = train if order is None else order.permutation(train)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, outer = self._fitted(params, train, test)
            z = self._decisions(model, outer)
        if any(issubclass(w.category, ConvergenceWarning) for w in caught):
            self.unsure = "the plain estimator does not converge"
        v = self._weight(test) * self._class_weight(train, test)
        return [(zk[use], yk[use], v[use]) for zk, yk, use in self._machines(z, test)]

    def _weight(self, rows: np.ndarray) -> np.ndarray:
        weight = self.fit_params.get("sample_weight")
        return np.ones(len(rows)) if weight is None else weight[rows].astype(float)

    def _class_weight(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """What the validation rows count by their classes; only the ratios matter, since a fold's value is a mean."""
        spec = self.criterion_weight
        if self.classes is None or spec is None:
            return np.ones(len(test))
        if isinstance(spec, dict):
            weights = {label: float(spec.get(label, 1.0)) for label in self.classes.tolist()}
        else:
            v = np.ones(len(train)) if _counts_rows(self.last) else self._weight(train)
            weights = {label: 1 / v[self.y[train] == label].sum() for label in self.classes.tolist()}
        return np.array([weights[label] for label in self.y[test].tolist()])

    def _fitted(self, params: Mapping[str, Any], train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
        """The last step, fitted to the training rows, and the validation rows as it sees them."""
        last, inner, outer = self._last_step(params, train, test)
        y, given = self.y[train], self._given(train)
        if self.careful and type(last).__module__.startswith("sklearn"):
            return _careful(last, np.asarray(inner, float), np.asarray(outer, float), y, given)
        return _tightened(last, y, self.tight).fit(inner, y, **given), outer

    def _given(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """What ``fit`` is given beside X and y."""
        return {name: value[rows] for name, value in self.fit_params.items()}

    def _last_step(
        self, params: Mapping[str, Any], train: np.ndarray, test: np.ndarray
    ) -> tuple[Any, Any, Any]:
        """The last step, not fitted, and the training and validation rows as it sees them."""
        whole = clone(self.estimator).set_params(**params)
        X = self.X
        if self.careful and not is_frame(X):
            X = np.asarray(X, float)
        inner, outer = _rows(X, train), _rows(X, test)
        if self.pairwise:
            inner, outer = inner[:, train], outer[:, train]
        last = whole
        if isinstance(whole, Pipeline):
            last = whole.steps[-1][1]
            if len(whole.steps) > 1:
                steps = whole[:-1]
                inner = steps.fit_transform(inner, self.y[train])
                outer = steps.transform(outer)
        return last, inner, outer

    def residual(self, params: Mapping[str, Any]) -> float:
        """How far scikit-learn's machines are from solving their own problems, over all folds.

        Smooth linear ones: the largest entry of the gradient, relative to the sizes of its parts. ``SVC`` and ``SVR``:
        the relative gap between primal and dual; LIBSVM keeps kernels in single precision. 0 for other machines.
        """
        name = type(self.last).__name__
        linear = _is_smooth(self.last, 2 if self.classes is None else len(self.classes))
        ours = not type(self.last).__module__.startswith("sklearn")
        if ours or not (linear or (name in ("SVC", "SVR") and not self._many())):
            return 0.0
        worst = 0.0
        for train, _ in self.splits:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, X = self._fitted(params, train, train)
            y, v, X = self.y[train], self._weight(train), np.asarray(X, float)
            if linear:
                worst = max(worst, *(_gradient(model, X, y, v, k) for k in range(_count(model))))
                continue
            target = _targets(model, y, 0)
            if name == "SVC":
                v = v * model.class_weight_[np.searchsorted(model.classes_, y)]
            if self.careful:
                X, target, v = X[v > 0], target[v > 0], v[v > 0]
            worst = max(worst, _gap(model, X, target, v))
        return worst

    def violation(self, params: Mapping[str, Any]) -> float:
        """How far our machines are from solving their problems: the largest :func:`optimality` of all folds.

        0 for scikit-learn's machines, whose solvers are not ours.
        """
        if type(self.last).__module__.startswith("sklearn"):
            return 0.0
        worst = 0.0
        for train, _ in self.splits:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                last, inner, _ = self._last_step(params, train, train)
                model = _tightened(last, self.y[train]).fit(inner, self.y[train], **self._given(train))
            if any(issubclass(w.category, ConvergenceWarning) for w in caught):
                self.unsure = "our machine says that it did not converge"
                continue
            worst = max(worst, optimality(model, inner, self.y[train], **self._given(train)))
        return worst

    def _many(self) -> bool:
        return self.classes is not None and len(self.classes) > 2

    def _decisions(self, model: Any, outer: Any) -> np.ndarray:
        if self.classes is None:
            return np.asarray(model.predict(outer), float)
        return np.asarray(model.decision_function(outer), float)

    def _machines(
        self, z: np.ndarray, test: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Decisions, targets in {-1, +1} (or numbers) and rows that count, of every machine."""
        everyone = np.ones(len(test), bool)
        if self.classes is None:
            yield z, self.y[test].astype(float), everyone
        elif len(self.classes) == 2:
            yield z, np.where(self.y[test] == self.classes[1], 1.0, -1.0), everyone
        elif z.shape[1] == len(self.classes) and not _is_one_vs_one(self.last):
            for k, label in enumerate(self.classes):
                yield z[:, k], np.where(self.y[test] == label, 1.0, -1.0), everyone
        else:
            for k, (one, other) in enumerate(combinations(self.classes, 2)):
                use = (self.y[test] == one) | (self.y[test] == other)
                yield z[:, k], np.where(self.y[test] == one, 1.0, -1.0), use

    def scale(self) -> float:
        """The objective of a machine that predicts the same everywhere: the unit of differences."""
        if self.classes is not None:
            return 1.0
        y = self.y.astype(float)
        z, v = np.full(len(y), np.median(y)), np.full(len(y), 1.0 / len(y))
        if isinstance(self.criterion, Criterion):
            return self.criterion.value(OutOfFold([Part(0, 0, 0, None, z, y, v)], 1))
        return float(v @ criterion_values(self.criterion, z, y))


SLOPES: dict[str, Callable[[np.ndarray, np.ndarray, Any], np.ndarray]] = {
    "Ridge": lambda z, y, model: 2 * (z - y),
    "LinearSVR": lambda z, y, model: 2 * np.sign(z - y) * np.clip(np.abs(z - y) - model.epsilon, 0, None),
    "LinearSVC": lambda z, y, model: -2 * y * np.clip(1 - y * z, 0, None),
    "LogisticRegression": lambda z, y, model: -y * np.exp(-np.logaddexp(0, y * z)),
}
"""Derivative of the training loss of scikit-learn's smooth linear machines."""


def _is_smooth(machine: Any, classes: int) -> bool:
    """Whether it is a linear machine of scikit-learn with a loss in SLOPES, the squared norm, and no bounds."""
    name = type(machine).__name__
    if name not in SLOPES or not type(machine).__module__.startswith("sklearn"):
        return False
    if name == "Ridge":
        return not machine.positive
    if name == "LogisticRegression":
        several = classes > 2 and machine.solver != "liblinear"
        return not several and not getattr(machine, "l1_ratio", 0.0)
    return machine.loss.startswith("squared") and getattr(machine, "penalty", "l2") == "l2"


def _count(model: Any) -> int:
    """How many machines a linear model of scikit-learn consists of: one for each of more than two classes."""
    return len(np.atleast_2d(model.coef_))


def _targets(model: Any, y: np.ndarray, k: int) -> np.ndarray:
    """The targets of machine ``k``: the numbers themselves, or +1 for its class and -1 for the others."""
    if not is_classifier(model):
        return y.astype(float)
    own = model.classes_[k if len(model.classes_) > 2 else 1]
    return np.where(y == own, 1.0, -1.0)


def _gradient(model: Any, X: np.ndarray, y: np.ndarray, v: np.ndarray, k: int) -> float:
    """Largest entry of the gradient of smooth linear machine ``k``, relative to the sizes of its parts."""
    name, tiny = type(model).__name__, np.finfo(float).tiny
    w = np.atleast_2d(model.coef_)[k]
    b = float(np.ravel(model.intercept_)[k] if model.fit_intercept else 0.0)
    slope = _row_weights(model, y, v, k) * SLOPES[name](X @ w + b, _targets(model, y, k), model)
    strength = 0.5 / model.alpha if name == "Ridge" else model.C
    parts = np.abs(w) + strength * np.abs(slope) @ np.abs(X)
    worst = float(np.max(np.abs(w + strength * slope @ X) / np.maximum(parts, tiny), initial=0.0))
    if model.fit_intercept:
        free = name == "Ridge" or (name == "LogisticRegression" and model.solver != "liblinear")
        pull = 0.0 if free else b / model.intercept_scaling**2
        size = abs(pull) + strength * np.abs(slope).sum()
        worst = max(worst, abs(pull + strength * slope.sum()) / max(size, tiny))
    return worst


def _gap(model: Any, X: np.ndarray, y: np.ndarray, v: np.ndarray) -> float:
    """Relative gap between the primal and the dual value of ``SVC`` (two classes) or ``SVR``."""
    K = X if model.kernel == "precomputed" else _kernel(model, X, X)
    a = np.zeros(len(y))
    taken = (
        np.flatnonzero(v > 0) if np.any(v == 0) else np.arange(len(v))
    )  # LIBSVM numbers rows without weight 0
    a[taken[model.support_]] = model.dual_coef_[0]
    z = K @ a + model.intercept_[0]
    norm, cost = 0.5 * a @ K @ a, model.C * v
    if type(model).__name__ == "SVR":
        primal = norm + cost @ np.clip(np.abs(z - y) - model.epsilon, 0, None)
        dual = a @ y - model.epsilon * np.abs(a).sum() - norm
    else:
        primal, dual = norm + cost @ np.clip(1 - y * z, 0, None), np.abs(a).sum() - norm
    return float(abs(primal - dual) / max(abs(primal), abs(dual), np.finfo(float).tiny))


def last_step(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _numbers(side: Any) -> np.ndarray:
    side = np.asarray(side)
    return np.flatnonzero(side) if side.dtype == bool else side


def _rows(X: Any, index: np.ndarray) -> Any:
    return X.iloc[index] if is_frame(X) else np.asarray(X)[index]


def _is_one_vs_one(machine: Any) -> bool:
    return type(machine).__module__.startswith("sklearn") and type(machine).__name__ == "SVC"


def is_exact(machine: Any) -> bool:
    """Whether it is trained with a loss that has corners."""
    if type(machine).__name__ in ("SVC", "SVR", "SemiparametricSVR"):
        return True
    return str(getattr(machine, "loss", "")) in ("hinge", "epsilon_insensitive", "pinball") or getattr(
        getattr(machine, "loss", None), "polyhedral", False
    )


def _tightened(machine: Any, y: np.ndarray, tight: bool = True) -> Any:
    """The machine with its own solver at its most accurate; the training problem stays as it is."""
    name = type(machine).__name__
    sklearn = type(machine).__module__.startswith("sklearn")
    if name in ("SVC", "SVR"):
        # LIBSVM's tolerance is in units of the margin, or of the target.
        unit = min(1.0, float(np.std(y.astype(float)))) if name == "SVR" else 1.0
        if tight:
            machine.set_params(tol=max(1e-8 * unit, 1e-300))
        if tight or machine.max_iter == -1:
            machine.set_params(max_iter=1_000_000)  # it may not end
        if name == "SVC":
            machine.set_params(decision_function_shape="ovo")
    elif sklearn and name in ("LinearSVC", "LinearSVR"):
        exact = machine.loss in ("hinge", "epsilon_insensitive")
        machine.set_params(tol=1e-9 if exact else 1e-11, max_iter=1_000_000 if exact else 10_000, dual=exact)
    elif name == "LogisticRegression":
        sparse = bool(getattr(machine, "l1_ratio", 0.0))
        solver = machine.solver if sparse or machine.solver == "liblinear" else "newton-cholesky"
        machine.set_params(tol=1e-11, max_iter=200_000 if sparse else 1_000, solver=solver)
    elif name in ("Lasso", "ElasticNet"):
        machine.set_params(tol=1e-12, max_iter=1_000_000)
    elif name in ("Ridge", "RidgeClassifier"):
        machine.set_params(**({"tol": 1e-12} if machine.positive else {"solver": "svd"}))
    elif name == "SemiparametricSVR":
        machine.set_params(tol=1e-9)
    elif not sklearn:
        machine.set_params(tol=1e-10, max_iter=200)
    return machine


# scikit-learn's machines with more digits than they keep themselves.


def _careful(
    machine: Any, inner: np.ndarray, outer: np.ndarray, y: np.ndarray, given: dict[str, Any]
) -> tuple[Any, Any]:
    """A machine of scikit-learn fitted without the losses of its own arithmetic, and the validation rows for it.

    Kernels are computed from differences in double precision and, where an intercept takes it up, without their means,
    which LIBSVM's single precision would drown in. Smooth linear machines are refined in extended precision. The
    training problem stays as it is.
    """
    given = {name: value.astype(float) if value.dtype.kind == "f" else value for name, value in given.items()}
    name = type(machine).__name__
    kernel = getattr(machine, "kernel", None)
    if name in ("SVC", "SVR", "KernelRidge") and isinstance(kernel, str):
        K, cross = inner, outer
        if kernel != "precomputed":
            K, cross = _kernel(machine, inner, inner), _kernel(machine, outer, inner)
        if name != "KernelRidge":
            kept = (
                given.get("sample_weight", np.ones(len(y))) > 0
            )  # LIBSVM drops the others and loses count of rows
            if getattr(machine, "class_weight", None) == "balanced":  # it counts them all the same
                labels = np.unique(y)
                counts = compute_class_weight("balanced", classes=labels, y=y)
                machine.set_params(class_weight=dict(zip(labels.tolist(), counts.tolist(), strict=True)))
            K, cross, y = K[np.ix_(kept, kept)], cross[:, kept], y[kept]
            given = {name: value[kept] for name, value in given.items()}
            away, level = K.mean(axis=1), K.mean()
            K, cross = K - away[:, None] - away + level, cross - cross.mean(axis=1)[:, None] - away + level
        machine.set_params(kernel="precomputed")
        return _tightened(machine, y).fit(K, y, **given), cross
    model = _tightened(machine, y).fit(inner, y, **given)
    if _is_smooth(machine, len(np.unique(y)) if is_classifier(machine) else 2):
        outer = _refine(model, inner, outer, y, given.get("sample_weight"))
    return model, outer


def _counts_rows(machine: Any) -> bool:
    """Whether the machine's own "balanced" counts rows; the others add up their weights.

    scikit-learn's linear machines add up weights since its ``compute_class_weight`` takes them (version 1.7).
    """
    if not type(machine).__module__.startswith("sklearn."):
        return False
    return (
        type(machine).__name__ == "SVC" or "sample_weight" not in signature(compute_class_weight).parameters
    )


def _kernel(machine: Any, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Kernel values of rows A and training rows B."""
    gamma = getattr(machine, "gamma", None)
    if gamma == "scale":
        gamma = 1.0 / (B.shape[1] * B.var()) if B.var() else 1.0
    elif gamma is None or isinstance(gamma, str):
        gamma = 1.0 / B.shape[1]
    if machine.kernel == "rbf":
        return np.exp(-float(gamma) * cdist(A, B, "sqeuclidean"))
    options = {"gamma": float(gamma), "degree": machine.degree, "coef0": machine.coef0}
    return pairwise_kernels(A, B, metric=machine.kernel, filter_params=True, **options)


def _row_weights(model: Any, y: np.ndarray, v: np.ndarray, k: int) -> np.ndarray:
    """Sample weights ``v`` times what ``class_weight`` makes the rows of machine ``k`` of a linear model count.

    LIBLINEAR's machines of one class against several others weigh that class alone.
    """
    spec = getattr(model, "class_weight", None)
    if spec is None:
        return v
    labels = model.classes_.tolist()
    if isinstance(spec, dict):
        factors = {label: float(spec.get(label, 1.0)) for label in labels}
    else:
        counted = np.ones(len(y)) if _counts_rows(model) else v
        factors = {label: counted.sum() / (len(labels) * counted[y == label].sum()) for label in labels}
    if len(labels) > 2:
        return v * np.where(y == labels[k], factors[labels[k]], 1.0)
    return v * np.array([factors[label] for label in y.tolist()])


def _refine(
    model: Any, X: np.ndarray, outer: np.ndarray, y: np.ndarray, weight: np.ndarray | None
) -> np.ndarray:
    """The machines of a smooth linear model with all digits that their columns have; in place.

    Where the intercept is free, the columns lose their means first. Returns the rows ``outer`` as the machines then
    see them.
    """
    name, long = type(model).__name__, np.longdouble
    v = np.ones(len(y)) if weight is None else np.asarray(weight, float)
    free = model.fit_intercept and (
        name == "Ridge" or (name == "LogisticRegression" and model.solver != "liblinear")
    )
    away = X.astype(long).mean(axis=0) if free else np.zeros(X.shape[1], long)
    A = X - away
    starts = np.atleast_2d(model.coef_).astype(long)
    if model.fit_intercept:
        pull = 0.0 if free else 1.0 / float(getattr(model, "intercept_scaling", 1.0)) ** 2
        penalty = np.append(np.ones(X.shape[1], long), long(pull))
        A = np.column_stack([A, np.ones(len(A), long)])
        starts = np.column_stack([starts, np.ravel(model.intercept_) + starts @ away])
    else:
        penalty = np.ones(X.shape[1], long)
    if not np.all(np.isfinite(starts)):
        return outer
    found = np.array(
        [
            _refined(model, A, _targets(model, y, k), _row_weights(model, y, v, k), start, penalty)
            for k, start in enumerate(starts)
        ]
    )
    model.coef_ = found[:, : X.shape[1]].astype(float).reshape(np.shape(model.coef_))
    if model.fit_intercept:
        b = found[:, -1].astype(float)
        model.intercept_ = float(b[0]) if np.ndim(model.intercept_) == 0 else b
    return np.asarray(outer - away, float)


def _refined(
    model: Any, A: np.ndarray, target: np.ndarray, v: np.ndarray, x: np.ndarray, penalty: np.ndarray
) -> np.ndarray:
    """Newton's method in extended precision from the weights ``x``, scaled by the diagonal of the Hessian."""
    long, name = np.longdouble, type(model).__name__
    strength = long(0.5 / float(np.ravel(model.alpha)[0]) if name == "Ridge" else model.C)
    t, v = target.astype(long), strength * v.astype(long)

    def value(x: np.ndarray) -> Any:
        return 0.5 * x @ (penalty * x) + v @ _losses(name, A @ x, t, model)

    def gradient(x: np.ndarray) -> Any:
        return penalty * x + (v * np.asarray(SLOPES[name](A @ x, t, model), long)) @ A

    for _ in range(100):
        g = gradient(x)
        H = np.diag(penalty) + (A.T * (v * _bends(name, A @ x, t, model))) @ A
        unit = 1 / np.sqrt(np.maximum(np.diag(H), np.finfo(long).tiny))
        step = -unit * _solve(H * np.outer(unit, unit), unit * g)
        before, slope, length = value(x), np.linalg.norm(unit * g), long(1.0)
        # Near the solution values differ by rounding alone, and gradients tell.
        while length > 1e-6 and not (
            value(x + length * step) <= before or np.linalg.norm(unit * gradient(x + length * step)) < slope
        ):
            length /= 2
        if length <= 1e-6 or np.max(np.abs(step / unit)) <= 1e-17 * max(1.0, np.max(np.abs(x / unit))):
            break
        x = x + length * step
    return x


def _losses(name: str, z: np.ndarray, y: np.ndarray, model: Any) -> np.ndarray:
    """Training losses whose derivatives are in SLOPES."""
    if name == "Ridge":
        return (z - y) ** 2
    if name == "LinearSVR":
        return np.clip(np.abs(z - y) - model.epsilon, 0, None) ** 2
    if name == "LinearSVC":
        return np.clip(1 - y * z, 0, None) ** 2
    return np.logaddexp(0, -y * z)


def _bends(name: str, z: np.ndarray, y: np.ndarray, model: Any) -> np.ndarray:
    """Their second derivatives."""
    if name == "Ridge":
        return np.full(len(z), 2.0)
    if name == "LinearSVR":
        return 2.0 * (np.abs(z - y) > model.epsilon)
    if name == "LinearSVC":
        return 2.0 * (y * z < 1)
    return np.exp(-np.logaddexp(0, z) - np.logaddexp(0, -z))


def _solve(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """``H^-1 g`` for a positive definite matrix in extended precision, which LAPACK does not have: Cholesky by hand."""
    d = len(g)
    L = np.zeros_like(H)
    for j in range(d):
        pivot = H[j, j] - L[j, :j] @ L[j, :j]
        L[j, j] = np.sqrt(max(pivot, np.finfo(H.dtype).eps))
        L[j + 1 :, j] = (H[j + 1 :, j] - L[j + 1 :, :j] @ L[j, :j]) / L[j, j]
    x = np.array(g)
    for j in range(d):
        x[j] = (x[j] - L[j, :j] @ x[:j]) / L[j, j]
    for j in reversed(range(d)):
        x[j] = (x[j] - L[j + 1 :, j] @ x[j + 1 :]) / L[j, j]
    return x
