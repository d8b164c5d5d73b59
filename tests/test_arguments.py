"""Every parameter of every public class: what it must not be is refused, by name and before any work."""

from __future__ import annotations

import dataclasses
import inspect
import re

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import r2_score
from sklearn.svm import SVC

import foldwise
from foldwise import (
    RBF,
    BilevelSearchCV,
    ExpChi2,
    KernelSVC,
    KernelSVR,
    Lin,
    Linear,
    LinearSVC,
    LinearSVR,
    Log,
    Polynomial,
    SemiparametricSVR,
    Sum,
    kernels,
    losses,
    optimizers,
)
from foldwise.arguments import NONE, Rule, check_value, integer, number, numbers, one_of, shown
from foldwise.basis import BasisFunctions
from foldwise.bilevel import Bilevel

rng = np.random.default_rng(0)
X, Y = rng.uniform(0.1, 2.0, (30, 3)), rng.normal(size=30)
LABELS = np.arange(30) % 2

TEXT = ["1", b"1", "", None, {}, object()]
NUMBER = [*TEXT, np.nan, np.inf, -np.inf, 1j, True]
COUNT = [*NUMBER, -1, 1.5, 2.0, [1]]
FROM_ONE = [*COUNT, 0]
POSITIVE = [*NUMBER, -1.0, 0.0, 0]
NOT_NEGATIVE = [*NUMBER, -1.0, -1e-300]
FLAG = ["no", None, 2, 1, 0, 0.5, [], np.nan]
NAME = ["nothing", None, 3, [], object()]
ARRAY = [[], [1.0, np.nan], ["a"], [[1.0]], [None]]
LINEAR = {
    "loss": NAME,
    "C": [*POSITIVE, *ARRAY, [1.0, 0.0]],
    "lam": [*POSITIVE, *ARRAY, [1.0, -1.0]],
    "penalty": NAME,
    "l1_ratio": [*NUMBER, -0.1, 1.1],
    "box": ["1", np.nan, -1.0, [], [np.nan, 1, 1], {}],
    "box_lower": ["1", np.nan, [], {}],
    "proximity": [*NOT_NEGATIVE, [1.0]],
    "reference": ["1", np.nan, np.inf, [], ["a", "b", "c"]],
    "fit_intercept": FLAG,
    "tol": [*NOT_NEGATIVE, [1e-3]],
    "max_iter": FROM_ONE,
    "solver": NAME,
}
WEIGHTS = [
    "even",
    0.5,
    [1, 2],
    {0: np.nan},
    {0: -1.0},
    {0: 0.0},
    {0: np.inf},
    {0: "1"},
    {0: None},
    {7: 1.0},
    {"0": 1.0},
]
KERNEL = {
    "kernel": [*NAME, RBF, Sum([]), Sum(RBF()), Sum([RBF(), "rbf"]), RBF(-1.0), RBF("scale"), RBF(None)],
    "loss": NAME,
    "C": [*POSITIVE, *ARRAY],
    "fit_intercept": FLAG,
    "tol": NOT_NEGATIVE,
    "max_iter": FROM_ONE,
    "memory_limit": [*POSITIVE, "8 GB"],
    "precision": [*NAME, "half", np.float32],
    "solver": NAME,
}
TOL, STEPS = {"tol": NOT_NEGATIVE}, {"max_iter": FROM_ONE}
BOUND = [*TEXT, np.nan, np.inf, [], ["a"], [np.inf]]
DIMENSION = {"lower": BOUND, "upper": BOUND, "per": ["row", 1, [], "features"], "tie": ["ab", 3, {"a": 1}]}
VALUES = ["C", 3, {"C": "1"}, {"C": []}, {"C": [np.nan]}, {"C": None}, None]

