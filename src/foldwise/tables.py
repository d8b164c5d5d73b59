"""Small CSV tables: a header line, numeric feature columns, one target column.

The command line reads its data here, so that pandas is not needed to fit a model. The reader is strict: a cell that
is missing or is not a finite number is refused with its column, line and value, never guessed or dropped.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

__all__ = ["Table", "TableError", "read_table", "write_table"]

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})


class TableError(ValueError):
    """A table that cannot be used; the message says where and what to do."""


@dataclass(frozen=True)
class Table:
    """Features and, if asked for, the target of a CSV file.

    Attributes
    ----------
    columns : tuple of str
        Names of the features, in the order of the columns of ``X``.
    X : ndarray of shape (n_samples, n_features)
        Features.
    y : ndarray of shape (n_samples,) or None
        Target: integers when every cell is one, else floats when every cell is a number, else strings.
    """

    columns: tuple[str, ...]
    X: np.ndarray
    y: np.ndarray | None = None


def read_table(
    path: str | Path,
    target: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
) -> Table:
    """Read a CSV file with a header line; a name that ends in ``.gz`` is decompressed.

    Parameters
    ----------
    path : str or Path
        File to read, UTF-8, separated by commas.
    target : str, optional
        Name of the target column. Without it no target is read.
    columns : sequence of str, optional
        Features to take, by name and in this order; other columns are ignored, whatever they hold. By default
        every column but the target and the dropped ones.
    drop : sequence of str
        Columns to leave out.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        When the file cannot be read, a column is absent, or a cell is missing or not a number.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.csv"
    >>> _ = path.write_text("a,b,y\\n1,2.5,no\\n3,4,yes\\n")
    >>> table = read_table(path, "y")
    >>> table.columns, table.X.tolist(), table.y.tolist()
    (('a', 'b'), [[1.0, 2.5], [3.0, 4.0]], ['no', 'yes'])
    """
    path = Path(path)
    with _open_text(path) as file:
        reader = csv.reader(file, strict=True)
        header = _read_header(reader, path)
        names = _choose_columns(header, target, columns, drop, path)
        where = [header.index(name) for name in names]
        target_at = None if target is None else header.index(target)
        cells = array("d")
        labels: list[str] = []
        n_rows = 0
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise TableError(
                    f"{path}, line {reader.line_num}: got {len(row)} cells, the header has {len(header)}. "
                    "Quote cells that contain commas, and give every row all its cells."
                )
            cells.extend(_numbers(row, where, header, reader.line_num, path))
            if target_at is not None:
                labels.append(_label(row[target_at], header[target_at], reader.line_num, path))
            n_rows += 1
    if n_rows == 0:
        raise TableError(f"{path}: there is a header but no data row. Add rows below the header.")
    X = np.frombuffer(cells, dtype=np.float64).reshape(n_rows, len(names)).copy()
    return Table(tuple(names), X, None if target_at is None else _as_target(labels))


def write_table(path: str | Path, names: Sequence[str], columns: Sequence[np.ndarray]) -> None:
    """Write columns under a header line; a name that ends in ``.gz`` is compressed.

    Floats are written so that reading them gives the same bits.

    Parameters
    ----------
    path : str or Path
        File to write; its folder must exist.
    names : sequence of str
        One name per column.
    columns : sequence of ndarray of shape (n_samples,)
        The columns.
    """
    path = Path(path)
    opener: Callable[..., TextIO] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "wt", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(names)
            writer.writerows(zip(*(np.asarray(column).tolist() for column in columns), strict=True))
    except OSError as error:
        raise TableError(
            f"cannot write {path}: {error.strerror}. Choose a file in a folder that exists."
        ) from error


@contextmanager
def _open_text(path: Path) -> Iterator[TextIO]:
    """Open a plain or gzipped text file; every way in which reading it can fail becomes a TableError."""
    opener: Callable[..., TextIO] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(
            f"cannot read {path}: damaged or not gzip ({error}). Write the file again, or rename it to .csv if it "
            "is plain text."
        ) from error
    except OSError as error:
        raise TableError(
            f"cannot read {path}: {error.strerror}. Check the name and the permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise TableError(f"cannot read {path}: it is not UTF-8 text ({error}). Save it as UTF-8.") from error
    except csv.Error as error:
        raise TableError(
            f"cannot read {path}: {error}. Check the quotes around cells; the separator must be a comma."
        ) from error


def _read_header(reader: Iterator[list[str]], path: Path) -> list[str]:
    header = [name.strip() for name in next(reader, [])]
    if not any(header):
        raise TableError(f"{path}: the first line is empty. It must hold the names of the columns.")
    if all(_is_number(name) for name in header):
        raise TableError(
            f"{path}: the first line holds only numbers ({', '.join(header[:3])}, ...). Put a line with the names "
            "of the columns above it."
        )
    if len(header) == 1:
        for separator, word in ((";", "semicolons"), ("\t", "tabs")):
            if separator in header[0]:
                raise TableError(f"{path}: the columns are separated by {word}. Save the file with commas.")
    for k, name in enumerate(header):
        if not name:
            raise TableError(
                f"{path}: column {k + 1} has no name. Name it, or delete it if it is a row index."
            )
        if header.index(name) != k:
            raise TableError(f"{path}: two columns are called {name!r}. Rename one of them.")
    return header


def _choose_columns(
    header: list[str], target: str | None, columns: Sequence[str] | None, drop: Sequence[str], path: Path
) -> list[str]:
    wanted = [*([] if target is None else [target]), *(columns or []), *drop]
    absent = [name for name in wanted if name not in header]
    if absent:
        raise TableError(
            f"{path} has no column {_name_some(absent)}. It has {_name_some(header)}. Names are compared letter "
            "by letter."
        )
    left_out = {target, *drop}
    names = list(columns) if columns is not None else [name for name in header if name not in left_out]
    if not names:
        raise TableError(f"{path}: no feature column is left. Add one, or drop fewer.")
    return names


def _numbers(row: list[str], where: list[int], header: list[str], line: int, path: Path) -> list[float]:
    """Features of one row, or an error that names the first bad cell."""
    try:
        values = [float(row[k]) for k in where]
        # float() reads "1_000" as 1000, but an underscore in a table is an identifier; inf - inf is nan.
        if math.isfinite(sum(values)) and not any("_" in row[k] for k in where):
            return values
    except ValueError:
        pass
    for k in where:
        text = row[k].strip()
        place = f"{path}, line {line}, column {header[k]!r}"
        if text.lower() in MISSING:
            raise TableError(
                f"{place}: the value is missing ({text!r}). Fill it in, delete the row, or drop the column."
            )
        if not _is_number(text):
            raise TableError(
                f"{place}: {text!r} is not a number. Encode the column as numbers (one 0/1 column per category), or "
                "drop it."
            )
        if not math.isfinite(float(text)):
            raise TableError(f"{place}: {text!r} is not finite. Replace it, or delete the row.")
    return values  # finite cells whose sum overflows


def _label(text: str, name: str, line: int, path: Path) -> str:
    text = text.strip()
    if text.lower() in MISSING:
        raise TableError(
            f"{path}, line {line}, target {name!r}: the value is missing ({text!r}). Fill it in or delete the row."
        )
    return text


def _as_target(labels: list[str]) -> np.ndarray:
    if not all(_is_number(text) and math.isfinite(float(text)) for text in labels):
        return np.array(labels)
    y = np.array([float(text) for text in labels])
    whole = np.all(y == np.round(y)) and np.all(np.abs(y) < 2**53)
    return y.astype(np.int64) if whole else y


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _name_some(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
