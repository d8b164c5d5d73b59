"""The two ways to solve a program with complementarity, and what they return."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foldwise.optimizers.mpec.backends import BACKENDS, PRESETS, Outcome, load_package, solve
from foldwise.optimizers.mpec.certificate import Local, b_stationary, certify
from foldwise.optimizers.mpec.formulation import FORMS, Choice, Description, Formulation, Solution
from foldwise.optimizers.mpec.inner import Evaluator
from foldwise.optimizers.mpec.nlp import RELAXATIONS, relax
from foldwise.optimizers.mpec.slams import LinearPrograms, settle, successive_linearisation

__all__ = ["Answer", "Stage", "certificate_at", "solve_mpec", "solve_slams"]

GRID_C = 10.0 ** np.arange(-12, 13)
GRID_EPSILON = (0.0, 0.01, 0.1, 1.0)
GRID_PROXIMITY = (0.01, 0.1, 1.0, 10.0, 100.0)
WEIGHTS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Weights of the penalty that successive linearisation goes through, in units of the objective at its start."""
NEARLY = 1.01
"""Factor on the lowest objective of the grid within which a smaller ``C`` is preferred."""
HOLD = 1000.0
"""Cost of a side that must stay zero, in units of the objective."""
EXACT = 1e-6
"""A final tolerance up to this one means exact cross-validation ..."""
HONEST = 5e-4
"""... which goes on for two more tolerances while the claimed objective is further than this from the true one."""
ROUNDS, LINEAR_PROGRAMS = 3, 60
"""Of successive linearisation, alone and before a nonlinear solver: that must not end above it."""
WALK = 50
"""Steps along directions that refute an answer, from vertex to vertex, at most."""
MOVES, FACTORS = (1e-4, -1e-4), (1.0 + 1e-4, 1.0 - 1e-4)
"""How far beside an answer lower values are looked for."""
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
        What the best solve took for the objective, and how far that is from the true one.
    status, detail : str
        How that solve ended.
    certificate : dict
        Complementarity residual and largest product of that solve; of ``choice``, the number of pairs, biactive pairs
        and machines whose intercept no row holds (the program may take any point of its interval, so ``claimed`` can
        be lower than the truth), and the class of stationarity.
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
        return self.choice.n_open(len(self.solutions[0].w))


def grid_starts(evaluate: Evaluator, count: int) -> list[Choice]:
    """The best points of a grid on ``C`` and ``epsilon`` with the widest box.

    Where only some features are allowed, boxes are shut until they are that few.

    First the smallest ``C`` whose objective is within a hundredth of the lowest: where the box alone holds the
    weights every large ``C`` gives the same machine, and multipliers grow with it for nothing.
    """
    D = evaluate.description
    ranked: list[tuple[float, int, Choice]] = []
    strengths = {float(c) for c in np.clip(GRID_C, *D.C)}
    tubes = {float(e) for e in np.clip(GRID_EPSILON, *D.epsilon)}
    lower = None if D.box_lower is None else D.box_lower[0].copy()
    for C in sorted(strengths):
        for epsilon in sorted(tubes):
            choice = D.clip(Choice(C, epsilon, D.widest(), lower, D.proximity[0]))
            ranked.append((evaluate(choice)[0], len(ranked), choice))
    lowest = min(value for value, *_ in ranked)
    near = [entry for entry in ranked if entry[0] <= NEARLY * lowest]
    first = min(near, key=lambda entry: (entry[2].C, entry[0]))
    ranked.sort(key=lambda entry: (entry is not first, *entry[:2]))
    return [evaluate.narrowed(_pulled(evaluate, choice)) for _, _, choice in ranked[:count]]


def _pulled(evaluate: Evaluator, choice: Choice) -> Choice:
    """The choice with the best of a few ``lambda`` and of two ``w0``: zero, and the mean weights of all tasks."""
    D = evaluate.description
    if D.reference is None:
        return choice
    value, solutions = evaluate(choice)
    mean = np.mean([solution.w for solution in solutions], axis=0)
    trials = [(value, 0, choice)]
    for near in sorted({float(v) for v in np.clip(GRID_PROXIMITY, *D.proximity)}):
        for reference in (np.zeros(D.d), mean):
            trial = D.clip(replace(choice, proximity=near, reference=reference))
            trials.append((evaluate(trial)[0], len(trials), trial))
    return min(trials, key=lambda entry: entry[:2])[2]