REFUSED = {
    BilevelSearchCV: {
        "estimator": [None, 3, "svc", SVC, LinearSVC, [], BaseEstimator()],
        "space": ["C", 3, {"width": (1, 2)}, {}, [3], {"C": 3}, {"C": "ab"}, {"C": (1, np.nan)}, {"C": (0, 1, 2)}],
        "param_grid": ["C", 3, {"width": [1, 2]}, {}, [3], {"C": []}, {"C": [0.0, 1.0]}],
        "param_distributions": ["C", 3, {"width": (1, 2)}, [{}, 3]],
        "method": ["sgd", None, 3, [], optimizers.Grid, {"newton": 1}],
        "criterion": ["r2", "accuracy", None, 3, foldwise.Squared, print],
        "criterion_weight": ["even", 0.5, [1, 2], {0: np.nan}, {0: -1.0}, True],
        "cv": [1, 0, -1, 2.0, 2.5, "5", "kfold", True, False, np.nan, {}, object(), []],
        "n_starts": [v for v in FROM_ONE if v is not None],
        "scoring": ["acuracy", 3, [], {}, {1: "r2"}, ["r2", "r2"], "accuracy", [3], r2_score],
        "refit": ["r2", None, 2, 1, []],
        "return_train_score": [*FLAG, True],
        "error_score": ["nan", None, np.inf, [0.0], True],
        "threshold": ["no", 2, 1, 0, 0.5, [], np.nan, True],
        "rescale": ["no", None, 2, 1.0, []],
        "tol": [v for v in NOT_NEGATIVE if v is not None],
        "max_iter": [v for v in FROM_ONE if v is not None],
        "max_time": ["5", np.nan, -1, 0, True, [1], 1j],
        "callbacks": [print, [3], None, 3, "print", [print, None], {"a": print}],
        "n_jobs": [0, 0.5, 2.0, "all", True, np.nan, [1]],
        "random_state": [-1, 0.5, "seed", 2**40, np.random.default_rng(0), [1], True],
        "verbose": [-1, "yes", 0.5, None, [1]],
        "method_options": [3, "grid", [("points", 3)], {3: 3}, {"pints": 3}, {"tol": -1}, {"max_iter": "3"}],
        "shrinkage": [-5, np.nan, np.inf, "1", [1.0], True],
        "prior": [-5, np.nan, np.inf, "1", [1.0], True],
        "repeats": [0, -1, 2.0, "3", None, True, [2]],
        "choice": ["one se", None, 0, -1.0, 11, np.nan, True, [1.0]],
        "confirm": ["yes", None, 2, 1, 0.0, []],
        "low_rank": ["yes", None, 2, 1, 0.0, []],
        "checkpoint": [3, True, ["a"], 1.5],
        "resume": FLAG,
    },
    LinearSVC: {**LINEAR, "class_weight": WEIGHTS},
    LinearSVR: {**LINEAR, "epsilon": [*NOT_NEGATIVE, *ARRAY]},
    KernelSVC: {**KERNEL, "class_weight": WEIGHTS},
    KernelSVR: {**KERNEL, "epsilon": [*NOT_NEGATIVE, *ARRAY]},
    SemiparametricSVR: {
        **{name: KERNEL[name] for name in ("kernel", "fit_intercept", "memory_limit")},
        "basis": ["x0", 3, print, np.sin, ["nothing"], [None], [7], [(1, 2)], np.zeros(3), np.full((30, 1), np.nan)],
        "C": [*POSITIVE, [1.0]],
        "epsilon": [*NOT_NEGATIVE, [0.1]],
        "solver": NAME,
        "tol": POSITIVE,
        "cache_size": POSITIVE,
        "max_iter": [v for v in FROM_ONE if v is not None],
    },
    RBF: {"gamma": [*NOT_NEGATIVE, *ARRAY, [-1.0], "scale", "auto"], "ard": FLAG},
    Polynomial: {"degree": FROM_ONE, "gamma": [*NOT_NEGATIVE, [1.0, 2.0]], "coef0": [*NOT_NEGATIVE, [1.0, 2.0]]},
    ExpChi2: {"gamma": [*NOT_NEGATIVE, [1.0, 2.0]]},
    Sum: {
        "kernels": [[], None, 3, RBF(), "rbf", ["rbf"], [RBF], [None], {}],
        "weights": [[1.0], [1.0, np.nan], [-1.0, 1.0], "1", ["a", "b"], [[1.0, 1.0]], [np.inf, 1.0]],
        "columns": ["ab", 3, [[0]], [[0], [9]], [[0], []], [[0], ["a"]], [[0], [1.5]], [[0], 1.5]],
    },
    losses.Pinball: {"quantile": [*POSITIVE, 1.0, 2, [0.5]]},
    losses.SquaredEpsilonInsensitive: {"epsilon": [*NOT_NEGATIVE, [], ["a"]]},
    losses.SmoothedEpsilonInsensitive: {"epsilon": [*NOT_NEGATIVE, [], ["a"]], "band": POSITIVE},
    losses.EpsilonInsensitive: {"epsilon": [*NOT_NEGATIVE, [], ["a"]]},
    losses.Huber: {"delta": POSITIVE},
    losses.Logistic: {"s": POSITIVE},
    losses.ModifiedLogHinge: {"mu": POSITIVE},
    losses.QuarticHinge: {"epsilon": POSITIVE},
    losses.SmoothMisclassification: {"s": POSITIVE},
    Log: DIMENSION,
    Lin: DIMENSION,
    BasisFunctions: {"functions": [None, "x0", 3, print, [None], ["nothing"], [9], [1.5]]},
    optimizers.TrustRegionNewton: {**TOL, **STEPS, "hessian": NAME, "radius": POSITIVE, "polls": COUNT},
    optimizers.LBfgsB: {**TOL, **STEPS, "memory": FROM_ONE},
    optimizers.Bfgs: {"tol1": NOT_NEGATIVE, "tol2": NOT_NEGATIVE, "rule": NAME, **STEPS},
    optimizers.Rprop: {
        **TOL,
        **STEPS,
        **dict.fromkeys(("first", "smallest", "largest"), POSITIVE),
        "grow": [*POSITIVE, 1.0],
        "shrink": [*POSITIVE, 1.0],
    },
    optimizers.Bundle: {**TOL, **STEPS, "radius": POSITIVE, "memory": FROM_ONE},
    optimizers.Grid: {"points": FROM_ONE, "values": VALUES, "max_points": FROM_ONE},
    optimizers.Random: {"n_iter": FROM_ONE, "seed": [-1, 0.5, "seed", True, [1]]},
    optimizers.ConstrainedGrid: {
        "max_features": [*COUNT, 0, 21],
        "points": FROM_ONE,
        "values": VALUES,
        "max_points": FROM_ONE,
        "box": [None, 3, []],
    },
    optimizers.PenalizedBilevel: {
        **TOL,
        **STEPS,
        "eta": NOT_NEGATIVE,
        "zeta": POSITIVE,
        "rho": [*POSITIVE, 1.0],
        "slack": POSITIVE,
        "growth": [*POSITIVE, 1.0],
        "tau": POSITIVE,
        "tube": NOT_NEGATIVE,
        "corrections": COUNT,
        "two_stage": FLAG,
        "constraints": [3, "ab", [1], ([[1.0]], [np.nan]), ("A", "c"), {}],
    },
    optimizers.Mpec: {
        **dict.fromkeys(("backend", "preset", "form", "complementarity"), NAME),
        "tol": POSITIVE,
        "first_tol": [v for v in POSITIVE if v is not None],
        "chain": FLAG,
        "n_starts": [v for v in FROM_ONE if v is not None],
        **STEPS,
        "n_max": [v for v in COUNT if v is not None],
        "from_start": FLAG,
        "max_pairs": FROM_ONE,
    },
    optimizers.Slams: {
        "early": FLAG,
        **dict.fromkeys(("rounds", "n_starts", "patience", "max_pairs"), FROM_ONE),
        "tol": POSITIVE,
        **STEPS,
        "n_max": [v for v in COUNT if v is not None],
        "from_start": FLAG,
    },
    optimizers.Rescued: {"method": ["newton", None, optimizers.Grid], "pbp": ["pbp", None], "always": FLAG},
}  # fmt: skip
"""Values that no parameter may have."""


