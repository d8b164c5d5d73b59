"""Which outer criterion, and which training loss, should select an RBF machine? Held-out accuracy decides.

    python benchmarks/criteria.py --splits 10

Every variant selects (C, gamma) of ``KernelSVC`` by five-fold cross-validation on standardised training rows, is
refitted, and is judged on rows that it has never seen. ``reference`` is scikit-learn's SVC with the best point of a
7 x 7 grid by cross-validated accuracy. Results are kept in a JSON file; a run goes on where the last one stopped.
"""

import _threads  # noqa: F401
import numpy as np
from _versus import by_set, from_command_line, verdict
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from foldwise import BilevelSearchCV, KernelSVC
from foldwise.losses import (
    Hinge,
    Logistic,
    ModifiedHuber,
    QuarticHinge,
    SmoothMisclassification,
    Squared,
    SquaredHinge,
)

BASE = "logistic s=2"
SETS = {
    "breast cancer": 380,
    "iris 2-3": 100,
    "wine 2": 120,
    "digits 8": 500,
    "pima": 512,
    "heart_statlog": 180,
    "ionosphere": 234,
    "parkinsons": 130,
    "fourclass": 300,
    "qsar_biodeg": 400,
    "sdss_star_galaxy": 400,
    "letter O-Q": 300,
}
"""Sets and how many rows train at most."""


def _search(criterion, loss):
    return lambda cv, d: BilevelSearchCV(KernelSVC(loss=loss), criterion=criterion, cv=cv)


def _reference(cv, d):
    values = {"C": np.logspace(-2, 4, 7), "gamma": np.logspace(-4, 2, 7) / d}
    return GridSearchCV(SVC(max_iter=1_000_000), values, cv=cv)


BAND = QuarticHinge(0.5)
CRITERIA = {
    BASE: _search(Logistic(s=2.0), BAND),
    "logistic s=1": _search(Logistic(s=1.0), BAND),
    "logistic s=4": _search(Logistic(s=4.0), BAND),
    "squared": _search(Squared(), BAND),
    "squared hinge": _search(SquaredHinge(), BAND),
    "modified Huber": _search(ModifiedHuber(), BAND),
    "hinge": _search(Hinge(), BAND),
    "smooth misclassification": _search(SmoothMisclassification(s=4.0), BAND),
}
LOSSES = {
    "loss quartic 0.125": _search(Logistic(s=2.0), QuarticHinge(0.125)),
    "loss squared hinge": _search(Logistic(s=2.0), SquaredHinge()),
    "loss hinge": _search(Logistic(s=2.0), Hinge()),
}
EXACT = {
    "loss hinge, squared hinge": _search(SquaredHinge(), Hinge()),
    "loss hinge, modified Huber": _search(ModifiedHuber(), Hinge()),
}
REFERENCE = {"reference": _reference}


def main() -> None:
    """Run what is missing and print the tables."""
    measurements = from_command_line(__doc__, {**CRITERIA, **LOSSES, **EXACT, **REFERENCE}, SETS, "criteria")
    print(verdict(measurements, BASE), by_set(measurements, "accuracy"), sep="\n\n")
    print(by_set(measurements, "auc"), by_set(measurements, "seconds", "{:.2f}"), sep="\n\n")


if __name__ == "__main__":
    main()
