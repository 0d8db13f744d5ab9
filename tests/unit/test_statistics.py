"""Statistics over worlds and seeds: by hand, by brute force, and against rliable's numbers."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from disk.evaluation import statistics
from disk.figures.profiles import profiles

# Five seeds (rows) of three worlds (columns), as rliable has them.
SCORES = np.array([[0.1, 0.5, 1.2], [0.3, 0.4, 0.9], [0.2, 0.9, 1.1], [0.0, 0.6, 1.3], [0.4, 0.7, 0.8]])
WORLDS = list(SCORES.T)


def test_the_interquartile_mean_is_that_of_the_middle_half() -> None:
    # Of 0 to 7 the middle half is 2 to 5; of fifteen scores, three are cut off on each side (a quarter, rounded down).
    assert statistics.interquartile_mean([np.arange(4.0), np.arange(4.0, 8.0)]) == 3.5
    middle = np.sort(SCORES, axis=None)[3:-3]
    assert statistics.interquartile_mean(WORLDS) == pytest.approx(middle.mean())
    assert statistics.interquartile_mean([np.array([0.0, 0, 1, 100])]) == 0.5, "an outlier has no say"
    assert math.isnan(statistics.interquartile_mean([]))


def test_iqm_and_interval_are_rliables() -> None:
    """Of rliable 1.2.0: aggregate_iqm, get_interval_estimates (50,000 resamples) and score_distributions."""
    assert statistics.interquartile_mean(WORLDS) == pytest.approx(0.61111111)
    assert statistics.stratified_interval(WORLDS) == pytest.approx((0.52222222, 0.72222222), abs=0.01)

    shares = statistics.profile(WORLDS, np.array([0.0, 0.4, 1.0]))
    assert shares == pytest.approx([0.93333333, 0.6, 0.2])


def test_seeds_are_resampled_within_their_world() -> None:
    """Worlds without any spread have an interval without width, however far apart they are."""
    apart = [np.zeros(5), np.full(5, 0.5), np.ones(5), np.full(5, 2.0)]
    assert statistics.stratified_interval(apart) == (0.75, 0.75)


def test_the_interval_is_the_exact_bootstraps_where_that_can_be_counted() -> None:
    """Two worlds with three seeds: all 27 · 27 resamples."""
    scores = [np.array([0.1, 0.2, 0.9]), np.array([0.4, 0.5, 0.6])]
    drawn = [list(product(own, repeat=3)) for own in scores]
    means = [np.sort([*a, *b])[1:-1].mean() for a, b in product(*drawn)]
    assert statistics.stratified_interval(scores) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.01)


def test_the_interval_does_not_depend_on_the_order_of_runs_and_comes_again() -> None:
    again = statistics.stratified_interval([own[::-1] for own in WORLDS])
    assert statistics.stratified_interval(WORLDS) == again


def test_fewer_than_five_runs_have_no_interval() -> None:
    assert all(map(math.isnan, statistics.stratified_interval([np.array([0.1, 0.2]), np.array([0.3, 0.4])])))
    assert not any(map(math.isnan, statistics.stratified_interval([np.array([0.1, 0.2]), np.array([0.3, 0.4, 0.5])])))


def test_a_profile_is_the_share_of_runs_above_each_threshold() -> None:
    shares = statistics.profile([np.array([0.2, 0.4]), np.array([0.4, 1.0])], np.array([0.0, 0.2, 0.4, 0.9, 1.0]))
    assert shares.tolist() == [1.0, 0.75, 0.25, 0.25, 0.0], "above, not at"


def run(distinct: float, skills: int = 4) -> pd.DataFrame:
    of_skills = [("nominal", skill, "distance", 1.0) for skill in range(skills)]
    lines = [*of_skills, ("nominal", -1, "distinct", distinct), ("trained", -1, "distinct", 99.0)]
    return pd.DataFrame(lines, columns=["condition", "skill", "metric", "value"])


def test_a_runs_score_is_the_share_of_its_skills_that_can_be_told_apart() -> None:
    runs = {
        "ant": [("disk", 0, run(2.0)), ("disk", 1, run(3.0)), ("dads", 0, run(5.0, 10))],
        "hopper": [("disk", 0, run(1.0))],
    }
    scores = statistics.scores_of(runs)
    assert {method: {world: own.tolist() for world, own in worlds.items()} for method, worlds in scores.items()} == {
        "disk": {"ant": [0.5, 0.75], "hopper": [0.25]},
        "dads": {"ant": [0.5]},
    }
    table = statistics.statistics_table(runs).set_index("method")
    assert table.loc["disk", ["worlds", "runs"]].tolist() == ["ant hopper", 3]
    assert table.loc["disk", "iqm"] == pytest.approx(0.5)
    assert math.isnan(table.loc["disk", "ci_low"])


def test_runs_without_the_measure_have_no_score() -> None:
    old = run(1.0).query("metric != 'distinct'")
    assert statistics.scores_of({"ant": [("disk", 0, old)]}) == {}
    assert statistics.statistics_table({}).empty
    assert statistics.profiles_table({}).empty


def test_profiles_are_drawn_with_their_means(tmp_path: Path) -> None:
    runs = {"ant": [("disk", seed, run(float(seed))) for seed in range(5)], "hopper": [("dads", 0, run(0.0))]}
    profiles(statistics.profiles_table(runs), statistics.statistics_table(runs), tmp_path / "profiles.svg")
    text = "".join(ET.parse(tmp_path / "profiles.svg").getroot().itertext())
    assert "DISk: 0.50 (5 runs)" in text
    assert "Off-DADS: 0.00 (1 runs)" in text
    nothing = statistics.profiles_table({}), statistics.statistics_table({})
    profiles(*nothing, tmp_path / "none.svg")
    assert "no runs" in "".join(ET.parse(tmp_path / "none.svg").getroot().itertext())
