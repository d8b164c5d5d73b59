"""Estimators with fixed hyper-parameters, in scikit-learn's manner."""

from foldwise.estimators.kernel import KernelSVC, KernelSVR
from foldwise.estimators.linear import LinearSVC, LinearSVR
from foldwise.estimators.semiparametric import SemiparametricSVR

__all__ = ["KernelSVC", "KernelSVR", "LinearSVC", "LinearSVR", "SemiparametricSVR"]
