r"""The kernel machines of the thesis's chapter 3, with its own parameters on their own scale.

The training problem is ``c/2 ||f||^2 + sum_i loss`` without a bias: ours with ``C = 1 / c`` and
``fit_intercept=False``. The outer objective is ``H = 1/(2L) ||z - y||^2`` on the labels of L validation rows, so that
``H`` is half of our squared criterion. With T folds the text sums over them (equation 3.14), but the captions of the
tables give the mean over the folds, and only a mean agrees with the H of the training and test rows beside it; so do
we.

The thesis moves ``c`` and ``gamma`` themselves, not their logarithms. The paths of its methods depend on that, so the
programs here have linear scales, and are put together from the parts of the library: ``BilevelSearchCV`` knows ``C``,
not ``1 / C``. The inner problems are solved to a relative residual of 1e-7 (the thesis: 1e-4), because Newton's
method gets there within a step of 1e-4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from foldwise import KernelSVC, QuarticHinge
from foldwise.bilevel import Bilevel
from foldwise.kernels import Kernel
from foldwise.losses import Loss, Squared
from foldwise.models.base import Role, Rows
from foldwise.models.kernel import KernelModel, assemble_kernel
from foldwise.optimizers import METHODS
from foldwise.optimizers.base import run
from foldwise.result import Result
from foldwise.solvers.representer import RepresenterNewton
from foldwise.space import Dimension, Space
from papers import frame

__all__ = [
    "QUANTITIES",
    "QUARTIC",
    "compare",
    "evaluations",
    "five_folds",
    "known",
    "measure",
    "minimise",
    "program",
    "select",
    "train",
]

QUANTITIES = ("H_min", "H_train", "CR_train", "H_test", "CR_test", "evaluations")
"""Columns of tables 5.5 to 5.7."""

QUARTIC = QuarticHinge(0.125)
"""The thesis's choice of section 5.1, used in all of its later experiments."""

Splits = Sequence[tuple[np.ndarray, np.ndarray]]


def program(
    kernel: Kernel,
    X: np.ndarray,
    y: np.ndarray,
    splits: Splits,
    dimensions: Mapping[str, Dimension],
    *,
    loss: Loss = QUARTIC,
    c: float = 1.0,
) -> Bilevel:
    """Cross-validation of a kernel machine as a function of ``c`` and the kernel's parameters.

    Parameters
    ----------
    kernel : Kernel
    X : ndarray, shape (n, d)
    y : ndarray, shape (n,)
        Labels -1 and +1.
    splits : sequence of (training rows, validation rows)
    dimensions : mapping from ``"c"`` and the kernel's own parameter names to their bounds
    loss : Loss
    c : float
        Used where ``c`` is not among the dimensions.
    """
    d = X.shape[1]
    own = kernel.parameters(d)
    roles = {"c": Role("log_c", sign=-1.0)}
    roles |= {name: Role("log_kernel", per=(None, "feature")) for name in own}
    model = KernelModel(loss, kernel, roles, {"c": c, **own}, {name: name for name in own}, False)
    several = {name: range(values.size) for name, values in own.items() if values.size > 1}
    space = Space.build(dimensions, several)
    rows = Rows(np.where(y > 0, 1.0, -1.0)[None])
    problem = assemble_kernel(model, X, rows, splits, space, dimensions=dimensions)
    return Bilevel([problem], Squared(), space, RepresenterNewton(tol=1e-7, max_iter=100))


def minimise(bilevel: Bilevel, method: str, start: Mapping[str, Any], **options: Any) -> Result:
    """Run a method of the library from these values."""
    return run(METHODS[method](**options), bilevel, bilevel.space.theta(start))


def five_folds(n: int, seed: int, folds: int = 5) -> list[tuple[np.ndarray, np.ndarray]]:
    """Random folds of equal size, not stratified: the thesis does not say that its own were."""
    return list(KFold(folds, shuffle=True, random_state=seed).split(np.zeros((n, 1))))


