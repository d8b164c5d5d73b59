"""Exact support vector machines: their solutions against others', and derivatives where no row changes its kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.svm import SVC, SVR

from foldwise.kernels import RBF, AdditiveChi2, ExpChi2, Linear, Polynomial, Sum
from foldwise.losses import (
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Logistic,
    ModifiedHuber,
    Squared,
    SquaredHinge,
)
from foldwise.problems.dual import DualProblem, FreeSystem, PinnedSystem, coded
from foldwise.problems.gram import DenseGram
from foldwise.solvers.active_set import finish, solve_from_kinds
from foldwise.solvers.libsvm import LibSvm
from foldwise.space import Lin, Log
from foldwise.testing import check_hypergradient, relative_error, small_kernel_bilevel
from tests.makers import histograms
from tests.referees import kernel_machine

LOSSES = [Hinge(), EpsilonInsensitive()]
CRITERIA = {
    "classification": [Logistic(2.0), SquaredHinge(), ModifiedHuber()],
    "regression": [Squared(), Absolute()],
}
KERNELS = {
    "rbf": RBF(0.4),
    "ard": RBF([0.2, 0.5, 0.9]),
    "polynomial": Polynomial(2, 0.3, 0.8),
    "exp chi2": ExpChi2(0.8),
    "sum": Sum([RBF(0.4), Polynomial(2, 0.3, 0.8), Linear()], [0.5, 0.3, 0.4], [[0, 2], slice(1, 3), [1]]),
}
LOW_RANK = {
    "polynomial of degree 2": Polynomial(2, 0.5, 1.0),
    "linear": Linear(),
    "additive chi2": AdditiveChi2(),
    "sum": Sum([Linear(), Polynomial(2, 0.3, 0.8)], [0.5, 0.5]),
}


def program(loss, kernel, *args, criterion=None, **options):
    criterion = CRITERIA[loss.task][0] if criterion is None else criterion
    return small_kernel_bilevel(loss, criterion, kernel, *args, rows=histograms, **options)


def variables(solution):
    """Decisions and intercepts."""
    return np.column_stack([solution.decisions, solution.b])


def kinds(bilevel, theta):
    """Numbers of free rows and of rows at their bound, per task."""
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    return [mask.sum(axis=1) for mask in problem.kinds(point.alpha, point.par)]


# Solutions.


def machine(loss, **options):
    if loss.task == "classification":
        return SVC(kernel="precomputed", tol=1e-11, **options)
    return SVR(kernel="precomputed", tol=1e-11, epsilon=0.2, **options)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("C", [0.05, 1.0, 30.0])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_decisions_are_those_of_scikit_learn(loss, kernel, C, weighted):
    bilevel, theta = program(loss, kernel, C=C, n=45, sample_weight=weighted)
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    K, y = problem.workspace().at(point.par.log_kernel[0]).K, problem.Y[0]
    for m in range(problem.n_tasks):
        train = np.flatnonzero(problem.trains[m])
        model = machine(loss, C=C).fit(K[np.ix_(train, train)], y[train], problem.weight[train])
        act = model.decision_function if loss.task == "classification" else model.predict
        wanted = act(K[:, train])
        assert np.ptp(wanted) > 0.01
        assert (
            relative_error(point.decisions[m], wanted) < 2e-4
        )  # LIBSVM keeps its matrix in single precision


def qp(K, y, c, tube, intercept):
    """The value and the decisions by an interior point."""
    return kernel_machine(K, y, c, tube, intercept, tol=1e-11)[::-1]


def dual_objective(K, y, tube, alpha):
    return 0.5 * alpha @ K @ alpha - alpha @ y + (0.0 if tube is None else tube * np.abs(alpha).sum())


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("C", [0.05, 1.0, 100.0])
@pytest.mark.parametrize("kernel", {**KERNELS, **LOW_RANK}.values(), ids=repr)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_an_independent_solver_finds_the_same_objective(loss, kernel, C, intercept):
    bilevel, theta = program(loss, kernel, C=C, intercept=intercept, sample_weight=True)
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    K, c = problem.workspace().at(point.par.log_kernel[0]).K, problem.strength(point.par)
    tube = None if loss.task == "classification" else 0.2
    primal = problem.value(point, problem.workspace())
    for m in range(problem.n_tasks):
        train = np.flatnonzero(problem.trains[m])
        own, y = K[np.ix_(train, train)], problem.Y[0][train]
        value, _ = qp(own, y, c[m][train], tube, intercept)
        assert -dual_objective(own, y, tube, point.alpha[m][train]) == pytest.approx(value, rel=1e-7)
        assert primal[m] == pytest.approx(value, rel=1e-7)
    assert problem.residual(point, problem.workspace()).max() < 1e-9


# The active-set method on its own.


def small_dual(task, n=40, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + 0.4 * rng.normal(size=n)
    return X, y if task == "regression" else np.where(y > 0.1, 1.0, -1.0), rng.uniform(0.5, 2.0, n)


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("kernel", [RBF(0.5), Linear(), Polynomial(2, 0.5, 1.0)], ids=repr)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_active_set_method_needs_no_good_start(task, kernel, intercept):
    X, y, c = small_dual(task)
    X[:5] = X[5:10]  # equal rows: K is singular
    K, tube = kernel(X, X), None if task == "classification" else 0.15
    wanted, Z = qp(K, y, c, tube, intercept)
    start = np.zeros(40)
    some = np.minimum(c, 0.3) * np.where(y > np.median(y), 1.0, -1.0) if tube else 0.3 * y
    if intercept:
        some = some * np.where(some > 0, 1.0, some[some > 0].sum() / -some[some < 0].sum())
    for alpha in (start, some):
        found = finish(K, y, tube, c, alpha, 0.0, intercept)
        assert found.gap < 1e-10
        assert np.all(np.abs(found.alpha) <= c)
        assert tube is not None or np.all(found.alpha * y >= 0)
        assert not intercept or abs(found.alpha.sum()) < 1e-10
        assert -dual_objective(K, y, tube, found.alpha) == pytest.approx(wanted, rel=1e-7)
        assert relative_error(found.alpha @ K + found.b, Z) < 1e-4


def test_the_active_set_method_says_when_it_stopped_short():
    X, y, c = small_dual("regression")
    K = RBF(0.5)(X, X)
    short = finish(K, y, 0.15, c, np.zeros(40), 0.0, True, max_rounds=3)
    assert short.rounds == 3
    assert short.gap > 1e-3
    assert finish(K, y, 0.15, c, np.zeros(40), 0.0, True).gap < 1e-12


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("kernel", [RBF(0.5), RBF(3.0)], ids=repr)
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_kinds_of_rows_settle_from_nearby_decisions(task, kernel, intercept):
    X, y, c = small_dual(task)
    gram = DenseGram(kernel.pairs(X))
    gram.at(np.log(np.concatenate(list(kernel.parameters(2).values()))))
    K, tube = kernel(X, X), None if task == "classification" else 0.15
    c[:4] = 0.0  # rows that validate
    trains = c > 0
    wanted, _ = qp(K[np.ix_(trains, trains)], y[trains], c[trains], tube, intercept)
    near = finish(K, y, tube, np.where(trains, 1.4 * c + 0.05, 1e-12), np.zeros(40), 0.0, intercept)

    def start(done, bound):
        """Kinds and decisions of a solution with these bounds."""
        at_bound = np.abs(done.alpha) >= bound * (1 - 1e-9)
        free = (np.abs(done.alpha) > 1e-9 * bound) & ~at_bound
        return coded(done.alpha, free, at_bound), done.alpha @ K + done.b

    first = start(near, np.where(trains, 1.4 * c + 0.05, 1e-12))
    found = solve_from_kinds(gram, y, tube, c, *first, intercept)
    assert found is not None
    assert found.gap < 1e-11
    assert found.rounds < 20
    assert not found.alpha[~trains].any()
    assert np.all(np.abs(found.alpha) <= c)
    assert -dual_objective(K, y, tube, found.alpha) == pytest.approx(wanted, rel=1e-7)
    again = solve_from_kinds(gram, y, tube, c, *start(found, c), intercept)
    assert again.rounds <= 3
    assert relative_error(again.alpha, found.alpha) < 1e-9
    # From nonsense it ends right or not at all.
    lost = solve_from_kinds(gram, y, tube, c, np.zeros(40, dtype=int), np.zeros(40), intercept)
    assert lost is None or relative_error(lost.alpha @ K + lost.b, found.alpha @ K + found.b) < 1e-7
    assert solve_from_kinds(gram, y, tube, c, *first, intercept, max_rounds=0) is None


def test_warm_evaluations_are_cold_ones():
    for loss in LOSSES:
        for kernel in (KERNELS["rbf"], KERNELS["sum"]):
            bilevel, theta = program(loss, kernel, C=3.0, n=60)
            here = bilevel.differentiate(bilevel.evaluate(theta), 2)
            for size in (0.01, 0.3, 2.0):
                there = bilevel.evaluate(theta + size, here)
                cold = bilevel.evaluate(theta + size)
                assert there.converged
                assert there.objective == pytest.approx(cold.objective, rel=1e-9)
                assert relative_error(there.solutions[0].decisions, cold.solutions[0].decisions) < 1e-7
                assert bilevel.problems[0].residual(there.solutions[0], bilevel.workspaces[0]).max() < 1e-10


def test_machines_on_which_libsvm_creeps():
    """Large C on unscaled columns: LIBSVM's steps are tiny, and its matrix in single precision."""
    for loss in LOSSES:
        for kernel, C in ((Linear(), 1e3), (Polynomial(2, 1.0, 1.0), 10.0)):
            bilevel, theta = small_kernel_bilevel(
                loss, Squared(), kernel, C=C, n=60, rows=lambda rng, n, d: 20.0 * rng.normal(size=(n, d))
            )
            evaluation = bilevel.evaluate(theta)
            assert evaluation.converged
            assert bilevel.problems[0].residual(evaluation.solutions[0], bilevel.workspaces[0]).max() < 1e-6


