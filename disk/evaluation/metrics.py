"""What is measured of skills, all of it from their rollouts (columns skill, episode, step, x, y).

The paper's number is the mean Hausdorff distance between the terminal positions of a skill and those of all
others. It is symmetric, so one far skill raises the value of every other, and two far skills decide a run's value:
it is never reported alone. Isolation is one-sided; movers, distinct and goal_distance see every skill. An episode
with a position that is not finite is left out whole, as the simulation broke down somewhere in it; a skill without
any sound episode is NaN. Where a world has one coordinate, y is 0 and all of this still holds.
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

METRICS = ("hausdorff", "isolation", "distance", "spread", "consistency")
"""The metrics of a skill."""
RUN = -1
"""In the column `skill`: the metric belongs to the run as a whole (coverage, movers, distinct, goal_distance)."""
GOALS = 1000
"""Goals of `goal_distance`. Their mean over other draws moves by about a hundredth."""
FEWEST = 5
"""Seeds below which no interval is given: with three a percentile interval is [min, max], which covers the mean 76 % of
the time."""
SAME = 1e-9
"""Distances that differ by less than this share are equal: rounding must not decide which of two is nearer."""

Run = tuple[str, int, pd.DataFrame]
"""Method, seed, and the run's metrics.csv: columns condition, skill, metric, value."""


class Reference(NamedTuple):
    """A value of the paper; the ends of its error bar where one can be made out."""

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
"""Mean Hausdorff distance in static worlds, by environment and method. The paper prints no numbers: these are
read off its bar chart of skill quality, to a pixel or so. No such chart exists of the evolving worlds."""


def sound(rollouts: pd.DataFrame) -> pd.DataFrame:
    """The rollouts without the episodes in which a position is not finite."""
    finite = np.isfinite(rollouts["x"]) & np.isfinite(rollouts["y"])
    kept: pd.Series[bool] = finite.groupby([rollouts["skill"], rollouts["episode"]]).transform("all")
    for skill, broken in rollouts[~kept].groupby("skill"):
        log.warning("skill %s: %d episodes with NaN or infinity are left out", skill, broken["episode"].nunique())
    return rollouts[kept]


def ends(rollouts: pd.DataFrame) -> pd.DataFrame:
    """First and last position of each episode: columns skill, episode, start_x, start_y, x, y."""
    episodes = rollouts.sort_values("step", kind="stable").groupby(["skill", "episode"])[["x", "y"]]
    return episodes.first().add_prefix("start_").join(episodes.last()).reset_index()


def hausdorff(own: np.ndarray, others: np.ndarray) -> float:
    """The symmetric Hausdorff distance between two sets of points (N, 2) and (M, 2); NaN if one is empty."""
    if not (len(own) and len(others)):
        return np.nan
    return float(max(directed_hausdorff(own, others)[0], directed_hausdorff(others, own)[0]))


def isolation(own: np.ndarray, others: np.ndarray) -> float:
    """The mean distance of a skill's endpoints to the nearest endpoint of another skill."""
    return float(cdist(own, others).min(axis=1).mean()) if len(own) and len(others) else np.nan


def distance(start: np.ndarray, end: np.ndarray) -> float:
    """The mean distance from where the episodes start to where they end."""
    return float(np.linalg.norm(end - start, axis=1).mean()) if len(end) else np.nan


def spread(end: np.ndarray) -> float:
    """The mean distance of a skill's endpoints to their centroid."""
    return float(np.linalg.norm(end - end.mean(axis=0), axis=1).mean()) if len(end) else np.nan


def coverage(rollouts: pd.DataFrame) -> int:
    """The number of unit bins, [i, i+1) in each coordinate, that any of the rollouts visits."""
    return len(np.unique(np.floor(sound(rollouts)[["x", "y"]].to_numpy()), axis=0))


def moving(points: pd.DataFrame, moves: float) -> np.ndarray:
    """The skills that end farther than `moves` from their start, on average over episodes; of what `ends` returns."""
    moved = points[["x", "y"]].to_numpy() - points[["start_x", "start_y"]].to_numpy()
    away = pd.Series(np.linalg.norm(moved, axis=1)).groupby(points["skill"].to_numpy()).mean()
    found: np.ndarray = away.index[away > moves].to_numpy()
    return found


