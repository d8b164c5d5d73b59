"""Nested cross-validation, against scikit-learn's own loops around the same search."""

from __future__ import annotations

import threading
from inspect import signature

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_wine, make_classification, make_regression
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    RepeatedKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR, LinearSVC, LinearSVR, Precomputed
from foldwise.search.nested import Nested
from foldwise.testing.refits import criterion_values
from tests.referees import fold_errors

PARAMS = "params" if "params" in signature(cross_val_predict).parameters else "fit_params"


def classes(n=90, seed=0, **options):
    return make_classification(n, 4, n_informative=3, n_redundant=0, flip_y=0.2, random_state=seed, **options)


def numbers(n=60, seed=0):
    return make_regression(n, 4, noise=20.0, random_state=seed)


@pytest.mark.parametrize("machine", [LinearSVC(), KernelSVC(), SVC()])
def test_classes_against_scikit_learn(machine):
    X, y = classes()
    y = np.array(["no", "yes"])[y]
    search = BilevelSearchCV(make_pipeline(StandardScaler(), machine), cv=3)
    cv = StratifiedKFold(3, shuffle=True, random_state=1)
    nested = search.nested(X, y, cv=cv)
    np.testing.assert_array_equal(nested.predictions, cross_val_predict(search, X, y, cv=cv))
    scores = cross_val_score(search, X, y, cv=cv)
    np.testing.assert_allclose(nested.error_rates, 1 - scores, rtol=1e-12)
    assert nested.error_rate == pytest.approx(1 - scores.mean())
    assert nested.error_rate_standard_error == pytest.approx(scores.std(ddof=1) / np.sqrt(3))
    z = cross_val_predict(search, X, y, cv=cv, method="decision_function")
    fitted = clone(search).fit(X, y)
    sign = np.where(y == "yes", 1.0, -1.0)
    folds = [[(z[test], sign[test], np.full(len(test), 1 / len(test)))] for _, test in cv.split(X, y)]
    np.testing.assert_allclose(nested.errors, fold_errors(fitted.criterion_, folds), rtol=1e-7)
    assert nested.status == "complete"
    assert nested.gap == pytest.approx(nested.error - nested.inner_error)


@pytest.mark.parametrize("method", ["predict", "json"])
def test_regression_with_weights_against_scikit_learn(method):
    X, y = numbers()
    weight = np.random.default_rng(0).uniform(0.2, 2.0, len(y))
    search, cv = BilevelSearchCV(KernelSVR(), ["C"], cv=3), KFold(4, shuffle=True, random_state=0)
    nested = search.nested(X, y, cv=cv, sample_weight=weight)
    expected = cross_val_predict(search, X, y, cv=cv, **{PARAMS: {"sample_weight": weight}})
    if method == "json":
        nested = Nested.from_json(nested.to_json())
    np.testing.assert_allclose(nested.predictions, expected, rtol=1e-12)
    errors = [np.average((expected[test] - y[test]) ** 2, weights=weight[test]) for _, test in cv.split(X, y)]
    np.testing.assert_allclose(nested.errors, errors, rtol=1e-10)
    assert nested.error == pytest.approx(np.mean(errors))
    assert nested.standard_error == pytest.approx(np.std(errors, ddof=1) / 2)
    assert nested.error_rates is None
    for t, (train, _) in enumerate(cv.split(X, y)):
        own = clone(search).fit(X[train], y[train], sample_weight=weight[train])
        assert nested.folds[t].params == {"C": own.best_params_["C"]}
        assert nested.folds[t].inner_error == own.result_.error
        assert nested.folds[t].optimism == own.result_.optimism
        assert nested.selected["C"][t] == own.best_params_["C"]
    assert "C = " in nested.summary()


