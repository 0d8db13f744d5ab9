"""The tables of docs/results.md and README.md: measures of shipped runs, what they cost and what the paper has.

    python benchmarks/tables.py docs/results/laptop [ENV ...] [--page docs/results.md README.md] [--figures DIRECTORY]
    python benchmarks/tables.py docs/results --beside FIGURE.svg docs/results/laptop/ant/disk/seed0 RUN ...

Behind a mean stand the seeds' values, or from five seeds on the 95 % bootstrap interval. Visits are steps outside the
budget. CPU-hours are of one seed's trainings, visits included: compare methods by them too. The paper's numbers are
read off its figure of skill quality in static worlds, ± a pixel. `--figures` also draws where the skills of each
method's first seed go, and the curves of controllers. `--page` puts each table where those pages say
`<!-- table: ENV -->`; at `<!-- short: ENV … -->` a row for each world, at `<!-- front: ENV … -->` one for each
method, from that of these folders in which it does better; at
`<!-- equal_time: ENV SHORT -->` what methods reach in DISk's CPU time; at `<!-- counts: ENV … -->` a row for each
world, with the skills that move and can be told apart; at `<!-- skills: RUN -->` where each skill of that run ends, at
`<!-- walks: RUN … -->` how many of each run's skills move, in how many directions, and how often they fall; at
`<!-- terms: ENV … -->` how large the reward's two terms were; at `<!-- forgetting: ENV -->` what skills that were
learned in one world still do there at the end; at `<!-- downstream: ENV -->` what controllers over them reach.
benchmarks/ship.py ships runs.
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

from disk.config import Environment, load
from disk.config.environments import Condition
from disk.evaluation.metrics import FEWEST, PAPER_HAUSDORFF, interval
from disk.evaluation.run import read_runs

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
        "equal_time": equal_time,
        "short": short,
        "front": front,
        "counts": counts,
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


def short(*envs: Path) -> str:
    """A row for each world: mean Hausdorff distances, over the worlds of its changes too if it has several."""
    worlds = load().environments
    values = {env: {method: _mean_hausdorff(env, method, worlds[env.name]) for method in FIRST} for env in envs}
    methods = [method for method in FIRST if any(own[method] for own in values.values())]
    head = ["world", "steps", *(f"`{method}`" for method in methods), "seeds of each", "paper: `disk`", "paper: steps"]
    rows = [head, ["---"] * len(head)]
    for env, own in values.items():
        taken = {m: cost_of(env, m).steps for m in methods if own[m] and not m.startswith("random")}
        others = [f"`{method}` {steps:,}" for method, steps in taken.items() if steps != taken["disk"]]
        cells = [f"`{env.name}`", "; ".join([f"{taken['disk']:,}", *others])]
        cells += [cell(own[method]) for method in methods]
        seeds = sorted({len(each) for each in own.values() if each})
        papers = [paper(env.name, "disk"), f"{worlds[env.name].start_of(worlds[env.name].skills):,}"]
        rows.append([*cells, " or ".join(map(str, seeds)), *papers])
    return markdown(rows)


def front(*envs: Path) -> str:
    """README's table: a row for each method, from the folder in which it does better; from three seeds on."""
    measures, best = ("movers", "distinct", "hausdorff"), dict[str, tuple[list[float], ...]]()
    for env in envs:
        found = of_runs(env)
        condition = next(condition for _, condition, _ in found)
        for method in {method for method, _, _ in found}.intersection(FIRST):
            own = tuple(found[method, condition, measure] for measure in measures)
            if len(own[-1]) >= 3 and (method not in best or fmean(own[-1]) > fmean(best[method][-1])):
                best[method] = own
    skills = f"of {skills_of(envs[0])}"
    rows = [["method", "seeds", f"movers, {skills}", f"distinct, {skills}", "mean Hausdorff, m"], ["---"] * 5]
    for method, (movers, distinct, apart) in sorted(best.items(), key=lambda item: -fmean(item[1][-1])):
        means = [number(fmean(each)) for each in (movers, distinct)]
        rows.append([f"`{method}`", str(len(apart)), *means, cell(apart)])
    return markdown(rows)


def skills_of(env: Path) -> int:
    """How many skills the first run of a world has."""
    first = read_runs([min(env.glob("*/seed*/metrics.csv"))])[0][2]
    return int(first.loc[first["skill"] >= 0, "skill"].nunique())


def _mean_hausdorff(env: Path, method: str, world: Environment) -> list[float]:
    """Of each run. A condition with kwargs is the same world in another guise: its first one counts."""
    guises = [name for name, given in world.conditions.items() if isinstance(given, Condition) and given.kwargs]
    found = []
    for _, _, frame in read_runs(sorted(env.glob(f"{method}/seed*/metrics.csv"))):
        left_out = frame["condition"].str.contains("@") | frame["condition"].isin(guises)
        found.append(float(frame.loc[(frame["metric"] == "hausdorff") & ~left_out, "value"].mean()))
    return found


def counts(*envs: Path) -> str:
    """A row for each world: how many skills move and can be told apart, of how many; in its first condition."""
    found = {env: of_runs(env) for env in envs}
    methods = [m for m in FIRST if any((m, c, "distinct") in own for own in found.values() for _, c, _ in own)]
    head = ["world", "skills", "a mover goes", *(f"`{method}`" for method in methods)]
    rows, worlds = [head, ["---"] * len(head)], load().environments
    for env, own in found.items():
        condition, moves = next(condition for _, condition, _ in own), worlds[env.name].moves
        cells = [f"`{env.name}`", str(skills_of(env)), f"> {moves:g} m" if moves else "–"]
        for method in methods:
            movers, distinct = (own.get((method, condition, metric), []) for metric in ("movers", "distinct"))
            cells.append(f"{cell(distinct)} of {fmean(movers):.2g}" if distinct and movers else "–")
        rows.append(cells)
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
