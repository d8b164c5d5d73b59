"""``method="mpec"`` and ``method="slams"``: a bilevel program solved as one program with complementarity."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import FLAG, NONE, Table, integer, number, one_of
from foldwise.bilevel import Bilevel
from foldwise.criteria import criterion_name
from foldwise.optimizers.base import Minimizer, Trace
from foldwise.optimizers.mpec.formulation import Choice, Description, Task
from foldwise.optimizers.mpec.inner import Evaluator
from foldwise.optimizers.mpec.kernel import KernelAnswer, KernelChoice, KernelDescription, solve_kernel_mpec
from foldwise.optimizers.mpec.solve import SAME, Answer, Stage, certificate_at, solve_mpec, solve_slams
from foldwise.problems.dual import DualProblem
from foldwise.problems.polyhedral import PolyhedralProblem
from foldwise.result import Status
from foldwise.space import Space

__all__ = ["Mpec", "Slams", "Translation"]

CRITERIA = {"Absolute": "absolute", "Hinge": "hinge", "Misclassification": "misclassification"}
NEEDS = (
    "methods 'mpec' and 'slams' need LinearSVC(loss='hinge') with criterion 'hinge' or 'misclassification', or "
    "LinearSVR(loss='epsilon_insensitive') with criterion 'absolute', and a space of C (or lam), epsilon, box, "
    "box_lower, proximity and reference; 'mpec' also KernelSVC(loss='hinge', kernel=RBF(ard=True)) on few rows, with C "
    "and gamma per feature. Other programs: method='newton', 'lbfgsb' or 'grid'"
)
STATUS = {
    "solved": Status.CONVERGED,
    "time limit": Status.TIME_LIMIT,
    "iteration limit": Status.MAX_ITER,
}
MAX_PAIRS = 3000
"""Complementarity pairs beyond which a program is refused; 2,060 took 54 s with Uno and 27 s with IPOPT."""


class Translation:
    """Between ``theta`` of a bilevel program and the hyper-parameters of its description in arrays.

    The strength is ``C / lam``: one of them may be tuned, as one number; the other is fixed.
    """

    def __init__(self, bilevel: Bilevel, n_max: int | None = None) -> None:
        self.space = bilevel.space
        self.problems = bilevel.problems
        first = self.problems[0]
        if not all(isinstance(problem, PolyhedralProblem) for problem in self.problems):
            raise ValueError(f"got {type(getattr(first, 'loss', first)).__name__} loss; {NEEDS}")
        criterion = CRITERIA.get(type(bilevel.criterion.loss).__name__)
        classes = first.loss.task == "classification"
        if criterion is None or (criterion == "absolute") == classes:
            raise ValueError(
                f"got criterion {criterion_name(bilevel.criterion.loss or bilevel.criterion)}; {NEEDS}"
            )
        self.names = self._names()
        self.base = first.parameters(self.space.lower)
        self._check_fixed()
        self.description = self._describe(criterion, classes, n_max)

    def _names(self) -> dict[str, str]:
        """Name in the space of every kind of hyper-parameter that is tuned."""
        kinds = self.problems[0].parameters.kinds
        d = self.problems[0].design.n_features
        names: dict[str, str] = {}
        for block in self.space.blocks:
            kind, bare = kinds[block.name], block.name.split("__")[-1]
            wide = bare in ("box", "box_lower", "reference")
            if bare not in ("C", "lam", "epsilon", "box", "box_lower", "proximity", "reference"):
                raise ValueError(f"cannot tune {block.name!r} this way; {NEEDS}")
            if block.size != (d if wide else 1):
                want = "one entry per feature" if wide else "a single number"
                raise ValueError(f"{block.name!r} has {block.size} entries and must be {want} here; {NEEDS}")
            names[bare] = block.name
            assert kind
        if "C" in names and "lam" in names:
            raise ValueError(f"C and lam only act through C / lam; tune one of them. {NEEDS}")
        return names

    def _check_fixed(self) -> None:
        """What is fixed must be the same in all training problems."""
        for problem in self.problems:
            par = problem.parameters(self.space.lower)
            if problem.l1_ratio:
                raise ValueError(f"an L1 part of the penalty is not part of this program; {NEEDS}")
            if np.ptp(par.epsilon) > 0:
                raise ValueError(f"epsilon differs between groups of samples; {NEEDS}")
            for values in (par.lam, par.near, par.upper, par.lower, par.reference):
                if np.any(values != values[0]):
                    raise ValueError(f"a penalty or box differs between classes; {NEEDS}")
        if "lam" in self.names and np.any(self.base.near > 0):
            raise ValueError(
                "tune C, not lam, together with a proximity term: they act through different ratios"
            )

    def _describe(self, criterion: str, classes: bool, n_max: int | None) -> Description:
        lam = self.base.lam[0]
        self.tuned_lam = float(lam[0]) if "lam" in self.names else 1.0
        if "lam" in self.names and np.ptp(lam) > 0:
            raise ValueError(f"lam is tuned as one number, but features have penalties of their own; {NEEDS}")
        self.unit = self._loss_unit()
        if "C" in self.names:
            C = tuple(self._bounds("C"))
        elif "lam" in self.names:
            low, high = self._bounds("lam")
            C = (self.unit / high, self.unit / low)
        else:
            C = (self.unit, self.unit)
        near, w0 = self.base.near[0], self._reference()
        if {"proximity", "reference"} & set(self.names):
            fixed, pull = np.zeros(len(lam)), np.zeros(len(lam))
            proximity = self._bounds("proximity") if "proximity" in self.names else (float(near[0]),) * 2
            reference = self._ends("reference") if "reference" in self.names else (w0, w0)
        else:
            fixed, pull, proximity, reference = near, near * w0, (0.0, 0.0), None
        return Description(
            self._tasks(),
            "hinge" if classes else "epsilon_insensitive",
            criterion,
            (float(C[0]), float(C[1])),
            self._tube(),
            self._box("box"),
            self._box("box_lower"),
            lam / self.tuned_lam + fixed,
            pull,
            bool(self.problems[0].design.intercept),
            n_max,
            proximity,
            reference,
        )

    def _tube(self) -> tuple[float, float]:
        fixed = float(self.base.epsilon.flat[0])
        return self._bounds("epsilon") if "epsilon" in self.names else (fixed, fixed)

    def _bounds(self, name: str) -> tuple[float, float]:
        """Bounds of a single number in its own units."""
        out = []
        for theta in (self.space.lower, self.space.upper):
            value = self.space.params(theta)[self.names[name]]
            out.append(float(np.atleast_1d(value)[0]))
        return out[0], out[1]

    def _ends(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of one number per feature."""
        low, high = (self.space.params(t)[self.names[name]] for t in (self.space.lower, self.space.upper))
        return np.asarray(low, float), np.asarray(high, float)

    def _box(self, name: str):
        """Bounds of the box, of equal ends where it is fixed; None where there is none.

        A side that is fixed at infinity is no bound.
        """
        if name in self.names:
            return self._ends(name)
        upper, lower = self.base.upper[0], self.base.lower[0]
        kinds = self.problems[0].parameters.kinds
        if name == "box":
            sides = np.concatenate([upper, [] if "box_lower" in self.names else lower])
            bounded = "box_lower" in self.names or bool(np.any(np.isfinite(sides)))
            return (upper, upper) if bounded else None
        symmetric = (
            kinds[self.names["box"]] == "box" if "box" in self.names else np.array_equal(lower, -upper)
        )
        return None if symmetric else (lower, lower)

    def _loss_unit(self) -> float:
        """The fixed weight of the loss, or what ``C`` is at the lower bounds: row weights are relative to it."""
        if "C" in self.names:
            return self._bounds("C")[0]
        problem = self.problems[0]
        return float(np.max(problem.parameters(self.space.lower).c))

    def _reference(self) -> np.ndarray:
        problem = self.problems[0]
        return problem.reference[0] * problem.root[0]

    def _tasks(self) -> list[Task]:
        tasks = []
        for problem in self.problems:
            par, d = problem.parameters(self.space.lower), problem.design.n_features
            X = problem.design.dense()[:, :d]
            for m in range(problem.n_tasks):
                strength = problem._strength(m, par) / self.unit
                train = strength > 0
                rows = problem.folds.validation[problem.split[m]]
                own = X / problem.root[m]
                y = problem.Y[problem.target[m]]
                cost = problem.validation_weight[problem.split[m]]
                tasks.append(
                    Task(own[train], y[train], own[rows], y[rows], strength[train], np.asarray(cost, float))
                )
        return tasks

    def theta(self, choice: Choice) -> np.ndarray:
        """The choice as a point of the space."""
        params: dict[str, Any] = {}
        for bare, name in self.names.items():
            params[name] = {
                "C": choice.C,
                "lam": self.unit / choice.C,
                "epsilon": choice.epsilon,
                "box": choice.box,
                "box_lower": choice.lower,
                "proximity": choice.proximity,
                "reference": choice.reference,
            }[bare]
        return self.space.clip(self.space.theta(params))

    def choice(self, theta: np.ndarray) -> Choice:
        """The point as a choice."""
        params, D = self.space.params(theta), self.description
        C = D.C[0]
        if "C" in self.names:
            C = float(params[self.names["C"]])
        elif "lam" in self.names:
            C = self.unit / float(np.atleast_1d(params[self.names["lam"]])[0])
        epsilon = float(params[self.names["epsilon"]]) if "epsilon" in self.names else D.epsilon[0]
        box = params.get(self.names.get("box", ""), None if D.box is None else D.box[0])
        lower = params.get(self.names.get("box_lower", ""), None if D.box_lower is None else D.box_lower[0])
        near = float(params[self.names["proximity"]]) if "proximity" in self.names else D.proximity[0]
        w0 = params.get(self.names.get("reference", ""), None if D.reference is None else D.reference[0])
        box, lower, w0 = (None if v is None else np.asarray(v, float) for v in (box, lower, w0))
        return D.clip(Choice(C, epsilon, box, lower, near, w0))


