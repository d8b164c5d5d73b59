"""The two ways to solve a program with complementarity, and what they return."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldwise.optimizers.mpec.backends import BACKENDS, PRESETS, Outcome, load_package, solve
from foldwise.optimizers.mpec.certificate import certify
from foldwise.optimizers.mpec.formulation import FORMS, Choice, Description, Formulation, Solution
from foldwise.optimizers.mpec.inner import Evaluator
from foldwise.optimizers.mpec.nlp import RELAXATIONS, relax
from foldwise.optimizers.mpec.slams import LinearPrograms, settle, successive_linearisation

__all__ = ["Answer", "Stage", "solve_mpec", "solve_slams"]

GRID_C = 10.0 ** np.arange(-12, 13)
GRID_EPSILON = (0.0, 0.01, 0.1, 1.0)
WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Weights of the penalty that successive linearisation goes through, in units of (objective / C) at its start."""
SMALL = 450
"""Pairs up to which a second start, the grid point itself, is cheap enough to be worth it by default."""


@dataclass(eq=False)
class Stage:
    """One solve on the way: what it claimed and what was true."""

    name: str
    tol: float
    status: str
    detail: str
    iterations: int
    claimed: float
    objective: float
    elapsed: float


@dataclass(eq=False)
class Answer:
    """The outcome of :func:`solve_mpec` or :func:`solve_slams`.

    Attributes
    ----------
    choice : Choice
        The best hyper-parameters seen.
    objective : float
        The true criterion there: with every machine trained exactly.
    solutions : list of Solution
        The machines.
    claimed, gap : float
        What the last solve from the best start took for the objective, and how far that is from the truth at its
        hyper-parameters.
    status, detail : str
        How that solve ended.
    certificate : dict
        Complementarity residual and largest product there, biactive pairs and class of stationarity of ``choice``.
    stages : list of Stage
    """

    choice: Choice
    objective: float
    solutions: list[Solution]
    claimed: float
    gap: float
    status: str
    detail: str
    certificate: dict[str, Any]
    stages: list[Stage] = field(default_factory=list)
    n_evaluations: int = 0
    elapsed: float = 0.0

    @property
    def n_features(self) -> int:
        """Features whose box is not zero."""
        box = self.choice.box
        return len(self.solutions[0].w) if box is None else int(np.sum(box > 0))


def grid_starts(evaluate: Evaluator, count: int) -> list[Choice]:
    """The best points of a grid on ``C`` and ``epsilon`` with the widest box."""
    D = evaluate.description
    ranked = []
    strengths = {float(c) for c in np.clip(GRID_C, *D.C)}
    tubes = {float(e) for e in np.clip(GRID_EPSILON, *D.epsilon)}
    lower = None if D.box_lower is None else D.box_lower[0].copy()
    for C in sorted(strengths):
        for epsilon in sorted(tubes):
            choice = Choice(C, epsilon, D.widest(), lower)
            ranked.append((evaluate(choice)[0], len(ranked), choice))
    ranked.sort(key=lambda entry: entry[:2])
    return [choice for _, _, choice in ranked[:count]]


