"""Every estimator that a search accepts, at its defaults: ``best_score_`` is what ``cross_val_score`` says.

The table is made from the registry of machines, so a new one is tested the day it is added: each of its
hyper-parameters tuned alone and all together, bare and behind a scaler.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.svm import LinearSVR as SkLinearSVR

from foldwise import BilevelSearchCV, SemiparametricSVR
from foldwise.estimators.adapters import ADAPTERS, OURS, describe
from tests.referees import fold_decisions, fold_errors

MACHINES = [*OURS, *ADAPTERS]
EXACT = (SVC, SVR, SemiparametricSVR)
"""Trained with the hinge or the tube itself."""
ACCURATE = {"tol": 1e-8}
"""scikit-learn's solvers stop early by default; the training problem is the same."""


def machine(kind):
    """An estimator at its defaults; scikit-learn's LinearSVR has one loss only that can be tuned."""
    return kind(loss="squared_epsilon_insensitive") if kind is SkLinearSVR else kind()


def spaces(kind):
    """Each hyper-parameter alone, all that may be tuned together, and the default choice."""
    tunable = describe(machine(kind))
    together = [name for name in tunable.names if name not in ("lam", "box_lower")]  # C stands for lam
    return [[name] for name in tunable.names] + ([together] if len(together) > 1 else []) + [None]


TABLE = [(kind, names) for kind in MACHINES for names in spaces(kind)]


def name_of(value):
    if isinstance(value, type):
        return f"{value.__module__.split('.')[0]}.{value.__name__}"
    if isinstance(value, bool):
        return "scaled" if value else "bare"
    return "default" if value is None else "+".join(value) if isinstance(value, list) else None


def data(kind):
    """Rows in the units in which they came: columns of very different spread, a target far from 0."""
    if is_classifier(kind()):
        X, y = load_breast_cancer(return_X_y=True)
        rows, columns = np.random.default_rng(3).permutation(len(y))[:60], [0, 4, 7, 21]
        return X[rows][:, columns], np.array(["benign", "malignant"])[y[rows]]
    X, y = load_diabetes(return_X_y=True)
    rows = np.random.default_rng(3).permutation(len(y))[:60]
    return X[rows][:, [2, 3, 8, 6]] * [100.0, 10.0, 1.0, 30.0] + [5.0, 0.0, 1.0, 0.0], y[rows]


CASES = [(kind, names, scaled) for kind, names in TABLE for scaled in (False, True)]


@pytest.mark.parametrize(("kind", "names", "scaled"), CASES, ids=name_of)
def test_best_score_is_what_cross_val_score_says(kind, names, scaled):
    estimator = make_pipeline(StandardScaler(), machine(kind)) if scaled else machine(kind)
    prefix = f"{kind.__name__.lower()}__" if scaled else ""
    X, y = data(kind)
    space = None if names is None else [prefix + name for name in names]
    refitted = describe(estimator).refitted  # as it is, at points of a grid
    limits = {} if refitted else {"max_iter": 5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of scikit-learn's own final fit
        search = BilevelSearchCV(estimator, space, cv=3, random_state=0, **limits).fit(X, y)
        tuned = clone(estimator).set_params(**search.best_params_)
        if kind.__module__.startswith("sklearn") and "tol" in kind().get_params() and not refitted:
            tuned.set_params(**{prefix + name: value for name, value in ACCURATE.items()})
        decisions = []  # scikit-learn fits and hands over the folds; a criterion may need all of them at once

        def note(fitted, X, y):
            decisions.append(fold_decisions(fitted, X, y))
            return 0.0

        cross_val_score(tuned, X, y, cv=3, scoring=note)
        folds = -fold_errors(search.criterion_, decisions)
    rtol = 1e-3 if isinstance(machine(kind), EXACT) else 1e-6
    np.testing.assert_allclose(search.best_score_, folds.mean(), rtol=rtol)
    np.testing.assert_allclose(
        [search.cv_results_[f"split{t}_test_score"][search.best_index_] for t in range(3)],
        folds,
        rtol=rtol * 10,
    )
