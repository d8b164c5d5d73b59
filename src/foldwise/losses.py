r"""Losses of one decision value: what is trained on, and what is validated with.

Every loss is a function of the decision ``z`` and the target ``y``, evaluated elementwise on arrays that
broadcast against each other. Classification losses expect ``y`` in {-1, +1} and depend on ``y z``; regression
losses depend on the residual ``r = z - y``. No loss carries a factor 1/2 in front: the convention is
scikit-learn's, so that ``C`` in ``1/2 ||w||^2 + C sum_j loss_j`` means exactly what it means there.

Three kinds exist, told by attributes that solvers check before they run:

``smooth``
    has ``hess`` (almost everywhere): it can drive Newton's method and implicit differentiation.
``piecewise_quadratic``
    ``loss'(z) = a z - b`` with ``(a, b)`` constant on a few pieces: Gram matrices can be kept and updated.
``polyhedral``
    piecewise linear; ``pieces`` lists the slopes and intercepts for a dual or a linear program.

References
----------
.. [1] G. Moore, C. Bergeron, K. Bennett, Model selection for primal SVM, Machine Learning, 2011.
.. [2] The thesis on bi-level support vector machines whose tables ``papers/thesis`` reproduces, table 2.1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from foldwise.arguments import Table, check_arguments, number, numbers

__all__ = [
    "CRITERIA",
    "LOSSES",
    "Absolute",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Misclassification",
    "ModifiedHuber",
    "ModifiedLogHinge",
    "QuarticHinge",
    "SmoothMisclassification",
    "SmoothedEpsilonInsensitive",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "get_loss",
    "typical_curvature",
]

Array = np.ndarray

NONE = np.int8(2)
"""Piece code of a row that does not take part (its coefficients are all zero)."""


@dataclass(frozen=True)
class Loss:
    """Base of all losses: value and derivatives in the decision, elementwise.

    A subclass gives ``value``, ``grad`` and, when ``smooth``, ``hess``. Adding a loss takes nothing else; passing it
    to :func:`foldwise.testing.check_loss` earns every check.

    Examples
    --------
    >>> import numpy as np
    >>> SquaredHinge().value(np.array([0.5, 2.0]), np.array([1.0, 1.0]))
    array([0.25, 0.  ])
    """

    task: ClassVar[str] = "regression"
    smooth: ClassVar[bool] = True
    convex: ClassVar[bool] = True
    piecewise_quadratic: ClassVar[bool] = False
    polyhedral: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    tunable: ClassVar[tuple[str, ...]] = ()
    _arguments: ClassVar[Table] = {}

    def __post_init__(self) -> None:
        check_arguments(self)

    def value(self, z: Array, y: Array) -> Array:
        """Loss, elementwise."""
        raise TypeError(f"{type(self).__name__} does not define value(z, y)")

    def grad(self, z: Array, y: Array) -> Array:
        """First derivative in ``z`` (at a kink: one element of the subdifferential)."""
        raise TypeError(f"{type(self).__name__} has no derivative; use a differentiable loss, e.g. Squared()")

    def hess(self, z: Array, y: Array) -> Array:
        """Second derivative in ``z`` (zero at a kink, the choice of moore2011 5.1)."""
        raise TypeError(f"{type(self).__name__} has no second derivative; use a smooth loss, e.g. Squared()")

    def third(self, z: Array, y: Array) -> Array:
        """Third derivative in ``z`` away from kinks."""
        return np.zeros(np.broadcast(z, y).shape)

    def kinks(self, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
        """Where the second derivative jumps: a list of ``(u, du/dz, jump)``.

        ``u`` is the signed distance of each row to the kink, ``du/dz`` is plus or minus one, and ``jump`` is the
        change of the second derivative when ``u`` grows through zero. Empty for twice differentiable losses.
        """
        return []

    def corners(self, z: Array, y: Array) -> list[tuple[Array, float]]:
        """Where the first derivative jumps: a list of ``(distance, jump)``; empty for differentiable losses.

        Second-order methods spread each jump over a window to see the curvature that many rows make together.
        """
        return []

    def straight(self, y: Array) -> list[tuple[Array, Array]]:
        """Intervals of decisions, ``(low, high)`` per row, on which the loss is linear; empty where it is nowhere.

        Where every row is on one of them an intercept may be free to move: see :mod:`foldwise.problems.flat`.
        """
        return []

    def replace(self, **changes: Any) -> Loss:
        """A copy with other parameters; arrays broadcast, one entry per row."""
        return replace(self, **changes)


class _PiecewiseQuadratic(Loss):
    """``loss'(z) = a z - b0 - epsilon b1`` with coefficients constant on each piece."""

    piecewise_quadratic = True
    common_piece: ClassVar[int] = 1
    """Code of a piece with curvature that many rows are on; its curvature is the same for every target."""

    def piece(self, z: Array, y: Array) -> Array:
        """Code of the piece that each row is on (int8; :data:`NONE` is never returned)."""
        raise TypeError(f"{type(self).__name__} does not define piece(z, y)")

    def coefficients(self, code: Array, y: Array) -> tuple[Array, Array, Array]:
        """``(a, b0, b1)`` for rows with these piece codes; all zero where the code is :data:`NONE`."""
        raise TypeError(f"{type(self).__name__} does not define coefficients(code, y)")


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(_PiecewiseQuadratic):
    """``max(0, |z - y| - epsilon)^2``: the training loss of moore2011 (9), without its factor 1/2."""

    epsilon: Any = 0.0

    _arguments: ClassVar[Table] = {"epsilon": numbers(at_least=0, flat=False)}
    tunable = ("epsilon",)

    def value(self, z, y):
        return np.maximum(np.abs(z - y) - self.epsilon, 0.0) ** 2

    def grad(self, z, y):
        r = z - y
        return 2.0 * np.sign(r) * np.maximum(np.abs(r) - self.epsilon, 0.0)

    def hess(self, z, y):
        return 2.0 * (np.abs(z - y) > self.epsilon)

    def grad_epsilon(self, z, y):
        """Derivative of ``grad`` in epsilon; zero on the tube itself (moore2011 5.1)."""
        r = z - y
        return -2.0 * np.sign(r) * (np.abs(r) > self.epsilon)

    def kinks(self, z, y):
        r = z - y
        side = np.where(r >= 0, 1.0, -1.0)
        return [(np.abs(r) - self.epsilon, side, np.full(r.shape, 2.0))]

    def straight(self, y):
        return [(y - self.epsilon, y + self.epsilon)]

    def piece(self, z, y):
        r = z - y
        return (r > self.epsilon).view(np.int8) - (r < -self.epsilon).view(np.int8)

    def coefficients(self, code, y):
        sign = np.where(code == NONE, 0, code)
        active = np.abs(sign)
        return 2.0 * active, 2.0 * active * y, 2.0 * sign


