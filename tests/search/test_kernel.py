"""BilevelSearchCV on kernel machines: its numbers are those of explicit fits in the folds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from foldwise import (
    RBF,
    BilevelSearchCV,
    ExpChi2,
    KernelSVC,
    KernelSVR,
    Lin,
    Linear,
    Log,
    Logistic,
    Polynomial,
    Precomputed,
    Squared,
    Sum,
)
from foldwise.criteria import ProfiledLogistic
from foldwise.estimators.adapters import describe
from foldwise.testing import check_hypergradient
from tests.makers import waves
from tests.referees import class_shares, fold_decisions, fold_errors


# In older versions of scikit-learn one check draws fewer rows of a class than the search has folds.
@pytest.mark.filterwarnings("ignore:The least populated class in y:UserWarning")
@parametrize_with_checks([BilevelSearchCV(KernelSVC()), BilevelSearchCV(KernelSVR(), cv=3)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def regression(n=75, d=4, seed=0):
    return waves(n, d, seed, spread=np.linspace(0.7, 1.5, d))


def classification(n=75, d=4, seed=0):
    X, y = regression(n, d, seed)
    return X, np.where(y > 0.1, "yes", "no")


def data(estimator):
    return classification() if is_classifier(estimator) else regression()


def explicit(search, X, y, weight=None, columns=False, exact=True):
    """The criterion in every fold from fits of the estimator itself, and nothing of the search.

    ``columns``: X is a kernel matrix, whose columns are split too. ``exact``: our own exact machines stand for
    scikit-learn's, which keep the kernel in single precision.
    """
    tunable = describe(search.estimator)
    classes = np.unique(y) if is_classifier(search.estimator) else None
    out = []
    for train, test in check_cv(search.cv, y, classifier=classes is not None).split(X, y):
        model = clone(search.estimator).set_params(**search.best_params_)
        steps, last = (model[:-1], model[-1]) if isinstance(model, Pipeline) else (None, model)
        head, tail = (X.iloc[train], X.iloc[test]) if hasattr(X, "iloc") else (X[train], X[test])
        if columns:
            head, tail = head[:, train], tail[:, train]
        if steps is not None:
            head = steps.fit_transform(head, y[train])
            tail = steps.transform(tail)
        w, v = (None, np.ones(len(test))) if weight is None else (weight[train], weight[test])
        v = v * class_shares(tunable.estimator, y[train], y[test], w)  # fixed ones; not those that are tuned
        if classes is not None and len(classes) > 2 and isinstance(last, SVC):
            out.append(_pairs(last, (head, y[train], w), (tail, y[test], v), exact))
            continue
        if isinstance(last, (SVC, SVR)):
            last = twin(last) if exact else last.set_params(tol=1e-9)
        out.append(fold_decisions(last.fit(head, y[train], sample_weight=w), tail, y[test], v))
    return fold_errors(search.criterion_, out)


def twin(machine):
    """Our exact machine with the parameters of scikit-learn's."""
    if machine.kernel == "poly":
        kernel = Polynomial(machine.degree, machine.gamma, machine.coef0)
    else:
        kernel = RBF(machine.gamma) if machine.kernel == "rbf" else machine.kernel
    if isinstance(machine, SVC):
        return KernelSVC(kernel, loss="hinge", C=machine.C, class_weight=machine.class_weight)
    return KernelSVR(kernel, loss="epsilon_insensitive", C=machine.C, epsilon=machine.epsilon)


def _pairs(machine, train, test, exact):
    """One against one: each pair is judged on its own rows, where its first class is positive."""
    (head, y, w), (tail, labels, v) = train, test
    pairs, parts = list(combinations(np.unique(y), 2)), []
    machine = clone(machine).set_params(decision_function_shape="ovo", tol=1e-9)
    for k, (first, second) in enumerate(pairs):
        own, judged = np.isin(y, [first, second]), np.isin(labels, [first, second])
        if exact:
            model = twin(machine).fit(head[own], y[own] == first, None if w is None else w[own])
            z = model.decision_function(tail[judged])
        else:
            z = machine.fit(head, y, w).decision_function(tail[judged])[:, k]
        target = np.where(labels[judged] == first, 1.0, -1.0)
        parts.append((z, target, v[judged] / v[judged].sum() / len(pairs)))
    return parts


