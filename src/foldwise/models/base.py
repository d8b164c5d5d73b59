"""The contract between a search and a family of machines.

A model is a machine as an optimisation problem: it knows its hyper-parameters, what bounds and starting values follow
from the data, which cheaper searches come first, how its training problems are put together and what solves them. A
search knows nothing else of it, so that a family is added in one file (or folder) of this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from foldwise.bilevel import Bilevel
from foldwise.criteria import Criterion
from foldwise.losses import Loss
from foldwise.prior import Prior
from foldwise.solvers.registry import choose
from foldwise.space import Dimension, Space
from foldwise.splits import Splits

__all__ = ["Assembly", "DataFacts", "Model", "Role", "Rows", "SearchStage", "Sheet", "Target", "make_space"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Role:
    """What a hyper-parameter does: its kind and sign (see :class:`Binding`), a constant factor, what ``per`` allows."""

    kind: str
    factor: float = 1.0
    per: tuple[str | None, ...] = (None,)
    sign: float = 1.0


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known about the rows beside X: targets, weights, groups of samples, classes, columns of a basis."""

    Y: np.ndarray
    weight: np.ndarray | None = None
    group: np.ndarray | None = None
    group_labels: Sequence[Any] = ()
    label: np.ndarray | None = None
    class_labels: Sequence[Any] = ()
    basis: np.ndarray | None = None

    def take(self, index: np.ndarray) -> Rows:
        """These rows only."""

        def pick(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[index]

        return Rows(
            self.Y[:, index],
            pick(self.weight),
            pick(self.group),
            self.group_labels,
            pick(self.label),
            self.class_labels,
            pick(self.basis),
        )


@dataclass(frozen=True, eq=False)
class Target:
    """The way back from a transformed target.

    Attributes
    ----------
    inverse : callable(decisions) -> decisions in units of the user's target
    y : ndarray, shape (rows,)
        The user's target of every row of a sheet.
    unit : typical difference of two transformed targets
    """

    inverse: Callable[[Array], Array]
    y: Array
    unit: float


@dataclass(frozen=True, eq=False)
class Sheet:
    """One matrix of features and the folds that are cut from it.

    A search has one sheet where all folds see the same columns, and one for every fold where steps of a pipeline, or
    values that follow from the training rows, make them differ.

    Attributes
    ----------
    X : ndarray or sparse matrix, shape (rows, d)
    rows : what is known about these rows
    splits : pairs (training rows, validation rows) of row numbers in ``X``
    index : ndarray of int, shape (rows,)
        Numbers of the rows in the user's data.
    standardize : (with_mean, with_std), optional
        Columns are standardised by each fold's training rows, inside the training problems.
    target : Target, optional
        How decisions become targets of the user's, where training sees these transformed.
    """

    X: Any
    rows: Rows
    splits: Splits
    index: Array
    standardize: tuple[bool, bool] | None = None
    target: Target | None = None


@dataclass(frozen=True, eq=False)
class Assembly:
    """What the training problems of a program are put together from.

    Attributes
    ----------
    sheets : sequence of Sheet
    space : Space
    dimensions : mapping from hyper-parameter name to its bounds
    landmarks : sequence of ndarray of int, optional
        Row numbers through which each sheet's kernel is seen.
    relatives : sequence of Problem, optional
        Problems on the same sheets, with which costly parts may be shared.
    """

    sheets: Sequence[Sheet]
    space: Space
    dimensions: Mapping[str, Dimension]
    landmarks: Sequence[Array] | None = None
    relatives: Sequence[Any] | None = None


@dataclass(frozen=True, eq=False)
class DataFacts:
    """What bounds and starting values are derived from.

    Attributes
    ----------
    X : the features of the first sheet
    weight : weights of its rows, or None
    n_rows : number of the user's rows
    spread : standard deviation of the target
    second_moment : ndarray, shape (d,)
        Sum over a training set of each squared (centred, scaled) column.
    total : total weight of the rows
    mass : mean total weight of a training set
    row_moment : mean squared norm of a row, for wide data (:func:`foldwise.design.is_wide`); None otherwise
    grouped : whether there are groups of samples
    """

    X: Any
    weight: Array | None
    n_rows: int
    spread: float
    second_moment: Array
    total: float
    mass: float
    row_moment: float | None
    grouped: bool


@dataclass(frozen=True, eq=False)
class SearchStage:
    """A cheaper search that gives the next one its start.

    Attributes
    ----------
    name : what a result's details call it
    model, dimensions : what is tuned in it
    tol : relative accuracy of its objective
    real : whether it values the very machine that is tuned, so that its evaluations belong to the history
    inner_tol : accuracy of its training problems; None for that of the search
    sampled : whether it sees a few of the rows and folds only; it is left out where these cannot be sampled
    several : whether it runs from several starting points and not only from the best of them
    margin : of several points to run from, and of the ends of several runs, those are kept whose objective is larger
        than the lowest by at most this factor
    easiest : a hyper-parameter and +1 or -1: of the points that are nearly as good as the best, the next search starts
        from the one where this one is lowest or highest
    landmarks : whether it sees kernels through landmarks where the search does
    change : what it makes of every sheet before it begins
    """

    name: str
    model: Model
    dimensions: Mapping[str, Dimension]
    tol: float
    real: bool
    inner_tol: float | None = None
    sampled: bool = False
    several: bool = False
    margin: float = 1.1
    easiest: tuple[str, float] | None = None
    landmarks: bool = False
    change: Callable[[Sheet], Sheet] | None = None


class Model(ABC):
    """A machine as an optimisation problem. Families are frozen dataclasses that extend this.

    Attributes
    ----------
    loss : Loss
        What training minimises beside the penalty.
    roles : mapping from hyper-parameter name to Role
    values : mapping from hyper-parameter name to its fixed value
    fit_intercept : bool
    class_weight : None, "balanced" or dict
        Fixed weights of the classes; keys are class codes.
    class_weight_rule : {"row", "positive", "own"}
        "row": a row weighs as its class says in every one-vs-rest problem. "positive": only in the problem of its
        own class, as LIBLINEAR does with more than two classes. "own": balanced weights balance the two sides of every
        problem, as machines inside a OneVsRestClassifier do.
    balances : {"weights", "rows"}
        What "balanced" weights make equal among the classes: their total sample weight, or their number of rows.
    criterion_weight : "auto", "balanced", dict or None
        Weights of the classes in the criterion, as ``class_weight`` in the loss; "auto" takes those, where fixed.
    chosen_solver : str or Solver
        What solves the training problems: see :mod:`foldwise.solvers.registry`.
    rescales : bool
        Whether the final fit, which sees more rows than a fold, has its regularisation rescaled by default.
    resumes : bool
        Whether the final fit can start from the decisions of the folds.
    pairs_of_classes : bool
        Whether several classes are told apart pair by pair.
    suits_bundle : bool
        Whether the bundle method follows its kinks better than others do.
    warns_if_flat : bool
        Whether an end where all decisions are the same is worth a warning.
    intercept_rule : str
        Which intercept is taken where it is not unique.
    """

    loss: Loss
    roles: Mapping[str, Role]
    values: Mapping[str, Any]
    fit_intercept: bool
    class_weight: Any
    class_weight_rule: str
    balances: str
    criterion_weight: Any
    chosen_solver: Any
    rescales: ClassVar[bool] = False
    warns_if_flat: ClassVar[bool] = False
    few: ClassVar[int] = 4
    """With at most this many hyper-parameters a look at a few points chooses the start; with more, two starts run."""

    def with_criterion_weight(self, weight: Any) -> Model:
        """The model with weights of the classes in the criterion."""
        changed: Model = replace(self, criterion_weight=weight)  # type: ignore[type-var]
        return changed

    # 1. The data: what the model makes of rows and columns before folds are cut.

    def check_steps(self) -> None:  # noqa: B027 (most families have nothing to refuse)
        """Refuse to stand behind other steps of a pipeline."""

    def scales_inside(self, flags: tuple[bool, bool], X: Any) -> bool:
        """Whether a StandardScaler with these flags can act through the training problems instead of on ``X``."""
        return False

    def with_rows(self, rows: Rows) -> Rows:
        """The rows with what the model itself brings about them."""
        return rows

    def with_names(self, X: Any, names: Sequence[str] | None) -> Any:
        """``X`` as earlier steps are to see it: under the names of its columns where the model will ask for them."""
        return X

    def named(self, names: Sequence[str] | None) -> Model:
        """The model for columns with these names."""
        return self

    def features(self, X: Any) -> Any:
        """``X`` as the training problems take it."""
        return X

    def shares_sheet(self, tuned: Collection[str]) -> bool:
        """Whether all folds see the same features and fixed values where these hyper-parameters are tuned."""
        return True

    def criterion(self, criterion: Loss | Criterion) -> Loss | Criterion:
        """What is minimised where this was asked for."""
        return criterion

    def share_of_row(self, mass: Array) -> Array:
        """Factor of the loss of every split, whose training rows have this total weight: 1 for a sum of losses."""
        return np.ones(len(mass))

    # 2. What is tuned: sizes, bounds, penalties on theta.

    def is_width(self, name: str) -> bool:
        """Whether a hyper-parameter makes a kernel narrower as it grows."""
        return False

    def sizes(self, d: int) -> dict[str, int]:
        """Number of values of hyper-parameters that have a size of their own on ``d`` columns."""
        return {}

    @abstractmethod
    def default_dimension(self, name: str, per: str | None, facts: DataFacts) -> Dimension:
        """Bounds from the data for a hyper-parameter; ``per`` is what the user says about it, or None."""

    def check_dimensions(self, dimensions: Mapping[str, Dimension]) -> None:  # noqa: B027 (the same)
        """Refuse what cannot be tuned together."""

    def prior(self, space: Space, n_rows: int, shrinkage: float | None) -> Prior | None:
        """What is added to the criterion; ``shrinkage`` is the strength that the user asks for, None for the usual."""
        return None

    def centre(self, dimensions: Mapping[str, Dimension], facts: DataFacts) -> dict[str, Any]:
        """Values by name that are moderate on these data: the middle of the bounds that follow from them."""
        out = {}
        for name, dimension in dimensions.items():
            usual = self.default_dimension(name, dimension.per, facts)
            low, high = np.asarray(usual.lower, float), np.asarray(usual.upper, float)
            out[name] = np.sqrt(low * high) if usual.scale == "log" else 0.5 * (low + high)
        return out

    # 3. The training problems.

    @abstractmethod
    def problems(self, parts: Assembly) -> list[Any]:
        """The training problems of every sheet."""

    def solver(self, problem: Any, tol: float, max_iter: int | None = None) -> Any:
        """What solves them: the solver that was chosen, or what is usual for such problems.

        A chosen one that needs what these do not offer is refused.
        """
        return choose(self.chosen_solver, problem, tol, max_iter)

    def landmarks(self, sheets: Sequence[Sheet], low_rank: bool | str) -> list[Array] | None:
        """Rows through which kernels are seen during a search, for every sheet; None for no approximation."""
        return None

    # 4. Where a search starts.

    def starting_values(self, dimensions: Mapping[str, Dimension], facts: DataFacts) -> list[dict[str, Any]]:
        """Values by name that are worth a start, the best reason first."""
        return []

    def starting_points(
        self, bilevel: Bilevel, values: Sequence[Mapping[str, Any]], count: int | None = None
    ) -> list[Array]:
        """The points of a program that are worth a start or a look, at most ``count`` of them."""
        return [self.point(bilevel.space, one) for one in values[:count]]

    def stages(
        self, dimensions: Mapping[str, Dimension], start: Mapping[str, Any], facts: DataFacts
    ) -> list[SearchStage]:
        """Cheaper searches that come first; what they hold fixed they hold at ``start``."""
        return []

    def many_valleys(self, space: Space) -> bool:
        """Whether several local minima are the rule, so that several starts are worth more than one look around."""
        return False

    def point(self, space: Space, values: Mapping[str, Any]) -> Array:
        """The point of a space with these values; names that it does not have are left out.

        Tubes that are not named are a tenth of their widest.
        """
        tubes = {
            block.name: 0.1 * float(np.mean(block.upper))
            for block in space.blocks
            if self.roles[block.name].kind == "epsilon"
        }
        named = {name: value for name, value in values.items() if name in space.slices}
        return np.asarray(space.theta({**tubes, **named}))

    def entries(self, facts: DataFacts) -> int:
        """Entries of the largest matrix that its training problems work on."""
        return facts.n_rows * int(facts.X.shape[1])

    @abstractmethod
    def accuracy(self, facts: DataFacts, size: int) -> dict[str, Any]:
        """Options of a method whose ``tol``, the relative accuracy of the objective, depends on the model.

        ``size`` is the number of hyper-parameters.
        """

    # 5. The end: what the final fit takes from it, and what is said about it.

    def rescaled(self, params: Mapping[str, Any], factor: float) -> dict[str, Any]:
        """Parameters for a model trained on ``factor`` times the rows of a fold (kunapuli2008, section 2)."""
        out = {}
        for name, value in params.items():
            role = self.roles[name]
            powers = {"log_c": -role.sign, "log_lam": role.sign, "log_near": role.sign}
            out[name] = value if name == "class_weight" else value * factor ** powers.get(role.kind, 0.0)
        return out

    def flat_side(self, name: str) -> int:
        """The end of a hyper-parameter's bounds where the model is nearly constant: +1, -1, or 0 for neither."""
        role = self.roles[name]
        sides = {"epsilon": 1.0, "log_c": -role.sign, "log_lam": role.sign}
        return int(sides.get(role.kind, 0.0))

    def flattest(self, space: Space) -> Array:
        """The point of the space where the model is as nearly constant as it can be."""
        theta: Array = 0.5 * (space.lower + space.upper)
        for block in space.blocks:
            part, side = space.slices[block.name], self.flat_side(block.name)
            if side:
                theta[part] = (space.upper if side > 0 else space.lower)[part]
        return theta

    def notes(self, facts: DataFacts) -> list[str]:
        """What a user should know before the search."""
        return []

    @property
    def pairs_of_classes(self) -> bool:
        """Whether machines with several classes are made of one machine for every pair of them."""
        return False

    @property
    def suits_bundle(self) -> bool:
        """Whether the bundle method follows its kinks better than others do."""
        return False

    @property
    def resumes(self) -> bool:
        """Whether the final fit can start from the decisions of the folds."""
        return False

    @property
    def intercept_rule(self) -> str:
        """Which intercept is taken where it is not unique."""
        return "the middle of its interval"


def make_space(
    dimensions: Mapping[str, Dimension],
    rows: Rows,
    feature_names: Sequence[Any],
    more: Mapping[str, Sequence[Any]] | None = None,
) -> Space:
    """The space with the sizes of these rows and features; ``more`` names entries of single hyper-parameters."""
    labels: dict[str, Sequence[Any]] = {"feature": feature_names, **(more or {})}
    if rows.group is not None:
        labels["group"] = rows.group_labels
        by_class = [name for name, dim in dimensions.items() if dim.per == "class" and name != "class_weight"]
        if by_class:
            raise ValueError(
                f"{by_class[0]!r} is to be tuned per class, and fit was given sample_groups: a machine takes one value "
                "per class or one per group, not both. Use per='group', or leave sample_groups out"
            )
    if len(rows.Y) > 1:
        labels["class"] = rows.class_labels
    if "class_weight" in dimensions:
        labels["class_weight"] = list(rows.class_labels)[1:]
    return Space.build(dimensions, labels)
