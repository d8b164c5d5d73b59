"""Linear training problems: the contract, and that every way of keeping their curvature agrees."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from foldwise.bilevel import Bilevel
from foldwise.design import make_design
from foldwise.losses import (
    Hinge,
    Logistic,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.penalties import Quadratic
from foldwise.problems import curvature as module
from foldwise.problems.base import TaskData
from foldwise.problems.curvature import GramFree, PieceGram, WeightedGram
from foldwise.problems.folds import Folds
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import Binding, ParameterMap
from foldwise.solvers.newton import Newton
from foldwise.space import Lin, Log, Space
from foldwise.testing import SMOOTH_LOSSES, check_problem, relative_error, small_bilevel

PIECEWISE = [loss for loss in SMOOTH_LOSSES if loss.piecewise_quadratic]
PROGRAMS = {
    "dense": {},
    "sparse": {"sparse": True},
    "weights": {"sample_weight": True},
    "overlap": {"overlap": True},
    "no intercept": {"intercept": False},
    "targets": {"n_targets": 3},
    "overlap, weights, targets": {"overlap": True, "sample_weight": True, "n_targets": 2},
}
SIMPLE = {key: PROGRAMS[key] for key in PROGRAMS if key != "sparse"}


def tune_everything(loss):
    tune = {"C": Log(1e-4, 1e2, per="group"), "lam": Log(1e-3, 1e3, per="feature")}
    if "epsilon" in loss.tunable:
        tune["epsilon"] = Lin(0, 2, per="group")
    return tune


def grouped(loss, **options):
    bilevel, theta = small_bilevel(loss, Squared(), tune_everything(loss), **options)
    return bilevel, bilevel.problems[0], theta


@pytest.mark.parametrize("options", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_contract(loss, options):
    _, problem, theta = grouped(loss, **options)
    check_problem(problem, theta)


def test_contract_can_fail():
    _, problem, theta = grouped(Logistic())
    linearize = problem.linearize

    def wrong(solution, workspace):
        response = linearize(solution, workspace)
        response.phi *= 1.001
        return response

    problem.linearize = wrong
    with pytest.raises(AssertionError, match="contract"):
        check_problem(problem, theta)


# Three ways to keep the curvature.


def curvatures(problem):
    kinds = [WeightedGram, GramFree]
    return [PieceGram, *kinds] if problem.loss.piecewise_quadratic else kinds


@pytest.mark.parametrize("options", SIMPLE.values(), ids=SIMPLE)
@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_every_curvature_gives_the_same(loss, options):
    _, problem, theta = grouped(loss, **options)
    U = np.random.default_rng(0).normal(size=problem.start().W.shape)
    par, tasks = problem.parameters(theta), np.arange(problem.n_tasks)
    found = {}
    for kind in curvatures(problem):
        state = kind(problem)
        draws = np.random.default_rng(1)
        for _ in range(3):  # the last of several visits: what is kept must follow
            W = draws.normal(size=problem.start().W.shape)
            Z = problem.design.decisions(W)
            state.refresh(Z, par, tasks)
        rhs = np.stack([U, W], axis=2)
        some = tasks[::2]
        parts = {
            "phi": state.phi(W, par, tasks),
            "phi of some tasks": state.phi(W[some], par, some),
            "gram_times": state.gram_times(U),
            "solve": state.factor(par, problem.diagonal(par), tasks)(rhs),
            "solve some tasks": state.factor(par, problem.diagonal(par), some)(rhs[some]),
        }
        if "epsilon" in loss.tunable:
            parts["psi"] = state.psi("epsilon", Z, par)
        found[kind.__name__] = parts
    wanted = found.pop("WeightedGram")
    assert found
    for name, parts in found.items():
        for key, value in parts.items():
            assert np.abs(wanted[key]).max() > 1e-3, key
            assert relative_error(value, wanted[key]) < 1e-8, f"{name}: {key}"


@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_every_curvature_leads_to_the_same_solution_and_gradient(loss):
    answers = []
    bilevel, problem, theta = grouped(loss, sample_weight=True)
    for kind in curvatures(problem):
        bilevel.workspaces = [kind(problem)]
        evaluation = bilevel.differentiate(bilevel.evaluate(theta), order=2)
        answers.append((evaluation.solutions[0].W, evaluation.gradient, evaluation.hessian))
    for other in answers[1:]:
        for got, wanted in zip(other, answers[0], strict=True):
            assert relative_error(got, wanted) < 1e-7


def test_the_right_curvature_is_chosen(monkeypatch):
    assert isinstance(grouped(SquaredHinge())[1].workspace(), PieceGram)
    assert isinstance(grouped(Logistic())[1].workspace(), WeightedGram)
    assert isinstance(grouped(SquaredHinge(), sparse=True)[1].workspace(), GramFree)
    monkeypatch.setattr(module, "GRAM_BYTES", 0)
    assert isinstance(grouped(SquaredHinge())[1].workspace(), WeightedGram)
    monkeypatch.setattr(module, "GRAM_COLUMNS", 2)
    assert isinstance(grouped(SquaredHinge())[1].workspace(), GramFree)


def from_scratch(problem, point):
    """A fresh state brought to the same decisions, with no shared sums to start from."""
    state = PieceGram.__new__(PieceGram)
    partition = problem.folds.partition
    object.__setattr__(problem.folds, "partition", False)
    try:
        state.__init__(problem)
        state.refresh(point.decisions, point.par, np.arange(problem.n_tasks))
    finally:
        object.__setattr__(problem.folds, "partition", partition)
    return state


@pytest.mark.parametrize("options", SIMPLE.values(), ids=SIMPLE)
@pytest.mark.parametrize("loss", PIECEWISE, ids=repr)
def test_flips_keep_the_gram_matrices_exact(loss, options):
    """After many jumps the matrices that were updated row by row are those made anew."""
    bilevel, problem, _ = grouped(loss, **options)
    rng = np.random.default_rng(3)
    evaluation, flips = None, 0
    for _ in range(60):
        theta = rng.uniform(bilevel.space.lower, bilevel.space.upper)
        before = bilevel.workspaces[0].codes.copy()
        evaluation = bilevel.evaluate(theta, evaluation if rng.random() < 0.5 else None)
        flips += int(np.sum(before != bilevel.workspaces[0].codes))
    assert flips > 1000 or isinstance(loss, Squared)
    fresh = from_scratch(problem, evaluation.solutions[0])
    kept = bilevel.workspaces[0]
    trains = problem.folds.train[problem.split]
    np.testing.assert_array_equal(kept.codes[trains], fresh.codes[trains])
    for name in ("G", "b0", "b1"):
        wanted = getattr(fresh, name)
        if name != "b1" or "epsilon" in loss.tunable:
            assert np.abs(wanted).max() > 1e-3
            assert relative_error(getattr(kept, name), wanted) < 1e-9, name


def test_flips_of_a_subset_of_tasks():
    """Tasks that finish early leave the rest to flip alone; the sums of all folds must not follow."""
    _, problem, theta = grouped(SquaredHinge())
    par, rng, kept = problem.parameters(theta), np.random.default_rng(0), problem.workspace()
    Z = problem.design.decisions(rng.normal(size=problem.start().W.shape))
    for tasks in ([0, 1, 2], [1], [0, 2], [0, 1, 2], [2]):
        tasks = np.array(tasks)
        Z[tasks] = problem.design.decisions(rng.normal(size=(len(tasks), problem.n_columns)))
        kept.refresh(Z[tasks], par, tasks)
    point = problem.at(problem.start().W, theta, Z)
    fresh = from_scratch(problem, point)
    assert relative_error(kept.G, fresh.G) < 1e-10
    assert relative_error(kept.b0, fresh.b0) < 1e-10


def test_an_old_evaluation_can_still_be_differentiated():
    """Problems keep one state; derivatives of an earlier point bring it back."""
    for loss in (SquaredEpsilonInsensitive(), Logistic()):
        bilevel, _, theta = grouped(loss)
        wanted = bilevel.differentiate(bilevel.evaluate(theta), order=2)
        early = bilevel.evaluate(theta)
        bilevel.evaluate(theta + 0.5)
        bilevel.differentiate(early, order=2)
        assert relative_error(early.gradient, wanted.gradient) < 1e-9
        assert relative_error(early.hessian, wanted.hessian) < 1e-9


def test_when_no_row_is_active_the_intercept_is_in_the_middle():
    """A tube wider than the data: the Hessian is singular in the intercept, the answer is zero weights."""
    bilevel, _ = small_bilevel(SquaredEpsilonInsensitive(), Squared(), {"epsilon": Lin(0, 1e6)})
    evaluation = bilevel.differentiate(bilevel.evaluate(np.array([1e5])), order=2)
    assert evaluation.converged
    problem, W = bilevel.problems[0], evaluation.solutions[0].W
    np.testing.assert_array_equal(W[:, :-1], 0.0)
    for w, train in zip(W, problem.folds.train[problem.split], strict=True):
        y = problem.Y[0][train]
        assert w[-1] == pytest.approx(0.5 * (y.min() + y.max()), rel=1e-9)
    np.testing.assert_array_equal(evaluation.gradient, 0.0)


# Folds.


def hand_made(X, y, splits, loss, *, scales=None, intercept=True, weight=None, tune=None):
    """One LinearProblem with a common C."""
    n, d = X.shape
    T = len(splits)
    folds = Folds.build(n, splits)
    design = make_design(X, intercept, folds.order)
    space = Space.build({"C": Log(1e-6, 1e6)} if tune is None else tune, {})
    bindings = {"C": Binding("log_c", np.zeros((T, 1), dtype=int))}
    parameters = ParameterMap(space, bindings, np.zeros((T, 1)), np.full((T, 1), 0.3), np.zeros((1, d)))
    scales = np.ones((T, d)) if scales is None else scales
    penalty = Quadratic(scales / design.scale**2, design.n_columns)
    weight = None if weight is None else weight[folds.order]
    given = TaskData(y[folds.order][None], folds, loss, parameters, weight, weight)
    problem = LinearProblem(given, design, penalty)
    return Bilevel([problem], Squared(), space, Newton(tol=1e-12))


def data(loss, n=90, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.array([0.2, 1.0, 3.0, 8.0])[:d] + np.array([0.5, -1.0, 2.0, 5.0])[:d]
    y = X @ (rng.normal(size=d) / X.std(axis=0)) + rng.normal(size=n)
    return X, (np.where(y > np.median(y), 1.0, -1.0) if loss.task == "classification" else y)


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_a_partition_equals_the_same_splits_without_its_shortcuts(loss, weighted):
    X, y = data(loss)
    weight = np.random.default_rng(1).uniform(0.2, 3.0, len(y)) if weighted else None
    splits = list(KFold(4, shuffle=True, random_state=0).split(X))
    partition = hand_made(X, y, splits, loss, weight=weight)
    # Every split twice: no longer a partition, but the mean over splits is the same.
    twice = hand_made(X, y, splits + splits, loss, weight=weight)
    assert partition.problems[0].folds.partition
    assert not twice.problems[0].folds.partition
    for theta in np.log([[0.001], [0.1], [10.0]]):
        a = partition.differentiate(partition.evaluate(theta), order=2)
        b = twice.differentiate(twice.evaluate(theta), order=2)
        assert a.objective == pytest.approx(b.objective, rel=1e-10)
        assert relative_error(b.solutions[0].W[:4], a.solutions[0].W) < 1e-8
        assert relative_error(b.task_objectives, np.tile(a.task_objectives, 2)) < 1e-9
        assert relative_error(b.gradient, a.gradient) < 1e-7
        assert relative_error(b.hessian, a.hessian) < 1e-6


@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_folds_are_what_one_would_train_by_hand(loss):
    """Each task equals a problem built from its own rows alone, and the criterion the mean over folds."""
    X, y = data(loss)
    splits = list(KFold(3, shuffle=True, random_state=1).split(X))
    together = hand_made(X, y, splits, loss)
    theta = np.log([0.2])
    evaluation = together.evaluate(theta)
    coef, bias = together.problems[0].design.to_user(evaluation.solutions[0].W)
    errors = []
    for t, (train, validation) in enumerate(splits):
        alone = hand_made(X[train], y[train], [(np.arange(len(train)), np.arange(1))], loss)
        W = alone.problems[0].solved(Newton(tol=1e-12), theta).W
        own_coef, own_bias = alone.problems[0].design.to_user(W)
        assert relative_error(coef[t], own_coef[0]) < 1e-8
        assert bias[t] == pytest.approx(own_bias[0], rel=1e-7, abs=1e-9)
        errors.append(np.mean((X[validation] @ own_coef[0] + own_bias[0] - y[validation]) ** 2))
    assert evaluation.objective == pytest.approx(np.mean(errors), rel=1e-9)
    assert relative_error(evaluation.task_objectives, errors) < 1e-8


@pytest.mark.parametrize("loss", SMOOTH_LOSSES, ids=repr)
def test_standardisation_inside_folds_is_a_scale_of_the_penalty(loss):
    X, y = data(loss)
    splits = list(KFold(3, shuffle=True, random_state=1).split(X))
    spread = np.stack([X[train].std(axis=0) for train, _ in splits])
    assert relative_error(spread[1:], spread[:-1]) > 1e-3
    shared = hand_made(X, y, splits, loss, scales=spread**2)
    theta = np.log([0.05])
    evaluation = shared.differentiate(shared.evaluate(theta), order=2)
    objective, gradient, hessian = 0.0, 0.0, 0.0
    for t, (train, validation) in enumerate(splits):
        scaled = StandardScaler().fit(X[train]).transform(X)
        own = hand_made(scaled, y, [(train, validation)], loss)
        explicit = own.differentiate(own.evaluate(theta), order=2)
        assert (
            relative_error(
                _user_decisions(shared, evaluation, t, X), _user_decisions(own, explicit, 0, scaled)
            )
            < 1e-8
        )
        objective += explicit.objective / 3
        gradient = gradient + explicit.gradient / 3
        hessian = hessian + explicit.hessian / 3
    assert evaluation.objective == pytest.approx(objective, rel=1e-9)
    assert np.abs(gradient).max() > 1e-4
    assert relative_error(evaluation.gradient, gradient) < 1e-7
    assert relative_error(evaluation.hessian, hessian) < 1e-6


def _user_decisions(bilevel, evaluation, task, X):
    coef, bias = bilevel.problems[0].design.to_user(evaluation.solutions[0].W)
    return X @ coef[task] + bias[task]


def test_columns_far_from_zero_change_nothing_but_the_rounding():
    """A model with a free intercept does not see a shift of the columns."""
    X, y = data(Squared())
    splits = list(KFold(3).split(X))
    near, far = hand_made(X, y, splits, Squared()), hand_made(X + 1e5, y, splits, Squared())
    assert far.problems[0].design.shift.any()
    theta = np.log([0.1])
    a, b = (p.differentiate(p.evaluate(theta)) for p in (near, far))
    assert b.objective == pytest.approx(a.objective, rel=1e-8)
    assert relative_error(b.gradient, a.gradient) < 1e-6


# Errors and counts.


def test_a_loss_without_curvature_is_refused():
    with pytest.raises(ValueError, match="SquaredHinge"):
        small_bilevel(Hinge(), Hinge())


def test_a_fold_without_validation_weight_is_refused():
    X, y = data(Squared(), n=9)
    weight = np.r_[np.zeros(3), np.ones(6)]
    with pytest.raises(ValueError, match="no positive sample weight"):
        hand_made(X, y, list(KFold(3).split(X)), Squared(), weight=weight)


def test_rows_of_weight_zero_do_not_train():
    X, y = data(SquaredEpsilonInsensitive())
    weight = np.ones(len(y))
    weight[::3] = 0.0
    splits = list(KFold(3, shuffle=True, random_state=0).split(X))
    changed = y.copy()
    changed[::3] += 100.0
    first = hand_made(X, y, splits, SquaredEpsilonInsensitive(), weight=weight)
    second = hand_made(X, changed, splits, SquaredEpsilonInsensitive(), weight=weight)
    theta = np.log([0.1])
    assert first.evaluate(theta).objective == pytest.approx(second.evaluate(theta).objective, rel=1e-9)


def test_rows_at_a_kink_are_counted():
    X = np.array([[0.0], [0.0], [1.0], [2.0]])
    y = np.array([1.0, -1.0, 1.0, 1.0])
    problem = hand_made(
        X, y, [(np.array([0, 1, 2]), np.array([3]))], SquaredHinge(), intercept=False
    ).problems[0]
    at_kink = problem.design.scale[None]  # a weight of 1 in the user's column
    assert problem.n_kinks(problem.at(at_kink, np.zeros(1))) == 1  # the validation row would be a second
    assert problem.n_kinks(problem.at(0.5 * at_kink, np.zeros(1))) == 0


# Least squares as a scout.


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weights"])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_scout_is_the_error_of_ridge_regression(intercept, weighted):
    tune = {"C": Log(1e-4, 1e4, per="group"), "lam": Log(1e-2, 1e2, per="feature")}
    options = {"intercept": intercept, "sample_weight": weighted}
    bilevel, theta = small_bilevel(Squared(), Squared(), tune, **options)
    factors = np.array([0.03, 1.0, 20.0])
    errors = bilevel.problems[0].scout(theta, factors)
    shift = np.concatenate([np.ones(3), np.zeros(5)])
    wanted = [bilevel.evaluate(theta + np.log(f) * shift).objective for f in factors]
    assert relative_error(errors, wanted) < 1e-9


def test_the_scout_declines_what_it_cannot_do():
    for options in ({"overlap": True}, {"sparse": True}):
        bilevel, theta = small_bilevel(Squared(), Squared(), **options)
        assert bilevel.problems[0].scout(theta, np.ones(2)) is None
