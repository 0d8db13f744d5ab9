"""The tables of docs/results.md and README.md: measures of shipped runs, what they cost and what the paper has.

    python benchmarks/tables.py docs/results/laptop [ENV ...] [--page docs/results.md README.md] [--figures DIRECTORY]
    python benchmarks/tables.py docs/results --beside FIGURE.svg docs/results/laptop/ant/disk/seed0 RUN ...

Behind a mean stand the seeds' values, or from five seeds on the 95 % bootstrap interval. Visits are steps outside the
budget. CPU-hours are of one seed's trainings, visits included: compare methods by them too. The paper's numbers are
read off its figure of skill quality in static worlds, ± a pixel. `--figures` also draws where the skills of each
method's first seed go, and the curves of controllers. benchmarks/ship.py ships runs. `--page` puts a table behind each
of these markers:

    <!-- table: ENV -->             every measure, a row for each method and condition
    <!-- brief: FOLDER … -->        the measures to read first; a folder is a world's or one method's
    <!-- front: ENV … -->           a row for each method, from the folder in which it does best
    <!-- headline: ENV … -->        a row for each world: disk_plus, disk and the best rival, each at its best
    <!-- beside_paper: ENV … -->    the paper's numbers beside ours, each method at its best
    <!-- iqm: ENV … -->             interquartile means over worlds and seeds
    <!-- equal_time: ENV SHORT -->  what methods reach in DISk's CPU time
    <!-- skills: RUN -->            where each skill of a run ends
    <!-- walks: RUN … -->           how many skills of each run move, in how many directions, and how often they fall
    <!-- terms: ENV … -->           how large the reward's two terms were
    <!-- forgetting: ENV -->        how far skills go right after training in a world, and at the end
    <!-- downstream: ENV -->        what controllers over the skills reach
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from disk.config import load
from disk.evaluation.metrics import FEWEST, PAPER_HAUSDORFF, interval
from disk.evaluation.run import read_runs
from disk.evaluation.statistics import read_worlds, statistics_table

MEASURES = ("hausdorff", "movers", "distinct", "goal_distance", "isolation", "coverage", "consistency", "distance")
FIRST = ("disk", "disk_plus", "dads", "dads_scaled", "diayn", "diayn_sigma", "metra", "random", "random_sampled")
"""Methods that come first, in this order: what the paper compares, and METRA."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shipped", type=Path)
    parser.add_argument("envs", nargs="*", help="default: all")
    parser.add_argument("--page", type=Path, nargs="+", default=[], help="pages whose tables to bring up to date")
    parser.add_argument("--figures", type=Path, help="directory to draw laptop_{env}.svg in")
    parser.add_argument(
        "--beside", type=Path, nargs="+", metavar="PATH", help="an SVG to draw, and the runs to draw in it"
    )
    options = parser.parse_args()
    if options.beside:
        out, *runs = options.beside
        draw(runs, out)
        return
    for env in options.envs or sorted(path.name for path in options.shipped.iterdir() if path.is_dir()):
        print(f"\n## {env}\n\n{table(options.shipped / env)}")
        if options.figures:
            runs = {run.parts[-2]: run for run in sorted((options.shipped / env).glob("*/seed*"), reverse=True)}
            draw(list(runs.values()), options.figures / f"{options.shipped.name}_{env}.svg")  # each method's first seed
            draw_controllers(options.shipped / env, options.figures / f"{options.shipped.name}_{env}_downstream.svg")
    for page in options.page:
        page.write_text(with_tables(page.read_text(), options.shipped))


def with_tables(page: str, shipped: Path) -> str:
    """A page with the tables that it asks for as they are now."""
    makers = {
        "table": table,
        "brief": brief,
        "front": front,
        "headline": headline,
        "beside_paper": beside_paper,
        "iqm": iqm,
        "equal_time": equal_time,
        "skills": ends,
        "walks": walks,
        "terms": terms,
        "forgetting": forgotten,
        "downstream": downstream,
    }
    return re.sub(
        rf"(<!-- ({'|'.join(makers)}): (\S+(?: \S+)*) -->\n)(?:\|.*\n)*",
        lambda found: f"{found[1]}{makers[found[2]](*(shipped / name for name in found[3].split()))}\n",
        page,
    )


