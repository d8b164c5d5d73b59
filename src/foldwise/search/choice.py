"""Which point of a finished search is taken: the best, or a simpler one that the folds cannot tell from it.

The best point of a noisy criterion is often more flexible than it should be. The rule of one standard error takes the
simplest point whose error is above the best by less than what the rows' differences leave open:

.. math::  \\min_\\theta \\; s'\\theta \\quad \\text{subject to} \\quad
           \\bar\\delta(\\theta) \\le f\\, \\mathrm{se}(\\delta(\\theta)),
           \\qquad \\delta_i(\\theta) = l_i(\\theta) - l_i(\\hat\\theta),

with the out-of-fold losses ``l_i`` of the rows, paired, and a direction ``s`` that points to narrow kernels and weak
regularisation. Gradients of the rows' losses and the hyper-Hessian are known where a search ends, so the constraint is
followed by a few steps, each the closed-form minimum of a linear function on an ellipsoid.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.criteria import Criterion, OutOfFold
from foldwise.deadline import until
from foldwise.models.base import Array, Model
from foldwise.optimizers.base import StopSearch, Trace
from foldwise.optimizers.quadratic import absolute
from foldwise.result import Status
from foldwise.search.prepare import Program
from foldwise.search.trust import Trust
from foldwise.space import Space, natural_units
from foldwise.uncertainty import Influence

__all__ = ["Chosen", "OneStandardError", "RowLosses", "simplicity"]


@dataclass(frozen=True, eq=False)
class Chosen:
    """A point that is taken instead of the one with the lowest objective.

    Attributes
    ----------
    evaluation : the point
    status : why the choice ended early, or None
    """

    evaluation: Evaluation
    status: Status | None = None


@dataclass(frozen=True, eq=False)
class RowLosses:
    """What every row adds to the criterion at one point, and how that moves with theta.

    Attributes
    ----------
    losses : ndarray, shape (rows,)
        Weighted: they add up to the criterion.
    gradients : ndarray, shape (p, rows)
    share : ndarray, shape (rows,)
        What a row counts; they add up to one.
    """

    losses: Array
    gradients: Array
    share: Array

    @classmethod
    def at(cls, program: Program, bilevel: Bilevel, evaluation: Evaluation) -> RowLosses | None:
        """At an evaluation with second derivatives; None where the criterion cannot tell rows apart."""
        trust = Trust(program, bilevel, evaluation)
        influence = trust.influence()
        if influence is None:
            return None
        return cls.of(influence, _whole_gradients(trust) if bilevel.criterion.loss is None else None)

    @classmethod
    def of(cls, influence: Influence, gradients: Array | None = None) -> RowLosses:
        """From the entries of every fold; with other ``gradients`` than theirs, weighted, if they are given."""
        weight = influence.weights
        gradients = weight * influence.gradients if gradients is None else gradients
        losses = influence.by_row(weight * influence.losses)
        return cls(losses, influence.by_row(gradients), influence.by_row(weight))

    def above(self, other: RowLosses) -> tuple[float, float]:
        """The mean difference to another point, and its standard error, both from paired rows."""
        gap = self.losses - other.losses
        mean = float(gap.sum())
        return mean, _root(gap - self.share * mean)

    def room(self, other: RowLosses, factor: float) -> tuple[float, Array]:
        """The mean difference less ``factor`` standard errors, and its gradient."""
        gap, slope = self.losses - other.losses, self.gradients.sum(axis=1)
        mean, error = self.above(other)
        if error <= 0.0:
            return mean, slope
        centred = gap - self.share * mean
        n = int(np.count_nonzero(self.share))
        moved = (self.gradients - slope[:, None] * self.share) @ centred * (n / max(n - 1, 1))
        return mean - factor * error, slope - factor * moved / error

    def spread(self) -> Array:
        """Covariance of the mean gradient, shape (p, p)."""
        centred = self.gradients - self.gradients.sum(axis=1)[:, None] * self.share
        n = int(np.count_nonzero(self.share))
        return np.asarray(centred @ centred.T * (n / max(n - 1, 1)))


def _whole_gradients(trust: Trust) -> Array:
    """Gradients of what the decisions add to a criterion of all of them together, what it fits to them included.

    By differences of the criterion in decisions that move as theta moves them: nothing is trained.
    """
    bilevel, evaluation, step = trust.bilevel, trust.end, 1e-4
    out = bilevel.out_of_fold(bilevel.solutions(evaluation))
    moves = bilevel.moves(evaluation, out)
    gradients = np.zeros((bilevel.space.size, len(trust.folds.row)))
    for i in range(bilevel.space.size):
        for side in (-step, step):
            parts = [replace(p, z=p.z + side * move[i]) for p, move in zip(out.parts, moves, strict=True)]
            shifted = OutOfFold(parts, out.n_tasks)
            by_row = bilevel.criterion.by_row(shifted)
            assert by_row is not None
            terms = zip(parts, trust.folds.parts, shifted.by_part(by_row), strict=True)
            for part, (_, entries), loss in terms:
                gradients[i, entries] += part.v * loss / (2.0 * side)
    return gradients


def _root(centred: Array) -> float:
    """The standard error of a sum of rows, from what they add to it about their share."""
    n = int(np.count_nonzero(centred))
    return float(np.sqrt(np.sum(centred**2) * (n / max(n - 1, 1))))


def simplicity(model: Model, space: Space, share: float = 0.5) -> Array:
    """The direction to more flexible models, in natural units: kernels' widths first, the strength of the loss next.

    A block's entries share one unit. Where widths are tuned strengths count ``share`` of them; tubes count only where
    nothing else does.
    """
    ranks: dict[int, list[tuple[slice, float, int]]] = {0: [], 1: [], 2: []}
    for block in space.blocks:
        side = model.flat_side(block.name)
        if side:
            kind = model.roles[block.name].kind
            rank = 0 if model.is_width(block.name) else 2 if kind == "epsilon" else 1
            ranks[rank].append((space.slices[block.name], -float(side), block.size))
    out = np.zeros(space.size)
    for rank, weight in (
        (0, 1.0),
        (1, share if ranks[0] else 1.0),
        (2, 0.0 if ranks[0] or ranks[1] else 1.0),
    ):
        for part, sign, size in ranks[rank]:
            out[part] = weight * sign / size
    return out


@dataclass(frozen=True)
class OneStandardError:
    """The simplest point within some standard errors of the best.

    Attributes
    ----------
    factor : how many standard errors
    most : evaluations at most
    radius : largest step, in natural units
    bends : shares of the error's curvature that the constraint is taken to have, in turn
    enough : a step that simplifies by less, in natural units, is not worth an evaluation
    """

    factor: float = 1.0
    most: int = 20
    radius: float = 1.5
    bends: tuple[float, ...] = (1.0, 0.3, 0.1)
    enough: float = 0.05

    @classmethod
    def of(cls, choice: str | float) -> OneStandardError | None:
        """The rule that a search asks for by name or number; None for the best point."""
        return None if choice == "best" else cls() if choice == "one_se" else cls(float(choice))

    def check(self, criterion: Criterion) -> None:
        """Refuse a criterion whose rows cannot be compared or that has no second derivatives."""
        own_rows = type(criterion).by_row is not Criterion.by_row
        if not (own_rows and criterion.has_curvature):
            name = type(criterion.loss or criterion).__name__
            lacks = "no second derivatives" if own_rows else "no loss of every row (by_row)"
            raise ValueError(
                f"choice='one_se' compares rows and follows second derivatives, and {name} has {lacks}; use "
                "choice='best', or a criterion such as 'profiled_logistic', 'logistic' or 'squared'"
            )

    def choose(self, program: Program, trace: Trace, theta: Array) -> Chosen:
        """The point, from the best one at ``theta``, which is evaluated once more."""
        bilevel, space = trace.bilevel, trace.space
        direction = simplicity(program.model, space)
        with until(trace.deadline):
            best = bilevel.differentiate(bilevel.evaluate(theta), 2)
        lowest = RowLosses.at(program, bilevel, best)
        if lowest is None or not np.any(direction):
            return Chosen(best)
        here, at, radius, status = best, lowest, self.radius, None
        try:
            for _ in range(self.most):
                # 1. The simplest point of the model within the bounds and the radius. The error bends more than the
                #    constraint, whose standard error grows: where its bend promises nothing a smaller one may.
                for bend in self.bends:
                    step = self._step(space, here, at, lowest, direction, radius, bend)
                    worth = -float(direction @ (step / natural_units(space))) >= self.enough
                    if worth:
                        break
                if not worth:
                    break
                there = trace.evaluate(space.clip(here.theta + step), here, order=2, note="one_se")
                # 2. Kept where it keeps the constraint; else a shorter step.
                seen = RowLosses.at(program, bilevel, there)
                mean, error = (np.inf, 0.0) if seen is None else seen.above(lowest)
                admitted = trace.admits is None or trace.admits(there.theta)
                if there.converged and admitted and mean <= self.factor * error:
                    assert seen is not None
                    here, at, radius = there, seen, min(2.0 * radius, self.radius)
                else:
                    radius = 0.4 * float(np.max(np.abs(step / natural_units(space))))
        except StopSearch as stop:
            status = stop.status
        except KeyboardInterrupt:
            bilevel.reset()
            status = Status.INTERRUPTED
        return Chosen(here, status)

    def _step(
        self,
        space: Space,
        here: Evaluation,
        at: RowLosses,
        lowest: RowLosses,
        direction: Array,
        radius: float,
        bend: float,
    ) -> Array:
        """Minimise the direction on the ellipsoid that a quadratic model of the constraint leaves, within a box."""
        assert here.hessian is not None
        unit = natural_units(space)
        low = np.maximum((space.lower - here.theta) / unit, -radius)
        high = np.minimum((space.upper - here.theta) / unit, radius)
        A = bend * absolute(here.hessian * np.outer(unit, unit))
        free, step = np.ones(space.size, bool), np.zeros(space.size)
        while free.any() and np.any(direction[free]):
            inner = np.linalg.inv(A[np.ix_(free, free)])
            toward = -inner @ direction[free]
            if at is lowest:
                # At the best point itself the constraint is a cone: t^2 p'Ap / 2 <= f t sqrt(p'Bp).
                B = (at.spread() * np.outer(unit, unit))[np.ix_(free, free)]
                length = 2.0 * self.factor * float(np.sqrt(max(toward @ B @ toward, 0.0)))
                own = length / max(-float(direction[free] @ toward), 1e-300) * toward
            else:
                value, slope = at.room(lowest, self.factor)
                g = (slope * unit)[free] + A[np.ix_(free, ~free)] @ step[~free]
                value += float((slope * unit)[~free] @ step[~free])
                value += 0.5 * float(step[~free] @ A[np.ix_(~free, ~free)] @ step[~free])
                centre = -inner @ g
                size = float(g @ inner @ g) - 2.0 * value
                along = -float(direction[free] @ toward)
                own = centre if size <= 0 else centre + np.sqrt(size / max(along, 1e-300)) * toward
            outside = (own < low[free]) | (own > high[free])
            step[free] = np.clip(own, low[free], high[free])
            if not outside.any():
                break
            free[np.flatnonzero(free)[outside]] = False
        return np.asarray(step * unit)
