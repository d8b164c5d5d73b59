"""The scripts of the papers: they resolve, their published figures are complete, and they run on fallback data."""

from __future__ import annotations

import csv
import inspect
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from foldwise.cli.others import load_registry

ROOT = Path(__file__).resolve().parents[2]


def registry():
    """The registry as the command line loads it."""
    return load_registry(ROOT / "papers")


def names():
    sys.path.insert(0, str(ROOT))
    try:
        return import_module("papers.registry").SCRIPTS
    finally:
        sys.path.remove(str(ROOT))


SCRIPTS = names()
SINGLE = [(paper, name) for paper, scripts in SCRIPTS.items() for name in scripts]
STAND_INS = (
    {f"table5.{i}" for i in (3, 5, 6, 7)} | {f"figure5.{i}" for i in (4, 5, 6, 7, 8)} | {"chapter6", "table1"}
)
"""Scripts whose data are neither in scikit-learn nor generated."""


def test_registry_lists_papers_and_their_tables():
    tables = registry()
    assert list(tables)[:2] == ["moore2011", "moore2011-table3"]
    assert {paper for paper, _ in SINGLE} <= set(tables)
    assert {f"{paper}-{name}" for paper, name in SINGLE} <= set(tables)


@pytest.mark.parametrize(("paper", "name"), SINGLE)
def test_names_resolve(paper, name):
    module, function = SCRIPTS[paper][name]
    run = getattr(import_module(module), function)
    assert list(inspect.signature(run).parameters) == ["quick", "data_dir", "out"]


@pytest.mark.parametrize(
    ("paper", "counts"),
    [
        ("moore2011", {"table3": 28, "table4": 34}),
        ("lee2009", {"figure1": 3, "figure2": 3, "figure3": 1, "table1": 13}),
        ("bennett2006", {"table1": 16, "table2": 16, "table3": 16}),
        ("kunapuli2008", {"table2": 24}),
        (
            "thesis",
            {"5.1": 36, "5.2": 12, "5.3": 72, "5.5": 36, "5.6": 30, "5.7": 24, "moons": 4, "6.2": 11},
        ),
    ],
)
def test_published_figures_are_complete(paper, counts):
    from papers import frame

    rows = frame.published(paper)
    assert {table: sum(row["table"] == table for row in rows) for table in counts} == counts
    assert len(rows) == sum(counts.values())
    for row in rows:
        numbers = [value for key, value in row.items() if key not in frame.TEXT]
        assert all(isinstance(value, float) or value is None for value in numbers)
        assert numbers[0] is not None


def test_published_figures_of_moore2011():
    from papers import frame

    rows = {(row["n"], row["method"], row["model"]): row for row in frame.published("moore2011", "table4")}
    row = rows[10000, "IMPGRAD", "multiSVR"]
    assert (row["mse_mean"], row["mse_sd"], row["seconds_mean"], row["seconds_sd"]) == (
        1.030,
        0.051,
        109.5,
        24.1,
    )
    assert rows[100, "GRID COARSE", "SVR"]["seconds_sd"] is None
    assert (10000, "GRID FINE", "SVR") not in rows


