"""Odd but possible input: it works, or is refused at once with words that help."""

from __future__ import annotations

import re
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.svm import SVC, SVR

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
from foldwise.bilevel import Bilevel
from foldwise.optimizers import METHODS

rng = np.random.default_rng(2)
X = rng.normal(size=(48, 3))
Y = X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=48)
LABELS = (Y > 0).astype(int)
KERNELS = [KernelSVC(), KernelSVR(), SemiparametricSVR([0]), SVC(), SVR(), KernelRidge()]


def target(estimator):
    last = estimator[-1] if hasattr(estimator, "steps") else estimator
    return LABELS if type(last).__name__ in ("KernelSVC", "SVC", "LinearSVC", "LogisticRegression") else Y


# Bounds without width

MACHINES = {
    "mpec": (LinearSVR("epsilon_insensitive"), "absolute"),
    "slams": (LinearSVR("epsilon_insensitive"), "absolute"),
}


@pytest.mark.parametrize("method", sorted(METHODS))
@pytest.mark.parametrize("fixed", ["one", "all"])
def test_bounds_may_leave_one_value_only(method, fixed):
    estimator, criterion = MACHINES.get(method, (LinearSVR(), "squared"))
    space = {"C": (0.5, 0.5), "epsilon": Lin(0.1, 0.1) if fixed == "all" else Lin(0.0, 0.3)}
    options = {"points": 3} if "grid" in method else {"n_iter": 4} if method == "random" else {}
    if method == "constrained_grid":
        space["box"] = Lin(1.0, 1.0, per="feature")
    search = BilevelSearchCV(
        estimator, space, cv=3, method=method, criterion=criterion, method_options=options
    ).fit(X, Y)
    assert search.best_params_["C"] == pytest.approx(0.5)
    if fixed == "all":
        assert search.best_params_["epsilon"] == pytest.approx(0.1)
        assert {record["C"] for record in search.cv_results_["params"]} == {search.best_params_["C"]}
        assert search.result_.status.value == "exhausted"


@pytest.mark.parametrize("estimator", KERNELS, ids=str)
def test_a_kernel_machine_with_fixed_bounds(estimator):
    name = "alpha" if isinstance(estimator, KernelRidge) else "C"
    search = BilevelSearchCV(estimator, {name: (2.0, 2.0)}, cv=3).fit(X, target(estimator))
    assert search.best_params_ == {name: 2.0}
    assert search.best_estimator_.get_params()[name] == 2.0


# Sparse rows


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("estimator", [*KERNELS, make_pipeline(MaxAbsScaler(), KernelSVC())], ids=str)
def test_sparse_rows_of_kernel_machines_are_searched_and_fitted_as_dense_ones(estimator, kind):
    y, thin = target(estimator), np.where(np.abs(X) > 0.4, X, 0.0)
    dense = BilevelSearchCV(estimator, cv=3, max_iter=4).fit(thin, y)
    sparse = BilevelSearchCV(estimator, cv=3, max_iter=4).fit(kind(thin), y)
    assert sparse.best_score_ == pytest.approx(dense.best_score_, rel=1e-9)
    np.testing.assert_allclose(sparse.predict(kind(thin)), dense.predict(thin), rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="features"):
        sparse.predict(kind(thin[:, :2]))


def test_sparse_rows_that_would_not_fit_dense_are_refused_before_any_work():
    huge = sp.csr_matrix((np.ones(30), (range(30), range(30))), shape=(30, 10**9))
    y = np.arange(30) % 2
    for model in (KernelSVC(), SVC(), SemiparametricSVR([0])):
        with pytest.raises(
            ValueError, match=r"makes sparse rows dense, which takes 240.0 GB.*use a linear machine"
        ):
            BilevelSearchCV(model, ["C"], cv=3).fit(huge, y)
    with pytest.raises(ValueError, match="makes sparse rows dense"):
        KernelSVC().fit(huge, y)


def test_a_sparse_kernel_matrix_that_the_machine_refuses_is_refused_before_the_search(monkeypatch):
    monkeypatch.setattr(Bilevel, "evaluate", lambda *args, **kwargs: pytest.fail("evaluated"))
    with pytest.raises(ValueError, match="SVC cannot be fitted to sparse rows with these settings"):
        BilevelSearchCV(SVC(kernel="precomputed"), cv=3).fit(sp.csr_matrix(X @ X.T), LABELS)


