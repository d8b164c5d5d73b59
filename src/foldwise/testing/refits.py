"""Cross-validation by hand: the plain estimator refitted fold by fold, the criterion by its formula.

Nothing here shares code with our problems and solvers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline

__all__ = ["CrossValidation", "criterion_values", "is_exact", "last_step"]


def criterion_values(criterion: Any, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The criterion of decisions ``z`` and targets ``y``, row by row, written down from docs/criteria.md.

    >>> from foldwise.losses import Hinge
    >>> criterion_values(Hinge(), np.array([0.5]), np.array([1.0])).tolist()
    [0.5]
    """
    name, m, r = type(criterion).__name__, y * z, z - y
    s = float(getattr(criterion, "s", 1.0))
    formulas: dict[str, Callable[[], np.ndarray]] = {
        "Squared": lambda: r * r,
        "Absolute": lambda: np.abs(r),
        "Hinge": lambda: np.clip(1 - m, 0, None),
        "SquaredHinge": lambda: np.clip(1 - m, 0, None) ** 2,
        "ModifiedHuber": lambda: np.where(m < -1, -4 * m, np.clip(1 - m, 0, None) ** 2),
        "Logistic": lambda: np.logaddexp(0, -s * m) / s,
        "SmoothMisclassification": lambda: np.exp(-np.logaddexp(0, s * m)),
        "Misclassification": lambda: (np.where(z >= 0, 1, -1) != y).astype(float),
    }
    return formulas[name]()


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
        self.classes = np.unique(self.y) if hasattr(search, "classes_") else None
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
        self.centred = False
        """Whether features are shifted to zero before the last step, which changes rounding alone in an RBF kernel."""

    def value(self, params: Mapping[str, Any], order: np.random.Generator | None = None) -> float:
        """``H`` at these parameters: the mean over folds; ``order`` shuffles the training rows."""
        return float(np.mean(self.by_fold(params, order)))

    def by_fold(self, params: Mapping[str, Any], order: np.random.Generator | None = None) -> np.ndarray:
        """The criterion of every fold, averaged over the machines of a classifier of several classes."""
        return np.array([self._fold(params, train, test, order) for train, test in self.splits])

    def _fold(self, params, train, test, order) -> float:
        train = train if order is None else order.permutation(train)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, outer = self._fitted(params, train, test)
            z = self._decisions(model, outer)
        if any(issubclass(w.category, ConvergenceWarning) for w in caught):
            self.unsure = "the plain estimator does not converge"
        v = self._weight(test) * self._class_weight(train, test)
        losses = [
            np.average(criterion_values(self.criterion, zk[use], yk[use]), weights=v[use])
            for zk, yk, use in self._machines(z, test)
        ]
        return float(np.mean(losses))

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
            by_rows = (
                type(self.last).__name__ == "SVC"
            )  # its "balanced" counts rows, that of the others adds weights
            v = np.ones(len(train)) if by_rows else self._weight(train)
            weights = {label: 1 / v[self.y[train] == label].sum() for label in self.classes.tolist()}
        return np.array([weights[label] for label in self.y[test].tolist()])

    def _fitted(self, params, train, test) -> tuple[Any, Any]:
        """The last step, fitted to the training rows, and the validation rows as it sees them."""
        whole = clone(self.estimator).set_params(**params)
        X, y = self.X, self.y
        inner, outer = _rows(X, train), _rows(X, test)
        if self.pairwise:
            inner, outer = inner[:, train], outer[:, train]
        last = whole
        if isinstance(whole, Pipeline):
            last = whole.steps[-1][1]
            if len(whole.steps) > 1:
                steps = whole[:-1]
                inner = steps.fit_transform(inner, y[train])
                outer = steps.transform(outer)
        if self.centred:
            inner, outer = np.asarray(inner, float), np.asarray(outer, float)
            if (
                getattr(last, "gamma", None) == "scale"
            ):  # by the variance of all entries, before they are centred
                last.set_params(gamma=1.0 / (inner.shape[1] * inner.var()) if inner.var() else 1.0)
            shift = inner.mean(axis=0)
            inner, outer = inner - shift, outer - shift
        given = {name: value[train] for name, value in self.fit_params.items()}
        return _tightened(last).fit(inner, y[train], **given), outer

    def residual(self, params: Mapping[str, Any]) -> float:
        """How far scikit-learn's machines are from solving their own problems, over all folds.

        Smooth linear ones: the largest entry of the gradient, relative to the sizes of its parts. ``SVC`` and ``SVR``:
        the relative gap between primal and dual; LIBSVM keeps kernels in single precision. 0 for other machines.
        """
        name = type(self.last).__name__
        ours = not type(self.last).__module__.startswith("sklearn")
        if ours or self._many() or name not in (*SLOPES, "SVC", "SVR"):
            return 0.0
        worst = 0.0
        for train, _ in self.splits:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, X = self._fitted(params, train, train)
            y = self.y[train]
            target = y.astype(float) if self.classes is None else np.where(y == self.classes[1], 1.0, -1.0)
            v = self._weight(train)
            if name == "SVC":
                v = v * model.class_weight_[np.searchsorted(model.classes_, y)]
            elif isinstance(getattr(model, "class_weight", None), dict):
                v = v * np.array([model.class_weight.get(label, 1.0) for label in y.tolist()])
            elif getattr(model, "class_weight", None) is not None:
                return 0.0
            measure = _gap if name in ("SVC", "SVR") else _gradient
            worst = max(worst, measure(model, np.asarray(X, float), target, v))
        return worst

    def _many(self) -> bool:
        return self.classes is not None and len(self.classes) > 2

    def _decisions(self, model, outer) -> np.ndarray:
        if self.classes is None:
            return np.asarray(model.predict(outer), float)
        return np.asarray(model.decision_function(outer), float)

    def _machines(self, z, test):
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
        return float(np.mean(criterion_values(self.criterion, np.full(len(y), np.median(y)), y)))


