"""Algorithm 3 of moore2011: proximity control for the penalised objective with fixed beta."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from foldwise.optimizers.pbp.penalised import Centre, Penalised
from foldwise.optimizers.pbp.subgradient import Subgradient, choose, chosen_model
from foldwise.optimizers.pbp.subproblem import ArrowModel, Polyhedron

__all__ = ["Control", "Descent", "descend"]

PATIENCE = 3
MANY = 200
SMALLEST_TAU = 1e-6


@dataclass(frozen=True, eq=False)
class Control:
    """Settings of the algorithm; :class:`foldwise.optimizers.PenalizedBilevel` explains them.

    ``rows theta <= limit`` are constraints beside the bounds; entries of ``theta`` in ``frozen`` stay.
    """

    tol: float
    eta: float
    rho: float
    tube: float
    corrections: int
    max_centres: int
    rows: np.ndarray
    limit: np.ndarray
    frozen: np.ndarray


@dataclass(eq=False)
class Descent:
    """What a run of the algorithm left behind.

    Attributes
    ----------
    centre, tau : the last stability centre and proximity parameter
    values : list of float
        ``f`` at every stability centre, the first one included.
    choice : Subgradient
        The subgradient of greatest feasible descent at the last centre.
    kinks : int
        Rows at a kink at the last centre.
    ending : {"optimal", "short step", "limit"}
    subproblems, corrected, chosen : int
        Subproblems solved; corrections of the weights; models whose subgradient was not the usual one.
    missed : Centre or None
        The last point that was refused. Rows with a kink between it and the centre are on that kink as far as steps
        of this length can tell; the verdict on a centre that only such steps leave counts them.
    """

    centre: Centre
    tau: float
    values: list[float] = field(default_factory=list)
    choice: Subgradient | None = None
    kinks: int = 0
    ending: str = "limit"
    subproblems: int = 0
    corrected: int = 0
    chosen: int = 0
    missed: Centre | None = None


def descend(
    f: Penalised,
    centre: Centre,
    beta: float,
    tau: float,
    control: Control,
    pulse: Callable[[], None] = lambda: None,
) -> Descent:
    """Run from a centre until it is optimal to ``tol``, steps are shorter than ``eta``, or centres run out."""
    run, length = Descent(centre, tau, [centre.value(beta)]), np.inf
    while True:
        pulse()
        # 1. The model, with the subgradient of (39); Theorem 1 says whether this is a minimum.
        base = f.model(run.centre, beta)
        region = f.region(run.centre.theta, control.rows, control.limit, control.frozen)
        short = length <= control.eta * np.sqrt(run.values[-1])
        kinks = f.kinks(run.centre, control.tube, run.missed if short else None)
        run.choice, run.kinks = choose(base, kinks, region), len(kinks)
        if run.choice.norm2 <= control.tol * run.values[-1] or short:
            run.ending = "optimal" if run.choice.norm2 <= control.tol * run.values[-1] else "short step"
            return run
        if len(run.values) > control.max_centres:
            return run
        # 2. A better point, by proximity control.
        length = _advance(f, run, base, chosen_model(base, kinks, run.choice.share), region, beta, control)


def _advance(
    f: Penalised,
    run: Descent,
    base: ArrowModel,
    model: ArrowModel,
    region: Polyhedron,
    beta: float,
    control: Control,
) -> float:
    """Solve subproblems with growing ``tau`` until the decrease is what the model lets expect; the step's length.

    Two things are ours. A step that is refused is tried once more with its weights corrected at the new
    hyper-parameters: at large ``beta`` feasible points lie on a curved surface, and a straight step leaves it. And
    where even short steps are refused, kinks between the centre and the refused point are the reason: the rows there
    join those of (46).
    """
    here, value, refused = run.centre, run.values[-1], 0
    run.missed = None
    while True:
        steps, delta = model.solve(run.tau, region)
        run.subproblems += 1
        run.chosen += model is not base
        length = float(np.sqrt(sum(d @ d for d in steps) + delta @ delta))
        promised = model.change(steps, delta)
        there = f.move(here, steps, delta)
        for _ in range(control.corrections):
            if _accepted(there.value(beta) - value, promised, control.rho):
                break
            better = f.corrected(there, beta)
            run.corrected += 1
            if better.value(beta) >= there.value(beta):
                break
            there = better
        gained = there.value(beta) - value
        if _accepted(gained, promised, control.rho):
            run.centre = there
            run.values.append(there.value(beta))
            run.tau = max(run.tau / (4.0 if gained < 0.75 * promised else np.sqrt(2.0)), SMALLEST_TAU)
            return length
        run.missed = there
        if length <= control.eta * np.sqrt(value):
            return length
        run.tau *= 2.0
        refused += 1
        if refused % PATIENCE == 0:
            kinks = f.kinks(here, control.tube, there)
            if 0 < len(kinks) <= MANY:
                model = chosen_model(base, kinks, choose(base, kinks, region).share)


def _accepted(gained: float, promised: float, rho: float) -> bool:
    """(38): the decrease is at least the share ``rho`` of what the model promised."""
    return promised < 0 and gained < rho * promised
