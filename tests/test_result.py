"""Results: JSON there and back, and a summary that says how good the answer is."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from foldwise.losses import Logistic, Squared, SquaredEpsilonInsensitive
from foldwise.optimizers import Grid, TrustRegionNewton
from foldwise.result import MESSAGES, Record, Result, Status
from foldwise.space import Lin, Log
from foldwise.testing import small_bilevel


def example(**changes):
    record = Record(0, 0, 2.0, 2.0, {"C": 1.0, "lam": [1.0, 2.0]}, 0.5, 0.01, "start", [1.9, 2.1])
    values = {
        "theta": [0.0, 0.5],
        "params": {"C": 1.0, "lam": [1.0, 2.0]},
        "objective": 1.5,
        "objective_start": 2.0,
        "fold_objectives": [1.4, 1.6],
        "status": Status.CONVERGED,
        "message": MESSAGES[Status.CONVERGED],
        "method": "newton",
        "history": [record],
        "kkt": [1e-12, 3e-11],
        "gradient_norm": 1e-5,
        "at_bound": {"lam[1]": "upper"},
        "n_kinks": 2,
        "n_evaluations": 9,
        "elapsed": 0.25,
        "seed": 3,
        "warnings": ["something"],
    }
    return Result(**{**values, **changes})


@pytest.mark.parametrize("status", Status)
def test_round_trip(status):
    result = example(status=status)
    back = Result.from_json(result.to_json())
    assert back == result
    assert back.status is status
    assert isinstance(back.history[0], Record)
    assert json.loads(result.to_json())["status"] == status.value


def test_a_real_result_survives():
    tune = {"C": Log(1e-3, 1e1, per="group"), "epsilon": Lin(0, 1.5)}
    bilevel, theta = small_bilevel(SquaredEpsilonInsensitive(), Squared(), tune)
    result = TrustRegionNewton().minimize(bilevel, theta)
    back = Result.from_json(result.to_json())
    assert back == result
    assert bilevel.evaluate(np.array(back.theta)).objective == pytest.approx(result.objective, rel=1e-9)


def test_numpy_values_become_plain_ones():
    result = example(theta=np.array([0.0, 0.5]), objective=np.float64(1.5), n_kinks=np.int64(2))
    assert Result.from_json(result.to_json()) == example()


def test_a_criterion_without_gradient_and_values_that_are_not_numbers():
    result = example(gradient_norm=None, objective_start=math.inf)
    back = Result.from_json(result.to_json())
    assert back.gradient_norm is None
    assert back.objective_start == math.inf


def test_anything_else_in_it_is_refused():
    with pytest.raises(TypeError, match="set"):
        example(params={"C": {1, 2}}).to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "3",
        "{}",
        '{"history": []}',
        example().to_json()[:-20],
        example().to_json().replace('"converged"', '"splendid"'),
        example().to_json().replace('"elapsed"', '"duration"'),
        example().to_json().replace('"note"', '"remark"'),
    ],
    ids=[
        "empty",
        "words",
        "list",
        "number",
        "empty object",
        "parts missing",
        "cut short",
        "status",
        "field",
        "record",
    ],
)
def test_damaged_text_is_refused_in_words(text):
    with pytest.raises(ValueError, match="not a foldwise result"):
        Result.from_json(text)


def test_every_status_has_words():
    assert set(MESSAGES) == set(Status)
    assert all(message.endswith(".") for message in MESSAGES.values())


def test_the_summary_holds_the_evidence():
    text = example().summary()
    for words in (
        "newton: converged",
        "1.5 (start 2, -25.0%)",
        "9 evaluations, 0.25 s",
        "C = 1",
        "lam = 1, 2",
        "at a bound: lam[1] (upper)",
        "norm 1e-05",
        "residual 3e-11",
        "kink 2",
        "warning: something",
    ):
        assert words in text, words


def test_the_summary_of_many_values_stays_short():
    many = {f"lam[{i}]": "lower" for i in range(100)}
    text = example(params={"lam": list(range(100))}, at_bound=many, gradient_norm=None, kkt=[]).summary()
    assert max(map(len, text.splitlines())) < 250
    assert "..." in text
    assert "not computed" in text


def test_the_summary_of_a_start_of_zero():
    assert "+0.0%" in example(objective=0.0, objective_start=0.0).summary()


def test_records_tell_the_whole_history():
    bilevel, theta = small_bilevel(Logistic(), Logistic())
    result = Grid(points=5).minimize(bilevel, theta)
    assert [record.evaluation for record in result.history] == list(range(5))
    assert all(len(record.fold_objectives) == 3 for record in result.history)
    for record in result.history:
        assert record.objective == pytest.approx(np.mean(record.fold_objectives), rel=1e-9)
    times = [record.elapsed for record in result.history]
    assert times == sorted(times)
    assert times[-1] <= result.elapsed


def test_a_notebook_shows_selected_values_and_escapes_names():
    result = Result(
        theta=[0.0],
        params={"<b>C": 2.0},
        objective=1.0,
        objective_start=2.0,
        fold_objectives=[1.0],
        status=Status.CONVERGED,
        message="done",
        method="newton",
        warnings=["<script>"],
    )
    html = result._repr_html_()
    assert "<td>&lt;b&gt;C</td><td>2</td>" in html
    assert "warning: &lt;script&gt;" in html
    assert "<script>" not in html


def test_what_one_method_alone_knows_is_kept_and_shown():
    result = example(details={"claimed": 1.25, "ending": "optimal", "path": [1.0, 0.5]})
    assert Result.from_json(result.to_json()) == result
    assert "newton: claimed 1.25; ending optimal" in result.summary()
    assert "newton: \n" not in example().summary()
