"""Kernel machines that can be tuned: ours, and scikit-learn's SVC, SVR and KernelRidge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR

from foldwise.criteria import own_criterion
from foldwise.estimators import KernelSVC, KernelSVR, SemiparametricSVR
from foldwise.estimators.adapters.balance import balances
from foldwise.estimators.adapters.tunable import Tunable
from foldwise.estimators.encoding import encode_class_weight
from foldwise.estimators.kernel import as_kernel
from foldwise.kernels import RBF, Kernel, Linear, Polynomial, Precomputed, Sum
from foldwise.losses import EpsilonInsensitive, Hinge, Squared, typical_curvature
from foldwise.models.base import Role
from foldwise.models.kernel import KernelModel, kernel_slots
from foldwise.space import Dimension, Lin, Log

__all__ = ["BUILDERS", "as_often", "kernel_dimension", "kernel_start"]


def kernel_dimension(name: str, model: KernelModel, X: np.ndarray, spread: float, grouped: bool) -> Dimension:
    """Bounds from the data for a hyper-parameter of a kernel machine that has none."""
    role = model.roles[name]
    per = "group" if grouped and "group" in role.per else None
    if name == "class_weight":
        return Log(0.05, 20.0, per="class")
    if role.kind == "epsilon":
        return Lin(0.0, spread, per=per)
    if role.kind == "log_c":
        size = _diagonal(model.kernel, X) / _unit(model, spread)
        low, high = 1e-2 / size, 1e4 / size
        return Log(low, high, per=per) if role.sign > 0 else Log(0.5 / high, 0.5 / low, per=per)
    return Log(*model.kernel.bounds(X)[model.slot_names[name]])


def as_often(X: np.ndarray, weight: np.ndarray | None, model: KernelModel) -> np.ndarray:
    """The rows as often as they weigh, so that bounds and starts do not depend on which way that is said.

    Whole weights are taken as they are, others in tenths of their mean; of many rows a part stands for all.
    """
    if weight is None or len(weight) != len(X) or model.kernel.precomputed:
        return X
    step = max(1, len(X) // 2_000)
    X, weight = X[::step], weight[::step]
    whole = np.all(weight == np.rint(weight)) and weight.sum() <= 20 * len(weight)
    times = weight if whole else np.rint(10.0 * weight / max(weight.mean(), np.finfo(float).tiny))
    return np.repeat(X, times.astype(int), axis=0) if np.any(times > 0) else X


def _diagonal(kernel: Kernel, X: np.ndarray) -> float:
    """Typical ``k(x, x)``."""
    if isinstance(kernel, Precomputed):
        return max(float(np.mean(np.diagonal(X))), 1e-12)
    if isinstance(kernel, Sum):
        return 1.0
    sample = X[:: max(1, len(X) // 100)]
    return max(float(np.mean(kernel.with_parameters(kernel.typical(X)).diagonal(sample))), 1e-12)


def _unit(model: KernelModel, spread: float) -> float:
    """What ``C`` is measured in.

    A loss that grows like the distance bounds coefficients by ``C``, which are in units of the target. One that does so
    beyond some distance, such as Huber's, is steeper by the share of the spread that this is.
    """
    if model.loss.task != "regression":
        return 1.0
    if model.loss.polyhedral:
        return spread
    return max(1.0, 1.0 / typical_curvature(model.loss, spread))


TUBE = 0.1
"""Half width of the tube from which a search starts, in units of the target's spread."""
VALLEYS = ((10.0, 0.25, 1.0), (100.0, 0.06, 1.0))
"""Further points to look at first: factors of C, of widths (of a kernel) and of the tube."""
MORE_VALLEYS = (
    (10.0, 0.25, 1.0),
    (100.0, 0.06, 1.0),
    (10.0, 1.0, 3.0),
    (1.0, 0.25, 3.0),
    (100.0, 0.25, 0.2),
    (1000.0, 0.06, 1.0),
    (3.0, 3.0, 1.0),
)
"""The same for exact machines with a tube, whose error has many local minima."""


