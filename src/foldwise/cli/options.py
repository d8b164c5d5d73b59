"""Options that ``fit`` and ``compare`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foldwise.cli.app import option

__all__ = [
    "Categorical",
    "DataFile",
    "Drop",
    "Format",
    "LossName",
    "MaxCategories",
    "Method",
    "Model",
    "Quiet",
    "Seed",
    "Target",
    "Task",
    "TestFile",
]

DataFile = Annotated[
    Path, typer.Argument(help="CSV, TSV, Parquet or svmlight file, plain or gzip.", metavar="DATA")
]
Target = Annotated[str | None, option(help="Target column (svmlight: not needed).", metavar="NAME")]
Task = Annotated[str, option(help="regression, classification, or auto: by the target.", metavar="T")]
Model = Annotated[
    str, option(help="linear, box, rbf, ard, semiparametric, or auto: linear or rbf by CV.", metavar="M")
]
LossName = Annotated[str | None, option(help="Training loss; the model's own by default.", metavar="L")]
Method = Annotated[
    str,
    option(
        help="auto, newton, lbfgsb, bfgs, rprop, pbp, bundle, mpec, slams, grid, constrained_grid, random.",
        metavar="M",
    ),
]
TestFile = Annotated[Path | None, option(help="Test rows from this file instead.", metavar="FILE")]
Drop = Annotated[list[str] | None, option(help="Column to ignore; repeatable.", metavar="NAME")]
Categorical = Annotated[
    list[str] | None, option(help="Column of categories, though of numbers; repeatable.", metavar="NAME")
]
MaxCategories = Annotated[int, option(help="Most categories of a text column; 50.", metavar="N")]
Format = Annotated[str, option(help="csv, tsv, parquet, svmlight; auto: by the file's name.", metavar="F")]
Seed = Annotated[int, option(help="Seed of split, folds and searches; 0.", metavar="N")]
Quiet = Annotated[bool, option("--quiet", "-q", help="No progress and no table.")]
