"""Metrics against cases made by hand, brute force, and scipy."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import bootstrap

from disk.config import MeasureJob
from disk.evaluation import metrics
from disk.evaluation.tables import save_csv

Paths = dict[int, list[list[tuple[float, float]]]]

SQUARE = np.array([(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)])
coordinates = st.floats(-1e6, 1e6, allow_subnormal=False)


def points(count: st.SearchStrategy[int]) -> st.SearchStrategy[np.ndarray]:
    return count.flatmap(lambda n: arrays(float, (n, 2), elements=coordinates))


def rollouts(paths: Paths) -> pd.DataFrame:
    """Rollouts from the positions of each episode of each skill."""
    rows = [
        (skill, episode, step, x, y, 0.0, 0.0)
        for skill, episodes in paths.items()
        for episode, path in enumerate(episodes)
        for step, (x, y) in enumerate(path)
    ]
    return pd.DataFrame(rows, columns=["skill", "episode", "step", "x", "y", "vx", "vy"])


def value(measured: pd.DataFrame, metric: str, skill: int = 0) -> float:
    chosen = measured[(measured["metric"] == metric) & (measured["skill"] == skill)]
    assert len(chosen) == 1
    return float(chosen["value"].iloc[0])


def from_origin(paths: Paths) -> Paths:
    """The same paths, each started at the origin."""
    return {skill: [[(0.0, 0.0), *path] for path in episodes] for skill, episodes in paths.items()}


def test_two_clusters() -> None:
    measured = metrics.measure(rollouts(from_origin({0: [[(0, 3)], [(0, 4)]], 1: [[(0, -4)], [(0, -3)]]})))
    assert value(measured, "hausdorff") == value(measured, "hausdorff", 1) == 7
    assert value(measured, "isolation") == 6.5
    assert value(measured, "distance") == 3.5
    assert value(measured, "spread") == 0.5


def test_one_outlier_raises_everyones_hausdorff_but_nobodys_isolation() -> None:
    paths = from_origin({0: [[(0, 0)]], 1: [[(1, 0)]], 2: [[(0, 1)]], 3: [[(100, 0)]]})
    measured = metrics.measure(rollouts(paths))
    assert [value(measured, "hausdorff", skill) for skill in range(4)] == pytest.approx(
        [100, 99, math.hypot(100, 1), math.hypot(100, 1)]
    )
    assert [value(measured, "isolation", skill) for skill in range(4)] == [1, 1, 1, 99]


def test_single_points_and_identical_sets() -> None:
    assert metrics.hausdorff(np.array([[1.0, 1.0]]), np.array([[4.0, 5.0]])) == 5
    assert metrics.hausdorff(SQUARE, SQUARE[::-1]) == 0
    assert metrics.isolation(SQUARE, SQUARE) == 0
    assert metrics.hausdorff(SQUARE[:1], SQUARE) == pytest.approx(math.sqrt(2))  # the far side counts
    assert metrics.isolation(SQUARE[:1], SQUARE) == 0  # and here it does not


@given(points(st.integers(1, 6)), points(st.integers(1, 6)))
def test_hausdorff_equals_brute_force(own: np.ndarray, others: np.ndarray) -> None:
    apart = np.linalg.norm(own[:, None] - others[None], axis=-1)
    expected = max(apart.min(axis=1).max(), apart.min(axis=0).max())
    assert metrics.hausdorff(own, others) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert metrics.hausdorff(others, own) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert metrics.isolation(own, others) == pytest.approx(apart.min(axis=1).mean(), rel=1e-9, abs=1e-9)
    assert metrics.isolation(own, others) <= metrics.hausdorff(own, others) * (1 + 1e-9) + 1e-9


def test_one_skill_has_nobody_to_be_far_from() -> None:
    measured = metrics.measure(rollouts({0: [[(0, 0), (3, 4)], [(1, 0), (4, 4)]]}))
    assert math.isnan(value(measured, "hausdorff"))
    assert math.isnan(value(measured, "isolation"))
    assert value(measured, "distance") == 5  # from each episode's own start
    assert value(measured, "spread") == 0.5


def test_every_skill_has_every_metric_and_the_run_has_coverage() -> None:
    measured = metrics.measure(rollouts(from_origin({0: [[(1, 0)]], 1: [[(2, 0)]]})))
    assert list(measured.columns) == ["skill", "metric", "value"]
    assert [(row.skill, row.metric) for row in measured.itertuples()] == [
        *((skill, metric) for skill in (0, 1) for metric in metrics.SKILL_METRICS),
        (metrics.WHOLE_RUN, "coverage"),
    ]


def test_the_order_of_rows_does_not_matter() -> None:
    frame = rollouts(
        from_origin({0: [[(1, 0), (2, 1)], [(1, 1), (2, 2)]], 1: [[(-1, 0), (-2, 0)], [(-1, 0), (-3, 1)]]})
    )
    shuffled = frame.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(metrics.measure(frame), metrics.measure(shuffled))


def test_coverage_counts_unit_bins_of_all_skills() -> None:
    paths: Paths = {0: [[(0, 0), (0.9, 0.9), (1.0, 0)]], 1: [[(-0.0, 0.1), (-0.1, 0), (1.5, 0.5)]]}
    assert metrics.coverage(rollouts(paths)) == 3  # [0,1)², [1,2)×[0,1), [-1,0)×[0,1)
    assert value(metrics.measure(rollouts(paths)), "coverage", metrics.WHOLE_RUN) == 3


def test_consistency_is_variance_over_squared_distance() -> None:
    # At step 1 x is 1 and 3: variance 2, mean distance 2. At step 2: 2 in x, 8 in y, mean distance 5.
    paths: Paths = {0: [[(0, 0), (1, 0), (3, 4)], [(0, 0), (3, 0), (5, 0)]]}
    curve = metrics.consistency_curves(rollouts(paths))
    assert list(curve.columns) == ["skill", "step", "consistency"]
    assert list(curve["step"]) == [0, 1, 2]
    assert math.isnan(curve["consistency"][0])  # at the origin, all of them
    assert list(curve["consistency"][1:]) == pytest.approx([2 / 4, (2 + 8) / 25])
    assert value(metrics.measure(rollouts(paths)), "consistency") == pytest.approx((0.5 + 0.4) / 2)


def test_consistency_of_equal_episodes_is_zero_and_of_one_episode_unknown() -> None:
    path = [(0.0, 0.0), (1.0, 1.0), (2.0, 1.0)]
    assert value(metrics.measure(rollouts({0: [path, path, path]})), "consistency") == 0
    assert math.isnan(value(metrics.measure(rollouts({0: [path]})), "consistency"))


def test_consistency_leaves_the_reset_out() -> None:
    measured = metrics.measure(rollouts({0: [[(0, 1), (5, 0)], [(1, 0), (5, 0)]]}))
    assert value(measured, "consistency") == 0


def test_an_episode_that_fell_stays_where_it_fell() -> None:
    fell: Paths = {0: [[(0, 0), (1, 0)], [(0, 0), (1, 0), (3, 0)]]}
    stayed: Paths = {0: [[(0, 0), (1, 0), (1, 0)], [(0, 0), (1, 0), (3, 0)]]}
    pd.testing.assert_frame_equal(metrics.measure(rollouts(fell)), metrics.measure(rollouts(stayed)))
    assert value(metrics.measure(rollouts(fell)), "consistency") == pytest.approx((0 + 2 / 4) / 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_broken_episode_is_left_out_whole(bad: float, step: int, caplog: pytest.LogCaptureFixture) -> None:
    good = from_origin({0: [[(1, 0), (2, 0)], [(1, 1), (2, 1)]], 1: [[(-1, 0), (-2, 0)], [(-1, 0), (-3, 0)]]})
    frame = rollouts({**good, 0: [*good[0], [(0, 0), (7, 7), (8, 8)]]})
    frame.loc[(frame["skill"] == 0) & (frame["episode"] == 2) & (frame["step"] == step), "y"] = bad
    with caplog.at_level(logging.WARNING, logger="disk"):
        measured = metrics.measure(frame)
    pd.testing.assert_frame_equal(measured, metrics.measure(rollouts(good)))
    assert "skill 0: 1 episodes" in caplog.text


def test_a_skill_without_a_sound_episode_is_nan_and_the_others_are_measured() -> None:
    frame = rollouts(from_origin({0: [[(1, 0)]], 1: [[(math.nan, 0)]], 2: [[(-1, 0)]]}))
    measured = metrics.measure(frame)
    assert all(math.isnan(value(measured, metric, 1)) for metric in metrics.SKILL_METRICS)
    assert value(measured, "hausdorff", 0) == value(measured, "hausdorff", 2) == 2
    everything = metrics.measure(frame.assign(x=math.nan))
    assert everything[everything["skill"] >= 0]["value"].isna().all()
    assert value(everything, "coverage", metrics.WHOLE_RUN) == 0


def run(scale: float, condition: str = "nominal") -> pd.DataFrame:
    """A run's metrics.csv."""
    paths = from_origin({0: [[(scale, 0)]], 1: [[(-scale, 0)]], 2: [[(0, 3 * scale)]]})
    return metrics.measure(rollouts(paths)).assign(condition=condition)[["condition", "skill", "metric", "value"]]


