"""What users of scikit-learn do today, on the same rows, folds and steps: grid, random search, Optuna."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from foldwise.cli.app import InputError
from foldwise.cli.models import folds

if TYPE_CHECKING:
    from foldwise.cli.data import Rows

__all__ = ["RIVALS", "run_grid", "run_optuna", "run_random"]

Range = tuple[float, float, bool, int]
"""``(low, high, log, points)`` of a hyper-parameter."""


def _machine(data: Rows, family: str, loss: str | None, seed: int) -> tuple[Any, str, dict[str, Range]]:
    """scikit-learn's estimator behind the same steps, its loss, and the range of every hyper-parameter."""
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR

    regression = data.task == "regression"
    spread = float(data.train[1].std()) if regression else 1.0
    tube = {"epsilon": (0.0, spread, False, 6)}
    if family == "box" and loss is None:
        loss = "epsilon_insensitive" if regression else "hinge"
    if family not in ("linear", "box"):
        width = data.train[0].shape[1]
        last: Any = SVR() if regression else SVC()
        name = "epsilon_insensitive" if regression else "hinge"
        ranges: dict[str, Range] = {
            "C": (1e-2, 1e4, True, 7),
            "gamma": (1e-3 / width, 1e2 / width, True, 7),
        }
    elif regression:
        name = loss if loss == "epsilon_insensitive" else "squared_epsilon_insensitive"
        last = LinearSVR(loss=name, dual="auto", random_state=seed)
        ranges = {"C": (1e-4, 1e3, True, 8), **tube}
    else:
        name = loss if loss == "hinge" else "squared_hinge"
        last = LinearSVC(loss=name, dual="auto", random_state=seed)
        ranges = {"C": (1e-4, 1e2, True, 13)}
    steps = make_pipeline(clone(data.before), last)
    prefix = steps.steps[-1][0]
    return steps, name, {f"{prefix}__{key}": value for key, value in ranges.items()}


def _timed(data: Rows, run: Callable[[], Any], rows: dict[str, Any]) -> dict[str, Any]:
    """Run a search that has ``best_params_``, ``best_score_`` and ``predict``; what the table says of it."""
    from sklearn.exceptions import ConvergenceWarning

    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search = run()
    seconds = time.perf_counter() - began
    return {
        **rows,
        "params": {name.rsplit("__", 1)[-1]: float(value) for name, value in search.best_params_.items()},
        "cv_error": data.error(float(search.best_score_)),
        "test_error": data.test_error(search),
        "seconds": seconds,
        "n_unconverged": sum(issubclass(w.category, ConvergenceWarning) for w in caught),
    }


def run_grid(
    data: Rows, family: str, loss: str | None, cv: int, seed: int, trials: int = 50
) -> dict[str, Any]:
    """scikit-learn's GridSearchCV on the usual values; ``trials`` is not used."""
    import numpy as np
    from sklearn.model_selection import GridSearchCV

    steps, own_loss, ranges = _machine(data, family, loss, seed)
    grid = {
        name: np.geomspace(low, high, points) if log else np.linspace(low, high, points)
        for name, (low, high, log, points) in ranges.items()
    }
    points = int(np.prod([len(values) for values in grid.values()]))
    search = GridSearchCV(steps, grid, cv=folds(data.task, cv, seed), scoring=data.scoring)
    facts = {
        "name": f"GridSearchCV, {points} points",
        "model": _called(steps),
        "loss": own_loss,
        "n_points": points,
    }
    return _timed(data, lambda: search.fit(*data.train), facts)


def run_random(
    data: Rows, family: str, loss: str | None, cv: int, seed: int, trials: int = 50
) -> dict[str, Any]:
    """scikit-learn's RandomizedSearchCV."""
    from scipy.stats import loguniform, uniform
    from sklearn.model_selection import RandomizedSearchCV

    steps, own_loss, ranges = _machine(data, family, loss, seed)
    draws = {
        name: loguniform(low, high) if log else uniform(low, high - low)
        for name, (low, high, log, _) in ranges.items()
    }
    search = RandomizedSearchCV(
        steps,
        draws,
        n_iter=trials,
        cv=folds(data.task, cv, seed),
        scoring=data.scoring,
        random_state=seed,
    )
    facts = {"name": "RandomizedSearchCV", "model": _called(steps), "loss": own_loss, "n_points": trials}
    return _timed(data, lambda: search.fit(*data.train), facts)


def run_optuna(
    data: Rows, family: str, loss: str | None, cv: int, seed: int, trials: int = 50
) -> dict[str, Any]:
    """Optuna's default sampler on the cross-validation score."""
    try:
        import optuna
    except ImportError:
        raise InputError("optuna is not installed.", "pip install 'foldwise[bench]'") from None
    steps, own_loss, ranges = _machine(data, family, loss, seed)
    search = _OptunaSearch(optuna, steps, ranges, folds(data.task, cv, seed), data.scoring, trials, seed)
    facts = {"name": "Optuna", "model": _called(steps), "loss": own_loss, "n_points": trials}
    return _timed(data, lambda: search.fit(*data.train), facts)


class _OptunaSearch:
    """As much of a search's interface as the table needs."""

    def __init__(
        self, optuna: Any, steps: Any, ranges: dict[str, Range], cv: Any, scoring: str, trials: int, seed: int
    ) -> None:
        self.optuna, self.steps, self.ranges = optuna, steps, ranges
        self.cv, self.scoring, self.trials, self.seed = cv, scoring, trials, seed

    def fit(self, X: Any, y: Any) -> _OptunaSearch:
        """Run the trials, then fit with the best values."""
        from sklearn.base import clone
        from sklearn.model_selection import cross_val_score

        def objective(trial: Any) -> float:
            values = {
                name: trial.suggest_float(name, low, high, log=log)
                for name, (low, high, log, _) in self.ranges.items()
            }
            model = clone(self.steps).set_params(**values)
            return float(cross_val_score(model, X, y, cv=self.cv, scoring=self.scoring).mean())

        self.optuna.logging.set_verbosity(self.optuna.logging.WARNING)
        sampler = self.optuna.samplers.TPESampler(seed=self.seed)
        study = self.optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, n_trials=self.trials)
        self.best_params_, self.best_score_ = study.best_params, study.best_value
        self.best_estimator_ = clone(self.steps).set_params(**self.best_params_).fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """Predictions with the best values."""
        return self.best_estimator_.predict(X)


def _called(steps: Any) -> str:
    return type(steps.steps[-1][1]).__name__


RIVALS = {"grid": run_grid, "random": run_random, "optuna": run_optuna}
