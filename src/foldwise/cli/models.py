"""What is fitted: the task, the family of models, the steps before the model, the bounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foldwise.cli.app import InputError

if TYPE_CHECKING:
    import numpy as np

    from foldwise.tables import Table

__all__ = [
    "FAMILIES",
    "basis_columns",
    "choose_task",
    "criterion_for",
    "default_space",
    "families",
    "folds",
    "output_names",
    "parse_space",
    "pipeline",
    "preparation",
]

TASKS = ("auto", "regression", "classification")
FAMILIES = ("linear", "box", "rbf", "ard", "semiparametric")
MOST_CLASSES = 10
"""``--task auto`` takes whole numbers for classes when there are at most this many."""
KERNEL_ROWS = 2_000
"""``--model auto`` tries kernels up to this many training rows."""
WORTH = 0.99
"""``--model auto`` leaves the linear model when the error of another is below this share of its."""


def choose_task(task: str, y: np.ndarray, lines: np.ndarray | None = None) -> tuple[str, str]:
    """Regression or classification and, in words, why; ``lines`` tells where the rows stand in their file."""
    import numpy as np

    if task not in TASKS:
        raise InputError(f"--task {task} is unknown.", f"choose one of {', '.join(TASKS)}.")
    text, whole = y.dtype.kind == "U", y.dtype.kind == "i"
    n_values = len(np.unique(y))
    if text and task != "classification":
        _check_mixed(y, lines)
    if task == "regression" and text:
        raise InputError(
            "--task regression needs a numeric target; this one holds text.", "use --task classification."
        )
    if task == "classification" and not (text or whole):
        raise InputError(
            "--task classification needs classes; this target holds fractions.",
            "use --task regression, or name the classes.",
        )
    if n_values < 2:
        raise InputError("the target has the same value in every row.", "choose another --target.")
    if task != "auto":
        return task, "as asked"
    if text:
        return "classification", f"the target holds {n_values} text labels"
    if whole and n_values <= MOST_CLASSES:
        return (
            "classification",
            f"the target holds {n_values} whole numbers; --task regression to predict them as amounts",
        )
    return "regression", "the target is numeric"


def _check_mixed(y: np.ndarray, lines: np.ndarray | None) -> None:
    """Refuse a numeric target in which some cells are not numbers, rather than take every number for a class."""
    import numpy as np

    from foldwise.tables.codes import count_rows, is_number

    numeric = np.array([is_number(text) for text in y])
    if len(np.unique(y[numeric])) > MOST_CLASSES and not np.all(numeric):
        bad = np.flatnonzero(~numeric)
        where = count_rows([int(k) for k in (bad + 1 if lines is None else lines[bad])])
        raise InputError(
            f"the target holds numbers, but not in {where}: {str(y[bad[0]])[:40]!r}.",
            "correct or delete these rows, or use --task classification if all are names of classes.",
        )


def families(model: str, n_rows: int, sparse: bool) -> list[str]:
    """The families to try."""
    if model == "auto":
        return ["linear"] if sparse or n_rows > KERNEL_ROWS else ["linear", "rbf"]
    if model not in FAMILIES:
        raise InputError(f"--model {model} is unknown.", f"choose one of auto, {', '.join(FAMILIES)}.")
    return [model]


def preparation(table: Table, missing: Sequence[str] = ()) -> Any:
    """The steps before the model, fitted inside every fold: imputation, scaling, one column per category.

    ``missing`` names numeric columns that have to do with missing cells.
    """
    import numpy as np
    import scipy.sparse as sp
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    if not table.categories and not missing:
        return StandardScaler(with_mean=not sp.issparse(table.X))
    numbers, coded = _kinds(table)
    parts: list[tuple[str, Any, list[int]]] = []
    if numbers:
        impute = [SimpleImputer(strategy="median", keep_empty_features=True)] if missing else []
        parts.append(("numbers", make_pipeline(*impute, StandardScaler()), numbers))
    if coded:
        lists = [np.arange(float(len(table.categories[table.columns[k]]))) for k in coded]
        encoder = OneHotEncoder(categories=lists, handle_unknown="ignore", sparse_output=False)
        parts.append(("categories", encoder, coded))
    return ColumnTransformer(parts)


def _kinds(table: Table) -> tuple[list[int], list[int]]:
    """Positions of the numeric and of the categorical columns."""
    coded = [k for k, name in enumerate(table.columns) if name in table.categories]
    return [k for k in range(len(table.columns)) if k not in set(coded)], coded


def output_names(table: Table) -> list[str]:
    """Names of the columns that the model sees: numeric ones, then ``column=category``."""
    numbers, coded = _kinds(table)
    names = [table.columns[k] for k in numbers]
    for k in coded:
        name = table.columns[k]
        names += [f"{name}={'(missing)' if label is None else label}" for label in table.categories[name]]
    return names


def basis_columns(table: Table, names: Sequence[str]) -> list[int]:
    """Where the named columns are in what the model sees; all numeric ones when none is named."""
    numbers, _ = _kinds(table)
    place = {table.columns[k]: i for i, k in enumerate(numbers)}
    for name in names:
        if name not in place:
            raise InputError(
                f"--basis {name!r} is not a numeric column.", "name one that is, or leave --basis out."
            )
    names = list(dict.fromkeys(names))
    return [place[name] for name in names] if names else list(range(len(numbers)))


def pipeline(before: Any, family: str, task: str, loss: str | None, basis: Sequence[int] = ()) -> Any:
    """The steps before and the model to tune; ``basis`` holds the columns of a parametric part."""
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline

    from foldwise import RBF, KernelSVC, KernelSVR, LinearSVC, LinearSVR, SemiparametricSVR

    if family == "semiparametric":
        if task != "regression" or loss not in (None, "epsilon_insensitive"):
            raise InputError(
                "--model semiparametric is for regression with the loss epsilon_insensitive.",
                "use --model rbf for others.",
            )
        return make_pipeline(clone(before), SemiparametricSVR(list(basis), RBF()))
    options: dict[str, Any] = {} if loss is None else {"loss": loss}
    if family == "box" and loss is None:
        options = {"loss": "epsilon_insensitive" if task == "regression" else "hinge"}
    if family in ("linear", "box"):
        model: Any = (LinearSVR if task == "regression" else LinearSVC)(**options)
    else:
        kernel = RBF(ard=family == "ard")
        model = (KernelSVR if task == "regression" else KernelSVC)(kernel, **options)
    return make_pipeline(clone(before), model)


def criterion_for(method: str, family: str, task: str, loss: str | None, families: int) -> Any:
    """The criterion of the search: its own choice, but for methods that know one kind only.

    Several families are compared by their criterion, so it must be the same for all.
    """
    if method not in ("mpec", "slams"):
        # With the logistic loss all families have the same criterion of their own.
        if families == 1 or loss == "logistic":
            return "auto"
        return "squared" if task == "regression" else "profiled_logistic"
    exact = "epsilon_insensitive" if task == "regression" else "hinge"
    if not (family == "box" and loss is None) and not (family in ("linear", "box") and loss == exact):
        raise InputError(
            f"--method {method} is for machines with the exact loss {exact}.",
            f"add --model box, or --model linear --loss {exact}.",
        )
    return "absolute" if task == "regression" else "hinge"


def default_space(family: str, task: str, step: str, loss: str | None = None) -> list[str] | None:
    """The hyper-parameters to tune where the model's own choice is not meant."""
    if family != "box":
        return None
    tube = task == "regression" and (loss is None or "epsilon" in loss)
    names = ["C", "epsilon", "box"] if tube else ["C", "box"]
    return [f"{step}__{name}" for name in names]


