"""What a picture shows before it is drawn: its title, axes, lines, bars. The drawings and the report share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from foldwise.plotting.data import (
    Contour,
    Folds,
    Growth,
    History,
    PartialEffect,
    Path,
    Relevance,
    ValidationTest,
)

__all__ = [
    "DARK",
    "LIGHT",
    "Axis",
    "Bars",
    "Field",
    "Lines",
    "Series",
    "contour_chart",
    "derivative_chart",
    "folds_chart",
    "growth_chart",
    "history_chart",
    "partial_effect_chart",
    "path_chart",
    "relevance_chart",
    "short_names",
    "tick_labels",
    "ticks",
    "validation_test_chart",
]

LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#6b7280")
DARK = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#d55e00", "#ffffff", "#a3adb6")
"""Colours of series on light and on dark ground: those of Okabe and Ito, which colour-blind readers tell apart."""
MOST_LINES, MOST_BARS, LONGEST = len(LIGHT), 30, 28
"""Lines and bars that are drawn, and letters of a name that are shown."""


@dataclass(frozen=True)
class Axis:
    """What an axis measures and in what unit; its scale, its ends where they are fixed, whether it counts."""

    label: str
    log: bool = False
    ends: tuple[float, float] | None = None
    whole: bool = False


COUNT = Axis("evaluation number", whole=True)


@dataclass(frozen=True, eq=False)
class Series:
    """A "line", "step" line, set of "dots" or single "mark"; ``tips`` are shown where a pointer rests.

    ``order`` colours dots by a number, whose meaning is the first of the two.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    style: str = "line"
    tips: Sequence[str] = ()
    order: tuple[str, np.ndarray] | None = None

    def finite(self) -> np.ndarray:
        """Which points can be drawn."""
        return np.asarray(np.isfinite(np.asarray(self.x, float)) & np.isfinite(np.asarray(self.y, float)))


@dataclass(frozen=True, eq=False)
class Lines:
    """Series over common axes."""

    title: str
    x: Axis
    y: Axis
    series: Sequence[Series]


@dataclass(frozen=True, eq=False)
class Bars:
    """Horizontal bars, the first on top; faint ones do not count. ``markers`` are points beside them, with a name."""

    title: str
    x: Axis
    names: Sequence[str]
    values: np.ndarray
    faint: np.ndarray
    markers: tuple[str, np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class Field:
    """A value over two axes, with a way through it and a selected point; colours change at ``levels``."""

    title: str
    x: Axis
    y: Axis
    data: Contour
    levels: np.ndarray


def history_chart(data: History) -> Lines:
    """The error by evaluation: every point, and the best so far."""
    step = data.evaluation + 1
    series = [
        Series("evaluated", step, data.objective, "dots"),
        Series("best so far", step, data.best, "step"),
    ]
    title, label = "Cross-validation error by evaluation", _with("error", data.criterion)
    return Lines(title, COUNT, Axis(label, data.wide), series)


def derivative_chart(data: History) -> Lines:
    """The size of the hypergradient by evaluation."""
    line = Series("", data.evaluation + 1, data.gradient_norm)
    y = Axis("derivative (error per e-fold)", log=True)
    return Lines("Size of the derivative by evaluation", COUNT, y, [line])


def path_chart(data: Path, most: int = MOST_LINES) -> Lines:
    """Hyper-parameters by evaluation, each between its bounds on its own scale: those that moved most."""
    shown, values = data.moved_most(most), data.normalised()
    names = short_names([data.names[k] for k in shown])
    series = [Series(name, data.evaluation + 1, values[:, k]) for name, k in zip(names, shown)]
    title = "Hyper-parameters between their bounds" + _of(len(shown), len(data.names), "that moved most")
    y = Axis("place between the bounds (0 to 1)", ends=(0.0, 1.0))
    return Lines(title, COUNT, y, series)


def contour_chart(data: Contour, levels: int = 12) -> Field:
    """The error over two hyper-parameters, with the way of the search."""
    x, y = (
        Axis(f"{name} (log scale)" if log else name, log)
        for name, log in zip(short_names(data.names), data.log)
    )
    return Field("Cross-validation error over two hyper-parameters", x, y, data, data.levels(levels))


def relevance_chart(data: Relevance, most: int = MOST_BARS) -> Bars:
    """How much each feature counts, largest first, with the boxes on the weights."""
    top = data.order[:most]
    markers = None
    if data.box is not None:
        scale = max(float(np.max(data.box[np.isfinite(data.box)], initial=0.0)), np.finfo(float).tiny)
        markers = "box (largest 1)", data.box[top] / scale
    names = short_names([data.names[i] for i in top])
    title = "What features count" + _of(len(top), len(data.names), "largest")
    return Bars(
        title, Axis(f"{data.what} (largest 1)"), names, data.values[top], ~data.selected[top], markers
    )


def folds_chart(data: Folds, most: int = MOST_BARS) -> Bars:
    """The error of each fold."""
    values = data.error[:most]
    title = "Error of each fold" + _of(len(values), len(data.error), "first")
    names = [f"fold {k + 1}" for k in range(len(values))]
    return Bars(title, Axis(_with("error", data.criterion)), names, values, np.zeros(len(values), bool))


def validation_test_chart(data: ValidationTest) -> Lines:
    """The error on the folds against the error on test rows."""
    k = [data.selected]
    series = [
        Series(
            "evaluated",
            data.validation,
            data.test,
            "dots",
            order=("evaluation number", data.evaluation + 1),
        ),
        Series("selected", data.validation[k], data.test[k], "mark"),
    ]
    x, y = Axis("cross-validation error"), Axis(f"error on test rows ({data.metric})")
    return Lines("Cross-validation and test error", x, y, series)


def partial_effect_chart(data: PartialEffect) -> Lines:
    """The model's output along one feature."""
    series = [Series("" if data.parametric is None else "model", data.grid, data.effect)]
    if data.parametric is not None:
        series.append(Series("parametric part", data.grid, data.parametric))
    (name,) = short_names([data.name])
    return Lines(f"Effect of {name}", Axis(f"{name} (its own unit)"), Axis(data.output), series)


def growth_chart(curves: Sequence[Growth]) -> Lines:
    """Time against size, with exponents."""
    series = [Series(f"{c.name} (exponent {c.exponent:.2f})", c.size, c.seconds, "dots line") for c in curves]
    return Lines("Time against size", Axis("size (rows)", log=True), Axis("time (seconds)", log=True), series)


def ticks(low: float, high: float, axis: Axis, most: int = 5) -> list[float]:
    """Round numbers from ``low`` to ``high``: powers of ten on a logarithmic axis of more than a decade.

    >>> ticks(0.0, 1.0, Axis("x")), ticks(1e-3, 1e3, Axis("C", log=True)), ticks(0.9, 1.1, COUNT)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.001, 0.1, 10.0, 1000.0], [1.0])
    """
    if axis.log and high >= 10.0 * low:
        whole = np.arange(np.ceil(np.log10(low) - 1e-9), np.floor(np.log10(high) + 1e-9) + 1)
        if len(whole) > 1:
            every = max(1, int(np.ceil(len(whole) / most)))
            return [float(10.0**k) for k in whole[::every]]
    raw = (high - low) / most
    unit = 10.0 ** np.floor(np.log10(raw))
    step = float(next(unit * k for k in (1, 2, 5, 10) if unit * k >= raw * 0.999))
    step = max(step, 1.0) if axis.whole else step
    count = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1)
    return [float(f"{k * step:.12g}") + 0.0 for k in count]  # + 0.0: minus zero reads badly