def table(env: Path) -> str:
    found = of_runs(env)
    conditions = list(dict.fromkeys(condition for _, condition, _ in found))
    measures = [measure for measure in MEASURES if any(measure == metric for _, _, metric in found)]
    head = ["method", *(["condition"] if len(conditions) > 1 else []), "seeds", "steps", "visits", "CPU-hours"]
    rows = [[*head, *measures, "paper: Hausdorff"]]
    rows.append(["---"] * len(rows[0]))
    for method in sorted(dict.fromkeys(method for method, _, _ in found), key=_place):
        cost = cost_of(env, method)
        for condition in conditions:
            where = [condition] if len(conditions) > 1 else []
            cells = [f"`{method}`", *where, str(cost.seeds), f"{cost.steps:,}", cost.visits, f"{cost.hours:.2f}"]
            cells += [cell(found.get((method, condition, measure), [])) for measure in measures]
            rows.append([*cells, paper(env.name, method)])
    return markdown(rows)


def brief(*folders: Path) -> str:
    """The measures to read first. Of a method's seeds, `distinct` and the Hausdorff distance have every value."""
    places = [place for folder in folders for place in methods_of(folder)]
    found = {env: of_runs(env) for env in dict.fromkeys(env for env, _ in places)}
    several = len({env.parent.name for env in found}) > 1
    conditions = {env: list(dict.fromkeys(condition for _, condition, _ in own)) for env, own in found.items()}
    changing = any(len(own) > 1 for own in conditions.values())
    head = ["method", *["preset"] * several, *["condition"] * changing, "seeds", "steps + visits", "CPU-minutes"]
    rows = [[*head, "movers", "distinct", "mean Hausdorff, m", "isolation, m", "consistency"]]
    rows.append(["---"] * len(rows[0]))
    for env, method in places:
        cost = cost_of(env, method)
        took = f"{cost.steps:,}" if cost.visits == "0" else f"{cost.steps:,} + {cost.visits}"
        for condition in conditions[env]:
            own = {name: found[env].get((method, condition, name), []) for name in MEASURES}
            if not own["hausdorff"]:
                continue
            mean = {name: number(fmean(values)) if values else "–" for name, values in own.items()}
            cells = [f"`{method}`", *[f"`{env.parent.name}`"] * several, *[condition] * changing, str(cost.seeds), took]
            cells += [f"{60 * cost.hours:.1f}", f"{mean['movers']} of {skills_of(env / method)}", cell(own["distinct"])]
            rows.append([*cells, cell(own["hausdorff"]), mean["isolation"], mean["consistency"]])
    return markdown(rows)


def methods_of(folder: Path) -> list[tuple[Path, str]]:
    """The world's folder and the method, for each method of a world or for the one method of this folder."""
    if any(folder.glob("seed*/metrics.csv")):
        return [(folder.parent, folder.name)]
    return [
        (folder, name) for name in sorted({path.parts[-3] for path in folder.glob("*/seed*/metrics.csv")}, key=_place)
    ]


