"""Derivatives of training problems and of the cross-validation error, against central differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from foldwise.bilevel import Bilevel, Evaluation
from foldwise.problems.dual import DualProblem
from foldwise.space import Space
from foldwise.testing.comparison import close, require
from foldwise.testing.losses import distances

__all__ = ["check_hypergradient", "check_hyperhessian", "check_problem"]


def check_problem(problem: Any, theta: np.ndarray, *, seed: int = 0) -> None:
    """Check a smooth linear problem at ``theta`` and random weights.

    ``grad`` against differences of ``objective``, ``hess`` of ``grad`` in the weights, and the linearization's mixed
    derivative of ``grad`` in ``theta``; that what hypergradients use agrees with all of them.

    Parameters
    ----------
    problem : LinearProblem
    theta : ndarray
        A point inside the bounds.
    seed : int

    Examples
    --------
    >>> from foldwise.losses import Logistic
    >>> from foldwise.testing import small_bilevel
    >>> bilevel, theta = small_bilevel(Logistic(), Logistic())
    >>> check_problem(bilevel.problems[0], theta)
    """
    rng = np.random.default_rng(seed)
    theta = np.asarray(theta, float)
    M, D, h = problem.n_tasks, problem.n_columns, 1e-6
    W, U = 0.7 * rng.normal(size=(M, D)), rng.normal(size=(M, D))
    for _ in range(50):
        if _kink_distance(problem, W, theta) > 10 * h * np.max(np.abs(_rows(problem)), initial=1.0):
            break
        W = 0.7 * rng.normal(size=(M, D))
    else:
        raise AssertionError("every draw of weights puts a row next to a kink; use fewer rows")
    # 1. Derivatives in the weights; tasks are separate, so one column of all tasks moves at a time.
    par = problem.parameters(theta)
    grad, hess = problem.grad(W, par), problem.hess(W, par)
    require(problem.objective(W, par).shape == (M,), "objective needs one number per task")
    require(hess.shape == (M, D, D), f"hess has shape {hess.shape}; it needs {(M, D, D)}")
    slope, curvature = np.zeros((M, D)), np.zeros((M, D, D))
    for i in range(D):
        step = np.zeros(D)
        step[i] = h
        slope[:, i] = (problem.objective(W + step, par) - problem.objective(W - step, par)) / (2 * h)
        curvature[:, :, i] = (problem.grad(W + step, par) - problem.grad(W - step, par)) / (2 * h)
    close(grad, slope, 1e-7, "grad", floor=1e-3)
    close(hess, curvature, 1e-7, "hess", floor=1e-3)
    close(hess, hess.transpose(0, 2, 1), 1e-13, "hess: symmetry")
    require(
        np.linalg.eigvalsh(hess).min() >= -1e-10 * np.abs(hess).max(), "hess is not positive semidefinite"
    )
    # 2. The mixed derivative.
    mixed = np.zeros(len(theta))
    for i, step in enumerate(np.diag(_steps(problem.parameters.space, theta, 1e-6))):
        above, below = problem.parameters(theta + step), problem.parameters(theta - step)
        change = problem.grad(W, above) - problem.grad(W, below)
        mixed[i] = np.sum(U * change) / (2 * step[i])
    response = problem.linearize(problem.at(W, theta), problem.workspace())
    close(par.pull(response.contract(U)), mixed, 1e-7, "contract", floor=1e-3)
    # 3. The same quantities as solvers and hypergradients use them.
    cross = response.cross()
    require(cross.shape == (M, D, len(theta)), f"cross has shape {cross.shape}")
    close(np.einsum("md,mdp->p", U, cross), mixed, 1e-7, "cross")
    close(np.matmul(hess, response.solve(U[:, :, None])), U[:, :, None], 1e-7, "hess times solve")
    # 4. Decisions on the user's rows.
    coef, bias = problem.design.to_user(W)
    there = (_rows(problem) @ coef.T + bias).T
    close(there, problem.design.decisions(W), 1e-10, "decisions", floor=1e-3)


def _rows(problem: Any) -> np.ndarray:
    """The rows of the problem as the user gave them."""
    design = problem.design
    return design.dense()[:, : design.n_features] * design.scale + design.shift


def _kink_distance(problem: Any, W: np.ndarray, theta: np.ndarray) -> float:
    """Distance of the nearest decision to a kink of the training loss."""
    return float(np.abs(_kink_sides(problem, problem.design.decisions(W), theta)).min())


def _kink_sides(problem: Any, Z: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Signed distances of the decisions to every kink, shape (kinks, tasks, rows); far away where there is none."""
    loss, y = problem.loss_at(problem.parameters(theta)), np.broadcast_to(problem.targets(), Z.shape)
    return np.stack([*distances(loss, Z, y), np.full(Z.shape, np.inf)])