def test_the_table_has_one_row_per_skill_and_condition() -> None:
    both = pd.concat([run(1.0), run(2.0, "leg1")])
    table = metrics.hausdorff_table([("disk", 0, both), ("random", 7, run(0.1))])
    assert list(table.columns) == ["method", "seed", "condition", "skill", "hausdorff", "isolation"]
    assert len(table) == 9  # no row for coverage, which is the run's
    leg = table[(table["method"] == "disk") & (table["condition"] == "leg1")]
    assert list(leg["skill"]) == [0, 1, 2]
    expected = both[(both["condition"] == "leg1") & (both["metric"] == "hausdorff")]
    assert list(leg["hausdorff"]) == list(expected["value"])
    assert list(table[table["method"] == "random"]["seed"]) == [7, 7, 7]


def test_the_table_keeps_skills_that_are_nan() -> None:
    frame = run(1.0)
    frame.loc[frame["skill"] == 1, "value"] = math.nan
    table = metrics.hausdorff_table([("disk", 0, frame)])
    assert list(table["skill"]) == [0, 1, 2]
    assert list(table["hausdorff"].isna()) == [False, True, False]


def test_tables_survive_a_csv(tmp_path: object) -> None:
    path = f"{tmp_path}/metrics.csv"
    frame = run(1 / 3)
    frame.to_csv(path, index=False)
    pd.testing.assert_frame_equal(
        metrics.hausdorff_table([("disk", 0, pd.read_csv(path))]), metrics.hausdorff_table([("disk", 0, frame)])
    )


