"""Losses of the residual ``r = z - y``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import Table, number, numbers
from foldwise.losses.base import NONE, Array, Loss, PiecewiseQuadratic

__all__ = [
    "Absolute",
    "EpsilonInsensitive",
    "Huber",
    "SmoothedEpsilonInsensitive",
    "Squared",
    "SquaredEpsilonInsensitive",
]


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(PiecewiseQuadratic):
    """``max(0, |z - y| - epsilon)^2``: the training loss of moore2011 (9), without its factor 1/2."""

    epsilon: Any = 0.0

    _arguments: ClassVar[Table] = {"epsilon": numbers(at_least=0, flat=False)}
    tunable = ("epsilon",)

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(np.abs(z - y) - self.epsilon, 0.0) ** 2

    def grad(self, z: Array, y: Array) -> Array:
        r = z - y
        return 2.0 * np.sign(r) * np.maximum(np.abs(r) - self.epsilon, 0.0)

    def hess(self, z: Array, y: Array) -> Array:
        return 2.0 * (np.abs(z - y) > self.epsilon)

    def grad_epsilon(self, z: Array, y: Array) -> Array:
        """Derivative of ``grad`` in epsilon; zero on the tube itself (moore2011 5.1)."""
        r = z - y
        return -2.0 * np.sign(r) * (np.abs(r) > self.epsilon)

    def kinks(self, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
        r = z - y
        side = np.where(r >= 0, 1.0, -1.0)
        return [(np.abs(r) - self.epsilon, side, np.full(r.shape, 2.0))]

    def straight(self, y: Array) -> list[tuple[Array, Array]]:
        return [(y - self.epsilon, y + self.epsilon)]

    def piece(self, z: Array, y: Array) -> Array:
        r = z - y
        return (r > self.epsilon).view(np.int8) - (r < -self.epsilon).view(np.int8)

    def coefficients(self, code: Array, y: Array) -> tuple[Array, Array, Array]:
        sign = np.where(code == NONE, 0, code)
        active = np.abs(sign)
        return 2.0 * active, 2.0 * active * y, 2.0 * sign


@dataclass(frozen=True)
class Squared(PiecewiseQuadratic):
    """``(z - y)^2``. As a criterion for labels in {-1, +1} it is the thesis's outer loss (there with 1/2)."""

    common_piece = 0
    constant_curvature = 2.0

    def value(self, z: Array, y: Array) -> Array:
        return (z - y) ** 2

    def grad(self, z: Array, y: Array) -> Array:
        return 2.0 * (z - y)

    def hess(self, z: Array, y: Array) -> Array:
        return np.full(np.broadcast(z, y).shape, 2.0)

    def piece(self, z: Array, y: Array) -> Array:
        return np.zeros(np.broadcast(z, y).shape, dtype=np.int8)

    def coefficients(self, code: Array, y: Array) -> tuple[Array, Array, Array]:
        active = (code != NONE).astype(float)
        return 2.0 * active, 2.0 * active * y, np.zeros(np.broadcast(code, y).shape)


