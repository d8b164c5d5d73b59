"""Gradients and Hessians of linear training problems, kept up to date as weights and ``theta`` move.

Three ways, one interface; ``factor(par, diagonal, tasks, tol)`` gives the inverse Hessians as a callable on right-hand
sides of shape (tasks, columns, k), where ``tol`` is the relative residual that suffices:

:class:`PieceGram`
    for piecewise quadratic losses on dense designs. The Gram matrix of each task and cell is stored and changed
    only by the rows that enter or leave a piece; rows that do so in every fold are added once.
:class:`WeightedGram`
    for other smooth losses on dense designs: the weighted Gram matrix is formed anew at each step.
:class:`GramFree`
    for sparse designs and designs with many columns: no matrix of columns by columns. Linear systems are solved
    in the space of the curved rows (:mod:`.rowspace`), or by conjugate gradients when these are many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from foldwise.linalg import cholesky, cholesky_solve
from foldwise.losses.base import NONE
from foldwise.problems.parameters import Canonical
from foldwise.problems.rowspace import RowSpace

if TYPE_CHECKING:
    from foldwise.problems.linear import LinearProblem

__all__ = ["GramFree", "LossCurvature", "PieceGram", "WeightedGram", "make_curvature", "stores_grams"]

Array: TypeAlias = np.ndarray[Any, Any]
Inverse: TypeAlias = Callable[[Array], Array]
"""Inverse Hessians of tasks, on right-hand sides of shape (tasks, columns, k)."""

GRAM_COLUMNS = 3_000
GRAM_BYTES = 2_000_000_000
WIDE = 2.0
"""With this many columns to a row, systems in the space of the rows are the smaller ones."""


class LossCurvature(Protocol):
    """Sums over rows at the weights that it was last brought to; the workspace of a linear problem."""

    def refresh(self, Z: Array, par: Canonical, tasks: Array) -> Array:
        """Bring ``tasks`` to decisions ``Z``, one row for each; which of them changed."""

    def phi(self, W: Array, par: Canonical, tasks: Array) -> Array:
        """``sum_j v_j l'_j x_j`` per task and cell."""

    def psi(self, name: str, Z: Array, par: Canonical) -> Array:
        """``d phi`` of all tasks in the loss's own parameter ``name``."""

    def gram_times(self, U: Array) -> Array:
        """``sum_j v_j l''_j x_j x_j' u`` of all tasks, per cell."""

    def factor(self, par: Canonical, diagonal: Array, tasks: Array, tol: float | None = None) -> Inverse:
        """The inverse Hessians of ``tasks``; where they are not exact, with ``tol`` as relative residual."""


def is_gram_free(problem: LinearProblem) -> bool:
    """Whether no matrix of columns by columns is made."""
    D = problem.n_columns
    return not problem.design.is_dense or D > GRAM_COLUMNS or WIDE * problem.n_rows < D


def stores_grams(problem: LinearProblem) -> bool:
    """Whether Gram matrices are stored and kept up to date: the loss has pieces that know of its tube alone."""
    stored = 8 * problem.n_columns**2 * problem.n_tasks * (problem.n_cells + 1)
    pieces = problem.loss.piecewise_quadratic and set(problem.loss.tunable) <= {"epsilon"}
    return pieces and stored <= GRAM_BYTES and not is_gram_free(problem)


def make_curvature(problem: LinearProblem) -> LossCurvature:
    """The cheapest of the three for this problem."""
    if is_gram_free(problem):
        return GramFree(problem)
    return PieceGram(problem) if stores_grams(problem) else WeightedGram(problem)


def _guarded(
    problem: LinearProblem, par: Canonical, diagonal: Array, tasks: Array, curvature: Array
) -> Array:
    """The penalty's diagonal, with a stand-in for the curvature of a free intercept where no row gives any.

    ``curvature`` is the curvature of the intercept, one number per task. With none, Newton's step along it would be
    infinite; the stand-in makes it a step of the size of the mean slope.
    """
    if not problem.design.intercept or problem.penalty.form is not None:
        return diagonal
    mass = np.sum(par.c[tasks] * problem.training_mass[tasks], axis=1)
    flat = curvature <= 1e-10 * mass
    if flat.any():
        diagonal = diagonal.copy()
        diagonal[tasks[flat], -1] += mass[flat]
    return diagonal


