"""Kernel machines as optimisation problems: what is tuned, training problems, solvers, what is said of the end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from foldwise.kernels import Kernel
from foldwise.losses import Loss
from foldwise.models.base import Array, Assembly, DataFacts, Model, Role, SearchStage, Sheet
from foldwise.models.kernel.assemble import (
    KernelParts,
    assemble_kernel,
    dense_rows,
    kernel_slots,
    original_of,
)
from foldwise.models.kernel.landmarks import LandmarkRule
from foldwise.models.kernel.stages import StageRule
from foldwise.models.kernel.starts import kernel_dimension, kernel_starts
from foldwise.prior import Prior, SpreadPenalty
from foldwise.problems.dual import DualProblem
from foldwise.problems.kernel import KernelProblem
from foldwise.problems.staircase import StaircaseProblem
from foldwise.space import Dimension, Space

__all__ = ["KernelModel"]


@dataclass(frozen=True)
class KernelModel(Model):
    """A kernel model as an optimisation problem.

    Parameters
    ----------
    loss : Loss
        Smooth losses are solved in representer form; polyhedral ones exactly, through their dual.
    kernel : Kernel
    roles, values, fit_intercept, class_weight, class_weight_rule, balances, criterion_weight, chosen_solver
        As in :class:`foldwise.models.base.Model`.
    slot_names : mapping from hyper-parameter name to the kernel's own name for it
    multiclass : {"ovr", "ovo"}
    memory_limit : float
        Bytes that kernel matrices may take.
    precision : {"double", "single"}
        How distances and kernel matrices are kept.
    adjustable : sequence of str
        Which of the two are parameters of the user's estimator: what a refusal may advise.
    by_fold : mapping from hyper-parameter name to callable(X) -> float
        Values that follow from a fold's training rows, unless they are tuned.
    machine : SVC or SVR, optional
        scikit-learn's machine, where it is one; its intercept is then LIBSVM's also where that is not unique.
    """

    loss: Loss
    kernel: Kernel
    roles: Mapping[str, Role]
    values: Mapping[str, Any]
    slot_names: Mapping[str, str]
    fit_intercept: bool = True
    class_weight: Any = None
    class_weight_rule: str = "row"
    multiclass: str = "ovr"
    balances: str = "weights"
    criterion_weight: Any = "auto"
    memory_limit: float = 8e9
    precision: str = "double"
    adjustable: tuple[str, ...] = ()
    by_fold: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    machine: Any = None
    chosen_solver: Any = "auto"

    warns_if_flat: ClassVar[bool] = True
    landmark_rule: ClassVar[LandmarkRule] = LandmarkRule()
    stage_rule: ClassVar[StageRule] = StageRule()
    smooth_tol: ClassVar[float] = 1e-4
    """Relative accuracy of the objective, whose evaluations are expensive."""
    exact_tol: ClassVar[float] = 1e-3
    """The same for exact machines (hinge, tube), whose error has a kink wherever a row changes its kind."""
    polls: ClassVar[int] = 2
    """How often the search over an exact machine with few hyper-parameters looks around before it ends."""
    usual_shrinkage: ClassVar[float] = 0.5
    """Strength of the penalty on the spread of per-feature widths; docs/shrinkage.md has the evidence."""
    moderate: ClassVar[tuple[float, float]] = (30.0, 3.0)
    """What ``prior`` multiplies the typical ``C`` by and divides typical widths by; docs/selection.md."""
    coarse: ClassVar[float] = 0.03
    """Tolerance of scikit-learn's SVR, in units of the target's spread, above which its fit is called coarse."""

    def is_width(self, name: str) -> bool:
        """Whether a hyper-parameter makes the kernel narrower as it grows."""
        return name in self.slot_names and self.kernel.kinds()[self.slot_names[name]] == "width"

    # 1. The data.

    def check_steps(self) -> None:
        """Refuse a precomputed kernel behind other steps."""
        if self.kernel.precomputed:
            raise ValueError(
                "a precomputed kernel has rows and columns of the same samples, which earlier steps of a pipeline "
                "would transform apart; compute the matrix of transformed rows, or use a kernel of the features"
            )

    def features(self, X: Any) -> Array:
        """Dense rows; sparse ones that would not fit the memory limit are refused."""
        return dense_rows(X, self.memory_limit)

    def shares_sheet(self, tuned: Collection[str]) -> bool:
        """Whether no fixed value follows from the training rows."""
        return set(self.by_fold) <= set(tuned)

    def fitted(self, X: Any) -> KernelModel:
        """With the values that follow from these training rows."""
        if not self.by_fold:
            return self
        return replace(self, values={**self.values, **{name: f(X) for name, f in self.by_fold.items()}})

    # 2. What is tuned.

    def sizes(self, d: int) -> dict[str, int]:
        """Number of values of every kernel hyper-parameter."""
        return {name: part.stop - part.start for name, part in kernel_slots(self, d).items()}

    def default_dimension(self, name: str, per: str | None, facts: DataFacts) -> Dimension:
        """See :func:`foldwise.models.kernel.starts.kernel_dimension`."""
        dimension = kernel_dimension(name, self, facts)
        return dimension if per is None else replace(dimension, per=per)

    def centre(self, dimensions: Mapping[str, Dimension], facts: DataFacts) -> dict[str, Any]:
        """The typical point from which a search starts, with a wider kernel and a loss that counts more."""
        found = {**super().centre(dimensions, facts), **kernel_starts(self, dimensions, facts)[0]}
        more, wider = self.moderate
        for name in dimensions:
            if self.roles[name].kind == "log_c" and name != "class_weight":
                found[name] = found[name] * more ** self.roles[name].sign
            elif self.is_width(name):
                found[name] = found[name] / wider
        return found

    def prior(self, space: Space, n_rows: int, shrinkage: float | None) -> Prior | None:
        """``kappa / (2 n) ||log gamma - mean||^2`` for every block of several widths."""
        kappa = self.usual_shrinkage if shrinkage is None else float(shrinkage)
        blocks = [
            space.slices[block.name]
            for block in space.blocks
            if block.size > 1 and self.is_width(block.name) and block.scale == "log"
        ]
        return SpreadPenalty(blocks, kappa / n_rows) if blocks and kappa else None

    # 3. The training problems.

    def problems(self, parts: Assembly) -> list[Any]:
        """One problem for every sheet; sheets with the same features share their distances."""
        sheets, relatives = parts.sheets, parts.relatives
        K = len(sheets[0].rows.Y)
        targets = K * (K - 1) // 2 if self.multiclass == "ovo" and K > 1 else K
        total = targets * sum(len(sheet.splits) for sheet in sheets)
        alike = len(sheets) if all(sheet.X is sheets[0].X for sheet in sheets) else 1
        out: list[Any] = []
        for k, sheet in enumerate(sheets):
            alone = len(sheet.splits) == 1
            relative = None if relatives is None else relatives[k]
            own = self.fitted(sheet.X[sheet.splits[0][0]]) if alone else self
            problem = assemble_kernel(
                own,
                sheet.X,
                sheet.rows,
                sheet.splits,
                parts.space,
                dimensions=parts.dimensions,
                n_total=total,
                landmarks=None if parts.landmarks is None else parts.landmarks[k],
                relative=out[0] if out and alike > 1 else relative,
                n_alike=alike,
                numbers=sheet.index,
            )
            out.append(problem)
        return out

    def problem(self, parts: KernelParts) -> KernelProblem:
        """The training problems on one kernel matrix."""
        common = (parts.data, parts.gram, self.fit_intercept, parts.numbers)
        if not self.loss.polyhedral:
            return KernelProblem(*common)
        if not self.loss.classical:
            return StaircaseProblem(*common)
        return DualProblem(*common, original_of(self, parts))

    def landmarks(self, sheets: Sequence[Sheet], low_rank: bool | str) -> list[Array] | None:
        """Rows that see all others nearly, where few of them do."""
        smooth = not (self.loss.polyhedral or self.kernel.precomputed)
        return self.landmark_rule.choose(self.kernel, smooth, sheets, low_rank)

    # 4. Where a search starts.

    def starting_values(self, dimensions: Mapping[str, Dimension], facts: DataFacts) -> list[dict[str, Any]]:
        """A typical point and a few more to look at first."""
        return kernel_starts(self, dimensions, facts)

    def stages(
        self, dimensions: Mapping[str, Dimension], start: Mapping[str, Any], facts: DataFacts
    ) -> list[SearchStage]:
        """A sample of the rows, a smoothed loss, tied widths and a fixed tube come first."""
        return self.stage_rule.stages(self, dimensions, start, facts)

    def smoothed(self, band: float) -> KernelModel | None:
        """The model with the corners of its loss rounded on a narrow band; None for smooth losses."""
        loss = self.loss.smoothed(band)
        return None if loss is None else replace(self, loss=loss, chosen_solver="auto")

    def entries(self, facts: DataFacts) -> int:
        """Those of the kernel matrix, or of the features where they are more."""
        return max(facts.n_rows**2, super().entries(facts))

    def accuracy(self, facts: DataFacts, size: int) -> dict[str, Any]:
        """Coarser for exact machines, which also look around where they have few hyper-parameters."""
        if not self.loss.polyhedral:
            return {"tol": self.smooth_tol}
        return {"tol": self.exact_tol, **({"polls": self.polls} if size <= self.few else {})}

    # 5. What is said about the end.

    def flat_side(self, name: str) -> int:
        """Wide kernels are flat."""
        return -1 if self.is_width(name) else super().flat_side(name)

    def notes(self, facts: DataFacts) -> list[str]:
        """A tolerance of scikit-learn's SVR that is coarse for this target."""
        machine, spread = self.machine, facts.spread
        if machine is None or self.loss.task != "regression" or machine.tol <= self.coarse * spread:
            return []
        return [
            f"scikit-learn's SVR stops at errors of tol={machine.tol:g}, and the target varies by only {spread:.2g}: "
            f"its fit will be coarser than the search's. Set tol={1e-3 * spread:.0e}, or scale the target"
        ]

    @property
    def pairs_of_classes(self) -> bool:
        """Whether machines with several classes are made of one machine for every pair of them."""
        return self.multiclass == "ovo"

    @property
    def resumes(self) -> bool:
        """Smooth machines start from decisions near their solution."""
        return not self.loss.polyhedral

    @property
    def intercept_rule(self) -> str:
        """LIBSVM's for scikit-learn's machines."""
        if self.machine is None:
            return super().intercept_rule
        return "LIBSVM's own choice (the middle where it does not end)"
