"""``scoring``: the user's own metric decides; every value is what scikit-learn gives for the plain estimator."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification, make_regression
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score, get_scorer, log_loss, make_scorer, mean_pinball_loss, roc_auc_score
from sklearn.model_selection import (
    FixedThresholdClassifier,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.svm import LinearSVC as SkLinearSVC

from foldwise import BilevelSearchCV, KernelSVC, LinearSVC, LinearSVR
from foldwise.calibration import fit_pairs_of_rows
from foldwise.search.table import score_columns

X, LABELS = make_classification(120, 5, n_informative=3, weights=[0.7], flip_y=0.1, random_state=3)
_, Y = make_regression(120, 5, noise=20.0, random_state=3)
Y = X @ np.arange(5.0) + 0.3 * np.random.default_rng(0).normal(size=120) + 5.0
THREE = np.digitize(X[:, 0] + X[:, 1], np.quantile(X[:, 0] + X[:, 1], [0.3, 0.7]))
QUICK = {"method_options": {"polls": 0}, "max_iter": 4}
RIDGE = {"alpha": (1e-2, 1e3)}
LOGISTIC = LogisticRegression(tol=1e-10, max_iter=2000)
BY_PREDICTION = ["balanced_accuracy", "f1", "jaccard", "matthews_corrcoef"]


def metric(search, kind="test", name="score"):
    return search.cv_results_[f"mean_{kind}_{name}"]


def referee(estimator, X, y, scoring, cv=3, **options):
    """What scikit-learn finds by fitting the plain estimator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cross_validate(estimator, X, y, cv=cv, scoring=scoring, error_score="raise", **options)


