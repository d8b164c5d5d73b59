"""foldwise: cross-validation, solved instead of searched."""

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
from foldwise.search import BilevelSearchCV
from foldwise.space import Lin, Log

__version__ = "0.1.0"

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
    "SmoothMisclassification",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "__version__",
]
