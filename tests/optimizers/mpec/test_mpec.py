"""Programs with complementarity: exact points, derivatives, back-ends, successive linearisation, certificates."""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog

from foldwise.optimizers.mpec.backends import BACKENDS, IterateWatch, solve
from foldwise.optimizers.mpec.certificate import Local, b_stationary, certify
from foldwise.optimizers.mpec.description import Choice, Description, Task
from foldwise.optimizers.mpec.formulation import FORMS
from foldwise.optimizers.mpec.inner import Evaluator
from foldwise.optimizers.mpec.linearisation import LinearPrograms, settle, successive_linearisation
from foldwise.optimizers.mpec.mpcc import Builder
from foldwise.optimizers.mpec.nlp import RELAXATIONS, relax
from foldwise.optimizers.mpec.quiet import quiet
from foldwise.optimizers.mpec.run import Run, formulate, grid_starts
from foldwise.optimizers.mpec.slams import solve_slams
from foldwise.optimizers.mpec.solve import solve_mpec

PACKAGES = {"uno": "unopy", "ipopt": "ipyopt"}


def regression(n=15, d=4, seed=0, **options) -> Description:
    """Three folds of a tube regression with irrelevant features."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, d))
    y = X @ np.where(np.arange(d) < 2, 1.0, 0.0) + 0.4 * rng.normal(size=n)
    fold = np.arange(n) % 3
    tasks = [Task(X[fold != t], y[fold != t], X[fold == t], y[fold == t]) for t in range(3)]
    options = {"C": (0.01, 10.0), "epsilon": (0.01, 1.0), "box": (0.0, 1.5), "intercept": False} | options
    return Description(tasks, "epsilon_insensitive", "absolute", **options)


def classification(n=24, d=3, seed=0, criterion="hinge", **options) -> Description:
    """Three folds of two classes that overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] + 0.6 * rng.normal(size=n) > 0, 1.0, -1.0)
    fold = np.arange(n) % 3
    tasks = [Task(X[fold != t], y[fold != t], X[fold == t], y[fold == t]) for t in range(3)]
    options = {"C": (1e-2, 1e2), "box": (0.0, 1.5)} | options
    return Description(tasks, "hinge", criterion, **options)


DESCRIPTIONS = {
    "tube": regression,
    "tube, intercept, weights": lambda: weighted(regression(intercept=True)),
    "tube, two-sided box": lambda: regression(box=(0.0, 1.5), box_lower=(-1.0, 0.0)),
    "tube, lower side only": lambda: regression(box=(np.inf, np.inf), box_lower=(-1.0, 0.0)),
    "tube, some bounds only": lambda: regression(
        box=(np.array([0.5, np.inf, 0.5, np.inf]),) * 2,
        box_lower=(np.array([-np.inf, -0.1, -0.5, -np.inf]),) * 2,
    ),
    "tube, proximity and reference": lambda: regression(proximity=(0.1, 10.0), reference=(-1.0, 1.0)),
    "tube, reference": lambda: regression(proximity=(2.0, 2.0), reference=(-1.0, 1.0), intercept=True),
    "hinge, proximity": lambda: classification(proximity=(0.1, 10.0), reference=(0.5, 0.5)),
    "tube, pulled": lambda: regression(curvature=np.full(4, 1.5), pull=np.array([0.5, 0.0, -0.2, 0.1])),
    "hinge": classification,
    "hinge, no box": lambda: classification(box=None),
    "misclassification": lambda: classification(criterion="misclassification"),
    "at most two features": lambda: classification(n_max=2),
}


def weighted(description: Description) -> Description:
    rng = np.random.default_rng(5)
    tasks = [replace(t, weight=rng.uniform(0.5, 2.0, len(t.y)), cost=None) for t in description.tasks]
    return replace(description, tasks=tasks)


