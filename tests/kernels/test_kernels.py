"""Kernels: the contract of each, independent formulas, columns by number and name, and refusals that say what to do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import chi2_kernel, polynomial_kernel, rbf_kernel

from foldwise import BilevelSearchCV, KernelSVC, KernelSVR
from foldwise.kernels import (
    RBF,
    AdditiveChi2,
    ExpChi2,
    Kernel,
    Linear,
    Polynomial,
    Precomputed,
    Sum,
    check_positive,
    named_columns,
    squared_distances,
)
from foldwise.testing import check_kernel, relative_error

NESTED = Sum(
    [
        RBF([0.3, 0.8]),
        Sum(
            [Polynomial(2, 0.4, 0.7), Linear(), RBF(0.6, ard=True)],
            [0.2, 0.5, 0.9],
            [[0, 1], [2], slice(1, 3)],
        ),
        RBF(0.2),
    ],
    weights=[0.7, 1.3, 0.4],
    columns=[[3, 0], slice(1, 4), None],
)
KERNELS = {
    "linear": Linear(),
    "rbf": RBF(0.4),
    "rbf, one number, ard": RBF(0.4, ard=True),
    "rbf, a value per feature": RBF([0.1, 0.3, 0.5, 0.9]),
    "polynomial": Polynomial(3, 0.4, 1.2),
    "polynomial of degree 1": Polynomial(1, 0.4, 1.2),
    "exp chi2": ExpChi2(0.7),
    "additive chi2": AdditiveChi2(),
    "sum": Sum([RBF(0.4), Linear()]),
    "sum of histograms": Sum(
        [ExpChi2(0.7), AdditiveChi2(), RBF(0.2)], [0.3, 0.5, 0.2], [[0, 2], slice(0, 3), [3]]
    ),
    "nested sum": NESTED,
}


def rows(n=14, d=4, seed=0):
    """Positive, so that every kernel takes them, and of different spread."""
    return np.random.default_rng(seed).gamma(2.0, 0.6, size=(n, d)) * np.linspace(0.6, 1.4, d)


# The contract.


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_contract(kernel):
    check_kernel(kernel, rows())


def test_contract_with_duplicate_rows():
    check_kernel(RBF(0.4, ard=True), rows()[[0, 1, 2, 0, 3, 1, 4, 5]])


def test_contract_far_from_zero():
    """Distances do not lose their digits when the data is far from zero."""
    X = rows()
    for kernel in (RBF(0.4), RBF(0.4, ard=True)):
        check_kernel(kernel, X + 1e4)
        assert relative_error(kernel(X + 1e4, X + 1e4), kernel(X, X)) < 1e-9


def test_contract_of_precomputed_matrices():
    X = rows()
    K = RBF(0.5)(X, X)
    check_kernel(Precomputed(), K, across=False)
    both = Sum([Precomputed(), RBF(0.4)], [0.6, 0.4], [slice(0, 14), [14, 15]])
    check_kernel(both, np.column_stack([K, X[:, :2]]), across=False)


class Wrong(RBF):
    """An RBF kernel with one flaw."""

    flaw = ""

    def pairs(self, X, U=None):
        out = super().pairs(X, U)
        if self.flaw in ("contract", "apply", "apply_transposed"):
            right = getattr(out, self.flaw)
            setattr(out, self.flaw, lambda A: 1.0001 * right(A))
        if self.flaw == "zero":
            out.contract, out.apply = (lambda P: np.zeros(1)), (lambda A: np.zeros((1, len(X), A.shape[1])))
        if self.flaw == "value":
            right_value = out.value
            out.value = lambda log_p: right_value(log_p + 1e-6)
        return out

    def __call__(self, X, Z):
        K = super().__call__(X, Z)
        if self.flaw == "symmetry":
            K = K + 1e-6 * np.arange(len(Z))
        return K - 0.5 if self.flaw == "positive" else K

    def diagonal(self, X):
        return np.ones(len(X)) * (
            1.01 if self.flaw == "diagonal" else 1.0 if self.flaw != "positive" else 0.5
        )

    def with_parameters(self, values):
        if self.flaw == "in place":
            return self.set_params(**{name: np.asarray(value).item() for name, value in values.items()})
        return super().with_parameters({} if self.flaw == "with_parameters" else values)


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ("contract", "contract"),
        ("apply", "apply"),
        ("apply_transposed", "apply_transposed"),
        ("zero", "contract"),
        ("value", "value|matrix"),
        ("symmetry", "symmetry"),
        ("positive", "positive semi-definite"),
        ("diagonal", "diagonal"),
        ("with_parameters", "with_parameters"),
        ("in place", "changed the original"),
    ],
)
def test_contract_can_fail(flaw, message, monkeypatch):
    check_kernel(Wrong(0.4), rows())
    monkeypatch.setattr(Wrong, "flaw", flaw)
    with pytest.raises(AssertionError, match=message):
        check_kernel(Wrong(0.4), rows())


def test_contract_refuses_a_parameter_without_effect():
    with pytest.raises(AssertionError, match="hardly depends"):
        check_kernel(RBF(1e-12), rows())


# Formulas.


def test_formulas_against_scikit_learn():
    X, Z = rows(), rows(9, seed=1)
    assert relative_error(RBF(0.3)(X, Z), rbf_kernel(X, Z, gamma=0.3)) < 1e-13
    assert relative_error(ExpChi2(0.3)(X, Z), chi2_kernel(X, Z, gamma=0.3)) < 1e-13
    wanted = polynomial_kernel(X, Z, degree=3, gamma=0.3, coef0=1.5)
    assert relative_error(Polynomial(3, 0.3, 1.5)(X, Z), wanted) < 1e-13
    gamma = np.array([0.1, 0.4, 0.2, 0.7])
    wanted = np.exp(-np.sum(gamma * (X[:, None] - Z[None]) ** 2, axis=2))
    assert relative_error(RBF(gamma)(X, Z), wanted) < 1e-13
    wanted = np.sum(2 * X[:, None] * Z[None] / (X[:, None] + Z[None]), axis=2)
    assert relative_error(AdditiveChi2()(X, Z), wanted) < 1e-13


def test_one_width_for_all_features_is_the_isotropic_kernel():
    X = rows()
    ard, plain = RBF(0.4, ard=True).pairs(X), RBF(0.4).pairs(X)
    log_p = np.log([0.4])
    assert relative_error(ard.value(np.repeat(log_p, 4)), plain.value(log_p)) < 1e-13
    P = np.random.default_rng(0).normal(size=(14, 14))
    assert ard.contract(P).sum() == pytest.approx(plain.contract(P)[0], rel=1e-10)


def test_a_polynomial_without_constant():
    """coef0 = 0 is not on a logarithmic scale, but scikit-learn's default."""
    X = rows()
    kernel = Polynomial(2, 0.3, 0.0)
    with np.errstate(divide="ignore"):
        log_p = np.log([0.3, 0.0])
    pairs = kernel.pairs(X)
    assert relative_error(pairs.value(log_p), (0.3 * X @ X.T) ** 2) < 1e-13
    assert pairs.contract(np.ones((14, 14)))[1] == 0.0


