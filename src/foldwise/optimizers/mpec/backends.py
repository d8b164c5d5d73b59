"""Solvers of nonlinear programs behind one call: Uno's filter methods and IPOPT.

A back-end never raises on its own account: a failure inside it becomes a status, and the best iterate it had reached is
returned. A package that is missing is an error that says what to install.
"""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.optimizers.mpec.nlp import NonlinearProgram
from foldwise.optimizers.mpec.packages import load_package
from foldwise.optimizers.mpec.quiet import held_interrupt, quiet

__all__ = ["BACKENDS", "PRESETS", "Duals", "IterateWatch", "Outcome", "solve"]

Duals = tuple[np.ndarray, np.ndarray]
"""Multipliers of the lower and of the upper bounds."""

PRESETS = ("filtersqp", "filterslp")
FEASIBLE = 1e-6
"""Violation up to which an iterate of a solver that stopped short counts as feasible."""


@dataclass(eq=False)
class Outcome:
    """What a back-end returns.

    ``status`` is one of "solved" (a first-order point), "feasible" (feasible, no further progress), "infeasible",
    "iteration limit", "time limit", "failed"; ``detail`` is the solver's own word. ``y`` are multipliers
    of the rows, with ``f + y'c`` as Lagrangian.
    """

    x: np.ndarray
    y: np.ndarray
    status: str
    detail: str
    iterations: int
    elapsed: float
    bound_duals: Duals | None = None


def solve(
    program: NonlinearProgram,
    x: np.ndarray,
    y: np.ndarray | None = None,
    *,
    backend: str = "uno",
    preset: str = "filterslp",
    tol: float = 1e-7,
    max_iter: int = 500,
    deadline: float | None = None,
    bound_duals: Duals | None = None,
) -> Outcome:
    """Solve from ``x``, with multipliers ``y`` of a former solve as warm start.

    Parameters
    ----------
    program : NonlinearProgram
    backend : {"uno", "ipopt"}
    preset : {"filtersqp", "filterslp"}
        Of Uno.
    tol : float
        Of feasibility and stationarity.
    deadline : float, optional
        ``time.perf_counter()`` value at which the solver is stopped.
    """
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; use one of: {', '.join(BACKENDS)}")
    return BACKENDS[backend](Call(program, x, y, preset, tol, int(max_iter), deadline, bound_duals))


@dataclass(frozen=True, eq=False)
class Call:
    """What a back-end is asked, as in :func:`solve`."""

    program: NonlinearProgram
    x: np.ndarray
    y: np.ndarray | None
    preset: str
    tol: float
    max_iter: int
    deadline: float | None
    bound_duals: Duals | None


class IterateWatch:
    """Follows the iterates: remembers the best one, sees the deadline, keeps an exception for afterwards."""

    def __init__(self, program: NonlinearProgram, x: np.ndarray, deadline: float | None) -> None:
        self.program, self.deadline = program, deadline
        self.began = time.perf_counter()
        self.late = False
        self.error: BaseException | None = None
        self.best, self._merit = x.copy(), self.merit(x)

    def merit(self, x: np.ndarray) -> tuple[float, float]:
        """Feasible points by objective, the others by their violation."""
        if not np.all(np.isfinite(x)):
            return (np.inf, np.inf)
        violation = self.program.infeasibility(x)
        return (max(violation - FEASIBLE, 0.0), self.program.objective(x))

    def see(self, x: np.ndarray) -> bool:
        """Note an iterate; True when it is time to stop."""
        x = np.array(x, float)[: self.program.n]
        merit = self.merit(x)
        if merit < self._merit:
            self.best, self._merit = x, merit
        self.late = self.late or (self.deadline is not None and time.perf_counter() > self.deadline)
        return self.late or self.error is not None

    def guard(self, function: Callable[..., Any], otherwise: Any = None) -> Callable[..., Any]:
        """The callback with its exceptions kept: none may travel through the solver's own code."""

        def call(*args: Any) -> Any:
            try:
                return function(*args)
            except BaseException as error:
                self.error = error
                return otherwise

        return call

    def fill(self, function: Callable[..., Any], back: bool) -> Callable[..., Any]:
        """The callback that writes into its last argument, which some solvers want back."""

        def call(*args: Any) -> Any:
            args[-1][()] = function(*args[:-1])
            return args[-1] if back else None

        return self.guard(call)

    def left(self) -> float | None:
        """Seconds until the deadline."""
        return None if self.deadline is None else max(self.deadline - time.perf_counter(), 1e-3)

    def outcome(
        self,
        x: np.ndarray | None,
        y: np.ndarray | None,
        status: str,
        detail: str,
        iterations: int,
        bound_duals: Duals | None = None,
    ) -> Outcome:
        """The result; when the solver stopped short, the best iterate."""
        program = self.program
        if self.error is not None:
            if not isinstance(self.error, Exception):  # Ctrl-C and the like pass on
                raise self.error
            status, detail = "failed", f"{type(self.error).__name__}: {self.error}"
        elif self.late and status != "solved":
            status = "time limit"
        if x is None or not np.all(np.isfinite(x)):
            x = self.best
        elif status != "solved":
            x = min(np.asarray(x, float)[: program.n], self.best, key=self.merit)
        if y is None or len(y) != program.m or not np.all(np.isfinite(y)):
            y = np.zeros(program.m)
        elapsed = time.perf_counter() - self.began
        return Outcome(np.array(x), np.array(y, float), status, detail, iterations, elapsed, bound_duals)

    def failed(self, error: Exception) -> Outcome:
        """The result when the solver itself raised an error."""
        return self.outcome(None, None, "failed", f"{type(error).__name__}: {error}", 0)


