"""One function for every format."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foldwise.tables.codes import (
    MOST_CATEGORIES,
    Builder,
    Request,
    Table,
    TableError,
    check_finite_target,
    check_header,
    whole_if_possible,
)
from foldwise.tables.text import bounded_lines, open_bytes, read_text

__all__ = ["FORMATS", "format_of", "named_format", "read_table"]

FORMATS = {
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "parquet": (".parquet", ".pq"),
    "svmlight": (".svm", ".svmlight", ".libsvm"),
}
MOST_COLUMNS, COLUMNS_PER_VALUE = 1 << 23, 10
"""A svmlight file may have this many columns, and beyond that so many for each value that it holds."""
CELL_BYTES = 64
"""What a cell of a Parquet file takes while it is read."""
DENSE_CELLS = 5_000_000
"""A svmlight file with at most this many cells, zeros included, becomes a dense table."""


def format_of(path: str | Path) -> str:
    """The format that a file's name says, with or without ``.gz``; CSV when it says nothing.

    >>> format_of("a.tsv.gz"), format_of("a.libsvm"), format_of("a.txt")
    ('tsv', 'svmlight', 'csv')
    """
    return named_format(path) or "csv"


def named_format(path: str | Path) -> str | None:
    """The format that a file's name says; None when it says nothing."""
    path = Path(path)
    suffix = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()
    return next((name for name, suffixes in FORMATS.items() if suffix in suffixes), None)


def read_table(
    path: str | Path,
    target: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    format: str = "auto",
    categorical: Collection[str] = (),
    categories: Mapping[str, Sequence[str | None]] | None = None,
    max_categories: int = MOST_CATEGORIES,
) -> Table:
    """Read a table; gzip is recognised.

    Parameters
    ----------
    path : str or Path
        File to read. Text must be UTF-8, or UTF-16 with a byte order mark.
    target : str, optional
        Name of the target column; without it no target is read. A svmlight file has its own.
    columns : sequence of str, optional
        Features to take, by name and in this order; other columns are ignored, whatever they hold. By default
        every column but the target and the dropped ones.
    drop : sequence of str
        Columns to leave out.
    format : {"auto", "csv", "tsv", "parquet", "svmlight"}
        "auto" goes by the name.
    categorical : collection of str
        Columns whose numbers are names of categories.
    categories : mapping, optional
        The categories of a table read before, for its columns: no column is categorical but these.
    max_categories : int
        Refuse a text column with more different texts.

    Returns
    -------
    Table

    Raises
    ------
    TableError
        When the file cannot be read, a column is absent, or a column holds numbers and texts.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "t.csv"
    >>> _ = path.write_text("a,b,y\\n1,red,no\\n,blue,yes\\n")
    >>> table = read_table(path, "y")
    >>> table.X.tolist(), table.y.tolist(), table.categories
    ([[1.0, 1.0], [nan, 0.0]], ['no', 'yes'], {'b': ('blue', 'red')})
    """
    path = Path(path)
    request = Request(path, target, columns, drop, categorical, categories, max_categories)
    chosen = format_of(path) if format == "auto" else format
    if chosen not in FORMATS:
        raise TableError(f"format {format!r} is unknown. Use one of: auto, {', '.join(FORMATS)}.")
    if chosen == "parquet":
        return _read_parquet(request)
    if chosen == "svmlight":
        return _read_svmlight(request)
    return read_text(request, "," if chosen == "csv" else "\t")


def _read_parquet(request: Request) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise TableError(
            "Parquet files need the package pyarrow, which is not installed. Run: pip install 'foldwise[parquet]'"
        ) from None
    path = request.path
    try:
        with open(path, "rb") as raw, pq.ParquetFile(raw) as file:
            raw_names = file.schema_arrow.names
            header = check_header(raw_names, path)
            builder = Builder(request, header)
            wanted = [*builder.where, *([] if builder.target_at is None else [builder.target_at])]
            n_rows = file.metadata.num_rows
            _check_cells(n_rows * len(wanted), path)
            kinds = {k: file.schema_arrow.field(k).type for k in wanted}
            content = file.read(columns=[raw_names[k] for k in wanted if _is_plain(kinds[k], pa)])
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror or error}. Check the name.") from error
    except pa.ArrowException as error:
        raise TableError(
            f"cannot read {path}: {str(error).splitlines()[0]}. Is it a Parquet file?"
        ) from error
    for i, k in enumerate(wanted):
        if not _is_plain(kinds[k], pa):
            if i == len(builder.names):
                raise TableError(
                    f"{path}, target {header[k]!r}: values of type {kinds[k]} are not supported. Turn them into "
                    "numbers or texts."
                )
            builder.fault(i, "type", 1, str(kinds[k]))
    nothing = [""] * n_rows
    texts = [_texts(content.column(raw_names[k])) if _is_plain(kinds[k], pa) else nothing for k in wanted]
    builder.where = list(range(len(builder.names)))
    builder.target_at = None if request.target is None else len(builder.names)
    for number, row in enumerate(zip(*texts, strict=True), start=1):
        builder.add(row, number)
    return builder.table()


