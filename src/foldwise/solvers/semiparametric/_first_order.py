"""Compiled first-order solvers of a working set: PDSG (Algorithm 2 of lee2009) and MPD (Kienzle and Schoelkopf).

Both work on ``delta`` of the rows, ``e = y - K delta`` and ``total = Q delta``, and the multipliers ``eta``. A row's
pull is ``e_i - Q_i'(eta + rho * total)``; the part with ``rho`` is an augmented Lagrangian's and vanishes at the
solution.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["curvature", "mpd", "pdsg"]

TAU = 1e-8
"""Added to the diagonal of a Newton block, (9) of lee2009."""


@njit(cache=True)
def curvature(K: np.ndarray, Q: np.ndarray, delta: np.ndarray, C: np.ndarray, sweeps: int) -> np.ndarray:
    """Estimate ``Q_F K_FF^-1 Q_F'`` by its diagonal: sweeps of Gauss-Seidel over the free rows."""
    n, m = K.shape[0], Q.shape[0]
    count = 0
    rows = np.empty(n, np.int64)
    for i in range(n):
        if delta[i] != 0.0 and abs(delta[i]) < C[i]:
            rows[count] = i
            count += 1
    if count < 2 * m + 2:
        count = 0
        for i in range(n):
            if C[i] > 0.0:
                rows[count] = i
                count += 1
    out = np.empty(m)
    for k in range(m):
        z = np.zeros(count)
        for _ in range(sweeps):
            for a in range(count):
                i = rows[a]
                rest = Q[k, i]
                for b in range(count):
                    rest -= K[i, rows[b]] * z[b]
                z[a] += rest / (K[i, i] + TAU)
        total = 0.0
        for a in range(count):
            total += Q[k, rows[a]] * z[a]
        out[k] = max(total, 1e-12)
    return out


@njit(cache=True)
def _interval(delta: float, C: float, epsilon: float) -> tuple[float, float]:
    """Where a row's pull may be for its coefficient, (4a) to (4c)."""
    if C <= 0.0:
        return -np.inf, np.inf
    if delta == 0.0:
        return -epsilon, epsilon
    if delta > 0.0:
        return epsilon, np.inf if delta >= C else epsilon
    return -np.inf if delta <= -C else -epsilon, -epsilon


@njit(cache=True)
def _violations(
    K: np.ndarray,
    Q: np.ndarray,
    e: np.ndarray,
    price: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    i: int,
    di: float,
    j: int,
    dj: float,
    pull: np.ndarray,
    wrong: np.ndarray,
) -> None:
    """Bring ``e`` up to date after steps of rows ``i`` and ``j``, and fill ``pull`` and ``wrong``."""
    n = e.shape[0]
    if di != 0.0:
        row = K[i]
        for l in range(n):
            e[l] -= di * row[l]
    if dj != 0.0:
        row = K[j]
        for l in range(n):
            e[l] -= dj * row[l]
    for l in range(n):
        pull[l] = e[l]
    for k in range(price.shape[0]):
        row, weight = Q[k], price[k]
        for l in range(n):
            pull[l] -= weight * row[l]
    for l in range(n):
        below, above = low[l] - pull[l], pull[l] - high[l]
        wrong[l] = below if below > above else above


@njit(cache=True)
def _half(delta: float, pull: float, C: float) -> tuple[float, float, float]:
    """Ends of the part of the box in which a row moves, and the side on which it lies."""
    if delta > 0.0 or (delta == 0.0 and pull > 0.0):
        return 0.0, C, 1.0
    return -C, 0.0, -1.0


