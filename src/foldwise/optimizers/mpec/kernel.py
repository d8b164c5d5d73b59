r"""The kernel form: support vector classification with a Gaussian kernel whose scales are hyper-parameters.

Problem (16) of kunapuli2008 with the kernel (17), ``k(x, z) = exp(-sum_d p_d (x_d - z_d)^2)``: a feature with
``p_d = 0`` is out. The variables are ``C``, ``p`` and, for every fold, multipliers ``beta`` in ``[0, C]`` (the paper's
``C alpha``), the intercept, and the parts of the margins. Rows of a fold hold

.. math::  s_j - e_j - y_j \Big(\sum_k y_k \beta_k \, k(x_j, x_k; p) + b\Big) = -1 ,

the only terms that are not bilinear; their derivatives are exact too. The Jacobian has a dense block of training by
training rows for every fold, so this is for small sets: see ``MAX_ROWS``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from foldwise.optimizers.mpec.backends import BACKENDS, PRESETS, load_package, solve
from foldwise.optimizers.mpec.certificate import certify
from foldwise.optimizers.mpec.formulation import PARKED, Task
from foldwise.optimizers.mpec.mpcc import Builder, Mpcc
from foldwise.optimizers.mpec.nlp import QuadraticProgram, piece, relax
from foldwise.optimizers.mpec.solve import Stage

__all__ = [
    "KernelAnswer",
    "KernelChoice",
    "KernelDescription",
    "KernelFormulation",
    "KernelProgram",
    "solve_kernel_mpec",
]

MOST = 1_000_000
"""Iterations of LIBSVM for one training problem: with a large C its tolerance may be out of reach."""
MAX_ROWS = 240
"""Training rows over all folds beyond which a program is refused: 120 rows in three folds."""


@dataclass(eq=False)
class KernelDescription:
    """The kernel program in arrays.

    Parameters
    ----------
    tasks : sequence of Task
    criterion : {"hinge", "misclassification"}
    C, p : (lower, upper)
        Bounds of ``C`` and of every scale ``p_d``.
    """

    tasks: Sequence[Task]
    criterion: str = "hinge"
    C: tuple[float, float] = (1e-2, 1e3)
    p: tuple[float, float] = (0.0, 10.0)

    def __post_init__(self) -> None:
        if self.criterion not in ("hinge", "misclassification"):
            raise ValueError(f"criterion must be 'hinge' or 'misclassification'; got {self.criterion!r}")
        if not self.tasks:
            raise ValueError("a program needs at least one task; got none")
        if not 0 < self.C[0] <= self.C[1]:
            raise ValueError(f"C must have bounds 0 < lower <= upper; got {self.C!r}")
        if not 0 <= self.p[0] <= self.p[1]:
            raise ValueError(f"p must have bounds 0 <= lower <= upper; got {self.p!r}")
        for task in self.tasks:
            if task.cost is None:
                task.cost = np.full(len(task.y_val), 1.0 / (len(self.tasks) * len(task.y_val)))

    @property
    def d(self) -> int:
        """Number of features."""
        return self.tasks[0].X.shape[1]


@dataclass(eq=False)
class KernelChoice:
    """Hyper-parameters: ``C`` and one scale per feature."""

    C: float
    p: np.ndarray


@dataclass(eq=False)
class KernelAnswer:
    """The outcome: as :class:`~foldwise.optimizers.mpec.solve.Answer`, for a kernel machine."""

    choice: KernelChoice
    objective: float
    claimed: float
    gap: float
    status: str
    detail: str
    certificate: dict[str, Any]
    stages: list[Stage] = field(default_factory=list)
    elapsed: float = 0.0

    @property
    def n_features(self) -> int:
        """Features whose scale is not zero."""
        return int(np.sum(self.choice.p > 0))


@dataclass(eq=False)
class _Block:
    """A fold's columns and rows, and squared differences of its (training, then validation) rows to training rows."""

    beta: np.ndarray
    b: np.ndarray
    excess: np.ndarray
    slack: np.ndarray
    outer: dict[str, np.ndarray]
    rows: np.ndarray
    coef: np.ndarray
    squares: np.ndarray


