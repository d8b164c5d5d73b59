"""Contract checks for losses, kernels, problems, solvers, storages, outer methods; small programs to try them on.

Each ``check_`` function returns None and raises AssertionError with a sentence when its object breaks the contract.
Write a new loss, pass it to :func:`check_loss`, and everything that the package relies on has been tried.

Derivatives are compared with central differences in relative error, and the differences themselves must not be
negligible: a zero derivative never passes for a right one.

Whole searches are drawn at random by :func:`random_search` and judged by :func:`judge`, which refits plain estimators
fold by fold and, where these are ours, holds them against their optimality conditions (:func:`optimality`);
``python -m foldwise.testing.fuzz`` runs many of them.

>>> from foldwise.losses import Huber
>>> from foldwise.testing import check_loss
>>> check_loss(Huber(delta=0.8))
"""

from foldwise.testing.certificates import optimality
from foldwise.testing.comparison import relative_error
from foldwise.testing.derivatives import check_hypergradient, check_hyperhessian, check_problem
from foldwise.testing.designs import check_design
from foldwise.testing.kernels import check_kernel, small_kernel_bilevel
from foldwise.testing.losses import SMOOTH_LOSSES, check_loss
from foldwise.testing.methods import check_optimizer, check_solver
from foldwise.testing.programs import small_bilevel
from foldwise.testing.random_searches import RandomSearch, random_search
from foldwise.testing.referee import Verdict, judge
from foldwise.testing.shrinking import shrink

__all__ = [
    "SMOOTH_LOSSES",
    "RandomSearch",
    "Verdict",
    "check_design",
    "check_hypergradient",
    "check_hyperhessian",
    "check_kernel",
    "check_loss",
    "check_optimizer",
    "check_problem",
    "check_solver",
    "judge",
    "optimality",
    "random_search",
    "relative_error",
    "shrink",
    "small_bilevel",
    "small_kernel_bilevel",
]
