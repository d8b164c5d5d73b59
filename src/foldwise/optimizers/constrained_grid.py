"""Which features to keep, by trying every combination: the baseline for boxes on the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from foldwise.arguments import Table, instance, integer
from foldwise.bilevel import Bilevel, Evaluation
from foldwise.optimizers.base import Minimizer, Trace
from foldwise.optimizers.plans import VALUES, Grid, check_plan, snake
from foldwise.result import Status
from foldwise.space import Block, Space

__all__ = ["ConstrainedGrid"]


@dataclass(frozen=True)
class ConstrainedGrid(Minimizer):
    """Every feature's box shut or wide open, in all combinations: the constrained grid of [1]_ and [2]_.

    In three stages, all on the same folds, criterion and inner solver:

    1. a grid over the hyper-parameters that are no boxes, with every box at its upper bound;
    2. while more than ``max_features`` boxes are open, the one whose feature has the smallest weights is shut
       (recursive feature elimination);
    3. the remaining ones at their lower or upper bound in all ``2^k`` combinations, successive ones differing in one.

    Parameters
    ----------
    max_features : int
        Boxes left for the third stage.
    points, values, max_points
        The grid of the first stage, as in :class:`Grid`.
    box : str
        Name of the hyper-parameter with one bound per feature.

    Notes
    -----
    The papers leave the boxes out in the first stage, and an upper bound that no weight reaches does the same. Where
    the upper bounds do bind, select ``C`` first by a grid on the estimator without a box, then fix it and give a space
    with ``box`` alone. The elimination adds up squared weights over the folds; the papers do not say on which rows
    theirs was done. As in the papers, only points with at most ``max_features`` open boxes are returned; those on the
    way to them are in the history and do not count.

    References
    ----------
    .. [1] Bennett, Hu, Kunapuli, Pang (2006), Model selection via bilevel optimization, section VI.B.
    .. [2] Kunapuli, Bennett, Hu, Pang (2008), Classification model selection via bilevel programming, section 4.2.
    """

    max_features: int = 10
    points: int = 7
    values: Mapping[str, Sequence[float]] = field(default_factory=dict)
    max_points: int = 10_000
    box: str = "box"

    _arguments: ClassVar[Table] = {
        "max_features": replace(integer(1, 20), do="2^max_features points are evaluated"),
        "points": integer(),
        "values": VALUES,
        "max_points": integer(),
        "box": instance(str, "the name of a hyper-parameter"),
    }
    name = "constrained_grid"
    needs_gradient = False
    uses_start = False
    restarts = False
    limits: ClassVar[Mapping[str, str]] = {}

    def admits(self, space: Space, theta: np.ndarray) -> bool:
        """Whether at most ``max_features`` boxes are open."""
        boxes = space.slices.get(self.box)
        return boxes is None or int(np.sum(theta[boxes] > space.lower[boxes])) <= self.max_features

    def check(self, bilevel: Bilevel) -> None:
        """Refuse a space without boxes, and a first stage that is too large."""
        super().check(bilevel)
        block = self._block(bilevel.space)
        check_plan(self._first_axes(bilevel.space, bilevel.space.slices[block.name]), self.max_points)

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run the three stages; ``theta`` is not used."""
        block = self._block(trace.space)
        boxes = trace.space.slices[block.name]
        here = self._others(trace, boxes)
        kept, here = self._eliminate(trace, block, here)
        columns = boxes.start + kept
        theta = here.theta.copy()
        warm = here
        axes = [np.array([trace.space.upper[i], trace.space.lower[i]]) for i in columns]
        for combination in snake(axes):
            theta[columns] = combination
            warm = trace.evaluate(theta.copy(), warm=warm, note="combinations")
        return Status.EXHAUSTED

    def _block(self, space: Space) -> Block:
        blocks = {block.name: block for block in space.blocks}
        if self.box not in blocks:
            raise ValueError(
                f"method {self.name!r} selects features by their boxes, and this space has no {self.box!r}; it has: "
                f"{', '.join(blocks)}. Add {{'box': Lin(0, upper, per='feature')}}, or use method='grid'"
            )
        return blocks[self.box]

    def _others(self, trace: Trace, boxes: slice) -> Evaluation:
        """Stage 1: the best point of a grid with open boxes."""
        seen: list[Evaluation] = []
        for point in snake(self._first_axes(trace.space, boxes)):
            seen.append(trace.evaluate(np.array(point), warm=seen[-1] if seen else None, note="open boxes"))
        return min(seen, key=lambda evaluation: evaluation.objective)

    def _first_axes(self, space: Space, boxes: slice) -> list[np.ndarray]:
        """The values of stage 1: those of the grid, and every box open."""
        axes = Grid(self.points, self.values).axes(space)
        for i in range(boxes.start, boxes.stop):
            axes[i] = space.upper[i : i + 1]
        return axes

    def _eliminate(self, trace: Trace, block: Block, here: Evaluation) -> tuple[np.ndarray, Evaluation]:
        """Stage 2: entries of the boxes that stay open, and the point with the others shut."""
        boxes = trace.space.slices[block.name]
        kept = np.arange(block.size)
        while len(kept) > self.max_features:
            size = np.zeros(block.size)
            for problem, state in zip(trace.bilevel.problems, here.states, strict=True):
                weights, _ = problem.design.to_user(state.W)
                np.add.at(size, block.index, np.sum(weights**2, axis=0))
            kept = np.delete(kept, np.argmin(size[kept]))
            theta = here.theta.copy()
            theta[boxes] = trace.space.lower[boxes]
            theta[boxes.start + kept] = trace.space.upper[boxes.start + kept]
            here = trace.evaluate(theta, warm=here, note="elimination")
        return kept, here
