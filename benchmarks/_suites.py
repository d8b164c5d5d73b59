"""The suites: which data, which bounds, which methods. Each adds its measurements to a ``Record``."""

from __future__ import annotations

import csv
import gzip
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _measure import Choice, Record, rounds
from _peers import (
    cross_validation,
    estimate_grid_search,
    grid_search,
    have,
    judge,
    liblinear_search,
    optuna_on_program,
    optuna_search,
    ours,
    own_grid,
    program,
    random_search,
)
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.svm import LinearSVR as SkLinearSVR

from foldwise import BilevelSearchCV, Lin, LinearSVC, LinearSVR, Log
from foldwise.datasets import make_pca_regression

__all__ = ["CROSS_VALIDATION", "OURS", "OWN_GRID", "SUITES", "Settings"]

T = 5
N_TEST = 2000
LARGE = 100_000
OURS, OWN_GRID, CROSS_VALIDATION = "foldwise", "same grid, our solver", "one cross_val_score"
DROP_IN = "foldwise, scikit-learn's LinearSVC"


@dataclass(frozen=True)
class Settings:
    """What the command line chose.

    Attributes
    ----------
    sizes, seeds : rows of the synthetic sets, and how many seeds (one seed from 100,000 rows on)
    trials_two, trials_ten : Optuna trials for two and for ten hyper-parameters
    full : run every point of GridSearchCV, and the other slow peers, at 100,000 rows too
    data : folder of the larger real sets, or None
    say : prints a line of progress
    """

    sizes: tuple[int, ...]
    seeds: int
    trials_two: int
    trials_ten: int
    full: bool
    data: Path | None
    say: Callable[[str], None]

    def seeds_for(self, n: int) -> range:
        """Seeds for a size; the largest get one, because they take minutes."""
        return range(1 if n >= LARGE else self.seeds)

    def cases(self) -> Iterator[tuple[str, int, int]]:
        """Every (noise, size, seed) of the synthetic suites."""
        for n in self.sizes:
            for seed in self.seeds_for(n):
                for noise in ("t", "bimodal"):
                    yield noise, n, seed


# Regression: synthetic data of moore2011's kind, five groups of noise levels.

SVR_GRID = {"C": 10.0 ** np.arange(-4, 4), "epsilon": np.linspace(0.0, 1.0, 6)}
SVR_BOUNDS = {"C": (1e-4, 1e3, "log"), "epsilon": (0.0, 1.0, "lin")}
SVR_SPACE = {"C": Log(1e-4, 1e3), "epsilon": Lin(0.0, 1.0)}
MSE = "neg_mean_squared_error"


@dataclass(frozen=True)
class Regression:
    """Training rows, fresh test rows of the same law, and the truth."""

    X: np.ndarray
    y: np.ndarray
    groups: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    w: np.ndarray

    @classmethod
    def make(cls, n: int, noise: str, seed: int) -> Regression:
        """Draw ``n`` training and 2,000 test rows."""
        X, y, w, groups = make_pca_regression(n + N_TEST, noise=noise, groups=5, seed=seed)
        return cls(X[:n].copy(), y[:n].copy(), groups[:n], X[n:], y[n:], w)

    def figures(self, model) -> dict[str, float | None]:
        """Mean squared error on the test rows, and against the noise-free target."""
        if model is None:
            return {"test_error": None, "excess_risk": None}
        z = model.predict(self.X_test)
        return {
            "test_error": float(np.mean((z - self.y_test) ** 2)),
            "excess_risk": float(np.mean((z - self.X_test @ self.w) ** 2)),
        }