@pytest.mark.parametrize(
    "scoring",
    [
        "accuracy",
        "precision",
        "recall",
        "roc_auc",
        "average_precision",
        "neg_log_loss",
        "neg_brier_score",
        "f1_macro",
    ],
)
def test_classes_have_the_values_of_scikit_learn(scoring):
    search = BilevelSearchCV(LOGISTIC, {"C": (1e-2, 1e2)}, scoring=scoring, cv=3).fit(X, LABELS)
    for k in {0, search.best_index_, len(search.cv_results_["params"]) // 2}:
        plain = clone(LOGISTIC).set_params(**search.cv_results_["params"][k])
        wanted = referee(plain, X, LABELS, scoring)["test_score"]
        found = [search.cv_results_[f"split{t}_test_score"][k] for t in range(3)]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert search.best_score_ == np.max(metric(search))
    assert search.best_score_ >= metric(search)[np.argmax(metric(search, name="criterion"))]
    assert search.best_params_ == search.cv_results_["params"][search.best_index_]
    assert search.cv_results_["rank_test_score"][search.best_index_] == 1
    assert search.score(X, LABELS) == pytest.approx(get_scorer(scoring)(search.best_estimator_, X, LABELS))


@pytest.mark.parametrize(
    "scoring",
    [
        "neg_mean_squared_error",
        "neg_root_mean_squared_error",
        "neg_mean_absolute_error",
        "neg_median_absolute_error",
        "r2",
        "explained_variance",
        "neg_max_error",
        "neg_mean_absolute_percentage_error",
        make_scorer(mean_pinball_loss, alpha=0.8, greater_is_better=False),
    ],
    ids=str,
)
def test_regressions_have_the_values_of_scikit_learn(scoring):
    search = BilevelSearchCV(Ridge(), RIDGE, scoring=scoring, cv=3).fit(X, Y)
    for k in {0, search.best_index_, len(search.cv_results_["params"]) - 1}:
        wanted = referee(Ridge(**search.cv_results_["params"][k]), X, Y, scoring)["test_score"]
        found = [search.cv_results_[f"split{t}_test_score"][k] for t in range(3)]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert search.best_score_ == np.max(metric(search))


@pytest.mark.parametrize(
    ("scoring", "name"),
    [
        ("neg_mean_squared_error", "Squared"),
        ("neg_mean_absolute_error", "Absolute"),
        (make_scorer(mean_pinball_loss, alpha=0.8, greater_is_better=False), "Pinball"),
    ],
    ids=str,
)
def test_a_metric_that_is_a_criterion_is_minimised_itself(scoring, name):
    search = BilevelSearchCV(Ridge(), RIDGE, scoring=scoring, cv=3).fit(X, Y)
    assert type(search.criterion_).__name__ == name
    np.testing.assert_allclose(metric(search), metric(search, name="criterion"), rtol=1e-12)
    assert "polish" not in {record.note for record in search.result_.history}


def test_which_criterion_leads_to_which_metric():
    def led_by(scoring, y=LABELS, estimator=None, **options):
        search = BilevelSearchCV(estimator or LinearSVC(), ["C"], scoring=scoring, cv=3, **QUICK, **options)
        return type(search.fit(X, y).criterion_).__name__

    assert led_by("roc_auc") == led_by("average_precision") == "PairwiseHinge"
    assert led_by("neg_log_loss") == led_by("f1") == "ProfiledLogistic"
    assert led_by("accuracy") == led_by(None) == led_by("f1", threshold=False) == "Logistic"
    assert led_by("accuracy", criterion="squared_hinge") == "SquaredHinge"
    assert led_by("neg_median_absolute_error", Y, LinearSVR()) == "Absolute"


@pytest.mark.parametrize("scoring", BY_PREDICTION)
def test_the_threshold_is_selected_with_the_values(scoring):
    machine = SVC(tol=1e-8)
    search = BilevelSearchCV(machine, {"C": (1e-1, 1e2)}, scoring=scoring, cv=3, **QUICK).fit(X, LABELS)
    table, best = search.cv_results_, search.best_index_
    assert search.best_threshold_ == table["threshold"][best]
    tuned = clone(machine).set_params(**search.best_params_)
    fixed = FixedThresholdClassifier(
        tuned, threshold=search.best_threshold_, response_method="decision_function"
    )
    assert search.best_score_ == pytest.approx(np.mean(referee(fixed, X, LABELS, scoring)["test_score"]))
    assert table["mean_plain_score"][best] == pytest.approx(
        np.mean(referee(tuned, X, LABELS, scoring)["test_score"])
    )
    assert np.all(table["mean_test_score"] >= table["mean_plain_score"] - 1e-12)
    # predict of the search, not of the machine, uses it
    above = search.decision_function(X) > search.best_threshold_
    np.testing.assert_array_equal(search.predict(X), search.classes_[above.astype(int)])
    assert search.score(X, LABELS) == pytest.approx(
        get_scorer(scoring)._score_func(LABELS, search.predict(X))
    )


def test_no_threshold_of_a_tenth_of_a_percent_better_was_missed():
    search = BilevelSearchCV(LOGISTIC, {"C": (1e-2, 1e2)}, scoring="balanced_accuracy", cv=3).fit(X, LABELS)
    tuned = clone(LOGISTIC).set_params(**search.best_params_)
    for threshold in np.linspace(-3, 3, 31):
        fixed = FixedThresholdClassifier(tuned, threshold=threshold, response_method="decision_function")
        mean = np.mean(referee(fixed, X, LABELS, "balanced_accuracy")["test_score"])
        assert mean <= search.best_score_ + 1e-9


def test_a_cost_of_ones_own_with_a_threshold():
    def gain(y, predicted):
        return float(np.sum((y == 1) & (predicted == 1)) - 0.2 * np.sum((y == 0) & (predicted == 1)))

    scorer = make_scorer(gain)
    search = BilevelSearchCV(LOGISTIC, {"C": (1e-2, 1e2)}, scoring=scorer, threshold=True, cv=3, **QUICK)
    search.fit(X, LABELS)
    tuned = clone(LOGISTIC).set_params(**search.best_params_)
    fixed = FixedThresholdClassifier(
        tuned, threshold=search.best_threshold_, response_method="decision_function"
    )
    assert search.best_score_ == pytest.approx(np.mean(referee(fixed, X, LABELS, scorer)["test_score"]))
    assert search.best_score_ > search.cv_results_["mean_plain_score"][search.best_index_]


@pytest.mark.parametrize(
    "estimator",
    [
        SVC(tol=1e-8),
        SVC(tol=1e-8, decision_function_shape="ovo"),
        SVC(tol=1e-8, break_ties=True),
        SkLinearSVC(tol=1e-9),
    ],
    ids=str,
)
def test_three_classes(estimator):
    def first_decisions(machine, X, y):
        return float(np.abs(machine.decision_function(X)).max(axis=1).mean() + machine.predict(X).mean())

    scoring = {"balanced": "balanced_accuracy", "f1": "f1_macro", "own": first_decisions}
    search = BilevelSearchCV(estimator, {"C": (1e-1, 1e1)}, scoring=scoring, refit="f1", cv=3, **QUICK)
    search.fit(X, THREE)
    wanted = referee(clone(estimator).set_params(**search.best_params_), X, THREE, scoring)
    for name in scoring:
        found = metric(search, name=name)[search.best_index_]
        assert found == pytest.approx(np.mean(wanted[f"test_{name}"]), rel=1e-4), name
    assert search.best_threshold_ is None
    assert search.multimetric_
    assert set(search.scorer_) == set(scoring)


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler()], ids=str)
def test_pipelines_splitters_and_training_scores(scaler):
    pipeline = make_pipeline(scaler, KernelRidge(kernel="rbf"))
    cv = ShuffleSplit(4, random_state=0)
    search = BilevelSearchCV(
        pipeline, {"kernelridge__alpha": (1e-2, 1e1), "kernelridge__gamma": (1e-2, 1.0)}, scoring="r2", cv=cv
    )
    search.set_params(return_train_score=True, **QUICK).fit(X, Y)
    wanted = referee(
        clone(pipeline).set_params(**search.best_params_), X, Y, "r2", cv, return_train_score=True
    )
    best = search.best_index_
    for kind in ("test", "train"):
        found = [search.cv_results_[f"split{t}_{kind}_score"][best] for t in range(4)]
        np.testing.assert_allclose(found, wanted[f"{kind}_score"], rtol=1e-6)