@pytest.mark.parametrize(("paper", "name"), SINGLE)
def test_quick_run_on_fallback_data(paper, name, tmp_path, capsys):
    registry()[f"{paper}-{name}"](quick=True, data_dir=None, out=tmp_path)
    shown = capsys.readouterr().out
    assert "published" in shown or name == "equation27"
    if paper == "moore2011":
        assert "not public" in shown
    if name in STAND_INS and paper != "bennett2006":  # which is generated
        assert "stand in" in shown
    if paper == "kunapuli2008":
        assert "stand in" in " ".join(shown.split())
    if name == "chapter6":
        assert "Graz02 is left out" in shown
        assert "Caltech-101 is left out" in shown
    with (tmp_path / f"{paper}-{name}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows
    if name.startswith("figure"):
        pytest.importorskip("matplotlib")
        assert (tmp_path / f"{paper}-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_paper_runs_all_of_its_scripts(monkeypatch):
    tables = registry()
    ran = []
    for module, function in SCRIPTS["thesis"].values():
        monkeypatch.setattr(import_module(module), function, lambda *args: ran.append(args))
    tables["thesis"](quick=True, data_dir=None, out=None)
    assert ran == [(True, None, None)] * len(SCRIPTS["thesis"])


def test_data_come_from_the_folder(tmp_path, monkeypatch):
    from papers import frame

    assert frame.load("heart_statlog", None) is None
    assert frame.load("heart_statlog", tmp_path) is None
    (tmp_path / "heart_statlog.csv").write_text("a,b,target\n1,2,-1\n3,5,1\n", encoding="utf-8")
    monkeypatch.setenv("FOLDWISE_DATA", str(tmp_path))
    X, y = frame.load("heart_statlog", None)
    np.testing.assert_array_equal(X, [[1, 2], [3, 5]])
    np.testing.assert_array_equal(y, [-1, 1])
    with pytest.raises(FileNotFoundError, match="no data folder"):
        frame.load("heart_statlog", tmp_path / "absent")


def test_table_and_number_formats(capsys):
    from papers import frame

    assert frame.spread(0.1234, 0.01) == "0.123 ± 0.010"
    assert frame.spread(None) == "-"
    assert frame.mean_sd([1.0]) == (1.0, None)
    assert frame.mean_sd([1.0, 3.0]) == (2.0, pytest.approx(np.sqrt(2.0)))
    frame.print_table(["name", "x"], [["a", 1], ["long name", 22]])
    assert capsys.readouterr().out.splitlines()[2:4] == ["a           1", "long name  22"]
    np.testing.assert_array_equal(
        frame.scale_to_unit(np.array([[0.0, 7.0], [4.0, 7.0], [1.0, 7.0]])), [[-1, 0], [1, 0], [-0.5, 0]]
    )


def test_figure_without_matplotlib_says_so(tmp_path, monkeypatch, capsys):
    from papers import frame

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with frame.figure(tmp_path, "f") as panels:
        assert panels is None
    assert "pip install" in capsys.readouterr().out


def test_features_as_in_section_9_1():
    from papers.moore2011.substitutes import prepare

    X = np.random.default_rng(0).normal(size=(200, 12)) ** 3
    X[:, 3] = 1.0
    Z = prepare(X, n_components=5)
    assert Z.shape == (200, 5)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
    gram = Z.T @ Z
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-9)
    assert np.all(np.diff(np.diag(gram)) < 0)


def test_the_paper_C_is_twice_ours():
    """Our LinearSVR at C / 2 minimises moore2011's (9) at C."""
    from papers.moore2011.methods import to_ours

    from foldwise import LinearSVR

    rng = np.random.default_rng(1)
    X, y, C, epsilon = rng.normal(size=(40, 3)), rng.normal(size=40), 0.7, 0.3
    w = LinearSVR(C=to_ours(C), epsilon=epsilon, fit_intercept=False, tol=1e-12).fit(X, y).coef_
    r = X @ w - y
    gradient = w + C * X.T @ (np.sign(r) * np.maximum(np.abs(r) - epsilon, 0.0))
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)
    assert np.linalg.norm(w) > 0.05


def test_the_coarse_multi_grid_has_1024_points():
    from papers.moore2011.methods import COARSE, FINE

    from foldwise.optimizers import Grid
    from foldwise.space import Lin, Log, Space

    dimensions = {"C": Log(1e-4, 1e3, per="group"), "epsilon": Lin(0, 1, per="group")}
    space = Space.build(dimensions, {"group": range(5)})
    assert np.prod([len(axis) for axis in Grid(values=COARSE).axes(space)]) == 1024
    assert len(FINE["C"]) * len(FINE["epsilon"]) == 48


def test_printed_sign_of_equation_27_turns_the_derivative():
    from papers.moore2011 import equation27, substitutes
    from papers.moore2011.methods import IMPGRAD, try_method

    data = substitutes.pyruvate(True, None)
    right = try_method(IMPGRAD, "multiSVR", data, 100, 0)
    with equation27.as_printed():
        printed = try_method(IMPGRAD, "multiSVR", data, 100, 0)
    again = try_method(IMPGRAD, "multiSVR", data, 100, 0)
    assert printed.objective > right.objective
    assert again.objective == right.objective


def test_methods_are_compared_on_the_splits_that_they_share(capsys):
    from papers.moore2011 import tables
    from papers.moore2011.methods import METHODS, MODELS, Outcome

    runs = [
        Outcome(100, split, method, model, 1.0 + split, 0.1, 3, 2.0, [1.0] * 5, [0.0] * 5)
        for method in METHODS
        for model in MODELS
        for split in range(tables.n_splits(method, model, 100, quick=False))
    ]
    tables.remarks(runs, quick=False)
    assert "n = 100: 2.000 and 2.000" in " ".join(capsys.readouterr().out.split())
    rows = tables.summary("table3", runs)
    assert len(rows) == 28 + 2
    own = {(row["method"], row["model"]): row for row in rows if row["n"] == 100}
    assert own["NEWTON (ours)", "SVR"]["ours_splits"] == 10
    assert own["GRID COARSE", "multiSVR"]["ours_splits"] == 3
    assert own["PBP", "SVR"]["ours_splits"] == 10


def thesis_program(kernel, dimensions, n=40, d=3, **options):
    """A small program of the thesis's kernel machines."""
    from papers.thesis import bikernel

    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1, -1)
    return bikernel.program(kernel, X, y, bikernel.five_folds(n, 0), dimensions, **options), X, y


