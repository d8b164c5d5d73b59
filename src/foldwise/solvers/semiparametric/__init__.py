"""Solvers of semiparametric support vector regression (lee2009), and a faster path for smooth kernels."""

from foldwise.solvers.semiparametric.columns import Columns, columns_of
from foldwise.solvers.semiparametric.decomposition import Progress
from foldwise.solvers.semiparametric.methods import SOLVERS, SemiparametricSolution, solve

__all__ = ["SOLVERS", "Columns", "Progress", "SemiparametricSolution", "columns_of", "solve"]