@njit(cache=True)
def pdsg(
    K: np.ndarray,
    Q: np.ndarray,
    e: np.ndarray,
    delta: np.ndarray,
    C: np.ndarray,
    epsilon: np.ndarray,
    total: np.ndarray,
    eta: np.ndarray,
    G: np.ndarray,
    rho: np.ndarray,
    rate: float,
    tol: float,
    balance: float,
    max_steps: int,
) -> tuple[int, float, float]:
    """Algorithm 2 with sub-working sets of two rows; in place. Steps taken and the two violations.

    ``G`` is the positive estimate of the dual curvature, ``rho`` the weights of the augmented term, ``rate`` the part
    of a dual Newton step that is taken after every primal one, and ``balance`` the unit of ``total``.
    """
    n, m = K.shape[0], Q.shape[0]
    price, pull, wrong = np.empty(m), np.empty(n), np.empty(n)
    low, high = np.empty(n), np.empty(n)
    for l in range(n):
        low[l], high[l] = _interval(delta[l], C[l], epsilon[l])
    dual = primal = 0.0
    i = j = 0
    di = dj = 0.0
    for step in range(max_steps + 1):
        primal = 0.0
        for k in range(m):
            price[k] = eta[k] + rho[k] * total[k]
            primal = max(primal, abs(total[k]) / balance)
        # 2. The two rows with the largest violations.
        _violations(K, Q, e, price, low, high, i, di, j, dj, pull, wrong)
        first = second = 0.0
        i = j = -1
        for l in range(n):
            if wrong[l] > second:
                if wrong[l] > first:
                    second, j = first, i
                    first, i = wrong[l], l
                else:
                    second, j = wrong[l], l
        dual = first
        if (dual <= tol and primal <= tol) or step == max_steps:
            return step, dual, primal
        # 3. Primal step: a Newton step of both rows if they are off their bounds, else a scaled gradient step.
        di = dj = 0.0
        if i >= 0:
            ai, bi, si = _half(delta[i], pull[i], C[i])
            gi, hii = pull[i] - si * epsilon[i], K[i, i] + TAU
            for k in range(m):
                hii += rho[k] * Q[k, i] ** 2
            if j >= 0:
                aj, bj, sj = _half(delta[j], pull[j], C[j])
                gj, hjj, hij = pull[j] - sj * epsilon[j], K[j, j] + TAU, K[i, j]
                for k in range(m):
                    hjj += rho[k] * Q[k, j] ** 2
                    hij += rho[k] * Q[k, i] * Q[k, j]
                newton = False
                det = hii * hjj - hij * hij
                if ai < delta[i] < bi and aj < delta[j] < bj and det > 0.0:
                    di = min(max(delta[i] + (hjj * gi - hij * gj) / det, ai), bi) - delta[i]
                    dj = min(max(delta[j] + (hii * gj - hij * gi) / det, aj), bj) - delta[j]
                    newton = di * gi + dj * gj > 0.0
                if not newton:
                    di = min(max(delta[i] + gi / hii, ai), bi) - delta[i]
                    dj = min(max(delta[j] + gj / hjj, aj), bj) - delta[j]
                # (11): the minimiser along the step, at most all of it.
                bend = hii * di * di + 2.0 * hij * di * dj + hjj * dj * dj
                rise = gi * di + gj * dj
                if rise < bend:
                    di *= max(rise, 0.0) / bend
                    dj *= max(rise, 0.0) / bend
                delta[j] += dj
                low[j], high[j] = _interval(delta[j], C[j], epsilon[j])
                for k in range(m):
                    total[k] += Q[k, j] * dj
            else:
                di = min(max(delta[i] + gi / hii, ai), bi) - delta[i]
            delta[i] += di
            low[i], high[i] = _interval(delta[i], C[i], epsilon[i])
            for k in range(m):
                total[k] += Q[k, i] * di
        # (12): dual step.
        for k in range(m):
            eta[k] += rate * total[k] / G[k]
    return max_steps, dual, primal


@njit(cache=True)
def mpd(
    K: np.ndarray,
    Q: np.ndarray,
    e: np.ndarray,
    delta: np.ndarray,
    C: np.ndarray,
    epsilon: np.ndarray,
    total: np.ndarray,
    eta: np.ndarray,
    rho: np.ndarray,
    tol: float,
    balance: float,
    max_steps: int,
) -> tuple[int, float, float]:
    """One row at a time, or all multipliers when no row is far off; in place. Steps and the two violations.

    The method of multipliers: a multiplier step, of length ``rho``, follows when the largest violation of a row has
    fallen to half of what the step would change.
    """
    n, m = K.shape[0], Q.shape[0]
    price, pull, wrong = np.empty(m), np.empty(n), np.empty(n)
    low, high = np.empty(n), np.empty(n)
    for l in range(n):
        low[l], high[l] = _interval(delta[l], C[l], epsilon[l])
    dual = primal = 0.0
    i, di = 0, 0.0
    for step in range(max_steps + 1):
        primal = shift = 0.0
        for k in range(m):
            price[k] = eta[k] + rho[k] * total[k]
            primal = max(primal, abs(total[k]) / balance)
            shift = max(shift, rho[k] * abs(total[k]))
        _violations(K, Q, e, price, low, high, i, di, i, 0.0, pull, wrong)
        dual, best = 0.0, -1
        for l in range(n):
            if wrong[l] > dual:
                dual, best = wrong[l], l
        if (dual <= tol and primal <= tol) or step == max_steps:
            return step, dual, primal
        di = 0.0
        if best >= 0 and (dual > 0.5 * shift or primal <= tol):
            i = best
            bend = K[i, i] + TAU
            for k in range(m):
                bend += rho[k] * Q[k, i] ** 2
            a, b, side = _half(delta[i], pull[i], C[i])
            old = delta[i]
            delta[i] = min(max(old + (pull[i] - side * epsilon[i]) / bend, a), b)
            low[i], high[i] = _interval(delta[i], C[i], epsilon[i])
            di = delta[i] - old
            for k in range(m):
                total[k] += Q[k, i] * di
        else:
            for k in range(m):
                eta[k] += rho[k] * total[k]
    return max_steps, dual, primal
