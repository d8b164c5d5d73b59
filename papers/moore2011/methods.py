r"""The methods of section 9.2 on one modelling set: both grids, ImpGrad, PBP, and this library's Newton method.

The training problem of the paper is, with its (9) and (15),

.. math:: \tfrac12 \|w\|^2 + \tfrac12 \sum_g C_g \sum_{j \in g} (|x_j'w - y_j| - \varepsilon_g)_+^2,

and ours has no 1/2 before the loss, so our C is half of the paper's; :func:`to_ours` converts. As in the paper: five
folds, equal for all methods; hyper-parameters within the extremes of the fine grid; ImpGrad from C = 1, epsilon = 0
with tol1 = tol2 = 1e-3, walking in C itself (not in its logarithm); the final model on the whole modelling set with
the selected values as they are. PBP starts there too, first with the tube closed, then with all free. Where
we differ: there is an intercept (the paper leaves it out of its formulas); the inner solver is the same warm-started
Newton method for all of them and solves to 1e-9 where the paper stops at a subgradient of norm 1e-3; ImpGrad's epsilon
derivative has the right sign (equation (27) is misprinted, see ``equation27.py``); PBP walks in the logarithm of C and
has this library's tolerances, which are finer than the paper's 1e-3. "NEWTON (ours)" is not in the paper.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from foldwise import BilevelSearchCV, Lin, LinearSVR, Log

__all__ = ["IMPGRAD", "METHODS", "MODELS", "NEWTON", "PBP", "Outcome", "to_ours", "try_method"]

MODELS = ("SVR", "multiSVR")
GRID_FINE, GRID_COARSE, IMPGRAD, PBP, NEWTON = "GRID FINE", "GRID COARSE", "IMPGRAD", "PBP", "NEWTON (ours)"
METHODS = (GRID_FINE, GRID_COARSE, IMPGRAD, PBP, NEWTON)

FINE = {"C": 10.0 ** np.arange(-4, 4), "epsilon": np.linspace(0.0, 1.0, 6)}
COARSE = {"C": np.array([0.1, 10.0]), "epsilon": np.array([0.0, 1.0])}


def to_ours(C: Any) -> Any:
    """Our C for a C of the paper, whose loss carries a factor 1/2."""
    return C / 2.0


@dataclass(frozen=True)
class Outcome:
    """One method on one modelling set.

    Attributes
    ----------
    mse : float
        Mean squared error on the test rows.
    seconds : float
        Selection and final training.
    evaluations : int
        Points at which all folds were trained.
    objective : float
        Cross-validation error at the selected point.
    C, epsilon : list of float
        Selected values, one per group; C in the units of the paper.
    """

    n: int
    split: int
    method: str
    model: str
    mse: float
    seconds: float
    evaluations: int
    objective: float
    C: list[float]
    epsilon: list[float]


def make_search(method: str, per: str | None, seed: int, strata: np.ndarray) -> BilevelSearchCV:
    """The search of one method; ``strata`` only keeps every group present in every fold."""
    low, high = to_ours(FINE["C"][0]), to_ours(FINE["C"][-1])
    walk = Lin if method == IMPGRAD else Log
    space = {"C": walk(low, high, per=per), "epsilon": Lin(0.0, 1.0, per=per)}
    if method in (GRID_FINE, GRID_COARSE):
        grid = FINE if method == GRID_FINE else COARSE
        name, options = "grid", {"values": {"C": to_ours(grid["C"]), "epsilon": grid["epsilon"]}}
    elif method == IMPGRAD:
        start = {"C": to_ours(1.0), "epsilon": 0.0}
        name, options = "bfgs", {"start": start, "tol1": 1e-3, "tol2": 1e-3}
    elif method == PBP:
        name, options = "pbp", {"start": {"C": to_ours(1.0), "epsilon": 0.0}}
    else:
        name, options = "newton", {}
    folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(strata, strata))
    return BilevelSearchCV(
        LinearSVR(),
        space,
        method=name,
        criterion="squared",
        cv=folds,
        rescale=False,
        random_state=seed,
        method_options=options,
    )


def try_method(
    method: str, model: str, data: Any, n: int, seed: int, group: np.ndarray | None = None
) -> Outcome:
    """Select on ``n`` modelling rows of a substitute, train on all of them, and test."""
    group = data.group if group is None else group
    rows, test = data.split(n, seed)
    per = "group" if model == "multiSVR" else None
    search = make_search(method, per, seed, group[rows])
    began = time.perf_counter()
    search.fit(data.X[rows], data.y[rows], sample_groups=group[rows] if per else None)
    seconds = time.perf_counter() - began
    mse = float(np.mean((search.predict(data.X[test]) - data.y[test]) ** 2))
    params = {name: np.atleast_1d(value) for name, value in search.best_params_.items()}
    return Outcome(
        n,
        seed,
        method,
        model,
        mse,
        seconds,
        search.result_.n_evaluations,
        search.result_.objective,
        (2.0 * params["C"]).tolist(),
        params["epsilon"].tolist(),
    )
