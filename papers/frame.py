"""What the scripts of the papers share: published figures, data, tables on the screen and in files.

Every script has a function ``run(quick, data_dir, out)``. It prints the published figures beside ours and, when ``out``
is given, writes both as CSV and draws its figures there. ``data_dir`` is a folder with real data sets, one
``name.csv.gz`` each, target in the last column; the environment variable ``FOLDWISE_DATA`` serves when it is not given.
A set that is not there is replaced, and the output says by what.

Scripts that take long keep every outcome in a file when the environment variable ``FOLDWISE_RUNS`` names a folder. Run
again they go on where they were, so that a table can be made in pieces. Delete the folder when the library changes.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "command",
    "data_folder",
    "figure",
    "load",
    "mean_sd",
    "note",
    "once",
    "print_table",
    "published",
    "scale_to_unit",
    "spread",
    "title",
    "write_csv",
]

Run = Callable[[bool, Path | None, Path | None], None]


def data_folder(data_dir: Path | None) -> Path | None:
    """The folder of real data: the argument, else ``FOLDWISE_DATA``, else None."""
    text = os.environ.get("FOLDWISE_DATA", "")
    folder = Path(data_dir) if data_dir is not None else (Path(text) if text else None)
    if folder is not None and not folder.is_dir():
        raise FileNotFoundError(
            f"there is no data folder {folder}; give another one, or none to use other data"
        )
    return folder


def load(name: str, data_dir: Path | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Features and target of ``name.csv.gz`` (or ``name.csv``) in the data folder; None when it is not there."""
    from foldwise.tables import read_table

    folder = data_folder(data_dir)
    if folder is None:
        return None
    for path in (folder / f"{name}.csv.gz", folder / f"{name}.csv"):
        if path.is_file():
            table = read_table(path, "target")
            assert table.y is not None
            return table.X, table.y
    return None


TEXT = ("table", "row", "quantity", "method", "model", "data")
"""Columns of the published figures that hold words; the others hold numbers."""


def published(paper: str, table: str | None = None) -> list[dict[str, Any]]:
    """Rows of ``papers/<paper>/published.csv``, of one table or of all; empty cells as None."""
    with (Path(__file__).parent / paper / "published.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        {name: cell if name in TEXT else (float(cell) if cell else None) for name, cell in row.items()}
        for row in rows
        if table in (None, row["table"])
    ]


def once(name: str, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``compute()`` gives, kept under ``key`` in ``name.jsonl`` of the folder ``FOLDWISE_RUNS`` if it is set."""
    folder = os.environ.get("FOLDWISE_RUNS", "")
    if not folder:
        return compute()
    path = Path(folder) / f"{name}.jsonl"
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry["key"] == key:
                return entry["outcome"]
    outcome = compute()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "outcome": outcome}) + "\n")
    return outcome


def scale_to_unit(X: np.ndarray) -> np.ndarray:
    """Every column mapped to [-1, 1]; constant columns become 0."""
    low, high = X.min(axis=0), X.max(axis=0)
    return (2.0 * X - low - high) / np.where(high > low, high - low, 1.0)


def mean_sd(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and sample standard deviation; None for the latter when there is one value only."""
    array = np.asarray(values, float)
    return float(array.mean()), float(array.std(ddof=1)) if len(array) > 1 else None


def spread(mean: float | None, sd: float | None = None, digits: int = 3) -> str:
    """``mean ± sd`` as text, "-" when there is no mean."""
    if mean is None:
        return "-"
    return f"{mean:.{digits}f}" + (f" ± {sd:.{digits}f}" if sd is not None else "")


def title(text: str) -> None:
    """A heading on the screen."""
    print(f"\n{text}\n{'=' * len(text)}", flush=True)


def note(text: str) -> None:
    """A remark that a reader of the table needs."""
    import textwrap

    print(textwrap.fill(text, 110, initial_indent="* ", subsequent_indent="  "), flush=True)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Aligned plain text: the first column to the left, the others to the right."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for k, line in enumerate(cells):
        padded = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        padded[0] = line[0].ljust(widths[0])
        print("  ".join(padded).rstrip())
        if k == 0:
            print("  ".join("-" * width for width in widths))
    print(flush=True)


def write_csv(out: Path | None, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write ``out/name.csv``; nothing happens without a folder."""
    if out is None or not rows:
        return
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.csv"
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {path}", flush=True)


@contextmanager
def figure(out: Path | None, name: str, panels: int = 1) -> Iterator[list[Any] | None]:
    """Axes to draw on, saved as ``out/name.png`` afterwards; None without a folder or without matplotlib."""
    if out is None:
        yield None
        return
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no figure: matplotlib is not installed; pip install 'foldwise[plot]'")
        yield None
        return
    drawing = Figure(figsize=(5.2 * panels, 3.8), layout="constrained")
    yield list(drawing.subplots(1, panels, squeeze=False)[0])
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.png"
    drawing.savefig(path, dpi=150)
    print(f"wrote {path}", flush=True)


def command(run: Run) -> None:
    """Run one script from the shell: ``python -m papers.moore2011.tables --quick --data DIR --out DIR``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a small version, in seconds")
    parser.add_argument("--data", type=Path, help="folder with the data files (or set FOLDWISE_DATA)")
    parser.add_argument("--out", type=Path, help="folder for CSV and PNG files")
    options = parser.parse_args()
    run(options.quick, options.data, options.out)
