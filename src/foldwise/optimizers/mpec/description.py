r"""Cross-validation of a machine as one program with complementarity: what it is about, in arrays.

Task ``t`` (a fold, or a fold of one class against the rest) trains a linear machine with a diagonal ``Q``,

.. math::  \min_{l \le w \le u, b} \ \tfrac12 w'Qw - r'w + C \sum_j v_j \, \ell(x_j'w + b, y_j; \varepsilon) ,

or, in the kernel form (16) of kunapuli2008, one with the kernel (17), ``k(x, z) = exp(-sum_d gamma_d (x_d - z_d)^2)``,
where a feature with ``gamma_d = 0`` is out. Hyper-parameters are to lie within bounds; a criterion values the decisions
on validation rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from foldwise.problems.written import Task

__all__ = ["CRITERIA", "Choice", "Description", "Task", "TrainedMachine"]

LOSSES = ("hinge", "epsilon_insensitive")
CRITERIA = ("absolute", "hinge", "misclassification")
PARKED = 1e-9
"""Margin of a validation row up to which it counts as misclassified: on the hyperplane the count would be a matter of
rounding, and that is where the program likes to put rows."""
MAX_ROWS = 240
"""Training rows over all folds beyond which a kernel program is refused: 120 rows in three folds."""
GRID_C, GRID_KERNEL_C = 10.0 ** np.arange(-12, 13), 10.0 ** np.arange(-2, 4)
GRID_EPSILON = (0.0, 0.01, 0.1, 1.0)
GRID_SCALES = (0.1, 1.0, 10.0)
"""Of a kernel, all features alike, in units of one over the features' total variance."""

Pair = tuple[Any, Any]
"""Lower and upper bounds: numbers, or one per feature."""


