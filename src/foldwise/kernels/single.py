"""Kernels with a formula of their own, and the matrices of their pairs of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.metrics.pairwise import additive_chi2_kernel

from foldwise.arguments import FLAG, Table, integer, number, numbers
from foldwise.kernels.base import Array, Kernel, Pairs
from foldwise.linalg import cholesky

__all__ = [
    "RBF",
    "AdditiveChi2",
    "DistancePairs",
    "ExpChi2",
    "Linear",
    "Polynomial",
    "Precomputed",
    "check_positive",
    "squared_distances",
]


class _FixedPairs:
    """A kernel matrix without parameters."""

    def __init__(self, K: Array) -> None:
        self.K = K

    def value(self, log_p: Array) -> Array:
        """The kernel matrix at these log-parameters."""
        return self.K

    def contract(self, P: Array) -> Array:
        """``sum_ij P_ij dK_ij / dlog p``."""
        return np.zeros(0)

    def apply(self, A: Array) -> Array:
        """``(dK / dlog p) A``: shape (parameters, n, columns of A)."""
        return np.zeros((0, len(self.K), A.shape[1]))

    def apply_transposed(self, A: Array) -> Array:
        """``(dK / dlog p)' A``."""
        return np.zeros((0, self.K.shape[1], A.shape[1]))


class Linear(Kernel):
    """``k(x, z) = x'z``."""

    @property
    def is_linear(self) -> bool:
        return True

    def pairs(self, X: Array, U: Array | None = None) -> Pairs:
        return _FixedPairs(X @ (X if U is None else U).T)

    def __call__(self, X: Array, Z: Array) -> Array:
        return X @ Z.T

    def diagonal(self, X: Array) -> Array:
        squares: Array = np.einsum("ij,ij->i", X, X)
        return squares


class Precomputed(Kernel):
    """``X`` is the kernel matrix itself: (n, n) in training, (new rows, n) afterwards.

    Inside a :class:`Sum`, give each part the columns of its own matrix.
    """

    @property
    def precomputed(self) -> bool:
        return True

    def reordered(self, X: Array, order: npt.NDArray[np.intp]) -> Array:
        _check_square(X)
        return X[np.ix_(order, order)]

    def pairs(self, X: Array, U: Array | None = None) -> Pairs:
        if U is not None:
            raise ValueError("a precomputed kernel has no low-rank form; use low_rank=False")
        _check_square(X)
        check_positive(X)
        return _FixedPairs(X)

    def __call__(self, X: Array, Z: Array) -> Array:
        return X

    def diagonal(self, X: Array) -> Array:
        return np.diagonal(X).copy()


def _check_square(K: Array) -> None:
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"a precomputed kernel must be square in training; got shape {K.shape}")


def check_positive(K: Array) -> None:
    """Raise when a matrix is not symmetric positive semi-definite to rounding, in single precision if need be."""
    size = float(np.abs(K).max(initial=0.0))
    if not np.allclose(K, K.T, rtol=0, atol=1e-6 * max(size, 1e-300)):
        raise ValueError("a precomputed kernel must be symmetric; symmetrise it with (K + K.T) / 2")
    share = max(1e-6, 1e-10 * len(K))
    try:
        cholesky(K, ridge=share, unit=max(size, 1e-300), most=share)
    except FloatingPointError:
        lowest = float(np.linalg.eigvalsh(K)[0])
        raise ValueError(
            f"a precomputed kernel must be positive semi-definite; its lowest eigenvalue is {lowest:.3g}. "
            "Clip negative eigenvalues, or use another similarity"
        ) from None


CANCELLED = 1e-5
"""Share of the squared norms of two rows below which their squared distance is taken from their difference."""


def squared_distances(X: Array, U: Array | None = None) -> Array:
    """``||x_i - u_j||^2`` for all pairs of rows; exactly zero on the diagonal when ``U`` is None.

    Both sets are shifted by the mean of ``X`` first: distances do not change, and rounding does not grow with the
    distance of the data from zero. Rows that are near beside their norms are subtracted: they keep their digits, and
    equal rows have no distance, however far they are from the others.

    >>> squared_distances(np.array([[3e8, 1.7], [1e8, 0.3]]), np.array([[3e8, 1.7]])).tolist()
    [[0.0], [4e+16]]
    """
    centre = X.mean(axis=0)
    left = X - centre
    right = left if U is None else U - centre
    out: Array = left @ right.T
    out *= -2.0
    own, other = np.einsum("ij,ij->i", left, left), np.einsum("ij,ij->i", right, right)
    out += own[:, None]
    out += other
    most = CANCELLED * (own.max(initial=0.0) + other.max(initial=0.0))
    for first in range(0, len(out), 256):  # in blocks: no second matrix of this size
        block = out[first : first + 256]
        i, j = np.divmod(np.flatnonzero(block <= most), max(block.shape[1], 1))
        gone = block[i, j] <= CANCELLED * (own[first + i] + other[j])
        i, j = i[gone], j[gone]
        gap = X[first + i] - (X if U is None else U)[j]
        block[i, j] = np.einsum("kd,kd->k", gap, gap)
    if U is None:
        out.flat[:: len(out) + 1] = 0.0
    return out


