"""A smooth loss: in training and as a criterion."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from foldwise import BilevelSearchCV, KernelSVR, LinearSVR
from foldwise.kernels import RBF
from foldwise.losses import Squared
from foldwise.testing import (
    check_hypergradient,
    check_hyperhessian,
    check_loss,
    small_bilevel,
    small_kernel_bilevel,
)
from tests.third_party.log_cosh import LogCosh
from tests.third_party.trial import linear_rows, try_whole


def test_it_keeps_the_contract_of_losses():
    check_loss(LogCosh())


@pytest.mark.parametrize("criterion", [Squared(), LogCosh()], ids=["squared", "itself"])
def test_derivatives_of_the_cross_validation_error_are_those_of_differences(criterion):
    linear, kernel = small_bilevel(LogCosh(), criterion), small_kernel_bilevel(LogCosh(), criterion, RBF(0.5))
    check_hypergradient(*linear)
    check_hyperhessian(*linear)
    check_hypergradient(*kernel)


@pytest.mark.parametrize("machine", [LinearSVR, KernelSVR])
@pytest.mark.parametrize("criterion", ["auto", LogCosh()], ids=["usual", "itself"])
def test_whole_searches(machine, criterion):
    X, y = linear_rows()
    try_whole(BilevelSearchCV(machine(loss=LogCosh()), criterion=criterion, cv=3, random_state=0), X, y)


def test_a_fit_is_the_minimum_that_another_optimizer_finds():
    X, y = linear_rows()
    fitted = LinearSVR(LogCosh(), C=0.7).fit(X, y)

    def objective(x):
        return 0.5 * x[:-1] @ x[:-1] + 0.7 * np.sum(np.logaddexp(r := X @ x[:-1] + x[-1] - y, -r) - np.log(2))

    found = minimize(objective, np.zeros(5), method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose([*fitted.coef_, fitted.intercept_], found.x, rtol=1e-5, atol=1e-6)
