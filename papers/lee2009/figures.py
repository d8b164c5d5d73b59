"""Figures 1 to 3: run times on the Mexican hat over M and C, convergence traces, growth with K.

Times are the processor's on one thread, without compilation, at the paper's settings: gamma 0.25, epsilon 0.05, tol
1e-3, working sets of 500 rows with 100 new ones, sub-working sets of two, 400 MB of kernel cache. Solvers that run
alone hold the whole kernel matrix instead, so they stop at 10,000 rows, as in the paper. The figures of the paper are
not given as numbers; what its text says of them is set beside ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from papers import frame
from papers.lee2009 import hat

__all__ = ["figure1", "figure2", "figure3"]

PATIENCE = 120.0
"""Seconds after which a solver is stopped."""


def figure1(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Run time over M: four combinations at C = 1, and D:PDSG and MPD at three values of C."""
    frame.title("lee2009, figure 1: run time over M (Mexican hat, K = 2)")
    sizes = [200, 600] if quick else [500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000]
    rows: list[dict[str, Any]] = []
    for C in (1.0, 0.1, 10.0):
        for method in hat.METHODS:
            late = False
            for M in sizes:
                alone = method in ("PDSG", "MPD")
                if late or (alone and M > 10_000) or (C != 1.0 and method in ("D:MPD", "PDSG")):
                    continue
                t, y = hat.sample(M, 0)
                seconds, solution = hat.timed(t, hat.basis(t), y, C, method, max_time=PATIENCE)
                late = solution.status != "converged"
                rows.append(
                    {
                        "C": C,
                        "M": M,
                        "method": method,
                        "seconds": seconds,
                        "status": str(solution.status),
                        "kkt": solution.kkt,
                        "beta_1": solution.beta[0],
                        "beta_2": solution.beta[1],
                    }
                )
    at = {(row["C"], row["M"], row["method"]): row for row in rows}
    lines = []
    for C in (0.1, 1.0, 10.0):
        for M in sizes:
            cells = [at.get((C, M, method)) for method in hat.METHODS]
            lines.append([f"C = {C:g}, M = {M}", *(_cell(cell) for cell in cells)])
    frame.print_table(["", *hat.METHODS], lines)
    frame.note(f"seconds; > where a solver was stopped after {PATIENCE:g} s. auto is not in the paper.")
    known = {(row["row"], row["quantity"]): row["value"] for row in frame.published("lee2009", "figure1")}
    largest = max(M for C, M, method in at if method == "MPD" and C == 1.0)
    ours = at[1.0, largest, "MPD"]["seconds"] / at[1.0, largest, "D:PDSG"]["seconds"]
    frame.note(
        f"MPD / D:PDSG: published {known['M = 10000', 'MPD / D:PDSG']:.0f} at M = 10,000 | ours {ours:.1f} at "
        f"M = {largest:,}"
    )
    ratios = [
        row["seconds"] / at[row["C"], row["M"], "D:PDSG"]["seconds"]
        for row in rows
        if row["method"] == "D:MPD" and (row["C"], row["M"], "D:PDSG") in at
    ]
    low, high = (known[f"average {end}", "D:MPD / D:PDSG"] for end in ("from", "to"))
    frame.note(
        f"D:MPD / D:PDSG: published {low:.0f} to {high:.0f} on average | ours {np.mean(ratios):.1f} on average, "
        f"{min(ratios):.1f} to {max(ratios):.1f}"
    )
    with frame.figure(out, "lee2009-figure1", panels=2) as panels:
        if panels is not None:
            for method in hat.METHODS:
                _curve(panels[0], [r for r in rows if r["C"] == 1.0 and r["method"] == method], method)
            for method in ("D:PDSG", "MPD", "auto"):
                for C in (0.1, 1.0, 10.0):
                    chosen = [r for r in rows if r["C"] == C and r["method"] == method]
                    _curve(panels[1], chosen, f"{method}, C = {C:g}")
            panels[0].set_title("C = 1")
            for panel in panels:
                panel.set(xlabel="M", ylabel="seconds", xscale="log", yscale="log")
                panel.legend(fontsize=7)
    frame.write_csv(out, "lee2009-figure1", rows)


