"""From ``theta`` to the numbers that a linear training problem uses, with derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foldwise.space import Space

__all__ = ["Binding", "Canonical", "ParameterMap"]

KINDS = ("log_c", "epsilon", "log_lam", "log_kernel", "upper", "lower", "log_near", "reference")
PLAIN = ("epsilon", "upper", "lower", "reference")
"""Kinds that act by their value; the others act by their logarithm."""
BOX = {
    "box": (("upper", 1.0), ("lower", -1.0)),
    "box_upper": (("upper", 1.0),),
    "box_lower": (("lower", 1.0),),
}
"""What a bound on the weights moves: a symmetric box both sides."""


@dataclass(frozen=True, eq=False)
class Binding:
    """Where a named hyper-parameter acts.

    ``kind`` is "log_c" (multiplies the loss of a cell), "epsilon" (the tube of a cell), "log_lam" (the penalty of
    a feature), "log_kernel" (a parameter of the kernel), "box", "box_upper" or "box_lower" (bounds of a weight, on both
    sides or on one), "log_near" (the pull to reference weights) or "reference" (these weights). ``index[i, j]`` is the
    entry of the parameter that task ``i`` uses for cell ``j`` (for penalties, bounds and references: target ``i`` for
    feature ``j``; for "log_kernel": ``i = 0`` and ``j`` is the kernel's parameter), or -1 where it does not act.
    ``sign`` is -1 for a parameter that divides (ridge's alpha).
    """

    kind: str
    index: np.ndarray
    sign: float = 1.0


@dataclass(frozen=True, eq=False)
class Canonical:
    """Values and derivatives at one ``theta``: ``c, epsilon`` per task and cell, the others per target and feature."""

    c: np.ndarray
    epsilon: np.ndarray
    lam: np.ndarray
    d_log_c: np.ndarray
    d_epsilon: np.ndarray
    d_log_lam: np.ndarray
    log_kernel: np.ndarray
    d_log_kernel: np.ndarray
    bend: np.ndarray
    upper: np.ndarray
    lower: np.ndarray
    near: np.ndarray
    d_upper: np.ndarray
    d_lower: np.ndarray
    d_log_near: np.ndarray
    reference: np.ndarray
    d_reference: np.ndarray


class ParameterMap:
    """``theta -> (log c, epsilon, log lam, ...)``: an elementwise change of scale, then sums of entries.

    Parameters
    ----------
    space : Space
    bindings : mapping from parameter name to Binding
        One for every block of the space.
    log_c, epsilon : ndarray, shape (tasks, cells)
        The fixed part; tuned parameters add to it.
    log_lam : ndarray, shape (targets, features)
    log_kernel : ndarray, shape (1, kernel parameters), optional
    bounds : (lower, upper), optional
        Fixed parts of the bounds of the weights, each of shape (targets, features); zero where they are tuned. By
        default there are none.
    log_near : ndarray, shape (targets, features), optional
        Fixed part of the pull to reference weights; none by default.
    """

    def __init__(
        self,
        space: Space,
        bindings: Mapping[str, Binding],
        log_c: np.ndarray,
        epsilon: np.ndarray,
        log_lam: np.ndarray,
        log_kernel: np.ndarray | None = None,
        bounds: tuple[np.ndarray, np.ndarray] | None = None,
        log_near: np.ndarray | None = None,
    ) -> None:
        self.space = space
        self.kinds = {name: bindings[name].kind for name in space.slices}
        kernel = np.zeros((1, 0)) if log_kernel is None else log_kernel
        low, high = bounds or (np.full(log_lam.shape, -np.inf), np.full(log_lam.shape, np.inf))
        self._base = {"log_c": log_c, "epsilon": epsilon, "log_lam": log_lam, "log_kernel": kernel}
        self._base |= {"lower": low, "upper": high}
        self._base["log_near"] = np.full(log_lam.shape, -np.inf) if log_near is None else log_near
        self._base["reference"] = np.zeros(log_lam.shape)
        self._incidence: dict[str, np.ndarray | None] = dict.fromkeys(KINDS)
        self._mixed = np.zeros(space.size, dtype=bool)
        self._is_log = np.zeros(space.size, dtype=bool)
        for block in space.blocks:
            binding = bindings[block.name]
            columns = space.slices[block.name]
            used = binding.index >= 0
            users, places = np.nonzero(used)
            for kind, side in BOX.get(binding.kind, ((binding.kind, 1.0),)):
                matrix = self._incidence[kind]
                if matrix is None:
                    matrix = np.zeros((*self._base[kind].shape, space.size))
                    self._incidence[kind] = matrix
                matrix[users, places, columns.start + block.index[binding.index[used]]] += side * binding.sign
                self._mixed[columns] = (block.scale == "log") != (kind not in PLAIN)
            self._is_log[columns] = block.scale == "log"
        # log(exp(theta)) and plain values need no change of scale; the other two combinations do.
        self._constant = not self._mixed.any()
        self.bounded = bool(
            self._incidence["upper"] is not None
            or self._incidence["lower"] is not None
            or np.any(np.isfinite(low))
            or np.any(np.isfinite(high))
        )
        """Whether weights have bounds."""
        self.tunes = {kind: self._incidence[kind] is not None for kind in KINDS}

    def __call__(self, theta: np.ndarray) -> Canonical:
        """The canonical values at ``theta``."""
        theta = np.asarray(theta, float)
        values, slope, bend = theta, np.ones(len(theta)), np.zeros(len(theta))
        if not self._constant:
            values = theta.copy()
            to_exp, to_log = self._mixed & self._is_log, self._mixed & ~self._is_log
            values[to_exp] = np.exp(theta[to_exp])
            slope[to_exp] = values[to_exp]
            bend[to_exp] = 1.0
            positive = np.maximum(theta[to_log], np.finfo(float).tiny)
            values[to_log] = np.log(positive)
            slope[to_log] = 1.0 / positive
            bend[to_log] = -1.0 / positive
        value, derivative = {}, {}
        for kind in KINDS:
            base, matrix = self._base[kind], self._incidence[kind]
            if matrix is None:
                value[kind] = base
                derivative[kind] = np.zeros((*base.shape, 0))
            else:
                value[kind] = base + matrix @ values
                derivative[kind] = matrix if self._constant else matrix * slope
        return Canonical(
            c=np.exp(value["log_c"]),
            epsilon=value["epsilon"],
            lam=np.exp(value["log_lam"]),
            d_log_c=derivative["log_c"],
            d_epsilon=derivative["epsilon"],
            d_log_lam=derivative["log_lam"],
            log_kernel=value["log_kernel"],
            d_log_kernel=derivative["log_kernel"],
            bend=bend,
            upper=value["upper"],
            lower=value["lower"],
            near=np.exp(value["log_near"]),
            d_upper=derivative["upper"],
            d_lower=derivative["lower"],
            d_log_near=derivative["log_near"],
            reference=value["reference"],
            d_reference=derivative["reference"],
        )