class KernelTranslation:
    """Between ``theta`` of a search over a Gaussian kernel machine and its description in arrays."""

    def __init__(self, bilevel: Bilevel) -> None:
        self.space, self.problems = bilevel.space, bilevel.problems
        first = self.problems[0]
        criterion = CRITERIA.get(type(bilevel.criterion.loss).__name__)
        if first.loss.task != "classification" or criterion not in ("hinge", "misclassification"):
            raise ValueError(
                f"got {type(first.loss).__name__} with "
                f"{criterion_name(bilevel.criterion.loss or bilevel.criterion)}; {NEEDS}"
            )
        if bilevel.prior is not None:
            raise ValueError(
                "the penalty on the spread of gamma is not part of the kernel program (16)-(17); leave shrinkage out "
                "of the search, or pass 0"
            )
        self.names = {block.name.split("__")[-1]: block.name for block in self.space.blocks}
        tasks = [task for problem in self.problems for task in self._tasks(problem)]
        d = tasks[0].X.shape[1]
        sizes = {block.name.split("__")[-1]: block.size for block in self.space.blocks}
        if sizes != {"C": 1, "gamma": d} or not first.intercept:
            raise ValueError(f"got a space of {', '.join(self.space.slices)}; {NEEDS}")
        low, high = (self.choice(theta) for theta in (self.space.lower, self.space.upper))
        if np.ptp(low.p) > 0 or np.ptp(high.p) > 0:
            raise ValueError("gamma must have the same bounds for every feature here")
        self.description = KernelDescription(
            tasks, str(criterion), (low.C, high.C), (float(low.p[0]), float(high.p[0]))
        )

    def _tasks(self, problem: DualProblem) -> list[Task]:
        X = getattr(getattr(problem._gram, "pairs", None), "X", None)
        if X is None or not hasattr(problem._gram.pairs, "X2"):
            raise ValueError(f"the kernel is not an RBF with one gamma per feature; {NEEDS}")
        strength = problem.strength(problem.parameters(self.space.lower))
        tasks = []
        for m in range(problem.n_tasks):
            train = strength[m] > 0
            if np.ptp(strength[m][train]) > 1e-12 * strength[m].max():
                raise ValueError(f"weights and repeated rows are not part of the kernel program; {NEEDS}")
            rows, y = problem.folds.validation[problem.split[m]], problem.Y[problem.target[m]]
            cost = np.asarray(problem.validation_weight[m], float)
            tasks.append(Task(X[train], y[train], X[rows], y[rows], None, cost))
        return tasks

    def theta(self, choice: KernelChoice) -> np.ndarray:
        """The choice as a point of the space."""
        return self.space.clip(self.space.theta({self.names["C"]: choice.C, self.names["gamma"]: choice.p}))

    def choice(self, theta: np.ndarray) -> KernelChoice:
        """The point as a choice."""
        params = self.space.params(theta)
        gamma = np.atleast_1d(np.asarray(params[self.names["gamma"]], float))
        return KernelChoice(float(params[self.names["C"]]), gamma)


