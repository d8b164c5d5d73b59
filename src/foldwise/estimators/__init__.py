"""Estimators with fixed hyper-parameters, in scikit-learn's manner."""

from foldwise.estimators.kernel import KernelSVC, KernelSVR
from foldwise.estimators.linear import LinearSVC, LinearSVR

__all__ = ["KernelSVC", "KernelSVR", "LinearSVC", "LinearSVR"]
