"""What can be tuned: our estimators and scikit-learn's, described as optimisation problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.svm import LinearSVR as SkLinearSVR

from foldwise import estimators
from foldwise.losses import Logistic, Squared, SquaredEpsilonInsensitive, SquaredHinge
from foldwise.problems.assemble import LinearModel, Role
from foldwise.space import Dimension, Lin, Log

__all__ = ["SUPPORTED", "Tunable", "describe"]

SUPPORTED = (
    "foldwise.LinearSVC, foldwise.LinearSVR, and scikit-learn's LinearSVC (loss='squared_hinge'), "
    "LinearSVR (loss='squared_epsilon_insensitive'), Ridge, LogisticRegression (two classes), "
    "alone or as the last step of a Pipeline"
)


@dataclass(eq=False)
class Tunable:
    """An estimator that can be tuned.

    Attributes
    ----------
    estimator : the last step
    prefix : "" or "<step>__", in front of its parameter names
    steps : the earlier steps as a Pipeline, or None
    task : "regression" or "classification"
    build : callable(classes) -> LinearModel
    default : names tuned when the user gives no space
    refit_power : how a parameter scales when the final model sees ``f`` times the rows: multiplied by ``f^power``
    """

    estimator: BaseEstimator
    prefix: str
    steps: Pipeline | None
    task: str
    build: Callable[[Any], LinearModel]
    names: tuple[str, ...]
    default: tuple[str, ...]
    refit_power: Mapping[str, float] = field(default_factory=dict)
    min_classes_error: str | None = None

    def standardize(self) -> tuple[bool, bool] | str | None:
        """How the earlier steps act: None (there are none), a StandardScaler's two flags, or "general"."""
        if self.steps is None:
            return None
        active = [step for _, step in self.steps.steps if step not in (None, "passthrough")]
        if not active:
            return None
        if len(active) == 1 and type(active[0]) is StandardScaler:
            return bool(active[0].with_mean), bool(active[0].with_std)
        return "general"

    def check_names(self, space: Mapping[str, Any]) -> dict[str, Any]:
        """The space with the prefix taken off; an unknown name is an error that lists the valid ones."""
        out = {}
        for name, spec in space.items():
            bare = name[len(self.prefix) :] if name.startswith(self.prefix) else name
            if not name.startswith(self.prefix) or bare not in self.names:
                valid = ", ".join(self.prefix + n for n in self.names)
                raise ValueError(
                    f"unknown hyper-parameter {name!r} for {type(self.estimator).__name__}; it can tune: {valid}"
                )
            out[bare] = spec
        return out

    def export(self, params: Mapping[str, Any], classes: np.ndarray | None) -> dict[str, Any]:
        """Parameters as the estimator takes them, with the prefix."""
        out = {}
        for name, value in params.items():
            if name == "class_weight":
                assert classes is not None
                value = dict(zip(classes.tolist(), [1.0, *np.atleast_1d(value).tolist()], strict=True))
            out[self.prefix + name] = value
        return out

    def rescaled(self, params: Mapping[str, Any], factor: float) -> dict[str, Any]:
        """Parameters for a model trained on ``factor`` times the rows of a fold (kunapuli2008, section 2)."""
        return {name: value * factor ** self.refit_power.get(name, 0.0) for name, value in params.items()}


def default_dimension(
    name: str, model: LinearModel, spec: Any, second_moment: np.ndarray, spread: float, grouped: bool
) -> Dimension:
    """Bounds from the data for a hyper-parameter that the user named without bounds.

    ``second_moment`` is the sum over a fold's training rows of each squared (centred, scaled) column and ``spread`` the
    standard deviation of the target. At ``C = 1 / (curvature * second moment)`` a coefficient is shrunk by half. The
    lower bound lies three decades below that point for the largest column, the upper five above it for a small one.
    """
    role = model.roles[name]
    per = spec if isinstance(spec, str) else ("group" if grouped and "group" in role.per else None)
    positive = second_moment[second_moment > 0] if np.any(second_moment > 0) else np.ones(1)
    bend = float(model.loss.hess(np.zeros(1), np.ones(1))[0])
    bend = bend if bend > 0.1 else 1.0
    weak, strong = 1e5 / (bend * np.quantile(positive, 0.1)), 1e-3 / (bend * positive.max())
    if name == "class_weight":
        return Log(0.05, 20.0, per="class")
    if role.kind == "epsilon":
        return Lin(0.0, spread, per=per)
    other = np.asarray(model.values.get("lam" if role.kind == "log_c" else "C", 1.0), float)
    scale = float(np.exp(np.mean(np.log(other))))
    if role.kind == "log_c":
        return Log(strong * scale, weak * scale, per=per)
    return Log(scale / (weak * role.factor), scale / (strong * role.factor), per=per)


