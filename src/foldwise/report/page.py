"""The report as one HTML page. Nothing is loaded from elsewhere, and only the page's own script may run."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from foldwise.outputs import writing
from foldwise.plotting import charts
from foldwise.plotting.data import Contour, Folds, History, Relevance, history_data
from foldwise.plotting.data import Path as Way
from foldwise.report.charts import bar_chart, heat_map, line_chart
from foldwise.report.facts import SCHEMA, certificate, gather
from foldwise.result import Record, Result
from foldwise.wording import format_fact
from foldwise.wording import format_number as number

__all__ = ["render", "write_report"]

MOST_POINTS, MOST_ROWS = 400, 200
"""Longer histories are thinned, and long tables cut, with a word about it."""


def write_report(path: str | Path, search: Any, **options: Any) -> Path:
    """Write a report of a fitted search to a file, which appears complete or not at all.

    Parameters
    ----------
    path : str or Path
    search : fitted BilevelSearchCV, or the mapping that :func:`~foldwise.report.gather` gave
    **options : as in :func:`~foldwise.report.gather`

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from foldwise import BilevelSearchCV, LinearSVR
    >>> search = BilevelSearchCV(LinearSVR(), ["C"]).fit(*load_diabetes(return_X_y=True))
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = write_report(Path(folder) / "report.html", search).read_text(encoding="utf-8")
    >>> text.startswith("<!doctype html>")
    True
    """
    path = Path(path)
    text = render(search if isinstance(search, Mapping) else gather(search, **options))
    with writing(path) as file:
        file.write(text)
    return path


def render(facts: Mapping[str, Any]) -> str:
    """The page for the facts that :func:`~foldwise.report.gather` collected."""
    if not isinstance(facts, Mapping) or facts.get("schema") != SCHEMA:
        got = facts.get("schema") if isinstance(facts, Mapping) else type(facts).__name__
        raise ValueError(f"a report needs facts of schema {SCHEMA!r}, as gather() makes them; got {got!r}")
    style, script = (
        files("foldwise.report").joinpath(name).read_text("utf-8") for name in ("style.css", "script.js")
    )
    result = Result.from_plain(facts["result"])
    sections = [
        _warnings(facts),
        _section("Selected values", _selected(facts)),
        _section("What is known about them", _list(certificate(result)) + _details(result)),
        _section("Compared with other searches", _comparison(facts["comparison"])),
        _section("Course of the search", _course(result, facts)),
        _section("Folds", _folds(result, facts["criterion"])),
        _section("Features", _relevance(facts["relevance"])),
        _section("The same again", f'<pre tabindex="0">{escape(facts["code"])}</pre>'),
    ]
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; base-uri 'none'"
    title = escape(facts["title"])
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title}</title><link rel="icon" href="data:,"><style>{style}</style></head><body>'
        f'<a class="skip" href="#main">To the content</a><header>'
        f'<button class="theme" id="theme" type="button" hidden>Dark / light</button>'
        f"<h1>{title}</h1>{_lead(result, facts)}</header>"
        f'<main id="main">{"".join(sections)}</main><footer>Made by {escape(versions)}.</footer>'
        f'<div id="tip" role="status" hidden></div><script>{script}</script></body></html>\n'
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _lead(result: Result, facts: Mapping[str, Any]) -> str:
    tiles = [
        (f"cross-validated {facts['criterion']} error", number(result.error)),
        *((name, number(value)) for name, value in facts["errors"].items()),
        ("how the search ended", result.status.value),
        ("evaluations", str(result.n_evaluations)),
        ("seconds", number(result.elapsed)),
    ]
    items = "".join(f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for name, value in tiles)
    lead = f"{facts['estimator']}, {facts['n_splits']} folds, method {result.method}"
    return f'<p class="lead">{escape(lead)}</p><ul class="tiles">{items}</ul>'


def _warnings(facts: Mapping[str, Any]) -> str:
    boxes = "".join(f'<p class="warning" role="note">{escape(text)}</p>' for text in facts["warnings"])
    return _section("Warnings", boxes)


def _selected(facts: Mapping[str, Any]) -> str:
    rows = [
        {
            "hyper-parameter": entry["name"],
            "value": entry["value"],
            "lower bound": entry["lower"],
            "upper bound": entry["upper"],
            "at a bound": entry["at_bound"] or "",
            "meaning": entry["meaning"],
        }
        for entry in facts["selected"]
    ]
    body = _table(rows, "Values as they act in a fold.")
    scalars = {name: value for name, value in facts["refit"].items() if isinstance(value, (int, float))}
    if scalars:
        words = ", ".join(f"{name} = {number(value)}" for name, value in scalars.items())
        body += f"<p>The final model is fitted to all rows with {escape(words)}.</p>"
    return body


def _details(result: Result) -> str:
    """What the method alone knows about its end, as a table."""
    rows = [
        {"fact": name.replace("_", " "), "value": format_fact(value)}
        for name, value in result.details.items()
    ]
    return _table(rows, f"Facts of the method {result.method}.") if rows else ""


def _comparison(rows: Sequence[Mapping[str, Any]]) -> str:
    return _table(rows, "The same folds and rows.") if rows else ""


def _course(result: Result, facts: Mapping[str, Any]) -> str:
    records = result.history
    if not records:
        return ""
    shown = _thin(len(records))
    drawn, history = len(shown), _some(replace(history_data(result), criterion=facts["criterion"]), shown)
    pictures = [
        line_chart(_with_tips(charts.history_chart(history), [_tip(records[i]) for i in shown])),
        line_chart(_with_tips(charts.derivative_chart(history), _norm_tips(history))),
        line_chart(charts.path_chart(_way(facts["path"]))),
    ]
    if facts["contour"]:
        pictures.append(heat_map(charts.contour_chart(_contour(facts["contour"]))))
    note = "" if drawn == len(records) else f"<p>{drawn} of {len(records)} evaluations are drawn.</p>"
    rows = [
        {
            "evaluation": record.evaluation + 1,
            "start": record.start + 1,
            "error": record.error,
            "derivative": record.gradient_norm,
            "seconds": record.elapsed,
            "note": record.note,
        }
        for record in records[:MOST_ROWS]
    ]
    cut = "" if len(records) <= MOST_ROWS else f" The first {MOST_ROWS} of {len(records)}."
    table = _table(rows, f"Every evaluation.{cut}")
    numbers = f"<details><summary>The numbers</summary>{table}</details>"
    return f'<div class="charts">{"".join(pictures)}</div>{note}{numbers}'


def _some(data: History, rows: np.ndarray) -> History:
    """The course at some evaluations."""
    arrays = {f.name: getattr(data, f.name)[rows] for f in fields(data) if f.name != "criterion"}
    return replace(data, **arrays)


def _with_tips(chart: charts.Lines, tips: Sequence[str]) -> charts.Lines:
    """The chart with words at the points of its first series."""
    first, *others = chart.series
    return replace(chart, series=[replace(first, tips=tips), *others])


def _norm_tips(data: History) -> list[str]:
    return [f"evaluation {k + 1}: {number(v)}" for k, v in zip(data.evaluation, data.gradient_norm)]


def _contour(facts: Mapping[str, Any]) -> Contour:
    arrays = {name: np.array(facts[name], float) for name in ("x", "y", "objective", "path", "best")}
    return Contour(names=tuple(facts["names"]), log=tuple(facts["log"]), **arrays)


def _way(facts: Mapping[str, Any]) -> Way:
    """The path, whose values are kept between 0 and 1."""
    names = list(facts["names"])
    values = np.array(facts["values"], float).reshape(-1, len(names))
    shown, zero = _thin(len(values)), np.zeros(len(names))
    step, start = (np.array(facts[name], int)[shown] for name in ("evaluation", "start"))
    return Way(step, start, names, values[shown], zero, zero + 1.0, zero.astype(bool))


def _folds(result: Result, criterion: str) -> str:
    errors = np.array(result.fold_objectives, float)
    if not len(errors):
        return ""
    spread = f"Mean {number(float(np.mean(errors)))}"
    if len(errors) > 1:
        spread += f", standard deviation between folds {number(float(np.std(errors, ddof=1)))}"
    chart = bar_chart(charts.folds_chart(Folds(errors, criterion)))
    return f'<p>{spread}.</p><div class="charts">{chart}</div>'


def _relevance(facts: Mapping[str, Any] | None) -> str:
    if not facts or not facts["names"]:
        return ""
    box = None if facts["box"] is None else np.array(facts["box"], float)
    data = Relevance(
        facts["names"],
        np.array(facts["values"], float),
        np.array(facts["selected"], bool),
        facts["what"],
        box,
    )
    chart = bar_chart(charts.relevance_chart(data))
    rows: list[dict[str, Any]] = [
        {
            "feature": data.names[i],
            data.what: float(data.values[i]),
            "kept": format_fact(bool(data.selected[i])),
            **({} if data.box is None else {"box": float(data.box[i])}),
        }
        for i in data.order[:MOST_ROWS]
    ]
    cut = "" if len(data.order) <= MOST_ROWS else f" The first {MOST_ROWS}."
    table = _table(rows, f"All features, by weight.{cut}")
    count = int(np.sum(data.selected))
    return (
        f'<p>{count} of {len(data.values)} features are kept.</p><div class="charts">{chart}</div>'
        f"<details><summary>The numbers</summary>{table}</details>"
    )


def _table(rows: Sequence[Mapping[str, Any]], caption: str) -> str:
    """A table that sorts by a click on a heading; numbers are right-aligned."""
    columns = list(rows[0])
    numeric = {c: all(isinstance(r.get(c), (int, float, type(None))) for r in rows) for c in columns}
    cls = {c: ' class="n"' if numeric[c] else "" for c in columns}
    head = "".join(
        f'<th scope="col"{cls[c]}><button type="button">{escape(str(c))}</button></th>' for c in columns
    )
    body = []
    for row in rows:
        cells = []
        for c in columns:
            value = row.get(c)
            if numeric[c]:
                text = str(value) if isinstance(value, int) else number(value)
                cells.append(f'<td class="n" data-value="{"" if value is None else repr(value)}">{text}</td>')
            else:
                text = number(value) if isinstance(value, float) else str(value)
                kind = ' class="text"' if len(text) > 30 else ""
                cells.append(f"<td{kind}>{escape(text)}</td>")
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="sortable">'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in sentences) + "</ul>"


def _tip(record: Record) -> str:
    lines = [f"evaluation {record.evaluation + 1}: {number(record.error)}"]
    for name, value in list(record.params.items())[:4]:
        values = np.atleast_1d(np.array(value, float))
        shown = number(values[0]) if values.size == 1 else f"{number(values.min())} to {number(values.max())}"
        lines.append(f"{name} {shown}")
    return "\n".join(lines)


def _thin(count: int) -> np.ndarray:
    return (
        np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).astype(int))
        if count
        else np.zeros(0, int)
    )
