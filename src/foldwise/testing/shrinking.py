"""A failing search made smaller: parts are left out, rows and columns dropped, while it still fails the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from foldwise.testing.random_searches import RandomSearch

__all__ = ["shrink"]


def shrink(
    drawn: RandomSearch, fails: Callable[[RandomSearch], bool], *, max_time: float = 30.0
) -> RandomSearch:
    """The smallest search found for which ``fails`` still holds.

    Parameters
    ----------
    drawn : RandomSearch
        One for which it holds.
    fails : callable
        Whether a search fails in the way that is looked for. One that cannot be built must give False.
    max_time : float
        Seconds after which the best so far is returned.

    Examples
    --------
    >>> from foldwise.testing import random_search
    >>> small = shrink(random_search(23), lambda one: "svm.LinearSVC" in one.source())
    >>> small.options, small.steps, small.fit
    ({}, (), {})
    """
    deadline = time.monotonic() + max_time
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(drawn):
            if time.monotonic() > deadline:
                return drawn
            if fails(candidate):
                drawn, smaller = candidate, True
                break
    return drawn


def _smaller(drawn: RandomSearch) -> Iterator[RandomSearch]:
    """Searches with one part less, the largest parts first."""
    n, d = drawn.size
    for rows in (12, n // 2, n - 10, n - 1):
        if 6 <= rows < n:
            yield drawn.without(size=(rows, d))
    for columns in (1, d - 1):
        if 1 <= columns < d:
            yield drawn.without(size=(n, columns))
    for name in drawn.fit:
        yield drawn.without(fit={k: v for k, v in drawn.fit.items() if k != name})
    for k in range(len(drawn.steps)):
        yield drawn.without(steps=drawn.steps[:k] + drawn.steps[k + 1 :])
    for k in range(2, len(drawn.data)):
        yield drawn.without(data=drawn.data[:k] + drawn.data[k + 1 :])
    for name in drawn.options:
        yield drawn.without(options={k: v for k, v in drawn.options.items() if k != name})
    for name in drawn.params:
        yield drawn.without(params={k: v for k, v in drawn.params.items() if k != name})
    yield from _smaller_space(drawn)
    if "cv" in drawn.options and drawn.options["cv"] != "2":
        yield drawn.without(options={**drawn.options, "cv": "2"})


def _smaller_space(drawn: RandomSearch) -> Iterator[RandomSearch]:
    if drawn.space is None:
        return
    yield drawn.without(space=None)
    for name in drawn.space if len(drawn.space) > 1 else ():
        if isinstance(drawn.space, tuple):
            yield drawn.without(space=tuple(k for k in drawn.space if k != name))
        else:
            yield drawn.without(space={k: v for k, v in drawn.space.items() if k != name})
    if not isinstance(drawn.space, tuple):
        for name, value in drawn.space.items():
            if value != "None":
                yield drawn.without(space={**drawn.space, name: "None"})
