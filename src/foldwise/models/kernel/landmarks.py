"""Landmark rows through which the kernel of a smooth machine is seen during a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foldwise.kernels import Kernel
from foldwise.models.base import Array, Sheet
from foldwise.problems.gram import choose_landmarks

__all__ = ["LandmarkRule"]


@dataclass(frozen=True)
class LandmarkRule:
    """When landmarks are used, and how many; docs/kernels.md has what they save.

    Attributes
    ----------
    least_rows : without being asked, landmarks are tried from this many rows on
    unseen : share of any row that they may leave unseen
    narrower : they are chosen for widths this many times those where a search starts, so that they serve on its way
    share, most : without being asked, at most this share of the rows, and this many
    asked_share, asked_most : the same with ``low_rank=True``
    """

    least_rows: int = 1_500
    unseen: float = 1e-3
    narrower: float = 2.0
    share: float = 0.1
    most: int = 400
    asked_share: float = 0.5
    asked_most: int = 1_000

    def choose(
        self, kernel: Kernel, possible: bool, sheets: Sequence[Sheet], low_rank: bool | str
    ) -> list[Array] | None:
        """Landmark rows of every sheet, or None where the kernel matrix is to be formed in full."""
        n, asked = len(sheets[0].X), low_rank is True
        if asked and not possible:
            raise ValueError(
                "low_rank=True needs a smooth loss and a kernel that is not precomputed; use 'auto'"
            )
        if low_rank is False or not possible or (not asked and n < self.least_rows):
            return None
        limit = (
            min(int(self.asked_share * n), self.asked_most) if asked else min(int(self.share * n), self.most)
        )
        out = []
        for sheet in sheets:
            rows, unseen = choose_landmarks(self._narrowed(kernel, sheet.X), sheet.X, self.unseen, limit)
            if unseen > self.unseen and not asked:
                return None
            out.append(rows)
        return out

    def _narrowed(self, kernel: Kernel, X: Array) -> Kernel:
        """The kernel at typical values for these rows, with narrower widths."""
        kinds, sizes = kernel.kinds(), {n: v.size for n, v in kernel.parameters(X.shape[1]).items()}
        values = {}
        for name, value in kernel.typical(X).items():
            value = self.narrower * value if kinds[name] == "width" else value
            values[name] = np.full(sizes[name], value) if sizes[name] > 1 else value
        return kernel.with_parameters(values)
