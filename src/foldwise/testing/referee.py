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
from collections.abc import Mapping
from copy import deepcopy as copied
from typing import Any

import numpy as np
from sklearn.base import clone

from foldwise.optimizers import Random
from foldwise.result import Result, Status
from foldwise.space import Dimension
from foldwise.testing.refits import CrossValidation, is_exact, last_step
from foldwise.testing.slopes import check_slopes
from foldwise.testing.verdicts import Fault, Verdict, require
from foldwise.testing.yardsticks import SOLVED, doubt, named, prior, scales, tolerance

__all__ = ["Verdict", "judge"]

WORDS = 8
"""A refusal has at least this many words."""
PROMISES = {False: 1e-3, True: 1e-2}
"""Largest promised decrease of a search that says converged: smooth machines and criteria, and those with kinks."""


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
        _check_status(search, drawn, left)
        _check_refit(search, drawn)
        _check_round_trips(search, drawn, left)
        if slopes:
            check_slopes(search, drawn, left)
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
        # What scikit-learn's own solvers say in the final fit is theirs.
        theirs = "sklearn" in one.filename or one.category.__name__ == "LineSearchWarning"
        if issubclass(one.category, RuntimeWarning) and not theirs:
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
    in_the_end = any("the final fit failed" in note for note in getattr(error, "__notes__", ()))
    if in_the_end and own.startswith(
        "site-packages/sklearn"
    ):  # the search is kept, the plain estimator refuses
        raise _Refusal(f"final fit: {text}") from error
    if evaluations and "is not finite at any point" not in str(error):  # which only evaluations can show
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
        low, high = (spec.lower, spec.upper) if isinstance(spec, Dimension) else spec
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


def _admitted(search: Any, theta: np.ndarray) -> bool:
    """Whether a point keeps linear constraints, if there are any."""
    given = (search.method_options or {}).get("constraints")
    if given is None:
        return True
    A, c = (np.asarray(part, float) for part in given)
    return bool(np.all(c - A @ theta >= -1e-7))


def _check_constraints(search: Any) -> None:
    options = search.method_options or {}
    theta = np.array(search.result_.theta)
    require(_admitted(search, theta), "constraint not kept", f"theta {theta}, {options.get('constraints')}")
    if options.get("n_max") is not None:
        boxes = next(v for name, v in search.best_params_.items() if name.endswith("box"))
        used = int(np.sum(np.asarray(boxes) > 1e-6))
        require(
            used <= options["n_max"], "constraint not kept", f"{used} boxes open, n_max={options['n_max']}"
        )

    if options.get("max_features") is not None:
        block = next(block for block in search.space_.blocks if block.name.endswith("box"))
        part = np.array(search.result_.theta)[search.space_.slices[block.name]]
        used = int(np.sum(part > block.lower))
        allowed = options["max_features"]
        require(used <= allowed, "constraint not kept", f"{used} boxes open, max_features={allowed}")


def _check_objective(search: Any, drawn: Any, left: dict[str, str]) -> None:
    """``best_score_`` and every fold against refits of the plain estimator."""
    result = search.result_
    if max(result.kkt, default=0.0) > SOLVED:
        left["objective"] = "the search says that training problems are not solved"
        return
    by_hand = CrossValidation(search, drawn.X, drawn.y, drawn.fit_params)
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
    _check_machines(by_hand, search.best_params_)
    got = -search.best_score_
    tol = tolerance(by_hand, drawn.X)
    unit = max(abs(wanted), (1e-2 if by_hand.exact else 1e-6) * by_hand.scale())
    if abs(got - wanted) <= tol * unit:
        return
    # scikit-learn's machines lose digits that the search keeps: then it has the value with these digits, and says so.
    by_hand.careful = True
    near = by_hand.value(search.best_params_)
    if abs(got - near) <= tol * max(abs(near), unit):
        silent = search.refit and abs(near - wanted) > 0.5 * max(abs(near), abs(wanted))
        said = any("did not solve its training problem" in words for words in result.warnings)
        require(said or not silent, "deployed otherwise and silent", f"{got:.6g}, deployed {wanted:.6g}")
        left["objective"] = "the plain estimator loses digits"
        return
    choices = [wanted, near]
    if any("intercept is not unique" in words for words in result.warnings):
        choices.append(by_hand.loose(search.best_params_))
    if max(choices) - min(choices) > 0.2 * abs(got - near):
        left["objective"] = "the plain estimator's answer depends on its tolerance and rounding"
        return
    stated = [words for words in result.warnings if "on the decision boundary but for rounding" in words]
    if stated and abs(got - near) <= float(stated[0].split()[-1]) * (1 + 1e-3):
        left["objective"] = "rows lie on the decision boundary, which is said"
        return
    if reason := doubt(by_hand, search.best_params_, near, abs(got - near)):
        left["objective"] = reason
        return
    raise Fault(
        "wrong objective",
        f"{got:.10g} reported, {wanted:.10g} by refitting, {near:.10g} carefully (relative "
        f"{abs(got - near) / unit:.2g}) at {search.best_params_}",
    )


