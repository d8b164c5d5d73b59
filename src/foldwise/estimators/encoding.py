"""What estimators and searches share: callbacks, classes and groups as codes, the rows of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, column_or_1d

from foldwise.arguments import CLASS_WEIGHT, check_value
from foldwise.models.base import Rows

try:  # scikit-learn 1.9 brought callbacks
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef,unused-ignore]
        """Nothing to support before scikit-learn 1.9."""

        def _init_callback_context(self, **options: Any) -> None:
            return None

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:  # type: ignore[no-redef,unused-ignore]
        """The method itself: scikit-learn before 1.9 has no callbacks."""
        return method


__all__ = [
    "CallbackSupportMixin",
    "all_or_nothing",
    "check_class_mass",
    "check_target",
    "check_weight",
    "encode_class_weight",
    "encode_classes",
    "encode_groups",
    "fitted_rows",
    "with_callbacks",
]


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """What a fit sets, of this or a former one, is dropped when the fit fails: half of each would predict wrongly."""
    try:
        yield
    except BaseException:
        for name in [n for n in vars(estimator) if n[0] != "_" and n[-1] == "_"]:
            delattr(estimator, name)
        raise


def fitted_rows(estimator: Any, X: Any, y: Any, sample_weight: Any, sample_groups: Any) -> Rows:
    """The rows that an estimator is fitted to; sets its ``group_labels_`` and, of a classifier, ``classes_``."""
    estimator._init_callback_context()
    weight = None
    if sample_weight is not None:
        weight = check_weight(sample_weight, X)
    group, estimator.group_labels_ = encode_groups(sample_groups, len(y))
    if estimator._task == "regression":
        return Rows(y[None].astype(float), weight, group, estimator.group_labels_)
    estimator.classes_, Y, codes = encode_classes(y)
    check_class_mass(estimator.classes_, codes, weight)
    return Rows(Y, weight, group, estimator.group_labels_, codes, estimator.classes_.tolist())


def check_weight(sample_weight: Any, X: Any) -> np.ndarray:
    """Weights of the rows of X in double precision: finite, not negative and not all zero."""
    weight = _check_sample_weight(sample_weight, X, dtype=float, ensure_non_negative=True)
    if not np.any(weight):  # scikit-learn's own check lets this pass in its older versions
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weight


def check_target(y: Any, task: str) -> np.ndarray:
    """The target as a flat array: numbers for regression, values of one kind for classification.

    What is missing, infinite, text where numbers are needed or of mixed kinds is refused, with the rows.
    """
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None")
    if np.asarray(y).dtype.kind == "c":
        raise ValueError("Complex data not supported in y; give real numbers or classes")
    y = column_or_1d(y, warn=True)
    if not len(y):
        raise ValueError("Found array with 0 sample(s) in y; at least one row is needed")
    missing = np.array([_is_missing(value) for value in y]) if y.dtype.kind == "O" else _where(np.isnan, y)
    if missing.any():
        raise ValueError(
            f"Input y contains NaN or None in {_rows(missing)}; drop these rows, or fill them in"
        )
    if (infinite := _where(np.isinf, y)).any():
        raise ValueError(f"Input y contains infinity in {_rows(infinite)}; drop these rows, or correct them")
    if task == "regression":
        if y.dtype.kind in "OUSV":
            try:
                y = y.astype(float)
            except (TypeError, ValueError):
                raise ValueError(
                    f"y has values that are no numbers, such as {_first_text(y)!r}; regression needs "
                    "numbers. For classes use a classifier"
                ) from None
            return check_target(y, task)
        return y.astype(float)
    kinds = sorted({type(value).__name__ for value in y}) if y.dtype.kind == "O" else []
    if "str" in kinds and len(kinds) > 1:
        raise ValueError(f"y mixes values of types {', '.join(kinds)}; make them all text: y.astype(str)")
    return y


def _first_text(y: np.ndarray) -> Any:
    """The first value that is no number."""
    for value in y.tolist():
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return y.tolist()[0]


def _where(test: Any, y: np.ndarray) -> np.ndarray:
    return test(y) if y.dtype.kind in "fc" else np.zeros(len(y), dtype=bool)


def _is_missing(value: Any) -> bool:
    nothing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return nothing or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))


def _rows(bad: np.ndarray, most: int = 5) -> str:
    """Which rows, the first of them by number (from 0)."""
    found = np.flatnonzero(bad)
    named = ", ".join(str(row) for row in found[:most])
    more = f", ... ({len(found)} rows)" if len(found) > most else ""
    return f"row{'s' if len(found) > 1 else ''} {named}{more}"


def encode_groups(sample_groups: Any, n: int) -> tuple[np.ndarray | None, list[Any]]:
    """Codes 0..G-1 of the groups and their sorted labels."""
    if sample_groups is None:
        return None, []
    array = np.asarray(sample_groups)
    if array.shape != (n,):
        raise ValueError(f"sample_groups must have one entry per row, shape ({n},); got shape {array.shape}")
    missing = np.array([_is_missing(value) for value in array.tolist()], dtype=bool)
    if missing.any():
        raise ValueError(f"sample_groups has no value in {_rows(missing)}; every row needs a group")
    if len(kinds := sorted({type(value).__name__ for value in array.tolist()})) > 1 and "str" in kinds:
        raise ValueError(f"sample_groups mixes values of types {', '.join(kinds)}; make them all text")
    labels, codes = np.unique(array, return_inverse=True)
    return codes, labels.tolist()


def encode_classes(y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes, targets in {-1, +1} (one row, or one per class when there are more than two), and codes."""
    if type_of_target(y) in ("continuous", "continuous-multioutput"):
        values = len(np.unique(y))
        raise ValueError(
            f"Unknown label type: y is continuous, with {values} different values; a classifier needs classes. Use a "
            "regressor (LinearSVR, KernelSVR), or make classes of it"
        )
    if type_of_target(y) == "unknown":
        kinds = ", ".join(sorted({type(value).__name__ for value in y}))
        raise ValueError(
            f"Unknown label type: y is an array of objects of type {kinds}; classes are text, integers or booleans in "
            "an array of their own type. Convert it: y.astype(str), or np.array(y.tolist()) for numbers"
        )
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has one class only ({classes.tolist()[0]!r}); classification needs at least two classes in the data"
        )
    positive = (
        np.arange(len(classes))[:, None] == codes[None, :] if len(classes) > 2 else (codes == 1)[None, :]
    )
    return classes, np.where(positive, 1.0, -1.0), codes


def check_class_mass(classes: np.ndarray, codes: np.ndarray, weight: np.ndarray | None) -> None:
    """Refuse a class all of whose rows have weight 0: a loss such as the logistic one has no minimum then."""
    if weight is not None and np.any(empty := np.bincount(codes, weight, len(classes)) == 0):
        name = classes.tolist()[int(np.argmax(empty))]
        raise ValueError(f"every row of class {name!r} has sample weight 0; drop these rows")


def encode_class_weight(class_weight: Any, classes: np.ndarray) -> Any:
    """Class weights keyed by class code."""
    check_value("class_weight", class_weight, CLASS_WEIGHT)
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return class_weight
    codes = {label: code for code, label in enumerate(classes.tolist())}
    unknown = [label for label in class_weight if label not in codes]
    if unknown:
        raise ValueError(f"class_weight names the class {unknown[0]!r}; y has: {', '.join(map(str, codes))}")
    return {codes[label]: weight for label, weight in class_weight.items()}
