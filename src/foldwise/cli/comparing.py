"""``foldwise compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foldwise.cli.app import InputError, say, write_json
from foldwise.cli.data import Rows, load
from foldwise.cli.models import families
from foldwise.cli.options import Request, command
from foldwise.cli.rivals import RIVALS
from foldwise.cli.selecting import Fitted, select
from foldwise.cli.showing import print_comparison
from foldwise.cli.summaries import summarize

__all__ = ["compare"]

SCHEMA = "foldwise-compare-1"


@command(
    "data target task model loss method against trials cv test_size test drop categorical max_categories format "
    "json_out seed quiet debug",
    cv="Folds, the same for all; 5 by default.",
    test_size="Share of rows for the test; 0.25, or 0.",
    json_out="Write the table here as JSON; - for standard output.",
)
def compare(request: Request) -> None:
    """Run ours and other searches on the same folds and print one table.

    The others tune scikit-learn's own estimators for accuracy or squared error. Times are wall clock.
    """
    from foldwise.outputs import check_outputs

    data, search, path = request.data, request.search, request.outputs.json_out
    chosen, trials = _check(request)
    check_outputs({"standard output" if path is None else "--json": path or Path("-")}, data.inputs())
    rows = load(data, data.held_out(), search.cv, search.seed, request.quiet)
    fitted = select(rows, request)
    table = [_ours(rows, fitted, request), *_theirs(rows, fitted, request, chosen, trials)]
    if not request.quiet and str(path) != "-":
        print_comparison(table, rows.metric)
    if path is not None:
        head = {"schema": SCHEMA, "data": str(data.data), "target": data.target, "seed": search.seed}
        facts = {"task": rows.task, "metric": rows.metric, "folds": search.cv, "searches": table}
        write_json(path, {**head, **facts})


def _check(request: Request) -> tuple[list[str], int]:
    """Refuse what cannot work; the names of the other searches, and their points."""
    data, search, trials = request.data, request.search, request.comparison.trials
    chosen = list(dict.fromkeys(request.comparison.against or RIVALS))
    for name in chosen:
        if name not in RIVALS:
            raise InputError(f"--against {name} is unknown.", f"choose from {', '.join(RIVALS)}.")
    if trials is not None and not {"random", "optuna"} & set(chosen):
        raise InputError("--trials is for random and optuna.", "leave it out, or add --against random.")
    trials = 50 if trials is None else trials
    families(request.model.model, 1, False)
    if search.cv < 2 or trials < 1 or search.seed < 0:
        raise InputError(
            f"--cv {search.cv}, --trials {trials} or --seed {search.seed} is too small.",
            "try --cv 5 --trials 50.",
        )
    if data.test_size is not None and data.test is not None:
        raise InputError("--test-size and --test exclude each other.", "keep one of them.")
    data.held_out()
    return chosen, trials


def _ours(rows: Rows, fitted: Fitted, request: Request) -> dict[str, Any]:
    summary = summarize(rows, fitted, request)
    return {
        "name": f"foldwise, {summary['method']}",
        "model": fitted.family,
        "loss": request.model.loss or "default",
        "n_points": summary["n_evaluations"],
        **{key: summary[key] for key in ("params", "cv_error", "test_error", "seconds", "status")},
    }


def _theirs(
    rows: Rows, fitted: Fitted, request: Request, chosen: list[str], trials: int
) -> list[dict[str, Any]]:
    """What the other searches found; one that cannot run is left out unless it was asked for."""
    table = []
    for name in chosen:
        say(f"running {name} ...", request.quiet)
        try:
            loss, search = request.model.loss, request.search
            table.append(RIVALS[name](rows, fitted.family, loss, search.cv, search.seed, trials))
        except InputError as error:
            if request.comparison.against:
                raise
            say(f"{name} is left out: {error} {error.hint}", request.quiet)
        except KeyboardInterrupt:
            say(f"interrupted; {name} and what comes after it are left out.")
            break
    return table
