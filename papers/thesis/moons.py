"""Figures 5.6 to 5.8: the decision of a kernel machine on two half moons for a wide, a good and a narrow kernel.

The thesis's points are not published. Ours are 200 of scikit-learn's half moons, with noise 0.25 and mapped to [-3, 3].
Noise and scale were chosen so that the best gamma over five folds comes out near the published 1.06. The best c is then
3.2, not 8; the machines of the figures have c = 8, as published.

The thesis draws the decision as a surface; we fill its contours and draw the boundary. What it says holds here: with a
narrow kernel the decision peaks at the data and falls to zero between them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foldwise import RBF, Lin
from papers import frame
from papers.thesis import bikernel

__all__ = ["figure5_6", "figure5_7", "figure5_8", "half_moons"]


def half_moons(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Points in [-3, 3] and labels."""
    from sklearn.datasets import make_moons

    X, label = make_moons(60 if quick else 200, noise=0.25, random_state=0)
    return 3.0 * frame.scale_to_unit(X), np.where(label == 1, 1, -1)


def figure5_6(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Figure 5.6: gamma = 0.49."""
    _figure("5.6", quick, out)


def figure5_7(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Figure 5.7: gamma = 1.06, the best one."""
    _figure("5.7", quick, out)


def figure5_8(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """Figure 5.8: gamma = 1.9998."""
    _figure("5.8", quick, out)


def _figure(name: str, quick: bool, out: Path | None) -> None:
    known = bikernel.known("moons")
    gamma, c = known[f"figure {name}"]["gamma"], known["figure 5.7"]["c"]
    frame.title(f"thesis, figure {name}: two half moons, gamma = {gamma:g}, c = {c:g}")
    X, y = half_moons(quick)
    # 1. The machine of the figure, and the best one over five folds.
    splits = bikernel.five_folds(len(y), 0)
    bilevel = bikernel.program(RBF(1.0), X, y, splits, {"c": Lin(0.01, 100.0), "gamma": Lin(0.01, 100.0)})
    best = bikernel.minimise(bilevel, "lbfgsb", {"c": c, "gamma": 1.0}, tol=1e-8)
    H = 0.5 * bilevel.evaluate(bilevel.space.theta({"c": c, "gamma": gamma})).objective
    model = bikernel.train(RBF(1.0), X, y, {"c": c, "gamma": gamma})
    fit = bikernel.measure(model, X, y)
    # 2. Its decision on a lattice.
    axis = np.linspace(-4.0, 4.0, 25 if quick else 121)
    first, second = np.meshgrid(axis, axis)
    z = model.decision_function(np.column_stack([first.ravel(), second.ravel()])).reshape(first.shape)
    faint = float(np.mean(np.abs(z) < 0.1))
    print()
    frame.print_table(
        ["", "gamma", "c", "H over five folds", "CR, %", "share of the plane with |f| < 0.1"],
        [
            [
                "the figure's machine (published values)",
                f"{gamma:g}",
                f"{c:g}",
                f"{H:.4f}",
                f"{fit['CR']:.1f}",
            ]
            + [f"{faint:.2f}"],
            ["published best", f"{known['figure 5.7']['gamma']:g}", f"{c:g}", "-", "-", "-"],
            [
                "our best over five folds",
                f"{best.params['gamma']:.3f}",
                f"{best.params['c']:.3f}",
                f"{0.5 * best.objective:.4f}",
                "-",
                "-",
            ],
        ],
    )
    frame.note(
        "The thesis's points are not published: scikit-learn's half moons, mapped to [-3, 3], stand in; noise and "
        "scale were chosen so that the best gamma is near the published one."
    )
    with frame.figure(out, f"thesis-figure{name}") as panels:
        if panels is not None:
            (panel,) = panels
            filled = panel.contourf(
                first, second, z, levels=np.linspace(-1.6, 1.6, 17), cmap="RdBu", extend="both"
            )
            panel.figure.colorbar(filled, ax=panel, label="f")
            panel.contour(first, second, z, levels=[0.0], colors="black")
            for sign, colour in ((-1, "darkred"), (1, "darkblue")):
                panel.plot(*X[y == sign].T, ".", color=colour, markersize=4)
            panel.set(title=f"gamma = {gamma:g}, c = {c:g}", xlabel="x1", ylabel="x2")
    rows: list[dict[str, Any]] = [
        {"x1": float(a), "x2": float(b), "f": float(f)}
        for a, b, f in zip(first.ravel(), second.ravel(), z.ravel(), strict=True)
    ]
    frame.write_csv(out, f"thesis-figure{name}", rows)


if __name__ == "__main__":
    for _figure_run in (figure5_6, figure5_7, figure5_8):
        frame.command(_figure_run)