@dataclass(eq=False)
class Run:
    """What all stages of one call share."""

    description: Description
    evaluate: Evaluator
    deadline: float | None
    began: float
    on_stage: Callable[[Stage, Choice], Any] | None = None
    stages: list[Stage] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, description: Description, max_time, on_stage, evaluate) -> Run:
        """Start the clock."""
        began = time.perf_counter()
        deadline = None if max_time is None else began + max_time
        return cls(description, evaluate or Evaluator(description), deadline, began, on_stage)

    def late(self) -> bool:
        """Whether the time is over."""
        return self.deadline is not None and time.perf_counter() > self.deadline

    def record(self, formulation: Formulation, x, name, tol, status, detail, iterations, elapsed) -> Choice:
        """Train exactly at the hyper-parameters of ``x`` and note claimed and true objective."""
        mpcc = formulation.mpcc
        choice = formulation.decode(x)
        value, _ = self.evaluate(choice)
        claimed = float(mpcc.cost @ x)
        stage = Stage(name, tol, status, detail, iterations, claimed, value, elapsed)
        self.stages.append(stage)
        g, h = mpcc.sides(x)
        ending = {
            "claimed": claimed,
            "objective": value,
            "status": status,
            "detail": detail,
            "complementarity": mpcc.residual(x),
            "product": float(np.max(g * h, initial=0.0)),
        }
        if not self.last or value <= self.last["objective"] or self.last["start"] == name:
            self.last = {**ending, "start": name}
        if self.on_stage is not None:
            self.on_stage(stage, choice)
        return choice

    def answer(self, tol: float) -> Answer:
        """The best point seen, small boxes set to zero, with its certificate."""
        assert self.evaluate.best is not None
        value, choice = self.evaluate.best
        value, choice = self._prune(value, choice, tol)
        value, choice, solutions, certificate = self._finish(value, choice, tol)
        for name in ("complementarity", "product"):
            certificate[name] = self.last[name]
        return Answer(
            choice,
            value,
            solutions,
            self.last["claimed"],
            abs(self.last["claimed"] - self.last["objective"]),
            self.last["status"],
            self.last["detail"],
            certificate,
            self.stages,
            self.evaluate.n_evaluations,
            time.perf_counter() - self.began,
        )

    def _finish(self, value: float, choice: Choice, tol: float):
        """The minimiser of the linear piece that the best point lies on, and its certificate.

        Every stage ends a little off a vertex of the exact program; on the vertex it can be told which sides are zero.
        """
        exact = Formulation(self.description, "C")
        _, solutions = self.evaluate(choice)
        x = exact.encode(choice, solutions)
        left = None if self.deadline is None else max(self.deadline - time.perf_counter(), 0.5)
        vertex = settle(
            exact.mpcc,
            x,
            LinearPrograms(exact.mpcc),
            100.0 * max(value, 1e-6) / choice.C,
            None if left is None else time.perf_counter() + left,
        )
        if vertex is not None:
            there = exact.decode(vertex)
            after, machines = self.evaluate(there)
            if self._worth(after, there, value, choice, tol):
                value, choice, solutions, x = after, there, machines, vertex
        return value, choice, solutions, certify(exact.mpcc, x, seconds=left)

    def _worth(self, after: float, there: Choice, value: float, choice: Choice, tol: float) -> bool:
        """Whether a settled point may replace the best one: not worse, and no more features than allowed."""
        if self.description.n_max is not None and there.box is not None:
            if np.sum(there.box > 0) > self.description.n_max:
                return False
        return after <= value + 1e-9 * max(abs(value), 1.0)

    def _prune(self, value: float, choice: Choice, tol: float) -> tuple[float, Choice]:
        """Boxes under ``sqrt(tol)`` are zero (kunapuli2008, 5.1), unless that costs more than ``sqrt(tol)`` relatively."""
        D = self.description
        if choice.box is None or choice.lower is not None:
            return value, choice
        small = (choice.box < np.sqrt(tol)) & (choice.box > 0) & (D.box[0] == 0)
        if D.n_max is not None:
            spare = np.argsort(-choice.box)[D.n_max :]
            small[spare] |= choice.box[spare] > 0
        if not small.any():
            return value, choice
        bare = Choice(choice.C, choice.epsilon, np.where(small, 0.0, choice.box))
        after, _ = self.evaluate(bare)
        if after <= value * (1.0 + np.sqrt(tol)) or D.n_max is not None:
            return after, bare
        return value, choice


def solve_slams(
    description: Description,
    *,
    early: bool = False,
    rounds: int = 3,
    tol: float = 1e-6,
    start: Choice | None = None,
    n_starts: int = 1,
    max_iter: int = 60,
    patience: int = 4,
    max_time: float | None = None,
    on_stage: Callable[[Stage, Choice], Any] | None = None,
    evaluate: Evaluator | None = None,
) -> Answer:
    """Successive linearisation of the penalised program in the "C" form.

    Parameters
    ----------
    description : Description
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
    max_time : float, optional
        Seconds.
    on_stage : callable(Stage, Choice), optional
    evaluate : Evaluator, optional

    Returns
    -------
    Answer
    """
    load_package("highspy")
    run = Run.begin(description, max_time, on_stage, evaluate)
    starts = [description.clip(start)] if start is not None else grid_starts(run.evaluate, n_starts)
    linearise(run, starts, early, rounds, tol, max_iter, patience)
    return run.answer(tol)


