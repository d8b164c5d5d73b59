"""Linear models: ``w`` on the features, with penalties, boxes and reference weights of their own."""

from foldwise.models.linear.model import EXACT_SOLVERS, SMOOTH_SOLVERS, LinearModel, assemble

__all__ = ["EXACT_SOLVERS", "SMOOTH_SOLVERS", "LinearModel", "assemble"]