def _steps(space: Space, theta: np.ndarray, size: float) -> np.ndarray:
    """Difference steps: absolute on log scales, relative on linear ones."""
    relative = np.concatenate([np.full(b.size, b.scale == "log") for b in space.blocks])
    return size * np.where(relative, 1.0, np.maximum(np.abs(theta), 1e-2))


def check_hypergradient(
    bilevel: Bilevel, theta: np.ndarray, *, rtol: float = 1e-6, floor: float = 1e-4
) -> None:
    """Check the gradient of the cross-validation error against central differences of its value.

    Parameters
    ----------
    bilevel : Bilevel
        With a solver that is accurate to about 1e-11.
    theta : ndarray
        A point inside the bounds. Steps shrink until no row crosses a kink between the two evaluations.
    rtol : float
    floor : float
        The difference quotients must exceed this, so that the comparison means something.

    Examples
    --------
    >>> from foldwise.losses import Logistic, SquaredHinge
    >>> from foldwise.testing import small_bilevel
    >>> check_hypergradient(*small_bilevel(SquaredHinge(), Logistic()))
    """
    here = bilevel.differentiate(bilevel.evaluate(theta))
    numeric = [(up.objective - down.objective) / width for up, down, width in _differences(bilevel, here)]
    close(here.gradient, numeric, rtol, "hypergradient", floor)


def check_hyperhessian(
    bilevel: Bilevel, theta: np.ndarray, *, rtol: float = 1e-5, floor: float = 1e-4
) -> None:
    """Check the exact hyper-Hessian against central differences of hypergradients.

    For losses with kinks the check is of the matrix without the window that stands for rows about to change piece:
    no row changes piece between the two evaluations, so the differences do not see that part.

    Parameters
    ----------
    bilevel, theta, rtol, floor
        As in :func:`check_hypergradient`; the criterion needs a second derivative.

    Examples
    --------
    >>> from foldwise.losses import Logistic
    >>> from foldwise.space import Log
    >>> from foldwise.testing import small_bilevel
    >>> check_hyperhessian(*small_bilevel(Logistic(), Logistic(), {"lam": Log(1e-3, 1e3, per="feature")}))
    """
    require(bilevel.criterion.smooth, f"{type(bilevel.criterion).__name__} has no second derivative")
    here = bilevel.differentiate(bilevel.evaluate(theta), order=2)
    assert here.gradient is not None
    hessian = here.hessian
    if any(problem.loss.piecewise_quadratic for problem in bilevel.problems):
        hessian = (
            np.diag(bilevel.solutions(here)[0].par.scale_curvature * here.gradient)
            + bilevel.second_order(here, window=None)[0]
        )
    rows = []
    for up, down, width in _differences(bilevel, here):
        upper, lower = bilevel.differentiate(up).gradient, bilevel.differentiate(down).gradient
        assert upper is not None
        assert lower is not None
        rows.append((upper - lower) / width)
    close(hessian, rows, rtol, "hyper-Hessian", floor)


def _differences(bilevel: Bilevel, here: Evaluation) -> Iterator[tuple[Evaluation, Evaluation, float]]:
    """For every entry of theta: evaluations on both sides with no row crossing a kink, and their distance."""
    require(not bilevel.space.at_bound(here.theta), "differences need a point inside the bounds")
    sides = _sides(bilevel, here)
    for i in range(len(here.theta)):
        for size in (2e-5, 5e-6, 2e-6):
            step = np.zeros(len(here.theta))
            step[i] = _steps(bilevel.space, here.theta, size)[i]
            up, down = (bilevel.evaluate(here.theta + sign * step, here) for sign in (1, -1))
            if np.array_equal(_sides(bilevel, up), sides) and np.array_equal(_sides(bilevel, down), sides):
                break
        else:
            raise AssertionError(f"a row crosses a kink along {bilevel.space.names[i]}; choose another theta")
        yield up, down, float(up.theta[i] - down.theta[i])


def _sides(bilevel: Bilevel, evaluation: Evaluation) -> np.ndarray:
    """On which side of every kink each training and each validation row lies, or on which kinks."""
    out = []
    for problem, point in zip(bilevel.problems, bilevel.solutions(evaluation), strict=True):
        if isinstance(problem, DualProblem):  # free rows sit on the kink; what matters is which rows do
            out += [kind.ravel().astype(float) for kind in problem.kinds(point.alpha, point.par)]
        else:
            out.append(np.sign(_kink_sides(problem, point.decisions, evaluation.theta)).ravel())
        for _, _, z, y, _ in problem.validation(point):
            if bilevel.criterion.loss is not None:
                out += [np.sign(distance) for distance in distances(bilevel.criterion.loss, z, y)]
    return np.concatenate(out)