def test_no_runs_give_empty_tables_with_their_columns() -> None:
    table, summary = metrics.hausdorff_table([]), metrics.summarise([])
    assert list(table.columns) == ["method", "seed", "condition", "skill", "hausdorff", "isolation"]
    assert list(summary.columns) == ["method", "condition", "metric", "mean", "ci_low", "ci_high", "seeds"]
    assert table.empty
    assert summary.empty


def test_the_summary_is_the_mean_over_skills_then_seeds() -> None:
    runs = [("disk", seed, run(scale)) for seed, scale in enumerate((1.0, 2.0, 4.0, 3.0, 1.5))]
    summary = metrics.summarise(runs).set_index("metric")
    of_seeds = [frame[frame["metric"] == "hausdorff"]["value"].mean() for _, _, frame in runs]
    row = summary.loc["hausdorff"]
    assert row["mean"] == pytest.approx(np.mean(of_seeds))
    assert row["seeds"] == 5
    assert min(of_seeds) <= row["ci_low"] < row["mean"] < row["ci_high"] <= max(of_seeds)
    assert set(summary.index) == {*metrics.SKILL_METRICS, "coverage"}


def test_the_interval_is_scipys_percentile_bootstrap() -> None:
    values = np.array([3.0, 1.0, 4.0, 1.5, 9.0])
    expected = bootstrap((np.sort(values),), np.mean, method="percentile", rng=np.random.default_rng(0))
    mean, low, high, seeds = metrics.interval(values)
    assert (low, high) == tuple(expected.confidence_interval)
    assert mean == pytest.approx(values.mean())
    assert seeds == 5


