r"""Whether a fitted machine of ours solves its training problem: its optimality conditions, from their formulas.

Nothing here shares code with our losses, problems and solvers. What is known of a machine is its parameters, what a fit
sets (``coef_``, ``intercept_``, ``dual_coef_``, ...) and its kernel as a function of rows.

A machine is optimal when there are slopes ``s_j``, each in the subdifferential of the loss at ``z_j``, with

=================  ==========================================================================================
linear             ``lam_d w_d + nu (w_d - w0_d) + sum_j c_j s_j x_jd = 0``; at a bound of ``w_d`` a sign is enough, at
                   a weight of 0 with an l1 penalty a size
kernel             ``alpha_j = -c_j s_j``
intercept          ``sum_j c_j s_j = 0``
basis functions    ``sum_j c_j s_j psi_k(x_j) = 0`` for each of them
=================  ==========================================================================================

where ``c_j`` is ``C`` times the weights of the row and of its class. Smooth losses have one slope. Of the hinge and the
tube a kernel machine shows its slopes; those of a linear one are found by a linear program, and any that fit are proof.

Each equation is relative to the sum of the sizes of its terms, columns without their means where there is an intercept,
so neither the units of columns nor their distance from zero matter. What double precision in ``coef_`` or
``dual_coef_`` leaves open of a decision is not held against a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog
from scipy.spatial.distance import cdist
from scipy.special import expit
from sklearn.base import is_classifier

__all__ = ["optimality"]

ROUNDING = 8.0 * np.finfo(float).eps
"""Relative error of a sum of products in double precision."""
TINY = np.finfo(float).tiny
SHARP = 1e-9
"""Share of the range of decisions to which those of a linear machine with a smooth loss are taken as they are."""
REACHES = (0.0, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""How near to a corner of the loss or of the box counts as on it, tried in turn; a violation is at least that."""


def optimality(
    model: Any, X: Any, y: Any, sample_weight: Any = None, sample_groups: Any = None, basis: Any = None
) -> float:
    """The relative violation of the optimality conditions of a machine's training problem.

    Parameters
    ----------
    model : LinearSVC, LinearSVR, KernelSVC, KernelSVR or SemiparametricSVR
        Fitted to the rows that follow.
    X, y, sample_weight, sample_groups
        What ``fit`` was given.
    basis : ndarray, optional
        Columns of the basis functions on the rows, instead of those that the model makes itself.

    Returns
    -------
    float
        About 1e-10 or less where the problem is solved to rounding; with several classes the largest of all machines.

    Examples
    --------
    >>> import numpy as np
    >>> from foldwise import LinearSVC
    >>> from foldwise.testing import optimality
    >>> X = np.random.default_rng(0).normal(size=(40, 2))
    >>> model = LinearSVC("hinge").fit(X, X[:, 0] > 0.3)
    >>> optimality(model, X, X[:, 0] > 0.3) < 1e-9
    True
    >>> model.coef_ *= 1.001
    >>> optimality(model, X, X[:, 0] > 0.3) > 1e-5
    True
    """
    rows = X.toarray() if sp.issparse(X) else np.asarray(X, float)
    y = np.asarray(y)
    v = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
    group = np.zeros(len(y), int)
    if sample_groups is not None:
        group = np.unique(np.asarray(sample_groups), return_inverse=True)[1]
    classes = getattr(model, "classes_", None)
    if classes is None:
        targets = [y.astype(float)]
    else:
        v = v * _class_weights(model, y, v)
        positive = classes[1:] if len(classes) == 2 else classes
        targets = [np.where(y == label, 1.0, -1.0) for label in positive]
    psi = _basis_columns(model, X, basis)
    worst = 0.0
    for k, target in enumerate(targets):
        c = v * _by_row(model.C, group, k, len(targets))
        loss = _training_loss(model, group)
        if _is_linear(model):
            worst = max(worst, _linear(model, k, rows, target, c, loss))
        else:
            worst = max(worst, _kernel(model, k, rows, target, c, loss, psi))
    return worst


def _is_linear(model: Any) -> bool:
    """Whether a fitted machine has one weight per feature."""
    return "coef_" in vars(model)


def _class_weights(model: Any, y: np.ndarray, v: np.ndarray) -> np.ndarray:
    """What ``class_weight`` makes each row count; "balanced" gives every class the same total weight."""
    spec = model.class_weight
    if spec is None:
        return np.ones(len(y))
    labels = model.classes_.tolist()
    if isinstance(spec, dict):
        own = {label: float(spec.get(label, 1.0)) for label in labels}
    else:
        own = {label: v.sum() / (len(labels) * v[y == label].sum()) for label in labels}
    return np.array([own[label] for label in y.tolist()])


