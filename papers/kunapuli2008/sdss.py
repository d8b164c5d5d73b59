"""In place of Star/Galaxy: stars and galaxies of another survey, with the sizes of the bright set.

The two Star/Galaxy sets of the paper (14 features, Minnesota) are not public. This one has five magnitudes of the Sloan
survey, so nothing here can be compared with table 2; it shows the methods at 600 training rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from papers import frame
from papers.kunapuli2008.data import load_set
from papers.kunapuli2008.methods import CRITERIA, UNCONSTRAINED, available, try_method

__all__ = ["run"]


def run(quick: bool = False, data_dir: Path | None = None, out: Path | None = None) -> None:
    """The methods of table 2 on the substitute."""
    frame.title("kunapuli2008, in place of Star/Galaxy: sdss")
    data = load_set("sdss", data_dir)
    frame.note(data.statement)
    frame.note("Star/Galaxy is not public: no published figures belong to this set.")
    rows: list[dict[str, Any]] = []
    for criterion in CRITERIA:
        found: dict[str, list[dict[str, Any]]] = {}
        for number in range(1 if quick else 5):
            instance = data.instance(number, **({"n_train": 30} if quick else {}))
            chosen: dict[str, float] = {}
            for method in available(criterion):
                run = frame.once(
                    f"kunapuli2008-sdss-{method.replace(' ', '-')}-{criterion}",
                    f"{number}-{len(instance.y)}{'' if data.real else '-generated'}",
                    lambda m=method, i=instance, c=dict(chosen), k=criterion: try_method(
                        m, k, i, c, 4 if quick else 10
                    ),
                )
                if method == UNCONSTRAINED:
                    chosen = {"C": run["C"]}
                found.setdefault(method, []).append(run)
        for method, runs in found.items():
            row: dict[str, Any] = {"method": method, "criterion": criterion, "instances": len(runs)}
            for key, factor in (("objective", 100.0), ("test", 100.0), ("features", 1.0), ("seconds", 1.0)):
                row[key] = factor * float(np.mean([run[key] for run in runs]))
            rows.append(row)
    frame.print_table(
        ["method, criterion", "CV %", "test %", "features", "s"],
        [
            [
                f"{row['method']}, {row['criterion']}",
                *(frame.spread(row[key], digits=2) for key in ("objective", "test")),
                frame.spread(row["features"], digits=1),
                frame.spread(row["seconds"], digits=2),
            ]
            for row in rows
        ],
    )
    frame.write_csv(out, "kunapuli2008-sdss", rows)


if __name__ == "__main__":
    frame.command(run)
