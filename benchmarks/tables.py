"""The tables of docs/results.md and README.md: measures of shipped runs, what they cost and what the paper has.

    python benchmarks/tables.py docs/results/laptop [ENV ...] [--page docs/results.md README.md] [--figures DIRECTORY]

Brackets are 95 % bootstrap intervals over seeds. CPU-hours are of one seed's trainings. The paper's numbers are
read off its figure of skill quality in static worlds, ± a pixel. `--figures` also draws where the skills of each
method's first seed go, and the curves of controllers. `--page` puts each table where those pages say
`<!-- table: ENV -->`; at `<!-- short: ENV … -->` a row for each world; at `<!-- skills: RUN -->` where each skill of
that run ends; at `<!-- forgetting: ENV -->` what skills that were learned in one world still do there at the end; at
`<!-- downstream: ENV -->` what controllers over them reach. benchmarks/ship.py ships runs.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd

from disk.config import load
from disk.evaluation.metrics import PAPER_HAUSDORFF, interval, summarise
from disk.evaluation.run import read_runs

MEASURES = ("hausdorff", "isolation", "coverage", "consistency", "distance")
FIRST = ("disk", "dads", "diayn", "metra", "random")
"""Methods that come first, in this order: what the paper compares, and METRA."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shipped", type=Path)
    parser.add_argument("envs", nargs="*", help="default: all")
    parser.add_argument("--page", type=Path, nargs="+", default=[], help="pages whose tables to bring up to date")
    parser.add_argument("--figures", type=Path, help="directory to draw laptop_{env}.svg in")
    options = parser.parse_args()
    for env in options.envs or sorted(path.name for path in options.shipped.iterdir() if path.is_dir()):
        print(f"\n## {env}\n\n{table(options.shipped / env)}")
        if options.figures:
            draw(options.shipped / env, options.figures / f"{options.shipped.name}_{env}.svg")
            draw_controllers(options.shipped / env, options.figures / f"{options.shipped.name}_{env}_downstream.svg")
    for page in options.page:
        page.write_text(with_tables(page.read_text(), options.shipped))


def with_tables(page: str, shipped: Path) -> str:
    """A page with the tables that it asks for as they are now."""
    makers = {"table": table, "short": short, "skills": ends, "forgetting": forgotten, "downstream": downstream}
    return re.sub(
        rf"(<!-- ({'|'.join(makers)}): (\S+(?: \S+)*) -->\n)(?:\|.*\n)*",
        lambda found: f"{found[1]}{makers[found[2]](*(shipped / name for name in found[3].split()))}\n",
        page,
    )


def table(env: Path) -> str:
    summary = summarise(read_runs(sorted(env.glob("*/seed*/metrics.csv"))))
    summary = summary[~summary["condition"].str.contains("@")]
    conditions = list(dict.fromkeys(summary["condition"]))
    found = summary.set_index(["method", "condition", "metric"])
    head = ["method", *(["condition"] if len(conditions) > 1 else []), "seeds", "steps", "CPU-hours"]
    rows = [[*head, *MEASURES, "paper: Hausdorff"]]
    rows.append(["---"] * len(rows[0]))
    for method in sorted(dict.fromkeys(summary["method"]), key=_place):
        seeds, steps, hours = cost(env, method)
        for condition in conditions:
            cells = [
                f"`{method}`",
                *([condition] if len(conditions) > 1 else []),
                str(seeds),
                f"{steps:,}",
                f"{hours:.2f}",
            ]
            cells += [shown(found, (method, condition, measure)) for measure in MEASURES]
            rows.append([*cells, paper(env.name, method)])
    return markdown(rows)


def cost(env: Path, method: str) -> tuple[int, int, float]:
    """Seeds of a method, and the steps and CPU-hours of one of them."""
    about = [json.loads(path.read_text()) for path in sorted(env.glob(f"{method}/seed*/about.json"))]
    return len(about), round(fmean(each["steps"] for each in about)), fmean(each["cpu_hours"] for each in about)


def short(*envs: Path) -> str:
    """A row for each world: mean Hausdorff distances, over its conditions too if it has several."""
    head = ["world", "steps", *(f"`{method}`" for method in FIRST), "seeds of each", "paper: `disk`", "paper: steps"]
    rows, worlds = [head, ["---"] * len(head)], load().environments
    for env in envs:
        values: dict[str, list[float]] = {method: [] for method in FIRST}
        for method, _, metrics in read_runs(sorted(env.glob("*/seed*/metrics.csv"))):
            counted = (metrics["metric"] == "hausdorff") & ~metrics["condition"].str.contains("@")
            if method in values:
                values[method].append(float(metrics.loc[counted, "value"].mean()))
        taken = {method: cost(env, method)[1] for method in FIRST if values[method] and method != "random"}
        others = [f"`{method}` {steps:,}" for method, steps in taken.items() if steps != taken["disk"]]
        cells = [f"`{env.name}`", "; ".join([f"{taken['disk']:,}", *others])]
        cells += [bracketed(*interval(np.array(values[method]))) for method in FIRST]
        seeds = sorted({len(each) for each in values.values() if each})
        steps = worlds[env.name].start_of(worlds[env.name].skills)
        papers = [paper(env.name, "disk"), f"{steps:,}"]
        rows.append([*cells, " or ".join(map(str, seeds)), *papers])
    return markdown(rows)


