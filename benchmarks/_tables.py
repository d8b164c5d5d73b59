"""Tables from measurements: first the figures as plain data, then their drawing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from _measure import median
from _suites import CROSS_VALIDATION, LARGE, OURS, OWN_GRID
from rich import box
from rich.console import Console
from rich.table import Table

__all__ = ["show", "tables"]

Measurement = dict[str, Any]
Rows = tuple[str, list[str], list[list[str]]]

COLUMNS: dict[str, tuple[str, ...]] = {
    "svr": ("objective", "excess", "test_error", "excess_risk"),
    "groups": ("objective", "excess", "test_error", "excess_risk"),
    "features": ("objective", "test_error", "excess_risk"),
    "classification": ("objective", "excess", "cv_error", "test_error"),
    "sparse": ("objective", "excess", "test_error", "peak_bytes"),
}
TITLES = {
    "objective": "CV objective",
    "excess": "excess over foldwise",
    "test_error": "test error",
    "excess_risk": "excess risk",
    "cv_error": "CV error",
    "peak_bytes": "peak MB",
}
SUITE_TITLES = {
    "svr": "(C, epsilon) of a linear SVR, 5 folds, 100 features",
    "groups": "ten hyper-parameters: C and epsilon of five groups of samples",
    "features": "one penalty per feature, 100 features, 5,000 rows",
    "classification": "C of linear classifiers",
    "sparse": "C of a sparse text classifier",
}


def tables(measurements: list[Measurement]) -> list[Rows]:
    """Title, header and rows of every table; figures are medians over seeds, ratios are taken seed by seed."""
    out = []
    for suite, title in SUITE_TITLES.items():
        part = [m for m in measurements if m["suite"] == suite]
        if part:
            out.append(_details(suite, title, part))
            if suite in ("svr", "groups"):
                out.append(_summary(title, part))
                growth = _growth(part)
                if growth:
                    out.append(growth)
    return out


def show(console: Console, measurements: list[Measurement]) -> None:
    """Draw every table, then the remarks that belong to figures."""
    for title, header, rows in tables(measurements):
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", header_style="")
        for i, name in enumerate(header):
            table.add_column(name, justify="left" if i < 2 else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    remarks = {f"{m['method']}, n = {m['n']}: {m['note']}" for m in measurements if m["note"]}
    remarks |= {
        f"{m['method']}, {m['data']}, n = {m['n']}, seed {m['seed']}: {m['unconverged']} fits did not converge"
        for m in measurements
        if m["unconverged"]
    }
    remarks |= {
        f"{m['method']}, {m['data']}, n = {m['n']}, seed {m['seed']}: the judge finds {m['objective']:.8g}, the "
        f"search itself {m['own_objective']:.8g}"
        for m in measurements
        if m["method"] == OURS and _judged(m) and abs(m["own_objective"] / m["objective"] - 1) > 1e-6
    }
    remarks |= {
        f"{m['method']}, {m['data']}, n = {m['n']}, seed {m['seed']}: not judged, training did not converge"
        for m in measurements
        if m["params"] and not _judged(m)
    }
    for remark in sorted(remarks):
        console.print(remark, highlight=False)


def _details(suite: str, title: str, part: list[Measurement]) -> Rows:
    """One row per case and method."""
    header = ["data", "method", *(TITLES[name] for name in COLUMNS[suite])]
    header += ["seconds", "in CVs", "times ours", "evals"]
    rows = []
    for case, methods in _cases(part).items():
        base, unit = methods.get(OURS, {}), methods.get(CROSS_VALIDATION, {})
        for i, (method, seeds) in enumerate(methods.items()):
            cells = [_figure(name, seeds, base) for name in COLUMNS[suite]]
            numbers = [
                median(m["seconds"] for m in seeds.values()),
                _ratio(seeds, unit, "seconds"),
                _ratio(seeds, base, "seconds"),
                median(m["evaluations"] for m in seeds.values()),
            ]
            rows.append(["" if i else case, method, *cells, *map(_number, numbers)])
    used = [k for k in range(len(header)) if any(row[k] != "-" for row in rows)]
    return title, [header[k] for k in used], [[row[k] for k in used] for row in rows]


def _figure(name: str, seeds: dict[int, Measurement], base: dict[int, Measurement]) -> str:
    if name == "excess":
        worst = [
            m["objective"] / base[s]["objective"] - 1
            for s, m in seeds.items()
            if s in base and _judged(m, base[s])
        ]
        return f"{np.median(worst):+.1e}" if worst else "-"
    if name == "peak_bytes":
        return _number(median(m.get(name) for m in seeds.values()) / 1e6)
    value = median(m.get(name) for m in seeds.values())
    return "-" if np.isnan(value) else f"{value:.5f}"


def _judged(*measurements: Measurement) -> bool:
    """Whether all have an objective from the common judge."""
    return all(m["objective"] is not None for m in measurements)


def _summary(title: str, part: list[Measurement]) -> Rows:
    """One row per case: how many cross-validations a selection costs and how many times slower each peer is."""
    peers = [m for m in dict.fromkeys(m["method"] for m in part) if m not in (OURS, CROSS_VALIDATION)]
    header = [
        "data",
        "seconds",
        "in CVs",
        *(f"x {name}" for name in peers),
        "worst excess of ours over a peer",
    ]
    rows = []
    for case, methods in _cases(part).items():
        base = methods[OURS]
        cells = [case, _number(median(m["seconds"] for m in base.values()))]
        cells.append(_number(_ratio(base, methods.get(CROSS_VALIDATION, {}), "seconds")))
        cells += [_number(_ratio(methods.get(peer, {}), base, "seconds")) for peer in peers]
        excess = [
            base[s]["objective"] / m["objective"] - 1
            for peer in peers
            for s, m in methods.get(peer, {}).items()
            if _judged(m, base[s])
        ]
        cells.append(f"{max(excess):+.1e}" if excess else "-")
        rows.append(cells)
    return f"{title}: summary (seconds of foldwise; x: times slower than foldwise)", header, rows


def _growth(part: list[Measurement]) -> Rows | None:
    """How seconds grow from 10,000 to 100,000 rows."""
    rows = []
    for data in dict.fromkeys(m["data"] for m in part):
        for method in dict.fromkeys(m["method"] for m in part):
            pick = [m for m in part if (m["data"], m["method"]) == (data, method)]
            small, large = (median(m["seconds"] for m in pick if m["n"] == n) for n in (LARGE // 10, LARGE))
            if np.isfinite(small) and np.isfinite(large):
                rows.append([str(data), method, _number(large / small)])
    return (
        ("growth of the time from 10,000 to 100,000 rows", ["data", "method", "factor"], rows)
        if rows
        else None
    )


def _cases(part: list[Measurement]) -> dict[str, dict[str, dict[int, Measurement]]]:
    """Measurements by case, method and seed; our method first."""
    out: dict[str, dict[str, dict[int, Measurement]]] = {}
    order: Callable = {OURS: 0, OWN_GRID: 1}.get
    for m in sorted(part, key=lambda m: (str(m["data"]), m["n"], order(m["method"], 2))):
        label = ", ".join([str(m["data"]), *([m["loss"]] if "loss" in m else []), f"n = {m['n']}"])
        out.setdefault(label, {}).setdefault(m["method"], {})[m["seed"]] = m
    return out


def _ratio(above: dict[int, Measurement], below: dict[int, Measurement], name: str) -> float:
    return median(above[s][name] / below[s][name] for s in above if s in below)


def _number(value: float | None) -> str:
    return (
        "-" if value is None or np.isnan(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    )
