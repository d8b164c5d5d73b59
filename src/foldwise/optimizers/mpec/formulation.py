r"""Cross-validation of a box-constrained linear machine as one program with complementarity.

Task ``t`` (a fold, or a fold of one class against the rest) trains

.. math::  \min_{l \le w \le u, b} \ \tfrac12 w'Qw - r'w + C \sum_j v_j \, \ell(x_j'w + b, y_j; \varepsilon)

with a diagonal ``Q``. Its optimality conditions, problem (4) of bennett2006 and (4)-(5) of kunapuli2008, become rows
and pairs; the criterion on validation rows becomes a linear cost. Two things differ from the papers, both to keep the
Jacobian sparse: the margin of a row is split in its positive and negative part, so its data appear in one row only,
and so is the error of a validation row.

"lambda" as form divides the training problem by ``C``: multipliers then lie in ``[0, v_j]``, ``lambda w`` is bilinear.
"C" keeps everything linear but the pairs; it is divided by a fixed ``unit``, a typical ``C``, so that its multipliers
have the size of those of the other form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldwise.optimizers.mpec.mpcc import Builder, Mpcc

__all__ = ["CRITERIA", "FORMS", "Choice", "Description", "Formulation", "Solution", "Task"]

LOSSES = ("hinge", "epsilon_insensitive")
CRITERIA = ("absolute", "hinge", "misclassification")
FORMS = ("lambda", "C")
PARKED = 1e-9
"""Margin of a validation row up to which it counts as misclassified: on the hyperplane the count would be a matter of
rounding, and that is where the program likes to put rows."""


@dataclass(eq=False)
class Task:
    """One training problem and its validation rows.

    Parameters
    ----------
    X, y : training rows; for the hinge ``y`` is -1 or 1
    X_val, y_val : validation rows
    weight : ndarray, optional
        ``v_j``, multiplies the loss of a training row.
    cost : ndarray, optional
        Weight of a validation row's criterion in the objective; by default all tasks and their rows count evenly.
    """

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    weight: Any = None
    cost: Any = None


@dataclass(eq=False)
class Description:
    """The program in arrays.

    Parameters
    ----------
    tasks : sequence of Task
    loss : {"hinge", "epsilon_insensitive"}
    criterion : {"absolute", "hinge", "misclassification"}
    C : (lower, upper)
        Bounds of the weight of the loss; equal ones fix it. ``lambda = 1 / C``.
    epsilon : (lower, upper)
    box : (lower, upper), optional
        Bounds of ``u``, numbers or one per feature; None leaves ``w`` free.
    box_lower : (lower, upper), optional
        Bounds of ``l`` for a two-sided box; by default ``l = -u``.
    curvature, pull : ndarray (d,), optional
        The diagonal of ``Q`` and ``r``: ones and zeros by default. ``(lam/2) ||w - w0||^2`` in addition to
        ``||w||^2 / 2`` is ``curvature = 1 + lam``, ``pull = lam w0``.
    proximity, reference : (lower, upper), optional
        Bounds of ``lambda`` and ``w0`` of a further term ``lambda/2 ||w - w0||^2`` whose parameters are chosen too
        (equal ones fix them): the outer variables of (1) of bennett2006. ``reference`` None: there is no such term.
    intercept : bool
    n_max : int, optional
        At most this many features with a box that is not zero, by (14) of kunapuli2008.
    """

    tasks: Sequence[Task]
    loss: str = "hinge"
    criterion: str = "hinge"
    C: tuple[float, float] = (1e-4, 1e4)
    epsilon: tuple[float, float] = (0.0, 0.0)
    box: tuple[Any, Any] | None = None
    box_lower: tuple[Any, Any] | None = None
    curvature: Any = None
    pull: Any = None
    intercept: bool = True
    n_max: int | None = None
    proximity: tuple[float, float] = (0.0, 0.0)
    reference: tuple[Any, Any] | None = None

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"unknown loss {self.loss!r}; use one of: {', '.join(LOSSES)}")
        if self.criterion not in CRITERIA:
            raise ValueError(f"unknown criterion {self.criterion!r}; use one of: {', '.join(CRITERIA)}")
        if (self.loss == "hinge") == (self.criterion == "absolute"):
            raise ValueError(
                f"loss {self.loss!r} with criterion {self.criterion!r} mixes classes and numbers; use 'absolute' with "
                "'epsilon_insensitive', and 'hinge' or 'misclassification' with 'hinge'"
            )
        if not self.tasks:
            raise ValueError("a program needs at least one task; got none")
        if not 0 < self.C[0] <= self.C[1]:
            raise ValueError(f"C must have bounds 0 < lower <= upper; got {self.C!r}")
        if not 0 <= self.epsilon[0] <= self.epsilon[1]:
            raise ValueError(f"epsilon must have bounds 0 <= lower <= upper; got {self.epsilon!r}")
        d = self.d
        self.curvature = np.ones(d) if self.curvature is None else np.asarray(self.curvature, float)
        self.pull = np.zeros(d) if self.pull is None else np.asarray(self.pull, float)
        if not 0 <= self.proximity[0] <= self.proximity[1]:
            raise ValueError(f"proximity must have bounds 0 <= lower <= upper; got {self.proximity!r}")
        self.reference = None if self.reference is None else _bounds(self.reference, d, "reference")
        self.box = None if self.box is None else _bounds(self.box, d, "box")
        if self.box_lower is not None:
            if self.box is None:
                raise ValueError("box_lower without box; give bounds of both sides")
            self.box_lower = _bounds(self.box_lower, d, "box_lower")
        elif self.box is not None and np.any(self.box[0] < 0):
            raise ValueError("a symmetric box must not be negative; give box_lower for a two-sided one")
        if self.n_max is not None and (self.box is None or self.box_lower is not None):
            raise ValueError("n_max counts the features of a symmetric box; give box=(lower, upper) alone")
        open_always = 0 if self.box is None else int(np.sum(self.box[0] > 0))
        if self.n_max is not None and open_always > self.n_max:
            raise ValueError(
                f"n_max={self.n_max} cannot be kept: the lower bounds of {open_always} boxes are above 0; let the box "
                "begin at 0, such as Lin(0, 2, per='feature')"
            )
        for task in self.tasks:
            if task.weight is None:
                task.weight = np.ones(len(task.y))
            if task.cost is None:
                task.cost = np.full(len(task.y_val), 1.0 / (len(self.tasks) * len(task.y_val)))

    @property
    def d(self) -> int:
        """Number of features."""
        return self.tasks[0].X.shape[1]

    def widest(self) -> np.ndarray | None:
        """The largest box."""
        return None if self.box is None else self.box[1].copy()

    @property
    def curved(self) -> bool:
        """Whether ``lambda`` is chosen too: ``lambda w`` is then bilinear in every form."""
        return self.reference is not None and self.proximity[0] < self.proximity[1]

    def quadratic(self, choice: Choice) -> tuple[np.ndarray, np.ndarray]:
        """The diagonal of ``Q`` and ``r`` of the training problems."""
        if choice.reference is None:
            return self.curvature, self.pull
        return self.curvature + choice.proximity, self.pull + choice.proximity * choice.reference

    def admits(self, choice: Choice) -> bool:
        """Whether at most ``n_max`` boxes are not zero."""
        return self.n_max is None or choice.box is None or int(np.sum(choice.box > 0)) <= self.n_max

    def clip(self, choice: Choice) -> Choice:
        """The nearest hyper-parameters within the bounds."""
        box, lower = choice.box, choice.lower
        if self.box is not None and box is not None:
            box = np.clip(box, *self.box)
        if self.box_lower is not None and lower is not None:
            lower = np.clip(lower, *self.box_lower)
        if box is not None and lower is not None:
            crossed = lower > box
            middle = 0.5 * (box[crossed] + lower[crossed])
            box, lower = box.copy(), lower.copy()
            box[crossed] = lower[crossed] = middle
        near, reference = 0.0, None
        if self.reference is not None:
            near = float(np.clip(choice.proximity, *self.proximity))
            reference = np.clip(0.0 if choice.reference is None else choice.reference, *self.reference)
        C, epsilon = float(np.clip(choice.C, *self.C)), float(np.clip(choice.epsilon, *self.epsilon))
        return Choice(C, epsilon, box, lower, near, reference)

    def criterion_value(self, task: Task, z: np.ndarray) -> float:
        """The criterion of one task at validation decisions ``z``."""
        if self.criterion == "absolute":
            return float(task.cost @ np.abs(z - task.y_val))
        margin = task.y_val * z
        if self.criterion == "hinge":
            return float(task.cost @ np.maximum(1.0 - margin, 0.0))
        return float(task.cost @ (margin <= PARKED))


@dataclass(eq=False)
class Choice:
    """Hyper-parameters: ``C, epsilon``, the box ``u`` (None: none) and ``l`` (None: ``-u``), ``lambda`` and ``w0``."""

    C: float
    epsilon: float = 0.0
    box: np.ndarray | None = None
    lower: np.ndarray | None = None
    proximity: float = 0.0
    reference: np.ndarray | None = None

    def sides(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """``l`` and ``u``."""
        if self.box is None:
            return np.full(d, -np.inf), np.full(d, np.inf)
        return (-self.box if self.lower is None else self.lower), self.box

    def n_open(self, d: int) -> int:
        """Features whose box is not shut."""
        low, high = self.sides(d)
        return int(np.sum(low < high))

    def key(self) -> tuple:
        """Something to compare by."""
        arrays = (self.box, self.lower, self.reference)
        return (self.C, self.epsilon, self.proximity, *(tuple(a) for a in arrays if a is not None))


@dataclass(eq=False)
class Solution:
    """A trained machine: ``w, b`` and the multipliers of the rows, ``alpha`` (hinge) or ``up - down`` (tube).

    For the hinge ``alpha_j`` in ``[0, C v_j]`` is the multiplier of the margin; for the tube ``up`` and ``down`` are
    those of the two sides (decision above and below the target), and ``alpha = up``, ``beta = down``. ``loose`` says
    that no row holds the intercept: it lies in the middle of an interval.
    """

    w: np.ndarray
    b: float
    alpha: np.ndarray
    beta: np.ndarray | None = None
    loose: bool = False


@dataclass(eq=False)
class Formulation:
    """A description as a program with complementarity, and the way between its variables and the machines.

    ``unit`` is a typical ``C``; the "C" form counts ``C`` and the multipliers in it. ``index`` holds the columns
    of every block of variables: "strength", "epsilon", "box", "box_lower", "near" and "pull" (``lambda`` and
    ``lambda w0`` in the unit of the multipliers), and one dict per task in ``blocks``. With ``hold`` the proximity
    stays at that value, so that the rows of the "C" form are linear.
    """

    description: Description
    form: str = "lambda"
    unit: float = 1.0
    hold: float | None = None
    index: dict[str, np.ndarray] = field(default_factory=dict)
    blocks: list[dict[str, np.ndarray]] = field(default_factory=list)
    mpcc: Mpcc = field(init=False)

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"unknown form {self.form!r}; use one of: {', '.join(FORMS)}")
        D = self.description
        if D.reference is not None and not D.curved:
            self.hold = D.proximity[0]
        builder = Builder()
        self._hyper_parameters(builder)
        for t, task in enumerate(self.description.tasks):
            block: dict[str, np.ndarray] = {}
            self.blocks.append(block)
            self._train(builder, t, task, block)
            self._validate(builder, t, task, block)
        self.mpcc = builder.build()

    def _hyper_parameters(self, builder: Builder) -> None:
        D = self.description
        low, high = self._strength(D.C[0]), self._strength(D.C[1])
        low, high = min(low, high), max(low, high)
        self.index["strength"] = builder.variables(1, low, high)
        if D.loss == "epsilon_insensitive":
            self.index["epsilon"] = builder.variables(1, *D.epsilon)
        if D.reference is not None:
            self._proximity(builder, (low, high))
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

    def _proximity(self, builder: Builder, strengths: tuple[float, float]) -> None:
        """``lambda`` and ``lambda w0``, both divided as the multipliers are; ``w0`` keeps its bounds by linear rows."""
        D = self.description
        assert D.reference is not None
        low, high = D.proximity if self.hold is None else (self.hold, self.hold)
        if self.form == "C":
            near = builder.variables(1, low / self.unit, high / self.unit)
        else:
            near = builder.variables(1, low * strengths[0], high * strengths[1])
            strength = self.index["strength"]
            builder.rows(1, [(near, 1.0), (strength, -high)], -np.inf, 0.0)
            builder.rows(1, [(near, 1.0), (strength, -low)], 0.0, np.inf)
        pull = builder.variables(D.d, -np.inf)
        builder.rows(D.d, [(pull, 1.0), (near, -D.reference[1])], -np.inf, 0.0)
        builder.rows(D.d, [(pull, 1.0), (near, -D.reference[0])], 0.0, np.inf)
        self.index["near"], self.index["pull"] = near, pull

    def _train(self, builder: Builder, t: int, task: Task, block: dict[str, np.ndarray]) -> None:
        """Optimality of one training problem: rows, pairs, and the stationarity of ``w`` and ``b``."""
        D, n = self.description, len(task.y)
        w = block["w"] = builder.variables(D.d, -np.inf)
        b = block["b"] = builder.variables(1 if D.intercept else 0, -np.inf)
        excess = block["excess"] = builder.variables(n)
        slack = block["slack"] = builder.variables(n)
        alpha = block["alpha"] = builder.variables(n, 0.0, task.weight if self.form == "lambda" else np.inf)
        if D.loss == "hinge":
            pushes, signs = [alpha], [-task.y]
            signed = task.y[:, None] * task.X
            terms = [(slack, 1.0), (excess, -1.0), *((k, -task.y) for k in b)]
            builder.rows(n, terms, -1.0, -1.0, matrix=(-signed, w))
            builder.pairs(n, [(alpha, 1.0)], [(slack, 1.0)], t)
        else:
            beta = block["beta"] = builder.variables(n, 0.0, task.weight if self.form == "lambda" else np.inf)
            pushes, signs = [alpha, beta], [np.ones(n), -np.ones(n)]
            tube = self.index["epsilon"]
            terms = [(slack, 1.0), (tube, -1.0), (excess, -1.0), *((k, 1.0) for k in b)]
            builder.rows(n, terms, task.y, task.y, matrix=(task.X, w))
            other = [(tube, 2.0), (excess, 2.0), (slack, -1.0)]
            builder.rows(n, other, 0.0, np.inf)
            builder.pairs(n, [(alpha, 1.0)], [(slack, 1.0)], t)
            builder.pairs(n, [(beta, 1.0)], other, t)
        room: list[tuple[Any, Any]] = [(push, -1.0) for push in pushes]
        if self.form == "C":
            room = [(self.index["strength"], task.weight), *room]
            builder.rows(n, room, 0.0, np.inf)
            builder.pairs(n, [(excess, 1.0)], room, t)
        else:
            if len(pushes) > 1:
                builder.rows(n, room, -task.weight, np.inf)
            builder.pairs(n, [(excess, 1.0)], room, t, h0=task.weight)
        terms = []
        if D.box is not None:
            bounded = np.isfinite(D.box[1])
            bounded_below = bounded if D.box_lower is None else np.isfinite(D.box_lower[0])
            above = block["above"] = builder.variables(D.d, 0.0, np.where(bounded, np.inf, 0.0))
            below = block["below"] = builder.variables(D.d, 0.0, np.where(bounded_below, np.inf, 0.0))
            terms = [(above, 1.0), (below, -1.0)]
            box, lower = self.index["box"], self.index.get("box_lower")
            up, down = np.flatnonzero(bounded), np.flatnonzero(bounded_below)
            over = [(box[up], 1.0), (w[up], -1.0)]
            under = [(box[down], 1.0) if lower is None else (lower[down], -1.0), (w[down], 1.0)]
            for multiplier, side in ((above[up], over), (below[down], under)):
                builder.rows(len(multiplier), side, 0.0, np.inf)
                builder.pairs(len(multiplier), [(multiplier, 1.0)], side, t)
        matrix = np.hstack([(sign[:, None] * task.X).T for sign in signs])
        columns = np.concatenate(pushes)
        near = self.index.get("near")
        if near is not None:
            terms = [*terms, (self.index["pull"], -1.0)]
        if self.form == "C":
            pull = D.pull / self.unit
            held = 0.0 if self.hold is None else self.hold
            linear = [(w, (D.curvature + held) / self.unit), *terms]
            rows = builder.rows(D.d, linear, pull, pull, matrix=(matrix, columns))
            if near is not None and self.hold is None:
                builder.bilinear(rows, near, w, 1.0)
        else:
            strength = self.index["strength"]
            linear = [(strength, -D.pull), *terms] if np.any(D.pull) else terms
            rows = builder.rows(D.d, linear, 0.0, 0.0, matrix=(matrix, columns))
            builder.bilinear(rows, strength, w, D.curvature)
            if near is not None:
                builder.bilinear(rows, near, w, 1.0)
        if D.intercept:
            builder.rows(1, [], 0.0, 0.0, matrix=(np.concatenate(signs)[None], columns))

    def _validate(self, builder: Builder, t: int, task: Task, block: dict[str, np.ndarray]) -> None:
        """The criterion of one task as a linear cost."""
        D, n = self.description, len(task.y_val)
        w, b = block["w"], block["b"]
        if D.criterion == "absolute":
            over = block["over"] = builder.variables(n, cost=task.cost)
            under = block["under"] = builder.variables(n, cost=task.cost)
            terms = [(over, -1.0), (under, 1.0), *((k, 1.0) for k in b)]
            builder.rows(n, terms, task.y_val, task.y_val, matrix=(task.X_val, w))
            return
        signed = task.y_val[:, None] * task.X_val
        edge = [(k, task.y_val) for k in b]
        if D.criterion == "hinge":
            miss = block["miss"] = builder.variables(n, cost=task.cost)
            builder.rows(n, [(miss, 1.0), *edge], 1.0, np.inf, matrix=(signed, w))
            return
        # (9)-(10): a linear program counts the rows on the wrong side.
        wrong = block["wrong"] = builder.variables(n, 0.0, 1.0, cost=task.cost)
        short, right = builder.variables(n), builder.variables(n)
        block["short"], block["right"] = short, right
        builder.rows(n, [(short, 1.0), (right, -1.0), *edge], 0.0, 0.0, matrix=(signed, w))
        builder.pairs(n, [(wrong, 1.0)], [(right, 1.0)], t)
        builder.pairs(n, [(short, 1.0)], [(wrong, -1.0)], t, h0=1.0)

    def encode(self, choice: Choice, solutions: Sequence[Solution]) -> np.ndarray:
        """The point of the program where the machines are these: feasible and complementary when they are optimal."""
        D = self.description
        x = np.zeros(self.mpcc.n)
        unit = self.unit if self.form == "C" else choice.C
        x[self.index["strength"]] = self._strength(choice.C)
        if "epsilon" in self.index:
            x[self.index["epsilon"]] = choice.epsilon
        if "near" in self.index:
            assert choice.reference is not None
            x[self.index["near"]] = choice.proximity / unit
            x[self.index["pull"]] = choice.proximity * choice.reference / unit
        if "box" in self.index:
            x[self.index["box"]] = choice.box
            if "box_lower" in self.index:
                x[self.index["box_lower"]] = choice.lower
            if "delta" in self.index:
                assert choice.box is not None
                x[self.index["delta"]], x[self.index["gap"]] = choice.box > 0, choice.box
        curvature, towards = D.quadratic(choice)
        for task, block, solution in zip(D.tasks, self.blocks, solutions, strict=True):
            w = solution.w
            z = task.X @ w + solution.b
            x[block["w"]] = w
            x[block["b"]] = solution.b
            x[block["alpha"]] = solution.alpha / unit
            if D.loss == "hinge":
                margin = task.y * z - 1.0
                x[block["slack"]], x[block["excess"]] = np.maximum(margin, 0), np.maximum(-margin, 0)
                push = -task.y * solution.alpha
            else:
                assert solution.beta is not None
                x[block["beta"]] = solution.beta / unit
                excess = np.maximum(np.abs(z - task.y) - choice.epsilon, 0.0)
                x[block["excess"]] = excess
                x[block["slack"]] = task.y - z + choice.epsilon + excess
                push = solution.alpha - solution.beta
            if "above" in block:
                pressure = -(curvature * w - towards + task.X.T @ push) / unit
                x[block["above"]], x[block["below"]] = np.maximum(pressure, 0), np.maximum(-pressure, 0)
            self._encode_validation(x, task, block, task.X_val @ w + solution.b)
        return np.clip(x, self.mpcc.lower, self.mpcc.upper)

    def _encode_validation(self, x, task: Task, block, z: np.ndarray) -> None:
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
        D = self.description
        strength = float(np.clip(x[self.index["strength"][0]], *self._strength_bounds()))
        box = x[self.index["box"]] if "box" in self.index else None
        lower = x[self.index["box_lower"]] if "box_lower" in self.index else None
        epsilon = float(x[self.index["epsilon"][0]]) if "epsilon" in self.index else 0.0
        C, near, reference = self._C(strength), 0.0, None
        if "near" in self.index:
            size = max(float(x[self.index["near"][0]]), np.finfo(float).tiny)
            near = size * (self.unit if self.form == "C" else C)
            reference = x[self.index["pull"]] / size
        return D.clip(Choice(C, epsilon, box, lower, near, reference))

    def translate(self, x: np.ndarray, other: Formulation) -> np.ndarray:
        """The same point in the variables of another form of the same description."""
        x = np.array(x, float)
        k = self.index["strength"][0]
        C = self._C(float(np.clip(x[k], *self._strength_bounds())))
        here, there = (f.unit if f.form == "C" else C for f in (self, other))
        for name in ("near", "pull"):
            if name in self.index:
                x[self.index[name]] *= here / there
        for block in self.blocks:
            for name in ("alpha", "beta", "above", "below"):
                if name in block:
                    x[block[name]] *= here / there
        x[k] = other._strength(C)
        return np.clip(x, other.mpcc.lower, other.mpcc.upper)

    def _strength(self, C: float) -> float:
        return C / self.unit if self.form == "C" else 1.0 / C

    def _C(self, strength: float) -> float:
        return self.unit * strength if self.form == "C" else 1.0 / strength

    def _strength_bounds(self) -> tuple[float, float]:
        k = self.index["strength"][0]
        return float(self.mpcc.lower[k]), float(self.mpcc.upper[k])


def _bounds(pair: tuple[Any, Any], d: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.broadcast_to(np.asarray(side, float), (d,)).copy() for side in pair)
    if np.any(low > high):
        raise ValueError(f"{name} must have lower <= upper for every feature; got {pair!r}")
    return low, high
