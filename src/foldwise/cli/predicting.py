"""``foldwise predict`` and ``foldwise report``: what can be done with a saved model or result."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from foldwise.cli.app import Command, Debug, InputError, app, option, printable, reported, say, write_text

__all__ = ["predict", "report"]


@app.command(cls=Command)
def predict(
    model: Annotated[Path, typer.Argument(help="Model that foldwise fit --out wrote.", metavar="MODEL")],
    data: Annotated[
        Path, typer.Argument(help="File with the model's columns, in any order.", metavar="DATA")
    ],
    out: Annotated[Path | None, option(help="Write here instead of standard output.", metavar="FILE")] = None,
    format: Annotated[
        str, option(help="csv, tsv, parquet, svmlight; auto: by the file's name.", metavar="F")
    ] = "auto",
    escape_formulas: Annotated[
        bool, option("--escape-formulas", help="Put ' before labels that a spreadsheet would run.")
    ] = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="Say nothing about ignored columns.")] = False,
    debug: Debug = False,
) -> None:
    """Predict the rows of a table: CSV with one column, prediction, on standard output.

    Columns are found by name: a missing one is an error, further ones are ignored and named.
    """
    with reported(debug):
        from foldwise.outputs import check_outputs
        from foldwise.saving import load_model
        from foldwise.tables import read_table
        from foldwise.tables.codes import name_some

        target = out or Path("-")
        check_outputs(
            {"standard output" if out is None else "--out": target}, {"the model": model, "the data": data}
        )
        saved = load_model(model)
        table = read_table(data, columns=saved.columns, categories=saved.categories, format=format)
        extra = [name for name in table.extra if name != saved.target]
        if extra:
            say(f"ignored, since the model has no such columns: {name_some(extra)}", quiet)
        for name, count in table.unknown.items():
            say(f"column {name!r}: {count} cells hold categories that the model does not know", quiet)
        if table.missing and not saved.imputes:
            name, (count, line) = next(iter(table.missing.items()))
            raise InputError(
                f"{data}, line {line}, column {name!r}: the value is missing, and the model was fitted without "
                "missing values.",
                "fill it in, or fit again with rows that have missing values.",
            )
        X: Any = table.X
        if not saved.sparse and hasattr(X, "toarray"):
            X = X.toarray()
        predicted = saved.estimator.predict(X)
        write_text(target, _csv(predicted, escape_formulas, quiet))


def _csv(predicted: Any, escape: bool, quiet: bool) -> str:
    """The predictions under a header line, labels as they are unless they are to be escaped."""
    labels = predicted.tolist()
    formulas = {label for label in set(labels) if isinstance(label, str) and _is_formula(label)}
    if formulas and not escape:
        example = min(formulas, key=len)
        say(
            f"warning: a spreadsheet would take some labels for formulas ({example[:40]}); --escape-formulas puts a ' "
            "before them",
            quiet,
        )
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["prediction"])
    writer.writerows([f"'{label}" if escape and label in formulas else label] for label in labels)
    return file.getvalue()


def _is_formula(label: str) -> bool:
    """Whether spreadsheets may run a cell: it begins like a formula and is not a plain number."""
    from foldwise.tables.codes import is_number

    return label.lstrip()[:1] in ("=", "+", "-", "@", "＝", "＋", "－", "＠") and not is_number(label)


@app.command(cls=Command)
def report(
    source: Annotated[
        Path,
        typer.Argument(help="Result that foldwise fit --json wrote, or a saved model.", metavar="SOURCE"),
    ],
    out: Annotated[
        Path | None, option(help="HTML file to write, - for standard output; needs a result.", metavar="FILE")
    ] = None,
    debug: Debug = False,
) -> None:
    """Say what a saved model or result holds, or make the HTML report of a result."""
    with reported(debug):
        from foldwise.outputs import check_outputs

        check_outputs(
            {"--out": out, "standard output": Path("-") if str(out) != "-" else None}, {"the source": source}
        )
        if not source.is_file():
            raise InputError(
                f"there is no file {source}.", "give a result or a model that foldwise fit wrote."
            )
        with open(source, "rb") as file:
            is_model = file.read(4) == b"PK\x03\x04"
        if is_model:
            if out is not None:
                raise InputError(
                    f"{source} is a model; a report needs the result of its search.",
                    "run foldwise fit with --json FILE or --report FILE.",
                )
            from foldwise.saving import load_model

            lines = load_model(source).describe()
        else:
            lines = _report_result(source, out)
        for line in lines:
            typer.echo(printable(line))


def _report_result(source: Path, out: Path | None) -> list[str]:
    """Write the report of a result, or say in lines what it holds."""
    from foldwise.report import render
    from foldwise.result import Result

    hint = "use a file that foldwise fit --json wrote."
    wrong = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
        facts, result = content["report"], Result.from_json(json.dumps(content["result"]))
    except wrong:
        raise InputError(f"{source} is not a result of foldwise fit.", hint) from None
    try:
        text = result.summary() if out is None else render(facts)
    except wrong:
        raise InputError(f"{source} is damaged: it does not hold a whole report.", hint) from None
    if out is None:
        return text.splitlines()
    write_text(out, text)
    return [] if str(out) == "-" else [f"report written to {out}"]
