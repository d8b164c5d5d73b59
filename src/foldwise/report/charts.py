"""Charts as SVG text: no library, no network. Colours come from the page's style sheet, so both themes fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from foldwise.plotting.data import Contour
from foldwise.wording import format_number as number

__all__ = ["Series", "bar_chart", "heat_map", "line_chart"]

WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 44


@dataclass(frozen=True, eq=False)
class Series:
    """One line or set of dots; ``tips`` are shown where the pointer rests."""

    name: str
    x: np.ndarray
    y: np.ndarray
    style: str = "line"
    tips: Sequence[str] = ()


class _Axis:
    """Maps data to a range of pixels."""

    def __init__(self, low: float, high: float, first: float, last: float, log: bool = False) -> None:
        self.log = log and low > 0
        a, b = (np.log10(low), np.log10(high)) if self.log else (low, high)
        if not b > a:
            pad = 0.5 if self.log else max(abs(a) * 0.05, 0.5)
            a, b = a - pad, b + pad
        self.a, self.b, self.first, self.last = float(a), float(b), first, last

    def __call__(self, values: Any) -> np.ndarray:
        shown = np.log10(np.maximum(values, 1e-300)) if self.log else np.asarray(values, float)
        return self.first + (shown - self.a) / (self.b - self.a) * (self.last - self.first)

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers within the range."""
        if self.log and self.b - self.a >= 1:
            whole = np.arange(np.ceil(self.a - 1e-9), np.floor(self.b + 1e-9) + 1)
            every = max(1, int(np.ceil(len(whole) / most)))
            return [float(10.0**k) for k in whole[::every]]
        low, high = (10.0**self.a, 10.0**self.b) if self.log else (self.a, self.b)
        raw = (high - low) / most
        unit = 10.0 ** np.floor(np.log10(raw))
        step = float(next(unit * k for k in (1, 2, 5, 10) if unit * k >= raw * 0.999))
        count = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1)
        return [float(k * step) + 0.0 for k in count]  # + 0.0: minus zero reads badly


def line_chart(series: Sequence[Series], title: str, xlabel: str, ylabel: str, *, log_y: bool = False) -> str:
    """Lines and dots over a common axis; points that are not finite are left out."""
    points = [np.column_stack([s.x, s.y]).astype(float) for s in series]
    every = np.vstack(points) if points else np.zeros((0, 2))
    every = every[np.isfinite(every).all(axis=1)]
    if not len(every):
        return ""
    log_y = log_y and bool(every[:, 1].min() > 0)
    low, high = every[:, 1].min(), every[:, 1].max()
    pad = 0.0 if log_y else 0.04 * (high - low)
    x = _Axis(every[:, 0].min(), every[:, 0].max(), LEFT, WIDTH - RIGHT)
    y = _Axis(low - pad, high + pad, HEIGHT - BOTTOM, TOP, log_y)
    body = _frame(x, y, xlabel, ylabel)
    for k, (one, rows) in enumerate(zip(series, points, strict=True)):
        fine = np.isfinite(rows).all(axis=1)
        px, py = x(rows[fine, 0]), y(rows[fine, 1])
        colour = f"s{k % 8}"
        if one.style in ("line", "step") and len(px) > 1:
            corners = [(px[0], py[0])]
            for before, c, d in zip(py, px[1:], py[1:]):
                corners += [(c, before), (c, d)] if one.style == "step" else [(c, d)]
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
            body.append(f'<polyline class="line {colour}" points="{path}"/>')
        tips = np.asarray(one.tips, dtype=object)[fine] if len(one.tips) else [""] * len(px)
        dots = one.style == "dots" or len(one.tips)
        for a, b, tip in zip(px, py, tips) if dots else ():
            body.append(
                f'<circle class="dot {colour}" cx="{a:.1f}" cy="{b:.1f}" r="3.2" data-tip="{escape(str(tip))}"/>'
            )
    legend = "".join(
        f'<li><span class="key s{k % 8}"></span>{escape(one.name)}</li>'
        for k, one in enumerate(series)
        if one.name
    )
    return _figure(title, body, f'<ul class="legend">{legend}</ul>' if len(series) > 1 else "")


