"""``foldwise compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from foldwise.cli import options
from foldwise.cli.app import Command, Debug, InputError, app, option, reported, say, write_json
from foldwise.cli.data import load
from foldwise.cli.fitting import Settings, select, summarize
from foldwise.cli.models import families
from foldwise.cli.rivals import RIVALS
from foldwise.cli.showing import print_comparison

__all__ = ["compare"]

SCHEMA = "foldwise-compare-1"


@app.command(cls=Command)
def compare(
    data: options.DataFile,
    target: options.Target = None,
    task: options.Task = "auto",
    model: options.Model = "auto",
    loss: options.LossName = None,
    method: options.Method = "auto",
    against: Annotated[
        list[str] | None,
        option(help="grid, random, optuna; repeatable, by default all there are.", metavar="NAME"),
    ] = None,
    trials: Annotated[int | None, option(help="Points of random search and Optuna; 50.", metavar="N")] = None,
    cv: Annotated[int, option(help="Folds, the same for all; 5 by default.", metavar="K")] = 5,
    test_size: Annotated[
        float | None, option(help="Share of rows for the test; 0.25, or 0.", metavar="S")
    ] = None,
    test: options.TestFile = None,
    drop: options.Drop = None,
    categorical: options.Categorical = None,
    max_categories: options.MaxCategories = 50,
    format: options.Format = "auto",
    json_out: Annotated[
        Path | None,
        option("--json", help="Write the table here as JSON; - for standard output.", metavar="FILE"),
    ] = None,
    seed: options.Seed = 0,
    quiet: options.Quiet = False,
    debug: Debug = False,
) -> None:
    """Run ours and other searches on the same folds and print one table.

    The others tune scikit-learn's own estimators for accuracy or squared error. Times are wall clock.
    """
    with reported(debug):
        from foldwise.outputs import check_outputs

        chosen = list(dict.fromkeys(against or RIVALS))
        for name in chosen:
            if name not in RIVALS:
                raise InputError(f"--against {name} is unknown.", f"choose from {', '.join(RIVALS)}.")
        if trials is not None and not {"random", "optuna"} & set(chosen):
            raise InputError("--trials is for random and optuna.", "leave it out, or add --against random.")
        trials = 50 if trials is None else trials
        families(model, 1, False)
        if cv < 2 or trials < 1 or seed < 0:
            raise InputError(
                f"--cv {cv}, --trials {trials} or --seed {seed} is too small.", "try --cv 5 --trials 50."
            )
        if test_size is not None and test is not None:
            raise InputError("--test-size and --test exclude each other.", "keep one of them.")
        test_size = 0.25 if test_size is None else test_size
        if not 0.0 <= test_size < 1.0:
            raise InputError(f"--test-size must be at least 0 and below 1; got {test_size:g}.", "try 0.25.")
        outputs = {"standard output" if json_out is None else "--json": json_out or Path("-")}
        check_outputs(outputs, {"the data": data, "the test rows": test})
        rows = load(
            data,
            target,
            task=task,
            format=format,
            drop=drop or (),
            categorical=categorical or (),
            max_categories=max_categories,
            test=test,
            test_size=0.0 if test is not None else test_size,
            cv=cv,
            seed=seed,
            quiet=quiet,
        )
        settings = Settings(model, loss, method, (), cv, seed, quiet=quiet)
        fitted = select(rows, settings)
        summary = summarize(rows, fitted, settings)
        table: list[dict[str, Any]] = [
            {
                "name": f"foldwise, {summary['method']}",
                "model": fitted.family,
                "loss": loss or "default",
                "n_points": summary["n_evaluations"],
                **{key: summary[key] for key in ("params", "cv_error", "test_error", "seconds", "status")},
            }
        ]
        for name in chosen:
            say(f"running {name} ...", quiet)
            try:
                table.append(RIVALS[name](rows, fitted.family, loss, cv, seed, trials))
            except InputError as error:
                if against:
                    raise
                say(f"{name} is left out: {error} {error.hint}", quiet)
            except KeyboardInterrupt:
                say(f"interrupted; {name} and what comes after it are left out.")
                break
        if not quiet and str(json_out) != "-":
            print_comparison(table, rows.metric)
        if json_out is not None:
            content: dict[str, Any] = {"schema": SCHEMA, "data": str(data), "target": target, "seed": seed}
            content |= {"task": rows.task, "metric": rows.metric, "folds": cv, "searches": table}
            write_json(json_out, content)
