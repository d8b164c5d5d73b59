"""A polyhedral loss with three slopes, none of them zero: trained exactly, and as a criterion."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from foldwise import BilevelSearchCV, KernelSVR, LinearSVR
from foldwise.kernels import RBF
from foldwise.losses import Polyhedral, Squared
from foldwise.testing import check_hypergradient, check_loss, small_kernel_bilevel
from tests.third_party.stock import Stock
from tests.third_party.trial import linear_rows, try_whole


def cost(z, y):
    """The same, written from the story."""
    left = np.maximum(z - y, 0.0)
    return 3.0 * np.maximum(y - z, 0.0) + 0.5 * np.minimum(left, 0.5) + 2.0 * np.maximum(left - 0.5, 0.0)


def test_it_keeps_the_contract_of_losses():
    check_loss(Stock())
    check_loss(Stock().smoothed(0.2))
    z, y = np.random.default_rng(0).normal(size=(2, 50))
    np.testing.assert_allclose(Stock().value(z, y), cost(z, y), atol=1e-12)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("criterion", [Squared(), Stock()], ids=["squared", "itself"])
def test_gradients_of_the_cross_validation_error_are_those_of_differences(criterion, intercept):
    check_hypergradient(*small_kernel_bilevel(Stock(), criterion, RBF(0.5), intercept=intercept))


@pytest.mark.parametrize("machine", [LinearSVR, KernelSVR])
@pytest.mark.parametrize("criterion", ["auto", Stock()], ids=["usual", "itself"])
def test_whole_searches(machine, criterion):
    X, y = linear_rows()
    try_whole(BilevelSearchCV(machine(loss=Stock()), criterion=criterion, cv=3, random_state=0), X, y)


def test_a_fit_is_the_minimum_that_another_optimizer_finds():
    X, y = linear_rows(40)
    fitted = LinearSVR(Stock(), C=0.7).fit(X, y)

    def objective(x):
        return 0.5 * x[:-1] @ x[:-1] + 0.7 * np.sum(cost(X @ x[:-1] + x[-1], y))

    own = objective(np.append(fitted.coef_, fitted.intercept_))
    starts = np.append(fitted.coef_, fitted.intercept_) + 0.3 * np.random.default_rng(0).normal(size=(3, 5))
    found = [minimize(objective, start, method="Powell", options={"xtol": 1e-9}) for start in starts]
    assert own <= min(end.fun for end in found) + 1e-9


def test_a_large_strength_is_a_linear_program():
    X, y = linear_rows(60)
    A = np.column_stack([X, np.ones(60)])
    lines = [(-3.0, 3.0 * y), (0.5, -0.5 * y), (2.0, -2.0 * y - 0.75)]
    found = linprog(
        np.r_[np.zeros(5), np.ones(60)],
        A_ub=np.vstack([np.hstack([k * A, -np.eye(60)]) for k, _ in lines]),
        b_ub=np.concatenate([-c for _, c in lines]),
        bounds=[(None, None)] * 65,
    )
    fitted = LinearSVR(Stock(), C=1e5).fit(X, y)
    np.testing.assert_allclose([*fitted.coef_, fitted.intercept_], found.x[:5], atol=1e-4)


class Unbounded(Polyhedral):
    def pieces(self, y):
        return [(1.0, -y), (2.0, -2.0 * y)]


class Hidden(Polyhedral):
    def pieces(self, y):
        return [(-1.0, y), (0.0, -1.0), (1.0, -y)]


@pytest.mark.parametrize(
    ("loss", "words"), [(Unbounded(), "has no minimum"), (Hidden(), "nowhere the largest")]
)
def test_pieces_that_are_no_loss_are_refused(loss, words):
    X, y = linear_rows(30)
    with pytest.raises(ValueError, match=words):
        LinearSVR(loss).fit(X, y)
