"""Penalties on ``theta`` that are added to the criterion of a search.

A prior gives its value, gradient and Hessian at ``theta``; several are added with ``+``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["CentrePenalty", "Prior", "SpreadPenalty", "SumOfPriors"]

Array = np.ndarray[Any, Any]


class Prior(ABC):
    """A smooth function of ``theta``, convex or not, that is added to the cross-validation error."""

    @abstractmethod
    def value(self, theta: Array) -> float:
        """What is added to the criterion."""

    @abstractmethod
    def gradient(self, theta: Array) -> Array:
        """Its gradient, shape (p,)."""

    @abstractmethod
    def hessian(self, theta: Array) -> Array:
        """Its Hessian, shape (p, p)."""

    def __call__(self, theta: Array) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian, as :class:`foldwise.bilevel.Bilevel` takes them."""
        return self.value(theta), self.gradient(theta), self.hessian(theta)

    def __add__(self, other: Prior) -> SumOfPriors:
        return SumOfPriors((self, other))


@dataclass(frozen=True, eq=False)
class SumOfPriors(Prior):
    """Several priors at once.

    >>> both = SpreadPenalty([slice(0, 2)], 1.0) + SpreadPenalty([slice(2, 4)], 0.5)
    >>> both.value(np.array([0.0, 2.0, 0.0, 2.0]))
    1.5
    """

    parts: Sequence[Prior]

    def value(self, theta: Array) -> float:
        """The sum of the values."""
        return sum(part.value(theta) for part in self.parts)

    def gradient(self, theta: Array) -> Array:
        """The sum of the gradients."""
        return np.asarray(sum(part.gradient(theta) for part in self.parts))

    def hessian(self, theta: Array) -> Array:
        """The sum of the Hessians."""
        return np.asarray(sum(part.hessian(theta) for part in self.parts))


@dataclass(frozen=True, eq=False)
class SpreadPenalty(Prior):
    """``strength / 2 ||theta_B - mean(theta_B)||^2`` for every block ``B``: the entries of a block stay together.

    On the logarithms of the widths of single features it shrinks them to one common width; docs/shrinkage.md has what
    it is worth.

    Parameters
    ----------
    blocks : sequence of slice
    strength : float
    """

    blocks: Sequence[slice]
    strength: float

    def _gaps(self, theta: Array) -> Array:
        """Distance of every entry from the mean of its block; 0 outside the blocks."""
        out = np.zeros(len(theta))
        for block in self.blocks:
            out[block] = theta[block] - theta[block].mean()
        return out

    def value(self, theta: Array) -> float:
        """Half the sum of squared distances from the means, times the strength."""
        return (
            0.5 * self.strength * sum(float(gap @ gap) for gap in (self._gaps(theta)[b] for b in self.blocks))
        )

    def gradient(self, theta: Array) -> Array:
        """Distances from the means, times the strength."""
        return self.strength * self._gaps(theta)

    def hessian(self, theta: Array) -> Array:
        """Constant: the identity minus the mean, in every block."""
        out = np.zeros((len(theta), len(theta)))
        for block in self.blocks:
            size = block.stop - block.start
            out[block, block] = self.strength * (np.eye(size) - 1.0 / size)
        return out


@dataclass(frozen=True, eq=False)
class CentrePenalty(Prior):
    """``strength / 2 ||(theta - centre) / unit||^2``: entries stay near a point that the data suggest.

    Where the folds say little it decides, elsewhere it does next to nothing; docs/selection.md has what it is worth.

    Parameters
    ----------
    centre : ndarray, shape (p,)
    unit : ndarray, shape (p,)
        Natural units, :func:`foldwise.space.natural_units`.
    strength : float

    Examples
    --------
    >>> pull = CentrePenalty(np.zeros(2), np.array([1.0, 0.5]), 0.1)
    >>> round(pull.value(np.array([1.0, 1.0])), 12)
    0.25
    """

    centre: Array
    unit: Array
    strength: float

    def value(self, theta: Array) -> float:
        """Half the squared distance in natural units, times the strength."""
        return 0.5 * self.strength * float(np.sum(((theta - self.centre) / self.unit) ** 2))

    def gradient(self, theta: Array) -> Array:
        """Distances, times the strength."""
        return np.asarray(self.strength * (theta - self.centre) / self.unit**2)

    def hessian(self, theta: Array) -> Array:
        """Constant and diagonal."""
        return np.diag(self.strength / self.unit**2)
