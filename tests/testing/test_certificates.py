"""Certificates of our machines: what a fit finds is optimal, and nothing a thousandth away from it is."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from foldwise import (
    RBF,
    KernelSVC,
    KernelSVR,
    Linear,
    LinearSVC,
    LinearSVR,
    Polynomial,
    SemiparametricSVR,
    Sum,
)
from foldwise.losses import Huber, Logistic, QuarticHinge, SmoothMisclassification
from foldwise.testing import RandomSearch, judge, optimality

N, D = 60, 4
CLASSIFICATION = (
    "squared_hinge",
    "hinge",
    "logistic",
    "modified_huber",
    "modified_log_hinge",
    "quartic_hinge",
)
REGRESSION = ("squared_epsilon_insensitive", "epsilon_insensitive", "squared", "huber")
LINEAR_OPTIONS = {
    "plain": {},
    "strong": {"C": 100.0},
    "no intercept": {"fit_intercept": False},
    "penalties": {"lam": np.linspace(0.5, 2, D)},
    "box": {"box": 0.3},
    "boxes": {"box": np.array([0.0, 0.2, 0.5, np.inf])},
    "lower bounds": {"box": 0.5, "box_lower": 0.0},
    "reference": {"reference": np.linspace(-1, 1, D), "proximity": 2.0},
}
PASSES, FAILS = 1e-7, 1e-5
"""What a fitted machine keeps within, and what one that is off by a thousandth exceeds."""


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D))
    y = X[:, 0] - 0.5 * X[:, 1] + 0.3 * rng.normal(size=N)
    weight = np.where(rng.random(N) < 0.1, 0.0, rng.uniform(0.3, 2, N))
    return X, y, weight


def off_by_a_thousandth(model):
    rng = np.random.default_rng(1)
    for name in ("coef_", "dual_coef_"):
        if hasattr(model, name):
            value = getattr(model, name)
            setattr(model, name, value * (1 + 1e-3 * rng.choice([-1.0, 1.0], np.shape(value))))
    return model


def check(model, X, y, **given):
    model.set_params(tol=1e-10).fit(X, y, **given)
    assert optimality(model, X, y, **given) <= PASSES
    assert optimality(off_by_a_thousandth(model), X, y, **given) > FAILS


@pytest.mark.parametrize("options", LINEAR_OPTIONS.values(), ids=LINEAR_OPTIONS)
@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_linear_classifiers(loss, options):
    X, y, weight = data()
    check(LinearSVC(loss, **options), X, np.where(y > 0.2, "yes", "no"), sample_weight=weight)


@pytest.mark.parametrize("options", LINEAR_OPTIONS.values(), ids=LINEAR_OPTIONS)
@pytest.mark.parametrize("loss", REGRESSION)
def test_linear_regressors(loss, options):
    X, y, weight = data()
    check(LinearSVR(loss, epsilon=0.1, **options), X, y, sample_weight=weight)


@pytest.mark.parametrize(
    "options", [{}, {"box": 0.4}, {"box": 0.4, "box_lower": 0.0}, {"fit_intercept": False}]
)
@pytest.mark.parametrize("penalty", ["l1", "elasticnet"])
def test_penalties_with_a_corner(penalty, options):
    X, y, weight = data()
    for model, target in ((LinearSVC("hinge"), y > 0), (LinearSVR("epsilon_insensitive", epsilon=0.1), y)):
        model.set_params(penalty=penalty, lam=np.linspace(5, 9, D), **options)
        check(model, X, target, sample_weight=weight)


HARD = {
    "tube": (LinearSVR("epsilon_insensitive", epsilon=0.3), "number"),
    "tube without intercept": (LinearSVR("epsilon_insensitive", epsilon=0.3, fit_intercept=False), "number"),
    "boxed tube": (LinearSVR("epsilon_insensitive", epsilon=0.3, box=0.9), "number"),
    "tube with l1": (LinearSVR("epsilon_insensitive", epsilon=0.3, penalty="l1"), "number"),
    "tube with elasticnet": (LinearSVR("epsilon_insensitive", epsilon=0.3, penalty="elasticnet"), "number"),
    "hinge": (LinearSVC("hinge"), "class"),
    "kernel tube": (KernelSVR(RBF(0.5), loss="epsilon_insensitive", epsilon=0.3), "number"),
    "kernel hinge": (KernelSVC(RBF(0.5), loss="hinge"), "class"),
    "semiparametric": (SemiparametricSVR([0], kernel=RBF(0.5), epsilon=0.1), "number"),
}


@pytest.mark.parametrize(("machine", "task"), HARD.values(), ids=HARD)
def test_a_bound_that_no_coefficient_reaches_changes_nothing(machine, task):
    """Where all rows can be fitted, C may be as large as it likes: coefficients are then far below it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 3))
    y = X @ [1.0, -0.5, 0.2] + 0.05 * rng.uniform(-1, 1, 12)
    target = y if task == "number" else X[:, 0] > 0
    decisions = []
    for C in (1e3, 1e6, 1e9, 1e12, 1e15):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            machine.set_params(C=C, tol=1e-10).fit(X, target)
        assert optimality(machine, X, target) <= PASSES
        decisions.append((machine.predict if task == "number" else machine.decision_function)(X))
        np.testing.assert_allclose(decisions[-1], decisions[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("machine", [LinearSVC, KernelSVC])
@pytest.mark.parametrize("loss", CLASSIFICATION)
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 1.0, 2: 3.0}])
def test_one_against_the_rest(machine, loss, class_weight):
    X, y, weight = data()
    label = np.digitize(y, [-0.5, 0.6])
    check(
        machine(loss=loss, C=np.array([0.3, 1, 3]), class_weight=class_weight), X, label, sample_weight=weight
    )


