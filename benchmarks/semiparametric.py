"""Solvers of semiparametric support vector regression: time over rows and basis functions, against SVR, and memory.

    python benchmarks/semiparametric.py --quick
    python benchmarks/semiparametric.py --suite rows svr --sizes 1000 10000 20000 --patience 120

One process and one thread; seconds are the processor's, best of ``--repeats``; compiled code is loaded beforehand. The
Mexican hat has K = 2, gamma 0.25, epsilon 0.05; tol is 1e-3 and the cache 200 MB everywhere. Suites:

- ``rows``: all solvers over M and C;
- ``svr``: a constant basis against scikit-learn's ``SVR``, on the hat and on data like Milan's with gamma 25;
- ``basis``: growth with the number of basis functions;
- ``memory``: peak resident memory of a process that solves once, and of one that only imports.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import _threads  # noqa: F401
import numpy as np
from _measure import Choice, Record, machine, timed, versions
from rich.console import Console
from rich.table import Table
from sklearn.svm import SVR

from foldwise import RBF
from foldwise.solvers.semiparametric import columns_of, solve

HERE = Path(__file__).resolve().parent
ALONE = 10_000
"""Rows up to which solvers run without the framework."""


def hat(M: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, basis and targets of the modified Mexican hat."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(0.0, 10.0, M)
    Psi = np.column_stack([np.sin(t), np.sinc(2.0 * (t - 5.0))])
    return t[:, None], Psi, Psi.sum(axis=1) + 0.2 * rng.normal(size=M)


def like_milan(M: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Days, and weather that follows the seasons: correlated columns in [0, 1]; noisy counts in [0, 1]."""
    rng = np.random.default_rng(seed)
    day = np.arange(M) / 365.25
    season = np.cos(2 * np.pi * day)
    weather = season[:, None] * rng.uniform(-1, 1, d - 1) + rng.normal(size=(M, d - 1)) * rng.uniform(
        0.3, 1, d - 1
    )
    X = np.column_stack([day, weather])
    y = rng.poisson(3.0 + season + 0.5 * np.tanh(X[:, 1])).astype(float)
    X, y = (Z - Z.min(axis=0) for Z in (X, y))
    return X / X.max(axis=0), y / y.max()


