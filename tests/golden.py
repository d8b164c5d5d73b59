"""Answers of some ninety searches, frozen before a change and compared after it.

    python tests/golden.py write before.json     # on the version to compare with
    python tests/golden.py compare before.json   # on the changed version; exit 1 when an answer differs

A rearrangement of the code leaves them the same to the last bits that the algorithm defines; a change that means to
move them says so. The file belongs to one machine and one set of installed versions: it is not kept with the sources.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn import linear_model, svm
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_classification
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from foldwise import (
    RBF,
    BilevelSearchCV,
    ExpChi2,
    KernelSVC,
    KernelSVR,
    Linear,
    LinearSVC,
    LinearSVR,
    Log,
    Polynomial,
    SemiparametricSVR,
    Sum,
)
from foldwise.testing import random_search

DRAWN = range(40, 90)
RTOL = 1e-9
"""Answers that agree to this relative accuracy are the same: sums may be taken in another order."""

Search = Callable[[], Any]


def named() -> Iterator[tuple[str, Search]]:
    """Searches over every model and method, on data that need no file."""
    diabetes, cancer = load_diabetes(return_X_y=True), load_breast_cancer(return_X_y=True)
    wine = load_wine(return_X_y=True)
    small = make_classification(60, 4, random_state=0)

    def fit(estimator: Any, data: Any, rows: int, scale: Any = StandardScaler, **options: Any) -> Search:
        X, y = data
        take = np.random.default_rng(0).permutation(len(y))[:rows]
        steps = estimator if scale is None else make_pipeline(scale(), estimator)
        options = {"cv": 3, "random_state": 0, **options}
        return lambda: BilevelSearchCV(steps, **options).fit(X[take], y[take])

    for loss in ("squared_epsilon_insensitive", "huber", "epsilon_insensitive", "squared"):
        yield f"LinearSVR {loss}", fit(LinearSVR(loss), diabetes, 150)
    for loss in ("squared_hinge", "hinge", "logistic", "quartic_hinge"):
        yield f"LinearSVC {loss}", fit(LinearSVC(loss), cancer, 150)
    for method in ("lbfgsb", "bfgs", "rprop", "pbp", "grid", "random"):
        yield f"LinearSVR {method}", fit(LinearSVR(), diabetes, 120, method=method)
    yield "three classes", fit(LinearSVC(), wine, 120)
    space = {"lam": Log(1e-2, 1e2, per="feature")}
    yield "a penalty per feature", fit(LinearSVR(), diabetes, 150, None, space=space)
    for method in ("mpec", "slams", "constrained_grid", "bundle"):
        options = {"space": {"C": (1e-2, 1e2), "box": (0.01, 2.0)}} if method != "bundle" else {}
        criterion = {"criterion": "hinge"}
        yield (
            f"LinearSVC {method}",
            fit(LinearSVC("hinge"), small, 60, None, method=method, **criterion, **options),
        )
    for kernel in (RBF(), RBF(ard=True), Polynomial(degree=2), Sum([RBF(), Linear()])):
        yield f"KernelSVC {kernel}", fit(KernelSVC(kernel), cancer, 150)
    yield "KernelSVC chi-squared", fit(KernelSVC(ExpChi2()), cancer, 120, None)
    yield "KernelSVC hinge", fit(KernelSVC(loss="hinge"), cancer, 120)
    yield "KernelSVC three classes", fit(KernelSVC(), wine, 120)
    yield "KernelSVC landmarks", fit(KernelSVC(), cancer, 300, low_rank=True)
    yield (
        "KernelSVC mpec",
        fit(
            KernelSVC(RBF(ard=True), loss="hinge"),
            small,
            30,
            None,
            method="mpec",
            shrinkage=0,
            criterion="hinge",
        ),
    )
    yield "KernelSVC sample first", fit(KernelSVC(), cancer, 500)
    yield "KernelSVR", fit(KernelSVR(), diabetes, 150)
    yield "KernelSVR tube", fit(KernelSVR(loss="epsilon_insensitive"), diabetes, 100)
    yield "KernelSVR a width per feature", fit(KernelSVR(RBF(ard=True)), diabetes, 120)
    yield "Semiparametric", fit(SemiparametricSVR([0, 2]), diabetes, 80)
    yield "SVC", fit(svm.SVC(), cancer, 200)
    yield "SVC gamma fixed", fit(svm.SVC(), cancer, 150, space={"svc__C": (0.1, 100)})
    yield "SVC three classes", fit(svm.SVC(), wine, 120)
    yield "SVC balanced", fit(svm.SVC(class_weight="balanced"), cancer, 150)
    yield "SVC profiled", fit(svm.SVC(), cancer, 150, criterion="profiled_logistic")
    yield "SVR", fit(svm.SVR(), diabetes, 120)
    yield "KernelRidge", fit(KernelRidge(kernel="rbf"), diabetes, 150)
    yield "Ridge", fit(linear_model.Ridge(), diabetes, 150)
    yield "LogisticRegression", fit(linear_model.LogisticRegression(), cancer, 150)
    yield "scikit-learn LinearSVC", fit(svm.LinearSVC(), cancer, 150)


def drawn() -> Iterator[tuple[str, Search]]:
    """Searches as the net draws them, those among them that are refused included."""
    for seed in DRAWN:
        one = random_search(seed)
        yield (
            f"seed {seed}",
            lambda one=one: one.search.set_params(random_state=0).fit(one.X, one.y, **one.fit_params),
        )


def answer(search: Search) -> dict[str, Any]:
    """What a search came to, or the error that refused it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = search().result_
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    return {
        "theta": [float(value) for value in result.theta],
        "objective": float(result.objective),
        "start": float(result.objective_start),
        "status": result.status.value,
        "evaluations": result.n_evaluations,
    }


def same(a: Any, b: Any) -> bool:
    """Whether two answers agree: numbers to RTOL, words and counts exactly."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=RTOL, atol=0.0, equal_nan=True))
    return bool(a == b)


def main() -> int:
    """Write the answers, or compare with those that were written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["write", "compare"])
    parser.add_argument("file")
    given = parser.parse_args()
    found = {name: answer(search) for name, search in [*named(), *drawn()]}
    if given.what == "write":
        with open(given.file, "w", encoding="utf-8") as out:
            json.dump(found, out, indent=1)
        print(f"{len(found)} answers, {sum('error' in a for a in found.values())} of them refusals")
        return 0
    with open(given.file, encoding="utf-8") as kept:
        wanted = json.load(kept)
    other = [name for name in sorted(wanted | found) if not same(wanted.get(name), found.get(name))]
    for name in other:
        print(f"{name}:\n  before {wanted.get(name)}\n  after  {found.get(name)}")
    print(f"{len(wanted)} answers, {len(other)} differ")
    return bool(other)


if __name__ == "__main__":
    sys.exit(main())
