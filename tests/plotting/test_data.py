"""The numbers behind the pictures are those of the search."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldwise import RBF, BilevelSearchCV, KernelSVC, LinearSVC, LinearSVR
from foldwise.plotting import (
    contour_data,
    folds_data,
    growth_data,
    history_data,
    partial_effect_data,
    path_data,
    relevance_data,
    validation_test_data,
)


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X, y.to_numpy()


@pytest.fixture(scope="module")
def search(diabetes):
    X, y = diabetes
    model = make_pipeline(StandardScaler(), LinearSVR())
    return BilevelSearchCV(model, cv=KFold(4), random_state=0).fit(X, y)


def test_history_is_the_record(search):
    data = history_data(search)
    assert len(data.evaluation) == search.result_.n_evaluations
    assert data.best[-1] == search.result_.objective
    assert np.all(np.diff(data.best) <= 0)
    assert history_data(search.result_).objective.tolist() == data.objective.tolist()
    assert np.isfinite(data.gradient_norm).any()


def test_path_ends_at_the_selected_values_and_stays_within_bounds(search):
    data = path_data(search)
    assert data.names == ["C", "epsilon"]
    best = int(np.argmin(history_data(search).objective))
    assert data.values[best] == pytest.approx([search.result_.params["C"], search.result_.params["epsilon"]])
    inside = data.normalised()
    assert inside.min() >= -1e-12
    assert inside.max() <= 1 + 1e-12
    assert data.log.tolist() == [True, False]


def test_path_refuses_an_unknown_name(search):
    with pytest.raises(ValueError, match="this search has: C, epsilon"):
        path_data(search, ["gamma"])


def test_path_has_one_column_per_entry():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X = X.iloc[::4, :3]
    search = BilevelSearchCV(KernelSVC(RBF(ard=True)), cv=3, max_iter=3).fit(X, y[::4])
    data = path_data(search, ["kernel__gamma"])
    assert data.values.shape[1] == 3
    assert "mean radius" in data.names[0]


def test_contour_agrees_with_scikit_learn_and_is_above_the_selected_point(search, diabetes):
    X, y = diabetes
    data = contour_data(search, X, y, points=5)
    assert data.names == ("C", "epsilon")
    assert data.objective.shape == (5, 5)
    assert np.isfinite(data.objective).all()
    assert data.objective.min() >= search.result_.objective * (1 - 1e-9)
    i, j = 2, 1
    model = clone(search.estimator).set_params(linearsvr__C=data.x[i], linearsvr__epsilon=data.y[j])
    errors = -cross_val_score(model, X, y, cv=KFold(4), scoring="neg_mean_squared_error")
    assert data.objective[j, i] == pytest.approx(errors.mean(), rel=1e-6)


def test_the_contour_of_a_grid_search_is_its_own_points(diabetes):
    model = make_pipeline(StandardScaler(), LinearSVR())
    grid = BilevelSearchCV(model, method="grid", method_options={"points": 4}, cv=KFold(4)).fit(*diabetes)
    data = contour_data(grid)
    assert data.objective.shape == (4, 4)
    assert data.objective.min() == grid.result_.objective
    assert np.array_equal(data.objective, contour_data(grid, *diabetes, points=4).objective)


def test_the_contour_of_another_search_needs_its_data(search, diabetes):
    with pytest.raises(TypeError, match="give its data too, X and y"):
        contour_data(search)
    with pytest.raises(ValueError, match="at least two points"):
        contour_data(search, *diabetes, points=1)


def test_folds_are_those_of_the_result(search):
    data = folds_data(search)
    assert data.error.tolist() == search.result_.fold_objectives
    assert data.criterion == "squared"


def test_contour_needs_two_single_numbers(search, diabetes):
    with pytest.raises(ValueError, match="two hyper-parameters that are single numbers"):
        contour_data(search, *diabetes, names=["C"])


def test_relevance_of_a_linear_model_is_the_size_of_its_coefficients(search):
    data = relevance_data(search)
    sizes = np.abs(search.best_estimator_[-1].coef_)
    assert data.values == pytest.approx(sizes / sizes.max())
    assert data.names[0] == "age"
    assert data.box is None


def test_relevance_of_a_kernel_machine_is_its_own():
    X, y = load_breast_cancer(return_X_y=True)
    model = KernelSVC(RBF([0.1, 0.0001, 0.2])).fit(X[::5, :3], y[::5])
    data = relevance_data(model, ["a", "b", "c"])
    assert data.values == pytest.approx(model.relevance_)
    assert data.selected.tolist() == model.get_support().tolist()


def test_relevance_says_what_has_none(diabetes):
    with pytest.raises(ValueError, match="does not say what features count"):
        relevance_data(StandardScaler().fit(diabetes[0]))
    with pytest.raises(ValueError, match="2 names for 10 features"):
        relevance_data(LinearRegression().fit(*diabetes), ["a", "b"])


def test_validation_against_test_refits_at_the_evaluated_points(search, diabetes):
    X, y = diabetes
    data = validation_test_data(search, X[:300], y[:300], X[300:], y[300:], most=3)
    assert search.best_index_ in data.evaluation
    k = list(data.evaluation).index(search.best_index_)
    assert data.validation[k] == pytest.approx(search.result_.objective)
    fitted = clone(search.estimator).set_params(**search.best_params_).fit(X[:300], y[:300])
    assert data.test[k] == pytest.approx(np.mean((fitted.predict(X[300:]) - y[300:]) ** 2))


def test_partial_effect_of_a_linear_model_is_a_line(search, diabetes):
    X, _ = diabetes
    data = partial_effect_data(search, X, "bmi", points=11)
    slopes = np.diff(data.effect) / np.diff(data.grid)
    scaler, model = search.best_estimator_
    assert slopes == pytest.approx(np.full(10, model.coef_[2] / scaler.scale_[2]))
    assert data.parametric is None
    assert partial_effect_data(search, X, 2, points=11).effect == pytest.approx(data.effect)


def test_partial_effect_refuses_what_is_not_there(search, diabetes):
    with pytest.raises(ValueError, match="unknown feature 'weight'"):
        partial_effect_data(search, diabetes[0], "weight")
    with pytest.raises(ValueError, match="not among the 10 columns"):
        partial_effect_data(search, diabetes[0], 10)
    X, y = pd.DataFrame({"a": [0.0, 1, 2, 3, 4, 5], "b": 1.0}), list("aabbcc")
    with pytest.raises(ValueError, match="several classes"):
        partial_effect_data(LinearSVC().fit(X, y), X, "a")


def test_growth_refuses_times_that_are_not_positive():
    with pytest.raises(ValueError, match="positive sizes"):
        growth_data({"a": ([1, 2], [0.0, 1.0])})