def _single_precision(
    distances: Callable[[Array, Array], Array], X: Array, block: int = 256
) -> npt.NDArray[np.float32]:
    """Distances of all rows in single precision, symmetric, from ``distances(some rows, other rows)``."""
    out = np.empty((len(X), len(X)), dtype=np.float32)
    for first in range(0, len(X), block):
        own = slice(first, min(first + block, len(X)))
        out[own, first:] = distances(X[own], X[first:])
        # The block on the diagonal is then its own transpose's upper half.
        out[first:, own] = out[own, first:].T
    out.flat[:: len(X) + 1] = 0.0
    return out


class DistancePairs:
    """``K = exp(-gamma D)`` for a matrix of distances: what ``pairs`` of a kernel of your own may return.

    Parameters
    ----------
    D : ndarray, shape (n, m)
        Distances of all pairs of rows; symmetric for the rows of a training set.

    Examples
    --------
    >>> import numpy as np
    >>> pairs = DistancePairs(np.array([[0.0, 2.0], [2.0, 0.0]]))
    >>> pairs.value(np.log([0.5])).round(4).tolist()
    [[1.0, 0.3679], [0.3679, 1.0]]
    """

    def __init__(self, D: npt.NDArray[np.floating[Any]]) -> None:
        self.D = D

    def value(self, log_p: Array) -> Array:
        """The kernel matrix at these log-parameters."""
        self.gamma = float(np.exp(log_p[0]))
        self.K = np.empty_like(self.D)
        np.multiply(self.D, -self.gamma, out=self.K)
        np.exp(self.K, out=self.K)
        return self.K

    @property
    def n_rows(self) -> int:
        """Number of rows of the matrix."""
        return len(self.D)

    def rows(self, log_p: Array, index: npt.NDArray[np.intp]) -> Array:
        """Some rows of the (symmetric) kernel matrix."""
        out = np.take(self.D, index, axis=0)
        out *= -float(np.exp(log_p[0]))
        return np.exp(out, out=out)

    def apply_rows(self, log_p: Array, index: npt.NDArray[np.intp], K: Array, A: Array) -> Array:
        """``(dK / dlog p) A`` for ``A`` that is zero but on the rows ``index``; ``K`` and ``A`` are given on these."""
        slopes = np.take(self.D, index, axis=0).astype(float, copy=False) * K
        return -float(np.exp(log_p[0])) * (slopes.T @ A)[None]

    def contract(self, P: Array) -> Array:
        """``sum_ij P_ij dK_ij / dlog p``."""
        return np.array([-self.gamma * float(np.einsum("ij,ij,ij->", P, self.K, self.D, optimize=False))])

    def apply(self, A: Array) -> Array:
        """``(dK / dlog p) A``."""
        if self.D.dtype == A.dtype:
            whole: Array = -self.gamma * ((self.D * self.K) @ A)[None]
            return whole
        out = np.empty((len(self.D), A.shape[1]))
        for first in range(0, len(out), 256):  # in single precision: blocks are multiplied in double
            part = slice(first, first + 256)
            out[part] = (self.D[part].astype(float) * self.K[part]) @ A
        return -self.gamma * out[None]

    def apply_transposed(self, A: Array) -> Array:
        """``(dK / dlog p)' A``."""
        out: Array = -self.gamma * ((self.D * self.K).T @ A)[None]
        return out


