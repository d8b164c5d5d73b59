"""A kernel with a length and a period."""

from __future__ import annotations

import numpy as np
import pytest

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR, SemiparametricSVR
from foldwise.kernels import RBF, Linear, Sum
from foldwise.losses import EpsilonInsensitive, Logistic, Squared, SquaredEpsilonInsensitive, SquaredHinge
from foldwise.testing import check_hypergradient, check_kernel, small_kernel_bilevel
from tests.third_party.periodic import Periodic
from tests.third_party.trial import try_whole


def waves(n=90, period=2.5):
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 10.0, size=(n, 1))
    return X, np.sin(2 * np.pi * X[:, 0] / period) + 0.2 * rng.normal(size=n)


def test_it_keeps_the_contract_of_kernels():
    check_kernel(Periodic(0.8, 1.7), np.random.default_rng(0).normal(size=(12, 2)))


def test_the_contract_tells_a_wrong_derivative():
    class Wrong(Periodic):
        def pairs(self, X, U=None):
            pairs = super().pairs(X, U)
            slopes = pairs.slopes
            pairs.slopes = lambda: [slopes()[0], -slopes()[1]]
            return pairs

    with pytest.raises(AssertionError, match=r"pairs\(X\)\.contract, parameter 1: relative error"):
        check_kernel(Wrong(0.8, 1.7), np.random.default_rng(0).normal(size=(12, 2)))


@pytest.mark.parametrize(
    ("loss", "criterion"),
    [
        (SquaredEpsilonInsensitive(), Squared()),
        (EpsilonInsensitive(), Squared()),
        (SquaredHinge(), Logistic()),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_gradients_of_the_cross_validation_error_are_those_of_differences(loss, criterion):
    bilevel, theta = small_kernel_bilevel(loss, criterion, Periodic(1.1, 2.0))
    assert {"kernel__length", "kernel__period"} <= set(bilevel.space.names)
    check_hypergradient(bilevel, theta)


@pytest.mark.parametrize(
    "machine",
    [
        KernelSVR(Periodic(1.0, 2.3)),
        KernelSVR(Periodic(1.0, 2.3), loss="epsilon_insensitive"),
        KernelSVC(Periodic(1.0, 2.3)),
        KernelSVC(Periodic(1.0, 2.3), loss="hinge"),
    ],
    ids=lambda machine: f"{type(machine).__name__}-{machine.loss}",
)
def test_whole_searches(machine):
    X, y = waves()
    search = BilevelSearchCV(machine, cv=3, random_state=0)
    try_whole(search, X, y > 0 if isinstance(machine, KernelSVC) else y)


def test_a_search_finds_the_period():
    X, y = waves()
    search = BilevelSearchCV(KernelSVR(Periodic(1.0, 2.3)), cv=3, random_state=0).fit(X, y)
    assert search.best_params_["kernel__period"] == pytest.approx(2.5, rel=0.01)
    assert search.best_estimator_.kernel.period == search.best_params_["kernel__period"]
    new = np.linspace(20.0, 22.5, 40)[:, None]  # four periods away from every row
    np.testing.assert_allclose(search.predict(new), np.sin(2 * np.pi * new[:, 0] / 2.5), atol=0.35)


def test_it_is_a_part_of_sums_and_of_semiparametric_machines():
    X, y = waves(60)
    kernel = Sum([Periodic(1.0, 2.3), RBF(0.1), Linear()])
    search = BilevelSearchCV(KernelSVR(kernel), cv=3, random_state=0, max_iter=5).fit(X, y)
    assert {"kernel__k0__length", "kernel__k0__period", "kernel__k1__gamma"} <= set(search.best_params_)
    line = BilevelSearchCV(SemiparametricSVR([0], Periodic(1.0, 2.3)), cv=3, max_iter=5).fit(X, y)
    assert {"kernel__length", "kernel__period"} <= set(line.best_params_)