class _Factors:
    """Cholesky factors of the tasks' Hessians."""

    def __init__(self, hessians: list[Array]) -> None:
        self.factors = [cholesky(H) for H in hessians]

    def __call__(self, rhs: Array) -> Array:
        out = np.empty_like(rhs)
        for i, factor in enumerate(self.factors):
            out[i] = cholesky_solve(factor, rhs[i])
        return out


class PieceGram:
    r"""Moments of the active rows, per task and cell: ``G = sum a x x'``, ``b0``, ``b1``.

    On a piece the loss has ``l'(z) = a z - b0 - epsilon b1``, so ``phi = sum l' x = G w - b0 - epsilon b1``
    and the Hessian is ``sum_q c_q G_q``: neither needs a pass over the rows.
    """

    def __init__(self, problem: LinearProblem) -> None:
        self.problem = problem
        M, Q, D = problem.n_tasks, problem.n_cells, problem.n_columns
        self.G = np.zeros((M, Q, D, D))
        self.b0 = np.zeros((M, Q, D))
        self.b1 = np.zeros((M, Q, D))
        self.codes = np.full((M, problem.n_rows), NONE, dtype=np.int8)
        self.largest = np.zeros((M, Q))
        if problem.folds.partition:
            self.seed()

    def seed(self) -> None:
        """Start with every training row on the loss's common piece, from the Gram matrices of the blocks."""
        p = self.problem
        loss: Any = p.loss
        grams, code = p.block_grams, loss.common_piece
        codes = np.full(p.n_rows, code, dtype=np.int8)
        for k in range(p.n_targets):
            a, b0, b1 = (p.weight * values for values in loss.coefficients(codes, p.Y[k]))
            lines = np.stack([b0, b1])
            moments = np.stack(
                [[p.design.pull(lines[:, rows], rows) for rows in block] for block in p.folds.segments]
            )
            heaviest = int(np.argmax(p.weight))
            curvature = float(a[heaviest] / p.weight[heaviest])
            total, total_moments = curvature * grams.sum(axis=0), moments.sum(axis=0)
            for t in range(p.n_splits):
                m = k * p.n_splits + t
                self.G[m] = total - curvature * grams[t] if t < len(grams) else total
                rest = total_moments - moments[t] if t < len(grams) else total_moments
                self.b0[m], self.b1[m] = rest[:, 0], rest[:, 1]
        self.codes[:] = code
        self.largest = np.einsum("mqdd->mq", self.G)

    def refresh(self, Z: Array, par: Canonical, tasks: Array) -> Array:
        """Bring the moments of ``tasks`` to the decisions ``Z``; returns which tasks changed a piece."""
        p = self.problem
        loss: Any = p.loss_at(par, tasks)
        new = loss.piece(Z, p.targets(tasks))
        changed = new != self.codes[tasks]
        moved = changed.any(axis=1)
        if not moved.any():
            return moved
        for k in range(p.n_targets):
            mine = np.flatnonzero(p.target[tasks] == k)
            if len(mine):
                self._flip(tasks[mine], new[mine], changed[mine], k)
        self.codes[tasks] = new
        self._renew()
        return moved

    def _renew(self) -> None:
        """Make sums anew that are down to the rounding error of what they were: their rows have left."""
        p, trace = self.problem, np.einsum("mqdd->mq", self.G)
        self.largest = np.maximum(self.largest, trace)
        for m, q in np.argwhere(trace < 1e-10 * self.largest):
            rows = np.flatnonzero(p.folds.train[p.split[m]] & (p.folds.cell == q))
            none = np.full(len(rows), NONE)
            change = self._change(self.codes[m, rows], none, rows, p.Y[p.target[m]], m)
            self.G[m, q], self.b0[m, q], self.b1[m, q] = self._moments(rows, *change)
            self.largest[m, q] = np.trace(self.G[m, q])

    def _flip(self, tasks: Array, new: Array, changed: Array, k: int) -> None:
        """Move rows between pieces: those common to all folds once, the rest task by task."""
        p, old = self.problem, self.codes[tasks]
        y = p.Y[k]
        if p.folds.partition and len(tasks) == p.n_splits > 1:
            common = changed.all(axis=0) & (new == new[0]).all(axis=0) & (old == old[0]).all(axis=0)
            rows = np.flatnonzero(common)
            if len(rows):
                self._flip_common(tasks, rows, new[0][rows], old[0][rows], y)
                changed = changed & ~common
        for i, m in enumerate(tasks):
            rows = np.flatnonzero(changed[i] & p.folds.train[p.split[m]])
            if not len(rows):
                continue
            da, db0, db1 = self._change(new[i][rows], old[i][rows], rows, y, m)
            if p.n_cells == 1:
                self._add(m, 0, rows, da, db0, db1)
                continue
            cells = p.folds.cell[rows]
            for q in np.unique(cells):
                here = cells == q
                self._add(m, q, rows[here], da[here], db0[here], db1[here])

    def _flip_common(self, tasks: Array, rows: Array, new: Array, old: Array, y: Array) -> None:
        p = self.problem
        da, db0, db1 = self._change(new, old, rows, y)
        for q in range(p.n_cells):
            parts: list[tuple[int, Any, Any, Any]] = []
            for b, block in enumerate(p.folds.segments):
                first, last = np.searchsorted(rows, [block[q].start, block[q].stop])
                if last > first:
                    parts.append(
                        (b, *self._moments(rows[first:last], *(v[first:last] for v in (da, db0, db1))))
                    )
            if not parts:
                continue
            total = [sum(part[i] for part in parts) for i in (1, 2, 3)]
            self.G[tasks, q] += total[0]
            self.b0[tasks, q] += total[1]
            self.b1[tasks, q] += total[2]
            for b, dG, d0, d1 in parts:
                if b < p.n_splits:
                    self.G[tasks[b], q] -= dG
                    self.b0[tasks[b], q] -= d0
                    self.b1[tasks[b], q] -= d1

    def _change(
        self, new: Array, old: Array, rows: Array, y: Array, task: int | None = None
    ) -> tuple[Array, ...]:
        """How the coefficients of rows change, times their weights and how often they train the task (else once)."""
        p = self.problem
        loss: Any = p.loss
        yr = y[rows]
        after, before = loss.coefficients(new, yr), loss.coefficients(old, yr)
        times = None if task is None or p.folds.once else p.folds.count[p.split[task], rows]
        if p.uniform and times is None:
            return tuple(a - b for a, b in zip(after, before, strict=True))
        weight = p.weight[rows] if times is None else p.weight[rows] * times
        return tuple(weight * (a - b) for a, b in zip(after, before, strict=True))

    def _moments(self, rows: Array, da: Array, db0: Array, db1: Array) -> tuple[Array, Array, Array]:
        G, (d0, d1) = self.problem.design.sweep(da, np.stack([db0, db1]), rows)
        return G, d0, d1

    def _add(self, m: int, q: int, rows: Array, da: Array, db0: Array, db1: Array) -> None:
        dG, d0, d1 = self._moments(rows, da, db0, db1)
        self.G[m, q] += dG
        self.b0[m, q] += d0
        self.b1[m, q] += d1

    def phi(self, W: Array, par: Canonical, tasks: Array) -> Array:
        """``sum_j v_j l'_j x_j`` per task and cell."""
        epsilon = par.epsilon[tasks]
        whole = len(tasks) == self.problem.n_tasks
        G, b0, b1 = (self.G, self.b0, self.b1) if whole else (self.G[tasks], self.b0[tasks], self.b1[tasks])
        return np.matmul(G, W[:, None, :, None])[..., 0] - b0 - epsilon[:, :, None] * b1

    def psi(self, name: str, Z: Array, par: Canonical) -> Array:
        """``d phi / d epsilon``: pieces know of no other parameter."""
        return -self.b1

    def gram_times(self, U: Array) -> Array:
        """``G_q u`` per task and cell."""
        return np.matmul(self.G, U[:, None, :, None])[..., 0]

    def factor(self, par: Canonical, diagonal: Array, tasks: Array, tol: float | None = None) -> _Factors:
        """The inverse Hessians of the tasks, as a callable on right-hand sides; exact whatever ``tol``."""
        curvature = np.sum(par.c[tasks] * self.G[tasks, :, -1, -1], axis=1)
        return _Factors(self.hessians(par, _guarded(self.problem, par, diagonal, tasks, curvature), tasks))

    def hessians(self, par: Canonical, diagonal: Array, tasks: Array) -> list[Array]:
        """The Hessian of every task, with this diagonal of the penalty."""
        p, out = self.problem, []
        for m in tasks:
            c = par.c[m]
            H = self.G[m, 0] * c[0] if p.n_cells == 1 else np.tensordot(c, self.G[m], axes=1)
            p.penalty.add_to(H, diagonal, m)
            out.append(H)
        return out