def parse_space(entries: Sequence[str], step: str) -> dict[str, Any] | None:
    """``["C=1e-3:1e3"]`` as a space for the pipeline's last step; None when empty."""
    if not entries:
        return None
    from foldwise.space import Lin, Log

    hint = "write NAME=LOW:HIGH, for example C=1e-3:1e3 or lam=0.01:100:log:feature."
    space: dict[str, Any] = {}
    for entry in entries:
        name, equals, rest = entry.partition("=")
        low_text, *others = rest.split(":")
        try:
            low, high = float(low_text), float(others[0])
        except (ValueError, IndexError):
            raise InputError(f"--space {entry} cannot be read.", hint) from None
        words = others[1:]
        unknown = [word for word in words if word not in ("log", "lin", "feature", "class")]
        if not name or not equals or unknown:
            raise InputError(f"--space {entry} cannot be read.", hint)
        per = next((word for word in words if word in ("feature", "class")), None)
        log = "log" in words or ("lin" not in words and low > 0 and high >= 100 * low)
        if f"{step}__{name}" in space:
            raise InputError(f"--space gives bounds of {name} twice.", "keep one of them.")
        try:
            space[f"{step}__{name}"] = (Log if log else Lin)(low, high, per=per)
        except ValueError as error:
            raise InputError(f"--space {entry}: {error}.", hint) from None
    return space


def folds(task: str, cv: int, seed: int) -> Any:
    """The splitter; classes keep their shares."""
    from sklearn.model_selection import KFold, StratifiedKFold

    splitter = StratifiedKFold if task == "classification" else KFold
    return splitter(cv, shuffle=True, random_state=seed)
