"""Callbacks: objects to hand to a search, called with one :class:`~foldwise.result.Record` per evaluation.

Any callable will do: it gets the record, and a search stops after the current evaluation when it returns True.
"""

from __future__ import annotations

import json
import math
import sys
import time
from html import escape
from pathlib import Path
from typing import Any

from foldwise.result import as_json
from foldwise.wording import format_params, format_record

__all__ = ["JsonLines", "ProgressBar", "TimeLimit", "format_params"]


class ProgressBar:
    """Show how far a search has come: objective, best, gradient norm, hyper-parameters, time.

    Inside a ``with`` block on a terminal or in a notebook one line is kept up to date in place. Elsewhere (a pipe, a
    log file, or used as a plain callback) a line is printed for the first record, then at most one per ``interval``
    seconds; leaving the block prints the last record if it was held back.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write; standard error by default.
    interval : float, default=1.0
        Shortest time between two plain lines, in seconds.
    budget : float, optional
        Seconds that the search may take, to be shown beside those it has taken.
    title : str
        What is running, shown first.

    Examples
    --------
    >>> from foldwise.callbacks import ProgressBar
    >>> with ProgressBar() as progress:
    ...     pass  # BilevelSearchCV(model, callbacks=[progress]).fit(X, y)
    """

    def __init__(
        self, console: Any = None, *, interval: float = 1.0, budget: float | None = None, title: str = ""
    ):
        self.console = console
        self.interval = interval
        self.budget = budget
        self.title = title
        self._live: Any = None
        self._spinner: Any = None
        self._cell: Any = None
        self._held_back: Any = None
        self._best: Any = None
        self._last_line = -math.inf

    def __enter__(self) -> ProgressBar:
        if self.console is None and _in_notebook():
            from IPython.display import HTML, display

            self._cell = display(HTML("<p>starting</p>"), display_id=True)
            return self
        console = self._get_console()
        if console.is_terminal:
            from rich.live import Live
            from rich.spinner import Spinner

            self._spinner = Spinner("dots", text=f"{self.title} starting".lstrip())
            self._live = Live(self._spinner, console=console, transient=True, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._cell is not None:
            if self._held_back is not None:
                self._show(self._held_back)
            self._cell = None
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._held_back is not None:
            self._print(self._held_back)
        self._last_line = -math.inf

    def __call__(self, record: Any) -> None:
        if self._cell is not None:
            if time.monotonic() - self._last_line >= 0.1:  # a notebook's messages queue up
                self._show(record)
            else:
                self._held_back = record
        elif self._live is not None:
            self._spinner.update(text=self._panel(record))
        elif time.monotonic() - self._last_line >= self.interval:
            self._print(record)
        else:
            self._held_back = record

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgressBar:
        # scikit-learn's clone copies parameters; a copy must write to the same screen.
        return self

    def _panel(self, record: Any) -> Any:
        """The record as a few lines that are kept in place on a terminal."""
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis")
        place = f"{record.evaluation + 1}" + (f", start {record.start + 1}" if record.start else "")
        rows = {self.title or "search": f"evaluation {place} {record.note}".rstrip()}
        rows["objective"] = f"{record.objective:.6g}, best {record.best:.6g}"
        rows["gradient"] = self._gradient(record)
        rows["values"] = format_params(record.params)
        rows["time"] = f"{record.elapsed:.1f} s" + self._limit()
        for name, text in rows.items():
            grid.add_row(Text(name), Text(text))
        return grid

    def _gradient(self, record: Any) -> str:
        """Norm at this point or, since methods differentiate a point only after they have looked at it, at the best."""
        norms = [(record, ""), (self._best, " at the best point before")]
        if record.admissible and record.objective <= record.best:
            self._best = record
        for one, where in norms:
            if one is not None and one.gradient_norm is not None and math.isfinite(one.gradient_norm):
                return f"norm {one.gradient_norm:.2g}{where}"
        return "not known yet"

    def _limit(self) -> str:
        return "" if self.budget is None else f" of {self.budget:g} s"

    def _line(self, record: Any) -> str:
        """The record as one line."""
        words = format_record(record)
        words = words.replace(f"{record.elapsed:.1f} s", f"{record.elapsed:.1f} s{self._limit()}", 1)
        return f"{self.title} | {words}" if self.title else words

    def _print(self, record: Any) -> None:
        self._get_console().print(
            self._line(record), markup=False, highlight=False, soft_wrap=True, emoji=False
        )
        self._held_back = None
        self._last_line = time.monotonic()

    def _show(self, record: Any) -> None:
        """The record as HTML in the notebook's cell."""
        from IPython.display import HTML

        self._cell.update(HTML(f"<p>{escape(self._line(record))}</p>"))
        self._held_back = None
        self._last_line = time.monotonic()

    def _get_console(self) -> Any:
        if self.console is None:
            from rich.console import Console

            self.console = Console(stderr=True)
        return self.console


class TimeLimit:
    """Stop a search at the first evaluation that ends after ``seconds``.

    Parameters
    ----------
    seconds : float
        Limit, compared with ``record.elapsed``: the time since the search began.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> limit = TimeLimit(10)
    >>> limit(SimpleNamespace(elapsed=3.0)), limit(SimpleNamespace(elapsed=12.0))
    (False, True)
    """

    def __init__(self, seconds: float):
        if not seconds > 0:
            raise ValueError(f"TimeLimit needs a positive number of seconds; got {seconds!r}.")
        self.seconds = seconds

    def __call__(self, record: Any) -> bool:
        return bool(record.elapsed >= self.seconds)

    def __repr__(self) -> str:
        return f"TimeLimit({self.seconds!r})"


class JsonLines:
    """Append every record to a file, one JSON object per line.

    The file is opened and closed for each record, so a search that dies loses nothing that was evaluated. Numbers
    that JSON lacks (nan, inf) are written as null.

    Parameters
    ----------
    path : str or Path
        File to append to; its folder must exist.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise ValueError(
                f"JsonLines needs a folder that exists; got {self.path}. Create the folder first."
            )

    def __call__(self, record: Any) -> None:
        line = json.dumps(as_json(record), allow_nan=False)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def __repr__(self) -> str:
        return f"JsonLines({str(self.path)!r})"


def _in_notebook() -> bool:
    """Whether output goes to a notebook's cell: IPython is loaded and runs a kernel, not a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
