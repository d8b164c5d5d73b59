"""The space: names to theta and back, bounds, ties, and errors that say what to do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldwise.space import Lin, Log, Space, as_dimension

LABELS = {"feature": ["a", "b", "c", "d"], "group": ["low", "high"]}


def test_log_entries_hold_logarithms_and_linear_ones_the_value():
    space = Space.build({"C": Log(1e-2, 1e2), "epsilon": Lin(0, 1)}, {})
    np.testing.assert_allclose(space.theta({"C": 5.0, "epsilon": 0.25}), [np.log(5.0), 0.25])
    np.testing.assert_allclose(space.lower, [np.log(1e-2), 0.0])
    np.testing.assert_allclose(space.upper, [np.log(1e2), 1.0])
    assert space.slices == {"C": slice(0, 1), "epsilon": slice(1, 2)}


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.floats(0.011, 99), min_size=4, max_size=4), st.floats(0, 1))
def test_round_trip(lam, epsilon):
    space = Space.build({"lam": Log(1e-2, 1e2, per="feature"), "epsilon": Lin(0, 1)}, LABELS)
    params = space.params(space.theta({"lam": lam, "epsilon": epsilon}))
    np.testing.assert_allclose(params["lam"], lam, rtol=1e-12)
    assert params["epsilon"] == epsilon


def test_blocks_are_laid_out_in_the_order_of_the_names():
    space = Space.build({"epsilon": Lin(0, 1, per="group"), "lam": Log(1, 10, per="feature")}, LABELS)
    assert space.size == 6
    assert space.names == ["epsilon[low]", "epsilon[high]", "lam[a]", "lam[b]", "lam[c]", "lam[d]"]
    assert space.slices["lam"] == slice(2, 6)


def test_a_scalar_is_spread_over_the_entries_and_missing_names_take_the_middle():
    space = Space.build({"lam": Log(1e-2, 1e2, per="feature"), "epsilon": Lin(0, 1)}, LABELS)
    np.testing.assert_allclose(space.theta({"lam": 10.0}), [*[np.log(10)] * 4, 0.5])


def test_values_outside_the_bounds_are_clipped():
    space = Space.build({"C": Log(1e-2, 1e2), "epsilon": Lin(0, 1)}, {})
    assert space.params(space.theta({"C": 1e9, "epsilon": -3.0})) == {"C": 1e2, "epsilon": 0.0}
    np.testing.assert_array_equal(space.clip(np.array([1e9, -1.0])), [space.upper[0], 0.0])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.floats(1e-6, 1e6), st.floats(1.0, 1e3))
def test_params_never_leave_the_bounds_by_rounding(lower, ratio):
    space = Space.build({"C": Log(lower, lower * ratio)}, {})
    for theta in (space.lower, space.upper):
        assert lower <= space.params(theta)["C"] <= lower * ratio


def test_tied_entries_share_their_value():
    tied = Log(1e-2, 1e2, per="feature", tie=["x", "y", "x", "y"])
    space = Space.build({"lam": tied}, LABELS)
    assert space.size == 2
    assert space.names == ["lam[a]", "lam[b]"]
    params = space.params(np.log([2.0, 3.0]))
    np.testing.assert_allclose(params["lam"], [2, 3, 2, 3])
    np.testing.assert_allclose(space.theta(params), np.log([2.0, 3.0]))


def test_bounds_per_entry():
    space = Space.build({"lam": Log([1, 2, 3, 4], 100, per="feature")}, LABELS)
    np.testing.assert_allclose(np.exp(space.lower), [1, 2, 3, 4])
    tied = Space.build({"lam": Log([1, 2, 1, 2], 100, per="feature", tie=[0, 1, 0, 1])}, LABELS)
    np.testing.assert_allclose(np.exp(tied.lower), [1, 2])


def test_labels_by_name_go_before_labels_by_kind():
    space = Space.build({"class_weight": Log(0.1, 10, per="class")}, {"class_weight": ["b"], "class": "xyz"})
    assert space.names == ["class_weight[b]"]


def test_at_bound_names_the_entries_and_leaves_out_fixed_ones():
    space = Space.build({"C": Log(1, 10), "epsilon": Lin(0, 1, per="group"), "lam": Lin(2, 2)}, LABELS)
    assert space.at_bound(np.array([space.upper[0], 0.0, 0.5, 2.0])) == {
        "C": "upper",
        "epsilon[low]": "lower",
    }
    assert space.at_bound(np.array([0.5, 0.5, 0.5, 2.0])) == {}


@pytest.mark.parametrize(
    ("spec", "kind"),
    [((1e-3, 1e3), Log), ((1.0, 100.0), Log), ((1.0, 99.0), Lin), ((0, 1e6), Lin), ((-1, 1), Lin)],
)
def test_a_bare_pair(spec, kind):
    dimension = as_dimension("C", spec)
    assert type(dimension) is kind
    assert (dimension.lower, dimension.upper) == spec


def test_a_dimension_passes_through():
    dimension = Lin(1e-3, 1e3)
    assert as_dimension("C", dimension) is dimension


@pytest.mark.parametrize("spec", [3.0, "log", (1, 2, 3), ("a", "b"), None])
def test_anything_else_is_refused_by_name(spec):
    with pytest.raises(ValueError, match="'C' must be a pair"):
        as_dimension("C", spec)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Log(0, 1), "positive bounds"),
        (lambda: Lin(1, 0), "swap"),
        (lambda: Lin(0, np.inf), "finite"),
        (lambda: Lin(0, np.nan), "finite"),
        (lambda: Lin(0, 1, per="row"), "per must be"),
        (lambda: Lin(0, 1, tie=[0, 0]), "needs per"),
        (lambda: Space.build({"C": Log(1, 10, per="group")}, {"feature": "ab"}), "sample_groups"),
        (lambda: Space.build({"C": Log(1, 10, per="class")}, {}), "class_weight"),
        (lambda: Space.build({"C": Log(1, 10, per="group", tie=[0])}, LABELS), "needs 2"),
        (lambda: Space.build({"C": Log([1, 2, 3], 10, per="group")}, LABELS), "3 entries"),
        (lambda: Space.build({"C": Log(1, 10)}, {}).theta({"c": 1.0}), "unknown hyper-parameter 'c'"),
        (
            lambda: Space.build({"C": Log(1, 10, per="group")}, LABELS).theta({"C": [1, 2, 3]}),
            "1 or 2 values",
        ),
    ],
)
def test_errors_say_what_is_wrong(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_ties_keep_the_bounds_of_every_entry():
    labels = {"feature": list("abcd")}
    tied = Log([1, 2, 3, 4], [10, 20, 30, 40], per="feature", tie=[0, 0, 1, 1])
    space = Space.build({"lam": tied}, labels)
    assert np.allclose(np.exp(space.lower), [2, 4])
    assert np.allclose(np.exp(space.upper), [10, 30])
    with pytest.raises(ValueError, match=r"lam\[a\], lam\[b\] are tied and have no value in common"):
        Space.build({"lam": Log([1, 20, 1, 1], [10, 30, 10, 10], per="feature", tie=[0, 0, 1, 1])}, labels)
    mixed = Space.build({"lam": Log(1, 10, per="feature", tie=["a", None, "a", 1])}, labels)
    assert mixed.size == 3
