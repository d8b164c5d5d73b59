"""Relaxations of complementarity as nonlinear programs with exact sparse derivatives."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from foldwise.optimizers.mpec.mpcc import Mpcc, Terms

__all__ = ["RELAXATIONS", "QuadraticProgram", "piece", "relax"]

RELAXATIONS = ("pairwise", "aggregated", "penalty")


class QuadraticProgram:
    r"""Minimise ``c'x + q(x)`` subject to ``lower <= x <= upper`` and ``row_lower <= A x + q_r(x) <= row_upper``.

    Every ``q`` is a sum of bilinear terms, so the patterns of the Jacobian and of the Lagrangian's Hessian are
    constant; the Hessian does not depend on ``x``.

    Parameters
    ----------
    cost : ndarray (n,)
    lower, upper : ndarray (n,)
    A : sparse matrix (m, n)
    row_lower, row_upper : ndarray (m,)
    terms : Terms
        Bilinear terms of the rows.
    objective_terms : Terms, optional
        Bilinear terms of the objective; their ``row`` is not used.
    """

    def __init__(
        self, cost, lower, upper, A, row_lower, row_upper, terms: Terms, objective_terms=None
    ) -> None:
        self.cost, self.lower, self.upper = cost, lower, upper
        self.A = sp.csr_matrix(A)
        self.row_lower, self.row_upper, self.terms = row_lower, row_upper, terms
        self.objective_terms = Terms.empty() if objective_terms is None else objective_terms
        self.n, self.m = len(cost), len(row_lower)
        self._jacobian_pattern()
        self._hessian_pattern()

    def _jacobian_pattern(self) -> None:
        A, t = self.A.tocoo(), self.terms
        key = np.concatenate([A.row * self.n + A.col, t.row * self.n + t.i, t.row * self.n + t.j]).astype(
            np.int64
        )
        unique, place = np.unique(key, return_inverse=True)
        self.jacobian_rows, self.jacobian_columns = unique // self.n, unique % self.n
        first = len(A.data)
        self._constant = np.bincount(place[:first], weights=A.data, minlength=len(unique))
        self._slots = place[first:]

    def _hessian_pattern(self) -> None:
        both = Terms.stack([self.terms, self.objective_terms])
        high, low = np.maximum(both.i, both.j), np.minimum(both.i, both.j)
        unique, self._hessian_slots = np.unique((high * self.n + low).astype(np.int64), return_inverse=True)
        self.hessian_rows, self.hessian_columns = unique // self.n, unique % self.n
        self._hessian_coef = both.coef * np.where(both.i == both.j, 2.0, 1.0)

    def objective(self, x: np.ndarray) -> float:
        """``c'x + q(x)``."""
        q = self.objective_terms
        return float(self.cost @ x + (q.coef * x[q.i]) @ x[q.j])

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Its gradient."""
        q = self.objective_terms
        out = self.cost.copy()
        np.add.at(out, q.i, q.coef * x[q.j])
        np.add.at(out, q.j, q.coef * x[q.i])
        return out

    def constraints(self, x: np.ndarray) -> np.ndarray:
        """Values of the rows."""
        t = self.terms
        return self.A @ x + np.bincount(t.row, weights=t.coef * x[t.i] * x[t.j], minlength=self.m)

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Values of the Jacobian on its pattern."""
        t = self.terms
        moving = np.concatenate([t.coef * x[t.j], t.coef * x[t.i]])
        return self._constant + np.bincount(self._slots, weights=moving, minlength=len(self._constant))

    def hessian(self, x: np.ndarray, sigma: float, y: np.ndarray) -> np.ndarray:
        """Values of the Hessian of ``sigma f + y'c`` on its lower triangle; the same at every ``x``."""
        weight = np.concatenate([y[self.terms.row], np.full(len(self.objective_terms.coef), sigma)])
        return np.bincount(
            self._hessian_slots, weights=weight * self._hessian_coef, minlength=len(self.hessian_rows)
        )

    def infeasibility(self, x: np.ndarray) -> float:
        """Largest violation of a row or a bound."""
        c = self.constraints(x)
        parts = (self.row_lower - c, c - self.row_upper, self.lower - x, x - self.upper)
        return float(max(np.max(part, initial=0.0) for part in parts))


def piece(mpcc: Mpcc, x: np.ndarray) -> QuadraticProgram:
    """The smooth program around ``x`` that holds the smaller side of every pair at zero."""
    g, h = mpcc.sides(x)
    first = g <= h
    held = sp.vstack([mpcc.G[first], mpcc.H[~first]], format="csr")
    value = -np.concatenate([mpcc.g0[first], mpcc.h0[~first]])
    lower, upper = mpcc.lower.copy(), mpcc.upper.copy()
    alone = np.diff(held.indptr) == 1
    # A side that is one variable is held by its bounds: fewer rows, and none that repeats a bound.
    columns, entries = held[alone].indices, held[alone].data
    lower[columns] = upper[columns] = np.clip(value[alone] / entries, lower[columns], upper[columns])
    rest = held[~alone]
    return QuadraticProgram(
        mpcc.cost,
        lower,
        upper,
        sp.vstack([mpcc.A, rest], format="csr"),
        np.concatenate([mpcc.row_lower, value[~alone]]),
        np.concatenate([mpcc.row_upper, value[~alone]]),
        mpcc.bilinear,
    )


def relax(mpcc: Mpcc, tol: float, kind: str = "pairwise", weight: float = 1.0) -> QuadraticProgram:
    """Replace complementarity by something smooth.

    "pairwise": the product of every pair is at most ``tol``. "aggregated": the sum of the products of every training
    problem is at most ``tol``. "penalty": the sum of all products is added to the objective, ``weight`` times; ``tol``
    is not used.
    """
    if kind not in RELAXATIONS:
        raise ValueError(f"unknown complementarity {kind!r}; use one of: {', '.join(RELAXATIONS)}")
    terms, linear, constant = mpcc.products()
    m = len(mpcc.row_lower)
    if kind == "penalty":
        cost = mpcc.cost + weight * np.asarray(linear.sum(axis=0)).ravel()
        inside = Terms(terms.row, terms.i, terms.j, weight * terms.coef)
        return QuadraticProgram(
            cost, mpcc.lower, mpcc.upper, mpcc.A, mpcc.row_lower, mpcc.row_upper, mpcc.bilinear, inside
        )
    if kind == "aggregated":
        labels, place = np.unique(mpcc.task, return_inverse=True)
        total = sp.csr_matrix(
            (np.ones(len(place)), (place, np.arange(len(place)))), (len(labels), len(place))
        )
        linear, constant, terms = total @ linear, total @ constant, terms.shifted(place)
    extra = Terms.stack([mpcc.bilinear, terms.shifted(m)])
    return QuadraticProgram(
        mpcc.cost,
        mpcc.lower,
        mpcc.upper,
        sp.vstack([mpcc.A, linear], format="csr"),
        np.concatenate([mpcc.row_lower, np.full(len(constant), -np.inf)]),
        np.concatenate([mpcc.row_upper, tol - constant]),
        extra,
    )