def test_the_thesis_c_is_one_over_ours():
    """Its H is half of our squared criterion at C = 1 / c without an intercept, on the same folds."""
    from papers.thesis import bikernel

    from foldwise import RBF, BilevelSearchCV, KernelSVC, Lin

    bilevel, X, y = thesis_program(RBF(1.0), {"c": Lin(0.01, 100.0), "gamma": Lin(0.01, 100.0)})
    c, gamma = 2.5, 0.4
    ours = BilevelSearchCV(
        KernelSVC(RBF(gamma), loss=bikernel.QUARTIC, fit_intercept=False),
        {"C": (1.0 / c, 1.0 / c)},
        method="grid",
        criterion="squared",
        cv=bikernel.five_folds(len(y), 0),
        refit=False,
        method_options={"points": 1},
    ).fit(X, y)
    evaluation = bilevel.evaluate(bilevel.space.theta({"c": c, "gamma": gamma}))
    assert evaluation.objective == pytest.approx(ours.result_.objective, rel=1e-6)
    # The definition of H, with machines trained fold by fold.
    means = []
    for train, validation in bikernel.five_folds(len(y), 0):
        model = bikernel.train(RBF(), X[train], y[train], {"c": c, "gamma": gamma})
        means.append(bikernel.measure(model, X[validation], y[validation])["H"])
    assert 0.5 * evaluation.objective == pytest.approx(np.mean(means), rel=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_derivatives_in_the_thesis_parameters(several):
    """Gradients in c, gamma and kernel weights on their own scale, against central differences."""
    from foldwise import RBF, Lin, Sum

    if several:
        kernel = Sum([RBF(0.5), RBF(0.5)], columns=[[0, 1], [2]])
        dimensions = {"weights": Lin(0.01, 9.0, per="feature"), "k0__gamma": Lin(0.01, 9.0)}
        dimensions |= {"k1__gamma": Lin(0.01, 9.0)}
        theta = np.array([1.2, 0.4, 0.7, 0.3])
    else:
        kernel = RBF(1.0, ard=True)
        dimensions = {"c": Lin(0.01, 9.0), "gamma": Lin(0.01, 9.0, per="feature")}
        theta = np.array([0.8, 0.5, 0.9, 0.2])
    bilevel, _, _ = thesis_program(kernel, dimensions)
    gradient = bilevel.differentiate(bilevel.evaluate(theta)).gradient
    h = 1e-4
    for i, step in enumerate(h * np.eye(len(theta))):
        ends = [bilevel.evaluate(theta + sign * step).objective for sign in (1.0, -1.0)]
        assert gradient[i] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-3, abs=1e-6)
    assert np.linalg.norm(gradient) > 1e-3


def test_scale_of_weights_and_c_is_degenerate():
    """Twice the weights is half of c, so that table 5.7 fixes c."""
    from foldwise import RBF, Lin, Sum

    kernel = Sum([RBF(0.5), RBF(0.5)], columns=[[0, 1], [2]])
    dimensions = {"c": Lin(0.01, 9.0), "weights": Lin(0.01, 9.0, per="feature")}
    bilevel, _, _ = thesis_program(kernel, dimensions)
    one, two = (
        bilevel.evaluate(bilevel.space.theta({"c": scale, "weights": scale * np.array([0.3, 0.8])})).objective
        for scale in (1.0, 2.0)
    )
    assert one == pytest.approx(two, rel=1e-6)


def test_groups_of_table_5_7_are_seven_and_do_not_overlap():
    from papers.thesis.table5_7 import GROUPS

    full, reduced = (sorted(column for group in groups for column in group) for groups in GROUPS.values())
    assert all(len(groups) == 7 for groups in GROUPS.values())
    assert full == list(range(22))
    assert len(reduced) == len(set(reduced)) == 15


def test_stored_distances_are_the_kernels_of_chapter_6():
    from papers.thesis import chapter6

    from foldwise import RBF, ExpChi2
    from foldwise.testing import check_kernel

    X = np.random.default_rng(0).uniform(size=(12, 4))
    rows = np.arange(12.0)[:, None]
    for name, kernel in (("exponential chi-squared", ExpChi2(0.7)), ("RBF", RBF(0.7))):
        D = chapter6.DISTANCES[name](X, X)
        stored = chapter6.Stored(D, 0.7)
        np.testing.assert_allclose(stored(rows[:5], rows), kernel(X[:5], X), atol=1e-10)
        check_kernel(stored, rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table5.3", "table5.5", "table5.7", "chapter6"])
def test_whole_run_on_fallback_data(name, tmp_path, capsys):
    registry()[f"thesis-{name}"](quick=False, data_dir=None, out=tmp_path)
    assert "stand in" in capsys.readouterr().out
    assert (tmp_path / f"thesis-{name}.csv").stat().st_size > 0
