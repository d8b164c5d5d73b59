"""Smooth losses with bounds: projected Newton and derivatives on the free set."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import lsq_linear, minimize

from foldwise import BilevelSearchCV, LinearSVC, LinearSVR
from foldwise.bilevel import Bilevel
from foldwise.losses import (
    Huber,
    Logistic,
    ModifiedLogHinge,
    QuarticHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.linear import LinearModel, assemble
from foldwise.problems.boxed import BoxedProblem
from foldwise.solvers.projected import ProjectedNewton, _within
from foldwise.space import Lin, Log
from tests.makers import lines

EACH, C = Lin(0, 3, per="feature"), Log(1e-3, 1e3)
START = {"C": 0.3, "lam": 1.5, "epsilon": 0.2, "box": 0.4, "box_lower": -0.3, "proximity": 2.0}


def program(loss, tune, criterion, reference=None, standardize=None, intercept=True, n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    f = X @ rng.normal(size=d)
    y = (
        f + 0.5 * rng.normal(size=n)
        if loss.task == "regression"
        else np.where(f + rng.normal(size=n) > 0, 1.0, -1.0)
    )
    box = {name: Role(name, per=(None, "feature")) for name in ("box", "box_lower")}
    roles = {"C": Role("log_c"), "lam": Role("log_lam", per=(None, "feature")), **box}
    values = {"C": 0.3, "lam": 1.0, "box": None, "box_lower": None}
    if reference is not None:
        roles["proximity"], values["proximity"] = Role("log_near"), 0.5
    if "epsilon" in loss.tunable:
        roles["epsilon"], values["epsilon"] = Role("epsilon"), 0.1
    model = LinearModel(loss, roles, values, intercept, reference=reference)
    rows = Rows(y[None])
    space = make_space(tune, rows, range(d))
    splits = [(np.setdiff1d(np.arange(n), np.arange(t, n, 3)), np.arange(t, n, 3)) for t in range(3)]
    problem = assemble(model, X, rows, splits, space, dimensions=tune, standardize=standardize)
    theta = space.theta({name: START[name] for name in space.slices})
    theta = space.clip(theta + 0.03 * np.random.default_rng(1).normal(size=len(theta)))
    return Bilevel([problem], criterion, space, ProjectedNewton(tol=1e-13)), theta


PROGRAMS = {
    "squared": (Squared(), {"C": C, "box": EACH}, Squared()),
    "tube": (SquaredEpsilonInsensitive(), {"C": C, "epsilon": Lin(0, 2), "box": EACH}, Squared()),
    "logistic": (Logistic(), {"C": C, "box": EACH}, Logistic(s=2.0)),
    "one box": (SquaredHinge(), {"C": C, "box": Lin(0, 3)}, Logistic(s=2.0)),
    "lam": (QuarticHinge(), {"lam": Log(1e-3, 1e3, per="feature"), "box": EACH}, Logistic()),
    "proximity": (
        Squared(),
        {"C": C, "proximity": Log(1e-2, 1e2), "box": EACH, "box_lower": Lin(-3, 0)},
        Squared(),
        np.full(4, 0.5),
    ),
    "standardised": (Squared(), {"C": C, "box": EACH}, Squared(), None, (True, True)),
    "no intercept": (Squared(), {"C": C, "box": Log(0.01, 3, per="feature")}, Squared(), None, None, False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_against_central_differences(name):
    bilevel, theta = program(*PROGRAMS[name])
    problem = bilevel.problems[0]
    assert isinstance(problem, BoxedProblem)
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    point = here.solutions[0]
    assert here.converged
    assert np.any(problem.held(point)[0] != 0)
    assert problem.n_kinks(point) == 0
    assert np.linalg.norm(here.gradient) > 1e-2
    hessian = here.hessian
    if problem.loss.piecewise_quadratic:  # without the window that stands for rows about to change piece
        exact = bilevel.second_order(here, window=None)[0]
        hessian = exact + np.diag(point.par.scale_curvature * here.gradient)
    h = 1e-6
    for i in range(len(theta)):
        step = h * (np.arange(len(theta)) == i)
        up, down = (bilevel.differentiate(bilevel.evaluate(theta + s * step, here)) for s in (1, -1))
        slope = (up.objective - down.objective) / (2 * h)
        assert here.gradient[i] == pytest.approx(slope, abs=1e-6 * np.abs(here.gradient).max())
        moves = (up.solutions[0].W - down.solutions[0].W) / (2 * h)
        np.testing.assert_allclose(here.sensitivities[0][:, :, i], moves, atol=1e-6)
        column = (up.gradient - down.gradient) / (2 * h)
        np.testing.assert_allclose(hessian[i], column, atol=1e-5 * np.abs(hessian).max())


def data(n=80, d=6, seed=0):
    return lines(n, np.r_[1.0, -1.0, 0.5, np.zeros(d - 3)], seed, noise=0.5, level=0.4)


def test_least_squares_in_a_box_is_scipys():
    X, y = data()
    box = np.array([0.3, 2.0, 0.1, 0.2, 1.0, 1.0])
    model = LinearSVR("squared", C=1.0, box=box).fit(X, y)
    A = np.vstack([np.sqrt(2) * np.column_stack([X, np.ones(80)]), np.eye(6, 7)])
    b = np.r_[np.sqrt(2) * y, np.zeros(6)]
    theirs = lsq_linear(A, b, bounds=(np.r_[-box, -np.inf], np.r_[box, np.inf]), tol=1e-14).x
    np.testing.assert_allclose(np.r_[model.coef_, model.intercept_], theirs, atol=1e-10)
    assert np.sum(np.abs(model.coef_) == box) >= 2


@pytest.mark.parametrize("loss", [SquaredHinge(), Logistic(), QuarticHinge(), ModifiedLogHinge()], ids=repr)
@pytest.mark.parametrize("strength", [0.01, 1.0, 100.0])
def test_boxed_classifiers_are_minima(loss, strength):
    X, y = data()
    y = np.where(y > 0, 1.0, -1.0)
    model = LinearSVC(loss, C=strength, box=0.4).fit(X, y)

    def value(p):
        return 0.5 * p[:-1] @ p[:-1] + strength * loss.value(X @ p[:-1] + p[-1], y).sum()

    def slope(p):
        pull = strength * loss.grad(X @ p[:-1] + p[-1], y)
        return np.r_[p[:-1] + X.T @ pull, pull.sum()]

    bounds = [(-0.4, 0.4)] * 6 + [(None, None)]
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}
    other = minimize(value, np.zeros(7), jac=slope, method="L-BFGS-B", bounds=bounds, options=options)
    ours = np.r_[model.coef_[0], model.intercept_]
    assert value(ours) <= other.fun * (1 + 1e-12)
    np.testing.assert_allclose(ours, other.x, atol=1e-4)


def test_a_wide_box_changes_nothing():
    X, y = data()
    np.testing.assert_allclose(LinearSVR(box=100.0).fit(X, y).coef_, LinearSVR().fit(X, y).coef_, atol=1e-8)


def test_a_search_deselects_what_only_adds_noise():
    X, y = data()
    plain = BilevelSearchCV(LinearSVR(), {"C": None, "epsilon": None}, cv=3).fit(X, y)
    boxed = BilevelSearchCV(LinearSVR(), {"C": None, "epsilon": None, "box": None}, cv=3).fit(X, y)
    assert boxed.best_score_ > plain.best_score_
    support = boxed.best_estimator_.get_support()
    assert support[:3].all()
    assert not support.all()
    assert boxed.best_params_["box"][~support] == pytest.approx(0.0)


def test_solvers_without_bounds_say_so():
    X, y = data()
    with pytest.raises(ValueError, match="solver 'fista' needs a linear machine without bounds"):
        LinearSVR(box=1.0, solver="fista").fit(X, y)


@pytest.mark.parametrize("seed", range(40))
def test_a_quadratic_model_within_bounds(seed):
    """Where a Newton step that is cut off at the bounds leads uphill, this way is taken instead."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 12))
    A, target = rng.normal(size=(d + 2, d)), 3.0 * rng.normal(size=d + 2)
    lower = -rng.uniform(0, 1, d) * (rng.uniform(size=d) < 0.7)
    upper = rng.uniform(0.1, 1, d)
    H, g = A.T @ A, -A.T @ target
    held = ((lower == 0) & (g > 0)) | ((upper == 0) & (g < 0))
    wanted = lsq_linear(A, target, (lower, upper), tol=1e-15).x
    np.testing.assert_allclose(_within(H, g, held, lower, upper), wanted, atol=1e-7)


