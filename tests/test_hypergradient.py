"""Derivatives of the cross-validation error against central differences, for everything that can be tuned."""

from __future__ import annotations

import numpy as np
import pytest

from foldwise.bilevel import Bilevel
from foldwise.losses import (
    CRITERIA,
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    SmoothMisclassification,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.penalties import Quadratic
from foldwise.problems.linear import LinearProblem
from foldwise.space import Lin, Log
from foldwise.testing import (
    SMOOTH_LOSSES,
    check_hypergradient,
    check_hyperhessian,
    relative_error,
    small_bilevel,
)

TWICE = [loss for loss in SMOOTH_LOSSES if not loss.kinks(np.zeros(1), np.ones(1))]
C = Log(1e-4, 1e2)
TUNES = {
    "C": {"C": C},
    "C Lin": {"C": Lin(1e-4, 5.0)},
    "C per group": {"C": Log(1e-4, 1e2, per="group")},
    "C per group, tied": {"C": Log(1e-4, 1e2, per="group", tie=["a", "b", "a"])},
    "C Lin per group, tied": {"C": Lin(1e-4, 5.0, per="group", tie=["a", "b", "a"])},
    "lam": {"lam": Log(1e-3, 1e3)},
    "lam per feature": {"lam": Log(1e-3, 1e3, per="feature")},
    "lam Lin per feature": {"lam": Lin(1e-3, 1e3, per="feature")},
    "lam per feature, tied": {"C": C, "lam": Log(1e-3, 1e3, per="feature", tie=[0, 1, 1, 0, 2])},
    "epsilon": {"epsilon": Lin(0, 2)},
    "C, epsilon": {"C": C, "epsilon": Lin(0, 2)},
    "C, epsilon Log": {"C": C, "epsilon": Log(1e-3, 2)},
    "C, epsilon per group": {"C": Log(1e-4, 1e2, per="group"), "epsilon": Lin(0, 2, per="group")},
    "epsilon per group, tied": {"C": C, "epsilon": Lin(0, 2, per="group", tie=[0, 0, 1])},
    "class_weight": {"class_weight": Log(0.05, 20, per="class")},
    "C, class_weight": {"C": Log(1e-4, 1e2, per="group"), "class_weight": Log(0.05, 20, per="class")},
    "everything": {
        "C": Log(1e-4, 1e2, per="group"),
        "epsilon": Lin(0, 2, per="group"),
        "lam": Log(1e-3, 1e3, per="feature"),
        "class_weight": Lin(0.05, 20, per="class"),
    },
}


def criteria(loss):
    """The registered criteria that have a derivative and fit the labels of this loss."""
    fits = [kind for kind in CRITERIA.values() if kind.differentiable]
    return [kind() for kind in fits if loss.task == "classification" or kind.task == "regression"]


def applies(loss, name):
    return ("epsilon" in loss.tunable or "epsilon" not in TUNES[name]) and (
        name != "everything" or "epsilon" in loss.tunable
    )


def cases(losses, smooth_criteria=False):
    return [
        pytest.param(
            loss, criterion, TUNES[name], id=f"{type(loss).__name__}-{type(criterion).__name__}-{name}"
        )
        for loss in losses
        for criterion in criteria(loss)
        for name in TUNES
        if applies(loss, name) and (criterion.smooth or not smooth_criteria)
    ]


@pytest.mark.parametrize(("loss", "criterion", "tune"), cases(SMOOTH_LOSSES))
def test_gradient(loss, criterion, tune):
    check_hypergradient(*small_bilevel(loss, criterion, tune))


@pytest.mark.parametrize(("loss", "criterion", "tune"), cases(TWICE, smooth_criteria=True))
def test_hessian(loss, criterion, tune):
    check_hyperhessian(*small_bilevel(loss, criterion, tune))


@pytest.mark.parametrize(
    ("loss", "criterion", "tune"),
    cases([SquaredEpsilonInsensitive(), Huber(), SquaredHinge()], smooth_criteria=True),
)
def test_hessian_between_kinks(loss, criterion, tune):
    """Without the window that stands for rows about to change piece, the matrix is exact on a piece."""
    check_hyperhessian(*small_bilevel(loss, criterion, tune))


PROGRAMS = {
    "sparse": {"sparse": True},
    "weights": {"sample_weight": True},
    "overlap": {"overlap": True},
    "no intercept": {"intercept": False},
    "three targets": {"n_targets": 3},
    "all of it": {
        "sparse": True,
        "sample_weight": True,
        "overlap": True,
        "n_targets": 2,
    },
}


@pytest.mark.parametrize("options", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("loss", [SquaredEpsilonInsensitive(), SquaredHinge(), Logistic()], ids=repr)
def test_gradient_and_hessian_of_other_programs(loss, options):
    tune = {"C": Log(1e-4, 1e2, per="group"), "lam": Log(1e-3, 1e3, per="feature")}
    if "epsilon" in loss.tunable:
        tune["epsilon"] = Lin(0, 2, per="group")
    else:
        tune["class_weight"] = Log(0.05, 20, per="class")
    program = small_bilevel(loss, Squared(), tune, **options)
    check_hypergradient(*program)
    check_hyperhessian(*program)


@pytest.mark.parametrize("loss", [SquaredEpsilonInsensitive(), SquaredHinge(), Logistic()], ids=repr)
def test_one_value_per_one_vs_rest_problem(loss):
    tune = {"C": Log(1e-4, 1e2, per="class")}
    if "epsilon" in loss.tunable:
        tune["epsilon"] = Lin(0, 2, per="class")
    bilevel, theta = small_bilevel(loss, Squared(), tune, n_targets=3)
    assert bilevel.n_tasks == 9
    check_hypergradient(bilevel, theta)
    check_hyperhessian(bilevel, theta)


@pytest.mark.parametrize(
    "criterion", [Huber(), SquaredEpsilonInsensitive(0.4), EpsilonInsensitive(0.4)], ids=repr
)
def test_any_loss_may_be_the_criterion(criterion):
    tune = {"C": C, "epsilon": Lin(0, 2)}
    check_hypergradient(*small_bilevel(SquaredEpsilonInsensitive(), criterion, tune))


def test_a_fixed_tube_is_kept_when_only_c_is_tuned():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(0.6), Squared(), {"C": C})
    closed, _ = small_bilevel(SquaredEpsilonInsensitive(0.0), Squared(), {"C": C})
    assert bilevel.evaluate(theta).objective != pytest.approx(closed.evaluate(theta).objective, rel=1e-3)
    check_hypergradient(bilevel, theta)


@pytest.mark.parametrize("loss", [SquaredEpsilonInsensitive(), Logistic()], ids=repr)
def test_a_penalised_intercept(loss):
    """The rank-one term of the penalty takes part in every solve."""
    tune = {"C": C, "lam": Log(1e-3, 1e3, per="feature")}
    bilevel, theta = small_bilevel(loss, Squared(), tune)
    free = bilevel.evaluate(theta).objective
    old = bilevel.problems[0]
    form = np.random.default_rng(1).normal(size=(old.n_tasks, old.n_columns))
    penalty = Quadratic(old.penalty.scale, old.n_columns, form, 2.0)
    problem = LinearProblem(old.data, old.design, penalty)
    bilevel = Bilevel([problem], bilevel.criterion, bilevel.space, bilevel.solver)
    assert bilevel.evaluate(theta).objective != pytest.approx(free, rel=1e-3)
    check_hypergradient(bilevel, theta)
    check_hyperhessian(bilevel, theta)


def test_a_prior_adds_its_value_and_derivatives():
    centre = np.array([0.3, -0.2])

    def prior(theta):
        return float(np.sum((theta - centre) ** 2)), 2.0 * (theta - centre), 2.0 * np.eye(2)

    tune = {"C": C, "class_weight": Log(0.05, 20, per="class")}
    bilevel, theta = small_bilevel(Logistic(), Logistic(), tune)
    plain = bilevel.evaluate(theta).objective
    bilevel.prior = prior
    assert bilevel.evaluate(theta).objective == pytest.approx(plain + prior(theta)[0], rel=1e-12)
    check_hypergradient(bilevel, theta)
    check_hyperhessian(bilevel, theta)


def test_gauss_newton_is_positive_semidefinite_and_not_the_exact_matrix():
    tune = TUNES["C, epsilon per group"]
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), tune)
    exact = bilevel.differentiate(bilevel.evaluate(theta), order=2).hessian
    gauss = bilevel.differentiate(bilevel.evaluate(theta), order=2, exact=False).hessian
    assert np.linalg.eigvalsh(gauss).min() >= -1e-12 * np.abs(gauss).max()
    assert relative_error(gauss, exact) > 1e-2


