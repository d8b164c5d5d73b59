"""``method="mpec"`` and ``"slams"`` in a search: records, certificate, agreement with gradients, errors."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldwise import RBF, BilevelSearchCV, KernelSVC, LinearSVC, LinearSVR
from foldwise.result import Result
from foldwise.space import Lin, Log

for package in ("unopy", "ipyopt", "highspy"):
    pytest.importorskip(package)


def regression(n=36, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - X[:, 1] + 0.4 * rng.normal(size=n)


def classification(n=45, d=3, seed=1):
    X, z = regression(n, d, seed)
    return X, np.where(z + 0.3 > 0, "yes", "no")


BOX = {"box": Lin(0.0, 1.5, per="feature")}
TUBE = {"C": (1e-2, 10.0), "epsilon": (0.01, 1.0), **BOX}


def search(model, space, method, **options):
    criterion = options.pop("criterion", "absolute" if isinstance(model, LinearSVR) else "hinge")
    return BilevelSearchCV(model, space, method=method, criterion=criterion, cv=3, **options)


@pytest.mark.parametrize("method", ["slams", "mpec"])
def test_a_search_ends_below_every_point_it_saw_and_carries_its_certificate(method):
    X, y = regression()
    found = search(LinearSVR(loss="epsilon_insensitive"), TUBE, method).fit(X, y)
    result = found.result_
    assert result.objective == min(record.objective for record in result.history)
    assert result.objective < result.objective_start
    assert result.objective == pytest.approx(-found.best_score_, rel=1e-12)
    assert result.details["stationarity"] in ("S", "B")
    assert result.details["gap"] < 1e-3 or result.details["loose_intercepts"]
    assert result.details["solver_status"] == "solved"
    assert Result.from_json(result.to_json()).details == result.details
    assert "program of all folds is solved" in result.message
    assert "stationarity" in result.summary()
    assert "hypergradient test" not in result.summary()
    assert found.best_estimator_.box.tolist() == found.refit_params_["box"].tolist()


def test_gradients_and_programs_agree():
    """The same program by implicit differentiation and as one nonlinear program, within a few hundredths."""
    X, y = regression(d=2)
    values = {
        method: search(LinearSVR(loss="epsilon_insensitive"), TUBE, method, refit=False)
        .fit(X, y)
        .result_.objective
        for method in ("mpec", "slams", "lbfgsb")
    }
    assert values["mpec"] <= min(values.values()) * 1.01
    assert max(values.values()) <= min(values.values()) * 1.1


def test_lam_and_c_are_the_same_program_and_lam_is_scaled_for_the_final_fit():
    X, y = classification()
    by_c = search(LinearSVC(loss="hinge"), {"C": Log(1e-2, 1e2), **BOX}, "slams").fit(X, y)
    by_lam = search(LinearSVC(loss="hinge"), {"lam": Log(1e-2, 1e2), **BOX}, "slams").fit(X, y)
    assert by_lam.best_score_ == pytest.approx(by_c.best_score_, rel=1e-6)
    # The error is flat between kinks, so that the two may end at different points of the same error. Each is as good
    # when it is evaluated in the other's parameter.
    for found, own, other in ((by_c, "C", "lam"), (by_lam, "lam", "C")):
        machine = LinearSVC(loss="hinge", box=found.best_params_["box"])
        point = {"values": {other: [1 / found.best_params_[own]]}}
        there = search(machine, {other: Log(1e-2, 1e2)}, "grid", method_options=point).fit(X, y)
        assert there.best_score_ == pytest.approx(found.best_score_, rel=1e-9)
    assert by_lam.refit_params_["lam"] == pytest.approx(1.5 * by_lam.best_params_["lam"])
    np.testing.assert_array_equal(by_lam.refit_params_["box"], by_lam.best_params_["box"])


def test_a_scaler_inside_the_folds_and_weights():
    X, y = classification()
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    pipe = make_pipeline(StandardScaler(), LinearSVC(loss="hinge", class_weight="balanced"))
    space = {"linearsvc__C": Log(1e-2, 1e2), "linearsvc__box": Lin(0.0, 1.5, per="feature")}
    found = search(pipe, space, "slams", criterion="hinge").fit(5.0 * X + 3.0, y, sample_weight=weight)
    gap = [record for record in found.result_.history if record.note == "polished"][-1]
    assert gap.objective == pytest.approx(found.result_.details["claimed"], rel=0.05)
    assert found.result_.objective < found.result_.objective_start


def test_misclassification_needs_no_gradient():
    X, y = classification()
    space = {"lam": Log(1e-2, 1e2), **BOX}
    found = search(LinearSVC(loss="hinge"), space, "mpec", criterion="misclassification").fit(X, y)
    grid = search(
        LinearSVC(loss="hinge", box=1.5), {"lam": Log(1e-2, 1e2)}, "grid", criterion="misclassification"
    ).fit(X, y)
    assert found.best_score_ >= grid.best_score_


def test_a_start_of_ones_own():
    X, y = regression()
    start = {"C": 0.5, "epsilon": 0.2, "box": np.full(4, 0.7)}
    found = search(LinearSVR(loss="epsilon_insensitive"), TUBE, "slams", method_options={"start": start}).fit(
        X, y
    )
    assert found.result_.history[0].params["C"] == pytest.approx(0.5)
    assert found.result_.history[0].params["box"] == pytest.approx([0.7] * 4)


@pytest.mark.parametrize("method", ["mpec", "slams"])
def test_no_time_returns_what_there_is(method):
    X, y = regression(n=60, d=6)
    found = search(LinearSVR(loss="epsilon_insensitive"), TUBE, method, max_time=0.3).fit(X, y)
    assert found.result_.status.value == "time limit"
    assert found.result_.objective <= found.result_.objective_start


@pytest.mark.parametrize(
    ("model", "space", "criterion", "message"),
    [
        (LinearSVR(), {"C": (0.01, 10.0)}, "absolute", "epsilon_insensitive"),
        (LinearSVR(loss="epsilon_insensitive"), {"C": (0.01, 10.0)}, "squared", "criterion squared"),
        (LinearSVC(loss="hinge"), {"C": (0.01, 10.0)}, "logistic", "criterion logistic"),
        (LinearSVC(loss="hinge"), {"lam": Log(0.01, 10.0, per="feature")}, "hinge", "single number"),
        (LinearSVC(loss="hinge"), {"C": (0.01, 10.0), "lam": (0.01, 10.0)}, "hinge", "[Tt]une one of them"),
        (
            LinearSVC(loss="hinge"),
            {"C": (0.01, 10.0), "box": Lin(0.0, 1.0)},
            "hinge",
            "one entry per feature",
        ),
        (KernelSVC(loss="hinge"), {"C": (0.01, 10.0)}, "hinge", "RBF"),
    ],
)
@pytest.mark.parametrize("method", ["mpec", "slams"])
def test_other_programs_get_an_error_that_says_what_can_be_done(method, model, space, criterion, message):
    X, y = regression() if isinstance(model, LinearSVR) else classification()
    with pytest.raises(ValueError, match=message):
        search(model, space, method, criterion=criterion).fit(X, y)


def test_a_gaussian_kernel_with_one_scale_per_feature():
    X, y = classification(n=24)
    space = {"C": Log(0.1, 100.0), "gamma": Log(1e-3, 5.0, per="feature")}
    model = KernelSVC(loss="hinge", kernel=RBF(ard=True))
    with pytest.raises(ValueError, match="leave shrinkage out"):
        search(model, space, "mpec", shrinkage=0.5).fit(X, y)
    found = search(model, space, "mpec", method_options={"first_tol": 1e-2}).fit(X, y)
    assert found.result_.details["shrinkage"] == 0.0
    assert found.result_.objective == pytest.approx(-found.best_score_, rel=1e-12)
    result = found.result_
    assert result.details["solver_status"] == "solved"
    assert result.details["gap"] < 1e-3
    assert result.objective <= result.objective_start
    assert result.objective == pytest.approx(result.details["claimed"], abs=1e-3)
    with pytest.raises(ValueError, match="'mpec' does"):
        search(model, space, "slams").fit(X, y)


def test_a_program_beyond_the_promised_size_is_refused():
    X, y = regression(n=60)
    options = {"max_pairs": 100}
    with pytest.raises(ValueError, match=r"max_pairs=100.*newton"):
        search(LinearSVR(loss="epsilon_insensitive"), TUBE, "mpec", method_options=options).fit(X, y)


def six_features(n=45, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    z = X @ [1.0, -1.0, 0.6, 0.4, 0.2, 0.1] + 0.4 * rng.normal(size=n)
    return X, z


@pytest.mark.parametrize("method", ["slams", "mpec"])
@pytest.mark.parametrize("n_max", [1, 2])
def test_what_is_returned_has_at_most_n_max_features(method, n_max):
    """(14) of kunapuli2008 holds for the boxes, for every fold's weights and for the final fit."""
    X, z = six_features()
    y = np.where(z > 0, 1, -1)
    folds = [
        (np.flatnonzero(np.arange(45) % 3 != t), np.flatnonzero(np.arange(45) % 3 == t)) for t in range(3)
    ]
    space = {"C": Log(1e-2, 1e2), **BOX}
    found = BilevelSearchCV(
        LinearSVC(loss="hinge"),
        space,
        method=method,
        criterion="hinge",
        cv=folds,
        method_options={"n_max": n_max},
    ).fit(X, y)
    box = np.asarray(found.best_params_["box"])
    chosen = np.flatnonzero(box)
    assert 1 <= len(chosen) <= n_max
    assert np.all(np.delete(found.best_estimator_.coef_[0], chosen) == 0.0)
    assert found.result_.details["n_features"] == len(chosen)
    assert found.result_.objective <= found.result_.objective_start
    admitted = [r.objective for r in found.result_.history if np.count_nonzero(r.params["box"]) <= n_max]
    assert found.result_.objective == min(admitted)
    assert found.cv_results_["rank_test_score"][found.best_index_] == 1
    # The folds trained anew on the chosen columns alone, within their boxes, by a solver of quadratic programs.
    errors = []
    for train, validation in folds:
        w, b = boxed_hinge(X[train][:, chosen], y[train], found.best_params_["C"], box[chosen])
        errors.append(np.mean(np.maximum(1 - y[validation] * (X[validation][:, chosen] @ w + b), 0)))
    if not found.result_.details["loose_intercepts"]:
        assert found.result_.objective == pytest.approx(np.mean(errors), rel=1e-4)


