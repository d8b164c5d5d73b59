"""The final fit by scikit-learn's machines: whether it solved its problem.

A search trains to rounding. scikit-learn's machines may not: LIBSVM keeps kernels in single precision and stops at
errors of ``tol`` whatever the unit of the target is, and distances far from zero lose digits. What is deployed then is
not the machine that was valued, which is measured here on the training rows.
"""

from __future__ import annotations

import copy
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import is_classifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from sklearn.utils import _safe_indexing

from foldwise.estimators.balance import balances
from foldwise.frames import is_frame
from foldwise.kernels import squared_distances

__all__ = ["LINEAR", "MACHINES", "shortfall"]

LINEAR = (LogisticRegression, Ridge, LinearSVC, LinearSVR)
MACHINES = (SVC, SVR, KernelRidge, *LINEAR)
"""Machines that may be deployed otherwise than a search values them."""

BROKEN = 1e-2
"""Violation of an optimality condition, in units of the margin or of the target's spread, that is worth a warning."""
FAR = 5e-2
"""How far decisions of a linear machine may be from the solved problem's, as a share of the largest of them."""
SHARE, FLOOR = 0.5, 1e-6
"""The same for a regression, as a share of the root mean square of its residuals, but not below that of the spread."""
WORK = 2e7
"""Rows times squared columns up to which a linear machine is solved again to tell."""
ROWS = 2_000
"""Rows that are looked at."""
EDGE = 1e-8