def assert_honest(search, X, y, **options):
    """The published score is what explicit fits give, fold by fold."""
    wanted = explicit(search, X, y, **options)
    assert search.best_score_ == pytest.approx(-wanted.mean(), rel=1e-6)
    best = [search.cv_results_[f"split{t}_test_score"][search.best_index_] for t in range(search.n_splits_)]
    np.testing.assert_allclose(best, -wanted, rtol=1e-6)
    if isinstance(describe(search.estimator).estimator, (SVC, SVR)):
        rough = explicit(search, X, y, exact=False, **options)
        assert search.best_score_ == pytest.approx(-rough.mean(), rel=1e-3)


ESTIMATORS = {
    "KernelSVC": KernelSVC(),
    "KernelSVC, squared hinge": KernelSVC(RBF(), loss="squared_hinge"),
    "KernelSVC, hinge": KernelSVC(loss="hinge"),
    "KernelSVC, no intercept": KernelSVC(loss="logistic", fit_intercept=False),
    "KernelSVC, balanced": KernelSVC(class_weight="balanced"),
    "KernelSVC, poly": KernelSVC(Polynomial(2)),
    "KernelSVR": KernelSVR(),
    "KernelSVR, tube": KernelSVR(loss="epsilon_insensitive"),
    "KernelSVR, squared": KernelSVR(loss="squared"),
    "KernelSVR, huber": KernelSVR(loss="huber"),
    "KernelSVR, linear": KernelSVR("linear"),
    "SVC": SVC(),
    "SVC, linear": SVC(kernel="linear"),
    "SVC, balanced": SVC(class_weight="balanced"),
    "SVC, poly": SVC(kernel="poly", degree=2, gamma=0.3, coef0=1.0),
    "SVR": SVR(),
    "KernelRidge": KernelRidge(kernel="rbf"),
    "KernelRidge, poly": KernelRidge(kernel="poly", degree=2),
}


@pytest.mark.parametrize("scaled", [False, True], ids=["alone", "pipeline"])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_score_is_that_of_explicit_fits(name, scaled):
    estimator = ESTIMATORS[name]
    X, y = data(estimator)
    if scaled:
        X, estimator = X * [1.0, 10.0, 100.0, 1.0] + 5.0, make_pipeline(StandardScaler(), estimator)
    search = BilevelSearchCV(estimator, cv=3).fit(X, y)
    assert search.result_.status.value in (
        "converged",
        "stalled",
    )  # a kink of the error may be the best point
    assert_honest(search, X, y)
    assert search.score(X, y) > 0.7


@pytest.mark.parametrize("name", ["KernelSVC", "KernelSVC, hinge", "KernelSVR", "SVC", "SVR", "KernelRidge"])
def test_sample_weights(name):
    estimator = ESTIMATORS[name]
    X, y = data(estimator)
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y))
    search = BilevelSearchCV(estimator, cv=3).fit(X, y, sample_weight=weight)
    assert_honest(search, X, y, weight=weight)
    plain = BilevelSearchCV(estimator, cv=3).fit(X, y)
    assert search.best_score_ != pytest.approx(plain.best_score_, rel=1e-3)


@pytest.mark.parametrize("estimator", [KernelSVC(), KernelSVC(loss="hinge"), SVC()], ids=str)
def test_three_classes(estimator):
    """Ours one against the rest; scikit-learn's SVC one against one, as it will be used."""
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    for model in (estimator, make_pipeline(PCA(3), estimator)):
        search = BilevelSearchCV(model, cv=3).fit(X[::2], names[::2])
        assert_honest(search, X[::2], names[::2])
        assert search.score(X, names) > 0.93


def test_class_weights_are_tuned_and_used():
    X, y = classification(120)
    search = BilevelSearchCV(KernelSVC(RBF()), {"C": None, "kernel__gamma": None, "class_weight": None}, cv=3)
    search.fit(X, y)
    assert set(search.best_params_["class_weight"]) == {"yes", "no"}
    assert_honest(search, X, y)
    assert search.best_estimator_.class_weight == search.refit_params_["class_weight"]


