"""Figure 1: more folds on pima. Errors and time of BilevelMM and BilevelHL, averaged over five instances.

The paper draws the figure without a table, so there are no published numbers to print; its text says that the range of
generalization errors over the numbers of folds is not large, and that time grows with their number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from papers import frame
from papers.kunapuli2008.data import load_set
from papers.kunapuli2008.methods import CRITERIA, MPEC, UNCONSTRAINED, available, try_method

__all__ = ["run"]

FOLDS = (3, 5, 7, 10)


def outcomes(quick: bool, data_dir: Path | None) -> list[dict[str, Any]]:
    """Mean figures for each number of folds, criterion and method."""
    data = load_set("pima", data_dir)
    rows = []
    for folds in (2, 3) if quick else FOLDS:
        for criterion in CRITERIA:
            for method in (UNCONSTRAINED, MPEC):
                if method not in available(criterion):
                    continue
                found = []
                for number in range(1 if quick else 5):
                    instance = data.instance(number, folds, **({"n_train": 30} if quick else {}))
                    key = f"{number}-{folds}-{len(instance.y)}{'' if data.real else '-generated'}"
                    found.append(
                        frame.once(
                            f"kunapuli2008-figure1-{method.replace(' ', '-')}-{criterion}",
                            key,
                            lambda m=method, i=instance, k=criterion: try_method(m, k, i, {}),
                        )
                    )
                row: dict[str, Any] = {"folds": folds, "criterion": criterion, "method": method}
                for key, factor in (
                    ("objective", 100.0),
                    ("test", 100.0),
                    ("features", 1.0),
                    ("seconds", 1.0),
                ):
                    row[key] = factor * float(np.mean([run[key] for run in found]))
                rows.append(row)
    return rows


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Figure 1 with our numbers."""
    frame.title("kunapuli2008, figure 1: number of folds (pima)")
    frame.note(load_set("pima", data_dir).statement)
    frame.note(
        "The published figure has no table; it shows that the test error hardly depends on the number of folds."
    )
    rows = outcomes(quick, data_dir)
    frame.print_table(
        ["folds  method, criterion", "CV %", "test %", "features", "s"],
        [
            [
                f"{row['folds']:>2}  {row['method']}, {row['criterion']}",
                *(frame.spread(row[key], digits=2) for key in ("objective", "test")),
                frame.spread(row["features"], digits=1),
                frame.spread(row["seconds"], digits=2),
            ]
            for row in rows
        ],
    )
    with frame.figure(out, "kunapuli2008-figure1", 3) as axes:
        if axes is not None:
            for panel, key, label in zip(
                axes,
                ("objective", "test", "seconds"),
                ("CV objective, %", "test error, %", "seconds"),
                strict=True,
            ):
                for criterion in CRITERIA:
                    for method in dict.fromkeys(row["method"] for row in rows):
                        part = [r for r in rows if (r["criterion"], r["method"]) == (criterion, method)]
                        panel.plot(
                            [r["folds"] for r in part],
                            [r[key] for r in part],
                            marker="o",
                            label=f"{method}, {criterion}",
                        )
                panel.set_xlabel("folds")
                panel.set_ylabel(label)
            axes[0].legend(fontsize="x-small")
    frame.write_csv(out, "kunapuli2008-figure1", rows)


if __name__ == "__main__":
    frame.command(run)
