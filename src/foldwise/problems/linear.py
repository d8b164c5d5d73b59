r"""Linear training problems of all folds (and classes) on one design, solved in lockstep.

Task ``m = (target k, split t)`` minimises over ``w``

.. math::  E_m(w; \theta) = \tfrac12 \sum_d \lambda_{kd} s_{td} w_d^2
           + \sum_{j \in \mathrm{train}(t)} c_{m q(j)} \, v_j \, \ell(x_j' w, y_{kj}; \varepsilon_{m q(j)})

where ``q(j)`` is the cell of row ``j`` (its group of samples, its class), ``v`` are sample weights and ``s`` the
penalty scales of :class:`foldwise.penalties.Quadratic`. Weights ``W`` have one row per task. The workspace is a
:class:`~foldwise.problems.curvature.LossCurvature`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from foldwise.losses import Loss
from foldwise.problems.base import Array, Linearization, Slopes
from foldwise.problems.curvature import LossCurvature, make_curvature, stores_grams
from foldwise.problems.flat import middle
from foldwise.problems.parameters import Canonical
from foldwise.problems.weights import NEGLIGIBLE, LinearSolution, Pins, WeightProblem, Weights

__all__ = ["LinearProblem", "SmoothLinearization"]

DENSITY_ROWS = 2_000


class LinearProblem(WeightProblem):
    """Training problems of a linear model with a smooth loss; parameters as in :class:`WeightProblem`."""

    form: ClassVar[str] = "weights"

    def check_loss(self, loss: Loss) -> None:
        if not loss.smooth:
            raise ValueError(
                f"a linear model in the primal needs a loss with a second derivative; got {type(loss).__name__}. "
                "Use its squared or smoothed form (SquaredHinge, QuarticHinge, SquaredEpsilonInsensitive)"
            )

    def workspace(self) -> Any:
        return make_curvature(self)

    def start(self, leader: tuple[Any, Any] | None = None) -> Weights:
        """All zero; but a loss without curvature far away, such as Huber's, would never see targets far from zero, so
        the intercept is then the mean target of the training rows.
        """
        W = np.zeros((self.n_tasks, self.n_columns))
        far = not self.loss.hess(np.array([1e100]), np.zeros(1)).any()
        if self.loss.task == "regression" and far and self.design.intercept:
            weight = self.weight * self.folds.count[self.split]
            W[:, -1] = (weight * self.Y[self.target]).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-300)
        return Weights(W)

    def at(
        self,
        W: Array,
        theta: Array,
        Z: Array | None = None,
        converged: Array | None = None,
        steps: int = 0,
        pins: Pins | None = None,
    ) -> LinearSolution:
        """Any weights as a solution, with decisions ``Z`` if these are known."""
        Z = self.design.decisions(W) if Z is None else Z
        done = np.ones(self.n_tasks, dtype=bool) if converged is None else converged
        return LinearSolution(theta, self.parameters(theta), Weights(W), Z, done, steps, pins or {})

    def validation_gram(self, m: int) -> Array | None:
        t = self.split[m]
        rows, v = self.folds.validation[t], self.validation_weight[m]
        if not (stores_grams(self) and self.folds.partition and len(v)):
            return None
        own = self.weight[rows]
        if not np.allclose(v * own.sum(), own * v.sum(), rtol=1e-12, atol=0.0):  # classes may weigh
            return None
        return np.asarray(self.block_grams[t].sum(axis=0) * (v.sum() / own.sum()))

    # The training objective and its derivatives at any weights.

    def diagonal(self, par: Canonical) -> Array:
        """Diagonal of the penalty's Hessian, one row per task."""
        return self.penalty.diagonal(self.per_task(par.lam))

    def push(self, W: Array, par: Canonical) -> Array:
        """Gradient of the penalty, one row per task."""
        return self.penalty.times(self.diagonal(par), W, np.arange(self.n_tasks))

    def objective(self, W: Array, par: Canonical) -> Array:
        """``E_m`` at any weights, one number per task."""
        return np.asarray(self.loss_value(W, par) + 0.5 * np.sum(W * self.push(W, par), axis=1))

    def grad(self, W: Array, par: Canonical) -> Array:
        """``dE_m/dw``, one row per task."""
        return self.loss_grad(W, par) + self.push(W, par)

    def hess(self, W: Array, par: Canonical) -> Array:
        """``d2E_m/dw2``: shape (tasks, columns, columns)."""
        tasks = np.arange(self.n_tasks)
        curvatures = self.loss_at(par).hess(self.design.decisions(W), self.targets())
        curvatures = self.training(curvatures * self.by_row(par.c), tasks)
        diagonal = self.diagonal(par)
        out = np.stack([self.design.gram(row) for row in curvatures])
        for m in tasks.tolist():
            self.penalty.add_to(out[m], diagonal, m)
        return out

    def value(self, solution: LinearSolution, workspace: Any) -> Array:
        return self.objective(solution.W, solution.par)

    def residual(self, solution: LinearSolution, workspace: Any) -> Array:
        """The gradient relative to the norms of its parts, computed anew from the rows."""
        pull, push = self.loss_grad(solution.W, solution.par), self.push(solution.W, solution.par)
        par, tasks = solution.par, np.arange(self.n_tasks)
        residual = np.linalg.norm(pull + push, axis=1) / self.gradient_size(pull, push, par, tasks)
        return np.maximum(residual, self.neglected(solution.decisions, pull, push, par, tasks))

    def neglected(self, Z: Array, pull: Array, push: Array, par: Canonical, tasks: Array) -> Array:
        """The residual of tasks whose penalty is far too weak to show in the other one; 0 of all others.

        Rows that a machine separates leave a gradient of the penalty alone, which is nothing beside what the rows
        could add to it, and still decides on the weights. It is compared with the slopes that the rows have, and what
        decisions leave open that are known to a billionth of their range is not held against it.
        """
        size = np.linalg.norm(pull, axis=1) + np.linalg.norm(push, axis=1)
        terms = np.sum(par.c[tasks] * self._terms[self.target[tasks]], axis=1)
        out = np.zeros(len(tasks))
        for i in np.flatnonzero((size > 0) & (size < NEGLIGIBLE * terms)):
            one, z = tasks[i : i + 1], Z[i : i + 1]
            loss, y, c = self.loss_at(par, one), self.targets(one), self.by_row(par.c, one)
            near = 1e-9 * np.ptp(z) + 1e-15 * np.abs(z)
            below, here, above = (self.training(c * loss.grad(z + t * near, y), one)[0] for t in (-1, 0, 1))
            unknown = 0.5 * (above - below) @ self._lengths
            left = max(float(np.linalg.norm(pull[i] + push[i]) - unknown), 0.0)
            out[i] = left / (size[i] + NEGLIGIBLE * np.abs(here) @ self._lengths)
        return out

    def linearize(self, solution: LinearSolution, workspace: LossCurvature) -> SmoothLinearization:
        return SmoothLinearization(self, solution, workspace)

    # Intercepts that are not unique.

    def centre(self, W: Array, Z: Array, par: Canonical, tasks: Array) -> Pins:
        """Put intercepts of solved tasks that are not unique in the middle, in place; the rows that hold them there.

        See :mod:`foldwise.problems.flat`.
        """
        n = self.n_rows
        pins: Pins = {}
        if (
            not self.design.intercept
            or self.penalty.form is not None
            or not self.loss.straight(self.Y[0][:1])
        ):
            return pins
        for m in tasks.tolist():
            one = np.array([m])
            loss = self.loss
            if "epsilon" in loss.tunable:
                loss = loss.replace(epsilon=np.broadcast_to(self.by_row(par.epsilon, one)[0], n))
            c = self.training(np.array(np.broadcast_to(self.by_row(par.c, one), (1, n))), one)[0]

            def decide(alpha: Array, m: int = m) -> Array:
                return np.asarray(self.design.decisions(self.weights_of(alpha, m, par))[0])

            found = middle(loss, self.targets(one)[0], c, Z[m], decide)
            if found is not None:
                W[m] = self.weights_of(found.alpha, m, par)[0]
                W[m, -1] = found.b
                Z[m] = found.f + found.b
                pins[m] = found.rows, found.slope
        return pins

    def weights_of(self, alpha: Array, m: int, par: Canonical) -> Array:
        """Weights of a task whose rows have coefficients ``alpha = -c l'``, with intercept 0: shape (1, columns)."""
        d = self.design.n_features
        return np.pad(self.design.pull(alpha[None])[:, :d] / self.diagonal(par)[m, :d], ((0, 0), (0, 1)))


