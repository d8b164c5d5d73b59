"""Cholesky factors that survive rounding."""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf

__all__ = ["cholesky"]


def cholesky(H: np.ndarray) -> np.ndarray:
    """Lower factor of a symmetric matrix; a vanishing ridge is added where it is singular to rounding."""
    factor, info = dpotrf(H, lower=1, clean=0)
    ridge = 1e-14 * max(float(np.abs(np.diagonal(H)).max(initial=0.0)), np.finfo(float).tiny)
    while info != 0:
        factor, info = dpotrf(H + ridge * np.eye(len(H)), lower=1, clean=0)
        ridge *= 100.0
        if not np.isfinite(ridge):
            raise FloatingPointError(
                "a training problem has a Hessian that is not finite; check X for huge values"
            )
    return factor