def ends(run: Path) -> str:
    """Where each skill of a run ends: how far from the start, in which direction on average, how far apart."""
    about = json.loads((run / "about.json").read_text())
    paths = pd.read_csv(run / "paths.csv").sort_values(["skill", "episode", "step"])
    last = paths.groupby(["skill", "episode"])[["x", "y"]].last()
    rows = [["skill", "steps", "mean end, m", "direction", "mean distance, m", "spread, m"], ["---"] * 6]
    for (skill, ended), steps in zip(last.groupby("skill"), about["steps_by_training"], strict=True):
        x, y = ended["x"].mean(), ended["y"].mean()
        apart = (ended - ended.mean()).pow(2).sum(axis=1).mean() ** 0.5
        away = ended.pow(2).sum(axis=1).pow(0.5).mean()
        direction = f"{math.degrees(math.atan2(y, x)):.0f}°" if math.hypot(x, y) > apart else "–"
        rows.append([f"{skill + 1}", f"{steps:,}", f"({x:.1f}, {y:.1f})", direction, number(away), number(apart)])
    return markdown(rows)


def forgotten(env: Path) -> str:
    """What the skills of each method do in each condition's world right after training in it, and at the end."""
    frame = pd.read_csv(env / "forgetting.csv")
    frame["change"] = frame["distance_final"] - frame["distance_after_training"]
    head = ["method", "condition", "skills", "right after, m", "at the end, m", "change, m", "largest loss, m"]
    rows = [head, ["---"] * len(head)]
    for method in sorted(dict.fromkeys(frame["method"]), key=_place):
        for condition, cells in frame[frame["method"] == method].groupby("condition", sort=False):
            means = cells[["distance_after_training", "distance_final", "change"]].mean()
            values = [number(float(value)) for value in (*means, max(0.0, -cells["change"].min()))]
            rows.append([f"`{method}`", str(condition), str(len(cells)), *values])
    return markdown(rows)


def downstream(env: Path) -> str:
    """Normalised distance to the goal, by what the controllers choose from: at first, in the end, and at best."""
    head = ["skills", "controllers", "decisions", "first tenth", "last tenth", "lowest row"]
    rows = [head, ["---"] * len(head)]
    for method in sorted({path.parts[-4] for path in env.glob("*/seed*/hierarchy/seed*.csv")}, key=_place):
        curves = [pd.read_csv(path) for path in sorted(env.glob(f"{method}/seed*/hierarchy/seed*.csv"))]
        reached = [(curve["normalised_distance"], math.ceil(len(curve) / 10)) for curve in curves]
        values = [(each[:tenth].mean(), each[-tenth:].mean(), each.min()) for each, tenth in reached]
        means = [f"{fmean(column):.2f}" for column in zip(*values, strict=True)]
        decisions = max(int(curve["decision"].iloc[-1]) for curve in curves)
        rows.append([f"`{method}`", str(len(curves)), f"{decisions:,}", *means])
    return markdown(rows)


def draw(env: Path, out: Path) -> None:
    """Where the skills of each method's first seed go, in the environment's first condition."""
    from disk.figures.trajectories import trajectories

    methods = sorted({path.parts[-3] for path in env.glob("*/seed*/paths.csv")}, key=_place)
    paths = {method: pd.read_csv(min(env.glob(f"{method}/seed*/paths.csv"))) for method in methods}
    flat = all((frame["y"] == 0).all() for frame in paths.values())
    trajectories(paths, out, title=env.name, one_dimensional=flat, drawn=5)


def draw_controllers(env: Path, out: Path) -> None:
    """How near to their goals controllers over the skills came, if there are any."""
    from disk.downstream.run import read_curves
    from disk.figures.downstream import downstream as draw_curves

    paths = sorted(env.glob("*/seed*/hierarchy/seed*.csv"), key=lambda path: (_place(path.parts[-4]), path))
    if paths:
        draw_curves(read_curves(paths), out, title=f"{env.name}: skills at work")


def _place(method: str) -> tuple[int, str]:
    return (FIRST.index(method) if method in FIRST else len(FIRST), method)


def shown(found: pd.DataFrame, key: tuple[str, str, str]) -> str:
    if key not in found.index:
        return "–"
    line = found.loc[key]
    return bracketed(*(float(line[name]) for name in ("mean", "ci_low", "ci_high")), int(line["seeds"]))


def bracketed(mean: float, low: float, high: float, seeds: int) -> str:
    if math.isnan(mean):
        return "–"
    interval_shown = seeds > 1 and number(low) != number(high)
    return f"{number(mean)} [{number(low)}, {number(high)}]" if interval_shown else number(mean)


def paper(env: str, method: str) -> str:
    value = PAPER_HAUSDORFF.get(env, {}).get(method)
    if value is None:
        return "–"
    return f"{value.mean:g}" if value.low is None else f"{value.mean:g} [{value.low:g}, {value.high:g}]"


def markdown(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def number(value: float) -> str:
    if abs(value) < 10:
        return f"{value:#.2g}".rstrip(".")
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    main()
