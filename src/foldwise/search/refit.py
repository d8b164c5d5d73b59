"""The final fit: the user's estimator with the selected values, on all rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from foldwise.bilevel import Evaluation
from foldwise.final_fit import LINEAR, MACHINES, shortfall
from foldwise.fit_time import limited
from foldwise.nesting import innermost, is_wrapped
from foldwise.search.prepare import Program
from foldwise.search.stages import decisions_by_row

__all__ = ["Refit"]


@dataclass(frozen=True, eq=False)
class Refit:
    """A final fit.

    Attributes
    ----------
    program : the program that was searched
    params : the values, by their bare names
    sample_weight, sample_groups : as ``fit`` was given them
    end : the evaluation where the search ended, or None
    """

    program: Program
    params: Mapping[str, Any]
    sample_weight: Any
    sample_groups: Any
    end: Evaluation | None

    def configured(self, estimator: Any) -> Any:
        """A copy of the user's estimator, pipeline included, with the selected values."""
        return self.program.tunable.configure(estimator, self.params, self.program.data.classes)

    @property
    def given(self) -> dict[str, Any]:
        """What is passed to ``fit`` for every row, under the names of the last step."""
        prefix = self.program.tunable.fit_prefix or ""
        given = {"sample_weight": self.sample_weight, "sample_groups": self.sample_groups}
        return {prefix + name: value for name, value in given.items() if value is not None}

    def _start(self, estimator: Any) -> dict[str, Any]:
        """Decisions near the solution, for a machine that can start from them."""
        machine = innermost(estimator)
        program, end = self.program, self.end
        takes = has_fit_parameter(machine, "start") and not is_wrapped(estimator)
        if end is None or not program.model.resumes or not takes:
            return {}
        index = [sheet.index for sheet in program.recipe.sheets]
        known = decisions_by_row(program.bilevel, end, index, program.facts.n_rows)
        return {f"{program.tunable.fit_prefix}start": known}

    def fit(self, estimator: Any, X: Any, y: Any) -> None:
        """Fit it to all rows."""
        # What is given is for the last step, in folds and here: metadata routing inside a pipeline is not used.
        with config_context(enable_metadata_routing=False), limited(estimator, self.program.facts.n_rows):
            estimator.fit(X, y, **self.given, **self._start(estimator))

    def shortfall(self, estimator: Any, X: Any, y: Any) -> tuple[str, bool]:
        """A sentence where one of scikit-learn's machines did not solve its problem, and whether to warn of it."""
        machine, seen = innermost(estimator), X
        if not isinstance(machine, MACHINES) or is_wrapped(estimator) or np.asarray(y).ndim > 1:
            return "", False
        while isinstance(estimator, Pipeline):
            seen = estimator[:-1].transform(seen) if len(estimator) > 1 else seen
            estimator = estimator.steps[-1][1]
        # Linear ones stop early by their own tolerance, which is noted and not warned of.
        return shortfall(machine, seen, y, self.sample_weight), not isinstance(machine, LINEAR)
