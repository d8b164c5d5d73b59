"""What a search says about new rows, against plain refits and simulated data."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine, make_classification, make_regression
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR, LinearSVC, LinearSVR
from foldwise.calibration import PairProbabilities
from foldwise.result import Result


def classes(n=120, seed=0, **options):
    return make_classification(n, 4, n_informative=3, n_redundant=0, flip_y=0.2, random_state=seed, **options)


@pytest.mark.parametrize("machine", [SVC(), KernelSVC(), LinearSVC(), LogisticRegression()])
def test_the_share_of_wrong_predictions_is_that_of_plain_refits(machine):
    X, y = classes()
    cv = StratifiedKFold(4, shuffle=True, random_state=0)
    search = BilevelSearchCV(make_pipeline(StandardScaler(), machine), cv=cv).fit(X, y)
    plain = clone(search.estimator).set_params(**search.best_params_)
    wrong = cross_val_predict(plain, X, y, cv=cv) != y
    by_fold = [wrong[validation].mean() for _, validation in cv.split(X, y)]
    result = search.result_
    assert result.error_rate == pytest.approx(np.mean(by_fold), abs=1e-9)
    assert result.optimism >= 0
    low, high = result.error_interval
    assert low < result.error_rate <= result.expected_error < high
    assert "wrong predictions" in result.summary()


def test_several_classes_by_pairs_and_against_the_rest():
    X, y = load_wine(return_X_y=True)
    X = X[:, :2]
    cv = StratifiedKFold(4, shuffle=True, random_state=0)
    for machine in (SVC(), KernelSVC()):
        search = BilevelSearchCV(make_pipeline(StandardScaler(), machine), cv=cv).fit(X, y)
        plain = clone(search.estimator).set_params(**search.best_params_)
        wrong = cross_val_predict(plain, X, y, cv=cv) != y
        by_fold = [wrong[validation].mean() for _, validation in cv.split(X, y)]
        assert search.result_.error_rate == pytest.approx(np.mean(by_fold), abs=1e-9)
        P = search.predict_proba(X)
        assert P.shape == (len(y), 3)
        assert P.sum(axis=1) == pytest.approx(np.ones(len(y)))
        assert np.mean(P.argmax(axis=1) == search.predict(X)) > 0.95
        assert isinstance(search.probabilities_, PairProbabilities) == isinstance(machine, SVC)
        np.testing.assert_allclose(np.exp(search.predict_log_proba(X)), P)


def test_probabilities_are_worth_their_log_loss():
    X, y = classes(600)
    search = BilevelSearchCV(SVC()).fit(X[:200], y[:200])
    P = search.predict_proba(X[200:])
    base = np.mean(y[:200])
    assert log_loss(y[200:], P) < log_loss(y[200:], np.full(400, base)) - 0.1
    assert (P[:, 1] > P[0, 1]).tolist() == (
        search.decision_function(X[200:]) > search.decision_function(X[200:])[0]
    ).tolist()


def test_our_machines_keep_what_the_search_learned():
    X, y = classes()
    search = BilevelSearchCV(LinearSVC()).fit(X, y)
    np.testing.assert_array_equal(search.best_estimator_.predict_proba(X), search.predict_proba(X))
    again = clone(search.best_estimator_)
    assert not hasattr(again, "predict_proba")
    refitted = search.best_estimator_.fit(X, y)
    with pytest.raises(AttributeError) as error:
        refitted.predict_proba(X)
    assert "fit a BilevelSearchCV around" in str(error.value.__cause__)


@pytest.mark.parametrize("machine", [SVR(), KernelSVR(), LinearSVR(), Ridge()])
def test_intervals_of_regressions(machine):
    X, y = make_regression(1300, 4, noise=20.0, random_state=0)
    search = BilevelSearchCV(make_pipeline(StandardScaler(), machine), cv=KFold(5)).fit(X[:150], y[:150])
    for coverage in (0.5, 0.9):
        inside = search.predict_interval(X[150:], coverage=coverage)
        hits = np.mean((y[150:] >= inside[:, 0]) & (y[150:] <= inside[:, 1]))
        assert hits == pytest.approx(coverage, abs=0.09)
    assert search.result_.error_rate is None
    low, high = search.result_.error_interval
    new = np.mean((search.predict(X[150:]) - y[150:]) ** 2)
    assert low < new < high
    assert not hasattr(search, "predict_proba")


def test_what_a_machine_has_itself_is_taken():
    X, y = classes()
    search = BilevelSearchCV(LogisticRegression()).fit(X, y)
    np.testing.assert_array_equal(search.predict_proba(X), search.best_estimator_.predict_proba(X))
    assert not hasattr(search, "predict_interval")


def test_without_a_final_fit_there_is_nothing_to_predict_with():
    X, y = classes()
    search = BilevelSearchCV(SVC(), refit=False).fit(X, y)
    assert not hasattr(search, "predict_proba")
    assert search.result_.optimism >= 0


def test_error_bars_lie_within_the_bounds_and_survive_a_file():
    X, y = classes()
    search = BilevelSearchCV(SVC(), {"C": (0.1, 10.0), "gamma": (0.01, 1.0)}).fit(X, y)
    for name, (lowest, highest) in {"C": (0.1, 10.0), "gamma": (0.01, 1.0)}.items():
        low, high = search.result_.error_bars[name]
        assert lowest - 1e-12 <= low <= search.best_params_[name] <= high <= highest + 1e-12
    again = Result.from_json(search.result_.to_json())
    assert again.error_bars == search.result_.error_bars
    assert again.optimism == search.result_.optimism
    assert again.expected_error == search.result_.expected_error


def test_a_resumed_search_says_the_same(tmp_path):
    X, y = classes()
    options = {"checkpoint": tmp_path / "search.json", "random_state": 0}
    first = BilevelSearchCV(KernelSVC(), **options).fit(X, y)
    again = BilevelSearchCV(KernelSVC(), **options, resume=True).fit(X, y)
    assert again.n_resumed_ > 0
    assert again.result_.optimism == pytest.approx(first.result_.optimism)
    np.testing.assert_allclose(again.predict_proba(X), first.predict_proba(X), atol=1e-7)


def test_a_criterion_without_second_derivatives_says_nothing():
    X, y = classes()
    search = BilevelSearchCV(
        SVC(), criterion="misclassification", method="grid", method_options={"points": 3}
    ).fit(X, y)
    assert search.result_.optimism is None
    assert search.result_.error_bars == {}
    assert search.predict_proba(X).shape == (120, 2)


@pytest.mark.slow
def test_noise_is_not_taken_for_a_finding():
    """Labels without signal: the corrected error is below 30% on few sets, and optimism is never negative."""
    low, gaps, told, holds = [], [], [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(60, 5)), rng.permutation(np.repeat([0, 1], 30))
        result = BilevelSearchCV(KernelSVC(), cv=5).fit(X, y).result_
        low.append(result.expected_error < 0.3)
        gaps.append(0.5 - result.error_rate)
        told.append(result.expected_error - result.error_rate)
        assert result.optimism >= 0
        holds.append(result.error_interval[0] <= 0.5 <= result.error_interval[1])
    assert np.mean(holds) >= 0.9
    assert np.mean(low) <= 0.02
    assert np.mean(told) > 0.3 * np.mean(gaps)
