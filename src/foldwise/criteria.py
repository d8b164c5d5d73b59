r"""What a search minimises: a function of all out-of-fold decisions together.

The simplest criterion is a loss, averaged by fold (:class:`MeanLoss`): rows do not know of each other. Others are
functions of all rows at once, such as a score with a scale that is fitted to them (:class:`ProfiledLogistic`), or a
comparison of pairs. A criterion gives its value, its slopes in every decision and, for second-order methods, its
curvature: a diagonal and a few columns. Everything else (training problems, adjoints, sensitivities) does not depend on
which one it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logsumexp, softmax

from foldwise.arguments import FLAG, Table, check_arguments, number
from foldwise.losses import CRITERIA, Logistic, Loss, Pinball, Squared

__all__ = [
    "NAMED_CRITERIA",
    "USUAL_CRITERIA",
    "WINDOW",
    "Criterion",
    "Curvature",
    "JointLogistic",
    "MeanLoss",
    "OutOfFold",
    "PairwiseHinge",
    "Part",
    "ProfiledLogistic",
    "ValueAlone",
    "as_criterion",
    "criterion_name",
    "get_criterion",
    "own_criterion",
    "row_curvature",
]

Array = np.ndarray

WINDOW = 0.2
"""Half width, in root mean square residuals (margins: absolute), of the band that stands for a kink."""


@dataclass(frozen=True, eq=False)
class Part:
    """The validation rows of one task: a fold of one machine.

    Attributes
    ----------
    problem, m : int
        Which problem of the program it belongs to, and its number among the tasks of that problem.
    task : int
        Its number among all tasks of the program.
    rows : slice or ndarray of int
        Where its rows are in the problem's design.
    z, y : ndarray, shape (rows,)
        Decisions and targets.
    v : ndarray, shape (rows,)
        What the rows count: a mean over rows and tasks is a sum with these weights, which over all parts sum to one.
    split : int
        Its fold, among those of its problem.
    """

    problem: int
    m: int
    task: int
    rows: Any
    z: Array
    y: Array
    v: Array
    split: int = 0


@dataclass(frozen=True, eq=False)
class OutOfFold:
    """Decisions of every task on its validation rows, part by part and end to end."""

    parts: Sequence[Part]
    n_tasks: int

    @cached_property
    def z(self) -> Array:
        """Decisions, end to end."""
        return np.concatenate([part.z for part in self.parts])

    @cached_property
    def y(self) -> Array:
        """Targets, end to end."""
        return np.concatenate([part.y for part in self.parts])

    @cached_property
    def v(self) -> Array:
        """Weights, end to end."""
        return np.concatenate([part.v for part in self.parts])

    def by_part(self, values: Array) -> list[Array]:
        """An array with one entry (or row) for every decision, cut into the parts."""
        ends = np.cumsum([len(part.z) for part in self.parts])
        return np.split(values, ends[:-1])

    def sums(self, values: Sequence[Array]) -> Array:
        """Weighted sums of values by part: shape (tasks,)."""
        out = np.zeros(self.n_tasks)
        for part, one in zip(self.parts, values, strict=True):
            out[part.task] = part.v @ one
        return out


@dataclass(frozen=True, eq=False)
class Curvature:
    """Second derivatives in the decisions: ``diag(diagonal) + columns diag(signs) columns'``, all by part.

    ``constant`` says that the diagonal is exactly this number times ``v``, as 2 of the squared error: problems that
    keep weighted Gram matrices of their validation rows then need not go through the rows again.
    """

    diagonal: list[Array]
    columns: list[Array] = field(default_factory=list)
    signs: Array = field(default_factory=lambda: np.zeros(0))
    constant: float | None = None


class Criterion:
    """Base of what a search minimises.

    A subclass gives ``by_row`` or ``by_task``; methods that follow gradients need ``slopes``, and those that follow
    second derivatives ``curvature``. What it defines says what it can do.

    Attributes
    ----------
    task : "regression" or "classification"; classes are -1 and +1
    differentiable, has_curvature : whether ``slopes`` and ``curvature`` are defined
    smooth, polyhedral : as of a :class:`~foldwise.losses.Loss`
    loss : the loss whose mean it is; None for others
    """

    task: str = "classification"
    differentiable: bool = False
    has_curvature: bool = False
    smooth: bool = True
    polyhedral: bool = False
    loss: Loss | None = None
    without_gradient: str = ""
    """Why its slopes lead nowhere, although it has some: decisions that are not functions of theta to us."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.differentiable = cls.slopes is not Criterion.slopes
        cls.has_curvature = cls.curvature is not Criterion.curvature

    def by_row(self, out: OutOfFold) -> Array | None:
        """What every row adds to the criterion before it is weighted; None where rows cannot be told apart."""
        return None

    def by_task(self, out: OutOfFold) -> Array:
        """What every task adds to the criterion: shape (tasks,)."""
        rows = self.by_row(out)
        if rows is None:
            raise TypeError(f"{type(self).__name__} defines neither by_row(out) nor by_task(out)")
        return out.sums(out.by_part(rows))

    def n_fitted(self, out: OutOfFold) -> int:
        """How many constants the criterion fits to the decisions themselves, such as a scale."""
        return 0

    def value(self, out: OutOfFold) -> float:
        """The criterion: what the tasks add up to."""
        return float(self.by_task(out).sum())

    def slopes(self, out: OutOfFold) -> list[Array]:
        """Its derivative in every decision, by part."""
        raise TypeError(f"{type(self).__name__} does not define slopes(out); use method='grid' or 'random'")

    def curvature(self, out: OutOfFold, window: float | None = WINDOW) -> Curvature:
        """Its second derivatives; a jump of the first is spread over a ``window``."""
        raise TypeError(f"{type(self).__name__} does not define curvature(out); use method='lbfgsb'")


