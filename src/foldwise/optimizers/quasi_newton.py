"""First-order methods on the reduced objective: L-BFGS-B, ImpGrad's BFGS, RPROP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foldwise.arguments import Table, integer, number, one_of
from foldwise.bilevel import Evaluation
from foldwise.optimizers.base import Minimizer, Trace
from foldwise.result import Status
from foldwise.space import Space

__all__ = ["Bfgs", "LBfgsB", "Rprop"]


@dataclass(frozen=True)
class LBfgsB(Minimizer):
    """SciPy's L-BFGS-B: the cross-check of the Newton method, and the choice for very many hyper-parameters.

    Parameters
    ----------
    tol : float
        Stop when an iteration lowers the objective by less than ``tol`` relatively.
    max_iter : int
    memory : int
        Number of stored correction pairs.
    """

    tol: float = 1e-8
    max_iter: int = 200
    memory: int = 20

    _arguments: ClassVar[Table] = {"tol": number(at_least=0), "max_iter": integer(), "memory": integer()}
    name = "lbfgsb"
    messages: ClassVar[Mapping[Status, str]] = {
        Status.CONVERGED: "An iteration lowered the cross-validation error by less than the tolerance."
    }

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``."""
        from scipy.optimize import minimize

        warm = None

        def objective(point: np.ndarray) -> tuple[float, np.ndarray | None]:
            nonlocal warm
            warm = trace.evaluate(point, warm=warm, order=1)
            return warm.objective, warm.gradient

        bounds = list(zip(trace.space.lower, trace.space.upper, strict=True))
        options = {"ftol": self.tol, "gtol": 1e-12, "maxiter": self.max_iter, "maxcor": self.memory}
        report = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if report.status == 1:
            return Status.MAX_ITER
        return Status.CONVERGED if report.success else Status.STALLED


