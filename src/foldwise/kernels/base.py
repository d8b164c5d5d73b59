"""What a kernel is, and what the matrix of its pairs of rows must give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from foldwise.arguments import Table, check_arguments

__all__ = ["Array", "Kernel", "Pairs", "RowPairs"]

Array = npt.NDArray[np.float64]


class Pairs(Protocol):
    """The kernel matrix ``K`` of two sets of rows for any parameters, and its derivatives in their logarithms.

    ``log_p`` holds the logarithms of all parameters, end to end in the order of :meth:`Kernel.parameters`. The three
    contractions belong to the values that :meth:`value` was given last.
    """

    def value(self, log_p: Array) -> Array:
        """The kernel matrix ``K`` at these parameters, shape (n, m)."""

    def contract(self, P: Array) -> Array:
        """``sum_ij P_ij dK_ij / dlog p`` for every parameter ``p``: shape (parameters,)."""

    def apply(self, A: Array) -> Array:
        """``(dK / dlog p) A`` for every parameter ``p``: shape (parameters, n, columns of A)."""

    def apply_transposed(self, A: Array) -> Array:
        """``(dK / dlog p)' A`` for every parameter ``p``: shape (parameters, m, columns of A)."""


@runtime_checkable
class RowPairs(Pairs, Protocol):
    """Pairs of a symmetric matrix that can be had row by row, so that a sparse solution never forms all of it."""

    @property
    def n_rows(self) -> int:
        """Number of rows of the matrix."""

    def rows(self, log_p: Array, index: npt.NDArray[np.intp]) -> Array:
        """These rows of the kernel matrix."""

    def apply_rows(self, log_p: Array, index: npt.NDArray[np.intp], K: Array, A: Array) -> Array:
        """``(dK / dlog p) A`` for ``A`` that is zero but on the rows ``index``; ``K`` and ``A`` are given on these."""


class Kernel(BaseEstimator):
    """Base of all kernels: a description without data, whose parameters are those of its constructor.

    A subclass defines :meth:`parameters` (which of them can be tuned), :meth:`pairs` (the matrix and its derivatives)
    and :meth:`__call__` (the matrix between other rows, for predictions); the other methods have defaults.

    Examples
    --------
    >>> import numpy as np
    >>> from foldwise.kernels import RBF
    >>> RBF(gamma=0.5)(np.array([[0.0], [2.0]]), np.array([[0.0]])).round(4).tolist()
    [[1.0], [0.1353]]
    """

    widths: ClassVar[Sequence[str]] = ()
    """Names of the parameters that make the kernel narrower as they grow, such as ``gamma`` of a Gaussian kernel."""
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
        """The least and the largest value of every parameter in a search on these rows.

        By default a factor of 100 around the typical value, and for widths and weights down to 1e-4 of it.
        """
        kinds = self.kinds()
        lowest = {name: 1e-2 if kinds[name] == "other" else 1e-4 for name in kinds}
        return {name: (lowest[name] * value, 1e2 * value) for name, value in self.typical(X).items()}

    def parameters(self, d: int) -> dict[str, Array]:
        """Values of the tunable parameters by name, each an array; ``d`` is the number of columns of X."""
        return {}

    def with_parameters(self, values: Mapping[str, Any]) -> Self:
        """A copy with these values of tunable parameters; the original stays as it is."""
        out = type(self)(**self.get_params(deep=False))
        out.set_params(**{name: _plain(value) for name, value in values.items()})
        return out

    def pairs(self, X: Array, U: Array | None = None) -> Pairs:
        """The kernel matrix of the rows of ``X``, or of ``X`` with the rows of ``U``, for parameters to be given later.

        What does not depend on them (distances, products) is computed here, once.
        """
        raise TypeError(f"{type(self).__name__} does not define pairs(X)")

    def __call__(self, X: Array, Z: Array) -> Array:
        """The kernel matrix of two sets of rows, at the kernel's own parameters: shape (rows of X, rows of Z)."""
        raise TypeError(f"{type(self).__name__} does not define __call__(X, Z)")

    def diagonal(self, X: Array) -> Array:
        """``k(x, x)`` for every row."""
        return np.array([float(self(row[None], row[None])[0, 0]) for row in X])

    @property
    def precomputed(self) -> bool:
        """Whether ``X`` is a kernel matrix, so that its columns stand for training rows."""
        return False

    @property
    def is_linear(self) -> bool:
        """Whether decisions are linear in the features; a precomputed kernel is taken to be curved."""
        return False

    def single_pairs(self, X: Array) -> Pairs:
        """Pairs of the rows of ``X`` with distances in single precision."""
        raise TypeError(f"{type(self).__name__} does not define single_pairs(X)")

    def reordered(self, X: Array, order: npt.NDArray[np.intp]) -> Array:
        """The training rows in another order; of a kernel matrix the columns too."""
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


def _plain(value: Any) -> float | Array:
    """A number where there is one value, as constructors are given it; else an array."""
    array = np.asarray(value, float)
    return float(array.ravel()[0]) if array.size == 1 else array
