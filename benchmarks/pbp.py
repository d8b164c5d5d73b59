"""Penalised bilevel programming: its subproblem against general libraries, its growth, and the implicit method.

    python benchmarks/pbp.py subproblem
    python benchmarks/pbp.py growth --seeds 3
    python benchmarks/pbp.py hyper
    python benchmarks/pbp.py versus

One thread; seconds are the processor's. Libraries are optional (clarabel, piqp, proxsuite); those that are not
installed are left out. Forming the libraries' matrices is not counted against them; ours is, once per stability centre.
"""

import argparse
import json
import sys
import time
import tracemalloc
from functools import partial
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
from _measure import machine
from _pbp_libraries import LIBRARIES
from sklearn.model_selection import KFold, StratifiedKFold

from foldwise import BilevelSearchCV, Lin, LinearSVR, Log
from foldwise.bilevel import Bilevel
from foldwise.datasets import make_pca_regression
from foldwise.losses import Squared, SquaredEpsilonInsensitive
from foldwise.models.base import Role, Rows, make_space
from foldwise.models.linear import LinearModel, assemble
from foldwise.optimizers import PenalizedBilevel, Rescued, TrustRegionNewton
from foldwise.optimizers.pbp.penalised import Penalised
from foldwise.solvers.newton import Newton

HERE = Path(__file__).resolve().parent
SIZES = (100, 200, 300, 500, 1000)
FEATURES = (25, 50, 100)
NOISES = ("t", "bimodal", "normal")


def program(n: int, d: int, groups: int, noise: str, seed: int) -> tuple[Bilevel, np.ndarray]:
    """The program of a tube regression with one or several groups, and a point inside its bounds."""
    out = make_pca_regression(n, d, noise=noise, groups=groups if groups > 1 else 0, seed=seed)
    per = "group" if groups > 1 else None
    rows = Rows(out[1][None], None, out[3] if per else None, range(groups))
    dimensions = {"C": Log(1e-6, 1e2, per=per), "epsilon": Lin(0.0, 3.0, per=per)}
    roles = {"C": Role("log_c", per=(None, "group")), "epsilon": Role("epsilon", per=(None, "group"))}
    model = LinearModel(SquaredEpsilonInsensitive(), roles, {"C": 1.0, "epsilon": 0.0})
    space = make_space(dimensions, rows, range(d))
    splits = list(KFold(5, shuffle=True, random_state=seed).split(out[0]))
    problem = assemble(model, out[0], rows, splits, space, dimensions=dimensions)
    return Bilevel([problem], Squared(), space, Newton()), space.theta({"C": 1e-3, "epsilon": 0.3})


def subproblem(arguments) -> list[dict]:
    """One convex subproblem, as it comes up at several penalties: n = 1,000, d = 100, five folds, five groups."""
    out = []
    for seed in range(arguments.seeds):
        bilevel, theta = program(1000, 100, 5, NOISES[seed % 3], seed)
        f = Penalised(bilevel)
        here = bilevel.evaluate(theta)
        f.calibrate(here.objective)
        centre = f.at([state.W for state in here.states], here.theta)
        p = f.space.size
        region = f.region(theta, np.zeros((0, p)), np.zeros(0), np.zeros(p, bool))
        first = PenalizedBilevel()._first_beta(f, centre)
        for power in (0, 5, 10):
            beta, tau = first * 2.0**power, 1e-2
            model = f.model(centre, beta)
            steps, delta = model.solve(tau, region)
            ours = np.concatenate([*steps, delta])
            seconds = {}
            seconds["ours, new centre"] = _time(partial(_afresh, model, tau, region))
            seconds["ours, another tau"] = _time(partial(model.solve, 2.0 * tau, region))
            gaps = {}
            for name, build in LIBRARIES.items():
                try:
                    solve = build(model, tau, region)
                except ImportError:
                    continue
                seconds[name] = _time(solve, 5)
                gaps[name] = float(np.linalg.norm(solve() - ours) / np.linalg.norm(ours))
            out.append({"seed": seed, "beta": beta, "seconds": seconds, "difference": gaps})
    names = list(out[0]["seconds"])
    print(f"{'':20s} {'ms':>8s} {'times ours':>11s} {'difference':>11s}")
    base = np.median([row["seconds"]["ours, new centre"] for row in out])
    for name in names:
        value = np.median([row["seconds"][name] for row in out])
        gap = [row["difference"][name] for row in out if name in row["difference"]]
        print(f"{name:20s} {1e3 * value:8.2f} {value / base:11.1f} {max(gap, default=float('nan')):11.1e}")
    rest = [n for n in names if not n.startswith("ours")]
    ratios = [min(r["seconds"][n] for n in rest) / r["seconds"]["ours, new centre"] for r in out]
    print(f"best library over ours, subproblem by subproblem: {min(ratios):.1f} to {max(ratios):.1f} times")
    return out


