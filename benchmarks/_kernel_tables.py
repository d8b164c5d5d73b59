"""Tables of the kernel suites: ratios of times against both of ours, and test errors over splits."""

from __future__ import annotations

from typing import Any

import _tables
import numpy as np
from _kernel_suites import DROP_IN, DROP_IN_TUBE, EXACT
from _measure import median
from _suites import CROSS_VALIDATION, OURS
from _tables import Measurement, Rows
from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["show"]

TITLES = {
    "pair": "(C, gamma) of an RBF machine, 5 folds",
    "ard": "C and one width per feature",
    "mkl": "sum of RBF kernels on groups of columns",
}
COLUMNS = {
    "pair": ("objective", "cv_error", "test_error"),
    "ard": ("objective", "test_error"),
    "mkl": ("objective", "test_error"),
}


def show(console: Console, measurements: list[Measurement]) -> None:
    """Draw the tables of figures, then, for pairs, the ratios and the test errors."""
    _tables.SUITE_TITLES.update(TITLES)
    _tables.COLUMNS.update(COLUMNS)
    _tables.show(console, measurements)
    part = [m for m in measurements if m["suite"] == "pair"]
    if part:
        for title, header, rows in (ratios(part), errors(part)):
            table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", header_style="")
            for i, name in enumerate(header):
                table.add_column(name, justify="right" if i else "left")
            for row in rows:
                table.add_row(*row)
            console.print(table)


def ratios(part: list[Measurement]) -> Rows:
    """How many times slower each peer is than ours, the drop-in, and ours without landmarks."""
    mine = (OURS, DROP_IN, DROP_IN_TUBE, EXACT)
    peers = [m for m in dict.fromkeys(m["method"] for m in part) if m not in (*mine, CROSS_VALIDATION)]
    bases = {"ours": OURS, "drop-in": DROP_IN, "no landmarks": EXACT}
    header = ["data", *(f"{name} s" for name in bases), "ours in CVs"]
    header += [f"{peer} / {name}" for peer in peers for name in bases]
    rows = []
    for case, methods in _tables._cases(part).items():
        own = [methods.get(method, {}) for method in bases.values()]
        cells = [median(m["seconds"] for m in seeds.values()) for seeds in own]
        cells.append(_tables._ratio(own[0], methods.get(CROSS_VALIDATION, {}), "seconds"))
        for peer in peers:
            seeds = methods.get(peer, {})
            cells += [_tables._ratio(seeds, base, "seconds") for base in own]
        rows.append([case, *map(_tables._number, cells)])
    return "seconds, and how many times slower each peer is", header, rows


def errors(part: list[Measurement]) -> Rows:
    """Mean test error of every method over splits, and the standard error of its difference from the 7x7 grid's."""
    methods_seen = [m for m in dict.fromkeys(m["method"] for m in part) if m != CROSS_VALIDATION]
    header = ["data", "splits", *methods_seen]
    rows = []
    for case, methods in _tables._cases(part).items():
        base = _errors(methods.get("GridSearchCV 7x7", {}))
        cells = [case, str(max(len(seeds) for seeds in methods.values()))]
        for name in methods_seen:
            own = _errors(methods.get(name, {}))
            if not own:
                cells.append("-")
                continue
            text = f"{np.mean(list(own.values())):.4f}"
            gaps = [own[s] - base[s] for s in own if s in base]
            if len(gaps) > 1 and name != "GridSearchCV 7x7":
                error = np.std(gaps, ddof=1) / np.sqrt(len(gaps))
                text += f" ({np.mean(gaps):+.4f} ± {error:.4f})"
            cells.append(text)
        rows.append(cells)
    title = "test error, mean over splits (in brackets: minus the 7x7 grid's, with the standard error)"
    return title, header, rows


def _errors(seeds: dict[int, dict[str, Any]]) -> dict[int, float]:
    return {s: m["test_error"] for s, m in seeds.items() if m.get("test_error") is not None}
