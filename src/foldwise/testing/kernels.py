"""The contract of a kernel, and a small bilevel program with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from foldwise.bilevel import Bilevel
from foldwise.estimators import KernelSVR
from foldwise.kernels import Kernel
from foldwise.losses import Loss
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.kernel import KernelModel, assemble_kernel
from foldwise.search import BilevelSearchCV
from foldwise.space import Dimension, Lin, Log
from foldwise.testing.comparison import close, require
from foldwise.testing.programs import partition, scattered

__all__ = ["check_kernel", "small_kernel_bilevel"]


def check_kernel(kernel: Kernel, X: np.ndarray, *, across: bool = True, seed: int = 0) -> None:
    """Check everything that the package relies on about a kernel.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, shape (n, d)
        A few rows that the kernel accepts; for a precomputed kernel its matrix.
    across : bool
        Whether the kernel can be formed between two sets of rows (a precomputed one cannot).
    seed : int

    Notes
    -----
    Symmetry, positive semi-definiteness and the diagonal; that ``pairs`` gives the same matrix as a call, also at other
    parameters and after it was asked for others; ``contract``, ``apply`` and ``apply_transposed`` against central
    differences and against each other, between rows and across two sets; that copies keep their parameters; what it
    says about its parameters (``kinds``, ``typical``, ``bounds``), and a whole search over all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from foldwise.kernels import RBF
    >>> check_kernel(RBF(0.3, ard=True), np.random.default_rng(0).normal(size=(12, 3)))
    """
    rng = np.random.default_rng(seed)
    n, d = X.shape
    parameters = kernel.parameters(d)
    _check_matrix(kernel, X)
    _check_copies(kernel, X, rng)
    require(
        list(parameters) == kernel.names(),
        f"names() is {kernel.names()}; parameters() has {list(parameters)}",
    )
    log_p = _log(parameters)
    pairs = kernel.pairs(X)
    close(pairs.value(log_p), kernel(X, X), 1e-12, "pairs(X).value")
    _check_derivatives(pairs, log_p, (n, n), rng, "pairs(X)")
    # A later question at the first parameters is answered as the first one was.
    pairs.value(log_p + 0.5)
    close(pairs.value(log_p), kernel(X, X), 1e-12, "pairs(X).value after other parameters")
    if across:
        U = X[::3] + 0.1 * X.std(axis=0)
        pairs = kernel.pairs(X, U)
        close(pairs.value(log_p), kernel(X, U), 1e-11, "pairs(X, U).value")
        close(kernel(U, X), kernel(X, U).T, 1e-12, "kernel(U, X): transpose")
        _check_derivatives(pairs, log_p, (n, len(U)), rng, "pairs(X, U)")
    _check_search(kernel, X, rng)


def _check_search(kernel: Kernel, X: np.ndarray, rng: np.random.Generator) -> None:
    """What the kernel says about its parameters, and a whole search over them."""
    kinds = kernel.kinds()
    wrong = [kind for kind in kinds.values() if kind not in ("width", "weight", "other")]
    require(not wrong, f"kinds() has {wrong}; each must be 'width', 'weight' or 'other'")
    require(list(kinds) == kernel.names(), f"kinds() has {list(kinds)}; names() is {kernel.names()}")
    typical, bounds = kernel.typical(X), kernel.bounds(X)
    for what, got in (("typical(X)", typical), ("bounds(X)", bounds)):
        require(list(got) == kernel.names(), f"{what} has {list(got)}; names() is {kernel.names()}")
    for name, value in typical.items():
        low, high = bounds[name]
        require(
            0 < low <= value <= high < np.inf,
            f"bounds of {name} are ({low:g}, {high:g}) and typical is {value:g}; they must be finite, positive and in "
            "order",
        )
    y = kernel(X, X) @ rng.normal(size=len(X))
    y = (y - y.mean()) / max(float(y.std()), np.finfo(float).tiny) + 0.1 * rng.normal(size=len(X))
    search = BilevelSearchCV(KernelSVR(kernel, loss="squared"), cv=3, max_iter=5).fit(X, y)
    missing = [name for name in kernel.names() if f"kernel__{name}" not in search.best_params_]
    require(not missing, f"a search over the kernel does not tune {', '.join(missing)}")
    result = search.result_
    require(
        result.objective <= result.objective_start,
        f"a search over the kernel ended at {result.objective:g}, above its start {result.objective_start:g}",
    )
    K = search.best_estimator_.kernel_(X, X)
    require(np.all(np.isfinite(K)), "the kernel matrix at the end of a search is not finite")


def _log(parameters: Mapping[str, np.ndarray]) -> np.ndarray:
    parts = [np.atleast_1d(values) for values in parameters.values()]
    return np.log(np.concatenate(parts)) if parts else np.zeros(0)


def _check_matrix(kernel: Kernel, X: np.ndarray) -> None:
    K = np.array(kernel(X, X))
    require(K.shape == (len(X), len(X)), f"kernel(X, X) has shape {K.shape}")
    require(np.all(np.isfinite(K)), "kernel(X, X) has values that are not finite")
    close(K, K.T, 1e-13, "symmetry", floor=1e-8)
    lowest = float(np.linalg.eigvalsh(0.5 * (K + K.T))[0])
    require(lowest >= -1e-10 * np.abs(K).max(), f"not positive semi-definite: an eigenvalue of {lowest:.3g}")
    if np.ndim(kernel.diagonal(X)) == 1 and len(kernel.diagonal(X)) == len(X):
        close(kernel.diagonal(X), np.diagonal(K), 1e-12, "diagonal", floor=1e-8)
    else:
        raise AssertionError(f"diagonal has shape {np.shape(kernel.diagonal(X))}; it needs {(len(X),)}")


def _check_copies(kernel: Kernel, X: np.ndarray, rng: np.random.Generator) -> None:
    """``with_parameters`` and scikit-learn's ``clone``."""
    d = X.shape[1]
    before = kernel.parameters(d)
    K = np.array(kernel(X, X))
    for name, values in before.items():
        require(np.all(np.asarray(values) > 0), f"{name} must be positive; got {values}")
    same = kernel.with_parameters(before)
    _equal(same.parameters(d), before, "with_parameters(parameters)")
    close(same(X, X), K, 1e-15, "with_parameters(parameters): the matrix")
    _equal(clone(kernel).parameters(d), before, "clone")
    changed = {name: values * rng.uniform(0.6, 1.6, values.shape) for name, values in before.items()}
    # A parameter with one value may be given as a number.
    given = {name: values if values.size > 1 else float(values[0]) for name, values in changed.items()}
    other = kernel.with_parameters(given)
    _equal(other.parameters(d), changed, "with_parameters(other values)")
    close(other(X, X), kernel.pairs(X).value(_log(changed)), 1e-12, "with_parameters: the matrix")
    _equal(kernel.parameters(d), before, "with_parameters changed the original: its parameters")
    close(kernel(X, X), K, 0.0, "with_parameters changed the original: its matrix")