def distinct(end: np.ndarray, label: np.ndarray, episode: np.ndarray) -> float:
    """How many skills can be told apart by their endpoints (N, 2), given the skill (N,) and episode (N,) of each.

    Each skill counts as the share of its endpoints whose nearest endpoint in other episodes is its own: the accuracy of
    one nearest neighbour. Skills that end apart count 1 each; k skills that end alike count 1 together. The episode
    itself is left out of all skills: they start it from the same state, so that equal policies end it at the same
    point. Of several nearest endpoints each has its share. Without other episodes, skills count 1 together.
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
    """The goals of `goal_distance`, (GOALS, 2): uniform in [-size, size] in each coordinate, the same for every run."""
    goals = np.zeros((GOALS, 2))
    goals[:, :coordinates] = np.random.default_rng(0).uniform(-size, size, (GOALS, coordinates))
    return goals


def goal_distance(rollouts: pd.DataFrame, goals: np.ndarray, nearest: float) -> float:
    """How near the best single skill comes to a goal, as a share of the distance at the start; mean over goals (G, 2).

    An episode's value for a goal is min_t d_t / d_0, and a skill's the mean over its episodes. The best skill for a
    goal has the lowest mean. A start that is nearer to the goal than `nearest` counts as that far.
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
    """Columns skill, step, consistency: the trace of the covariance of position over a skill's episodes,
    divided by the squared mean distance from the origin. Lower is better.

    An episode that ended early stays where it ended. Averaging over those still running instead could call a
    skill the more consistent the more of its episodes fell, and rest its last values on one or two of them.
    NaN where there is a single episode (no covariance) or every episode is at the origin.
    """
    curves = []
    for skill, own in sound(rollouts).groupby("skill"):
        x, y = (own.pivot(index="step", columns="episode", values=axis).ffill() for axis in ("x", "y"))
        away = pd.DataFrame(np.hypot(x, y), x.index).mean(axis=1)  # x, y: (T + 1, episodes)
        ratio = (x.var(axis=1) + y.var(axis=1)) / (away**2).where(away > 0)
        curves.append(pd.DataFrame({"skill": skill, "step": x.index, "consistency": ratio.to_numpy()}))
    return pd.concat(curves, ignore_index=True) if curves else pd.DataFrame(columns=["skill", "step", "consistency"])


def run_consistency(rollouts: pd.DataFrame) -> pd.Series[float]:
    """The mean of its skills' curves, by step. A skill whose episodes have all ended stays where it is."""
    curves = consistency_curves(rollouts).pivot(index="step", columns="skill", values="consistency").astype(float)
    return curves.sort_index().ffill().mean(axis=1)


def measure(rollouts: pd.DataFrame, by: MeasureJob | None = None) -> pd.DataFrame:
    """All metrics of a run's rollouts: columns skill, metric, value; skill is -1 (`RUN`) for those of the whole run.

    Consistency is the mean of its curve over t ≥ 1: at t = 0 there is only the noise of the reset. Movers, distinct and
    goal_distance are there if `by` has the world's threshold and its goals.
    """
    kept = sound(rollouts)
    points = ends(kept)
    curves = consistency_curves(kept)
    consistency = curves[curves["step"] >= 1].groupby("skill")["consistency"].mean()
    rows: list[tuple[int, str, float]] = []
    for skill in np.unique(rollouts["skill"]):  # of all rollouts: a skill without a sound episode is listed too
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
        rows += [(int(skill), metric, value) for metric, value in zip(METRICS, values, strict=True)]
    rows.append((RUN, "coverage", float(coverage(kept))))
    if by and by.moves is not None:
        movers = moving(points, by.moves)
        theirs = points[points["skill"].isin(movers)]
        told_apart = distinct(*(theirs[columns].to_numpy() for columns in (["x", "y"], "skill", "episode")))
        rows += [(RUN, "movers", float(len(movers))), (RUN, "distinct", told_apart)]
    if by and by.goals is not None:
        goals = goals_within(by.goals, by.coordinates)
        rows.append((RUN, "goal_distance", goal_distance(kept, goals, NEAREST * by.goals)))
    return pd.DataFrame(rows, columns=["skill", "metric", "value"])


def hausdorff_table(runs: Sequence[Run]) -> pd.DataFrame:
    """Columns method, seed, condition, skill, hausdorff, isolation: one row per skill and condition."""
    wanted = ["hausdorff", "isolation"]
    columns = ["method", "seed", "condition", "skill", *wanted]
    tables = []
    for method, seed, frame in runs:
        skills = frame[frame["metric"].isin(wanted)]
        wide = skills.pivot(index=["condition", "skill"], columns="metric", values="value").reindex(columns=wanted)
        tables.append(wide.rename_axis(columns=None).reset_index().assign(method=method, seed=seed)[columns])
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def summarise(runs: Sequence[Run]) -> pd.DataFrame:
    """Columns method, condition, metric, mean, ci_low, ci_high, seeds.

    A run's value is the mean over its skills; mean and interval are over the runs (seeds) that have one. The ends are
    blank below `FEWEST` seeds.
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
    """Mean, ends of the percentile bootstrap interval, and how many finite values they rest on.

    Below `FEWEST` values the ends are NaN: they would be the smallest and the largest value, and no more. The generator
    is fixed and the values sorted, so that neither a second evaluation nor the order of the runs moves a digit.
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
    """`interval` of each column of (seeds, T): means, and the ends of their intervals, all columns at once.

    All columns are resampled alike. Those that lack a seed are done one by one.
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
