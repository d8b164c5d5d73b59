r"""Penalties on the weights of a linear model.

The quadratic penalty of task ``m`` is ``1/2 sum_d lam_d s_md w_d^2 + 1/2 q (c_m . w)^2``. The scales ``s`` and the
rank-one term let one set of stored columns serve every fold although each fold may standardise its columns by its
own training rows, and although LIBLINEAR penalises the intercept:

- in-fold standardisation ``(x - mu_t) / sd_t`` is a change of variables that multiplies the penalty of feature
  ``d`` by ``sd_td^2``; a free intercept absorbs the shift;
- a penalised intercept ``b`` is the linear form ``c_m . w`` in the stored variables.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Quadratic"]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """Quadratic penalties of several tasks on one design.

    Parameters
    ----------
    scale : ndarray, shape (tasks, features)
        Factors that multiply ``lam_d``.
    n_columns : int
        Columns of the design: features, and the intercept if there is one.
    form : ndarray, shape (tasks, n_columns), optional
        The linear forms ``c_m``; None when the intercept is not penalised.
    strength : float
        The ``q`` in front of the rank-one term.
    """

    scale: np.ndarray
    n_columns: int
    form: np.ndarray | None = None
    strength: float = 0.0

    def diagonal(self, lam: np.ndarray) -> np.ndarray:
        """Diagonal of the Hessian without the rank-one term; ``lam`` has shape (tasks, features)."""
        out = np.zeros((len(self.scale), self.n_columns))
        out[:, : self.scale.shape[1]] = lam * self.scale
        return out

    def times(self, diagonal: np.ndarray, W: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Hessian of the penalty times ``W`` (one row per task in ``tasks``)."""
        out: np.ndarray = diagonal[tasks] * W
        if self.form is not None:
            form = self.form[tasks]
            out += self.strength * np.sum(form * W, axis=1, keepdims=True) * form
        return out

    def add_to(self, H: np.ndarray, diagonal: np.ndarray, task: int) -> None:
        """Add the Hessian of one task to the matrix ``H`` in place."""
        H.flat[:: len(H) + 1] += diagonal[task]
        if self.form is not None:
            H += self.strength * np.outer(self.form[task], self.form[task])