SAME = 1e-6
"""Distance of hyper-parameters, relative to their size, that is taken for rounding."""


def unit_of(C: float) -> float:
    """The power of ten nearest to ``C``."""
    return float(10.0 ** np.round(np.log10(C)))


def certificate_at(evaluate: Evaluator, choice: Choice) -> dict[str, Any]:
    """The certificate at a choice, with the number of loose intercepts and of features.

    The program may put a loose intercept anywhere in its interval; it is certified with the best of these points.
    """
    D = evaluate.description
    exact = Formulation(D, "C", unit_of(choice.C), choice.proximity if D.curved else None)
    value, solutions = evaluate(choice)
    x = exact.encode(choice, solutions)
    if loose := sum(solution.loose for solution in solutions):
        vertex = settle(exact.mpcc, x, LinearPrograms(exact.mpcc), HOLD * max(value, 1e-6))
        if vertex is not None:
            there, here = (np.hstack(one.key()) for one in (exact.decode(vertex), choice))
            x = vertex if np.allclose(there, here, SAME, SAME) else x
    whole = Formulation(D, "C", exact.unit) if D.curved else exact
    out = certify(whole.mpcc, x)
    out["loose_intercepts"] = loose
    out["n_features"] = choice.n_open(D.d)
    return out


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
    _exact: dict[Any, tuple[Formulation, LinearPrograms]] = field(default_factory=dict)

    @classmethod
    def begin(cls, description: Description, max_time, on_stage, evaluate) -> Run:
        """Start the clock."""
        began = time.perf_counter()
        deadline = None if max_time is None else began + max_time
        return cls(description, evaluate or Evaluator(description), deadline, began, on_stage)

    def late(self) -> bool:
        """Whether the time is over."""
        return self.deadline is not None and time.perf_counter() > self.deadline

    def record(
        self, formulation: Formulation, x, name, tol, status, detail, iterations, elapsed, final=True
    ) -> Choice:
        """Train exactly at the hyper-parameters of ``x`` and note claimed and true objective.

        Of the stages that end a run (``final``) the one with the lowest true objective is reported.
        """
        mpcc = formulation.mpcc
        choice = formulation.decode(x)
        value, _ = self.evaluate(choice)
        if not self.description.admits(choice):  # complementary to a tolerance only: more boxes than allowed
            choice = self.evaluate.narrowed(choice)
            value, _ = self.evaluate(choice)
        claimed = float(mpcc.cost @ x)
        stage = Stage(name, tol, status, detail, iterations, claimed, value, elapsed)
        self.stages.append(stage)
        g, h = mpcc.sides(x)
        worse = bool(self.last) and value > self.last["objective"]
        if (
            not self.last
            or (final and not self.last["final"])
            or (final == self.last["final"] and not (final and worse))
        ):
            self.last = {
                "claimed": claimed,
                "objective": value,
                "status": status,
                "detail": detail,
                "complementarity": mpcc.residual(x),
                "product": float(np.max(g * h, initial=0.0)),
                "final": final,
            }
        if self.on_stage is not None:
            self.on_stage(stage, choice)
        return choice

    def answer(self, tol: float) -> Answer:
        """The best point seen, small boxes set to zero, with its certificate."""
        assert self.evaluate.best is not None
        value, choice = self.evaluate.best
        value, choice = self._prune(value, choice, tol)
        value, choice, solutions, certificate = self._finish(value, choice)
        for name in ("complementarity", "product"):
            certificate[name] = self.last[name]
        certificate["loose_intercepts"] = sum(solution.loose for solution in solutions)
        return Answer(
            choice,
            value,
            solutions,
            self.last["claimed"],
            abs(self.last["claimed"] - value),
            self.last["status"],
            self.last["detail"],
            certificate,
            self.stages,
            self.evaluate.n_evaluations,
            time.perf_counter() - self.began,
        )

    def settle(
        self, formulation: Formulation, x: np.ndarray, name: str, tol: float, outcome: Outcome
    ) -> None:
        """From the end of a homotopy to the minimiser of the linear piece of the exact program that it lies on."""
        exact, programs = self.exact(formulation.decode(x))
        began = time.perf_counter()
        weight = HOLD * max(self.last["objective"], 1e-6)
        vertex = settle(exact.mpcc, formulation.translate(x, exact), programs, weight, self.deadline)
        if vertex is not None:
            elapsed = time.perf_counter() - began
            self.record(exact, vertex, name, tol, outcome.status, f"{outcome.detail}; settled", 0, elapsed)
            self._nudge(exact.decode(vertex))

    def _nudge(self, choice: Choice) -> None:
        """Try hyper-parameters beside a vertex.

        There a multiplier just reaches its end, and an intercept may be free within an interval: the program takes
        the best end of it, a trained machine the middle. A little to one side the multiplier holds it at that end.
        """
        for size in (1e-6, 1e-4):
            for sign in (1.0, -1.0):
                factor = 1.0 + sign * size
                self.evaluate(replace(choice, C=choice.C * factor))
                if choice.box is not None and choice.lower is None:
                    self.evaluate(replace(choice, box=choice.box * factor))

    def exact(self, choice: Choice) -> tuple[Formulation, LinearPrograms]:
        """The program in the "C" form in units of a power of ten near ``C``, and its linear programs; built once.

        Where ``lambda`` is chosen too it is held at its value, so that the rows are linear.
        """
        unit, hold = unit_of(choice.C), choice.proximity if self.description.curved else None
        if (unit, hold) not in self._exact:
            if hold is not None:  # one for every value of lambda would be too many to keep
                self._exact.clear()
            formulation = Formulation(self.description, "C", unit, hold)
            self._exact[unit, hold] = (formulation, LinearPrograms(formulation.mpcc))
        return self._exact[unit, hold]

    def _finish(self, value: float, choice: Choice):
        """From the best point to one that no direction improves, as far as steps get there, and its certificate.

        Every stage ends a little off a vertex of the exact program; on the vertex it can be told which sides are zero.
        Where it is refuted as B-stationary, the direction found is followed to the next vertex. Where it is not, points
        beside it are looked at all the same: multipliers of a training problem that are not unique can hide a descent.
        """
        left = None if self.deadline is None else max(self.deadline - time.perf_counter(), 0.5)
        value, choice, solutions, x, exact = self._settled(value, choice, left)
        for _ in range(WALK):
            step = (
                None if self.late() else self._step(self._whole(exact), x, value) or self._poll(value, choice)
            )
            if step is None:
                break
            value, choice, solutions, x, exact = self._settled(*step, left)
        return value, choice, solutions, certify(self._whole(exact).mpcc, x, seconds=left)

    def _whole(self, exact: Formulation) -> Formulation:
        """The same program with ``lambda`` free, where that is chosen too."""
        return Formulation(self.description, "C", exact.unit) if self.description.curved else exact

    def _settled(self, value: float, choice: Choice, left: float | None):
        """The minimiser of the linear piece that a point lies on, or the point itself where that is not better."""
        exact, programs = self.exact(choice)
        _, solutions = self.evaluate(choice)
        x = exact.encode(choice, solutions)
        until = None if left is None else time.perf_counter() + left
        vertex = settle(exact.mpcc, x, programs, HOLD * max(value, 1e-6), until)
        if vertex is not None:
            there = exact.decode(vertex)
            after, machines = self.evaluate(there)
            if self._worth(after, there, value):
                value, choice, solutions, x = after, there, machines, vertex
                self.last |= {"claimed": float(exact.mpcc.cost @ x), "objective": value}
        return value, choice, solutions, x, exact

    def _poll(self, value: float, choice: Choice) -> tuple[float, Choice] | None:
        """A point with a lower true objective beside a choice, one hyper-parameter moved; None where there is none."""
        beside = [
            replace(choice, **{name: getattr(choice, name) * f})
            for name in ("C", "proximity")
            for f in FACTORS
        ]
        beside += [replace(choice, epsilon=choice.epsilon + move) for move in MOVES]
        for name in ("box", "lower", "reference"):
            array = getattr(choice, name)
            for i in range(0 if array is None else len(array)):
                unit = np.eye(len(array))[i]
                beside += [replace(choice, **{name: array + move * unit}) for move in MOVES]
        for trial in beside:
            there = self.description.clip(trial)
            if self.late() or there.key() == choice.key() or not self.description.admits(there):
                continue
            if (after := self._lower(there, value)) is not None:
                return after, there
        return None

    def _lower(self, there: Choice, value: float) -> float | None:
        """The true objective at a choice if it is lower and can be certified; None otherwise.

        The program may move an intercept that no row holds, a trained machine has it in the middle: no step goes there.
        """
        after, machines = self.evaluate(there)
        if after >= value - 1e-9 * max(abs(value), 1.0) or any(machine.loose for machine in machines):
            return None
        self.last |= {"claimed": after, "objective": after}
        return after

    def _step(self, whole: Formulation, x: np.ndarray, value: float) -> tuple[float, Choice] | None:
        """A point with a lower true objective along a direction that refutes ``x``; None where there is none."""
        verdict = b_stationary(Local.at(whole.mpcc, x))
        if verdict.direction is None:
            return None
        for share in (1.0, 0.5, 0.1):
            there = whole.decode(x + share * verdict.reach * verdict.direction)
            if self.description.admits(there) and (after := self._lower(there, value)) is not None:
                return after, there
        return None

    def _worth(self, after: float, there: Choice, value: float) -> bool:
        """Whether a settled point may replace the best one: not worse, and no more features than allowed."""
        return self.description.admits(there) and after <= value + 1e-9 * max(abs(value), 1.0)

    def _prune(self, value: float, choice: Choice, tol: float) -> tuple[float, Choice]:
        """Boxes under ``sqrt(tol)`` are zero (kunapuli2008, 5.1) unless that costs over ``sqrt(tol)`` relatively."""
        D = self.description
        if D.box is None or choice.box is None or choice.lower is not None:
            return value, choice
        small = (choice.box < np.sqrt(tol)) & (choice.box > 0) & (D.box[0] == 0)
        if not small.any():
            return value, choice
        bare = replace(choice, box=np.where(small, 0.0, choice.box))
        after, _ = self.evaluate(bare)
        if after <= value * (1.0 + np.sqrt(tol)):
            return after, bare
        return value, choice


