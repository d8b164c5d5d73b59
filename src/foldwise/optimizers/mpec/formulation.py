r"""A description as variables, rows and complementarity pairs, and the way between them and the machines.

Every machine decides by a map ``z = D u + b``. For a linear one ``D`` holds the rows of X and ``u`` the weights, which
the multipliers bind by the stationarity of the training problem (:mod:`~foldwise.optimizers.mpec.linear`). For a kernel
one ``D`` holds kernel values and ``u`` the multipliers themselves (:mod:`~foldwise.optimizers.mpec.kernel`). All else
is the same: the optimality conditions of the rows, problem (4) of bennett2006 and (4)-(5) of kunapuli2008, become rows
and pairs; the criterion on validation rows becomes a linear cost. Two things differ from the papers, both to keep the
Jacobian sparse: the margin of a row is split in its positive and negative part, so its data appear in one row only, and
so is the error of a validation row.

"lambda" as form divides the training problem by ``C``: multipliers then lie in ``[0, v_j]``, ``lambda w`` is bilinear.
"C" keeps everything linear but the pairs; it is divided by a fixed ``unit``, a typical ``C``, so that its multipliers
have the size of those of the other form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from foldwise.optimizers.mpec.description import Choice, Description, Task, TrainedMachine
from foldwise.optimizers.mpec.mpcc import Builder, Curve, Mpcc, Side

__all__ = ["FORMS", "Block", "Formulation"]

FORMS = ("lambda", "C")

Block = dict[str, np.ndarray]
"""Columns of a task's variables by name."""


