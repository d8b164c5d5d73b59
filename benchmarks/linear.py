"""Linear models: our selection of hyper-parameters against what others offer, in one run.

    python benchmarks/linear.py --quick
    python benchmarks/linear.py --suite svr groups --sizes 100 1000 10000 --seeds 3

One process and one thread; methods run alternately; every single measurement goes to the JSON file. Figures in the
tables are medians over seeds, ratios are taken seed by seed. Seconds are the processor's; the file has wall times
too. "In CVs" counts seconds in units of one scikit-learn ``cross_val_score`` with 5 folds at our answer.
"""

# ruff: noqa: E402  (threads are limited before NumPy is imported)
import argparse
import json
import os
import sys
from pathlib import Path

THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
)
if "numpy" in sys.modules:
    raise SystemExit("NumPy is already imported, so its threads cannot be limited; run this file as a script")
for name in THREADS:
    if os.environ.get(name, "1") != "1":
        raise SystemExit(f"{name} is {os.environ[name]}; times are compared on one thread each: unset it")
    os.environ[name] = "1"

from _measure import Record, machine, versions
from _suites import SUITES, Settings
from _tables import show
from rich.console import Console
from threadpoolctl import threadpool_info

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Run the suites that the command line names."""
    arguments = _arguments()
    console = Console(width=190, highlight=False)
    if arguments.show:
        show(console, json.loads(arguments.show.read_text())["measurements"])
        return
    busy = [pool["internal_api"] for pool in threadpool_info() if pool["num_threads"] > 1]
    if busy:
        console.print(f"warning: {', '.join(busy)} uses several threads; times are not comparable")
    names = list(SUITES) if "all" in arguments.suite else list(dict.fromkeys(arguments.suite))
    settings = Settings(
        sizes=tuple(arguments.sizes),
        seeds=arguments.seeds,
        trials_two=10 if arguments.quick else 50,
        trials_ten=20 if arguments.quick else 200,
        full=arguments.full,
        data=arguments.data,
        say=lambda text: print(text, file=sys.stderr, flush=True),
    )
    chosen = {"suites": names, "sizes": settings.sizes, "seeds": settings.seeds, "quick": arguments.quick}
    record = Record(arguments.out, {**chosen, "full": settings.full})
    console.print(f"{machine()['cpu']}, one thread; " + ", ".join(f"{k} {v}" for k, v in versions().items()))
    for name in names:
        before = len(record.measurements)
        SUITES[name](record, settings)
        show(console, record.measurements[before:])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, one seed, few Optuna trials: does it run?"
    )
    parser.add_argument("--sizes", type=int, nargs="+", help="rows (100 200 1000 10000 100000)")
    parser.add_argument("--seeds", type=int, help="seeds per case (3); one from 100,000 rows on")
    parser.add_argument(
        "--suite", nargs="+", default=["all"], choices=[*SUITES, "all"], help="what to run (all)"
    )
    parser.add_argument("--full", action="store_true", help="run the slow peers at 100,000 rows too, in full")
    parser.add_argument("--data", type=Path, help="folder of the larger real sets; by default $FOLDWISE_DATA")
    parser.add_argument(
        "--out", type=Path, default=HERE / "results" / "linear.json", help="JSON file to write"
    )
    parser.add_argument("--show", type=Path, metavar="FILE", help="print the tables of a JSON file and stop")
    arguments = parser.parse_args()
    arguments.sizes = arguments.sizes or (
        [100, 1000] if arguments.quick else [100, 200, 1000, 10_000, 100_000]
    )
    arguments.seeds = arguments.seeds or (1 if arguments.quick else 3)
    if arguments.data is None and os.environ.get("FOLDWISE_DATA"):
        arguments.data = Path(os.environ["FOLDWISE_DATA"])
    return arguments


if __name__ == "__main__":
    main()
