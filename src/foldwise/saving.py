"""Models in files, through skops: loading one never runs code that the file brings along.

Only types of foldwise, and those of scikit-learn and numpy that skops trusts by itself, are ever built.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["SavedModel", "SavingError", "load_model", "save_model"]

FORMAT = "foldwise-model-1"


class SavingError(ValueError):
    """A model file that cannot be used; ``hint`` says what to do."""

    def __init__(self, message: str, hint: str):
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class SavedModel:
    """A fitted estimator and the table that it was fitted to.

    Attributes
    ----------
    estimator : estimator
        Fitted estimator.
    columns : tuple of str
        Names of the features, in the order in which the estimator takes them.
    target : str
        Name of the target.
    """

    estimator: Any
    columns: tuple[str, ...]
    target: str


def save_model(path: str | Path, estimator: Any, columns: Sequence[str], target: str) -> None:
    """Write a fitted estimator with the names of its features.

    Parameters
    ----------
    path : str or Path
        File to write, ``.skops`` by custom.
    estimator : estimator
        Fitted estimator of foldwise or scikit-learn, or a pipeline of them.
    columns : sequence of str
        Names of the features, in the order of the columns of ``X``.
    target : str
        Name of the target.
    """
    content = {"format": FORMAT, "estimator": estimator, "columns": list(columns), "target": target}
    import_skops().dump(content, Path(path))


def load_model(path: str | Path) -> SavedModel:
    """Read a file that :func:`save_model` wrote.

    Parameters
    ----------
    path : str or Path
        File to read.

    Returns
    -------
    SavedModel

    Raises
    ------
    SavingError
        When the file is absent, damaged, something else, or holds types that a model has no need of.
    """
    path = Path(path)
    skops_io = import_skops()
    hint = "use a file that foldwise fit --out wrote."
    if not path.is_file():
        raise SavingError(f"there is no model file {path}.", hint)
    try:
        unknown = skops_io.get_untrusted_types(file=path)
        refused = [name for name in unknown if not _is_own_class(name)]
        content = None if refused else skops_io.load(path, trusted=unknown)
    except Exception as error:  # a damaged archive fails in many ways
        raise SavingError(
            f"{path} is damaged or not a model ({type(error).__name__}: {error}).", hint
        ) from error
    if refused:
        raise SavingError(
            f"{path} was not loaded: it holds types that a model has no need of ({', '.join(refused[:3])}).",
            hint,
        )
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise SavingError(f"{path} was not written by this version of foldwise.", hint)
    return SavedModel(content["estimator"], tuple(content["columns"]), content["target"])


def import_skops() -> Any:
    """``skops.io``, or an error that says how to install it."""
    try:
        import skops.io
    except ImportError:
        raise SavingError(
            "saved models need the package skops, which is not installed.", "pip install 'foldwise[save]'"
        ) from None
    return skops.io


def _is_own_class(name: str) -> bool:
    """Whether a dotted name is a class that foldwise itself defines, not one that its modules import."""
    module_name, _, attribute = name.rpartition(".")
    if module_name.split(".")[0] != "foldwise":
        return False
    try:
        found = getattr(importlib.import_module(module_name), attribute, None)
    except ImportError:
        return False
    return isinstance(found, type) and found.__module__.split(".")[0] == "foldwise"
