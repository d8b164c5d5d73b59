"""Figures 4 and 5: generalization error and time on four small QSAR sets (section 8, table 1).

Twenty splits each; five folds; C in [1e-3, 1e3], epsilon in [0, std(y)] for ImpGrad and PBP. The paper shows bars
without figures, so there is nothing to print beside ours. None of its sets is public in the form used; what stands in
has the same numbers of modelling and test rows and of features, where these exist:

- aquasol: water solubility (``qsar_solubility``), 100 modelling and 97 test rows, 25 principal components;
- blood/brain barrier: log ratios of 208 compounds (``qsar_bloodbrain``), 60 and 2 rows, 25 components;
- cancer and cholecystokinin: pyrimidines (``qsar_pyrim``), 40 and 6, and 60 and 6 rows, 25 components;
- without the data folder: generated, 25 features that decay like principal components, t-distributed noise.

The paper's MPEC methods (FILTER, SLAMS, EZ-SLAMS) train with another loss and are not run here; its grid is not given,
so ours is the fine one of section 9.2 within these bounds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from foldwise import BilevelSearchCV, Lin, LinearSVR, Log
from foldwise.datasets import make_pca_regression
from papers import frame
from papers.moore2011.methods import FINE, GRID_FINE, IMPGRAD, NEWTON, PBP, to_ours
from papers.moore2011.substitutes import prepare

__all__ = ["figure4", "figure5", "runs"]

METHODS = (GRID_FINE, IMPGRAD, PBP, NEWTON)
SETS = {
    "aquasol": ("qsar_solubility", 100, 97),
    "blood/brain barrier": ("qsar_bloodbrain", 60, 2),
    "cancer": ("qsar_pyrim", 40, 6),
    "cholecystokinin": ("qsar_pyrim", 60, 6),
}
"""The paper's name, what stands in, modelling rows, test rows (table 1)."""
FEATURES = 25


@dataclass(frozen=True)
class Run:
    """One method on one split of one set; ``mse`` in units of the variance of the target."""

    data: str
    method: str
    split: int
    mse: float
    seconds: float
    objective: float


def rows_of(name: str, data_dir: Path | None) -> tuple[np.ndarray, np.ndarray, bool]:
    """Features and standardised target of what stands in for a set, and whether it is real."""
    stand_in, n, n_test = SETS[name]
    loaded = frame.load(stand_in, data_dir)
    if loaded is None:
        X, y, _ = make_pca_regression(n + n_test, FEATURES, seed=list(SETS).index(name))
    else:
        X, y = prepare(loaded[0], FEATURES), loaded[1]
    return X, (y - y.mean()) / y.std(), loaded is not None


def make_search(method: str, spread: float, split: int) -> BilevelSearchCV:
    """The search of one method within the bounds of section 8."""
    walk = Lin if method == IMPGRAD else Log
    space = {"C": walk(to_ours(1e-3), to_ours(1e3)), "epsilon": Lin(0.0, spread)}
    start = {"C": to_ours(1.0), "epsilon": 0.0}
    name, options = {
        GRID_FINE: ("grid", {"values": {"C": to_ours(FINE["C"][1:]), "epsilon": spread * FINE["epsilon"]}}),
        IMPGRAD: ("bfgs", {"start": start, "tol1": 1e-3, "tol2": 1e-3}),
        PBP: ("pbp", {"start": start}),
        NEWTON: ("newton", {}),
    }[method]
    cv = KFold(5, shuffle=True, random_state=split)
    return BilevelSearchCV(
        LinearSVR(), space, method=name, criterion="squared", cv=cv, rescale=False, method_options=options
    )


@lru_cache(maxsize=2)
def runs(quick: bool, data_dir: Path | None) -> list[Run]:
    """Every method on every split, one split in a quick run; kept, because both figures show them."""
    out = []
    for name, (_, n, n_test) in SETS.items():
        X, y, _ = rows_of(name, data_dir)
        for split in range(1 if quick else 20):
            order = np.random.default_rng(split).permutation(len(y))[: n + n_test]
            train, test = order[:n], order[n:]
            for method in METHODS:
                search = make_search(method, float(np.std(y[train])), split)
                began = time.perf_counter()
                search.fit(X[train], y[train])
                seconds = time.perf_counter() - began
                mse = float(np.mean((search.predict(X[test]) - y[test]) ** 2))
                out.append(Run(name, method, split, mse, seconds, search.result_.objective))
    return out


def _figure(
    name: str, quantity: str, label: str, quick: bool, data_dir: Path | None, out: Path | None
) -> None:
    title = f"{label} on small sets"
    frame.title(f"moore2011, {name.replace('figure', 'figure ')}: {title}")
    frame.note("The four sets are not public in the form that was modelled. Compare how the methods rank.")
    for data in SETS:
        _, y, real = rows_of(data, data_dir)
        stand_in = f"{SETS[data][0]} ({len(y)} rows)" if real else "generated data"
        frame.note(f"{data}: {stand_in} stands in, {SETS[data][1]} modelling and {SETS[data][2]} test rows.")
    kept = runs(quick, data_dir)
    rows: list[dict[str, Any]] = []
    lines = []
    for data in SETS:
        for method in METHODS:
            own = [run for run in kept if (run.data, run.method) == (data, method)]
            mean, sd = frame.mean_sd([getattr(run, quantity) for run in own])
            error, _ = frame.mean_sd([run.objective for run in own])
            lines.append([f"{data}, {method}", frame.spread(mean, sd), frame.spread(error)])
            rows.append(
                {"data": data, "method": method, f"ours_{quantity}_mean": mean, f"ours_{quantity}_sd": sd}
            )
    print()
    frame.print_table(["set, method", f"{label}, ours", "CV error"], lines)
    frame.note(
        "Bars without figures are all that is published. MSE is in units of the variance of the target."
    )
    frame.write_csv(out, f"moore2011-{name}", rows)
    with frame.figure(out, f"moore2011-{name}") as panels:
        if panels is not None:
            for k, method in enumerate(METHODS):
                values = [row[f"ours_{quantity}_mean"] for row in rows if row["method"] == method]
                panels[0].bar(np.arange(len(SETS)) + 0.2 * k, values, 0.2, label=method)
            panels[0].set_xticks(np.arange(len(SETS)) + 0.3, list(SETS), fontsize="small")
            panels[0].set(ylabel=label, title="ours, substitute data")
            if quantity == "seconds":
                panels[0].set_yscale("log")
            panels[0].legend(fontsize="small")


def figure4(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Generalization errors."""
    _figure("figure4", "mse", "generalization MSE", quick, data_dir, out)


def figure5(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Times."""
    _figure("figure5", "seconds", "seconds", quick, data_dir, out)


def both(quick: bool, data_dir: Path | None, out: Path | None) -> None:
    """Figures 4 and 5."""
    figure4(quick, data_dir, out)
    figure5(quick, data_dir, out)


if __name__ == "__main__":
    frame.command(both)