def test_several_classes_by_pairs_and_against_the_rest():
    X, y = load_wine(return_X_y=True)
    X, y, cv = X[::2, :2], y[::2], StratifiedKFold(3, shuffle=True, random_state=0)
    for machine, pairs in ((SVC(decision_function_shape="ovo"), True), (LinearSVC(), False)):
        search = BilevelSearchCV(make_pipeline(StandardScaler(), machine), cv=3)
        nested = search.nested(X, y, cv=cv)
        np.testing.assert_array_equal(nested.predictions, cross_val_predict(search, X, y, cv=cv))
        folds = []
        for train, test in cv.split(X, y):
            own = clone(search).fit(X[train], y[train])
            Z, machines = own.decision_function(X[test]), []
            for column, (i, j) in enumerate(
                [(0, 1), (0, 2), (1, 2)] if pairs else [(0, -1), (1, -1), (2, -1)]
            ):
                use = (y[test] == i) | (y[test] == j) if pairs else np.full(len(test), True)
                sign = np.where(y[test] == i, 1.0, -1.0)
                machines.append((Z[use, column], sign[use], np.full(use.sum(), 1 / (3 * use.sum()))))
            folds.append(machines)
        np.testing.assert_allclose(nested.errors, fold_errors(own.criterion_, folds), rtol=1e-7)


def test_rows_count_in_the_outer_folds_as_in_the_inner_ones():
    X, y = classes(weights=[0.8])
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    search = BilevelSearchCV(LinearSVC(class_weight="balanced"), cv=3)
    nested = search.nested(X, y, cv=cv)
    z = cross_val_predict(search, X, y, cv=cv, method="decision_function")
    losses = criterion_values(search.fit(X, y).criterion_, z, 2.0 * y - 1)
    for fold, (train, test) in zip(nested.folds, cv.split(X, y), strict=True):
        v = 1.0 / np.bincount(y[train])[y[test]]
        assert fold.error == pytest.approx(np.average(losses[test], weights=v))
        assert fold.error_rate == pytest.approx(np.average((z[test] > 0) != y[test], weights=v))


def test_a_criterion_of_all_rows_together():
    X, y = classes(seed=2)
    search = BilevelSearchCV(LinearSVC(), criterion="profiled_logistic", cv=3)
    nested = search.nested(X, y, cv=3)
    z = cross_val_predict(search, X, y, cv=3, method="decision_function")
    m, s = (2 * y - 1) * z, 0.005
    scales = np.geomspace(1e-3, 1e3, 60_001)
    best = min(np.mean(-np.log(0.05 + 0.95 * np.exp(-s * a * m) / (1 + np.exp(-a * m)))) for a in scales)
    assert nested.error == pytest.approx(best, rel=1e-7)
    assert best < 0.6


def test_groups_and_groups_of_samples_are_cut_to_the_rows():
    X, y = numbers()
    groups, kinds = np.arange(60) // 4, np.array(["a", "b"])[np.arange(60) % 2]
    search = BilevelSearchCV(LinearSVR(), cv=GroupKFold(3))
    nested = search.nested(X, y, cv=GroupKFold(3), groups=groups, sample_groups=kinds)
    for fold, (train, test) in zip(nested.folds, GroupKFold(3).split(X, y, groups), strict=True):
        assert not set(groups[fold.rows]) & set(groups[train])
        own = clone(search).fit(X[train], y[train], groups=groups[train], sample_groups=kinds[train])
        np.testing.assert_array_equal(fold.predictions, own.predict(X[test]))


def test_kernel_matrices_sparse_rows_and_frames():
    X, y = classes(60)
    K = rbf_kernel(X)
    search = BilevelSearchCV(KernelSVC(kernel=Precomputed()), cv=3)
    np.testing.assert_array_equal(
        search.nested(K, y, cv=3).predictions, cross_val_predict(search, K, y, cv=3)
    )
    linear = BilevelSearchCV(LinearSVC(), cv=3)
    dense, sparse = (linear.nested(A, y, cv=3) for A in (X, sp.csr_matrix(X)))
    np.testing.assert_array_equal(dense.predictions, sparse.predictions)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"), index=np.arange(60)[::-1])
    np.testing.assert_array_equal(linear.nested(frame, pandas.Series(y), cv=3).predictions, dense.predictions)


