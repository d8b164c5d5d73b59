"""Data in the place of the two screens of section 9.1, which are not public in the form that was modelled.

What the paper models are potencies from quantitative high-throughput screens (PubChem AID 361, pyruvate kinase, and
AID 1463, tau-fibril), estimated by the authors from the raw curves, on 851 MOE and RECON descriptors. Neither the
estimates nor the descriptors are available, so **no figure of ours can be compared with the published one of the same
row**; what can be compared is how the methods rank and how their times grow.

- Pyruvate kinase: lipophilicity of 4,200 molecules (logD at pH 7.4) on RDKit descriptors, from the data folder. The
  features are treated as in section 9.1: centred at the median, divided by the mean absolute deviation (the median
  one is 0 for descriptors that count rare fragments), clipped to [-5, 5], and reduced to 100 principal components.
  The paper's five quality groups come from two estimates of each potency. Here five groups of equal size are drawn at
  random, and normal noise of standard deviation 0, 0.2, 0.4, 0.6, 0.8 (the label's own is 1.2) is added to their
  labels, in the modelling and in the test set.
- Tau-fibril: no public set of that kind has 10,790 molecules, so it is generated:
  ``foldwise.datasets.make_pca_regression`` with 100 features that decay like principal components and five groups
  with t-distributed noise of sd 0.4 to 1.7.
- Without the data folder, the first set is generated in the same way, with normal noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from foldwise.datasets import make_pca_regression
from papers import frame

__all__ = ["Substitute", "prepare", "pyruvate", "tau"]

N_GROUPS = 5
N_FEATURES = {False: 100, True: 30}
"""Features of a full and of a quick run."""
ADDED_SD = (0.0, 0.2, 0.4, 0.6, 0.8)


@dataclass(frozen=True, eq=False)
class Substitute:
    """Rows with quality groups, and how many serve for modelling and for the test (table 2).

    Attributes
    ----------
    statement : str
        What stands for what, in a sentence for the reader of the output.
    X, y, group : ndarray
    sizes : tuple of int
        Numbers of modelling rows, increasing.
    n_test : int
    """

    statement: str
    X: np.ndarray
    y: np.ndarray
    group: np.ndarray
    sizes: tuple[int, ...]
    n_test: int

    def split(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Modelling and test rows; larger modelling sets contain the smaller ones, the test rows stay."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        return order[:n], order[len(order) - self.n_test :]


def prepare(X: np.ndarray, n_components: int = 100) -> np.ndarray:
    """Section 9.1: median-centred, scaled by the absolute deviation, clipped to [-5, 5], principal components."""
    X = X - np.median(X, axis=0)
    deviation = np.mean(np.abs(X), axis=0)
    X = np.clip(X[:, deviation > 0] / deviation[deviation > 0], -5.0, 5.0)
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return U[:, :n_components] * s[:n_components]


@lru_cache(maxsize=4)
def pyruvate(quick: bool, data_dir: Path | None) -> Substitute:
    """In the place of pyruvate kinase: 2,000 modelling and 1,383 test rows."""
    sizes, n_test = ((100, 200), 300) if quick else ((100, 200, 1000, 2000), 1383)
    loaded = frame.load("lipophilicity", data_dir)
    if loaded is None:
        X, y, _, group = make_pca_regression(
            sizes[-1] + n_test, N_FEATURES[quick], noise="normal", groups=N_GROUPS, seed=361
        )
        statement = (
            "Pyruvate kinase (AID 361) is not public, and lipophilicity.csv.gz was not found (give the data folder): "
            "generated data stand in, features that decay like principal components, five groups with normal "
            "noise of sd 0.4 to 1.7. Compare how the methods rank, not the figures."
        )
        return Substitute(statement, X, y, group, sizes, n_test)
    rng = np.random.default_rng(361)
    keep = rng.permutation(len(loaded[1]))[: sizes[-1] + n_test]
    X = prepare(loaded[0], N_FEATURES[quick])[keep]
    group = rng.permutation(len(keep)) % N_GROUPS
    y = loaded[1][keep] + np.array(ADDED_SD)[group] * rng.standard_normal(len(keep))
    statement = (
        "Pyruvate kinase (AID 361) is not public: lipophilicity stands in (principal components of RDKit "
        "descriptors), five random groups with normal noise of sd 0, 0.2, 0.4, 0.6, 0.8 added to the labels. Compare "
        "how the methods rank, not the figures."
    )
    return Substitute(statement, X, y, group, sizes, n_test)


@lru_cache(maxsize=2)
def tau(quick: bool) -> Substitute:
    """In the place of tau-fibril: 10,000 modelling and 790 test rows."""
    sizes, n_test = ((100, 200), 300) if quick else ((100, 200, 1000, 5000, 10000), 790)
    X, y, _, group = make_pca_regression(
        sizes[-1] + n_test, N_FEATURES[quick], noise="t", groups=N_GROUPS, seed=1463
    )
    statement = (
        "Tau-fibril (AID 1463) is not public and no set of its size and kind is: generated data stand in, features "
        "that decay like principal components, five groups with t-distributed noise of sd 0.4 to 1.7. Compare how the "
        "methods rank and how their times grow, not the figures."
    )
    return Substitute(statement, X, y, group, sizes, n_test)
