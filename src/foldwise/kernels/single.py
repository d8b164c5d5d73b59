"""Kernels of one form each, and what their matrices share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.metrics.pairwise import additive_chi2_kernel

from foldwise.arguments import FLAG, Table, check_arguments, integer, number, numbers
from foldwise.linalg import cholesky

__all__ = [
    "RBF",
    "AdditiveChi2",
    "DistancePairs",
    "ExpChi2",
    "Kernel",
    "Linear",
    "Polynomial",
    "Precomputed",
    "check_positive",
    "squared_distances",
]

Array = np.ndarray


class Kernel(BaseEstimator):
    """Base of all kernels; subclasses define :meth:`parameters`, :meth:`pairs` and :meth:`__call__`.

    Examples
    --------
    >>> import numpy as np
    >>> RBF(gamma=0.5)(np.array([[0.0], [2.0]]), np.array([[0.0]])).round(4).tolist()
    [[1.0], [0.1353]]
    """

    widths: ClassVar[Sequence[str]] = ()
    """Names of the parameters that make the kernel narrower as they grow, such as ``gamma`` of :class:`RBF`."""
    has_single_pairs: ClassVar[bool] = False
    """Whether distances can be kept in single precision: :meth:`single_pairs`."""
    _arguments: ClassVar[Table] = {}

    def check(self) -> None:
        """Raise an error when a parameter is not what it may be."""
        check_arguments(self)

    def names(self) -> list[str]:
        """Names of the tunable parameters, which may be any."""
        return list(self.parameters(1))

    def kinds(self) -> dict[str, str]:
        """What each parameter is: a "width" (one of :attr:`widths`), a "weight" of a part, or "other".

        Widths of single features are drawn together by a search, and its first points vary all widths.
        """
        return {name: "width" if name in self.widths else "other" for name in self.names()}

    def typical(self, X: Array) -> dict[str, float]:
        """A value of every parameter from which a search on these rows may start.

        A width is chosen so that a typical pair of rows has ``-log(k(x, z) / sqrt(k(x, x) k(z, z))) = 1``, all others
        being as they are; any other parameter keeps its value.
        """
        own = {name: float(np.mean(values)) for name, values in self.parameters(X.shape[1]).items()}
        rows = X[:: max(1, len(X) // 200)]
        for name, kind in self.kinds().items():
            if kind == "width":
                own[name] = _typical_width(self, name, rows)
        return own

    def bounds(self, X: Array) -> dict[str, tuple[float, float]]:
        """Between which values a search on these rows may look for every parameter: from typical ones, by default."""
        kinds = self.kinds()
        lowest = {name: 1e-2 if kinds[name] == "other" else 1e-4 for name in kinds}
        return {name: (lowest[name] * value, 1e2 * value) for name, value in self.typical(X).items()}

    def parameters(self, d: int) -> dict[str, Array]:
        """Values of the tunable parameters by name, each an array; ``d`` is the number of columns of X."""
        return {}

    def with_parameters(self, values: Mapping[str, Any]) -> Kernel:
        """A copy with these parameter values."""
        out = type(self)(**self.get_params(deep=False))
        return out.set_params(**{k: _plain(v) for k, v in values.items()})

    def pairs(self, X: Array, U: Array | None = None) -> Any:
        """The parameter-free part of the kernel matrix of the rows of ``X``, or of ``X`` with the rows of ``U``."""
        raise TypeError(f"{type(self).__name__} does not define pairs(X)")

    def __call__(self, X: Array, Z: Array) -> Array:
        """The kernel matrix of two sets of rows."""
        raise TypeError(f"{type(self).__name__} does not define __call__(X, Z)")

    def diagonal(self, X: Array) -> Array:
        """``k(x, x)`` for every row."""
        return np.array([float(self(row[None], row[None])[0, 0]) for row in X])

    @property
    def precomputed(self) -> bool:
        """Whether columns of ``X`` stand for training rows."""
        return False

    def single_pairs(self, X: Array) -> Any:
        """Pairs of the rows of ``X`` with distances in single precision."""
        raise TypeError(f"{type(self).__name__} does not define single_pairs(X)")

    @property
    def is_linear(self) -> bool:
        """Whether decisions are linear in the features; a precomputed kernel is taken to be curved."""
        return False

    def reordered(self, X: Array, order: Array) -> Array:
        """Training rows in another order."""
        return X[order]

    def resolved(self, names: Sequence[str] | None) -> Kernel:
        """This kernel with columns that were chosen by name turned into numbers."""
        return self


def _typical_width(kernel: Kernel, name: str, X: Array) -> float:
    """The value of one parameter at which the mean exponent over pairs of rows is 1, by bisection of its logarithm."""
    size = kernel.parameters(X.shape[1])[name].size
    floor = np.finfo(float).tiny

    def exponent(log_p: float) -> float:
        value = np.exp(log_p)
        changed = kernel.with_parameters({name: value if size == 1 else np.full(size, value)})
        own = np.sqrt(np.maximum(changed.diagonal(X), floor))
        return float(-np.log(np.clip(changed(X, X) / np.outer(own, own), 1e-300, 1.0)).mean())

    low, high = np.log(1e-10), np.log(1e10)
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exponent(middle) < 1.0 else (low, middle)
    return float(np.exp(0.5 * (low + high)))


def _plain(value: Any) -> Any:
    array = np.asarray(value, float)
    return float(array.ravel()[0]) if array.size == 1 else array


class _Fixed:
    """Pairs of a kernel without parameters."""

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
    def is_linear(self):
        return True

    def pairs(self, X, U=None):
        return _Fixed(X @ (X if U is None else U).T)

    def __call__(self, X, Z):
        return X @ Z.T

    def diagonal(self, X):
        return np.einsum("ij,ij->i", X, X)


class Precomputed(Kernel):
    """``X`` is the kernel matrix itself: (n, n) in training, (new rows, n) afterwards.

    Inside a :class:`Sum`, give each part the columns of its own matrix.
    """

    @property
    def precomputed(self):
        return True

    def reordered(self, X, order):
        _check_square(X)
        return X[np.ix_(order, order)]

    def pairs(self, X, U=None):
        if U is not None:
            raise ValueError("a precomputed kernel has no low-rank form; use low_rank=False")
        _check_square(X)
        check_positive(X)
        return _Fixed(X)

    def __call__(self, X, Z):
        return X

    def diagonal(self, X):
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
    out = left @ right.T
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


def _single(distances: Callable[[Array, Array], Array], X: Array, block: int = 256) -> Array:
    """Distances of all rows in single precision, symmetric, from ``distances(some rows, other rows)``."""
    out = np.empty((len(X), len(X)), dtype=np.float32)
    for first in range(0, len(X), block):
        own = slice(first, min(first + block, len(X)))
        out[own, first:] = distances(X[own], X[first:])
        out[first:, own] = out[
            own, first:
        ].T  # the block on the diagonal is then its own transpose's upper half
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

    def __init__(self, D: Array) -> None:
        self.D = D

    def value(self, log_p: Array) -> Array:
        """The kernel matrix at these log-parameters."""
        self.gamma = float(np.exp(log_p[0]))
        self.K = np.multiply(self.D, -self.gamma)
        np.exp(self.K, out=self.K)
        return self.K

    def rows(self, log_p: Array, index: Array) -> Array:
        """Some rows of the (symmetric) kernel matrix."""
        out = np.take(self.D, index, axis=0)
        out *= -float(np.exp(log_p[0]))
        return np.exp(out, out=out)

    def apply_rows(self, log_p: Array, index: Array, K: Array, A: Array) -> Array:
        """``(dK / dlog p) A`` for ``A`` that is zero but on the rows ``index``; ``K`` and ``A`` are given on these."""
        slopes = np.take(self.D, index, axis=0).astype(float, copy=False) * K
        return -float(np.exp(log_p[0])) * (slopes.T @ A)[None]

    def contract(self, P: Array) -> Array:
        """``sum_ij P_ij dK_ij / dlog p``."""
        return np.array([-self.gamma * float(np.einsum("ij,ij,ij->", P, self.K, self.D, optimize=False))])

    def apply(self, A: Array) -> Array:
        """``(dK / dlog p) A``."""
        if self.D.dtype == A.dtype:
            return -self.gamma * ((self.D * self.K) @ A)[None]
        out = np.empty((len(self.D), A.shape[1]))
        for first in range(0, len(out), 256):  # in single precision: blocks are multiplied in double
            part = slice(first, first + 256)
            out[part] = (self.D[part].astype(float) * self.K[part]) @ A
        return -self.gamma * out[None]

    def apply_transposed(self, A: Array) -> Array:
        """``(dK / dlog p)' A``."""
        return -self.gamma * ((self.D * self.K).T @ A)[None]


