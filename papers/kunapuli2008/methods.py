r"""The methods of sections 2 to 4 on one instance, and two more of this library.

The training problem is :math:`\tfrac\lambda2 \|w\|^2 + \sum_j (1 - y_j (x_j'w - b))_+` within ``|w_d| <= box_d``: ours
with ``C = 1 / lambda``. Bounds as in section 5.1: ``lambda`` from 1e-4 to 1e4, boxes up to 1.5. Each method is run for
the misclassification error and for the hinge loss on the validation rows, both averaged over rows and then folds:

- unconstrained grid: lambda in {1e-4, 1e-3, ..., 1e4}, no box;
- constrained grid: lambda from there; boxes 0 or 1.5 in all combinations of ten features, chosen by recursive feature
  elimination where there are more;
- mpec: one nonlinear program with relaxed complementarity; BilevelMM (11) and BilevelHL (13) of the paper;
- slams: successive linearisation; implicit: descent along the gradient. Both for the hinge only; not in the paper.

The objective that is reported is the true one, at exact training solutions. What the nonlinear program itself claims is
kept as ``claimed``: for the misclassification error it may be lower, because a validation row that lies on the
hyperplane counts as any number between 0 and 1 there.

The final machine is trained on all training rows with ``3/2 lambda`` (in general ``T / (T - 1) lambda``) and the
selected boxes, of which those under ``sqrt(1e-6)`` are set to 0.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from foldwise import BilevelSearchCV, Lin, LinearSVC, Log
from foldwise.result import Result
from papers.bennett2006.methods import DETAILS, installed
from papers.kunapuli2008.data import Instance

__all__ = ["CRITERIA", "available", "fold_errors", "make_search", "test_error", "try_method"]

UNCONSTRAINED, CONSTRAINED, MPEC, SLAMS, IMPLICIT = (
    "unconstrained grid",
    "constrained grid",
    "mpec",
    "slams",
    "implicit",
)
CRITERIA = ("misclassification", "hinge")
LAMBDA = 10.0 ** np.arange(-4, 5)
BOX = 1.5
FEATURE = 1e-3
"""Boxes below the square root of the tolerance 1e-6 count as 0."""


def available(criterion: str) -> tuple[str, ...]:
    """What runs for a criterion: some methods need one with a slope, some a solver that may not be installed."""
    names = [UNCONSTRAINED, CONSTRAINED, MPEC]
    if criterion == "hinge":
        names += [SLAMS, IMPLICIT]
    return tuple(name for name in names if installed(name))


def make_search(
    method: str, criterion: str, instance: Instance, chosen: dict[str, float], max_features: int = 10
) -> BilevelSearchCV:
    """The search of one method; ``chosen`` is C of the unconstrained grid, ``max_features`` the constrained grid's."""
    model = LinearSVC(loss="hinge")
    boxes = {"box": Lin(0.0, BOX, per="feature")}
    strength = {"C": Log(1.0 / LAMBDA[-1], 1.0 / LAMBDA[0])}
    options: dict[str, Any] = {}
    if method == UNCONSTRAINED:
        space: dict[str, Any] = strength
        name, options = "grid", {"values": {"C": 1.0 / LAMBDA}}
    elif method == CONSTRAINED:
        model.set_params(box=BOX, **chosen)
        space, name, options = boxes, "constrained_grid", {"max_features": max_features}
    else:
        model.set_params(box=BOX)
        space = {**strength, **boxes}
        name = {IMPLICIT: "auto"}.get(method, method)
    return BilevelSearchCV(
        model,
        space,
        method=name,
        criterion=criterion,
        cv=instance.folds,
        refit=False,
        random_state=0,
        method_options=options,
    )


def machine(C: float, box: np.ndarray, X: np.ndarray, y: np.ndarray) -> LinearSVC:
    """The machine at these values; infinite boxes are none."""
    bounded = box if np.isfinite(box).all() else None
    return LinearSVC(loss="hinge", C=C, box=bounded).fit(X, y)


def fold_errors(instance: Instance, C: float, box: np.ndarray) -> dict[str, float]:
    """Both outer objectives at these values, by training fold after fold."""
    wrong, hinge = [], []
    for train, validation in instance.folds:
        model = machine(C, box, instance.X[train], instance.y[train])
        margin = instance.y[validation] * model.decision_function(instance.X[validation])
        wrong.append(np.mean(margin <= 0))
        hinge.append(np.mean(np.maximum(1.0 - margin, 0.0)))
    return {"misclassification": float(np.mean(wrong)), "hinge": float(np.mean(hinge))}


def test_error(instance: Instance, C: float, box: np.ndarray) -> float:
    """Share of wrong labels on the test rows, after training on all training rows with lambda times T / (T - 1)."""
    T = len(instance.folds)
    model = machine(C * (T - 1) / T, box, instance.X, instance.y)
    return float(np.mean(model.predict(instance.X_test) != instance.y_test))


def try_method(
    method: str, criterion: str, instance: Instance, chosen: dict[str, float], max_features: int = 10
) -> dict[str, Any]:
    """Select, train, test."""
    search = make_search(method, criterion, instance, chosen, max_features)
    began = time.process_time()
    search.fit(instance.X, instance.y)
    seconds = time.process_time() - began
    return describe(instance, {"box": np.inf, **chosen, **search.best_params_}, search.result_, seconds)


def describe(instance: Instance, params: dict[str, Any], result: Result, seconds: float) -> dict[str, Any]:
    """What the tables need of a selection, with the error of the final machine."""
    box = np.broadcast_to(np.asarray(params["box"], float), instance.X.shape[1])
    box = np.where(box < FEATURE, 0.0, box)
    C = float(params["C"])
    return {
        "objective": result.objective,
        "status": result.status.value,
        "seconds": seconds,
        "evaluations": result.n_evaluations,
        **{name: result.details.get(name) for name in DETAILS},
        "C": C,
        "box": box.tolist(),
        "features": int(np.count_nonzero(box)),
        "test": test_error(instance, C, box),
        **{f"cv_{name}": value for name, value in fold_errors(instance, C, box).items()},
    }
