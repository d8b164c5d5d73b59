"""The options of ``fit`` and ``compare``, a dataclass for each concern: data, model, search, outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from foldwise.cli.app import Command, Debug, InputError, app, option, reported

__all__ = ["Comparison", "Data", "Model", "Outputs", "Request", "Search", "command"]


@dataclass(frozen=True)
class Data:
    """The rows, and which of them are for the test."""

    data: Annotated[
        Path, typer.Argument(help="CSV, TSV, Parquet or svmlight file, plain or gzip.", metavar="DATA")
    ]
    target: Annotated[str | None, option(help="Target column (svmlight: not needed).", metavar="NAME")] = None
    task: Annotated[str, option(help="regression, classification, or auto: by the target.", metavar="T")] = (
        "auto"
    )
    test_size: Annotated[
        float | None, option(help="Share of rows held out for the test; 0.25, or 0 for none.", metavar="S")
    ] = None
    test: Annotated[Path | None, option(help="Test rows from this file instead.", metavar="FILE")] = None
    drop: Annotated[list[str] | None, option(help="Column to ignore; repeatable.", metavar="NAME")] = None
    categorical: Annotated[
        list[str] | None, option(help="Column of categories, though of numbers; repeatable.", metavar="NAME")
    ] = None
    max_categories: Annotated[int, option(help="Most categories of a text column; 50.", metavar="N")] = 50
    format: Annotated[
        str, option(help="csv, tsv, parquet, svmlight; auto: by the file's name.", metavar="F")
    ] = "auto"

    def held_out(self) -> float:
        """The share of rows to hold out."""
        if self.test_size is not None and not 0.0 <= self.test_size < 1.0:
            raise InputError(
                f"--test-size must be at least 0 and below 1; got {self.test_size:g}.", "try 0.25."
            )
        if self.test is not None:
            return 0.0
        return 0.25 if self.test_size is None else self.test_size

    def inputs(self) -> dict[str, Path | None]:
        """The files that are read, and that no output may replace."""
        return {"the data": self.data, "the test rows": self.test}


@dataclass(frozen=True)
class Model:
    """What is fitted."""

    model: Annotated[
        str, option(help="linear, box, rbf, ard, semiparametric, or auto: linear or rbf by CV.", metavar="M")
    ] = "auto"
    loss: Annotated[str | None, option(help="Training loss; the model's own by default.", metavar="L")] = None
    basis: Annotated[
        list[str] | None, option(help="Column of the semiparametric part; repeatable; all.", metavar="NAME")
    ] = None


@dataclass(frozen=True)
class Search:
    """How its hyper-parameters are selected."""

    method: Annotated[
        str,
        option(
            help="auto, newton, lbfgsb, bfgs, rprop, pbp, bundle, mpec, slams, grid, constrained_grid, random.",
            metavar="M",
        ),
    ] = "auto"
    space: Annotated[
        list[str] | None,
        option(help="Bounds: C=1e-3:1e3, lam=0.1:9:log:feature; repeatable.", metavar="N=LO:HI"),
    ] = None
    cv: Annotated[int, option(help="Folds of the search; 5 by default.", metavar="K")] = 5
    nested: Annotated[
        int | None, option(help="Test by K outer folds, each with a search of its own.", metavar="K")
    ] = None
    checkpoint: Annotated[
        Path | None, option(help="Keep every evaluation here, so that a search can go on.", metavar="FILE")
    ] = None
    resume: Annotated[bool, option("--resume", help="Go on from the checkpoint if there is one.")] = False
    max_time: Annotated[float | None, option(help="Seconds for the search.", metavar="S")] = None
    seed: Annotated[int, option(help="Seed of split, folds and searches; 0.", metavar="N")] = 0


@dataclass(frozen=True)
class Outputs:
    """What is said and written."""

    compare: Annotated[bool, option("--compare", help="Also run scikit-learn's GridSearchCV.")] = False
    out: Annotated[Path | None, option(help="Save the fitted model here (needs skops).", metavar="FILE")] = (
        None
    )
    json_out: Annotated[
        Path | None,
        option("--json", help="Write the result here as JSON; - for standard output.", metavar="FILE"),
    ] = None
    report: Annotated[
        Path | None, option(help="Write an HTML report here; - for standard output.", metavar="FILE")
    ] = None
    quiet: Annotated[bool, option("--quiet", "-q", help="No progress and no table.")] = False
    verbose: Annotated[bool, option("--verbose", "-v", help="A line for every evaluation, and details.")] = (
        False
    )
    debug: Debug = False


@dataclass(frozen=True)
class Comparison:
    """The searches that ``compare`` runs beside ours."""

    against: Annotated[
        list[str] | None,
        option(help="grid, random, optuna; repeatable, by default all there are.", metavar="NAME"),
    ] = None
    trials: Annotated[int | None, option(help="Points of random search and Optuna; 50.", metavar="N")] = None


@dataclass(frozen=True)
class Request:
    """A whole command line; concerns that a command leaves out have their defaults."""

    data: Data
    model: Model
    search: Search
    outputs: Outputs
    comparison: Comparison = Comparison()

    @property
    def quiet(self) -> bool:
        """Whether to say nothing but errors."""
        return self.outputs.quiet


CONCERNS: dict[str, type[Any]] = {
    "data": Data,
    "model": Model,
    "search": Search,
    "outputs": Outputs,
    "comparison": Comparison,
}


def command(names: str, **words: str) -> Callable[[Callable[[Request], None]], Callable[..., None]]:
    """Make a command of a function of a :class:`Request`.

    Parameters
    ----------
    names : str
        The options that it takes, in the order of its help page.
    **words : str
        What the help page says of an option, where that differs from its description here.
    """
    known = {
        entry.name: _parameter(concern, entry, words.get(entry.name))
        for concern in CONCERNS.values()
        for entry in fields(concern)
    }
    parameters = [known[name] for name in names.split()]

    def register(run: Callable[[Request], None]) -> Callable[..., None]:
        @wraps(run)
        def whole(**given: Any) -> None:
            with reported(given["debug"]):
                parts = {
                    name: concern(**{f.name: given[f.name] for f in fields(concern) if f.name in given})
                    for name, concern in CONCERNS.items()
                }
                run(Request(**parts))

        whole.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        whole.__annotations__ = {one.name: one.annotation for one in parameters}
        return app.command(cls=Command)(whole)

    return register


def _parameter(concern: type[Any], entry: Field[Any], words: str | None) -> inspect.Parameter:
    """A field as a parameter that typer understands."""
    hint = get_type_hints(concern, include_extras=True)[entry.name]
    kind, info = get_args(hint)
    if words is not None:
        info = copy(info)
        info.help = words
    default = inspect.Parameter.empty if entry.default is MISSING else entry.default
    return inspect.Parameter(
        entry.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info]
    )
