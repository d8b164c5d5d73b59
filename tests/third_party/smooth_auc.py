"""A criterion of pairs of rows: the area above the ROC curve, smoothed."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from foldwise.criteria import Criterion


@dataclass(frozen=True)
class SmoothAuc(Criterion):
    """The share of pairs in the wrong order, smoothed."""

    width: float = 0.3

    def pairs(self, out):
        up, down = np.flatnonzero(out.y > 0), np.flatnonzero(out.y < 0)
        weight = np.outer(out.v[up], out.v[down])
        wrong = expit((out.z[down] - out.z[up][:, None]) / self.width)
        return up, down, weight / weight.sum(), wrong

    def by_task(self, out):
        _, _, weight, wrong = self.pairs(out)
        return np.full(out.n_tasks, np.sum(weight * wrong) / out.n_tasks)

    def slopes(self, out):
        up, down, weight, wrong = self.pairs(out)
        slope = weight * wrong * (1 - wrong) / self.width
        g = np.zeros(len(out.z))
        g[up], g[down] = -slope.sum(axis=1), slope.sum(axis=0)
        return out.by_part(g)