UNO_STATUS = {
    "FEASIBLE_KKT_POINT": "solved",
    "FEASIBLE_FJ_POINT": "solved",
    "TIME_LIMIT": "time limit",
    "ITERATION_LIMIT": "iteration limit",
    "FEASIBLE_SMALL_STEP": "feasible",
    "INFEASIBLE_STATIONARY_POINT": "infeasible",
    "INFEASIBLE_SMALL_STEP": "infeasible",
}
"""Uno's words for a solution and for the end of its iteration, the earlier ones first."""


def _uno(call: Call) -> Outcome:
    unopy = load_package("unopy")
    if call.preset not in PRESETS:
        raise ValueError(f"unknown preset {call.preset!r} of Uno; use one of: {', '.join(PRESETS)}")
    watch = IterateWatch(call.program, call.x, call.deadline)
    try:
        model = _uno_model(unopy, call.program, watch)
        model.set_initial_primal_iterate(call.x)
        if call.y is not None:
            model.set_initial_dual_iterate(call.y)
        solver = unopy.UnoSolver()
        solver.set_preset(call.preset)
        solver.set_logger_stream(io.StringIO())
        options: dict[str, Any] = {
            "logger": "SILENT",
            "print_solution": False,
            "max_iterations": call.max_iter,
        }
        options |= {"primal_tolerance": call.tol, "dual_tolerance": call.tol}
        if call.deadline is not None:
            options["time_limit"] = watch.left()
        for name, value in options.items():
            solver.set_option(name, value)
        stop = watch.guard(lambda point, *_: watch.see(point))
        with held_interrupt() as noted, quiet():
            solver.set_termination_callback(
                lambda *args: bool(noted) or bool(stop(*args)) or watch.error is not None
            )
            result = solver.optimize(model)
            # While it runs, Uno takes Ctrl-C for itself and then says so: give it back to whom it was meant for.
            if str(result.optimization_status).endswith("USER_INTERRUPTION"):
                signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return watch.failed(error)
    how, quality = (str(s).split(".")[-1] for s in (result.optimization_status, result.solution_status))
    status = next((UNO_STATUS[word] for word in UNO_STATUS if word in (how, quality)), "failed")
    point, rows = np.array(result.primal_solution), np.array(result.constraint_dual_solution)
    return watch.outcome(point, rows, status, f"{how}, {quality}", int(result.number_iterations))


