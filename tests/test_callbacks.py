from __future__ import annotations

import copy
import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from foldwise.callbacks import JsonLines, ProgressBar, TimeLimit, format_params
from foldwise.result import Record


def record(evaluation=1, **changes):
    """A record; evaluations are shown from 1 and stored from 0."""
    values = {
        "start": 0,
        "evaluation": evaluation - 1,
        "objective": 2.0 / evaluation,
        "best": 1.5 / evaluation,
        "params": {"linearsvr__C": 0.25, "linearsvr__epsilon": 0.0},
        "gradient_norm": 1e-3,
        "elapsed": 0.1 * evaluation,
        "note": "",
    }
    return Record(**{**values, **changes})


HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
"""What a terminal is sent before and after a line is kept up to date."""


def console(**options):
    return Console(file=io.StringIO(), width=200, **options)


def test_plain_lines_hold_what_a_reader_needs():
    progress = ProgressBar(console(), interval=0.0)
    assert progress(record()) is None
    line = progress.console.file.getvalue()
    for words in (
        "evaluation 1",
        "objective 2",
        "best 1.5",
        "gradient 0.001",
        "C 0.25",
        "epsilon 0",
        "0.1 s",
    ):
        assert words in line
    assert line.count("\n") == 1


def test_lines_are_held_back_but_the_last_is_printed():
    progress = ProgressBar(console(), interval=3600.0)
    with progress:
        for evaluation in range(1, 20):
            progress(record(evaluation))
    lines = progress.console.file.getvalue().splitlines()
    assert [line.split(" | ")[0] for line in lines] == ["evaluation 1", "evaluation 19"]


def test_a_second_use_starts_afresh():
    progress = ProgressBar(console(), interval=3600.0)
    for _ in range(2):
        with progress:
            progress(record(1))
    assert progress.console.file.getvalue().count("evaluation 1 ") == 2


def test_on_a_terminal_one_line_is_kept_up_to_date():
    progress = ProgressBar(console(force_terminal=True))
    with progress:
        for evaluation in range(1, 4):
            progress(record(evaluation))
    shown = progress.console.file.getvalue()
    assert shown.count(HIDE_CURSOR) == shown.count(SHOW_CURSOR) == 1
    assert "evaluation 3" in shown


def test_the_terminal_is_given_back_after_an_error():
    progress = ProgressBar(console(force_terminal=True))
    with pytest.raises(KeyboardInterrupt), progress:
        raise KeyboardInterrupt
    shown = progress.console.file.getvalue()
    assert shown.index(HIDE_CURSOR) < shown.index(SHOW_CURSOR)


def test_brackets_in_a_note_are_not_markup():
    progress = ProgressBar(console(), interval=0.0)
    progress(record(note="[red]kink[/red]", gradient_norm=None, start=1))
    line = progress.console.file.getvalue()
    assert "[red]kink[/red]" in line
    assert "start 2" in line
    assert "gradient" not in line


def test_a_copy_writes_to_the_same_screen():
    progress = ProgressBar(console(), interval=0.0)
    copy.deepcopy([progress])[0](record())
    assert "evaluation 1" in progress.console.file.getvalue()


def test_vectors_and_many_names_are_shortened():
    text = format_params({"svr__lam": np.linspace(0.1, 2, 100), "C": np.array([1.0, 2.0])})
    assert text == "lam 0.1 to 2 (100 values), C [1, 2]"
    assert format_params({f"p{k}": k for k in range(9)}).endswith("p3 3, 5 more")


def test_time_limit():
    limit = TimeLimit(1.0)
    assert [limit(record(elapsed=t)) for t in (0.0, 0.99, 1.0, 5.0)] == [False, False, True, True]
    for bad in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            TimeLimit(bad)


def test_json_lines_appends_one_object_per_record(tmp_path):
    path = tmp_path / "log.jsonl"
    sink = JsonLines(path)
    sink(record(1, params={"lam": np.array([1.0, 2.0]), "C": np.float64(3.0)}))
    JsonLines(path)(record(2, objective=float("inf"), gradient_norm=float("nan")))
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first["params"] == {"lam": [1.0, 2.0], "C": 3.0}
    assert (first["evaluation"], second["evaluation"]) == (0, 1)
    assert second["objective"] is None
    assert second["gradient_norm"] is None


def test_json_lines_needs_a_folder(tmp_path):
    with pytest.raises(ValueError, match="folder"):
        JsonLines(tmp_path / "no" / "log.jsonl")


class ZMQInteractiveShell:
    """Named as the shell of a notebook's kernel."""


def test_in_a_notebook_one_cell_is_kept_up_to_date(monkeypatch):
    shown = []
    cell = SimpleNamespace(update=shown.append)
    display = SimpleNamespace(HTML=str, display=lambda html, display_id: shown.append(html) or cell)
    monkeypatch.setitem(
        sys.modules, "IPython", SimpleNamespace(get_ipython=ZMQInteractiveShell, display=display)
    )
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with ProgressBar() as progress:
        for evaluation in range(1, 20):
            progress(record(evaluation, note="<b>"))
    assert shown[0] == "<p>starting</p>"
    assert shown[1].startswith("<p>evaluation 1 ")
    assert shown[-1].startswith("<p>evaluation 19 ")
    assert "<b>" not in shown[-1]
    assert len(shown) < 19
