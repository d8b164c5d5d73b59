"""A referee of whole searches that shares nothing with our solvers.

It refits the plain estimator fold by fold, values the criterion by its own formulas, takes differences, and compares
with what the search reports. What it cannot judge it leaves, with a reason.
"""

from __future__ import annotations

import linecache
import pickle
import re
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline

from foldwise.result import Result, Status

__all__ = ["CrossValidation", "Verdict", "criterion_values", "judge"]

WORDS = 8
"""A refusal has at least this many words."""
SMOOTH_TOL, EXACT_TOL = 1e-6, 1e-3
"""Relative agreement of the objective: machines solved to rounding, and those with the hinge or the tube itself."""
SOLVED = {False: 1e-6, True: 1e-3}
"""KKT residual up to which a training problem counts as solved, of smooth and of exact machines."""


@dataclass
class Verdict:
    """What the referee found.

    Attributes
    ----------
    outcome : "checked", "refused" or "failed"
    kind : the check that failed, or the refusal's message with its numbers and names blotted out
    message : what was found, in a sentence
    left : checks that were not made, with the reason
    """

    outcome: str
    kind: str = ""
    message: str = ""
    left: dict[str, str] = field(default_factory=dict)


class Fault(Exception):
    """A check that failed: its kind, and a sentence."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def require(condition: Any, kind: str, message: str) -> None:
    """Raise a Fault unless the condition holds."""
    if not condition:
        raise Fault(kind, message)


# The criterion by its formula, and cross-validation by refitting.


def criterion_values(criterion: Any, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The criterion of decisions ``z`` and targets ``y``, row by row, written down from docs/criteria.md.

    >>> from foldwise.losses import Hinge
    >>> criterion_values(Hinge(), np.array([0.5]), np.array([1.0])).tolist()
    [0.5]
    """
    name, m, r = type(criterion).__name__, y * z, z - y
    s = float(getattr(criterion, "s", 1.0))
    formulas: dict[str, Callable[[], np.ndarray]] = {
        "Squared": lambda: r * r,
        "Absolute": lambda: np.abs(r),
        "Hinge": lambda: np.clip(1 - m, 0, None),
        "SquaredHinge": lambda: np.clip(1 - m, 0, None) ** 2,
        "ModifiedHuber": lambda: np.where(m < -1, -4 * m, np.clip(1 - m, 0, None) ** 2),
        "Logistic": lambda: np.logaddexp(0, -s * m) / s,
        "SmoothMisclassification": lambda: np.exp(-np.logaddexp(0, s * m)),
        "Misclassification": lambda: (np.where(z >= 0, 1, -1) != y).astype(float),
    }
    return formulas[name]()


