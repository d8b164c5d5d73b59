"""A target in another unit, or far from zero: the search gives the same machine in that unit."""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.svm import SVR

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR, LinearSVR, SemiparametricSVR
from tests.makers import waves

MODELS = {
    "SVR": (SVR(), ("C", "epsilon")),
    "KernelSVR": (KernelSVR(), ("epsilon",)),
    "KernelSVR, squared": (KernelSVR(loss="squared"), ()),
    "KernelSVR, exact": (KernelSVR(loss="epsilon_insensitive"), ("C", "epsilon")),
    "SemiparametricSVR": (SemiparametricSVR([0]), ("C", "epsilon")),
    "LinearSVR": (LinearSVR(), ("epsilon",)),
    "LinearSVR, squared": (LinearSVR("squared"), ()),
    "LinearSVR, exact": (LinearSVR("epsilon_insensitive"), ("C", "epsilon")),
    "Ridge": (Ridge(), ()),
}
"""Each model with its hyper-parameters that are in units of the target."""
FIXED_UNIT = {"KernelSVR, huber": (KernelSVR(loss="huber"), ()), "LinearSVR, huber": (LinearSVR("huber"), ())}
"""Losses that know a distance of their own: they follow a shift, not a change of unit."""


def data(n=60):
    return waves(n, 4, seed=3, frequency=1.0)


def search(model, X, y):
    return BilevelSearchCV(model, cv=3).fit(X, y)


@pytest.mark.parametrize("change", [(1.0, 1e5), (1e5, 0.0), (1e-6, 0.0)], ids=["+ 1e5", "* 1e5", "* 1e-6"])
@pytest.mark.parametrize("name", [*MODELS, *FIXED_UNIT])
def test_the_answer_follows_the_target(name, change):
    (unit, shift), (model, in_units) = change, (MODELS | FIXED_UNIT)[name]
    if name in FIXED_UNIT and unit != 1.0:
        pytest.skip("the loss has a distance of its own")
    X, y = data()
    plain, coarse = search(model, X, y), name == "SVR" and unit < 1
    with (
        pytest.warns(ConvergenceWarning, match="final fit by scikit-learn's SVR") if coarse else nullcontext()
    ):
        other = search(model, X, unit * y + shift)
    assert other.best_score_ == pytest.approx(unit**2 * plain.best_score_, rel=1e-4)
    assert other.result_.status == plain.result_.status
    assert max(other.result_.kkt) < 1e-6
    for key, value in plain.best_params_.items():
        factor = unit if key in in_units else 1.0
        tube = key == "epsilon"
        assert other.best_params_[key] == pytest.approx(factor * value, rel=1e-3, abs=1e-3 * unit * tube)
    if coarse:  # its own tolerance is in units of the target too, and it is told
        assert any("scikit-learn's SVR stops" in text for text in other.result_.warnings)
        other = search(SVR(tol=1e-3 * unit), X, unit * y + shift)
    assert not other.result_.warnings
    if name == "SVR":  # final fits that stop as far from the solution as is asked for here say nothing
        plain, other = (search(SVR(tol=1e-6 * u), X, u * y + s) for u, s in ((1.0, 0.0), change))
    expected = unit * plain.predict(X) + shift
    np.testing.assert_allclose(other.predict(X), expected, atol=1e-3 * unit * y.std())


def test_kernel_ridge_has_no_intercept_and_follows_the_unit_only():
    X, y = data()
    model = KernelRidge(kernel="rbf")
    plain, other = search(model, X, y), search(model, X, 1e5 * y)
    assert other.best_score_ == pytest.approx(1e10 * plain.best_score_, rel=1e-6)


@pytest.mark.parametrize("C", [1e-3, 0.1, 10.0])
def test_a_loss_without_curvature_far_away_is_solved_with_a_far_mean(C):
    X, y = data()
    near, far = (LinearSVR("huber", C=C).fit(X, y + shift) for shift in (0.0, 1e5))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-5, atol=1e-8)
    assert far.intercept_ - 1e5 == pytest.approx(near.intercept_, abs=1e-6)


