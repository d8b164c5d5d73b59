"""Semiparametric machines to rounding: a fast solver, then an active-set method for the dual's box and equalities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.deadline import look_at_clock
from foldwise.problems.dual import EDGE, decision_limits
from foldwise.problems.gram import submatrix
from foldwise.problems.kernel import KernelPoint
from foldwise.problems.semiparametric import BorderedSystem, SemiparametricProblem, centre, spans
from foldwise.solvers.active_set import reach, rounding

__all__ = ["ExactSemiparametric", "Finished", "finish", "nearby"]


@dataclass(frozen=True, eq=False)
class Finished:
    """Coefficients of rows and columns, and the largest violation of optimality that is left."""

    alpha: np.ndarray
    q: np.ndarray
    gap: float
    rounds: int


def finish(
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
    """Minimise ``1/2 alpha'K alpha - alpha'y + tube |alpha|_1`` with ``|alpha_j| <= c_j`` and ``Q' alpha = 0``.

    As :func:`foldwise.solvers.active_set.finish`, with any number of columns in place of an intercept: each round
    solves for the free rows and the columns' coefficients and goes there, or as far as the first bound; when no bound
    is in the way, rows on the wrong side of their kink are let go. Where the free rows do not determine the
    coefficients these go to the centre of where they may be; when there is no such place, the rows that rule it out are
    let go.

    Parameters
    ----------
    K : ndarray, shape (n, n)
    y, c : ndarray, shape (n,)
        Targets and positive bounds.
    tube : float or ndarray
    alpha : ndarray
        A start within the bounds; it need not satisfy the equalities.
    Q : ndarray, shape (n, r)
        Independent columns of about unit size.
    snap : float
        Coefficients this near to a bound, in units of ``c``, begin on it.
    max_rounds : int, optional
        500 and twenty for every row by default.
    """
    max_rounds = 500 + 20 * len(y) if max_rounds is None else max_rounds
    alpha = _snapped(alpha, c, snap)
    side = np.sign(alpha)
    free = (alpha != 0) & (np.abs(alpha) < c)
    q = np.zeros(Q.shape[1])
    f = alpha @ K
    settled = np.zeros(len(y), dtype=bool)
    before, repeats, restarted = np.full(len(y), np.nan), 0, False
    gap, rounds = np.inf, 0
    while rounds < max_rounds:
        look_at_clock()
        rounds += 1
        tol = rounding(K, y, alpha)
        at_bound = ~free & (alpha != 0)
        low, up = decision_limits(y, tube, side, free, at_bound)
        rows = np.flatnonzero(free)
        # 1. The free rows go to where their decisions are on the kink, or as far as a bound allows.
        if len(rows):
            system = BorderedSystem.build(K, rows, Q)
            step, shift = system.solve(low[rows] - f[rows], -(Q.T @ alpha))
            q = -shift
            a, push = side[rows] * alpha[rows], side[rows] * step
            t, hit = reach(a, push, c[rows])
            new = np.where(hit, np.where(push > 0, c[rows], 0.0), a + t * push)
            alpha[rows] = side[rows] * new
            free[rows[hit]] = False
            f = alpha @ K
            if hit.any():
                continue
            # A row that ends on its bound to rounding is not free; each is put there once, lest it come and go.
            edge = ((new <= EDGE * c[rows]) | (new >= (1 - EDGE) * c[rows])) & ~settled[rows]
            if edge.any():
                near = rows[edge]
                alpha[near] = side[near] * np.where(new[edge] > 0.5 * c[near], c[near], 0.0)
                free[near], settled[near] = False, True
                f = alpha @ K
                continue
        balanced = _balanced(Q, alpha)
        if repeats < 2 and len(rows):
            off = np.abs(low[rows] - f[rows] - Q[rows] @ q).max()
            if off > tol or not balanced:
                repeats += 1
                continue
        if not balanced and not restarted:
            # Rows that could restore the equalities are all on their bounds; zero satisfies them.
            alpha, side, q = np.zeros(len(y)), np.zeros(len(y)), np.zeros(Q.shape[1])
            free[:], settled[:], f = False, False, np.zeros(len(y))
            restarted, repeats = True, 0
            continue
        held = None if spans(Q[rows]) else centre(Q, f, low, up, free, at_bound)
        q = q if held is None else held.q
        # 2. Held rows whose decisions are on the wrong side are let go.
        repeats = 0
        z = f + Q @ q
        wrong = np.maximum(low - z, z - up)
        gap = float(wrong.max(initial=0.0))
        loose = ~free & (wrong > max(tol, 0.1 * gap))
        if not loose.any():
            break
        together = (
            np.zeros(len(y), dtype=bool) if held is None else loose & np.isin(np.arange(len(y)), held.limits)
        )
        if together.any():
            # Just those that rule a centre out: they can move together without breaking the equalities.
            loose = together
        elif held is not None or np.array_equal(alpha, before):
            # The rows let go last time came back without a step: one at a time.
            loose = np.arange(len(y)) == int(np.argmax(np.where(free, -np.inf, wrong)))
        before = alpha.copy()
        side = np.where(loose & (alpha == 0), np.where(low > z, 1.0, -1.0), side)
        free |= loose
    return Finished(alpha, q, gap, rounds)


def _snapped(alpha: np.ndarray, c: np.ndarray, snap: float) -> np.ndarray:
    """Coefficients next to a bound put on it."""
    size = np.abs(alpha)
    return np.where(size >= (1 - snap) * c, np.sign(alpha) * c, np.where(size <= snap * c, 0.0, alpha))


def _balanced(Q: np.ndarray, alpha: np.ndarray) -> bool:
    """Whether ``Q' alpha = 0`` to rounding."""
    return bool(np.all(np.abs(Q.T @ alpha) <= 1e-10 * (np.abs(Q).T @ np.abs(alpha))))