class CrossValidation:
    """The objective of a search, by refitting the plain estimator fold by fold.

    Parameters
    ----------
    search : BilevelSearchCV
        Fitted: its ``criterion_`` is used, and nothing else that it found.
    X, y, fit_params
        What ``fit`` was given.
    """

    def __init__(self, search: Any, X: Any, y: Any, fit_params: Mapping[str, Any]) -> None:
        self.estimator, self.criterion = search.estimator, search.criterion_
        self.X = X.toarray() if sp.issparse(X) else X
        self.y = np.asarray(y)
        self.fit_params = {k: np.asarray(v) for k, v in fit_params.items() if k != "groups" and v is not None}
        self.classes = np.unique(self.y) if hasattr(search, "classes_") else None
        cv = check_cv(search.cv, y, classifier=self.classes is not None)
        pairs = cv.split(X, y, fit_params.get("groups"))
        self.splits = [tuple(_numbers(side) for side in pair) for pair in pairs]
        self.last = self.estimator.steps[-1][1] if isinstance(self.estimator, Pipeline) else self.estimator
        self.exact = _is_exact(self.last)
        self.criterion_weight = search.criterion_weight
        if self.criterion_weight == "auto":
            tuned = any(name.endswith("class_weight") for name in search.best_params_)
            self.criterion_weight = None if tuned else getattr(self.last, "class_weight", None)
        kernel = getattr(self.last, "kernel", None)
        self.pairwise = kernel == "precomputed" or type(kernel).__name__ == "Precomputed"
        self.unsure = ""

    def value(self, params: Mapping[str, Any], order: np.random.Generator | None = None) -> float:
        """``H`` at these parameters: the mean over folds; ``order`` shuffles the training rows."""
        return float(np.mean(self.by_fold(params, order)))

    def by_fold(self, params: Mapping[str, Any], order: np.random.Generator | None = None) -> np.ndarray:
        """The criterion of every fold, averaged over the machines of a classifier of several classes."""
        return np.array([self._fold(params, train, test, order) for train, test in self.splits])

    def _fold(self, params, train, test, order) -> float:
        train = train if order is None else order.permutation(train)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model, outer = self._fitted(params, train, test)
            z = self._decisions(model, outer)
        if any(issubclass(w.category, ConvergenceWarning) for w in caught):
            self.unsure = "the plain estimator does not converge"
        v = self._weight(test) * self._class_weight(train, test)
        losses = [
            np.average(criterion_values(self.criterion, zk[use], yk[use]), weights=v[use])
            for zk, yk, use in self._machines(z, test)
        ]
        return float(np.mean(losses))

    def _weight(self, rows: np.ndarray) -> np.ndarray:
        weight = self.fit_params.get("sample_weight")
        return np.ones(len(rows)) if weight is None else weight[rows].astype(float)

    def _class_weight(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        """What the validation rows count by their classes; only the ratios matter, since a fold's value is a mean."""
        spec = self.criterion_weight
        if self.classes is None or spec is None:
            return np.ones(len(test))
        if isinstance(spec, dict):
            weights = {label: float(spec.get(label, 1.0)) for label in self.classes.tolist()}
        else:
            by_rows = (
                type(self.last).__name__ == "SVC"
            )  # its "balanced" counts rows, that of the others adds weights
            v = np.ones(len(train)) if by_rows else self._weight(train)
            weights = {label: 1 / v[self.y[train] == label].sum() for label in self.classes.tolist()}
        return np.array([weights[label] for label in self.y[test].tolist()])

    def _fitted(self, params, train, test) -> tuple[Any, Any]:
        """The last step, fitted to the training rows, and the validation rows as it sees them."""
        whole = clone(self.estimator).set_params(**params)
        X, y = self.X, self.y
        inner, outer = _rows(X, train), _rows(X, test)
        if self.pairwise:
            inner, outer = inner[:, train], outer[:, train]
        last = whole
        if isinstance(whole, Pipeline):
            last = whole.steps[-1][1]
            if len(whole.steps) > 1:
                steps = whole[:-1]
                inner = steps.fit_transform(inner, y[train])
                outer = steps.transform(outer)
        given = {name: value[train] for name, value in self.fit_params.items()}
        return _tighten(last).fit(inner, y[train], **given), outer

    def residual(self, params: Mapping[str, Any]) -> float:
        """How far scikit-learn's smooth linear machines are from solving their problems; 0 for other machines.

        The largest entry of the gradient, relative to the sizes of its parts.
        """
        name = type(self.last).__name__
        if not type(self.last).__module__.startswith("sklearn") or name not in SLOPES or self._many():
            return 0.0
        worst = 0.0
        for train, _ in self.splits:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model, X = self._fitted(params, train, train)
            X = np.asarray(X, float)
            y = self.y[train]
            y = y.astype(float) if self.classes is None else np.where(y == self.classes[1], 1.0, -1.0)
            w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0] if model.fit_intercept else 0.0)
            v = self._weight(train)
            if isinstance(getattr(model, "class_weight", None), dict):
                v = v * np.array([model.class_weight.get(label, 1.0) for label in self.y[train].tolist()])
            elif getattr(model, "class_weight", None) is not None:
                return 0.0
            slope = v * SLOPES[name](X @ w + b, y, model)
            strength = 0.5 / model.alpha if name == "Ridge" else model.C
            parts = np.abs(w) + strength * np.abs(slope) @ np.abs(X)
            gap = np.abs(w + strength * slope @ X) / np.maximum(parts, np.finfo(float).tiny)
            worst = max(worst, float(gap.max(initial=0.0)))
            if model.fit_intercept:
                free = name == "Ridge" or (name == "LogisticRegression" and model.solver != "liblinear")
                pull = 0.0 if free else b / model.intercept_scaling**2
                size = abs(pull) + strength * np.abs(slope).sum()
                worst = max(worst, abs(pull + strength * slope.sum()) / max(size, np.finfo(float).tiny))
        return worst

    def _many(self) -> bool:
        return self.classes is not None and len(self.classes) > 2

    def _decisions(self, model, outer) -> np.ndarray:
        if self.classes is None:
            return np.asarray(model.predict(outer), float)
        return np.asarray(model.decision_function(outer), float)

    def _machines(self, z, test):
        """Decisions, targets in {-1, +1} (or numbers) and rows that count, of every machine."""
        everyone = np.ones(len(test), bool)
        if self.classes is None:
            yield z, self.y[test].astype(float), everyone
        elif len(self.classes) == 2:
            yield z, np.where(self.y[test] == self.classes[1], 1.0, -1.0), everyone
        elif z.shape[1] == len(self.classes) and not _is_one_vs_one(self.last):
            for k, label in enumerate(self.classes):
                yield z[:, k], np.where(self.y[test] == label, 1.0, -1.0), everyone
        else:
            for k, (one, other) in enumerate(combinations(self.classes, 2)):
                use = (self.y[test] == one) | (self.y[test] == other)
                yield z[:, k], np.where(self.y[test] == one, 1.0, -1.0), use

    def scale(self) -> float:
        """The objective of a machine that predicts the same everywhere: the unit of differences."""
        if self.classes is not None:
            return 1.0
        y = self.y.astype(float)
        return float(np.mean(criterion_values(self.criterion, np.full(len(y), np.median(y)), y)))