def test_rows_come_to_a_callable_in_the_order_of_the_split():
    def in_order(estimator, X, y):
        return float(np.mean(np.diff(estimator.predict(X)) * np.diff(y)))

    cv = [(np.arange(60, 120), np.arange(60)[::-1]), (np.arange(60), np.r_[119:59:-1, 61])]
    search = BilevelSearchCV(Ridge(), RIDGE, scoring=in_order, cv=cv, **QUICK).fit(X, Y)
    wanted = referee(Ridge(**search.best_params_), X, Y, in_order, cv)["test_score"]
    assert search.best_score_ == pytest.approx(np.mean(wanted), rel=1e-6)


def test_a_callable_may_ask_for_more_than_decisions():
    def size_of_weights(estimator, X, y):
        return -float(np.abs(estimator[-1].coef_).sum()) + float(estimator.predict(X[:2]).sum())

    pipeline = make_pipeline(StandardScaler(), Ridge())
    search = BilevelSearchCV(pipeline, {"ridge__alpha": (1e-2, 1e3)}, scoring=size_of_weights, cv=3, **QUICK)
    search.fit(X, Y, sample_weight=1.0 + (Y > 0))
    weighted = referee(
        clone(pipeline).set_params(**search.best_params_),
        X,
        Y,
        size_of_weights,
        params={"ridge__sample_weight": 1.0 + (Y > 0)},
    )
    assert search.best_score_ == pytest.approx(np.mean(weighted["test_score"]), rel=1e-8)


def test_a_callable_may_give_several_numbers():
    def both(estimator, X, y):
        z = estimator.predict(X)
        return {"squared": -float(np.mean((z - y) ** 2)), "largest": -float(np.max(np.abs(z - y)))}

    search = BilevelSearchCV(Ridge(), RIDGE, scoring=both, refit="largest", cv=3).fit(X, Y)
    assert search.multimetric_
    assert search.best_score_ == np.max(metric(search, name="largest"))
    assert "mean_test_squared" in search.cv_results_


def test_probabilities_of_a_machine_without_come_from_the_other_folds():
    search = BilevelSearchCV(KernelSVC(), ["C"], scoring="neg_log_loss", cv=3, **QUICK).fit(X, LABELS)
    assert -0.7 < search.best_score_ < -0.1
    assert search.score(X, LABELS) == pytest.approx(get_scorer("neg_log_loss")(search, X, LABELS))
    shuffled = BilevelSearchCV(KernelSVC(), ["C"], scoring="neg_log_loss", cv=3, **QUICK)
    noise = np.random.default_rng(0).permutation(LABELS)
    assert shuffled.fit(X, noise).best_score_ < -0.55  # no fold knows its own rows