def svr(record: Record, settings: Settings) -> None:
    """(C, epsilon) of the linear support vector regression with squared epsilon-insensitive loss.

    scikit-learn's LinearSVR solves the primal (``dual=False``), as ``dual="auto"`` chooses when there are more
    training rows than features; at n = 100, where it would choose the dual, the dual is slower and does not
    converge for large C. It penalises the intercept, ours does not; each choice is judged by our exact solver.
    """
    peer = SkLinearSVR(loss="squared_epsilon_insensitive", dual=False, max_iter=10_000)
    for noise, n, seed in settings.cases():
        data = Regression.make(n, noise, seed)
        X, y = data.X, data.y
        cv = KFold(T, shuffle=True, random_state=seed)
        search = BilevelSearchCV(LinearSVR(), SVR_SPACE, cv=cv)
        answer: dict[str, Any] = {}

        def solve(search=search, X=X, y=y, answer=answer) -> Choice:
            choice = ours(search, X, y)
            answer.update(choice.params)
            return choice

        fast = {
            OURS: solve,
            CROSS_VALIDATION: partial(cross_validation, peer, answer, X, y, cv, MSE),
            OWN_GRID: partial(own_grid, search, SVR_GRID, X, y),
        }
        slow: dict[str, Callable[[], Choice]] = {}
        if n < LARGE or settings.full:
            slow["GridSearchCV 48"] = partial(grid_search, peer, SVR_GRID, X, y, cv, MSE)
            slow["RandomizedSearchCV 48"] = partial(random_search, peer, SVR_BOUNDS, X, y, cv, MSE, 48, seed)
            if have("optuna"):
                name = f"Optuna TPE {settings.trials_two}"
                slow[name] = partial(
                    optuna_search, peer, SVR_BOUNDS, X, y, cv, MSE, settings.trials_two, seed
                )
        else:
            slow["GridSearchCV 48"] = partial(estimate_grid_search, peer, SVR_GRID, X, y, cv, MSE)
        choices = rounds(fast, slow, repeats=7 if n <= 1000 else 3, turn=seed)
        bilevel = program(search, X, y)
        for method, choice in choices.items():
            record.add(
                "svr",
                {"data": noise, "n": n, "d": X.shape[1], "seed": seed},
                method,
                choice,
                objective=judge(bilevel, choice.params) if choice.params else None,
                **data.figures(choice.model),
            )
        record.write()
        settings.say(f"svr: {noise}, n = {n}, seed {seed} done")


def groups(record: Record, settings: Settings) -> None:
    """Ten hyper-parameters, C and epsilon for each of five groups of samples, against Optuna on the same solver."""
    space = {"C": Log(1e-4, 1e3, per="group"), "epsilon": Lin(0.0, 1.0, per="group")}
    if not have("optuna"):
        settings.say("groups: Optuna is not installed (pip install optuna); ours is measured alone")
    for noise, n, seed in settings.cases():
        data = Regression.make(n, noise, seed)
        X, y = data.X, data.y
        cv = KFold(T, shuffle=True, random_state=seed)
        search = BilevelSearchCV(LinearSVR(), space, cv=cv)
        shared = BilevelSearchCV(LinearSVR(), SVR_SPACE, cv=cv)
        fast = {
            OURS: partial(ours, search, X, y, sample_groups=data.groups),
            "foldwise, one group": partial(ours, shared, X, y),
        }
        slow = {}
        if have("optuna"):
            slow[f"Optuna TPE {settings.trials_ten}, our solver"] = partial(
                optuna_on_program, search, X, y, data.groups, settings.trials_ten, seed
            )
        choices = rounds(fast, slow, repeats=3, turn=seed)
        bilevel = program(search, X, y, data.groups)
        for method, choice in choices.items():
            record.add(
                "groups",
                {"data": noise, "n": n, "d": X.shape[1], "seed": seed},
                method,
                choice,
                objective=judge(bilevel, choice.params),
                **data.figures(choice.model),
            )
        record.write()
        settings.say(f"groups: {noise}, n = {n}, seed {seed} done")


def features(record: Record, settings: Settings) -> None:
    """One penalty for each of a hundred features against one for all, n = 5,000, tube closed.

    "dense": every feature matters. "sparse": twenty of the hundred do, so there is something to find.
    """
    n = 5000
    for seed in range(settings.seeds):
        for truth in ("dense", "sparse"):
            data = Regression.make(n, "t", seed)
            if truth == "sparse":
                off = np.random.default_rng(seed).permutation(data.X.shape[1])[20:]
                data.y[:] -= data.X[:, off] @ data.w[off]
                data.y_test[:] -= data.X_test[:, off] @ data.w[off]
                data.w[off] = 0.0
            cv = KFold(T, shuffle=True, random_state=seed)
            many = BilevelSearchCV(LinearSVR(), {"lam": Log(1e-2, 1e8, per="feature")}, cv=cv)
            one = clone(many).set_params(space={"lam": Log(1e-2, 1e8)})
            fast = {
                "one lam": partial(ours, one, data.X, data.y),
                "100 lam": partial(ours, many, data.X, data.y),
            }
            choices = rounds(fast, {}, repeats=3, turn=seed)
            bilevel = program(many, data.X, data.y)
            for method, choice in choices.items():
                record.add(
                    "features",
                    {"data": truth, "n": n, "d": data.X.shape[1], "seed": seed},
                    method,
                    choice,
                    objective=judge(bilevel, choice.params),
                    **data.figures(choice.model),
                )
            record.write()
            settings.say(f"features: {truth}, seed {seed} done")