SLOPES: dict[str, Callable[[np.ndarray, np.ndarray, Any], np.ndarray]] = {
    "Ridge": lambda z, y, model: 2 * (z - y),
    "LinearSVR": lambda z, y, model: 2 * np.sign(z - y) * np.clip(np.abs(z - y) - model.epsilon, 0, None),
    "LinearSVC": lambda z, y, model: -2 * y * np.clip(1 - y * z, 0, None),
    "LogisticRegression": lambda z, y, model: -y * np.exp(-np.logaddexp(0, y * z)),
}
"""Derivative of the training loss of scikit-learn's smooth linear machines."""


def _numbers(side: Any) -> np.ndarray:
    side = np.asarray(side)
    return np.flatnonzero(side) if side.dtype == bool else side


def _rows(X: Any, index: np.ndarray) -> Any:
    return X.iloc[index] if hasattr(X, "iloc") else np.asarray(X)[index]


def _is_one_vs_one(machine: Any) -> bool:
    return type(machine).__module__.startswith("sklearn") and type(machine).__name__ == "SVC"


def _is_exact(machine: Any) -> bool:
    """Whether it is trained with the hinge or the tube itself."""
    if type(machine).__name__ in ("SVC", "SVR", "SemiparametricSVR"):
        return True
    return str(getattr(machine, "loss", "")) in ("hinge", "epsilon_insensitive") or getattr(
        getattr(machine, "loss", None), "polyhedral", False
    )


def _tighten(machine: Any) -> Any:
    """The machine with its own solver at its most accurate; the training problem stays as it is."""
    name = type(machine).__name__
    sklearn = type(machine).__module__.startswith("sklearn")
    if name in ("SVC", "SVR"):
        machine.set_params(tol=1e-8, max_iter=1_000_000)
        if name == "SVC":
            machine.set_params(decision_function_shape="ovo")
    elif sklearn and name in ("LinearSVC", "LinearSVR"):
        machine.set_params(tol=1e-11, max_iter=10_000, dual=False)
    elif name == "LogisticRegression":
        solver = machine.solver if machine.solver == "liblinear" else "newton-cholesky"
        machine.set_params(tol=1e-11, max_iter=1_000, solver=solver)
    elif name == "Ridge":
        machine.set_params(solver="svd")
    elif name == "SemiparametricSVR":
        machine.set_params(tol=1e-9)
    elif not sklearn:
        machine.set_params(tol=1e-10, max_iter=200)
    return machine


# The whole judgement.


