"""Choices at random, and what later ones must know about earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Dice", "Plan"]


class Dice:
    """Choices with words."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([seed, 20])

    def one(self, options: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        """One of the options."""
        share = None if weights is None else np.asarray(weights, float) / np.sum(weights)
        return options[int(self.rng.choice(len(options), p=share))]

    def chance(self, p: float) -> bool:
        """True with probability ``p``."""
        return bool(self.rng.random() < p)

    def number(self, low: float, high: float) -> str:
        """A number between the two on a log scale, with two digits."""
        return f"{float(np.exp(self.rng.uniform(np.log(low), np.log(high)))):.2g}"

    def subset(self, options: Sequence[Any], least: int = 1) -> list[Any]:
        """Some of the options, in their order."""
        size = int(self.rng.integers(least, len(options) + 1))
        kept = sorted(self.rng.choice(len(options), size, replace=False).tolist())
        return [options[k] for k in kept]


@dataclass
class Plan:
    """What later choices must know about earlier ones."""

    task: str
    kind: str
    n: int = 40
    d: int = 3
    classes: int = 2
    spread: float = 1.0
    sparse: bool = False
    frame: bool = False
    weights: bool = False
    groups: bool = False
    precomputed: bool = False
    positive: bool = False
    rough: bool = False
    method: str = "auto"
    ours: bool = False
    exact: bool = False
    loss: str = ""
    names: list[str] = field(default_factory=list)
    per: dict[str, tuple[str, ...]] = field(default_factory=dict)