def test_nested_sums_are_the_sums_of_their_parts():
    X, Z = rows(), rows(6, seed=1)
    inner = 0.2 * Polynomial(2, 0.4, 0.7)(X[:, [1, 2]], Z[:, [1, 2]]) + 0.5 * X[:, [3]] @ Z[:, [3]].T
    inner = inner + 0.9 * RBF(0.6)(X[:, 2:4], Z[:, 2:4])
    wanted = 0.7 * RBF([0.3, 0.8])(X[:, [3, 0]], Z[:, [3, 0]]) + 1.3 * inner + 0.4 * RBF(0.2)(X, Z)
    assert relative_error(NESTED(X, Z), wanted) < 1e-13


def test_names_of_a_nested_sum():
    wanted = [
        "weights",
        "k0__gamma",
        "k1__weights",
        "k1__k0__gamma",
        "k1__k0__coef0",
        "k1__k2__gamma",
        "k2__gamma",
    ]
    assert NESTED.names() == wanted
    assert [v.size for v in NESTED.parameters(4).values()] == [3, 2, 3, 1, 1, 2, 1]
    changed = NESTED.with_parameters({"k1__k2__gamma": [0.1, 5.0]})
    np.testing.assert_array_equal(changed.parameters(4)["k1__k2__gamma"], [0.1, 5.0])
    np.testing.assert_array_equal(changed.parameters(4)["weights"], [0.7, 1.3, 0.4])


