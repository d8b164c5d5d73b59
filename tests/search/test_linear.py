"""BilevelSearchCV on linear models: its numbers are those of an explicit cross-validation of the same estimator."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.base import clone, is_classifier
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
    check_cv,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.svm import LinearSVR as SkLinearSVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from foldwise import BilevelSearchCV, KernelSVC, Lin, LinearSVC, LinearSVR, Log, Logistic, Squared
from foldwise.criteria import get_criterion
from foldwise.optimizers import METHODS
from tests.referees import class_shares, fold_decisions, fold_errors


# In older versions of scikit-learn one check draws fewer rows of a class than the search has folds.
@pytest.mark.filterwarnings("ignore:The least populated class in y:UserWarning")
@parametrize_with_checks([BilevelSearchCV(LinearSVC()), BilevelSearchCV(LinearSVR())])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def regression(n=120):
    X, y = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:n]
    return X[order] * np.linspace(5, 50, X.shape[1]), (y[order] - 150) / 50


def classification(n=140):
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[:n]
    X = X[order][:, [0, 1, 4, 5, 6, 8, 9, 24]]
    return X / X.std(axis=0), np.array(["benign", "malignant"])[y[order]]


def decisions(model, X):
    return model.decision_function(X) if is_classifier(model) else model.predict(X)


def explicit(search, X, y, cv=None, params=None, weight=None, groups=None):
    """The criterion of every fold from fits of the very estimator that was searched, by scikit-learn alone."""
    classes = np.unique(y) if is_classifier(search.estimator) else None
    splitter = check_cv(search.cv if cv is None else cv, y, classifier=classes is not None)
    out = []
    for train, test in splitter.split(X, y, groups):
        model = clone(search.estimator).set_params(**(search.best_params_ if params is None else params))
        part = {} if weight is None else {f"{_last(model)}sample_weight": weight[train]}
        rows = (X.iloc[train], X.iloc[test]) if hasattr(X, "iloc") else (X[train], X[test])
        model.fit(rows[0], y[train], **part)
        masses = np.ones(len(y)) if weight is None else weight
        last = model[-1] if hasattr(model, "steps") else model
        counts = class_shares(last, y[train], y[test], masses[train]) * masses[test]
        out.append(fold_decisions(model, rows[1], y[test], counts))
    return fold_errors(search.criterion_, out)


def _last(model):
    return f"{model.steps[-1][0]}__" if hasattr(model, "steps") else ""


REGRESSORS = {
    "ours": LinearSVR(),
    "ours huber": LinearSVR("huber"),
    "ours, no intercept": LinearSVR(epsilon=0.2, fit_intercept=False),
    "LinearSVR": SkLinearSVR(loss="squared_epsilon_insensitive", dual=False, tol=1e-10, max_iter=20_000),
    "Ridge": Ridge(),
    "Ridge, no intercept": Ridge(fit_intercept=False),
}
CLASSIFIERS = {
    "ours": LinearSVC(),
    "ours balanced": LinearSVC("logistic", class_weight="balanced"),
    "LinearSVC": SkLinearSVC(dual=False, tol=1e-10, max_iter=20_000),
    "LinearSVC balanced": SkLinearSVC(dual=False, tol=1e-10, max_iter=20_000, class_weight="balanced"),
    "LogisticRegression": LogisticRegression(tol=1e-10, max_iter=20_000),
    "LogisticRegression, liblinear": LogisticRegression(
        solver="liblinear", tol=1e-10, max_iter=20_000, class_weight={"benign": 2.0}
    ),
}
STEPS = {
    "alone": [],
    "scaled": [StandardScaler()],
    "scaled without the mean": [StandardScaler(with_mean=False)],
    "scaled, PCA": [StandardScaler(), PCA(4)],
}


def pipeline(steps, model):
    return make_pipeline(*[clone(step) for step in steps], clone(model)) if steps else clone(model)


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("model", REGRESSORS.values(), ids=REGRESSORS)
def test_the_score_is_that_of_the_same_regressor_in_the_same_folds(model, steps):
    X, y = regression()
    search = BilevelSearchCV(pipeline(steps, model), cv=3).fit(X, y)
    folds = explicit(search, X, y)
    np.testing.assert_allclose(search.result_.fold_objectives, folds, rtol=1e-4)
    assert search.best_score_ == pytest.approx(-folds.mean(), rel=1e-5)
    assert max(search.result_.kkt) < 1e-6


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("model", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_the_score_is_that_of_the_same_classifier_in_the_same_folds(model, steps):
    X, y = classification()
    search = BilevelSearchCV(pipeline(steps, model), cv=3).fit(X, y)
    folds = explicit(search, X, y)
    np.testing.assert_allclose(search.result_.fold_objectives, folds, rtol=2e-4)
    assert search.best_score_ == pytest.approx(-folds.mean(), rel=1e-4)


@pytest.mark.parametrize("model", ["ours balanced", "LinearSVC balanced", "LogisticRegression"])
def test_the_score_with_sample_weights(model):
    X, y = classification()
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    search = BilevelSearchCV(make_pipeline(StandardScaler(), clone(CLASSIFIERS[model])), cv=3)
    search.fit(X, y, sample_weight=weight)
    folds = explicit(search, X, y, weight=weight)
    np.testing.assert_allclose(search.result_.fold_objectives, folds, rtol=2e-4)


@pytest.mark.parametrize("model", [LinearSVC(), SkLinearSVC(dual=False, tol=1e-10, class_weight={0: 3.0})])
def test_the_score_with_three_classes(model):
    X, y = load_iris(return_X_y=True)
    search = BilevelSearchCV(make_pipeline(StandardScaler(), model), cv=3).fit(X, y)
    np.testing.assert_allclose(search.result_.fold_objectives, explicit(search, X, y), rtol=1e-4)
    assert search.classes_.tolist() == [0, 1, 2]


def mixed_frame():
    X, y = regression()
    frame = pd.DataFrame(X[:, :4], columns=["age", "sex", "bmi", "bp"])
    frame["region"] = np.array(["north", "south", "west"])[np.arange(len(y)) % 3]
    frame.loc[3, "bmi"] = np.nan
    return frame, y + 0.5 * (frame["region"] == "west").to_numpy()


@pytest.mark.parametrize("model", [LinearSVR(), Ridge()], ids=["ours", "Ridge"])
def test_a_data_frame_with_text_and_gaps(model):
    frame, y = mixed_frame()
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer((OneHotEncoder(), ["region"]), (numbers, ["age", "sex", "bmi", "bp"]))
    search = BilevelSearchCV(make_pipeline(columns, model), cv=3).fit(frame, y)
    np.testing.assert_allclose(search.result_.fold_objectives, explicit(search, frame, y), rtol=1e-5)
    assert list(search.feature_names_in_) == list(frame.columns)
    assert search.predict(frame[:2]).shape == (2,)


def test_penalties_are_named_after_the_columns_that_the_model_sees():
    frame, y = mixed_frame()
    columns = make_column_transformer((OneHotEncoder(), ["region"]), ("passthrough", ["age", "bp"]))
    search = BilevelSearchCV(
        make_pipeline(columns, LinearSVR("squared")),
        {"linearsvr__lam": Log(1e-2, 1e2, per="feature")},
        cv=3,
        max_iter=2,
    ).fit(frame, y)
    assert search.space_.names[0] == "lam[onehotencoder__region_north]"
    assert search.space_.names[-1] == "lam[passthrough__bp]"
    scaled = BilevelSearchCV(
        make_pipeline(StandardScaler(), LinearSVR("squared")), {"linearsvr__lam": Log(1, 9, per="feature")}
    )
    assert scaled.fit(frame[["age", "bp"]], y).space_.names == ["lam[age]", "lam[bp]"]


@pytest.mark.parametrize("steps", [[], [StandardScaler(with_mean=False)]], ids=["alone", "scaled"])
def test_sparse_matrices_give_the_dense_score(steps):
    X, y = regression()
    X = np.where(np.abs(X) < 0.7, 0.0, X)
    space = {f"{'linearsvr__' if steps else ''}C": (1e-4, 1e4)}
    dense = BilevelSearchCV(pipeline(steps, LinearSVR()), space, cv=3).fit(X, y)
    sparse = BilevelSearchCV(pipeline(steps, LinearSVR()), space, cv=3).fit(sp.csr_array(X), y)
    assert sparse.best_score_ == pytest.approx(dense.best_score_, rel=1e-5)
    np.testing.assert_allclose(sparse.predict(sp.csr_array(X)), dense.predict(X), atol=5e-3)


# The final fit


@pytest.mark.parametrize(
    ("model", "name", "power"),
    [
        (LinearSVR(), "C", -1),
        (LinearSVC(), "C", -1),
        (LinearSVR("squared"), "lam", 1),
        (Ridge(), "alpha", 1),
        (LogisticRegression(), "C", -1),
    ],
)
def test_the_final_fit_is_rescaled_by_t_over_t_minus_1(model, name, power):
    X, y = classification() if is_classifier(model) else regression()
    search = BilevelSearchCV(model, [name], cv=4).fit(X, y)
    assert search.refit_params_[name] == pytest.approx(search.best_params_[name] * (4 / 3) ** power)
    assert search.best_estimator_.get_params()[name] == search.refit_params_[name]
    np.testing.assert_allclose(
        decisions(search, X),
        decisions(clone(model).set_params(**search.refit_params_).fit(X, y), X),
    )
    plain = BilevelSearchCV(model, [name], cv=4, rescale=False).fit(X, y)
    assert plain.best_params_ == search.best_params_ == plain.refit_params_


def test_the_tube_is_not_rescaled_and_unequal_training_sets_are_averaged():
    X, y = regression()
    search = BilevelSearchCV(LinearSVR(), {"C": (1e-2, 1e2), "epsilon": Lin(0.1, 1)}, cv=TimeSeriesSplit(4))
    search.fit(X, y)
    mean = np.mean([len(train) for train, _ in TimeSeriesSplit(4).split(X)])
    assert search.refit_params_["C"] == pytest.approx(search.best_params_["C"] * mean / len(y))
    assert search.refit_params_["epsilon"] == search.best_params_["epsilon"]


# GridSearchCV's attributes


def test_attributes_and_shapes_are_those_of_grid_search():
    X, y = regression()
    values = np.geomspace(0.01, 10, 6)
    reference = GridSearchCV(Ridge(), {"alpha": values}, cv=3, scoring="neg_mean_squared_error").fit(X, y)
    options = {"values": {"alpha": values}}
    search = BilevelSearchCV(
        Ridge(), {"alpha": (0.01, 10)}, cv=3, method="grid", method_options=options, rescale=False
    ).fit(X, y)
    timing = {key for key in reference.cv_results_ if key.endswith("_time")}
    assert set(reference.cv_results_) - timing <= set(search.cv_results_)
    for key in set(reference.cv_results_) - timing - {"params", "param_alpha"}:
        assert search.cv_results_[key].shape == reference.cv_results_[key].shape, key
        np.testing.assert_allclose(search.cv_results_[key], reference.cv_results_[key], rtol=1e-7)
    np.testing.assert_allclose(search.cv_results_["param_alpha"].astype(float), values)
    assert [set(params) for params in search.cv_results_["params"]] == [{"alpha"}] * 6
    assert search.best_index_ == reference.best_index_
    assert search.best_params_["alpha"] == pytest.approx(reference.best_params_["alpha"])
    assert search.best_score_ == pytest.approx(reference.best_score_)
    assert search.n_splits_ == reference.n_splits_
    assert search.n_features_in_ == reference.n_features_in_
    assert search.refit_time_ > 0
    np.testing.assert_allclose(search.predict(X), reference.predict(X))
    assert search.score(X, y) == pytest.approx(reference.best_estimator_.score(X, y))
    assert len(pd.DataFrame(search.cv_results_)) == 6


def test_the_results_agree_with_each_other():
    X, y = classification()
    search = BilevelSearchCV(LinearSVC(), cv=4, n_starts=2, random_state=0).fit(X, y)
    results, i = search.cv_results_, search.best_index_
    n = len(search.result_.history)
    assert search.n_iter_ == search.result_.n_evaluations == n
    assert all(len(column) == n for column in results.values())
    assert results["mean_test_score"][i] == pytest.approx(search.best_score_, rel=1e-12)
    assert results["rank_test_score"][i] == 1
    assert results["params"][i] == search.best_params_
    folds = np.array([results[f"split{t}_test_score"] for t in range(4)])
    np.testing.assert_allclose(folds.mean(axis=0), results["mean_test_score"])
    np.testing.assert_allclose(folds.std(axis=0), results["std_test_score"])
    assert search.result_.objective == min(record.objective for record in search.result_.history)


@pytest.mark.parametrize(
    "machine",
    [LogisticRegression(tol=1e-10, max_iter=10_000), LinearSVC("logistic"), KernelSVC(loss="logistic")],
)
def test_a_machine_of_log_odds_is_tuned_by_the_log_loss(machine):
    """What was selected makes the probabilities of the folds truest, by scikit-learn's own measure."""
    X, y = classification()
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(X, y))
    search = BilevelSearchCV(machine, cv=folds).fit(X, y)

    def loss(**params):
        total = []
        for train, validation in folds:
            fitted = clone(machine).set_params(**params).fit(X[train], y[train])
            share = expit(fitted.decision_function(X[validation]))
            total.append(log_loss(y[validation], np.column_stack([1 - share, share]), labels=fitted.classes_))
        return np.mean(total)

    best = search.best_params_
    assert -search.best_score_ == pytest.approx(loss(**best), rel=1e-5)
    for factor in (0.5, 2.0):
        assert loss(**{**best, "C": factor * best["C"]}) > loss(**best)


