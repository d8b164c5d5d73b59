"""Many values of one kind have to prove that they are better than one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from foldwise import RBF, BilevelSearchCV, KernelSVC, KernelSVR, LinearSVR, Log
from foldwise.result import Result, Status
from tests.referees import fold_decisions, fold_errors


def rows(n=90, useful=1, d=6, seed=0):
    """Labels that depend on the first features, or on all alike."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if useful == 1:
        return X, (X[:, 0] ** 2 + 0.1 * rng.normal(size=n) > 0.5).astype(int)
    return X, (X.sum(axis=1) + 1.5 * rng.normal(size=n) > 0).astype(int)


def search(**options):
    return BilevelSearchCV(KernelSVC(RBF(ard=True)), cv=3, **options)


def test_widths_that_matter_alike_are_one():
    X, y = rows(useful=6)
    many, one = search(confirm=False).fit(X, y), search().fit(X, y)
    single = BilevelSearchCV(KernelSVC(), cv=3).fit(X, y)
    widths = one.best_params_["kernel__gamma"]
    assert np.ptp(many.best_params_["kernel__gamma"]) > 0.01
    assert widths.shape == (6,)
    assert np.ptp(widths) == 0.0
    assert widths[0] == pytest.approx(single.best_params_["kernel__gamma"], rel=0.05)
    assert -one.best_score_ == pytest.approx(-single.best_score_, rel=1e-3)
    best = one.result_.best
    assert best["params"] == many.result_.params
    assert best["error"] == many.result_.error
    assert best["difference"] == pytest.approx(many.best_score_ - one.best_score_, rel=1e-9)
    assert "6 values of kernel__gamma are better than one" in one.result_.summary()
    assert one.result_.penalty == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_array_equal(one.best_estimator_.kernel.gamma, widths)


def test_every_figure_is_that_of_the_single_value():
    X, y = rows(useful=6)
    found = search().fit(X, y)
    folds = []
    for train, test in StratifiedKFold(3).split(X, y):
        machine = clone(found.estimator).set_params(**found.best_params_).fit(X[train], y[train])
        folds.append(fold_decisions(machine, X[test], y[test]))
    errors = fold_errors(found.criterion_, folds)
    np.testing.assert_allclose(found.result_.fold_objectives, errors, rtol=1e-5)
    table, index = found.cv_results_, found.best_index_
    np.testing.assert_equal(table["params"][index], found.best_params_)
    assert table["mean_test_score"][index] == found.best_score_ == pytest.approx(-errors.mean(), rel=1e-5)
    assert found.result_.n_evaluations == len(found.result_.history) == len(table["params"])
    assert Result.from_json(found.result_.to_json()).best == found.result_.best


def test_one_width_that_matters_is_found():
    X, y = rows(useful=1)
    plain, found = search(confirm=False).fit(X, y), search().fit(X, y)
    assert found.result_.best is None
    np.testing.assert_array_equal(found.best_params_["kernel__gamma"], plain.best_params_["kernel__gamma"])
    assert found.best_score_ == plain.best_score_
    details = found.result_.details
    chance, error = details["advantage_by_chance"], details["advantage_standard_error"]
    assert details["advantage"] - chance > 2 * error > 0
    assert found.best_params_["kernel__gamma"].argmax() == 0


def test_the_advantage_is_that_of_paired_rows():
    X, y = rows(useful=6)
    many, one = search(confirm=False).fit(X, y), search().fit(X, y)

    def losses(found):
        z = np.zeros(len(y))
        for train, test in StratifiedKFold(3).split(X, y):
            machine = clone(found.estimator).set_params(**found.best_params_).fit(X[train], y[train])
            z[test] = machine.decision_function(X[test])
        m, criterion = np.where(y == 1, z, -z), found.criterion_
        units = np.exp(np.linspace(-5, 6, 20_001)) / np.abs(m).max()

        def by_row(a):
            rows = np.logaddexp(0.0, -a * m) + criterion.smoothing * a * m
            return -np.log(criterion.outliers + (1.0 - criterion.outliers) * np.exp(-rows))

        return by_row(min(units, key=lambda a: by_row(a).mean()))

    gap = losses(one) - losses(many)
    details = one.result_.details
    assert details["advantage"] == pytest.approx(gap.mean(), rel=1e-3)
    assert details["advantage_standard_error"] == pytest.approx(gap.std(ddof=1) / np.sqrt(len(y)), rel=0.02)


def test_penalties_and_groups_are_asked_only_where_the_user_says_so():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 4))
    y = X.sum(axis=1) + rng.normal(size=60)
    space = {"lam": Log(1e-3, 1e3, per="feature")}
    usual = BilevelSearchCV(LinearSVR("squared"), space, cv=3).fit(X, y)
    asked = BilevelSearchCV(LinearSVR("squared"), space, cv=3, confirm=True).fit(X, y)
    assert "advantage" not in usual.result_.details
    assert np.ptp(usual.best_params_["lam"]) > 0
    assert np.ptp(asked.best_params_["lam"]) == 0
    groups = np.arange(60) % 3
    grouped = BilevelSearchCV(LinearSVR(), {"C": Log(1e-3, 1e3, per="group")}, cv=3, confirm=True)
    grouped.fit(X, y, sample_groups=groups)
    assert np.ptp(grouped.best_params_["C"]) == 0
    noisy = y + np.where(groups == 2, 30.0 * rng.normal(size=60), 0.0)
    grouped.fit(X, noisy, sample_groups=groups)
    assert grouped.best_params_["C"][2] < grouped.best_params_["C"][0]


def test_a_regression_and_a_simpler_point_of_the_single_value():
    X, z = rows(useful=6)
    y = z + 0.5 * np.random.default_rng(3).normal(size=len(z))
    one = BilevelSearchCV(KernelSVR(RBF(ard=True)), cv=3).fit(X, y)
    assert np.ptp(one.best_params_["kernel__gamma"]) == 0
    both = BilevelSearchCV(KernelSVR(RBF(ard=True)), cv=3, choice="one_se").fit(X, y)
    assert np.ptp(both.best_params_["kernel__gamma"]) == 0
    assert both.best_params_["kernel__gamma"][0] < one.best_params_["kernel__gamma"][0]
    assert "; a simpler point was chosen" in both.result_.best["reason"]


def test_a_search_that_is_stopped_says_so_and_keeps_what_it_has():
    X, y = rows(useful=6)
    count = len(search(confirm=False).fit(X, y).result_.history)
    seen = []
    stopped = search(callbacks=[lambda record: seen.append(record) or len(seen) > count]).fit(X, y)
    assert stopped.result_.status is Status.STOPPED
    assert stopped.result_.best is None


def test_a_resumed_search_gives_the_same_answer(tmp_path):
    X, y = rows(useful=6)
    path = tmp_path / "search.foldwise"
    one = search(checkpoint=path).fit(X, y)
    again = search(checkpoint=path, resume=True).fit(X, y)
    np.testing.assert_array_equal(again.best_params_["kernel__gamma"], one.best_params_["kernel__gamma"])
    assert again.result_.best == one.result_.best
    assert again.result_.optimism == pytest.approx(one.result_.optimism, rel=1e-9)
