"""Outer methods by name."""

from foldwise.optimizers.base import Minimizer, Trace
from foldwise.optimizers.bundle import Bundle
from foldwise.optimizers.constrained_grid import ConstrainedGrid
from foldwise.optimizers.mpec.method import Mpec, Slams
from foldwise.optimizers.newton import TrustRegionNewton
from foldwise.optimizers.pbp import PenalizedBilevel
from foldwise.optimizers.plans import Grid, Random
from foldwise.optimizers.quasi_newton import Bfgs, LBfgsB, Rprop
from foldwise.optimizers.rescue import Rescued

METHODS = {
    "newton": TrustRegionNewton,
    "lbfgsb": LBfgsB,
    "bfgs": Bfgs,
    "rprop": Rprop,
    "pbp": PenalizedBilevel,
    "mpec": Mpec,
    "slams": Slams,
    "bundle": Bundle,
    "grid": Grid,
    "constrained_grid": ConstrainedGrid,
    "random": Random,
}

__all__ = [
    "METHODS",
    "Bfgs",
    "Bundle",
    "ConstrainedGrid",
    "Grid",
    "LBfgsB",
    "Minimizer",
    "Mpec",
    "PenalizedBilevel",
    "Random",
    "Rescued",
    "Rprop",
    "Slams",
    "Trace",
    "TrustRegionNewton",
]
