"""Newton's method for kernel problems in representer form, on the rows with curvature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldwise.problems.kernel import ActiveSystem, KernelPoint, KernelProblem

__all__ = ["RepresenterNewton"]


@dataclass(frozen=True)
class RepresenterNewton:
    """Newton on the active set, all tasks of a kernel problem in lockstep.

    The loss is linearised at decisions ``z``: ``alpha = alpha0 - D (z_new - z)`` with ``alpha0 = -c l'(z)``; then
    ``z_new = K alpha + b`` is a linear system on the active rows. A step that overshoots is cut by an exact line
    search along it, which needs no product with ``K``.

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
        K = problem.matrix(theta, par)
        loss, y, c = problem.loss_at(par), problem.targets(), problem.strength(par)
        M, n = problem.n_tasks, problem.n_rows
        # 1. The first step starts from any decisions; its end is a consistent point (alpha, b, z).
        Z, b = W[:, :-1].copy(), W[:, -1].copy()
        alpha, systems = np.zeros((M, n)), [None] * M
        live, steps = np.arange(M), 0
        target_alpha, target_b = self._step(problem, K, loss, y, c, Z, b, live, systems)
        alpha[:], b[:] = target_alpha, target_b
        Z = alpha @ K + b[:, None]
        while True:
            # 2. Which tasks are finished?
            slopes = loss.grad(Z, y) * c
            gap = np.linalg.norm(alpha + slopes, axis=1)
            if problem.intercept:
                gap += np.abs(slopes.sum(axis=1)) / np.sqrt(n)
            live = np.flatnonzero(gap > self.tol * np.maximum(np.linalg.norm(alpha, axis=1), 1e-300))
            steps += 1
            if not len(live) or steps > self.max_iter:
                break
            # 3. A Newton step of the others, cut where it overshoots.
            new_alpha, new_b = self._step(problem, K, loss, y, c, Z, b, live, systems)
            d_alpha, d_b = new_alpha - alpha[live], new_b - b[live]
            dZ = d_alpha @ K + d_b[:, None]
            for i, m in enumerate(live):
                row = 0 if len(y) == 1 else m
                t = _line_search(loss, y[row], c[m], m, Z[m], dZ[i], alpha[m], d_alpha[i], d_b[i])
                alpha[m] += t * d_alpha[i]
                b[m] += t * d_b[i]
                Z[m] += t * dZ[i]
        Z = alpha @ K + b[:, None]
        converged = np.ones(M, dtype=bool)
        converged[live] = False
        return finish(problem, theta, alpha, b, Z, converged, steps)

    def _step(self, problem, K, loss, y, c, Z, b, live, systems):
        """End points ``(alpha, b)`` of the Newton steps of the live tasks."""
        slopes, bends = loss.grad(Z, y) * c, loss.hess(Z, y) * c
        alpha0 = -slopes
        reach = alpha0[live] @ K
        out, intercepts = alpha0[live].copy(), np.zeros(len(live))
        for i, m in enumerate(live):
            rows = np.flatnonzero(bends[m] > 1e-14 * c[m].max())
            D = bends[m][rows]
            system = ActiveSystem.build(K, rows, D, problem.intercept)
            systems[m] = system
            if problem.intercept and system.mass <= 1e-12 * c[m].sum():
                # No curvature: the intercept takes a step of the size of the mean slope.
                intercepts[i] = b[m] + alpha0[m].sum() / max(c[m].sum(), 1e-300)
                continue
            z = Z[m][rows]
            r = reach[i][rows] + K[np.ix_(rows, rows)] @ (D * z)
            Du, intercepts[i] = system.solve(r, float(alpha0[m].sum() + D @ z))
            out[i, rows] -= Du - D * z
        return out, intercepts


def finish(problem: KernelProblem, theta, alpha, b, Z, converged, steps) -> KernelPoint:
    """The point of these solutions, with the systems that derivatives need."""
    par = problem.parameters(theta)
    K = problem.matrix(theta, par)
    c = problem.strength(par)
    bends = problem.loss_at(par).hess(Z, problem.targets()) * c
    systems = []
    for m in range(problem.n_tasks):
        rows = np.flatnonzero(bends[m] > 1e-14 * c[m].max())
        systems.append(ActiveSystem.build(K, rows, bends[m][rows], problem.intercept))
    W = np.column_stack([Z, b])
    return KernelPoint(theta, par, W, Z, alpha, systems, converged, steps, problem.stamp)


def _line_search(loss, y, c, m, z, dz, alpha, d_alpha, d_b, rounds: int = 30) -> float:
    """Step length that minimises the objective along the step; 1 when the full step does not overshoot.

    With ``K d_alpha = dz - d_b`` the derivative is ``(alpha + t d_alpha)'(dz - d_b) + sum c l'(z + t dz) dz``.
    """
    push = dz - d_b
    linear, quadratic = float(alpha @ push), float(d_alpha @ push)
    if "epsilon" in loss.tunable and np.ndim(loss.epsilon) == 2:
        loss = loss.replace(epsilon=loss.epsilon[m])
    weight = c * dz

    def derivative(t: float) -> float:
        return linear + t * quadratic + float(weight @ loss.grad(z + t * dz, y))

    first, last = derivative(0.0), derivative(1.0)
    if last <= 0.1 * abs(first) or first >= 0:
        return 1.0
    low, high, f_low, f_high = 0.0, 1.0, first, last
    for i in range(rounds):
        t = 0.5 * (low + high) if i % 3 == 2 else low + (high - low) * f_low / (f_low - f_high)
        f = derivative(t)
        if abs(f) <= 0.01 * abs(first):
            return t
        if f < 0:
            low, f_low = t, f
        else:
            high, f_high = t, f
    return low if low > 0 else high
