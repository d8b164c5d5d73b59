"""``scoring`` and ``refit`` as ``GridSearchCV`` takes them: which metrics, which decides, what is minimised for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.metrics._scorer import _BaseScorer

from foldwise.arguments import NONE, Rule, number, one_of, sequence, shown
from foldwise.criteria import Criterion, PairwiseHinge, ProfiledLogistic
from foldwise.estimators.tunable import Tunable
from foldwise.losses import Absolute, Logistic, Loss, Pinball, Squared
from foldwise.models.base import Array
from foldwise.search.metrics import COUNTED, metric_name, metric_options

__all__ = [
    "ERROR_SCORE",
    "REFIT",
    "SCORING",
    "SINGLE",
    "THRESHOLD",
    "Scoring",
    "check_classes",
    "read_scoring",
]

SINGLE = "score"
"""The name of a metric that is alone, in columns such as ``mean_test_score``."""
CRITERION = "criterion"
"""The name of the criterion in the table beside metrics."""


def _is_scoring(value: Any) -> bool:
    return isinstance(value, (str, Mapping)) or callable(value) or TEXTS.allows(value)


TEXTS = sequence(lambda name: isinstance(name, str), "names of metrics", 1)
SCORING = Rule(
    "the name of a metric, a callable(estimator, X, y), a list of names, or a dict from name to either",
    _is_scoring,
)
REFIT = Rule(
    "True, False, the name of a metric of scoring, or a callable(cv_results_) that returns a row's number",
    lambda v: isinstance(v, (bool, str)) or type(v).__name__ == "bool_" or callable(v),
)
ERROR_SCORE = replace(
    one_of("raise") | number() | Rule("nan", lambda v: v != v),
    do="nan leaves a fold without a score; 'raise' ends the search",
)
THRESHOLD = replace(
    one_of("auto", True, False) | NONE,
    do="'auto' tunes the decision threshold where the metric is balanced accuracy, an F-measure or of that kind",
)

WITH_THRESHOLD = (
    "balanced_accuracy_score",
    "f1_score",
    "fbeta_score",
    "jaccard_score",
    "matthews_corrcoef",
    "cohen_kappa_score",
)
"""Metrics that weigh both kinds of error, and that a threshold at 0 seldom serves best."""
PROBABILITIES = ("log_loss", "brier_score_loss", "d2_log_loss_score", "d2_brier_score")
ABSOLUTE = (
    "mean_absolute_error",
    "median_absolute_error",
    "mean_absolute_percentage_error",
    "d2_absolute_error_score",
)
SQUARED = (
    "mean_squared_error",
    "root_mean_squared_error",
    "mean_squared_log_error",
    "root_mean_squared_log_error",
    "r2_score",
    "explained_variance_score",
    "max_error",
    "mean_poisson_deviance",
    "mean_gamma_deviance",
    "mean_tweedie_deviance",
    "d2_tweedie_score",
)
OF_CLASSES = (*COUNTED, *PROBABILITIES, "roc_auc_score", "average_precision_score", "top_k_accuracy_score")


@dataclass(frozen=True, eq=False)
class Scoring:
    """What a search measures beside its criterion.

    Attributes
    ----------
    scorers : mapping from name to scorer
        A single one is called "score".
    given : what ``scorer_`` is
    driver : the name of the metric that decides; None where one callable gives several, until the first is known
    error_score : what a fold gets whose metric fails, or "raise"
    train : whether training rows are scored too
    threshold : whether the decision threshold is tuned with the values
    """

    scorers: Mapping[str, Any]
    given: Any
    driver: str | None
    error_score: Any
    train: bool = False
    threshold: bool = False
    multimetric: bool = field(default=False)

    @property
    def main(self) -> Any:
        """The scorer that decides, as far as it is known."""
        first = next(iter(self.scorers.values()))
        return first if self.driver is None else self.scorers.get(self.driver, first)

    def criterion(self, tunable: Tunable) -> Loss | Criterion:
        """What is minimised on the way to the metric that decides: a criterion with slopes, made for it."""
        name, options = metric_name(self.main), metric_options(self.main)
        if tunable.task == "regression":
            if name in ("mean_pinball_loss", "d2_pinball_score"):
                return Pinball(float(options.get("alpha", 0.5)))
            return Absolute() if name in ABSOLUTE else Squared() if name in SQUARED else tunable.criterion()
        if self.threshold:
            return ProfiledLogistic(offset=True)
        if name in ("roc_auc_score", "average_precision_score"):
            return PairwiseHinge()
        if name in PROBABILITIES:
            own = tunable.criterion()
            return own if isinstance(own, Logistic) and own.s == 1.0 else ProfiledLogistic()
        return tunable.criterion()

    @property
    def balanced(self) -> bool:
        """Whether the criterion is to weigh all classes alike."""
        name = metric_name(self.main)
        return name in COUNTED and name != "accuracy_score"


def read_scoring(search: Any, tunable: Tunable) -> Scoring | None:
    """The metrics of a search; None where the criterion alone decides."""
    scoring, refit = search.scoring, search.refit
    if scoring is None:
        _check_without(search)
        return None
    given: Any
    if isinstance(scoring, str) or callable(scoring):
        scorers = {SINGLE: _scorer(scoring)}
        own = isinstance(scorers[SINGLE], _BaseScorer)  # others may give several numbers by name
        if isinstance(refit, str) and own:
            raise ValueError(
                f"refit={refit!r} names a metric, and scoring={shown(scoring)} is a single one; set refit=True, or "
                f"scoring={{{refit!r}: ...}}"
            )
        driver, given = (SINGLE if own or not isinstance(refit, str) else refit), scorers[SINGLE]
    else:
        scorers = {name: _scorer(one) for name, one in _named(scoring).items()}
        if CRITERION in scorers:
            raise ValueError(
                f"the metric's name {CRITERION!r} is that of the criterion in cv_results_; take another"
            )
        if isinstance(refit, str) and refit not in scorers:
            raise ValueError(f"refit={refit!r} is none of the metrics of scoring: {', '.join(scorers)}")
        if not isinstance(refit, str) and not callable(refit) and refit:
            names = ", ".join(repr(name) for name in scorers)
            raise ValueError(
                f"with several metrics refit must name the one that decides ({names}), be a callable on cv_results_, "
                f"or False; got refit={refit!r}"
            )
        driver, given = (refit if isinstance(refit, str) else next(iter(scorers))), scorers
    multimetric = not (isinstance(scoring, str) or callable(scoring))
    out = Scoring(
        scorers, given, driver, search.error_score, bool(search.return_train_score), False, multimetric
    )
    _check_task(out, tunable)
    return replace(out, threshold=_tunes_threshold(search.threshold, out, tunable))


def _check_without(search: Any) -> None:
    """What has no meaning without metrics."""
    if isinstance(search.refit, str):
        raise ValueError(
            f"refit={search.refit!r} names a metric, and scoring is None; set refit=True, or scoring=[{search.refit!r}]"
        )
    if search.return_train_score:
        raise ValueError("return_train_score=True needs scoring, such as scoring='accuracy' or 'r2'")
    if search.threshold is True:
        raise ValueError("threshold=True needs scoring, such as scoring='balanced_accuracy' or 'f1'")


def _named(scoring: Any) -> dict[str, Any]:
    """Several metrics by name."""
    if isinstance(scoring, Mapping):
        if not scoring or not all(isinstance(name, str) for name in scoring):
            raise ValueError(f"scoring must name every metric by a text; got {shown(scoring)}")
        return dict(scoring)
    names = list(scoring)
    if len(set(names)) < len(names):
        raise ValueError(f"scoring names a metric twice: {shown(names)}; name each once")
    return dict.fromkeys(names) | {name: name for name in names}


def _scorer(spec: Any) -> Any:
    """A scorer from its name, or a callable itself; a bare metric is refused."""
    if not isinstance(spec, str):
        if not callable(spec):
            raise ValueError(f"a metric of scoring must be a name or a callable; got {shown(spec)}")
        if getattr(spec, "__module__", "").startswith("sklearn.metrics.") and not isinstance(
            spec, _BaseScorer
        ):
            raise ValueError(
                f"scoring={spec.__name__} is a metric of targets and predictions, not a scorer; write "
                f"make_scorer({spec.__name__}), with greater_is_better=False for an error"
            )
        return spec
    try:
        return get_scorer(spec)
    except (KeyError, ValueError) as error:
        alike = get_close_matches(str(spec), get_scorer_names(), n=1)
        meant = f" Did you mean {alike[0]!r}?" if alike else ""
        raise ValueError(
            f"scoring={spec!r} is no metric of scikit-learn; sklearn.metrics.get_scorer_names() lists them.{meant}"
        ) from error


def _check_task(scoring: Scoring, tunable: Tunable) -> None:
    """Refuse metrics of the other task, which could only fail in every fold."""
    for name, scorer in scoring.scorers.items():
        function = metric_name(scorer)
        wrong = function in OF_CLASSES if tunable.task == "regression" else function in (*SQUARED, *ABSOLUTE)
        if wrong:
            usual = (
                "'r2' or 'neg_mean_squared_error'" if tunable.task == "regression" else "'accuracy' or 'f1'"
            )
            kind = "classes" if tunable.task == "regression" else "numbers"
            raise ValueError(
                f"scoring: the metric {function if name == SINGLE else name!r} is for {kind}, and "
                f"{type(tunable.estimator).__name__} is for {tunable.task}; use a metric such as {usual}"
            )


OF_TWO = ("f1_score", "fbeta_score", "precision_score", "recall_score", "jaccard_score")
"""Metrics of a positive class, by default."""


def check_classes(scoring: Scoring, classes: Array) -> None:
    """Refuse a metric that decides and that could only fail in every fold with these classes."""
    name, options = metric_name(scoring.main), metric_options(scoring.main)
    several, labels = len(classes) > 2, ", ".join(map(repr, classes.tolist()[:5]))
    binary = name in OF_TWO and options.get("average", "binary") == "binary"
    if binary and several:
        raise ValueError(
            f"scoring: {name} is for two classes, and y has {len(classes)}; average it over the classes, such as "
            "'f1_macro', or make_scorer(..., average='macro')"
        )
    positive = options.get("pos_label", 1)
    if (binary or (name == "average_precision_score" and not several)) and positive not in classes.tolist():
        asked = "" if binary else ", response_method=('decision_function', 'predict_proba')"
        raise ValueError(
            f"scoring: {name} counts the class {positive!r}, and y has {labels}; write "
            f"make_scorer({name}, pos_label={classes.tolist()[-1]!r}{asked})"
        )
    if name == "roc_auc_score" and several and options.get("multi_class", "raise") == "raise":
        raise ValueError(
            f"scoring: roc_auc_score is for two classes here, and y has {len(classes)}; use 'roc_auc_ovr' or "
            "'roc_auc_ovo'"
        )


def _tunes_threshold(wanted: Any, scoring: Scoring, tunable: Tunable) -> bool:
    """Whether the threshold is tuned, as far as it is known without the rows (there must be two classes)."""
    if tunable.task != "classification" or not wanted:
        if wanted is True:
            raise ValueError("threshold=True is for classes; leave it at 'auto' for a regression")
        return False
    if wanted is True:
        return True
    main = scoring.main
    binary = metric_options(main).get("average", "binary") == "binary"
    return metric_name(main) in WITH_THRESHOLD and binary
