"""Solvers of nonlinear programs behind one call: Uno's filter methods and IPOPT.

A back-end never raises on its own account: a failure inside it becomes a status, and the best iterate it had reached is
returned. A package that is missing is an error that says what to install.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.optimizers.mpec.nlp import QuadraticProgram

__all__ = ["BACKENDS", "PRESETS", "Outcome", "load_package", "solve"]

PRESETS = ("filtersqp", "filterslp")
FEASIBLE = 1e-6
"""Violation up to which an iterate of a solver that stopped short counts as feasible."""

UNBUFFERED = "GFORTRAN_UNBUFFERED_PRECONNECTED"
"""Read once, when Uno is loaded: what its QP solver writes while it runs is then not kept for later."""

INSTALL = {
    "unopy": "pip install 'foldwise[mpec]'  (or: pip install unopy)",
    "ipyopt": "pip install 'foldwise[mpec]'  (or: pip install ipyopt)",
    "highspy": "pip install 'foldwise[mpec]'  (or: pip install highspy)",
}


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
    bound_duals: tuple[np.ndarray, np.ndarray] | None = None


def load_package(name: str) -> Any:
    """Import an optional package, or say what to install."""
    import importlib

    before = os.environ.get(UNBUFFERED)
    os.environ[UNBUFFERED] = "1"
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"method 'mpec' or 'slams' needs the package {name!r}: {INSTALL[name]}") from error
    finally:
        if before is None:
            del os.environ[UNBUFFERED]
        else:
            os.environ[UNBUFFERED] = before


def solve(
    program: Any,
    x: np.ndarray,
    y: np.ndarray | None = None,
    *,
    backend: str = "uno",
    preset: str = "filterslp",
    tol: float = 1e-7,
    max_iter: int = 500,
    deadline: float | None = None,
    bound_duals: tuple[np.ndarray, np.ndarray] | None = None,
) -> Outcome:
    """Solve from ``x``, with multipliers ``y`` of a former solve as warm start.

    Parameters
    ----------
    program : QuadraticProgram, or anything with its members
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
    return BACKENDS[backend](program, x, y, preset, tol, max_iter, deadline, bound_duals)


class Watch:
    """Follows the iterates: remembers the best one, sees the deadline, keeps an exception for afterwards."""

    def __init__(self, program: Any, x: np.ndarray, deadline: float | None) -> None:
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

    def guard(self, function: Callable) -> Callable:
        """The callback with its exceptions kept: none may travel through the solver's own code."""

        def call(*args):
            try:
                return function(*args)
            except BaseException as error:
                self.error = error
                return None

        return call

    def left(self) -> float | None:
        """Seconds until the deadline."""
        return None if self.deadline is None else max(self.deadline - time.perf_counter(), 1e-3)

    def outcome(self, x, y, status: str, detail: str, iterations: int, bound_duals=None) -> Outcome:
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


@contextmanager
def held_interrupt() -> Iterator[list]:
    """Keep Ctrl-C from breaking into a solver's own code: note it, and deliver it when the block is left.

    Gives the list in which it is noted, for a callback to look at. Signals reach the main thread only; elsewhere, and
    where the handler is not Python's, nothing is changed.
    """
    noted: list = []
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None
    if before is None:
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
        if noted:
            signal.raise_signal(signal.SIGINT)


_SILENCE = threading.Lock()
CHATTER = (b"insufficient space", b"workspace", b"bqpd", b"mxws,")
"""Words by which lines of Uno's QP solver about its workspace are known."""


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what Uno's QP solver writes to the process's standard error about its workspace.

    Standard error goes to a temporary file for the while; what others wrote there, such as a second thread, is passed
    on afterwards. It is restored however the block is left. Use it within :func:`held_interrupt`, so that no interrupt
    comes between two of its steps.
    """
    with _SILENCE:
        try:
            sys.stderr.flush()
            kept = os.dup(2)
        except (OSError, ValueError, AttributeError):  # no standard error to protect
            yield
            return
        try:
            with tempfile.TemporaryFile() as sink:
                try:
                    os.dup2(sink.fileno(), 2)
                    yield
                finally:
                    with contextlib.suppress(OSError, ValueError, AttributeError):
                        sys.stderr.flush()
                    os.dup2(kept, 2)
                    sink.seek(0)
                    _pass_on(sink.read(), kept)
        finally:
            os.close(kept)


def _pass_on(text: bytes, target: int) -> None:
    """Write the lines that are not the QP solver's."""
    lines = [line for line in text.splitlines(keepends=True) if not any(w in line.lower() for w in CHATTER)]
    if any(line.strip() for line in lines):
        with contextlib.suppress(OSError):
            os.write(target, b"".join(lines))


