"""One thread for linear algebra on small matrices, as many as are set on large ones."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from foldwise import BilevelSearchCV, LinearSVR
from foldwise.threads import SMALL, suited_to


def blas_threads():
    return {lib["num_threads"] for lib in ThreadpoolController().info() if lib["user_api"] == "blas"}


@pytest.fixture
def two_threads():
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        if blas_threads() != {2}:
            pytest.skip("this BLAS library does not say or change its number of threads")
        yield


def test_small_matrices_take_one_thread_and_large_ones_what_is_set(two_threads):
    with suited_to(SMALL):
        assert blas_threads() == {1}
    assert blas_threads() == {2}
    with suited_to(SMALL + 1):
        assert blas_threads() == {2}


@pytest.mark.parametrize("stops", [False, True])
def test_a_search_leaves_the_threads_as_they_were(two_threads, stops):
    rng = np.random.default_rng(0)
    X, seen = rng.normal(size=(60, 3)), []

    def look(record):
        seen.append(blas_threads())
        if stops:
            raise OSError("from a callback")

    search = BilevelSearchCV(LinearSVR(), ["C"], callbacks=[look])
    if stops:
        with pytest.raises(OSError, match="from a callback"):
            search.fit(X, X @ [1.0, 2.0, 0.0] + rng.normal(size=60))
    else:
        search.fit(X, X @ [1.0, 2.0, 0.0] + rng.normal(size=60))
    assert seen[0] == {1}
    assert blas_threads() == {2}
