"""Folds: which rows train and validate, whatever order they are stored in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

from foldwise.problems.folds import Folds


def check_rows(folds, n, splits, cell):
    """Stored rows, mapped back through ``order``, are the user's."""
    assert sorted(folds.order) == list(range(n))
    np.testing.assert_array_equal(folds.cell, cell[folds.order])
    for t, (train, validation) in enumerate(splits):
        assert set(folds.order[folds.train[t]]) == set(train)
        assert sorted(folds.order[folds.validation[t]]) == sorted(validation)
    seen = []
    for block in folds.segments:
        for q, rows in enumerate(block):
            assert (folds.cell[rows] == q).all()
            seen += list(range(rows.start, rows.stop))
    assert seen == list(range(n))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(10, 40), st.integers(2, 5), st.integers(1, 3), st.integers(0, 10**6))
def test_a_partition_is_recognised(n, n_splits, n_cells, seed):
    splits = list(KFold(n_splits, shuffle=True, random_state=seed).split(np.zeros(n)))
    cell = np.random.default_rng(seed).integers(0, n_cells, n)
    cell[:n_cells] = np.arange(n_cells)
    folds = Folds.build(n, splits, cell)
    assert folds.partition
    assert (folds.n_splits, folds.n_cells) == (n_splits, n_cells)
    assert all(isinstance(rows, slice) for rows in folds.validation)
    check_rows(folds, n, splits, cell)


@pytest.mark.parametrize(
    "splitter",
    [
        ShuffleSplit(4, random_state=0),
        RepeatedKFold(n_splits=3, n_repeats=2, random_state=0),
        TimeSeriesSplit(3),
    ],
    ids=lambda s: type(s).__name__,
)
def test_other_splits_are_no_partition(splitter):
    splits = list(splitter.split(np.zeros(23)))
    cell = np.arange(23) % 2
    folds = Folds.build(23, splits, cell)
    assert not folds.partition
    assert len(folds.segments) == 1
    check_rows(folds, 23, splits, cell)


def test_rows_that_never_validate_form_a_last_block():
    splits = [(np.r_[0:4, 6:12], np.r_[4:6]), (np.r_[0:8, 10:12], np.r_[8:10])]
    folds = Folds.build(12, splits)
    assert folds.partition
    assert len(folds.segments) == 3
    check_rows(folds, 12, splits, np.zeros(12, dtype=int))


@pytest.mark.parametrize(
    "splits",
    [
        [([0, 1, 2, 3], [3, 4]), ([0, 1, 3, 4], [2, 5])],
        [([0, 1, 1, 2], [3, 4]), ([0, 1, 3, 4], [2, 5])],
        [([0, 1, 2], [3, 4]), ([0, 1, 3, 4], [2, 5])],
        [([0, 1, 2, 3], [4, 5]), ([0, 1, 2, 3], [4, 5])],
    ],
    ids=["a training row validates", "a row trains twice", "a row does neither", "a row validates twice"],
)
def test_nearly_a_partition(splits):
    splits = [(np.array(train), np.array(validation)) for train, validation in splits]
    folds = Folds.build(6, splits)
    assert not folds.partition
    check_rows(folds, 6, splits, np.zeros(6, dtype=int))


def test_whole():
    folds = Folds.whole(7, np.array([1, 0, 1, 0, 1, 0, 0]))
    assert folds.n_splits == 1
    assert folds.train.all()
    assert len(np.arange(7)[folds.validation[0]]) == 0
    np.testing.assert_array_equal(np.sort(folds.order), np.arange(7))
