"""Tables 3 and 4: generalization error and time of model selection, one and five groups, growing modelling sets.

The data are substitutes (see ``substitutes.py``). The published figures are printed beside ours; for PBP there are
only published ones. Full runs use ten splits as the paper does, but three for the grid of 1,024 points; quick runs use
two splits, two small modelling sets, 30 features instead of 100, and leave that grid out.

With n well above the number of features ImpGrad hardly moves: at C = 1 the model is close to least squares, the error
is flat in C itself, and a change or a slope below 1e-3 (1 + error) ends the walk. The published times suggest the
same: at 2,000 points ImpGrad took as long as four or five of the 48 points of the fine grid.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from papers import frame
from papers.moore2011 import substitutes
from papers.moore2011.methods import IMPGRAD, METHODS, MODELS, NEWTON, PBP, Outcome, try_method

__all__ = ["outcomes", "statement", "summary", "table3", "table4"]

SCREENS = {"table3": "pyruvate kinase", "table4": "tau-fibril"}


def substitute(table: str, quick: bool, data_dir: Path | None) -> substitutes.Substitute:
    """The data of a table."""
    return substitutes.pyruvate(quick, data_dir) if table == "table3" else substitutes.tau(quick)


def statement(table: str, quick: bool, data_dir: Path | None) -> str:
    """What stands for the screen of a table."""
    return substitute(table, quick, data_dir).statement


def n_splits(method: str, model: str, n: int, quick: bool) -> int:
    """How often a method runs: not at all where the paper does not run it either."""
    if method == "GRID FINE" and (model == "multiSVR" or n > 5000):
        return 0
    if method == "GRID COARSE" and model == "multiSVR":
        return 0 if quick else 3
    return 2 if quick else 10


@lru_cache(maxsize=4)
def outcomes(table: str, quick: bool, data_dir: Path | None) -> list[Outcome]:
    """Every run of a table; kept, because figures draw the same runs."""
    data = substitute(table, quick, data_dir)
    out = []
    for n in data.sizes:
        for method in METHODS:
            for model in MODELS:
                for seed in range(n_splits(method, model, n, quick)):
                    out.append(try_method(method, model, data, n, seed))
    return out


def summary(table: str, runs: list[Outcome]) -> list[dict[str, Any]]:
    """Published and our figures, one row per size, method and model."""
    rows = {
        (int(row["n"]), row["method"], row["model"]): dict(row) for row in frame.published("moore2011", table)
    }
    for key in dict.fromkeys((run.n, run.method, run.model) for run in runs):
        own = [run for run in runs if (run.n, run.method, run.model) == key]
        row = rows.setdefault(key, {"table": table, "n": key[0], "method": key[1], "model": key[2]})
        row["ours_mse_mean"], row["ours_mse_sd"] = frame.mean_sd([run.mse for run in own])
        row["ours_seconds_mean"], row["ours_seconds_sd"] = frame.mean_sd([run.seconds for run in own])
        row["ours_objective_mean"], _ = frame.mean_sd([run.objective for run in own])
        row["ours_evaluations_mean"], _ = frame.mean_sd([run.evaluations for run in own])
        row["ours_splits"] = len(own)
    order = list(METHODS)
    return sorted(rows.values(), key=lambda r: (r["n"], order.index(r["method"]), MODELS.index(r["model"])))


def show(rows: list[dict[str, Any]]) -> None:
    """Print the summary, published figures to the left of ours."""
    columns = [
        "n  method",
        "model",
        "MSE, published",
        "MSE, ours",
        "s, published",
        "s, ours",
        "CV error",
        "evals",
    ]
    lines = []
    for row in rows:
        lines.append(
            [
                f"{int(row['n']):>5}  {row['method']}",
                row["model"],
                frame.spread(row.get("mse_mean"), row.get("mse_sd")),
                frame.spread(row.get("ours_mse_mean"), row.get("ours_mse_sd")),
                frame.spread(row.get("seconds_mean"), row.get("seconds_sd"), 1),
                frame.spread(row.get("ours_seconds_mean"), row.get("ours_seconds_sd"), 2),
                frame.spread(row.get("ours_objective_mean")),
                frame.spread(row.get("ours_evaluations_mean"), digits=0),
            ]
        )
    frame.print_table(columns, lines)


def remarks(runs: list[Outcome], quick: bool) -> None:
    """What a reader should know, with what this run shows."""
    frame.note(
        "MSE: mean ± sd over splits of the error on the test rows. s: seconds, the paper's on a computer of 2010 in "
        "MATLAB. CV error and evals (training of all folds at one point) are ours."
    )
    if quick:
        frame.note("Quick run: two splits, two sizes, 30 features, and no multiSVR grid of 1,024 points.")
    else:
        frame.note(
            "Ten splits as in the paper; only the first three for the multiSVR grid of 1,024 points, so its means are "
            "not over the same splits as the others."
        )
    largest = max(run.n for run in runs)
    for model in MODELS:
        newton, impgrad, pbp = (
            {(run.n, run.split): run for run in runs if run.method == method and run.model == model}
            for method in (NEWTON, IMPGRAD, PBP)
        )
        above = [100.0 * (impgrad[key].objective / newton[key].objective - 1.0) for key in newton]
        few = np.mean([impgrad[key].evaluations for key in impgrad if key[0] == largest])
        frame.note(
            f"{model}: ImpGrad with the paper's tolerances ends between {min(above):.1f}% and {max(above):.1f}% (mean "
            f"{np.mean(above):.1f}%) above the cross-validation error that Newton reaches; at n = {largest} it stops "
            f"after {few:.1f} evaluations on average."
        )
        gap = np.array([100.0 * (pbp[key].objective / newton[key].objective - 1.0) for key in newton])
        slower = np.mean([pbp[key].seconds / newton[key].seconds for key in newton])
        frame.note(
            f"{model}: PBP ends between {gap.min():+.2f}% and {gap.max():+.2f}% (mean {gap.mean():+.2f}%) of Newton's "
            f"cross-validation error, within 0.5% on {np.mean(gap <= 0.5):.0%} of the modelling sets, and takes "
            f"{slower:.1f} times as long."
        )
    grid = {
        (run.n, run.split): run for run in runs if run.method == "GRID COARSE" and run.model == "multiSVR"
    }
    if grid:
        newton = {(run.n, run.split): run for run in runs if run.method == NEWTON and run.model == "multiSVR"}
        pairs = []
        for n in dict.fromkeys(key[0] for key in grid):
            shared = [key for key in grid if key[0] == n]
            pairs.append(
                f"n = {n}: {np.mean([grid[key].mse for key in shared]):.3f} and "
                f"{np.mean([newton[key].mse for key in shared]):.3f}"
            )
        frame.note(f"MSE of that grid and of Newton on the splits that they share: {'; '.join(pairs)}.")
    groups = [run for run in runs if run.method == NEWTON and run.model == "multiSVR"]
    final = [run for run in groups if run.n == largest]
    C = np.exp(np.mean(np.log([run.C for run in final]), axis=0))
    epsilon = np.mean([run.epsilon for run in final], axis=0)
    frame.note(
        f"multiSVR at n = {largest}, Newton, groups from clean to noisy: C (geometric mean, the paper's units) "
        f"{', '.join(f'{c:.2g}' for c in C)}; epsilon {', '.join(f'{e:.2f}' for e in epsilon)}. The paper reports one "
        "C near 1e-4 for all groups and a wider tube for the two noisiest ones."
    )


def run_table(table: str, quick: bool, data_dir: Path | None, out: Path | None) -> None:
    """Run, print and write one table."""
    frame.title(f"moore2011, table {table[-1]}: {SCREENS[table]}")
    frame.note(statement(table, quick, data_dir))
    runs = outcomes(table, quick, data_dir)
    rows = summary(table, runs)
    if quick:
        rows = [row for row in rows if row["n"] <= max(run.n for run in runs)]
    print()
    show(rows)
    remarks(runs, quick)
    frame.write_csv(out, f"moore2011-{table}", rows)


def table3(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 3, pyruvate kinase."""
    run_table("table3", quick, data_dir, out)


def table4(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 4, tau-fibril."""
    run_table("table4", quick, data_dir, out)


def both(quick: bool, data_dir: Path | None, out: Path | None) -> None:
    """Tables 3 and 4."""
    table3(quick, data_dir, out)
    table4(quick, data_dir, out)


if __name__ == "__main__":
    frame.command(both)
