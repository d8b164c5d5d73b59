"""Penalties on theta: derivatives against differences, and sums."""

from __future__ import annotations

import numpy as np
import pytest

from foldwise import RBF, BilevelSearchCV, KernelSVC
from foldwise.prior import SpreadPenalty

PRIORS = {
    "one block": SpreadPenalty([slice(1, 4)], 0.7),
    "two blocks": SpreadPenalty([slice(0, 2), slice(2, 5)], 3.0),
    "a sum": SpreadPenalty([slice(0, 3)], 0.7) + SpreadPenalty([slice(2, 5)], 0.2),
}


@pytest.mark.parametrize("name", list(PRIORS))
def test_derivatives_against_differences(name):
    prior, theta, h = PRIORS[name], np.array([0.3, -1.2, 2.0, 0.4, 1.1]), 1e-5
    value, gradient, hessian = prior(theta)
    assert value == prior.value(theta) > 0.1
    assert np.abs(gradient).max() > 0.1
    for i, step in enumerate(h * np.eye(5)):
        slope = (prior.value(theta + step) - prior.value(theta - step)) / (2 * h)
        assert gradient[i] == pytest.approx(slope, rel=1e-8, abs=1e-10)
        column = (prior.gradient(theta + step) - prior.gradient(theta - step)) / (2 * h)
        np.testing.assert_allclose(hessian[i], column, atol=1e-9)


def test_equal_entries_cost_nothing_and_a_sum_adds_up():
    both = PRIORS["a sum"]
    assert both.value(np.full(5, 2.0)) == 0.0
    theta = np.arange(5.0)
    parts = [part(theta) for part in both.parts]
    for found, one, other in zip(both(theta), *parts, strict=True):
        np.testing.assert_allclose(found, one + other)


def test_a_search_adds_the_penalty_of_its_widths():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] + 0.3 * rng.normal(size=60) > 0).astype(int)
    for shrinkage, strength in ((None, 0.5 / 60), (6.0, 0.1)):
        search = BilevelSearchCV(KernelSVC(RBF(ard=True)), cv=3, shrinkage=shrinkage)
        prior = search._prepare(X, y).bilevel.prior
        assert prior.strength == pytest.approx(strength)
        assert [part.stop - part.start for part in prior.blocks] == [3]
    assert BilevelSearchCV(KernelSVC(RBF(ard=True)), cv=3, shrinkage=0)._prepare(X, y).bilevel.prior is None
    assert BilevelSearchCV(KernelSVC(), cv=3)._prepare(X, y).bilevel.prior is None
