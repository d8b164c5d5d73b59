"""foldwise: cross-validation, solved instead of searched.

Names are imported on first use, so that ``import foldwise`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foldwise.version import __version__

if TYPE_CHECKING:
    from foldwise.estimators import KernelSVC, KernelSVR, LinearSVC, LinearSVR, SemiparametricSVR
    from foldwise.kernels import RBF, AdditiveChi2, ExpChi2, Linear, Polynomial, Precomputed, Sum
    from foldwise.losses import (
        Absolute,
        EpsilonInsensitive,
        Hinge,
        Huber,
        Logistic,
        Misclassification,
        ModifiedHuber,
        ModifiedLogHinge,
        Pinball,
        QuarticHinge,
        SmoothMisclassification,
        Squared,
        SquaredEpsilonInsensitive,
        SquaredHinge,
    )
    from foldwise.result import Result
    from foldwise.search import BilevelSearchCV
    from foldwise.space import Lin, Log

_HOMES = {
    "estimators": ("KernelSVC", "KernelSVR", "LinearSVC", "LinearSVR", "SemiparametricSVR"),
    "kernels": ("RBF", "AdditiveChi2", "ExpChi2", "Linear", "Polynomial", "Precomputed", "Sum"),
    "losses": (
        "Absolute",
        "EpsilonInsensitive",
        "Hinge",
        "Huber",
        "Logistic",
        "Misclassification",
        "ModifiedHuber",
        "ModifiedLogHinge",
        "Pinball",
        "QuarticHinge",
        "SmoothMisclassification",
        "Squared",
        "SquaredEpsilonInsensitive",
        "SquaredHinge",
    ),
    "result": ("Result",),
    "search": ("BilevelSearchCV",),
    "space": ("Lin", "Log"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "RBF",
    "Absolute",
    "AdditiveChi2",
    "BilevelSearchCV",
    "EpsilonInsensitive",
    "ExpChi2",
    "Hinge",
    "Huber",
    "KernelSVC",
    "KernelSVR",
    "Lin",
    "Linear",
    "LinearSVC",
    "LinearSVR",
    "Log",
    "Logistic",
    "Misclassification",
    "ModifiedHuber",
    "ModifiedLogHinge",
    "Pinball",
    "Polynomial",
    "Precomputed",
    "QuarticHinge",
    "Result",
    "SemiparametricSVR",
    "SmoothMisclassification",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "Sum",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'foldwise' has no attribute {name!r}")
    value = getattr(import_module(f"foldwise.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
