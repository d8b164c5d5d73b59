r"""Programs with complementarity: the algebra that every formulation and every method shares.

A program of this kind is, in one vector ``x`` within bounds,

    minimise  c'x
    subject to  row_lower <= A x + (bilinear terms) <= row_upper
                0 <= G x + g0  complementary to  H x + h0 >= 0

where both sides of every pair are affine with few entries. The signs of the two sides are bounds or rows of ``A``; the
product of a pair is quadratic with a constant pattern. Rows may have further terms with derivatives of their own, a
:class:`Curve`: the decisions of a kernel machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

__all__ = ["Builder", "Curve", "Mpcc", "Side", "Terms"]

Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, columns and values of the entries of a matrix."""


@dataclass(frozen=True, eq=False)
class Terms:
    """Bilinear terms ``coef * x[i] * x[j]`` of the rows ``row``."""

    row: np.ndarray
    i: np.ndarray
    j: np.ndarray
    coef: np.ndarray

    @classmethod
    def empty(cls) -> Terms:
        """No terms."""
        index = np.zeros(0, dtype=np.int64)
        return cls(index, index, index, np.zeros(0))

    @classmethod
    def stack(cls, parts: list[Terms]) -> Terms:
        """All terms of several lists."""
        if not parts:
            return cls.empty()
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in ("row", "i", "j", "coef")))

    def shifted(self, rows: np.ndarray | int) -> Terms:
        """The same terms in other rows: an offset, or the new row of every old one."""
        row = self.row + rows if isinstance(rows, int) else rows[self.row]
        return Terms(row, self.i, self.j, self.coef)


class Curve(Protocol):
    """Terms of rows that are not bilinear, with sparse derivatives of a constant pattern."""

    jacobian_rows: np.ndarray
    jacobian_columns: np.ndarray
    hessian_rows: np.ndarray
    hessian_columns: np.ndarray

    def add_to(self, rows: np.ndarray, x: np.ndarray) -> None:
        """Add the terms at ``x`` to the values of the rows."""
        ...

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Values of the Jacobian on its pattern."""
        ...

    def hessian(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Values of the Hessian of the terms, weighed by ``y``, on its lower triangle."""
        ...


