"""Where the search over a linear machine starts when the user does not say."""

from __future__ import annotations

import numpy as np

from foldwise.bilevel import Bilevel
from foldwise.models.base import Array
from foldwise.space import Block

__all__ = ["along_the_path", "default_starts"]

FACTORS = np.exp(np.linspace(-16.0, 16.0, 129))
NEARLY = 1.01
"""The stronger start of several penalties has an error that is larger by at most this factor than the lowest."""


def default_starts(bilevel: Bilevel, count: int | None = None) -> list[Array]:
    """Points worth a look: the least-squares optimum with a closed tube and, if the tube is tuned, with two open ones.

    Several penalties also start where they are stronger: where they are weak none of them matters, the gradient in
    their logarithms vanishes, and a search from there would take that for a minimum.

    The strength of regularisation is found by least squares on all folds (see :mod:`foldwise.problems.ridge`);
    entries that share it move together. A wider tube leaves fewer rows to learn from, so the loss weighs more there.
    ``count`` limits how many points are worked out: with boxes each costs a solution of the training problems.
    """
    space = bilevel.space
    strength, tube = _directions(bilevel)
    base = 0.5 * (space.lower + space.upper)
    base[tube] = space.lower[tube]
    boxes = _boxes(bilevel)
    for _, columns, side in boxes:
        base[columns] = space.upper[columns] if side >= 0 else space.lower[columns]
    strong = base
    spread = float(np.mean(space.upper[tube] - space.lower[tube])) if tube.any() else 0.0
    if strength.any():
        errors = bilevel.problems[0].scout(base, FACTORS) if len(bilevel.problems) == 1 else None
        if errors is not None:
            inside = [space.clip(base + np.log(f) * strength) for f in FACTORS]
            base = inside[int(np.argmin(errors))]
            spread = min(spread, float(np.sqrt(errors.min())))
            strong = inside[int(np.argmax(errors <= NEARLY * errors.min()))]
        elif (factor := bilevel.problems[0].balance(base)) is not None:
            base = strong = space.clip(base + np.log(factor) * strength)
    starts = [base]
    second = strong if _several_penalties(bilevel) else base
    if tube.any():
        for width, more in ((0.5, 2.0), (1.0, 8.0)):
            opened = second + np.log(more) * strength
            opened[tube] = space.lower[tube] + width * spread
            starts.append(space.clip(opened))
    elif not np.array_equal(second, base):
        starts.append(second)
    if not boxes:
        return starts[:count]
    # A box regularises too: with it, a start where the penalty does little is worth a look.
    starts.insert(1, space.clip(starts[0] + np.log(10.0) * strength))
    return [_tightened(bilevel, theta, boxes) for theta in starts[:count]]


PATH = (0.55, 0.4, 0.7, 0.85, 0.25)
"""Points between the strongest and the weakest L1 norm that are worth a look, the likeliest first."""


def along_the_path(bilevel: Bilevel, count: int | None = None) -> list[Array]:
    """Points with an L1 norm from strong to weak; everything else is in the middle of its bounds."""
    space = bilevel.space
    strength, tube = _directions(bilevel)
    middle = 0.5 * (space.lower + space.upper)
    middle[tube] = space.lower[tube]
    if not strength.any():
        return [middle]
    out = []
    for share in PATH[:count]:
        theta = middle.copy()
        weak, strong = space.upper, space.lower
        up = strength > 0
        theta[up] = (strong + share * (weak - strong))[up]
        down = strength < 0
        theta[down] = (weak - share * (weak - strong))[down]
        out.append(theta)
    return out


def _boxes(bilevel: Bilevel) -> list[tuple[Block, slice, int]]:
    """The blocks that bound weights: block, its slice of ``theta``, and which side it bounds (0 both)."""
    sides = {"box": 0, "box_upper": 1, "box_lower": -1}
    kinds = bilevel.problems[0].parameters.kinds
    return [
        (b, bilevel.space.slices[b.name], sides[kinds[b.name]])
        for b in bilevel.space.blocks
        if kinds[b.name] in sides
    ]


def _tightened(bilevel: Bilevel, theta: Array, boxes: list[tuple[Block, slice, int]]) -> Array:
    """``theta`` with boxes that touch the weights found with wide ones.

    A box that holds no weight has no gradient. At the mean over folds of ``|w_d|`` it holds the larger half of them.
    """
    trial = bilevel.twin()
    W = np.concatenate(
        [
            state.W[:, : problem.design.n_features] * np.sqrt(problem.penalty.scale)
            for problem, state in zip(trial.problems, trial.evaluate(theta).states, strict=True)
        ]
    )
    theta = theta.copy()
    for block, columns, side in boxes:
        typical = np.abs(W).mean(axis=0) if side == 0 else side * np.maximum(side * W.mean(axis=0), 0.0)
        features = np.broadcast_to(block.index, len(typical))
        values = [
            typical[features == k][np.argmax(np.abs(typical[features == k]))] for k in range(block.size)
        ]
        values = np.clip(values, block.lower, block.upper)
        theta[columns] = np.log(values) if block.scale == "log" else values
    return theta


def _several_penalties(bilevel: Bilevel) -> bool:
    """Whether features have penalties of their own."""
    kinds = bilevel.problems[0].parameters.kinds
    return any(kinds[block.name] == "log_lam" and block.size > 1 for block in bilevel.space.blocks)


def _directions(bilevel: Bilevel) -> tuple[Array, Array]:
    """Which entries set the strength of the loss (+1) or of the penalty (-1), and which are tubes."""
    strength = np.zeros(bilevel.space.size)
    tube = np.zeros(bilevel.space.size, dtype=bool)
    for name, columns in bilevel.space.slices.items():
        kind = bilevel.problems[0].parameters.kinds[name]
        log_scale = next(block.scale for block in bilevel.space.blocks if block.name == name) == "log"
        if kind == "epsilon":
            tube[columns] = True
        elif log_scale and kind in ("log_c", "log_lam") and name.split("__")[-1] != "class_weight":
            strength[columns] = 1.0 if kind == "log_c" else -1.0
    return strength, tube
