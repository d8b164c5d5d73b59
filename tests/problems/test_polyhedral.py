"""Exact linear machines with boxes: solutions, duals and derivatives of all folds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.svm import SVC, SVR

from foldwise.bilevel import Bilevel
from foldwise.losses import Absolute, EpsilonInsensitive, Hinge, Squared
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.linear import LinearModel, assemble
from foldwise.solvers.qp import ExactQP
from foldwise.space import Lin, Log, Space

START = {"C": 0.3, "lam": 3.0, "epsilon": 0.35, "box": 0.5, "box_lower": -0.45, "proximity": 2.0}


def program(
    task="regression",
    tune=None,
    criterion=None,
    values=None,
    n=45,
    d=4,
    scale=1.0,
    seed=0,
    standardize=None,
    **model,
):
    """A seeded bilevel program on three folds and a point inside its bounds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * scale
    f = X / scale @ rng.normal(size=d)
    one, two = Role("log_c", per=(None, "group")), Role("log_lam", per=(None, "feature"))
    box = {name: Role(name, per=(None, "feature")) for name in ("box", "box_lower")}
    roles = {"C": one, "lam": two, **box, "proximity": Role("log_near")}
    fixed = {"C": 1.0, "lam": 1.0, "box": None, "box_lower": None, "proximity": 0.0, "epsilon": 0.2}
    if task == "regression":
        roles["epsilon"] = Role("epsilon", per=(None, "group"))
        y = f + 0.5 * rng.standard_t(4, n) + 0.4
    else:
        y = np.where(f + rng.normal(size=n) > 0, 1.0, -1.0)
    loss = EpsilonInsensitive() if task == "regression" else Hinge()
    model = {"fit_intercept": True, **model}
    described = LinearModel(loss, roles, {**fixed, **(values or {})}, **model)
    splits = [(np.setdiff1d(np.arange(n), np.arange(t, n, 3)), np.arange(t, n, 3)) for t in range(3)]
    rows = Rows(y[None], group=np.arange(n) % 2, group_labels=[0, 1])
    tune = tune or {}
    space = make_space(tune, rows, range(d)) if tune else Space(())
    problem = assemble(described, X, rows, splits, space, dimensions=tune, standardize=standardize)
    default = Absolute() if task == "regression" else Hinge()
    theta = space.theta({name: START[name] for name in space.slices}) if tune else np.zeros(0)
    theta = space.clip(theta + 0.02 * rng.normal(size=len(theta))) if tune else theta
    return Bilevel([problem], criterion or default, space, ExactQP()), theta, X, y