class _ArdPairs:
    """``K = exp(-sum_d gamma_d (x_d - u_d)^2)``; all derivatives from products with X and U."""

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
        return -self.gamma * (ends - 2.0 * np.einsum("id,id->d", self.X, B @ self.U))

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

    def __init__(self, gamma=1.0, ard=False):
        self.gamma = gamma
        self.ard = ard

    def names(self):
        return ["gamma"]

    def typical(self, X):
        return {"gamma": 1.0 / _total_variance(X)}  # a typical exponent is 2

    def parameters(self, d):
        self.check()
        gamma = np.atleast_1d(np.asarray(self.gamma, float))
        if gamma.size not in (1, d):
            raise ValueError(
                f"RBF has {gamma.size} values of gamma for {d} features; give one, or one per feature"
            )
        if not (self.ard or gamma.size > 1):
            return {"gamma": gamma}
        return {"gamma": np.broadcast_to(gamma, d).copy()}

    def pairs(self, X, U=None):
        if self.ard or np.size(self.gamma) > 1:
            return _ArdPairs(X, U)
        return DistancePairs(squared_distances(X, U))

    def single_pairs(self, X):
        return DistancePairs(_single(squared_distances, X))

    def __call__(self, X, Z):
        scale = np.sqrt(np.asarray(self.gamma, float))
        return np.exp(-squared_distances(Z * scale, X * scale).T)

    def diagonal(self, X):
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

    def __init__(self, degree=3, gamma=1.0, coef0=1.0):
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    @property
    def is_linear(self):
        return self.degree == 1

    def typical(self, X):
        return {"gamma": 1.0 / _total_variance(X), "coef0": 1.0}

    def parameters(self, d):
        self.check()
        return {"gamma": np.atleast_1d(float(self.gamma)), "coef0": np.atleast_1d(float(self.coef0))}

    def pairs(self, X, U=None):
        return _PolynomialPairs(X @ (X if U is None else U).T, int(self.degree))

    def __call__(self, X, Z):
        return (float(self.gamma) * (X @ Z.T) + float(self.coef0)) ** int(self.degree)


