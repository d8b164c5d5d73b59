"""An implicit method whose stops at kinks are taken over by penalised bilevel programming."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import FLAG, Table, instance
from foldwise.bilevel import Bilevel
from foldwise.optimizers.base import Minimizer, Trace, largest_promise
from foldwise.optimizers.newton import TrustRegionNewton
from foldwise.optimizers.pbp import PenalizedBilevel
from foldwise.result import Status
from foldwise.space import Space

__all__ = ["Rescued"]

INHERITED = (
    "plays_stages",
    "uses_start",
    "finds_own_start",
    "restarts",
    "looks_around",
    "shrinks",
    "needs_curvature",
)
"""What the method is, its rescue is."""


def _near() -> PenalizedBilevel:
    """Settings for a start that is nearly a minimum: a large first penalty, no closing of tubes."""
    return PenalizedBilevel(two_stage=False, slack=1e-4, max_iter=20)


@dataclass(frozen=True)
class Rescued(Minimizer):
    """A method and, where it ends without convergence, PBP from its best point and the method once more.

    An implicit method takes one element of the subdifferential where rows sit on the tube, and may find no descent
    along it although there is some. PBP chooses the element of greatest descent; moore2011 leaves the combination to
    future work. How much it gains is in the documentation of PBP: little, so no method does it by default.

    Parameters
    ----------
    method : Minimizer
    pbp : PenalizedBilevel
    always : bool
        Also after the method has converged.

    Examples
    --------
    >>> from foldwise.losses import Squared, SquaredEpsilonInsensitive
    >>> from foldwise.optimizers import Bfgs
    >>> from foldwise.testing import small_bilevel
    >>> bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(0.3), Squared())
    >>> short = Bfgs(tol1=0.0, tol2=0.0, max_iter=1)
    >>> alone = short.minimize(bilevel, theta)
    >>> Rescued(short).minimize(bilevel, theta).objective < alone.objective
    True
    """

    method: Minimizer = field(default_factory=TrustRegionNewton)
    pbp: PenalizedBilevel = field(default_factory=_near)
    always: bool = False

    _arguments: ClassVar[Table] = {
        "method": instance(Minimizer, "a method object, such as TrustRegionNewton()"),
        "pbp": instance(PenalizedBilevel, "a PenalizedBilevel object"),
        "always": FLAG,
    }
    name = "rescued"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field_name in INHERITED:
            object.__setattr__(self, field_name, getattr(self.method, field_name))

    def with_limits(self, **limits: Any) -> Rescued:
        """The limits are those of the method."""
        return replace(self, method=self.method.with_limits(**limits))

    def accuracy(self) -> float:
        """The accuracy that was asked of the method."""
        return self.method.accuracy()

    def feasible(self, space: Space, theta: np.ndarray) -> np.ndarray:
        """The point near ``theta`` that both may start from."""
        return self.pbp.feasible(space, self.method.feasible(space, theta))

    def admits(self, space: Space, theta: np.ndarray) -> bool:
        """Whether ``theta`` keeps the constraints of both."""
        return self.method.admits(space, theta) and self.pbp.admits(space, theta)

    def check(self, bilevel: Bilevel) -> None:
        """Refuse what one of the two methods cannot minimise."""
        self.method.check(bilevel)
        self.pbp.check(bilevel)

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``."""
        status = self.method.iterate(trace, theta)
        if trace.best is None or not (self.always or self._is_stuck(trace, status)):
            return status
        before = trace.best.objective
        self.pbp.iterate(trace, trace.best.theta)
        after = trace.best.objective
        trace.details["rescued_from"] = before
        return self.method.iterate(trace, trace.best.theta) if after < before else status

    def _is_stuck(self, trace: Trace, status: Status) -> bool:
        """Whether the method gave up, or ended where the result would not be called converged."""
        promised = trace.promised()
        more = promised is not None and not promised <= largest_promise(self, trace.bilevel)
        return status in (Status.STALLED, Status.MAX_ITER) or (status is Status.CONVERGED and more)

    def message(self, status: Status) -> str:
        """What the ending means: the words of the method, which runs last."""
        return self.method.message(status)