def _equal(got: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], what: str) -> None:
    require(list(got) == list(wanted), f"{what}: names {list(got)} instead of {list(wanted)}")
    for name, values in wanted.items():
        close(got[name], values, 1e-15, f"{what}: {name}")


def _check_derivatives(
    pairs: Any, log_p: np.ndarray, shape: tuple[int, int], rng: np.random.Generator, what: str
) -> None:
    """The three contractions against central differences, one parameter at a time: none may hide behind another."""
    n, m = shape
    P, A, B = rng.normal(size=(n, m)), rng.normal(size=(m, 2)), rng.normal(size=(n, 2))
    K = pairs.value(log_p).copy()
    got = {
        "contract": np.asarray(pairs.contract(P)),
        "apply": np.asarray(pairs.apply(A)),
        "apply_transposed": np.asarray(pairs.apply_transposed(B)),
    }
    p = len(log_p)
    wanted_shape = {"contract": (p,), "apply": (p, n, 2), "apply_transposed": (p, m, 2)}
    for name, array in got.items():
        require(array.shape == wanted_shape[name], f"{what}.{name} has shape {array.shape}")
    if p:
        together = np.einsum("ij,pij->p", P, pairs.apply(np.eye(m)))
        close(got["contract"], together, 1e-10, f"{what}: contract(P) against P . apply(I)")
    h = 1e-5
    for k in range(p):
        step = np.zeros(p)
        step[k] = h
        slope = (pairs.value(log_p + step).copy() - pairs.value(log_p - step)) / (2 * h)
        require(
            np.abs(slope).max() > 1e-5 * np.abs(K).max(),
            f"{what}: the kernel hardly depends on parameter {k} here, so the comparison would say nothing",
        )
        scale = float(np.abs(slope).max())
        size = {"contract": np.sqrt(n * m) * scale, "apply": scale, "apply_transposed": scale}
        numeric = {"contract": np.sum(P * slope), "apply": slope @ A, "apply_transposed": slope.T @ B}
        for name, array in got.items():
            error = float(np.abs(array[k] - numeric[name]).max()) / size[name]
            require(error <= 1e-6, f"{what}.{name}, parameter {k}: relative error {error:.3g}")
    pairs.value(log_p)


