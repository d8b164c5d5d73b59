"""Quadratic programs by a library, and the active-set method on piecewise quadratic functions."""

from __future__ import annotations

import importlib.util
from unittest import mock

import numpy as np
import pytest
from scipy.optimize import linprog

from foldwise import LinearSVC, LinearSVR
from foldwise.design import DenseDesign
from foldwise.problems.pieces import KinkSystem, Pieces
from foldwise.solvers.descent import descend
from foldwise.solvers.qp import BACKENDS, library_solution, solve_qp


def random_pieces(rng, kind="tube", n=40, d=4, C=1.0, epsilon=0.3, box=np.inf, l1=0.0, q=1.0, integer=False):
    X = rng.integers(-2, 3, (n, d)).astype(float) if integer else rng.normal(size=(n, d))
    f = X @ rng.normal(size=d)
    if kind == "tube":
        y = f + (rng.integers(-2, 3, n) if integer else rng.standard_t(4, n))
        kinks, steps = np.stack([y - epsilon, y + epsilon], axis=1), np.tile([1.0, 0.0, -1.0], (n, 1))
    elif kind == "stairs":  # no step at zero, and of unequal heights
        y = f + rng.standard_t(4, n)
        kinks, steps = np.stack([y, y + epsilon], axis=1), np.tile([1.3, -0.4, -2.0], (n, 1))
    else:
        y = np.where(f + rng.normal(size=n) > 0, 1.0, -1.0)
        kinks, steps = y[:, None].copy(), np.stack([y > 0, -(y < 0).astype(float)], axis=1)
    X = np.column_stack([X, np.ones(n)])
    pad = np.r_[np.full(d, 1.0), 0.0]
    edge = np.r_[np.full(d, box), np.inf]
    centre = np.r_[rng.normal(size=d) * 0.3, 0.0]
    return Pieces(DenseDesign(X), kinks, C * steps, np.full(n, C), q * pad, centre, l1 * pad, -edge, edge)


CASES = [
    {"kind": kind, "C": C, "epsilon": epsilon, "box": box, "l1": l1, "q": q}
    for kind in ("tube", "hinge", "stairs")
    for C, epsilon in ((0.05, 0.5), (1.0, 0.0), (50.0, 0.3))
    for box, l1, q in (
        (np.inf, 0.0, 1.0),
        (0.4, 0.0, 1.0),
        (0.4, 1.0, 1.0),
        (np.inf, 1.0, 0.0),
        (0.0, 0.0, 1.0),
    )
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES[::4])
def test_the_active_set_method_agrees_with_a_library(case, backend):
    pytest.importorskip(backend)
    p = random_pieces(np.random.default_rng(3), **case)
    end = descend(p)
    w, alpha, _, status = library_solution(p, backend)
    assert end.optimal
    assert "olved" in status.lower()
    assert p.value(end.w) <= p.value(w) * (1 + 1e-12)
    assert p.value(end.w) == pytest.approx(p.value(w), rel=1e-7)
    if p.q[0] > 0:
        np.testing.assert_allclose(end.w[:-1], w[:-1], atol=1e-4)
    assert p.gap(w, alpha) <= 1e-6 * p.scale(w, p.X.times(w), alpha)


@pytest.mark.parametrize("case", CASES)
def test_duality_gaps_close_to_rounding(case):
    for seed in range(3):
        p = random_pieces(np.random.default_rng(seed), **case)
        end = descend(p)
        assert end.optimal
        assert p.gap(end.w, end.alpha) <= 1e-11 * p.scale(end.w, end.Z, end.alpha)
        assert np.all((end.w >= p.lower) & (end.w <= p.upper))
        assert abs(end.alpha.sum()) <= 1e-10 * np.abs(end.alpha).sum()


@pytest.mark.parametrize("kind", ["tube", "hinge"])
def test_ties_between_many_rows(kind):
    solved = 0
    for seed in range(30):
        p = random_pieces(np.random.default_rng(seed), kind, 60, 3, 1.0, 1.0, integer=True)
        end = descend(p)
        solved += end.gap <= 1e-9 * p.scale(end.w, end.Z, end.alpha)
    assert solved == 30


