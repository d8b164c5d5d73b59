"""Many random searches before the referee: ``python -m foldwise.testing.fuzz --seeds 20000 --jobs 2``.

Every failing seed is printed as a reproduction that can be pasted, the first of each kind made smaller. A search that
hangs or takes the process down counts as a failure and does not end the run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from foldwise.testing.random_searches import RandomSearch, random_search
from foldwise.testing.referee import Verdict, judge
from foldwise.testing.shrinking import shrink

__all__ = ["Tally", "main", "verdict_of"]

GRACE = 5.0
"""A process that does not answer is ended after so many times the limit, of the processor's time."""
SILENCE = 50.0
"""And after so many by the clock: it may wait for something that never comes."""


class _TooLong(BaseException):
    """Raised in the middle of a search that exceeds its limit."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise _TooLong after so much time of the processor, where the system can count it (not on Windows).

    Time of the processor, not of the clock: a busy machine is no hang.
    """

    def stop(*_: Any) -> None:
        raise _TooLong

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def verdict_of(drawn: RandomSearch, limit: float = 60.0) -> Verdict:
    """The referee's verdict; a hang is one, and so is an error of the referee itself.

    >>> verdict_of(random_search(0)).outcome
    'checked'
    """
    try:
        with _limited(limit):
            return judge(drawn)
    except _TooLong:
        return Verdict("failed", "hang", f"not finished after {limit:g} s")
    except Exception as error:
        return Verdict("failed", f"referee: {type(error).__name__}", str(error)[:500])


def _smaller(drawn: RandomSearch, kind: str, limit: float) -> RandomSearch:
    """The failing search shrunk; a hang is tried with a shorter limit."""
    own = min(limit, 20.0)

    def fails(candidate: RandomSearch) -> bool:
        return verdict_of(candidate, own).kind == kind

    return shrink(drawn, fails, max_time=45.0)


def _work(pipe: Connection, limit: float) -> None:
    """A worker: judges the seeds it is sent, shrinks when it is told the kind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while (task := pipe.recv()) is not None:
        seed, kind = task
        drawn = random_search(seed)
        if kind is None:
            pipe.send(verdict_of(drawn, limit))
        else:
            pipe.send(_smaller(drawn, kind, limit).without())  # the text alone, nothing built


class _Worker:
    """A process with one task at a time; it is replaced when it hangs or dies."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.task: tuple[int, str | None] | None = None
        self._begin()

    def _begin(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, self.limit), daemon=True)
        self.process.start()
        other.close()

    def give(self, task: tuple[int, str | None]) -> None:
        self.task, self.began = task, time.monotonic()
        self.spent = _processor_time(self.process.pid)
        self.pipe.send(task)

    def answer(self) -> Any:
        """What it found; a failed verdict when it died."""
        try:
            return self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            self._begin()
            return Verdict("failed", "crash", f"the process ended with code {code}")

    def overdue(self) -> bool:
        """Whether it has had its time; on a busy machine it may have waited for the processor."""
        if self.task is None:
            return False
        waited, now = time.monotonic() - self.began, _processor_time(self.process.pid)
        spent = waited if now is None or self.spent is None else now - self.spent
        return spent > GRACE * self.limit or waited > SILENCE * self.limit

    def replace(self) -> Verdict:
        self.process.kill()
        self.process.join()
        waited = time.monotonic() - self.began
        self._begin()
        return Verdict("failed", "hang", f"the process did not answer for {waited:.0f} s")

    def close(self) -> None:
        self.process.kill()
        self.process.join()


