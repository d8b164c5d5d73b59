"""Settings of scikit-learn's machines that are not tuned: honoured as scikit-learn does, or refused before any work.

The referee refits the plain estimator fold by fold.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

from foldwise import RBF, BilevelSearchCV, KernelSVC
from foldwise.estimators.adapters import scale_width

N = 45
CV = KFold(3)


def data(sparse=False):
    """Rows whose spread grows, so that every fold's training rows have a variance of their own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)) * np.linspace(0.3, 3.0, N)[:, None] + [0.0, 1.0, 2.0]
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.2 * rng.normal(size=N)
    return (sp.csr_matrix(np.where(np.abs(X) > 0.7, X, 0.0)) if sparse else X), y


def hinge(fitted, X, y):
    return -np.mean(np.maximum(1.0 - y * fitted.decision_function(X), 0.0))


def check_score(estimator, space, X, y, rtol):
    """Search, then refit the plain estimator with the selected values in every fold."""
    scoring = hinge if is_classifier(estimator) else "neg_mean_squared_error"
    criterion = "hinge" if is_classifier(estimator) else "squared"
    search = BilevelSearchCV(estimator, space, cv=CV, criterion=criterion).fit(X, y)
    plain = clone(estimator).set_params(**search.best_params_)
    np.testing.assert_allclose(
        search.best_score_, cross_val_score(plain, X, y, cv=CV, scoring=scoring).mean(), rtol
    )
    return search


WAYS = {
    "bare": (False, ()),
    "standardised": (False, (StandardScaler(),)),
    "ranged": (False, (MinMaxScaler(),)),
    "sparse": (True, ()),
    "sparse, scaled": (True, (MaxAbsScaler(),)),
}
NUMBERS = [0.3, np.float64(0.2), np.float32(0.2), np.int64(1), 0]
GAMMAS = {
    "SVC": ["scale", "auto", *NUMBERS],
    "SVR": ["scale", "auto", *NUMBERS],
    "KernelRidge": [None, *NUMBERS],
    "poly SVR": ["scale", "auto", np.float32(0.2)],
    "poly KernelRidge": [None, np.float32(0.2)],
}
TABLE = [(machine, gamma, way) for machine in GAMMAS for gamma in GAMMAS[machine] for way in WAYS]


@pytest.mark.parametrize(("machine", "gamma", "way"), TABLE)
def test_gamma_is_what_scikit_learn_makes_of_it(machine, gamma, way):
    sparse, steps = WAYS[way]
    X, y = data(sparse)
    ridge = machine.endswith("KernelRidge")
    kernel = "poly" if machine.startswith("poly") else "rbf"
    kind = KernelRidge if ridge else SVC if machine == "SVC" else SVR
    options = {"coef0": 1.0, "degree": 2, "kernel": kernel, "gamma": gamma}
    last = kind(**options) if ridge else kind(tol=1e-9, **options)
    y = np.where(y > np.median(y), 1, -1) if kind is SVC else y
    estimator = make_pipeline(*steps, last) if steps else last
    prefix = f"{kind.__name__.lower()}__" if steps else ""
    space = {f"{prefix}alpha": (0.1, 10)} if ridge else {f"{prefix}C": (0.1, 5)}
    search = check_score(estimator, space, X, y, 1e-6 if ridge else 2e-5)
    final = search.best_estimator_[-1] if steps else search.best_estimator_
    assert (type(final.gamma), final.gamma) == (type(gamma), gamma)  # the final fit resolves it on all rows
    if gamma == "scale":
        whole = search.best_estimator_[:-1].transform(X) if steps else X
        assert final._gamma == pytest.approx(scale_width(whole))


def test_svr_on_diabetes_reports_its_true_error():
    X, y = load_diabetes(return_X_y=True)
    estimator = make_pipeline(StandardScaler(), SVR())
    search = BilevelSearchCV(estimator, {"svr__C": (0.1, 1e3)}).fit(X, y)
    plain = clone(estimator).set_params(**search.best_params_)
    true = cross_val_score(plain, X, y, cv=5, scoring="neg_mean_squared_error").mean()
    assert search.best_score_ == pytest.approx(true, rel=1e-5)


