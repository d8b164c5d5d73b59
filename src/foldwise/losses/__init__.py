r"""Losses of one decision value: what is trained on, and what is validated with.

Every loss is a function of the decision ``z`` and the target ``y``, evaluated elementwise on arrays that
broadcast against each other. Classification losses expect ``y`` in {-1, +1} and depend on ``y z``; regression
losses depend on the residual ``r = z - y``. No loss carries a factor 1/2 in front: the convention is
scikit-learn's, so that ``C`` in ``1/2 ||w||^2 + C sum_j loss_j`` means exactly what it means there.

Three kinds exist, told by attributes that solvers check before they run:

``smooth``
    has ``hess`` (almost everywhere): it can drive Newton's method and implicit differentiation.
``piecewise_quadratic``
    ``loss'(z) = a z - b`` with ``(a, b)`` constant on a few pieces: Gram matrices can be kept and updated.
``polyhedral``
    piecewise linear; ``pieces`` lists the slopes and intercepts for a dual or a linear program. A loss of this kind is
    most easily written as a :class:`Polyhedral`, which needs nothing else.

References
----------
.. [1] G. Moore, C. Bergeron, K. Bennett, Model selection for primal SVM, Machine Learning, 2011.
.. [2] The thesis on bi-level support vector machines whose tables ``papers/thesis`` reproduces, table 2.1.
"""

from __future__ import annotations

from foldwise.losses.base import Loss, typical_curvature
from foldwise.losses.classification import (
    Hinge,
    Logistic,
    Misclassification,
    ModifiedHuber,
    ModifiedLogHinge,
    QuarticHinge,
    SmoothMisclassification,
    SquaredHinge,
)
from foldwise.losses.polyhedral import Pinball, Polyhedral
from foldwise.losses.regression import (
    Absolute,
    EpsilonInsensitive,
    Huber,
    SmoothedEpsilonInsensitive,
    Squared,
    SquaredEpsilonInsensitive,
)

__all__ = [
    "CRITERIA",
    "LOSSES",
    "Absolute",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Misclassification",
    "ModifiedHuber",
    "ModifiedLogHinge",
    "Pinball",
    "Polyhedral",
    "QuarticHinge",
    "SmoothMisclassification",
    "SmoothedEpsilonInsensitive",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "get_loss",
    "typical_curvature",
]

LOSSES: dict[str, type[Loss]] = {
    "squared_epsilon_insensitive": SquaredEpsilonInsensitive,
    "epsilon_insensitive": EpsilonInsensitive,
    "squared": Squared,
    "huber": Huber,
    "pinball": Pinball,
    "squared_hinge": SquaredHinge,
    "modified_huber": ModifiedHuber,
    "hinge": Hinge,
    "logistic": Logistic,
    "modified_log_hinge": ModifiedLogHinge,
    "quartic_hinge": QuarticHinge,
}

CRITERIA: dict[str, type[Loss]] = {
    "squared": Squared,
    "absolute": Absolute,
    "pinball": Pinball,
    "hinge": Hinge,
    "squared_hinge": SquaredHinge,
    "modified_huber": ModifiedHuber,
    "logistic": Logistic,
    "smooth_misclassification": SmoothMisclassification,
    "misclassification": Misclassification,
}


def get_loss(spec: str | Loss) -> Loss:
    """The training loss of this name, or the object itself.

    >>> get_loss("huber")
    Huber(delta=1.35)
    """
    if isinstance(spec, Loss):
        return spec
    if isinstance(spec, str) and spec in LOSSES:
        return LOSSES[spec]()
    raise ValueError(f"unknown loss {spec!r}; use a Loss object or one of: {', '.join(LOSSES)}")