# Classification: real data.

C_GRID = 10.0 ** np.linspace(-4.0, 2.0, 13)
C_BOUNDS = (1e-4, 1e2)


@dataclass(frozen=True)
class Classification:
    """Training and test rows with labels -1 and +1; ``scale``: standardise inside each fold."""

    name: str
    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    scale: bool

    def error(self, model) -> float | None:
        """Share of wrong labels on the test rows."""
        return None if model is None else float(np.mean(model.predict(self.X_test) != self.y_test))


def classification(record: Record, settings: Settings) -> None:
    """C of the squared hinge and of logistic regression against GridSearchCV and LIBLINEAR's own search.

    Ours minimises a smooth criterion, the others count wrong labels: both are shown, each judged by our exact
    solver on the same folds.
    """
    if not have("liblinear"):
        settings.say("classification: LIBLINEAR is not installed (pip install liblinear-official); left out")
    peers = {
        "squared_hinge": SkLinearSVC(dual=False, max_iter=10_000),
        "logistic": LogisticRegression(max_iter=10_000),
    }
    for seed in range(settings.seeds):
        for data in _classification_sets(settings, seed):
            for loss, peer in peers.items():
                _classify(record, data, loss, peer, seed)
                settings.say(f"classification: {data.name}, {loss}, seed {seed} done")


def _classify(record: Record, data: Classification, loss: str, peer, seed: int) -> None:
    X, y = data.X, data.y
    cv = StratifiedKFold(T, shuffle=True, random_state=seed)
    model, key, transform = LinearSVC(loss), "C", _same
    if data.scale:
        model, key = make_pipeline(StandardScaler(), model), "linearsvc__C"
        transform = StandardScaler().fit(X).transform
        peer = make_pipeline(StandardScaler(), peer)
    peer_key = key if not data.scale else f"{peer.steps[-1][0]}__C"
    search = BilevelSearchCV(model, {key: C_BOUNDS}, cv=cv)
    answer: dict[str, Any] = {}

    def solve() -> Choice:
        choice = ours(search, X, y)
        answer[peer_key] = choice.params[key]
        return choice

    fast = {
        OURS: solve,
        CROSS_VALIDATION: partial(cross_validation, peer, answer, X, y, cv, "accuracy"),
        OWN_GRID: partial(own_grid, search, {"C": C_GRID}, X, y),
    }
    slow = {"GridSearchCV 13": partial(grid_search, peer, {peer_key: C_GRID}, X, y, cv, "accuracy")}
    if have("liblinear"):
        slow["LIBLINEAR -C"] = partial(liblinear_search, loss, X, y, T, transform)
    choices = rounds(fast, slow, repeats=3, turn=seed)
    smooth = program(search, X, y)
    wrong = program(clone(search).set_params(criterion="misclassification"), X, y)
    for method, choice in choices.items():
        C = next(iter(choice.params.values()))
        record.add(
            "classification",
            {"data": data.name, "loss": loss, "n": X.shape[0], "d": X.shape[1], "seed": seed},
            method,
            choice,
            objective=judge(smooth, {"C": C}),
            cv_error=judge(wrong, {"C": C}),
            test_error=data.error(choice.model),
        )
    record.write()


def _same(X):
    return X


def _classification_sets(settings: Settings, seed: int) -> Iterator[Classification]:
    """The sets, with a third held out by this seed where a set has no test part of its own."""
    X, y = load_breast_cancer(return_X_y=True)
    yield _split("breast cancer", X, 2.0 * y - 1.0, seed)
    X, y = load_digits(return_X_y=True)
    yield _split("digits, 8 or not", X, np.where(y == 8, 1.0, -1.0), seed)
    train, test = _find(settings, "a9a.svm.gz"), _find(settings, "a9a_test.svm.gz")
    if train and test:
        X, y = _svmlight(train, 123)
        X_test, y_test = _svmlight(test, 123)
        yield Classification("a9a", X, y, X_test, y_test, scale=False)
    path = _find(settings, "ijcnn1_cont.csv.gz")
    if path:
        with gzip.open(path, "rt") as lines:
            table = np.array(list(csv.reader(lines))[1:], float)
        yield _split("ijcnn1, continuous", table[:, :-1], table[:, -1], seed)