class _OneProgram(Minimizer):
    """What both methods share: the description, the size limit, the records, the certificate."""

    needs_gradient = False
    finds_own_start = True
    shrinks = False
    limits: ClassVar[Mapping[str, str]] = {"tol": "tol", "max_iter": "max_iter", "n_starts": "n_starts"}
    messages: ClassVar[Mapping[Status, str]] = {
        Status.CONVERGED: "The program of all folds is solved to its tolerance; details holds its certificate.",
        Status.STALLED: "The program of all folds is not solved to its tolerance; this is the best point seen.",
    }
    max_pairs: int
    n_max: int | None
    from_start: bool

    def feasible(self, space: Space, theta: np.ndarray) -> np.ndarray:
        """The point near ``theta`` within the bounds where at most ``n_max`` boxes, the largest, are not zero."""
        theta, boxes = space.clip(theta), self._boxes(space)
        for i in boxes[np.argsort(-theta[boxes], kind="stable")][self.n_max or len(boxes) :]:
            theta[i] = space.lower[i]
        return theta

    def admits(self, space: Space, theta: np.ndarray) -> bool:
        """Whether at most ``n_max`` boxes are not zero: (14) of kunapuli2008."""
        return self.n_max is None or int(np.sum(theta[self._boxes(space)] > 0)) <= self.n_max

    def _boxes(self, space: Space) -> np.ndarray:
        """Entries of ``theta`` that are boxes on a linear scale."""
        parts = [
            np.arange(space.size)[space.slices[b.name]]
            for b in space.blocks
            if b.name.split("__")[-1] == "box" and b.scale == "lin"
        ]
        return np.concatenate([np.zeros(0, dtype=int), *parts])

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Solve the program; every stage's hyper-parameters are evaluated and recorded."""
        if isinstance(trace.bilevel.problems[0], DualProblem):
            return self._kernel(trace, theta)
        translation = Translation(trace.bilevel, self.n_max)
        description = translation.description
        self._check_size(description)
        trace.evaluate(theta, note="start")
        left = None if trace.deadline is None else trace.deadline - time.perf_counter()

        def on_stage(stage: Stage, choice: Choice) -> None:
            trace.evaluate(translation.theta(choice), note=f"{stage.name}: {stage.status}")

        evaluate = Evaluator(description)
        evaluate(translation.choice(theta))  # the start counts, and where it is the best it is improved too
        try:
            answer = self._solve(
                description,
                start=translation.choice(theta) if self.from_start else None,
                max_time=left,
                on_stage=on_stage,
                evaluate=evaluate,
            )
        except KeyboardInterrupt:
            # Points that were trained between two stages are not recorded; the best of them is worth it.
            if evaluate.best is not None:
                trace.evaluate(translation.theta(evaluate.best[1]), note="interrupted")
            raise
        polished = trace.evaluate(translation.theta(answer.choice), note="polished")
        trace.details.update(_details(answer))
        if trace.best is not None and not np.allclose(trace.best.theta, polished.theta, SAME, SAME):
            # Small boxes that were set to zero at a small price: what is returned has its own certificate.
            trace.details.update(certificate_at(evaluate, translation.choice(trace.best.theta)))
        if trace.best is not None and trace.details.get(
            "b_stationary"
        ):  # no first-order descent, kinks included
            trace.vouch(trace.best, 0.0)
        return STATUS.get(answer.status, Status.STALLED)

    def _kernel(self, trace: Trace, theta: np.ndarray) -> Status:
        """A kernel machine; the linear programs of slams do not serve it."""
        raise ValueError(f"method {self.name!r} does not solve kernel machines, 'mpec' does; {NEEDS}")

    def _check_size(self, D: Description) -> None:
        rows = sum(len(task.y) for task in D.tasks)
        pairs = rows * (2 if D.loss == "hinge" else 3) + (0 if D.box is None else 2 * D.d * len(D.tasks))
        if D.criterion == "misclassification":
            pairs += 2 * sum(len(task.y_val) for task in D.tasks)
        if pairs > self.max_pairs:
            raise ValueError(
                f"{rows} training rows over {len(D.tasks)} folds make {pairs} complementarity pairs, more than "
                f"max_pairs={self.max_pairs}; use method='newton' or 'lbfgsb', which follow gradients of the same "
                "program, fewer rows or folds, or raise max_pairs in method_options"
            )

    def _solve(self, description: Description, **common: Any) -> Answer:
        raise TypeError(f"{type(self).__name__} does not define _solve")


