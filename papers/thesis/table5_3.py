"""Table 5.3: fourclass, a grid over (c, gamma) against L-BFGS-B and RPROP from four starts.

What agrees and what does not:

- Hmin depends on the split, which is not published; so do scale and sizes (see ``fourclass.py``). On one split our
  methods end at the same Hmin to about four digits from every start, L-BFGS-B and RPROP alike. The published values
  differ by up to 0.6% from start to start; the thesis blames the flat surface and an inner precision of 1e-4.
- The order of the losses agrees: the quartic hinge, nearer to the hinge itself, reaches a lower Hmin.
- The grid's Hmin lies above the one of the searches, published and ours.
- L-BFGS-B: SciPy's line search needs 7 to 20 evaluations from every start, the thesis's implementation 16 to 184.
- RPROP stops when every step is below 1e-3, with a first step of 0.1; the thesis gives neither. Ours takes
  24 to 28 evaluations on average, the thesis's 39 and 43.
- Seconds are not those of one machine and are printed for the ratio of grid to search only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from papers import frame
from papers.thesis import bikernel, fourclass

__all__ = ["run"]


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 5.3 beside the published one."""
    frame.title("thesis, table 5.3: a grid over (c, gamma) against the bikernel machine (fourclass)")
    all_tasks, statement = fourclass.tasks(2 if quick else 20, data_dir, quick)
    frame.note(statement)
    known = bikernel.known("5.3")
    starts = [f"{c:g} {gamma:g}" for c, gamma in fourclass.STARTS]
    # 1. Every start, loss and method on every split; grids on some.
    found: dict[str, list[dict[str, float]]] = {name: [] for name in known}
    spreads = []
    for task in all_tasks:
        for loss in fourclass.LOSSES:
            ends = []
            for method in fourclass.METHODS:
                four = []
                for start, name in zip(fourclass.STARTS, starts, strict=True):
                    four.append(_summary(fourclass.search(task, loss, method, start)))
                    found[f"{name} {loss} {method}"].append(four[-1])
                found[f"mean {loss} {method}"].append(
                    {key: float(np.mean([one[key] for one in four])) for key in four[0]}
                )
                ends += [one["H_min"] for one in four]
            spreads.append(max(ends) / min(ends) - 1.0)
    n_grids = 1 if quick else 3
    gains = []
    for k, task in enumerate(all_tasks[:n_grids]):
        for loss in fourclass.LOSSES:
            found[f"grid {loss}"].append(_summary(fourclass.grid(task, loss, quick)))
            best = found[f"mean {loss} lbfgsb"][k]["H_min"]
            gains.append(found[f"grid {loss}"][-1]["H_min"] / best - 1.0)
    # 2. Side by side.
    rows, lines = [], []
    for name, figures in known.items():
        row: dict[str, Any] = {"row": name, **{f"published_{key}": value for key, value in figures.items()}}
        for key in ("evaluations", "H_min", "seconds"):
            values = [one[key] for one in found[name]]
            row |= {f"ours_{key}_mean": float(np.mean(values)), f"ours_{key}_min": min(values)}
            row[f"ours_{key}_max"] = max(values)
        rows.append(row)
        lines.append(
            [
                name.replace("mean", "mean of four starts:"),
                f"{figures['evaluations']:.0f} | {row['ours_evaluations_mean']:.0f} "
                f"({row['ours_evaluations_min']:.0f} to {row['ours_evaluations_max']:.0f})",
                f"{figures['H_min']:.5f} | {row['ours_H_min_mean']:.5f} "
                f"({row['ours_H_min_min']:.5f} to {row['ours_H_min_max']:.5f})",
                f"{figures['seconds']:.2f} | {row['ours_seconds_mean']:.2f}",
            ]
        )
    print()
    frame.print_table(["start (c, gamma), loss, method", "evaluations", "Hmin", "seconds"], lines)
    frame.note(
        f"published | ours, mean (and range) over {len(all_tasks)} random splits, {n_grids} for the grids; the "
        "thesis's split is not known."
    )
    below = {
        loss: sum(
            one["H_min"] <= known[f"mean {loss} lbfgsb"]["H_min"] for one in found[f"mean {loss} lbfgsb"]
        )
        for loss in fourclass.LOSSES
    }
    frame.note(
        "Splits on which the mean Hmin of L-BFGS-B is at or below the published one: "
        + ", ".join(f"{loss} {count} of {len(all_tasks)}" for loss, count in below.items())
        + f". On one split the eight ends (four starts, two methods) differ by {100 * np.median(spreads):.2f}% in the "
        f"median and {100 * max(spreads):.2f}% at most. The grid's Hmin is above the mean of the searches on the same "
        f"split by {100 * min(gains):.1f} to {100 * max(gains):.1f}% (published: 0.6 and 0.9%)."
    )
    frame.write_csv(out, "thesis-table5.3", rows)


def _summary(result) -> dict[str, float]:
    return {
        "evaluations": float(result.n_evaluations),
        "H_min": 0.5 * result.objective,
        "seconds": result.elapsed,
    }


if __name__ == "__main__":
    frame.command(run)
