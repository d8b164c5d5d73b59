"""What a parameter may be: one table of rules per class, checked before any work.

A class says in ``_arguments`` what each of its parameters may be, and calls :func:`check_arguments`. What depends on
the data or on several parameters at once is checked where these meet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

__all__ = [
    "CLASS_WEIGHT",
    "FLAG",
    "FOLDS",
    "MAYBE",
    "NONE",
    "PATH",
    "SEED",
    "Rule",
    "Table",
    "check_arguments",
    "check_value",
    "instance",
    "integer",
    "is_splitter",
    "number",
    "numbers",
    "one_of",
    "sequence",
    "shown",
]


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words that follow "must be", a test of it, and what to do otherwise.

    >>> (number(above=0) | NONE).needs
    'positive and finite or None'
    """

    needs: str
    test: Callable[[Any], bool]
    do: str = ""

    def allows(self, value: Any) -> bool:
        """Whether a value passes; one that cannot even be looked at does not."""
        try:
            return bool(self.test(value))
        except (TypeError, ValueError, OverflowError, AttributeError):
            return False

    def __or__(self, other: Rule) -> Rule:
        return Rule(
            f"{self.needs} or {other.needs}", lambda v: self.allows(v) or other.allows(v), self.do or other.do
        )


Table = Mapping[str, Rule]
"""A rule for every parameter of a class."""


def check_arguments(owner: Any, rules: Table | None = None) -> None:
    """Raise a ValueError for the first parameter of an object that its table does not allow."""
    for name, rule in (owner._arguments if rules is None else rules).items():
        if hasattr(owner, name):  # a subclass may have other parameters than its parent
            check_value(name, getattr(owner, name), rule, type(owner).__name__)


def check_value(name: str, value: Any, rule: Rule, owner: str = "") -> None:
    """Raise a ValueError when a rule does not allow a value."""
    if not rule.allows(value):
        where, what = f"{owner}: " if owner else "", f". {rule.do}" if rule.do else ""
        raise ValueError(f"{where}{name} must be {rule.needs}; got {shown(value)}{what}")


def shown(value: Any, limit: int = 100) -> str:
    """A value as an error shows it: on one line, and not too long.

    >>> shown(3.0), shown(list(range(100)), 12)
    ('3.0', '[0, 1, 2, 3,...')
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # the value of a parameter is anyone's object
        text = f"an object of {type(value).__name__}"
    return text if len(text) <= limit else f"{text[:limit]}..."


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def _words(above: float, at_least: float, at_most: float, below: float, finite: bool) -> str:
    if np.isfinite(at_most) or np.isfinite(below):
        low = f"at least {at_least:g}" if np.isfinite(at_least) else f"above {above:g}"
        return f"{low} and " + (f"at most {at_most:g}" if np.isfinite(at_most) else f"below {below:g}")
    if above == 0:
        return "positive and finite"
    if np.isfinite(above):
        return f"finite and above {above:g}"
    if at_least == 0:
        return "finite and not negative"
    return "finite" if finite else "not nan"


def number(
    *,
    above: float = -np.inf,
    at_least: float = -np.inf,
    at_most: float = np.inf,
    below: float = np.inf,
    do: str = "",
) -> Rule:
    """One real number within limits; booleans are not numbers."""

    def accepts(value: Any) -> bool:
        x = float(value) if _is_number(value) else np.nan
        return bool(np.isfinite(x) and (x > above or above == -np.inf) and at_least <= x <= at_most) and (
            x < below
        )

    return Rule(_words(above, at_least, at_most, below, True), accepts, do)


def numbers(
    *, above: float = -np.inf, at_least: float = -np.inf, finite: bool = True, flat: bool = True
) -> Rule:
    """One real number or an array of them (one-dimensional if ``flat``), each within limits."""

    def accepts(value: Any) -> bool:
        if isinstance(value, (str, bytes, Mapping)) or value is None:
            return False
        array = np.asarray(value)
        if array.dtype.kind not in "iuf" or array.size == 0 or (flat and array.ndim > 1):
            return False
        known = np.isfinite(array) if finite else ~np.isnan(array)
        return bool(known.all() and (array >= at_least).all() and (above == -np.inf or (array > above).all()))

    needs = _words(above, at_least, np.inf, np.inf, finite)
    words = {"finite": "finite numbers", "not nan": "numbers (inf for no bound)"}
    return Rule(words.get(needs, needs), accepts)


def integer(at_least: int = 1, at_most: float = np.inf) -> Rule:
    """One integer within limits; booleans and 3.0 are none."""

    def accepts(value: Any) -> bool:
        whole = _is_number(value) and isinstance(value, Integral)
        return whole and at_least <= int(value) <= at_most

    words = {1: "a positive integer", 0: "a non-negative integer"}.get(
        at_least, f"an integer of at least {at_least}"
    )
    return Rule(words if at_most == np.inf else f"an integer between {at_least} and {at_most:g}", accepts)


def one_of(*values: Any) -> Rule:
    """One of a few values, of the same type: 1 is not True."""

    def accepts(value: Any) -> bool:
        return any(type(value) is type(v) and value == v for v in values)

    words = [repr(v) for v in values]
    return Rule(words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}", accepts)


def instance(kinds: type | tuple[type, ...], needs: str, do: str = "") -> Rule:
    """An object of some type."""
    return Rule(needs, lambda value: isinstance(value, kinds), do)


def sequence(each: Callable[[Any], bool], needs: str, least: int = 0) -> Rule:
    """A list, a tuple or another sequence, no text, whose items pass a test."""

    def accepts(value: Any) -> bool:
        if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, (str, bytes)):
            return False
        return len(value) >= least and all(each(item) for item in value)

    return Rule(needs, accepts)


NONE = Rule("None", lambda value: value is None)
FLAG = Rule("True or False", lambda value: isinstance(value, (bool, np.bool_)))
MAYBE = Rule(
    "True, False or 'auto'", lambda v: isinstance(v, (bool, np.bool_)) or (isinstance(v, str) and v == "auto")
)
PATH = instance((str, os.PathLike), "a file name (str or Path)")
SEED = integer(0, 2**32 - 1) | instance(np.random.RandomState, "a numpy.random.RandomState") | NONE


def _is_class_weight(value: Any) -> bool:
    if isinstance(value, str):
        return value == "balanced"
    return value is None or (
        isinstance(value, Mapping) and all(number(above=0).allows(weight) for weight in value.values())
    )


CLASS_WEIGHT = Rule(
    "None, 'balanced' or a dict from class to a positive weight",
    _is_class_weight,
    "Drop the rows of a class that should not count",
)


def is_splitter(value: Any) -> bool:
    """Whether something makes folds itself, as scikit-learn's splitters do."""
    return hasattr(value, "split") and not isinstance(value, str)


def _is_folds(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_, Real)):
        return integer(2).allows(value)
    if isinstance(value, (str, bytes, Mapping, type)):
        return False
    return value is None or is_splitter(value) or isinstance(value, Iterable)


FOLDS = Rule("an integer of at least 2, a splitter, an iterable of (train, test) pairs or None", _is_folds)
