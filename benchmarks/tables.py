"""The tables of docs/results.md: measures of shipped runs by method, with what they cost and what the paper has.

    python benchmarks/tables.py docs/results/laptop [ENV ...]

Brackets are 95 % bootstrap intervals over seeds. CPU-hours are of one seed's trainings. The paper's numbers are
read off its figure of skill quality in static worlds, ± a pixel. benchmarks/ship.py ships runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean

import pandas as pd

from disk.metrics import PAPER_HAUSDORFF, summarise
from disk.runs import read_runs

MEASURES = ("hausdorff", "isolation", "coverage", "consistency", "distance")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shipped", type=Path)
    parser.add_argument("envs", nargs="*", help="default: all")
    options = parser.parse_args()
    for env in options.envs or sorted(path.name for path in options.shipped.iterdir() if path.is_dir()):
        print(f"\n## {env}\n\n{table(options.shipped / env)}")


def table(env: Path) -> str:
    summary = summarise(read_runs(sorted(env.glob("*/seed*/metrics.csv"))))
    summary = summary[~summary["condition"].str.contains("@")]
    conditions = list(dict.fromkeys(summary["condition"]))
    found = summary.set_index(["method", "condition", "metric"])
    head = ["method", *(["condition"] if len(conditions) > 1 else []), "seeds", "steps", "CPU-hours"]
    rows = [[*head, *MEASURES, "paper: Hausdorff"]]
    rows.append(["---"] * len(rows[0]))
    for method in dict.fromkeys(summary["method"]):
        about = [json.loads(path.read_text()) for path in sorted(env.glob(f"{method}/seed*/about.json"))]
        cost = [
            f"{round(fmean(each['steps'] for each in about)):,}",
            f"{fmean(each['cpu_hours'] for each in about):.2f}",
        ]
        for condition in conditions:
            cells = [f"`{method}`", *([condition] if len(conditions) > 1 else []), str(len(about)), *cost]
            cells += [shown(found, (method, condition, measure)) for measure in MEASURES]
            rows.append([*cells, paper(env.name, method)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def shown(found: pd.DataFrame, key: tuple[str, str, str]) -> str:
    if key not in found.index or pd.isna(found.loc[key, "mean"]):
        return "–"
    line = found.loc[key]
    mean, low, high = (number(float(line[name])) for name in ("mean", "ci_low", "ci_high"))
    return f"{mean} [{low}, {high}]" if int(line["seeds"]) > 1 and low != high else mean


def paper(env: str, method: str) -> str:
    value = PAPER_HAUSDORFF.get(env, {}).get(method)
    if value is None:
        return "–"
    return f"{value.mean:g}" if value.low is None else f"{value.mean:g} [{value.low:g}, {value.high:g}]"


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}" if abs(value) < 10 else f"{value:.1f}"


if __name__ == "__main__":
    main()
