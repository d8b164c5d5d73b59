"""The command line: ``foldwise fit``, ``predict``, ``reproduce`` and ``datasets``.

Heavy imports live inside the functions, so that ``--help`` answers at once. Results go to standard output, progress
and messages to standard error. Exit code 0: done; 2: the input cannot be used; 1: an error of ours; 130: interrupted
before the search had found anything.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    import numpy as np

    from foldwise.tables import Table

app = typer.Typer(
    name="foldwise",
    help="Cross-validation, solved instead of searched.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
datasets_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(datasets_app, name="datasets", help="List the data sets that can be made, or make one.")

MODELS = ("auto", "svr", "svc")
KERNELS = ("linear", "rbf", "ard")
MOST_CLASSES = 10
"""``--model auto`` takes whole numbers for classes when there are at most this many."""

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class InputError(ValueError):
    """Something the user can put right; ``hint`` says how."""

    def __init__(self, message: str, hint: str = ""):
        super().__init__(message)
        self.hint = hint


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the console script."""
    app(args=None if args is None else list(args))


@contextmanager
def reported(debug: bool) -> Iterator[None]:
    """Turn exceptions into a line or two on standard error and an exit code."""
    try:
        yield
    except (typer.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        _fail("interrupted.", "", 130, debug)
    except Exception as error:
        # numpy's LinAlgError is a ValueError too, but never the fault of a line in the command.
        bad_input = isinstance(error, ValueError | OSError) and type(error).__name__ != "LinAlgError"
        hint = getattr(error, "hint", "")
        text = "\n".join(str(error.args[0] if hint else error).strip().splitlines()[:2])
        if bad_input:
            _fail(text, hint, 2, debug)
        _fail(
            f"internal error, {type(error).__name__}: {text}",
            "run again with --debug for the traceback, and please report it.",
            1,
            debug,
        )


def _fail(message: str, hint: str, code: int, debug: bool) -> NoReturn:
    if debug:
        traceback.print_exc()
    typer.echo(f"error: {message}", err=True)
    if hint:
        typer.echo(f"hint: {hint}", err=True)
    raise typer.Exit(code)


def _say(text: str, quiet: bool = False) -> None:
    if not quiet:
        typer.echo(text, err=True)


@app.command()
def fit(
    data: Annotated[
        Path, typer.Argument(help="CSV file (or .csv.gz) with a header line and numeric features.")
    ],
    target: Annotated[str, typer.Option(help="Name of the target column.")],
    model: Annotated[str, typer.Option(help="svr, svc, or auto: by the target.")] = "auto",
    kernel: Annotated[
        str, typer.Option(help="linear, rbf, or ard: rbf with a width per feature.")
    ] = "linear",
    loss: Annotated[str | None, typer.Option(help="Training loss; the model's own by default.")] = None,
    method: Annotated[
        str, typer.Option(help="auto, newton, lbfgsb, bfgs, rprop, pbp, grid or random.")
    ] = "auto",
    cv: Annotated[int, typer.Option(help="Number of folds.", min=2)] = 5,
    test_size: Annotated[float, typer.Option(help="Share of rows held out for the test; 0 for none.")] = 0.25,
    space: Annotated[
        list[str] | None,
        typer.Option(
            help="Bounds, NAME=LOW:HIGH[:log|lin][:feature|class]; may be repeated. Example: C=1e-3:1e3"
        ),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to ignore; may be repeated.")] = None,
    compare: Annotated[bool, typer.Option(help="Also run scikit-learn's GridSearchCV.")] = False,
    out: Annotated[Path | None, typer.Option(help="Save the fitted model here (needs skops).")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the result here as JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split, the folds and the search.", min=0)] = 0,
    max_time: Annotated[float | None, typer.Option(help="Stop the search after so many seconds.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File that keeps every evaluation, so that the search can be resumed.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint if there is one.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no table.")] = False,
    debug: Debug = False,
) -> None:
    """Select the hyper-parameters of a model for a table, by cross-validation, and fit it."""
    with reported(debug):
        _check_options(model, kernel, test_size, max_time, out, json_out)
        if resume and checkpoint is None:
            raise InputError("--resume needs the file to continue from.", "add --checkpoint FILE.")
        from foldwise.saving import save_model
        from foldwise.tables import read_table

        table = read_table(data, target, drop=drop or ())
        assert table.y is not None
        kind, reason = _choose_model(model, table.y)
        _say(f"{len(table.y)} rows, {len(table.columns)} features; model {kind} ({reason})", quiet)
        train, test = _split(table, kind, test_size, cv, seed)
        step = ("linear" if kernel == "linear" else "kernel") + kind
        bounds = _parse_space(space or (), step)
        estimator = _estimator(kind, kernel, loss)
        outcome = _run_fit(
            train,
            test,
            table.columns,
            kind,
            estimator,
            method,
            cv,
            bounds,
            seed,
            max_time,
            quiet,
            checkpoint,
            resume,
        )
        summary = outcome["summary"]
        if compare:
            _say("running scikit-learn's GridSearchCV on the same folds ...", quiet)
            try:
                summary["comparison"] = _run_grid(train, test, kind, kernel, loss, cv, seed)
            except KeyboardInterrupt:
                _say("interrupted; the comparison is left out.")
        if not quiet:
            _print_summary(summary, kind)
        if json_out is not None:
            _write_json(json_out, summary, outcome["search"], data, target, seed)
        if out is not None:
            save_model(out, outcome["search"].best_estimator_, table.columns, target)
            _say(f"model saved to {out}", quiet)


def _check_options(
    model: str, kernel: str, test_size: float, max_time: float | None, out: Path | None, json_out: Path | None
) -> None:
    """Refuse what cannot work before any time is spent on the search."""
    if model not in MODELS:
        raise InputError(f"--model {model} is unknown.", f"choose one of {', '.join(MODELS)}.")
    if kernel not in KERNELS:
        raise InputError(f"--kernel {kernel} is unknown.", f"choose one of {', '.join(KERNELS)}.")
    if not 0.0 <= test_size < 1.0:
        raise InputError(f"--test-size must be at least 0 and below 1; got {test_size:g}.", "try 0.25.")
    if max_time is not None and not max_time > 0:
        raise InputError(f"--max-time must be positive; got {max_time:g}.", "give it in seconds.")
    for path in (out, json_out):
        if path is not None and not path.parent.is_dir():
            raise InputError(f"cannot write {path}: its folder does not exist.", f"mkdir -p {path.parent}")
    if out is not None:
        from foldwise.saving import import_skops

        import_skops()


def _choose_model(model: str, y: np.ndarray) -> tuple[str, str]:
    """The model and, in words, why."""
    import numpy as np

    text, whole = y.dtype.kind == "U", y.dtype.kind == "i"
    n_values = len(np.unique(y))
    if model == "svr" and text:
        raise InputError(
            "--model svr needs a numeric target; this one holds text.", "use --model svc for classes."
        )
    if model == "svc" and not (text or whole):
        raise InputError(
            "--model svc needs classes; this target holds fractions.", "use --model svr, or name the classes."
        )
    if n_values < 2:
        raise InputError("the target has the same value in every row.", "choose another --target.")
    if model != "auto":
        return model, "as asked"
    if text:
        return "svc", f"the target holds {n_values} text labels"
    if whole and n_values <= MOST_CLASSES:
        return "svc", f"the target holds {n_values} whole numbers; --model svr to predict them as amounts"
    return "svr", "the target is numeric"


def _split(table: Table, kind: str, test_size: float, cv: int, seed: int) -> tuple[tuple, tuple | None]:
    """Training and test rows; classes keep their shares."""
    import numpy as np
    from sklearn.model_selection import train_test_split

    X, y = table.X, np.asarray(table.y)
    if test_size > 0:
        n_test = int(np.ceil(test_size * len(X)))
        if len(X) - n_test < cv:
            raise InputError(
                f"{len(X)} rows are too few for {cv} folds and a test share of {test_size:g}.",
                "lower --cv or --test-size.",
            )
    if kind == "svc":
        labels, counts = np.unique(y, return_counts=True)
        rarest = int(np.argmin(counts))
        needed = cv if test_size == 0 else int(np.ceil(cv / (1 - test_size))) + 1
        if counts[rarest] < needed:
            raise InputError(
                f"class {labels[rarest]!s} has {counts[rarest]} rows; {cv} folds and a test share of "
                f"{test_size:g} need {needed}.",
                "lower --cv, or merge or remove the class.",
            )
    if test_size == 0:
        return (X, y), None
    stratify = y if kind == "svc" else None
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=test_size, random_state=seed, stratify=stratify
    )
    return (X_train, y_train), (X_test, y_test)


def _parse_space(entries: Sequence[str], step: str) -> dict[str, Any] | None:
    """``["C=1e-3:1e3"]`` as a space for the pipeline's last step; None when empty."""
    if not entries:
        return None
    from foldwise.space import Lin, Log

    hint = "write NAME=LOW:HIGH, for example C=1e-3:1e3 or lam=0.01:100:log:feature."
    space: dict[str, Any] = {}
    for entry in entries:
        name, equals, rest = entry.partition("=")
        low_text, *others = rest.split(":")
        try:
            low, high = float(low_text), float(others[0])
        except (ValueError, IndexError):
            raise InputError(f"--space {entry} cannot be read.", hint) from None
        words = others[1:]
        unknown = [word for word in words if word not in ("log", "lin", "feature", "class")]
        if not name or not equals or unknown:
            raise InputError(f"--space {entry} cannot be read.", hint)
        per = next((word for word in words if word in ("feature", "class")), None)
        log = "log" in words or ("lin" not in words and low > 0 and high >= 100 * low)
        try:
            space[f"{step}__{name}"] = (Log if log else Lin)(low, high, per=per)
        except ValueError as error:
            raise InputError(f"--space {entry}: {error}.", hint) from None
    return space


def _folds(kind: str, cv: int, seed: int) -> Any:
    from sklearn.model_selection import KFold, StratifiedKFold

    splitter = StratifiedKFold if kind == "svc" else KFold
    return splitter(cv, shuffle=True, random_state=seed)


def _estimator(kind: str, kernel: str, loss: str | None) -> Any:
    """The model to tune."""
    from foldwise import RBF, KernelSVC, KernelSVR, LinearSVC, LinearSVR

    options = {} if loss is None else {"loss": loss}
    if kernel == "linear":
        return (LinearSVR if kind == "svr" else LinearSVC)(**options)
    return (KernelSVR if kind == "svr" else KernelSVC)(RBF(ard=kernel == "ard"), **options)


def _run_fit(
    train: tuple,
    test: tuple | None,
    columns: Sequence[str],
    kind: str,
    estimator: Any,
    method: str,
    cv: int,
    bounds: dict[str, Any] | None,
    seed: int,
    max_time: float | None,
    quiet: bool,
    checkpoint: Path | None = None,
    resume: bool = False,
) -> dict[str, Any]:
    """Run the search; the scaler is a step of the pipeline, so every fold fits its own."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from foldwise import BilevelSearchCV
    from foldwise.callbacks import ProgressBar

    pipeline = make_pipeline(StandardScaler(), estimator)
    progress = None if quiet else ProgressBar()
    search = BilevelSearchCV(
        pipeline,
        bounds,
        method=method,
        cv=_folds(kind, cv, seed),
        max_time=max_time,
        callbacks=() if progress is None else (progress,),
        random_state=seed,
        checkpoint=checkpoint,
        resume=resume,
    )
    with warnings.catch_warnings(record=True) as caught, progress or nullcontext():
        warnings.simplefilter("always")
        began = time.perf_counter()
        search.fit(*train)
        seconds = time.perf_counter() - began
    for text in dict.fromkeys(str(w.message) for w in caught):
        _say(f"warning: {text}", quiet)
    result = search.result_
    if search.n_resumed_:
        _say(f"resumed: {search.n_resumed_} evaluations came from {checkpoint}", quiet)
    if result.status == "interrupted":
        _say("interrupted; the best values so far are used.")
    summary = {
        "method": result.method,
        "status": str(result.status),
        "message": result.message,
        "params": {name.rsplit("__", 1)[-1]: value for name, value in search.best_params_.items()},
        "at_bound": {_entry_name(name, columns): side for name, side in result.at_bound.items()},
        "criterion": _criterion_name(search),
        "cv_start": result.objective_start,
        "cv_end": result.objective,
        "cv_error": _cv_error(pipeline.set_params(**search.best_params_), train, kind, cv, seed),
        "test_error": _test_error(search, test, kind),
        "n_evaluations": result.n_evaluations,
        "seconds": seconds,
    }
    return {"summary": summary, "search": search}


def _entry_name(name: str, columns: Sequence[str]) -> str:
    """``linearsvr__lam[x3]`` as ``lam[name of the fourth column]``."""
    short = name.split("__", 1)[-1]
    found = re.fullmatch(r"(\w+)\[x(\d+)\]", short)
    if found is None or int(found[2]) >= len(columns):
        return short
    return f"{found[1]}[{columns[int(found[2])]}]"


def _criterion_name(search: Any) -> str:
    return type(search.criterion_).__name__.lower()


def _metric(kind: str) -> str:
    return "misclassified" if kind == "svc" else "mean squared error"


def _cv_error(estimator: Any, train: tuple, kind: str, cv: int, seed: int) -> float:
    """Cross-validation error of one estimator in the metric that the comparison uses."""
    from sklearn.model_selection import cross_val_score

    scoring = "accuracy" if kind == "svc" else "neg_mean_squared_error"
    scores = cross_val_score(estimator, *train, cv=_folds(kind, cv, seed), scoring=scoring)
    return float(1 - scores.mean() if kind == "svc" else -scores.mean())


def _test_error(fitted: Any, test: tuple | None, kind: str) -> float | None:
    import numpy as np

    if test is None:
        return None
    X, y = test
    predicted = fitted.predict(X)
    return float(np.mean(predicted != y) if kind == "svc" else np.mean((predicted - y) ** 2))


def _run_grid(
    train: tuple, test: tuple | None, kind: str, kernel: str, loss: str | None, cv: int, seed: int
) -> dict[str, Any]:
    """What a user of scikit-learn would do today: a grid in the same pipeline and on the same folds."""
    import numpy as np
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

    X, y = train
    scoring = "neg_mean_squared_error" if kind == "svr" else "accuracy"
    if kernel != "linear":
        last: Any = SVR() if kind == "svr" else SVC()
        own_loss = "epsilon_insensitive" if kind == "svr" else "hinge"
        grid = {"C": np.logspace(-2, 4, 7), "gamma": np.logspace(-3, 2, 7) / X.shape[1]}
    elif kind == "svr":
        own_loss = loss if loss == "epsilon_insensitive" else "squared_epsilon_insensitive"
        last = LinearSVR(loss=own_loss, dual="auto", random_state=seed)
        grid = {"C": np.logspace(-4, 3, 8), "epsilon": np.linspace(0.0, y.std(), 6)}
    else:
        own_loss = loss if loss == "hinge" else "squared_hinge"
        last = LinearSVC(loss=own_loss, dual="auto", random_state=seed)
        grid = {"C": np.logspace(-4, 2, 13)}
    pipeline = make_pipeline(StandardScaler(), last)
    search = GridSearchCV(
        pipeline,
        {f"{type(last).__name__.lower()}__{name}": values for name, values in grid.items()},
        cv=_folds(kind, cv, seed),
        scoring=scoring,
    )
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search.fit(X, y)
    seconds = time.perf_counter() - began
    n_unconverged = sum(issubclass(w.category, ConvergenceWarning) for w in caught)
    return {
        "name": f"GridSearchCV, {len(search.cv_results_['params'])} points",
        "loss": own_loss,
        "params": {name.rsplit("__", 1)[-1]: float(value) for name, value in search.best_params_.items()},
        "cv_error": float(1 - search.best_score_ if kind == "svc" else -search.best_score_),
        "test_error": _test_error(search, test, kind),
        "seconds": seconds,
        "n_unconverged": n_unconverged,
    }


def _print_summary(summary: dict[str, Any], kind: str) -> None:
    """The result as a table on standard output."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table as RichTable

    from foldwise.callbacks import format_value

    other = summary.get("comparison")
    metric = _metric(kind)
    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("foldwise", justify="right")
    if other:
        table.add_column("scikit-learn", justify="right")

    def row(name: str, own: str, theirs: str = "") -> None:
        table.add_row(name, own, *([theirs] if other else []))

    row("method", summary["method"], other["name"] if other else "")
    names = dict.fromkeys([*summary["params"], *(other["params"] if other else ())])
    for name in names:
        sides = [
            format_value(side["params"][name]) if side and name in side["params"] else "-"
            for side in (summary, other)
        ]
        row(name, *sides)
    if kind == "svc":  # what is minimised is smooth; what is compared counts errors
        row(f"CV {summary['criterion']} at the start", f"{summary['cv_start']:.5g}")
        row(f"CV {summary['criterion']} at the end", f"{summary['cv_end']:.5g}")
        row(
            f"CV {metric} at the end",
            f"{summary['cv_error']:.5g}",
            f"{other['cv_error']:.5g}" if other else "",
        )
    else:
        row(f"CV {metric} at the start", f"{summary['cv_start']:.5g}")
        row(
            f"CV {metric} at the end", f"{summary['cv_end']:.5g}", f"{other['cv_error']:.5g}" if other else ""
        )
    if summary["test_error"] is not None:
        row(f"test {metric}", f"{summary['test_error']:.5g}", f"{other['test_error']:.5g}" if other else "")
    row("time", f"{summary['seconds']:.2f} s", f"{other['seconds']:.2f} s" if other else "")
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    console.print(f"{summary['status']}: {summary['message']}")
    bounds = list(summary["at_bound"].items())
    for name, side in bounds[:5]:
        console.print(f"{name} sits at its {side} bound; --space can widen it.")
    if len(bounds) > 5:
        console.print(f"... and {len(bounds) - 5} more at a bound.")
    if other:
        ratio = other["seconds"] / summary["seconds"]
        console.print(f"time of the grid search / time of foldwise: {ratio:.1f}")
        if other["n_unconverged"]:
            console.print(f"scikit-learn warned {other['n_unconverged']} times that a fit had not converged.")


def _write_json(path: Path, summary: dict, search: Any, data: Path, target: str, seed: int) -> None:
    from foldwise.callbacks import as_json

    content = {"data": str(data), "target": target, "seed": seed, **summary}
    content["result"] = json.loads(search.result_.to_json())
    path.write_text(json.dumps(as_json(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="Model file that foldwise fit --out wrote.")],
    data: Annotated[Path, typer.Argument(help="CSV file that has the model's feature columns.")],
    debug: Debug = False,
) -> None:
    """Predict the rows of a table: CSV with one column, prediction, on standard output."""
    with reported(debug):
        from foldwise.saving import load_model
        from foldwise.tables import read_table

        saved = load_model(model)
        table = read_table(data, columns=saved.columns)
        predicted = saved.estimator.predict(table.X)
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["prediction"])
        writer.writerows([value] for value in predicted.tolist())


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Table or figure; leave it out for the list.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version, in a minute or so.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with the data files.")] = None,
    debug: Debug = False,
) -> None:
    """Run the script behind a published table or figure."""
    with reported(debug):
        tables = _load_registry(_papers_folder())
        if name is None:
            for known in tables:
                typer.echo(known)
            return
        if name not in tables:
            raise InputError(f"there is no table {name!r}.", f"choose one of {', '.join(tables)}.")
        tables[name](quick=quick, data_dir=data, out=out)


