"""The suites of kernel machines: which data, which grids, which methods. Each adds measurements to a ``Record``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _kernel_sets import Split, moons, named_set, regression_set, split, synthetic
from _measure import Choice, Record, rounds
from _peers import cross_validation, grid_search, have, ours
from _suites import CROSS_VALIDATION, OURS, T
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401  (makes the next import possible)
from sklearn.model_selection import HalvingGridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from foldwise import RBF, BilevelSearchCV, KernelSVC, KernelSVR, Lin, Log, Sum
from foldwise.estimators.adapters import describe
from foldwise.models.kernel import KernelModel

__all__ = ["DROP_IN", "DROP_IN_TUBE", "EXACT", "SUITES", "Settings"]

DROP_IN = "foldwise, scikit-learn's machine"
DROP_IN_TUBE = "foldwise, scikit-learn's machine, epsilon too"
EXACT = "foldwise, no landmarks"
MSE = "neg_mean_squared_error"
LARGE = 5000
"""From this many rows on only ours is run, and a part of the grid timed, unless everything is asked for."""


@dataclass(frozen=True)
class Settings:
    """What the command line chose.

    Attributes
    ----------
    splits : random splits (or seeds of synthetic data) per set
    trials : Optuna trials for two hyper-parameters
    patience : seconds that one peer may take on one split; a slower one is timed on a part of its work
    full : run everything whole, however long it takes
    sets : names of sets to which the suite ``pair`` is limited; empty for all
    data : folder of the larger real sets, or None
    say : prints a line of progress
    """

    splits: int
    trials: int
    patience: float
    full: bool
    sets: tuple[str, ...]
    data: Path | None
    say: Callable[[str], None]

    def wants(self, name: str) -> bool:
        """Whether this set was asked for."""
        return not self.sets or name in self.sets

    @property
    def limit(self) -> float:
        """Seconds that a peer may take."""
        return np.inf if self.full else self.patience


def on_cpu(method: Callable[[], Choice]) -> Callable[[], Choice]:
    """The method with its time taken as the processor time of this one-threaded process.

    On an idle machine that is the wall time; on a shared one it does not count the waiting.
    """

    def run() -> Choice:
        began = time.process_time()
        choice = method()
        if not choice.seconds:
            choice.seconds = [time.process_time() - began]
        return choice

    return run


def alternate(fast: Mapping[str, Callable], slow: Mapping[str, Callable], repeats: int, turn: int):
    """``rounds`` on the processor's clock."""
    return rounds(
        {name: on_cpu(method) for name, method in fast.items()},
        {name: on_cpu(method) for name, method in slow.items()},
        repeats,
        turn,
    )


# Peers of kernel machines


def grid(prefix: str, points: int, d: int) -> dict[str, np.ndarray]:
    """``C`` from 1e-2 to 1e4 and ``gamma`` from 1e-4 / d to 1e2 / d, evenly spaced on a log scale.

    On standardised columns these are the bounds within which foldwise searches by default.
    """
    return {
        f"{prefix}C": np.logspace(-2.0, 4.0, points),
        f"{prefix}gamma": np.logspace(-4.0, 2.0, points) / d,
    }


def patient_grid_search(estimator, values: Mapping[str, np.ndarray], X, y, cv, scoring, limit) -> Choice:
    """``GridSearchCV``, or its time from two points in each row and column when it would take too long.

    Two Latin patterns of the grid are timed first (their time is not charged to a search that is then run whole). The
    estimate is rough: with large C a few points may take most of the time.
    """
    axes, names = list(values.values()), list(values)
    side = len(axes[0])
    pattern = sorted(
        {(i, (step * i + shift) % side) for step, shift in ((3, 1), (5, 2)) for i in range(side)}
    )
    np.random.default_rng(0).shuffle(pattern)
    folds = list(cv.split(X, y))
    few = folds[:1] if len(y) >= LARGE else folds
    done, elapsed, began = 0, 0.0, time.process_time()
    while done < len(pattern) and elapsed < limit:
        point = {name: axis[k] for name, axis, k in zip(names, axes, pattern[done])}
        cross_validation(estimator, point, X, y, few, scoring)
        done, elapsed = done + 1, time.process_time() - began
    total = elapsed * len(folds) / len(few) / done * side**2
    if total > limit:
        what = "one fold of " if len(few) < len(folds) else ""
        note = f"time estimated from {what}{done} of {side**2} points; rough"
        return Choice({}, seconds=[total], note=note)
    began = time.process_time()
    choice = grid_search(estimator, values, X, y, cv, scoring)
    choice.seconds = [time.process_time() - began]
    return choice