@pytest.mark.parametrize(
    "model",
    [
        LinearSVC(C=[0.3, 2]),
        LinearSVC("hinge", C=[0.3, 2]),
        LinearSVR(C=[0.3, 2], epsilon=[0.1, 0.3]),
        LinearSVR("epsilon_insensitive", C=[0.3, 2], epsilon=[0.1, 0.3]),
        KernelSVC(C=[0.3, 2]),
        KernelSVC(loss="hinge", C=[0.3, 2]),
        KernelSVR(C=[0.3, 2], epsilon=[0.1, 0.3]),
        KernelSVR(loss="epsilon_insensitive", C=[0.3, 2]),
    ],
)
def test_groups_of_rows(model):
    X, y, _ = data()
    target = y > 0 if hasattr(model, "class_weight") else y
    check(model, X, target, sample_groups=np.array(["b", "a"])[np.arange(N) % 2])


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kernel", ["rbf", Linear(), Polynomial(2), Sum([RBF(), Linear()])])
@pytest.mark.parametrize("loss", [*CLASSIFICATION, *REGRESSION])
def test_kernel_machines(loss, kernel, fit_intercept):
    X, y, weight = data()
    machine, target = (KernelSVC, y > 0) if loss in CLASSIFICATION else (KernelSVR, y)
    check(machine(kernel, loss=loss, C=2.0, fit_intercept=fit_intercept), X, target, sample_weight=weight)


@pytest.mark.parametrize("loss", ["quartic_hinge", "hinge"])
def test_kernel_matrix(loss):
    X, y, weight = data()
    check(KernelSVC("precomputed", loss=loss), X @ X.T + 1.0, y > 0, sample_weight=weight)


@pytest.mark.parametrize("basis", [None, [0], [("square", lambda X: X[:, 1] ** 2), 0]])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_semiparametric_machines(basis, fit_intercept):
    X, y, weight = data()
    check(SemiparametricSVR(basis, C=2.0, fit_intercept=fit_intercept), X, y, sample_weight=weight)


