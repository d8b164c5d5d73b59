"""Is the quick answer as good? Held-out accuracy of scikit-learn's SVC, tuned by us and by a grid of 11 x 11.

    python benchmarks/accuracy.py --splits 10

Also ``KernelSVC`` with one width and with one per feature. On standardised rows, five folds; two thirds of the rows
train. The grid covers the bounds within which foldwise searches by default. Results are kept in a JSON file; a run goes
on where the last one stopped.
"""

import _threads  # noqa: F401
from _kernel_suites import grid
from _versus import by_set, from_command_line, verdict
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from foldwise import RBF, BilevelSearchCV, KernelSVC

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
    measurements = from_command_line(__doc__, METHODS, SETS, "accuracy")
    print(verdict(measurements, BASE), end="\n\n")
    print(by_set(measurements, "accuracy"), by_set(measurements, "seconds", "{:.2f}"), sep="\n\n")


if __name__ == "__main__":
    main()
