"""What the misprinted sign in equation (27) does to ImpGrad.

The derivative of the weights in the tube width solves ``(I + C sum x x') dw = C sum (d+ - d-) x``. In the linear
system (27) the right-hand side is printed with the opposite sign, although (26), from which it follows, is right. Here
ImpGrad runs twice from the same point with the same settings: with the right sign, and with the derivative in epsilon
turned round.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from foldwise.optimizers import METHODS as OPTIMIZERS
from foldwise.optimizers import Bfgs
from foldwise.optimizers.base import Trace
from foldwise.result import Status
from papers import frame
from papers.moore2011 import substitutes
from papers.moore2011.methods import IMPGRAD, MODELS, try_method

__all__ = ["run"]


class AsPrinted(Bfgs):
    """ImpGrad with the epsilon block of (27) as printed; where that misleads it, nothing comes to its rescue."""

    restarts = False

    def iterate(self, trace: Trace, theta: np.ndarray) -> Status:
        """Run from ``theta`` with the derivative in epsilon turned round."""
        differentiate = trace.bilevel.differentiate

        def turned(evaluation, *args, **kwargs):
            fresh = evaluation.gradient is None
            differentiate(evaluation, *args, **kwargs)
            if fresh:
                evaluation.gradient[trace.space.slices["epsilon"]] *= -1.0
            return evaluation

        with mock.patch.object(trace.bilevel, "differentiate", turned):
            return super().iterate(trace, theta)


@contextmanager
def as_printed() -> Iterator[None]:
    """Let the method name "bfgs" stand for the misprinted one."""
    with mock.patch.dict(OPTIMIZERS, bfgs=AsPrinted):
        yield


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """ImpGrad with the right and with the printed sign."""
    frame.title("moore2011, equation (27): ImpGrad with the right and with the printed sign")
    data = substitutes.pyruvate(quick, data_dir)
    frame.note(data.statement)
    splits = 2 if quick else 10
    rows, lines = [], []
    for n in data.sizes:
        for model in MODELS:
            right = [try_method(IMPGRAD, model, data, n, seed) for seed in range(splits)]
            with as_printed():
                printed = [try_method(IMPGRAD, model, data, n, seed) for seed in range(splits)]
            row = {"n": n, "model": model}
            for name, runs in (("right", right), ("printed", printed)):
                row[f"{name}_objective_mean"], row[f"{name}_objective_sd"] = frame.mean_sd(
                    [r.objective for r in runs]
                )
                row[f"{name}_mse_mean"], row[f"{name}_mse_sd"] = frame.mean_sd([r.mse for r in runs])
            rows.append(row)
            lines.append(
                [f"{n:>5}  {model}"]
                + [
                    frame.spread(row[f"{name}_{quantity}_mean"], row[f"{name}_{quantity}_sd"])
                    for quantity in ("objective", "mse")
                    for name in ("right", "printed")
                ]
            )
    print()
    columns = ["n  model", "CV error, right sign", "as printed", "MSE, right sign", "as printed"]
    frame.print_table(columns, lines)
    above = {
        model: np.mean(
            [
                r["printed_objective_mean"] / r["right_objective_mean"] - 1.0
                for r in rows
                if r["model"] == model
            ]
        )
        for model in MODELS
    }
    frame.note(
        "Cross-validation error with the printed sign against the right one, mean over the sizes: "
        + ", ".join(f"{model} {100.0 * value:+.1f}%" for model, value in above.items())
        + ". Steps that do not descend are refused, so the walk ends early rather than far away. Whether the paper's "
        "program had the sign of (26) or of (27) is not known."
    )
    frame.write_csv(out, "moore2011-equation27", rows)


if __name__ == "__main__":
    frame.command(run)
