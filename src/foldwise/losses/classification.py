"""Losses of the margin ``y z``, for ``y`` in {-1, +1}."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from foldwise.arguments import Table, number
from foldwise.losses.base import Array, Loss, PiecewiseQuadratic

__all__ = [
    "Hinge",
    "Logistic",
    "Misclassification",
    "ModifiedHuber",
    "ModifiedLogHinge",
    "QuarticHinge",
    "SmoothMisclassification",
    "SquaredHinge",
]


@dataclass(frozen=True)
class SquaredHinge(PiecewiseQuadratic):
    """``max(0, 1 - y z)^2``."""

    task = "classification"

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(1.0 - y * z, 0.0) ** 2

    def grad(self, z: Array, y: Array) -> Array:
        return -2.0 * y * np.maximum(1.0 - y * z, 0.0)

    def hess(self, z: Array, y: Array) -> Array:
        return 2.0 * (y * z < 1.0)

    def kinks(self, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
        return [
            (
                1.0 - y * z,
                np.broadcast_to(-y, np.broadcast(z, y).shape),
                np.full(np.broadcast(z, y).shape, 2.0),
            )
        ]

    def straight(self, y: Array) -> list[tuple[Array, Array]]:
        return [_beyond(y, 1.0)]

    def piece(self, z: Array, y: Array) -> Array:
        return (y * z < 1.0).view(np.int8)

    def coefficients(self, code: Array, y: Array) -> tuple[Array, Array, Array]:
        active = (code == 1).astype(float)
        return 2.0 * active, 2.0 * active * y, np.zeros(np.broadcast(code, y).shape)


@dataclass(frozen=True)
class ModifiedHuber(PiecewiseQuadratic):
    """``max(0, 1 - y z)^2`` where ``y z > -1``, else ``-4 y z``: the squared hinge, linear in far mistakes."""

    task = "classification"

    def value(self, z: Array, y: Array) -> Array:
        u = 1.0 - y * z
        v = np.minimum(np.maximum(u, 0.0), 2.0)
        return v * (2.0 * np.maximum(u, 0.0) - v)

    def grad(self, z: Array, y: Array) -> Array:
        return -2.0 * y * np.minimum(np.maximum(1.0 - y * z, 0.0), 2.0)

    def hess(self, z: Array, y: Array) -> Array:
        return 2.0 * (np.abs(y * z) < 1.0)

    def kinks(self, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
        shape = np.broadcast(z, y).shape
        toward = np.broadcast_to(-y, shape)
        return [
            (1.0 - y * z, toward, np.full(shape, 2.0)),
            (-1.0 - y * z, toward, np.full(shape, -2.0)),
        ]

    def straight(self, y: Array) -> list[tuple[Array, Array]]:
        return [_beyond(y, 1.0), _short(y, -1.0)]

    def piece(self, z: Array, y: Array) -> Array:
        u = y * z
        return (u < 1.0).view(np.int8) - 2 * (u <= -1.0).view(np.int8)

    def coefficients(self, code: Array, y: Array) -> tuple[Array, Array, Array]:
        inside, far = (code == 1).astype(float), (code == -1).astype(float)
        return 2.0 * inside, (2.0 * inside + 4.0 * far) * y, np.zeros(np.broadcast(code, y).shape)


@dataclass(frozen=True)
class Hinge(Loss):
    """``max(0, 1 - y z)``: the loss of the classical support vector machine."""

    task = "classification"
    smooth = False
    polyhedral = True
    classical = True

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(1.0 - y * z, 0.0)

    def grad(self, z: Array, y: Array) -> Array:
        return -y * (y * z < 1.0)

    def hess(self, z: Array, y: Array) -> Array:
        return np.zeros(np.broadcast(z, y).shape)

    def corners(self, z: Array, y: Array) -> list[tuple[Array, Any]]:
        return [(1.0 - y * z, 1.0)]

    def smoothed(self, band: float) -> Loss:
        return QuarticHinge(epsilon=band)

    def pieces(self, y: Array) -> list[tuple[Array, Array]]:
        """Slopes and intercepts ``(k, c)``: the loss is ``max_i (k_i z + c_i)``."""
        y = np.asarray(y, float)
        return [(np.zeros_like(y), np.zeros_like(y)), (-y, np.ones_like(y))]


def _beyond(y: Array, margin: float) -> tuple[Array, Array]:
    """Decisions with ``y z >= margin``."""
    return np.where(y > 0, margin, -np.inf), np.where(y > 0, np.inf, -margin)


def _short(y: Array, margin: float) -> tuple[Array, Array]:
    """Decisions with ``y z <= margin``."""
    return np.where(y > 0, -np.inf, -margin), np.where(y > 0, margin, np.inf)


class _Softplus(Loss, ABC):
    """``log(1 + exp(t)) / rate`` for an exponent ``t`` that falls by ``rate`` as ``y z`` grows by one."""

    task = "classification"

    @abstractmethod
    def _exponent(self, z: Array, y: Array) -> tuple[Array, float]:
        """``t`` and the rate."""

    def value(self, z: Array, y: Array) -> Array:
        t, rate = self._exponent(z, y)
        return (np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t)))) / rate

    def grad(self, z: Array, y: Array) -> Array:
        return -y * expit(self._exponent(z, y)[0])

    def hess(self, z: Array, y: Array) -> Array:
        t, rate = self._exponent(z, y)
        p = expit(t)
        return rate * p * (1.0 - p)

    def third(self, z: Array, y: Array) -> Array:
        t, rate = self._exponent(z, y)
        p = expit(t)
        return -(rate**2) * y * p * (1.0 - p) * (1.0 - 2.0 * p)


@dataclass(frozen=True)
class Logistic(_Softplus):
    """``log(1 + exp(-s y z)) / s``; ``s = 1`` is logistic regression."""

    s: float = 1.0

    _arguments: ClassVar[Table] = {"s": number(above=0)}

    def _exponent(self, z: Array, y: Array) -> tuple[Array, float]:
        return -self.s * y * z, self.s


@dataclass(frozen=True)
class ModifiedLogHinge(_Softplus):
    """``log(1 + exp(-mu (y z - 1))) / mu``: tends to the hinge as ``mu`` grows (thesis table 2.1)."""

    mu: float = 12.0

    _arguments: ClassVar[Table] = {"mu": number(above=0)}

    def _exponent(self, z: Array, y: Array) -> tuple[Array, float]:
        return -self.mu * (y * z - 1.0), self.mu


@dataclass(frozen=True)
class QuarticHinge(Loss):
    """The hinge, joined by a quartic on ``|y z - 1| < epsilon`` so that it is twice differentiable.

    With ``u = y z - 1`` the middle piece is ``(epsilon - u)^3 (3 epsilon + u) / (16 epsilon^3)``. It equals the
    polynomial of thesis table 2.1; there condition (1) is misprinted (it must read ``y z <= 1 - epsilon``).
    """

    epsilon: float = 0.125

    _arguments: ClassVar[Table] = {"epsilon": number(above=0)}
    task = "classification"

    def value(self, z: Array, y: Array) -> Array:
        u, e = y * z - 1.0, self.epsilon
        v = np.clip(u, -e, e)
        return (e - v) ** 3 * (3.0 * e + v) / (16.0 * e**3) + np.maximum(-e - u, 0.0)

    def grad(self, z: Array, y: Array) -> Array:
        e = self.epsilon
        v = np.minimum(np.maximum(y * z - 1.0, -e), e)  # np.clip has a price on short arrays
        return -y * (e - v) ** 2 * (2.0 * e + v) / (4.0 * e**3)

    def hess(self, z: Array, y: Array) -> Array:
        e = self.epsilon
        v = np.minimum(np.maximum(y * z - 1.0, -e), e)
        return 3.0 * (e - v) * (e + v) / (4.0 * e**3)

    def straight(self, y: Array) -> list[tuple[Array, Array]]:
        return [_beyond(y, 1.0 + self.epsilon), _short(y, 1.0 - self.epsilon)]

    def third(self, z: Array, y: Array) -> Array:
        e = self.epsilon
        u = y * z - 1.0
        return np.where(np.abs(u) < e, -1.5 * y * u / e**3, 0.0)


@dataclass(frozen=True)
class SmoothMisclassification(Loss):
    """``1 / (1 + exp(s y z))``: tends to the misclassification indicator as ``s`` grows. Not convex."""

    s: float = 4.0

    _arguments: ClassVar[Table] = {"s": number(above=0)}
    task = "classification"
    convex = False

    def value(self, z: Array, y: Array) -> Array:
        return expit(-self.s * y * z)

    def grad(self, z: Array, y: Array) -> Array:
        p = expit(-self.s * y * z)
        return -self.s * y * p * (1.0 - p)

    def hess(self, z: Array, y: Array) -> Array:
        p = expit(-self.s * y * z)
        return self.s**2 * p * (1.0 - p) * (1.0 - 2.0 * p)

    def third(self, z: Array, y: Array) -> Array:
        p = expit(-self.s * y * z)
        return -(self.s**3) * y * p * (1.0 - p) * (1.0 - 6.0 * p + 6.0 * p**2)


@dataclass(frozen=True)
class Misclassification(Loss):
    """1 where the sign of the decision is wrong (a decision of exactly 0 counts as the class +1), else 0."""

    task = "classification"
    smooth = False
    convex = False
    differentiable = False

    def value(self, z: Array, y: Array) -> Array:
        return (np.where(z >= 0.0, 1.0, -1.0) != y).astype(float)