def test_the_methods_of_the_estimator_are_there_and_no_others():
    X, y = classification()
    search = BilevelSearchCV(LogisticRegression()).fit(X, y)
    np.testing.assert_allclose(search.predict_proba(X), search.best_estimator_.predict_proba(X))
    np.testing.assert_allclose(search.predict_log_proba(X), np.log(search.predict_proba(X)))
    assert search.classes_.tolist() == ["benign", "malignant"]
    weight = np.arange(len(y))
    assert search.score(X, y, sample_weight=weight) == pytest.approx(
        np.average(search.predict(X) == y, weights=weight)
    )
    assert not hasattr(BilevelSearchCV(LinearSVR()), "predict_proba")
    assert not hasattr(BilevelSearchCV(LinearSVR()), "decision_function")
    assert not hasattr(BilevelSearchCV(LinearSVC()), "predict_interval")


# Methods and criteria


@pytest.mark.parametrize(
    "method", ["auto", *(name for name in METHODS if name not in ("mpec", "slams", "constrained_grid"))]
)
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_every_method_ends_at_or_below_its_start(method, task):
    X, y = regression() if task == "regression" else classification()
    model = LinearSVR() if task == "regression" else LinearSVC()
    options = {"grid": {"points": 4}, "random": {"n_iter": 8}}.get(method)
    search = BilevelSearchCV(model, method=method, cv=3, random_state=0, method_options=options).fit(X, y)
    result = search.result_
    assert result.objective <= result.objective_start
    assert result.method == ("newton" if method == "auto" else method)
    np.testing.assert_allclose(result.fold_objectives, explicit(search, X, y), rtol=1e-4)


