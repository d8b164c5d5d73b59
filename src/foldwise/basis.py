"""Basis functions of a semiparametric model: what a user may write, and the columns that it stands for.

A basis is a scikit-learn transformer, or is made one by :func:`as_basis`. Its columns ``Psi`` may depend on one
another; a training problem sees independent ones, ``Q = Psi T``, orthogonal on its training rows (:func:`independent`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin, clone

from foldwise.arguments import Table, check_arguments, instance, sequence
from foldwise.frames import column_names, is_frame

__all__ = ["BasisFunctions", "as_basis", "columns", "independent", "with_constant"]

RANK_TOL = 1e-9
"""Singular values of the scaled columns below this share of the largest count as zero."""


class BasisFunctions(TransformerMixin, BaseEstimator):
    """A list of functions as a transformer.

    Parameters
    ----------
    functions : sequence or mapping
        Each entry is a callable of ``X`` that returns one column (n,) or several (n, k), a pair ``(name, callable)``,
        or a column of ``X`` by number or name. A mapping goes from name to callable. Callables get a data frame where
        the model was given one.

    Examples
    --------
    >>> import numpy as np
    >>> basis = BasisFunctions([0, ("square", lambda X: X[:, 0] ** 2)]).fit(np.eye(2))
    >>> basis.transform(np.array([[3.0, 1.0]])).tolist(), basis.get_feature_names_out().tolist()
    ([[3.0, 9.0]], ['x0', 'square'])
    """

    _arguments: ClassVar[Table] = {
        "functions": sequence(lambda entry: True, "a list") | instance(Mapping, "a mapping")
    }

    def __init__(self, functions: Sequence[Any] | Mapping[str, Callable[[Any], Any]]) -> None:
        self.functions = functions

    def _entries(self, X: Any) -> list[tuple[str, Callable[[Any], Any]]]:
        given = list(self.functions.items()) if isinstance(self.functions, Mapping) else list(self.functions)
        out: list[tuple[str, Callable[[Any], Any]]] = []
        for k, entry in enumerate(given):
            if isinstance(entry, tuple) and len(entry) == 2 and callable(entry[1]):
                out.append((str(entry[0]), entry[1]))
            elif callable(entry):
                name = getattr(entry, "__name__", "<lambda>")
                out.append((f"psi{k}" if name == "<lambda>" else name, entry))
            elif isinstance(entry, (int, np.integer, str)) and not isinstance(entry, bool):
                number = _column_number(entry, X)
                out.append((_column_names(X)[number], partial(_column, number)))
            else:
                raise ValueError(
                    f"entry {k} of the basis is {entry!r}; use a callable, a pair (name, callable), or a column of X "
                    "by number or name"
                )
        return out

    def fit(self, X: Any, y: Any = None) -> Self:
        """Remember the names of the columns."""
        check_arguments(self)
        self.names_ = [name for name, block in self._blocks(X) for name in _numbered(name, block.shape[1])]
        return self

    def _blocks(self, X: Any) -> list[tuple[str, np.ndarray]]:
        n = len(X)
        out = []
        for name, function in self._entries(X):
            block = np.asarray(function(X), float)
            if block.ndim == 0:
                block = np.full(n, float(block))
            block = block[:, None] if block.ndim == 1 else block
            if block.ndim != 2 or len(block) != n:
                raise ValueError(
                    f"the basis function {name!r} gave an array of shape {block.shape} for {n} rows; it needs one "
                    "value, or one row of values, for each"
                )
            out.append((name, block))
        return out

    def transform(self, X: Any) -> np.ndarray:
        """The columns: shape (n, K)."""
        blocks = [block for _, block in self._blocks(X)]
        return np.hstack(blocks) if blocks else np.zeros((len(X), 0))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns."""
        return np.asarray(self.names_, dtype=object)


def _column(number: int, X: Any) -> np.ndarray:
    return np.asarray(X)[:, number]


