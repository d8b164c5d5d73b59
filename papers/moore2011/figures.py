"""Figures 6 to 9: generalization against the size of the modelling set, and how time grows.

Figures 6 to 8 draw the multiSVR columns of tables 3 and 4. Figure 9 has no published figures beyond the two of table 4
at 1,000 points (one and five groups). Left: published; right: ours, on substitutes (see ``substitutes.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers import frame
from papers.moore2011 import substitutes
from papers.moore2011.methods import IMPGRAD, NEWTON, PBP, try_method
from papers.moore2011.tables import outcomes, statement, summary

__all__ = ["figure6", "figure7", "figure8", "figure9"]

COLOURS = {"GRID FINE": "C4", "GRID COARSE": "C0", IMPGRAD: "C1", PBP: "C2", NEWTON: "C3"}


def series(rows: Sequence[dict[str, Any]], quantity: str) -> dict[str, list[tuple[float, float, float]]]:
    """Points (n, mean, sd) of every method for one column of the multiSVR rows."""
    out: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        if row["model"] == "multiSVR" and row.get(f"{quantity}_mean") is not None:
            point = (row["n"], row[f"{quantity}_mean"], row.get(f"{quantity}_sd") or 0.0)
            out.setdefault(row["method"], []).append(point)
    return out


def draw(axes: Any, lines: dict[str, list[tuple[float, float, float]]], heading: str, x: str, y: str) -> None:
    """One panel with error bars."""
    for name, points in lines.items():
        n, mean, sd = np.array(points).T
        axes.errorbar(n, mean, yerr=sd, marker="o", markersize=3, capsize=2, label=name, color=COLOURS[name])
    axes.set(title=heading, xlabel=x, ylabel=y)
    axes.legend(fontsize="small")


def from_table(
    table: str, name: str, quantity: str, label: str, quick: bool, data_dir: Path | None, out: Path | None
) -> None:
    """A figure whose points are a column of a table."""
    frame.title(f"moore2011, {name.replace('figure', 'figure ')}: {label}, multiSVR, five groups")
    frame.note(statement(table, quick, data_dir))
    rows = summary(table, outcomes(table, quick, data_dir))
    columns = [series(rows, quantity), series(rows, f"ours_{quantity}")]
    lines, table_rows = [], []
    digits = 3 if quantity == "mse" else 2
    for method in dict.fromkeys([*columns[0], *columns[1]]):
        for n in sorted({point[0] for column in columns for point in column.get(method, [])}):
            cells = [
                next((p for p in column.get(method, []) if p[0] == n), (n, None, None)) for column in columns
            ]
            lines.append(
                [f"{int(n):>5}  {method}", *(frame.spread(mean, sd, digits) for _, mean, sd in cells)]
            )
            table_rows.append(
                {
                    "n": int(n),
                    "method": method,
                    f"{quantity}_mean": cells[0][1],
                    f"{quantity}_sd": cells[0][2],
                    f"ours_{quantity}_mean": cells[1][1],
                    f"ours_{quantity}_sd": cells[1][2],
                }
            )
    print()
    frame.print_table(["n  method", f"{label}, published", f"{label}, ours"], lines)
    if quick:
        frame.note("Quick run: two splits, two sizes, 30 features, and no grid of 1,024 points.")
    frame.write_csv(out, f"moore2011-{name}", table_rows)
    with frame.figure(out, f"moore2011-{name}", panels=2) as panels:
        if panels is not None:
            for axes, column, side in zip(
                panels, columns, ("published", "ours, substitute data"), strict=True
            ):
                draw(axes, column, side, "modelling rows", label)
                axes.set_xscale("log")
                if quantity == "seconds":
                    axes.set_yscale("log")


def figure6(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Generalization on pyruvate kinase."""
    from_table("table3", "figure6", "mse", "generalization MSE", quick, data_dir, out)


def figure7(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Generalization on tau-fibril."""
    from_table("table4", "figure7", "mse", "generalization MSE", quick, data_dir, out)


def figure8(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Time against the number of modelling rows, tau-fibril, ten hyper-parameters."""
    from_table("table4", "figure8", "seconds", "seconds", quick, data_dir, out)


def figure9(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Time against the number of hyper-parameters, tau-fibril, 1,000 modelling rows, one to five groups.

    With fewer than five groups, neighbouring quality groups are merged.
    """
    data = substitutes.tau(quick)
    n, splits = (data.sizes[-1], 1) if quick else (1000, 10)
    frame.title(f"moore2011, figure 9: time against the number of hyper-parameters, {n} modelling rows")
    frame.note(data.statement)
    known = {
        (row["method"], row["model"]): row
        for row in frame.published("moore2011", "table4")
        if row["n"] == 1000
    }
    rows, lines = [], []
    for method in (IMPGRAD, PBP, NEWTON):
        for n_groups in range(1, substitutes.N_GROUPS + 1):
            model = {1: "SVR", substitutes.N_GROUPS: "multiSVR"}.get(n_groups, "")
            source = known.get((method, model), {})
            row = {
                "method": method,
                "hyper_parameters": 2 * n_groups,
                "seconds_mean": source.get("seconds_mean"),
                "seconds_sd": source.get("seconds_sd"),
            }
            merged = data.group * n_groups // substitutes.N_GROUPS
            own = "multiSVR" if n_groups > 1 else "SVR"
            runs = [try_method(method, own, data, n, seed, merged) for seed in range(splits)]
            row["ours_seconds_mean"], row["ours_seconds_sd"] = frame.mean_sd([run.seconds for run in runs])
            evaluations, _ = frame.mean_sd([run.evaluations for run in runs])
            row["ours_evaluations_mean"] = evaluations
            rows.append(row)
            lines.append(
                [
                    f"{2 * n_groups:>2}  {method}",
                    frame.spread(row["seconds_mean"], row["seconds_sd"], 1),
                    frame.spread(row.get("ours_seconds_mean"), row.get("ours_seconds_sd")),
                    frame.spread(evaluations, digits=0),
                ]
            )
    print()
    frame.print_table(["hyper-parameters, method", "s, published", "s, ours", "evals"], lines)
    frame.note(
        "Published: the two ends, which are rows of table 4; the figure's points between are not given as figures."
    )
    frame.write_csv(out, "moore2011-figure9", rows)
    with frame.figure(out, "moore2011-figure9", panels=2) as panels:
        if panels is not None:
            for axes, prefix, side in zip(
                panels, ("", "ours_"), ("published (ends)", "ours, generated data"), strict=True
            ):
                lines_of: dict[str, list[tuple[float, float, float]]] = {}
                for row in rows:
                    if row.get(f"{prefix}seconds_mean") is not None:
                        point = (
                            row["hyper_parameters"],
                            row[f"{prefix}seconds_mean"],
                            row[f"{prefix}seconds_sd"] or 0.0,
                        )
                        lines_of.setdefault(row["method"], []).append(point)
                draw(axes, lines_of, side, "hyper-parameters", "seconds")


def every(quick: bool, data_dir: Path | None, out: Path | None) -> None:
    """Figures 6 to 9."""
    for run in (figure6, figure7, figure8, figure9):
        run(quick, data_dir, out)


if __name__ == "__main__":
    frame.command(every)
