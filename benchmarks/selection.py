"""Which point of a grid to take? Rules of selection read off the same out-of-fold decisions of scikit-learn's SVC.

    python benchmarks/selection.py --splits 3

On every set and split an SVC is fitted at all points of an 11 x 11 grid, in three partitions into five folds and on all
training rows. Every rule (criteria, partitions, pulls, one standard error) then chooses from the same fits, and its
choice is valued on the rows that were held out: points of error above the choice of ``GridSearchCV``, minus is better.
Rules are chosen on the first group of sets and confirmed on the second, which was not looked at before. Fits are kept
in a folder; a run goes on where the last one stopped.
"""

import argparse
import os
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
from _kernel_sets import named_set
from scipy.spatial.distance import cdist
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from foldwise.criteria import OutOfFold, Part, ProfiledLogistic
from foldwise.losses import ModifiedHuber

KNOWN = {
    "breast cancer": 250, "heart_statlog": 180, "ionosphere": 234, "parkinsons": 130, "pima": 250, "fourclass": 250,
    "letter O-Q": 250, "letter I-J": 250, "digits 8": 250, "breast_cancer_wisconsin": 250, "heart_cleveland": 198,
    "raetsch_banana": 250, "raetsch_german": 250, "raetsch_image": 250, "raetsch_splice": 250, "raetsch_waveform": 250,
    "qsar_biodeg": 250, "qsar_mdrr": 250, "qsar_bbb2": 53, "bbbp": 250, "sdss_star_galaxy": 250, "ijcnn1_cont": 250,
}  # fmt: skip
"""Sets that were used before, on which rules are chosen, and how many rows train at most."""
UNTOUCHED = {
    "letter B-R": 200, "letter H-K": 150, "letter M-N": 100, "letter U-V": 200, "letter C-G": 150,
    "digits 3-8": 120, "digits 4-9": 150, "digits 1-7": 100, "covtype_50k 1-2": 250, "covtype_50k 3-6": 200,
    "covtype_50k 2-5": 250, "iris 1-2": 66, "seeds 1-2": 93, "seeds 1-rest": 140, "abalone half": 250,
    "cpusmall half": 200, "cadata half": 250, "protein_casp half": 250, "year_prediction_6k half": 250,
    "qsar_fish_toxicity half": 250, "qsar_aquatic_toxicity half": 200, "esol half": 200, "freesolv half": 150,
    "lipophilicity half": 250, "qsar_solubility half": 150, "milan_mort half": 250, "mnist_test 3-5": 150,
}  # fmt: skip
"""Sets on which they are confirmed."""
LOG_C, LOG_GAMMA = np.log(10.0) * np.linspace(-2, 4, 11), np.log(10.0) * np.linspace(-4, 2, 11)
"""The grid; ``gamma`` times the number of columns."""
REPEATS, N_TEST = 3, 1500


