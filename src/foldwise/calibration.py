r"""Probabilities and prediction intervals from out-of-fold decisions.

A support vector machine's decisions have no unit. Those on rows that a machine was not trained on say what they are
worth: a scale and offsets fitted to them turn decisions into probabilities, their residuals into intervals. Nothing is
fitted again: the decisions are those of the folds at the selected values.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, logsumexp

__all__ = ["PairProbabilities", "Probabilities", "Residuals", "couple", "fit_pairs", "fit_probabilities"]

Array = np.ndarray

STEEPEST = 1e3
"""Largest scale, in units of the inverse root mean square decision: beyond it probabilities are 0 and 1."""


@dataclass(frozen=True, eq=False)
class Probabilities:
    r"""``softmax(scale * z + offset)`` of decisions ``z``, one per class; of two classes ``z`` and 0.

    Attributes
    ----------
    scale : float
        At least 0; 0 where the decisions are no better than chance.
    offset : ndarray, shape (classes,), or (1,) for two classes
    n_rows : int
        Out-of-fold decisions that they were fitted to.

    Examples
    --------
    >>> Probabilities(2.0, np.zeros(1), 10).of(np.array([0.0, 1.0])).round(3)
    array([[0.5  , 0.5  ],
           [0.119, 0.881]])
    """

    scale: float
    offset: Array
    n_rows: int

    def of(self, decisions: Array) -> Array:
        """Class probabilities, shape (n, classes), of decisions of shape (n,) or (n, classes)."""
        z = np.asarray(decisions, float)
        if z.ndim == 1:
            m = self.scale * z + self.offset[0]
            return np.column_stack([expit(-m), expit(m)])
        return np.exp(log_softmax(self.scale * z + self.offset, axis=1))


@dataclass(frozen=True, eq=False)
class PairProbabilities:
    """Probabilities from decisions between pairs of classes, coupled as in [1]_.

    Attributes
    ----------
    scale : float
    offset : ndarray, shape (pairs,)
    n_classes, n_rows : int

    References
    ----------
    .. [1] T.-F. Wu, C.-J. Lin, R. C. Weng, Probability estimates for multi-class classification by pairwise coupling,
       Journal of Machine Learning Research 5, 2004, section 4.
    """

    scale: float
    offset: Array
    n_classes: int
    n_rows: int

    def of(self, decisions: Array) -> Array:
        """Class probabilities of decisions of shape (n, pairs), positive for the first class of a pair."""
        first = expit(self.scale * np.asarray(decisions, float) + self.offset)
        return couple(first, self.n_classes)


def couple(first: Array, n_classes: int) -> Array:
    r"""Class probabilities ``p`` that agree best with the pairs': shape (n, classes).

    Minimises :math:`\sum_{i \ne j} (r_{ji} p_i - r_{ij} p_j)^2` over ``sum p = 1``, where ``r_ij`` is the probability
    of class ``i`` in the pair with ``j``: a linear system for every row.

    Parameters
    ----------
    first : ndarray, shape (n, pairs)
        Probability of the first class of every pair (0, 1), (0, 2), ..., (1, 2), ...
    n_classes : int

    Examples
    --------
    >>> couple(np.array([[0.9, 0.9, 0.5]]), 3).round(2)
    array([[0.82, 0.09, 0.09]])
    """
    n, k = len(first), n_classes
    r = np.zeros((n, k, k))
    for column, (i, j) in enumerate(combinations(range(k), 2)):
        share = np.clip(first[:, column], 1e-7, 1.0 - 1e-7)
        r[:, i, j], r[:, j, i] = share, 1.0 - share
    Q = -np.swapaxes(r, 1, 2) * r
    Q[:, np.arange(k), np.arange(k)] = np.einsum("nji,nji->ni", r, r)
    # The multiplier of sum p = 1 borders the system.
    system = np.zeros((n, k + 1, k + 1))
    system[:, :k, :k] = Q
    system[:, :k, k] = system[:, k, :k] = 1.0
    right = np.zeros((n, k + 1))
    right[:, k] = 1.0
    p = np.clip(np.linalg.solve(system, right[..., None])[:, :k, 0], 0.0, None)
    return p / p.sum(axis=1, keepdims=True)


def fit_probabilities(
    decisions: Array, codes: Array, weight: Array | None = None, *, offsets: bool = False
) -> Probabilities:
    """The scale, and the offsets if wanted, under which out-of-fold decisions have the lowest log loss.

    Labels are smoothed by one row of every class over all rows (their total weight), so that a scale exists where the
    decisions tell the classes apart without an error.

    Parameters
    ----------
    decisions : ndarray, shape (n,) or (n, classes)
    codes : ndarray of int, shape (n,)
        Number of every row's class; of two classes, 1 is the one with positive decisions.
    weight : ndarray, shape (n,), optional
    offsets : bool
        Whether offsets are fitted as well. Without them the most probable class is the one that is predicted.
    """
    z = np.asarray(decisions, float)
    two = z.ndim == 1
    k = 2 if two else z.shape[1]
    unit = _unit(z)
    scores = (np.column_stack([np.zeros(len(z)), z]) if two else z) / unit
    share = np.eye(k)[codes]
    mass = _mass(len(z), weight)
    share = (share + 1.0 / (mass + k)) / (1.0 + k / (mass + k))
    v = np.full(len(z), 1.0 / len(z)) if weight is None else weight / weight.sum()

    def loss(x: Array) -> tuple[float, Array]:
        offset = np.concatenate([[0.0], x[1:]])
        F = x[0] * scores + offset
        F -= F.max(axis=1, keepdims=True)
        total = logsumexp(F, axis=1)
        gap = v[:, None] * (np.exp(F - total[:, None]) - share)
        value = float(v @ (total - np.einsum("nk,nk->n", share, F)))
        return value, np.concatenate([[np.einsum("nk,nk->", gap, scores)], gap[:, 1:].sum(axis=0)])

    bounds = [(0.0, STEEPEST)] + [(None, None) if offsets else (0.0, 0.0)] * (k - 1)
    start = np.concatenate([[1.0], np.zeros(k - 1)])
    found = minimize(
        loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-10}
    )
    offset = found.x[1:] if two else np.concatenate([[0.0], found.x[1:]])
    return Probabilities(float(found.x[0] / unit), offset, len(z))


def fit_pairs(
    decisions: list[Array], labels: list[Array], n_classes: int, weights: list[Array] | None = None
) -> PairProbabilities:
    """The same for decisions between pairs of classes: one scale, an offset for every pair.

    ``decisions[p]`` and ``labels[p]``, -1 or +1, are those of the rows of pair ``p``, positive for its first class.
    """
    own = [np.ones(len(z)) for z in decisions] if weights is None else weights
    unit = _unit(np.concatenate(decisions))
    scale, count = _shared_scale(decisions, labels, own, unit), sum(map(len, decisions))
    offsets = [_offset(scale / unit, z, y, w) for z, y, w in zip(decisions, labels, own, strict=True)]
    return PairProbabilities(scale / unit, np.array(offsets), n_classes, count)


def fit_pairs_of_rows(
    Z: Array, codes: Array, n_classes: int, weight: Array | None = None
) -> PairProbabilities:
    """The same from the decisions of all rows, shape (n, pairs), and the numbers of their classes."""
    counts = np.ones(len(codes)) if weight is None else weight
    z, labels, weights = [], [], []
    for column, (i, j) in enumerate(combinations(range(n_classes), 2)):
        own = (codes == i) | (codes == j)
        z.append(Z[own, column])
        labels.append(np.where(codes[own] == i, 1.0, -1.0))
        weights.append(counts[own])
    return fit_pairs(z, labels, n_classes, weights)


def _shared_scale(decisions: list[Array], labels: list[Array], weights: list[Array], unit: float) -> float:
    """One scale for all pairs, in units of the inverse root mean square decision."""
    z, y, w = np.concatenate(decisions), np.concatenate(labels), np.concatenate(weights)
    code, scores = (y > 0).astype(int), z / unit
    return min(fit_probabilities(scores, code, w, offsets=True).scale, STEEPEST)


def _offset(scale: float, z: Array, y: Array, w: Array) -> float:
    """The offset of one pair at a given scale, by Newton's method on a convex function with smoothed labels."""
    mass = _mass(len(z), w)
    share = (np.where(y > 0, 1.0, 0.0) + 1.0 / (mass + 2)) / (1.0 + 2.0 / (mass + 2))
    b, v = 0.0, w / w.sum()
    for _ in range(50):
        p = expit(scale * z + b)
        step = float(v @ (share - p)) / max(float(v @ (p * (1.0 - p))), 1e-10)
        b += float(np.clip(step, -2.0, 2.0))
        if abs(step) < 1e-10:
            break
    return b