@dataclass(frozen=True)
class MeanLoss(Criterion):
    """A loss, averaged over the rows of every fold and then over the folds.

    >>> part = Part(0, 0, 0, None, np.array([0.5, -1.0]), np.array([1.0, 1.0]), np.array([0.5, 0.5]))
    >>> MeanLoss(Squared()).value(OutOfFold([part], 1))
    2.125
    """

    loss: Loss

    def __post_init__(self) -> None:
        for name in ("task", "differentiable", "smooth", "polyhedral"):
            object.__setattr__(self, name, getattr(self.loss, name))
        object.__setattr__(self, "has_curvature", self.loss.differentiable)

    def by_row(self, out: OutOfFold) -> Array:
        """The losses."""
        return np.concatenate([self.loss.value(part.z, part.y) for part in out.parts])

    def by_task(self, out: OutOfFold) -> Array:
        """Weighted losses of every task."""
        return out.sums([self.loss.value(part.z, part.y) for part in out.parts])

    def slopes(self, out: OutOfFold) -> list[Array]:
        """Weighted first derivatives."""
        return [part.v * self.loss.grad(part.z, part.y) for part in out.parts]

    def curvature(self, out: OutOfFold, window: float | None = WINDOW) -> Curvature:
        """Weighted second derivatives; rows do not know of each other."""
        constant = self.loss.constant_curvature
        if constant is not None:
            return Curvature([constant * part.v for part in out.parts], constant=constant)
        diagonal = [p.v * row_curvature(self.loss, p.z, p.y, p.v, window) for p in out.parts]
        return Curvature(diagonal)


