"""How many threads the linear algebra underneath takes.

The threads of a BLAS library share out every product. On matrices of a few hundred rows they wait for each other longer
than they work, and where other programs want the same cores they do nothing but wait: searches that take a second take
a minute. docs/big-data.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController

__all__ = ["SMALL", "suited_to"]

SMALL = 4_000_000
"""Entries of the largest matrix up to which one thread is enough."""


@cache
def _controller() -> ThreadpoolController:
    """What knows the libraries that are loaded; finding them takes longer than a small search may."""
    return ThreadpoolController()


@contextmanager
def suited_to(entries: int) -> Iterator[None]:
    """Within this block linear algebra takes one thread if its largest matrix is small, as many as are set otherwise.

    >>> with suited_to(100 * 100):
    ...     pass
    """
    if entries > SMALL:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield
