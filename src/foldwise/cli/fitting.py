"""``foldwise fit``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from foldwise.cli.app import InputError, say, write_json, write_text
from foldwise.cli.data import Rows, load
from foldwise.cli.models import families, parse_space
from foldwise.cli.options import Request, command
from foldwise.cli.selecting import Fitted, checkpoint_path, nest, select
from foldwise.cli.showing import print_summary
from foldwise.cli.summaries import gathered, save, spared, summarize

__all__ = ["fit"]

SCHEMA = "foldwise-fit-1"


@command(
    "data target task model loss method space basis cv test_size test nested drop categorical max_categories format "
    "compare out json_out report checkpoint resume max_time seed quiet verbose debug"
)
def fit(request: Request) -> None:
    """Select hyper-parameters by cross-validation, fit, and test on rows held out.

    Inside the folds: numbers are scaled, missing ones get the median, text becomes 0/1 columns.
    """
    search, outputs = request.search, request.outputs
    _check(request)
    _check_files(request)
    share = 0.0 if search.nested is not None else request.data.held_out()
    rows = load(request.data, share, search.cv, search.seed, request.quiet)
    outer = None if search.nested is None else nest(rows, request, search.nested)
    fitted = select(rows, request)
    lost = [] if fitted.complete else ["the final fit and the test"]
    summary = summarize(rows, fitted, request, lost)
    if outer is not None:
        summary["nested"] = outer
    if outputs.compare and not lost:
        from foldwise.cli.rivals import run_grid

        say("running scikit-learn's GridSearchCV on the same folds ...", request.quiet)
        with spared("the comparison", lost):
            summary["comparison"] = run_grid(rows, fitted.family, request.model.loss, search.cv, search.seed)
    summary["left_out"] = lost
    if not request.quiet and "-" not in (str(outputs.json_out), str(outputs.report)):
        print_summary(summary, fitted.search if outputs.verbose else None)
    _write(rows, fitted, summary, request)
    if not fitted.complete:
        raise InterruptedFit(fitted, outputs.out)


def _write(rows: Rows, fitted: Fitted, summary: dict[str, Any], request: Request) -> None:
    """Write every file that was asked for, then raise the first error that kept one from being written."""
    said, asked = request.outputs, request.data
    unwritten: list[Exception] = []
    if said.json_out is not None or said.report is not None:
        facts = gathered(rows, fitted, summary, asked.data)
    if said.json_out is not None:
        head = {
            "schema": SCHEMA,
            "data": str(asked.data),
            "target": asked.target,
            "seed": request.search.seed,
        }
        result = json.loads(fitted.search.result_.to_json())
        with _going_on(unwritten):
            write_json(said.json_out, {**head, **summary, "result": result, "report": facts})
    if said.report is not None:
        from foldwise.report import render

        with _going_on(unwritten):
            write_text(said.report, render(facts))
            say(f"report written to {said.report}", request.quiet)
    if said.out is not None and fitted.complete:
        with _going_on(unwritten):
            save(said.out, rows, fitted, summary, asked.target)
            say(f"model saved to {said.out}", request.quiet)
    if unwritten:
        raise unwritten[0]


@contextmanager
def _going_on(unwritten: list[Exception]) -> Iterator[None]:
    """A file that cannot be written (a full disk, a reader that has gone) keeps no other from being written."""
    try:
        yield
    except (OSError, ValueError) as error:
        unwritten.append(error)


class InterruptedFit(KeyboardInterrupt):
    """The search ended, the final fit did not; the message says what to do with the values."""

    def __init__(self, fitted: Fitted, out: Path | None) -> None:
        saved = "" if out is None else f"; {out} was not written"
        super().__init__(
            f"interrupted in the final fit: the values were selected, no model was fitted{saved}."
        )
        values = [f"--space {name}=LO:HI" for name in list(fitted.params)[:3]]
        self.hint = (
            f"fit again with bounds close to these values ({', '.join(values)}), or with --checkpoint."
        )


def _check(request: Request) -> None:
    """Refuse what cannot work before any time is spent on the search."""
    data, model, search, outputs = request.data, request.model, request.search, request.outputs
    families(model.model, 1, False)
    parse_space(search.space or (), "model")
    if model.basis and model.model != "semiparametric":
        raise InputError("--basis goes with --model semiparametric.", "add it, or leave --basis out.")
    if search.cv < 2:
        raise InputError(f"--cv must be at least 2; got {search.cv}.", "try 5.")
    if search.seed < 0:
        raise InputError(f"--seed must not be negative; got {search.seed}.", "try 0.")
    if search.nested is not None and search.nested < 2:
        raise InputError(f"--nested must be at least 2; got {search.nested}.", "try 5.")
    if sum(given is not None for given in (data.test_size, data.test, search.nested)) > 1:
        raise InputError("--test-size, --test and --nested exclude each other.", "keep one of them.")
    data.held_out()
    if search.max_time is not None and not search.max_time > 0:
        raise InputError(f"--max-time must be positive; got {search.max_time:g}.", "give it in seconds.")
    if search.resume and search.checkpoint is None:
        raise InputError("--resume needs the file to continue from.", "add --checkpoint FILE.")
    if outputs.quiet and outputs.verbose:
        raise InputError("--quiet and --verbose exclude each other.", "keep one of them.")
    for name, path in (("--out", outputs.out), ("--checkpoint", search.checkpoint)):
        if str(path) == "-":
            raise InputError(f"{name} needs a file; standard output will not do.", "give the name of a file.")
    if outputs.out is not None:
        from foldwise.saving import import_skops

        import_skops()


def _check_files(request: Request) -> None:
    """Refuse files that cannot be written or that are in each other's way."""
    from foldwise.outputs import check_outputs

    said, search = request.outputs, request.search
    files = {"--out": said.out, "--json": said.json_out, "--report": said.report}
    if search.checkpoint is not None:
        outer = ["", *(f"fold{k + 1}" for k in range(search.nested or 0))]
        inner = families(request.model.model, 1, False)
        for pair in product(outer, ["", *inner] if len(inner) > 1 else [""]):
            label = ".".join(filter(None, pair))
            path = checkpoint_path(search.checkpoint, label)
            if path is not None and path.exists() and not path.is_file():
                raise InputError(f"the checkpoint {path} is not a plain file.", "choose another file.")
            files[f"--checkpoint ({path})" if label else "--checkpoint"] = path
    if not request.quiet and "-" not in map(str, files.values()):
        files["standard output"] = Path("-")
    check_outputs(files, request.data.inputs())
