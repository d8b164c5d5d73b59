"""Answers that share nothing with the package: quadratic programs by Clarabel, refits by scikit-learn."""

from __future__ import annotations

from functools import partial
from inspect import signature
from itertools import chain, combinations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar
from sklearn.base import is_classifier
from sklearn.svm import SVC
from sklearn.utils.class_weight import compute_class_weight

from foldwise.criteria import ProfiledLogistic
from foldwise.testing.refits import criterion_values


def counts_rows(machine):
    """Whether the machine's own "balanced" counts rows: ``SVC``, and scikit-learn's linear machines before 1.7."""
    sklearns = type(machine).__module__.startswith("sklearn.")
    return sklearns and (
        isinstance(machine, SVC) or "sample_weight" not in signature(compute_class_weight).parameters
    )


def quadratic_program(P, q, A, b, *, equal=0, tol=1e-12):
    """``min x'Px / 2 + q'x`` with ``A x = b`` in the first ``equal`` rows and ``A x <= b`` below: x and the value."""
    clarabel = pytest.importorskip("clarabel", reason="the QP referee needs clarabel: pip install clarabel")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
    cones = [clarabel.ZeroConeT(equal), clarabel.NonnegativeConeT(len(b) - equal)]
    upper, rows = sp.triu(sp.csc_matrix(P), format="csc"), sp.csc_matrix(A)
    found = clarabel.DefaultSolver(upper, q, rows, b, cones, settings).solve()
    assert str(found.status) in ("Solved", "AlmostSolved")
    return np.array(found.x), found.obj_val


def kernel_machine(K, y, c, tube, intercept, *, squared=False, tol=1e-12):
    """Decisions and value of a machine with the hinge (``tube=None``) or the tube, or their squares.

    The primal in (w, b, xi) with ``K = B B'`` and decisions ``B w + b``.
    """
    n = len(y)
    size, vectors = np.linalg.eigh(K)
    B = vectors * np.sqrt(np.maximum(size, 0.0))
    one, eye = np.ones((n, 1)), np.eye(n)
    P = sp.diags(np.concatenate([np.ones(n), [0.0], 2.0 * c if squared else np.zeros(n)]))
    q = np.concatenate([np.zeros(n + 1), np.zeros(n) if squared else c])
    if tube is None:
        A, b = np.hstack([-y[:, None] * B, -y[:, None] * one, -eye]), -np.ones(n)
    else:
        A = np.vstack([np.hstack([B, one, -eye]), np.hstack([-B, -one, -eye])])
        b = np.concatenate([y + tube, tube - y])
    no_intercept = np.zeros((0 if intercept else 1, 2 * n + 1))
    no_intercept[:, n] = 1.0
    A = np.vstack([no_intercept, A, np.hstack([np.zeros((n, n + 1)), -eye])])
    b = np.concatenate([np.zeros(len(no_intercept)), b, np.zeros(n)])
    x, value = quadratic_program(P, q, A, b, equal=len(no_intercept), tol=tol)
    return B @ x[:n] + x[n], value


def class_shares(machine, train, test, weight=None):
    """What the classes of the test rows weigh in training, by the machine's own ``class_weight``."""
    given = getattr(machine, "class_weight", None) or {}
    if isinstance(given, str):
        weight = np.ones(len(train)) if weight is None or counts_rows(machine) else weight
        mass = {label: weight[train == label].sum() for label in np.unique(train)}
        given = {label: weight.sum() / (len(mass) * own) for label, own in mass.items()}
    return np.array([given.get(label, 1.0) for label in test])


def by_machine(fitted, X, y):
    """``(decisions, targets, rows that take part)`` of every machine of a fitted estimator on rows ``X``.

    One machine for a regression or two classes, one for every class against the rest, and of ``SVC`` one for every
    pair, whose first class is positive.
    """
    everyone = np.ones(len(y), bool)
    if not is_classifier(fitted):
        return [(fitted.predict(X), y, everyone)]
    classes = fitted.classes_
    own = fitted[-1] if hasattr(fitted, "steps") else fitted
    one_vs_one = isinstance(own, SVC) and len(classes) > 2
    if one_vs_one:
        own.decision_function_shape = "ovo"
    z = fitted.decision_function(X)
    if len(classes) == 2:
        return [(z, np.where(y == classes[1], 1.0, -1.0), everyone)]
    if not one_vs_one:
        return [(z[:, k], np.where(y == label, 1.0, -1.0), everyone) for k, label in enumerate(classes)]
    return [
        (z[:, k], np.where(y == first, 1.0, -1.0), np.isin(y, [first, second]))
        for k, (first, second) in enumerate(combinations(classes, 2))
    ]


def fold_decisions(fitted, X, y, counts=None):
    """``(decisions, targets, weights)`` of every machine on rows ``X``; weights sum to one over all of them."""
    counts = np.ones(len(y)) if counts is None else counts
    machines = by_machine(fitted, X, y)
    return [
        (z[own], target[own], counts[own] / counts[own].sum() / len(machines)) for z, target, own in machines
    ]


def fold_errors(criterion, folds):
    """The criterion in every fold, from the :func:`fold_decisions` of all of them."""
    if isinstance(criterion, ProfiledLogistic):
        criterion = in_best_unit(
            criterion, *(np.concatenate(part) for part in zip(*chain.from_iterable(folds), strict=True))
        )
    else:
        criterion = partial(criterion_values, criterion)
    return np.array([sum(v @ criterion(z, y) for z, y, v in fold) for fold in folds])


def in_best_unit(criterion, z, y, v):
    """The smoothed logistic loss in the unit that suits all decisions best, found by differences."""
    s, size = criterion.smoothing, np.abs(z).max() or 1.0
    assert not criterion.offset

    def loss(log_a, z, y):
        m = y * z * np.exp(log_a) / size
        rows = np.logaddexp(0.0, -m) + s * m
        share = criterion.outliers
        return -np.log(share + (1.0 - share) * np.exp(-rows)) if share else rows

    grid = np.linspace(-20.0, 20.0, 401)
    near = grid[np.argmin([v @ loss(log_a, z, y) for log_a in grid])]
    best = minimize_scalar(
        lambda t: v @ loss(t, z, y),
        bounds=(near - 0.2, near + 0.2),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return lambda z, y: loss(best.x, z, y)