def test_a_tolerance_of_libsvm_does_not_change_the_result():
    for loss in LOSSES:
        bilevel, theta = program(loss, KERNELS["polynomial"], C=30.0)
        problem = bilevel.problems[0]
        loose, tight = (problem.solved(LibSvm(tol=tol), theta) for tol in (0.1, 1e-10))
        assert relative_error(variables(loose), variables(tight)) < 1e-11


# Derivatives.


@pytest.mark.parametrize("intercept", [True, False], ids=["", "no intercept"])
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_hypergradient(loss, kernel, C, intercept):
    for criterion in CRITERIA[loss.task]:
        bilevel, theta = program(loss, kernel, C=C, n=30, intercept=intercept, criterion=criterion, seed=2)
        free, at_bound = kinds(bilevel, theta)
        assert at_bound.sum() > 0
        assert free.sum() > 0 or C < 1
        check_hypergradient(bilevel, theta)


GROUPS = {"C": Log(1e-4, 1e4, per="group"), "kernel__gamma": Log(1e-4, 1e4)}
VARIANTS = {
    "sample weights": (None, {"sample_weight": True}),
    "overlapping splits": (None, {"overlap": True}),
    "C per group": (GROUPS, {"n_groups": 3}),
    "C per group, tied": ({"C": Log(1e-4, 1e4, per="group", tie=[0, 1, 0])}, {"n_groups": 3}),
    "C on a linear scale": ({"C": Lin(1e-3, 5)}, {}),
    "class weights": ({"C": Log(1e-4, 1e4), "class_weight": Log(0.05, 20, per="class")}, {}),
    "balanced": (None, {"class_weight": "balanced", "sample_weight": True}),
    "one against the rest": (None, {"n_classes": 3}),
    "one against one": (None, {"n_classes": 3, "multiclass": "ovo"}),
    "one against one, weights": (None, {"n_classes": 4, "multiclass": "ovo", "sample_weight": True, "n": 60}),
    "a tube on a logarithmic scale": ({"epsilon": Log(1e-3, 5), "kernel__gamma": Log(1e-4, 1e4)}, {}),
}
TUNED = [
    (loss, name)
    for loss in LOSSES
    for name, (tune, options) in VARIANTS.items()
    if (
        "epsilon" not in (tune or {})
        if loss.task == "classification"
        else "class" not in repr((tune, options))
    )
    and (loss.task == "classification" or name != "one against one")
]


