"""A small seeded bilevel program to try things on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.bilevel import Bilevel
from foldwise.criteria import Criterion
from foldwise.design import make_design
from foldwise.losses import Loss
from foldwise.penalties import Quadratic
from foldwise.problems.base import TaskData
from foldwise.problems.folds import Folds
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import Binding, ParameterMap
from foldwise.solvers.newton import Newton
from foldwise.space import Dimension, Log, Space

__all__ = ["small_bilevel"]


def small_bilevel(
    loss: Loss,
    criterion: Loss | Criterion,
    tune: Mapping[str, Dimension] | None = None,
    *,
    n: int = 60,
    d: int = 5,
    n_splits: int = 3,
    n_groups: int = 3,
    n_targets: int = 1,
    intercept: bool = True,
    sparse: bool = False,
    sample_weight: bool = False,
    overlap: bool = False,
    solver: Any = None,
    seed: int = 0,
) -> tuple[Bilevel, np.ndarray]:
    """A seeded bilevel program of a linear model, and a point inside its bounds.

    Parameters
    ----------
    loss, criterion : Loss
        Training loss and outer criterion; labels are -1, +1 when the training loss is one of classification.
    tune : mapping from name to Dimension, optional
        Any of ``C`` and ``epsilon`` (``per`` None, "group" or "class"), ``lam`` (``per`` None or "feature") and
        ``class_weight`` (``per="class"``: a factor on the loss of every class of rows but the first). By default
        ``C``.
    n, d, n_splits, n_groups : int
        Rows, features, folds, groups of samples.
    n_targets : int
        1, or the number of one-vs-rest problems (then "class" means one of them for ``C`` and ``epsilon``).
    intercept : bool
    sparse : bool
        Keep X as a CSR matrix.
    sample_weight : bool
        Draw sample weights in [0.5, 2]; they weigh training and validation rows.
    overlap : bool
        Splits that overlap instead of a partition into folds: rows train and validate at once, and some come twice.
    solver : object with ``solve``, optional
        By default Newton with a tolerance of 1e-12.
    seed : int

    Returns
    -------
    bilevel : Bilevel
    theta : ndarray

    Examples
    --------
    >>> from foldwise.losses import Squared, SquaredEpsilonInsensitive
    >>> from foldwise.space import Lin
    >>> tune = {"C": Log(1e-3, 10), "epsilon": Lin(0, 2, per="group")}
    >>> bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), tune)
    >>> bilevel.space.names
    ['C', 'epsilon[0]', 'epsilon[1]', 'epsilon[2]']
    >>> bilevel.evaluate(theta).converged
    True
    """
    rng = np.random.default_rng(seed)
    tune = {"C": Log(1e-4, 1e2)} if tune is None else tune
    # 1. Rows and targets, and what distinguishes rows: a group and a class.
    X = rng.normal(size=(n, d)) * np.linspace(0.5, 1.5, d)
    if sparse:
        X = X * (rng.random((n, d)) < 0.6)
    signal = X @ rng.normal(size=(d, max(n_targets, 2))) + 0.3
    group = rng.permutation(np.arange(n) % n_groups)
    noise = 0.7 * (1.0 + group[:, None]) * rng.normal(size=signal.shape)
    Y, label = _targets(signal + noise, loss.task, n_targets)
    n_classes = int(label.max()) + 1
    # 2. Splits and cells: rows that share their hyper-parameters.
    if not any(dim.per == "group" for dim in tune.values()):
        group, n_groups = np.zeros(n, dtype=int), 1
    if "class_weight" not in tune:
        label, n_classes = np.zeros(n, dtype=int), 1
    n_cells, n_tasks = n_groups * n_classes, n_targets * n_splits
    folds = Folds.build(n, _splits(rng, n, n_splits, overlap), group * n_classes + label)
    # 3. The space, and where its entries act.
    labels = {"group": range(n_groups), "feature": range(d), "class": range(n_targets)}
    space = Space.build(tune, {**labels, "class_weight": range(1, n_classes)})
    cell, task = np.arange(n_cells), np.arange(n_tasks)
    entry = {
        None: np.zeros((n_tasks, n_cells), dtype=int),
        "group": np.tile(cell // n_classes, (n_tasks, 1)),
        "class": np.tile(task[:, None] // n_splits, (1, n_cells)),
    }
    bindings = {}
    for name, dim in tune.items():
        if name == "class_weight":
            bindings[name] = Binding("log_c", np.tile(cell % n_classes - 1, (n_tasks, 1)))
        elif name == "lam":
            feature = np.arange(d) if dim.per == "feature" else np.zeros(d, dtype=int)
            bindings[name] = Binding("log_lam", np.tile(feature, (n_targets, 1)))
        else:
            bindings[name] = Binding("log_c" if name == "C" else "epsilon", entry[dim.per])
    fixed_c = np.full((n_tasks, n_cells), 0.0 if "C" in tune else np.log(0.5))
    fixed_tube = np.full((n_tasks, n_cells), 0.0 if "epsilon" in tune else getattr(loss, "epsilon", 0.0))
    parameters = ParameterMap(space, bindings, fixed_c, fixed_tube, np.zeros((n_targets, d)))
    # 4. The training problems.
    weight = rng.uniform(0.5, 2.0, n)[folds.order] if sample_weight else None
    design = make_design(sp.csr_array(X) if sparse else X, intercept, folds.order, densify=False)
    penalty = Quadratic(np.tile(1.0 / design.scale**2, (n_tasks, 1)), design.n_columns)
    data = TaskData(Y[:, folds.order], folds, loss, parameters, weight, weight)
    problem = LinearProblem(data, design, penalty)
    bilevel = Bilevel([problem], criterion, space, Newton(tol=1e-12) if solver is None else solver)
    return bilevel, _inner_point(space, rng)


def _targets(noisy: np.ndarray, task: str, n_targets: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets (one row per problem) and the class of every row."""
    label = (noisy[:, 0] > 0).astype(int) if n_targets == 1 else noisy.argmax(axis=1)
    if task == "regression":
        return np.ascontiguousarray(noisy[:, :n_targets].T), label
    if n_targets == 1:
        return np.where(label == 1, 1.0, -1.0)[None], label
    return np.where(label[None] == np.arange(n_targets)[:, None], 1.0, -1.0), label


