"""Penalised bilevel programming: its subproblem, its subgradient, its descent, and what it reports."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge

from foldwise import BilevelSearchCV, KernelSVR, Lin, LinearSVR, Log
from foldwise.bilevel import Bilevel
from foldwise.design import make_design
from foldwise.losses import (
    Absolute,
    Huber,
    Logistic,
    QuarticHinge,
    SmoothMisclassification,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.optimizers import Minimizer, Mpec, PenalizedBilevel, Rescued, TrustRegionNewton
from foldwise.optimizers.base import run
from foldwise.optimizers.pbp import proximity
from foldwise.optimizers.pbp.penalised import Penalised
from foldwise.optimizers.pbp.proximity import Control, descend
from foldwise.optimizers.pbp.subgradient import choose, chosen_model
from foldwise.optimizers.pbp.subproblem import ArrowModel, Polyhedron, least_distance, polyhedral_qp
from foldwise.penalties import Quadratic
from foldwise.problems.base import TaskData
from foldwise.problems.folds import Folds
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import Binding, ParameterMap
from foldwise.result import Result, Status
from foldwise.solvers.newton import Newton
from foldwise.space import Space
from foldwise.testing import relative_error, small_bilevel
from tests.referees import quadratic_program

TUBES = {"C": Log(1e-3, 1e1, per="group"), "epsilon": Lin(0.0, 1.5, per="group")}


def control(p, **changes):
    values = {
        "tol": 1e-8,
        "eta": 1e-7,
        "rho": 0.1,
        "tube": 1e-6,
        "corrections": 2,
        "max_centres": 60,
        "rows": np.zeros((0, p)),
        "limit": np.zeros(0),
        "frozen": np.zeros(p, dtype=bool),
    }
    return Control(**{**values, **changes})


def penalised(loss=None, criterion=None, tune=None, **options):
    """The penalised objective of a small program and a centre with weights that do not solve it."""
    loss = SquaredEpsilonInsensitive() if loss is None else loss
    bilevel, theta = small_bilevel(
        loss, Squared() if criterion is None else criterion, TUBES if tune is None else tune, **options
    )
    f = Penalised(bilevel)
    here = bilevel.evaluate(theta)
    f.calibrate(here.objective)
    rng = np.random.default_rng(options.get("seed", 0) + 1)
    W = [point.W + 0.1 * rng.normal(size=point.W.shape) for point in here.solutions]
    return f, f.at(W, theta)


# The subproblem.


def arrow(rng, tasks=3, D=4, p=3, beta=None):
    def psd(scale=1.0):
        B = rng.normal(size=(D, D))
        return scale * (B @ B.T) / D

    H = [np.eye(D) + psd(3.0) for _ in range(tasks)]
    beta = 10 ** rng.uniform(-2, 4) if beta is None else beta
    K = [rng.normal(size=(D, p)) for _ in range(tasks)]
    g, R = ([rng.normal(size=D) for _ in range(tasks)] for _ in range(2))
    B = rng.normal(size=(p, p))
    return ArrowModel([psd() for _ in H], H, K, g, R, rng.normal(size=p), 0.1 * B @ B.T, beta)


def region(rng, p, rows):
    low, high = -rng.uniform(0, 0.5, p), rng.uniform(0, 0.5, p)
    low[0] = 0.0
    return Polyhedron(low, high, rng.normal(size=(rows, p)), rng.uniform(0, 0.2, rows))


def joint(model, tau):
    """The subproblem as one dense quadratic program in all variables."""
    M, D, p = len(model.A), len(model.g[0]), len(model.q)
    P, c = np.zeros((M * D + p, M * D + p)), np.zeros(M * D + p)
    P[M * D :, M * D :] = model.Q
    c[M * D :] = model.q
    for m in range(M):
        part = slice(m * D, (m + 1) * D)
        P[part, part] += model.A[m]
        c[part] += model.g[m]
        J = np.zeros((D, M * D + p))
        J[:, part], J[:, M * D :] = model.H[m], model.K[m]
        P += 2 * model.beta * J.T @ J
        c += 2 * model.beta * J.T @ model.R[m]
    return P + tau * np.eye(M * D + p), c


def limits(space, size):
    """The polyhedron as rows ``G x <= h`` on all variables."""
    G, h = space.inequalities()
    return np.hstack([np.zeros((len(G), size - G.shape[1])), G]), h


@pytest.mark.parametrize("rows", [0, 3])
@pytest.mark.parametrize("seed", range(6))
def test_the_subproblem_agrees_with_a_quadratic_program_solver(seed, rows):
    rng = np.random.default_rng(seed)
    model, tau = arrow(rng, beta=10.0 ** rng.uniform(-2, 2)), 10.0 ** rng.uniform(-3, 1)
    space = region(rng, 3, rows)
    P, c = joint(model, tau)
    G, h = limits(space, len(c))
    steps, delta = model.solve(tau, space)
    x = np.concatenate([*steps, delta])
    assert np.all(G @ x <= h + 1e-12)
    wanted = quadratic_program(P, c, G, h)[0]
    assert np.linalg.norm(wanted) > 1e-2
    assert relative_error(x, wanted) < 1e-6
    value = 0.5 * x @ P @ x + c @ x
    assert value <= 0.5 * wanted @ P @ wanted + c @ wanted + 1e-9 * (1 + abs(value))
    proximal = 0.5 * tau * x @ x
    assert model.change(steps, delta) + proximal == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_piqp_agrees_too():
    piqp = pytest.importorskip("piqp")
    rng = np.random.default_rng(11)
    model, space = arrow(rng, beta=3.0), region(rng, 3, 2)
    P, c = joint(model, 0.1)
    G, h = limits(space, len(c))
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = 1e-12
    solver.setup(P, c, G=G, h_u=h)
    solver.solve()
    steps, delta = model.solve(0.1, space)
    assert relative_error(np.concatenate([*steps, delta]), solver.result.x) < 1e-7


@pytest.mark.parametrize("beta", [1e3, 1e5, 1e7])
def test_a_large_penalty_does_not_spoil_the_step(beta):
    """In the limit the weights follow the hyper-parameters: the residual of the model vanishes."""
    rng = np.random.default_rng(3)
    model = arrow(rng, beta=beta)
    free = Polyhedron(np.full(3, -1e3), np.full(3, 1e3), np.zeros((0, 3)), np.zeros(0))
    steps, delta = model.solve(0.1, free)
    # The reduced problem: d_m = -H^-1 (R + K delta).
    S, r = model.Q + 0.1 * np.eye(3), model.q.copy()
    for A, H, K, g, R in zip(model.A, model.H, model.K, model.g, model.R, strict=True):
        J, at = np.linalg.solve(H, K), np.linalg.solve(H, R)
        A = A + 0.1 * np.eye(len(A))
        S, r = S + J.T @ A @ J, r + J.T @ (A @ at - g)
    assert relative_error(delta, -np.linalg.solve(S, r)) < 100.0 / beta
    rest = [H @ d + K @ delta + R for H, K, R, d in zip(model.H, model.K, model.R, steps, strict=True)]
    assert np.linalg.norm(rest) < 100.0 / beta


def test_only_the_proximity_parameter_changes_between_trials():
    model, free = arrow(np.random.default_rng(4)), region(np.random.default_rng(4), 3, 0)
    first = model.solve(0.3, free)
    kept = model._fixed
    model.solve(3.0, free)
    assert model._fixed is kept
    again = model.solve(0.3, free)
    np.testing.assert_array_equal(
        np.concatenate([*first[0], first[1]]), np.concatenate([*again[0], again[1]])
    )


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(0, 6))
def test_the_small_program_meets_its_optimality_conditions(seed, p, rows):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(p, p))
    S, r = B @ B.T + 0.1 * np.eye(p), 3 * rng.normal(size=p)
    space = region(rng, p, rows)
    x = polyhedral_qp(S, r, space)
    G, h = space.inequalities()
    assert np.all(G @ x <= h + 1e-9)
    from scipy.optimize import nnls

    tight = G[G @ x >= h - 1e-7]
    slope = S @ x + r
    left = nnls(tight.T, -slope)[1] if len(tight) else np.linalg.norm(slope)
    assert left < 1e-6 * (1 + np.linalg.norm(r))


def test_constraints_that_cannot_be_met_are_refused():
    G, h = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([-1.0, -1.0])
    with pytest.raises(ValueError, match="cannot be met"):
        least_distance(np.eye(2), np.zeros(2), G, h)


# The penalised objective and its model.

CASES = [
    (SquaredEpsilonInsensitive(), Squared(), TUBES),
    (Squared(), Squared(), {"C": Log(1e-3, 1e1), "lam": Log(0.1, 10, per="feature")}),
    (Huber(), Squared(), {"C": Lin(1e-3, 1e1)}),
    (SquaredHinge(), Logistic(s=2.0), {"C": Log(1e-3, 1e2), "class_weight": Log(0.2, 5, per="class")}),
    (QuarticHinge(0.5), SmoothMisclassification(), {"lam": Log(0.1, 10)}),
]


@pytest.mark.parametrize("sample_weight", [False, True])
@pytest.mark.parametrize(("loss", "criterion", "tune"), CASES)
def test_the_model_has_the_gradient_of_the_objective(loss, criterion, tune, sample_weight):
    f, centre = penalised(loss, criterion, tune, sample_weight=sample_weight)
    beta = 2.0
    weights, slope = f.model(centre, beta).gradient()
    rng = np.random.default_rng(5)
    for _ in range(4):
        steps = [rng.normal(size=len(g)) for g in weights]
        delta = rng.normal(size=len(slope))
        h = 1e-6
        up, down = (f.move(centre, [s * h * d for d in steps], s * h * delta) for s in (1.0, -1.0))
        wanted = (up.value(beta) - down.value(beta)) / (2 * h)
        assert abs(wanted) > 1e-3
        found = sum(g @ d for g, d in zip(weights, steps, strict=True)) + slope @ delta
        assert found == pytest.approx(wanted, rel=2e-6)


@pytest.mark.parametrize(("loss", "criterion", "tune"), CASES)
def test_at_solved_weights_the_objective_is_the_true_one(loss, criterion, tune):
    bilevel, theta = small_bilevel(loss, criterion, tune)
    here = bilevel.evaluate(theta)
    centre = Penalised(bilevel).at([point.W for point in here.solutions], theta)
    assert centre.value(1e3) == pytest.approx(here.objective, rel=1e-10)
    assert centre.infeasibility < 1e-10


def test_units_of_the_data_do_not_matter():
    """Columns, targets and penalties in other units: the same path."""
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:90] / X[:90].std(axis=0), (y[:90] - y[:90].mean()) / y.std()
    found = []
    for a, b in ((1.0, 1.0), (7.0, 3.0)):
        space = {"C": Log(1e-4 / a**2, 10 / a**2), "epsilon": Lin(0, 1.0 * b)}
        options = {"start": {"C": 0.01 / a**2, "epsilon": 0.2 * b}}
        search = BilevelSearchCV(LinearSVR(), space, method="pbp", refit=False, method_options=options)
        result = search.fit(a * X, b * y).result_
        found.append([result.objective / b**2, result.params["C"] * a**2, result.params["epsilon"] / b])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


# Kinks.


def test_kink_rows_explain_the_difference_between_both_sides_of_a_kink():
    """Put a residual on the tube; half a step to either side, the model is the one of share 0 and of share 1."""
    tune = {"C": Log(1e-3, 1e1), "epsilon": Lin(0.0, 3.0)}
    f, centre = penalised(tune=tune, n=20, d=2)
    problem = f.problems[0]
    task, row = 1, int(np.flatnonzero(problem.folds.train[1])[3])
    width = abs(centre.Z[0][task, row] - problem.Y[0, row])
    theta = centre.theta.copy()
    theta[1] = width
    here = f.at(centre.W, theta)
    kinks = f.kinks(here, 1e-9)
    assert kinks.task.tolist() == [task]
    models = []
    for shift in (1e-7, -1e-7):  # a wider tube: the row is inside
        moved = theta.copy()
        moved[1] += shift
        models.append(f.model(f.at(centre.W, moved), 2.0))
    base = f.model(here, 2.0)
    inside, outside = (chosen_model(base, kinks, np.array([s])) for s in (kinks.low[0], kinks.high[0]))
    assert np.linalg.norm(models[0].H[task] - models[1].H[task]) > 1e-3
    for found, wanted in zip((inside, outside), models, strict=True):
        for name in ("H", "K"):
            for one, other in zip(getattr(found, name), getattr(wanted, name), strict=True):
                np.testing.assert_allclose(one, other, atol=1e-5)


def test_residuals_of_zero_in_a_closed_tube_have_no_side():
    f, centre = penalised(tune={"C": Log(1e-3, 1e1), "epsilon": Lin(0.0, 3.0)}, n=20, d=2)
    problem = f.problems[0]
    row = int(np.flatnonzero(problem.folds.train[0])[0])
    W = [centre.W[0].copy()]
    x = problem.design.array[row]
    W[0][0] += x * (problem.Y[0, row] - centre.Z[0][0, row]) / (x @ x)
    theta = centre.theta.copy()
    theta[1] = 0.0
    kinks = f.kinks(f.at(W, theta), 1e-9)
    assert kinks.spin.tolist() == [True]
    assert kinks.high[0] - kinks.low[0] == 2.0
    fixed, at = penalised(tune={"C": Log(1e-3, 1e1)}, n=20, d=2)
    assert len(fixed.kinks(fixed.at(W, at.theta), 1e-9)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_the_least_subgradient_agrees_with_a_quadratic_program_solver(seed):
    """(46) with several rows at kinks, active bounds and an active row of constraints."""
    f, centre = penalised(seed=seed, n=40, d=3)
    base = f.model(centre, 5.0)
    kinks = f.kinks(centre, 0.05)
    assert len(kinks) > 4
    p = f.space.size
    rng = np.random.default_rng(seed)
    free = np.full(p, 1.0)
    free[0] = 0.0
    space = Polyhedron(-np.ones(p), free, rng.normal(size=(2, p)), np.array([0.0, 1.0]))
    choice = choose(base, kinks, space)
    weights, slope = base.gradient()
    g = np.concatenate([*weights, slope])
    columns = []
    for i in range(len(kinks)):
        other = chosen_model(base, kinks, np.eye(len(kinks))[i]).gradient()
        columns.append(np.concatenate([*other[0], other[1]]) - g)
    normals = space.active()
    assert len(normals) == 2
    columns += [np.concatenate([np.zeros(len(g) - p), row]) for row in normals]
    B = np.array(columns).T
    G = np.vstack([np.eye(B.shape[1])[: len(kinks)], -np.eye(B.shape[1])])
    h = np.concatenate([kinks.high, -kinks.low, np.zeros(len(normals))])
    x = quadratic_program(2 * B.T @ B + 1e-12 * np.eye(B.shape[1]), 2 * B.T @ g, G, h)[0]
    wanted = float(np.sum((g + B @ x) ** 2))
    assert choice.norm2 == pytest.approx(wanted, rel=1e-5)
    assert choice.norm2 < choice.usual2
    assert np.all(choice.share >= kinks.low - 1e-12)
    assert np.all(choice.share <= kinks.high + 1e-12)


def one_row_program():
    """One weight, one training row ``(1, 0.5)`` on the tube, one validation row ``(1, 3)``; C = 1, epsilon free.

    With beta = 2 (the scaled residual is the plain one over the root of 2) and at w = 1, e = 0.5,
    f(w, e) = (w - 3)^2 + (w + 2 (|w - 0.5| - e)+)^2: inside the tube the gradient is (-2, 0), outside (2, -4). Along
    minus the first one leaves the tube and climbs; along (1, 1) one stays on it and descends.
    """
    space = Space.build({"epsilon": Lin(0.0, 4.0)}, {})
    binding = {"epsilon": Binding("epsilon", np.zeros((1, 1), dtype=int))}
    parameters = ParameterMap(space, binding, np.zeros((1, 1)), np.zeros((1, 1)), np.zeros((1, 1)))
    folds = Folds.build(2, [(np.array([0]), np.array([1]))])
    design = make_design(np.ones((2, 1)), False, folds.order)
    Y = np.array([[0.5, 3.0]])[:, folds.order]
    data = TaskData(Y, folds, SquaredEpsilonInsensitive(), parameters)
    problem = LinearProblem(data, design, Quadratic(np.ones((1, 1)), 1))
    f = Penalised(Bilevel([problem], Squared(), space, Newton(tol=1e-12)))
    return f, f.at([np.ones((1, 1))], np.array([0.5]))


def test_where_the_usual_subgradient_climbs_the_chosen_one_descends(monkeypatch):
    f, centre = one_row_program()
    beta, space = 2.0, f.region(centre.theta, np.zeros((0, 1)), np.zeros(0), np.zeros(1, bool))
    assert centre.value(beta) == pytest.approx(4.0 + 1.0)
    base = f.model(centre, beta)
    weights, slope = base.gradient()
    np.testing.assert_allclose(weights[0] * f.column[0], [-2.0])
    np.testing.assert_allclose(slope, [0.0])
    for t in (1e-2, 1e-4, 1e-6):  # the usual choice, inside the tube
        assert f.move(centre, [-t * weights[0]], -t * slope).value(beta) > centre.value(beta)
    kinks = f.kinks(centre, 1e-9)
    choice = choose(base, kinks, space)
    assert 0.0 < choice.share[0] < 1.0
    assert 0.0 < choice.norm2 < choice.usual2
    for t in (1e-2, 1e-4, 1e-6):
        assert f.move(centre, [-t * choice.weights[0]], -t * choice.theta).value(beta) < centre.value(beta)
    # The algorithm stops here with the usual subgradient, and goes on with the chosen one.
    monkeypatch.setattr(proximity, "PATIENCE", 10**9)
    stuck = descend(f, centre, beta, 1e-2, control(1, tube=-1.0, corrections=0))
    assert (stuck.ending, len(stuck.values)) == ("short step", 1)
    free = descend(f, centre, beta, 1e-2, control(1, corrections=0))
    assert free.ending == "optimal"
    assert free.values[-1] < 4.6
    # A wider tube leaves w alone in the penalty: (w - 3)^2 + w^2 has its minimum 4.5 at w = 1.5.
    assert free.values[-1] == pytest.approx(4.5, abs=1e-3)


def test_rows_that_a_refused_step_crossed_count_as_kinks():
    """A little off the tube no row sits on it, and still the usual model cannot proceed far."""
    f, centre = one_row_program()
    near = f.at([np.full((1, 1), 1.0 - 1e-4)], centre.theta)
    assert len(f.kinks(near, 1e-6)) == 0
    assert len(f.kinks(near, 1e-6, f.at([np.full((1, 1), 1.1)], centre.theta))) == 1
    run_ = descend(f, near, 2.0, 1e-2, control(1, corrections=0))
    assert run_.chosen > 0
    assert run_.values[-1] == pytest.approx(4.5, abs=1e-3)


# Descent.


@pytest.mark.parametrize(("beta", "corrections"), [(0.1, 0), (10.0, 0), (0.1, 2), (10.0, 2), (1e3, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_stability_centres_descend_to_a_point_that_passes_theorem_one(seed, beta, corrections):
    f, centre = penalised(seed=seed)
    p = f.space.size
    everywhere = (np.zeros((0, p)), np.zeros(0), np.zeros(p, bool))
    done = descend(
        f, centre, beta, 1e-2, control(p, tol=1e-4, eta=1e-5, corrections=corrections, max_centres=100)
    )
    assert len(done.values) > 2
    assert np.all(np.diff(done.values) < 0)
    assert done.values[-1] == done.centre.value(beta)
    # Zero is in the subdifferential as far as steps of this length can tell, and was not at the start.
    begin = choose(f.model(centre, beta), f.kinks(centre, 1e-6), f.region(centre.theta, *everywhere))
    assert begin.norm2 > 0.1 * done.values[0]
    assert done.choice.norm2 <= (1e-4 if done.ending == "optimal" else 5e-3) * done.values[-1]
    # Nearby points are no better, whatever the direction.
    rng = np.random.default_rng(seed)
    space = f.region(done.centre.theta, *everywhere)
    for _ in range(20):
        steps = [1e-3 * rng.normal(size=len(R)) for R in done.centre.residual[0]]
        delta = np.clip(1e-3 * rng.normal(size=p), space.low, space.high)
        assert f.move(done.centre, steps, delta).value(beta) > done.values[-1] * (1 - 1e-5)


def test_frozen_entries_stay():
    f, centre = penalised()
    frozen = np.array([False, True, False, True, True, False])
    done = descend(f, centre, 1.0, 1e-2, control(6, frozen=frozen, max_centres=5))
    np.testing.assert_array_equal(done.centre.theta[frozen], centre.theta[frozen])
    assert np.abs(done.centre.theta - centre.theta)[~frozen].min() > 1e-3


# The method.


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("intercept", [False, True])
def test_ends_where_newton_does(seed, intercept):
    bilevel, theta = small_bilevel(
        SquaredEpsilonInsensitive(), Squared(), TUBES, n=150, seed=seed, intercept=intercept
    )
    newton = run(TrustRegionNewton(), bilevel, theta)
    result = run(PenalizedBilevel(), bilevel, theta)
    assert newton.objective < 0.999 * newton.objective_start
    assert result.objective < 1.005 * newton.objective


@pytest.mark.parametrize(("loss", "criterion", "tune"), CASES)
def test_other_losses_and_criteria(loss, criterion, tune):
    bilevel, theta = small_bilevel(loss, criterion, tune, n=120)
    newton = run(TrustRegionNewton(), bilevel, theta)
    result = run(PenalizedBilevel(), bilevel, theta)
    assert result.objective < 1.005 * newton.objective


def test_a_criterion_with_corners_is_followed():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Absolute(), TUBES, n=90)
    result = run(PenalizedBilevel(), bilevel, theta)
    assert result.objective < result.objective_start


def test_a_criterion_without_curvature_at_the_start(rng):
    """No validation row is near a corner of the absolute error: its model is linear, and the first beta follows."""
    X = rng.normal(size=(12, 3))
    y = X[:, 0] + np.where(np.arange(12) % 2, 30.0, -30.0)  # far from what a plane predicts, on either side
    search = BilevelSearchCV(Ridge(fit_intercept=False), method="pbp", criterion="absolute", cv=3)
    with np.errstate(all="raise"):
        result = search.fit(X, y).result_
    assert result.details["last_beta"] > 0
    grid = clone(search).set_params(method="grid", method_options={"points": 50}).fit(X, y)
    assert result.objective <= grid.result_.objective * (1 + 1e-3)


def test_several_targets_and_folds_that_overlap():
    tune = {"C": Log(1e-3, 1e2, per="class")}
    bilevel, theta = small_bilevel(SquaredHinge(), Logistic(), tune, n_targets=3, n=90, overlap=True)
    newton = run(TrustRegionNewton(), bilevel, theta)
    assert run(PenalizedBilevel(), bilevel, theta).objective < 1.005 * newton.objective


def test_it_does_not_stop_at_the_start_of_the_paper():
    """C = 1 and a closed tube, weights solved there: feasible, and the method still moves."""
    bilevel, _ = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=150)
    result = run(PenalizedBilevel(), bilevel, bilevel.space.theta({"C": 1.0, "epsilon": 0.0}))
    assert result.objective < 0.999 * result.objective_start
    notes = [record.note for record in result.history]
    assert notes[0] == "start"
    assert all(note.startswith("beta") for note in notes[1:])


def test_what_it_claims_stands_beside_the_truth():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=150)
    result = run(PenalizedBilevel(), bilevel, theta)
    facts = result.details
    assert facts["infeasibility"] <= 1e-4
    assert facts["claimed_objective"] <= facts["penalised_objective"]
    assert facts["true_objective"] == pytest.approx(facts["claimed_objective"], rel=1e-3)
    assert facts["true_objective"] == result.objective
    assert facts["beta"] <= facts["last_beta"]
    assert max(result.kkt) < 1e-8
    assert facts["subgradient_norm"] <= facts["usual_subgradient_norm"]
    assert facts["stability_centres"] > 0
    assert Result.from_json(result.to_json()) == result
    assert "claimed objective" in result.summary()


def test_tubes_stay_closed_in_the_first_stage():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=150)
    theta[bilevel.space.slices["epsilon"]] = 0.0
    result = run(PenalizedBilevel(), bilevel, theta)
    closed = [not np.any(record.params["epsilon"]) for record in result.history]
    first_open = closed.index(False) if False in closed else len(closed)
    assert first_open > 3
    one = run(PenalizedBilevel(two_stage=False), bilevel, theta)
    assert sum(not np.any(record.params["epsilon"]) for record in one.history) < first_open


def test_constraints_hold_at_every_point():
    """The same C in both halves of the space: log C0 - log C1 <= 0 and back, and a floor on the sum of tubes."""
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=150)
    A = np.zeros((3, 6))
    A[0, :2], A[1, :2], A[2, 3:] = [1, -1], [-1, 1], -1.0
    c = np.array([0.0, 0.0, -0.9])
    method = PenalizedBilevel(constraints=(A, c))
    result = run(method, bilevel, theta, candidates=[bilevel.space.lower, bilevel.space.upper])
    for record in result.history:
        at = bilevel.space.theta(record.params)
        assert np.all(A @ at <= c + 1e-8)
    assert result.objective < result.objective_start
    # The answer is the best of a fine search along the constrained set: two C and a fixed share of the tubes.
    tied = run(PenalizedBilevel(), bilevel, theta)
    assert tied.objective < result.objective
    again = run(method, bilevel, np.array(result.theta))
    assert again.objective <= result.objective * (1 + 1e-9)
    assert again.objective > 0.995 * result.objective


def test_a_constraint_that_is_not_active_changes_nothing():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=90)
    loose = PenalizedBilevel(constraints=(np.ones((1, 6)), [100.0]))
    one, other = run(PenalizedBilevel(), bilevel, theta), run(loose, bilevel, theta)
    assert one.objective == pytest.approx(other.objective, rel=1e-5)


def test_errors_say_what_to_do():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES)
    with pytest.raises(ValueError, match=r"A of shape \(1, 6\).*got A of shape \(1, 2\)"):
        run(PenalizedBilevel(constraints=([[1.0, 1.0]], [0.0])), bilevel, theta)
    with pytest.raises(ValueError, match="cannot be met"):
        run(PenalizedBilevel(constraints=(np.eye(6)[:1], [-100.0])), bilevel, theta)
    with pytest.raises(ValueError, match="rho must be above 0 and below 1"):
        PenalizedBilevel(rho=1.5)
    X, y = load_diabetes(return_X_y=True)
    with pytest.raises(ValueError, match="smooth loss"):
        BilevelSearchCV(LinearSVR(loss="epsilon_insensitive"), method="pbp").fit(X[:40], y[:40])
    sparse, at = small_bilevel(SquaredEpsilonInsensitive(), Squared(), sparse=True)
    with pytest.raises(ValueError, match="dense columns"):
        run(PenalizedBilevel(), sparse, at)
    with pytest.raises(ValueError, match="linear model"):
        BilevelSearchCV(KernelSVR(), method="pbp").fit(X[:40], y[:40])


def test_a_search_with_groups_and_a_pipeline():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = load_diabetes(return_X_y=True)
    groups = np.arange(len(y)) % 2
    space = {"C": Log(1e-6, 10, per="group"), "epsilon": Lin(0, 100, per="group")}
    search = BilevelSearchCV(LinearSVR(), space, method="pbp").fit(X, y, sample_groups=groups)
    newton = BilevelSearchCV(LinearSVR(), space, method="newton").fit(X, y, sample_groups=groups)
    assert search.best_score_ > 1.005 * newton.best_score_
    assert search.result_.status in (Status.CONVERGED, Status.STALLED)
    pipe = make_pipeline(StandardScaler(), LinearSVR())
    found = BilevelSearchCV(pipe, method="pbp").fit(X, y)
    assert found.best_score_ > 1.005 * BilevelSearchCV(pipe, method="newton").fit(X, y).best_score_


def test_a_resumed_search_gives_the_same_bits(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    settings_ = {"method": "pbp", "refit": False, "checkpoint": tmp_path / "search"}
    space = {"C": Log(1e-6, 10), "epsilon": Lin(0, 100)}
    whole = BilevelSearchCV(LinearSVR(), space, method="pbp", refit=False, checkpoint=tmp_path / "whole").fit(
        X, y
    )

    def stop(record):
        return record.evaluation == 6

    BilevelSearchCV(LinearSVR(), space, callbacks=[stop], **settings_).fit(X, y)
    again = BilevelSearchCV(LinearSVR(), space, resume=True, **settings_).fit(X, y)
    assert again.n_resumed_ > 5
    assert again.result_.theta == whole.result_.theta
    assert again.result_.details == whole.result_.details


# The rescue of an implicit method.


class Stuck(Minimizer):
    """Evaluates its start and gives up there."""

    name = "stuck"

    def iterate(self, trace, theta):
        trace.evaluate(theta, order=1)
        return Status.STALLED


def test_a_method_that_is_stuck_is_rescued():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=150)
    result = run(Rescued(Stuck()), bilevel, theta)
    assert result.details["rescued_from"] == result.objective_start
    assert result.objective < 0.999 * result.objective_start
    # The method says that it is stuck; where it stands, the numbers say otherwise.
    assert result.promised_decrease <= result.tolerances["promised_decrease"]
    assert result.status is Status.CONVERGED
    newton = run(TrustRegionNewton(), bilevel, theta)
    both = run(Rescued(TrustRegionNewton(), always=True), bilevel, theta)
    assert both.objective <= newton.objective


class Hasty(Stuck):
    """Evaluates its start and calls it a minimum."""

    def iterate(self, trace, theta):
        super().iterate(trace, theta)
        return Status.CONVERGED


def test_a_method_that_only_says_that_it_converged_is_rescued():
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=150)
    alone, rescued = (run(m, bilevel, theta) for m in (Hasty(), Rescued(Hasty())))
    assert alone.status is Status.STALLED
    assert rescued.objective < 0.999 * alone.objective


def test_a_rescue_is_what_its_method_is():
    method = Rescued(Mpec())
    assert method.finds_own_start
    assert not method.shrinks
    assert Rescued(TrustRegionNewton(tol=1e-2)).accuracy() == 1e-2


def test_a_method_that_converged_is_left_alone():
    bilevel, theta = small_bilevel(Squared(), Squared())
    alone, rescued = (run(m, bilevel, theta) for m in (TrustRegionNewton(), Rescued(TrustRegionNewton())))
    assert alone.status is Status.CONVERGED
    assert rescued.theta == alone.theta
    assert rescued.details == {}


def test_a_rescued_method_serves_a_search():
    X, y = load_diabetes(return_X_y=True)
    search = BilevelSearchCV(LinearSVR(), method=Rescued(Stuck()), refit=False).fit(X, y)
    assert search.result_.objective < search.result_.objective_start


def test_a_method_that_knows_no_constraints_returns_none_that_breaks_them():
    """The gradient method in a rescue walks freely; what is returned keeps ``A theta <= c`` all the same."""
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=60)
    free = run(Rescued(), bilevel, theta)
    A, c = np.eye(6)[:1], np.array([free.theta[0] - 0.5])
    result = run(Rescued(pbp=PenalizedBilevel(constraints=(A, c)), always=True), bilevel, theta)
    assert result.theta[0] <= c[0] + 1e-9
    assert min(r.objective for r in result.history) < result.objective


def test_details_describe_the_point_that_is_returned():
    """The best point is often not that of the last, largest beta; of a start that is returned nothing is claimed."""
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=60, seed=3)
    earlier = 0
    for seed in range(6):
        bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), TUBES, n=60, seed=seed)
        result = run(PenalizedBilevel(), bilevel, theta)
        facts = result.details
        notes = {r.objective: r.note for r in result.history}
        assert facts["true_objective"] == result.objective
        assert notes[result.objective] == f"beta {facts['beta']:.2g}"
        earlier += facts["beta"] < facts["last_beta"]
        again = run(PenalizedBilevel(two_stage=False, max_iter=1), bilevel, np.array(result.theta))
        if again.history[0].objective == again.objective:
            assert "true_objective" not in again.details
    assert earlier > 0