class _ArdPairs:
    """``K = exp(-sum_d gamma_d (x_d - u_d)^2)``; all derivatives from products with X and U."""

    width_per_column = True

    def __init__(self, X: Array, U: Array | None) -> None:
        # Shifts do not change differences; centred columns keep the products accurate.
        centre = X.mean(axis=0)
        self.X = X - centre
        self.U = self.X if U is None else U - centre
        self.X2 = self.X**2
        self.U2 = self.X2 if U is None else self.U**2

    def value(self, log_p: Array) -> Array:
        """The kernel matrix at these log-parameters."""
        self.gamma = np.exp(log_p)
        root = np.sqrt(self.gamma)
        other = None if self.U is self.X else self.U * root
        self.K = squared_distances(self.X * root, other)
        np.negative(self.K, out=self.K)
        np.exp(self.K, out=self.K)
        return self.K

    def contract(self, P: Array) -> Array:
        """``sum_ij P_ij dK_ij / dlog p``."""
        B = P * self.K
        ends = B.sum(axis=1) @ self.X2 + B.sum(axis=0) @ self.U2
        out: Array = -self.gamma * (ends - 2.0 * np.einsum("id,id->d", self.X, B @ self.U))
        return out

    def apply(self, A: Array) -> Array:
        """``(dK / dlog p) A``."""
        return _ard_apply(self.K, self.X, self.X2, self.U, self.U2, self.gamma, A)

    def apply_transposed(self, A: Array) -> Array:
        """``(dK / dlog p)' A``."""
        return _ard_apply(self.K.T, self.U, self.U2, self.X, self.X2, self.gamma, A)


def _ard_apply(K: Array, X: Array, X2: Array, U: Array, U2: Array, gamma: Array, A: Array) -> Array:
    """``-gamma_d sum_j K_ij (x_id - u_jd)^2 A_jm`` for all ``d`` by one product with the rows where ``A`` is not 0."""
    d = len(gamma)
    out = np.empty((d, len(K), A.shape[1]))
    for m in range(A.shape[1]):
        used: Any = np.flatnonzero(A[:, m])
        if len(used) > 0.7 * len(A):
            used = slice(None)
        a = A[used, m][:, None]
        first, second, sums = np.split(
            K[:, used] @ np.hstack([U[used] * a, U2[used] * a, a]), [d, 2 * d], axis=1
        )
        out[:, :, m] = (-gamma * (X2 * sums - 2.0 * X * first + second)).T
    return out


def _total_variance(X: Array) -> float:
    """Variance of all columns together; of columns that are constant to rounding the mean square, and 1 of zeros."""
    mean, variance = X.mean(axis=0), X.var(axis=0)
    variance = variance[variance > (16.0 * np.finfo(float).eps * mean) ** 2]
    return float(variance.sum()) or float(mean @ mean) or 1.0


class RBF(Kernel):
    """``k(x, z) = exp(-gamma ||x - z||^2)``, or with one ``gamma`` per feature.

    Parameters
    ----------
    gamma : float or array of shape (features,), default=1.0
    ard : bool, default=False
        One width per feature; a scalar ``gamma`` is then every feature's value.
    """

    widths = ("gamma",)
    has_single_pairs = True
    _arguments: ClassVar[Table] = {"gamma": numbers(at_least=0), "ard": FLAG}

    def __init__(self, gamma: float | npt.ArrayLike = 1.0, ard: bool = False) -> None:
        self.gamma = gamma
        self.ard = ard

    def names(self) -> list[str]:
        return ["gamma"]

    def typical(self, X: Array) -> dict[str, float]:
        return {"gamma": 1.0 / _total_variance(X)}  # a typical exponent is 2

    def parameters(self, d: int) -> dict[str, Array]:
        self.check()
        gamma = np.atleast_1d(np.asarray(self.gamma, float))
        if gamma.size not in (1, d):
            raise ValueError(
                f"RBF has {gamma.size} values of gamma for {d} features; give one, or one per feature"
            )
        if not (self.ard or gamma.size > 1):
            return {"gamma": gamma}
        return {"gamma": np.broadcast_to(gamma, d).copy()}

    def pairs(self, X: Array, U: Array | None = None) -> Pairs:
        if self.ard or np.size(self.gamma) > 1:
            return _ArdPairs(X, U)
        return DistancePairs(squared_distances(X, U))

    def single_pairs(self, X: Array) -> DistancePairs:
        """Pairs of the rows of ``X`` with distances in single precision; formed in blocks of rows."""
        return DistancePairs(_single_precision(squared_distances, X))

    def __call__(self, X: Array, Z: Array) -> Array:
        scale = np.sqrt(np.asarray(self.gamma, float))
        return np.exp(-squared_distances(Z * scale, X * scale).T)

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