def linearise(run: Run, starts, early: bool, rounds: int, tol: float, max_iter: int, patience: int) -> Choice:
    """Run successive linearisation from every start; the best choice so far."""
    formulation = Formulation(run.description, "C")
    programs = LinearPrograms(formulation.mpcc)
    for index, start in enumerate(starts):
        value, solutions = run.evaluate(start)
        unit = max(value, 1e-6) / start.C
        x = formulation.encode(start, solutions)
        name = f"slams {index}"
        if early:
            _penalised(run, formulation, programs, x, unit, WEIGHTS[1:], tol, max_iter, patience, name)
        else:
            best, choice = np.inf, start
            for turn in range(1 + rounds):
                if turn and (run.late() or run.evaluate.best is None):
                    break
                if turn:
                    _, solutions = run.evaluate(choice)
                    x = formulation.encode(choice, solutions)
                weights = WEIGHTS[1:] if turn == 0 else WEIGHTS[(turn - 1) % 2 :]
                here = _penalised(run, formulation, programs, x, unit, weights, tol, max_iter, None, name)
                if here[0] >= best * (1.0 - 1e-4) and turn >= 2:
                    break
                if here[0] < best:
                    best, choice = here
        if run.late():
            break
    assert run.evaluate.best is not None
    return run.evaluate.best[1]


def _penalised(run, formulation, programs, x, unit, weights, tol, max_iter, patience, name):
    """Successive linearisation through some weights; the best true objective met and its choice."""
    mpcc, seen = formulation.mpcc, [np.inf, None, 0]

    def watch(point: np.ndarray, step: float) -> bool:
        choice = formulation.decode(point)
        value, _ = run.evaluate(choice)
        if value < seen[0] * (1.0 - 1e-3):
            seen[2] = 0
        else:
            seen[2] += 1
        if value < seen[0]:
            seen[0], seen[1] = value, choice
        return patience is not None and seen[2] >= patience

    began, programs_solved, result = time.perf_counter(), 0, None
    for weight in weights:
        seen[2] = 0
        result = successive_linearisation(
            mpcc,
            x,
            weight=weight * unit,
            tol=tol if weight >= 0.1 else 1e-4,
            slow=3e-3 if weight < weights[-1] else 1e-6,
            max_iter=max_iter,
            deadline=run.deadline,
            programs=programs,
            watch=watch,
        )
        x, programs_solved = result.x, programs_solved + result.n_programs
        g, h = mpcc.sides(x)
        if result.status not in ("solved", "slow", "stopped", "iteration limit") or (weight >= 0.1 and g @ h <= tol):
            break
    assert result is not None
    status = "solved" if result.status in ("solved", "slow", "stopped") and g @ h <= tol else result.status
    if status != "failed" and not run.late():
        exact = settle(mpcc, x, programs, 100.0 * unit, run.deadline)
        if exact is not None:
            x, status = exact, "solved"
    elapsed = time.perf_counter() - began
    choice = run.record(formulation, x, name, tol, status, result.status, programs_solved, elapsed)
    if run.stages[-1].objective < seen[0]:
        seen[0], seen[1] = run.stages[-1].objective, choice
    return seen[0], seen[1]


