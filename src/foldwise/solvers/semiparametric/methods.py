"""One entry point for all solvers of semiparametric support vector regression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from foldwise.linalg import LowRank, pivoted_cholesky
from foldwise.result import Status
from foldwise.solvers.semiparametric.active_set import active_set
from foldwise.solvers.semiparametric.columns import ColumnCache, Columns
from foldwise.solvers.semiparametric.decomposition import DualPoint, Limits, Progress, decompose
from foldwise.solvers.semiparametric.dual import Basis, Dual, violations
from foldwise.solvers.semiparametric.first_order import first_order
from foldwise.solvers.semiparametric.interior_point import interior_point
from foldwise.solvers.semiparametric.subproblem import Subproblem

__all__ = ["SOLVERS", "SemiparametricSolution", "solve"]

SOLVERS = ("auto", "interior_point", "active_set", "pdsg", "mpd", "pdsg_alone", "mpd_alone")
"""Names that :func:`solve` takes; those ending in ``_alone`` do without the decomposition framework."""

INNER_STEPS = 20_000
"""Steps that a first-order method may spend on one working set."""

ALONE = 4.0
"""Gigabytes of kernel matrix that a solver without the framework may hold."""

RANK = 400
"""Largest rank of a kernel's factor for which ``auto`` relies on the interior point method alone."""

COARSE = 100
"""Rank of the factor that starts ``auto`` otherwise."""

FRESH = 300
"""Rows that may enter a working set of ``auto``; more than the paper's 100, because the start is good already."""

SHARE = 0.1
"""Part of the largest violation that ``auto`` lets a working set keep: others will disturb it anyway."""

FINE = 1e-3
"""Tolerance below which first-order methods are left for exact solves."""


@dataclass(eq=False)
class SemiparametricSolution:
    """What a solver found, and how good it is.

    Attributes
    ----------
    delta : ndarray, shape (n,)
        Coefficients ``alpha - alpha*`` of the kernel part; exactly 0 or at their bounds where they are held.
    beta : ndarray, shape (K,)
        Coefficients of the basis; the shortest in units of the columns' sizes when the basis is dependent.
    f : ndarray, shape (n,)
        Kernel part of the decisions on the training rows.
    kkt : float
        Largest violation of the optimality conditions of the problem as given, not of an approximation.
    dual, primal : float
        Its two parts: of (4a) to (4c) in units of ``y``, and of the equalities, for basis functions scaled to largest
        value one and in units of ``min(1, max C)``.
    objective, dual_objective : float
        Training objective at the solution, and the dual one, which is below it where the equalities hold.
    status, message : how the solver ended
    n_iter : int
        Steps of the outer loop, or of the solver that ran alone.
    solver : str
        Which method gave the solution.
    rank : int
        Independent columns of the basis.
    low_rank : int or None
        Rank of the kernel's factor, where one was used.
    trace : list of Progress
    """

    delta: np.ndarray
    beta: np.ndarray
    f: np.ndarray
    kkt: float
    dual: float
    primal: float
    objective: float
    dual_objective: float
    status: Status
    message: str
    n_iter: int
    solver: str
    rank: int
    low_rank: int | None = None
    trace: list[Progress] = field(default_factory=list)


