from __future__ import annotations

import numpy as np
import pytest

from foldwise.datasets import NAMES, load_named, make_margin_classification, make_pca_regression


@pytest.mark.parametrize("noise", ["t", "bimodal", "normal"])
@pytest.mark.parametrize("groups", [0, 5])
def test_pca_regression_is_what_it_says(noise, groups):
    n, d = 40_000, 30
    X, y, w_true, *rest = make_pca_regression(n, d, noise=noise, groups=groups, seed=3)
    sd = 12 * np.arange(1, d + 1) ** -0.8
    np.testing.assert_allclose(X.std(axis=0), sd, rtol=0.02)
    assert np.all(np.abs(X) <= 5 * sd)
    e = y - X @ w_true
    assert np.var(X @ w_true) / np.var(e) == pytest.approx(0.35, rel=0.1)
    if not groups:
        assert rest == []
        expected = np.sqrt(1 + 0.25**2) if noise == "bimodal" else 1.0
        assert e.std() == pytest.approx(expected, rel=0.05)
        return
    (labels,) = rest
    assert np.bincount(labels).tolist() == [n // 5] * 5
    levels = np.array([e[labels == g].std() for g in range(5)])
    np.testing.assert_allclose(levels / levels[0], np.linspace(0.4, 1.7, 5) / 0.4, rtol=0.1)


def test_noise_shapes():
    def kurtosis(noise):
        X, y, w_true = make_pca_regression(20_000, 2, noise=noise, seed=1)
        e = y - X @ w_true
        return np.mean(e**4) / np.mean(e**2) ** 2

    assert kurtosis("bimodal") < 1.5 < kurtosis("normal") < 3.3 < kurtosis("t")


def test_clipping_is_at_five_standard_deviations():
    X, *_ = make_pca_regression(200_000, 20, seed=0)
    scaled = X / (12 * np.arange(1, 21) ** -0.8)
    assert 4.5 < np.abs(scaled).max() <= 5 + 1e-12


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: make_pca_regression(50, 7, "t", 5, seed),
        lambda seed: make_margin_classification(50, seed=seed),
        lambda seed: (load_named("diabetes", 50, seed).X, load_named("pca_t", 50, seed).y),
    ],
)
def test_the_seed_decides(make):
    first, again, other = make(1), make(1), make(2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other))


def test_margin_classification_error_of_the_truth_is_the_flip_rate():
    X, y, w_true = make_margin_classification(20_000, d=10, informative=3, flip=0.1, seed=2)
    assert np.mean(np.sign(X @ w_true) != y) == pytest.approx(0.1, abs=0.01)
    assert np.count_nonzero(w_true) == 3
    assert set(np.unique(y)) == {-1, 1}


@pytest.mark.parametrize("name", NAMES)
def test_named_sets(name):
    data = load_named(name)
    n, d = data.X.shape
    assert data.y.shape == (n,)
    assert len(set(data.columns)) == d
    assert data.task == ("regression" if name.startswith("pca") or name == "diabetes" else "classification")
    assert np.all(np.isfinite(data.X))
    small = load_named(name, rows=60, seed=1)
    assert small.X.shape == (60, d)


def test_bad_arguments_say_what_is_possible():
    with pytest.raises(ValueError, match="t, bimodal, normal"):
        make_pca_regression(10, noise="cauchy")
    with pytest.raises(ValueError, match="at least 2"):
        make_pca_regression(10, groups=1)
    with pytest.raises(ValueError, match="at least one row"):
        make_pca_regression(0)
    with pytest.raises(ValueError, match="informative"):
        make_margin_classification(10, d=3, informative=4)
    with pytest.raises(ValueError, match="probability"):
        make_margin_classification(10, flip=0.5)
    with pytest.raises(ValueError, match="Choose one of pca_t"):
        load_named("mnist")
    with pytest.raises(ValueError, match="150 rows"):
        load_named("iris", rows=151)
    with pytest.raises(ValueError, match="at least 1"):
        load_named("pca_t", rows=0)
