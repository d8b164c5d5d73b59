"""What a scikit-learn user gains by changing one class name: the figures in README.md.

    python benchmarks/readme.py --splits 2 --data FOLDER

A ``StandardScaler`` and an ``SVC``, tuned on the same training rows and folds by ``GridSearchCV`` with 11 x 11 points,
by Optuna with 50 trials and by ``BilevelSearchCV`` as it comes; two thirds of the rows train, at most 300, and the
others are the test. Then the example of README.md on five splits, beside the same grid. Sets that are not in
scikit-learn come from the data folder and are left out without it. Results of the sets are kept in a JSON file; a run
goes on where the last one stopped.
"""

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
import optuna
from _kernel_sets import named_set, split
from _versus import table
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from foldwise import BilevelSearchCV

SETS = (
    "breast cancer", "digits 3-8", "digits 8", "wine 2", "bbbp", "heart_cleveland", "ionosphere", "letter O-Q",
    "parkinsons", "pima", "qsar_biodeg", "qsar_mdrr", "raetsch_german", "raetsch_image", "raetsch_splice",
    "sdss_star_galaxy",
)  # fmt: skip
METHODS = ("GridSearchCV", "Optuna", "foldwise")
N_TRAIN, TRIALS = 300, 50
C = (1e-2, 1e4)
GAMMA = (1e-4, 1e2)
"""Bounds of grid and Optuna; those of ``gamma`` are divided by the number of columns."""


class OptunaSearch:
    """As much of a search as is needed here: the TPE sampler on the cross-validated accuracy."""

    def __init__(self, machine, cv, seed):
        self.machine, self.cv, self.seed = machine, cv, seed

    def fit(self, X, y):
        """Run the trials, then fit with the best values."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(lambda trial: self._accuracy(trial, X, y), n_trials=TRIALS)
        self.best_estimator_ = self.machine.set_params(**study.best_params).fit(X, y)
        return self

    def _accuracy(self, trial, X, y):
        low, high = np.divide(GAMMA, X.shape[1])
        values = {
            "svc__C": trial.suggest_float("svc__C", *C, log=True),
            "svc__gamma": trial.suggest_float("svc__gamma", low, high, log=True),
        }
        return cross_val_score(self.machine.set_params(**values), X, y, cv=self.cv).mean()


def build(method, cv, seed, d):
    """A search that is not yet fitted, for ``d`` columns."""
    machine = make_pipeline(StandardScaler(), SVC())
    if method == "foldwise":
        return BilevelSearchCV(machine, cv=cv, random_state=seed)
    if method == "Optuna":
        return OptunaSearch(machine, cv, seed)
    grid = {"svc__C": np.geomspace(*C, 11), "svc__gamma": np.geomspace(*GAMMA, 11) / d}
    return GridSearchCV(machine, grid, cv=cv)


def timed(search, X, y, X_test, y_test):
    """Per cent of error on the test rows and seconds of processor time."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y)
    seconds = time.process_time() - began
    wrong = np.mean(search.best_estimator_.predict(X_test) != y_test)
    return {"error": 100.0 * float(wrong), "seconds": seconds}


def measure(name, seed, folder):
    """Every search on one split of a set."""
    found = named_set(name, folder, print)
    if found is None:
        return []
    data = split(name, *found, seed, N_TRAIN)
    cv = StratifiedKFold(5, shuffle=True, random_state=seed)
    out = []
    for method in METHODS:
        search = build(method, cv, seed, data.X.shape[1])
        figures = timed(search, data.X, data.y, data.X_test, data.y_test)
        out.append({"data": name, "split": seed, "method": method, **figures})
    return out


def report(measurements, splits):
    """The table by set, and the differences over all sets."""
    names = [name for name in SETS if any(m["data"] == name for m in measurements)]
    error, seconds = (
        {
            method: np.array(
                [
                    [
                        m[key]
                        for m in measurements
                        if (m["data"], m["method"]) == (name, method) and m["split"] < splits
                    ]
                    for name in names
                ]
            ).mean(axis=1)
            for method in METHODS
        }
        for key in ("error", "seconds")
    )
    rows = [
        [name, *(f"{of[method][k]:.1f}" for of in (error, seconds) for method in METHODS)]
        for k, name in enumerate(names)
    ]
    rows.append(["mean", *(f"{of[method].mean():.1f}" for of in (error, seconds) for method in METHODS)])
    header = ["data", *(f"{method}, {unit}" for unit in ("error %", "s") for method in METHODS)]
    lines = [table(header, rows), ""]
    for other in METHODS[:-1]:
        gaps = error["foldwise"] - error[other]
        spread = gaps.std(ddof=1) / np.sqrt(len(names))
        lines += [
            f"foldwise against {other}: {gaps.mean():+.2f} ± {spread:.2f} points of error (± over the sets);",
            f"  lower on {np.sum(gaps < -1e-9)}, higher on {np.sum(gaps > 1e-9)} of {len(names)} sets;",
            f"  median share of its time {np.median(seconds['foldwise'] / seconds[other]):.2f}",
        ]
    return "\n".join(lines)


def example():
    """The example of README.md on five splits: untuned, by the grid, by foldwise."""
    X, y = load_breast_cancer(return_X_y=True)
    for seed in range(5):
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, train_size=200, stratify=y, random_state=seed
        )
        machine = make_pipeline(StandardScaler(), SVC()).fit(X_train, y_train)
        line = f"split {seed}: untuned {machine.score(X_test, y_test):.1%} right"
        for method in ("GridSearchCV", "foldwise"):
            found = timed(build(method, 5, 0, X.shape[1]), X_train, y_train, X_test, y_test)
            line += f", {method} {100 - found['error']:.1f}% in {found['seconds']:.1f} s"
        print(line, flush=True)


def main():
    """Measure what is missing and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=2, help="random splits per set (2)")
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("FOLDWISE_DATA"), help="folder of real sets"
    )
    here = Path(__file__).resolve().parent
    parser.add_argument("--out", type=Path, default=here / "results" / "readme.json", help="JSON file")
    given = parser.parse_args()
    folder = Path(given.data) if given.data else None
    done = json.loads(given.out.read_text()) if given.out.exists() else []
    for seed in range(given.splits):
        for name in SETS:
            if not any((m["data"], m["split"]) == (name, seed) for m in done):
                done += measure(name, seed, folder)
                given.out.parent.mkdir(parents=True, exist_ok=True)
                given.out.write_text(json.dumps(done, indent=1))
    print(report(done, given.splits))
    example()


if __name__ == "__main__":
    main()
