"""Intercepts that are not unique: what a search reports is what the machine's own fit gives."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC, SVR

from foldwise import RBF, BilevelSearchCV, Huber, KernelSVC, KernelSVR, Lin, LinearSVC, LinearSVR, Log
from foldwise.estimators.adapters import describe
from foldwise.models.base import Rows
from foldwise.search.prepare import Data, prepare
from foldwise.solvers.libsvm import LibSvm
from tests.referees import fold_decisions, fold_errors


def program(machine, space, X, y, splits, weight=None):
    tunable = describe(machine)
    classes = rows = None
    if tunable.task == "classification":
        classes, codes = np.unique(y, return_inverse=True)
        Y = np.where(codes == np.arange(len(classes))[:, None], 1.0, -1.0)
        rows = Rows(Y[1:] if len(classes) == 2 else Y, weight, None, (), codes, classes.tolist())
    else:
        rows = Rows(y[None], weight)
    criterion = tunable.criterion()
    return prepare(tunable, Data(X, rows, classes, splits), criterion, space, low_rank=False).bilevel


def by_hand(machine, criterion, X, y, splits, weight, counts):
    """The criterion of every fold, from fits of the plain estimator."""
    out = []
    for train, test in splits:
        last = {} if weight is None else {"sample_weight": weight[train]}
        fitted = clone(machine).fit(X[train], y[train], **last)
        v = np.ones(len(test)) if weight is None else weight[test]
        if counts and hasattr(fitted, "classes_"):
            v = v * fitted.class_weight_[np.searchsorted(fitted.classes_, y[test])]
        out.append(fold_decisions(fitted, X[test], y[test], v))
    return fold_errors(criterion, out)


NONE = np.zeros(0, int), np.zeros(0)
FOLDS = {
    "in order": StratifiedKFold(3),
    "shuffled": StratifiedKFold(3, shuffle=True, random_state=0),
    "random": ShuffleSplit(3, test_size=0.3, random_state=0),
}


@pytest.mark.parametrize("folds", FOLDS.values(), ids=FOLDS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_all_rows_at_their_bounds_leave_the_intercept_where_libsvm_does(folds, classes, weighted):
    """With balanced classes and a small C: rounding decides in LIBSVM, and so it must here."""
    worst = 0.0
    for seed in range(2):
        X, y = make_classification(
            90,
            5,
            n_informative=4,
            n_redundant=0,
            n_classes=classes,
            weights=[0.7] if classes == 2 else [0.5, 0.3],
            random_state=seed,
        )
        rng = np.random.default_rng(seed)
        weight = rng.integers(0, 3, len(y)).astype(float) if weighted else None
        splits = list(folds.split(X, y))
        for kernel, gamma in (("rbf", 0.3), ("poly", 0.1), ("linear", 1.0)):
            machine = SVC(kernel=kernel, gamma=gamma, class_weight="balanced")
            bilevel = program(machine, {"C": Log(1e-5, 1e2)}, X, y, splits, weight)
            warm = None
            for C in (1.0, 1e-2, 1e-4, 1e-2):
                theta = bilevel.space.theta({"C": C})
                warm = bilevel.evaluate(theta, warm)
                own = machine.set_params(**bilevel.space.params(theta))
                expected = by_hand(
                    own, bilevel.criterion.loss or bilevel.criterion, X, y, splits, weight, True
                )
                worst = max(worst, np.abs(bilevel.by_fold(warm) / expected - 1.0).max())
    assert worst < 3e-3


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_the_tube_likewise(weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=60)
    weight = rng.integers(0, 3, 60).astype(float) if weighted else None
    splits = list(KFold(3, shuffle=True, random_state=1).split(X))
    for epsilon in (0.0, 0.5, 2.0, 9.0):
        machine = SVR(gamma=0.3, epsilon=epsilon)
        bilevel = program(machine, {"C": Log(1e-6, 1e2)}, X, y, splits, weight)
        for C in (1e-6, 1e-4, 1e-2, 1.0):
            theta = bilevel.space.theta({"C": C})
            own = machine.set_params(**bilevel.space.params(theta))
            expected = by_hand(own, bilevel.criterion.loss, X, y, splits, weight, False)
            np.testing.assert_allclose(bilevel.by_fold(bilevel.evaluate(theta)), expected, rtol=3e-3)


@pytest.mark.parametrize("tuned", ["C", "gamma"])
def test_the_gradient_follows_the_row_that_holds_the_intercept(tuned, monkeypatch):
    """Which row that is changes with rounding; the derivative is the one with the row kept."""
    held = 0
    for seed in range(4):
        X, y = make_classification(80, 4, weights=[0.75], random_state=seed)
        splits = list(StratifiedKFold(3).split(X, y))
        space = {"C": Log(1e-4, 1e2)} if tuned == "C" else {"gamma": Log(1e-3, 10)}
        machine = SVC(C=0.02, gamma=0.3, class_weight="balanced")
        bilevel = program(machine, space, X, y, splits)
        theta = bilevel.space.theta({tuned: 0.02 if tuned == "C" else 0.3})
        at, h = bilevel.differentiate(bilevel.evaluate(theta)), 1e-6
        pins = at.solutions[0].pins
        held += len(pins)
        with monkeypatch.context() as patch:
            patch.setattr(LibSvm, "_left_free", lambda *a, pins=pins: pins.get(a[-1], NONE))
            below, above = (bilevel.evaluate(theta + s * h).objective for s in (-1, 1))
        assert at.gradient[0] == pytest.approx((above - below) / (2 * h), rel=1e-5)
    assert held >= 4


def test_a_search_that_ends_there_reports_scikit_learns_error_and_says_so():
    X, y = make_classification(90, 5, weights=[0.8], flip_y=0.05, random_state=0)
    splits = list(StratifiedKFold(3).split(X, y))
    for machine in (SVC(gamma=0.2, class_weight="balanced"),):
        for estimator in (machine, make_pipeline(MinMaxScaler(), machine)):
            name = "C" if estimator is machine else "svc__C"
            search = BilevelSearchCV(estimator, {name: Log(9e-4, 1e-3)}, cv=splits).fit(X, y)
            C = search.best_params_[name]
            Z = X if estimator is machine else None
            folds = []
            for train, test in splits:
                scaler = MinMaxScaler().fit(X[train])
                A, B = (X[train], X[test]) if Z is not None else map(scaler.transform, (X[train], X[test]))
                m = SVC(C=C, gamma=0.2, class_weight="balanced").fit(A, y[train])
                v = m.class_weight_[y[test]]
                folds.append(fold_decisions(m, B, y[test], v))
            wanted = fold_errors(search.criterion_, folds)
            np.testing.assert_allclose(search.result_.fold_objectives, wanted, rtol=1e-3)
            assert any("intercept is not unique" in text for text in search.result_.warnings)
    usual = BilevelSearchCV(SVC(gamma=0.2), {"C": Log(0.5, 2.0)}, cv=3, max_iter=2).fit(X, y)
    assert not any("intercept" in text for text in usual.result_.warnings)


def equal_folds(y):
    """Three folds with as many rows of one class as of the other, in training and validation."""
    rows = [np.array_split(np.flatnonzero(y == k)[:36], 3) for k in (0, 1)]
    validation = [np.concatenate(parts) for parts in zip(*rows, strict=True)]
    everything = np.concatenate(validation)
    return [(np.setdiff1d(everything, test), test) for test in validation]


CURVES = {
    "quartic": (KernelSVC(RBF(0.3), loss="quartic_hinge"), "C", np.geomspace(3.0, 1e-5, 6)),
    "modified Huber": (KernelSVC(RBF(0.3), loss="modified_huber"), "C", np.geomspace(3.0, 1e-5, 6)),
    "tube": (KernelSVR(RBF(0.3)), "epsilon", np.linspace(0.1, 3.0, 6)),
    "linear, quartic": (LinearSVC("quartic_hinge"), "C", np.geomspace(3.0, 1e-5, 6)),
    "linear, tube": (LinearSVR(), "epsilon", np.linspace(0.1, 3.0, 6)),
    "Huber": (KernelSVR(RBF(0.3), loss=Huber(1e-2)), "C", np.geomspace(3.0, 1e-5, 6)),
}


@pytest.mark.parametrize("way", [1, -1], ids=["there", "back"])
@pytest.mark.parametrize(("machine", "name", "path"), CURVES.values(), ids=CURVES)
def test_a_smooth_loss_on_its_straight_pieces_has_its_intercept_in_the_middle(machine, name, path, way):
    """Wherever the solver comes from: the machine's own fit, and its gradient by differences."""
    flat = 0
    for seed in range(2):
        X, label = make_classification(90, 4, random_state=seed, flip_y=0.1)
        splits = equal_folds(label)
        noise = np.random.default_rng(seed).normal(size=len(X))
        y = label if name == "C" and is_classifier(machine) else 3.0 * X[:, 0] + noise
        scale = Lin(0.0, 20.0) if name == "epsilon" else Log(1e-6, 10.0)
        bilevel = program(machine, {name: scale}, X, y, splits)
        warm = None
        for value in path[::way] * (6.0 if name == "epsilon" else 1.0):
            theta = bilevel.space.theta({name: value})
            warm = bilevel.differentiate(bilevel.evaluate(theta, warm), 2)
            flat += bilevel.problems[0].flat_intercepts(warm.solutions[0])
            own = clone(machine).set_params(**bilevel.space.params(theta))
            folds = []
            for train, test in splits:
                folds.append(fold_decisions(clone(own).fit(X[train], y[train]), X[test], y[test]))
            wanted = fold_errors(bilevel.criterion.loss or bilevel.criterion, folds)
            np.testing.assert_allclose(bilevel.by_fold(warm), wanted, rtol=1e-6)
            below, above = (bilevel.evaluate(theta + s * 1e-5).objective for s in (-1, 1))
            assert warm.gradient[0] == pytest.approx((above - below) / 2e-5, rel=2e-3, abs=1e-7)
    assert flat > 0 or machine.loss == "modified_huber"