def test_sensitivities_are_the_derivatives_of_the_weights():
    tune = TUNES["C, epsilon per group"]
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), tune)
    J = bilevel.differentiate(bilevel.evaluate(theta), order=2).sensitivities[0]
    for i, h in enumerate(np.diag(np.full(len(theta), 1e-6))):
        up, down = bilevel.evaluate(theta + h), bilevel.evaluate(theta - h)
        assert relative_error(J[:, :, i], (up.solutions[0].W - down.solutions[0].W) / 2e-6) < 1e-6


# moore2011 (27): the linear system for dw/depsilon.


@pytest.fixture
def tube_program():
    """A program whose error falls when the tube opens, and the two sides of the paper's equation (27)."""
    tune = {"C": C, "epsilon": Lin(0, 3)}
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), tune, n=80, seed=4)
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    problem, point = bilevel.problems[0], here.solutions[0]
    return bilevel, here, problem, point


def printed_right_hand_side(problem, point):
    """``C sum [-d+ x + d- x]`` over training rows; the paper's C is twice ours (its loss has a factor 1/2)."""
    out = np.zeros_like(point.W)
    for m in range(problem.n_tasks):
        rows = problem.folds.train[problem.split[m]]
        r = point.decisions[m, rows] - problem.Y[0, rows]
        epsilon, c = point.par.epsilon[m, 0], 2.0 * point.par.c[m, 0]
        above, below = (r > epsilon).astype(float), (r < -epsilon).astype(float)
        out[m] = c * (-above + below) @ problem.design.dense(np.flatnonzero(rows))
    return out