def some_choice(D: Description) -> Choice:
    box = None if D.box is None else 0.3 * D.box[1]
    if D.n_max is not None:
        box[D.n_max :] = 0.0
    lower = None if D.box_lower is None else 0.6 * D.box_lower[0]
    near, reference = (0.0, None) if D.reference is None else (1.7, np.linspace(-0.4, 0.6, D.d))
    return D.clip(Choice(0.7, 0.2, box, lower, near, reference))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_exact_machines_are_feasible_and_complementary(name, form):
    D = DESCRIPTIONS[name]()
    choice = some_choice(D)
    value, solutions = Evaluator(D)(choice)
    formulation = formulate(D, form, unit=0.5)
    x = formulation.encode(choice, solutions)
    assert relax(formulation.mpcc, 1e-9).infeasibility(x) < 1e-9
    assert formulation.mpcc.residual(x) < 1e-9
    assert formulation.mpcc.n_pairs == D.n_pairs()
    assert formulation.mpcc.cost @ x == pytest.approx(value, rel=1e-9)
    back = formulation.decode(x)
    np.testing.assert_allclose(np.hstack(back.key()), np.hstack(choice.key()), rtol=1e-12)
    for other in (formulate(D, "C", unit=3.0), formulate(D, "lambda")):
        np.testing.assert_allclose(
            formulation.translate(x, other), other.encode(choice, solutions), atol=1e-9
        )


@pytest.mark.parametrize("loss", ["tube", "hinge"])
def test_machines_agree_with_a_library_of_quadratic_programs(loss):
    clarabel_or_piqp = pytest.importorskip("piqp")
    assert clarabel_or_piqp
    from foldwise.optimizers.mpec.inner import pieces
    from foldwise.solvers.qp import library_solution

    D = DESCRIPTIONS[loss]()
    choice = some_choice(D)
    _, solutions = Evaluator(D)(choice)
    for task, solution in zip(D.tasks, solutions, strict=True):
        w, *_ = library_solution(pieces(D, task, choice), tol=1e-11)
        np.testing.assert_allclose(solution.w, w[: D.d], atol=1e-5)


@pytest.mark.parametrize("kind", RELAXATIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["tube", "misclassification", "at most two features"])
def test_derivatives_against_differences(name, form, kind):
    P = relax(formulate(DESCRIPTIONS[name](), form).mpcc, 1e-3, kind, weight=0.7)
    rng = np.random.default_rng(3)
    x, e, y, h = rng.normal(size=P.n), rng.normal(size=P.n), rng.normal(size=P.m), 1e-4

    def lagrangian_gradient(point):
        J = sp.csr_matrix((P.jacobian(point), (P.jacobian_rows, P.jacobian_columns)), (P.m, P.n))
        return J, 1.3 * P.gradient(point) + J.T @ y

    J, _ = lagrangian_gradient(x)
    numeric = (P.constraints(x + h * e) - P.constraints(x - h * e)) / (2 * h)
    assert np.abs(numeric).max() > 1.0
    np.testing.assert_allclose(J @ e, numeric, rtol=1e-7, atol=1e-7)
    slope = (P.objective(x + h * e) - P.objective(x - h * e)) / (2 * h)
    assert P.gradient(x) @ e == pytest.approx(slope, rel=1e-7)
    H = sp.csr_matrix((P.hessian(x, 1.3, y), (P.hessian_rows, P.hessian_columns)), (P.n, P.n))
    assert np.all(P.hessian_rows >= P.hessian_columns)
    H = H + sp.tril(H, -1).T
    bend = (lagrangian_gradient(x + h * e)[1] - lagrangian_gradient(x - h * e)[1]) / (2 * h)
    assert np.abs(bend).max() > 1.0
    np.testing.assert_allclose(H @ e, bend, rtol=1e-6, atol=1e-6)


def fine_grid(D: Description, points: int = 9) -> float:
    """The lowest true objective over a grid on C and two boxes."""
    evaluate = Evaluator(D)
    boxes = np.linspace(0.0, D.box[1][0], points)
    for C in np.geomspace(*D.C, points):
        for first in boxes:
            for second in boxes:
                evaluate(Choice(C, D.epsilon[0], np.array([first, second])))
    return evaluate.best[0]


def small(seed: int) -> Description:
    return regression(n=12, d=2, seed=seed, epsilon=(0.1, 0.1))