class KernelFormulation:
    """A kernel description as variables, rows and pairs; ``unit`` is a typical ``C``, the unit of multipliers."""

    def __init__(self, description: KernelDescription, unit: float = 1.0) -> None:
        D = self.description = description
        self.unit = unit
        builder = Builder()
        self.strength = builder.variables(1, D.C[0] / unit, D.C[1] / unit)
        self.p = builder.variables(D.d, *D.p)
        self.blocks = [self._fold(builder, t, task) for t, task in enumerate(D.tasks)]
        self.mpcc: Mpcc = builder.build()

    def _fold(self, builder: Builder, t: int, task: Task) -> _Block:
        n, m = len(task.y), len(task.y_val)
        beta = builder.variables(n)
        b = builder.variables(1, -np.inf)
        excess, slack = builder.variables(n), builder.variables(n)
        margin = [(slack, 1.0), (excess, -1.0), (b[0], -task.y)]
        rows = builder.rows(n, margin, -1.0, -1.0)
        room = [(self.strength[0], 1.0), (beta, -1.0)]
        builder.rows(n, room, 0.0, np.inf)
        builder.rows(1, [], 0.0, 0.0, matrix=(task.y[None].astype(float), beta))
        builder.pairs(n, [(beta, 1.0)], [(slack, 1.0)], t)
        builder.pairs(n, [(excess, 1.0)], room, t)
        if self.description.criterion == "hinge":
            miss = builder.variables(m, cost=task.cost)
            outer = {"miss": miss}
            edge = builder.rows(m, [(miss, 1.0), (b[0], task.y_val)], 1.0, np.inf)
        else:
            wrong = builder.variables(m, 0.0, 1.0, cost=task.cost)
            short, right = builder.variables(m), builder.variables(m)
            outer = {"wrong": wrong, "short": short, "right": right}
            edge = builder.rows(m, [(short, 1.0), (right, -1.0), (b[0], task.y_val)], 0.0, 0.0)
            builder.pairs(m, [(wrong, 1.0)], [(right, 1.0)], t)
            builder.pairs(m, [(short, 1.0)], [(wrong, -1.0)], t, h0=1.0)
        every = np.vstack([task.X, task.X_val])
        squares = (every[:, None, :] - task.X[None, :, :]) ** 2
        coef = np.concatenate([-task.y, task.y_val]) * self.unit
        return _Block(beta, b, excess, slack, outer, np.concatenate([rows, edge]), coef, squares)

    def encode(self, choice: KernelChoice, machines: Sequence[tuple[np.ndarray, float]]) -> np.ndarray:
        """The point of the program where the machines are these ``(beta, b)``."""
        x = np.zeros(self.mpcc.n)
        x[self.strength], x[self.p] = choice.C / self.unit, choice.p
        for task, block, (beta, b) in zip(self.description.tasks, self.blocks, machines, strict=True):
            n = len(task.y)
            z = np.exp(-block.squares @ choice.p) @ (task.y * beta) + b
            margin = task.y * z[:n] - 1.0
            x[block.beta], x[block.b] = beta / self.unit, b
            x[block.slack], x[block.excess] = np.maximum(margin, 0), np.maximum(-margin, 0)
            reach = task.y_val * z[n:]
            if "miss" in block.outer:
                x[block.outer["miss"]] = np.maximum(1.0 - reach, 0.0)
            else:
                x[block.outer["short"]], x[block.outer["right"]] = np.maximum(-reach, 0), np.maximum(reach, 0)
                x[block.outer["wrong"]] = reach <= 0
        return np.clip(x, self.mpcc.lower, self.mpcc.upper)

    def decode(self, x: np.ndarray) -> KernelChoice:
        """The hyper-parameters at ``x``, within their bounds."""
        D = self.description
        return KernelChoice(float(np.clip(self.unit * x[self.strength[0]], *D.C)), np.clip(x[self.p], *D.p))

    def relax(self, tol: float) -> KernelProgram:
        """The relaxed program: the product of every pair is at most ``tol``."""
        return KernelProgram(self, relax(self.mpcc, tol))


