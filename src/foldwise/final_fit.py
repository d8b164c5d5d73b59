"""The final fit by scikit-learn's kernel machines: a limit where it might not end, and whether it solved its problem.

A search trains to rounding. scikit-learn's machines may not: LIBSVM keeps kernels in single precision and stops at
errors of ``tol`` whatever the unit of the target is, and distances far from zero lose digits. What is deployed then is
not the machine that was valued, which is measured here on the training rows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR
from sklearn.utils import _safe_indexing

from foldwise.kernels import squared_distances

__all__ = ["MACHINES", "limited", "shortfall"]

MACHINES = (SVC, SVR, KernelRidge)
"""Machines that may be deployed otherwise than a search values them."""

LIMIT, PER_ROW = 10_000_000, 100
"""Iterations after which LIBSVM itself gives up; scikit-learn lets it go on for ever."""
BROKEN = 1e-2
"""Violation of an optimality condition, in units of the margin or of the target's spread, that is worth a warning."""
ROWS = 2_000
"""Rows that are looked at."""
EDGE = 1e-8


@contextmanager
def limited(machine: Any, n: int) -> Iterator[None]:
    """LIBSVM's own limit of iterations for a fit to ``n`` rows, where the user sets none."""
    free = isinstance(machine, (SVC, SVR)) and machine.max_iter == -1
    if free:
        machine.max_iter = max(LIMIT, PER_ROW * n)
    try:
        yield
    finally:
        if free:
            machine.max_iter = -1


def shortfall(machine: Any, X: Any, y: Any, weight: Any) -> str:
    """A sentence where a fitted machine of scikit-learn did not solve its problem; "" where it did.

    Parameters
    ----------
    machine : one of MACHINES
    X, y, weight
        What it was fitted to.
    """
    y = np.ravel(np.asarray(y))
    X = X.tocsr() if sp.issparse(X) else X if hasattr(X, "iloc") else np.asarray(X)
    n = len(y)
    rows = np.arange(0, n, max(1, -(-n // ROWS)))
    v = np.ones(n) if weight is None else np.broadcast_to(np.asarray(weight, float), n)
    name = type(machine).__name__
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
    return np.flatnonzero(v > 0)[machine.support_] if np.any(v == 0) else machine.support_


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
