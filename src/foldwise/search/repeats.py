"""Several partitions of the same rows into folds, so that one unlucky partition does not decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import KFold, StratifiedKFold

__all__ = ["FEW_ROWS", "RepeatedFolds", "repeated"]

FEW_ROWS = 100
"""Up to this many rows "auto" takes several partitions; docs/selection.md has what they are worth."""
USUAL_REPEATS = 3
"""How many "auto" takes then."""


class RepeatedFolds:
    """Folds of several partitions: a splitter in the manner of scikit-learn's ``RepeatedStratifiedKFold``.

    The first partition is the one that the number of folds alone stands for, rows in their order; the others are
    shuffled, each by a seed of its own, the same in every call.

    Parameters
    ----------
    n_splits : int
        Folds of a partition.
    n_repeats : int
        Partitions.
    stratified : bool
        Whether folds keep the shares of the classes.

    Examples
    --------
    >>> folds = RepeatedFolds(3, 2, stratified=False)
    >>> [validation.tolist() for _, validation in folds.split(np.zeros(6))]
    [[0, 1], [2, 3], [4, 5], [2, 5], [0, 1], [3, 4]]
    """

    def __init__(self, n_splits: int, n_repeats: int, stratified: bool) -> None:
        self.n_splits, self.n_repeats, self.stratified = n_splits, n_repeats, stratified

    def __repr__(self) -> str:
        return f"RepeatedFolds({self.n_splits}, {self.n_repeats}, stratified={self.stratified})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Folds of all partitions."""
        return self.n_splits * self.n_repeats

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (training rows, validation rows), partition after partition."""
        kind: Any = StratifiedKFold if self.stratified else KFold
        yield from kind(self.n_splits).split(X, y)
        for repeat in range(1, self.n_repeats):
            yield from kind(self.n_splits, shuffle=True, random_state=repeat).split(X, y)


def repeated(cv: Any, repeats: int | str, n_rows: int, stratified: bool) -> Any:
    """What ``cv`` and ``repeats`` of a search stand for: ``cv`` itself where one partition is asked for.

    Raises
    ------
    ValueError
        Where a splitter or a list of folds is to be repeated.
    """
    number = cv is None or not (isinstance(cv, str) or hasattr(cv, "split") or isinstance(cv, Iterable))
    if repeats == "auto":
        repeats = USUAL_REPEATS if number and n_rows <= FEW_ROWS else 1
    if repeats == 1:
        return cv
    if not number:
        raise ValueError(
            f"repeats={repeats} cuts a number of folds several times, and cv={type(cv).__name__} is taken as it is; "
            "give cv a number, or leave repeats at 'auto' and cv a splitter that repeats (RepeatedStratifiedKFold)"
        )
    return RepeatedFolds(5 if cv is None else int(cv), int(repeats), stratified)