def test_scale_of_constant_rows_is_one():
    assert scale_width(np.full((5, 3), 2.0)) == 1.0
    assert scale_width(sp.csr_matrix((5, 3))) == 1.0


def test_stages_on_a_sample_have_widths_of_their_own_folds(rng):
    X = rng.normal(size=(820, 2))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=820) > 0, 1, -1)
    search = check_score(SVC(tol=1e-6), {"C": (0.1, 10)}, X, y, 1e-4)
    assert search.result_.details["sample_evaluations"] > 0


OTHERS = {
    "SVC, an integer C": (SVC(C=2), {"gamma": (0.01, 1)}),
    "SVC, a NumPy C": (SVC(C=np.float32(2)), {"gamma": (0.01, 1)}),
    "SVC, poly": (SVC(kernel="poly", degree=np.int64(2), coef0=np.float32(0.5)), {"C": (0.01, 1)}),
    "SVC, poly without coef0": (SVC(kernel="poly", gamma=0.3), {"C": (0.01, 1)}),
    "SVC, linear": (SVC(kernel="linear"), {"C": (0.01, 1)}),
    "SVC, options of prediction": (
        SVC(shrinking=False, break_ties=True, decision_function_shape="ovr"),
        {"C": (0.1, 5)},
    ),
    "SVR, a NumPy epsilon": (SVR(epsilon=np.float32(0.2)), {"C": (0.1, 5)}),
    "SVR, an integer epsilon": (SVR(epsilon=0), {"C": (0.1, 5)}),
    "KernelRidge, an integer alpha": (KernelRidge(alpha=2, kernel="rbf"), {"gamma": (0.01, 1)}),
    "KernelRidge, an array": (KernelRidge(alpha=np.array([0.5]), kernel="rbf"), {"gamma": (0.01, 1)}),
    "KernelRidge, a float degree": (KernelRidge(kernel="polynomial", degree=2.0), {"alpha": (0.1, 10)}),
    "KernelRidge, unused options": (KernelRidge(kernel_params={"a": 1}), {"alpha": (0.1, 10)}),
    "LogisticRegression, liblinear": (
        LogisticRegression(solver="liblinear", intercept_scaling=2.5, tol=1e-10),
        {"C": (0.1, 5)},
    ),
    "LogisticRegression, newton": (LogisticRegression(solver="newton-cholesky", tol=1e-12), {"C": (0.1, 5)}),
    "LogisticRegression, C=inf": (LogisticRegression(C=np.inf, tol=1e-10), {"C": (0.1, 5)}),
    "LogisticRegression, no intercept": (LogisticRegression(fit_intercept=False, tol=1e-10), {"C": (0.1, 5)}),
    "Ridge, an array": (Ridge(alpha=[2.0]), {"alpha": (0.1, 10)}),
    "Ridge, another solver": (Ridge(solver="lsqr", tol=1e-12), {"alpha": (0.1, 10)}),
    "LinearSVC, intercept": (
        LinearSVC(intercept_scaling=np.float32(3), dual=False, tol=1e-10, max_iter=10**5),
        {"C": (0.01, 1)},
    ),
    "LinearSVC, no intercept": (LinearSVC(fit_intercept=False, dual=False, tol=1e-10), {"C": (0.01, 1)}),
    "LinearSVR": (
        LinearSVR(
            loss="squared_epsilon_insensitive", epsilon=0.1, intercept_scaling=2, dual=False, tol=1e-12
        ),
        {"C": (0.01, 1)},
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_settings_are_honoured(name):
    estimator, space = OTHERS[name]
    X, y = data()
    y = np.where(y > np.median(y), 1, -1) if is_classifier(estimator) else y
    if type(estimator) in (SVC, SVR):
        estimator = clone(estimator).set_params(tol=1e-9)
    check_score(estimator, space, X, y, 2e-5 if type(estimator) in (SVC, SVR) else 1e-6)


@pytest.mark.parametrize(
    ("estimator", "space", "message"),
    [
        (SVC(gamma="wide"), ["C"], "cannot be fitted .* 'gamma' parameter of SVC"),
        (SVC(gamma=None), ["C"], "'gamma' parameter of SVC"),
        (SVC(gamma=np.array(0.3)), ["C"], "'gamma' parameter of SVC"),
        (SVC(gamma=np.nan), ["C"], "'gamma' parameter of SVC"),
        (KernelRidge(kernel="rbf", gamma="scale"), ["alpha"], "'gamma' parameter of KernelRidge"),
        (SVC(kernel="sigmoidal"), ["C"], "'kernel' parameter of SVC"),
        (SVC(kernel="poly", degree=0), ["C"], "degree must be a positive integer"),
        (SVC(kernel="poly", coef0=-1.0), ["C"], "coef0 must be finite and not negative"),
        (KernelRidge(kernel="poly", degree=2.5), ["alpha"], "degree must be a positive integer"),
        (KernelRidge(kernel="rbf", alpha=0), ["gamma"], "alpha must be positive"),
        (KernelRidge(kernel="rbf", alpha=[1.0, 2.0]), ["gamma"], "alpha has 2 entries"),
        (SVC(C=-1), ["gamma"], "'C' parameter of SVC"),
        (SVC(C=np.inf), ["gamma"], "C must be positive and finite"),
        (SVC(tol=-1), ["C"], "'tol' parameter of SVC"),
        (LogisticRegression(dual=True), ["C"], "dual=False"),
        (LogisticRegression(solver="liblinear", intercept_scaling=0), ["C"], "intercept_scaling"),
        (LinearSVC(intercept_scaling=0), ["C"], "intercept_scaling"),
        (Ridge(solver="lbfgs"), ["alpha"], "'lbfgs' solver can be used only when positive=True"),
        (LinearSVR(loss="squared_epsilon_insensitive", epsilon=-1), ["C"], "cannot be fitted"),
        (make_pipeline(FunctionTransformer(), SVC(kernel="precomputed")), ["svc__C"], "earlier steps"),
        (make_pipeline(FunctionTransformer(), KernelSVC("precomputed")), ["kernelsvc__C"], "earlier steps"),
    ],
    ids=lambda value: repr(value)[:60] if not isinstance(value, str) else "",
)
def test_settings_that_cannot_be_honoured_are_refused_before_any_work(estimator, space, message):
    X, y = data()
    y = np.where(y > np.median(y), 1, -1) if is_classifier(estimator) else y
    if "precomputed" in repr(estimator):
        X = RBF(0.3)(X, X)
    seen = []
    with pytest.raises(ValueError, match=message):
        BilevelSearchCV(estimator, space, cv=CV, callbacks=[seen.append]).fit(X, y)
    assert not seen


def test_a_solver_that_takes_no_sparse_rows_is_refused_before_any_work():
    X, y = data(sparse=True)
    with pytest.raises(ValueError, match=r"sparse rows with these settings: .*solver='svd'"):
        BilevelSearchCV(Ridge(solver="svd"), cv=CV).fit(X, y)


def test_a_setting_that_is_tuned_may_be_anything():
    X, y = data()
    space = {"C": (0.1, 10), "gamma": (0.01, 1)}
    found = [BilevelSearchCV(SVR(gamma=g), space, cv=CV).fit(X, y).best_params_ for g in ("scale", 0.1, None)]
    assert found[0] == found[1] == found[2]


def test_weights_of_many_classes_are_rehearsed(rng):
    y = np.repeat(np.arange(10), 4)
    X = rng.normal(size=(40, 2)) + np.stack([y % 4, y // 4], axis=1)
    estimator = SVC(class_weight={8: 2.0, 9: 3.0})
    search = BilevelSearchCV(estimator, {"C": (0.1, 5)}, cv=2, method="grid", method_options={"points": 2})
    assert np.isfinite(search.fit(X, y).best_score_)