def test_a_sum_weighs_its_parts_equally_by_default():
    X = rows()
    assert relative_error(Sum([RBF(0.4), Linear()])(X, X), 0.5 * RBF(0.4)(X, X) + 0.5 * X @ X.T) < 1e-14


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
def test_equal_rows_are_equal_however_far_from_others(scale, rng):
    """Squares of 1e16 cancel to a few units, which an exponential with gamma = 1 would take for a distance."""
    X = rng.normal(size=(20, 5)) * scale
    twice = np.vstack([X, X])
    assert np.all(np.diagonal(RBF()(X, X)) == 1.0)
    assert np.all(np.diagonal(RBF()(twice, twice)[20:, :20]) == 1.0)
    near = X + 1e-3 * scale * rng.normal(size=X.shape)
    exact = np.sum((near - X) ** 2, axis=1)
    assert np.allclose(np.diagonal(squared_distances(X, near)), exact, rtol=1e-8)


def test_squared_distances_vanish_between_a_row_and_itself():
    X = rows() * 1e3
    assert np.all(np.diagonal(squared_distances(X)) == 0.0)
    assert squared_distances(X, X[:3]).min() >= 0.0
    wanted = np.sum((X[:, None] - X[None, :3]) ** 2, axis=2)
    assert relative_error(squared_distances(X, X[:3]), wanted) < 1e-13


# Columns by name.


def test_columns_by_name():
    names = ["a", "b", "c", "d"]
    by_name = Sum([RBF(0.3), Linear()], columns=[["d", "a"], ["b", 2]])
    by_number = Sum([RBF(0.3), Linear()], columns=[[3, 0], [1, 2]])
    X = rows()
    np.testing.assert_array_equal(by_name.resolved(names)(X, X), by_number(X, X))
    assert by_name.columns == [["d", "a"], ["b", 2]]
    assert named_columns([None, slice(1, 3), ["c"]], names) == [None, slice(1, 3), [2]]


def test_columns_by_name_inside_a_sum_inside_a_sum():
    names = ["a", "b", "c", "d"]
    inner = [RBF(0.3), Linear()]
    X = rows()
    wanted = Sum([Sum(inner, columns=[[0], [1, 2]]), RBF(0.1)], columns=[[1, 3, 2], None])(X, X)
    for choice in (["b", "d", "c"], [1, 3, 2]):
        kernel = Sum([Sum(inner, columns=[["b"], ["d", "c"]]), RBF(0.1)], columns=[choice, None])
        np.testing.assert_array_equal(kernel.resolved(names)(X, X), wanted)
    outer = Sum([Sum(inner, columns=[["c"], ["d"]]), RBF(0.1)], columns=[slice(2, 4), None])
    wanted = Sum([Sum(inner, columns=[[0], [1]]), RBF(0.1)], columns=[slice(2, 4), None])(X, X)
    np.testing.assert_array_equal(outer.resolved(names)(X, X), wanted)


# Refusals.


