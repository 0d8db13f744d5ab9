"""Which parts of a reward make skills move: the table of config/tournament.yaml, from its metrics.csv files.

    python benchmarks/tournament.py results/tournament          # also of what there is so far
    python benchmarks/tournament.py docs/results/tournament --page docs/methods.md      # of what was shipped

Values of all seeds, in the environment's first condition: `distinct`, `movers`, mean isolation and mean Hausdorff
distance, and CPU-minutes of training, from about.json or Snakemake's benchmark files. A value that no file has is a
dash. The ranking is by the mean rank in distinct, movers and isolation over all environments. `--page` puts the tables
where a page says `<!-- tournament -->`, up to `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pandas as pd

MEASURES = ("distinct", "movers", "isolation", "hausdorff")
RANKED = MEASURES[:3]


def measured(results: Path, benchmarks: Path) -> pd.DataFrame:
    """One row a run: environment, method, seed, its measures and its CPU-minutes."""
    rows = []
    for path in sorted(results.glob("*/*/seed*/metrics.csv")):
        env, method, seed = path.relative_to(results).parts[:3]
        table = pd.read_csv(path)
        first = table[table["condition"] == table["condition"].iloc[0]]
        means = first.groupby("metric")["value"].mean()  # over skills; of a run's own measures there is one value
        row = {"env": env, "method": method, "seed": int(seed.removeprefix("seed"))}
        minutes = cpu_minutes(path.with_name("about.json"), benchmarks / env / method / seed)
        rows.append({**row, **{name: means.get(name) for name in MEASURES}, "minutes": minutes})
    return pd.DataFrame(rows)


def cpu_minutes(about: Path, benchmarks: Path) -> float | None:
    """CPU time of a run's trainings, as shipped or as Snakemake measured it."""
    if about.exists():
        return 60.0 * float(json.loads(about.read_text())["cpu_hours"])
    times = [pd.read_csv(file, sep="\t")["cpu_time"].iloc[0] for file in benchmarks.glob("*.tsv")]
    return sum(map(float, times)) / 60.0 if times else None


def ranking(runs: pd.DataFrame) -> pd.DataFrame:
    """Mean ranks of each method, 1 being the best, of its means over seeds in each environment; the best first."""
    means = runs.groupby(["env", "method"])[list(RANKED)].mean()
    ranks = means.groupby("env").rank(ascending=False, method="average").groupby("method").mean()
    return ranks.assign(together=ranks.mean(axis=1)).sort_values("together", kind="stable")


def values(column: pd.Series[float]) -> str:
    """All seeds' values."""
    return " ".join("–" if pd.isna(value) else f"{value:.3g}" for value in column)


def as_markdown(runs: pd.DataFrame) -> str:
    lines = []
    order = list(ranking(runs).index)
    for env, part in runs.groupby("env", sort=False):
        lines += [f"\n{env}\n", "| method | seeds | " + " | ".join((*MEASURES, "CPU-minutes")) + " |"]
        lines.append("|" + "---|" * (len(MEASURES) + 3))
        for method in [each for each in order if each in set(part["method"])]:
            own = part[part["method"] == method].sort_values("seed")
            cells = [" ".join(map(str, own["seed"])), *(values(own[name]) for name in (*MEASURES, "minutes"))]
            lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    lines += ["\nMean ranks\n", "| method | " + " | ".join((*RANKED, "together")) + " |", "|" + "---|" * 5]
    for method, row in ranking(runs).iterrows():
        lines.append(f"| `{method}` | " + " | ".join(values(pd.Series([value])) for value in row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--benchmarks", type=Path, help="where Snakemake's benchmark files are: logs/NAME/benchmarks")
    parser.add_argument("--page", type=Path, help="the page whose tables to bring up to date")
    given = parser.parse_args()
    runs = measured(given.results, given.benchmarks or Path("logs", given.results.name, "benchmarks"))
    if runs.empty:
        raise SystemExit(f"{given.results}: has no metrics.csv of any run yet")
    print(tables := as_markdown(runs))
    if given.page:
        found = re.compile(r"(<!-- tournament -->\n).*?(<!-- end -->)", re.DOTALL)
        given.page.write_text(found.sub(lambda at: f"{at[1]}{tables}\n\n{at[2]}", given.page.read_text()))


if __name__ == "__main__":
    main()
