"""Optimism and error bars: against formulas that are known, and simulated problems."""

from __future__ import annotations

import numpy as np
import pytest

from foldwise.space import Lin, Log, Space
from foldwise.uncertainty import Influence, assess


def line_space(p=2):
    return Space.build({f"t{k}": Lin(-50.0, 50.0) for k in range(p)}, {})


def least_squares(n, p, seed, noise=1.0):
    """Rows whose losses are squared residuals of a linear model, fitted: optimism is 2 p sigma^2 / n."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, p))
    y = A @ np.ones(p) + noise * rng.normal(size=n)
    theta = np.linalg.lstsq(A, y, rcond=None)[0]
    residual = A @ theta - y
    gradients = 2.0 * residual * A.T
    influence = Influence(residual**2, gradients, np.full(n, 1.0 / n), None, np.arange(n), 5)
    return influence, 2.0 * A.T @ A / n, theta, A


def test_optimism_of_least_squares_is_the_known_one():
    found = []
    for seed in range(200):
        influence, H, theta, _ = least_squares(100, 3, seed)
        found.append(assess(influence, H, line_space(3), theta).optimism)
    assert np.mean(found) == pytest.approx(2 * 3 / 100, rel=0.1)
    assert min(found) > 0


def test_covariance_of_least_squares_is_the_sandwich():
    influence, H, theta, A = least_squares(80, 2, 0)
    found = assess(influence, H, line_space(), theta)
    inverse = np.linalg.inv(A.T @ A)
    expected = inverse @ ((A.T * influence.losses) @ A) @ inverse
    np.testing.assert_allclose(found.covariance, expected, rtol=0.02, atol=1e-6)
    bars = found.bars(line_space(), theta)
    half = 1.96 * np.sqrt(expected[0, 0])
    assert bars["t0"] == pytest.approx([theta[0] - half, theta[0] + half], rel=0.02)


def test_error_bars_hold_as_often_as_they_say():
    hits = []
    for seed in range(400):
        influence, H, theta, _ = least_squares(100, 2, seed)
        low, high = assess(influence, H, line_space(), theta).bars(line_space(), theta)["t1"]
        hits.append(low <= 1.0 <= high)
    assert 0.90 <= np.mean(hits) <= 0.98


def test_entries_at_a_bound_take_no_part():
    influence, H, theta, _ = least_squares(60, 2, 0)
    space = Space.build({"a": Lin(float(theta[0]), 10.0), "b": Lin(-10.0, 10.0)}, {})
    one = assess(influence, H, space, theta)
    both = assess(influence, H, line_space(), theta)
    assert 0 < one.optimism < both.optimism
    assert one.covariance[0, 0] == 0.0
    assert one.bars(space, theta)["a"][0] == one.bars(space, theta)["a"][1]


def test_a_flat_direction_adds_no_more_than_its_reach():
    influence, _, theta, _ = least_squares(60, 2, 0)
    flat = assess(influence, np.zeros((2, 2)), line_space(), theta)
    assert np.isfinite(flat.optimism)
    assert np.all(np.isfinite(flat.covariance))


def test_decisions_about_one_row_count_as_one():
    influence, H, theta, _ = least_squares(60, 2, 0)
    twice = Influence(
        np.tile(influence.losses, 2),
        np.tile(influence.gradients, 2),
        np.tile(influence.weights, 2) / 2,
        None,
        np.tile(influence.row, 2),
        5,
    )
    one, two = assess(influence, H, line_space(), theta), assess(twice, H, line_space(), theta)
    assert two.optimism == pytest.approx(one.optimism)
    assert two.interval == pytest.approx(one.interval)


def test_the_interval_of_a_share_holds_the_share_and_stays_within_bounds():
    n = 50
    wrong = np.arange(n) < 5
    influence = Influence(wrong + 0.1, np.zeros((1, n)), np.full(n, 1 / n), wrong, np.arange(n), 5)
    found = assess(influence, np.eye(1), line_space(1), np.zeros(1), fitted=1)
    assert found.rate == pytest.approx(0.1)
    assert found.optimism == pytest.approx(1 / n)
    assert 0.0 <= found.interval[0] < 0.1 < found.error < found.interval[1] <= 1.0
    none = Influence(np.ones(n), np.zeros((1, n)), np.full(n, 1 / n), np.zeros(n, bool), np.arange(n), 5)
    assert assess(none, np.eye(1), line_space(1), np.zeros(1)).interval[0] == 0.0


def test_log_scales_give_factors():
    space = Space.build({"C": Log(1e-3, 1e3)}, {})
    n = 40
    g = np.random.default_rng(0).normal(size=(1, n))
    influence = Influence(np.ones(n), g - g.mean(), np.full(n, 1 / n), None, np.arange(n), 5)
    low, high = assess(influence, np.eye(1), space, np.zeros(1)).bars(space, np.zeros(1))["C"]
    assert low * high == pytest.approx(1.0)