def _by_row(value: Any, group: np.ndarray, k: int, machines: int) -> np.ndarray:
    """A parameter for every row: one number, one per group of rows or, of machine ``k``, one per class."""
    given = np.asarray(value, float)
    if given.ndim == 0:
        return np.full(len(group), float(given))
    if group.max(initial=0) == 0 and len(given) == machines > 1:
        return np.full(len(group), given[k])
    return given[group]


def _basis_columns(model: Any, X: Any, given: Any) -> np.ndarray | None:
    """Columns of the basis functions, None where a machine has none; a constant that was added is not among them."""
    if "basis_coef_" not in vars(model):
        return None
    count = len(model.basis_coef_) - int(model.constant_added_)
    if given is None:
        plain = X.toarray() if sp.issparse(X) else X
        given = model.basis if model.basis_ is None else model.basis_.transform(plain)
    return np.asarray(given, float).reshape(np.shape(X)[0], count)


# Losses: values of the one-sided derivative.


@dataclass(frozen=True)
class _TrainingLoss:
    """The derivative of a convex loss in the decision: ``slope(z, y, side)``, to the left (-1) or right (+1)."""

    slope: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
    corners: bool = False


def _training_loss(model: Any, group: np.ndarray) -> _TrainingLoss:
    """The loss that a machine is trained with, by its name or as an object with parameters of its own.

    A loss of somebody else has no other formula than its own: its ``grad`` or, with corners, its ``pieces``.
    """
    spec: Any = getattr(model, "loss", "epsilon_insensitive")
    name = spec if isinstance(spec, str) else _snake(type(spec).__name__)
    tube = getattr(model if isinstance(spec, str) else spec, "epsilon", 0.0)
    if name in ("epsilon_insensitive", "squared_epsilon_insensitive"):
        epsilon = _by_row(tube, group, 0, 1)
        if name == "epsilon_insensitive":
            return _TrainingLoss(lambda z, y, side: _tube(z - y, epsilon, side), corners=True)
        return _TrainingLoss(lambda z, y, side: 2 * (z - y - np.clip(z - y, -epsilon, epsilon)))
    if name == "hinge":
        # max(0, 1 - y z) rises for y = -1 from z = -1 on, and falls for y = 1 up to z = 1.
        return _TrainingLoss(lambda z, y, side: 0.5 * (_step(z - y, side) * 2 - 1 - y), corners=True)
    if name == "pinball":
        quantile = getattr(spec, "quantile", 0.5)
        return _TrainingLoss(lambda z, y, side: _step(z - y, side) - quantile, corners=True)
    delta = getattr(spec, "delta", 1.35)
    mu, s = getattr(spec, "mu", 12.0), getattr(spec, "s", 1.0)
    band = getattr(spec, "epsilon", 0.125 if _is_linear(model) else 0.5)
    smooth: dict[str, Callable[[np.ndarray, np.ndarray, int], np.ndarray]] = {
        "squared": lambda z, y, side: 2 * (z - y),
        "huber": lambda z, y, side: np.clip(z - y, -delta, delta),
        "squared_hinge": lambda z, y, side: -2 * y * np.clip(1 - y * z, 0, None),
        "modified_huber": lambda z, y, side: -2 * y * np.clip(1 - y * z, 0, 2),
        "logistic": lambda z, y, side: -y * expit(-s * y * z),
        "modified_log_hinge": lambda z, y, side: -y * expit(-mu * (y * z - 1)),
        "quartic_hinge": lambda z, y, side: -y * _quartic(np.clip((y * z - 1) / band, -1, 1)),
    }
    if name in smooth:
        return _TrainingLoss(smooth[name])
    if not spec.convex:
        raise ValueError(
            f"{spec!r} is not convex, so conditions on its slopes prove no minimum; use a convex loss"
        )
    if spec.polyhedral:
        return _TrainingLoss(lambda z, y, side: _steepest(spec.pieces(y), z, side), corners=True)
    return _TrainingLoss(lambda z, y, side: spec.grad(z, y))


def _steepest(pieces: Sequence[tuple[np.ndarray, np.ndarray]], z: np.ndarray, side: int) -> np.ndarray:
    """The slope of ``max_i (k_i z + c_i)`` to the left or right: the least or largest of the pieces that reach it."""
    slopes = np.stack([np.broadcast_to(k, z.shape) for k, _ in pieces])
    lines = np.stack([k * z + c for k, c in pieces])
    reach = lines >= lines.max(axis=0)
    return np.max(np.where(reach, side * slopes, -np.inf), axis=0) * side


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _step(t: np.ndarray, side: int) -> np.ndarray:
    """The slope of ``max(0, t)``."""
    return (t >= 0 if side > 0 else t > 0).astype(float)


