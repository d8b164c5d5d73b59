"""What solvers and searches return: a status in words, a certificate, a history."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from html import escape
from typing import Any

import numpy as np

from foldwise.wording import format_fact, format_some

__all__ = ["Record", "Result", "Status", "as_json", "error_of", "foremost", "judged", "merge"]


SCHEMA = "foldwise-result-1"


class Status(StrEnum):
    """How a search ended."""

    CONVERGED = "converged"
    STALLED = "stalled"
    UNSOLVED = "unsolved training problem"
    EXHAUSTED = "exhausted"
    MAX_ITER = "iteration limit"
    TIME_LIMIT = "time limit"
    STOPPED = "stopped by callback"
    INTERRUPTED = "interrupted"


MESSAGES = {
    Status.CONVERGED: "No small step promises a lower error: a local minimum of the cross-validation error.",
    Status.STALLED: "No further decrease was found, although the hypergradient is not small; often a kink.",
    Status.UNSOLVED: "A training problem at the selected point is not solved, so its error is not to be relied on.",
    Status.EXHAUSTED: "Every point of the plan was evaluated.",
    Status.MAX_ITER: "The iteration limit was reached; raise max_iter for a better point.",
    Status.TIME_LIMIT: "The time limit was reached; this is the best point so far.",
    Status.STOPPED: "A callback asked to stop; this is the best point so far.",
    Status.INTERRUPTED: "Interrupted from the keyboard; this is the best point so far.",
}

ENDED = "The steps stopped lowering the error, often at a kink."
"""What is said instead of a minimum where the numbers do not support one."""

SMOOTH_TOL, KINKED_TOL = 1e-3, 1e-2
"""Largest promised decrease at a point that is called converged: of a smooth machine and criterion, and with kinks.

