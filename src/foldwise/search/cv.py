"""``BilevelSearchCV``: hyper-parameters by solving cross-validation; a drop-in for ``GridSearchCV``."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from foldwise.arguments import (
    CLASS_WEIGHT,
    FLAG,
    FOLDS,
    MAYBE,
    NONE,
    PATH,
    SEED,
    Rule,
    Table,
    check_arguments,
    instance,
    integer,
    number,
    one_of,
    sequence,
)
from foldwise.checkpoint import Checkpoint
from foldwise.criteria import Criterion, as_criterion
from foldwise.estimators.adapters import describe
from foldwise.estimators.encoding import CallbackSupportMixin, with_callbacks
from foldwise.losses import Loss
from foldwise.optimizers.base import Minimizer
from foldwise.result import Record, Result
from foldwise.search.best import BestEstimatorMixin
from foldwise.search.branches import fit_branches, has_choices
from foldwise.search.choice import OneStandardError
from foldwise.search.confirm import Confirmation
from foldwise.search.data import read_data
from foldwise.search.final import FinalFit
from foldwise.search.judge import Judge
from foldwise.search.nested import Nested, run_nested
from foldwise.search.plan import SearchPlan, choose_method, make_plan
from foldwise.search.prepare import Program, prepare
from foldwise.search.refit import Refit
from foldwise.search.run import SearchRun
from foldwise.search.scoring import ERROR_SCORE, REFIT, SCORING, SINGLE, THRESHOLD, read_scoring
from foldwise.search.settings import SearchSettings
from foldwise.search.table import chosen_row, cv_results
from foldwise.threads import suited_to
from foldwise.version import __version__

__all__ = ["BilevelSearchCV"]

MAY_CHANGE = {
    "callbacks",
    "verbose",
    "n_jobs",
    "max_time",
    "max_iter",
    "refit",
    "rescale",
    "checkpoint",
    "resume",
}
"""Settings that may differ when a search is resumed; ``space`` and ``cv`` are compared by what they give."""


ANY_INTEGER = integer(-(2**31))
SPACE = Rule(
    "a dict, a list of dicts or a list of names",
    lambda v: (
        isinstance(v, Mapping)
        or sequence(lambda name: isinstance(name, str), "").allows(v)
        or sequence(lambda one: isinstance(one, Mapping), "").allows(v)
    ),
    "Write {'C': (0.01, 100)}, or ['C'] for bounds from the data",
)


def _is_named(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


class BilevelSearchCV(CallbackSupportMixin, SearchSettings, FinalFit, BestEstimatorMixin):
    r"""Select hyper-parameters by solving cross-validation as a bilevel program.

    Minimises over ``theta`` within bounds

    .. math::  H(\theta) = \frac1T \sum_t \mathrm{mean}_{j \in \mathrm{val}(t)} \,
               \mathrm{criterion}(x_j' w_t(\theta), y_j), \qquad w_t(\theta) = \arg\min_w E_t(w; \theta),

    following exact gradients of ``H``, then refits the estimator on all rows.

    Parameters
    ----------
    estimator : estimator
        ``foldwise.LinearSVC``, ``LinearSVR``, ``KernelSVC``, ``KernelSVR`` or ``SemiparametricSVR``; scikit-learn's
        ``SVC``, ``SVR``, ``KernelRidge``, ``LinearSVC``, ``LinearSVR``, ``Ridge``, ``RidgeClassifier``, ``Lasso``,
        ``ElasticNet`` or ``LogisticRegression`` (several classes together, and with an L1 part of the penalty); a
        ``Pipeline`` that ends in one, nested or not, whose earlier steps are fitted inside each fold; or one of these
        inside ``OneVsRestClassifier``, ``OneVsOneClassifier``, ``TransformedTargetRegressor``,
        ``CalibratedClassifierCV`` or ``MultiOutputRegressor``. Without gradients, by refitting it in every fold (method
        "grid" or "random", with a word in ``result_.warnings``): ``NuSVC``, ``NuSVR``, ``OneVsOneClassifier`` around a
        linear machine, and kernels whose derivatives are not known, such as "sigmoid" or a callable.
    space : dict or list of dict, optional
        From parameter name to ``(lower, upper)``, ``Log(lower, upper, per=...)``, ``Lin(lower, upper, per=...)``,
        or None for bounds derived from the data. Without a space every tunable parameter is tuned. A list of numbers
        stands for the range between its ends, and its grid is visited as well; distributions of SciPy and Optuna for
        their support; texts, objects and what has no derivative (``pca__n_components``) are choices, with a search
        for every combination. ``param_grid`` and ``param_distributions`` are other names of it.
    method : str or Minimizer, default="auto"
        "newton", "lbfgsb", "bfgs", "rprop", "pbp", "bundle", "mpec", "slams", "grid", "constrained_grid", "random" or
        "auto".
        "auto" is "newton" up to 300 hyper-parameters and "lbfgsb" beyond; "bundle" for an exact linear machine with an
        absolute or hinge criterion on up to 300 rows; for a criterion without gradient, "grid" or "random". An object
        of a class that extends ``foldwise.optimizers.Minimizer`` serves too: ``tol``, ``max_iter``, ``n_starts`` and
        a start given here reach it, and are refused where it has no place for them or another value of its own.
    criterion : str, Loss or Criterion, default="auto"
        "squared", "absolute", "hinge", "squared_hinge", "modified_huber", "logistic", "smooth_misclassification",
        "misclassification", "profiled_logistic" (the logistic loss of all out-of-fold decisions in their own best
        unit), a Loss, or a Criterion of your own (a function of all decisions together). "auto" is "squared" for
        regression, ``Logistic(s=2)`` for classes by a linear machine and "profiled_logistic" by one whose kernel is not
        linear, such as ``SVC`` (a precomputed kernel counts as such; method "bundle", which needs the mean of a loss,
        has ``Logistic(s=2)`` there too); the training loss itself for a machine with the logistic loss, such as
        ``LogisticRegression``, whose ``best_score_`` is then scikit-learn's "neg_log_loss".
    scoring : str, callable, list, dict, optional
        What decides, as in ``GridSearchCV``: a metric's name, a ``callable(estimator, X, y)``, or several. A criterion
        with slopes made for the metric (or ``criterion``, if given) leads the search; the metric itself is computed at
        every point visited, from the out-of-fold decisions, and a few steps without derivatives around the best point
        end it. ``best_score_`` is then the metric's, and ``cv_results_`` has both. See docs/scoring.md.
    criterion_weight : "auto", "balanced", dict or None, default="auto"
        What a validation row counts in the criterion, by its own class, times its sample weight; the criterion of a
        fold stays a mean. "auto": as its class weighs in the fold's training loss, where the estimator has a fixed
        ``class_weight``; where that is None or tuned, all classes weigh the same. "balanced": inversely to the
        class's share of the fold's training rows. A dict maps class labels to weights (1 where not named). None:
        sample weights alone.
    cv : int, splitter or iterable, default=5
        What scikit-learn takes: a number of folds, a splitter, or pairs (training rows, validation rows) of row numbers
        or masks. A row that a pair repeats (a bootstrap, oversampling) counts that often, in training, in the criterion
        and in scalers; a row may train and validate the same fold.
    repeats : int or "auto", default=1
        How many partitions into ``cv`` folds the criterion is averaged over, where ``cv`` is a number: the one that the
        number alone stands for, then shuffled ones (:class:`foldwise.search.repeats.RepeatedFolds`). Kernel machines
        search on the first and go the rest of the way on all. "auto": 3 up to 100 rows, else 1, and 1 for a
        splitter, which is taken as it is. docs/selection.md has what it is worth.
    choice : {"best", "one_se"} or float, default="best"
        "one_se": the widest kernel and strongest regularisation whose criterion is above the best by less than one
        standard error of the paired differences of the rows, found by following that constraint with gradients; a
        number: that many standard errors. All attributes are those of the chosen point; ``result_.best`` tells what the
        best was. ``best_score_`` is then not the highest of ``cv_results_``.
    confirm : bool or "auto", default="auto"
        Many values of one kind have to prove that they are better than one: a search in which they are one is run as
        well, and the single value is taken unless the folds' advantage of the many, less what is due to chance, is more
        than two standard errors of the paired rows. "auto" asks that of kernel widths of single features, True also of
        penalties of features, values of groups and classes and weights of kernels, False of none. ``result_.best``
        tells what was passed over.
    n_starts : int, optional
        Run the method from this many points and keep the best end. By default, with up to four hyper-parameters, a few
        points are looked at and the method runs once, from the best of them; with more, or with penalties of single
        features, it runs from two. Before a kernel machine's search cheaper ones find its first point; they are not
        counted here, see neither ``max_iter`` nor ``callbacks``, and leave their counts in ``result_.details``.
    refit : bool, str or callable, default=True
        Fit a copy of the estimator with the selected values to all rows. With several metrics the name of the one that
        decides (with False the first leads the search); a callable takes ``cv_results_`` and returns the number of the
        row to be taken. When that final fit is interrupted (Ctrl-C,
        with a warning) or fails (its error is raised), the search itself is complete and kept: ``best_params_``,
        ``refit_params_``, ``cv_results_`` and ``result_`` stay, and ``best_estimator_`` is missing;
        ``clone(search.estimator).set_params(**search.refit_params_).fit(X, y)`` makes up for it. Without a final fit a
        search has no ``predict``.
    rescale : bool or "auto", default="auto"
        Rescale the strength of regularisation for the final fit, whose training set is larger than a fold's by
        ``T / (T - 1)``: ``C`` is divided and ``lam`` or ``alpha`` multiplied by that factor. "auto" does so for linear
        machines and not for kernel machines.
    tol : float, optional
        Relative accuracy of the objective; by default, for "newton", ``1e-3 / n`` between 1e-8 and 1e-5 for linear
        models (1e-5 on sparse or wide data and with more than four hyper-parameters), 1e-4 for smooth kernel machines
        and 1e-3 for exact ones.
    max_iter : int, optional
    max_time : float, optional
        Seconds; the best point so far is used when they are over. An evaluation that is under way then is abandoned,
        between the steps and folds of its training problems; only the first one is completed, since without it there
        is nothing to return. The final fit is not bounded: how long it may take is estimated from fits to few rows
        (``result_.details["refit_estimate"]``, seconds), with a warning before it begins when it goes far beyond
        ``max_time``; ``refit=False`` gives the values, ``best_params_`` and ``refit_params_``, without it.
    callbacks : sequence of callables
        Each is called with a ``Record`` after every evaluation; returning True stops the search.
    n_jobs : int, optional
        Starting points run in this many threads. The answer does not depend on it.
    random_state : int or RandomState, optional
        Seeds random starting points and random search.
    verbose : int, default=0
        1 shows progress.
    method_options : dict, optional
        Options of the method's class, e.g. ``{"points": 12}`` for "grid"; ``"start"`` maps names, with or without
        the prefix of a pipeline's step, to starting values within the bounds, such as ``best_params_`` of a former
        search.
    shrinkage : float, optional
        Strength ``kappa`` of the penalty ``kappa / (2 n) ||log gamma - mean||^2`` on per-feature kernel widths, which
        would otherwise over-fit the folds; 0.5 by default, 0 for none and, by default, for "mpec", whose program does
        not have it. ``best_score_`` is without it.
    prior : float, optional
        Strength ``kappa`` of a pull ``kappa / (2 n)`` per squared e-fold of every hyper-parameter (of a tube: squared
        quarter of its range) to a moderate value that follows from the data; None or 0 for none. Its share of the
        objective is ``result_.penalty``; ``best_score_`` is without it.
    low_rank : bool or "auto", default="auto"
        See the kernel of a smooth kernel machine through a few landmark rows during the search. "auto" does so from
        1,500 rows on where few of them see every row to 1e-3 at twice the starting ``gamma``, and goes on without
        them when the bound on what they change in a decision (``result_.approximation``) exceeds 0.01. With
        True the end is valued once without them, memory allowing: ``best_score_`` is then that of the whole kernel, and
        ``result_.details`` holds what the landmarks said. The final fit never uses them.
    return_train_score : bool, default=False
        Whether the metrics of training rows go into ``cv_results_``; they cost nothing but the metrics.
    error_score : "raise" or number, default=nan
        What a fold gets whose metric raises. The search goes on by its criterion, and says so.
    threshold : "auto", True, False or None, default="auto"
        Whether the decision threshold of two classes is selected with the values, for the metric that decides:
        ``predict`` of the search then takes ``best_threshold_`` in the place of 0. "auto" does so for balanced
        accuracy, F-measures, the Jaccard score, Matthews' correlation and Cohen's kappa.
    checkpoint : str or Path, optional
        File to which every evaluation is written as soon as it is complete, so that a search that was killed can go
        on. It must not exist, unless ``resume`` is set.
    resume : bool, default=False
        Continue from the checkpoint if there is one. A file that is damaged, or belongs to other data, folds or
        settings, is refused and left as it is. Time and iteration limits and ``n_jobs`` may change.

    Attributes
    ----------
    best_params_ : dict
        Selected values, as they act in a fold.
    refit_params_ : dict
        Values for a fit to all rows, of the final estimator: ``best_params_``, or what ``rescale`` makes of them.
    best_score_ : float
        With ``scoring`` the mean over the folds of the metric that decides, at ``best_params_``. Without: negative
        cross-validation criterion at ``best_params_``, a mean over folds of means over rows that count as
        ``criterion_weight`` says: higher is better. So are the scores of ``cv_results_``.
    best_estimator_ : estimator
    best_index_ : int
    cv_results_ : dict of arrays
        One entry per evaluation.
    result_ : Result
        History, status in words, certificate.
    criterion_ : Loss or Criterion
    space_ : Space
    n_splits_ : int
    n_iter_ : int
        Evaluations of the cross-validation error.
    n_resumed_ : int
        Evaluations that came from the checkpoint; those of stages and of looks around the end are not in ``n_iter_``.
    refit_time_ : float
    scorer_ : scorer, or dict of them
    multimetric_ : bool
    best_threshold_ : float or None
        The decision threshold of ``predict``; None where it was not selected. ``best_estimator_`` does not know it.
    probabilities_ : Probabilities, PairProbabilities or None
        How decisions become probabilities of classes (:meth:`predict_proba`), from the folds; None for regressions.
    residuals_ : Residuals or None
        Out-of-fold residuals of a regression (:meth:`predict_interval`).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from foldwise import BilevelSearchCV, LinearSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> search = BilevelSearchCV(LinearSVR(), cv=5).fit(X, y)
    >>> sorted(search.best_params_)
    ['C', 'epsilon']
    >>> search.result_.status.value
    'converged'
    """

    result_: Result
    _arguments: ClassVar[Table] = {
        "space": SPACE | NONE,
        "param_grid": SPACE | NONE,
        "param_distributions": SPACE | NONE,
        "method": instance((str, Minimizer), "the name of a method or a Minimizer object"),
        "criterion": instance(
            (str, Loss, Criterion), "the name of a criterion, a Loss or a Criterion object"
        ),
        "criterion_weight": replace(
            one_of("auto") | CLASS_WEIGHT, do="Weights of single rows are sample_weight of fit"
        ),
        "cv": FOLDS,
        "repeats": integer() | one_of("auto"),
        "confirm": MAYBE,
        "choice": replace(
            one_of("best", "one_se") | number(above=0, at_most=10),
            needs="'best', 'one_se' or a number of standard errors above 0 and at most 10",
        ),
        "n_starts": integer() | NONE,
        "scoring": SCORING | NONE,
        "refit": REFIT,
        "rescale": MAYBE,
        "tol": number(at_least=0) | NONE,
        "max_iter": integer() | NONE,
        "max_time": number(above=0) | NONE,
        "callbacks": sequence(callable, "a sequence of callables, such as [function]"),
        "n_jobs": Rule("an integer that is not 0", lambda jobs: jobs != 0 and ANY_INTEGER.allows(jobs))
        | NONE,
        "random_state": SEED,
        "verbose": FLAG | integer(0),
        "method_options": Rule("a dict from option name to value", _is_named) | NONE,
        "shrinkage": number(at_least=0) | NONE,
        "prior": number(at_least=0) | NONE,
        "low_rank": MAYBE,
        "return_train_score": FLAG,
        "error_score": ERROR_SCORE,
        "threshold": THRESHOLD,
        "checkpoint": PATH | NONE,
        "resume": FLAG,
    }

    def __init__(
        self,
        estimator: Any,
        space: Any = None,
        *,
        param_grid: Any = None,
        param_distributions: Any = None,
        method: Any = "auto",
        criterion: Any = "auto",
        scoring: Any = None,
        criterion_weight: Any = "auto",
        cv: Any = 5,
        repeats: Any = 1,
        choice: Any = "best",
        confirm: Any = "auto",
        n_starts: Any = None,
        refit: Any = True,
        rescale: Any = "auto",
        tol: Any = None,
        max_iter: Any = None,
        max_time: Any = None,
        callbacks: Any = (),
        n_jobs: Any = None,
        random_state: Any = None,
        verbose: Any = 0,
        method_options: Any = None,
        shrinkage: Any = None,
        prior: Any = None,
        low_rank: Any = "auto",
        return_train_score: Any = False,
        error_score: Any = np.nan,
        threshold: Any = "auto",
        checkpoint: Any = None,
        resume: Any = False,
    ) -> None:
        self.estimator = estimator
        self.space = space
        self.param_grid = param_grid
        self.param_distributions = param_distributions
        self.method = method
        self.criterion = criterion
        self.scoring = scoring
        self.criterion_weight = criterion_weight
        self.cv = cv
        self.repeats = repeats
        self.choice = choice
        self.confirm = confirm
        self.n_starts = n_starts
        self.refit = refit
        self.rescale = rescale
        self.tol = tol
        self.max_iter = max_iter
        self.max_time = max_time
        self.callbacks = callbacks
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.method_options = method_options
        self.shrinkage = shrinkage
        self.prior = prior
        self.low_rank = low_rank
        self.return_train_score = return_train_score
        self.error_score = error_score
        self.threshold = threshold
        self.checkpoint = checkpoint
        self.resume = resume

    @with_callbacks
    def fit(
        self, X: Any, y: Any, *, sample_weight: Any = None, sample_groups: Any = None, groups: Any = None
    ) -> BilevelSearchCV:
        """Select the hyper-parameters and refit.

        Parameters
        ----------
        X : array, data frame or sparse matrix, shape (n, d)
        y : array, shape (n,)
        sample_weight : array, shape (n,), optional
            Weighs rows in training and in the criterion; class weights come on top (``criterion_weight``).
        sample_groups : array, shape (n,), optional
            Groups of samples with hyper-parameters of their own (``per="group"``).
        groups : array, shape (n,), optional
            Passed to the splitter, as in scikit-learn.
        """
        self._forget()
        try:
            check_arguments(self)
            rows = {"sample_weight": sample_weight, "sample_groups": sample_groups, "groups": groups}
            final = self._branched(X, y, rows) if has_choices(self) else self._select(X, y, **rows)
        except BaseException:
            self._forget()
            raise
        # From here on the search is whole: what it found stays, whatever happens to the final fit.
        if self.refit and final is not None:
            try:
                final()
            except KeyboardInterrupt:
                warnings.warn(self._keep("was interrupted"), RuntimeWarning, stacklevel=2)
            except Exception as error:
                error.add_note(self._keep(f"failed with {type(error).__name__}"))
                raise
        return self

    def nested(
        self,
        X: Any,
        y: Any,
        *,
        cv: Any = 5,
        sample_weight: Any = None,
        sample_groups: Any = None,
        groups: Any = None,
        n_jobs: int | None = None,
        verbose: int | None = None,
    ) -> Nested:
        """Nested cross-validation: what this whole search is worth on rows that it has not seen.

        A copy is fitted to the training rows of every outer fold, and the fold's rows are valued by its final model.
        This search, fitted or not, stays as it is. Ctrl-C ends it with the outer folds that are finished, if there are
        any. ``max_time`` is for every copy; a ``checkpoint`` gets ``.fold1``, ``.fold2``, ... added to its name.

        Parameters
        ----------
        X, y, sample_weight, sample_groups, groups : as in :meth:`fit`
        cv : int, splitter or iterable, default=5
            The outer folds, as in scikit-learn: a number means stratified folds for classes. Those of the search itself
            are the inner ones.
        n_jobs : int, optional
            Outer folds side by side, in threads. The answer does not depend on it.
        verbose : int, optional
            1 shows progress; that of the search by default.

        Returns
        -------
        Nested

        Examples
        --------
        >>> from sklearn.datasets import load_diabetes
        >>> from foldwise import BilevelSearchCV, LinearSVR
        >>> X, y = load_diabetes(return_X_y=True)
        >>> nested = BilevelSearchCV(LinearSVR(), ["C"]).nested(X, y, cv=3)
        >>> len(nested.errors), nested.predictions.shape, nested.status
        (3, (442,), 'complete')
        """
        rows = {"sample_weight": sample_weight, "sample_groups": sample_groups, "groups": groups}
        return run_nested(self, X, y, cv=cv, n_jobs=n_jobs, verbose=verbose, **rows)

    def _keep(self, ending: str) -> str:
        """Say, here and in the result, that there is no final estimator, and how to get one."""
        words = (
            f"the final fit {ending}; the search is complete, and best_params_, refit_params_, cv_results_ and result_ "
            "are kept. To fit: clone(search.estimator).set_params(**search.refit_params_).fit(X, y)"
        )
        self.result_ = replace(self.result_, warnings=[*self.result_.warnings, words])
        self._unfinished = words
        return words

    def _forget(self) -> None:
        """Drop what a former fit, or half of this one, has set."""
        for name in [n for n in vars(self) if n == "_unfinished" or (n[0] != "_" and n[-1] == "_")]:
            delattr(self, name)

    def _branched(self, X: Any, y: Any, rows: dict[str, Any]) -> Callable[[], None] | None:
        """Run a search for every combination of choices; returns the final fit, to be called."""
        began, context = time.perf_counter(), self._init_callback_context(max_subtasks=None)
        if context is not None:
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        final = fit_branches(self, X, y, rows, began)
        if context is not None:
            context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return final

    def _select(
        self, X: Any, y: Any, sample_weight: Any, sample_groups: Any, groups: Any
    ) -> Callable[[], None]:
        """Run the search; returns the final fit, to be called."""
        began = time.perf_counter()
        context = self._init_callback_context(max_subtasks=None)
        if context is not None:
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        # 1. Estimator and data to a program.
        program = self._prepare(X, y, sample_weight, sample_groups, groups)
        # 2. Program to a plan; what cannot be done is refused before a file is written.
        options = self._options(program)
        method = choose_method(options, program)
        if (choice := OneStandardError.of(self.choice)) is not None:
            if self.scoring is not None or callable(self.refit):
                other = "refit" if callable(self.refit) else "scoring"
                raise ValueError(
                    f"choice={self.choice!r} compares rows by the criterion, and {other} chooses by itself; give one "
                    "of the two"
                )
            choice.check(program.bilevel.criterion)
        if isinstance(sample_weight, Real):  # which not every machine takes
            sample_weight = np.full(program.facts.n_rows, float(sample_weight))
        judge = self._judge(program, X, y, {"sample_weight": sample_weight, "sample_groups": sample_groups})
        journal = self._open_checkpoint(program, options.seed, judge)
        try:
            options = options if journal is None else replace(options, seed=journal.seed)
            plan = make_plan(program, method, options)
            # 3. Plan to a result.
            result, run = self._run(program, plan, journal, began, context, judge)
            self.n_resumed_ = 0 if journal is None else journal.n_replayed
        finally:
            if journal is not None:
                journal.close()
        result = self._publish(program, result, run)
        self._publish_trust(run)
        if not np.max(result.kkt, initial=0.0) <= result.tolerances["kkt"]:
            warnings.warn("; ".join(result.warnings), ConvergenceWarning, stacklevel=3)
        rescale = program.model.rescales if isinstance(self.rescale, str) else self.rescale
        factor = program.facts.total / program.facts.mass if rescale else 1.0
        selected = program.bilevel.space.params(np.asarray(result.theta))
        params = program.model.rescaled(selected, factor)
        self.refit_params_ = program.tunable.export(params, program.data.classes)
        if context is not None and not self.refit:
            context.call_on_fit_task_end(estimator=self, X=X, y=y)
        refit = Refit(program, params, sample_weight, sample_groups, run.end)
        return partial(self._final_fit, refit, X, y, context)

    def _prepare(
        self, X: Any, y: Any, sample_weight: Any = None, sample_groups: Any = None, groups: Any = None
    ) -> Program:
        """The program that ``fit`` would solve."""
        check_arguments(self)
        tunable = describe(self.estimator)
        self._check_together(tunable, sample_groups, sample_weight)
        self._criterion(
            tunable, read_scoring(self, tunable)
        )  # which may refuse, before the rows are looked at
        space = self._space()[0]
        data = read_data(self, tunable, X, y, sample_weight, sample_groups, groups)
        scoring = self._scoring(tunable, data.classes)
        if scoring is not None and data.classes is None and len(data.rows.Y) > 1:
            raise ValueError(
                f"scoring={self.scoring!r} needs one target; y has {len(data.rows.Y)} columns. Leave it out, and "
                "set criterion ('squared' is the default), which is averaged over the columns"
            )
        criterion = self._criterion(tunable, scoring)
        return prepare(
            tunable,
            data,
            criterion,
            space,
            shrinkage=self._shrinkage(),
            low_rank=self.low_rank,
            criterion_weight=self._criterion_weight(data.classes, scoring),
            pull=float(self.prior or 0.0),
        )

    def _open_checkpoint(self, program: Program, seed: int, judge: Judge | None) -> Checkpoint | None:
        """The checkpoint of this search; None when there is to be none."""
        if self.checkpoint is None:
            return None
        settings = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in MAY_CHANGE | {"space", "param_grid", "param_distributions", "cv"}
        }
        data, bilevel = program.data, program.bilevel
        parts = {"the features": data.X, "the target or weights": data.rows, "the folds": data.splits}
        parts |= {"the bounds": bilevel.space, "the criterion": bilevel.criterion}
        if judge is not None and judge.measure is not None:  # refit may name another of several
            parts["the metric that decides"] = judge.measure.driver
        parts |= {f"the setting {name}": value for name, value in settings.items()}
        return Checkpoint(self.checkpoint, self.resume, parts, seed)

    def _run(
        self,
        program: Program,
        plan: SearchPlan,
        journal: Checkpoint | None,
        began: float,
        context: Any,
        judge: Judge | None,
    ) -> tuple[Result, SearchRun]:
        """Run the plan within the limits of this search; its result, and the run, which knows where it ended."""
        deadline = None if self.max_time is None else began + self.max_time
        with self._callback(context) as callback, suited_to(program.model.entries(program.facts)):
            measure = None if judge is None else judge.measure
            limits = {"callback": callback, "deadline": deadline, "began": began, "observe": measure}
            run = SearchRun(program, plan, journal, limits, self.n_jobs, self.low_rank is True, judge=judge)
            run.choice = OneStandardError.of(self.choice)
            if judge is None and not callable(self.refit):  # which choose by themselves
                run.confirmation = Confirmation.of(self.confirm)
            result = run.result()
        given = int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else None
        elapsed = time.perf_counter() - began
        return replace(result, elapsed=elapsed, seed=given, version=__version__), run

    @contextmanager
    def _callback(self, context: Any) -> Iterator[Callable[[Record], bool]]:
        """One callable for all callbacks."""
        callables = list(self.callbacks)
        lock = threading.Lock()  # starts may run in threads; a callback sees one record at a time

        def callback(record: Record) -> bool:
            stop = False
            with lock:
                for call in callables:
                    stop = bool(call(record)) or stop
                if context is not None:
                    task = context.subcontext(task_name="evaluation")
                    task.call_on_fit_task_begin(estimator=self)
                    stop = bool(task.call_on_fit_task_end(estimator=self)) or stop
            return stop

        if not self.verbose:
            yield callback
            return
        from foldwise.callbacks import ProgressBar

        with ProgressBar() as bar:
            callables.append(bar)
            yield callback

    def _publish(self, program: Program, result: Result, run: SearchRun) -> Result:
        """Set the attributes of a search that is complete; the result at the point that is taken."""
        bilevel, tunable, classes, judge = program.bilevel, program.tunable, program.data.classes, run.judge
        measure = None if judge is None else judge.measure
        names = [] if measure is None else measure.names
        table = cv_results(result.history, lambda params: tunable.export(params, classes), names)
        # The history may hold equal or lower values of other objectives: of a first stage, or through landmarks.
        chosen = (result.objective, result.params)
        index = next(
            i
            for i, one in enumerate(result.history)
            if one.admissible and (one.objective, one.params) == chosen
        )
        if callable(self.refit):
            index = chosen_row(self.refit, table)
            result = run.settled(result, result.history[index])
        record = result.history[index]
        self.result_, self.cv_results_, self.best_index_ = result, table, index
        self.space_ = bilevel.space
        criterion = as_criterion(program.recipe.criterion)
        self.criterion_ = criterion.loss or criterion
        self.n_splits_ = len(program.data.splits)
        self.n_iter_ = result.n_evaluations
        self.best_params_ = tunable.export(bilevel.space.params(np.asarray(result.theta)), classes)
        self.multimetric_ = measure is not None and names != [SINGLE]
        self.best_score_ = (
            -float(np.mean(result.fold_objectives)) if measure is None else measure.value(record)
        )
        self.best_threshold_ = record.metrics["threshold"][0] if "threshold" in record.metrics else None
        if measure is not None:
            measure.warn(self.best_score_)
        return result

    def _publish_trust(self, run: SearchRun) -> None:
        """Set what the folds say about new rows; an interrupt leaves it out."""
        self.probabilities_ = self.residuals_ = None
        try:
            trust, model = run.trust(), run.program.model
            if trust is not None:
                with suited_to(model.entries(run.program.facts)):
                    self.probabilities_, self.residuals_ = trust.probabilities(), trust.residuals()
                    self.result_ = trust.told(self.result_)
        except KeyboardInterrupt:
            warnings.warn(
                "interrupted after the search: error bars and probabilities are left out", stacklevel=4
            )
