"""An outer method."""

from __future__ import annotations

import pytest

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR, LinearSVC, LinearSVR
from foldwise.testing import check_optimizer
from tests.third_party.descent import Descent
from tests.third_party.trial import linear_rows, try_whole


def test_it_keeps_the_contract_of_methods():
    check_optimizer(Descent())


@pytest.mark.parametrize("machine", [LinearSVR, LinearSVC, KernelSVR, KernelSVC])
def test_whole_searches(machine):
    X, y = linear_rows()
    y = y > 0 if machine in (LinearSVC, KernelSVC) else y
    try_whole(BilevelSearchCV(machine(), method=Descent(), cv=3, random_state=0), X, y)


def test_it_ends_where_newton_does():
    X, y = linear_rows()
    own = BilevelSearchCV(LinearSVR(), method=Descent(), cv=3, random_state=0).fit(X, y)
    newton = BilevelSearchCV(LinearSVR(), cv=3, random_state=0).fit(X, y)
    assert own.result_.method == "descent"
    assert own.result_.objective <= 1.01 * newton.result_.objective


def test_limits_of_a_search_reach_it():
    X, y = linear_rows()
    search = BilevelSearchCV(KernelSVR(), method=Descent(), cv=3, random_state=0).fit(X, y)
    short = BilevelSearchCV(KernelSVR(), method=Descent(), max_iter=1, cv=3, random_state=0).fit(X, y)
    assert short.result_.n_evaluations < search.result_.n_evaluations
    with pytest.raises(ValueError, match=r"the search has max_iter=1 and the method object max_iter=7"):
        BilevelSearchCV(KernelSVR(), method=Descent(max_iter=7), max_iter=1).fit(X, y)
