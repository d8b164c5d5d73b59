"""The report says what the search found, and nothing from the data can act on the page."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldwise import RBF, BilevelSearchCV, KernelSVR, LinearSVR
from foldwise.plotting import contour_data
from foldwise.plotting.charts import Axis, Bars, Lines, Series
from foldwise.report import gather, render, write_report
from foldwise.report.charts import bar_chart, line_chart
from foldwise.report.facts import certificate
from foldwise.result import Result, Status

HOSTILE = '<script>alert("x")</script>&\'"><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def data():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X.rename(columns={"bmi": HOSTILE}), y


@pytest.fixture(scope="module")
def search(data):
    return BilevelSearchCV(make_pipeline(StandardScaler(), LinearSVR()), cv=4, random_state=0).fit(*data)


@pytest.fixture(scope="module")
def page(search, data):
    return render(
        gather(
            search,
            title=HOSTILE,
            errors={f"test {HOSTILE}": 1.0},
            comparison=[{"method": HOSTILE, "seconds": 1.5}, {"method": "grid", "seconds": 12.25}],
            contour=contour_data(search, *data, points=3),
            code=HOSTILE,
            warnings=[HOSTILE],
        )
    )


class Tags(HTMLParser):
    """Collects the elements of a page and checks that they nest."""

    VOID = ("meta", "link", "br", "img", "circle", "rect", "line", "polyline")

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def tags(page):
    parser = Tags()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_nothing_from_the_data_becomes_an_element(tags):
    assert sum(tag == "script" for tag, _ in tags.seen) == 1
    assert not any(tag == "img" for tag, _ in tags.seen)
    assert not any(name.startswith("on") for _, attrs in tags.seen for name in attrs)
    assert HOSTILE in "".join(tags.text)


def test_nothing_is_loaded_from_elsewhere(page, tags):
    links = [value for _, attrs in tags.seen for name, value in attrs.items() if name in ("src", "href")]
    assert all(link.startswith(("#", "data:")) for link in links)
    policy = next(a["content"] for t, a in tags.seen if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"style=", page)


def test_values_and_certificate_are_in_the_page(search, tags):
    text = " ".join(tags.text)
    assert f"{search.result_.params['C']:.4g}" in text
    assert "weight of the training errors" in text
    assert "cross-validation error went from" in text
    assert f"{search.result_.n_evaluations}" in text
    assert "scikit-learn" in text


def test_facts_survive_json(search):
    facts = gather(search)
    again = json.loads(json.dumps(facts, allow_nan=False))
    assert again == facts
    assert render(again) == render(facts)
    assert facts["selected"][0]["value"] == pytest.approx(search.result_.params["C"])
    assert facts["relevance"]["names"][2] == HOSTILE


def test_facts_of_the_method_are_shown(search):
    facts = gather(search)
    assert "Facts of the method" not in render(facts)
    facts["result"]["details"] = {
        "claimed_objective": 1.25,
        "true_objective": None,
        "solver": HOSTILE,
        "ok": True,
    }
    text = render(facts)
    assert "Facts of the method newton." in text
    assert "claimed objective" in text
    assert "1.25" in text
    assert HOSTILE not in text


def test_other_facts_are_refused():
    with pytest.raises(ValueError, match="foldwise-report-1"):
        render({"schema": "other"})
    with pytest.raises(ValueError, match="got 'list'"):
        render([])


def test_many_features_are_cut_with_a_word_about_it(rng):
    X = pd.DataFrame(rng.normal(size=(40, 250)), columns=[f"name {k}" for k in range(250)])
    search = BilevelSearchCV(LinearSVR(), ["C"], cv=3).fit(X, X["name 3"] + rng.normal(size=40))
    text = render(gather(search))
    assert "The first 200." in text
    assert len(text) < 400_000


def test_a_kernel_machine_shows_relevance_of_each_feature(data):
    X = StandardScaler().fit_transform(data[0])[:120, :3]
    search = BilevelSearchCV(KernelSVR(RBF(ard=True)), cv=3, max_iter=2).fit(X, data[1][:120])
    facts = gather(search, feature_names=["a", "b", "c"])
    assert facts["relevance"]["names"] == ["a", "b", "c"]
    assert facts["relevance"]["values"] == pytest.approx(search.best_estimator_.relevance_.tolist())
    assert "What features count" in render(facts)


def test_a_search_without_a_final_model_has_a_report(data):
    search = BilevelSearchCV(LinearSVR(), ["C"], cv=3, refit=False).fit(*data)
    facts = gather(search)
    assert facts["relevance"] is None
    assert "Features" not in render(facts)


def test_a_file_is_written_whole_or_not_at_all(search, tmp_path, monkeypatch):
    path = write_report(tmp_path / "report.html", search)
    assert path.read_text(encoding="utf-8").endswith("</html>\n")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    before = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_report(path, search, title="other")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_certificate_in_plain_words():
    result = Result(
        theta=[0.0],
        params={"C": 1.0},
        objective=1.0,
        objective_start=2.0,
        fold_objectives=[],
        status=Status.STALLED,
        message="No further decrease.",
        method="newton",
        kkt=[1e-3],
        at_bound={"C": "upper"},
        n_kinks=3,
        approximation={"landmarks": 20, "bound": 1e-4},
    )
    text = " ".join(certificate(result))
    for words in (
        "(-50.0%)",
        "not solved accurately",
        "no derivative",
        "C (upper)",
        "3 training rows",
        "20 landmarks",
    ):
        assert words in text


def test_charts_leave_out_what_is_not_finite():
    x = Axis("x")
    assert line_chart(Lines("t", x, x, [Series("", np.arange(2), np.full(2, np.nan))])) == ""
    part = line_chart(Lines("t", x, x, [Series("", np.arange(3), np.array([1.0, np.nan, 2.0]), "dots")]))
    assert part.count("<circle") == 2
    flat = line_chart(Lines("t", x, Axis("y", log=True), [Series("", np.arange(3), np.ones(3))]))
    assert "nan" not in flat
    assert bar_chart(Bars("t", x, [], np.zeros(0), np.zeros(0, bool))) == ""


def test_a_search_of_one_evaluation_leaves_no_chart_blank(data):
    search = BilevelSearchCV(LinearSVR(), ["C"], method="random", method_options={"n_iter": 1}, cv=3)
    page = render(gather(search.fit(*data)))
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert len(figures) == 4
    assert all("<circle" in figure or "<rect" in figure for figure in figures)


def test_the_code_of_a_report_holds_settings_and_not_what_watched_the_search(data):
    X, y = data
    searched = BilevelSearchCV(LinearSVR(), ["C"], cv=3, callbacks=[lambda record: False]).fit(X, y)
    code = gather(searched)["code"]
    assert "callbacks" not in code
    assert "object at 0x" not in code
    names = {"BilevelSearchCV": BilevelSearchCV, "LinearSVR": LinearSVR, "X": X, "y": y}
    exec(code, names)
    assert names["search"].result_.objective == searched.result_.objective


def test_every_number_of_a_table_can_be_sorted(data):
    page = render(gather(BilevelSearchCV(LinearSVR(), ["C"], cv=3).fit(*data)))
    values = [value for value in re.findall(r'data-value="([^"]*)"', page) if value]
    assert "What features count" in page
    assert len([float(value) for value in values]) > 20


def test_one_width_for_all_says_nothing_about_features(data):
    model = make_pipeline(StandardScaler(), KernelSVR())
    facts = gather(BilevelSearchCV(model, ["kernelsvr__C"], cv=3).fit(data[0][:60], data[1][:60]))
    assert facts["relevance"] is None