@pytest.mark.parametrize("seed", [0, 1])
def test_all_ways_agree_with_a_fine_grid(seed):
    """On a small program nothing is above the grid by more than its spacing explains."""
    for package in ("unopy", "ipyopt", "highspy"):
        pytest.importorskip(package)
    D = small(seed)
    grid = fine_grid(D)
    answers = {
        "slams": solve_slams(Run.begin(D)),
        "early": solve_slams(Run.begin(D), early=True),
        "slp": solve_mpec(Run.begin(D)),
        "sqp": solve_mpec(Run.begin(D), preset="filtersqp"),
        "ipopt": solve_mpec(Run.begin(D), backend="ipopt"),
    }
    for name, answer in answers.items():
        assert answer.status == "solved", name
        assert answer.gap < 1e-3, name
        assert answer.objective == pytest.approx(Evaluator(D)(answer.choice)[0], abs=1e-12)
        assert answer.objective <= (1.1 if name in ("slams", "early") else 1.001) * grid, name
    lowest = min(answer.objective for answer in answers.values())
    assert max(answers[name].objective for name in ("slp", "sqp", "ipopt")) <= 1.02 * lowest


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["aggregated", "penalty"])
def test_other_relaxations_end_at_complementary_points(backend, kind):
    pytest.importorskip(PACKAGES[backend])
    pytest.importorskip("highspy")
    D = small(0)
    start = grid_starts(Evaluator(D), 1)[0]
    before = Evaluator(D)(start)[0]
    answer = solve_mpec(Run.begin(D), backend=backend, complementarity=kind, chain=False, form="lambda")
    assert answer.objective <= before
    assert answer.certificate["complementarity"] < 1e-2
    assert {stage.tol for stage in answer.stages} >= {0.1, 1e-6}


def test_inexact_cross_validation_claims_less_than_the_truth():
    pytest.importorskip("unopy")
    pytest.importorskip("highspy")
    answer = solve_mpec(Run.begin(small(0)), tol=1e-2, chain=False)
    loose = [stage for stage in answer.stages if "settled" not in stage.detail][-1]
    assert loose.tol == pytest.approx(1e-2)
    assert loose.claimed < loose.objective - 1e-3


def test_misclassification_reports_the_true_error():
    pytest.importorskip("ipyopt")
    pytest.importorskip("highspy")
    D = classification(criterion="misclassification", seed=2)
    start = grid_starts(Evaluator(D), 1)[0]
    answer = solve_mpec(Run.begin(D), backend="ipopt")
    machines = Evaluator(D)(answer.choice)[1]
    wrong = [np.mean(t.y_val * (t.X_val @ s.w + s.b) <= 1e-9) for t, s in zip(D.tasks, machines, strict=True)]
    assert answer.objective == pytest.approx(np.mean(wrong))
    assert answer.objective <= Evaluator(D)(start)[0]


def test_at_most_n_max_features():
    pytest.importorskip("unopy")
    pytest.importorskip("highspy")
    for solver in (solve_slams, solve_mpec):
        answer = solver(Run.begin(classification(n_max=1)))
        assert answer.n_features <= 1
        assert np.isfinite(answer.objective)


def test_small_boxes_are_set_to_zero():
    pytest.importorskip("highspy")
    D = regression()
    run = Run.begin(D)
    choice = Choice(1.0, 0.1, np.array([1.0, 1.0, 5e-4, 0.0]))
    value, pruned = run._prune(run.evaluate(choice)[0], choice, 1e-6)
    assert pruned.box.tolist() == [1.0, 1.0, 0.0, 0.0]
    assert value == pytest.approx(Evaluator(D)(pruned)[0])


def test_frank_wolfe_descends_and_settles_on_a_vertex():
    pytest.importorskip("highspy")
    D = regression(n=24, seed=4)
    formulation = formulate(D, "C")
    mpcc = formulation.mpcc
    start = grid_starts(Evaluator(D), 1)[0]
    x = formulation.encode(start, Evaluator(D)(start)[1])
    values = [float(mpcc.cost @ x)]

    def watch(point, step):
        g, h = mpcc.sides(point)
        values.append(float(mpcc.cost @ point + 0.3 * g @ h))
        return False

    programs = LinearPrograms(mpcc)
    result = successive_linearisation(mpcc, x, weight=0.3, max_iter=30, watch=watch, programs=programs)
    assert len(values) > 3
    assert np.all(np.diff(values) <= 1e-9)
    vertex = settle(mpcc, result.x, programs, 1000.0)
    assert vertex is not None
    assert mpcc.residual(vertex) < 1e-6
    assert Evaluator(D)(formulation.decode(vertex))[0] == pytest.approx(mpcc.cost @ vertex, abs=1e-6)


def toy(cost) -> tuple:
    """``min cost'x`` over ``0 <= x1 complementary to x2 >= 0``, both at most 1."""
    builder = Builder()
    x = builder.variables(2, 0.0, 1.0, cost=np.array(cost))
    builder.pairs(1, [(x[:1], 1.0)], [(x[1:], 1.0)], 0)
    return builder.build()


