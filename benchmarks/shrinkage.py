"""How strongly should per-feature widths be drawn together? Held-out accuracy decides.

    python benchmarks/shrinkage.py --splits 10

``KernelSVC(RBF(ard=True))`` with the penalty ``kappa / (2 n) ||log gamma - mean||^2`` for several ``kappa`` against one
width for all features, on standardised rows, five folds. Results are kept in a JSON file; a run goes on where the
last one stopped.
"""

import _threads  # noqa: F401
from _versus import by_set, from_command_line, verdict

from foldwise import RBF, BilevelSearchCV, KernelSVC

KAPPAS = (0.0, 0.1, 0.3, 0.5, 1.0, 3.0)
BASE = "kappa 0.5"
SETS = {
    "breast cancer": 300,
    "wine 2": 118,
    "heart_statlog": 180,
    "ionosphere": 234,
    "parkinsons": 130,
    "pima": 300,
    "qsar_biodeg": 250,
    "digits 8": 400,
    "fourclass + 10 noise": 300,
    "breast cancer + 30 noise": 300,
    "sdss_star_galaxy + 10 noise": 300,
}
"""Sets and how many rows train at most; to some are added columns of noise, which one width cannot leave out."""


def _one(cv, d):
    return BilevelSearchCV(KernelSVC(), cv=cv)


def _many(kappa: float):
    return lambda cv, d: BilevelSearchCV(KernelSVC(RBF(ard=True)), cv=cv, shrinkage=kappa, confirm=False)


def main() -> None:
    """Run what is missing and print the tables."""
    variants = {"one width": _one, **{f"kappa {kappa:g}": _many(kappa) for kappa in KAPPAS}}
    measurements = from_command_line(__doc__, variants, SETS, "shrinkage")
    noisy = [m for m in measurements if m["data"].endswith(" noise")]
    plain = [m for m in measurements if not m["data"].endswith(" noise")]
    for part in (plain, noisy, measurements):
        if part:
            print(verdict(part, BASE), end="\n\n")
    print(by_set(measurements, "accuracy"), end="\n\n")
    print(by_set(measurements, "criterion"), by_set(measurements, "seconds", "{:.2f}"), sep="\n\n")


if __name__ == "__main__":
    main()