def test_a_number_of_folds_means_what_it_means_in_scikit_learn():
    X, y = classes(60)
    search = BilevelSearchCV(LinearSVC(), cv=3)
    found = [fold.rows.tolist() for fold in search.nested(X, y, cv=3).folds]
    assert found == [test.tolist() for _, test in StratifiedKFold(3).split(X, y)]


def test_rows_that_several_folds_predict_or_none():
    X, y = numbers(40)
    search = BilevelSearchCV(LinearSVR(), ["C"], cv=3)
    cv = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    nested = search.nested(X, y, cv=cv)
    by_fold = np.full((6, 40), np.nan)
    for fold in nested.folds:
        by_fold[fold.number, fold.rows] = fold.predictions
    np.testing.assert_allclose(nested.predictions, np.nanmean(by_fold, axis=0))
    part = search.nested(X, y, cv=[(np.arange(10, 40), np.arange(5))])
    assert np.isnan(part.predictions[5:]).all()
    assert np.isfinite(part.predictions[:5]).all()
    assert np.isnan(part.standard_error)
    labels = BilevelSearchCV(LinearSVC(), cv=3).nested(X, y > 0, cv=[(np.arange(10, 40), np.arange(5))])
    assert labels.predictions[5:].tolist() == [None] * 35


def test_the_search_stays_as_it_is_and_threads_change_nothing():
    X, y = classes()
    search = BilevelSearchCV(KernelSVC(), cv=3, refit=False).fit(X, y)
    before = dict(vars(search))
    one = search.nested(X, y, cv=3)
    two = search.nested(X, y, cv=3, n_jobs=2)
    assert vars(search) == before
    assert [fold.number for fold in two.folds] == [0, 1, 2]
    np.testing.assert_array_equal(one.errors, two.errors)
    np.testing.assert_array_equal(one.predictions, two.predictions)


def test_progress_and_callbacks(capsys):
    X, y = numbers(40)
    seen = []
    search = BilevelSearchCV(LinearSVR(), ["C"], cv=3, callbacks=[seen.append])
    search.nested(X, y, cv=2, verbose=1)
    told = capsys.readouterr().err
    assert "outer fold 1 of 2 | evaluation 1" in told
    assert "outer fold 2 of 2: converged" in told
    count = len(seen)
    search.nested(X, y, cv=2, n_jobs=2, verbose=1)
    assert len(seen) == 2 * count
    assert "outer fold 2 of 2: converged" in capsys.readouterr().err


def interrupting(after):
    """A callback that presses Ctrl-C once so many folds are finished."""
    begun = []

    def call(record):
        begun.extend([record] if record.evaluation == 0 else [])
        if len(begun) > after:
            raise KeyboardInterrupt

    return call


def test_ctrl_c_keeps_the_folds_that_are_finished():
    X, y = numbers()
    search = BilevelSearchCV(LinearSVR(), ["C"], cv=3)
    whole = search.nested(X, y, cv=4)
    cut = search.set_params(callbacks=[interrupting(2)]).nested(X, y, cv=4)
    assert cut.status == "interrupted"
    assert "2 of 4" in cut.message
    np.testing.assert_array_equal(cut.errors, whole.errors[:2])
    assert np.isnan(cut.predictions[whole.folds[3].rows]).all()
    with pytest.raises(KeyboardInterrupt):
        search.set_params(callbacks=[interrupting(0)]).nested(X, y, cv=4)


