"""Which criterion picks the best point of a grid? No search takes part: scikit-learn's SVC at all points of 11 x 11.

    python benchmarks/criteria_grid.py --splits 20

At every point the machine is cross-validated and also fitted to all training rows. Each criterion takes the point where
its own mean over the folds is lowest, "grid" the one with the highest cross-validated accuracy (the first of several,
as ``GridSearchCV``), and what counts is the accuracy there on rows never seen. Results are kept in a JSON file; a run
goes on where the last one stopped.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
from _kernel_sets import named_set, split
from _kernel_suites import grid
from _versus import T, table
from accuracy import SETS
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from foldwise.losses import Hinge, Logistic, ModifiedHuber, SmoothMisclassification, SquaredHinge

HERE = Path(__file__).resolve().parent
CRITERIA = {
    **{f"logistic s={s}": Logistic(s=float(s)) for s in (1, 2, 3, 4)},
    "hinge": Hinge(),
    "squared hinge": SquaredHinge(),
    "modified Huber": ModifiedHuber(),
    "smooth misclassification": SmoothMisclassification(s=4.0),
}


def choices(X, y, X_test, y_test, seed: int) -> dict[str, float]:
    """Held-out accuracy at the point that every criterion takes."""
    folds = list(StratifiedKFold(T, shuffle=True, random_state=seed).split(X, y))
    weight = np.zeros(len(y))
    for _, validation in folds:
        weight[validation] = 1.0 / (T * len(validation))
    axes = grid("", 11, X.shape[1])
    names, values, accuracy = ["grid", *CRITERIA], [], []
    for C in axes["C"]:
        for gamma in axes["gamma"]:
            machine, z = SVC(C=C, gamma=gamma), np.zeros(len(y))
            for train, validation in folds:
                z[validation] = machine.fit(X[train], y[train]).decision_function(X[validation])
            wrong = np.round(weight @ (y * z <= 0), 10)
            values.append([wrong, *(weight @ criterion.value(z, y) for criterion in CRITERIA.values())])
            accuracy.append(machine.fit(X, y).score(X_test, y_test))
    best = np.argmin(values, axis=0)
    return {name: float(accuracy[k]) for name, k in zip(names, best, strict=True)}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=20, help="random splits per set (20)")
    parser.add_argument("--data", type=Path, help="folder of the real sets; by default $FOLDWISE_DATA")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "criteria_grid.json", help="JSON file")
    arguments = parser.parse_args()
    folder = arguments.data or (Path(p) if (p := os.environ.get("FOLDWISE_DATA")) else None)
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    out: Path = arguments.out
    done: dict[str, dict[str, float]] = json.loads(out.read_text()) if out.exists() else {}
    for seed in range(arguments.splits):
        for name, n_train in SETS.items():
            key = f"{name}, split {seed}"
            found = None if key in done else named_set(name, folder, say)
            if found is None:
                continue
            data = split(name, *found, seed, n_train)
            scaler = StandardScaler().fit(data.X)
            parts = scaler.transform(data.X), data.y, scaler.transform(data.X_test), data.y_test
            done[key] = choices(*parts, seed)
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text(json.dumps(done, indent=1))
            say(f"{key} done")
    print(summary(done))


def summary(done: dict[str, dict[str, float]]) -> str:
    """A Markdown table: points of accuracy above the grid's, with the standard error over splits."""
    rows, means = [], []
    for name in SETS:
        own = [value for key, value in done.items() if key.startswith(f"{name}, split")]
        if len(own) < 2:
            continue
        base = np.array([one["grid"] for one in own])
        cells, gaps_of_set = [name, f"{100 * base.mean():.2f}"], []
        for criterion in CRITERIA:
            gaps = 100 * (np.array([one[criterion] for one in own]) - base)
            error = gaps.std(ddof=1) / np.sqrt(len(gaps))
            cells.append(f"{gaps.mean():+.2f} ± {error:.2f}" + (" *" if gaps.mean() < -error else ""))
            gaps_of_set.append(gaps.mean())
        rows.append(cells)
        means.append([100 * base.mean(), *gaps_of_set])
    if means:
        first, *others = np.mean(means, axis=0)
        rows.append(["mean", f"{first:.2f}", *(f"{value:+.2f}" for value in others)])
    return table(["data", "grid, %", *CRITERIA], rows)


if __name__ == "__main__":
    main()
