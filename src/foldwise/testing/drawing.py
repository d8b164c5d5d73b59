"""The parts of a random search: an estimator, a method, data, steps, a space, options, a splitter, each as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "Dice",
    "Plan",
    "draw_data",
    "draw_machine",
    "draw_method",
    "draw_options",
    "draw_size",
    "draw_space",
    "draw_splitter",
    "draw_steps",
]


class Dice:
    """Choices with words."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 20])

    def one(self, options: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        """One of the options."""
        share = None if weights is None else np.asarray(weights, float) / np.sum(weights)
        return options[int(self.rng.choice(len(options), p=share))]

    def chance(self, p: float) -> bool:
        """True with probability ``p``."""
        return bool(self.rng.random() < p)

    def number(self, low: float, high: float) -> str:
        """A number between the two on a log scale, with two digits."""
        return f"{float(np.exp(self.rng.uniform(np.log(low), np.log(high)))):.2g}"

    def subset(self, options: Sequence[Any], least: int = 1) -> list[Any]:
        """Some of the options, in their order."""
        size = int(self.rng.integers(least, len(options) + 1))
        kept = sorted(self.rng.choice(len(options), size, replace=False).tolist())
        return [options[k] for k in kept]


@dataclass
class Plan:
    """What later choices must know about earlier ones."""

    task: str
    kind: str
    n: int = 40
    d: int = 3
    classes: int = 2
    spread: float = 1.0
    sparse: bool = False
    frame: bool = False
    weights: bool = False
    groups: bool = False
    precomputed: bool = False
    positive: bool = False
    rough: bool = False
    method: str = "auto"
    ours: bool = False
    exact: bool = False
    loss: str = ""
    names: list[str] = field(default_factory=list)
    per: dict[str, tuple[str, ...]] = field(default_factory=dict)


MACHINES = {
    "LinearSVC": 3,
    "LinearSVR": 3,
    "KernelSVC": 3,
    "KernelSVR": 3,
    "SemiparametricSVR": 1,
    "svm.SVC": 3,
    "svm.SVR": 3,
    "KernelRidge": 2,
    "svm.LinearSVC": 1.5,
    "svm.LinearSVR": 1.5,
    "Ridge": 1.5,
    "LogisticRegression": 1.5,
}
CLASSIFIERS = {"LinearSVC", "KernelSVC", "svm.SVC", "svm.LinearSVC", "LogisticRegression"}
KERNEL_MACHINES = {"KernelSVC", "KernelSVR", "SemiparametricSVR", "svm.SVC", "svm.SVR", "KernelRidge"}


def draw_machine(dice: Dice) -> tuple[Plan, str, dict[str, str]]:
    """The estimator with random arguments, and what of it can be tuned."""
    machine = dice.one(list(MACHINES), list(MACHINES.values()))
    task = "classification" if machine in CLASSIFIERS else "regression"
    plan = Plan(task, "kernel" if machine in KERNEL_MACHINES else "linear")
    plan.ours = machine in ("LinearSVC", "LinearSVR", "KernelSVC", "KernelSVR")
    params: dict[str, str] = {}
    if machine in ("LinearSVC", "LinearSVR"):
        _linear_params(dice, plan, params)
    elif machine in ("KernelSVC", "KernelSVR", "SemiparametricSVR"):
        _kernel_params(dice, plan, params, machine)
    elif machine in ("svm.SVC", "svm.SVR", "KernelRidge"):
        _sk_kernel_params(dice, plan, params, machine)
    else:
        _sk_linear_params(dice, plan, params, machine)
    if task == "classification" and dice.chance(0.3):
        params["class_weight"] = dice.one(["'balanced'", "dict(zip(np.unique(y), [1.0, 3.0, 2.0]))"])
    if plan.ours and dice.chance(0.15):
        params["fit_intercept"] = "False"
    return plan, machine, params


def _linear_params(dice: Dice, plan: Plan, params: dict[str, str]) -> None:
    if plan.task == "classification":
        losses = [
            "squared_hinge",
            "hinge",
            "logistic",
            "modified_huber",
            "modified_log_hinge",
            "quartic_hinge",
        ]
        plan.names = ["C", "lam", "class_weight"]
        plan.per = {"C": ("class", "group"), "lam": ("feature",), "class_weight": ("class",)}
    else:
        losses = ["squared_epsilon_insensitive", "epsilon_insensitive", "squared", "huber"]
        plan.names = ["C", "lam"]
        plan.per = {"C": ("group",), "lam": ("feature",), "epsilon": ("group",)}
    plan.loss = dice.one(losses, [3, 3, *[1] * (len(losses) - 2)])
    plan.exact = plan.loss in ("hinge", "epsilon_insensitive")
    if plan.loss.endswith("epsilon_insensitive"):
        plan.names.append("epsilon")
    if dice.chance(0.8) or not plan.loss.startswith("squared_"):
        params["loss"] = repr(plan.loss)
        if plan.loss == "huber" and dice.chance(0.3):
            params["loss"] = "Huber(delta=0.5)"
        if plan.loss == "quartic_hinge" and dice.chance(0.3):
            params["loss"] = "QuarticHinge(epsilon=0.3)"
    if dice.chance(0.3):
        params["C"] = dice.one([dice.number(1e-3, 1e3), "np.float32(0.5)", "2", "np.int64(3)"])
    if dice.chance(0.2):
        params["lam"] = dice.one([dice.number(1e-2, 1e2), "np.linspace(0.5, 2, d)"])
    if "epsilon" in plan.names and dice.chance(0.4):
        params["epsilon"] = dice.one(["0.1", "0", "0.5", "np.float64(0.05)"])
    if plan.exact and dice.chance(0.25):
        params["penalty"] = dice.one(["'l1'", "'elasticnet'"])
        if params["penalty"] == "'elasticnet'":
            params["l1_ratio"] = dice.one(["0.2", "0.7", "np.float32(0.5)"])
    if dice.chance(0.3):
        plan.names += ["box"] if dice.chance(0.8) else ["box", "box_lower"]
        plan.per |= {"box": ("feature",), "box_lower": ("feature",)}
        if dice.chance(0.4):
            params["box"] = dice.one(["1.0", "0.3", "np.full(d, 0.5)"])
        if dice.chance(0.2):
            params["box_lower"] = dice.one(["-0.1", "np.full(d, -0.2)", "0.0"])
            params.setdefault("box", "0.5")
    if dice.chance(0.08):
        params["reference"] = "np.zeros(d)" if dice.chance(0.5) else "np.linspace(-1, 1, d)"
        params["proximity"] = dice.number(1e-2, 10)
        plan.names.append("proximity")


def _kernel_params(dice: Dice, plan: Plan, params: dict[str, str], machine: str) -> None:
    plan.names, plan.per = ["C"], {"C": ("group",)}
    if machine == "KernelSVC":
        losses = [
            "quartic_hinge",
            "hinge",
            "squared_hinge",
            "logistic",
            "modified_huber",
            "modified_log_hinge",
        ]
        plan.names.append("class_weight")
        plan.per = {"C": ("class", "group"), "class_weight": ("class",)}
    elif machine == "KernelSVR":
        losses = ["squared_epsilon_insensitive", "epsilon_insensitive", "squared", "huber"]
        plan.per["epsilon"] = ("group",)
    else:
        losses = ["epsilon_insensitive"]
        plan.per = {}
    plan.loss = dice.one(losses, [3, 2, 1, 1, 1, 1][: len(losses)])
    plan.exact = plan.loss in ("hinge", "epsilon_insensitive")
    if plan.loss.endswith("epsilon_insensitive"):
        plan.names.append("epsilon")
    kernel = dice.one(
        [
            "",
            "'rbf'",
            "RBF(ard=True)",
            "RBF(0.3)",
            "'linear'",
            "Polynomial(2)",
            "'poly'",
            "Polynomial(3, gamma=0.2, coef0=0.5)",
            "Sum([RBF(), Linear()])",
            "Sum([RBF(ard=True), RBF(2.0)], columns=[[0], None])",
            "'precomputed'",
            "ExpChi2(0.5)",
            "AdditiveChi2()",
        ],
        [4, 1, 3, 1, 1, 1, 0.5, 0.5, 1, 0.5, 0.3, 0.4, 0.2],
    )
    plan.precomputed, plan.positive = kernel == "'precomputed'", "Chi2" in kernel
    if kernel == "RBF(ard=True)":
        plan.per["kernel__gamma"] = ("feature",)
    if kernel:
        params["kernel"] = kernel
    if "RBF" in kernel or "Exp" in kernel or kernel in ("", "'rbf'"):
        plan.names.append("kernel__k0__gamma" if "Sum" in kernel else "kernel__gamma")
    if "oly" in kernel:
        plan.names += ["kernel__gamma", "kernel__coef0"]
    if "Sum" in kernel:
        plan.names.append("kernel__weights")
    if machine == "SemiparametricSVR":
        params["basis"] = dice.one(
            [
                "[0]",
                "[lambda X: np.asarray(X)[:, 0] ** 2]",
                "None",
                "[('last', lambda X: np.asarray(X)[:, -1])]",
            ]
        )
    elif plan.loss != "quartic_hinge" or dice.chance(0.2):
        params["loss"] = repr(plan.loss)
    if dice.chance(0.4):
        params["C"] = dice.one([dice.number(1e-2, 1e3), "np.float32(2)", "10"])
    if "epsilon" in plan.names and dice.chance(0.4):
        params["epsilon"] = dice.one(["0.01", "0", "0.3", "np.float64(0.05)"])


def _sk_kernel_params(dice: Dice, plan: Plan, params: dict[str, str], machine: str) -> None:
    plan.exact = machine != "KernelRidge"
    plan.names = {"svm.SVC": ["C"], "svm.SVR": ["C", "epsilon"], "KernelRidge": ["alpha"]}[machine]
    if machine == "KernelRidge":
        kernel = dice.one(
            ["'rbf'", "'linear'", "'polynomial'", "'poly'", "'precomputed'", ""], [5, 1, 1, 1, 0.3, 1]
        )
        gammas = ["None", "0.5", "np.float32(0.2)", "1", "np.float64(0.3)", ""]
    else:
        kernel = dice.one(
            ["", "'rbf'", "'linear'", "'poly'", "'precomputed'", "'sigmoid'"], [6, 1, 1, 1, 0.3, 0.1]
        )
        gammas = ["'scale'", "'auto'", "0.5", "np.float32(0.2)", "1", "np.float64(0.3)", ""]
    plan.loss = {"svm.SVC": "hinge", "svm.SVR": "epsilon_insensitive", "KernelRidge": "squared"}[machine]
    plan.precomputed = kernel == "'precomputed'"
    if kernel:
        params["kernel"] = kernel
    if gamma := dice.one(gammas):
        params["gamma"] = gamma
    if kernel in ("'rbf'", "'poly'", "'polynomial'") or (not kernel and machine != "KernelRidge"):
        plan.names.append("gamma")
    if "poly" in kernel:
        plan.names.append("coef0")
        params["degree"] = dice.one(["2", "3"])
        if dice.chance(0.5):
            params["coef0"] = dice.one(["1.0", "0.5", "1"])
    strength = plan.names[0]
    if dice.chance(0.4):
        params[strength] = dice.one([dice.number(1e-2, 1e3), "np.float32(2)", "10"])
    if "epsilon" in plan.names and dice.chance(0.4):
        params["epsilon"] = dice.one(["0.01", "0.0", "0.3", "np.float64(0.05)"])
    if dice.chance(0.1) and machine != "KernelRidge":
        params["shrinking"] = "False"


def _sk_linear_params(dice: Dice, plan: Plan, params: dict[str, str], machine: str) -> None:
    plan.names = {"svm.LinearSVR": ["C", "epsilon"], "Ridge": ["alpha"]}.get(machine, ["C"])
    if machine == "svm.LinearSVR" and dice.chance(0.95):
        params["loss"] = "'squared_epsilon_insensitive'"
        params["dual"] = dice.one(["False", "True"])
    if machine == "svm.LinearSVC" and dice.chance(0.1):
        params["loss"] = "'hinge'"
    if machine == "LogisticRegression":
        if dice.chance(0.4):
            params["solver"] = dice.one(["'liblinear'", "'newton-cholesky'", "'newton-cg'"])
        if dice.chance(0.15):
            params["l1_ratio"] = dice.one(["0.0", "0", "0.5", "np.float64(0.0)"])
    plan.loss = {"svm.LinearSVC": "squared_hinge", "LogisticRegression": "logistic", "Ridge": "squared"}.get(
        machine, "squared_epsilon_insensitive"
    )
    if dice.chance(0.15):
        params["fit_intercept"] = "False"
    if machine.startswith("svm") and dice.chance(0.15):
        params["intercept_scaling"] = dice.one(["10.0", "0.5", "3"])
    if dice.chance(0.3):
        params[plan.names[0]] = dice.one([dice.number(1e-3, 1e3), "np.float32(2)", "10"])


OBJECTS = ["TrustRegionNewton(hessian='gauss-newton')", "LBfgsB(max_iter=5)", "Random(n_iter=4)"]


def draw_method(dice: Dice, plan: Plan) -> tuple[str, dict[str, str]]:
    """A method and a criterion, mostly ones that go together."""
    classes = plan.task == "classification"
    smooth = ["squared", "squared_hinge", "modified_huber", "logistic", "smooth_misclassification"]
    criterion = "auto"
    if dice.chance(0.5):
        objects = ["Logistic(s=1.0)", "SmoothMisclassification(s=10.0)"]
        more = [*smooth, "hinge", "misclassification", "absolute", *objects]
        names = more if classes else ["squared", "absolute"]
        criterion = dice.one(names)
    if dice.chance(0.02):
        criterion = dice.one(["hinge", "squared", "misclassification", "accuracy"])
    rough = plan.rough = criterion == "misclassification"
    corner = criterion in ("absolute", "hinge")
    if dice.chance(0.05):
        method = dice.one([
            "newton", "lbfgsb", "bfgs", "rprop", "pbp", "bundle", "mpec", "slams", "grid", "constrained_grid", "random"
        ])  # fmt: skip
    elif rough:
        method = dice.one(["auto", "grid", "random"])
    else:
        method = dice.one(
            ["auto", "newton", "lbfgsb", "bfgs", "rprop", "bundle", "grid", "random"],
            [6, 3, 2, 1, 1, 1, 1, 1],
        )
    linear_exact = plan.exact and plan.kind == "linear" and plan.ours
    if linear_exact and dice.chance(0.2):
        method = dice.one(["mpec", "slams"])
        criterion = dice.one(["hinge", "misclassification"]) if classes else "absolute"
    elif plan.kind == "linear" and not plan.exact and not rough and dice.chance(0.08):
        method = "pbp"
    elif corner and plan.exact and dice.chance(0.3):
        method = "bundle"
    if "box" in plan.names and plan.kind == "linear" and dice.chance(0.15):
        method = "constrained_grid"
    widths = plan.kind == "kernel" and "kernel__gamma" in plan.per and plan.loss == "hinge"
    if widths and dice.chance(0.15):
        method, criterion = "mpec", dice.one(["hinge", "misclassification"])
    out = {"method": repr(method) if method != "auto" else "", "criterion": ""}
    if method == "auto" and not rough and dice.chance(0.06):
        method, out["method"] = "object", dice.one(OBJECTS)
    if criterion != "auto":
        out["criterion"] = criterion if "(" in criterion else repr(criterion)
    return method, out


def draw_size(dice: Dice, plan: Plan, method: str) -> tuple[int, int]:
    small = method in ("mpec", "pbp", "slams")
    tiny = method == "mpec" and plan.kind == "kernel"
    n = int(dice.rng.integers(12, 15 if tiny else 25 if small else 40 if dice.chance(0.6) else 121))
    d = int(dice.rng.integers(1, 4 if small else 7))
    return n, d


WEIGHTS = [
    "rng.uniform(0.2, 2, n)",
    "rng.integers(0, 3, n)",
    "np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.5, 2, n))",
    "1e-6 * rng.uniform(0.2, 2, n)",
    "1e4 * rng.uniform(0.2, 2, n)",
    "rng.uniform(0.2, 2, n).astype(np.float32)",
]
STEPS = {
    "StandardScaler()": 8,
    "StandardScaler(with_std=False)": 1,
    "StandardScaler(with_mean=False)": 1,
    "MinMaxScaler()": 2,
    "MaxAbsScaler()": 1,
    "PCA(1)": 0.5,
    "PCA()": 0.5,
    "SelectKBest(k=1)": 1,
    "PolynomialFeatures(2, include_bias=False)": 0.7,
    "'passthrough'": 0.7,
}


def draw_data(dice: Dice, plan: Plan) -> tuple[list[str], dict[str, str]]:
    """Statements that make X, y, weights and groups; what ``fit`` is given of them."""
    draws = ["X = rng.normal(size=(n, d))", "X = rng.uniform(size=(n, d))"]
    lines = [draws[1] if plan.positive else dice.one(draws, [3, 1])]
    signal = dice.one(
        ["X.sum(axis=1)", "np.sin(2 * X[:, 0])", "X[:, 0] * X[:, -1]", "X[:, 0] - 0.5 * X[:, -1]"]
    )
    noise = dice.one(["0.3", "0.3", "1.0", "0.01"])
    lines.append(f"y = {signal} + {noise} * rng.normal(size=n)")
    lines += _classes(dice, plan) if plan.task == "classification" else _targets(dice, plan)
    # 1. Columns.
    if dice.chance(0.15):
        lines.append("X[:, 0] = 2.0" if plan.d > 1 or dice.chance(0.1) else "X[: n // 2, 0] = 2.0")
    if dice.chance(0.15) and plan.d > 1:
        lines.append("X[:, -1] = X[:, 0]")
    if dice.chance(0.12):
        lines.append("X = X * 10.0 ** rng.integers(-8, 9, d)")
    elif dice.chance(0.2):
        lines.append("X = X * 10.0 ** rng.integers(-2, 3, d)")
    if dice.chance(0.08):
        lines.append(f"X = X + {dice.one(['1e3', '1e6', '50' if plan.positive else '-50'])}")
    if dice.chance(0.06):
        lines.append("X[n // 2 :] = X[: n - n // 2]")
    # 2. How X is kept.
    if plan.precomputed:
        lines.append(
            "X = X @ X.T" if dice.chance(0.4) else "X = np.exp(-0.2 * ((X[:, None] - X) ** 2).sum(-1))"
        )
    form = dice.one(
        ["", "int", "float32", "fortran", "readonly", "frame", "sparse", "strided", "list"],
        [14, 1, 1, 1, 1, 1.5, 1.5, 1, 0.3],
    )
    if plan.precomputed and form in ("int", "sparse", "frame"):
        form = ""
    how = {
        "int": "X = np.round(3 * np.clip(X, -1e6, 1e6)).astype(int)",
        "float32": "X = X.astype(np.float32)",
        "fortran": "X = np.asfortranarray(X)",
        "readonly": "X.setflags(write=False)",
        "frame": "X = pd.DataFrame(X, columns=[f'c{j}' for j in range(d)])",
        "sparse": dice.one(
            ["X = sp.csr_array(X * (np.abs(X) > 0.3))", "X = sp.csc_matrix(X * (rng.random((n, d)) < 0.7))"]
        ),
        "list": "X = X.tolist()",
        "strided": "X = np.repeat(X, 2, axis=0)[::2]",
    }
    if form:
        lines.append(how[form])
    plan.sparse, plan.frame = form == "sparse", form == "frame"
    # 3. What is known about the rows.
    fit: dict[str, str] = {}
    if dice.chance(0.3):
        plan.weights = True
        fit["sample_weight"] = "w"
        lines.append(f"w = {dice.one(WEIGHTS)}")
    if plan.ours and dice.chance(0.12) and plan.method != "grid":  # a value per group makes a large grid
        plan.groups = True
        fit["sample_groups"] = "g"
        lines.append(dice.one(["g = np.arange(n) % 2", "g = np.array(['a', 'b', 'c'])[np.arange(n) % 3]"]))
    if dice.chance(0.05):
        lines.append(dice.one(["y = y.tolist()", "y = pd.Series(y)", "y = y.astype(object)"], [1, 1, 0.3]))
    return lines, fit


def _classes(dice: Dice, plan: Plan) -> list[str]:
    plan.classes = dice.one([2, 3, 4], [8, 2, 0.5])
    if plan.classes > 2:
        lines = [
            f"y = np.digitize(y, np.quantile(y, {[round(k / plan.classes, 2) for k in range(1, plan.classes)]}))"
        ]
        if dice.chance(0.3):
            lines.append("y = 10 * y")
        return lines
    cut = dice.one(["np.median(y)", "np.sort(y)[-6]", "np.sort(y)[n // 4]"], [4, 1, 2])
    form = dice.one(
        ["(y > {}).astype(int)", "y > {}", "np.where(y > {}, 1.0, -1.0)", "np.where(y > {}, 'yes', 'no')"],
        [4, 1, 1, 1],
    )
    return [f"y = {form.format(cut)}"]


def _targets(dice: Dice, plan: Plan) -> list[str]:
    form = dice.one(["", "y = 1e-6 * y", "y = 1e4 * y", "y = y + 1e5", "y = np.round(3 * y).astype(int)",
                     "y = y.astype(np.float32)", "y = 100 * y + 150", "y = 1e-3 * y + 1"],
                    [10, 0.8, 1, 0.8, 1, 0.5, 1, 0.5])  # fmt: skip
    plan.spread = {
        "y = 1e-6 * y": 1e-6,
        "y = 1e4 * y": 1e4,
        "y = 100 * y + 150": 100.0,
        "y = 1e-3 * y + 1": 1e-3,
    }.get(form, 1.0)
    return [form] if form else []


def draw_steps(dice: Dice, plan: Plan) -> list[str]:
    if plan.precomputed or dice.chance(0.55):
        return []
    if plan.sparse:
        return [
            dice.one(
                ["StandardScaler(with_mean=False)", "MaxAbsScaler()", "'passthrough'", "StandardScaler()"],
                [3, 2, 1, 0.3],
            )
        ]
    steps = [dice.one(list(STEPS), list(STEPS.values()))]
    if dice.chance(0.2):
        steps.append(dice.one(["StandardScaler()", "MinMaxScaler()", "'passthrough'"]))
    return steps


def draw_space(dice: Dice, plan: Plan, method: str) -> Mapping[str, str] | tuple[str, ...] | None:
    """What is tuned and within which bounds."""
    needs_box = method == "constrained_grid" and "box" in plan.names
    if dice.chance(0.35) and not needs_box and method not in ("mpec", "slams"):
        return None
    names = [name for name in plan.names if not (name == "box" and method == "pbp")]
    if method in ("mpec", "slams"):
        own = ("C", "epsilon", "box", "box_lower", "kernel__gamma")
        names = [name for name in names if name in own] or names
    if method == "grid":
        names = dice.subset(names)[:2]
    chosen = [dice.one(names)] if dice.chance(0.3) else dice.subset(names)
    for pair in (("C", "lam"), ("C", "kernel__weights")):
        if set(pair) <= set(chosen) and not dice.chance(0.02):
            chosen.remove(dice.one(pair))
    if needs_box and "box" not in chosen:
        chosen = [*[name for name in chosen if name != "lam"][:1], "box"]
    if dice.chance(0.03):
        return {**dict.fromkeys(chosen, "None"), dice.one(["Cc", "gama", "kernel"]): "(0.1, 1)"}
    if dice.chance(0.15):
        return tuple(chosen)
    return {name: _bounds(dice, plan, name) for name in chosen}


def _bounds(dice: Dice, plan: Plan, name: str) -> str:
    """Bounds of one hyper-parameter, as a user may write them."""
    if dice.chance(0.2):
        return "None"
    last = name.split("__")[-1]
    if last == "epsilon":
        high = f"{plan.spread:g}"
        out = dice.one(["(0, {})", "Lin(0, {})", "Lin(0.0, 0.5 * {})", "Log(1e-4 * {0}, {0})"]).format(high)
    elif last == "box":
        out = dice.one(["Lin(0, 2)", "(0, 1)", "Lin(0.1, 0.5)"])
    elif last == "box_lower":
        out = dice.one(["Lin(-2, 0)", "(-1, 0)", "Lin(-0.5, -0.1)"])
    elif last == "class_weight":
        out = dice.one(["Log(0.1, 10, per='class')", "(0.1, 10)"])
    else:
        centre = float(dice.number(0.05, 5)) * (
            plan.spread**-1 if last == "C" and plan.loss == "epsilon_insensitive" else 1
        )
        wide = dice.one([1.0, 1.5, 10.0, 100.0, 1e3], [0.4, 1, 2, 3, 2])
        low, high = f"{centre / wide:.3g}", f"{centre * wide:.3g}"
        if float(low) > float(high):
            low = high
        out = dice.one([f"({low}, {high})", f"Log({low}, {high})", f"Lin({low}, {high})"], [3, 3, 1])
    allowed = plan.per.get(name, ())
    usable = [
        per for per in allowed if {"class": plan.classes > 2, "group": plan.groups, "feature": True}[per]
    ]
    if out[0] == "L" and usable and dice.chance(0.5) and "per=" not in out:
        per = dice.one(usable)
        out = f"{out[:-1]}, per={per!r})"
        if per == "feature" and dice.chance(0.3):
            out = f"{out[:-1]}, tie=np.arange(d) // 2)"
    return out


def draw_options(dice: Dice, plan: Plan, method: str, space: Any, prefix: str) -> dict[str, str]:
    out: dict[str, str] = {}
    if dice.chance(0.25):
        out["refit"] = dice.one(["False", "True"])
    if dice.chance(0.2):
        out["rescale"] = dice.one(["True", "False", "'auto'"])
    planned = method in ("grid", "random", "constrained_grid", "object") or (method == "auto" and plan.rough)
    planned = planned and not dice.chance(0.05)
    if dice.chance(0.12) and not planned:
        out["n_starts"] = dice.one(["1", "2", "3"])
    if dice.chance(0.1):
        out["n_jobs"] = dice.one(["1", "2"])
    if dice.chance(0.3) and not planned:
        out["max_iter"] = dice.one(["1", "3", "10"])
    if dice.chance(0.03):
        out["max_time"] = "60"
    if dice.chance(0.1) and not planned:
        out["tol"] = dice.one(["1e-3", "1e-7", "0.1"])
    if plan.kind == "kernel" and dice.chance(0.15):
        out["low_rank"] = dice.one(["False", "'auto'", "True"], [2, 1, 1])
    if plan.kind == "kernel" and dice.chance(0.15):
        out["shrinkage"] = dice.one(["0", "5.0", "0.5"])
    if dice.chance(0.4):
        out["random_state"] = dice.one(["0", "7", "np.random.RandomState(3)"], [3, 3, 0.3])
    if plan.task == "classification" and dice.chance(0.12):
        out["criterion_weight"] = dice.one(["'balanced'", "None", "dict(zip(np.unique(y), [2.0, 1.0]))"])
    tuned = 3 if space is None else len(space)
    if method == "grid":
        out["method_options"] = str(
            {"points": dice.one([2, 3, 4] if tuned > 2 else [3, 5]), "max_points": 800}
        )
    elif method == "random":
        out["method_options"] = str({"n_iter": dice.one([1, 5, 12])})
    elif method == "constrained_grid":
        out["method_options"] = str({"points": 3, "max_features": dice.one([1, 3]), "max_points": 800})
    elif method in ("mpec", "slams") and isinstance(space, dict) and "box" in space and dice.chance(0.4):
        out["method_options"] = str({"n_max": dice.one([1, 2])})
    elif method == "pbp" and isinstance(space, dict) and set(space) == {"C", "epsilon"} and dice.chance(0.3):
        if "per" not in "".join(space.values()):
            out["method_options"] = "{'constraints': ([[1.0, 1.0]], [0.5])}"
    elif (
        isinstance(space, dict)
        and "C" in space
        and method in ("auto", "lbfgsb", "rprop")
        and dice.chance(0.1)
    ):
        out["method_options"] = f"{{'start': {{'{prefix}C': 1.0}}}}"
    elif method == "newton" and dice.chance(0.1):
        out["method_options"] = "{'hessian': 'gauss-newton'}"
    return out


SPLITTERS = {
    "int": 8,
    "shuffled": 3,
    "stratified": 3,
    "stratified shuffle": 1,
    "group": 0.7,
    "shuffle": 1,
    "predefined": 0.7,
    "time": 0.7,
    "pairs": 1,
    "masks": 0.7,
    "bootstrap": 1,
    "overlap": 0.7,
    "repeated": 0.5,
    "oversampled": 0.3,
    "partial": 0.4,
}


def draw_splitter(dice: Dice, plan: Plan, method: str) -> tuple[str, str | None]:
    """What ``cv`` is, and a statement that makes the splitter's groups."""
    k = 3 if method in ("mpec", "slams", "pbp") else dice.one([2, 3, 4, 5])
    label = "np.arange(n)[rng.permutation(n)]"
    if plan.n <= 16 and plan.task == "regression" and dice.chance(0.1) and method != "mpec":
        return "LeaveOneOut()", None
    stratified = f"StratifiedKFold({k}, shuffle=True, random_state={plan.n})"
    kind = dice.one(list(SPLITTERS), list(SPLITTERS.values()))
    if kind in ("stratified", "stratified shuffle") and plan.task == "regression":
        kind = "shuffled"
    if kind == "group":
        return f"GroupKFold({k})", f"groups = rng.permutation(np.arange(n) % {2 * k})"
    folds = f"KFold({k}, shuffle=True, random_state=2).split(np.zeros(n))"
    masks = f"[(np.arange(n) % {k} != t, np.arange(n) % {k} == t) for t in range({k})]"
    return {
        "int": str(k) if k != 5 or dice.chance(0.5) else "",
        "shuffled": f"KFold({k}, shuffle=True, random_state={plan.n})",
        "stratified": stratified,
        "shuffle": f"ShuffleSplit({k}, test_size=0.3, random_state={plan.n})",
        "stratified shuffle": f"StratifiedShuffleSplit({k}, test_size=0.3, random_state={plan.n})",
        "predefined": f"PredefinedSplit(rng.permutation(np.arange(n) % {k}{dice.one(['', ' - 1'])}))",
        "time": "TimeSeriesSplit(3)",
        "pairs": f"list(KFold({k}, shuffle=True, random_state=1).split(np.zeros(n)))",
        "masks": masks,
        "bootstrap": f"[(rng.integers(0, n, n), {label}[: n // 3]) for _ in range({k})]",
        "overlap": f"[(rng.permutation(n)[: 2 * n // 3], rng.permutation(n)[: n // 3]) for _ in range({k})]",
        "repeated": f"RepeatedKFold(n_splits={min(k, 3)}, n_repeats=2, random_state=0)",
        "oversampled": f"[(np.r_[a, a[:3]], b) for a, b in {folds}]",
        "partial": f"[(a[::2], b) for a, b in {folds}]",
    }[kind], None  # fmt: skip