def _numbered(name: str, width: int) -> list[str]:
    return [name] if width == 1 else [f"{name}[{j}]" for j in range(width)]


def _column_names(X: Any) -> list[str]:
    return column_names(X) or [f"x{j}" for j in range(X.shape[1])]


def _column_number(entry: Any, X: Any) -> int:
    names = _column_names(X)
    if isinstance(entry, str):
        if not is_frame(X):
            raise ValueError(f"the basis names the column {entry!r}, which needs a data frame; got an array")
        if entry not in names:
            raise ValueError(f"the basis names the column {entry!r}; X has: {', '.join(names)}")
        return names.index(entry)
    if not -len(names) <= entry < len(names):
        raise ValueError(f"the basis uses column {entry} of X, which has {len(names)}")
    return int(entry) % len(names)


def as_basis(spec: Any) -> Any:
    """An unfitted transformer for what a user wrote, or the columns themselves for an array.

    ``None`` is the empty basis. A list that is empty or holds callables, pairs and columns, or a mapping, becomes
    :class:`BasisFunctions`.
    """
    if spec is None:
        return BasisFunctions([])
    if hasattr(spec, "fit") and hasattr(spec, "transform"):
        return clone(spec)
    if isinstance(spec, np.ndarray):
        array = np.asarray(spec, float)
        array = array[:, None] if array.ndim == 1 else array
        if array.ndim != 2:
            raise ValueError(f"an array as basis needs the shape (n, K); got {np.shape(spec)}")
        if not np.all(np.isfinite(array)):
            raise ValueError("the basis has values that are not finite; fill or drop these rows")
        return array
    if isinstance(spec, Mapping) or (isinstance(spec, Sequence) and not isinstance(spec, str)):
        return BasisFunctions(spec)
    raise ValueError(
        f"basis must be a list of callables or columns, a scikit-learn transformer, or an array; got {spec!r}"
    )


def columns(transformer: Any, X: Any) -> np.ndarray:
    """``Psi`` on these rows, as a dense array; checked to be finite."""
    found = transformer.transform(X)
    Psi = np.asarray(found.toarray() if sp.issparse(found) else found, float)
    Psi = Psi[:, None] if Psi.ndim == 1 else Psi
    if not np.all(np.isfinite(Psi)):
        bad = int(np.flatnonzero(~np.isfinite(Psi).all(axis=0))[0])
        raise ValueError(
            f"column {bad} of the basis is not finite on some row; choose functions that are defined there"
        )
    return Psi


def with_constant(Psi: np.ndarray, train: Any) -> bool:
    """Whether a constant has to be added: the training rows' columns do not span one."""
    part = Psi[train]
    if not part.shape[1]:
        return True
    Q = part @ independent(part)
    ones = np.ones(len(part))
    return bool(np.linalg.norm(ones - Q @ (Q.T @ ones) / len(part)) > 1e-7 * np.sqrt(len(part)))


def independent(Psi: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    """``T`` (K, rank) such that ``Q = Psi T`` has ``Q'VQ = I``, ``V`` the rows' shares of the weight.

    ``beta = T q`` is, of all coefficients that give ``Q q`` on rows of positive weight, the one with the smallest norm,
    columns counted at unit (weighted) root mean square.
    """
    share = np.full(len(Psi), 1.0 / max(len(Psi), 1)) if weight is None else weight / weight.sum()
    rows = Psi * np.sqrt(share)[:, None]
    scale = np.sqrt(np.einsum("ij,ij->j", rows, rows))
    scale = np.where(scale > 0, scale, 1.0)
    if not Psi.size:
        return np.zeros((Psi.shape[1], 0))
    _, size, Vt = np.linalg.svd(rows / scale, full_matrices=False)
    keep = size > RANK_TOL * max(float(size[0]), np.finfo(float).tiny)
    T: np.ndarray = (Vt[keep].T / size[keep]) / scale[:, None]
    return T
