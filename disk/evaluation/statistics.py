"""Statistics over runs and worlds: interquartile means, their intervals, and performance profiles.

The definitions are those of rliable (Agarwal et al. 2021). The interquartile mean is the mean of the middle half of all
runs of all worlds. Its interval is a percentile bootstrap that resamples seeds within each world. A performance profile
is the share of runs whose score exceeds τ. A score must be comparable between worlds. Here it is the share of a run's
skills that move and can be told apart: `distinct` divided by the number of skills.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import trim_mean

from disk.evaluation.metrics import FEWEST, MeasuredRun
from disk.storage.layout import Run

RESAMPLES = 10_000
THRESHOLDS = np.linspace(0.0, 1.0, 101)
SCORE = "distinct"


def interquartile_mean(scores: Sequence[np.ndarray]) -> float:
    """Return the mean of the middle half of all scores, which are given by world; NaN if there are none."""
    together = np.concatenate([np.zeros(0), *scores])
    return float(trim_mean(together, 0.25)) if len(together) else np.nan


def stratified_interval(scores: Sequence[np.ndarray], confidence: float = 0.95) -> tuple[float, float]:
    """Return the ends of the interquartile mean's percentile-bootstrap interval. Seeds are resampled within each world.

    NaN below `FEWEST` runs. The generator is fixed, so a second evaluation gives the same digits.
    """
    if sum(map(len, scores)) < FEWEST:
        return np.nan, np.nan
    random = np.random.default_rng(0)
    # Sorted, so that the order of the runs changes no digit either.
    drawn = [random.choice(np.sort(own), (RESAMPLES, len(own))) for own in scores if len(own)]
    means = trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1)
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def profile(scores: Sequence[np.ndarray], thresholds: np.ndarray = THRESHOLDS) -> np.ndarray:
    """Return the share of all runs whose score is above each threshold."""
    together = np.concatenate([np.zeros(0), *scores])
    return np.array([(together > threshold).mean() if len(together) else np.nan for threshold in thresholds])


def scores_of(runs: Mapping[str, Sequence[MeasuredRun]]) -> dict[str, dict[str, np.ndarray]]:
    """Return the score of each run in its world's first condition, by method and world. `runs` are given by world."""
    found: dict[str, dict[str, list[float]]] = {}
    for world, own in runs.items():
        for method, _, frame in own:
            first = frame[frame["condition"] == frame["condition"].iloc[0]]
            values = first.loc[first["metric"] == SCORE, "value"]
            skills = first.loc[first["skill"] >= 0, "skill"].nunique()
            if len(values) and skills:
                found.setdefault(method, {}).setdefault(world, []).append(float(values.iloc[0]) / skills)
    return {method: {world: np.array(own) for world, own in worlds.items()} for method, worlds in found.items()}


def statistics_table(runs: Mapping[str, Sequence[MeasuredRun]]) -> pd.DataFrame:
    """Tabulate interquartile means: columns method, worlds, runs, iqm, ci_low, ci_high. Ends are blank below five runs.

    Compare only methods that were run in the same worlds.
    """
    rows = []
    for method, worlds in scores_of(runs).items():
        scores = list(worlds.values())
        count = sum(map(len, scores))
        rows.append((method, " ".join(worlds), count, interquartile_mean(scores), *stratified_interval(scores)))
    return pd.DataFrame(rows, columns=["method", "worlds", "runs", "iqm", "ci_low", "ci_high"])


def profiles_table(runs: Mapping[str, Sequence[MeasuredRun]]) -> pd.DataFrame:
    """Tabulate performance profiles, the share of runs above each threshold: columns method, threshold, share."""
    frames = [
        pd.DataFrame({"method": method, "threshold": THRESHOLDS, "share": profile(list(worlds.values()))})
        for method, worlds in scores_of(runs).items()
    ]
    columns = ["method", "threshold", "share"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def read_worlds(metrics: Sequence[Path]) -> dict[str, list[MeasuredRun]]:
    """Read the metrics.csv of runs, by world."""
    from disk.evaluation.run import read_runs

    worlds: dict[str, list[MeasuredRun]] = {}
    for path, run in zip(metrics, read_runs(metrics), strict=True):
        worlds.setdefault(Run.of(path).env, []).append(run)
    return worlds
