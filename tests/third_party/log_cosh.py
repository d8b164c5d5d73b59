"""A smooth loss: quadratic near zero, linear far away."""

from dataclasses import dataclass

import numpy as np

from foldwise.losses import Loss


@dataclass(frozen=True)
class LogCosh(Loss):
    """log cosh(z - y)."""

    def value(self, z, y):
        r = np.abs(z - y)
        return r + np.log1p(np.exp(-2 * r)) - np.log(2)

    def grad(self, z, y):
        return np.tanh(z - y)

    def hess(self, z, y):
        return 1 - np.tanh(z - y) ** 2

    def third(self, z, y):
        t = np.tanh(z - y)
        return -2 * t * (1 - t**2)