def judge(drawn: Any, *, again: bool | None = None, slopes: bool = True) -> Verdict:
    """Run a drawn search and check everything that it reports.

    Parameters
    ----------
    drawn : RandomSearch
        Or anything with ``seed``, ``search``, ``X``, ``y`` and ``fit_params``.
    again : bool, optional
        Whether the search is run a second time; by default for every third seed.
    slopes : bool
        Whether its gradient is compared with differences, at a point inside the bounds.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> from foldwise.testing import random_search
    >>> judge(random_search(0)).outcome
    'checked'
    """
    again = drawn.seed % 3 == 0 if again is None else again
    left: dict[str, str] = {}
    try:
        search = _run(drawn)
        _check_numbers(search)
        _check_bounds(search)
        _check_objective(search, drawn, left)
        _check_history(search)
        _check_status(search)
        _check_refit(search, drawn)
        _check_round_trips(search, drawn, left)
        if slopes:
            _check_slopes(search, drawn, left)
        if again:
            _check_again(search, drawn)
    except _Refusal as refusal:
        return Verdict("refused", _blotted(str(refusal)), str(refusal))
    except Fault as fault:
        return Verdict("failed", fault.kind, str(fault), left)
    return Verdict("checked", left=left)


class _Refusal(Exception):
    """The search was refused with a message that says what to do."""


def _run(drawn: Any) -> Any:
    """The fitted search; a Fault for bare errors and for warnings of numerical code."""
    search = clone(drawn.search)
    seen: list[Any] = []
    search.set_params(callbacks=[seen.append])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            search.fit(drawn.X, drawn.y, **drawn.fit_params)
        except Exception as error:
            _check_refusal(error, len(seen))
    for one in caught:
        if issubclass(one.category, RuntimeWarning) and "sklearn" not in one.filename:
            where = re.sub(r".*/(foldwise|site-packages)/", "", one.filename)
            raise Fault(f"RuntimeWarning in {where}", f"{one.message} ({where}:{one.lineno})")
    return search


