"""The relaxed program by a nonlinear solver, with a homotopy on the tolerance of complementarity."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldwise.optimizers.mpec.backends import BACKENDS, PRESETS, Outcome, solve
from foldwise.optimizers.mpec.description import Choice, Description
from foldwise.optimizers.mpec.formulation import FORMS, Formulation
from foldwise.optimizers.mpec.nlp import RELAXATIONS, NonlinearProgram, piece, relax
from foldwise.optimizers.mpec.packages import load_package
from foldwise.optimizers.mpec.run import Answer, Run, formulate, unit_of
from foldwise.optimizers.mpec.slams import linearise

__all__ = ["solve_mpec"]

EXACT = 1e-6
"""A final tolerance up to this one means exact cross-validation ..."""
HONEST = 5e-4
"""... which goes on for two more tolerances while the claimed objective is further than this from the true one."""
SMALL = 450
"""Pairs up to which a second start, the grid point itself, is cheap enough to be worth it by default."""
FIRST_TOL, KERNEL_FIRST_TOL = 0.1, 1e-3
"""First tolerance of a linear and of a kernel machine. With 0.1 the first program of the latter all but ignores the
machines and forgets the start: of four small examples two ended in worse minima than with 1e-3, and one at times in
another minimum."""


def solve_mpec(
    run: Run,
    *,
    backend: str = "auto",
    preset: str = "filterslp",
    form: str = "auto",
    complementarity: str = "pairwise",
    tol: float = 1e-6,
    first_tol: float | None = None,
    chain: bool = True,
    start: Choice | None = None,
    n_starts: int | None = None,
    max_iter: int = 500,
) -> Answer:
    """The relaxed program by a nonlinear solver, with a homotopy on the tolerance of complementarity.

    Parameters
    ----------
    run : Run
        Begun on a description; it has the time limit.
    backend : {"auto", "uno", "ipopt"}
        "auto" is "uno", and "ipopt" for kernel machines and for misclassification, where Uno claims errors that are far
        too low.
    preset : {"filterslp", "filtersqp"}
        Of Uno.
    complementarity : {"pairwise", "aggregated", "penalty"}
        See :func:`~foldwise.optimizers.mpec.nlp.relax`.
    tol : float
        Of complementarity, at the end. A large one is inexact cross-validation.
    first_tol : float, optional
        At the beginning; divided by ten from solve to solve. By default 0.1, and 1e-3 for kernel machines.
    form : {"auto", "lambda", "C"}
        "auto" is "lambda", and "C" for the second start of a small program. A kernel program has one form.
    chain : bool
        The first start of a linear machine is where successive linearisation ends, from ``start``; the homotopy then
        begins at 0.01.
    start : Choice, optional
        By default the best point of a grid on ``C`` and ``epsilon`` with the widest box, or on ``C`` and a common scale
        of the features.
    n_starts : int, optional
        Starts in all; those after the first are the best points of the grid. By default 2 for small programs of linear
        machines, else 1.
    max_iter : int
        Iterations of each solve.

    Returns
    -------
    Answer
    """
    D = run.description
    kernel = D.gamma is not None
    if first_tol is None:
        first_tol = max(KERNEL_FIRST_TOL, tol) if kernel else FIRST_TOL
    _check(backend, preset, form, complementarity, tol, first_tol)
    settings = {"backend": _loaded(backend, D), "preset": preset, "max_iter": max_iter}
    run.polish = lambda exact, x, until: _piece(exact, x, until, settings)
    chain = chain and not kernel
    if n_starts is None:
        n_starts = 2 if chain and D.n_pairs() <= SMALL else 1
    for name, choice, formulation, level in _plan(
        run, run.starts(start, n_starts), form, chain, (first_tol, tol)
    ):
        if run.stages and run.late():
            break
        _homotopy(run, formulation, choice, name, (level, tol), complementarity, settings)
    return run.answer(tol)


def _loaded(backend: str, D: Description) -> str:
    """The back-end, which for "auto" follows from the program; its package and that of linear programs are there."""
    if backend == "auto":
        backend = "uno" if D.gamma is None and D.criterion != "misclassification" else "ipopt"
    load_package({"uno": "unopy", "ipopt": "ipyopt"}[backend])
    load_package("highspy")
    return backend


def _plan(
    run: Run, starts: list[Choice], form: str, chain: bool, tols: tuple[float, float]
) -> list[tuple[str, Choice, Formulation, float]]:
    """Where homotopies begin, as many as starts: names, choices, programs and first tolerances."""
    D, (first_tol, tol) = run.description, tols
    unit = 1.0 if D.gamma is None else starts[0].C
    first = formulate(D, "lambda" if form == "auto" else form, unit)
    plan = [(f"grid {i}", choice, first, first_tol) for i, choice in enumerate(starts)]
    if not chain:
        return plan
    plan.insert(0, ("slams", linearise(run, starts[:1], tol=tol), first, min(first_tol, max(tol, 1e-2))))
    if form == "auto" and len(starts) > 1 and D.criterion != "misclassification":
        name, choice, _, level = plan[1]
        plan[1] = name, choice, formulate(D, "C", unit_of(choice.C)), level
    return plan[: len(starts)]


def _homotopy(
    run: Run,
    formulation: Formulation,
    choice: Choice,
    name: str,
    tols: tuple[float, float],
    kind: str,
    settings: dict[str, Any],
) -> None:
    """Solves with a falling tolerance (a growing penalty), each from the point and multipliers of the one before."""
    (first, tol), (value, solutions) = tols, run.evaluate(choice)
    x, y, bound_duals = formulation.encode(choice, solutions), None, None
    unit = max(value, 1e-6) * (formulation.unit_at(choice.C) / choice.C)
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
        ended, late = (outcome.status, outcome.detail), run.late() or outcome.status == "time limit"
        end = late or level <= tol
        run.record(formulation, x, name, float(level), ended, outcome.iterations, outcome.elapsed, final=end)
        if run.late() or outcome.status == "time limit":
            return
    run.settle(formulation, x, name, tol, ended)


def _again(
    run: Run, formulation: Formulation, program: NonlinearProgram, failed: Outcome, settings: dict[str, Any]
) -> Outcome:
    """Once more from the exact machines at the hyper-parameters reached: feasible for every tolerance."""
    choice = formulation.decode(failed.x)
    _, solutions = run.evaluate(choice)
    outcome = solve(program, formulation.encode(choice, solutions), None, deadline=run.deadline, **settings)
    return outcome if outcome.status in ("solved", "time limit") else failed


def _piece(
    exact: Formulation, x: np.ndarray, until: float | None, settings: dict[str, Any]
) -> np.ndarray | None:
    """The minimiser of the smooth piece that a point lies on."""
    settled = solve(piece(exact.mpcc, x), x, tol=1e-9, deadline=until, **settings)
    return settled.x if settled.status == "solved" else None


def _check(backend: str, preset: str, form: str, complementarity: str, tol: float, first_tol: float) -> None:
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
