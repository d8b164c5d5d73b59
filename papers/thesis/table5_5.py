"""Table 5.5: seeds, one gamma per feature and c, each variety against the other two, L-BFGS-B and RPROP.

150 training and 60 test rows (the published rates are multiples of 1/150 and 1/60), five folds. The starts are
random, c in [5, 15] and every gamma in [0.5, 1.5]; bounds 0.01 to 1000 and 0.01 to 100, of which the thesis gives the
lower ones. Its counts of RPROP, 501 and 496, are five machines for each of 100 and 99 points and the final one: RPROP
ran into a limit of 100 iterations, which we set too.

What agrees and what does not:

- The split is not published: mean and range over random splits are given. Our mean Hmin is below the published one in
  all six rows.
- The scale of the features is not published. With one gamma for each it hardly matters: unscaled, standardised and
  mapped to [-1, 1] the mean Hmin agrees within 17% (six splits). We leave them as they are, which is what the thesis
  does with Parkinsons.
- The published H on the training rows, 0.02 to 0.03, is 0.4 to 0.8 of ours, with higher rates on them: a narrower
  kernel than the best one. A lower bound of 0.1 to 0.5 for gamma moves H on the training rows down and Hmin up,
  towards the published values; the thesis says elsewhere that its bounds were 0.01 or 0.1.
- The header of the published RPROP rows names the test columns first; by size they are the training columns, as in
  the rows of L-BFGS-B, and are shown so. Both rates in these rows are equal, so one of them is probably a slip.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foldwise import RBF, Lin
from papers import frame
from papers.thesis import bikernel

__all__ = ["run"]

N_TRAIN = 150
METHODS = {"lbfgsb": {"tol": 1e-6, "max_iter": 100}, "rprop": {"max_iter": 100}}


def seeds(data_dir: Path | None) -> tuple[np.ndarray, np.ndarray, str]:
    """Features, classes 1 to 3, and what they are."""
    loaded = frame.load("seeds", data_dir)
    if loaded is not None:
        return *loaded, "Data: seeds, 210 rows, 7 features as they are."
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    statement = (
        "seeds.csv.gz was not found (give the data folder): the first 7 features of scikit-learn's wine set, mapped to "
        "[-1, 1], stand in, with 28 test rows. The figures cannot be compared."
    )
    return frame.scale_to_unit(X[:, :7]), y + 1, statement


def one(X: np.ndarray, y: np.ndarray, method: str, seed: int, quick: bool) -> dict[str, float]:
    """One random split: select, train, test."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, test = order[:N_TRAIN], order[N_TRAIN:]
    start = {"c": rng.uniform(5.0, 15.0), "gamma": rng.uniform(0.5, 1.5, X.shape[1])}
    dimensions = {"c": Lin(0.01, 1000.0), "gamma": Lin(0.01, 100.0, per="feature")}
    options = METHODS[method] | ({"max_iter": 25} if quick else {})
    return bikernel.select(
        RBF(1.0, ard=True),
        (X[train], y[train]),
        (X[test], y[test]),
        dimensions,
        start,
        bikernel.five_folds(len(train), seed),
        method,
        **options,
    )[0]


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 5.5 beside the published one."""
    frame.title("thesis, table 5.5: one gamma per feature (seeds)")
    X, label, statement = seeds(data_dir)
    frame.note(statement)
    known = bikernel.known("5.5")
    for name, figures in known.items():
        if name.endswith("rprop"):
            for key in ("H", "CR"):
                figures[f"{key}_train"], figures[f"{key}_test"] = (
                    figures[f"{key}_test"],
                    figures[f"{key}_train"],
                )
    n_splits = 2 if quick else 20
    ours = {
        f"{k} {method}": [
            one(X, np.where(label == k, 1, -1), method, seed, quick) for seed in range(n_splits)
        ]
        for method in METHODS
        for k in (1, 2, 3)
    }
    rows = bikernel.compare(known, ours)
    frame.note(
        f"Ours: mean and range over {n_splits} random splits and starts; the thesis's are not known. Splits with Hmin "
        "at or below the published one: "
        + ", ".join(f"{row['row']}: {row['splits_at_or_below']}" for row in rows)
        + "."
    )
    frame.note(
        "The published RPROP columns are shown in the order of the L-BFGS-B ones: their header names the test columns "
        "first, but by size they are the training columns."
    )
    frame.write_csv(out, "thesis-table5.5", rows)


if __name__ == "__main__":
    frame.command(run)
