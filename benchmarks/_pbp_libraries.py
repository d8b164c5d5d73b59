"""The subproblem of PBP for general libraries, each in the form that suits it best."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

__all__ = ["LIBRARIES"]


def dense(model, tau: float, region) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``P, c`` in all steps, and bounds on all of them."""
    M, D, p = len(model.A), len(model.g[0]), len(model.q)
    size = M * D + p
    P, c = np.zeros((size, size)), np.zeros(size)
    theta = slice(M * D, size)
    P[theta, theta], c[theta] = model.Q, model.q
    b = 2.0 * model.beta
    for m in range(M):
        part = slice(m * D, (m + 1) * D)
        H, K = model.H[m], model.K[m]
        P[part, part] = model.A[m] + b * H @ H
        P[part, theta] = b * H @ K
        P[theta, part] = P[part, theta].T
        P[theta, theta] += b * K.T @ K
        c[part] = model.g[m] + b * H @ model.R[m]
        c[theta] += b * K.T @ model.R[m]
    P.flat[:: size + 1] += tau
    low, high = np.full(size, -np.inf), np.full(size, np.inf)
    low[theta], high[theta] = region.low, region.high
    return P, c, low, high


def clarabel(model, tau: float, region) -> Callable[[], np.ndarray]:
    """Clarabel on the sparse arrow matrix."""
    import clarabel as library

    P, c, low, high = dense(model, tau, region)
    bounded = np.flatnonzero(np.isfinite(low))
    eye = sp.eye(len(c), format="csr")[bounded]
    A = sp.vstack([eye, -eye]).tocsc()
    b = np.concatenate([high[bounded], -low[bounded]])
    upper = sp.triu(sp.csc_matrix(P)).tocsc()
    settings = library.DefaultSettings()
    settings.verbose = False

    def solve() -> np.ndarray:
        solver = library.DefaultSolver(upper, c, A, b, [library.NonnegativeConeT(len(b))], settings)
        return np.array(solver.solve().x)

    return solve


def piqp_dense(model, tau: float, region) -> Callable[[], np.ndarray]:
    """PIQP, dense."""
    import piqp as library

    P, c, low, high = dense(model, tau, region)
    P = np.asfortranarray(P)

    def solve() -> np.ndarray:
        solver = library.DenseSolver()
        solver.setup(P, c, x_l=low, x_u=high)
        solver.solve()
        return np.array(solver.result.x)

    return solve


def piqp_sparse(model, tau: float, region) -> Callable[[], np.ndarray]:
    """PIQP on the sparse arrow matrix."""
    import piqp as library

    P, c, low, high = dense(model, tau, region)
    matrix = sp.csc_matrix(P)

    def solve() -> np.ndarray:
        solver = library.SparseSolver()
        solver.setup(matrix, c, x_l=low, x_u=high)
        solver.solve()
        return np.array(solver.result.x)

    return solve


def proxqp(model, tau: float, region) -> Callable[[], np.ndarray]:
    """ProxQP, dense, with bounds as bounds."""
    from proxsuite import proxqp as library

    P, c, low, high = dense(model, tau, region)

    def solve() -> np.ndarray:
        solver = library.dense.QP(len(c), 0, 0, True)
        solver.init(P, c, None, None, None, None, None, low, high)
        solver.solve()
        return np.array(solver.results.x)

    return solve


LIBRARIES = {
    "clarabel": clarabel,
    "piqp, dense": piqp_dense,
    "piqp, sparse": piqp_sparse,
    "proxqp": proxqp,
}
