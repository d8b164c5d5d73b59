"""Time limits: solvers look at the clock between their steps, and an unfinished evaluation is abandoned."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.svm import SVC

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR, LinearSVC, LinearSVR, SemiparametricSVR
from foldwise.deadline import OutOfTime, look_at_clock, until
from foldwise.fit_time import fit_seconds
from foldwise.losses import Squared, SquaredEpsilonInsensitive
from foldwise.optimizers import Grid, Random, TrustRegionNewton
from foldwise.optimizers.base import StopSearch, run
from foldwise.result import Status
from foldwise.testing import small_bilevel

rng = np.random.default_rng(3)
X = rng.normal(size=(60, 3))
Y = X[:, 0] + 0.5 * rng.normal(size=60)
LABELS = (Y > 0).astype(int)


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (LinearSVR(), Y),
        (LinearSVR(solver="fista"), Y),
        (LinearSVR("epsilon_insensitive"), Y),
        (LinearSVC(box=0.3), LABELS),
        (LinearSVC("hinge"), LABELS),
        (KernelSVC(), LABELS),
        (KernelSVC(loss="hinge"), LABELS),
        (KernelSVR(), Y),
        (SemiparametricSVR([0]), Y),
    ],
    ids=str,
)
def test_every_solver_looks_at_the_clock(model, y):
    with until(time.perf_counter() - 1.0), pytest.raises(OutOfTime):
        model.fit(X, y)
    with until(time.perf_counter() + 1000.0):
        model.fit(X, y)
    look_at_clock()  # no deadline outside


class Slow:
    """A solver whose every solve takes a while, in steps."""

    def __init__(self, solver, steps):
        self.solver, self.steps, self.taken = solver, steps, 0

    def solve(self, problem, theta, state, workspace):
        for _ in range(self.steps):
            time.sleep(0.01)
            self.taken += 1
            look_at_clock()
        return self.solver.solve(problem, theta, state, workspace)


@pytest.mark.parametrize("method", [TrustRegionNewton(), Grid(4), Random(8)], ids=lambda m: m.name)
def test_an_evaluation_under_way_at_the_deadline_is_abandoned(method):
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(0.1), Squared())
    bilevel.solver = Slow(bilevel.solver, 40)
    began = time.perf_counter()
    result = run(method, bilevel, theta, deadline=began + 0.6)
    assert result.status is Status.TIME_LIMIT
    assert result.n_evaluations == 1
    assert bilevel.solver.taken < 2 * 40  # the second evaluation was left on its way
    assert np.isfinite(result.objective)


def test_the_first_evaluation_is_completed_unless_it_may_be_abandoned():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(0.1), Squared())
    bilevel.solver = Slow(bilevel.solver, 10)
    result = run(TrustRegionNewton(), bilevel, theta, deadline=time.perf_counter() - 1.0)
    assert (result.n_evaluations, result.status) == (1, Status.TIME_LIMIT)
    with pytest.raises(StopSearch):
        run(TrustRegionNewton(), bilevel, theta, deadline=time.perf_counter() - 1.0, may_abandon=True)


@pytest.mark.parametrize("estimator", [SVC(), KernelSVC(), LinearSVC()], ids=str)
def test_a_limit_that_is_not_reached_changes_nothing_and_one_that_is_can_be_resumed(estimator, tmp_path):
    whole = BilevelSearchCV(estimator, cv=3).fit(X, LABELS)
    limited = BilevelSearchCV(estimator, cv=3, max_time=1e4).fit(X, LABELS)
    assert limited.best_params_ == whole.best_params_
    file = tmp_path / "search.ckpt"
    short = BilevelSearchCV(estimator, cv=3, max_time=1e-9, checkpoint=file).fit(X, LABELS)
    assert short.result_.status is Status.TIME_LIMIT
    kept = BilevelSearchCV(estimator, cv=3, checkpoint=tmp_path / "whole.ckpt").fit(X, LABELS)
    resumed = BilevelSearchCV(estimator, cv=3, checkpoint=file, resume=True).fit(X, LABELS)
    assert resumed.best_params_ == kept.best_params_
    assert resumed.best_score_ == kept.best_score_


class Sleeper(LinearSVC):
    """A machine whose fit takes a time that grows with the square of its rows."""

    def fit(self, X, y, sample_weight=None):
        time.sleep(2.0 * (len(y) / 1600) ** 2)
        return super().fit(X, y, sample_weight)


def test_the_time_of_a_fit_grows_as_fits_to_few_rows_say():
    rows, y = make_classification(1600, 4, random_state=0)
    # A busy machine may slow the first of the small fits: the growth is then taken to be less, but at least linear.
    assert 4 * 0.125 <= fit_seconds(Sleeper(), rows, y, {}) < 20.0


def test_a_final_fit_far_beyond_the_limit_is_announced(monkeypatch):
    monkeypatch.setattr("foldwise.search.final.fit_seconds", lambda *args: 30.0)
    words = r"the final fit may take about 30 s; max_time=10 bounds the search alone"
    with pytest.warns(UserWarning, match=words):
        search = BilevelSearchCV(LinearSVC(), cv=2, max_time=10).fit(X, LABELS)
    assert search.result_.details["refit_estimate"] == 30.0
    assert "refit=False gives best_params_ and refit_params_ without it" in search.result_.warnings[-1]
    without = BilevelSearchCV(LinearSVC(), cv=2, max_time=10, refit=False).fit(X, LABELS)
    assert "refit_estimate" not in without.result_.details
    assert without.refit_params_ == search.refit_params_
    within = BilevelSearchCV(LinearSVC(), cv=2, max_time=100).fit(X, LABELS)
    assert within.result_.details["refit_estimate"] == 30.0
    assert within.result_.warnings == without.result_.warnings


def test_no_estimate_where_none_can_be_made():
    assert fit_seconds(LinearSVC(), X, LABELS, {}) is None
    many = rng.normal(size=(900, 2))
    assert fit_seconds(LinearSVC(), many, np.arange(900) == 5, {}) is None
    assert fit_seconds(SVC(kernel="precomputed"), many @ many.T, many[:, 0] > 0, {}) is None
    weight = rng.uniform(1, 2, 900)
    assert fit_seconds(LinearSVC(), many, many[:, 0] > 0, {"sample_weight": weight}) > 0
