r"""Outer method for criteria with kinks: linear programs that see these kinks, and a bundle for the others.

With an absolute or hinge criterion the cross-validation error of an exact machine is piecewise smooth in ``theta``: it
has kinks where a validation row meets a kink of the criterion, and where a training row or a weight changes kind. At a
minimum several meet, and a method that follows one gradient stops short of it. Here a step minimises

.. math::  \max\Big( \sum_j v_j \, \mathrm{criterion}(z_j + z_j'(\theta) \Delta, \, y_j), \;
           \max_k \; H_k + g_k'(\theta + \Delta - \theta_k) \Big)

over a trust region: the first term knows every kink of the criterion, since only the decisions are linearised; the
second collects gradients at nearby points where a step failed, which lie on other pieces of the training solution. A
smooth criterion is replaced by a few of its tangents at every row; "newton" suits it better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from foldwise.arguments import Table, integer, number
from foldwise.bilevel import Bilevel, Evaluation
from foldwise.optimizers.base import Minimizer, Trace
from foldwise.optimizers.quadratic import REACH
from foldwise.result import Status
from foldwise.space import natural_units

__all__ = ["Bundle"]

Cut = tuple[np.ndarray, float, np.ndarray]
"""A point, the objective there and its gradient."""
TANGENTS = (-1.0, -0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3, 1.0)
"""Where a smooth criterion is touched: distances from the decision in root mean square residuals."""


@dataclass(frozen=True)
class Bundle(Minimizer):
    """Trust-region linear programs with a bundle of gradients, for criteria with kinks and up to some hundred rows.

    Parameters
    ----------
    tol : float
        Stop when the model promises a decrease below ``tol`` times the objective.
    max_iter : int
        Steps, accepted or not.
    radius : float
        First trust region, in units of one e-fold for log entries and a quarter of the range for linear ones.
    memory : int
        Gradients of failed steps that are kept.
    """

    tol: float = 1e-5
    max_iter: int = 200
    radius: float = 0.5
    memory: int = 20

    _arguments: ClassVar[Table] = {
        "tol": number(at_least=0),
        "max_iter": integer(),
        "radius": number(above=0),
        "memory": integer(),
    }
    name = "bundle"
    needs_loss = True
    messages: ClassVar[Mapping[Status, str]] = {
        Status.CONVERGED: "The gradients around, kinks included, leave no common descent: a local minimum of the "
        "cross-validation error.",
    }

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``."""
        space = trace.space
        unit = natural_units(space)
        radius, failures = self.radius, 0
        here = trace.evaluate(theta, order=2, note="start")
        cuts: list[Cut] = []
        rows = _Rows(trace.bilevel, here, unit)
        for _ in range(self.max_iter):
            low, high = (space.lower - here.theta) / unit, (space.upper - here.theta) / unit
            near = [cut for cut in cuts if np.max(np.abs(cut[0] - here.theta) / unit) <= 2.0 * radius]
            # 1. The model's minimum within bounds and trust region.
            step, promised = rows.minimise(
                here, near, unit, np.maximum(low, -radius), np.minimum(high, radius)
            )
            if promised <= self.tol * radius * abs(here.objective) or radius < 1e-7:
                return self._verdict(trace, rows, here, near, unit, low, high)
            # 2. Try it.
            there = trace.evaluate(here.theta + unit * step, warm=here)
            ratio = (here.objective - there.objective) / promised
            trace.differentiate(there, order=2 if ratio > 0.05 else 1)
            assert there.gradient is not None
            assert here.gradient is not None
            if ratio > 0.05:
                # 3. Down: the piece left behind stays in the bundle.
                cuts.append((here.theta, here.objective, here.gradient))
                here, failures = there, 0
                rows = _Rows(trace.bilevel, here, unit)
                if ratio > 0.5 and np.max(np.abs(step)) > 0.9 * radius:
                    radius = min(2.0 * radius, 2.0)
            else:
                # 4. Not down: another piece begins on the way. Its gradient joins; then look nearer.
                cuts.append((there.theta, there.objective, there.gradient))
                failures += 1
                if failures % 2 == 0:
                    radius *= 0.4
            cuts = cuts[-self.memory :]
        return Status.MAX_ITER

    def _verdict(
        self,
        trace: Trace,
        rows: _Rows,
        here: Evaluation,
        cuts: list[Cut],
        unit: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
    ) -> Status:
        """What the gradients around leave in common within reach; a small trust region alone is no reason to end."""
        _, promised = rows.minimise(here, cuts, unit, np.maximum(low, -REACH), np.minimum(high, REACH))
        trace.vouch(here, max(promised, 0.0) / max(abs(here.objective), np.finfo(float).tiny))
        return Status.CONVERGED


