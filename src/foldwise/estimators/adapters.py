"""What can be tuned: our estimators, which describe themselves, and scikit-learn's machines as our models.

``ADAPTERS`` has one entry for every machine of scikit-learn: how it is described, and what its settings must be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from foldwise import estimators
from foldwise.arguments import check_arguments
from foldwise.criteria import own_criterion
from foldwise.estimators.balance import balances
from foldwise.estimators.encoding import encode_class_weight
from foldwise.estimators.tunable import Tunable
from foldwise.kernels import RBF, Kernel, Linear, Polynomial, Precomputed
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
from foldwise.models.kernel import KernelModel
from foldwise.models.linear import LinearModel

__all__ = ["ADAPTERS", "OURS", "Adapter", "describe", "scale_width", "supported"]

OURS: tuple[type, ...] = tuple(getattr(estimators, name) for name in estimators.__all__)
"""Estimators of this package; classes that extend them can be tuned as well."""


@dataclass(frozen=True)
class Adapter:
    """How one of scikit-learn's machines is tuned.

    Attributes
    ----------
    describe : callable(machine) -> Tunable
        An error where its settings do not allow it.
    needs : its settings that are not the default, or limits, in a few words; "" for none
    """

    describe: Callable[[Any], Tunable]
    needs: str = ""


def describe(estimator: Any) -> Tunable:
    """How to tune this estimator, or an error that names what can be tuned."""
    prefix, steps, last = "", None, estimator
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        prefix = f"{name}__"
        if len(estimator.steps) > 1:
            steps = clone(estimator[:-1])
    if isinstance(last, OURS):
        machine: Any = last
        check_arguments(machine)
        return replace(machine._tunable(), prefix=prefix, steps=steps)
    if type(last) in ADAPTERS:
        return replace(ADAPTERS[type(last)].describe(last), prefix=prefix, steps=steps)
    if isinstance(last, type):
        raise ValueError(f"cannot tune the class {last.__name__} itself; give an object: {last.__name__}()")
    got = type(last).__name__ if not isinstance(last, str) else repr(last)
    raise ValueError(f"cannot tune {got}; what can be tuned: {supported()}")


def supported() -> str:
    """Everything that can be tuned, in words."""
    ours = ", ".join(kind.__name__ for kind in OURS)
    theirs = [
        kind.__name__ + (f" ({adapter.needs})" if adapter.needs else "") for kind, adapter in ADAPTERS.items()
    ]
    return f"foldwise.{ours}, and scikit-learn's {', '.join(theirs)}, alone or as the last step of a Pipeline"


# Linear machines


def _liblinear_penalty(machine: Any) -> float:
    """Penalty of LIBLINEAR's intercept, which it takes for the weight of a column of ``intercept_scaling``."""
    return 1.0 / machine.intercept_scaling**2 if machine.fit_intercept else 0.0


def _linear_svr(machine: LinearSVR) -> Tunable:
    if machine.loss != "squared_epsilon_insensitive":
        raise ValueError(
            f"scikit-learn's LinearSVR(loss={machine.loss!r}) cannot be tuned: it is not solved exactly; set "
            "loss='squared_epsilon_insensitive', or use foldwise.LinearSVR(loss='epsilon_insensitive')"
        )
    roles = {"C": Role("log_c"), "epsilon": Role("epsilon")}

    def build(classes: Any, d: int) -> LinearModel:
        values = {"C": machine.C, "epsilon": machine.epsilon}
        penalty = _liblinear_penalty(machine)
        return LinearModel(SquaredEpsilonInsensitive(), roles, values, machine.fit_intercept, penalty)

    return Tunable(machine, "regression", build, tuple(roles), tuple(roles))


def _linear_svc(machine: LinearSVC) -> Tunable:
    if machine.loss != "squared_hinge" or machine.penalty != "l2" or machine.multi_class != "ovr":
        raise ValueError(
            f"scikit-learn's LinearSVC(loss={machine.loss!r}, penalty={machine.penalty!r}, "
            f"multi_class={machine.multi_class!r}) cannot be tuned; it needs loss='squared_hinge', penalty='l2', "
            "multi_class='ovr'; foldwise.LinearSVC has loss='hinge' and penalty='l1'"
        )
    roles = {"C": Role("log_c")}

    def build(classes: Any, d: int) -> LinearModel:
        return LinearModel(
            SquaredHinge(),
            roles,
            {"C": machine.C},
            machine.fit_intercept,
            _liblinear_penalty(machine),
            encode_class_weight(machine.class_weight, classes),
            "positive",
            balances(machine),
        )

    return Tunable(machine, "classification", build, ("C",), ("C",))


def _ridge(machine: Ridge) -> Tunable:
    if machine.positive:
        raise ValueError(
            "Ridge(positive=True) cannot be tuned: its coefficients have bounds; use positive=False"
        )
    roles = {"alpha": Role("log_lam", factor=2.0)}

    def build(classes: Any, d: int) -> LinearModel:
        return LinearModel(Squared(), roles, {"alpha": machine.alpha}, machine.fit_intercept)

    return Tunable(machine, "regression", build, ("alpha",), ("alpha",))


