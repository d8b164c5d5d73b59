"""Many values of one kind have to prove that they are better than one.

A width for every feature over-fits where the features matter alike: the criterion falls, and the error on new rows
rises. So a search over many values is held against a search in which they are one: its advantage counts, less what
minimising over so many values has gained by chance (the optimism of both, :mod:`foldwise.uncertainty`), if it is more
than a few standard errors of the paired differences of the rows. Else the single value is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.criteria import Criterion
from foldwise.models.base import Model
from foldwise.optimizers.base import Minimizer
from foldwise.problems.parameters import BOX
from foldwise.search.choice import RowLosses
from foldwise.search.prepare import Program
from foldwise.search.trust import Trust
from foldwise.space import Dimension, Space

__all__ = ["Confirmation", "Verdict"]


@dataclass(frozen=True)
class Verdict:
    """How a search over many values compares with one over single ones.

    Attributes
    ----------
    advantage : how much lower the criterion is, in the folds
    optimism : how much more of that is due to chance, by estimate
    standard_error : of the advantage, from paired rows
    confirmed : whether the advantage is more than chance
    """

    advantage: float
    optimism: float
    standard_error: float
    confirmed: bool

    def details(self) -> dict[str, float]:
        """As details of a result."""
        return {
            "advantage": self.advantage,
            "advantage_by_chance": self.optimism,
            "advantage_standard_error": self.standard_error,
        }


@dataclass(frozen=True)
class Confirmation:
    """When an advantage of many values counts.

    Attributes
    ----------
    everything : whether penalties, groups and weights of kernels must prove themselves too, not only kernels' widths
    errors : standard errors that the advantage, less the optimism, must exceed; docs/selection.md has the evidence
    """

    everything: bool = False
    errors: float = 2.0

    @classmethod
    def of(cls, confirm: bool | str) -> Confirmation | None:
        """The rule that a search asks for; None for none."""
        return cls(everything=confirm != "auto") if confirm else None

    def names(self, model: Model, space: Space) -> list[str]:
        """The hyper-parameters with many values that might be one."""
        return [
            block.name
            for block in space.blocks
            if block.size > 1
            and (model.is_width(block.name) or (self.everything and _may_be_one(model, block.name)))
        ]

    def applies(self, program: Program, method: Minimizer) -> bool:
        """Whether there is something to confirm, and a method and a criterion with which that can be done."""
        criterion = program.bilevel.criterion
        able = method.needs_gradient and method.restarts and not method.finds_own_start
        by_row = type(criterion).by_row is not Criterion.by_row and criterion.has_curvature
        return able and by_row and bool(self.names(program.model, program.bilevel.space))

    def dimensions(self, program: Program) -> Mapping[str, Dimension]:
        """What is tuned, with a single value where there were many."""
        blocks = {block.name: block for block in program.bilevel.space.blocks}
        one = self.names(program.model, program.bilevel.space)
        return {
            name: replace(dim, tie=[0] * len(blocks[name].index)) if name in one else dim
            for name, dim in program.dimensions.items()
        }

    def reason(self, program: Program) -> str:
        """Why the single value is taken."""
        space = program.bilevel.space
        names = self.names(program.model, space)
        sizes = {block.name: block.size for block in space.blocks}
        many = " and ".join(f"{sizes[name]} values of {name}" for name in names)
        return f"the folds cannot confirm that {many} are better than one for all, which was taken"

    def judge(
        self, program: Program, many: tuple[Bilevel, Evaluation], one: tuple[Bilevel, Evaluation]
    ) -> Verdict | None:
        """Compare two ends, each with its program; None where rows or optimism are not known."""
        found, simple = _end(program, *many), _end(program, *one)
        if found is None or simple is None:
            return None
        (rows, optimism), (base, usual) = found, simple
        gap, error = rows.above(base)
        more = optimism - usual
        return Verdict(-gap, more, error, bool(gap + more < -self.errors * error))


def _may_be_one(model: Model, name: str) -> bool:
    """Whether one value for all is a simpler model: boxes and reference weights belong to their features."""
    kind = model.roles[name].kind
    return kind not in (*BOX, "reference") and name != "class_weight"


def _end(program: Program, bilevel: Bilevel, end: Evaluation) -> tuple[RowLosses, float] | None:
    """Losses by row and the optimism of the minimum."""
    with np.errstate(all="ignore"):
        bilevel.differentiate(end, 2)
        assessed = Trust(program, bilevel, end).assessed()
        rows = None if assessed is None else RowLosses.of(assessed[0])
    return None if rows is None or assessed is None else (rows, assessed[1].optimism)