class KernelProgram:
    """A relaxed program with the kernel's terms; the members that a back-end asks of a :class:`QuadraticProgram`."""

    def __init__(self, formulation: KernelFormulation, base: QuadraticProgram) -> None:
        self.base, self.formulation = base, formulation
        self.n, self.m = base.n, base.m
        self.lower, self.upper = base.lower, base.upper
        self.row_lower, self.row_upper = base.row_lower, base.row_upper
        self.objective, self.gradient = base.objective, base.gradient
        d, p = len(formulation.p), formulation.p
        jr, jc, hr, hc = (
            [base.jacobian_rows],
            [base.jacobian_columns],
            [base.hessian_rows],
            [base.hessian_columns],
        )
        first, second = np.tril_indices(d)
        hr.append(p[first])
        hc.append(p[second])
        for block in formulation.blocks:
            columns = np.concatenate([block.beta, p])
            jr.append(np.repeat(block.rows, len(columns)))
            jc.append(np.tile(columns, len(block.rows)))
            hr.append(np.repeat(block.beta, d))  # beta comes after p, so this is the lower triangle
            hc.append(np.tile(p, len(block.beta)))
        self.jacobian_rows, self.jacobian_columns = np.concatenate(jr), np.concatenate(jc)
        self.hessian_rows, self.hessian_columns = np.concatenate(hr), np.concatenate(hc)
        self._triangle = first, second

    def _kernels(self, x: np.ndarray) -> list[tuple[_Block, np.ndarray, np.ndarray]]:
        F = self.formulation
        out = []
        for task, block in zip(F.description.tasks, F.blocks, strict=True):
            out.append((block, np.exp(-block.squares @ x[F.p]), task.y * x[block.beta]))
        return out

    def constraints(self, x: np.ndarray) -> np.ndarray:
        """Values of the rows."""
        c = self.base.constraints(x)
        for block, K, signed in self._kernels(x):
            c[block.rows] += block.coef * (K @ signed)
        return c

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """Values of the Jacobian on its pattern."""
        parts = [self.base.jacobian(x)]
        F = self.formulation
        for task, (block, K, signed) in zip(F.description.tasks, self._kernels(x), strict=True):
            by_beta = block.coef[:, None] * K * task.y
            by_p = -block.coef[:, None] * np.einsum("rk,rkd->rd", K * signed, block.squares)
            parts.append(np.hstack([by_beta, by_p]).ravel())
        return np.concatenate(parts)

    def hessian(self, x: np.ndarray, sigma: float, y: np.ndarray) -> np.ndarray:
        """Values of the Hessian of ``sigma f + y'c`` on its lower triangle."""
        F = self.formulation
        d = len(F.p)
        scales, crosses = np.zeros((d, d)), []
        for task, (block, K, signed) in zip(F.description.tasks, self._kernels(x), strict=True):
            weight = (y[block.rows] * block.coef)[:, None] * K
            scales += np.einsum(
                "rk,rkd,rke->de", weight * signed, block.squares, block.squares, optimize=True
            )
            crosses.append((-task.y[:, None] * np.einsum("rk,rkd->kd", weight, block.squares)).ravel())
        return np.concatenate([self.base.hessian(x, sigma, y), scales[self._triangle], *crosses])

    def infeasibility(self, x: np.ndarray) -> float:
        """Largest violation of a row or a bound."""
        c = self.constraints(x)
        parts = (self.row_lower - c, c - self.row_upper, self.lower - x, x - self.upper)
        return float(max(np.max(part, initial=0.0) for part in parts))


class KernelEvaluator:
    """Trains every fold by LIBSVM at given hyper-parameters: the true objective; remembers the best choice."""

    def __init__(self, description: KernelDescription) -> None:
        self.description = description
        self.n_evaluations = 0
        self.best: tuple[float, KernelChoice] | None = None

    def __call__(self, choice: KernelChoice) -> tuple[float, list[tuple[np.ndarray, float]]]:
        """The true objective and the machines ``(beta, b)``."""
        from sklearn.svm import SVC

        D, value, machines = self.description, 0.0, []
        for task in D.tasks:
            squares = lambda A, B=task.X: ((A[:, None, :] - B[None]) ** 2) @ choice.p  # noqa: E731
            machine = SVC(C=choice.C, kernel="precomputed", tol=1e-9, max_iter=MOST, cache_size=50)
            machine.fit(np.exp(-squares(task.X)), task.y)
            beta = np.zeros(len(task.y))
            beta[machine.support_] = np.abs(machine.dual_coef_[0])
            z = machine.decision_function(np.exp(-squares(task.X_val)))
            margin = task.y_val * z
            error = (
                np.maximum(1.0 - margin, 0.0) if D.criterion == "hinge" else (margin <= PARKED).astype(float)
            )
            value += float(task.cost @ error)
            machines.append((beta, float(machine.intercept_[0])))
        self.n_evaluations += 1
        if self.best is None or value < self.best[0]:
            self.best = (value, choice)
        return value, machines