class JointLogistic(Criterion):
    r"""The logistic loss of several classes together, of decisions whose machines were trained so.

    .. math::  \sum_i v_i \Big[ \log \sum_k e^{z_{ik}} - z_{i y_i} \Big],

    scikit-learn's "neg_log_loss", negated, of a multinomial ``LogisticRegression``.

    >>> parts = [Part(0, k, k, None, np.zeros(1), np.array([y]), np.array([0.5])) for k, y in enumerate([1.0, -1.0])]
    >>> round(JointLogistic().value(OutOfFold(parts, 2)), 4)  # two classes that look alike: log 2
    0.6931
    """

    def _machines(self, out: OutOfFold) -> list[list[int]]:
        """Numbers of the parts that belong together: the classes of a fold."""
        found: dict[tuple[int, int], list[int]] = {}
        for i, part in enumerate(out.parts):
            found.setdefault((part.problem, part.split), []).append(i)
        return list(found.values())

    def by_row(self, out: OutOfFold) -> Array:
        """The joint loss, the same for a row in the parts of all classes."""
        rows: list[Array] = [np.zeros(0)] * len(out.parts)
        for group in self._machines(out):
            Z, Y = (np.stack([getattr(out.parts[i], name) for i in group]) for name in ("z", "y"))
            loss = logsumexp(Z, axis=0) - np.sum((Y > 0) * Z, axis=0)
            for i in group:
                rows[i] = loss
        return np.concatenate(rows)

    def slopes(self, out: OutOfFold) -> list[Array]:
        """Probability of the class, less one where it is the row's own."""
        slopes: list[Array] = [np.zeros(0)] * len(out.parts)
        for group in self._machines(out):
            Z, Y = (np.stack([getattr(out.parts[i], name) for i in group]) for name in ("z", "y"))
            P, weight = softmax(Z, axis=0), sum(out.parts[i].v for i in group)
            for i, p, y in zip(group, P, Y, strict=True):
                slopes[i] = weight * (p - (y > 0))
        return slopes


class ValueAlone(Criterion):
    """A criterion of decisions that have no derivatives in theta.

    >>> ValueAlone(MeanLoss(Squared()), "they are refitted").differentiable
    False
    """

    def __init__(self, base: Criterion, why: str) -> None:
        self.base, self.without_gradient = base, why
        self.task, self.loss = base.task, base.loss

    def by_row(self, out: OutOfFold) -> Array | None:
        return self.base.by_row(out)

    def by_task(self, out: OutOfFold) -> Array:
        """The same; infinite where a fit was refused."""
        refused = np.zeros(out.n_tasks, dtype=bool)
        refused[[part.task for part in out.parts if not np.all(np.isfinite(part.z))]] = True
        return np.full(out.n_tasks, np.inf) if refused.any() else self.base.by_task(out)

    def n_fitted(self, out: OutOfFold) -> int:
        return self.base.n_fitted(out)


def row_curvature(loss: Loss, z: Array, y: Array, v: Array, window: float | None) -> Array:
    """Second derivative of a loss; a jump of the first is spread over a window."""
    out = loss.hess(z, y)
    for distance, jump in loss.corners(z, y):
        width = max((window or WINDOW) * float(np.sqrt(v @ distance**2 / v.sum())), 1e-12)
        out = out + jump * (np.abs(distance) < width) / (2.0 * width)
    return out


