"""A random estimator, as text."""

from __future__ import annotations

from foldwise.testing.drawing.dice import Dice, Plan

__all__ = ["draw_machine"]

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
    "RidgeClassifier": 1,
    "Lasso": 1,
    "ElasticNet": 1,
}
CLASSIFIERS = {"LinearSVC", "KernelSVC", "svm.SVC", "svm.LinearSVC", "LogisticRegression", "RidgeClassifier"}
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
    names = {"svm.LinearSVR": ["C", "epsilon"], "ElasticNet": ["alpha", "l1_ratio"]}
    plan.names = names.get(machine, ["alpha"] if machine in ("Ridge", "RidgeClassifier", "Lasso") else ["C"])
    if machine == "svm.LinearSVR":
        plan.loss = dice.one(["squared_epsilon_insensitive", "epsilon_insensitive"], [3, 1])
        plan.exact = plan.loss == "epsilon_insensitive"
        if not plan.exact:
            params["loss"] = repr(plan.loss)
            params["dual"] = dice.one(["False", "True"])
    elif machine == "svm.LinearSVC":
        plan.loss = dice.one(["squared_hinge", "hinge"], [3, 1])
        plan.exact = plan.loss == "hinge"
        if plan.exact:
            params["loss"] = "'hinge'"
        elif dice.chance(0.3):
            params |= {"penalty": "'l1'", "dual": "False"}
    else:
        plan.loss = "logistic" if machine == "LogisticRegression" else "squared"
    if machine == "LogisticRegression":
        if dice.chance(0.4):
            params["solver"] = dice.one(["'liblinear'", "'newton-cholesky'", "'newton-cg'"])
        if dice.chance(0.3):
            params["l1_ratio"] = dice.one(["0.0", "0", "0.5", "1.0", "np.float64(0.0)"])
            if params["l1_ratio"] in ("0.5", "1.0"):
                params["solver"] = "'saga'"
    if machine in ("Ridge", "Lasso", "ElasticNet") and dice.chance(0.2):
        params["positive"] = "True"
    if machine == "ElasticNet" and dice.chance(0.5):
        params["l1_ratio"] = dice.one(["0.1", "0.9", "np.float32(0.5)"])
    if dice.chance(0.15):
        params["fit_intercept"] = "False"
    if machine.startswith("svm") and dice.chance(0.15):
        params["intercept_scaling"] = dice.one(["10.0", "0.5", "3"])
    if dice.chance(0.3):
        params[plan.names[0]] = dice.one([dice.number(1e-3, 1e3), "np.float32(2)", "10"])
