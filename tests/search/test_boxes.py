"""Boxes, L1 penalties and reference weights through the estimators and the search."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import QuantileRegressor
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from foldwise import BilevelSearchCV, Lin, LinearSVC, LinearSVR, Log
from tests.makers import labels, lines


@parametrize_with_checks(
    [LinearSVC("hinge", box=2.0), LinearSVR("epsilon_insensitive", penalty="elasticnet")]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def data(n=60, d=5, seed=0, noise=0.5):
    weights = np.r_[1.0, -1.0, 0.5, np.zeros(d - 3)]
    return lines(n, weights, seed, noise=noise, tails=4, spread=np.linspace(0.5, 2.0, d), level=0.3)


# Estimators


def test_the_classical_machines():
    X, y = data()
    ours = LinearSVR("epsilon_insensitive", C=0.5, epsilon=0.2).fit(X, y)
    theirs = SVR(kernel="linear", C=0.5, epsilon=0.2, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_[0], atol=1e-5)
    assert ours.intercept_ == pytest.approx(float(theirs.intercept_[0]), abs=1e-5)

    def value(model):
        losses = np.maximum(np.abs(model.predict(X) - y) - 0.2, 0.0)
        return 0.5 * np.sum(np.square(model.coef_)) + 0.5 * losses.sum()

    assert value(ours) <= value(theirs)
    machine = LinearSVC("hinge", C=0.5).fit(X, labels(y))
    theirs = SVC(kernel="linear", C=0.5, tol=1e-10).fit(X, labels(y))
    np.testing.assert_allclose(machine.coef_, theirs.coef_, atol=1e-5)
    np.testing.assert_allclose(machine.intercept_, theirs.intercept_, atol=1e-5)


@pytest.mark.parametrize("solver", ["active_set", "piqp", "clarabel"])
def test_solvers_agree(solver):
    if solver != "active_set":
        pytest.importorskip(solver)
    X, y = data()
    exact = LinearSVR("epsilon_insensitive", epsilon=0.2, box=[0.5, 2.0, 0.2, 0.0, 1.0]).fit(X, y)
    other = LinearSVR("epsilon_insensitive", epsilon=0.2, box=[0.5, 2.0, 0.2, 0.0, 1.0], solver=solver).fit(
        X, y
    )
    np.testing.assert_allclose(other.coef_, exact.coef_, atol=1e-10)
    assert exact.coef_[0] == 0.5
    assert exact.coef_[3] == 0.0


def test_more_than_two_classes_weights_and_sparse_rows():
    X, y = data(90)
    three = np.digitize(y, np.quantile(y, [0.33, 0.66]))
    weight = np.where(np.arange(90) % 3 == 0, 2.0, 1.0)
    ours = LinearSVC("hinge", C=0.2, fit_intercept=False).fit(sp.csr_array(X), three, sample_weight=weight)
    theirs = SkLinearSVC(loss="hinge", C=0.2, fit_intercept=False, tol=1e-10, max_iter=10**6)
    theirs.fit(X, three, sample_weight=weight)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)


def test_two_sides_hold():
    X, y = data()
    model = LinearSVR("epsilon_insensitive", C=10.0, box=0.4, box_lower=[-0.2, -0.3, 0.1, 0.0, -1.0]).fit(
        X, y
    )
    assert np.all(model.coef_ <= 0.4)
    assert np.all(model.coef_ >= [-0.2, -0.3, 0.1, 0.0, -1.0])
    assert model.coef_[1] == -0.3


def test_l1_is_scikit_learns_quantile_regression():
    X, y = data()
    alpha = 0.05
    # QuantileRegressor minimises mean |r| / 2 + alpha |w|_1 at the median.
    theirs = QuantileRegressor(quantile=0.5, alpha=alpha).fit(X, y)
    ours = LinearSVR("epsilon_insensitive", epsilon=0.0, penalty="l1", C=0.5 / len(y), lam=alpha).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7)
    assert np.any(ours.coef_ == 0.0)


def test_the_elastic_net_lies_between():
    X, y = data()
    ends = [LinearSVR("epsilon_insensitive", C=0.02, penalty=penalty).fit(X, y) for penalty in ("l1", "l2")]
    net = {}
    for ratio in (0.0, 1.0):
        net[ratio] = LinearSVR("epsilon_insensitive", C=0.02, penalty="elasticnet", l1_ratio=ratio).fit(X, y)
    np.testing.assert_allclose(net[1.0].coef_, ends[0].coef_, atol=1e-9)
    np.testing.assert_allclose(net[0.0].coef_, ends[1].coef_, atol=1e-9)


def test_proximity_leads_to_the_reference():
    X, y = data()
    w0 = np.array([0.5, -0.5, 0.2, 0.1, 0.0])
    near = LinearSVR("epsilon_insensitive", C=0.1, proximity=1e4, reference=w0).fit(X, y)
    np.testing.assert_allclose(near.coef_, w0, atol=1e-2)
    far = LinearSVR("epsilon_insensitive", C=0.1, proximity=0.0, reference=w0).fit(X, y)
    plain = LinearSVR("epsilon_insensitive", C=0.1).fit(X, y)
    np.testing.assert_allclose(far.coef_, plain.coef_, atol=1e-12)
    # lam/2 |w|^2 + nu/2 |w - w0|^2 is (lam + nu)/2 |w - nu/(lam + nu) w0|^2 and a constant.
    both = LinearSVR("epsilon_insensitive", C=0.1, lam=1.0, proximity=3.0, reference=w0).fit(X, y)
    one = LinearSVR("epsilon_insensitive", C=0.1, lam=1e-12, proximity=4.0, reference=0.75 * w0).fit(X, y)
    np.testing.assert_allclose(both.coef_, one.coef_, atol=1e-8)


def test_support_of_a_box():
    X, y = data()
    model = LinearSVR("epsilon_insensitive", box=[1.0, 1.0, 0.0, 0.0, 1.0]).fit(X, y)
    assert model.get_support().tolist() == [True, True, False, False, True]
    assert model.get_support(indices=True).tolist() == [0, 1, 4]
    assert model.relevance_.max() == 1.0


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            LinearSVR("epsilon_insensitive", penalty="l0"),
            "penalty must be 'l2', 'l1' or 'elasticnet'; got 'l0'",
        ),
        (
            LinearSVR("epsilon_insensitive", penalty="elasticnet", l1_ratio=2.0),
            "l1_ratio must be at least 0 and at most 1; got 2.0",
        ),
        (
            LinearSVR("epsilon_insensitive", solver="newton"),
            "solver 'newton' needs a loss with a second derivative",
        ),
        (
            LinearSVR(solver="piqp"),
            "solver 'piqp' needs a linear machine with a loss with corners",
        ),
        (LinearSVR("epsilon_insensitive", proximity=1.0), "give reference as well"),
        (
            LinearSVR("epsilon_insensitive", box=[1.0, 2.0]),
            "X has 5 features. Give one number or one per feature",
        ),
        (LinearSVR("epsilon_insensitive", reference=[1.0, 2.0]), "reference has shape"),
    ],
)
def test_errors(model, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(").replace(")", r"\)")):
        model.fit(*data())


# The search


def search(space, estimator=None, **options):
    estimator = LinearSVR("epsilon_insensitive") if estimator is None else estimator
    return BilevelSearchCV(estimator, space, **{"criterion": "absolute", "cv": KFold(3), **options})


def test_a_box_per_feature_lowers_the_error():
    X, y = data(45, 6, seed=2)
    plain = search({"C": (1e-2, 1e2), "epsilon": (0, 1)}, method="newton").fit(X, y)
    boxed = search({"C": (1e-2, 1e2), "epsilon": (0, 1), "box": None}, method="newton").fit(X, y)
    assert boxed.best_score_ > plain.best_score_
    assert boxed.best_params_["box"].shape == (6,)
    assert np.all(boxed.best_params_["box"][3:] < 0.2)
    assert np.all(np.abs(boxed.best_estimator_.coef_) <= boxed.best_params_["box"] + 1e-12)
    assert max(boxed.result_.kkt) < 1e-10
    # The final C sees T/(T-1) times the rows of a fold; a box stays.
    assert boxed.refit_params_["C"] == pytest.approx(boxed.best_params_["C"] * 2 / 3)
    np.testing.assert_array_equal(boxed.refit_params_["box"], boxed.best_params_["box"])


def test_a_fine_grid_finds_nothing_lower_nearby():
    X, y = data(30, 3, seed=1)
    space = {"C": Log(1e-2, 1e2), "box": Lin(0, 2)}
    found = search(space).fit(X, y)
    assert found.result_.method == "bundle"
    grid = search(space, method="grid", method_options={"points": 9}).fit(X, y)
    assert found.best_score_ >= grid.best_score_ * 1.005  # the two may be at different local minima
    around = {"C": found.best_params_["C"] * np.exp(np.linspace(-0.1, 0.1, 5))}
    around["box"] = found.best_params_["box"] + np.linspace(-0.05, 0.05, 5)
    near = search(space, method="grid", method_options={"values": around}).fit(X, y)
    assert found.best_score_ >= near.best_score_ * 1.0001


def test_the_bundle_goes_on_where_one_gradient_does_not():
    X, y = data(24, 4, seed=5)
    space = {"C": (1e-2, 1e2), "epsilon": (0, 1), "box": (0, 1.5)}
    ends = {m: search(space, method=m, n_starts=1).fit(X, y).result_ for m in ("lbfgsb", "bundle")}
    assert ends["bundle"].objective < ends["lbfgsb"].objective
    assert search(space, n_starts=1).fit(X, y).result_.theta == ends["bundle"].theta


def test_the_hinge_with_hinge_criterion_in_a_pipeline():
    X, y = data(60, 5, seed=3)
    X = X * [1.0, 10.0, 0.1, 1.0, 5.0]
    model = make_pipeline(StandardScaler(), LinearSVC("hinge"))
    found = BilevelSearchCV(
        model, {"linearsvc__C": None, "linearsvc__box": None}, criterion="hinge", cv=KFold(3)
    ).fit(X, labels(y))
    assert found.best_params_["linearsvc__box"].shape == (5,)
    assert found.result_.objective <= found.result_.objective_start
    values = {name.split("__")[1]: value for name, value in found.best_params_.items()}
    again = make_pipeline(StandardScaler(), LinearSVC("hinge", **values))
    scores = []
    for train, test in KFold(3).split(X):
        z = again.fit(X[train], labels(y)[train]).decision_function(X[test])
        scores.append(np.maximum(1 - np.where(labels(y)[test] == "yes", 1, -1) * z, 0).mean())
    assert -found.best_score_ == pytest.approx(np.mean(scores), rel=1e-9)


def test_two_sided_boxes_and_proximity_are_tuned():
    X, y = data(45, 4)
    found = search({"C": None, "box": (0, 2), "box_lower": (-2, 0)}).fit(X, y)
    assert np.all(found.best_params_["box_lower"] <= 0)
    w0 = np.array([1.0, -1.0, 0.5, 0.0])
    near = search({"proximity": None, "epsilon": (0, 1)}, LinearSVR("epsilon_insensitive", reference=w0)).fit(
        X, y
    )
    alone = search({"epsilon": (0, 1)}, LinearSVR("epsilon_insensitive")).fit(X, y)
    assert near.best_score_ > alone.best_score_


def test_one_box_for_all_features():
    X, y = data(45, 4)
    found = search({"C": None, "box": Lin(0, 2)}).fit(X, y)
    assert isinstance(found.best_params_["box"], float)


def test_bad_boxes():
    X, y = data(45, 4)
    with pytest.raises(ValueError, match="bounds of 'box' must not be negative"):
        search({"box": (-1, 1)}).fit(X, y)
    with pytest.raises(ValueError, match="box_lower may exceed box"):
        search({"box": (0, 2), "box_lower": (-1, 1)}).fit(X, y)
    with pytest.raises(ValueError, match="unknown hyper-parameter 'proximity'"):
        search({"proximity": (0.1, 1)}).fit(X, y)
