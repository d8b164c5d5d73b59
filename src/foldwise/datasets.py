"""Seeded synthetic data, and named data sets for the command line and the examples.

The same arguments give the same bits. Nothing is downloaded: the real sets are those that scikit-learn ships.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["NAMES", "Dataset", "load_named", "make_margin_classification", "make_pca_regression"]

SIGNAL_TO_NOISE = 0.35
"""Ratio of the variance of the signal to the variance of the noise in :func:`make_pca_regression`."""

GROUP_SD = (0.4, 1.7)
"""Noise level of the first and the last group; the groups between are evenly spaced."""

NOISES = ("t", "bimodal", "normal")


def make_pca_regression(
    n: int, d: int = 100, noise: str = "t", groups: int = 0, seed: int = 0
) -> tuple[np.ndarray, ...]:
    r"""Regression on features that look like principal components, with noise that is hard on least squares.

    .. math:: y_j = x_j' w + s_{g(j)} e_j, \qquad x_{jk} \sim N(0, (12 k^{-0.8})^2) \text{ clipped at 5 sd}

    The direction of ``w`` is drawn from a normal distribution and its length is such that
    ``var(x'w) / var(noise) = 0.35``, both variances those of the distribution (not of the sample; clipping at five
    standard deviations is neglected, it changes the variance by less than 1e-5). With groups, the variance of the
    noise is the mean over the groups.

    Parameters
    ----------
    n : int
        Rows.
    d : int, default=100
        Features.
    noise : {"t", "bimodal", "normal"}, default="t"
        ``e_j``: Student's t with 4 degrees of freedom, scaled to standard deviation 1 (heavy tails: the best tube
        width is 0); plus or minus 1 with a normal spread of 0.25 (the best tube width is positive); standard normal.
    groups : int, default=0
        0: ``s = 1`` for every row. G >= 2: every row belongs to one of G groups of (nearly) equal size, with
        ``s_g`` evenly spaced from 0.4 to 1.7.
    seed : int, default=0
        Seed. The truth ``w`` depends on the seed and ``d`` alone up to its length.

    Returns
    -------
    X : ndarray of shape (n, d)
        Features.
    y : ndarray of shape (n,)
        Target.
    w_true : ndarray of shape (d,)
        The coefficients behind the signal; the intercept is 0.
    labels : ndarray of shape (n,)
        Group of each row, 0 to ``groups - 1``; only when ``groups > 0``.

    Examples
    --------
    >>> X, y, w_true = make_pca_regression(200, d=20, noise="bimodal")
    >>> X.shape, y.shape, w_true.shape
    ((200, 20), (200,), (20,))
    """
    if noise not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)}; got {noise!r}.")
    if n < 1 or d < 1:
        raise ValueError(f"make_pca_regression needs at least one row and one feature; got n={n}, d={d}.")
    if groups < 0 or groups == 1:
        raise ValueError(f"groups must be 0 (none) or at least 2; got {groups}.")
    rng = np.random.default_rng(seed)
    feature_sd = 12.0 * np.arange(1, d + 1) ** -0.8
    w_true = rng.standard_normal(d)
    X = np.clip(rng.standard_normal((n, d)), -5.0, 5.0) * feature_sd
    if noise == "t":
        e, e_variance = rng.standard_t(4, n) / np.sqrt(2.0), 1.0
    elif noise == "bimodal":
        e, e_variance = rng.choice([-1.0, 1.0], n) + 0.25 * rng.standard_normal(n), 1.0 + 0.25**2
    else:
        e, e_variance = rng.standard_normal(n), 1.0
    group_sd = np.linspace(*GROUP_SD, groups) if groups else np.ones(1)
    labels = rng.permutation(n) % len(group_sd)
    noise_variance = e_variance * np.mean(group_sd**2)
    w_true *= np.sqrt(SIGNAL_TO_NOISE * noise_variance / np.sum((feature_sd * w_true) ** 2))
    y = X @ w_true + group_sd[labels] * e
    return (X, y, w_true, labels) if groups else (X, y, w_true)


def make_margin_classification(
    n: int, d: int = 20, informative: int = 5, flip: float = 0.05, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two classes divided by a plane in a few of the features, with some labels flipped.

    Parameters
    ----------
    n, d : int
        Rows and features; the features are standard normal.
    informative : int, default=5
        Number of leading features that the plane uses, at most ``d``.
    flip : float, default=0.05
        Probability that a label is wrong: the error of the best classifier.
    seed : int, default=0
        Seed.

    Returns
    -------
    X : ndarray of shape (n, d)
        Features.
    y : ndarray of shape (n,)
        Labels, -1 or 1.
    w_true : ndarray of shape (d,)
        Normal of the plane, of length 1; zero on the other features.

    Examples
    --------
    >>> X, y, w_true = make_margin_classification(100, flip=0.0)
    >>> bool(np.all(np.sign(X @ w_true) == y))
    True
    """
    if n < 1 or not 1 <= informative <= d:
        raise ValueError(
            f"make_margin_classification needs n >= 1 and 1 <= informative <= d; got n={n}, "
            f"informative={informative}, d={d}."
        )
    if not 0.0 <= flip < 0.5:
        raise ValueError(f"flip is a probability below 0.5; got {flip}.")
    rng = np.random.default_rng(seed)
    w_true = np.zeros(d)
    w_true[:informative] = rng.standard_normal(informative)
    w_true /= np.linalg.norm(w_true)
    X = rng.standard_normal((n, d))
    y = np.where(X @ w_true > 0, 1, -1)
    return X, np.where(rng.random(n) < flip, -y, y), w_true


