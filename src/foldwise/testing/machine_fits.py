"""Single machines of scikit-learn: how well they solve their problems, and fits with more digits than their own."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import is_classifier
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.class_weight import compute_class_weight

__all__ = [
    "SLOPES",
    "careful_fit",
    "counts_rows",
    "duality_gap",
    "gradient_size",
    "is_smooth",
    "machine_count",
    "machine_targets",
    "tightened",
]

SLOPES: dict[str, Callable[[np.ndarray, np.ndarray, Any], np.ndarray]] = {
    "Ridge": lambda z, y, model: 2 * (z - y),
    "LinearSVR": lambda z, y, model: 2 * np.sign(z - y) * np.clip(np.abs(z - y) - model.epsilon, 0, None),
    "LinearSVC": lambda z, y, model: -2 * y * np.clip(1 - y * z, 0, None),
    "LogisticRegression": lambda z, y, model: -y * np.exp(-np.logaddexp(0, y * z)),
}
"""Derivative of the training loss of scikit-learn's smooth linear machines."""


def is_smooth(machine: Any, classes: int) -> bool:
    """Whether it is a linear machine of scikit-learn with a loss in SLOPES, the squared norm, and no bounds."""
    name = type(machine).__name__
    if name not in SLOPES or not type(machine).__module__.startswith("sklearn"):
        return False
    if name == "Ridge":
        return not machine.positive
    if name == "LogisticRegression":
        several = classes > 2 and machine.solver != "liblinear"
        return not several and not getattr(machine, "l1_ratio", 0.0)
    return bool(machine.loss.startswith("squared")) and getattr(machine, "penalty", "l2") == "l2"


def machine_count(model: Any) -> int:
    """How many machines a linear model of scikit-learn consists of: one for each of more than two classes."""
    return len(np.atleast_2d(model.coef_))


def machine_targets(model: Any, y: np.ndarray, k: int) -> np.ndarray:
    """The targets of machine ``k``: the numbers themselves, or +1 for its class and -1 for the others."""
    if not is_classifier(model):
        return y.astype(float)
    own = model.classes_[k if len(model.classes_) > 2 else 1]
    return np.where(y == own, 1.0, -1.0)


def gradient_size(model: Any, X: np.ndarray, y: np.ndarray, v: np.ndarray, k: int) -> float:
    """Largest entry of the gradient of smooth linear machine ``k``, relative to the sizes of its parts."""
    name, tiny = type(model).__name__, np.finfo(float).tiny
    w = np.atleast_2d(model.coef_)[k]
    b = float(np.ravel(model.intercept_)[k] if model.fit_intercept else 0.0)
    slope = _row_weights(model, y, v, k) * SLOPES[name](X @ w + b, machine_targets(model, y, k), model)
    strength = 0.5 / model.alpha if name == "Ridge" else model.C
    parts = np.abs(w) + strength * np.abs(slope) @ np.abs(X)
    worst = float(np.max(np.abs(w + strength * slope @ X) / np.maximum(parts, tiny), initial=0.0))
    if model.fit_intercept:
        free = name == "Ridge" or (name == "LogisticRegression" and model.solver != "liblinear")
        pull = 0.0 if free else b / model.intercept_scaling**2
        size = abs(pull) + strength * np.abs(slope).sum()
        worst = max(worst, abs(pull + strength * slope.sum()) / max(size, tiny))
    return worst


def duality_gap(model: Any, X: np.ndarray, y: np.ndarray, v: np.ndarray) -> float:
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


def tightened(machine: Any, y: np.ndarray, tight: bool = True) -> Any:
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


def careful_fit(
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
        return tightened(machine, y).fit(K, y, **given), cross
    model = tightened(machine, y).fit(inner, y, **given)
    if is_smooth(machine, len(np.unique(y)) if is_classifier(machine) else 2):
        outer = _refine(model, inner, outer, y, given.get("sample_weight"))
    return model, outer


def counts_rows(machine: Any) -> bool:
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
        counted = np.ones(len(y)) if counts_rows(model) else v
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
            _refined(model, A, machine_targets(model, y, k), _row_weights(model, y, v, k), start, penalty)
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
        H = np.diag(penalty) + (A.T * (v * _curvatures(name, A @ x, t, model))) @ A
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


def _curvatures(name: str, z: np.ndarray, y: np.ndarray, model: Any) -> np.ndarray:
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