def _split(name: str, X, y, seed: int) -> Classification:
    X, X_test, y, y_test = train_test_split(X, y, test_size=1 / 3, stratify=y, random_state=seed)
    return Classification(name, X, y, X_test, y_test, scale=True)


def _find(settings: Settings, name: str) -> str | None:
    """The path of a file in the data folder; None, with a message, when it is not there."""
    if settings.data is None:
        settings.say(f"{name} left out: no data folder; give --data or set FOLDWISE_DATA")
        return None
    path = settings.data / name
    if not path.exists():
        settings.say(f"{name} left out: it is not in the data folder")
        return None
    return str(path)


def _svmlight(path: str, d: int | None = None):
    """Rows and targets of an svmlight file, with the 32-bit indices that LIBLINEAR takes."""
    X, y = load_svmlight_file(path, n_features=d)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X, y


# Sparse text.


def sparse(record: Record, settings: Settings) -> None:
    """C of a sparse text classifier: 20 Newsgroups, the first class against the rest, l2-normalised tf-idf.

    ``peak_bytes`` comes from a run of its own under tracemalloc, which slows what it watches; ``square_bytes`` is
    what one d x d matrix of floats would take, so a peak near it means that one was formed.
    """
    train, test = _find(settings, "news20_train.svm.gz"), _find(settings, "news20_test.svm.gz")
    if not (train and test):
        return
    X, y = _svmlight(train)
    X_test, y_test = _svmlight(test, X.shape[1])
    tfidf = TfidfTransformer().fit(X)
    first = y.min()
    data = Classification(
        "news20, class 1 or not",
        tfidf.transform(X).tocsr(),
        np.where(y == first, 1.0, -1.0),
        tfidf.transform(X_test).tocsr(),
        np.where(y_test == first, 1.0, -1.0),
        scale=False,
    )
    X, y = data.X, data.y
    grid, bounds = 10.0 ** np.linspace(-2.0, 3.0, 11), (1e-2, 1e3)
    for seed in range(settings.seeds):
        cv = StratifiedKFold(T, shuffle=True, random_state=seed)
        peer = SkLinearSVC(dual="auto", random_state=seed)
        drop_in = BilevelSearchCV(peer, {"C": bounds}, cv=cv)
        searches = {DROP_IN: drop_in, OURS: BilevelSearchCV(LinearSVC(), {"C": bounds}, cv=cv)}
        answer: dict[str, Any] = {}

        def solve(search=drop_in, X=X, y=y, answer=answer) -> Choice:
            choice = ours(search, X, y)
            answer.update(choice.params)
            return choice

        fast = {DROP_IN: solve, OURS: partial(ours, searches[OURS], X, y)}
        fast[CROSS_VALIDATION] = partial(cross_validation, peer, answer, X, y, cv, "accuracy")
        slow = {"GridSearchCV 11": partial(grid_search, peer, {"C": grid}, X, y, cv, "accuracy")}
        choices = rounds(fast, slow, repeats=3, turn=seed)
        smooth = program(searches[OURS], X, y)
        for method, choice in choices.items():
            figures: dict[str, Any] = {"objective": judge(smooth, choice.params)}
            figures["test_error"] = data.error(choice.model)
            if method in searches:
                figures["peak_bytes"] = _peak(partial(ours, searches[method], X, y))
                figures["square_bytes"] = 8 * X.shape[1] ** 2
            case = {"data": data.name, "n": X.shape[0], "d": X.shape[1], "seed": seed}
            record.add("sparse", case, method, choice, **figures)
        record.write()
        settings.say(f"sparse: seed {seed} done")


def _peak(method: Callable[[], Any]) -> int:
    """Largest memory that Python and NumPy held beyond what they held before."""
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


SUITES: dict[str, Callable[[Record, Settings], None]] = {
    "svr": svr,
    "groups": groups,
    "features": features,
    "classification": classification,
    "sparse": sparse,
}