@pytest.mark.parametrize(
    ("cost", "point", "expected"),
    [
        ([1.0, 1.0], [0.0, 0.0], "S"),  # the origin is the minimum
        ([-1.0, -1.0], [0.0, 0.0], "C"),  # both branches descend; the multipliers have the same sign
        ([-1.0, 1.0], [0.0, 0.0], "W"),  # one branch descends
        ([0.0, -1.0], [0.0, 0.0], "M"),  # one branch descends, the other multiplier is zero
        ([-1.0, 1.0], [1.0, 0.0], "S"),
        ([-1.0, 1.0], [0.5, 0.0], "none"),
    ],
)
def test_stationarity_of_a_single_pair(cost, point, expected):
    pytest.importorskip("highspy")
    report = certify(toy(cost), np.array(point))
    assert report["stationarity"] == expected
    assert report["biactive"] == (1 if point == [0.0, 0.0] else 0)


def test_final_points_of_small_programs_are_stationary():
    pytest.importorskip("unopy")
    pytest.importorskip("highspy")
    for D in (regression(), classification()):
        assert solve_mpec(Run.begin(D)).certificate["stationarity"] in ("S", "B")


@pytest.mark.parametrize(("package", "call"), [("unopy", {}), ("ipyopt", {"backend": "ipopt"})])
def test_a_missing_package_is_named(monkeypatch, package, call):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}.*foldwise\[mpec\]"):
        solve_mpec(Run.begin(small(0)), **call)


