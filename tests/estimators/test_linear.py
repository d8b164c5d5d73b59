"""LinearSVC and LinearSVR: scikit-learn's contract, its numbers, arrays of hyper-parameters, errors in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.svm import LinearSVR as SkLinearSVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from foldwise import (
    Huber,
    KernelSVR,
    LinearSVC,
    LinearSVR,
    Misclassification,
    ModifiedLogHinge,
    QuarticHinge,
    SemiparametricSVR,
    Squared,
    SquaredEpsilonInsensitive,
)
from foldwise.losses import get_loss
from tests.makers import labels, lines
from tests.referees import counts_rows


@parametrize_with_checks(
    [
        LinearSVC(),
        LinearSVC("logistic", class_weight="balanced"),
        LinearSVR(),
        LinearSVR("huber", fit_intercept=False),
    ]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def data(n=80, d=5, seed=0):
    return lines(
        n, np.linspace(-1.0, 1.5, d), seed, tails=4, spread=np.linspace(0.5, 2.0, d), shift=0.3, level=0.7
    )


def objective(parameters, X, target, loss, C=1.0, lam=1.0, weight=1.0):
    """The training problem as the documentation states it, written out for one target."""
    w, b = parameters[:-1], parameters[-1]
    return 0.5 * np.sum(lam * w**2) + np.sum(C * weight * loss.value(X @ w + b, target))


# Agreement with scikit-learn


@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_svr_has_scikit_learns_coefficients(C, epsilon):
    X, y = data()
    reference = SkLinearSVR(
        loss="squared_epsilon_insensitive",
        C=C,
        epsilon=epsilon,
        fit_intercept=False,
        dual=False,
        tol=1e-10,
        max_iter=10_000,
    ).fit(X, y)
    ours = LinearSVR(C=C, epsilon=epsilon, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(ours.coef_, reference.coef_, rtol=1e-5)
    np.testing.assert_allclose(ours.predict(X), reference.predict(X), rtol=1e-4, atol=1e-5)
    assert ours.intercept_ == 0.0


@pytest.mark.parametrize("C", [0.01, 1.0, 30.0])
def test_svc_has_scikit_learns_coefficients(C):
    X, y = data()
    reference = SkLinearSVC(C=C, fit_intercept=False, dual=False, tol=1e-10, max_iter=10_000)
    reference.fit(X, labels(y))
    ours = LinearSVC(C=C, fit_intercept=False).fit(X, labels(y))
    np.testing.assert_allclose(ours.coef_, reference.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.decision_function(X), reference.decision_function(X), atol=1e-4)
    assert list(ours.predict(X)) == list(reference.predict(X))


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_squared_loss_is_ridge_with_alpha_one_over_two_c(fit_intercept):
    X, y = data()
    ours = LinearSVR("squared", C=0.25, fit_intercept=fit_intercept).fit(X, y)
    reference = Ridge(alpha=2.0, fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_allclose(ours.coef_, reference.coef_, rtol=1e-8)
    np.testing.assert_allclose(ours.intercept_, reference.intercept_, rtol=1e-8)


@pytest.mark.parametrize("class_weight", [None, "balanced", {"yes": 3.0}])
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_loss_is_logistic_regression(class_weight, weighted):
    X, y = data()
    label = np.where(y > np.quantile(y, 0.7), "yes", "no")
    weight = np.random.default_rng(1).uniform(0.1, 3.0, len(y)) if weighted else None
    wanted = class_weight
    if weighted and class_weight == "balanced" and counts_rows(LogisticRegression()):
        # Ours add up weights with any version of scikit-learn; its own do so from 1.7 on.
        totals = {name: weight[label == name].sum() for name in ("yes", "no")}
        wanted = {name: weight.sum() / (2.0 * total) for name, total in totals.items()}
    reference = LogisticRegression(C=0.5, class_weight=wanted, tol=1e-10, max_iter=10_000)
    reference.fit(X, label, sample_weight=weight)
    ours = LinearSVC("logistic", C=0.5, class_weight=class_weight).fit(X, label, sample_weight=weight)
    np.testing.assert_allclose(ours.coef_, reference.coef_, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours.intercept_, reference.intercept_, rtol=1e-5)


def test_the_intercept_is_free_where_liblinear_penalises_it():
    X, y = data()
    far = y + 100.0
    assert abs(LinearSVR(C=1e-3).fit(X, far).intercept_ - far.mean()) < 10
    shifted = LinearSVR(C=1e-3).fit(X, far).coef_
    np.testing.assert_allclose(shifted, LinearSVR(C=1e-3).fit(X, y).coef_, rtol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [SquaredEpsilonInsensitive(0.4), Squared(), Huber(0.8), "squared_hinge", "logistic"]
    + [ModifiedLogHinge(), QuarticHinge(0.25)],
    ids=str,
)
def test_the_documented_objective_is_at_its_minimum(loss):
    X, y = data()
    lam, C = np.linspace(0.5, 4.0, X.shape[1]), 0.3
    weight = np.random.default_rng(2).uniform(0.0, 2.0, len(y))
    regression = get_loss(loss).task == "regression"
    if regression:
        model = LinearSVR(loss, C=C, lam=lam).fit(X, y, sample_weight=weight)
        target = y
    else:
        model = LinearSVC(loss, C=C, lam=lam).fit(X, labels(y), sample_weight=weight)
        target = np.where(labels(y) == "yes", 1.0, -1.0)
    here = np.append(np.ravel(model.coef_), model.intercept_)
    arguments = (X, target, get_loss(loss), C, lam, weight)
    found = minimize(objective, np.zeros(len(here)), arguments, method="BFGS", options={"gtol": 1e-7})
    assert objective(here, *arguments) <= found.fun * (1 + 1e-10)
    np.testing.assert_allclose(here, found.x, atol=1e-4)


def test_multiclass_is_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    model = LinearSVC(C=0.5).fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    for k in range(3):
        single = LinearSVC(C=0.5).fit(X, y == k)
        np.testing.assert_allclose(model.coef_[k], single.coef_[0], rtol=1e-6, atol=1e-8)
    reference = SkLinearSVC(C=0.5, dual=False, intercept_scaling=1e3, tol=1e-8).fit(X, y)
    assert np.mean(model.predict(X) == reference.predict(X)) == 1.0


# Arrays of hyper-parameters


@pytest.mark.parametrize("loss", ["squared_epsilon_insensitive", "squared", "huber"])
def test_one_c_per_group_is_a_weight_of_the_rows(loss):
    X, y = data()
    group = np.array(["b", "a", "c"])[np.arange(len(y)) % 3]
    by_group = {"a": 0.1, "b": 2.0, "c": 0.7}
    model = LinearSVR(loss, C=[0.1, 2.0, 0.7]).fit(X, y, sample_groups=group)
    weighted = LinearSVR(loss).fit(X, y, sample_weight=[by_group[g] for g in group])
    assert model.group_labels_ == ["a", "b", "c"]
    np.testing.assert_allclose(model.coef_, weighted.coef_, rtol=1e-6)


def test_one_c_per_group_in_classification():
    X, y = data()
    group = np.arange(len(y)) % 2
    model = LinearSVC(C=[0.2, 3.0]).fit(X, labels(y), sample_groups=group)
    weighted = LinearSVC().fit(X, labels(y), sample_weight=np.where(group == 1, 3.0, 0.2))
    np.testing.assert_allclose(model.coef_, weighted.coef_, rtol=1e-6)


def test_one_c_per_class_without_groups():
    X, y = load_iris(return_X_y=True)
    model = LinearSVC(C=[0.1, 1.0, 10.0]).fit(X, y)
    for k, C in enumerate([0.1, 1.0, 10.0]):
        np.testing.assert_allclose(model.coef_[k], LinearSVC(C=C).fit(X, y == k).coef_[0], rtol=1e-6)


def test_one_epsilon_per_group():
    X, y = data()
    group = np.arange(len(y)) % 2
    model = LinearSVR(C=0.5, epsilon=[0.0, 1.0]).fit(X, y, sample_groups=group)
    here = np.append(model.coef_, model.intercept_)

    def both(parameters):
        tube = np.where(group == 1, 1.0, 0.0)
        outside = np.maximum(np.abs(X @ parameters[:-1] + parameters[-1] - y) - tube, 0.0)
        return 0.5 * parameters[:-1] @ parameters[:-1] + 0.5 * np.sum(outside**2)

    found = minimize(both, here + 0.1, method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(here, found.x, atol=1e-5)


@pytest.mark.parametrize("sparse", [False, True])
def test_one_lam_per_feature_is_a_scale_of_the_columns(sparse):
    X, y = data()
    lam = np.array([0.1, 1.0, 4.0, 25.0, 100.0])
    model = LinearSVR(C=0.5, lam=lam).fit(sp.csr_array(X) if sparse else X, y)
    scaled = LinearSVR(C=0.5).fit(X / np.sqrt(lam), y)
    np.testing.assert_allclose(model.coef_, scaled.coef_ / np.sqrt(lam), rtol=1e-6)


def test_lam_and_c_are_one_scale():
    X, y = data()
    np.testing.assert_allclose(
        LinearSVR(C=3.0, lam=6.0).fit(X, y).coef_, LinearSVR(C=0.5).fit(X, y).coef_, rtol=1e-8
    )


def test_epsilon_of_a_loss_object_is_used():
    X, y = data()
    by_object = LinearSVR(SquaredEpsilonInsensitive(0.7)).fit(X, y)
    np.testing.assert_allclose(by_object.coef_, LinearSVR(epsilon=0.7).fit(X, y).coef_, rtol=1e-9)


# Weights, sparse matrices, data frames, solvers


def test_weights_are_repetitions_also_for_balanced_classes():
    X, y = data(40)
    label = np.where(y > np.quantile(y, 0.7), "yes", "no")
    times = np.random.default_rng(3).integers(0, 4, len(y))
    weighted = LinearSVC(class_weight="balanced").fit(X, label, sample_weight=times)
    repeated = LinearSVC(class_weight="balanced").fit(np.repeat(X, times, axis=0), np.repeat(label, times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-6)


@pytest.mark.parametrize("class_weight", [{0: 2.0, 1: 0.5, 2: 1.0}, {1: 4.0}, "balanced"])
def test_class_weights_with_several_classes_weigh_rows(class_weight):
    X, y = load_iris(return_X_y=True)
    X, y = X[:130], y[:130]
    if class_weight == "balanced":
        rows = (len(y) / (3 * np.bincount(y)))[y]
    else:
        rows = np.array([class_weight.get(k, 1.0) for k in y])
    model = LinearSVC(class_weight=class_weight).fit(X, y)
    np.testing.assert_allclose(model.coef_, LinearSVC().fit(X, y, sample_weight=rows).coef_, rtol=1e-6)


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_matrix])
def test_sparse_matrices_give_the_same_model(kind):
    X, y = data()
    X = np.where(np.abs(X) < 0.8, 0.0, X)
    for model, target in ((LinearSVR(epsilon=0.2), y), (LinearSVC(), labels(y))):
        dense, sparse = clone(model).fit(X, target), clone(model).fit(kind(X), target)
        np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-6)
        np.testing.assert_allclose(sparse.intercept_, dense.intercept_, rtol=1e-6)
        assert np.array_equal(sparse.predict(kind(X)) == dense.predict(X), np.ones(len(y))) or (
            np.allclose(sparse.predict(kind(X)), dense.predict(X))
        )


def test_names_of_a_data_frame_are_kept_and_checked():
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = LinearSVR().fit(frame, y)
    assert list(model.feature_names_in_) == list("abcde")
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[list("edcba")])


@pytest.mark.parametrize("model", [LinearSVR(C=0.2, epsilon=0.3), LinearSVR("huber"), LinearSVC(C=0.5)])
def test_fista_finds_the_same_minimum(model):
    X, y = data()
    target = y if isinstance(model, LinearSVR) else labels(y)
    fista = clone(model).set_params(solver="fista", max_iter=20_000).fit(X, target)
    newton = clone(model).fit(X, target)
    np.testing.assert_allclose(fista.coef_, newton.coef_, rtol=1e-5, atol=1e-7)
    assert newton.n_iter_ < fista.n_iter_


@pytest.mark.parametrize("solver", ["newton", "fista"])
def test_stopping_short_is_a_warning(solver):
    X, y = data()
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 iterations; raise max_iter"):
        model = LinearSVR(epsilon=0.3, max_iter=1, solver=solver).fit(X, y)
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize(
    ("n", "d"), [(2, 1), (3, 10), (10, 40)], ids=["two rows", "three rows", "more columns than rows"]
)
def test_small_and_wide_data(n, d):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    model = LinearSVR(C=5.0).fit(X, y)
    reference = Ridge(alpha=0.1).fit(X, y)
    np.testing.assert_allclose(model.predict(X), reference.predict(X), rtol=1e-6, atol=1e-8)


# Errors that say what to do

X0, Y0 = data(20)
CLASSES = labels(Y0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LinearSVR("cubic"), "unknown loss 'cubic'; use a Loss object or one of: squared_epsilon_insens"),
        (LinearSVR(solver="adam"), "solver must be 'auto', 'newton', 'fista', "),
        (LinearSVR("logistic"), "LinearSVR is for regression; 'logistic' is a loss of LinearSVC"),
        (LinearSVR(epsilon=-0.1), "epsilon must be finite and not negative; got -0.1"),
        (LinearSVR(epsilon=np.nan), "epsilon must be finite and not negative; got nan"),
        (LinearSVR(C=0.0), "C must be positive and finite; got 0"),
        (LinearSVR(C=[1.0, 2.0]), "C has 2 entries but there are 1 groups of samples; give one number"),
        (LinearSVR(epsilon=[0.1, 0.2]), "epsilon has 2 entries but there are 1 groups"),
        (
            LinearSVR(lam=[1.0, 2.0]),
            "lam has 2 entries; X has 5 features. Give one number or one per feature",
        ),
        (LinearSVR(lam=-1.0), "lam must be positive and finite; got -1"),
    ],
    ids=lambda value: repr(value) if isinstance(value, LinearSVR) else "",
)
def test_errors_of_the_regressor(model, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace("[", r"\[")):
        model.fit(X0, Y0)
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (LinearSVC("huber"), "LinearSVC is for classification; 'huber' is a loss of LinearSVR"),
        (LinearSVC(SquaredEpsilonInsensitive(0.1)), "LinearSVC is for classification"),
        (LinearSVC(Misclassification()), "needs a loss with a second derivative; got Misclassification"),
        (LinearSVC(class_weight={"maybe": 2.0}), "class_weight names the class 'maybe'; y has: no, yes"),
        (
            LinearSVC(class_weight="even"),
            "class_weight must be None, 'balanced' or a dict",
        ),
        (
            LinearSVC(class_weight={"no": 0.0}),
            "class to a positive weight; got {'no': 0.0}. Drop the rows of a class",
        ),
    ],
    ids=lambda value: repr(value) if isinstance(value, LinearSVC) else "",
)
def test_errors_of_the_classifier(model, words):
    with pytest.raises(ValueError, match=words):
        model.fit(X0, CLASSES)
    assert not hasattr(model, "coef_")


def test_errors_about_rows():
    with pytest.raises(ValueError, match=r"C has 3 entries but there are 2 groups"):
        LinearSVR(C=[1.0, 2.0, 3.0]).fit(X0, Y0, sample_groups=np.arange(20) % 2)
    with pytest.raises(ValueError, match=r"sample_groups must have one entry per row, shape \(20,\)"):
        LinearSVR().fit(X0, Y0, sample_groups=[0, 1])
    with pytest.raises(ValueError, match=r"sample_weight.shape == \(2,\)"):
        LinearSVR().fit(X0, Y0, sample_weight=[0, 1])
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        LinearSVR().fit(X0, Y0, sample_weight=-np.ones(20))
    for machine in (LinearSVR(), KernelSVR(), SemiparametricSVR()):
        with pytest.raises(ValueError, match="must contain at least one non-zero number"):
            machine.fit(X0, Y0, sample_weight=np.zeros(20))
    with pytest.raises(ValueError, match=r"y has one class only \('a'\); classification needs at least two"):
        LinearSVC().fit(X0, ["a"] * 20)
    with pytest.raises(NotFittedError):
        LinearSVR().predict(X0)


@pytest.mark.parametrize(("loss", "steps"), [("quartic_hinge", 60), ("modified_log_hinge", 80)])
def test_nearly_separable_rows_with_a_large_C_are_fitted(loss, steps):
    """A warning that the solution was not reached would be an error."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    assert LinearSVC(loss=loss, C=1000.0).fit(X, y).n_iter_ < steps