def test_unknown_column_names():
    with pytest.raises(ValueError, match="unknown column 'e'; X has: a, b"):
        Sum([RBF()], columns=[["e"]]).resolved(["a", "b"])


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBF([0.1, 0.2]), r"2 values of gamma for 4 features; give one, or one per feature"),
        (RBF(-0.5), "gamma must be finite and not negative"),
        (RBF(np.nan), "gamma must be finite"),
        (ExpChi2(-0.5), "gamma must be finite and not negative"),
        (Polynomial(2, -1.0), "gamma must be finite and not negative"),
        (Polynomial(2, 1.0, -1.0), "coef0 must be finite and not negative"),
        (Polynomial(2.5), "degree must be a positive integer; got 2.5"),
        (Polynomial(0), "degree must be a positive integer"),
        (Sum([RBF(), Linear()], [0.5, -0.1]), "weights must be finite and not negative"),
        (Sum([RBF(), Linear()], [0.5, np.inf]), "weights must be finite"),
        (Sum([RBF(), Linear()], [0.5]), "2 kernels and 1 weights"),
        (Sum([RBF(), Linear()], columns=[[0]]), "2 kernels and 1 choices of columns"),
        (Sum([RBF(), Linear()], columns=[[0], [4]]), "not all among the 4 of X"),
        (Sum([RBF(), Linear()], columns=[[0], []]), "choose none of the 4 of X"),
        (Sum([RBF(), Linear()], columns=[["a"], [1]]), "names, which need a data frame"),
        (Sum([RBF([0.1, 0.2]), Linear()], columns=[[0], [1]]), "2 values of gamma for 1 features"),
    ],
    ids=str,
)
def test_bad_parameters_are_refused_by_the_kernel_and_in_a_fit(kernel, message):
    with pytest.raises(ValueError, match=message):
        kernel.parameters(4)
    with pytest.raises(ValueError, match=message):
        KernelSVC(kernel).fit(rows(), np.arange(14) % 2)


@pytest.mark.parametrize("kernel", [ExpChi2(), AdditiveChi2()], ids=str)
def test_histograms_must_not_be_negative(kernel):
    X = rows()
    X[3, 1] = -0.25
    for act in (lambda: kernel.pairs(X), lambda: kernel(X, rows()), lambda: kernel.pairs(X, rows())):
        with pytest.raises(ValueError, match=r"the lowest is -0.25.*MinMaxScaler"):
            act()


def test_precomputed_matrices_that_are_no_kernels():
    K = RBF(0.5)(rows(), rows())
    pairs = Precomputed().pairs
    np.testing.assert_array_equal(pairs(K).value(np.zeros(0)), K)
    with pytest.raises(ValueError, match="must be symmetric"):
        pairs(K + np.triu(np.full(K.shape, 1e-3)))
    with pytest.raises(ValueError, match=r"lowest eigenvalue is -0.5"):
        pairs(K - 0.5 * np.eye(14) - np.linalg.eigvalsh(K)[0] * np.eye(14))
    with pytest.raises(ValueError, match=r"square in training; got shape \(14, 13\)"):
        pairs(K[:, :13])
    with pytest.raises(ValueError, match=r"square in training; got shape \(14, 13\)"):
        KernelSVC("precomputed").fit(K[:, :13], np.arange(14) % 2)
    with pytest.raises(ValueError, match="no low-rank form"):
        pairs(K, K[:3])


def test_rounding_does_not_make_a_kernel_indefinite():
    X = rows(40, 2)
    check_positive(X @ X.T)  # rank 2: the other eigenvalues are rounding
    check_positive(1e6 * RBF(1e-3)(X, X))
    check_positive(np.zeros((3, 3)))
    check_positive(RBF(1e-2)(X, X).astype(np.float32).astype(float))


def test_a_kernel_that_defines_nothing_says_so():
    with pytest.raises(TypeError, match="Kernel does not define pairs"):
        Kernel().pairs(rows())
    with pytest.raises(TypeError, match="Kernel does not define __call__"):
        Kernel()(rows(), rows())


class Stretched(Kernel):
    """``exp(-||(x - z) / ell||^2)`` with lengths, not widths, and a factor: no parameter has a usual name."""

    def __init__(self, ell=1.5, height=2.0):
        self.ell = ell
        self.height = height

    def parameters(self, d):
        return {
            "ell": np.broadcast_to(np.asarray(self.ell, float), d).copy(),
            "height": np.array([float(self.height)]),
        }

    def names(self):
        return ["ell", "height"]

    def pairs(self, X, U=None):
        return StretchedPairs(X, X if U is None else U)

    def __call__(self, X, Z):
        return self.pairs(X, Z).value(np.log(np.concatenate(list(self.parameters(X.shape[1]).values()))))