def small_kernel_bilevel(
    loss: Loss,
    criterion: Loss,
    kernel: Kernel,
    tune: Mapping[str, Dimension] | None = None,
    *,
    n: int = 36,
    d: int = 3,
    n_splits: int = 3,
    n_groups: int = 1,
    n_classes: int = 2,
    multiclass: str = "ovr",
    C: float = 1.0,
    epsilon: float = 0.2,
    class_weight: Any = None,
    intercept: bool = True,
    sample_weight: bool = False,
    overlap: bool = False,
    landmarks: int | None = None,
    rows: Callable[[np.random.Generator, int, int], np.ndarray] | None = None,
    solver: Any = None,
    seed: int = 0,
) -> tuple[Bilevel, np.ndarray]:
    """A seeded bilevel program of a kernel machine, and a point inside its bounds.

    Parameters
    ----------
    loss, criterion : Loss
    kernel : Kernel
        Its parameters are where the point is.
    tune : mapping from name to Dimension, optional
        Any of ``C``, ``epsilon``, ``class_weight`` and ``kernel__<name>``; by default ``C``, the kernel's parameters
        and the tube, if the loss has one.
    n, d, n_splits, n_groups, n_classes : int
        With more than two classes there is one problem per class, or with ``multiclass="ovo"`` per pair.
    C, epsilon : float
        Values at the point, also where they are not tuned.
    class_weight : None, "balanced" or dict
    intercept, sample_weight, overlap : bool
        As in :func:`small_bilevel`.
    landmarks : int, optional
        See the kernel through this many rows.
    rows : callable(rng, n, d), optional
        Draws the rows; standard normal by default.
    solver : optional
        By default one that is exact to about 1e-12.
    seed : int

    Examples
    --------
    >>> from foldwise.kernels import RBF
    >>> from foldwise.losses import Logistic, SquaredHinge
    >>> bilevel, theta = small_kernel_bilevel(SquaredHinge(), Logistic(), RBF(0.5))
    >>> bilevel.space.names
    ['C', 'kernel__gamma']
    >>> bilevel.evaluate(theta).converged
    True
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) if rows is None else rows(rng, n, d)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    signal = np.sin(1.5 * Z[:, 0]) + 0.7 * Z[:, 1] * Z[:, -1] + 0.4 * rng.normal(size=n)
    weight = rng.uniform(0.5, 2.0, n) if sample_weight else None
    group, group_labels = (
        (rng.permutation(np.arange(n) % n_groups), range(n_groups)) if n_groups > 1 else (None, ())
    )
    if loss.task == "classification":
        label = np.searchsorted(np.quantile(signal, np.arange(1, n_classes) / n_classes + 0.04), signal)
        codes = [1] if n_classes == 2 else range(n_classes)
        Y = np.stack([np.where(label == code, 1.0, -1.0) for code in codes])
        table = Rows(Y, weight, group, group_labels, label, list(range(n_classes)))
    else:
        table = Rows(signal[None], weight, group, group_labels)
    own = {f"kernel__{name}": values for name, values in kernel.parameters(d).items()}
    if tune is None:
        tune = {"C": Log(1e-6, 1e6)} | ({"epsilon": Lin(0, 5)} if "epsilon" in loss.tunable else {})
        tune |= {name: Log(1e-8, 1e8, per=None if v.size == 1 else "feature") for name, v in own.items()}
    roles = {"C": Role("log_c", per=(None, "group", "class")), "class_weight": Role("log_c", per=("class",))}
    if "epsilon" in loss.tunable:
        roles["epsilon"] = Role("epsilon", per=(None, "group"))
    roles |= {name: Role("log_kernel", per=(None, "feature")) for name in own}
    values: dict[str, Any] = {"C": C, "epsilon": epsilon, **own}
    model = KernelModel(
        loss,
        kernel,
        roles,
        {name: value for name, value in values.items() if name in roles},
        {name: name.removeprefix("kernel__") for name in own},
        intercept,
        class_weight,
        multiclass=multiclass,
    )
    more = {name: range(array.size) for name, array in own.items() if array.size > 1}
    space = make_space(tune, table, range(d), more)
    splits = partition(rng, n, n_splits)
    if overlap:
        splits = [
            (np.r_[train, train[:3], validation[:2]], np.r_[validation, validation[:1], train[:4]])
            for train, validation in splits
        ]
    chosen = None if landmarks is None else rng.permutation(n)[:landmarks]
    problem = assemble_kernel(model, X, table, splits, space, dimensions=tune, landmarks=chosen)
    if solver is None:
        solver = model.solver(problem, 1e-12)
    start = {
        block.name: np.mean(values.get(block.name, 1.0)) if block.scalar else values.get(block.name, 1.0)
        for block in space.blocks
    }
    theta = scattered(space, space.theta(start), rng, least=2)
    return Bilevel([problem], criterion, space, solver), theta
