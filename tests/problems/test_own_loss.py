"""A loss that somebody else wrote, with a parameter of its own, is tuned by every smooth family of problems."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from foldwise.bilevel import Bilevel
from foldwise.design import make_design
from foldwise.kernels import RBF
from foldwise.losses import Loss, Squared
from foldwise.optimizers.newton import TrustRegionNewton
from foldwise.penalties import Quadratic
from foldwise.problems.base import TaskData
from foldwise.problems.boxed import BoxedProblem
from foldwise.problems.folds import Folds
from foldwise.problems.kernel import KernelProblem
from foldwise.problems.linear import LinearProblem
from foldwise.problems.parameters import Binding, ParameterMap
from foldwise.solvers.newton import Newton
from foldwise.solvers.projected import ProjectedNewton
from foldwise.solvers.representer import RepresenterNewton
from foldwise.space import Lin, Log, Space
from foldwise.testing import check_hypergradient, check_loss


@dataclass(frozen=True)
class PseudoHuber(Loss):
    """``delta^2 (sqrt(1 + (r / delta)^2) - 1)``: squares near zero, distances far away."""

    tunable = ("delta",)
    delta: float = 1.0

    def value(self, z, y):
        return self.delta**2 * (np.sqrt(1.0 + ((z - y) / self.delta) ** 2) - 1.0)

    def grad(self, z, y):
        return (z - y) / np.sqrt(1.0 + ((z - y) / self.delta) ** 2)

    def hess(self, z, y):
        return (1.0 + ((z - y) / self.delta) ** 2) ** -1.5

    def third(self, z, y):
        u = (z - y) / self.delta
        return -3.0 * u / self.delta * (1.0 + u**2) ** -2.5

    def grad_delta(self, z, y):
        u = (z - y) / self.delta
        return u**3 * (1.0 + u**2) ** -1.5


FAMILIES = ("linear", "sparse", "boxed", "kernel")


def program(family, dimension, n=48, d=3, seed=0):
    """Regression with heavy tails in one of two groups; ``C`` and the loss's ``delta`` are tuned."""
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(n, d)), np.arange(n) % 2
    y = X @ rng.normal(size=d) + np.where(group, 2.0, 0.3) * rng.standard_t(2, n)
    rows = rng.permutation(n)
    splits = [(np.setdiff1d(rows, part), np.sort(part)) for part in np.array_split(rows, 3)]
    folds = Folds.build(n, splits, group)
    tasks, cells = 3, 2
    space = Space.build({"C": Log(1e-2, 1e2), "delta": dimension}, {"group": range(cells)})
    index = np.tile(np.arange(cells) if dimension.per else np.zeros(cells, dtype=int), (tasks, 1))
    bindings = {"C": Binding("log_c", np.zeros((tasks, cells), dtype=int)), "delta": Binding("delta", index)}
    zeros = np.zeros((tasks, cells))
    kernel = RBF(0.3)
    parameters = ParameterMap(
        space,
        bindings,
        zeros,
        zeros,
        np.zeros((1, d)),
        np.log([[0.3]]) if family == "kernel" else None,
        (np.full((1, d), -0.3), np.full((1, d), 0.3)) if family == "boxed" else None,
        loss={"delta": zeros},
    )
    order = folds.order
    data = TaskData(y[order][None], folds, PseudoHuber(), parameters)
    if family == "kernel":
        problem = KernelProblem(data, kernel.pairs(X[order]))
        return Bilevel([problem], Squared(), space, RepresenterNewton(tol=1e-12))
    design = make_design(sp.csr_array(X) if family == "sparse" else X, True, order, densify=False)
    penalty = Quadratic(np.tile(1.0 / design.scale**2, (tasks, 1)), design.n_columns)
    kind, solver = (BoxedProblem, ProjectedNewton) if family == "boxed" else (LinearProblem, Newton)
    problem = kind(data, design, penalty)
    return Bilevel([problem], Squared(), space, solver(tol=1e-12))


def test_the_loss_is_one():
    check_loss(PseudoHuber(0.7))


@pytest.mark.parametrize(
    "dimension", [Log(0.05, 10.0), Lin(0.05, 10.0, per="group")], ids=["log", "per group"]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_hypergradient_sees_its_parameter(family, dimension):
    bilevel = program(family, dimension)
    theta = bilevel.space.theta({"C": 0.4, "delta": 0.8})
    check_hypergradient(bilevel, theta)
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    h, J = 1e-6, here.sensitivities[0]
    step = h * (np.arange(len(theta)) == 1)
    up, down = (bilevel.evaluate(theta + sign * step, here).solutions[0].decisions for sign in (1, -1))
    for m, (rows, moves) in enumerate(
        zip(bilevel.problems[0].folds.validation, (up - down) / (2 * h), strict=True)
    ):
        response = bilevel.linearized(0, here.solutions[0])
        np.testing.assert_allclose(response.moves(J, m, rows)[1], moves[rows], atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_search_finds_it(family):
    bilevel = program(family, Log(0.05, 10.0, per="group"))
    theta = bilevel.space.theta({"C": 0.4, "delta": 5.0})
    result = TrustRegionNewton().minimize(bilevel, theta)
    assert result.objective < bilevel.evaluate(theta).objective * 0.999
    assert np.abs(np.array(result.theta) - theta)[1:].max() > 0.1
