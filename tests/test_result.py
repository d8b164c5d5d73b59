"""Results: JSON there and back, and a summary that says how good the answer is."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from foldwise import RBF, BilevelSearchCV, KernelSVR, LinearSVR
from foldwise.losses import Absolute, Logistic, Squared, SquaredEpsilonInsensitive
from foldwise.optimizers import Grid, LBfgsB, Rprop, TrustRegionNewton
from foldwise.plotting import history_data
from foldwise.report import gather, render
from foldwise.report.facts import certificate
from foldwise.result import KINKED_TOL, KKT_TOL, MESSAGES, SMOOTH_TOL, Record, Result, Status, judged
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
    assert "+0.0%" in example(objective=0.0, objective_start=0.0, fold_objectives=[], history=[]).summary()


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


LIMITS = {"promised_decrease": 1e-3, "kkt": 1e-5}


@pytest.mark.parametrize(
    ("said", "promised", "kkt", "status"),
    [
        (Status.CONVERGED, 1e-4, 1e-9, Status.CONVERGED),
        (Status.CONVERGED, 0.3, 1e-9, Status.STALLED),
        (Status.CONVERGED, None, 1e-9, Status.STALLED),
        (Status.CONVERGED, math.nan, 1e-9, Status.STALLED),
        (Status.CONVERGED, 1e-4, 1.1, Status.UNSOLVED),
        (Status.CONVERGED, 1e-4, math.nan, Status.UNSOLVED),
        (Status.STALLED, 1e-4, 1e-9, Status.CONVERGED),
        (Status.STALLED, 0.3, 1e-9, Status.STALLED),
        (Status.STALLED, 1e-4, 1.1, Status.UNSOLVED),
        (Status.EXHAUSTED, 0.3, 1e-9, Status.EXHAUSTED),
        (Status.TIME_LIMIT, 1e-4, 1.1, Status.TIME_LIMIT),
    ],
)
def test_a_status_follows_from_the_numbers_of_the_result(said, promised, kkt, status):
    message = "My rule holds."
    result = judged(
        example(
            status=said,
            message=message,
            promised_decrease=promised,
            kkt=[1e-12, kkt],
            tolerances=LIMITS,
            warnings=[],
        )
    )
    assert result.status is status
    assert bool(result.warnings) == (not kkt <= 1e-5 or status is Status.STALLED)
    if status is Status.STALLED and promised:
        assert result.message.startswith(message)
        assert "at most 0.1%" in result.message
    assert judged(result).status is status


def test_stalled_is_not_called_a_minimum():
    """A method's own "converged" that the numbers do not support leaves no word of a minimum behind."""
    said = {"message": MESSAGES[Status.CONVERGED], "promised_decrease": 0.0043, "kkt": [1e-9]}
    result = judged(example(status=Status.CONVERGED, tolerances=LIMITS, warnings=[], **said))
    assert result.status is Status.STALLED
    assert "minimum" not in result.message
    assert "0.43% less error" in result.message
    assert "at most 0.1%" in result.message


class Boaster(Grid):
    """Evaluates one point and calls it a minimum."""

    name = "boaster"
    needs_gradient = True

    def iterate(self, trace, theta):
        trace.evaluate(theta, order=1)
        return Status.CONVERGED


def test_a_method_cannot_call_a_slope_a_minimum():
    bilevel, theta = small_bilevel(Squared(), Squared(), {"C": Log(1e-6, 1e6)})
    result = Boaster().minimize(bilevel, theta - 4.0)
    # By differences over a tenth of an e-fold.
    best = min(bilevel.evaluate(theta - 4.0 + step).objective for step in (-0.1, 0.1))
    assert 1 - best / result.objective > 1.5 * SMOOTH_TOL
    assert result.promised_decrease == pytest.approx(1 - best / result.objective, rel=0.2)
    assert result.status is Status.STALLED
    assert result.tolerances == {"promised_decrease": SMOOTH_TOL, "kkt": KKT_TOL}
    newton = TrustRegionNewton().minimize(bilevel, theta)
    assert newton.status is Status.CONVERGED
    loose = TrustRegionNewton(tol=0.1).minimize(bilevel, theta)
    assert loose.tolerances["promised_decrease"] == 1.0
    kinked, at = small_bilevel(Squared(), Absolute())
    assert Boaster().minimize(kinked, at).tolerances["promised_decrease"] == KINKED_TOL


@dataclass(frozen=True)
class Overflowing(Squared):
    """The squared error, infinite where decisions spread too much."""

    limit: float = 0.0

    def value(self, z, y):
        return np.where(np.abs(z).max(initial=0.0) > self.limit, np.inf, super().value(z, y))


@pytest.mark.parametrize("method", [Grid(points=4), TrustRegionNewton(), LBfgsB(), Rprop()], ids=str)
def test_an_error_that_is_not_finite_is_never_selected(method):
    plain, theta = small_bilevel(Squared(), Squared(), {"C": Log(1e-9, 1e6)})
    reach = max(np.abs(point.decisions).max() for point in plain.evaluate(plain.space.lower).solutions)
    bilevel, theta = small_bilevel(Squared(), Overflowing(limit=1.01 * reach), {"C": Log(1e-9, 1e6)})
    if isinstance(method, Grid):
        result = method.minimize(bilevel, theta)
        assert math.isfinite(result.objective)
        assert any(not math.isfinite(record.objective) for record in result.history)
    else:
        with pytest.raises(ValueError, match="not finite at the first point; scale the features"):
            method.minimize(bilevel, theta)
    low = bilevel.space.lower
    assert math.isfinite(method.minimize(bilevel, low).objective)
    everywhere, theta = small_bilevel(Squared(), Overflowing(limit=-1.0))
    with pytest.raises(ValueError, match="not finite"):
        method.minimize(everywhere, theta)


def test_the_error_is_told_apart_from_the_penalty(rng):
    """With one width per feature a penalty is added; no place may call the sum the cross-validation error."""
    X = rng.normal(size=(60, 3))
    y = np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=60)
    search = BilevelSearchCV(KernelSVR(RBF(ard=True)), cv=3, max_iter=5).fit(X, y)
    result = search.result_
    plain = KernelSVR(RBF(ard=True)).set_params(**search.best_params_)
    true = -cross_val_score(plain, X, y, cv=3, scoring="neg_mean_squared_error").mean()
    assert result.penalty > 1e-3 * true
    assert result.error == pytest.approx(true, rel=1e-6)
    assert result.error + result.penalty == result.objective
    assert f"cross-validation error {true:.5g}"[:-1] in result.summary()
    assert f"penalty of {result.penalty:.6g}" in result.summary()
    data = history_data(search)
    assert data.best[-1] == result.error
    np.testing.assert_allclose(data.objective, -search.cv_results_["mean_test_score"])
    facts = gather(search)
    assert f"to {true:.4g}"[:-1] in " ".join(certificate(result))
    tile = re.search(r"<b>([^<]*)</b><span>cross-validated squared error", render(facts))
    assert float(tile[1]) == pytest.approx(true, rel=1e-3)
    ours = BilevelSearchCV(LinearSVR(), cv=3).fit(X, y).result_
    assert (ours.penalty, ours.error) == (0.0, ours.objective)
    assert "penalty" not in ours.summary()
