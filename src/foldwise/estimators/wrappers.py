"""Estimators of scikit-learn that wrap another one: what is tuned is the one inside.

``WRAPPERS`` has one entry for each: from the description of the estimator inside to that of the whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any

from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.feature_selection import VarianceThreshold
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from foldwise.estimators.retarget import Retarget
from foldwise.estimators.tunable import Tunable
from foldwise.models.base import Model, Role
from foldwise.models.kernel import KernelModel
from foldwise.models.linear import LinearModel
from foldwise.models.refitted import RefittedModel
from foldwise.nesting import WRAPPED

__all__ = ["WRAPPERS", "behind", "wrapped"]


def wrapped(estimator: Any, describe: Callable[[Any], Tunable]) -> Tunable:
    """How to tune what is inside a wrapper."""
    name, kind = WRAPPED[type(estimator)], type(estimator).__name__
    inside = getattr(estimator, name)
    if inside is None:
        raise ValueError(
            f"{kind}({name}=None) has nothing to tune; give it the estimator to tune, such as Ridge()"
        )
    tunable = describe(inside)
    for _, step in [] if tunable.steps is None else tunable.steps.steps:
        if step not in (None, "passthrough") and _needs_target(step):
            raise ValueError(
                f"{type(step).__name__} learns from the target, which {kind} changes; put it before the wrapper: "
                f"make_pipeline({type(step).__name__}(...), {kind}(...))"
            )
    return WRAPPERS[type(estimator)](estimator, tunable)


def _needs_target(step: Any) -> bool:
    """Whether the ``fit`` of a step cannot do without the target, which selectors of features do not say."""
    if type(step).__module__.startswith("sklearn.feature_selection"):
        return not isinstance(step, VarianceThreshold)
    target = signature(step.fit).parameters.get("y")
    return get_tags(step).target_tags.required or (target is not None and target.default is Parameter.empty)


def behind(steps: Pipeline | None, tunable: Tunable) -> Tunable:
    """The same behind the steps of a pipeline."""
    if steps is None:
        return tunable
    inner = [] if tunable.steps is None else tunable.steps.steps
    both = [(f"step{i}", step) for i, (_, step) in enumerate([*steps.steps, *inner])]
    return replace(tunable, steps=clone(Pipeline(both)) if inner else clone(steps))


def _needs_task(kind: str, tunable: Tunable, task: str) -> None:
    if tunable.task != task:
        name = type(tunable.estimator).__name__
        other = "classifier" if task == "classification" else "regressor"
        raise ValueError(f"{kind} wraps a {other}; got {name}, which is none. Put a {other} inside")


def _one_machine(kind: str, tunable: Tunable) -> Tunable:
    """Refuse class weights by name: the machines inside know their classes as 0 and 1 alone."""
    weight = getattr(tunable.estimator, "class_weight", None)
    if weight is not None and (kind == "OneVsOneClassifier" or not isinstance(weight, str)):
        raise ValueError(
            f"{kind} around {type(tunable.estimator).__name__}(class_weight={weight!r}) cannot be tuned: its machines "
            "know their own two classes alone. Leave the wrapper or class_weight out"
        )
    names = tuple(name for name in tunable.names if name != "class_weight")
    default = tuple(name for name in tunable.default if name != "class_weight")
    return replace(tunable, names=names, default=default)


def _one_vs_rest(wrapper: OneVsRestClassifier, tunable: Tunable) -> Tunable:
    _needs_task("OneVsRestClassifier", tunable, "classification")
    tunable = _one_machine("OneVsRestClassifier", tunable)

    def change(model: Model) -> Model:
        options: dict[str, Any] = {"class_weight_rule": "own"}
        if isinstance(model, KernelModel):
            options |= {"multiclass": "ovr", "machine": None}
        elif isinstance(model, LinearModel):
            options["joint"] = False
        return replace(model, **options)  # type: ignore[type-var]

    return replace(tunable, change=change).inside("estimator", hands_on=False)


def _one_vs_one(wrapper: OneVsOneClassifier, tunable: Tunable) -> Tunable:
    _needs_task("OneVsOneClassifier", tunable, "classification")
    tunable = _one_machine("OneVsOneClassifier", tunable)
    name = type(tunable.estimator).__name__
    if tunable.kernel is None and not hasattr(tunable.estimator, "kernel"):
        return _refitted_pairs(wrapper, tunable, name)

    def change(model: Model) -> Model:
        return replace(model, multiclass="ovo", machine=None) if isinstance(model, KernelModel) else model

    return replace(tunable, change=change).inside("estimator", hands_on=False)


def _refitted_pairs(wrapper: OneVsOneClassifier, tunable: Tunable, name: str) -> Tunable:
    """Linear machines for every pair of classes, which are refitted."""

    def build(classes: Any, d: int) -> RefittedModel:
        loss = tunable.build(classes, d).loss
        return RefittedModel(
            loss, {f"estimator__{tunable.prefix}{own}": Role("own") for own in tunable.names}, wrapper
        )

    words = (
        f"OneVsOneClassifier({name}()) is tuned without gradients, by refitting it in every fold at the points of a "
        "plan (method 'grid' or 'random'): its linear machines share no training problem of ours. "
        f"OneVsRestClassifier({name}()) and SVC(kernel='linear') have gradients"
    )
    inside = f"estimator__{tunable.prefix}"
    return Tunable(
        wrapper,
        "classification",
        build,
        tuple(inside + own for own in tunable.names),
        tuple(inside + own for own in tunable.default),
        fit_prefix=None,
        refitted=words,
    )


def _transformed_target(wrapper: TransformedTargetRegressor, tunable: Tunable) -> Tunable:
    _needs_task("TransformedTargetRegressor", tunable, "regression")
    if tunable.retarget is not None:
        raise ValueError("a TransformedTargetRegressor inside another one cannot be tuned; use one of them")
    if wrapper.transformer is not None and (wrapper.func is not None or wrapper.inverse_func is not None):
        raise ValueError(
            "TransformedTargetRegressor takes a transformer or functions, not both; leave one out"
        )
    if (wrapper.func is None) != (wrapper.inverse_func is None):
        raise ValueError(
            "TransformedTargetRegressor needs func and inverse_func together, such as np.log and np.exp"
        )
    retarget = Retarget(wrapper.transformer, wrapper.func, wrapper.inverse_func)
    return replace(tunable, retarget=retarget, outputs="one").inside("regressor", named=False)


def _calibrated(wrapper: CalibratedClassifierCV, tunable: Tunable) -> Tunable:
    _needs_task("CalibratedClassifierCV", tunable, "classification")
    note = (
        f"the search values the {type(tunable.estimator).__name__} inside CalibratedClassifierCV by its own decisions; "
        "the calibration is fitted in the final fit alone"
    )
    plain = tunable.steps is None
    return replace(tunable, notes=(*tunable.notes, note)).inside("estimator", hands_on=plain, named=False)


def _several_outputs(wrapper: MultiOutputRegressor, tunable: Tunable) -> Tunable:
    _needs_task("MultiOutputRegressor", tunable, "regression")
    if tunable.retarget is not None:
        raise ValueError(
            "MultiOutputRegressor around TransformedTargetRegressor cannot be tuned; scale the columns of the target "
            "before the search"
        )

    def change(model: Model) -> Model:
        return replace(model, machine=None) if isinstance(model, KernelModel) else model

    plain = tunable.steps is None
    tunable = replace(tunable, change=change, outputs="table")
    return tunable.inside("estimator", hands_on=plain, named=False)


WRAPPERS: dict[type, Callable[[Any, Tunable], Tunable]] = {
    OneVsRestClassifier: _one_vs_rest,
    OneVsOneClassifier: _one_vs_one,
    TransformedTargetRegressor: _transformed_target,
    CalibratedClassifierCV: _calibrated,
    MultiOutputRegressor: _several_outputs,
}