class Formulation(ABC):
    """A description as a program with complementarity.

    Parameters
    ----------
    description : Description
    form : {"lambda", "C"}
    unit : float
        A typical ``C``; the "C" form counts ``C`` and the multipliers in it.
    hold : float, optional
        The proximity stays at that value, so that the rows of the "C" form are linear.

    Attributes
    ----------
    mpcc : Mpcc
    index : dict
        Columns of the hyper-parameters by name.
    blocks : list of dict
        Columns of every task's variables by name.
    """

    def __init__(
        self, description: Description, form: str = "lambda", unit: float = 1.0, hold: float | None = None
    ) -> None:
        if form not in FORMS:
            raise ValueError(f"unknown form {form!r}; use one of: {', '.join(FORMS)}")
        self.description, self.form, self.unit, self.hold = description, form, unit, hold
        self.index: dict[str, np.ndarray] = {}
        self.blocks: list[Block] = []
        builder = Builder()
        ends = sorted(self._strength(C) for C in description.C)
        self.index["strength"] = builder.variables(1, *ends)
        self._hyper_parameters(builder)
        for t, task in enumerate(description.tasks):
            block: Block = {}
            self.blocks.append(block)
            self._train(builder, t, task, block)
            self._validate(builder, t, task, block)
        self.mpcc: Mpcc = builder.build(self._curve())

    # What a linear and a kernel machine fill in.

    @abstractmethod
    def _hyper_parameters(self, builder: Builder) -> None:
        """Variables and rows of the hyper-parameters beside the strength, into ``index``."""

    @abstractmethod
    def _coefficients(self, builder: Builder, task: Task, block: Block) -> None:
        """The variables ``u``, into ``block``."""

    @abstractmethod
    def _multipliers(self, builder: Builder, task: Task, block: Block) -> list[np.ndarray]:
        """The variables that push a row's decision, for the tube up and down, into ``block``."""

    @abstractmethod
    def _decisions(
        self, builder: Builder, block: Block, rows: np.ndarray, X: np.ndarray, sign: np.ndarray
    ) -> None:
        """Add ``sign * (D u)`` to rows, where ``X`` holds the features."""

    @abstractmethod
    def _bind(
        self, builder: Builder, t: int, task: Task, block: Block, pushes: np.ndarray, signs: np.ndarray
    ) -> None:
        """Rows and pairs that bind ``u`` to the multipliers, if it is not these."""

    def _curve(self) -> Curve | None:
        """Terms of the rows that are not bilinear."""
        return None

    @abstractmethod
    def _encode_hyper_parameters(self, x: np.ndarray, choice: Choice) -> None:
        """Write the hyper-parameters beside the strength into ``x``."""

    @abstractmethod
    def _encode_coefficients(
        self, x: np.ndarray, choice: Choice, task: Task, block: Block, solution: TrainedMachine
    ) -> None:
        """Write ``u``, and the multipliers that bind it, into ``x``."""

    @abstractmethod
    def _decode(self, x: np.ndarray, C: float) -> Choice:
        """The hyper-parameters at ``x``, not yet within their bounds."""

    # What both share.

    def _rows(
        self,
        builder: Builder,
        block: Block,
        X: np.ndarray,
        sign: np.ndarray,
        terms: Side,
        ends: tuple[Any, Any],
    ) -> None:
        """New rows ``terms + sign * (D u + b)`` between two ends."""
        terms = [*terms, *((k, sign) for k in block["b"])]
        self._decisions(builder, block, builder.rows(len(X), terms, *ends), X, sign)

    def _train(self, builder: Builder, t: int, task: Task, block: Block) -> None:
        """Optimality of one training problem in its rows and intercept."""
        D, n = self.description, len(task.y)
        self._coefficients(builder, task, block)
        block["b"] = builder.variables(1 if D.intercept else 0, -np.inf)
        excess = block["excess"] = builder.variables(n)
        slack = block["slack"] = builder.variables(n)
        pushes = self._multipliers(builder, task, block)
        if D.loss == "hinge":
            signs = [-task.y]
            self._rows(builder, block, task.X, -task.y, [(slack, 1.0), (excess, -1.0)], (-1.0, -1.0))
        else:
            signs, tube = [np.ones(n), -np.ones(n)], self.index["epsilon"]
            terms: Side = [(slack, 1.0), (tube, -1.0), (excess, -1.0)]
            self._rows(builder, block, task.X, np.ones(n), terms, (task.y, task.y))
            other: Side = [(tube, 2.0), (excess, 2.0), (slack, -1.0)]
            builder.rows(n, other, 0.0, np.inf)
        builder.pairs(n, [(pushes[0], 1.0)], [(slack, 1.0)], t)
        if D.loss != "hinge":
            builder.pairs(n, [(pushes[1], 1.0)], other, t)
        self._room(builder, t, task, excess, pushes)
        columns, direction = np.concatenate(pushes), np.concatenate(signs)
        self._bind(builder, t, task, block, columns, direction)
        if D.intercept:
            builder.rows(1, [], 0.0, 0.0, matrix=(direction[None].astype(float), columns))

    def _room(
        self, builder: Builder, t: int, task: Task, excess: np.ndarray, pushes: list[np.ndarray]
    ) -> None:
        """Multipliers of a row add up to its weight at most, and to it where there is an excess."""
        n = len(task.y)
        room: Side = [(push, -1.0) for push in pushes]
        if self.form == "C":
            room = [(self.index["strength"], task.weight), *room]
            builder.rows(n, room, 0.0, np.inf)
            builder.pairs(n, [(excess, 1.0)], room, t)
            return
        if len(pushes) > 1:
            builder.rows(n, room, -task.weight, np.inf)
        builder.pairs(n, [(excess, 1.0)], room, t, h0=task.weight)

    def _validate(self, builder: Builder, t: int, task: Task, block: Block) -> None:
        """The criterion of one task as a linear cost."""
        D, X, y, n = self.description, task.X_val, task.y_val, len(task.y_val)
        if D.criterion == "absolute":
            over = block["over"] = builder.variables(n, cost=task.cost)
            under = block["under"] = builder.variables(n, cost=task.cost)
            self._rows(builder, block, X, np.ones(n), [(over, -1.0), (under, 1.0)], (y, y))
        elif D.criterion == "hinge":
            miss = block["miss"] = builder.variables(n, cost=task.cost)
            self._rows(builder, block, X, y, [(miss, 1.0)], (1.0, np.inf))
        else:  # (9)-(10): a linear program counts the rows on the wrong side.
            wrong = block["wrong"] = builder.variables(n, 0.0, 1.0, cost=task.cost)
            short, right = builder.variables(n), builder.variables(n)
            block["short"], block["right"] = short, right
            self._rows(builder, block, X, y, [(short, 1.0), (right, -1.0)], (0.0, 0.0))
            builder.pairs(n, [(wrong, 1.0)], [(right, 1.0)], t)
            builder.pairs(n, [(short, 1.0)], [(wrong, -1.0)], t, h0=1.0)

    def encode(self, choice: Choice, solutions: Sequence[TrainedMachine]) -> np.ndarray:
        """The point of the program where the machines are these: feasible and complementary when they are optimal."""
        x, unit = np.zeros(self.mpcc.n), self.unit_at(choice.C)
        x[self.index["strength"]] = self._strength(choice.C)
        self._encode_hyper_parameters(x, choice)
        for task, block, s in zip(self.description.tasks, self.blocks, solutions, strict=True):
            x[block["b"]] = s.b
            x[block["alpha"]] = s.alpha / unit
            if s.beta is None:
                margin = task.y * s.z - 1.0
                x[block["slack"]], x[block["excess"]] = np.maximum(margin, 0), np.maximum(-margin, 0)
            else:
                x[block["beta"]] = s.beta / unit
                excess = np.maximum(np.abs(s.z - task.y) - choice.epsilon, 0.0)
                x[block["excess"]] = excess
                x[block["slack"]] = task.y - s.z + choice.epsilon + excess
            self._encode_coefficients(x, choice, task, block, s)
            self._encode_validation(x, task, block, s.z_val)
        return np.clip(x, self.mpcc.lower, self.mpcc.upper)

    def _encode_validation(self, x: np.ndarray, task: Task, block: Block, z: np.ndarray) -> None:
        if "over" in block:
            x[block["over"]], x[block["under"]] = np.maximum(z - task.y_val, 0), np.maximum(task.y_val - z, 0)
            return
        margin = task.y_val * z
        if "miss" in block:
            x[block["miss"]] = np.maximum(1.0 - margin, 0.0)
            return
        x[block["short"]], x[block["right"]] = np.maximum(-margin, 0), np.maximum(margin, 0)
        x[block["wrong"]] = margin <= 0

    def decode(self, x: np.ndarray) -> Choice:
        """The hyper-parameters at ``x``, within their bounds."""
        return self.description.clip(self._decode(x, self.C_at(x)))

    def C_at(self, x: np.ndarray) -> float:
        """``C`` at ``x``, within its bounds."""
        k = self.index["strength"][0]
        strength = float(np.clip(x[k], self.mpcc.lower[k], self.mpcc.upper[k]))
        return self.unit * strength if self.form == "C" else 1.0 / strength

    def unit_at(self, C: float) -> float:
        """What multipliers are counted in where ``C`` is this."""
        return self.unit if self.form == "C" else C

    def _strength(self, C: float) -> float:
        return C / self.unit if self.form == "C" else 1.0 / C
