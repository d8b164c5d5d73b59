"""CSV and TSV, with or without gzip; a line or a cell beyond any use is refused before it fills the memory."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from foldwise.outputs import writing
from foldwise.tables.codes import Builder, Request, Table, TableError, check_header, is_number

__all__ = ["bounded_lines", "open_bytes", "read_text", "write_table"]

MAX_LINE = 1 << 25
"""Longest line in characters: a million columns and more."""
SMALL, MOST_GROWTH = 1 << 28, 500
"""A gzip file may always unpack to this many bytes, and beyond that to this multiple of its size."""
BOMS = {
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}

MAGIC = {
    b"PAR1": "a Parquet file; name it .parquet",
    b"PK\x03\x04": "an Excel or zip file; save it as CSV",
}
"""First bytes of files that are often taken for text."""


def read_text(request: Request, separator: str) -> Table:
    """A table whose cells are texts between separators."""
    path = request.path
    with open_bytes(path) as raw:
        head = raw.peek(4)[:4]
        if head in MAGIC:
            raise TableError(f"cannot read {path}: it is {MAGIC[head]}, or say its format.")
        encoding = next((name for bom, name in BOMS.items() if head.startswith(bom)), "utf-8-sig")
        file = io.TextIOWrapper(raw, encoding=encoding, newline="")
        try:
            reader = csv.reader(bounded_lines(file, path), delimiter=separator, strict=True)
            header = _read_header(reader, path, separator)
            builder = Builder(request, header)
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    word = "commas" if separator == "," else "tabs"
                    raise TableError(
                        f"{path}, line {reader.line_num}: got {len(row)} cells, the header has {len(header)}. "
                        f"Quote cells that contain {word}, and give every row all its cells."
                    )
                builder.add(row, reader.line_num)
        except UnicodeError as error:
            raise TableError(
                f"cannot read {path}: it is not UTF-8 text ({error}). Save it as UTF-8."
            ) from error
        except csv.Error as error:
            raise TableError(
                f"cannot read {path}: {error}. Check the quotes around cells, and the separator."
            ) from error
    return builder.table()


def bounded_lines(file: Any, path: Path) -> Iterator[Any]:
    """The lines of a file, text or bytes; one that is too long is refused when its beginning has been read."""
    while line := file.readline(MAX_LINE + 1):
        if len(line) > MAX_LINE:
            raise TableError(
                f"cannot read {path}: a line is longer than {MAX_LINE:,} characters. Is it a table with line ends?"
            )
        yield line


class _Unpacked(io.RawIOBase):
    """What comes out of a gzip file, until it is out of all proportion to what went in."""

    def __init__(self, file: Any, packed: int, path: Path) -> None:
        super().__init__()
        self._file, self._packed, self._path, self._total = file, packed, path, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As of any raw file."""
        count: int = self._file.readinto(buffer)
        self._total += count
        # The size of a pipe is not known.
        if self._packed and self._total > max(SMALL, MOST_GROWTH * self._packed):
            raise TableError(
                f"cannot read {self._path}: its {self._packed:,} bytes unpack to more than {MOST_GROWTH} times that, "
                "which no table does. Unpack it yourself if it is right."
            )
        return count


@contextmanager
def open_bytes(path: Path) -> Iterator[Any]:
    """Open a plain or gzipped file; every way in which reading its bytes can fail becomes a TableError."""
    try:
        with open(path, "rb") as plain:
            zipped = plain.peek(2)[:2] == b"\x1f\x8b"
            if zipped or path.suffix == ".gz":
                with gzip.GzipFile(fileobj=plain) as file:
                    yield io.BufferedReader(_Unpacked(file, os.fstat(plain.fileno()).st_size, path))
            else:
                yield plain
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(
            f"cannot read {path}: damaged or not gzip ({error}). Write the file again, or rename it if it is plain "
            "text."
        ) from error
    except OSError as error:
        raise TableError(
            f"cannot read {path}: {error.strerror}. Check the name and the permissions."
        ) from error


def _read_header(reader: Iterator[list[str]], path: Path, separator: str) -> list[str]:
    first = [name.strip() for name in next(reader, [])]
    if not any(first):
        raise TableError(f"{path}: the first line is empty. It must hold the names of the columns.")
    if any("\x00" in name for name in first):
        raise TableError(
            f"cannot read {path}: it holds zero bytes, so it is not UTF-8 text. Save it as CSV in UTF-8."
        )
    if all(is_number(name) for name in first):
        raise TableError(
            f"{path}: the first line holds only numbers ({', '.join(first[:3])}, ...). Put a line with the names "
            "of the columns above it."
        )
    if len(first) == 1:
        words = {";": "semicolons", "\t": "tabs", ",": "commas"}
        for other, word in words.items():
            if other in first[0]:
                advice = (
                    "say that its format is tsv"
                    if other == "\t"
                    else f"save the file with {words[separator]}"
                )
                raise TableError(f"{path}: the columns are separated by {word}; {advice}.")
    return check_header(first, path)


def write_table(path: str | Path, names: Sequence[str], columns: Sequence[np.ndarray]) -> None:
    """Write columns under a header line; a name that ends in ``.gz`` is compressed, one in ``.tsv`` gets tabs.

    Floats are written so that reading them gives the same bits.

    Parameters
    ----------
    path : str or Path
        File to write; its folder must exist.
    names : sequence of str
        One name per column.
    columns : sequence of ndarray of shape (n_samples,)
        The columns.

    Raises
    ------
    OutputError
        When the file cannot be written.
    """
    path = Path(path)
    separator = "\t" if ".tsv" in path.suffixes[-2:] else ","
    rows = zip(*(np.asarray(column).tolist() for column in columns), strict=True)
    with writing(path, "wb") as raw, _packer(raw, path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n", delimiter=separator)
        writer.writerow(names)
        writer.writerows(rows)
        text.flush()
        text.detach()


def _packer(raw: Any, path: Path) -> Any:
    """What compresses on the way to a file, where the name says so."""
    if path.suffix != ".gz":
        return nullcontext(raw)
    return gzip.GzipFile(path.with_suffix("").name, "wb", fileobj=raw)
