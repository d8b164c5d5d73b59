"""The gradient of a search against central differences of refits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from foldwise.testing.refits import CrossValidation
from foldwise.testing.verdicts import Fault, require
from foldwise.testing.yardsticks import SOLVED, doubt, named, prior, scales, tolerance

__all__ = ["check_slopes"]

PROBE = 1e-3
"""Difference step: absolute on log scales, relative to the range on linear ones."""

NEARBY = 8
"""Points next to the start at which the referee refits its machines to see their noise."""


def check_slopes(search: Any, drawn: Any, left: dict[str, str]) -> None:
    """The norm of the hypergradient at a random inner point, against central differences of refits.

    A search that starts there and is stopped after its first evaluation reports both value and norm. Skipped where
    the two one-sided differences disagree (a kink), and where the referee's own noise is as large as the slope.
    """
    space = search.space_
    if not search.criterion_.differentiable:
        left["gradient"] = "the criterion has none"
        return
    if space.size > 8:
        left["gradient"] = "too many hyper-parameters"
        return
    rng = np.random.default_rng([drawn.seed, 5])
    theta = space.lower + rng.uniform(0.25, 0.75, space.size) * (space.upper - space.lower)
    start = space.params(theta)
    probe = clone(drawn.search).set_params(
        method="lbfgsb",
        method_options={"start": start},
        callbacks=[lambda record: True],
        refit=False,
        n_starts=None,
        max_iter=None,
        tol=None,
        low_rank=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            probe.fit(drawn.X, drawn.y, **drawn.fit_params)
        except Exception as error:
            # Whether errors near the largest number overflow is up to the last digits of a linear algebra library.
            # A search that could not solve its training problems may refuse such a start.
            unsolved = max(search.result_.kkt, default=0.0) > SOLVED
            if unsolved and "not finite at the first point" in str(error):
                left["gradient"] = "the cross-validation error is not finite at the start"
                return
            raise Fault(
                f"bare {type(error).__name__} from a start", f"start {start}: {type(error).__name__}: {error}"
            ) from error
    result, by_hand = probe.result_, CrossValidation(probe, drawn.X, drawn.y, drawn.fit_params)
    by_hand.careful = True
    if max(result.kkt, default=0.0) > SOLVED:
        left["gradient"] = "the search says that training problems are not solved"
        return
    theta = np.array(result.theta)
    tol = 2e-2 if by_hand.exact else 2e-3
    if getattr(drawn.X, "dtype", None) == np.float32:
        left["gradient"] = "single precision in X"
        return

    def value(at: np.ndarray) -> float:
        return by_hand.value(named(probe, space.params(at))) + prior(search, at, len(drawn.y))

    here = value(theta)
    unit = max(abs(here), 1e-6 * by_hand.scale())
    gap = abs(here - prior(search, theta, len(drawn.y)) + probe.best_score_)
    if gap > 10 * tolerance(by_hand, drawn.X) * unit:
        if reason := doubt(by_hand, named(probe, space.params(theta)), here, gap):
            left["gradient"] = reason
            return
        raise Fault(
            "wrong objective",
            f"{-probe.best_score_:.10g} reported, {here:.10g} by refitting at the start {start}",
        )
    noise = (1e-6 if by_hand.exact else 1e-9) * unit / PROBE
    width = space.upper - space.lower
    steps = np.minimum(PROBE * np.where(scales(space), 1.0, width), 0.2 * width)
    slopes = np.array([_central(value, theta, i, steps[i]) for i in range(space.size)])
    norm = float(np.linalg.norm(slopes))
    if by_hand.unsure or norm < 10 * noise:
        left["gradient"] = by_hand.unsure or "a slope below the noise of differences"
        return
    require(result.gradient_norm is not None, "wrong gradient", "the result has no gradient_norm")
    if abs(result.gradient_norm - norm) <= tol * norm + noise:
        return
    # It disagrees. Are the differences sure of themselves?
    if by_hand.residual(named(probe, space.params(theta))) > 1e-6:
        left["gradient"] = "the plain estimator does not converge"
        return
    # Within a ten-thousandth of a step a slope shows little, and what rounding in the refits does shows in full: LIBSVM
    # keeps kernels in single precision, and C multiplies that.
    near = rng.uniform(-1e-4, 1e-4, (NEARBY, space.size)) * steps
    known = max(abs(value(theta + move) - here - float(slopes @ move)) for move in near)
    unknown = known * float(np.linalg.norm(1.0 / steps[steps > 0]))
    if abs(result.gradient_norm - norm) <= tol * norm + unknown:
        left["gradient"] = "a slope below the noise of differences"
        return
    for i in np.flatnonzero(steps).tolist():
        move = steps[i] * (np.arange(space.size) == i)
        one_sided = abs(value(theta + move) - 2 * here + value(theta - move)) / steps[i]
        finer = abs(_central(value, theta, i, 0.3 * steps[i]) - slopes[i])
        floor = noise * PROBE / steps[i]
        kinked = one_sided > 0.2 * abs(slopes[i]) + floor
        if kinked or finer > 0.1 * tol * abs(slopes[i]) + floor:
            left["gradient"] = "a kink, or a slope below the noise of differences"
            return
    # Kinks within a step shift both differences alike: nearer ones must disagree as well.
    for share in (0.1, 0.01):
        nearer = [_central(value, theta, i, share * steps[i]) for i in range(space.size)]
        if abs(result.gradient_norm - float(np.linalg.norm(nearer))) <= tol * norm + noise / share:
            left["gradient"] = "a kink, or a slope below the noise of differences"
            return
    raise Fault(
        "wrong gradient",
        f"norm {result.gradient_norm} reported, {norm:.8g} by differences ({slopes}) at {start}",
    )


def _central(value: Any, theta: np.ndarray, i: int, step: float) -> float:
    """The central difference along one entry; 0 without a step."""
    if step == 0:
        return 0.0
    move = np.zeros(len(theta))
    move[i] = step
    return (value(theta + move) - value(theta - move)) / (2 * step)
