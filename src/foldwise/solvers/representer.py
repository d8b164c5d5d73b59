"""Newton's method for kernel problems in representer form, on the rows with curvature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldwise.problems.kernel import KernelPoint, KernelProblem
from foldwise.solvers.line_search import step_length

__all__ = ["RepresenterNewton"]


@dataclass(frozen=True)
class RepresenterNewton:
    """Newton on the active set, all tasks of a kernel problem in lockstep.

    The loss is linearised at decisions ``z``: ``alpha = alpha0 - D (z_new - z)`` with ``alpha0 = -c l'(z)``; then
    ``z_new = K alpha + b`` is a linear system on the active rows. It is solved for the change of ``alpha``, so that
    errors of rounding shrink from step to step. A step that overshoots is cut by an exact line search along it, which
    needs no product with ``K``. Where hardly any row is curved the intercept goes to where the slopes balance.

    Parameters
    ----------
    tol : float
        ``||alpha + c l'(K alpha + b)||`` relative to ``||alpha||`` at which a task is finished.
    max_iter : int
    """

    tol: float = 1e-9
    max_iter: int = 100

    def solve(self, problem: KernelProblem, theta: np.ndarray, W: np.ndarray) -> KernelPoint:
        """Solve every task at ``theta``, starting from decisions ``W`` (tasks, n + 1); returns a ``KernelPoint``."""
        par = problem.parameters(theta)
        gram = problem.gram(theta, par)
        loss, y, c = problem.loss_at(par), problem.targets(), problem.strength(par)
        M, n = problem.n_tasks, problem.n_rows
        floor = 1e-10 * np.linalg.norm(c, axis=1)
        # 1. From decisions to a consistent point (alpha, b, z): zero, or the end of a first step from a warm start.
        alpha, b, Z = self._enter(problem, gram, loss, y, c, W)
        live, steps = np.arange(M), 0
        while True:
            # 2. Which tasks are finished?
            slopes = loss.grad(Z, y) * c
            gap = np.linalg.norm(alpha + slopes, axis=1)
            if problem.intercept:
                gap += np.abs(slopes.sum(axis=1)) / np.sqrt(n)
            live = np.flatnonzero(gap > self.tol * np.maximum(np.linalg.norm(alpha, axis=1), floor))
            steps += 1
            if not len(live) or steps > self.max_iter:
                break
            # 3. A Newton step of the others, cut where it overshoots.
            d_alpha, d_b = self._step(problem, gram, loss, y, c, Z, alpha, slopes, live)
            dZ = gram.product(d_alpha) + d_b[:, None]
            for i, m in enumerate(live):
                own, row = _own(loss, int(m)), y[0 if len(y) == 1 else m]
                t = _line_search(own, row, c[m], Z[m], dZ[i], alpha[m], d_alpha[i], d_b[i])
                alpha[m] += t * d_alpha[i]
                b[m] += t * d_b[i]
                Z[m] += t * dZ[i]
                if problem.intercept and t < SHORT:
                    shift = _balance(own, row, c[m], Z[m])
                    b[m] += shift
                    Z[m] += shift
        Z = gram.product(alpha) + b[:, None]
        converged = np.ones(M, dtype=bool)
        converged[live] = False
        return KernelPoint(theta, par, np.column_stack([Z, b]), Z, alpha, converged, steps)

    def _enter(self, problem, gram, loss, y, c, W):
        """A consistent point near the decisions ``W``; zero for tasks that it does not serve."""
        Z, b = W[:, :-1], W[:, -1].copy()
        alpha = np.zeros_like(Z)
        warm = np.flatnonzero(Z.any(axis=1) | (b != 0))
        if len(warm):
            slopes = loss.grad(Z, y) * c
            d_alpha, shift = self._step(problem, gram, loss, y, c, Z, alpha, slopes, warm, b)
            alpha[warm] = d_alpha
            b[warm] += shift
        Z = gram.product(alpha) + b[:, None]
        values = 0.5 * np.sum(alpha * (Z - b[:, None]), axis=1) + np.sum(c * loss.value(Z, y), axis=1)
        worse = ~(values <= np.sum(c * loss.value(np.zeros_like(Z), y), axis=1))
        alpha[worse], b[worse], Z[worse] = 0.0, 0.0, 0.0
        return alpha, b, Z

    def _step(self, problem, gram, loss, y, c, Z, alpha, slopes, live, b=None):
        """Changes ``(d_alpha, d_b)`` of the Newton steps of the live tasks.

        With ``r = alpha + c l'(z)`` and ``d_alpha = -r - D dz`` the decisions change by ``dz = K d_alpha + d_b``, and
        ``alpha + d_alpha`` sums to zero. ``b`` is given when ``Z`` is not ``K alpha + b``: their difference is added.
        """
        bends = (loss.hess(Z, y) * c)[live]
        bends[bends <= 1e-14 * c[live].max(axis=1, keepdims=True)] = 0.0
        r = (alpha + slopes)[live]
        reach = -gram.product(r)
        if b is not None:
            reach += gram.product(alpha[live]) + b[live][:, None] - Z[live]
        out, shift = -r, np.zeros(len(live))
        for i, m in enumerate(live):
            rows = np.flatnonzero(bends[i])
            system = gram.system(rows, bends[i][rows], problem.intercept)
            total = -float(slopes[m].sum())
            if problem.intercept and system.mass <= 1e-12 * c[m].sum():
                # No curvature: balance the slopes, or when they are balanced go to where they say.
                move = _balance(_own(loss, m), y[0 if len(y) == 1 else m], c[m], Z[m])
                if abs(move) > 1e-6 * (1.0 + np.abs(Z[m]).max()):
                    out[i], shift[i] = 0.0, move
                continue
            Du, shift[i] = system.solve(reach[i][rows], total)
            out[i, rows] -= Du
        return out, shift


SHORT = 0.1
"""Part of a Newton step below which the intercept is balanced on its own afterwards."""


def _own(loss, m: int):
    """The loss of one task."""
    if "epsilon" in loss.tunable and np.ndim(loss.epsilon) == 2:
        return loss.replace(epsilon=loss.epsilon[m])
    return loss


def _balance(loss, y, c, z, rounds: int = 50) -> float:
    """Change of the intercept to the middle of where ``sum c l'(z)`` is about zero; bisection for its two ends."""

    def total(shift: float) -> float:
        return float(c @ loss.grad(z + shift, y))

    trains = c > 0
    small = 1e-6 * float(c @ np.abs(loss.grad(z, y)))
    far = 4.0 * float(np.abs(z[trains]).max() + np.abs(y[trains]).max() + 1.0)
    ends = []
    for side in (-1.0, 1.0):
        inner, outer = -side * far, side * far
        if side * total(outer) > small:
            for _ in range(rounds):
                middle = 0.5 * (inner + outer)
                inner, outer = (inner, middle) if side * total(middle) > small else (middle, outer)
        ends.append(outer)
    return 0.5 * (ends[0] + ends[1])


def _line_search(loss, y, c, z, dz, alpha, d_alpha, d_b) -> float:
    """Step length that minimises the objective along the step; 1 when the full step does not overshoot.

    With ``K d_alpha = dz - d_b`` the derivative is ``(alpha + t d_alpha)'(dz - d_b) + sum c l'(z + t dz) dz``.
    """
    push = dz - d_b
    linear, quadratic = float(alpha @ push), float(d_alpha @ push)
    weight = c * dz

    def derivative(t: float) -> float:
        return linear + t * quadratic + float(weight @ loss.grad(z + t * dz, y))

    return step_length(derivative, overshoot=0.1)
