r"""Chapter 6: images. Exponential chi-squared against RBF kernels, one machine for each class against the rest.

MNIST: 300 training and 300 test images of every digit, raw pixels, five folds, (c, gamma) selected for each digit by
itself. The published rates are in figures only, not in the text. The thesis starts at gamma = 1 with the pixels as
they are. That is a plateau: even with pixels in [0, 1] typical chi-squared distances are above 100, the kernel matrix
is the identity, H is 0.5 and its gradient zero to rounding. We use pixels in [0, 1] (which rescales gamma only) and
start at gamma = 1 / (median distance), with the thesis's c = 10, by Newton's method on the logarithms: first on 100
images of each digit, then on all 300 from there. Evaluations are dear (five machines of 2,400 rows each), and
L-BFGS-B needs twice as many.

Caltech-101: the thesis has bags of visual words, 30 training and 15 test images of ten classes. The data folder has
HOG features of 30 images of each class without the background class, so ours are 20 training and 10 test images of
the first ten classes by name (nine of them are the thesis's, bass takes the place of the background). The features
are others, so only the comparison of kernels, and of the search with the thesis's grid of c and gamma in {0.5, 1,
1.5, 2}, can be read. The one published matrix that the text holds, with a mean rate of 78.67%, stands between the
caption of the search and that of the grid; as captions follow their figures, we take it for the grid's.

What comes out: on MNIST the chi-squared kernel has a lower Hmin than the RBF for each of the ten digits (on average
0.052 and 0.055), but the rates on test images, 95.6 and 95.5%, differ by four of 3,000 images; on Caltech-101 they are
76 and 69% (five splits). The search is ahead of the thesis's grid there (69%), but that grid was laid out for other
features: the best gamma here, 0.1, is outside of it. Both orders are the thesis's.

Graz02 is left out: we have no public copy of it, nor of the features that the thesis made of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import additive_chi2_kernel

from foldwise import Log
from foldwise.kernels import DistancePairs, Kernel, squared_distances
from papers import frame
from papers.thesis import bikernel

__all__ = ["run"]

BOUNDS = (0.01, 1000.0)
GRID = (0.5, 1.0, 1.5, 2.0)


def chi_squared(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """``sum_d (a_d - b_d)^2 / (a_d + b_d)``."""
    return -additive_chi2_kernel(A, B)


DISTANCES = {"exponential chi-squared": chi_squared, "RBF": squared_distances}


class Stored(Kernel):
    """``exp(-gamma D)`` for distances computed before; the one column of ``X`` numbers rows of ``D``.

    All machines of a data set share the distances, which cost more than some of the searches.
    """

    def __init__(self, D=None, gamma=1.0):
        self.D = D
        self.gamma = gamma

    def parameters(self, d):
        return {"gamma": np.array([float(self.gamma)])}

    def pairs(self, X, U=None):
        rows = X[:, 0].astype(int)
        others = rows if U is None else U[:, 0].astype(int)
        return DistancePairs(self.D[np.ix_(rows, others)])

    def __call__(self, X, Z):
        return np.exp(-float(self.gamma) * self.D[np.ix_(X[:, 0].astype(int), Z[:, 0].astype(int))])

    def diagonal(self, X):
        return np.ones(len(X))


def pick(label: np.ndarray, classes, counts: tuple[int, ...], seed: int) -> list[np.ndarray]:
    """Row numbers of several parts that do not overlap, each with so many random rows of every class."""
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in counts]
    for k in classes:
        rows = rng.permutation(np.flatnonzero(label == k))
        for part, first, count in zip(parts, np.cumsum((0, *counts)), counts, strict=False):
            part.append(rows[first : first + count])
    return [np.concatenate(part) for part in parts]


def one_vs_rest(
    distance,
    X: np.ndarray,
    label: np.ndarray,
    test: tuple[np.ndarray, np.ndarray],
    small: int,
    plan: dict | None,
) -> dict[str, Any]:
    """Select, train and test a machine for every class; the mean of the classes' rates and the confusion matrix.

    ``small`` rows are searched first, where that is fewer than all. ``plan`` is a grid in place of the search.
    """
    rng = np.random.default_rng(0)
    order = rng.permutation(len(label))
    X, label = X[order], label[order]
    D = np.vstack([distance(X, X), distance(test[0], X)])
    n, classes = len(label), np.unique(label)
    numbers = np.arange(len(D), dtype=float)[:, None]
    typical = 1.0 / float(np.median(D[:n]))
    dimensions = {"c": Log(*BOUNDS), "gamma": Log(1e-3 * typical, 1e3 * typical)}
    if plan is not None:
        dimensions["gamma"] = Log(min(plan["gamma"]), max(plan["gamma"]))
    z = np.empty((len(test[1]), len(classes)))
    H, points = [], []
    for k, name in enumerate(classes):
        y = np.where(label == name, 1, -1)
        start = {"c": 10.0, "gamma": typical}
        for size in (small, n) if small < n and plan is None else (n,):
            bilevel = bikernel.program(
                Stored(D), numbers[:size], y[:size], bikernel.five_folds(size, 0), dimensions
            )
            if plan is None:
                result = bikernel.minimise(bilevel, "newton", start, tol=1e-3)
            else:
                result = bikernel.minimise(bilevel, "grid", {}, values=plan)
            start = result.params
        model = bikernel.train(Stored(D), numbers[:n], y, result.params)
        z[:, k] = model.decision_function(numbers[n:])
        H.append(0.5 * result.objective)
        points.append(result.params)
    guess = classes[z.argmax(axis=1)]
    confusion = np.array([[np.mean(guess[test[1] == a] == b) for b in classes] for a in classes])
    return {
        "CR": 100.0 * float(np.mean(np.diag(confusion))),
        "by_class": 100.0 * np.diag(confusion),
        "H_min": float(np.mean(H)),
        "c": float(np.median([point["c"] for point in points])),
        "gamma": float(np.median([point["gamma"] for point in points])),
        "confusion": confusion,
    }


def digits(quick: bool, data_dir: Path | None) -> tuple[tuple, tuple, str]:
    """Training and test images with pixels in [0, 1], and what they are."""
    count = 30 if quick else 300
    train, test = (frame.load(f"mnist_{part}", data_dir) for part in ("train", "test"))
    if train is not None and test is not None:
        parts = []
        for seed, (X, y) in enumerate((train, test)):
            (rows,) = pick(y, range(10), (count,), seed)
            parts.append((X[rows] / 255.0, y[rows].astype(int)))
        return (
            parts[0],
            parts[1],
            f"Data: MNIST, {count} training and {count} test images of every digit, raw pixels.",
        )
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    count = 20 if quick else 80
    first, second = pick(y, range(10), (count, count), 0)
    statement = (
        "mnist_train.csv.gz and mnist_test.csv.gz were not found (give the data folder): scikit-learn's 8 by 8 digits "
        f"stand in, {count} training and {count} test images of each. The figures cannot be compared."
    )
    return (X[first] / 16.0, y[first]), (X[second] / 16.0, y[second]), statement


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """The image experiments, beside the one published rate that the text holds."""
    frame.title("thesis, chapter 6: images, chi-squared against RBF kernels")
    rows: list[dict[str, Any]] = []
    matrices = {}
    train, test, statement = digits(quick, data_dir)
    frame.note(statement)
    lines = []
    for name, distance in DISTANCES.items():
        found = one_vs_rest(distance, *train, test, len(train[1]) // 3, None)
        matrices[f"digits, {name}"] = found["confusion"]
        lines.append(_line(name, "-", found))
        rows.append(_row("digits", name, None, found))
    print()
    columns = ["digits", "published rate, %", "ours, %", "mean Hmin", "median c", "median gamma"]
    frame.print_table(columns, lines)
    frame.note("The published rates for MNIST are in a figure only.")
    images = frame.load("caltech101_hog", data_dir)
    known = bikernel.known("6.2")["grid"]["CR"]
    if images is None:
        frame.note(
            "Caltech-101 is left out: caltech101_hog.csv.gz was not found, and scikit-learn ships nothing like it."
        )
    else:
        seeds = range(1 if quick else 5)
        lines = []
        for name, distance, plan, figure in (
            ("exponential chi-squared, search", chi_squared, None, None),
            ("exponential chi-squared, grid", chi_squared, {"c": GRID, "gamma": GRID}, known),
            ("RBF, search", squared_distances, None, None),
        ):
            several = [_caltech(images, distance, plan, seed) for seed in seeds]
            found = {
                key: float(np.mean([one[key] for one in several])) for key in ("CR", "H_min", "c", "gamma")
            }
            lines.append(_line(name, "-" if figure is None else f"{figure:.2f}", found))
            rows.append(_row("Caltech-101", name, figure, found))
        print()
        frame.print_table(["Caltech-101, ten classes", *columns[1:]], lines)
        frame.note(
            f"Means over {len(seeds)} random splits into 20 training and 10 test images of each class. HOG features, "
            "not the thesis's bags of words, and no background class (which the published grid gets right in 13% "
            "of the cases; without it its mean is 85.9%): the rates cannot be compared with the published one."
        )
    frame.note("Graz02 is left out: there is no public copy of it to use.")
    with frame.figure(out, "thesis-chapter6", panels=len(matrices)) as panels:
        if panels is not None:
            for panel, (name, matrix) in zip(panels, matrices.items(), strict=True):
                panel.imshow(matrix, cmap="Blues", vmin=0.0, vmax=1.0)
                panel.set(
                    title=f"{name}: {100 * np.mean(np.diag(matrix)):.1f}%", xlabel="predicted", ylabel="true"
                )
    frame.write_csv(out, "thesis-chapter6", rows)


def _caltech(images: tuple[np.ndarray, np.ndarray], distance, plan: dict | None, seed: int) -> dict[str, Any]:
    X, y = images
    first, second = pick(y, range(1, 11), (20, 10), seed)
    return one_vs_rest(distance, X[first], y[first], (X[second], y[second]), len(first), plan)


def _line(name: str, figure: str, found: dict[str, Any]) -> list[str]:
    return [
        name,
        figure,
        f"{found['CR']:.2f}",
        f"{found['H_min']:.4f}",
        f"{found['c']:.3g}",
        f"{found['gamma']:.3g}",
    ]


def _row(data: str, name: str, figure: float | None, found: dict[str, Any]) -> dict[str, Any]:
    out = {"data": data, "method": name, "published_CR": figure, "ours_CR": found["CR"]}
    out |= {key: found[key] for key in ("H_min", "c", "gamma")}
    if "by_class" in found:
        out |= {f"CR_{k}": float(rate) for k, rate in enumerate(found["by_class"])}
    return out


if __name__ == "__main__":
    frame.command(run)
