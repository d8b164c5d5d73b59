"""SemiparametricSVR with fixed hyper-parameters: scikit-learn's checks and numbers, a QP solver's, and its parts."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler
from sklearn.svm import SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from foldwise import RBF, KernelSVR, Precomputed, SemiparametricSVR
from foldwise.testing import relative_error
from tests.referees import quadratic_program

ESTIMATORS = [
    SemiparametricSVR(),
    SemiparametricSVR([0], fit_intercept=False),
    SemiparametricSVR(PolynomialFeatures(2), C=0.1),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn(estimator, check):
    check(estimator)


def data(n=120, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 1.5 * X[:, 0] + np.sin(3.0 * X[:, 1]) + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [0.01, 1.0, 50.0])
def test_a_constant_alone_is_the_usual_regression(C, weighted):
    X, y = data()
    weight = np.random.default_rng(1).uniform(0.2, 2.0, len(y)) if weighted else None
    ours = SemiparametricSVR(kernel=RBF(0.5), C=C).fit(X, y, weight)
    theirs = SVR(gamma=0.5, C=C, tol=1e-10).fit(X, y, weight)
    new = data(seed=5)[0]
    assert (
        relative_error(ours.predict(new), theirs.predict(new)) < 2e-4
    )  # LIBSVM's matrix is in single precision
    finished = KernelSVR(RBF(0.5), loss="epsilon_insensitive", C=C).fit(X, y, weight)
    assert relative_error(ours.predict(new), finished.predict(new)) < 1e-10
    assert np.array_equal(ours.support_, finished.support_)
    assert ours.basis_names_.tolist() == ["1"]
    assert ours.intercept_ == pytest.approx(finished.intercept_[0], rel=1e-9)


def qp(K, Psi, y, c, epsilon):
    """Primal value and decisions by an interior point, in (w, beta, xi) with ``K = R R'``."""
    n, k = Psi.shape
    size, vectors = np.linalg.eigh(K)
    R = vectors * np.sqrt(np.maximum(size, 0.0))
    P = sp.block_diag([sp.eye(n), sp.csc_matrix((k + n, k + n))])
    A = np.block([[R, Psi, -np.eye(n)], [-R, -Psi, -np.eye(n)], [np.zeros((n, n + k)), -np.eye(n)]])
    b = np.concatenate([y + epsilon, epsilon - y, np.zeros(n)])
    x, value = quadratic_program(P, np.concatenate([np.zeros(n + k), c]), A, b)
    return value, R @ x[:n] + Psi @ x[n : n + k]


BASES = {
    "linear": [0, 1],
    "polynomial": PolynomialFeatures(2),
    "spline of one": ColumnTransformer([("s", SplineTransformer(4), [0])]),
    "dummies": [lambda X: X[:, 0] > 0, lambda X: X[:, 1] > 0],
}


@pytest.mark.parametrize("C", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("basis", BASES.values(), ids=BASES)
def test_the_optimum_is_a_qp_solvers(basis, C):
    X, y = data(70)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y))
    model = SemiparametricSVR(basis, RBF(0.7), C=C, epsilon=0.15).fit(X, y, weight)
    K, z = rbf_kernel(X, gamma=0.7), model.predict(X)
    alpha = np.zeros(len(y))
    alpha[model.support_] = model.dual_coef_[0]
    value = 0.5 * alpha @ K @ alpha + C * weight @ np.maximum(np.abs(z - y) - 0.15, 0.0)
    constant = np.ones((len(y), int(model.constant_added_)))
    Psi = np.hstack([model.basis_.transform(X), constant])
    wanted, decisions = qp(K, Psi, y, C * weight, 0.15)
    assert value == pytest.approx(wanted, rel=1e-7)
    assert np.abs(z - decisions).max() < 1e-3
    assert np.abs(Psi.T @ alpha).max() < 1e-10 * np.abs(alpha).sum()
    assert model.kkt_ < 1e-10


@pytest.mark.parametrize("solver", ["interior_point", "active_set", "pdsg", "mpd", "pdsg_alone"])
def test_solvers_by_name_agree(solver):
    X, y = data(150)
    exact = SemiparametricSVR([0], RBF(0.5)).fit(X, y)
    other = clone(exact).set_params(solver=solver, tol=1e-4).fit(X, y)
    assert other.kkt_ <= 1e-4
    assert other.status_ == "converged"
    assert np.abs(other.predict(X) - exact.predict(X)).max() < 2e-3


def test_many_rows_never_form_the_kernel_matrix():
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-10, 10, 20_000))
    y = np.sin(x) + 2.0 * x + 0.05 * rng.normal(size=len(x))
    model = SemiparametricSVR([0], RBF(0.25), C=1.0, epsilon=0.05).fit(x[:, None], y)
    assert model.basis_coef_ == pytest.approx([2.0, 0.0], abs=0.05)
    assert model.kkt_ <= model.tol


