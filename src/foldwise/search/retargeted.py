"""A criterion in units of the user's target, where training sees the target transformed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foldwise.criteria import WINDOW, Criterion, Curvature, OutOfFold, Part
from foldwise.models.base import Array, Target

__all__ = ["Retargeted"]

STEP = 1e-3
"""Length of the differences that give derivatives of the way back, in typical differences of targets."""


class Retargeted(Criterion):
    """A criterion of the decisions turned back into targets, and of the user's targets.

    Parameters
    ----------
    base : Criterion
    targets : sequence of Target
        One for every problem of the program, rows in stored order.
    """

    def __init__(self, base: Criterion, targets: Sequence[Target]) -> None:
        self.base, self.targets = base, list(targets)
        self.task = base.task
        self.differentiable, self.has_curvature = base.differentiable, base.has_curvature

    def __repr__(self) -> str:
        return f"{self.base!r} of the target before its transformation"

    def by_row(self, out: OutOfFold) -> Array | None:
        return self.base.by_row(self.turned_back(out))

    def by_task(self, out: OutOfFold) -> Array:
        return self.base.by_task(self.turned_back(out))

    def n_fitted(self, out: OutOfFold) -> int:
        return self.base.n_fitted(self.turned_back(out))

    def slopes(self, out: OutOfFold) -> list[Array]:
        slopes = self.base.slopes(self.turned_back(out))
        return [g * self._ways(part)[0] for g, part in zip(slopes, out.parts, strict=True)]

    def curvature(self, out: OutOfFold, window: float | None = WINDOW) -> Curvature:
        seen = self.turned_back(out)
        bend, slopes = self.base.curvature(seen, window), self.base.slopes(seen)
        ways = [self._ways(part) for part in out.parts]
        diagonal = [
            h * first**2 + g * second
            for h, g, (first, second) in zip(bend.diagonal, slopes, ways, strict=True)
        ]
        columns = [c * first[:, None] for c, (first, _) in zip(bend.columns, ways, strict=False)]
        return Curvature(diagonal, columns, bend.signs)

    def turned_back(self, out: OutOfFold) -> OutOfFold:
        """Decisions and targets as the user has them."""
        parts = []
        for part in out.parts:
            target = self.targets[part.problem]
            z = target.inverse(part.z)
            parts.append(replace(part, z=z, y=target.y[part.rows]))
        return OutOfFold(parts, out.n_tasks)

    def _ways(self, part: Part) -> tuple[Array, Array]:
        """First and second derivatives of the way back, by differences of the fourth order."""
        target, h = self.targets[part.problem], STEP * self.targets[part.problem].unit
        far, near, here, there, beyond = (target.inverse(part.z + k * h) for k in (-2, -1, 0, 1, 2))
        first = (far - 8.0 * near + 8.0 * there - beyond) / (12.0 * h)
        second = (-far + 16.0 * near - 30.0 * here + 16.0 * there - beyond) / (12.0 * h * h)
        return np.asarray(first), np.asarray(second)
