"""The user's metric as the judge of a search: which point is best, and a few steps around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.losses import Absolute, Logistic, Pinball, Squared
from foldwise.models.base import Array
from foldwise.optimizers.base import Minimizer, StopSearch, Trace
from foldwise.result import Record, Status
from foldwise.search.measure import Measure
from foldwise.search.metrics import metric_name, metric_options
from foldwise.search.polish import polish, polish_rule
from foldwise.search.table import SAME

__all__ = ["Judge"]


@dataclass(frozen=True, eq=False)
class Judge:
    """What a metric says about points.

    Attributes
    ----------
    measure : Measure or None
        None where the criterion itself decides.
    extra : points that are to be visited in any case, such as those of a grid
    max_iter : evaluations of a polish at most; None for its own limit
    """

    measure: Measure | None
    extra: Sequence[Array] = ()
    max_iter: int | None = None

    def better(self, one: Record, other: Record) -> bool:
        """Whether a point is better: by the metric, or by the criterion where that is equal."""
        if not one.admissible or not np.isfinite(one.objective):
            return False
        if not other.admissible or not np.isfinite(other.objective):
            return True
        here, there = (np.nan if self.measure is None else self.measure.value(r) for r in (one, other))
        if not np.isfinite(here) or not np.isfinite(there):
            return (
                np.isfinite(here)
                if np.isfinite(here) != np.isfinite(there)
                else one.objective < other.objective
            )
        if abs(here - there) > SAME * max(abs(here), abs(there)):
            return bool(here > there)
        return one.objective < other.objective

    def best(self, records: Sequence[Record]) -> Record:
        """The best of these points, the first of equal ones."""
        best = records[0]
        for record in records[1:]:
            if self.better(record, best):
                best = record
        return best

    def agrees(self, bilevel: Bilevel) -> bool:
        """Whether the metric is the criterion itself, so that there is nothing to polish."""
        if self.measure is None:
            return True
        scorer, loss = self.measure.scoring.main, bilevel.criterion.loss
        name, rows, options = metric_name(scorer), self.measure.program.data.rows, metric_options(scorer)
        if rows.weight is not None:
            return False
        if name == "mean_pinball_loss":
            return isinstance(loss, Pinball) and loss.quantile == float(options.get("alpha", 0.5))
        same = {"mean_squared_error": Squared, "mean_absolute_error": Absolute}
        if name == "log_loss":
            alike = self.measure.program.model.criterion_weight in ("auto", None)
            own = self.measure.answers.know("predict_proba")
            return (
                own
                and alike
                and isinstance(loss, Logistic)
                and self.measure.program.model.class_weight is None
            )
        return name in same and isinstance(loss, same[name])

    def polished(
        self,
        bilevel: Bilevel,
        known: Evaluation,
        theta: Array,
        best: Record,
        limits: Mapping[str, Any],
        method: Minimizer,
    ) -> tuple[list[Record], Status, Evaluation | None]:
        """The evaluations of a polish from a point, how it ended, and the best evaluation if it found a better one.

        ``known`` is where the search ended.
        """
        trace = Trace(bilevel, admits=partial(method.admits, bilevel.space), **limits)
        trace.go_on_from(known)
        metric = "" if self.measure is None else metric_name(self.measure.scoring.main)
        rule, end = polish_rule(metric), None
        free = bool(np.any(bilevel.space.upper > bilevel.space.lower))
        steps = None if self.agrees(bilevel) or not free or not method.needs_gradient else rule
        try:
            for end in polish(trace, known, theta, best, self.better, steps, self.extra, self.max_iter):  # noqa: B007
                pass
            status = Status.CONVERGED
        except StopSearch as stop:
            status = stop.status
        except KeyboardInterrupt:
            bilevel.reset()
            status = Status.INTERRUPTED
        return trace.history, status, end
