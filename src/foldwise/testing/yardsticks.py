"""How closely a search must agree with refits, and what its objective is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from foldwise.testing.refits import CrossValidation

__all__ = ["SOLVED", "doubt", "named", "prior", "scales", "tolerance"]

SMOOTH_TOL, EXACT_TOL = 1e-6, 1e-3
"""Relative agreement of the objective: machines solved to rounding, and those with the hinge or the tube itself."""
SOLVED = 1e-5
"""KKT residual up to which a training problem counts as solved; docs/results.md has it."""


def doubt(by_hand: CrossValidation, params: Mapping[str, Any], value: float, gap: float) -> str:
    """Why the referee is not sure of its own value; "" where it is.

    Its machines must converge, have a gradient that is zero to the accuracy asked for, and give the same number for the
    same rows in another order and for features that differ in their last digits.
    """
    if not by_hand.unsure and by_hand.residual(params) > 1e-2 * gap / max(abs(value), gap):
        by_hand.unsure = "the plain estimator does not converge"
    rng = np.random.default_rng(0)
    other = by_hand.value(params, rng)
    if not by_hand.unsure and abs(other - value) > 0.2 * gap:
        return "the plain estimator depends on the order of the rows"
    if not by_hand.unsure and any(abs(by_hand.shaken(params, rng) - value) > 0.1 * gap for _ in range(3)):
        return "the last digits of the features decide"
    return by_hand.unsure


def tolerance(by_hand: CrossValidation, X: Any) -> float:
    """Agreement that can be asked for: single precision in X leaves three digits less."""
    single = getattr(X, "dtype", None) == np.float32
    return EXACT_TOL if by_hand.exact or single else SMOOTH_TOL


def scales(space: Any) -> np.ndarray:
    """Which entries of theta are logarithms."""
    return np.concatenate([np.full(b.size, b.scale == "log") for b in space.blocks])


def named(search: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values under the names that ``set_params`` takes."""
    full = {name.split("__", 1)[-1] if name not in values else name: name for name in search.best_params_}
    out = {}
    for name, value in values.items():
        key = name if name in search.best_params_ else full[name]
        if name == "class_weight":
            value = dict(zip(search.classes_.tolist(), [1.0, *np.atleast_1d(value).tolist()], strict=True))
        out[key] = value
    return out


def prior(search: Any, theta: np.ndarray, n: int) -> float:
    """``kappa / (2 n) ||log gamma - mean||^2`` for every block of several widths on a log scale."""
    usual = 0.0 if search.method == "mpec" else 0.5
    kappa, total = usual if search.shrinkage is None else float(search.shrinkage), 0.0
    for block in search.space_.blocks:
        if block.size > 1 and block.name.endswith("gamma") and block.scale == "log":
            part = theta[search.space_.slices[block.name]]
            total += 0.5 * kappa / n * float(np.sum((part - part.mean()) ** 2))
    return total
