"""Between a bilevel program and its description in arrays: the one place that turns a point of one into the other's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel
from foldwise.criteria import criterion_name
from foldwise.optimizers.mpec.description import Choice, Description, Pair
from foldwise.problems.written import Task

__all__ = ["NEEDS", "Translation"]

CRITERIA = {"Absolute": "absolute", "Hinge": "hinge", "Misclassification": "misclassification"}
NEEDS = (
    "methods 'mpec' and 'slams' need LinearSVC(loss='hinge') with criterion 'hinge' or 'misclassification', or "
    "LinearSVR(loss='epsilon_insensitive') with criterion 'absolute', penalty 'l2', and a space of C (or lam), "
    "epsilon, box, box_lower, proximity and reference; 'mpec' also KernelSVC(loss='hinge', kernel=RBF(ard=True)) on "
    "few rows, with C and gamma per feature. Other programs: method='newton', 'lbfgsb' or 'grid'"
)
NUMBERS, ARRAYS = ("C", "lam", "epsilon", "proximity"), ("box", "box_lower", "reference", "gamma")
"""Hyper-parameters that are one number, and those with one entry per feature."""


class Translation:
    """Between ``theta`` of a bilevel program and the hyper-parameters of its description in arrays.

    The strength is ``C / lam``: one of them may be tuned, as one number; the other is fixed.
    """

    def __init__(self, bilevel: Bilevel, n_max: int | None = None) -> None:
        self.space, self.problems = bilevel.space, bilevel.problems
        first, lowest = self.problems[0], bilevel.space.lower
        if not first.loss.classical:
            raise ValueError(f"got {type(first.loss).__name__} loss; {NEEDS}")
        criterion = CRITERIA.get(type(bilevel.criterion.loss).__name__)
        classes = first.loss.task == "classification"
        if criterion is None or (criterion == "absolute") == classes:
            name = criterion_name(bilevel.criterion.loss or bilevel.criterion)
            raise ValueError(f"got {type(first.loss).__name__} with criterion {name}; {NEEDS}")
        try:
            written = [problem.written(lowest) for problem in self.problems]
        except ValueError as error:
            raise ValueError(f"{error}; {NEEDS}") from None
        tasks = [task for part in written for task in part.tasks]
        self.names = self._names(tasks[0].X.shape[1])
        self.base = first.parameters(lowest)
        self.unit = self._ends("C")[0] if "C" in self.names else float(np.max(self.base.c))
        """The fixed weight of the loss, or what ``C`` is at the lower bounds: row weights are relative to it."""
        tasks = [replace(task, weight=task.weight / self.unit) for task in tasks]
        common: dict[str, Any] = {"criterion": criterion, "intercept": written[0].intercept, "n_max": n_max}
        if written[0].gaussian:
            self.description = self._kernel(bilevel, tasks, common)
        else:
            common["loss"] = "hinge" if classes else "epsilon_insensitive"
            self.description = self._linear(tasks, written[0].reference, common)

    def _names(self, d: int) -> dict[str, str]:
        """Name in the space of every kind of hyper-parameter that is tuned."""
        names: dict[str, str] = {}
        for block in self.space.blocks:
            bare = block.name.split("__")[-1]
            if bare not in (*NUMBERS, *ARRAYS):
                raise ValueError(f"cannot tune {block.name!r} this way; {NEEDS}")
            if block.size != (d if bare in ARRAYS else 1):
                want = "one entry per feature" if bare in ARRAYS else "a single number"
                raise ValueError(f"{block.name!r} has {block.size} entries and must be {want} here; {NEEDS}")
            names[bare] = block.name
        if "C" in names and "lam" in names:
            raise ValueError(f"C and lam only act through C / lam; tune one of them. {NEEDS}")
        return names

    def _kernel(self, bilevel: Bilevel, tasks: list[Task], common: dict[str, Any]) -> Description:
        """A machine with a Gaussian kernel."""
        if self.problems[0].loss.task != "classification":
            raise ValueError(f"got a kernel machine for regression; {NEEDS}")
        if bilevel.prior is not None:
            raise ValueError(
                "the penalty on the spread of gamma is not part of the kernel program (16)-(17); leave shrinkage out "
                "of the search, or pass 0"
            )
        if set(self.names) != {"C", "gamma"} or not common["intercept"]:
            raise ValueError(f"got a space of {', '.join(self.space.slices)}; {NEEDS}")
        if common.pop("n_max") is not None:
            raise ValueError("the kernel program has no n_max: it counts no boxes; leave it out")
        if any(np.ptp(task.weight) > 1e-12 * task.weight.max() for task in tasks):
            raise ValueError(f"weights and repeated rows are not part of the kernel program; {NEEDS}")
        tasks = [replace(task, weight=None) for task in tasks]
        return Description(tasks, C=self._ends("C"), gamma=self._ends("gamma"), **common)

    def _linear(self, tasks: list[Task], w0: Any, common: dict[str, Any]) -> Description:
        """A linear machine."""
        self._check_fixed()
        lam, near, C = self.base.lam[0], self.base.near[0], (self.unit, self.unit)
        own = 1.0
        if "C" in self.names:
            C = self._ends("C")
        elif "lam" in self.names:
            low, high = self._ends("lam")
            C, own = (self.unit / high, self.unit / low), float(lam[0])
        curvature, pull, proximity, reference = lam / own + near, near * w0, (0.0, 0.0), None
        if {"proximity", "reference"} & set(self.names):
            curvature, pull = lam / own, np.zeros(len(lam))
            proximity = self._ends("proximity") if "proximity" in self.names else (float(near[0]),) * 2
            reference = self._ends("reference") if "reference" in self.names else (w0, w0)
        fixed = float(self.base.epsilon.flat[0])
        return Description(
            tasks,
            C=C,
            epsilon=self._ends("epsilon") if "epsilon" in self.names else (fixed, fixed),
            box=self._box(),
            box_lower=self._box_lower(),
            curvature=curvature,
            pull=pull,
            proximity=proximity,
            reference=reference,
            **common,
        )

    def _check_fixed(self) -> None:
        """What is fixed must be the same in all training problems."""
        for problem in self.problems:
            par = problem.parameters(self.space.lower)
            if np.ptp(par.epsilon) > 0:
                raise ValueError(f"epsilon differs between groups of samples; {NEEDS}")
            for values in (par.lam, par.near, par.upper, par.lower, par.reference):
                if np.any(values != values[0]):
                    raise ValueError(f"a penalty or box differs between classes; {NEEDS}")
        if "lam" in self.names and np.any(self.base.near > 0):
            raise ValueError(
                "tune C, not lam, together with a proximity term: they act through different ratios"
            )
        if "lam" in self.names and np.ptp(self.base.lam[0]) > 0:
            raise ValueError(f"lam is tuned as one number, but features have penalties of their own; {NEEDS}")

    def _ends(self, name: str) -> Pair:
        """Bounds of a hyper-parameter in its own units: two numbers, or two arrays with one entry per feature."""
        low, high = (self.space.params(t)[self.names[name]] for t in (self.space.lower, self.space.upper))
        if name in ARRAYS:
            return np.asarray(low, float), np.asarray(high, float)
        return float(np.atleast_1d(low)[0]), float(np.atleast_1d(high)[0])

    def _box(self) -> Pair | None:
        """Bounds of the box, of equal ends where it is fixed; None where there is none."""
        if "box" in self.names:
            return self._ends("box")
        upper, lower = self.base.upper[0], self.base.lower[0]
        bounded = "box_lower" in self.names or bool(np.any(np.isfinite(np.concatenate([upper, lower]))))
        return (upper, upper) if bounded else None

    def _box_lower(self) -> Pair | None:
        """Bounds of the lower side, which may be infinite; None where the box is symmetric."""
        if "box_lower" in self.names:
            return self._ends("box_lower")
        upper, lower = self.base.upper[0], self.base.lower[0]
        if "box" in self.names:
            symmetric = self.problems[0].parameters.kinds[self.names["box"]] == "box"
        else:
            symmetric = np.array_equal(lower, -upper)
        return None if symmetric else (lower, lower)

    def theta(self, choice: Choice) -> np.ndarray:
        """The choice as a point of the space."""
        values = {**vars(choice), "lam": self.unit / choice.C, "box_lower": choice.lower}
        return self.space.clip(self.space.theta({name: values[bare] for bare, name in self.names.items()}))

    def choice(self, theta: np.ndarray) -> Choice:
        """The point as a choice; what is not tuned has its fixed value."""
        params, D = self.space.params(theta), self.description
        fixed = {name: getattr(D, name) for name in ("C", "epsilon", "proximity", *ARRAYS)}
        value: dict[str, Any] = {name: None if pair is None else pair[0] for name, pair in fixed.items()}
        value |= {bare: params[name] for bare, name in self.names.items()}
        if "lam" in value:
            value["C"] = self.unit / np.ravel(value["lam"])
        box, lower, w0, gamma = (
            None if value[n] is None else np.atleast_1d(np.asarray(value[n], float)) for n in ARRAYS
        )
        C, epsilon, near = (float(np.ravel(value[n])[0]) for n in ("C", "epsilon", "proximity"))
        return D.clip(Choice(C, epsilon, box, lower, near, w0, gamma))
