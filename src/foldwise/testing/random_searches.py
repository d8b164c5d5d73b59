"""Whole searches drawn at random: data, estimator, pipeline, space, splitter, method and options.

A drawn search is text. What runs is what :meth:`RandomSearch.source` prints, so a failing seed is its own reproduction,
and it can be made smaller by leaving parts out (:mod:`foldwise.testing.shrinking`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from foldwise.testing.drawing import (
    Dice,
    draw_data,
    draw_machine,
    draw_method,
    draw_options,
    draw_size,
    draw_space,
    draw_splitter,
    draw_steps,
)

__all__ = ["RandomSearch", "random_search"]

SHORT = {"np": "import numpy as np", "pd": "import pandas as pd", "sp": "import scipy.sparse as sp"}
MODULES = {
    "sklearn": "svm",
    "sklearn.decomposition": "PCA",
    "sklearn.feature_selection": "SelectKBest",
    "sklearn.kernel_ridge": "KernelRidge",
    "sklearn.linear_model": "ElasticNet Lasso LogisticRegression Ridge RidgeClassifier",
    "sklearn.model_selection": "GroupKFold KFold LeaveOneOut PredefinedSplit RepeatedKFold ShuffleSplit "
    "StratifiedKFold StratifiedShuffleSplit TimeSeriesSplit",
    "sklearn.pipeline": "make_pipeline",
    "sklearn.preprocessing": "MaxAbsScaler MinMaxScaler PolynomialFeatures StandardScaler",
    "foldwise": "RBF AdditiveChi2 BilevelSearchCV ExpChi2 KernelSVC KernelSVR Lin Linear LinearSVC LinearSVR Log "
    "Polynomial SemiparametricSVR Sum",
    "foldwise.losses": "Huber Logistic QuarticHinge SmoothMisclassification",
    "foldwise.optimizers": "LBfgsB Random TrustRegionNewton",
}
"""Where the names come from that a text may use; a name behind a dot, such as svm.LinearSVC, is not one of them."""


def _imports(text: str) -> list[str]:
    """Import lines for the names that occur in a text."""
    used = set(re.findall(r"(?<![.\w'])[A-Za-z_]\w*", text))
    lines = [line for name, line in SHORT.items() if name in used]
    for module, names in MODULES.items():
        if own := [name for name in names.split() if name in used]:
            lines.append(f"from {module} import {', '.join(own)}")
    return lines


@dataclass(frozen=True)
class RandomSearch:
    """One search with its data, as text in parts.

    Attributes
    ----------
    seed : int
        Of :func:`random_search`, and of the data.
    size : numbers of rows and columns, a pair
    data : statements that make ``X``, ``y`` and what ``fit`` is given; they may use ``rng``, ``n`` and ``d``
    steps : expressions of the pipeline's earlier steps, often none
    machine, params : the estimator that is tuned: its class and its arguments, as expressions
    space : None, a tuple of names, or from name to an expression; names without the pipeline's prefix
    options : arguments of ``BilevelSearchCV``, as expressions
    fit : arguments of ``fit`` beside ``X`` and ``y``, as expressions

    Examples
    --------
    >>> from foldwise.testing import random_search
    >>> drawn = random_search(0)
    >>> drawn.source().splitlines()[-1].startswith("search.fit(X, y")
    True
    >>> len(drawn.X) == len(drawn.y) == drawn.size[0]
    True
    """

    seed: int
    size: tuple[int, int]
    data: tuple[str, ...]
    machine: str
    params: Mapping[str, str] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    space: Mapping[str, str] | tuple[str, ...] | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    fit: Mapping[str, str] = field(default_factory=dict)

    def source(self) -> str:
        """Python text that makes the data and runs the search; it needs nothing else."""
        text = "\n".join([*self._setup(), f"search = {self._search()}", self._fit()])
        return "\n".join([*_imports(text), text])

    def _setup(self) -> list[str]:
        n, d = self.size
        return [f"rng, n, d = np.random.default_rng({self.seed}), {n}, {d}", *self.data]

    def _search(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        parts = [self._estimator(), *([] if self.space is None else [self._space()]), options]
        return f"BilevelSearchCV({', '.join(part for part in parts if part)})"

    def _estimator(self) -> str:
        last = f"{self.machine}({', '.join(f'{name}={value}' for name, value in self.params.items())})"
        return f"make_pipeline({', '.join([*self.steps, last])})" if self.steps else last

    def _space(self) -> str:
        prefix = f"{self.machine.split('.')[-1].lower()}__" if self.steps else ""
        if isinstance(self.space, tuple):
            return str([prefix + name for name in self.space])
        assert self.space is not None
        return "{" + ", ".join(f"{prefix + name!r}: {value}" for name, value in self.space.items()) + "}"

    def _fit(self) -> str:
        return (
            f"search.fit({', '.join(['X', 'y', *(f'{name}={value}' for name, value in self.fit.items())])})"
        )

    @cached_property
    def _names(self) -> dict[str, Any]:
        """Everything that the text defines, short of the fit."""
        names: dict[str, Any] = {}
        exec(self.source().rpartition("\n")[0], names)
        names["fit_params"] = eval(
            f"dict({', '.join(f'{name}={value}' for name, value in self.fit.items())})", names
        )
        return names

    @property
    def X(self) -> Any:
        """The features."""
        return self._names["X"]

    @property
    def y(self) -> Any:
        """The target."""
        return self._names["y"]

    @property
    def fit_params(self) -> dict[str, Any]:
        """What ``fit`` is given beside ``X`` and ``y``."""
        return dict(self._names["fit_params"])

    @property
    def search(self) -> Any:
        """The search, not fitted; the same object every time."""
        return self._names["search"]

    def without(self, **changes: Any) -> RandomSearch:
        """A copy with other parts, and nothing built yet."""
        return replace(self, **changes)


def random_search(seed: int) -> RandomSearch:
    """The whole search of this number: data, estimator, pipeline, space, splitter, method, options.

    Most are valid; some are meant to be refused. Sizes are small: 12 to 120 rows, 1 to 6 columns.

    Parameters
    ----------
    seed : int

    Returns
    -------
    RandomSearch

    Examples
    --------
    >>> random_search(3) == random_search(3)
    True
    """
    dice = Dice(seed)
    plan, machine, params = draw_machine(dice)
    method, options = draw_method(dice, plan)
    plan.method = method
    plan.n, plan.d = draw_size(dice, plan, method)
    data, fit = draw_data(dice, plan)
    steps = draw_steps(dice, plan)
    space = draw_space(dice, plan, method)
    options |= draw_options(dice, plan, method, space, f"{machine.split('.')[-1].lower()}__" if steps else "")
    options["cv"], more = draw_splitter(dice, plan, method)
    if more is not None:
        data.append(more)
        fit["groups"] = "groups"
    options = {name: value for name, value in options.items() if value}
    if (
        options.get("criterion") == "'squared_hinge'" and seed % 4 == 2
    ):  # so that other seeds draw what they drew
        options["criterion"] = "'profiled_logistic'"
    return RandomSearch(
        seed, (plan.n, plan.d), tuple(data), machine, params, tuple(steps), space, options, fit
    )