def test_ctrl_c_among_threads(monkeypatch):
    X, y = numbers()
    search = BilevelSearchCV(LinearSVR(), ["C"], cv=3)
    whole = search.nested(X, y, cv=4)
    import foldwise.search.nested as module

    first, waiting = threading.Event(), threading.Event()

    def one_then_interrupt(tasks):
        yield tasks[0]
        first.set()
        assert waiting.wait(30)
        raise KeyboardInterrupt

    def wait(record):
        """Folds after the first two are under way when Ctrl-C comes."""
        if first.is_set():
            waiting.set()
        else:
            assert first.wait(30) or threading.current_thread() is threading.main_thread()

    original = module.Outer.fit

    def fit(self, t, callbacks, n_jobs):
        return original(self, t, callbacks if t == 0 else (wait, *callbacks), n_jobs)

    monkeypatch.setattr(module.Outer, "fit", fit)
    monkeypatch.setattr(module, "as_completed", one_then_interrupt)
    cut = search.nested(X, y, cv=4, n_jobs=2)
    assert cut.status == "interrupted"
    assert 0 in [fold.number for fold in cut.folds]
    assert len(cut.folds) < 4
    for fold in cut.folds:
        assert fold.params == whole.folds[fold.number].params
        np.testing.assert_array_equal(cut.predictions[fold.rows], whole.predictions[fold.rows])
    expected = [whole.errors[fold.number] for fold in cut.folds]
    np.testing.assert_allclose(cut.errors, expected, rtol=1e-14)  # weights of thirds instead of quarters


def test_bad_input_is_refused_before_any_search(monkeypatch):
    X, y = classes(40)
    monkeypatch.setattr(BilevelSearchCV, "fit", lambda *args, **options: pytest.fail("a search was begun"))
    search = BilevelSearchCV(LinearSVC(), cv=3)
    with pytest.raises(ValueError, match="cv of nested"):
        search.nested(X, y, cv=1)
    with pytest.raises(ValueError, match="n_jobs of nested"):
        search.nested(X, y, n_jobs=0)
    with pytest.raises(ValueError, match=r"X has 39 rows and y has 40"):
        search.nested(X[:39], y)
    with pytest.raises(ValueError, match="one class only"):
        search.nested(X, np.ones(40))
    with pytest.raises(ValueError, match="sample_groups must have one entry per row"):
        search.nested(X, y, sample_groups=np.ones(3))
    with pytest.raises(ValueError, match="list of rows"):
        BilevelSearchCV(LinearSVC(), cv=[(np.arange(20), np.arange(20, 40))]).nested(X, y)
    rare = np.where(np.arange(40) < 3, 2, y)
    with pytest.raises(ValueError, match="fold") as error:
        BilevelSearchCV(LinearSVC(), cv=KFold(2)).nested(X, rare, cv=KFold(2))
    with pytest.raises(ValueError, match="class 2 has no training rows") as error:
        BilevelSearchCV(LinearSVC(), cv=KFold(4)).nested(X, rare, cv=KFold(4, shuffle=True, random_state=0))
    assert "in outer fold" in error.value.__notes__[0]


def test_checkpoints_of_every_fold(tmp_path):
    X, y = numbers()
    search = BilevelSearchCV(LinearSVR(), ["C"], cv=3, checkpoint=tmp_path / "nest")
    nested = search.nested(X, y, cv=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nest.fold1", "nest.fold2"]
    with pytest.raises(ValueError, match=r"nest\.fold1 exists"):
        search.nested(X, y, cv=2)
    again = search.set_params(resume=True).nested(X, y, cv=2)
    np.testing.assert_array_equal(again.errors, nested.errors)


def test_what_is_no_nested_result():
    with pytest.raises(ValueError, match="not a nested result"):
        Nested.from_json('{"schema": "foldwise-result-1"}')


@pytest.mark.parametrize("refit", ["r2", False, lambda table: 0])
def test_what_decides_in_the_search_decides_in_its_copies(refit):
    X, y = make_regression(60, 3, noise=20.0, random_state=0)
    options = {"scoring": ["r2", "neg_max_error"], "cv": 3, "refit": refit}
    search = BilevelSearchCV(Ridge(), {"alpha": (0.1, 10.0)}, **options)
    folds = list(KFold(2).split(X))
    nested = search.nested(X, y, cv=folds)
    for fold, (train, _) in zip(nested.folds, folds, strict=True):
        assert fold.params == clone(search).fit(X[train], y[train]).best_params_
