"""Solvers of training problems by name, and what each of them needs.

A solver is an object with ``needs``, words of :data:`~foldwise.problems.base.OFFERS`, and ``solve(problem, theta,
state, workspace)``. One of your own is used as it is, ``LinearSVR(solver=Mine())``, or by the name that
:func:`register` gives it. What it needs is compared with what a problem offers before anything is solved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foldwise.arguments import Rule
from foldwise.problems.base import OFFERS, Problem, Solver
from foldwise.solvers.bordered import ExactSemiparametric
from foldwise.solvers.fista import Fista
from foldwise.solvers.libsvm import LibSvm
from foldwise.solvers.multinomial import MultinomialNewton
from foldwise.solvers.newton import Newton
from foldwise.solvers.projected import ProjectedNewton
from foldwise.solvers.qp import ExactQP
from foldwise.solvers.representer import RepresenterNewton
from foldwise.solvers.sparse import SparseNewton
from foldwise.solvers.staircase import ActiveSteps

__all__ = ["SOLVER", "SOLVERS", "check", "choose", "register", "suitable"]

SOLVERS: dict[str, tuple[frozenset[str], Callable[..., Any]]] = {
    "newton": (Newton.needs, Newton),
    "fista": (Fista.needs, Fista),
    "active_set": (ExactQP.needs, lambda **_: ExactQP()),
    "piqp": (ExactQP.needs, lambda **_: ExactQP(backend="piqp")),
    "clarabel": (ExactQP.needs, lambda **_: ExactQP(backend="clarabel")),
}
"""By name: what a solver needs, and what makes it from ``tol`` and ``max_iter``."""

OWN = frozenset(SOLVERS)
"""Names that nobody else can take; others may be registered again, as when a cell of a notebook is run twice."""

USUAL: dict[str, Callable[..., Any]] = {
    "weights": Newton,
    "bounds": ProjectedNewton,
    "sparse": SparseNewton,
    "multinomial": MultinomialNewton,
    "pieces": lambda **_: ExactQP(),
    "representer": RepresenterNewton,
    "box": lambda **_: LibSvm(),
    "staircase": lambda **_: ActiveSteps(),
    "columns": lambda **_: ExactSemiparametric(),
}
"""What solves problems of a form unless another solver is chosen."""


def register(name: str, make: Callable[..., Any]) -> None:
    """Let estimators know a solver by a name: ``LinearSVR(solver=name)``.

    Parameters
    ----------
    name : str
    make : class, or callable with an attribute ``needs``
        Called with ``tol``, and with ``max_iter`` where the estimator sets it.

    Examples
    --------
    >>> register("old newton", Newton)
    >>> "old newton" in suitable_names({"weights", "smooth"})
    True
    >>> del SOLVERS["old newton"]
    """
    if not isinstance(name, str) or not name or name == "auto":
        raise ValueError(f"a solver needs a name of its own; got {name!r}. Give a word other than 'auto'")
    if name in OWN:
        raise ValueError(f"the name {name!r} is taken by a solver of the package; choose another one")
    SOLVERS[name] = _needs(make, name), make


def choose(spec: Any, problem: Problem, tol: float, max_iter: int | None = None) -> Any:
    """The solver of this name made for a problem, or the object itself; "auto" for what is usual.

    Raises a ValueError where the solver needs what the problem does not offer.
    """
    limits: dict[str, Any] = {"tol": tol} if max_iter is None else {"tol": tol, "max_iter": max_iter}
    if isinstance(spec, str):
        if spec == "auto":
            return USUAL[problem.form](**limits)
        if spec not in SOLVERS:
            raise ValueError(
                f"unknown solver {spec!r}; use a solver object or one of: {', '.join(['auto', *SOLVERS])}"
            )
        needs, make = SOLVERS[spec]
        _compare(repr(spec), needs, problem)
        return make(**limits)
    check(spec, problem)
    return spec


def check(solver: Solver, problem: Problem) -> None:
    """Refuse a solver that needs what a problem does not offer, with words on what to use instead.

    One that says nothing of its needs passes.
    """
    name = type(solver).__name__
    if not hasattr(solver, "needs"):
        return
    _compare(name, _needs(solver, name), problem)


def suitable(problem: Problem) -> list[str]:
    """Names of the registered solvers that solve a problem."""
    return suitable_names(problem.offers)


def suitable_names(offers: Any) -> list[str]:
    """Names of the registered solvers that need no more than this."""
    return [name for name, (needs, _) in SOLVERS.items() if needs <= set(offers)]


def _needs(solver: Any, name: str) -> frozenset[str]:
    """What a solver says that it needs; refused where it says nothing or nothing known."""
    needs = getattr(solver, "needs", None)
    if not isinstance(needs, frozenset) or not needs <= set(OFFERS):
        raise ValueError(
            f"the solver {name} must say in needs, a frozenset of words, what it needs of a problem; got {needs!r}. "
            f"Words: {', '.join(map(repr, OFFERS))}"
        )
    return needs


def _compare(name: str, needs: frozenset[str], problem: Problem) -> None:
    missing = [words for word, words in OFFERS.items() if word in needs - problem.offers]
    if missing:
        others = ["'auto'", *map(repr, suitable(problem))]
        raise ValueError(
            f"solver {name} needs {missing[0]}; got {OFFERS[problem.form]}, with {type(problem.loss).__name__} loss. "
            f"Use solver={' or '.join(others)}"
        )


def _is_solver(value: Any) -> bool:
    return (
        value == "auto" or value in SOLVERS
        if isinstance(value, str)
        else callable(getattr(value, "solve", None))
    )


SOLVER = Rule(
    f"'auto', {', '.join(map(repr, SOLVERS))}, a name given to foldwise.solvers.registry.register, or an object with "
    "solve(problem, theta, state, workspace)",
    _is_solver,
)
"""What the parameter ``solver`` of an estimator may be."""