def solve_kernel_mpec(
    description: KernelDescription,
    *,
    backend: str = "ipopt",
    preset: str = "filtersqp",
    tol: float = 1e-6,
    first_tol: float = 1e-3,
    start: KernelChoice | None = None,
    max_iter: int = 500,
    max_time: float | None = None,
    max_rows: int = MAX_ROWS,
    on_stage: Callable[[Stage, KernelChoice], Any] | None = None,
) -> KernelAnswer:
    """Cross-validation of a Gaussian kernel machine as one program, with a homotopy on complementarity.

    Parameters
    ----------
    description : KernelDescription
    backend, preset, tol, max_iter, max_time
        See :func:`~foldwise.optimizers.mpec.solve.solve_mpec`.
    first_tol : float
        Of complementarity at the beginning. With 0.1 the first program all but ignores the machines and forgets the
        start: of four small examples two ended in worse minima than with 1e-3, and one at times in another minimum.
    start : KernelChoice, optional
        By default the best of a grid on ``C`` and a common scale.
    max_rows : int
        Refuse more training rows over all folds.
    on_stage : callable(Stage, KernelChoice), optional

    Returns
    -------
    KernelAnswer
    """
    D = description
    total = sum(len(task.y) for task in D.tasks)
    if total > max_rows:
        raise ValueError(
            f"{total} training rows over {len(D.tasks)} folds, more than max_rows={max_rows}: the kernel program has a "
            "dense block for every fold. Use BilevelSearchCV(KernelSVC(kernel=RBF(ard=True))), which follows gradients"
        )
    for name, given, valid in (("backend", backend, tuple(BACKENDS)), ("preset", preset, PRESETS)):
        if given not in valid:
            raise ValueError(f"unknown {name} {given!r}; use one of: {', '.join(valid)}")
    load_package({"uno": "unopy", "ipopt": "ipyopt"}[backend])
    began = time.perf_counter()
    deadline = None if max_time is None else began + max_time
    evaluate = KernelEvaluator(D)
    choice = start or _grid(evaluate)
    value, machines = evaluate(choice)
    F = KernelFormulation(D, unit=choice.C)
    x, y, duals = F.encode(choice, machines), None, None
    stages: list[Stage] = []
    outcome = None
    first_tol = max(first_tol, tol)
    for level in np.maximum(first_tol * 0.1 ** np.arange(1 + round(np.log10(first_tol / tol))), tol):
        outcome = solve(
            F.relax(float(level)),
            x,
            y,
            backend=backend,
            preset=preset,
            max_iter=max_iter,
            deadline=deadline,
            bound_duals=duals,
        )
        x, y, duals = outcome.x, outcome.y, outcome.bound_duals
        true, _ = evaluate(F.decode(x))
        claimed = float(F.mpcc.cost @ x)
        stages.append(
            Stage(
                "kernel",
                float(level),
                outcome.status,
                outcome.detail,
                outcome.iterations,
                claimed,
                true,
                outcome.elapsed,
            )
        )
        if on_stage is not None:
            on_stage(stages[-1], F.decode(x))
        if deadline is not None and time.perf_counter() > deadline:
            break
    assert outcome is not None
    assert evaluate.best is not None
    value, choice = evaluate.best
    bare = KernelChoice(choice.C, np.where(choice.p < np.sqrt(tol), 0.0, choice.p))
    if D.p[0] == 0 and np.any(bare.p != choice.p):
        after, _ = evaluate(bare)
        if after <= value * (1.0 + np.sqrt(tol)):
            value, choice = after, bare
    g, h = F.mpcc.sides(x)
    left = None if deadline is None else max(deadline - time.perf_counter(), 0.5)
    value, choice, certificate = _finish(F, evaluate, value, choice, backend, preset, max_iter, left)
    certificate |= {"complementarity": F.mpcc.residual(x), "product": float(np.max(g * h))}
    last = stages[-1]
    return KernelAnswer(
        choice,
        value,
        last.claimed,
        abs(last.claimed - last.objective),
        outcome.status,
        outcome.detail,
        certificate,
        stages,
        time.perf_counter() - began,
    )


def _finish(
    F: KernelFormulation, evaluate: KernelEvaluator, value, choice: KernelChoice, backend, preset, most, left
):
    """The minimiser of the smooth piece that a point lies on, where it is not worse, and the certificate there."""
    _, machines = evaluate(choice)
    x = F.encode(choice, machines)
    deadline = None if left is None else time.perf_counter() + left
    program: Any = KernelProgram(F, piece(F.mpcc, x))
    settled = solve(program, x, backend=backend, preset=preset, tol=1e-9, max_iter=most, deadline=deadline)
    there = F.decode(settled.x)
    after, others = evaluate(there)
    if settled.status == "solved" and after <= value + 1e-9 * max(abs(value), 1.0):
        value, choice, machines = after, there, others
    x, m = F.encode(choice, machines), len(F.mpcc.row_lower)
    entries = program.jacobian(x), (program.jacobian_rows, program.jacobian_columns)
    J = sp.csr_matrix(entries, shape=(program.m, program.n))[:m]
    out = certify(F.mpcc, x, seconds=left, rows=program.constraints(x)[:m], A=J)
    return value, choice, out


def _grid(evaluate: KernelEvaluator) -> KernelChoice:
    """The best of a grid on ``C`` and a common scale around one over the features' total variance."""
    D = evaluate.description
    typical = 1.0 / max(float(np.var(D.tasks[0].X, axis=0).sum()), 1e-300)
    for C in sorted({float(c) for c in np.clip(10.0 ** np.arange(-2, 4), *D.C)}):
        for factor in (0.1, 1.0, 10.0):
            evaluate(KernelChoice(C, np.full(D.d, float(np.clip(factor * typical, *D.p)))))
    assert evaluate.best is not None
    return evaluate.best[1]