def test_parts_names_and_partial_effects():
    X, y = data()
    frame = pd.DataFrame(X, columns=["temp", "so2", "rain"])
    basis = ColumnTransformer([("p", PolynomialFeatures(2, include_bias=False), ["temp"])])
    model = SemiparametricSVR(basis, RBF(0.5)).fit(frame, y)
    assert model.basis_names_.tolist() == ["p__temp", "p__temp^2", "1"]
    parametric = model.basis_coef_ @ np.stack([X[:, 0], X[:, 0] ** 2, np.ones(len(X))])
    assert np.allclose(model.parametric_part(frame), parametric, atol=1e-12)
    assert np.allclose(model.kernel_part(frame) + parametric, model.predict(frame), atol=1e-12)
    temp, rain = model.partial_effects(frame, ["temp", 2], points=7, max_rows=len(X))
    assert (temp.name, rain.name, rain.feature) == ("temp", "rain", 2)
    assert temp.values.tolist() == np.linspace(X[:, 0].min(), X[:, 0].max(), 7).tolist()
    moved = frame.assign(temp=temp.values[3])
    assert temp.total[3] == pytest.approx(model.predict(moved).mean())
    assert temp.kernel[3] == pytest.approx(model.kernel_part(moved).mean())
    assert np.ptp(rain.parametric) < 1e-12
    assert len(model.partial_effects(frame, max_rows=20)) == 3
    with pytest.raises(ValueError, match="the model has: temp, so2, rain"):
        model.partial_effects(frame, ["wind"])


def test_an_array_as_basis():
    X, y = data()
    model = SemiparametricSVR(X[:, :1], RBF(0.5)).fit(X, y)
    same = SemiparametricSVR([0], RBF(0.5)).fit(X, y)
    assert model.basis_names_.tolist() == ["psi0", "1"]
    assert np.allclose(model.predict(X, basis=X[:, 0]), same.predict(X), atol=1e-12)
    for wrong in (None, X[:, :2], X[:5, :1]):
        with pytest.raises(ValueError, match="pass basis= with the 1 columns"):
            model.predict(X, basis=wrong)
    with pytest.raises(ValueError, match="leave basis out"):
        same.predict(X, basis=X[:, 0])
    with pytest.raises(ValueError, match="need a basis and a kernel that are functions of X"):
        model.partial_effects(X)
    with pytest.raises(ValueError, match="has 120 rows and X has 60"):
        clone(model).fit(X[:60], y[:60])


def test_dependent_columns_give_the_shortest_coefficients():
    X, y = data()
    plain = SemiparametricSVR([0], RBF(0.5)).fit(X, y)
    double = SemiparametricSVR([0, 0, ("none", lambda rows: 0.0)], RBF(0.5)).fit(X, y)
    assert double.basis_rank_ == 2
    assert np.allclose(double.basis_coef_, plain.basis_coef_[[0, 0, 0, 1]] * [0.5, 0.5, 0.0, 1.0], atol=1e-8)
    assert np.allclose(double.predict(X), plain.predict(X), atol=1e-8)


def test_no_columns_at_all():
    X, y = data()
    model = SemiparametricSVR(kernel=RBF(0.5), fit_intercept=False).fit(X, y)
    assert model.basis_coef_.shape == (0,)
    assert model.intercept_ == 0.0
    K, (value, _) = (
        rbf_kernel(X, gamma=0.5),
        qp(rbf_kernel(X, gamma=0.5), np.zeros((len(y), 0)), y, np.ones(len(y)), 0.1),
    )
    alpha = np.zeros(len(y))
    alpha[model.support_] = model.dual_coef_[0]
    loss = np.maximum(np.abs(model.predict(X) - y) - 0.1, 0.0).sum()
    assert 0.5 * alpha @ K @ alpha + loss == pytest.approx(value, rel=1e-7)


def test_as_many_columns_as_rows():
    X, y = data(8)
    model = SemiparametricSVR(PolynomialFeatures(2), RBF(1.0)).fit(X, y)
    assert model.basis_rank_ == 8
    assert np.abs(y - model.predict(X)).max() < 0.1 + 1e-8
    assert len(model.support_) == 0


def test_a_precomputed_kernel():
    X, y = data()
    K = rbf_kernel(X, gamma=0.5)
    model = SemiparametricSVR(X[:, :1], Precomputed()).fit(K, y)
    same = SemiparametricSVR([0], RBF(0.5)).fit(X, y)
    assert np.allclose(model.predict(K, basis=X[:, :1]), same.predict(X), atol=1e-9)


def test_rows_of_weight_zero_do_not_count():
    X, y = data()
    weight = (np.arange(len(y)) < 80).astype(float)
    part = SemiparametricSVR([0]).fit(X[:80], y[:80])
    whole = SemiparametricSVR([0]).fit(X, np.where(weight > 0, y, 1e3), weight)
    assert np.allclose(whole.predict(X), part.predict(X), atol=1e-9)


def test_it_stands_in_a_pipeline():
    X, y = data()
    model = make_pipeline(StandardScaler(), SemiparametricSVR([0], C=5.0)).fit(X, y)
    assert model.score(X, y) > 0.9


def test_what_is_wrong_is_said():
    X, y = data(30)
    for options, words in [
        ({"solver": "smo"}, "solver must be 'auto', .*; got 'smo'"),
        ({"C": 0.0}, "C must be positive and finite"),
        ({"epsilon": -1.0}, "epsilon must be finite and not negative"),
        ({"tol": [1.0]}, "tol must be positive and finite"),
        ({"kernel": "sigmoid"}, "unknown kernel"),
        ({"kernel": "precomputed"}, "basis functions act on features, .* give basis as an array"),
    ]:
        with pytest.raises(ValueError, match=words):
            SemiparametricSVR([0]).set_params(**options).fit(X, y)


def test_a_solver_that_stops_short_warns_and_names_another():
    X, y = data(400)
    model = SemiparametricSVR([0, 1], RBF(2.0), C=100.0, solver="mpd_alone", max_iter=50, tol=1e-6)
    with pytest.warns(ConvergenceWarning, match="violation of .*solver="):
        model.fit(X, y)
    assert model.status_ != "converged"
    assert model.kkt_ > 1e-6