@given(st.lists(st.floats(-1e3, 1e3), min_size=5, max_size=8), st.randoms())
def test_intervals_hold_the_mean_and_ignore_the_order_of_runs(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    mean, low, high, _ = metrics.interval(np.array(values))
    assert metrics.interval(np.array(shuffled)) == (mean, low, high, len(values))
    assert low - 1e-9 <= mean <= high + 1e-9


@pytest.mark.parametrize("seeds", [1, 2, 3, 4])
def test_below_five_seeds_there_is_a_mean_and_no_interval(seeds: int) -> None:
    mean, low, high, counted = metrics.interval(np.array([*range(seeds), math.nan]))
    assert mean == pytest.approx((seeds - 1) / 2)
    assert math.isnan(low)
    assert math.isnan(high)
    assert counted == seeds
    summary = metrics.summarise([("disk", seed, run(1.0 + seed)) for seed in range(seeds)])
    assert summary[["ci_low", "ci_high"]].isna().all(axis=None)
    assert summary["mean"].notna().any()


def test_a_summary_without_an_interval_has_blanks_in_its_file(tmp_path: Path) -> None:
    save_csv(metrics.summarise([("disk", 0, run(1.0))]), tmp_path / "summary.csv")
    assert "disk,nominal,coverage,4,,,1" in (tmp_path / "summary.csv").read_text().splitlines()


def test_no_seeds_have_no_mean() -> None:
    *values, seeds = metrics.interval(np.array([math.nan]))
    assert all(math.isnan(number) for number in values)
    assert seeds == 0


def test_the_papers_values_are_inside_their_bars() -> None:
    for methods in metrics.PAPER_HAUSDORFF.values():
        assert set(methods) == {"random", "diayn", "dads", "disk"}
        for mean, low, high in methods.values():
            assert (low is None) == (high is None)
            assert low is None or high is None or low <= mean <= high


def measured_by(paths: Paths, moves: float | None = None, goals: float | None = None) -> pd.DataFrame:
    return metrics.measure(rollouts(from_origin(paths)), MeasureJob(moves=moves, goals=goals))


def around(x: float, y: float) -> list[list[tuple[float, float]]]:
    """Ten episodes that end on a small circle."""
    angles = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    return [[(x + 0.1 * math.cos(angle), y + 0.1 * math.sin(angle))] for angle in angles]


def test_movers_end_farther_than_the_threshold_on_average_over_their_episodes() -> None:
    paths: Paths = {0: [[(9, 0)], [(0, 13)]], 1: [[(-10, 0)], [(10, 0)]], 2: [[(0, 0)], [(19.9, 0)]], 3: [[(0, 1)]] * 2}
    measured = measured_by(paths, moves=10.0)
    assert value(measured, "movers", metrics.WHOLE_RUN) == 1  # 11 m on average; the others 10, 9.95 and 1
    assert value(measured_by(paths, moves=9.9), "movers", metrics.WHOLE_RUN) == 3


def test_a_mover_is_measured_from_its_own_start() -> None:
    frame = rollouts({0: [[(50, 0), (51, 0)]] * 2, 1: [[(50, 0), (0, 0)]] * 2})
    assert value(metrics.measure(frame, MeasureJob(moves=10.0)), "movers", metrics.WHOLE_RUN) == 1


def test_movers_that_end_apart_count_one_each() -> None:
    apart: Paths = {0: around(20, 0), 1: around(0, 20), 2: around(-20, 0), 3: around(0, 0)}
    measured = measured_by(apart, moves=10.0)
    assert (value(measured, "movers", metrics.WHOLE_RUN), value(measured, "distinct", metrics.WHOLE_RUN)) == (3, 3)


@pytest.mark.parametrize("count", [2, 5, 20])
def test_identical_movers_count_one_together(count: int) -> None:
    on_a_spot = measured_by({skill: [[(20, 0)]] * 10 for skill in range(count)}, moves=10.0)
    assert value(on_a_spot, "movers", metrics.WHOLE_RUN) == count
    assert value(on_a_spot, "distinct", metrics.WHOLE_RUN) == pytest.approx(1)
    # Equal policies from equal starts: each episode ends at a point of its own, the same for all of them.
    alike = measured_by(dict.fromkeys(range(count), around(20, 0)), moves=10.0)
    assert value(alike, "distinct", metrics.WHOLE_RUN) == pytest.approx(1)


@pytest.mark.parametrize("episodes", [10, 200])
def test_movers_that_end_alike_by_chance_count_about_one_together(episodes: int) -> None:
    random = np.random.default_rng(0)
    label, episode = np.repeat(np.arange(5), episodes), np.tile(np.arange(episodes), 5)
    counts = [metrics.distinct(random.normal((30, 0), 3, (5 * episodes, 2)), label, episode) for _ in range(20)]
    assert np.mean(counts) == pytest.approx(1, abs=0.1)


def test_two_alike_beside_one_apart_count_two() -> None:
    measured = measured_by({0: around(20, 0), 1: around(20, 0), 2: around(-20, 0)}, moves=10.0)
    assert value(measured, "distinct", metrics.WHOLE_RUN) == pytest.approx(2)


def test_half_confused_movers_count_by_hand() -> None:
    # 10 and 11 have each other, and so have 90 and 91. But 50 is nearest to the other skill's 51, and 51 to 50.
    ends = np.array([[10, 0], [11, 0], [50, 0], [51, 0], [90, 0], [91, 0]], dtype=float)
    label, episode = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 2])
    assert metrics.distinct(ends, label, episode) == pytest.approx(2 / 3 + 2 / 3)
    # If 50 and 51 are of the same episode, each has to look elsewhere: 50 at its own 11, 51 at its own 90.
    assert metrics.distinct(ends, label, np.array([0, 1, 2, 2, 1, 0])) == pytest.approx(2)