def figure2(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Convergence of PDSG and MPD alone: both infeasibilities and the first multiplier over time."""
    M = 300 if quick else 1000
    frame.title(f"lee2009, figure 2: convergence of PDSG and MPD alone (Mexican hat, M = {M}, C = 1)")
    t, y = hat.sample(M, 0)
    rows: list[dict[str, Any]] = []
    lines = []
    known = {(row["row"], row["quantity"]): row["value"] for row in frame.published("lee2009", "figure2")}
    for method in ("PDSG", "MPD"):
        seconds, solution = hat.timed(
            t, hat.basis(t), y, 1.0, method, trace=True, options={"chunk": 50}, max_time=PATIENCE
        )
        rows += [
            {
                "method": method,
                "step": record.iteration,
                "seconds": record.elapsed,
                "dual": record.dual,
                "primal": record.primal,
                "beta_1": record.beta[0],
            }
            for record in solution.trace
        ]
        lines.append(
            [
                method,
                f"{known[method, 'seconds']:.0f} | {seconds:.3f}",
                str(solution.n_iter),
                f"{known['first multiplier', 'beta']:.0f} | {solution.beta[0]:.3f}",
                f"{solution.kkt:.1e}",
            ]
        )
    frame.print_table(["", "seconds", "steps", "first multiplier", "KKT violation"], lines)
    frame.note("published (1,000 rows, on a computer of 2009; the multiplier's true value) | ours.")
    frame.note("The horizontal axis of the drawing is wall time, and the records take time themselves.")
    with frame.figure(out, "lee2009-figure2", panels=3) as panels:
        if panels is not None:
            for panel, name, label in zip(
                panels,
                ("dual", "primal", "beta_1"),
                ("violation of (4a) to (4c)", "violation of (4d)", "first multiplier"),
                strict=True,
            ):
                for method in ("PDSG", "MPD"):
                    mine = [row for row in rows if row["method"] == method]
                    panel.plot([row["seconds"] for row in mine], [row[name] for row in mine], label=method)
                panel.set(xlabel="seconds", ylabel=label, yscale="linear" if name == "beta_1" else "log")
                panel.legend()
    frame.write_csv(out, "lee2009-figure2", rows)


def figure3(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Run time of D:PDSG over the number of basis functions."""
    M = 300 if quick else 1000
    counts = [1, 4] if quick else [1, 2, 5, 10, 15, 20, 25, 30, 35, 40]
    frame.title(f"lee2009, figure 3: run time over K (Mexican hat, M = {M}, C = 1)")
    rows: list[dict[str, Any]] = []
    for K in counts:
        for seed in range(1 if quick else 10):
            t, y = hat.sample(M, seed)
            for method in ("D:PDSG", "auto"):
                seconds, solution = hat.timed(t, waves(t, K), y, 1.0, method, max_time=PATIENCE)
                rows.append(
                    {
                        "K": K,
                        "seed": seed,
                        "method": method,
                        "seconds": seconds,
                        "status": str(solution.status),
                        "kkt": solution.kkt,
                    }
                )
    lines = []
    for K in counts:
        cells = []
        for method in ("D:PDSG", "auto"):
            mine = [r for r in rows if r["K"] == K and r["method"] == method]
            ended = sum(r["status"] == "converged" for r in mine)
            cells += [frame.spread(*frame.mean_sd([r["seconds"] for r in mine])), f"{ended} of {len(mine)}"]
        lines.append([str(K), *cells])
    frame.print_table(["K", "D:PDSG", "converged", "auto", "converged"], lines)
    known = frame.published("lee2009", "figure3")[0]["value"]
    for method in ("D:PDSG", "auto"):
        frame.note(
            f"{method}: time grows like K to the power {_power(rows, method):.2f} over this range; published, read "
            f"from the drawing of D:PDSG: linear ({known:.0f})"
        )
    with frame.figure(out, "lee2009-figure3") as panels:
        if panels is not None:
            for method in ("D:PDSG", "auto"):
                stats = [
                    frame.mean_sd([r["seconds"] for r in rows if r["K"] == K and r["method"] == method])
                    for K in counts
                ]
                panels[0].errorbar(
                    counts, [mean for mean, _ in stats], [sd or 0.0 for _, sd in stats], label=method
                )
            panels[0].set(xlabel="K", ylabel="seconds", yscale="log")
            panels[0].legend()
    frame.write_csv(out, "lee2009-figure3", rows)


def waves(t: np.ndarray, K: int) -> np.ndarray:
    """The basis of figure 3: ``cos(j pi t)`` for even ``j``, ``sin(j pi t)`` for odd ``j``."""
    return np.column_stack([np.sin(j * np.pi * t) if j % 2 else np.cos(j * np.pi * t) for j in range(K)])


def _power(rows: list[dict[str, Any]], method: str) -> float:
    """Slope of log seconds over log K."""
    mine = [row for row in rows if row["method"] == method]
    slope, _ = np.polyfit(np.log([row["K"] for row in mine]), np.log([row["seconds"] for row in mine]), 1)
    return float(slope)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return f"{'' if row['status'] == 'converged' else '> '}{row['seconds']:.3f}"


def _curve(panel: Any, rows: list[dict[str, Any]], label: str) -> None:
    mine = [row for row in rows if row["status"] == "converged"]
    panel.plot([row["M"] for row in mine], [row["seconds"] for row in mine], "o-", markersize=3, label=label)


if __name__ == "__main__":
    frame.command(figure1)