def public():
    """Every public class that is made with parameters."""
    rooms = (foldwise, optimizers, kernels, losses)
    named = [getattr(room, name) for room in rooms for name in room.__all__]
    found = {kind for kind in [*named, BasisFunctions] if isinstance(kind, type)}
    internal = {foldwise.Result, kernels.DistancePairs, optimizers.Trace}
    return sorted(found - internal, key=lambda kind: kind.__name__)


def parameters(kind):
    names = inspect.signature(kind).parameters if kind.__init__ is not object.__init__ else ()
    return {name for name in names if name not in ("args", "kwargs")}


@pytest.mark.parametrize("kind", public(), ids=lambda kind: kind.__name__)
def test_every_parameter_of_every_public_class_is_in_the_tables(kind):
    names = parameters(kind)
    assert set(REFUSED.get(kind, {})) == names, "a parameter without values that it must refuse"
    own = getattr(kind, "_arguments", {})
    assert set(own) == names - {"estimator"}, "a parameter without a rule"
    assert not names or all(isinstance(rule, Rule) and rule.needs for rule in own.values())


CASES = [(kind, name) for kind, table in REFUSED.items() for name in table]


NAMED = {
    "estimator": "cannot tune",
    "kernel": "kernel|RBF: gamma|Sum: kernels",
    "functions": "functions|basis",
    "method_options": "method_options|option 'pints'|tol|max_iter",
    "space": "space|hyper-parameter 'width'",
    "param_grid": "param_grid|space|parameter 'width'|bounds of 'C'",
    "param_distributions": "param_distributions|space|parameter 'width'",
    "basis": "basis",
}
"""How an error names a parameter, where it does not by its name: by what is wrong inside it."""


