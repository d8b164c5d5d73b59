"""Penalised bilevel programming."""

from foldwise.optimizers.pbp.method import PenalizedBilevel

__all__ = ["PenalizedBilevel"]