def test_what_landmarks_say_is_checked_without_them(rng):
    """``best_score_`` is what the plain estimator gives, fold by fold; what the landmarks said is told beside it."""
    X = rng.normal(size=(240, 8))
    y = np.sin(3.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) + 0.1 * rng.normal(size=240)
    space = {"C": (1e-2, 1e3), "kernel__gamma": (0.5, 5.0)}
    found = BilevelSearchCV(KernelSVR(loss="squared"), space, cv=3, low_rank=True).fit(X, y)
    details = found.result_.details
    assert details["landmark_landmarks"] <= 120
    assert details["landmark_bound"] > 0
    errors = []
    for part in np.array_split(np.arange(240), 3):
        rest = np.setdiff1d(np.arange(240), part)
        machine = KernelRidgeWithIntercept(found.best_params_).fit(X[rest], y[rest])
        errors.append(np.mean((machine.predict(X[part]) - y[part]) ** 2))
    assert -found.best_score_ == pytest.approx(np.mean(errors), rel=1e-6)
    assert abs(details["landmark_objective"] / np.mean(errors) - 1) > 1e-3  # the check was needed
    assert found.result_.objective == found.result_.history[found.best_index_].objective


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_an_end_checked_without_landmarks_is_judged_like_any_other(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=120)
    result = BilevelSearchCV(KernelSVR(loss="squared"), cv=3, low_rank=True, refit=False).fit(X, y).result_
    assert result.status.value == "converged"
    points = [str(record.params) for record in result.history]
    assert len(points) - len(set(points)) <= 2  # the first and the last, with and without landmarks


@pytest.mark.parametrize(("method", "options"), [("grid", {"points": 3}), ("random", {"n_iter": 4})])
def test_landmarks_are_checked_for_a_criterion_without_gradient(method, options, rng):
    X = rng.normal(size=(90, 2))
    labels = (np.sin(2 * X[:, 0]) + X[:, 1] > 0).astype(int)
    search = BilevelSearchCV(
        KernelSVC(), cv=3, low_rank=True, criterion="misclassification", method=method, method_options=options
    ).fit(X, labels)
    assert "landmark_objective" in search.result_.details
    assert search.result_.status.value == "exhausted"


class KernelRidgeWithIntercept:
    """``1/2 |f|^2 + C sum (f + b - y)^2`` by its linear system."""

    def __init__(self, params):
        self.C, self.gamma = params["C"], params["kernel__gamma"]

    def kernel(self, A, B):
        return np.exp(-self.gamma * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    def fit(self, X, y):
        n = len(y)
        system = np.block(
            [
                [self.kernel(X, X) + np.eye(n) / (2 * self.C), np.ones((n, 1))],
                [np.ones((1, n)), np.zeros((1, 1))],
            ]
        )
        self.X, self.solution = X, np.linalg.solve(system, np.append(y, 0.0))
        return self

    def predict(self, X):
        return self.kernel(X, self.X) @ self.solution[:-1] + self.solution[-1]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("far", [1e6, 1e9, -1e9])
def test_the_error_of_an_exact_linear_machine_is_that_of_the_same_target_near_zero(far, sparse, rng):
    X = rng.normal(size=(60, 3))
    y = np.round(np.sin(X[:, 0]) + 0.3 * rng.normal(size=60), 4)
    rows = sp.csr_array(X) if sparse else X
    machine = LinearSVR("epsilon_insensitive")
    search = BilevelSearchCV(machine, cv=4, random_state=0).fit(rows, y + far)
    plain = clone(machine).set_params(**search.best_params_)
    near = -cross_val_score(plain, X, y, cv=4, scoring="neg_mean_squared_error").mean()
    assert search.result_.error == pytest.approx(near, rel=1e-5)
    again = -cross_val_score(plain, rows, y + far, cv=4, scoring="neg_mean_squared_error").mean()
    assert again == pytest.approx(near, rel=1e-5)


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_a_kernel_that_is_huge_beside_its_regularisation_keeps_its_predictions(scale, rng):
    """Kernels of 1e15 and more leave few digits; the error is near the plain machine's, and is said not to be sure."""
    X = rng.normal(size=(100, 3))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=100)
    machine = KernelRidge(kernel="poly", gamma=0.5, degree=2, alpha=1.0)
    search = BilevelSearchCV(machine, {"alpha": (0.99, 1.01)}, method="grid", cv=KFold(3), refit=False)
    with pytest.warns(ConvergenceWarning, match="not solved"):
        search.fit(scale * X, y)
    plain = clone(machine).set_params(**search.best_params_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that its matrix is singular
        errors = -cross_val_score(plain, scale * X, y, cv=KFold(3), scoring="neg_mean_squared_error")
    assert -search.best_score_ == pytest.approx(errors.mean(), rel=0.05)