def halving_search(estimator, values: Mapping[str, np.ndarray], X, y, cv, scoring, seed: int) -> Choice:
    """scikit-learn's ``HalvingGridSearchCV``: most points see few rows only."""
    search = HalvingGridSearchCV(estimator, dict(values), cv=cv, scoring=scoring, random_state=seed).fit(X, y)
    return Choice(
        search.best_params_,
        search.best_estimator_,
        -search.best_score_,
        evaluations=len(search.cv_results_["params"]),
    )


def patient_optuna(estimator, values: Mapping[str, np.ndarray], X, y, cv, scoring, trials, seed, limit):
    """Optuna's TPE within the grid's bounds; stopped after ``limit`` seconds, its time is scaled to all trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial) -> float:
        params = {n: trial.suggest_float(n, axis[0], axis[-1], log=True) for n, axis in values.items()}
        return cross_validation(estimator, params, X, y, cv, scoring).own_objective

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    began = time.process_time()
    study.optimize(objective, n_trials=trials, timeout=None if np.isinf(limit) else limit)
    elapsed, done = time.process_time() - began, len(study.trials)
    began = time.process_time()
    model = clone(estimator).set_params(**study.best_params).fit(X, y)
    choice = Choice(study.best_params, model, study.best_value, evaluations=done)
    choice.seconds = [elapsed * trials / done + time.process_time() - began]
    if done < trials:
        choice.note = f"time scaled from {done} to {trials} trials"
    return choice


def optuna_on_inner(search: BilevelSearchCV, X, y, trials: int, run: int, seed: int) -> Choice:
    """Optuna's TPE on our own inner problems, each trial started from the one before; scaled from ``run`` trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    bilevel = _program(search, X, y)
    space, warm = bilevel.space, None

    def objective(trial) -> float:
        nonlocal warm
        bounds = zip(space.names, space.lower, space.upper)
        warm = bilevel.evaluate(np.array([trial.suggest_float(*bound) for bound in bounds]), warm=warm)
        return warm.objective

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    began = time.process_time()
    study.optimize(objective, n_trials=run)
    elapsed = time.process_time() - began
    params = space.params(np.array([study.best_params[name] for name in space.names]))
    began = time.process_time()
    model = describe(search.estimator).configure(clone(search.estimator), params, np.unique(y)).fit(X, y)
    choice = Choice(params, model, study.best_value, evaluations=run)
    choice.seconds = [elapsed * trials / run + time.process_time() - began]
    if run < trials:
        choice.note = f"{run} trials were run; the time is scaled to {trials}, the choice is that of {run}"
    return choice


def _program(search: BilevelSearchCV, X, y):
    """The bilevel program that ``search.fit`` would solve, with exact kernel matrices."""
    return clone(search).set_params(low_rank=False)._prepare(X, y).bilevel


def _at(search: BilevelSearchCV, params: Mapping[str, Any], X, y, criterion: str) -> float | None:
    """The exact cross-validation criterion at these values, as a grid of one point."""
    if not params:
        return None
    prefix = describe(search.estimator).prefix
    one = clone(search).set_params(
        space={name: Log(value / 2, 2 * value) if value else Lin(0, 1) for name, value in params.items()},
        method="grid",
        method_options={"values": {name.removeprefix(prefix): [value] for name, value in params.items()}},
        criterion=criterion,
        refit=False,
        low_rank=False,
    )
    return -one.fit(X, y).best_score_


