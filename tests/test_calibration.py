"""Probabilities and intervals from out-of-fold decisions: against other solvers, and by what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from foldwise.calibration import Residuals, couple, fit_pairs, fit_probabilities


def two_classes(n=400, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    return z, (rng.random(n) < 1.0 / (1.0 + np.exp(-(3.0 * z - 1.0)))).astype(int)


def test_two_classes_have_the_scale_and_offset_of_a_logistic_regression():
    z, codes = two_classes()
    found = fit_probabilities(z, codes, offsets=True)
    # The same smoothed labels as weights of both labels, by scikit-learn's own solver.
    n = len(z)
    share = (codes + 1.0 / (n + 2)) / (1.0 + 2.0 / (n + 2))
    X, y = np.concatenate([z, z])[:, None], np.repeat([1, 0], n)
    other = LogisticRegression(C=np.inf, tol=1e-10).fit(
        X, y, sample_weight=np.concatenate([share, 1 - share])
    )
    assert found.scale == pytest.approx(other.coef_[0, 0], rel=1e-4)
    assert found.offset[0] == pytest.approx(other.intercept_[0], rel=1e-3)


def test_the_unit_of_decisions_does_not_matter():
    z, codes = two_classes()
    near, far = fit_probabilities(z, codes).of(z), fit_probabilities(1e6 * z, codes).of(1e6 * z)
    np.testing.assert_allclose(near, far, atol=1e-6)


def test_without_offsets_the_predicted_class_is_the_most_probable():
    z, codes = two_classes()
    assert np.array_equal(fit_probabilities(z, codes).of(z).argmax(axis=1), (z > 0).astype(int))
    Z = np.random.default_rng(0).normal(size=(50, 3))
    P = fit_probabilities(Z, np.arange(50) % 3).of(Z)
    assert np.array_equal(P.argmax(axis=1), Z.argmax(axis=1)) or np.ptp(P) < 1e-12


def test_decisions_without_an_error_have_probabilities_that_are_not_certain():
    z = np.concatenate([-np.ones(10), np.ones(10)])
    p = fit_probabilities(z, (z > 0).astype(int)).of(z)
    assert 0.9 < p[-1, 1] < 1.0 - 1e-6


def test_decisions_no_better_than_chance_give_the_shares_of_the_classes():
    z = np.tile([1.0, -1.0], 50)
    codes = np.repeat([0, 1], [30, 70])[np.random.default_rng(0).permutation(100)]
    found = fit_probabilities(np.where(codes == 1, -1.0, 1.0) * np.abs(z), codes, offsets=True)
    assert found.scale == 0.0
    np.testing.assert_allclose(found.of(z)[:, 1], 0.7, atol=0.01)


def test_weights_count_as_repeated_rows():
    z, codes = two_classes(300)
    far = z > 1.0
    codes[far] = np.random.default_rng(1).integers(0, 2, far.sum())  # where decisions are worth less
    weight = np.where(far, 3, 1)
    weighted = fit_probabilities(z, codes, weight.astype(float))
    repeated = fit_probabilities(np.repeat(z, weight), np.repeat(codes, weight))
    # The unit in which the scale is sought is that of the rows as given, so the optimiser stops elsewhere by rounding.
    assert weighted.scale == pytest.approx(repeated.scale, rel=1e-5)
    assert weighted.scale != pytest.approx(fit_probabilities(z, codes).scale, rel=5e-3)


def test_several_classes_are_a_softmax_at_its_minimum():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 300)
    Z = rng.normal(size=(300, 3)) + 1.5 * np.eye(3)[codes]
    found = fit_probabilities(Z, codes, offsets=True)
    share = (np.eye(3)[codes] + 1 / 303) / (1 + 3 / 303)

    def loss(x):
        F = x[0] * Z + np.array([0.0, x[1], x[2]])
        return np.mean(np.log(np.exp(F).sum(axis=1)) - np.sum(share * F, axis=1))

    other = minimize(loss, np.ones(3), method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-14})
    ours = np.array([found.scale, found.offset[1] - found.offset[0], found.offset[2] - found.offset[0]])
    assert loss(ours) <= other.fun + 1e-9
    assert found.of(Z).sum(axis=1) == pytest.approx(np.ones(300))


def test_coupling_returns_probabilities_that_agree():
    p = np.array([[0.2, 0.5, 0.3], [0.05, 0.05, 0.9]])
    first = np.stack([p[:, i] / (p[:, i] + p[:, j]) for i, j in ((0, 1), (0, 2), (1, 2))], axis=1)
    np.testing.assert_allclose(couple(first, 3), p, atol=1e-9)


def test_pairs_of_classes():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 600)
    centre = np.eye(3)[codes] + 0.5 * rng.normal(size=(600, 3))
    pairs = [(0, 1), (0, 2), (1, 2)]
    own = [(codes == i) | (codes == j) for i, j in pairs]
    Z = np.stack([centre[:, i] - centre[:, j] for i, j in pairs], axis=1)
    found = fit_pairs(
        [Z[rows, k] for k, rows in enumerate(own)],
        [np.where(codes[rows] == pairs[k][0], 1.0, -1.0) for k, rows in enumerate(own)],
        3,
    )
    P = found.of(Z)
    assert P.sum(axis=1) == pytest.approx(np.ones(600))
    # Of rows with a probability near p about that share is of the class: calibrated within sampling error.
    chosen = np.abs(P[:, 0] - 0.5) < 0.2
    assert np.mean(codes[chosen] == 0) == pytest.approx(np.mean(P[chosen, 0]), abs=0.12)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_residuals_cover_new_ones(coverage):
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(300):
        low, high = Residuals.of(rng.exponential(size=60)).between(coverage)
        new = rng.exponential(size=50)
        hits.append(np.mean((new >= low) & (new <= high)))
    assert np.mean(hits) == pytest.approx(coverage, abs=0.025)


def test_too_few_residuals_and_bad_coverage_are_refused():
    few = Residuals.of(np.arange(10.0))
    with pytest.raises(ValueError, match="needs at least 39 out-of-fold residuals; there are 10"):
        few.between(0.95)
    with pytest.raises(ValueError, match="between 0 and 1"):
        few.between(90)


def test_weights_of_residuals():
    values = np.random.default_rng(0).normal(size=200)
    weight = np.where(values > 0, 3.0, 1.0)
    low, high = Residuals.of(values, weight).between(0.8)
    plain_low, plain_high = Residuals.of(values).between(0.8)
    assert low > plain_low
    assert high > plain_high
