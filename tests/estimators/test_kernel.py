"""KernelSVC and KernelSVR with fixed hyper-parameters: scikit-learn's checks, and scikit-learn's numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from foldwise import (
    RBF,
    AdditiveChi2,
    ExpChi2,
    KernelSVC,
    KernelSVR,
    Linear,
    LinearSVC,
    LinearSVR,
    Polynomial,
    Precomputed,
    Sum,
)
from foldwise.testing import optimality, relative_error

ESTIMATORS = [
    KernelSVC(),
    KernelSVR(),
    KernelSVC(loss="hinge"),
    KernelSVR(loss="epsilon_insensitive"),
    KernelSVC("linear", loss="squared_hinge", class_weight="balanced"),
    KernelSVR("poly", loss="huber", fit_intercept=False),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        if (
            estimator.kernel == "poly"
        ):  # cubes of features near 300 leave decisions four digits, and it says so
            warnings.filterwarnings("ignore", "KernelSVR could not be solved", ConvergenceWarning)
        check(estimator)


def test_a_machine_that_rounding_stops_does_not_ask_for_more_iterations():
    rng = np.random.default_rng(0)
    X, y = rng.normal(loc=100.0, size=(30, 2)), rng.normal(size=30)
    machine = KernelSVR("poly", loss="huber", fit_intercept=False)
    with pytest.warns(ConvergenceWarning, match="Standardise the features") as caught:
        machine.fit(X, y)
    assert "raise max_iter" not in str(caught[0].message)
    machine.fit(X - 100.0, y)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        machine.set_params(max_iter=1).fit(X - 100.0, y)


def problem(n=120, d=4, seed=0, task="regression"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(1.5 * X[:, 0]) + 0.6 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    if task == "classification":
        y = np.where(y > 0.2, "yes", "no")
    return X[: n // 2], y[: n // 2], X[n // 2 :], y[n // 2 :]


# Numbers of scikit-learn.

THEIRS = [
    (RBF(0.3), {"kernel": "rbf", "gamma": 0.3}),
    ("linear", {"kernel": "linear"}),
    (Polynomial(2, 0.5, 1.5), {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.5}),
]


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("C", [0.1, 10.0])
@pytest.mark.parametrize(("kernel", "options"), THEIRS, ids=["rbf", "linear", "poly"])
def test_exact_machines_are_those_of_scikit_learn(kernel, options, C, weighted):
    weight = np.random.default_rng(1).uniform(0.3, 2.0, 60) if weighted else None
    X, y, new, _ = problem()
    ours = KernelSVR(kernel, loss="epsilon_insensitive", C=C, epsilon=0.15).fit(X, y, weight)
    theirs = SVR(C=C, epsilon=0.15, tol=1e-8, **options).fit(X, y, weight)
    assert np.ptp(theirs.predict(new)) > 0.05
    assert relative_error(ours.predict(new), theirs.predict(new)) < 1e-4
    X, y, new, _ = problem(task="classification")
    ours = KernelSVC(kernel, loss="hinge", C=C).fit(X, y, weight)
    theirs = SVC(C=C, tol=1e-8, **options).fit(X, y, weight)
    assert relative_error(ours.decision_function(new), theirs.decision_function(new)) < 1e-4
    np.testing.assert_array_equal(ours.predict(new), theirs.predict(new))
    assert ours.dual_coef_.shape == (1, len(ours.support_))
    assert ours.intercept_[0] == pytest.approx(theirs.intercept_[0], abs=1e-3)


@pytest.mark.parametrize("class_weight", ["balanced", {"yes": 3.0, "no": 0.4}], ids=str)
def test_class_weights_are_those_of_scikit_learn(class_weight):
    X, y, new, _ = problem(task="classification")
    ours = KernelSVC(RBF(0.3), loss="hinge", C=1.0, class_weight=class_weight).fit(X, y)
    theirs = SVC(gamma=0.3, class_weight=class_weight, tol=1e-8).fit(X, y)
    plain = SVC(gamma=0.3, tol=1e-8).fit(X, y)
    assert relative_error(ours.decision_function(new), theirs.decision_function(new)) < 1e-4
    assert relative_error(plain.decision_function(new), theirs.decision_function(new)) > 0.05


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
def test_squared_loss_without_intercept_is_kernel_ridge(weighted):
    X, y, new, _ = problem()
    weight = np.random.default_rng(1).uniform(0.3, 2.0, 60) if weighted else None
    for kernel, options in THEIRS[:1] + THEIRS[2:]:
        ours = KernelSVR(kernel, loss="squared", C=3.0, fit_intercept=False).fit(X, y, weight)
        theirs = KernelRidge(alpha=1 / 6.0, **options).fit(X, y, weight)
        assert relative_error(ours.predict(new), theirs.predict(new)) < 1e-8
        assert ours.intercept_[0] == 0.0


def test_a_linear_kernel_is_the_linear_model():
    X, y, new, _ = problem()
    pairs = [(KernelSVR("linear", C=0.7), LinearSVR(C=0.7))]
    X2, labels, _, _ = problem(task="classification")
    pairs_c = [(KernelSVC(Linear(), loss="squared_hinge", C=0.7), LinearSVC(loss="squared_hinge", C=0.7))]
    for kernel, linear in pairs:
        assert (
            relative_error(
                kernel.fit(X, y).predict(new), linear.set_params(epsilon=0.1).fit(X, y).predict(new)
            )
            < 1e-6
        )
    for kernel, linear in pairs_c:
        kernel.fit(X2, labels), linear.fit(X2, labels)
        assert relative_error(kernel.decision_function(new), linear.decision_function(new)) < 1e-6


@pytest.mark.parametrize(
    "loss", ["quartic_hinge", "squared_hinge", "logistic", "modified_log_hinge", "hinge"]
)
def test_more_than_two_classes_are_one_against_the_rest(loss):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = KernelSVC(RBF(0.3), loss=loss).fit(X, names)
    assert model.decision_function(X).shape == (150, 3)
    assert model.score(X, names) > 0.95
    for k, name in enumerate(model.classes_):
        one = KernelSVC(RBF(0.3), loss=loss).fit(X, names == name)
        assert relative_error(model.decision_function(X)[:, k], one.decision_function(X)) < 1e-6


@pytest.mark.parametrize("loss", ["squared_epsilon_insensitive", "squared", "huber", "epsilon_insensitive"])
def test_losses_of_regression(loss):
    X, y, new, target = problem(240)
    model = KernelSVR(RBF(0.3), loss=loss, C=3.0).fit(X, y)
    assert model.score(new, target) > 0.6
    # Far from zero, and with a loss that is linear there: the intercept has a long way to go.
    far = KernelSVR(RBF(0.3), loss=loss, C=3.0).fit(X, y + 1e5)
    assert relative_error(far.predict(new) - 1e5, model.predict(new)) < 1e-5
    large = KernelSVR(RBF(0.3), loss=loss, C=3.0).fit(X, 1e5 * y)
    assert np.corrcoef(large.predict(new), target)[0, 1] > 0.6


def test_groups_have_their_own_C_and_epsilon():
    X, y, new, _ = problem()
    group = np.arange(60) % 2
    model = KernelSVR(RBF(0.3), C=[1.0, 4.0], epsilon=[0.1, 0.3]).fit(X, y, sample_groups=group)
    same = KernelSVR(RBF(0.3), C=[2.0, 2.0], epsilon=[0.1, 0.1]).fit(X, y, sample_groups=group)
    plain = KernelSVR(RBF(0.3), C=2.0).fit(X, y)
    assert relative_error(same.predict(new), plain.predict(new)) < 1e-8
    assert relative_error(model.predict(new), plain.predict(new)) > 1e-2
    weights = KernelSVR(RBF(0.3), C=1.0).fit(X, y, sample_weight=1.0 + 3.0 * group)
    by_group = KernelSVR(RBF(0.3), C=[1.0, 4.0], epsilon=[0.1, 0.1]).fit(X, y, sample_groups=group)
    assert relative_error(by_group.predict(new), weights.predict(new)) < 1e-8


def test_rows_of_weight_zero_and_repeated_rows():
    X, y, new, _ = problem()
    weight = np.random.default_rng(0).integers(0, 4, 60)
    for options in ({}, {"loss": "epsilon_insensitive"}):
        weighted = KernelSVR(RBF(0.3), **options).fit(X, y, weight)
        repeated = KernelSVR(RBF(0.3), **options).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
        assert relative_error(weighted.predict(new), repeated.predict(new)) < 1e-7


# Kernels.


@pytest.mark.parametrize("loss", ["quartic_hinge", "hinge"])
def test_precomputed_kernels(loss):
    X, y, new, _ = problem(task="classification")
    K, across = rbf_kernel(X, gamma=0.3), rbf_kernel(new, X, gamma=0.3)
    plain = KernelSVC(RBF(0.3), loss=loss).fit(X, y)
    for kernel in ("precomputed", Precomputed()):
        model = KernelSVC(kernel, loss=loss).fit(K, y)
        assert relative_error(model.decision_function(across), plain.decision_function(new)) < 1e-9


def test_precomputed_kernels_are_split_by_rows_and_columns():
    X, y, _, _ = problem(task="classification")
    K = rbf_kernel(X, gamma=0.3)
    wanted = cross_val_score(KernelSVC(RBF(0.3)), X, y, cv=4)
    np.testing.assert_allclose(cross_val_score(KernelSVC("precomputed"), K, y, cv=4), wanted)
    np.testing.assert_allclose(cross_val_score(KernelSVC(Precomputed()), K, y, cv=4), wanted)


def test_a_sum_with_precomputed_parts():
    X, y, new, _ = problem()
    first, second = rbf_kernel(X, gamma=0.3), polynomial_kernel(X, degree=2, gamma=0.2)
    kernel = Sum(
        [Precomputed(), Precomputed(), RBF(0.5)], [0.5, 0.2, 0.3], [slice(0, 60), slice(60, 120), [120, 121]]
    )
    data = np.hstack([first, second, X[:, :2]])
    fresh = np.hstack(
        [rbf_kernel(new, X, gamma=0.3), polynomial_kernel(new, X, degree=2, gamma=0.2), new[:, :2]]
    )
    plain = Sum([RBF(0.3), Polynomial(2, 0.2), RBF(0.5)], [0.5, 0.2, 0.3], [None, None, [0, 1]])
    group = np.arange(60) % 3  # groups reorder the rows
    options = {"C": [1.0, 2.0, 3.0], "loss": "squared"}
    got = KernelSVR(kernel, **options).fit(data, y, sample_groups=group).predict(fresh)
    assert relative_error(got, KernelSVR(plain, **options).fit(X, y, sample_groups=group).predict(new)) < 1e-8


def test_columns_by_name():
    X, y, new, _ = problem()
    names = ["height", "width", "depth", "age"]
    frame, fresh = pd.DataFrame(X, columns=names), pd.DataFrame(new, columns=names)
    by_name = Sum(
        [RBF(0.4), Sum([Linear(), RBF(0.1)], columns=[["age"], ["width"]])],
        columns=[["height", "depth"], None],
    )
    by_number = Sum([RBF(0.4), Sum([Linear(), RBF(0.1)], columns=[[3], [1]])], columns=[[0, 2], None])
    model = KernelSVR(by_name).fit(frame, y)
    assert relative_error(model.predict(fresh), KernelSVR(by_number).fit(X, y).predict(new)) < 1e-12
    assert model.kernel is by_name
    assert model.kernel.columns[0] == ["height", "depth"]
    with pytest.raises(ValueError, match="unknown column 'age'; X has: height, width, depth"):
        KernelSVR(by_name).fit(frame.drop(columns="age"), y)
    with pytest.raises(ValueError, match="names, which need a data frame"):
        KernelSVR(by_name).fit(X, y)


def test_histograms():
    X, y, new, _ = problem(task="classification")
    model = KernelSVC(ExpChi2(0.5), C=10.0).fit(np.exp(X), y)
    assert model.score(np.exp(X), y) > 0.9
    with pytest.raises(ValueError, match="chi-squared kernel needs features that are not negative"):
        KernelSVC(ExpChi2(0.5)).fit(X, y)
    with pytest.raises(ValueError, match="chi-squared kernel needs features that are not negative"):
        model.predict(new)


# What a fitted model tells.


def test_only_support_vectors_are_kept():
    X, y, new, _ = problem(task="classification")
    for loss in ("hinge", "squared_hinge", "quartic_hinge"):
        model = KernelSVC(RBF(0.1), loss=loss, C=10.0).fit(X, y)
        assert 0 < len(model.support_) < 60
        np.testing.assert_array_equal(model.support_vectors_, X[model.support_])
        assert model.dual_coef_.all()
        K = rbf_kernel(new, model.support_vectors_, gamma=0.1)
        wanted = K @ model.dual_coef_[0] + model.intercept_[0]
        np.testing.assert_allclose(model.decision_function(new), wanted, rtol=1e-12, atol=1e-13)
        alone = KernelSVC(RBF(0.1), loss=loss, C=10.0).fit(X[model.support_], y[model.support_])
        assert relative_error(alone.decision_function(new), wanted) < 1e-6


def test_relevance_of_features():
    X, y, _, _ = problem()
    X = X * [1.0, 1.0, 1.0, 5.0]
    model = KernelSVR(RBF([0.5, 0.2, 0.2, 1e-6])).fit(X, y)
    wanted = np.array([0.5, 0.2, 0.2, 1e-6]) * X.var(axis=0)
    np.testing.assert_allclose(model.relevance_, wanted / wanted.max())
    np.testing.assert_array_equal(model.get_support(), [True, True, True, False])
    np.testing.assert_array_equal(model.get_support(indices=True), [0, 1, 2])
    np.testing.assert_array_equal(model.get_support(threshold=0.9), [True, False, False, False])
    plain = KernelSVR(RBF(0.3)).fit(X, y)
    np.testing.assert_allclose(plain.relevance_, X.var(axis=0) / X.var(axis=0).max())
    with pytest.raises(NotFittedError):
        _ = KernelSVR().relevance_


def test_relevance_of_constant_features():
    X, y, _, _ = problem()
    model = KernelSVR(RBF(0.3)).fit(np.zeros_like(X) + 1.0, y)
    np.testing.assert_array_equal(model.relevance_, 0.0)
    assert np.ptp(model.predict(X)) < 1.0


def test_feature_selection():
    X, y, new, _ = problem(task="classification")
    model = KernelSVC(RBF([0.5, 0.3, 0.3, 1e-7]), C=3.0)
    selector = SelectFromModel(model, threshold=0.01, importance_getter="relevance_").fit(X, y)
    np.testing.assert_array_equal(selector.get_support(), [True, True, True, False])
    assert selector.transform(new).shape == (60, 3)
    chain = make_pipeline(selector, SVC(gamma=0.4)).fit(X, y)
    assert chain.score(X, y) > 0.8


def test_calibration():
    X, y, new, labels = problem(400, task="classification")
    model = CalibratedClassifierCV(KernelSVC(RBF(0.3)), cv=3).fit(X, y)
    chance = model.predict_proba(new)
    np.testing.assert_allclose(chance.sum(axis=1), 1.0)
    assert model.score(new, labels) > 0.8
    confident = np.abs(chance[:, 1] - 0.5) > 0.4
    assert confident.sum() > 20
    assert np.mean((chance[confident, 1] > 0.5) == (labels[confident] == "yes")) > 0.9


def test_many_rows_are_predicted_in_blocks():
    X, y, new, _ = problem()
    model = KernelSVR(RBF(0.3)).fit(X, y)
    many = np.tile(new, (20, 1))
    model.support_ = np.zeros(10**8, dtype=np.int8)  # pretend, so that every row is a block of its own
    got = model.predict(many[:130])
    model.support_ = np.arange(60)
    np.testing.assert_allclose(got, model.predict(many[:130]), rtol=1e-12)


# Refusals.


def test_a_matrix_too_large_for_memory_is_refused_before_it_is_formed():
    X, y, _, _ = problem()
    with pytest.raises(
        ValueError,
        match=r"kernel matrices of 60 rows need .* use fewer rows or a linear model, .* raise memory_limit",
    ):
        KernelSVR(memory_limit=1e4).fit(X, y)
    KernelSVR(memory_limit=1e6).fit(X, y)
    with pytest.raises(ValueError, match="raise memory_limit"):
        KernelSVR(Sum([RBF()] * 5), memory_limit=2e5).fit(X, y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (KernelSVC("rbff"), "unknown kernel 'rbff'"),
        (KernelSVC(loss="squared"), "KernelSVC is for classification; 'squared' is a loss of KernelSVR"),
        (KernelSVC(C=0.0), "C must be positive and finite"),
        (KernelSVC(C=-1.0), "C must be positive and finite"),
        (KernelSVC(RBF([1.0, 2.0])), "2 values of gamma for 4 features"),
        (
            KernelSVC(class_weight={"yes": -1.0, "no": 1.0}),
            "class to a positive weight",
        ),
        (KernelSVC(class_weight={"maybe": 1.0}), "maybe"),
    ],
    ids=str,
)
def test_bad_arguments_of_the_classifier(model, message):
    X, y, _, _ = problem(task="classification")
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (KernelSVR(loss="hinge"), "KernelSVR is for regression; 'hinge' is a loss of KernelSVC"),
        (KernelSVR(epsilon=-0.1), "epsilon must be finite and not negative"),
        (KernelSVR(C=[1.0, 2.0]), "2 entries but there are 1 groups"),
    ],
    ids=str,
)
def test_bad_arguments_of_the_regressor(model, message):
    X, y, _, _ = problem()
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_tubes_per_group_need_a_smooth_loss():
    X, y, _, _ = problem()
    model = KernelSVR(loss="epsilon_insensitive", epsilon=[0.1, 0.2])
    with pytest.raises(ValueError, match="use a smooth loss"):
        model.fit(X, y, sample_groups=np.arange(60) % 2)


@pytest.mark.parametrize("loss", ["quartic_hinge", "modified_log_hinge", "squared_hinge"])
def test_nearly_separable_rows_with_a_large_C_are_fitted_from_nothing(loss):
    """The intercept and slopes balance at the solution; a warning that it was not reached would be an error."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = KernelSVC(RBF(0.1), loss=loss, C=1e4).fit(X, y)
    assert abs(model.dual_coef_.sum()) < 1e-6 * np.abs(model.dual_coef_).sum()
    assert np.mean(model.predict(X) == y) > 0.99
    assert model.n_iter_ < 40


