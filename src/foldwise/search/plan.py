"""Cheaper searches that give a search over a kernel machine its start.

A search over few rows finds the valley in a fraction of the time of one over all rows; where all rows are few, short
searches from several points choose among the valleys; a smoothed hinge leads past the kinks of the exact one; tied
widths and a fixed tube come before free ones. Each stage starts where the one before it ended, and a smooth machine's
first solution from the decisions found so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.deadline import OutOfTime, until
from foldwise.models.base import Rows
from foldwise.optimizers.base import Minimizer, StopSearch, Trace, run
from foldwise.optimizers.newton import TrustRegionNewton
from foldwise.result import CUT_SHORT, MESSAGES, Result, Status
from foldwise.space import Space
from foldwise.splits import Splits

__all__ = ["SAMPLE_FROM", "Halt", "Prelude", "Stage", "choose_sample", "decisions_by_row", "play"]

SAMPLE_FROM = 400
"""A sample of the rows is searched first from this many rows on."""
SAMPLE_ROWS = (200, 500)
SAMPLE_SHARE = 0.4
"""Rows of the sample: this share of all, but within those limits."""
SAMPLE_SPLITS = 2


@dataclass(eq=False)
class Stage:
    """One search before the search.

    Attributes
    ----------
    name : in a result's details
    build : makes its program
    index : the user's row numbers of the rows of every design
    tol : relative accuracy of its objective
    real : whether it values the very machine that is tuned, so that its evaluations belong to the history
    several : whether it runs from several starting points and not only from the best of them
    easy : a name and +1 or -1: of the points that are nearly as good as the best, the next stage starts from the one
        where this hyper-parameter is lowest or highest
    """

    name: str
    build: Callable[[], Bilevel]
    index: list[np.ndarray]
    tol: float
    real: bool
    several: bool = False
    easy: tuple[str, float] | None = None


@dataclass(eq=False)
class Prelude:
    """What the stages found: values by name, results of real stages, facts about the others.

    ``ended`` is set when a stage was cut short: nothing is searched after it.
    """

    values: dict[str, Any] | None = None
    results: list[Result] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    ended: Status | None = None
    coefficients: tuple[np.ndarray, np.ndarray] | None = None

    def seed(self, bilevel: Bilevel, theta: np.ndarray, index: list[np.ndarray]) -> None:
        """Give the smooth problems of a program the decisions found so far, for their first solution."""
        if self.coefficients is None:
            return
        alpha, b = self.coefficients
        for problem, rows in zip(bilevel.problems, index, strict=True):
            if not problem.loss.smooth or len(alpha) != problem.n_targets:
                continue
            gram = problem.gram(theta, problem.parameters(theta))
            own, known = rows[problem.folds.order], np.zeros((len(alpha), problem.n_rows))
            row, first = np.unique(own, return_index=True)  # one copy of a row that a split repeats
            known[:, first] = alpha[:, row]
            Z = gram.product(known) + b[:, None]
            problem.first = np.column_stack([Z, b])[problem.target] * (problem.split == 0)[:, None]
            if len(bilevel.problems) > 1:  # the other folds' start from its solution
                break


@dataclass(frozen=True)
class Halt(Minimizer):
    """Evaluates its start and ends with a given status: a search that was cut short in a stage before it.

    ``method`` is the one which did not come to run: its name is shown, and what it does not admit is not returned.
    ``order`` says which derivatives the end is judged by.
    """

    looks_around: ClassVar[bool] = False
    status: Status
    method: Minimizer
    order: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.method.name)

    def feasible(self, space: Space, theta: np.ndarray) -> np.ndarray:
        """The point near ``theta`` that the method may start from."""
        return self.method.feasible(space, theta)

    def admits(self, space: Space, theta: np.ndarray) -> bool:
        """Whether the method may return ``theta``."""
        return self.method.admits(space, theta)

    def check(self, bilevel: Bilevel) -> None:
        """Refuse what the method refuses."""
        self.method.check(bilevel)

    def accuracy(self) -> float:
        """The accuracy that was asked of the method."""
        return self.method.accuracy()

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Evaluate ``theta``."""
        trace.evaluate(theta, order=self.order, note="start")
        return self.status


