"""Metrics of skills, computed from their rollouts (columns skill, episode, step, x, y).

The paper's number is the mean Hausdorff distance between the terminal positions of a skill and those of all others. It
is symmetric: one far skill raises the value of every other, and two far skills decide a run's value. So it is never
reported alone. Isolation is one-sided; movers, distinct and goal_distance see every skill.

An episode with a position that is not finite is left out, because its simulation broke down. The metrics of a skill
without any sound episode are NaN. In worlds of one coordinate y is 0.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist, directed_hausdorff
from scipy.stats import bootstrap

from disk.config.environments import NEAREST
from disk.config.jobs import MeasureJob

log = logging.getLogger("disk")

SKILL_METRICS = ("hausdorff", "isolation", "distance", "spread", "consistency")
WHOLE_RUN = -1
"""Value of the column `skill` for metrics of the whole run: coverage, movers, distinct, goal_distance."""
GOALS = 1000
"""Number of goals of `goal_distance`. Another draw of goals changes the mean by about a hundredth."""
FEWEST = 5
"""Fewest seeds with an interval. With three, a percentile interval is [min, max] and covers the mean 76 % of the time.
"""
SAME = 1e-9
"""Relative difference below which two distances are equal, so that rounding does not decide which is nearer."""

MeasuredRun = tuple[str, int, pd.DataFrame]
"""Method, seed, and the run's metrics.csv: columns condition, skill, metric, value."""


class Reference(NamedTuple):
    """A value of the paper, with the ends of its error bar where the chart shows one."""

    mean: float
    low: float | None = None
    high: float | None = None


PAPER_HAUSDORFF: dict[str, dict[str, Reference]] = {
    "halfcheetah": {
        "random": Reference(4.0),
        "diayn": Reference(124.0, 105.0, 142.0),
        "dads": Reference(204.0, 189.0, 220.0),
        "disk": Reference(79.0, 60.0, 99.0),
    },
    "hopper": {
        "random": Reference(0.25),
        "diayn": Reference(3.1, 3.0, 3.2),
        "dads": Reference(4.4, 3.8, 5.0),
        "disk": Reference(6.3, 5.7, 7.0),
    },
    "swimmer": {
        "random": Reference(0.95),
        "diayn": Reference(2.95, 1.0, 4.9),
        "dads": Reference(3.0, 2.9, 3.1),
        "disk": Reference(6.4, 6.05, 6.8),
    },
    "ant": {
        "random": Reference(5.5),
        "diayn": Reference(1.0),
        "dads": Reference(112.0, 86.0, 139.0),
        "disk": Reference(137.0, 106.0, 168.0),
    },
}
"""Mean Hausdorff distance in static worlds, by environment and method. The paper prints no numbers: these are read off
its bar chart of skill quality, to about a pixel. It has no such chart of evolving worlds."""


