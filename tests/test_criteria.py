"""What a search minimises: means of losses, a score with a unit of its own, and criteria written by others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit
from sklearn import svm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldwise import RBF, BilevelSearchCV, KernelSVC, LinearSVC
from foldwise.criteria import (
    NAMED_CRITERIA,
    Criterion,
    Curvature,
    MeanLoss,
    OutOfFold,
    PairwiseHinge,
    Part,
    ProfiledLogistic,
    get_criterion,
)
from foldwise.losses import Hinge, Logistic, Squared, SquaredHinge
from foldwise.space import Log
from foldwise.testing import check_hypergradient, check_hyperhessian, small_bilevel


def decisions(seed=0, n=40, noise=1.0):
    """Out-of-fold decisions of three tasks with weights of their own."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.4, 1.0, -1.0)
    z = y + noise * rng.normal(size=n)
    v = rng.uniform(0.2, 2, n)
    v /= v.sum()
    parts = [
        Part(0, k, k, rows, z[rows], y[rows], v[rows])
        for k, rows in enumerate(np.array_split(np.arange(n), 3))
    ]
    return OutOfFold(parts, 3)


def moved(out, z):
    parts = [
        Part(p.problem, p.m, p.task, p.rows, part, p.y, p.v)
        for p, part in zip(out.parts, out.by_part(z), strict=True)
    ]
    return OutOfFold(parts, out.n_tasks)


def second_derivatives(criterion, out):
    """The curvature as a matrix."""
    bend = criterion.curvature(out)
    H = np.diag(np.concatenate(bend.diagonal))
    if bend.columns:
        U = np.concatenate(bend.columns)
        H = H + (U * bend.signs) @ U.T
    return H


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_the_unit_is_the_best_one(offset, noise, share):
    out = decisions(1, noise=noise)
    s = 0.005

    def loss(x):
        m = out.y * (x[0] * out.z + (x[1] if offset else 0.0))
        return out.v @ -np.log(share + (1 - share) * np.exp(-s * m) / (1 + np.exp(-m)))

    wanted = minimize(
        loss, [1.0, 0.0], bounds=[(0, None), (None, None)], options={"ftol": 1e-15, "gtol": 1e-10}
    )
    criterion = ProfiledLogistic(offset, outliers=share)
    assert criterion.value(out) == pytest.approx(wanted.fun, rel=1e-9)
    assert criterion.fitted(out)[0] == pytest.approx(wanted.x[0], rel=1e-4)
    assert criterion.by_task(out).sum() == pytest.approx(criterion.value(out), rel=1e-14)
    assert out.v @ criterion.by_row(out) == pytest.approx(criterion.value(out), rel=1e-14)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_slopes_and_curvature_are_those_of_the_profiled_value(offset, share):
    out, criterion, h = decisions(2), ProfiledLogistic(offset, outliers=share), 1e-5
    g, H = np.concatenate(criterion.slopes(out)), second_derivatives(criterion, out)
    assert np.abs(g).max() > 1e-3
    for i in range(len(out.z)):
        e = h * (np.arange(len(out.z)) == i)
        up, down = moved(out, out.z + e), moved(out, out.z - e)
        assert g[i] == pytest.approx((criterion.value(up) - criterion.value(down)) / (2 * h), abs=1e-8)
        change = (np.concatenate(criterion.slopes(up)) - np.concatenate(criterion.slopes(down))) / (2 * h)
        assert np.allclose(H[i], change, atol=1e-7 * np.abs(H).max() + 1e-9)


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("factor", [1e-160, 1e-7, 1e-3, 1e8, 1e160])
def test_the_unit_of_the_decisions_does_not_matter(factor, offset):
    out, criterion = decisions(3), ProfiledLogistic(offset, outliers=0.01)
    other = moved(out, factor * out.z)
    assert criterion.value(other) == pytest.approx(criterion.value(out), rel=1e-10)
    slopes = np.concatenate(criterion.slopes(out))
    theirs = factor * np.concatenate(criterion.slopes(other))
    assert np.allclose(theirs, slopes, atol=1e-9 * np.abs(slopes).max())
    if 1e-100 < factor < 1e100:
        H = second_derivatives(criterion, out)
        theirs = factor**2 * second_derivatives(criterion, other)
        assert np.allclose(theirs, H, atol=1e-8 * np.abs(H).max())