# Two hyper-parameters


def pair(record: Record, settings: Settings) -> None:
    """(C, gamma) of an RBF machine, five folds."""
    if not have("optuna"):
        settings.say("pair: Optuna is not installed (pip install optuna); left out")
    for seed in range(settings.splits):
        for data in _pair_sets(settings, seed):
            _classify(record, data, settings, seed)
            settings.say(f"pair: {data.name}, split {seed} done")
    for seed in range(settings.splits):
        for name in ("diabetes", "qsar_fish_toxicity"):
            if settings.wants(name):
                for data in regression_set(name, seed, settings.data, settings.say):
                    _regress(record, data, settings, seed)
                    settings.say(f"pair: {data.name}, split {seed} done")


def _pair_sets(settings: Settings, seed: int) -> Iterator[Split]:
    for name in ("breast cancer", "fourclass", "digits 8", "letter I-J", "letter O-Q"):
        if settings.wants(name):
            found = named_set(name, settings.data, settings.say)
            if found is not None:
                yield split(name, *found, seed)
    if settings.wants("synthetic 10"):
        yield synthetic(1000, 10, seed)
    for n in (1000, 2000, 5000):
        if settings.wants(f"moons {n}") and (n < LARGE or seed == 0):
            yield moons(n, seed)


def _slow(peer, prefix: str, X, y, cv, scoring, settings: Settings, seed: int) -> dict[str, Callable]:
    """GridSearchCV twice, halving and Optuna."""
    d, limit = X.shape[1], settings.limit
    common = (X, y, cv, scoring)
    out: dict[str, Callable[[], Choice]] = {
        f"GridSearchCV {points}x{points}": partial(
            patient_grid_search, peer, grid(prefix, points, d), *common, limit
        )
        for points in (7, 11)
    }
    if len(y) < LARGE or settings.full:
        out["HalvingGridSearchCV 11x11"] = partial(halving_search, peer, grid(prefix, 11, d), *common, seed)
        if have("optuna"):
            out[f"Optuna TPE {settings.trials}"] = partial(
                patient_optuna, peer, grid(prefix, 7, d), *common, settings.trials, seed, limit
            )
    return out


def _classify(record: Record, data: Split, settings: Settings, seed: int) -> None:
    X, y = data.X, data.y
    cv = StratifiedKFold(T, shuffle=True, random_state=seed)
    scaler = StandardScaler().fit(X)
    scaled = scaler.transform(X)
    peer = make_pipeline(StandardScaler(), SVC())
    own = BilevelSearchCV(KernelSVC(), cv=cv)
    drop_in = BilevelSearchCV(peer, cv=cv)
    answer: dict[str, Any] = {}

    def solve() -> Choice:
        choice = ours(own, scaled, y)
        answer.update({f"svc__{name.split('__')[-1]}": value for name, value in choice.params.items()})
        return choice

    fast = {
        OURS: solve,
        DROP_IN: partial(ours, drop_in, X, y),
        CROSS_VALIDATION: partial(cross_validation, peer, answer, X, y, cv, "accuracy"),
    }
    large = len(y) >= LARGE and not settings.full
    if large:
        del fast[DROP_IN]
    elif len(y) >= KernelModel.landmark_rule.least_rows:
        fast[EXACT] = partial(ours, BilevelSearchCV(KernelSVC(), cv=cv, low_rank=False), scaled, y)
    slow = _slow(peer, "svc__", X, y, cv, "accuracy", settings, seed)
    choices = alternate(fast, slow, 5 if len(y) <= 1500 else 3, seed)
    for method, choice in choices.items():
        mine = method in (OURS, EXACT)
        search, rows = (own, scaled) if mine else (drop_in, X)
        test = scaler.transform(data.X_test) if mine else data.X_test
        error = None if choice.model is None else float(np.mean(choice.model.predict(test) != data.y_test))
        record.add(
            "pair",
            {"data": data.name, "n": len(y), "d": X.shape[1], "seed": seed},
            method,
            choice,
            objective=choice.own_objective if large else _at(search, choice.params, rows, y, "auto"),
            cv_error=None if large else _at(search, choice.params, rows, y, "misclassification"),
            test_error=error,
        )
    record.write()


