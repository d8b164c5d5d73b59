"""A search while it runs and after: callbacks, limits, interrupts, threads, seeds, copies, routing."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.decomposition import PCA
from sklearn.model_selection import GroupKFold, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from foldwise import BilevelSearchCV, Lin, LinearSVC, LinearSVR, Log, Result
from foldwise.callbacks import JsonLines, TimeLimit
from foldwise.optimizers import LBfgsB
from foldwise.result import Status

X, Y = load_diabetes(return_X_y=True)
X, Y = 20 * X[:150], (Y[:150] - 150) / 50
LABELS = np.where(Y > 0, "high", "low")
GROUPS = np.arange(len(Y)) % 3


def without_times(search):
    """Everything that a search found, in full precision."""
    data = json.loads(search.result_.to_json())
    for part in (data, *data["history"]):
        part.pop("elapsed")
    return data


# Callbacks


def test_callbacks_are_called_in_order_after_every_evaluation():
    calls = []
    first, second = (lambda record: calls.append(("a", record))), (lambda record: calls.append(("b", record)))
    search = BilevelSearchCV(LinearSVR(), callbacks=(first, second)).fit(X, Y)
    assert [name for name, _ in calls] == ["a", "b"] * search.n_iter_
    records = [record for name, record in calls if name == "a"]
    assert [record.objective for record in records] == [r.objective for r in search.result_.history]
    assert [record.evaluation for record in records] == list(range(search.n_iter_))
    assert set(records[0].params) == {"C", "epsilon"}
    assert np.all(np.diff([record.best for record in records]) <= 0)
    assert np.all(np.diff([record.elapsed for record in records]) >= 0)


@pytest.mark.parametrize("method", ["newton", "lbfgsb", "bfgs", "rprop", "grid", "random"])
def test_a_callback_stops_the_search(method):
    calls = []

    def stop(record):
        calls.append(record)
        return record.evaluation == 1

    search = BilevelSearchCV(LinearSVR(), method=method, callbacks=[stop], random_state=0).fit(X, Y)
    assert search.result_.status is Status.STOPPED
    assert len(calls) == search.n_iter_ == 2
    assert search.predict(X).shape == Y.shape
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])


def test_a_stop_ends_all_starts():
    search = BilevelSearchCV(LinearSVR(), n_starts=3, callbacks=[lambda record: True]).fit(X, Y)
    assert search.n_iter_ == 1
    assert "stopped by callback" in search.result_.summary()


def test_gradient_norms_belong_to_the_record_of_their_point():
    search = BilevelSearchCV(LinearSVR()).fit(X, Y)
    history = search.result_.history
    scanned = [record for record in history if record.note == "scan"]
    assert len(scanned) > 1
    with_norm = [record for record in scanned if record.gradient_norm is not None]
    assert with_norm == [min(scanned, key=lambda record: record.objective)]


def test_the_callbacks_of_the_library(tmp_path):
    path = tmp_path / "log.jsonl"
    search = BilevelSearchCV(LinearSVR(), callbacks=[JsonLines(path), TimeLimit(60)]).fit(X, Y)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["objective"] for line in lines] == [r.objective for r in search.result_.history]


def test_verbose_shows_progress_and_changes_nothing(capsys):
    quiet = BilevelSearchCV(LinearSVR()).fit(X, Y)
    assert capsys.readouterr() == ("", "")
    loud = BilevelSearchCV(LinearSVR(), verbose=1).fit(X, Y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "evaluation 1 | objective" in err
    assert f"evaluation {loud.n_iter_} | objective" in err
    assert without_times(loud) == without_times(quiet)


# scikit-learn's callbacks


class Counter:
    """A callback of scikit-learn's protocol that writes down what it is told."""

    def __init__(self, stop_after=None):
        self.begun, self.ended, self.log, self.stop_after = [], [], [], stop_after

    def setup(self, estimator, context):
        self.log.append("setup")

    def teardown(self, estimator, context):
        self.log.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.begun.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        self.ended.append(context.task_name)
        return self.stop_after is not None and self.ended.count("evaluation") >= self.stop_after

    def __deepcopy__(self, memo):
        return self


needs_callbacks = pytest.mark.skipif(
    not hasattr(LinearSVR, "set_callbacks"), reason="callbacks came with scikit-learn 1.9"
)


