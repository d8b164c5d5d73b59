"""A criterion of pairs of rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from foldwise import BilevelSearchCV, KernelSVC, LinearSVC
from foldwise.kernels import RBF
from foldwise.losses import Hinge, Logistic
from foldwise.testing import check_hypergradient, small_bilevel, small_kernel_bilevel
from tests.third_party.smooth_auc import SmoothAuc
from tests.third_party.trial import linear_rows, try_whole


def test_gradients_of_the_cross_validation_error_are_those_of_differences():
    for bilevel, theta in (
        small_bilevel(Logistic(), SmoothAuc()),
        small_kernel_bilevel(Logistic(), SmoothAuc(), RBF(0.5)),
        small_kernel_bilevel(Hinge(), SmoothAuc(), RBF(0.5)),
    ):
        check_hypergradient(bilevel, theta)


@pytest.mark.parametrize(
    "machine",
    [LinearSVC(), LinearSVC("hinge"), KernelSVC(), KernelSVC(loss="hinge"), SVC()],
    ids=lambda machine: (
        f"{type(machine).__module__[:8]}-{type(machine).__name__}-{getattr(machine, 'loss', '')}"
    ),
)
def test_whole_searches(machine):
    X, y = linear_rows()
    try_whole(
        BilevelSearchCV(machine, ["C"], criterion=SmoothAuc(), method="lbfgsb", cv=3, random_state=0),
        X,
        y > 0,
    )


def test_a_narrow_one_is_the_area_above_the_curve():
    X, y = linear_rows()
    folds = StratifiedKFold(3)
    search = BilevelSearchCV(
        LinearSVC(), {"C": (0.1, 10.0)}, criterion=SmoothAuc(1e-6), method="grid", cv=folds
    )
    search.fit(X, y > 0)
    z = np.zeros(len(y))
    for train, test in folds.split(X, y > 0):
        z[test] = LinearSVC(**search.best_params_).fit(X[train], y[train] > 0).decision_function(X[test])
    assert search.best_score_ == pytest.approx(roc_auc_score(y > 0, z) - 1.0, abs=1e-6)


def test_a_method_of_second_derivatives_says_what_is_missing():
    X, y = linear_rows()
    with pytest.raises(ValueError, match=r"SmoothAuc defines no curvature\(out\); use method='lbfgsb'"):
        BilevelSearchCV(LinearSVC(), ["C"], criterion=SmoothAuc(), method="newton").fit(X, y > 0)
