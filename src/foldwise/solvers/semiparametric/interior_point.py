"""A primal-dual interior point method whose linear systems have the size of a low-rank factor and the basis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.linalg import cholesky, cholesky_solve
from foldwise.solvers.semiparametric.dual import rebalanced

__all__ = ["InteriorPoint", "interior_point"]


@dataclass(eq=False)
class InteriorPoint:
    """Where the method ended: coefficients on their bounds where they belong, and the multipliers."""

    delta: np.ndarray
    eta: np.ndarray
    steps: int
    accepted: bool


def interior_point(
    L: np.ndarray,
    Q: np.ndarray,
    y: np.ndarray,
    C: np.ndarray,
    epsilon: np.ndarray,
    accept: Callable[[np.ndarray, np.ndarray], bool],
    *,
    tol: float,
    spread: np.ndarray | None = None,
    goal: np.ndarray | None = None,
    max_iter: int = 100,
    stop: Callable[[], bool] = lambda: False,
) -> InteriorPoint:
    r"""Minimise ``1/2 |L delta|^2 - y'delta + epsilon'|delta|`` with ``Q delta = goal`` and ``|delta| <= C``.

    ``delta = a - b`` with ``0 <= a, b <= C``. With the complementary pairs eliminated, a Newton step is
    ``d delta = c - W (L'p + Q'd eta)``, where ``p = L d delta`` and ``d eta`` solve a system with the matrix
    ``diag(I, 0) + G W G'``, ``G = (L; Q)``. Predictor and corrector steps after Mehrotra share its factor.

    Parameters
    ----------
    L : ndarray, shape (r, n)
    Q : ndarray, shape (K, n)
        Rows are independent.
    y, C, epsilon : ndarray, shape (n,)
        ``C`` positive.
    accept : callable
        Gets ``delta`` with small distances to the bounds removed, and ``eta``; True ends the method.
    tol : float
        Violation that is aimed at, in units of ``y``.
    spread : ndarray, shape (n,), optional
        A diagonal that is added to ``L'L``.
    goal : ndarray, shape (K,), optional
        Zero by default.
    max_iter : int
    stop : callable
        Asked before every step; True ends the method.
    """
    from foldwise.solvers.semiparametric import _fast

    r, K, n = len(L), len(Q), len(y)
    G = np.concatenate([L, Q])
    scaled = np.empty_like(G)
    # 1. Start in the middle of the box, with the basis fitted to y: every residual is zero there and stays so.
    goal = np.zeros(K) if goal is None else goal
    eta = np.linalg.lstsq(Q @ Q.T, Q @ y, rcond=None)[0] if K else np.zeros(0)
    gap = (eta @ Q if K else 0.0) - y
    Z, D = _fast.first_point(gap, C, epsilon), np.zeros((8, n))
    W = np.empty(n)
    best = InteriorPoint(np.zeros(n), eta, 0, False)
    size = float(C.mean())
    for step in range(max_iter):
        # 2. Near the end, look at the point with its coefficients put on their bounds.
        mu = _fast.complementarity(Z, D, 0.0)
        if mu <= tol * size:
            delta = rebalanced(_fast.snapped(Z, C, 0.2 * tol), C, Q, goal)
            best = InteriorPoint(delta, eta.copy(), step, accept(delta, eta))
        if best.accepted or stop() or not mu > 1e-15 * tol * size or not np.all(Z > 0):  # on the boundary
            break
        # 3. The matrix, factored once for two steps.
        _fast.weights(Z, W)
        damped = 1.0 if spread is None else 1.0 / (1.0 + W * spread)
        W *= damped
        np.multiply(G, np.sqrt(W), out=scaled)
        N = scaled @ scaled.T
        N.flat[: r * (r + K + 1) : r + K + 1] += 1.0
        factor = cholesky(N)
        short = Q @ (Z[0] - Z[4]) - goal
        system = _System(L, Q, G, factor, W, damped, spread, short)
        # 4. Predictor: aim at complementarity zero. Its success says how far the corrector may aim.
        length, _, _ = system.step(Z, D, gap, epsilon, 0.0, False)
        sigma = (_fast.complementarity(Z, D, length) / mu) ** 3
        # 5. Corrector, and a step nearly to the boundary.
        length, d_eta, move = system.step(Z, D, gap, epsilon, sigma * mu, True)
        length = min(1.0, 0.995 * length)
        _fast.advance(Z, D, length)
        eta = eta + length * d_eta
        gap += length * move
    return best


@dataclass(frozen=True, eq=False)
class _System:
    """The linear system of one iteration, factored."""

    L: np.ndarray
    Q: np.ndarray
    G: np.ndarray
    factor: np.ndarray
    W: np.ndarray
    damped: Any
    spread: np.ndarray | None
    short: np.ndarray

    def step(
        self,
        Z: np.ndarray,
        D: np.ndarray,
        gap: np.ndarray,
        epsilon: np.ndarray,
        target: float,
        second: bool,
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Fill ``D`` for this complementarity, with second-order terms of the ``D`` that is there if ``second``.

        The longest feasible step, the change of ``eta`` and that of the decisions.
        """
        from foldwise.solvers.semiparametric import _fast

        own = np.empty(len(gap))
        _fast.right_side(Z, D, gap, epsilon, target, second, own)
        own *= self.damped
        x = cholesky_solve(self.factor, np.r_[self.L @ own, self.Q @ own + self.short])
        move = x @ self.G
        if self.spread is not None:
            move += self.spread * (own - self.W * move)
        return _fast.directions(Z, D, gap, epsilon, target, second, move), x[len(self.L) :], move