def of_runs(env: Path) -> dict[tuple[str, str, str], list[float]]:
    """By method, condition and metric, the value of each run that has one: the mean over its skills."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for method, _, frame in read_runs(sorted(env.glob("*/seed*/metrics.csv"))):
        means = frame.groupby(["condition", "metric"], sort=False)["value"].mean().reset_index()
        for condition, metric, value in means.itertuples(index=False):
            if "@" not in condition:
                found.setdefault((method, condition, metric), []).append(float(value))
    return {key: [value for value in values if math.isfinite(value)] for key, values in found.items()}


def equal_time(env: Path, short: Path) -> str:
    """What each method reaches in the CPU time of DISk's whole chain, give or take a tenth.

    `env` has runs of equal steps, `short` those of methods that take longer, with the steps that they manage by then.
    """
    measures = ("hausdorff", "movers", "distinct", "isolation")
    head = ["method", "seeds", "steps", "CPU-minutes", *measures]
    rows, limit = [head, ["---"] * len(head)], 1.1 * cost_of(env, "disk").hours
    methods = {path.parts[-3]: env for path in env.glob("*/seed*/metrics.csv")}
    methods = {method: place for method, place in methods.items() if cost_of(place, method).hours <= limit}
    methods |= {path.parts[-3]: short for path in short.glob("*/seed*/metrics.csv")}
    found = {place: of_runs(place) for place in (env, short)}
    for method in sorted(methods, key=_place):
        cost, own = cost_of(methods[method], method), found[methods[method]]
        condition = next(condition for name, condition, _ in own if name == method)
        cells = [f"`{method}`", str(cost.seeds), f"{cost.steps:,}", f"{60 * cost.hours:.1f}"]
        rows.append([*cells, *(cell(own.get((method, condition, measure), [])) for measure in measures)])
    return markdown(rows)


class Cost(NamedTuple):
    """What one run of a method took, on average over seeds."""

    seeds: int
    steps: int
    visits: str
    """Steps outside the budget, in which DISk looks at what its skills visit."""
    hours: float


def cost_of(env: Path, method: str) -> Cost:
    about = [json.loads(path.read_text()) for path in sorted(env.glob(f"{method}/seed*/about.json"))]
    steps, hours = round(fmean(each["steps"] for each in about)), fmean(each["cpu_hours"] for each in about)
    return Cost(len(about), steps, _visits(method, about), hours)


def _visits(method: str, about: Sequence[Mapping[str, Any]]) -> str:
    """Exact where it was recorded; otherwise at least `past_states` a skill of a chain."""
    if all("collected_steps" in each for each in about):
        return f"{round(fmean(each['collected_steps'] for each in about)):,}"
    config = load()
    if method not in config.methods or not config.methods[method].incremental:
        return "0"
    return f"≥ {round(fmean(len(each.get('steps_by_training', [])) for each in about)) * config.disk.past_states:,}"


class Best(NamedTuple):
    """A method's runs in one folder and in the first condition there, a value for each seed."""

    skills: int
    movers: list[float]
    distinct: list[float]
    hausdorff: list[float]

    @property
    def rank(self) -> tuple[int, float]:
        """Three seeds come before fewer, then the mean Hausdorff distance counts."""
        return min(len(self.hausdorff), 3), fmean(self.hausdorff)


def at_best(envs: Sequence[Path]) -> dict[str, Best]:
    """Each method's runs from that of these folders in which it does best."""
    best: dict[str, Best] = {}
    for env in envs:
        found = of_runs(env)
        condition = next(condition for _, condition, _ in found)
        for method in {method for method, _, _ in found}.intersection(FIRST):
            values = (found[method, condition, measure] for measure in ("movers", "distinct", "hausdorff"))
            own = Best(skills_of(env / method), *values)
            if method not in best or own.rank > best[method].rank:
                best[method] = own
    return best


def front(*envs: Path) -> str:
    """README's table: a row for each method with three seeds or more."""
    best = {method: own for method, own in at_best(envs).items() if len(own.hausdorff) >= 3}
    skills = f"of {skills_of(envs[0])}"
    rows = [["method", "seeds", f"movers, {skills}", f"distinct, {skills}", "mean Hausdorff, m"], ["---"] * 5]
    for method, own in sorted(best.items(), key=lambda item: -fmean(item[1].hausdorff)):
        means = [number(fmean(each)) for each in (own.movers, own.distinct)]
        rows.append([f"`{method}`", str(len(own.hausdorff)), *means, cell(own.hausdorff)])
    return markdown(rows)