@dataclass(frozen=True)
class Squared(_PiecewiseQuadratic):
    """``(z - y)^2``. As a criterion for labels in {-1, +1} it is the thesis's outer loss (there with 1/2)."""

    common_piece = 0

    def value(self, z, y):
        return (z - y) ** 2

    def grad(self, z, y):
        return 2.0 * (z - y)

    def hess(self, z, y):
        return np.full(np.broadcast(z, y).shape, 2.0)

    def piece(self, z, y):
        return np.zeros(np.broadcast(z, y).shape, dtype=np.int8)

    def coefficients(self, code, y):
        active = (code != NONE).astype(float)
        return 2.0 * active, 2.0 * active * y, np.zeros(np.broadcast(code, y).shape)


@dataclass(frozen=True)
class Huber(_PiecewiseQuadratic):
    """``r^2 / 2`` for ``|r| <= delta``, else ``delta (|r| - delta / 2)``."""

    delta: float = 1.35

    _arguments: ClassVar[Table] = {"delta": number(above=0)}
    common_piece = 0

    def value(self, z, y):
        size = np.abs(z - y)
        return np.where(size <= self.delta, 0.5 * size**2, self.delta * (size - 0.5 * self.delta))

    def grad(self, z, y):
        return np.clip(z - y, -self.delta, self.delta)

    def hess(self, z, y):
        return (np.abs(z - y) < self.delta).astype(float)

    def kinks(self, z, y):
        r = z - y
        side = np.where(r >= 0, 1.0, -1.0)
        return [(np.abs(r) - self.delta, side, np.full(r.shape, -1.0))]

    def straight(self, y):
        far = np.full(np.shape(y), np.inf)
        return [(-far, y - self.delta), (y + self.delta, far)]

    def piece(self, z, y):
        r = z - y
        return (r >= self.delta).view(np.int8) - (r <= -self.delta).view(np.int8)

    def coefficients(self, code, y):
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
    tunable = ("epsilon",)

    def value(self, z, y):
        return np.maximum(np.abs(z - y) - self.epsilon, 0.0)

    def grad(self, z, y):
        r = z - y
        return np.sign(r) * (np.abs(r) > self.epsilon)

    def hess(self, z, y):
        return np.zeros(np.broadcast(z, y).shape)

    def corners(self, z, y):
        r = z - y
        return [(r - self.epsilon, 1.0), (r + self.epsilon, 1.0)]

    def pieces(self, y):
        """Slopes and intercepts ``(k, c)``: the loss is ``max_i (k_i z + c_i)``."""
        y = np.asarray(y, float)
        zero = np.zeros_like(y)
        return [(zero, zero), (zero + 1.0, -y - self.epsilon), (zero - 1.0, y - self.epsilon)]