def _is_plain(kind: Any, pa: Any) -> bool:
    """Whether values of a type are numbers or texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind)
    return bool(number or text or pa.types.is_null(kind))


def _texts(column: Any) -> list[str]:
    """The cells of a column as texts that read back as the same numbers."""
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _check_cells(count: int, path: Path) -> None:
    """Refuse a table that the machine cannot hold; a small file may say that it has any number of rows."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return
    if count * CELL_BYTES > memory:
        raise TableError(
            f"cannot read {path}: its {count:,} cells need about {count * CELL_BYTES:,} bytes, and this machine has "
            f"{memory:,}. Drop columns, or use fewer rows."
        )


class _Lines:
    """What scikit-learn's reader wants: something with ``read`` that gives lines."""

    def __init__(self, file: Any, path: Path) -> None:
        self._lines = bounded_lines(file, path)

    def __iter__(self) -> Any:
        return self._lines

    def read(self) -> bytes:
        """Everything that is left."""
        return b"".join(self._lines)


def _read_svmlight(request: Request) -> Table:
    from sklearn.datasets import load_svmlight_file

    path = request.path
    if request.target is not None:
        raise TableError(
            f"a svmlight file has its target at the beginning of each line; {request.target!r} cannot be another. "
            "Leave the target out."
        )
    if request.drop or request.categorical:
        raise TableError("the columns of a svmlight file have no names. Leave drop and categorical out.")
    with open_bytes(path) as raw:
        try:
            X, y = load_svmlight_file(_Lines(raw, path), zero_based=True)
        except TableError:
            raise
        except (ValueError, OverflowError, UnicodeError) as error:
            raise TableError(
                f"cannot read {path}: {error}. Each line must be: target index:value index:value ..."
            ) from error
    X = X.tocsr()
    if not X.shape[0]:
        raise TableError(f"{path}: there is no data row. Add lines such as: 1 1:0.5 3:2")
    rows = np.arange(1, len(y) + 1)
    check_finite_target(y, rows, f"{path}, target")
    if not np.all(np.isfinite(X.data)):
        row = int(np.searchsorted(X.indptr, np.flatnonzero(~np.isfinite(X.data))[0], side="right"))
        raise TableError(f"{path}, row {row}: a value is not finite. Replace it, or delete the row.")
    if request.columns is not None:
        names, X = _pick(request, X)
    else:
        names, X = _all_columns(path, X)
    if not names:
        raise TableError(f"{path}: there is no feature. Each line must be: target index:value ...")
    if X.shape[0] * X.shape[1] <= DENSE_CELLS:
        X = X.toarray()
    return Table(tuple(names), X, whole_if_possible(np.asarray(y, float)), lines=rows)


def _all_columns(path: Path, X: Any) -> tuple[list[str], Any]:
    """Every column, from 1 on where the indices count from one; too many are refused before they take memory."""
    most = max(MOST_COLUMNS, COLUMNS_PER_VALUE * X.nnz)
    if X.shape[1] > most:
        raise TableError(
            f"{path}: the largest index is {X.shape[1] - 1:,}, in a file of {X.nnz:,} values; at most {most:,} columns "
            "are taken, since a model has a number for each. Number the columns anew, without gaps."
        )
    first = int(X.shape[1] > 0 and not np.any(X.indices == 0))
    return [str(k) for k in range(first, X.shape[1])], X[:, first:]


def _pick(request: Request, X: Any) -> tuple[list[str], Any]:
    """The columns that were asked for; those beyond the file's last index are zero."""
    import scipy.sparse as sp

    wanted = list(request.columns or ())
    if not all(name.isdigit() for name in wanted):
        raise TableError(
            f"{request.path}: the columns of a svmlight file have numbers, and {wanted[0]!r} was asked for. Use a "
            "table with names."
        )
    numbers = np.array([int(name) for name in wanted])
    order = np.argsort(numbers, kind="stable")
    at = np.minimum(np.searchsorted(numbers, X.indices, sorter=order), len(numbers) - 1)
    found = numbers[order[at]] == X.indices
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))[found]
    picked = sp.csr_matrix((X.data[found], (row, order[at[found]])), shape=(X.shape[0], len(wanted)))
    return wanted, picked