def _uno(program: QuadraticProgram, x, y, preset, tol, max_iter, deadline, bound_duals) -> Outcome:
    unopy = load_package("unopy")
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r} of Uno; use one of: {', '.join(PRESETS)}")
    watch = Watch(program, x, deadline)

    def fill(function):
        def call(point, out):
            out[:] = function(point)

        return watch.guard(call)

    def objective(point):
        value = watch.guard(program.objective)(point)
        return np.nan if value is None else value

    def hessian(point, sigma, multipliers, out):
        out[:] = program.hessian(point, sigma, np.asarray(multipliers))

    try:
        model = unopy.Model(
            unopy.PROBLEM_NONLINEAR, program.n, program.lower, program.upper, unopy.ZERO_BASED_INDEXING
        )
        model.set_objective(unopy.MINIMIZE, objective, fill(program.gradient))
        model.set_constraints(
            program.m,
            fill(program.constraints),
            program.row_lower,
            program.row_upper,
            len(program.jacobian_rows),
            program.jacobian_rows,
            program.jacobian_columns,
            fill(program.jacobian),
        )
        model.set_lagrangian_sign_convention(unopy.MULTIPLIER_POSITIVE)
        model.set_lagrangian_hessian(
            len(program.hessian_rows),
            unopy.LOWER_TRIANGLE,
            program.hessian_rows,
            program.hessian_columns,
            watch.guard(hessian),
        )
        model.set_initial_primal_iterate(x)
        if y is not None:
            model.set_initial_dual_iterate(y)
        solver = unopy.UnoSolver()
        solver.set_preset(preset)
        solver.set_logger_stream(io.StringIO())
        for name, value in {
            "logger": "SILENT",
            "print_solution": False,
            "primal_tolerance": tol,
            "dual_tolerance": tol,
            "max_iterations": int(max_iter),
        }.items():
            solver.set_option(name, value)
        if deadline is not None:
            solver.set_option("time_limit", watch.left())
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
        return watch.outcome(None, None, "failed", f"{type(error).__name__}: {error}", 0)
    how, quality = str(result.optimization_status).split(".")[-1], str(result.solution_status).split(".")[-1]
    if quality in ("FEASIBLE_KKT_POINT", "FEASIBLE_FJ_POINT"):
        status = "solved"
    elif how == "TIME_LIMIT":
        status = "time limit"
    elif how == "ITERATION_LIMIT":
        status = "iteration limit"
    elif quality == "FEASIBLE_SMALL_STEP":
        status = "feasible"
    elif quality in ("INFEASIBLE_STATIONARY_POINT", "INFEASIBLE_SMALL_STEP"):
        status = "infeasible"
    else:
        status = "failed"
    return watch.outcome(
        np.array(result.primal_solution),
        np.array(result.constraint_dual_solution),
        status,
        f"{how}, {quality}",
        int(result.number_iterations),
    )


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


def _ipopt(program: QuadraticProgram, x, y, preset, tol, max_iter, deadline, bound_duals) -> Outcome:
    ipyopt = load_package("ipyopt")
    watch = Watch(program, x, deadline)

    def fill(function):
        def call(point, out):
            out[()] = function(point)
            return out

        return watch.guard(call)

    def hessian(point, multipliers, sigma, out):
        out[()] = program.hessian(point, sigma, multipliers)
        return out

    def objective(point):
        value = watch.guard(program.objective)(point)
        return np.nan if value is None else value

    latest = x.copy()

    def gradient(point, out):
        latest[:] = point
        out[()] = program.gradient(point)
        return out

    counted = [0]

    noted: list = []

    def progress(*args) -> bool:
        counted[0] = int(args[1])
        return not (watch.see(latest) or noted)

    far = 1e19  # IPOPT's infinity
    try:
        options: dict[str, Any] = {
            "print_level": 0,
            "sb": "yes",
            "tol": tol,
            "max_iter": int(max_iter),
            "bound_relax_factor": 0.0,
            "mu_strategy": "adaptive",
        }
        if y is not None:
            options |= {
                "warm_start_init_point": "yes",
                "warm_start_bound_push": 1e-6,
                "warm_start_slack_bound_push": 1e-6,
                "warm_start_mult_bound_push": 1e-6,
                "mu_init": 1e-4,
            }
        nlp = ipyopt.Problem(
            program.n,
            np.clip(program.lower, -far, far),
            np.clip(program.upper, -far, far),
            program.m,
            np.clip(program.row_lower, -far, far),
            np.clip(program.row_upper, -far, far),
            (program.jacobian_rows, program.jacobian_columns),
            (program.hessian_rows, program.hessian_columns),
            objective,
            watch.guard(gradient),
            fill(program.constraints),
            fill(program.jacobian),
            watch.guard(hessian),
            watch.guard(progress),
            ipopt_options=options,
        )
        rows = np.zeros(program.m) if y is None else np.array(y, float)
        low, up = (
            (np.zeros(program.n), np.zeros(program.n))
            if bound_duals is None
            else tuple(np.array(part, float) for part in bound_duals)
        )
        with held_interrupt() as noted:
            point, _, code = nlp.solve(np.array(x, float), mult_g=rows, mult_x_L=low, mult_x_U=up)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return watch.outcome(None, None, "failed", f"{type(error).__name__}: {error}", 0)
    status, detail = IPOPT_STATUS.get(int(code), ("failed", f"code {int(code)}"))
    return watch.outcome(point, rows, status, detail, counted[0], (low, up))


BACKENDS = {"uno": _uno, "ipopt": _ipopt}
