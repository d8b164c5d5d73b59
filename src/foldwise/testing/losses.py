"""The contract of a loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldwise.losses import (
    Huber,
    Logistic,
    Loss,
    ModifiedHuber,
    ModifiedLogHinge,
    QuarticHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.losses.base import NONE
from foldwise.losses.polyhedral import staircase
from foldwise.testing.comparison import close, require

__all__ = ["SMOOTH_LOSSES", "check_loss", "distances"]

SMOOTH_LOSSES = (
    SquaredEpsilonInsensitive(),
    Squared(),
    Huber(),
    SquaredHinge(),
    ModifiedHuber(),
    Logistic(),
    ModifiedLogHinge(5.0),
    QuarticHinge(0.5),
)
"""Every loss that trains a smooth machine, soft enough for differences of its derivatives."""
TUBE = 0.35
"""Tube width at which losses with a tunable epsilon are checked, besides their own."""


def check_loss(loss: Loss, *, seed: int = 0) -> None:
    """Check everything that the package relies on about a loss.

    Parameters
    ----------
    loss : Loss
        A training loss or a criterion. A tunable ``epsilon`` is checked at its own value and at 0.35.
    seed : int

    Notes
    -----
    Value and derivatives against central differences away from kinks; convexity by midpoints, and its absence where
    the loss says so; the pieces of piecewise quadratic and polyhedral losses; that ``kinks`` and ``corners`` list
    exactly the jumps of the second and the first derivative.

    Examples
    --------
    >>> from foldwise.losses import Huber
    >>> check_loss(Huber(delta=0.8))
    """
    name = type(loss).__name__
    require(loss.task in ("regression", "classification"), f"{name}.task is {loss.task!r}")
    variants: list[Loss] = [loss]
    if "epsilon" in loss.tunable:
        variants.append(loss.replace(epsilon=TUBE))
    for own in loss.tunable:
        _check_tunable(loss, own, seed)
    for variant in variants:
        z, y = _loss_sample(variant, seed)
        _check_values(variant, z, y, repr(variant))
        if not variant.differentiable:
            continue
        _check_derivatives(variant, z, y, repr(variant))
        if variant.piecewise_quadratic:
            _check_piecewise_quadratic(variant, z, y, repr(variant))
        if variant.polyhedral:
            _check_polyhedral(variant, z, y, repr(variant))
        if np.all(np.asarray(getattr(variant, "epsilon", 1.0)) > 0):
            _check_jumps(variant, y, repr(variant))


def _loss_sample(loss: Loss, seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Decisions and targets, none within 1e-3 of a kink or corner."""
    rng = np.random.default_rng(seed)
    z, y = 1.5 * rng.normal(size=n), rng.normal(size=n)
    if loss.task == "classification":
        y = np.where(y >= 0, 1.0, -1.0)
    away = np.ones(n, dtype=bool)
    for distance in distances(loss, z, y):
        away &= np.abs(distance) > 1e-3
    return z[away], y[away]


