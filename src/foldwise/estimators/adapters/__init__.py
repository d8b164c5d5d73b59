"""What can be tuned: our estimators and scikit-learn's, described as optimisation problems."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from foldwise.arguments import check_arguments
from foldwise.estimators.adapters import kernel, linear
from foldwise.estimators.adapters.tunable import Tunable

__all__ = ["SUPPORTED", "Tunable", "describe"]

SUPPORTED = (
    "foldwise.LinearSVC, LinearSVR, KernelSVC, KernelSVR, SemiparametricSVR, and scikit-learn's SVC, SVR, "
    "KernelRidge, LinearSVC (loss='squared_hinge'), LinearSVR (loss='squared_epsilon_insensitive'), Ridge, "
    "LogisticRegression (two classes), alone or as the last step of a Pipeline"
)


def describe(estimator: Any) -> Tunable:
    """How to tune this estimator, or an error that names what can be tuned."""
    prefix, steps, last = "", None, estimator
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        prefix = f"{name}__"
        if len(estimator.steps) > 1:
            steps = clone(estimator[:-1])
    for kind, build in {**linear.BUILDERS, **kernel.BUILDERS}.items():
        if type(last) is kind or (kind.__module__.startswith("foldwise") and isinstance(last, kind)):
            if hasattr(last, "_arguments"):
                check_arguments(last)
            return build(last, prefix, steps)
    if isinstance(last, type):
        raise ValueError(f"cannot tune the class {last.__name__} itself; give an object: {last.__name__}()")
    got = type(last).__name__ if not isinstance(last, str) else repr(last)
    raise ValueError(f"cannot tune {got}; what can be tuned: {SUPPORTED}")
