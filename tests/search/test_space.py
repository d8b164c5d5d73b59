"""What a user may ask of BilevelSearchCV's space, and what it answers to bad or extreme input."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LassoLars, LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC as SkLinearSVC

from foldwise import BilevelSearchCV, Lin, LinearSVC, LinearSVR, Log, Squared
from tests import makers
from tests.makers import lines


def data(n=90, d=4, seed=0):
    return lines(n, np.linspace(2.0, 0.0, d), seed, tails=5)


def labels(y):
    return makers.labels(y, share=0.6)


def kinds(search):
    return {block.name: (block.scale, block.size) for block in search.space_.blocks}


# Forms of the space


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (None, {"C": ("log", 1), "epsilon": ("lin", 1)}),
        (["C"], {"C": ("log", 1)}),
        (("epsilon", "C"), {"epsilon": ("lin", 1), "C": ("log", 1)}),
        ({"C": None, "epsilon": None}, {"C": ("log", 1), "epsilon": ("lin", 1)}),
        ({"C": (1e-2, 1e2)}, {"C": ("log", 1)}),
        ({"C": (0.5, 5.0)}, {"C": ("lin", 1)}),
        ({"C": Log(0.5, 5.0)}, {"C": ("log", 1)}),
        ({"C": Lin(0.01, 5.0), "epsilon": (0, 1)}, {"C": ("lin", 1), "epsilon": ("lin", 1)}),
        ({"lam": Log(1e-2, 1e2, per="feature")}, {"lam": ("log", 4)}),
        ({"lam": "feature"}, {"lam": ("log", 4)}),
        ({"lam": Log(1e-2, 1e2, per="feature", tie=["a", "b", "b", "a"])}, {"lam": ("log", 2)}),
    ],
    ids=str,
)
def test_forms_of_the_space(space, expected):
    X, y = data()
    search = BilevelSearchCV(LinearSVR(), space, cv=3).fit(X, y)
    assert kinds(search) == expected
    assert list(search.best_params_) == list(expected)
    for name, value in search.best_params_.items():
        block = next(block for block in search.space_.blocks if block.name == name)
        assert np.all(value >= block.lower.min() * (1 - 1e-12))
        assert np.all(value <= block.upper.max() * (1 + 1e-12))


def test_bounds_are_kept_and_reported():
    X, y = data()
    search = BilevelSearchCV(LinearSVR("squared"), {"C": (1e-6, 1e-4)}).fit(X, y)
    assert search.best_params_ == {"C": 1e-4}
    assert search.result_.at_bound == {"C": "upper"}
    assert "at a bound: C (upper)" in search.result_.summary()


def test_equal_bounds_fix_a_value():
    X, y = data()
    search = BilevelSearchCV(LinearSVR(), {"C": (0.01, 10.0), "epsilon": (0.3, 0.3)}).fit(X, y)
    assert search.best_params_["epsilon"] == 0.3
    fixed = BilevelSearchCV(LinearSVR(epsilon=0.3), {"C": (0.01, 10.0)}).fit(X, y)
    assert search.best_score_ == pytest.approx(fixed.best_score_, rel=1e-5)


def test_ties_share_their_value_and_bounds_may_differ_by_entry():
    X, y = data()
    tie = Log(1e-2, 1e2, per="feature", tie=[0, 0, 1, 1])
    search = BilevelSearchCV(LinearSVR("squared"), {"lam": tie}).fit(X, y)
    lam = search.best_params_["lam"]
    assert lam.shape == (4,)
    assert lam[0] == lam[1] != lam[2] == lam[3]
    upper = np.array([1.0, 2.0, 3.0, 4.0])
    search = BilevelSearchCV(LinearSVR("squared"), {"lam": Log(0.5, upper, per="feature")}).fit(X, y)
    assert np.all(search.best_params_["lam"] <= upper)


def test_penalties_per_feature_find_the_useless_columns():
    X, y = data(200, 6)
    search = BilevelSearchCV(LinearSVR("squared"), {"lam": Log(1e-2, 1e4, per="feature")}, cv=5).fit(X, y)
    one = BilevelSearchCV(LinearSVR("squared"), ["lam"], cv=5).fit(X, y)
    # The best single penalty is weak; from there the gradient of each is nearly zero, and the search must not stay.
    assert one.best_params_["lam"] < 0.01
    assert -search.best_score_ < -0.995 * one.best_score_
    assert np.argmax(search.best_params_["lam"]) == 5
    assert search.best_estimator_.lam.shape == (6,)


def test_per_group():
    rng = np.random.default_rng(1)
    X, y = data(200)
    group = rng.integers(0, 2, 200)
    y = y + np.where(group == 1, 5.0, 0.1) * rng.normal(size=200)
    space = {"C": Log(1e-4, 1e2, per="group"), "epsilon": Lin(0, 1)}
    search = BilevelSearchCV(LinearSVR(), space).fit(X, y, sample_groups=group)
    assert search.best_params_["C"].shape == (2,)
    assert search.best_params_["C"][0] > 3 * search.best_params_["C"][1]
    assert np.ndim(search.best_params_["epsilon"]) == 0


def test_multiclass_shared_and_per_class():
    X, y = load_iris(return_X_y=True)
    shared = BilevelSearchCV(LinearSVC(), {"C": Log(1e-3, 1e3)}).fit(X, y)
    own = BilevelSearchCV(LinearSVC(), {"C": Log(1e-3, 1e3, per="class")}).fit(X, y)
    assert np.ndim(shared.best_params_["C"]) == 0
    assert own.best_params_["C"].shape == (3,)
    assert own.best_score_ >= shared.best_score_
    assert own.space_.names == ["C[0]", "C[1]", "C[2]"]
    # The classes do not share anything: the same as a search on each class against the rest, in the same folds.
    splits = list(StratifiedKFold(5).split(X, y))
    alone = [BilevelSearchCV(LinearSVC(), {"C": Log(1e-3, 1e3)}, cv=splits).fit(X, y == k) for k in range(3)]
    assert own.best_score_ == pytest.approx(np.mean([search.best_score_ for search in alone]), rel=1e-3)


def test_class_weight():
    X, y = data()
    label = labels(y)
    search = BilevelSearchCV(LinearSVC(), {"C": (1e-3, 1e3), "class_weight": (0.1, 10)}, cv=3).fit(X, label)
    weights = search.best_params_["class_weight"]
    assert list(weights) == ["no", "yes"]
    assert weights["no"] == 1.0
    assert search.best_estimator_.class_weight == weights
    assert (
        search.best_score_ >= BilevelSearchCV(LinearSVC(), {"C": (1e-3, 1e3)}, cv=3).fit(X, label).best_score_
    )
    alone = BilevelSearchCV(LinearSVC(C=0.1), ["class_weight"], cv=3).fit(X, label)
    assert set(alone.best_params_) == {"class_weight"}
    X, y = load_iris(return_X_y=True)
    three = BilevelSearchCV(LinearSVC(), ["C", "class_weight"], cv=3).fit(X, y)
    assert list(three.best_params_["class_weight"]) == [0, 1, 2]


def test_names_carry_the_prefix_of_the_last_step():
    X, y = data()
    model = make_pipeline(StandardScaler(), LinearSVR())
    search = BilevelSearchCV(model, {"linearsvr__C": (1e-3, 1e3)}).fit(X, y)
    assert list(search.best_params_) == list(search.refit_params_) == ["linearsvr__C"]
    assert "param_linearsvr__C" in search.cv_results_
    assert search.best_estimator_.get_params()["linearsvr__C"] == search.refit_params_["linearsvr__C"]


def test_a_starting_point_may_be_given():
    X, y = data()
    options = {"start": {"C": 0.5, "epsilon": 0.1}}
    search = BilevelSearchCV(LinearSVR(), method_options=options).fit(X, y)
    first = search.result_.history[0].params
    assert first["C"] == pytest.approx(0.5)
    assert first["epsilon"] == pytest.approx(0.1)


# Bad input: what was got, what is needed, what to do

X0, Y0 = data(40)
LABELS = labels(Y0)
NAN, INF = X0.copy(), X0.copy()
NAN[3, 1], INF[3, 1] = np.nan, np.inf
TUNABLE = "what can be tuned: foldwise.KernelSVC, KernelSVR, LinearSVC, LinearSVR, SemiparametricSVR, and scikit-learn"
SVR, SVC = LinearSVR(), LinearSVC()


@pytest.mark.parametrize(
    ("search", "X", "y", "words"),
    [
        (BilevelSearchCV(SVR), NAN, Y0, "Input X contains NaN"),
        (BilevelSearchCV(make_pipeline(StandardScaler(), SVR)), NAN, Y0, "Input X contains NaN"),
        (BilevelSearchCV(make_pipeline(PCA(), SVR)), NAN, Y0, "Input X contains NaN"),
        (BilevelSearchCV(SVR), INF, Y0, "Input X contains infinity"),
        (BilevelSearchCV(SVR), X0, np.where(Y0 > 2, np.nan, Y0), "Input y contains NaN"),
        (BilevelSearchCV(SVC), X0, np.where(Y0 > 2, np.nan, 1.0), "Input y contains NaN"),
        (BilevelSearchCV(SVC), X0, ["a"] * 40, "y has one class only ('a'); classification needs at least"),
        (BilevelSearchCV(SVC), X0, Y0, "y is continuous, with 40 different values; a classifier needs"),
        (BilevelSearchCV(SVR), X0, np.full(40, 2.5), "the target is constant (2.5); there is nothing"),
        (BilevelSearchCV(SVR), X0[:3], Y0[:3], "n_splits=5 greater than the number of samples: n_samples=3"),
        (BilevelSearchCV(SVR), X0, Y0[:3], "they must be equal"),
        (BilevelSearchCV(SVR), X0, None, "requires y to be passed, but the target y is None"),
        (BilevelSearchCV(make_pipeline(PCA(), SVR)), X0, None, "requires y to be passed"),
        (BilevelSearchCV(SVR), X0, np.c_[Y0, Y0], "y should be a 1d array"),
        (BilevelSearchCV(SVR), X0[:, 0], Y0, "Expected 2D array, got 1D array instead"),
        (BilevelSearchCV(SVR, cv=[]), X0, Y0, "cv gives no folds; pass a number of folds"),
        (BilevelSearchCV(SVR, cv=1), X0, Y0, "cv must be an integer of at least 2, a splitter"),
        (BilevelSearchCV(SVR, cv=[([], [0, 1])]), X0, Y0, "fold 0 has 0 training and 2 validation rows"),
        (BilevelSearchCV(SVC, cv=KFold(2)), X0, np.arange(40) // 20, "class 0 has no training rows in fold 0"),
        (BilevelSearchCV(SVC, cv=4), X0[:12], np.arange(12) // 3, "4 folds were asked for, and the largest class"),
        (BilevelSearchCV(SVC), X0, (np.arange(40) % 3).astype(object), "objects of type int; classes are text"),
        (BilevelSearchCV(LogisticRegression(solver="liblinear")), X0, np.arange(40) % 3, "cannot be fitted to dense"),
        (BilevelSearchCV(MultiOutputRegressor(SVR)), X0, Y0, "needs a target of shape (n, targets); got shape (40,)"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_bad_data_have_an_error_of_their_own(search, X, y, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        search.fit(X, y)
    assert fitted(search) == []


S, PER_FEATURE = BilevelSearchCV, Log(1, 9, per="feature")


@pytest.mark.parametrize(
    ("search", "words"),
    [
        # the space
        (S(SVR, {"C": (10, 1)}), "the lower bound exceeds the upper one in (10, 1); swap"),
        (S(SVR, {"C": (0, 1)}), "bounds of 'C' must be positive; got a lower bound of 0"),
        (S(SVR, {"lam": Lin(-1, 1)}), "bounds of 'lam' must be positive"),
        (S(SVR, {"epsilon": (-1, 1)}), "bounds of 'epsilon' must not be negative"),
        (S(SVR, {"C": (1, np.inf)}), "the space entry for 'C': Log: upper must be finite numbers; got inf"),
        (S(SVR, {"C": 3}), "must be a pair (lower, upper), Log(lower, upper) or Lin("),
        (S(SVR, {"C": (1, 2, 3)}), "must be a pair (lower, upper)"),
        (S(SVR, {"C": (10, 0.1, 1)}), "finds the value between the ends by itself: write (0.1, 10)"),
        (S(SVR, {"fit_intercept": (0, 1)}), "or put the search inside a GridSearchCV over them"),
        (S(SVR, "C"), "space must be a dict, a list of dicts or a list of names or None; got 'C'. Write {'C':"),
        (S(SVR, {}), "the space is empty; name at least one hyper-parameter"),
        (S(SVR, ["gamma"]), "unknown hyper-parameter 'gamma' for LinearSVR; it can tune: C, lam, box"),
        (S(LinearSVR("squared"), ["epsilon"]), "unknown hyper-parameter 'epsilon'"),
        (S(make_pipeline(PCA(), SVR), ["C"]), "it can tune: linearsvr__C, linearsvr__lam"),
        (S(SVR, ["C", "lam"]), "C and lam scale each other"),
        (S(SVR, {"C": Log(1, 9, per="feature")}), "'C' cannot be tuned per feature; per may be None, 'group'"),
        (S(SVR, {"C": Log(1, 9, per="group")}), "pass fit(X, y, sample_groups=...)"),
        (S(SVC, {"C": Log(1, 9, per="class")}), "for the cost of a class tune class_weight"),
        (S(SVR, {"lam": Log(1, 9, per="feature", tie=[1, 2])}), "tie of 'lam' has 2 labels; it needs 4"),
        # the estimator
        (S(LassoLars()), f"cannot tune LassoLars; {TUNABLE}"),
        (S(make_pipeline(PCA(), RandomForestRegressor())), f"cannot tune RandomForestRegressor; {TUNABLE}"),
        (S(make_pipeline(PCA(), "passthrough")), f"cannot tune 'passthrough'; {TUNABLE}"),
        (S(None), f"cannot tune NoneType; {TUNABLE}"),
        (S(SkLinearSVC(multi_class="crammer_singer")), "it needs loss='squared_hinge' with penalty 'l2' or 'l1'"),
        (S(TransformedTargetRegressor()), "TransformedTargetRegressor(regressor=None) has nothing to tune"),
        (S(MultiOutputRegressor(SVC)), "wraps a regressor; got LinearSVC"),
        (S(LinearSVC("hinge", penalty="l1"), ["C"], method="mpec", criterion="hinge"), "L1 part (a share of 1); set"),
        # methods, options, criteria
        (S(SVR, method="sgd"), "unknown method 'sgd'; use one of: auto, newton, lbfgsb, bfgs, rprop"),
        (S(SVR, method_options={"points": 3}), "unknown option 'points' of method 'newton'; it has: tol, max_iter"),
        (S(SVR, method_options={"start": {"gamma": 1}}), "unknown hyper-parameter 'gamma'; this space has: C, epsilon"),
        (S(SVR, criterion="r2"), "unknown criterion 'r2'; use a Loss or Criterion object, or one of: squared"),
        (S(SVR, criterion="neg_mean_squared_error"), "For scikit-learn's 'neg_mean_squared_error' it is 'squared'"),
        (S(SVR, criterion="hinge"), "criterion 'hinge' needs classes, and LinearSVR is a regressor; use 'squared'"),
        (S(SVR, method="grid", method_options={"points": 0}), "points must be a positive integer; got 0"),
        (S(SVR, method="rprop", max_iter=0, method_options={"start": {}}), "max_iter must be a positive integer"),
        (S(SVR, {"lam": PER_FEATURE}, method="grid", method_options={"points": 50}), "this grid has 6,250,000 points"),
        (S(SVR, rescale="no"), "rescale must be True, False or 'auto'; got 'no'"),
        (S(SVR, n_starts=0), "n_starts must be a positive integer or None; got 0"),
        (S(SVR, n_starts=1.5), "n_starts must be a positive integer or None; got 1.5"),
        (S(SVR, callbacks=print), "callbacks must be a sequence of callables, such as [function]"),
        (S(SVR, callbacks=[3]), "callbacks must be a sequence of callables"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_bad_arguments_have_an_error_of_their_own(search, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        search.fit(X0, LABELS if search.estimator is not None and is_classifier(search.estimator) else Y0)
    assert fitted(search) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sample_groups": [0, 1]}, "sample_groups must have one entry per row, shape (40,); got shape (2,)"),
        ({"sample_groups": np.arange(40) // 39}, "sample group 1 has no training rows in fold 4; use fewer folds"),
        ({"sample_weight": [1, 2]}, "sample_weight.shape == (2,), expected (40,)"),
        ({"sample_weight": -np.ones(40)}, "Negative values in data passed to `sample_weight`"),
        ({"sample_weight": np.zeros(40)}, "must contain at least one non-zero number"),
        ({"sample_weight": np.arange(40) >= 8}, "a validation fold has no positive sample weight; use other folds"),
    ],
)  # fmt: skip
def test_bad_weights_and_groups(given, words):
    search = BilevelSearchCV(LinearSVR(), cv=5)
    with pytest.raises(ValueError, match=re.escape(words)):
        search.fit(X0, Y0, **given)
    assert fitted(search) == []


def test_groups_of_samples_need_a_model_that_knows_them():
    with pytest.raises(
        ValueError, match="Ridge has no hyper-parameter per group of samples; leave sample_groups"
    ):
        BilevelSearchCV(Ridge()).fit(X0, Y0, sample_groups=np.arange(40) % 2)


def test_a_class_without_weight_is_refused():
    label = np.arange(40) % 2
    with pytest.raises(ValueError, match="class 1 has no training rows in fold 0"):
        BilevelSearchCV(LinearSVC()).fit(X0, label, sample_weight=1.0 - label)


def test_a_log_scale_needs_positive_bounds():
    with pytest.raises(
        ValueError, match=r"a log scale needs positive bounds; got \(0, 1\). Raise the lower one"
    ):
        Log(0, 1)
    with pytest.raises(ValueError, match="per must be None, 'feature', 'group' or 'class'; got 'row'"):
        Lin(0, 1, per="row")


# Nothing half-fitted stays behind


def fitted(search):
    """Attributes that claim a fit."""
    return [name for name in vars(search) if name.endswith("_")]


def test_a_failed_second_fit_leaves_no_results_of_the_first():
    search = BilevelSearchCV(LinearSVR()).fit(pd.DataFrame(X0, columns=list("abcd")), Y0)
    assert "best_estimator_" in fitted(search)
    with pytest.raises(ValueError, match="NaN"):
        search.fit(NAN, Y0)
    assert fitted(search) == []
    assert not hasattr(search, "n_features_in_")


def test_a_failure_in_the_final_fit_keeps_the_search():
    class Fragile(LinearSVR):
        def fit(self, X, y, **params):
            raise RuntimeError("no")

    search = BilevelSearchCV(Fragile())
    with pytest.raises(RuntimeError, match="no"):
        search.fit(X0, Y0)
    assert {"best_params_", "cv_results_", "result_"} < set(fitted(search))
    assert "best_estimator_" not in fitted(search)


def test_a_failing_callback_leaves_nothing():
    def fail(record):
        raise OSError("disk full")

    search = BilevelSearchCV(LinearSVR(), callbacks=[fail])
    with pytest.raises(OSError, match="disk full"):
        search.fit(X0, Y0)
    assert fitted(search) == []


def test_a_second_fit_with_other_options_keeps_nothing_of_the_first():
    search = BilevelSearchCV(LinearSVC()).fit(pd.DataFrame(X0, columns=list("abcd")), LABELS)
    search.set_params(estimator=LinearSVR(), refit=False).fit(X0[:, :2], Y0)
    for name in ("best_estimator_", "classes_", "refit_time_", "feature_names_in_"):
        assert not hasattr(search, name)
    assert search.n_features_in_ == 2


# Extreme data


@pytest.mark.parametrize("scale", [2.0**-27, 2.0**27], ids=["1e-8", "1e8"])
@pytest.mark.parametrize("model", [LinearSVR(), LinearSVC(), Ridge()], ids=lambda m: type(m).__name__)
def test_a_scale_of_the_features_is_a_scale_of_the_penalty(model, scale):
    X, y = data()
    y = labels(y) if isinstance(model, LinearSVC) else y
    base = BilevelSearchCV(model, cv=3).fit(X, y)
    other = BilevelSearchCV(model, cv=3).fit(scale * X, y)
    assert other.best_score_ == pytest.approx(base.best_score_, rel=1e-8)
    name_of = "decision_function" if isinstance(model, LinearSVC) else "predict"
    ours, theirs = getattr(other, name_of)(scale * X), getattr(base, name_of)(X)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    name, power = ("alpha", 2) if isinstance(model, Ridge) else ("C", -2)
    assert other.best_params_[name] == pytest.approx(base.best_params_[name] * scale**power, rel=1e-4)


def test_scaled_columns_do_not_matter_behind_a_scaler():
    X, y = data()
    scales = 2.0 ** np.array([-27, -9, 9, 27])
    model = make_pipeline(StandardScaler(), LinearSVR())
    base, other = clone(model), clone(model)
    base = BilevelSearchCV(base, cv=3).fit(X, y)
    other = BilevelSearchCV(other, cv=3).fit(X * scales, y)
    assert other.best_score_ == pytest.approx(base.best_score_, rel=1e-9)
    np.testing.assert_allclose(other.predict(X * scales), base.predict(X), rtol=1e-6)


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**20])
def test_a_scale_of_the_target(factor):
    X, y = data()
    base = BilevelSearchCV(LinearSVR(), cv=3).fit(X, y)
    other = BilevelSearchCV(LinearSVR(), cv=3).fit(X, factor * y)
    assert other.best_score_ == pytest.approx(base.best_score_ * factor**2, rel=1e-6)
    np.testing.assert_allclose(other.predict(X), factor * base.predict(X), rtol=1e-3, atol=1e-6 * factor)


def test_far_away_columns_do_not_lose_digits():
    X, y = data()
    base = BilevelSearchCV(LinearSVR(), cv=3).fit(X, y)
    other = BilevelSearchCV(LinearSVR(), cv=3).fit(X + 2.0**24, y)
    assert other.best_score_ == pytest.approx(base.best_score_, rel=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda X: np.c_[X, X[:, :2]],
        lambda X: np.c_[X, np.full(len(X), 7.0)],
        lambda X: np.c_[X, np.zeros((len(X), 2))],
        lambda X: np.c_[X, 1e-8 * X[:, 0], 1e8 * X[:, 1]],
        lambda X: np.c_[X, np.random.default_rng(5).normal(size=(len(X), 150))],
        lambda X: np.c_[X, np.eye(len(X))[:, 0]],
    ],
    ids=["duplicate", "constant", "zero", "1e-8 to 1e8", "more columns than rows", "one row"],
)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_awkward_columns_give_finite_answers(change, scaled, task):
    X, y = data(60)
    model = LinearSVR() if task == "regression" else LinearSVC()
    y = y if task == "regression" else labels(y)
    model = make_pipeline(StandardScaler(), model) if scaled else model
    search = BilevelSearchCV(model, cv=3).fit(change(X), y)
    assert np.isfinite(search.best_score_)
    assert search.result_.objective <= search.result_.objective_start
    last = search.best_estimator_[-1] if scaled else search.best_estimator_
    assert np.all(np.isfinite(last.coef_))
    assert search.predict(change(X)).shape == (60,)


@pytest.mark.parametrize("constant", [0.0, 1e6])
def test_a_constant_column_changes_nothing(constant):
    X, y = data(60)
    base = BilevelSearchCV(LinearSVR(), {"C": (1e-3, 1e3)}, cv=3).fit(X, y)
    more = BilevelSearchCV(LinearSVR(), {"C": (1e-3, 1e3)}, cv=3).fit(np.c_[X, np.full(60, constant)], y)
    assert more.best_score_ == pytest.approx(base.best_score_, rel=1e-6)
    assert abs(more.best_estimator_.coef_[-1]) < 1e-9


@pytest.mark.parametrize("n", [4, 6, 8])
def test_a_handful_of_rows(n):
    X, y = data(n)
    search = BilevelSearchCV(LinearSVR(), cv=2, criterion=Squared()).fit(X, y)
    assert np.isfinite(search.best_score_)
    label = np.arange(n) % 2
    assert np.isfinite(BilevelSearchCV(LinearSVC(), cv=2).fit(X, label).best_score_)