def boxed_hinge(X, y, C, box):
    """``min w'w/2 + C sum max(1 - y (Xw + b), 0)`` with ``|w| <= box``, by Clarabel."""
    import clarabel
    import scipy.sparse as sp

    n, d = X.shape
    P = sp.block_diag([sp.identity(d), sp.csc_matrix((1 + n, 1 + n))], format="csc")
    cost = np.concatenate([np.zeros(d + 1), np.full(n, C)])
    signed = -y[:, None] * np.column_stack([X, np.ones(n)])
    wide = sp.csc_matrix((d, 1 + n))
    rows = sp.vstack(
        [
            sp.hstack([sp.csc_matrix(signed), -sp.identity(n)]),
            sp.hstack([sp.csc_matrix((n, d + 1)), -sp.identity(n)]),
            sp.hstack([sp.identity(d), wide]),
            sp.hstack([-sp.identity(d), wide]),
        ],
        format="csc",
    )
    limit = np.concatenate([-np.ones(n), np.zeros(n), box, box])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    x = np.array(
        clarabel.DefaultSolver(P, cost, rows, limit, [clarabel.NonnegativeConeT(len(limit))], settings)
        .solve()
        .x
    )
    return x[:d], x[d]


def test_more_features_are_never_worse_and_none_is_as_good_as_no_limit():
    X, z = six_features()
    values = []
    for n_max in (1, 3, 6):
        options = {"n_max": n_max}
        model = LinearSVR(loss="epsilon_insensitive")
        found = search(model, TUBE, "slams", method_options=options, refit=False).fit(X, z)
        values.append(found.result_.objective)
    assert values == sorted(values, reverse=True)
    free = search(LinearSVR(loss="epsilon_insensitive"), TUBE, "slams", refit=False).fit(X, z)
    assert values[-1] == pytest.approx(free.result_.objective, rel=0.05)