C, TUBE, LAM = Log(1e-3, 1e3), Lin(0, 2), Log(1e-3, 1e3)
EACH = Lin(0, 3, per="feature")
PROGRAMS = {
    "C, epsilon, box": {"tune": {"C": C, "epsilon": TUBE, "box": EACH}},
    "squared criterion": {"tune": {"C": C, "epsilon": TUBE, "box": EACH}, "criterion": Squared()},
    "one box": {"tune": {"C": C, "box": Lin(0, 3)}},
    "log box": {"tune": {"C": C, "box": Log(0.01, 3, per="feature")}},
    "two sides": {"tune": {"lam": LAM, "epsilon": TUBE, "box": EACH, "box_lower": Lin(-3, 0, per="feature")}},
    "no intercept": {"tune": {"C": C, "epsilon": TUBE, "box": EACH}, "fit_intercept": False},
    "lam per feature": {"tune": {"lam": Log(1e-3, 1e3, per="feature"), "epsilon": TUBE}},
    "groups": {"tune": {"C": Log(1e-3, 1e3, per="group"), "epsilon": Lin(0, 2, per="group"), "box": EACH}},
    "proximity": {
        "tune": {"lam": LAM, "epsilon": TUBE, "proximity": LAM},
        "reference": np.array([1.0, -1.0, 0.5, 0.0]),
    },
    "elastic net": {"tune": {"lam": Log(1e-3, 1e3, per="feature"), "epsilon": TUBE}, "l1_ratio": 0.5},
    "L1": {
        "tune": {"lam": Log(1e-3, 1e3, per="feature"), "epsilon": TUBE, "box": Lin(0, 2)},
        "l1_ratio": 1.0,
    },
    "hinge": {"task": "classification", "tune": {"C": C, "box": EACH}},
    "hinge, L1": {"task": "classification", "tune": {"lam": LAM, "box": Lin(0, 2)}, "l1_ratio": 1.0},
    "hinge, standardised": {
        "task": "classification",
        "tune": {"lam": LAM, "box": EACH},
        "standardize": (True, True),
        "scale": np.array([1.0, 2.0, 0.1, 10.0]),
    },
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_hypergradients_and_sensitivities_against_central_differences(name):
    bilevel, theta, _, _ = program(**PROGRAMS[name])
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    assert here.converged
    assert np.linalg.norm(here.gradient) > 1e-2
    h = 1e-6
    for i in range(len(theta)):
        step = h * (np.arange(len(theta)) == i)
        up, down = bilevel.evaluate(theta + step, here), bilevel.evaluate(theta - step, here)
        slope = (up.objective - down.objective) / (2 * h)
        assert here.gradient[i] == pytest.approx(slope, abs=1e-7 * np.abs(here.gradient).max())
        moves = (up.solutions[0].W - down.solutions[0].W) / (2 * h)
        J = here.sensitivities[0]
        np.testing.assert_allclose(J[:, :, i], moves, atol=1e-6 * max(np.abs(J).max(), 1.0))


@pytest.mark.parametrize("name", ["squared criterion", "proximity", "lam per feature", "groups"])
def test_hyper_hessian_against_differences_of_gradients(name):
    bilevel, theta, _, _ = program(**{**PROGRAMS[name], "criterion": Squared()})
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    h = 1e-6
    for i in range(len(theta)):
        step = h * (np.arange(len(theta)) == i)
        up, down = (bilevel.differentiate(bilevel.evaluate(theta + s * step, here)) for s in (1, -1))
        column = (up.gradient - down.gradient) / (2 * h)
        np.testing.assert_allclose(here.hessian[i], column, atol=1e-6 * np.abs(here.hessian).max())


def in_user_units(problem, solution, m):
    """Data and solution of a task in the user's columns, training rows only; multipliers of bounds are not negative."""
    d, scale, par = problem.design.n_features, problem.design.scale, solution.par
    coef, bias = problem.design.to_user(solution.W[m : m + 1])
    split, cell = problem.split[m], problem.folds.cell
    strength = par.c[m][cell] * problem.weight * problem.folds.count[split]
    train = np.flatnonzero(strength > 0)
    lower, upper = problem.bounds(m, par)
    gamma = solution.gamma[m, :d] * scale
    return SimpleNamespace(
        rows=problem.folds.order[train],
        y=problem.Y[problem.target[m]][train],
        c=strength[train],
        epsilon=par.epsilon[m][cell][train],
        alpha=solution.alpha[m][train],
        z=solution.decisions[m][train],
        w=coef[0],
        b=float(bias[0]),
        lower=lower / scale,
        upper=upper / scale,
        gamma_lower=np.maximum(-gamma, 0.0),
        gamma_upper=np.maximum(gamma, 0.0),
        lam=par.lam[problem.target[m]] * (problem.root[m] * scale) ** 2,
        gap=float(solution.gap[m]),
    )


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_without_a_box_it_is_the_classical_machine(task):
    bilevel, theta, X, y = program(task, values={"C": 0.7, "epsilon": 0.2})
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    for m in range(3):
        own = in_user_units(problem, point, m)
        machine = (
            SVC(kernel="linear", C=0.7, tol=1e-9)
            if task == "classification"
            else SVR(kernel="linear", C=0.7, epsilon=0.2, tol=1e-9)
        )
        machine.fit(X[own.rows], y[own.rows])
        np.testing.assert_allclose(own.w, machine.coef_[0], atol=1e-6)
        assert own.b == pytest.approx(float(machine.intercept_[0]), abs=1e-5)
        dual = np.zeros(len(own.rows))
        dual[machine.support_] = machine.dual_coef_[0]
        np.testing.assert_allclose(own.w, X[own.rows].T @ own.alpha, atol=1e-10)
        np.testing.assert_allclose(own.alpha, dual, atol=1e-4)


def test_optimality_in_user_units_with_badly_scaled_columns():
    scale = np.array([1.0, 1e4, 1e-3, 30.0])
    bilevel, _, X, _ = program(tune={"C": C, "box": EACH}, scale=scale)
    theta = bilevel.space.theta({"C": 0.5, "box": 0.3 / scale})
    problem, point = bilevel.problems[0], bilevel.evaluate(theta).solutions[0]
    assert np.any(problem.design.scale != 1.0)
    held = 0
    for m in range(3):
        own = in_user_units(problem, point, m)
        z = X[own.rows] @ own.w + own.b
        np.testing.assert_allclose(z, own.z, atol=1e-9)
        r = z - own.y
        assert np.all(own.alpha[r > own.epsilon + 1e-7] == pytest.approx(-own.c[0]))
        assert np.all(own.alpha[r < -own.epsilon - 1e-7] == pytest.approx(own.c[0]))
        slope = own.lam * own.w - X[own.rows].T @ own.alpha + own.gamma_upper - own.gamma_lower
        np.testing.assert_allclose(slope * own.w, 0.0, atol=1e-6)
        np.testing.assert_allclose(own.gamma_upper * (own.upper - own.w), 0.0, atol=1e-9)
        np.testing.assert_allclose(own.gamma_lower * (own.w - own.lower), 0.0, atol=1e-9)
        held += int(np.sum(own.gamma_upper + own.gamma_lower > 0))
        assert own.gap >= 0
    assert held > 0
    assert np.all(problem.residual(point, None) < 1e-11)


def test_a_shut_box_has_the_derivative_of_opening_it():
    bilevel, _, _, _ = program(tune={"C": C, "epsilon": TUBE, "box": EACH})
    box = np.array([0.5, 0.0, 0.5, 0.4])
    theta = bilevel.space.theta({"C": 0.3, "epsilon": 0.3, "box": box})
    here = bilevel.differentiate(bilevel.evaluate(theta))
    assert np.all(here.solutions[0].W[:, 1] == 0.0)
    there = bilevel.evaluate(theta + 1e-7 * (np.arange(len(theta)) == 3))
    assert here.gradient[3] == pytest.approx((there.objective - here.objective) / 1e-7, rel=1e-5)
    assert abs(here.gradient[3]) > 1e-3


def test_an_intercept_that_no_row_holds_is_put_in_its_middle():
    X = np.array([[-2.0], [-1.0], [1.0], [2.0], [-1.5], [1.5]])
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    model = LinearModel(Hinge(), {"C": Role("log_c"), "box": Role("box")}, {"C": 1.0, "box": 0.1})
    problem = assemble(model, X, Rows(y[None]), [(np.arange(4), np.array([4, 5]))], Space(()))
    point = problem.solved(ExactQP(), np.zeros(0))
    assert point.pins[0] is not None
    assert point.W[0] == pytest.approx([0.1, 0.0])
    assert problem.n_kinks(point) == 1


def test_biactive_pairs_are_counted():
    bilevel, _, _, _ = program(tune={"C": C, "box": EACH})
    free = bilevel.evaluate(bilevel.space.theta({"C": 0.3, "box": 3.0}))
    assert bilevel.problems[0].n_kinks(free.solutions[0]) == 0
    w = free.solutions[0].W[0, :4] * bilevel.problems[0].root[0]
    touching = bilevel.evaluate(bilevel.space.theta({"C": 0.3, "box": np.r_[abs(w[0]), 3.0, 3.0, 3.0]}))
    assert bilevel.problems[0].n_kinks(touching.solutions[0]) >= 1


def test_a_library_gives_the_same_point():
    pytest.importorskip("piqp")
    bilevel, theta, _, _ = program(tune={"C": C, "epsilon": TUBE, "box": EACH})
    ours = bilevel.evaluate(theta).solutions[0]
    theirs = bilevel.problems[0].solved(ExactQP(backend="piqp"), theta)
    np.testing.assert_allclose(ours.W, theirs.W, atol=1e-11)
    np.testing.assert_allclose(ours.alpha, theirs.alpha, atol=1e-10)


def test_errors_name_the_way_out():
    with pytest.raises(ValueError, match="box has shape"):
        program(values={"box": np.ones(3)})
    with pytest.raises(ValueError, match="must not be negative"):
        program(values={"box": -1.0})
    with pytest.raises(ValueError, match="box_lower exceeds box"):
        program(values={"box": 1.0, "box_lower": 2.0})
    with pytest.raises(ValueError, match="proximity must be one number"):
        program(values={"proximity": -1.0})
