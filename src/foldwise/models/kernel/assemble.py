"""From arrays and a description of a kernel model to its training problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from foldwise.kernels import Kernel
from foldwise.models.base import Array, Rows
from foldwise.models.binding import Layout, build_parameters, criterion_weights, make_cells, weights_by_label
from foldwise.problems.base import TaskData
from foldwise.problems.dual import Original
from foldwise.problems.folds import Folds
from foldwise.problems.gram import DenseGram, LandmarkGram
from foldwise.problems.kernel import KernelProblem
from foldwise.space import Dimension, Space
from foldwise.splits import Splits

if TYPE_CHECKING:
    from foldwise.models.kernel.model import KernelModel

__all__ = [
    "KernelParts",
    "MemoryLimitError",
    "assemble_kernel",
    "dense_rows",
    "kernel_slots",
    "landmark_gram",
    "one_vs_one",
    "original_of",
]


class MemoryLimitError(ValueError):
    """Kernel matrices would take more memory than they may."""


@dataclass(frozen=True, eq=False)
class KernelParts:
    """What the training problems on one kernel matrix are made of.

    Attributes
    ----------
    data : the tasks; rows in the order of their folds
    gram : DenseGram or LandmarkGram, in the same order
    X, dense : the features as given and as floats, in the user's order
    rows, splits : what is known about the rows, and their folds, in the user's order
    numbers : the rows' own among all rows of a program, in stored order; None outside one
    """

    data: TaskData
    gram: DenseGram | LandmarkGram
    X: Any
    dense: Array
    rows: Rows
    splits: Splits
    numbers: Array | None


def kernel_slots(model: KernelModel, d: int) -> dict[str, slice]:
    """Where each hyper-parameter's values stand among the kernel's parameters."""
    where = _own_slots(model.kernel, d)
    return {name: where[own] for name, own in model.slot_names.items()}


def one_vs_one(rows: Rows) -> tuple[Array, Array]:
    """Targets in {-1, +1} of every pair of classes, and which rows belong to the pair."""
    assert rows.label is not None
    pairs = list(combinations(range(len(rows.class_labels)), 2))
    Y = np.stack([np.where(rows.label == first, 1.0, -1.0) for first, _ in pairs])
    present = np.stack([(rows.label == first) | (rows.label == second) for first, second in pairs])
    return Y, present


def assemble_kernel(
    model: KernelModel,
    X: Any,
    rows: Rows,
    splits: Splits,
    space: Space,
    *,
    dimensions: Mapping[str, Dimension] | None = None,
    n_total: int | None = None,
    landmarks: Array | None = None,
    relative: KernelProblem | None = None,
    n_alike: int = 1,
    numbers: Array | None = None,
) -> KernelProblem:
    """The training problems of all splits (times classes or pairs of classes) on one kernel matrix.

    With ``landmarks`` (row numbers) the kernel is seen through these rows: see :class:`LandmarkGram`. ``relative`` is a
    problem on the same rows, whose distances are shared when it stores them in the same order. ``n_alike`` problems are
    to share the distances of this one; rows are then stored in an order that does not depend on the splits. ``numbers``
    are the rows' own among all rows of a program.
    """
    dimensions = {} if dimensions is None else dimensions
    n, d = X.shape
    if landmarks is None:
        _check_memory(model, n, n_alike)
    dense = dense_rows(X, model.memory_limit)
    cells = make_cells(model, rows, dimensions, n)
    folds = Folds.build(n, splits, cells.row, blocks=n_alike == 1) if splits else Folds.whole(n, cells.row)
    order = folds.order
    stored = rows.take(order)
    Y, present = stored.Y, None
    if model.multiclass == "ovo" and len(Y) > 1:
        Y, present = one_vs_one(stored)
    layout = Layout(len(Y), folds.n_splits, 0, cells, folds.n_cells, kernel_slots(model, d))
    parameters = build_parameters(model, stored, folds, dimensions, space, layout)
    gram: Any
    if relative is not None and np.array_equal(relative.folds.order, order):
        gram = relative.gram.twin()
    elif landmarks is None:
        gram = DenseGram(_pairs(model, model.kernel.reordered(dense, order)))
    else:
        gram = landmark_gram(model, dense, model.kernel.reordered(dense, order), landmarks)
    counts = criterion_weights(model, stored, folds, dimensions)
    data = TaskData(Y, folds, model.loss, parameters, stored.weight, counts, n_total, present)
    numbers = None if numbers is None else numbers[order]
    return model.problem(KernelParts(data, gram, X, dense, rows, splits, numbers))


def original_of(model: KernelModel, parts: KernelParts) -> Original | None:
    """The training sets as scikit-learn's machine gets them; None for our own machines."""
    if model.machine is None:
        return None
    X, rows, folds = parts.X, parts.rows, parts.data.folds
    trains = [np.asarray(train) for train, _ in parts.splits]
    place = np.argsort(folds.order)
    if rows.label is None:
        return Original(model.machine, model.by_fold, X, rows.Y[0], trains, rows.weight, None, [], place)
    class_weight = None
    if model.class_weight is not None:
        class_weight = weights_by_label(model.class_weight, model, rows.take(folds.order), folds)
    pairs = list(combinations(range(len(rows.class_labels)), 2))
    return Original(
        model.machine, model.by_fold, X, rows.label, trains, rows.weight, class_weight, pairs, place
    )