@pytest.mark.parametrize(
    ("n_max", "space", "message"),
    [
        (0, TUBE, "n_max must be a positive integer"),
        (1.5, TUBE, "n_max must be a positive integer"),
        (1, {**TUBE, "box": Lin(0.1, 1.5, per="feature")}, "n_max=1 cannot be kept"),
        (1, {"C": (0.01, 10.0)}, "n_max counts the features of a symmetric box"),
    ],
)
def test_a_number_of_features_that_cannot_be_kept_is_refused(n_max, space, message):
    X, y = regression()
    with pytest.raises(ValueError, match=message):
        search(LinearSVR(loss="epsilon_insensitive"), space, "slams", method_options={"n_max": n_max}).fit(
            X, y
        )


@pytest.mark.parametrize("option", [{"n_max": 2}, {"form": "C"}, {"chain": False}, {"n_starts": 3}])
def test_options_that_the_kernel_program_does_not_have_are_refused(option):
    X, y = classification(n=24)
    space = {"C": Log(0.1, 100.0), "gamma": Log(1e-3, 5.0, per="feature")}
    model = KernelSVC(loss="hinge", kernel=RBF(ard=True))
    with pytest.raises(ValueError, match=f"the kernel program has no {next(iter(option))}"):
        search(model, space, "mpec", shrinkage=0.0, method_options=option).fit(X, y)


