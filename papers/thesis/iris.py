r"""Iris, setosa against the rest: the experiments of sections 5.1 and 5.2.1.

The model is the thesis's (2.4), ``c/2 ||w||^2 + sum_i loss`` with the bias not penalised: ``lam = c``, ``C = 1``. Its
outer objective is ``H = 1/(2L) ||z - y||^2`` on L validation rows; ours has no 1/2, so ``H`` is half of our criterion.

The thesis says neither how the rows were split nor how the features were scaled. Its range for c, 1 to 100, with the
optimum inside, rules out much: on unscaled features the best c is about 2.2 times the number of training rows, beyond
100 from 45 rows on. With every feature mapped to [-1, 1] it is about half that number.

So scaling and sizes here are a choice, **made by looking at the published figures**: sixteen combinations (features as
they are, standardised, or mapped to [-1, 1]; 20 to 100 training rows) were tried on 60 random splits each, and the one
with the nearest split was kept: [-1, 1] with 75 training, 25 validation and 50 test rows. Others come nearly as close
([-1, 1] with 50 / 50 / 50, and 40 / 40 / 70 on unscaled features), so the choice is plausible, not identified. Some 200
systematic splits (every third row, the first rows of each class, ...) at three scalings did no better.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from foldwise import BilevelSearchCV, Lin, LinearSVC
from foldwise.losses import Loss
from foldwise.result import Result
from papers import frame

__all__ = ["Split", "errors", "search", "splits"]

N_TRAIN, N_VALIDATION = 75, 25
C_RANGE = (1.0, 100.0)
C_START = 9.0


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test rows."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]


@lru_cache(maxsize=1)
def setosa() -> tuple[np.ndarray, np.ndarray]:
    """Features mapped to [-1, 1]; +1 for setosa."""
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True)
    return frame.scale_to_unit(X), np.where(y == 0, 1, -1)


def splits(count: int) -> list[Split]:
    """Random splits, the same for the same number."""
    X, y = setosa()
    out = []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(y))
        parts = np.split(order, [N_TRAIN, N_TRAIN + N_VALIDATION])
        out.append(Split(*((X[rows], y[rows]) for rows in parts)))
    return out


def search(split: Split, loss: Loss, method: str, options: dict[str, Any]) -> Result:
    """Minimise H over c from c0 = 9 with one training and one validation set."""
    X = np.vstack([split.train[0], split.validation[0]])
    y = np.concatenate([split.train[1], split.validation[1]])
    rows = np.arange(len(y))
    start = {} if method == "grid" else {"start": {"lam": C_START}}
    found = BilevelSearchCV(
        LinearSVC(loss=loss),
        {"lam": Lin(*C_RANGE)},
        method=method,
        criterion="squared",
        cv=[(rows[:N_TRAIN], rows[N_TRAIN:])],
        refit=False,
        method_options={**start, **options},
    ).fit(X, y)
    return found.result_


def errors(split: Split, loss: Loss, c: float) -> dict[str, float]:
    """H and classification rate (in percent) of the model for ``c`` on every part."""
    model = LinearSVC(loss=loss, lam=c, tol=1e-12).fit(*split.train)
    out = {}
    for name in ("train", "validation", "test"):
        X, y = getattr(split, name)
        out[f"H_{name}"] = 0.5 * float(np.mean((model.decision_function(X) - y) ** 2))
        out[f"CR_{name}"] = 100.0 * float(np.mean(model.predict(X) == y))
    return out
