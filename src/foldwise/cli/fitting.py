"""``foldwise fit``."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from foldwise.cli import options
from foldwise.cli.app import Command, Debug, InputError, app, option, reported, say, write_json, write_text
from foldwise.cli.data import Data, load, nested_splits
from foldwise.cli.models import (
    WORTH,
    basis_columns,
    criterion_for,
    default_space,
    families,
    folds,
    output_names,
    parse_space,
    pipeline,
)
from foldwise.cli.showing import print_summary

__all__ = ["Fitted", "Settings", "fit", "select", "summarize"]

SCHEMA = "foldwise-fit-1"


@dataclass(frozen=True)
class Settings:
    """How a search is run."""

    model: str = "auto"
    loss: str | None = None
    method: str = "auto"
    space: Sequence[str] = ()
    cv: int = 5
    seed: int = 0
    max_time: float | None = None
    checkpoint: Path | None = None
    resume: bool = False
    quiet: bool = False
    verbose: bool = False
    basis: Sequence[str] = ()


@dataclass(eq=False)
class Fitted:
    """A search that has ended."""

    family: str
    pipeline: Any
    search: Any
    seconds: float
    warnings: list[str]
    tried: dict[str, float] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether there is a model; Ctrl-C in the final fit leaves the selected values alone."""
        return hasattr(self.search, "best_estimator_")

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it, in the search or in the final fit."""
        return not self.complete or self.search.result_.status == "interrupted"


@app.command(cls=Command)
def fit(
    data: options.DataFile,
    target: options.Target = None,
    task: options.Task = "auto",
    model: options.Model = "auto",
    loss: options.LossName = None,
    method: options.Method = "auto",
    space: Annotated[
        list[str] | None,
        option(help="Bounds: C=1e-3:1e3, lam=0.1:9:log:feature; repeatable.", metavar="N=LO:HI"),
    ] = None,
    basis: Annotated[
        list[str] | None, option(help="Column of the semiparametric part; repeatable; all.", metavar="NAME")
    ] = None,
    cv: Annotated[int, option(help="Folds of the search; 5 by default.", metavar="K")] = 5,
    test_size: Annotated[
        float | None, option(help="Share of rows held out for the test; 0.25, or 0 for none.", metavar="S")
    ] = None,
    test: options.TestFile = None,
    nested: Annotated[
        int | None, option(help="Test by K outer folds, each with a search of its own.", metavar="K")
    ] = None,
    drop: options.Drop = None,
    categorical: options.Categorical = None,
    max_categories: options.MaxCategories = 50,
    format: options.Format = "auto",
    compare: Annotated[bool, option("--compare", help="Also run scikit-learn's GridSearchCV.")] = False,
    out: Annotated[
        Path | None, option(help="Save the fitted model here (needs skops).", metavar="FILE")
    ] = None,
    json_out: Annotated[
        Path | None,
        option("--json", help="Write the result here as JSON; - for standard output.", metavar="FILE"),
    ] = None,
    report: Annotated[
        Path | None, option(help="Write an HTML report here; - for standard output.", metavar="FILE")
    ] = None,
    checkpoint: Annotated[
        Path | None, option(help="Keep every evaluation here, so that a search can go on.", metavar="FILE")
    ] = None,
    resume: Annotated[bool, option("--resume", help="Go on from the checkpoint if there is one.")] = False,
    max_time: Annotated[float | None, option(help="Seconds for the search.", metavar="S")] = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    verbose: Annotated[
        bool, option("--verbose", "-v", help="A line for every evaluation, and details.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Select hyper-parameters by cross-validation, fit, and test on rows held out.

    Inside the folds: numbers are scaled, missing ones get the median, text becomes 0/1 columns.
    """
    with reported(debug):
        settings = Settings(
            model,
            loss,
            method,
            space or (),
            cv,
            seed,
            max_time,
            checkpoint,
            resume,
            quiet,
            verbose,
            basis or (),
        )
        share = _check(settings, test_size, test, nested, out)
        outputs = {"--out": out, "--json": json_out, "--report": report}
        _check_files(settings, nested, outputs, {"the data": data, "the test rows": test})
        rows = load(
            data,
            target,
            task=task,
            format=format,
            drop=drop or (),
            categorical=categorical or (),
            max_categories=max_categories,
            test=test,
            test_size=share,
            cv=cv,
            seed=seed,
            quiet=quiet,
        )
        outer = None if nested is None else _nested(rows, settings, nested)
        fitted = select(rows, settings)
        lost = [] if fitted.complete else ["the final fit and the test"]
        summary = summarize(rows, fitted, settings, lost)
        if outer is not None:
            summary["nested"] = outer
        if compare and not lost:
            from foldwise.cli.rivals import run_grid

            say("running scikit-learn's GridSearchCV on the same folds ...", quiet)
            with spared("the comparison", lost):
                summary["comparison"] = run_grid(rows, fitted.family, loss, cv, seed)
        summary["left_out"] = lost
        if not quiet and "-" not in (str(json_out), str(report)):
            print_summary(summary, fitted.search if verbose else None)
        facts = _facts(rows, fitted, summary, data) if report is not None or json_out is not None else None
        unwritten: list[Exception] = []
        if json_out is not None:
            content = {"schema": SCHEMA, "data": str(data), "target": target, "seed": seed, **summary}
            with _going_on(unwritten):
                write_json(json_out, {**content, "result": _result(fitted), "report": facts})
        if report is not None:
            from foldwise.report import render

            assert facts is not None
            with _going_on(unwritten):
                write_text(report, render(facts))
                say(f"report written to {report}", quiet)
        if out is not None and fitted.complete:
            with _going_on(unwritten):
                _save(out, rows, fitted, summary, target)
                say(f"model saved to {out}", quiet)
        if unwritten:
            raise unwritten[0]
        if not fitted.complete:
            raise InterruptedFit(fitted, out)


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
        values = [f"--space {name}=LO:HI" for name in list(_params(fitted))[:3]]
        self.hint = (
            f"fit again with bounds close to these values ({', '.join(values)}), or with --checkpoint."
        )