def test_a_method_object_takes_the_start_and_the_limits_of_the_search():
    from foldwise.optimizers import Slams

    X, y = regression()
    start = {"C": 0.5, "epsilon": 0.2, "box": np.full(4, 0.7)}
    model, options = LinearSVR(loss="epsilon_insensitive"), {"start": start}
    ours = search(model, TUBE, Slams(), method_options=options, max_iter=3, refit=False).fit(X, y).result_
    named = search(model, TUBE, "slams", method_options=options, max_iter=3, refit=False).fit(X, y).result_
    other = search(model, TUBE, Slams(), max_iter=3, refit=False).fit(X, y).result_
    assert ours.theta == named.theta
    assert ours.history[0].params["C"] == pytest.approx(0.5)
    assert [r.params for r in ours.history[1:]] != [r.params for r in other.history[1:]]


CHILD = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
import numpy as np
from foldwise import BilevelSearchCV, Lin, LinearSVR
from foldwise.optimizers.mpec import backends

backend = sys.argv[1]
own = backends.BACKENDS[backend]

def announced(*args):
    print("running", flush=True)
    return own(*args)

backends.BACKENDS[backend] = announced
rng = np.random.default_rng(0)
X = rng.normal(size=(150, 8))
y = X @ rng.normal(size=8) + 0.4 * rng.normal(size=150)
space = {"C": (1.0, 10.0), "epsilon": (0.01, 1), "box": Lin(0, 1.5, per="feature")}
model = LinearSVR(loss="epsilon_insensitive")
options = {"backend": backend, "chain": False}
search = BilevelSearchCV(model, space, method="mpec", criterion="absolute", cv=3, method_options=options)
result = search.fit(X, y).result_
print(result.status.value, result.objective == min(r.objective for r in result.history), flush=True)
print(result.objective <= result.objective_start, result.history[-1].note, flush=True)
signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize("backend", ["uno", "ipopt"])
def test_a_real_interrupt_while_a_solver_runs_returns_the_best_so_far(backend):
    """Uno takes SIGINT for itself; it must end the search all the same, and work again afterwards."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, backend], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline().strip() == "running"
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
    lines = [line for line in out.splitlines() if line != "running"]
    assert lines == ["interrupted True", "True interrupted"], err
    assert err.strip().endswith("KeyboardInterrupt")  # of the last line, where nothing catches it


# Two-sided boxes, proximity and reference as outer variables: (1)-(5) of bennett2006.


def folds_of(n, k=3):
    return [(np.flatnonzero(np.arange(n) % k != t), np.flatnonzero(np.arange(n) % k == t)) for t in range(k)]


def boxed_tube(X, y, C, epsilon, low, high, near, w0):
    """``min w'w/2 + near/2 ||w - w0||^2 + C sum max(|Xw - y| - epsilon, 0)`` with ``low <= w <= high``, by Clarabel."""
    import clarabel
    import scipy.sparse as sp

    n, d = X.shape
    P = sp.block_diag([(1 + near) * sp.identity(d), sp.csc_matrix((n, n))], format="csc")
    cost = np.concatenate([-near * np.asarray(w0), np.full(n, C)])
    none, up, down = sp.csc_matrix((d, n)), np.isfinite(high), np.isfinite(low)
    rows = [
        sp.hstack([sp.csc_matrix(X), -sp.identity(n)]),
        sp.hstack([sp.csc_matrix(-X), -sp.identity(n)]),
        sp.hstack([sp.csc_matrix((n, d)), -sp.identity(n)]),
        sp.hstack([sp.identity(d), none]).tocsr()[np.flatnonzero(up)],
        sp.hstack([-sp.identity(d), none]).tocsr()[np.flatnonzero(down)],
    ]
    limit = np.concatenate([y + epsilon, epsilon - y, np.zeros(n), high[up], -low[down]])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(len(limit))]
    solver = clarabel.DefaultSolver(P, cost, sp.vstack(rows, format="csc"), limit, cones, settings)
    return np.array(solver.solve().x)[:d]


