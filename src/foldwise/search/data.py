"""From what ``fit`` is given to rows, classes and folds; what cannot be used is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold, check_cv
from sklearn.utils import indexable
from sklearn.utils.validation import check_array, validate_data

from foldwise.arguments import is_splitter
from foldwise.estimators.encoding import check_target, check_weight, encode_classes, encode_groups
from foldwise.estimators.tunable import Tunable
from foldwise.models.base import Array, Rows
from foldwise.search.prepare import Data
from foldwise.search.repeats import RepeatedFolds, repeated
from foldwise.splits import Splits, read_splits

__all__ = ["read_data"]


def read_data(
    search: Any, tunable: Tunable, X: Any, y: Any, sample_weight: Any, sample_groups: Any, groups: Any
) -> Data:
    """The data of a search, which is told their names and number of columns, and their classes."""
    y = _target(y, tunable)
    if X is None:
        raise ValueError("X is None; give the features: an array, a data frame or a sparse matrix")
    X, y = _features(search, tunable, X, y)
    n = len(y)
    weight = None if sample_weight is None else check_weight(sample_weight, np.empty((n, 1)))
    group, group_labels = encode_groups(sample_groups, n)
    classes = None
    if tunable.task == "classification":
        classes, Y, codes = encode_classes(y)
        search.classes_ = classes
        rows = Rows(Y, weight, group, group_labels, codes, classes.tolist())
    elif n > 1 and np.any(np.ptp(y, axis=0) == 0):
        column = int(np.argmin(np.ptp(y.reshape(n, -1), axis=0)))
        which = f"column {column} of the target" if y.ndim > 1 else "the target"
        level = y.reshape(n, -1)[0, column]
        raise ValueError(f"{which} is constant ({level:g}); there is nothing to select. Check the column")
    else:
        rows = Rows(np.array(y[None] if y.ndim == 1 else y.T), weight, group, group_labels)
    stratified = tunable.task == "classification"
    cv = repeated(search.cv, search.repeats, n, stratified)
    splits = _folds(cv, tunable, X, y, groups, rows)
    first = cv.n_splits if isinstance(cv, RepeatedFolds) else None
    return Data(X, rows, classes, splits, getattr(search, "feature_names_in_", None), first=first)


def _target(y: Any, tunable: Tunable) -> Array:
    """The target: flat, or a table (n, targets) for estimators that take one."""
    shape: tuple[int, ...] = np.shape(y) if tunable.outputs != "one" else ()
    if tunable.outputs == "table" and len(shape) != 2:
        raise ValueError(
            f"MultiOutputRegressor needs a target of shape (n, targets); got shape {shape}. Leave the wrapper out, or "
            "give y[:, None]"
        )
    if len(shape) != 2 or (shape[-1] == 1 and tunable.outputs == "several"):
        return check_target(y, tunable.task)
    table = y.to_numpy() if hasattr(y, "to_numpy") else np.asarray(y)
    return np.column_stack([check_target(column, tunable.task) for column in table.T])


def _features(search: Any, tunable: Tunable, X: Any, y: Array) -> tuple[Any, Array]:
    """X as the pipeline takes it, which may be anything with rows, or as numbers for the model."""
    if tunable.standardize() != "general":
        X = validate_data(search, X, accept_sparse="csr", dtype=float)
        if X.shape[0] != len(y):
            raise ValueError(f"X has {X.shape[0]} rows and y has {len(y)}; they must be equal")
        return X, y
    X, y = indexable(X, y)
    shape = getattr(X, "shape", None)
    if shape is not None and 0 in shape:  # says what is missing
        check_array(X, accept_sparse=True, dtype=None, ensure_all_finite=False)
    if (names := getattr(X, "columns", None)) is not None:
        search.feature_names_in_ = np.asarray(names, dtype=object)
    if shape is not None and len(shape) == 2:
        search.n_features_in_ = shape[1]
    return X, y


def _check_number(cv: Any, rows: Rows) -> None:
    """Refuse more stratified folds than any class has rows."""
    if isinstance(cv, StratifiedKFold | RepeatedFolds) and rows.label is not None:
        most, folds = int(np.bincount(rows.label).max()), int(cv.n_splits)
        if folds > most:
            raise ValueError(
                f"{folds} folds were asked for, and the largest class has {most} row{'s' * (most > 1)}; stratified "
                f"folds need a class with as many rows as folds. Use {_fewer(most)}, or give more rows"
            )


def _fewer(most: int) -> str:
    return f"cv={most} or fewer" if most > 1 else "a splitter that does not stratify, such as KFold"


def _folds(cv: Any, tunable: Tunable, X: Any, y: Array, groups: Any, rows: Rows) -> Splits:
    """The folds, every one of which trains on rows of every class and group of samples."""
    if is_splitter(cv) or not isinstance(cv, Iterable):
        cv = check_cv(cv, y, classifier=tunable.task == "classification")
        _check_number(cv, rows)
        cv = cv.split(X, y, groups)
    splits = read_splits(cv, rows.Y.shape[1])
    for t, (train, _) in enumerate(splits):
        if rows.label is not None:
            weight = None if rows.weight is None else rows.weight[train]
            present = np.bincount(rows.label[train], weight, minlength=len(rows.class_labels))
            if np.any(present == 0):
                missing = rows.class_labels[int(np.argmin(present))]
                raise ValueError(
                    f"class {missing!r} has no training rows in fold {t} (or only rows of weight 0); use "
                    "fewer folds, or a stratified splitter"
                )
        if rows.group is not None:
            present = np.bincount(rows.group[train], minlength=len(rows.group_labels))
            if np.any(present == 0):
                missing = rows.group_labels[int(np.argmin(present))]
                raise ValueError(
                    f"sample group {missing!r} has no training rows in fold {t}; use fewer folds, merge small "
                    "groups, or split with StratifiedKFold on the groups"
                )
    return splits
