"""Searches over semiparametric machines: their objective against explicit fits, bases inside folds, pipelines."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler
from sklearn.utils import _safe_indexing

from foldwise import RBF, BilevelSearchCV, KernelSVR, Lin, Log, SemiparametricSVR

CV = KFold(4, shuffle=True, random_state=0)


def data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 2.0, 0.5] + 1.0
    y = 1.5 * X[:, 0] + np.sin(1.5 * X[:, 1]) + 0.2 * rng.normal(size=n)
    return X, pd.DataFrame(X, columns=["a", "b", "c"]), y


def square(rows):
    return np.asarray(rows)[:, 0] ** 2


QUADRATIC = PolynomialFeatures(2, include_bias=False)
MODELS = {
    "columns": SemiparametricSVR([0]),
    "functions": SemiparametricSVR([0, square], RBF(0.3)),
    "transformer": SemiparametricSVR(ColumnTransformer([("q", QUADRATIC, ["a"])])),
    "fitted in folds": SemiparametricSVR(SplineTransformer(3, knots="quantile")),
    "names": SemiparametricSVR(["a"], RBF(ard=True)),
    "pipeline": make_pipeline(StandardScaler(), SemiparametricSVR([0])),
    "pipeline of frames": make_pipeline(
        StandardScaler().set_output(transform="pandas"), SemiparametricSVR(["a"])
    ),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_the_objective_is_that_of_explicit_fits(model):
    _, X, y = data()
    search = BilevelSearchCV(model, cv=CV, max_iter=6).fit(X, y)
    prefix = "semiparametricsvr__" if hasattr(model, "steps") else ""
    assert set(search.best_params_) == {prefix + name for name in ("C", "epsilon", "kernel__gamma")}
    errors = []
    for train, test in CV.split(X):
        params = {k.removeprefix(prefix): v for k, v in search.best_params_.items()}
        fold = clone(model)
        kernel = RBF(params["kernel__gamma"])
        fold.set_params(
            **{prefix + "C": params["C"], prefix + "epsilon": params["epsilon"], prefix + "kernel": kernel}
        )
        fold.fit(_safe_indexing(X, train), y[train])
        errors.append(np.mean((fold.predict(_safe_indexing(X, test)) - y[test]) ** 2))
    assert -search.best_score_ == pytest.approx(np.mean(errors), rel=1e-8)
    assert max(search.result_.kkt) < 1e-10
    assert search.score(X, y) > 0.9
    scores = search.cv_results_["mean_test_score"]
    assert search.best_score_ >= scores[0]


def test_a_constant_is_tuned_as_the_usual_regression():
    X, _, y = data()
    space = {"C": Log(1e-2, 1e3), "epsilon": Lin(0, 1), "kernel__gamma": Log(1e-3, 10)}
    ours = BilevelSearchCV(SemiparametricSVR(), space, cv=CV).fit(X, y)
    theirs = BilevelSearchCV(KernelSVR(loss="epsilon_insensitive"), space, cv=CV).fit(X, y)
    assert ours.best_score_ == pytest.approx(theirs.best_score_, rel=1e-6)
    assert np.allclose(ours.predict(X), theirs.predict(X), rtol=1e-3)


def test_a_parametric_part_that_holds_pays():
    X, _, y = data(150, seed=1)
    space = {"C": (1e-2, 1e3), "kernel__gamma": (1e-3, 10.0)}
    with_part = BilevelSearchCV(SemiparametricSVR([0]), space, cv=CV).fit(X, y)
    without = BilevelSearchCV(SemiparametricSVR(), space, cv=CV).fit(X, y)
    assert with_part.best_score_ > without.best_score_
    assert with_part.best_estimator_.basis_coef_[0] == pytest.approx(1.5, abs=0.3)


def test_an_array_follows_its_rows_into_folds():
    X, _, y = data()
    space = {"C": (1e-2, 1e3), "epsilon": (0, 1)}
    array = BilevelSearchCV(SemiparametricSVR(X[:, :1], RBF(0.3)), space, cv=CV, max_iter=5).fit(X, y)
    column = BilevelSearchCV(SemiparametricSVR([0], RBF(0.3)), space, cv=CV, max_iter=5).fit(X, y)
    assert array.best_score_ == pytest.approx(column.best_score_, rel=1e-10)
    scaled = make_pipeline(StandardScaler(), SemiparametricSVR(X[:, :1], RBF(0.3)))
    assert BilevelSearchCV(scaled, cv=CV, max_iter=2).fit(X, y).best_score_ > -2.0
    with pytest.raises(ValueError, match="has 50 rows and X has 120"):
        BilevelSearchCV(SemiparametricSVR(X[:50, :1]), cv=CV).fit(X, y)


def test_sample_weights_and_names_that_cannot_be_tuned():
    X, _, y = data()
    weight = np.random.default_rng(0).uniform(0.2, 2.0, len(y))
    search = BilevelSearchCV(SemiparametricSVR([0]), ["C"], cv=CV).fit(X, y, sample_weight=weight)
    assert search.best_estimator_.basis_coef_[0] > 0.5
    with pytest.raises(ValueError, match="it can tune: C, epsilon, kernel__gamma"):
        BilevelSearchCV(SemiparametricSVR([0]), ["basis"], cv=CV).fit(X, y)


def test_grid_and_quasi_newton_see_the_same_objective():
    X, _, y = data()
    space = {"C": Log(0.1, 100.0), "kernel__gamma": Log(0.01, 1.0)}
    grid = BilevelSearchCV(
        SemiparametricSVR([0]), space, method="grid", method_options={"points": 5}, cv=CV
    ).fit(X, y)
    newton = BilevelSearchCV(SemiparametricSVR([0]), space, cv=CV).fit(X, y)
    lbfgsb = BilevelSearchCV(SemiparametricSVR([0]), space, method="lbfgsb", cv=CV).fit(X, y)
    assert newton.best_score_ >= grid.best_score_ - 1e-9
    assert lbfgsb.best_score_ == pytest.approx(newton.best_score_, rel=0.02)