def test_slams_without_highs_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(ImportError, match=r"highspy.*foldwise\[mpec\]"):
        solve_slams(Run.begin(small(0)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_time_gives_the_best_point_so_far(backend):
    pytest.importorskip(PACKAGES[backend])
    D = regression(n=30, d=6)
    formulation = formulate(D)
    start = grid_starts(Evaluator(D), 1)[0]
    x = formulation.encode(start, Evaluator(D)(start)[1])
    outcome = solve(relax(formulation.mpcc, 0.1), x, backend=backend, deadline=time.perf_counter() - 1.0)
    assert outcome.status == "time limit"
    assert outcome.elapsed < 5.0
    assert formulation.mpcc.cost @ outcome.x <= formulation.mpcc.cost @ x + 1e-9
    pytest.importorskip("highspy")
    answer = solve_mpec(Run.begin(D, 0.01), backend=backend)
    assert answer.status == "time limit"
    assert answer.objective <= Evaluator(D)(start)[0]
    assert solve_slams(Run.begin(D, 0.01)).objective <= Evaluator(D)(start)[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failing_function_becomes_a_status(backend):
    pytest.importorskip(PACKAGES[backend])
    program = relax(formulate(small(0)).mpcc, 0.1)
    x = np.clip(np.zeros(program.n), program.lower, program.upper)
    calls = [0]
    healthy = program.jacobian

    def breaks(point):
        calls[0] += 1
        if calls[0] > 2:
            raise ZeroDivisionError("on purpose")
        return healthy(point)

    program.jacobian = breaks
    outcome = solve(program, x, backend=backend)
    assert outcome.status == "failed"
    assert "on purpose" in outcome.detail
    assert np.all(np.isfinite(outcome.x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interrupt_passes_through_the_solver(backend):
    pytest.importorskip(PACKAGES[backend])
    program = relax(formulate(small(0)).mpcc, 0.1)

    def stop(point):
        raise KeyboardInterrupt

    program.jacobian = stop
    with pytest.raises(KeyboardInterrupt):
        solve(program, np.clip(np.zeros(program.n), program.lower, program.upper), backend=backend)


def test_iterates_that_are_not_finite_are_never_the_best():
    program = relax(formulate(small(0)).mpcc, 0.1)
    watch = IterateWatch(program, np.zeros(program.n), None)
    watch.see(np.full(program.n, np.nan))
    assert np.all(np.isfinite(watch.best))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: solve_mpec(Run.begin(small(0)), backend="knitro"), "uno, ipopt"),
        (lambda: solve_mpec(Run.begin(small(0)), preset="best"), "filtersqp"),
        (lambda: solve_mpec(Run.begin(small(0)), complementarity="soft"), "pairwise"),
        (lambda: solve_mpec(Run.begin(small(0)), form="both"), "lambda"),
        (lambda: solve_mpec(Run.begin(small(0)), tol=1.0), "first_tol"),
        (lambda: regression(C=(0.0, 1.0)), "0 < lower"),
        (lambda: regression(epsilon=(1.0, 0.5)), "epsilon"),
        (lambda: regression(box=(-1.0, 1.0)), "two-sided"),
        (lambda: regression(box=None, box_lower=(-1.0, 0.0)), "both sides"),
        (lambda: regression(box=None, n_max=2), "symmetric box"),
        (lambda: classification(criterion="absolute"), "mixes classes"),
        (lambda: Description([]), "at least one task"),
        (lambda: LinearPrograms(formulate(small(0), "lambda").mpcc), "form='C'"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def error_output(capfd) -> str:
    return capfd.readouterr().err


def test_standard_error_comes_back_however_the_silence_ends(capfd):
    """What the QP solver says is held back; what others wrote meanwhile is passed on, after every kind of ending."""
    for ending in (None, ValueError, KeyboardInterrupt):
        try:
            with quiet():
                os.write(2, b"insufficient space available for profile\n")
                os.write(2, b" mxws,qrow,len_       11025       10965         194\n")
                thread = threading.Thread(
                    target=lambda: print("from a thread", file=sys.__stderr__, flush=True)
                )
                thread.start()
                thread.join()
                os.write(2, b"somebody else\n")
                if ending is not None:
                    raise ending
        except (ValueError, KeyboardInterrupt):
            pass
        os.write(2, b"afterwards\n")
        text = error_output(capfd)
        assert "insufficient" not in text
        assert "mxws" not in text
        assert text.index("somebody else") < text.index("afterwards")


def test_silences_of_several_threads_leave_standard_error_as_it_was(capfd):
    def work():
        for _ in range(20):
            with quiet():
                os.write(2, b"x bqpd\n")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.write(2, b"still here\n")
    assert error_output(capfd).strip().splitlines() == ["still here"]
    descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    with quiet():
        pass
    assert descriptors in (0, len(os.listdir("/proc/self/fd")))


def triples(mpcc, x, A=None):
    """All branches of the cone of directions by scipy's linprog: the lowest slope over every assignment."""
    A = mpcc.A.toarray() if A is None else A.toarray()
    g, h = mpcc.sides(x)
    rows = A @ x
    near, n = 1e-5, mpcc.n
    G, H = mpcc.G.toarray(), mpcc.H.toarray()
    upper = [-A[i] for i in range(len(A)) if rows[i] <= mpcc.row_lower[i] + near]
    upper += [A[i] for i in range(len(A)) if rows[i] >= mpcc.row_upper[i] - near]
    equal = [G[k] for k in range(len(g)) if abs(g[k]) <= near < abs(h[k])]
    equal += [H[k] for k in range(len(g)) if abs(h[k]) <= near < abs(g[k])]
    both = [k for k in range(len(g)) if abs(g[k]) <= near and abs(h[k]) <= near]
    bounds = [
        (0 if x[j] <= mpcc.lower[j] + near else -1, 0 if x[j] >= mpcc.upper[j] - near else 1)
        for j in range(n)
    ]
    lowest = np.inf
    for sides in itertools.product((0, 1), repeat=len(both)):
        held = [G[k] if side == 0 else H[k] for k, side in zip(both, sides, strict=True)]
        freed = [-(H[k] if side == 0 else G[k]) for k, side in zip(both, sides, strict=True)]
        less, same = upper + freed, equal + held
        out = linprog(
            mpcc.cost,
            A_ub=np.array(less) if less else None,
            b_ub=np.zeros(len(less)) if less else None,
            A_eq=np.array(same) if same else None,
            b_eq=np.zeros(len(same)) if same else None,
            bounds=bounds,
        )
        assert out.status == 0
        lowest = min(lowest, out.fun)
    return lowest, len(both)


def random_corner(seed, n=6, k=4):
    """``min c'x`` with pairs ``0 <= x_i`` complementary to ``(M x)_i >= 0`` at the origin: every pair is biactive."""
    rng = np.random.default_rng(seed)
    builder = Builder()
    x = builder.variables(
        n, np.concatenate([np.zeros(k), np.full(n - k, -1.0)]), 1.0, cost=rng.normal(size=n)
    )
    M = rng.normal(size=(k, n))
    other = builder.variables(k)
    builder.rows(k, [(other, -1.0)], 0.0, 0.0, matrix=(M, x))
    builder.pairs(k, [(x[:k], 1.0)], [(other, 1.0)], 0)
    if seed % 2:  # a cost that no direction lowers: a sum of the sides with positive weights
        mpcc = builder.build()
        cost = np.zeros(mpcc.n)
        cost[x[:k]], cost[other] = rng.uniform(0.1, 1, k), rng.uniform(0.1, 1, k)
        return replace(mpcc, cost=cost)
    return builder.build()


@pytest.mark.parametrize("seed", range(12))
def test_b_stationarity_agrees_with_all_branches_one_by_one(seed):
    pytest.importorskip("highspy")
    mpcc = random_corner(seed, k=2 + seed % 4)
    x = np.zeros(mpcc.n)
    lowest, biactive = triples(mpcc, x)
    verdict = b_stationary(Local.at(mpcc, x))
    assert verdict.biactive == biactive == 2 + seed % 4
    assert verdict.holds == (lowest > -1e-7)
    assert verdict.programs <= 2 ** (biactive + 1)
    if verdict.holds is False:
        d = verdict.direction
        g, h = mpcc.G @ d, mpcc.H @ d
        assert np.abs(mpcc.A @ d).max() < 1e-8  # the rows are equations
        assert min(g.min(), h.min()) > -1e-8
        assert np.minimum(g, h).max() < 1e-6
        assert mpcc.cost @ d == pytest.approx(verdict.rate)
        assert lowest <= verdict.rate < 0
        there = x + verdict.reach * d
        assert mpcc.residual(there) < 1e-6
        assert mpcc.cost @ there < 0


def only_the_first_can_grow():
    """``min x - 3 y`` around the origin of ``0 <= x`` complementary to ``y >= 0`` with ``y <= x``."""
    builder = Builder()
    x = builder.variables(1, cost=1.0)
    y = builder.variables(1, cost=-3.0)
    builder.rows(1, [(x, 1.0), (y, -1.0)], 0.0, np.inf)
    builder.pairs(1, [(x, 1.0)], [(y, 1.0)], 0)
    return builder.build()


def test_strong_and_b_stationarity_differ_where_multipliers_do_not_exist():
    pytest.importorskip("highspy")
    mpcc = only_the_first_can_grow()
    out = certify(mpcc, np.zeros(2))
    assert triples(mpcc, np.zeros(2))[0] == pytest.approx(0.0)
    assert out["b_stationary"] is True
    assert out["stationarity"] == "B"
    assert out["b_programs"] == 3
    assert "in all branches" in out["b_reason"]


def test_what_is_not_decided_says_why():
    pytest.importorskip("highspy")
    mpcc = random_corner(1, k=4)
    rough = b_stationary(Local.at(mpcc, np.full(mpcc.n, 0.1)))
    assert rough.holds is None
    assert "only" in rough.reason
    wedge = only_the_first_can_grow()
    short = b_stationary(Local.at(wedge, np.zeros(2)), most=1)
    assert short.holds is None
    assert "within 1 linear programs" in short.reason
    assert (short.programs, short.limit) == (1, 1)
    late = b_stationary(Local.at(wedge, np.zeros(2)), seconds=0.0)
    assert late.holds is None
    assert "within 0 s" in late.reason


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_certified_and_spoiled_ones_refuted(seed):
    """At an answer no branch descends; the same machines at other hyper-parameters are refuted, with a true descent."""
    pytest.importorskip("highspy")
    D = regression(n=12, d=2, seed=seed)
    answer = solve_slams(Run.begin(D))
    verdict = answer.certificate
    formulation = formulate(D, "C", float(10.0 ** np.round(np.log10(answer.choice.C))))
    x = formulation.encode(answer.choice, Evaluator(D)(answer.choice)[1])
    if verdict["biactive"] <= 8 and formulation.mpcc.residual(x) < 1e-6:
        lowest, _ = triples(formulation.mpcc, x)
        assert certify(formulation.mpcc, x)["b_stationary"] == (lowest > -1e-6)
    spoiled = replace(answer.choice, epsilon=0.5, box=np.array([0.4, 0.3]))
    value, machines = Evaluator(D)(spoiled)
    x = formulation.encode(spoiled, machines)
    out = b_stationary(Local.at(formulation.mpcc, x))
    assert out.holds is False
    assert out.rate < 0
    there = x + out.reach * out.direction
    assert formulation.mpcc.cost @ there < value
    assert formulation.mpcc.residual(there) < 1e-5
    assert Evaluator(D)(formulation.decode(there))[0] < value