def _tube(r: np.ndarray, epsilon: np.ndarray, side: int) -> np.ndarray:
    """The slope of ``max(0, |r| - epsilon)``, the sum of two ramps."""
    return _step(r - epsilon, side) - _step(-r - epsilon, -side)


def _quartic(t: np.ndarray) -> np.ndarray:
    """The share of the hinge's slope inside the band, ``t`` from -1 to 1: it falls from 1 to 0 with flat ends."""
    return (1 - t) ** 2 * (2 + t) / 4


def _slopes(
    loss: _TrainingLoss, z: np.ndarray, y: np.ndarray, slack: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest slope at decisions within ``slack`` of ``z``: a convex loss has increasing ones."""
    return loss.slope(z - slack, y, -1), loss.slope(z + slack, y, 1)


def _decision_unit(z: np.ndarray, y: np.ndarray, c: np.ndarray, sizes: np.ndarray, classes: bool) -> float:
    """What differences of decisions are relative to: their own range, at most the margin or the range of the target.

    Where their own range is below a ten-thousandth of that, or of the terms that they are sums of, it counts as much: a
    function that is constant may be so to rounding only.
    """
    used = c > 0
    if not np.any(used):
        return 0.0
    most = 1.0 if classes else float(np.ptp(y[used]))
    return max(min(most, float(np.ptp(z[used]))), 1e-4 * max(most, float(np.max(sizes[used]))))


def _tried(violation: Callable[[float], float], corners: bool) -> float:
    """The least violation over all reaches; one without reach is enough where nothing has corners."""
    best = np.inf
    for reach in REACHES:
        found = violation(reach)
        best = min(best, max(found, reach))
        if found <= max(reach, 1e-10) or not corners:
            break
    return best


# Linear machines.


@dataclass(frozen=True)
class _Balance:
    """Equations ``pull + columns' (c s) = 0``, each up to what is allowed ``above`` and ``below`` zero.

    Attributes
    ----------
    columns : ndarray, shape (n, m)
    rough : ndarray, shape (n, m)
        What the columns were computed from; rounding is relative to that.
    pull, size : ndarray, shape (m,)
        The terms without rows: their sum, and the sum of their sizes.
    above, below : ndarray, shape (m,)
    unsure : ndarray, shape (m,)
        How far ``pull`` may be off, since weights are rounded.
    c : ndarray, shape (n,)
    """

    columns: np.ndarray
    rough: np.ndarray
    pull: np.ndarray
    size: np.ndarray
    unsure: np.ndarray
    above: np.ndarray
    below: np.ndarray
    c: np.ndarray

    def parts(self, s: np.ndarray) -> np.ndarray:
        """Sizes of the terms of every equation."""
        return self.size + (self.c * np.abs(s)) @ np.abs(self.columns)

    def violation(self, s: np.ndarray, width: np.ndarray) -> float:
        """The largest relative violation with slopes ``s``, each known up to ``width``."""
        g = self.pull + (self.c * s) @ self.columns
        unknown = (self.c * width) @ np.abs(self.columns)
        unknown += self.unsure + ROUNDING * (self.size + (self.c * np.abs(s)) @ self.rough)
        excess = np.maximum(g - self.above, -g - self.below) - unknown
        return float(np.max(np.maximum(excess, 0) / np.maximum(self.parts(s), TINY), initial=0.0))


def _linear(model: Any, k: int, X: np.ndarray, y: np.ndarray, c: np.ndarray, loss: _TrainingLoss) -> float:
    """The violation of linear machine ``k``."""
    classes = is_classifier(model)
    w = np.atleast_2d(model.coef_)[k]
    b = float(np.ravel(model.intercept_)[k])
    d = len(w)
    if not model.fit_intercept and b != 0:
        return np.inf
    z = X @ w + b
    rounding = ROUNDING * (np.abs(X) @ np.abs(w) + abs(b) + np.abs(y))
    # 1. Columns without their means, and one of ones for the intercept.
    columns, rough = X, np.abs(X)
    if model.fit_intercept:
        columns = X - (c @ X) / max(c.sum(), TINY)
    unit = _decision_unit(z, y, c, np.abs(columns) @ np.abs(w), classes)
    if model.fit_intercept:
        columns, rough = (np.column_stack([part, np.ones(len(X))]) for part in (columns, rough))
    # 2. The penalty.
    lam = np.broadcast_to(np.asarray(model.lam, float), (d,))
    share = {"l2": 0.0, "l1": 1.0, "elasticnet": float(model.l1_ratio)}[model.penalty]
    near = 0.0 if model.reference is None else float(model.proximity)
    reference = np.zeros(d) if model.reference is None else np.asarray(model.reference, float)
    pull = lam * (1 - share) * w + near * (w - reference)
    size = lam * (1 - share) * np.abs(w) + near * (np.abs(w) + np.abs(reference))
    # 3. The box.
    upper, lower = _box(model, d)
    spread = np.sqrt(np.mean((X - X.mean(axis=0)) ** 2, axis=0)) if model.fit_intercept else _root_mean(X)
    seen = spread > 1e-290
    effect, blur = np.full(d, np.inf), np.zeros(d)
    effect[seen] = unit / spread[seen]  # a change of the weight that changes decisions by their unit,
    blur[seen] = np.min(rounding) / spread[seen]  # and one that they cannot show
    outside = np.maximum(w - upper, lower - w) - np.maximum(ROUNDING * np.abs(w), blur)
    beyond = float(np.max(np.maximum(outside, 0) / np.maximum(np.abs(w), TINY), initial=0.0))

    def violation(reach: float) -> float:
        above, below = np.zeros(d), np.zeros(d)
        zero = _near(w, np.zeros(d), reach, effect, blur)
        signs = np.where(zero, 0.0, lam * share * np.sign(w))
        above[zero] = below[zero] = (lam * share)[zero]
        above[_near(w, lower, reach, effect, blur)] = np.inf
        below[_near(w, upper, reach, effect, blur)] = np.inf
        more = columns.shape[1] - d
        balance = _Balance(
            columns,
            rough,
            np.append(pull + signs, np.zeros(more)),
            np.append(size + np.abs(signs), np.zeros(more)),
            np.append((lam * (1 - share) + near) * blur, np.zeros(more)),
            np.append(above, np.zeros(more)),
            np.append(below, np.zeros(more)),
            c,
        )
        if not loss.corners:
            low, high = _slopes(loss, z, y, rounding + SHARP * unit)
            return balance.violation(loss.slope(z, y, 1), 0.5 * (high - low))
        low, high = _slopes(loss, z, y, rounding + reach * unit)
        return _witness(balance, low, high)

    boxed = bool(np.any(np.isfinite(upper)) or np.any(np.isfinite(lower)))
    return max(beyond, _tried(violation, loss.corners or boxed or share > 0))


def _root_mean(X: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(X**2, axis=0))


def _box(model: Any, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Upper and lower bounds of the weights; the lower ones are the upper ones' negatives unless given."""
    upper = np.full(d, np.inf) if model.box is None else np.broadcast_to(np.asarray(model.box, float), (d,))
    lower = -upper if model.box_lower is None else np.broadcast_to(np.asarray(model.box_lower, float), (d,))
    return upper, lower


def _near(w: np.ndarray, bound: np.ndarray, reach: float, effect: np.ndarray, blur: np.ndarray) -> np.ndarray:
    """Weights at a bound: up to rounding, or to ``reach`` times themselves and times ``effect``."""
    finite = np.where(np.isfinite(bound), bound, 0.0)
    size = np.maximum(np.abs(w), np.abs(finite))
    rounding = np.maximum(ROUNDING * size, blur)
    return np.isfinite(bound) & (np.abs(w - finite) <= np.maximum(reach * np.minimum(size, effect), rounding))


def _witness(balance: _Balance, low: np.ndarray, high: np.ndarray) -> float:
    """The violation with the best slopes in ``[low, high]`` that linear programs find.

    The program wants fixed sizes of the equations' terms. It begins with those that no choice of slopes changes, and is
    repeated with the ones found; any slopes are proof.
    """
    exact = np.zeros(len(low))
    s = np.clip(0.0, low, high)
    free = (high > low) & (balance.c > 0)
    best = balance.violation(s, exact)
    full = np.maximum(np.abs(low), np.abs(high))
    scale = np.maximum(balance.parts(np.where(free, 0.0, s)), 1e-8 * balance.parts(full))
    row_unit = 1.0
    for _ in range(5):
        if best <= 1e-10 or not np.any(free):
            break
        found = _program(balance, s, free, low, high, scale, row_unit)
        if found is None:
            break
        s = found
        best = min(best, balance.violation(s, exact))
        scale = np.maximum(balance.parts(s), 1e-30 * balance.parts(full))  # numbers that can be divided by
        row_unit = max(float(np.max(np.abs(s[free]))), 1e-12)
    return best


def _program(
    balance: _Balance,
    s: np.ndarray,
    free: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    scale: np.ndarray,
    row_unit: float,
) -> np.ndarray | None:
    """Slopes of the free rows that minimise the largest violation relative to ``scale``; None where that fails."""
    used = scale > 0
    fixed = balance.pull + (balance.c * np.where(free, 0.0, s)) @ balance.columns
    effects = (balance.c[free, None] * balance.columns[free]).T * row_unit
    rows, limits = [], []
    for sign, allowed in ((1.0, balance.above), (-1.0, balance.below)):
        held = used & np.isfinite(allowed)
        rows.append(sign * effects[held] / scale[held, None])
        limits.append((allowed - sign * fixed)[held] / scale[held])
    A = np.vstack(rows)
    if not len(A):
        return s
    bounds = [*zip((low[free] / row_unit).tolist(), (high[free] / row_unit).tolist(), strict=True), (0, None)]
    answer = linprog(
        np.append(np.zeros(A.shape[1]), 1.0),
        np.column_stack([A, -np.ones(len(A))]),
        np.concatenate(limits),
        bounds=bounds,
        method="highs-ds",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if answer.x is None:
        return None
    out = s.copy()
    out[free] = np.clip(answer.x[:-1] * row_unit, low[free], high[free])
    return out


# Kernel machines.


def _kernel_matrix(kernel: Any, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Kernel values of all pairs of rows, distances from differences; rarer kernels by what they compute themselves."""
    name = type(kernel).__name__
    if name == "Sum":
        count = len(kernel.kernels)
        weights = np.full(count, 1 / count) if kernel.weights is None else np.asarray(kernel.weights, float)
        chosen = [None] * count if kernel.columns is None else kernel.columns
        total = np.zeros((len(A), len(B)))
        for part, weight, columns in zip(kernel.kernels, weights, chosen, strict=True):
            own = slice(None) if columns is None else columns
            total += weight * _kernel_matrix(part, A[:, own], B[:, own])
        return total
    if name == "RBF":
        unit = np.sqrt(np.asarray(kernel.gamma, float))
        return np.exp(-cdist(A * unit, B * unit, "sqeuclidean"))
    if name == "Polynomial":
        return (float(kernel.gamma) * (A @ B.T) + float(kernel.coef0)) ** int(kernel.degree)
    return kernel(A, B)


def _kernel(
    model: Any,
    k: int,
    X: np.ndarray,
    y: np.ndarray,
    c: np.ndarray,
    loss: _TrainingLoss,
    psi: np.ndarray | None,
) -> float:
    """The violation of kernel machine ``k``, with or without basis functions."""
    coefficients = model.dual_coef_[k]
    alpha = np.zeros(len(y))
    alpha[model.support_] = coefficients
    K = np.zeros((len(y), 0))
    if len(model.support_):
        K = _kernel_matrix(model.kernel_, X, model.support_vectors_)
    z, sizes = K @ coefficients, np.abs(K) @ np.abs(coefficients)
    columns = np.zeros((len(y), 0)) if psi is None else psi
    if psi is None:
        constant, b = model.fit_intercept, float(np.ravel(model.intercept_)[k])
        if not constant and b != 0:
            return np.inf
    else:
        constant = bool(model.constant_added_)
        beta = model.basis_coef_
        b = float(beta[-1]) if constant else 0.0
        z, sizes = z + psi @ beta[: psi.shape[1]], sizes + np.abs(psi) @ np.abs(beta[: psi.shape[1]])
    z = z + b
    rounding = ROUNDING * (sizes + abs(b) + np.abs(y))
    unit = _decision_unit(z, y, c, sizes, is_classifier(model))
    # 1. Coefficients whose sums are zero.
    rough = np.abs(columns)
    if constant:
        columns = columns - (c @ columns) / max(c.sum(), TINY)
        columns, rough = (np.column_stack([part, np.ones(len(y))]) for part in (columns, rough))
    none = np.zeros(columns.shape[1])
    sums = _Balance(columns, rough, none, none, none, none, none, np.ones(len(y))).violation(
        alpha, np.zeros(len(y))
    )

    # 2. Coefficients that follow from the slopes. Where C is large, a smooth loss is as steep as a corner, and
    # decisions tell of coefficients only what those within reach of them allow.
    def violation(reach: float) -> float:
        low, high = _slopes(loss, z, y, rounding + reach * unit)
        wanted = np.clip(alpha, -c * high, -c * low)
        off = np.abs(alpha - wanted) - ROUNDING * np.abs(wanted)
        most = np.max(np.maximum(np.abs(alpha), np.abs(wanted)), initial=0.0)
        return float(np.max(np.maximum(off, 0), initial=0.0) / max(most, TINY))

    return max(sums, _tried(violation, corners=True))
