"""A deadline that long computations look at between their steps.

Solvers call :func:`look_at_clock` in their loops; outside :func:`until` it does nothing. The deadline belongs to the
thread that set it, so that searches side by side have each their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["OutOfTime", "look_at_clock", "until"]

_DEADLINE: ContextVar[float | None] = ContextVar("deadline", default=None)


class OutOfTime(Exception):
    """Raised between the steps of a computation whose deadline is over."""


@contextmanager
def until(deadline: float | None) -> Iterator[None]:
    """Within this block computations end at ``deadline``, a value of ``time.perf_counter()``; None for no end.

    >>> with until(None):
    ...     look_at_clock()
    """
    token = _DEADLINE.set(deadline)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def look_at_clock() -> None:
    """Raise :class:`OutOfTime` when the deadline is over."""
    deadline = _DEADLINE.get()
    if deadline is not None and time.perf_counter() > deadline:
        raise OutOfTime
