"""Data that many tests make: linear and curved targets, labels, positive rows."""

from __future__ import annotations

import numpy as np


def lines(n, weights, seed=0, *, noise=1.0, tails=None, spread=1.0, shift=0.0, level=0.0):
    """Normal rows and a linear target with normal noise or, with ``tails`` degrees of freedom, Student's.

    ``spread`` and ``shift`` are those of the columns.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(weights))) * spread + shift
    errors = rng.normal(size=n) if tails is None else rng.standard_t(tails, size=n)
    return X, X @ np.asarray(weights, float) + noise * errors + level


def waves(n, d, seed=0, *, frequency=1.5, slope=0.5, noise=0.3, spread=1.0, shift=0.0):
    """Normal rows and a target that is a sine of the first column and linear in the second."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * spread + shift
    return X, np.sin(frequency * X[:, 0]) + slope * X[:, 1] + noise * rng.normal(size=n)


def labels(y, share=0.5):
    """Texts: "yes" above the quantile of this share, "no" below it."""
    return np.where(y > np.quantile(y, share), "yes", "no")


def histograms(rng, n, d):
    """Positive rows, such as kernels of histograms take."""
    return rng.gamma(2.0, 0.5, size=(n, d))
