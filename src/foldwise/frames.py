"""Data frames beside arrays: what the package asks of a table with named columns."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["as_frame", "column_names", "is_frame"]


def is_frame(X: Any) -> bool:
    """Whether a table has columns with names and rows that are numbered, as those of pandas have."""
    return hasattr(X, "columns") and hasattr(X, "iloc")


def column_names(X: Any) -> list[str] | None:
    """Names of the columns of a data frame; None for an array.

    >>> column_names(np.eye(2)) is None
    True
    """
    return [str(name) for name in X.columns] if is_frame(X) else None


def as_frame(X: np.ndarray, names: Any) -> Any:
    """``X`` as a data frame where its columns have names and pandas is there; otherwise as it is."""
    if names is None:
        return X
    try:
        import pandas as pd
    except ImportError:
        return X
    return pd.DataFrame(X, columns=list(names))
