r"""Linear machines of several classes that are trained together, by the logistic loss of all of them.

Split ``t`` minimises over one row of weights for every class ``k``

.. math::  \sum_{k, d} \lambda_d \left(\tfrac{1 - \rho}{2} w_{kd}^2 + \rho |w_{kd}|\right)
           + \sum_j c_j v_j \left( \log \sum_k e^{x_j'w_k} - x_j'w_{y_j} \right).

Tasks are classes times splits, as for machines of one class against the rest; those of a split share one system of
equations. What is added to the weights of a column in all classes changes no probability: where no quadratic penalty
keeps them, as of the intercepts, their sum is held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import logsumexp

from foldwise.linalg import cholesky, cholesky_solve
from foldwise.losses import Loss
from foldwise.problems.base import Array, Slopes
from foldwise.problems.parameters import Canonical
from foldwise.problems.sparse import SparseLinearization, SparseProblem
from foldwise.problems.weights import LinearSolution

__all__ = ["MultinomialLinearization", "MultinomialProblem"]

DIRECT = 1_500
"""Free weights of a split up to which its system is solved directly, and beyond by conjugate gradients."""


class MultinomialProblem(SparseProblem):
    """Training problems of a multinomial logistic regression; parameters as in :class:`SparseProblem`."""

    form: ClassVar[str] = "multinomial"

    def check_loss(self, loss: Loss) -> None:
        if type(loss).__name__ != "Logistic":
            raise ValueError(
                f"several classes are trained together by the logistic loss alone; got {type(loss).__name__}"
            )

    def by_class(self, values: Array) -> Array:
        """From one row per task to (classes, splits, ...)."""
        return values.reshape(self.n_targets, self.n_splits, *values.shape[1:])

    def probabilities(self, Z: Array) -> Array:
        """Of every class, one row per task."""
        z = self.by_class(Z)
        return np.asarray(np.exp(z - logsumexp(z, axis=0))).reshape(Z.shape)

    def rises(self, Z: Array, par: Canonical) -> Array:
        """``c_j v_j`` times the derivative of the loss in every decision, one row per task."""
        own = (self.targets() > 0).astype(float)
        out = (self.probabilities(Z) - own) * self.by_row(par.c)
        return self.training(out, np.arange(self.n_tasks))

    def loss_value(self, W: Array, par: Canonical, Z: Array | None = None) -> Array:
        """The loss part of ``E_t``, of which every class of a split has its share."""
        Z = self.design.decisions(W) if Z is None else Z
        total = logsumexp(self.by_class(Z), axis=0) / self.n_targets
        losses = (np.tile(total, (self.n_targets, 1)) - (self.targets() > 0) * Z) * self.by_row(par.c)
        return np.asarray(self.training(losses, np.arange(self.n_tasks)).sum(axis=1))

    def loss_grad(self, W: Array, par: Canonical, Z: Array | None = None) -> Array:
        Z = self.design.decisions(W) if Z is None else Z
        return self.design.pull(self.rises(Z, par))

    def n_kinks(self, solution: LinearSolution, tol: float = 1e-9) -> int:
        return 0

    def linearize(self, solution: LinearSolution, workspace: Any) -> MultinomialLinearization:
        return MultinomialLinearization(self, solution)

    # The system of one split, on some of its weights.

    def tasks_of(self, t: int) -> Array:
        """The tasks of a split, one for every class."""
        return np.arange(self.n_targets) * self.n_splits + t

    def strength(self, t: int, par: Canonical) -> Array:
        """``c_j v_j`` of the rows that train a split."""
        c = np.array(np.broadcast_to(self.by_row(par.c, np.array([t])), (1, self.n_rows)))
        return np.asarray(self.training(c, np.array([t]))[0])

    def system(self, t: int, par: Canonical, P: Array, some: list[Array]) -> Array:
        """The Hessian on the columns ``some[k]`` of every class, for probabilities ``P`` (classes, n)."""
        c = self.strength(t, par)
        rows = np.flatnonzero(c)
        parts = [self.some_columns(columns)[rows] for columns in some]
        ends = np.cumsum([0, *map(len, some)])
        H = np.zeros((ends[-1], ends[-1]))
        for k, left in enumerate(parts):
            for m in range(k, len(parts)):
                bend = c[rows] * P[k, rows] * ((k == m) - P[m, rows])
                block = left.T @ (
                    parts[m] * bend[:, None] if self.design.is_dense else _scaled(parts[m], bend)
                )
                block = np.asarray(block if self.design.is_dense else block.toarray())
                H[ends[k] : ends[k + 1], ends[m] : ends[m + 1]] = block
                H[ends[m] : ends[m + 1], ends[k] : ends[k + 1]] = block.T
        H[np.diag_indices(len(H))] += self.ridge(t, par, some)
        for places in self.shifts(t, par, some):
            H[np.ix_(places, places)] += c.sum() / len(some)
        return H

    def ridge(self, t: int, par: Canonical, some: list[Array]) -> Array:
        """The quadratic penalty of these weights, end to end."""
        diagonal = self.diagonal(par)[self.tasks_of(t)]
        return np.concatenate([diagonal[k, columns] for k, columns in enumerate(some)])

    def shifts(self, t: int, par: Canonical, some: list[Array]) -> list[Array]:
        """Where the weights of a column are that may move together in all classes and that nothing holds."""
        diagonal = self.diagonal(par)[t]
        in_all = set(some[0].tolist()).intersection(*(set(columns.tolist()) for columns in some[1:]))
        first = np.cumsum([0, *map(len, some[:-1])])
        return [
            np.array([first[k] + int(np.searchsorted(columns, d)) for k, columns in enumerate(some)])
            for d in sorted(in_all)
            if diagonal[d] == 0
        ]

    def solver(self, t: int, par: Canonical, P: Array, some: list[Array]) -> Callable[[Array], Array]:
        """From right-hand sides (weights, r) to solutions of the system of a split."""
        size = sum(map(len, some))
        if size <= DIRECT:
            factor = cholesky(self.system(t, par, P, some))
            return lambda rhs: np.asarray(cholesky_solve(factor, rhs))
        operator, diagonal = self._operator(t, par, P, some)
        preconditioner = LinearOperator((size, size), matvec=lambda x: x / diagonal)

        def solve(rhs: Array) -> Array:
            lines = [
                cg(operator, line, rtol=1e-12, atol=0.0, maxiter=10 * size, M=preconditioner)[0]
                for line in rhs.T
            ]
            return np.stack(lines, axis=1)

        return solve

    def _operator(self, t: int, par: Canonical, P: Array, some: list[Array]) -> tuple[Any, Array]:
        """The Hessian as products with vectors, and its diagonal."""
        c, ridge, shifts = self.strength(t, par), self.ridge(t, par, some), self.shifts(t, par, some)
        ends = np.cumsum([0, *map(len, some)])
        D, K = self.n_columns, len(some)

        def times(x: Array) -> Array:
            x = np.ravel(x)
            V = np.zeros((K, D))
            for k, columns in enumerate(some):
                V[k, columns] = x[ends[k] : ends[k + 1]]
            Z = self.design.decisions(V)
            G = self.design.pull(c * P * (Z - np.sum(P * Z, axis=0)))
            out = np.concatenate([G[k, columns] for k, columns in enumerate(some)]) + ridge * x
            for places in shifts:
                out[places] += c.sum() / K * x[places].sum()
            return np.asarray(out)

        squares = [
            self.design.column_squares(c * P[k] * (1.0 - P[k]))[columns] for k, columns in enumerate(some)
        ]
        diagonal = np.concatenate(squares) + ridge
        for places in shifts:
            diagonal[places] += c.sum() / K
        size = len(diagonal)
        return LinearOperator((size, size), matvec=times), np.maximum(diagonal, np.finfo(float).tiny)


def _scaled(part: Any, weight: Array) -> Any:
    return part.multiply(weight[:, None]).tocsr()


class MultinomialLinearization(SparseLinearization):
    """Newton's system of the free weights of every split, all classes together."""

    problem: MultinomialProblem

    def __init__(self, problem: MultinomialProblem, solution: LinearSolution) -> None:
        self.problem, self.solution, self.par = problem, solution, solution.par
        par, Z = solution.par, solution.decisions
        self.place, _ = problem.held(solution)
        c = np.array(np.broadcast_to(problem.by_row(par.c), Z.shape))
        self.phi = problem.pulled_by_cell(problem.rises(Z, par) / np.where(c > 0, c, 1.0))
        self.psi = {}
        P = problem.by_class(problem.probabilities(Z))
        self.free = [np.flatnonzero(place == 0) for place in self.place]
        self.solvers = [
            problem.solver(t, par, P[:, t], [self.free[m] for m in problem.tasks_of(t)])
            for t in range(problem.n_splits)
        ]
        self.moving = False

    def _solved(self, rhs: Array) -> Array:
        """The inverse Hessians on (tasks, columns, r), zero on held weights."""
        out = np.zeros_like(rhs)
        for t, solve in enumerate(self.solvers):
            tasks = self.problem.tasks_of(t)
            stacked = np.concatenate([rhs[m, self.free[m]] for m in tasks])
            if not len(stacked):
                continue
            found, ends = solve(stacked), np.cumsum([len(self.free[m]) for m in tasks])
            for m, part in zip(tasks, np.split(found, ends[:-1]), strict=True):
                out[m, self.free[m]] = part
        return out

    def adjoint(self, slopes: Slopes) -> Array:
        F_w = np.zeros_like(self.solution.W)
        for m, rows, weight in slopes:
            F_w[m] = self.problem.design.pull(weight[None], rows)[0]
        return -self._solved(F_w[:, :, None])[:, :, 0]

    def sensitivities(self) -> Array:
        return -self._solved(self.cross())

    def curvature(self, u: Array, J: Array, window: float | None) -> Array:
        """Left out: the hyper-Hessian is that of Gauss and Newton."""
        return np.zeros((J.shape[2], J.shape[2]))