def _mass(n: int, weight: Array | None) -> float:
    """How many rows the weights stand for: a weight of 2 is a row given twice; small ones still are of rows."""
    return float(n) if weight is None else max(float(weight.sum()), float(np.count_nonzero(weight)))


def _unit(z: Array) -> float:
    """The root mean square of decisions; 1 where all are zero."""
    largest = float(np.abs(z).max(initial=0.0))
    return largest * float(np.sqrt(np.mean((z / largest) ** 2))) if 1e-300 < largest < np.inf else 1.0


@dataclass(frozen=True, eq=False)
class Residuals:
    """Out-of-fold residuals, target less prediction, in increasing order.

    The errors that machines like the final one make on rows they have not seen. A new row's error is as likely to fall
    between any two of them, so their quantiles give intervals that hold for all rows together (not for every kind of
    row alike), in the manner of the jackknife+ [1]_ without the spread of the folds' own predictions.

    References
    ----------
    .. [1] R. F. Barber, E. J. Candes, A. Ramdas, R. J. Tibshirani, Predictive inference with the jackknife+, Annals of
       Statistics 49, 2021.

    Examples
    --------
    >>> Residuals.of(np.array([3.0, -1.0, 0.0, 2.0, -2.0, 1.0, -3.0, 0.5, -0.5])).between(0.8)
    (-3.0, 3.0)
    """

    values: Array
    share: Array

    @classmethod
    def of(cls, residuals: Array, weight: Array | None = None) -> Residuals:
        """Sorted, with the share of the rows up to and including each."""
        order = np.argsort(residuals, kind="stable")
        w = np.ones(len(residuals)) if weight is None else np.asarray(weight, float)[order]
        total = w.sum() * (1.0 + 1.0 / max(int(np.count_nonzero(w)), 1))  # the new row counts, too
        return cls(np.asarray(residuals, float)[order], np.cumsum(w) / total)

    def between(self, coverage: float) -> tuple[float, float]:
        """The residuals between which a new row's lies with this probability, half of the rest on either side."""
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage must lie between 0 and 1, such as 0.9; got {coverage!r}")
        tail = 0.5 * (1.0 - coverage)
        if tail < self.share[0] - 1e-12 or 1.0 - tail > self.share[-1] + 1e-12:
            needed = int(np.ceil(1.0 / tail)) - 1
            raise ValueError(
                f"an interval of coverage {coverage:g} needs at least {needed} out-of-fold residuals; there are "
                f"{len(self.values)}. Ask for less coverage, or fit to more rows"
            )
        low = np.searchsorted(self.share, tail + 1e-12, side="right") - 1
        high = np.searchsorted(self.share, 1.0 - tail - 1e-12, side="left")
        return float(self.values[low]), float(self.values[high])
