"""Several partitions of the rows: every figure is a mean over all their folds, by refits of the plain estimator."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, RepeatedKFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR, LinearSVC, LinearSVR
from foldwise.search.repeats import FEW_ROWS, RepeatedFolds
from tests.makers import labels, waves
from tests.referees import fold_decisions, fold_errors

X, Z = waves(60, 3)
Y = labels(Z)


def by_hand(search, y):
    """The criterion of every fold, by refitting the plain estimator in folds that are cut here anew."""
    kind = KFold if search.classes_ is None else StratifiedKFold
    partitions = [kind(3), *(kind(3, shuffle=True, random_state=r) for r in range(1, search.repeats))]
    folds = []
    for partition in partitions:
        for train, test in partition.split(X, y):
            machine = clone(search.estimator).set_params(**search.best_params_).fit(X[train], y[train])
            folds.append(fold_decisions(machine, X[test], y[test]))
    return fold_errors(search.criterion_, folds)


@pytest.mark.parametrize(
    "estimator",
    [LinearSVC(), KernelSVC(), SVC(), make_pipeline(StandardScaler(), SVC()), LinearSVR(), KernelSVR()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_every_figure_is_over_all_repeated_folds(estimator):
    y = Z if "SVR" in type(estimator).__name__ else Y
    search = BilevelSearchCV(estimator, cv=3, repeats=3).fit(X, y)
    search.classes_ = getattr(search, "classes_", None)
    errors = by_hand(search, y)
    assert len(errors) == search.n_splits_ == 9
    assert -search.best_score_ == pytest.approx(errors.mean(), rel=2e-4)
    np.testing.assert_allclose(search.result_.fold_objectives, errors, rtol=2e-3, atol=1e-5)
    table, index = search.cv_results_, search.best_index_
    assert table["mean_test_score"][index] == search.best_score_
    columns = [table[f"split{t}_test_score"][index] for t in range(9)]
    np.testing.assert_allclose(columns, -np.array(search.result_.fold_objectives), rtol=1e-12)
    assert "split9_test_score" not in table
    assert search.result_.status.value == "converged"


def test_the_folds_are_a_splitter_that_scikit_learn_takes():
    folds = RepeatedFolds(3, 2, stratified=True)
    assert folds.get_n_splits() == 6
    scores = cross_val_score(SVC(), X, Y, cv=folds)
    assert len(scores) == 6
    np.testing.assert_array_equal(scores[:3], cross_val_score(SVC(), X, Y, cv=3))
    assert not np.array_equal(scores[:3], scores[3:])
    by_number = BilevelSearchCV(KernelSVC(), cv=3, repeats=2).fit(X, Y)
    by_splitter = BilevelSearchCV(KernelSVC(), cv=folds).fit(X, Y)
    assert by_number.best_params_ == by_splitter.best_params_
    grid = GridSearchCV(KernelSVC(), {"C": [by_number.best_params_["C"]]}, cv=folds).fit(X, Y)
    assert grid.n_splits_ == by_number.n_splits_


def test_the_way_begins_on_the_first_partition():
    found = {r: BilevelSearchCV(KernelSVC(), cv=3, repeats=r).fit(X, Y).result_ for r in (1, 4)}
    assert found[4].details["partition_evaluations"] >= 1
    assert "partition_evaluations" not in found[1].details
    assert found[4].details["scout_evaluations"] == found[1].details["scout_evaluations"]
    dear, cheap = (found[4].n_inner_steps, found[1].n_inner_steps)
    assert dear < 3 * cheap
    assert all(len(record.fold_objectives) == 12 for record in found[4].history)


def test_auto_repeats_where_rows_are_few_and_leaves_splitters_alone():
    X, z = waves(FEW_ROWS + 20, 2, 1)

    def splits(n, cv):
        return len(
            BilevelSearchCV(LinearSVR(), ["C"], cv=cv, repeats="auto", refit=False)
            ._prepare(X[:n], z[:n])
            .data.splits
        )

    assert splits(FEW_ROWS, 4) == splits(FEW_ROWS, None) * 4 // 5 == 12
    assert splits(FEW_ROWS + 1, 4) == 4
    assert splits(50, KFold(4)) == 4
    assert splits(50, list(KFold(4).split(X[:50]))) == 4


@pytest.mark.parametrize(
    "cv", [KFold(3), RepeatedKFold(n_splits=3, n_repeats=2), [(np.arange(40), np.arange(40, 60))]]
)
def test_a_splitter_cannot_be_repeated(cv):
    with pytest.raises(ValueError, match=r"repeats=2 cuts a number of folds.*RepeatedStratifiedKFold"):
        BilevelSearchCV(LinearSVC(), cv=cv, repeats=2).fit(X, Y)


def test_more_folds_than_rows_of_a_class_are_refused():
    with pytest.raises(ValueError, match="stratified folds need a class with as many rows"):
        BilevelSearchCV(LinearSVC(), cv=40, repeats=2).fit(X, Y)


def test_outer_folds_of_a_nested_search_are_not_repeated():
    nested = BilevelSearchCV(LinearSVR(), ["C"], cv=3, repeats=2).nested(X, Z, cv=4)
    assert len(nested.errors) == 4
    assert sorted(np.concatenate([fold.rows for fold in nested.folds])) == list(range(60))


def test_a_resumed_search_gives_the_same_answer(tmp_path):
    path = tmp_path / "search.foldwise"
    settings = {"cv": 3, "repeats": 2, "checkpoint": path}
    one = BilevelSearchCV(KernelSVC(), **settings).fit(X, Y)
    again = BilevelSearchCV(KernelSVC(), resume=True, **settings).fit(X, Y)
    assert again.n_resumed_ > 0
    assert again.best_params_ == one.best_params_
    with pytest.raises(ValueError, match="the folds"):
        BilevelSearchCV(KernelSVC(), **{**settings, "repeats": 3}, resume=True).fit(X, Y)
