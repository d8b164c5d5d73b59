"""A solver of training problems, by its name and as an object."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from foldwise import BilevelSearchCV, KernelSVR, LinearSVC, LinearSVR
from foldwise.bilevel import Bilevel
from foldwise.losses import Logistic, Squared
from foldwise.solvers.registry import SOLVERS, register
from foldwise.solvers.representer import RepresenterNewton
from foldwise.testing import check_solver, small_bilevel
from tests.third_party.gradient import Gradient
from tests.third_party.trial import linear_rows, try_whole


def test_it_keeps_the_contract_of_solvers():
    check_solver(Gradient())


@pytest.mark.parametrize("machine", [LinearSVR, LinearSVC])
@pytest.mark.parametrize("solver", ["gradient", Gradient(tol=1e-10)], ids=["named", "object"])
def test_whole_searches(machine, solver):
    X, y = linear_rows()
    y = y > 0 if machine is LinearSVC else y
    try_whole(BilevelSearchCV(machine(solver=solver), {"C": (1e-2, 10.0)}, cv=3, random_state=0), X, y)


def test_a_search_trains_its_folds_with_it():
    calls = []

    @dataclass(frozen=True)
    class Counted(Gradient):
        def solve(self, problem, *args):
            calls.append(problem.n_tasks)
            return super().solve(problem, *args)

    X, y = linear_rows()
    own = BilevelSearchCV(LinearSVR(solver=Counted()), {"C": (1e-2, 10.0)}, cv=3, random_state=0).fit(X, y)
    usual = BilevelSearchCV(LinearSVR(), {"C": (1e-2, 10.0)}, cv=3, random_state=0).fit(X, y)
    assert calls.count(3) >= own.result_.n_evaluations  # the folds
    assert calls[-1] == 1  # the final fit
    assert own.best_score_ == pytest.approx(usual.best_score_, rel=1e-6)
    assert own.best_params_["C"] == pytest.approx(usual.best_params_["C"], rel=1e-3)
    np.testing.assert_allclose(own.best_estimator_.coef_, usual.best_estimator_.coef_, rtol=1e-3)


def test_kernel_machines_take_a_solver_as_well():
    class Told(RepresenterNewton):
        def solve(self, *args):
            told.append(1)
            return super().solve(*args)

    told: list[int] = []
    X, y = linear_rows(40)
    own = BilevelSearchCV(KernelSVR(solver=Told()), ["C"], cv=3, random_state=0).fit(X, y)
    usual = BilevelSearchCV(KernelSVR(), ["C"], cv=3, random_state=0).fit(X, y)
    assert len(told) > 3
    assert own.best_params_ == pytest.approx(usual.best_params_, rel=1e-3)


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (
            LinearSVR("epsilon_insensitive", solver="gradient"),
            "needs a loss with a second derivative; got a linear",
        ),
        (
            LinearSVR(box=1.0, solver="gradient"),
            "needs a linear machine without bounds and reference weights",
        ),
        (KernelSVR(solver="gradient"), "got a kernel machine with a smooth loss.* Use solver='auto'$"),
        (
            LinearSVR("pinball", solver=Gradient()),
            "solver Gradient needs .* Use solver='auto' or 'active_set'",
        ),
        (LinearSVR(solver="piqp"), "Use solver='auto' or 'newton' or 'fista' or 'gradient'"),
        (LinearSVR(solver="downhill"), "solver must be 'auto', 'newton', "),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_what_it_cannot_solve_is_refused_before_any_work(machine, words):
    X, y = linear_rows(30)
    with pytest.raises(ValueError, match=words):
        machine.fit(X, y)
    with pytest.raises(ValueError, match=words):
        BilevelSearchCV(machine, ["C"]).fit(X, y)


def test_a_program_checks_its_solver():
    bilevel, _ = small_bilevel(Logistic(), Logistic())
    with pytest.raises(
        ValueError, match="solver RepresenterNewton needs a kernel machine with a smooth loss"
    ):
        Bilevel(bilevel.problems, Squared(), bilevel.space, RepresenterNewton())


def test_a_registration_is_checked():
    class Silent:
        pass

    class Vague(Gradient):
        needs = frozenset({"luck"})

    kept = dict(SOLVERS)
    for make, words in ((Silent, r"must say in needs.* got None"), (Vague, r"got frozenset\({'luck'}\)")):
        with pytest.raises(ValueError, match=words):
            register("new", make)
    with pytest.raises(ValueError, match="'newton' is taken by a solver of the package"):
        register("newton", Gradient)
    with pytest.raises(ValueError, match="a name of its own"):
        register("auto", Gradient)
    assert kept == SOLVERS
