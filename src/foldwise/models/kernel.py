"""From arrays and a description of a kernel model to its training problems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from foldwise.basis import as_basis, columns, framed, independent, with_constant
from foldwise.kernels import Kernel
from foldwise.losses import Loss
from foldwise.models.base import Role, Rows
from foldwise.models.binding import build_parameters, criterion_weights, make_cells, weights_by_label
from foldwise.problems.dual import DualProblem, Original
from foldwise.problems.folds import Folds
from foldwise.problems.gram import DenseGram, LandmarkGram
from foldwise.problems.kernel import KernelProblem
from foldwise.problems.semiparametric import SemiparametricProblem
from foldwise.space import Dimension, Space

__all__ = [
    "KernelModel",
    "MemoryLimitError",
    "SemiparametricModel",
    "assemble_kernel",
    "dense_rows",
    "kernel_slots",
    "one_vs_one",
]


class MemoryLimitError(ValueError):
    """Kernel matrices would take more memory than they may."""


@dataclass(frozen=True)
class KernelModel:
    """A kernel model as an optimisation problem.

    Parameters
    ----------
    loss : Loss
        Smooth losses are solved in representer form; Hinge and EpsilonInsensitive exactly, through their dual.
    kernel : Kernel
    roles, values, fit_intercept, class_weight, class_weight_rule, balances, criterion_weight
        As in :class:`foldwise.models.linear.LinearModel`.
    slot_names : mapping from hyper-parameter name to the kernel's own name for it
    multiclass : {"ovr", "ovo"}
    memory_limit : float
        Bytes that kernel matrices may take.
    precision : {"double", "single"}
        How distances and kernel matrices are kept.
    adjustable : sequence of str
        Which of the two are parameters of the user's estimator: what a refusal may advise.
    by_fold : mapping from hyper-parameter name to callable(X) -> float
        Values that follow from a fold's training rows, unless they are tuned.
    machine : SVC or SVR, optional
        scikit-learn's machine, where it is one; its intercept is then LIBSVM's also where that is not unique.
    """

    loss: Loss
    kernel: Kernel
    roles: Mapping[str, Role]
    values: Mapping[str, Any]
    slot_names: Mapping[str, str]
    fit_intercept: bool = True
    class_weight: Any = None
    class_weight_rule: str = "row"
    multiclass: str = "ovr"
    balances: str = "weights"
    criterion_weight: Any = "auto"
    memory_limit: float = 8e9
    precision: str = "double"
    adjustable: tuple[str, ...] = ()
    by_fold: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    machine: Any = None

    def shares(self, tuned: Collection[str]) -> bool:
        """Whether all folds have the same kernel where these hyper-parameters are tuned."""
        return set(self.by_fold) <= set(tuned)

    def fitted(self, X: Any) -> KernelModel:
        """With the values that follow from these training rows."""
        if not self.by_fold:
            return self
        return replace(self, values={**self.values, **{name: f(X) for name, f in self.by_fold.items()}})

    def is_width(self, name: str) -> bool:
        """Whether a hyper-parameter makes the kernel narrower as it grows."""
        return name in self.slot_names and self.kernel.kinds()[self.slot_names[name]] == "width"


@dataclass(frozen=True)
class SemiparametricModel(KernelModel):
    """A kernel model with columns that are not penalised in place of the intercept.

    Parameters
    ----------
    basis : what :func:`foldwise.basis.as_basis` takes
        A transformer is fitted to the training rows of every split. The columns of an array are in ``Rows.basis``.
    names : sequence of str, optional
        Names of the columns of X, where the basis is given a data frame.
    """

    basis: Any = None
    names: Any = None

    def with_basis(self, rows: Rows) -> Rows:
        """The rows with the columns of a basis that is an array."""
        basis, n = as_basis(self.basis), rows.Y.shape[1]
        if not isinstance(basis, np.ndarray):
            return rows
        if len(basis) != n:
            raise ValueError(f"the array in basis has {len(basis)} rows and X has {n}; they must be equal")
        return replace(rows, basis=basis)

    def psi(self, X: np.ndarray, rows: Rows, train: np.ndarray, others: np.ndarray) -> np.ndarray:
        """The basis, fitted to the training rows, on these and the other rows; zero elsewhere. Shape (n, K)."""
        basis = as_basis(self.basis)
        out = rows.basis
        if not isinstance(basis, np.ndarray):
            basis.fit(framed(X[train], self.names))
            used = np.concatenate([train, others])
            found = columns(basis, framed(X[used], self.names))
            out = np.zeros((len(X), found.shape[1]))
            out[used] = found
        assert out is not None
        if self.fit_intercept and with_constant(out, train):
            out = np.column_stack([out, np.ones(len(out))])
        return out


def kernel_slots(model: KernelModel, d: int) -> dict[str, slice]:
    """Where each hyper-parameter's values stand among the kernel's parameters."""
    where = _own_slots(model.kernel, d)
    return {name: where[own] for name, own in model.slot_names.items()}


def one_vs_one(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
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
    splits: Sequence[tuple[np.ndarray, np.ndarray]],
    space: Space,
    *,
    dimensions: Mapping[str, Dimension] | None = None,
    n_total: int | None = None,
    landmarks: np.ndarray | None = None,
    like: KernelProblem | None = None,
    n_alike: int = 1,
) -> KernelProblem:
    """The training problems of all splits (times classes or pairs of classes) on one kernel matrix.

    With ``landmarks`` (row numbers) the kernel is seen through these rows: see :class:`LandmarkGram`. ``like`` is a
    problem on the same rows, whose distances are shared when it stores them in the same order. ``n_alike`` problems are
    to share the distances of this one; rows are then stored in an order that does not depend on the splits.
    """
    dimensions = {} if dimensions is None else dimensions
    n, d = X.shape
    if landmarks is None:
        _check_memory(model, n, n_alike)
    given, X = X, dense_rows(X, model.memory_limit)
    cells = make_cells(model, rows, dimensions, n)
    folds = Folds.build(n, splits, cells.row, blocks=n_alike == 1) if splits else Folds.whole(n, cells.row)
    order = folds.order
    stored = rows.take(order)
    Y, present = stored.Y, None
    if model.multiclass == "ovo" and len(Y) > 1:
        Y, present = one_vs_one(stored)
    slots = kernel_slots(model, d)
    K, T = len(Y), folds.n_splits
    parameters = build_parameters(model, stored, folds, cells, dimensions, space, (K, T, 0, slots))
    gram: Any
    if like is not None and np.array_equal(like.folds.order, order):
        gram = like._gram.twin()
    else:
        part = model.kernel.reordered(X, order)
        gram = (
            DenseGram(_pairs(model, part)) if landmarks is None else landmark_gram(model, X, part, landmarks)
        )
    if isinstance(model, SemiparametricModel):
        own = []
        for train, validation in splits:
            Psi = model.psi(X, rows, train, validation)
            weight = None if rows.weight is None else rows.weight[train]
            own.append((Psi @ independent(Psi[train], weight))[order])
        return SemiparametricProblem(gram, Y, folds, model.loss, parameters, own, stored.weight, n_total)
    counts = criterion_weights(model, stored, folds, dimensions)
    parts = (
        gram,
        Y,
        folds,
        model.loss,
        parameters,
        model.fit_intercept,
        stored.weight,
        n_total,
        present,
        counts,
    )
    if not model.loss.polyhedral:
        return KernelProblem(*parts)
    original = None if model.machine is None else _original(model, given, rows, folds, splits)
    return DualProblem(*parts, original=original)


def _original(model: KernelModel, X: Any, rows: Rows, folds: Folds, splits) -> Original:
    """The training sets as scikit-learn's machine gets them; ``rows`` in the user's order."""
    trains = [np.asarray(train) for train, _ in splits]
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


def landmark_gram(model: KernelModel, X: np.ndarray, rows: np.ndarray, landmarks: np.ndarray) -> LandmarkGram:
    """The kernel of ``rows`` through the landmarks, which number rows of ``X``."""
    U = X[landmarks]
    slots = _own_slots(model.kernel, X.shape[1])

    def diagonal(log_p: np.ndarray) -> np.ndarray:
        values = {name: np.exp(log_p[part]) for name, part in slots.items()}
        values = {name: array if array.size > 1 else float(array[0]) for name, array in values.items()}
        return model.kernel.with_parameters(values).diagonal(rows)

    return LandmarkGram(model.kernel.pairs(rows, U), model.kernel.pairs(U), diagonal)


def dense_rows(X: Any, memory_limit: float = np.inf) -> np.ndarray:
    """The rows of X as an array of floats; sparse ones that would not fit the limit (bytes) are refused."""
    if not hasattr(X, "toarray"):
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


def _pairs(model: KernelModel, X: np.ndarray) -> Any:
    """Pairs of all rows in the precision that the model asks for."""
    if model.precision == "double":
        return model.kernel.pairs(X)
    if model.precision != "single":
        raise ValueError(f"precision must be 'double' or 'single'; got {model.precision!r}")
    sizes = [values.size for values in model.kernel.parameters(X.shape[1]).values()]
    if not hasattr(model.kernel, "single_pairs") or max(sizes, default=1) > 1:
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
        if (
            "precision" in model.adjustable
            and hasattr(model.kernel, "single_pairs")
            and model.precision == "double"
        ):
            ways.append("set precision='single'")
        if not model.adjustable:
            ways.append("tune KernelSVC or KernelSVR of foldwise, whose memory_limit can be raised")
        raise MemoryLimitError(
            f"kernel matrices of {n} rows need {needed / 1e9:.1f} GB, above the limit of "
            f"{model.memory_limit / 1e9:.1f} GB; {', or '.join(ways)}"
        )