def test_the_epsilon_block_of_moore2011_has_the_opposite_sign(tube_program):
    bilevel, here, problem, point = tube_program
    h = np.array([0.0, 1e-6])
    up, down = bilevel.evaluate(here.theta + h, here), bilevel.evaluate(here.theta - h, here)
    numeric = (up.solutions[0].W - down.solutions[0].W) / 2e-6
    hess = problem.hess(point.W, point.par)
    printed = np.linalg.solve(hess, printed_right_hand_side(problem, point)[:, :, None])[:, :, 0]
    assert np.abs(numeric).max() > 1e-2
    assert relative_error(-printed, numeric) < 1e-6
    assert relative_error(here.sensitivities[0][:, :, 1], numeric) < 1e-6


def test_the_right_sign_descends_and_the_printed_one_does_not(tube_program):
    bilevel, here, problem, point = tube_program
    hess = problem.hess(point.W, point.par)
    printed = np.linalg.solve(hess, printed_right_hand_side(problem, point)[:, :, None])[:, :, 0]
    slope = 0.0
    for m, rows, z, y, v in problem.validation(point):
        slope += v @ (
            bilevel.criterion.loss.grad(z, y) * problem.design.decisions(printed[m : m + 1], rows)[0]
        )
    assert abs(slope) > 1e-2
    assert slope == pytest.approx(-here.gradient[1], rel=1e-6)
    for step in (1e-3, 1e-4):
        right = here.theta - step * np.sign([0.0, here.gradient[1]])
        wrong = here.theta - step * np.sign([0.0, slope])
        assert bilevel.evaluate(right).objective < here.objective < bilevel.evaluate(wrong).objective


# The window.


