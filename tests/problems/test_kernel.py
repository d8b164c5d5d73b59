"""Kernel problems in representer form: derivatives, agreement with linear models, and independent solutions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.model_selection import KFold

from foldwise.bilevel import Bilevel
from foldwise.criteria import MeanLoss
from foldwise.kernels import RBF, AdditiveChi2, ExpChi2, Linear, Polynomial, Sum
from foldwise.losses import (
    CRITERIA,
    Hinge,
    Logistic,
    Pinball,
    QuarticHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.kernel import KernelModel, assemble_kernel
from foldwise.models.linear import LinearModel, assemble
from foldwise.problems.gram import ActiveSystem
from foldwise.problems.kernel import KernelLinearization
from foldwise.solvers.newton import Newton
from foldwise.solvers.representer import RepresenterNewton
from foldwise.space import Lin, Log
from foldwise.testing import SMOOTH_LOSSES, check_hypergradient, relative_error, small_kernel_bilevel
from tests.makers import histograms
from tests.referees import kernel_machine

KERNELS = {
    "linear": Linear(),
    "rbf": RBF(0.4),
    "ard": RBF([0.2, 0.5, 0.9]),
    "polynomial": Polynomial(2, 0.3, 0.8),
    "exp chi2": ExpChi2(0.8),
    "additive chi2": AdditiveChi2(),
    "sum": Sum([RBF(0.4), Polynomial(2, 0.3, 0.8), Linear()], [0.5, 0.3, 0.4], [[0, 2], slice(1, 3), [1]]),
    "nested": Sum([Sum([RBF(0.3, ard=True), Linear()], [0.6, 0.2], [[0, 1], [1]]), RBF(0.7)], [0.8, 0.5]),
}
WIDTHS = {"C": Log(1e-4, 1e4), "kernel__gamma": Log(1e-4, 1e4, per="feature")}
RIDGE = KernelModel(
    Squared(),
    RBF(0.5),
    {"C": Role("log_c"), "gamma": Role("log_kernel")},
    {"C": 1.0, "gamma": [0.5]},
    {"gamma": "gamma"},
)


def program(loss, criterion, kernel, *args, **options):
    return small_kernel_bilevel(loss, criterion, kernel, *args, rows=histograms, **options)


def criteria(loss):
    """The registered criteria that have a derivative and fit the labels of this loss."""
    fits = [kind for kind in CRITERIA.values() if kind.differentiable]
    fits = [kind for kind in fits if loss.task == "classification" or kind.task == "regression"]
    return [Pinball(0.3) if kind is Pinball else kind() for kind in fits]


COMBINATIONS = [(loss, criterion) for loss in SMOOTH_LOSSES for criterion in criteria(loss)]


# Derivatives.


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(("loss", "criterion"), COMBINATIONS, ids=repr)
def test_hypergradient(loss, criterion, kernel, intercept):
    check_hypergradient(*program(loss, criterion, kernel, n=24, intercept=intercept, seed=1))


TUBES = {"epsilon": Lin(0, 5, per="group")}
VARIANTS = {
    "sample weights": ({}, {"sample_weight": True}),
    "overlapping splits": ({}, {"overlap": True}),
    "C per group": ({"C": Log(1e-4, 1e4, per="group")}, {"n_groups": 3}),
    "C per group, tied": ({"C": Log(1e-4, 1e4, per="group", tie=["a", "b", "a"])}, {"n_groups": 3}),
    "C on a linear scale": ({"C": Lin(1e-4, 10)}, {}),
    "tubes per group": ({"C": Log(1e-4, 1e4, per="group"), **TUBES}, {"n_groups": 2, "sample_weight": True}),
    "tubes per group, tied": ({"epsilon": Lin(0, 5, per="group", tie=[0, 0, 1])}, {"n_groups": 3}),
    "a tube on a logarithmic scale": ({"epsilon": Log(1e-3, 5)}, {}),
    "class weights": ({"C": Log(1e-4, 1e4), "class_weight": Log(0.05, 20, per="class")}, {}),
    "class weights alone": ({"class_weight": Log(0.05, 20, per="class")}, {}),
    "class weights and groups": (
        {"C": Log(1e-4, 1e4, per="group"), "class_weight": Log(0.05, 20, per="class")},
        {"n_groups": 2, "sample_weight": True},
    ),
    "balanced classes": ({}, {"class_weight": "balanced"}),
    "fixed class weights": ({}, {"class_weight": {0: 3.0, 1: 0.5}}),
    "one against the rest": ({}, {"n_classes": 3}),
    "C per class": ({"C": Log(1e-4, 1e4, per="class")}, {"n_classes": 3}),
    "one against one": ({}, {"n_classes": 3, "multiclass": "ovo"}),
    "widths tied": ({"kernel__gamma": Log(1e-4, 1e4, per="feature", tie=[0, 1, 0])}, {}),
    "one width": ({"kernel__gamma": Log(1e-4, 1e4)}, {}),
    "widths on a linear scale": ({"kernel__gamma": Lin(1e-4, 5, per="feature")}, {}),
}


def suits(loss, tune, options):
    needs_classes = {"n_classes", "class_weight"} & set(options) or "class_weight" in tune
    if loss.task == "regression":
        return not needs_classes and ("epsilon" in loss.tunable or "epsilon" not in tune)
    return "epsilon" not in tune


TUNED = [
    (loss, name)
    for loss in (SquaredEpsilonInsensitive(), SquaredHinge(), QuarticHinge(0.5))
    for name in VARIANTS
    if suits(loss, *VARIANTS[name])
]


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize(("loss", "name"), TUNED, ids=str)
def test_hypergradient_of_everything_that_can_be_tuned(loss, name, intercept):
    tune, options = VARIANTS[name]
    criterion = Squared() if loss.task == "regression" else Logistic(2.0)
    bilevel, theta = small_kernel_bilevel(
        loss, criterion, RBF([0.2, 0.5, 0.9]), {**WIDTHS, **tune}, intercept=intercept, **options
    )
    assert bilevel.space.size >= 2
    check_hypergradient(bilevel, theta)


def test_the_check_of_hypergradients_can_fail(monkeypatch):
    bilevel, theta = program(SquaredHinge(), Logistic(2.0), RBF(0.4))
    right = KernelLinearization.pullback

    def wrong(self, u):
        found = right(self, u)
        return {**found, "log_kernel": 1.00001 * found["log_kernel"]}

    monkeypatch.setattr(KernelLinearization, "pullback", wrong)
    with pytest.raises(AssertionError, match="hypergradient"):
        check_hypergradient(bilevel, theta)


def variables(solution):
    """Decisions and intercepts."""
    return np.column_stack([solution.decisions, solution.b])


def moves(bilevel, theta, h=1e-5):
    """Central differences of decisions and intercepts."""
    columns = []
    for step in h * np.eye(len(theta)):
        up, down = (variables(bilevel.evaluate(theta + sign * step).solutions[0]) for sign in (1, -1))
        columns.append((up - down) / (2 * h))
    return np.stack(columns, axis=2)


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_sensitivities(loss, kernel, intercept):
    bilevel, theta = program(loss, Squared(), kernel, n=24, intercept=intercept)
    point = bilevel.evaluate(theta).solutions[0]
    J, wanted = bilevel.linearized(0, point).sensitivities(), moves(bilevel, theta)
    for k, name in enumerate(bilevel.space.names):
        assert np.abs(wanted[:, :, k]).max() > 1e-4, name
        assert relative_error(J[:, :, k], wanted[:, :, k]) < 1e-6, name
    if not intercept:
        assert not J[:, -1].any()


def test_the_hyperhessian_is_that_of_gauss_and_newton():
    bilevel, theta = program(SquaredEpsilonInsensitive(), Squared(), RBF(0.4))
    evaluation = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    problem = bilevel.problems[0]
    J, wanted = moves(bilevel, theta), 0.0
    for m, rows, _, _, v in problem.validation(evaluation.solutions[0]):
        wanted = wanted + 2.0 * (J[m, :-1][rows].T * v) @ J[m, :-1][rows]
    wanted[np.diag_indices(3)] += evaluation.solutions[0].par.scale_curvature * evaluation.gradient
    assert np.abs(wanted).max() > 1e-3
    assert relative_error(evaluation.hessian, wanted) < 1e-6


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("kernel", [k for k in KERNELS if "additive" not in k and k != "linear"])
def test_hypergradient_through_landmarks(kernel, intercept):
    for loss, criterion in ((SquaredEpsilonInsensitive(), Squared()), (QuarticHinge(0.5), Logistic(2.0))):
        bilevel, theta = program(loss, criterion, KERNELS[kernel], landmarks=7, intercept=intercept)
        check_hypergradient(bilevel, theta)


def test_all_rows_as_landmarks_are_the_kernel_itself():
    dense, theta = program(QuarticHinge(0.5), Logistic(2.0), RBF(3.0, ard=True))
    seen, _ = program(QuarticHinge(0.5), Logistic(2.0), RBF(3.0, ard=True), landmarks=36)
    a, b = (p.differentiate(p.evaluate(theta)) for p in (dense, seen))
    assert b.objective == pytest.approx(a.objective, rel=1e-6)
    assert relative_error(b.gradient, a.gradient) < 1e-5
    count, bound = seen.problems[0].approximation(b.solutions[0], seen.workspaces[0])
    assert count == 36
    assert bound < 1e-5
    few, _ = program(QuarticHinge(0.5), Logistic(2.0), RBF(3.0, ard=True), landmarks=9)
    point = few.evaluate(theta).solutions[0]
    exact = dense.problems[0].workspace().at(point.par.log_kernel[0]).product(point.alpha) + point.b[:, None]
    gap = np.abs(exact - point.decisions).max()
    assert gap > 1e-3
    assert gap <= few.problems[0].approximation(point, few.workspaces[0])[1] * (1 + 1e-9)
    assert dense.problems[0].approximation(a.solutions[0], dense.workspaces[0]) is None


# Agreement with a linear model.


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_a_linear_kernel_is_the_linear_model(loss, intercept):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) + [0.3, 0.0, -0.5]
    y = X @ [1.0, -0.5, 0.2] + 0.5 * rng.normal(size=40) + 0.4
    if loss.task == "classification":
        y = np.where(y > 0, 1.0, -1.0)
    rows, splits = Rows(y[None], rng.uniform(0.5, 2.0, 40)), list(KFold(4).split(X))
    dimensions = {"C": Log(1e-4, 1e4)} | ({"epsilon": Lin(0, 3)} if "epsilon" in loss.tunable else {})
    roles = {"C": Role("log_c")} | ({"epsilon": Role("epsilon")} if "epsilon" in loss.tunable else {})
    space = make_space(dimensions, rows, range(3))
    linear = assemble(
        LinearModel(loss, {**roles, "lam": Role("log_lam")}, {"C": 1.0, "lam": 1.0}, intercept),
        X,
        rows,
        splits,
        space,
        dimensions=dimensions,
    )
    model = KernelModel(loss, Linear(), roles, {"C": 1.0}, {}, intercept)
    kernel = assemble_kernel(model, X, rows, splits, space, dimensions=dimensions)
    a = Bilevel([linear], Squared(), space, Newton(tol=1e-12))
    b = Bilevel([kernel], Squared(), space, RepresenterNewton(tol=1e-12))
    theta = space.theta({"C": 0.7, **({"epsilon": 0.15} if "epsilon" in dimensions else {})})
    one, other = (p.differentiate(p.evaluate(theta)) for p in (a, b))
    assert other.objective == pytest.approx(one.objective, rel=1e-9)
    assert relative_error(other.task_objectives, one.task_objectives) < 1e-9
    assert np.abs(one.gradient).max() > 1e-4
    assert relative_error(other.gradient, one.gradient) < 1e-7
    assert relative_error(other.solutions[0].decisions, linear.design.decisions(one.solutions[0].W)) < 1e-8


# Independent solutions.


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("kernel", ["rbf", "polynomial", "sum"])
@pytest.mark.parametrize("loss", [SquaredHinge(), SquaredEpsilonInsensitive()], ids=repr)
def test_solutions_of_quadratic_programs(loss, kernel, intercept):
    bilevel, theta = program(loss, Squared(), KERNELS[kernel], n=18, intercept=intercept, sample_weight=True)
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    K, c = problem.workspace().at(point.par.log_kernel[0]).K, problem.strength(point.par)
    objectives = problem.value(point, problem.workspace())
    for m in range(problem.n_tasks):
        train = np.flatnonzero(problem.trains[m])
        tube = None if loss.task == "classification" else 0.2
        own = np.ix_(train, train)
        Z, value = kernel_machine(K[own], problem.Y[0][train], c[m][train], tube, intercept, squared=True)
        assert objectives[m] == pytest.approx(value, rel=1e-7)
        assert relative_error(point.decisions[m][train], Z) < 1e-5


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_a_general_minimiser_finds_nothing_better(loss, intercept):
    bilevel, theta = program(loss, Squared(), RBF(0.8), n=12, n_splits=2, intercept=intercept)
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    ours = problem.value(point, bilevel.workspaces[0])
    for m in range(problem.n_tasks):
        train = np.flatnonzero(problem.trains[m])

        def objective(x, m=m, train=train):
            alpha, b = np.zeros_like(point.alpha), np.zeros(problem.n_tasks)
            alpha[m, train], b[m] = x[:-1], x[-1] if intercept else 0.0
            return problem.value(replace(point, alpha=alpha, b=b), bilevel.workspaces[0])[m]

        found = minimize(objective, np.zeros(len(train) + 1), options={"gtol": 1e-8}).fun
        assert ours[m] <= found * (1 + 1e-10)
        assert ours[m] == pytest.approx(found, rel=1e-6)
        assert ours[m] < 0.99 * objective(np.zeros(len(train) + 1))


@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_conditions_of_optimality(loss):
    bilevel, theta = program(loss, Squared(), KERNELS["sum"])
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    assert problem.residual(point, problem.workspace()).max() < 1e-11
    assert not point.alpha[~problem.trains].any()
    assert np.abs(point.alpha.sum(axis=1)).max() < 1e-11 * np.abs(point.alpha).sum()
    off = replace(point, alpha=point.alpha * 1.001)
    assert problem.residual(off, problem.workspace()).min() > 1e-4


# State.


def test_starting_points_do_not_matter():
    bilevel, theta = program(QuarticHinge(0.5), Logistic(2.0), RBF(0.4))
    cold = bilevel.evaluate(theta)
    far = bilevel.differentiate(bilevel.evaluate(theta + [3.0, -2.0]), order=2)
    warm = bilevel.evaluate(theta, far)
    assert relative_error(variables(warm.solutions[0]), variables(cold.solutions[0])) < 1e-9
    again = bilevel.evaluate(theta, cold)
    assert again.solutions[0].steps < cold.solutions[0].steps


def test_an_old_evaluation_can_still_be_differentiated():
    """The kernel matrix is kept for one theta only."""
    for kernel in (KERNELS["nested"], RBF(0.4, ard=True)):
        bilevel, theta = program(SquaredEpsilonInsensitive(), Squared(), kernel)
        wanted = bilevel.differentiate(bilevel.evaluate(theta), order=2)
        early = bilevel.evaluate(theta)
        bilevel.evaluate(theta + 0.5)
        bilevel.differentiate(early, order=2)
        np.testing.assert_array_equal(early.gradient, wanted.gradient)
        np.testing.assert_array_equal(early.hessian, wanted.hessian)


@pytest.mark.parametrize("landmarks", [None, 9])
def test_twins_do_not_disturb_each_other(landmarks):
    bilevel, theta = program(SquaredHinge(), Logistic(2.0), KERNELS["nested"], landmarks=landmarks)
    wanted = bilevel.differentiate(bilevel.evaluate(theta))
    twin = bilevel.twin()
    mine = bilevel.evaluate(theta)
    other = twin.evaluate(theta + 0.7)
    bilevel.differentiate(mine)
    twin.differentiate(other)
    np.testing.assert_array_equal(mine.gradient, wanted.gradient)
    alone = bilevel.differentiate(bilevel.evaluate(theta + 0.7))
    assert relative_error(other.gradient, alone.gradient) < 1e-12


# Corner cases and refusals.


def test_when_no_row_is_active_the_intercept_stays():
    """A tube wider than the data: no row bends, and the answer is zero."""
    tune = {"epsilon": Lin(0, 1e6), "kernel__gamma": Log(1e-4, 1e4)}
    bilevel, _ = program(SquaredEpsilonInsensitive(), Squared(), RBF(0.4), tune)
    evaluation = bilevel.differentiate(bilevel.evaluate(np.array([1e5, 0.0])), order=2)
    assert evaluation.converged
    assert not evaluation.solutions[0].alpha.any()
    np.testing.assert_array_equal(evaluation.gradient, 0.0)


def test_rows_of_weight_zero_do_not_train():
    rng = np.random.default_rng(0)
    X, y, weight = rng.normal(size=(30, 2)), rng.normal(size=30), np.ones(30)
    weight[::3] = 0.0
    model = RIDGE
    dimensions, splits = {"C": Log(1e-3, 1e3)}, list(KFold(3).split(X))
    objectives = []
    for target in (y, y + 100.0 * (weight == 0)):
        rows = Rows(target[None], weight)
        space = make_space(dimensions, rows, range(2))
        problem = assemble_kernel(model, X, rows, splits, space, dimensions=dimensions)
        objectives.append(Bilevel([problem], Squared(), space, RepresenterNewton()).evaluate([0.0]).objective)
    assert objectives[0] == pytest.approx(objectives[1], rel=1e-10)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e8])
def test_the_solver_says_solved_only_of_what_the_rows_confirm(size):
    """A kernel that is huge in some directions and not in others: no rounded coefficients solve it to their digits."""
    bilevel, theta = small_kernel_bilevel(
        SquaredEpsilonInsensitive(),
        Squared(),
        Sum([RBF(0.5), Linear()], [2.0, 1.0]),
        {"C": Log(1e-3, 1e3)},
        n=24,
        C=10.0,
        rows=lambda rng, n, d: rng.normal(size=(n, d)) * size ** np.linspace(0, 1, d),
        solver=RepresenterNewton(),
    )
    at = bilevel.evaluate(theta)
    solved = np.array(bilevel.residuals(at)) <= 1e-5
    assert np.all(solved[at.solutions[0].converged])
    assert np.all(solved) == (size < 1e5)


def test_rows_at_a_kink_are_counted():
    bilevel, theta = program(SquaredHinge(), Squared(), RBF(0.4))
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    assert problem.n_kinks(point) == 0
    train, held = np.flatnonzero(problem.trains[0])[0], np.flatnonzero(~problem.trains[0])[0]
    point.decisions[0, [train, held]] = problem.Y[0, [train, held]]
    assert problem.n_kinks(point) == 1  # a validation row has no kink


def test_a_loss_without_curvature_is_refused():
    from foldwise.problems.kernel import KernelProblem

    bilevel, _ = program(SquaredHinge(), Squared(), RBF(0.4))
    problem = bilevel.problems[0]
    with pytest.raises(ValueError, match="second derivative; got Hinge"):
        KernelProblem(replace(problem.data, loss=Hinge()), problem.gram)


def test_huge_systems_and_indefinite_ones():
    """Rounding may make a huge system indefinite, which is no reason to stop; a kernel that is indefinite is."""
    B = np.random.default_rng(0).normal(size=(30, 2)) * 1e8
    rows, D = np.arange(30), np.full(30, 1e6)
    system = ActiveSystem.build(B @ B.T, rows, D, False)
    r = B @ [1e-8, -2e-8]
    assert relative_error((B @ B.T) @ system.core(r), r) < 1e-9  # u = r - K D u vanishes next to it
    with pytest.raises(FloatingPointError, match="not positive definite"):
        ActiveSystem.build(np.diag([1.0, -5.0]), np.arange(2), np.ones(2), False)


def test_a_fold_without_validation_weight_is_refused():
    X, y = np.random.default_rng(0).normal(size=(9, 2)), np.arange(9.0)
    model = RIDGE
    rows = Rows(y[None], np.r_[np.zeros(3), np.ones(6)])
    space = make_space({}, rows, range(2))
    with pytest.raises(ValueError, match="no positive sample weight"):
        assemble_kernel(model, X, rows, list(KFold(3).split(X)), space)


def test_gradients_of_a_criterion_average_over_folds_and_classes():
    """The objective is the mean over tasks of the mean over their validation rows."""
    bilevel, theta = program(SquaredHinge(), Squared(), RBF(0.4), n_classes=3, sample_weight=True)
    problem, evaluation = bilevel.problems[0], bilevel.evaluate(theta)
    point = evaluation.solutions[0]
    errors = []
    for m in range(problem.n_tasks):
        rows = problem.folds.validation[problem.split[m]]
        gap = (point.decisions[m] - problem.Y[problem.target[m]])[rows]
        errors.append(np.average(gap**2, weights=problem.weight[rows]))
    assert evaluation.objective == pytest.approx(np.mean(errors), rel=1e-12)
    assert MeanLoss(Squared()).value(bilevel.out_of_fold([point])) == pytest.approx(np.mean(errors))
