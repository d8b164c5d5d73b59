"""Exact support vector machines by LIBSVM (through scikit-learn), finished to rounding on the free rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from foldwise.problems.dual import DualProblem, FreeSystem
from foldwise.problems.gram import submatrix
from foldwise.problems.kernel import KernelPoint

__all__ = ["LibSvm"]


@dataclass(frozen=True)
class LibSvm:
    """LIBSVM on the kernel matrix of each task, then an exact solve for the free rows.

    LIBSVM stops at a KKT violation of ``tol``. The kinds of the rows (outside, free, at the bound) are then known, and
    the free coefficients solve a linear system; the result is kept where it stays within its bounds, so the
    solution is exact to rounding.

    Parameters
    ----------
    tol : float
        LIBSVM's tolerance.
    max_iter : int
        LIBSVM's iteration limit; -1 for none.
    cache_size : float
        LIBSVM's cache in megabytes.
    """

    tol: float = 1e-4
    max_iter: int = -1
    cache_size: float = 200.0

    def solve(self, problem: DualProblem, theta: np.ndarray, W: np.ndarray) -> KernelPoint:
        """Solve every task at ``theta``; LIBSVM has no warm start, so ``W`` is not used."""
        par = problem.parameters(theta)
        K, c = problem.gram(theta, par).K, problem.strength(par)
        M, n = problem.n_tasks, problem.n_rows
        alpha, b = np.zeros((M, n)), np.zeros(M)
        converged = np.ones(M, dtype=bool)
        for m in range(M):
            rows = np.flatnonzero(c[m] > 0)
            alpha[m, rows], b[m], converged[m] = self._fit(problem, par, K, c[m], m, rows)
        alpha, b = polish(problem, par, K, c, alpha, b)
        Z = alpha @ K + b[:, None]
        return KernelPoint(theta, par, np.column_stack([Z, b]), Z, alpha, converged, M)

    def _fit(self, problem: DualProblem, par, K, c, m: int, rows: np.ndarray):
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import SVC, SVR

        y = problem.Y[problem.target[m]][rows]
        options = {"kernel": "precomputed", "C": 1.0, "tol": self.tol, "max_iter": self.max_iter}
        options["cache_size"] = self.cache_size
        if problem.loss.task == "classification":
            machine = SVC(**options)
        else:
            epsilon = problem.by_row(par.epsilon)[m]
            if np.ptp(epsilon) > 0:
                raise ValueError(
                    "LIBSVM takes one epsilon for all rows; use a smooth loss (squared_epsilon_insensitive) for tubes "
                    "per group"
                )
            machine = SVR(epsilon=float(epsilon[0]), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(submatrix(K, rows), y, sample_weight=c[rows])
        out = np.zeros(len(rows))
        sign = 1.0
        if problem.loss.task == "classification":
            # scikit-learn's decision is positive for the larger label, ours for +1: the same here.
            sign = 1.0 if machine.classes_[-1] > 0 else -1.0
        out[machine.support_] = sign * machine.dual_coef_[0]
        return out, sign * float(machine.intercept_[0]), machine.fit_status_ == 0


def polish(problem: DualProblem, par, K, c, alpha, b):
    """Solve for the free rows exactly where that keeps them inside their bounds."""
    size = np.abs(alpha)
    side = np.sign(alpha)
    alpha = np.where(size >= c * (1 - 1e-7), side * c, alpha)
    alpha = np.where(size <= 1e-7 * c, 0.0, alpha)
    free, _ = problem.kinds(alpha, par)
    held = problem.on_kink(alpha, par)
    b = b.copy()
    for m in range(problem.n_tasks):
        rows = np.flatnonzero(free[m])
        if not len(rows):
            continue
        fixed = np.where(free[m], 0.0, alpha[m])
        system = FreeSystem.build(K, rows, None, problem.intercept)
        # K_FF v + K_F,fixed alpha_fixed + b = kink, sum v = -sum alpha_fixed
        r = held[m][rows] - K[rows] @ fixed
        v, shift = system.solve(r, -float(fixed.sum()))
        inside = (v * side[m][rows] >= 0) & (np.abs(v) <= c[m][rows])
        if inside.all():
            alpha[m, rows] = v
            b[m] = -shift if problem.intercept else 0.0
    return alpha, b
