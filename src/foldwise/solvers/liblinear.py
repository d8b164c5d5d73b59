"""A first guess for sparse problems that start from nothing.

From zero weights Newton's method takes a dozen steps to find which rows matter, each with most rows curved. Dual
coordinate descent finds them in a few passes over the nonzero entries; LIBLINEAR, which scikit-learn ships, does that
for the two losses of support vector machines. Newton's method then finishes with a handful of small systems.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC, LinearSVR

from foldwise.losses import Loss, SquaredEpsilonInsensitive, SquaredHinge
from foldwise.problems.base import Array
from foldwise.problems.linear import LinearProblem

__all__ = ["first_guess"]

MACHINES: dict[type[Loss], Any] = {SquaredHinge: LinearSVC, SquaredEpsilonInsensitive: LinearSVR}
"""LIBLINEAR's machines, by the loss that they train with."""
TOLERANCE = 1e-2
MAX_ENTRIES = np.iinfo(np.int32).max
"""LIBLINEAR counts in 32 bits."""


def first_guess(problem: LinearProblem, theta: Array, W: Array) -> Array:
    """``W`` with rough solutions in the rows that are zero, where LIBLINEAR can give them.

    Coordinate descent slows down as the penalty weakens: beyond a moderate strength it solves for that strength, still
    a better start than zero. LIBLINEAR penalises the intercept, which makes the guess of a free one a little short.
    """
    cold = np.flatnonzero(~W.any(axis=1))
    machine = MACHINES.get(type(problem.loss))
    if problem.design.is_dense or not len(cold) or machine is None or problem.design.entries > MAX_ENTRIES:
        return W
    par, W = problem.parameters(theta), W.copy()
    factor = min(1.0, problem.balance(theta) or 1.0)
    d, penalty = problem.design.n_features, problem.diagonal(par)
    for m in cold:
        weight = problem.weight * problem.folds.count[problem.split[m]]
        weight = weight * factor * problem.by_row(par.c, np.array([m]))[0]
        rows = np.flatnonzero(weight)
        y = problem.Y[problem.target[m]][rows]
        if not len(rows) or np.all(y == y[0]):
            continue
        root = 1.0 / np.sqrt(penalty[m, :d])
        X = _scaled(problem.design.csr(rows)[:, :d], root)
        C = float(weight[rows].max())
        options: dict[str, Any] = {
            "C": C,
            "tol": TOLERANCE,
            "dual": True,
            "random_state": 0,
            "fit_intercept": problem.design.intercept,
        }
        if problem.penalty.form is not None:
            options["intercept_scaling"] = 1.0 / np.sqrt(problem.penalty.strength)
        elif problem.design.intercept:
            options["intercept_scaling"] = float(np.sqrt(X.data @ X.data / len(rows))) or 1.0
        if machine is LinearSVR:
            options |= {"loss": "squared_epsilon_insensitive", "epsilon": float(par.epsilon[m].mean())}
        model = machine(**options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a guess need not be accurate
            model.fit(X, y, sample_weight=weight[rows] / C)
        W[m, :d] = np.ravel(model.coef_) * root
        if problem.design.intercept:
            W[m, d] = np.ravel(model.intercept_)[0]
    return W


def _scaled(X: sp.csr_array, factors: Array) -> sp.csr_array:
    """``X`` with its columns multiplied, and the 32-bit indices that LIBLINEAR takes."""
    indices, indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return sp.csr_array((X.data * factors[X.indices], indices, indptr), shape=X.shape)
