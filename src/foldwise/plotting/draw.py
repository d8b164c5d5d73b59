"""Drawings on matplotlib axes: axes in, axes out. Every ``source`` may be the data itself or what it comes from."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from foldwise.plotting import charts
from foldwise.plotting import data as numbers

__all__ = [
    "plot_contour",
    "plot_folds",
    "plot_growth",
    "plot_history",
    "plot_partial_effect",
    "plot_path",
    "plot_relevance",
    "plot_validation_test",
]

STYLES: dict[str, dict[str, Any]] = {
    "line": {"lw": 1.8},
    "step": {"lw": 1.8, "drawstyle": "steps-post"},
    "dots": {"ls": "none", "marker": "o", "ms": 4.5, "alpha": 0.75},
    "dots line": {"lw": 1.5, "marker": "o", "ms": 4.5},
    "mark": {"ls": "none", "marker": "*", "ms": 14, "mec": "black"},
}
DASHES = ("-", "--", ":", "-.")
COLOURS = "viridis"
"""From low to high; its lightness grows evenly, so that it reads without colours too."""


def plot_history(source: Any, ax: Any = None) -> Any:
    """Cross-validation error by evaluation: every point, and the best so far.

    Parameters
    ----------
    source : History, Result or fitted BilevelSearchCV
    ax : matplotlib Axes, optional
        A new one by default.
    """
    return _lines(
        charts.history_chart(source if isinstance(source, numbers.History) else numbers.history_data(source)),
        ax,
    )


def plot_path(source: Any, ax: Any = None, *, most: int = charts.MOST_LINES) -> Any:
    """Hyper-parameters by evaluation, each between its bounds on its own scale: those that moved most.

    Parameters
    ----------
    source : Path or fitted BilevelSearchCV
    ax : matplotlib Axes, optional
    most : int
        Hyper-parameters to show.
    """
    return _lines(
        charts.path_chart(source if isinstance(source, numbers.Path) else numbers.path_data(source), most), ax
    )


def plot_folds(source: Any, ax: Any = None, *, most: int = charts.MOST_BARS) -> Any:
    """The error of each fold at the selected point.

    Parameters
    ----------
    source : Folds, Result or fitted BilevelSearchCV
    ax : matplotlib Axes, optional
    most : int
        Folds to show.
    """
    return _bars(
        charts.folds_chart(source if isinstance(source, numbers.Folds) else numbers.folds_data(source), most),
        ax,
    )


def plot_contour(
    source: Any, ax: Any = None, *, X: Any = None, y: Any = None, levels: int = 12, **options: Any
) -> Any:
    """The cross-validation error over two hyper-parameters, with the way of the search on it.

    Levels lie where the error is low, so that the valley is seen and not the plateau around it.

    Parameters
    ----------
    source : Contour, or fitted BilevelSearchCV
    ax : matplotlib Axes, optional
    X, y : the data of the search
        Not needed for a Contour, nor for a search by ``method="grid"`` over two hyper-parameters.
    levels : int
    **options : as of :func:`~foldwise.plotting.contour_data`, such as ``names`` and ``points``
    """
    data = _given(source, numbers.Contour, numbers.contour_data, X=X, y=y, **options)
    return _field(charts.contour_chart(data, levels), ax)


def plot_relevance(source: Any, ax: Any = None, *, most: int = charts.MOST_BARS) -> Any:
    """How much each feature counts, largest first; boxes on the weights are drawn beside it.

    Parameters
    ----------
    source : Relevance, or a fitted model
    ax : matplotlib Axes, optional
    most : int
        Features to show.
    """
    data = _given(source, numbers.Relevance, numbers.relevance_data)
    return _bars(charts.relevance_chart(data, most), ax)


def plot_validation_test(source: Any, ax: Any = None, **data: Any) -> Any:
    """Cross-validation error against the error on test rows, coloured by the order of evaluation.

    Parameters
    ----------
    source : ValidationTest, or fitted BilevelSearchCV
    ax : matplotlib Axes, optional
    **data : ``X``, ``y``, ``X_test`` and ``y_test``, for a search
    """
    given = _given(source, numbers.ValidationTest, numbers.validation_test_data, **data)
    return _lines(charts.validation_test_chart(given), ax)


def plot_partial_effect(source: Any, ax: Any = None, **data: Any) -> Any:
    """The model's output along one feature; for semiparametric models also the part of the basis functions.

    Parameters
    ----------
    source : PartialEffect, or a fitted model
    ax : matplotlib Axes, optional
    **data : ``X`` and ``feature``, for a model
    """
    given = _given(source, numbers.PartialEffect, numbers.partial_effect_data, **data)
    return _lines(charts.partial_effect_chart(given), ax)


def plot_growth(source: Any, ax: Any = None) -> Any:
    """Time against size on logarithmic axes, with the exponent of each curve.

    Parameters
    ----------
    source : sequence of Growth, or a dict with sizes and seconds of every contender
    ax : matplotlib Axes, optional
    """
    is_data = isinstance(source, Sequence) and all(isinstance(item, numbers.Growth) for item in source)
    return _lines(charts.growth_chart(source if is_data else numbers.growth_data(source)), ax)


def _given(source: Any, kind: type, make: Callable[..., Any], **options: Any) -> Any:
    """The numbers: given as such, or made from their source."""
    return source if isinstance(source, kind) else make(source, **options)


def _lines(chart: charts.Lines, ax: Any) -> Any:
    ax = _axes(ax)
    colours = _palette(ax)
    for k, one in enumerate(chart.series):
        style: dict[str, Any] = {"color": colours[k % len(colours)], **STYLES[one.style]}
        if one.style == "line":
            style |= {"ls": DASHES[k % len(DASHES)], **({} if one.finite().sum() > 1 else {"marker": "o"})}
        if one.order is None:
            ax.plot(one.x, one.y, label=one.name or None, **style)
        else:
            shown = ax.scatter(one.x, one.y, c=one.order[1], cmap=COLOURS, label=one.name)
            ax.figure.colorbar(shown, ax=ax, label=one.order[0])
    _finish(ax, chart, any(one.name for one in chart.series))
    if not any(one.finite().any() for one in chart.series):
        ax.text(0.5, 0.5, "no finite values", transform=ax.transAxes, ha="center")
    return ax


def _bars(chart: charts.Bars, ax: Any) -> Any:
    ax = _axes(ax, height=1.3 + 0.24 * max(len(chart.names), 6))
    blue, orange, grey = (_palette(ax)[k] for k in (0, 1, 7))
    place = np.arange(len(chart.names))[::-1]
    faint = [grey if out else blue for out in chart.faint]
    order = slice(None, None, -1)  # matplotlib counts from below
    ax.barh(place[order], np.asarray(chart.values)[order], color=faint[order])
    if chart.markers is not None:
        ax.plot(chart.markers[1][order], place[order], "d", color=orange, label=chart.markers[0])
    ax.set_yticks(place[order], list(chart.names)[order])
    _finish(ax, chart, chart.markers is not None)
    return ax


def _field(chart: charts.Field, ax: Any) -> Any:
    ax, data, levels = _axes(ax), chart.data, chart.levels
    from matplotlib.colors import BoundaryNorm

    norm = BoundaryNorm(levels, 256)
    shown = ax.contourf(data.x, data.y, data.objective, levels=levels, cmap=COLOURS, norm=norm)
    mark = {**STYLES["mark"], "color": charts.LIGHT[1]}
    if len(data.path):
        ax.plot(*data.path.T, "o-", color="white", mec="black", ms=4, lw=1, label="search")
    ax.plot(*data.best, label="selected", **mark)
    bar = ax.figure.colorbar(shown, ax=ax, label="cross-validation error", spacing="uniform")
    some = levels[:: max(1, len(levels) // 6)]
    bar.set_ticks(some, labels=charts.tick_labels(some))
    bar.ax.minorticks_off()
    _finish(ax, chart, True)
    return ax


def _finish(ax: Any, chart: charts.Lines | charts.Bars | charts.Field, legend: bool) -> None:
    """Title, names and numbers of the axes, and a legend that covers nothing where there is room."""
    ax.set_title(chart.title, wrap=True)
    ax.set_xscale("log" if chart.x.log else "linear")
    _scale(ax.xaxis, chart.x)
    if not isinstance(chart, charts.Bars):
        ax.set_yscale("log" if chart.y.log else "linear")
        _scale(ax.yaxis, chart.y)
    if legend:
        ax.legend(loc="lower right" if isinstance(chart, charts.Bars) else "best")


def _scale(axis: Any, spec: charts.Axis) -> None:
    """The name, scale and round numbers of an axis, as in the report."""
    from matplotlib.ticker import Formatter, Locator, NullLocator

    class Round(Locator):
        """Round numbers, the same as in the report."""

        def __call__(self) -> Any:
            axis: Any = self.axis
            return self.tick_values(*axis.get_view_interval())

        def tick_values(self, vmin: float, vmax: float) -> Any:
            return charts.ticks(min(vmin, vmax), max(vmin, vmax), spec)

    class Apart(Formatter):
        """Digits that tell the numbers apart."""

        def format_ticks(self, values: Any) -> list[str]:
            return charts.tick_labels(values)

        def __call__(self, x: float, pos: int | None = None) -> str:
            return charts.tick_labels([x])[0]

    axis.set_label_text(spec.label)
    axis.set_major_locator(Round())
    axis.set_major_formatter(Apart())
    axis.set_minor_locator(NullLocator())
    if spec.ends is not None:
        pad = 0.03 * (spec.ends[1] - spec.ends[0])
        axis.set_view_interval(spec.ends[0] - pad, spec.ends[1] + pad, ignore=True)


def _palette(ax: Any) -> tuple[str, ...]:
    """Colours that stand out from the ground."""
    from matplotlib.colors import to_rgb

    return charts.LIGHT if sum(to_rgb(ax.get_facecolor())) > 1.5 else charts.DARK


def _axes(ax: Any, height: float = 4.8) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "drawing needs matplotlib, which is not installed; pip install 'foldwise[plot]'. The numbers come from "
            "the *_data functions, which need nothing"
        ) from None
    size: dict[str, Any] = {"figsize": (6.4, height), "layout": "constrained"}
    if "matplotlib.pyplot" in sys.modules:  # where figures are shown, this one is shown as well
        return sys.modules["matplotlib.pyplot"].subplots(**size)[1]
    return Figure(**size).add_subplot()
