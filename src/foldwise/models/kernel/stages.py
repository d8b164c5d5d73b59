"""Which cheaper searches come before the search over a kernel machine.

A search over few rows finds the valley in a fraction of the time of one over all rows; where all rows are few, short
searches from several points choose among the valleys; a smoothed hinge leads past the kinks of the exact one; tied
widths and a fixed tube come before free ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from foldwise.models.base import DataFacts, SearchStage
from foldwise.space import Dimension

if TYPE_CHECKING:
    from foldwise.models.kernel.model import KernelModel

__all__ = ["StageRule"]


@dataclass(frozen=True)
class StageRule:
    """When stages come first, and how accurate they are; docs/kernels.md tells what they are for.

    Attributes
    ----------
    samples : whether a sample of the rows is searched first
    scouts : whether all rows are scouted from several points however many there are
    few_rows, few_rows_with_tube : up to this many rows the smoothed loss is scouted on all of them; with a tube the
        valleys of a sample are others
    sample_margin : by how much another valley of a sample may be above the best for a look at it on all rows
    band : half width of the band on which corners are rounded, in units of the margin or of the target's spread
    valley_tol, smooth_tol, tol, fixed_tube_tol : relative accuracy of the objective: where a stage looks for the
        valley, after that, of the machine itself, and of a smooth one with a fixed tube, above which a free one must
        not end
    inner_tol : accuracy of training problems that are not those of the very machine
    """

    samples: bool = True
    scouts: bool = False
    few_rows: int = 800
    few_rows_with_tube: int = 1_000
    sample_margin: float = 1.3
    band: float = 0.1
    valley_tol: float = 1e-2
    smooth_tol: float = 3e-3
    tol: float = 1e-3
    fixed_tube_tol: float = 1e-4
    inner_tol: float = 1e-4

    def stages(
        self,
        model: KernelModel,
        dimensions: Mapping[str, Dimension],
        start: Mapping[str, Any],
        facts: DataFacts,
    ) -> list[SearchStage]:
        """The stages before a search over ``dimensions`` that starts from these values."""
        narrow = _narrowed(model, dimensions, facts.X.shape[1])
        fixed = {name: start[name] for name in dimensions if name not in narrow}
        held = replace(model, values={**model.values, **fixed})
        classes = model.loss.task == "classification"
        has_tube = not classes
        smooth = held.smoothed(self.band * (facts.spread if has_tube else 1.0))
        has_tube = has_tube and smooth is not None
        few = facts.n_rows < (self.few_rows_with_tube if has_tube else self.few_rows)
        scouted = (few or self.scouts) and (smooth is not None or classes)
        out = []
        if self.samples and not model.kernel.precomputed and not scouted:
            sample = SearchStage("sample", smooth or held, narrow, self.valley_tol, False, self.inner_tol)
            sample = replace(sample, sampled=True, easiest=_strength(model, narrow))
            out.append(replace(sample, several=classes, margin=self.sample_margin))
        whole = SearchStage("smooth", smooth or held, narrow, self.smooth_tol, False, self.inner_tol)
        if scouted:
            out.append(replace(whole, name="scout", tol=self.valley_tol, several=True))
        if smooth is not None:
            out.append(whole)
        elif narrow != dimensions:
            tol = self.fixed_tube_tol if model.loss.smooth and len(narrow) < len(dimensions) else self.tol
            out.append(SearchStage("narrow", held, narrow, tol, True, landmarks=True))
        return out


def _narrowed(model: KernelModel, dimensions: Mapping[str, Dimension], d: int) -> Mapping[str, Dimension]:
    """The dimensions with the widths of all features tied and, where something else is tuned, with a fixed tube."""
    sizes = model.sizes(d)
    tied = {
        name: replace(dim, tie=[0] * sizes[name]) if sizes.get(name, 1) > 1 and model.is_width(name) else dim
        for name, dim in dimensions.items()
    }
    if model.loss.polyhedral:
        return tied  # where a fixed tube ends, kinks would hold a free one
    rest = {name: dim for name, dim in tied.items() if model.roles[name].kind != "epsilon"}
    return rest or tied


def _strength(model: KernelModel, dimensions: Mapping[str, Dimension]) -> tuple[str, float] | None:
    """The strength of the loss and its sign: a first solution takes long where it is large."""
    for name in dimensions:
        if model.roles[name].kind == "log_c" and name != "class_weight":
            return name, model.roles[name].sign
    return None
