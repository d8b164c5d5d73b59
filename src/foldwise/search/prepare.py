"""From an estimator, data and folds to the bilevel program of their cross-validation, and where to start on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.svm import SVR
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_array

from foldwise.basis import framed
from foldwise.bilevel import Bilevel, Evaluation
from foldwise.bounds import check_size, check_varies, dimensions_of, read_space
from foldwise.criteria import Criterion
from foldwise.estimators.adapters import Tunable
from foldwise.estimators.adapters.kernel import as_often, kernel_start, slot_sizes
from foldwise.estimators.kernel import kernel_solver
from foldwise.estimators.linear import linear_solver
from foldwise.losses import (
    EpsilonInsensitive,
    Hinge,
    Loss,
    Misclassification,
    QuarticHinge,
    SmoothedEpsilonInsensitive,
)
from foldwise.models.base import Rows, make_space
from foldwise.models.kernel import KernelModel, SemiparametricModel, assemble_kernel, dense_rows
from foldwise.models.linear import assemble
from foldwise.optimizers.base import plain_params
from foldwise.optimizers.starts import default_starts
from foldwise.problems.gram import choose_landmarks
from foldwise.search.plan import SAMPLE_FROM, Prelude, Stage, choose_sample, decisions_by_row, play
from foldwise.solvers.bordered import ExactSemiparametric
from foldwise.space import Dimension, Space
from foldwise.splits import Splits

__all__ = ["Program", "build_program"]


@dataclass(eq=False)
class Program:
    """A bilevel program and what its start depends on.

    ``stages`` are cheaper searches that come first; ``index`` has the user's row numbers of every design's rows.
    ``exact`` builds the program without landmarks, when ``bilevel`` uses them. ``end`` is where the search ended.
    """

    bilevel: Bilevel
    model: Any
    X: Any
    index: list[np.ndarray]
    n_rows: int
    stages: list[Stage] = field(default_factory=list)
    exact: Callable[[], Bilevel] | None = None
    end: Evaluation | None = None
    notes: list[str] = field(default_factory=list)
    _values: dict[str, Any] = field(default_factory=dict)
    _candidates: list[dict[str, Any]] = field(default_factory=list)

    def starts(
        self, reasoned: Sequence[np.ndarray], count: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Starting points: first the ones with a reason, then random ones."""
        space = self.bilevel.space
        out = list(reasoned[:count])
        while len(out) < count:
            out.append(rng.uniform(space.lower, space.upper))
        return out

    def candidates(self, space: Space, count: int | None = None) -> list[np.ndarray]:
        """Points with a reason to start from or to look at: all of them, or the first ``count``.

        With boxes each costs a solution of the training problems.
        """
        if not isinstance(self.model, KernelModel):
            return default_starts(self.bilevel, count)
        return [self.theta(space, values) for values in self.values()[:count]]

    def values(self) -> list[dict[str, Any]]:
        """The same for a kernel machine, by name."""
        return [self._values, *self._candidates]

    def theta(self, space: Space, values: Mapping[str, Any]) -> np.ndarray:
        """The point of a space with these values; names that it does not have are left out."""
        kinds = self.bilevel.problems[0].parameters.kinds
        tubes = {
            name: 0.1 * float(np.mean(b.upper)) for b in space.blocks if kinds[(name := b.name)] == "epsilon"
        }
        return space.theta(
            {**tubes, **{name: value for name, value in values.items() if name in space.slices}}
        )

    def play(
        self, real_only: bool, limits: Mapping[str, Any], kept: Callable[[Bilevel, str], Bilevel]
    ) -> Prelude:
        """Run the stages: all of them, or only those that value the very machine that is tuned.

        ``kept`` gives a stage's program as it is run, by its name.
        """
        stages = [stage for stage in self.stages if stage.real or not real_only]
        if not stages:
            return Prelude()
        prelude = play(stages, self.values(), self.theta, self.n_rows, limits, kept)
        # Evaluations of a stage belong to the history with the values that it held fixed.
        space = self.bilevel.space
        held = plain_params(space.params(self.theta(space, self._values)))
        prelude.results = [
            replace(result, history=[replace(r, params={**held, **r.params}) for r in result.history])
            for result in prelude.results
        ]
        return prelude

    def without_landmarks(self) -> Bilevel:
        """The program on whole kernel matrices; one that has no landmarks is itself."""
        return self.bilevel if self.exact is None else self.exact()

    def constant_error(self, end: Evaluation | None) -> float | None:
        """The error of predicting the mean target everywhere; None for classes and for models without a constant."""
        problems, loss = self.bilevel.problems, self.bilevel.criterion.loss
        fits = getattr(self.model, "fit_intercept", True)
        if end is None or loss is None or not fits or self.model.loss.task != "regression":
            return None
        total = 0.0
        for problem, point in zip(problems, end.points, strict=True):
            for m, _, z, y, v in problem.validation(point):
                level = np.full(len(z), float(np.mean(problem.Y[problem.target[m]])))
                total += float(v @ loss.value(level, y))
        return total

    def flattest(self) -> np.ndarray:
        """The point of the space where the model is as nearly constant as it can be."""
        space, kinds = self.bilevel.space, self.bilevel.problems[0].parameters.kinds
        theta = 0.5 * (space.lower + space.upper)
        for block in space.blocks:
            part, kind = space.slices[block.name], kinds[block.name]
            sign = self.model.roles[block.name].sign
            if kind == "epsilon" or (kind == "log_c" and sign < 0) or (kind == "log_lam" and sign > 0):
                theta[part] = space.upper[part]
            elif kind in ("log_c", "log_lam") or (
                isinstance(self.model, KernelModel) and self.model.is_width(block.name)
            ):
                theta[part] = space.lower[part]
        return theta

    def warnings(self) -> list[str]:
        """What a user should know about the data and about where the search ended."""
        if self.end is None:
            return self.notes
        return [*self.notes, *self._flat_decisions(), *self._flat_intercepts(), *self._on_the_boundary()]

    def _on_the_boundary(self) -> list[str]:
        """Of a criterion that jumps where decisions change their sign: rows whose sign is a matter of rounding."""
        assert self.end is not None
        if not isinstance(self.bilevel.criterion.loss, Misclassification):
            return []
        count, share = 0, 0.0
        for problem, point in zip(self.bilevel.problems, self.end.points, strict=True):
            for _, _, z, _, v in problem.validation(point):
                there = np.abs(z) <= ON_BOUNDARY * np.abs(z).max(initial=0.0)
                count, share = count + int(there.sum()), share + float(v[there].sum())
        if not count:
            return []
        return [
            f"{count} validation rows lie on the decision boundary but for rounding, and count as the class that their "
            f"rounding gives: the error of the same machines, fitted anew, may differ by up to {share:.4g}"
        ]

    def _flat_intercepts(self) -> list[str]:
        assert self.end is not None
        pairs = list(zip(self.bilevel.problems, self.end.points, strict=True))
        count = sum(problem.flat_intercepts(point) for problem, point in pairs)
        if not count:
            return []
        total, original = sum(problem.n_tasks for problem, _ in pairs), getattr(self.model, "machine", None)
        rule = (
            "LIBSVM's own choice (the middle where it does not end)"
            if original is not None
            else "the middle of its interval"
        )
        return [
            f"in {count} of {total} training problems the intercept is not unique at the selected values (every row is "
            f"at a bound of its dual variable, or on a straight piece of the loss): {rule} is taken, and the error "
            "depends on it. A larger C, or bounds that begin higher, make it unique"
        ]

    def _flat_decisions(self) -> list[str]:
        if self.end is None or not isinstance(self.model, KernelModel):
            return []
        problems = zip(self.bilevel.problems, self.end.points, strict=True)
        for problem, point in problems:
            scale = max(float(np.std(problem.Y)), np.finfo(float).tiny)
            if any(float(np.ptp(z)) > FLAT * scale for _, _, z, _, _ in problem.validation(point)):
                return []
        return [
            "at the selected values the model predicts the same for all validation rows, where the gradient vanishes: "
            "the kernel is too narrow or the regularisation too strong. Start elsewhere (method_options={'start': "
            "...}), narrow the bounds, or check that the features are scaled"
        ]

    def decisions(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Decisions on the user's rows and intercepts, averaged over the folds, at the best point of the search.

        None before any evaluation, and for machines that cannot start from them.
        """
        best = self.end
        if best is None or not isinstance(self.model, KernelModel) or self.model.loss.polyhedral:
            return None
        return decisions_by_row(self.bilevel, best, self.index, self.n_rows)


def build_program(
    tunable: Tunable,
    X: Any,
    rows: Rows,
    classes: np.ndarray | None,
    splits: Splits,
    criterion: Loss | Criterion,
    spec: Any,
    feature_names: Sequence[str] | None,
    shrinkage: float | None,
    low_rank: bool | str = "auto",
    criterion_weight: Any = "auto",
) -> Program:
    """The bilevel program of these folds.

    ``spec`` is the user's space (or None); ``shrinkage`` the strength of the penalty on the spread of per-feature
    kernel widths (None: the default); ``low_rank`` whether kernels may be seen through landmarks;
    ``criterion_weight`` the weights of the classes in the criterion, by code.
    """
    tunable = tunable.named(feature_names)
    build = lambda d: replace(tunable.build(classes, d), criterion_weight=criterion_weight)  # noqa: E731
    how = tunable.standardize()
    spec = read_space(tunable, spec)
    tunable.rehearse(spec, classes, how is None and sp.issparse(X))
    probe = build(_width(X))
    kernel = isinstance(probe, KernelModel)
    semiparametric = isinstance(probe, SemiparametricModel)
    if kernel and probe.kernel.precomputed and how is not None:
        raise ValueError(
            "a precomputed kernel has rows and columns of the same samples, which earlier steps of a pipeline would "
            "transform apart; compute the matrix of transformed rows, or use a kernel of the features"
        )
    if isinstance(probe, SemiparametricModel):
        rows = probe.with_basis(rows)
    if isinstance(how, tuple) and (kernel or sp.issparse(X) or (how[0] and not probe.fit_intercept)):
        how = "general"  # the shortcut for a StandardScaler needs dense rows and a linear model with an intercept
    folds, frames = None, feature_names
    if how == "general":
        frame = framed(X, feature_names) if isinstance(X, np.ndarray) and semiparametric else X
        folds, feature_names, frames = _transform(tunable, frame, rows, splits)
    if kernel and folds is not None:
        folds = [(dense_rows(part, probe.memory_limit), *rest) for part, *rest in folds]
    elif kernel:
        X = dense_rows(X, probe.memory_limit)
    first = X if folds is None else folds[0][0]
    check_varies(first)
    if probe.loss.task == "regression":
        check_size(rows.Y)
    d = first.shape[1]
    model = build(d) if d != _width(X) else probe
    if isinstance(model, SemiparametricModel):
        model = replace(model, names=frames)
    dimensions, spread = dimensions_of(model, first, rows, splits, how, spec)
    alone = kernel and folds is None and not model.shares(dimensions)
    if alone:
        folds = [(X, rows, split) for split in splits]
    names = (
        feature_names
        if feature_names is not None and len(feature_names) == d
        else [f"x{i}" for i in range(d)]
    )

    marks = _landmarks(model, X, folds, low_rank) if kernel else None
    n = len(rows.Y[0])
    index = [np.arange(n)] * (len(splits) if alone else 1)
    if how == "general":
        index = [np.concatenate(split) for split in splits]

    def bilevel(
        dims: Mapping[str, Dimension],
        marks: list | None,
        model=model,
        like=None,
        tol: float = 1e-9,
        rows=rows,
        folds=folds,
    ) -> Bilevel:
        space = make_space(dims, rows, names, _labels(model, d, names))
        if not kernel:
            problems = _linear_problems(model, X, rows, splits, folds, space, dims, how)
            return Bilevel(
                problems, criterion, space, linear_solver(problems[0], min(1e-9, _own_tol(tunable)))
            )
        problems = _kernel_problems(model, X, rows, splits, folds, space, dims, marks, like)
        for problem, numbers in zip(problems, index, strict=True):
            problem.rows = numbers[problem.folds.order]
        prior = _spread_penalty(model, space, dims, len(rows.Y[0]), shrinkage)
        exact = isinstance(model, SemiparametricModel)
        solver: Any = ExactSemiparametric() if exact else kernel_solver(model.loss, tol, 100)
        return Bilevel(problems, criterion, space, solver, prior)

    program = Program(bilevel(dimensions, marks), model, first, index, n)
    if marks is not None:
        program.exact = lambda: bilevel(dimensions, None)
    if isinstance(tunable.estimator, SVR) and tunable.estimator.tol > COARSE * spread:
        program.notes.append(
            f"scikit-learn's SVR stops at errors of tol={tunable.estimator.tol:g}, and the target varies by only "
            f"{spread:.2g}: its fit will be coarser than the search's. Set tol={1e-3 * spread:.0e}, or scale the target"
        )
    if kernel:
        often = as_often(first, (rows if folds is None else folds[0][1]).weight, model)
        program._values, program._candidates = kernel_start(model, often, dimensions, spread)
        narrow = _narrow(model, dimensions, d)
        # What a stage holds fixed it holds at the starting value, within the bounds.
        fixed = {name: program._values[name] for name in dimensions if name not in narrow}
        held = replace(model, values={**model.values, **fixed})
        smoothed = _smoothed(held, spread)
        tube = smoothed is not None and model.loss.task == "regression"
        few_rows = n < (SCOUT_ROWS if tube else SAMPLE_FROM)
        plain = not (semiparametric or model.kernel.precomputed or (tube and few_rows))
        if plain and (found := choose_sample(rows, splits, n)) is not None:
            chosen, few = found

            def sample() -> Bilevel:
                return _sample_program(
                    tunable, X, rows, chosen, few, how, names, narrow, criterion, smoothed or held
                )

            parts = [chosen] * (len(few) if alone else 1)
            if how == "general":
                parts = [chosen[np.concatenate(split)] for split in few]
            # A first solution is dear where C is large.
            strength = [n for n in narrow if model.roles[n].kind == "log_c" and n != "class_weight"]
            easy = (strength[0], model.roles[strength[0]].sign) if strength else None
            program.stages.append(Stage("sample", sample, parts, SAMPLE_TOL, False, easy=easy))
        own = program.bilevel.problems
        if smoothed is not None:
            rest = rows, folds
            if isinstance(model, SemiparametricModel):
                rest = _without_basis(model, X, rows, folds)
            smooth = lambda: bilevel(narrow, None, smoothed, own, ROUGH, *rest)  # noqa: E731
            if few_rows or semiparametric:
                program.stages.append(Stage("scout", smooth, index, SAMPLE_TOL, False, several=True))
            program.stages.append(Stage("smooth", smooth, index, SMOOTH_TOL, False))
        elif narrow != dimensions:
            # A free tube is not to end above a fixed one: this stage is as accurate as the search with that.
            tol = 1e-4 if model.loss.smooth and len(narrow) < len(dimensions) else STAGE_TOL
            program.stages.append(
                Stage("narrow", lambda: bilevel(narrow, marks, held, own), index, tol, True)
            )
    return program


SAMPLE_TOL, SMOOTH_TOL, STAGE_TOL = 1e-2, 3e-3, 1e-3
"""Relative accuracy of the objective in stages before the search: where it looks for the valley, and after."""
ROUGH = 1e-4
"""Accuracy of training problems in stages that do not value the very machine that is tuned."""
COARSE = 0.03
"""Tolerance of scikit-learn's SVR, in units of the target's spread, above which its fit is called coarse."""
FLAT = 1e-3
"""Spread of a fold's validation decisions, in units of the target's, below which they are called the same."""
SCOUT_ROWS = 1_000
"""Up to this many rows an exact machine with a tube is scouted on all of them: valleys of a sample are others."""
ON_BOUNDARY = 1e-9
"""Decisions below this share of a fold's largest are zero but for rounding."""
BAND = 0.1
"""Half width of the band on which the hinge is smoothed for a first search."""


def _narrow(model: KernelModel, dimensions: Mapping[str, Dimension], d: int) -> dict[str, Dimension]:
    """The dimensions with the widths of all features tied and, where something else is tuned, with a fixed tube."""
    sizes = slot_sizes(model, d)
    tied = {
        name: replace(dim, tie=[0] * sizes[name]) if sizes.get(name, 1) > 1 and model.is_width(name) else dim
        for name, dim in dimensions.items()
    }
    if model.loss.polyhedral:
        return tied  # where a fixed tube ends, kinks would hold a free one
    rest = {name: dim for name, dim in tied.items() if model.roles[name].kind != "epsilon"}
    return rest or tied


def _smoothed(model: KernelModel, spread: float) -> KernelModel | None:
    """The model with the corners of its loss rounded on a narrow band; None for smooth losses."""
    if isinstance(model.loss, Hinge):
        return replace(model, loss=QuarticHinge(epsilon=BAND))
    if not isinstance(model.loss, EpsilonInsensitive):
        return None
    loss = SmoothedEpsilonInsensitive(band=BAND * spread)
    if not isinstance(model, SemiparametricModel):
        return replace(model, loss=loss)
    plain = {f.name: getattr(model, f.name) for f in fields(KernelModel)}
    return KernelModel(**{**plain, "loss": loss, "fit_intercept": True})


def _without_basis(model: SemiparametricModel, X, rows: Rows, folds: list | None) -> tuple[Rows, list | None]:
    """The rows, and those of every fold, with targets from which a least-squares fit of the basis was taken."""

    def rest(part, own: Rows) -> Rows:
        dense = np.asarray(part.toarray() if sp.issparse(part) else part, float)
        every = np.arange(len(dense))
        Psi = np.column_stack([model.psi(dense, own, every, every[:0]), np.ones(len(dense))])
        if np.ptp(Psi, axis=0).max() <= 0:  # constants only, which the intercept stands for
            return own
        return replace(own, Y=own.Y - (Psi @ np.linalg.lstsq(Psi, own.Y.T, rcond=None)[0]).T)

    if folds is None:
        return rest(X, rows), None
    return rows, [(part, rest(part, own), split) for part, own, split in folds]


def _sample_program(
    tunable, X, rows: Rows, chosen, splits: Splits, how, names, dimensions, criterion, model: KernelModel
) -> Bilevel:
    """The program of a few rows and folds."""
    part, own = _safe_indexing(X, chosen), rows.take(chosen)
    folds = None
    if how == "general":
        folds = _transform(tunable, part, own, splits)[0]
    elif not model.shares(dimensions):
        folds = [(part, own, split) for split in splits]
    space = make_space(dimensions, own, names, _labels(model, len(names), names))
    problems = _kernel_problems(model, part, own, splits, folds, space, dimensions, None)
    return Bilevel(problems, criterion, space, kernel_solver(model.loss, ROUGH, 100))


def _own_tol(tunable: Tunable) -> float:
    """The tolerance of our own estimators, where finer than the search's; scikit-learn's mean something else."""
    return float(getattr(tunable.estimator, "tol", np.inf)) if tunable.ours else np.inf


def _width(X: Any) -> int:
    return X.shape[1] if hasattr(X, "shape") and len(X.shape) == 2 else 1


def _labels(model: Any, d: int, names: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Names of the entries of kernel hyper-parameters with several values."""
    if not isinstance(model, KernelModel):
        return {}
    sizes = slot_sizes(model, d)
    return {name: names if size == d else range(size) for name, size in sizes.items() if size > 1}


def _linear_problems(model, X, rows, splits, folds, space, dimensions, how) -> list:
    if folds is None:
        flags = how if isinstance(how, tuple) else None
        return [assemble(model, X, rows, splits, space, dimensions=dimensions, standardize=flags)]
    total = len(splits) * len(rows.Y)
    return [
        assemble(model, part, part_rows, [split], space, dimensions=dimensions, n_total=total)
        for part, part_rows, split in folds
    ]


def _kernel_problems(model: KernelModel, X, rows, splits, folds, space, dimensions, marks, like=None) -> list:
    count = 1 if folds is None else len(folds)
    marks, like = [None] * count if marks is None else marks, like or [None] * count
    if folds is None:
        options = {"dimensions": dimensions, "landmarks": marks[0], "like": like[0]}
        return [assemble_kernel(model, X, rows, splits, space, **options)]
    K = len(rows.Y)
    targets = K * (K - 1) // 2 if model.multiclass == "ovo" and K > 1 else K
    options = {"dimensions": dimensions, "n_total": len(splits) * targets}
    same = len(folds) if all(part is X for part, _, _ in folds) else 1
    out: list = []
    for (part, part_rows, split), mark, other in zip(folds, marks, like, strict=True):
        own = model.fitted(part[split[0]])
        other = out[0] if out and same > 1 else other
        out.append(
            assemble_kernel(
                own, part, part_rows, [split], space, landmarks=mark, like=other, n_alike=same, **options
            )
        )
    return out


LOW_RANK_ROWS = 1_500
LOW_RANK_TOL = 1e-3
"""Landmarks are tried from this many rows on, and must leave less than this share of any row unseen."""


def _landmarks(model: KernelModel, X: Any, folds: list | None, low_rank: bool | str) -> list | None:
    """Landmark rows for every design, or None when the kernel matrix is to be formed in full.

    They are chosen for kernels twice as narrow as where a search starts, so that they serve on its way.
    """
    designs = [X] if folds is None else [part for part, _, _ in folds]
    n = designs[0].shape[0]
    possible = not (model.loss.polyhedral or model.kernel.precomputed)
    if low_rank is False or not possible or (low_rank == "auto" and n < LOW_RANK_ROWS):
        if low_rank is True:
            raise ValueError(
                "low_rank=True needs a smooth loss and a kernel that is not precomputed; use 'auto'"
            )
        return None
    limit = min(n // 2, 1_000) if low_rank is True else min(n // 10, 400)
    out = []
    for design in designs:
        dense = np.asarray(design, float)
        kinds = model.kernel.kinds()
        narrow = {
            name: 2.0 * value if kinds[name] == "width" else value
            for name, value in model.kernel.typical(dense).items()
        }
        size = {name: values.size for name, values in model.kernel.parameters(dense.shape[1]).items()}
        widened = {
            name: np.full(size[name], value) if size[name] > 1 else value for name, value in narrow.items()
        }
        rows, unseen = choose_landmarks(model.kernel.with_parameters(widened), dense, LOW_RANK_TOL, limit)
        if unseen > LOW_RANK_TOL and low_rank == "auto":
            return None
        out.append(rows)
    return out


def _transform(tunable: Tunable, X, rows: Rows, splits: Splits) -> tuple[list, Any, Any]:
    """The earlier steps fitted on each split's training rows and applied to all its rows; the columns' names.

    The names come twice, the second time only where the steps give data frames.
    """
    y = rows.Y[0] if rows.label is None else np.asarray(rows.class_labels)[rows.label]
    out = []
    for train, validation in splits:
        steps: Any = clone(tunable.steps)
        head = steps.fit_transform(_safe_indexing(X, train), y[train])
        tail = steps.transform(_safe_indexing(X, validation))
        stacked = (
            sp.vstack([head, tail]).tocsr()
            if sp.issparse(head)
            else np.vstack([np.asarray(head), np.asarray(tail)])
        )
        part = check_array(stacked, accept_sparse="csr", dtype=float)
        index = np.concatenate([train, validation])
        split = np.arange(len(train)), np.arange(len(train), len(index))
        out.append((part, rows.take(index), split))
    widths = {part.shape[1] for part, _, _ in out}
    if len(widths) > 1:
        raise ValueError(
            f"the pipeline gives {sorted(widths)} columns in different folds; it must give the same"
        )
    try:
        names = steps.get_feature_names_out()
    except (AttributeError, ValueError):  # a step that does not name its columns
        names = None
    return out, names, [str(name) for name in head.columns] if hasattr(head, "columns") else None


SHRINKAGE = 0.5
"""Default strength of the penalty on the spread of per-feature widths."""


def _spread_penalty(
    model: KernelModel, space: Space, dimensions: Mapping[str, Dimension], n: int, strength: float | None
):
    """``kappa / (2 n) ||log gamma - mean||^2`` for every block of several widths; None when there is none."""
    kappa = SHRINKAGE if strength is None else float(strength)
    blocks = [
        space.slices[block.name]
        for block in space.blocks
        if block.size > 1 and model.is_width(block.name) and dimensions[block.name].scale == "log"
    ]
    if not blocks or kappa == 0:
        return None

    def prior(theta: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        value, gradient, hessian = 0.0, np.zeros(len(theta)), np.zeros((len(theta), len(theta)))
        for part in blocks:
            gap = theta[part] - theta[part].mean()
            value += 0.5 * kappa / n * float(gap @ gap)
            gradient[part] = kappa / n * gap
            size = part.stop - part.start
            hessian[part, part] = kappa / n * (np.eye(size) - 1.0 / size)
        return value, gradient, hessian

    return prior
