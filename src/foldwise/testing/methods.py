"""The contracts of inner solvers and outer methods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.losses import (
    Logistic,
    Loss,
    Misclassification,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.optimizers.base import run
from foldwise.problems.weights import Weights
from foldwise.result import Record, Result, Status
from foldwise.solvers.newton import Newton
from foldwise.space import Dimension, Lin, Log
from foldwise.testing.comparison import close, require
from foldwise.testing.programs import small_bilevel

__all__ = ["check_optimizer", "check_solver"]


def check_solver(
    solver: Any, *, losses: Iterable[Loss] | None = None, rtol: float = 1e-6, seed: int = 0
) -> None:
    """Check a solver of training problems on small programs.

    The gradient is as small as the solver claims, the decisions agree with Newton's, a second solve from the
    solution stays there, and a solver with an iteration limit says so when it stops short.

    Parameters
    ----------
    solver : object with ``solve(problem, theta, state, workspace)``
    losses : iterable of Loss, optional
        Training losses to try; by default a tube, a squared hinge and the logistic loss.
    rtol : float
        Agreement of decisions with those of ``Newton(tol=1e-12)``.
    seed : int

    Examples
    --------
    >>> check_solver(Newton())
    """
    if losses is None:
        losses = (SquaredEpsilonInsensitive(), SquaredHinge(), Logistic())
    rng = np.random.default_rng(seed)
    for loss in losses:
        tune: dict[str, Dimension] = {"C": Log(1e-4, 1e2, per="group")}
        if "epsilon" in loss.tunable:
            tune["epsilon"] = Lin(0.0, 2.0, per="group")
        bilevel, theta = small_bilevel(loss, Logistic(), tune, sample_weight=True, seed=seed)
        problem, name = bilevel.problems[0], f"{type(solver).__name__} on {type(loss).__name__}"
        wanted = problem.solved(Newton(tol=1e-12), theta).decisions
        W = problem.start().W
        for start in (Weights(W), Weights(rng.normal(size=W.shape))):
            kept = start.W.copy()
            point = problem.solved(solver, theta, start)
            require(np.array_equal(start.W, kept), f"{name}: the starting weights were changed in place")
            require(point.converged.all(), f"{name}: did not converge")
            # The residual is computed from the rows, whatever the solver kept up to date.
            limit = 1.1 * getattr(solver, "tol", 1e-7) + 1e-12
            worst = float(problem.residual(point, None).max())
            require(worst <= limit, f"{name}: claims convergence at a relative residual of {worst:.2g}")
            close(point.decisions, wanted, rtol, f"{name}: decisions", floor=1e-2)
            close(
                problem.design.decisions(point.W), point.decisions, 1e-9, f"{name}: decisions of the weights"
            )
        again = problem.solved(solver, theta, point.state)
        require(again.steps <= 1, f"{name}: took {again.steps} steps from its own solution")
        if hasattr(solver, "max_iter"):
            for limit_of_steps in (0, 1):
                short = problem.solved(
                    replace(solver, max_iter=limit_of_steps), theta, Weights(rng.normal(size=W.shape))
                )
                left = problem.residual(short, None) > limit
                require(limit_of_steps or left.all(), f"{name}: random weights solve a task")
                require(not short.converged[left].any(), f"{name}: stopped short and claims convergence")


def check_optimizer(optimizer: Any, *, seed: int = 0) -> None:
    """Check an outer method on small programs.

    Never worse than where it started; the point returned is the best evaluated one; evaluations stay within the
    bounds; the result survives JSON; a callback stops it, and an interrupt returns the best point so far.

    Parameters
    ----------
    optimizer : object with ``minimize(bilevel, theta0, callback=None)``
    seed : int

    Examples
    --------
    >>> from foldwise.optimizers import TrustRegionNewton
    >>> check_optimizer(TrustRegionNewton())
    """
    labels: dict[str, Dimension] = {"C": Log(1e-3, 1e2), "class_weight": Log(0.2, 5.0, per="class")}
    tubes: dict[str, Dimension] = {"C": Log(1e-3, 1e1), "epsilon": Lin(0.0, 1.5)}
    programs = [
        small_bilevel(Logistic(), Logistic(), labels, seed=seed),
        small_bilevel(SquaredEpsilonInsensitive(), Squared(), tubes, overlap=True, seed=seed),
    ]
    for bilevel, theta in programs:
        _check_run(optimizer, bilevel, theta)
        _check_inside(optimizer, bilevel, theta)
        _check_inside(optimizer, bilevel, bilevel.space.upper + 1.0)
    bilevel, theta = programs[0]
    _check_stops(optimizer, bilevel, theta)
    if optimizer.needs_gradient:
        blind = Bilevel(bilevel.problems, Misclassification(), bilevel.space, bilevel.solver)
        try:
            optimizer.minimize(blind, theta)
        except ValueError:
            return
        raise AssertionError(f"{optimizer.name} must refuse a criterion without a derivative")


def _check_run(optimizer: Any, bilevel: Bilevel, theta: np.ndarray) -> None:
    name = optimizer.name
    seen: list[Record] = []
    result = optimizer.minimize(bilevel, theta, callback=seen.append)
    values = [record.objective for record in result.history]
    admitted = [r.objective if r.admissible else np.inf for r in result.history]
    running = np.minimum.accumulate(admitted).tolist()
    require(
        optimizer.admits(bilevel.space, np.array(result.theta)), f"{name}: returned a point it does not admit"
    )
    first = next(value for value in admitted if np.isfinite(value))
    told, kept = (
        [(r.evaluation, r.params, r.fold_objectives) for r in some] for some in (seen, result.history)
    )
    require(told == kept, f"{name}: the callback must see every evaluation")
    require(len(values) == result.n_evaluations > 1, f"{name}: made fewer than two evaluations")
    require(
        result.objective_start == first, f"{name}: objective_start is not the first admissible evaluation"
    )
    require(
        result.objective == min(admitted), f"{name}: did not return the best evaluated point that it admits"
    )
    require([r.best for r in result.history] == running, f"{name}: records misstate the best so far")
    require(isinstance(result.status, Status) and bool(result.message), f"{name}: needs a status in words")
    cold = bilevel.evaluate(np.array(result.theta)).objective
    close(result.objective, cold, 1e-8, f"{name}: the objective from a cold start", floor=1e-6)
    close(np.mean(result.fold_objectives), cold, 1e-8, f"{name}: the mean of the fold objectives")
    require(max(result.kkt) <= 1e-8, f"{name}: inner solutions are not exact")
    require(Result.from_json(result.to_json()) == result, f"{name}: the result changes when written as JSON")


class _Witness(Bilevel):
    """A program that remembers every point at which it was asked for its value."""

    def evaluate(self, theta: np.ndarray, warm: Evaluation | None = None) -> Evaluation:
        self.asked = [*getattr(self, "asked", []), np.array(theta, float)]
        return super().evaluate(theta, warm)


def _check_inside(optimizer: Any, bilevel: Bilevel, theta: np.ndarray) -> None:
    """The program clips what it is asked for; a method that relies on it does not know where it is."""
    space = bilevel.space
    witness = _Witness(bilevel.problems, bilevel.criterion, space, bilevel.solver)
    result = optimizer.minimize(witness, theta)
    asked = np.array(witness.asked)
    outside = np.maximum(space.lower - asked, asked - space.upper).max()
    require(outside <= 1e-9, f"{optimizer.name}: left the bounds by {outside:.2g}")
    known = any(np.array_equal(result.theta, space.clip(point)) for point in witness.asked)
    require(known, f"{optimizer.name}: returned a point that was never evaluated")


def _check_stops(optimizer: Any, bilevel: Bilevel, theta: np.ndarray) -> None:
    name = optimizer.name
    result = optimizer.minimize(bilevel, theta, callback=lambda record: record.evaluation == 1)
    require(result.status is Status.STOPPED, f"{name}: a callback that returns True must stop the search")
    require(result.n_evaluations == 2, f"{name}: went on after a callback asked to stop")

    def interrupt(record: Any) -> None:
        if record.evaluation == 1:
            raise KeyboardInterrupt

    result = optimizer.minimize(bilevel, theta, callback=interrupt)
    require(result.status is Status.INTERRUPTED, f"{name}: an interrupt must return the best point so far")
    lowest = min(r.objective for r in result.history if r.admissible)
    require(result.objective == lowest, f"{name}: lost the best point")
    result = run(optimizer, bilevel, theta, deadline=0.0)
    require(result.status is Status.TIME_LIMIT, f"{name}: ran past its time limit")
    require(result.n_evaluations == 1, f"{name}: went on after the time limit")
