"""Drawings on matplotlib axes: axes in, axes out. Every ``source`` may be the data itself or what it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foldwise.plotting.data import (
    Contour,
    Growth,
    History,
    PartialEffect,
    Path,
    Relevance,
    ValidationTest,
    growth_data,
    history_data,
    path_data,
    relevance_data,
)

__all__ = [
    "plot_contour",
    "plot_growth",
    "plot_history",
    "plot_partial_effect",
    "plot_path",
    "plot_relevance",
    "plot_validation_test",
]

MOST_LABELS = 10
"""A legend of more hyper-parameters than this says nothing."""


def plot_history(source: Any, ax: Any = None) -> Any:
    """Cross-validation error by evaluation: every point, and the best so far.

    Parameters
    ----------
    source : History, Result or fitted BilevelSearchCV
    ax : matplotlib Axes, optional
        A new one by default.
    """
    data = source if isinstance(source, History) else history_data(source)
    ax = _axes(ax)
    ax.plot(data.evaluation, data.objective, "o", ms=4, alpha=0.6, label="evaluated")
    ax.step(data.evaluation, data.best, where="post", label="best so far")
    ax.set(xlabel="evaluation", ylabel="cross-validation error")
    if data.wide:
        ax.set_yscale("log")
    ax.legend()
    return ax


def plot_path(source: Any, ax: Any = None) -> Any:
    """Hyper-parameters by evaluation, each between its bounds on its own scale.

    Parameters
    ----------
    source : Path or fitted BilevelSearchCV
    ax : matplotlib Axes, optional
    """
    data = source if isinstance(source, Path) else path_data(source)
    ax = _axes(ax)
    few = len(data.names) <= MOST_LABELS
    for name, column in zip(data.names, data.normalised().T, strict=True):
        ax.plot(data.evaluation, column, label=name if few else None, lw=1.5 if few else 0.7)
    ax.set(xlabel="evaluation", ylabel="from lower to upper bound", ylim=(-0.03, 1.03))
    if few:
        ax.legend()
    return ax


def plot_contour(data: Contour, ax: Any = None, *, levels: int = 20) -> Any:
    """The cross-validation error over two hyper-parameters, with the way of the search on it.

    Parameters
    ----------
    data : Contour
        From :func:`~foldwise.plotting.contour_data`.
    ax : matplotlib Axes, optional
    levels : int
    """
    if not isinstance(data, Contour):
        raise TypeError(
            f"plot_contour needs the numbers of contour_data(search, X, y); got {type(data).__name__}"
        )
    ax = _axes(ax)
    shown = ax.contourf(data.x, data.y, data.objective, levels=levels, cmap="viridis")
    ax.plot(*data.path.T, "o-", color="white", mec="black", ms=4, lw=1, label="search")
    ax.plot(*data.best, "*", color="red", mec="black", ms=14, label="selected")
    ax.set(xlabel=data.names[0], ylabel=data.names[1])
    ax.set_xscale("log" if data.log[0] else "linear")
    ax.set_yscale("log" if data.log[1] else "linear")
    ax.figure.colorbar(shown, ax=ax, label="cross-validation error")
    ax.legend()
    return ax


def plot_relevance(source: Any, ax: Any = None, *, most: int = 30) -> Any:
    """How much each feature counts, largest first; boxes on the weights are drawn beside it.

    Parameters
    ----------
    source : Relevance, or a fitted model
    ax : matplotlib Axes, optional
    most : int
        Features to show.
    """
    data = source if isinstance(source, Relevance) else relevance_data(source)
    ax = _axes(ax)
    order = data.order[:most][::-1]
    place = np.arange(len(order))
    colours = ["tab:blue" if data.selected[i] else "lightgrey" for i in order]
    ax.barh(place, data.values[order], color=colours, label=data.what)
    if data.box is not None:
        scale = max(float(data.box.max(initial=0.0)), np.finfo(float).tiny)
        ax.plot(data.box[order] / scale, place, "d", color="tab:orange", label="box, largest 1")
        ax.legend()
    ax.set_yticks(place, [data.names[i] for i in order])
    ax.set_xlabel(data.what)
    return ax


def plot_validation_test(data: ValidationTest, ax: Any = None) -> Any:
    """Cross-validation error against the error on test rows, coloured by the order of evaluation.

    Parameters
    ----------
    data : ValidationTest
        From :func:`~foldwise.plotting.validation_test_data`.
    ax : matplotlib Axes, optional
    """
    ax = _axes(ax)
    points = ax.scatter(data.validation, data.test, c=data.evaluation, cmap="viridis")
    ax.plot(
        data.validation[data.selected],
        data.test[data.selected],
        "*",
        color="red",
        mec="black",
        ms=14,
        label="selected",
    )
    ax.set(xlabel="cross-validation error", ylabel=f"test {data.metric}")
    ax.figure.colorbar(points, ax=ax, label="evaluation")
    ax.legend()
    return ax


def plot_partial_effect(data: PartialEffect, ax: Any = None) -> Any:
    """The model's output along one feature; for semiparametric models also the part of the basis functions.

    Parameters
    ----------
    data : PartialEffect
        From :func:`~foldwise.plotting.partial_effect_data`.
    ax : matplotlib Axes, optional
    """
    ax = _axes(ax)
    ax.plot(data.grid, data.effect, label="model")
    if data.parametric is not None:
        ax.plot(data.grid, data.parametric, "--", label="parametric part")
        ax.legend()
    ax.set(xlabel=data.name, ylabel="output")
    return ax


def plot_growth(source: Any, ax: Any = None) -> Any:
    """Time against size on logarithmic axes, with the exponent of each curve.

    Parameters
    ----------
    source : sequence of Growth, or a dict with sizes and seconds of every contender
    ax : matplotlib Axes, optional
    """
    is_data = isinstance(source, Sequence) and all(isinstance(item, Growth) for item in source)
    ax = _axes(ax)
    for curve in source if is_data else growth_data(source):
        ax.loglog(curve.size, curve.seconds, "o-", label=f"{curve.name} (exponent {curve.exponent:.2f})")
    ax.set(xlabel="size", ylabel="seconds")
    ax.legend()
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(
            "drawing needs matplotlib, which is not installed; pip install 'foldwise[plot]'. The numbers come from "
            "the *_data functions, which need nothing"
        ) from None
    import sys

    if (
        "matplotlib.pyplot" in sys.modules
    ):  # in a notebook or script that shows figures, this one is shown as well
        return sys.modules["matplotlib.pyplot"].subplots()[1]
    return Figure().add_subplot()
