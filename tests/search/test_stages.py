"""Stages before a kernel machine's search: what they sample, where they lead, and that they change no figure."""

from __future__ import annotations

import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import foldwise.search.stages as stages
from foldwise import (
    RBF,
    BilevelSearchCV,
    KernelSVC,
    KernelSVR,
    Linear,
    LinearSVR,
    Log,
    SemiparametricSVR,
    Sum,
)
from foldwise.deadline import look_at_clock
from foldwise.models.base import Rows
from foldwise.optimizers import LBfgsB, Rescued, TrustRegionNewton
from foldwise.result import Status
from foldwise.search.plan import SampleRule
from foldwise.solvers.libsvm import LibSvm
from foldwise.solvers.representer import RepresenterNewton
from tests import makers


def rings(n=440, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.where(np.hypot(*X.T) + 0.25 * rng.normal(size=n) > 1.1, 1, 0)


def waves(n=440, seed=0):
    return makers.waves(n, 3, seed, frequency=2.0, slope=0.4)


def test_a_sample_keeps_folds_and_shares_of_the_classes():
    n = 1000
    label = (np.arange(n) % 10 == 0).astype(int)
    rows = Rows(np.where(label, 1.0, -1.0)[None], label=label, class_labels=[0, 1])
    splits = list(StratifiedKFold(5).split(np.zeros((n, 1)), label))
    chosen, few = SampleRule().choose(rows, splits)
    assert len(chosen) == 400
    assert len(np.unique(chosen)) == 400
    assert len(few) == 2
    assert label[chosen].sum() == pytest.approx(40, abs=2)
    for (train, validation), (all_train, all_validation) in zip(few, splits[:2], strict=True):
        assert set(chosen[train]) <= set(all_train)
        assert set(chosen[validation]) <= set(all_validation)
        assert len(train) == pytest.approx(320, abs=3)
        assert label[chosen[validation]].sum() == pytest.approx(8, abs=2)
    again, _ = SampleRule().choose(rows, splits)
    np.testing.assert_array_equal(chosen, again)


def test_what_is_not_sampled():
    n = 1000
    splits = list(KFold(5).split(np.zeros((n, 1))))
    Y = np.zeros((1, n))
    assert SampleRule().choose(Rows(Y), splits) is not None
    assert SampleRule().choose(Rows(Y[:, :300]), list(KFold(5).split(np.zeros((300, 1))))) is None
    assert SampleRule().choose(Rows(Y, weight=np.ones(n)), splits) is None
    assert SampleRule().choose(Rows(Y, group=np.zeros(n, int), group_labels=["a"]), splits) is None
    rare = np.zeros(n, int)
    rare[:3] = 1
    assert SampleRule().choose(Rows(Y, label=rare, class_labels=[0, 1]), splits) is None


@pytest.mark.parametrize("pipeline", [False, True])
def test_stages_lead_to_the_minimum_that_a_plain_search_finds(pipeline):
    """The published figures are of all rows and of the machine itself; the stages only find the start."""
    X, y = rings()
    for machine in (KernelSVC(RBF()), SVC()):
        prefix = f"{type(machine).__name__.lower()}__" if pipeline else ""
        model = make_pipeline(StandardScaler(), machine) if pipeline else machine
        staged = BilevelSearchCV(model, cv=3).fit(X, y)
        plain = BilevelSearchCV(model, cv=3, method_options={"start": {"C": 1.0}}).fit(X, y)
        assert staged.result_.details["scout_evaluations"] >= 3
        assert ("smooth_evaluations" in staged.result_.details) == isinstance(machine, SVC)
        assert not plain.result_.details
        assert staged.result_.objective <= 1.003 * plain.result_.objective
        assert max(staged.result_.kkt) < 1e-6
        assert f"{prefix}C" in staged.best_params_
        assert len(staged.cv_results_["params"]) == staged.n_iter_
        judged = BilevelSearchCV(
            model,
            list(staged.best_params_),
            cv=3,
            method="grid",
            method_options={
                "values": {name.removeprefix(prefix): [v] for name, v in staged.best_params_.items()}
            },
        ).fit(X, y)
        assert judged.best_score_ == pytest.approx(staged.best_score_, rel=1e-6)


def test_an_interrupt_in_a_stage_ends_the_search(monkeypatch):
    X, y = rings()
    calls = []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    original = stages.Bilevel.evaluate
    monkeypatch.setattr(stages.Bilevel, "evaluate", interrupted)
    search = BilevelSearchCV(KernelSVC(), cv=3).fit(X, y)
    assert search.result_.status is Status.INTERRUPTED
    assert search.n_iter_ == 1
    assert len(calls) == 4


def test_few_rows_are_scouted_from_several_points(monkeypatch):
    """The best of the short searches gives the next stage its start, wherever it is among them."""
    X, y = rings(90)
    ends = []

    def noted(method, bilevel, theta, **options):
        found = original(method, bilevel, theta, **options)
        ends.append((method.tol, found[0]))
        return found

    original = stages.run_to_end
    monkeypatch.setattr(stages, "run_to_end", noted)
    search = BilevelSearchCV(SVC(), cv=3).fit(X, y)
    *scouts, smooth = [result for _, result in ends]
    assert 2 <= len(scouts) <= 3
    starts = np.log([list(scout.history[0].params.values()) for scout in scouts])
    assert np.linalg.norm(starts[1:] - starts[0], axis=1).min() > 2.6  # valleys, not neighbours
    best = min(scouts, key=lambda scout: scout.objective)
    assert smooth.history[0].params == pytest.approx(best.params)
    scanned = search.result_.details["scout_evaluations"] - sum(scout.n_evaluations for scout in scouts)
    assert scanned == 19


def test_starts_that_are_the_same_are_not_scouted():
    X, y = rings(90)
    search = BilevelSearchCV(SVC(), {"C": (0.5, 0.5)}, cv=3).fit(X, y)
    assert set(search.result_.details) <= {"smooth_evaluations", "looks"}


def test_many_rows_are_sampled_and_weighted_ones_are_not():
    X, y = rings(880)
    assert "scout_evaluations" not in BilevelSearchCV(SVC(), cv=3).fit(X, y).result_.details
    weighted = BilevelSearchCV(SVC(), cv=3).fit(X, y, sample_weight=np.ones(len(y)))
    assert list(weighted.result_.details) == ["smooth_evaluations"]


def test_an_interrupt_between_the_starts_of_a_stage(monkeypatch):
    X, y = rings(90)
    calls = []

    def interrupted(self, *args, **kwargs):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    original = stages.Bilevel.evaluate
    whole = BilevelSearchCV(SVC(), cv=3).fit(X, y)
    before = sum(count for name, count in whole.result_.details.items() if name.endswith("_evaluations"))
    monkeypatch.setattr(stages.Bilevel, "evaluate", interrupted)
    for number in range(2, before + 2, 3):
        calls.clear()
        at = number
        search = BilevelSearchCV(SVC(), cv=3).fit(X, y)
        assert search.result_.status is Status.INTERRUPTED
        assert search.n_iter_ == 1


def test_a_stage_obeys_the_time_limit():
    X, y = rings()
    search = BilevelSearchCV(KernelSVC(), cv=3, max_time=1e-6).fit(X, y)
    assert search.result_.status is Status.TIME_LIMIT
    assert search.n_iter_ == 1
    assert search.result_.details.get("sample_evaluations", 0) <= 1  # one under way may have been abandoned


def assert_true_rows(search, model, X, y, **fit_params):
    """The first and the last row of the table are what the plain estimator gives, fitted fold by fold."""
    for k in (0, len(search.cv_results_["params"]) - 1):
        params = search.cv_results_["params"][k]
        errors = []
        for train, test in KFold(3).split(X):
            own = {name: value[train] for name, value in fit_params.items()}
            fitted = clone(model).set_params(**params).fit(X[train], y[train], **own)
            errors.append(np.mean((fitted.predict(X[test]) - y[test]) ** 2))
        assert -search.cv_results_["mean_test_score"][k] == pytest.approx(np.mean(errors), rel=1e-3)


@pytest.mark.parametrize(
    ("n", "model"), [(100, SVR()), (100, KernelSVR()), (100, SVR(epsilon=0.4)), (410, KernelSVR())], ids=str
)
def test_a_free_tube_never_ends_above_a_fixed_one(n, model):
    X, y = waves(n)
    gamma = "gamma" if isinstance(model, SVR) else "kernel__gamma"
    free = BilevelSearchCV(model, cv=3).fit(X, y)
    fixed = BilevelSearchCV(model, ["C", gamma], cv=3).fit(X, y)
    assert free.best_score_ >= fixed.best_score_
    assert {"C", "epsilon", gamma} == set(free.best_params_)
    rows = free.cv_results_["params"]
    assert all(0 <= row["epsilon"] <= y.std() for row in rows)
    assert_true_rows(free, model, X, y)


def test_the_final_fit_starts_from_the_folds():
    X, y = rings()
    search = BilevelSearchCV(KernelSVC(), cv=5).fit(X, y)
    warm = search.best_estimator_
    cold = KernelSVC(warm.kernel, C=warm.C).fit(X, y)
    assert warm.n_iter_ < cold.n_iter_
    np.testing.assert_allclose(warm.decision_function(X), cold.decision_function(X), atol=1e-6)
    of_others = np.zeros((1, 7)), np.zeros(1)  # of other rows: not used
    again = KernelSVC(warm.kernel, C=warm.C).fit(X, y, start=of_others)
    np.testing.assert_allclose(again.decision_function(X), cold.decision_function(X), atol=1e-8)


# What a search publishes.


def test_selected_values_can_be_set_on_the_estimator():
    X, y = rings(80)
    kernel = Sum([RBF(0.5), RBF(0.2), Linear()], columns=[[0], [1], None])
    for model in (KernelSVC("rbf"), KernelSVC(kernel), make_pipeline(StandardScaler(), KernelSVC())):
        search = BilevelSearchCV(model, cv=3, rescale=False).fit(X, y)
        again = clone(model).set_params(**search.best_params_).fit(X, y)
        np.testing.assert_allclose(again.decision_function(X), search.decision_function(X), atol=1e-7)
    assert kernel.kernels[0].gamma == 0.5  # parts are copied, not changed
    assert kernel.get_params()["k1__gamma"] == 0.2
    svm = KernelSVC("linear").set_params(kernel="rbf", kernel__gamma=0.3)
    assert svm.kernel.gamma == 0.3
    with pytest.raises(ValueError, match="Invalid parameter 'k7'"):
        kernel.set_params(k7__gamma=1.0)


def test_a_constant_model_is_named_in_the_result():
    """A kernel so narrow that it is the identity: no gradient, which L-BFGS-B takes for a minimum."""
    X, y = rings(80)
    space = {"C": (0.1, 10.0), "kernel__gamma": (1.0, 1e9)}
    options = {"cv": 3, "method": "lbfgsb", "method_options": {"start": {"C": 1.0, "kernel__gamma": 1e8}}}
    search = BilevelSearchCV(KernelSVC(), space, **options).fit(X, y)
    assert any("predicts the same for all validation rows" in text for text in search.result_.warnings)
    assert not BilevelSearchCV(KernelSVC(), cv=3).fit(X, y).result_.warnings


def test_single_precision_in_a_search():
    X, y = rings(150)
    double, single = (BilevelSearchCV(KernelSVC(precision=p), cv=3).fit(X, y) for p in ("double", "single"))
    assert single.best_score_ != double.best_score_
    assert single.best_score_ == pytest.approx(double.best_score_, rel=1e-5)
    single, double = (KernelSVC(RBF(0.5), C=10.0, precision=p).fit(X, y) for p in ("single", "double"))
    np.testing.assert_allclose(single.decision_function(X), double.decision_function(X), atol=1e-4)
    exact = KernelSVR(loss="epsilon_insensitive", precision="single").fit(X, y)
    np.testing.assert_allclose(
        exact.predict(X), KernelSVR(loss="epsilon_insensitive").fit(X, y).predict(X), atol=1e-4
    )
    for model in (KernelSVC(RBF(ard=True), precision="single"), KernelSVC("linear", precision="single")):
        with pytest.raises(ValueError, match="one width and ExpChi2"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="must be 'double' or 'single'"):
        KernelSVC(precision="half").fit(X, y)
    with pytest.raises(ValueError, match="precision='single'"):
        KernelSVC(memory_limit=300_000.0).fit(X, y)
    KernelSVC(memory_limit=300_000.0, precision="single").fit(X, y)


class Renamed(TrustRegionNewton):
    name = "mine"


def test_a_subclass_of_another_name_plays_the_same_stages():
    X, y = rings(120)
    ends = [
        BilevelSearchCV(SVC(), method=kind(tol=1e-3), cv=3, refit=False).fit(X, y).result_
        for kind in (TrustRegionNewton, Renamed)
    ]
    assert ends[0].details["smooth_evaluations"] > 0
    assert ends[1].details == ends[0].details
    assert ends[1].objective == ends[0].objective
    assert Rescued(Renamed()).plays_stages
    assert not Rescued(LBfgsB()).plays_stages


@pytest.mark.parametrize("method", ["newton", "lbfgsb", "rprop"])
def test_a_search_stopped_in_a_stage_is_called_by_its_method(method):
    X, y = waves(80)
    search = BilevelSearchCV(KernelSVR(), method=method, cv=3, callbacks=[lambda record: True]).fit(X, y)
    assert search.result_.status == Status.STOPPED
    assert search.result_.method == method


def test_rows_of_a_stage_carry_the_tubes_they_were_made_with():
    X, y = waves(90)
    groups = np.arange(90) % 2
    model = KernelSVR(epsilon=np.array([0.02, 0.7]))
    search = BilevelSearchCV(model, cv=3).fit(X, y, sample_groups=groups)
    assert np.shape(search.cv_results_["params"][0]["epsilon"]) == (2,)
    assert_true_rows(search, model, X, y, sample_groups=groups)


SMALL = {
    "SVR": SVR(),
    "KernelSVR": KernelSVR(),
    "KernelSVR, exact": KernelSVR(loss="epsilon_insensitive"),
    "KernelSVR, a width per feature": KernelSVR(RBF(ard=True)),
    "SemiparametricSVR": SemiparametricSVR([0]),
    "LinearSVR": LinearSVR(),
    "LinearSVR, exact": LinearSVR("epsilon_insensitive"),
}


@pytest.mark.parametrize("scale", [1e-6, 0.03, 1e5])
@pytest.mark.parametrize("name", list(SMALL))
def test_no_search_ends_above_its_start_or_a_constant(name, scale):
    """Whatever the target's unit; with a default tube of 0.1 all residuals of a small one lie inside it."""
    X, y = waves(60)
    y = scale * y
    search = BilevelSearchCV(SMALL[name], cv=3, refit=False).fit(X, y)
    result = search.result_
    assert result.objective <= result.objective_start
    # Many widths that the folds do not confirm give way to one: then the best is what was passed over.
    lowest = min(result.objective, (result.best or {"objective": np.inf})["objective"])
    assert lowest <= min(record.objective for record in result.history) * (1 + 1e-12)
    constant = np.mean([np.var(y[test] - y[train].mean()) for train, test in KFold(3).split(X)])
    assert result.objective <= 1.01 * constant
    for record in result.history:
        inside = search.space_.theta({k: np.asarray(v) for k, v in record.params.items()})
        np.testing.assert_allclose(inside, search.space_.clip(inside), rtol=1e-9)


def test_a_search_that_misses_the_valley_starts_once_more_from_a_constant():
    """Widths so small that every start is a row by itself: only the flattest corner is no worse than a constant."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    space = {"C": Log(1e-4, 1e4), "gamma": Log(1e-3, 1e3)}
    options = {"start": {"C": 1e3, "gamma": 0.05}}
    result = (
        BilevelSearchCV(SVR(epsilon=1e-3), space, cv=3, method="newton", method_options=options, refit=False)
        .fit(X, y)
        .result_
    )
    constant = np.mean([np.mean((y[test] - y[train].mean()) ** 2) for train, test in KFold(3).split(X)])
    assert result.objective <= 1.01 * constant


@pytest.mark.parametrize(
    ("method", "options", "count"), [("grid", {"points": 5}, 5), ("random", {"n_iter": 6}, 6)]
)
def test_a_plan_is_gone_through_once_even_where_a_constant_is_better(method, options, count):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    search = BilevelSearchCV(
        LinearSVR(), {"C": (1e3, 1e5)}, method=method, method_options=options, cv=4, random_state=0
    ).fit(X, y)
    assert -search.best_score_ > np.var(y)
    assert search.n_iter_ == count


def test_a_scan_of_a_stage_ends_with_the_time(monkeypatch):
    """Only the first evaluation of the search itself is completed, however long each of the scan takes."""
    seen = []
    real = LibSvm.solve

    def slow(self, *args):
        seen.append("exact")
        return real(self, *args)

    def late(self, *args):
        seen.append("smooth")
        time.sleep(0.3)
        look_at_clock()
        raise AssertionError("the clock was not looked at")

    monkeypatch.setattr(LibSvm, "solve", slow)
    monkeypatch.setattr(RepresenterNewton, "solve", late)
    X, y = waves(80)
    search = BilevelSearchCV(SVR(), cv=3, max_time=0.2, refit=False).fit(X, y)
    assert search.result_.status is Status.TIME_LIMIT
    assert seen == ["smooth", "exact"]


def test_the_first_points_differ():
    """Bounds that cut off the usual points leave fewer of them, not the same one several times."""
    X, y = waves(60)
    for space in ({"C": (1e3, 1e4)}, {"C": (1e-6, 1e-5), "kernel__gamma": (1e3, 1e4)}):
        search = BilevelSearchCV(KernelSVR(loss="squared"), space, cv=3, refit=False).fit(X, y)
        scanned = [str(r.params) for r in search.result_.history if r.note == "scan"]
        assert len(set(scanned)) == len(scanned)


def test_scouts_run_from_the_best_of_many_points():
    X, y = waves(80)
    result = BilevelSearchCV(SVR(), cv=3, refit=False).fit(X, y).result_
    assert result.details["scout_evaluations"] > 8
    same = BilevelSearchCV(SemiparametricSVR([]), cv=3, refit=False).fit(X, y).result_
    assert same.objective == pytest.approx(result.objective, rel=1e-6)