SLOPES: dict[str, Callable[[np.ndarray, np.ndarray, Any], np.ndarray]] = {
    "Ridge": lambda z, y, model: 2 * (z - y),
    "LinearSVR": lambda z, y, model: 2 * np.sign(z - y) * np.clip(np.abs(z - y) - model.epsilon, 0, None),
    "LinearSVC": lambda z, y, model: -2 * y * np.clip(1 - y * z, 0, None),
    "LogisticRegression": lambda z, y, model: -y * np.exp(-np.logaddexp(0, y * z)),
}
"""Derivative of the training loss of scikit-learn's smooth linear machines."""


def _gradient(model: Any, X: np.ndarray, y: np.ndarray, v: np.ndarray) -> float:
    """Largest entry of the gradient of a smooth linear machine, relative to the sizes of its parts."""
    name, tiny = type(model).__name__, np.finfo(float).tiny
    w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0] if model.fit_intercept else 0.0)
    slope = v * SLOPES[name](X @ w + b, y, model)
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
    K = X
    if model.kernel != "precomputed":
        X = X - X.mean(axis=0) if model.kernel == "rbf" else X
        options = {"gamma": model._gamma, "degree": model.degree, "coef0": model.coef0}
        K = pairwise_kernels(X, metric=model.kernel, filter_params=True, **options)
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
    return X.iloc[index] if hasattr(X, "iloc") else np.asarray(X)[index]


def _is_one_vs_one(machine: Any) -> bool:
    return type(machine).__module__.startswith("sklearn") and type(machine).__name__ == "SVC"


def is_exact(machine: Any) -> bool:
    """Whether it is trained with the hinge or the tube itself."""
    if type(machine).__name__ in ("SVC", "SVR", "SemiparametricSVR"):
        return True
    return str(getattr(machine, "loss", "")) in ("hinge", "epsilon_insensitive") or getattr(
        getattr(machine, "loss", None), "polyhedral", False
    )


def _tightened(machine: Any) -> Any:
    """The machine with its own solver at its most accurate; the training problem stays as it is."""
    name = type(machine).__name__
    sklearn = type(machine).__module__.startswith("sklearn")
    if name in ("SVC", "SVR"):
        machine.set_params(tol=1e-8, max_iter=1_000_000)
        if name == "SVC":
            machine.set_params(decision_function_shape="ovo")
    elif sklearn and name in ("LinearSVC", "LinearSVR"):
        machine.set_params(tol=1e-11, max_iter=10_000, dual=False)
    elif name == "LogisticRegression":
        solver = machine.solver if machine.solver == "liblinear" else "newton-cholesky"
        machine.set_params(tol=1e-11, max_iter=1_000, solver=solver)
    elif name == "Ridge":
        machine.set_params(solver="svd")
    elif name == "SemiparametricSVR":
        machine.set_params(tol=1e-9)
    elif not sklearn:
        machine.set_params(tol=1e-10, max_iter=200)
    return machine
