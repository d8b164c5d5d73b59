"""Data sets for kernel machines: small ones of scikit-learn, synthetic ones, and those of the data folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_classification,
    make_moons,
)
from sklearn.model_selection import train_test_split

__all__ = ["Split", "folder_set", "moons", "named_set", "regression_set", "split", "synthetic"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Split:
    """Training and test rows of one random split."""

    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def folder_set(name: str, folder: Path | None, say: Say) -> tuple[np.ndarray, np.ndarray] | None:
    """Rows and targets of ``name.csv.gz`` in the data folder; None, with a message, when it is not there."""
    if folder is None:
        say(f"{name} left out: no data folder; give --data or set FOLDWISE_DATA")
        return None
    path = folder / f"{name}.csv.gz"
    if not path.exists():
        say(f"{name} left out: {path.name} is not in the data folder")
        return None
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    X = table[:, :-1]
    return X[:, np.ptp(X, axis=0) > 0], table[:, -1]


def named_set(name: str, folder: Path | None, say: Say) -> tuple[np.ndarray, np.ndarray] | None:
    """A two-class set with labels -1 and +1 by its name.

    "letter A-B" is a pair of letters; "digits 3-8" a pair of classes, "seeds 1-rest" one against the others and "esol
    half" a target above its median; "name + k noise" is a set with ``k`` more columns of standard normal noise.
    """
    if name.endswith(" noise"):
        original, more = name.removesuffix(" noise").split(" + ")
        found = named_set(original, folder, say)
        if found is None:
            return None
        X, y = found
        scaled = (X - X.mean(axis=0)) / X.std(axis=0)
        return np.hstack([scaled, np.random.default_rng(0).standard_normal((len(y), int(more)))]), y
    if name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return X, 2.0 * y - 1.0
    if name == "digits 8":
        X, y = load_digits(return_X_y=True)
        return X[:, np.ptp(X, axis=0) > 0], np.where(y == 8, 1.0, -1.0)
    if name == "iris 2-3":
        X, y = load_iris(return_X_y=True)
        return X[y > 0], 2.0 * y[y > 0] - 3.0
    if name == "wine 2":
        X, y = load_wine(return_X_y=True)
        return X, np.where(y == 1, 1.0, -1.0)
    if name.startswith("letter "):
        found = folder_set("letter", folder, say)
        if found is None:
            return None
        first, second = (ord(letter) - ord("A") + 1 for letter in name.removeprefix("letter ").split("-"))
        X, y = found
        rows = (y == first) | (y == second)
        return X[rows], np.where(y[rows] == first, -1.0, 1.0)
    if " " in name:
        return _made_from(*name.split(" "), folder, say)
    return folder_set(name, folder, say)


def _made_from(name: str, how: str, folder: Path | None, say: Say) -> tuple[np.ndarray, np.ndarray] | None:
    """Two classes made from another target: "half" above its median, "3-8" a pair of classes, "0-rest" one of them."""
    found = folder_set(name, folder, say)
    if found is None:
        return None
    X, y = found
    if how == "half":
        return X, np.where(y > np.median(y), 1.0, -1.0)
    first, _, second = how.partition("-")
    if second == "rest":
        return X, np.where(y == float(first), 1.0, -1.0)
    rows = (y == float(first)) | (y == float(second))
    X = X[rows]
    return X[:, np.ptp(X, axis=0) > 0], np.where(y[rows] == float(second), 1.0, -1.0)


def split(name: str, X, y, seed: int, n_train: int | None = None, *, classes: bool = True) -> Split:
    """Two thirds of the rows (at most ``n_train``) for training, the rest for testing, drawn by ``seed``."""
    size = 2 * len(y) // 3 if n_train is None else min(n_train, 2 * len(y) // 3)
    parts = train_test_split(X, y, train_size=size, stratify=y if classes else None, random_state=seed)
    return Split(name, parts[0], parts[2], parts[1], parts[3])


def moons(n: int, seed: int) -> Split:
    """``n`` training and 2,000 test rows of two moons with noise 0.3."""
    X, y = make_moons(n + 2000, noise=0.3, random_state=seed)
    y = 2.0 * y - 1.0
    return Split(f"moons {n}", X[:n], y[:n], X[n:], y[n:])


def synthetic(n: int, d: int, seed: int) -> Split:
    """``n`` training and 2,000 test rows of ``make_classification``: six columns matter, two are mixtures of them."""
    X, y = make_classification(n + 2000, d, n_informative=6, n_redundant=2, random_state=seed)
    y = 2.0 * y - 1.0
    return Split(f"synthetic {d}", X[:n], y[:n], X[n:], y[n:])


def regression_set(name: str, seed: int, folder: Path | None, say: Say) -> Iterator[Split]:
    """A regression set with its target in units of its standard deviation."""
    found = load_diabetes(return_X_y=True) if name == "diabetes" else folder_set(name, folder, say)
    if found is not None:
        X, y = found
        yield split(name, X, (y - y.mean()) / y.std(), seed, classes=False)