@pytest.mark.parametrize(
    "estimator", [KernelSVC("precomputed"), KernelSVC(Precomputed(), loss="hinge")], ids=str
)
def test_precomputed_kernels(estimator):
    X, y = classification()
    K = rbf_kernel(X, gamma=0.3)
    search = BilevelSearchCV(estimator, cv=3).fit(K, y)
    assert list(search.best_params_) == ["C"]
    assert_honest(search, K, y, columns=True)
    plain = BilevelSearchCV(clone(estimator).set_params(kernel=RBF(0.3)), ["C"], cv=3).fit(X, y)
    assert search.best_score_ == pytest.approx(plain.best_score_, rel=1e-9)
    np.testing.assert_allclose(search.decision_function(K), plain.decision_function(X), rtol=1e-6, atol=1e-8)


def test_a_precomputed_svc_is_tuned_as_the_kernel_itself():
    X, y = classification()
    K = rbf_kernel(X, gamma=0.3)
    search = BilevelSearchCV(SVC(kernel="precomputed"), cv=3).fit(K, y)
    plain = BilevelSearchCV(SVC(gamma=0.3), ["C"], cv=3).fit(X, y)
    assert search.best_score_ == pytest.approx(plain.best_score_, rel=1e-9)


# Many widths, and sums of kernels.


def spread(search):
    return np.std(np.log(search.best_params_["kernel__gamma"]))


def test_a_width_for_every_feature_with_and_without_shrinkage():
    X, y = regression(100, d=5)
    found = {}
    for kappa in (None, 0.0, 50.0):
        search = BilevelSearchCV(KernelSVR(RBF(ard=True)), cv=3, shrinkage=kappa).fit(X, y)
        assert search.best_params_["kernel__gamma"].shape == (5,)
        assert_honest(search, X, y)
        gap = (
            np.log(search.best_params_["kernel__gamma"]) - np.log(search.best_params_["kernel__gamma"]).mean()
        )
        penalty = (0.5 if kappa is None else kappa) / 200.0 * gap @ gap
        assert search.result_.objective == pytest.approx(-search.best_score_ + penalty, rel=1e-9)
        found[kappa] = search
    plain = BilevelSearchCV(KernelSVR(RBF()), cv=3).fit(X, y)
    assert spread(found[0.0]) > spread(found[None]) > spread(found[50.0])
    assert found[0.0].best_score_ > found[None].best_score_ > plain.best_score_
    np.testing.assert_array_equal(found[None].best_estimator_.get_support(indices=True)[:2], [0, 1])
    relevance = found[None].best_estimator_.relevance_
    assert min(relevance[:2]) > max(relevance[2:])


def test_the_search_over_widths_starts_where_one_width_is_best():
    X, y = classification(90)
    plain = BilevelSearchCV(KernelSVC(RBF()), cv=3).fit(X, y)
    search = BilevelSearchCV(KernelSVC(RBF(ard=True)), cv=3).fit(X, y)
    first = search.cv_results_["params"][0]["kernel__gamma"]
    assert np.ptp(first) == 0
    assert search.result_.objective <= -plain.best_score_ + 1e-9


def test_widths_per_feature_for_a_given_vector():
    X, y = regression()
    space = {"C": (1e-2, 1e3), "gamma": Log(1e-3, 10)}
    search = BilevelSearchCV(KernelSVR(RBF([0.1, 0.1, 0.1, 0.1])), space, cv=3).fit(X, y)
    assert search.best_params_["kernel__gamma"].shape == (4,)
    assert_honest(search, X, y)


SUM = Sum([RBF(0.5), Polynomial(2, 0.3), Linear()], columns=[[0, 1], slice(1, 4), None])


@pytest.mark.parametrize("loss", ["quartic_hinge", "hinge"])
def test_weights_of_a_sum(loss):
    X, y = classification()
    search = BilevelSearchCV(KernelSVC(SUM, loss=loss), cv=3).fit(X, y)
    names = ["kernel__weights", "kernel__k0__gamma", "kernel__k1__gamma", "kernel__k1__coef0"]
    assert sorted(search.best_params_) == sorted(names)
    assert search.best_params_["kernel__weights"].shape == (3,)
    assert_honest(search, X, y)
    kernel = search.best_estimator_.kernel
    np.testing.assert_allclose(kernel.weights, search.refit_params_["kernel__weights"])
    assert kernel.kernels[1].gamma == search.refit_params_["kernel__k1__gamma"]
    assert SUM.weights is None


