"""Should class weights of the estimator weigh the criterion too? Held-out balanced accuracy decides.

    python benchmarks/rare_classes.py --data FOLDER

Machines with ``class_weight="balanced"`` behind a ``StandardScaler``: untuned, tuned by a criterion in which all rows
count alike, and tuned by the default, in which classes count as they do in training. Random splits with 60% of the rows
for training. Sets that are not in the folder are left out; the synthetic one always runs.
"""

import argparse
import os
import warnings
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from foldwise import BilevelSearchCV, KernelSVC, LinearSVC

MACHINES = {"SVC": SVC, "LinearSVC": LinearSVC, "KernelSVC": KernelSVC}
CRITERION_WEIGHTS = (None, "auto")
SHARE = 0.12
"""Share to which the rarer class is thinned."""
OTHERS = 1_000
"""Rows of the larger class that are kept of a set with few others."""


def thinned(y: np.ndarray) -> np.ndarray:
    """Row numbers: the larger class, and of the rarer one a sample."""
    few, many = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    size = int(SHARE * len(many) / (1 - SHARE))
    return np.concatenate([many, np.random.default_rng(0).choice(few, size, replace=False)])


def all_rare(y: np.ndarray) -> np.ndarray:
    """Row numbers: the rarer class, and of the larger one a sample."""
    few, many = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    return np.concatenate([few, np.random.default_rng(0).choice(many, OTHERS, replace=False)])


SETS = {
    "aid362": ("pubchem_aid362.csv.gz", all_rare),
    "german": ("raetsch_german.csv.gz", thinned),
    "biodeg": ("qsar_biodeg.csv.gz", thinned),
}
"""File of each set, and which of its rows are used."""


def load(file: Path, choose) -> tuple[np.ndarray, np.ndarray]:
    """Features, and whether a row is of the rarer class."""
    table = pd.read_csv(file)
    y = (table.target == table.target.value_counts().idxmin()).to_numpy(int)
    rows = choose(y)
    return table.drop(columns="target").to_numpy(float)[rows], y[rows]


def measure(machine, X: np.ndarray, y: np.ndarray, splits: int) -> np.ndarray:
    """Balanced accuracies, one row per split: untuned, and tuned with each way to weigh the criterion."""
    plain, out = make_pipeline(StandardScaler(), machine), []
    for train, test in StratifiedShuffleSplit(splits, test_size=0.4, random_state=1).split(X, y):
        tuned = [BilevelSearchCV(plain, criterion_weight=weight) for weight in CRITERION_WEIGHTS]
        fitted = [model.fit(X[train], y[train]) for model in (clone(plain), *tuned)]
        out.append([balanced_accuracy_score(y[test], model.predict(X[test])) for model in fitted])
    return np.array(out)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given = os.environ.get("FOLDWISE_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=given and Path(given),
        help="folder of the sets; by default $FOLDWISE_DATA",
    )
    parser.add_argument("--splits", type=int, default=4)
    options = parser.parse_args()
    sets = {"synthetic": make_classification(
        600, 8, n_informative=4, weights=[0.92], flip_y=0.04, class_sep=0.8, random_state=4
    )}  # fmt: skip
    for name, (file, choose) in SETS.items():
        if options.data is not None and (options.data / file).exists():
            sets[name] = load(options.data / file, choose)
        else:
            print(f"{name}: no {file} in --data; left out")
    print(
        "| data (rows, share of the rare class) | machine | untuned | None | auto |\n| --- | --- | ---: | ---: | ---: |"
    )
    warnings.simplefilter("ignore")
    for name, (X, y) in sets.items():
        for label, kind in MACHINES.items():
            found = measure(kind(class_weight="balanced"), X, y, options.splits)
            gain = found[:, 2] - found[:, 0]
            untuned, alike, auto = found.mean(axis=0)
            error = gain.std(ddof=1) / np.sqrt(len(gain))
            cells = f"{untuned:.3f} | {alike:.3f} | {auto:.3f} ± {error:.3f}"
            print(f"| {name} ({len(y):,}, {y.mean():.0%}) | `{label}` | {cells} |", flush=True)


if __name__ == "__main__":
    main()
