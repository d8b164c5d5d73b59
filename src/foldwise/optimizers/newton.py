"""Trust-region Newton on the reduced objective: the default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foldwise.arguments import Table, integer, number, one_of
from foldwise.optimizers.base import Minimizer, Trace, natural_units
from foldwise.result import Status

__all__ = ["TrustRegionNewton", "box_qp"]


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
    """

    tol: float = 1e-6
    max_iter: int = 60
    hessian: str = "exact"
    radius: float = 1.5

    _arguments: ClassVar[Table] = {
        "tol": number(at_least=0),
        "max_iter": integer(),
        "hessian": one_of("exact", "gauss-newton"),
        "radius": number(above=0),
    }
    name = "newton"
    plays_stages = True
    tol_by_model = True

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``."""
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
            H = _absolute(H)
            low, high = (space.lower - here.theta) / unit, (space.upper - here.theta) / unit
            # 2. Its minimiser within bounds and trust region.
            step = box_qp(H, g, np.maximum(low, -radius), np.minimum(high, radius))
            promised = -(g @ step + 0.5 * step @ H @ step)
            if promised <= self.tol * abs(here.objective):
                return self._verdict(H, g, low, high, here.objective)
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

    def _verdict(self, H, g, low, high, objective) -> Status:
        """Converged, unless only the shrunken trust region made the promise small."""
        step = box_qp(H, g, np.maximum(low, -0.1), np.minimum(high, 0.1))
        promised = -(g @ step + 0.5 * step @ H @ step)
        return Status.CONVERGED if promised <= 10 * self.tol * abs(objective) else Status.STALLED


def _secant(H: np.ndarray, s: np.ndarray, y: np.ndarray, trust: float = 0.3) -> np.ndarray:
    """For one parameter: the curvature that explains the last change ``y`` of the gradient over the step ``s``.

    Rows that cross a kink bend the objective between two points and need not show in the derivatives at either. A
    computed curvature within ``trust`` of what was seen stays.
    """
    seen = y[:, None] / s
    return seen if abs(seen - H) > trust * abs(seen) else H


def _absolute(H: np.ndarray) -> np.ndarray:
    """The matrix with the absolute values of its eigenvalues, none below a small share of the largest."""
    values, vectors = np.linalg.eigh(H)
    size = np.abs(values)
    size = np.maximum(size, max(1e-8 * size.max(initial=0.0), 1e-300))
    return (vectors * size) @ vectors.T


def box_qp(
    H: np.ndarray, g: np.ndarray, low: np.ndarray, high: np.ndarray, max_iter: int = 200
) -> np.ndarray:
    """Minimise ``g'x + x'Hx/2`` over ``low <= x <= high`` for positive definite ``H``, by projected Newton.

    >>> box_qp(np.eye(2), np.array([-2.0, 0.5]), -np.ones(2), np.ones(2))
    array([ 1. , -0.5])
    """
    x = np.clip(np.zeros(len(g)), low, high)
    for _ in range(max_iter):
        slope = g + H @ x
        free = ~(((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))
        if not free.any() or np.max(np.abs(slope[free])) <= 1e-14 * max(1.0, np.max(np.abs(g))):
            break
        d = np.zeros(len(g))
        d[free] = -np.linalg.solve(H[np.ix_(free, free)], slope[free])
        value, a = g @ x + 0.5 * x @ H @ x, 1.0
        for _ in range(30):
            trial = np.clip(x + a * d, low, high)
            if g @ trial + 0.5 * trial @ H @ trial <= value + 1e-4 * slope @ (trial - x):
                break
            a *= 0.5
        if np.max(np.abs(trial - x)) <= 1e-15 * max(1.0, np.max(np.abs(x))):
            break
        x = trial
    return x