def tick_labels(values: ArrayLike) -> list[str]:
    """Numbers with as few digits as tell each from its neighbours.

    >>> tick_labels([0.1, 0.2]), tick_labels([1234.561, 1234.562, 2000.1]), tick_labels([1e-6, 1e6])
    (['0.1', '0.2'], ['1234.561', '1234.562', '2000'], ['1e-06', '1e+06'])
    """
    numbers = np.atleast_1d(np.asarray(values, float))
    labels = []
    for value in numbers:
        others = np.abs(numbers - value)
        room = 0.02 * min(np.min(others[others > 0], initial=np.inf), abs(value) or np.inf)
        texts = (_plain(value, digits) for digits in range(1, 17))
        labels.append(next((text for text in texts if abs(float(text) - value) <= room), f"{value:.17g}"))
    return labels


def _plain(value: float, digits: int) -> str:
    """So many digits, without an exponent where few zeros do."""
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return str(np.format_float_positional(value, digits, unique=False, fractional=False, trim="-"))
    return f"{value:.{digits}g}"


def short_names(names: Sequence[str], longest: int = LONGEST) -> list[str]:
    """Names of at most ``longest`` letters: cut in the middle, or around where they differ.

    >>> short_names(["mean of the first", "mean of the second", "x"], 9)
    ['mean…irst', 'mean…cond', 'x']
    >>> short_names(["size of leaf 1 in millimetres", "size of leaf 2 in millimetres"], 15)
    ['…f leaf 1 in m…', '…f leaf 2 in m…']
    """
    names, half = [str(name) for name in names], (longest - 1) // 2
    cut = [n if len(n) <= longest else f"{n[: longest - 1 - half]}…{n[-half:]}" for n in names]
    out = []
    for name, short in zip(names, cut):
        alike = [other for other, its in zip(names, cut) if its == short]
        if len(alike) > 1:
            differ = (k for k, letters in enumerate(zip(*alike)) if len(set(letters)) > 1)
            first = max(next(differ, 0) - half, 1)
            short = f"…{name[first : first + longest - 2]}…"
        out.append(short)
    return [f"{name} #{k + 1}" if out.count(name) > 1 else name for k, name in enumerate(out)]


def _of(shown: int, all_: int, which: str) -> str:
    """How many of all are shown, where it is not all."""
    return "" if shown >= all_ else f" (the {shown} {which}, {all_ - shown} more)"


def _with(label: str, unit: str) -> str:
    return f"{label} ({unit})" if unit else label
