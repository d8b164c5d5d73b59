"""What nested cross-validation found: outer folds, what came true on their rows, and what the searches had promised."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from foldwise.models.base import Array
from foldwise.result import Status, as_json
from foldwise.wording import format_value

__all__ = ["COMPLETE", "INTERRUPTED", "Nested", "OuterFold"]

SCHEMA = "foldwise-nested-1"
COMPLETE, INTERRUPTED = "complete", "interrupted"


@dataclass(frozen=True, eq=False)
class OuterFold:
    """One outer fold: what a search that has not seen its rows selects, promises, and is worth on them.

    Attributes
    ----------
    number : int
        From 0.
    n_train : int
        Training rows of the search.
    rows : ndarray of int
        The rows that it predicts, in the order of the splitter.
    predictions : ndarray
        Their predictions.
    params : dict
        ``best_params_`` of the search.
    inner_error, inner_error_rate, optimism, expected_error : float or None
        What the search says of itself: its cross-validation error, the share wrong in its folds, by how much it takes
        the former to be too low, and the error it expects on new rows. See :class:`~foldwise.Result`.
    error, error_rate : float or None
        The truth on the rows: the criterion and, of classes, the share of wrong predictions.
    status : str
        How the search ended.
    seconds : float
    """

    number: int
    n_train: int
    rows: Array
    predictions: Array
    params: dict[str, Any]
    inner_error: float
    inner_error_rate: float | None
    optimism: float | None
    expected_error: float | None
    error: float
    error_rate: float | None
    status: str
    seconds: float


@dataclass(frozen=True, eq=False)
class Nested:
    """What nested cross-validation found; :meth:`summary` says it in words.

    Attributes
    ----------
    task : "regression" or "classification"
    criterion : str
        The unit of the errors.
    n_rows, n_folds : int
        Rows of the data, and outer folds that were asked for.
    folds : tuple of OuterFold
        Those that were finished, in their order.
    status : "complete" or "interrupted"
    message : str
        The status in words.
    seconds : float
    version : str
    """

    task: str
    criterion: str
    n_rows: int
    n_folds: int
    folds: tuple[OuterFold, ...]
    status: str
    message: str
    seconds: float = 0.0
    version: str = ""

    @property
    def errors(self) -> Array:
        """The criterion on the rows of every outer fold."""
        return np.array([fold.error for fold in self.folds])

    @property
    def error(self) -> float:
        """The mean of :attr:`errors`: what the whole procedure is worth on new rows."""
        return float(np.mean(self.errors))

    @property
    def standard_error(self) -> float:
        """Of that mean, from the spread between folds; nan with one fold.

        Folds share training rows, so it is rather too low than too high.
        """
        return _standard_error(self.errors)

    @property
    def error_rates(self) -> Array | None:
        """The share of wrong predictions in every outer fold; None for regressions."""
        rates = [fold.error_rate for fold in self.folds]
        return None if any(rate is None for rate in rates) else np.array(rates, float)

    @property
    def error_rate(self) -> float | None:
        """The mean of :attr:`error_rates`."""
        rates = self.error_rates
        return None if rates is None else float(np.mean(rates))

    @property
    def error_rate_standard_error(self) -> float | None:
        """As :attr:`standard_error`."""
        rates = self.error_rates
        return None if rates is None else _standard_error(rates)

    @property
    def inner_error(self) -> float:
        """The mean of the cross-validation errors that the searches minimised."""
        return float(np.mean([fold.inner_error for fold in self.folds]))

    @property
    def gap(self) -> float:
        """By how much the criterion is higher on the outer rows than in the inner folds."""
        return self.error - self.inner_error

    @property
    def optimism(self) -> float | None:
        """By how much the searches say that it is, on average; None where one of them does not know."""
        return _mean([fold.optimism for fold in self.folds])

    @property
    def expected_error(self) -> float | None:
        """The mean error that the searches expect: of classes the share wrong, of regressions the criterion."""
        return _mean([fold.expected_error for fold in self.folds])

    @property
    def selected(self) -> dict[str, list[Any]]:
        """The selected values by name, one for every outer fold."""
        names = dict.fromkeys(name for fold in self.folds for name in fold.params)
        return {name: [fold.params.get(name) for fold in self.folds] for name in names}

    @cached_property
    def predictions(self) -> Array:
        """The prediction of every row by a model that has not seen it, shape (n_rows,).

        The mean, or of classes the most frequent one, where several folds predict a row; nan, or of classes None, where
        none does.
        """
        found: list[list[Any]] = [[] for _ in range(self.n_rows)]
        for fold in self.folds:
            for row, value in zip(fold.rows.tolist(), fold.predictions, strict=True):
                found[row].append(value)
        if self.task == "regression":
            return np.array([np.mean(values) if values else np.nan for values in found])
        labels = [Counter(values).most_common(1)[0][0] if values else None for values in found]
        return np.array(labels, dtype=object if None in labels else self.folds[0].predictions.dtype)

    def summary(self) -> str:
        """The result in a few plain lines."""
        lines = [f"nested cross-validation: {self.status}. {self.message}"]
        rate, spread = self.error_rate, self.error_rate_standard_error
        if rate is not None and spread is not None:
            inner = _mean([fold.inner_error_rate for fold in self.folds])
            told = [] if inner is None else [f"{_percent(inner)} in the inner folds"]
            told += (
                [] if self.expected_error is None else [f"{_percent(self.expected_error)} expected by them"]
            )
            lines.append(
                f"on new rows {_percent(rate)} wrong predictions (standard error {_percent(spread)})"
                + "".join(f"; {words}" for words in told)
            )
        lines.append(
            f"on new rows {self.criterion} error {self.error:.5g} (standard error {self.standard_error:.2g}); "
            f"{self.inner_error:.5g} in the inner folds"
        )
        known = "not known" if self.optimism is None else f"{self.optimism:.3g}"
        lines.append(f"optimism of the inner folds: {self.gap:.3g} found, {known} told by the searches")
        lines += [f"  {name} = {_range(values)}" for name, values in self.selected.items()]
        lines.append(
            f"{len(self.folds)} searches, {self.seconds:.2f} s; by fold: "
            + ", ".join(f"{value:.4g}" for value in self.errors)
        )
        odd = [fold for fold in self.folds if fold.status != Status.CONVERGED]
        if odd:
            words = ", ".join(f"{fold.number + 1} ({fold.status})" for fold in odd)
            lines.append(f"searches that did not converge: {words}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as lists, dicts, numbers and strings, with the means that follow from the folds."""
        means = {
            name: getattr(self, name)
            for name in (
                "error",
                "standard_error",
                "error_rate",
                "error_rate_standard_error",
                "inner_error",
                "gap",
                "optimism",
                "expected_error",
            )
        }
        content: dict[str, Any] = as_json({"schema": SCHEMA, **asdict(self), "means": means})
        return content

    def to_json(self) -> str:
        """The whole result as JSON text; :meth:`from_json` gives it back."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Nested:
        """The result that :meth:`to_json` wrote."""
        try:
            content = json.loads(text)
            if content["schema"] != SCHEMA:
                raise ValueError(f"its schema is {content['schema']!r}, not {SCHEMA!r}")
            own = {one.name: content[one.name] for one in fields(cls)}
            own["folds"] = tuple(_fold_of(fold) for fold in content["folds"])
            return cls(**own)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"this is not a nested result of foldwise ({error}); it must come from Nested.to_json()"
            ) from error


def _fold_of(content: Mapping[str, Any]) -> OuterFold:
    numbers = {name: np.nan for name in ("error", "inner_error") if content[name] is None}
    arrays = {"rows": np.array(content["rows"], int), "predictions": np.array(content["predictions"])}
    return OuterFold(**{**content, **numbers, **arrays})


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where one is not known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _standard_error(values: Array) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _range(values: Sequence[Any]) -> str:
    """How far single numbers move between folds; others as they are in the first fold."""
    numbers = [value for value in values if isinstance(value, float)]
    if len(numbers) < len(values):
        first = values[0]
        return f"{format_value(first) if isinstance(first, list) else first} in the first fold"
    middle, low, high = np.median(numbers), min(numbers), max(numbers)
    return f"{middle:.4g} ({low:.4g} to {high:.4g} between folds)" if low < high else f"{middle:.4g}"
