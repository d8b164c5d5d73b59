"""Interrupted searches go on to the same bits; checkpoints of something else are told apart."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from typer.testing import CliRunner

from foldwise import RBF, BilevelSearchCV, KernelSVC, LinearSVC, LinearSVR, Log, cli
from foldwise.checkpoint import fingerprint
from foldwise.criteria import MeanLoss
from foldwise.datasets import load_named
from foldwise.journal import Journal, JournalError
from foldwise.losses import Absolute, Squared
from foldwise.models.kernel import KernelModel
from foldwise.models.kernel.landmarks import LandmarkRule
from foldwise.optimizers import Minimizer, base, newton
from foldwise.result import Status
from foldwise.search.run import SearchRun
from foldwise.tables import write_table


def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X[:150], y[:150]


def cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:120, :6], y[:120]


def many():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:420, :4], y[:420]


def scaled(model):
    return make_pipeline(StandardScaler(), model)


PLANS = ("grid", "random")  # methods that go through points and have no tolerance
CASES = {
    "newton": (LinearSVR(), diabetes, {}),
    "per feature": (LinearSVR(), diabetes, {"space": {"lam": Log(1e-2, 1e2, per="feature")}}),
    "pipeline": (scaled(LinearSVC()), cancer, {}),
    "starts": (scaled(LinearSVR()), diabetes, {"n_starts": 3}),
    "threads": (scaled(LinearSVR()), diabetes, {"n_starts": 3, "n_jobs": 2}),
    "kernel": (scaled(KernelSVC(RBF())), cancer, {}),
    "many rows": (scaled(KernelSVC(RBF())), many, {"max_iter": 3}),
    "tied widths": (scaled(KernelSVC(RBF(ard=True))), cancer, {"max_iter": 4}),
    "landmarks": (scaled(KernelSVC(RBF())), cancer, {"low_rank": True}),
    "exact machine": (scaled(SVC()), cancer, {"space": {"svc__C": (0.1, 100.0)}}),
    "tube": (scaled(LinearSVR(loss="epsilon_insensitive")), diabetes, {"max_iter": 5}),
    "boxes": (LinearSVC(loss="hinge"), cancer, {"space": ["C", "box"], "max_iter": 3}),
    "penalised": (LinearSVR(), diabetes, {"method": "pbp"}),
    "bundle": (LinearSVR(), diabetes, {"method": "bundle", "criterion": "absolute", "max_iter": 5}),
    "lbfgsb": (LinearSVR(), diabetes, {"method": "lbfgsb"}),
    "bfgs": (LinearSVR(), diabetes, {"method": "bfgs"}),
    "rprop": (LinearSVR(), diabetes, {"method": "rprop", "max_iter": 12}),
    "grid": (LinearSVR(), diabetes, {"method": "grid", "method_options": {"points": 4}}),
    "random": (LinearSVR(), diabetes, {"method": "random", "method_options": {"n_iter": 9}}),
}


def outcome(search):
    """Everything of a result that is not a time."""
    out = json.loads(search.result_.to_json())
    del out["elapsed"]
    for record in out["history"]:
        del record["elapsed"]
    return out, search.best_score_, repr(search.refit_params_)


def cut(path, to, count):
    """A copy of a checkpoint with its first ``count`` records only, as a writer that was killed leaves it."""
    with Journal.open(path) as old:
        header = {name: value for name, value in old.header.items() if name != "arrays"}
        with Journal.create(to, header) as new:
            for record in old.records[:count]:
                meta = {name: value for name, value in record.meta.items() if name != "arrays"}
                new.append(meta, old.arrays(record))
        return len(old.records)


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_search_gives_the_same_bits(name, tmp_path):
    model, data, options = CASES[name]
    options = options if name in PLANS else {"tol": 1e-4, **options}
    X, y = data()
    whole, part = tmp_path / "whole", tmp_path / "part"

    def search(path, resume=False):
        return BilevelSearchCV(model, cv=3, random_state=0, checkpoint=path, resume=resume, **options)

    reference = search(whole).fit(X, y)
    assert reference.n_resumed_ == 0
    plain = BilevelSearchCV(model, cv=3, random_state=0, **options).fit(X, y)
    assert plain.best_score_ == pytest.approx(reference.best_score_, rel=1e-6)
    with Journal.open(whole) as journal:
        n = len(journal.records)
    for count in sorted({1, n // 2 + 1, n - 1, n}):
        cut(whole, part, count)
        resumed = search(part, resume=True).fit(X, y)
        assert outcome(resumed) == outcome(reference)
        assert resumed.n_resumed_ > 0
        np.testing.assert_array_equal(resumed.predict(X), reference.predict(X))
        if "n_jobs" not in options:
            assert part.read_bytes() == whole.read_bytes()
        part.unlink()


def test_a_search_that_leaves_its_landmarks_is_resumed_in_either_stage(tmp_path, monkeypatch):
    monkeypatch.setattr(KernelModel, "landmark_rule", LandmarkRule(least_rows=50, unseen=0.9))
    monkeypatch.setattr(SearchRun, "landmark_bound", 0.0)
    X, y = cancer()
    search = BilevelSearchCV(scaled(KernelSVC(RBF())), cv=3, random_state=0, checkpoint=tmp_path / "c")
    expected = outcome(search.fit(X[:, :2], y))
    with Journal.open(tmp_path / "c") as journal:
        streams = [record.meta["stream"] for record in journal.records]
    assert {"scout 0", "search 0", "exact 0"} <= set(streams)
    for count in {4, streams.index("exact 0"), len(streams) - 2}:
        path = tmp_path / str(count)
        cut(tmp_path / "c", path, count)
        search.set_params(checkpoint=path, resume=True)
        assert outcome(search.fit(X[:, :2], y)) == expected


def test_points_from_the_file_are_as_good_as_others(tmp_path):
    X, y = diabetes()
    search = BilevelSearchCV(LinearSVR(), cv=3, random_state=0, checkpoint=tmp_path / "c")
    seen = []

    class Looking(Minimizer):
        """Reads more of a point than a search does."""

        name = "looking"

        def iterate(self, trace, theta):
            first = trace.evaluate(theta)
            second = trace.evaluate(theta + 0.1, warm=first)
            both = [trace.bilevel.solutions(one)[0] for one in (first, second)]
            seen.append([part for one in both for part in (one.W, one.decisions)])
            return Status.CONVERGED

    search.set_params(method=Looking()).fit(X, y)
    search.set_params(resume=True).fit(X, y)
    assert search.n_resumed_ == search.n_iter_ + search.result_.details["looks"] > 2
    for mine, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_an_interrupt_and_a_limit_leave_a_checkpoint_to_go_on_from(tmp_path):
    X, y = diabetes()
    options = {"cv": 3, "random_state": 0, "method": "lbfgsb"}
    reference = BilevelSearchCV(LinearSVR(), checkpoint=tmp_path / "a", **options).fit(X, y)

    def stop(record):
        if record.evaluation == 4:
            raise KeyboardInterrupt

    for callback in (stop, lambda record: record.evaluation >= 3):
        path = tmp_path / "b"
        first = BilevelSearchCV(LinearSVR(), checkpoint=path, callbacks=[callback], **options).fit(X, y)
        assert first.result_.status in ("interrupted", "stopped by callback")
        again = BilevelSearchCV(LinearSVR(), checkpoint=path, resume=True, **options).fit(X, y)
        assert again.n_resumed_ >= 4
        assert outcome(again) == outcome(reference)
        path.unlink()
    few = BilevelSearchCV(LinearSVR(), checkpoint=tmp_path / "b", max_iter=2, **options).fit(X, y)
    assert few.result_.status == "iteration limit"
    more = BilevelSearchCV(LinearSVR(), checkpoint=tmp_path / "b", resume=True, max_iter=200, **options)
    assert outcome(more.fit(X, y)) == outcome(reference)


@pytest.mark.parametrize("way", ["limit", "interrupt"])
def test_a_search_cut_short_in_any_stage_goes_on(way, tmp_path, monkeypatch):
    """Cut at its 1st, 2nd, ... evaluation: three short searches, the smooth machine's, then the machine's own."""
    X, y = cancer()
    options = {"cv": 3, "random_state": 0}
    original, count, at = base.Trace.record, [0], 0

    def cut_short(self, evaluation, note=""):
        original(self, evaluation, note)
        count[0] += 1
        if count[0] == at:
            raise KeyboardInterrupt if way == "interrupt" else base.StopSearch(Status.TIME_LIMIT)

    with monkeypatch.context() as patch:
        patch.setattr(base.Trace, "record", cut_short)
        reference = BilevelSearchCV(scaled(SVC()), checkpoint=tmp_path / "whole", **options).fit(X, y)
    stages_before = reference.result_.details
    assert stages_before["scout_evaluations"] > 0
    assert stages_before["smooth_evaluations"] > 0
    for number in range(1, count[0], 3):
        at = number
        path = tmp_path / f"cut {at}"
        count[0] = 0
        with monkeypatch.context() as patch:
            patch.setattr(base.Trace, "record", cut_short)
            first = BilevelSearchCV(scaled(SVC()), checkpoint=path, **options).fit(X, y)
        assert first.result_.status in (Status.INTERRUPTED, Status.TIME_LIMIT)
        again = BilevelSearchCV(scaled(SVC()), checkpoint=path, resume=True, **options).fit(X, y)
        assert again.n_resumed_ >= at
        assert outcome(again) == outcome(reference)


def test_a_seed_that_was_drawn_is_kept(tmp_path):
    X, y = diabetes()
    options = {"cv": 3, "method": "random", "method_options": {"n_iter": 6}}
    first = BilevelSearchCV(LinearSVR(), checkpoint=tmp_path / "a", **options).fit(X, y)
    cut(tmp_path / "a", tmp_path / "b", 3)
    again = BilevelSearchCV(LinearSVR(), checkpoint=tmp_path / "b", resume=True, **options).fit(X, y)
    assert outcome(again) == outcome(first)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"X": 1}, "the features differ"),
        ({"y": 1}, "the target or weights"),
        ({"weight": 1}, "the target or weights"),
        ({"cv": KFold(3, shuffle=True, random_state=1)}, "the folds differ"),
        ({"space": {"C": (0.1, 10.0)}}, "the bounds differ"),
        ({"criterion": "absolute"}, "the criterion"),
        ({"method": "lbfgsb"}, "the setting method differ"),
        ({"tol": 1e-7}, "the setting tol differ"),
        ({"random_state": 1}, "the setting random_state differ"),
        ({"estimator": LinearSVR(fit_intercept=False)}, "the setting estimator"),
        ({"method_options": {"radius": 1.0}}, "the setting method_options differ"),
    ],
)
def test_a_checkpoint_of_something_else_is_recognised_and_left_alone(tmp_path, change, words):
    X, y = diabetes()
    path = tmp_path / "c"
    options = {"estimator": LinearSVR(), "cv": 3, "random_state": 0, "checkpoint": path, "resume": True}
    BilevelSearchCV(**options).fit(X, y)
    before = path.read_bytes()
    X, y = X.copy(), y.copy()
    X[0, 0] += 1e-12 * change.pop("X", 0)
    y[0] += change.pop("y", 0)
    weight = np.ones(len(y)) if change.pop("weight", 0) else None
    with pytest.raises(JournalError, match="belongs to another search") as caught:
        BilevelSearchCV(**{**options, **change}).fit(X, y, sample_weight=weight)
    assert words in str(caught.value)
    assert path.read_bytes() == before


def test_what_may_change_may_change(tmp_path):
    X, y = diabetes()
    options = {"cv": 3, "random_state": 0, "checkpoint": tmp_path / "c"}
    BilevelSearchCV(LinearSVR(), **options).fit(X, y)
    more = {"max_time": 1e3, "verbose": 0, "callbacks": [lambda record: None], "n_jobs": 2, "refit": False}
    assert BilevelSearchCV(LinearSVR(), resume=True, **options, **more).fit(X, y).n_resumed_ > 0


def test_versions_and_other_machines_are_recognised(tmp_path, monkeypatch):
    X, y = diabetes()
    path = tmp_path / "c"
    search = BilevelSearchCV(LinearSVR(), cv=3, random_state=0, checkpoint=path, resume=True)
    search.fit(X, y)
    before = path.read_bytes()
    monkeypatch.setattr("foldwise.checkpoint.__version__", "99.0")
    with pytest.raises(JournalError, match=r"this is 99\.0"):
        search.fit(X, y)
    monkeypatch.undo()
    step = newton.box_qp
    monkeypatch.setattr(newton, "box_qp", lambda *args: (1 + 1e-12) * step(*args))
    with pytest.raises(JournalError, match="does not follow the checkpoint"):
        search.fit(X, y)
    assert path.read_bytes() == before


def test_bad_arguments(tmp_path):
    X, y = diabetes()
    path = tmp_path / "c"
    path.write_text("my thesis\n")
    with pytest.raises(ValueError, match="needs checkpoint="):
        BilevelSearchCV(LinearSVR(), resume=True).fit(X, y)
    with pytest.raises(JournalError, match="exists; resume from it"):
        BilevelSearchCV(LinearSVR(), checkpoint=path).fit(X, y)
    with pytest.raises(JournalError, match="not a checkpoint"):
        BilevelSearchCV(LinearSVR(), checkpoint=path, resume=True).fit(X, y)
    assert path.read_text() == "my thesis\n"
    with pytest.raises(JournalError, match="folder does not exist"):
        BilevelSearchCV(LinearSVR(), checkpoint=tmp_path / "no" / "c").fit(X, y)


def test_a_search_that_cannot_begin_leaves_no_file(tmp_path):
    X, y = diabetes()
    search = BilevelSearchCV(LinearSVR(), method="guess", checkpoint=tmp_path / "c")
    with pytest.raises(ValueError, match="guess"):
        search.fit(X, y)
    assert os.listdir(tmp_path) == []
    search.set_params(method="auto").fit(X, y)


def test_a_failed_fit_closes_the_file(tmp_path):
    X, y = diabetes()

    def broken(record):
        raise RuntimeError("boom")

    search = BilevelSearchCV(LinearSVR(), checkpoint=tmp_path / "c", callbacks=[broken])
    with pytest.raises(RuntimeError, match="boom"):
        search.fit(X, y)
    search.set_params(resume=True, callbacks=()).fit(X, y)
    assert search.n_resumed_ == 1


def test_fingerprints_see_values_types_and_shapes():
    pd = pytest.importorskip("pandas")
    a = np.arange(6.0)
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    different = [
        a,
        a.reshape(2, 3),
        a.astype(int),
        a[::-1],
        list(a),
        frame,
        frame.rename(columns={"a": "c"}),
        frame.assign(b=["x", "z"]),
        RBF(),
        RBF(gamma=2.0),
        LinearSVR(),
        LinearSVC(),
        Log(1, 2),
        Log(1, 3),
        {"a": None},
        np.array(["a", None], dtype=object),
        np.array(["a", "None"], dtype=object),
        np.sum,
        KFold(3),
        KFold(4),
    ]
    assert fingerprint(MeanLoss(Squared())) != fingerprint(MeanLoss(Absolute()))
    assert len({fingerprint(value) for value in different}) == len(different)
    assert fingerprint(frame) == fingerprint(frame.copy())
    assert fingerprint(object()) == fingerprint(object())


# The real thing: processes that are killed.


def command(data, path, out):
    line = [
        "fit",
        data,
        "--target",
        "y",
        "--model",
        "linear",
        "--method",
        "grid",
        "--cv",
        "4",
        "-q",
        "--json",
        out,
    ]
    return [sys.executable, "-m", "foldwise.cli", *map(str, line), "--checkpoint", str(path), "--resume"]


def killed_until_done(data, path, out, rng, kills, longest):
    """Run the command, kill it after a random time in the search, and again; the number of kills that hit."""
    hits = 0
    while True:
        process = subprocess.Popen(command(data, path, out), stderr=subprocess.PIPE)
        if hits < kills:
            began, size = time.monotonic(), path.stat().st_size if path.exists() else 0
            while process.poll() is None and (not path.exists() or path.stat().st_size <= size):
                assert time.monotonic() - began < 600
                time.sleep(0.002)
            time.sleep(rng.uniform(0.0, longest))
            process.send_signal(signal.SIGKILL)
        error = process.communicate()[1]
        if process.returncode == 0:
            return hits
        assert process.returncode == -signal.SIGKILL, error
        hits += 1
        shutil.copy(path, f"{path}.copy")
        with Journal.open(f"{path}.copy"):
            pass  # whole, whatever moment it was


def check_kills(tmp_path, rng, rounds, kills, longest):
    data, report = tmp_path / "d.csv", tmp_path / "r.json"
    dataset = load_named("pca_bimodal", 600)
    write_table(data, [*dataset.columns, "y"], [*dataset.X.T, dataset.y])
    arguments = command(data, tmp_path / "whole", report)[3:]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    keys = ("params", "cv_end", "cv_error", "test_error", "n_evaluations", "status")
    reference = json.loads(report.read_text())
    hits = 0
    for k in range(rounds):
        path, out = tmp_path / f"c{k}", tmp_path / f"r{k}.json"
        hits += killed_until_done(data, path, out, rng, kills, longest)
        found = json.loads(out.read_text())
        assert [found[key] for key in keys] == [reference[key] for key in keys]
        assert path.read_bytes() == (tmp_path / "whole").read_bytes()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
    return hits


def test_killed_processes_are_resumed(tmp_path):
    assert check_kills(tmp_path, np.random.default_rng(5), rounds=1, kills=1, longest=0.05) == 1


@pytest.mark.slow
def test_a_hundred_killed_processes_are_resumed(tmp_path):
    hits = 0
    for k in range(40):
        folder = tmp_path / str(k)
        folder.mkdir()
        hits += check_kills(folder, np.random.default_rng(k + 1), rounds=2, kills=4, longest=0.3)
        if hits >= 100:
            return
    raise AssertionError(f"{hits} processes were killed in time")


class Shaped:
    """An object of a user's own, with a state and without a text."""

    __slots__ = ("s",)

    def __init__(self, s):
        self.s = s


