"""An outer method: projected gradient descent in theta."""

from dataclasses import dataclass

import numpy as np

from foldwise.optimizers import Minimizer
from foldwise.result import Status


@dataclass(frozen=True)
class Descent(Minimizer):
    """Projected gradient descent in theta; the step is halved until the error falls."""

    tol: float = 1e-4
    max_iter: int = 100

    name = "descent"
    needs_gradient = True

    def iterate(self, trace, theta):
        here = trace.evaluate(theta, order=1)
        step = 1.0 / max(np.linalg.norm(here.gradient), 1e-12)
        for _ in range(self.max_iter):
            there = trace.evaluate(trace.space.clip(here.theta - step * here.gradient), warm=here, order=1)
            gain = here.objective - there.objective
            if gain > 0:
                here, step = there, 2 * step
                if gain <= self.tol * abs(here.objective):
                    return Status.CONVERGED
            else:
                step /= 2
        return Status.MAX_ITER
