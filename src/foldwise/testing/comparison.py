"""Comparisons in relative error that fail with a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["close", "relative_error", "require"]


def relative_error(got: Any, wanted: Any) -> float:
    """Largest difference divided by the largest entry of ``wanted``; shapes must agree.

    >>> relative_error([1.0, 2.0], [1.0, 4.0])
    0.5
    """
    got, wanted = np.asarray(got, float), np.asarray(wanted, float)
    require(got.shape == wanted.shape, f"shapes differ: got {got.shape}, wanted {wanted.shape}")
    size = np.max(np.abs(wanted), initial=0.0)
    return float(np.max(np.abs(got - wanted), initial=0.0) / max(size, np.finfo(float).tiny))


def require(condition: Any, message: str) -> None:
    """Raise an AssertionError with this sentence unless the condition holds, under ``python -O`` too."""
    if not condition:
        raise AssertionError(message)


def close(got: Any, wanted: Any, rtol: float, what: str, floor: float = 0.0) -> None:
    """Relative agreement, with ``wanted`` larger than ``floor`` so that agreement means something."""
    size = float(np.max(np.abs(wanted), initial=0.0))
    require(
        size > floor, f"{what}: the reference is negligible ({size:.2g}), so the comparison would say nothing"
    )
    error = relative_error(got, wanted)
    require(error <= rtol, f"{what}: relative error {error:.3g} exceeds {rtol:.3g}")
