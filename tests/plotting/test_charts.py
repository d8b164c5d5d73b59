"""What pictures show: levels in the valley, names that can be told apart, one palette for drawings and report."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldwise.plotting import Contour, Path, Relevance
from foldwise.plotting.charts import (
    DARK,
    LIGHT,
    Axis,
    path_chart,
    relevance_chart,
    short_names,
    tick_labels,
    ticks,
)


def contour(objective: np.ndarray) -> Contour:
    n, m = objective.shape
    return Contour(
        ("C", "gamma"),
        np.arange(1.0, m + 1),
        np.arange(1.0, n + 1),
        objective,
        (False, False),
        np.zeros((0, 2)),
        np.ones(2),
    )


def test_half_of_the_levels_lie_in_the_valley():
    """A valley of a twentieth of the area beside a plateau a thousand times as high."""
    x = np.linspace(-1, 1, 41)
    Z = 1.0 + np.minimum((x[:, None] ** 2 + x**2) / 0.05, 1.0) + 1000.0 * (x[:, None] ** 2 + x**2 > 0.5)
    levels = contour(Z).levels(12)
    assert np.all(np.diff(levels) > 0)
    assert (levels[0], levels[-1]) == (Z.min(), Z.max())
    assert np.sum(levels < 2.0) >= 4
    shades = contour(Z).shades(levels)
    assert (shades.min(), shades.max()) == (0.0, 1.0)
    assert len(np.unique(shades[Z < 2.0])) >= 4


@pytest.mark.parametrize("Z", [np.ones((3, 3)), np.zeros((2, 2)), np.array([[0.0, 1.0], [1.0, np.nan]])])
def test_levels_of_flat_errors_and_of_counts(Z):
    levels = contour(Z).levels(12)
    assert len(levels) >= 2
    assert np.all(np.diff(levels) > 0)
    assert np.array_equal(np.isnan(contour(Z).shades(levels)), np.isnan(Z))


@given(st.floats(-1e6, 1e6), st.floats(1e-7, 1e6), st.booleans())
def test_numbers_of_an_axis_lie_on_it_and_differ(low, width, log):
    low = abs(low) + 1e-6 if log else low
    high = low + width + 1e-6 * abs(low)
    values = ticks(low, high, Axis("x", log))
    assert len(values) >= 2
    assert min(values) >= low - 1e-6 * (high - low) - 1e-9 * abs(low)
    assert max(values) <= high + 1e-6 * (high - low) + 1e-9 * abs(high)
    labels = tick_labels(values)
    assert len(set(labels)) == len(labels)
    np.testing.assert_allclose([float(text) for text in labels], values, rtol=0.03, atol=0.03 * (high - low))


@given(st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=8, unique=True))
def test_short_names_stay_apart(names):
    short = short_names(names)
    assert len(set(short)) == len(names)
    assert max(map(len, short)) <= 28 + len(" #8")


def test_charts_say_how_much_more_there_is():
    k = np.arange(99)
    data = Relevance([f"x{i}" for i in k], k / 98.0, k > 3, "relevance")
    chart = relevance_chart(data)
    assert chart.names[0] == "x98"
    assert "69 more" in chart.title
    values = np.stack([np.zeros(99), k / 99.0])
    way = Path(np.arange(2), np.zeros(2), data.names, values, np.zeros(99), np.ones(99), k < 0)
    chart = path_chart(way)
    assert [one.name for one in chart.series] == [f"x{i}" for i in range(91, 99)]
    assert "91 more" in chart.title


def test_the_report_has_the_colours_of_the_drawings():
    style = files("foldwise.report").joinpath("style.css").read_text("utf-8")
    palettes = re.findall(r"--c0: (#\w+); " + " ".join(rf"--c{k}: (#\w+);" for k in range(1, 8)), style)
    assert palettes == [LIGHT, DARK, DARK]


def lightness(colour: str) -> float:
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    parts = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in (r, g, b)]
    return float(np.dot([0.2126, 0.7152, 0.0722], parts))


def test_colours_stand_out_from_their_ground():
    """Contrast of the first colours with the card that they are drawn on, at least 2 to 1; of the first two, 3 to 1."""
    for palette, ground in ((LIGHT, "#ffffff"), (DARK, "#1b2126")):
        for k, colour in enumerate(palette):
            high, low = sorted((lightness(colour), lightness(ground)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= (3.0 if k < 2 else 2.0)