@dataclass(frozen=True)
class ProfiledLogistic(Criterion):
    r"""The logistic loss of decisions in their own best unit, with a bound on what one row may count.

    .. math::  \min_{a \ge 0} \; \sum_i v_i\, \rho\big(\log(1 + e^{-m_i}) + s\, m_i\big),  \qquad
               m_i = y_i (a z_i + b),  \qquad  \rho(l) = -\log\big(\epsilon + (1 - \epsilon) e^{-l}\big),

    over all out-of-fold rows together, ``b = 0`` unless ``offset``. The unit of an SVM's decisions means nothing across
    different ``C`` and kernel widths, so a loss in a fixed unit compares unlike things; with the unit profiled out this
    is, but for ``s`` and ``epsilon``, the log loss of the probabilities ``1 / (1 + exp(-(a z + b)))`` that the
    decisions give, a proper score. The label smoothing ``s`` is in the manner of Platt's [1]_: without it ``a`` runs
    away where every row is on its side. It does not depend on the number of rows, so that a weight of 2 is a row given
    twice. Where the decisions are no better than chance, ``a`` is 0 and the criterion flat.

    The share ``epsilon`` of ``outliers`` is the likelihood of a row that no decision explains, so ``rho`` is at most
    ``-log(epsilon)``. Without it a few rows far on the wrong side, such as a large ``C`` gives, set the unit for all
    and cost more than many errors.

    By the envelope theorem its slopes are those at the fitted ``a`` and ``b``; its curvature is the Schur complement in
    them, one column for each.

    Parameters
    ----------
    offset : bool
        Whether an offset ``b`` is fitted as well.
    smoothing : float, above 0 and below 0.5
        The share ``s`` of the other label.
    outliers : float, at least 0 and below 0.5
        The share ``epsilon``; 0 for the plain logistic loss.

    References
    ----------
    .. [1] J. Platt, Probabilistic outputs for support vector machines and comparisons to regularized likelihood
       methods, in: Advances in Large Margin Classifiers, MIT Press, 1999.

    Examples
    --------
    >>> z, y = np.array([2.0, -1.0, 0.5, -0.5]), np.array([1.0, -1.0, -1.0, 1.0])
    >>> out = OutOfFold([Part(0, 0, 0, None, z, y, np.full(4, 0.25))], 1)
    >>> far = OutOfFold([Part(0, 0, 0, None, 100 * z, y, np.full(4, 0.25))], 1)
    >>> abs(ProfiledLogistic().value(out) - ProfiledLogistic().value(far)) < 1e-12
    True
    """

    offset: bool = False
    smoothing: float = 0.005
    outliers: float = 0.05

    _arguments: ClassVar[Table] = {
        "offset": FLAG,
        "smoothing": number(above=0, below=0.5),
        "outliers": number(at_least=0, below=0.5),
    }

    def __post_init__(self) -> None:
        check_arguments(self)

    def _of_margins(self, m: Array) -> tuple[Array, Array, Array]:
        """The loss of every margin, its slope and its curvature."""
        s, share = self.smoothing, self.outliers
        loss, slope, bend = np.logaddexp(0.0, -m) + s * m, s - expit(-m), expit(m) * expit(-m)
        if not share:
            return loss, slope, bend
        # The likelihood of the row as it is, among that and of an outlier: what the row counts.
        rest = np.logaddexp(np.log(share), np.log1p(-share) - loss)
        counts = np.exp(np.log1p(-share) - loss - rest)
        return -rest, counts * slope, counts * bend - counts * (1.0 - counts) * slope**2

    def fitted(self, out: OutOfFold) -> tuple[float, float]:
        """The unit ``a`` and the offset ``b``: Newton's method on a function of one or two numbers.

        With outliers it may have several minima: it starts from the best of many units.
        """
        y, v, unit = out.y, out.v, _unit(out)
        A = (y * out.z / unit)[None] if not self.offset else np.stack([y * out.z / unit, y])
        x = np.zeros(len(A))
        if self.outliers:
            values = v @ self._of_margins(A[0][:, None] * UNITS)[0]
            x[0] = UNITS[int(np.argmin(values))]
        rows, slopes, bends = self._of_margins(x @ A)
        loss = float(v @ rows)
        for _ in range(100):
            slope, H = A @ (v * slopes), (A * (v * bends)) @ A.T
            if self.outliers:  # not convex away from a minimum
                values, vectors = np.linalg.eigh(H)
                H = (vectors * np.abs(values)) @ vectors.T
            held = x[0] <= 0 <= slope[0]
            if np.abs(slope[int(held) :]).max(initial=0.0) <= 1e-15:
                break
            step = _newton_step(H, slope, held)
            promised = -float(slope @ step)
            if promised <= 1e-12 * loss:  # below what the value can show: one last step
                x = x + step
                x[0] = max(x[0], 0.0)
                break
            t = 1.0
            while t > 1e-10:
                trial = x + t * step
                trial[0] = max(trial[0], 0.0)
                rows, slopes, bends = self._of_margins(trial @ A)
                reached = float(v @ rows)
                if reached <= loss - 1e-4 * t * promised:
                    break
                t *= 0.5
            if t <= 1e-10 or (trial == x).all():
                break
            x, loss = trial, reached
        return float(x[0] / unit), float(x[1]) if self.offset else 0.0

    def n_fitted(self, out: OutOfFold) -> int:
        """The unit, where decisions are better than chance, and the offset."""
        return int(self.fitted(out)[0] > 0) + int(self.offset)

    def by_row(self, out: OutOfFold) -> Array:
        """The loss of every row at the fitted unit."""
        a, b = self.fitted(out)
        return self._of_margins(out.y * (a * out.z + b))[0]

    def slopes(self, out: OutOfFold) -> list[Array]:
        """Derivatives at the fitted unit: what the unit itself moves is nothing to first order."""
        a, b = self.fitted(out)
        return out.by_part(out.v * a * out.y * self._of_margins(out.y * (a * out.z + b))[1])

    def curvature(self, out: OutOfFold, window: float | None = WINDOW) -> Curvature:
        """Second derivatives at the fitted unit, less what refitting it takes back."""
        a, b = self.fitted(out)
        z, y, v = out.z, out.y, out.v
        _, slopes, bends = self._of_margins(y * (a * z + b))
        bend = v * bends
        diagonal = out.by_part(a * a * bend)
        if a == 0:
            return Curvature(diagonal)
        # With A the derivatives of the margins in (a unit, b): cross and inner are second derivatives with these.
        unit = _unit(out)
        A = np.column_stack([z / unit, np.ones(len(z))])[:, : 2 if self.offset else 1]
        cross = a * bend[:, None] * A
        cross[:, 0] += v * y * slopes / unit
        inner = (A.T * bend) @ A
        values, vectors = np.linalg.eigh(inner)
        kept = values > 1e-14 * values.max(initial=0.0)
        columns = cross @ (vectors[:, kept] / np.sqrt(values[kept]))
        return Curvature(diagonal, out.by_part(columns), -np.ones(int(kept.sum())))