def _regress(record: Record, data: Split, settings: Settings, seed: int) -> None:
    X, y = data.X, data.y
    cv = KFold(T, shuffle=True, random_state=seed)
    scaler = StandardScaler().fit(X)
    scaled = scaler.transform(X)
    peer = make_pipeline(StandardScaler(), SVR())
    own = BilevelSearchCV(KernelSVR(), {"C": None, "kernel__gamma": None}, cv=cv)
    drop_in = BilevelSearchCV(peer, {"svr__C": None, "svr__gamma": None}, cv=cv)
    tube = BilevelSearchCV(peer, cv=cv)
    answer: dict[str, Any] = {}

    def solve() -> Choice:
        choice = ours(drop_in, X, y)
        answer.update(choice.params)
        return choice

    fast = {
        DROP_IN: solve,
        DROP_IN_TUBE: partial(ours, tube, X, y),
        OURS: partial(ours, own, scaled, y),
        CROSS_VALIDATION: partial(cross_validation, peer, answer, X, y, cv, MSE),
    }
    slow = _slow(peer, "svr__", X, y, cv, MSE, settings, seed)
    choices = alternate(fast, slow, 3, seed)
    for method, choice in choices.items():
        search, rows = (own, scaled) if method == OURS else (drop_in, X)
        test = scaler.transform(data.X_test) if method == OURS else data.X_test
        error = (
            None if choice.model is None else float(np.mean((choice.model.predict(test) - data.y_test) ** 2))
        )
        record.add(
            "pair",
            {"data": data.name, "n": len(y), "d": X.shape[1], "seed": seed},
            method,
            choice,
            objective=_at(search, choice.params, rows, y, "auto"),
            cv_error=None,
            test_error=error,
        )
    record.write()


# Many hyper-parameters


def ard(record: Record, settings: Settings) -> None:
    """C and one width per feature against Optuna on the same inner problem, and against one width for all."""
    trials = 200
    run = trials if settings.full else 40
    if not settings.full:
        settings.say("ard: the time of 40 Optuna trials is scaled to 200; --full runs them all")
    for seed in range(settings.splits):
        for name in ("breast cancer", "digits 8"):
            data = split(name, *named_set(name, settings.data, settings.say), seed)
            scaler = StandardScaler().fit(data.X)
            X, y = scaler.transform(data.X), data.y
            cv = StratifiedKFold(T, shuffle=True, random_state=seed)
            many = BilevelSearchCV(KernelSVC(RBF(ard=True)), cv=cv, confirm=False)
            one = BilevelSearchCV(KernelSVC(), cv=cv)
            fast = {OURS: partial(ours, many, X, y), "foldwise, one width": partial(ours, one, X, y)}
            slow = {}
            if have("optuna"):
                slow[f"Optuna TPE {trials}, our solver"] = partial(
                    optuna_on_inner, many, X, y, trials, run, seed
                )
            choices = alternate(fast, slow, 3, seed)
            _add_accuracy(
                record, "ard", name, choices, X, y, scaler.transform(data.X_test), data.y_test, seed
            )
            settings.say(f"ard: {name}, split {seed} done")