class _RowWise:
    """What the two classes without stored Gram matrices share: moments by passes over the rows."""

    def __init__(self, problem: LinearProblem) -> None:
        self.problem = problem
        self.slopes = np.zeros((problem.n_tasks, problem.n_rows))
        self.curvatures = np.zeros((problem.n_tasks, problem.n_rows))

    def refresh(self, Z: Array, par: Canonical, tasks: Array) -> Array:
        """Evaluate the derivatives of the loss at the decisions ``Z``."""
        p = self.problem
        loss, y = p.loss_at(par, tasks), p.targets(tasks)
        self.slopes[tasks] = p.training(loss.grad(Z, y), tasks)
        self.curvatures[tasks] = p.training(loss.hess(Z, y), tasks)
        return np.ones(len(tasks), dtype=bool)

    def phi(self, W: Array, par: Canonical, tasks: Array) -> Array:
        """``sum_j v_j l'_j x_j`` per task and cell."""
        return self.problem.pulled_by_cell(self.slopes[tasks])

    def psi(self, name: str, Z: Array, par: Canonical) -> Array:
        """``d phi`` in the loss's own parameter ``name``."""
        p = self.problem
        slopes = p.loss_at(par).grad_in(name, Z, p.targets())
        return p.pulled_by_cell(p.training(slopes, np.arange(p.n_tasks)))

    def guarded(self, par: Canonical, diagonal: Array, tasks: Array) -> Array:
        """See :func:`_guarded`."""
        curvature = np.sum(self.curvatures[tasks] * self.problem.by_row(par.c, tasks), axis=1)
        return _guarded(self.problem, par, diagonal, tasks, curvature)

    def gram_times(self, U: Array) -> Array:
        """``G_q u`` per task and cell."""
        return self.problem.pulled_by_cell(self.curvatures * self.problem.design.decisions(U))


