"""The searches of a command: of every family of models, and of every outer fold."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldwise.cli.app import InputError, say
from foldwise.cli.data import Rows, nested_splits
from foldwise.cli.models import (
    WORTH,
    basis_columns,
    criterion_for,
    default_space,
    families,
    folds,
    parse_space,
    pipeline,
)
from foldwise.cli.options import Request

if TYPE_CHECKING:
    from foldwise import BilevelSearchCV

__all__ = ["Fitted", "checkpoint_path", "nest", "select"]


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
    def params(self) -> dict[str, Any]:
        """The selected values, without the name of the pipeline's step."""
        return {name.rsplit("__", 1)[-1]: value for name, value in self.search.best_params_.items()}

    @property
    def complete(self) -> bool:
        """Whether there is a model; Ctrl-C in the final fit leaves the selected values alone."""
        return hasattr(self.search, "best_estimator_")

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it, in the search or in the final fit."""
        return not self.complete or self.search.result_.status == "interrupted"


def select(rows: Rows, request: Request, label: str = "") -> Fitted:
    """Run the search of every family that is asked for; the one with the lowest cross-validation error."""
    import scipy.sparse as sp

    names = families(request.model.model, rows.train[0].shape[0], sp.issparse(rows.train[0]))
    done = []
    for name in names:
        part = ".".join(word for word in (label, name if len(names) > 1 else "") if word)
        done.append(_run(rows, name, request, part, len(names)))
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
        say(f"model {best.family}: cross-validation errors are {errors}", request.quiet)
    return best


def _run(rows: Rows, family: str, request: Request, label: str, shares: int) -> Fitted:
    """One search; the steps before the model are part of the pipeline, so every fold fits its own."""
    from foldwise.callbacks import ProgressBar

    budget = None if request.search.max_time is None else request.search.max_time / shares
    progress = None
    if not request.quiet:
        interval = 0.0 if request.outputs.verbose else 1.0
        progress = ProgressBar(interval=interval, budget=budget, title=label)
    search = _search(rows, family, request, shares)
    search.set_params(
        max_time=budget,
        callbacks=() if progress is None else (progress,),
        checkpoint=checkpoint_path(request.search.checkpoint, label),
    )
    with warnings.catch_warnings(record=True) as caught, progress or nullcontext():
        warnings.simplefilter("always")
        began = time.perf_counter()
        _fit(search, rows, family)
        seconds = time.perf_counter() - began
    texts = list(dict.fromkeys(str(w.message) for w in caught))
    for text in texts:
        say(f"warning: {text}", request.quiet)
    if search.n_resumed_:
        say(f"resumed: {search.n_resumed_} evaluations came from {search.checkpoint}", request.quiet)
    if search.result_.status == "interrupted":
        say("interrupted; the best values so far are used.")
    return Fitted(family, search.estimator, search, seconds, texts)


def _search(rows: Rows, family: str, request: Request, shares: int) -> BilevelSearchCV:
    """The search for a family, one of ``shares`` that are compared."""
    from foldwise import BilevelSearchCV

    loss, asked = request.model.loss, request.search
    basis = basis_columns(rows.table, request.model.basis or ()) if family == "semiparametric" else ()
    steps = pipeline(rows.before, family, rows.task, loss, basis)
    step = steps.steps[-1][0]
    return BilevelSearchCV(
        steps,
        parse_space(asked.space or (), step) or default_space(family, rows.task, step, loss),
        method=asked.method,
        criterion=criterion_for(asked.method, family, rows.task, loss, shares),
        cv=folds(rows.task, asked.cv, asked.seed),
        random_state=asked.seed,
        resume=asked.resume,
    )


def _fit(search: BilevelSearchCV, rows: Rows, family: str) -> None:
    """Run a search; its errors name hyper-parameters as the command line does."""
    step = f"{search.estimator.steps[-1][0]}__"
    try:
        search.fit(*rows.train)
    except ValueError as error:
        if step not in str(error):
            raise
        hint = f"these are the names of --model {family}."  # the step is no word of the command line
        raise InputError(str(error).replace(step, ""), hint) from error


def checkpoint_path(path: Path | None, label: str) -> Path | None:
    """The file of one search: that of the command, with the search's label where there are several."""
    return path.with_name(f"{path.name}.{label}") if path is not None and label else path


def nest(rows: Rows, request: Request, count: int) -> dict[str, Any]:
    """The error of the whole procedure: every outer fold is predicted by searches that have not seen it.

    As ``BilevelSearchCV.nested``, with the choice of a family inside every fold. Ctrl-C keeps the folds before it.
    """
    import numpy as np

    done: list[dict[str, Any]] = []
    splitter = folds(rows.task, count, request.search.seed + 1)
    for k, (train, test) in enumerate(nested_splits(rows, count, request.search.cv, splitter)):
        part = replace(rows, train=train, test=test)
        try:
            fitted = select(part, request, f"fold{k + 1}")
        except KeyboardInterrupt:
            fitted = None
        if fitted is None or fitted.interrupted:
            if not done:
                raise InterruptedNesting(k, count)
            say(f"interrupted in outer fold {k + 1} of {count}; the {k} before it are used.")
            break
        error = part.error_on(fitted.search, test)
        chosen = {"model": fitted.family, "params": fitted.params}
        done.append({"error": error, "chosen": chosen, **_promised(fitted, rows.task)})
        say(f"outer fold {k + 1} of {count}: {rows.metric} {error:.5g}", request.quiet)
    errors = [one["error"] for one in done]
    deviation = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
    return {
        "folds": count,
        "finished": len(done),
        "error": float(np.mean(errors)),
        "deviation": deviation,
        "standard_error": None if deviation is None else deviation / np.sqrt(len(errors)),
        "errors": errors,
        "inner_errors": [one["inner"] for one in done],
        "expected_errors": [one["expected"] for one in done],
        "chosen": [one["chosen"] for one in done],
    }


def _promised(fitted: Fitted, task: str) -> dict[str, float | None]:
    """The error that a search found in its own folds and the one it expects on new rows, in the metric of the table."""
    from foldwise.criteria import criterion_name

    result = fitted.search.result_
    if task == "classification":
        return {"inner": result.error_rate, "expected": result.expected_error}
    if criterion_name(fitted.search.criterion_) != "squared":
        return {"inner": None, "expected": None}
    return {"inner": result.error, "expected": result.expected_error}


class InterruptedNesting(KeyboardInterrupt):
    """Some outer folds were not reached, so there is no estimate; and the search itself has not begun."""

    def __init__(self, done: int, count: int) -> None:
        super().__init__(f"interrupted in outer fold {done + 1} of {count}; nothing was written.")
        self.hint = "the same command with --checkpoint FILE --resume keeps what was done."
