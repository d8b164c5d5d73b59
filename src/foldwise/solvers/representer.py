"""Newton's method for kernel problems in representer form, on the rows with curvature."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foldwise.problems.kernel import KernelPoint, KernelProblem

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
        gram = problem.gram(theta, par)
        loss, y, c = problem.loss_at(par), problem.targets(), problem.strength(par)
        M, n = problem.n_tasks, problem.n_rows
        # 1. The first step starts from any decisions; its end is a consistent point (alpha, b, z).
        Z, b = W[:, :-1].copy(), W[:, -1].copy()
        live, steps = np.arange(M), 0
        alpha, b = self._step(problem, gram, loss, y, c, Z, b, live)
        Z = gram.product(alpha) + b[:, None]
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
            new_alpha, new_b = self._step(problem, gram, loss, y, c, Z, b, live)
            d_alpha, d_b = new_alpha - alpha[live], new_b - b[live]
            dZ = gram.product(d_alpha) + d_b[:, None]
            for i, m in enumerate(live):
                row = 0 if len(y) == 1 else m
                t = _line_search(loss, y[row], c[m], m, Z[m], dZ[i], alpha[m], d_alpha[i], d_b[i])
                alpha[m] += t * d_alpha[i]
                b[m] += t * d_b[i]
                Z[m] += t * dZ[i]
        Z = gram.product(alpha) + b[:, None]
        converged = np.ones(M, dtype=bool)
        converged[live] = False
        return KernelPoint(theta, par, np.column_stack([Z, b]), Z, alpha, converged, steps)

    def _step(self, problem, gram, loss, y, c, Z, b, live):
        """End points ``(alpha, b)`` of the Newton steps of the live tasks."""
        bends = (loss.hess(Z, y) * c)[live]
        out = -(loss.grad(Z, y) * c)[live]
        bends[bends <= 1e-14 * c[live].max(axis=1, keepdims=True)] = 0.0
        # alpha = out - D (z_new - z): the part out + D z is known, and so is its reach.
        known = out + bends * Z[live]
        reach, intercepts = gram.product(known), np.zeros(len(live))
        for i, m in enumerate(live):
            rows = np.flatnonzero(bends[i])
            system = gram.system(rows, bends[i][rows], problem.intercept)
            if problem.intercept and system.mass <= 1e-12 * c[m].sum():
                # No curvature: the intercept takes a step of the size of the mean slope.
                intercepts[i] = b[m] + out[i].sum() / max(c[m].sum(), 1e-300)
                continue
            Du, intercepts[i] = system.solve(reach[i][rows], float(known[i].sum()))
            out[i, rows] = known[i][rows] - Du
        return out, intercepts


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