def play(
    stages: Sequence[Stage],
    candidates: Sequence[Mapping[str, Any]],
    theta_of: Callable[[Space, Mapping[str, Any]], np.ndarray],
    n_rows: int,
    limits: Mapping[str, Any],
    kept: Callable[[Bilevel, str], Bilevel],
) -> Prelude:
    """Run the stages one after the other: the first from ``candidates``, each later one from where the last ended.

    A stage that is cut short is the last one.
    """
    prelude, values = Prelude(), [dict(candidate) for candidate in candidates]
    for stage in stages:
        program = stage.build()
        thetas = _distinct([program.space.clip(theta_of(program.space, point)) for point in values])
        if stage.several and len(thetas) == 1:
            continue
        prelude.seed(program, thetas[0], stage.index)
        try:
            runs = _runs(stage, program, thetas, limits, kept)
        except StopSearch as stop:  # the time was over before this stage had a point
            prelude.ended = stop.status
            break
        except KeyboardInterrupt:  # before this stage had a point
            if prelude.values is None:
                raise
            prelude.ended = Status.INTERRUPTED
            break
        result, bilevel = min(runs, key=lambda one: one[0].objective)
        if stage.real:
            prelude.results += [one for one, _ in runs]
        else:
            scanned = len(thetas) if stage.several and len(thetas) > SEVERAL else 0
            prelude.details[f"{stage.name}_evaluations"] = scanned + sum(one.n_evaluations for one, _ in runs)
        found = bilevel.space.params(np.array(result.theta))
        if stage.easy is not None:
            found = _easiest(result, found, *stage.easy)
        prelude.values = {**(prelude.values or values[0]), **found}
        values = [prelude.values]
        prelude.coefficients = _coefficients(bilevel, stage.index, n_rows)
        if runs[-1][0].status in CUT_SHORT:
            prelude.ended = runs[-1][0].status
            break
    return prelude


def _runs(stage: Stage, program: Bilevel, thetas, limits, kept) -> list[tuple[Result, Bilevel]]:
    """The results of a stage, each with the program that has its end: one, or one for every starting point."""
    options = {**limits, **({} if stage.real else {"callback": None, "may_abandon": True})}
    method = TrustRegionNewton(tol=stage.tol)
    groups = [thetas]
    if stage.several:
        groups = [[theta] for theta in _best(stage, program, thetas, limits, kept)]
    runs: list[tuple[Result, Bilevel]] = []
    for k, (first, *others) in enumerate(groups):
        bilevel = kept(program, f"{stage.name} {k}" if k else stage.name)
        try:
            runs.append((run(method, bilevel, first, candidates=others, **options), bilevel))
        except KeyboardInterrupt:  # before this start had a point to return
            if not runs:
                raise
            status = Status.INTERRUPTED
            runs[-1] = replace(runs[-1][0], status=status, message=MESSAGES[status]), runs[-1][1]
        if runs[-1][0].status in CUT_SHORT:
            break
    return runs


SEVERAL = 3
"""From how many points, the best of those that it is given, a stage runs that runs from several."""


def _best(stage: Stage, program: Bilevel, thetas, limits, kept) -> list[np.ndarray]:
    """The points to run from, in their order: all, or of many the best."""
    if len(thetas) <= SEVERAL:
        return thetas
    bilevel = kept(program, f"{stage.name} scan")
    values, warm = np.full(len(thetas), np.inf), None
    try:
        with until(limits.get("deadline")):
            for k, theta in enumerate(thetas):
                warm = bilevel.evaluate(theta, warm)
                values[k] = warm.objective
    except OutOfTime:
        raise StopSearch(Status.TIME_LIMIT) from None
    return [thetas[k] for k in np.sort(np.argsort(values, kind="stable")[:SEVERAL])]


