"""Models in files, through skops: loading one never runs code that the file brings along.

Only types on a list are ever built: those of scikit-learn, numpy and scipy that skops trusts by itself, and the
estimators, kernels, losses and bases of foldwise. A file says by which version it was written, which columns it
wants, what was selected, and how good that was.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.lib import format as npy

from foldwise.outputs import writing
from foldwise.result import as_json
from foldwise.version import __version__
from foldwise.wording import format_value

__all__ = ["SavedModel", "SavingError", "load_model", "save_model", "trusted_types"]

FORMAT = "foldwise-model-2"
HOMES = (
    "foldwise.estimators",
    "foldwise.kernels",
    "foldwise.losses",
    "foldwise.criteria",
    "foldwise.calibration",
    "foldwise.basis",
    "foldwise.search",
    "foldwise.result",
    "foldwise.space",
)
PLAIN = (
    "numpy.dtype",
    *(f"scipy.sparse._{kind}.{kind}_{what}" for kind in ("csr", "csc") for what in ("matrix", "array")),
)
"""Types of others that skops asks about though they only hold numbers."""
SMALL, MOST_GROWTH = 1 << 27, 50
"""An archive may always grow to this many bytes, and beyond that to this multiple of its size."""


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
    version : str
        Version of foldwise that wrote the file.
    categories : dict from column to tuple of (str or None)
        Categories of the columns that hold codes; see :class:`foldwise.tables.Table`.
    imputes : bool
        Whether missing numbers may be given as nan.
    sparse : bool
        Whether the estimator takes sparse rows.
    facts : dict
        What was selected and how good it is: "task", "model", "params", "metric", "cv_error", "test_error".
    """

    estimator: Any
    columns: tuple[str, ...]
    target: str
    version: str = ""
    categories: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    imputes: bool = False
    sparse: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> list[str]:
        """The model in a few lines."""
        facts = self.facts
        lines = [
            f"model of foldwise {self.version}: {facts.get('model', '')} {facts.get('task', '')}".rstrip()
        ]
        lines += [f"  {name} = {format_value(value)}" for name, value in facts.get("params", {}).items()]
        for name in ("cv_error", "test_error"):
            if facts.get(name) is not None:
                where = "cross-validated" if name == "cv_error" else "test"
                lines.append(f"{where} {facts.get('metric', 'error')} {facts[name]:.6g}")
        lines.append(f"predicts {self.target!r} from {len(self.columns)} columns:")
        for name in self.columns[:20]:
            labels = self.categories.get(name)
            lines.append(f"  {name!r}" + ("" if labels is None else f", {len(labels)} categories"))
        if len(self.columns) > 20:
            lines.append(f"  and {len(self.columns) - 20} more")
        return lines


