"""Results as tables on standard output."""

from __future__ import annotations

from typing import Any

from foldwise.cli.app import printable

__all__ = ["print_comparison", "print_summary"]


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)


def _table(*heads: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for k, head in enumerate(heads):
        table.add_column(head, justify="left" if k == 0 else "right", no_wrap=True)
    return table


def _number(value: float | None) -> str:
    from foldwise.wording import format_number

    return format_number(value, 5, "-")


def print_summary(summary: dict[str, Any], search: Any = None) -> None:
    """The result of a fit; with ``search`` also what its result says of itself."""
    import numpy as np

    from foldwise.wording import format_value

    other, metric = summary.get("comparison"), summary["metric"]
    table = _table("", "foldwise", *(["scikit-learn"] if other else []))

    def row(name: str, own: str, theirs: str = "") -> None:
        table.add_row(name, own, *([theirs] if other else []))

    row("model", summary["model"], other["model"] if other else "")
    row("method", summary["method"], other["name"] if other else "")
    for name in dict.fromkeys([*summary["params"], *(other["params"] if other else ())]):
        sides = [
            format_value(side["params"][name]) if side and name in side["params"] else "-"
            for side in (summary, other)
        ]
        row(name, *sides)
    if summary["criterion"] != "squared":  # what is minimised is not what is compared
        row(f"CV {summary['criterion']} at the start", _number(summary["cv_start"]))
        row(f"CV {summary['criterion']} at the end", _number(summary["cv_end"]))
        own = summary["cv_error"]
    else:
        row(f"CV {metric} at the start", _number(summary["cv_start"]))
        own = summary["cv_end"]
    row(f"CV {metric} at the end", _number(own), _number(other["cv_error"]) if other else "")
    if summary["penalty"]:
        row("penalty on the widths, added in the search", _number(summary["penalty"]))
    if summary["test_error"] is not None:
        row(f"test {metric}", _number(summary["test_error"]), _number(other["test_error"]) if other else "")
    if nested := summary.get("nested"):
        spread, some = nested["standard_error"], f", {nested['finished']} of {nested['folds']} folds"
        row(
            f"nested {metric}",
            f"{nested['error']:.5g}"
            + ("" if spread is None else f" ± {spread:.2g}")
            + ("" if nested["finished"] == nested["folds"] else some),
        )
    row("time", f"{summary['seconds']:.2f} s", f"{other['seconds']:.2f} s" if other else "")
    console = _console()
    console.print(table)
    console.print(f"{summary['status']}: {summary['message']}")
    bounds = list(summary["at_bound"].items())
    for name, side in bounds[:5]:
        values = summary["params"].get(name.partition("[")[0])
        # A tube or a box of zero cannot be less.
        least = side == "lower" and values is not None and np.min(values) == 0
        advice = "." if least else "; --space can widen it."
        console.print(f"{printable(name)} sits at its {side} bound{advice}")
    if len(bounds) > 5:
        console.print(f"... and {len(bounds) - 5} more at a bound.")
    if other:
        ratio = other["seconds"] / summary["seconds"]
        console.print(f"time of the grid search / time of foldwise: {ratio:.1f}")
        if other["n_unconverged"]:
            console.print(f"scikit-learn warned {other['n_unconverged']} times that a fit had not converged.")
    if search is not None:
        console.print()
        console.print(printable_lines(search.result_.summary()))


def print_comparison(rows: list[dict[str, Any]], metric: str) -> None:
    """One line per search."""
    from foldwise.wording import format_params

    console = _console()
    table = _table("search", "points", "CV error", "test error", "time", "x ours")
    base = rows[0]["seconds"]
    for row in rows:
        table.add_row(
            row["name"],
            str(row["n_points"]),
            _number(row["cv_error"]),
            _number(row["test_error"]),
            f"{row['seconds']:.2f} s",
            f"{row['seconds'] / base:.1f}",
        )
    console.print(table)
    console.print(f"errors: {metric}; time: wall clock, and as a multiple of ours")
    for row in rows:
        console.print(f"{row['name']}: {row['model']}, {format_params(row['params'])}")
    if unsure := [row["name"] for row in rows if row.get("n_unconverged")]:
        console.print(f"scikit-learn warned that fits had not converged: {', '.join(unsure)}")


def printable_lines(text: str) -> str:
    """Several lines, each without control characters."""
    return "\n".join(printable(line) for line in text.splitlines())