@pytest.mark.parametrize(("loss", "name"), TUNED, ids=str)
def test_hypergradient_of_everything_that_can_be_tuned(loss, name):
    tune, options = VARIANTS[name]
    check_hypergradient(*program(loss, RBF(0.6), tune, **{"n": 40, "seed": 1, **options}))


def test_one_against_one_trains_and_validates_on_rows_of_its_pair():
    bilevel, theta = program(Hinge(), RBF(0.6), n=48, n_classes=3, multiclass="ovo")
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    assert problem.n_targets == 3
    both = np.stack([problem.trains[problem.split == t].sum(axis=0) for t in range(3)])
    assert np.all(both[problem.folds.train] == 2)  # each row is in two of the three pairs
    for m, rows, z, y, v in problem.validation(point):
        absent = v == 0
        assert absent.any()
        assert v.sum() == pytest.approx(1 / problem.n_tasks)
        assert len(z) == len(y) == len(v) == len(np.arange(48)[rows])
        assert not point.alpha[m][~problem.trains[m]].any()


def exact_decisions(model, K, train, y, c, tube):
    """Decisions of a fitted machine with its free coefficients in double precision, from the conditions on them."""
    alpha = np.zeros(len(train))
    alpha[model.support_] = model.dual_coef_[0]
    free = (np.abs(alpha) > 1e-5 * c) & (np.abs(alpha) < (1 - 1e-5) * c)
    alpha = np.where(free, 0.0, np.sign(alpha) * np.where(np.abs(alpha) < 0.5 * c, 0.0, c))
    own, F = K[np.ix_(train, train)], np.flatnonzero(free)
    side = np.zeros(len(train))
    side[model.support_] = np.sign(model.dual_coef_[0])
    kink = y[F] if tube is None else y[F] - tube * side[F]
    matrix = np.block([[own[np.ix_(F, F)], np.ones((len(F), 1))], [np.ones((1, len(F))), np.zeros((1, 1))]])
    solved = np.linalg.solve(matrix, np.append(kink - own[F] @ alpha, -alpha.sum()))
    alpha[F] = solved[:-1]
    assert np.all(np.abs(alpha) <= c)
    return K[:, train] @ alpha + solved[-1]


