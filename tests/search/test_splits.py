"""Splits of every kind that ``cv`` may give: each row counts as often as a split says, in values and derivatives.

The referee knows nothing of folds: it refits the plain estimator on exactly the rows of every split, repeats included,
values the criterion on exactly the validation rows, and takes differences of that.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.svm import LinearSVR as SkLinearSVR
from sklearn.utils.class_weight import compute_class_weight

from foldwise import RBF, BilevelSearchCV, KernelSVC, KernelSVR, LinearSVC, LinearSVR, SemiparametricSVR
from foldwise.criteria import get_criterion
from foldwise.losses import SquaredHinge
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.linear import LinearModel, assemble
from foldwise.optimizers import Minimizer
from foldwise.problems.folds import Folds
from foldwise.result import Status
from foldwise.space import Log
from foldwise.splits import read_splits
from tests.makers import waves
from tests.referees import fold_decisions, fold_errors

N = 36


class Look(Minimizer):
    """Evaluates one point, with its gradient."""

    needs_gradient = False
    name = "look"

    def __init__(self, params):
        self.params = params

    def iterate(self, trace, theta):
        self.theta = trace.space.theta(self.params)
        self.here = trace.evaluate(self.theta)
        self.gradient = trace.bilevel.differentiate(self.here).gradient
        self.space = trace.space
        return Status.CONVERGED


def data(classes=0, seed=0):
    X, signal = waves(
        N, 3, seed, frequency=1.0, spread=np.array([1.0, 2.0, 0.5]), shift=np.array([0.0, 1.0, -1.0])
    )
    if not classes:
        return X, signal
    cuts = np.quantile(signal, np.arange(1, classes) / classes)
    return X, np.array(["a", "b", "c"])[np.searchsorted(cuts, signal)]


def odd_splits(kind, y, seed=3):
    """Pairs as a user may give them."""
    rng = np.random.default_rng(seed)
    parts = np.array_split(rng.permutation(N), 3)
    plain = [(np.setdiff1d(np.arange(N), part), part) for part in parts]
    if kind == "masks":
        return [(np.isin(np.arange(N), a), np.isin(np.arange(N), b)) for a, b in plain]
    if kind == "bootstrap":
        trains = [np.r_[rng.integers(0, N, N - 4), 0:2, N - 2 : N] for _ in range(3)]
        return [(train, np.setdiff1d(np.arange(N), train)) for train in trains]
    if kind == "oversampled":
        return [(np.r_[a, a[:5], a[:5], a[2:4]], b) for a, b in plain]
    if kind == "overlapping":
        return [(np.r_[a, b[:4]], np.r_[b, a[:6]]) for a, b in plain]
    if kind == "resubstitution":
        return [(np.arange(N), np.arange(N)), (np.arange(N // 2, N), np.arange(N // 2, N))]
    if kind == "repeated validation":
        return [(a, np.r_[b, b[:3], b[:3]]) for a, b in plain]
    if kind == "everything":
        return [(np.r_[a, a[:5], b[:2]], np.r_[b, b[:3], a[:4], a[:2]]) for a, b in plain]
    if kind == "nested lists":
        return [[a.tolist(), b.tolist()] for a, b in plain]
    if kind == "negative":
        return [(a - N, np.where(b > 5, b - N, b)) for a, b in plain]
    if kind == "unsigned":
        return [(a.astype(np.uint8), b.astype(np.int16)) for a, b in plain]
    if kind == "slices":
        return [(slice(0, 24), slice(24, None)), (slice(12, None), slice(0, 12))]
    if kind == "pandas":
        return [
            (pd.Index(a), pd.Series(np.isin(np.arange(N), b), index=np.arange(N)[::-1])) for a, b in plain
        ]
    raise AssertionError(kind)


COUNTED = ["bootstrap", "oversampled", "overlapping", "resubstitution", "repeated validation", "everything"]
WRITTEN = ["masks", "nested lists", "negative", "unsigned", "slices", "pandas"]


def numbers(part):
    return np.arange(N)[part if isinstance(part, slice) else np.asarray(part)]


def by_hand(estimator, X, y, cv, criterion):
    """The criterion by refitting the plain estimator on the rows of every split."""
    folds = []
    for train, validation in cv:
        train, validation = numbers(train), numbers(validation)
        fitted = clone(estimator).fit(X[train], y[train])
        folds.append(fold_decisions(fitted, X[validation], y[validation]))
    return float(np.mean(fold_errors(get_criterion(criterion), folds)))


FINE = {"tol": 1e-10}
# name: (classes, estimator, space, values to look at, criterion)
MACHINES = {
    "Ridge": (0, Ridge(), {"alpha": (1e-2, 1e2)}, {"alpha": 2.0}, "squared"),
    "scaled Ridge": (
        0,
        make_pipeline(StandardScaler(), Ridge()),
        {"ridge__alpha": (1e-2, 1e2)},
        {"alpha": 2.0},
        "squared",
    ),
    "ranged Ridge": (
        0,
        make_pipeline(MinMaxScaler(), Ridge()),
        {"ridge__alpha": (1e-2, 1e2)},
        {"alpha": 0.5},
        "squared",
    ),
    "sklearn LinearSVR": (
        0,
        SkLinearSVR(loss="squared_epsilon_insensitive", dual=False, tol=1e-12, max_iter=10**6),
        {"C": (1e-2, 1e2), "epsilon": (0.0, 1.0)},
        {"C": 0.7, "epsilon": 0.23},
        "squared",
    ),
    "sklearn LinearSVC": (
        2,
        make_pipeline(StandardScaler(), SkLinearSVC(dual=False, tol=1e-12, max_iter=10**6)),
        {"linearsvc__C": (1e-3, 1e2)},
        {"C": 0.1},
        "logistic",
    ),
    "LogisticRegression": (
        2,
        LogisticRegression(tol=1e-12, max_iter=10**5),
        {"C": (1e-2, 1e2)},
        {"C": 0.5},
        "logistic",
    ),
    "LinearSVR": (
        0,
        LinearSVR(tol=1e-12),
        {"C": (1e-2, 1e2), "epsilon": (0.0, 1.0)},
        {"C": 0.7, "epsilon": 0.2},
        "squared",
    ),
    "LinearSVR with boxes": (
        0,
        LinearSVR(tol=1e-12, box=0.3),
        {"C": (1e-2, 1e2), "epsilon": (0.0, 1.0)},
        {"C": 0.7, "epsilon": 0.2},
        "squared",
    ),
    "exact LinearSVR": (
        0,
        LinearSVR(loss="epsilon_insensitive"),
        {"C": (1e-2, 1e2), "epsilon": (0.0, 1.0)},
        {"C": 0.23, "epsilon": 0.21},
        "squared",
    ),
    "LinearSVC, three classes": (3, LinearSVC(tol=1e-12), {"C": (1e-3, 1e2)}, {"C": 0.1}, "logistic"),
    "exact LinearSVC": (2, LinearSVC(loss="hinge"), {"C": (1e-2, 1e2)}, {"C": 0.113}, "logistic"),
    "SVC": (
        2,
        SVC(gamma=0.3, **FINE),
        {"C": (0.1, 10), "gamma": (0.01, 1)},
        {"C": 1.7, "gamma": 0.2},
        "logistic",
    ),
    "SVC, three classes": (
        3,
        SVC(gamma=0.3, decision_function_shape="ovo", **FINE),
        {"C": (0.1, 10)},
        {"C": 1.7},
        "logistic",
    ),
    "ranged SVC": (
        2,
        make_pipeline(MinMaxScaler(), SVC(kernel="poly", degree=2, gamma=1.0, coef0=1.0, **FINE)),
        {"svc__C": (0.1, 10)},
        {"C": 1.7},
        "logistic",
    ),
    "SVR": (
        0,
        SVR(gamma=0.3, **FINE),
        {"C": (0.1, 10), "epsilon": (0.0, 1.0), "gamma": (0.01, 1)},
        {"C": 1.7, "epsilon": 0.11, "gamma": 0.2},
        "squared",
    ),
    "KernelRidge": (
        0,
        KernelRidge(kernel="rbf"),
        {"alpha": (1e-3, 10), "gamma": (0.01, 1)},
        {"alpha": 0.2, "gamma": 0.3},
        "squared",
    ),
    "KernelSVR": (
        0,
        KernelSVR(RBF(0.2), tol=1e-12),
        {"C": (0.1, 100), "epsilon": (0.0, 1.0), "kernel__gamma": (0.01, 1)},
        {"C": 2.0, "epsilon": 0.1, "kernel__gamma": 0.2},
        "squared",
    ),
    "KernelSVC, three classes": (
        3,
        KernelSVC(RBF(0.2), tol=1e-12),
        {"C": (0.1, 100), "kernel__gamma": (0.01, 1)},
        {"C": 2.0, "kernel__gamma": 0.2},
        "logistic",
    ),
    "SemiparametricSVR": (
        0,
        SemiparametricSVR([0], RBF(0.3)),
        {"C": (0.1, 10), "epsilon": (0.0, 1.0), "kernel__gamma": (0.01, 1)},
        {"C": 1.7, "epsilon": 0.11, "kernel__gamma": 0.2},
        "squared",
    ),
}


TABLE = [(name, kind) for name in MACHINES for kind in COUNTED]
TABLE += [(name, kind) for name in ("ranged Ridge", "LinearSVC, three classes", "SVR") for kind in WRITTEN]


@pytest.mark.parametrize(("name", "kind"), TABLE)
def test_value_and_gradient_are_those_of_refits(name, kind):
    classes, estimator, space, values, criterion = MACHINES[name]
    X, y = data(classes)
    cv = odd_splits(kind, y)
    look = Look(values)
    search = BilevelSearchCV(estimator, space, cv=cv, criterion=criterion, method=look, refit=False)
    search.fit(X, y)
    prefix = f"{estimator.steps[-1][0]}__" if isinstance(estimator, Pipeline) else ""

    def refits(theta):
        params = {prefix + bare: value for bare, value in look.space.params(theta).items()}
        return by_hand(clone(estimator).set_params(**params), X, y, cv, criterion)

    # LIBSVM keeps kernel entries in single precision, which differences in gamma see.
    libsvm = name in ("SVC", "SVC, three classes", "ranged SVC", "SVR")
    tol = 2e-3 if libsvm else 2e-4
    np.testing.assert_allclose(look.here.objective, refits(look.theta), rtol=1e-6)
    numeric = np.zeros(len(look.theta))
    for i in range(len(numeric)):
        h = 5e-4 if libsvm and look.space.names[i] == "gamma" else 1e-4
        step = h * (np.arange(len(numeric)) == i)
        numeric[i] = (refits(look.theta + step) - refits(look.theta - step)) / (2 * h)
    size = np.abs(numeric).max()
    assert size > 1e-4
    np.testing.assert_allclose(look.gradient, numeric, rtol=tol, atol=tol * size)


def weighted_refits(estimator, X, y, cv, weight):
    total = []
    for train, validation in cv:
        fitted = clone(estimator).fit(X[train], y[train], sample_weight=weight[train])
        error = (fitted.predict(X[validation]) - y[validation]) ** 2
        total.append(np.average(error, weights=weight[validation]))
    return float(np.mean(total))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("estimator", [Ridge(tol=1e-12), LinearSVR(tol=1e-10), KernelSVR(tol=1e-10)], ids=str)
def test_sample_weights_and_repeats_multiply(estimator, sparse):
    X, y = data()
    if sparse:
        rng = np.random.default_rng(0)
        shape = N, 1200  # wide: no Gram matrix of columns
        X = sp.csr_array(rng.uniform(size=shape) * (rng.uniform(size=shape) < 0.02))
    weight = np.random.default_rng(1).integers(0, 4, N).astype(float)
    cv = odd_splits("everything", y)
    search = BilevelSearchCV(estimator, cv=cv, max_iter=3).fit(X, y, sample_weight=weight)
    best = clone(estimator).set_params(**search.best_params_)
    np.testing.assert_allclose(-search.best_score_, weighted_refits(best, X, y, cv, weight), rtol=1e-6)


@pytest.mark.parametrize("method", ["newton", "lbfgsb", "bfgs", "rprop", "pbp", "grid", "random"])
def test_every_method_reports_the_score_of_refits(method):
    X, y = data()
    cv = odd_splits("everything", y)
    options = {"grid": {"points": 4}, "random": {"n_iter": 5}}.get(method, {})
    search = BilevelSearchCV(
        LinearSVR(tol=1e-10), cv=cv, method=method, method_options=options, random_state=0
    ).fit(X, y)
    best = clone(search.estimator).set_params(**search.best_params_)
    np.testing.assert_allclose(-search.best_score_, by_hand(best, X, y, cv, "squared"), rtol=1e-6)


@pytest.mark.parametrize("method", ["bundle", "mpec", "slams"])
def test_exact_linear_methods_report_the_score_of_refits(method):
    if method != "bundle":
        pytest.importorskip("unopy" if method == "mpec" else "highspy")
    X, y = data(2)
    cv = odd_splits("everything", y)
    search = BilevelSearchCV(LinearSVC(loss="hinge"), ["C"], criterion="hinge", cv=cv, method=method).fit(
        X, y
    )
    best = clone(search.estimator).set_params(**search.best_params_)
    np.testing.assert_allclose(-search.best_score_, by_hand(best, X, y, cv, "hinge"), rtol=1e-6)


def test_a_precomputed_kernel_is_indexed_by_rows_and_columns():
    X, y = data(2)
    K = RBF(0.3)(X, X)
    cv = odd_splits("everything", y)
    search = BilevelSearchCV(SVC(kernel="precomputed"), {"C": (0.1, 10)}, criterion="hinge", cv=cv).fit(K, y)
    total, sign = 0.0, np.where(y == "b", 1.0, -1.0)
    for a, b in cv:
        fitted = SVC(kernel="precomputed", C=search.best_params_["C"], tol=1e-8).fit(K[np.ix_(a, a)], y[a])
        z = fitted.decision_function(K[np.ix_(b, a)])
        total += np.mean(np.maximum(1 - sign[b] * z, 0.0)) / len(cv)
    np.testing.assert_allclose(-search.best_score_, total, rtol=1e-5)


@pytest.mark.parametrize("scaled", [False, True])
def test_stages_on_a_sample_take_repeats(scaled):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(420, 2))
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=420)
    trains = [rng.integers(0, 420, 420) for _ in range(2)]
    cv = [(train, np.r_[np.setdiff1d(np.arange(420), train), train[:20]]) for train in trains]
    estimator = KernelSVR(RBF(1.0), epsilon=0.0, tol=1e-10)
    estimator = make_pipeline(StandardScaler(), estimator) if scaled else estimator
    prefix = "kernelsvr__" if scaled else ""
    space = {f"{prefix}C": (0.1, 100), f"{prefix}kernel__gamma": (0.01, 10)}
    search = BilevelSearchCV(estimator, space, cv=cv).fit(X, y)
    assert search.result_.details["sample_evaluations"] > 0
    best = clone(estimator).set_params(**search.best_params_)
    true = np.mean([np.mean((clone(best).fit(X[a], y[a]).predict(X[b]) - y[b]) ** 2) for a, b in cv])
    np.testing.assert_allclose(-search.best_score_, true, rtol=1e-6)


def test_masks_rescale_the_final_fit_as_row_numbers_do():
    X, y = data()
    fits = [BilevelSearchCV(Ridge(), cv=odd_splits(kind, y)).fit(X, y) for kind in ("masks", "nested lists")]
    assert fits[0].best_params_ == fits[1].best_params_
    assert fits[0].refit_params_["alpha"] == pytest.approx(1.5 * fits[0].best_params_["alpha"])
    assert fits[0].refit_params_ == fits[1].refit_params_


def test_balanced_classes_are_counted_with_repeats():
    X, y = data(3)
    splits = read_splits(odd_splits("everything", y), N)
    classes, label = np.unique(y, return_inverse=True)
    rows = Rows(
        np.where(label == np.arange(3)[:, None], 1.0, -1.0), label=label, class_labels=classes.tolist()
    )
    model = LinearModel(SquaredHinge(), {"C": Role("log_c")}, {"C": 1.0}, class_weight="balanced")
    dimensions = {"C": Log(0.1, 10)}
    space = make_space(dimensions, rows, ["x0", "x1", "x2"])
    problem = assemble(model, X, rows, splits, space, dimensions=dimensions)
    c = problem.parameters(np.zeros(1)).c
    for t, (train, _) in enumerate(splits):
        want = compute_class_weight("balanced", classes=classes, y=y[train])
        np.testing.assert_allclose(c[t], want)


def test_folds_count_rows():
    folds = Folds.build(5, [(np.array([0, 0, 2]), np.array([1, 3, 3])), (np.array([1, 2]), np.array([0]))])
    assert not folds.partition
    np.testing.assert_array_equal(folds.count, [[2, 0, 1, 0, 0], [0, 1, 1, 0, 0]])
    np.testing.assert_array_equal(folds.validation[0], [1, 3, 3])
    # Equal numbers of rows do not make a partition when one validates twice and another never.
    assert not Folds.build(4, [(np.array([0, 1]), np.array([2, 2]))]).partition


def test_leave_one_out():
    X, y = data()
    search = BilevelSearchCV(KernelRidge(kernel="rbf", gamma=0.2), cv=LeaveOneOut()).fit(X, y)
    best = clone(search.estimator).set_params(**search.best_params_)
    cv = list(LeaveOneOut().split(X))
    np.testing.assert_allclose(-search.best_score_, by_hand(best, X, y, cv, "squared"), rtol=1e-6)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (([0, 1, 40], [2]), "hold the row number 40; X has 36 rows"),
        (([0, 1, -37], [2]), "hold the row number -37"),
        (([0.0, 1.0], [2]), "must be a list of row numbers"),
        (([0, 1], [2.5]), "validation rows of fold 1 are .2.5.; they must be"),
        (([[0], [1]], [2]), "must be a list of row numbers"),
        (([0, [1, 2]], [2]), "must be a list of row numbers"),
        (("ab", [2]), "must be a list of row numbers"),
        ((["a", "b"], [2]), "must be a list of row numbers"),
        ((7, [2]), "must be a list of row numbers"),
        ((None, [2]), "must be a list of row numbers"),
        (([True] * 35, [2]), "a mask of 35 booleans; X has 36 rows"),
        (([], [2]), "fold 1 has 0 training and 1 validation rows"),
        (([0, 1], []), "fold 1 has 2 training and 0 validation rows"),
        (([False] * 36, [2]), "fold 1 has 0 training"),
        (([0, 1], [2], [3]), "it must give pairs"),
        (5, "it must give pairs"),
    ],
    ids=str,
)
def test_splits_that_make_no_sense_are_refused_before_any_work(pair, message):
    X, y = data()
    good = (np.arange(20), np.arange(20, N))
    with pytest.raises(ValueError, match=message):
        BilevelSearchCV(Ridge(), cv=[good, pair]).fit(X, y)


def test_no_splits():
    with pytest.raises(ValueError, match="cv gives no folds"):
        read_splits([], 4)