class SmoothLinearization(Linearization):
    """Newton's system at weights: ``u = -H^-1 dF/dw`` and ``J = -H^-1 d2E/dw dtheta``."""

    def __init__(
        self,
        problem: LinearProblem,
        solution: LinearSolution,
        workspace: LossCurvature,
        factored: bool = True,
    ) -> None:
        self.problem, self.solution, self.par = problem, solution, solution.par
        par, W, Z, tasks = solution.par, solution.W, solution.decisions, np.arange(problem.n_tasks)
        workspace.refresh(Z, par, tasks)
        self.workspace = workspace
        self.phi = workspace.phi(W, par, tasks)
        """``sum_j v_j l'_j x_j`` per task and cell."""
        self.psi = {
            name: workspace.psi(name, Z, par)
            for name in problem.loss.tunable
            if name in problem.parameters.tunes
        }
        """``d phi`` in the loss's own parameters that are tuned."""
        if factored:
            self.solve = workspace.factor(par, problem.diagonal(par), tasks)
            """The inverse Hessians on right-hand sides of shape (tasks, columns, k)."""

    # Derivatives of the gradient dE/dw, by kind.

    def pulls(self) -> dict[str, tuple[Array, Array]]:
        """Penalties that are tuned, by kind: the derivative of ``dE/dw`` in the logarithm, and the curvature."""
        d = self.problem.design.n_features
        ridge = self.problem.diagonal(self.par)[:, :d]
        return {"log_lam": (ridge * self.solution.W[:, :d], ridge)} if self.par.tunes("log_lam") else {}

    def cross(self) -> Array:
        """``d2E_m/dw dtheta``: shape (tasks, columns, p)."""
        par, problem = self.par, self.problem
        out = np.zeros((problem.n_tasks, problem.n_columns, par.size))
        for kind, by_cell in [("log_c", self.phi), *self.psi.items()]:
            if par.tunes(kind):
                out += par.push(kind, (par.c[:, :, None] * by_cell).transpose(0, 2, 1))
        for kind, (pull, _) in self.pulls().items():
            out[:, : pull.shape[1]] += pull[:, :, None] * par.slope(kind, problem.target)
        return out

    def contract(self, U: Array) -> dict[str, Array]:
        """``u' d2E/dw dkind``, summed over tasks that share a kind's value."""
        out = {
            kind: self.par.c * np.einsum("md,mqd->mq", U, by_cell)
            for kind, by_cell in [("log_c", self.phi), *self.psi.items()]
        }
        for kind, (pull, _) in self.pulls().items():
            out[kind] = self.problem.by_target(pull * U[:, : pull.shape[1]])
        return out

    # Intercepts that rows at a kink hold.

    def mean_row(self, m: int) -> Array:
        """The mean of the rows that hold the intercept of a task."""
        return np.asarray(self.problem.design.dense(self.solution.pins[m][0]).mean(axis=0))

    def held(self, out: Array) -> Array:
        """Sensitivities (tasks, columns, p) with the intercepts that follow the decisions of the rows at their ends."""
        for m, (rows, slope) in self.solution.pins.items():
            kinks = slope[:, None] * self.par.slope("epsilon", m, self.problem.folds.cell[rows])
            out[m, -1] = kinks.mean(axis=0) - self.mean_row(m)[:-1] @ out[m, :-1]
        return out

    def held_back(self, U: Array, out: dict[str, Array]) -> dict[str, Array]:
        """The transpose: ``dF/depsilon`` of adjoints whose last entry is ``dF`` for a move of a held intercept."""
        if self.solution.pins and "epsilon" in self.psi:
            for m, (rows, slope) in self.solution.pins.items():
                np.add.at(out["epsilon"][m], self.problem.folds.cell[rows], U[m, -1] * slope / len(rows))
        return out

    # The contract.

    def adjoint(self, slopes: Slopes) -> Array:
        """``u_m = -H_m^-1 dF/dw_m``."""
        F_w = np.zeros_like(self.solution.W)
        for m, rows, g in slopes:
            F_w[m] = self.problem.design.pull(g[None], rows)[0]
        held = F_w[:, -1].copy()
        for m in self.solution.pins:
            F_w[m] -= held[m] * self.mean_row(m)
        out = -self.solve(F_w[:, :, None])[:, :, 0]
        for m in self.solution.pins:
            out[m, -1] = held[m]
        return np.asarray(out)

    def pullback(self, u: Array) -> dict[str, Array]:
        return self.held_back(u, self.contract(u))

    def sensitivities(self) -> Array:
        """``dw_m/dtheta``: shape (tasks, columns, p)."""
        cross = self.cross()
        for m in self.solution.pins:
            cross[m, -1] = 0.0
        return self.held(-self.solve(cross))

    def moves(self, J: Array, m: int, rows: Any) -> Array:
        return self.problem.design.decisions(np.ascontiguousarray(J[m].T), rows)

    def curvature(self, u: Array, J: Array, window: float | None) -> Array:
        """``u' d2(dE/dw)/dtheta2`` along ``w(theta)``; shape (p, p).

        Of the loss's own parameters only the tube's second derivatives are known (they vanish, on a piece); for others
        what they add is left out.
        """
        par, target = self.par, self.problem.target
        out, one_sided = np.zeros((par.size, par.size)), np.zeros((par.size, par.size))
        inner = self.contract(u)
        if par.tunes("log_c"):
            out += par.outer("log_c", inner["log_c"][:, :, None] * par.slope("log_c"))
            one_sided += par.outer("log_c", np.matmul(par.c[:, :, None] * self.gram_times(u), J))
            for kind in self.psi:
                one_sided += par.outer("log_c", inner[kind][:, :, None] * par.slope(kind))
        for kind, (pull, curvature) in self.pulls().items():
            d = pull.shape[1]
            L = par.slope(kind, target)
            out += par.outer(kind, (pull * u[:, :d])[:, :, None] * L, target)
            one_sided += par.outer(kind, (curvature * u[:, :d])[:, :, None] * J[:, :d], target)
        return out + one_sided + one_sided.T + self._third(u, J, window)

    def gram_times(self, U: Array) -> Array:
        """``sum_j v_j l''_j x_j x_j' u`` per task and cell."""
        return self.workspace.gram_times(U)

    def _third(self, U: Array, J: Array, window: float | None) -> Array:
        """The part that comes from the third derivative of the loss, or from its kinks."""
        problem, par = self.problem, self.par
        out = np.zeros((par.size, par.size))
        if problem.loss.piecewise_quadratic and window is None:
            return out
        for m in range(problem.n_tasks):
            tasks = np.array([m])
            loss, y, z = (
                problem.loss_at(par, tasks),
                problem.targets(tasks),
                self.solution.decisions[m : m + 1],
            )
            c = problem.by_row(par.c, tasks)
            factor = problem.training(np.broadcast_to(c, z.shape).copy(), tasks)[0]
            if window is not None and problem.loss.piecewise_quadratic:
                out += self._kink_density(m, loss, y, z, factor, U[m], J[m], window)
                continue
            third = loss.third(z, y)[0] * factor
            rows = np.flatnonzero(third)
            if len(rows):
                moves = problem.design.decisions(np.vstack([U[m], J[m].T]), rows)
                out += (moves[1:] * (third[rows] * moves[0])) @ moves[1:].T
        return out

    def _kink_density(
        self, m: int, loss: Loss, y: Array, z: Array, factor: Array, u: Array, J: Array, window: float
    ) -> Array:
        """Curvature that rows make by changing piece, from those within a window of the kink.

        ``l'`` moves by ``jump * max(t, 0) * dt/dz`` where ``t`` is the distance past the kink, so its second derivative
        along ``theta`` is a density at ``t = 0``. Beyond ``DENSITY_ROWS`` rows a regular subsample estimates it.
        On sparse designs with fewer curved rows than columns a row that crosses is fitted at once and bends the
        solution itself, by more than a density can tell: there no estimate is the better one.
        """
        problem, tuned = self.problem, self.par.tunes("epsilon")
        out = np.zeros((J.shape[1], J.shape[1]))
        if not tuned and not np.any(getattr(loss, "epsilon", 1.0)):
            return out  # a tube of fixed width zero has no kink
        if not problem.design.is_dense and np.count_nonzero(loss.hess(z, y)[0] * factor) <= problem.n_columns:
            return out
        width = window * self._spread(z[0], y[0]) if problem.loss.task == "regression" else window
        for distance, direction, jump in loss.kinks(z, y):
            rows = np.flatnonzero((np.abs(distance[0]) < width) & (factor > 0))
            stride = max(1, len(rows) // DENSITY_ROWS)
            rows = rows[::stride]
            if not len(rows):
                continue
            side = direction[0][rows]
            moves = problem.design.decisions(np.vstack([u, J.T]), rows)
            shift = moves[1:] * side
            if tuned:
                shift = shift - self.par.slope("epsilon", m, problem.folds.cell[rows]).T
            mass = stride * factor[rows] * jump[0][rows] * side * moves[0] / (2.0 * width)
            out += (shift * mass) @ shift.T
        return out

    def _spread(self, z: Array, y: Array) -> float:
        """Root mean square residual."""
        weight, r = self.problem.weight, z - y
        return float(np.sqrt(max(weight @ (r * r) / weight.sum(), 1e-24)))