def distances(loss: Loss, z: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Signed distances to everything at which a derivative of the loss jumps."""
    return [u for u, _, _ in loss.kinks(z, y)] + [u for u, _ in loss.corners(z, y)]


def _check_values(loss: Loss, z: np.ndarray, y: np.ndarray, name: str) -> None:
    value = loss.value(z, y)
    require(value.shape == z.shape and np.isfinite(value).all(), f"{name}: value must be finite, one per row")
    require((value >= 0).all(), f"{name}: a loss is not negative")
    require((value > 0).any(), f"{name}: the loss is zero on the whole sample")
    table = loss.value(z[:3, None], y[None, :5])
    require(table.shape == (3, 5), f"{name}: z and y must broadcast; got shape {table.shape}")
    for i in range(3):
        require(
            np.array_equal(table[i], loss.value(np.full(5, z[i]), y[:5])), f"{name}: value is not elementwise"
        )
    shift = np.random.default_rng([0, 1]).normal(size=z.shape)
    excess = loss.value(z + shift, y) + loss.value(z - shift, y) - 2.0 * value
    slack = 1e-12 * (1.0 + np.max(np.abs(value)))
    if loss.convex:
        require((excess >= -slack).all(), f"{name}: not convex at a midpoint (by {-excess.min():.2g})")
    else:
        require((excess < -1e-6).any(), f"{name}: says it is not convex, but every midpoint test passes")


def _check_derivatives(loss: Loss, z: np.ndarray, y: np.ndarray, name: str) -> None:
    h = 1e-5
    numeric = (loss.value(z + h, y) - loss.value(z - h, y)) / (2 * h)
    close(loss.grad(z, y), numeric, 1e-8, f"{name}.grad", floor=1e-2)
    slope = (loss.grad(z + h, y) - loss.grad(z - h, y)) / (2 * h)
    hess = loss.hess(z, y)
    if loss.polyhedral:
        require(
            not hess.any() and not slope.any(),
            f"{name}: a piecewise linear loss has no curvature off its kinks",
        )
        return
    close(hess, slope, 1e-8, f"{name}.hess", floor=1e-2)
    curvature = (loss.hess(z + h, y) - loss.hess(z - h, y)) / (2 * h)
    third = loss.third(z, y)
    if loss.piecewise_quadratic or not third.any():
        require(
            not third.any() and not curvature.any(),
            f"{name}: a piecewise quadratic loss has no third derivative",
        )
    else:
        # The second derivative may have corners of its own; there the difference is between two third derivatives.
        smooth = np.abs(loss.third(z + 2 * h, y) - loss.third(z - 2 * h, y)) < 1e-2 * np.max(np.abs(third))
        require(smooth.mean() > 0.9, f"{name}.third jumps nearly everywhere")
        close(third[smooth], curvature[smooth], 1e-7, f"{name}.third", floor=1e-2)


def _check_tunable(loss: Loss, own: str, seed: int) -> None:
    """Arrays of a parameter broadcast, and the derivative of ``grad`` in it is right."""
    name, value = f"{type(loss).__name__} ({own})", TUBE if own == "epsilon" else float(getattr(loss, own))
    at = loss.replace(**{own: value})
    z, y = _loss_sample(at, seed)
    spread = loss.replace(**{own: np.full(z.shape, value)})
    for method in ("value", "grad"):
        same = np.array_equal(getattr(at, method)(z, y), getattr(spread, method)(z, y))
        require(same, f"{name}: {method} with one value per row differs from a common one")
    if loss.smooth:
        h = 1e-5
        upper, lower = loss.replace(**{own: value + h}), loss.replace(**{own: value - h})
        numeric = (upper.grad(z, y) - lower.grad(z, y)) / (2 * h)
        close(at.grad_in(own, z, y), numeric, 1e-8, f"{name}.grad_{own}", floor=1e-2)


def _check_piecewise_quadratic(loss: Any, z: np.ndarray, y: np.ndarray, name: str) -> None:
    code = loss.piece(z, y)
    require(code.dtype == np.int8, f"{name}.piece must be int8; got {code.dtype}")
    require((code != NONE).all(), f"{name}.piece returned the code of rows that take no part")
    a, b0, b1 = loss.coefficients(code, y)
    epsilon = getattr(loss, "epsilon", 0.0)
    close(a * z - b0 - epsilon * b1, loss.grad(z, y), 1e-12, f"{name}: a z - b0 - epsilon b1", floor=1e-2)
    require(np.array_equal(a, loss.hess(z, y)), f"{name}: the coefficient a is not the second derivative")
    if "epsilon" in loss.tunable:
        require(np.array_equal(-b1, loss.grad_epsilon(z, y)), f"{name}: b1 is not -grad_epsilon")
    for part in loss.coefficients(np.full(z.shape, NONE), y):
        require(not part.any(), f"{name}: rows that take no part must have zero coefficients")
    common = loss.coefficients(np.full(z.shape, loss.common_piece, dtype=np.int8), y)[0]
    require(
        (common == common[0]).all() and common[0] > 0,
        f"{name}: the common piece needs one positive curvature",
    )


def _check_polyhedral(loss: Any, z: np.ndarray, y: np.ndarray, name: str) -> None:
    pieces = zip(*loss.pieces(y), strict=True)
    slopes, intercepts = (np.stack([np.broadcast_to(one, y.shape) for one in part]) for part in pieces)
    lines = slopes * z + intercepts
    close(lines.max(axis=0), loss.value(z, y), 1e-12, f"{name}: the largest piece", floor=1e-2)
    top = np.take_along_axis(slopes, lines.argmax(axis=0)[None], axis=0)[0]
    require(np.array_equal(top, loss.grad(z, y)), f"{name}: grad is not the slope of the largest piece")
    steps = staircase(loss, y)
    level = np.sum(z[:, None] > steps.kinks, axis=1)
    there = np.take_along_axis(steps.heights, level[:, None], axis=1)[:, 0]
    require(np.array_equal(-there, top), f"{name}: between its kinks the loss has other slopes")
    h = 1e-5
    for own, moves in steps.moves.items():
        value = getattr(loss, own)
        if own == "epsilon" and np.all(value == 0):
            continue  # at the end of its range
        ends = [staircase(loss.replace(**{own: value + sign * h}), y).kinks for sign in (1, -1)]
        close(
            moves, (ends[0] - ends[1]) / (2 * h), 1e-8, f"{name}.pieces_{own}: how the kinks move", floor=1e-2
        )


def _check_jumps(loss: Loss, y: np.ndarray, name: str) -> None:
    """``kinks`` and ``corners`` list every jump, where it is and how large."""
    h = 1e-6
    z = np.random.default_rng([0, 2]).normal(size=y.shape)
    for u, du, jump in loss.kinks(z, y):
        at = z - u * du
        found = loss.hess(at + h * du, y) - loss.hess(at - h * du, y)
        close(found, jump, 1e-9, f"{name}.kinks: jump of the second derivative", floor=1e-2)
    for (distance, rise), (moved, _) in zip(loss.corners(z, y), loss.corners(z + h, y), strict=True):
        rate = np.round((moved - distance) / h)
        require((np.abs(rate) == 1).all(), f"{name}.corners: distances must change as fast as z")
        at = z - distance * rate
        found = loss.grad(at + h, y) - loss.grad(at - h, y)
        close(
            found,
            np.full(found.shape, rise),
            1e-9,
            f"{name}.corners: jump of the first derivative",
            floor=1e-2,
        )
    grid = np.linspace(-4.0, 4.0, 4001)
    for label in y[:6]:
        target = np.full(grid.shape, label)
        for derivative, lists in (
            (loss.grad, loss.corners(grid, target)),
            (loss.hess, loss.kinks(grid, target)),
        ):
            change = np.abs(np.diff(derivative(grid, target)))
            crossed = np.zeros(change.shape, dtype=bool)
            for row in lists:
                crossed |= np.diff(np.sign(row[0])) != 0
            # A continuous derivative changes little between neighbours: 4001 points see slopes up to about 50.
            unlisted = (change > 0.25) & ~crossed
            require(
                not unlisted.any(), f"{name}: a derivative jumps at z = {grid[:-1][unlisted][:1]}, not listed"
            )
