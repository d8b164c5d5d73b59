"""Charts as SVG text: no library, no network. Colours come from the page's style sheet, so both themes fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np

from foldwise.plotting.charts import LIGHT, Axis, Bars, Field, Lines, Series, tick_labels, ticks
from foldwise.wording import format_number as number

__all__ = ["bar_chart", "heat_map", "line_chart"]

WIDTH, HEIGHT = 420, 270
RIGHT, TOP, BOTTOM = 12, 12, 44
ROW, LETTER = 20, 6.6
"""Height of a bar, and width of a letter."""


class _Scale:
    """Maps data to a range of pixels."""

    def __init__(self, axis: Axis, low: float, high: float, first: float, last: float) -> None:
        self.axis, self.log = axis, axis.log and low > 0
        low, high = axis.ends or (low, high)
        a, b = (np.log10(low), np.log10(high)) if self.log else (low, high)
        if not b > a:
            pad = 0.5 if self.log else max(abs(a) * 0.05, 0.5)
            a, b = a - pad, b + pad
        self.a, self.b, self.first, self.last = float(a), float(b), first, last

    def __call__(self, values: Any) -> np.ndarray:
        shown = np.log10(np.maximum(values, 1e-300)) if self.log else np.asarray(values, float)
        return self.first + (shown - self.a) / (self.b - self.a) * (self.last - self.first)

    def ticks(self) -> list[tuple[float, str]]:
        """Places of round numbers in pixels, and their text."""
        low, high = (10.0**self.a, 10.0**self.b) if self.log else (self.a, self.b)
        values = ticks(low, high, replace(self.axis, log=self.log))
        return [(float(self(value)), text) for value, text in zip(values, tick_labels(values))]

    def room(self) -> float:
        """Pixels that its numbers and its name need beside it."""
        return 30 + LETTER * max((len(text) for _, text in self.ticks()), default=0)


def line_chart(chart: Lines) -> str:
    """Lines and dots over common axes; points that are not finite are left out, and so is a chart of none."""
    points = [np.column_stack([s.x, s.y]).astype(float)[s.finite()] for s in chart.series]
    every = np.vstack([*points, np.zeros((0, 2))])
    if not len(every):
        return ""
    low, high = every[:, 1].min(), every[:, 1].max()
    pad = 0.0 if chart.y.log and low > 0 else 0.04 * (high - low)
    y = _Scale(chart.y, low - pad, high + pad, HEIGHT - BOTTOM, TOP)
    x = _Scale(chart.x, every[:, 0].min(), every[:, 0].max(), y.room(), WIDTH - RIGHT)
    body = _frame(x, y, chart.x.label, chart.y.label)
    for k, (one, rows) in enumerate(zip(chart.series, points, strict=True)):
        body += _series(one, x(rows[:, 0]), y(rows[:, 1]), f"s{k % len(LIGHT)}")
    legend = "".join(
        f'<li><span class="key s{k % len(LIGHT)}"></span>{escape(one.name)}</li>'
        for k, one in enumerate(chart.series)
        if one.name
    )
    return _figure(chart.title, body, f'<ul class="legend">{legend}</ul>' if legend else "")


def _series(one: Series, px: np.ndarray, py: np.ndarray, colour: str) -> list[str]:
    """A line, and dots where they carry tips or are all there is."""
    body = []
    if one.style in ("line", "step") and len(px) > 1:
        corners = [(px[0], py[0])]
        for before, c, d in zip(py, px[1:], py[1:]):
            corners += [(c, before), (c, d)] if one.style == "step" else [(c, d)]
        body.append(f'<polyline class="line {colour}" points="{_way(corners)}"/>')
    tips = np.asarray(one.tips, dtype=object)[one.finite()] if len(one.tips) else [""] * len(px)
    dots = one.style == "dots" or len(one.tips) or len(px) == 1
    return body + [
        f'<circle class="dot {colour}" cx="{a:.1f}" cy="{b:.1f}" r="3.2" data-tip="{escape(str(tip))}"/>'
        for a, b, tip in (zip(px, py, tips) if dots else ())
    ]


def bar_chart(chart: Bars) -> str:
    """Horizontal bars, in the order given, with markers beside them."""
    if not len(chart.names):
        return ""
    left = 20 + LETTER * max(len(name) for name in chart.names)
    height = TOP + ROW * len(chart.names) + BOTTOM
    shown = np.append(np.asarray(chart.values, float), [] if chart.markers is None else chart.markers[1])
    top = float(np.max(shown[np.isfinite(shown)], initial=0.0))
    x = _Scale(chart.x, min(0.0, float(np.nanmin(chart.values))), top or 1.0, left, WIDTH - RIGHT)
    body = _ticks_x(x, TOP, height - BOTTOM)
    body.append(
        f'<text class="label" x="{(left + WIDTH) / 2:.0f}" y="{height - 8}">{escape(chart.x.label)}</text>'
    )
    for k, (name, value) in enumerate(zip(chart.names, chart.values, strict=True)):
        y, start, end = TOP + ROW * k, float(x(0.0)), float(x(value))
        colour, tip = "muted" if chart.faint[k] else "s0", escape(f"{name}: {number(value)}")
        body.append(
            f'<rect class="bar {colour}" x="{min(start, end):.1f}" y="{y + 3}" width="{abs(end - start):.1f}" '
            f'height="{ROW - 6}" data-tip="{tip}"/>'
            f'<text class="name" x="{left - 6:.0f}" y="{y + 14}">{escape(name)}</text>'
        )
        if chart.markers is not None and np.isfinite(mark := float(chart.markers[1][k])):
            tip = escape(f"{name}: {chart.markers[0]} {number(mark)}")
            body.append(
                f'<circle class="dot s1" cx="{x(mark):.1f}" cy="{y + ROW / 2}" r="4" data-tip="{tip}"/>'
            )
    below = (
        "" if chart.markers is None else f'<li><span class="key s1"></span>{escape(chart.markers[0])}</li>'
    )
    return _figure(chart.title, body, f'<ul class="legend">{below}</ul>' if below else "", height)


def heat_map(chart: Field) -> str:
    """The error in bands between levels, dark is low, with the path of the search and the selected point on it."""
    data, names = chart.data, (chart.data.names[0], chart.data.names[1])
    edges = [_edges(values, log) for values, log in zip((data.x, data.y), data.log)]
    y = _Scale(chart.y, edges[1][0], edges[1][-1], HEIGHT - BOTTOM, TOP)
    x = _Scale(chart.x, edges[0][0], edges[0][-1], y.room(), WIDTH - RIGHT)
    px, py, shades = x(edges[0]), y(edges[1]), data.shades(chart.levels)
    body = _frame(x, y, chart.x.label, chart.y.label)
    for j, i in itertools.product(range(len(data.y)), range(len(data.x))):
        at, value = f"{names[0]} {number(data.x[i])}, {names[1]} {number(data.y[j])}", data.objective[j, i]
        body.append(
            f'<rect class="cell" x="{px[i]:.1f}" y="{py[j + 1]:.1f}" width="{px[i + 1] - px[i] + 0.3:.1f}" '
            f'height="{py[j] - py[j + 1] + 0.3:.1f}" fill="{_shade(shades[j, i])}" '
            f'data-tip="{escape(f"{at}: {number(value)}")}"/>'
        )
    places = list(zip(x(data.path[:, 0]), y(data.path[:, 1])))
    body.append(f'<polyline class="way" points="{_way(places)}"/>')
    every = [("evaluated", "step", 2.6, at, place) for at, place in zip(data.path, places)]
    selected = float(x(data.best[0])), float(y(data.best[1]))
    for word, kind, radius, (u, v), (a, b) in [*every, ("selected", "selected", 6, data.best, selected)]:
        tip = escape(f"{word}: {names[0]} {number(u)}, {names[1]} {number(v)}")
        body.append(f'<circle class="{kind}" cx="{a:.1f}" cy="{b:.1f}" r="{radius}" data-tip="{tip}"/>')
    bands = np.linspace(0.0, 1.0, len(chart.levels) - 1)
    box = '<svg class="swatch" viewBox="0 0 10 10"><rect width="10" height="10" fill="'
    keys = "".join(
        f'<li>{box}{_shade(t)}"/></svg>{text}</li>' for t, text in zip(bands, tick_labels(chart.levels))
    )
    return _figure(f"{chart.title} (dark is low)", body, f'<ul class="legend"><li>error from</li>{keys}</ul>')


def _frame(x: _Scale, y: _Scale, xlabel: str, ylabel: str) -> list[str]:
    """Grid lines with their numbers, and the names of the axes."""
    body = _ticks_x(x, TOP, HEIGHT - BOTTOM)
    for place, text in y.ticks():
        body.append(
            f'<line class="grid" x1="{x.first:.0f}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'
            f'<text class="name" x="{x.first - 5:.0f}" y="{place + 4:.1f}">{text}</text>'
        )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    body.append(
        f'<text class="label" x="{(x.first + x.last) / 2:.0f}" y="{HEIGHT - 8}">{escape(xlabel)}</text>'
        f'<text class="label" transform="translate(13 {middle:.0f}) rotate(-90)">{escape(ylabel)}</text>'
    )
    return body


def _ticks_x(x: _Scale, top: float, bottom: float) -> list[str]:
    return [
        f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{top}" y2="{bottom}"/>'
        f'<text class="tick" x="{place:.1f}" y="{bottom + 15}">{text}</text>'
        for place, text in x.ticks()
    ]


def _way(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in places)


def _figure(title: str, body: Sequence[str], below: str, height: int = HEIGHT) -> str:
    heading = escape(title)
    return (
        f'<figure><figcaption>{heading}</figcaption><svg role="img" aria-label="{heading}" '
        f'viewBox="0 0 {WIDTH} {height}" xmlns="http://www.w3.org/2000/svg">{"".join(body)}</svg>{below}</figure>'
    )


def _edges(values: np.ndarray, log: bool) -> np.ndarray:
    """Borders halfway between neighbours, on the axis's scale."""
    v = np.log(values) if log else np.asarray(values, float)
    gap = np.diff(v) if len(v) > 1 else np.array([1.0])
    ends = np.concatenate([[v[0] - gap[0] / 2], (v[1:] + v[:-1]) / 2, [v[-1] + gap[-1] / 2]])
    return np.exp(ends) if log else ends


def _shade(t: float) -> str:
    """From dark blue (0) through green to light yellow (1); grey where there is no value."""
    if not np.isfinite(t):
        return "rgb(128,128,128)"
    stops = np.array([[48, 18, 94], [38, 104, 141], [53, 170, 122], [253, 231, 120]], float)
    place = float(np.clip(t, 0, 1)) * (len(stops) - 1)
    k = min(int(place), len(stops) - 2)
    red, green, blue = np.rint(stops[k] + (place - k) * (stops[k + 1] - stops[k])).astype(int)
    return f"rgb({red},{green},{blue})"
