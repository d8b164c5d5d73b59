"""Every method with every model and every criterion: what is allowed keeps its promises, the rest is refused at once.

Methods, losses and criteria come from their registries, so that a new one is tried with everything that is there.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC

from foldwise import (
    RBF,
    BilevelSearchCV,
    KernelSVC,
    KernelSVR,
    Lin,
    LinearSVC,
    LinearSVR,
    Log,
    SemiparametricSVR,
)
from foldwise.criteria import ProfiledLogistic
from foldwise.estimators.adapters import ADAPTERS, OURS, describe
from foldwise.losses import CRITERIA, LOSSES, Logistic, get_loss
from foldwise.optimizers import METHODS
from foldwise.result import Status

N, D = 18, 2
LINEAR, KERNEL = (LinearSVC, LinearSVR), (KernelSVC, KernelSVR)
FEW = {
    "grid": {"points": 2},
    "constrained_grid": {"points": 2, "max_features": 1},
    "random": {"n_iter": 3},
    "mpec": {"max_iter": 40},
    "slams": {"rounds": 1, "max_iter": 10},
}
"""Options that keep a method short; others take max_iter."""


def models():
    """One estimator per machine and loss, with boxes on one more of each linear kind."""
    out = {}
    for kind in (*LINEAR, *KERNEL):
        for name in LOSSES:
            if (get_loss(name).task == "classification") == is_classifier(kind()):
                out[f"{kind.__name__}-{name}"] = kind(loss=name)
    out["SemiparametricSVR"] = SemiparametricSVR([0])
    for kind in (*OURS, *ADAPTERS):
        if kind.__module__.startswith("sklearn"):
            loss = {"loss": "squared_epsilon_insensitive"} if kind.__name__ == "LinearSVR" else {}
            out[f"sklearn-{kind.__name__}"] = kind(**loss)
    return out


MODELS = models()


def data(task):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(N, D))
    z = X[:, 0] - 0.5 * X[:, 1] ** 2 + 0.5 * rng.normal(size=N)
    return X, (z > np.median(z)).astype(int) if task == "classification" else z


def loss_of(estimator):
    own = getattr(estimator, "_loss", None)
    return own() if own is not None else None


def is_exact(estimator):
    loss = loss_of(estimator)
    return type(estimator).__name__ in ("SVC", "SVR", "SemiparametricSVR") or (
        loss is not None and loss.polyhedral
    )


def is_linear(estimator):
    linear = ("LinearSVC", "LinearSVR", "Ridge", "RidgeClassifier", "LogisticRegression")
    return type(estimator).__name__ in linear


def refused(method, estimator, criterion):
    """Why docs/methods.md does not allow this triple; "" when it does. A new method is allowed everything."""
    task = describe(estimator).task
    loss = CRITERIA[criterion]()
    if task == "regression" and loss.task == "classification":
        return "a criterion of classes"
    if METHODS[method].needs_gradient and (describe(estimator).refitted or not loss.differentiable):
        return "no gradient"
    if method in ("mpec", "slams"):
        program = ("hinge", "misclassification") if task == "classification" else ("absolute",)
        ours = isinstance(estimator, LINEAR) and estimator.loss in ("hinge", "epsilon_insensitive")
        return "" if ours and is_exact(estimator) and criterion in program else "not its program"
    if method == "pbp" and not (is_linear(estimator) and not is_exact(estimator)):
        return "not its program"
    if method == "constrained_grid":
        return "no boxes"
    return ""


def search_of(method, estimator, criterion, space=None):
    options = dict(FEW.get(method, {}))
    evaluations = []
    limits = {} if method in FEW else {"max_iter": 3}
    search = BilevelSearchCV(
        estimator,
        space,
        method=method,
        criterion=criterion,
        cv=2,
        method_options=options,
        callbacks=[evaluations.append],
        random_state=0,
        refit=False,
        **limits,
    )
    return search, evaluations


def check(search, evaluations):
    """At or below the start, within the bounds, and a status that its own numbers bear out."""
    result, space = search.result_, search.space_
    theta = np.array(result.theta)
    assert evaluations
    assert result.objective <= result.objective_start * (1 + 1e-9)
    assert np.isfinite(result.objective)
    assert np.all(theta >= space.lower - 1e-12 * (1 + np.abs(theta)))
    assert np.all(theta <= space.upper + 1e-12 * (1 + np.abs(theta)))
    assert result.message
    assert len(result.history) == result.n_evaluations
    assert result.tolerances["kkt"] == 1e-5
    assert result.tolerances["promised_decrease"] <= 1e-2
    if result.status is Status.CONVERGED:
        assert max(result.kkt) <= 1e-5
        assert result.promised_decrease <= result.tolerances["promised_decrease"]
    if result.status is Status.UNSOLVED:
        assert max(result.kkt) > 1e-5


def check_refused(search, evaluations, X, y, words=None):
    """A sentence that says why, before any evaluation."""
    with pytest.raises(ValueError, match=words) as error:
        search.fit(X, y)
    assert not evaluations, f"refused after {len(evaluations)} evaluations"
    assert len(str(error.value).split()) >= 8, str(error.value)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", MODELS)
def test_every_method_with_every_model_and_criterion(method, model):
    estimator = MODELS[model]
    X, y = data(describe(estimator).task)
    for criterion in CRITERIA:
        search, evaluations = search_of(method, estimator, criterion)
        why = refused(method, estimator, criterion)
        if why:
            check_refused(search, evaluations, X, y)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            search.fit(X, y)
        check(search, evaluations)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "loss", ["hinge", "epsilon_insensitive", "squared_hinge", "squared_epsilon_insensitive"]
)
def test_every_method_with_boxes(method, loss):
    classes = "hinge" in loss
    estimator = LinearSVC(loss) if classes else LinearSVR(loss)
    X, y = data(describe(estimator).task)
    criterion = "hinge" if classes else "absolute"
    search, evaluations = search_of(
        method, estimator, criterion, {"C": Log(1e-2, 1e2), "box": Lin(0, 2, per="feature")}
    )
    exact = not loss.startswith("squared")
    if method == "pbp" or (method in ("mpec", "slams") and not exact):
        check_refused(search, evaluations, X, y, method)
        return
    search.fit(X, y)
    check(search, evaluations)
    assert np.all(search.best_params_["box"] >= 0)
    assert np.all(search.best_params_["box"] <= 2)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_a_width_per_feature(method):
    estimator = KernelSVC(RBF(ard=True), loss="hinge")
    X, y = data("classification")
    search, evaluations = search_of(method, estimator, "hinge")
    if method in ("slams", "pbp", "constrained_grid"):
        check_refused(search, evaluations, X, y, method)
        return
    search.fit(X, y)
    check(search, evaluations)


def test_machines_of_the_registry_are_all_tried():
    tried = {type(estimator) for estimator in MODELS.values()}
    assert tried >= {*OURS, *ADAPTERS}
    assert {Ridge, LogisticRegression} <= tried


@pytest.mark.parametrize("kind", [SVC, KernelSVC])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_usual_criterion_is_one_that_the_method_follows(kind):
    # The one of kernel machines is a function of all rows together, which the bundle method does not follow.
    search, _ = search_of("bundle", kind(), "auto", ["C"])
    search.fit(*data("classification"))
    assert search.criterion_ == Logistic(s=2.0)
    other, _ = search_of("newton", kind(), "auto", ["C"])
    assert isinstance(other.fit(*data("classification")).criterion_, ProfiledLogistic)
    with pytest.raises(ValueError, match="one of all rows together"):
        search_of("bundle", kind(), "profiled_logistic", ["C"])[0].fit(*data("classification"))
