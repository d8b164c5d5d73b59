"""Drawings show the numbers they are given."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from foldwise.plotting import (
    Contour,
    Folds,
    History,
    PartialEffect,
    Path,
    Relevance,
    ValidationTest,
    plot_contour,
    plot_folds,
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


def test_folds_are_bars_from_the_first_on_top(ax):
    plot_folds(Folds(np.array([1.0, 3.0, 2.0]), "squared"), ax, most=2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["fold 2", "fold 1"]
    assert [bar.get_width() for bar in ax.patches] == [3.0, 1.0]
    assert "1 more" in ax.get_title()


def test_every_picture_has_a_title_names_of_its_axes_and_numbers_that_differ():
    """Also of a single evaluation, of one that failed, and of errors that differ in their last digits."""
    one, near = np.ones(1), 1234.5 + 1e-5 * STEPS
    bounds = np.zeros(1), np.ones(1), np.zeros(1, bool)
    many = Relevance([f"a long name with its number {k} inside" for k in range(99)], *[np.ones(99)] * 2, "r")
    pictures = [
        plot_history(History(0 * one, 0 * one, one, one, np.nan * one, one, "squared")),
        plot_history(History(STEPS, STEPS, near, near, near, near)),
        plot_history(History(STEPS[:1], STEPS[:1], np.inf * one, np.nan * one, one, one)),
        plot_path(Path(STEPS[:1], STEPS[:1], ["C"], 0.5 * np.ones((1, 1)), *bounds)),
        plot_relevance(Relevance(many.names, many.values, many.selected > 0, "relevance")),
        plot_folds(Folds(near)),
    ]
    for picture in pictures:
        picture.figure.canvas.draw()
        assert picture.get_title()
        for axis in (picture.xaxis, picture.yaxis):
            shown = [text.get_text() for text in axis.get_ticklabels() if text.get_text()]
            assert len(shown) == len(set(shown)) > 0
        assert picture.get_xlabel()
    assert picture.get_ylabel() == ""  # the names of bars say what they are
    assert all(picture.get_ylabel() for picture in pictures[:4])
    assert [line.get_marker() for line in pictures[3].lines] == ["o"]  # a single point is seen
    assert "no finite values" in [text.get_text() for text in pictures[2].texts]
    assert "69 more" in pictures[4].get_title()


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"foldwise\[plot\]"):
        plot_growth({"a": ([1, 2], [1.0, 2.0])})
