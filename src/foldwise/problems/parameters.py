"""From ``theta`` to the numbers that training problems use, and the chain rule back.

Problems say how things answer to these numbers, by kind; nobody else knows where a kind comes from in ``theta``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from foldwise.space import Space

__all__ = ["Binding", "Canonical", "ParameterMap"]

Array: TypeAlias = np.ndarray[Any, Any]

LOGARITHMIC = ("log_c", "log_lam", "log_kernel", "log_near")
"""Kinds that act by their logarithm; the others act by their value."""
BOX = {
    "box": (("upper", 1.0), ("lower", -1.0)),
    "box_upper": (("upper", 1.0),),
    "box_lower": (("lower", 1.0),),
}
"""What a bound on the weights moves: a symmetric box both sides."""


@dataclass(frozen=True, eq=False)
class Binding:
    """Where a named hyper-parameter acts.

    ``kind`` is "log_c" (multiplies the loss of a cell), "epsilon" (the tube of a cell) or the name of another parameter
    of the loss, "log_lam" (the penalty of a feature), "log_kernel" (a parameter of the kernel), "box", "box_upper" or
    "box_lower" (bounds of a weight, on both sides or on one), "log_near" (the pull to reference weights) or "reference"
    (these weights). ``index[i, j]`` is the entry of the parameter that task ``i`` uses for cell ``j`` (for penalties,
    bounds and references: target ``i`` for feature ``j``; for "log_kernel": ``i = 0`` and ``j`` is the kernel's
    parameter), or -1 where it does not act. ``sign`` is -1 for a parameter that divides (ridge's alpha). One kind more
    is "l1_ratio", the share of the L1 norm in the penalty of a feature.
    """

    kind: str
    index: Array
    sign: float = 1.0


class Canonical:
    """What problems use at one ``theta``, and how it moves with ``theta``.

    Attributes
    ----------
    values : mapping from kind to ndarray
        Of shape (users, places): tasks and cells for ``log_c`` and the loss's own parameters, targets and features for
        penalties, bounds and references, one user for the kernel.
    c, lam, near : ndarray
        Exponentials of the kinds that are logarithms.
    scale_curvature : ndarray, shape (p,)
        ``theta'' / theta'`` of the change of scale: what it adds to a Hessian is this times the gradient.
    """

    def __init__(
        self, values: Mapping[str, Array], slopes: Mapping[str, Array], scale_curvature: Array, size: int
    ) -> None:
        self.values, self._slopes, self.scale_curvature, self.size = values, slopes, scale_curvature, size
        self.c, self.lam = np.exp(values["log_c"]), np.exp(values["log_lam"])
        self.near = np.exp(values["log_near"])
        self.epsilon, self.log_kernel = values["epsilon"], values["log_kernel"]
        self.l1_ratio = values["l1_ratio"]
        self.upper, self.lower, self.reference = values["upper"], values["lower"], values["reference"]

    def tunes(self, kind: str) -> bool:
        """Whether this kind moves with ``theta``."""
        return kind in self._slopes

    def slope(self, kind: str, users: Any = slice(None), places: Any = slice(None)) -> Array:
        """``d kind / d theta`` for some users and places: shape (users, places, p)."""
        if kind not in self._slopes:
            return np.zeros((*self.values[kind].shape, self.size))[users][..., places, :]
        return self._slopes[kind][users][..., places, :]

    def pull(self, by_kind: Mapping[str, Array]) -> Array:
        """``dF/dtheta`` from ``dF/dkind``, each of the shape of its kind: the vector-Jacobian product, (p,)."""
        out = np.zeros(self.size)
        for kind, gradient in by_kind.items():
            if kind in self._slopes:
                out += gradient.reshape(-1) @ self._slopes[kind].reshape(-1, self.size)
        return out

    def push(self, kind: str, M: Array, users: Any = slice(None)) -> Array:
        """``M d kind / d theta`` for matrices ``M`` (users, k, places): the Jacobian-vector products, (users, k, p)."""
        return np.asarray(np.matmul(M, self._slopes[kind][users]))

    def outer(self, kind: str, M: Array, users: Any = slice(None)) -> Array:
        """``sum (d kind / d theta)' M`` over users and places, for ``M`` (users, places, p): second order, (p, p)."""
        return np.asarray(self._slopes[kind][users].reshape(-1, self.size).T @ M.reshape(-1, self.size))


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
    loss : mapping from name to ndarray, shape (tasks, cells), optional
        Fixed parts of further parameters of the loss, those of ``loss.tunable`` beside the tube.
    l1_ratio : ndarray, shape (targets, features), optional
        Fixed part of the share of the L1 norm in the penalty; zero where it is tuned, and by default.

    Attributes
    ----------
    kinds : dict from parameter name to kind
    tunes : frozenset of str
        Kinds that move with ``theta``.
    bounded : bool
        Whether weights have bounds.
    """

    def __init__(
        self,
        space: Space,
        bindings: Mapping[str, Binding],
        log_c: Array,
        epsilon: Array,
        log_lam: Array,
        log_kernel: Array | None = None,
        bounds: tuple[Array, Array] | None = None,
        log_near: Array | None = None,
        loss: Mapping[str, Array] | None = None,
        l1_ratio: Array | None = None,
    ) -> None:
        self.space = space
        self.kinds = {name: bindings[name].kind for name in space.slices}
        kernel = np.zeros((1, 0)) if log_kernel is None else log_kernel
        low, high = bounds or (np.full(log_lam.shape, -np.inf), np.full(log_lam.shape, np.inf))
        self._base = {"log_c": log_c, "epsilon": epsilon, "log_lam": log_lam, "log_kernel": kernel}
        self._base |= {"lower": low, "upper": high, "reference": np.zeros(log_lam.shape), **(loss or {})}
        self._base["l1_ratio"] = np.zeros(log_lam.shape) if l1_ratio is None else l1_ratio
        self._base["log_near"] = np.full(log_lam.shape, -np.inf) if log_near is None else log_near
        self._incidence: dict[str, Array] = {}
        self._mixed = np.zeros(space.size, dtype=bool)
        self._is_log = np.zeros(space.size, dtype=bool)
        for block in space.blocks:
            binding = bindings[block.name]
            columns = space.slices[block.name]
            used = binding.index >= 0
            users, places = np.nonzero(used)
            for kind, side in BOX.get(binding.kind, ((binding.kind, 1.0),)):
                empty = np.zeros((*self._base[kind].shape, space.size))
                matrix = self._incidence.setdefault(kind, empty)
                matrix[users, places, columns.start + block.index[binding.index[used]]] += side * binding.sign
                self._mixed[columns] = (block.scale == "log") != (kind in LOGARITHMIC)
            self._is_log[columns] = block.scale == "log"
        # log(exp(theta)) and plain values need no change of scale; the other two combinations do.
        self._constant = not self._mixed.any()
        self.tunes = frozenset(self._incidence)
        self.bounded = bool(
            self.tunes & {"upper", "lower"} or np.any(np.isfinite(low)) or np.any(np.isfinite(high))
        )

    def __call__(self, theta: Array) -> Canonical:
        """The canonical values at ``theta``."""
        theta = np.asarray(theta, float)
        values, slope, curvature = theta, np.ones(len(theta)), np.zeros(len(theta))
        if not self._constant:
            values = theta.copy()
            to_exp, to_log = self._mixed & self._is_log, self._mixed & ~self._is_log
            values[to_exp] = np.exp(theta[to_exp])
            slope[to_exp] = values[to_exp]
            curvature[to_exp] = 1.0
            positive = np.maximum(theta[to_log], np.finfo(float).tiny)
            values[to_log] = np.log(positive)
            slope[to_log] = 1.0 / positive
            curvature[to_log] = -1.0 / positive
        by_kind = dict(self._base)
        slopes = {}
        for kind, matrix in self._incidence.items():
            by_kind[kind] = self._base[kind] + matrix @ values
            slopes[kind] = matrix if self._constant else matrix * slope
        return Canonical(by_kind, slopes, curvature, self.space.size)
