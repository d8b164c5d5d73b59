"""Weighted sums of kernels, each on columns of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from foldwise.arguments import NONE, Table, numbers, sequence, shown
from foldwise.kernels.base import Array, Kernel, Pairs

__all__ = ["Sum", "named_columns"]


class _SumPairs:
    """``K = sum_p beta_p K_p``."""

    def __init__(self, parts: list[Pairs], sizes: list[int]) -> None:
        self.parts, self.sizes = parts, sizes

    def __copy__(self) -> _SumPairs:
        return _SumPairs([copy(part) for part in self.parts], self.sizes)

    def value(self, log_p: Array) -> Array:
        """The kernel matrix at these log-parameters: first the weights, then each part's own."""
        P = len(self.parts)
        self.beta = np.exp(log_p[:P])
        edges = P + np.concatenate([[0], np.cumsum(self.sizes)]).astype(int)
        self.values = [
            part.value(log_p[first:last])
            for part, first, last in zip(self.parts, edges, edges[1:], strict=False)
        ]
        out: Array = sum(beta * K for beta, K in zip(self.beta, self.values, strict=True))
        return out

    def contract(self, P: Array) -> Array:
        """``sum_ij P_ij dK_ij / dlog p``."""
        weights = [
            beta * float(np.einsum("ij,ij->", P, K)) for beta, K in zip(self.beta, self.values, strict=True)
        ]
        inner = [beta * part.contract(P) for beta, part in zip(self.beta, self.parts, strict=True)]
        return np.concatenate([np.array(weights), *inner])

    def apply(self, A: Array) -> Array:
        """``(dK / dlog p) A``."""
        weights = np.stack([beta * (K @ A) for beta, K in zip(self.beta, self.values, strict=True)])
        inner = [beta * part.apply(A) for beta, part in zip(self.beta, self.parts, strict=True)]
        return np.concatenate([weights, *inner])

    def apply_transposed(self, A: Array) -> Array:
        """``(dK / dlog p)' A``."""
        weights = np.stack([beta * (K.T @ A) for beta, K in zip(self.beta, self.values, strict=True)])
        inner = [beta * part.apply_transposed(A) for beta, part in zip(self.beta, self.parts, strict=True)]
        return np.concatenate([weights, *inner])


COLUMNS = sequence(lambda column: isinstance(column, (int, np.integer, str)), "a list of columns")


