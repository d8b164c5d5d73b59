"""Outer methods: the contract for every one, agreement between them, limits, stopping rules, the box QP."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.optimize import minimize as scipy_minimize

from foldwise.losses import Logistic, Misclassification, Squared, SquaredEpsilonInsensitive, SquaredHinge
from foldwise.models.linear.starts import default_starts
from foldwise.optimizers import METHODS, Bfgs, Grid, LBfgsB, Random, Rprop, TrustRegionNewton
from foldwise.optimizers.base import Minimizer, Trace, run
from foldwise.optimizers.quadratic import box_qp
from foldwise.optimizers.rescue import Rescued
from foldwise.result import MESSAGES, Status, merge
from foldwise.space import Lin, Log
from foldwise.testing import check_optimizer, relative_error, small_bilevel
from tests.referees import quadratic_program

FOUR = {
    "newton": TrustRegionNewton(tol=1e-10),
    "gauss-newton": TrustRegionNewton(tol=1e-10, hessian="gauss-newton"),
    "lbfgsb": LBfgsB(tol=1e-12),
    "bfgs": Bfgs(tol1=1e-10, tol2=1e-7, rule="all"),
    "rprop": Rprop(tol=1e-5, max_iter=500),
}


def smooth_program(seed=0):
    tune = {"C": Log(1e-3, 1e2), "lam": Log(1e-2, 1e2, per="feature", tie=[0, 0, 1, 1, 1])}
    return small_bilevel(Logistic(), Logistic(), tune, n=90, seed=seed)


def tube_program(**options):
    return small_bilevel(
        SquaredEpsilonInsensitive(), Squared(), {"C": Log(1e-3, 1e1), "epsilon": Lin(0, 1.5)}, **options
    )


ANY_PROGRAM = [
    name for name in METHODS if name not in ("mpec", "slams", "constrained_grid")
]  # the others need boxes and have tests of their own


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ANY_PROGRAM)
def test_contract(name, seed):
    options = {"grid": {"points": 4}, "random": {"n_iter": 8, "seed": 0}}.get(name, {})
    method = METHODS[name](**options)
    assert method.name == name
    check_optimizer(method, seed=seed)


@dataclass(frozen=True)
class ReturnsTheLast(Minimizer):
    """Forgets the best point."""

    name = "last"

    def iterate(self, trace, theta):
        trace.evaluate(theta)
        trace.best = trace.evaluate(trace.space.upper)
        return Status.CONVERGED


@dataclass(frozen=True)
class NeverStops(Minimizer):
    """Swallows the request to stop."""

    name = "deaf"

    def iterate(self, trace, theta):
        for shift in (0.0, 0.1, 0.2, 0.3):
            try:
                trace.evaluate(theta - shift)
            except Exception:
                continue
        return Status.CONVERGED


@dataclass(frozen=True)
class LeavesTheBox(Minimizer):
    """Relies on the program to clip what it asks for."""

    name = "outside"

    def iterate(self, trace, theta):
        trace.evaluate(theta)
        trace.evaluate(trace.space.upper + 1.0)
        return Status.CONVERGED


@dataclass(frozen=True)
class LooksOnce(Minimizer):
    name = "once"

    def iterate(self, trace, theta):
        trace.evaluate(theta)
        return Status.CONVERGED


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (ReturnsTheLast(), "best evaluated"),
        (NeverStops(), "stop"),
        (LooksOnce(), "fewer than two"),
        (LeavesTheBox(), "left the bounds by 1"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_contract_can_fail(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_optimizer(broken)


# Agreement.


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_four_methods_find_the_same_minimum(seed):
    bilevel, theta = smooth_program(seed)
    results = {name: method.minimize(bilevel, theta) for name, method in FOUR.items()}
    best = min(result.objective for result in results.values())
    start = results["newton"].objective_start
    assert start > best * (1 + 1e-3)
    for name, result in results.items():
        assert result.objective == pytest.approx(best, rel=1e-5), name
    assert results["newton"].status is Status.CONVERGED
    assert results["newton"].n_evaluations < results["lbfgsb"].n_evaluations


def test_newton_stops_at_a_stationary_point():
    bilevel, theta = smooth_program()
    result = TrustRegionNewton(tol=1e-12).minimize(bilevel, theta)
    assert result.gradient_norm < 1e-5
    first = result.history[0].gradient_norm
    assert first > 1e3 * result.gradient_norm


@pytest.mark.parametrize("program", [smooth_program, tube_program], ids=["smooth", "tube"])
def test_a_grid_is_never_better_than_newton(program):
    bilevel, theta = program()
    newton = min(TrustRegionNewton().minimize(bilevel, start).objective for start in default_starts(bilevel))
    grid = Grid(points=6 if bilevel.space.size > 2 else 12).minimize(bilevel, theta)
    assert grid.objective >= newton * (1 - 1e-6)
    assert grid.status is Status.EXHAUSTED


def test_an_optimum_at_a_bound_is_reached_and_reported():
    bilevel, theta = small_bilevel(Logistic(), Logistic(), {"C": Log(1e-3, 1e-2)}, n=200)
    for name in ("newton", "lbfgsb", "bfgs", "rprop"):
        result = FOUR[name].minimize(bilevel, theta)
        assert result.at_bound == {"C": "upper"}, name
        assert result.params["C"] == pytest.approx(1e-2)
        assert result.gradient_norm == 0.0, name


def test_an_entry_with_equal_bounds_stays():
    tune = {"C": Log(1e-3, 1e2), "lam": Lin(2.0, 2.0)}
    bilevel, theta = small_bilevel(Logistic(), Logistic(), tune)
    for name in ("newton", "lbfgsb", "bfgs", "rprop"):
        result = FOUR[name].minimize(bilevel, theta)
        assert result.params["lam"] == 2.0
        assert result.objective < result.objective_start


@pytest.mark.parametrize("hessian", ["exact", "gauss-newton"])
def test_newton_takes_few_evaluations(hessian):
    bilevel, theta = tube_program(n=200)
    result = TrustRegionNewton(hessian=hessian).minimize(bilevel, theta)
    assert result.status is Status.CONVERGED
    assert result.n_evaluations <= 25


def test_options_are_checked():
    with pytest.raises(ValueError, match="gauss-newton"):
        TrustRegionNewton(hessian="bfgs")
    with pytest.raises(ValueError, match="'any' or 'all'"):
        Bfgs(rule="either")


def test_an_iteration_limit_is_reported():
    bilevel, theta = smooth_program()
    for method in (
        TrustRegionNewton(max_iter=1),
        LBfgsB(max_iter=1),
        Bfgs(max_iter=1, rule="all", tol2=1e-9),
        Rprop(max_iter=3),
    ):
        result = method.minimize(bilevel, theta)
        assert result.status is Status.MAX_ITER, method
        assert result.message == MESSAGES[Status.MAX_ITER]


# Plans.


def test_a_grid_visits_every_combination_once_and_neighbours_differ_in_one_entry():
    bilevel, theta = small_bilevel(
        SquaredEpsilonInsensitive(), Squared(), {"C": Log(1e-2, 1e2, per="group"), "epsilon": Lin(0, 1)}
    )
    result = Grid(points=3).minimize(bilevel, theta)
    seen = [(*record.params["C"], record.params["epsilon"]) for record in result.history]
    wanted = set(itertools.product(*[(-2, 0, 2)] * 3, (0, 0.5, 1)))
    rounded = [(*np.round(np.log10(point[:3])).astype(int), point[3]) for point in seen]
    assert len(rounded) == 81
    assert {tuple(map(float, point)) for point in rounded} == {tuple(map(float, point)) for point in wanted}
    changes = [
        sum(a != b for a, b in zip(one, other, strict=True)) for one, other in itertools.pairwise(rounded)
    ]
    assert set(changes) == {1}


def test_a_grid_of_explicit_values():
    bilevel, theta = tube_program()
    result = Grid(points=3, values={"C": [1.0, 0.01]}).minimize(bilevel, theta)
    assert {round(record.params["C"], 12) for record in result.history} == {0.01, 1.0}
    assert {record.params["epsilon"] for record in result.history} == {0.0, 0.75, 1.5}


def test_a_grid_refuses_what_is_never_meant():
    bilevel, theta = tube_program()
    seen = []
    with pytest.raises(ValueError, match=r"10,000 points .*max_points=1000"):
        Grid(points=100, max_points=1000).minimize(bilevel, theta, callback=seen.append)
    assert not seen
    with pytest.raises(ValueError, match="unknown 'gamma'"):
        Grid(values={"gamma": [1.0]}).minimize(bilevel, theta)


def test_random_search_is_seeded():
    runs = []
    for seed in (0, 0, 1):
        bilevel, theta = tube_program()
        result = Random(n_iter=10, seed=seed).minimize(bilevel, theta)
        runs.append([(record.params["C"], record.objective) for record in result.history])
    assert runs[0] == runs[1]
    assert runs[0][0] == runs[2][0]  # the starting point comes first
    assert runs[0][1:] != runs[2][1:]
    assert len(runs[0]) == 10


def test_plans_need_no_gradient():
    bilevel, theta = small_bilevel(SquaredHinge(), Misclassification())
    for method in (Grid(points=5), Random(n_iter=5, seed=0)):
        result = method.minimize(bilevel, theta)
        assert 0.0 <= result.objective <= result.objective_start
        assert result.gradient_norm is None
    with pytest.raises(ValueError, match="smooth_misclassification"):
        TrustRegionNewton().minimize(bilevel, theta)


# Limits.


@pytest.mark.parametrize("name", ["newton", "lbfgsb", "bfgs", "rprop", "grid", "random"])
@pytest.mark.parametrize("when", [0, 1, 4])
def test_an_interrupt_returns_the_best_so_far(name, when):
    bilevel, theta = tube_program()
    method = FOUR.get(name) or METHODS[name]()

    def interrupt(record):
        if record.evaluation == when:
            raise KeyboardInterrupt

    result = method.minimize(bilevel, theta, callback=interrupt)
    assert result.status is Status.INTERRUPTED
    assert result.message == MESSAGES[Status.INTERRUPTED]
    assert result.n_evaluations == when + 1
    assert result.objective == min(record.objective for record in result.history)
    fresh, _ = tube_program()
    again = fresh.evaluate(np.array(result.theta))
    assert result.objective == pytest.approx(again.objective, rel=1e-9)
    fresh.differentiate(again)
    assert result.gradient_norm == pytest.approx(np.linalg.norm(fresh.projected(again)), rel=1e-6, abs=1e-12)


def test_an_interrupt_inside_a_solve_leaves_no_half_updated_state():
    """The problem forgets what it kept; what is computed afterwards is right."""
    bilevel, theta = tube_program()
    kept = bilevel.workspaces[0]
    flip, calls = kept._flip, []

    def half_way(tasks, new, changed, k):
        calls.append(1)
        if len(calls) > 6:
            flip(tasks[:1], new[:1], changed[:1], k)
            raise KeyboardInterrupt
        flip(tasks, new, changed, k)

    kept._flip = half_way
    result = Random(n_iter=50, seed=0).minimize(bilevel, theta)
    assert result.status is Status.INTERRUPTED
    fresh, _ = tube_program()
    for point in (theta, bilevel.space.lower, np.array(result.theta)):
        assert bilevel.evaluate(point).objective == pytest.approx(fresh.evaluate(point).objective, rel=1e-9)


def test_an_interrupt_before_the_first_evaluation_passes_through():
    bilevel, theta = tube_program()

    class Impatient:
        def solve(self, *args):
            raise KeyboardInterrupt

    bilevel.solver = Impatient()
    with pytest.raises(KeyboardInterrupt):
        TrustRegionNewton().minimize(bilevel, theta)


def test_a_time_limit_ends_the_search():
    bilevel, theta = tube_program()
    began = time.perf_counter()
    result = run(Random(n_iter=10**6, seed=0), bilevel, theta, deadline=began + 0.2)
    assert result.status is Status.TIME_LIMIT
    assert result.n_evaluations > 1
    assert 0.2 <= time.perf_counter() - began < 2.0
    assert result.objective == min(record.objective for record in result.history)


def test_an_error_in_a_callback_is_not_swallowed():
    bilevel, theta = tube_program()

    def broken(record):
        raise RuntimeError("broken callback")

    with pytest.raises(RuntimeError, match="broken callback"):
        TrustRegionNewton().minimize(bilevel, theta, callback=broken)


def test_inner_problems_that_stop_short_are_reported():
    from foldwise.solvers.newton import Newton

    bilevel, theta = small_bilevel(Logistic(), Logistic(), solver=Newton(max_iter=1))
    result = Random(n_iter=3, seed=0).minimize(bilevel, theta)
    assert any("did not converge" in text for text in result.warnings)


# ImpGrad's two stopping rules.


def which_tests_hold(bilevel, result, tol1, tol2):
    """Whether each of the two tests of Algorithm 1 holds at the accepted points, in order."""
    accepted = [r for i, r in enumerate(result.history) if i == 0 or r.objective < result.history[i - 1].best]
    gains = []
    for before, after in itertools.pairwise(accepted):
        small_gain = abs(after.objective - before.objective) < tol1 * abs(after.objective + 1)
        evaluation = bilevel.differentiate(bilevel.evaluate(bilevel.space.theta(after.params)))
        slope = np.linalg.norm(bilevel.projected(evaluation))
        gains.append((bool(small_gain), bool(slope <= tol2 * abs(after.objective + 1) * (1 + 1e-6))))
    return gains


@pytest.mark.parametrize(("tol1", "tol2"), [(1e-3, 1e-9), (1e-12, 1e-3), (1e-3, 1e-3), (1e-6, 1e-5)])
def test_impgrad_stops_by_either_test_or_by_both(tol1, tol2):
    bilevel, theta = smooth_program()
    either = Bfgs(tol1=tol1, tol2=tol2, rule="any").minimize(bilevel, theta)
    assert either.status is Status.CONVERGED
    *earlier, last = which_tests_hold(bilevel, either, tol1, tol2)
    assert any(last)
    assert not any(any(pair) for pair in earlier)
    both = Bfgs(tol1=tol1, tol2=tol2, rule="all").minimize(bilevel, theta)
    assert both.n_evaluations >= either.n_evaluations
    assert both.objective <= either.objective * (1 + 1e-12)
    if both.status is Status.CONVERGED:
        *earlier, last = which_tests_hold(bilevel, both, tol1, tol2)
        assert all(last)
        assert not any(all(pair) for pair in earlier)
    else:
        assert both.status is Status.STALLED


def test_the_rules_differ_where_they_should():
    """A loose test on the gain ends "any" early; "all" waits for the gradient."""
    bilevel, theta = smooth_program()
    either = Bfgs(tol1=0.5, tol2=1e-6, rule="any").minimize(bilevel, theta)
    both = Bfgs(tol1=0.5, tol2=1e-6, rule="all").minimize(bilevel, theta)
    assert both.status is Status.CONVERGED
    assert either.gradient_norm > 100 * both.gradient_norm
    assert both.n_evaluations > either.n_evaluations


def test_impgrad_walks_in_c_itself_on_a_linear_scale():
    tune = {"C": Lin(1e-3, 5.0), "epsilon": Lin(0, 1.5)}
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), tune, n=120)
    result = Bfgs(tol1=1e-8, tol2=1e-6).minimize(bilevel, theta)
    other, start = tube_program(n=120)
    newton = TrustRegionNewton(tol=1e-9).minimize(other, start)
    assert result.objective == pytest.approx(newton.objective, rel=1e-3)


# Starting points.


def test_the_first_start_is_the_least_squares_optimum():
    bilevel, _ = tube_program(n=120)
    start = default_starts(bilevel)[0]
    assert start[1] == 0.0
    grid = Grid(points=60, values={"epsilon": [0.0]}).minimize(bilevel, start)
    assert bilevel.evaluate(start).objective == pytest.approx(grid.objective, rel=1e-3)


def test_starts_are_inside_and_open_the_tube():
    tune = {"C": Log(1e-3, 1e1, per="group"), "epsilon": Lin(0.1, 1.5, per="group")}
    bilevel, _ = small_bilevel(SquaredEpsilonInsensitive(), Squared(), tune)
    starts = default_starts(bilevel)
    assert len(starts) == 3
    np.testing.assert_array_equal(starts, default_starts(bilevel))
    for start in starts:
        assert np.all(start >= bilevel.space.lower)
        assert np.all(start <= bilevel.space.upper)
    np.testing.assert_array_equal(starts[0][3:], 0.1)
    assert np.all(starts[1][3:] > 0.1)
    assert np.all(starts[2][3:] > starts[1][3:])


def test_without_a_partition_the_start_is_the_middle():
    bilevel, _ = tube_program(overlap=True)
    start = default_starts(bilevel)[0]
    np.testing.assert_allclose(start, [0.5 * (np.log(1e-3) + np.log(1e1)), 0.0])


# The box QP of the trust region.


def random_qp(seed):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(1, 13))
    Q, _ = np.linalg.qr(rng.normal(size=(p, p)))
    H = (Q * np.geomspace(1.0, 10.0 ** rng.uniform(0, 5), p)) @ Q.T
    g = 10.0 ** rng.uniform(-2, 3) * rng.normal(size=p)
    low, high = -rng.uniform(0, 1, p), rng.uniform(0, 1, p)
    low[rng.random(p) < 0.2] = 0.0
    high[rng.random(p) < 0.1] = 0.0
    return 0.5 * (H + H.T), g, low, high


def test_box_qp_satisfies_its_optimality_conditions():
    active = inactive = 0
    for seed in range(400):
        H, g, low, high = random_qp(seed)
        x = box_qp(H, g, low, high)
        assert np.all((x >= low) & (x <= high))
        slope = g + H @ x
        scale = np.abs(g).max() + np.abs(H).max() * np.abs(x).max()
        inside = (x > low) & (x < high)
        assert np.all(np.abs(slope[inside]) <= 1e-9 * scale)
        assert np.all(slope[(x == low) & (low < high)] >= -1e-9 * scale)
        assert np.all(slope[(x == high) & (low < high)] <= 1e-9 * scale)
        active, inactive = active + int(np.sum(~inside)), inactive + int(np.sum(inside))
    assert min(active, inactive) > 300


def test_box_qp_against_scipy():
    for seed in range(40):
        H, g, low, high = random_qp(seed)
        x = box_qp(H, g, low, high)

        def objective(v, H=H, g=g):
            return float(g @ v + 0.5 * v @ H @ v), g + H @ v

        found = scipy_minimize(
            objective,
            x * 0,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(low, high, strict=True)),
            options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000},
        )
        assert objective(x)[0] <= found.fun + 1e-9 * max(1.0, abs(found.fun))


def test_box_qp_against_clarabel():
    for seed in range(30):
        H, g, low, high = random_qp(seed)
        sides = np.vstack([np.eye(len(g)), -np.eye(len(g))])
        wanted, least = quadratic_program(H, g, sides, np.concatenate([high, -low]), tol=1e-8)
        x = box_qp(H, g, low, high)
        value = g @ x + 0.5 * x @ H @ x
        assert value == pytest.approx(least, rel=1e-6, abs=1e-8)
        assert relative_error(x, wanted) < 1e-3 or np.abs(x - wanted).max() < 1e-6


def test_methods_with_a_test_of_their_own_have_words_of_their_own():
    bilevel, theta = smooth_program()
    for name in ("lbfgsb", "bfgs", "rprop", "pbp"):
        result = METHODS[name]().minimize(bilevel, theta)
        assert result.status == Status.CONVERGED
        assert result.message != MESSAGES[Status.CONVERGED]
    assert METHODS["newton"]().minimize(bilevel, theta).message == MESSAGES[Status.CONVERGED]
    rescued = Rescued(METHODS["lbfgsb"]())
    assert rescued.message(Status.CONVERGED) == METHODS["lbfgsb"]().message(Status.CONVERGED)
    for kind in METHODS.values():
        assert set(kind.messages) <= set(Status)
        assert all(text.endswith(".") for text in kind.messages.values())


@dataclass(frozen=True)
class Walk(Minimizer):
    """Visits points on a line, and may return only those right of a limit: a method with a constraint of its own."""

    limit: float = -np.inf
    points: int = 9

    name = "walk"
    needs_gradient = False

    def admits(self, space, theta):
        return bool(theta[0] >= self.limit)

    def iterate(self, trace, theta):
        for x in np.linspace(trace.space.lower[0], trace.space.upper[0], self.points):
            trace.evaluate(np.array([x, *theta[1:]]))
        return Status.EXHAUSTED


def test_only_admissible_points_are_returned_whatever_they_cost():
    bilevel, theta = small_bilevel(Logistic(), Logistic())
    free = Walk().minimize(bilevel, theta)
    limit = free.theta[0] + 1e-9  # the best point of all is just not allowed
    result = Walk(limit=limit).minimize(bilevel, theta)
    assert result.theta[0] >= limit
    assert result.objective > free.objective
    allowed = [r for r in result.history if r.admissible]
    assert 0 < len(allowed) < len(result.history)
    assert result.objective == min(r.objective for r in allowed)
    assert result.objective_start == allowed[0].objective
    assert result.history[0].best == np.inf
    assert result.history[-1].best == result.objective
    merged = merge([], [result])
    assert [r.best for r in merged.history] == [r.best for r in result.history]
    with pytest.raises(ValueError, match="kept its constraints"):
        Walk(limit=np.inf).minimize(bilevel, theta)


def test_where_nothing_can_move_the_only_point_must_do():
    """All bounds equal: a point that the method may not return, or that has no finite error, is an error too."""
    bilevel, theta = small_bilevel(Squared(), Squared(), {"C": Log(2.0, 2.0)})
    assert Walk().minimize(bilevel, theta).status is Status.EXHAUSTED
    with pytest.raises(ValueError, match="kept its constraints"):
        Walk(limit=np.inf).minimize(bilevel, theta)
    bilevel.prior = lambda theta: (np.inf, np.zeros(1), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="not finite at any point"):
        Walk().minimize(bilevel, theta)


class Settles(Minimizer):
    """Evaluates its start and calls it a minimum."""

    name = "settles"

    def iterate(self, trace, theta):
        trace.evaluate(theta, order=1)
        return Status.CONVERGED


def test_an_end_on_few_rows_is_looked_around_and_gone_on_from():
    bilevel, theta = small_bilevel(Squared(), Squared(), {"C": Log(1e-6, 1e6)})
    alone = Settles().minimize(bilevel, theta - 4.0)
    looked = run(Settles(), bilevel, theta - 4.0, look=True)
    assert looked.objective < 0.99 * alone.objective
    assert looked.details["looks"] >= 4
    # Looks that gain nothing leave no trace but their number.
    newton = run(TrustRegionNewton(), bilevel, theta, look=True)
    plain = TrustRegionNewton().minimize(bilevel, theta)
    assert newton.theta == plain.theta
    assert newton.n_evaluations == plain.n_evaluations
    assert newton.details["looks"] == 4


def vouched(bilevel, theta):
    """A trace whose method vouches that nothing is to be gained."""
    trace = Trace(bilevel)
    trace.vouch(trace.evaluate(theta, order=1), 0.0)
    return trace


def test_a_method_is_taken_at_its_word_at_a_kink_only():
    bilevel, theta = small_bilevel(Squared(), Squared(), {"C": Log(1e-6, 1e6)})
    theta = theta - 4.0
    plain = Trace(bilevel)
    plain.evaluate(theta, order=1)
    told = vouched(bilevel, theta)
    there = bilevel.evaluate(theta + 0.1)
    gain = 1 - there.objective / told.best.objective
    assert told.promised() == pytest.approx(min(gain, plain.promised()), rel=1e-6)
    assert told.promised() > 1e-3
    # The slope on one side of a kink promises what no step gains.
    bilevel.prior = lambda at: (5 * abs(at[0] - theta[0]), np.array([-5.0]), np.zeros((1, 1)))
    kinked = Trace(bilevel)
    kinked.evaluate(theta, order=1)
    assert kinked.promised() > 1e-2
    assert vouched(bilevel, theta).promised() == 0.0


def test_what_a_look_has_seen_is_not_promised_away():
    """A method that vouches for a point cannot call it a minimum where a step was seen to gain."""
    bilevel, theta = small_bilevel(Squared(), Squared(), {"C": Log(1e-6, 1e6)})
    theta = theta - 4.0
    # A kink on one side and a gain on the other, where the slope of the kink does not lead.
    bilevel.prior = lambda at: (5 * max(at[0] - theta[0], 0.0), np.array([-5.0]), np.zeros((1, 1)))
    trace = vouched(bilevel, theta)
    assert trace.promised() == 0.0
    bilevel.prior = lambda at: (min(at[0] - theta[0], 0.0), np.array([-5.0]), np.zeros((1, 1)))
    here = trace.best
    assert not trace.look_around(enough=1.0)
    assert trace.best is here
    assert trace.promised() > 1e-3


def test_a_step_to_nowhere_ends_the_search():
    class Lost(Minimizer):
        name = "lost"

        def iterate(self, trace, theta):
            trace.evaluate(theta)
            trace.evaluate(np.full(len(theta), np.nan))
            return Status.CONVERGED

    bilevel, theta = smooth_program()
    result = Lost().minimize(bilevel, theta)
    assert result.n_evaluations == 1
    assert result.status is Status.STALLED


class Falters:
    """A solver that stops short of the solution up to some part of the range of ``theta``."""

    def __init__(self, solver, share):
        self.solver, self.share = solver, share

    def solve(self, problem, theta, state, workspace):
        point, space = self.solver.solve(problem, theta, state, workspace), problem.parameters.space
        if theta[0] > space.lower[0] + self.share * (space.upper[0] - space.lower[0]):
            return point
        return problem.at(
            1.05 * point.W, theta, 1.05 * point.decisions, np.zeros(problem.n_tasks, dtype=bool)
        )


@pytest.mark.parametrize("share", [0.4, 1.0])
def test_points_that_are_not_solved_win_only_where_none_are(share):
    """The best points of all are among those that are not solved, and come first."""
    bilevel, theta = small_bilevel(Logistic(), Logistic())
    bilevel.solver = Falters(bilevel.solver, share)
    result = Walk().minimize(bilevel, theta)
    allowed = [record.admissible for record in result.history]
    least = min(record.objective for record in result.history)
    assert result.objective == min(r.objective for r in result.history if r.admissible)
    assert result.objective == result.history[-1].best
    assert result.objective_start == result.history[allowed.index(True)].objective
    if share == 1.0:
        assert all(allowed)
        assert result.objective == least
        assert max(result.kkt) > 1e-5
        assert result.warnings
    else:
        assert allowed == [False] * 4 + [True] * 5
        assert result.objective > least
        assert max(result.kkt) <= 1e-5
        assert not result.warnings


def test_a_start_whose_end_is_solved_goes_before_one_with_less_error():
    bilevel, theta = small_bilevel(Logistic(), Logistic())
    good = Walk().minimize(bilevel, theta)
    bad = replace(good, objective=0.5 * good.objective, kkt=[1.0 for _ in good.kkt])
    bad.history = [replace(record, objective=0.5 * record.objective) for record in good.history]
    both = merge([], [bad, good])
    assert both.objective == good.objective
    assert both.objective == min(record.objective for record in both.history if record.admissible)
    assert merge([], [bad, bad]).objective == bad.objective
    assert both.objective_start == good.objective_start
    for end in (good, replace(good, kkt=bad.kkt)):  # nor is it that of a stage
        after = merge([bad], [end])
        assert after.objective == min(record.objective for record in after.history if record.admissible)
        assert after.objective_start >= after.objective


def test_callbacks_cannot_change_the_records():
    bilevel, theta = small_bilevel(Logistic(), Logistic())

    def spoil(record):
        record.objective = -1.0
        record.params.clear()
        record.fold_objectives.clear()

    plain, spoilt = Walk().minimize(bilevel, theta), Walk().minimize(bilevel, theta, callback=spoil)
    for one, other in zip(plain.history, spoilt.history, strict=True):
        assert replace(other, elapsed=one.elapsed) == one
