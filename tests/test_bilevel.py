"""The cross-validation error as a function of theta: what it is, and what must not change it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldwise.bilevel import Bilevel
from foldwise.losses import (
    Huber,
    Logistic,
    Misclassification,
    QuarticHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.linear import LinearModel, assemble
from foldwise.solvers.newton import Newton
from foldwise.space import Lin, Log
from foldwise.testing import relative_error, small_bilevel

LOSSES = [SquaredEpsilonInsensitive(), Squared(), Huber(), SquaredHinge(), Logistic(), QuarticHinge(0.5)]
ROLES = {"C": Role("log_c"), "epsilon": Role("epsilon"), "lam": Role("log_lam", per=(None, "feature"))}


def program(X, y, splits, loss, *, weight=None, criterion=None, standardize=None, strength=0.0):
    """C, one penalty per feature and, if the loss has one, the tube; through the package's own assembly."""
    dimensions = {"C": Log(1e-8, 1e8), "lam": Log(1e-8, 1e8, per="feature")}
    if "epsilon" in loss.tunable:
        dimensions["epsilon"] = Lin(0, 100)
    model = LinearModel(loss, ROLES, {"C": 1.0, "epsilon": 0.0, "lam": 1.0}, intercept_penalty=strength)
    rows = Rows(y[None], weight)
    space = make_space(dimensions, rows, range(X.shape[1]))
    problem = assemble(model, X, rows, splits, space, dimensions=dimensions, standardize=standardize)
    return Bilevel([problem], Squared() if criterion is None else criterion, space, Newton(tol=1e-12))