def describe(estimator: Any) -> Tunable:
    """How to tune this estimator, or an error that names what can be tuned."""
    prefix, steps, last = "", None, estimator
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        prefix = f"{name}__"
        if len(estimator.steps) > 1:
            steps = clone(estimator[:-1])
    for kind, build in _BUILDERS.items():
        if type(last) is kind or (kind.__module__.startswith("foldwise") and isinstance(last, kind)):
            return build(last, prefix, steps)
    got = type(last).__name__ if not isinstance(last, str) else repr(last)
    raise ValueError(f"cannot tune {got}; what can be tuned: {SUPPORTED}")


def _ours_regression(last, prefix, steps) -> Tunable:
    names = tuple(last._model().roles)
    default = tuple(name for name in ("C", "epsilon") if name in names)
    power = {"C": -1.0, "lam": 1.0}
    return Tunable(last, prefix, steps, "regression", lambda classes: last._model(), names, default, power)


def _ours_classification(last, prefix, steps) -> Tunable:
    power = {"C": -1.0, "lam": 1.0}
    names = ("C", "lam", "class_weight")
    return Tunable(last, prefix, steps, "classification", last._model, names, ("C",), power)


def _sk_linear_svr(last, prefix, steps) -> Tunable:
    if last.loss != "squared_epsilon_insensitive":
        raise ValueError(
            f"scikit-learn's LinearSVR(loss={last.loss!r}) has no smooth training problem; "
            "set loss='squared_epsilon_insensitive', or use foldwise.LinearSVR(loss='huber')"
        )
    roles = {"C": Role("log_c"), "epsilon": Role("epsilon")}

    def build(classes):
        values = {"C": last.C, "epsilon": last.epsilon}
        penalty = 1.0 / last.intercept_scaling**2 if last.fit_intercept else 0.0
        return LinearModel(SquaredEpsilonInsensitive(), roles, values, last.fit_intercept, penalty)

    return Tunable(last, prefix, steps, "regression", build, tuple(roles), tuple(roles), {"C": -1.0})


def _sk_linear_svc(last, prefix, steps) -> Tunable:
    if last.loss != "squared_hinge" or last.penalty != "l2" or last.multi_class != "ovr":
        raise ValueError(
            f"scikit-learn's LinearSVC(loss={last.loss!r}, penalty={last.penalty!r}, multi_class={last.multi_class!r}) "
            "cannot be tuned; it needs loss='squared_hinge', penalty='l2', multi_class='ovr'"
        )
    roles = {"C": Role("log_c")}

    def build(classes):
        penalty = 1.0 / last.intercept_scaling**2 if last.fit_intercept else 0.0
        weights = estimators.encode_class_weight(last.class_weight, classes)
        return LinearModel(
            SquaredHinge(), roles, {"C": last.C}, last.fit_intercept, penalty, weights, "positive"
        )

    return Tunable(last, prefix, steps, "classification", build, ("C",), ("C",), {"C": -1.0})


def _sk_ridge(last, prefix, steps) -> Tunable:
    if last.positive:
        raise ValueError(
            "Ridge(positive=True) cannot be tuned: its coefficients have bounds; use positive=False"
        )
    roles = {"alpha": Role("log_lam", factor=2.0)}

    def build(classes):
        return LinearModel(Squared(), roles, {"alpha": last.alpha}, last.fit_intercept)

    return Tunable(last, prefix, steps, "regression", build, ("alpha",), ("alpha",), {"alpha": 1.0})


def _sk_logistic(last, prefix, steps) -> Tunable:
    ratio = getattr(last, "l1_ratio", 0.0)
    penalty = getattr(last, "penalty", "l2")
    if penalty not in ("l2", "deprecated") or ratio not in (None, 0, 0.0):
        raise ValueError(
            f"LogisticRegression(penalty={penalty!r}, l1_ratio={ratio!r}) cannot be tuned; it needs the l2 penalty"
        )
    roles = {"C": Role("log_c")}

    def build(classes):
        scaling = last.intercept_scaling if last.solver == "liblinear" else np.inf
        strength = 1.0 / scaling**2 if last.fit_intercept else 0.0
        weights = estimators.encode_class_weight(last.class_weight, classes)
        return LinearModel(Logistic(), roles, {"C": last.C}, last.fit_intercept, strength, weights)

    error = (
        "scikit-learn's LogisticRegression trains more than two classes jointly, which is not a set of one-against-"
        "the-rest problems; use foldwise.LinearSVC(loss='logistic') for more than two classes"
    )
    return Tunable(last, prefix, steps, "classification", build, ("C",), ("C",), {"C": -1.0}, error)


_BUILDERS: dict[type, Callable[[Any, str, Any], Tunable]] = {
    estimators.LinearSVR: _ours_regression,
    estimators.LinearSVC: _ours_classification,
    SkLinearSVR: _sk_linear_svr,
    SkLinearSVC: _sk_linear_svc,
    Ridge: _sk_ridge,
    LogisticRegression: _sk_logistic,
}
