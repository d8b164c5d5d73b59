"""The data, baselines and summaries of bennett2006 and kunapuli2008."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


# bennett2006


@pytest.mark.parametrize("features", [5, 10, 15])
@pytest.mark.parametrize("noise", ["gaussian", "laplacian"])
def test_generated_data_are_those_of_section_6a(features, noise):
    from papers.bennett2006.data import HELD_OUT, RELEVANT, make_instance

    one = make_instance(features, 60, noise, 3)
    assert one.X.shape == (60, features)
    assert one.X_test.shape == (HELD_OUT, features)
    assert np.count_nonzero(one.w) == RELEVANT[features]
    assert np.all(np.abs(one.w) <= 1)
    reach = np.abs(one.X_test).max(axis=0)
    fifth = features // 5
    for k, half in enumerate([1.0] * fifth + [2.5] * fifth + [5.0] * fifth + [3.75] * 2 * fifth):
        assert 0.98 * half < reach[k] <= half
    sd = 0.4 * np.std(one.X @ one.w)
    r = one.y_test - one.X_test @ one.w
    assert np.std(r) == pytest.approx(sd, rel=0.12)
    # The mean absolute deviation of a normal variable is 0.798 standard deviations, of a Laplacian one 0.707.
    assert np.mean(np.abs(r)) / sd == pytest.approx({"gaussian": 0.798, "laplacian": 0.707}[noise], rel=0.1)
    again = make_instance(features, 60, noise, 3)
    np.testing.assert_array_equal(one.y, again.y)
    assert not np.array_equal(one.w, make_instance(features, 60, noise, 2).w)


def test_folds_and_instances():
    from papers.bennett2006.data import instances, make_instance

    cell = list(instances(5, 15, 10))
    assert [i.noise for i in cell].count("gaussian") == 5
    assert len({i.key for i in cell}) == 10
    for train, validation in cell[0].folds:
        assert (len(train), len(validation)) == (10, 5)
    assert sorted(np.concatenate([v for _, v in cell[0].folds])) == list(range(15))
    with pytest.raises(ValueError, match="5, 10 or 15"):
        make_instance(7, 15, "gaussian", 0)


@pytest.mark.parametrize("seed", range(4))
def test_constrained_l1_reaches_the_dual_value(seed):
    """Strong duality, the dual solved on its own: max y'u - sum_d box_d |X'u|_d over |u| <= 1."""
    from papers.bennett2006.data import constrained_l1
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    n, d = 25, 4
    X, box = rng.normal(size=(n, d)), rng.uniform(0.0, 0.3, d)
    y = X @ rng.uniform(0.5, 1.0, d) + rng.normal(size=n)
    box[0] = 0.0
    w = constrained_l1(X, y, box)
    assert np.all(np.abs(w) <= box + 1e-9)
    cost = np.concatenate([-y, box])  # (u, t) with |X'u| <= t
    A = np.block([[X.T, -np.eye(d)], [-X.T, -np.eye(d)]])
    dual = linprog(cost, A, np.zeros(2 * d), bounds=[(-1, 1)] * n + [(0, None)] * d, method="highs-ipm")
    assert np.sum(np.abs(X @ w - y)) == pytest.approx(-dual.fun, rel=1e-7)
    assert np.any(np.abs(np.abs(w[1:]) - box[1:]) < 1e-9)  # some box is active, so it matters


def test_l1_without_boxes_is_median_regression(rng):
    from papers.bennett2006.data import constrained_l1
    from sklearn.linear_model import QuantileRegressor

    X, y = rng.normal(size=(31, 3)), rng.normal(size=31)
    w = constrained_l1(X, y, np.full(3, np.inf))
    other = QuantileRegressor(quantile=0.5, alpha=0.0, fit_intercept=False).fit(X, y).coef_
    np.testing.assert_allclose(w, other, atol=1e-7)


def test_paired_t_test():
    from papers.bennett2006.tables import p_value

    one = [1.0, 2.0, 3.0, 4.0, 5.5]
    other = [0.9, 1.7, 2.9, 3.6, 5.0]
    gaps = np.subtract(one, other)
    t = gaps.mean() / (gaps.std(ddof=1) / np.sqrt(5))
    from scipy.stats import t as student

    assert p_value(one, other) == pytest.approx(2 * student.sf(t, 4))
    assert p_value(one, one) is None
    assert p_value([1.0], [2.0]) is None


def test_outcomes_are_kept_between_runs(tmp_path, monkeypatch):
    from papers import frame

    calls = []

    def compute():
        calls.append(1)
        return {"value": [1.5, 2.0]}

    frame.once("table", "a", compute)
    frame.once("table", "a", compute)
    assert len(calls) == 2  # nothing is kept without a folder
    monkeypatch.setenv("FOLDWISE_RUNS", str(tmp_path / "runs"))
    assert frame.once("table", "a", compute) == frame.once("table", "a", compute) == {"value": [1.5, 2.0]}
    frame.once("table", "b", compute)
    assert len(calls) == 4
    lines = (tmp_path / "runs" / "table.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["a", "b"]


# kunapuli2008


@pytest.mark.parametrize("name", ["pima", "cancer", "heart", "ionosphere", "sdss"])
def test_instances_have_the_sizes_of_table_1(name):
    from papers.kunapuli2008.data import FEATURES, SIZES, load_set

    data = load_set(name, None)
    assert "stand in" in data.statement
    assert not data.real
    np.testing.assert_allclose(data.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(data.X.std(axis=0), 1.0)
    one = data.instance(4)
    assert (len(one.y), len(one.y_test)) == SIZES[name]
    assert one.X.shape[1] == FEATURES[name]
    assert set(np.unique(one.y)) == {-1, 1}
    assert len(one.folds) == 3
    assert not np.array_equal(one.y, data.instance(5).y)
    np.testing.assert_array_equal(one.X, data.instance(4).X)


def test_a_set_from_the_folder_loses_constant_columns(tmp_path):
    from papers.kunapuli2008.data import load_set

    lines = ["a,b,c,target"] + [f"{i},1,{i % 7},{1 if i % 3 else -1}" for i in range(351)]
    (tmp_path / "ionosphere.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = load_set("ionosphere", tmp_path)
    assert data.real
    assert data.X.shape == (351, 2)
    assert data.instance(0).X_test.shape == (111, 2)


def fake(method, points, number, objective, **more):
    """One outcome of bennett2006."""
    base = {"seconds": 0.5, "evaluations": 9, "C": 1.0, "epsilon": 0.1, "box": [1.0], "features": 4}
    errors = {"mad": objective, "mse": objective**2, "mad_svr": objective, "mse_svr": objective**2}
    own = {"claimed": None, "gap": None, "solver_status": None, "status": "converged"}
    return {
        "points": points,
        "instance": f"{points}-{number}",
        "method": method,
        "objective": objective,
        **base,
        **errors,
        **own,
        **more,
    }


def test_summary_of_bennett2006_compares_on_shared_instances(capsys, rng):
    from papers.bennett2006 import tables

    noise = rng.uniform(-0.01, 0.01, 8)
    runs = [fake("unconstrained grid", 15, k, 2.0 + k + noise[k]) for k in range(4)]
    runs += [fake("constrained grid", 15, k, 1.0 + k) for k in range(2)]
    runs += [
        fake("mpec", 15, k, 0.5 * (2.0 + k) + noise[4 + k], gap=1e-5 * k, solver_status="solved")
        for k in range(4)
    ]
    rows = {row["method"]: row for row in tables.summary("table2", runs)}
    assert list(rows) == ["unconstrained grid", "constrained grid", "SNOPT", "FILTER"]
    assert rows["FILTER"]["ours_ratio"] == pytest.approx(0.5, abs=0.01)
    assert rows["FILTER"]["ratio"] == pytest.approx(0.803 / 1.896)
    assert rows["constrained grid"]["ours_ratio"] == pytest.approx(3.0 / 5.0, abs=0.01)  # of two instances
    assert rows["constrained grid"]["ours_instances"] == 2
    assert rows["FILTER"]["ours_mad_p"] < 0.1
    assert "ours_ratio" not in rows["SNOPT"]
    tables.show(list(rows.values()))
    tables.remarks("table2", runs, list(rows.values()), quick=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert "4 solved" in shown
    assert "at or below FILTER's in 0 of 1 cells" in shown


def test_errors_of_kunapuli2008_against_scikit_learn():
    """Without boxes the machine is scikit-learn's, also with lambda times 3/2 for the final one."""
    from papers.kunapuli2008.data import load_set
    from papers.kunapuli2008.methods import fold_errors, test_error
    from sklearn.svm import SVC

    instance = load_set("pima", None).instance(0, n_train=60)
    C, box = 0.3, np.full(8, np.inf)
    wrong, hinge = [], []
    for train, validation in instance.folds:
        machine = SVC(kernel="linear", C=C, tol=1e-8).fit(instance.X[train], instance.y[train])
        margin = instance.y[validation] * machine.decision_function(instance.X[validation])
        wrong.append(np.mean(margin <= 0))
        hinge.append(np.mean(np.maximum(1 - margin, 0)))
    errors = fold_errors(instance, C, box)
    assert errors["misclassification"] == pytest.approx(np.mean(wrong))
    assert errors["hinge"] == pytest.approx(np.mean(hinge), rel=1e-5)
    final = SVC(kernel="linear", C=C / 1.5, tol=1e-8).fit(instance.X, instance.y)
    assert test_error(instance, C, box) == pytest.approx(
        np.mean(final.predict(instance.X_test) != instance.y_test)
    )
    # Shut boxes take columns away.
    shut = np.where(np.arange(8) < 4, 100.0, 0.0)
    final = SVC(kernel="linear", C=C / 1.5, tol=1e-8).fit(instance.X[:, :4], instance.y)
    expected = np.mean(final.predict(instance.X_test[:, :4]) != instance.y_test)
    assert test_error(instance, C, shut) == pytest.approx(expected)


def test_summary_of_kunapuli2008():
    from papers.kunapuli2008 import table2

    def outcome(method, criterion, number, objective, test):
        return {
            "data": "pima",
            "instance": number,
            "method": method,
            "criterion": criterion,
            "objective": objective,
            "test": test,
            "features": 5,
            "seconds": 1.0,
            "claimed": None,
            "cv_misclassification": 0.22,
        }

    runs = [outcome("unconstrained grid", "misclassification", k, 0.2 + 0.01 * k, 0.25) for k in range(3)]
    runs += [outcome("mpec", "hinge", k, 0.5, 0.23 + 0.001 * k) for k in range(3)]
    rows = {row["method"]: row for row in table2.summary("pima", runs)}
    assert rows["BilevelHL"]["ours_cv_mean"] == pytest.approx(50.0)
    assert rows["BilevelHL"]["ours_twice_wrong_mean"] == pytest.approx(44.0)
    assert rows["BilevelHL"]["ours_test_p"] < 0.01
    assert rows["unconstrained grid"]["ours_cv_mean"] == pytest.approx(21.0)
    assert "ours_cv_mean" not in rows["constrained grid"]