def save_model(
    path: str | Path,
    estimator: Any,
    columns: Sequence[str],
    target: str,
    *,
    categories: Mapping[str, Sequence[str | None]] | None = None,
    imputes: bool = False,
    sparse: bool = False,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted estimator with the names of its features; the file appears complete or not at all.

    What :func:`load_model` would refuse is refused here: functions, and objects of types that are not on the list.

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
    categories, imputes, sparse, facts : as in :class:`SavedModel`

    Raises
    ------
    SavingError
        When the estimator is not fitted or could not be loaded again.
    OutputError
        When the file cannot be written.
    """
    path = Path(path)
    about = {
        "version": __version__,
        "columns": list(columns),
        "target": target,
        "categories": {name: list(labels) for name, labels in (categories or {}).items()},
        "imputes": bool(imputes),
        "sparse": bool(sparse),
        "facts": as_json(dict(facts or {})),
    }
    # One text for all: skops would keep every name of a column as an object of its own.
    content = {"format": FORMAT, "about": json.dumps(about), "estimator": estimator}
    data = _packed(import_skops(), content, path)
    with writing(path, "wb") as file:
        file.write(data)


def _packed(skops_io: Any, content: dict[str, Any], path: Path) -> bytes:
    """The content as skops writes it, once it is certain that :func:`load_model` takes it back."""
    name = type(content["estimator"]).__name__
    hint = (
        "save search.best_estimator_ instead of the whole search; use columns or transformers of scikit-learn instead "
        "of functions, and estimators of foldwise or scikit-learn instead of your own."
    )
    try:
        data: bytes = skops_io.dumps(content)
        refused = _refused(skops_io.get_untrusted_types(data=data))
        if not refused:
            skops_io.loads(data, trusted=skops_io.get_untrusted_types(data=data))
        if _grown(io.BytesIO(data), len(data)):
            raise ValueError("its sparse arrays hold little but equal numbers and would not be loaded")
    except Exception as error:  # whatever an object of a stranger may raise
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SavingError(f"{path} was not written: {name} cannot be saved ({what}).", hint) from error
    if refused:
        raise SavingError(
            f"{path} was not written: {name} holds what could not be loaded again ({', '.join(refused[:3])}).",
            hint,
        )
    return data


def _refused(found: Sequence[str]) -> list[str]:
    """Those of the types that skops does not know which are not on our list either."""
    trusted = trusted_types()
    return [name for name in found if name not in trusted]


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
        size = path.stat().st_size
        if grown := _grown(path, size):
            raise SavingError(
                f"{path} was not loaded: its {size:,} bytes would become {grown:,}, which no model does.",
                hint,
            )
        unknown = skops_io.get_untrusted_types(file=path)
        refused = _refused(unknown)
        content = None if refused else skops_io.load(path, trusted=unknown)
    except SavingError:
        raise
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
    if not hasattr(content.get("estimator"), "predict"):
        raise SavingError(f"{path} holds no estimator that predicts.", hint)
    try:
        about = json.loads(content["about"])
        return SavedModel(
            content["estimator"],
            tuple(about["columns"]),
            about["target"],
            about["version"],
            {name: tuple(labels) for name, labels in about["categories"].items()},
            about["imputes"],
            about["sparse"],
            about["facts"],
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SavingError(f"{path} is damaged: a part of the model is missing.", hint) from None


def _grown(source: Path | io.BytesIO, size: int) -> int:
    """Bytes that an archive of ``size`` would become, where these are too many for a model; else 0.

    It is known from what the archive says of itself, before anything is unpacked: a zip file never yields more than the
    sizes in its directory. Together, as often as they are referred to, they may come to ``MOST_GROWTH`` times the size
    of the file or to ``SMALL`` bytes; what :func:`save_model` writes is hardly compressed.
    """
    limit = max(SMALL, MOST_GROWTH * size)
    with zipfile.ZipFile(source) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        total = sum(sizes.values())
        if total <= limit:
            used = _references(json.loads(archive.read("schema.json")))
            for name in [name for name in sizes if name.endswith(".npz")]:
                with archive.open(name) as raw, zipfile.ZipFile(raw) as inner:
                    sizes[name] += sum(entry.file_size for entry in inner.infolist())
            total = sum(size * max(1, used.get(name, 1)) for name, size in sizes.items())
        for name in [name for name in sizes if name.endswith(".npy")] if total <= limit else []:
            with archive.open(name) as raw:
                total += max(0, _declared(raw) - sizes[name])
    return total if total > limit else 0


def _references(schema: Any) -> dict[str, int]:
    """How often each file of an archive is asked for."""
    counts: dict[str, int] = {}
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if isinstance(name := node.get("file"), str):
                counts[name] = counts.get(name, 0) + 1
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return counts


def _declared(raw: Any) -> int:
    """Bytes of the array that the head of a ``.npy`` file announces."""
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shape, _, dtype = read[npy.read_magic(raw)](raw)
    return math.prod(shape) * dtype.itemsize


def trusted_types() -> frozenset[str]:
    """Dotted names of the classes that a model file may hold besides those that skops trusts by itself."""
    names = list(PLAIN)
    for home in HOMES:
        module = import_module(home)
        for name in module.__all__:
            found = getattr(module, name)
            if isinstance(found, type):
                names += [
                    f"{found.__module__}.{found.__qualname__}",
                    f"{home}.{name}",
                ]  # files of before a move
    return frozenset(names)


def import_skops() -> Any:
    """``skops.io``, or an error that says how to install it."""
    try:
        import skops.io
    except ImportError:
        raise SavingError(
            "saved models need the package skops, which is not installed.", "pip install 'foldwise[save]'"
        ) from None
    return skops.io
