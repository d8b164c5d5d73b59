r"""Newton systems of wide problems, solved in the space of the rows that bend the loss.

With ``A`` the rows of positive curvature, ``S`` their weights and ``D`` the penalty, the Hessian ``D + X_A' S X_A`` has
as many columns as X, but

.. math::  (D + X_A' S X_A)^{-1} r = D^{-1} (r - X_A' \beta), \qquad
           (S^{-1} + X_A D^{-1} X_A') \, \beta = X_A D^{-1} r,

a positive definite system with one unknown per row of ``A``, well conditioned however weak the penalty. A free or
penalised intercept is one more unknown, eliminated by hand. Nothing here has the size columns x columns.

The kernel ``X D^-1 X'`` between rows is kept for all tasks; Cholesky factors are kept per task. While few rows enter or
leave ``A`` and nothing else changes, the old factor serves with a border of one column per such row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg.lapack import dgetrf, dgetrs

from foldwise.design import Design
from foldwise.linalg import cholesky, cholesky_solve

if TYPE_CHECKING:
    from foldwise.problems.linear import LinearProblem

__all__ = ["RowFactors", "RowSpace"]

MAX_ROWS = 4_000
ROWS_SQUARED_PER_ENTRY = 40_000
MAX_BORDER = 0.08


class RowSpace:
    """Kernels between rows, and the last factor of every task.

    One kernel serves all tasks whose penalties are multiples of one diagonal.
    """

    def __init__(self, problem: LinearProblem) -> None:
        self.problem = problem
        self.kernels: list[_RowKernel] = []
        self.factors: dict[int, _RowFactor] = {}
        # A factorisation costs |A|^3 / 3, conjugate gradients some hundred products with the entries of A's rows.
        affordable = np.sqrt(ROWS_SQUARED_PER_ENTRY * problem.design.entries / max(problem.n_rows, 1))
        self.max_rows = min(MAX_ROWS, int(affordable))

    def serves(self, weight: np.ndarray) -> bool:
        """Whether systems with these row weights (one row per task) are for this class."""
        d, form = self.problem.design.n_features, self.problem.penalty.form
        if form is not None and np.any(form[:, :d]):
            return False
        return bool(np.count_nonzero(weight, axis=1).max(initial=0) <= self.max_rows)

    def factor(self, weight: np.ndarray, diagonal: np.ndarray, tasks: np.ndarray) -> RowFactors:
        """Inverses of the tasks' Hessians; ``weight`` and ``diagonal`` have one row per task in ``tasks``."""
        penalty = self.problem.penalty
        extra = penalty.strength if penalty.form is not None else 0.0
        kernels = self._kernels(diagonal[:, : self.problem.design.n_features])
        for kernel in set(kernels):
            mine = [i for i, other in enumerate(kernels) if other is kernel]
            kernel.include(np.flatnonzero(weight[mine].any(axis=0)))
        parts = []
        for m, kernel, weights, row in zip(tasks.tolist(), kernels, weight, diagonal, strict=True):
            if m not in self.factors or not self.factors[m].move(kernel, weights, row, row[-1] + extra):
                self.factors[m] = _RowFactor(kernel, weights, row, row[-1] + extra)
            parts.append(self.factors[m].inverse)
        return RowFactors(parts)

    def _kernels(self, penalties: np.ndarray) -> list[_RowKernel]:
        """A kernel for each penalty; those that have not been asked for in a while are forgotten."""
        out = []
        for penalty in penalties:
            kernel = next((k for k in self.kernels if k.fits(penalty)), None)
            if kernel is None:
                kernel = _RowKernel(self.problem.design, penalty)
            else:
                self.kernels.remove(kernel)
            self.kernels.insert(0, kernel)
            out.append(kernel)
        del self.kernels[self.problem.n_tasks :]
        return out


