"""The final fit: interrupted or failing it loses nothing of the search; how long it may take is said before."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from foldwise import RBF, BilevelSearchCV, KernelSVC, LinearSVC, LinearSVR, SemiparametricSVR
from foldwise.result import Result

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