def fit(name, n_train, seed, folder, kept):
    """Out-of-fold decisions (partitions, C, gamma, rows) and errors on held-out rows (C, gamma) of one split."""
    path = kept / f"{name}.{seed}.npz"
    if not path.exists():
        X, y = named_set(name, folder, print)
        size = min(n_train, 2 * len(y) // 3)
        parts = train_test_split(X, y, train_size=size, stratify=y, random_state=seed)
        scaler = StandardScaler().fit(parts[0])
        X, X_test, y, y_test = scaler.transform(parts[0]), scaler.transform(parts[1][:N_TEST]), *parts[2:]
        near, far = cdist(X, X, "sqeuclidean"), cdist(X_test, X, "sqeuclidean")
        Z, errors = np.zeros((REPEATS, 11, 11, len(y)), np.float32), np.zeros((11, 11))
        for j, gamma in enumerate(np.exp(LOG_GAMMA) / X.shape[1]):
            K, other = np.exp(-gamma * near), np.exp(-gamma * far)
            for i, C in enumerate(np.exp(LOG_C)):
                machine = SVC(C=C, kernel="precomputed", max_iter=300_000)
                for r in range(REPEATS):
                    for train, test in StratifiedKFold(5, shuffle=True, random_state=seed + 100 * r).split(
                        X, y
                    ):
                        machine.fit(K[np.ix_(train, train)], y[train])
                        Z[r, i, j, test] = machine.decision_function(K[np.ix_(test, train)])
                errors[i, j] = np.mean(machine.fit(K, y).predict(other) != y_test[:N_TEST])
        np.savez_compressed(path, Z=Z, y=y, errors=errors)
    found = np.load(path)
    return found["Z"], found["y"], found["errors"]


def losses(criterion, Z, y):
    """The criterion of every row at every point of the grid, one partition after the other."""
    out = np.empty(Z.shape, np.float32)
    for at in np.ndindex(Z.shape[:-1]):
        z = Z[at].astype(float)
        parts = OutOfFold([Part(0, 0, 0, None, z, y, np.full(len(y), 1.0 / len(y)))], 1)
        out[at] = criterion.value(z, y) if isinstance(criterion, ModifiedHuber) else criterion.by_row(parts)
    return out


def choices(Z, y):
    """The point of the grid that every rule takes."""
    wrong = (np.sign(Z) != y).astype(float)
    by_criterion = {
        "modified Huber": losses(ModifiedHuber(), Z[:1], y),
        "profiled, no outliers": losses(ProfiledLogistic(outliers=0.0), Z, y),
    }
    for share in (0.01, 0.02, 0.05, 0.1):
        by_criterion[f"profiled, {share:g}"] = losses(ProfiledLogistic(outliers=share), Z, y)
    out = {"error count": lowest(wrong[0].mean(-1)), "error count, 3 partitions": lowest(wrong.mean((0, -1)))}
    for name, rows in by_criterion.items():
        for count in {1, len(rows)}:
            out.update(rules(name + (f", {count} partitions" if count > 1 else ""), rows[:count].mean(0)))
    return out


def rules(name, rows):
    """The criterion alone, with pulls, and with the rule of one standard error."""
    n, value = rows.shape[-1], rows.mean(-1)
    C, gamma = np.meshgrid(LOG_C, LOG_GAMMA, indexing="ij")
    best = lowest(value)
    out = {name: best}
    for centre, wider, kappa in ((3, 1, 0.5), (3, 1, 1), (10, 3, 0.5), (10, 3, 1), (30, 3, 0.5), (30, 3, 1)):
        pull = (C - np.log(centre)) ** 2 + (gamma + np.log(wider)) ** 2
        at = f"(C {centre}, gamma scale" + (f" / {wider})" if wider > 1 else ")")
        out[f"{name}, prior {kappa:g} around {at}"] = lowest(value + kappa / (2 * n) * pull)
    gap = rows - rows[best]
    for factor in (0.5, 1.0):
        within = gap.mean(-1) <= factor * gap.std(-1, ddof=1) / np.sqrt(n)
        within[best] = True
        out[f"{name}, within {factor:g} s.e."] = lowest(np.where(within, gamma + 0.5 * C, np.inf))
    return out


def lowest(values):
    """The first of the lowest, as ``GridSearchCV`` takes it."""
    return np.unravel_index(np.argmin(values), values.shape)


def measure(sets, splits, folder, kept):
    """By set and rule: points of error above that of ``GridSearchCV``, split by split."""
    out = {}
    for name, n_train in sets.items():
        for seed in range(splits):
            Z, y, errors = fit(name, n_train, seed, folder, kept)
            found = {**choices(Z, y), "hindsight": lowest(errors)}
            for rule, point in found.items():
                gap = 100 * (errors[point] - errors[found["error count"]])
                out.setdefault(name, {}).setdefault(rule, []).append(gap)
        print(name, flush=True)
    return out


def line(found, rule):
    """Mean over the sets with its error, and sets better / worse by more than a standard error over the splits."""
    means = np.array([np.mean(one[rule]) for one in found.values()])
    spread = np.array([np.std(one[rule], ddof=1) / np.sqrt(len(one[rule])) for one in found.values()])
    better, worse = int(np.sum(means < -spread)), int(np.sum(means > spread))
    return f"{means.mean():+.2f} +- {means.std(ddof=1) / np.sqrt(len(means)):.2f}, {better} / {worse}"


def main():
    """Fit what is missing and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=3, help="random splits per set (3)")
    parser.add_argument("--data", type=Path, help="folder of the real sets; by default $FOLDWISE_DATA")
    kept = Path(__file__).resolve().parent / "results" / "selection"
    parser.add_argument("--kept", type=Path, default=kept, help="folder of the fits")
    given = parser.parse_args()
    given.kept.mkdir(parents=True, exist_ok=True)
    folder = given.data or Path(os.environ["FOLDWISE_DATA"])
    known, other = (measure(sets, given.splits, folder, given.kept) for sets in (KNOWN, UNTOUCHED))
    print(f"| rule | {len(known)} known sets, better / worse | {len(other)} untouched sets, better / worse |")
    print("| --- | ---: | ---: |")
    for rule in next(iter(known.values())):
        print(f"| {rule} | {line(known, rule)} | {line(other, rule)} |")


if __name__ == "__main__":
    main()