@pytest.mark.parametrize("seed", range(4))
def test_an_l1_penalty_that_shuts_all_weights_leaves_the_intercept_in_the_middle(seed):
    """With an even number of rows and no weight the intercept is a median: not unique, whatever the order of rows."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(24, 2)), rng.normal(size=24)
    machine = LinearSVR(loss="epsilon_insensitive", penalty="l1", C=1e-3, epsilon=0.01).fit(X, y)
    assert np.all(machine.coef_ == 0)
    grid = np.linspace(-2, 2, 400_001)
    loss = sum(np.clip(np.abs(grid - value) - 0.01, 0, None) for value in y)
    best = grid[loss <= loss.min() * (1 + 1e-12)]
    assert best[-1] - best[0] > 1e-3
    assert abs(np.ravel(machine.intercept_)[0] - 0.5 * (best[0] + best[-1])) < 2e-5


def test_a_search_under_an_l1_penalty_reports_the_error_of_its_machine_and_says_so():
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(36, 2)), rng.normal(size=36)
    machine = LinearSVR(loss="epsilon_insensitive", penalty="l1")
    space = {"C": Log(1e-4, 2e-3), "epsilon": Lin(0, 1)}
    search = BilevelSearchCV(machine, space, criterion="absolute", cv=3).fit(X, y)
    own = clone(machine).set_params(**search.best_params_)
    folds = [
        np.mean(np.abs(clone(own).fit(X[train], y[train]).predict(X[test]) - y[test]))
        for train, test in KFold(3).split(X)
    ]
    assert search.result_.fold_objectives == pytest.approx(folds, rel=1e-9)
    assert "the intercept is not unique" in search.result_.warnings[0]


@pytest.mark.parametrize("more", [0.0, 1e-10, 1e-9, 5e-8])
def test_a_row_that_balances_the_others_is_free_however_little(more):
    """One weight a little larger: a coefficient near its bound that is no rounding holds the intercept."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.where(np.arange(40) % 2, 1, -1)
    weight = np.ones(40)
    weight[0] += more
    splits = [(np.arange(30), np.arange(30, 40))]
    machine = SVC(C=1e-2, gamma=0.5)
    search = BilevelSearchCV(
        machine, {"C": (1e-2, 1.0000001e-2)}, criterion="hinge", cv=splits, method="grid"
    )
    search.fit(X, y, sample_weight=weight)
    plain = SVC(C=search.best_params_["C"], gamma=0.5, tol=1e-10).fit(
        X[:30], y[:30], sample_weight=weight[:30]
    )
    wanted = np.mean(np.maximum(0, 1 - y[30:] * plain.decision_function(X[30:])))
    assert -search.best_score_ == pytest.approx(wanted, rel=1e-6)
