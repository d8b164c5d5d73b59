"""Table 5.1: how sharply the hinge should be smoothed. Iris, setosa against the rest, L-BFGS-B from c0 = 9.

What agrees and what does not:

- Setosa is linearly separable from the rest, and every model here classifies all training and test rows correctly.
  The published classification rates, 91.3 to 94.2%, are not rates on one split: they differ by as little as 0.02
  points from loss to loss, where one of 150 rows is 0.67 points.
- They agree with **1 - H** on the training and on the test rows: same size, same growth with the sharpness, and the
  nearest of 60 random splits meets all 27 figures to 5% of the errors; read as ``1 - 2 H`` none comes closer than 44%.
  That is an inference from the figures, with a setting and a split chosen to fit them (see ``iris.py``); the thesis
  does not say it. So we print ``100 (1 - H)`` beside them, and the true rates as well.
- Hmin, c and the 1 - H columns depend on the split, which is not published: mean and standard deviation over random
  splits are given, and the split that comes closest to the published figures (found by looking at them).
- The number of evaluations depends on the line search and on when it gives up. SciPy's L-BFGS-B needs about as many for
  every loss; the thesis's implementation needed 9 to 11 for some and 33 to 47 for others.
- The thesis solves the inner problem to 1e-12; here Newton's method stops at a relative gradient of 1e-9, and a last
  step of quadratic convergence usually leaves less.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foldwise import ModifiedLogHinge, QuarticHinge
from papers import frame
from papers.thesis import iris

__all__ = ["run"]

LOSSES = {f"modified_log {mu:g}": ModifiedLogHinge(mu) for mu in (7.5, 12.0, 24.0, 32.0, 64.0)} | {
    f"quartic {epsilon:g}": QuarticHinge(epsilon) for epsilon in (0.4, 0.25, 0.125, 0.1)
}
ERRORS = ("H_validation", "H_train", "H_test")


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 5.1 beside the published one."""
    frame.title("thesis, table 5.1: parameters of the smoothed hinges (Iris, setosa against the rest)")
    known: dict[str, dict[str, float]] = {}
    for entry in frame.published("thesis", "5.1"):
        known.setdefault(entry["row"], {})[entry["quantity"]] = entry["value"]
    published = np.array(
        [[row["H_min"], 1 - row["CR_train"] / 100, 1 - row["CR_test"] / 100] for row in known.values()]
    )
    # 1. Every loss on every split: ours[split][loss].
    all_splits = iris.splits(5 if quick else 60)
    ours = []
    for split in all_splits:
        ours.append([])
        for loss in LOSSES.values():
            result = iris.search(split, loss, "lbfgsb", {"tol": 1e-12})
            measured = iris.errors(split, loss, result.params["lam"])
            ours[-1].append({"evaluations": result.n_evaluations, "c": result.params["lam"], **measured})
    # 2. The split whose errors are nearest to the published ones, reading the rates as 1 - H or as 1 - 2 H.
    H = np.array([[[row[name] for name in ERRORS] for row in rows] for rows in ours])
    distance = {}
    for factor in (1.0, 2.0):
        logs = np.log(H * [1.0, factor, factor]) - np.log(published)
        distance[factor] = np.sqrt(np.mean(logs**2, axis=(1, 2)))
    nearest = int(np.argmin(distance[1.0]))
    # 3. Side by side.
    rows, lines = [], []
    for i, (name, row) in enumerate(known.items()):
        entry = {"loss": name, **{f"published_{key}": value for key, value in row.items()}}
        for key in ours[0][0]:
            values = [split[i][key] for split in ours]
            entry[f"ours_{key}_mean"], entry[f"ours_{key}_sd"] = frame.mean_sd(values)
            entry[f"nearest_{key}"] = ours[nearest][i][key]
        rows.append(entry)
        lines.append(
            [
                name,
                f"{row['evaluations']:.0f} | {entry['ours_evaluations_mean']:.0f}",
                f"{row['H_min']:.4f} | {frame.spread(entry['ours_H_validation_mean'], entry['ours_H_validation_sd'])}"
                f" | {entry['nearest_H_validation']:.4f}",
                *(
                    f"{row[f'CR_{part}']:.2f} | {100 * (1 - entry[f'ours_H_{part}_mean']):.2f}"
                    f" | {100 * (1 - entry[f'nearest_H_{part}']):.2f}"
                    for part in ("train", "test")
                ),
                f"{entry['ours_CR_train_mean']:.2f}, {entry['ours_CR_test_mean']:.2f}",
                f"{entry['ours_c_mean']:.0f}",
            ]
        )
    print()
    columns = [
        "loss",
        "evaluations",
        "Hmin",
        "CR (train) | 100(1-H)",
        "CR (test) | 100(1-H)",
        "true CR, %",
        "c",
    ]
    frame.print_table(columns, lines)
    frame.note(
        f"published | ours, mean (± sd) over {len(ours)} random splits | the split nearest to the thesis's figures"
    )
    frame.note(
        "The published rates are not classification rates: setosa is separable, and the true rates are as shown. "
        f"Read as 1 - H they lie within {100 * distance[1.0].min():.0f}% (root mean square of the 27 relative "
        f"deviations) of one of our splits; read as 1 - 2H no split comes closer than {100 * distance[2.0].min():.0f}%."
    )
    few, many = (
        extreme([row["evaluations"] for rows_of in ours for row in rows_of]) for extreme in (min, max)
    )
    frame.note(f"Our evaluations range from {few} to {many} over all losses and splits.")
    frame.note(
        "The thesis gives neither scaling nor sizes. Features mapped to [-1, 1] and 75 training, 25 validation and 50 "
        "test rows were chosen from sixteen combinations because one of their splits came nearest to the published "
        "figures, and the nearest split shown is chosen by them too: it shows that they are possible, it does not "
        "confirm them. The mean over splits is the figure that was not chosen within this setting."
    )
    frame.write_csv(out, "thesis-table5.1", rows)


if __name__ == "__main__":
    frame.command(run)