def milan(folder: Path | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Respiratory deaths from the other columns, scaled to [0, 1]; None without the file."""
    path = None if folder is None else folder / "milan_mort.csv.gz"
    if path is None or not path.is_file():
        return None
    Z = np.genfromtxt(path, delimiter=",", skip_header=1)
    Z = (Z - Z.min(axis=0)) / (Z.max(axis=0) - Z.min(axis=0))
    return np.delete(Z[:, :8], 5, axis=1), Z[:, 5]


class Bench:
    """Measures solvers and keeps the record."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.record = Record(arguments.out, {k: str(v) for k, v in vars(arguments).items()})
        self.console = Console(width=150, highlight=False)
        X, Psi, y = hat(40)
        for name in ("auto", "active_set", "pdsg", "mpd", "pdsg_alone", "mpd_alone"):
            solve(columns_of(RBF(0.25), X), Psi, y, 1.0, 0.05, solver=name)

    def ours(self, suite, case, solver, X, Psi, y, gamma, C, epsilon) -> dict:
        """One solver on one problem."""

        def run() -> Choice:
            solution = solve(
                columns_of(RBF(gamma), X), Psi, y, C, epsilon, solver=solver, max_time=self.arguments.patience
            )
            figures = {"status": str(solution.status), "kkt": solution.kkt, "by": solution.solver}
            figures |= {"low_rank": solution.low_rank, "beta": solution.beta, "objective": solution.objective}
            return Choice({"C": C, "gamma": gamma, "epsilon": epsilon}, extra=figures)

        return self._keep(suite, case, solver, run)

    def theirs(self, suite, case, X, y, gamma, C, epsilon) -> dict:
        """scikit-learn's SVR at the same settings."""

        def run() -> Choice:
            SVR(gamma=gamma, C=C, epsilon=epsilon, tol=1e-3, cache_size=200).fit(X, y)
            return Choice({"C": C, "gamma": gamma, "epsilon": epsilon}, extra={"status": "converged"})

        return self._keep(suite, case, "SVR", run)

    def _keep(self, suite, case, method, run) -> dict:
        choices = [timed(run)]
        while len(choices) < self.arguments.repeats and sum(c.seconds[0] for c in choices) < 10.0:
            choices.append(timed(run))
        best = min(choices, key=lambda choice: choice.seconds[0])
        best.seconds, best.wall = [min(c.seconds[0] for c in choices)], [c.wall[0] for c in choices]
        entry = self.record.add(suite, case, method, best)
        self.record.write()
        print(
            f"{suite} {case} {method}: {entry['seconds']:.3f} s, {entry['status']}",
            file=sys.stderr,
            flush=True,
        )
        return entry

    def show(self, title: str, columns: list[str], lines: list[list[str]]) -> None:
        """A table on the screen."""
        table = Table(title=title)
        for column in columns:
            table.add_column(column, justify="left" if column == columns[0] else "right")
        for line in lines:
            table.add_row(*line)
        self.console.print(table)


def rows(bench: Bench) -> None:
    """All solvers over M and C on the hat."""
    names = ("auto", "active_set", "pdsg", "mpd", "pdsg_alone", "mpd_alone")
    lines, late = [], set()
    for C in (0.1, 1.0, 10.0):
        for M in bench.arguments.sizes:
            X, Psi, y = hat(M)
            cells = []
            for name in names:
                if (C, name) in late or (name.endswith("alone") and M > ALONE):
                    cells.append("-")
                    continue
                entry = bench.ours("rows", {"M": M, "C": C}, name, X, Psi, y, 0.25, C, 0.05)
                if entry["status"] != "converged":
                    late.add((C, name))
                cells.append(_seconds(entry))
            lines.append([f"C = {C:g}, M = {M:,}", *cells])
    bench.show("Seconds on the Mexican hat, K = 2", ["", *names], lines)


def svr(bench: Bench) -> None:
    """A constant basis against scikit-learn's SVR."""
    cases = []
    for M in bench.arguments.sizes:
        if M <= 20_000:
            X, _, y = hat(M)
            cases += [(f"hat {M:,}", X, y, 0.25, C, 0.05) for C in (0.1, 1.0, 10.0)]
    for d in (5, 8):
        X, y = like_milan(600 if bench.arguments.quick else 3652, d)
        cases += [(f"like Milan, {d} features", X, y, 25.0, C, 0.01) for C in (0.01, 0.1, 1.0, 10.0)]
    real = milan(bench.arguments.data)
    if real is not None:
        cases += [("Milan, 7 features", *real, 25.0, C, 0.01) for C in (0.01, 0.1, 1.0, 10.0)]
    lines = []
    for name, X, y, gamma, C, epsilon in cases:
        case = {"data": name, "C": C}
        ours = bench.ours("svr", case, "auto", X, np.ones((len(y), 1)), y, gamma, C, epsilon)
        theirs = bench.theirs("svr", case, X, y, gamma, C, epsilon)
        ratio = theirs["seconds"] / ours["seconds"]
        lines.append([f"{name}, C = {C:g}", _seconds(ours), ours["by"], _seconds(theirs), f"{ratio:.1f}"])
    bench.show("K = 1: auto against SVR", ["", "auto", "by", "SVR", "times faster"], lines)


def basis(bench: Bench) -> None:
    """Growth with K: waves of rising frequency, 1,000 rows of the hat."""
    M = 300 if bench.arguments.quick else 1000
    X, _, y = hat(M)
    counts = (1, 2, 5, 10) if bench.arguments.quick else (1, 2, 5, 10, 20, 40)
    lines = []
    for K in counts:
        t = X[:, 0]
        Psi = np.column_stack([np.sin(j * np.pi * t) if j % 2 else np.cos(j * np.pi * t) for j in range(K)])
        cells = [
            bench.ours("basis", {"M": M, "K": K}, name, X, Psi, y, 0.25, 1.0, 0.05)
            for name in ("auto", "active_set", "pdsg", "mpd")
        ]
        lines.append([str(K), *(_seconds(cell) for cell in cells)])
    bench.show(f"Seconds over K, M = {M:,}, C = 1", ["K", "auto", "active_set", "pdsg", "mpd"], lines)


def memory(bench: Bench) -> None:
    """Peak resident memory of one solve in a process of its own."""
    lines = []
    for M in bench.arguments.sizes:
        for name in ("auto", "pdsg") if M <= 20_000 else ("auto",):
            command = [sys.executable, __file__, "--peak", str(M), name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, before, after = (float(word) for word in done.stdout.split())
            case = {"M": M, "C": 1.0}
            choice = Choice({"C": 1.0}, seconds=[seconds], extra={"before": before, "peak": after})
            bench.record.add("memory", case, name, choice)
            bench.record.write()
            lines.append([f"M = {M:,}, {name}", f"{before:.0f}", f"{after:.0f}"])
    bench.show("Peak memory in MB, C = 1", ["", "after importing", "after solving"], lines)


def _peak(M: int, solver: str) -> None:
    """The child process of ``memory``."""
    X, Psi, y = hat(40)
    solve(columns_of(RBF(0.25), X), Psi, y, 1.0, 0.05, solver=solver)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    X, Psi, y = hat(M)
    began = time.process_time()
    solve(columns_of(RBF(0.25), X), Psi, y, 1.0, 0.05, solver=solver)
    seconds = time.process_time() - began
    print(seconds, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _seconds(entry: dict) -> str:
    return f"{'' if entry['status'] == 'converged' else '> '}{entry['seconds']:.3f}"


SUITES = {"rows": rows, "svr": svr, "basis": basis, "memory": memory}


def main() -> None:
    """Run the suites that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    parser.add_argument(
        "--suite", nargs="+", default=list(SUITES), choices=list(SUITES), help="what to run (all)"
    )
    parser.add_argument("--sizes", type=int, nargs="+", help="rows of the hat (1000 10000 20000 100000)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of fast methods; the best counts (3)")
    parser.add_argument(
        "--patience", type=float, default=120.0, help="seconds after which a solver is stopped (120)"
    )
    parser.add_argument("--data", type=Path, help="folder of the real sets; by default $FOLDWISE_DATA")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "semiparametric.json", help="JSON file"
    )
    parser.add_argument("--peak", nargs=2, metavar=("M", "SOLVER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        _peak(int(arguments.peak[0]), arguments.peak[1])
        return
    arguments.sizes = arguments.sizes or ([300, 1000] if arguments.quick else [1000, 10_000, 20_000, 100_000])
    if arguments.data is None and os.environ.get("FOLDWISE_DATA"):
        arguments.data = Path(os.environ["FOLDWISE_DATA"])
    bench = Bench(arguments)
    bench.console.print(
        f"{machine()['cpu']}, one thread; " + ", ".join(f"{k} {v}" for k, v in versions().items())
    )
    for name in arguments.suite:
        SUITES[name](bench)


if __name__ == "__main__":
    main()