@pytest.mark.parametrize("name", ["box", "proximity"])
def test_an_intercept_that_no_row_holds_is_in_the_middle(name):
    """Small C and equal classes: every row on the straight piece of the quartic hinge."""
    tune = {"C": Log(1e-6, 1.0), name: EACH if name == "box" else Log(1e-2, 1e2)}
    bilevel, _ = program(
        QuarticHinge(), tune, Logistic(s=2.0), np.full(4, 0.02) if name == "proximity" else None
    )
    problem = bilevel.problems[0]
    # The same number of both classes in every fold.
    problem.Y[:] = np.where(np.arange(60) // 3 % 2, 1.0, -1.0)[problem.folds.order]
    theta = bilevel.space.theta({"C": 1e-3, name: np.full(4, 0.005) if name == "box" else 0.7})
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    problem, point = bilevel.problems[0], here.solutions[0]
    assert set(point.pins) == {0, 1, 2}
    for m, (rows, _) in point.pins.items():
        y, z = problem.Y[0], point.decisions[m]
        train = problem.folds.train[m]
        room = 1.0 - QuarticHinge().epsilon - y * z  # to the end of the straight piece
        assert room[train].min() > 0
        up, down = (room[train & (y == side)].min() for side in (1.0, -1.0))
        assert up == pytest.approx(down, rel=1e-9)
        assert sorted(y[rows]) == [-1.0, 1.0]
    h = 1e-5
    assert np.abs(here.gradient[0]) > 1e-6
    for i in range(len(theta)):
        step = h * (np.arange(len(theta)) == i)
        up, down = (bilevel.differentiate(bilevel.evaluate(theta + s * step, here)) for s in (1, -1))
        slope = (up.objective - down.objective) / (2 * h)
        assert here.gradient[i] == pytest.approx(slope, abs=1e-6 * np.abs(here.gradient).max())
        change = (up.gradient - down.gradient) / (2 * h)
        assert np.allclose(here.hessian[i], change, atol=1e-4 * np.abs(here.hessian).max())


def test_a_far_intercept_is_found():
    """Huber's loss with targets far beyond its quadratic piece: the intercept has no curvature where it starts."""
    bilevel, theta = program(Huber(delta=0.5), {"C": C, "box": EACH}, Squared())
    bilevel.problems[0].Y[:] = 1e4 + 1e3 * bilevel.problems[0].Y
    here = bilevel.evaluate(theta)
    assert here.converged
    assert bilevel.problems[0].residual(here.solutions[0], bilevel.workspaces[0]).max() < 1e-9
    medians = [np.median(bilevel.problems[0].Y[0][train]) for train in bilevel.problems[0].folds.train]
    assert np.allclose(here.solutions[0].W[:, -1], medians, rtol=0.1)