def solve(
    source: Columns,
    Psi: np.ndarray,
    y: np.ndarray,
    C: Any,
    epsilon: Any,
    *,
    solver: str = "auto",
    tol: float = 1e-3,
    cache_size: float = 200.0,
    max_iter: int | None = None,
    max_time: float | None = None,
    warm: tuple[np.ndarray, np.ndarray] | None = None,
    callback: Callable[[Progress], object] | None = None,
    trace: bool = False,
    options: Mapping[str, Any] | None = None,
) -> SemiparametricSolution:
    r"""Fit ``h(x) = sum_i delta_i k(x_i, x) + sum_k beta_k psi_k(x)`` with the epsilon-insensitive loss.

    .. math:: \min_{\delta, \beta}\ \tfrac12 \delta'K\delta
              + \sum_i C_i \max(0, |y_i - (K\delta + \Psi\beta)_i| - \epsilon_i)

    Parameters
    ----------
    source : Columns
        The kernel matrix of the training rows, from :func:`columns_of`.
    Psi : ndarray, shape (n, K)
        Values of the basis functions; no column is penalised.
    y : ndarray, shape (n,)
    C, epsilon : float or ndarray, shape (n,)
        Not negative; a row with ``C = 0`` does not train.
    solver : str, default="auto"
        ``"interior_point"`` works on a low-rank factor of the kernel matrix and is followed by ``"active_set"`` where
        the factor is too coarse. ``"active_set"``, ``"pdsg"`` and ``"mpd"`` solve working sets inside the
        decomposition framework, ``"pdsg_alone"`` and ``"mpd_alone"`` all rows at once, with the whole kernel matrix
        in memory. ``"auto"`` chooses by the rank that the factor needs.
    tol : float, default=1e-3
        Largest violation of the optimality conditions that is accepted.
    cache_size : float, default=200
        Megabytes for columns of the kernel matrix.
    max_iter : int, optional
        Outer steps (10,000 by default), or steps of a solver that runs alone (10 million).
    max_time : float, optional
        Seconds.
    warm : tuple of (delta, beta), optional
        The solution of a similar problem, to start from.
    callback : callable, optional
        Gets a :class:`Progress` after every step, or every some hundred steps of a solver that runs alone; returning
        True stops the solver.
    trace : bool, default=False
        Whether to keep these records.
    options : dict, optional
        ``size`` and ``fresh``: rows of a working set and how many may be new (500 and 100); ``chunk``: steps between
        two records of a solver that runs alone (2,000).

    Examples
    --------
    >>> import numpy as np
    >>> from foldwise.kernels import RBF
    >>> from foldwise.solvers.semiparametric import columns_of, solve
    >>> t = np.linspace(0.0, 10.0, 50)
    >>> y = 2.0 * np.sin(t) + np.cos(t)
    >>> solution = solve(columns_of(RBF(0.25), t[:, None]), np.sin(t)[:, None], y, C=1.0, epsilon=0.05)
    >>> solution.status.value, solution.kkt <= 1e-3, solution.beta.round(2).tolist()
    ('converged', True, [2.0])
    """
    run = _Run(source, Psi, y, C, epsilon, solver, tol, cache_size, max_iter, options)
    watch = Limits(max_time, callback, trace)
    return run.solve(warm, watch)


