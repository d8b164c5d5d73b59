"""Table 1: deaths by respiratory diseases in Milan, with and without a parametric part in temperature and SO2.

All columns are scaled to [0, 1], a fifth of the days is held out at random, gamma = 25 and epsilon = 0.01 as in the
paper; C is selected by 10-fold cross-validation on the other days, here by following its gradient. The paper's split is
not known, so ours are several. Inputs are day, day of the week, holiday, temperature, humidity, SO2 and TSP; total
mortality, which contains the target, is left out (the paper does not say what it did).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from foldwise import RBF, BilevelSearchCV, Log, SemiparametricSVR
from papers import frame

__all__ = ["run"]

NAMES = ("day.num", "day.of.week", "holiday", "mean.temp", "rel.humid", "SO2", "TSP")
RESPIRATORY = 5
"""Column of the target in the file, among the features; the file's own target is total mortality."""
TERMS = ("temp", "SO2", "temp^2", "SO2^2", "1")
TEMPERATURE, SULPHUR = NAMES.index("mean.temp"), NAMES.index("SO2")


def _power(column: int, exponent: int):
    def function(X):
        return X[:, column] ** exponent

    return function


BASIS = [
    ("temp", _power(TEMPERATURE, 1)),
    ("SO2", _power(SULPHUR, 1)),
    ("temp^2", _power(TEMPERATURE, 2)),
    ("SO2^2", _power(SULPHUR, 2)),
]
MODELS = {"nonparametric": None, "semiparametric": BASIS}


def days(data_dir: Path | None, quick: bool) -> tuple[np.ndarray, np.ndarray, bool]:
    """Inputs and deaths of every day, each scaled to [0, 1], and whether they are the real ones."""
    found = frame.load("milan_mort", data_dir)
    if found is not None:
        X, _ = found
        deaths, X = X[:, RESPIRATORY], np.delete(X, RESPIRATORY, axis=1)
        if quick:
            X, deaths = X[::8], deaths[::8]
    else:
        X, deaths = _stand_in(300 if quick else 1500)
    X = (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), np.finfo(float).tiny)
    return X, deaths / deaths.max(), found is not None


def _stand_in(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Days with a cold season, more sulphur dioxide when it is cold, and deaths that grow with both."""
    rng = np.random.default_rng(0)
    day = np.linspace(1.0, 3652.0, n)
    season = np.cos(2 * np.pi * day / 365.25)
    temp = 14.0 - 10.0 * season + 3.0 * rng.normal(size=n)
    so2 = np.exp(4.2 + 0.9 * season + 0.5 * rng.normal(size=n))
    humid, tsp = 62.0 + 15.0 * rng.normal(size=n), 136.0 + 60.0 * season + 40.0 * rng.normal(size=n)
    rate = np.exp(0.9 - 0.25 * (temp - 14.0) / 8.0 + 0.15 * ((temp - 18.0) / 8.0) ** 2 + 0.0015 * so2)
    X = np.column_stack([day, day // 1 % 7 + 1, rng.random(n) < 0.03, temp, humid, so2, tsp])
    return X, rng.poisson(rate).astype(float)


def fit(basis: Any, X: np.ndarray, y: np.ndarray, folds: int) -> tuple[SemiparametricSVR, float, float]:
    """The model with its C selected, that C, and the seconds of the last training."""
    machine = SemiparametricSVR(basis, RBF(25.0), epsilon=0.01)
    search = BilevelSearchCV(
        machine,
        {"C": Log(1e-3, 1.0)},
        cv=folds,
        tol=1e-6,
        rescale=False,
        refit=False,
        method_options={"start": {"C": 0.05}},
    ).fit(X, y)
    C = search.best_params_["C"]
    machine.set_params(C=C)
    began = time.process_time()
    machine.fit(X, y)
    return machine, C, time.process_time() - began


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 1 beside the published one."""
    frame.title("lee2009, table 1: respiratory deaths in Milan")
    X, y, real = days(data_dir, quick)
    known = {
        (entry["row"], entry["quantity"]): entry["value"] for entry in frame.published("lee2009", "table1")
    }
    splits, folds = (2, 3) if quick else (10, 10)
    rows = []
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(y))
        test, train = order[: len(y) // 5], order[len(y) // 5 :]
        for name, basis in MODELS.items():
            model, C, seconds = fit(basis, X[train], y[train], folds)
            row = {"split": seed, "model": name, "C": C, "SVs": len(model.support_) / (2 * len(train))}
            row |= {"seconds": seconds, "MSE": float(np.mean((model.predict(X[test]) - y[test]) ** 2))}
            row |= dict(zip(model.basis_names_.tolist(), model.basis_coef_.tolist(), strict=True))
            rows.append(row)
    _show(rows, known)
    frame.note(
        f"published | ours, mean ± standard deviation over {splits} random splits, C by {folds}-fold cross-validation. "
        "Support vectors are counted among the two dual variables of every day, as the published share implies: "
        "seen by days it is twice as much. Seconds are the processor's, for one training with that C."
    )
    frame.note(_better(rows))
    frame.note(_reading(rows, known))
    if not real:
        frame.note("Generated days stand in for milan_mort, which is not in the data folder.")
    elif quick:
        frame.note("Every eighth day only.")
    frame.write_csv(out, "lee2009-table1", rows)


def _show(rows: list[dict[str, Any]], known: dict) -> None:
    lines = []
    for quantity, digits in (("C", 4), ("SVs", 3), ("seconds", 2), ("MSE", 6)):
        line = [quantity]
        for name in MODELS:
            own = [row[quantity] for row in rows if row["model"] == name]
            line.append(f"{known[name, quantity]:g} | {frame.spread(*frame.mean_sd(own), digits)}")
        lines.append(line)
    for term in TERMS:
        own = [row[term] for row in rows if row["model"] == "semiparametric"]
        cell = f"{known['semiparametric', term]:g} | {frame.spread(*frame.mean_sd(own), 2)}"
        lines.append([f"beta of {term}", "", cell])
    print()
    frame.print_table(["", *MODELS], lines)


def _better(rows: list[dict[str, Any]]) -> str:
    """On how many splits, and by how much, the parametric part lowers the error."""
    plain, semi = (np.array([row["MSE"] for row in rows if row["model"] == name]) for name in MODELS)
    return (
        f"The semiparametric model's test error is lower on {int(np.sum(semi < plain))} of {len(semi)} splits, by "
        f"{100 * (1 - semi / plain).mean():.1f}% on average (published: 2.8%, one split)."
    )


def _reading(rows: list[dict[str, Any]], known: dict) -> str:
    """What the coefficients say of temperature and SO2."""

    def say(beta) -> str:
        lowest = -beta["temp"] / (2 * beta["temp^2"]) if beta["temp^2"] > 0 else np.nan
        added = 0.3 * (beta["SO2"] + 0.3 * beta["SO2^2"])
        return f"fewest deaths at {lowest:.2f} of the temperatures, SO2 from 0 to 0.3 of its range adds {added:.3f}"

    mean = {term: np.mean([row[term] for row in rows if row["model"] == "semiparametric"]) for term in TERMS}
    theirs = {term: known["semiparametric", term] for term in TERMS}
    same = mean["temp"] < 0 < mean["SO2"]
    signs = "temperature has a negative and SO2 a positive slope in both" if same else "the signs differ"
    return f"By the published coefficients: {say(theirs)}. By the mean of ours: {say(mean)}; {signs}."


if __name__ == "__main__":
    frame.command(run)