def _processor_time(pid: int | None) -> float | None:
    """Seconds of the processor that a process has had; None where the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Tally:
    """Counts of a run."""

    checked: int = 0

    def __post_init__(self) -> None:
        self.refused: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.failed: dict[str, list[int]] = defaultdict(list)
        self.left: dict[str, int] = defaultdict(int)

    def add(self, seed: int, verdict: Verdict) -> None:
        """Count a verdict."""
        if verdict.outcome == "checked":
            self.checked += 1
        elif verdict.outcome == "refused":
            self.refused[verdict.kind].append((seed, verdict.message))
        else:
            self.failed[verdict.kind].append(seed)
        for what, why in verdict.left.items():
            self.left[f"{what}: {why}"] += 1

    @property
    def total(self) -> int:
        """Seeds judged."""
        return self.checked + sum(map(len, self.refused.values())) + sum(map(len, self.failed.values()))

    def text(self) -> str:
        """The counts in lines: refusals by message with one example each, failures by kind with their seeds."""
        refused = sum(map(len, self.refused.values()))
        failed = sum(map(len, self.failed.values()))
        lines = [f"{self.total} searches: {self.checked} checked, {refused} refused, {failed} failed"]
        lines += ["", "Refused:"] if refused else []
        for cases in sorted(self.refused.values(), key=len, reverse=True):
            seed, message = cases[0]
            lines.append(f"{len(cases):6d}  {message}  (seed {seed})")
        lines += ["", "Not judged:"] if self.left else []
        for why, count in sorted(self.left.items(), key=lambda item: -item[1]):
            lines.append(f"{count:6d}  {why}")
        lines += ["", "Failed:"] if failed else []
        for kind, seeds in sorted(self.failed.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(map(str, seeds[:20])) + (", ..." if len(seeds) > 20 else "")
            lines.append(f"{len(seeds):6d}  {kind}: seeds {shown}")
        return "\n".join(lines)


def _report(seed: int, verdict: Verdict, drawn: RandomSearch, note: str = "") -> None:
    print(f"\n# seed {seed}: {verdict.kind}{note}\n# {verdict.message}")
    print(drawn.source(), flush=True)


def run(first: int, seeds: int, jobs: int, limit: float, shrunk: int) -> Tally:
    """Judge the seeds on several processes, print what fails, and return the counts."""
    tally, queue = Tally(), iter(range(first, first + seeds))
    more: list[tuple[int, str | None]] = []
    found: dict[int, Verdict] = {}
    workers = [_Worker(limit) for _ in range(jobs)]
    began = said = time.monotonic()

    def feed(worker: _Worker) -> None:
        worker.task = None
        task = more.pop() if more else next(((seed, None) for seed in queue), None)
        if task is not None:
            worker.give(task)

    def take(worker: _Worker, answer: Any) -> None:
        assert worker.task is not None
        seed, kind = worker.task
        if kind is None:
            tally.add(seed, answer)
            if answer.outcome == "failed":
                found[seed] = answer
                _report(seed, answer, random_search(seed))
                if len(tally.failed[answer.kind]) <= shrunk and answer.kind != "crash":
                    more.append((seed, answer.kind))
        elif isinstance(answer, RandomSearch):
            _report(seed, found[seed], answer, " (shrunk)")
        feed(worker)

    try:
        for worker in workers:
            feed(worker)
        while busy := [worker for worker in workers if worker.task is not None]:
            ready = wait([worker.pipe for worker in busy], timeout=1.0)
            for worker in busy:
                if worker.pipe in ready:
                    take(worker, worker.answer())
                elif worker.overdue():
                    take(worker, worker.replace())
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(f"# {tally.total} of {seeds} in {said - began:.0f} s", flush=True)
    except KeyboardInterrupt:
        print("\n# interrupted; the counts so far:")
    finally:
        for worker in workers:
            worker.close()
    return tally


def main(arguments: list[str] | None = None) -> int:
    """Command line; 1 when a search failed, else 0."""
    parser = argparse.ArgumentParser(prog="python -m foldwise.testing.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many searches")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--limit",
        type=float,
        default=60.0,
        help="seconds of processor time that a search and its referee may take",
    )
    parser.add_argument(
        "--shrink", type=int, default=3, help="how many failures of each kind are made smaller"
    )
    parser.add_argument("--show", type=int, help="print this seed and its verdict, and stop")
    options = parser.parse_args(arguments)
    if options.show is not None:
        verdict = verdict_of(random_search(options.show), options.limit)
        _report(options.show, verdict, random_search(options.show), verdict.outcome)
        return int(verdict.outcome == "failed")
    tally = run(options.first, options.seeds, options.jobs, options.limit, options.shrink)
    print("\n" + tally.text())
    return int(bool(tally.failed))


if __name__ == "__main__":
    sys.exit(main())