def test_a_guess_of_the_active_set_saves_rounds():
    rng = np.random.default_rng(0)
    p = random_pieces(rng, "tube", 80, 6)
    cold = descend(p)
    again = descend(p, cold.w, cold.active)
    assert again.rounds == 1
    np.testing.assert_allclose(again.w, cold.w, atol=1e-12)


def test_the_gap_is_never_negative_and_is_the_difference_of_values():
    rng = np.random.default_rng(1)
    p = random_pieces(rng, "tube", 30, 3, box=0.5)
    best = descend(p)
    for _ in range(20):
        w = np.clip(rng.normal(size=4), p.lower, p.upper)
        excess = p.value(w) - p.value(best.w)
        assert p.gap(w, best.alpha) == pytest.approx(excess, abs=1e-9)
        assert excess >= 0


def test_kink_system_with_dependent_rows_takes_the_shortest_solution():
    X = np.array([[1.0, 2.0], [1.0, 2.0]])
    dw, dalpha, rest = KinkSystem(X, np.ones(2)).solve(np.zeros((2, 1)), np.ones((2, 1)))
    np.testing.assert_allclose(X @ dw, 1.0)
    np.testing.assert_allclose(dalpha[0], dalpha[1])
    assert np.abs(rest).max() < 1e-12


@pytest.mark.parametrize("backend", BACKENDS)
def test_solve_qp_multipliers(backend):
    pytest.importorskip(backend)
    rng = np.random.default_rng(2)
    A = rng.normal(size=(6, 6))
    P, q = A @ A.T + np.eye(6), rng.normal(size=6)
    G, h = rng.normal(size=(4, 6)), np.full(4, 0.1)
    E, b = rng.normal(size=(1, 6)), np.array([0.3])
    out = solve_qp(
        P, q, G, h, E, b, -0.2 * np.ones(6), np.r_[np.full(3, 0.2), np.full(3, np.inf)], backend=backend
    )
    assert out.solved
    assert abs(out.gap) < 1e-7
    slope = P @ out.x + q + G.T @ out.z + E.T @ out.y - out.z_lower + out.z_upper
    assert np.abs(slope).max() < 1e-6
    assert min(out.z.min(), out.z_lower.min(), out.z_upper.min()) >= -1e-9
    assert np.all(G @ out.x <= h + 1e-7)


def test_a_missing_library_says_what_to_install():
    with (
        mock.patch.object(importlib.util, "find_spec", return_value=None),
        pytest.raises(ImportError, match=r"foldwise\[mpec\]"),
    ):
        solve_qp(np.eye(1), np.zeros(1))
    with pytest.raises(ValueError, match="unknown backend 'mosek'"):
        solve_qp(np.eye(1), np.zeros(1), backend="mosek")


@pytest.mark.parametrize("C", [1e6, 1e9, 1e11, 1e13])
def test_where_C_is_very_large_the_loss_is_that_of_a_linear_program(C):
    """Multipliers of the size of C must not blur where rows sit on their kinks: no warning, the least loss."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(8, 60)), int(rng.integers(1, 6))
        X = rng.normal(size=(n, d))
        y = X[:, 0] + rng.normal(size=n)
        sign = np.where(y > 0, 1.0, -1.0)
        ones, free = np.ones((n, 1)), [(None, None)] * (d + 1) + [(0, None)] * n
        cost = np.r_[np.zeros(d + 1), np.ones(n)]
        tube = np.block([[X, ones, -np.eye(n)], [-X, -ones, -np.eye(n)]])
        margin = np.hstack([-sign[:, None] * np.hstack([X, ones]), -np.eye(n)])
        least = linprog(cost, tube, np.r_[y + 0.1, 0.1 - y], bounds=free).fun
        fewest = linprog(cost, margin, -np.ones(n), bounds=free).fun
        regressor = LinearSVR(loss="epsilon_insensitive", C=C, epsilon=0.1).fit(X, y)
        classifier = LinearSVC(loss="hinge", C=C).fit(X, sign)
        loss = np.clip(np.abs(regressor.predict(X) - y) - 0.1, 0, None).sum()
        assert loss - least <= 1e-9 * max(least, 1e-3)
        loss = np.clip(1 - sign * classifier.decision_function(X), 0, None).sum()
        assert loss - fewest <= 1e-9 * max(fewest, 1e-3)
