"""The constrained grid: every combination of open and shut boxes."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.svm import SVC

from foldwise import BilevelSearchCV, LinearSVC
from foldwise.bilevel import Evaluation
from foldwise.optimizers import ConstrainedGrid
from foldwise.optimizers.base import Trace
from foldwise.result import Status
from foldwise.space import Lin, Log, Space


class Plane:
    """Weights that are known in closed form, so that every stage can be followed by hand.

    The weight of a feature is its size where its box is open; the objective counts what is shut, wrongly or rightly.
    """

    def __init__(self, size, useful, tie=None):
        self.size, self.useful = np.asarray(size, float), np.asarray(useful)
        box = Lin(0.0, 2.0, per="feature", tie=tie)
        self.space = Space.build({"C": Log(1e-2, 1e2), "box": box}, {"feature": range(len(size))})
        self.seen = []
        design = SimpleNamespace(to_user=lambda W: (W[:, : len(size)], W[:, -1]))
        self.problems = [SimpleNamespace(design=design)]

    def evaluate(self, theta, warm=None):
        params = self.space.params(theta)
        box = params["box"]
        self.seen.append((params["C"], tuple(box > 0)))
        W = np.where(box > 0, self.size, 0.0)
        value = np.sum((box > 0) != self.useful) + np.log10(params["C"]) ** 2
        points = [SimpleNamespace(W=np.array([[*W, 7.0], [*W, -9.0]]))]  # two folds and their intercepts
        return Evaluation(theta, float(value), np.array([value]), points, True)

    n_inner_steps = 0

    def by_fold(self, evaluation):
        return np.array([evaluation.objective])


def follow(plane, **options):
    trace = Trace(plane)
    status = ConstrainedGrid(points=3, **options).iterate(trace, plane.space.lower)
    return trace, status


def test_every_combination_once_and_neighbours_differ_in_one_feature():
    plane = Plane([1.0, 2.0, 3.0, 4.0], [True, False, True, False])
    trace, status = follow(plane)
    assert status is Status.EXHAUSTED
    first, rest = plane.seen[:3], plane.seen[3:]
    assert [C for C, _ in first] == pytest.approx([0.01, 1.0, 100.0])
    assert all(boxes == (True,) * 4 for _, boxes in first)
    combinations = [boxes for _, boxes in rest]
    assert sorted(combinations) == sorted(itertools.product([False, True], repeat=4))
    assert [C for C, _ in rest] == pytest.approx([1.0] * 16)
    assert {sum(np.not_equal(a, b)) for a, b in itertools.pairwise(combinations)} == {1}
    assert trace.best.objective == pytest.approx(0.0, abs=1e-20)
    assert trace.space.params(trace.best.theta)["box"].tolist() == [2.0, 0.0, 2.0, 0.0]


def test_the_smallest_weights_are_eliminated_first():
    plane = Plane([0.3, -0.1, 0.5, 0.2, -0.4], [True] * 5)
    trace, _ = follow(plane, max_features=3)
    notes = [record.note for record in trace.history]
    assert notes.count("elimination") == 2
    eliminated = [boxes for (_, boxes), note in zip(plane.seen, notes, strict=True) if note == "elimination"]
    assert eliminated == [(True, False, True, True, True), (True, False, True, False, True)]
    combinations = {
        boxes for (_, boxes), note in zip(plane.seen, notes, strict=True) if note == "combinations"
    }
    assert len(combinations) == 8
    assert all(not boxes[1] and not boxes[3] for boxes in combinations)


def test_tied_features_open_and_shut_together():
    plane = Plane([0.1, 0.2, 0.9, 0.25], [True] * 4, tie=[0, 1, 0, 1])
    follow(plane, max_features=1)
    # The first pair has the larger sum of squares although it has the smallest weight.
    assert plane.seen[3][1] == (True, False, True, False)


@pytest.mark.parametrize("criterion", ["misclassification", "hinge"])
def test_open_and_shut_boxes_are_subsets_of_columns(criterion):
    """A box of 0 takes a column away, a wide one leaves it as it is: scikit-learn's machine on every subset."""
    X, y, folds = two_classes()
    search = BilevelSearchCV(
        LinearSVC(loss="hinge", C=0.5, box=50.0),
        {"box": Lin(0.0, 50.0, per="feature")},
        method="constrained_grid",
        criterion=criterion,
        cv=folds,
        refit=False,
    ).fit(X, y)
    errors = {}
    for subset in itertools.product([False, True], repeat=4):
        columns = np.flatnonzero(subset)
        if len(columns) == 0:
            continue
        means = []
        for train, validation in folds:
            machine = SVC(kernel="linear", C=0.5, tol=1e-8).fit(X[train][:, columns], y[train])
            margin = y[validation] * machine.decision_function(X[validation][:, columns])
            means.append(
                np.mean(margin <= 0)
                if criterion == "misclassification"
                else np.mean(np.maximum(1 - margin, 0))
            )
        errors[subset] = np.mean(means)
    best = min(errors, key=errors.get)
    assert search.result_.objective == pytest.approx(errors[best], abs=1e-5)
    assert errors[tuple(np.array(search.best_params_["box"]) > 0)] == pytest.approx(errors[best], abs=1e-5)
    assert search.result_.objective < errors[(True,) * 4]
    assert search.result_.status is Status.EXHAUSTED
    assert search.n_iter_ == 1 + 2**4


