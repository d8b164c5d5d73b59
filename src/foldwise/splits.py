"""Which rows train and which validate, as a user or a splitter gives them: row numbers, masks, slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = ["Splits", "read_splits"]

Splits = Sequence[tuple[np.ndarray, np.ndarray]]
"""Pairs (train, validation) of row numbers; a row may come several times, and in both."""


def read_splits(pairs: Iterable[Any], n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Splits of ``n`` rows as pairs of row numbers, or an error that says what is wrong with them.

    Each part may be integers in any order (negative ones count from the end, as in NumPy), a mask of ``n`` booleans, or
    a slice. A row that comes twice counts twice.

    >>> read_splits([([True, True, False, False], [-1, 2])], 4)
    [(array([0, 1]), array([3, 2]))]
    """
    splits = []
    for t, pair in enumerate(pairs):
        try:
            train, validation = pair
        except (TypeError, ValueError):
            raise ValueError(
                f"cv gives {_short(pair)} for fold {t}; it must give pairs (training rows, validation rows)"
            ) from None
        parts = [_numbers(train, n, t, "training"), _numbers(validation, n, t, "validation")]
        splits.append((parts[0], parts[1]))
    if not splits:
        raise ValueError("cv gives no folds; pass a number of folds, a splitter or (train, test) pairs")
    for t, (train, validation) in enumerate(splits):
        if not len(train) or not len(validation):
            raise ValueError(
                f"fold {t} has {len(train)} training and {len(validation)} validation rows; it needs some of both"
            )
    return splits


def _numbers(part: Any, n: int, fold: int, role: str) -> np.ndarray:
    """Row numbers from 0 to ``n - 1``."""
    where = f"the {role} rows of fold {fold}"
    if isinstance(part, slice):
        return np.arange(n)[part]
    try:
        array = np.asarray(part)
    except ValueError:  # ragged
        array = np.asarray(None)
    if array.ndim == 1 and not len(array):
        return np.zeros(0, dtype=np.intp)
    if array.dtype == object and array.ndim == 1:
        # Columns of a table may hold booleans or integers as objects.
        types = {type(value) for value in array.tolist()}
        array = array.astype(bool) if types == {bool} else array.astype(int) if types == {int} else array
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise ValueError(
            f"{where} are {_short(part)}; they must be a list of row numbers (integers) or a mask of {n} booleans"
        )
    if array.dtype.kind == "b":
        if len(array) != n:
            raise ValueError(f"{where} are a mask of {len(array)} booleans; X has {n} rows")
        return np.flatnonzero(array)
    lowest, highest = int(array.min()), int(array.max())
    if lowest < -n or highest >= n:
        bad = highest if highest >= n else lowest
        raise ValueError(
            f"{where} hold the row number {bad}; X has {n} rows, numbered from 0 to {n - 1}. Give positions, not "
            "labels of an index"
        )
    numbers = array.astype(np.intp)
    return np.where(numbers < 0, numbers + n, numbers) if lowest < 0 else numbers


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