@dataclass(frozen=True)
class Huber(PiecewiseQuadratic):
    """``r^2 / 2`` for ``|r| <= delta``, else ``delta (|r| - delta / 2)``."""

    delta: float = 1.35

    _arguments: ClassVar[Table] = {"delta": number(above=0)}
    common_piece = 0

    def value(self, z: Array, y: Array) -> Array:
        size = np.abs(z - y)
        return np.where(size <= self.delta, 0.5 * size**2, self.delta * (size - 0.5 * self.delta))

    def grad(self, z: Array, y: Array) -> Array:
        return np.clip(z - y, -self.delta, self.delta)

    def hess(self, z: Array, y: Array) -> Array:
        return (np.abs(z - y) < self.delta).astype(float)

    def kinks(self, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
        r = z - y
        side = np.where(r >= 0, 1.0, -1.0)
        return [(np.abs(r) - self.delta, side, np.full(r.shape, -1.0))]

    def straight(self, y: Array) -> list[tuple[Array, Array]]:
        far = np.full(np.shape(y), np.inf)
        return [(-far, y - self.delta), (y + self.delta, far)]

    def piece(self, z: Array, y: Array) -> Array:
        r = z - y
        return (r >= self.delta).view(np.int8) - (r <= -self.delta).view(np.int8)

    def coefficients(self, code: Array, y: Array) -> tuple[Array, Array, Array]:
        inside = (code == 0).astype(float)
        outside = np.where(code == NONE, 0, code)
        return inside, inside * y - self.delta * outside, np.zeros(np.broadcast(code, y).shape)


@dataclass(frozen=True)
class EpsilonInsensitive(Loss):
    """``max(0, |z - y| - epsilon)``: the loss of the classical support vector regression."""

    epsilon: Any = 0.0

    _arguments: ClassVar[Table] = {"epsilon": numbers(at_least=0, flat=False)}
    smooth = False
    polyhedral = True
    classical = True
    tunable = ("epsilon",)

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(np.abs(z - y) - self.epsilon, 0.0)

    def grad(self, z: Array, y: Array) -> Array:
        r = z - y
        return np.sign(r) * (np.abs(r) > self.epsilon)

    def hess(self, z: Array, y: Array) -> Array:
        return np.zeros(np.broadcast(z, y).shape)

    def corners(self, z: Array, y: Array) -> list[tuple[Array, Any]]:
        r = z - y
        return [(r - self.epsilon, 1.0), (r + self.epsilon, 1.0)]

    def smoothed(self, band: float) -> Loss:
        return SmoothedEpsilonInsensitive(epsilon=self.epsilon, band=band)

    def pieces(self, y: Array) -> list[tuple[Array, Array]]:
        """Slopes and intercepts ``(k, c)``: the loss is ``max_i (k_i z + c_i)``."""
        y = np.asarray(y, float)
        zero = np.zeros_like(y)
        return [(zero, zero), (zero + 1.0, -y - self.epsilon), (zero - 1.0, y - self.epsilon)]

    def pieces_epsilon(self, y: Array) -> list[float]:
        """Derivatives of the pieces' intercepts in epsilon."""
        return [0.0, -1.0, -1.0]


@dataclass(frozen=True)
class SmoothedEpsilonInsensitive(PiecewiseQuadratic):
    """``u = max(0, |z - y| - epsilon)`` with a round corner: ``u^2 / (2 band)`` up to ``band``, then ``u - band / 2``.

    A stand-in for :class:`EpsilonInsensitive` in first searches, which its kinks would hold up.
    """

    epsilon: Any = 0.0
    band: float = 0.1

    _arguments: ClassVar[Table] = {"epsilon": numbers(at_least=0, flat=False), "band": number(above=0)}
    tunable = ("epsilon",)

    def value(self, z: Array, y: Array) -> Array:
        u = np.maximum(np.abs(z - y) - self.epsilon, 0.0)
        return np.where(u <= self.band, u**2 / (2.0 * self.band), u - 0.5 * self.band)

    def grad(self, z: Array, y: Array) -> Array:
        r = z - y
        return np.sign(r) * np.clip((np.abs(r) - self.epsilon) / self.band, 0.0, 1.0)

    def hess(self, z: Array, y: Array) -> Array:
        u = np.abs(z - y) - self.epsilon
        return ((u > 0) & (u < self.band)) / self.band

    def grad_epsilon(self, z: Array, y: Array) -> Array:
        """Derivative of ``grad`` in epsilon; zero where the slope is constant."""
        return -np.sign(z - y) * self.hess(z, y)

    def kinks(self, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
        r = z - y
        u, side, jump = (
            np.abs(r) - self.epsilon,
            np.where(r >= 0, 1.0, -1.0),
            np.full(r.shape, 1.0 / self.band),
        )
        return [(u, side, jump), (u - self.band, side, -jump)]

    def piece(self, z: Array, y: Array) -> Array:
        r = z - y
        u = np.abs(r) - self.epsilon
        return (np.sign(r) * np.where(u <= 0, 0, np.where(u < self.band, 1, 3))).astype(np.int8)

    def coefficients(self, code: Array, y: Array) -> tuple[Array, Array, Array]:
        sign = np.where(code == NONE, 0, np.sign(code))
        curved = (np.abs(code) == 1) / self.band
        return curved, curved * y - sign * (np.abs(code) == 3), sign * curved


@dataclass(frozen=True)
class Absolute(Loss):
    """``|z - y|``: the outer loss of bennett2006."""

    smooth = False
    polyhedral = True

    def value(self, z: Array, y: Array) -> Array:
        return np.abs(z - y)

    def grad(self, z: Array, y: Array) -> Array:
        return np.sign(z - y)

    def hess(self, z: Array, y: Array) -> Array:
        return np.zeros(np.broadcast(z, y).shape)

    def corners(self, z: Array, y: Array) -> list[tuple[Array, Any]]:
        return [(z - y, 2.0)]

    def pieces(self, y: Array) -> list[tuple[Array, Array]]:
        """Slopes and intercepts ``(k, c)``: the loss is ``max_i (k_i z + c_i)``."""
        y = np.asarray(y, float)
        return [(np.ones_like(y), -y), (-np.ones_like(y), y)]
