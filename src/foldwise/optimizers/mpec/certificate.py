r"""How good a point of a program with complementarity is: residual, biactive pairs, class of stationarity.

At a complementary point every pair has a side that is zero. With ``nu`` and ``xi`` the multipliers of the two sides,

.. math::  c = A'y + \text{(bounds)} + G'\nu + H'\xi, \qquad \nu_k g_k = 0, \ \xi_k h_k = 0

is weak stationarity. On biactive pairs (both sides zero) more is asked: ``nu, xi >= 0`` is strong stationarity (S),
which excludes every first-order descent. Multipliers for every way to hold one side of each of them at zero are
B-stationarity, the same without a constraint qualification. ``nu xi >= 0`` is C-, both positive or one zero
M-stationarity. In the "C" form all rows are linear: the conditions depend on which bounds are active and not on how
exactly the point is known, and each is a linear program.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.optimizers.mpec.backends import load_package
from foldwise.optimizers.mpec.mpcc import Mpcc

__all__ = ["certify"]

NEAR = 1e-5
"""Distance below which a bound, a row or a side counts as active."""
SMALL = 1e-7
"""Sum of the violations of stationarity, relative to the cost's, below which it holds."""
MOST_BIACTIVE = 6
"""Up to this many biactive pairs B-stationarity is decided by going through all assignments."""


def certify(mpcc: Mpcc, x: np.ndarray, near: float = NEAR, seconds: float | None = None) -> dict[str, Any]:
    """Residual, number of biactive pairs and class of stationarity of a complementary point.

    The class is one of "S", "B", "M", "C", "W" (weak only), "none", or "undecided" when a linear program failed.
    """
    g, h = mpcc.sides(x)
    out: dict[str, Any] = {
        "complementarity": mpcc.residual(x),
        "pairs": mpcc.n_pairs,
        "biactive": int(np.sum((np.abs(g) <= near) & (np.abs(h) <= near))),
    }
    out["stationarity"] = _classify(mpcc, x, g, h, near, seconds)
    return out


def _classify(mpcc: Mpcc, x, g, h, near: float, seconds: float | None) -> str:
    zero_g, zero_h = np.abs(g) <= near, np.abs(h) <= near
    both = np.flatnonzero(zero_g & zero_h)
    system = _System(mpcc, x, near, seconds)
    low = np.where(zero_g, -np.inf, 0.0), np.where(zero_h, -np.inf, 0.0)
    high = np.where(zero_g, np.inf, 0.0), np.where(zero_h, np.inf, 0.0)

    def signed(side: int, pairs: np.ndarray, lower: tuple) -> tuple:
        out = [lower[0].copy(), lower[1].copy()]
        out[side][pairs] = 0.0
        return tuple(out)

    strong = signed(1, both, signed(0, both, low))
    verdict = system.holds(strong, high)
    if verdict is None:
        return "undecided"
    if verdict[0]:
        return "S"
    weak = system.holds(low, high)
    if weak is None:
        return "undecided"
    if not weak[0]:
        return "none"
    if len(both) <= MOST_BIACTIVE:
        pieces = (np.array(choice) for choice in product((0, 1), repeat=len(both)))
        # A piece holds one side of a biactive pair at zero, so the other side's multiplier must be nonnegative.
        tests = (
            system.holds(signed(0, both[piece == 1], signed(1, both[piece == 0], low)), high)
            for piece in pieces
        )
        if all(test is not None and test[0] for test in tests):
            return "B"
    nu, xi = weak[1][both], weak[2][both]
    tiny = 1e-9 * max(float(np.max(np.abs(mpcc.cost), initial=0.0)), 1e-300)
    if np.all((np.minimum(nu, xi) >= -tiny) | (np.minimum(np.abs(nu), np.abs(xi)) <= tiny)):
        return "M"
    return "C" if np.all(nu * xi >= -(tiny**2)) else "W"


class _System:
    """The stationarity conditions at a point as linear programs: least violation over the multipliers' signs."""

    def __init__(self, mpcc: Mpcc, x: np.ndarray, near: float, seconds: float | None) -> None:
        self.highspy: Any = load_package("highspy")
        self.mpcc, n = mpcc, mpcc.n
        rows = mpcc.A @ x
        y_low, y_high = _signs(rows, mpcc.row_lower, mpcc.row_upper, near)
        b_low, b_high = _signs(x, mpcc.lower, mpcc.upper, near)
        # Columns: y, bound multipliers, nu, xi, and the positive and negative part of the violation.
        eye = sp.identity(n)
        self.matrix = sp.hstack([mpcc.A.T, eye, mpcc.G.T, mpcc.H.T, eye, -eye], format="csr")
        self.fixed = np.concatenate([y_low, b_low]), np.concatenate([y_high, b_high])
        m, k = len(rows), mpcc.n_pairs
        self.split = m + n, m + n + k, m + n + 2 * k
        self.cost = np.concatenate([np.zeros(m + n + 2 * k), np.ones(2 * n)])
        self.scale = float(np.abs(mpcc.cost).sum()) or 1.0
        self.seconds = seconds

    def holds(self, lower: tuple, upper: tuple) -> tuple[bool, np.ndarray, np.ndarray] | None:
        """Whether multipliers with these signs exist, and those of the pairs; None when it was not decided."""
        n = self.mpcc.n
        lp = self.highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), n
        lp.col_cost_ = self.cost
        lp.col_lower_ = np.concatenate([self.fixed[0], *lower, np.zeros(2 * n)])
        lp.col_upper_ = np.concatenate([self.fixed[1], *upper, np.full(2 * n, np.inf)])
        lp.row_lower_ = lp.row_upper_ = self.mpcc.cost
        lp.a_matrix_.format_ = self.highspy.MatrixFormat.kRowwise
        M = self.matrix
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = M.indptr, M.indices, M.data
        model = self.highspy.Highs()
        model.setOptionValue("output_flag", False)
        model.setOptionValue("threads", 1)
        if self.seconds is not None:
            model.setOptionValue("time_limit", self.seconds)
        model.passModel(lp)
        model.run()
        if model.getModelStatus() != self.highspy.HighsModelStatus.kOptimal:
            return None
        value = np.array(model.getSolution().col_value)
        a, b, c = self.split
        violation = float(self.cost @ value)
        return violation <= SMALL * self.scale, value[a:b], value[b:c]


def _signs(
    value: np.ndarray, low: np.ndarray, high: np.ndarray, near: float
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the multipliers: nonnegative at a lower bound, nonpositive at an upper one, else zero."""
    at_low, at_high = value <= low + near, value >= high - near
    return np.where(at_high, -np.inf, 0.0), np.where(at_low, np.inf, 0.0)
