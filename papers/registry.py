"""The tables and figures that can be reproduced, by name.

``TABLES[name](quick, data_dir, out)`` runs one. A paper's short name stands for all of its tables and figures.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

Run = Callable[[bool, Path | None, Path | None], None]

SCRIPTS: dict[str, dict[str, tuple[str, str]]] = {
    "moore2011": {
        "table3": ("papers.moore2011.tables", "table3"),
        "table4": ("papers.moore2011.tables", "table4"),
        "figure4": ("papers.moore2011.small", "figure4"),
        "figure5": ("papers.moore2011.small", "figure5"),
        "figure6": ("papers.moore2011.figures", "figure6"),
        "figure7": ("papers.moore2011.figures", "figure7"),
        "figure8": ("papers.moore2011.figures", "figure8"),
        "figure9": ("papers.moore2011.figures", "figure9"),
        "equation27": ("papers.moore2011.equation27", "run"),
    },
    "lee2009": {
        "figure1": ("papers.lee2009.figures", "figure1"),
        "figure2": ("papers.lee2009.figures", "figure2"),
        "figure3": ("papers.lee2009.figures", "figure3"),
        "table1": ("papers.lee2009.table1", "run"),
    },
    "bennett2006": {
        "table1": ("papers.bennett2006.tables", "table1"),
        "table2": ("papers.bennett2006.tables", "table2"),
        "table3": ("papers.bennett2006.tables", "table3"),
    },
    "kunapuli2008": {
        "table2": ("papers.kunapuli2008.table2", "run"),
        "figure1": ("papers.kunapuli2008.figure1", "run"),
        "sdss": ("papers.kunapuli2008.sdss", "run"),
    },
    "thesis": {
        "table5.1": ("papers.thesis.table5_1", "run"),
        "table5.2": ("papers.thesis.table5_2", "run"),
        "table5.3": ("papers.thesis.table5_3", "run"),
        "table5.5": ("papers.thesis.table5_5", "run"),
        "table5.6": ("papers.thesis.table5_6", "run"),
        "table5.7": ("papers.thesis.table5_7", "run"),
        "figure5.2": ("papers.thesis.figure5_2", "run"),
        "figure5.4": ("papers.thesis.figures5_4", "figure5_4"),
        "figure5.5": ("papers.thesis.figures5_4", "figure5_5"),
        "figure5.6": ("papers.thesis.moons", "figure5_6"),
        "figure5.7": ("papers.thesis.moons", "figure5_7"),
        "figure5.8": ("papers.thesis.moons", "figure5_8"),
        "chapter6": ("papers.thesis.chapter6", "run"),
    },
}
"""Paper, table or figure -> module and function; the module is imported when its script runs."""


def _single(module: str, function: str) -> Run:
    def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
        getattr(import_module(module), function)(quick, data_dir, out)

    return run


def _all(runs: list[Run]) -> Run:
    def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
        for one in runs:
            one(quick, data_dir, out)

    return run


TABLES: dict[str, Run] = {}
for _paper, _scripts in SCRIPTS.items():
    _runs = {f"{_paper}-{_name}": _single(*_where) for _name, _where in _scripts.items()}
    TABLES[_paper] = _all(list(_runs.values()))
    TABLES |= _runs