def _check_histograms(X: Array) -> None:
    if X.size and X.min() < 0:
        raise ValueError(
            f"a chi-squared kernel needs features that are not negative; the lowest is {X.min():.3g}. "
            "Use histograms or counts, or MinMaxScaler before it"
        )


def _chi2(X: np.ndarray, Z: np.ndarray | None = None) -> np.ndarray:
    """Minus the chi-squared distances of rows; scikit-learn's routine takes no array that must not be written to."""
    first, second = (A if A is None else np.require(A, requirements="W") for A in (X, Z))
    return additive_chi2_kernel(first, second)


class ExpChi2(Kernel):
    """``k(x, z) = exp(-gamma sum_d (x_d - z_d)^2 / (x_d + z_d))`` for histograms (thesis 6.1)."""

    widths = ("gamma",)
    has_single_pairs = True
    _arguments: ClassVar[Table] = {"gamma": number(at_least=0)}

    def __init__(self, gamma=1.0):
        self.gamma = gamma

    def typical(self, X):
        sample = X[:: max(1, len(X) // 200)]
        _check_histograms(sample)
        return {"gamma": 1.0 / max(float(-_chi2(sample).mean()), 1e-12)}

    def parameters(self, d):
        self.check()
        return {"gamma": np.atleast_1d(float(self.gamma))}

    def pairs(self, X, U=None):
        _check_histograms(X)
        return DistancePairs(-_chi2(X, U))

    def single_pairs(self, X):
        _check_histograms(X)
        return DistancePairs(_single(lambda A, B: -_chi2(A, B), X))

    def __call__(self, X, Z):
        _check_histograms(X)
        return np.exp(float(self.gamma) * _chi2(X, Z))

    def diagonal(self, X):
        return np.ones(len(X))


class AdditiveChi2(Kernel):
    """``k(x, z) = sum_d 2 x_d z_d / (x_d + z_d)`` for histograms (thesis 6.2)."""

    def pairs(self, X, U=None):
        return _Fixed(self(X, X if U is None else U))

    def __call__(self, X, Z):
        _check_histograms(X)
        # 4 x z / (x + z) = (x + z) - (x - z)^2 / (x + z)
        return 0.5 * (X.sum(axis=1)[:, None] + Z.sum(axis=1)[None, :] + _chi2(X, Z))

    def diagonal(self, X):
        return X.sum(axis=1)