@contextmanager
def spared(what: str, lost: list[str]) -> Iterator[None]:
    """Let Ctrl-C leave out a step after the search, not what was found before it."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted; {what} is left out.")
        lost.append(what)


def _check(
    settings: Settings,
    test_size: float | None,
    test: Path | None,
    nested: int | None,
    out: Path | None,
) -> float:
    """Refuse what cannot work before any time is spent on the search; the share of rows to hold out."""
    families(settings.model, 1, False)
    parse_space(settings.space, "model")
    if settings.basis and settings.model != "semiparametric":
        raise InputError("--basis goes with --model semiparametric.", "add it, or leave --basis out.")
    if settings.cv < 2:
        raise InputError(f"--cv must be at least 2; got {settings.cv}.", "try 5.")
    if settings.seed < 0:
        raise InputError(f"--seed must not be negative; got {settings.seed}.", "try 0.")
    if nested is not None and nested < 2:
        raise InputError(f"--nested must be at least 2; got {nested}.", "try 5.")
    if sum(given is not None for given in (test_size, test, nested)) > 1:
        raise InputError("--test-size, --test and --nested exclude each other.", "keep one of them.")
    if test_size is not None and not 0.0 <= test_size < 1.0:
        raise InputError(f"--test-size must be at least 0 and below 1; got {test_size:g}.", "try 0.25.")
    if settings.max_time is not None and not settings.max_time > 0:
        raise InputError(f"--max-time must be positive; got {settings.max_time:g}.", "give it in seconds.")
    if settings.resume and settings.checkpoint is None:
        raise InputError("--resume needs the file to continue from.", "add --checkpoint FILE.")
    if settings.quiet and settings.verbose:
        raise InputError("--quiet and --verbose exclude each other.", "keep one of them.")
    for name, path in (("--out", out), ("--checkpoint", settings.checkpoint)):
        if str(path) == "-":
            raise InputError(f"{name} needs a file; standard output will not do.", "give the name of a file.")
    if out is not None:
        from foldwise.saving import import_skops

        import_skops()
    return 0.0 if test is not None or nested is not None else (0.25 if test_size is None else test_size)


def _check_files(
    settings: Settings,
    nested: int | None,
    outputs: dict[str, Path | None],
    inputs: dict[str, Path | None],
) -> None:
    """Refuse files that cannot be written or that are in each other's way."""
    from foldwise.outputs import check_outputs

    if settings.checkpoint is not None:
        outer = ["", *(f"fold{k + 1}" for k in range(nested or 0))]
        inner = families(settings.model, 1, False)
        labels = [
            ".".join(filter(None, pair)) for pair in product(outer, ["", *inner] if len(inner) > 1 else [""])
        ]
        for label in labels:
            path = checkpoint_path(settings, label)
            if path is not None and path.exists() and not path.is_file():
                raise InputError(f"the checkpoint {path} is not a plain file.", "choose another file.")
            outputs[f"--checkpoint ({path})" if label else "--checkpoint"] = path
    if not settings.quiet and "-" not in map(str, outputs.values()):
        outputs["standard output"] = Path("-")
    check_outputs(outputs, inputs)


def checkpoint_path(settings: Settings, label: str) -> Path | None:
    """The file of one search: that of the command, with the search's label where there are several."""
    path = settings.checkpoint
    return path.with_name(f"{path.name}.{label}") if path is not None and label else path


def select(rows: Data, settings: Settings, label: str = "") -> Fitted:
    """Run the search of every family that is asked for; the one with the lowest cross-validation error."""
    import scipy.sparse as sp

    names = families(settings.model, rows.train[0].shape[0], sp.issparse(rows.train[0]))
    done = []
    for name in names:
        part = ".".join(word for word in (label, name if len(names) > 1 else "") if word)
        done.append(_run(rows, name, settings, part, len(names)))
        if done[-1].interrupted:
            break
    best = done[0]
    for other in done[1:]:
        if -other.search.best_score_ < WORTH * -best.search.best_score_:
            best = other
    best.tried = {one.family: -float(one.search.best_score_) for one in done}
    best.seconds = sum(one.seconds for one in done)
    if len(done) > 1:
        errors = ", ".join(f"{name} {value:.5g}" for name, value in best.tried.items())
        say(f"model {best.family}: cross-validation errors are {errors}", settings.quiet)
    return best


