"""Trust-region Newton on the reduced objective: the default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foldwise.arguments import Table, integer, number, one_of
from foldwise.optimizers.base import Minimizer, Trace
from foldwise.optimizers.quadratic import absolute, box_qp
from foldwise.result import Status
from foldwise.space import natural_units

__all__ = ["TrustRegionNewton"]


POLL = 0.5
"""How far a poll looks, in natural units."""


@dataclass(frozen=True)
class TrustRegionNewton(Minimizer):
    """Newton's method with the exact or the Gauss-Newton hyper-Hessian, in a box.

    The step minimises the quadratic model with the absolute values of the Hessian's eigenvalues (a saddle is left,
    not approached) over the intersection of the bounds with an infinity-norm trust region.

    Parameters
    ----------
    tol : float
        Stop when the model promises a decrease below ``tol`` times the objective.
    max_iter : int
    hessian : {"exact", "gauss-newton"}
    radius : float
        First trust region, in units of one e-fold for log entries and a quarter of the range for linear ones.
    polls : int
        How often, where the method ends, it looks half a unit to either side of every entry, and goes on from a better
        point there. At kinks the derivatives at one point say little about what is beyond.
    """

    tol: float = 1e-6
    max_iter: int = 60
    hessian: str = "exact"
    radius: float = 1.5
    polls: int = 0

    _arguments: ClassVar[Table] = {
        "tol": number(at_least=0),
        "max_iter": integer(),
        "hessian": one_of("exact", "gauss-newton"),
        "radius": number(above=0),
        "polls": integer(at_least=0),
    }
    name = "newton"
    needs_curvature = True
    plays_stages = True
    tol_by_model = True

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``."""
        status = self._descend(trace, theta)
        for _ in range(self.polls):
            assert trace.best is not None
            if status is Status.MAX_ITER:
                break
            trace.differentiate(trace.best, order=2, exact=self.hessian == "exact")
            if not trace.look_around(self.tol, (-POLL, POLL), note="poll"):
                break
            status = self._descend(trace, trace.best.theta)
        return status

    def _descend(self, trace: Trace, theta: np.ndarray) -> Status:
        space, exact = trace.space, self.hessian == "exact"
        unit = natural_units(space)
        radius, here = self.radius, trace.evaluate(theta, order=2, exact=exact, note="start")
        last = None
        for _ in range(self.max_iter):
            # 1. The model in scaled coordinates, made convex.
            assert here.gradient is not None
            assert here.hessian is not None
            g, H = here.gradient * unit, here.hessian * np.outer(unit, unit)
            if last is not None and space.size == 1:
                H = _secant(H, (here.theta - last.theta) / unit, g - last.gradient * unit)
            H = absolute(H)
            low, high = (space.lower - here.theta) / unit, (space.upper - here.theta) / unit
            # 2. Its minimiser within bounds and trust region.
            step = box_qp(H, g, np.maximum(low, -radius), np.minimum(high, radius))
            promised = -(g @ step + 0.5 * step @ H @ step)
            if promised <= self.tol * abs(here.objective):
                return Status.CONVERGED
            # 3. Try it; derivatives only where the objective fell.
            there = trace.evaluate(here.theta + unit * step, warm=here)
            ratio = (here.objective - there.objective) / promised
            length = float(np.max(np.abs(step)))
            if ratio > 1e-4:
                gain = here.objective - there.objective
                last, here = here, trace.differentiate(there, order=2, exact=exact)
                if gain <= 0.1 * self.tol * abs(here.objective):
                    return Status.CONVERGED
            # 4. Trust more or less.
            if ratio < 0.25:
                radius = 0.3 * length
            elif ratio > 0.7 and length > 0.9 * radius:
                radius = min(2.5 * radius, 6.0)
            if radius < 1e-7:
                return Status.STALLED
        return Status.MAX_ITER


def _secant(H: np.ndarray, s: np.ndarray, y: np.ndarray, trust: float = 0.3) -> np.ndarray:
    """For one parameter: the curvature that explains the last change ``y`` of the gradient over the step ``s``.

    Rows that cross a kink bend the objective between two points and need not show in the derivatives at either. A
    computed curvature within ``trust`` of what was seen stays.
    """
    seen = y[:, None] / s
    return seen if abs(seen - H) > trust * abs(seen) else H
