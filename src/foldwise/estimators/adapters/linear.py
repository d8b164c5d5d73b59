"""Linear models that can be tuned: ours, and scikit-learn's LinearSVC, LinearSVR, Ridge, LogisticRegression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.svm import LinearSVR as SkLinearSVR

from foldwise import estimators
from foldwise.criteria import own_criterion
from foldwise.estimators.adapters.balance import balances
from foldwise.estimators.adapters.tunable import Tunable
from foldwise.estimators.encoding import encode_class_weight
from foldwise.losses import (
    Logistic,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    typical_curvature,
)
from foldwise.models.base import Role
from foldwise.models.linear import LinearModel
from foldwise.problems.parameters import BOX
from foldwise.space import Dimension, Lin, Log

__all__ = ["BUILDERS", "default_dimension"]


def default_dimension(
    name: str,
    model: LinearModel,
    spec: Any,
    second_moment: np.ndarray,
    spread: float,
    grouped: bool,
    row_moment: float | None = None,
    mass: float = 1.0,
) -> Dimension:
    """Bounds from the data for a hyper-parameter that the user named without bounds.

    ``second_moment`` is the sum over a fold's training rows of each squared (centred, scaled) column and ``spread`` the
    standard deviation of the target. At ``C = 1 / (curvature * second moment)`` a coefficient is shrunk by half. The
    lower bound lies three decades below that point for the largest column, the upper five above it for a small one.

    ``row_moment``, the mean squared norm of a row, is given for wide data (:func:`foldwise.design.is_wide`). There the
    rows are the nearly orthogonal ones: at ``C = 1 / (curvature * row moment)`` a row alone would have half its slack
    closed. The upper bound lies three decades above that point.

    A box ends at five times the weight with which a column alone, of one standard deviation, moves the decision by the
    spread of the target; ``mass`` is the total weight of a training set. It is linear and begins at 0, where it
    deselects the feature. A reference weight may lie within the same bound on both sides.
    """
    role = model.roles[name]
    per = spec if isinstance(spec, str) else ("group" if grouped and "group" in role.per else None)
    positive = second_moment[second_moment > 0] if np.any(second_moment > 0) else np.ones(1)
    bend = typical_curvature(model.loss, spread)
    weak, strong = 1e5 / (bend * np.quantile(positive, 0.1)), 1e-3 / (bend * positive.max())
    if row_moment is not None and row_moment > 0:
        weak = 1e3 / (bend * row_moment)
    if name == "class_weight":
        return Log(0.05, 20.0, per="class")
    if role.kind == "epsilon":
        return Lin(0.0, spread, per=per)
    if role.kind in BOX or role.kind == "reference":
        deviation = np.sqrt(second_moment / mass)
        least = deviation[deviation > 0].min(initial=np.inf)
        widest = 5.0 * spread / np.where(deviation > 0, deviation, least if np.isfinite(least) else 1.0)
        ends = (-widest, np.zeros_like(widest)) if name == "box_lower" else (np.zeros_like(widest), widest)
        ends = (-widest, widest) if role.kind == "reference" else ends
        return Lin(*ends, per="feature")
    if role.kind == "log_near":
        return Log(1e-3, 1e3)
    other = np.asarray(model.values.get("lam" if role.kind == "log_c" else "C", 1.0), float)
    scale = float(np.exp(np.mean(np.log(other))))
    if role.kind == "log_c":
        return Log(strong * scale, weak * scale, per=per)
    return Log(scale / (weak * role.factor), scale / (strong * role.factor), per=per)


def _ours_regression(last, prefix, steps) -> Tunable:
    names = tuple(last._model().roles)
    default = tuple(name for name in ("C", "epsilon") if name in names)
    power = {"C": -1.0, "lam": 1.0, "proximity": 1.0}
    return Tunable(last, prefix, steps, "regression", lambda classes, d: last._model(), names, default, power)


def _ours_classification(last, prefix, steps) -> Tunable:
    power = {"C": -1.0, "lam": 1.0, "proximity": 1.0}
    names = ("C", "lam", "class_weight", *last._options()[0])

    def build(classes, d):
        return last._model(classes)

    criterion = own_criterion(last._loss())
    return Tunable(
        last, prefix, steps, "classification", build, names, ("C",), power, own_criterion=criterion
    )


def _sk_linear_svr(last, prefix, steps) -> Tunable:
    if last.loss != "squared_epsilon_insensitive":
        raise ValueError(
            f"scikit-learn's LinearSVR(loss={last.loss!r}) cannot be tuned: it is not solved exactly; set "
            "loss='squared_epsilon_insensitive', or use foldwise.LinearSVR(loss='epsilon_insensitive')"
        )
    roles = {"C": Role("log_c"), "epsilon": Role("epsilon")}

    def build(classes, d):
        values = {"C": last.C, "epsilon": last.epsilon}
        penalty = 1.0 / last.intercept_scaling**2 if last.fit_intercept else 0.0
        return LinearModel(SquaredEpsilonInsensitive(), roles, values, last.fit_intercept, penalty)

    return Tunable(last, prefix, steps, "regression", build, tuple(roles), tuple(roles), {"C": -1.0})


def _sk_linear_svc(last, prefix, steps) -> Tunable:
    if last.loss != "squared_hinge" or last.penalty != "l2" or last.multi_class != "ovr":
        raise ValueError(
            f"scikit-learn's LinearSVC(loss={last.loss!r}, penalty={last.penalty!r}, multi_class={last.multi_class!r}) "
            "cannot be tuned; it needs loss='squared_hinge', penalty='l2', multi_class='ovr'; "
            "foldwise.LinearSVC has loss='hinge' and penalty='l1'"
        )
    roles = {"C": Role("log_c")}

    def build(classes, d):
        penalty = 1.0 / last.intercept_scaling**2 if last.fit_intercept else 0.0
        weights = encode_class_weight(last.class_weight, classes)
        return LinearModel(
            SquaredHinge(),
            roles,
            {"C": last.C},
            last.fit_intercept,
            penalty,
            weights,
            "positive",
            balances(last),
        )

    return Tunable(last, prefix, steps, "classification", build, ("C",), ("C",), {"C": -1.0})


def _sk_ridge(last, prefix, steps) -> Tunable:
    if last.positive:
        raise ValueError(
            "Ridge(positive=True) cannot be tuned: its coefficients have bounds; use positive=False"
        )
    roles = {"alpha": Role("log_lam", factor=2.0)}

    def build(classes, d):
        return LinearModel(Squared(), roles, {"alpha": last.alpha}, last.fit_intercept)

    return Tunable(last, prefix, steps, "regression", build, ("alpha",), ("alpha",), {"alpha": 1.0})


def _sk_logistic(last, prefix, steps) -> Tunable:
    ratio = getattr(last, "l1_ratio", 0.0)
    penalty = getattr(last, "penalty", "l2")
    if penalty not in ("l2", "deprecated") or ratio not in (None, 0, 0.0):
        raise ValueError(
            f"LogisticRegression(penalty={penalty!r}, l1_ratio={ratio!r}) cannot be tuned; it needs the l2 penalty"
        )
    joint = getattr(last, "multi_class", "deprecated")
    if joint not in ("deprecated", "auto", "ovr"):
        raise ValueError(
            f"LogisticRegression(multi_class={joint!r}) cannot be tuned: it penalises two classes twice; leave "
            "multi_class out"
        )
    roles = {"C": Role("log_c")}

    def build(classes, d):
        scaling = last.intercept_scaling if last.solver == "liblinear" else np.inf
        strength = 1.0 / scaling**2 if last.fit_intercept else 0.0
        weights = encode_class_weight(last.class_weight, classes)
        values = {"C": last.C}
        return LinearModel(
            Logistic(), roles, values, last.fit_intercept, strength, weights, balances=balances(last)
        )

    error = (
        "Only binary classification is supported. The type of the target is multiclass: scikit-learn's "
        "LogisticRegression trains more than two classes jointly, which is not a set of one-against-"
        "the-rest problems; use foldwise.LinearSVC(loss='logistic') for more than two classes"
    )
    return Tunable(
        last,
        prefix,
        steps,
        "classification",
        build,
        ("C",),
        ("C",),
        {"C": -1.0},
        error,
        own_criterion=own_criterion(Logistic()),
    )


BUILDERS: dict[type, Callable[[Any, str, Any], Tunable]] = {
    estimators.LinearSVR: _ours_regression,
    estimators.LinearSVC: _ours_classification,
    SkLinearSVR: _sk_linear_svr,
    SkLinearSVC: _sk_linear_svc,
    Ridge: _sk_ridge,
    LogisticRegression: _sk_logistic,
}