def test_too_few_iterations_warn():
    X, y, _, _ = problem(task="classification")
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        KernelSVC(RBF(0.3), loss="logistic", C=1e4, max_iter=1).fit(X, y)


def test_a_kernel_given_to_the_estimator_is_not_changed():
    X, y, _, _ = problem()
    kernel = Sum([RBF(0.3), Linear()], columns=[[0], [1, 2]])
    before = repr(kernel)
    model = clone(KernelSVR(kernel)).fit(X, y)
    assert repr(kernel) == before
    assert repr(model.kernel) == before


@pytest.mark.parametrize("kernel", [RBF(), AdditiveChi2(), ExpChi2(), Polynomial(2)], ids=str)
def test_rows_that_must_not_be_written_to(kernel, rng):
    X = rng.uniform(size=(20, 3))
    y, wanted = X.sum(axis=1), X.copy()
    plain = KernelSVR(kernel, loss="squared").fit(X, y).predict(X)
    X.setflags(write=False)
    np.testing.assert_array_equal(KernelSVR(kernel, loss="squared").fit(X, y).predict(X), plain)
    np.testing.assert_array_equal(X, wanted)


@pytest.mark.parametrize("tilt", [1e-8, 1e-6, 1e-4])
def test_an_intercept_is_where_slopes_balance_however_little_they_are_off(tilt):
    """All rows inside the margin, one class a little heavier: the intercept moves until a row leaves it."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    y = np.arange(20) % 2
    weight = np.where(y == 1, 1.0, 1.0 + tilt)
    model = KernelSVC(RBF(0.5), loss="quartic_hinge", C=0.01, tol=1e-11).fit(X, y, weight)
    assert model.n_iter_ < 10
    assert model.intercept_[0] == pytest.approx(-0.49, abs=0.01)
    assert optimality(model, X, y, weight) < 1e-7
