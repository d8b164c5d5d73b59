"""foldwise: cross-validation, solved instead of searched.

Names are imported on first use, so that ``import foldwise`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foldwise.version import __version__

if TYPE_CHECKING:
    from foldwise.estimators import LinearSVC, LinearSVR
    from foldwise.losses import (
        Absolute,
        EpsilonInsensitive,
        Hinge,
        Huber,
        Logistic,
        Misclassification,
        ModifiedLogHinge,
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
    "estimators": ("LinearSVC", "LinearSVR"),
    "losses": (
        "Absolute",
        "EpsilonInsensitive",
        "Hinge",
        "Huber",
        "Logistic",
        "Misclassification",
        "ModifiedLogHinge",
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
    "Absolute",
    "BilevelSearchCV",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Lin",
    "LinearSVC",
    "LinearSVR",
    "Log",
    "Logistic",
    "Misclassification",
    "ModifiedLogHinge",
    "QuarticHinge",
    "Result",
    "SmoothMisclassification",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
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
