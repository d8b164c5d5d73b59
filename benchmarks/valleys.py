"""Does a search over a kernel regressor end in a valley that a coarse grid beats?

    python benchmarks/valleys.py --data FOLDER --half choose

For ``SVR``, ``KernelSVR``, ``SemiparametricSVR`` (with a constant and the first column) and ``KernelRidge`` at their
defaults: the cross-validation error at the end against the lowest one on a grid of 5 x 4 x 4 points (C, gamma, epsilon;
for ``KernelRidge`` 9 x 7 of alpha and gamma), on the same folds and rows. Columns are standardised, targets stay in
their own units. Starts and stages were chosen on the sets of one half and confirmed on those of the other.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import KFold
from sklearn.svm import SVR

from foldwise import BilevelSearchCV, KernelSVR, Lin, Log, SemiparametricSVR

HALVES = {
    "choose": {
        "diabetes": 442,
        "abalone": 300,
        "cpusmall": 400,
        "qsar_aquatic_toxicity": 400,
        "qsar_bloodbrain": 208,
        "freesolv": 300,
        "milan_mort": 300,
    },
    "confirm": {
        "cadata": 400,
        "year_prediction_6k": 300,
        "protein_casp": 500,
        "qsar_fish_toxicity": 450,
        "esol": 300,
        "qsar_aquatictox": 250,
        "qsar_pyrim": 74,
    },
}
"""Sets of each half, and how many rows are drawn."""
MODELS = {
    "SVR": lambda: SVR(),
    "KernelSVR": lambda: KernelSVR(),
    "SemiparametricSVR": lambda: SemiparametricSVR([0]),
    "KernelRidge": lambda: KernelRidge(kernel="rbf"),
}
NEAR = 0.005
"""An end this share above the grid counts as another valley."""


def load(name: str, folder: Path, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Some rows of a set, drawn by ``seed``, with standardised columns."""
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True)
    else:
        table = pd.get_dummies(pd.read_csv(folder / f"{name}.csv.gz"), dtype=float).dropna()
        target = "target" if "target" in table else table.columns[-1]
        y, X = table.pop(target).to_numpy(float), table.to_numpy(float)
    chosen = np.random.default_rng(seed).permutation(len(y))[:rows]
    X, y = X[chosen], y[chosen]
    X = X[:, X.std(axis=0) > 1e-12 * np.abs(X).max(axis=0).clip(1e-300)]
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def grid(model: str, X, y, cv) -> float:
    """The lowest cross-validation error of the grid."""
    spread, width = float(y.std()), 1.0 / X.shape[1]
    gammas = width * np.geomspace(0.03, 3.0, 7 if model == "KernelRidge" else 4)
    if model == "KernelRidge":
        values = {"alpha": np.geomspace(1e-4, 1e2, 9), "gamma": gammas}
    else:
        C = np.geomspace(0.1, 1e3, 5) * (1.0 if model == "KernelSVR" else spread)
        name = "gamma" if model == "SVR" else "kernel__gamma"
        values = {"C": C, name: gammas, "epsilon": spread * np.array([0.01, 0.05, 0.2, 0.5])}
    space = {
        name: (Lin if name == "epsilon" else Log)(float(np.min(v)), float(np.max(v)))
        for name, v in values.items()
    }
    options = {"values": values}
    search = BilevelSearchCV(
        MODELS[model](), space, method="grid", method_options=options, cv=cv, refit=False
    )
    return -search.fit(X, y).best_score_


def run(model: str, X, y, cv) -> dict:
    """The search at its defaults, and what it cost."""
    search = BilevelSearchCV(MODELS[model](), cv=cv, refit=False)
    began = time.process_time()
    search.fit(X, y)
    result = search.result_
    stages = sum(v for k, v in result.details.items() if k.endswith("_evaluations"))
    return {
        "objective": -search.best_score_,
        "seconds": time.process_time() - began,
        "evaluations": result.n_evaluations + stages,
        "status": result.status.value,
        "norm": result.gradient_norm,
        "params": result.params,
        "spread": float(y.std()),
    }


def main() -> None:
    """Run what is missing and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("FOLDWISE_DATA"))
    parser.add_argument("--half", choices=HALVES, default="choose")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--first", type=int, default=0, help="seed of the first split")
    parser.add_argument("--sets", nargs="*", help="only these sets of the half")
    parser.add_argument("--grids", type=Path, help="JSON file that keeps the grids' errors")
    parser.add_argument("--out", type=Path, help="JSON file for the measurements")
    options = parser.parse_args()
    if options.data is None:
        parser.error("give --data or set FOLDWISE_DATA")
    warnings.simplefilter("ignore")
    kept = json.loads(options.grids.read_text()) if options.grids and options.grids.exists() else {}
    rows = []
    for model in options.models:
        for name, n in HALVES[options.half].items():
            if options.sets and name not in options.sets:
                continue
            for seed in range(options.first, options.first + options.splits):
                X, y = load(name, options.data, n, seed)
                cv = KFold(5, shuffle=True, random_state=seed)
                key = f"{model} {name} {seed}"
                if key not in kept:
                    kept[key] = grid(model, X, y, cv)
                    if options.grids:
                        options.grids.write_text(json.dumps(kept))
                found = run(model, X, y, cv)
                found |= {"model": model, "data": name, "split": seed, "grid": kept[key]}
                found["above"] = found["objective"] / kept[key] - 1.0
                rows.append(found)
                print(
                    f"{model:18s} {name:22s} {seed} {100 * found['above']:+7.2f}%  {found['evaluations']:4d} "
                    f"evaluations {found['seconds']:7.2f} s  {found['status']}",
                    flush=True,
                )
                if options.out:
                    options.out.write_text(json.dumps(rows, indent=1))
    print(
        "\n| model | searches | above the grid by 0.5% | worst | mean | evaluations | seconds | converged |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for model in options.models:
        own = [r for r in rows if r["model"] == model]
        above = np.array([r["above"] for r in own])
        print(
            f"| {model} | {len(own)} | {int(np.sum(above > NEAR))} | {100 * above.max():+.1f}% "
            f"| {100 * above.mean():+.1f}% | {sum(r['evaluations'] for r in own)} "
            f"| {sum(r['seconds'] for r in own):.0f} | {sum(r['status'] == 'converged' for r in own)} |"
        )


if __name__ == "__main__":
    main()
