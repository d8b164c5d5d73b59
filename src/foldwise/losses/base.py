"""What a loss is: value and derivatives in the decision, elementwise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import Table, check_arguments

__all__ = ["NONE", "Array", "Loss", "PiecewiseQuadratic", "typical_curvature"]

Array = np.ndarray

NONE = np.int8(2)
"""Piece code of a row that does not take part (its coefficients are all zero)."""


@dataclass(frozen=True)
class Loss:
    """Base of all losses: value and derivatives in the decision, elementwise.

    A subclass gives ``value``, ``grad`` and, when ``smooth``, ``hess``. Adding a loss takes nothing else; passing it
    to :func:`foldwise.testing.check_loss` earns every check. A parameter that is to be tuned is named in ``tunable``
    and has a method ``grad_<name>(z, y)``, the derivative of ``grad`` in it; its values come as arrays then.

    Examples
    --------
    >>> import numpy as np
    >>> from foldwise.losses import SquaredHinge
    >>> SquaredHinge().value(np.array([0.5, 2.0]), np.array([1.0, 1.0]))
    array([0.25, 0.  ])
    """

    task: ClassVar[str] = "regression"
    smooth: ClassVar[bool] = True
    convex: ClassVar[bool] = True
    piecewise_quadratic: ClassVar[bool] = False
    polyhedral: ClassVar[bool] = False
    classical: ClassVar[bool] = False
    """Whether it is the hinge or the tube, whose kernel machines LIBSVM trains."""
    differentiable: ClassVar[bool] = True
    constant_curvature: ClassVar[float | None] = None
    """The second derivative where it is the same everywhere: what Gram matrices of rows are multiplied by."""
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

    def smoothed(self, band: float) -> Loss | None:
        """A smooth loss that differs only within ``band`` of the corners; None for one that has no use for it."""
        return None

    def grad_in(self, name: str, z: Array, y: Array) -> Array:
        """Derivative of :meth:`grad` in the parameter ``name``, one of ``tunable``: by the method ``grad_<name>``."""
        slope: Array = getattr(self, f"grad_{name}")(z, y)
        return slope

    def third(self, z: Array, y: Array) -> Array:
        """Third derivative in ``z`` away from kinks."""
        return np.zeros(np.broadcast(z, y).shape)

    def kinks(self, z: Array, y: Array) -> list[tuple[Array, Array, Array]]:
        """Where the second derivative jumps: a list of ``(u, du/dz, jump)``.

        ``u`` is the signed distance of each row to the kink, ``du/dz`` is plus or minus one, and ``jump`` is the
        change of the second derivative when ``u`` grows through zero. Empty for twice differentiable losses.
        """
        return []

    def corners(self, z: Array, y: Array) -> list[tuple[Array, Any]]:
        """Where the first derivative jumps: a list of ``(distance, jump)``; empty for differentiable losses.

        A jump is one number, or one per row.

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


class PiecewiseQuadratic(Loss):
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


def typical_curvature(loss: Loss, spread: float) -> float:
    """Typical second derivative of a loss: 2 for squared ones, 1/4 for logistic, about 1 for other losses of classes.

    Of a regression loss it is the slope at one spread of the target, per spread: so what is derived from it follows the
    target's units also where the loss grows like the distance and not like its square. The steeper side counts.

    >>> from foldwise.losses import EpsilonInsensitive, Squared
    >>> typical_curvature(Squared(), 5.0), typical_curvature(EpsilonInsensitive(0.1), 5.0)
    (2.0, 0.2)
    """
    if loss.task == "regression" and spread > 0:
        flat = loss.replace(epsilon=0.0) if "epsilon" in loss.tunable else loss
        slope = np.abs(flat.grad(np.array([spread, -spread]), np.zeros(2))).max()
        return max(float(slope) / spread, np.finfo(float).tiny)
    curvature = float(loss.hess(np.zeros(1), np.ones(1))[0])
    return curvature if curvature > 0.1 else 1.0