def test_weights_alone_and_C_alone():
    X, y = classification()
    for names in (["kernel__weights"], ["C"], ["C", "k0__gamma"]):
        search = BilevelSearchCV(KernelSVC(SUM), names, cv=3).fit(X, y)
        assert_honest(search, X, y)


def test_C_and_weights_together_are_refused():
    X, y = classification()
    with pytest.raises(ValueError, match="C and kernel__weights scale each other"):
        BilevelSearchCV(KernelSVC(SUM), ["C", "weights"], cv=3).fit(X, y)


def test_columns_of_a_sum_by_name():
    X, y = classification()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    kernel = Sum(
        [RBF(0.5), Sum([Linear(), RBF(0.2)], columns=[["d"], ["b", "c"]])], columns=[["a", "b"], None]
    )
    number = Sum([RBF(0.5), Sum([Linear(), RBF(0.2)], columns=[[3], [1, 2]])], columns=[[0, 1], None])
    search = BilevelSearchCV(KernelSVC(kernel), cv=3).fit(frame, y)
    plain = BilevelSearchCV(KernelSVC(number), cv=3).fit(X, y)
    assert search.best_score_ == plain.best_score_
    assert_honest(search, frame, y)
    assert search.best_estimator_.kernel.columns == [["a", "b"], None]
    with pytest.raises(ValueError, match="names, which need a data frame"):
        BilevelSearchCV(KernelSVC(kernel), cv=3).fit(X, y)
    with pytest.raises(ValueError, match="names, which need a data frame"):
        BilevelSearchCV(make_pipeline(StandardScaler(), KernelSVC(kernel)), cv=3).fit(frame, y)


def test_histograms_in_a_pipeline():
    X, y = classification()
    search = BilevelSearchCV(make_pipeline(MinMaxScaler(clip=True), KernelSVC(ExpChi2())), cv=3).fit(X, y)
    assert sorted(search.best_params_) == ["kernelsvc__C", "kernelsvc__kernel__gamma"]
    assert_honest(search, X, y)
    with pytest.raises(ValueError, match="MinMaxScaler"):
        BilevelSearchCV(KernelSVC(ExpChi2()), cv=3).fit(X, y)


# Names, bounds, methods.


def test_a_parameter_of_the_kernel_may_be_named_without_it():
    X, y = classification()
    bounds = {"C": (0.1, 100.0), "gamma": (1e-3, 10.0)}
    short = BilevelSearchCV(KernelSVC(), bounds, cv=3).fit(X, y)
    long = BilevelSearchCV(KernelSVC(), {"C": (0.1, 100.0), "kernel__gamma": (1e-3, 10.0)}, cv=3).fit(X, y)
    assert short.best_params_ == long.best_params_
    assert list(short.best_params_) == ["C", "kernel__gamma"]
    piped = make_pipeline(StandardScaler(), KernelSVC())
    search = BilevelSearchCV(piped, {"kernelsvc__gamma": (1e-3, 10.0)}, cv=3).fit(X, y)
    assert list(search.best_params_) == ["kernelsvc__kernel__gamma"]
    with pytest.raises(ValueError, match="it can tune: C, kernel__gamma"):
        BilevelSearchCV(KernelSVC(), {"width": (1e-3, 10.0)}, cv=3).fit(X, y)


def test_bounds_are_kept():
    X, y = regression()
    space = {"C": (0.5, 0.6), "gamma": (0.01, 0.02), "epsilon": Lin(0.3, 0.4)}
    search = BilevelSearchCV(KernelSVR(), space, cv=3).fit(X, y)
    for name, (low, high) in {"C": (0.5, 0.6), "kernel__gamma": (0.01, 0.02), "epsilon": (0.3, 0.4)}.items():
        assert low <= search.best_params_[name] <= high
    assert search.result_.at_bound
    assert_honest(search, X, y)


def test_fixed_parameters_stay():
    X, y = regression()
    search = BilevelSearchCV(SVR(C=7.0, epsilon=0.05), ["gamma"], cv=3).fit(X, y)
    assert search.best_estimator_.C == 7.0
    assert_honest(search, X, y)
    search = BilevelSearchCV(KernelSVR(Polynomial(2, 0.4, 0.7), epsilon=0.05), ["C"], cv=3).fit(X, y)
    assert search.best_estimator_.kernel.coef0 == 0.7
    assert_honest(search, X, y)