@needs_callbacks
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_scikit_learns_callbacks_see_every_evaluation_and_the_refit(n_jobs):
    counter = Counter()
    search = BilevelSearchCV(LinearSVR(), n_starts=3, n_jobs=n_jobs, random_state=0).set_callbacks(counter)
    search.fit(X, Y)
    assert counter.log == ["setup", "teardown"]
    assert counter.begun == ["fit", *["evaluation"] * search.n_iter_, "refit"]
    assert counter.ended == ["evaluation"] * search.n_iter_ + ["refit", "fit"]


@needs_callbacks
def test_scikit_learns_callbacks_can_stop_and_are_torn_down_after_errors():
    counter = Counter(stop_after=2)
    search = BilevelSearchCV(LinearSVR()).set_callbacks(counter).fit(X, Y)
    assert (search.n_iter_, search.result_.status) == (2, Status.STOPPED)
    counter = Counter()
    with pytest.raises(ValueError, match="unknown method"):
        BilevelSearchCV(LinearSVR(), method="x").set_callbacks(counter).fit(X, Y)
    assert counter.log == ["setup", "teardown"]


@needs_callbacks
@pytest.mark.parametrize(
    "model", [LinearSVR(), make_pipeline(StandardScaler(), LinearSVR())], ids=["alone", "pipeline"]
)
def test_scikit_learns_progress_bar(model, capsys):
    from sklearn.callback import ProgressBar

    search = BilevelSearchCV(model).set_callbacks(ProgressBar(max_propagation_depth=0)).fit(X, Y)
    assert "BilevelSearchCV - fit" in capsys.readouterr().out
    assert np.isfinite(search.best_score_)


# Limits and interrupts


def test_max_time_ends_with_the_best_so_far():
    search = BilevelSearchCV(LinearSVR(), max_time=1e-6).fit(X, Y)
    assert search.result_.status is Status.TIME_LIMIT
    assert search.n_iter_ == 1
    assert search.predict(X).shape == Y.shape


def test_max_iter():
    search = BilevelSearchCV(LinearSVR(), max_iter=1, tol=1e-12, method="lbfgsb").fit(X, Y)
    assert search.result_.status is Status.MAX_ITER
    assert search.result_.objective <= search.result_.objective_start


@pytest.mark.parametrize("n_jobs", [None, 2])
@pytest.mark.parametrize("method", ["newton", "lbfgsb", "random"])
def test_an_interrupt_returns_the_best_so_far(method, n_jobs):
    def interrupt(record):
        if record.evaluation == 3:
            raise KeyboardInterrupt

    count = None if method == "random" else 2
    search = BilevelSearchCV(
        LinearSVR(), method=method, callbacks=[interrupt], n_jobs=n_jobs, n_starts=count, random_state=0
    ).fit(X, Y)
    assert search.result_.status is Status.INTERRUPTED
    assert search.result_.status.value == "interrupted"
    check_is_fitted(search)
    assert search.result_.objective == min(record.objective for record in search.result_.history)
    refitted = LinearSVR(**search.refit_params_).fit(X, Y)
    np.testing.assert_allclose(search.predict(X), refitted.predict(X))
    assert Result.from_json(search.result_.to_json()).status is Status.INTERRUPTED


def test_an_interrupt_before_the_second_start_has_a_point_keeps_the_first(monkeypatch):
    calls = []
    original = LBfgsB.iterate

    def iterate(self, trace, theta):
        calls.append(theta)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(self, trace, theta)

    monkeypatch.setattr(LBfgsB, "iterate", iterate)
    search = BilevelSearchCV(LinearSVR(), method="lbfgsb", n_starts=3, random_state=0).fit(X, Y)
    assert search.result_.status is Status.INTERRUPTED
    assert len(calls) == 2
    assert search.predict(X).shape == Y.shape


def test_an_interrupt_before_any_point_passes_through(monkeypatch):
    def iterate(self, trace, theta):
        raise KeyboardInterrupt

    monkeypatch.setattr(LBfgsB, "iterate", iterate)
    search = BilevelSearchCV(LinearSVR(), method="lbfgsb", method_options={"start": {"C": 1.0}})
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, Y)
    assert not hasattr(search, "result_")


# The same bits


