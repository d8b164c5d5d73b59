"""What every reader shares: which columns to take, cells to numbers, categories to codes."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "MISSING",
    "MOST_CATEGORIES",
    "Builder",
    "Request",
    "Table",
    "TableError",
    "check_finite_target",
    "check_header",
    "count_rows",
    "is_number",
    "name_some",
]

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T]\d{1,2}[:.h]\d{2}.*)?")
MOST_FAULTS = 8
"""Columns that a message spells out."""
MOST_CATEGORIES = 50
"""A text column with more different values than this is refused unless the caller allows them."""


class TableError(ValueError):
    """A table that cannot be used; the message says where and what to do.

    ``faults`` maps the columns that cannot be used to what is wrong with them: "mixed", "texts", "dates", "infinite",
    "empty" or "type".
    """

    def __init__(self, message: str, faults: Mapping[str, str] | None = None):
        super().__init__(message)
        self.faults = dict(faults or {})


@dataclass(frozen=True, eq=False)
class Table:
    """Features and, if asked for, the target of a file.

    Attributes
    ----------
    columns : tuple of str
        Names of the features, in the order of the columns of ``X``.
    X : ndarray or CSR matrix, shape (n_samples, n_features)
        Features: numbers, with nan where a number is missing; in a categorical column the position of the category.
    y : ndarray of shape (n_samples,) or None
        Target: integers when every cell is one, else floats when every cell is a number, else strings.
    categories : dict from column to tuple of (str or None)
        The categories of every categorical column, sorted; None, at the end, stands for missing cells. A cell whose
        category was not in a list that was given is coded -1.
    missing : dict from numeric column to (number of missing cells, line of the first)
    unknown : dict from categorical column to number of cells coded -1
    extra : tuple of str
        Columns of the file that were not asked for.
    lines : ndarray of shape (n_samples,) or None
        Where each row stands in the file: its line, or its number in files without lines.
    """

    columns: tuple[str, ...]
    X: Any
    y: np.ndarray | None = None
    categories: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    missing: dict[str, tuple[int, int]] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    lines: np.ndarray | None = None


@dataclass(frozen=True)
class Request:
    """What to read of a file; see :func:`foldwise.tables.read_table`."""

    path: Path
    target: str | None = None
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()
    categorical: Collection[str] = ()
    categories: Mapping[str, Sequence[str | None]] | None = None
    max_categories: int = MOST_CATEGORIES

    def choose(self, header: Sequence[str]) -> list[str]:
        """The features to take of these columns."""
        known = set(header)
        if self.columns is not None:
            absent = [name for name in self.columns if name not in known]
            if absent:
                extra = [name for name in header if name not in set(self.columns)]
                word = "columns" if len(absent) > 1 else "column"
                also = f" Not used: {name_some(extra)}." if extra else ""
                raise TableError(
                    f"{self.path} has no {word} {name_some(absent)}.{also} Names are compared letter by letter."
                )
        wanted = [*([] if self.target is None else [self.target]), *self.drop, *self.categorical]
        absent = [name for name in wanted if name not in known]
        if absent:
            raise TableError(
                f"{self.path} has no column {name_some(absent)}.{_alike(absent, header)} It has {name_some(header)}. "
                "Names are compared letter by letter."
            )
        for option, chosen in (("drop", self.drop), ("declare categorical", self.categorical)):
            if self.target is not None and self.target in chosen:
                raise TableError(
                    f"{self.target!r} is the target; there is nothing to {option}. Leave it out there."
                )
        if both := [name for name in self.categorical if name in set(self.drop)]:
            raise TableError(f"{name_some(both)} cannot be both dropped and categorical. Choose one.")
        left_out = {self.target, *self.drop}
        names = (
            list(self.columns)
            if self.columns is not None
            else [name for name in header if name not in left_out]
        )
        if not names:
            raise TableError(f"{self.path}: no feature column is left. Add one, or drop fewer.")
        return names


def check_header(header: Sequence[str], path: Path) -> list[str]:
    """Names without spaces around them; every column must have one of its own."""
    names = [name.strip() for name in header]
    seen: set[str] = set()
    for k, name in enumerate(names):
        if not name:
            raise TableError(
                f"{path}: column {k + 1} has no name. Name it, or delete it if it is a row index."
            )
        if name in seen:
            raise TableError(f"{path}: two columns are called {name!r}. Rename one of them.")
        seen.add(name)
    return names


class Builder:
    """Turns rows of texts into numbers and codes, one row at a time.

    Parameters
    ----------
    request : Request
    header : names of the file's columns
    """

    def __init__(self, request: Request, header: Sequence[str]) -> None:
        self.request, self.path = request, request.path
        self.names = request.choose(header)
        place = {name: k for k, name in enumerate(header)}
        self.where = [place[name] for name in self.names]
        self.target_at = None if request.target is None else place[request.target]
        asked = {*self.names, *request.drop, request.target}
        self.extra = tuple(name for name in header if name not in asked)
        given = request.categories
        self.codes: dict[int, dict[str | None, float]] = {}
        self.forced = set(given if given is not None else request.categorical)
        for i, name in enumerate(self.names):
            if name in self.forced:
                labels: Sequence[str | None] = () if given is None else given[name]
                self.codes[i] = {label: float(k) for k, label in enumerate(labels)}
        self.undecided = set(range(len(self.names))) - set(self.codes) if given is None else set()
        self.cells = array("d")
        self.labels: list[str] = []
        self.missing: dict[str, tuple[int, int]] = {}
        self.unknown: dict[str, int] = {}
        self.faults: dict[int, CellFault] = {}
        self.lines, self.unanswered = array("q"), array("q")
        self.n_rows = 0

    def add(self, row: Sequence[str], line: int) -> None:
        """One row of texts."""
        values = None if self.codes else self._plain(row)
        if values is None:
            values = [self._cell(i, row[k].strip(), line) for i, k in enumerate(self.where)]
        self.cells.extend(values)
        if self.target_at is not None:
            text = row[self.target_at].strip()
            self.labels.append(text)
            if text.lower() in MISSING:
                self.unanswered.append(line)
        self.lines.append(line)
        self.n_rows += 1

    def fault(self, i: int, kind: str, line: int, text: str) -> float:
        """Note that a column cannot be used, and why; its cells are passed over from here on."""
        self.faults[i] = CellFault(kind, line, text)
        self.undecided.discard(i)
        self.codes.pop(i, None)
        self.missing.pop(self.names[i], None)
        return math.nan

    def _plain(self, row: Sequence[str]) -> list[float] | None:
        """The row when all of it is finite numbers, else None."""
        try:
            values = [float(row[k]) for k in self.where]
        except ValueError:
            return None
        # float() reads "1_000" as 1000, but an underscore in a table is an identifier; inf - inf is nan.
        if not math.isfinite(sum(values)) or any("_" in row[k] for k in self.where):
            return None
        self.undecided.clear()
        return values

    def _cell(self, i: int, text: str, line: int) -> float:
        if i in self.faults:
            return math.nan
        if i in self.codes:
            return self._code(i, text, line)
        name = self.names[i]
        if text.lower() in MISSING:
            count, first = self.missing.get(name, (0, line))
            self.missing[name] = (count + 1, first)
            return math.nan
        if is_number(text):
            value = float(text)
            if not math.isfinite(value):
                return self.fault(i, "infinite", line, text)
            self.undecided.discard(i)
            return value
        if i not in self.undecided:
            return self.fault(i, "mixed", line, text)
        self.undecided.discard(i)
        self.codes[i] = {}
        self.missing.pop(name, None)
        self._recode(i)
        return self._code(i, text, line)

    def _recode(self, i: int) -> None:
        """A column that held nothing so far turns out to be of texts: its missing cells become a category."""
        width = len(self.names)
        if self.n_rows:
            self.codes[i][None] = 0.0
        for row in range(self.n_rows):
            self.cells[row * width + i] = 0.0

    def _code(self, i: int, text: str, line: int) -> float:
        codes = self.codes[i]
        label = None if text.lower() in MISSING else text
        if label in codes:
            return codes[label]
        name = self.names[i]
        if self.request.categories is not None:
            self.unknown[name] = self.unknown.get(name, 0) + 1
            return -1.0
        if label is not None and name not in self.forced and is_number(label):
            return self.fault(i, "mixed", line, label)
        codes[label] = float(len(codes))
        if len(codes) - (None in codes) > self.request.max_categories:
            dates = sum(bool(DATE.fullmatch(known)) for known in codes if known is not None)
            return self.fault(i, "dates" if 2 * dates > len(codes) else "texts", line, text)
        return codes[label]

    def table(self) -> Table:
        """The table of all rows."""
        if self.n_rows == 0:
            raise TableError(f"{self.path}: there is a header but no data row. Add rows below the header.")
        for i, name in enumerate(self.names):
            count, line = self.missing.get(name, (0, 0))
            if count == self.n_rows and self.request.columns is None:
                self.fault(i, "empty", line, "")
        y = None if self.target_at is None else self._target()
        self._check()
        X = np.frombuffer(self.cells, dtype=np.float64).reshape(self.n_rows, len(self.names)).copy()
        categories: dict[str, tuple[str | None, ...]] = {}
        for i, codes in self.codes.items():
            name = self.names[i]
            if self.request.categories is not None:
                categories[name] = tuple(self.request.categories[name])
                continue
            labels: list[str | None] = [*sorted(label for label in codes if label is not None)]
            labels += [None] if None in codes else []
            order = np.empty(max(len(codes), 1))
            for k, label in enumerate(labels):
                order[int(codes[label])] = k
            X[:, i] = order[X[:, i].astype(int)]
            categories[name] = tuple(labels)
        lines = np.array(self.lines, dtype=np.int64)
        return Table(tuple(self.names), X, y, categories, self.missing, self.unknown, self.extra, lines)

    def _target(self) -> np.ndarray:
        """Integers when every cell is one, else floats when every cell is a number, else strings.

        Whole numbers that would not be written as they were read (01, +1, more than a double holds) are names: strings.
        """
        if self.unanswered or not all(map(is_number, self.labels)) or _are_names(self.labels):
            return np.array(self.labels)
        y = np.array([float(text) for text in self.labels])
        check_finite_target(y, self.lines, f"{self.path}, target {self.request.target!r}")
        return whole_if_possible(y)

    def _check(self) -> None:
        """Refuse a table with columns or targets that cannot be used: all of them in one message."""
        sentences = []
        if self.unanswered:
            sentences.append(
                f"target {self.request.target!r}: the value is missing in {count_rows(self.unanswered)}. Fill it in or "
                "delete the row."
            )
        faults = {self.names[i]: fault for i, fault in sorted(self.faults.items())}
        given = self.request.categories is not None
        if len(faults) == 1:
            ((name, fault),) = faults.items()
            sentences.append(
                f"{fault.place(name)}: {fault.words(self.request.max_categories)}. {fault.advice(given)}"
            )
        elif faults:
            shown = [
                f"{_short(name)} ({fault.words(self.request.max_categories, short=True)})"
                for name, fault in list(faults.items())[:MOST_FAULTS]
            ]
            more = f" and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
            advice = dict.fromkeys(fault.advice(given) for fault in faults.values())
            sentences.append(
                f"{len(faults)} columns cannot be used: {', '.join(shown)}{more}. {' '.join(advice)}"
            )
        if sentences:
            kinds = {name: fault.kind for name, fault in faults.items()}
            raise TableError(f"{self.path}, {' Also '.join(sentences)}", kinds)


@dataclass(frozen=True)
class CellFault:
    """Why a column cannot be used: the kind, and the line and text of the cell that showed it."""

    kind: str
    line: int
    text: str

    def place(self, name: str) -> str:
        """Where to look."""
        return (
            f"column {name!r}"
            if self.kind in ("texts", "dates", "type")
            else f"line {self.line}, column {name!r}"
        )

    def words(self, most: int, short: bool = False) -> str:
        """What is wrong."""
        line = f"line {self.line}: " if short else ""
        example, number = _short(self.text, 30), is_number(self.text)
        other = "texts" if number else "numbers"
        is_one = "is a number" if number else "is not a number"
        whole = f"{_short(self.text)} {is_one}, while other cells of the column are {other}"
        return {
            "mixed": f"{line}{example} among {other}" if short else whole,
            "texts": f"more than {most} different texts, such as {example}",
            "dates": f"more than {most} dates, such as {example}",
            "infinite": f"{line}{_short(self.text)} is not finite",
            "empty": "every cell is missing",
            "type": f"values of type {self.text} are not supported",
        }[self.kind]

    def advice(self, given: bool) -> str:
        """What to do; ``given``: the columns and their kinds are those of a model."""
        if self.kind == "mixed":
            return (
                "Correct it." if given else "Correct it, drop the column, or declare the column categorical."
            )
        return {
            "texts": "Drop names and free texts, or allow more categories.",
            "dates": "Drop dates, or turn them into numbers (a year, a month, days since a day).",
            "infinite": "Replace what is not finite, or delete the row.",
            "empty": "Drop the column that is empty.",
            "type": "Turn such values into numbers or texts, or drop the column.",
        }[self.kind]


def count_rows(lines: Sequence[int], most: int = 6) -> str:
    """``3 rows (lines 4, 9, 12)``, the list cut where it is long."""
    shown = ", ".join(str(line) for line in lines[:most]) + (", ..." if len(lines) > most else "")
    if len(lines) == 1:
        return f"1 row (line {shown})"
    return f"{len(lines)} rows (lines {shown})"


WHOLE = re.compile(r"[+-]?\d+")


def _are_names(labels: Sequence[str]) -> bool:
    """Whether these whole numbers are names: one of them is not written as the number that it stands for would be."""
    if not all(WHOLE.fullmatch(text) for text in labels):
        return False
    return any(str(int(text)) != text or abs(int(text)) > 2**53 for text in set(labels))


def check_finite_target(y: np.ndarray, lines: Any, where: str) -> None:
    """Refuse a target with infinite values, and say where they are."""
    bad = np.flatnonzero(~np.isfinite(y))
    if len(bad):
        raise TableError(
            f"{where}: {y[bad[0]]} is not finite, in {count_rows([int(lines[k]) for k in bad])}. Replace it, or "
            "delete the row."
        )


def whole_if_possible(y: np.ndarray) -> np.ndarray:
    """The same numbers as integers when they are."""
    whole = np.all(y == np.round(y)) and np.all(np.abs(y) < 2**53)
    return y.astype(np.int64) if whole else y


def is_number(text: str) -> bool:
    """Whether a cell reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def name_some(names: Sequence[str], most: int = 6) -> str:
    """A list of names that stays short."""
    shown = ", ".join(_short(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _alike(absent: Sequence[str], header: Sequence[str]) -> str:
    """A question with the columns most like those that are not there, or ""; long names are not looked at."""
    known = [name for name in header[:5000] if len(name) <= 60]
    alike = [found for name in absent[:6] if len(name) <= 60 for found in get_close_matches(name, known, n=1)]
    return f" Did you mean {name_some(list(dict.fromkeys(alike)))}?" if alike else ""


def _short(text: str, most: int = 60) -> str:
    return repr(text if len(text) <= most else text[: most - 3] + "...")
