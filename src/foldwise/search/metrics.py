"""The values of scikit-learn's usual metrics from decisions, without its calls: what a search asks for at every point.

A scorer of scikit-learn takes milliseconds for every fold, often more than the training problems of a fold. The usual
metrics are sums and counts, written down here; what is not here, or has settings that are not, is asked of the scorer
itself. Both give the same number but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import rankdata

from foldwise.models.base import Array

__all__ = ["COUNTED", "counted", "formula", "metric_name", "metric_options"]

Formula = Callable[[Array, Array], "float | None"]
"""Decisions (classes: codes that are predicted, or decisions) and targets to a value; None where it has none."""


def metric_name(scorer: Any) -> str:
    """The name of the function behind a scorer of scikit-learn; "" for others."""
    return getattr(getattr(scorer, "_score_func", None), "__name__", "")


def metric_options(scorer: Any) -> dict[str, Any]:
    """What the function behind a scorer is called with."""
    return dict(getattr(scorer, "_kwargs", None) or {})


# Two classes: from counts of rows that are right and wrong.


def _ratio(above: Array, below: Array) -> Array:
    """A ratio of counts; 0 where nothing is counted, as scikit-learn has it."""
    return np.divide(
        above, below, out=np.zeros(np.broadcast(above, below).shape), where=np.asarray(below) > 0
    )


def _balanced(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return 0.5 * (_ratio(tp, tp + fn) + _ratio(tn, tn + fp))


def _matthews(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return _ratio(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


def _kappa(tp: Array, fp: Array, fn: Array, tn: Array) -> Array:
    return _ratio(2.0 * (tp * tn - fn * fp), (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn))


def _f_beta(beta: float) -> Callable[..., Array]:
    b = beta**2
    return lambda tp, fp, fn, tn: _ratio((1.0 + b) * tp, (1.0 + b) * tp + b * fn + fp)


COUNTED: dict[str, Callable[..., Any]] = {
    "accuracy_score": lambda tp, fp, fn, tn: _ratio(tp + tn, tp + fp + fn + tn),
    "balanced_accuracy_score": _balanced,
    "f1_score": _f_beta(1.0),
    "fbeta_score": _f_beta,
    "precision_score": lambda tp, fp, fn, tn: _ratio(tp, tp + fp),
    "recall_score": lambda tp, fp, fn, tn: _ratio(tp, tp + fn),
    "jaccard_score": lambda tp, fp, fn, tn: _ratio(tp, tp + fp + fn),
    "matthews_corrcoef": _matthews,
    "cohen_kappa_score": _kappa,
}
"""Metrics of two classes that follow from the counts of true and false positives and negatives."""

SYMMETRIC = ("accuracy_score", "balanced_accuracy_score", "matthews_corrcoef", "cohen_kappa_score")
"""Of these the ones without a positive class."""


def counted(scorer: Any, classes: Array) -> tuple[Callable[..., Array], int] | None:
    """A scorer of two classes as a function of counts, and the code of its positive class; None for others."""
    name, options = metric_name(scorer), metric_options(scorer)
    if name not in COUNTED or len(classes) != 2 or getattr(scorer, "_response_method", "") != "predict":
        return None
    positive = 1
    if name not in SYMMETRIC:
        label = options.pop("pos_label", 1)
        found = np.flatnonzero(np.asarray([one == label for one in classes.tolist()], bool))
        if len(found) != 1 or options.pop("average", "binary") != "binary":
            return None  # an error, or an average, that the scorer itself has words for
        positive = int(found[0])
    function: Any = COUNTED[name]
    if name == "fbeta_score":
        function = _f_beta(float(options.pop("beta")))
    sign = float(scorer._sign)
    return None if options else ((lambda *counts: sign * function(*counts)), positive)


# Other metrics, of one fold.


def _from_counts(function: Callable[..., Array], positive: int) -> Formula:
    def value(predicted: Array, codes: Array) -> float | None:
        p, y = predicted == positive, codes == positive
        if not 0 < int(y.sum()) < len(y):
            return None  # a class is missing, which scikit-learn has rules for
        tp, right = float(np.sum(p & y)), float(np.sum(p == y))
        tn, positives = right - tp, float(y.sum())
        counts = tp, float(p.sum()) - tp, positives - tp, tn
        return float(function(*map(np.asarray, counts)))

    return value


def _accuracy(predicted: Array, codes: Array) -> float:
    return float(np.mean(predicted == codes))


def _recalls(predicted: Array, codes: Array) -> float | None:
    total = np.bincount(codes)
    present = total > 0
    if not np.all(np.isin(predicted, np.flatnonzero(present))):
        return None
    return float(
        np.mean(np.bincount(codes[predicted == codes], minlength=len(total))[present] / total[present])
    )


def _area(z: Array, codes: Array) -> float | None:
    """The share of pairs of rows of two classes that are in order; ties count half."""
    positives = float(np.sum(codes == 1))
    negatives = len(codes) - positives
    if positives == 0 or negatives == 0:
        return None
    ranks = rankdata(z)
    return float((ranks[codes == 1].sum() - 0.5 * positives * (positives + 1.0)) / (positives * negatives))


def _precision_on_average(z: Array, codes: Array) -> float | None:
    positives = float(np.sum(codes == 1))
    if positives == 0:
        return None
    order = np.argsort(-z, kind="stable")
    hits = np.cumsum(codes[order] == 1)
    last = np.flatnonzero(np.append(np.diff(z[order]) != 0, True))  # of rows with equal decisions
    gained = np.diff(np.concatenate([[0.0], hits[last]]))
    return float(np.sum(gained * hits[last] / (last + 1.0)) / positives)


def _explained(z: Array, y: Array) -> float | None:
    spread = float(np.var(y))
    return None if spread == 0 else 1.0 - float(np.var(y - z)) / spread


def _r2(z: Array, y: Array) -> float | None:
    spread = float(np.sum((y - y.mean()) ** 2))
    return None if spread == 0 or len(y) < 2 else 1.0 - float(np.sum((y - z) ** 2)) / spread


def _pinball(z: Array, y: Array, alpha: float = 0.5) -> float:
    return float(np.mean(np.maximum(alpha * (y - z), (alpha - 1.0) * (y - z))))


REGRESSION: dict[str, Callable[..., float | None]] = {
    "mean_squared_error": lambda z, y: float(np.mean((z - y) ** 2)),
    "root_mean_squared_error": lambda z, y: float(np.sqrt(np.mean((z - y) ** 2))),
    "mean_absolute_error": lambda z, y: float(np.mean(np.abs(z - y))),
    "median_absolute_error": lambda z, y: float(np.median(np.abs(z - y))),
    "max_error": lambda z, y: float(np.max(np.abs(z - y))),
    "r2_score": _r2,
    "explained_variance_score": _explained,
    "mean_pinball_loss": _pinball,
}


def formula(scorer: Any, classes: Array | None) -> tuple[Formula, str] | None:
    """A scorer as a function of one fold's "predict" or "decision_function" and targets (codes of classes).

    None where the scorer itself has to be asked.
    """
    name, options = metric_name(scorer), metric_options(scorer)
    sign = float(getattr(scorer, "_sign", 1))

    def signed(function: Callable[..., float | None], **more: Any) -> Formula:
        def value(z: Array, y: Array) -> float | None:
            found = function(z, y, **more)
            return None if found is None or not np.isfinite(found) else sign * found

        return value

    if classes is None:
        allowed = {"alpha"} if name == "mean_pinball_loss" else set()
        known = name in REGRESSION and set(options) <= allowed
        return (signed(REGRESSION[name], **options), "predict") if known else None
    response = getattr(scorer, "_response_method", "")
    if (found := counted(scorer, classes)) is not None:
        return _from_counts(*found), "predict"
    if options:
        return None
    if name in ("accuracy_score", "balanced_accuracy_score") and response == "predict":
        return signed(_accuracy if name == "accuracy_score" else _recalls), "predict"
    ranks = {"roc_auc_score": _area, "average_precision_score": _precision_on_average}
    first = response[0] if isinstance(response, (tuple, list)) else response
    zero_one = set(classes.tolist()) in ({0, 1}, {-1, 1}) or name == "roc_auc_score"
    if name in ranks and len(classes) == 2 and first == "decision_function" and zero_one:
        return signed(ranks[name]), "decision_function"
    return None
