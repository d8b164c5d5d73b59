r"""The methods of sections V and VI on one instance, and two more of this library.

The training problem is :math:`\tfrac12 \|w\|^2 + C \sum_j (|x_j'w - y_j| - \varepsilon)_+` within ``|w_d| <= box_d``,
without intercept; the outer objective is the mean absolute deviation over the rows of each of three folds, averaged
over the folds. All methods share the folds and the exact training solutions at which their objective is measured.

- unconstrained grid: C in {0.1, 1, 10}, epsilon in {0.01, 0.1, 1}, no box;
- constrained grid: C and epsilon from there; boxes 0 or ``WIDE`` in all combinations of ten features, chosen by
  recursive feature elimination where there are more;
- mpec: one nonlinear program with relaxed complementarity, as the paper solved by FILTER and SNOPT;
- slams: successive linearisation, which the paper does not have;
- implicit: descent along the gradient by implicit differentiation, which the paper does not have either.

The final model is the regression of VI.C, which minimises absolute deviations on all rows within the selected boxes.
For the unconstrained grid, which selects no boxes, it is the machine at the selected C and epsilon: without bounds the
regression passes through all points where there are as many features as rows, and with 15 of each its mean squared
error is above 100, while the published 9.1 is that of the machine.

The last three select C up to 10, epsilon up to 1 and a box for every feature. The paper bounds C and epsilon "to
facilitate comparison" without figures; these are the largest values of the grid.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import Any

import numpy as np

from foldwise import BilevelSearchCV, Lin, LinearSVR, Log
from foldwise.result import Result
from papers.bennett2006.data import Instance, constrained_l1

__all__ = ["DETAILS", "GRID", "METHODS", "WIDE", "available", "installed", "try_method"]

UNCONSTRAINED, CONSTRAINED, MPEC, SLAMS, IMPLICIT = (
    "unconstrained grid",
    "constrained grid",
    "mpec",
    "slams",
    "implicit",
)
METHODS = (UNCONSTRAINED, CONSTRAINED, MPEC, SLAMS, IMPLICIT)

GRID = {"C": [0.1, 1.0, 10.0], "epsilon": [0.01, 0.1, 1.0]}
WIDE = 10.0
"""An upper bound of the boxes that no weight reaches: the true weights are within [-1, 1]."""
DETAILS = ("claimed", "gap", "solver_status", "solver_detail", "biactive", "stationarity")
"""What mpec and slams know of themselves."""
FEATURE = 1e-3
"""A feature counts as selected when its box exceeds this: the square root of the paper's tolerance 1e-6."""


SOLVERS = {MPEC: ("unopy", "ipyopt"), SLAMS: ("highspy",)}
"""Packages of which one must be installed."""


def installed(method: str) -> bool:
    """Whether a method's solver is there."""
    packages = SOLVERS.get(method)
    return packages is None or any(find_spec(package) is not None for package in packages)


def available() -> tuple[str, ...]:
    """Methods that can run here."""
    return tuple(method for method in METHODS if installed(method))


def make_search(
    method: str, instance: Instance, chosen: dict[str, float], max_features: int = 10
) -> BilevelSearchCV:
    """The search of one method; ``chosen`` are C and epsilon of the unconstrained grid.

    ``max_features`` is how many boxes the constrained grid tries in all combinations.
    """
    model = LinearSVR(loss="epsilon_insensitive", fit_intercept=False)
    boxes = {"box": Lin(0.0, WIDE, per="feature")}
    options: dict[str, Any] = {}
    if method == UNCONSTRAINED:
        space: dict[str, Any] = {"C": Log(0.1, 10.0), "epsilon": Lin(0.01, 1.0)}
        name, options = "grid", {"values": GRID}
    elif method == CONSTRAINED:
        model.set_params(box=WIDE, **chosen)
        space, name, options = boxes, "constrained_grid", {"max_features": max_features}
    else:
        model.set_params(box=WIDE)
        space = {"C": Log(1e-3, 10.0), "epsilon": Lin(0.0, 1.0), **boxes}
        name = {IMPLICIT: "auto"}.get(method, method)
    return BilevelSearchCV(
        model,
        space,
        method=name,
        criterion="absolute",
        cv=instance.folds,
        refit=False,
        random_state=0,
        method_options=options,
    )


def try_method(
    method: str, instance: Instance, chosen: dict[str, float], max_features: int = 10
) -> dict[str, Any]:
    """Select by three folds; errors on the rows held out, of the final model and (``_svr``) of the machine itself."""
    search = make_search(method, instance, chosen, max_features)
    began = time.process_time()
    search.fit(instance.X, instance.y)
    seconds = time.process_time() - began
    return describe(instance, {"box": np.inf, **chosen, **search.best_params_}, search.result_, seconds)


def describe(instance: Instance, params: dict[str, Any], result: Result, seconds: float) -> dict[str, Any]:
    """What the tables need of a selection, with the errors of the final model."""
    box = np.broadcast_to(np.asarray(params["box"], float), instance.features)
    box = np.where(box < FEATURE, 0.0, box)
    out = {
        "objective": result.objective,
        "status": result.status.value,
        "seconds": seconds,
        "evaluations": result.n_evaluations,
        **{name: result.details.get(name) for name in DETAILS},
        "C": float(params["C"]),
        "epsilon": float(params["epsilon"]),
        "box": box.tolist(),
        "features": int(np.count_nonzero(box)),
    }
    bounded = box if np.isfinite(box).all() else None
    machine = LinearSVR(
        loss="epsilon_insensitive", fit_intercept=False, C=out["C"], epsilon=out["epsilon"], box=bounded
    )
    w = {"_svr": machine.fit(instance.X, instance.y).coef_}
    w[""] = w["_svr"] if bounded is None else constrained_l1(instance.X, instance.y, box)
    for ending, weights in w.items():
        residual = instance.X_test @ weights - instance.y_test
        out[f"mad{ending}"] = float(np.mean(np.abs(residual)))
        out[f"mse{ending}"] = float(np.mean(residual**2))
    return out