def test_refit_may_choose_the_row():
    def strongest(table):
        good = table["mean_test_score"] >= table["mean_test_score"].max() - table["std_test_score"].mean()
        return int(
            np.flatnonzero(good)[np.argmax([table["params"][i]["alpha"] for i in np.flatnonzero(good)])]
        )

    search = BilevelSearchCV(Ridge(), RIDGE, scoring="r2", refit=strongest, cv=3).fit(X, Y)
    assert search.best_index_ == strongest(search.cv_results_)
    assert (
        search.best_params_["alpha"]
        > BilevelSearchCV(Ridge(), RIDGE, scoring="r2", cv=3).fit(X, Y).best_params_["alpha"]
    )
    assert search.result_.params == search.best_params_
    assert search.best_score_ == metric(search)[search.best_index_]
    assert "criterion_minimum" in search.result_.details
    told = search.result_.summary().splitlines()[1]
    assert (
        told
        == f"score {search.best_score_:.6g} in the folds, by which this point was chosen, not by the error"
    )
    again = referee(Ridge(**search.best_params_), X, Y, "r2")["test_score"]
    assert search.best_score_ == pytest.approx(np.mean(again))
    for wrong, error in ((lambda table: "0", TypeError), (lambda table: 10**6, IndexError)):
        with pytest.raises(error, match="refit must return the number of a row"):
            BilevelSearchCV(Ridge(), RIDGE, refit=wrong, cv=3).fit(X, Y)


def test_a_metric_that_fails_leaves_the_criterion():
    def broken(estimator, X, y):
        raise RuntimeError("no")

    with pytest.warns(UserWarning, match="scoring failed .* RuntimeError: no"):
        search = BilevelSearchCV(Ridge(), RIDGE, scoring=broken, cv=3).fit(X, Y)
    plain = BilevelSearchCV(Ridge(), RIDGE, cv=3).fit(X, Y)
    assert np.isnan(search.best_score_)
    assert search.best_params_["alpha"] == pytest.approx(plain.best_params_["alpha"], rel=1e-3)
    with pytest.raises(RuntimeError, match="no"):
        BilevelSearchCV(Ridge(), RIDGE, scoring=broken, error_score="raise", cv=3).fit(X, Y)
    with pytest.warns(UserWarning, match="scoring failed"):
        zero = BilevelSearchCV(Ridge(), RIDGE, scoring=broken, error_score=0.0, cv=3).fit(X, Y)
    assert zero.best_score_ == 0.0


def test_a_metric_that_fails_in_one_place_only_is_passed_over():
    visited = BilevelSearchCV(Ridge(), RIDGE, scoring="r2", cv=3).fit(X, Y).cv_results_["params"]
    limit = np.median([params["alpha"] for params in visited])

    def weak(estimator, X, y):
        return float(estimator.alpha) if estimator.alpha < limit else np.nan

    search = BilevelSearchCV(Ridge(), RIDGE, scoring=weak, cv=3).fit(X, Y)
    assert np.isnan(metric(search)).any()
    assert search.best_score_ == np.nanmax(metric(search)) == pytest.approx(search.best_params_["alpha"])
    assert search.cv_results_["rank_test_score"][search.best_index_] == 1


def test_a_fold_with_one_class_gives_what_scikit_learn_gives():
    cv = [(np.arange(40, 120), np.flatnonzero(LABELS[:40] == 0)), (np.arange(40), np.arange(40, 120))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search = BilevelSearchCV(LOGISTIC, {"C": (1e-2, 1e2)}, scoring="f1", threshold=False, cv=cv).fit(
            X, LABELS
        )
    wanted = referee(clone(LOGISTIC).set_params(**search.best_params_), X, LABELS, "f1", cv)["test_score"]
    assert search.best_score_ == pytest.approx(np.mean(wanted))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scoring": ["r2", "neg_max_error"]}, "refit must name the one that decides"),
        ({"scoring": ["r2"], "refit": "accuracy"}, "none of the metrics"),
        ({"scoring": "r2", "refit": "r2"}, "single one"),
        ({"refit": "r2"}, "scoring is None"),
        ({"return_train_score": True}, "needs scoring"),
        ({"threshold": True, "scoring": "r2"}, "is for classes"),
        ({"scoring": f1_score}, r"make_scorer\(f1_score\)"),
        ({"scoring": "roc_auc"}, "for regression"),
        ({"scoring": {"criterion": "r2"}, "refit": "criterion"}, "that of the criterion"),
    ],
)
def test_what_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        BilevelSearchCV(Ridge(), RIDGE, **options).fit(X, Y)


