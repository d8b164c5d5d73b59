"""Commands that must be refused: one message, the right exit code, nothing written, every file as it was."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from typer.testing import CliRunner

import foldwise
from foldwise import cli
from foldwise.datasets import load_named
from foldwise.saving import FORMAT, load_model, save_model
from foldwise.tables import write_table

FIT = ["fit", "g.csv", "--target", "y"]
PREDICT = ["predict", "m.skops", "g.csv"]
COMPARE = ["compare", "g.csv", "--target", "y"]


def fit(name, *options):
    return ["fit", name, "--target", "y", *options]


REFUSED = [
    # An output that is an input, however it is spelled.
    ([*PREDICT, "--out", "g.csv"], "--out would replace the data"),
    ([*PREDICT, "--out", "m.skops"], "--out would replace the model"),
    ([*PREDICT, "--out", "sub/../g.csv"], "would replace the data"),
    ([*PREDICT, "--out", "link.csv"], "would replace the data"),
    ([*PREDICT, "--out", "hard.csv"], "would replace the data"),
    (["predict", "m.skops", "link.csv", "--out", "g.csv"], "would replace the data"),
    ([*FIT, "--report", "g.csv"], "--report would replace the data"),
    ([*FIT, "--json", "./g.csv"], "--json would replace the data"),
    ([*FIT, "--out", "hard.csv"], "--out would replace the data"),
    ([*FIT, "--checkpoint", "g.csv", "--resume"], "--checkpoint would replace the data"),
    ([*FIT, "--test", "t.csv", "--json", "t.csv"], "--json would replace the test rows"),
    (["report", "r.json", "--out", "r.json"], "--out would replace the source"),
    ([*COMPARE, "--json", "g.csv"], "--json would replace the data"),
    # Two outputs in one place.
    ([*FIT, "--json", "o", "--report", "o"], "one would replace the other"),
    ([*FIT, "--out", "o", "--json", "sub/../o"], "one would replace the other"),
    ([*FIT, "--json", "o.json", "--report", "O.JSON"], "one would replace the other"),
    ([*FIT, "--out", "hanging", "--report", "new"], "one would replace the other"),
    ([*FIT, "--checkpoint", "o", "--json", "o"], "one would replace the other"),
    ([*FIT, "--checkpoint", "o", "--json", "o.linear"], "one would replace the other"),
    ([*FIT, "--checkpoint", "o", "--nested", "2", "--out", "o.fold2.rbf"], "one would replace the other"),
    ([*FIT, "--json", "-", "--report", "-"], "one would replace the other"),
    # Places that cannot be written.
    ([*FIT, "--out", "-"], "--out needs a file"),
    ([*FIT, "--checkpoint", "-"], "--checkpoint needs a file"),
    ([*FIT, "--checkpoint", "pipe"], "not a plain file"),
    ([*FIT, "--checkpoint", "pipe", "--resume"], "not a plain file"),
    ([*FIT, "--checkpoint", "sub", "--resume"], "not a plain file"),
    ([*FIT, "--report", "sub"], "is a folder"),
    ([*FIT, "--report", "no/r.html"], "mkdir -p"),
    ([*FIT, "--json", "g.csv/r.json"], "cannot write"),
    ([*FIT, "--json", "x" * 300], "too long"),
    ([*FIT, "--out", "loop"], "cannot write"),
    (["datasets", "make", "iris", "sub"], "is a folder"),
    (["datasets", "make", "iris", "no/a.csv"], "mkdir -p"),
    (["datasets", "make", "iris", "-"], "needs a file"),
    # Options that would do nothing, or that contradict each other.
    ([*FIT, "--drop", "y"], "'y' is the target"),
    ([*FIT, "--categorical", "y"], "'y' is the target"),
    ([*FIT, "--drop", "a", "--categorical", "a"], "both dropped and categorical"),
    ([*FIT, "--drop", "a", "--drop", "b"], "no feature column is left"),
    ([*FIT, "--drop", "z"], "no column 'z'"),
    ([*FIT, "--categorical", "z"], "no column 'z'"),
    ([*FIT, "--quiet", "--verbose"], "exclude each other"),
    ([*FIT, "--space", "C=1:2", "--space", "C=2:3", "--model", "linear"], "C twice"),
    ([*FIT, "--space", "gamma=1:2", "--model", "linear"], "unknown hyper-parameter 'gamma'"),
    ([*FIT, "--space", "C=1:inf"], "finite"),
    ([*FIT, "--test", "g.csv"], "is the data itself"),
    ([*FIT, "--test", "hard.csv"], "is the data itself"),
    ([*COMPARE, "--test", "t.csv", "--test-size", "0.2"], "exclude each other"),
    ([*FIT, "--resume"], "--checkpoint FILE"),
    ([*FIT, "--nested", "2", "--test-size", "0.2"], "exclude each other"),
    ([*FIT, "--max-categories", "0"], "at least 1"),
    ([*FIT, "--max-time", "nan"], "positive"),
    ([*FIT, "--seed", "-1"], "negative"),
    ([*FIT, "--basis", "a"], "semiparametric"),
    ([*FIT, "--test-size", "-0.1"], "at least 0"),
    ([*FIT, "--cv", "0"], "at least 2"),
    ([*FIT, "--model", "tree"], "choose one of"),
    ([*COMPARE, "--trials", "5", "--against", "grid"], "--trials is for"),
    ([*COMPARE, "--against", "luck"], "unknown"),
    (["reproduce", "--quick"], "need the name of a table"),
    (["datasets", "make", "nothing", "a.csv"], "Choose one of"),
    (["datasets", "make", "iris", "a.csv", "--rows", "0"], "at least 1"),
    (["datasets", "make", "iris", "a.csv", "--rows", "151"], "150 rows"),
    (["datasets", "make", "iris", "a.csv", "--seed", "3"], "--seed changes nothing"),
    # Inputs that are something else.
    (["predict", "g.csv", "m.skops"], "damaged or not a model"),
    (["predict", "m.skops", "none.csv"], "No such file"),
    (["predict", "none", "g.csv"], "no model file"),
    (["predict", "sub", "g.csv"], "no model file"),
    (["predict", "pipe", "g.csv"], "no model file"),
    (["predict", "m.skops", "sub"], "Is a directory"),
    (["predict", "m.skops", "empty.csv"], "first line is empty"),
    (["predict", "m.skops", "c.csv"], "no column"),
    (["predict", "bomb.skops", "g.csv"], "which no model does"),
    (["predict", "twice.skops", "g.csv"], "which no model does"),
    (["predict", "announced.skops", "g.csv"], "which no model does"),
    (["predict", "function.skops", "g.csv"], "was not loaded"),
    (["report", "g.csv"], "not a result"),
    (["report", "foreign.json"], "not a result"),
    (["report", "deep.json"], "not a result"),
    (["report", "half.json", "--out", "a.html"], "not hold a whole report"),
    (["report", "sub"], "no file"),
    (["report", "m.skops", "--out", "a.html"], "a report needs the result"),
    (fit("sub"), "Is a directory"),
    (fit("empty.csv"), "first line is empty"),
    (fit("header.csv"), "no data row"),
    (fit("one.csv"), "same value"),
    (fit("twins.csv"), "two columns are called 'a'"),
    (fit("latin.csv"), "UTF-8"),
    (fit("zeros.csv"), "zero bytes"),
    (fit("quotes.csv"), "quotes"),
    (fit("semicolons.csv"), "semicolons"),
    (fit("infinite.csv"), "not finite, in 2 rows (lines 4, 6)"),
    (fit("missing.csv"), "missing in 2 rows (lines 3, 5)"),
    (fit("typing.csv"), "1 row (line 5): '4O'"),
    (fit("typing.csv", "--task", "regression"), "1 row (line 5): '4O'"),
    (fit("texts.csv"), "3 columns cannot be used"),
    (fit("constant.csv"), "same value"),
    (fit("huge.csv"), "'1e400' is not finite"),
    (fit("plain.csv.gz"), "not gzip"),
    (fit("plain.parquet"), "Parquet"),
    (["fit", "index.svm"], "largest index"),
    (fit("index.svm"), "beginning of each line"),
    (["fit", "some.svm", "--drop", "1"], "no names"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with everything that a command can be given, good and bad."""
    here = tmp_path_factory.mktemp("hostile")
    data = load_named("diabetes", 40)
    for name in ("g.csv", "t.csv"):
        write_table(here / name, ["a", "b", "y"], [*data.X[:, 2:4].T, data.y])
    write_table(here / "c.csv", ["a", "y"], [data.X[:, 2], np.where(data.y > 150, "=1+1", "low")])
    model = LinearRegression().fit(data.X[:, 2:4], data.y)
    save_model(here / "m.skops", model, ["a", "b"], "y")
    result = CliRunner().invoke(
        cli.app,
        [*fit(str(here / "g.csv")), "--model", "linear", "--cv", "3", "--json", str(here / "r.json"), "-q"],
    )
    assert result.exit_code == 0, result.output
    (here / "sub").mkdir()
    (here / "link.csv").symlink_to(here / "g.csv")
    (here / "hanging").symlink_to(here / "new")
    (here / "loop").symlink_to(here / "loop")
    os.link(here / "g.csv", here / "hard.csv")
    os.mkfifo(here / "pipe")
    rows = [f"{k},{k}" for k in range(20)]
    files = {
        "empty.csv": "",
        "header.csv": "a,y\n",
        "one.csv": "a,y\n1,2\n",
        "twins.csv": "a,a,y\n1,2,3\n",
        "latin.csv": "a,y\ncaf\xe9,1\n".encode("latin-1"),
        "zeros.csv": b"\0" * 100,
        "quotes.csv": 'a,y\n"1"x,2\n',
        "semicolons.csv": "a;y\n1;2\n",
        "infinite.csv": "\n".join(["a,y", *rows[:2], "1,inf", "1,3", "1,-Infinity", *rows]),
        "missing.csv": "\n".join(["a,y", "1,2", "1,", "1,3", "1,n/a", *rows]),
        "typing.csv": "\n".join(["a,y", *rows[:3], "3,4O", *rows]),
        "texts.csv": "\n".join(
            [
                "note,day,size,y",
                *(f"n{k},{k // 28 + 1}/{k % 28 + 1}/2024,{k if k else 'big'},{k}" for k in range(60)),
            ]
        ),
        "constant.csv": "\n".join(["a,y", *(f"{k},7" for k in range(20))]),
        "huge.csv": "\n".join(["a,y", *rows, "1e400,3"]),
        "plain.csv.gz": "a,y\n1,2\n",
        "plain.parquet": "a,y\n1,2\n",
        "index.svm": "1 1:1 1000000000:1\n2 1:2\n",
        "some.svm": "".join(f"{k} 1:{k}\n" for k in range(20)),
        "foreign.json": json.dumps({"report": [], "result": {"status": "converged"}}),
        "deep.json": "[" * 100_000,
    }
    for name, content in files.items():
        (here / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    content = json.loads((here / "r.json").read_text())
    content["report"]["result"]["history"] = [{"evaluation": "one"}]
    (here / "half.json").write_text(json.dumps(content))
    write_bombs(here, model)
    return here


def write_bombs(here, model):
    """Model files that are small and would become large, each in another way."""
    import skops.io

    content = {"format": FORMAT, "about": "{}", "estimator": model}
    skops.io.dump({**content, "x": np.zeros(1 << 25)}, here / "bomb.skops", compression=zipfile.ZIP_DEFLATED)
    skops.io.dump({**content, "x": np.zeros(1 << 22)}, here / "one.skops", compression=zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(here / "one.skops") as old:
        schema = json.loads(old.read("schema.json"))
        array = next(node for node in schema["content"] if "x" in json.dumps(node))
        large = max(old.infolist(), key=lambda entry: entry.file_size)
        # One entry that is asked for a hundred times.
        with zipfile.ZipFile(here / "twice.skops", "w", zipfile.ZIP_DEFLATED) as new:
            new.writestr(large.filename, old.read(large.filename))
            asked = [{"file": large.filename}] * 100
            new.writestr("schema.json", json.dumps({**schema, "more": asked, "array": array}))
        # A head that announces more than there is.
        with zipfile.ZipFile(here / "announced.skops", "w") as new:
            head = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }"
            new.writestr("1.npy", head + b" " * (127 - len(head)) + b"\n" + b"\0" * 80)
            new.writestr("schema.json", json.dumps(schema))
    (here / "one.skops").unlink()
    skops.io.dump({**content, "estimator": os.system}, here / "function.skops")


def snapshot(here):
    """Names, kinds and contents of all that a folder holds."""
    found = {}
    for path in sorted(here.rglob("*")):
        link = os.readlink(path) if path.is_symlink() else None
        plain = path.is_file() and not path.is_symlink()
        found[path.name] = (link, path.lstat().st_mode, path.read_bytes() if plain else None)
    return found


@pytest.mark.parametrize(("args", "words"), REFUSED, ids=[" ".join(args)[:60] for args, _ in REFUSED])
def test_a_hostile_command_is_refused_and_changes_nothing(folder, monkeypatch, args, words):
    monkeypatch.chdir(folder)
    before = snapshot(folder)
    result = CliRunner().invoke(cli.app, args)
    assert result.exit_code == 2, result.output + repr(result.exception)
    text = result.stderr
    assert "Traceback" not in result.output
    message = text[text.index("error: ") :].splitlines()
    assert len(message) <= 2
    assert words in message[0] + message[-1]
    assert "internal error" not in message[0]
    assert result.stdout == ""
    assert snapshot(folder) == before


def test_there_are_enough_of_them():
    assert len(REFUSED) >= 60


@pytest.mark.parametrize(
    "args",
    [[*FIT, "--cv", "3", "--cv", "4"], [*FIT, "--target", "a"], [*PREDICT, "--out", "a", "--out", "b"]],
)
def test_an_option_given_twice_is_refused(folder, monkeypatch, capsys, args):
    monkeypatch.chdir(folder)
    before = snapshot(folder)
    with pytest.raises(SystemExit) as stop:
        cli.main(args)
    assert stop.value.code == 2
    assert "is given 2 times" in capsys.readouterr().err
    assert snapshot(folder) == before


def test_the_hint_names_the_options_for_every_column(folder, monkeypatch):
    monkeypatch.chdir(folder)
    hint = CliRunner().invoke(cli.app, fit("texts.csv")).stderr.splitlines()[-1]
    assert "--drop note --drop day --drop size" in hint
    assert "--categorical size" in hint
    options = hint.removeprefix("hint: add ").split(", or ")[0].split()
    left = CliRunner().invoke(cli.app, fit("texts.csv", *options)).stderr
    assert "no feature column is left" in left  # nothing else was wrong


def test_small_tables_are_read_as_they_are(tmp_path, rng):
    """Odd but sound: a mark at the beginning, old line ends, quotes, spaces, words for missing, exponents."""
    x, y = rng.normal(size=(2, 30))
    rows = [f'"{a:.4e}", {b:.3f}' for a, b in zip(x, y)]
    rows[3] = f"NaN,{y[3]:.3f}"
    answers = set()
    for k, (mark, end) in enumerate([("\ufeff", "\r\n"), ("", "\r"), ("", "\n")]):
        path = tmp_path / f"{k}.csv"
        path.write_bytes((mark + end.join(['"x", y', *rows]) + end).encode())
        result = CliRunner().invoke(
            cli.app, ["fit", str(path), "--target", "y", "--cv", "3", "--model", "linear", "--json", "-"]
        )
        assert result.exit_code == 0, result.output
        answers.add(json.dumps(json.loads(result.stdout)["params"]))
    assert len(answers) == 1


def test_reports_go_through_links_and_keep_what_is_behind(folder, tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "r.html", tmp_path / "r.html"
    link.symlink_to(target)
    result = CliRunner().invoke(cli.app, ["report", str(folder / "r.json"), "--out", str(link)])
    assert result.exit_code == 0, result.output
    assert link.is_symlink()
    assert target.read_text().startswith("<!doctype html>")
    shown = CliRunner().invoke(cli.app, ["report", str(folder / "r.json"), "--out", "-"])
    assert shown.stdout == target.read_text()


def shell(line, folder):
    script = f'foldwise() {{ "{sys.executable}" -m foldwise.cli "$@"; }}; {line}'
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)


def test_a_reader_that_goes_away_is_exit_code_141(folder):
    """As of any tool that SIGPIPE ends: quietly, also when all fits into a buffer that is written at the end."""
    with open(folder / "long.csv", "w") as file:
        file.write("a,b\n" + "1,2\n" * 40_000)
    for command in ("predict m.skops long.csv", "predict m.skops g.csv", "datasets", "report m.skops"):
        done = shell(f"foldwise {command} | sleep 0; echo ${{PIPESTATUS[0]}} >&2", folder)
        assert done.stderr.splitlines() == ["141"], (command, done.stderr)
    done = shell("foldwise predict m.skops long.csv | head -n 1; echo ${PIPESTATUS[0]}", folder)
    assert done.stdout.splitlines() == ["prediction", "141"]
    (folder / "long.csv").unlink()


def test_standard_output_must_not_be_the_input(folder):
    before = (folder / "g.csv").read_bytes()
    done = shell(
        "foldwise predict m.skops g.csv >> g.csv; echo $?; foldwise predict m.skops g.csv --out new >> g.csv",
        folder,
    )
    assert "standard output would replace the data" in done.stderr
    assert (folder / "g.csv").read_bytes() == before
    assert (folder / "new").is_file()
    (folder / "new").unlink()


def test_labels_are_exact_unless_they_are_to_be_escaped(folder, tmp_path):
    model = tmp_path / "m.skops"
    data = str(folder / "c.csv")
    runner = CliRunner()
    made = runner.invoke(
        cli.app, ["fit", data, "--target", "y", "--model", "linear", "--cv", "3", "--out", str(model), "-q"]
    )
    assert made.exit_code == 0, made.output
    plain = runner.invoke(cli.app, ["predict", str(model), data])
    assert set(plain.stdout.split()) == {"prediction", "=1+1", "low"}
    assert "--escape-formulas" in plain.stderr
    safe = runner.invoke(cli.app, ["predict", str(model), data, "--escape-formulas"])
    assert set(safe.stdout.split()) == {"prediction", "'=1+1", "low"}
    assert safe.stderr == ""


@pytest.mark.parametrize(
    ("label", "formula"),
    [
        ("=1", True),
        ("@x", True),
        ("+x", True),
        ("-x", True),
        ("\t=1", True),
        ("-1", False),
        ("+1e3", False),
        ("a=b", False),
    ],
)
def test_what_a_spreadsheet_would_run(label, formula):
    from foldwise.cli.predicting import _is_formula

    assert _is_formula(label) is formula


def test_an_interrupt_in_the_final_fit_keeps_the_values(folder, tmp_path, monkeypatch):
    def interrupted(self, X, y, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(foldwise.LinearSVR, "fit", interrupted)
    model, result, report = tmp_path / "m", tmp_path / "r.json", tmp_path / "r.html"
    options = [
        "--model",
        "linear",
        "--cv",
        "3",
        "--out",
        model,
        "--json",
        result,
        "--report",
        report,
        "--compare",
    ]
    shown = CliRunner().invoke(cli.app, [*fit(str(folder / "g.csv")), *map(str, options)])
    assert shown.exit_code == 130, shown.output
    assert "interrupted in the final fit" in shown.stderr
    assert not model.exists()
    content = json.loads(result.read_text())
    assert set(content["params"]) == {"C", "epsilon"}
    assert content["cv_end"] <= content["cv_start"]
    assert content["left_out"] == ["the final fit and the test"]
    assert content["test_error"] is None
    assert report.read_text().startswith("<!doctype html>")
    assert "epsilon" in shown.stdout


def test_an_interrupt_after_the_fit_keeps_the_model(folder, tmp_path, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("sklearn.model_selection.cross_val_score", interrupted)
    model, result = tmp_path / "m", tmp_path / "r.json"
    options = ["--model", "linear", "--cv", "3", "--out", str(model), "--json", str(result)]
    shown = CliRunner().invoke(cli.app, [*fit(str(folder / "g.csv")), *options])
    assert shown.exit_code == 0, shown.output
    assert load_model(model).facts["params"]
    assert json.loads(result.read_text())["left_out"] == ["the test"]


def test_an_interrupt_ends_the_outer_folds_and_other_families(folder, tmp_path, monkeypatch):
    class Interrupting(foldwise.callbacks.ProgressBar):
        def __call__(self, record):
            raise KeyboardInterrupt

    monkeypatch.setattr(foldwise.callbacks, "ProgressBar", Interrupting)
    data, result = str(folder / "g.csv"), tmp_path / "r.json"
    shown = CliRunner().invoke(cli.app, [*fit(data), "--cv", "3", "--nested", "2"])
    assert shown.exit_code == 130
    assert "outer fold 1 of 2" in shown.stderr
    shown = CliRunner().invoke(cli.app, [*fit(data), "--cv", "3", "--json", str(result)])
    assert shown.exit_code == 0
    assert list(json.loads(result.read_text())["tried"]) == ["linear"]


def test_text_from_a_foreign_result_stays_text(folder, tmp_path):
    """Every text of a result that someone else wrote ends up escaped, or the file is refused."""

    def poison(node):
        if isinstance(node, dict):
            return {
                key: value if key in ("schema", "status") else poison(value) for key, value in node.items()
            }
        if isinstance(node, list):
            return [poison(item) for item in node]
        return "<script>alert(1)</script>" if isinstance(node, str) else node

    content = json.loads((folder / "r.json").read_text())
    source, out = tmp_path / "r.json", tmp_path / "r.html"
    source.write_text(json.dumps(poison(content)))
    CliRunner().invoke(cli.app, ["report", str(source), "--out", str(out)])
    assert "&lt;script&gt;alert" in out.read_text()
    assert "<script>alert" not in out.read_text()


def test_a_gzip_file_by_another_name(folder, tmp_path):
    path = tmp_path / "g.csv"
    path.write_bytes(gzip.compress((folder / "g.csv").read_bytes()))
    shown = CliRunner().invoke(cli.app, ["predict", str(folder / "m.skops"), str(path)])
    assert len(shown.stdout.split()) == 41


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EPIPE])
def test_a_file_that_cannot_be_written_keeps_no_other_from_being_written(folder, tmp_path, monkeypatch, kind):
    """Room may run out after the search: what finds room is kept."""
    monkeypatch.chdir(tmp_path)

    def full(path, content):
        raise OSError(kind, os.strerror(kind))

    monkeypatch.setattr("foldwise.cli.fitting.write_json", full)
    files = ["--json", "r.json", "--report", "r.html", "--out", "m.skops"]
    result = CliRunner().invoke(cli.app, fit(str(folder / "g.csv"), "--model", "linear", "--cv", "3", *files))
    assert result.exit_code == (141 if kind == errno.EPIPE else 2), result.output
    assert sorted(os.listdir()) == ["m.skops", "r.html"]
    assert load_model("m.skops").estimator is not None