@dataclass(frozen=True)
class Dataset:
    """A named data set as the command line writes it.

    Attributes
    ----------
    name : str
        Name.
    task : {"regression", "classification"}
        What the target is for.
    columns : tuple of str
        Names of the features.
    X : ndarray of shape (n_samples, n_features)
        Features.
    y : ndarray of shape (n_samples,)
        Target: floats, or class labels (strings where the set names its classes).
    """

    name: str
    task: str
    columns: tuple[str, ...]
    X: np.ndarray
    y: np.ndarray


NAMES: dict[str, str] = {
    "pca_t": "synthetic regression, 100 features, heavy-tailed noise",
    "pca_bimodal": "synthetic regression, 100 features, two-valued noise",
    "pca_normal": "synthetic regression, 100 features, normal noise",
    "margin": "synthetic classification, 20 features of which 5 matter, 5% wrong labels",
    "diabetes": "disease progression, 442 rows, 10 features (scikit-learn)",
    "breast_cancer": "benign or malignant, 569 rows, 30 features (scikit-learn)",
    "iris": "three species, 150 rows, 4 features (scikit-learn)",
    "digits": "ten digits, 1797 rows, 64 features (scikit-learn)",
}
"""What :func:`load_named` knows, with a line on each."""


def load_named(name: str, rows: int | None = None, seed: int = 0) -> Dataset:
    """A data set by name.

    Parameters
    ----------
    name : str
        One of :data:`NAMES`.
    rows : int, optional
        Synthetic sets: number of rows, 1000 by default. Real sets: size of a random subset; all rows by default.
    seed : int, default=0
        Seed of the generator or of the subset.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load_named("iris").X.shape
    (150, 4)
    """
    if name not in NAMES:
        raise ValueError(f"there is no data set {name!r}. Choose one of {', '.join(NAMES)}.")
    if rows is not None and rows < 1:
        raise ValueError(f"rows must be at least 1; got {rows}.")
    if name.startswith("pca_"):
        X, y, *_ = make_pca_regression(rows or 1000, noise=name.removeprefix("pca_"), seed=seed)
        return Dataset(name, "regression", _numbered(X.shape[1]), X, y)
    if name == "margin":
        X, y, _ = make_margin_classification(rows or 1000, seed=seed)
        return Dataset(name, "classification", _numbered(X.shape[1]), X, y)
    return _subset(_load_from_sklearn(name), rows, seed)


def _load_from_sklearn(name: str) -> Dataset:
    from sklearn import datasets

    loader: Callable[..., Any] = getattr(datasets, f"load_{name}")
    bunch = loader()
    columns = tuple(str(column).strip().replace(" ", "_") for column in bunch.feature_names)
    if name == "diabetes":
        return Dataset(name, "regression", columns, bunch.data, bunch.target)
    return Dataset(name, "classification", columns, bunch.data, np.asarray(bunch.target_names)[bunch.target])


def _subset(dataset: Dataset, rows: int | None, seed: int) -> Dataset:
    n = len(dataset.y)
    if rows is None:
        return dataset
    if rows > n:
        raise ValueError(f"{dataset.name} has {n} rows; {rows} were asked for. Ask for at most {n}.")
    keep = np.sort(np.random.default_rng(seed).permutation(n)[:rows])
    return Dataset(dataset.name, dataset.task, dataset.columns, dataset.X[keep], dataset.y[keep])


def _numbered(d: int) -> tuple[str, ...]:
    return tuple(f"x{k}" for k in range(1, d + 1))