def test_threads_and_checkpoints_change_nothing(tmp_path):
    def fitted(**options):
        return BilevelSearchCV(
            LinearSVC(), ["C"], scoring="f1", cv=3, n_starts=3, random_state=0, **options
        ).fit(X, LABELS)

    alone, threads = fitted(), fitted(n_jobs=2)
    kept = fitted(checkpoint=tmp_path / "search")
    again = fitted(checkpoint=tmp_path / "search", resume=True)
    assert again.n_resumed_ > 3
    for one, other in ((alone, threads), (kept, again)):
        assert other.best_params_ == one.best_params_
        assert other.best_threshold_ == one.best_threshold_
        np.testing.assert_array_equal(metric(other), metric(one))
    assert kept.best_score_ == pytest.approx(alone.best_score_)


def test_a_search_that_is_stopped_keeps_its_best_metric():
    search = BilevelSearchCV(
        LinearSVC(), ["C"], scoring="accuracy", cv=3, callbacks=[lambda record: record.evaluation >= 2]
    ).fit(X, LABELS)
    assert search.result_.status.value == "stopped by callback"
    assert search.best_score_ == np.max(metric(search))


def test_times_are_there():
    search = BilevelSearchCV(LinearSVC(), ["C"], scoring="accuracy", cv=3).fit(X, LABELS)
    for name in ("mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time"):
        column = search.cv_results_[name]
        assert len(column) == len(search.cv_results_["params"])
        assert np.all(column >= 0.0)
    assert np.all(search.cv_results_["mean_fit_time"] > 0.0)


def test_the_search_can_be_calibrated_and_validated_by_others():
    search = BilevelSearchCV(
        LinearSVC(), ["C"], scoring="f1", cv=RepeatedStratifiedKFold(n_splits=3, n_repeats=2)
    )
    search.set_params(**QUICK)
    assert len(cross_validate(search, X, LABELS, cv=2, scoring="f1")["test_score"]) == 2
    assert CalibratedClassifierCV(search, cv=2).fit(X, LABELS).predict_proba(X).shape == (120, 2)


def one_fold_in(values):
    """A metric that gives the first fold it sees another value than the others."""
    first = []

    def scorer(estimator, X, y):
        first.append(X[0, 0]) if not first else None
        return values[0] if X[0, 0] == first[0] else values[1]

    return scorer


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (({"a": 1.0}, {"a": 1.0, "b": 2.0}), "the same names in every fold; got 'a', 'b' in one"),
        (({"a": 1.0, "b": 2.0}, {"a": 1.0}), "the same names in every fold; got 'a' in one"),
        ((1.0, {"a": 1.0}), "the same names in every fold; got 1.0 in one"),
        (("good", 1.0), "must return a number"),
        ((np.zeros(2), 1.0), "must return a number"),
    ],
)
def test_what_a_metric_gives_in_one_fold_only(values, words):
    with pytest.raises(ValueError, match=words):
        BilevelSearchCV(Ridge(), RIDGE, scoring=one_fold_in(values), cv=3).fit(X, Y)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_metric_without_a_finite_mean_is_said(value):
    with pytest.warns(UserWarning, match=f"the mean of scoring over the folds is {value}"):
        BilevelSearchCV(Ridge(), RIDGE, scoring=one_fold_in((value, 1.0)), cv=3).fit(X, Y)


def test_a_metric_that_fails_in_one_fold_beside_names():
    give = one_fold_in((None, {"a": 1.0, "b": 2.0}))

    def scorer(estimator, X, y):
        if (found := give(estimator, X, y)) is None:
            raise RuntimeError("no")
        return found

    with pytest.warns(UserWarning, match="scoring failed"):
        search = BilevelSearchCV(Ridge(), RIDGE, scoring=scorer, refit="b", error_score=0.0, cv=3).fit(X, Y)
    assert search.best_score_ == pytest.approx(4 / 3)


