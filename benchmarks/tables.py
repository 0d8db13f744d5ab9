"""The tables of docs/results.md: a preset's measures, method by method, with what they cost and what the paper has.

    python benchmarks/tables.py results/laptop logs/laptop/benchmarks [ENV ...]

Brackets are the 95 % intervals over seeds of summary.csv. CPU-hours are of one seed's trainings, from Snakemake's
benchmark files. The paper's numbers are read off its figure of skill quality in static worlds, ± a pixel.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from statistics import fmean

MEASURES = ("hausdorff", "isolation", "coverage", "consistency", "distance")
PAPER = {
    "halfcheetah": {"random": "about 4", "diayn": "124 [105, 142]", "dads": "204 [189, 220]", "disk": "79 [60, 99]"},
    "hopper": {"random": "0.25", "diayn": "3.1 [3.0, 3.2]", "dads": "4.4 [3.8, 5.0]", "disk": "6.3 [5.7, 7.0]"},
    "swimmer": {"random": "0.95", "diayn": "3.0 [1.0, 4.9]", "dads": "3.0 [2.9, 3.1]", "disk": "6.4 [6.1, 6.8]"},
    "ant": {"random": "5.5", "diayn": "about 1", "dads": "112 [86, 139]", "disk": "137 [106, 168]"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("benchmarks", type=Path)
    parser.add_argument("envs", nargs="*", help="default: all that have a summary.csv")
    options = parser.parse_args()
    for env in options.envs or sorted(path.parent.name for path in options.results.glob("*/summary.csv")):
        print(f"\n## {env}\n\n{table(options.results / env, options.benchmarks / env)}")


def table(results: Path, benchmarks: Path) -> str:
    with (results / "summary.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    conditions = list(dict.fromkeys(line["condition"] for line in lines if "@" not in line["condition"]))
    found = {(line["method"], line["condition"], line["metric"]): line for line in lines}
    head = ["method", *(["condition"] if len(conditions) > 1 else []), "seeds", "steps", "CPU-hours"]
    rows = [[*head, *MEASURES, "paper: Hausdorff"]]
    rows.append(["---"] * len(rows[0]))
    for method in dict.fromkeys(line["method"] for line in lines):
        for condition in conditions:
            cells = [f"`{method}`", *([condition] if len(conditions) > 1 else [])]
            cells += [found[method, condition, "hausdorff"]["seeds"], *cost(results, benchmarks, method)]
            cells += [shown(found.get((method, condition, measure))) for measure in MEASURES]
            rows.append([*cells, PAPER.get(results.name, {}).get(method, "–")])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def shown(line: dict[str, str] | None) -> str:
    if line is None or not line["mean"]:
        return "–"
    mean, low, high = (number(float(line[key])) if line[key] else "" for key in ("mean", "ci_low", "ci_high"))
    return f"{mean} [{low}, {high}]" if int(line["seeds"]) > 1 and low != high else mean


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}" if abs(value) < 10 else f"{value:.1f}"


def cost(results: Path, benchmarks: Path, method: str) -> tuple[str, str]:
    """Environment steps and CPU-hours of the trainings of a seed."""
    steps, hours = [], []
    for run in sorted((results / method).glob("seed*")):
        paths = sorted(run.glob("skill[0-9][0-9]/stats.json")) or sorted(run.glob("stats.json"))
        stats = {path: json.loads(path.read_text()) for path in paths}
        steps.append(sum(int(each.get("steps") or 0) for each in stats.values()))
        names = {path: "joint" if path.parent == run else path.parent.name for path in paths}
        used = [seconds(each, benchmarks / method / run.name / f"{names[path]}.tsv") for path, each in stats.items()]
        hours.append(sum(used) / 3600)
    return f"{round(fmean(steps)):,}", f"{fmean(hours):.2f}"


def seconds(stats: dict[str, object], benchmark: Path) -> float:
    """CPU time of a training; of one that was resumed, whose last part alone has a benchmark, its time by the clock."""
    clock = float(str(stats.get("seconds") or 0.0))
    if not benchmark.exists():
        return clock
    with benchmark.open(newline="") as file:
        used = list(csv.DictReader(file, delimiter="\t"))[-1]
    return float(used["cpu_time"]) if float(used["s"]) > 0.9 * clock else clock


if __name__ == "__main__":
    main()
