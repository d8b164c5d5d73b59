"""Variants of one search compared over data sets and random splits: run, keep, count.

Every measurement is a dict with ``data``, ``split``, ``variant``, ``accuracy``, ``auc``, ``criterion``, ``seconds``.
Differences are taken split by split, so that a hard split does not count against anyone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from _kernel_sets import Split, named_set, split
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

__all__ = ["against", "by_set", "from_command_line", "means", "near_best", "ranks", "run", "table", "verdict"]

Measurement = dict[str, Any]
T = 5


def from_command_line(doc: str, variants, sets: Mapping[str, int], name: str) -> list[Measurement]:
    """Read the options that these comparisons share, run what ``results/<name>.json`` lacks, and return all of it."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=10, help="random splits per set (10)")
    parser.add_argument("--budget", type=float, default=np.inf, help="seconds after which to stop")
    parser.add_argument("--data", type=Path, help="folder of the real sets; by default $FOLDWISE_DATA")
    out = Path(__file__).resolve().parent / "results" / f"{name}.json"
    parser.add_argument("--out", type=Path, default=out, help="JSON file")
    given = parser.parse_args()
    folder = given.data or (Path(p) if (p := os.environ.get("FOLDWISE_DATA")) else None)
    say = lambda text: print(text, file=sys.stderr, flush=True)  # noqa: E731
    return run(variants, sets, given.splits, folder, given.out, say, given.budget)


def run(
    variants: Mapping[str, Callable[[StratifiedKFold, int], Any]],
    sets: Mapping[str, int],
    splits: int,
    folder: Path | None,
    out: Path,
    say: Callable[[str], None],
    budget: float,
) -> list[Measurement]:
    """Fit every variant on every split; what the file already holds is not run again.

    ``variants`` maps a name to ``build(cv, d)``, which returns a search to fit; ``sets`` maps a set to its largest
    number of training rows. After ``budget`` seconds the run stops between two splits.
    """
    done: list[Measurement] = json.loads(out.read_text()) if out.exists() else []
    known = {(m["data"], m["split"], m["variant"]) for m in done}
    began = time.perf_counter()
    for seed in range(splits):
        for name, n_train in sets.items():
            missing = [v for v in variants if (name, seed, v) not in known]
            if not missing:
                continue
            if time.perf_counter() - began > budget:
                say("time is over; run again to go on")
                return _ordered(done, variants)
            found = named_set(name, folder, say)
            if found is None:
                continue
            data = split(name, *found, seed, n_train)
            done += [{"variant": v, "split": seed, **_fit(variants[v], data, seed)} for v in missing]
            out.parent.mkdir(parents=True, exist_ok=True)
            part = out.with_suffix(".part")
            part.write_text(json.dumps(done, indent=1))
            part.replace(out)
        say(f"split {seed} done, {time.perf_counter() - began:.0f} s")
    return _ordered(done, variants)


def _ordered(measurements: list[Measurement], variants: Iterable[str]) -> list[Measurement]:
    """The measurements of these variants, in their order."""
    order = {name: k for k, name in enumerate(variants)}
    return sorted((m for m in measurements if m["variant"] in order), key=lambda m: order[m["variant"]])


def _fit(build: Callable[[StratifiedKFold, int], Any], data: Split, seed: int) -> Measurement:
    scaler = StandardScaler().fit(data.X)
    X, X_test = scaler.transform(data.X), scaler.transform(data.X_test)
    search = build(StratifiedKFold(T, shuffle=True, random_state=seed), X.shape[1])
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit(X, data.y)
    seconds = time.process_time() - began
    z = search.decision_function(X_test)
    result = getattr(search, "result_", None)
    return {
        "data": data.name,
        "n": len(data.y),
        "d": X.shape[1],
        "accuracy": float(np.mean(search.predict(X_test) == data.y_test)),
        "auc": float(roc_auc_score(data.y_test, z)),
        "criterion": -float(search.best_score_),
        "seconds": seconds,
        "evaluations": getattr(search, "n_iter_", None),
        "status": "" if result is None else str(result.status.value),
        "at_bound": {} if result is None else result.at_bound,
    }


def _values(measurements: list[Measurement], figure: str) -> dict[str, dict[str, dict[int, float]]]:
    """A figure by data set, variant and split; only splits that every variant has."""
    out: dict[str, dict[str, dict[int, float]]] = {}
    for m in measurements:
        out.setdefault(m["data"], {}).setdefault(m["variant"], {})[m["split"]] = m[figure]
    for variants in out.values():
        common = set.intersection(*(set(splits) for splits in variants.values()))
        for name in variants:
            variants[name] = {s: variants[name][s] for s in sorted(common)}
    return out


