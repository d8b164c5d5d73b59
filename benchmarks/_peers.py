"""The methods compared: ours, the same inner solver on a grid or under Optuna, and what others offer.

Every function selects hyper-parameters on the given folds, refits on all rows and returns a ``Choice``.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

import numpy as np
from _measure import Choice
from scipy.stats import loguniform, uniform
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_score

from foldwise import BilevelSearchCV
from foldwise.bilevel import Bilevel
from foldwise.estimators.adapters import describe

__all__ = [
    "cross_validation",
    "estimate_grid_search",
    "grid_search",
    "have",
    "judge",
    "liblinear_search",
    "optuna_on_program",
    "optuna_search",
    "ours",
    "own_grid",
    "program",
    "random_search",
]


def have(module: str) -> bool:
    """Whether an optional package is installed; it is imported here, so that no timing includes the import."""
    try:
        import_module(module)
    except ImportError:
        return False
    return True


# Ours


def program(search: BilevelSearchCV, X, y, sample_groups=None) -> Bilevel:
    """The bilevel program that ``search.fit`` would solve: its ``evaluate`` is the common judge.

    It takes the search's own steps up to the optimizer, so judge and search cannot disagree.
    """
    return clone(search)._prepare(X, y, sample_groups=sample_groups).bilevel


def judge(bilevel: Bilevel, params: Mapping[str, Any]) -> float | None:
    """The exact cross-validation objective at these values.

    From a cold start; where the training problems do not converge from there, along a path on which the strength
    of regularisation falls. A value without convergence is no judgement: then it is None, with a warning.
    """
    theta = bilevel.space.theta({name.split("__")[-1]: value for name, value in params.items()})
    evaluation = bilevel.evaluate(theta)
    if not evaluation.converged:
        evaluation = None
        for shift in np.linspace(-8.0, 0.0, 9):
            on_path = np.where(_strengths(bilevel), theta + shift, theta)
            evaluation = bilevel.evaluate(on_path, warm=evaluation)
    if not evaluation.converged:
        warnings.warn(f"no judgement at {dict(params)}: the training problems did not converge", stacklevel=2)
        return None
    return evaluation.objective


def _strengths(bilevel: Bilevel) -> np.ndarray:
    """Which entries of ``theta`` are logarithms of a C."""
    out = np.zeros(bilevel.space.size, dtype=bool)
    out[bilevel.space.slices.get("C", slice(0, 0))] = True
    return out


def ours(search: BilevelSearchCV, X, y, **fit_params) -> Choice:
    """The whole selection and the refit."""
    search = clone(search).fit(X, y, **fit_params)
    result = search.result_
    extra = {
        "status": str(result.status.value),
        "at_bound": result.at_bound,
        "inner_steps": result.n_inner_steps,
        "refit_seconds": search.refit_time_,
    }
    choice = _from_sklearn(search, result.n_evaluations)
    choice.extra = extra
    return choice


def own_grid(search: BilevelSearchCV, grid: Mapping[str, np.ndarray], X, y) -> Choice:
    """The grid of the others on our own inner solver, warm-started from point to point."""
    return ours(clone(search).set_params(method="grid", method_options={"values": dict(grid)}), X, y)


def optuna_on_program(search: BilevelSearchCV, X, y, sample_groups, trials: int, seed: int) -> Choice:
    """Optuna's TPE on our own inner solver, each trial warm-started from the one before; our refit.

    ``inner_seconds`` in ``extra`` is the part spent in the inner solver, the rest is the sampler's;
    ``slowest_trial`` is the longest single evaluation.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    bilevel = program(search, X, y, sample_groups)
    space, warm, inner = bilevel.space, None, []

    def objective(trial) -> float:
        nonlocal warm
        bounds = zip(space.names, space.lower, space.upper)
        theta = np.array([trial.suggest_float(name, low, high) for name, low, high in bounds])
        began = time.process_time()
        warm = bilevel.evaluate(theta, warm=warm)
        inner.append(time.process_time() - began)
        return warm.objective

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    params = space.params(np.array([study.best_params[name] for name in space.names]))
    tunable = describe(search.estimator)
    n = X.shape[0]
    train = np.mean([len(rows) for rows, _ in search.cv.split(X, y)])
    model = clone(search.estimator).set_params(**tunable.rescaled(params, n / train))
    model.fit(X, y, sample_groups=sample_groups)
    extra = {"inner_seconds": sum(inner), "slowest_trial": max(inner)}
    return Choice(params, model, study.best_value, evaluations=trials, extra=extra)


# scikit-learn