@pytest.mark.parametrize(
    "machine",
    [
        SVC(tol=-1.0),
        SVC(cache_size="big"),
        SVR(max_iter=0.5),
        Ridge(solver="best"),
        LogisticRegression(tol=-1.0),
    ],
    ids=str,
)
def test_a_bad_parameter_of_scikit_learn_is_found_before_the_search(machine, monkeypatch):
    monkeypatch.setattr(Bilevel, "evaluate", lambda *args, **kwargs: pytest.fail("evaluated"))
    with pytest.raises(
        ValueError, match=f"{type(machine).__name__} cannot be fitted to dense rows with these settings"
    ):
        BilevelSearchCV(machine, cv=3).fit(X, target(machine))


# Constant columns


@pytest.mark.parametrize("value", [0.0, 0.1, 1e-8, -1e8, 1 / 3])
@pytest.mark.parametrize("estimator", [LinearSVC(), LinearSVR(), *KERNELS, Ridge()], ids=str)
def test_columns_that_are_all_constant_are_refused(estimator, value):
    with pytest.raises(ValueError, match=r"every column of X is constant \(3 columns, 48 rows\)"):
        BilevelSearchCV(estimator, cv=3).fit(np.full((48, 3), value), target(estimator))


@pytest.mark.parametrize("value", [0.1, 1e8, 1 / 3])
@pytest.mark.parametrize(
    "estimator", [LinearSVC(), LinearSVR(), KernelSVC(RBF(ard=True)), SVR(), Ridge()], ids=str
)
def test_some_constant_columns_change_nothing(estimator, value):
    y = target(estimator)
    more = np.column_stack([X[:, 0], np.full(48, value), X[:, 1:], np.full(48, value)])
    plain = BilevelSearchCV(estimator, cv=3, max_iter=5).fit(X, y)
    far = isinstance(estimator, SVR) and value == 1e8  # LIBSVM's distances lose their digits, and it is told
    with pytest.warns(ConvergenceWarning, match="final fit by scikit-learn's SVR") if far else nullcontext():
        search = BilevelSearchCV(estimator, cv=3, max_iter=5).fit(more, y)
    for low, high in zip(search.space_.lower, search.space_.upper, strict=True):
        assert np.isfinite([low, high]).all()
    if not isinstance(estimator, KernelSVC):
        assert search.best_score_ == pytest.approx(plain.best_score_, rel=1e-2)


@pytest.mark.parametrize("estimator", [SVR(), Ridge()])
def test_features_whose_squares_underflow_are_refused(estimator, rng):
    X, y = 1e-160 * rng.normal(size=(20, 2)), rng.normal(size=20)
    with pytest.raises(
        ValueError, match=r"no column of X varies by more than .*e-160, .* underflows; rescale"
    ):
        BilevelSearchCV(estimator).fit(X, y)


def test_features_whose_squares_overflow_are_refused():
    with pytest.raises(
        ValueError, match=r"column 1 of X has values of size .*e\+200, whose squares overflow; rescale"
    ):
        BilevelSearchCV(LinearSVR(), cv=3).fit(X * [1, 1e200, 1], Y)


# Starts

PIPE = make_pipeline(StandardScaler(), KernelSVC())


@pytest.mark.parametrize(
    ("estimator", "start"),
    [
        (PIPE, {"kernelsvc__C": 3.0, "kernelsvc__kernel__gamma": 0.2}),
        (PIPE, {"C": 3.0, "kernel__gamma": 0.2}),
        (PIPE, {"C": 3.0, "gamma": 0.2}),
        (PIPE, {"kernelsvc__C": 3.0, "kernelsvc__gamma": 0.2}),
        (KernelSVC(), {"C": 3.0, "kernel__gamma": 0.2}),
    ],
)
def test_a_start_takes_the_names_of_the_space_and_bare_ones(estimator, start):
    prefix = "kernelsvc__" if estimator is PIPE else ""
    space = {f"{prefix}C": Log(0.1, 100), f"{prefix}kernel__gamma": Log(0.01, 10)}
    search = BilevelSearchCV(
        estimator, space, cv=3, method="random", method_options={"start": start, "n_iter": 2}
    )
    first = search.fit(X, LABELS).cv_results_["params"][0]
    assert first[f"{prefix}C"] == pytest.approx(3.0)
    assert first[f"{prefix}kernel__gamma"] == pytest.approx(0.2)