def _check_machines(by_hand: CrossValidation, params: Mapping[str, Any]) -> None:
    """Refits of our own machines prove nothing unless these solve their problems: their optimality conditions."""
    violation = by_hand.violation(params)
    require(
        violation <= SOLVED,
        "our machine does not solve its problem",
        f"optimality conditions of a fold are violated by {violation:.2g} (relative) at {params}",
    )


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
    own = ("constraints", "n_max", "max_features")  # points that a method evaluates and may not return
    constrained = any((search.method_options or {}).get(name) is not None for name in own)
    widths = any(b.size > 1 and b.name.endswith("gamma") for b in search.space_.blocks)
    landmarks = result.approximation is not None or "landmark_objective" in result.details
    if (
        not constrained and not widths and not landmarks and result.best is None
    ):  # whose values are of another objective
        may = [record.admissible for record in result.history]  # not where training problems are unsolved
        best = float(np.nanmax(np.where(may, table["mean_test_score"], -np.inf)))
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


def _check_status(search: Any, drawn: Any, left: dict[str, str]) -> None:
    """The status follows from the numbers that the result shows, as docs/results.md says; and a look around it."""
    result = search.result_
    require(result.message and result.method, "no words", "the result has no message or method")
    for name, side in result.at_bound.items():
        require(name in search.space_.names and side in ("lower", "upper"), "at_bound", f"{name}: {side}")
    worst, promised = max(result.kkt, default=0.0), result.promised_decrease
    if worst > SOLVED:
        honest = result.status is not Status.CONVERGED and result.warnings
        require(honest, "unsolved and silent", f"KKT residual {worst:.2g}, {result.status}, no warning")
    if result.status is Status.UNSOLVED:
        require(worst > SOLVED, "status", f"{result.status} with a KKT residual of {worst:.2g}")
    if result.status is not Status.CONVERGED:
        return
    if result.best is not None:
        left["converged"] = "a simpler point than the minimum was taken"
        return
    limit = _promise(search)
    require(
        promised is not None and promised <= limit,
        "converged, by its own numbers not",
        f"promised_decrease {promised}, at most {limit:g} is allowed",
    )
    _look_around(search, drawn, limit, left)


def _promise(search: Any) -> float:
    """The largest promised decrease with which a search may say converged."""
    by_kinks = is_exact(last_step(search.estimator)) or search.criterion_.polyhedral
    options = search.method_options or {}
    asked = [search.tol, options.get("tol"), options.get("tol1"), getattr(search.method, "tol", None)]
    asked += [1e-3] if search.method == "bfgs" else []  # its own tol1
    return max(PROMISES[by_kinks], *(10 * value for value in asked if value is not None), 0.0)


def _look_around(search: Any, drawn: Any, limit: float, left: dict[str, str]) -> None:
    """No step of a fiftieth of a natural unit along one entry of theta may gain what was ruled out for a tenth."""
    space, theta = search.space_, np.array(search.result_.theta)
    if space.size > 8 or search.result_.approximation is not None:
        left["converged"] = "too many hyper-parameters, or landmarks"
        return
    if getattr(drawn.X, "dtype", None) == np.float32:
        left["converged"] = "single precision in X"
        return
    by_hand = CrossValidation(search, drawn.X, drawn.y, drawn.fit_params)
    by_hand.careful = True
    n, here = len(drawn.y), search.result_.objective
    unit = np.where(scales(space), 1.0, 0.25 * (space.upper - space.lower))
    for i in range(space.size):
        for sign in (-0.02, 0.02):
            at = theta.copy()
            at[i] = np.clip(theta[i] + sign * unit[i], space.lower[i], space.upper[i])
            if at[i] == theta[i] or not _admitted(search, at):
                continue
            there = by_hand.value(named(search, space.params(at))) + prior(search, at, n)
            gain = (here - there) / max(abs(here), 1e-9 * by_hand.scale())
            params = named(search, space.params(at))
            if gain > limit and (reason := doubt(by_hand, params, there, abs(here - there))):
                left["converged"] = reason
                return
            require(
                gain <= limit,
                "converged, and a small step gains",
                f"{space.names[i]} {sign:+g} units: {here:.8g} to {there:.8g} ({100 * gain:.2g}%, "
                f"{100 * limit:.2g}% allowed, {100 * search.result_.promised_decrease:.2g}% promised)",
            )


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
        require("lambda" in str(error) or "__main__" in str(error), "round trip", f"pickle: {error}")
        left["pickle"] = "a function or class of the user's own cannot be pickled"
        return
    require(back.best_score_ == search.best_score_, "round trip", "pickle changes best_score_")
    if search.refit:
        # Of copies: BLAS rounds differently where a machine is given the very array that it was fitted to.
        one, other = back.predict(copied(drawn.X)), search.predict(copied(drawn.X))
        require(np.array_equal(one, other), "round trip", "pickle changes predictions")


def _check_again(search: Any, drawn: Any) -> None:
    if not isinstance(search.random_state, int) and search.random_state is not None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        second = clone(drawn.search).fit(drawn.X, drawn.y, **drawn.fit_params)
    by_chance = search.method == "random" or isinstance(search.method, Random)
    if search.random_state is None and (search.n_starts or by_chance or len(search.result_.theta) > 2):
        return  # random points without a seed
    one, other = search.result_, second.result_
    require(
        one.theta == other.theta and one.objective == other.objective,
        "another answer the second time",
        f"{one.theta} with {one.objective!r}, then {other.theta} with {other.objective!r}",
    )
