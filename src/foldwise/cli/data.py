"""From a file to training and test rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foldwise.cli import options
from foldwise.cli.app import InputError, say
from foldwise.cli.models import choose_task, preparation

if TYPE_CHECKING:
    from foldwise.tables import Table

__all__ = ["Rows", "load", "nested_splits"]

MOST_OPTIONS = 20
"""Columns for which a hint spells out the options."""

Pair = tuple[Any, Any]
"""``(X, y)``."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A table and how it is used.

    ``train`` and ``test`` are pairs ``(X, y)``, ``test`` None where nothing is held out; ``before`` holds the steps
    that every fold fits for itself.
    """

    table: Table
    task: str
    train: Pair
    test: Pair | None
    before: Any
    imputes: bool = False

    @property
    def metric(self) -> str:
        """What errors are counted in."""
        return "misclassified" if self.task == "classification" else "mean squared error"

    @property
    def scoring(self) -> str:
        """scikit-learn's name for it."""
        return "accuracy" if self.task == "classification" else "neg_mean_squared_error"

    def error(self, score: float) -> float:
        """The error that a score means."""
        return float(1.0 - score if self.task == "classification" else -score)

    def unseen(self) -> str:
        """A sentence about test rows whose label no training row has; "" without any."""
        import numpy as np

        from foldwise.tables.codes import name_some

        if self.task != "classification" or self.test is None:
            return ""
        strange = np.setdiff1d(self.test[1], self.train[1])
        if not len(strange):
            return ""
        count = int(np.sum(np.isin(self.test[1], strange)))
        return (
            f"{count} of {len(self.test[1])} test rows have a label that no training row has, and each counts as "
            f"misclassified: {name_some([str(label) for label in strange])}"
        )

    def test_error(self, fitted: Any) -> float | None:
        """Error of a fitted estimator on the test rows; None without any."""
        return None if self.test is None else self.error_on(fitted, self.test)

    def error_on(self, fitted: Any, rows: Pair) -> float:
        """Error of a fitted estimator on some rows."""
        import numpy as np

        X, y = rows
        predicted = fitted.predict(X)
        return float(
            np.mean(predicted != y) if self.task == "classification" else np.mean((predicted - y) ** 2)
        )


def load(asked: options.Data, test_size: float, cv: int, seed: int, quiet: bool) -> Rows:
    """Read a table, and a second one for the test or hold rows out, and say what was made of them."""
    from foldwise.outputs import is_same

    if asked.test is not None and is_same(asked.data, asked.test):
        raise InputError(
            f"--test {asked.test} is the data itself, and a model is not tested on the rows it was fitted to.",
            "give a file with other rows, or --test-size.",
        )
    if asked.max_categories < 1:
        raise InputError(f"--max-categories must be at least 1; got {asked.max_categories}.", "try 50.")
    table = _read(asked)
    assert table.y is not None
    kind, reason = choose_task(asked.task, table.y, table.lines)
    say(f"{len(table.y)} rows, {len(table.columns)} features; {kind} ({reason})", quiet)
    held, missing = None, dict(table.missing)
    if asked.test is not None:
        other = _read_test(asked, asked.test, table)
        held = (_like(table.X, other.X), other.y)
        missing |= other.missing
    _tell(table, missing, quiet)
    before = preparation(table, list(missing))
    if held is not None:
        check_counts(table.y, kind, 0.0, cv)
        rows = Rows(table, kind, (table.X, table.y), held, before, bool(missing))
        if rows.unseen():
            say(f"warning: {rows.unseen()}", quiet)
        return rows
    train, held = split(table.X, table.y, kind, test_size, cv, seed)
    return Rows(table, kind, train, held, before, bool(missing))


def _read(asked: options.Data) -> Table:
    from foldwise.tables import TableError, format_of, read_table

    chosen = format_of(asked.data) if asked.format == "auto" else asked.format
    if asked.target is None and chosen != "svmlight":
        raise InputError("--target is missing: the name of the column to predict.", "add --target NAME.")
    try:
        return read_table(
            asked.data,
            asked.target,
            drop=asked.drop or (),
            format=asked.format,
            categorical=asked.categorical or (),
            max_categories=asked.max_categories,
        )
    except TableError as error:
        raise InputError(str(error), _ways_out(error.faults)) if error.faults else error from None