@dataclass(frozen=True)
class Mpec(_OneProgram):
    """Cross-validation as one nonlinear program with relaxed complementarity: bennett2006 (6), kunapuli2008 (11), (13).

    Parameters
    ----------
    backend, preset, form, complementarity, tol, first_tol, chain, n_starts, max_iter
        See :func:`foldwise.optimizers.mpec.solve.solve_mpec`.
        ``first_tol`` is 0.1 by default, and 1e-3 for kernel machines.
    n_max : int, optional
        At most this many features with a box that is not zero.
    from_start : bool
        Start from the search's starting point rather than from the best point of a grid.
    max_pairs : int
        Refuse a program with more complementarity pairs.
    """

    backend: str = "auto"
    preset: str = "filterslp"
    form: str = "auto"
    complementarity: str = "pairwise"
    tol: float = 1e-6
    first_tol: float | None = None
    chain: bool = True
    n_starts: int | None = None
    max_iter: int = 500
    n_max: int | None = None
    from_start: bool = False
    max_pairs: int = MAX_PAIRS

    _arguments: ClassVar[Table] = {
        "backend": one_of("auto", "uno", "ipopt"),
        "preset": one_of("filterslp", "filtersqp"),
        "form": one_of("auto", "lambda", "C"),
        "complementarity": one_of("pairwise", "aggregated", "penalty"),
        "tol": number(above=0),
        "first_tol": number(above=0) | NONE,
        "chain": FLAG,
        "n_starts": integer() | NONE,
        "max_iter": integer(),
        "n_max": integer() | NONE,
        "from_start": FLAG,
        "max_pairs": integer(),
    }
    name = "mpec"

    def _kernel(self, trace: Trace, theta: np.ndarray) -> Status:
        self._check_kernel()
        translation = KernelTranslation(trace.bilevel)
        trace.evaluate(theta, note="start")
        left = None if trace.deadline is None else trace.deadline - time.perf_counter()

        def on_stage(stage: Stage, choice: KernelChoice) -> None:
            trace.evaluate(translation.theta(choice), note=f"{stage.name}: {stage.status}")

        answer = solve_kernel_mpec(
            translation.description,
            backend="ipopt" if self.backend == "auto" else self.backend,
            preset=self.preset,
            tol=self.tol,
            first_tol=1e-3 if self.first_tol is None else self.first_tol,
            start=translation.choice(theta) if self.from_start else None,
            max_iter=self.max_iter,
            max_time=left,
            on_stage=on_stage,
        )
        polished = trace.evaluate(translation.theta(answer.choice), note="polished")
        trace.details.update(_details(answer) | {"shrinkage": 0.0})
        if answer.certificate.get("stationarity") in ("S", "B"):  # no first-order descent, kinks included
            trace.vouch(polished, 0.0)
        return STATUS.get(answer.status, Status.STALLED)

    def _check_kernel(self) -> None:
        """Options that the kernel program does not have must be as they are by default."""
        usual = Mpec()
        for name in ("form", "complementarity", "chain", "n_starts", "n_max", "max_pairs"):
            if getattr(self, name) not in (getattr(usual, name), 1 if name == "n_starts" else None):
                raise ValueError(
                    f"the kernel program has no {name}; got {name}={getattr(self, name)!r}. Leave it out: it runs from "
                    "one start, with pairwise products, and counts no boxes"
                )

    def _solve(self, description: Description, **common: Any) -> Answer:
        return solve_mpec(
            description,
            backend=self.backend,
            preset=self.preset,
            form=self.form,
            complementarity=self.complementarity,
            tol=self.tol,
            first_tol=0.1 if self.first_tol is None else self.first_tol,
            chain=self.chain,
            n_starts=self.n_starts,
            max_iter=self.max_iter,
            **common,
        )


