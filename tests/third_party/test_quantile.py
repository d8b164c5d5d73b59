"""A loss of quantiles: trained smoothly, judged by its exact form."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import QuantileRegressor

from foldwise import BilevelSearchCV, KernelSVR, LinearSVR
from foldwise.kernels import RBF
from foldwise.testing import check_hypergradient, check_loss, small_bilevel, small_kernel_bilevel
from tests.third_party.quantile import Pinball, SmoothPinball
from tests.third_party.trial import linear_rows, try_whole


@pytest.mark.parametrize(
    "loss", [Pinball(0.9), Pinball(0.3), SmoothPinball(0.9, 0.5), SmoothPinball(0.3)], ids=str
)
def test_it_keeps_the_contract_of_losses(loss):
    check_loss(loss)


@pytest.mark.parametrize("criterion", [Pinball(0.8), SmoothPinball(0.8)], ids=["exact", "smooth"])
def test_gradients_of_the_cross_validation_error_are_those_of_differences(criterion):
    check_hypergradient(*small_bilevel(SmoothPinball(0.8), criterion))
    check_hypergradient(*small_kernel_bilevel(SmoothPinball(0.8), criterion, RBF(0.5)))


@pytest.mark.parametrize("machine", [LinearSVR, KernelSVR])
def test_whole_searches(machine):
    X, y = linear_rows()
    search = BilevelSearchCV(machine(loss=SmoothPinball(0.8)), criterion=Pinball(0.8), cv=3, random_state=0)
    try_whole(search, X, y)


def test_a_narrow_one_is_scikit_learns_quantile_regression():
    X, y = linear_rows(300)
    ours = LinearSVR(SmoothPinball(0.8, 1e-3), C=100.0, max_iter=1000).fit(X, y)
    theirs = QuantileRegressor(quantile=0.8, alpha=0.0).fit(X, y)
    loss = Pinball(0.8)
    least = loss.value(theirs.predict(X), y).mean()
    assert loss.value(ours.predict(X), y).mean() == pytest.approx(least, rel=1e-3)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=0.05)


@pytest.mark.parametrize("q", [0.1, 0.9])
def test_a_share_of_the_rows_lies_below_the_prediction(q):
    X, y = linear_rows(400)
    search = BilevelSearchCV(KernelSVR(loss=SmoothPinball(q)), criterion=Pinball(q), cv=3, random_state=0)
    search.fit(X[:200], y[:200])
    below = np.mean(y[200:] < search.predict(X[200:]))
    assert abs(below - q) < 3 * np.sqrt(0.09 / 200) + 0.02