def test_the_values_of_one_search_are_a_start_of_the_next():
    model = LinearSVC(class_weight=None)
    three = np.digitize(Y, [-0.5, 0.5])
    space = {"C": Log(0.01, 10), "class_weight": None}
    first = BilevelSearchCV(model, space, cv=3, max_iter=3).fit(X, three)
    again = BilevelSearchCV(model, space, cv=3, max_iter=3, method_options={"start": first.best_params_})
    again.fit(X, three)
    assert again.cv_results_["mean_test_score"][0] == pytest.approx(first.best_score_, rel=1e-6)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ({"c": 1.0}, "start names the unknown hyper-parameter 'c'; this space has: kernelsvc__C"),
        ({"svc__C": 1.0}, "start names the unknown hyper-parameter 'svc__C'"),
        ({"C": 1e9}, "the start of 'C', 1000000000.0, is outside its bounds, 0.1 to 100; move it inside"),
        ({"C": -1.0}, "outside its bounds"),
        ({"C": np.nan}, "the start of 'C' must be finite numbers; got nan"),
        ({"C": "1"}, "the start of 'C' must be finite numbers; got '1'"),
        ({"C": [1.0, 2.0]}, "start has 2 values of 'C'; it needs 1 or 1"),
        ({3: 1.0}, "unknown hyper-parameter 3"),
        ([1.0], "start in method_options must be a dict from name to starting value; got [1.0]"),
    ],
)
def test_what_is_wrong_with_a_start_is_said(start, words, monkeypatch, tmp_path):
    monkeypatch.setattr(Bilevel, "evaluate", lambda *args, **kwargs: pytest.fail("evaluated"))
    space = {"kernelsvc__C": Log(0.1, 100)}
    file = tmp_path / "search.ckpt"
    with pytest.raises(ValueError, match=re.escape(words)):
        BilevelSearchCV(PIPE, space, cv=3, checkpoint=file, method_options={"start": start}).fit(X, LABELS)
    assert not file.exists()


def test_a_wrong_option_leaves_no_checkpoint(tmp_path):
    file = tmp_path / "search.ckpt"
    for options in ({"pints": 3}, {"points": -1}):
        search = BilevelSearchCV(LinearSVR(), cv=3, method="grid", checkpoint=file, method_options=options)
        with pytest.raises(ValueError, match=r"points|pints"):
            search.fit(X, Y)
        assert not file.exists()


# Targets

HOLES = np.array(["a", None, "b", np.nan] * 12, dtype=object)


