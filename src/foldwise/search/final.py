"""The final fit of a search: timed, foreseen where time is short, judged afterwards."""

from __future__ import annotations

import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from foldwise.estimators.machine import Machine
from foldwise.fit_time import fit_seconds
from foldwise.result import Result
from foldwise.search.refit import Refit

__all__ = ["FinalFit"]

FAR = 1.5
"""A final fit that ends beyond this many times ``max_time`` is worth a warning."""


class FinalFit:
    """For a search with ``estimator``, ``max_time`` and a result."""

    estimator: Any
    max_time: Any
    result_: Result
    probabilities_: Any
    residuals_: Any

    def _final_fit(self, refit: Refit, X: Any, y: Any, context: Any) -> None:
        """Fit a copy with the selected values to all rows."""
        estimator = refit.configured(clone(self.estimator))
        if self.max_time is not None:
            self._foresee(estimator, X, y, refit.given)
        began = time.perf_counter()
        task = None if context is None else context.subcontext(task_name="refit")
        with nullcontext() if task is None else task.propagate_callback_context(estimator):
            if task is not None:
                task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            refit.fit(estimator, X, y)
        if task is not None:
            task.call_on_fit_task_end(estimator=self, X=X, y=y)
        last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        if isinstance(last, Machine):
            last.adopt(self.probabilities_, self.residuals_)
        self.best_estimator_ = estimator
        self.refit_time_ = time.perf_counter() - began
        words, warn = refit.shortfall(estimator, X, y)
        if words:
            self.result_ = replace(self.result_, warnings=[*self.result_.warnings, words])
            if warn:
                warnings.warn(words, ConvergenceWarning, stacklevel=3)
        if context is not None:
            context.call_on_fit_task_end(estimator=self, X=X, y=y)

    def _foresee(self, estimator: Any, X: Any, y: Any, given: dict[str, Any]) -> None:
        """Estimate the time of the final fit, and warn when it goes far beyond ``max_time``."""
        seconds = fit_seconds(estimator, X, y, given)
        if seconds is None:
            return
        details = {**self.result_.details, "refit_estimate": seconds}
        words = (
            f"the final fit may take about {seconds:.0f} s; max_time={self.max_time:g} bounds the search alone, which "
            f"took {self.result_.elapsed:.1f} s. refit=False gives best_params_ and refit_params_ without it"
        )
        far = seconds > 1.0 and self.result_.elapsed + seconds > FAR * self.max_time
        known = [*self.result_.warnings, words] if far else self.result_.warnings
        self.result_ = replace(self.result_, details=details, warnings=known)
        if far:
            warnings.warn(words, UserWarning, stacklevel=4)
