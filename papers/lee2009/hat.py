"""The toy problem of section 5.1: a Mexican hat on a sine, with noise."""

from __future__ import annotations

import time

import numpy as np

from foldwise import RBF
from foldwise.solvers.semiparametric import SemiparametricSolution, columns_of, solve

__all__ = ["METHODS", "basis", "sample", "timed"]

GAMMA, EPSILON, CACHE = 0.25, 0.05, 400.0
METHODS = {"D:PDSG": "pdsg", "D:MPD": "mpd", "PDSG": "pdsg_alone", "MPD": "mpd_alone", "auto": "auto"}
"""The paper's names and ours; ``auto`` is not in the paper."""


def sample(M: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """``t`` uniform on [0, 10], and ``sin(t) + sinc(2 pi (t - 5))`` with noise of standard deviation 0.2."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.0, 10.0, M)
    return t, np.sin(t) + np.sinc(2.0 * (t - 5.0)) + 0.2 * rng.normal(size=M)


def basis(t: np.ndarray) -> np.ndarray:
    """The two functions that the target is made of."""
    return np.column_stack([np.sin(t), np.sinc(2.0 * (t - 5.0))])


def timed(
    t: np.ndarray, Psi: np.ndarray, y: np.ndarray, C: float, method: str, **arguments
) -> tuple[float, SemiparametricSolution]:
    """Processor seconds and the solution at the paper's settings; compiled code is loaded beforehand."""
    few = slice(None, 40)
    for fits in (False, True):
        rows = slice(None) if fits else few
        limits = arguments if fits else {}
        began = time.process_time()
        solution = solve(
            columns_of(RBF(GAMMA), t[rows, None]),
            Psi[rows] if fits else np.ones((40, 1)),
            y[rows],
            C,
            EPSILON,
            solver=METHODS[method],
            tol=1e-3,
            cache_size=CACHE,
            **limits,
        )
    return time.process_time() - began, solution
