"""``foldwise reproduce`` and ``foldwise datasets``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from foldwise.cli.app import Command, Debug, InputError, app, option, reported

__all__ = ["list_datasets", "make_dataset", "reproduce"]

datasets_app = typer.Typer(
    invoke_without_command=True, rich_markup_mode=None, context_settings={"max_content_width": 100}
)
app.add_typer(datasets_app, name="datasets", help="List the data sets that can be made, or make one.")


@app.command(cls=Command)
def reproduce(
    name: Annotated[str | None, typer.Argument(help="Table or figure; leave it out for the list.")] = None,
    quick: Annotated[bool, option("--quick", help="A small version, in a minute or so.")] = False,
    out: Annotated[Path | None, option(help="Folder for the results.", metavar="FOLDER")] = None,
    data: Annotated[Path | None, option(help="Folder with the data files.", metavar="FOLDER")] = None,
    debug: Debug = False,
) -> None:
    """Run the script behind a published table or figure."""
    with reported(debug):
        tables = load_registry(papers_folder())
        if name is None:
            if quick or out is not None or data is not None:
                raise InputError(
                    "--quick, --out and --data need the name of a table.", "foldwise reproduce lists them."
                )
            for known in tables:
                typer.echo(known)
            return
        if name not in tables:
            raise InputError(f"there is no table {name!r}.", f"choose one of {', '.join(tables)}.")
        tables[name](quick=quick, data_dir=data, out=out)


def papers_folder() -> Path:
    """Where the scripts are in a source checkout."""
    return Path(__file__).resolve().parents[3] / "papers"


def load_registry(folder: Path) -> dict[str, Any]:
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


@datasets_app.command("make", cls=Command)
def make_dataset(
    name: Annotated[str, typer.Argument(help="Name from the list.")],
    out: Annotated[Path, typer.Argument(help="CSV file to write (or .csv.gz); the target column is y.")],
    rows: Annotated[int | None, option(help="Number of rows.", metavar="N")] = None,
    seed: Annotated[int | None, option(help="Seed; 0.", metavar="N")] = None,
    debug: Debug = False,
) -> None:
    """Write a data set as a CSV file."""
    with reported(debug):
        from foldwise.datasets import NAMES, load_named
        from foldwise.outputs import check_outputs
        from foldwise.tables import write_table

        if str(out) == "-":
            raise InputError("a data set needs a file.", "give its name; /dev/stdout is standard output.")
        if seed is not None and rows is None and name in NAMES and "scikit-learn" in NAMES[name]:
            raise InputError(f"--seed changes nothing: all rows of {name} are written.", "add --rows N.")
        check_outputs({"the data set": out})
        dataset = load_named(name, rows, seed or 0)
        write_table(out, [*dataset.columns, "y"], [*dataset.X.T, dataset.y])
        text = f"{out}: {len(dataset.y)} rows, {len(dataset.columns)} features, target y ({dataset.task})"
        typer.echo(text, err=not out.is_file())
