"""Table 5.6: heart disease, linear and kernel machines with one and with many parameters, L-BFGS-B, quartic hinge.

190 training and 80 test rows, five folds (the thesis names five for its other experiments, and every count of
evaluations in this table is five times a whole number plus one: five folds per point and the final training). The
start is random in [5, 15], the lower bound of c 0.01. The thesis does not say how the features were scaled, nor which
upper bound c had; four scalings were tried. On unscaled features Hmin is 0.36 (published: 0.28), which rules them
out; standardised, mapped to [0, 1] and mapped to [-1, 1] it is 0.25 to 0.26, which does not tell them apart. We map
to [-1, 1] as for Iris. As upper bound we take 1000. With 100 the model with one c per feature takes about 150
evaluations instead of 280 (published: 156), and its Hmin rises by 0.012 (twelve splits).

The split is random and not published. Its test rows were easy: the published test error of the bilinear SVM, 0.225,
is below its Hmin, 0.284, where on average over splits it is slightly above. The rows of one data set balance: where
the test rows are easy the training rows are hard. The rows "like splits" average over the splits whose test error of
the bilinear model is nearest to the published one; that figure agrees by selection, the other ones come close by
themselves. The rows "all splits" involve no selection.

The kernel machines (no bias) use the same splits, c between 0.01 and 1000, gamma between 0.01 and 100, starts of c in
[5, 15] and of gamma in [0.5, 1.5]. "Selected features" are those whose gamma is off its lower bound after the first
search; the second one starts anew at random. What agrees and what does not:

- One gamma for every feature: Hmin is at or below the published one on most splits. The published search removed four
  features (age, cholesterol, blood sugar, slope), ours three of the thirteen on average. On the like splits both Hmin
  agree with the published ones to 0.001.
- Over 20 splits, features mapped to [0, 1] come closer to the other figures of these rows (H on the training rows
  0.20, their rate 87.7%, 242 evaluations) than in [-1, 1]; standardised ones do not fit (0.12, 92.6%, 509
  evaluations). On single splits L-BFGS-B ends at a poor local minimum in [-1, 1].
- Removing features changes Hmin little and does not improve the rate on test rows, as published.
- One gamma: the published row (Hmin 0.3488, H on the training rows 0.3370 with a rate of 91.58%) is not reproduced by
  any minimum. Ours is about 0.26 on every scaling, as good as the bilinear machine's, with a gamma of 0.05 or so. The
  published combination of a high H and a high rate on the training rows belongs to a narrow kernel with a large c:
  over a grid it is met best at (c, gamma) = (15, 0.7) in [-1, 1], inside the range of the random starts. So that
  search seems to have ended near its start. The conclusion that one gamma is much worse than thirteen rests on that
  row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from foldwise import RBF, BilevelSearchCV, Lin, LinearSVC, QuarticHinge
from papers import frame
from papers.thesis import bikernel

__all__ = ["run"]

N_TRAIN, N_FOLDS = 190, 5
C_RANGE = (0.01, 1000.0)
GAMMA_RANGE = (0.01, 100.0)
MODELS = {"multiple c": "feature", "bilinear": None}
KERNEL_MODELS = ("multiple gamma, all features", "multiple gamma, selected features", "bikernel")
QUANTITIES = bikernel.QUANTITIES


def heart(data_dir: Path | None) -> tuple[np.ndarray, np.ndarray, str]:
    """270 rows with 13 features in [-1, 1], and what they are."""
    loaded = frame.load("heart_statlog", data_dir)
    if loaded is not None:
        return (
            frame.scale_to_unit(loaded[0]),
            loaded[1],
            "Data: Statlog heart, 270 rows, 13 features, mapped to [-1, 1].",
        )
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:270]
    statement = (
        "heart_statlog.csv.gz was not found (give the data folder): 270 rows and 13 features of scikit-learn's breast "
        "cancer set stand in. It is an easier problem; the figures cannot be compared."
    )
    return frame.scale_to_unit(X[rows, :13]), np.where(y[rows] == 1, 1, -1), statement


def one(X: np.ndarray, y: np.ndarray, model: str, seed: int) -> dict[str, float]:
    """One split: select, train on all 190 rows with the selected values, test."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    train, test = order[:N_TRAIN], order[N_TRAIN:]
    per = MODELS[model]
    start = rng.uniform(5.0, 15.0, X.shape[1] if per else 1)
    search = BilevelSearchCV(
        LinearSVC(loss=QuarticHinge(0.125)),
        {"lam": Lin(*C_RANGE, per=per)},
        method="lbfgsb",
        criterion="squared",
        cv=KFold(N_FOLDS, shuffle=True, random_state=seed),
        rescale=False,
        method_options={"start": {"lam": start}, "tol": 1e-6},
    ).fit(X[train], y[train])
    out = {
        "H_min": 0.5 * search.result_.objective,
        "evaluations": N_FOLDS * search.result_.n_evaluations + 1.0,
    }
    for name, rows in (("train", train), ("test", test)):
        out[f"H_{name}"] = 0.5 * float(np.mean((search.decision_function(X[rows]) - y[rows]) ** 2))
        out[f"CR_{name}"] = 100.0 * float(np.mean(search.predict(X[rows]) == y[rows]))
    return out