def test_standing_skills_neither_count_nor_confuse() -> None:
    paths: Paths = {0: around(20, 0), 1: [[(20, 0)], *[[(0.0, 0.0)]] * 9], 2: around(0, 0)}
    measured = measured_by(paths, moves=10.0)
    assert (value(measured, "movers", metrics.WHOLE_RUN), value(measured, "distinct", metrics.WHOLE_RUN)) == (1, 1)


def test_no_mover_and_one_mover_have_numbers() -> None:
    none = measured_by({0: around(1, 0), 1: around(0, 1)}, moves=10.0)
    assert (value(none, "movers", metrics.WHOLE_RUN), value(none, "distinct", metrics.WHOLE_RUN)) == (0, 0)
    one = measured_by({0: [[(20, 0)]], 1: [[(0, 1)]]}, moves=10.0)  # of a single episode too
    assert (value(one, "movers", metrics.WHOLE_RUN), value(one, "distinct", metrics.WHOLE_RUN)) == (1, 1)


def test_a_skill_without_a_sound_episode_is_no_mover() -> None:
    frame = rollouts(from_origin({0: around(20, 0), 1: [[(math.nan, 0.0)]]}))
    measured = metrics.measure(frame, MeasureJob(moves=10.0))
    assert (value(measured, "movers", metrics.WHOLE_RUN), value(measured, "distinct", metrics.WHOLE_RUN)) == (1, 1)


def test_ties_favour_nobody() -> None:
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=float)  # each has two neighbours at distance 1
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 0, 3, 1]):
        skills = np.array([0, 0, 1, 1])[order]
        for label in (skills, 1 - skills):
            assert metrics.distinct(square[order], label, np.arange(4)) == pytest.approx(1)


@pytest.mark.parametrize("count", [2, 5])
def test_movers_of_a_single_episode_cannot_be_told_apart(count: int) -> None:
    measured = measured_by({skill: [[(20.0 + 5 * skill, 0)]] for skill in range(count)}, moves=10.0)
    assert (value(measured, "movers", metrics.WHOLE_RUN), value(measured, "distinct", metrics.WHOLE_RUN)) == (
        count,
        pytest.approx(1),
    )


