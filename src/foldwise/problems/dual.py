r"""The classical kernel machines: hinge and epsilon-insensitive loss, through the dual's box.

At the solution of task ``m`` every training row is of one of three kinds: outside (``alpha_j = 0``), at its bound
(``alpha_j = s_j c_j v_j`` with ``s_j`` the sign of its side), or free, and then its decision sits exactly on the kink:
``z_j = y_j`` for the hinge, ``z_j = y_j - s_j epsilon_j`` for the tube. While ``theta`` moves a little no row changes
kind, so ``alpha`` of the free rows and the intercept follow from ``K_FF alpha_F + b = ...`` and ``sum alpha = 0``: the
same adjoint and sensitivities as for smooth losses, with the system of the free rows in place of the curved ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf

from foldwise.losses import EpsilonInsensitive, Hinge, Loss
from foldwise.problems.folds import Folds
from foldwise.problems.gram import ActiveSystem, submatrix
from foldwise.problems.kernel import KernelPoint, KernelProblem
from foldwise.problems.parameters import Canonical, ParameterMap

__all__ = ["DualProblem", "FreeSystem"]


class FreeSystem(ActiveSystem):
    """``K_FF`` of the free rows, factored; ``solve`` gives ``v, b`` with ``K v = r + b`` and ``sum v = total``."""

    @classmethod
    def build(cls, K: np.ndarray, rows: np.ndarray, D: Any, intercept: bool) -> FreeSystem:
        """Factor the free rows' kernel matrix; duplicate rows get a vanishing ridge. ``D`` is not used."""
        H = submatrix(K, rows)
        ridge = 1e-12 * max(float(np.trace(H)) / max(len(rows), 1), np.finfo(float).tiny)
        info = 1
        while len(rows) and info != 0:
            factor, info = dpotrf(H + ridge * np.eye(len(rows)), lower=1, clean=0)
            ridge *= 100.0
            if not np.isfinite(ridge):
                raise FloatingPointError(
                    "a kernel matrix has values that are not finite; check X and the kernel"
                )
        self = cls(rows, np.ones(len(rows)), factor if len(rows) else H, None, 0.0)
        if intercept:
            self.ones = self.core(np.ones(len(rows)))
            self.mass = float(self.ones.sum())
        return self


class DualProblem(KernelProblem):
    """Exact support vector machines on shared rows; parameters as in :class:`KernelProblem`."""

    def __init__(
        self,
        gram: Any,
        Y: np.ndarray,
        folds: Folds,
        loss: Loss,
        parameters: ParameterMap,
        intercept: bool,
        weight: np.ndarray | None = None,
        n_total: int | None = None,
        present: np.ndarray | None = None,
    ) -> None:
        if not isinstance(loss, (Hinge, EpsilonInsensitive)):
            raise ValueError(f"the dual form is for Hinge and EpsilonInsensitive; got {type(loss).__name__}")
        super().__init__(gram, Y, folds, loss, parameters, intercept, weight, n_total, present)

    def _check_loss(self, loss: Loss) -> None:
        """Any of the two polyhedral losses."""

    def kinds(self, alpha: np.ndarray, par: Canonical) -> tuple[np.ndarray, np.ndarray]:
        """Masks (tasks, n) of the free rows and of those at their bound."""
        c = self.strength(par)
        size = np.abs(alpha)
        at_bound = (size >= c * (1 - 1e-9)) & (c > 0)
        free = (size > c * 1e-9) & ~at_bound & (c > 0)
        return free, at_bound

    def on_kink(self, alpha: np.ndarray, par: Canonical) -> np.ndarray:
        """Decision that a free row is held at: (tasks, n)."""
        y = np.broadcast_to(self.targets(), alpha.shape)
        if self.loss.task == "classification":
            return y
        return y - np.sign(alpha) * self.by_row(par.epsilon)

    def systems(self, point: KernelPoint) -> list:
        """The factored system of every task's free rows; built once."""
        if not point.systems:
            K = self.gram(point.theta, point.par).K
            free, _ = self.kinds(point.alpha, point.par)
            point.systems = [FreeSystem.build(K, np.flatnonzero(row), None, self.intercept) for row in free]
        return point.systems

    def direct(self, point: KernelPoint) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Rows at their bound move with it; free rows of a tube move with its width."""
        par, tunes = point.par, self.parameters.tunes
        free, at_bound = self.kinds(point.alpha, par)
        direct = shift = None
        if tunes["log_c"]:
            direct = (point.alpha * at_bound)[:, :, None] * self.by_row(par.d_log_c)
        if tunes["epsilon"]:
            shift = -(np.sign(point.alpha) * free)[:, :, None] * self.by_row(par.d_epsilon)
        return direct, shift

    def residual(self, point: KernelPoint) -> np.ndarray:
        """Violation of the dual's optimality conditions in units of the decision, and of ``sum alpha``."""
        par = point.par
        Z = self.gram(point.theta, par).product(point.alpha) + point.W[:, -1:]
        free, at_bound = self.kinds(point.alpha, par)
        outside = self.trains & ~free & ~at_bound & (self.weight > 0)
        y = np.broadcast_to(self.targets(), Z.shape)
        gap = np.abs(Z - self.on_kink(point.alpha, par)) * free
        if self.loss.task == "classification":
            margin = 1.0 - y * Z
            gap += np.maximum(margin, 0) * outside + np.maximum(-margin, 0) * at_bound
        else:
            r, epsilon = Z - y, self.by_row(par.epsilon)
            beyond = -r * np.sign(point.alpha) - epsilon
            gap += np.maximum(np.abs(r) - epsilon, 0) * outside + np.maximum(-beyond, 0) * at_bound
        scale = 1.0 if self.loss.task == "classification" else max(float(np.std(self.Y)), 1e-300)
        total = np.abs(point.alpha.sum(axis=1)) / np.maximum(np.abs(point.alpha).sum(axis=1), 1e-300)
        return gap.max(axis=1) / scale + (total if self.intercept else 0.0)

    row_residual = residual

    def n_kinks(self, point: KernelPoint, tol: float = 1e-9) -> int:
        """Rows that sit on the kink without being free: there the solution has two one-sided derivatives."""
        free, _ = self.kinds(point.alpha, point.par)
        if self.loss.task == "classification":
            at = np.abs(1.0 - self.targets() * point.Z) <= tol
        else:
            at = np.abs(np.abs(point.Z - self.targets()) - self.by_row(point.par.epsilon)) <= tol
        return int(np.sum(at & self.trains & ~free))