@pytest.mark.parametrize("name", ["KernelSVC", "KernelSVC, hinge", "KernelSVR", "SVC", "SVR", "KernelRidge"])
def test_a_grid_finds_nothing_much_better(name):
    estimator = ESTIMATORS[name]
    X, y = data(estimator)
    names = ("alpha" if name == "KernelRidge" else "C", "gamma")
    space = {names[0]: Log(1e-2, 1e2), names[1]: Log(1e-2, 3.0)}
    search = BilevelSearchCV(estimator, space, cv=3).fit(X, y)
    grid = BilevelSearchCV(estimator, space, cv=3, method="grid", method_options={"points": 8}).fit(X, y)
    assert search.n_iter_ < grid.n_iter_ == 64
    assert search.best_score_ > grid.best_score_ - 0.005 * abs(grid.best_score_)


@pytest.mark.parametrize("method", ["newton", "lbfgsb", "bfgs", "rprop", "random"])
def test_every_method(method):
    X, y = regression()
    tol = None if method == "random" else 1e-6
    search = BilevelSearchCV(KernelSVR(loss="squared"), cv=3, method=method, random_state=0, tol=tol)
    search.fit(X, y)
    assert_honest(search, X, y)
    best = BilevelSearchCV(KernelSVR(loss="squared"), cv=3, tol=1e-8).fit(X, y)
    assert search.best_score_ == pytest.approx(
        best.best_score_, rel=0.02 if method in ("random", "bfgs") else 1e-4
    )


def test_criteria():
    X, y = classification()
    for criterion in ("squared_hinge", "smooth_misclassification", "misclassification"):
        options = {"points": 4} if criterion == "misclassification" else None
        search = BilevelSearchCV(KernelSVC(), cv=3, criterion=criterion, method_options=options).fit(X, y)
        assert_honest(search, X, y)


@pytest.mark.parametrize("estimator", [KernelSVC(RBF(ard=True)), SVR()], ids=str)
def test_same_input_same_bits(estimator):
    X, y = data(estimator)
    options = {"cv": 3, "random_state": 0, "n_starts": 2}
    first, second, threads = (
        BilevelSearchCV(estimator, n_jobs=n_jobs, **options).fit(X, y) for n_jobs in (None, None, 2)
    )
    for other in (second, threads):
        assert other.result_.theta == first.result_.theta
        assert other.best_score_ == first.best_score_
        np.testing.assert_array_equal(
            other.cv_results_["mean_test_score"], first.cv_results_["mean_test_score"]
        )


def test_gradients_at_the_programs_of_a_search():
    """The program that a search builds, with a pipeline's own columns in every fold."""
    from foldwise.estimators.encoding import encode_classes
    from foldwise.models.base import Rows
    from foldwise.search.prepare import Data, prepare

    X, y = classification()
    for estimator in (KernelSVC(RBF(ard=True)), SVC(), KernelSVC(SUM)):
        classes, Y, codes = encode_classes(y)
        splits = list(check_cv(3, y, classifier=True).split(X, y))
        for model in (estimator, make_pipeline(PCA(4), StandardScaler(), estimator)):
            rows = Rows(Y, None, None, (), codes, classes.tolist())
            data = Data(X, rows, classes, splits)
            program = prepare(describe(model), data, Logistic(2.0), shrinkage=0.7)
            theta = program.model.starting_points(program.bilevel, program.starting_values, 1)[0]
            check_hypergradient(program.bilevel, theta + 0.05, rtol=1e-5)


# The final fit.


@pytest.mark.parametrize("name", ["KernelSVC", "KernelSVR", "SVC", "SVR", "KernelRidge"])
def test_the_strength_is_rescaled_to_all_rows_when_asked(name):
    estimator = ESTIMATORS[name]
    X, y = data(estimator)
    search = BilevelSearchCV(estimator, cv=3, rescale=True).fit(X, y)
    factor = 1.5 if name == "KernelRidge" else 1 / 1.5
    strength = "alpha" if name == "KernelRidge" else "C"
    assert search.refit_params_[strength] == pytest.approx(factor * search.best_params_[strength])
    assert getattr(search.best_estimator_, strength) == search.refit_params_[strength]
    plain = BilevelSearchCV(estimator, cv=3).fit(X, y)
    assert plain.refit_params_ == plain.best_params_ == search.best_params_
    assert getattr(plain.best_estimator_, strength) == plain.best_params_[strength]