def bar_chart(
    names: Sequence[str], values: Sequence[float], title: str, xlabel: str, muted: Sequence[bool] = ()
) -> str:
    """Horizontal bars, in the order given."""
    if not len(names):
        return ""
    row, left = 20, 120
    height = TOP + row * len(names) + BOTTOM
    top = max(float(np.nanmax(values)), 0.0)
    x = _Axis(min(0.0, float(np.nanmin(values))), top if top > 0 else 1.0, left, WIDTH - RIGHT)
    body = [_tick_x(x, t, TOP, height - BOTTOM) for t in x.ticks(4)]
    body.append(f'<text class="label" x="{(left + WIDTH) / 2:.0f}" y="{height - 8}">{escape(xlabel)}</text>')
    for k, (name, value) in enumerate(zip(names, values, strict=True)):
        y = TOP + row * k
        width = max(float(x(value) - x(0.0)), 0.0)
        colour = "muted" if len(muted) and muted[k] else "s0"
        tip = escape(f"{name}: {number(value)}")
        short = name if len(name) <= 18 else name[:17] + "…"
        body.append(
            f'<rect class="bar {colour}" x="{x(0.0):.1f}" y="{y + 3}" width="{width:.1f}" height="{row - 6}" '
            f'data-tip="{tip}"/><text class="name" x="{left - 6}" y="{y + 14}">{escape(short)}</text>'
        )
    return _figure(title, body, "", height)


def heat_map(data: Contour, title: str) -> str:
    """The objective by rank, dark is low, with the path of the search and the selected point on it."""
    x, y, Z, log, names = data.x, data.y, data.objective, data.log, data.names
    path, best = data.path, data.best
    edges = [_edges(values, is_log) for values, is_log in zip((x, y), log)]
    ax = _Axis(edges[0][0], edges[0][-1], LEFT, WIDTH - RIGHT, log[0])
    ay = _Axis(edges[1][0], edges[1][-1], HEIGHT - BOTTOM, TOP, log[1])
    px, py = ax(edges[0]), ay(edges[1])
    ranks = np.argsort(np.argsort(Z, axis=None, kind="stable")).reshape(Z.shape) / max(Z.size - 1, 1)
    body = _frame(ax, ay, *names)
    for j in range(len(y)):
        for i in range(len(x)):
            tip = escape(f"{names[0]} {number(x[i])}, {names[1]} {number(y[j])}: {number(Z[j, i])}")
            body.append(
                f'<rect class="cell" x="{px[i]:.1f}" y="{py[j + 1]:.1f}" width="{px[i + 1] - px[i] + 0.3:.1f}" '
                f'height="{py[j] - py[j + 1] + 0.3:.1f}" fill="{_shade(ranks[j, i])}" data-tip="{tip}"/>'
            )
    way = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(ax(path[:, 0]), ay(path[:, 1])))
    body.append(f'<polyline class="way" points="{way}"/>')
    for (u, v), a, b in zip(path, ax(path[:, 0]), ay(path[:, 1])):
        tip = escape(f"evaluated: {names[0]} {number(u)}, {names[1]} {number(v)}")
        body.append(f'<circle class="step" cx="{a:.1f}" cy="{b:.1f}" r="2.6" data-tip="{tip}"/>')
    a, b = float(ax(best[0])), float(ay(best[1]))
    tip = escape(f"selected: {names[0]} {number(best[0])}, {names[1]} {number(best[1])}")
    body.append(f'<circle class="selected" cx="{a:.1f}" cy="{b:.1f}" r="6" data-tip="{tip}"/>')
    return _figure(title, body, "")


def _frame(x: _Axis, y: _Axis, xlabel: str, ylabel: str) -> list[str]:
    """Grid lines with their numbers, and the names of the axes."""
    body = [_tick_x(x, t, TOP, HEIGHT - BOTTOM) for t in x.ticks()]
    for t in y.ticks():
        place = float(y(t))
        body.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>'
            f'<text class="name" x="{LEFT - 5}" y="{place + 4:.1f}">{number(t)}</text>'
        )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    body.append(
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}">{escape(xlabel)}</text>'
        f'<text class="label" transform="translate(13 {middle:.0f}) rotate(-90)">{escape(ylabel)}</text>'
    )
    return body


def _tick_x(x: _Axis, t: float, top: float, bottom: float) -> str:
    place = float(x(t))
    return (
        f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{top}" y2="{bottom}"/>'
        f'<text class="tick" x="{place:.1f}" y="{bottom + 15}">{number(t)}</text>'
    )


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
    """From dark blue (0) through green to light yellow (1)."""
    stops = np.array([[48, 18, 94], [38, 104, 141], [53, 170, 122], [253, 231, 120]], float)
    place = float(np.clip(t, 0, 1)) * (len(stops) - 1)
    k = min(int(place), len(stops) - 2)
    red, green, blue = np.rint(stops[k] + (place - k) * (stops[k + 1] - stops[k])).astype(int)
    return f"rgb({red},{green},{blue})"
