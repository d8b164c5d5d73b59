"""Saved models: what is written can be loaded and predicts the same; what could not be is refused when saving."""

from __future__ import annotations

import warnings
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp
import skops.io
from sklearn.base import is_classifier
from sklearn.datasets import make_classification
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR
from sklearn.svm import LinearSVC as SklearnLinearSVC
from sklearn.svm import LinearSVR as SklearnLinearSVR

import foldwise
from foldwise import RBF, BilevelSearchCV, KernelSVC, KernelSVR, LinearSVC, LinearSVR, SemiparametricSVR, Sum
from foldwise.result import Status
from foldwise.saving import FORMAT, SMALL, SavingError, load_model, save_model

X, CLASSES = make_classification(60, 4, random_state=0)
y = X @ [1.0, -1.0, 0.5, 0.0] + 0.1 * np.sin(7 * X[:, 0])
LABELS = np.where(CLASSES == 1, "yes", "no")
SPARSE = sp.csr_matrix(np.where(np.abs(X) > 0.5, X, 0.0))
COLUMNS = ["a", "b", "c", "d"]

ESTIMATORS = [
    LinearSVR(),
    LinearSVR(loss="huber"),
    LinearSVR(loss="epsilon_insensitive"),
    KernelSVR(),
    KernelSVR(RBF(ard=True)),
    KernelSVR(Sum([RBF(), foldwise.Linear()])),
    SemiparametricSVR([0, 1], RBF()),
    SemiparametricSVR(PolynomialFeatures(2), RBF()),
    SVR(),
    SklearnLinearSVR(loss="squared_epsilon_insensitive", dual=True),
    Ridge(),
    KernelRidge(kernel="rbf"),
    LinearSVC(),
    LinearSVC("hinge"),
    KernelSVC(),
    SVC(),
    SklearnLinearSVC(),
    LogisticRegression(),
    make_pipeline(StandardScaler(), SVC()),
]


def target(estimator):
    return LABELS if is_classifier(estimator) else y


def name(estimator):
    return repr(estimator)[:60].replace("\n", "")


def there_and_back(path, estimator, rows):
    save_model(path, estimator, COLUMNS, "y")
    back = load_model(path).estimator
    got, wanted = back.predict(rows), estimator.predict(rows)
    if wanted.dtype.kind == "U":
        np.testing.assert_array_equal(got, wanted)
    else:  # a product of matrices rounds by where they lie in memory
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)
    return back


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name)
def test_every_estimator_and_search_is_saved_and_predicts_the_same(estimator, tmp_path):
    there_and_back(tmp_path / "m", estimator.fit(X, target(estimator)), X)
    search = BilevelSearchCV(estimator, cv=3, max_iter=2, random_state=0).fit(X, target(estimator))
    back = there_and_back(tmp_path / "m", search, X)
    assert back.result_.to_json() == search.result_.to_json()
    assert isinstance(back.result_.status, Status)
    assert back.result_.summary() == search.result_.summary()
    assert repr(back.best_params_) == repr(search.best_params_)
    assert back.score(X, target(estimator)) == pytest.approx(search.score(X, target(estimator)), rel=1e-12)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", [SVC(), SVR(), LinearSVC(), LinearSVR(), Ridge()], ids=name)
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csr_array])
def test_models_of_sparse_rows(estimator, kind, tmp_path):
    rows = kind(SPARSE)
    there_and_back(tmp_path / "m", estimator.fit(rows, target(estimator)), rows)


def own(rows):
    return rows[:, 0] ** 2


def double(rows):
    return 2 * rows


@pytest.mark.parametrize(
    "estimator",
    [
        SemiparametricSVR([lambda rows: rows[:, 0] ** 2], RBF()),
        SemiparametricSVR({"square": own}, RBF()),
        SemiparametricSVR([("square", own)], RBF()),
        make_pipeline(FunctionTransformer(double), LinearSVR()),
        BilevelSearchCV(LinearSVR(), cv=3, callbacks=[print, lambda record: None]),
        type("Own", (LinearSVR,), {}),
        type("Own", (LinearSVR,), {})(),
        print,
    ],
    ids=["lambda", "mapping", "pair", "transformer", "callbacks", "class", "subclass", "function"],
)
def test_what_could_not_be_loaded_is_refused_when_saving(estimator, tmp_path):
    path = tmp_path / "m"
    path.write_text("before")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(estimator, "fit") and not isinstance(estimator, type):
            estimator = estimator.fit(X, y)
    with pytest.raises(SavingError, match="was not written") as caught:
        save_model(path, estimator, COLUMNS, "y")
    assert "instead of" in caught.value.hint
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_compressed_model_that_is_sound_is_loaded(tmp_path):
    """The bound on what a file may become is far from what models are, also packed once more."""
    path, packed = tmp_path / "m", tmp_path / "p"
    model = KernelSVR().fit(np.zeros((2_000, 50)) + np.arange(2_000)[:, None] % 7, np.arange(2_000.0) % 7)
    save_model(path, model, [f"c{k}" for k in range(50)], "y")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        assert sum(entry.file_size for entry in old.infolist()) < SMALL
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry.filename))
    assert packed.stat().st_size < 0.2 * path.stat().st_size
    rows = np.ones((3, 50))
    np.testing.assert_array_equal(load_model(packed).estimator.predict(rows), model.predict(rows))


def test_a_model_whose_loss_lay_in_another_module_is_loaded(tmp_path):
    new, old = tmp_path / "new.skops", tmp_path / "old.skops"
    save_model(new, LinearSVC(loss=foldwise.losses.Logistic(2.0)).fit(X, LABELS), COLUMNS, "y")
    with zipfile.ZipFile(new) as source, zipfile.ZipFile(old, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename == "schema.json":
                assert b"foldwise.losses.classification" in data
                data = data.replace(b"foldwise.losses.classification", b"foldwise.losses")
            target.writestr(entry, data)
    assert (load_model(old).estimator.predict(X) == load_model(new).estimator.predict(X)).all()


def test_a_sparse_matrix_that_unpacks_without_end(tmp_path):
    """Arrays inside an archive inside the archive count too."""
    path = tmp_path / "m"
    bomb = sp.csr_matrix((1, 1 << 26))
    bomb.data, bomb.indices = np.zeros(1 << 25), np.zeros(1 << 25, np.int32)
    bomb.indptr = np.array([0, 1 << 25], np.int32)
    model = Ridge().fit(X, y)
    model.extra_ = bomb
    with pytest.raises(SavingError, match="was not written"):
        save_model(path, model, COLUMNS, "y")
    assert not path.exists()
    skops.io.dump({"format": FORMAT, "about": "{}", "estimator": model}, path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(SavingError, match="which no model does"):
        load_model(path)