def refit_error(bilevel, theta):
    """The cross-validation error from scikit-learn's own fits."""
    problem, loss = bilevel.problems[0], bilevel.problems[0].loss
    par = problem.parameters(theta)
    K, c = problem.workspace().at(par.log_kernel[0]).K.copy(), problem.strength(par)
    total = 0.0
    for m in range(problem.n_tasks):
        train, rows, v = np.flatnonzero(c[m] > 0), problem.folds.validation[m], problem.validation_weight[m]
        model = machine(loss).set_params(tol=1e-9)
        tube = None if loss.task == "classification" else float(par.epsilon[m, 0])
        if tube is not None:
            model.set_params(epsilon=tube)
        y = problem.Y[0]
        model.fit(K[np.ix_(train, train)], y[train], c[m][train])
        z = exact_decisions(model, K, train, y[train], c[m][train], tube)
        total += v @ bilevel.criterion.loss.value(z[rows], y[rows])
    return total


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("kernel", ["rbf", "ard", "polynomial"])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_hypergradient_against_refits_of_scikit_learn(loss, kernel, weighted):
    bilevel, theta = program(loss, KERNELS[kernel], C=1.0, n=30, seed=2, sample_weight=weighted)
    evaluation = bilevel.differentiate(bilevel.evaluate(theta))
    assert evaluation.objective == pytest.approx(refit_error(bilevel, theta), rel=1e-11)
    numeric = []
    for step in 1e-5 * np.eye(len(theta)):
        numeric.append((refit_error(bilevel, theta + step) - refit_error(bilevel, theta - step)) / 2e-5)
    assert np.abs(numeric).max() > 1e-3
    assert relative_error(evaluation.gradient, numeric) < 1e-6


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_sensitivities(loss, kernel):
    bilevel, theta = program(loss, kernel, C=1.0, n=30, seed=2)
    h = 1e-6
    J = bilevel.linearized(0, bilevel.evaluate(theta).solutions[0]).sensitivities()
    for k, step in enumerate(h * np.eye(len(theta))):
        up, down = (variables(bilevel.evaluate(theta + sign * step).solutions[0]) for sign in (1, -1))
        wanted = (up - down) / (2 * h)
        assert np.abs(wanted).max() > 1e-3
        assert relative_error(J[:, :, k], wanted) < 1e-6