@dataclass(frozen=True)
class Bfgs(Minimizer):
    """ImpGrad: implicit primal gradient with BFGS, Algorithm 1 of moore2011.

    Rows on the tube count as inside it (their subgradient is 0), the paper's choice, so the method can halt at a
    kink that is no local minimum; it then says so. It works on ``theta`` as the space scales it: give ``C`` a
    ``Lin`` dimension to walk in ``C`` itself as the paper does.

    Parameters
    ----------
    tol1 : float
        Stop when ``|F_i - F_(i-1)| < tol1 |F_i + 1|``.
    tol2 : float
        Stop when the projected gradient norm is below ``tol2 |F_i + 1|``.
    rule : {"any", "all"}
        The algorithm's listing stops when either test holds, the text after it names both; "any" is the listing.
    max_iter : int
    """

    tol1: float = 1e-3
    tol2: float = 1e-3
    rule: str = "any"
    max_iter: int = 200

    _arguments: ClassVar[Table] = {
        "tol1": number(at_least=0),
        "tol2": number(at_least=0),
        "rule": one_of("any", "all"),
        "max_iter": integer(),
    }
    name = "bfgs"
    limits: ClassVar[Mapping[str, str]] = {"tol": "tol1", "max_iter": "max_iter"}
    messages: ClassVar[Mapping[Status, str]] = {
        Status.CONVERGED: "The stopping rule of ImpGrad holds: a small decrease or a small hypergradient."
    }

    def accuracy(self) -> float:
        """The test on the decrease is the one that bounds the accuracy."""
        return self.tol1

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``."""
        space = trace.space
        B = np.eye(len(theta))
        here = trace.evaluate(theta, order=1, note="start")
        fresh = True
        for _ in range(self.max_iter):
            g = here.gradient
            assert g is not None
            free = ~(((here.theta <= space.lower) & (g > 0)) | ((here.theta >= space.upper) & (g < 0)))
            if not free.any() or (
                np.linalg.norm(g[free]) < self.tol2 * abs(here.objective + 1.0) and self.rule == "any"
            ):
                return Status.CONVERGED
            d = np.zeros(len(theta))
            d[free] = -B[np.ix_(free, free)] @ g[free]
            if g @ d >= 0:
                B, fresh = np.eye(len(theta)), True
                d = np.where(free, -g, 0.0)
            if fresh:
                d /= max(1.0, float(np.max(np.abs(d))))
            there = self._search(trace, here, d, space)
            if there is None:
                if not fresh:
                    B, fresh = np.eye(len(theta)), True
                    continue
                return Status.STALLED
            trace.differentiate(there)
            small_gain = abs(there.objective - here.objective) < self.tol1 * abs(there.objective + 1.0)
            small_slope = np.linalg.norm(trace.bilevel.projected(there)) <= self.tol2 * abs(
                there.objective + 1.0
            )
            B, fresh = _update(B, there.theta - here.theta, there.gradient - g, fresh)
            here = there
            if (small_gain or small_slope) if self.rule == "any" else (small_gain and small_slope):
                return Status.CONVERGED
        return Status.MAX_ITER

    @staticmethod
    def _search(trace: Trace, here: Evaluation, d: np.ndarray, space: Space) -> Evaluation | None:
        """Backtracking along the projected path until the decrease is sufficient; None if there is none."""
        assert here.gradient is not None
        a = 1.0
        for _ in range(30):
            target = space.clip(here.theta + a * d)
            if np.max(np.abs(target - here.theta)) <= 1e-12:
                return None
            there = trace.evaluate(target, warm=here)
            if there.objective <= here.objective + 1e-4 * here.gradient @ (target - here.theta):
                return there
            a *= 0.5
        return None


def _update(B: np.ndarray, s: np.ndarray, y: np.ndarray, fresh: bool) -> tuple[np.ndarray, bool]:
    """BFGS update of the inverse Hessian; skipped where the curvature along the step is not positive."""
    sy = float(s @ y)
    if sy <= 1e-10 * np.linalg.norm(s) * np.linalg.norm(y):
        return B, fresh
    if fresh:
        B = np.eye(len(s)) * (sy / float(y @ y))
    By = B @ y
    return B + (1.0 + y @ By / sy) * np.outer(s, s) / sy - (np.outer(By, s) + np.outer(s, By)) / sy, False


@dataclass(frozen=True)
class Rprop(Minimizer):
    """RPROP with projection on the bounds (thesis 4.3): steps by the sign of the gradient alone.

    Parameters
    ----------
    tol : float
        Stop when every step length is below ``tol`` (in units of ``theta``).
    max_iter : int
    first : float
        First step length of every entry.
    grow, shrink, smallest, largest : float
        The update factors and limits of the step lengths; the thesis's values.
    """

    tol: float = 1e-4
    max_iter: int = 200
    first: float = 0.1
    grow: float = 1.2
    shrink: float = 0.5
    smallest: float = 1e-6
    largest: float = 50.0

    _arguments: ClassVar[Table] = {
        "tol": number(at_least=0),
        "max_iter": integer(),
        "first": number(above=0),
        "grow": number(above=1),
        "shrink": number(above=0, below=1),
        "smallest": number(above=0),
        "largest": number(above=0),
    }
    name = "rprop"
    messages: ClassVar[Mapping[Status, str]] = {
        Status.CONVERGED: "Every step length is below the tolerance, or the hypergradient is zero."
    }

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``."""
        delta = np.full(len(theta), self.first)
        before = np.zeros(len(theta))
        here = None
        for _ in range(self.max_iter):
            here = trace.evaluate(theta, warm=here, order=1)
            g = trace.bilevel.projected(here)
            agree = g * before
            delta = np.where(agree > 0, np.minimum(self.grow * delta, self.largest), delta)
            delta = np.where(agree < 0, np.maximum(self.shrink * delta, self.smallest), delta)
            if not g.any() or np.max(delta[g != 0]) < self.tol:
                return Status.CONVERGED
            theta = trace.space.clip(here.theta - np.sign(g) * delta)
            before = g
        return Status.MAX_ITER
