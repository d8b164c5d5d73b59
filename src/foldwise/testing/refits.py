"""Cross-validation by hand: the plain estimator refitted fold by fold, the criterion by its formula.

Nothing here shares code with our problems and solvers. A criterion of somebody else has no other formula than its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize, minimize_scalar
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline

from foldwise.criteria import Criterion, OutOfFold, Part
from foldwise.frames import is_frame
from foldwise.testing.certificates import optimality
from foldwise.testing.machine_fits import (
    careful_fit,
    counts_rows,
    duality_gap,
    gradient_size,
    is_smooth,
    machine_count,
    machine_targets,
    tightened,
)

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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # classes with fewer rows than folds
            pairs = list(cv.split(X, y, fit_params.get("groups")))
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
        """Whether scikit-learn's machines are fitted with more digits than they keep: see :func:`careful_fit`."""

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
        share = self.criterion.outliers

        def loss(log_a: float, b: float = 0.0) -> float:
            m = y * (np.exp(log_a) * z / unit + b)
            rows = np.logaddexp(0.0, -m) + s * m
            return float(v @ (-np.log(share + (1.0 - share) * np.exp(-rows)) if share else rows))

        # On a lattice first, since with outliers there may be several minima, then between its neighbours there.
        lattice = np.linspace(-16.0, 16.0, 129)
        k = int(np.argmin([loss(one) for one in lattice]))
        span = lattice[max(k - 1, 0)], lattice[min(k + 1, len(lattice) - 1)]
        best = minimize_scalar(loss, bounds=span, method="bounded", options={"xatol": 1e-9})
        flat = loss(-np.inf)
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
            v = np.ones(len(train)) if counts_rows(self.last) else self._weight(train)
            weights = {label: 1 / v[self.y[train] == label].sum() for label in self.classes.tolist()}
        return np.array([weights[label] for label in self.y[test].tolist()])

    def _fitted(self, params: Mapping[str, Any], train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
        """The last step, fitted to the training rows, and the validation rows as it sees them."""
        last, inner, outer = self._last_step(params, train, test)
        y, given = self.y[train], self._given(train)
        if self.careful and type(last).__module__.startswith("sklearn"):
            return careful_fit(last, np.asarray(inner, float), np.asarray(outer, float), y, given)
        return tightened(last, y, self.tight).fit(inner, y, **given), outer

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
        linear = is_smooth(self.last, 2 if self.classes is None else len(self.classes))
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
                worst = max(worst, *(gradient_size(model, X, y, v, k) for k in range(machine_count(model))))
                continue
            target = machine_targets(model, y, 0)
            if name == "SVC":
                v = v * model.class_weight_[np.searchsorted(model.classes_, y)]
            if self.careful:
                X, target, v = X[v > 0], target[v > 0], v[v > 0]
            worst = max(worst, duality_gap(model, X, target, v))
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
                model = tightened(last, self.y[train]).fit(inner, self.y[train], **self._given(train))
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
