"""The data of table 1: four public sets, split as in the paper, and what stands for the Star/Galaxy sets.

Twenty instances of each set: a random part for cross-validation, the rest for testing. Columns have mean 0 and standard
deviation 1 over the whole set, as the paper's wording suggests; it leaves open whether that was done before the
split. Folds are random and of equal size.

The paper's sizes say which rows it had. Heart: 216 + 81 = 297 rows are the Cleveland rows without missing values; the
file has 13 features, as table 2 has, and not the 14 of table 1. Cancer: 240 + 442 = 682 rows, one less than the file
has without missing values; one row is left out of each instance. Ionosphere: 33 of 34 columns, as one is constant.
Star/Galaxy (bright and dim) are not public. A star/galaxy set of another survey is shown apart from the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.model_selection import KFold

from papers import frame

__all__ = ["FILES", "FOLDS", "SETS", "SIZES", "Instance", "Set", "load_set"]

SIZES = {
    "pima": (240, 528),
    "cancer": (240, 442),
    "heart": (216, 81),
    "ionosphere": (240, 111),
    "sdss": (600, 1862),
}
"""Training and test rows; sdss has those of the bright Star/Galaxy set."""
FILES = {
    "pima": "pima",
    "cancer": "breast_cancer_wisconsin",
    "heart": "heart_cleveland",
    "ionosphere": "ionosphere",
    "sdss": "sdss_star_galaxy",
}
SETS = ("pima", "cancer", "heart", "ionosphere")
FOLDS = 3


@dataclass(frozen=True, eq=False)
class Instance:
    """Training rows, test rows and folds."""

    data: str
    number: int
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Set:
    """A standardised data set with labels -1 and +1."""

    name: str
    X: np.ndarray
    y: np.ndarray
    statement: str
    real: bool

    def instance(self, number: int, folds: int = FOLDS, n_train: int | None = None) -> Instance:
        """A random split with the sizes of table 1, or with fewer training rows."""
        size, n_test = SIZES[self.name]
        n_train = size if n_train is None else n_train
        order = np.random.default_rng([number, len(self.y)]).permutation(len(self.y))
        train, test = order[:n_train], order[n_train : n_train + n_test]
        parts = list(KFold(folds).split(train))  # the order is random already
        return Instance(self.name, number, self.X[train], self.y[train], self.X[test], self.y[test], parts)


def load_set(name: str, data_dir: Path | None) -> Set:
    """A set of the paper, or rows of the same size that stand in for it when its file is not there."""
    loaded = frame.load(FILES[name], data_dir)
    if loaded is not None:
        X, y = loaded
        statement = f"{name}: {FILES[name]}.csv.gz."
    else:
        X, y = _stand_in(name)
        statement = (
            f"{name}: {FILES[name]}.csv.gz was not found (give the data folder); generated rows of the same number "
            "stand in, and the figures cannot be compared."
        )
    X = X[:, X.std(axis=0) > 0]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return Set(name, X, np.where(y > 0, 1, -1), statement, loaded is not None)


FEATURES = {"pima": 8, "cancer": 9, "heart": 13, "ionosphere": 33, "sdss": 5}


def _stand_in(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Two overlapping classes, with half of the features of no use."""
    n, d = sum(SIZES[name]), FEATURES[name]
    rng = np.random.default_rng(d)
    X = rng.normal(size=(n, d)) @ (np.eye(d) + 0.3 * rng.normal(size=(d, d)) / np.sqrt(d))
    w = np.where(np.arange(d) < (d + 1) // 2, 1.0, 0.0)
    return X, np.where(X @ w + np.sqrt(d / 4.0) * rng.normal(size=n) > 0, 1, -1)
