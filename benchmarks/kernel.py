"""Kernel machines: our selection of hyper-parameters against what others offer, in one run.

    python benchmarks/kernel.py --quick
    python benchmarks/kernel.py --suite pair --sets "breast cancer" "moons 1000" --splits 3

One process and one thread; methods run alternately; every single measurement goes to the JSON file. Seconds are
processor time, medians over splits; ratios are taken split by split. The grids have C from 1e-2 to 1e4 and gamma from
1e-4 / d to 1e2 / d on standardised columns: the bounds within which foldwise searches by default. A peer that would
take longer than --patience seconds on one split is timed on a part of its work, and the table says so; with 5,000
rows only ours and a part of the grid are timed, and the CV objective is each method's own, unless --full is given.

"CV objective" is the smooth criterion of each method's own machine (the quartic hinge for ours, the hinge for all
others), "CV error" the share of wrong labels, both on the same folds from exact solutions; for regression, both
"CV objective" and "test error" are mean squared errors of a target with standard deviation 1.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import _threads  # noqa: F401
from _kernel_suites import SUITES, Settings
from _kernel_tables import show
from _measure import Record, machine, versions
from rich.console import Console

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run the suites that the command line names."""
    arguments = _arguments()
    console = Console(width=210, highlight=False)
    if arguments.show:
        measurements = [m for path in arguments.show for m in json.loads(path.read_text())["measurements"]]
        show(console, measurements)
        return
    names = list(SUITES) if "all" in arguments.suite else list(dict.fromkeys(arguments.suite))
    settings = Settings(
        splits=arguments.splits,
        trials=10 if arguments.quick else 50,
        patience=arguments.patience,
        full=arguments.full,
        sets=tuple(arguments.sets),
        data=arguments.data,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    chosen = {"suites": names, "splits": settings.splits, "sets": settings.sets, "quick": arguments.quick}
    record = Record(arguments.out, {**chosen, "full": settings.full, "patience": settings.patience})
    console.print(f"{machine()['cpu']}, one thread; " + ", ".join(f"{k} {v}" for k, v in versions().items()))
    for name in names:
        before = len(record.measurements)
        SUITES[name](record, settings)
        show(console, record.measurements[before:])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one small set, one split: does it run?")
    parser.add_argument("--splits", type=int, help="random splits per set (3); one for 5,000 rows")
    parser.add_argument(
        "--suite", nargs="+", default=["all"], choices=[*SUITES, "all"], help="what to run (all)"
    )
    parser.add_argument("--sets", nargs="+", default=[], help="limit the suite pair to these sets")
    parser.add_argument(
        "--patience", type=float, default=120.0, help="seconds that a peer may take on one split (120)"
    )
    parser.add_argument("--full", action="store_true", help="run every peer whole, however long it takes")
    parser.add_argument("--data", type=Path, help="folder of the larger real sets; by default $FOLDWISE_DATA")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "kernel.json", help="JSON file to write"
    )
    parser.add_argument("--show", type=Path, nargs="+", metavar="FILE", help="print the tables of JSON files")
    arguments = parser.parse_args()
    arguments.splits = arguments.splits or (1 if arguments.quick else 3)
    if arguments.quick and not arguments.sets:
        arguments.sets = ["breast cancer", "diabetes"]
    if arguments.data is None and os.environ.get("FOLDWISE_DATA"):
        arguments.data = Path(os.environ["FOLDWISE_DATA"])
    return arguments


if __name__ == "__main__":
    main()