def mkl(record: Record, settings: Settings) -> None:
    """Weights and widths of a sum of RBF kernels on groups of columns against equal weights.

    "equal weights" tunes C and every width; "equal weights, one C" tunes C alone, widths at ``1 / (d_p var)``.
    """
    if not have("himalaya"):
        settings.say("mkl: himalaya's kernel ridge is not available (pip install himalaya); left out")
    for seed in range(settings.splits):
        for data, groups in _grouped(settings, seed):
            scaler = StandardScaler().fit(data.X)
            X, y, X_test = scaler.transform(data.X), data.y, scaler.transform(data.X_test)
            cv = StratifiedKFold(T, shuffle=True, random_state=seed)
            kernel = Sum([RBF(1.0 / len(columns)) for columns in groups], columns=groups)
            widths = dict.fromkeys(
                name for name in (f"kernel__{n}" for n in kernel.names()) if "gamma" in name
            )
            fast = {
                OURS: partial(ours, BilevelSearchCV(KernelSVC(kernel), cv=cv), X, y),
                "equal weights": partial(
                    ours, BilevelSearchCV(KernelSVC(kernel), {"C": None, **widths}, cv=cv), X, y
                ),
                "equal weights, one C": partial(
                    ours, BilevelSearchCV(KernelSVC(kernel), {"C": None}, cv=cv), X, y
                ),
                "one RBF on all columns": partial(ours, BilevelSearchCV(KernelSVC(), cv=cv), X, y),
            }
            if have("himalaya"):
                fast["himalaya, kernel ridge"] = partial(_himalaya, groups, X, y, cv, seed)
            choices = alternate(fast, {}, 2, seed)
            _add_accuracy(record, "mkl", data.name, choices, X, y, X_test, data.y_test, seed)
            settings.say(f"mkl: {data.name}, split {seed} done")


def _grouped(settings: Settings, seed: int) -> Iterator[tuple[Split, list[list[int]]]]:
    """Sets whose columns fall into groups."""
    breast = split("breast cancer", *named_set("breast cancer", None, settings.say), seed)
    yield breast, [list(range(k, k + 10)) for k in (0, 10, 20)]  # means, standard errors, worst
    noisy = synthetic(400, 10, seed)
    rng = np.random.default_rng(seed)
    junk = [rng.standard_normal((len(part), 30)) for part in (noisy.X, noisy.X_test)]
    X, X_test = np.hstack([noisy.X, junk[0]]), np.hstack([noisy.X_test, junk[1]])
    groups = [list(range(k, k + 10)) for k in (0, 10, 20, 30)]
    yield Split("synthetic 10 + 30 of noise", X, noisy.y, X_test, noisy.y_test), groups


class _Signs:
    """Predictions of a himalaya model on a sum of group kernels, as labels."""

    def __init__(self, model, kernels: Callable, X) -> None:
        self.model, self.kernels, self.X = model, kernels, X

    def predict(self, X):
        """Labels of the rows of X."""
        return np.where(np.asarray(self.model.predict(self.kernels(X, self.X)))[:, 0] > 0, 1.0, -1.0)


def _himalaya(groups: list[list[int]], X, y, cv, seed: int) -> Choice:
    """himalaya's multiple-kernel ridge regression on the labels, by its gradient method; widths are fixed."""
    from himalaya.kernel_ridge import MultipleKernelRidgeCV

    def kernels(A, B):
        return np.stack([RBF(1.0 / len(c))(A[:, c], B[:, c]) for c in groups])

    model = MultipleKernelRidgeCV(
        kernels="precomputed", solver="hyper_gradient", cv=list(cv.split(X, y)), random_state=seed
    ).fit(kernels(X, X), y[:, None])
    weights = np.exp(np.asarray(model.deltas_))[:, 0]
    return Choice({"weights": weights}, _Signs(model, kernels, X), note="squared loss, no intercept")


def _add_accuracy(record: Record, suite: str, name: str, choices, X, y, X_test, y_test, seed: int) -> None:
    """Keep every choice with its own CV criterion (without a penalty on widths) and its test error."""
    for method, choice in choices.items():
        record.add(
            suite,
            {"data": name, "n": len(y), "d": X.shape[1], "seed": seed},
            method,
            choice,
            objective=choice.own_objective,
            test_error=float(np.mean(choice.model.predict(X_test) != y_test)),
        )
    record.write()


SUITES: dict[str, Callable[[Record, Settings], None]] = {"pair": pair, "ard": ard, "mkl": mkl}