SEARCHES = {
    "newton": BilevelSearchCV(LinearSVR(), n_starts=3, random_state=3),
    "groups": BilevelSearchCV(
        LinearSVR(), {"C": Log(1e-3, 1e3, per="group"), "epsilon": Lin(0, 1, per="group")}, n_starts=3
    ).set_params(random_state=4),
    "pipeline": BilevelSearchCV(
        make_pipeline(StandardScaler(), PCA(5), LinearSVR()), n_starts=3, random_state=5, cv=3
    ),
    "random": BilevelSearchCV(LinearSVR(), method="random", method_options={"n_iter": 9}, random_state=6),
    "lbfgsb": BilevelSearchCV(LinearSVR(), method="lbfgsb", n_starts=3, random_state=7),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_two_threads_give_the_same_bits(search):
    given = {"sample_groups": GROUPS} if search.random_state == 4 else {}
    one, two = clone(search).fit(X, Y, **given), clone(search).set_params(n_jobs=2).fit(X, Y, **given)
    assert without_times(one) == without_times(two)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_the_same_seed_gives_the_same_bits(search):
    given = {"sample_groups": GROUPS} if search.random_state == 4 else {}
    one, two = clone(search).fit(X, Y, **given), clone(search).fit(X, Y, **given)
    assert without_times(one) == without_times(two)
    assert one.result_.seed == search.random_state
    # a second fit of the same object starts afresh
    assert without_times(one.fit(X, Y, **given)) == without_times(two)


def test_another_seed_gives_other_random_points():
    one, two = (
        BilevelSearchCV(LinearSVR(), method="random", method_options={"n_iter": 4}, random_state=seed).fit(
            X, Y
        )
        for seed in (0, 1)
    )
    assert one.result_.history[1].params != two.result_.history[1].params


# Copies


def test_clone_and_parameters():
    space = {"linearsvr__C": Log(1e-3, 1e3)}
    search = BilevelSearchCV(make_pipeline(StandardScaler(), LinearSVR()), space, cv=KFold(3), tol=1e-7)
    copy = clone(search)
    assert set(copy.get_params(deep=False)) == set(search.get_params(deep=False))
    assert (copy.tol, copy.method, copy.criterion) == (1e-7, "auto", "auto")
    assert copy.estimator is not search.estimator
    copy.set_params(estimator__linearsvr__epsilon=0.4, cv=4, method="lbfgsb")
    assert copy.estimator[-1].epsilon == 0.4
    assert search.estimator[-1].epsilon == 0.0
    assert copy.fit(X, Y).n_splits_ == 4
    assert copy.best_estimator_[-1].epsilon == 0.4
    assert not hasattr(copy.estimator[-1], "coef_")  # the estimator given is never fitted
    with pytest.raises(ValueError, match="Invalid parameter 'steps'"):
        search.set_params(steps=3)


def test_pickle_keeps_everything():
    search = BilevelSearchCV(make_pipeline(StandardScaler(), LinearSVC()), random_state=0).fit(X, LABELS)
    copy = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(copy.decision_function(X), search.decision_function(X))
    assert without_times(copy) == without_times(search)
    assert copy.cv_results_.keys() == search.cv_results_.keys()
    assert copy.space_.names == search.space_.names
    assert "BilevelSearchCV(estimator=Pipeline" in repr(copy)


def test_the_result_survives_json():
    space = {"C": Log(1e-3, 1e3, per="group"), "epsilon": Lin(0, 1)}
    search = BilevelSearchCV(LinearSVR(), space, random_state=1).fit(X, Y, sample_groups=GROUPS)
    result = Result.from_json(search.result_.to_json())
    assert result == search.result_
    assert result.summary() == search.result_.summary()
    np.testing.assert_allclose(result.params["C"], search.best_params_["C"])


def test_without_refit():
    search = BilevelSearchCV(LinearSVR(), refit=False).fit(X, Y)
    full = BilevelSearchCV(LinearSVR()).fit(X, Y)
    assert search.best_params_ == full.best_params_
    assert search.best_score_ == full.best_score_
    assert not hasattr(search, "best_estimator_")
    assert not hasattr(search, "refit_time_")
    assert not hasattr(search, "predict")
    assert not hasattr(BilevelSearchCV(LinearSVC(), refit=False), "decision_function")
    words = "run with refit=False; use best_params_, or set refit=True"
    with pytest.raises(AttributeError, match=words):
        search.score(X, Y)
    with pytest.raises(AttributeError, match="has no attribute 'predict'") as caught:
        search.predict(X)
    assert words in str(caught.value.__cause__)


# Inside scikit-learn


def test_nested_in_cross_validation():
    search = BilevelSearchCV(make_pipeline(StandardScaler(), LinearSVC()), cv=3)
    assert cross_val_score(search, X, LABELS, cv=3).mean() > 0.65
    scores = cross_validate(BilevelSearchCV(LinearSVR(), cv=3), X, Y, cv=3, scoring="r2")
    assert scores["test_score"].mean() > 0.2


def test_as_the_last_step_of_a_pipeline():
    model = make_pipeline(StandardScaler(), BilevelSearchCV(LinearSVR(), cv=3)).fit(X, Y)
    assert model.score(X, Y) > 0.3
    weight = np.linspace(0.5, 1.5, len(Y))
    model.fit(X, Y, bilevelsearchcv__sample_weight=weight, bilevelsearchcv__sample_groups=GROUPS)
    assert model[-1].best_params_["C"].shape == (3,)


WEIGHT = np.random.default_rng(0).uniform(0.2, 2.0, len(Y))
ESTIMATORS = {
    "alone": LinearSVR(),
    "scaled": make_pipeline(StandardScaler(), LinearSVR()),
    "scaled, PCA": make_pipeline(StandardScaler(), PCA(5), LinearSVR()),
}


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)
def test_routing_reaches_the_search_in_cross_validate(estimator):
    metadata = {"sample_weight": WEIGHT, "sample_groups": GROUPS}
    with config_context(enable_metadata_routing=True):
        search = BilevelSearchCV(clone(estimator), cv=3)
        search.set_fit_request(sample_weight=True, sample_groups=True).set_score_request(sample_weight=True)
        found = cross_validate(
            search, X, Y, cv=3, params=metadata, return_estimator=True, error_score="raise"
        )
    train, test = next(KFold(3).split(X))
    plain = BilevelSearchCV(clone(estimator), cv=3)
    plain.fit(X[train], Y[train], sample_weight=WEIGHT[train], sample_groups=GROUPS[train])
    routed = found["estimator"][0]
    assert without_times(routed) == without_times(plain)
    np.testing.assert_array_equal(routed.predict(X), plain.predict(X))
    assert found["test_score"][0] == plain.score(X[test], Y[test], sample_weight=WEIGHT[test])