def test_fingerprints_see_the_state_of_any_object():
    class Mine:
        def __init__(self, s):
            self.s = s

    for kind in (Mine, Shaped):
        assert fingerprint(kind(1.0)) == fingerprint(kind(1.0))
        assert fingerprint(kind(1.0)) != fingerprint(kind(9.0))


def test_fingerprints_see_what_functions_do():
    def weighted(factor, twice=2.0):
        return lambda estimator, X, y: factor * twice

    class Scorer:
        def __init__(self, factor):
            self.factor = factor

        def score(self, estimator, X, y):
            return self.factor

    different = [
        lambda e, X, y: 1.0,
        lambda e, X, y: 2.0,
        lambda e, X, y: e.score(X, y),
        lambda e, X, y: e.predict(X, y),
        lambda e, X, y: sum(1 for row in X if row in {"a", "b"}),
        lambda e, X, y, scale=1.0: scale,
        lambda e, X, y, scale=2.0: scale,
        weighted(1.0),
        weighted(2.0),
        Scorer(1.0).score,
        Scorer(2.0).score,
    ]
    assert len({fingerprint(value) for value in different}) == len(different)
    assert fingerprint(weighted(1.0)) == fingerprint(weighted(1.0))
    assert fingerprint(Scorer(1.0).score) == fingerprint(Scorer(1.0).score)


def test_another_metric_that_decides_is_another_search(tmp_path):
    X, y = diabetes()
    y = np.array(y > np.quantile(y, 0.7), int)
    options = {"scoring": ["accuracy", "recall"], "cv": 3, "checkpoint": tmp_path / "c", "resume": True}
    BilevelSearchCV(LinearSVC(), ["C"], refit="accuracy", **options).fit(X, y)
    with pytest.raises(JournalError, match="the metric that decides differ"):
        BilevelSearchCV(LinearSVC(), ["C"], refit="recall", **options).fit(X, y)
    again = BilevelSearchCV(LinearSVC(), ["C"], refit=False, **options).fit(X, y)  # the first leads then
    assert again.n_resumed_ > 0
