"""Training problems written out in arrays, for methods that take their optimality conditions as constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Task", "Written"]


@dataclass(eq=False)
class Task:
    """One training problem and its validation rows.

    Parameters
    ----------
    X, y : training rows; for the hinge ``y`` is -1 or 1
    X_val, y_val : validation rows
    weight : ndarray, optional
        ``v_j``, multiplies the loss of a training row.
    cost : ndarray, optional
        Weight of a validation row's criterion in the objective; by default all tasks and their rows count evenly.
    """

    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    weight: Any = None
    cost: Any = None


@dataclass(frozen=True, eq=False)
class Written:
    """The tasks of a problem at one ``theta``.

    Attributes
    ----------
    tasks : list of Task
        Their ``weight`` is that of a row's loss, ``C`` included.
    intercept : bool
    gaussian : bool
        Decisions are those of a Gaussian kernel with one width per column of X; else they are linear in the columns,
        with the user's weights.
    reference : ndarray, optional
        Fixed weights that the proximity term of a linear machine pulls to, the user's.
    """

    tasks: list[Task]
    intercept: bool
    gaussian: bool = False
    reference: np.ndarray | None = None
