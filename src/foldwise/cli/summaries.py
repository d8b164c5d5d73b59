"""What a fit is said to have found: in the summary, in the report, beside the saved model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldwise.cli.app import say
from foldwise.cli.data import Rows
from foldwise.cli.models import folds, output_names
from foldwise.cli.options import Request
from foldwise.cli.selecting import Fitted

if TYPE_CHECKING:
    from foldwise.tables import Table

__all__ = ["gathered", "save", "spared", "summarize"]


def summarize(rows: Rows, fitted: Fitted, request: Request, lost: list[str] | None = None) -> dict[str, Any]:
    """What is printed and written: the choice, how it was made, and how good it is.

    ``lost`` names what Ctrl-C has cost so far and gets what it costs here.
    """
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    from foldwise.criteria import criterion_name
    from foldwise.version import __version__

    search, result, table = fitted.search, fitted.search.result_, rows.table
    tuned = clone(fitted.pipeline).set_params(**search.best_params_)
    splitter = folds(rows.task, request.search.cv, request.search.seed)
    lost = [] if lost is None else lost
    cv_error = test_error = None
    if not lost:
        with spared("the test", lost):
            scores = cross_val_score(tuned, *rows.train, cv=splitter, scoring=rows.scoring)
            cv_error = rows.error(float(scores.mean()))
            test_error = rows.test_error(search)
    return {
        "version": __version__,
        "task": rows.task,
        "metric": rows.metric,
        "model": fitted.family,
        "tried": fitted.tried,
        "n_rows": int(rows.train[0].shape[0]),
        "n_test_rows": 0 if rows.test is None else int(rows.test[0].shape[0]),
        "columns": list(table.columns),
        "categories": {name: list(labels) for name, labels in table.categories.items()},
        "missing": {name: count for name, (count, _) in table.missing.items()},
        "method": result.method,
        "status": str(result.status),
        "message": result.message,
        "params": fitted.params,
        "at_bound": {_entry_name(name, table): side for name, side in result.at_bound.items()},
        "criterion": criterion_name(search.criterion_),
        "cv_start": result.error_start,
        "cv_end": result.error,
        "penalty": result.penalty,
        "cv_error": cv_error,
        "test_error": test_error,
        "n_evaluations": result.n_evaluations,
        "n_resumed": search.n_resumed_,
        "seconds": fitted.seconds,
        "warnings": [*fitted.warnings, *filter(None, [rows.unseen()])],
    }


@contextmanager
def spared(what: str, lost: list[str]) -> Iterator[None]:
    """Let Ctrl-C leave out a step after the search, not what was found before it."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted; {what} is left out.")
        lost.append(what)


def _entry_name(name: str, table: Table) -> str:
    """``linearsvr__lam[x3]`` as ``lam[name of the fourth column]``."""
    head, bracket, label = name.partition("[")
    short = head.rsplit("__", 1)[-1]
    number = re.fullmatch(r"(?:numbers__)?x(\d+)\]", label)
    if number is not None and int(number[1]) < len(table.columns):
        return f"{short}[{table.columns[int(number[1])]}]"
    category = re.fullmatch(r"categories__x(\d+)_(\d+)(?:\.0)?\]", label)
    if category is not None:
        column = table.columns[int(category[1])]
        text = table.categories[column][int(category[2])]
        return f"{short}[{column}={'(missing)' if text is None else text}]"
    return short + bracket + label


def gathered(rows: Rows, fitted: Fitted, summary: dict[str, Any], data: Path) -> dict[str, Any]:
    """What the report says."""
    from foldwise.report import gather

    errors = {}
    if summary["cv_error"] is not None:
        errors[f"cross-validated {rows.metric}"] = summary["cv_error"]
    if summary["test_error"] is not None:
        errors[f"test {rows.metric}"] = summary["test_error"]
    if "nested" in summary:
        errors[f"nested {rows.metric}"] = summary["nested"]["error"]
    comparison = []
    if other := summary.get("comparison"):
        for name, side in (("foldwise", summary), (other["name"], other)):
            comparison.append(
                {
                    "search": name,
                    f"CV {rows.metric}": side["cv_error"],
                    f"test {rows.metric}": side["test_error"],
                    "seconds": side["seconds"],
                }
            )
    return gather(
        fitted.search,
        title=data.name,
        feature_names=output_names(rows.table),
        errors=errors,
        comparison=comparison,
        warnings=summary["warnings"],
    )


def save(out: Path, rows: Rows, fitted: Fitted, summary: dict[str, Any], target: str | None) -> None:
    from foldwise.saving import save_model

    facts = {name: summary[name] for name in ("task", "model", "params", "metric", "cv_error", "test_error")}
    save_model(
        out,
        fitted.search.best_estimator_,
        rows.table.columns,
        target or "target",
        categories=rows.table.categories,
        imputes=rows.imputes,
        sparse=hasattr(rows.table.X, "toarray"),
        facts=facts,
    )