def change_of_gradient(bilevel, theta, h):
    """Second difference over a step that many rows cross."""
    up, down = (bilevel.differentiate(bilevel.evaluate(theta + s * h)).gradient for s in (1, -1))
    return float(up[0] - down[0]) / (2 * h)


@pytest.mark.parametrize(
    ("loss", "c", "d"), [(Huber(), 1e-3, 3), (SquaredHinge(), 7e-5, 40)], ids=["huber", "squared_hinge"]
)
def test_the_window_sees_the_rows_that_change_piece(loss, c, d):
    """On large samples the windowed Hessian predicts how the gradient changes; the blind one does much worse."""
    missed_with = missed_without = 0.0
    for seed in range(1, 5):
        bilevel, _ = small_bilevel(loss, Squared(), {"C": Log(1e-6, 1e2)}, n=4000, d=d, seed=seed)
        here = bilevel.differentiate(bilevel.evaluate(np.log([c])), order=2)
        change = change_of_gradient(bilevel, here.theta, 0.15)
        blind = bilevel.second_order(here, window=None)[0][0, 0]
        missed_with += abs(here.hessian[0, 0] - change)
        missed_without += abs(blind - change)
    assert missed_with < 0.5 * missed_without


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_the_window_sees_rows_leave_a_tube_that_widens(epsilon):
    """The mixed derivative in C and epsilon, where most of it comes from rows that change piece."""
    h, seen, blind = 0.3, 0.0, 0.0
    for seed in range(3):
        tune = {"C": Log(1e-6, 1e2), "epsilon": Lin(0, 3)}
        bilevel, _ = small_bilevel(SquaredEpsilonInsensitive(), Squared(), tune, n=3000, d=20, seed=seed)
        here = bilevel.differentiate(bilevel.evaluate(np.array([np.log(3e-4), epsilon])), order=2)
        up, down = (
            bilevel.differentiate(bilevel.evaluate(here.theta + sign * np.array([0.0, h])))
            for sign in (1, -1)
        )
        change = (up.gradient[0] - down.gradient[0]) / (2 * h)
        here = bilevel.differentiate(bilevel.evaluate(here.theta), order=2)
        without = bilevel.second_order(here, window=None)[0]
        seen += abs(here.hessian[0, 1] - change)
        blind += abs(without[0, 1] - change)
    assert seen < 0.25 * blind


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("loss", "criterion"), [(Squared(), Absolute()), (Logistic(), Hinge())], ids=["absolute", "hinge"]
)
def test_the_window_sees_the_corners_of_the_criterion(loss, criterion, seed):
    bilevel, _ = small_bilevel(loss, criterion, {"C": Log(1e-6, 1e2)}, n=3000, d=20, seed=seed)
    here = bilevel.differentiate(bilevel.evaluate(np.log([1e-3])), order=2)
    change = change_of_gradient(bilevel, here.theta, 0.3)
    assert abs(change) > 1e-3
    assert here.hessian[0, 0] == pytest.approx(change, rel=0.25)


def test_a_closed_tube_has_the_hessian_of_least_squares():
    closed, theta = small_bilevel(SquaredEpsilonInsensitive(0.0), Squared(), {"C": C})
    plain, _ = small_bilevel(Squared(), Squared(), {"C": C})
    wanted = plain.differentiate(plain.evaluate(theta), order=2).hessian
    assert relative_error(closed.differentiate(closed.evaluate(theta), order=2).hessian, wanted) < 1e-9


def test_the_checks_can_fail():
    """A criterion with a wrong derivative is found."""

    class Wrong(SmoothMisclassification):
        def grad(self, z, y):
            return 1.001 * super().grad(z, y)

    with pytest.raises(AssertionError, match="relative error"):
        check_hypergradient(*small_bilevel(Logistic(), Wrong()))

    class Flat(SmoothMisclassification):
        def value(self, z, y):
            return np.full(z.shape, 0.5)

        def grad(self, z, y):
            return np.zeros(z.shape)

    with pytest.raises(AssertionError, match="negligible"):
        check_hypergradient(*small_bilevel(Logistic(), Flat()))
