"""scikit-learn's kernel machines as our models."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import SVC, SVR, NuSVC, NuSVR

from foldwise.criteria import own_criterion
from foldwise.estimators.balance import balances
from foldwise.estimators.encoding import encode_class_weight
from foldwise.estimators.tunable import Tunable
from foldwise.kernels import RBF, Kernel, Linear, Polynomial, Precomputed
from foldwise.losses import EpsilonInsensitive, Hinge, Loss, Squared
from foldwise.models.base import Role
from foldwise.models.kernel import KernelModel
from foldwise.models.refitted import RefittedModel

__all__ = [
    "describe_kernel_ridge",
    "describe_nu_svc",
    "describe_nu_svr",
    "describe_svc",
    "describe_svr",
    "scale_width",
]


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
    if machine.kernel == "rbf":
        return RBF(gamma)
    if machine.kernel == "linear":
        return Linear()
    if machine.kernel in ("poly", "polynomial"):
        whole = isinstance(machine.degree, Real) and float(machine.degree).is_integer()
        return Polynomial(int(machine.degree) if whole else machine.degree, gamma, machine.coef0)
    return Precomputed()


OWN_KERNELS = ("rbf", "linear", "poly", "polynomial", "precomputed")
"""Names of kernels whose derivatives are known; others may be tuned by refitting."""
WIDE = ("sigmoid", "laplacian", "rbf", "poly", "polynomial")
"""Names of kernels with a width."""
LEVEL = ("sigmoid", "poly", "polynomial")
"""Names of kernels with ``coef0``."""


def _has_derivatives(machine: Any) -> bool:
    return isinstance(machine.kernel, str) and machine.kernel in OWN_KERNELS


def _refitted(machine: Any, task: str, loss: Loss, names: tuple[str, ...], why: str) -> Tunable:
    """A machine that is valued by refitting it in every fold."""
    kernel = machine.kernel if isinstance(machine.kernel, str) else ""
    own = names + (("gamma",) if kernel in WIDE else ()) + (("coef0",) if kernel in LEVEL else ())
    default = tuple(name for name in own if name != "coef0" or kernel == "sigmoid")
    pairs = isinstance(machine, (SVC, NuSVC))
    shown: Any = clone(machine)
    if pairs:
        shown.set_params(decision_function_shape="ovo", break_ties=False)

    def build(classes: Any, d: int) -> RefittedModel:
        weights = None if classes is None else encode_class_weight(machine.class_weight, classes)
        return RefittedModel(
            loss,
            {name: Role("own") for name in own},
            shown,
            widths=_inverse_width if isinstance(machine, KernelRidge) else scale_width,
            pairs=pairs,
            class_weight=weights,
            balances=balances(machine) if pairs else "weights",
        )

    words = (
        f"{type(machine).__name__} is tuned without gradients, by refitting it in every fold at the points of a plan "
        f"(method 'grid' or 'random'): {why}"
    )
    criterion = own_criterion(loss, curved=True)
    return Tunable(machine, task, build, own, default, own_criterion=criterion, refitted=words)


def _inverse_width(X: Any) -> float:
    return 1.0 / X.shape[1]


def _foreign_kernel(machine: Any) -> str:
    name = "a callable" if callable(machine.kernel) else repr(machine.kernel)
    return f"its kernel is {name}, whose derivatives are not known"


def _kernel_machine(machine: Any, task: str, loss: Loss, roles: dict[str, Role]) -> Tunable:
    """A machine whose hyper-parameters, but for the kernel's, have these roles."""
    if not _has_derivatives(machine):
        return _refitted(machine, task, loss, tuple(roles), _foreign_kernel(machine))
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
            multiclass="ovo" if isinstance(machine, SVC) else "ovr",
            balances=balances(machine),
            by_fold={"gamma": scale_width} if scaled else {},
            machine=machine if libsvm else None,
        )

    criterion = own_criterion(loss, curved=not kernel.is_linear)
    outputs = "one" if libsvm else "several"
    return Tunable(machine, task, build, (*roles, *own), default, own_criterion=criterion, outputs=outputs)


def describe_svc(machine: SVC) -> Tunable:
    return _kernel_machine(machine, "classification", Hinge(), {"C": Role("log_c")})


def describe_svr(machine: SVR) -> Tunable:
    roles = {"C": Role("log_c"), "epsilon": Role("epsilon")}
    return _kernel_machine(machine, "regression", EpsilonInsensitive(), roles)


def describe_kernel_ridge(machine: KernelRidge) -> Tunable:
    # (K + alpha I) a = y is 1/2 |f|^2 + C sum r^2 with alpha = 1 / (2 C).
    roles = {"alpha": Role("log_c", factor=0.5, sign=-1.0)}
    return _kernel_machine(machine, "regression", Squared(), roles)


NU = "what nu allows follows from the solution, and no derivative in it is known here"


def describe_nu_svc(machine: NuSVC) -> Tunable:
    return _refitted(machine, "classification", Hinge(), ("nu",), NU)


def describe_nu_svr(machine: NuSVR) -> Tunable:
    return _refitted(machine, "regression", EpsilonInsensitive(), ("C", "nu"), NU)
