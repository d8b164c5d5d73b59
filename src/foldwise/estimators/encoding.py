"""What estimators and searches share: callbacks, classes and groups as codes, the rows of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from foldwise.problems.assemble import Rows

try:  # scikit-learn 1.9 brought callbacks
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef,unused-ignore]
        """Nothing to support before scikit-learn 1.9."""

    def with_callbacks(method):  # type: ignore[no-redef,unused-ignore]
        """The method itself: scikit-learn before 1.9 has no callbacks."""
        return method


__all__ = [
    "CallbackSupportMixin",
    "check_class_mass",
    "encode_class_weight",
    "encode_classes",
    "encode_groups",
    "fitted_rows",
    "with_callbacks",
]


def fitted_rows(estimator: Any, X, y, sample_weight, sample_groups) -> Rows:
    """The rows that an estimator is fitted to; sets its ``group_labels_`` and, of a classifier, ``classes_``."""
    if hasattr(estimator, "_init_callback_context"):
        estimator._init_callback_context()
    weight = None
    if sample_weight is not None:
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
    group, estimator.group_labels_ = encode_groups(sample_groups, len(y))
    if estimator._task == "regression":
        return Rows(y[None].astype(float), weight, group, estimator.group_labels_)
    estimator.classes_, Y, codes = encode_classes(y)
    check_class_mass(estimator.classes_, codes, weight)
    return Rows(Y, weight, group, estimator.group_labels_, codes, estimator.classes_.tolist())


def encode_groups(sample_groups, n: int) -> tuple[np.ndarray | None, list]:
    """Codes 0..G-1 of the groups and their sorted labels."""
    if sample_groups is None:
        return None, []
    array = np.asarray(sample_groups)
    if array.shape != (n,):
        raise ValueError(f"sample_groups must have one entry per row, shape ({n},); got shape {array.shape}")
    labels, codes = np.unique(array, return_inverse=True)
    return codes, labels.tolist()


def encode_classes(y) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes, targets in {-1, +1} (one row, or one per class when there are more than two), and codes."""
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


def encode_class_weight(class_weight, classes: np.ndarray):
    """Class weights keyed by class code."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return class_weight
    if not isinstance(class_weight, dict):
        raise ValueError(f"class_weight must be None, 'balanced' or a dict; got {class_weight!r}")
    codes = {label: code for code, label in enumerate(classes.tolist())}
    unknown = [label for label in class_weight if label not in codes]
    if unknown:
        raise ValueError(f"class_weight names the class {unknown[0]!r}; y has: {', '.join(map(str, codes))}")
    return {codes[label]: weight for label, weight in class_weight.items()}