# Kernels of low rank, where K_FF is singular or nearly so.


@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("kernel", LOW_RANK.values(), ids=LOW_RANK)
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_hypergradient_of_kernels_of_low_rank(loss, kernel, C):
    bilevel, theta = program(loss, kernel, C=C, n=45, d=2, seed=1)
    free, _ = kinds(bilevel, theta)
    assert free.max() <= 7  # at most one more than the rank of the kernel
    # Where free rows fix the whole function there is nothing to compare.
    gradient = bilevel.differentiate(bilevel.evaluate(theta)).gradient
    if np.abs(gradient).max() < 1e-9:
        assert bilevel.evaluate(theta + 1e-4).objective == pytest.approx(
            bilevel.evaluate(theta).objective, rel=1e-10
        )
    else:
        check_hypergradient(bilevel, theta, floor=1e-5)


def test_a_singular_matrix_of_free_rows_with_a_regular_border():
    """Three rows on a line: K_FF has rank 1, with the intercept two rows fix the solution."""
    X = np.array([[0.0], [1.0]])
    system = FreeSystem.build(X @ X.T, np.arange(2), None, True)
    r = np.array([0.3, -0.7])
    v, b = system.solve(r, 0.25)
    assert relative_error((X @ X.T) @ v, r + b) < 1e-11
    assert v.sum() == pytest.approx(0.25, abs=1e-12)
    V, bs = system.solve(np.column_stack([r, 2 * r]), np.array([0.25, 0.5]))
    np.testing.assert_allclose(V, np.column_stack([v, 2 * v]), rtol=1e-11)
    np.testing.assert_allclose(bs, [b, 2 * b], rtol=1e-11)


def test_where_free_rows_fix_the_function_it_does_not_move():
    """As many free rows as dimensions: C and the width of a polynomial no longer matter, to rounding."""
    bilevel, theta = program(Hinge(), Polynomial(2, 0.5, 1.0), C=1e4, n=60, d=2, seed=0)
    free, at_bound = kinds(bilevel, theta)
    full = (free == 6) & (at_bound > 0)
    assert full.any()
    J = bilevel.linearized(0, bilevel.evaluate(theta).solutions[0]).sensitivities()
    assert np.abs(J[full]).max() < 1e-6
    moved = (
        bilevel.evaluate(theta + 0.01).solutions[0].decisions - bilevel.evaluate(theta).solutions[0].decisions
    )
    assert np.abs(moved[full]).max() < 1e-6


