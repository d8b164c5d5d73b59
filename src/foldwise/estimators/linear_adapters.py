"""scikit-learn's linear machines as our models.

Machines of LIBLINEAR penalise their intercept, which is the weight of a column of ``intercept_scaling``. Where the loss
has corners, or the penalty has an L1 part, that column is one of the features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge, RidgeClassifier
from sklearn.svm import LinearSVC, LinearSVR

from foldwise.criteria import own_criterion
from foldwise.estimators.balance import balances
from foldwise.estimators.encoding import encode_class_weight
from foldwise.estimators.tunable import Tunable
from foldwise.losses import (
    EpsilonInsensitive,
    Hinge,
    Logistic,
    Loss,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.models.base import Role
from foldwise.models.linear import LinearModel

__all__ = ["describe_lasso", "describe_logistic", "describe_ridge", "describe_svc", "describe_svr"]


def _liblinear_penalty(machine: Any) -> float:
    """Penalty of LIBLINEAR's intercept."""
    return 1.0 / machine.intercept_scaling**2 if machine.fit_intercept else 0.0


def _liblinear(machine: Any, loss: Loss, l1_ratio: float = 0.0) -> dict[str, Any]:
    """How the intercept of a LIBLINEAR machine enters its model."""
    if not (loss.polyhedral or l1_ratio):
        return {"fit_intercept": machine.fit_intercept, "intercept_penalty": _liblinear_penalty(machine)}
    constant = float(machine.intercept_scaling) if machine.fit_intercept else 0.0
    return {"fit_intercept": False, "constant": constant, "l1_ratio": l1_ratio}


def describe_svr(machine: LinearSVR) -> Tunable:
    losses: dict[str, Loss] = {
        "epsilon_insensitive": EpsilonInsensitive(),
        "squared_epsilon_insensitive": SquaredEpsilonInsensitive(),
    }
    if machine.loss not in losses:
        raise ValueError(
            f"scikit-learn's LinearSVR(loss={machine.loss!r}) cannot be tuned; set loss='epsilon_insensitive' or "
            "'squared_epsilon_insensitive'"
        )
    loss, roles = losses[machine.loss], {"C": Role("log_c"), "epsilon": Role("epsilon")}

    def build(classes: Any, d: int) -> LinearModel:
        values = {"C": machine.C, "epsilon": machine.epsilon}
        return LinearModel(loss, roles, values, **_liblinear(machine, loss))

    return Tunable(machine, "regression", build, tuple(roles), tuple(roles))


def describe_svc(machine: LinearSVC) -> Tunable:
    losses: dict[tuple[str, str], Loss] = {
        ("squared_hinge", "l2"): SquaredHinge(),
        ("squared_hinge", "l1"): SquaredHinge(),
        ("hinge", "l2"): Hinge(),
    }
    if (machine.loss, machine.penalty) not in losses or machine.multi_class != "ovr":
        raise ValueError(
            f"scikit-learn's LinearSVC(loss={machine.loss!r}, penalty={machine.penalty!r}, "
            f"multi_class={machine.multi_class!r}) cannot be tuned; it needs loss='squared_hinge' with penalty 'l2' or "
            "'l1', or loss='hinge' with penalty='l2', and multi_class='ovr'; foldwise.LinearSVC has loss='hinge' and "
            "penalty='l1'"
        )
    loss = losses[machine.loss, machine.penalty]

    def build(classes: Any, d: int) -> LinearModel:
        return LinearModel(
            loss,
            {"C": Role("log_c")},
            {"C": machine.C},
            class_weight=encode_class_weight(machine.class_weight, classes),
            class_weight_rule="positive",
            balances=balances(machine),
            **_liblinear(machine, loss, float(machine.penalty == "l1")),
        )

    return Tunable(machine, "classification", build, ("C",), ("C",))


BOX = {"box": Role("box"), "box_lower": Role("box_lower")}
NOT_NEGATIVE = {"box": np.inf, "box_lower": 0.0}


def describe_ridge(machine: Ridge | RidgeClassifier) -> Tunable:
    classes_too = isinstance(machine, RidgeClassifier)
    roles = {"alpha": Role("log_lam", factor=2.0), **(BOX if machine.positive else {})}
    values = {"alpha": machine.alpha, **(NOT_NEGATIVE if machine.positive else {})}

    def build(classes: Any, d: int) -> LinearModel:
        weights = encode_class_weight(machine.class_weight, classes) if classes_too else None
        return LinearModel(
            Squared(), roles, values, machine.fit_intercept, class_weight=weights, balances=balances(machine)
        )

    task = "classification" if classes_too else "regression"
    outputs = "one" if classes_too else "several"
    return Tunable(machine, task, build, ("alpha",), ("alpha",), outputs=outputs)


def describe_lasso(machine: Lasso | ElasticNet) -> Tunable:
    roles = {"alpha": Role("log_lam")}
    if not isinstance(machine, Lasso):
        roles["l1_ratio"] = Role("l1_ratio")
    names = tuple(roles)
    roles |= BOX if machine.positive else {}

    def build(classes: Any, d: int) -> LinearModel:
        ratio = 1.0 if isinstance(machine, Lasso) else float(machine.l1_ratio)
        values = {"alpha": machine.alpha, "l1_ratio": ratio, **(NOT_NEGATIVE if machine.positive else {})}
        return LinearModel(Squared(), roles, values, machine.fit_intercept, l1_ratio=ratio, averages=0.5)

    return Tunable(machine, "regression", build, names, names, outputs="several")


def _l1_ratio(machine: LogisticRegression) -> float:
    """The share of the L1 norm; a machine without penalty is refused."""
    penalty, ratio = getattr(machine, "penalty", "deprecated"), getattr(machine, "l1_ratio", None)
    if penalty is None:
        raise ValueError(
            "LogisticRegression(penalty=None) has nothing to tune; leave penalty out, and C is tuned"
        )
    if penalty in ("deprecated", "elasticnet"):
        return float(ratio or 0.0)
    return float(penalty == "l1")


def describe_logistic(machine: LogisticRegression) -> Tunable:
    ratio = _l1_ratio(machine)
    joint = getattr(machine, "multi_class", "deprecated")
    if joint not in ("deprecated", "auto", "ovr"):
        raise ValueError(
            f"LogisticRegression(multi_class={joint!r}) cannot be tuned: it penalises two classes twice; leave "
            "multi_class out, more classes are trained together all the same"
        )
    names: tuple[str, ...] = ("C",)
    if machine.solver == "saga" and getattr(machine, "penalty", "deprecated") in ("deprecated", "elasticnet"):
        names = ("C", "l1_ratio")
    default = names if ratio else ("C",)
    roles = {"C": Role("log_c"), **({"l1_ratio": Role("l1_ratio")} if len(names) > 1 else {})}

    def build(classes: Any, d: int) -> LinearModel:
        form: dict[str, Any] = {"fit_intercept": machine.fit_intercept, "l1_ratio": ratio}
        if machine.solver == "liblinear":
            form = _liblinear(machine, Logistic(), ratio)
        return LinearModel(
            Logistic(),
            roles,
            {"C": machine.C, "l1_ratio": ratio},
            class_weight=encode_class_weight(machine.class_weight, classes),
            balances=balances(machine),
            joint=len(classes) > 2 and joint != "ovr" and machine.solver != "liblinear",
            **form,
        )

    criterion = own_criterion(Logistic())
    return Tunable(machine, "classification", build, names, default, own_criterion=criterion)
