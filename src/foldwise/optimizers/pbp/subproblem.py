r"""The convex subproblem of PBP: an arrow-shaped quadratic program, solved by a Schur complement.

For a step ``(d_1 .. d_M, delta)`` of the weights of all tasks and of the hyper-parameters, (45) of moore2011 is

.. math::  \sum_m \big[ g_m' d_m + \tfrac12 d_m' A_m d_m + \beta \| R_m + H_m d_m + K_m \delta \|^2
           + \tfrac\tau2 \|d_m\|^2 \big] + q'\delta + \tfrac12 \delta' Q \delta + \tfrac\tau2 \|\delta\|^2

within ``low <= delta <= high`` and ``rows delta <= limit``. Tasks meet only in the few hyper-parameters: each is
eliminated by one Cholesky factor of its own matrix, and what is left is a quadratic program of the size of ``delta``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy.linalg import solve_triangular

from foldwise.linalg import Bordered, cholesky, cholesky_solve
from foldwise.optimizers.quadratic import box_qp

__all__ = ["ArrowModel", "Polyhedron", "least_distance", "polyhedral_qp"]

MODEL = "the model of the outer objective in the weights"


@dataclass(frozen=True, eq=False)
class Polyhedron:
    """Where a step may go: ``low <= x <= high`` and ``rows x <= limit``."""

    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray
    limit: np.ndarray

    def inequalities(self) -> tuple[np.ndarray, np.ndarray]:
        """All constraints as ``G x <= h``, rows of length one."""
        p = len(self.low)
        size = np.linalg.norm(self.rows, axis=1)
        rows, limit = self.rows[size > 0] / size[size > 0, None], self.limit[size > 0] / size[size > 0]
        return np.vstack([rows, np.eye(p), -np.eye(p)]), np.concatenate([limit, self.high, -self.low])

    def active(self, tol: float = 1e-12) -> np.ndarray:
        """Outward normals, one per row, of the constraints that are tight at ``x = 0``."""
        p = len(self.low)
        size = np.maximum(np.linalg.norm(self.rows, axis=1), 1e-300)
        parts = [
            -np.eye(p)[self.low >= -tol],
            np.eye(p)[self.high <= tol],
            self.rows[self.limit <= tol * size],
        ]
        return np.vstack(parts)


@dataclass(eq=False)
class ArrowModel:
    """The convex approximation around a stability centre, in scaled variables.

    Attributes
    ----------
    A, H : list of ndarray, shape (D, D)
        Second derivative of the outer objective and derivative of the residual in the weights, one per task.
    K : list of ndarray, shape (D, p)
        Derivative of the residual in the hyper-parameters.
    g, R : list of ndarray, shape (D,)
        Gradient of the outer objective, and the residual.
    q, Q : ndarray, shape (p,) and (p, p)
        What depends on the hyper-parameters alone.
    beta : float
    """

    A: list[np.ndarray]
    H: list[np.ndarray]
    K: list[np.ndarray]
    g: list[np.ndarray]
    R: list[np.ndarray]
    q: np.ndarray
    Q: np.ndarray
    beta: float
    _fixed: list[tuple[np.ndarray, np.ndarray]] = field(init=False, default_factory=list)

    def gradient(self) -> tuple[list[np.ndarray], np.ndarray]:
        """Gradient at the centre: one part per task, and the part of the hyper-parameters."""
        b = 2.0 * self.beta
        weights = [g + b * (H @ R) for g, H, R in zip(self.g, self.H, self.R, strict=True)]
        return weights, self.q + b * sum(K.T @ R for K, R in zip(self.K, self.R, strict=True))

    def change(self, steps: list[np.ndarray], delta: np.ndarray) -> float:
        """The model at the step less its value at the centre; without the proximal term, as (38) needs it."""
        total = float(self.q @ delta + 0.5 * delta @ self.Q @ delta)
        for A, H, K, g, R, d in zip(self.A, self.H, self.K, self.g, self.R, steps, strict=True):
            move = H @ d + K @ delta
            total += float(g @ d + 0.5 * d @ (A @ d) + self.beta * (2.0 * R @ move + move @ move))
        return total

    def weights_only(self) -> list[np.ndarray]:
        """The minimiser without proximal term while the hyper-parameters stay."""
        b, out = 2.0 * self.beta, []
        for A, H, g, R in zip(self.A, self.H, self.g, self.R, strict=True):
            out.append(-_newton_step(A + b * (H @ H), g + b * (H @ R)))
        return out

    def gain_of_weights(self) -> Callable[[float], float]:
        """A function of ``beta``: how far the weights alone could lower the model with it."""
        squares, pulls = [H @ H for H in self.H], [H @ R for H, R in zip(self.H, self.R, strict=True)]

        def gain(beta: float) -> float:
            total = 0.0
            for A, HH, g, HR in zip(self.A, squares, self.g, pulls, strict=True):
                slope = g + 2.0 * beta * HR
                total += 0.5 * float(slope @ _newton_step(A + 2.0 * beta * HH, slope))
            return total

        return gain

    def prepare(self) -> None:
        """What every ``tau`` shares: ``A + 2 beta H^2`` and ``H [K, R]`` of each task."""
        self._fixed = []
        for A, H, K, R in zip(self.A, self.H, self.K, self.R, strict=True):
            self._fixed.append((A + (2.0 * self.beta) * (H @ H), H @ np.column_stack([K, R])))

    def solve(self, tau: float, region: Polyhedron) -> tuple[list[np.ndarray], np.ndarray]:
        """The minimiser: one step per task, and the step of the hyper-parameters."""
        if not self._fixed:
            self.prepare()
        p, b = len(self.q), 2.0 * self.beta
        S, r = self.Q + tau * np.eye(p), self.q.copy()
        eliminated = []
        # 1. Eliminate the weights. With Y = M^-1 H K the rest K - b H Y of the residual is small where b is large, and
        #    both terms of S are sums of squares: nothing cancels.
        for A, H, K, g, R, (base, HKR) in zip(
            self.A, self.H, self.K, self.g, self.R, self._fixed, strict=True
        ):
            M = base.copy()
            M.flat[:: len(M) + 1] += tau
            rhs = HKR.copy()
            rhs[:, p] = g + b * HKR[:, p]
            solved = cholesky_solve(cholesky(M, name=MODEL), rhs)
            Y, alone = solved[:, :p], solved[:, p]
            V = K - b * (H @ Y)
            S += b * (b * (Y.T @ (A @ Y + tau * Y)) + V.T @ V)
            r += b * (V.T @ R - Y.T @ g)
            eliminated.append((Y, alone))
        # 2. The small program, and back.
        delta = polyhedral_qp(0.5 * (S + S.T), r, region)
        return [-alone - b * (Y @ delta) for Y, alone in eliminated], delta


def _newton_step(M: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """``M^-1 slope`` for a matrix that may be singular to rounding; of zeros, ``slope`` itself."""
    size = float(np.trace(M))
    return cholesky_solve(cholesky(M, ridge=1e-14, unit=size, name=MODEL), slope) if size > 0 else slope


def polyhedral_qp(S: np.ndarray, r: np.ndarray, region: Polyhedron) -> np.ndarray:
    """Minimise ``r'x + x'Sx/2`` in a polyhedron that contains 0, for positive definite ``S`` and few variables.

    Without rows this is :func:`~foldwise.optimizers.quadratic.box_qp`. With rows it is a least-distance problem, solved
    by non-negative least squares; the active set found there then gives the solution to full accuracy.

    >>> region = Polyhedron(np.full(2, -5.0), np.full(2, 5.0), np.array([[1.0, 1.0]]), np.array([1.0]))
    >>> polyhedral_qp(np.eye(2), np.array([-2.0, -1.0]), region).round(12)
    array([1., 0.])
    """
    if not len(region.rows):
        return box_qp(S, r, region.low, region.high)
    G, h = region.inequalities()
    h = np.maximum(h, 0.0)
    x = least_distance(S, r, G, h)
    reach = G @ x
    over = reach > h + 1e-11 * (1.0 + np.abs(x).max())
    x = x * (float(np.min(h[over] / reach[over])) if over.any() else 1.0)
    return np.clip(x, region.low, region.high)


def least_distance(S: np.ndarray, r: np.ndarray, G: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Minimise ``r'x + x'Sx/2`` subject to ``G x <= h``; rows of ``G`` have length one.

    In ``z = L'(x - x0)`` with ``S = L L'`` and ``x0 = -S^-1 r`` this asks for the shortest ``z`` with ``B z <= b``,
    whose dual is non-negative least squares (Lawson and Hanson).
    """
    from scipy.optimize import nnls

    p = len(r)
    L = cholesky(S, name="the model of the outer objective")
    centre = -cholesky_solve(L, r)
    if np.all(G @ centre <= h):
        return centre
    B = solve_triangular(L, G.T, lower=True).T
    length = np.linalg.norm(B, axis=1)
    b = (h - G @ centre) / length
    unit = float(np.abs(b).max())
    E = np.vstack([-(B / length[:, None]).T, -b[None] / unit])
    target = np.zeros(p + 1)
    target[p] = 1.0
    u, distance = nnls(E, target, maxiter=100 * E.shape[1])
    if distance <= 1e-10:
        raise ValueError(
            "the constraints on the hyper-parameters cannot be met within the bounds; relax them"
        )
    residual = E @ u - target
    x = centre + solve_triangular(L, -unit * residual[:p] / residual[p], lower=True, trans=1)
    # The same on the active set that was found, without the rounding of the least squares.
    N = G[u > 0]
    exact, _ = Bordered(partial(cholesky_solve, L), N.T).solve(-r, h[u > 0])
    return exact if np.all(G @ exact <= h + 1e-10 * (1.0 + np.abs(h))) else x