def _papers_folder() -> Path:
    return Path(__file__).resolve().parents[2] / "papers"


def _load_registry(folder: Path) -> dict[str, Any]:
    """``TABLES`` of ``papers/registry.py``; the folder is part of a source checkout, not of a wheel."""
    path = folder / "registry.py"
    if not path.is_file():
        raise InputError(
            "the scripts of the papers are not here; they come with the source, not with the installed package.",
            "clone the repository and install it with: pip install -e .",
        )
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))
    spec = importlib.util.spec_from_file_location("papers.registry", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.TABLES)


@datasets_app.callback()
def list_datasets(context: typer.Context) -> None:
    """List the data sets that can be made."""
    if context.invoked_subcommand is None:
        from foldwise.datasets import NAMES

        for name, line in NAMES.items():
            typer.echo(f"{name:<14} {line}")


@datasets_app.command("make")
def make_dataset(
    name: Annotated[str, typer.Argument(help="Name from the list.")],
    out: Annotated[Path, typer.Argument(help="CSV file to write (or .csv.gz); the target column is y.")],
    rows: Annotated[int | None, typer.Option(help="Number of rows.")] = None,
    seed: Annotated[int, typer.Option(help="Seed.", min=0)] = 0,
    debug: Debug = False,
) -> None:
    """Write a data set as a CSV file."""
    with reported(debug):
        from foldwise.datasets import load_named
        from foldwise.tables import write_table

        dataset = load_named(name, rows, seed)
        write_table(out, [*dataset.columns, "y"], [*dataset.X.T, dataset.y])
        typer.echo(
            f"{out}: {len(dataset.y)} rows, {len(dataset.columns)} features, target y ({dataset.task})"
        )


if __name__ == "__main__":
    main()