def _afresh(model, tau: float, region) -> None:
    """A subproblem at a new stability centre: nothing is prepared."""
    model.prepare()
    model.solve(tau, region)


def growth(arguments) -> list[dict]:
    """Whole searches against the number of rows; one and five groups, d = 100."""
    out = []
    print(f"{'groups':>6s} {'n':>6s} {'pbp s':>8s} {'newton s':>8s} {'step ms':>9s} {'gap %':>7s} {'MB':>7s}")
    for groups in (1, 5):
        for n in arguments.sizes:
            rows = [_both(n, 100, groups, NOISES[seed % 3], seed) for seed in range(arguments.seeds)]
            out += rows
            memory, step = _alone(n, 100, groups)
            print(
                f"{groups:6d} {n:6d} {_median(rows, 'pbp'):8.2f} {_median(rows, 'newton'):8.2f} "
                f"{1e3 * step:9.2f} {100 * _median(rows, 'gap'):7.3f} {memory / 1e6:7.1f}",
                flush=True,
            )
            out.append({"n": n, "groups": groups, "memory": memory, "step": step})
    return out


def hyper(arguments) -> list[dict]:
    """Whole searches against the number of hyper-parameters: one to five groups, n = 1,000, d = 100."""
    out = []
    print(f"{'hyper-parameters':>16s} {'pbp s':>8s} {'newton s':>8s} {'step ms':>9s} {'gap %':>7s}")
    for groups in range(1, 6):
        rows = [_both(1000, 100, groups, NOISES[seed % 3], seed) for seed in range(arguments.seeds)]
        out += rows
        print(
            f"{2 * groups:16d} {_median(rows, 'pbp'):8.2f} {_median(rows, 'newton'):8.2f} "
            f"{1e3 * _alone(1000, 100, groups)[1]:9.2f} {100 * _median(rows, 'gap'):7.3f}",
            flush=True,
        )
    return out


