"""Relaxations of complementarity as nonlinear programs with exact sparse derivatives."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from foldwise.optimizers.mpec.mpcc import Mpcc, Terms

__all__ = ["RELAXATIONS", "NonlinearProgram", "piece", "relax"]

RELAXATIONS = ("pairwise", "aggregated", "penalty")


class NonlinearProgram:
    r"""Minimise ``c'x + q(x)`` subject to ``lower <= x <= upper`` and ``row_lower <= A x + q_r(x) <= row_upper``.

    Every ``q`` is a sum of bilinear terms, so the patterns of the Jacobian and of the Lagrangian's Hessian are
    constant. The first rows may have the terms of a curve; without one the Hessian does not depend on ``x``.

    Parameters
    ----------
    mpcc : Mpcc
        Gives the cost, bounds, rows and their terms, unless told otherwise.
    rows : (A, lower, upper), optional
        Further linear rows.
    terms : Terms, optional
        Bilinear terms of the further rows, which are counted from 0.
    cost, bounds : optional
    objective_terms : Terms, optional
        Bilinear terms of the objective; their ``row`` is not used.
    """

    def __init__(
        self,
        mpcc: Mpcc,
        rows: tuple[sp.csr_matrix, np.ndarray, np.ndarray] | None = None,
        terms: Terms | None = None,
        *,
        cost: np.ndarray | None = None,
        bounds: tuple[np.ndarray, np.ndarray] | None = None,
        objective_terms: Terms | None = None,
    ) -> None:
        self.cost = mpcc.cost if cost is None else cost
        self.lower, self.upper = (mpcc.lower, mpcc.upper) if bounds is None else bounds
        self.A, self.row_lower, self.row_upper = mpcc.A, mpcc.row_lower, mpcc.row_upper
        self.terms, self.curve = mpcc.bilinear, mpcc.curve
        if terms is not None:
            self.terms = Terms.stack([mpcc.bilinear, terms.shifted(len(mpcc.row_lower))])
        if rows is not None:
            self.A = sp.vstack([mpcc.A, rows[0]], format="csr")
            self.row_lower = np.concatenate([mpcc.row_lower, rows[1]])
            self.row_upper = np.concatenate([mpcc.row_upper, rows[2]])
        self.objective_terms = Terms.empty() if objective_terms is None else objective_terms
        self.n, self.m = len(self.cost), len(self.row_lower)
        self._jacobian_pattern()
        self._hessian_pattern()
        if self.curve is not None:
            for name in ("jacobian_rows", "jacobian_columns", "hessian_rows", "hessian_columns"):
                setattr(self, name, np.concatenate([getattr(self, name), getattr(self.curve, name)]))

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
        self._bends = len(unique)
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
        out: np.ndarray = self.A @ x
        out += np.bincount(t.row, weights=t.coef * x[t.i] * x[t.j], minlength=self.m)
        if self.curve is not None:
            self.curve.add_to(out, x)
        return out

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Values of the Jacobian on its pattern."""
        t = self.terms
        moving = np.concatenate([t.coef * x[t.j], t.coef * x[t.i]])
        own = self._constant + np.bincount(self._slots, weights=moving, minlength=len(self._constant))
        return own if self.curve is None else np.concatenate([own, self.curve.jacobian(x)])

    def hessian(self, x: np.ndarray, sigma: float, y: np.ndarray) -> np.ndarray:
        """Values of the Hessian of ``sigma f + y'c`` on its lower triangle."""
        weight = np.concatenate([y[self.terms.row], np.full(len(self.objective_terms.coef), sigma)])
        own = np.bincount(self._hessian_slots, weights=weight * self._hessian_coef, minlength=self._bends)
        return own if self.curve is None else np.concatenate([own, self.curve.hessian(x, y)])

    def infeasibility(self, x: np.ndarray) -> float:
        """Largest violation of a row or a bound."""
        c = self.constraints(x)
        parts = (self.row_lower - c, c - self.row_upper, self.lower - x, x - self.upper)
        return float(max(np.max(part, initial=0.0) for part in parts))


def piece(mpcc: Mpcc, x: np.ndarray) -> NonlinearProgram:
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
    return NonlinearProgram(mpcc, (held[~alone], value[~alone], value[~alone]), bounds=(lower, upper))


def relax(mpcc: Mpcc, tol: float, kind: str = "pairwise", weight: float = 1.0) -> NonlinearProgram:
    """Replace complementarity by something smooth.

    "pairwise": the product of every pair is at most ``tol``. "aggregated": the sum of the products of every training
    problem is at most ``tol``. "penalty": the sum of all products is added to the objective, ``weight`` times; ``tol``
    is not used.
    """
    if kind not in RELAXATIONS:
        raise ValueError(f"unknown complementarity {kind!r}; use one of: {', '.join(RELAXATIONS)}")
    terms, linear, constant = mpcc.products()
    if kind == "penalty":
        cost = mpcc.cost + weight * np.asarray(linear.sum(axis=0)).ravel()
        inside = Terms(terms.row, terms.i, terms.j, weight * terms.coef)
        return NonlinearProgram(mpcc, cost=cost, objective_terms=inside)
    if kind == "aggregated":
        labels, place = np.unique(mpcc.task, return_inverse=True)
        shape = len(labels), len(place)
        total = sp.csr_matrix((np.ones(len(place)), (place, np.arange(len(place)))), shape)
        linear, constant, terms = total @ linear, total @ constant, terms.shifted(place)
    return NonlinearProgram(mpcc, (linear, np.full(len(constant), -np.inf), tol - constant), terms)