def evaluations(result: Result, folds: int = 5) -> float:
    """Machines trained: one per fold and point, and the final one.

    Most published counts with five folds are five times a whole number plus one.
    """
    return folds * result.n_evaluations + 1.0


def train(
    kernel: Kernel, X: np.ndarray, y: np.ndarray, params: Mapping[str, Any], c: float = 1.0
) -> KernelSVC:
    """The machine at these values, on all rows given; ``c`` is used where the values have none."""
    own = {name: value for name, value in params.items() if name != "c"}
    strength = 1.0 / float(params.get("c", c))
    model = KernelSVC(kernel.with_parameters(own), loss=QUARTIC, C=strength, fit_intercept=False)
    return model.fit(X, y)


def measure(model: KernelSVC, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """H and the rate of correct classification in percent."""
    z = model.decision_function(X)
    sign = np.where(y > 0, 1.0, -1.0)
    return {"H": 0.5 * float(np.mean((z - sign) ** 2)), "CR": 100.0 * float(np.mean((z > 0) == (sign > 0)))}


def select(
    kernel: Kernel,
    part: tuple[np.ndarray, np.ndarray],
    rest: tuple[np.ndarray, np.ndarray],
    dimensions: Mapping[str, Dimension],
    start: Mapping[str, Any],
    splits: Splits,
    method: str = "lbfgsb",
    **options: Any,
) -> tuple[dict[str, float], Result]:
    """Select by folds of one part of the rows, train on all of that part, test on the rest.

    Returns the columns of tables 5.5 to 5.7, and the search. ``c`` is not rescaled to the larger training set.
    """
    X, y = part
    bilevel = program(kernel, X, y, splits, dimensions)
    result = minimise(bilevel, method, start, **options)
    model = train(kernel, X, y, result.params)
    out = {"H_min": 0.5 * result.objective, "evaluations": evaluations(result, len(splits))}
    for name, (Z, labels) in (("train", part), ("test", rest)):
        out |= {f"{key}_{name}": value for key, value in measure(model, Z, labels).items()}
    return out, result


def known(table: str) -> dict[str, dict[str, float]]:
    """The published figures of a table: row, then quantity."""
    out: dict[str, dict[str, float]] = {}
    for entry in frame.published("thesis", table):
        out.setdefault(entry["row"], {})[entry["quantity"]] = entry["value"]
    return out


def compare(
    published: Mapping[str, Mapping[str, float]], ours: Mapping[str, Iterable[Mapping[str, float]]]
) -> list[dict[str, Any]]:
    """Print the columns of tables 5.5 to 5.7, published and ours (mean and range over splits); rows for a file."""
    rows, lines = [], []
    for name, figures in published.items():
        row: dict[str, Any] = {"row": name, **{f"published_{key}": figures[key] for key in QUANTITIES}}
        lines.append([f"{name}: published"] + [_text(key, figures[key]) for key in QUANTITIES])
        shown = {"mean": [f"{name}: ours, mean"], "range": [f"{name}: ours, range"]}
        for key in QUANTITIES:
            values = [split[key] for split in ours[name]]
            row |= {f"ours_{key}_mean": float(np.mean(values)), f"ours_{key}_min": min(values)}
            row[f"ours_{key}_max"] = max(values)
            shown["mean"].append(_text(key, row[f"ours_{key}_mean"]))
            shown["range"].append(f"{_text(key, min(values))} to {_text(key, max(values))}")
        row["splits_at_or_below"] = sum(split["H_min"] <= figures["H_min"] for split in ours[name])
        rows.append(row)
        lines += [shown["mean"], shown["range"]]
    print()
    frame.print_table(
        ["", "Hmin", "train: H", "train: CR, %", "test: H", "test: CR, %", "evaluations"], lines
    )
    return rows


def _text(key: str, value: float) -> str:
    return f"{value:.{ {'H': 4, 'C': 2, 'e': 0}[key[0]] }f}"
