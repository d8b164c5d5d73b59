"""What a user should know about where a search ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.bilevel import Evaluation
from foldwise.losses import Misclassification
from foldwise.search.prepare import Program

__all__ = ["FindingRule", "constant_error", "findings"]


@dataclass(frozen=True)
class FindingRule:
    """When something is worth saying.

    Attributes
    ----------
    flat : spread of a fold's validation decisions, in units of the target's, below which they are called the same
    on_boundary : decisions below this share of a fold's largest are zero but for rounding
    """

    flat: float = 1e-3
    on_boundary: float = 1e-9


RULE = FindingRule()


def findings(program: Program, end: Evaluation | None) -> list[str]:
    """Notes about the data, and sentences about the end of a search."""
    if end is None:
        return list(program.notes)
    return [
        *program.notes,
        *_flat_decisions(program, end),
        *_flat_intercepts(program, end),
        *_on_the_boundary(program, end),
    ]


def constant_error(program: Program, end: Evaluation | None) -> float | None:
    """The error of predicting the mean target everywhere; None for classes and for models without a constant."""
    model, loss = program.model, program.bilevel.criterion.loss
    if end is None or loss is None or not model.fit_intercept or model.loss.task != "regression":
        return None
    total = 0.0
    for problem, m, z, y, v in _validation(program, end):
        level = np.full(len(z), float(np.mean(problem.Y[problem.target[m]])))
        total += float(v @ loss.value(level, y))
    return total


def _validation(program: Program, end: Evaluation) -> Iterator[tuple[Any, int, Any, Any, Any]]:
    """Of every task: its problem, its number there, decisions, targets and weights of its validation rows."""
    for problem, point in zip(program.bilevel.problems, program.bilevel.solutions(end), strict=True):
        for m, _, z, y, v in problem.validation(point):
            yield problem, m, z, y, v


def _flat_decisions(program: Program, end: Evaluation) -> list[str]:
    if not program.model.warns_if_flat:
        return []
    for problem, _, z, _, _ in _validation(program, end):
        if float(np.ptp(z)) > RULE.flat * max(float(np.std(problem.Y)), np.finfo(float).tiny):
            return []
    return [
        "at the selected values the model predicts the same for all validation rows, where the gradient vanishes: "
        "the kernel is too narrow or the regularisation too strong. Start elsewhere (method_options={'start': "
        "...}), narrow the bounds, or check that the features are scaled"
    ]


def _flat_intercepts(program: Program, end: Evaluation) -> list[str]:
    pairs = list(zip(program.bilevel.problems, program.bilevel.solutions(end), strict=True))
    count = sum(problem.flat_intercepts(point) for problem, point in pairs)
    if not count:
        return []
    total = sum(problem.n_tasks for problem, _ in pairs)
    return [
        f"in {count} of {total} training problems the intercept is not unique at the selected values (every row is "
        f"at a bound of its dual variable, or on a straight piece of the loss): {program.model.intercept_rule} is "
        "taken, and the error depends on it. A larger C, or bounds that begin higher, make it unique"
    ]


def _on_the_boundary(program: Program, end: Evaluation) -> list[str]:
    """Of a criterion that jumps where decisions change their sign: rows whose sign is a matter of rounding."""
    if not isinstance(program.bilevel.criterion.loss, Misclassification):
        return []
    count, share = 0, 0.0
    for _, _, z, _, v in _validation(program, end):
        there = np.abs(z) <= RULE.on_boundary * np.abs(z).max(initial=0.0)
        count, share = count + int(there.sum()), share + float(v[there].sum())
    if not count:
        return []
    return [
        f"{count} validation rows lie on the decision boundary but for rounding, and count as the class that their "
        f"rounding gives: the error of the same machines, fitted anew, may differ by up to {share:.4g}"
    ]