@pytest.mark.parametrize("offset", [False, True])
def test_rows_without_weight_count_for_nothing(offset):
    out, criterion = decisions(6), ProfiledLogistic(offset)
    v = out.v * (np.arange(len(out.v)) % 3 > 0)
    with_zeros = OutOfFold([Part(0, 0, 0, None, out.z, out.y, v)], 1)
    kept = v > 0
    without = OutOfFold([Part(0, 0, 0, None, out.z[kept], out.y[kept], v[kept])], 1)
    assert criterion.value(with_zeros) == pytest.approx(criterion.value(without), rel=1e-14)
    X, y = classes()
    number = np.arange(len(y))
    w = np.where(number % 3, 1.0, 0.0)
    splits = [(np.flatnonzero(number % 4 != t), np.flatnonzero(number % 4 == t)) for t in range(4)]
    place = np.cumsum(w).astype(int) - 1
    less = [tuple(place[side[w[side] > 0]] for side in split) for split in splits]
    options = {"criterion": criterion, "method_options": {"points": 3}, "method": "grid"}
    whole = BilevelSearchCV(LinearSVC(), {"C": (0.1, 10)}, cv=splits, **options).fit(X, y, sample_weight=w)
    part = BilevelSearchCV(LinearSVC(), {"C": (0.1, 10)}, cv=less, **options).fit(X[w > 0], y[w > 0])
    assert whole.best_score_ == pytest.approx(part.best_score_, rel=1e-9)


def test_a_few_rows_far_on_the_wrong_side_do_not_set_the_unit():
    out = decisions(4, n=200, noise=0.5)
    far = moved(out, np.where(np.arange(200) % 50 == 0, -1e3 * out.y, out.z))
    plain, bounded = ProfiledLogistic(outliers=0.0), ProfiledLogistic(outliers=0.02)
    usual = bounded.fitted(out)[0]
    assert plain.fitted(far)[0] < 0.02 * usual
    assert bounded.fitted(far)[0] == pytest.approx(usual, rel=0.1)
    assert bounded.by_row(far).max() == pytest.approx(-np.log(0.02), rel=1e-9)
    clean = np.arange(200) % 50 > 0
    np.testing.assert_allclose(bounded.by_row(far)[clean], bounded.by_row(out)[clean], atol=0.05)


def test_decisions_that_tell_all_or_nothing():
    out, plain = decisions(4, noise=0.0), ProfiledLogistic(outliers=0.0)
    a, _ = plain.fitted(out)
    assert 3.0 < a < 10.0  # every row on its side: bounded by the smoothing
    against = moved(out, -out.y)
    assert plain.fitted(against)[0] == 0.0
    assert plain.value(against) == pytest.approx(np.log(2))
    assert not np.any(np.concatenate(plain.slopes(against)))
    nothing = moved(out, np.zeros(len(out.z)))
    assert plain.value(nothing) == pytest.approx(np.log(2))
    share = out.v @ (out.y > 0)
    entropy = -share * np.log(share) - (1 - share) * np.log(1 - share)
    assert ProfiledLogistic(offset=True, outliers=0.0).value(nothing) == pytest.approx(entropy, abs=0.05)
    one_class = OutOfFold([Part(0, 0, 0, None, np.array([1.0, 2.0]), np.ones(2), np.full(2, 0.5))], 1)
    assert 0 < plain.value(one_class) < np.log(2)


def by_pairs(out, a, s=0.005):
    """The pairwise criterion at a unit, pair by pair."""
    total = 0.0
    for part in out.parts:
        up = part.y > 0
        d = part.z[up][:, None] - part.z[~up]
        weight = np.outer(part.v[up] / part.v[up].sum(), part.v[~up] / part.v[~up].sum()) * part.v.sum()
        total += np.sum(
            weight * ((1 - s) * np.maximum(0, 1 - a * d) ** 2 + s * np.maximum(0, 1 + a * d) ** 2)
        )
    return total