def _distinct(thetas: list[np.ndarray]) -> list[np.ndarray]:
    """Without points that were there before."""
    return [t for k, t in enumerate(thetas) if not any(np.array_equal(t, other) for other in thetas[:k])]


NEARLY = 1.05
"""Nearly as good as the best: an objective that is larger by at most this factor."""


def _easiest(result: Result, found: dict[str, Any], name: str, sign: float) -> dict[str, Any]:
    """The values with the lowest (highest) value of ``name`` among points nearly as good as the best."""
    good = [r.params for r in result.history if r.objective <= NEARLY * result.objective]
    pick = min(good, key=lambda params: sign * float(np.mean(params[name])))
    return {key: np.array(value) if isinstance(value, list) else value for key, value in pick.items()}


def _coefficients(
    bilevel: Bilevel, index: list[np.ndarray], n_rows: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Coefficients (targets, all rows) and intercepts of one fold's smooth machines where a stage ended."""
    best = bilevel.end
    if best is None or not bilevel.problems[0].loss.smooth:
        return None
    problem, point = bilevel.problems[0], best.points[0]
    tasks = np.flatnonzero(problem.split == 0)
    alpha = np.zeros((len(tasks), n_rows))
    np.add.at(alpha.T, index[0][problem.folds.order], point.alpha[tasks].T)  # a row may come several times
    return alpha, point.W[tasks, -1]


def decisions_by_row(
    bilevel: Bilevel, best: Evaluation, index: list[np.ndarray], n_rows: int
) -> tuple[np.ndarray, np.ndarray]:
    """Decisions (targets, rows) and intercepts (targets,), averaged over the folds, at an evaluation."""
    first = bilevel.problems[0]
    total, count, b = np.zeros((first.n_targets, n_rows)), np.zeros(n_rows), []
    for problem, point, rows in zip(bilevel.problems, best.points, index, strict=True):
        shape = (problem.n_targets, problem.n_splits, -1)
        own = rows[problem.folds.order]
        total[:, own] += point.Z.reshape(shape).sum(axis=1)
        count[own] += problem.n_splits
        b.append(point.W[:, -1].reshape(shape[:2]).mean(axis=1))
    return total / np.maximum(count, 1.0), np.mean(b, axis=0)


def choose_sample(rows: Rows, splits: Splits, n: int) -> tuple[np.ndarray, Splits] | None:
    """Rows of a sample, with the classes in their shares, and its folds; None when the rows are too few or too special.

    Groups of samples and sample weights are not sampled: a group might be lost.
    """
    size = int(np.clip(SAMPLE_SHARE * n, *SAMPLE_ROWS))
    if n < SAMPLE_FROM or size > n // 2 or rows.group is not None or rows.weight is not None:
        return None
    few = list(splits[:SAMPLE_SPLITS])
    # One stratum for every class and way to take part in the folds; of each an even share.
    label = np.zeros(n, dtype=int) if rows.label is None else np.asarray(rows.label)
    stratum = label * 4 ** len(few)
    for k, (train, validation) in enumerate(few):
        stratum[train] += 4**k
        stratum[validation] += 2 * 4**k  # 3 with the line above: a row may do both
    order = np.random.default_rng(0).permutation(n)
    order = order[np.argsort(stratum[order], kind="stable")]
    chosen = np.sort(order[np.floor(np.arange(size) * (n / size)).astype(int)])
    place = np.full(n, -1)
    place[chosen] = np.arange(size)
    out = []
    for train, validation in few:
        inner, outer = place[train], place[validation]
        inner, outer = inner[inner >= 0], outer[outer >= 0]
        present = np.bincount(label[chosen][inner], minlength=int(label.max()) + 1)
        if not len(outer) or np.any(present < 2):
            return None
        out.append((inner, outer))
    return chosen, out
