"""Losses: the contract for every registered one, and that the contract can be broken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldwise.criteria import get_criterion
from foldwise.losses import (
    CRITERIA,
    LOSSES,
    Absolute,
    EpsilonInsensitive,
    Hinge,
    Huber,
    Logistic,
    Loss,
    Misclassification,
    ModifiedHuber,
    ModifiedLogHinge,
    QuarticHinge,
    SmoothMisclassification,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
    get_loss,
)
from foldwise.testing import check_loss

ALL = [*dict.fromkeys([*LOSSES.values(), *CRITERIA.values()])]
OTHER_PARAMETERS = [
    SquaredEpsilonInsensitive(epsilon=0.1),
    EpsilonInsensitive(epsilon=0.8),
    Huber(delta=0.4),
    Logistic(s=2.0),
    ModifiedLogHinge(mu=3.0),
    QuarticHinge(epsilon=0.6),
    SmoothMisclassification(s=1.5),
]


@pytest.mark.parametrize("loss", [*(kind() for kind in ALL), *OTHER_PARAMETERS], ids=repr)
@pytest.mark.parametrize("seed", [0, 1])
def test_contract(loss, seed):
    check_loss(loss, seed=seed)


@dataclass(frozen=True)
class WrongGrad(Squared):
    def grad(self, z, y):
        return z - y


@dataclass(frozen=True)
class WrongHess(Logistic):
    def hess(self, z, y):
        return 1.01 * super().hess(z, y)


@dataclass(frozen=True)
class WrongThird(Logistic):
    def third(self, z, y):
        return -super().third(z, y)


@dataclass(frozen=True)
class NotConvex(SmoothMisclassification):
    convex = True


@dataclass(frozen=True)
class ConvexAfterAll(Squared):
    convex = False


@dataclass(frozen=True)
class WrongPiece(SquaredHinge):
    def coefficients(self, code, y):
        a, b0, b1 = super().coefficients(code, y)
        return a, -b0, b1


@dataclass(frozen=True)
class WrongTube(SquaredEpsilonInsensitive):
    def grad_epsilon(self, z, y):
        return -super().grad_epsilon(z, y)


@dataclass(frozen=True)
class WrongNone(Squared):
    def coefficients(self, code, y):
        return np.full(y.shape, 2.0), 2.0 * y, np.zeros(y.shape)


@dataclass(frozen=True)
class WrongJump(Huber):
    def kinks(self, z, y):
        return [(u, du, -jump) for u, du, jump in super().kinks(z, y)]


@dataclass(frozen=True)
class HiddenKink(SquaredHinge):
    def kinks(self, z, y):
        return []


@dataclass(frozen=True)
class HiddenCorner(Hinge):
    def corners(self, z, y):
        return []


@dataclass(frozen=True)
class WrongCorner(Absolute):
    def corners(self, z, y):
        return [(z - y, 1.0)]


@dataclass(frozen=True)
class MissingPiece(EpsilonInsensitive):
    def pieces(self, y):
        return super().pieces(y)[1:]


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (WrongGrad(), "grad"),
        (WrongHess(), "hess"),
        (WrongThird(), "third"),
        (NotConvex(), "not convex"),
        (ConvexAfterAll(), "says it is not convex"),
        (WrongPiece(), "a z - b0"),
        (WrongTube(), "grad_epsilon"),
        (WrongNone(), "take no part"),
        (WrongJump(), "kinks"),
        (HiddenKink(), "derivative jumps"),
        (HiddenCorner(), "derivative jumps"),
        (WrongCorner(), "corners"),
        (MissingPiece(), "largest piece"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_broken_contract_is_found(broken, words):
    with pytest.raises(AssertionError, match=words):
        check_loss(broken)


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind.convex], ids=lambda kind: kind.__name__)
def test_convex_between_any_two_points(kind):
    loss = kind()

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(
        st.floats(-50, 50),
        st.floats(-50, 50),
        st.floats(0, 1),
        st.floats(-5, 5),
        st.floats(0, 3),
        st.booleans(),
    )
    def chord_lies_above(a, b, t, y, epsilon, positive):
        at = loss.replace(epsilon=epsilon) if "epsilon" in loss.tunable else loss
        y = (1.0 if positive else -1.0) if loss.task == "classification" else y
        a, b, y = np.array([a]), np.array([b]), np.array([y])
        chord = t * at.value(a, y) + (1 - t) * at.value(b, y)
        assert at.value(t * a + (1 - t) * b, y) <= chord + 1e-10 * (1 + chord)

    chord_lies_above()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.floats(-30, 30), st.floats(-30, 30))
def test_the_gradient_is_a_lower_bound_on_the_slope_of_chords(a, b):
    y = np.array([1.0])
    for kind in ALL:
        if kind.convex and kind.differentiable:
            loss = kind()
            below = loss.value(np.array([a]), y) + loss.grad(np.array([a]), y) * (b - a)
            assert below <= loss.value(np.array([b]), y) + 1e-9 * (1 + abs(below))


def test_values_by_hand():
    z, y = np.array([2.0, 0.5, -1.0]), np.array([1.0, 1.0, 1.0])
    np.testing.assert_allclose(SquaredEpsilonInsensitive(0.25).value(z, y), [0.5625, 0.0625, 3.0625])
    np.testing.assert_allclose(EpsilonInsensitive(0.25).value(z, y), [0.75, 0.25, 1.75])
    np.testing.assert_allclose(Huber(1.0).value(z, y), [0.5, 0.125, 1.5])
    np.testing.assert_allclose(SquaredHinge().value(z, y), [0.0, 0.25, 4.0])
    np.testing.assert_allclose(ModifiedHuber().value(z, y), [0.0, 0.25, 4.0])
    np.testing.assert_allclose(ModifiedHuber().value(np.array([-3.0, 3.0]), np.array([1.0, -1.0])), 12.0)
    np.testing.assert_allclose(Hinge().value(z, y), [0.0, 0.5, 2.0])
    np.testing.assert_allclose(Absolute().value(z, y), [1.0, 0.5, 2.0])
    np.testing.assert_allclose(Squared().value(z, y), [1.0, 0.25, 4.0])
    np.testing.assert_allclose(Logistic(2.0).value(z, y), np.log1p(np.exp(-2 * z)) / 2)
    np.testing.assert_allclose(QuarticHinge(0.5).value(z, y), [0.0, 0.5, 2.0])


def test_the_quartic_hinge_is_the_polynomial_of_the_table():
    """Thesis table 2.1 (with its condition corrected): 3e/16 at the corner, slope -1/2, curvature 3/(4e)."""
    e, at, y = 0.3, np.array([1.0]), np.array([1.0])
    assert QuarticHinge(e).value(at, y)[0] == pytest.approx(3 * e / 16)
    assert QuarticHinge(e).grad(at, y)[0] == pytest.approx(-0.5)
    assert QuarticHinge(e).hess(at, y)[0] == pytest.approx(0.75 / e)


@pytest.mark.parametrize(("smooth", "limit"), [(ModifiedLogHinge(1e3), 2e-3), (QuarticHinge(1e-3), 2e-3)])
def test_smooth_hinges_tend_to_the_hinge(smooth, limit):
    z = np.linspace(-3, 3, 301)
    gap = np.abs(smooth.value(z, np.ones(301)) - Hinge().value(z, np.ones(301)))
    assert 0 < gap.max() < limit


def test_smooth_misclassification_tends_to_misclassification():
    z = np.array([-0.5, -0.01, 0.01, 0.5])
    for label in (-1.0, 1.0):
        y = np.full(4, label)
        sharp = SmoothMisclassification(1e4).value(z, y)
        np.testing.assert_allclose(sharp, Misclassification().value(z, y), atol=1e-12)


def test_a_decision_of_zero_counts_as_positive():
    assert Misclassification().value(np.zeros(2), np.array([1.0, -1.0])).tolist() == [0.0, 1.0]


def test_large_decisions_do_not_overflow():
    z, y = np.array([-1e6, 1e6]), np.ones(2)
    with np.errstate(over="raise", invalid="raise"):
        for loss in (Logistic(), ModifiedLogHinge(), SmoothMisclassification()):
            assert np.isfinite(loss.value(z, y)).all()
            assert np.isfinite(loss.grad(z, y)).all()
            assert np.isfinite(loss.hess(z, y)).all()


def test_missing_derivatives_say_what_to_use():
    with pytest.raises(TypeError, match="no derivative"):
        Misclassification().grad(np.zeros(1), np.ones(1))
    with pytest.raises(TypeError, match="value"):
        Loss().value(np.zeros(1), np.ones(1))


def test_names():
    assert get_loss("huber") == Huber()
    assert get_criterion("hinge") == Hinge()
    custom = Logistic(s=3.0)
    assert get_criterion(custom) is custom
    with pytest.raises(ValueError, match="squared_hinge"):
        get_loss("sqaured_hinge")
    with pytest.raises(ValueError, match="misclassification"):
        get_criterion(3)
