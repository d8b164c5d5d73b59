"""What a search knows of a model: the roles of its hyper-parameters, the rows, the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foldwise.space import Dimension, Space

__all__ = ["Role", "Rows", "make_space"]


@dataclass(frozen=True)
class Role:
    """What a hyper-parameter does: its kind and sign (see :class:`Binding`), a constant factor, what ``per`` allows."""

    kind: str
    factor: float = 1.0
    per: tuple[str | None, ...] = (None,)
    sign: float = 1.0


@dataclass(frozen=True, eq=False)
class Rows:
    """What is known about the rows beside X: targets, weights, groups of samples, classes, columns of a basis."""

    Y: np.ndarray
    weight: np.ndarray | None = None
    group: np.ndarray | None = None
    group_labels: Sequence[Any] = ()
    label: np.ndarray | None = None
    class_labels: Sequence[Any] = ()
    basis: np.ndarray | None = None

    def take(self, index: np.ndarray) -> Rows:
        """These rows only."""

        def pick(values: np.ndarray | None) -> np.ndarray | None:
            return None if values is None else values[index]

        return Rows(
            self.Y[:, index],
            pick(self.weight),
            pick(self.group),
            self.group_labels,
            pick(self.label),
            self.class_labels,
            pick(self.basis),
        )


def make_space(
    dimensions: Mapping[str, Dimension],
    rows: Rows,
    feature_names: Sequence[Any],
    more: Mapping[str, Sequence[Any]] | None = None,
) -> Space:
    """The space with the sizes of these rows and features; ``more`` names entries of single hyper-parameters."""
    labels: dict[str, Sequence[Any]] = {"feature": feature_names, **(more or {})}
    if rows.group is not None:
        labels["group"] = rows.group_labels
        by_class = [name for name, dim in dimensions.items() if dim.per == "class" and name != "class_weight"]
        if by_class:
            raise ValueError(
                f"{by_class[0]!r} is to be tuned per class, and fit was given sample_groups: a machine takes one value "
                "per class or one per group, not both. Use per='group', or leave sample_groups out"
            )
    if len(rows.Y) > 1:
        labels["class"] = rows.class_labels
    if "class_weight" in dimensions:
        labels["class_weight"] = list(rows.class_labels)[1:]
    return Space.build(dimensions, labels)