@dataclass(frozen=True)
class SmoothedEpsilonInsensitive(_PiecewiseQuadratic):
    """``u = max(0, |z - y| - epsilon)`` with a round corner: ``u^2 / (2 band)`` up to ``band``, then ``u - band / 2``.

    A stand-in for :class:`EpsilonInsensitive` in first searches, which its kinks would hold up.
    """

    epsilon: Any = 0.0
    band: float = 0.1

    _arguments: ClassVar[Table] = {"epsilon": numbers(at_least=0, flat=False), "band": number(above=0)}
    tunable = ("epsilon",)

    def value(self, z, y):
        u = np.maximum(np.abs(z - y) - self.epsilon, 0.0)
        return np.where(u <= self.band, u**2 / (2.0 * self.band), u - 0.5 * self.band)

    def grad(self, z, y):
        r = z - y
        return np.sign(r) * np.clip((np.abs(r) - self.epsilon) / self.band, 0.0, 1.0)

    def hess(self, z, y):
        u = np.abs(z - y) - self.epsilon
        return ((u > 0) & (u < self.band)) / self.band

    def grad_epsilon(self, z, y):
        """Derivative of ``grad`` in epsilon; zero where the slope is constant."""
        return -np.sign(z - y) * self.hess(z, y)

    def kinks(self, z, y):
        r = z - y
        u, side, jump = (
            np.abs(r) - self.epsilon,
            np.where(r >= 0, 1.0, -1.0),
            np.full(r.shape, 1.0 / self.band),
        )
        return [(u, side, jump), (u - self.band, side, -jump)]

    def piece(self, z, y):
        r = z - y
        u = np.abs(r) - self.epsilon
        return (np.sign(r) * np.where(u <= 0, 0, np.where(u < self.band, 1, 3))).astype(np.int8)

    def coefficients(self, code, y):
        sign = np.where(code == NONE, 0, np.sign(code))
        curved = (np.abs(code) == 1) / self.band
        return curved, curved * y - sign * (np.abs(code) == 3), sign * curved


@dataclass(frozen=True)
class Absolute(Loss):
    """``|z - y|``: the outer loss of bennett2006."""

    smooth = False
    polyhedral = True

    def value(self, z, y):
        return np.abs(z - y)

    def grad(self, z, y):
        return np.sign(z - y)

    def hess(self, z, y):
        return np.zeros(np.broadcast(z, y).shape)

    def corners(self, z, y):
        return [(z - y, 2.0)]

    def pieces(self, y):
        """Slopes and intercepts ``(k, c)``: the loss is ``max_i (k_i z + c_i)``."""
        y = np.asarray(y, float)
        return [(np.ones_like(y), -y), (-np.ones_like(y), y)]


@dataclass(frozen=True)
class SquaredHinge(_PiecewiseQuadratic):
    """``max(0, 1 - y z)^2``."""

    task = "classification"

    def value(self, z, y):
        return np.maximum(1.0 - y * z, 0.0) ** 2

    def grad(self, z, y):
        return -2.0 * y * np.maximum(1.0 - y * z, 0.0)

    def hess(self, z, y):
        return 2.0 * (y * z < 1.0)

    def kinks(self, z, y):
        return [
            (
                1.0 - y * z,
                np.broadcast_to(-y, np.broadcast(z, y).shape),
                np.full(np.broadcast(z, y).shape, 2.0),
            )
        ]

    def straight(self, y):
        return [_beyond(y, 1.0)]

    def piece(self, z, y):
        return (y * z < 1.0).view(np.int8)

    def coefficients(self, code, y):
        active = (code == 1).astype(float)
        return 2.0 * active, 2.0 * active * y, np.zeros(np.broadcast(code, y).shape)