@dataclass(frozen=True, eq=False)
class Mpcc:
    """A program with complementarity constraints; see the module.

    Attributes
    ----------
    cost : ndarray (n,)
    lower, upper : bounds of ``x``
    A : csr matrix; row_lower, row_upper : bounds of its rows
    bilinear : Terms, added to the rows of ``A``
    G, g0, H, h0 : the two sides of every pair
    task : which training problem a pair belongs to; -1 for pairs of the hyper-parameters
    curve : Curve, optional, added to the rows of ``A``
    """

    cost: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    A: sp.csr_matrix
    row_lower: np.ndarray
    row_upper: np.ndarray
    bilinear: Terms
    G: sp.csr_matrix
    g0: np.ndarray
    H: sp.csr_matrix
    h0: np.ndarray
    task: np.ndarray
    curve: Curve | None = None

    @property
    def linear(self) -> bool:
        """Whether all rows are linear."""
        return self.curve is None and not len(self.bilinear.coef)

    @property
    def n(self) -> int:
        """Number of variables."""
        return len(self.cost)

    @property
    def n_pairs(self) -> int:
        """Number of complementarity pairs."""
        return len(self.g0)

    def sides(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both sides of every pair."""
        return self.G @ x + self.g0, self.H @ x + self.h0

    def residual(self, x: np.ndarray) -> float:
        """Largest violation of complementarity: of a sign, or of ``min(side, side) = 0``."""
        g, h = self.sides(x)
        return float(np.max(np.abs(np.minimum(g, h)), initial=0.0))

    def values(self, x: np.ndarray) -> np.ndarray:
        """Values of the rows."""
        t = self.bilinear
        out: np.ndarray = self.A @ x
        out += np.bincount(t.row, weights=t.coef * x[t.i] * x[t.j], minlength=len(out))
        if self.curve is not None:
            self.curve.add_to(out, x)
        return out

    def linearised(self, x: np.ndarray) -> sp.csr_matrix:
        """Derivative of the rows."""
        t = self.bilinear
        parts = [(t.row, t.i, t.coef * x[t.j]), (t.row, t.j, t.coef * x[t.i])]
        if self.curve is not None:
            parts.append((self.curve.jacobian_rows, self.curve.jacobian_columns, self.curve.jacobian(x)))
        return sp.csr_matrix(self.A + _matrix(parts, self.A.shape))

    def products(self) -> tuple[Terms, sp.csr_matrix, np.ndarray]:
        """Every pair's product as terms, a linear part and a constant."""
        parts = []
        G, H = self.G.tocsr(), self.H.tocsr()
        g_count, h_count = np.diff(G.indptr), np.diff(H.indptr)
        for a in range(int(g_count.max(initial=0))):
            for b in range(int(h_count.max(initial=0))):
                k = np.flatnonzero((g_count > a) & (h_count > b))
                p, q = G.indptr[k] + a, H.indptr[k] + b
                parts.append(Terms(k, G.indices[p], H.indices[q], G.data[p] * H.data[q]))
        linear = sp.diags(self.h0) @ G + sp.diags(self.g0) @ H
        return Terms.stack(parts), sp.csr_matrix(linear), self.g0 * self.h0


Side = Sequence[tuple[Any, Any]]
"""One side of pairs, or a row: (columns, coefficients) per term."""


@dataclass(eq=False)
class Builder:
    """Collects variables, rows and pairs, block by block."""

    n: int = 0
    n_rows: int = 0
    n_pairs: int = 0
    _cost: list[np.ndarray] = field(default_factory=list)
    _lower: list[np.ndarray] = field(default_factory=list)
    _upper: list[np.ndarray] = field(default_factory=list)
    _entries: list[Entries] = field(default_factory=list)
    _row_lower: list[np.ndarray] = field(default_factory=list)
    _row_upper: list[np.ndarray] = field(default_factory=list)
    _bilinear: list[Terms] = field(default_factory=list)
    _G: list[Entries] = field(default_factory=list)
    _H: list[Entries] = field(default_factory=list)
    _g0: list[np.ndarray] = field(default_factory=list)
    _h0: list[np.ndarray] = field(default_factory=list)
    _task: list[np.ndarray] = field(default_factory=list)

    def variables(self, size: int, lower: Any = 0.0, upper: Any = np.inf, cost: Any = 0.0) -> np.ndarray:
        """New variables; returns their indices."""
        index = np.arange(self.n, self.n + size)
        for store, value in ((self._cost, cost), (self._lower, lower), (self._upper, upper)):
            store.append(_spread(value, size))
        self.n += size
        return index

    def rows(
        self,
        size: int,
        terms: Side,
        lower: Any,
        upper: Any,
        matrix: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> np.ndarray:
        """New rows: elementwise ``terms`` plus an optional dense ``matrix = (array, columns)``; returns indices."""
        index = np.arange(self.n_rows, self.n_rows + size)
        for columns, coef in terms:
            self._entries.append(_entries(index, columns, coef))
        if matrix is not None:
            self.matrix(index, *matrix)
        self._row_lower.append(_spread(lower, size))
        self._row_upper.append(_spread(upper, size))
        self.n_rows += size
        return index

    def matrix(self, rows: np.ndarray, array: np.ndarray, columns: np.ndarray) -> None:
        """Add ``array @ x[columns]`` to rows."""
        r, c = np.nonzero(array)
        self._entries.append((rows[r], columns[c], array[r, c]))

    def bilinear(self, rows: np.ndarray, i: Any, j: Any, coef: Any) -> None:
        """Add ``coef * x[i] * x[j]`` to rows, elementwise."""
        size = (len(rows),)
        terms = Terms(rows, np.broadcast_to(i, size), np.broadcast_to(j, size), _spread(coef, len(rows)))
        self._bilinear.append(terms)

    def pairs(self, size: int, g: Side, h: Side, task: int, g0: Any = 0.0, h0: Any = 0.0) -> None:
        """New pairs: ``g0 + g`` complementary to ``h0 + h``, elementwise."""
        index = np.arange(self.n_pairs, self.n_pairs + size)
        for store, side in ((self._G, g), (self._H, h)):
            store.extend(_entries(index, columns, coef) for columns, coef in side)
        self._g0.append(_spread(g0, size))
        self._h0.append(_spread(h0, size))
        self._task.append(np.full(size, task))
        self.n_pairs += size

    def build(self, curve: Curve | None = None) -> Mpcc:
        """The program, with further terms of its rows."""
        return Mpcc(
            _join(self._cost),
            _join(self._lower),
            _join(self._upper),
            _matrix(self._entries, (self.n_rows, self.n)),
            _join(self._row_lower),
            _join(self._row_upper),
            Terms.stack(self._bilinear),
            _matrix(self._G, (self.n_pairs, self.n)),
            _join(self._g0),
            _matrix(self._H, (self.n_pairs, self.n)),
            _join(self._h0),
            _join(self._task).astype(int),
            curve,
        )


def _spread(value: Any, size: int) -> np.ndarray:
    return np.broadcast_to(np.asarray(value, float), (size,))


def _entries(index: np.ndarray, columns: Any, coef: Any) -> Entries:
    return index, np.broadcast_to(columns, (len(index),)), _spread(coef, len(index))


def _join(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros(0)


def _matrix(entries: list[Entries], shape: tuple[int, int]) -> sp.csr_matrix:
    if not entries:
        return sp.csr_matrix(shape)
    row, column, value = (np.concatenate([e[k] for e in entries]) for k in range(3))
    return sp.csr_matrix((value, (row, column)), shape=shape)
