"""Targets that a machine sees transformed, as inside scikit-learn's ``TransformedTargetRegressor``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer

from foldwise.models.base import Array, Target

__all__ = ["Retarget"]


@dataclass(frozen=True, eq=False)
class Retarget:
    """How a target is transformed.

    Attributes
    ----------
    transformer : transformer or None
        Fitted to the target of the training rows.
    func, inverse_func : callable or None
        Used where there is no transformer.
    """

    transformer: Any = None
    func: Callable[..., Any] | None = None
    inverse_func: Callable[..., Any] | None = None

    @property
    def fitted_by_fold(self) -> bool:
        """Whether it depends on the training rows."""
        return self.transformer is not None and not isinstance(self.transformer, FunctionTransformer)

    def of(self, y: Array, train: Any = slice(None)) -> tuple[Array, Target]:
        """The transformed target of all rows, by what the training rows say, and the way back."""
        step: Any = FunctionTransformer(self.func, self.inverse_func, validate=True, check_inverse=False)
        if self.transformer is not None:
            step = clone(self.transformer)
        step.fit(y[train, None])
        seen = np.asarray(step.transform(y[:, None]), float)
        if seen.shape != (len(y), 1):
            raise ValueError(
                f"the transformer of the target gives shape {seen.shape} for {len(y)} rows; it needs one column"
            )
        if not np.all(np.isfinite(seen)):
            raise ValueError(
                "the transformed target has values that are not finite, such as logarithms of what is not positive; "
                "use a transformation that is defined for every target"
            )

        def inverse(z: Array) -> Array:
            return np.asarray(step.inverse_transform(np.reshape(z, (-1, 1))), float).reshape(np.shape(z))

        return seen[:, 0], Target(inverse, y, float(np.std(seen)) or 1.0)
