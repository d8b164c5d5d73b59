"""What a search is asked for, read from its parameters: ranges, metrics, criterion, options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import has_fit_parameter

from foldwise.criteria import Criterion, get_criterion
from foldwise.estimators.encoding import encode_class_weight
from foldwise.estimators.tunable import Tunable
from foldwise.losses import Loss
from foldwise.models.base import Array
from foldwise.optimizers import METHODS
from foldwise.optimizers.base import Minimizer
from foldwise.search.judge import Judge
from foldwise.search.measure import Measure
from foldwise.search.plan import SearchOptions
from foldwise.search.prepare import Program
from foldwise.search.scoring import Scoring, check_classes, read_scoring
from foldwise.search.spaces import grid_points, range_of, read_branches

__all__ = ["SearchSettings"]


class SearchSettings:
    """For a search with the parameters of ``BilevelSearchCV``."""

    estimator: Any
    criterion: Any
    criterion_weight: Any
    threshold: Any
    method: Any
    method_options: Any
    shrinkage: Any
    prior: Any
    tol: Any
    max_iter: Any
    n_starts: Any
    random_state: Any
    resume: Any
    checkpoint: Any

    def _space(self) -> tuple[Any, dict[str, list[float]]]:
        """The ranges of a search without choices, and the values of every name that are visited in any case."""
        space = read_branches(self)[0].space
        if not isinstance(space, Mapping):
            return space, {}
        found = {name: range_of(spec) for name, spec in space.items()}
        return {name: own for name, (own, _) in found.items()}, {name: vs for name, (_, vs) in found.items()}

    def _scoring(self, tunable: Tunable, classes: Array | None) -> Scoring | None:
        """The metrics of this search; there is one threshold where there are two classes."""
        scoring = read_scoring(self, tunable)
        if scoring is None or classes is None:
            return scoring
        check_classes(scoring, classes)
        if len(classes) == 2 and hasattr(self.estimator, "decision_function"):
            return scoring
        if self.threshold is True:
            raise ValueError(
                f"threshold=True needs two classes and decisions; y has {len(classes)} classes, and "
                f"{type(self.estimator).__name__} must have decision_function. Leave it at 'auto'"
            )
        return replace(scoring, threshold=False)

    def _judge(self, program: Program, X: Any, y: Any, given: Mapping[str, Any]) -> Judge | None:
        """The metric that has the last word, or None."""
        scoring, grid = self._scoring(program.tunable, program.data.classes), grid_points(self._space()[1])
        bare = [program.tunable.check_names(point) for point in grid]
        points = [program.bilevel.space.theta(point) for point in bare]
        if scoring is None:
            return Judge(None, points) if points else None
        prefix = program.tunable.fit_prefix or ""
        own = {prefix + name: np.asarray(value) for name, value in given.items() if value is not None}
        return Judge(Measure(program, scoring, self.estimator, X, y, own), points, self.max_iter)

    def _check_together(self, tunable: Tunable, sample_groups: Any, sample_weight: Any) -> None:
        """What depends on more than one argument."""
        if self.resume and self.checkpoint is None:
            raise ValueError("resume=True needs checkpoint=, the file to continue from")
        if tunable.task == "regression" and self.criterion_weight not in ("auto", None):
            raise ValueError(
                f"criterion_weight={self.criterion_weight!r} weighs classes, and {type(tunable.estimator).__name__} is "
                "a regressor; leave it at 'auto', and pass weights of rows as sample_weight of fit"
            )
        method = self._method_kind()
        if self.prior and not method.shrinks:
            raise ValueError(
                f"prior={self.prior:g} is added to the error, and the program of method {method.name!r} has "
                "no such term; leave prior out, or use method='newton'"
            )
        if sample_weight is not None and tunable.fit_prefix is None:
            raise ValueError(
                f"{type(self.estimator).__name__} does not hand sample_weight on to the "
                f"{type(tunable.estimator).__name__} inside it; leave sample_weight out, or leave the wrapper out"
            )
        if sample_groups is not None and not has_fit_parameter(tunable.estimator, "sample_groups"):
            raise ValueError(
                f"{type(tunable.estimator).__name__} has no hyper-parameter per group of samples; leave sample_groups "
                "out (groups is for the splitter), or use an estimator of foldwise"
            )

    def _criterion_weight(self, classes: Array | None, scoring: Scoring | None) -> Any:
        """Weights of the classes in the criterion, by code."""
        spec = self.criterion_weight
        if scoring is not None and scoring.balanced and [spec, self.criterion] == ["auto", "auto"]:
            return "balanced"
        if not isinstance(spec, dict):
            return spec
        assert classes is not None
        try:
            return encode_class_weight(spec, classes)
        except ValueError as error:
            raise ValueError(f"criterion_weight={spec!r}: {error}") from error

    def _criterion(self, tunable: Tunable, scoring: Scoring | None) -> Loss | Criterion:
        if isinstance(self.criterion, str) and self.criterion == "auto":
            by_row = self._method_kind().needs_loss
            if scoring is None or by_row:
                return tunable.criterion(by_row=by_row)
            return scoring.criterion(tunable)
        criterion = get_criterion(self.criterion)
        if tunable.task == "regression" and criterion.task == "classification":
            raise ValueError(
                f"criterion {self.criterion!r} needs classes, and {type(tunable.estimator).__name__} is a regressor; "
                "use 'squared' or 'absolute'"
            )
        return criterion

    def _shrinkage(self) -> float | None:
        """The penalty on the spread of widths; none by default for a method whose program does not have it."""
        return 0.0 if self.shrinkage is None and not self._method_kind().shrinks else self.shrinkage

    def _method_kind(self) -> Any:
        """The class or object that says what the method can do; of "auto" and unknown names what most methods can."""
        return METHODS.get(self.method, Minimizer) if isinstance(self.method, str) else self.method

    def _options(self, program: Program) -> SearchOptions:
        """What was asked for, as a plan takes it."""
        options = dict(self.method_options or {})
        start = options.pop("start", None)
        if start is not None:
            start = program.tunable.start(start, program.bilevel.space, program.data.classes)
        return SearchOptions(
            method=self.method,
            start=start,
            options=options,
            tol=self.tol,
            max_iter=self.max_iter,
            n_starts=self.n_starts,
            seed=int(check_random_state(self.random_state).randint(2**31)),
        )
