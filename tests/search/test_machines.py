"""scikit-learn's machines in settings of their own, and inside its wrappers.

What is reported is what refitting the user's estimator fold by fold gives, and gradients are those of differences.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectKBest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import KFold, cross_val_score
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR

from foldwise import BilevelSearchCV, KernelSVC, Lin, Log
from foldwise import LinearSVR as LinearSVRs
from foldwise.losses import Logistic
from foldwise.nesting import innermost
from foldwise.testing.refits import criterion_values

CV = KFold(3, shuffle=True, random_state=0)
MSE = "neg_mean_squared_error"


def regression(targets=1):
    X, y = load_diabetes(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:90]
    X = StandardScaler().fit_transform(X[rows])
    Y = np.column_stack([y[rows], 0.3 * y[rows] + 40.0 * X[:, 0] ** 2])
    return X, Y[:, 0] if targets == 1 else Y


def classes(count=2):
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X) + 0.8 * np.random.default_rng(1).normal(size=X.shape)
    keep = y > 0 if count == 2 else y >= 0
    return X[keep], np.array(["a", "b", "c"])[y[keep]]


def solved(estimator):
    """The same with its own solver at its most accurate."""
    estimator = clone(estimator)
    machine = innermost(estimator)
    own = machine.get_params()
    finer = {"tol": 1e-9, "max_iter": 1_000_000}
    machine.set_params(**{name: value for name, value in finer.items() if name in own})
    return estimator


def one_against_the_rest(criterion):
    """The mean over machines of one class against the rest of a loss, as a scorer."""

    def score(fitted, X, y):
        Z = np.atleast_2d(fitted.decision_function(X).T)
        own = fitted.classes_[1:] if len(fitted.classes_) == 2 else fitted.classes_
        parts = [
            criterion_values(criterion, z, np.where(y == label, 1.0, -1.0))
            for z, label in zip(Z, own, strict=True)
        ]
        return -float(np.mean(parts))

    return score


def search_of(estimator, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of scikit-learn's own final fit
        return BilevelSearchCV(estimator, cv=CV, random_state=0, **options).fit(X, y)


def refitted(search, X, y, scoring):
    tuned = solved(clone(search.estimator).set_params(**search.best_params_))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cross_val_score(tuned, X, y, cv=CV, scoring=scoring).mean()


def check_gradient(search, X, y, rtol=1e-5):
    """The hypergradient, away from the answer, against central differences."""
    bilevel = search._prepare(X, y).bilevel
    space = bilevel.space
    theta = space.clip(np.asarray(search.result_.theta) + 0.03 * (space.upper - space.lower))
    theta = np.clip(theta, space.lower + 1e-3, space.upper - 1e-3)
    found = bilevel.differentiate(bilevel.evaluate(theta)).gradient
    for i in range(space.size):
        step = np.zeros(space.size)
        step[i] = 1e-5
        ends = [bilevel.twin().evaluate(theta + sign * step).objective for sign in (1, -1)]
        slope = (ends[0] - ends[1]) / 2e-5
        assert abs(slope) > 1e-9
        np.testing.assert_allclose(found[i], slope, rtol=rtol, atol=rtol * np.abs(found).max())


REGRESSIONS = [
    (Lasso(), None),
    (Lasso(positive=True, fit_intercept=False), None),
    (ElasticNet(), {"alpha": (1e-2, 10), "l1_ratio": Lin(0.2, 0.9)}),
    (ElasticNet(), ["alpha"]),
    (ElasticNet(alpha=0.5), {"l1_ratio": (0.05, 0.95)}),
    (Ridge(positive=True), None),
    (LinearSVR(), None),
    (LinearSVR(epsilon=5.0, intercept_scaling=100.0), {"C": (0.1, 10)}),
    (make_pipeline(StandardScaler(), LinearSVR(fit_intercept=False)), None),
    (make_pipeline(StandardScaler(), make_pipeline(PCA(4), Ridge())), None),
    (TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp), None),
    (TransformedTargetRegressor(LinearSVR(), transformer=PowerTransformer()), None),
    (make_pipeline(StandardScaler(), TransformedTargetRegressor(make_pipeline(PCA(3), Ridge()))), None),
]


@pytest.mark.parametrize(("estimator", "space"), REGRESSIONS, ids=lambda v: " ".join(repr(v).split())[:70])
def test_regressions_are_what_refits_say(estimator, space):
    X, y = regression()
    search = search_of(estimator, X, y, space=space)
    np.testing.assert_allclose(search.best_score_, refitted(search, X, y, MSE), rtol=2e-6)
    check_gradient(search, X, y)
    assert type(search.best_estimator_) is type(estimator)
    assert (
        innermost(search.best_estimator_).get_params().items()
        >= {name.split("__")[-1]: value for name, value in search.refit_params_.items()}.items()
    )


CLASSIFIERS = [
    (RidgeClassifier(), Logistic(s=2.0), 3),
    (RidgeClassifier(positive=True), Logistic(s=2.0), 2),
    (LinearSVC(loss="hinge"), Logistic(s=2.0), 3),
    (LinearSVC(penalty="l1", dual=False), Logistic(s=2.0), 2),
    (LinearSVC(penalty="l1", dual=False, intercept_scaling=10.0), Logistic(s=2.0), 3),
    (LogisticRegression(l1_ratio=1.0, solver="saga"), Logistic(), 2),
    (LogisticRegression(l1_ratio=1.0, solver="liblinear"), Logistic(), 2),
    (OneVsRestClassifier(LogisticRegression()), Logistic(), 3),
    (OneVsRestClassifier(make_pipeline(StandardScaler(), LinearSVC(loss="hinge"))), Logistic(s=2.0), 3),
]


@pytest.mark.parametrize(
    ("estimator", "criterion", "count"), CLASSIFIERS, ids=lambda v: " ".join(repr(v).split())[:70]
)
def test_classifiers_are_what_refits_say(estimator, criterion, count):
    X, y = classes(count)
    search = search_of(estimator, X, y, criterion=criterion)
    np.testing.assert_allclose(
        search.best_score_, refitted(search, X, y, one_against_the_rest(criterion)), rtol=2e-5
    )
    check_gradient(search, X, y, rtol=1e-4)
    assert is_classifier(search.best_estimator_)
    assert search.score(X, y) > 0.6


MULTINOMIAL = [
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression(fit_intercept=False)),
    LogisticRegression(l1_ratio=1.0, solver="saga", C=0.5),
    LogisticRegression(l1_ratio=0.5, solver="saga"),
]


@pytest.mark.parametrize("estimator", MULTINOMIAL, ids=lambda v: " ".join(repr(v).split())[:70])
def test_several_classes_of_a_logistic_regression_are_trained_together(estimator):
    X, y = classes(3)
    search = search_of(estimator, X, y)
    np.testing.assert_allclose(search.best_score_, refitted(search, X, y, "neg_log_loss"), rtol=2e-6)
    check_gradient(search, X, y)
    with pytest.raises(ValueError, match="looks at one class against the rest"):
        BilevelSearchCV(estimator, criterion="hinge").fit(X, y)


def test_wide_multinomial_machines_are_solved_by_conjugate_gradients(monkeypatch):
    X, y = classes(3)
    direct = search_of(LogisticRegression(), X, y)
    monkeypatch.setattr("foldwise.problems.multinomial.DIRECT", 3)
    search = search_of(LogisticRegression(), X, y)
    np.testing.assert_allclose(search.result_.theta, direct.result_.theta, rtol=1e-6)
    check_gradient(search, X, y)


def test_weights_of_rows_and_classes_in_a_mean_of_losses():
    """Lasso divides by the weights of its rows, so that twice the weight of every row changes nothing."""
    X, y = regression()
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    found = [
        BilevelSearchCV(Lasso(), cv=CV).fit(X, y, sample_weight=factor * weight).best_params_["alpha"]
        for factor in (1.0, 2.0)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
    search = BilevelSearchCV(Lasso(), cv=CV, rescale=True).fit(X, y)
    assert search.refit_params_ == search.best_params_
    errors = []
    for train, test in CV.split(X):
        model = Lasso(tol=1e-10, **search.best_params_).fit(X[train], y[train])
        errors.append(np.mean((model.predict(X[test]) - y[test]) ** 2))
    np.testing.assert_allclose(-search.best_score_, np.mean(errors), rtol=1e-8)


SEVERAL = [
    Ridge(),
    Lasso(),
    KernelRidge(kernel="rbf"),
    MultiOutputRegressor(SVR()),
    MultiOutputRegressor(make_pipeline(PCA(4), LinearSVR())),
]


@pytest.mark.parametrize("estimator", SEVERAL, ids=lambda v: " ".join(repr(v).split())[:70])
def test_several_targets_share_their_hyper_parameters(estimator):
    X, Y = regression(targets=2)
    search = search_of(estimator, X, Y)
    exact = isinstance(innermost(estimator), SVR)
    np.testing.assert_allclose(search.best_score_, refitted(search, X, Y, MSE), rtol=1e-3 if exact else 2e-5)
    check_gradient(search, X, Y, rtol=1e-4)
    assert search.predict(X).shape == Y.shape
    assert search.residuals_ is None


PAIRS = [
    (OneVsRestClassifier(SVC()), SVC()),
    (OneVsRestClassifier(SVC(class_weight="balanced")), SVC(class_weight="balanced")),
    (OneVsOneClassifier(SVC()), SVC()),
    (OneVsRestClassifier(KernelSVC()), KernelSVC()),
]


@pytest.mark.parametrize(("estimator", "machine"), PAIRS, ids=lambda v: " ".join(repr(v).split())[:70])
def test_several_classes_inside_a_wrapper(estimator, machine):
    X, y = classes(3)
    criterion = Logistic(s=2.0)
    search = search_of(estimator, X, y, criterion=criterion, criterion_weight=None)
    params = {name.removeprefix("estimator__"): value for name, value in search.best_params_.items()}
    assert set(search.best_params_) == {f"estimator__{name}" for name in params}
    found, names = [], np.unique(y)
    for train, test in CV.split(X):
        sides = [(y == name, np.ones(len(y), bool)) for name in names]
        if isinstance(estimator, OneVsOneClassifier):
            sides = [
                (y == first, (y == first) | (y == second))
                for i, first in enumerate(names)
                for second in names[i + 1 :]
            ]
        for own, taken in sides:
            rows, rest = train[taken[train]], test[taken[test]]
            one = solved(clone(machine).set_params(**params)).fit(X[rows], own[rows].astype(int))
            target = np.where(own[rest], 1.0, -1.0)
            found.append(criterion_values(criterion, one.decision_function(X[rest]), target).mean())
    np.testing.assert_allclose(-search.best_score_, np.mean(found), rtol=1e-3)
    assert search.predict(X).shape == y.shape


def test_a_calibrated_machine_is_valued_by_itself_and_calibrated_at_the_end():
    X, y = classes()
    search = search_of(CalibratedClassifierCV(LinearSVC()), X, y)
    alone = search_of(LinearSVC(), X, y)
    assert search.best_params_["estimator__C"] == alone.best_params_["C"]
    assert any("calibration is fitted in the final fit alone" in words for words in search.result_.warnings)
    assert isinstance(search.best_estimator_, CalibratedClassifierCV)
    np.testing.assert_allclose(search.predict_proba(X).sum(axis=1), 1.0)


def sample_weights(estimator, X, y):
    BilevelSearchCV(estimator, cv=2, max_iter=2).fit(X, y, sample_weight=np.ones(len(y)))


def test_sample_weights_pass_wrappers_that_hand_them_on():
    X, y = regression()
    weight = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    wrapped = TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp)
    search = BilevelSearchCV(make_pipeline(StandardScaler(), wrapped), cv=CV).fit(X, y, sample_weight=weight)
    inner = search.best_estimator_[-1].regressor_
    plain = Ridge(**inner.get_params()).fit(
        search.best_estimator_[:-1].transform(X), np.log(y), sample_weight=weight
    )
    np.testing.assert_allclose(inner.coef_, plain.coef_)
    Xc, yc = classes(3)
    with pytest.raises(ValueError, match="does not hand sample_weight on"):
        sample_weights(OneVsRestClassifier(LinearSVC()), Xc, yc)


def distance(A, B):
    return -np.abs(A[:, None, :] - B[None]).sum(axis=2)


REFITTED = [
    (NuSVR(), MSE, None),
    (NuSVC(), None, None),
    (SVC(kernel="sigmoid"), None, None),
    (KernelRidge(kernel="laplacian"), MSE, None),
    (SVR(kernel=distance), MSE, {"C": Log(0.1, 10)}),
    (OneVsOneClassifier(make_pipeline(StandardScaler(), LinearSVC())), None, None),
    (
        make_pipeline(StandardScaler(), TransformedTargetRegressor(NuSVR(), transformer=StandardScaler())),
        MSE,
        None,
    ),
]


@pytest.mark.parametrize(
    ("estimator", "scoring", "space"), REFITTED, ids=lambda v: " ".join(repr(v).split())[:60].split(" at ")[0]
)
def test_machines_without_gradients_are_refitted_and_say_so(estimator, scoring, space):
    X, y = regression() if scoring else classes(3)
    options = {"method": "random", "max_iter": 4}
    search = search_of(estimator, X, y, space=space, **options)
    assert any("tuned without gradients" in words for words in search.result_.warnings)
    if scoring:
        tuned = clone(estimator).set_params(**search.best_params_)
        np.testing.assert_allclose(
            search.best_score_, cross_val_score(tuned, X, y, cv=CV, scoring=scoring).mean()
        )
    assert search.predict(X).shape == y.shape
    with pytest.raises(ValueError, match="Use method='grid' or 'random'"):
        BilevelSearchCV(estimator, space, method="newton").fit(X, y)
    assert BilevelSearchCV(estimator, cv=2)._prepare(X, y).bilevel.criterion.differentiable is False


def test_a_nu_that_the_classes_do_not_allow_is_passed_over():
    X, y = classes()
    rare = np.flatnonzero(y == "b")[:25].tolist() + np.flatnonzero(y == "c").tolist()
    search = search_of(NuSVC(), X[rare], y[rare], method="grid", space={"nu": (0.1, 0.9)})
    scores = search.cv_results_["mean_test_score"]
    assert np.isnan(scores).any() or np.isinf(scores).any()
    assert search.best_params_["nu"] < 0.7
    assert np.isfinite(search.best_score_)


def test_steps_that_learn_from_the_target_are_refused_inside_wrappers():
    X, y = classes(3)
    with pytest.raises(
        ValueError, match="SelectKBest learns from the target, which OneVsRestClassifier changes"
    ):
        BilevelSearchCV(OneVsRestClassifier(make_pipeline(SelectKBest(k=2), LinearSVC()))).fit(X, y)
    BilevelSearchCV(make_pipeline(SelectKBest(k=2), OneVsRestClassifier(LinearSVC())), max_iter=2, cv=2).fit(
        X, y
    )


def test_metrics_are_of_the_target_before_its_transformation():
    X, y = regression()
    wrapped = TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp)
    search = search_of(wrapped, X, y, scoring="neg_mean_absolute_error")
    tuned = clone(wrapped).set_params(**search.best_params_)
    again = cross_val_score(tuned, X, y, cv=CV, scoring="neg_mean_absolute_error").mean()
    np.testing.assert_allclose(search.best_score_, again, rtol=1e-6)
    X, Y = regression(targets=2)
    with pytest.raises(ValueError, match="needs one target; y has 2 columns"):
        BilevelSearchCV(Ridge(), scoring="r2").fit(X, Y)


def test_metrics_of_machines_that_are_refitted():
    X, y = classes(3)
    search = search_of(
        NuSVC(), X, y, scoring="accuracy", method="random", max_iter=5, return_train_score=True
    )
    tuned = clone(search.estimator).set_params(**search.best_params_)
    np.testing.assert_allclose(search.best_score_, cross_val_score(tuned, X, y, cv=CV).mean())
    assert np.nanmax(search.cv_results_["mean_train_score"]) > 0.6


def test_our_machines_with_an_l1_norm_and_a_smooth_loss():
    X, y = regression()
    n = len(y)
    ours = LinearSVRs("squared", C=1.0, lam=2 * n * 3.0, penalty="l1").fit(X, y)
    theirs = Lasso(alpha=3.0, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-8)
    assert np.array_equal(ours.coef_ == 0, theirs.coef_ == 0)
    assert (ours.coef_ == 0).any()
    space = {"C": (1e-4, 1e2), "l1_ratio": (0.1, 1.0)}
    search = search_of(LinearSVRs("squared", penalty="elasticnet"), X, y, space=space)
    np.testing.assert_allclose(search.best_score_, refitted(search, X, y, MSE), rtol=1e-8)
    check_gradient(search, X, y)


def test_the_intercept_is_solved_also_where_the_l1_norm_holds_every_weight():
    """The force that holds weights at zero may be huge; the slope of the intercept is not compared with it."""
    X, y = regression()
    search = search_of(
        Lasso(), X, y, space={"alpha": Log(1e8, 1e9)}, method="grid", method_options={"points": 2}
    )
    means = [np.mean((y[test] - y[train].mean()) ** 2) for train, test in CV.split(X)]
    np.testing.assert_allclose(-search.best_score_, np.mean(means), rtol=1e-10)