def _check_refusal(error: Exception, evaluations: int) -> None:
    """Only a ValueError or TypeError that someone wrote for the user is a refusal, and only before any work."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    own = re.sub(r".*/(foldwise|site-packages)/", r"\1/", frame.filename)
    text = f"{type(error).__name__}: {error}"
    where = f"{own}:{frame.lineno}"
    if not isinstance(error, (ValueError, TypeError)):
        raise Fault(f"bare {type(error).__name__}", f"{text} ({where})") from error
    written = linecache.getline(frame.filename, frame.lineno or 0).strip().startswith("raise")
    if not written or not own.startswith(("foldwise/", "site-packages/sklearn")):
        raise Fault(f"bare {type(error).__name__}", f"{text} ({where})") from error
    if len(str(error).split()) < WORDS:
        raise Fault("short refusal", f"{text} ({where})") from error
    if evaluations:
        raise Fault("late refusal", f"after {evaluations} evaluations: {text} ({where})") from error
    raise _Refusal(text) from error


def _blotted(message: str) -> str:
    """The message without its numbers and quoted names, so that equal refusals count together."""
    message = re.sub(r"'[^']*'|\"[^\"]*\"", "'_'", message)
    return re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "0", message)[:300]


def _check_numbers(search: Any) -> None:
    result = search.result_
    numbers = [result.objective, result.objective_start, *result.theta, *result.fold_objectives, *result.kkt]
    require(np.all(np.isfinite(numbers)), "not finite", f"objective {result.objective}, theta {result.theta}")
    require(np.isfinite(search.best_score_), "not finite", f"best_score_ {search.best_score_}")
    norm = result.gradient_norm
    require(norm is None or np.isfinite(norm), "not finite", f"gradient_norm {norm}")
    require(
        result.objective <= result.objective_start + 1e-9 * abs(result.objective_start),
        "worse than the start",
        f"{result.objective!r} after {result.objective_start!r}",
    )


def _check_bounds(search: Any) -> None:
    space, theta = search.space_, np.array(search.result_.theta)
    slack = 1e-12 * (1 + np.abs(theta))
    inside = np.all(theta >= space.lower - slack) and np.all(theta <= space.upper + slack)
    require(inside, "outside the bounds", f"{theta} in [{space.lower}, {space.upper}]")
    given = search.space if isinstance(search.space, Mapping) else {}
    for name, spec in given.items():
        if spec is None or isinstance(spec, str) or name not in search.best_params_:
            continue
        low, high = (spec.lower, spec.upper) if hasattr(spec, "lower") else spec
        value = search.best_params_[name]
        if isinstance(value, dict):
            value = [v / next(iter(value.values())) for v in list(value.values())[1:]]
        value, span = np.asarray(value, float), 1e-9 * np.maximum(np.abs(low), np.abs(high))
        kept = np.all(value >= np.asarray(low) - span) and np.all(value <= np.asarray(high) + span)
        require(kept, "outside the bounds", f"{name} = {value} was to lie in ({low}, {high})")
        tie = getattr(spec, "tie", None)
        if tie is not None:
            equal = all(len(set(value[np.asarray(tie) == label])) == 1 for label in set(tie))
            require(equal, "ties not kept", f"{name} = {value} with tie {list(tie)}")
    _check_constraints(search)


def _check_constraints(search: Any) -> None:
    options = search.method_options or {}
    if options.get("constraints") is not None:
        A, c = (np.asarray(part, float) for part in options["constraints"])
        room = c - A @ np.array(search.result_.theta)
        require(np.all(room >= -1e-7), "constraint not kept", f"A theta - c = {-room}")
    if options.get("n_max") is not None:
        boxes = next(v for name, v in search.best_params_.items() if name.endswith("box"))
        used = int(np.sum(np.asarray(boxes) > 1e-6))
        require(
            used <= options["n_max"], "constraint not kept", f"{used} boxes open, n_max={options['n_max']}"
        )


def _check_objective(search: Any, drawn: Any, left: dict[str, str]) -> None:
    """``best_score_`` and every fold against refits of the plain estimator."""
    result = search.result_
    worst = max(result.kkt, default=0.0)
    by_hand = CrossValidation(search, drawn.X, drawn.y, drawn.fit_params)
    if worst > SOLVED[by_hand.exact]:
        require(
            result.status is not Status.CONVERGED or result.warnings,
            "converged but not solved",
            f"KKT residual {worst:.2g}, no warning",
        )
        left["objective"] = "the search says that training problems are not solved"
        return
    require(
        np.isclose(-search.best_score_, np.mean(result.fold_objectives), rtol=1e-12),
        "best_score_ is not the mean of the folds",
        f"{-search.best_score_!r} against {np.mean(result.fold_objectives)!r}",
    )
    if result.approximation is not None:
        left["objective"] = "kernels seen through landmarks"
        return
    try:
        wanted = by_hand.value(search.best_params_)
    except (ValueError, TypeError, AttributeError) as error:
        raise Fault("the plain estimator refuses", f"at {search.best_params_}: {error}") from error
    got = -search.best_score_
    tol = _tolerance(by_hand, drawn.X)
    unit = max(abs(wanted), (1e-2 if by_hand.exact else 1e-6) * by_hand.scale())
    if abs(got - wanted) <= tol * unit:
        return
    # Is the referee sure of itself? The same rows in another order must give the same number.
    if doubt := _doubt(by_hand, search.best_params_, wanted, abs(got - wanted)):
        left["objective"] = doubt
        return
    raise Fault(
        "wrong objective",
        f"{got:.10g} reported, {wanted:.10g} by refitting (relative {abs(got - wanted) / unit:.2g}) at "
        f"{search.best_params_}",
    )


def _doubt(by_hand: CrossValidation, params: Mapping[str, Any], value: float, gap: float) -> str:
    """Why the referee is not sure of its own value; "" where it is.

    Its machines must converge, give the same number for the same rows in another order, and have a gradient that is
    zero to the accuracy asked for.
    """
    if not by_hand.unsure and by_hand.residual(params) > 1e-2 * gap / max(abs(value), gap):
        by_hand.unsure = "the plain estimator does not converge"
    other = by_hand.value(params, np.random.default_rng(0))
    if not by_hand.unsure and abs(other - value) > 0.2 * gap:
        return "the plain estimator depends on the order of the rows"
    return by_hand.unsure


def _tolerance(by_hand: CrossValidation, X: Any) -> float:
    """Agreement that can be asked for: single precision in X leaves three digits less."""
    single = getattr(X, "dtype", None) == np.float32
    return EXACT_TOL if by_hand.exact or single else SMOOTH_TOL


def _check_history(search: Any) -> None:
    result, table = search.result_, search.cv_results_
    count = len(result.history)
    require(result.n_evaluations == count == len(table["params"]), "counts differ", f"{count} records")
    index = search.best_index_
    require(
        _same(table["params"][index], search.best_params_),
        "best_index_ points elsewhere",
        f"{table['params'][index]} against {search.best_params_}",
    )
    require(
        np.isclose(table["mean_test_score"][index], search.best_score_, rtol=1e-9, atol=1e-300),
        "best_index_ points elsewhere",
        f"{table['mean_test_score'][index]!r} against {search.best_score_!r}",
    )
    constrained = any((search.method_options or {}).get(n) is not None for n in ("constraints", "n_max"))
    widths = any(b.size > 1 and b.name.endswith("gamma") for b in search.space_.blocks)
    if not constrained and not widths and result.approximation is None:
        best = float(np.max(table["mean_test_score"]))
        require(
            search.best_score_ >= best - 1e-9 * abs(best),
            "not the best of its table",
            f"{search.best_score_!r}, and an entry has {best!r}",
        )


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if set(one) != set(other):
        return False
    return all(
        one[k] == other[k] if isinstance(one[k], dict) else np.array_equal(one[k], other[k]) for k in one
    )


def _check_status(search: Any) -> None:
    result = search.result_
    require(result.message and result.method, "no words", "the result has no message or method")
    for name, side in result.at_bound.items():
        require(name in search.space_.names and side in ("lower", "upper"), "at_bound", f"{name}: {side}")


def _check_refit(search: Any, drawn: Any) -> None:
    """The final estimator has the values that it says, and predicts."""
    if not search.refit:
        require(not hasattr(search, "best_estimator_"), "refit=False refits", "best_estimator_ is there")
        return
    whole = search.best_estimator_
    for name, value in search.refit_params_.items():
        got = whole.get_params().get(name)
        same = got == value if isinstance(value, dict) else np.array_equal(got, value)
        require(same, "refit_params_ differ", f"{name}: {got} in the estimator, {value} in refit_params_")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predicted = np.asarray(search.predict(drawn.X))
    require(len(predicted) == len(drawn.y), "predict", f"{len(predicted)} predictions")
    if predicted.dtype.kind == "f":
        require(np.all(np.isfinite(predicted)), "not finite", "predictions on the training rows")
    else:
        require(set(predicted.tolist()) <= set(np.unique(drawn.y).tolist()), "predict", "unknown classes")


def _check_round_trips(search: Any, drawn: Any, left: dict[str, str]) -> None:
    text = search.result_.to_json()
    require(Result.from_json(text).to_json() == text, "round trip", "Result.from_json(to_json()) differs")
    copy = clone(search)
    require(not hasattr(copy, "result_"), "round trip", "a clone keeps the result")
    copy.set_params(**search.get_params(deep=False))
    require(repr(copy) == repr(search), "round trip", "set_params(**get_params()) changes the search")
    try:
        search.callbacks = ()
        back = pickle.loads(pickle.dumps(search))
    except (pickle.PicklingError, AttributeError) as error:
        if "lambda" not in str(error):
            raise Fault("round trip", f"pickle: {error}") from error
        left["pickle"] = "a lambda cannot be pickled"
        return
    require(back.best_score_ == search.best_score_, "round trip", "pickle changes best_score_")
    if search.refit:
        # Not to the bit: KernelRidge takes a short cut where it is given the very array that it was fitted to.
        one, other = back.predict(drawn.X), search.predict(drawn.X)
        equal = np.array_equal(one, other) or (one.dtype.kind == "f" and np.allclose(one, other, rtol=1e-6))
        require(equal, "round trip", "pickle changes predictions")


def _check_again(search: Any, drawn: Any) -> None:
    if not isinstance(search.random_state, int) and search.random_state is not None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        second = clone(drawn.search).fit(drawn.X, drawn.y, **drawn.fit_params)
    if search.random_state is None and (
        search.n_starts or search.method == "random" or len(search.result_.theta) > 2
    ):
        return  # random points without a seed
    one, other = search.result_, second.result_
    require(
        one.theta == other.theta and one.objective == other.objective,
        "another answer the second time",
        f"{one.theta} with {one.objective!r}, then {other.theta} with {other.objective!r}",
    )


# The gradient.

PROBE = 1e-3
"""Difference step: absolute on log scales, relative to the range on linear ones."""


def _check_slopes(search: Any, drawn: Any, left: dict[str, str]) -> None:
    """The norm of the hypergradient at a random inner point, against central differences of refits.

    A search that starts there and is stopped after its first evaluation reports both value and norm. Skipped where
    the two one-sided differences disagree (a kink), and where the referee's own noise is as large as the slope.
    """
    space = search.space_
    if not search.criterion_.differentiable:
        left["gradient"] = "the criterion has none"
        return
    if space.size > 8:
        left["gradient"] = "too many hyper-parameters"
        return
    rng = np.random.default_rng([drawn.seed, 5])
    theta = space.lower + rng.uniform(0.25, 0.75, space.size) * (space.upper - space.lower)
    start = space.params(theta)
    probe = clone(drawn.search).set_params(
        method="lbfgsb",
        method_options={"start": start},
        callbacks=[lambda record: True],
        refit=False,
        n_starts=None,
        max_iter=None,
        tol=None,
        low_rank=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            probe.fit(drawn.X, drawn.y, **drawn.fit_params)
        except Exception as error:
            raise Fault(
                f"bare {type(error).__name__} from a start", f"start {start}: {type(error).__name__}: {error}"
            ) from error
    result, by_hand = probe.result_, CrossValidation(probe, drawn.X, drawn.y, drawn.fit_params)
    if max(result.kkt, default=0.0) > SOLVED[by_hand.exact]:
        left["gradient"] = "the search says that training problems are not solved"
        return
    theta = np.array(result.theta)
    tol = 2e-2 if by_hand.exact else 2e-3
    if getattr(drawn.X, "dtype", None) == np.float32:
        left["gradient"] = "single precision in X"
        return

    def value(at: np.ndarray) -> float:
        return by_hand.value(_named(probe, space.params(at))) + _prior(search, at, len(drawn.y))

    here = value(theta)
    unit = max(abs(here), 1e-6 * by_hand.scale())
    gap = abs(here - _prior(search, theta, len(drawn.y)) + probe.best_score_)
    if gap > 10 * _tolerance(by_hand, drawn.X) * unit:
        if doubt := _doubt(by_hand, _named(probe, space.params(theta)), here, gap):
            left["gradient"] = doubt
            return
        raise Fault(
            "wrong objective",
            f"{-probe.best_score_:.10g} reported, {here:.10g} by refitting at the start {start}",
        )
    slopes, noise = np.zeros(space.size), (1e-6 if by_hand.exact else 1e-9) * unit / PROBE
    for i in range(space.size):
        width = space.upper[i] - space.lower[i]
        if width == 0:
            continue
        log = _scales(space)[i]
        h = PROBE * (1.0 if log else width)
        step = np.zeros(space.size)
        step[i] = min(h, 0.2 * width)
        up, down = value(theta + step), value(theta - step)
        fine = (value(theta + 0.3 * step) - value(theta - 0.3 * step)) / (0.6 * step[i])
        slopes[i] = (up - down) / (2 * step[i])
        one_sided = abs((up - here) - (here - down)) / step[i]
        floor = noise * PROBE / step[i]
        if (
            one_sided > 0.2 * abs(slopes[i]) + floor
            or abs(fine - slopes[i]) > 0.1 * tol * abs(slopes[i]) + floor
        ):
            left["gradient"] = "a kink, or a slope below the noise of differences"
            return
    norm = float(np.linalg.norm(slopes))
    if by_hand.unsure or norm < 10 * noise:
        left["gradient"] = by_hand.unsure or "a slope below the noise of differences"
        return
    require(
        result.gradient_norm is not None and abs(result.gradient_norm - norm) <= tol * norm + noise,
        "wrong gradient",
        f"norm {result.gradient_norm} reported, {norm:.8g} by differences ({slopes}) at {start}",
    )


def _scales(space: Any) -> np.ndarray:
    return np.concatenate([np.full(b.size, b.scale == "log") for b in space.blocks])


def _named(search: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values under the names that ``set_params`` takes."""
    full = {name.split("__", 1)[-1] if name not in values else name: name for name in search.best_params_}
    out = {}
    for name, value in values.items():
        key = name if name in search.best_params_ else full[name]
        if name == "class_weight":
            value = dict(zip(search.classes_.tolist(), [1.0, *np.atleast_1d(value).tolist()], strict=True))
        out[key] = value
    return out


def _prior(search: Any, theta: np.ndarray, n: int) -> float:
    """``kappa / (2 n) ||log gamma - mean||^2`` for every block of several widths on a log scale."""
    usual = 0.0 if search.method == "mpec" else 0.5
    kappa, total = usual if search.shrinkage is None else float(search.shrinkage), 0.0
    for block in search.space_.blocks:
        if block.size > 1 and block.name.endswith("gamma") and block.scale == "log":
            part = theta[search.space_.slices[block.name]]
            total += 0.5 * kappa / n * float(np.sum((part - part.mean()) ** 2))
    return total