def test_the_methods_that_follow_gradients_agree():
    X, y = regression()
    best = {
        method: BilevelSearchCV(LinearSVR(), cv=3, method=method, tol=tol).fit(X, y).best_score_
        for method, tol in [("newton", 1e-8), ("lbfgsb", 1e-10), ("rprop", 1e-4)]
    }
    assert max(best.values()) - min(best.values()) < 1e-4 * abs(best["newton"])
    grid = BilevelSearchCV(LinearSVR(), cv=3, method="grid", method_options={"points": 9}).fit(X, y)
    assert best["newton"] >= grid.best_score_


CRITERIA = [
    "squared",
    "absolute",
    "hinge",
    "squared_hinge",
    "modified_huber",
    "logistic",
    "smooth_misclassification",
]


@pytest.mark.parametrize("name", [*CRITERIA, "misclassification"])
def test_criteria_by_name(name):
    X, y = classification()
    search = BilevelSearchCV(LinearSVC(), {"C": (1e-3, 10)}, criterion=name, cv=3).fit(X, y)
    assert type(search.criterion_) is type(get_criterion(name))
    assert search.result_.objective <= search.result_.objective_start
    assert -search.best_score_ == pytest.approx(explicit(search, X, y).mean(), rel=1e-4)
    assert search.result_.method == ("grid" if name == "misclassification" else "newton")


