"""Table 5.7: Parkinsons, seven kernels on seven groups of features against one kernel.

140 training and 55 test rows (the published rates are multiples of 1/55), five folds, L-BFGS-B, at most 100
iterations (the published count of 501 is five machines for each of 100 points and the final one).

The thesis groups the features by magnitude into seven groups and leaves them unscaled, without listing the groups.
Its 21 features are 22 in the file. Ours, by the order of magnitude of a feature: frequencies (hundreds): Fo, Fhi,
Flo; HNR (tens); spread1, D2 (units); Shimmer(dB), RPDE, DFA, spread2, PPE (tenths); Shimmer, APQ3, APQ5, APQ, DDA,
NHR (hundredths); Jitter, RAP, PPQ, DDP (thousandths); Jitter(Abs) (1e-5). The reduced set leaves out seven features
that correlate with others; we take Jitter, RAP, PPQ, Shimmer, Shimmer(dB), APQ3 and APQ5, after the ten that Little
et al. (2009) are understood to have kept among these. The same seven groups remain.

The scale of (c, beta) is degenerate: twice both is the same machine. So c = 1 for multiple kernels, and the weights
are free between 0.01 and 100. All gammas are between 0.01 and 100 (the thesis: lower bounds of 0.01 or 0.1).

What agrees and what does not:

- On unscaled features the order is the published one: one kernel, with one gamma or with one for every feature, has a
  high H on new rows and 100% on the training rows; seven kernels do far better. This is the scale's doing. On
  standardised features (three splits) one gamma reaches an Hmin of about 0.16 and one for each feature about 0.12, as
  good as seven kernels. Hence the thesis's features were not scaled.
- Our Hmin of seven kernels, about 0.16, is well below the published one. The thesis moved c too, along the degenerate
  direction, and stopped after 53 and 43 points.
- With one kernel a search that starts at gamma near 1 is on a plateau: squared distances of frequencies are in the
  thousands, the kernel matrix is the identity and H is 0.5 whatever the parameters. L-BFGS-B leaves it on some splits
  and stays on others, ours as well as, it seems, the thesis's (0.4480 with one gamma for every feature, though that
  model contains the one with 0.3914). So our range reaches from below the published values to 0.5. From gamma = 0.01
  the four splits that were tried end between 0.25 and 0.32 with one gamma.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foldwise import RBF, Lin, Sum
from foldwise.kernels import Kernel
from papers import frame
from papers.thesis import bikernel

__all__ = ["run"]

N_TRAIN = 140
GROUPS = {
    "multiple kernel, all features": [
        [0, 1, 2],
        [15],
        [18, 20],
        [9, 16, 17, 19, 21],
        [8, 10, 11, 12, 13, 14],
        [3, 5, 6, 7],
        [4],
    ],
    "multiple kernel, reduced features": [
        [0, 1, 2],
        [15],
        [18, 20],
        [16, 17, 19, 21],
        [12, 13, 14],
        [7],
        [4],
    ],
}
"""Columns of the file in every group; see above for their names."""
GAMMA = (0.01, 100.0)


def parkinsons(data_dir: Path | None) -> tuple[np.ndarray, np.ndarray, dict[str, list[list[int]]], str]:
    """Features, labels, groups of features, and what they are."""
    loaded = frame.load("parkinsons", data_dir)
    if loaded is not None:
        return (
            *loaded,
            GROUPS,
            "Data: Parkinsons, 195 rows, 22 features as they are, in seven groups of one magnitude.",
        )
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:195]
    X = X[rows, :22]
    order = np.argsort(X.std(axis=0))
    parts = [part.tolist() for part in np.array_split(order, 7)]
    groups = dict(zip(GROUPS, (parts, [part[:2] for part in parts]), strict=True))
    statement = (
        "parkinsons.csv.gz was not found (give the data folder): 195 rows and 22 features of scikit-learn's breast "
        "cancer set stand in, in seven groups by standard deviation. The figures cannot be compared."
    )
    return X, np.where(y[rows] == 1, 1, -1), groups, statement


def model(
    name: str, groups: dict[str, list[list[int]]], d: int, rng: np.random.Generator
) -> tuple[Kernel, dict[str, Lin], dict[str, Any]]:
    """Kernel, bounds and random start of a row of the table."""
    if name in groups:
        parts = groups[name]
        widths = [f"k{p}__gamma" for p in range(len(parts))]
        dimensions = {"weights": Lin(0.01, 100.0, per="feature"), **{width: Lin(*GAMMA) for width in widths}}
        start = {"weights": rng.uniform(0.0, 1.0, len(parts))} | {
            width: rng.uniform(0.0, 1.0) for width in widths
        }
        return Sum([RBF(1.0) for _ in parts], columns=parts), dimensions, start
    every = name == "multiple gamma"
    dimensions = {"c": Lin(0.01, 1000.0), "gamma": Lin(*GAMMA, per="feature" if every else None)}
    start = {"c": rng.uniform(5.0, 15.0), "gamma": rng.uniform(0.5, 1.5, d if every else 1)}
    return RBF(1.0, ard=every), dimensions, start


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 5.7 beside the published one."""
    frame.title("thesis, table 5.7: several kernels (Parkinsons)")
    X, y, groups, statement = parkinsons(data_dir)
    frame.note(statement)
    known = bikernel.known("5.7")
    n_splits = 2 if quick else 20
    ours: dict[str, list[dict[str, float]]] = {name: [] for name in known}
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:N_TRAIN], order[N_TRAIN:]
        for name in known:
            kernel, dimensions, start = model(name, groups, X.shape[1], np.random.default_rng(1000 + seed))
            found, _ = bikernel.select(
                kernel,
                (X[train], y[train]),
                (X[test], y[test]),
                dimensions,
                start,
                seed,
                tol=1e-6,
                max_iter=15 if quick else 100,
            )
            ours[name].append(found)
    rows = bikernel.compare(known, ours)
    frame.note(
        f"Ours: mean and range over {n_splits} random splits and starts; the thesis's are not known. Splits with Hmin "
        "at or below the published one: "
        + ", ".join(f"{row['row']}: {row['splits_at_or_below']}" for row in rows)
        + ". Multiple kernels: c = 1, as the scale of c and the weights is degenerate."
    )
    stuck = {name: sum(split["H_min"] > 0.49 for split in ours[name]) for name in known if name not in groups}
    frame.note(
        "Searches that never left the plateau H = 0.5 on which one kernel with gamma near 1 starts: "
        + ", ".join(f"{name}: {count} of {n_splits}" for name, count in stuck.items())
        + "."
    )
    frame.write_csv(out, "thesis-table5.7", rows)


if __name__ == "__main__":
    frame.command(run)
