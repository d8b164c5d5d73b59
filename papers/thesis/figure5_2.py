"""Figure 5.2: H over c on Iris, and where L-BFGS-B and RPROP step from c0 = 9.

The setting is that of ``iris.py``, on the first of its random splits. The printed figure's Hmin are those of table 5.1
for the same losses, as far as the text tells. Every evaluation is drawn, also those of L-BFGS-B's line search.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foldwise import ModifiedLogHinge, QuarticHinge
from papers import frame
from papers.thesis import bikernel, iris

__all__ = ["run"]

LOSSES = {"modified_log 12": ModifiedLogHinge(12.0), "quartic 0.125": QuarticHinge(0.125)}
METHODS = {"lbfgsb": {"tol": 1e-12}, "rprop": {"first": 0.1, "tol": 1e-3}}


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Figure 5.2, and its Hmin beside the published ones."""
    frame.title("thesis, figure 5.2: H over c, and the steps of two methods (Iris, setosa against the rest)")
    (split,) = iris.splits(1)
    known = bikernel.known("5.1")
    values = np.arange(1.0, 100.0 + 1e-9, 5.0 if quick else 0.25)
    rows: list[dict[str, Any]] = []
    lines = []
    curves, paths = {}, {}
    for loss_name, loss in LOSSES.items():
        plan = iris.search(split, loss, "grid", {"values": {"lam": values}})
        curves[loss_name] = _points(plan)
        rows += [{"loss": loss_name, "method": "grid", "c": c, "H": H} for c, H in curves[loss_name]]
        for method, options in METHODS.items():
            result = iris.search(split, loss, method, options)
            paths[loss_name, method] = _points(result)
            rows += [
                {"loss": loss_name, "method": method, "c": c, "H": H} for c, H in paths[loss_name, method]
            ]
            lines.append(
                [
                    f"{loss_name}, {method}",
                    f"{known[loss_name]['H_min']:.4f} | {0.5 * result.objective:.4f}",
                    f"{curves[loss_name][:, 1].min():.4f}",
                    f"{result.params['lam']:.2f}",
                    str(result.n_evaluations),
                ]
            )
    print()
    frame.print_table(["", "Hmin", "Hmin of the curve", "c", "evaluations"], lines)
    frame.note(
        "published (table 5.1, L-BFGS-B) | ours on one random split; the thesis's split is not known. Table 5.1 has "
        "the mean over many."
    )
    with frame.figure(out, "thesis-figure5.2", panels=4) as panels:
        if panels is not None:
            for panel, (loss_name, method) in zip(panels, paths, strict=True):
                panel.plot(*curves[loss_name].T, color="tab:blue", label="grid")
                panel.plot(
                    *paths[loss_name, method].T,
                    "o",
                    color="tab:red",
                    markerfacecolor="none",
                    label=f"{len(paths[loss_name, method])} evaluations",
                )
                panel.set(xlabel="c", ylabel="H", title=f"{loss_name}, {method}")
                panel.legend()
    frame.write_csv(out, "thesis-figure5.2", rows)


def _points(result) -> np.ndarray:
    """(c, H) of every evaluation."""
    return np.array([[record.params["lam"], 0.5 * record.objective] for record in result.history])


if __name__ == "__main__":
    frame.command(run)
