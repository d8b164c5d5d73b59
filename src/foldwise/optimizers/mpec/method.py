"""``method="mpec"`` and ``method="slams"``: a bilevel program solved as one program with complementarity."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import FLAG, NONE, Table, integer, number, one_of
from foldwise.optimizers.base import Minimizer, Trace
from foldwise.optimizers.mpec.description import Choice, Description
from foldwise.optimizers.mpec.inner import Evaluator
from foldwise.optimizers.mpec.run import SAME, Answer, Run, Stage, certificate_at
from foldwise.optimizers.mpec.slams import solve_slams
from foldwise.optimizers.mpec.solve import solve_mpec
from foldwise.optimizers.mpec.translation import NEEDS, Translation
from foldwise.result import Status
from foldwise.space import Space

__all__ = ["Mpec", "Slams"]

STATUS = {
    "solved": Status.CONVERGED,
    "time limit": Status.TIME_LIMIT,
    "iteration limit": Status.MAX_ITER,
}
MAX_PAIRS = 3000
"""Complementarity pairs beyond which a program is refused; 2,060 took 54 s with Uno and 27 s with IPOPT."""


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
    solve: ClassVar[Callable[..., Answer]]
    """What takes a run from a start to its answer."""
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
        translation = Translation(trace.bilevel, self.n_max)
        description = translation.description
        self._check(description)
        trace.evaluate(theta, note="start")
        left = None if trace.deadline is None else trace.deadline - time.perf_counter()

        def on_stage(stage: Stage, choice: Choice) -> None:
            trace.evaluate(translation.theta(choice), note=f"{stage.name}: {stage.status}")

        evaluate, start = Evaluator(description), translation.choice(theta)
        evaluate(start)  # it counts, and where it is the best it is improved too
        run = Run.begin(description, left, on_stage, evaluate)
        try:
            answer = self.solve(run, start=start if self.from_start else None, **self._own())
        except KeyboardInterrupt:
            # Points that were trained between two stages are not recorded; the best of them is worth it.
            if evaluate.best is not None:
                trace.evaluate(translation.theta(evaluate.best[1]), note="interrupted")
            raise
        polished = trace.evaluate(translation.theta(answer.choice), note="polished")
        trace.details.update(_details(answer))
        if description.gamma is not None:
            trace.details["shrinkage"] = 0.0
        assert trace.best is not None
        if not np.allclose(trace.best.theta, polished.theta, SAME, SAME):
            # What was small and set to zero at a small price: what is returned has its own certificate.
            trace.details.update(certificate_at(evaluate, translation.choice(trace.best.theta)))
        if trace.details["b_stationary"] or trace.details["stationarity"] == "S":
            trace.vouch(trace.best, 0.0)  # no first-order descent, kinks included
        return STATUS.get(answer.status, Status.STALLED)

    def _check(self, D: Description) -> None:
        """Refuse a program that is too large."""
        if (pairs := D.n_pairs()) > self.max_pairs:
            rows = sum(len(task.y) for task in D.tasks)
            raise ValueError(
                f"{rows} training rows over {len(D.tasks)} folds make {pairs} complementarity pairs, more than "
                f"max_pairs={self.max_pairs}; use method='newton' or 'lbfgsb', which follow gradients of the same "
                "program, fewer rows or folds, or raise max_pairs in method_options"
            )

    def _own(self) -> dict[str, Any]:
        """The method's options that its solver takes."""
        apart = ("n_max", "from_start", "max_pairs")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}  # type: ignore[arg-type]


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
    solve = staticmethod(solve_mpec)

    def _check(self, D: Description) -> None:
        """Options that the kernel program does not have must be as they are by default."""
        super()._check(D)
        for name in ("form", "chain", "n_starts") if D.gamma is not None else ():
            given, usual = getattr(self, name), getattr(Mpec, name)
            if given not in (usual, 1 if name == "n_starts" else usual):
                raise ValueError(
                    f"the kernel program has no {name}; got {name}={given!r}. Leave it out: it has one form and runs "
                    "from one start"
                )


@dataclass(frozen=True)
class Slams(_OneProgram):
    """Successive linearisation of the penalised program: linear programs only, fast, often nearly as good.

    Parameters
    ----------
    early, rounds, tol, n_starts, max_iter, patience
        See :func:`foldwise.optimizers.mpec.slams.solve_slams`.
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
    solve = staticmethod(solve_slams)

    def _check(self, D: Description) -> None:
        super()._check(D)
        if D.gamma is not None:
            raise ValueError(f"method {self.name!r} does not solve kernel machines, 'mpec' does; {NEEDS}")


def _details(answer: Answer) -> dict[str, Any]:
    """The certificate as plain values."""
    return {
        "claimed": answer.claimed,
        "gap": answer.gap,
        "solver_status": answer.status,
        "solver_detail": answer.detail,
        "n_features": answer.n_features,
        **answer.certificate,
    }