def versus(arguments) -> list[dict]:
    """Fifty instances: PBP, PBP without corrections, the implicit Newton method, and the latter rescued."""
    out = []
    for i in range(arguments.instances):
        n, d = SIZES[i % 5], FEATURES[(i // 5) % 3]
        row = _both(n, d, (1, 5)[i % 2], NOISES[(i // 3) % 3], i, everything=True)
        out.append(row)
        print(
            f"{i:3d} n={n:<5d} d={d:<4d} groups={row['groups']} {row['noise']:8s} newton {row['newton_objective']:.5f} "
            f"({row['newton_status']}) pbp {100 * row['gap']:+.3f}% straight {100 * row['straight_gap']:+.3f}% "
            f"rescued {100 * row['rescued_gap']:+.3f}%",
            file=sys.stderr,
            flush=True,
        )
    for title, keep in (("one group", 1), ("five groups", 5), ("all", 0)):
        part = [row for row in out if keep in (0, row["groups"])]
        for name in ("gap", "straight_gap", "rescued_gap"):
            gap = np.array([row[name] for row in part])
            clock = {"gap": "pbp", "straight_gap": "straight", "rescued_gap": "rescued"}[name]
            ratio = np.median([row[clock] / row["newton"] for row in part])
            low, mean, high = 100 * gap.min(), 100 * gap.mean(), 100 * gap.max()
            print(
                f"{title:12s} {clock:10s} wins {np.sum(gap < -1e-3):2d} ties {np.sum(np.abs(gap) <= 1e-3):2d} "
                f"loses {np.sum(gap > 1e-3):2d}; within 0.5% {np.mean(gap <= 5e-3):.2f}; "
                f"mean {mean:+.2f}%, worst {high:+.2f}%, best {low:+.2f}%; time {ratio:.1f} of newton's"
            )
    print("stopped at its start:", sum(row["at_start"] for row in out))
    print("rows at a kink at the end, instances:", sum(row["kinks"] > 0 for row in out))
    print("subgradient chosen at least once, instances:", sum(row["chosen"] > 0 for row in out))
    claims = np.array([row["claimed"] / row["true"] - 1 for row in out])
    print(f"claimed below true: median {-100 * np.median(claims):.4f}%, largest {-100 * claims.min():.4f}%")
    return out


def _both(n: int, d: int, groups: int, noise: str, seed: int, everything: bool = False) -> dict:
    """PBP and Newton on one instance, from the same default starts."""
    data = make_pca_regression(n, d, noise=noise, groups=groups if groups > 1 else 0, seed=seed)
    X, y = data[:2]
    group = data[3] if groups > 1 else None
    kind = KFold if group is None else StratifiedKFold
    folds = kind(5, shuffle=True, random_state=seed)
    cv = list(folds.split(X, group))

    def search(method):
        began = time.process_time()
        fitted = BilevelSearchCV(LinearSVR(), method=method, cv=cv, refit=False).fit(
            X, y, sample_groups=group
        )
        return fitted.result_, time.process_time() - began

    newton, newton_seconds = search("newton")
    pbp, seconds = search("pbp")
    facts = pbp.details
    out = {
        "n": n,
        "d": d,
        "groups": groups,
        "noise": noise,
        "seed": seed,
        "newton": newton_seconds,
        "pbp": seconds,
        "newton_objective": newton.objective,
        "newton_status": newton.status.value,
        "objective": pbp.objective,
        "gap": pbp.objective / newton.objective - 1.0,
        "claimed": facts.get(
            "claimed_objective", pbp.objective
        ),  # of a start that is returned nothing is claimed
        "true": facts.get("true_objective", pbp.objective),
        "kinks": facts.get("rows_at_kink", 0),
        "chosen": facts["subgradients_chosen"],
        "at_start": bool(pbp.objective >= pbp.objective_start),
    }
    if everything:
        straight, out["straight"] = search(PenalizedBilevel(corrections=0))
        out["straight_gap"] = straight.objective / newton.objective - 1.0
        rescued, out["rescued"] = search(Rescued(TrustRegionNewton(tol=1e-5)))
        out["rescued_gap"] = rescued.objective / newton.objective - 1.0
    return out


def _alone(n: int, d: int, groups: int) -> tuple[float, float]:
    """From a given start: bytes beyond the data at the peak, and processor seconds per subproblem, all included."""
    bilevel, theta = program(n, d, groups, "t", 0)
    bilevel.evaluate(theta)
    began = time.process_time()
    facts = PenalizedBilevel().minimize(bilevel, theta).details
    step = (time.process_time() - began) / facts["subproblems"]
    tracemalloc.start()
    PenalizedBilevel(max_iter=3).minimize(bilevel, theta)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak), step


def _time(call, repeats: int = 15) -> float:
    """Median processor seconds of a call; short calls are repeated within a measurement."""
    call()
    began = time.perf_counter()
    call()
    inner = max(1, int(0.01 / max(time.perf_counter() - began, 1e-6)))
    out = []
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(inner):
            call()
        out.append((time.process_time() - began) / inner)
    return float(np.median(out))


def _median(rows: list[dict], name: str) -> float:
    return float(np.median([row[name] for row in rows]))


def main() -> None:
    """Run one part."""
    parts = {"subproblem": subproblem, "growth": growth, "hyper": hyper, "versus": versus}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=parts)
    parser.add_argument("--seeds", type=int, default=3, help="seeds per case (3)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000, 3000, 10_000], help="rows")
    parser.add_argument("--instances", type=int, default=50, help="instances of versus (50)")
    parser.add_argument("--out", type=Path, help="JSON file (benchmarks/results/pbp-PART.json)")
    arguments = parser.parse_args()
    print(f"{machine()['cpu']}, one thread")
    measurements = parts[arguments.part](arguments)
    path = arguments.out or HERE / "results" / f"pbp-{arguments.part}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "measurements": measurements}, indent=1))


if __name__ == "__main__":
    main()
