"""Kernels with the derivatives that a search over their parameters needs.

A kernel is an immutable description; ``kernel.pairs(X)`` computes once what does not depend on its parameters
(distances, products) and then gives, for any parameter values, the matrix ``K`` and two contractions of its
derivatives, never the derivatives themselves as a stack of matrices (:class:`Pairs`):

- ``contract(P)``: ``sum_ij P_ij dK_ij / dlog p`` for every parameter ``p``;
- ``apply(A)``: ``(dK / dlog p) A`` for every parameter ``p``.

Parameters are positive and enter by their logarithm. They are named as in the constructor: ``gamma``, ``coef0``,
``weights``, and in a kernel of your own as you like; a :class:`Sum` numbers those of its parts: ``k0__gamma``,
``k1__gamma``, ... What a parameter is (a width, a weight), where a search starts and between which bounds it looks, the
kernel says itself: ``kinds``, ``typical`` and ``bounds``.
"""

from foldwise.kernels.base import Kernel, Pairs, RowPairs
from foldwise.kernels.single import (
    RBF,
    AdditiveChi2,
    DistancePairs,
    ExpChi2,
    Linear,
    Polynomial,
    Precomputed,
    check_positive,
    squared_distances,
)
from foldwise.kernels.sums import Sum, named_columns

__all__ = [
    "RBF",
    "AdditiveChi2",
    "DistancePairs",
    "ExpChi2",
    "Kernel",
    "Linear",
    "Pairs",
    "Polynomial",
    "Precomputed",
    "RowPairs",
    "Sum",
    "check_positive",
    "named_columns",
    "squared_distances",
]
