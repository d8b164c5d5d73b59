"""What all stages of solving a program with complementarity share: the clock, the record, the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foldwise.optimizers.mpec.certificate import Local, b_stationary, certify
from foldwise.optimizers.mpec.description import Choice, Description, TrainedMachine
from foldwise.optimizers.mpec.formulation import Formulation
from foldwise.optimizers.mpec.inner import Evaluator
from foldwise.optimizers.mpec.kernel import KernelFormulation
from foldwise.optimizers.mpec.linear import LinearFormulation
from foldwise.optimizers.mpec.linearisation import LinearPrograms, settle

__all__ = ["Answer", "OnStage", "Run", "Stage", "certificate_at", "formulate", "grid_starts", "unit_of"]

GRID_PROXIMITY = (0.01, 0.1, 1.0, 10.0, 100.0)
NEARLY = 1.01
"""Factor on the lowest objective of the grid within which a smaller ``C`` of a linear machine is preferred."""
HOLD = 1000.0
"""Cost of a side that must stay zero, in units of the objective."""
WALK = 50
"""Steps along directions that refute an answer, from vertex to vertex, at most."""
MOVES = (1e-4, -1e-4)
"""How far beside an answer lower values are looked for."""
SAME = 1e-6
"""Distance of hyper-parameters, relative to their size, that is taken for rounding."""


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


OnStage = Callable[[Stage, Choice], Any]


@dataclass(eq=False)
class Answer:
    """The outcome of a call, such as :func:`~foldwise.optimizers.mpec.solve.solve_mpec`.

    Attributes
    ----------
    choice : Choice
        The best hyper-parameters seen.
    objective : float
        The true criterion there: with every machine trained exactly.
    solutions : list of TrainedMachine
        The machines.
    claimed, gap : float
        What the best solve took for the objective, and how far that is from the true one.
    status, detail : str
        How that solve ended.
    n_features : int
        Features whose box, or scale, is not zero.
    certificate : dict
        Complementarity residual and largest product of that solve; of ``choice``, the number of pairs, biactive pairs
        and machines whose intercept no row holds (the program may take any point of its interval, so ``claimed`` can
        be lower than the truth), and the class of stationarity.
    stages : list of Stage
    """

    choice: Choice
    objective: float
    solutions: list[TrainedMachine]
    claimed: float
    gap: float
    status: str
    detail: str
    n_features: int
    certificate: dict[str, Any]
    stages: list[Stage] = field(default_factory=list)
    n_evaluations: int = 0
    elapsed: float = 0.0


def formulate(
    D: Description, form: str = "lambda", unit: float = 1.0, hold: float | None = None
) -> Formulation:
    """The program of a description; that of a kernel machine has one form."""
    return LinearFormulation(D, form, unit, hold) if D.gamma is None else KernelFormulation(D, unit)


def unit_of(C: float) -> float:
    """The power of ten nearest to ``C``."""
    return float(10.0 ** np.round(np.log10(C)))


def grid_starts(evaluate: Evaluator, count: int) -> list[Choice]:
    """The best points of a coarse grid.

    Where only some features are allowed, boxes are shut until they are that few.

    First the smallest ``C`` whose objective is within a hundredth of the lowest: where the box alone holds the
    weights every large ``C`` gives the same machine, and multipliers grow with it for nothing.
    """
    D = evaluate.description
    ranked = [(evaluate(choice)[0], k, choice) for k, choice in enumerate(D.grid())]
    limit = (NEARLY if D.gamma is None else 1.0) * min(value for value, *_ in ranked)
    near = [entry for entry in ranked if entry[0] <= limit]
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


@dataclass(eq=False)
class Point:
    """A choice with its true objective, its machines and the point of the exact program."""

    value: float
    choice: Choice
    solutions: list[TrainedMachine]
    x: np.ndarray
    exact: Formulation


Polish = Callable[[Formulation, np.ndarray, float | None], "np.ndarray | None"]


@dataclass(eq=False)
class Run:
    """What all stages of one call share.

    ``polish`` finds the minimiser of the smooth piece that a point of a program with curved rows lies on; linear rows
    need none, linear programs serve them.
    """

    description: Description
    evaluate: Evaluator
    deadline: float | None
    began: float
    on_stage: OnStage | None = None
    polish: Polish | None = None
    stages: list[Stage] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    _exact: dict[Any, tuple[Formulation, LinearPrograms | None]] = field(default_factory=dict)

    @classmethod
    def begin(
        cls,
        description: Description,
        max_time: float | None = None,
        on_stage: OnStage | None = None,
        evaluate: Evaluator | None = None,
    ) -> Run:
        """Start the clock."""
        began = time.perf_counter()
        deadline = None if max_time is None else began + max_time
        return cls(description, evaluate or Evaluator(description), deadline, began, on_stage)

    def late(self) -> bool:
        """Whether the time is over."""
        return self.deadline is not None and time.perf_counter() > self.deadline

    def starts(self, given: Choice | None, count: int) -> list[Choice]:
        """The user's start, within the bounds and with as few boxes as allowed; else the best points of a grid."""
        if given is None:
            return grid_starts(self.evaluate, count)
        return [self.evaluate.narrowed(self.description.clip(given))]

    def record(
        self,
        formulation: Formulation,
        x: np.ndarray,
        name: str,
        tol: float,
        ended: tuple[str, str],
        iterations: int,
        elapsed: float,
        final: bool = True,
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
        stage = Stage(name, tol, *ended, iterations, claimed, value, elapsed)
        self.stages.append(stage)
        before = self.last
        if (
            not before
            or (final and not before["final"])
            or (final == before["final"] and not (final and value > before["objective"]))
        ):
            g, h = mpcc.sides(x)
            self.last = {
                "claimed": claimed,
                "objective": value,
                "status": ended[0],
                "detail": ended[1],
                "complementarity": mpcc.residual(x),
                "product": float(np.max(g * h, initial=0.0)),
                "final": final,
            }
        if self.on_stage is not None:
            self.on_stage(stage, choice)
        return choice

    def exact(self, choice: Choice) -> tuple[Formulation, LinearPrograms | None]:
        """The program in the "C" form in units of a power of ten near ``C``, and its linear programs; built once.

        Where ``lambda`` is chosen too it is held at its value, so that the rows are linear. Those of a kernel are not.
        """
        D = self.description
        unit, hold = unit_of(choice.C), choice.proximity if D.curved else None
        if (unit, hold) not in self._exact:
            if hold is not None:  # one for every value of lambda would be too many to keep
                self._exact.clear()
            formulation = formulate(D, "C", unit, hold)
            mpcc = formulation.mpcc
            self._exact[unit, hold] = (formulation, LinearPrograms(mpcc) if mpcc.linear else None)
        return self._exact[unit, hold]

    def vertex(self, choice: Choice, x: np.ndarray, value: float, until: float | None) -> np.ndarray | None:
        """The minimiser of the piece of the exact program that a point lies on; None where it was not found."""
        exact, programs = self.exact(choice)
        if programs is not None:
            return settle(exact.mpcc, x, programs, HOLD * max(value, 1e-6), until)
        return None if self.polish is None else self.polish(exact, x, until)

    def settle(
        self, formulation: Formulation, x: np.ndarray, name: str, tol: float, ended: tuple[str, str]
    ) -> None:
        """From the end of a homotopy to the minimiser of the linear piece of the exact program that it lies on."""
        if not isinstance(formulation, LinearFormulation):
            return  # what a kernel machine ends at is settled once, at the best point
        choice = formulation.decode(x)
        exact, _ = self.exact(choice)
        assert isinstance(exact, LinearFormulation)
        began, there = time.perf_counter(), formulation.translate(x, exact)
        vertex = self.vertex(choice, there, self.last["objective"], self.deadline)
        if vertex is not None:
            elapsed = time.perf_counter() - began
            self.record(exact, vertex, name, tol, (ended[0], f"{ended[1]}; settled"), 0, elapsed)
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

    def answer(self, tol: float) -> Answer:
        """The best point seen, what is small set to zero, with its certificate."""
        assert self.evaluate.best is not None
        point, certificate = self._finish(*self._prune(*self.evaluate.best, tol))
        for name in ("complementarity", "product"):
            certificate[name] = self.last[name]
        certificate["loose_intercepts"] = sum(solution.loose for solution in point.solutions)
        return Answer(
            point.choice,
            point.value,
            point.solutions,
            self.last["claimed"],
            abs(self.last["claimed"] - point.value),
            self.last["status"],
            self.last["detail"],
            point.choice.n_features(self.description.d),
            certificate,
            self.stages,
            self.evaluate.n_evaluations,
            time.perf_counter() - self.began,
        )

    def _prune(self, value: float, choice: Choice, tol: float) -> tuple[float, Choice]:
        """Boxes or scales under ``sqrt(tol)`` are zero (kunapuli2008, 5.1) unless that costs over it relatively."""
        D, name = self.description, self.description.switch
        if name is None:
            return value, choice
        array, lowest = getattr(choice, name), getattr(D, name)[0]
        small = (array < np.sqrt(tol)) & (array > 0) & (lowest == 0)
        if not small.any():
            return value, choice
        changed: dict[str, Any] = {name: np.where(small, 0.0, array)}
        bare = replace(choice, **changed)
        after, _ = self.evaluate(bare)
        return (after, bare) if after <= value * (1.0 + np.sqrt(tol)) else (value, choice)

    def _finish(self, value: float, choice: Choice) -> tuple[Point, dict[str, Any]]:
        """From the best point to one that no direction improves, as far as steps get there, and its certificate.

        Every stage ends a little off a vertex of the exact program; on the vertex it can be told which sides are zero.
        Where it is refuted as B-stationary, the direction found is followed to the next vertex. Where it is not, points
        beside it are looked at all the same: multipliers of a training problem that are not unique can hide a descent.
        A kernel machine, whose pieces are curved, stays at the minimiser of its piece.
        """
        left = None if self.deadline is None else max(self.deadline - time.perf_counter(), 0.5)
        point = self._settled(value, choice, left)
        for _ in range(WALK if point.exact.mpcc.linear else 0):
            step = None if self.late() else self._step(point) or self._poll(point)
            if step is None:
                break
            point = self._settled(*step, left)
        return point, certify(self._whole(point.exact).mpcc, point.x, seconds=left)

    def _whole(self, exact: Formulation) -> Formulation:
        """The same program with ``lambda`` free, where that is chosen too."""
        return formulate(self.description, "C", exact.unit) if self.description.curved else exact

    def _settled(self, value: float, choice: Choice, left: float | None) -> Point:
        """The minimiser of the piece that a point lies on, or the point itself where that is not better."""
        exact, _ = self.exact(choice)
        _, solutions = self.evaluate(choice)
        here = Point(value, choice, solutions, exact.encode(choice, solutions), exact)
        vertex = self.vertex(choice, here.x, value, None if left is None else time.perf_counter() + left)
        if vertex is None:
            return here
        there = exact.decode(vertex)
        after, machines = self.evaluate(there)
        if not self.description.admits(there) or after > value + 1e-9 * max(abs(value), 1.0):
            return here
        # On curved rows the trained machines are more exact than the solver of the piece.
        x = vertex if exact.mpcc.linear else exact.encode(there, machines)
        self.last |= {"claimed": float(exact.mpcc.cost @ x), "objective": after}
        return Point(after, there, machines, x, exact)

    def _step(self, point: Point) -> tuple[float, Choice] | None:
        """A point with a lower true objective along a direction that refutes this one; None where there is none."""
        whole = self._whole(point.exact)
        verdict = b_stationary(Local.at(whole.mpcc, point.x))
        if verdict.direction is None:
            return None
        for share in (1.0, 0.5, 0.1):
            there = whole.decode(point.x + share * verdict.reach * verdict.direction)
            if self.description.admits(there) and (after := self._lower(there, point.value)) is not None:
                return after, there
        return None

    def _poll(self, point: Point) -> tuple[float, Choice] | None:
        """A point with a lower true objective beside this one, one hyper-parameter moved; None where there is none."""
        for trial in point.choice.beside(MOVES):
            there = self.description.clip(trial)
            if self.late() or there.key() == point.choice.key() or not self.description.admits(there):
                continue
            if (after := self._lower(there, point.value)) is not None:
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


def certificate_at(evaluate: Evaluator, choice: Choice) -> dict[str, Any]:
    """The certificate at a choice, with the number of loose intercepts and of features.

    The program may put a loose intercept anywhere in its interval; that of a linear machine is certified with the best
    of these points.
    """
    run = Run.begin(evaluate.description, evaluate=evaluate)
    exact, programs = run.exact(choice)
    value, solutions = evaluate(choice)
    x = exact.encode(choice, solutions)
    loose = sum(solution.loose for solution in solutions)
    if loose and programs is not None and (vertex := run.vertex(choice, x, value, None)) is not None:
        x = vertex if np.allclose(exact.decode(vertex).key(), choice.key(), SAME, SAME) else x
    out = certify(run._whole(exact).mpcc, x)
    return out | {"loose_intercepts": loose, "n_features": choice.n_features(evaluate.description.d)}
