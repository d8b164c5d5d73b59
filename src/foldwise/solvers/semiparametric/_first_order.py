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
def curvature(K, Q, delta, C, sweeps):
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
def _wish(delta, pull, C, epsilon):
    """Slope of the objective along which a row wants to move, zero when it is where it should be; the row's side."""
    if C <= 0.0:
        return 0.0, 1.0
    if delta > 0.0 or (delta == 0.0 and pull > 0.0):
        slope = pull - epsilon
        if (delta == 0.0 and slope < 0.0) or (delta >= C and slope > 0.0):
            return 0.0, 1.0
        return slope, 1.0
    slope = pull + epsilon
    if (delta == 0.0 and slope > 0.0) or (delta <= -C and slope < 0.0):
        return 0.0, -1.0
    return slope, -1.0


@njit(cache=True)
def _clipped(value, side, C):
    """Into the half of the box on this side."""
    if side > 0.0:
        return min(max(value, 0.0), C)
    return min(max(value, -C), 0.0)


@njit(cache=True)
def pdsg(K, Q, e, delta, C, epsilon, total, eta, G, rho, rate, tol, balance, max_steps):
    """Algorithm 2 with sub-working sets of two rows; in place. Steps taken and the two violations.

    ``G`` is the positive estimate of the dual curvature, ``rho`` the weights of the augmented term, ``rate`` the part
    of a dual Newton step that is taken after every primal one, and ``balance`` the unit of ``total``.
    """
    n, m = K.shape[0], Q.shape[0]
    price = np.empty(m)
    dual = primal = 0.0
    i = j = -1
    di = dj = 0.0
    for step in range(max_steps + 1):
        primal = 0.0
        for k in range(m):
            price[k] = eta[k] + rho[k] * total[k]
            primal = max(primal, abs(total[k]) / balance)
        # 2. The two rows with the largest violations, after the gradient caught up with the last step.
        best = second = 0.0
        bi = bj = -1
        for l in range(n):
            if di != 0.0:
                e[l] -= di * K[i, l]
            if dj != 0.0:
                e[l] -= dj * K[j, l]
            pull = e[l]
            for k in range(m):
                pull -= price[k] * Q[k, l]
            slope = abs(_wish(delta[l], pull, C[l], epsilon[l])[0])
            if slope > best:
                second, bj = best, bi
                best, bi = slope, l
            elif slope > second:
                second, bj = slope, l
        dual = best
        if (dual <= tol and primal <= tol) or step == max_steps:
            return step, dual, primal
        # 3. Primal step: a Newton step of both rows if they are off their bounds, else a scaled gradient step.
        i, j, di, dj = bi, bj, 0.0, 0.0
        if bi >= 0:
            pi, pj = e[i], 0.0
            hii, hjj, hij = K[i, i], 0.0, 0.0
            for k in range(m):
                pi -= price[k] * Q[k, i]
                hii += rho[k] * Q[k, i] ** 2
            gi, si = _wish(delta[i], pi, C[i], epsilon[i])
            gj, sj = 0.0, 1.0
            if bj >= 0:
                pj = e[j]
                hjj, hij = K[j, j], K[i, j]
                for k in range(m):
                    pj -= price[k] * Q[k, j]
                    hjj += rho[k] * Q[k, j] ** 2
                    hij += rho[k] * Q[k, i] * Q[k, j]
                gj, sj = _wish(delta[j], pj, C[j], epsilon[j])
            inside = bj >= 0 and 0.0 < abs(delta[i]) < C[i] and 0.0 < abs(delta[j]) < C[j]
            newton = False
            if inside:
                a, b = hii + TAU, hjj + TAU
                det = a * b - hij * hij
                if det > 0.0:
                    di, dj = (b * gi - hij * gj) / det, (a * gj - hij * gi) / det
                    di = _clipped(delta[i] + di, si, C[i]) - delta[i]
                    dj = _clipped(delta[j] + dj, sj, C[j]) - delta[j]
                    newton = di * gi + dj * gj > 0.0
            if not newton:
                di = _clipped(delta[i] + gi / (hii + TAU), si, C[i]) - delta[i]
                dj = 0.0
                if bj >= 0:
                    dj = _clipped(delta[j] + gj / (hjj + TAU), sj, C[j]) - delta[j]
            # (11): the minimiser along the step, at most all of it.
            bend = hii * di * di + 2.0 * hij * di * dj + hjj * dj * dj
            rise = gi * di + gj * dj
            if rise < bend:
                length = max(rise, 0.0) / bend
                di *= length
                dj *= length
            if di != 0.0:
                delta[i] += di
            if dj != 0.0:
                delta[j] += dj
            for k in range(m):
                total[k] += Q[k, i] * di
                if bj >= 0:
                    total[k] += Q[k, j] * dj
        if bj < 0:
            j, dj = 0, 0.0
        if bi < 0:
            i, di = 0, 0.0
        # (12): dual step.
        for k in range(m):
            eta[k] += rate * total[k] / G[k]
    return max_steps, dual, primal


@njit(cache=True)
def mpd(K, Q, e, delta, C, epsilon, total, eta, rho, tol, balance, max_steps):
    """One row, or the multipliers, at a time: whichever violates its condition most; in place.

    Steps taken and the two violations. A multiplier step follows only when no row's violation, in units of the
    balance that is left, is larger: the method of multipliers with an inner tolerance that falls with the balance.
    """
    n, m = K.shape[0], Q.shape[0]
    price = np.empty(m)
    dual = primal = 0.0
    i, di = 0, 0.0
    for step in range(max_steps + 1):
        primal = shift = 0.0
        for k in range(m):
            price[k] = eta[k] + rho[k] * total[k]
            primal = max(primal, abs(total[k]) / balance)
            shift = max(shift, rho[k] * abs(total[k]))
        dual, best = 0.0, -1
        for l in range(n):
            if di != 0.0:
                e[l] -= di * K[i, l]
            pull = e[l]
            for k in range(m):
                pull -= price[k] * Q[k, l]
            slope = abs(_wish(delta[l], pull, C[l], epsilon[l])[0])
            if slope > dual:
                dual, best = slope, l
        if (dual <= tol and primal <= tol) or step == max_steps:
            return step, dual, primal
        di = 0.0
        if best >= 0 and dual > min(tol, 0.5 * shift) and (dual > 0.5 * shift or dual > tol):
            i = best
            pull, bend = e[i], K[i, i] + TAU
            for k in range(m):
                pull -= price[k] * Q[k, i]
                bend += rho[k] * Q[k, i] ** 2
            slope, side = _wish(delta[i], pull, C[i], epsilon[i])
            old = delta[i]
            delta[i] = _clipped(old + slope / bend, side, C[i])
            di = delta[i] - old
            for k in range(m):
                total[k] += Q[k, i] * di
        else:
            for k in range(m):
                eta[k] += rho[k] * total[k]
    return max_steps, dual, primal
