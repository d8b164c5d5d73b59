r"""The program of a machine with a Gaussian kernel, (16)-(17) of kunapuli2008.

Its variables are ``C``, ``gamma`` and, for every fold, multipliers in ``[0, C]`` (the paper's ``C alpha``), the
intercept, and the parts of the margins. Rows of a fold hold

.. math::  s_j - e_j - y_j \Big(\sum_k y_k \alpha_k \, k(x_j, x_k; \gamma) + b\Big) = -1 ,

the only terms that are not bilinear; their derivatives are exact too. The Jacobian has a dense block of training by
training rows for every fold, so this is for small sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foldwise.optimizers.mpec.description import Choice, Description, Task, TrainedMachine
from foldwise.optimizers.mpec.formulation import Block, Formulation
from foldwise.optimizers.mpec.mpcc import Builder, Curve

__all__ = ["GaussianRows", "KernelFormulation"]


@dataclass(frozen=True, eq=False)
class _Part:
    """Terms ``coef_j sum_k y_k alpha_k k(x_j, x_k)`` of some rows, with the squared differences of features."""

    rows: np.ndarray
    coef: np.ndarray
    squares: np.ndarray
    alpha: np.ndarray
    y: np.ndarray

    def and_also(self, rows: np.ndarray, coef: np.ndarray, squares: np.ndarray) -> _Part:
        """With further rows of the same machine."""
        pairs = (self.rows, rows), (self.coef, coef), (self.squares, squares)
        more = dict(zip(("rows", "coef", "squares"), map(np.concatenate, pairs)))
        return replace(self, **more)


class KernelFormulation(Formulation):
    """Decisions ``z = K(gamma) (y alpha) + b``; hyper-parameters in ``index`` are "strength" and "gamma"."""

    def __init__(self, description: Description, unit: float = 1.0) -> None:
        self._parts: list[_Part] = []
        super().__init__(description, "C", unit)

    def _hyper_parameters(self, builder: Builder) -> None:
        D = self.description
        assert D.gamma is not None
        self.index["gamma"] = builder.variables(D.d, *D.gamma)

    def _coefficients(self, builder: Builder, task: Task, block: Block) -> None:
        block["alpha"] = builder.variables(len(task.y))

    def _multipliers(self, builder: Builder, task: Task, block: Block) -> list[np.ndarray]:
        return [block["alpha"]]

    def _decisions(
        self, builder: Builder, block: Block, rows: np.ndarray, X: np.ndarray, sign: np.ndarray
    ) -> None:
        task = self.description.tasks[len(self.blocks) - 1]
        coef, squares = sign * self.unit, (X[:, None, :] - task.X[None, :, :]) ** 2
        if len(self._parts) < len(self.blocks):
            self._parts.append(_Part(rows, coef, squares, block["alpha"], task.y))
        else:
            self._parts[-1] = self._parts[-1].and_also(rows, coef, squares)

    def _bind(
        self, builder: Builder, t: int, task: Task, block: Block, pushes: np.ndarray, signs: np.ndarray
    ) -> None:
        """Nothing: the coefficients are the multipliers."""

    def _curve(self) -> Curve:
        return GaussianRows(self.index["gamma"], self._parts)

    def _encode_hyper_parameters(self, x: np.ndarray, choice: Choice) -> None:
        x[self.index["gamma"]] = choice.gamma

    def _encode_coefficients(
        self, x: np.ndarray, choice: Choice, task: Task, block: Block, solution: TrainedMachine
    ) -> None:
        """Nothing more: the coefficients are the multipliers."""

    def _decode(self, x: np.ndarray, C: float) -> Choice:
        return Choice(C, gamma=x[self.index["gamma"]])


class GaussianRows:
    """The kernel's terms of the rows, in variables ``gamma`` and ``alpha``; see :class:`Curve`."""

    def __init__(self, gamma: np.ndarray, parts: list[_Part]) -> None:
        self.gamma, self.parts = gamma, parts
        d = len(gamma)
        self._triangle = first, second = np.tril_indices(d)
        columns = [np.concatenate([part.alpha, gamma]) for part in parts]
        self.jacobian_rows = np.concatenate([np.repeat(p.rows, len(c)) for p, c in zip(parts, columns)])
        self.jacobian_columns = np.concatenate([np.tile(c, len(p.rows)) for p, c in zip(parts, columns)])
        # alpha comes after gamma, so this is the lower triangle
        self.hessian_rows = np.concatenate([gamma[first], *(np.repeat(p.alpha, d) for p in parts)])
        self.hessian_columns = np.concatenate([gamma[second], *(np.tile(gamma, len(p.alpha)) for p in parts)])

    def _at(self, x: np.ndarray) -> list[tuple[_Part, np.ndarray, np.ndarray]]:
        """Every part with its kernel values and signed multipliers."""
        gamma = x[self.gamma]
        return [(p, np.exp(-p.squares @ gamma), p.y * x[p.alpha]) for p in self.parts]

    def add_to(self, rows: np.ndarray, x: np.ndarray) -> None:
        """Add the terms at ``x`` to the values of the rows."""
        for part, K, signed in self._at(x):
            rows[part.rows] += part.coef * (K @ signed)

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Values of the Jacobian on its pattern."""
        out = []
        for part, K, signed in self._at(x):
            by_alpha = part.coef[:, None] * K * part.y
            by_gamma = -part.coef[:, None] * np.einsum("rk,rkd->rd", K * signed, part.squares)
            out.append(np.hstack([by_alpha, by_gamma]).ravel())
        return np.concatenate(out)

    def hessian(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Values of the Hessian of the terms, weighed by ``y``, on its lower triangle."""
        d = len(self.gamma)
        scales, crosses = np.zeros((d, d)), []
        for part, K, signed in self._at(x):
            weight = (y[part.rows] * part.coef)[:, None] * K
            squares = part.squares
            scales += np.einsum("rk,rkd,rke->de", weight * signed, squares, squares, optimize=True)
            crosses.append((-part.y[:, None] * np.einsum("rk,rkd->kd", weight, squares)).ravel())
        return np.concatenate([scales[self._triangle], *crosses])