UNITS = np.concatenate([[0.0], np.exp(np.linspace(-4.0, 7.0, 23))])
"""Units, in root mean square decisions, of which the best is where fitting begins if there may be outliers."""


@dataclass(frozen=True)
class PairwiseHinge(Criterion):
    r"""The squared hinge of pairs of rows, one of either class, in their own best unit: a smooth stand-in for the AUC.

    .. math::  \min_{a \ge 0} \; \sum_t c_t \, \mathrm{mean}_{ij} \big[ (1 - s) (1 - a d_{ij})_+^2
               + s (1 + a d_{ij})_+^2 \big],  \qquad  d_{ij} = z_i - z_j,

    over the pairs of a positive row ``i`` and a negative row ``j`` of the same task ``t``, by their weights. A pair
    that is in the right order by less than ``1 / a`` counts, as a row short of the margin does with the squared hinge.
    The label smoothing ``s`` keeps the unit finite where all pairs are in the right order.

    Values and slopes are exact, in ``n log n`` time: the pairs of a row that count are the rows beyond a threshold, so
    sums over them are sums over the end of a sorted list. Second derivatives couple all pairs that count; they are
    given as if the coupling of two rows were the product of how many pairs each has (right in sum for every row), a
    matrix of rank two for every task. A task without rows of both classes adds nothing.

    Parameters
    ----------
    smoothing : float, above 0 and below 0.5
        The share ``s`` of pairs that are taken the other way round.

    Examples
    --------
    >>> z, y = np.array([2.0, -1.0, 0.5, -0.5]), np.array([1.0, -1.0, -1.0, 1.0])
    >>> out = OutOfFold([Part(0, 0, 0, None, z, y, np.full(4, 0.25))], 1)
    >>> far = OutOfFold([Part(0, 0, 0, None, 100 * z + 7, y, np.full(4, 0.25))], 1)
    >>> abs(PairwiseHinge().value(out) - PairwiseHinge().value(far)) < 1e-12
    True
    """

    smoothing: float = 0.005

    _arguments: ClassVar[Table] = {"smoothing": number(above=0, below=0.5)}

    def __post_init__(self) -> None:
        check_arguments(self)

    def fitted(self, out: OutOfFold) -> float:
        """The unit ``a``: the zero of an increasing function of one number, by Newton's method within brackets."""
        pairs = [_Pairs(part, self.smoothing) for part in out.parts]
        unit = max((one.spread for one in pairs), default=0.0)
        if unit <= 0.0 or sum(one.along(0.0)[1] for one in pairs) >= 0.0:
            return 0.0
        a, low, high = 1.0 / unit, 0.0, np.inf
        for _ in range(100):
            _, slope, bend = np.sum([one.along(a) for one in pairs], axis=0)
            if abs(slope) <= 1e-14 * a * bend:
                break
            low, high = (a, high) if slope < 0 else (low, a)
            step = a - slope / bend if bend > 0 else np.inf
            a = float(step if low < step < high else 2.0 * a if high == np.inf else 0.5 * (low + high))
        return a

    def n_fitted(self, out: OutOfFold) -> int:
        """The unit, where pairs are in order more often than chance has it."""
        return int(self.fitted(out) > 0)

    def by_task(self, out: OutOfFold) -> Array:
        """What the pairs of every task add up to."""
        a, values = self.fitted(out), np.zeros(out.n_tasks)
        for part in out.parts:
            values[part.task] = _Pairs(part, self.smoothing).along(a)[0]
        return values

    def slopes(self, out: OutOfFold) -> list[Array]:
        """Derivatives at the fitted unit."""
        a = self.fitted(out)
        return [_Pairs(part, self.smoothing).slopes(a) for part in out.parts]

    def curvature(self, out: OutOfFold, window: float | None = WINDOW) -> Curvature:
        """Second derivatives at the fitted unit, less what refitting it takes back; see above for the coupling."""
        a, diagonal, columns, signs, cross, bend = self.fitted(out), [], [], [], [], 0.0
        ends = np.cumsum([0, *(len(part.z) for part in out.parts)])
        for part, first in zip(out.parts, ends[:-1], strict=True):
            pairs = _Pairs(part, self.smoothing)
            own, mixed = pairs.coupling(a)
            bend += pairs.along(a)[2]
            diagonal.append(own)
            cross.append(mixed)
            total = float(own[pairs.up].sum())
            for sign in (-1.0, 1.0) if total > 0 else ():
                column = np.zeros(ends[-1])
                column[first + pairs.up] = own[pairs.up]
                column[first + pairs.down] = -sign * own[pairs.down]
                columns.append(column / np.sqrt(2.0 * total))
                signs.append(sign)
        if a > 0 and bend > 0:
            columns.append(np.concatenate(cross) / np.sqrt(bend))
            signs.append(-1.0)
        if not columns:
            return Curvature(diagonal)
        return Curvature(diagonal, out.by_part(np.column_stack(columns)), np.array(signs))