def use(kind, name, value):
    """Make an object with this parameter and use it as a user would, in a search."""
    given = {name: value}
    if kind in (Log, Lin):
        dimension = kind(
            **({"lower": 1.0, "upper": 2.0} | ({"per": "feature"} if name == "tie" else {}) | given)
        )
        return BilevelSearchCV(LinearSVR(), {"lam": dimension}, cv=3).fit(X, Y)
    if dataclasses.is_dataclass(kind) and issubclass(kind, losses.Loss):
        return kind(**given)
    if issubclass(kind, optimizers.Minimizer):
        names = {method: key for key, method in optimizers.METHODS.items()}
        if kind not in names:
            return kind(**given)
        return BilevelSearchCV(LinearSVR(), cv=3, method=names[kind], method_options=given).fit(X, Y)
    if kind is BilevelSearchCV:
        return kind(**({"estimator": KernelSVR(), "cv": 3} | given)).fit(X, Y)
    if kind is BasisFunctions:
        return kind(**given).fit(X)
    if issubclass(kind, kernels.Kernel):
        base = {"kernels": [RBF(), Linear()]} if kind is Sum else {}
        return BilevelSearchCV(KernelSVR(kind(**(base | given))), ["C"], cv=3).fit(X, Y)
    base = {"reference": [1.0, 1.0, 1.0]} if name == "proximity" else {}
    if name == "box_lower":
        base = {"box": 1.0}
    if name == "l1_ratio":
        exact = "epsilon_insensitive" if kind is LinearSVR else "hinge"
        base = {"loss": exact, "penalty": "elasticnet"}
    return BilevelSearchCV(kind(**(base | given)), ["C"], cv=3).fit(
        X, LABELS if kind in (LinearSVC, KernelSVC) else Y
    )


@pytest.mark.parametrize(("kind", "name"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_what_a_parameter_must_not_be_is_refused_before_any_evaluation(kind, name, monkeypatch):
    def never(self, *args, **kwargs):
        raise AssertionError("evaluated")

    monkeypatch.setattr(Bilevel, "evaluate", never)
    for value in REFUSED[kind][name]:
        with pytest.raises(ValueError) as caught:
            use(kind, name, value)
        words = str(caught.value)
        assert re.search(NAMED.get(name, name), words), (value, words)
        assert len(words) < 700, words


@pytest.mark.parametrize("kind", [LinearSVC, LinearSVR, KernelSVC, KernelSVR, SemiparametricSVR])
def test_an_estimator_alone_refuses_the_same(kind):
    target = LABELS if kind in (LinearSVC, KernelSVC) else Y
    for name, values in REFUSED[kind].items():
        for value in values:
            given = {name: value}
            if name == "proximity":
                given["reference"] = [1.0, 1.0, 1.0]
            if name == "box_lower":
                given["box"] = 1.0
            model = kind(**given)
            with pytest.raises(ValueError, match=NAMED.get(name, name)):
                model.fit(X, target)
            assert not [key for key in vars(model) if key.endswith("_")]


def test_a_rule_says_what_is_needed_what_was_got_and_what_to_do():
    rule = Rule("even", lambda v: v % 2 == 0, "Add 1")
    with pytest.raises(ValueError, match=r"^Thing: k must be even; got 3\. Add 1$"):
        check_value("k", 3, rule, "Thing")
    with pytest.raises(ValueError, match=r"^k must be even; got None\. Add 1$"):
        check_value("k", None, rule)
    check_value("k", 2, rule)


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (number(above=0), [1, 1.0, np.float32(2), np.int64(3), np.array(2.0), 1e-300]),
        (number(at_least=0, at_most=1), [0, 1, 0.5]),
        (numbers(above=0), [1.0, [1, 2], np.ones(3), (1.0,)]),
        (numbers(finite=False), [np.inf, [1.0, np.inf], -np.inf]),
        (integer(), [1, np.int32(5)]),
        (integer(0) | NONE, [0, None]),
        (one_of(None, "a"), [None, "a"]),
    ],
)
def test_what_a_rule_allows(rule, good):
    assert all(rule.allows(value) for value in good)


def test_errors_show_any_object_on_one_short_line():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    assert shown(Broken()) == "an object of Broken"
    assert len(shown(np.arange(1e5).reshape(100, -1))) < 110
    assert "\n" not in shown(np.eye(9))
