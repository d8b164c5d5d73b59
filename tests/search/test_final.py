"""The final fit: interrupted or failing it loses nothing of the search; how long it may take is said before."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from sklearn import svm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.svm._base import BaseLibSVM

from foldwise import (
    RBF,
    BilevelSearchCV,
    KernelSVC,
    Lin,
    LinearSVC,
    LinearSVR,
    Log,
    SemiparametricSVR,
    fit_time,
)
from foldwise.result import Result
from foldwise.solvers import libsvm

rng = np.random.default_rng(1)
X = rng.normal(size=(60, 3))
Y = X[:, 0] + 0.3 * rng.normal(size=60)
LABELS = np.where(Y > 0, "yes", "no")


class Breaks:
    """Raises in the fit to all rows, and nowhere else."""

    def __init__(self, error):
        self.error = error

    def __call__(self, monkeypatch, kind):
        whole = kind.fit

        def fit(estimator, X, y, **params):
            if len(y) == 60:
                raise self.error
            return whole(estimator, X, y, **params)

        monkeypatch.setattr(kind, "fit", fit)


def values(params):
    return {name: np.asarray(value).tolist() for name, value in params.items()}


@pytest.mark.parametrize("estimator", [LinearSVR(), make_pipeline(StandardScaler(), LinearSVC())], ids=str)
def test_ctrl_c_in_the_final_fit_keeps_the_finished_search(estimator, monkeypatch):
    y = Y if isinstance(estimator, LinearSVR) else LABELS
    whole = BilevelSearchCV(estimator, cv=3).fit(X, y)
    Breaks(KeyboardInterrupt())(monkeypatch, LinearSVR if y is Y else LinearSVC)
    with pytest.warns(
        RuntimeWarning, match=r"the final fit was interrupted; the search is complete.*refit_params_\)"
    ):
        search = BilevelSearchCV(estimator, cv=3).fit(X, y)
    monkeypatch.undo()
    assert values(search.best_params_) == values(whole.best_params_)
    assert search.best_score_ == whole.best_score_
    assert len(search.cv_results_["params"]) == len(whole.cv_results_["params"])
    assert not hasattr(search, "best_estimator_")
    assert not hasattr(search, "refit_time_")
    for use in (lambda: search.predict(X), lambda: search.score(X, y)):
        with pytest.raises(NotFittedError, match="the final fit was interrupted; the search is complete"):
            use()
    assert "final fit was interrupted" in Result.from_json(search.result_.to_json()).warnings[-1]
    # What the warning advises gives the estimator that was lost.
    model = clone(search.estimator).set_params(**search.refit_params_).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))
    assert not hasattr(search.fit(X[:, :2], y).result_, "lost")
    assert hasattr(search, "best_estimator_")
    assert search.predict(X[:, :2]).shape == (60,)


@pytest.mark.parametrize(
    "error", [MemoryError(), ValueError("no"), np.linalg.LinAlgError("singular")], ids=repr
)
def test_an_error_in_the_final_fit_is_raised_and_keeps_the_search(error, monkeypatch):
    Breaks(error)(monkeypatch, LinearSVC)
    search = BilevelSearchCV(LinearSVC(), cv=3)
    with pytest.raises(type(error)) as caught:
        search.fit(X, LABELS)
    assert caught.value is error
    assert f"the final fit failed with {type(error).__name__}; the search is complete" in error.__notes__[-1]
    assert set(search.best_params_) == {"C"}
    assert search.cv_results_["mean_test_score"].max() == search.best_score_
    with pytest.raises(NotFittedError, match="final fit failed"):
        search.predict(X)
    # A later fit that fails before its search is over leaves nothing of this one.
    with pytest.raises(ValueError, match="constant"):
        search.fit(np.ones_like(X), LABELS)
    assert not [name for name in vars(search) if name.endswith("_") or name == "_unfinished"]


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (LinearSVR(), Y),
        (SemiparametricSVR([0]), Y),
        (KernelSVC(RBF(ard=True)), LABELS),
        (KernelSVC("rbf"), LABELS),
        (SVC(), LABELS),
        (make_pipeline(StandardScaler(), KernelSVC()), LABELS),
    ],
    ids=str,
)
def test_the_values_without_a_final_fit_make_the_same_machine(estimator, y):
    search = BilevelSearchCV(estimator, cv=3, refit=False, max_iter=3).fit(X, y)
    fitted = BilevelSearchCV(estimator, cv=3, max_iter=3).fit(X, y)
    model = clone(estimator).set_params(**search.refit_params_).fit(X, y)
    decide = "predict" if y is Y else "decision_function"
    np.testing.assert_allclose(getattr(model, decide)(X), getattr(fitted, decide)(X), rtol=1e-5, atol=1e-6)


FAR = 1e6 + rng.uniform(size=(40, 3))
CURVE = FAR[:, 0] * FAR[:, 1] - 1e12 + 0.01 * rng.normal(size=40)
CURVE = (CURVE - CURVE.mean()) / CURVE.std()
UNSOLVED = {
    "distances lose digits far from zero": (SVR(C=1e3, gamma=1.0, epsilon=0.01), FAR, CURVE),
    "also those of kernel ridge": (KernelRidge(kernel="rbf", alpha=1e-3, gamma=1.0), FAR, CURVE),
    "two classes": (SVC(C=1e4, gamma=1.0), FAR, CURVE > 0),
    "tol is larger than the target": (SVR(C=1e-6, epsilon=1e-8), X, 1e-6 * Y),
    "kernels in single precision": (SVC(kernel="poly", gamma=1.0, coef0=1.0), 20 + 0.1 * X, LABELS),
    "three classes": (SVC(C=1e4, gamma=1.0), FAR, np.digitize(CURVE, [-0.5, 0.5])),
}


@pytest.mark.parametrize("case", UNSOLVED)
def test_a_final_machine_that_is_not_the_one_valued_is_said_to_be_so(case):
    """The plain machine's error, refitted fold by fold, is not what the search reports: then it must say so."""
    machine, rows, y = UNSOLVED[case]
    tuned = "alpha" if isinstance(machine, KernelRidge) else "C"
    near = {tuned: Log(0.99 * getattr(machine, tuned), 1.01 * getattr(machine, tuned))}
    search = BilevelSearchCV(machine, near, cv=3, max_iter=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(rows, y)
    words = str(caught[-1].message)
    assert "the final fit by scikit-learn's" in words
    assert "did not solve its training problem" in words
    assert search.result_.warnings[-1] == words
    scaled = BilevelSearchCV(make_pipeline(StandardScaler(), clone(machine).set_params(**{tuned: 1.0})), cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaled.fit(rows, y / np.std(y) if y.dtype.kind == "f" else y)


@pytest.mark.parametrize(
    "machine", [SVC(), SVC(class_weight="balanced", kernel="linear"), SVR(), SVR(kernel="linear")]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_final_machine_that_is_solved_is_met_with_silence(machine, weighted):
    y = Y if isinstance(machine, SVR) else np.digitize(Y, [-0.5, 0.5])
    w = np.where(np.arange(60) % 7, rng.uniform(0.5, 2.0, 60), 0.0) if weighted else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search = BilevelSearchCV(machine, cv=3).fit(X, y, sample_weight=w)
    assert not any("final fit" in words for words in search.result_.warnings)


def test_a_final_fit_that_would_not_end_does(monkeypatch):
    """LIBSVM's own limit of iterations holds where the user sets none; the parameter stays as it was."""
    monkeypatch.setattr(fit_time, "LIMIT", 1000)
    monkeypatch.setattr(fit_time, "PER_ROW", 1)
    far = 100.0 * X
    search = BilevelSearchCV(SVR(kernel="poly", gamma=1.0), {"epsilon": Lin(0, 1)}, cv=3, max_iter=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(far, Y)
    assert any("Solver terminated early (max_iter=1000)" in str(one.message) for one in caught)
    assert search.best_estimator_.max_iter == -1
    assert search.best_estimator_.n_iter_ == 1000


SMALL = Log(1e-6, 1e-4)
WITH_LIBSVM = {
    "classes": (SVC(), {"C": SMALL}, {"method": "grid", "method_options": {"points": 2}}, LABELS),
    "a tube": (SVR(), {"C": SMALL}, {"method": "grid", "method_options": {"points": 2}}, Y),
    "our own": (KernelSVC(loss="hinge"), {"C": SMALL}, {"max_iter": 2}, LABELS),
    "a time limit": (
        make_pipeline(StandardScaler(), SVC()),
        {"svc__C": Log(1, 2)},
        {"max_time": 60.0},
        LABELS,
    ),
}


@pytest.mark.parametrize("case", WITH_LIBSVM.values(), ids=WITH_LIBSVM)
def test_libsvm_is_never_left_without_a_limit(case, monkeypatch):
    """scikit-learn sets none, and where kernels are huge it goes on for ever: in folds, probes, and the final fit."""
    machine, space, options, y = case
    limits, whole = [], BaseLibSVM.fit

    def fit(machine, *given, **more):
        limits.append(machine.max_iter)
        return whole(machine, *given, **more)

    monkeypatch.setattr(BaseLibSVM, "fit", fit)
    monkeypatch.setattr(fit_time, "PROBED_ROWS", 30)
    BilevelSearchCV(machine, space, cv=3, **options).fit(X, y)
    assert limits
    assert min(limits) > 0


def test_an_intercept_that_libsvm_does_not_end_for_is_in_the_middle(monkeypatch):
    def error(machine):
        machine.set_params(class_weight="balanced")  # rounding decides which row LIBSVM leaves free
        return -BilevelSearchCV(machine, {"C": (1e-6, 1.01e-6)}, cv=3, refit=False).fit(X, LABELS).best_score_

    middle, own = error(KernelSVC(loss="hinge", kernel=RBF(0.3))), error(SVC(gamma=0.3))
    monkeypatch.setattr(libsvm, "PATIENCE", 1)
    monkeypatch.setattr(libsvm, "PER_ROW", 0)
    assert error(SVC(gamma=0.3)) == pytest.approx(middle, rel=1e-9)
    assert own != pytest.approx(middle, rel=1e-3)


@pytest.mark.parametrize(
    "machine",
    [
        LogisticRegression(C=1e4, solver="liblinear", tol=0.5),
        svm.LinearSVC(C=1e3, max_iter=20, dual=True, random_state=0),
        svm.LinearSVR(loss="squared_epsilon_insensitive", C=1e3, max_iter=5, dual=True, random_state=0),
        LogisticRegression(C=1e4, solver="liblinear", tol=0.5, class_weight="balanced"),
        svm.LinearSVC(C=1e3, max_iter=20, dual=True, random_state=0, class_weight="balanced"),
        svm.LinearSVC(C=1e3, max_iter=20, dual=True, random_state=0, class_weight={0: 3.0, 2: 0.3}),
    ],
    ids=["a loose tolerance", "few iterations", "regression", "balanced", "three balanced", "three weighted"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_linear_machine_that_stopped_early_is_said_to_have(machine, weighted):
    many = getattr(machine, "class_weight", None) is not None and isinstance(machine, svm.LinearSVC)
    y = np.digitize(Y, [-0.2, 1.0]) if many else Y if isinstance(machine, svm.LinearSVR) else LABELS
    w = np.linspace(0.5, 2.0, 60) if weighted else None
    search = BilevelSearchCV(
        machine, {"C": (0.99 * machine.C, 1.01 * machine.C)}, cv=3, max_iter=1, rescale=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, y, sample_weight=w)
    (words,) = [words for words in search.result_.warnings if "did not solve its training problem" in words]
    # What it says against the same machine, solved.
    off = float(re.search(r"are up to (\S+) off", words)[1])
    solved = clone(machine).set_params(C=search.refit_params_["C"], tol=1e-10, max_iter=100_000)
    if not isinstance(machine, LogisticRegression):
        solved.set_params(dual=False)
    solved.fit(X, y, sample_weight=w)
    decide = "predict" if isinstance(machine, svm.LinearSVR) else "decision_function"
    gap = getattr(solved, decide)(X) - getattr(search.best_estimator_, decide)(X)
    assert off == pytest.approx(np.max(np.abs(gap)), rel=0.05)


@pytest.mark.parametrize("far", [0.0, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, float])
def test_rounding_as_large_as_the_residuals_is_said(far, dtype):
    """Ridge keeps rows in single precision: a far target has no digits left for residuals of a hundredth."""
    rows = X.astype(dtype)
    y = far + rows[:, 0].astype(float) + 0.01 * np.random.default_rng(0).normal(size=60)
    search = BilevelSearchCV(Ridge(), {"alpha": (1e-3, 1e-2)}, cv=3).fit(rows, y)
    plain = -cross_val_score(
        Ridge(**search.best_params_), rows, y, cv=3, scoring="neg_mean_squared_error"
    ).mean()
    other = abs(plain + search.best_score_) > 0.1 * plain
    assert other == (far > 0 and dtype == np.float32)
    assert any("give rows in double precision" in words for words in search.result_.warnings) == other


@pytest.mark.parametrize(
    "machine",
    [
        LogisticRegression(),
        LogisticRegression(class_weight="balanced"),
        svm.LinearSVC(dual=False),
        svm.LinearSVC(dual=False, class_weight={0: 5.0, 2: 0.2}),
        svm.LinearSVC(dual=False, class_weight="balanced"),
        Ridge(),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_linear_machine_that_is_solved_is_met_with_silence(machine):
    many = isinstance(machine, svm.LinearSVC) and machine.class_weight is not None
    y = Y if isinstance(machine, Ridge) else np.digitize(Y, [-0.2, 1.0]) if many else LABELS
    search = BilevelSearchCV(machine, cv=3).fit(X, y)
    assert not any("final fit" in words for words in search.result_.warnings)