@dataclass(frozen=True)
class ModifiedHuber(_PiecewiseQuadratic):
    """``max(0, 1 - y z)^2`` where ``y z > -1``, else ``-4 y z``: the squared hinge, linear in far mistakes."""

    task = "classification"

    def value(self, z, y):
        u = 1.0 - y * z
        v = np.minimum(np.maximum(u, 0.0), 2.0)
        return v * (2.0 * np.maximum(u, 0.0) - v)

    def grad(self, z, y):
        return -2.0 * y * np.minimum(np.maximum(1.0 - y * z, 0.0), 2.0)

    def hess(self, z, y):
        return 2.0 * (np.abs(y * z) < 1.0)

    def kinks(self, z, y):
        shape = np.broadcast(z, y).shape
        toward = np.broadcast_to(-y, shape)
        return [
            (1.0 - y * z, toward, np.full(shape, 2.0)),
            (-1.0 - y * z, toward, np.full(shape, -2.0)),
        ]

    def straight(self, y):
        return [_beyond(y, 1.0), _short(y, -1.0)]

    def piece(self, z, y):
        u = y * z
        return (u < 1.0).view(np.int8) - 2 * (u <= -1.0).view(np.int8)

    def coefficients(self, code, y):
        inside, far = (code == 1).astype(float), (code == -1).astype(float)
        return 2.0 * inside, (2.0 * inside + 4.0 * far) * y, np.zeros(np.broadcast(code, y).shape)


@dataclass(frozen=True)
class Hinge(Loss):
    """``max(0, 1 - y z)``: the loss of the classical support vector machine."""

    task = "classification"
    smooth = False
    polyhedral = True

    def value(self, z, y):
        return np.maximum(1.0 - y * z, 0.0)

    def grad(self, z, y):
        return -y * (y * z < 1.0)

    def hess(self, z, y):
        return np.zeros(np.broadcast(z, y).shape)

    def corners(self, z, y):
        return [(1.0 - y * z, 1.0)]

    def pieces(self, y):
        """Slopes and intercepts ``(k, c)``: the loss is ``max_i (k_i z + c_i)``."""
        y = np.asarray(y, float)
        return [(np.zeros_like(y), np.zeros_like(y)), (-y, np.ones_like(y))]


def _beyond(y: Array, margin: float) -> tuple[Array, Array]:
    """Decisions with ``y z >= margin``."""
    return np.where(y > 0, margin, -np.inf), np.where(y > 0, np.inf, -margin)


def _short(y: Array, margin: float) -> tuple[Array, Array]:
    """Decisions with ``y z <= margin``."""
    return np.where(y > 0, -np.inf, -margin), np.where(y > 0, margin, np.inf)


def _softplus(t: Array) -> Array:
    return np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t)))


@dataclass(frozen=True)
class Logistic(Loss):
    """``log(1 + exp(-s y z)) / s``; ``s = 1`` is logistic regression."""

    s: float = 1.0

    _arguments: ClassVar[Table] = {"s": number(above=0)}
    task = "classification"

    def value(self, z, y):
        return _softplus(-self.s * y * z) / self.s

    def grad(self, z, y):
        return -y * expit(-self.s * y * z)

    def hess(self, z, y):
        p = expit(-self.s * y * z)
        return self.s * p * (1.0 - p)

    def third(self, z, y):
        p = expit(-self.s * y * z)
        return -(self.s**2) * y * p * (1.0 - p) * (1.0 - 2.0 * p)


@dataclass(frozen=True)
class ModifiedLogHinge(Loss):
    """``log(1 + exp(-mu (y z - 1))) / mu``: tends to the hinge as ``mu`` grows (thesis table 2.1)."""

    mu: float = 12.0

    _arguments: ClassVar[Table] = {"mu": number(above=0)}
    task = "classification"

    def value(self, z, y):
        return _softplus(-self.mu * (y * z - 1.0)) / self.mu

    def grad(self, z, y):
        return -y * expit(-self.mu * (y * z - 1.0))

    def hess(self, z, y):
        p = expit(-self.mu * (y * z - 1.0))
        return self.mu * p * (1.0 - p)

    def third(self, z, y):
        p = expit(-self.mu * (y * z - 1.0))
        return -(self.mu**2) * y * p * (1.0 - p) * (1.0 - 2.0 * p)