def _run(rows: Data, family: str, settings: Settings, label: str, shares: int) -> Fitted:
    """One search; the steps before the model are part of the pipeline, so every fold fits its own."""
    from foldwise import BilevelSearchCV
    from foldwise.callbacks import ProgressBar

    basis = basis_columns(rows.table, settings.basis) if family == "semiparametric" else ()
    steps = pipeline(rows.before, family, rows.task, settings.loss, basis)
    step = steps.steps[-1][0]
    bounds = parse_space(settings.space, step) or default_space(family, rows.task, step, settings.loss)
    budget = None if settings.max_time is None else settings.max_time / shares
    progress = None
    if not settings.quiet:
        progress = ProgressBar(interval=0.0 if settings.verbose else 1.0, budget=budget, title=label)
    path = checkpoint_path(settings, label)
    search = BilevelSearchCV(
        steps,
        bounds,
        method=settings.method,
        criterion=criterion_for(settings.method, family, rows.task, settings.loss, shares),
        cv=folds(rows.task, settings.cv, settings.seed),
        max_time=budget,
        callbacks=() if progress is None else (progress,),
        random_state=settings.seed,
        checkpoint=path,
        resume=settings.resume,
    )
    with warnings.catch_warnings(record=True) as caught, progress or nullcontext():
        warnings.simplefilter("always")
        began = time.perf_counter()
        try:
            search.fit(*rows.train)
        except ValueError as error:
            if f"{step}__" not in str(error):
                raise
            hint = f"these are the names of --model {family}."  # the step is no word of the command line
            raise InputError(str(error).replace(f"{step}__", ""), hint) from error
        seconds = time.perf_counter() - began
    texts = list(dict.fromkeys(str(w.message) for w in caught))
    for text in texts:
        say(f"warning: {text}", settings.quiet)
    if search.n_resumed_:
        say(f"resumed: {search.n_resumed_} evaluations came from {path}", settings.quiet)
    if search.result_.status == "interrupted":
        say("interrupted; the best values so far are used.")
    return Fitted(family, steps, search, seconds, texts)


def _nested(rows: Data, settings: Settings, count: int) -> dict[str, Any]:
    """The error of the whole procedure: every outer fold is predicted by a search that has not seen it."""
    import numpy as np

    errors, chosen = [], []
    splitter = folds(rows.task, count, settings.seed + 1)
    for k, (train, test) in enumerate(nested_splits(rows, count, settings.cv, splitter)):
        part = replace(rows, train=train, test=test)
        fitted = select(part, settings, f"fold{k + 1}")
        if fitted.interrupted:
            raise InterruptedNesting(k, count)
        error = part.error_on(fitted.search, test)
        errors.append(error)
        chosen.append({"model": fitted.family, "params": _params(fitted)})
        say(f"outer fold {k + 1} of {count}: {rows.metric} {error:.5g}", settings.quiet)
    return {
        "folds": count,
        "error": float(np.mean(errors)),
        "deviation": float(np.std(errors, ddof=1)),
        "errors": errors,
        "chosen": chosen,
    }


class InterruptedNesting(KeyboardInterrupt):
    """Some outer folds were not reached, so there is no estimate; and the search itself has not begun."""

    def __init__(self, done: int, count: int) -> None:
        super().__init__(f"interrupted in outer fold {done + 1} of {count}; nothing was written.")
        self.hint = "the same command with --checkpoint FILE --resume keeps what was done."


def summarize(
    rows: Data, fitted: Fitted, settings: Settings, lost: list[str] | None = None
) -> dict[str, Any]:
    """What is printed and written: the choice, how it was made, and how good it is.

    ``lost`` names what Ctrl-C has cost so far and gets what it costs here.
    """
    from sklearn.base import clone
    from sklearn.model_selection import cross_val_score

    from foldwise.criteria import criterion_name
    from foldwise.version import __version__

    search, result, table = fitted.search, fitted.search.result_, rows.table
    tuned = clone(fitted.pipeline).set_params(**search.best_params_)
    splitter = folds(rows.task, settings.cv, settings.seed)
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
        "params": _params(fitted),
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
        "warnings": fitted.warnings,
    }


def _params(fitted: Fitted) -> dict[str, Any]:
    return {name.rsplit("__", 1)[-1]: value for name, value in fitted.search.best_params_.items()}


def _entry_name(name: str, table: Any) -> str:
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


def _result(fitted: Fitted) -> dict[str, Any]:
    import json

    return json.loads(fitted.search.result_.to_json())


def _facts(rows: Data, fitted: Fitted, summary: dict[str, Any], data: Path) -> dict[str, Any]:
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
        warnings=fitted.warnings,
    )


def _save(out: Path, rows: Data, fitted: Fitted, summary: dict[str, Any], target: str | None) -> None:
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
