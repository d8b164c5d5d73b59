"""Drawings show the numbers they are given."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from foldwise.plotting import (
    Contour,
    History,
    PartialEffect,
    Path,
    Relevance,
    ValidationTest,
    plot_contour,
    plot_growth,
    plot_history,
    plot_partial_effect,
    plot_path,
    plot_relevance,
    plot_validation_test,
)

figure = pytest.importorskip("matplotlib.figure", reason="drawings need matplotlib (extra plot)")
STEPS = np.arange(4)


@pytest.fixture
def ax():
    return figure.Figure().add_subplot()


def test_history(ax):
    objective = np.array([3.0, 2.0, 2.5, 1.0])
    data = History(STEPS, 0 * STEPS, objective, np.minimum.accumulate(objective), objective, 0.1 * STEPS)
    assert plot_history(data, ax) is ax
    assert ax.lines[0].get_ydata().tolist() == objective.tolist()
    assert ax.lines[1].get_ydata().tolist() == [3.0, 2.0, 2.0, 1.0]
    assert ax.get_yscale() == "linear"


def test_history_of_a_wide_range_is_logarithmic(ax):
    objective = np.array([100.0, 1.0])
    plot_history(History(STEPS[:2], STEPS[:2], objective, objective, objective, objective), ax)
    assert ax.get_yscale() == "log"


def test_path_is_normalised_by_the_bounds(ax):
    values = np.array([[1.0, 0.0], [10.0, 0.5]])
    bounds = np.array([1.0, 0.0]), np.array([100.0, 1.0])
    plot_path(Path(STEPS[:2], STEPS[:2], ["C", "epsilon"], values, *bounds, np.array([True, False])), ax)
    assert ax.lines[0].get_ydata() == pytest.approx([0.0, 0.5])
    assert ax.lines[1].get_ydata() == pytest.approx([0.0, 0.5])


def test_contour_marks_the_selected_point(ax):
    x, y = np.array([1.0, 10.0, 100.0]), np.array([0.0, 1.0])
    data = Contour(
        ("C", "epsilon"),
        x,
        y,
        np.arange(6.0).reshape(2, 3),
        (True, False),
        np.ones((2, 2)),
        np.array([1.0, 0.5]),
    )
    plot_contour(data, ax)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    assert ax.lines[1].get_xydata().tolist() == [[1.0, 0.5]]
    with pytest.raises(TypeError, match="contour_data"):
        plot_contour("search", ax)


def test_relevance_shows_the_largest_features_and_boxes(ax):
    data = Relevance(
        ["a", "b", "c"],
        np.array([0.2, 1.0, 0.0]),
        np.array([True, True, False]),
        "relevance",
        np.array([1.0, 2.0, 0.0]),
    )
    plot_relevance(data, ax, most=2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert [bar.get_width() for bar in ax.patches] == [0.2, 1.0]
    assert ax.lines[0].get_xdata().tolist() == [0.5, 1.0]


def test_validation_against_test(ax):
    plot_validation_test(ValidationTest(STEPS, STEPS[::-1] + 1.0, STEPS + 0.5, "error rate"), ax)
    assert ax.lines[0].get_xydata().tolist() == [[1.0, 3.5]]


def test_partial_effect(ax):
    plot_partial_effect(PartialEffect("age", STEPS, STEPS**2, np.zeros(2), STEPS), ax)
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0, 1, 4, 9], [0, 1, 2, 3]]


def test_growth_says_the_exponent(ax):
    plot_growth({"ours": ([10, 100], [1.0, 10.0])}, ax)
    assert "exponent 1.00" in ax.get_legend().get_texts()[0].get_text()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"foldwise\[plot\]"):
        plot_growth({"a": ([1, 2], [1.0, 2.0])})
