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

Two kinds of folds are shown. The file holds six or seven recordings of each speaker in a row. Random folds have
recordings of one speaker on both sides, folds of consecutive rows hardly any. The thesis does not say which it had.

What agrees and what does not:

- With folds of consecutive rows Hmin of seven kernels on all features comes out as published (0.278 on average, 0.276
  published), and so do 100% on the training rows, the number of evaluations, and that H on the test rows, which are
  drawn at random in both cases, is below Hmin. With random folds Hmin is 0.165. The rates on test rows, 91 and 93%,
  are nearer to those of random folds (88 and 87%) than of consecutive ones (83%), though within the range of single
  splits only for the former. So consecutive folds explain Hmin, but the figures do not settle the question. A lower
  Hmin by random folds is no gain by itself, as the speakers are known from training then.
- On unscaled features the order is the published one: one kernel, with one gamma or with one for every feature, has a
  high H on new rows; seven kernels do far better. This is the scale's doing. On standardised features (three splits,
  random folds) one gamma reaches an Hmin of about 0.16 and one for each feature about 0.12, as good as seven kernels.
  Hence the thesis's features were not scaled.
- With one kernel a search that starts at gamma near 1 is on a plateau: squared distances of frequencies are in the
  thousands, the kernel matrix is the identity and H is 0.5 whatever the parameters. All starts here are uniform in
  (0, 1), which the thesis says of multiple kernels only; some searches stay on the plateau even so. The published
  0.4480 with one gamma for every feature, a model that contains the one with 0.3914, shows the same.
- The reduced set is no better than the full one on average; in the thesis it was, on one split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

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
    start = {"c": rng.uniform(0.0, 1.0), "gamma": rng.uniform(0.0, 1.0, d if every else 1)}
    return RBF(1.0, ard=every), dimensions, start


def folds(kind: str, n: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds of rows that are in the order of the file."""
    return bikernel.five_folds(n, seed) if kind == "random" else list(KFold(5).split(np.zeros((n, 1))))


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 5.7 beside the published one, for two kinds of folds."""
    frame.title("thesis, table 5.7: several kernels (Parkinsons)")
    X, y, groups, statement = parkinsons(data_dir)
    frame.note(statement)
    known = bikernel.known("5.7")
    n_splits = 2 if quick else 20
    rows: list[dict[str, Any]] = []
    for kind in ("consecutive", "random"):
        ours: dict[str, list[dict[str, float]]] = {name: [] for name in known}
        for seed in range(n_splits):
            order = np.random.default_rng(seed).permutation(len(y))
            train, test = np.sort(order[:N_TRAIN]), order[N_TRAIN:]
            for name in known:
                rng = np.random.default_rng(1000 + seed)
                kernel, dimensions, start = model(name, groups, X.shape[1], rng)
                found, _ = bikernel.select(
                    kernel,
                    (X[train], y[train]),
                    (X[test], y[test]),
                    dimensions,
                    start,
                    folds(kind, N_TRAIN, seed),
                    tol=1e-6,
                    max_iter=15 if quick else 100,
                )
                ours[name].append(found)
        print(f"\nFolds: {'of consecutive rows' if kind == 'consecutive' else 'at random'}")
        part = bikernel.compare(known, ours)
        rows += [{"folds": kind, **row} for row in part]
        frame.note(
            "Splits with Hmin at or below the published one: "
            + ", ".join(f"{row['row']}: {row['splits_at_or_below']}" for row in part)
            + ". Searches that never left the plateau H = 0.5: "
            + ", ".join(
                f"{name}: {sum(split['H_min'] > 0.49 for split in ours[name])}"
                for name in known
                if name not in groups
            )
            + f" of {n_splits}."
        )
    frame.note(
        f"Ours: mean and range over {n_splits} random splits into training and test rows, and starts; the thesis's are "
        "not known. Multiple kernels: c = 1, as the scale of c and the weights is degenerate."
    )
    frame.note(
        "Consecutive rows are recordings of one speaker. With such folds our Hmin on all features agrees with the "
        "published one; the published rates on test rows are nearer to those of random folds. The thesis does not "
        "say which it had."
    )
    frame.write_csv(out, "thesis-table5.7", rows)


if __name__ == "__main__":
    frame.command(run)
