"""Numbers, values and evaluations in words: how they read on a terminal, in a summary and in a report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from foldwise.result import Record

__all__ = [
    "format_fact",
    "format_number",
    "format_params",
    "format_record",
    "format_some",
    "format_value",
]


def format_number(value: float | None, digits: int = 4, missing: str = "–") -> str:
    """A few digits; a dash for what is missing.

    >>> format_number(0.000012345), format_number(None), format_number(1234567.0, 2)
    ('1.234e-05', '–', '1.2e+06')
    """
    return missing if value is None or not math.isfinite(value) else f"{float(value):.{digits}g}"


def format_fact(value: Any, digits: int = 4) -> str:
    """Yes or no, the digits of a number, or the text of anything else.

    >>> format_fact(True), format_fact(0.123456), format_fact(12), format_fact("none")
    ('yes', '0.1235', '12', 'none')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_number(value, digits) if value is None or isinstance(value, float) else str(value)


def format_params(params: Mapping[str, Any], *, most: int = 4) -> str:
    """Hyper-parameters in a few words: scalars as they are, vectors as a range.

    Examples
    --------
    >>> format_params({"C": 0.12345, "lam": np.array([0.1, 3.0, 2.0, 1.0])})
    'C 0.1235, lam 0.1 to 3 (4 values)'
    """
    words = [
        f"{name.rsplit('__', 1)[-1]} {format_value(value)}" for name, value in list(params.items())[:most]
    ]
    if len(params) > most:
        words.append(f"{len(params) - most} more")
    return ", ".join(words)


def format_value(value: ArrayLike) -> str:
    """One hyper-parameter: four digits, or the range of a vector."""
    values = np.asarray(value)
    if values.ndim == 0:
        return f"{float(values):.4g}"
    if values.size <= 3:
        return "[" + format_some(values.ravel()) + "]"
    return f"{values.min():.4g} to {values.max():.4g} ({values.size} values)"


def format_some(value: ArrayLike, most: int = 8) -> str:
    """The first entries, with four digits.

    >>> format_some(2.0), format_some(np.arange(10.0), 3)
    ('2', '0, 1, 2, ...')
    """
    values = np.atleast_1d(value)
    return ", ".join(f"{v:.4g}" for v in values[:most]) + (", ..." if len(values) > most else "")


def format_record(record: Record) -> str:
    """One line for one evaluation."""
    words = [f"evaluation {record.evaluation + 1}"]
    if record.start:
        words.append(f"start {record.start + 1}")
    words.append(f"objective {record.objective:.6g}")
    words.append(f"best {record.best:.6g}")
    if record.gradient_norm is not None and math.isfinite(record.gradient_norm):
        words.append(f"gradient {record.gradient_norm:.2g}")
    words.append(format_params(record.params))
    words.append(f"{record.elapsed:.1f} s")
    if record.note:
        words.append(str(record.note))
    return " | ".join(words)