class StretchedPairs:
    def __init__(self, X, U):
        self.D = (X.T[:, :, None] - U.T[:, None, :]) ** 2

    def value(self, log_p):
        self.part = self.D * np.exp(-2.0 * log_p[:-1])[:, None, None]
        self.K = np.exp(log_p[-1] - self.part.sum(axis=0))
        self.slopes = np.concatenate([2.0 * self.part * self.K, self.K[None]])
        return self.K

    def contract(self, P):
        return np.einsum("pij,ij->p", self.slopes, P)

    def apply(self, A):
        return self.slopes @ A

    def apply_transposed(self, A):
        return np.swapaxes(self.slopes, 1, 2) @ A


class Decaying(RBF):
    """A Gaussian whose width has another name, found by its matrix alone."""

    widths = ("decay",)

    def __init__(self, decay=1.0):
        self.decay = decay

    def names(self):
        return ["decay"]

    def typical(self, X):
        return Kernel.typical(self, X)

    def parameters(self, d):
        return {"decay": np.array([float(self.decay)])}

    def pairs(self, X, U=None):
        return RBF(1.0).pairs(X, U)

    def __call__(self, X, Z):
        return RBF(self.decay)(X, Z)


@pytest.mark.parametrize(
    "kernel",
    [Stretched(), Decaying(), Sum([Stretched(), Decaying(0.3)], columns=[[0, 1], [1, 2]])],
    ids=["lengths", "a width", "both in a sum"],
)
def test_parameters_may_have_any_name(kernel):
    X = np.random.default_rng(0).normal(size=(24, 3))
    check_kernel(kernel, X)
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    search = BilevelSearchCV(KernelSVR(kernel), cv=3, max_iter=3).fit(X, y)
    assert {f"kernel__{name}" for name in kernel.names()} <= set(search.best_params_)


def test_a_width_of_any_name_is_searched_like_gamma(rng):
    X = rng.normal(size=(60, 3)) * 40.0
    y = np.sin(X[:, 0] / 40.0) + 0.1 * rng.normal(size=60)
    renamed = Decaying().typical(X)["decay"]
    assert 0.2 < renamed / RBF().typical(X)["gamma"] < 2.0
    ends = [-BilevelSearchCV(KernelSVR(k), cv=3).fit(X, y).best_score_ for k in (RBF(), Decaying())]
    assert ends[1] == pytest.approx(ends[0], rel=2e-2)


@pytest.mark.parametrize(
    ("flaw", "message"),
    [
        ({"kinds": lambda self: {"decay": "broad"}}, "each must be 'width', 'weight' or 'other'"),
        ({"bounds": lambda self, X: {"decay": (0.0, 1.0)}}, "finite, positive and in order"),
        ({"kinds": lambda self: {"gamma": "width"}}, r"kinds\(\) has"),
    ],
    ids=["kind", "bounds", "name"],
)
def test_contract_of_what_a_kernel_says_about_its_parameters(flaw, message):
    X = np.random.default_rng(0).normal(size=(12, 3))
    with pytest.raises(AssertionError, match=message):
        check_kernel(type("Flawed", (Decaying,), flaw)(), X)


@pytest.mark.parametrize("kernel", [RBF(ard=True), RBF(), Polynomial(2), ExpChi2()])
@pytest.mark.parametrize("value", [0.0, 0.1, 2.0, 1e6])
def test_columns_that_are_constant_have_finite_bounds(kernel, value, rng):
    """A part of a sum may see constant columns only; what rounding leaves of them is no spread."""
    X = np.column_stack([np.full((24, 2), value), rng.uniform(size=(24, 2))])
    for low, high in kernel.bounds(X[:, :2]).values():
        assert 0 < low < high < 1e20
    y = X[:, 2] > np.median(X[:, 2])
    search = BilevelSearchCV(
        KernelSVC(kernel=Sum([kernel, RBF()], columns=[[0, 1], None]), loss="squared_hinge"), max_iter=3, cv=3
    )
    search.fit(X, y)
    assert search.score(X, y) > 0.9


def test_near_rows_keep_the_digits_of_their_distance(rng):
    X = rng.normal(size=(300, 3)) * [1e8, 1.0, 1e-6]
    U = X[:40] + rng.normal(size=(40, 3)) * [1e-3, 1e-3, 1e-9]
    assert np.allclose(squared_distances(X, U), cdist(X, U, "sqeuclidean"), rtol=1e-9, atol=0)