@pytest.mark.parametrize("name", ["squared", "absolute"])
def test_criteria_of_regression(name):
    X, y = regression()
    search = BilevelSearchCV(LinearSVR(), criterion=name, cv=3).fit(X, y)
    power = 2 if name == "squared" else 1
    assert explicit(search, X, y).mean() == pytest.approx(-search.best_score_, rel=1e-5)
    errors = [
        np.mean(np.abs(LinearSVR(**search.best_params_).fit(X[a], y[a]).predict(X[b]) - y[b]) ** power)
        for a, b in KFold(3).split(X)
    ]
    assert np.mean(errors) == pytest.approx(-search.best_score_, rel=1e-5)


def test_the_default_criteria_and_criterion_objects():
    X, y = classification()
    assert BilevelSearchCV(LinearSVC()).fit(X, y).criterion_ == Logistic(s=2.0)
    assert BilevelSearchCV(LinearSVR()).fit(*regression()).criterion_ == Squared()
    assert BilevelSearchCV(LinearSVC(), criterion=Logistic(s=5.0)).fit(X, y).criterion_ == Logistic(s=5.0)


@pytest.mark.parametrize("method", ["newton", "lbfgsb", "bfgs", "rprop"])
def test_misclassification_has_no_gradient_to_follow(method):
    X, y = classification()
    search = BilevelSearchCV(LinearSVC(), criterion="misclassification", method=method)
    with pytest.raises(ValueError, match="Misclassification has none; use method='grid' or 'random'"):
        search.fit(X, y)


