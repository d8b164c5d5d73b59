"""Sparse and wide designs: the same answers as dense ones, without a matrix of columns by columns."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC as SkLinearSVC

import foldwise.problems.curvature as curvature_module
import foldwise.problems.rowspace as rowspace_module
from foldwise import BilevelSearchCV, LinearSVC, LinearSVR
from foldwise.bilevel import Bilevel
from foldwise.losses import Logistic, Squared, SquaredEpsilonInsensitive, SquaredHinge
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.linear import LinearModel, assemble
from foldwise.problems.curvature import GramFree, PieceGram
from foldwise.solvers.liblinear import first_guess
from foldwise.solvers.newton import Newton
from foldwise.space import Lin, Log
from foldwise.testing.comparison import relative_error

N, D = 300, 1_100
HINGE, TUBE = SquaredHinge(), SquaredEpsilonInsensitive()


def documents(n=N, d=D, seed=0):
    """Rows of unit length with few nonzero entries, common columns first; a noisy linear target."""
    rng = np.random.default_rng(seed)
    columns = np.minimum((d * rng.random((n, 25)) ** 3).astype(int), d - 1)
    X = sp.csr_array(
        (rng.exponential(size=n * 25), (np.repeat(np.arange(n), 25), columns.ravel())), shape=(n, d)
    )
    X = sp.csr_matrix(sp.diags_array(1.0 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())) @ X)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # for scikit-learn's refit
    z = X @ (rng.normal(size=d) * (np.arange(d) < 400))
    return X, z + 0.3 * z.std() * rng.normal(size=n)


def program(loss, X, *, intercept_penalty=0.0, weighted=False, lam=None, tol=1e-12, C=0.5):
    """Three folds on ``X``, with the hyper-parameters of the loss tuned."""
    _, y = documents()
    rng = np.random.default_rng(1)
    roles = {"C": Role("log_c"), "lam": Role("log_lam", per=(None, "feature"))}
    values = {"C": 1.0, "lam": np.exp(rng.normal(size=D)) if lam == "uneven" else 1.0}
    dimensions = {"C": Log(1e-3, 1e3)}
    label = None
    if loss is TUBE:
        roles["epsilon"] = Role("epsilon")
        dimensions["epsilon"] = Lin(0.0, 1.0)
    else:
        y, label = np.where(y > 0.3, 1.0, -1.0), (y > 0.3).astype(int)
    weight = rng.uniform(0.5, 2.0, len(y)) if weighted else None
    if weighted:
        weight[::17] = 0.0
    rows = Rows(y[None], weight, label=label, class_labels=[0, 1])
    splits = list(KFold(3, shuffle=True, random_state=0).split(np.zeros(N)))
    model = LinearModel(loss, roles, values, True, intercept_penalty)
    space = make_space(dimensions, rows, range(D))
    problem = assemble(model, X, rows, splits, space, dimensions=dimensions)
    criterion = Squared() if loss is TUBE else Logistic(s=2.0)
    theta = np.log([C]) if loss is HINGE else np.array([np.log(C), 0.1])
    return Bilevel([problem], criterion, space, Newton(tol=tol)), problem, theta


OPTIONS = {
    "free intercept": {},
    "penalised intercept": {"intercept_penalty": 1.0},
    "sample weights": {"weighted": True},
    "uneven penalties": {"lam": "uneven"},
}


@pytest.fixture(params=["rows", "conjugate gradients"])
def path(request, monkeypatch):
    """Both ways to solve the systems."""
    if request.param == "conjugate gradients":
        monkeypatch.setattr(rowspace_module, "MAX_ROWS", 0)
        monkeypatch.setattr(GramFree, "tolerance", 1e-12)


@pytest.fixture(scope="module")
def dense_answers():
    """Solutions on dense copies with stored Gram matrices, each computed once."""
    kept: dict = {}

    def answer(loss, name):
        if (loss, name) not in kept:
            _, problem, theta = program(loss, documents()[0].toarray(), **OPTIONS[name])
            point = problem.solved(Newton(tol=1e-12), theta, workspace=PieceGram(problem))
            kept[loss, name] = problem.value(point, None)
        return kept[loss, name]

    return answer


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("loss", [HINGE, TUBE], ids=["hinge", "tube"])
@pytest.mark.usefixtures("path")
def test_sparse_solutions_are_those_of_a_dense_copy(loss, name, dense_answers):
    _, problem, theta = program(loss, documents()[0], **OPTIONS[name])
    assert isinstance(problem.workspace(), GramFree)
    point = problem.solved(Newton(tol=1e-10), theta)
    assert point.converged.all()
    assert problem.residual(point, None).max() < 1e-9
    assert relative_error(problem.value(point, None), dense_answers(loss, name)) < 1e-10


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("loss", [HINGE, TUBE], ids=["hinge", "tube"])
@pytest.mark.usefixtures("path")
def test_hypergradients_through_the_sparse_path(loss, name):
    bilevel, _, theta = program(loss, documents()[0], **OPTIONS[name])
    evaluation = bilevel.differentiate(bilevel.evaluate(theta))
    numeric = np.empty(len(theta))
    for i, step in enumerate(1e-5 * np.eye(len(theta))):
        up, down = bilevel.evaluate(theta + step, evaluation), bilevel.evaluate(theta - step, evaluation)
        numeric[i] = (up.objective - down.objective) / 2e-5
    assert np.abs(numeric).min() > 1e-4
    assert relative_error(evaluation.gradient, numeric) < 1e-6


def test_a_factor_with_a_border_is_a_new_factor():
    _, problem, theta = program(HINGE, documents()[0], weighted=True)
    par, tasks = problem.parameters(theta), np.arange(problem.n_tasks)
    rng = np.random.default_rng(0)
    Z = problem.design.decisions(rng.normal(size=problem.start().W.shape))
    rhs = rng.normal(size=(problem.n_tasks, problem.n_columns, 2))
    kept = GramFree(problem)
    lowers = None
    for _ in range(4):  # a few rows come and go each time
        fresh = GramFree(problem)
        for state in (kept, fresh):
            state.refresh(Z, par, tasks)
        got, wanted = (state.factor(par, problem.diagonal(par), tasks)(rhs) for state in (kept, fresh))
        assert relative_error(got, wanted) < 1e-10
        factors = kept.row_space.factors
        lowers = lowers or {m: factors[m].lower for m in factors}
        assert all(factors[m].lower is lowers[m] for m in factors)
        Z = Z + 0.1 * rng.normal(size=Z.shape)
    assert any(len(f.now) != len(f.rows) or np.any(f.now != f.rows) for f in factors.values())


def test_no_rows_with_curvature():
    """All margins are wide: only the penalty and the stand-in for the intercept are left."""
    _, problem, theta = program(HINGE, documents()[0])
    par, tasks = problem.parameters(theta), np.arange(problem.n_tasks)
    kept = problem.workspace()
    kept.refresh(10.0 * np.tile(problem.Y, (problem.n_tasks, 1)), par, tasks)
    rhs = np.random.default_rng(0).normal(size=(problem.n_tasks, problem.n_columns, 1))
    got = kept.factor(par, problem.diagonal(par), tasks)(rhs)
    assert relative_error(got[:, :-1], rhs[:, :-1]) < 1e-12


@pytest.mark.parametrize("loss", [HINGE, TUBE], ids=["hinge", "tube"])
def test_the_first_guess_is_near_and_leaves_warm_starts_alone(loss):
    _, problem, theta = program(loss, documents()[0], intercept_penalty=1.0, weighted=True)
    guess = first_guess(problem, theta, problem.start().W)
    point = problem.solved(Newton(tol=1e-10), theta)
    assert relative_error(problem.objective(guess, point.par), problem.value(point, None)) < 1e-3
    assert first_guess(problem, theta, point.W) is point.W
    some = point.W.copy()
    some[1] = 0.0
    filled = first_guess(problem, theta, some)
    assert np.array_equal(filled[[0, 2]], point.W[[0, 2]])
    assert filled[1].any()
    assert not some[1].any()


@pytest.mark.parametrize("estimator", [LinearSVC(), SkLinearSVC()], ids=["ours", "scikit-learn"])
def test_a_search_on_sparse_data_equals_one_on_its_dense_copy(estimator):
    X, y = documents()
    y = np.where(y > 0.3, 1, 0)
    sparse, dense = (BilevelSearchCV(estimator).fit(data, y) for data in (X, X.toarray()))
    assert sparse.result_.objective == pytest.approx(dense.result_.objective, rel=1e-4)
    assert sparse.result_.objective <= sparse.result_.objective_start
    assert max(sparse.result_.kkt) < 1e-8
    assert np.mean(sparse.predict(X) == dense.predict(X)) > 0.97


def test_a_search_over_the_tube_on_sparse_data():
    X, y = documents()
    search = BilevelSearchCV(LinearSVR()).fit(X, y)
    dense = BilevelSearchCV(LinearSVR()).fit(X.toarray(), y)
    assert search.result_.objective == pytest.approx(dense.result_.objective, rel=1e-3)
    assert search.score(X, y) > 0.3


@pytest.mark.usefixtures("path")
def test_nothing_as_large_as_columns_squared():
    d = 6_000
    X, y = documents(d=d)
    y = np.where(y > 0.3, 1, 0)
    BilevelSearchCV(LinearSVC(), max_iter=1).fit(*[part[:60] for part in (X, y)])  # imports, caches
    tracemalloc.start()
    search = BilevelSearchCV(LinearSVC()).fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert search.n_iter_ > 1
    assert peak < d * d * 8 / 4


def test_wide_dense_data_use_the_rows(monkeypatch):
    X = documents()[0].toarray()
    assert isinstance(program(HINGE, X)[1].workspace(), GramFree)
    monkeypatch.setattr(curvature_module, "WIDE", 10.0)
    assert isinstance(program(HINGE, X)[1].workspace(), PieceGram)


def test_bounds_of_sparse_data_follow_the_rows():
    """Rare columns must not stretch the range of C."""
    X, y = documents()
    y = np.where(y > 0.3, 1, 0)
    plain = BilevelSearchCV(LinearSVC(), max_iter=1, refit=False).fit(X, y).space_.blocks[0]
    assert plain.upper == pytest.approx(500.0, rel=1e-6)
    scaled = BilevelSearchCV(LinearSVC(), max_iter=1, refit=False).fit(3.0 * X, y).space_.blocks[0]
    assert scaled.upper == pytest.approx(500.0 / 9.0, rel=1e-6)


def test_a_scaler_in_the_pipeline_of_sparse_rows():
    """Sparse rows are scaled in each fold by the scaler itself; the answer is that of the dense copy."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.uniform(size=(120, 30)) * (rng.uniform(size=(120, 30)) < 0.3))
    y = np.asarray(X @ np.linspace(-1, 1, 30)) > 0
    space = {"linearsvc__C": (1e-3, 1e3)}
    search = BilevelSearchCV(make_pipeline(StandardScaler(with_mean=False), LinearSVC()), space)
    sparse, dense = search.fit(X, y).best_score_, search.fit(X.toarray(), y).best_score_
    assert sparse == pytest.approx(dense, rel=1e-4)