def solve_slams(
    description: Description,
    *,
    early: bool = False,
    rounds: int = ROUNDS,
    tol: float = 1e-6,
    start: Choice | None = None,
    n_starts: int = 1,
    max_iter: int = LINEAR_PROGRAMS,
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
    if description.curved:
        raise ValueError(
            "the linear programs of slams hold the proximity fixed, and here it is to be tuned; use method='mpec', or "
            "tune reference alone"
        )
    load_package("highspy")
    run = Run.begin(description, max_time, on_stage, evaluate)
    starts = _given(run, start) or grid_starts(run.evaluate, n_starts)
    linearise(run, starts, early, rounds, tol, max_iter, patience)
    return run.answer(tol)


def _given(run: Run, start: Choice | None) -> list[Choice]:
    """The user's start, within the bounds and with as few boxes as allowed."""
    return [] if start is None else [run.evaluate.narrowed(run.description.clip(start))]


def linearise(run: Run, starts, early: bool, rounds: int, tol: float, max_iter: int, patience: int) -> Choice:
    """Run successive linearisation from every start; the best choice so far."""
    for index, start in enumerate(starts):
        formulation, programs = run.exact(start)
        value, solutions = run.evaluate(start)
        unit = max(value, 1e-6) * formulation.unit / start.C
        x = formulation.encode(start, solutions)
        name = f"slams {index}"
        if early:
            _penalised(run, formulation, programs, x, unit, WEIGHTS[1:], tol, max_iter, patience, name)
        else:
            best, choice, lift = np.inf, start, 0
            for turn in range(1 + rounds):
                if turn and (run.late() or run.evaluate.best is None):
                    break
                if turn:
                    _, solutions = run.evaluate(choice)
                    x = formulation.encode(choice, solutions)
                weights = WEIGHTS[lift + (1 if turn == 0 else (turn - 1) % 2) :]
                here = _penalised(run, formulation, programs, x, unit, weights, tol, max_iter, None, name)
                if run.stages[-1].status != "solved":  # too light a penalty led where complementarity is lost
                    lift = min(lift + 2, len(WEIGHTS) - 2)
                    continue
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
    mpcc = formulation.mpcc
    seen: list[Any] = [np.inf, None, 0]

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
        if result.status not in ("solved", "slow", "stopped", "iteration limit") or (
            weight >= 0.1 and g @ h <= tol
        ):
            break
    assert result is not None
    status = result.status
    if status in ("solved", "slow", "stopped"):
        status = "solved" if g @ h <= tol else "feasible"
    if status != "failed" and not run.late():
        exact = settle(mpcc, x, programs, HOLD * unit, run.deadline)
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
    backend: str = "auto",
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
    backend : {"auto", "uno", "ipopt"}
        "auto" is "uno", and "ipopt" for misclassification, where Uno claims errors that are far too low.
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
    if backend == "auto":
        backend = "ipopt" if description.criterion == "misclassification" else "uno"
    load_package({"uno": "unopy", "ipopt": "ipyopt"}[backend])
    load_package("highspy")
    run = Run.begin(description, max_time, on_stage, evaluate)
    first = Formulation(description, "lambda" if form == "auto" else form)
    if n_starts is None:
        n_starts = 2 if chain and first.mpcc.n_pairs <= SMALL else 1
    starts = _given(run, start) or grid_starts(run.evaluate, n_starts)
    plan = [(f"grid {i}", choice, first_tol, first) for i, choice in enumerate(starts)]
    if chain:
        found = linearise(run, starts[:1], False, ROUNDS, tol, LINEAR_PROGRAMS, 4)
        plan.insert(0, ("slams", found, min(first_tol, max(tol, 1e-2)), first))
        if form == "auto" and n_starts > 1 and description.criterion != "misclassification":
            plan[1] = (*plan[1][:3], Formulation(description, "C", unit_of(plan[1][1].C)))
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
    unit = max(value, 1e-6) * (formulation.unit / choice.C if formulation.form == "C" else 1.0)
    steps = np.maximum(first * 0.1 ** np.arange(1 + max(0, round(np.log10(first / tol)))), tol)
    if tol <= EXACT:
        steps = np.append(steps, [0.1 * tol, 0.01 * tol])
    for k, level in enumerate(steps):
        if level < tol and abs(run.stages[-1].claimed - run.stages[-1].objective) <= HONEST:
            break
        program = relax(formulation.mpcc, float(level), kind, weight=0.1 * unit * 10.0**k)
        outcome = solve(program, x, y, deadline=run.deadline, bound_duals=bound_duals, **settings)
        if outcome.status not in ("solved", "time limit"):
            outcome = _again(run, formulation, program, outcome, settings)
        x, y, bound_duals = outcome.x, outcome.y, outcome.bound_duals
        late = run.late() or outcome.status == "time limit"
        run.record(
            formulation,
            x,
            name,
            float(level),
            outcome.status,
            outcome.detail,
            outcome.iterations,
            outcome.elapsed,
            final=late or level <= tol,
        )
        if run.late() or outcome.status == "time limit":
            return
    run.settle(formulation, x, name, tol, outcome)


def _again(run: Run, formulation: Formulation, program, failed: Outcome, settings) -> Outcome:
    """Once more from the exact machines at the hyper-parameters reached: feasible for every tolerance."""
    choice = formulation.decode(failed.x)
    _, solutions = run.evaluate(choice)
    outcome = solve(program, formulation.encode(choice, solutions), None, deadline=run.deadline, **settings)
    return outcome if outcome.status in ("solved", "time limit") else failed


def _check(backend, preset, form, complementarity, tol, first_tol) -> None:
    for name, value, valid in (
        ("backend", backend, ("auto", *BACKENDS)),
        ("preset", preset, PRESETS),
        ("form", form, ("auto", *FORMS)),
        ("complementarity", complementarity, RELAXATIONS),
    ):
        if value not in valid:
            raise ValueError(f"unknown {name} {value!r}; use one of: {', '.join(valid)}")
    if not 0 < tol <= first_tol:
        raise ValueError(
            f"tolerances must satisfy 0 < tol <= first_tol; got tol={tol!r}, first_tol={first_tol!r}"
        )