def test_auto_without_gradient_is_a_grid_for_two_and_random_beyond():
    X, y = load_iris(return_X_y=True)
    space = {"C": Log(1e-2, 1e2, per="class")}
    options = {"n_iter": 5}
    search = BilevelSearchCV(LinearSVC(), space, criterion="misclassification", method_options=options)
    assert search.fit(X, y).result_.method == "random"


# Splitters


@pytest.mark.parametrize(
    "cv",
    [
        4,
        KFold(3, shuffle=True, random_state=0),
        ShuffleSplit(4, test_size=0.3, random_state=0),
        RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
        TimeSeriesSplit(4),
        LeaveOneOut(),
        PredefinedSplit(np.where(np.arange(60) < 20, -1, np.arange(60) % 3)),
        [(np.arange(40), np.arange(40, 60)), (np.arange(20, 60), np.arange(20))],
    ],
    ids=lambda cv: type(cv).__name__,
)
@pytest.mark.parametrize("steps", [[], [StandardScaler()]], ids=["alone", "scaled"])
def test_every_splitter(cv, steps):
    X, y = regression(60)
    search = BilevelSearchCV(pipeline(steps, LinearSVR()), cv=cv).fit(X, y)
    np.testing.assert_allclose(search.result_.fold_objectives, explicit(search, X, y), rtol=1e-4, atol=1e-9)
    splitter = check_cv(cv, y)
    assert search.n_splits_ == splitter.get_n_splits(X, y) == len(search.result_.fold_objectives)


def test_an_iterator_of_splits_is_read_once():
    X, y = regression(60)
    search = BilevelSearchCV(Ridge(), cv=iter(list(KFold(3).split(X)))).fit(X, y)
    assert search.best_score_ == BilevelSearchCV(Ridge(), cv=3).fit(X, y).best_score_


def test_groups_go_to_the_splitter_and_sample_groups_to_the_model():
    X, y = regression()
    patient, quality = np.arange(len(y)) // 6, np.where(np.arange(len(y)) % 3 == 0, "rough", "fine")
    search = BilevelSearchCV(LinearSVR(), cv=GroupKFold(4))
    by_patient = search.fit(X, y, groups=patient)
    assert np.ndim(by_patient.best_params_["C"]) == 0
    folds = explicit(by_patient, X, y, groups=patient)
    np.testing.assert_allclose(by_patient.result_.fold_objectives, folds, rtol=1e-5)
    both = clone(search).fit(X, y, groups=patient, sample_groups=quality)
    assert both.best_params_["C"].shape == both.best_params_["epsilon"].shape == (2,)
    assert both.space_.names == ["C[fine]", "C[rough]", "epsilon[fine]", "epsilon[rough]"]
    assert both.best_estimator_.group_labels_ == ["fine", "rough"]
    assert -both.best_score_ <= -by_patient.best_score_ * (1 + 1e-3)
    with pytest.raises(ValueError, match="'groups' parameter should not be None"):
        search.fit(X, y, sample_groups=quality)


def test_stratified_folds_are_the_default_for_classes():
    X, y = classification()
    order = np.argsort(y, kind="stable")
    search = BilevelSearchCV(LinearSVC(), {"C": (1e-2, 1)}, cv=3).fit(X[order], y[order])
    splits = BilevelSearchCV(LinearSVC(), {"C": (1e-2, 1)}, cv=StratifiedKFold(3)).fit(X[order], y[order])
    assert search.best_score_ == splits.best_score_
