"""Is the quick answer as good? Held-out accuracy of scikit-learn's SVC, tuned by us and by a grid of 11 x 11.

    python benchmarks/accuracy.py --splits 10

Also ``KernelSVC`` with one width and with one per feature. On standardised rows, five folds; two thirds of the rows
train. The grid covers the bounds within which foldwise searches by default. Results are kept in a JSON file; a run goes
on where the last one stopped.
"""

import argparse
import os
import sys
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
from _kernel_suites import grid
from _versus import by_set, run, verdict
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from foldwise import RBF, BilevelSearchCV, KernelSVC

HERE = Path(__file__).resolve().parent
BASE = "SVC, grid"
METHODS = {
    "SVC, foldwise": lambda cv, d: BilevelSearchCV(SVC(), cv=cv),
    BASE: lambda cv, d: GridSearchCV(SVC(), grid("", 11, d), cv=cv),
    "KernelSVC": lambda cv, d: BilevelSearchCV(KernelSVC(), cv=cv),
    "KernelSVC, ARD": lambda cv, d: BilevelSearchCV(KernelSVC(RBF(ard=True)), cv=cv),
}
SETS = {
    "breast cancer": 379,
    "heart_statlog": 180,
    "ionosphere": 234,
    "parkinsons": 130,
    "pima": 512,
    "fourclass": 574,
    "letter O-Q": 700,
    "letter I-J": 700,
    "digits 8": 700,
}
"""Sets and how many rows train at most."""


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=10, help="random splits per set (10)")
    parser.add_argument("--budget", type=float, default=np.inf, help="seconds after which to stop")
    parser.add_argument("--data", type=Path, help="folder of the real sets; by default $FOLDWISE_DATA")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "accuracy.json", help="JSON file")
    arguments = parser.parse_args()
    folder = arguments.data or (Path(p) if (p := os.environ.get("FOLDWISE_DATA")) else None)
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    measurements = run(METHODS, SETS, arguments.splits, folder, arguments.out, say, arguments.budget)
    print(verdict(measurements, BASE), end="\n\n")
    print(by_set(measurements, "accuracy"), by_set(measurements, "seconds", "{:.2f}"), sep="\n\n")


if __name__ == "__main__":
    main()