Ten times the accuracy of the objective to which the default method works on kernel machines of either kind. A method
that was asked for less accuracy is judged by ten times that.
"""
KKT_TOL = 1e-5
"""Largest relative KKT residual of a training problem that is called solved; those of smooth losses end at 1e-9."""

CUT_SHORT = (Status.INTERRUPTED, Status.TIME_LIMIT, Status.STOPPED)
"""Endings that say nothing about the point: the search would have gone on."""


def error_of(objective: float | None, fold_objectives: Sequence[float | None]) -> float:
    """The cross-validation error behind an objective: the mean over the folds, without a penalty that was added.

    >>> error_of(1.5, [1.0, 2.0]), error_of(1.75, [1.0, 2.0])
    (1.5, 1.5)
    """
    value = math.nan if objective is None else float(objective)
    known = [fold for fold in fold_objectives if fold is not None]
    mean = float(np.mean(known)) if known and len(known) == len(fold_objectives) else math.nan
    # A difference of rounding is no penalty; without folds the objective is all that is known.
    return value if math.isnan(mean) or math.isclose(mean, value, rel_tol=1e-9) else mean


@dataclass
class Record:
    """One evaluation of the cross-validation error.

    ``admissible`` is False for a point that does not keep the constraints of the method, such as a number of features,
    and for one whose training problems are not solved where others are: it is not returned, and ``best``, the lowest
    objective so far, is that of the others (infinite before the first).
    ``objective`` is what is minimised, ``error`` the same without the penalty that some searches add. ``metrics`` are
    lists of numbers by name: what a search with ``scoring`` measured of every fold.
    """

    start: int
    evaluation: int
    objective: float
    best: float
    params: dict[str, Any]
    gradient_norm: float | None
    elapsed: float
    note: str = ""
    fold_objectives: list[float] = field(default_factory=list)
    admissible: bool = True
    metrics: dict[str, list[float]] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """The cross-validation error."""
        return error_of(self.objective, self.fold_objectives)


@dataclass
class Result:
    """The outcome of a search, with the evidence for it.

    Attributes
    ----------
    theta, params : the selected point, as a vector and by name
    objective, objective_start : what was minimised, there and at the first admissible point evaluated: the
        cross-validation error, with one kernel width per feature plus the penalty on their spread (``shrinkage``)
    error, error_start, penalty : the cross-validation error alone, and what the objective adds to it, mostly 0
    fold_objectives : the error of each fold, averaged over the classes' problems
    status, message : how the search ended
    kkt : relative KKT residual of every inner solution, recomputed from the rows
    gradient_norm : norm of the hypergradient projected on the bounds
    promised_decrease : share of the objective that a step of a tenth of a natural unit (one e-fold on a log scale, a
        quarter of the range on a linear one) would gain, by the method's last knowledge of the point; None without
        gradients
    tolerances : what "converged" means: the largest ``promised_decrease`` and the largest entry of ``kkt``
    at_bound : entries that sit at a bound
    n_kinks : training rows within ``1e-9`` of a kink of the loss, over all inner solutions
    history : one record per evaluation
    approximation : None, or how kernels were approximated: the number of landmarks and a bound on what that changes in
        any decision
    optimism : how much lower the error is than on new rows, because it was minimised, by an estimate that is never
        negative; None where it is not known
    expected_error, error_interval : the error to expect on new rows, and a 95% interval for it: of classes the share of
        wrong predictions, of regressions the criterion; docs/uncertainty.md tells how they are found and how often they
        hold
    error_rate : the share of wrong out-of-fold predictions, as ``expected_error`` corrects it; None for regressions
    error_bars : a 95% interval of every selected value by name, as [lower, upper]
    best : None, or where a simpler point was taken (``choice``, ``confirm``) what the best one was: its "params",
        "error" and "objective", by how much the error of the one taken is higher ("difference"), and the "reason" in
        words; ``status``, ``gradient_norm`` and ``promised_decrease`` are then those of the best
    details : facts that one method alone knows about the point it ended at, as plain values by name; often empty
    """

    theta: list[float]
    params: dict[str, Any]
    objective: float
    objective_start: float
    fold_objectives: list[float]
    status: Status
    message: str
    method: str
    history: list[Record] = field(default_factory=list)
    kkt: list[float] = field(default_factory=list)
    gradient_norm: float | None = None
    promised_decrease: float | None = None
    tolerances: dict[str, float] = field(default_factory=dict)
    at_bound: dict[str, str] = field(default_factory=dict)
    n_kinks: int = 0
    n_evaluations: int = 0
    n_inner_steps: int = 0
    elapsed: float = 0.0
    seed: int | None = None
    version: str = ""
    warnings: list[str] = field(default_factory=list)
    approximation: dict[str, Any] | None = None
    details: dict[str, Any] = field(default_factory=dict)
    optimism: float | None = None
    expected_error: float | None = None
    error_interval: list[float] | None = None
    error_rate: float | None = None
    error_bars: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] | None = None

    @property
    def error(self) -> float:
        """The cross-validation error at the selected point."""
        return error_of(self.objective, self.fold_objectives)

    @property
    def error_start(self) -> float:
        """The cross-validation error at the first admissible point evaluated."""
        return next((record.error for record in self.history if record.admissible), self.objective_start)

    @property
    def penalty(self) -> float:
        """What was added to the error to make the objective."""
        return self.objective - self.error

    @property
    def solved(self) -> bool:
        """Whether all training problems at the selected point are solved, by their KKT residuals."""
        return bool(np.max(self.kkt, initial=0.0) <= self.tolerances.get("kkt", KKT_TOL))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the fields from a copy or a file; a file may hold the status as a plain text."""
        self.__dict__.update(state, status=Status(state["status"]))

    def to_json(self) -> str:
        """The whole result as JSON text; :meth:`from_json` gives it back."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, default=_plain, allow_nan=True)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """The result that :meth:`to_json` wrote."""
        try:
            content = json.loads(text)
        except ValueError as error:
            raise _not_a_result(error) from error
        return cls.from_plain(content)

    @classmethod
    def from_plain(cls, content: Mapping[str, Any]) -> Result:
        """The result that a JSON document holds; numbers that JSON lacks may be null there."""
        try:
            data = dict(content)
            schema = data.pop("schema", SCHEMA)
            if schema != SCHEMA:
                raise ValueError(f"its schema is {schema!r}, not {SCHEMA!r}")
            data["history"] = [Record(**_numbers(record, "best")) for record in data["history"]]
            data["status"] = Status(data["status"])
            return cls(**_numbers(data, "objective_start"))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _not_a_result(error) from error

    def summary(self) -> str:
        """The result in a few plain lines."""
        error, start = self.error, self.error_start
        change = 100 * (error / start - 1) if start else 0.0
        lines = [
            f"{self.method}: {self.status.value}. {self.message}",
            f"cross-validation error {error:.6g} (start {start:.6g}, {change:+.1f}%)",
            f"{self.n_evaluations} evaluations, {self.elapsed:.2f} s",
        ]
        lines[1:1] = self._on_metrics()
        if self.penalty:
            lines.insert(
                len(lines) - 1,
                f"minimised was {self.objective:.6g}: the error and a penalty of {self.penalty:.6g}",
            )
        if self.best is not None:
            more, lowest = self.best["difference"], self.best["error"]
            lines.append(f"{self.best['reason']}: its error is {more:.3g} above the best, {lowest:.6g}")
        lines += self._on_new_rows()
        for name, value in self.params.items():
            lines.append(f"  {name} = {format_some(value)}{self._bar(name)}")
        if self.at_bound:
            names = [f"{name} ({side})" for name, side in self.at_bound.items()]
            lines.append(f"at a bound: {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}")
        norm = "not computed" if self.gradient_norm is None else f"{self.gradient_norm:.2g}"
        kkt = max(self.kkt, default=float("nan"))
        lines.append(
            f"hypergradient norm {norm}; largest KKT residual {kkt:.1g}; samples at a kink {self.n_kinks}"
        )
        if self.promised_decrease is not None and self.tolerances:
            limit, share = self.tolerances["promised_decrease"], self.promised_decrease
            shown = "under 0.001" if share < 1e-5 else f"{100 * share:.2g}"
            lines.append(
                f"a small step promises {shown}% less error; converged means at most {100 * limit:.2g}%"
            )
        if self.approximation:
            rank, bound = self.approximation["landmarks"], self.approximation["bound"]
            lines.append(f"kernel through {rank} landmarks; decisions change by at most {bound:.1g}")
        facts = [
            f"{name.replace('_', ' ')} {format_fact(value, 6)}"
            for name, value in self.details.items()
            if isinstance(value, (str, int, float))
        ]
        if facts:
            lines.append(f"{self.method}: {'; '.join(facts)}")
        lines += [f"warning: {text}" for text in self.warnings]
        return "\n".join(lines)

    def _on_metrics(self) -> list[str]:
        """The metrics of ``scoring`` at the selected point, in a line; none where there are none."""
        found = next((one.metrics for one in self.history if one.metrics and one.params == self.params), {})
        means = {name[5:]: math.fsum(one) / len(one) for name, one in found.items() if name[:5] == "test "}
        if not means:
            return []
        told = ", ".join(f"{name} {mean:.6g}" for name, mean in means.items())
        chosen = "criterion_minimum" in self.details
        return [
            f"{told} in the folds" + (", by which this point was chosen, not by the error" if chosen else "")
        ]

    def _on_new_rows(self) -> list[str]:
        """What error to expect on new rows, in a line; none where it is not known."""
        if self.expected_error is None or self.error_interval is None:
            return []
        low, high = self.error_interval
        if self.error_rate is None:
            return [f"on new rows expect {self.expected_error:.4g} (95% interval {low:.4g} to {high:.4g})"]
        rate = f"{100 * self.expected_error:.1f}% (95% interval {100 * low:.1f}% to {100 * high:.1f}%)"
        return [f"on new rows expect {rate} wrong predictions; {100 * self.error_rate:.1f}% in the folds"]

    def _bar(self, name: str) -> str:
        """The 95% interval of a single selected value, in brackets."""
        low, high = self.error_bars.get(name, (None, None))
        if not isinstance(low, float) or not isinstance(high, float) or low == high:
            return ""
        return f" (95% interval {low:.3g} to {high:.3g})"

    def _repr_html_(self) -> str:
        """The summary for a notebook: selected values as a table, then the rest in words."""
        rows = "".join(
            f"<tr><td>{escape(str(name))}</td><td>{escape(format_some(value))}</td></tr>"
            for name, value in self.params.items()
        )
        own = [line for line in self.summary().splitlines() if not line.startswith("  ")]
        words = "".join(f"<li>{escape(line)}</li>" for line in own)
        head = "<tr><th>hyper-parameter</th><th>selected</th></tr>"
        return f"<table>{head}{rows}</table><ul>{words}</ul>"


def judged(result: Result) -> Result:
    """The result with the status that its own numbers support: the one rule for all methods.

    "converged" needs training problems that are solved and a promised decrease within tolerance, whatever a method's
    own stopping rule says; where both hold, a search that found no further decrease is converged, not stalled.
    """
    limits, promised = result.tolerances, result.promised_decrease
    worst = float(np.max(result.kkt, initial=0.0))
    warnings = list(result.warnings)
    if not result.solved:
        warnings.append(
            f"a training problem at the selected point is not solved: its KKT residual is {worst:.2g}, above "
            f"{limits['kkt']:.2g}. Scale the features (StandardScaler), or narrow the bounds"
        )
    result = replace(result, warnings=warnings)
    if result.status not in (Status.CONVERGED, Status.STALLED):
        return result
    if not result.solved:
        return replace(result, status=Status.UNSOLVED, message=MESSAGES[Status.UNSOLVED])
    if promised is not None and promised <= limits["promised_decrease"]:
        own = result.message if result.status is Status.CONVERGED else MESSAGES[Status.CONVERGED]
        return replace(result, status=Status.CONVERGED, message=own)
    limit = f"{100 * limits['promised_decrease']:.2g}%"
    # What a method says of a minimum does not stand beside a promise of less; its own words for other ends do.
    own = ENDED if result.message == MESSAGES[Status.CONVERGED] else result.message
    if promised is None or math.isnan(promised):
        left = f"What a small step promises is not known; converged means at most {limit}."
    else:
        left = f"By its slope a small step promises {100 * promised:.2g}% less error; converged means at most {limit}."
    message = (
        f"{own} {left} This is the best point seen; more starts or another method may find a better one."
    )
    return replace(result, status=Status.STALLED, message=message, warnings=[*warnings, message])


def foremost(results: Sequence[Result]) -> Result:
    """The result with the lowest objective, of those whose training problems are solved if there are any."""
    return min(results, key=lambda result: (not result.solved, result.objective))


def merge(before: list[Result], results: list[Result]) -> Result:
    """One result for several starts: the best point, the history of all, also of a stage before them.

    A search that was cut short says so, even when a start that had ended by then is the best. Lower values of training
    problems that are not solved are no better points, unless nothing else is known: they are not admissible.
    """
    best = foremost(results)
    cut = [result for result in results if result.status in CUT_SHORT]
    ending = cut[0] if cut else best
    history: list[Record] = []
    for stage in [*([result] for result in before), results]:
        lowest = np.inf  # a stage has an objective of its own: with tied widths, through landmarks
        for result in stage:
            passed_over = not result.solved and (best.solved or stage is not results)
            for record in result.history:
                admissible = record.admissible and not (passed_over and record.objective < best.objective)
                lowest = min(lowest, record.objective if admissible else np.inf)
                history.append(replace(record, evaluation=len(history), best=lowest, admissible=admissible))
    return replace(
        best,
        status=ending.status,
        message=ending.message,
        history=history,
        objective_start=next(record.objective for record in history if record.admissible),
        n_evaluations=len(history),
        n_inner_steps=sum(result.n_inner_steps for result in [*before, *results]),
    )


def as_json(value: Any) -> Any:
    """Plain lists, dicts, numbers and strings of a record, a result or anything inside them."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: as_json(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return as_json(value.tolist())
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, np.generic):
        return as_json(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _numbers(fields: Mapping[str, Any], *more: str) -> dict[str, Any]:
    """Fields of a record or a result, with nan where JSON has null for a number: the objective or ``more``."""
    out = {**fields, "fold_objectives": [math.nan if v is None else v for v in fields["fold_objectives"]]}
    if "metrics" in out:
        out["metrics"] = {
            name: [math.nan if v is None else v for v in one] for name, one in out["metrics"].items()
        }
    for name in ("objective", *more):
        if name in out and out[name] is None:
            out[name] = math.nan
    return out


def _not_a_result(error: Exception) -> ValueError:
    return ValueError(f"this is not a foldwise result ({error}); it must come from Result.to_json()")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot write {type(value).__name__} as JSON")