def _pieces(criterion: Any, z: np.ndarray, y: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Slopes and intercepts whose maximum is the criterion or, where it is smooth and convex, touches it from below."""
    if criterion.polyhedral:
        return [(np.broadcast_to(k, y.shape), np.broadcast_to(c, y.shape)) for k, c in criterion.pieces(y)]
    width = max(float(np.sqrt(np.mean((z - y) ** 2))), 1e-12)
    places = TANGENTS if criterion.convex else (0.0,)
    out = []
    for t in places:
        there = z + t * width
        slope = criterion.grad(there, y)
        out.append((slope, criterion.value(there, y) - slope * there))
    return out


class _Rows:
    """The criterion on validation rows with linearised decisions, as a linear program."""

    def __init__(self, bilevel: Bilevel, here: Evaluation, unit: np.ndarray) -> None:
        blocks, slopes, offsets, weights = [], [], [], []
        for i, (solution, J) in enumerate(zip(bilevel.solutions(here), here.sensitivities, strict=True)):
            response = bilevel.linearized(i, solution)
            for m, rows, z, y, v in bilevel.problems[i].validation(solution):
                blocks.append(response.moves(J, m, rows).T * unit)
                pieces = _pieces(bilevel.criterion.loss, z, y)
                slopes.append(np.stack([k for k, _ in pieces]))
                offsets.append(np.stack([c + k * z for k, c in pieces]))
                weights.append(v)
        A = np.vstack(blocks)
        self.weight, self.p = np.concatenate(weights), A.shape[1]
        slope, offset = np.hstack(slopes), np.hstack(offsets)
        n = len(A)
        # A piece of slope 0 and offset 0 is the lower bound of the row's variable.
        self.floor = np.full(n, -np.inf)
        matrices, limits = [], []
        for k, c in zip(slope, offset, strict=True):
            if not k.any():
                self.floor = np.maximum(self.floor, c)
                continue
            matrices.append(
                sp.hstack([sp.csr_matrix(k[:, None] * A), -sp.identity(n), sp.csr_matrix((n, 1))])
            )
            limits.append(-c)
        total = sp.csr_matrix(np.concatenate([np.zeros(self.p), self.weight, [-1.0]])[None])
        self.matrix, self.limit = sp.vstack([*matrices, total]).tocsr(), np.concatenate([*limits, [0.0]])

    def minimise(
        self, here: Evaluation, cuts: list[Cut], unit: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """The step in scaled coordinates, and the decrease that the model promises."""
        from scipy.optimize import linprog

        p, n = self.p, len(self.weight)
        rows, limits = [self.matrix], [self.limit]
        for theta, value, g in cuts:
            # Not above the objective here, lest a concave piece forbid every step.
            start = min(value + float(g @ (here.theta - theta)), here.objective)
            rows.append(sp.csr_matrix(np.concatenate([g * unit, np.zeros(n), [-1.0]])[None]))
            limits.append(np.array([-start]))
        cost = np.concatenate([np.zeros(p + n), [1.0]])
        bounds = np.column_stack(
            [np.concatenate([low, self.floor, [-np.inf]]), np.concatenate([high, np.full(n + 1, np.inf)])]
        )
        out = linprog(cost, sp.vstack(rows).tocsr(), np.concatenate(limits), bounds=bounds, method="highs")
        if out.x is None:
            return np.zeros(p), 0.0
        return np.clip(out.x[:p], low, high), float(here.objective - out.x[-1])
