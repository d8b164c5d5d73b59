r"""The fourclass set: grid search against the bikernel machine in (c, gamma), section 5.2.2.

The experiment has one training and one validation set. The thesis gives neither their sizes nor the scale of the two
coordinates, and the scale matters: ``gamma`` times a squared distance must be of order one. With the coordinates as
they are, in [-1, 1] (which is how LIBSVM offers the scaled set) or standardised, the best gamma is about 0.004, 34 or
10, far outside the plotted range of 0.1 to 4.1; within that range H is then no less than 0.2, 0.1 and 0.03, where
0.017 was published. So the thesis's coordinates spanned something like ten units. We map them to [-5, 5]; then the
best point, about (c, gamma) = (1.6, 1.4), is inside the plotted range.

That choice, and one third of the rows for training, **were made by looking at the published figures**: over 20 random
splits Hmin is on average 0.028, 0.019 and 0.015 with 20, 33 and 50% of the rows for training (quartic hinge).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foldwise import RBF, Lin, ModifiedLogHinge
from foldwise.bilevel import Bilevel
from foldwise.losses import Loss
from foldwise.result import Result
from papers import frame
from papers.thesis import bikernel

__all__ = ["LOSSES", "METHODS", "STARTS", "Task", "grid", "search", "tasks"]

LOSSES: dict[str, Loss] = {"modified_log": ModifiedLogHinge(12.0), "quartic": bikernel.QUARTIC}
METHODS = {"lbfgsb": {"tol": 1e-6}, "rprop": {"first": 0.1, "tol": 1e-3}}
STARTS = ((3.0, 3.0), (1.0, 2.8), (1.0, 0.6), (2.0, 0.5))
"""(c, gamma), as published."""
BOUNDS = {"c": Lin(0.01, 100.0), "gamma": Lin(0.01, 100.0)}


@dataclass(frozen=True, eq=False)
class Task:
    """Coordinates, labels and one split into training and validation rows."""

    X: np.ndarray
    y: np.ndarray
    split: tuple[np.ndarray, np.ndarray]

    def program(self, loss: str) -> Bilevel:
        """H as a function of (c, gamma)."""
        return bikernel.program(RBF(1.0), self.X, self.y, [self.split], BOUNDS, loss=LOSSES[loss])


def tasks(count: int, data_dir: Path | None, quick: bool = False) -> tuple[list[Task], str]:
    """Random splits, the same for the same number, and what the data are; a quick run has fewer rows."""
    loaded = frame.load("fourclass", data_dir)
    if loaded is not None:
        X, y = loaded
        statement = (
            "Data: fourclass, 862 rows, both coordinates mapped to [-5, 5]; one third of the rows for training, the "
            "others for validation. Scale and share are not published and were chosen by the published figures."
        )
    else:
        from sklearn.datasets import make_moons

        X, labels = make_moons(862, noise=0.15, random_state=0)
        y = np.where(labels == 1, 1, -1)
        statement = (
            "fourclass.csv.gz was not found (give the data folder): two half moons of as many rows stand in, generated "
            "by scikit-learn. The figures cannot be compared."
        )
    X = 5.0 * frame.scale_to_unit(X)
    if quick:
        rows = np.random.default_rng(0).permutation(len(y))[:240]
        X, y = X[rows], y[rows]
        statement += " Quick: 240 of the rows."
    out = []
    for seed in range(count):
        order = np.random.default_rng(seed).permutation(len(y))
        cut = len(y) // 3
        out.append(Task(X, y, (order[:cut], order[cut:])))
    return out, statement


def search(task: Task, loss: str, method: str, start: tuple[float, float]) -> Result:
    """Minimise H from one of the published starts."""
    return bikernel.minimise(
        task.program(loss), method, {"c": start[0], "gamma": start[1]}, **METHODS[method]
    )


def grid(task: Task, loss: str, quick: bool = False) -> Result:
    """The published grid: c in [0.1, 4], gamma in [0.1, 4.1], step 0.2: 420 points."""
    step = 1.0 if quick else 0.2
    values = {"c": np.arange(0.1, 4.0, step), "gamma": np.arange(0.1, 4.1 + 1e-9, step)}
    return bikernel.minimise(task.program(loss), "grid", {}, values=values)
