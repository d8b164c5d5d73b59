"""One standard error: the simplest point that paired rows cannot tell from the best, against a fine grid of refits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.svm import SVC

from foldwise import RBF, BilevelSearchCV, KernelSVC, KernelSVR, LinearSVC, LinearSVR
from foldwise.criteria import Criterion
from foldwise.losses import Logistic
from foldwise.result import Result, Status
from tests.makers import labels, waves

X, Z = waves(80, 3)
Y = labels(Z)


def row_losses(search, params, y):
    """The criterion of every row, by refitting the plain estimator fold by fold."""
    folds = KFold(4) if y is Z else StratifiedKFold(4)
    z = np.zeros(len(y))
    for train, test in folds.split(X, y):
        machine = clone(search.estimator).set_params(**params).fit(X[train], y[train])
        z[test] = machine.predict(X[test]) if y is Z else machine.decision_function(X[test])
    if y is Z:
        return (z - y) ** 2
    margin = np.where(y == "yes", z, -z)
    if isinstance(search.criterion_, Logistic):
        return np.logaddexp(0.0, -2.0 * margin) / 2.0
    units = np.exp(np.linspace(-6, 6, 20_001)) / np.abs(margin).max()
    return bounded(min(units, key=lambda a: bounded(a * margin).mean()) * margin)


def bounded(m):
    """The smoothed logistic loss of margins, one label in twenty unexplained."""
    return -np.log(0.05 + 0.95 * np.exp(-0.005 * m) / (1 + np.exp(-m)))


def paired(losses, best):
    gap = losses - best
    return gap.mean(), gap.std(ddof=1) / np.sqrt(len(gap))


@pytest.mark.parametrize(
    ("estimator", "space"),
    [
        (LinearSVC(), ["C"]),
        (KernelSVC(), None),
        (SVC(), None),
        (LinearSVR(), None),
        (KernelSVR(), None),
        (KernelSVC(RBF(ard=True)), None),
    ],
    ids=["LinearSVC", "KernelSVC", "SVC", "LinearSVR", "KernelSVR", "widths"],
)
def test_the_point_is_simpler_and_within_one_standard_error(estimator, space):
    y = Z if "SVR" in type(estimator).__name__ else Y
    plain = BilevelSearchCV(estimator, space, cv=4).fit(X, y)
    search = BilevelSearchCV(estimator, space, cv=4, choice="one_se").fit(X, y)
    best = search.result_.best
    assert best["params"] == plain.result_.params
    assert best["error"] == pytest.approx(plain.result_.error, rel=1e-9)
    # 1. By hand: above the best by less than one standard error of the paired differences.
    lowest = row_losses(plain, plain.best_params_, y)
    mean, error = paired(row_losses(search, search.best_params_, y), lowest)
    assert 0 < mean <= error * (1 + 1e-3)
    assert best["difference"] == pytest.approx(mean, rel=2e-2)
    # 2. Simpler.
    name = next((n for n in search.best_params_ if n.endswith("gamma")), "C")
    assert np.all(np.asarray(search.best_params_[name]) < np.asarray(plain.best_params_[name]))
    # 3. All attributes are those of the point.
    table, index = search.cv_results_, search.best_index_
    np.testing.assert_equal(table["params"][index], search.best_params_)
    assert table["mean_test_score"][index] == search.best_score_ < plain.best_score_
    assert search.result_.error == pytest.approx(-search.best_score_, rel=1e-12)
    assert search.result_.status is plain.result_.status
    assert max(search.result_.kkt) < 1e-6
    assert Result.from_json(search.result_.to_json()).best == best
    assert "a simpler point was chosen" in search.result_.summary()


def test_nothing_simpler_keeps_the_constraint():
    """Against a fine grid of one hyper-parameter: the constraint is followed to its end."""
    search = BilevelSearchCV(LinearSVC(), ["C"], cv=4, choice="one_se").fit(X, Y)
    lowest = row_losses(search, search.result_.best["params"], Y)
    for factor, within in ((1.02, True), (0.85, False)):
        mean, error = paired(row_losses(search, {"C": search.best_params_["C"] * factor}, Y), lowest)
        assert (mean <= error) == within


def test_no_point_near_by_is_simpler_and_keeps_it():
    search = BilevelSearchCV(KernelSVC(), cv=4, choice="one_se").fit(X, Y)
    lowest = row_losses(search, search.result_.best["params"], Y)
    C, gamma = search.best_params_["C"], search.best_params_["kernel__gamma"]
    for more in np.exp(np.linspace(-0.2, 0.2, 5)):  # the direction counts C half: all of these are simpler
        at = {"C": C * more, "kernel__gamma": 0.8 * gamma * more**-0.5}
        mean, error = paired(row_losses(search, at, Y), lowest)
        assert mean > error


def test_more_standard_errors_lead_further():
    ends = [
        BilevelSearchCV(KernelSVC(), cv=4, choice=factor).fit(X, Y).best_params_["kernel__gamma"]
        for factor in ("best", 0.25, 0.5, 1.0)
    ]
    assert all(wider < narrower for narrower, wider in itertools.pairwise(ends))


def test_the_bounds_are_kept():
    best = BilevelSearchCV(LinearSVC(), ["C"], cv=4).fit(X, Y).best_params_["C"]
    search = BilevelSearchCV(LinearSVC(), {"C": (0.95 * best, 100 * best)}, cv=4, choice="one_se").fit(X, Y)
    assert search.best_params_["C"] == pytest.approx(0.95 * best)
    assert search.result_.at_bound == {"C": "lower"}


class Count(Criterion):
    """A criterion of all rows together, without losses of single ones."""

    def by_task(self, out):
        return out.sums([np.abs(part.z - part.y) for part in out.parts])


@pytest.mark.parametrize(
    ("criterion", "words"),
    [(Count(), "no loss of every row"), ("misclassification", "no second derivatives")],
)
def test_criteria_that_cannot_be_followed_are_refused_before_any_work(criterion, words):
    calls = []
    search = BilevelSearchCV(
        LinearSVC(), ["C"], criterion=criterion, choice="one_se", callbacks=[calls.append]
    )
    with pytest.raises(ValueError, match=words):
        search.fit(X, Y)
    assert not calls


def test_a_search_that_is_stopped_in_the_choice_returns_a_point_within_it():
    count = len(BilevelSearchCV(KernelSVC(), cv=4).fit(X, Y).result_.history)
    seen = []
    stop = lambda record: seen.append(record) or len(seen) >= count + 4  # noqa: E731
    search = BilevelSearchCV(KernelSVC(), cv=4, choice="one_se", callbacks=[stop]).fit(X, Y)
    assert search.result_.status is Status.STOPPED


def test_a_resumed_choice_is_the_same(tmp_path):
    settings = {"cv": 4, "choice": "one_se", "checkpoint": tmp_path / "search.foldwise"}
    one = BilevelSearchCV(KernelSVC(), **settings).fit(X, Y)
    again = BilevelSearchCV(KernelSVC(), resume=True, **settings).fit(X, Y)
    assert again.best_params_ == one.best_params_
    assert again.result_.best == one.result_.best