def _read_test(asked: options.Data, path: Path, table: Table) -> Table:
    """The test rows, with the columns and categories of the training rows."""
    from foldwise.tables import format_of, named_format, read_table

    form = asked.format if asked.format != "auto" and not named_format(path) else "auto"
    target = None if "svmlight" in (form, form == "auto" and format_of(path)) else asked.target
    other = read_table(path, target, columns=table.columns, categories=table.categories, format=form)
    assert table.y is not None
    assert other.y is not None
    if (other.y.dtype.kind == "U") != (table.y.dtype.kind == "U"):
        raise InputError(
            f"the targets of {asked.data} and {path} are of different kinds.", "correct one of them."
        )
    return other


def _ways_out(faults: dict[str, str]) -> str:
    """The options that do away with columns that cannot be used."""
    from shlex import quote

    drop = " ".join(f"--drop {quote(name)}" for name in list(faults)[:MOST_OPTIONS])
    ways = [drop + (" and so on" if len(faults) > MOST_OPTIONS else "")]
    mixed = [name for name, kind in faults.items() if kind == "mixed"]
    if mixed:
        ways.append(" ".join(f"--categorical {quote(name)}" for name in mixed[:MOST_OPTIONS]))
    if "texts" in faults.values():
        ways.append("--max-categories N")
    return "add " + ", or ".join(ways) + "."


def _like(X: Any, other: Any) -> Any:
    """The second array as dense or as sparse as the first."""
    import scipy.sparse as sp

    if sp.issparse(X) == sp.issparse(other):
        return other
    return sp.csr_matrix(other) if sp.issparse(X) else other.toarray()


def _tell(table: Table, missing: dict[str, tuple[int, int]], quiet: bool) -> None:
    """What was done with columns that are not plain numbers."""
    from foldwise.tables.codes import name_some

    if table.categories:
        say(f"categories, one 0/1 column each: {name_some(list(table.categories))}", quiet)
    if missing:
        total = sum(count for count, _ in missing.values())
        say(f"{total} missing cells get the median of the training rows: {name_some(list(missing))}", quiet)


def check_counts(y: Any, task: str, test_size: float, cv: int) -> None:
    """Refuse rows or classes that are too few for the folds."""
    import numpy as np

    n_test = int(np.ceil(test_size * len(y)))
    if len(y) - n_test < cv:
        raise InputError(
            f"{len(y)} rows are too few for {cv} folds and a test share of {test_size:g}.",
            "lower --cv or --test-size.",
        )
    if task == "classification":
        labels, counts = np.unique(y, return_counts=True)
        rarest = int(np.argmin(counts))
        needed = cv if test_size == 0 else int(np.ceil(cv / (1 - test_size))) + 1
        if counts[rarest] < needed:
            raise InputError(
                f"class {labels[rarest]!s} has {counts[rarest]} rows; {cv} folds and a test share of "
                f"{test_size:g} need {needed}.",
                "lower --cv, or merge or remove the class.",
            )


def split(X: Any, y: Any, task: str, test_size: float, cv: int, seed: int) -> tuple[Pair, Pair | None]:
    """Training and test rows; classes keep their shares."""
    from sklearn.model_selection import train_test_split

    check_counts(y, task, test_size, cv)
    if test_size == 0:
        return (X, y), None
    stratify = y if task == "classification" else None
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=test_size, random_state=seed, stratify=stratify
    )
    return (X_train, y_train), (X_test, y_test)


def nested_splits(data: Rows, count: int, cv: int, splitter: Any) -> list[tuple[Pair, Pair]]:
    """Training and test rows of every outer fold."""
    X, y = data.train
    check_counts(y, data.task, 1.0 / count, cv)
    return [((X[a], y[a]), (X[b], y[b])) for a, b in splitter.split(X, y)]