def _splits(
    rng: np.random.Generator, n: int, n_splits: int, overlap: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    if overlap:
        shuffles = [rng.permutation(n) for _ in range(n_splits)]
        return [
            (np.r_[rows[n // 4 - 3 : -n // 10], rows[n // 4 : n // 4 + 5]], np.r_[rows[: n // 4], rows[:2]])
            for rows in shuffles
        ]
    return partition(rng, n, n_splits)


def partition(rng: np.random.Generator, n: int, n_splits: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows that train and that validate, of shuffled folds."""
    rows = rng.permutation(n)
    return [(np.setdiff1d(rows, part), np.sort(part)) for part in np.array_split(rows, n_splits)]


def _inner_point(space: Space, rng: np.random.Generator) -> np.ndarray:
    """A point away from the bounds: about 0.2 for C, 0.3 for tubes, 2 for penalties, 1 for class weights."""
    typical = {"C": 0.2, "epsilon": 0.3, "lam": 2.0, "class_weight": 1.0}
    return scattered(space, space.theta({name: typical[name] for name in space.slices}), rng)


def scattered(space: Space, theta: np.ndarray, rng: np.random.Generator, least: int = 1) -> np.ndarray:
    """``theta`` with the entries of blocks of at least this size apart from each other."""
    for block in space.blocks:
        if block.size >= least:
            part, factor = space.slices[block.name], rng.uniform(0.7, 1.4, block.size)
            theta[part] += np.log(factor) if block.scale == "log" else theta[part] * (factor - 1.0)
    return space.clip(theta)