def test_the_refitted_estimator_is_the_users_class():
    X, y = classification()
    for estimator in (SVC(shrinking=False), KernelSVC(RBF(), max_iter=50)):
        search = BilevelSearchCV(estimator, cv=3).fit(X, y)
        assert type(search.best_estimator_) is type(estimator)
        kept = {"shrinking": False} if isinstance(estimator, SVC) else {"max_iter": 50}
        assert all(search.best_estimator_.get_params()[key] == value for key, value in kept.items())
        assert not hasattr(estimator, "classes_")


# Refusals.


def test_memory_limit():
    X, y = classification()
    with pytest.raises(ValueError, match="kernel matrices of 75 rows need"):
        BilevelSearchCV(KernelSVC(memory_limit=1e4), cv=3).fit(X, y)


def test_kernels_without_derivatives_refuse_methods_that_follow_them():
    X, y = classification()
    with pytest.raises(
        ValueError, match=r"follows gradients, and there are none: .* its kernel is 'sigmoid'"
    ):
        BilevelSearchCV(SVC(kernel="sigmoid"), method="newton", cv=3).fit(X, y)


def test_criteria_of_regression_and_classes():
    X, y = regression()
    with pytest.raises(ValueError, match="needs classes"):
        BilevelSearchCV(KernelSVR(), criterion="hinge").fit(X, y)
    search = BilevelSearchCV(KernelSVR(), cv=3, criterion="absolute").fit(X, y)
    assert_honest(search, X, y)
    assert isinstance(BilevelSearchCV(KernelSVR(), cv=3).fit(X, y).criterion_, Squared)


LINEAR_TWICE = Sum([Linear(), Linear()], columns=[[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("estimator", "criterion"),
    [
        (SVC(), ProfiledLogistic()),
        (SVC(kernel="poly"), ProfiledLogistic()),
        (SVC(kernel="linear"), Logistic(s=2.0)),
        (SVC(kernel="poly", degree=1), Logistic(s=2.0)),
        (KernelSVC(loss="hinge"), ProfiledLogistic()),
        (KernelSVC(LINEAR_TWICE, loss="hinge"), Logistic(s=2.0)),
        (KernelSVC(), ProfiledLogistic()),
        (KernelSVC(loss="logistic"), Logistic()),
    ],
    ids=str,
)
def test_the_default_criterion(estimator, criterion):
    X, y = classification()
    assert BilevelSearchCV(estimator, ["C"], cv=3).fit(X, y).criterion_ == criterion


@pytest.mark.parametrize("method", ["newton", "grid"])
def test_a_training_problem_that_is_not_solved_is_named(method):
    rng = np.random.default_rng(0)
    X = 1e6 * rng.normal(size=(60, 3))
    y = 1e-6 * X[:, 0] + 0.1 * rng.normal(size=60)
    search = BilevelSearchCV(KernelSVR(Polynomial(3)), {"C": (1e-3, 1e3)}, cv=3, method=method, refit=False)
    with pytest.warns(ConvergenceWarning, match="KKT residual is .*above 1e-05. Scale the features"):
        result = search.fit(X, y).result_
    assert max(result.kkt) > result.tolerances["kkt"]
    assert result.status.value == ("exhausted" if method == "grid" else "unsolved training problem")
    assert any("not solved" in text for text in result.warnings)


def test_the_start_is_valued_by_the_objective_of_the_end():
    """Where landmarks serve on the way alone, the error at the start is that of whole kernel matrices too."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 5)), rng.normal(size=40)
    search = BilevelSearchCV(KernelSVR(loss="squared"), {"C": Log(1e-2, 1e2)}, cv=3, low_rank=True).fit(X, y)
    result = search.result_
    assert abs(result.details["landmark_objective"] - result.objective) > 1e-6 * result.objective
    start = clone(search.estimator).set_params(C=result.history[0].params["C"])
    folds = [
        np.mean((clone(start).fit(X[train], y[train]).predict(X[test]) - y[test]) ** 2)
        for train, test in check_cv(3).split(X)
    ]
    assert result.objective_start == pytest.approx(np.mean(folds), rel=1e-6)
    assert result.objective <= result.objective_start
