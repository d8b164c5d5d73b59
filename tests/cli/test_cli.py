"""The command line, end to end: what is printed, what is written, and how it fails."""

from __future__ import annotations

import csv
import importlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from typer.testing import CliRunner

import foldwise
import foldwise.callbacks
import foldwise.tables
from foldwise import Lin, Log, cli, saving
from foldwise.cli import models, others, rivals
from foldwise.datasets import load_named
from foldwise.result import Record
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


COMMANDS = ["", "fit", "predict", "compare", "report", "reproduce", "datasets", "datasets make"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    shown = run(*command.split(), "--help").stdout.splitlines()
    assert any("Usage" in line for line in shown)
    assert len(shown) <= 40
    assert max(map(len, shown)) <= 100


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["fit"], "Missing argument"),
        (["fit", "a.csv", "--cv", "x"], "--cv"),
        (["fit", "a.csv", "--colour", "x"], "--colour"),
        (["paint"], "paint"),
        (["predict", "a"], "Missing argument"),
        (["fit", "a.csv"], "--target is missing"),
        (["fit", "none.csv", "--target", "y\x1b[31m\n"], "No such file"),
    ],
)
def test_a_wrong_command_is_told_in_two_lines(args, words, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(args)
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) <= 2
    assert words in lines[0]
    assert "\x1b" not in shown.err


def test_no_command_shows_the_help(capsys):
    with pytest.raises(SystemExit):
        cli.main([])
    shown = capsys.readouterr()
    assert "compare" in shown.out + shown.err


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
    shown = run("fit", regression, "--target", "y", "--model", "linear", "--out", model, "--json", report)
    content = json.loads(report.read_text())
    assert content["schema"] == "foldwise-fit-1"
    assert content["result"]["schema"] == "foldwise-result-1"
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
    assert saved.version == foldwise.__version__
    assert saved.facts["params"] == content["params"]
    described = run("report", model).stdout
    for words in (foldwise.__version__, "epsilon", "'bmi'", "predicts 'y'"):
        assert words in described


def test_the_same_seed_gives_the_same_result(regression, tmp_path):
    contents = []
    for seed in (1, 1, 2):
        options = ["--model", "linear", "--quiet", "--seed", seed, "--json", tmp_path / "r.json"]
        run("fit", regression, "--target", "y", *options)
        contents.append(json.loads((tmp_path / "r.json").read_text()))
    keys = ("params", "cv_start", "cv_end", "test_error", "n_evaluations")
    first, again, other = ([content[key] for key in keys] for content in contents)
    assert first == again
    assert first != other


def test_quiet_says_nothing(regression):
    shown = run("fit", regression, "--target", "y", "--model", "linear", "--quiet")
    assert shown.output == ""


def test_comparison_is_scikit_learns_grid_on_the_same_folds(tmp_path):
    path, report = tmp_path / "d.csv", tmp_path / "r.json"
    X, y = load_named("diabetes", 120).X[:, :4], load_named("diabetes", 120).y
    write_table(path, ["a", "b", "c", "d", "y"], [*X.T, y])
    shown = run("fit", path, "--target", "y", "--cv", 3, "--model", "linear", "--compare", "--json", report)
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

    monkeypatch.setattr(rivals, "run_grid", interrupted)
    shown = run("fit", regression, "--target", "y", "--model", "linear", "--compare")
    assert "comparison is left out" in shown.stderr
    assert "test mean squared error" in shown.stdout


def test_fit_and_predict_text_classes_by_column_name(classification, tmp_path):
    model = tmp_path / "m.skops"
    options = ["--model", "linear", "--out", model, "--compare"]
    shown = run("fit", classification, "--target", "species", *options)
    assert "2 text labels" in shown.stderr
    assert "GridSearchCV, 13 points" in shown.stdout
    assert "misclassified" in shown.stdout

    table = read_table(classification, "species")
    shuffled = tmp_path / "new.csv"
    order = [3, 1, 0, 2]
    names = [*(table.columns[k] for k in order), "note"]
    write_table(shuffled, names, [*table.X[:, order].T, np.array(["text"] * len(table.y))])
    predicted_text = run("predict", model, shuffled)
    assert "ignored, since the model has no such columns: 'note'" in predicted_text.stderr
    rows = list(csv.reader(io.StringIO(predicted_text.stdout)))
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
    shown = run("fit", path, "--target", "y", "--model", "linear", "--json", tmp_path / "r.json")
    assert "3 text labels" in shown.stderr
    assert json.loads((tmp_path / "r.json").read_text())["test_error"] < 0.2


