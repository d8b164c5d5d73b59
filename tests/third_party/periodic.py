"""A kernel with parameters of its own names."""

import numpy as np

from foldwise.kernels import Kernel


class PeriodicPairs:
    """The matrix between two sets of rows, for any length and period."""

    def __init__(self, X, U):
        self.gap = np.pi * (X[:, None, :] - U[None, :, :])

    def value(self, log_p):
        self.length, period = np.exp(log_p)
        self.phase = self.gap / period
        self.S = np.sum(np.sin(self.phase) ** 2, axis=2)
        self.K = np.exp(-2 * self.S / self.length**2)
        return self.K

    def slopes(self):
        turn = np.sum(self.phase * np.sin(2 * self.phase), axis=2)
        return [
            4 * self.S / self.length**2 * self.K,
            2 * turn / self.length**2 * self.K,
        ]  # in log length, log period

    def contract(self, P):
        return np.array([np.sum(P * slope) for slope in self.slopes()])

    def apply(self, A):
        return np.stack([slope @ A for slope in self.slopes()])

    def apply_transposed(self, A):
        return np.stack([slope.T @ A for slope in self.slopes()])


class Periodic(Kernel):
    """exp(-2 sum_d sin(pi (x_d - z_d) / period)^2 / length^2)."""

    def __init__(self, length=1.0, period=1.0):
        self.length = length
        self.period = period

    def parameters(self, d):
        return {"length": np.array([float(self.length)]), "period": np.array([float(self.period)])}

    def pairs(self, X, U=None):
        return PeriodicPairs(X, X if U is None else U)

    def __call__(self, X, Z):
        return PeriodicPairs(X, Z).value(np.log([self.length, self.period]))

    def diagonal(self, X):
        return np.ones(len(X))

    def bounds(self, X):
        """A search stays near the period that was given: another one is another valley."""
        return {
            "length": (0.1 * self.length, 10 * self.length),
            "period": (0.7 * self.period, 1.4 * self.period),
        }