def means(measurements: list[Measurement], figure: str) -> dict[str, dict[str, float]]:
    """Mean of a figure over splits, by data set and variant."""
    return {
        data: {name: float(np.mean(list(splits.values()))) for name, splits in variants.items()}
        for data, variants in _values(measurements, figure).items()
    }


def ranks(measurements: list[Measurement], figure: str = "accuracy") -> dict[str, float]:
    """Mean rank of every variant over all splits of all sets, 1 for the highest figure; ties share their rank."""
    rows = []
    for variants in _values(measurements, figure).values():
        names = list(variants)
        for s in next(iter(variants.values())):
            rows.append(dict(zip(names, rankdata([-variants[name][s] for name in names]))))
    names = rows[0].keys() if rows else []
    return {name: float(np.mean([row[name] for row in rows])) for name in names}


def against(
    measurements: list[Measurement], base: str, figure: str = "accuracy"
) -> dict[str, dict[str, Any]]:
    """Every variant against ``base``: mean difference, its standard error over sets, and better / same / worse.

    "same" means that the mean difference over splits is within one standard error on that set.
    """
    out: dict[str, dict[str, Any]] = {}
    for variants in _values(measurements, figure).values():
        for name, splits in variants.items():
            gaps = np.array([splits[s] - variants[base][s] for s in splits])
            error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.inf
            entry = out.setdefault(name, {"better": 0, "same": 0, "worse": 0, "gaps": []})
            entry["gaps"].append(float(gaps.mean()))
            kind = "same" if abs(gaps.mean()) <= error else "better" if gaps.mean() > 0 else "worse"
            entry[kind] += 1
    for entry in out.values():
        gaps = np.array(entry.pop("gaps"))
        entry["difference"] = float(gaps.mean())
        entry["error"] = float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else np.nan
    return out


def near_best(measurements: list[Measurement], figure: str = "accuracy") -> dict[str, int]:
    """On how many sets a variant is the best or within one standard error (of the difference) of it."""
    out: dict[str, int] = {}
    for variants in _values(measurements, figure).values():
        top = max(variants, key=lambda name: np.mean(list(variants[name].values())))
        for name, splits in variants.items():
            gaps = np.array([variants[top][s] - splits[s] for s in splits])
            error = gaps.std(ddof=1) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.inf
            out[name] = out.get(name, 0) + int(name == top or gaps.mean() <= error)
    return out


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table."""
    lines = [list(map(str, header)), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    text = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths)) + " |" for line in lines]
    rule = "| " + " | ".join("-" * (w - 1) + ":" if k else "-" * w for k, w in enumerate(widths)) + " |"
    return "\n".join([text[0], rule, *text[1:]])


def by_set(measurements: list[Measurement], figure: str, form: str = "{:.4f}") -> str:
    """A Markdown table of the means: one row per set, one column per variant, and the mean of all sets."""
    values = means(measurements, figure)
    names = list(dict.fromkeys(m["variant"] for m in measurements))
    shape = {m["data"]: (m["n"], m["d"]) for m in measurements}
    rows = [
        [data, f"{shape[data][0]} x {shape[data][1]}", *(form.format(values[data][n]) for n in names)]
        for data in values
    ]
    rows.append(["mean", "", *(form.format(np.mean([values[d][n] for d in values])) for n in names)])
    return table(["data", "training rows x features", *names], rows)


def verdict(measurements: list[Measurement], base: str) -> str:
    """A Markdown table of every variant: means, rank, near the best, against ``base``, time."""
    accuracy, auc = means(measurements, "accuracy"), means(measurements, "auc")
    seconds = means(measurements, "seconds")
    rank, near, versus = ranks(measurements), near_best(measurements), against(measurements, base)
    rows = []
    for name in dict.fromkeys(m["variant"] for m in measurements):
        entry = versus[name]
        rows.append(
            [
                name,
                f"{100 * np.mean([v[name] for v in accuracy.values()]):.2f}",
                f"{100 * np.mean([v[name] for v in auc.values()]):.2f}",
                f"{rank[name]:.2f}",
                f"{near[name]} of {len(accuracy)}",
                "" if name == base else f"{100 * entry['difference']:+.2f} ± {100 * entry['error']:.2f}",
                "" if name == base else f"{entry['better']} / {entry['same']} / {entry['worse']}",
                f"{np.mean([v[name] for v in seconds.values()]):.2f}",
            ]
        )
    header = ["variant", "accuracy %", "AUC %", "mean rank", "best or within 1 s.e."]
    header += ["accuracy against the default", "sets better / same / worse", "seconds"]
    return table(header, rows)
