"""Is the quick answer as good? Held-out accuracy of scikit-learn's SVC, tuned by us and by a grid of 11 x 11.

    python benchmarks/accuracy.py --splits 10

Also ``KernelSVC`` with one width and with one per feature, and the two machines with the criteria that were their
defaults before. On standardised rows, five folds; two thirds of the rows train. The sets of development are counted
apart from the others. The grid covers the bounds within which foldwise searches by
default. Results are kept in a JSON file; a run goes on where the last one stopped.
"""

import _threads  # noqa: F401
from _kernel_suites import grid
from _versus import by_set, from_command_line, verdict
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from foldwise import RBF, BilevelSearchCV, KernelSVC
from foldwise.losses import Logistic

BASE = "SVC, grid"
METHODS = {
    "SVC, foldwise": lambda cv, d: BilevelSearchCV(SVC(), cv=cv),
    BASE: lambda cv, d: GridSearchCV(SVC(), grid("", 11, d), cv=cv),
    "SVC, modified Huber": lambda cv, d: BilevelSearchCV(SVC(), cv=cv, criterion="modified_huber"),
    "KernelSVC": lambda cv, d: BilevelSearchCV(KernelSVC(), cv=cv),
    "KernelSVC, logistic s=2": lambda cv, d: BilevelSearchCV(KernelSVC(), cv=cv, criterion=Logistic(s=2.0)),
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
"""Sets of development and how many rows train at most."""
OTHERS = {
    "breast_cancer_wisconsin": 300,
    "heart_cleveland": 198,
    "raetsch_banana": 400,
    "raetsch_german": 400,
    "raetsch_image": 400,
    "raetsch_splice": 400,
    "raetsch_waveform": 400,
    "qsar_biodeg": 400,
    "qsar_mdrr": 352,
    "qsar_bbb2": 53,
    "bbbp": 400,
    "sdss_star_galaxy": 400,
    "ijcnn1_cont": 400,
}
"""Other sets; some of them have been looked at too, see docs/criteria.md."""


def main() -> None:
    """Run what is missing and print the tables."""
    measurements = from_command_line(__doc__, METHODS, {**OTHERS, **SETS}, "accuracy")
    for title, names in (("Sets of development", SETS), ("Other sets", OTHERS)):
        own = [m for m in measurements if m["data"] in names]
        if own:
            print(f"## {title}", verdict(own, BASE), sep="\n\n", end="\n\n")
    print(by_set(measurements, "accuracy"), by_set(measurements, "seconds", "{:.2f}"), sep="\n\n")


if __name__ == "__main__":
    main()