@pytest.mark.parametrize(
    ("estimator", "y", "words"),
    [
        (LinearSVR(), np.where(np.arange(48) == 5, np.inf, Y), "Input y contains infinity in row 5; drop"),
        (LinearSVR(), np.where(np.arange(48) % 7 == 5, np.nan, Y), "in rows 5, 12, 19, 26, 33, ... (7 rows)"),
        (LinearSVR(), np.array([None, *Y[1:]], dtype=object), "Input y contains NaN or None in row 0"),
        (LinearSVR(), np.array(["a", *Y[1:]], dtype=object), "no numbers, such as 'a'; regression needs numbers"),
        (LinearSVR(), np.where(Y > 0, "x", "z"), "regression needs numbers. For classes use a classifier"),
        (LinearSVR(), Y + 1j, "real numbers"),
        (LinearSVC(), HOLES, "Input y contains NaN or None in rows 1, 3, 5"),
        (LinearSVC(), np.where(Y > 0, np.inf, 1.0), "Input y contains infinity in row"),
        (LinearSVC(), Y, "y is continuous, with 48 different values; a classifier needs classes. Use a regressor"),
        (LinearSVC(), np.array([1, "a"] * 24, dtype=object), "y mixes values of types int, str; make them all text"),
        (LinearSVC(), None, "requires y to be passed, but the target y is None"),
        (LinearSVC(), "abc", "y should be a 1d array"),
        (LinearSVC(), 3, "y should be a 1d array"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_target_is_said_with_its_rows(estimator, y, words):
    kernel = KernelSVR() if isinstance(estimator, LinearSVR) else KernelSVC()
    for model in (
        estimator,
        kernel,
        BilevelSearchCV(estimator),
        BilevelSearchCV(make_pipeline(MaxAbsScaler(), kernel)),
    ):
        with pytest.raises(ValueError, match=re.escape(words)):
            model.fit(X, y)


@pytest.mark.parametrize(
    "y",
    [LABELS == 1, LABELS.astype(np.int8), LABELS.astype(float), np.where(LABELS, "x", "z"), LABELS[:, None]],
)
@pytest.mark.filterwarnings("ignore:A column-vector")
def test_targets_of_all_kinds_serve_classification(y):
    search = BilevelSearchCV(LinearSVC(), cv=3).fit(X, y)
    assert np.mean(search.predict(X) == np.ravel(y)) > 0.8
    assert search.best_score_ == BilevelSearchCV(LinearSVC(), cv=3).fit(X, LABELS).best_score_


@pytest.mark.parametrize("estimator", [SVC(), Ridge(), LinearSVC(), KernelSVR()], ids=str)
def test_one_weight_for_all_rows_serves_search_and_final_fit(estimator):
    y = target(estimator)
    one = BilevelSearchCV(estimator, cv=3, max_iter=3).fit(X, y, sample_weight=2.0)
    all_rows = BilevelSearchCV(estimator, cv=3, max_iter=3).fit(X, y, sample_weight=np.full(48, 2.0))
    np.testing.assert_array_equal(one.predict(X), all_rows.predict(X))


@pytest.mark.parametrize("steps", [(), (MaxAbsScaler(),)], ids=["alone", "behind a step"])
@pytest.mark.parametrize("machine", [LinearSVC(), LinearSVR(), SVC(), KernelSVR()], ids=str)
def test_no_rows_and_no_features_are_said(machine, steps):
    search = BilevelSearchCV(make_pipeline(*steps, machine) if steps else machine, cv=3)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        search.fit(np.zeros((0, 3)), np.zeros(0))
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        search.fit(np.zeros((48, 0)), target(machine))
    with pytest.raises(ValueError, match="X is None"):
        search.fit(None, target(machine))


# What a refusal advises exists


@pytest.mark.parametrize(
    "estimator", [SVC(), SVR(), KernelRidge(), KernelSVC(), KernelSVR(loss="epsilon_insensitive")]
)
def test_the_refusal_of_a_large_kernel_matrix_advises_what_there_is(estimator):
    n = 40_000
    rows = np.random.default_rng(0).normal(size=(n, 1))
    y = (rows[:, 0] > 0).astype(int) if "SVC" in type(estimator).__name__ else rows[:, 0]
    with pytest.raises(ValueError, match=r"kernel matrices of 40000 rows need \d+.\d GB") as caught:
        BilevelSearchCV(estimator, cv=2, low_rank=False).fit(rows, y)
    words = str(caught.value)
    for name in ("memory_limit", "precision"):
        assert (name in words.split("tune KernelSVC")[0]) == (name in estimator.get_params()), words
    exact = isinstance(estimator, (SVC, SVR)) or getattr(estimator, "loss", "") == "epsilon_insensitive"
    assert ("low_rank" in words) == (not exact)


def test_a_plain_search_still_equals_refitting_by_hand():
    search = BilevelSearchCV(Ridge(), cv=3).fit(X, Y)
    by_hand = cross_val_score(Ridge(**search.best_params_), X, Y, cv=3, scoring="neg_mean_squared_error")
    assert search.best_score_ == pytest.approx(by_hand.mean(), rel=1e-8)


@pytest.mark.parametrize(
    "model", [LinearSVR(), BilevelSearchCV(LinearSVR(), cv=2)], ids=["alone", "searched"]
)
def test_the_value_that_is_no_number_is_shown(model):
    y = np.array(["1.5", "2", "many", "3", "4", "5"], dtype=object)
    with pytest.raises(ValueError, match="no numbers, such as 'many'"):
        model.fit(np.arange(12.0).reshape(6, 2), y)


@pytest.mark.parametrize("unit", [1e306, 1e160, 1e76, 1e-77, 1e-170, 1e-310])
@pytest.mark.parametrize(
    "machine", [LinearSVR(), LinearSVR("huber"), KernelSVR(), SemiparametricSVR(), Ridge()]
)
def test_targets_whose_squares_cannot_be_held_are_refused(machine, unit):
    with pytest.raises(ValueError, match=r"the target y has values up to .* Give it in another unit"):
        BilevelSearchCV(machine).fit(X, unit * Y)