def test_whole_number_predictions_stay_whole(tmp_path):
    path, model = tmp_path / "m.csv", tmp_path / "m.skops"
    run("datasets", "make", "margin", path, "--rows", 200)
    run("fit", path, "--target", "y", "--model", "linear", "--quiet", "--out", model)
    assert set(run("predict", model, path).stdout.split()) == {"prediction", "1", "-1"}


@pytest.mark.parametrize(
    ("y", "asked", "chosen"),
    [
        (np.array(["a", "b"]), "auto", "classification"),
        (np.array([0, 1, 1]), "auto", "classification"),
        (np.arange(11), "auto", "regression"),
        (np.arange(11), "classification", "classification"),
        (np.array([0, 1, 1]), "regression", "regression"),
        (np.array([0.5, 1.0]), "auto", "regression"),
    ],
)
def test_choice_of_the_task(y, asked, chosen):
    assert models.choose_task(asked, y)[0] == chosen


def test_choice_of_the_family(tmp_path, rng):
    assert models.families("auto", 100, False) == ["linear", "rbf"]
    assert models.families("auto", 5_000, False) == ["linear"]
    assert models.families("auto", 100, True) == ["linear"]
    X = rng.uniform(-2, 2, (120, 2))
    path, report = tmp_path / "t.csv", tmp_path / "r.json"
    for y, best in ((np.sin(3 * X[:, 0]), "rbf"), (X[:, 0] + 0.1 * rng.standard_normal(120), "linear")):
        write_table(path, ["a", "b", "y"], [*X.T, y])
        shown = run("fit", path, "--target", "y", "--cv", 3, "--json", report)
        content = json.loads(report.read_text())
        assert content["model"] == best
        assert set(content["tried"]) == {"linear", "rbf"}
        assert f"model {best}: cross-validation errors are linear" in shown.stderr


def test_space_is_read():
    entries = ["C=1e-3:1e3", "epsilon=0:2", "lam=0.1:2:log:feature"]
    space = models.parse_space(entries, "linearsvr")
    assert list(space) == ["linearsvr__C", "linearsvr__epsilon", "linearsvr__lam"]
    C, epsilon, lam = space.values()
    assert isinstance(C, Log)
    assert (C.lower, C.upper, C.per) == (1e-3, 1e3, None)
    assert isinstance(epsilon, Lin)
    assert isinstance(lam, Log)
    assert lam.per == "feature"
    assert models.parse_space([], "linearsvr") is None


@pytest.mark.parametrize("entry", ["C", "C=", "C=1", "C=a:b", "=1:2", "C=1:2:cubic", "C=2:1", "C=-1:1:log"])
def test_a_space_that_cannot_be_read(regression, entry):
    assert entry in fail("fit", regression, "--target", "y", "--model", "linear", "--space", entry, "--quiet")


def test_a_space_is_used(regression, tmp_path):
    report = tmp_path / "r.json"
    options = ["--model", "linear", "--quiet", "--json", report, "--space", "C=1e-3:1e-2"]
    run("fit", regression, "--target", "y", *options)
    content = json.loads(report.read_text())
    assert set(content["params"]) == {"C"}
    assert 1e-3 <= content["params"]["C"] <= 1e-2


