"""Exact support vector machines: LIBSVM (through scikit-learn), finished to rounding by an active-set method."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone

from foldwise.deadline import look_at_clock
from foldwise.problems.base import Array
from foldwise.problems.dual import DualProblem, Kinds, coded, interval_ends
from foldwise.problems.gram import DenseGram, submatrix
from foldwise.problems.kernel import KernelSolution
from foldwise.problems.parameters import Canonical
from foldwise.problems.weights import Pins
from foldwise.solvers.active_set import NEAR, Finished, finish, solve_from_kinds

__all__ = ["LibSvm"]

LARGEST = 1e30
"""Kernel values beyond which LIBSVM's single precision may not hold sums of them."""
PATIENCE, PER_ROW = 100_000, 1_000
"""Iterations that scikit-learn's own machine may take to show where it leaves an intercept, at least and per row."""
SNAP = 1e-7
"""Distance from a bound, in units of it, at which a coefficient may be there but for rounding."""


@dataclass(frozen=True)
class LibSvm:
    """LIBSVM on the kernel matrix of each task, then an active-set method from there.

    LIBSVM stops at a KKT violation of ``tol``. The kinds of nearly all rows (outside, free, at the bound) are then
    known; :func:`~foldwise.solvers.active_set.finish` puts the others right and solves for the free rows, so the
    solution is exact to rounding. Without intercept, which LIBSVM cannot leave out, it does the greater part.

    Parameters
    ----------
    tol : float
        LIBSVM's tolerance; a smaller one costs more and does not change the result.
    max_iter : int
        LIBSVM's iterations for every training row. It creeps where ``C`` times the kernel is large; the active-set
        method then does the rest in a bounded time.
    cache_size : float
        LIBSVM's cache in megabytes.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"box"})

    tol: float = 1e-3
    max_iter: int = 100
    cache_size: float = 200.0

    @np.errstate(over="ignore", invalid="ignore")
    def solve(self, problem: DualProblem, theta: Array, state: Kinds, workspace: DenseGram) -> KernelSolution:
        """Solve every task at ``theta``, from the kinds of rows that are expected there, or from nothing."""
        par = problem.parameters(theta)
        gram, c, tubes = workspace.at(par.log_kernel[0]), problem.strength(par), problem.tube(par)
        M, n = problem.n_tasks, problem.n_rows
        alpha, b = np.zeros((M, n)), np.zeros(M)
        converged = np.ones(M, dtype=bool)
        steps = 0
        for m in range(M):
            look_at_clock()
            y = problem.Y[problem.target[m]]
            tube = None if tubes is None else np.broadcast_to(tubes, (M, n))[m]
            done = None
            if state.kinds is not None:
                done = solve_from_kinds(gram, y, tube, c[m], state.kinds[m], state.Z[m], problem.intercept)
            if done is None or not np.isfinite(done.gap):
                rows = np.flatnonzero(c[m] > 0)
                done = self._fit(problem, y[rows], tube, gram.K, c[m], rows)
                alpha[m, rows] = done.alpha
            else:
                alpha[m] = done.alpha
            b[m] = done.b
            steps += done.rounds
            scale = 1.0 if tube is None else max(float(np.std(y)), 1e-3 * float(np.abs(y).max()))
            converged[m] = done.gap <= 1e-6 * scale
        F = gram.product(alpha)
        if problem.intercept:
            self._onto_bounds(problem, gram, par, alpha, F, b)
        pins: Pins = {}
        if problem.original is not None and problem.intercept:
            pins = self._pins(problem, theta, par, alpha, F, b)
        end = Kinds(F + b[:, None], b, coded(alpha, *problem.kinds(alpha, par)))
        return KernelSolution(theta, par, end, end.Z, converged, steps, alpha, b, pins)

    @staticmethod
    def _onto_bounds(
        problem: DualProblem, gram: DenseGram, par: Canonical, alpha: Array, F: Array, b: Array
    ) -> None:
        """Coefficients that are at a bound but for rounding go there where no row is then free; in place.

        A row that only rounding sets free would hold an intercept that is not unique at its own kink. The intercept
        goes to the middle of its interval, as where no row is free from the start.
        """
        free, _ = problem.kinds(alpha, par)
        clear, at_bound = problem.kinds(alpha, par, edge=SNAP)
        for m in np.flatnonzero(free.any(axis=1) & ~clear.any(axis=1)):
            one = alpha.copy()
            one[m] = np.where(at_bound[m], np.sign(alpha[m]) * problem.strength(par)[m], 0.0)
            if abs(one[m].sum()) > 1e-12 * np.abs(one[m]).sum():
                continue  # what is left of a coefficient is not rounding: the others do not balance without it
            f = gram.product(one[m : m + 1])[0]
            low, up = (limit[m] for limit in problem.limits(one, par))
            trains = np.flatnonzero(problem.strength(par)[m] > 0)
            ends = interval_ends(low[trains], up[trains], f[trains])
            if ends is None:
                continue
            lower, upper = (low - f)[trains[ends[0]]], (up - f)[trains[ends[1]]]
            if upper - lower > NEAR * (1.0 + np.abs(problem.Y).max()):
                alpha[m], F[m], b[m] = one[m], f, 0.5 * (lower + upper)

    def _pins(
        self, problem: DualProblem, theta: Array, par: Canonical, alpha: Array, F: Array, b: Array
    ) -> Pins:
        """Rows on whose kinks LIBSVM leaves intercepts that are not unique, by task; ``b`` is put there.

        ``F`` are the decisions without intercept.
        """
        pins: Pins = {}
        free, at_bound = problem.kinds(alpha, par)
        low, up = problem.limits(alpha, par)
        for m in np.flatnonzero(~free.any(axis=1)):
            trains = np.flatnonzero(problem.strength(par)[m] > 0)
            ends = interval_ends(low[m][trains], up[m][trains], F[m][trains])
            if ends is None:
                continue
            first, last = trains[ends[0]], trains[ends[1]]
            lower, upper = low[m][first] - F[m][first], up[m][last] - F[m][last]
            if upper - lower <= NEAR * (1.0 + np.abs(problem.Y).max()):
                continue
            rows, side = self._left_free(problem, theta, int(m))
            if not len(rows):
                continue  # then LIBSVM takes the middle as well
            y, tube = problem.Y[problem.target[m]], problem.tube(par)
            kink = y[rows] if tube is None else y[rows] - side * np.broadcast_to(tube, F.shape)[m][rows]
            where = float(np.mean(kink - F[m][rows]))
            slope = np.zeros(len(rows)) if tube is None else -side
            if not lower < where < upper:  # LIBSVM's tolerance, or the end itself
                end = first if where <= lower else last
                where = float(np.clip(where, lower, upper))
                rows, slope = np.array([end]), np.array([1.0 if at_bound[m][end] == (end == first) else -1.0])
            b[m] = where
            pins[int(m)] = rows, slope
        return pins

    def _left_free(self, problem: DualProblem, theta: Array, m: int) -> tuple[Array, Array]:
        """Rows that LIBSVM takes for free when scikit-learn's machine is fitted to a task, and their sides.

        None where it does not end in time: scikit-learn sets no limit, and with huge kernels it may go on for ever.
        """
        own, t = problem.original, problem.split[m]
        assert own is not None
        rows = own.trains[t]
        by_fold = {
            name: value(own.X[rows]) for name, value in own.by_fold.items()
        }  # of all classes and weights
        machine = clone(own.machine).set_params(**{**by_fold, **problem.parameters.space.params(theta)})
        bound = np.full(len(own.y), float(machine.C))
        if own.pairs:
            pair = own.pairs[problem.target[m]]
            machine.class_weight = None
            if own.class_weight is not None:
                machine.class_weight = {code: own.class_weight[t][code] for code in pair}
                bound *= own.class_weight[t][own.y]
            rows = rows[np.isin(own.y[rows], pair)]
        weight = None
        if own.weight is not None:
            rows = rows[
                own.weight[rows] > 0
            ]  # LIBSVM leaves the others out, and then numbers rows without them
            weight = own.weight[rows]
            bound *= own.weight
        X = own.X[np.ix_(rows, rows)] if machine.kernel == "precomputed" else own.X[rows]
        if not own.pairs:  # its tolerance is in units of the target, and must be below what it varies by
            machine.tol = min(machine.tol, max(1e-3 * float(np.std(own.y)), 1e-300))
        unlimited = machine.max_iter == -1
        if unlimited:
            machine.max_iter = max(PATIENCE, PER_ROW * len(rows))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what scikit-learn has to say it says in the final fit
            machine.fit(X, own.y[rows], sample_weight=weight)
        if unlimited and machine.fit_status_:
            return np.zeros(0, dtype=int), np.zeros(0)
        coef, found = machine.dual_coef_, rows[machine.support_]
        coef = np.asarray(coef.toarray() if sp.issparse(coef) else coef)[0]
        free = np.abs(coef) < bound[found]  # as LIBSVM compares: a row at its bound but for rounding is free
        found, first = np.unique(own.place[found[free]], return_index=True)
        return found, np.sign(coef[free])[first]

    def _fit(
        self, problem: DualProblem, y: Array, tubes: Array | None, K: Array, c: Array, rows: Array
    ) -> Finished:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import SVC, SVR

        own = submatrix(K, rows).astype(float, copy=False)
        options = {"kernel": "precomputed", "C": 1.0, "tol": self.tol, "max_iter": self.max_iter * len(rows)}
        options["cache_size"] = self.cache_size
        tube = None
        if tubes is None:
            machine = SVC(**options)
        else:
            if np.ptp(tubes) > 0:
                raise ValueError(
                    "LIBSVM takes one epsilon for all rows; use a smooth loss (squared_epsilon_insensitive) for tubes "
                    "per group"
                )
            tube = float(tubes[0])
            machine = SVR(epsilon=tube, **options)
        out = np.zeros(len(rows))
        if np.abs(own).max(initial=0.0) > LARGEST:
            return finish(own, y, tube, c[rows], out, 0.0, problem.intercept)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(own, y, sample_weight=c[rows])
        # Labels are -1 and +1, so scikit-learn's decision is positive where ours is.
        out[machine.support_] = machine.dual_coef_[0]
        return finish(own, y, tube, c[rows], out, float(machine.intercept_[0]), problem.intercept)
