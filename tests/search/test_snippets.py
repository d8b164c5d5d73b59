# ruff: noqa: E501 (a snippet is a row of a table)
"""What a user of GridSearchCV writes every day: it works here, or an error says what to write instead.

The table of docs/coming-from-gridsearchcv.md is made of these snippets: ``python -m tests.search.test_snippets`` writes
it, and a test compares.
"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats
from sklearn import model_selection as ms
from sklearn.base import clone, is_regressor
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import fbeta_score, make_scorer, mean_pinball_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.svm import LinearSVC as SkLinearSVC
from sklearn.svm import LinearSVR as SkLinearSVR

from foldwise import BilevelSearchCV

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coming-from-gridsearchcv.md"
X, y = make_classification(60, 4, n_informative=3, n_redundant=0, flip_y=0.1, random_state=1)
t = X @ np.arange(4.0) + np.random.default_rng(0).normal(size=60)
three = np.digitize(X[:, 0], np.quantile(X[:, 0], [0.3, 0.6]))
names = np.where(y == 1, "yes", "no")
groups = np.arange(60) % 6
C = {"C": [0.1, 1.0, 10.0]}
A = {"alpha": [0.1, 1.0, 10.0]}
logistic, ridge = LogisticRegression(tol=1e-8), Ridge()


def search(estimator, space=None, **options):
    return BilevelSearchCV(estimator, space, **{"cv": 3, **options})


def best(table):
    return int(np.argmax(table["mean_test_score"]))


def gap(estimator, X, y):
    return -float(np.abs(estimator.predict(X) - y).max())


MACHINES = (SVC, SVR, SkLinearSVC, SkLinearSVR, KernelRidge, RandomForestClassifier)
STEPS = (PCA, SelectKBest, StandardScaler, make_pipeline, make_scorer, fbeta_score, mean_pinball_loss, clone)
NAMES = {
    **{one.__name__: one for one in (*MACHINES, *STEPS, best, gap, search)},
    **{"SkLinearSVC": SkLinearSVC, "SkLinearSVR": SkLinearSVR, "ms": ms, "stats": stats, "np": np},
    **{"X": X, "y": y, "t": t, "A": A, "C": C, "ridge": ridge, "logistic": logistic},
}
"""What a snippet may name."""


# Area, what is written, what it is here ("same", "better", "differs", "refused"), what is to be said, the check: an
# expression that is true, or words of the error.
S = "same"
SNIPPETS = [
    # The constructor
    ("constructor", "search(ridge, A)", "better", "the values between those of the list are searched too, and the list's are visited", "0.1 <= s.best_params_['alpha'] <= 10"),
    ("constructor", "search(ridge, param_grid=A)", S, "another name of `space`", "s.best_params_"),
    ("constructor", "search(ridge, A, scoring='r2')", S, "", "s.best_score_ <= 1"),
    ("constructor", "search(ridge, A, n_jobs=2)", S, "the answer does not depend on it", "s.best_params_"),
    ("constructor", "search(ridge, A, refit=False)", S, "", "not hasattr(s, 'predict')"),
    ("constructor", "search(ridge, A, scoring='r2', refit=best)", S, "a callable on `cv_results_`, of one search without choices", "s.best_index_ == best(s.cv_results_)"),
    ("constructor", "search(ridge, A, verbose=0)", S, "1 shows progress", "s.best_params_"),
    ("constructor", "search(ridge, A, pre_dispatch='2*n_jobs')", "refused", "leave it out: there are no jobs to dispatch", "pre_dispatch"),
    ("constructor", "search(ridge, A, scoring='r2', error_score='raise')", S, "", "s.best_params_"),
    ("constructor", "search(ridge, A, scoring='r2', return_train_score=True)", S, "costs nothing but the metric", "len(s.cv_results_['mean_train_score'])"),
    ("constructor", "search(ridge, param_distributions={'alpha': stats.loguniform(0.1, 10)}, random_state=0)", "better", "as in `RandomizedSearchCV`; the support is searched, not sampled", "s.best_params_"),
    ("constructor", "search(ridge, A, n_iter=20)", "refused", "there is no number of draws; `max_time` bounds the search", "n_iter"),
    ("constructor", "search(ridge)", "better", "every tunable value, between bounds from the data", "s.best_params_"),
    ("constructor", "clone(search(ridge, param_grid=A))", S, "", "s.param_grid == A"),
    # Spaces
    ("space", "search(ridge, {'alpha': np.logspace(-1, 1, 3)})", "better", "as a list", "s.best_params_"),
    ("space", "search(ridge, {'alpha': (0.1, 10)})", "better", "bounds", "s.best_params_"),
    ("space", "search(ridge, {'alpha': [1.0]})", S, "one value is kept", "s.best_params_ == {'alpha': 1.0}"),
    ("space", "search(ridge, {'alpha': (0.1, 1, 10)})", "refused", "a tuple is a pair of bounds; write a list", "must be a pair"),
    ("space", "search(ridge, {'alhpa': [1.0, 2.0]})", "refused", "the error lists what can be tuned", "alhpa"),
    ("space", "search(SVC(), {'kernel': ['linear', 'rbf'], **C})", S, "a search for every choice; `gamma` is masked where it means nothing", "s.best_params_['kernel'] in ('linear', 'rbf')"),
    ("space", "search(SVC(), [{'kernel': ['linear'], **C}, {'kernel': ['rbf'], **C, 'gamma': [0.1, 1.0]}])", S, "a list of dicts", "len(s.result_.details['branches']) == 2"),
    ("space", "search(SVC(), {'gamma': ['scale', 0.1, 1.0], **C})", S, "the texts are choices, the numbers a range", "s.best_params_"),
    ("space", "search(logistic, {'class_weight': [None, 'balanced'], **C}, scoring='f1')", S, "", "'class_weight' in s.best_params_"),
    ("space", "search(logistic, {'fit_intercept': [True, False]}, scoring='accuracy')", S, "choices alone", "len(s.cv_results_['params']) == 2"),
    ("space", "search(make_pipeline(PCA(), ridge), {'pca__n_components': [1, 3], 'ridge__alpha': [0.1, 10.0]})", S, "integers of earlier steps are choices", "s.best_params_['pca__n_components'] in (1, 3)"),
    ("space", "search(make_pipeline(SelectKBest(), logistic), {'selectkbest__k': [1, 3], 'logisticregression__C': [0.1, 10.0]})", S, "", "s.best_params_['selectkbest__k'] in (1, 3)"),
    ("space", "search(make_pipeline(StandardScaler(), ridge), {'standardscaler': [StandardScaler(), 'passthrough'], 'ridge__alpha': [0.1, 10.0]})", S, "steps to try or skip", "'standardscaler' in s.best_params_"),
    ("space", "search(make_pipeline(PCA(), ridge), {'pca__n_components': stats.randint(1, 5), 'ridge__alpha': stats.uniform(1, 2)})", S, "integers of a distribution: all, or nine that are spread", "len(s.result_.details['branches']) == 4"),
    ("space", "search(SVC(), {'kernel': ['rbf', 'sigmoid'], **C})", S, "a kernel that is not positive definite is searched by refits, without gradients", "len(s.result_.details['branches']) == 2"),
    # Metrics
    *[("metric", f"search(logistic, C, scoring='{name}')", S, "", "np.isfinite(s.best_score_)")
      for name in ("accuracy", "roc_auc", "average_precision", "neg_log_loss", "neg_brier_score", "precision", "recall", "f1_macro", "top_k_accuracy")],
    *[("metric", f"search(logistic, C, scoring='{name}')", "better", "with the decision threshold, `best_threshold_`, which `predict` uses; `threshold=False` for 0", "s.best_threshold_ is not None")
      for name in ("balanced_accuracy", "f1", "jaccard", "matthews_corrcoef")],
    ("metric", "search(SVC(), C, scoring='neg_log_loss')", "better", "`SVC` needs no `probability=True`: probabilities come from the other folds", "np.isfinite(s.best_score_)"),
    ("metric", "search(logistic, C, scoring='f1', threshold=False)", S, "", "s.best_threshold_ is None"),
    *[("metric", f"search(ridge, A, scoring='{name}')", S, "", "np.isfinite(s.best_score_)")
      for name in ("r2", "neg_mean_squared_error", "neg_root_mean_squared_error", "neg_mean_absolute_error", "neg_median_absolute_error", "explained_variance", "neg_max_error", "neg_mean_absolute_percentage_error")],
    ("metric", "search(ridge, A, scoring=make_scorer(mean_pinball_loss, alpha=0.9, greater_is_better=False))", S, "led by the pinball loss of that quantile", "s.criterion_.quantile == 0.9"),
    ("metric", "search(logistic, C, scoring=make_scorer(fbeta_score, beta=2))", "better", "with the threshold", "s.best_threshold_ is not None"),
    ("metric", "search(ridge, A, scoring=gap)", S, "any `callable(estimator, X, y)`; predictions come from the search, other attributes from a refit", "s.best_score_ < 0"),
    ("metric", "search(ridge, A, scoring=['r2', 'neg_max_error'], refit='r2')", S, "", "s.multimetric_ and 'mean_test_neg_max_error' in s.cv_results_"),
    ("metric", "search(ridge, A, scoring={'a': 'r2', 'b': gap}, refit='b')", S, "", "s.best_score_ == s.cv_results_['mean_test_b'].max()"),
    ("metric", "search(ridge, A, scoring=['r2', 'neg_max_error'])", "refused", "`refit` must name the one that decides", "refit must name"),
    ("metric", "search(ridge, A, scoring='accuracy')", "refused", "a metric of classes for a regressor, instead of nan everywhere", "use a metric such as"),
    ("metric", "search(ridge, A)", "differs", "without `scoring` the criterion decides (here the squared error), not `estimator.score`", "s.best_score_ < 0"),
    # Folds
    *[("folds", f"search(logistic, C, cv={cv})", S, "", "s.n_splits_ >= 2")
      for cv in ("4", "ms.StratifiedKFold(3, shuffle=True, random_state=0)", "ms.RepeatedStratifiedKFold(n_splits=2, n_repeats=2)", "ms.ShuffleSplit(3, random_state=0)", "ms.LeaveOneGroupOut()", "ms.GroupKFold(3)", "list(ms.KFold(3, shuffle=True).split(X))", "ms.PredefinedSplit(np.arange(60) % 3)")],
    ("folds", "search(ridge, A, cv=ms.TimeSeriesSplit(3))", S, "", "s.n_splits_ == 3"),
    # Machines and data
    *[("machine", f"search({machine}, {space})", S, "", "s.best_params_")
      for machine, space in (("SVC()", "C"), ("SVR()", "C"), ("SkLinearSVC()", "C"), ("SkLinearSVR(loss='squared_epsilon_insensitive')", "C"), ("KernelRidge(kernel='rbf')", "A"), ("make_pipeline(StandardScaler(), SVC())", "{'svc__C': [0.1, 1.0]}"))],
    ("machine", "search(RandomForestClassifier(), {'max_depth': [1, 2]})", "refused", "no program to differentiate: keep `GridSearchCV` for it", "cannot tune RandomForestClassifier"),
    # Attributes and methods
    *[("fitted", f"search(logistic, C, scoring='accuracy').{name}", S, note, f"s.{name} is not None")
      for name, note in (("best_params_", ""), ("best_score_", "in the metric's own units"), ("best_index_", ""), ("best_estimator_", "scikit-learn's own; linear machines get `refit_params_`, rescaled for more rows"), ("cv_results_", "one row for every point visited; `mean_test_criterion` beside the metric"), ("scorer_", ""), ("n_splits_", ""), ("refit_time_", ""), ("multimetric_", ""), ("classes_", ""), ("n_features_in_", ""))],
    *[("fitted", f"search(logistic, C, scoring='accuracy').{call}", S, note, f"s.{call} is not None")
      for call, note in (("predict(X)", "with `best_threshold_`, where one was selected"), ("score(X, y)", "by `scoring`"), ("decision_function(X)", ""), ("predict_proba(X)", ""), ("cv_results_['mean_fit_time']", "all folds are solved together: equal shares, no spread"), ("cv_results_['rank_test_score']", ""), ("cv_results_['param_C']", ""), ("cv_results_['split0_test_score']", ""))],
    ("fitted", "search(ridge, A).feature_names_in_", S, "for data frames", "list(s.feature_names_in_) == list('abcd')"),
    ("fitted", "search(SVC(), C).predict_proba(X)", "better", "every classifier has probabilities, from the folds' decisions", "s.predict_proba(X).shape == (60, 2)"),
    ("fitted", "search(SVC(), C).transform(X)", "refused", "machines that predict do not transform", "transform"),
]  # fmt: skip
WORDS = {"same": "the same", "better": "better", "differs": "differs", "refused": "refused"}
TITLES = {
    "constructor": "Arguments",
    "space": "Spaces",
    "metric": "Metrics",
    "folds": "Folds",
    "machine": "Machines",
    "fitted": "After the fit",
}


def table() -> str:
    """The snippets as the page shows them."""
    lines = []
    for area, title in TITLES.items():
        lines += ["", f"### {title}", "", "| written with `GridSearchCV` | here | |", "| --- | --- | --- |"]
        for own, code, verdict, note, _ in SNIPPETS:
            if own == area:
                shown = code.replace("search(", "BilevelSearchCV(", 1).replace("|", "\\|")
                lines.append(f"| `{shown}` | {WORDS[verdict]} | {note} |")
    return "\n".join(lines).strip()


def fitted(code):
    """The search of a snippet, fitted to rows that suit it; what is done with it afterwards is left out."""
    node = ast.parse(code, mode="eval").body
    while not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        node = node.func if isinstance(node, ast.Call) else node.value
    made = eval(ast.unparse(node), dict(NAMES))
    rows = pd.DataFrame(X, columns=list("abcd")) if "feature_names" in code else X
    more = {"groups": groups} if "Group" in code else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made.fit(rows, t if is_regressor(made.estimator) else y, **more)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda one: one[1][:60])
def test_a_snippet_works_or_says_what_to_write(snippet):
    _, code, verdict, _, check = snippet
    if verdict != "refused":
        s = fitted(code)
        assert eval(check, {**NAMES, "s": s}), check
        return
    with pytest.raises((ValueError, TypeError, AttributeError), match=check):
        s = fitted(code)
        s.transform(X)


@pytest.mark.parametrize("labels", [three, names, y.astype(bool)], ids=["three", "texts", "booleans"])
def test_labels_of_any_kind(labels):
    s = search(SkLinearSVC(), {"C": (0.1, 10.0)}, scoring="balanced_accuracy").fit(X, labels)
    assert set(s.predict(X)) <= set(labels.tolist())
    again = search(SkLinearSVC(), {"C": (0.1, 10.0)}, scoring="accuracy").fit(sp.csr_matrix(X), labels)
    assert 0.3 < again.best_score_ <= 1.0


def test_searches_inside_others():
    inner = search(ridge, A, scoring="r2")
    assert len(ms.cross_val_score(inner, X, t, cv=2)) == 2
    outer = ms.GridSearchCV(inner, {"estimator__fit_intercept": [True, False]}, cv=2).fit(X, t)
    assert clone(inner).fit(X, t).score(X, t) <= 1.0
    assert "estimator__fit_intercept" in outer.best_params_


def test_the_page_has_this_table():
    assert table() in PAGE.read_text(encoding="utf-8"), "run python -m tests.search.test_snippets"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- snippets -->\n")
    _, _, tail = rest.partition("<!-- end of snippets -->\n")
    PAGE.write_text(
        f"{head}<!-- snippets -->\n\n{table()}\n\n<!-- end of snippets -->\n{tail}", encoding="utf-8"
    )
