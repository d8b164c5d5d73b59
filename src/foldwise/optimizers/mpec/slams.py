"""Successive linearisation of the penalised program through growing weights: linear programs only."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from foldwise.optimizers.mpec.description import Choice
from foldwise.optimizers.mpec.formulation import Formulation
from foldwise.optimizers.mpec.linearisation import LinearPrograms, settle, successive_linearisation
from foldwise.optimizers.mpec.packages import load_package
from foldwise.optimizers.mpec.run import HOLD, Answer, Run

__all__ = ["LINEAR_PROGRAMS", "ROUNDS", "linearise", "solve_slams"]

WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Weights of the penalty that successive linearisation goes through, in units of the objective at its start."""
ROUNDS, LINEAR_PROGRAMS = 3, 60
"""Of successive linearisation, alone and before a nonlinear solver: that must not end above it."""


def solve_slams(
    run: Run,
    *,
    early: bool = False,
    rounds: int = ROUNDS,
    tol: float = 1e-6,
    start: Choice | None = None,
    n_starts: int = 1,
    max_iter: int = LINEAR_PROGRAMS,
    patience: int = 4,
) -> Answer:
    """Successive linearisation of the penalised program in the "C" form.

    Parameters
    ----------
    run : Run
        Begun on the description of a linear machine; it has the time limit.
    early : bool
        The early-stopping variant: one pass, which leaves a weight when ``patience`` linear programs have not lowered
        the true objective by a thousandth.
    rounds : int
        The exact variant goes through increasing weights from the start, then this many times again from the best
        point found.
    tol : float
        Complementarity; also of the relative decrease that the last linear program may promise.
    start : Choice, optional
        By default the best point of a grid on ``C`` and ``epsilon`` with the widest box.
    n_starts : int
        Grid points to start from.
    max_iter : int
        Linear programs per weight.

    Returns
    -------
    Answer
    """
    description = run.description
    if description.gamma is not None:
        raise ValueError(
            "the rows of a kernel program are not linear, as slams needs them; use method='mpec'"
        )
    if description.curved:
        raise ValueError(
            "the linear programs of slams hold the proximity fixed, and here it is to be tuned; use method='mpec', or "
            "tune reference alone"
        )
    load_package("highspy")
    linearise(run, run.starts(start, n_starts), early, rounds, tol, max_iter, patience)
    return run.answer(tol)


def linearise(
    run: Run,
    starts: list[Choice],
    early: bool = False,
    rounds: int = ROUNDS,
    tol: float = 1e-6,
    max_iter: int = LINEAR_PROGRAMS,
    patience: int = 4,
) -> Choice:
    """Run successive linearisation from every start; the best choice so far."""
    for index, start in enumerate(starts):
        formulation, programs = run.exact(start)
        assert programs is not None
        value, solutions = run.evaluate(start)
        unit = max(value, 1e-6) * formulation.unit / start.C
        passes = _Passes(run, formulation, programs, unit, tol, max_iter, f"slams {index}")
        x = formulation.encode(start, solutions)
        if early:
            passes.go(x, WEIGHTS[1:], patience)
        else:
            passes.again_and_again(start, x, rounds)
        if run.late():
            break
    assert run.evaluate.best is not None
    return run.evaluate.best[1]


@dataclass(eq=False)
class _Passes:
    """Passes through the weights from one start, with what they share: ``unit`` is that of the weights."""

    run: Run
    formulation: Formulation
    programs: LinearPrograms
    unit: float
    tol: float
    max_iter: int
    name: str

    def again_and_again(self, start: Choice, x: np.ndarray, rounds: int) -> None:
        """A pass from the start, then from the best point of the passes before, while it gets better."""
        run, best, choice, lift = self.run, np.inf, start, 0
        for turn in range(1 + rounds):
            if turn:
                if run.late():
                    break
                x = self.formulation.encode(choice, run.evaluate(choice)[1])
            here = self.go(x, WEIGHTS[lift + (1 if turn == 0 else (turn - 1) % 2) :], None)
            if run.stages[-1].status != "solved":  # too light a penalty led where complementarity is lost
                lift = min(lift + 2, len(WEIGHTS) - 2)
                continue
            if here.value >= best * (1.0 - 1e-4) and turn >= 2:
                break
            if here.value < best and here.choice is not None:
                best, choice = here.value, here.choice

    def go(self, x: np.ndarray, weights: tuple[float, ...], patience: int | None) -> _Seen:
        """Successive linearisation through some weights; the best true objective met and its choice."""
        run, mpcc, tol = self.run, self.formulation.mpcc, self.tol
        seen, began, programs_solved = _Seen(), time.perf_counter(), 0

        def watch(point: np.ndarray, step: float) -> bool:
            choice = self.formulation.decode(point)
            seen.note(run.evaluate(choice)[0], choice)
            return patience is not None and seen.in_vain >= patience

        for weight in weights:
            seen.in_vain = 0
            result = successive_linearisation(
                mpcc,
                x,
                weight=weight * self.unit,
                tol=tol if weight >= 0.1 else 1e-4,
                slow=3e-3 if weight < weights[-1] else 1e-6,
                max_iter=self.max_iter,
                deadline=run.deadline,
                programs=self.programs,
                watch=watch,
            )
            x, programs_solved = result.x, programs_solved + result.n_programs
            g, h = mpcc.sides(x)
            ended = result.status not in ("solved", "slow", "stopped", "iteration limit")
            if ended or (weight >= 0.1 and g @ h <= tol):
                break
        status = result.status
        if status in ("solved", "slow", "stopped"):
            status = "solved" if g @ h <= tol else "feasible"
        if status != "failed" and not run.late():
            exact = settle(mpcc, x, self.programs, HOLD * self.unit, run.deadline)
            if exact is not None:
                x, status = exact, "solved"
        elapsed = time.perf_counter() - began
        words = status, result.status
        choice = run.record(self.formulation, x, self.name, tol, words, programs_solved, elapsed)
        if run.stages[-1].objective < seen.value:
            seen.value, seen.choice = run.stages[-1].objective, choice
        return seen


@dataclass(eq=False)
class _Seen:
    """The lowest true objective of a pass, its choice, and how many linear programs have not lowered it."""

    value: float = np.inf
    choice: Choice | None = None
    in_vain: int = 0

    def note(self, value: float, choice: Choice) -> None:
        """Another one; a thousandth counts as lower."""
        self.in_vain = 0 if value < self.value * (1.0 - 1e-3) else self.in_vain + 1
        if value < self.value:
            self.value, self.choice = value, choice
