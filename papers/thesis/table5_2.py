"""Table 5.2: evaluations until c is known to a given precision, one training and one validation set, c0 = 9.

The counts are averages over three losses, as in the thesis (modified logarithmic with mu = 12, quartic with
epsilon = 1/8; the third is not named, we take the logistic one), and here over random splits too. A method has
determined c to a precision when the best point it has evaluated is within it, and stays so, of the c at which it ends.

RPROP's count is mostly the way from c0 to the optimum, which it walks with steps that grow by 1.2 from the first one;
the thesis does not give that first step. From 0.1, the customary value, it takes half as many evaluations as published;
from 0.001, a value worked out from the published counts, it takes about as many. Both are shown; agreement of the
second is by construction and says only that such a first step would explain the counts. The setting of ``iris.py`` was
chosen by table 5.1, not by this one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foldwise import Logistic, ModifiedLogHinge, QuarticHinge
from foldwise.result import Result
from papers import frame
from papers.thesis import iris

__all__ = ["run"]

LOSSES = (ModifiedLogHinge(12.0), QuarticHinge(0.125), Logistic())
PRECISIONS = (1.0, 0.1, 0.01, 0.001)
RUNS = {
    "L-BFGS-B": ("lbfgsb", {"tol": 1e-15}),
    "RPROP, first step 0.1": ("rprop", {"first": 0.1, "tol": 1e-5}),
    "RPROP, first step 0.001": ("rprop", {"first": 0.001, "tol": 1e-5}),
    "Newton (ours)": ("newton", {"tol": 1e-13}),
}
PUBLISHED = {"L-BFGS-B": "lbfgsb", "RPROP, first step 0.1": "rprop", "RPROP, first step 0.001": "rprop"}


def counts(result: Result) -> list[int]:
    """Evaluations needed for every precision."""
    c = np.array([record.params["lam"] for record in result.history])
    H = np.array([record.objective for record in result.history])
    best = np.array([c[np.argmin(H[: k + 1])] for k in range(len(c))])
    away = np.abs(best - result.params["lam"])
    return [int(np.flatnonzero(away > precision).max(initial=-1)) + 2 for precision in PRECISIONS]


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 5.2 beside the published one."""
    frame.title("thesis, table 5.2: evaluations to determine c (Iris, setosa against the rest)")
    known = {
        (float(entry["row"]), entry["quantity"]): entry["value"] for entry in frame.published("thesis", "5.2")
    }
    all_splits = iris.splits(3 if quick else 20)
    means = {}
    for name, (method, options) in RUNS.items():
        found = [counts(iris.search(split, loss, method, options)) for split in all_splits for loss in LOSSES]
        means[name] = np.mean(found, axis=0)
    rows, lines = [], []
    for i, precision in enumerate(PRECISIONS):
        row = {"precision": precision}
        line = [f"{precision:g}"]
        for name in RUNS:
            key = PUBLISHED.get(name)
            row[f"published {name}"] = known[precision, key] if key else None
            row[f"ours {name}"] = float(means[name][i])
            line.append((f"{known[precision, key]:.0f} | " if key else "") + f"{means[name][i]:.1f}")
        row["published grid"], row["ours grid"] = known[precision, "grid"], 99.0 / precision + 1.0
        line.append(f"{known[precision, 'grid']:.0f} | {row['ours grid']:.0f}")
        rows.append(row)
        lines.append(line)
    print()
    frame.print_table(["precision of c", *RUNS, "grid on [1, 100]"], lines)
    frame.note(
        f"published | ours, mean over three losses and {len(all_splits)} random splits (the thesis's split is not "
        "known). The grid's count is arithmetic; ours has both ends."
    )
    frame.note(
        "The thesis does not give RPROP's first step. 0.1 is customary and does not reproduce the counts; 0.001 was "
        "worked out from them, so its agreement is by construction."
    )
    frame.write_csv(out, "thesis-table5.2", rows)


if __name__ == "__main__":
    frame.command(run)
