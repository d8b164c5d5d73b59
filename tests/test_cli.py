"""The command line, end to end: what is printed, what is written, and how it fails."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from typer.testing import CliRunner

import foldwise.callbacks
import foldwise.tables
from foldwise import Lin, Log, cli
from foldwise.datasets import load_named
from foldwise.saving import load_model, save_model
from foldwise.tables import read_table, write_table


def run(*args, code=0):
    result = CliRunner().invoke(cli.app, [str(arg) for arg in args])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def fail(*args, code=2):
    """The message of a command that must fail: short, and without a traceback."""
    text = run(*args, code=code).stderr
    assert "Traceback" not in text
    message = text[text.index("error: ") :]
    assert len(message.splitlines()) <= 3
    return message


@pytest.fixture
def regression(tmp_path):
    path = tmp_path / "diabetes.csv"
    run("datasets", "make", "diabetes", path)
    return path


@pytest.fixture
def classification(tmp_path):
    path = tmp_path / "iris.csv"
    data = load_named("iris")
    two = data.y != "setosa"
    write_table(path, [*data.columns, "species"], [*data.X[two].T, data.y[two]])
    return path


@pytest.mark.parametrize(
    "command", [[], ["fit"], ["predict"], ["reproduce"], ["datasets"], ["datasets", "make"]]
)
def test_help(command):
    assert "Usage" in run(*command, "--help").stdout


def test_datasets_are_listed_and_made(tmp_path):
    assert "pca_bimodal" in run("datasets").stdout
    path = tmp_path / "d.csv.gz"
    assert "30 rows, 100 features" in run("datasets", "make", "pca_t", path, "--rows", 30, "--seed", 4).stdout
    table, data = read_table(path, "y"), load_named("pca_t", 30, 4)
    np.testing.assert_array_equal(table.X, data.X)
    np.testing.assert_array_equal(table.y, data.y)
    assert "Choose one of" in fail("datasets", "make", "mnist", path)
    assert "folder" in fail("datasets", "make", "iris", tmp_path / "no" / "d.csv")


def test_fit_regression_reports_and_saves(regression, tmp_path):
    model, report = tmp_path / "m.skops", tmp_path / "r.json"
    shown = run("fit", regression, "--target", "y", "--out", model, "--json", report)
    content = json.loads(report.read_text())
    for words in ("epsilon", "CV", "test mean squared error", "time", content["status"]):
        assert words in shown.stdout
    assert "evaluation 1" in shown.stderr
    assert content["cv_end"] <= content["cv_start"]
    assert set(content["params"]) >= {"C", "epsilon"}
    assert len(content["result"]["history"]) == content["n_evaluations"]
    # The error is in the units of the comparison: a mean of the folds' mean squared errors.
    assert content["cv_error"] == pytest.approx(content["cv_end"], rel=1e-5)
    assert content["test_error"] < 0.7 * read_table(regression, "y").y.var()
    saved = load_model(model)
    assert saved.target == "y"
    assert saved.columns == read_table(regression, "y").columns


def test_the_same_seed_gives_the_same_result(regression, tmp_path):
    contents = []
    for seed in (1, 1, 2):
        run("fit", regression, "--target", "y", "--quiet", "--seed", seed, "--json", tmp_path / "r.json")
        contents.append(json.loads((tmp_path / "r.json").read_text()))
    keys = ("params", "cv_start", "cv_end", "test_error", "n_evaluations")
    first, again, other = ([content[key] for key in keys] for content in contents)
    assert first == again
    assert first != other


def test_quiet_says_nothing(regression):
    shown = run("fit", regression, "--target", "y", "--quiet")
    assert shown.output == ""


def test_comparison_is_scikit_learns_grid_on_the_same_folds(tmp_path):
    path, report = tmp_path / "d.csv", tmp_path / "r.json"
    X, y = load_named("diabetes", 120).X[:, :4], load_named("diabetes", 120).y
    write_table(path, ["a", "b", "c", "d", "y"], [*X.T, y])
    shown = run("fit", path, "--target", "y", "--cv", 3, "--compare", "--json", report)
    content = json.loads(report.read_text())
    other = content["comparison"]
    assert "48 points" in other["name"]
    assert set(other["params"]) == {"C", "epsilon"}
    assert "GridSearchCV, 48 points" in shown.stdout
    assert "time of the grid search / time of foldwise" in shown.stdout
    # Ours is at least as good on the folds, up to what scikit-learn's penalised intercept may change.
    assert content["cv_error"] <= other["cv_error"] * 1.01


def test_an_interrupted_comparison_is_left_out(regression, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run_grid", interrupted)
    shown = run("fit", regression, "--target", "y", "--compare")
    assert "comparison is left out" in shown.stderr
    assert "test mean squared error" in shown.stdout


def test_fit_and_predict_text_classes_by_column_name(classification, tmp_path):
    model = tmp_path / "m.skops"
    shown = run("fit", classification, "--target", "species", "--out", model, "--compare")
    assert "2 text labels" in shown.stderr
    assert "GridSearchCV, 13 points" in shown.stdout
    assert "misclassified" in shown.stdout

    table = read_table(classification, "species")
    shuffled = tmp_path / "new.csv"
    order = [3, 1, 0, 2]
    names = [*(table.columns[k] for k in order), "note"]
    write_table(shuffled, names, [*table.X[:, order].T, np.array(["text"] * len(table.y))])
    rows = list(csv.reader(io.StringIO(run("predict", model, shuffled).stdout)))
    assert rows[0] == ["prediction"]
    predicted = np.array([row[0] for row in rows[1:]])
    np.testing.assert_array_equal(predicted, load_model(model).estimator.predict(table.X))
    assert np.mean(predicted == table.y) > 0.9

    write_table(shuffled, names[1:], [*table.X[:, order[1:]].T, np.zeros(len(table.y))])
    text = fail("predict", model, shuffled)
    assert f"no column '{names[0]}'" in text


def test_three_classes(tmp_path):
    path = tmp_path / "iris.csv"
    run("datasets", "make", "iris", path)
    shown = run("fit", path, "--target", "y", "--json", tmp_path / "r.json")
    assert "3 text labels" in shown.stderr
    assert json.loads((tmp_path / "r.json").read_text())["test_error"] < 0.2


def test_whole_number_predictions_stay_whole(tmp_path):
    path, model = tmp_path / "m.csv", tmp_path / "m.skops"
    run("datasets", "make", "margin", path, "--rows", 200)
    run("fit", path, "--target", "y", "--quiet", "--out", model)
    assert set(run("predict", model, path).stdout.split()) == {"prediction", "1", "-1"}


@pytest.mark.parametrize(
    ("y", "asked", "chosen"),
    [
        (np.array(["a", "b"]), "auto", "svc"),
        (np.array([0, 1, 1]), "auto", "svc"),
        (np.arange(11), "auto", "svr"),
        (np.arange(11), "svc", "svc"),
        (np.array([0, 1, 1]), "svr", "svr"),
        (np.array([0.5, 1.0]), "auto", "svr"),
    ],
)
def test_choice_of_the_model(y, asked, chosen):
    assert cli._choose_model(asked, y)[0] == chosen


def test_space_is_read():
    entries = ["C=1e-3:1e3", "epsilon=0:2", "lam=0.1:2:log:feature"]
    space = cli._parse_space(entries, "linearsvr")
    assert list(space) == ["linearsvr__C", "linearsvr__epsilon", "linearsvr__lam"]
    C, epsilon, lam = space.values()
    assert isinstance(C, Log)
    assert (C.lower, C.upper, C.per) == (1e-3, 1e3, None)
    assert isinstance(epsilon, Lin)
    assert isinstance(lam, Log)
    assert lam.per == "feature"
    assert cli._parse_space([], "linearsvr") is None


@pytest.mark.parametrize("entry", ["C", "C=", "C=1", "C=a:b", "=1:2", "C=1:2:cubic", "C=2:1", "C=-1:1:log"])
def test_a_space_that_cannot_be_read(regression, entry):
    assert entry in fail("fit", regression, "--target", "y", "--space", entry, "--quiet")


def test_a_space_is_used(regression, tmp_path):
    report = tmp_path / "r.json"
    run("fit", regression, "--target", "y", "--quiet", "--json", report, "--space", "C=1e-3:1e-2")
    content = json.loads(report.read_text())
    assert set(content["params"]) == {"C"}
    assert 1e-3 <= content["params"]["C"] <= 1e-2


def test_bounds_are_reported_by_column(regression, tmp_path):
    report = tmp_path / "r.json"
    shown = run("fit", regression, "--target", "y", "--json", report, "--space", "lam=1:300:feature")
    content = json.loads(report.read_text())
    columns = read_table(regression, "y").columns
    assert len(content["params"]["lam"]) == len(columns)
    assert content["at_bound"]
    assert set(content["at_bound"]) <= {f"lam[{column}]" for column in columns}
    assert f"{next(iter(content['at_bound']))} sits at its" in shown.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "nothing"], "no column 'nothing'"),
        (["--target", "y", "--model", "tree"], "svr, svc"),
        (["--target", "y", "--test-size", "1"], "below 1"),
        (["--target", "y", "--max-time", "0"], "positive"),
        (["--target", "y", "--out", "no/m.skops"], "mkdir"),
        (["--target", "y", "--json", "no/r.json"], "mkdir"),
        (["--target", "y", "--cv", "400"], "too few"),
        (["--target", "y", "--model", "svc", "--cv", "5"], "rows"),
        (["--target", "y", "--drop", "z"], "no column 'z'"),
        (["--target", "y", "--method", "guess"], "guess"),
        (["--target", "y", "--loss", "guess"], "guess"),
        (["--target", "y", "--space", "depth=1:10"], "depth"),
    ],
)
def test_bad_options_cost_no_time_and_say_what_to_do(regression, options, words):
    assert words in fail("fit", regression, *options, "--quiet")


def test_bad_cells_and_targets(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n1,2.5\nred,3\n")
    assert "line 3, column 'a'" in fail("fit", path, "--target", "y")
    path.write_text("a,y\n" + "1,no\n2,yes\n" * 9)
    assert "use --model svc" in fail("fit", path, "--target", "y", "--model", "svr")
    path.write_text("a,y\n" + "1,no\n" * 30)
    assert "same value" in fail("fit", path, "--target", "y")
    path.write_text("a,y\n" + "1,0.5\n2,1.5\n" * 9)
    assert "use --model svr" in fail("fit", path, "--target", "y", "--model", "svc")
    path.write_text("a,y\n" + "1,no\n" * 30 + "2,yes\n")
    assert "class yes has 1 rows" in fail("fit", path, "--target", "y")
    assert "No such file" in fail("fit", tmp_path / "none.csv", "--target", "y")


def test_debug_shows_the_traceback(tmp_path):
    text = run("fit", tmp_path / "none.csv", "--target", "y", "--debug", code=2).stderr
    assert "Traceback" in text
    assert "error: cannot read" in text


def test_an_internal_error_has_its_own_code(regression, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("boom")

    monkeypatch.setattr(foldwise.tables, "read_table", broken)
    text = fail("fit", regression, "--target", "y", code=1)
    assert "internal error, RuntimeError: boom" in text
    assert "--debug" in text


def test_an_interrupt_keeps_the_best_so_far(regression, tmp_path, monkeypatch):
    class Interrupting(foldwise.callbacks.ProgressBar):
        def __call__(self, record):
            if record.evaluation > 0:
                raise KeyboardInterrupt

    monkeypatch.setattr(foldwise.callbacks, "ProgressBar", Interrupting)
    model = tmp_path / "m.skops"
    shown = run("fit", regression, "--target", "y", "--out", model)
    assert "best values so far" in shown.stderr
    assert "interrupted" in shown.stdout
    assert len(run("predict", model, regression).stdout.split()) == 443


def test_an_interrupt_before_the_search(regression, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(foldwise.tables, "read_table", interrupted)
    assert "interrupted" in fail("fit", regression, "--target", "y", code=130)


def test_saving_without_skops_fails_before_the_search(regression, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    text = fail("fit", regression, "--target", "y", "--out", tmp_path / "m.skops")
    assert "pip install 'foldwise[save]'" in text


class Stranger(LinearRegression):
    """An estimator that is neither ours nor scikit-learn's."""