def solve_mpec(
    description: Description,
    *,
    backend: str = "uno",
    preset: str = "filterslp",
    form: str = "auto",
    complementarity: str = "pairwise",
    tol: float = 1e-6,
    first_tol: float = 0.1,
    chain: bool = True,
    start: Choice | None = None,
    n_starts: int | None = None,
    max_iter: int = 500,
    max_time: float | None = None,
    on_stage: Callable[[Stage, Choice], Any] | None = None,
    evaluate: Evaluator | None = None,
) -> Answer:
    """The relaxed program by a nonlinear solver, with a homotopy on the tolerance of complementarity.

    Parameters
    ----------
    description : Description
    backend : {"uno", "ipopt"}
    preset : {"filterslp", "filtersqp"}
        Of Uno.
    complementarity : {"pairwise", "aggregated", "penalty"}
        See :func:`~foldwise.optimizers.mpec.nlp.relax`.
    tol : float
        Of complementarity, at the end. A large one is inexact cross-validation.
    first_tol : float
        At the beginning; divided by ten from solve to solve.
    form : {"auto", "lambda", "C"}
        "auto" is "lambda", and "C" for the second start of a small program.
    chain : bool
        The first start is where successive linearisation ends, from ``start``; the homotopy then begins at 0.01.
    start : Choice, optional
        By default the best point of a grid on ``C`` and ``epsilon`` with the widest box.
    n_starts : int, optional
        Starts in all; those after the first are the best points of the grid. By default 2 for small programs, else 1.
    max_iter : int
        Iterations of each solve.
    max_time : float, optional
        Seconds.

    Returns
    -------
    Answer
    """
    _check(backend, preset, form, complementarity, tol, first_tol)
    load_package({"uno": "unopy", "ipopt": "ipyopt"}[backend])
    run = Run.begin(description, max_time, on_stage, evaluate)
    first = Formulation(description, "lambda" if form == "auto" else form)
    if n_starts is None:
        n_starts = 2 if chain and first.mpcc.n_pairs <= SMALL else 1
    given = [] if start is None else [description.clip(start)]
    starts = given or grid_starts(run.evaluate, n_starts)
    plan = [(f"grid {i}", choice, first_tol, first) for i, choice in enumerate(starts)]
    if chain:
        found = linearise(run, starts[:1], False, 2, tol, 60, 4)
        plan.insert(0, ("slams", found, min(first_tol, max(tol, 1e-2)), first))
        if form == "auto" and n_starts > 1 and description.criterion != "misclassification":
            plan[1] = (*plan[1][:3], Formulation(description, "C"))
    settings = {"backend": backend, "preset": preset, "max_iter": max_iter}
    for name, choice, level, formulation in plan[:n_starts]:
        if run.late():
            break
        _homotopy(run, formulation, choice, name, level, tol, complementarity, settings)
    return run.answer(tol)


def _homotopy(run: Run, formulation: Formulation, choice: Choice, name, first, tol, kind, settings) -> None:
    """Solves with a falling tolerance (a growing penalty), each from the point and multipliers of the one before."""
    value, solutions = run.evaluate(choice)
    x, y, bound_duals = formulation.encode(choice, solutions), None, None
    unit = max(value, 1e-6) * (1.0 / choice.C if formulation.form == "C" else 1.0)
    steps = np.maximum(first * 0.1 ** np.arange(1 + max(0, round(np.log10(first / tol)))), tol)
    for k, level in enumerate(steps):
        program = relax(formulation.mpcc, float(level), kind, weight=0.1 * unit * 10.0**k)
        outcome = solve(program, x, y, deadline=run.deadline, bound_duals=bound_duals, **settings)
        if outcome.status not in ("solved", "time limit"):
            outcome = _again(run, formulation, program, outcome, settings)
        x, y, bound_duals = outcome.x, outcome.y, outcome.bound_duals
        run.record(
            formulation, x, name, float(level), outcome.status, outcome.detail, outcome.iterations, outcome.elapsed
        )
        if run.late() or outcome.status == "time limit":
            return


def _again(run: Run, formulation: Formulation, program, failed: Outcome, settings) -> Outcome:
    """Once more from the exact machines at the hyper-parameters reached: feasible for every tolerance."""
    choice = formulation.decode(failed.x)
    _, solutions = run.evaluate(choice)
    outcome = solve(program, formulation.encode(choice, solutions), None, deadline=run.deadline, **settings)
    return outcome if outcome.status in ("solved", "time limit") else failed


def _check(backend, preset, form, complementarity, tol, first_tol) -> None:
    for name, value, valid in (
        ("backend", backend, tuple(BACKENDS)),
        ("preset", preset, PRESETS),
        ("form", form, ("auto", *FORMS)),
        ("complementarity", complementarity, RELAXATIONS),
    ):
        if value not in valid:
            raise ValueError(f"unknown {name} {value!r}; use one of: {', '.join(valid)}")
    if not 0 < tol <= first_tol:
        raise ValueError(f"tolerances must satisfy 0 < tol <= first_tol; got tol={tol!r}, first_tol={first_tol!r}")
