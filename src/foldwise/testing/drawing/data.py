"""Random data and the steps before a machine, as text."""

from __future__ import annotations

from foldwise.testing.drawing.dice import Dice, Plan

__all__ = ["draw_data", "draw_size", "draw_steps"]

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


def draw_size(dice: Dice, plan: Plan, method: str) -> tuple[int, int]:
    small = method in ("mpec", "pbp", "slams")
    tiny = method == "mpec" and plan.kind == "kernel"
    n = int(dice.rng.integers(12, 15 if tiny else 25 if small else 40 if dice.chance(0.6) else 121))
    d = int(dice.rng.integers(1, 4 if small else 7))
    return n, d


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