def sound(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Leave out the episodes in which a position is not finite."""
    finite = np.isfinite(rollouts["x"]) & np.isfinite(rollouts["y"])
    kept: pd.Series[bool] = finite.groupby([rollouts["skill"], rollouts["episode"]]).transform("all")
    for skill, broken in rollouts[~kept].groupby("skill"):
        log.warning("skill %s: %d episodes with NaN or infinity are left out", skill, broken["episode"].nunique())
    return rollouts[kept]


def ends(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Return the first and last position of each episode: columns skill, episode, start_x, start_y, x, y."""
    episodes = rollouts.sort_values("step", kind="stable").groupby(["skill", "episode"])[["x", "y"]]
    return episodes.first().add_prefix("start_").join(episodes.last()).reset_index()


def hausdorff(own: np.ndarray, others: np.ndarray) -> float:
    """Return the symmetric Hausdorff distance between two sets of points (N, 2) and (M, 2); NaN if one is empty."""
    if not (len(own) and len(others)):
        return np.nan
    return float(max(directed_hausdorff(own, others)[0], directed_hausdorff(others, own)[0]))


def isolation(own: np.ndarray, others: np.ndarray) -> float:
    """Return the mean distance of a skill's endpoints to the nearest endpoint of another skill."""
    return float(cdist(own, others).min(axis=1).mean()) if len(own) and len(others) else np.nan


def distance(start: np.ndarray, end: np.ndarray) -> float:
    """Return the mean distance between the starts and the ends of episodes."""
    return float(np.linalg.norm(end - start, axis=1).mean()) if len(end) else np.nan


def spread(end: np.ndarray) -> float:
    """Return the mean distance of a skill's endpoints to their centroid."""
    return float(np.linalg.norm(end - end.mean(axis=0), axis=1).mean()) if len(end) else np.nan


def coverage(rollouts: pd.DataFrame) -> int:
    """Count the unit bins, [i, i+1) in each coordinate, that the rollouts visit."""
    return len(np.unique(np.floor(sound(rollouts)[["x", "y"]].to_numpy()), axis=0))


def moving(points: pd.DataFrame, moves: float) -> np.ndarray:
    """Return the skills that end farther than `moves` from their start, on average. `points` are those of `ends`."""
    moved = points[["x", "y"]].to_numpy() - points[["start_x", "start_y"]].to_numpy()
    away = pd.Series(np.linalg.norm(moved, axis=1)).groupby(points["skill"].to_numpy()).mean()
    found: np.ndarray = away.index[away > moves].to_numpy()
    return found


def distinct(end: np.ndarray, label: np.ndarray, episode: np.ndarray) -> float:
    """Count the skills that can be told apart by their endpoints (N, 2), given the skill (N,) and episode (N,) of each.

    A skill counts as its accuracy under one nearest neighbour: the share of its endpoints whose nearest endpoint in
    other episodes is its own. Skills that end apart count 1 each; k skills that end alike count 1 together. The same
    episode is left out for all skills: they start it from the same state, so equal policies end it at the same point.
    Nearest endpoints at equal distance share the vote. Without other episodes, all skills count 1 together.
    """
    skills = np.unique(label)
    if len(skills) < 2:
        return float(len(skills))
    apart = np.where(episode[:, None] == episode, np.inf, cdist(end, end))
    least = apart.min(axis=1, keepdims=True)
    nearest = apart <= least * (1 + SAME)
    right = (nearest & (label[:, None] == label)).sum(axis=1) / nearest.sum(axis=1)
    right[np.isinf(least[:, 0])] = 1 / len(skills)
    return float(sum(right[label == skill].mean() for skill in skills))


def goals_within(size: float, coordinates: int) -> np.ndarray:
    """Draw the goals of `goal_distance`, (GOALS, 2), uniform in [-size, size]. Every run has the same goals."""
    goals = np.zeros((GOALS, 2))
    goals[:, :coordinates] = np.random.default_rng(0).uniform(-size, size, (GOALS, coordinates))
    return goals


def goal_distance(rollouts: pd.DataFrame, goals: np.ndarray, nearest: float) -> float:
    """Return how near the best skill comes to a goal, relative to the distance at the start; mean over goals (G, 2).

    An episode's value for a goal is min_t d_t / d_0. A skill's value is the mean over its episodes, and the best skill
    for a goal has the lowest. A start nearer to the goal than `nearest` counts as that far.
    """
    paths = rollouts.sort_values("step", kind="stable")
    skills = []
    for _, own in paths.groupby("skill"):
        shares = []
        for _, episode in own.groupby("episode"):
            apart = cdist(goals, episode[["x", "y"]].to_numpy())  # (G, T + 1)
            shares.append(apart.min(axis=1) / np.maximum(apart[:, 0], nearest))
        skills.append(np.mean(shares, axis=0))
    return float(np.min(skills, axis=0).mean()) if skills else np.nan


def consistency_curves(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Return each skill's consistency over time: columns skill, step, consistency. Lower is better.

    It is the trace of the covariance of position over episodes, divided by the squared mean distance from the origin.
    An episode that ended early stays where it ended. An average over running episodes would reward falls, and would
    rest its last values on one or two episodes. NaN for a single episode, or if every episode is at the origin.
    """
    curves = []
    for skill, own in sound(rollouts).groupby("skill"):
        x, y = (own.pivot(index="step", columns="episode", values=axis).ffill() for axis in ("x", "y"))
        away = pd.DataFrame(np.hypot(x, y), x.index).mean(axis=1)  # x, y: (T + 1, episodes)
        ratio = (x.var(axis=1) + y.var(axis=1)) / (away**2).where(away > 0)
        curves.append(pd.DataFrame({"skill": skill, "step": x.index, "consistency": ratio.to_numpy()}))
    return pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=["skill", "step", "consistency"])


def run_consistency(rollouts: pd.DataFrame) -> pd.Series[float]:
    """Average the consistency of all skills, by step. A skill keeps its last value when its episodes have ended."""
    curves = consistency_curves(rollouts).pivot(index="step", columns="skill", values="consistency").astype(float)
    return curves.sort_index().ffill().mean(axis=1)


def measure(rollouts: pd.DataFrame, by: MeasureJob | None = None) -> pd.DataFrame:
    """Compute all metrics of a run's rollouts: columns skill, metric, value. Skill -1 is the whole run.

    Consistency is the mean of its curve over t ≥ 1, because t = 0 holds only the noise of the reset. Movers and
    distinct need the threshold of `by`, goal_distance its goals.
    """
    kept = sound(rollouts)
    points = ends(kept)
    curves = consistency_curves(kept)
    consistency = curves[curves["step"] >= 1].groupby("skill")["consistency"].mean()
    rows: list[tuple[int, str, float]] = []
    for skill in np.unique(rollouts["skill"]):  # of all rollouts, to list a skill without a sound episode too
        mine = points["skill"] == skill
        start, end = points.loc[mine, ["start_x", "start_y"]].to_numpy(), points.loc[mine, ["x", "y"]].to_numpy()
        others = points.loc[~mine, ["x", "y"]].to_numpy()
        values = (
            hausdorff(end, others),
            isolation(end, others),
            distance(start, end),
            spread(end),
            float(consistency.get(skill, np.nan)),
        )
        rows += [(int(skill), metric, value) for metric, value in zip(SKILL_METRICS, values, strict=True)]
    rows.append((WHOLE_RUN, "coverage", float(coverage(kept))))
    if by and by.moves is not None:
        movers = moving(points, by.moves)
        theirs = points[points["skill"].isin(movers)]
        told_apart = distinct(*(theirs[columns].to_numpy() for columns in (["x", "y"], "skill", "episode")))
        rows += [(WHOLE_RUN, "movers", float(len(movers))), (WHOLE_RUN, "distinct", told_apart)]
    if by and by.goals is not None:
        goals = goals_within(by.goals, by.coordinates)
        rows.append((WHOLE_RUN, "goal_distance", goal_distance(kept, goals, NEAREST * by.goals)))
    return pd.DataFrame(rows, columns=["skill", "metric", "value"])


def hausdorff_table(runs: Sequence[MeasuredRun]) -> pd.DataFrame:
    """Tabulate one row per skill and condition: columns method, seed, condition, skill, hausdorff, isolation."""
    wanted = ["hausdorff", "isolation"]
    columns = ["method", "seed", "condition", "skill", *wanted]
    tables = []
    for method, seed, frame in runs:
        skills = frame[frame["metric"].isin(wanted)]
        wide = skills.pivot(index=["condition", "skill"], columns="metric", values="value").reindex(columns=wanted)
        tables.append(wide.rename_axis(columns=None).reset_index().assign(method=method, seed=seed)[columns])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def summarise(runs: Sequence[MeasuredRun]) -> pd.DataFrame:
    """Tabulate means over seeds: columns method, condition, metric, mean, ci_low, ci_high, seeds.

    A run's value is the mean over its skills. Runs without a value are left out. Below `FEWEST` seeds the ends of the
    interval are blank.
    """
    keys = ["method", "condition", "metric"]
    tables = []
    for method, _, frame in runs:
        values = frame.groupby(["condition", "metric"], sort=False)["value"].mean()
        tables.append(values.reset_index().assign(method=method))
    rows = []
    if tables:
        for key, group in pd.concat(tables, ignore_index=True).groupby(keys, sort=False):
            rows.append((*key, *interval(group["value"].to_numpy())))
    return pd.DataFrame(rows, columns=[*keys, "mean", "ci_low", "ci_high", "seeds"])


def interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float, float, int]:
    """Return the mean, the ends of its percentile-bootstrap interval, and the number of finite values.

    Below `FEWEST` values the ends are NaN: they would be just the smallest and the largest value. The generator is
    fixed and the values are sorted, so the result depends neither on the evaluation nor on the order of the runs.
    """
    finite = np.sort(values[np.isfinite(values)])
    if len(finite) < FEWEST:
        return float(finite.mean()) if len(finite) else np.nan, np.nan, np.nan, len(finite)
    rng = np.random.default_rng(0)
    low, high = bootstrap(
        (finite,), np.mean, confidence_level=confidence, method="percentile", rng=rng
    ).confidence_interval
    return float(finite.mean()), float(low), float(high), len(finite)


def intervals(values: np.ndarray, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return `interval` of each column of (seeds, T): means, lower ends, upper ends.

    Complete columns are resampled together. Columns that lack a seed are done one by one.
    """
    result = np.full((3, values.shape[1]), np.nan)
    full = np.isfinite(values).all(axis=0)
    if len(values) >= FEWEST and full.any():
        whole = np.sort(values[:, full], axis=0)
        rng = np.random.default_rng(0)
        found = bootstrap((whole,), np.mean, axis=0, confidence_level=confidence, method="percentile", rng=rng)
        result[:, full] = whole.mean(axis=0), *found.confidence_interval
    else:
        full[:] = False
    for column in np.flatnonzero(~full):
        result[:, column] = interval(values[:, column], confidence)[:3]
    return result[0], result[1], result[2]
