"""``scoring=``: the cross-validation score at the answer, and the time, against a 7 x 7 GridSearchCV with that metric.

    python benchmarks/scoring.py FOLDER [--rows 400] [--sets heart_statlog,pima]

FOLDER has the sets as ``name.csv.gz`` with the target in the last column. Prints one line for every set and metric, and
a summary: on how many sets the score is at or above the grid's, and the share of its time.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR

CLASSES = ["heart_statlog", "ionosphere", "parkinsons", "pima", "fourclass", "qsar_biodeg", "raetsch_german"]
NUMBERS = ["qsar_aquatic_toxicity", "qsar_fish_toxicity", "esol", "freesolv"]
METRICS = {
    "classes": ["accuracy", "balanced_accuracy", "f1", "roc_auc", "neg_log_loss"],
    "numbers": ["neg_mean_absolute_error", "neg_mean_squared_error"],
}


def load(
    path: Path, most: int, classes: bool, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test rows."""
    frame = pd.read_csv(path).dropna()
    X = frame.iloc[:, :-1].select_dtypes("number").to_numpy(float)
    y = frame.iloc[:, -1].to_numpy()
    if classes:
        y = np.unique(y, return_inverse=True)[1]
        y = (y == np.argmin(np.bincount(y))).astype(int)  # the rarest class against the rest
    size = min(most, int(0.7 * len(y)))
    X, X_test, y, y_test = train_test_split(
        X, y, train_size=size, stratify=y if classes else None, random_state=seed
    )
    return X[:, X.std(axis=0) > 0], X_test[:, X.std(axis=0) > 0], y, y_test


def measure(name: str, X, X_test, y, y_test, metric: str, classes: bool) -> list[dict]:
    """The grid, the same machine by a search, and our smooth machine by a search."""
    cv = (StratifiedKFold if classes else KFold)(5, shuffle=True, random_state=0)
    machine = make_pipeline(StandardScaler(), SVC() if classes else SVR())
    own = make_pipeline(StandardScaler(), KernelSVC() if classes else KernelSVR())
    last, d = ("svc" if classes else "svr"), X.shape[1]
    ends = {f"{last}__C": (1e-2, 1e4), f"{last}__gamma": (1e-3 / d, 1e2 / d)}
    if not classes:
        machine.set_params(svr__C=1.0)
        y, y_test = (y - y.mean()) / y.std(), (y_test - y.mean()) / y.std()
    grid = {key: np.geomspace(low, high, 7) for key, (low, high) in ends.items()}
    rows = []
    theirs = machine
    if metric == "neg_log_loss":
        theirs = make_pipeline(StandardScaler(), SVC(probability=True, random_state=0))
    for label, search in {
        "grid": GridSearchCV(theirs, grid, scoring=metric, cv=cv),
        "same machine": BilevelSearchCV(machine, ends, scoring=metric, cv=cv, random_state=0),
        "same, no threshold": BilevelSearchCV(
            machine, ends, scoring=metric, cv=cv, random_state=0, threshold=False
        ),
        "smooth machine": BilevelSearchCV(own, scoring=metric, cv=cv, random_state=0),
    }.items():
        if label == "same, no threshold" and metric not in ("f1", "balanced_accuracy"):
            continue
        began = time.process_time()
        search.fit(X, y)
        seconds = time.process_time() - began
        test = search.score(X_test, y_test)
        n = len(search.cv_results_["params"])
        rows.append(
            {
                "set": name,
                "metric": metric,
                "by": label,
                "cv": search.best_score_,
                "test": test,
                "s": seconds,
                "n": n,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--sets", default="")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    out: list[dict] = []
    for kind, names in (("classes", CLASSES), ("numbers", NUMBERS)):
        for name in names:
            path = options.folder / f"{name}.csv.gz"
            if (options.sets and name not in options.sets.split(",")) or not path.exists():
                continue
            data = load(path, options.rows, kind == "classes", options.seed)
            for metric in METRICS[kind]:
                out += measure(name, *data, metric, kind == "classes")
                for row in out[-4:]:
                    if row["set"] == name and row["metric"] == metric:
                        print(
                            "{set:24} {metric:24} {by:20} {cv:9.4f} {test:9.4f} {s:7.2f} s {n:4d}".format(
                                **row
                            )
                        )
    table = pd.DataFrame(out)
    grid = table[table.by == "grid"].set_index(["set", "metric"])
    for (metric, by), part in table[table.by != "grid"].groupby(["metric", "by"], sort=False):
        part = part.set_index(["set", "metric"])
        base = grid.loc[part.index]
        above = (part.cv >= base.cv - 1e-9).sum()
        share, test = (part.s / base.s).median(), (part.test - base.test).mean()
        print(
            f"{metric:24} {by:20} at or above on {above} of {len(part)}; {share:.2f} of the time; test {test:+.4f}"
        )


if __name__ == "__main__":
    main()
