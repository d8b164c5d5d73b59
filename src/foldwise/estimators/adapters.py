"""What can be tuned: our estimators, which describe themselves, and scikit-learn's machines as our models.

``ADAPTERS`` has one entry for every machine of scikit-learn: how it is described, and what its settings must be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR

from foldwise import estimators
from foldwise.arguments import check_arguments
from foldwise.estimators import kernel_adapters, linear_adapters
from foldwise.estimators.kernel_adapters import scale_width
from foldwise.estimators.tunable import Tunable
from foldwise.estimators.wrappers import WRAPPERS, behind, wrapped

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
    if isinstance(estimator, Pipeline):
        _check_steps(estimator)
        name, last = estimator.steps[-1]
        steps = clone(estimator[:-1]) if len(estimator.steps) > 1 else None
        return behind(steps, describe(last).inside(name))
    if type(estimator) in WRAPPERS:
        return wrapped(estimator, describe)
    if isinstance(estimator, OURS):
        machine: Any = estimator
        check_arguments(machine)
        tunable: Tunable = machine._tunable()
        return tunable
    if type(estimator) in ADAPTERS:
        return ADAPTERS[type(estimator)].describe(estimator)
    if isinstance(estimator, type):
        raise ValueError(
            f"cannot tune the class {estimator.__name__} itself; give an object: {estimator.__name__}()"
        )
    got = type(estimator).__name__ if not isinstance(estimator, str) else repr(estimator)
    raise ValueError(f"cannot tune {got}; what can be tuned: {supported()}")


def _check_steps(pipeline: Pipeline) -> None:
    """Refuse earlier steps that cannot be fitted and applied; pipelines of other packages have rules of their own."""
    if type(pipeline) is not Pipeline:
        return
    for name, step in pipeline.steps[:-1]:
        passes = step is None or (isinstance(step, str) and step == "passthrough")
        fits = hasattr(step, "transform") and (hasattr(step, "fit") or hasattr(step, "fit_transform"))
        if not passes and (isinstance(step, type) or not fits):
            raise ValueError(
                f"the step {name!r} of the pipeline must be an object with fit and transform, or 'passthrough'; got "
                f"{step!r}"
            )


def supported() -> str:
    """Everything that can be tuned, in words."""
    ours = ", ".join(kind.__name__ for kind in OURS)
    theirs = [
        kind.__name__ + (f" ({adapter.needs})" if adapter.needs else "") for kind, adapter in ADAPTERS.items()
    ]
    wrappers = ", ".join(kind.__name__ for kind in WRAPPERS)
    return (
        f"foldwise.{ours}, and scikit-learn's {', '.join(theirs)}, alone, as the last step of a Pipeline, or inside "
        f"{wrappers}"
    )


ADAPTERS: dict[type, Adapter] = {
    SVC: Adapter(kernel_adapters.describe_svc),
    SVR: Adapter(kernel_adapters.describe_svr),
    NuSVC: Adapter(kernel_adapters.describe_nu_svc, "without gradients"),
    NuSVR: Adapter(kernel_adapters.describe_nu_svr, "without gradients"),
    KernelRidge: Adapter(kernel_adapters.describe_kernel_ridge),
    LinearSVC: Adapter(linear_adapters.describe_svc),
    LinearSVR: Adapter(linear_adapters.describe_svr),
    Ridge: Adapter(linear_adapters.describe_ridge),
    RidgeClassifier: Adapter(linear_adapters.describe_ridge),
    Lasso: Adapter(linear_adapters.describe_lasso),
    ElasticNet: Adapter(linear_adapters.describe_lasso),
    LogisticRegression: Adapter(linear_adapters.describe_logistic),
}