def cross_validation(estimator, params: Mapping[str, Any], X, y, cv, scoring) -> Choice:
    """One ``cross_val_score``: the unit in which selection is counted."""
    scores = cross_val_score(clone(estimator).set_params(**params), X, y, cv=cv, scoring=scoring)
    return Choice(dict(params), own_objective=-scores.mean(), evaluations=1)


def grid_search(estimator, grid: Mapping[str, np.ndarray], X, y, cv, scoring) -> Choice:
    """scikit-learn's ``GridSearchCV`` with refit."""
    search = GridSearchCV(estimator, dict(grid), cv=cv, scoring=scoring).fit(X, y)
    return _from_sklearn(search, int(np.prod([len(values) for values in grid.values()])))


def estimate_grid_search(estimator, grid: Mapping[str, np.ndarray], X, y, cv, scoring) -> Choice:
    """The time of ``GridSearchCV`` from some of its points: every value of C once, the other values in turn.

    A fit's time depends on C most of all, so each timing counts for all points with that C. The refit is one fit
    with the middle C. Nothing is selected.
    """
    (first, values), *others = grid.items()
    weight = float(np.prod([len(axis) for _, axis in others]))
    total = 0.0
    for i, value in enumerate(values):
        params = {first: value, **{name: axis[i % len(axis)] for name, axis in others}}
        began = time.process_time()
        cross_validation(estimator, params, X, y, cv, scoring)
        total += weight * (time.process_time() - began)
    began = time.process_time()
    clone(estimator).set_params(**{first: values[len(values) // 2]}).fit(X, y)
    total += time.process_time() - began
    points = int(weight) * len(values)
    return Choice({}, seconds=[total], note=f"time estimated from {len(values)} of {points} points")


def random_search(estimator, bounds, X, y, cv, scoring, n_iter: int, seed: int) -> Choice:
    """scikit-learn's ``RandomizedSearchCV`` with refit; ``bounds`` maps names to (low, high, "log" or "lin")."""
    distributions = {
        name: loguniform(low, high) if scale == "log" else uniform(low, high - low)
        for name, (low, high, scale) in bounds.items()
    }
    search = RandomizedSearchCV(
        estimator, distributions, n_iter=n_iter, cv=cv, scoring=scoring, random_state=seed
    )
    return _from_sklearn(search.fit(X, y), n_iter)


def optuna_search(estimator, bounds, X, y, cv, scoring, trials: int, seed: int) -> Choice:
    """Optuna's TPE around scikit-learn's ``cross_val_score``, then a refit."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial) -> float:
        params = {
            name: trial.suggest_float(name, low, high, log=scale == "log")
            for name, (low, high, scale) in bounds.items()
        }
        return cross_validation(estimator, params, X, y, cv, scoring).own_objective

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=trials)
    model = clone(estimator).set_params(**study.best_params).fit(X, y)
    return Choice(study.best_params, model, study.best_value, evaluations=trials)


def _from_sklearn(search, evaluations: int) -> Choice:
    return Choice(search.best_params_, search.best_estimator_, -search.best_score_, evaluations=evaluations)


# LIBLINEAR


class _Plane:
    """A LIBLINEAR model as an object with ``predict``."""

    def __init__(self, model, transform: Callable) -> None:
        weights, bias = model.get_decfun()
        self.w, self.b, self.transform = np.asarray(weights), float(bias), transform
        self.positive, self.negative = model.get_labels()[:2]

    def predict(self, X):
        """Labels of the rows of X."""
        return np.where(self.transform(X) @ self.w + self.b > 0, self.positive, self.negative)


def liblinear_search(loss: str, X, y, n_splits: int, transform: Callable) -> Choice:
    """LIBLINEAR's own search for C (option ``-C``), then training at its answer.

    It draws its own folds, begins at a C of its own and doubles it, each training warm-started, until the model
    no longer changes; it counts wrong labels. The data are transformed before the folds are drawn.
    """
    from liblinear.liblinear import problem
    from liblinear.liblinearutil import train

    solver = {"squared_hinge": 2, "logistic": 0}[loss]
    began = time.process_time()
    prob = problem(np.asarray(y, float), transform(X), bias=1)
    converting = time.process_time() - began
    with redirect_stdout(StringIO()):  # -q does not silence the search's summary
        best_C, _, accuracy = train(prob, f"-s {solver} -C -v {n_splits} -B 1 -q")
    model = train(prob, f"-s {solver} -c {best_C} -B 1 -q")
    return Choice(
        {"C": best_C},
        _Plane(model, transform),
        1.0 - accuracy,
        note="own folds",
        extra={"converting_seconds": converting},
    )