class _PolynomialPairs:
    """``K = (gamma x'z + coef0)^degree``."""

    def __init__(self, G: Array, degree: int) -> None:
        self.G, self.degree = G, degree

    def value(self, log_p: Array) -> Array:
        """The kernel matrix at these log-parameters."""
        self.gamma, self.coef0 = float(np.exp(log_p[0])), float(np.exp(log_p[1]))
        self.base = self.gamma * self.G + self.coef0
        self.slope = self.degree * self.base ** (self.degree - 1)
        return self.base * self.base ** (self.degree - 1)

    def contract(self, P: Array) -> Array:
        """``sum_ij P_ij dK_ij / dlog p``."""
        B = P * self.slope
        return np.array([self.gamma * float(np.sum(B * self.G)), self.coef0 * float(B.sum())])

    def apply(self, A: Array) -> Array:
        """``(dK / dlog p) A``."""
        return np.stack([self.gamma * ((self.slope * self.G) @ A), self.coef0 * (self.slope @ A)])

    def apply_transposed(self, A: Array) -> Array:
        """``(dK / dlog p)' A``."""
        return np.stack([self.gamma * ((self.slope * self.G).T @ A), self.coef0 * (self.slope.T @ A)])


class Polynomial(Kernel):
    """``k(x, z) = (gamma x'z + coef0)^degree`` with a fixed integer degree."""

    widths = ("gamma",)
    _arguments: ClassVar[Table] = {
        "degree": integer(),
        "gamma": number(at_least=0),
        "coef0": number(at_least=0),
    }

    def __init__(self, degree: int = 3, gamma: float = 1.0, coef0: float = 1.0) -> None:
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    @property
    def is_linear(self) -> bool:
        return self.degree == 1

    def typical(self, X: Array) -> dict[str, float]:
        return {"gamma": 1.0 / _total_variance(X), "coef0": 1.0}

    def parameters(self, d: int) -> dict[str, Array]:
        self.check()
        return {"gamma": np.atleast_1d(float(self.gamma)), "coef0": np.atleast_1d(float(self.coef0))}

    def pairs(self, X: Array, U: Array | None = None) -> Pairs:
        return _PolynomialPairs(X @ (X if U is None else U).T, int(self.degree))

    def __call__(self, X: Array, Z: Array) -> Array:
        return (float(self.gamma) * (X @ Z.T) + float(self.coef0)) ** int(self.degree)


def _check_histograms(X: Array) -> None:
    if X.size and X.min() < 0:
        raise ValueError(
            f"a chi-squared kernel needs features that are not negative; the lowest is {X.min():.3g}. "
            "Use histograms or counts, or MinMaxScaler before it"
        )


def _chi2(X: Array, Z: Array | None = None) -> Array:
    """Minus the chi-squared distances of rows; scikit-learn's routine takes no array that must not be written to."""
    first, second = (A if A is None else np.require(A, requirements="W") for A in (X, Z))
    out: Array = additive_chi2_kernel(first, second)
    return out


class ExpChi2(Kernel):
    """``k(x, z) = exp(-gamma sum_d (x_d - z_d)^2 / (x_d + z_d))`` for histograms (thesis 6.1)."""

    widths = ("gamma",)
    has_single_pairs = True
    _arguments: ClassVar[Table] = {"gamma": number(at_least=0)}

    def __init__(self, gamma: float = 1.0) -> None:
        self.gamma = gamma

    def typical(self, X: Array) -> dict[str, float]:
        sample = X[:: max(1, len(X) // 200)]
        _check_histograms(sample)
        return {"gamma": 1.0 / max(float(-_chi2(sample).mean()), 1e-12)}

    def parameters(self, d: int) -> dict[str, Array]:
        self.check()
        return {"gamma": np.atleast_1d(float(self.gamma))}

    def pairs(self, X: Array, U: Array | None = None) -> Pairs:
        _check_histograms(X)
        return DistancePairs(-_chi2(X, U))

    def single_pairs(self, X: Array) -> DistancePairs:
        """Pairs of the rows of ``X`` with distances in single precision; formed in blocks of rows."""
        _check_histograms(X)
        return DistancePairs(_single_precision(lambda A, B: -_chi2(A, B), X))

    def __call__(self, X: Array, Z: Array) -> Array:
        _check_histograms(X)
        return np.exp(float(self.gamma) * _chi2(X, Z))

    def diagonal(self, X: Array) -> Array:
        return np.ones(len(X))


class AdditiveChi2(Kernel):
    """``k(x, z) = sum_d 2 x_d z_d / (x_d + z_d)`` for histograms (thesis 6.2)."""

    def pairs(self, X: Array, U: Array | None = None) -> Pairs:
        return _FixedPairs(self(X, X if U is None else U))

    def __call__(self, X: Array, Z: Array) -> Array:
        _check_histograms(X)
        # 4 x z / (x + z) = (x + z) - (x - z)^2 / (x + z)
        out: Array = 0.5 * (X.sum(axis=1)[:, None] + Z.sum(axis=1)[None, :] + _chi2(X, Z))
        return out

    def diagonal(self, X: Array) -> Array:
        total: Array = X.sum(axis=1)
        return total
