"""Timing, the record of every measurement, and what it was measured on."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import foldwise

__all__ = ["Choice", "Record", "machine", "median", "rounds", "timed", "versions"]

PACKAGES = ("numpy", "scipy", "scikit-learn", "optuna", "liblinear-official")

PATIENCE = 60.0
"""Seconds beyond which a method is run once only."""


@dataclass
class Choice:
    """What a method selected and how long it took, several times over when it was repeated.

    Attributes
    ----------
    params : the selected values, as they act in a fold
    model : the model refitted on all rows; None when the method does not refit
    own_objective : the method's own cross-validation error at ``params``
    seconds, wall : processor and wall time, one entry per repetition, refit included
    evaluations : cross-validations that the method ran
    unconverged : scikit-learn's convergence warnings during the last repetition
    note : what a reader of the figure must know
    """

    params: dict[str, Any]
    model: Any = None
    own_objective: float | None = None
    seconds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    evaluations: int | None = None
    unconverged: int = 0
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def timed(method: Callable[[], Choice]) -> Choice:
    """Run a method once; its time unless it gave its own, and the convergence warnings it raised.

    Time is the processor's, which other work on the machine disturbs less than the clock on the wall; with one
    thread the two agree on an idle machine. Both are kept.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began, wall = time.process_time(), time.perf_counter()
        choice = method()
        elapsed, wall = time.process_time() - began, time.perf_counter() - wall
    choice.wall = [wall]
    if not choice.seconds:
        choice.seconds = [elapsed]
    choice.unconverged = sum(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return choice


def rounds(
    fast: dict[str, Callable[[], Choice]], slow: dict[str, Callable[[], Choice]], repeats: int, turn: int = 0
) -> dict[str, Choice]:
    """Run the methods alternately: every round has all fast methods and, while there are any left, one slow one.

    Fast methods collect ``repeats`` times; one that takes over a minute is not repeated. ``turn`` rotates the
    order within a round, so that over several seeds no method is always first. The first fast method is run first
    in the first round, because the others may need its answer.
    """
    out: dict[str, Choice] = {}
    waiting = list(slow.items())
    for r in range(max(repeats, len(waiting))):
        names = list(fast) if r < repeats else []
        if r and names:
            shift = (turn + r) % len(names)
            names = names[shift:] + names[:shift]
        for name in names:
            if name in out and out[name].seconds[0] > PATIENCE:
                continue
            choice = timed(fast[name])
            if name in out:
                choice.seconds = out[name].seconds + choice.seconds
                choice.wall = out[name].wall + choice.wall
            out[name] = choice
        if r < len(waiting):
            name, method = waiting[(r + turn) % len(waiting)]
            out[name] = timed(method)
    return out


def median(values) -> float:
    """Median of the numbers that are there; nan when there are none."""
    there = [float(value) for value in values if value is not None and np.isfinite(value)]
    return float(np.median(there)) if there else float("nan")


class Record:
    """All measurements of a run; written to a JSON file after every case, so an interrupted run keeps them."""

    def __init__(self, path: Path | None, arguments: dict[str, Any]) -> None:
        self.path, self.arguments = path, arguments
        self.measurements: list[dict[str, Any]] = []

    def add(
        self, suite: str, case: dict[str, Any], method: str, choice: Choice, **figures: Any
    ) -> dict[str, Any]:
        """Keep one method's figures on one case (a data set and a seed)."""
        entry = {
            "suite": suite,
            **case,
            "method": method,
            "seconds": median(choice.seconds),
            "seconds_all": choice.seconds,
            "wall_all": choice.wall,
            "params": choice.params,
            "own_objective": choice.own_objective,
            "evaluations": choice.evaluations,
            "unconverged": choice.unconverged,
            "note": choice.note,
            **choice.extra,
            **figures,
        }
        self.measurements.append(entry)
        return entry

    def write(self) -> None:
        """Write everything so far, whole or not at all."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(
            {
                "arguments": self.arguments,
                "machine": machine(),
                "versions": versions(),
                "measurements": self.measurements,
            },
            default=_plain,
            indent=1,
        )
        part = self.path.with_suffix(".part")
        part.write_text(text)
        part.replace(self.path)


def machine() -> dict[str, Any]:
    """The processor, as far as a reader needs it to judge seconds."""
    name = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line
        ]
        name = models[0] if models else name
    return {"cpu": name, "cpus": os.cpu_count(), "system": platform.system(), "threads_used": 1}


def versions() -> dict[str, str]:
    """Versions of the packages compared; "not installed" where one is missing."""
    from importlib.metadata import PackageNotFoundError, version

    out = {"python": sys.version.split()[0], "foldwise": f"{foldwise.__version__} ({_revision()})"}
    for package in PACKAGES:
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out


def _revision() -> str:
    """The commit that was measured, with a plus sign when the sources differ from it."""
    here = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (
            "+" if git("status", "--porcelain", "--", "src") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return "no commit"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot write {type(value).__name__} as JSON")
