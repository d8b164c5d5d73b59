"""Class weights in the criterion: the referee refits the plain estimator fold by fold and averages by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.utils.class_weight import compute_sample_weight

from foldwise import BilevelSearchCV, KernelSVC, LinearSVC, LinearSVR, Log
from tests.referees import counts_rows, fold_decisions, fold_errors

ONE = {"C": Log(0.5, 2.0)}


def rows(n=150, classes=2, seed=0):
    """A rare class, and weights of rows with some zeros."""
    share = [0.85, 0.15] if classes == 2 else [0.6, 0.25, 0.15]
    X, y = make_classification(
        n, 5, n_informative=4, n_redundant=0, n_classes=classes, weights=share, flip_y=0.1, random_state=seed
    )
    rng = np.random.default_rng(seed)
    return X, np.array(["a", "b", "c"])[y], rng.integers(0, 4, n).astype(float)


def by_hand(search, X, y, weight, share):
    """The criterion of every fold; ``share(y_train, weight_train)`` maps labels to what they count."""
    out = []
    for train, test in StratifiedKFold(3).split(X, y):
        machine = clone(search.estimator).set_params(**search.best_params_)
        last = machine.steps[-1][0] + "__" if hasattr(machine, "steps") else ""
        machine.fit(X[train], y[train], **{f"{last}sample_weight": weight[train]})
        count = share(y[train], weight[train])
        counts = weight[test] * np.array([count[label] for label in y[test]])
        out.append(fold_decisions(machine, X[test], y[test], counts))
    return fold_errors(search.criterion_, out)


def balanced(own):
    def share(y, weight):
        labels = np.unique(y)
        mass = [np.sum(y == k) if counts_rows(own) else weight[y == k].sum() for k in labels]
        return {k: sum(mass) / (len(labels) * m) for k, m in zip(labels, mass, strict=True)}

    return share


MACHINES = [
    LinearSVC(class_weight="balanced"),
    LinearSVC("hinge", class_weight="balanced"),
    KernelSVC(class_weight="balanced"),
    KernelSVC(loss="hinge", class_weight="balanced"),
    SVC(class_weight="balanced", gamma=0.2, tol=1e-8),
    SkLinearSVC(class_weight="balanced", tol=1e-10, max_iter=100_000),
    LogisticRegression(class_weight="balanced", tol=1e-10),
]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{type(m).__module__.split('.')[0]}-{m}"[:40])
def test_a_row_counts_as_its_class_weighs(machine, classes):
    if classes > 2 and isinstance(machine, LogisticRegression):
        pytest.skip("two classes only")
    X, y, weight = rows(classes=classes)
    search = BilevelSearchCV(machine, ONE, cv=3, max_iter=2, refit=False).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(
        search.result_.fold_objectives, by_hand(search, X, y, weight, balanced(machine)), rtol=2e-6
    )
    assert search.best_score_ == pytest.approx(-np.mean(search.result_.fold_objectives), rel=1e-12)


@pytest.mark.parametrize("scaler", [StandardScaler(), MinMaxScaler()], ids=["scaled", "general"])
@pytest.mark.parametrize("machine", [LinearSVC(class_weight={"b": 5.0}), KernelSVC(class_weight={"b": 5.0})])
def test_weights_by_name_and_pipelines(machine, scaler):
    X, y, weight = rows()
    search = BilevelSearchCV(make_pipeline(scaler, machine), cv=3, max_iter=2, refit=False)
    search.fit(X, y, sample_weight=weight)
    expected = by_hand(search, X, y, weight, lambda y, w: {"a": 1.0, "b": 5.0})
    np.testing.assert_allclose(search.result_.fold_objectives, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("spec", "share"),
    [
        (None, lambda y, w: {"a": 1.0, "b": 1.0}),
        ({"a": 3.0}, lambda y, w: {"a": 3.0, "b": 1.0}),
        ("balanced", balanced(LinearSVC(class_weight="balanced"))),
    ],
    ids=["none", "dict", "balanced"],
)
@pytest.mark.parametrize("weights", [None, "balanced", {"b": 5.0}], ids=["plain", "balanced", "dict"])
def test_the_users_weights_are_used_whatever_the_estimators(spec, share, weights):
    X, y, weight = rows()
    machine = LinearSVC(class_weight=weights)
    search = BilevelSearchCV(machine, ONE, cv=3, max_iter=2, refit=False, criterion_weight=spec)
    search.fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(
        search.result_.fold_objectives, by_hand(search, X, y, weight, share), rtol=1e-6
    )


@pytest.mark.parametrize("machine", [LinearSVC(class_weight="balanced"), KernelSVC(class_weight="balanced")])
def test_tuned_class_weights_do_not_weigh_the_criterion(machine):
    X, y, weight = rows()
    search = BilevelSearchCV(machine, ["C", "class_weight"], cv=3, max_iter=3, refit=False)
    search.fit(X, y, sample_weight=weight)
    expected = by_hand(search, X, y, weight, lambda y, w: {"a": 1.0, "b": 1.0})
    np.testing.assert_allclose(search.result_.fold_objectives, expected, rtol=1e-6)


@pytest.mark.parametrize("machine", [LinearSVC(), LinearSVC("hinge"), KernelSVC(), SVC(gamma=0.2)])
def test_its_gradient_against_differences(machine):
    from foldwise.estimators.adapters import describe
    from foldwise.models.base import Rows
    from foldwise.search.prepare import Data, prepare

    X, y, weight = rows()
    classes, codes = np.unique(y, return_inverse=True)
    machine.class_weight = "balanced"
    data = Rows(np.where(codes == 1, 1.0, -1.0)[None], weight, None, (), codes, classes.tolist())
    tunable = describe(machine)
    splits = list(StratifiedKFold(3).split(X, y))
    for spec in ("auto", {0: 4.0}):
        criterion = tunable.criterion()
        given = Data(X, data, classes, splits)
        bilevel = prepare(tunable, given, criterion, low_rank=False, criterion_weight=spec).bilevel
        theta = 0.5 * (bilevel.space.lower + bilevel.space.upper) + 0.1
        found = bilevel.differentiate(bilevel.evaluate(theta)).gradient
        for i in range(len(theta)):
            h = 1e-6 * np.eye(len(theta))[i]
            slope = (bilevel.evaluate(theta + h).objective - bilevel.evaluate(theta - h).objective) / 2e-6
            assert found[i] == pytest.approx(slope, rel=2e-4, abs=1e-8)


@pytest.mark.parametrize("method", ["slams", "grid", "pbp", "bundle", "lbfgsb"])
def test_every_method_sees_the_weights(method):
    X, y, _ = rows(n=40)
    weight = np.ones(len(y))
    exact = method in ("slams", "bundle")
    machine = LinearSVC("hinge" if exact else "squared_hinge", class_weight={"b": 6.0})
    search = BilevelSearchCV(
        machine,
        {"C": Log(1e-2, 1e2)},
        cv=3,
        method=method,
        criterion="hinge" if exact else "squared_hinge",
        max_iter=None if method == "grid" else 4,
        refit=False,
    ).fit(X, y)
    expected = by_hand(search, X, y, weight, lambda y, w: {"a": 1.0, "b": 6.0})
    np.testing.assert_allclose(search.result_.fold_objectives, expected, rtol=1e-5)


@pytest.mark.parametrize("machine", [SVC, LinearSVC, KernelSVC])
def test_tuning_a_balanced_machine_does_not_turn_it_to_the_large_class(machine):
    """Balanced accuracy on held-out rows is not below the untuned machine's, over three sets."""
    gains = []
    for seed in range(3):
        X, y = make_classification(
            4000, 8, n_informative=4, weights=[0.92], flip_y=0.04, class_sep=0.8, random_state=seed
        )
        train, test = slice(0, 350), slice(350, None)
        plain = make_pipeline(StandardScaler(), machine(class_weight="balanced"))
        tuned = BilevelSearchCV(plain, cv=4).fit(X[train], y[train])
        found = [m.predict(X[test]) for m in (tuned, plain.fit(X[train], y[train]))]
        gains.append(np.subtract(*(balanced_accuracy_score(y[test], z) for z in found)))
    assert np.mean(gains) >= -0.005, gains