@dataclass(frozen=True)
class QuarticHinge(Loss):
    """The hinge, joined by a quartic on ``|y z - 1| < epsilon`` so that it is twice differentiable.

    With ``u = y z - 1`` the middle piece is ``(epsilon - u)^3 (3 epsilon + u) / (16 epsilon^3)``. It equals the
    polynomial of thesis table 2.1; there condition (1) is misprinted (it must read ``y z <= 1 - epsilon``).
    """

    epsilon: float = 0.125

    _arguments: ClassVar[Table] = {"epsilon": number(above=0)}
    task = "classification"

    def value(self, z, y):
        u, e = y * z - 1.0, self.epsilon
        v = np.clip(u, -e, e)
        return (e - v) ** 3 * (3.0 * e + v) / (16.0 * e**3) + np.maximum(-e - u, 0.0)

    def grad(self, z, y):
        e = self.epsilon
        v = np.minimum(np.maximum(y * z - 1.0, -e), e)  # np.clip has a price on short arrays
        return -y * (e - v) ** 2 * (2.0 * e + v) / (4.0 * e**3)

    def hess(self, z, y):
        e = self.epsilon
        v = np.minimum(np.maximum(y * z - 1.0, -e), e)
        return 3.0 * (e - v) * (e + v) / (4.0 * e**3)

    def straight(self, y):
        return [_beyond(y, 1.0 + self.epsilon), _short(y, 1.0 - self.epsilon)]

    def third(self, z, y):
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

    def value(self, z, y):
        return expit(-self.s * y * z)

    def grad(self, z, y):
        p = expit(-self.s * y * z)
        return -self.s * y * p * (1.0 - p)

    def hess(self, z, y):
        p = expit(-self.s * y * z)
        return self.s**2 * p * (1.0 - p) * (1.0 - 2.0 * p)

    def third(self, z, y):
        p = expit(-self.s * y * z)
        return -(self.s**3) * y * p * (1.0 - p) * (1.0 - 6.0 * p + 6.0 * p**2)


@dataclass(frozen=True)
class Misclassification(Loss):
    """1 where the sign of the decision is wrong (a decision of exactly 0 counts as the class +1), else 0."""

    task = "classification"
    smooth = False
    convex = False
    differentiable = False

    def value(self, z, y):
        return (np.where(z >= 0.0, 1.0, -1.0) != y).astype(float)


LOSSES: dict[str, type[Loss]] = {
    "squared_epsilon_insensitive": SquaredEpsilonInsensitive,
    "epsilon_insensitive": EpsilonInsensitive,
    "squared": Squared,
    "huber": Huber,
    "squared_hinge": SquaredHinge,
    "modified_huber": ModifiedHuber,
    "hinge": Hinge,
    "logistic": Logistic,
    "modified_log_hinge": ModifiedLogHinge,
    "quartic_hinge": QuarticHinge,
}

CRITERIA: dict[str, type[Loss]] = {
    "squared": Squared,
    "absolute": Absolute,
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "modified_huber": ModifiedHuber,
    "logistic": Logistic,
    "smooth_misclassification": SmoothMisclassification,
    "misclassification": Misclassification,
}


def typical_curvature(loss: Loss, spread: float) -> float:
    """Typical second derivative of a loss: 2 for squared ones, 1/4 for logistic, about 1 for other losses of classes.

    Of a regression loss it is the slope at one spread of the target, per spread: so what is derived from it follows the
    target's units also where the loss grows like the distance and not like its square.

    >>> typical_curvature(Squared(), 5.0), typical_curvature(EpsilonInsensitive(0.1), 5.0)
    (2.0, 0.2)
    """
    if loss.task == "regression" and spread > 0:
        flat = loss.replace(**dict.fromkeys(loss.tunable, 0.0))
        return max(float(flat.grad(np.array([spread]), np.zeros(1))[0]) / spread, np.finfo(float).tiny)
    bend = float(loss.hess(np.zeros(1), np.ones(1))[0])
    return bend if bend > 0.1 else 1.0


def get_loss(spec: str | Loss) -> Loss:
    """The training loss of this name, or the object itself.

    >>> get_loss("huber")
    Huber(delta=1.35)
    """
    if isinstance(spec, Loss):
        return spec
    if isinstance(spec, str) and spec in LOSSES:
        return LOSSES[spec]()
    raise ValueError(f"unknown loss {spec!r}; use a Loss object or one of: {', '.join(LOSSES)}")