class WeightedGram(_RowWise):
    """Hessians formed from the rows at each step, factored by Cholesky."""

    def factor(self, par: Canonical, diagonal: Array, tasks: Array, tol: float | None = None) -> _Factors:
        """The inverse Hessians of the tasks, as a callable on right-hand sides; exact whatever ``tol``."""
        return _Factors(self.hessians(par, self.guarded(par, diagonal, tasks), tasks))

    def hessians(self, par: Canonical, diagonal: Array, tasks: Array) -> list[Array]:
        """The Hessian of every task, with this diagonal of the penalty."""
        p, out = self.problem, []
        for m in tasks:
            weight = self.curvatures[m] * p.by_row(par.c, np.array([m]))[0]
            rows = np.flatnonzero(weight)
            H = p.design.gram(weight) if 2 * len(rows) > len(weight) else p.design.gram(weight[rows], rows)
            p.penalty.add_to(H, diagonal, m)
            out.append(H)
        return out


class GramFree(_RowWise):
    """No Gram matrix of columns: systems in the space of the rows where these are few, else conjugate gradients."""

    tolerance = 1e-8
    max_iter = 500

    def __init__(self, problem: LinearProblem) -> None:
        super().__init__(problem)
        self.row_space = RowSpace(problem)

    def factor(self, par: Canonical, diagonal: Array, tasks: Array, tol: float | None = None) -> Inverse:
        """The inverse Hessians of the tasks, as a callable on right-hand sides."""
        diagonal = self.guarded(par, diagonal, tasks)[tasks]
        weight = self.curvatures[tasks] * self.problem.by_row(par.c, tasks)
        if self.row_space.serves(weight):
            return self.row_space.factor(weight, diagonal, tasks)
        tol = self.tolerance if tol is None else max(tol, self.tolerance)
        return _ConjugateGradients(self.problem, weight, diagonal, tasks, tol, self.max_iter)