def test_coefficients_of_basis_functions_and_intercepts_count():
    X, y, _ = data()
    model = SemiparametricSVR([0], tol=1e-10).fit(X, y)
    model.basis_coef_ = model.basis_coef_ * 1.001
    assert optimality(model, X, y) > FAILS
    for model in (
        LinearSVR(),
        LinearSVR("epsilon_insensitive"),
        KernelSVR(),
        KernelSVR(loss="epsilon_insensitive"),
    ):
        model.fit(X, y)
        model.intercept_ = model.intercept_ + 1e-3
        assert optimality(model, X, y) > FAILS


def test_basis_given_as_an_array():
    X, y, _ = data()
    model = SemiparametricSVR(X[:, :1], tol=1e-10).fit(X, y)
    assert optimality(model, X, y) <= PASSES
    assert optimality(model, X, y, basis=X[:, 1:2]) > FAILS


@pytest.mark.parametrize("loss", [Huber(delta=0.2), "huber"])
def test_losses_with_parameters_of_their_own(loss):
    X, y, _ = data()
    model = LinearSVR(loss).fit(X, y)
    assert optimality(model, X, y) <= PASSES
    model.loss = Huber(delta=0.5)
    assert optimality(model, X, y) > FAILS


@pytest.mark.parametrize("machine", [LinearSVC, KernelSVC])
def test_bands_of_the_quartic_hinge(machine):
    X, y, _ = data()
    for loss in (QuarticHinge(epsilon=0.3), "quartic_hinge"):
        model = machine(loss=loss).fit(X, y > 0)
        assert optimality(model, X, y > 0) <= PASSES
        model.loss = QuarticHinge(epsilon=0.25)
        assert optimality(model, X, y > 0) > FAILS


@pytest.mark.parametrize("loss", ["squared", "squared_epsilon_insensitive", "epsilon_insensitive"])
def test_units_and_places_of_columns_do_not_matter(loss):
    X, y, _ = data()
    X = X * 10.0 ** np.array([-4, 0, 2, 4]) + np.array([1e-3, 1e3, 0, 1e5])
    check(LinearSVR(loss, C=10.0, epsilon=0.1), X, y)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(KernelSVC("rbf", loss="hinge"), SVC(gamma=0.7, C=2.0, tol=1e-3)),
     (KernelSVR("rbf", loss="epsilon_insensitive"), SVR(gamma=0.7, C=2.0, tol=1e-3))],
)  # fmt: skip
def test_another_solver_passes_up_to_its_tolerance(ours, theirs):
    """The same conditions hold for LIBSVM's answers, to the accuracy that it was asked for and no further."""
    X, y, _ = data()
    target = y > 0 if isinstance(theirs, SVC) else y
    ours.set_params(kernel=RBF(0.7), C=2.0).fit(X, target)
    for tol in (1e-2, 1e-7):
        theirs.set_params(tol=tol).fit(X, target)
        for name in ("dual_coef_", "intercept_", "support_", "support_vectors_"):
            setattr(ours, name, getattr(theirs, name))
        assert optimality(ours, X, target) <= 10 * tol
    assert optimality(off_by_a_thousandth(ours), X, target) > FAILS


@pytest.mark.parametrize("machine", [LinearSVC, KernelSVC])
def test_weights_in_single_precision_are_numbers_like_others(machine):
    X, y, weight = data()
    single = (weight + 0.1).astype(np.float32)
    model = machine(loss="squared_hinge", C=1e4).fit(X, y > 0, sample_weight=single)
    assert optimality(model, X, y > 0, sample_weight=single) <= PASSES
    again = machine(loss="squared_hinge", C=1e4).fit(X, y > 0, sample_weight=single.astype(float))
    assert np.array_equal(model.decision_function(X), again.decision_function(X))