@pytest.mark.parametrize(("noise", "scale"), [(1.0, 1.0), (0.1, 1e3), (3.0, 1e-4)])
def test_pairs_are_valued_in_their_best_unit(noise, scale):
    out = decisions(1, noise=noise)
    out, criterion = moved(out, scale * (out.z + 5.0)), PairwiseHinge()
    found = minimize_scalar(
        lambda log_a: by_pairs(out, np.exp(log_a)),
        bounds=(np.log(1e-3 / scale), np.log(1e3 / scale)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    assert criterion.value(out) == pytest.approx(found.fun, rel=1e-9)
    assert criterion.value(out) == pytest.approx(by_pairs(out, criterion.fitted(out)), rel=1e-12)
    assert criterion.n_fitted(out) == 1


@pytest.mark.parametrize("noise", [0.1, 1.0, 3.0])
def test_slopes_of_pairs_are_differences_and_curvature_is_right_in_sum(noise):
    out, criterion, h = decisions(2, noise=noise), PairwiseHinge(), 1e-6
    slopes = np.concatenate(criterion.slopes(out))
    H = second_derivatives(criterion, out)
    for i in range(0, len(out.z), 3):
        step = h * np.eye(len(out.z))[i]
        ahead, behind = moved(out, out.z + step), moved(out, out.z - step)
        assert slopes[i] == pytest.approx(
            (criterion.value(ahead) - criterion.value(behind)) / (2 * h), abs=1e-8
        )
    assert np.abs(slopes).max() > 1e-3
    # Moving all decisions of a task together changes nothing.
    for part in criterion.slopes(out):
        assert abs(part.sum()) < 1e-12
    shift = np.concatenate([np.full(len(part.z), k + 1.0) for k, part in enumerate(out.parts)])
    assert np.abs(H @ shift).max() < 1e-10 * np.abs(H).max()
    # The diagonal is that of the slopes; what is off it is near.
    rng = np.random.default_rng(0)
    step = rng.normal(size=len(out.z))
    ahead = np.concatenate(criterion.slopes(moved(out, out.z + h * step)))
    behind = np.concatenate(criterion.slopes(moved(out, out.z - h * step)))
    seen = step @ (ahead - behind) / (2 * h)
    assert step @ H @ step == pytest.approx(seen, rel=0.1)


def test_pairs_that_are_no_better_than_chance_or_missing():
    out = decisions(4)
    against = moved(out, -out.z)
    assert PairwiseHinge().value(against) == pytest.approx(1.0)
    assert not np.any(np.concatenate(PairwiseHinge().slopes(against)))
    part = out.parts[0]
    alone = Part(0, 0, 0, part.rows, part.z, np.ones(len(part.z)), part.v)
    assert PairwiseHinge().value(OutOfFold([alone], 1)) == 0.0
    both = PairwiseHinge().value(OutOfFold([alone, *out.parts[1:]], 3))
    assert both == pytest.approx(PairwiseHinge().value(OutOfFold(out.parts[1:], 3)))


def test_hypergradient_of_pairs_through_linear_machines():
    tune = {"lam": Log(1e-3, 1e3, per="feature")}
    check_hypergradient(*small_bilevel(Logistic(), PairwiseHinge(), tune, sample_weight=True))


def test_a_loss_is_the_simplest_criterion():
    out = decisions(5)
    assert MeanLoss(SquaredHinge()).value(out) == pytest.approx(out.v @ SquaredHinge().value(out.z, out.y))
    assert np.allclose(np.concatenate(MeanLoss(Squared()).slopes(out)), 2 * out.v * (out.z - out.y))
    assert MeanLoss(Hinge()).polyhedral
    for name, kind in NAMED_CRITERIA.items():
        assert type(get_criterion(name)) is kind


@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("targets", [1, 3])
def test_hypergradient_and_hessian_through_linear_machines(offset, targets):
    tune = {"lam": Log(1e-3, 1e3, per="feature")}
    options = {"n_targets": targets, "sample_weight": True}
    check_hypergradient(*small_bilevel(Logistic(), ProfiledLogistic(offset), tune, **options))
    check_hyperhessian(*small_bilevel(Logistic(), ProfiledLogistic(offset), tune, **options))


def classes(seed=0, n=90, d=4, kinds=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X[:, 0] * X[:, 1] + 0.5 * X[:, 2] + 0.5 * rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, np.arange(1, kinds) / kinds))


@pytest.mark.parametrize(
    "machine",
    [
        svm.SVC(),
        KernelSVC(),
        KernelSVC(loss="hinge"),
        LinearSVC(),
        LinearSVC(loss="hinge"),
        LogisticRegression(),
    ],
    ids=["SVC", "KernelSVC", "KernelSVC, exact", "LinearSVC", "LinearSVC, exact", "LogisticRegression"],
)
def test_searches_by_the_profiled_logistic(machine):
    X, y = classes()
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    whole = make_pipeline(StandardScaler(), machine)
    search = BilevelSearchCV(whole, cv=folds, criterion="profiled_logistic").fit(X, y)
    assert search.result_.objective <= search.result_.objective_start
    # By refitting the plain estimator, and the bounded log loss of its decisions in their best unit.
    best = whole.set_params(**search.best_params_)
    last = best.steps[-1][1]
    last.set_params(**{"tol": 1e-8 if hasattr(last, "tol") else None})
    z = cross_val_predict(best, X, y, cv=folds, method="decision_function")
    v = np.concatenate([np.full(len(test), 1 / (4 * len(test))) for _, test in folds.split(X, y)])
    order = np.concatenate([test for _, test in folds.split(X, y)])
    z, sign = z[order], np.where(y[order] == 1, 1.0, -1.0)

    def loss(t):
        m = sign * np.exp(t) * z
        return v @ -np.log(0.05 + 0.95 * np.exp(-0.005 * m - np.logaddexp(0.0, -m)))

    grid = np.linspace(-6, 8, 20_001)
    wanted = min(loss(t) for t in grid)
    assert -search.best_score_ == pytest.approx(wanted, rel=1e-4)


def test_several_classes_share_one_unit():
    X, y = classes(kinds=3)
    folds, kernel = StratifiedKFold(3), RBF(0.3)
    search = BilevelSearchCV(KernelSVC(kernel), {"C": (1e-2, 1e2)}, cv=folds, criterion="profiled_logistic")
    search.fit(X, y)
    machine = KernelSVC(kernel, tol=1e-10, **search.best_params_)
    z = cross_val_predict(machine, X, y, cv=folds, method="decision_function").ravel()
    m = z * np.where(y[:, None] == np.unique(y), 1.0, -1.0).ravel()
    units = np.geomspace(1e-2, 1e2, 20_001)
    wanted = min(np.mean(-np.log(0.05 + 0.95 * np.exp(-0.005 * a * m) / (1 + np.exp(-a * m)))) for a in units)
    assert -search.best_score_ == pytest.approx(wanted, rel=1e-6)  # three folds of equal size


@pytest.mark.parametrize(
    ("options", "machine"),
    [
        ({"method": "bundle"}, KernelSVC()),
        ({"method": "pbp"}, LinearSVC()),
        ({"method": "mpec"}, LinearSVC(loss="hinge")),
    ],
    ids=lambda value: str(value)[:24],
)
def test_methods_that_need_a_loss_say_so(options, machine):
    X, y = classes()
    with pytest.raises(ValueError, match=r"needs a criterion|with criterion profiled_logistic"):
        BilevelSearchCV(machine, {"C": (1e-2, 1e2)}, criterion="profiled_logistic", **options).fit(X, y)


def test_regression_has_no_classes():
    X, _ = classes()
    with pytest.raises(ValueError, match="needs classes"):
        BilevelSearchCV(svm.SVR(), criterion="profiled_logistic").fit(X, X[:, 0])


# A criterion of the user's own, in one class: pairs of rows.


@dataclass(frozen=True)
class SmoothAuc(Criterion):
    """The share of pairs in the wrong order, smoothed: one minus the area under the ROC curve."""

    width: float = 0.3

    def _pairs(self, out):
        up, down = np.flatnonzero(out.y > 0), np.flatnonzero(out.y < 0)
        weight = out.v[up][:, None] * out.v[down]
        return up, down, weight / weight.sum(), (out.z[up][:, None] - out.z[down]) / self.width

    def by_task(self, out):
        _, _, weight, gap = self._pairs(out)
        total = float(np.sum(weight * expit(-gap)))
        return np.full(out.n_tasks, total / out.n_tasks)

    def slopes(self, out):
        up, down, weight, gap = self._pairs(out)
        slope = -weight * expit(-gap) * expit(gap) / self.width
        g = np.zeros(len(out.z))
        g[up], g[down] = slope.sum(axis=1), -slope.sum(axis=0)
        return out.by_part(g)

    def curvature(self, out, window=None):
        up, down, weight, gap = self._pairs(out)
        p = expit(-gap)
        bend = weight * p * (1 - p) * (1 - 2 * p) / self.width**2
        H = np.zeros((len(out.z), len(out.z)))
        H[np.ix_(up, down)] = -bend
        H[np.ix_(down, up)] = -bend.T
        H[up, up], H[down, down] = bend.sum(axis=1), bend.sum(axis=0)
        values, vectors = np.linalg.eigh(H)
        columns = vectors * np.sqrt(np.abs(values))
        return Curvature(out.by_part(np.zeros(len(out.z))), out.by_part(columns), np.sign(values))


def test_a_criterion_of_pairs_has_exact_derivatives():
    tune = {"lam": Log(1e-3, 1e3, per="feature")}
    check_hypergradient(*small_bilevel(Logistic(), SmoothAuc(), tune))
    check_hyperhessian(*small_bilevel(Logistic(), SmoothAuc(), tune))


@pytest.mark.parametrize(
    "machine", [svm.SVC(), KernelSVC(), LinearSVC()], ids=lambda m: type(m).__module__[:8]
)
def test_a_criterion_of_pairs_runs_through_whole_searches(machine):
    X, y = classes(3)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = BilevelSearchCV(machine, cv=folds, criterion=SmoothAuc()).fit(X, y)
    assert search.result_.objective < search.result_.objective_start + 1e-12
    assert isinstance(search.criterion_, SmoothAuc)
    machine = machine.set_params(**search.best_params_, tol=1e-8)
    z = cross_val_predict(machine, X, y, cv=folds, method="decision_function")
    smoothed = np.mean(expit(-(z[y == 1][:, None] - z[y == 0]) / 0.3))
    assert -search.best_score_ == pytest.approx(smoothed, rel=1e-4)  # folds of equal size, balanced
    assert abs(1 - roc_auc_score(y, z) - smoothed) < 0.1


def test_what_a_criterion_defines_says_what_it_can_do():
    class OnlyValue(Criterion):
        def by_row(self, out):
            return (out.y * out.z < 0.2).astype(float)

    class OnlySlopes(OnlyValue):
        def by_row(self, out):
            return np.logaddexp(0, -3 * out.y * out.z)

        def slopes(self, out):
            return out.by_part(-3 * out.v * out.y * expit(-3 * out.y * out.z))

    X, y = classes()
    search = BilevelSearchCV(KernelSVC(), criterion=OnlyValue(), method="grid", method_options={"points": 3})
    assert search.fit(X, y).result_.gradient_norm is None
    assert BilevelSearchCV(LinearSVC(), ["C"], criterion=OnlyValue()).fit(X, y).result_.method == "grid"
    with pytest.raises(ValueError, match="follows gradients"):
        BilevelSearchCV(KernelSVC(), criterion=OnlyValue(), method="lbfgsb").fit(X, y)
    for options in ({}, {"low_rank": True}):
        search = BilevelSearchCV(KernelSVC(), criterion=OnlySlopes(), **options).fit(X, y)
        assert search.result_.method == "lbfgsb"
        assert search.result_.objective <= search.result_.objective_start
    with pytest.raises(ValueError, match="needs second derivatives"):
        BilevelSearchCV(KernelSVC(), criterion=OnlySlopes(), method="newton").fit(X, y)


def test_what_is_no_criterion_is_refused():
    X, y = classes()
    with pytest.raises((TypeError, ValueError), match="criterion"):
        BilevelSearchCV(svm.SVC(), criterion=3).fit(X, y)
    with pytest.raises(ValueError, match="profiled_logistic"):
        BilevelSearchCV(svm.SVC(), criterion="neg_log_loss").fit(X, y)
    with pytest.raises(TypeError, match="neither by_row"):
        Criterion().value(decisions())
