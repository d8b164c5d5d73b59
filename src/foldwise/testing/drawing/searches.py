"""A random method, space, options and splitter, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foldwise.testing.drawing.dice import Dice, Plan

__all__ = ["draw_method", "draw_options", "draw_space", "draw_splitter"]

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