def kernel_start(
    model: KernelModel, X: np.ndarray, tuned: Mapping[str, Dimension], spread: float
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Starting values of the tuned hyper-parameters, and a few more points to look at first.

    All lie within the bounds.
    """
    values: dict[str, float] = {}
    typical = model.kernel.typical(X)
    strength = _unit(model, spread) / _diagonal(model.kernel, X)
    for name in tuned:
        role = model.roles[name]
        if role.kind == "log_kernel":
            values[name] = typical[model.slot_names[name]]
        elif role.kind == "log_c" and name != "class_weight":
            values[name] = strength if role.sign > 0 else 0.5 / strength
        elif role.kind == "epsilon":
            values[name] = TUBE * spread
    exact = model.loss.polyhedral and model.loss.task == "regression"
    tubes = [n for n in values if model.roles[n].kind == "epsilon"]
    c_names = [n for n in values if model.roles[n].kind == "log_c"]
    widths = [n for n in values if model.is_width(n)]
    first, points = _within(values, tuned), []
    for more, wider, tube in MORE_VALLEYS if exact else VALLEYS:
        point = dict(values)
        for name in c_names:
            point[name] *= more ** model.roles[name].sign
        for name in widths:
            point[name] *= wider
        for name in tubes:
            point[name] *= tube
        point = _within(point, tuned)
        if point != first and point not in points:
            points.append(point)
    return first, points


def _within(values: dict[str, float], dimensions: Mapping[str, Dimension]) -> dict[str, float]:
    """The values, moved into the bounds; where an entry's bounds differ, into those of the first."""
    out = {}
    for name, value in values.items():
        low, high = (
            np.ravel(np.asarray(b, float))[0] for b in (dimensions[name].lower, dimensions[name].upper)
        )
        out[name] = float(np.clip(value, low, high))
    return out


def _is_linear(kernel: Kernel) -> bool:
    """Whether decisions are linear in the features; a precomputed kernel is taken to be curved."""
    if isinstance(kernel, Sum):
        return all(_is_linear(part) for part in kernel.kernels)
    return isinstance(kernel, Linear) or (isinstance(kernel, Polynomial) and kernel.degree == 1)


def _ours(task: str) -> Callable[[Any, str, Any], Tunable]:
    def build(last, prefix, steps) -> Tunable:
        kernel = as_kernel(last.kernel)
        loss = last._loss()
        own = tuple(f"kernel__{name}" for name in kernel.names())
        names = ("C", *(("epsilon",) if "epsilon" in loss.tunable else ()), *own)
        default = names if "kernel__weights" not in own else tuple(n for n in names if n != "C")
        if task == "classification":
            names = (*names, "class_weight")
        criterion, power = own_criterion(loss, curved=not _is_linear(kernel)), {"C": -1.0}
        return Tunable(
            last,
            prefix,
            steps,
            task,
            last._model,
            names,
            default,
            power,
            kernel=kernel,
            own_criterion=criterion,
        )

    return build


def scale_width(X: Any) -> float:
    """scikit-learn's ``gamma="scale"`` for these training rows: ``1 / (d var X)``, or 1 where ``X`` is constant."""
    if sp.issparse(X):
        variance = float(X.multiply(X).mean() - X.mean() ** 2)
    else:
        variance = float(np.asarray(X, float).var())
    return 1.0 / (X.shape[1] * variance) if variance != 0 else 1.0


def _sk_gamma(last, d: int) -> float:
    """The ``gamma`` of scikit-learn's machine on ``d`` columns; 1 where it is "scale", of which each fold has its own.

    What scikit-learn would refuse is not looked at: it does so in the rehearsal, unless ``gamma`` is tuned.
    """
    if isinstance(last.gamma, Real):
        return float(last.gamma)
    return 1.0 if isinstance(last.gamma, str) and last.gamma != "auto" else 1.0 / d


def _sk_kernel(last, gamma: float = 1.0) -> Kernel:
    """Our kernel for scikit-learn's names."""
    if callable(last.kernel):
        raise ValueError(
            f"{type(last).__name__} with a callable as kernel cannot be tuned; use 'rbf', 'linear', 'poly', "
            "'precomputed' with its matrix, or foldwise.KernelSVC or KernelSVR with a Kernel of your own"
        )
    if last.kernel == "rbf":
        return RBF(gamma)
    if last.kernel == "linear":
        return Linear()
    if last.kernel in ("poly", "polynomial"):
        whole = isinstance(last.degree, Real) and float(last.degree).is_integer()
        return Polynomial(int(last.degree) if whole else last.degree, gamma, last.coef0)
    if last.kernel == "precomputed":
        return Precomputed()
    raise ValueError(
        f"{type(last).__name__}(kernel={last.kernel!r}) cannot be tuned; use kernel 'rbf', 'linear', 'poly' or "
        "'precomputed', or foldwise.KernelSVC or KernelSVR with a Kernel object"
    )


def _sk_machine(
    last, prefix, steps, task: str, loss, c_name: str, roles: dict[str, Role], values, options
) -> Tunable:
    kernel = _sk_kernel(last)
    own = {name: Role("log_kernel") for name in kernel.names()}
    # coef0 is 0 by default, off a log scale; it is tuned only when asked for.
    default = (*roles, *(name for name in own if name != "coef0"))

    scaled = "gamma" in own and isinstance(last.gamma, str) and last.gamma == "scale"

    def build(classes, d):
        weights = encode_class_weight(options.get("class_weight"), classes) if classes is not None else None
        given = _sk_kernel(last, _sk_gamma(last, d)) if "gamma" in own else kernel
        fixed = given.parameters(d)
        return KernelModel(
            loss,
            given,
            {**roles, **own},
            {**values, **fixed},
            {name: name for name in own},
            options["intercept"],
            weights,
            multiclass="ovo",
            balances=balances(last),
            by_fold={"gamma": scale_width} if scaled else {},
            machine=last if isinstance(last, (SVC, SVR)) else None,
        )

    power = {c_name: -1.0 if c_name == "C" else 1.0}
    criterion = own_criterion(loss, curved=not _is_linear(kernel))
    return Tunable(last, prefix, steps, task, build, (*roles, *own), default, power, own_criterion=criterion)


def _svc(last, prefix, steps) -> Tunable:
    options = {"intercept": True, "class_weight": last.class_weight}
    roles = {"C": Role("log_c")}
    return _sk_machine(last, prefix, steps, "classification", Hinge(), "C", roles, {"C": last.C}, options)


def _svr(last, prefix, steps) -> Tunable:
    roles = {"C": Role("log_c"), "epsilon": Role("epsilon")}
    values = {"C": last.C, "epsilon": last.epsilon}
    options = {"intercept": True}
    return _sk_machine(last, prefix, steps, "regression", EpsilonInsensitive(), "C", roles, values, options)


def _kernel_ridge(last, prefix, steps) -> Tunable:
    # (K + alpha I) a = y is 1/2 |f|^2 + C sum r^2 with alpha = 1 / (2 C).
    roles = {"alpha": Role("log_c", factor=0.5, sign=-1.0)}
    options = {"intercept": False}
    return _sk_machine(
        last, prefix, steps, "regression", Squared(), "alpha", roles, {"alpha": last.alpha}, options
    )


BUILDERS: dict[type, Callable[[Any, str, Any], Tunable]] = {
    KernelSVC: _ours("classification"),
    KernelSVR: _ours("regression"),
    SemiparametricSVR: _ours("regression"),
    SVC: _svc,
    SVR: _svr,
    KernelRidge: _kernel_ridge,
}


def slot_sizes(model: KernelModel, d: int) -> dict[str, int]:
    """Number of values of every kernel hyper-parameter."""
    return {name: part.stop - part.start for name, part in kernel_slots(model, d).items()}