SIDES = {"box": Lin(0.0, 1.5, per="feature"), "box_lower": Lin(-1.5, 0.0, per="feature")}
PULL = {"proximity": Log(0.05, 20.0), "reference": Lin(-1.5, 1.5, per="feature")}
OUTER = {
    "both sides": ("slams", {}, SIDES),
    "upper side, lower fixed": ("slams", {"box_lower": [-0.2] * 3}, {"box": SIDES["box"]}),
    "lower side, upper fixed": ("slams", {"box": [0.4] * 3}, {"box_lower": SIDES["box_lower"]}),
    "lower side only": ("slams", {}, {"box_lower": SIDES["box_lower"]}),
    "lambda": ("mpec", {"reference": [0.8, -0.8, 0.0]}, {"proximity": PULL["proximity"]}),
    "w0": ("slams", {"reference": [0.0] * 3, "proximity": 2.0}, {"reference": PULL["reference"]}),
    "lambda and w0": ("mpec", {"reference": [0.0] * 3}, PULL),
    "all of (1)": ("mpec", {"reference": [0.0] * 3}, {**PULL, **SIDES}),
}


@pytest.mark.parametrize("name", OUTER)
def test_every_outer_variable_of_the_paper_is_tuned(name):
    """What is returned is below the start, within its bounds, and its error is that of machines trained elsewhere."""
    method, fixed, space = OUTER[name]
    X, y = regression(n=24, d=3, seed=2)
    folds = folds_of(24)
    model = LinearSVR(loss="epsilon_insensitive", epsilon=0.1, fit_intercept=False, **fixed)
    found = BilevelSearchCV(
        model, {"C": Log(0.02, 5.0), **space}, method=method, criterion="absolute", cv=folds
    ).fit(X, y)
    result, best = found.result_, {**fixed, **found.best_params_}
    assert result.objective < result.objective_start
    for key, bounds in space.items():
        assert np.all(np.asarray(best[key]) >= bounds.lower)
        assert np.all(np.asarray(best[key]) <= bounds.upper)
    high = np.asarray(best.get("box", [np.inf] * 3), float)
    low = np.asarray(best.get("box_lower", -high), float)
    near, w0 = best.get("proximity", 0.0), best.get("reference", [0.0] * 3)
    errors = []
    for train, validation in folds:
        w = boxed_tube(X[train], y[train], best["C"], 0.1, low, high, near, w0)
        errors.append(np.mean(np.abs(X[validation] @ w - y[validation])))
    assert result.objective == pytest.approx(np.mean(errors), rel=1e-4)
    refit = found.refit_params_
    again = boxed_tube(X, y, refit["C"], 0.1, low, high, refit.get("proximity", near), w0)
    np.testing.assert_allclose(found.best_estimator_.coef_, again, atol=1e-4)
    assert result.details["b_stationary"] is not None
    # Nothing beside it within the bounds is much lower: the tuned values moved one at a time.
    theta, space_, width = np.array(result.theta), found.space_, 1e-3
    for i in range(len(theta)):
        for sign in (-1, 1):
            there = space_.clip(theta + sign * width * np.eye(len(theta))[i])
            p = space_.params(there)
            high = np.asarray(p.get("box", fixed.get("box", [np.inf] * 3)), float)
            low = np.asarray(p.get("box_lower", fixed.get("box_lower", -high)), float)
            pull = (
                p.get("proximity", fixed.get("proximity", 0.0)),
                p.get("reference", fixed.get("reference", [0.0] * 3)),
            )
            moved = np.mean(
                [
                    np.mean(np.abs(X[v] @ boxed_tube(X[t], y[t], p["C"], 0.1, low, high, *pull) - y[v]))
                    for t, v in folds
                ]
            )
            assert moved >= result.objective - 1e-5