def headline(*envs: Path) -> str:
    """Distinct skills and mean Hausdorff distance, in a world's first condition. Folders of one name are one world."""
    rows = [["world", "`disk_plus`", "`disk`", "best rival", "paper: `disk`"], ["---"] * 5]
    for world in dict.fromkeys(env.name for env in envs):
        best = at_best([env for env in envs if env.name == world])
        rivals = {method: own for method, own in best.items() if not method.startswith(("disk", "random"))}
        rival = max(rivals, key=lambda method: rivals[method].rank, default="")
        cells = [_in_short(best.get("disk_plus")), _in_short(best.get("disk")), _in_short(best.get(rival))]
        cells[-1] = f"`{rival}`: {cells[-1]}" if rival else "–"
        rows.append([f"`{world}`", *cells, paper(world, "disk")])
    return markdown(rows)


def _in_short(own: Best | None) -> str:
    if own is None:
        return "–"
    seeds = f"{len(own.hausdorff)} seed{'s' * (len(own.hausdorff) > 1)}"
    return f"{number(fmean(own.distinct))} of {own.skills}, {number(fmean(own.hausdorff))} m ({seeds})"


def beside_paper(*envs: Path) -> str:
    """A row for each world: the paper's mean Hausdorff distances, those of our runs and those of our variants."""
    pairs = {"disk": "disk_plus", "dads": "dads_scaled", "diayn": "diayn_sigma", "random": "random_sampled"}
    rows = [["world", *(f"`{method}`, `{variant}`" for method, variant in pairs.items())], ["---"] * 5]
    for world in dict.fromkeys(env.name for env in envs):
        best = at_best([env for env in envs if env.name == world])
        ours = {name: number(fmean(own.hausdorff)) for name, own in best.items()}
        both = {each: f"{ours.get(each, '–')}, {ours.get(variant, '–')}" for each, variant in pairs.items()}
        rows.append([f"`{world}`", *(f"paper {paper(world, method)}; {cells}" for method, cells in both.items())])
    return markdown(rows)


def iqm(*envs: Path) -> str:
    """Interquartile mean of the share of skills that are distinct, of methods that were run in all of these worlds."""
    runs = read_worlds([path for env in envs for path in sorted(env.glob("*/seed*/metrics.csv"))])
    rows = [["method", "runs", "distinct skills, interquartile mean", "95 % interval"], ["---"] * 4]
    for method, worlds, count, mean, low, high in statistics_table(runs).itertuples(index=False):
        if len(worlds.split()) == len(envs):
            span = f"[{low:.0%}, {high:.0%}]" if math.isfinite(low) else "–"
            rows.append([f"`{method}`", str(count), f"{mean:.0%}", span])
    return markdown(rows)


def skills_of(env: Path) -> int:
    """How many skills the first run in a folder has."""
    first = read_runs([min(env.rglob("metrics.csv"))])[0][2]
    return int(first.loc[first["skill"] >= 0, "skill"].nunique())


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


def walks(*runs: Path) -> str:
    """A row for each run: its movers, directions of theirs at least 30° apart, and the share of their episodes that
    end before the longest does, in a fall."""
    head = ["run", "skills", "movers", "directions", "falls of movers", "distinct", "hausdorff", "steps", "CPU-hours"]
    rows = [head, ["---"] * len(head)]
    for run in runs:
        env, method, seed = run.parts[-3:]
        about, measured = json.loads((run / "about.json").read_text()), pd.read_csv(run / "metrics.csv")
        means = measured[measured["condition"] == measured["condition"].iloc[0]].groupby("metric")["value"].mean()
        last = (
            pd.read_csv(run / "paths.csv").sort_values("step").groupby(["skill", "episode"])[["step", "x", "y"]].last()
        )
        away = np.hypot(last["x"], last["y"]).groupby("skill").mean()
        moving = last[
            last.index.get_level_values("skill").isin(away.index[away > (load().environments[env].moves or 0.0)])
        ]
        ended = moving.groupby("skill")[["x", "y"]].mean()
        ways = directions(np.degrees(np.arctan2(ended["y"], ended["x"])).tolist())
        falls = int((moving["step"] < last["step"].max()).sum())
        cells = [f"`{env}/{method}/{seed}`", str(len(away)), str(len(ended)), str(ways), f"{falls} of {len(moving)}"]
        cost = [f"{about['steps']:,}", f"{about['cpu_hours']:.2f}"]
        rows.append([*cells, number(means["distinct"]), number(means["hausdorff"]), *cost])
    return markdown(rows)