class _Run:
    """One call of :func:`solve`: the checked problem and the choice of methods."""

    def __init__(
        self,
        source: Columns,
        Psi: np.ndarray,
        y: np.ndarray,
        C: Any,
        epsilon: Any,
        solver: str,
        tol: float,
        cache_size: float,
        max_iter: int | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        if solver not in SOLVERS:
            raise ValueError(f"solver {solver!r} is not known; choose one of {', '.join(SOLVERS)}")
        if not tol > 0:
            raise ValueError(f"tol must be positive; got {tol!r}")
        if not cache_size > 0:
            raise ValueError(f"cache_size must be a positive number of megabytes; got {cache_size!r}")
        y = np.ascontiguousarray(y, dtype=float)
        n = len(y)
        Psi = np.asarray(Psi, float)
        if Psi.ndim != 2 or len(Psi) != n or source.n != n:
            raise ValueError(
                f"y has {n} rows, Psi shape {Psi.shape} and the kernel {source.n} rows; they must have the same number"
            )
        C, epsilon = (np.broadcast_to(np.asarray(v, float), n).copy() for v in (C, epsilon))
        for name, values in (("C", C), ("epsilon", epsilon), ("y", y), ("Psi", Psi)):
            if not np.all(np.isfinite(values)):
                raise ValueError(f"{name} has values that are not finite; remove these rows")
            if name in ("C", "epsilon") and np.any(values < 0):
                raise ValueError(f"{name} must not be negative; the lowest is {values.min():.3g}")
        self.dual = Dual(source, Basis.of(Psi), y, C, epsilon)
        self.solver, self.tol, self.cache_size, self.max_iter = solver, tol, cache_size, max_iter
        self.options = dict(options or {})
        unknown = set(self.options) - {"size", "fresh", "chunk"}
        if unknown:
            raise ValueError(f"options {sorted(unknown)} are not known; there are size, fresh and chunk")
        self.low_rank: int | None = None

    def solve(self, warm: Any, watch: Limits) -> SemiparametricSolution:
        dual = self.dual
        point = self._start(warm)
        if self.solver.endswith("_alone"):
            name = self.solver.removesuffix("_alone")
            status, steps = self._alone(name, point, watch)
        elif self.solver in ("active_set", "pdsg", "mpd"):
            name = self.solver
            status, steps = self._framework(name, point, watch, self.tol)
        else:
            name, status, steps = self._fast(point, watch, warm is not None)
        wrong, primal = point.violation(dual)
        top = float(wrong.max(initial=0.0)) + self.left_out
        value, bound = dual.values(point.delta, point.f, point.eta)
        kkt = max(top, primal)
        return SemiparametricSolution(
            delta=point.delta,
            beta=dual.basis.beta(point.eta),
            f=point.f,
            kkt=kkt,
            dual=top,
            primal=primal,
            objective=value,
            dual_objective=bound,
            status=status,
            message=_message(status, name, kkt, self.tol, self.solver),
            n_iter=steps,
            solver=name,
            rank=dual.basis.rank,
            low_rank=self.low_rank,
            trace=watch.trace,
        )

    left_out = 0.0
    """Bound on what the factor leaves out of the decisions, while they come from it."""

    def _start(self, warm: Any) -> DualPoint:
        """Zero with the basis fitted to ``y``, or the given point within the bounds."""
        dual = self.dual
        n, Q = dual.source.n, dual.basis.Q
        if warm is None:
            return DualPoint(np.zeros(n), Q @ dual.y / max(n, 1), np.zeros(n))
        delta, beta = (np.asarray(part, float) for part in warm)
        if delta.shape != (n,) or beta.shape != (dual.basis.Psi.shape[1],):
            raise ValueError(
                f"warm has shapes {delta.shape} and {beta.shape}; this problem needs ({n},) and "
                f"({dual.basis.Psi.shape[1]},)"
            )
        delta = np.clip(delta, -dual.C, dual.C)
        return DualPoint(delta, dual.basis.eta(beta), dual.source.product(delta))

    def _framework(
        self, name: str, point: DualPoint, watch: Limits, tol: float, single: bool = False
    ) -> tuple[Status, int]:
        """Algorithm 1 with one of the subproblem solvers."""
        cache = ColumnCache(self.dual.source, self.cache_size, single)
        options = {key: self.options[key] for key in ("size", "fresh") if key in self.options}
        exact = name == "active_set"
        if self.solver == "auto" and not exact:
            options.setdefault("fresh", FRESH)
        subsolver = active_set if exact else partial(_inner, name, watch)
        return decompose(
            self.dual,
            point,
            subsolver,
            cache,
            watch,
            tol=tol,
            max_iter=10_000 if self.max_iter is None else self.max_iter,
            grow=exact,
            share=SHARE if single else 0.0,
            **options,
        )

    def _alone(self, name: str, point: DualPoint, watch: Limits) -> tuple[Status, int]:
        """All rows as one subproblem, with the whole kernel matrix."""
        dual = self.dual
        n = dual.source.n
        if 8e-9 * n**2 > ALONE:
            raise ValueError(
                f"solver {self.solver!r} holds the whole kernel matrix: {8e-9 * n**2:.1f} GB for {n} rows, and "
                f"{ALONE:g} GB are allowed; use solver={name!r} or 'auto'"
            )
        Q = dual.basis.Q
        sub = Subproblem(
            K=dual.source.columns(np.arange(n)),
            Q=Q,
            e=dual.y - point.f,
            delta=point.delta,
            C=dual.C,
            epsilon=dual.epsilon,
            total=Q @ point.delta,
            eta=point.eta,
        )
        size = dual.basis.size
        unit = min(1.0, float(dual.C.max(initial=0.0)) or 1.0)

        def pause(step: int, top: float, primal: float) -> bool:
            real = float(np.abs(sub.delta @ dual.basis.Psi / size).max(initial=0.0)) / unit
            watch.note(step, top, real, dual.basis.beta(sub.eta))
            return watch.late()

        limit = 10_000_000 if self.max_iter is None else self.max_iter
        chunk = self.options.get("chunk", 2000)
        steps = first_order(name, sub, self.tol, max_steps=limit, chunk=chunk, pause=pause)
        point.delta, point.eta, point.f = sub.delta, sub.eta, dual.y - sub.e
        wrong, primal = point.violation(dual)
        if max(float(wrong.max(initial=0.0)), primal) <= self.tol:
            return Status.CONVERGED, steps
        return (watch.status if watch.late() else Status.MAX_ITER), steps

    def _fast(self, point: DualPoint, watch: Limits, warm: bool) -> tuple[str, Status, int]:
        """The interior point method on a factor of the kernel matrix; working sets correct what it leaves out."""
        dual = self.dual
        limit = 0.1 * self.tol / max(float(dual.C.sum()), np.finfo(float).tiny)
        whole = partial(pivoted_cholesky, dual.source.diagonal(), dual.source.columns, limit)
        factor, fine = whole(COARSE)
        if not fine and (self.solver == "interior_point" or _promising(factor, limit)):
            most = dual.source.n if self.solver == "interior_point" else RANK
            factor, fine = whole(most, factor)
        steps = 0
        self.low_rank = factor.rank
        if fine or not warm:
            steps = self._interior_point(factor, fine, point, watch)
            if self.left_out + _largest(point, dual) <= self.tol:
                return "interior_point", Status.CONVERGED, steps
            point.f, self.left_out = dual.source.product(point.delta), 0.0
            if _largest(point, dual) <= self.tol:
                return "interior_point", Status.CONVERGED, steps
        name = "active_set" if fine else "pdsg"
        if not fine:
            # In single precision first; the true decisions then say whether that was enough.
            goal = max(self.tol, FINE)
            status, more = self._framework(name, point, watch, 0.98 * goal, single=True)
            steps += more
            point.f = dual.source.product(point.delta)
            if _largest(point, dual) <= self.tol:
                return name, Status.CONVERGED, steps
            if status not in (Status.CONVERGED, Status.STALLED, Status.MAX_ITER):
                return name, status, steps
            name = "active_set"
        status, more = self._framework(name, point, watch, self.tol)
        return name, status, steps + more

    def _interior_point(self, factor: LowRank, fine: bool, point: DualPoint, watch: Limits) -> int:
        """Solve with ``L'L`` in place of the kernel matrix; a coarse factor is given the diagonal it lacks."""
        dual = self.dual
        trains = np.flatnonzero(dual.C > 0)
        if not len(trains):
            return 0
        Q = np.ascontiguousarray(dual.basis.Q[:, trains])
        L = np.ascontiguousarray(factor.L[:, trains])
        spread = None if fine else factor.residual[trains]
        y, C, epsilon = dual.y[trains], dual.C[trains], dual.epsilon[trains]

        def accept(delta: np.ndarray, eta: np.ndarray) -> bool:
            f = (L @ delta) @ L
            if spread is not None:
                f += spread * delta
            wrong = float(violations(delta, y - f - eta @ Q, C, epsilon).max(initial=0.0))
            whole[trains] = delta
            return max(wrong + (factor.error(whole) if fine else 0.0), dual.unbalance(whole)) <= goal

        whole = np.zeros(dual.source.n)
        goal = self.tol if fine else max(self.tol, FINE)
        end = interior_point(L, Q, y, C, epsilon, accept, tol=goal, spread=spread, stop=watch.late)
        point.delta[:] = 0.0
        point.delta[trains] = end.delta
        point.eta = end.eta
        point.f = factor.product(point.delta)
        self.left_out = factor.error(point.delta)
        watch.note(end.steps, _largest(point, dual), dual.unbalance(point.delta), dual.basis.beta(point.eta))
        return end.steps


def _inner(name: str, watch: Limits, sub: Subproblem, tol: float) -> None:
    """A first-order method on a working set."""
    first_order(name, sub, tol, max_steps=INNER_STEPS, pause=lambda *_: watch.late())


def _largest(point: DualPoint, dual: Dual) -> float:
    """The larger of the two violations."""
    wrong, primal = point.violation(dual)
    return max(float(wrong.max(initial=0.0)), primal)


def _promising(factor: LowRank, limit: float) -> bool:
    """Whether the residual falls so fast that ``RANK`` pivots should do."""
    first = float(
        np.einsum("ij,ij->j", factor.L, factor.L).max(initial=0.0) + factor.residual.max(initial=0.0)
    )
    now = float(factor.residual.max(initial=0.0))
    return np.log(first / now) * RANK >= np.log(first / limit) * factor.rank


def _message(status: Status, name: str, kkt: float, tol: float, asked: str) -> str:
    """The ending in words; a solver that stopped short names another."""
    if status is Status.CONVERGED:
        return f"{name} reached a KKT violation of {kkt:.2g} (tol {tol:g})."
    reason = {
        Status.MAX_ITER: "reached max_iter",
        Status.TIME_LIMIT: "reached max_time",
        Status.STALLED: "made no more progress",
        Status.STOPPED: "was stopped by the callback",
    }[status]
    if status is Status.STOPPED:
        return f"{name} {reason} at a KKT violation of {kkt:.2g} (tol {tol:g})."
    others = "solver='auto'" if asked != "auto" else "a larger tol or max_time"
    return f"{name} {reason} at a KKT violation of {kkt:.2g} (tol {tol:g}); use {others}."