def nearby(
    K: np.ndarray, y: np.ndarray, tube: Any, c: np.ndarray, Q: np.ndarray, tol: float = 1e-3
) -> np.ndarray:
    """``alpha`` from the fast solver at ``tol``, in units of the targets' deviation: a start for :func:`finish`.

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

    tol: float = 1e-3
    patience: int = 25

    def solve(self, problem: SemiparametricProblem, theta: np.ndarray, W: np.ndarray) -> KernelPoint:
        """Solve every task at ``theta``; ``W`` is a former point's, or a prediction."""
        par = problem.parameters(theta)
        K, c, tube = problem.gram(theta, par).K, problem.strength(par), problem.by_row(par.epsilon)
        M, n = problem.n_tasks, problem.n_rows
        alpha, q = np.zeros((M, n)), np.zeros((M, problem.n_free))
        converged, rounds = np.ones(M, dtype=bool), 0
        for m in range(M):
            rows = np.flatnonzero(c[m] > 0)
            Q, y = problem.columns[problem.split[m]][rows], problem.Y[0][rows]
            width = np.broadcast_to(tube[m if len(tube) > 1 else 0], n)[rows]
            own = submatrix(K, rows)
            start = np.clip(W[m, n + problem.n_free :][rows], -1.0, 1.0) * c[m, rows]
            done = None
            if start.any():
                done = finish(own, y, width, c[m, rows], start, Q, max_rounds=self.patience)
            if done is None or done.rounds == self.patience:
                # Nothing to start from, or too far away: the fast solver changes many rows at a time.
                start = nearby(own, y, width, c[m, rows], Q, self.tol)
                done = finish(own, y, width, c[m, rows], start, Q)
            alpha[m, rows], q[m, : Q.shape[1]] = done.alpha, done.q
            scale = max(float(np.std(y)), 1e-3 * float(np.abs(y).max()))
            converged[m] = done.gap <= 1e-6 * scale
            rounds += done.rounds
        return problem.point(theta, par, alpha, q, converged, rounds)