@pytest.mark.parametrize(
    "machine", [SVC(gamma=0.2, tol=1e-8), SkLinearSVC(tol=1e-10, max_iter=100_000)], ids=str
)
def test_balanced_follows_the_machine_also_where_its_classes_weigh_the_same(machine):
    """``SVC`` would count rows, whatever its own ``class_weight``."""
    X, y, weight = rows()
    search = BilevelSearchCV(
        machine, ONE, cv=StratifiedKFold(3), criterion_weight="balanced", refit=False
    ).fit(X, y, sample_weight=weight)
    own = clone(machine).set_params(class_weight="balanced")
    if isinstance(machine, SVC):
        assert counts_rows(own)
    expected = by_hand(search, X, y, weight, balanced(own))
    np.testing.assert_allclose(search.result_.fold_objectives, expected, rtol=1e-4)


@pytest.mark.parametrize("machine", [SVC, SkLinearSVC, LogisticRegression])
def test_balanced_is_asked_of_the_estimator_itself(machine):
    """Whichever rule the installed scikit-learn has, weights by that rule give the same machine."""
    X, y, weight = rows()
    rule = balanced(machine(class_weight="balanced"))(y, weight)
    other = balanced(LinearSVC())(y, weight) if counts_rows(machine()) else None
    options = {"tol": 1e-9, "max_iter": 100_000}
    plain = machine(class_weight="balanced", **options).fit(X, y, sample_weight=weight).decision_function(X)
    same = machine(class_weight=rule, **options).fit(X, y, sample_weight=weight).decision_function(X)
    np.testing.assert_allclose(plain, same, rtol=1e-5, atol=1e-6)
    if other is not None:
        off = machine(class_weight=other, **options).fit(X, y, sample_weight=weight).decision_function(X)
        assert np.abs(off - plain).max() > 1e-3
    assert compute_sample_weight("balanced", y).max() > 1.0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("equal", "criterion_weight must be 'auto' or None, 'balanced' or a dict"),
        (2.0, "criterion_weight must be 'auto' or None, 'balanced' or a dict"),
        (np.ones(5), "sample_weight of fit"),
        ({"a": -1.0}, "a dict from class to a positive weight"),
        ({"a": np.nan}, "a dict from class to a positive weight"),
        ({"a": "much"}, "a dict from class to a positive weight"),
        ({"z": 1.0}, "'z'; y has: a, b"),
    ],
)
def test_what_is_no_weight_is_refused(spec, words):
    X, y, _ = rows()
    with pytest.raises(ValueError, match=words):
        BilevelSearchCV(LinearSVC(), cv=3, criterion_weight=spec).fit(X, y)


def test_a_regressor_has_no_classes_to_weigh():
    X, _, weight = rows()
    with pytest.raises(ValueError, match="LinearSVR is a regressor"):
        BilevelSearchCV(LinearSVR(), criterion_weight="balanced").fit(X, weight + X[:, 0])
    BilevelSearchCV(LinearSVR(), criterion_weight=None, max_iter=1).fit(X, weight + X[:, 0])


def test_a_checkpoint_belongs_to_its_weights(tmp_path):
    X, y, _ = rows()
    options = {"cv": 3, "max_iter": 2, "checkpoint": tmp_path / "c", "resume": True}
    first = BilevelSearchCV(LinearSVC(), criterion_weight={"b": 4.0}, **options).fit(X, y)
    again = BilevelSearchCV(LinearSVC(), criterion_weight={"b": 4.0}, **options).fit(X, y)
    assert again.n_resumed_ > 0
    assert first.best_params_ == again.best_params_
    with pytest.raises(ValueError, match="criterion_weight"):
        BilevelSearchCV(LinearSVC(), criterion_weight={"b": 3.0}, **options).fit(X, y)