class _Pairs:
    """The pairs of one task, of a row of either class, and sums over them.

    Decisions are held from their mean on, classes in increasing order; ``up`` and ``down`` are the rows of the classes.
    """

    def __init__(self, part: Part, smoothing: float) -> None:
        self.n, self.share, counts = len(part.z), float(part.v.sum()), part.v > 0
        self.smoothing, centre = smoothing, float(np.mean(part.z)) if len(part.z) else 0.0
        self.up, self.down = (np.flatnonzero(counts & (side * part.y > 0)) for side in (1.0, -1.0))
        self.up = self.up[np.argsort(part.z[self.up], kind="stable")]
        self.down = self.down[np.argsort(part.z[self.down], kind="stable")]
        self.p, self.q = part.z[self.up] - centre, part.z[self.down] - centre
        both = len(self.up) > 0 and len(self.down) > 0
        self.w = part.v[self.up] / part.v[self.up].sum() if both else np.zeros(len(self.up))
        self.u = part.v[self.down] / part.v[self.down].sum() if both else np.zeros(len(self.down))
        self.spread = float(max(np.abs(self.p).max(), np.abs(self.q).max())) if both else 0.0

    def along(self, a: float) -> tuple[float, float, float]:
        """The value and its first two derivatives in ``a``."""
        value = first = second = 0.0
        for turn, share in self._turns():
            p, w, q, u, _, _ = self._sides(turn)[0]
            s0, s1, s2 = _beyond(p, q, u, a)
            m, weight = 1.0 - a * p, share * w
            value += float(weight @ (m * m * s0 + 2.0 * a * m * s1 + a * a * s2))
            first += float(2.0 * weight @ (m * (s1 - p * s0) + a * (s2 - p * s1)))
            second += float(2.0 * weight @ (p * p * s0 - 2.0 * p * s1 + s2))
        return value, first, second

    def slopes(self, a: float) -> Array:
        """Derivatives of the value in the decisions."""
        out = np.zeros(self.n)
        for turn, share in self._turns():
            for p, w, q, u, rows, side in self._sides(turn):
                s0, s1, _ = _beyond(p, q, u, a)
                out[rows] -= turn * side * 2.0 * a * share * w * ((1.0 - a * p) * s0 + a * s1)
        return out

    def coupling(self, a: float) -> tuple[Array, Array]:
        """Second derivatives of every row in its own decision, and in its decision and ``a``."""
        own, mixed = np.zeros(self.n), np.zeros(self.n)
        for turn, share in self._turns():
            for p, w, q, u, rows, side in self._sides(turn):
                s0, s1, _ = _beyond(p, q, u, a)
                weight = share * w
                own[rows] += 2.0 * a * a * weight * s0
                mixed[rows] -= turn * side * 2.0 * weight * ((1.0 - 2.0 * a * p) * s0 + 2.0 * a * s1)
        return own, mixed

    def _turns(self) -> list[tuple[float, float]]:
        """What pairs count as they are, and the other way round."""
        return [(1.0, self.share * (1.0 - self.smoothing)), (-1.0, self.share * self.smoothing)]

    def _sides(self, turn: float) -> list[tuple[Array, Array, Array, Array, Array, float]]:
        """The rows of either class with those of the other, so that a pair counts where ``q - p > -1 / a``.

        Of the negative class the decisions are turned round; with ``turn`` -1 those of all.
        """
        up = turn * self.p, self.w, turn * self.q, self.u, self.up, 1.0
        down = -turn * self.q, self.u, -turn * self.p, self.w, self.down, -1.0
        return [up, down]