def _logistic(machine: LogisticRegression) -> Tunable:
    ratio = getattr(machine, "l1_ratio", 0.0)
    penalty = getattr(machine, "penalty", "l2")
    if penalty not in ("l2", "deprecated") or ratio not in (None, 0, 0.0):
        given = f"l1_ratio={ratio!r}" if penalty in ("l2", "deprecated") else f"penalty={penalty!r}"
        raise ValueError(
            f"LogisticRegression({given}) cannot be tuned: it needs the l2 penalty alone. Leave {given.split('=')[0]} "
            "out, or use foldwise.LinearSVC(loss='hinge', penalty='l1' or 'elasticnet')"
        )
    joint = getattr(machine, "multi_class", "deprecated")
    if joint not in ("deprecated", "auto", "ovr"):
        raise ValueError(
            f"LogisticRegression(multi_class={joint!r}) cannot be tuned: it penalises two classes twice; leave "
            "multi_class out"
        )
    roles = {"C": Role("log_c")}

    def build(classes: Any, d: int) -> LinearModel:
        return LinearModel(
            Logistic(),
            roles,
            {"C": machine.C},
            machine.fit_intercept,
            _liblinear_penalty(machine) if machine.solver == "liblinear" else 0.0,
            encode_class_weight(machine.class_weight, classes),
            balances=balances(machine),
        )

    two_classes = (
        "scikit-learn's LogisticRegression trains more than two jointly, which is not a set of one-against-the-rest "
        "problems; use foldwise.LinearSVC(loss='logistic') for more than two classes"
    )
    criterion = own_criterion(Logistic())
    return Tunable(
        machine, "classification", build, ("C",), ("C",), two_classes=two_classes, own_criterion=criterion
    )


# Kernel machines


def scale_width(X: Any) -> float:
    """scikit-learn's ``gamma="scale"`` for these training rows: ``1 / (d var X)``, or 1 where ``X`` is constant."""
    if sp.issparse(X):
        variance = float(X.multiply(X).mean() - X.mean() ** 2)
    else:
        variance = float(np.asarray(X, float).var())
    return 1.0 / (X.shape[1] * variance) if variance != 0 else 1.0


def _width(machine: Any, d: int) -> float:
    """The ``gamma`` of a machine on ``d`` columns; 1 where it is "scale", of which each fold has its own.

    What scikit-learn would refuse is not looked at: it does so in the rehearsal, unless ``gamma`` is tuned.
    """
    if isinstance(machine.gamma, Real):
        return float(machine.gamma)
    return 1.0 if isinstance(machine.gamma, str) and machine.gamma != "auto" else 1.0 / d


def _kernel(machine: Any, gamma: float = 1.0) -> Kernel:
    """Our kernel for scikit-learn's names."""
    if callable(machine.kernel):
        raise ValueError(
            f"{type(machine).__name__} with a callable as kernel cannot be tuned; use 'rbf', 'linear', 'poly', "
            "'precomputed' with its matrix, or foldwise.KernelSVC or KernelSVR with a Kernel of your own"
        )
    if machine.kernel == "rbf":
        return RBF(gamma)
    if machine.kernel == "linear":
        return Linear()
    if machine.kernel in ("poly", "polynomial"):
        whole = isinstance(machine.degree, Real) and float(machine.degree).is_integer()
        return Polynomial(int(machine.degree) if whole else machine.degree, gamma, machine.coef0)
    if machine.kernel == "precomputed":
        return Precomputed()
    raise ValueError(
        f"{type(machine).__name__}(kernel={machine.kernel!r}) cannot be tuned; use kernel 'rbf', 'linear', 'poly' or "
        "'precomputed', or foldwise.KernelSVC or KernelSVR with a Kernel object"
    )


def _kernel_machine(machine: Any, task: str, loss: Loss, roles: dict[str, Role]) -> Tunable:
    """A machine whose hyper-parameters, but for the kernel's, have these roles."""
    kernel = _kernel(machine)
    own = {name: Role("log_kernel") for name in kernel.names()}
    # coef0 is 0 by default, off a log scale; it is tuned only when asked for.
    default = (*roles, *(name for name in own if name != "coef0"))
    scaled = "gamma" in own and isinstance(machine.gamma, str) and machine.gamma == "scale"
    libsvm = isinstance(machine, (SVC, SVR))

    def build(classes: Any, d: int) -> KernelModel:
        given = _kernel(machine, _width(machine, d)) if "gamma" in own else kernel
        values = {name: getattr(machine, name) for name in roles}
        weights = None if classes is None else encode_class_weight(machine.class_weight, classes)
        return KernelModel(
            loss,
            given,
            {**roles, **own},
            {**values, **given.parameters(d)},
            {name: name for name in own},
            fit_intercept=libsvm,
            class_weight=weights,
            multiclass="ovo",
            balances=balances(machine),
            by_fold={"gamma": scale_width} if scaled else {},
            machine=machine if libsvm else None,
        )

    criterion = own_criterion(loss, curved=not kernel.is_linear)
    return Tunable(machine, task, build, (*roles, *own), default, own_criterion=criterion)


def _svc(machine: SVC) -> Tunable:
    return _kernel_machine(machine, "classification", Hinge(), {"C": Role("log_c")})


def _svr(machine: SVR) -> Tunable:
    roles = {"C": Role("log_c"), "epsilon": Role("epsilon")}
    return _kernel_machine(machine, "regression", EpsilonInsensitive(), roles)


def _kernel_ridge(machine: KernelRidge) -> Tunable:
    # (K + alpha I) a = y is 1/2 |f|^2 + C sum r^2 with alpha = 1 / (2 C).
    roles = {"alpha": Role("log_c", factor=0.5, sign=-1.0)}
    return _kernel_machine(machine, "regression", Squared(), roles)


ADAPTERS: dict[type, Adapter] = {
    SVC: Adapter(_svc),
    SVR: Adapter(_svr),
    KernelRidge: Adapter(_kernel_ridge),
    LinearSVC: Adapter(_linear_svc, "loss='squared_hinge'"),
    LinearSVR: Adapter(_linear_svr, "loss='squared_epsilon_insensitive'"),
    Ridge: Adapter(_ridge),
    LogisticRegression: Adapter(_logistic, "two classes"),
}