def test_routing_reaches_the_search_in_a_pipeline():
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        search = BilevelSearchCV(LinearSVR(), cv=3).set_fit_request(sample_weight=True, sample_groups=True)
        model = make_pipeline(scaler, search).fit(X, Y, sample_weight=WEIGHT, sample_groups=GROUPS)
    plain = BilevelSearchCV(LinearSVR(), cv=3)
    plain.fit(StandardScaler().fit_transform(X), Y, sample_weight=WEIGHT, sample_groups=GROUPS)
    assert without_times(model[-1]) == without_times(plain)


def test_routing_of_the_splitters_groups():
    patient = np.arange(len(Y)) // 5
    with config_context(enable_metadata_routing=True):
        search = BilevelSearchCV(LinearSVR(), cv=GroupKFold(3)).set_fit_request(groups=True)
        scores = cross_validate(
            search, X, Y, cv=GroupKFold(3), params={"groups": patient}, error_score="raise"
        )
    assert scores["test_score"].mean() > 0.2


def test_a_notebook_shows_the_diagram_and_once_fitted_what_was_selected():
    X, y = load_diabetes(return_X_y=True)
    search = BilevelSearchCV(LinearSVR(), ["C"], cv=3)
    before = search._repr_mimebundle_()["text/html"]
    assert "BilevelSearchCV" in before
    assert "hypergradient norm" not in before
    after = search.fit(X, y)._repr_mimebundle_()["text/html"]
    assert "hypergradient norm" in after
    assert "hypergradient norm" in search._repr_html_()


# The limits of a search reach a method object, or are refused.


