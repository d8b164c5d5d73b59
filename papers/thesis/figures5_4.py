"""Figures 5.4 and 5.5: contours of H over (gamma, c) on fourclass, and the ways from four starts.

Figure 5.4 has the modified logarithmic loss, figure 5.5 the quartic hinge; to the left L-BFGS-B, to the right RPROP.
The split is the first of ``fourclass.py``, which says what else was chosen. For L-BFGS-B the line joins the points
that lowered H; the dots are all evaluations, those of the line searches included.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foldwise.result import Result
from papers import frame
from papers.thesis import bikernel, fourclass

__all__ = ["figure5_4", "figure5_5"]

COLOURS = ("black", "tab:red", "gold", "tab:blue")
"""Of the four starts, as published."""
GOOD = 0.03
"""The level of the darkest region in the published figures."""


def figure5_4(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Figure 5.4: the modified logarithmic loss."""
    _contours("5.4", "modified_log", quick, data_dir, out)


def figure5_5(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Figure 5.5: the quartic hinge."""
    _contours("5.5", "quartic", quick, data_dir, out)


def _contours(name: str, loss: str, quick: bool, data_dir: Path | None, out: Path | None) -> None:
    frame.title(f"thesis, figure {name}: H over (gamma, c) on fourclass, {loss.replace('_', ' ')} loss")
    (task,), statement = fourclass.tasks(1, data_dir, quick)
    frame.note(statement)
    known = bikernel.known("5.3")
    plan = fourclass.grid(task, loss, quick)
    points = np.array([[r.params["gamma"], r.params["c"], 0.5 * r.objective] for r in plan.history])
    ways = {
        (method, start): fourclass.search(task, loss, method, start)
        for method in fourclass.METHODS
        for start in fourclass.STARTS
    }
    rows: list[dict[str, Any]] = [_row("grid", None, k, record) for k, record in enumerate(plan.history)]
    lines = []
    for (method, start), result in ways.items():
        rows += [_row(method, start, k, record) for k, record in enumerate(result.history)]
        figures = known[f"{start[0]:g} {start[1]:g} {loss} {method}"]
        lines.append(
            [
                f"{method} from ({start[0]:g}, {start[1]:g})",
                f"{figures['evaluations']:.0f} | {result.n_evaluations}",
                f"{figures['H_min']:.5f} | {0.5 * result.objective:.5f}",
                f"({result.params['c']:.3f}, {result.params['gamma']:.3f})",
            ]
        )
    best = points[np.argmin(points[:, 2])]
    lines.append(
        [
            "grid",
            f"{known[f'grid {loss}']['evaluations']:.0f} | {len(points)}",
            f"{known[f'grid {loss}']['H_min']:.5f} | {best[2]:.5f}",
            f"({best[1]:.3f}, {best[0]:.3f})",
        ]
    )
    print()
    frame.print_table(["", "evaluations", "Hmin", "ours ends at (c, gamma)"], lines)
    frame.note(
        f"published | ours on one random split. The share of the grid with H below {GOOD} is "
        f"{100 * np.mean(points[:, 2] < GOOD):.0f}% here; the thesis calls that region sizeable."
    )
    with frame.figure(out, f"thesis-figure{name}", panels=2) as panels:
        if panels is not None:
            for panel, method in zip(panels, fourclass.METHODS, strict=True):
                _draw(panel, points, {start: ways[method, start] for start in fourclass.STARTS}, best)
                panel.set_title({"lbfgsb": "L-BFGS-B", "rprop": "RPROP"}[method])
    frame.write_csv(out, f"thesis-figure{name}", rows)


def _row(method: str, start: tuple[float, float] | None, k: int, record) -> dict[str, Any]:
    c0, gamma0 = (None, None) if start is None else start
    return {
        "method": method,
        "c_start": c0,
        "gamma_start": gamma0,
        "evaluation": k + 1,
        "c": record.params["c"],
        "gamma": record.params["gamma"],
        "H": 0.5 * record.objective,
    }


def _draw(panel, points: np.ndarray, ways: dict[tuple[float, float], Result], best: np.ndarray) -> None:
    from matplotlib.colors import BoundaryNorm

    levels = [0.0, 0.02, 0.025, GOOD, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0]
    norm = BoundaryNorm(levels, 256)
    panel.tricontourf(
        points[:, 0], points[:, 1], points[:, 2], levels=levels, cmap="Blues_r", norm=norm, alpha=0.8
    )
    panel.tricontour(points[:, 0], points[:, 1], points[:, 2], levels=levels, colors="white", linewidths=0.5)
    for colour, result in zip(COLOURS, ways.values(), strict=True):
        gamma = np.array([record.params["gamma"] for record in result.history])
        c = np.array([record.params["c"] for record in result.history])
        H = np.array([record.objective for record in result.history])
        kept = np.minimum.accumulate(H) >= H if result.method == "lbfgsb" else np.full(len(H), True)
        panel.plot(gamma, c, ".", color=colour, markersize=3, alpha=0.6)
        panel.plot(gamma[kept], c[kept], "-", color=colour, linewidth=1)
    panel.plot(best[0], best[1], "o", color="red", markersize=7, label="best point of the grid")
    panel.set(xlabel="gamma", ylabel="c", xlim=(0.1, 4.1), ylim=(0.1, 4.0))
    panel.legend(loc="upper right", fontsize="small")


if __name__ == "__main__":
    frame.command(figure5_4)
    frame.command(figure5_5)