@pytest.mark.parametrize(
    ("scoring", "target", "words"),
    [
        ("f1", "three", "f1_score is for two classes, and y has 3"),
        ("roc_auc", "three", "use 'roc_auc_ovr'"),
        ("recall", "texts", "pos_label='yes'"),
        ("average_precision", "texts", "pos_label='yes', response_method"),
        ({"a": "accuracy", "b": "precision"}, "three", "precision_score is for two"),
    ],
)
def test_metrics_that_would_fail_in_every_fold_are_refused(scoring, target, words):
    y = np.digitize(Y, np.quantile(Y, [0.3, 0.6])) if target == "three" else np.array(["no", "yes"])[LABELS]
    search = BilevelSearchCV(LOGISTIC, {"C": (1e-2, 1e2)}, scoring=scoring, cv=3)
    with pytest.raises(ValueError, match=words):
        search.set_params(refit="b" if isinstance(scoring, dict) else True).fit(X, y)


def test_ranks_do_not_see_rounding_and_see_small_numbers():
    nan, inf = np.nan, np.inf
    folds = np.array([[0.1 + 0.2], [0.3], [0.2], [nan], [-inf], [inf], [0.5]])
    ranks = score_columns(folds, "test", "score", np.array([True] * 6 + [False]))["rank_test_score"]
    np.testing.assert_array_equal(ranks, [1, 1, 3, 4, 4, 4, 4])
    small = score_columns(-1e-16 * np.arange(1.0, 4.0)[:, None], "test", "score", np.full(3, True))
    np.testing.assert_array_equal(small["rank_test_score"], [1, 2, 3])


def test_a_tiny_target_is_judged_by_the_metric():
    scoring = make_scorer(lambda y, z: np.mean(np.abs(y - z) ** 3), greater_is_better=False)
    small = BilevelSearchCV(Ridge(), RIDGE, scoring=scoring, cv=3).fit(X, 1e-5 * Y)
    assert small.best_score_ == metric(small).max()
    assert small.cv_results_["rank_test_score"][small.best_index_] == 1


@pytest.mark.parametrize("scoring", ["neg_log_loss", "roc_auc_ovr"])
def test_probabilities_of_pairs_of_classes(scoring):
    y = np.digitize(Y, np.quantile(Y, [0.3, 0.6]))
    search = BilevelSearchCV(SVC(), {"C": (0.1, 10.0)}, scoring=scoring, cv=3, **QUICK).fit(X, y)
    worst = -np.log(3.0) if scoring == "neg_log_loss" else 0.5
    assert worst + 0.05 < search.best_score_ < (0.0 if scoring == "neg_log_loss" else 1.0)
    # The folds' decisions by the plain machine, and the coupling of the other folds'.
    plain = SVC(decision_function_shape="ovo", tol=1e-8, **search.best_params_)
    folds = list(StratifiedKFold(3).split(X, y))
    decided = [clone(plain).fit(X[train], y[train]).decision_function(X[test]) for train, test in folds]
    scores = []
    for t, (_, test) in enumerate(folds):
        others = [s for s in range(3) if s != t]
        fitted = fit_pairs_of_rows(
            np.vstack([decided[s] for s in others]), np.concatenate([y[folds[s][1]] for s in others]), 3
        )
        p = fitted.of(decided[t])
        loss = scoring == "neg_log_loss"
        scores.append(-log_loss(y[test], p) if loss else roc_auc_score(y[test], p, multi_class="ovr"))
    assert search.best_score_ == pytest.approx(np.mean(scores), rel=1e-3)


def test_no_row_judges_itself_in_another_partition():
    first, second = np.arange(60), np.arange(60, 120)
    folds = [(first, second), (second, first)]
    options = {"scoring": "neg_log_loss", **QUICK}
    once = BilevelSearchCV(KernelSVC(), {"C": (1.0, 1.0)}, cv=folds, **options).fit(X, LABELS)
    twice = BilevelSearchCV(KernelSVC(), {"C": (1.0, 1.0)}, cv=[*folds, folds[0]], **options).fit(X, LABELS)
    for name in ("split0_test_score", "split2_test_score"):
        wanted = once.cv_results_["split0_test_score"][0]
        assert twice.cv_results_[name][0] == pytest.approx(wanted, rel=1e-9)