def test_limits_and_seed_reach_a_method_object():
    from foldwise.optimizers import Bfgs, Random, Rescued, Slams, TrustRegionNewton

    def equipped(method, **given):
        search = BilevelSearchCV(LinearSVR(), method=method, random_state=0, cv=3, **given).fit(X, Y)
        return search.result_

    assert equipped(TrustRegionNewton(), max_iter=1).status is Status.MAX_ITER
    assert equipped(Rescued(TrustRegionNewton()), max_iter=1).n_evaluations < 40
    long, short = equipped(TrustRegionNewton(), tol=1e-12), equipped(TrustRegionNewton(), tol=0.5)
    assert short.n_evaluations < long.n_evaluations
    assert equipped(Bfgs(), tol=0.9).n_evaluations < equipped(Bfgs(rule="all")).n_evaluations
    assert equipped(Random(), max_iter=4).n_evaluations == 4
    assert equipped(Random(n_iter=4)).theta == equipped("random", max_iter=4).theta
    with pytest.raises(ValueError, match=r"max_iter=5 and the method object max_iter=3; give it in one"):
        equipped(TrustRegionNewton(max_iter=3), max_iter=5)
    assert equipped(TrustRegionNewton(max_iter=2), max_iter=2).status is Status.MAX_ITER
    assert Slams().with_limits(n_starts=3, max_iter=7, tol=1e-3) == Slams(n_starts=3, max_iter=7, tol=1e-3)


def test_limits_that_cannot_reach_a_method_are_refused():
    from foldwise.optimizers import Grid, Minimizer

    class Bare(Minimizer):
        name = "bare"

        def iterate(self, trace, theta):
            trace.evaluate(theta)
            return Status.EXHAUSTED

    for method in ("grid", Grid(points=2)):
        with pytest.raises(ValueError, match=r"method 'grid' has no max_iter.*points"):
            BilevelSearchCV(LinearSVR(), method=method, max_iter=3).fit(X, Y)
        with pytest.raises(ValueError, match="method 'grid' has no tol"):
            BilevelSearchCV(LinearSVR(), method=method, tol=1e-3).fit(X, Y)
        with pytest.raises(ValueError, match="does not start from several; got n_starts=2"):
            BilevelSearchCV(LinearSVR(), method=method, n_starts=2).fit(X, Y)
        with pytest.raises(ValueError, match="uses no start"):
            BilevelSearchCV(LinearSVR(), method=method, method_options={"start": {"C": 1.0}}).fit(X, Y)
    with pytest.raises(ValueError, match="does not start from several"):
        BilevelSearchCV(LinearSVR(), method="random", n_starts=2).fit(X, Y)
    with pytest.raises(ValueError, match="method 'bare' has no max_iter"):
        BilevelSearchCV(LinearSVR(), method=Bare(), max_iter=3).fit(X, Y)
    with pytest.raises(ValueError, match="unknown option 'messages'"):
        BilevelSearchCV(LinearSVR(), method="lbfgsb", method_options={"messages": {}}).fit(X, Y)


def test_a_start_of_ones_own_comes_before_the_other_starts():
    start = {"C": 3.0, "epsilon": 0.2}
    search = BilevelSearchCV(
        LinearSVR(), method="lbfgsb", n_starts=3, random_state=0, method_options={"start": start}
    ).fit(X, Y)
    assert {record.start for record in search.result_.history} == {0, 1, 2}
    assert search.result_.history[0].params["C"] == pytest.approx(3.0)


def test_with_boxes_no_point_is_solved_twice(monkeypatch):
    """Where a search starts is worked out once, with as many solutions of the training problems as starts are used."""
    from foldwise.bilevel import Bilevel

    asked, evaluate = [], Bilevel.evaluate

    def watched(self, theta, warm=None):
        asked.append(tuple(theta))
        return evaluate(self, theta, warm)

    monkeypatch.setattr(Bilevel, "evaluate", watched)
    space = {"C": (1e-2, 1e2), "box": (0, 1.5)}
    search = BilevelSearchCV(LinearSVR(), space, max_iter=2, refit=False, cv=3).fit(X, Y)
    assert len(asked) == len(set(asked)) == search.n_iter_ + 2
    asked.clear()
    one = BilevelSearchCV(LinearSVR(), space, max_iter=2, refit=False, cv=3, n_starts=1).fit(X, Y)
    assert len(asked) == len(set(asked)) == one.n_iter_ + 1
