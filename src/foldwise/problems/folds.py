"""Which rows train and which validate, for several splits that share one design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Folds"]


@dataclass(frozen=True, eq=False)
class Folds:
    """Splits of ``n`` rows, in an order of the rows that makes the common cases contiguous.

    Rows are stored by validation block and, inside a block, by cell (a cell is a set of rows that share their
    hyper-parameters: a group of samples, a class). ``order`` maps stored rows to the user's.

    Attributes
    ----------
    order : ndarray of int, shape (n,)
    partition : bool
        True when the validation sets are disjoint and every split trains on all other rows: K-fold. Then the
        Gram matrix of a training set is the total less its own block.
    validation : list of slice or ndarray
        Stored rows that validate split ``t``.
    train : ndarray of bool, shape (splits, n)
    count : ndarray, shape (splits, n)
        How often a row trains a split: ``train`` itself where none does so twice.
    segments : list of list of slice
        ``segments[b][q]``: stored rows of block ``b`` and cell ``q``. Without a partition there is one block.
    cell : ndarray of int, shape (n,)
        Cell of each stored row.
    """

    order: np.ndarray
    partition: bool
    validation: list[Any]
    train: np.ndarray
    count: np.ndarray
    segments: list[list[slice]]
    cell: np.ndarray
    n_cells: int

    @property
    def once(self) -> bool:
        """Whether no row trains a split twice."""
        return self.count is self.train

    @property
    def n_splits(self) -> int:
        return len(self.validation)

    @classmethod
    def build(
        cls,
        n: int,
        splits: Sequence[tuple[np.ndarray, np.ndarray]],
        cell: np.ndarray | None = None,
        blocks: bool = True,
    ) -> Folds:
        """From ``(train, validation)`` pairs of row numbers, which may repeat rows and have rows in common.

        Without ``blocks`` the order of the rows depends on their cells alone.
        """
        cell = np.zeros(n, dtype=int) if cell is None else np.asarray(cell, dtype=int)
        n_cells = int(cell.max()) + 1 if n else 1
        block = np.full(n, len(splits))
        validations = np.zeros(n, dtype=int)
        partition = blocks
        for t, (train, validation) in enumerate(splits):
            block[validation] = t
            used = np.bincount(validation, minlength=n)
            validations += used
            # K-fold: every row trains or validates, once.
            partition = partition and bool(np.all(used + np.bincount(train, minlength=n) == 1))
        partition = partition and validations.max(initial=0) <= 1
        if not partition:
            block[:] = 0
        key = block * n_cells + cell
        order = np.arange(n) if np.all(key[1:] >= key[:-1]) else np.argsort(key, kind="stable")
        sorted_key = key[order]
        n_blocks = int(block.max(initial=0)) + 1
        edges = np.searchsorted(sorted_key, np.arange(n_blocks * n_cells + 1))
        segments = [
            [slice(int(edges[b * n_cells + q]), int(edges[b * n_cells + q + 1])) for q in range(n_cells)]
            for b in range(n_blocks)
        ]
        position = np.empty(n, dtype=int)
        position[order] = np.arange(n)
        trains = np.zeros((len(splits), n), dtype=bool)
        validation_rows: list[Any] = []
        for t, (train, validation) in enumerate(splits):
            trains[t, position[train]] = True
            if partition:
                rows = segments[t]
                validation_rows.append(slice(rows[0].start, rows[-1].stop) if t < n_blocks else slice(0, 0))
            else:
                validation_rows.append(np.sort(position[validation]))
        count = trains
        if any(len(train) > np.count_nonzero(row) for (train, _), row in zip(splits, trains, strict=True)):
            count = np.stack([np.bincount(position[train], minlength=n) for train, _ in splits]).astype(float)
        return cls(order, partition, validation_rows, trains, count, segments, cell[order], n_cells)

    @classmethod
    def whole(cls, n: int, cell: np.ndarray | None = None) -> Folds:
        """One split that trains on every row and validates on none."""
        return cls.build(n, [(np.arange(n), np.arange(0))], cell)