def _uno_model(unopy: Any, program: NonlinearProgram, watch: IterateWatch) -> Any:
    """The program as Uno takes it."""
    model = unopy.Model(
        unopy.PROBLEM_NONLINEAR, program.n, program.lower, program.upper, unopy.ZERO_BASED_INDEXING
    )
    objective = watch.guard(program.objective, otherwise=np.nan)
    model.set_objective(unopy.MINIMIZE, objective, watch.fill(program.gradient, back=False))
    model.set_constraints(
        program.m,
        watch.fill(program.constraints, back=False),
        program.row_lower,
        program.row_upper,
        len(program.jacobian_rows),
        program.jacobian_rows,
        program.jacobian_columns,
        watch.fill(program.jacobian, back=False),
    )
    model.set_lagrangian_sign_convention(unopy.MULTIPLIER_POSITIVE)
    model.set_lagrangian_hessian(
        len(program.hessian_rows),
        unopy.LOWER_TRIANGLE,
        program.hessian_rows,
        program.hessian_columns,
        watch.fill(lambda p, sigma, y: program.hessian(p, sigma, np.asarray(y)), back=False),
    )
    return model


IPOPT_STATUS = {
    0: ("solved", "Solve_Succeeded"),
    1: ("solved", "Solved_To_Acceptable_Level"),
    2: ("infeasible", "Infeasible_Problem_Detected"),
    3: ("feasible", "Search_Direction_Becomes_Too_Small"),
    4: ("failed", "Diverging_Iterates"),
    5: ("time limit", "User_Requested_Stop"),
    6: ("feasible", "Feasible_Point_Found"),
    -1: ("iteration limit", "Maximum_Iterations_Exceeded"),
    -2: ("failed", "Restoration_Failed"),
    -3: ("failed", "Error_In_Step_Computation"),
    -4: ("time limit", "Maximum_CpuTime_Exceeded"),
    -5: ("time limit", "Maximum_WallTime_Exceeded"),
}


FAR = 1e19
"""IPOPT's infinity."""


def _ipopt(call: Call) -> Outcome:
    ipyopt = load_package("ipyopt")
    program, watch = call.program, IterateWatch(call.program, call.x, call.deadline)
    latest, counted = call.x.copy(), [0]
    noted: list[int] = []

    def gradient(point: np.ndarray) -> np.ndarray:
        latest[:] = point
        return program.gradient(point)

    def progress(*args: Any) -> bool:
        counted[0] = int(args[1])
        return not (watch.see(latest) or noted)

    try:
        nlp = ipyopt.Problem(
            program.n,
            *(np.clip(side, -FAR, FAR) for side in (program.lower, program.upper)),
            program.m,
            *(np.clip(side, -FAR, FAR) for side in (program.row_lower, program.row_upper)),
            (program.jacobian_rows, program.jacobian_columns),
            (program.hessian_rows, program.hessian_columns),
            watch.guard(program.objective, otherwise=np.nan),
            watch.fill(gradient, back=True),
            watch.fill(program.constraints, back=True),
            watch.fill(program.jacobian, back=True),
            watch.fill(lambda p, y, sigma: program.hessian(p, sigma, y), back=True),
            watch.guard(progress),
            ipopt_options=_ipopt_options(call),
        )
        rows = np.zeros(program.m) if call.y is None else np.array(call.y, float)
        zero = np.zeros(program.n)
        low, up = (np.array(part, float) for part in (call.bound_duals or (zero, zero)))
        with held_interrupt() as noted:
            point, _, code = nlp.solve(np.array(call.x, float), mult_g=rows, mult_x_L=low, mult_x_U=up)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return watch.failed(error)
    status, detail = IPOPT_STATUS.get(int(code), ("failed", f"code {int(code)}"))
    return watch.outcome(point, rows, status, detail, counted[0], (low, up))


def _ipopt_options(call: Call) -> dict[str, Any]:
    options: dict[str, Any] = {
        "print_level": 0,
        "sb": "yes",
        "tol": call.tol,
        "max_iter": call.max_iter,
        "bound_relax_factor": 0.0,
        "mu_strategy": "adaptive",
    }
    if call.y is not None:  # a warm start
        options |= {
            "warm_start_init_point": "yes",
            "warm_start_bound_push": 1e-6,
            "warm_start_slack_bound_push": 1e-6,
            "warm_start_mult_bound_push": 1e-6,
            "mu_init": 1e-4,
        }
    return options


BACKENDS = {"uno": _uno, "ipopt": _ipopt}
