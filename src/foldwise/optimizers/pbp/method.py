"""Penalised bilevel programming: weights and hyper-parameters move together (moore2011, Algorithms 2 and 3)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from foldwise.arguments import FLAG, NONE, Rule, Table, integer, number, numbers
from foldwise.bilevel import Bilevel, Evaluation
from foldwise.optimizers.base import Minimizer, StopSearch, Trace
from foldwise.optimizers.pbp.penalised import Centre, Penalised, check_problems
from foldwise.optimizers.pbp.proximity import Control, Descent, descend
from foldwise.optimizers.pbp.subproblem import Polyhedron, least_distance
from foldwise.optimizers.quadratic import REACH
from foldwise.problems.weights import Weights
from foldwise.result import Status
from foldwise.space import Space

__all__ = ["PenalizedBilevel"]

ENDINGS = {"optimal": Status.CONVERGED, "short step": Status.STALLED, "limit": Status.MAX_ITER}
MAX_BETAS = 60
ROUNDING = 1e-10
"""Violation of a constraint, relative to the size of its terms, that is taken for rounding."""


def _is_pair(value: Any) -> bool:
    return len(value) == 2 and all(numbers(flat=False).allows(part) for part in value)


@dataclass(frozen=True)
class PenalizedBilevel(Minimizer):
    r"""PBP of moore2011: minimise the penalised objective over all weights and hyper-parameters at once.

    .. math::  f(W, \theta) = F(W) + \beta \sum_m \|\nabla_w E_m(w_m, \theta)\|^2, \qquad A\theta \le c

    for growing ``beta`` (Algorithm 2). For each ``beta`` a convex quadratic model around a stability centre is
    minimised with a proximal term, whose weight grows until the decrease is as promised (Algorithm 3). Where rows sit
    at a kink, the model uses the subgradient of greatest feasible descent. After each ``beta`` the training problems
    are solved exactly at the hyper-parameters reached: only such true values are recorded and compared.

    Parameters
    ----------
    tol : float
        Optimality of a stability centre: the squared norm of the subgradient of greatest feasible descent, in units
        where a step of length one is worth the objective, is below ``tol`` times the objective.
    eta : float
        A centre is also kept when the step from it is shorter than this.
    zeta : float
        ``beta`` grows until the gradients of the training problems are this small, relative to their parts.
    rho : float
        Share of the promised decrease that a step must bring, (38).
    slack : float
        The first ``beta`` lets the weights lower the objective by this share with the hyper-parameters fixed. A smaller
        ``beta`` is worse: there ``C = 0`` and weights fitted to the validation rows are a minimum.
    growth : float
        Factor from one ``beta`` to the next.
    tau : float
        First proximity parameter.
    tube : float
        Rows within this distance of a kink, relative to the largest target, count as on it.
    corrections : int
        How often the weights of a refused step are corrected at its hyper-parameters before the step is shortened;
        with 0 only straight steps are tried, as in the paper.
    two_stage : bool
        A start with closed tubes runs first with these fixed, then, from the best point so far, with all free.
    constraints : (A, c), optional
        ``A theta <= c`` beside the bounds, on ``theta`` as the space scales it.
    max_iter : int
        Stability centres per ``beta``.

    Notes
    -----
    ``result.details`` has what the penalty method claimed beside the truth after the polish, rows at a kink and the
    norm of the subgradient, at the stability centre whose hyper-parameters are returned; where the start is returned
    these are missing. ``last_beta``, ``ending`` and the counts are those of the whole run.
    """

    tol: float = 1e-4
    eta: float = 1e-4
    zeta: float = 1e-4
    rho: float = 0.1
    slack: float = 3e-4
    growth: float = 2.0
    tau: float = 1e-2
    tube: float = 1e-6
    corrections: int = 2
    two_stage: bool = True
    constraints: tuple[Any, Any] | None = None
    max_iter: int = 50

    _arguments: ClassVar[Table] = {
        "tol": number(at_least=0),
        "eta": number(at_least=0),
        "zeta": number(above=0),
        "rho": number(above=0, below=1),
        "slack": number(above=0),
        "growth": number(above=1),
        "tau": number(above=0),
        "tube": number(at_least=0),
        "corrections": integer(0),
        "two_stage": FLAG,
        "constraints": Rule("a pair (A, c) of finite numbers", _is_pair) | NONE,
        "max_iter": integer(),
    }
    name = "pbp"
    needs_loss = True
    messages: ClassVar[Mapping[Status, str]] = {
        Status.CONVERGED: "The penalised problem is solved and its weights solve their training problems; the point "
        "is the best of those evaluated exactly.",
        Status.STALLED: "The steps became too short, although the subgradient is not small.",
    }

    def feasible(self, space: Space, theta: np.ndarray) -> np.ndarray:
        """The nearest point within the bounds and the constraints."""
        theta = space.clip(theta)
        rows, limit = self._polyhedron(space)
        if np.all(rows @ theta <= limit):
            return theta
        region = Polyhedron(space.lower - theta, space.upper - theta, rows, limit - rows @ theta)
        return space.clip(
            theta + least_distance(np.eye(len(theta)), np.zeros(len(theta)), *region.inequalities())
        )

    def admits(self, space: Space, theta: np.ndarray) -> bool:
        """Whether ``A theta <= c`` holds to rounding."""
        rows, limit = self._polyhedron(space)
        size = np.abs(rows) @ np.abs(theta) + np.abs(limit)
        return bool(np.all(rows @ theta <= limit + ROUNDING * size))

    def _polyhedron(self, space: Space) -> tuple[np.ndarray, np.ndarray]:
        if self.constraints is None:
            return np.zeros((0, space.size)), np.zeros(0)
        rows, limit = (np.atleast_1d(np.asarray(part, float)) for part in self.constraints)
        rows = np.atleast_2d(rows)
        if rows.shape != (len(limit), space.size):
            raise ValueError(
                f"constraints must be (A, c) with A of shape ({len(limit)}, {space.size}), one column per entry of "
                f"theta ({', '.join(space.names[:6])}{', ...' if space.size > 6 else ''}); got A of shape {rows.shape}"
            )
        return rows, limit

    def check(self, bilevel: Bilevel) -> None:
        """Refuse other than linear problems with dense columns, and constraints of another size."""
        super().check(bilevel)
        check_problems(bilevel)
        self._polyhedron(bilevel.space)

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta``."""
        space = trace.space
        f = Penalised(trace.bilevel)
        here = trace.evaluate(self.feasible(space, theta), note="start")
        f.calibrate(here.objective)
        tubes = np.zeros(space.size, dtype=bool)
        for name, columns in space.slices.items():
            tubes[columns] = trace.bilevel.problems[0].parameters.kinds[name] == "epsilon"
        # 1. Tubes closed, where the training problems are least squares; a start with open tubes is taken as it is.
        if self.two_stage and tubes.any() and np.all(here.theta[tubes] <= space.lower[tubes]):
            self._penalty_method(trace, f, here, tubes)
            assert trace.best is not None
            here = trace.best
        # 2. Everything free.
        return self._penalty_method(trace, f, here, np.zeros(space.size, dtype=bool))

    def _penalty_method(self, trace: Trace, f: Penalised, start: Evaluation, frozen: np.ndarray) -> Status:
        """Algorithm 2: solve for fixed ``beta``, polish, and let it grow until the weights are feasible."""
        rows, limit = self._polyhedron(trace.space)
        control = Control(
            self.tol,
            self.eta,
            self.rho,
            self.tube,
            self.corrections,
            self.max_iter,
            rows,
            limit,
            frozen,
        )
        centre = f.at([state.W for state in start.states], start.theta)
        beta, tau = self._first_beta(f, centre), self.tau
        counters = ("stability_centres", "subproblems", "corrections", "subgradients_chosen")
        total = {name: trace.details.get(name, 0) for name in counters}
        for _ in range(MAX_BETAS):
            run = descend(f, centre, beta, tau, control, lambda: _watch(trace))
            centre, tau = run.centre, run.tau
            for name, count in zip(
                total, (len(run.values) - 1, run.subproblems, run.corrected, run.chosen), strict=True
            ):
                total[name] += count
            true = trace.evaluate(centre.theta, warm=_as_warm(centre), note=f"beta {beta:.2g}")
            facts = _facts(run, centre, beta, true.objective)
            trace.details.update({"ending": run.ending, "last_beta": beta} | total)
            if true is trace.best:
                trace.details.update(facts)
            if centre.infeasibility <= self.zeta:
                # The subgradient of greatest descent: a tenth of a step of length one, which is worth the objective.
                trace.vouch(true, REACH * facts["subgradient_norm"])
                return ENDINGS[run.ending]
            beta *= self.growth
        return Status.MAX_ITER

    def _first_beta(self, f: Penalised, centre: Centre) -> float:
        """The ``beta`` at which weights alone lower the model of ``f`` by the share ``slack`` of the objective."""
        model = f.model(centre, 1.0)
        wanted = self.slack * centre.outer
        gain_at = model.gain_of_weights()
        size = 2.0 * sum(float(np.sum(H * H)) for H in model.H)
        beta = sum(float(np.trace(A)) for A in model.A) / max(size, np.finfo(float).tiny)
        if beta == 0:  # a criterion with kinks and no row near one: the gain is c / beta
            beta = gain_at(1.0) / max(wanted, np.finfo(float).tiny) or 1.0
        smallest = 1e-12 * beta
        for _ in range(60):
            ratio = gain_at(beta) / max(wanted, np.finfo(float).tiny)
            if 1.0 <= ratio <= 2.0 or beta <= smallest:
                break
            # Where the penalty dominates, the gain falls like 1 / beta.
            beta *= float(np.clip(0.7 * ratio, 1e-2, 1e2))
        return max(beta, smallest)


def _watch(trace: Trace) -> None:
    """Stop between subproblems when the time is over."""
    if trace.deadline is not None and time.perf_counter() > trace.deadline:
        raise StopSearch(Status.TIME_LIMIT)


def _as_warm(centre: Centre) -> Evaluation:
    """The weights of a centre as a point to solve the training problems from."""
    return Evaluation(centre.theta, float("nan"), np.zeros(0), [Weights(w) for w in centre.W], False)


def _facts(run: Descent, centre: Centre, beta: float, true: float) -> dict[str, Any]:
    """What the penalty method claims, and what is so."""
    assert run.choice is not None
    value = run.values[-1]
    return {
        "beta": beta,
        "claimed_objective": centre.outer,
        "penalised_objective": value,
        "true_objective": true,
        "infeasibility": centre.infeasibility,
        "rows_at_kink": run.kinks,
        "subgradient_norm": float(np.sqrt(run.choice.norm2 / value)) if value > 0 else 0.0,
        "usual_subgradient_norm": float(np.sqrt(run.choice.usual2 / value)) if value > 0 else 0.0,
    }