class _ConjugateGradients:
    """Solves the tasks' Newton systems together; each product with X serves every task.

    With fewer curved rows than columns the penalty's diagonal is the preconditioner: the iteration then sees the
    spectrum of ``S^1/2 X D^-1 X' S^1/2`` only. With more rows the Hessian's own diagonal is the better one.
    """

    def __init__(
        self,
        problem: LinearProblem,
        weight: Array,
        diagonal: Array,
        tasks: Array,
        tol: float,
        max_iter: int,
    ) -> None:
        self.penalty, self.tasks, self.tol, self.max_iter = problem.penalty, tasks, tol, max_iter
        # Rows with no curvature in any task drop out of every product.
        rows = np.flatnonzero(weight.any(axis=0))
        self.block = problem.design.take(rows)
        self.weight = np.ascontiguousarray(weight[:, rows].T)
        self.diagonal = np.ascontiguousarray(diagonal.T)
        scale = self.diagonal.copy()
        if len(rows) > problem.n_columns:
            scale += self.block.column_squares(self.weight)
        elif problem.design.intercept:
            scale[-1] += self.weight.sum(axis=0)
        self.scale = np.maximum(scale, 1e-12 * scale.max(axis=0))
        self.iterations = 0

    def product(self, V: Array, live: Array) -> Array:
        """Hessian times one column per live task."""
        out = self.block.back(self.block.times(V) * self.weight[:, live])
        out += self.diagonal[:, live] * V
        if self.penalty.form is not None:
            form = self.penalty.form[self.tasks[live]].T
            out += self.penalty.strength * np.einsum("dm,dm->m", form, V) * form
        return out

    def __call__(self, rhs: Array) -> Array:
        return np.stack([self._solve(rhs[:, :, i].T).T for i in range(rhs.shape[2])], axis=2)

    def _solve(self, rhs: Array) -> Array:
        x = np.zeros(rhs.shape)
        target = self.tol * np.linalg.norm(rhs, axis=0)
        live = np.flatnonzero(np.linalg.norm(rhs, axis=0) > target)
        # The columns of r, d, y belong to the live tasks; y collects their steps.
        r = np.ascontiguousarray(rhs[:, live])
        d, y = r / self.scale[:, live], np.zeros_like(r)
        rho = np.einsum("dm,dm->m", r, d)
        for _ in range(self.max_iter):
            if not len(live):
                break
            Hd = self.product(d, live)
            alpha = rho / np.einsum("dm,dm->m", d, Hd)
            y += alpha * d
            r -= alpha * Hd
            self.iterations += 1
            going = np.linalg.norm(r, axis=0) > target[live]
            if not going.all():
                x[:, live[~going]] = y[:, ~going]
                live, rho, r, d, y = live[going], rho[going], r[:, going], d[:, going], y[:, going]
            q = r / self.scale[:, live]
            last, rho = rho, np.einsum("dm,dm->m", r, q)
            d = q + (rho / last) * d
        x[:, live] = y
        return x
