r"""Losses that are straight but for corners: everything from the list of their straight pieces.

.. math::  \ell(z, y) = \max_i \, (k_i z + c_i)

Training problems see such a loss as a *staircase*: minus its slope, which falls by a step at every kink. The dual
variable of a row is the height of the step that its decision is on, times the row's weight; on a kink it lies between
two heights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import Table, number
from foldwise.losses.base import Array, Loss

__all__ = ["Pinball", "Polyhedral", "Rounded", "RoundedMargin", "Staircase", "staircase"]


@dataclass(frozen=True, eq=False)
class Staircase:
    """Minus the slope of a loss, for every row.

    Attributes
    ----------
    kinks : ndarray, shape (n, k)
        Where the loss has its corners, from left to right.
    heights : ndarray, shape (n, k + 1)
        Minus the slope left of the first kink, between kinks, and right of the last one: decreasing.
    moves : dict of ndarray, shape (n, k)
        How the kinks move with each parameter that can be tuned.
    """

    kinks: Array
    heights: Array
    moves: dict[str, Array]


def staircase(loss: Loss, y: Array) -> Staircase:
    """The staircase of a polyhedral loss for targets ``y``, from its ``pieces``.

    >>> steps = staircase(Pinball(0.9), np.array([2.0]))
    >>> steps.kinks.tolist(), steps.heights.round(3).tolist()
    ([[2.0]], [[0.9, -0.1]])
    """
    pieces = getattr(loss, "pieces", None)
    if not loss.polyhedral or pieces is None:
        raise ValueError(
            f"an exact machine needs a loss that is straight but for corners, with pieces(y) that lists them; got "
            f"{type(loss).__name__}. Use Hinge(), EpsilonInsensitive(), Pinball(), or a Polyhedral of your own"
        )
    n = len(y)
    k, c = (np.stack([np.broadcast_to(np.asarray(part, float), n) for part in parts], axis=1)
            for parts in zip(*pieces(y), strict=True))  # fmt: skip
    order = np.argsort(k, axis=1, kind="stable")
    k, c = np.take_along_axis(k, order, axis=1), np.take_along_axis(c, order, axis=1)
    rises = np.diff(k, axis=1)
    kinks = np.divide(-np.diff(c, axis=1), rises, out=np.zeros_like(rises), where=rises > 0)
    _check(type(loss).__name__, k, kinks, rises)
    kinks = np.maximum.accumulate(kinks, axis=1)  # equal ones are so but for rounding
    moves = {}
    for name in loss.tunable:
        shift = np.stack(
            [np.broadcast_to(np.asarray(part, float), n) for part in _offsets(loss, name, y)], axis=1
        )
        shift = np.take_along_axis(shift, order, axis=1)
        moves[name] = -np.diff(shift, axis=1) / rises
    return Staircase(kinks, -k, moves)


def _offsets(loss: Loss, name: str, y: Array) -> list[Array]:
    """Derivatives of the pieces' intercepts in a parameter."""
    method = getattr(loss, f"pieces_{name}", None)
    if method is None:
        raise ValueError(
            f"{type(loss).__name__} names {name!r} in tunable and defines no pieces_{name}(y), the derivatives of its "
            "pieces' intercepts; define it, or leave the parameter out of tunable"
        )
    offsets: list[Array] = method(y)
    return offsets


def _check(name: str, k: Array, kinks: Array, rises: Array) -> None:
    """Refuse pieces that are no convex loss with a minimum, each of them part of it."""
    if k.shape[1] < 2 or np.any(rises <= 0):
        raise ValueError(
            f"{name}.pieces(y) must give two or more pieces, with different slopes for every row"
        )
    if np.any(np.diff(kinks, axis=1) < -1e-12 * (1.0 + np.abs(kinks[:, 1:]))):
        raise ValueError(
            f"{name}.pieces(y) has a piece that is nowhere the largest; leave it out, or give it a larger intercept"
        )
    if np.any(k[:, 0] > 0) or np.any(k[:, -1] < 0):
        raise ValueError(
            f"{name} has no minimum: its pieces need one that does not rise and one that does not fall"
        )