def shortfall(machine: Any, X: Any, y: Any, weight: Any) -> str:
    """A sentence where a fitted machine of scikit-learn did not solve its problem; "" where it did.

    Parameters
    ----------
    machine : one of MACHINES
    X, y, weight
        What it was fitted to.
    """
    y = np.ravel(np.asarray(y))
    X = X.tocsr() if sp.issparse(X) else X if is_frame(X) else np.asarray(X)
    n = len(y)
    rows = np.arange(0, n, max(1, -(-n // ROWS)))
    v = np.ones(n) if weight is None else np.broadcast_to(np.asarray(weight, float), n)
    name = type(machine).__name__
    if isinstance(machine, LINEAR):
        return _linear_shortfall(machine, X, y, v) if _is_smooth(machine) else ""
    if isinstance(machine, KernelRidge):
        spread = float(np.std(y))
        broken = _ridge(machine, X, y, v, rows)
    elif isinstance(machine, SVR):
        spread = float(np.std(y))
        broken = _tube(machine, X, y, v, rows)
    else:
        spread, broken = 1.0, _margins(machine, X, y, v, rows)
    if not broken > BROKEN * spread:
        return ""
    unit = (
        "where the margin is 1" if spread == 1.0 else f"where the target's standard deviation is {spread:.2g}"
    )
    ways = "Scale the features before it (StandardScaler in a pipeline)"
    if isinstance(machine, SVR):
        ways += f", scale the target or set tol={min(machine.tol, 1e-3 * spread):.0e}"
    ours = "KernelSVC" if isinstance(machine, SVC) else "KernelSVR"
    return (
        f"the final fit by scikit-learn's {name} did not solve its training problem: decisions on training rows are "
        f"up to {broken:.2g} off their optimality conditions, {unit}. It is not the machine that the search valued. "
        f"{ways}, or tune foldwise.{ours}"
    )


def _is_smooth(machine: Any) -> bool:
    """Whether the loss and the penalty of a linear machine have no corners, its weights no bounds, its classes no ties.

    Of others, which can be far off too, scikit-learn itself says where they stopped early.
    """
    if isinstance(machine, LogisticRegression):
        shape = getattr(machine, "penalty", "l2"), getattr(machine, "l1_ratio", None) or 0.0
        return len(machine.classes_) == 2 and shape[0] in ("l2", "deprecated") and shape[1] == 0
    if isinstance(machine, Ridge):
        return not machine.positive
    return machine.loss.startswith("squared") and getattr(machine, "penalty", "l2") == "l2"


def _linear_shortfall(machine: Any, X: Any, y: np.ndarray, v: np.ndarray) -> str:
    """The same for a smooth linear machine: how far its decisions are from those of the solved problem."""
    coef = np.atleast_2d(machine.coef_)
    if len(y) * coef.size * coef.shape[1] > WORK:
        return ""
    A = X.toarray() if sp.issparse(X) else np.asarray(X, float)
    own = machine.decision_function(X) if is_classifier(machine) else machine.predict(X)
    own = np.asarray(own, float).reshape(
        len(y), len(coef)
    )  # as it computes them: rows may be in single precision
    gaps = [_gaps(machine, A, y, v, k, own[:, k]) for k in range(len(coef))]
    off, largest, allowed = max(gaps, key=lambda gap: gap[0] - gap[2])
    if not off > allowed:
        return ""
    finer = (
        f", set tol={min(machine.tol, 1e-8):.0e} and a larger max_iter"
        if "tol" in machine.get_params()
        else ""
    )
    if machine.coef_.dtype == np.float32:
        finer += ", give rows in double precision (X.astype(float)), or take the mean off the target"
    return (
        f"the final fit by scikit-learn's {type(machine).__name__} did not solve its training problem: decisions on "
        f"training rows are up to {off:.2g} off, where the largest is {largest:.2g}. It is not the machine that the "
        f"search valued. Scale the features before it (StandardScaler in a pipeline){finer}"
    )


def _gaps(
    machine: Any, A: np.ndarray, y: np.ndarray, v: np.ndarray, k: int, z: np.ndarray
) -> tuple[float, float, float]:
    """How far decisions ``z`` of linear machine ``k`` are from the solved problem's, the largest, what is allowed."""
    classes = is_classifier(machine)
    if classes:
        target = np.where(y == machine.classes_[k if len(machine.classes_) > 2 else 1], 1.0, -1.0)
        v = v * _class_factors(machine, y, v, k)
    else:
        target = y.astype(float)
    cost = v * (1.0 / float(np.ravel(machine.alpha)[0]) if isinstance(machine, Ridge) else machine.C)
    # Columns are centred where the intercept is free to take that up.
    scaled = isinstance(machine, (LinearSVC, LinearSVR)) or getattr(machine, "solver", "") == "liblinear"
    shift = (
        np.zeros(A.shape[1])
        if scaled or not machine.fit_intercept or not cost.any()
        else cost @ A / cost.sum()
    )
    A, x, pull = A - shift, np.atleast_2d(machine.coef_)[k].astype(float), np.ones(A.shape[1])
    if machine.fit_intercept:
        b = float(np.ravel(machine.intercept_)[k]) + shift @ x
        pull = np.append(pull, float(getattr(machine, "intercept_scaling", 1.0)) ** -2 if scaled else 0.0)
        A, x = np.column_stack([A, np.ones(len(A))]), np.append(x, b)
    solved = A @ _solved(machine, A, target, cost, pull, x)
    largest = float(np.max(np.abs(z)))
    # A machine in single precision rounds its intercept and decisions, here as it happens more or less than elsewhere.
    off = max(float(np.max(np.abs(solved - z))), float(np.finfo(machine.coef_.dtype).eps) * largest)
    if classes:
        return off, largest, FAR * max(1.0, largest)
    # Where a target is followed closely, an error that is small beside its spread may be the whole of the residuals.
    spread, rest = float(np.std(target)), _root_mean(solved - target)
    return off, largest, min(FAR * spread, max(SHARE * rest, FLOOR * spread))


def _root_mean(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _class_factors(machine: Any, y: np.ndarray, v: np.ndarray, k: int) -> np.ndarray:
    """What ``class_weight`` makes the rows of linear machine ``k`` count; v are their own weights.

    LIBLINEAR's machines of one class against several others weigh that class alone.
    """
    spec, labels = machine.class_weight, machine.classes_.tolist()
    if spec is None:
        return np.ones(len(y))
    if isinstance(spec, str):
        counted = np.ones(len(y)) if balances(machine) == "rows" else v
        totals = [float(counted[y == label].sum()) for label in labels]
        spec = {
            label: sum(totals) / (len(labels) * total)
            for label, total in zip(labels, totals, strict=True)
            if total
        }
    if len(labels) > 2:
        return np.where(y == labels[k], float(spec.get(labels[k], 1.0)), 1.0)
    return np.array([float(spec.get(label, 1.0)) for label in y.tolist()])


def _solved(
    machine: Any, A: np.ndarray, y: np.ndarray, cost: np.ndarray, pull: np.ndarray, x: np.ndarray
) -> np.ndarray:
    """The solution of a smooth linear machine's training problem, by Newton's method from ``x``."""
    for _ in range(50):
        slope, curvature = _slopes(machine, A @ x, y)
        g = pull * x + (cost * slope) @ A
        H = np.diag(pull) + (A.T * (cost * curvature)) @ A
        unit = 1.0 / np.sqrt(np.maximum(np.diag(H), np.finfo(float).tiny))
        step = unit * np.linalg.lstsq(H * np.outer(unit, unit), -unit * g, rcond=1e-15)[0]
        first, t = float(g @ step), 1.0
        # The derivative along the step, which grows, must not have turned: else back to where it has not.
        while t > 1e-6:
            slope, _ = _slopes(machine, A @ (x + t * step), y)
            if (pull * (x + t * step) + (cost * slope) @ A) @ step <= 0.5 * abs(first):
                break
            t *= 0.5
        x = x + t * step
        if abs(first) <= 1e-14 * abs(x @ (pull * x)) or np.max(np.abs(A @ step)) <= 1e-6:
            break
    return x


def _slopes(machine: Any, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second derivatives of the training loss of scikit-learn's smooth linear machines."""
    if isinstance(machine, Ridge):
        return z - y, np.ones(len(z))
    if isinstance(machine, LogisticRegression):
        return -y * expit(-y * z), expit(z) * expit(-z)
    if isinstance(machine, LinearSVC):
        gap = np.maximum(1.0 - y * z, 0.0)
        return -2.0 * y * gap, 2.0 * (gap > 0)
    gap = np.maximum(np.abs(z - y) - machine.epsilon, 0.0)
    return 2.0 * np.sign(z - y) * gap, 2.0 * (gap > 0)


def _tube(machine: SVR, X: Any, y: np.ndarray, v: np.ndarray, rows: np.ndarray) -> float:
    """Largest violation of the optimality conditions of ``SVR``, in units of the target."""
    alpha = np.zeros(len(y))
    alpha[_support(machine, v)] = _dense(machine.dual_coef_)[0]
    rest = y[rows] - machine.predict(_safe_indexing(X, rows))
    side = np.where(alpha[rows] != 0, np.sign(alpha[rows]), np.sign(rest))
    return _violation(side * rest - machine.epsilon, np.abs(alpha[rows]), (machine.C * v)[rows])


def _margins(machine: SVC, X: Any, y: np.ndarray, v: np.ndarray, rows: np.ndarray) -> float:
    """The same for every pair of classes of ``SVC``, in units of the margin."""
    label = np.searchsorted(machine.classes_, y)
    place = np.full(len(y), -1)
    place[_support(machine, v)] = np.arange(len(machine.support_))
    shown = copy.copy(machine)
    shown.decision_function_shape = "ovo"
    shown.break_ties = False
    Z = np.asarray(shown.decision_function(_safe_indexing(X, rows)), float)
    two, coef = len(machine.classes_) == 2, np.abs(_dense(machine.dual_coef_))
    Z = -Z[:, None] if two else Z
    worst = 0.0
    for k, (first, second) in enumerate(combinations(range(len(machine.classes_)), 2)):
        own = np.isin(label[rows], (first, second))
        part = rows[own]
        at = place[part]
        line = np.where(label[part] == first, second - 1, first)
        alpha = np.where(at >= 0, coef[line, at], 0.0)
        gap = 1.0 - np.where(label[part] == first, 1.0, -1.0) * Z[own, k]
        cost = machine.C * np.asarray(machine.class_weight_)[label[part]] * v[part]
        worst = max(worst, _violation(gap, alpha, cost))
    return worst


def _support(machine: Any, v: np.ndarray) -> np.ndarray:
    """Numbers of the support vectors; LIBSVM leaves rows of weight zero out and then numbers the others."""
    own = np.asarray(machine.support_)
    return np.flatnonzero(v > 0)[own] if np.any(v == 0) else own


def _violation(gap: np.ndarray, alpha: np.ndarray, cost: np.ndarray) -> float:
    """Rows at zero want ``gap <= 0``, those at their bound ``gap >= 0``, free ones equality."""
    low = np.where(alpha > EDGE * cost, -gap, 0.0)
    high = np.where(alpha < (1.0 - EDGE) * cost, gap, 0.0)
    return float(np.max(np.where(cost > 0, np.maximum(low, high), 0.0), initial=0.0))


def _ridge(machine: KernelRidge, X: Any, y: np.ndarray, v: np.ndarray, rows: np.ndarray) -> float:
    """Largest residual of ``K a + alpha a / v = y`` with an exact ``K``; 0 for kernels without distances."""
    if machine.kernel != "rbf":
        return 0.0
    Z = X.toarray() if sp.issparse(X) else np.asarray(X, float)
    gamma = 1.0 / Z.shape[1] if machine.gamma is None else float(np.ravel(machine.gamma)[0])
    a = np.ravel(machine.dual_coef_)
    f = np.exp(-gamma * squared_distances(Z, Z[rows]).T) @ a
    share = np.where(v > 0, v, np.inf)[rows]
    rest = np.where(v[rows] > 0, f + float(np.ravel(machine.alpha)[0]) * a[rows] / share - y[rows], 0.0)
    own = np.ravel(machine.predict(_safe_indexing(X, rows))) - f
    return float(max(np.max(np.abs(rest), initial=0.0), np.max(np.abs(own), initial=0.0)))


def _dense(array: Any) -> np.ndarray:
    return array.toarray() if sp.issparse(array) else np.asarray(array)
