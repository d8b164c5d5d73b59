"""How long a fit may take: told by fits to few of its rows, and a limit where it might not end."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.svm import SVC, SVR
from sklearn.utils import _safe_indexing, get_tags

from foldwise.nesting import innermost

__all__ = ["fit_seconds", "limited"]

PROBED_ROWS, PROBED_SECONDS = 800, 0.05
"""With fewer rows the time of a fit is not estimated; a fit to few rows tells enough when it takes this long."""


LIMIT, PER_ROW = 10_000_000, 100
"""Iterations after which LIBSVM itself gives up; scikit-learn lets it go on for ever."""


@contextmanager
def limited(estimator: Any, n: int) -> Iterator[None]:
    """LIBSVM's own limit of iterations for a fit to ``n`` rows, where the user sets none."""
    machine = innermost(estimator)
    free = isinstance(machine, (SVC, SVR)) and machine.max_iter == -1
    if free:
        machine.max_iter = max(LIMIT, PER_ROW * n)
    try:
        yield
    finally:
        if free:
            machine.max_iter = -1


def fit_seconds(estimator: Any, X: Any, y: Any, given: Mapping[str, Any]) -> float | None:
    """How long a fit may take, from fits to 1/16, 1/8 and, where these are quick, 1/4 of the rows.

    The growth with the rows is a power between 1 and 3. None where it cannot be told: few rows, a kernel matrix, or
    rows too few for the machine.
    """
    n = len(y)
    if n < PROBED_ROWS or get_tags(estimator).input_tags.pairwise:
        return None
    order = np.random.default_rng(0).permutation(n)
    times: list[tuple[int, float]] = []
    for share in (16, 8, 4):
        rows = np.sort(order[: n // share])
        part = {name: _safe_indexing(value, rows) for name, value in given.items()}
        began = time.perf_counter()
        with warnings.catch_warnings(), config_context(enable_metadata_routing=False):
            warnings.simplefilter("ignore")
            try:
                probe = clone(estimator)
                with limited(probe, len(rows)):
                    probe.fit(_safe_indexing(X, rows), _safe_indexing(y, rows), **part)
            except (
                Exception
            ):  # such as a rare class that is missing here; the fit itself will say what is wrong
                return None
        times.append((len(rows), time.perf_counter() - began))
        if len(times) > 1 and times[-1][1] >= PROBED_SECONDS:
            break
    (few, quick), (more, slow) = times[-2:]
    power = np.clip(np.log(slow / quick) / np.log(more / few), 1.0, 3.0)
    return float(slow * (n / more) ** power)