def kernel_rows(X: np.ndarray, y: np.ndarray, seed: int, quick: bool) -> dict[str, dict[str, float]]:
    """The kernel machines on the split that the linear ones have for this seed; also how many features were removed."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:N_TRAIN], order[N_TRAIN:]
    rng = np.random.default_rng(1000 + seed)

    def search(columns: np.ndarray, every: bool):
        start = {"c": rng.uniform(5.0, 15.0), "gamma": rng.uniform(0.5, 1.5, len(columns) if every else 1)}
        dimensions = {"c": Lin(*C_RANGE), "gamma": Lin(*GAMMA_RANGE, per="feature" if every else None)}
        return bikernel.select(
            RBF(1.0, ard=every),
            (X[np.ix_(train, columns)], y[train]),
            (X[np.ix_(test, columns)], y[test]),
            dimensions,
            start,
            bikernel.five_folds(len(train), seed),
            tol=1e-6,
            max_iter=15 if quick else 100,
        )

    features = np.arange(X.shape[1])
    first, result = search(features, True)
    kept = np.flatnonzero(np.array(result.params["gamma"]) > 1.001 * GAMMA_RANGE[0])
    second, _ = search(kept, True)
    single, _ = search(features, False)
    first["removed"] = float(len(features) - len(kept))
    return dict(zip(KERNEL_MODELS, (first, second, single), strict=True))


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Table 5.6 beside the published one."""
    frame.title("thesis, table 5.6: heart disease, linear and kernel machines")
    X, y, statement = heart(data_dir)
    frame.note(statement)
    known = bikernel.known("5.6")
    n_splits, n_like = (6, 2) if quick else (150, 10)
    ours = {model: [one(X, y, model, seed) for seed in range(n_splits)] for model in MODELS}
    kernels = [kernel_rows(X, y, seed, quick) for seed in range(n_splits)]
    ours |= {model: [rows[model] for rows in kernels] for model in KERNEL_MODELS}
    away = np.abs(np.array([row["H_test"] for row in ours["bilinear"]]) - known["bilinear"]["H_test"])
    like = np.argsort(away, kind="stable")[:n_like]
    rows, lines = [], []
    for name, figures in known.items():
        row: dict[str, Any] = {"model": name, **{f"published_{key}": figures[key] for key in QUANTITIES}}
        for key in QUANTITIES:
            values = [split[key] for split in ours[name]]
            row[f"ours_{key}_mean"], row[f"ours_{key}_sd"] = frame.mean_sd(values)
            row[f"ours_{key}_min"], row[f"ours_{key}_max"] = min(values), max(values)
            row[f"like_{key}"] = float(np.mean([values[i] for i in like]))
        row["splits_at_or_below"] = sum(split["H_min"] <= figures["H_min"] for split in ours[name])
        rows.append(row)
        for label, prefix in (
            ("published", "published_"),
            ("ours, all splits", "ours_"),
            ("ours, like splits", "like_"),
        ):
            mean = "_mean" if prefix == "ours_" else ""
            lines.append(
                [f"{name}: {label}"]
                + [
                    frame.spread(
                        row[f"{prefix}{key}{mean}"],
                        row.get(f"{prefix}{key}_sd"),
                        {"H": 4, "C": 2, "e": 0}[key[0]],
                    )
                    for key in QUANTITIES
                ]
            )
    print()
    frame.print_table(
        ["", "Hmin", "train: H", "train: CR, %", "test: H", "test: CR, %", "evaluations"], lines
    )
    frame.note(
        f"Ours: mean ± sd over {n_splits} random splits and starts; like splits: the {n_like} whose bilinear test "
        "error is nearest to the published one (that figure agrees by selection, the others took no part in it). "
        "Evaluations are five per point, plus the final training."
    )
    removed = [split["removed"] for split in ours[KERNEL_MODELS[0]]]
    frame.note(
        "Splits with Hmin at or below the published one: "
        + ", ".join(f"{row['model']}: {row['splits_at_or_below']}" for row in rows)
        + f". Features removed: {np.mean(removed):.1f} on average, {min(removed):.0f} to {max(removed):.0f} "
        "(published: 4)."
    )
    frame.note(
        "The published bikernel row is no minimum of H: see the notes in the script. With one gamma ours is as good "
        "as the linear machines."
    )
    frame.write_csv(out, "thesis-table5.6", rows)


if __name__ == "__main__":
    frame.command(run)