class _RowKernel:
    """``K = X D^-1 X'`` between the rows asked for so far, with ``D`` scaled to begin with 1."""

    def __init__(self, design: Design, penalty: np.ndarray) -> None:
        self.design, self.base = design, penalty / penalty[0]
        self.place = np.full(design.n_rows, -1)
        self.rows = np.zeros(0, dtype=int)
        self.store = np.zeros((0, 0))

    def fits(self, penalty: np.ndarray) -> bool:
        """Whether this penalty is a multiple of ``D``."""
        return bool(np.allclose(penalty, penalty[0] * self.base, rtol=1e-13, atol=0.0))

    def include(self, rows: np.ndarray) -> None:
        """Compute what is missing for these rows."""
        fresh = rows[self.place[rows] < 0]
        if not len(fresh):
            return
        old, total = len(self.rows), len(self.rows) + len(fresh)
        if total > len(self.store):
            store = np.empty((int(1.25 * total), int(1.25 * total)))
            store[:old, :old] = self.store[:old, :old]
            self.store = store
        self.rows = np.concatenate([self.rows, fresh])
        self.place[fresh] = np.arange(old, total)
        strip = self.design.kernel(fresh, self.rows, self.base)
        self.store[old:total, :total] = strip
        self.store[:old, old:total] = strip[:, :old].T

    def between(self, some: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The kernel of two sets of rows that are included."""
        return self.store[np.ix_(self.place[some], self.place[others])]


class _RowFactor:
    """The system of one task: Cholesky factor of ``G = S^-1 + K / lam`` on some rows, kept while rows come and go."""

    def __init__(
        self, kernel: _RowKernel, weights: np.ndarray, penalty: np.ndarray, stiffness: float
    ) -> None:
        self.kernel, self.weights, self.lam = kernel, weights.copy(), penalty[0]
        self.rows = self.now = np.flatnonzero(weights)
        self.stiffness = stiffness
        G = kernel.between(self.rows, self.rows)
        if self.lam != 1.0:
            G /= self.lam
        G.flat[:: len(self.rows) + 1] += 1.0 / weights[self.rows]
        self.lower = cholesky(G)
        self.inverse = _Inverse(kernel.design, _Bordered(self, self.rows), penalty, stiffness)

    def move(self, kernel: _RowKernel, weights: np.ndarray, penalty: np.ndarray, stiffness: float) -> bool:
        """Bring the inverse to these weights; False when the factor is too far from them."""
        rows = np.flatnonzero(weights)
        common = np.flatnonzero(self.weights * weights)
        changes = len(rows) + len(self.rows) - 2 * len(np.intersect1d(rows, self.rows, True))
        if kernel is not self.kernel or penalty[0] != self.lam or changes > MAX_BORDER * len(self.rows):
            return False
        if not np.array_equal(weights[common], self.weights[common]):
            return False
        if stiffness != self.stiffness or not np.array_equal(rows, self.now):
            self.weights[rows] = weights[rows]
            self.now, self.stiffness = rows, stiffness
            self.inverse = _Inverse(self.kernel.design, _Bordered(self, rows), penalty, stiffness)
        return True


class _Bordered:
    r"""Solves with ``G`` on the present rows, by the factor on the former ones.

    Rows that came add columns ``K / lam``, rows that went the constraint ``beta = 0``:

    .. math::  \begin{pmatrix} G_0 & B \\ B' & C \end{pmatrix} \begin{pmatrix} \beta_0 \\ \gamma \end{pmatrix}
               = \begin{pmatrix} a_0 \\ a_\gamma \end{pmatrix}, \quad B = (K_{0N} / \lambda, I_R), \;
               C = \mathrm{diag}(G_{NN}, 0).
    """

    def __init__(self, factor: _RowFactor, now: np.ndarray) -> None:
        kernel, rows = factor.kernel, factor.rows
        gone, new = np.setdiff1d(rows, now, True), np.setdiff1d(now, rows, True)
        self.now, self.lower, self.n, self.k = now, factor.lower, len(rows), len(new)
        self.schur = None
        if not len(gone) and not len(new):
            return
        # Where the present rows stand in (former rows, new rows).
        self.order = np.searchsorted(rows, now)
        self.order[np.isin(now, new, assume_unique=True)] = self.n + np.arange(self.k)
        B = np.zeros((self.n, self.k + len(gone)), order="F")
        C = np.zeros((self.k + len(gone), self.k + len(gone)))
        B[:, : self.k] = kernel.between(rows, new) / factor.lam
        C[: self.k, : self.k] = kernel.between(new, new) / factor.lam
        C[np.arange(self.k), np.arange(self.k)] += 1.0 / factor.weights[new]
        B[np.searchsorted(rows, gone), self.k + np.arange(len(gone))] = 1.0
        self.B, self.solved = B, cholesky_solve(self.lower, B)
        self.schur = dgetrf(C - B.T @ self.solved)[:2]

    def __call__(self, a: np.ndarray) -> np.ndarray:
        """``G^-1 a`` for a matrix ``a`` with one row per present row."""
        if not len(a):
            return a
        if self.schur is None:
            return cholesky_solve(self.lower, a)
        full = np.zeros((self.n + self.k, a.shape[1]))
        full[self.order] = a
        first = cholesky_solve(self.lower, full[: self.n])
        rest = -self.B.T @ first
        rest[: self.k] += full[self.n :]
        gamma = dgetrs(*self.schur, rest)[0]
        full[: self.n] = first - self.solved @ gamma
        full[self.n :] = gamma[: self.k]
        return full[self.order]


class _Inverse:
    """The inverse Hessian of one task, intercept included."""

    def __init__(self, design: Design, system: _Bordered, penalty: np.ndarray, stiffness: float) -> None:
        self.d, self.system = design.n_features, system
        self.X = design.take(system.now, features=True)
        self.D = penalty[: self.d, None]
        self.intercept = design.intercept
        if self.intercept:
            self.ones = system(np.ones((len(system.now), 1)))
            self.mass = max(float(self.ones.sum()) + stiffness, np.finfo(float).tiny)

    def __call__(self, rhs: np.ndarray) -> np.ndarray:
        out = np.empty_like(rhs)
        r = rhs[: self.d] / self.D
        beta = self.system(self.X.times(r))
        if self.intercept:
            # sum(beta) + stiffness b = rhs_b, and beta = G^-1 (a + b 1).
            b = (rhs[-1] - beta.sum(axis=0)) / self.mass
            beta = beta + self.ones * b
            out[-1] = b
        out[: self.d] = r - self.X.back(beta) / self.D
        return out


class RowFactors:
    """Inverse Hessians of several tasks, as a callable on right-hand sides (tasks, columns, k)."""

    def __init__(self, parts: list[_Inverse]) -> None:
        self.parts = parts

    def __call__(self, rhs: np.ndarray) -> np.ndarray:
        return np.stack([part(r) for part, r in zip(self.parts, rhs, strict=True)])