def landmark_gram(model: KernelModel, X: Array, rows: Array, landmarks: Array) -> LandmarkGram:
    """The kernel of ``rows`` through the landmarks, which number rows of ``X``."""
    U = X[landmarks]
    slots = _own_slots(model.kernel, X.shape[1])

    def diagonal(log_p: Array) -> Array:
        values = {name: np.exp(log_p[part]) for name, part in slots.items()}
        plain = {name: array if array.size > 1 else float(array[0]) for name, array in values.items()}
        return model.kernel.with_parameters(plain).diagonal(rows)

    return LandmarkGram(model.kernel.pairs(rows, U), model.kernel.pairs(U), diagonal)


def dense_rows(X: Any, memory_limit: float = np.inf) -> Array:
    """The rows of X as an array of floats; sparse ones that would not fit the limit (bytes) are refused."""
    if not sp.issparse(X):
        return np.asarray(X, float)
    needed = 8.0 * X.shape[0] * X.shape[1]
    if needed > memory_limit:
        raise ValueError(
            f"a kernel machine makes sparse rows dense, which takes {needed / 1e9:.1f} GB for {X.shape[0]} rows of "
            f"{X.shape[1]} features, above the limit of {memory_limit / 1e9:.1f} GB; reduce the features "
            "(TruncatedSVD in a pipeline), or use a linear machine, which keeps them sparse"
        )
    return np.asarray(X.toarray(), float)


def _own_slots(kernel: Kernel, d: int) -> dict[str, slice]:
    """Where each of the kernel's parameters stands, by its own name."""
    where, first = {}, 0
    for name, values in kernel.parameters(d).items():
        where[name] = slice(first, first + values.size)
        first += values.size
    return where


def _pairs(model: KernelModel, X: Array) -> Any:
    """Pairs of all rows in the precision that the model asks for."""
    if model.precision == "double":
        return model.kernel.pairs(X)
    if model.precision != "single":
        raise ValueError(f"precision must be 'double' or 'single'; got {model.precision!r}")
    sizes = [values.size for values in model.kernel.parameters(X.shape[1]).values()]
    if not model.kernel.has_single_pairs or max(sizes, default=1) > 1:
        raise ValueError(
            f"precision='single' is for RBF with one width and ExpChi2; got {model.kernel}. Use precision='double'"
        )
    return model.kernel.single_pairs(X)


def _check_memory(model: KernelModel, n: int, n_alike: int = 1) -> None:
    # Distances, and of every problem that shares them the kernel matrix.
    matrices = 1 + n_alike + 2 * len(getattr(model.kernel, "kernels", ()))
    needed = (8.0 if model.precision == "double" else 4.0) * n * n * matrices
    if needed > model.memory_limit:
        ways = ["use fewer rows or a linear model"]
        if not (model.loss.polyhedral or model.kernel.precomputed):
            ways.append("set low_rank=True in the search")
        if "memory_limit" in model.adjustable:
            ways.append("raise memory_limit")
        single = model.kernel.has_single_pairs and model.precision == "double"
        if single and "precision" in model.adjustable:
            ways.append("set precision='single'")
        if not model.adjustable:
            ways.append("tune KernelSVC or KernelSVR of foldwise, whose memory_limit can be raised")
        raise MemoryLimitError(
            f"kernel matrices of {n} rows need {needed / 1e9:.1f} GB, above the limit of "
            f"{model.memory_limit / 1e9:.1f} GB; {', or '.join(ways)}"
        )
