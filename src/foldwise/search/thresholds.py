"""The decision threshold of two classes that serves a metric best, from out-of-fold decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from foldwise.models.base import Array

__all__ = ["MOST", "best_threshold", "candidates"]

MOST = 200
"""Thresholds that are looked at, at most: quantiles of the decisions, and 0."""


def candidates(folds: Sequence[Array], most: int = MOST) -> Array:
    """Thresholds between decisions of all folds, evenly in their number, and 0, in increasing order."""
    z = np.unique(np.concatenate(folds))
    middle = 0.5 * (z[1:] + z[:-1])
    if len(middle) > most:
        middle = middle[np.linspace(0, len(middle) - 1, most).round().astype(int)]
    return np.union1d(middle, [0.0])


def best_threshold(
    folds: Sequence[Array], codes: Sequence[Array], metric: Callable[..., Array], positive: int
) -> float:
    """The threshold with the highest mean over the folds of a metric of counts.

    Of a run of thresholds that are equally good, the middle of the longest run; 0 where nothing is better than 0.

    Parameters
    ----------
    folds, codes : sequences of ndarray
        Decisions and codes (0, 1) of the validation rows of every fold; larger decisions are for code 1.
    metric : callable(tp, fp, fn, tn) -> ndarray
    positive : the code that counts as positive

    Examples
    --------
    >>> z, code = np.array([-3.0, -2.0, -1.0, -0.5]), np.array([0, 0, 1, 1])
    >>> best_threshold([z], [code], lambda tp, fp, fn, tn: tp + tn, 1)
    -1.5
    """
    tried = candidates(folds)
    total = np.zeros(len(tried))
    for z, code in zip(folds, codes, strict=True):
        ones, zeros = np.sort(z[code == 1]), np.sort(z[code == 0])
        above_ones = (len(ones) - np.searchsorted(ones, tried, side="right")).astype(float)
        above_zeros = (len(zeros) - np.searchsorted(zeros, tried, side="right")).astype(float)
        counts = above_ones, above_zeros, len(ones) - above_ones, len(zeros) - above_zeros
        tp, fp, fn, tn = counts if positive == 1 else (counts[3], counts[2], counts[1], counts[0])
        total += metric(tp, fp, fn, tn) / len(folds)
    highest = float(np.nanmax(total))
    at_zero = int(np.searchsorted(tried, 0.0))
    close = total >= highest - 1e-12 * max(1.0, abs(highest))
    if close[at_zero]:
        return 0.0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], close, [False]]).astype(int)))
    runs = edges.reshape(-1, 2)
    first, last = runs[int(np.argmax(runs[:, 1] - runs[:, 0]))]
    return float(tried[(first + last - 1) // 2])