def _beyond(p: Array, q: Array, u: Array, a: float) -> tuple[Array, Array, Array]:
    """For every ``p`` the sums of ``u``, ``u q`` and ``u q^2`` over all ``q > p - 1 / a``."""
    if len(q) > 1 and q[0] > q[-1]:
        q, u = q[::-1], u[::-1]
    tails = [np.concatenate([np.cumsum(x[::-1])[::-1], [0.0]]) for x in (u, u * q, u * q * q)]
    first = np.searchsorted(q, p - 1.0 / a, side="right") if a > 0 else np.zeros(len(p), int)
    return tails[0][first], tails[1][first], tails[2][first]


def _newton_step(H: Array, slope: Array, held: bool) -> Array:
    """``-H^-1 slope`` of one or two numbers, of which the first may be held at its bound."""
    ridge = 1e-14 * max(float(np.trace(H)), 1e-300)
    if len(slope) == 1:
        return np.zeros(1) if held else -slope / (H[0] + ridge)
    if held:
        return np.array([0.0, -slope[1] / (H[1, 1] + ridge)])
    return np.asarray(-np.linalg.solve(H + ridge * np.eye(2), slope))


def _unit(out: OutOfFold) -> float:
    """The root mean square of the decisions; 1 where all are zero."""
    largest = float(np.abs(out.z).max(initial=0.0))
    if not (largest > 1e-300 and np.isfinite(largest)):
        return 1.0
    return largest * float(np.sqrt(out.v @ (out.z / largest) ** 2 / out.v.sum())) or 1.0