def test_bounds_are_reported_by_column(regression, tmp_path):
    report = tmp_path / "r.json"
    options = ["--model", "linear", "--json", report, "--space", "lam=1:300:feature"]
    shown = run("fit", regression, "--target", "y", *options)
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
        (["--target", "y", "--model", "tree"], "linear, box, rbf, ard, semi"),
        (["--target", "y", "--basis", "bmi"], "goes with --model semiparametric"),
        (["--target", "y", "--model", "semiparametric", "--basis", "z"], "not a numeric column"),
        (["--target", "y", "--model", "semiparametric", "--loss", "squared"], "is for regression"),
        (["--target", "y", "--task", "rank"], "regression, classification"),
        (["--target", "y", "--cv", "1"], "at least 2"),
        (["--target", "y", "--nested", "1"], "at least 2"),
        (["--target", "y", "--seed", "-1"], "negative"),
        (["--target", "y", "--nested", "3", "--test-size", "0.2"], "exclude each other"),
        (["--target", "y", "--resume"], "--checkpoint FILE"),
        (["--target", "y", "--report", "no/r.html"], "mkdir"),
        (["--target", "y", "--out", "."], "folder"),
        (["--target", "y", "--format", "xml"], "csv, tsv"),
        (["--target", "y", "--test", "none.csv"], "No such file"),
        (["--target", "y", "--categorical", "z"], "no column 'z'"),
        (["--target", "y", "--categorical", "bmi", "--max-categories", "3"], "more than 3"),
        (["--target", "y", "--test-size", "1"], "below 1"),
        (["--target", "y", "--max-time", "0"], "positive"),
        (["--target", "y", "--out", "no/m.skops"], "mkdir"),
        (["--target", "y", "--json", "no/r.json"], "mkdir"),
        (["--target", "y", "--cv", "400"], "too few"),
        (["--target", "y", "--task", "classification", "--cv", "5"], "rows"),
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
    text = fail("fit", path, "--target", "y")
    assert "line 3, column 'a'" in text
    assert "declare" in text
    path.write_text("a,y\n" + "1,no\n2,yes\n" * 9)
    assert "use --task classification" in fail("fit", path, "--target", "y", "--task", "regression")
    path.write_text("a,y\n" + "1,no\n" * 30)
    assert "same value" in fail("fit", path, "--target", "y")
    path.write_text("a,y\n" + "1,0.5\n2,1.5\n" * 9)
    assert "use --task regression" in fail("fit", path, "--target", "y", "--task", "classification")
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
    shown = run("fit", regression, "--target", "y", "--model", "linear", "--out", model)
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
    for stranger in (Stranger(), subprocess.run):
        skops.io.dump({"format": saving.FORMAT, "about": "{}", "estimator": stranger}, path)
        assert "was not loaded" in fail("predict", path, regression)
        with pytest.raises(saving.SavingError, match="could not be loaded again"):
            save_model(path, stranger, ["a"], "y")
    skops.io.dump({"format": saving.FORMAT}, path)
    assert "no estimator" in fail("predict", path, regression)
    skops.io.dump({"format": saving.FORMAT, "estimator": LinearRegression()}, path)
    assert "a part of the model is missing" in fail("predict", path, regression)
    assert not list(tmp_path.glob("*.part"))


def test_the_list_of_trusted_types_is_ours_and_holds_no_functions():
    trusted = saving.trusted_types()
    assert {"foldwise.estimators.linear.LinearSVR", "foldwise.kernels.single.RBF"} <= trusted
    arrays = {
        name for name in trusted if re.fullmatch(r"scipy\.sparse\._cs[rc]\.cs[rc]_(matrix|array)", name)
    }
    assert all(name.startswith("foldwise.") for name in trusted - {"numpy.dtype"} - arrays)
    for name in trusted:
        module, _, attribute = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), attribute), type)


def test_reproduce_lists_and_runs(tmp_path, monkeypatch):
    papers = tmp_path / "checkout" / "papers"
    monkeypatch.setattr(others, "papers_folder", lambda: papers)
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