@pytest.mark.parametrize("kernel", ["rbf", Linear()])
def test_a_constant_function_is_a_function(kernel):
    """The class between two others: the best straight machine says no to everything, and its terms cancel."""
    X = np.repeat(np.linspace(-1, 1, 9), 4)[:, None]
    y = np.where(np.arange(36) % 4 == 0, 1, np.where(X[:, 0] > 0, 2, 0))
    model = KernelSVC(kernel, loss="hinge", C=0.03).fit(X, y)
    assert optimality(model, X, y) <= FAILS


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_a_median_is_a_machine(offset):
    X, y, weight = data()
    model = LinearSVR("epsilon_insensitive", penalty="l1", C=1e-8).fit(X, y + offset, sample_weight=weight)
    assert not np.any(model.coef_)
    assert optimality(model, X, y + offset, sample_weight=weight) <= PASSES
    model.intercept_ += 1e-2
    assert optimality(model, X, y + offset, sample_weight=weight) > FAILS


def test_a_way_down_without_end_is_not_taken():
    """Rounding made a direction look like descent that nothing stops; weights were not numbers, and none said so."""
    rng, n = np.random.default_rng(6003698), 38
    X = rng.normal(size=(n, 4))
    y = X.sum(axis=1) + 0.3 * rng.normal(size=n) + 1e5
    X[:, [0, -1]] = 2.0
    X = X * 10.0 ** rng.integers(-8, 9, 4)
    weight = rng.integers(0, 3, n)
    rows = rng.permutation(n)[: 2 * n // 3]
    X, y, weight = X[rows], y[rows], weight[rows]
    model = LinearSVR(
        "epsilon_insensitive", penalty="l1", C=0.0019150934465913413, lam=0.016, fit_intercept=False
    )
    model.set_params(epsilon=0.502967643279834).fit(X, y, sample_weight=weight)
    assert np.all(np.isfinite(model.coef_))
    assert optimality(model, X, y, sample_weight=weight) <= PASSES


def test_sparse_rows_and_lists():
    X, y, _ = data()
    sparse = sp.csr_array(X * (np.abs(X) > 0.5))
    assert optimality(LinearSVR().fit(sparse, y), sparse, y) <= PASSES
    assert optimality(LinearSVR().fit(X.tolist(), y.tolist()), X.tolist(), y.tolist()) <= PASSES


def test_a_loss_that_is_not_convex_is_refused():
    X, y, _ = data()
    model = LinearSVC().fit(X, y > 0)
    model.loss = SmoothMisclassification()
    with pytest.raises(ValueError, match="is not convex, so conditions on its slopes prove no minimum"):
        optimality(model, X, y > 0)


@pytest.mark.parametrize("machine", ["LinearSVC", "KernelSVC"])
def test_referee_sees_a_machine_that_does_not_solve_its_problem(machine, monkeypatch):
    """An error that search and refit share agrees with itself, value and gradient; the certificate tells."""
    drawn = RandomSearch(
        seed=6,
        size=(30, 2),
        data=("X = rng.normal(size=(n, d))", "y = X[:, 0] + rng.normal(size=n) > 0"),
        machine=machine,
        params={"loss": "'logistic'"},
        options={"cv": "3", "criterion": "'squared_hinge'"},
    )
    assert judge(drawn).outcome == "checked"
    for name in ("value", "grad", "hess", "third"):
        right = getattr(Logistic, name)
        monkeypatch.setattr(Logistic, name, lambda self, z, y, right=right: 1.01 * right(self, z, y))
    verdict = judge(drawn)
    assert verdict.kind == "our machine does not solve its problem", verdict


@pytest.mark.parametrize("loss", ["quartic_hinge", "squared_hinge", "logistic", "modified_log_hinge"])
def test_a_machine_warns_exactly_where_it_does_not_solve_its_problem(loss):
    """Separated rows in ever larger units: the penalty is too weak to be seen beside them, and decides all the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    y = X[:, 0] > 0
    X[:, 0] += 0.5 * np.sign(X[:, 0])
    said = []
    for unit in (1.0, 1e3, 1e6, 1e9, 1e12):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = LinearSVC(loss, C=1e3).fit(unit * X, y)
        said.append(any(issubclass(one.category, ConvergenceWarning) for one in caught))
        assert said[-1] == (optimality(model, unit * X, y) > 1e-5)
    assert not said[0]
    assert said[-1] == (loss != "squared_hinge")
