r"""Which parts of a reward or learner make skills move: the table of a preset's runs, from their metrics.csv files.

    python benchmarks/tournament.py config/tournament.yaml results/tournament        # also of what there is so far
    python benchmarks/tournament.py config/tournament.yaml docs/results/{tournament,common} \
        --pages docs/{methods,tournament}.md
    python benchmarks/tournament.py benchmarks/learner.yaml docs/results/{learner,tournament,common}

A run of the preset comes from the first folder that has it. Values of all seeds, in the environment's first condition:
`distinct`, `movers`, mean isolation and mean Hausdorff distance, and CPU-minutes of training. The ranking is by the
mean rank in distinct, movers and isolation, of the methods that have all seeds in every environment. `--pages` puts
the tables where a page says `<!-- tournament: PRESET -->`, up to `<!-- end -->`, where PRESET is the file's name
without its ending. `<!-- brief tournament: PRESET -->` gets the means in one table.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd
from ship import cpu_seconds

from disk import config

MEASURES = ("distinct", "movers", "isolation", "hausdorff")
RANKED = MEASURES[:3]


def measured(runs: Iterable[tuple[str, str, int]], folders: Sequence[Path]) -> pd.DataFrame:
    """One row a run: environment, method, seed, its measures and its CPU-minutes."""
    rows = []
    for env, method, seed in runs:
        places = [folder / env / method / f"seed{seed}" for folder in folders]
        run = next((place for place in places if (place / "metrics.csv").exists()), None)
        if run is None:
            continue
        table = pd.read_csv(run / "metrics.csv")
        first = table[table["condition"] == table["condition"].iloc[0]]
        means = first.groupby("metric")["value"].mean()  # over skills; of a run's own measures there is one value
        row = {"env": env, "method": method, "seed": seed, "minutes": cpu_minutes(run)}
        rows.append({**row, **{name: means.get(name) for name in MEASURES}})
    return pd.DataFrame(rows)


def cpu_minutes(run: Path) -> float:
    """CPU time of a run's trainings, as shipped or as its files say."""
    about = run / "about.json"
    return 60.0 * float(json.loads(about.read_text())["cpu_hours"]) if about.exists() else cpu_seconds(run) / 60.0


def planned(preset: Path) -> Iterator[tuple[str, str, int]]:
    """Environment, method and seed of every run of a preset."""
    given = config.load(preset)
    for group in given.runs:
        for env in group.envs:
            for method in group.methods:
                for seed in group.seeds or given.seeds:
                    yield env, method, seed


def everywhere(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of the methods that have all seeds in every environment: other ranks would not compare."""
    seeds = runs.groupby(["method", "env"]).size().unstack(fill_value=0)
    return runs[runs["method"].isin(seeds.index[(seeds == seeds.max()).all(axis=1)])]


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
    for env, part in runs.groupby("env", sort=False):
        lines += [f"\n{env}\n", "| method | seeds | " + " | ".join((*MEASURES, "CPU-minutes")) + " |"]
        lines.append("|" + "---|" * (len(MEASURES) + 3))
        for method in ranking(part).index:
            own = part[part["method"] == method].sort_values("seed")
            cells = [" ".join(map(str, own["seed"])), *(values(own[name]) for name in (*MEASURES, "minutes"))]
            lines.append(f"| `{method}` | " + " | ".join(cells) + " |")
    runs = everywhere(runs)
    lines += [f"\nMean ranks, {', '.join(runs['env'].unique())}\n"]
    lines += ["| method | " + " | ".join((*RANKED, "together")) + " |", "|" + "---|" * 5]
    for method, row in ranking(runs).iterrows():
        lines.append(f"| `{method}` | " + " | ".join(values(pd.Series([value])) for value in row) + " |")
    return "\n".join(lines)


def in_brief(runs: pd.DataFrame) -> str:
    """One row a method: means over seeds of distinct skills and of isolation in each environment, and the mean rank."""
    ranks = ranking(everywhere(runs))["together"]
    found = runs.groupby(["method", "env"])[["distinct", "isolation"]].mean()
    envs = list(runs["env"].unique())
    lines = ["| row | " + " | ".join(f"`{env}`" for env in envs) + " | mean rank |", "|" + "---|" * (len(envs) + 2)]
    others = [method for method in ranking(runs).index if method not in ranks.index]
    for method in (*ranks.index, *others):
        rows = [found.loc[(method, env)] if (method, env) in found.index else None for env in envs]
        cells = ["–" if row is None else f"{row['distinct']:.1f}, {row['isolation']:.1f} m" for row in rows]
        rank = f"{ranks[method]:.1f}" if method in ranks.index else "–"
        lines.append(f"| `{method}` | " + " | ".join(cells) + f" | {rank} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", type=Path)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--pages", type=Path, nargs="+", default=[], help="pages whose tables to bring up to date")
    given = parser.parse_args()
    runs = measured(planned(given.preset), given.results)
    if runs.empty:
        raise SystemExit(f"{', '.join(map(str, given.results))}: no run of {given.preset} has a metrics.csv yet")
    tables = {"tournament": as_markdown(runs), "brief tournament": f"\n{in_brief(runs)}"}
    print(*tables.values(), sep="\n")
    for page in given.pages:
        text = page.read_text()
        for kind, table in tables.items():
            found = re.compile(rf"(<!-- {kind}: {given.preset.stem} -->\n).*?(<!-- end -->)", re.DOTALL)
            text = found.sub(lambda at, table=table: f"{at[1]}{table}\n\n{at[2]}", text)
        page.write_text(text)


if __name__ == "__main__":
    main()
