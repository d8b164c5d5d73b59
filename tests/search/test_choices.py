"""Spaces of grids, distributions and choices: a search for every combination, never worse than the grid."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.svm import LinearSVC as SkLinearSVC

from foldwise import BilevelSearchCV, KernelSVC, Lin, Log
from foldwise.search.repeats import RepeatedFolds
from foldwise.search.spaces import read_branches

X, LABELS = make_classification(90, 5, n_informative=3, flip_y=0.1, random_state=1)
Y = X @ np.arange(5.0) + np.random.default_rng(0).normal(size=90)
PIPE = Pipeline([("scale", StandardScaler()), ("pca", PCA()), ("svc", SVC(tol=1e-8))])


def choices(search):
    return [dict(branch.choices) for branch in read_branches(search)]


def ranges(search):
    return [branch.space for branch in read_branches(search)]


@pytest.mark.parametrize("scoring", ["accuracy", "roc_auc", "neg_log_loss"])
def test_a_grid_is_answered_at_least_as_well_as_by_the_grid(scoring):
    grid = {"C": np.logspace(-2, 2, 5)}
    machine = LogisticRegression(tol=1e-10, max_iter=1000)
    theirs = GridSearchCV(machine, grid, scoring=scoring, cv=3).fit(X, LABELS)
    ours = BilevelSearchCV(machine, param_grid=grid, scoring=scoring, cv=3).fit(X, LABELS)
    assert ours.best_score_ >= theirs.best_score_ - 1e-9
    visited = np.array([params["C"] for params in ours.cv_results_["params"]])
    for value in grid["C"]:
        assert np.isclose(visited, value, rtol=1e-12).any()


def test_a_grid_without_scoring_is_visited_too():
    search = BilevelSearchCV(Ridge(), {"alpha": [0.1, 1.0, 10.0, 100.0]}, cv=3).fit(X, Y)
    theirs = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0, 10.0, 100.0]}, cv=3, scoring="neg_mean_squared_error")
    assert search.best_score_ >= theirs.fit(X, Y).best_score_ - 1e-12
    assert sum(record.note == "grid" for record in search.result_.history) == 4


def test_kernels_to_choose_from():
    grid = {"kernel": ["linear", "rbf"], "C": [0.1, 1.0, 10.0], "gamma": [0.01, 0.1]}
    theirs = GridSearchCV(SVC(tol=1e-8), grid, cv=3).fit(X, LABELS)
    ours = BilevelSearchCV(SVC(tol=1e-8), grid, scoring="accuracy", cv=3).fit(X, LABELS)
    assert ours.best_score_ >= theirs.best_score_
    table = ours.cv_results_
    linear = np.array([params["kernel"] == "linear" for params in table["params"]])
    assert 0 < linear.sum() < len(linear)
    np.testing.assert_array_equal(np.ma.getmaskarray(table["param_gamma"]), linear)  # which it does not have
    assert not np.ma.getmaskarray(table["param_C"]).any()
    assert table["params"][ours.best_index_] == ours.best_params_
    assert table["mean_test_score"][ours.best_index_] == ours.best_score_ == table["mean_test_score"].max()
    assert table["rank_test_score"][ours.best_index_] == 1
    again = cross_val_score(SVC(tol=1e-8, **ours.best_params_), X, LABELS, cv=3).mean()
    assert ours.best_score_ == pytest.approx(again)
    assert ours.best_estimator_.get_params()["kernel"] == ours.best_params_["kernel"]
    assert len(ours.result_.details["branches"]) == 2


def test_steps_components_and_values_of_a_pipeline():
    space = {
        "scale": [StandardScaler(), MinMaxScaler(), "passthrough"],
        "pca__n_components": [2, 4],
        "svc__C": (0.1, 10.0),
    }
    search = BilevelSearchCV(PIPE, space, scoring="balanced_accuracy", threshold=False, cv=3, max_iter=2)
    search.fit(X, LABELS)
    assert len(search.result_.details["branches"]) == 6
    tuned = clone(PIPE).set_params(**search.best_params_)
    again = cross_val_score(tuned, X, LABELS, cv=3, scoring="balanced_accuracy").mean()
    assert search.best_score_ == pytest.approx(again)
    assert isinstance(search.best_params_["pca__n_components"], int)
    np.testing.assert_array_equal(search.predict(X), tuned.fit(X, LABELS).predict(X))


def test_dicts_machines_and_fixed_values():
    space = [
        {"svc": [SkLinearSVC(tol=1e-8)], "svc__C": (0.1, 10.0)},
        {"svc__gamma": ["scale", 0.1, 1.0], "svc__C": [1.0]},
    ]
    search = BilevelSearchCV(PIPE, space, scoring="roc_auc", cv=3, max_iter=2)
    assert choices(search)[1:] == [{"svc__gamma": "scale", "svc__C": 1.0}, {"svc__C": 1.0}]
    search.fit(X, LABELS)
    table = search.cv_results_
    assert np.ma.getmaskarray(table["param_svc"]).sum() == sum("svc" not in p for p in table["params"]) > 0
    tuned = clone(PIPE).set_params(**search.best_params_)
    again = cross_val_score(tuned, X, LABELS, cv=3, scoring="roc_auc").mean()
    assert search.best_score_ == pytest.approx(again, rel=1e-6)


def test_selected_features_are_enumerated():
    pipe = Pipeline([("best", SelectKBest(f_regression)), ("ridge", Ridge())])
    search = BilevelSearchCV(pipe, {"best__k": [1, 3, 5], "ridge__alpha": (0.1, 100.0)}, cv=KFold(3))
    search.fit(X[:, ::-1], Y)
    assert search.best_params_["best__k"] in (3, 5)


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (stats.loguniform(0.1, 100), Log(0.1, 100.0)),
        (stats.uniform(1, 4), (1.0, 5.0)),
        (stats.expon(scale=1.0), (0.001, 6.907)),
        ([1, 10, 100], [1, 10, 100]),
        (np.array([1.0, 10.0]), [1.0, 10.0]),
        (Lin(1, 2), Lin(1, 2)),
        ((0.1, 3.0), (0.1, 3.0)),
        (None, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_range_may_be_written_as(spec, wanted):
    (found,) = ranges(BilevelSearchCV(SVC(), {"C": spec}))
    if isinstance(wanted, (Log, Lin)):
        assert type(found["C"]) is type(wanted)
        found, wanted = {"C": (found["C"].lower, found["C"].upper)}, (wanted.lower, wanted.upper)
    assert found["C"] == wanted or np.allclose(found["C"], wanted, rtol=0.01)


def test_distributions_of_optuna():
    optuna = pytest.importorskip("optuna")
    own = optuna.distributions
    space = {
        "svc__C": own.FloatDistribution(0.1, 10.0, log=True),
        "svc__kernel": own.CategoricalDistribution(["rbf", "linear"]),
        "pca__n_components": own.IntDistribution(2, 4),
    }
    search = BilevelSearchCV(PIPE, param_distributions=space)
    assert len(choices(search)) == 6
    assert {choice["pca__n_components"] for choice in choices(search)} == {2, 3, 4}
    assert all(isinstance(one["svc__C"], Log) for one in ranges(search))


@pytest.mark.parametrize("spec", [stats.randint(1, 101), list(range(1, 10))], ids=["distribution", "list"])
def test_many_integers_are_spread(spec):
    found = [one["pca__n_components"] for one in choices(BilevelSearchCV(PIPE, {"pca__n_components": spec}))]
    assert len(found) == 9
    assert [found[0], found[-1]] == [1, 9 if isinstance(spec, list) else 100]


def test_two_names_for_one_thing():
    for name in ("space", "param_grid", "param_distributions"):
        search = clone(BilevelSearchCV(Ridge(), **{name: {"alpha": (0.1, 10.0)}}))
        assert search.get_params()[name] == {"alpha": (0.1, 10.0)}
        assert 0.1 <= search.fit(X, Y).best_params_["alpha"] <= 10.0
    with pytest.raises(ValueError, match="space and param_grid mean the same; give one"):
        BilevelSearchCV(Ridge(), {"alpha": (1, 2)}, param_grid={"alpha": [1, 2]}).fit(X, Y)


def test_branches_share_their_folds():
    cv = StratifiedKFold(3, shuffle=True)  # without a seed
    space = {"class_weight": [None, {0: 1.0, 1: 1.0}], "C": [0.5, 5.0]}
    search = BilevelSearchCV(LogisticRegression(tol=1e-10), space, scoring="neg_log_loss", cv=cv).fit(
        X, LABELS
    )
    table = search.cv_results_
    at = {}
    for k, params in enumerate(table["params"]):
        if params["C"] in (0.5, 5.0):
            at.setdefault(params["C"], set()).add(round(table["split1_test_score"][k], 6))
    assert at
    assert all(len(values) == 1 for values in at.values())


def test_criteria_of_branches_can_be_compared():
    space = {"class_weight": [None, "balanced"], "C": (0.1, 10.0)}
    search = BilevelSearchCV(SVC(), space, cv=3, max_iter=2).fit(X, LABELS)
    assert search.criterion_weight == "auto"
    machines = Pipeline([("machine", SVC())])
    space = {"machine": [SVC(), LogisticRegression()], "machine__C": (0.1, 10.0)}
    other = BilevelSearchCV(machines, space, cv=3, max_iter=2).fit(X, LABELS)
    assert type(search.criterion_).__name__ == type(other.criterion_).__name__ == "ProfiledLogistic"


def test_many_branches_are_halved_on_few_rows():
    rows, labels = make_classification(420, 5, n_informative=3, random_state=0)
    space = {
        "pca__n_components": [1, 2, 3, 4, 5],
        "scale": [StandardScaler(), "passthrough"],
        "svc__C": (0.1, 10),
    }
    search = BilevelSearchCV(PIPE, space, scoring="accuracy", cv=3, max_iter=2).fit(rows, labels)
    assert len(search.result_.details["branches"]) == 4
    assert search.result_.details["branches_halved"] == 6


def test_a_branch_that_fails_is_left_out():
    space = {"pca__n_components": [2, 77], "svc__C": (0.1, 10.0)}
    with pytest.warns(FitFailedWarning, match="1 of 2 branches failed.*n_components"):
        search = BilevelSearchCV(PIPE, space, scoring="accuracy", cv=3, max_iter=2).fit(X, LABELS)
    assert search.best_params_["pca__n_components"] == 2
    with pytest.raises(ValueError, match="n_components"):
        BilevelSearchCV(PIPE, space, scoring="accuracy", cv=3, error_score="raise").fit(X, LABELS)
    with pytest.raises(ValueError, match="n_components"):
        BilevelSearchCV(PIPE, {"pca__n_components": [55, 77], "svc__C": (0.1, 1)}, cv=3).fit(X, LABELS)


def test_time_callbacks_and_interrupts_end_it():
    space = {"pca__n_components": [1, 2, 3, 4, 5], "svc__C": (0.1, 10.0), "svc__gamma": (0.01, 1.0)}
    began = time.perf_counter()
    search = BilevelSearchCV(PIPE, space, cv=3, max_time=0.5).fit(X, LABELS)
    assert time.perf_counter() - began < 10.0
    assert search.best_params_["pca__n_components"] in range(1, 6)
    seen = []

    def stop(record):
        seen.append(record)
        return len(seen) >= 2

    stopped = BilevelSearchCV(PIPE, space, cv=3, callbacks=[stop]).fit(X, LABELS)
    assert stopped.result_.status.value == "stopped by callback"
    assert len(stopped.result_.details["branches"]) == 1

    def interrupt(record):
        if record.params and len(seen) > 2:
            raise KeyboardInterrupt
        seen.append(record)

    ended = BilevelSearchCV(PIPE, space, cv=3, callbacks=[interrupt]).fit(X, LABELS)
    assert ended.result_.status.value == "interrupted"
    assert ended.predict(X).shape == (90,)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"C": []}, "empty list"),
        ({"kernel": ["none"], "C": (0.1, 1)}, "Got 'none'"),
        ({"width": [1, 2]}, "width"),
        ({"C": stats.norm()}, "bounds of 'C'"),
        ({"kernel": ["rbf"], "degree": (1, 4)}, "degree"),
        ({"C__x": [1, 2]}, "cannot be applied.*'C__x'"),
        ({1: [1, 2]}, "names of a space are texts"),
    ],
    ids=["nothing", "no kernel", "no parameter", "no ends", "another kernel", "inside a number", "a number"],
)
def test_what_cannot_be_is_refused(space, words):
    with pytest.raises(ValueError, match=words):
        BilevelSearchCV(SVC(), space, cv=3).fit(X, LABELS)


def test_names_of_a_step_and_of_a_metric_that_were_meant_are_said():
    pipe = Pipeline([("scale", StandardScaler()), ("svc", SVC())])
    with pytest.raises(ValueError, match="Did you mean 'svc__C'"):
        BilevelSearchCV(pipe, {"C": [1.0, 10.0]}, cv=3).fit(X, LABELS)
    with pytest.raises(ValueError, match="Did you mean 'roc_auc'"):
        BilevelSearchCV(pipe, {"svc__C": (0.1, 10.0)}, scoring="rocauc", cv=3).fit(X, LABELS)


def test_our_own_machines_have_choices_too():
    space = {"loss": ["squared_hinge", "quartic_hinge"], "C": [0.1, 1.0, 10.0]}
    search = BilevelSearchCV(KernelSVC(), space, scoring="accuracy", cv=3).fit(X, LABELS)
    assert search.best_params_["loss"] in space["loss"]


def test_nested_searches_name_what_serves_choices():
    search = BilevelSearchCV(SVC(), {"kernel": ["linear", "rbf"], "C": (0.1, 1.0)})
    with pytest.raises(ValueError, match=r"use sklearn.model_selection.cross_validate\(search"):
        search.nested(X, LABELS, cv=2)
    scored = BilevelSearchCV(LogisticRegression(), {"C": (0.1, 1.0)}, scoring="balanced_accuracy", cv=3)
    assert len(scored.nested(X, LABELS, cv=2).errors) == 2


def test_repeats_are_the_same_folds_in_every_branch():
    space = {"class_weight": [None, {0: 1.0, 1: 1.0}], "C": (0.5, 5.0)}
    machine = LogisticRegression(tol=1e-10)
    search = BilevelSearchCV(machine, space, scoring="neg_log_loss", cv=3, repeats=2, random_state=None)
    one, other = search.fit(X, LABELS).result_.details["branches"]
    assert search.n_splits_ == 6
    assert one["score"] == pytest.approx(other["score"], rel=1e-9)


@pytest.mark.parametrize("repeats", [2, "auto"])
def test_repeats_and_choices(repeats):
    space = {"kernel": ["linear", "rbf"], "C": [0.5, 5.0]}
    search = BilevelSearchCV(SVC(tol=1e-8), space, scoring="accuracy", cv=3, repeats=repeats).fit(X, LABELS)
    folds = RepeatedFolds(3, 2 if repeats == 2 else 3, stratified=True)
    assert search.n_splits_ == folds.get_n_splits()
    plain = clone(search.estimator).set_params(**search.best_params_)
    assert search.best_score_ == pytest.approx(cross_val_score(plain, X, LABELS, cv=folds).mean())


def test_halving_and_repeats():
    rows, labels = make_classification(420, 5, n_informative=3, random_state=0)
    space = {
        "pca__n_components": [1, 2, 3, 4],
        "scale": [StandardScaler(), "passthrough"],
        "svc__C": (1.0, 10.0),
    }
    search = BilevelSearchCV(PIPE, space, scoring="accuracy", cv=2, repeats=2, max_iter=1).fit(rows, labels)
    assert search.result_.details["branches_halved"] == 5
    assert search.n_splits_ == 4


@pytest.mark.parametrize(
    ("machine", "space"),
    [
        (Ridge(), {"alpha": [1.0]}),
        (Ridge(alpha=3.0), {"fit_intercept": [True, False]}),
        (LogisticRegression(C=2.0), {"class_weight": [None, "balanced"]}),
    ],
    ids=["one value", "a choice", "classes"],
)
def test_values_that_are_not_searched_are_not_rescaled(machine, space):
    scoring = "r2" if isinstance(machine, Ridge) else "accuracy"
    search = BilevelSearchCV(machine, space, scoring=scoring, cv=3).fit(X, Y if scoring == "r2" else LABELS)
    wanted = clone(machine).set_params(**search.refit_params_)
    assert search.best_estimator_.get_params() == wanted.get_params()


@pytest.mark.parametrize("seed", [None, 3])
def test_choices_are_resumed(seed, tmp_path):
    space = {"kernel": ["linear", "rbf"], "C": [0.5, 5.0]}
    options = {"scoring": "accuracy", "cv": 3, "random_state": seed, "checkpoint": tmp_path / "c"}
    first = BilevelSearchCV(SVC(), space, **options).fit(X, LABELS)
    again = BilevelSearchCV(SVC(), space, resume=True, **options).fit(X, LABELS)
    assert again.best_params_ == first.best_params_
    assert again.n_resumed_ >= len(first.cv_results_["params"])
    assert again.result_.seed == seed


def test_values_that_are_no_numbers():
    with pytest.raises(ValueError, match="values of 'C' must be positive numbers here; got 'a'"):
        BilevelSearchCV(LogisticRegression(), {"C": ["a", 1.0]}, cv=3).fit(X, LABELS)


@pytest.mark.parametrize("step", ["none", StandardScaler, 5])
def test_steps_that_are_none(step):
    for estimator, space in (
        (PIPE, {"scale": [StandardScaler(), step], "svc__C": (0.1, 1)}),
        (Pipeline([("scale", step), ("svc", SVC())]), {"svc__C": (0.1, 1)}),
    ):
        with pytest.raises(ValueError, match="the step 'scale' of the pipeline must be an object with fit"):
            BilevelSearchCV(estimator, space, cv=3).fit(X, LABELS)


@pytest.mark.parametrize("space", [{"C": [0.5, 3.0, 5.0]}, {"kernel": ["linear"], "C": [0.5, 3.0, 5.0]}])
def test_a_point_of_the_grid_that_is_best_is_resumed(space, tmp_path):
    def nearest(estimator, X, y):
        return -abs(np.log(estimator.C / 3.0))

    options = {"scoring": nearest, "cv": 3, "random_state": 0, "checkpoint": tmp_path / "c"}
    first = BilevelSearchCV(SVC(), space, **options).fit(X, LABELS)
    again = BilevelSearchCV(SVC(), space, resume=True, **options).fit(X, LABELS)
    assert first.best_params_["C"] == pytest.approx(3.0)
    assert again.best_params_ == first.best_params_
    assert again.result_.kkt == first.result_.kkt


def test_an_interrupt_on_few_rows_ends_the_search():
    rows, labels = make_classification(420, 5, n_informative=3, random_state=0)
    space = {
        "pca__n_components": [1, 2, 3, 4],
        "scale": [StandardScaler(), "passthrough"],
        "svc__C": (1.0, 9.0),
    }
    calls = []

    def interrupted(estimator, X, y):
        calls.append(len(y))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt):
        BilevelSearchCV(PIPE, space, scoring=interrupted, cv=3).fit(rows, labels)
    assert len(calls) == 5