def data(loss, seed=0, n=45, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.linspace(0.6, 1.6, d)
    y = X @ rng.normal(size=d) + rng.normal(size=n) + 0.4
    return X, (np.where(y > np.median(y), 1.0, -1.0) if loss.task == "classification" else y)


def point(bilevel, C=0.3, epsilon=0.4, lam=(0.5, 1.0, 2.0)):
    params = {"C": C, "lam": lam}
    if "epsilon" in bilevel.space.slices:
        params["epsilon"] = epsilon
    return bilevel.space.theta(params)


def everything(bilevel, theta):
    evaluation = bilevel.differentiate(bilevel.evaluate(theta))
    return evaluation.objective, evaluation.gradient


def assert_same(one, other, rtol=1e-7):
    assert one[0] == pytest.approx(other[0], rel=1e-9)
    assert np.abs(other[1]).max() > 1e-6
    assert relative_error(one[1], other[1]) < rtol


SPLITS = list(KFold(3, shuffle=True, random_state=0).split(np.zeros(45)))
losses = st.sampled_from(LOSSES)
seeds = st.integers(0, 10**6)


# Invariances.


@settings(max_examples=40, deadline=None, derandomize=True)
@given(losses, seeds, st.floats(-6, 6))
def test_scaling_x_by_s_and_lam_by_s_squared_changes_nothing(loss, seed, log_s):
    X, y = data(loss, seed)
    s = float(np.exp(log_s))
    plain, scaled = program(X, y, SPLITS, loss), program(s * X, y, SPLITS, loss)
    lam = np.array([0.5, 1.0, 2.0])
    a, b = plain.evaluate(point(plain, lam=lam)), scaled.evaluate(point(scaled, lam=s**2 * lam))
    decisions = [p.problems[0].design.decisions(e.solutions[0].W) for p, e in ((plain, a), (scaled, b))]
    assert relative_error(decisions[1], decisions[0]) < 1e-7
    assert_same(everything(scaled, b.theta), everything(plain, a.theta), rtol=1e-6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(losses, seeds)
def test_the_order_of_rows_does_not_matter(loss, seed):
    X, y = data(loss, seed)
    order = np.random.default_rng(seed).permutation(len(y))
    place = np.argsort(order)
    moved = [(place[train], place[validation]) for train, validation in SPLITS]
    plain, other = program(X, y, SPLITS, loss), program(X[order], y[order], moved, loss)
    assert_same(everything(other, point(other)), everything(plain, point(plain)))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(losses, seeds)
def test_the_order_of_features_does_not_matter(loss, seed):
    X, y = data(loss, seed)
    order, lam = np.random.default_rng(seed).permutation(3), np.array([0.3, 1.0, 4.0])
    plain, other = program(X, y, SPLITS, loss), program(X[:, order], y, SPLITS, loss)
    value, gradient = everything(plain, point(plain, lam=lam))
    other_value, other_gradient = everything(other, point(other, lam=lam[order]))
    gradient[1:4] = gradient[1:4][order]
    assert_same((other_value, other_gradient), (value, gradient))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(losses, seeds, st.lists(st.integers(0, 44), min_size=1, max_size=6, unique=True))
def test_a_row_twice_is_a_row_of_weight_two(loss, seed, chosen):
    X, y = data(loss, seed)
    weight = np.ones(len(y))
    weight[chosen] = 2.0
    extra = np.concatenate([np.arange(len(y)), chosen])
    fold = np.zeros(len(y), dtype=int)
    for t, (_, validation) in enumerate(SPLITS):
        fold[validation] = t
    fold = fold[extra]
    splits = [(np.flatnonzero(fold != t), np.flatnonzero(fold == t)) for t in range(3)]
    weighted = program(X, y, SPLITS, loss, weight=weight)
    doubled = program(X[extra], y[extra], splits, loss)
    assert_same(everything(doubled, point(doubled)), everything(weighted, point(weighted)))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(losses, seeds, st.floats(0.1, 10))
def test_only_the_ratio_of_c_and_lam_matters(loss, seed, factor):
    X, y = data(loss, seed)
    bilevel, lam = program(X, y, SPLITS, loss), np.array([0.5, 1.0, 2.0])
    one = everything(bilevel, point(bilevel, C=0.3, lam=lam))
    other = everything(bilevel, point(bilevel, C=0.3 * factor, lam=lam * factor))
    assert_same(other, one)
    assert one[1][0] == pytest.approx(-one[1][1:4].sum(), rel=1e-6, abs=1e-12)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(losses, seeds)
def test_the_sign_of_the_target_does_not_matter(loss, seed):
    X, y = data(loss, seed)
    plain, mirrored = program(X, y, SPLITS, loss), program(X, -y, SPLITS, loss)
    assert_same(everything(mirrored, point(mirrored)), everything(plain, point(plain)))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seeds, st.floats(0.01, 100))
def test_the_unit_of_the_target_scales_the_error(seed, unit):
    loss = SquaredEpsilonInsensitive()
    X, y = data(loss, seed)
    plain, scaled = program(X, y, SPLITS, loss), program(X, unit * y, SPLITS, loss)
    a = plain.evaluate(point(plain, epsilon=0.4)).objective
    b = scaled.evaluate(point(scaled, epsilon=0.4 * unit)).objective
    assert b == pytest.approx(unit**2 * a, rel=1e-8)


def test_a_closed_tube_is_least_squares():
    X, y = data(Squared())
    tube, plain = program(X, y, SPLITS, SquaredEpsilonInsensitive()), program(X, y, SPLITS, Squared())
    a = everything(tube, point(tube, epsilon=0.0))
    b = everything(plain, point(plain))
    assert_same((a[0], a[1][:4]), b)


# What the objective is.


def test_against_cross_val_score():
    X, y = data(Squared())
    bilevel = program(X, y, SPLITS, Squared())
    theta = point(bilevel, C=0.2, lam=1.0)
    wanted = -cross_val_score(Ridge(alpha=1 / 0.4), X, y, cv=SPLITS, scoring="neg_mean_squared_error")
    evaluation = bilevel.evaluate(theta)
    assert evaluation.objective == pytest.approx(wanted.mean(), rel=1e-9)
    assert relative_error(evaluation.task_objectives, wanted) < 1e-9


@pytest.mark.parametrize("with_mean", [True, False])
@pytest.mark.parametrize("with_std", [True, False])
def test_a_scaler_in_the_pipeline_is_algebra(with_mean, with_std):
    X, y = data(Squared())
    X = X * np.array([0.1, 1.0, 20.0]) + np.array([0.0, 3.0, -8.0])
    bilevel = program(X, y, SPLITS, Squared(), standardize=(with_mean, with_std))
    pipeline = make_pipeline(StandardScaler(with_mean=with_mean, with_std=with_std), Ridge(alpha=1 / 0.04))
    wanted = -cross_val_score(pipeline, X, y, cv=SPLITS, scoring="neg_mean_squared_error")
    evaluation = bilevel.evaluate(point(bilevel, C=0.02, lam=1.0))
    assert relative_error(evaluation.task_objectives, wanted) < 1e-8


@pytest.mark.parametrize("with_mean", [True, False])
def test_a_scaler_and_a_penalised_intercept(with_mean):
    """The penalty falls on the intercept of the standardised model."""
    loss, strength = SquaredEpsilonInsensitive(), 0.7
    X, y = data(loss)
    X = X * np.array([0.1, 1.0, 20.0]) + np.array([0.0, 3.0, -8.0])
    together = program(X, y, SPLITS, loss, standardize=(with_mean, True), strength=strength)
    theta = point(together)
    value, gradient = everything(together, theta)
    total, slope = 0.0, 0.0
    for train, validation in SPLITS:
        scaled = StandardScaler(with_mean=with_mean).fit(X[train]).transform(X)
        own = program(scaled, y, [(train, validation)], loss, strength=strength)
        part = everything(own, theta)
        total, slope = total + part[0] / 3, slope + part[1] / 3
    assert_same((value, gradient), (total, slope))


def test_the_criterion_is_weighted_within_folds():
    bilevel, theta = small_bilevel(Squared(), Squared(), sample_weight=True)
    problem, evaluation = bilevel.problems[0], bilevel.evaluate(theta)
    Z = evaluation.solutions[0].decisions
    for t, rows in enumerate(problem.folds.validation):
        wanted = np.average((Z[t, rows] - problem.Y[0, rows]) ** 2, weights=problem.weight[rows])
        assert evaluation.task_objectives[t] == pytest.approx(wanted, rel=1e-10)
    assert evaluation.objective == pytest.approx(evaluation.task_objectives.mean(), rel=1e-12)


def test_one_vs_rest_problems_are_averaged():
    bilevel, theta = small_bilevel(SquaredHinge(), Squared(), n_targets=3)
    evaluation = bilevel.evaluate(theta)
    assert len(evaluation.task_objectives) == 9
    assert evaluation.objective == pytest.approx(evaluation.task_objectives.mean(), rel=1e-12)


def test_problems_of_their_own_per_fold_share_one_objective():
    """A pipeline step that changes the columns gives each fold its own problem."""
    loss = SquaredEpsilonInsensitive()
    X, y = data(loss)
    together = program(X, y, SPLITS, loss)
    theta = point(together)
    space, dimensions = (
        together.space,
        {"C": Log(1e-8, 1e8), "lam": Log(1e-8, 1e8, per="feature"), "epsilon": Lin(0, 100)},
    )
    model = LinearModel(loss, ROLES, {"C": 1.0, "epsilon": 0.0, "lam": 1.0})
    parts = [
        assemble(model, X, Rows(y[None]), [split], space, dimensions=dimensions, n_total=3)
        for split in SPLITS
    ]
    apart = Bilevel(parts, Squared(), space, Newton(tol=1e-12))
    assert apart.n_tasks == together.n_tasks == 3
    assert_same(everything(apart, theta), everything(together, theta))
    a = apart.differentiate(apart.evaluate(theta), order=2)
    b = together.differentiate(together.evaluate(theta), order=2)
    assert relative_error(a.task_objectives, b.task_objectives) < 1e-9
    warm = apart.evaluate(theta + 0.1, a)
    assert warm.objective == pytest.approx(together.evaluate(theta + 0.1).objective, rel=1e-9)


# The evaluation itself.


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_warm_starts_change_the_work_not_the_answer(loss):
    X, y = data(loss)
    bilevel = program(X, y, SPLITS, loss)
    here = bilevel.differentiate(bilevel.evaluate(point(bilevel)), order=2)
    for shift in (1e-3, 0.3, -2.0):
        theta = here.theta.copy()
        theta[:4] += shift
        cold, warm = bilevel.evaluate(theta), bilevel.evaluate(theta, here)
        assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    near = bilevel.evaluate(here.theta + 1e-4 * (np.arange(len(here.theta)) < 4), here)
    assert near.solutions[0].steps <= cold.solutions[0].steps


class Watching(Newton):
    """Remembers where it was asked to start."""

    starts: list = []  # noqa: RUF012

    def solve(self, problem, theta, state, workspace):
        self.starts.append(state.W.copy())
        return super().solve(problem, theta, state, workspace)


def test_a_warm_start_is_a_first_order_prediction():
    """With sensitivities the start is off by the square of the step; without them by the step itself."""
    bilevel, theta = small_bilevel(Logistic(), Squared(), {"C": Log(1e-4, 1e2)}, solver=Watching(tol=1e-12))
    plain = bilevel.evaluate(theta)
    predicting = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    ratios = []
    for here in (plain, predicting):
        misses = []
        for step in (0.1, 0.05):
            there = bilevel.evaluate(theta + step, here)
            misses.append(np.abs(there.solutions[0].W - Watching.starts[-1]).max())
        ratios.append(misses[0] / misses[1])
    assert 1.8 < ratios[0] < 2.2
    assert 3.5 < ratios[1] < 4.5


def test_evaluations_are_counted_and_clipped():
    bilevel, theta = small_bilevel(Logistic(), Squared())
    far = bilevel.evaluate(bilevel.space.upper + 5.0)
    np.testing.assert_array_equal(far.theta, bilevel.space.upper)
    bilevel.evaluate(theta)
    assert bilevel.n_evaluations == 2
    assert bilevel.n_inner_steps >= 2


def test_the_same_evaluation_gives_the_same_bits():
    runs = []
    for _ in range(2):
        bilevel, theta = small_bilevel(
            SquaredEpsilonInsensitive(), Squared(), {"C": Log(1e-4, 1e2), "epsilon": Lin(0, 2)}
        )
        evaluation = bilevel.differentiate(bilevel.evaluate(theta), order=2)
        runs.append((evaluation.objective, evaluation.gradient.tobytes(), evaluation.hessian.tobytes()))
    assert runs[0] == runs[1]


def test_a_twin_has_a_state_of_its_own():
    bilevel, theta = small_bilevel(SquaredHinge(), Squared())
    here = bilevel.evaluate(theta)
    kept = bilevel.workspaces[0].G.copy()
    twin = bilevel.twin()
    there = twin.differentiate(twin.evaluate(theta - 2.0))
    np.testing.assert_array_equal(bilevel.workspaces[0].G, kept)
    assert np.any(kept != twin.workspaces[0].G)
    assert twin.problems[0] is bilevel.problems[0]
    direct = bilevel.differentiate(bilevel.evaluate(theta - 2.0))
    assert_same((there.objective, there.gradient), (direct.objective, direct.gradient))
    assert bilevel.evaluate(theta).objective == pytest.approx(here.objective, rel=1e-12)


# The certificate.


def test_the_certificate():
    bilevel, theta = small_bilevel(
        SquaredEpsilonInsensitive(), Squared(), {"C": Log(1e-4, 1e2), "epsilon": Lin(0, 2)}
    )
    theta[1] = 0.0
    evaluation = bilevel.evaluate(theta)
    certificate = bilevel.certify(evaluation)
    assert len(certificate["kkt"]) == 3
    assert max(certificate["kkt"]) < 1e-10
    assert certificate["at_bound"] == {"epsilon": "lower"}
    assert certificate["n_kinks"] == 0
    assert certificate["gradient_norm"] == pytest.approx(np.linalg.norm(bilevel.projected(evaluation)))


def test_the_kkt_residual_is_computed_from_the_rows():
    """It sees an error that the kept matrices hide."""
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared())
    bilevel.workspaces[0].b0 *= 1.01
    spoiled = bilevel.evaluate(theta)
    assert spoiled.converged
    assert max(bilevel.certify(spoiled)["kkt"]) > 1e-5


def test_no_gradient_norm_without_a_gradient():
    bilevel, theta = small_bilevel(Logistic(), Misclassification())
    assert bilevel.certify(bilevel.evaluate(theta))["gradient_norm"] is None


def test_the_projected_gradient_drops_what_pushes_against_a_bound():
    bilevel, theta = small_bilevel(Logistic(), Squared(), {"C": Log(1e-4, 1e2), "lam": Log(1e-3, 1e3)})
    evaluation = bilevel.differentiate(bilevel.evaluate(bilevel.space.lower))
    g = evaluation.gradient
    np.testing.assert_array_equal(bilevel.projected(evaluation), np.where(g > 0, 0.0, g))
    evaluation = bilevel.differentiate(bilevel.evaluate(bilevel.space.upper))
    g = evaluation.gradient
    np.testing.assert_array_equal(bilevel.projected(evaluation), np.where(g < 0, 0.0, g))
    inside = bilevel.differentiate(bilevel.evaluate(theta))
    np.testing.assert_array_equal(bilevel.projected(inside), inside.gradient)