def test_all_stages_through_a_search():
    """C by a grid with open boxes, two features eliminated, the other two in all combinations."""
    X, y, folds = two_classes()
    space = {"C": Log(1e-2, 1e2), "box": Lin(0.0, 50.0, per="feature")}
    model = LinearSVC(loss="hinge", box=50.0)
    options = {"max_features": 2, "values": {"C": [0.1, 1.0, 10.0]}}
    search = BilevelSearchCV(
        model, space, method="constrained_grid", criterion="hinge", cv=folds, method_options=options
    ).fit(X, y)
    notes = [record.note for record in search.result_.history]
    assert [notes.count(note) for note in ("open boxes", "elimination", "combinations")] == [3, 2, 4]
    first = [record.objective for record in search.result_.history[:3]]
    grid = BilevelSearchCV(
        LinearSVC(loss="hinge"),
        {"C": Log(1e-2, 1e2)},
        method="grid",
        criterion="hinge",
        cv=folds,
        method_options={"values": {"C": [0.1, 1.0, 10.0]}},
    ).fit(X, y)
    assert first == pytest.approx([record.objective for record in grid.result_.history], rel=1e-8)
    assert search.best_estimator_.coef_[0][np.array(search.best_params_["box"]) == 0] == pytest.approx(0.0)


def two_classes():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(45, 4))
    y = np.where(X[:, 0] - 0.7 * X[:, 2] + 0.8 * rng.normal(size=45) > 0, 1, -1)
    order = rng.permutation(45)
    return X, y, [(np.setdiff1d(order, part), part) for part in np.array_split(order, 3)]


def test_what_it_refuses():
    plane = Plane([1.0], [True])
    plane.space = Space.build({"C": Log(0.1, 1.0)}, {})
    with pytest.raises(ValueError, match="no 'box'; it has: C"):
        follow(plane)
    with pytest.raises(ValueError, match="between 1 and 20"):
        ConstrainedGrid(max_features=33)


def test_no_more_features_than_asked_for_are_returned():
    """Every feature is useful, so the open boxes on the way are better than what may be returned."""
    plane = Plane([0.3, -0.1, 0.5, 0.2, -0.4], [True] * 5)
    trace = Trace(plane, admits=lambda theta: ConstrainedGrid(max_features=3).admits(plane.space, theta))
    ConstrainedGrid(points=3, max_features=3).iterate(trace, plane.space.lower)
    assert trace.space.params(trace.best.theta)["box"].tolist() == [2.0, 0.0, 2.0, 0.0, 2.0]
    assert min(record.objective for record in trace.history) < trace.best.objective
    assert [record.admissible for record in trace.history[:5]] == [False, False, False, False, True]
    X, y, folds = two_classes()
    search = BilevelSearchCV(
        LinearSVC(loss="hinge", C=0.5, box=50.0),
        {"box": Lin(0.0, 50.0, per="feature")},
        method="constrained_grid",
        criterion="hinge",
        cv=folds,
        method_options={"max_features": 1},
    ).fit(X, y)
    assert np.count_nonzero(search.best_params_["box"]) <= 1
    assert np.count_nonzero(search.best_estimator_.coef_) <= 1
    few = [r for r in search.result_.history if np.count_nonzero(r.params["box"]) <= 1]
    assert search.result_.objective == min(r.objective for r in few)
    assert search.result_.objective_start == few[0].objective
    assert search.cv_results_["rank_test_score"][search.best_index_] == 1
