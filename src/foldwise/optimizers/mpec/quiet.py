"""Solvers that are not Python: interrupts are held while they run, and their chatter is kept back."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["held_interrupt", "quiet"]


@contextmanager
def held_interrupt() -> Iterator[list[int]]:
    """Keep Ctrl-C from breaking into a solver's own code: note it, and deliver it when the block is left.

    Gives the list in which it is noted, for a callback to look at. Signals reach the main thread only; elsewhere, and
    where the handler is not Python's, nothing is changed.
    """
    noted: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None
    if before is None:
        yield noted
        return
    signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
        if noted:
            signal.raise_signal(signal.SIGINT)


_SILENCE = threading.Lock()
CHATTER = (b"insufficient space", b"workspace", b"bqpd", b"mxws,")
"""Words by which lines of Uno's QP solver about its workspace are known."""


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what Uno's QP solver writes to the process's standard error about its workspace.

    Standard error goes to a temporary file for the while; what others wrote there, such as a second thread, is passed
    on afterwards. It is restored however the block is left. Use it within :func:`held_interrupt`, so that no interrupt
    comes between two of its steps.
    """
    with _SILENCE:
        try:
            sys.stderr.flush()
            kept = os.dup(2)
        except (OSError, ValueError, AttributeError):  # no standard error to protect
            yield
            return
        try:
            with tempfile.TemporaryFile() as sink:
                try:
                    os.dup2(sink.fileno(), 2)
                    yield
                finally:
                    with contextlib.suppress(OSError, ValueError, AttributeError):
                        sys.stderr.flush()
                    os.dup2(kept, 2)
                    sink.seek(0)
                    _pass_on(sink.read(), kept)
        finally:
            os.close(kept)


def _pass_on(text: bytes, target: int) -> None:
    """Write the lines that are not the QP solver's."""
    lines = [line for line in text.splitlines(keepends=True) if not any(w in line.lower() for w in CHATTER)]
    if any(line.strip() for line in lines):
        with contextlib.suppress(OSError):
            os.write(target, b"".join(lines))
