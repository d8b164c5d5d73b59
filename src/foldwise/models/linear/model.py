"""Linear machines as optimisation problems: bounds, starts, training problems, solvers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from foldwise.bilevel import Bilevel
from foldwise.criteria import Criterion, JointLogistic
from foldwise.design import Design, is_wide, make_design
from foldwise.losses import Logistic, Loss, typical_curvature
from foldwise.models.base import Array, Assembly, DataFacts, Model, Role, Rows
from foldwise.models.binding import Layout, build_parameters, criterion_weights, make_cells
from foldwise.models.linear.starts import along_the_path, default_starts
from foldwise.penalties import Quadratic
from foldwise.problems.base import TaskData
from foldwise.problems.boxed import BoxedProblem
from foldwise.problems.folds import Folds
from foldwise.problems.linear import LinearProblem
from foldwise.problems.multinomial import MultinomialProblem
from foldwise.problems.parameters import BOX, ParameterMap
from foldwise.problems.polyhedral import PolyhedralProblem
from foldwise.problems.sparse import SparseProblem
from foldwise.problems.weights import WeightProblem
from foldwise.space import Dimension, Lin, Log, Space
from foldwise.splits import Splits

__all__ = ["LinearModel", "assemble"]


@dataclass(frozen=True)
class LinearModel(Model):
    """A linear model as an optimisation problem.

    Parameters
    ----------
    loss, roles, values, fit_intercept, class_weight, class_weight_rule, balances, criterion_weight, chosen_solver
        As in :class:`foldwise.models.base.Model`.
    intercept_penalty : float
        0 for a free intercept; ``1 / intercept_scaling^2`` for LIBLINEAR's penalised one.
    l1_ratio : float
        Share of the L1 norm in the penalty.
    reference : ndarray, shape (features,), optional
        Weights that the proximity term pulls to.
    constant : float
        A last feature with this value in every row; 0 for none.
    joint : bool
        Whether the classes of a logistic regression are trained together.
    averages : float
        Factor of the mean of the losses, where training minimises that instead of their sum; 0 for the sum.
    """

    loss: Loss
    roles: Mapping[str, Role]
    values: Mapping[str, Any]
    fit_intercept: bool = True
    intercept_penalty: float = 0.0
    class_weight: Any = None
    class_weight_rule: str = "row"
    balances: str = "weights"
    criterion_weight: Any = "auto"
    l1_ratio: float = 0.0
    reference: Array | None = None
    constant: float = 0.0
    averages: float = 0.0
    joint: bool = False
    chosen_solver: Any = "auto"

    rescales: ClassVar[bool] = True
    flat_tol: ClassVar[float] = 1e-5
    """Relative accuracy of the objective on wide data and with many hyper-parameters, where valleys are flat."""
    l1_floor: ClassVar[float] = 1.0
    l1_range: ClassVar[float] = 1e4
    """Where the useful strengths of an L1 norm begin, in units of the first at which a column may matter, and how far
    they reach."""

    def scales_inside(self, flags: tuple[bool, bool], X: Any) -> bool:
        """Dense columns are standardised by the penalty; a mean that is taken off needs an intercept."""
        return not sp.issparse(X) and not self.constant and (self.fit_intercept or not flags[0])

    def criterion(self, criterion: Loss | Criterion) -> Loss | Criterion:
        """Of classes that are trained together the logistic loss of all of them."""
        if not self.joint or (isinstance(criterion, Criterion) and criterion.loss is None):
            return criterion
        if isinstance(criterion, Logistic) and criterion.s == 1:
            return JointLogistic()
        raise ValueError(
            f"several classes are trained together, and {type(criterion).__name__} looks at one class against the "
            "rest; use criterion='auto' (the log loss of all classes), a Criterion of your own, or "
            "OneVsRestClassifier(LogisticRegression())"
        )

    def features(self, X: Any) -> Any:
        """``X``, with the constant column if there is one."""
        if not self.constant:
            return X
        column = np.full((X.shape[0], 1), self.constant)
        return sp.csr_array(sp.hstack([X, column])) if sp.issparse(X) else np.hstack([X, column])

    def share_of_row(self, mass: Array) -> Array:
        """The same; where training minimises a mean, its factor over the weight of the rows."""
        return self.averages / mass if self.averages else super().share_of_row(mass)

    def rescaled(self, params: Mapping[str, Any], factor: float) -> dict[str, Any]:
        """The same; of a mean of losses more rows change nothing."""
        return super().rescaled(params, 1.0 if self.averages else factor)

    def default_dimension(self, name: str, per: str | None, facts: DataFacts) -> Dimension:
        """Bounds from the data.

        At ``C = 1 / (curvature * second moment)`` a coefficient is shrunk by half. The lower bound lies three decades
        below that point for the largest column, the upper five above it for a small one. On wide data the rows are the
        nearly orthogonal ones: at ``C = 1 / (curvature * row moment)`` a row alone would have half its slack closed.
        The upper bound then lies three decades above that point.

        A box ends at five times the weight with which a column alone, of one standard deviation, moves the decision by
        the spread of the target. It is linear and begins at 0, where it deselects the feature. A reference weight may
        lie within the same bound on both sides.
        """
        role = self.roles[name]
        per = per if per is not None else "group" if facts.grouped and "group" in role.per else None
        if name == "class_weight":
            return Log(0.05, 20.0, per="class")
        if role.kind == "epsilon":
            return Lin(0.0, facts.spread, per=per)
        if role.kind in BOX or role.kind == "reference":
            widest = self._widest_weights(facts)
            none = np.zeros_like(widest)
            ends = {"box_lower": (-widest, none), "reference": (-widest, widest)}
            return Lin(*ends.get(role.kind, (none, widest)), per="feature")
        if role.kind == "log_near":
            return Log(1e-3, 1e3)
        if role.kind == "l1_ratio":
            return Lin(0.0, 1.0)
        sparse = self.l1_ratio or "l1_ratio" in self.roles
        strong, weak = self._strengths_with_l1(facts) if sparse else self._useful_strengths(facts)
        other = np.asarray(self.values.get("lam" if role.kind == "log_c" else "C", 1.0), float)
        scale = float(np.exp(np.mean(np.log(other)))) * (self.averages / facts.mass if self.averages else 1.0)
        if role.kind == "log_c":
            return Log(strong * scale, weak * scale, per=per)
        return Log(scale / (weak * role.factor), scale / (strong * role.factor), per=per)

    def _useful_strengths(self, facts: DataFacts) -> tuple[float, float]:
        """The smallest and the largest ``C`` that are worth a look."""
        moment = facts.second_moment
        positive = moment[moment > 0] if np.any(moment > 0) else np.ones(1)
        curvature = typical_curvature(self.loss, facts.spread)
        weak = 1e5 / (curvature * np.quantile(positive, 0.1))
        if facts.row_moment is not None and facts.row_moment > 0:
            weak = 1e3 / (curvature * facts.row_moment)
        return float(1e-3 / (curvature * positive.max())), float(weak)

    def _strengths_with_l1(self, facts: DataFacts) -> tuple[float, float]:
        """The same with an L1 norm: from where a column begins to matter, at the earliest, to 10,000 times that."""
        slope = typical_curvature(self.loss, facts.spread) * facts.spread * np.sqrt(facts.mass)
        longest = float(np.sqrt(facts.second_moment.max(initial=0.0)))
        first = self.l1_floor / max(slope * longest, np.finfo(float).tiny)
        return first, self.l1_range * first

    @staticmethod
    def _widest_weights(facts: DataFacts) -> Array:
        """Weights of every feature beyond which no box needs to reach."""
        deviation = np.sqrt(facts.second_moment / facts.mass)
        least = deviation[deviation > 0].min(initial=np.inf)
        out: Array = (
            5.0 * facts.spread / np.where(deviation > 0, deviation, least if np.isfinite(least) else 1.0)
        )
        return out

    def check_dimensions(self, dimensions: Mapping[str, Dimension]) -> None:
        """Refuse two-sided boxes whose sides may cross, and reference weights without a pull to them."""
        if {"box", "box_lower"} & set(dimensions):
            sides = {}
            for name, end, other in (("box_lower", "upper", -np.inf), ("box", "lower", np.inf)):
                fixed = self.values.get(name)
                fixed = other if fixed is None else fixed
                sides[name] = getattr(dimensions[name], end) if name in dimensions else fixed
            if np.any(np.asarray(sides["box_lower"], float) > np.asarray(sides["box"], float)):
                raise ValueError(
                    "box_lower may exceed box within their bounds; let the bounds of box_lower end where those of box "
                    "begin, such as Lin(-2, 0) and Lin(0, 2)"
                )
        if "reference" in dimensions and "proximity" not in dimensions and not self.values["proximity"]:
            raise ValueError(
                "reference acts through proximity, which is 0; tune it as well, or give the estimator a positive one"
            )

    def problems(self, parts: Assembly) -> list[Any]:
        """One problem for every sheet; there are no kernels to see through landmarks."""
        total = sum(len(sheet.splits) * len(sheet.rows.Y) for sheet in parts.sheets)
        return [
            assemble(
                self,
                sheet.X,
                sheet.rows,
                sheet.splits,
                parts.space,
                dimensions=parts.dimensions,
                standardize=sheet.standardize,
                n_total=total,
            )
            for sheet in parts.sheets
        ]

    def _is_boxed(self, parameters: ParameterMap) -> bool:
        """Whether weights have bounds, or are pulled to reference weights."""
        return parameters.bounded or "proximity" in self.roles

    def starting_points(
        self, bilevel: Bilevel, values: Sequence[Mapping[str, Any]], count: int | None = None
    ) -> list[Array]:
        """See :mod:`foldwise.models.linear.starts`; with boxes each costs a solution."""
        if not self.loss.polyhedral and (self.l1_ratio or "l1_ratio" in bilevel.space.slices):
            return along_the_path(bilevel, count)
        return default_starts(bilevel, count)

    def many_valleys(self, space: Space) -> bool:
        """With boxes, or with penalties of single features, several local minima are the rule."""
        kinds = {block.name: self.roles[block.name].kind for block in space.blocks}
        return any(kinds[b.name] in BOX or (kinds[b.name] == "log_lam" and b.size > 1) for b in space.blocks)

    def accuracy(self, facts: DataFacts, size: int) -> dict[str, Any]:
        """Fine, since evaluations are cheap: ``1e-3 / n`` between 1e-8 and 1e-5."""
        if is_wide(facts.X) or size > self.few:
            return {"tol": self.flat_tol}
        return {"tol": float(np.clip(1e-3 / max(facts.total, 1.0), 1e-8, self.flat_tol))}

    @property
    def suits_bundle(self) -> bool:
        """Exact machines have a piecewise smooth error."""
        return self.loss.polyhedral


def assemble(
    model: LinearModel,
    X: Any,
    rows: Rows,
    splits: Splits,
    space: Space,
    *,
    dimensions: Mapping[str, Dimension] | None = None,
    standardize: tuple[bool, bool] | None = None,
    n_total: int | None = None,
) -> WeightProblem:
    """The training problems of all splits (times classes) on one design.

    Parameters
    ----------
    standardize : (with_mean, with_std), optional
        Standardise columns by each split's own training rows, as a ``StandardScaler`` in a pipeline does; this is
        done by the penalty, not by a copy of X.
    n_total : int, optional
        Number of tasks over which the outer objective averages, when several problems share it.
    """
    dimensions = {} if dimensions is None else dimensions
    n, d = X.shape
    cells = make_cells(model, rows, dimensions, n)
    folds = Folds.build(n, splits, cells.row) if splits else Folds.whole(n, cells.row)
    order = folds.order
    identity = bool(np.all(order[1:] > order[:-1]))
    design = make_design(X, model.fit_intercept, None if identity else order)
    stored = rows if identity else rows.take(order)
    K = len(rows.Y)
    layout = Layout(K, folds.n_splits, d, cells, folds.n_cells)
    parameters = build_parameters(model, stored, folds, dimensions, space, layout)
    scale, form = _standardisation(design, folds, standardize, model.intercept_penalty > 0)
    penalty = Quadratic(
        np.tile(scale, (K, 1)),
        design.n_columns,
        None if form is None else np.tile(form, (K, 1)),
        model.intercept_penalty,
    )
    counts = criterion_weights(model, stored, folds, dimensions)
    data = TaskData(stored.Y, folds, model.loss, parameters, stored.weight, counts, n_total)
    if model.loss.polyhedral:
        fixed = None if "reference" in dimensions else model.reference
        return PolyhedralProblem(data, design, penalty, model.l1_ratio, fixed)
    if model.joint:
        return MultinomialProblem(data, design, penalty)
    if model.l1_ratio or "l1_ratio" in dimensions:
        return SparseProblem(data, design, penalty, model.reference)
    if model._is_boxed(parameters):
        return BoxedProblem(data, design, penalty, model.reference)
    return LinearProblem(data, design, penalty)


def _standardisation(
    design: Design, folds: Folds, standardize: tuple[bool, bool] | None, needs_form: bool
) -> tuple[Array, Array | None]:
    """Penalty scales of every split and, for a penalised intercept, its linear forms."""
    T, d = folds.n_splits, design.n_features
    sd, mu = np.ones((T, d)), np.zeros((T, d))
    if standardize is not None:
        with_mean, with_std = standardize
        for t in range(T):
            mean, variance = design.column_statistics(_training_rows(folds, t))
            if with_std:
                spread = np.sqrt(variance) * design.scale
                sd[t] = np.where(variance > 1e-20, spread, 1.0)
            if with_mean:
                mu[t] = design.shift + design.scale * mean
    scale = (sd / design.scale) ** 2
    if not needs_form:
        return scale, None
    return scale, np.column_stack([(mu - design.shift) / design.scale, np.ones(T)])


def _training_rows(folds: Folds, t: int) -> list[Any]:
    """The stored rows that train a split, with their repeats."""
    rows = folds.validation[t]
    if folds.partition and isinstance(rows, slice):
        return [slice(0, rows.start), slice(rows.stop, None)]
    return [np.repeat(np.arange(len(folds.order)), folds.count[t].astype(int))]
