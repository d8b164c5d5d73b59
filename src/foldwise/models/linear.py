"""From arrays and a description of a linear model to its training problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.design import Design, make_design
from foldwise.losses import Loss
from foldwise.models.base import Role, Rows
from foldwise.models.binding import build_parameters, criterion_weights, make_cells
from foldwise.penalties import Quadratic
from foldwise.problems.boxed import BoxedProblem
from foldwise.problems.folds import Folds
from foldwise.problems.linear import LinearProblem
from foldwise.problems.polyhedral import PolyhedralProblem
from foldwise.space import Dimension, Space

__all__ = ["LinearModel", "assemble"]


@dataclass(frozen=True)
class LinearModel:
    """A linear model as an optimisation problem.

    Parameters
    ----------
    loss : Loss
    roles : mapping from hyper-parameter name to Role
    values : mapping from hyper-parameter name to its fixed value
    fit_intercept : bool
    intercept_penalty : float
        0 for a free intercept; ``1 / intercept_scaling^2`` for LIBLINEAR's penalised one.
    class_weight : None, "balanced" or dict
        Fixed weights of the classes; keys are class codes.
    class_weight_rule : {"row", "positive"}
        "row": a row weighs as its class says in every one-vs-rest problem. "positive": only in the problem of its
        own class, as LIBLINEAR does with more than two classes.
    balances : {"weights", "rows"}
        What "balanced" weights make equal among the classes: their total sample weight, or their number of rows.
    criterion_weight : "auto", "balanced", dict or None
        Weights of the classes in the criterion, as ``class_weight`` in the loss; "auto" takes those, where fixed.
    l1_ratio : float
        Share of the L1 norm in the penalty.
    reference : ndarray, shape (features,), optional
        Weights that the proximity term pulls to.
    """

    loss: Loss
    roles: Mapping[str, Role]
    values: Mapping[str, Any]
    fit_intercept: bool = True
    intercept_penalty: float = 0.0
    class_weight: Any = None
    class_weight_rule: str = "row"
    balances: str = "weights"
    criterion_weight: Any = "auto"
    l1_ratio: float = 0.0
    reference: np.ndarray | None = None


def assemble(
    model: LinearModel,
    X: Any,
    rows: Rows,
    splits: Sequence[tuple[np.ndarray, np.ndarray]],
    space: Space,
    *,
    dimensions: Mapping[str, Dimension] | None = None,
    standardize: tuple[bool, bool] | None = None,
    n_total: int | None = None,
) -> LinearProblem:
    """The training problems of all splits (times classes) on one design.

    Parameters
    ----------
    standardize : (with_mean, with_std), optional
        Standardise columns by each split's own training rows, as a ``StandardScaler`` in a pipeline does; this is
        done by the penalty, not by a copy of X.
    n_total : int, optional
        Number of tasks over which the outer objective averages, when several problems share it.
    """
    dimensions = {} if dimensions is None else dimensions
    n, d = X.shape
    cells = make_cells(model, rows, dimensions, n)
    folds = Folds.build(n, splits, cells.row) if splits else Folds.whole(n, cells.row)
    order = folds.order
    identity = bool(np.all(order[1:] > order[:-1]))
    design = make_design(X, model.fit_intercept, None if identity else order)
    stored = rows if identity else rows.take(order)
    K, T = len(rows.Y), folds.n_splits
    parameters = build_parameters(model, stored, folds, cells, dimensions, space, (K, T, d, {}))
    scale, form = _standardisation(design, folds, standardize, model.intercept_penalty > 0)
    penalty = Quadratic(
        np.tile(scale, (K, 1)),
        design.n_columns,
        None if form is None else np.tile(form, (K, 1)),
        model.intercept_penalty,
    )
    counts = criterion_weights(model, stored, folds, dimensions)
    parts = (design, stored.Y, folds, model.loss, parameters, penalty, stored.weight, counts, n_total)
    if model.loss.polyhedral:
        fixed = None if "reference" in dimensions else model.reference
        return PolyhedralProblem(*parts, l1_ratio=model.l1_ratio, reference=fixed)
    if parameters.bounded or "proximity" in model.roles:
        return BoxedProblem(*parts, reference=model.reference)
    return LinearProblem(*parts)


def _standardisation(design: Design, folds: Folds, standardize, needs_form: bool):
    """Penalty scales of every split and, for a penalised intercept, its linear forms."""
    T, d = folds.n_splits, design.n_features
    sd, mu = np.ones((T, d)), np.zeros((T, d))
    if standardize is not None:
        with_mean, with_std = standardize
        for t in range(T):
            mean, variance = design.column_statistics(_training_rows(folds, t))
            if with_std:
                spread = np.sqrt(variance) * design.scale
                sd[t] = np.where(variance > 1e-20, spread, 1.0)
            if with_mean:
                mu[t] = design.shift + design.scale * mean
    scale = (sd / design.scale) ** 2
    if not needs_form:
        return scale, None
    return scale, np.column_stack([(mu - design.shift) / design.scale, np.ones(T)])


def _training_rows(folds: Folds, t: int) -> list[Any]:
    """The stored rows that train a split, with their repeats."""
    rows = folds.validation[t]
    if folds.partition and isinstance(rows, slice):
        return [slice(0, rows.start), slice(rows.stop, None)]
    return [np.repeat(np.arange(len(folds.order)), folds.count[t].astype(int))]
