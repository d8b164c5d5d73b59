"""The program of a linear machine: weights, boxes, proximity, and the stationarity that binds the weights."""

from __future__ import annotations

import numpy as np

from foldwise.optimizers.mpec.description import Choice, Description, Task, TrainedMachine
from foldwise.optimizers.mpec.formulation import Block, Formulation
from foldwise.optimizers.mpec.mpcc import Builder, Side

__all__ = ["LinearFormulation"]


class LinearFormulation(Formulation):
    """Decisions ``z = X w + b`` with ``l <= w <= u``.

    Hyper-parameters in ``index`` are "strength", "epsilon", "box", "box_lower", and "near" and "pull": ``lambda`` and
    ``lambda w0`` in the unit of the multipliers.
    """

    def __init__(
        self, description: Description, form: str = "lambda", unit: float = 1.0, hold: float | None = None
    ) -> None:
        if description.reference is not None and not description.curved:
            hold = description.proximity[0]
        super().__init__(description, form, unit, hold)

    def _hyper_parameters(self, builder: Builder) -> None:
        D = self.description
        if D.loss == "epsilon_insensitive":
            self.index["epsilon"] = builder.variables(1, *D.epsilon)
        if D.reference is not None:
            self._proximity(builder)
        if D.box is None:
            return
        # A side that is infinite is fixed there and bounds nothing: its variable stays at zero and is not used.
        box = self.index["box"] = builder.variables(D.d, *(np.where(np.isfinite(b), b, 0.0) for b in D.box))
        if D.box_lower is not None:
            ends = (np.where(np.isfinite(b), b, 0.0) for b in D.box_lower)
            lower = self.index["box_lower"] = builder.variables(D.d, *ends)
            both = np.flatnonzero(np.isfinite(D.box[0]) & np.isfinite(D.box_lower[0]))
            builder.rows(len(both), [(box[both], 1.0), (lower[both], -1.0)], 0.0, np.inf)
        if D.n_max is not None:
            # (14): delta counts the boxes that are not zero.
            delta, gap = builder.variables(D.d, 0.0, 1.0), builder.variables(D.d)
            self.index["delta"], self.index["gap"] = delta, gap
            builder.rows(1, [(column, 1.0) for column in delta], -np.inf, float(D.n_max))
            builder.rows(D.d, [(gap, 1.0), (box, -1.0)], 0.0, np.inf)
            builder.pairs(D.d, [(delta, 1.0)], [(gap, 1.0), (box, -1.0)], -1)
            builder.pairs(D.d, [(gap, 1.0)], [(delta, -1.0)], -1, h0=1.0)

    def _proximity(self, builder: Builder) -> None:
        """``lambda`` and ``lambda w0``, both divided as the multipliers are; ``w0`` keeps its bounds by linear rows."""
        D = self.description
        assert D.reference is not None
        low, high = D.proximity if self.hold is None else (self.hold, self.hold)
        if self.form == "C":
            near = builder.variables(1, low / self.unit, high / self.unit)
        else:
            weakest, strongest = sorted(self._strength(C) for C in D.C)
            near = builder.variables(1, low * weakest, high * strongest)
            strength = self.index["strength"]
            builder.rows(1, [(near, 1.0), (strength, -high)], -np.inf, 0.0)
            builder.rows(1, [(near, 1.0), (strength, -low)], 0.0, np.inf)
        pull = builder.variables(D.d, -np.inf)
        builder.rows(D.d, [(pull, 1.0), (near, -D.reference[1])], -np.inf, 0.0)
        builder.rows(D.d, [(pull, 1.0), (near, -D.reference[0])], 0.0, np.inf)
        self.index["near"], self.index["pull"] = near, pull

    def _coefficients(self, builder: Builder, task: Task, block: Block) -> None:
        block["w"] = builder.variables(self.description.d, -np.inf)

    def _multipliers(self, builder: Builder, task: Task, block: Block) -> list[np.ndarray]:
        names = ("alpha",) if self.description.loss == "hinge" else ("alpha", "beta")
        for name in names:
            most = task.weight if self.form == "lambda" else np.inf
            block[name] = builder.variables(len(task.y), 0.0, most)
        return [block[name] for name in names]

    def _decisions(
        self, builder: Builder, block: Block, rows: np.ndarray, X: np.ndarray, sign: np.ndarray
    ) -> None:
        builder.matrix(rows, sign[:, None] * X, block["w"])

    def _bind(
        self, builder: Builder, t: int, task: Task, block: Block, pushes: np.ndarray, signs: np.ndarray
    ) -> None:
        """Stationarity of the training problem in ``w``, with the multipliers of its box."""
        D, w = self.description, block["w"]
        terms: Side = [] if D.box is None else self._box(builder, t, block)
        times = len(pushes) // len(task.y)
        matrix = (signs[:, None] * np.tile(task.X, (times, 1))).T
        near = self.index.get("near")
        if near is not None:
            terms = [*terms, (self.index["pull"], -1.0)]
        if self.form == "C":
            pull, held = D.pull / self.unit, 0.0 if self.hold is None else self.hold
            linear = [(w, (D.curvature + held) / self.unit), *terms]
            rows = builder.rows(D.d, linear, pull, pull, matrix=(matrix, pushes))
            if near is not None and self.hold is None:
                builder.bilinear(rows, near, w, 1.0)
            return
        strength = self.index["strength"]
        linear = [(strength, -D.pull), *terms] if np.any(D.pull) else [*terms]
        rows = builder.rows(D.d, linear, 0.0, 0.0, matrix=(matrix, pushes))
        builder.bilinear(rows, strength, w, D.curvature)
        if near is not None:
            builder.bilinear(rows, near, w, 1.0)

    def _box(self, builder: Builder, t: int, block: Block) -> Side:
        """Rows and pairs of the box; what its multipliers add to stationarity."""
        D, w = self.description, block["w"]
        assert D.box is not None
        bounded = np.isfinite(D.box[1])
        bounded_below = bounded if D.box_lower is None else np.isfinite(D.box_lower[0])
        above = block["above"] = builder.variables(D.d, 0.0, np.where(bounded, np.inf, 0.0))
        below = block["below"] = builder.variables(D.d, 0.0, np.where(bounded_below, np.inf, 0.0))
        box, lower = self.index["box"], self.index.get("box_lower")
        up, down = np.flatnonzero(bounded), np.flatnonzero(bounded_below)
        over = [(box[up], 1.0), (w[up], -1.0)]
        under = [(box[down], 1.0) if lower is None else (lower[down], -1.0), (w[down], 1.0)]
        for multiplier, side in ((above[up], over), (below[down], under)):
            builder.rows(len(multiplier), side, 0.0, np.inf)
            builder.pairs(len(multiplier), [(multiplier, 1.0)], side, t)
        return [(above, 1.0), (below, -1.0)]

    def _encode_hyper_parameters(self, x: np.ndarray, choice: Choice) -> None:
        if "epsilon" in self.index:
            x[self.index["epsilon"]] = choice.epsilon
        if "near" in self.index:
            assert choice.reference is not None
            unit = self.unit_at(choice.C)
            x[self.index["near"]] = choice.proximity / unit
            x[self.index["pull"]] = choice.proximity * choice.reference / unit
        if "box" in self.index:
            assert choice.box is not None
            x[self.index["box"]] = choice.box
            if "box_lower" in self.index:
                x[self.index["box_lower"]] = choice.lower
            if "delta" in self.index:
                x[self.index["delta"]], x[self.index["gap"]] = choice.box > 0, choice.box

    def _encode_coefficients(
        self, x: np.ndarray, choice: Choice, task: Task, block: Block, solution: TrainedMachine
    ) -> None:
        w = x[block["w"]] = solution.w
        if "above" in block:
            push = -task.y * solution.alpha if solution.beta is None else solution.alpha - solution.beta
            curvature, towards = self.description.quadratic(choice)
            pressure = -(curvature * w - towards + task.X.T @ push) / self.unit_at(choice.C)
            x[block["above"]], x[block["below"]] = np.maximum(pressure, 0), np.maximum(-pressure, 0)

    def _decode(self, x: np.ndarray, C: float) -> Choice:
        box, lower = (x[self.index[name]] if name in self.index else None for name in ("box", "box_lower"))
        epsilon = float(x[self.index["epsilon"][0]]) if "epsilon" in self.index else 0.0
        near, reference = 0.0, None
        if "near" in self.index:
            size = max(float(x[self.index["near"][0]]), np.finfo(float).tiny)
            near, reference = size * self.unit_at(C), x[self.index["pull"]] / size
        return Choice(C, epsilon, box, lower, near, reference)

    def translate(self, x: np.ndarray, other: LinearFormulation) -> np.ndarray:
        """The same point in the variables of another form of the same description."""
        x, C = np.array(x, float), self.C_at(x)
        factor = self.unit_at(C) / other.unit_at(C)
        columns = [self.index[name] for name in ("near", "pull") if name in self.index]
        for block in self.blocks:
            columns += [block[name] for name in ("alpha", "beta", "above", "below") if name in block]
        x[np.concatenate(columns)] *= factor
        x[self.index["strength"]] = other._strength(C)
        return np.asarray(np.clip(x, other.mpcc.lower, other.mpcc.upper))
