"""One linear program after another by HiGHS, each from the basis of the one before."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.optimizers.mpec.packages import load_package

__all__ = ["LinearProgram"]


class LinearProgram:
    """``min cost'x`` over ``lower <= x <= upper`` and ``row_lower <= A x <= row_upper``.

    Parameters
    ----------
    cost, lower, upper, A, row_lower, row_upper : the program
    options : options of HiGHS by name
    """

    def __init__(
        self,
        cost: np.ndarray,
        lower: np.ndarray,
        upper: np.ndarray,
        A: sp.csr_matrix,
        row_lower: np.ndarray,
        row_upper: np.ndarray,
        **options: Any,
    ) -> None:
        self._highspy = load_package("highspy")
        lp = self._highspy.HighsLp()
        lp.num_row_, lp.num_col_ = A.shape
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, lower, upper
        lp.row_lower_, lp.row_upper_ = row_lower, row_upper
        lp.a_matrix_.format_ = self._highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = A.indptr, A.indices, A.data
        self._model = self._highspy.Highs()
        for name, value in {"output_flag": False, "threads": 1, **options}.items():
            self._model.setOptionValue(name, value)
        self._model.passModel(lp)
        self._columns = np.arange(len(cost), dtype=np.int32)

    def set_costs(self, cost: np.ndarray) -> None:
        """Other costs from now on."""
        self._model.changeColsCost(len(cost), self._columns, cost)

    def set_row(self, row: int, lower: float, upper: float) -> None:
        """Other bounds of a row from now on."""
        self._model.changeRowBounds(row, lower, upper)

    def solve(self, seconds: float | None = None) -> np.ndarray | None:
        """A minimiser, or None when HiGHS did not find one."""
        if seconds is not None:
            self._model.setOptionValue("time_limit", self._model.getRunTime() + max(seconds, 1e-3))
        self._model.run()
        if self._model.getModelStatus() != self._highspy.HighsModelStatus.kOptimal:
            return None
        return np.array(self._model.getSolution().col_value)
