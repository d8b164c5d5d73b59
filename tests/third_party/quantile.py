"""A loss of quantiles: a corner in the criterion, smoothed in training."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from foldwise.losses import Loss


@dataclass(frozen=True)
class Pinball(Loss):
    """max(q (y - z), (1 - q) (z - y)): least, on average, where a share q of the targets lies below z."""

    q: float = 0.5

    smooth = False
    polyhedral = True

    def value(self, z, y):
        return np.maximum(self.q * (y - z), (1 - self.q) * (z - y))

    def grad(self, z, y):
        return np.where(z > y, 1 - self.q, np.where(z < y, -self.q, 0.0))

    def hess(self, z, y):
        return np.zeros(np.broadcast(z, y).shape)

    def corners(self, z, y):
        return [(z - y, 1.0)]

    def pieces(self, y):
        return [
            (np.full(np.shape(y), -self.q), self.q * y),
            (np.full(np.shape(y), 1 - self.q), (self.q - 1) * y),
        ]


@dataclass(frozen=True)
class SmoothPinball(Loss):
    """The same with its corner rounded over a width of about s."""

    q: float = 0.5
    s: float = 0.1

    def value(self, z, y):
        return self.s * np.logaddexp(0, (z - y) / self.s) - self.q * (z - y)

    def grad(self, z, y):
        return expit((z - y) / self.s) - self.q

    def hess(self, z, y):
        p = expit((z - y) / self.s)
        return p * (1 - p) / self.s

    def third(self, z, y):
        p = expit((z - y) / self.s)
        return p * (1 - p) * (1 - 2 * p) / self.s**2