def mixed(n=90, seed=0):
    """Rows with numbers, missing ones, texts and missing texts; the target needs all of them."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, n))
    colour = rng.choice(["red", "green", "blue"], n)
    y = a + 2.0 * (colour == "red") + 0.1 * rng.standard_normal(n)
    cells = [f"{v:.4f}" if rng.uniform() > 0.1 else "" for v in b]
    colour = [c if rng.uniform() > 0.05 else "NA" for c in colour]
    return [[f"{v:.4f}" for v in a], cells, colour, [f"{v:.4f}" for v in y]]


def write_mixed(path, columns, names=("a", "b", "colour", "y")):
    lines = [",".join(names), *(",".join(row) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(lines) + "\n")


def test_texts_and_missing_cells_are_handled_inside_the_folds(tmp_path):
    path, model, report = tmp_path / "t.csv", tmp_path / "m.skops", tmp_path / "r.json"
    write_mixed(path, mixed())
    options = ["--model", "linear", "--cv", 3, "--out", model, "--json", report]
    shown = run("fit", path, "--target", "y", *options, "--space", "lam=0.01:100:feature")
    assert "0/1 column each: 'colour'" in shown.stderr
    assert "missing cells get the median of the training rows: 'b'" in shown.stderr
    content = json.loads(report.read_text())
    assert content["categories"] == {"colour": ["blue", "green", "red", None]}
    assert content["test_error"] < 0.3
    assert len(content["params"]["lam"]) == 2 + 4
    assert set(content["at_bound"]) <= {
        "lam[a]",
        "lam[b]",
        *(f"lam[colour={c}]" for c in ("blue", "green", "red", "(missing)")),
    }
    assert "colour=red" in json.dumps(content["report"])

    saved = load_model(model)
    steps = saved.estimator[0].transformers_
    assert "median" in repr(steps)
    other = tmp_path / "new.csv"
    new = mixed(n=20, seed=5)
    new[2][0], new[1][0] = "violet", "?"
    write_mixed(other, new)
    predicted = run("predict", model, other)
    assert "column 'colour': 1 cells hold categories that the model does not know" in predicted.stderr
    error = np.array(predicted.stdout.split()[1:], float)[1:] - np.array(new[3][1:], float)
    assert np.mean(error**2) < 0.3
    # The same steps by hand give the same numbers.
    table = read_table(other, columns=saved.columns, categories=saved.categories)
    np.testing.assert_array_equal(
        saved.estimator.predict(table.X), np.array(predicted.stdout.split()[1:], float)
    )


def test_a_missing_cell_that_the_model_has_no_answer_to(regression, tmp_path):
    model, other = tmp_path / "m.skops", tmp_path / "new.csv"
    run("fit", regression, "--target", "y", "--model", "linear", "--quiet", "--out", model)
    lines = regression.read_text().splitlines()[:3]
    lines[2] = lines[2].replace(lines[2].split(",")[0], "", 1)
    other.write_text("\n".join(lines) + "\n")
    assert "line 3, column 'age': the value is missing" in fail("predict", model, other)


def test_labels_that_no_training_row_has_are_told(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.normal(size=60)
    path, test, report = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "r.json"
    lines = [f"{x},{'yes' if x > 0 else 'no'}" for x in a.tolist()]
    path.write_text("\n".join(["a,y", *lines[:40]]) + "\n")
    test.write_text("\n".join(["a,y", *lines[40:], "0.3,perhaps", "0.1,perhaps", "0.2,never"]) + "\n")
    options = ["--target", "y", "--model", "linear", "--cv", 3, "--json", report]
    said = run("fit", path, "--test", test, *options).stderr
    words = "3 of 23 test rows have a label that no training row has, and each counts as misclassified"
    assert f"{words}: 'never', 'perhaps'" in " ".join(said.split())
    content = json.loads(report.read_text())
    assert any(words in text for text in content["warnings"])
    assert content["test_error"] >= 3 / 23
    run("fit", path, "--test-size", 0.25, *options)
    assert not any("label" in text for text in json.loads(report.read_text())["warnings"])


def test_test_rows_from_a_file(tmp_path):
    path, test, report = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "r.json"
    write_mixed(path, mixed())
    columns = mixed(30, seed=1)
    write_mixed(test, columns[::-1], ("y", "colour", "b", "a"))
    options = ["--model", "linear", "--cv", 3, "--quiet", "--json", report]
    run("fit", path, "--target", "y", "--test", test, *options)
    content = json.loads(report.read_text())
    assert (content["n_rows"], content["n_test_rows"]) == (90, 30)
    assert content["test_error"] < 0.3
    columns[3] = ["much"] * 30
    write_mixed(test, columns)
    assert "different kinds" in fail("fit", path, "--target", "y", "--test", test, *options)


@pytest.mark.parametrize(
    ("family", "names", "rival"),
    [("box", {"C", "epsilon", "box"}, "LinearSVR"), ("ard", {"C", "epsilon", "gamma"}, "SVR")],
)
def test_families(tmp_path, family, names, rival):
    path, report = tmp_path / "t.csv", tmp_path / "r.json"
    data = load_named("diabetes", 60)
    write_table(path, ["a", "b", "c", "y"], [*data.X[:, 2:5].T, data.y])
    options = ["--model", family, "--cv", 3, "--compare", "--quiet", "--json", report, "--max-time", 5]
    run("fit", path, "--target", "y", *options)
    content = json.loads(report.read_text())
    assert content["model"] == family
    assert set(content["params"]) == names
    assert len(content["params"]["box" if family == "box" else "gamma"]) == 3
    assert content["comparison"]["model"] == rival
    assert content["comparison"]["loss"] == "epsilon_insensitive"


def test_a_box_around_a_loss_without_a_tube(tmp_path):
    path, report = tmp_path / "t.csv", tmp_path / "r.json"
    data = load_named("diabetes", 60)
    write_table(path, ["a", "b", "y"], [*data.X[:, 2:4].T, data.y])
    options = ["--model", "box", "--loss", "squared", "--cv", 3, "--quiet", "--json", report, "--max-time", 5]
    run("fit", path, "--target", "y", *options)
    assert set(json.loads(report.read_text())["params"]) == {"C", "box"}


def test_the_table_does_not_call_the_penalised_error_an_error(tmp_path, rng):
    path, report = tmp_path / "t.csv", tmp_path / "r.json"
    a, b, c = rng.uniform(
        -2, 2, (3, 80)
    )  # two columns of noise: that widths of their own are better is confirmed
    write_table(path, ["a", "b", "c", "y"], [a, b, c, np.sin(3 * a) + 0.1 * rng.normal(size=80)])
    shown = run(
        "fit", path, "--target", "y", "--model", "ard", "--cv", 3, "--json", report, "--verbose"
    ).stdout
    content = json.loads(report.read_text())
    assert content["penalty"] > 0
    assert content["cv_end"] == pytest.approx(content["cv_error"], rel=1e-6)
    assert content["cv_end"] + content["penalty"] == pytest.approx(content["result"]["objective"])
    for name in ("CV mean squared error at the end", "cross-validation error"):
        found = re.search(rf"^{name} +([0-9.e+]+)", shown, re.MULTILINE)
        assert float(found[1]) == pytest.approx(content["cv_error"], rel=1e-4)
    assert re.search(r"^penalty on the widths", shown, re.MULTILINE)


def test_a_semiparametric_model_is_saved_and_used(tmp_path, rng):
    path, model = tmp_path / "t.csv", tmp_path / "m.skops"
    a, b = rng.uniform(-2, 2, (2, 40))
    write_table(path, ["a", "b", "y"], [a, b, 5 * b + np.sin(3 * a)])
    options = [
        "--model",
        "semiparametric",
        "--basis",
        "b",
        "--space",
        "C=0.1:10",
        "--cv",
        3,
        "--test-size",
        0,
    ]
    run("fit", path, "--target", "y", *options, "--quiet", "--out", model)
    fitted = load_model(model).estimator
    assert fitted[-1].basis_names_.tolist() == ["x1", "1"]
    assert fitted[-1].basis_coef_[0] == pytest.approx(5 * b.std(), rel=0.05)
    assert len(run("predict", model, path).stdout.split()) == 41


def test_nested_cross_validation(tmp_path):
    path, report = tmp_path / "t.csv", tmp_path / "r.json"
    write_mixed(path, mixed())
    options = [
        "--model",
        "linear",
        "--cv",
        3,
        "--json",
        report,
        "--nested",
        3,
        "--checkpoint",
        tmp_path / "c",
    ]
    shown = run("fit", path, "--target", "y", *options)
    nested = json.loads(report.read_text())["nested"]
    assert len(nested["errors"]) == len(nested["chosen"]) == 3
    assert nested["error"] == pytest.approx(np.mean(nested["errors"]))
    assert nested["standard_error"] == pytest.approx(np.std(nested["errors"], ddof=1) / np.sqrt(3))
    assert all(0 < low <= high for low, high in zip(nested["inner_errors"], nested["expected_errors"]))
    assert "outer fold 3 of 3" in shown.stderr
    assert "nested mean squared error" in shown.stdout
    assert sorted(p.name for p in tmp_path.glob("c*")) == ["c", "c.fold1", "c.fold2", "c.fold3"]
    again = run("fit", path, "--target", "y", *options, "--resume")
    assert again.stderr.count("resumed: ") == 4
    assert json.loads(report.read_text())["nested"] == nested


def test_an_interrupt_keeps_the_outer_folds_before_it(tmp_path, monkeypatch):
    path, report = tmp_path / "t.csv", tmp_path / "r.json"
    write_mixed(path, mixed())
    begun = []

    class Interrupting(foldwise.callbacks.ProgressBar):
        def __call__(self, record):
            if record.evaluation == 0:
                begun.append(self.title)
            if begun[-1] == "fold3":
                raise KeyboardInterrupt

    monkeypatch.setattr(foldwise.callbacks, "ProgressBar", Interrupting)
    options = ["--model", "linear", "--cv", 3, "--nested", 4, "--json", report]
    shown = run("fit", path, "--target", "y", *options)
    assert begun == ["fold1", "fold2", "fold3", ""]
    nested = json.loads(report.read_text())["nested"]
    assert (nested["folds"], nested["finished"], len(nested["errors"])) == (4, 2, 2)
    assert "2 of 4 folds" in shown.stdout


def test_other_formats(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    data = load_named("diabetes", 80)
    X, y = data.X[:, :3], data.y
    files = {}
    write_table(tmp_path / "t.csv.gz", ["1", "2", "3", "y"], [*X.T, y])
    write_table(tmp_path / "t.tsv", ["1", "2", "3", "y"], [*X.T, y])
    pq.write_table(pa.table({"1": X[:, 0], "2": X[:, 1], "3": X[:, 2], "y": y}), tmp_path / "t.parquet")
    lines = [
        f"{v!r} " + " ".join(f"{k + 1}:{x!r}" for k, x in enumerate(row))
        for row, v in zip(X.tolist(), y.tolist())
    ]
    (tmp_path / "t.svm").write_text("\n".join(lines) + "\n")
    for name in ("t.csv.gz", "t.tsv", "t.parquet", "t.svm"):
        target = [] if name == "t.svm" else ["--target", "y"]
        options = [
            "--cv",
            3,
            "--model",
            "linear",
            "--quiet",
            "--json",
            tmp_path / "r.json",
            "--out",
            tmp_path / "m.skops",
        ]
        run("fit", tmp_path / name, *target, *options)
        content = json.loads((tmp_path / "r.json").read_text())
        predicted = [
            run("predict", tmp_path / "m.skops", tmp_path / other).stdout
            for other in ("t.tsv", "t.svm", "t.parquet")
        ]
        assert len(set(predicted)) == 1
        files[name] = (content["params"], content["test_error"], predicted[0])
    assert len({repr(value) for value in files.values()}) == 1


def test_sparse_rows_stay_sparse(tmp_path, rng):
    lines = []
    for _ in range(60):
        index = np.sort(rng.choice(90_000, 8, replace=False)) + 10
        label = rng.choice([-1, 1])
        lines.append(
            f"{label} 1:{label + 0.1 * rng.standard_normal():.3f} " + " ".join(f"{k}:1" for k in index)
        )
    path, model = tmp_path / "t.svm", tmp_path / "m.skops"
    path.write_text("\n".join(lines) + "\n")
    shown = run("fit", path, "--cv", 3, "--out", model)
    assert "classification" in shown.stderr
    assert load_model(model).sparse
    predicted = run("predict", model, path).stdout.split()[1:]
    assert np.mean([a == b.split()[0] for a, b in zip(predicted, lines, strict=True)]) > 0.7


def test_json_on_standard_output_stands_alone(regression):
    shown = run("fit", regression, "--target", "y", "--model", "linear", "--json", "-")
    assert json.loads(shown.stdout)["model"] == "linear"
    assert "evaluation 1" in shown.stderr


def test_verbose_says_more(regression):
    shown = run("fit", regression, "--target", "y", "--model", "linear", "--verbose", "--max-time", 100)
    assert shown.stderr.count("evaluation") >= 4
    assert "of 100 s" in shown.stderr
    assert "hypergradient norm" in shown.stdout


def test_reports(regression, tmp_path):
    html, again, result = tmp_path / "r.html", tmp_path / "s.html", tmp_path / "r.json"
    options = ["--model", "linear", "--quiet", "--json", result, "--report", html]
    run("fit", regression, "--target", "y", *options)
    assert "test mean squared error" in html.read_text()
    run("report", result, "--out", again)
    assert again.read_text() == html.read_text()
    assert "hypergradient norm" in run("report", result).stdout
    result.write_text("{}")
    assert "not a result" in fail("report", result)
    result.write_text("[" * 10_000)
    assert "not a result" in fail("report", result)
    assert "no file" in fail("report", tmp_path / "none")
    model = tmp_path / "m.skops"
    save_model(model, LinearRegression(), ["a"], "y")
    assert "a report needs the result" in fail("report", model, "--out", again)


def test_compare_runs_all_on_the_same_folds(tmp_path):
    path, report = tmp_path / "d.csv", tmp_path / "r.json"
    data = load_named("diabetes", 90)
    write_table(path, ["a", "b", "c", "y"], [*data.X[:, 2:5].T, data.y])
    options = ["--model", "linear", "--cv", 3, "--trials", 4, "--json", report]
    shown = run("compare", path, "--target", "y", *options)
    content = json.loads(report.read_text())
    assert content["schema"] == "foldwise-compare-1"
    names = [row["name"] for row in content["searches"]]
    assert names[:3] == ["foldwise, newton", "GridSearchCV, 48 points", "RandomizedSearchCV"]
    for row in content["searches"]:
        assert row["name"] in shown.stdout
        assert row["seconds"] > 0
        assert {"params", "cv_error", "test_error", "n_points"} <= set(row)
    best = min(row["cv_error"] for row in content["searches"])
    assert content["searches"][0]["cv_error"] <= best * 1.01
    assert "unknown" in fail("compare", path, "--target", "y", "--against", "luck")
    assert "too small" in fail("compare", path, "--target", "y", "--trials", 0)


def test_compare_without_optuna(tmp_path, monkeypatch):
    path = tmp_path / "d.csv"
    data = load_named("diabetes", 60)
    write_table(path, ["a", "y"], [data.X[:, 2], data.y])
    monkeypatch.setitem(sys.modules, "optuna", None)
    options = ["--model", "linear", "--cv", 3, "--trials", 2]
    shown = run("compare", path, "--target", "y", *options, "--against", "random")
    assert "RandomizedSearchCV" in shown.stdout
    assert "foldwise[bench]" in fail("compare", path, "--target", "y", *options, "--against", "optuna")


NAMES = [
    '"q"',
    "<script>alert(1)</script>",
    "new\nline",
    "\x1b[31mred",
    "[bold]x[/bold]",
    ":smile:",
    "a,b",
    "🙂",
]


def test_hostile_names_end_up_escaped(tmp_path, rng):
    X = rng.standard_normal((60, len(NAMES)))
    path, html, result, model = (tmp_path / name for name in ("t.csv", "r.html", "r.json", "m.skops"))
    write_table(path, [*NAMES, "<y>"], [*X.T, X[:, 0]])
    options = ["--cv", 3, "--json", result, "--report", html, "--out", model, "--space", "lam=1:2:feature"]
    shown = run("fit", path, "--target", "<y>", "--model", "linear", *options)
    assert "\x1b" not in shown.output
    assert json.loads(result.read_text())["columns"] == NAMES
    assert "<script>alert" not in html.read_text()
    assert "\x1b" not in run("report", model).stdout
    assert run("predict", model, path).stdout.startswith("prediction")
    text = fail("fit", path, "--target", "\x1b[2J\n\n\n\n")
    assert "\x1b[2J" not in text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"a,y\n",
        b"\xff\xfe",
        "a,y\n1,2\n".encode("utf-16"),
        b"a,a,y\n1,2,3\n",
        b"\x00" * 100,
        b"a,y\n1,2\n1\n",
    ],
)
def test_files_beyond_use_are_refused_in_two_lines(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    fail("fit", path, "--target", "y")


def test_ten_thousand_columns(tmp_path, rng):
    X = np.round(rng.standard_normal((24, 10_000)), 3)
    path, model = tmp_path / "t.csv", tmp_path / "m.skops"
    write_table(path, [*(f"c{k}" for k in range(10_000)), "y"], [*X.T, X[:, 0]])
    run("fit", path, "--target", "y", "--model", "linear", "--cv", 3, "--quiet", "--out", model)
    assert len(run("predict", model, path).stdout.split()) == 25
    assert "and 9980 more" in run("report", model).stdout


def test_the_live_display_shows_what_matters():
    from rich.console import Console

    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    record = Record(1, 6, 0.25, 0.2, {"svc__C": 3.5}, 0.001, 12.3, "scan")
    with foldwise.callbacks.ProgressBar(console, budget=60.0, title="rbf") as progress:
        progress(record)
    text = console.file.getvalue()
    late = Record(1, 7, 0.15, 0.15, {"svc__C": 3.5}, None, 12.4)
    with progress:
        progress(late)
    assert "not known yet" in console.file.getvalue()
    with progress:
        progress(late)
        late.gradient_norm = 0.5  # known once the method has gone on
        progress(Record(1, 8, 0.3, 0.15, {}, None, 12.5))
    assert "norm 0.5 at the best point before" in console.file.getvalue()
    for words in ("rbf", "evaluation 7, start 2", "0.25, best 0.2", "norm 0.001", "C 3.5", "12.3 s of 60 s"):
        assert words in text


def test_a_reader_that_goes_away_gets_no_traceback(regression, tmp_path):
    model = tmp_path / "m.skops"
    save = ["--model", "linear", "--quiet", "--out", model]
    run("fit", regression, "--target", "y", *save)
    line = f"{sys.executable} -m foldwise.cli predict {model} {regression} | head -n 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == "prediction\n"
    assert "Traceback" not in done.stderr


def test_a_damaged_checkpoint_is_refused_in_two_lines(regression, tmp_path):
    path = tmp_path / "c"
    options = ["--target", "y", "--model", "linear", "--quiet", "--checkpoint", path]
    run("fit", regression, *options)
    assert "exists" in fail("fit", regression, *options)
    run("fit", regression, *options, "--resume")
    assert "folds" in fail("fit", regression, *options, "--resume", "--seed", 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert "truncated" in fail("fit", regression, *options, "--resume")
    assert path.read_bytes() == whole[:-5]


@pytest.mark.slow
def test_the_commands_of_the_readme_work_as_written(tmp_path):
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    (foldwise .*)$", readme, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        script = f'foldwise() {{ "{sys.executable}" -m foldwise.cli "$@"; }}; {line}'
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (line, done.stderr)
    assert {"data.csv", "model.skops", "predictions.csv", "report.html"} <= {
        p.name for p in tmp_path.iterdir()
    }


@pytest.mark.parametrize(("task", "criterion"), [("regression", "absolute"), ("classification", "hinge")])
def test_one_program_from_the_command_line(task, criterion, tmp_path, rng):
    pytest.importorskip("highspy")
    X = rng.normal(size=(40, 3))
    y = X[:, 0] - X[:, 1] + 0.3 * rng.normal(size=40)
    path, result = tmp_path / "data.csv", tmp_path / "result.json"
    write_table(path, ["a", "b", "c", "y"], [*X.T, y if task == "regression" else np.where(y > 0, "p", "q")])
    fit = ["fit", path, "--target", "y", "--cv", 3, "--method", "slams"]
    shown = run(*fit, "--model", "box", "--json", result).stdout
    assert f"CV {criterion} at the end" in shown
    assert not re.search(r"at its lower bound; --space", shown)  # a box of 0 cannot be less
    assert json.loads(result.read_text())["criterion"] == criterion
    assert "--model box" in fail(*fit)
    assert "--model box" in fail(*fit, "--model", "ard")


def test_the_version_is_told():
    assert run("--version").stdout == f"foldwise {foldwise.__version__}\n"


def test_the_logistic_loss_is_tuned_by_itself_in_every_family(tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 2))
    path, result = tmp_path / "data.csv", tmp_path / "result.json"
    write_table(path, ["a", "b", "y"], [*X.T, np.where(X[:, 0] + rng.normal(size=80) > 0, "in", "out")])
    fit = ["fit", path, "--target", "y", "--cv", 3, "--loss", "logistic", "--json", result, "--quiet"]
    run(*fit)
    tried = json.loads(result.read_text())["tried"]
    for family in ("linear", "rbf"):
        run(*fit, "--model", family)
        assert json.loads(result.read_text())["cv_end"] == pytest.approx(tried[family])


def test_families_are_compared_by_one_criterion(tmp_path, rng):
    """Alone, the linear machine has a criterion of its own."""
    X = rng.normal(size=(60, 2))
    path, result = tmp_path / "data.csv", tmp_path / "result.json"
    write_table(path, ["a", "b", "y"], [*X.T, np.where(np.sum(X**2, axis=1) > 1.4, "out", "in")])
    fit = ["fit", path, "--target", "y", "--cv", 3, "--loss", "hinge", "--json", result, "--quiet"]
    run(*fit)
    both = json.loads(result.read_text())
    assert both["model"] == "rbf"
    assert both["criterion"] == "profiled_logistic"
    assert set(both["tried"]) == {"linear", "rbf"}
    run(*fit, "--model", "linear")
    assert json.loads(result.read_text())["criterion"] == "logistic"