@dataclass(eq=False)
class Choice:
    """Hyper-parameters: ``C, epsilon``, the box ``u`` (None: none) and ``l`` (None: ``-u``), ``lambda`` and ``w0``.

    A kernel machine has ``gamma``, one scale per feature, and ``C``.
    """

    C: float
    epsilon: float = 0.0
    box: np.ndarray | None = None
    lower: np.ndarray | None = None
    proximity: float = 0.0
    reference: np.ndarray | None = None
    gamma: np.ndarray | None = None

    def sides(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        """``l`` and ``u``."""
        if self.box is None:
            return np.full(d, -np.inf), np.full(d, np.inf)
        return (-self.box if self.lower is None else self.lower), self.box

    def n_features(self, d: int) -> int:
        """Features that take part: whose box is not shut, whose scale is not zero."""
        low, high = self.sides(d) if self.gamma is None else (np.zeros(d), self.gamma)
        return int(np.sum(low < high))

    def key(self) -> tuple[float, ...]:
        """Something to compare by."""
        values = [getattr(self, f.name) for f in fields(self)]
        return tuple(float(v) for value in values if value is not None for v in np.atleast_1d(value))

    def beside(self, moves: Sequence[float]) -> Iterator[Choice]:
        """The choices with one number moved: ``C`` and ``lambda`` by factors, the others by sums."""
        for name in ("C", "proximity"):
            yield from (replace(self, **{name: getattr(self, name) * (1.0 + move)}) for move in moves)
        yield from (replace(self, epsilon=self.epsilon + move) for move in moves)
        for name in ("box", "lower", "reference", "gamma"):
            if (array := getattr(self, name)) is not None:
                for unit in np.eye(len(array)):
                    yield from (replace(self, **{name: array + move * unit}) for move in moves)


@dataclass(eq=False)
class TrainedMachine:
    """A trained machine: ``w, b`` and the multipliers of the rows, ``alpha`` (hinge) or ``up - down`` (tube).

    For the hinge ``alpha_j`` in ``[0, C v_j]`` is the multiplier of the margin; for the tube ``up`` and ``down`` are
    those of the two sides (decision above and below the target), and ``alpha = up``, ``beta = down``. ``z`` are the
    decisions on training rows and ``z_val`` those on validation rows. ``loose`` says that no row holds the intercept:
    it lies in the middle of an interval. A kernel machine has no ``w``.
    """

    w: np.ndarray
    b: float
    alpha: np.ndarray
    z: np.ndarray
    z_val: np.ndarray
    beta: np.ndarray | None = None
    loose: bool = False


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
    intercept : bool
    n_max : int, optional
        At most this many features with a box that is not zero, by (14) of kunapuli2008.
    proximity, reference : (lower, upper), optional
        Bounds of ``lambda`` and ``w0`` of a further term ``lambda/2 ||w - w0||^2`` whose parameters are chosen too
        (equal ones fix them): the outer variables of (1) of bennett2006. ``reference`` None: there is no such term.
    gamma : (lower, upper), optional
        Bounds of the scales of a Gaussian kernel, which then has ``C`` beside it, the hinge and an intercept.
    max_rows : int
        A kernel program has a dense block for every fold: more training rows over all folds are refused.
    """

    tasks: Sequence[Task]
    loss: str = "hinge"
    criterion: str = "hinge"
    C: tuple[float, float] = (1e-4, 1e4)
    epsilon: tuple[float, float] = (0.0, 0.0)
    box: Pair | None = None
    box_lower: Pair | None = None
    curvature: Any = None
    pull: Any = None
    intercept: bool = True
    n_max: int | None = None
    proximity: tuple[float, float] = (0.0, 0.0)
    reference: Pair | None = None
    gamma: Pair | None = None
    max_rows: int = MAX_ROWS

    def __post_init__(self) -> None:
        self._check_words()
        self._check_numbers()
        d = self.d
        self.curvature = np.ones(d) if self.curvature is None else np.asarray(self.curvature, float)
        self.pull = np.zeros(d) if self.pull is None else np.asarray(self.pull, float)
        for name in ("reference", "box", "box_lower", "gamma"):
            if (pair := getattr(self, name)) is not None:
                setattr(self, name, _bounds(pair, d, name))
        self._check_boxes()
        self._check_kernel()
        for task in self.tasks:
            if task.weight is None:
                task.weight = np.ones(len(task.y))
            if task.cost is None:
                task.cost = np.full(len(task.y_val), 1.0 / (len(self.tasks) * len(task.y_val)))

    def _check_words(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"unknown loss {self.loss!r}; use one of: {', '.join(LOSSES)}")
        if self.criterion not in CRITERIA:
            raise ValueError(f"unknown criterion {self.criterion!r}; use one of: {', '.join(CRITERIA)}")
        if (self.loss == "hinge") == (self.criterion == "absolute"):
            raise ValueError(
                f"loss {self.loss!r} with criterion {self.criterion!r} mixes classes and numbers; use 'absolute' with "
                "'epsilon_insensitive', and 'hinge' or 'misclassification' with 'hinge'"
            )

    def _check_numbers(self) -> None:
        if not self.tasks:
            raise ValueError("a program needs at least one task; got none")
        if not 0 < self.C[0] <= self.C[1]:
            raise ValueError(f"C must have bounds 0 < lower <= upper; got {self.C!r}")
        for name in ("epsilon", "proximity"):
            low, high = getattr(self, name)
            if not 0 <= low <= high:
                raise ValueError(f"{name} must have bounds 0 <= lower <= upper; got {(low, high)!r}")

    def _check_boxes(self) -> None:
        if self.box_lower is not None:
            if self.box is None:
                raise ValueError("box_lower without box; give bounds of both sides")
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

    def _check_kernel(self) -> None:
        if self.gamma is None:
            return
        if np.any(self.gamma[0] < 0):
            raise ValueError(f"gamma must have bounds 0 <= lower <= upper; got {self.gamma!r}")
        weighted = any(task.weight is not None and np.ptp(task.weight) > 0 for task in self.tasks)
        others = self.box is not None or self.reference is not None or weighted
        if self.loss != "hinge" or others or not self.intercept:
            raise ValueError(
                "the kernel program is for the hinge with an intercept, rows of equal weight, C and gamma; leave the "
                "other terms out"
            )
        total = sum(len(task.y) for task in self.tasks)
        if total > self.max_rows:
            raise ValueError(
                f"{total} training rows over {len(self.tasks)} folds, more than max_rows={self.max_rows}: the kernel "
                "program has a dense block for every fold. Use BilevelSearchCV(KernelSVC(kernel=RBF(ard=True))), which "
                "follows gradients"
            )

    @property
    def d(self) -> int:
        """Number of features."""
        return int(self.tasks[0].X.shape[1])

    @property
    def curved(self) -> bool:
        """Whether ``lambda`` is chosen too: ``lambda w`` is then bilinear in every form."""
        return self.reference is not None and self.proximity[0] < self.proximity[1]

    @property
    def switch(self) -> str | None:
        """The hyper-parameter whose zeros put features out; None where there is none."""
        if self.gamma is not None:
            return "gamma"
        return None if self.box is None or self.box_lower is not None else "box"

    def n_pairs(self) -> int:
        """Complementarity pairs of the program."""
        pairs = sum(len(task.y) for task in self.tasks) * (2 if self.loss == "hinge" else 3)
        if self.box is not None:
            below = self.box[1] if self.box_lower is None else self.box_lower[0]
            pairs += len(self.tasks) * int(np.isfinite(self.box[1]).sum() + np.isfinite(below).sum())
        if self.criterion == "misclassification":
            pairs += 2 * sum(len(task.y_val) for task in self.tasks)
        return pairs if self.n_max is None else pairs + 2 * self.d

    def quadratic(self, choice: Choice) -> tuple[np.ndarray, np.ndarray]:
        """The diagonal of ``Q`` and ``r`` of the training problems."""
        if choice.reference is None:
            return self.curvature, self.pull
        return self.curvature + choice.proximity, self.pull + choice.proximity * choice.reference

    def grid(self) -> Iterator[Choice]:
        """Choices to look for a start at: few ``C`` and ``epsilon`` with the widest box, few ``C`` and scales."""
        if self.gamma is not None:
            typical = 1.0 / max(float(np.var(self.tasks[0].X, axis=0).sum()), 1e-300)
            for C in sorted({float(c) for c in np.clip(GRID_KERNEL_C, *self.C)}):
                for factor in GRID_SCALES:
                    yield Choice(C, gamma=np.clip(np.full(self.d, factor * typical), *self.gamma))
            return
        widest = None if self.box is None else self.box[1].copy()
        lower = None if self.box_lower is None else self.box_lower[0].copy()
        for C in sorted({float(c) for c in np.clip(GRID_C, *self.C)}):
            for epsilon in sorted({float(e) for e in np.clip(GRID_EPSILON, *self.epsilon)}):
                yield self.clip(Choice(C, epsilon, widest, lower, self.proximity[0]))

    def admits(self, choice: Choice) -> bool:
        """Whether at most ``n_max`` boxes are not zero."""
        return self.n_max is None or choice.box is None or int(np.sum(choice.box > 0)) <= self.n_max

    def clip(self, choice: Choice) -> Choice:
        """The nearest hyper-parameters within the bounds."""
        box, lower = _clipped(choice.box, self.box), _clipped(choice.lower, self.box_lower)
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
        return Choice(C, epsilon, box, lower, near, reference, _clipped(choice.gamma, self.gamma))

    def value(self, solutions: Sequence[TrainedMachine]) -> float:
        """The criterion at these machines."""
        return sum(self._error(t, s.z_val) for t, s in zip(self.tasks, solutions, strict=True))

    def _error(self, task: Task, z: np.ndarray) -> float:
        """The criterion of one task at validation decisions ``z``."""
        if self.criterion == "absolute":
            return float(task.cost @ np.abs(z - task.y_val))
        margin = task.y_val * z
        if self.criterion == "hinge":
            return float(task.cost @ np.maximum(1.0 - margin, 0.0))
        return float(task.cost @ (margin <= PARKED))


def _clipped(array: np.ndarray | None, bounds: Pair | None) -> np.ndarray | None:
    return array if array is None or bounds is None else np.clip(array, *bounds)


def _bounds(pair: Pair, d: int, name: str) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.broadcast_to(np.asarray(side, float), (d,)).copy() for side in pair)
    if np.any(low > high):
        raise ValueError(f"{name} must have lower <= upper for every feature; got {pair!r}")
    return low, high