def test_more_outer_variables_are_never_worse():
    X, y = regression(n=24, d=3, seed=2)
    model = LinearSVR(loss="epsilon_insensitive", reference=np.zeros(3), proximity=0.05, fit_intercept=False)
    options = {"refit": False, "method_options": {"chain": True}}
    alone = search(model, {"C": Log(0.02, 5.0)}, "mpec", **options).fit(X, y).result_.objective
    more = search(model, {"C": Log(0.02, 5.0), **PULL}, "mpec", **options).fit(X, y).result_.objective
    assert more < 0.99 * alone


def test_gradients_of_reference_weights_against_differences():
    from foldwise.estimators.adapters import describe
    from foldwise.losses import Squared
    from foldwise.models.base import Rows
    from foldwise.search.prepare import Data, prepare

    X, y = regression(d=3)
    model = LinearSVR(loss="epsilon_insensitive", epsilon=0.3, reference=np.zeros(3))
    pipe = make_pipeline(StandardScaler(), model)
    space = {"linearsvr__C": Log(1e-3, 10.0)} | {f"linearsvr__{name}": value for name, value in PULL.items()}
    data = Data(3.0 * X, Rows(y[None]), None, folds_of(36))
    program = prepare(describe(pipe), data, Squared(), space)
    bilevel, theta, h = program.bilevel, np.array([np.log(0.03), np.log(0.8), 0.5, -0.4, 0.2]), 1e-5
    here = bilevel.differentiate(bilevel.evaluate(theta), 2)
    assert np.abs(here.gradient).min() > 1e-3
    for i in range(5):
        up, down = (bilevel.evaluate(theta + sign * h * np.eye(5)[i]) for sign in (1, -1))
        assert here.gradient[i] == pytest.approx((up.objective - down.objective) / (2 * h), rel=1e-5)
        column = (bilevel.differentiate(up).gradient - bilevel.differentiate(down).gradient) / (2 * h)
        np.testing.assert_allclose(here.hessian[i], column, atol=1e-6 * np.abs(here.hessian).max())


@pytest.mark.parametrize(
    ("method", "fixed", "space", "message"),
    [
        ("slams", {"reference": [0.0] * 4}, PULL, "hold the proximity fixed"),
        (
            "mpec",
            {"reference": [0.0] * 4},
            {"reference": PULL["reference"]},
            "acts through proximity, which is 0",
        ),
        ("mpec", {}, PULL, "proximity"),
        ("mpec", {"reference": [0.0] * 4}, {"reference": Lin(-1.0, 1.0)}, "per feature|per None"),
    ],
)
def test_a_pull_that_cannot_be_tuned_is_refused(method, fixed, space, message):
    X, y = regression()
    model = LinearSVR(loss="epsilon_insensitive", **fixed)
    with pytest.raises(ValueError, match=message):
        search(model, {"C": Log(0.02, 5.0), **space}, method).fit(X, y)