class Sum(Kernel):
    """``k(x, z) = sum_p weights_p k_p(x[columns_p], z[columns_p])``: several kernels, each on its own columns.

    Parameters
    ----------
    kernels : sequence of Kernel
    weights : array of shape (kernels,), optional
        Positive; 1 / number of kernels by default. With ``C`` free too, their scale is degenerate (thesis 3.2):
        a search keeps ``C`` fixed, or ties it.
    columns : sequence, optional
        One entry per kernel: a slice, a list of column numbers or, for data frames, of names; None for all columns.
        Those of a Sum inside another count within the columns that it was given.

    Examples
    --------
    >>> from foldwise.kernels import RBF, Linear
    >>> kernel = Sum([RBF(0.5), Linear()], columns=[[0], [1]])
    >>> sorted(kernel.parameters(2))
    ['k0__gamma', 'weights']
    """

    _arguments: ClassVar[Table] = {
        "kernels": sequence(
            lambda kernel: isinstance(kernel, Kernel), "a list of one or more Kernel objects", 1
        ),
        "weights": numbers(at_least=0) | NONE,
        "columns": sequence(lambda choice: True, "a list with the columns of every kernel") | NONE,
    }

    def check(self) -> None:
        super().check()
        for kernel in self.kernels:
            kernel.check()

    def __init__(
        self,
        kernels: Sequence[Kernel],
        weights: npt.ArrayLike | None = None,
        columns: Sequence[Any] | None = None,
    ) -> None:
        self.kernels = kernels
        self.weights = weights
        self.columns = columns

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; with ``deep`` also those of the parts, as ``k0``, ``k0__gamma``, ..."""
        out: dict[str, Any] = super().get_params(deep=False)
        for p, kernel in enumerate(self.kernels if deep and isinstance(self.kernels, (list, tuple)) else ()):
            inner = {f"k{p}__{name}": value for name, value in kernel.get_params().items()}
            out |= {f"k{p}": kernel, **inner}
        return out

    def set_params(self, **params: Any) -> Self:
        """Set parameters; those of a part, such as ``k0__gamma``, in a copy of it."""
        kernels = list(self.kernels)
        own = {}
        for name, value in params.items():
            part, _, inner = name.partition("__")
            numbered = part[:1] == "k" and part[1:].isdigit() and int(part[1:]) < len(kernels)
            if not numbered:
                own[name] = value
                continue
            p = int(part[1:])
            kernels[p] = clone(kernels[p]).set_params(**{inner: value}) if inner else value
        if kernels != list(self.kernels):
            self.kernels = kernels
        super().set_params(**own)
        return self

    def names(self) -> list[str]:
        inner = [f"k{p}__{name}" for p, kernel in enumerate(self.kernels) for name in kernel.names()]
        return ["weights", *inner]

    def kinds(self) -> dict[str, str]:
        inner = {
            f"k{p}__{name}": kind for p, k in enumerate(self.kernels) for name, kind in k.kinds().items()
        }
        return {"weights": "weight", **inner}

    def typical(self, X: Array) -> dict[str, float]:
        out = {"weights": 1.0 / len(self.kernels)}
        for p, kernel in enumerate(self.kernels):
            part = kernel.typical(X[:, self._columns(p)])
            out |= {f"k{p}__{name}": value for name, value in part.items()}
        return out

    def bounds(self, X: Array) -> dict[str, tuple[float, float]]:
        out = {"weights": (1e-4, 1e2)}
        for p, kernel in enumerate(self.kernels):
            part = kernel.bounds(X[:, self._columns(p)])
            out |= {f"k{p}__{name}": pair for name, pair in part.items()}
        return out

    def _columns(self, p: int) -> Any:
        if self.columns is None:
            return slice(None)
        if len(self.columns) != len(self.kernels):
            raise ValueError(
                f"Sum has {len(self.kernels)} kernels and {len(self.columns)} choices of columns"
            )
        if self.columns[p] is None:
            return slice(None)
        return self.columns[p]

    def _weights(self) -> Array:
        P = len(self.kernels)
        weights = np.full(P, 1.0 / P) if self.weights is None else np.asarray(self.weights, float)
        if weights.shape != (P,):
            raise ValueError(f"Sum has {P} kernels and {weights.size} weights; they must be equal in number")
        out: Array = np.maximum(weights, np.finfo(float).tiny)
        return out

    def parameters(self, d: int) -> dict[str, Array]:
        self.check()
        out = {"weights": self._weights()}
        for p, kernel in enumerate(self.kernels):
            width = self._width(p, d)
            for name, values in kernel.parameters(width).items():
                out[f"k{p}__{name}"] = values
        return out

    def _width(self, p: int, d: int) -> int:
        columns = self._columns(p)
        if not isinstance(columns, slice) and not COLUMNS.allows(columns):
            raise ValueError(
                f"columns {shown(columns)} of a Sum must be a slice, a list of column numbers or names, or None"
            )
        if not isinstance(columns, slice) and any(isinstance(column, str) for column in columns):
            raise ValueError(f"columns {columns} of a Sum are names, which need a data frame; got an array")
        try:
            width = len(np.arange(d)[columns])
        except IndexError:
            raise ValueError(f"columns {columns} of a Sum are not all among the {d} of X") from None
        if width == 0:
            raise ValueError(f"columns {columns} of a Sum choose none of the {d} of X")
        return width

    @property
    def precomputed(self) -> bool:
        return any(kernel.precomputed for kernel in self.kernels)

    @property
    def is_linear(self) -> bool:
        return all(kernel.is_linear for kernel in self.kernels)

    def reordered(self, X: Array, order: npt.NDArray[np.intp]) -> Array:
        out = X[order]
        for p, kernel in enumerate(self.kernels):
            if kernel.precomputed:
                columns = self._columns(p)
                out[:, columns] = kernel.reordered(X[:, columns], order)
        return out

    def resolved(self, names: Sequence[str] | None) -> Kernel:
        if names is None:
            return self
        P = len(self.kernels)
        columns = [None] * P if self.columns is None else named_columns(self.columns, names)
        inner = [list(names) if c is None else np.asarray(names, dtype=object)[c].tolist() for c in columns]
        kernels = [kernel.resolved(part) for kernel, part in zip(self.kernels, inner, strict=False)]
        return Sum(kernels, self.weights, None if self.columns is None else columns)

    def with_parameters(self, values: Mapping[str, Any]) -> Self:
        kernels = list(self.kernels)
        weights = self.weights
        for name, value in values.items():
            if name == "weights":
                weights = np.atleast_1d(np.asarray(value, float))
                continue
            part, inner = name.split("__", 1)
            p = int(part[1:])
            kernels[p] = kernels[p].with_parameters({inner: value})
        return type(self)(kernels, weights, self.columns)

    def pairs(self, X: Array, U: Array | None = None) -> Pairs:
        parts, sizes = [], []
        for p, kernel in enumerate(self.kernels):
            columns = self._columns(p)
            block = X[:, columns]
            parts.append(kernel.pairs(block) if U is None else kernel.pairs(block, U[:, columns]))
            sizes.append(sum(v.size for v in kernel.parameters(block.shape[1]).values()))
        return _SumPairs(parts, sizes)

    def __call__(self, X: Array, Z: Array) -> Array:
        total = 0.0
        for p, (kernel, weight) in enumerate(zip(self.kernels, self._weights(), strict=True)):
            columns = self._columns(p)
            total = total + weight * kernel(X[:, columns], Z[:, columns])
        return np.asarray(total)

    def diagonal(self, X: Array) -> Array:
        parts = [kernel.diagonal(X[:, self._columns(p)]) for p, kernel in enumerate(self.kernels)]
        return self._weights() @ np.stack(parts)


def named_columns(columns: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Column choices by name turned into numbers."""
    index = {name: i for i, name in enumerate(names)}
    out: list[Any] = []
    for choice in columns:
        if choice is None or isinstance(choice, slice):
            out.append(choice)
            continue
        picked = []
        for column in choice:
            if isinstance(column, str):
                if column not in index:
                    raise ValueError(f"unknown column {column!r}; X has: {', '.join(names)}")
                picked.append(index[column])
            else:
                picked.append(int(column))
        out.append(picked)
    return out