def test_files_that_are_not_ours_are_refused(regression, tmp_path):
    import skops.io

    path = tmp_path / "m.skops"
    assert "no model file" in fail("predict", path, regression)
    path.write_bytes(b"not a model")
    assert "damaged" in fail("predict", path, regression)
    skops.io.dump({"format": "something else"}, path)
    assert "not written by" in fail("predict", path, regression)
    save_model(path, Stranger(), ["a"], "y")
    text = fail("predict", path, regression)
    assert "was not loaded" in text
    assert "Stranger" in text
    save_model(path, subprocess.run, ["a"], "y")
    assert "was not loaded" in fail("predict", path, regression)


def test_reproduce_lists_and_runs(tmp_path, monkeypatch):
    papers = tmp_path / "checkout" / "papers"
    monkeypatch.setattr(cli, "_papers_folder", lambda: papers)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert "clone the repository" in fail("reproduce", "moore2011")
    papers.mkdir(parents=True)
    (papers / "registry.py").write_text(
        "def table(quick, data_dir, out):\n    print('ran', quick, data_dir, out)\nTABLES = {'table1': table}\n"
    )
    assert run("reproduce").stdout.split() == ["table1"]
    assert run("reproduce", "table1", "--quick", "--out", "here").stdout == "ran True None here\n"
    assert "choose one of table1" in fail("reproduce", "table2")


def test_the_console_script_is_there():
    done = subprocess.run(
        [sys.executable, "-m", "foldwise.cli", "datasets"], capture_output=True, text=True, check=True
    )
    assert re.search(r"^diabetes +disease", done.stdout, re.MULTILINE)
