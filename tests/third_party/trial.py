"""A whole search before the public referee."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from foldwise.testing import judge


def try_whole(search, X, y):
    """Fit, refit, predict, gradient against differences, the same search again: all judged, nothing left out.

    Machines with kinks may have one at the point where differences are taken.
    """
    verdict = judge(SimpleNamespace(seed=0, search=search, X=X, y=y, fit_params={}), again=True)
    assert verdict.outcome == "checked", f"{verdict.kind}: {verdict.message}"
    loss = getattr(search.estimator, "loss", "hinge")
    kinked = loss in ("hinge", "epsilon_insensitive") or getattr(loss, "polyhedral", False)
    assert set(verdict.left) <= ({"gradient"} if kinked else set()), verdict.left


def linear_rows(n=90, seed=0):
    """Rows, and a target with heavy tails."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, X @ [1.0, -1.0, 0.5, 0.0] + 0.5 * rng.standard_t(3, size=n)
