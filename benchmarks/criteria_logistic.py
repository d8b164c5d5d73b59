"""Which scale of the logistic criterion serves a machine that is trained with the logistic loss?

    python benchmarks/criteria_logistic.py --splits 6

``LogisticRegression`` and ``KernelSVC(loss="logistic")`` are tuned with ``Logistic(s=2)`` and with ``Logistic(s=1)``;
what counts are accuracy and log loss on rows never seen.
"""

import argparse
import os
import sys
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
from _kernel_sets import named_set
from _versus import T, table
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldwise import BilevelSearchCV, KernelSVC, Logistic

SETS = ("breast cancer", "pima", "heart_statlog", "ionosphere", "parkinsons", "qsar_biodeg", "raetsch_german")
MACHINES = {"LogisticRegression": LogisticRegression(max_iter=5000), "KernelSVC": KernelSVC(loss="logistic")}


def held_out(machine, s: float, X, y, seed: int) -> tuple[float, float]:
    """Accuracy in per cent and log loss on the rows that the search has not seen."""
    parts = train_test_split(X, y, stratify=y, test_size=0.4, random_state=seed)
    X_train, X_test, y_train, y_test = parts
    folds = StratifiedKFold(T, shuffle=True, random_state=seed)
    search = BilevelSearchCV(make_pipeline(StandardScaler(), machine), cv=folds, criterion=Logistic(s=s))
    search.fit(X_train, y_train)
    side = np.where(y_test == search.classes_[1], 1.0, -1.0)
    odds = side * search.decision_function(X_test)
    return 100 * search.score(X_test, y_test), float(np.logaddexp(0.0, -odds).mean())


def main() -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=6, help="random splits of each set")
    folder = os.environ.get("FOLDWISE_DATA")
    parser.add_argument("--data", type=Path, default=folder and Path(folder), help="the data folder")
    args = parser.parse_args()
    n, rows = args.splits, []
    for label, machine in MACHINES.items():
        for name in SETS:
            rows_of_set = named_set(name, args.data, lambda text: print(text, file=sys.stderr))
            if rows_of_set is None:
                continue
            found = [np.array([held_out(machine, s, *rows_of_set, k) for k in range(n)]) for s in (2.0, 1.0)]
            gap = found[1] - found[0]
            spread = gap.std(axis=0, ddof=1) / np.sqrt(n)
            means = [values.mean(axis=0) for values in found]
            cells = [f"{a:.1f}" for a, _ in means] + [f"{gap[:, 0].mean():+.1f} ± {spread[0]:.1f}"]
            cells += [f"{b:.3f}" for _, b in means] + [f"{gap[:, 1].mean():+.3f} ± {spread[1]:.3f}"]
            rows.append([label, name, *cells])
    head = ["machine", "data", "accuracy %, s=2", "s=1", "difference", "log loss, s=2", "s=1", "difference"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
