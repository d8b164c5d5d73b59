r"""The generated data of section VI.A, and the post-processing of section VI.C.

An instance has ``n`` features, of which ``n_r`` matter. A fifth of the columns is uniform on [-1, 1], a fifth on
[-2.5, 2.5], a fifth on [-5, 5] and the rest on [-3.75, 3.75]. The weights are uniform on [-1, 1] and the ``n - n_r``
smallest in size are 0. Labels have noise, Gaussian or Laplacian, whose standard deviation is 0.4 of that of the
training labels without it. The 1,000 rows held out have noise of the same size.

What the paper does not say, and our choice: the noise of the rows held out (the published errors can only be had with
noise); the seed (ours is made of features, rows, noise and number of the instance, so that no instance depends on which
others are made); the three folds (random, of equal size).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.model_selection import KFold

__all__ = [
    "FOLDS",
    "NOISES",
    "POINTS",
    "RELEVANT",
    "Instance",
    "constrained_l1",
    "instances",
    "make_instance",
]

RELEVANT = {5: 3, 10: 7, 15: 10}
"""Features, and how many of them matter."""
POINTS = (15, 30, 60, 90)
NOISES = ("gaussian", "laplacian")
FOLDS = 3
HELD_OUT = 1000
SHARES = ((0.2, 1.0), (0.2, 2.5), (0.2, 5.0), (0.4, 3.75))
"""Share of the columns, and half of the width of their uniform distribution."""


@dataclass(frozen=True, eq=False)
class Instance:
    """Training rows, rows held out, true weights and folds."""

    features: int
    points: int
    noise: str
    number: int
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    w: np.ndarray
    folds: list[tuple[np.ndarray, np.ndarray]]

    @property
    def key(self) -> str:
        """A name for files."""
        return f"{self.features}-{self.points}-{self.noise}-{self.number}"


def make_instance(features: int, points: int, noise: str, number: int) -> Instance:
    """One instance of section VI.A.

    Parameters
    ----------
    features : {5, 10, 15}
    points : int
        Training rows.
    noise : {"gaussian", "laplacian"}
    number : int
        0 to 4 in the tables.
    """
    if features not in RELEVANT or noise not in NOISES:
        raise ValueError(f"no data with {features} features and {noise!r} noise; features: 5, 10 or 15")
    rng = np.random.default_rng([features, points, NOISES.index(noise), number])
    half = np.concatenate([np.full(round(share * features), width) for share, width in SHARES])
    rows = rng.uniform(-half, half, (points + HELD_OUT, features))
    w = rng.uniform(-1.0, 1.0, features)
    w[np.argsort(np.abs(w))[: features - RELEVANT[features]]] = 0.0
    clean = rows @ w
    sd = 0.4 * float(np.std(clean[:points]))
    if noise == "gaussian":
        y = clean + rng.normal(0.0, sd, len(rows))
    else:
        y = clean + rng.laplace(0.0, sd / np.sqrt(2.0), len(rows))
    order = KFold(FOLDS, shuffle=True, random_state=number).split(rows[:points])
    X, X_test, y_train, y_test = rows[:points], rows[points:], y[:points], y[points:]
    return Instance(features, points, noise, number, X, y_train, X_test, y_test, w, list(order))


def instances(features: int, points: int, count: int) -> Iterator[Instance]:
    """The first ``count`` instances of a cell, the two kinds of noise by turns."""
    for i in range(count):
        yield make_instance(features, points, NOISES[i % 2], i // 2)


def constrained_l1(X: np.ndarray, y: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Minimise ``sum_i |x_i'w - y_i|`` over ``|w_d| <= box_d``: the linear program of section VI.C.

    Parameters
    ----------
    X : ndarray, shape (n, d)
    y : ndarray, shape (n,)
    box : ndarray, shape (d,)
        Infinite entries are allowed.

    Returns
    -------
    w : ndarray, shape (d,)

    Examples
    --------
    >>> X, y = np.eye(2), np.array([3.0, -0.5])
    >>> constrained_l1(X, y, np.array([1.0, 1.0]))
    array([ 1. , -0.5])
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, eye_array, hstack

    n, d = X.shape
    box = np.asarray(box, float)
    # y - Xw = above - below with both parts non-negative: at the optimum one of them is 0 in every row.
    rows = hstack([csr_array(X), eye_array(n), -eye_array(n)])
    cost = np.concatenate([np.zeros(d), np.ones(2 * n)])
    lower, upper = np.concatenate([-box, np.zeros(2 * n)]), np.concatenate([box, np.full(2 * n, np.inf)])
    report = linprog(cost, A_eq=rows, b_eq=y, bounds=np.column_stack([lower, upper]), method="highs")
    if report.x is None:
        raise ValueError(
            f"the linear program of the final regression has no solution ({report.message}); check the data"
        )
    return report.x[:d]