NAMED_CRITERIA: dict[str, type[Loss] | type[Criterion]] = {
    **CRITERIA,
    "profiled_logistic": ProfiledLogistic,
    "pairwise_hinge": PairwiseHinge,
}
"""Criteria that have a name: losses, and others."""

SCORERS = {
    "accuracy": "'misclassification', or a smooth one",
    "neg_log_loss": "'profiled_logistic', or 'logistic' for decisions that are log odds",
    "neg_mean_squared_error": "'squared'",
    "neg_root_mean_squared_error": "'squared'",
    "r2": "'squared'",
    "neg_mean_absolute_error": "'absolute'",
    "balanced_accuracy": "a smooth one with criterion_weight='balanced'",
    "roc_auc": "none; a smooth one such as 'profiled_logistic' comes near",
}
"""What to say to a name of scikit-learn's ``scoring``."""

USUAL_CRITERIA: dict[str, Loss | Criterion] = {"regression": Squared(), "classification": Logistic(s=2.0)}
"""What a search minimises, by task, where a model has no criterion of its own."""


def own_criterion(loss: Loss, *, curved: bool = False) -> Loss | Criterion | None:
    """The criterion for machines with this training loss, where the usual one serves them less; None where it does not.

    Decisions of a machine with the logistic loss are log odds: it is tuned by the same loss, so that its probabilities
    stay true; so is one that learns a quantile. ``curved`` says that the decisions are not linear in the features:
    their unit changes with the width of the kernel, and has to be fitted. docs/criteria.md has the evidence.

    >>> from foldwise.losses import Hinge
    >>> own_criterion(Logistic()), own_criterion(Hinge()), own_criterion(Hinge(), curved=True)
    (Logistic(s=1.0), None, ProfiledLogistic(offset=False, smoothing=0.005, outliers=0.05))
    """
    if isinstance(loss, (Logistic, Pinball)):
        return loss
    return ProfiledLogistic() if curved and loss.task == "classification" else None


def as_criterion(spec: Loss | Criterion) -> Criterion:
    """A loss as the criterion that is its mean; a criterion is itself."""
    return spec if isinstance(spec, Criterion) else MeanLoss(spec)


def get_criterion(spec: str | Loss | Criterion) -> Loss | Criterion:
    """The outer criterion of this name, or the object itself.

    >>> get_criterion("squared"), get_criterion("profiled_logistic")
    (Squared(), ProfiledLogistic(offset=False, smoothing=0.005, outliers=0.05))
    """
    if isinstance(spec, (Loss, Criterion)):
        return spec
    if isinstance(spec, str) and spec in NAMED_CRITERIA:
        return NAMED_CRITERIA[spec]()
    hint = SCORERS.get(spec) if isinstance(spec, str) else None
    more = f". For scikit-learn's {spec!r} it is {hint}; or write scoring={spec!r}" if hint else ""
    raise ValueError(
        f"unknown criterion {spec!r}; use a Loss or Criterion object, or one of: {', '.join(NAMED_CRITERIA)}{more}"
    )


def criterion_name(criterion: Loss | Criterion) -> str:
    """The name of its class as :func:`get_criterion` knows it, whatever its parameters; else the class's own.

    >>> from foldwise.losses import ModifiedHuber
    >>> criterion_name(ModifiedHuber()), criterion_name(ProfiledLogistic(offset=True))
    ('modified_huber', 'profiled_logistic')
    """
    names: dict[type, str] = {kind: name for name, kind in NAMED_CRITERIA.items()}
    return names.get(type(criterion), type(criterion).__name__)
