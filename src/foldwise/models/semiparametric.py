"""Semiparametric machines: a kernel part and columns that are not penalised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from foldwise.basis import as_basis, columns, independent, with_constant
from foldwise.frames import as_frame
from foldwise.models.base import Array, DataFacts, Rows, SearchStage, Sheet
from foldwise.models.kernel.assemble import KernelParts
from foldwise.models.kernel.model import KernelModel
from foldwise.models.kernel.stages import StageRule
from foldwise.problems.semiparametric import SemiparametricProblem
from foldwise.space import Dimension

__all__ = ["SemiparametricModel"]


@dataclass(frozen=True)
class SemiparametricModel(KernelModel):
    """A kernel model with columns that are not penalised in place of the intercept.

    Parameters
    ----------
    basis : what :func:`foldwise.basis.as_basis` takes
        A transformer is fitted to the training rows of every split. The columns of an array are in ``Rows.basis``.
    names : sequence of str, optional
        Names of the columns of X, where the basis is given a data frame.
    """

    basis: Any = None
    names: Any = None

    stage_rule: ClassVar[StageRule] = StageRule(samples=False, scouts=True)

    def with_rows(self, rows: Rows) -> Rows:
        """The rows with the columns of a basis that is an array."""
        basis, n = as_basis(self.basis), rows.Y.shape[1]
        if not isinstance(basis, np.ndarray):
            return rows
        if len(basis) != n:
            raise ValueError(f"the array in basis has {len(basis)} rows and X has {n}; they must be equal")
        return replace(rows, basis=basis)

    def with_names(self, X: Any, names: Sequence[str] | None) -> Any:
        """A data frame, so that steps that keep names keep those of the basis."""
        return as_frame(X, names) if isinstance(X, np.ndarray) else X

    def named(self, names: Sequence[str] | None) -> SemiparametricModel:
        """With the names of the columns, under which the basis is given them."""
        return replace(self, names=names)

    def psi(self, X: Array, rows: Rows, train: Array, others: Array) -> Array:
        """The basis, fitted to the training rows, on these and the other rows; zero elsewhere. Shape (n, K)."""
        basis = as_basis(self.basis)
        out = rows.basis
        if not isinstance(basis, np.ndarray):
            basis.fit(as_frame(X[train], self.names))
            used = np.concatenate([train, others])
            found = columns(basis, as_frame(X[used], self.names))
            out = np.zeros((len(X), found.shape[1]))
            out[used] = found
        assert out is not None
        if self.fit_intercept and with_constant(out, train):
            out = np.column_stack([out, np.ones(len(out))])
        return out

    def problem(self, parts: KernelParts) -> SemiparametricProblem:
        """The training problems, each with columns that are independent on its training rows."""
        own = []
        for train, validation in parts.splits:
            Psi = self.psi(parts.dense, parts.rows, train, validation)
            weight = None if parts.rows.weight is None else parts.rows.weight[train]
            own.append((Psi @ independent(Psi[train], weight))[parts.data.folds.order])
        return SemiparametricProblem(parts.data, parts.gram, own)

    def smoothed(self, band: float) -> KernelModel | None:
        """A kernel model with an intercept; it learns what a fit of the basis leaves (:meth:`without_basis`)."""
        loss = self.loss.smoothed(band)
        plain = {f.name: getattr(self, f.name) for f in fields(KernelModel)}
        return None if loss is None else KernelModel(**{**plain, "loss": loss, "fit_intercept": True})

    def without_basis(self, sheet: Sheet) -> Sheet:
        """The rows with targets from which a least-squares fit of the basis was taken."""
        every = np.arange(len(sheet.X))
        Psi = self.psi(sheet.X, sheet.rows, every, every[:0])
        Psi = np.column_stack([Psi, np.ones(len(Psi))])
        if np.ptp(Psi, axis=0).max() <= 0:  # constants only, which the intercept stands for
            return sheet
        rows = sheet.rows
        fitted = (Psi @ np.linalg.lstsq(Psi, rows.Y.T, rcond=None)[0]).T
        return replace(sheet, rows=replace(rows, Y=rows.Y - fitted))

    def stages(
        self, dimensions: Mapping[str, Dimension], start: Mapping[str, Any], facts: DataFacts
    ) -> list[SearchStage]:
        """Those of the kernel model that stands for it, on what the basis leaves of the targets."""
        return [
            replace(stage, change=self.without_basis) for stage in super().stages(dimensions, start, facts)
        ]
