"""An estimator that can be tuned, as a search sees it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from foldwise.arguments import check_value, instance, numbers, shown
from foldwise.criteria import USUAL_CRITERIA, Criterion
from foldwise.estimators.retarget import Retarget
from foldwise.kernels import Kernel
from foldwise.losses import Loss
from foldwise.models.base import Model
from foldwise.space import Space

__all__ = ["Tunable"]

REHEARSED = 8
"""Classes of a rehearsal, at most."""
REHEARSED_VALUES = {"nu": 0.5}
"""Tuned values of a rehearsal; others are 1."""


@dataclass(frozen=True, eq=False)
class Tunable:
    """An estimator that can be tuned.

    Attributes
    ----------
    estimator : the last step
    task : "regression" or "classification"
    build : callable(classes, d) -> Model
        The estimator as an optimisation problem on ``d`` columns.
    names : what can be tuned
    default : names tuned when the user gives no space
    kernel : the Kernel whose parameters are named ``kernel__...``, if any
    own_criterion : what a search minimises when the user names nothing; None for what is usual for the task
    prefix : "" or "<step>__", in front of its parameter names
    steps : the earlier steps as a Pipeline, or None
    change : what a wrapper around the estimator makes of its model
    fit_prefix : the same as ``prefix`` for what ``fit`` is given by row, such as "svc__" of "svc__sample_weight"; None
        where a wrapper does not hand it on
    outputs : whether a target may have several columns: "one", "several" (or one) or "table" (it must be a table)
    retarget : how the target is transformed before the machine sees it, if it is
    notes : what a user should know before the search
    refitted : why the folds are valued by refitting the estimator itself, without gradients; "" where they are solved
    """

    estimator: BaseEstimator
    task: str
    build: Callable[[Any, int], Model]
    names: tuple[str, ...]
    default: tuple[str, ...]
    kernel: Kernel | None = None
    own_criterion: Loss | Criterion | None = None
    prefix: str = ""
    steps: Pipeline | None = None
    change: Callable[[Model], Model] | None = None
    fit_prefix: str | None = ""
    outputs: str = "one"
    retarget: Retarget | None = None
    notes: tuple[str, ...] = ()
    refitted: str = ""

    def model(self, classes: Any, d: int) -> Model:
        """The optimisation problem of the estimator inside its wrappers, on ``d`` columns."""
        model = self.build(classes, d)
        return model if self.change is None else self.change(model)

    def inside(self, name: str, *, hands_on: bool = True, named: bool = True) -> Tunable:
        """The same as the parameter or step ``name`` of another estimator.

        ``hands_on`` says whether that estimator's ``fit`` passes on what it is given by row, and ``named`` whether
        under the name of the step.
        """
        fit_prefix = None
        if hands_on and self.fit_prefix is not None:
            fit_prefix = f"{name}__{self.fit_prefix}" if named else self.fit_prefix
        return replace(self, prefix=f"{name}__{self.prefix}", fit_prefix=fit_prefix)

    def criterion(self, by_row: bool = False) -> Loss | Criterion:
        """What a search minimises when the user names nothing; docs/criteria.md has the evidence.

        ``by_row``: the mean of a loss over rows, which some methods need; not a function of all rows together.
        """
        own = self.own_criterion
        if own is None or (by_row and not isinstance(own, Loss)):
            return USUAL_CRITERIA[self.task]
        return own

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

    def named(self, names: Sequence[str] | None) -> Tunable:
        """With a kernel's columns by name turned into numbers; behind earlier steps there are no names."""
        if names is None or self.kernel is None or self.standardize() is not None:
            return self
        machine: Any = clone(self.estimator).set_params(kernel=self.kernel.resolved(list(names)))
        return replace(self, build=machine._model)

    @property
    def ours(self) -> bool:
        """Whether the machine is one of this package, or a class of the user's that extends one."""
        return any(kind.__module__.startswith("foldwise") for kind in type(self.estimator).__mro__)

    def rehearse(self, tuned: Collection[str], classes: np.ndarray | None, sparse: bool) -> None:
        """Fit scikit-learn's machine to a handful of rows, so that it refuses its settings now and not after a search.

        Tuned values are arbitrary here; the settings checked are the ones that a search leaves as they are.
        """
        if self.ours:
            return  # these are checked when their training problems are made
        machine: Any = clone(self.estimator)
        quiet = {"random_state": 0, "n_jobs": None, "verbose": False}
        own = machine.get_params(deep=False)
        machine.set_params(**{name: value for name, value in quiet.items() if name in own})
        machine.set_params(**{name: REHEARSED_VALUES.get(name, 1.0) for name in tuned})
        y = np.arange(4.0)
        if classes is not None:
            few = classes[:REHEARSED]
            y = np.repeat(few, 2)
            if isinstance(own.get("class_weight"), dict):
                weights = {label: w for label, w in own["class_weight"].items() if label in few.tolist()}
                machine.set_params(class_weight=weights)
        X = np.eye(len(y))
        if own.get("max_iter") == -1:
            machine.set_params(
                max_iter=1_000
            )  # of LIBSVM, which may not end; only what it refuses is asked here
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                machine.fit(sp.csr_matrix(X) if sparse else X, y)
            except Exception as error:
                kind, reason = "sparse" if sparse else "dense", str(error).strip().rstrip(".")
                raise ValueError(
                    f"scikit-learn's {type(machine).__name__} cannot be fitted to {kind} rows with these settings: "
                    f"{reason or type(error).__name__}. Change them in the estimator before the search"
                ) from error

    def check_names(self, space: Mapping[str, Any]) -> dict[str, Any]:
        """The space with the prefix taken off; an unknown name is an error that lists the valid ones."""
        out = {}
        for name, spec in space.items():
            bare = name[len(self.prefix) :] if name.startswith(self.prefix) else name
            if bare not in self.names and f"kernel__{bare}" in self.names:
                bare = f"kernel__{bare}"
            if not name.startswith(self.prefix) or bare not in self.names:
                valid = ", ".join(self.prefix + n for n in self.names)
                raise ValueError(
                    f"unknown hyper-parameter {name!r} for {type(self.estimator).__name__}; it can tune: {valid}. "
                    "Set other parameters in the estimator, or put the search inside a GridSearchCV over them"
                )
            out[bare] = spec
        return out

    def start(self, values: Any, space: Space, classes: np.ndarray | None) -> dict[str, Any]:
        """Starting values by the names of the space, from full or bare names; those outside the bounds are refused."""
        check_value(
            "start in method_options", values, instance(Mapping, "a dict from name to starting value")
        )
        blocks = {block.name: block for block in space.blocks}
        out = {}
        for name, value in values.items():
            bare = str(name).removeprefix(self.prefix)
            bare = bare if bare in blocks else f"kernel__{bare}"
            if bare not in blocks:
                known = ", ".join(self.prefix + own for own in blocks)
                raise ValueError(f"start names the unknown hyper-parameter {name!r}; this space has: {known}")
            if bare == "class_weight" and isinstance(value, Mapping) and classes is not None:
                value = [
                    value.get(label, 1.0) for label in classes.tolist()[1:]
                ]  # relative to the first class
            check_value(f"the start of {name!r}", value, numbers())
            block, array = blocks[bare], np.asarray(value, float)
            if array.size not in (1, block.index.size):
                raise ValueError(
                    f"start has {array.size} values of {name!r}; it needs 1 or {block.index.size}"
                )
            low, high = block.lower[block.index], block.upper[block.index]
            slack = 1e-9 * np.maximum(np.abs(low), np.abs(high))
            if np.any(array < low - slack) or np.any(array > high + slack):
                raise ValueError(
                    f"the start of {name!r}, {shown(value)}, is outside its bounds, {low.min():g} to {high.max():g}; "
                    "move it inside, or widen the bounds"
                )
            out[bare] = value
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

    def configure(self, estimator: Any, params: Mapping[str, Any], classes: np.ndarray | None) -> Any:
        """Give a copy of the whole estimator (pipeline included) these parameter values."""
        plain = {name: value for name, value in params.items() if not name.startswith("kernel__")}
        estimator.set_params(**self.export(plain, classes))
        inner = {name.removeprefix("kernel__"): value for name, value in params.items() if name not in plain}
        if inner:
            assert self.kernel is not None
            estimator.set_params(**{f"{self.prefix}kernel": self.kernel.with_parameters(inner)})
        return estimator
