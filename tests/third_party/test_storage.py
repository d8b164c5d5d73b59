"""A storage of rows in one file: its products, and whole searches over it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge

from foldwise import BilevelSearchCV, LinearSVC, LinearSVR, Log
from foldwise.design import STORAGES, DenseDesign, SparseDesign, make_design, register
from foldwise.testing import check_design
from tests.third_party.row_blocks import RowBlocks
from tests.third_party.trial import linear_rows, try_whole


@pytest.fixture
def blocks():
    register(RowBlocks)
    yield
    STORAGES.remove(RowBlocks)


@pytest.mark.parametrize("storage", [RowBlocks, DenseDesign])
def test_it_keeps_the_contract_of_storages(storage):
    check_design(storage, linear_rows()[0])


def test_so_do_sparse_rows():
    X = linear_rows()[0] * np.array([0.0, 1.0, 1e4, 1.0]) * (np.arange(4) < np.arange(90)[:, None] % 5)
    check_design(SparseDesign, sp.csr_array(X))


def test_a_product_that_is_wrong_is_found():
    class Wrong(RowBlocks):
        def pull(self, U, rows=slice(None)):
            return super().pull(np.abs(U), rows)

    with pytest.raises(AssertionError, match=r"Wrong\.pull"):
        check_design(Wrong, linear_rows()[0])


def test_it_stores_what_it_takes_and_nothing_else(blocks):
    X, _ = linear_rows()
    assert isinstance(make_design(X, True), RowBlocks)
    assert isinstance(make_design(X[:5], True), DenseDesign)
    assert isinstance(make_design(sp.csr_array(X), True, densify=False), SparseDesign)
    with pytest.raises(TypeError, match="subclass of Design"):
        register(RowBlocks([X], False))


SEARCHES = {
    "tube": (LinearSVR(), None),
    "huber": (LinearSVR("huber"), {"lam": Log(1e-2, 1e2, per="feature")}),
    "boxes": (LinearSVR(), {"C": (1e-2, 10.0), "box": (0.05, 2.0)}),
    "exact tube": (LinearSVR("epsilon_insensitive"), None),
    "logistic": (LinearSVC("logistic"), None),
    "Ridge": (Ridge(), None),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_whole_searches(name, blocks):
    machine, space = SEARCHES[name]
    X, y = linear_rows()
    y = y > 0 if isinstance(machine, LinearSVC) else y
    search = BilevelSearchCV(machine, space, cv=3, random_state=0)
    if name in ("tube", "exact tube"):
        try_whole(search, X, y)
    own = search.fit(X, y)
    STORAGES.remove(RowBlocks)
    usual = BilevelSearchCV(machine, space, cv=3, random_state=0).fit(X, y)
    register(RowBlocks)
    assert own.best_score_ == pytest.approx(usual.best_score_, rel=1e-6)
    np.testing.assert_allclose(own.predict(X), usual.predict(X), rtol=1e-2, atol=1e-2)