def terms(*envs: Path) -> str:
    """How large α·r_c was beside β·r_d while the third skill was trained: the ratio of their means, seed by seed."""
    rows = [["world", "method", "seeds", "α·r_c : β·r_d of the third skill"], ["---"] * 4]
    for env in envs:
        for method in sorted({path.parts[-3] for path in env.glob("*/seed*/about.json")}, key=_place):
            about = [json.loads(path.read_text()) for path in sorted(env.glob(f"{method}/seed*/about.json"))]
            third = [each["mean_terms"][1] for each in about if len(each.get("mean_terms", [])) > 1]
            if third:
                ratios = ", ".join(f"{consistency / diversity:.2f}" for consistency, diversity in third)
                rows.append([f"`{env.name}`", f"`{method}`", str(len(third)), ratios])
    return markdown(rows)


def directions(angles: Sequence[float], apart: float = 30.0) -> int:
    """How many of these angles, in degrees, can be chosen so that any two are at least `apart`."""
    best = 0
    for first in angles:
        chosen, turned = 0, -apart
        for angle in sorted((each - first) % 360.0 for each in angles):
            if angle - turned >= apart and angle <= 360.0 - apart:
                chosen, turned = chosen + 1, angle
        best = max(best, chosen)
    return best


def forgotten(env: Path) -> str:
    """How far the skills of each method go in each condition's world right after training in it, and at the end."""
    frame = pd.read_csv(env / "forgetting.csv")
    conditions = list(dict.fromkeys(frame["condition"]))
    rows = [["method", "skills", *(f"{condition}, m" for condition in conditions)], ["---"] * (2 + len(conditions))]
    columns = ["distance_after_training", "distance_final"]
    for method in sorted(dict.fromkeys(frame["method"]), key=_place):
        own = frame[frame["method"] == method]
        means = own.groupby("condition")[columns].mean().reindex(conditions)
        cells = [" → ".join(number(value) for value in pair) for pair in means.itertuples(index=False)]
        rows.append([f"`{method}`", str(own["skill"].nunique()), *cells])
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


def draw(runs: Sequence[Path], out: Path) -> None:
    """Where the skills of these runs, one of each method, go in the environment's first condition."""
    from disk.figures.trajectories import trajectories

    ordered = sorted(runs, key=lambda run: _place(run.parts[-2]))
    paths = {run.parts[-2]: pd.read_csv(run / "paths.csv") for run in ordered}
    flat = all((frame["y"] == 0).all() for frame in paths.values())
    trajectories(paths, out, title=ordered[0].parts[-3], one_dimensional=flat, drawn=5)


def draw_controllers(env: Path, out: Path) -> None:
    """How near to their goals controllers over the skills came, if there are any."""
    from disk.downstream.run import read_curves
    from disk.figures.downstream import downstream as draw_curves

    paths = sorted(env.glob("*/seed*/hierarchy/seed*.csv"), key=lambda path: (_place(path.parts[-4]), path))
    if paths:
        draw_curves(read_curves(paths), out, title=f"{env.name}: skills at work")


def _place(method: str) -> tuple[int, str]:
    return (FIRST.index(method) if method in FIRST else len(FIRST), method)


def cell(values: Sequence[float]) -> str:
    """The mean, and behind it each seed's value or, from five seeds on, the interval."""
    mean, low, high, seeds = interval(np.array(values))
    if math.isnan(mean):
        return "–"
    if seeds >= FEWEST:
        return f"{number(mean)} [{number(low)}, {number(high)}]"
    each = ", ".join(map(number, values))
    return f"{number(mean)} ({each})" if len(set(map(number, values))) > 1 else number(mean)


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