def test_equal_rows_share_their_coefficient():
    """Duplicates make K_FF singular; a row twice is the row with twice the weight."""

    def doubled(rng, n, d):
        return np.repeat(rng.gamma(2.0, 0.5, size=(n // 2, d)), 2, axis=0)

    for loss in LOSSES:
        bilevel, theta = small_kernel_bilevel(loss, Squared(), RBF(0.5), rows=doubled, C=3.0, n=40, seed=3)
        problem = bilevel.problems[0]
        point = bilevel.evaluate(theta).solutions[0]
        assert problem.residual(point, problem.workspace()).max() < 1e-11
        check_hypergradient(bilevel, theta)


# No free rows: the intercept is in the middle of an interval.


def pinned(bilevel, theta):
    response = bilevel.linearized(0, bilevel.evaluate(theta).solutions[0])
    return [isinstance(system, PinnedSystem) for system in response.systems]


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_hypergradient_without_free_rows(kernel):
    """With a small C the smaller class is at its bound, and so is an equal number of the larger."""
    for seed in range(10):
        bilevel, theta = program(Hinge(), kernel, C=1e-4, n=30, seed=seed)
        if sum(pinned(bilevel, theta)) > 1:
            break
    else:
        raise AssertionError("every program has free rows")
    check_hypergradient(bilevel, theta, floor=1e-6)
    point = bilevel.evaluate(theta).solutions[0]
    K = bilevel.problems[0].workspace().at(point.par.log_kernel[0]).K
    for m in np.flatnonzero(pinned(bilevel, theta)):
        train = np.flatnonzero(bilevel.problems[0].trains[m])
        model = machine(Hinge(), C=1e-4).fit(K[np.ix_(train, train)], bilevel.problems[0].Y[0][train])
        assert point.b[m] == pytest.approx(float(model.intercept_[0]), rel=1e-6)


@pytest.mark.parametrize(("C", "epsilon"), [(1e-3, 0.2), (1.0, 1.9), (0.3, 1.2), (1.0, 2.5)])
def test_hypergradient_of_tubes_without_free_rows(C, epsilon):
    found = False
    for seed in range(6):
        bilevel, theta = program(EpsilonInsensitive(), RBF(0.5), C=C, epsilon=epsilon, n=21, seed=seed)
        if not any(pinned(bilevel, theta)):
            continue
        found = True
        gradient = bilevel.differentiate(bilevel.evaluate(theta)).gradient
        if np.abs(gradient).max() > 1e-6:
            check_hypergradient(bilevel, theta, floor=1e-6)
    assert found


# What is reported, and what is refused.


def test_the_residual_sees_every_kind_of_row():
    for loss in LOSSES:
        bilevel, theta = program(loss, RBF(0.5), n=40)
        problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
        free, at_bound = problem.kinds(point.alpha, point.par)
        outside = problem.trains & ~free & ~at_bound
        assert problem.residual(point, problem.workspace()).max() < 1e-12
        clean = point.alpha.copy()
        for mask in (free, at_bound, outside):
            row = np.flatnonzero(mask[0])[0]
            point = replace(point, alpha=clean.copy())
            side = problem.Y[0, row] if loss.task == "classification" else np.sign(clean[0, row]) or 1.0
            point.alpha[0, row] += (0.1 if mask is outside else -0.1) * side
            assert problem.residual(point, problem.workspace())[0] > 1e-2
            assert problem.residual(point, problem.workspace())[1:].max() < 1e-12


def test_rows_on_a_kink_without_being_free_are_counted():
    bilevel, theta = program(Hinge(), RBF(0.5), n=40)
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    assert problem.n_kinks(point) == 0
    _, at_bound = problem.kinds(point.alpha, point.par)
    row = np.flatnonzero(at_bound[0])[0]
    point.decisions[0, row] = problem.Y[0, row]
    assert problem.n_kinks(point) == 1


def test_tubes_per_group_are_refused():
    tune = {"epsilon": Lin(0, 2, per="group")}
    bilevel, theta = program(EpsilonInsensitive(), RBF(0.5), tune, n_groups=2)
    with pytest.raises(ValueError, match="one epsilon for all rows; use a smooth loss"):
        bilevel.evaluate(theta)


def test_a_smooth_loss_is_refused():
    bilevel, _ = program(Hinge(), RBF(0.5))
    problem = bilevel.problems[0]
    with pytest.raises(ValueError, match="got SquaredHinge"):
        DualProblem(replace(problem.data, loss=SquaredHinge()), problem.gram)


def test_values_that_are_not_finite_are_refused():
    K = np.full((3, 3), np.nan)
    with pytest.raises(FloatingPointError, match="not finite"):
        FreeSystem.build(K, np.arange(3), None, True)


@pytest.mark.parametrize("intercept", [True, False])
def test_free_rows_are_found_however_large_c_is(intercept):
    """With C beyond every coefficient, 1e12 times here, the tube alone matters: its slope is not zero."""
    tune = {"epsilon": Lin(0, 1)}
    options = {"C": 1e12, "epsilon": 0.3, "intercept": intercept}
    bilevel, theta = small_kernel_bilevel(EpsilonInsensitive(), Squared(), RBF(2.0), tune, **options)
    here = bilevel.evaluate(theta)
    gradient = bilevel.differentiate(here).gradient
    h = 1e-5
    ends = [bilevel.evaluate(theta + step).objective for step in (h, -h)]
    assert abs(gradient[0]) > 1e-3
    assert gradient[0] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-4)
