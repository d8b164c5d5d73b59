"""Semiparametric machines to rounding: a fast solver, then an active-set method for the dual's box and equalities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.gram import DenseGram, submatrix
from foldwise.problems.kernel import KernelSolution
from foldwise.problems.semiparametric import BorderedSystem, SemiparametricProblem, Shares, centre, spans
from foldwise.solvers.active_set import BoxedRows, Finished, snapped

__all__ = ["ExactSemiparametric", "finish_with_columns", "nearby"]


def finish_with_columns(
    K: np.ndarray,
    y: np.ndarray,
    tube: Any,
    c: np.ndarray,
    alpha: np.ndarray,
    Q: np.ndarray,
    *,
    snap: float = 1e-7,
    max_rounds: int | None = None,
) -> Finished:
    """The minimum of :class:`~foldwise.solvers.active_set.BoxedRows` with ``Q' alpha = 0``.

    As :func:`foldwise.solvers.active_set.finish`, with any number of columns in place of an intercept. Where the free
    rows do not determine the coefficients of the columns these go to the centre of where they may be; when there is no
    such place, the rows that rule it out are let go. An intercept needs neither: one free row determines it, and its
    interval is never empty.

    Parameters
    ----------
    K, y, tube, c, snap, max_rounds : as there
    alpha : ndarray
        A start within the bounds; it need not satisfy the equalities.
    Q : ndarray, shape (n, r)
        Independent columns of about unit size.
    """
    max_rounds = 500 + 20 * len(y) if max_rounds is None else max_rounds
    state = BoxedRows(K, y, tube, c, snapped(alpha, c, snap))
    q = np.zeros(Q.shape[1])
    before, repeats, restarted = np.full(len(y), np.nan), 0, False
    gap, rounds = np.inf, 0
    while rounds < max_rounds:
        look_at_clock()
        rounds += 1
        tol = state.rounding()
        (low, up), rows, at_bound = state.limits(), np.flatnonzero(state.free), state.at_bound
        # 1. The free rows go to where their decisions are on the kink, or as far as a bound allows.
        if len(rows):
            # For the change of q: targets far larger than the coefficients would leave their rounding in these.
            off = low[rows] - state.f[rows] - Q[rows] @ q
            step, shift = BorderedSystem.build(K, rows, Q).solve(off, -(Q.T @ state.alpha))
            q = q - shift
            if state.go(rows, step):
                continue
        balanced = _balanced(Q, state.alpha)
        if repeats < 2 and len(rows):
            off = np.abs(low[rows] - state.f[rows] - Q[rows] @ q).max()
            if off > tol or not balanced:
                repeats += 1
                continue
        if not balanced and not restarted:
            # Rows that could restore the equalities are all on their bounds; zero satisfies them.
            state.place(np.zeros(len(y)))
            q, restarted, repeats = np.zeros(Q.shape[1]), True, 0
            continue
        held = None if spans(Q[rows]) else centre(Q, state.f, low, up, state.free, at_bound)
        q = q if held is None else held.q
        # 2. Held rows whose decisions are on the wrong side are let go.
        repeats = 0
        z = state.f + Q @ q
        wrong = np.maximum(low - z, z - up)
        gap = float(wrong.max(initial=0.0))
        loose = ~state.free & (wrong > max(tol, 0.1 * gap))
        if not loose.any():
            break
        together = (
            np.zeros(len(y), dtype=bool) if held is None else loose & np.isin(np.arange(len(y)), held.limits)
        )
        if together.any():
            # Just those that rule a centre out: they can move together without breaking the equalities.
            loose = together
        elif held is not None or np.array_equal(state.alpha, before):
            # The rows let go last time came back without a step: one at a time.
            loose = np.arange(len(y)) == int(np.argmax(np.where(state.free, -np.inf, wrong)))
        before = state.alpha.copy()
        state.let_go(loose, low > z)
    return Finished(state.alpha, q, gap, rounds)


def _balanced(Q: np.ndarray, alpha: np.ndarray) -> bool:
    """Whether ``Q' alpha = 0`` to rounding."""
    return bool(np.all(np.abs(Q.T @ alpha) <= 1e-10 * (np.abs(Q).T @ np.abs(alpha))))


def nearby(
    K: np.ndarray, y: np.ndarray, tube: Any, c: np.ndarray, Q: np.ndarray, tol: float = 1e-3
) -> np.ndarray:
    """``alpha`` from the fast solver at ``tol``, in units of the targets' deviation: a start for
    :func:`finish_with_columns`.

    Where the fast solver creeps it is left early, since what follows does not depend on it. Where its free rows are too
    few to restore the equalities it goes on to a finer tolerance.
    """
    from foldwise.kernels import Precomputed
    from foldwise.solvers.semiparametric import columns_of, solve

    source, unit = columns_of(Precomputed(), K), max(float(np.std(y)), np.finfo(float).tiny)
    alpha = solve(source, Q, y, c, tube, tol=tol * unit, max_iter=3).delta
    inside = (alpha != 0) & (np.abs(alpha) < c)
    if not _balanced(Q, alpha) and not spans(Q[inside]):
        alpha = solve(source, Q, y, c, tube, tol=1e-3 * tol * unit, max_iter=3).delta
    return alpha


@dataclass(frozen=True)
class ExactSemiparametric:
    """Every task of a semiparametric problem, exact to rounding.

    A task begins where the last solution is predicted to have moved, or with the fast solver at ``tol``.

    Parameters
    ----------
    tol : float
        The fast solver's tolerance, in units of the targets' standard deviation; it does not change the result.
    patience : int
        Rounds that a prediction is given before the fast solver takes over.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"columns"})

    tol: float = 1e-3
    patience: int = 25

    def solve(
        self, problem: SemiparametricProblem, theta: np.ndarray, state: Shares, workspace: DenseGram
    ) -> KernelSolution:
        """Solve every task at ``theta``, from the shares of a former solution, or from a prediction."""
        par = problem.parameters(theta)
        gram, c, tube = workspace.at(par.log_kernel[0]), problem.strength(par), problem.by_row(par.epsilon)
        K = gram.K
        M, n = problem.n_tasks, problem.n_rows
        alpha, q = np.zeros((M, n)), np.zeros((M, problem.n_free))
        converged, rounds = np.ones(M, dtype=bool), 0
        for m in range(M):
            rows = np.flatnonzero(c[m] > 0)
            Q, y = problem.columns[problem.split[m]][rows], problem.Y[0][rows]
            width = np.broadcast_to(tube[m if len(tube) > 1 else 0], n)[rows]
            own = submatrix(K, rows)
            start = np.clip(state.share[m, rows], -1.0, 1.0) * c[m, rows]
            done = None
            if start.any():
                done = finish_with_columns(own, y, width, c[m, rows], start, Q, max_rounds=self.patience)
            if done is None or done.rounds == self.patience:
                # Nothing to start from, or too far away: the fast solver changes many rows at a time.
                start = nearby(own, y, width, c[m, rows], Q, self.tol)
                done = finish_with_columns(own, y, width, c[m, rows], start, Q)
            alpha[m, rows], q[m, : Q.shape[1]] = done.alpha, done.b
            scale = max(float(np.std(y)), 1e-3 * float(np.abs(y).max()))
            converged[m] = done.gap <= 1e-6 * scale
            rounds += done.rounds
        return problem.solution(theta, par, alpha, q, gram, converged, rounds)