@dataclass(frozen=True)
class Slams(_OneProgram):
    """Successive linearisation of the penalised program: linear programs only, fast, often nearly as good.

    Parameters
    ----------
    early, rounds, tol, n_starts, max_iter, patience
        See :func:`foldwise.optimizers.mpec.solve.solve_slams`.
    n_max, from_start, max_pairs
        See :class:`Mpec`.
    """

    early: bool = False
    rounds: int = 3
    tol: float = 1e-6
    n_starts: int = 1
    max_iter: int = 60
    patience: int = 4
    n_max: int | None = None
    from_start: bool = False
    max_pairs: int = 10 * MAX_PAIRS

    _arguments: ClassVar[Table] = {
        "early": FLAG,
        "rounds": integer(),
        "tol": number(above=0),
        "n_starts": integer(),
        "max_iter": integer(),
        "patience": integer(),
        "n_max": integer() | NONE,
        "from_start": FLAG,
        "max_pairs": integer(),
    }
    name = "slams"

    def _solve(self, description: Description, **common: Any) -> Answer:
        return solve_slams(
            description,
            early=self.early,
            rounds=self.rounds,
            tol=self.tol,
            n_starts=self.n_starts,
            max_iter=self.max_iter,
            patience=self.patience,
            **common,
        )


def _details(answer: Answer | KernelAnswer) -> dict[str, Any]:
    """The certificate as plain values."""
    return {
        "claimed": answer.claimed,
        "gap": answer.gap,
        "solver_status": answer.status,
        "solver_detail": answer.detail,
        "n_features": answer.n_features,
        **answer.certificate,
    }