@given(st.integers(2, 4), st.integers(2, 4), st.randoms())
def test_distinct_equals_brute_force_and_is_between_none_and_all(skills: int, episodes: int, random: Random) -> None:
    ends = np.array([(random.randint(0, 3), random.randint(0, 3)) for _ in range(skills * episodes)], dtype=float)
    label, episode = np.repeat(np.arange(skills), episodes), np.tile(np.arange(episodes), skills)
    total = 0.0
    for i, mine in enumerate(label):
        others = [j for j in range(len(ends)) if episode[j] != episode[i]]
        apart = [float(np.linalg.norm(ends[i] - ends[j])) for j in others]
        near = [j for j, away in zip(others, apart, strict=True) if math.isclose(away, min(apart), abs_tol=1e-12)]
        total += sum(label[j] == mine for j in near) / len(near) / episodes
    found = metrics.distinct(ends, label, episode)
    assert found == pytest.approx(total)
    assert 0 <= found <= skills + 1e-9


def test_the_best_skill_for_a_goal_comes_nearest_on_average_over_its_episodes() -> None:
    # From the origin, goal (10, 0): skill 0 passes it in one episode and comes no nearer in the other: 0.5. Skill 1
    # comes within 4 m in both: 0.4. Goal (0, -5): neither gets any nearer than the start.
    paths = from_origin({0: [[(10, 0), (30, 0)], [(0, 7)]], 1: [[(6, 0), (0, 0)], [(6, 0)]]})
    goals = np.array([[10.0, 0.0], [0.0, -5.0]])
    assert metrics.goal_distance(rollouts(paths), goals[:1], 0.1) == pytest.approx(0.4)
    assert metrics.goal_distance(rollouts(paths), goals, 0.1) == pytest.approx((0.4 + 1.0) / 2)


def test_a_goal_at_the_start_is_divided_by_no_less_than_the_nearest() -> None:
    stays = rollouts({0: [[(0, 0), (0, 0)]]})
    assert metrics.goal_distance(stays, np.array([[0.01, 0.0]]), 0.5) == pytest.approx(0.01 / 0.5)


def test_goals_are_the_same_for_every_run_and_lie_on_a_line_where_there_is_one_coordinate() -> None:
    plane, line = metrics.goals_within(15.0, 2), metrics.goals_within(15.0, 1)
    np.testing.assert_array_equal(plane, metrics.goals_within(15.0, 2))
    assert plane.shape == line.shape == (1000, 2)
    assert np.abs(plane).max() <= 15
    assert (np.abs(plane).max(axis=0) > 14.9).all()
    assert not line[:, 1].any()
    assert np.ptp(line[:, 0]) > 29


def test_skills_all_around_reach_goals_that_one_direction_does_not() -> None:
    def straight(angle: float) -> list[list[tuple[float, float]]]:
        return [[(t * math.cos(angle), t * math.sin(angle)) for t in np.linspace(1, 25, 50)]] * 2

    star = measured_by({k: straight(2 * math.pi * k / 8) for k in range(8)}, goals=15.0)
    alike = measured_by({k: straight(0.0) for k in range(8)}, goals=15.0)
    assert value(star, "goal_distance", metrics.WHOLE_RUN) < 0.3
    assert 0.7 < value(alike, "goal_distance", metrics.WHOLE_RUN) < 1


def test_what_a_world_does_not_say_is_not_measured() -> None:
    measured = measured_by({0: around(20, 0), 1: around(0, 20)})
    assert not {"movers", "distinct", "goal_distance"} & set(measured["metric"])


def test_measures_of_a_run_are_summarised_over_seeds() -> None:
    runs = [("disk", seed, measured_by({0: around(20, 0), 1: around(0, seed)}, moves=10.0)) for seed in (11, 12, 1)]
    summary = metrics.summarise([(method, seed, frame.assign(condition="nominal")) for method, seed, frame in runs])
    assert summary.set_index("metric").loc["movers", "mean"] == pytest.approx(5 / 3)