class Polyhedral(Loss):
    """A loss that is the largest of several straight lines; a subclass lists them in ``pieces`` and nothing else.

    Value, slope, corners and a smooth stand-in for first searches follow. It trains linear and kernel machines exactly
    and is a criterion as well. A parameter that is to be tuned is named in ``tunable`` and moves the pieces up or down:
    ``pieces_<name>(y)`` lists the derivatives of their intercepts.

    Examples
    --------
    >>> @dataclass(frozen=True)
    ... class Late(Polyhedral):
    ...     def pieces(self, y):
    ...         return [(-1.0, y), (3.0, -3.0 * y)]
    >>> Late().value(np.array([1.0, 4.0]), np.array([2.0, 2.0]))
    array([1., 6.])
    """

    smooth = False
    polyhedral = True

    def pieces(self, y: Array) -> list[tuple[Any, Any]]:
        """Slopes and intercepts ``(k, c)``, numbers or one per row: the loss is ``max_i (k_i z + c_i)``."""
        raise TypeError(f"{type(self).__name__} does not define pieces(y)")

    def value(self, z: Array, y: Array) -> Array:
        return np.asarray(np.max(self._lines(z, y)[1], axis=0))

    def grad(self, z: Array, y: Array) -> Array:
        slopes, lines = self._lines(z, y)
        return np.take_along_axis(slopes, np.argmax(lines, axis=0)[None], axis=0)[0]

    def hess(self, z: Array, y: Array) -> Array:
        return np.zeros(np.broadcast(z, y).shape)

    def corners(self, z: Array, y: Array) -> list[tuple[Array, Any]]:
        z, y = np.broadcast_arrays(np.asarray(z, float), np.asarray(y, float))
        steps = staircase(self, y.ravel())
        falls = -np.diff(steps.heights, axis=1)
        return [
            (z - steps.kinks[:, i].reshape(z.shape), falls[:, i].reshape(z.shape))
            for i in range(falls.shape[1])
        ]

    def smoothed(self, band: float) -> Loss | None:
        """The corners rounded on ``band`` to both sides; None for a loss with parameters to tune."""
        if self.tunable:
            return None
        return Rounded(self, band) if self.task == "regression" else RoundedMargin(self, band)

    def _lines(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Slopes and values of all pieces: shape (pieces, ...)."""
        z, y = np.broadcast_arrays(np.asarray(z, float), np.asarray(y, float))
        pieces = [(np.broadcast_to(k, z.shape), k * z + c) for k, c in self.pieces(y)]
        return np.stack([k for k, _ in pieces]), np.stack([line for _, line in pieces])


@dataclass(frozen=True)
class Rounded(Loss):
    """A polyhedral loss whose corners are parabolas on ``band`` to both sides: a stand-in for first searches."""

    exact: Polyhedral
    band: float = 0.1

    _arguments: ClassVar[Table] = {"band": number(above=0)}

    def _corners(self, z: Array, y: Array) -> list[tuple[Array, Array]]:
        """Distances to the corners in units of the band, cut off at its ends, and the jumps there."""
        return [(np.clip(u / self.band, -1.0, 1.0), jump) for u, jump in self.exact.corners(z, y)]

    def value(self, z: Array, y: Array) -> Array:
        more = [0.25 * self.band * jump * (1.0 - np.abs(t)) ** 2 for t, jump in self._corners(z, y)]
        return np.asarray(self.exact.value(z, y) + sum(more))

    def grad(self, z: Array, y: Array) -> Array:
        steepest = self.exact._lines(z, y)[0].min(axis=0)  # left of all corners
        return np.asarray(steepest + sum(0.5 * jump * (1.0 + t) for t, jump in self._corners(z, y)))

    def hess(self, z: Array, y: Array) -> Array:
        curvatures = [jump / (2.0 * self.band) * (np.abs(t) < 1.0) for t, jump in self._corners(z, y)]
        return np.asarray(sum(curvatures))

    def kinks(self, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
        out = []
        for u, jump in self.exact.corners(z, y):
            curvature, one = np.broadcast_to(jump / (2.0 * self.band), u.shape), np.ones(u.shape)
            out += [(u + self.band, one, curvature), (u - self.band, one, -curvature)]
        return out


@dataclass(frozen=True)
class RoundedMargin(Rounded):
    """The same of a loss of classes."""

    task = "classification"


@dataclass(frozen=True)
class Pinball(Polyhedral):
    """``max(q (y - z), (q - 1) (y - z))``: least, on average, where a share ``q`` of the targets lies below ``z``.

    Half the absolute error for ``quantile=0.5``, the median.

    >>> Pinball(0.9).value(np.array([1.0, 3.0]), np.array([2.0, 2.0])).round(3)
    array([0.9, 0.1])
    """

    quantile: float = 0.5

    _arguments: ClassVar[Table] = {"quantile": number(above=0, below=1)}

    def value(self, z: Array, y: Array) -> Array:
        r = z - y
        return np.maximum(-self.quantile * r, (1.0 - self.quantile) * r)

    def grad(self, z: Array, y: Array) -> Array:
        return np.where(z > y, 1.0 - self.quantile, -self.quantile)

    def corners(self, z: Array, y: Array) -> list[tuple[Array, Any]]:
        return [(z - y, 1.0)]

    def pieces(self, y: Array) -> list[tuple[Any, Any]]:
        q = self.quantile
        return [(-q, q * y), (1.0 - q, (q - 1.0) * y)]
