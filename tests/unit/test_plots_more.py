"""Figures of ablations, order, curves over time and downstream learning: what they show, and what may be missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from test_plots import fan, run, texts

from disk.evaluation import metrics
from disk.figures import style
from disk.figures.ablations import ablations
from disk.figures.consistency import consistency
from disk.figures.curves import curves
from disk.figures.downstream import downstream
from disk.figures.order import order

Captured = Callable[[], Figure]


def broken() -> dict[str, pd.DataFrame]:
    """Rollouts in which something is wrong."""
    frame = fan(3)
    return {
        "fell at once": frame[(frame["skill"] != 0) | (frame["step"] == 0)],
        "NaN in a skill": frame.assign(x=frame["x"].where(frame["skill"] != 1)),
        "NaN in all": frame.assign(y=math.nan),
        "one episode": fan(3, episodes=1),
        "nothing": frame.iloc[:0],
    }


def progress(skills: int, rows: int = 5, **columns: float) -> pd.DataFrame:
    """A progress.csv: of a chain, or of skills that were learned together (0)."""
    frames = []
    for skill in range(max(1, skills)):
        steps = 100 * np.arange(1, rows + 1)
        frame = pd.DataFrame({"time/total_timesteps": steps, "reward/mean": np.log(steps), **columns})
        frames.append(frame.assign(skill=skill) if skills else frame)
    return pd.concat(frames, ignore_index=True)


def learned(rate: float, rows: int = 20) -> pd.DataFrame:
    steps = 1000 * np.arange(1, rows + 1)
    return pd.DataFrame(
        {"decision": steps // 10, "low_level_step": steps, "normalised_distance": np.exp(-steps / rate)}
    )


def test_skills_stand_in_the_order_learned_with_the_earlier_ones_in_grey(tmp_path: Path, captured: Captured) -> None:
    frame = fan(3, episodes=4)
    order(frame, tmp_path / "o.svg", title="ant", one_dimensional=False, drawn=2, steps=[250, 500, 1000])
    words = texts(tmp_path / "o.svg")
    away = metrics.measure(frame).query("metric == 'distance'")["value"]
    assert {"skill 1, 250 steps", "skill 3, 1,000 steps", f"{away.iloc[2]:.3g} m", "earlier skills"} <= set(words)
    for skill, axes in enumerate(captured().axes):
        paths = [path for path in axes.lines if len(np.asarray(path.get_xdata())) > 1]
        grey = [path for path in paths if path.get_color() == style.FAINT]
        assert [len(grey), len(paths)] == [2 * skill, 2 * (skill + 1)]
    with_time = fan(2).assign(y=0.0)
    order(with_time, tmp_path / "line.svg", title="hopper", one_dimensional=True, drawn=1)
    (own,) = (path for path in captured().axes[0].lines if len(np.asarray(path.get_xdata())) > 1)
    assert list(np.asarray(own.get_xdata())) == list(range(21))


@pytest.mark.parametrize("one_dimensional", [True, False])
@pytest.mark.parametrize("case", broken())
def test_what_is_missing_breaks_no_figure_of_paths_or_of_consistency(
    case: str, one_dimensional: bool, tmp_path: Path
) -> None:
    frame = broken()[case]
    order(frame, tmp_path / "o.svg", title="t", one_dimensional=one_dimensional, drawn=2)
    missing = {"NaN in a skill": 1, "NaN in all": 3, "nothing": 1}.get(case, 0)
    assert texts(tmp_path / "o.svg").count("no rollouts") == missing
    if not one_dimensional:
        runs = {"nominal": [("disk", frame), ("random", fan(3))]}
        consistency(runs, tmp_path / "c.svg", env="point")
        none = case in ("NaN in all", "one episode", "nothing")
        assert texts(tmp_path / "c.svg").count("no value") == none


def test_consistency_has_a_panel_a_method_and_condition_with_intervals_over_seeds(
    tmp_path: Path, captured: Captured
) -> None:
    seeds = [fan(3, speed=1.0 + seed) for seed in range(3)]
    legs = {leg: [*(("disk", frame) for frame in seeds), ("dads", fan(3))] for leg in ("leg1", "leg2")}
    consistency(legs, tmp_path / "c.svg", env="ant_broken")
    words = texts(tmp_path / "c.svg")
    assert words.count("DISk, 3 seeds") == words.count("Off-DADS, 1 seed") == 2
    ours, theirs = captured().axes[:2]
    expected = np.mean([metrics.run_consistency(frame)[20] for frame in seeds])
    drawn = ours.lines[-1]
    assert float(np.asarray(drawn.get_xdata())[-1]) == 20
    assert float(np.asarray(drawn.get_ydata())[-1]) == pytest.approx(expected)
    assert len(ours.collections) == 1, "the interval"
    assert not theirs.collections, "one seed has none"
    consistency({}, tmp_path / "none.svg", env="point")
    assert "no runs" in texts(tmp_path / "none.svg")


def test_a_runs_consistency_is_the_mean_of_its_skills_and_the_fallen_stay() -> None:
    frame = fan(2, steps=6)
    fell = frame[(frame["skill"] == 0) | (frame["step"] <= 3)]
    curves = metrics.consistency_curves(fell).pivot(index="step", columns="skill", values="consistency")
    assert metrics.run_consistency(fell)[2] == pytest.approx(curves.loc[2].mean())
    assert metrics.run_consistency(fell)[6] == pytest.approx((curves.loc[6, 0] + curves.loc[3, 1]) / 2)


def test_intervals_of_many_columns_are_those_of_each() -> None:
    values = np.random.default_rng(1).normal(size=(3, 4))
    values[0, 2] = math.nan
    for table in (values, values[:1]):
        found = np.array(metrics.intervals(table)).T
        assert found == pytest.approx(np.array([metrics.interval(column)[:3] for column in table.T]), nan_ok=True)


def test_ablations_stand_beside_disk_itself(tmp_path: Path, captured: Captured) -> None:
    runs = [run("disk_fresh", 0, speed=0.5), run("disk", 0), run("disk", 1), run("disk_warm", 0)]
    lost = [
        (method, seed, frame.assign(value=math.nan) if method == "disk_warm" else frame) for method, seed, frame in runs
    ]
    ablations(lost, tmp_path / "a.svg", env="point", condition="nominal")
    words = texts(tmp_path / "a.svg")
    assert {"DISk", "2 seeds", "DISk fresh", "DISk itself", "coverage (unit bins), higher is better"} <= set(words)
    assert words.count("no value") == 4
    summary = metrics.summarise(runs)
    row = summary[(summary["method"] == "disk") & (summary["metric"] == "hausdorff")].iloc[0]
    axes = captured().axes[0]
    assert axes.get_yticklabels()[0].get_text() == "DISk\n2 seeds"
    assert any(np.asarray(line.get_xdata())[0] == pytest.approx(row["mean"]) for line in axes.lines)
    for what, condition in (([], "nominal"), (runs, "leg1")):
        ablations(what, tmp_path / "none.svg", env="point", condition=condition)


def test_curves_of_a_chain_lie_along_the_global_steps(tmp_path: Path, captured: Captured) -> None:
    chain = progress(
        3, **{"reward/consistency": 0.5, "reward/diversity": 1.0, "rollout/sigma_x": 3.0, "rollout/sigma_y": 4.0}
    )
    runs = {"disk": [chain, chain.iloc[:0]], "diayn": [progress(0)], "dads": [pd.DataFrame()]}
    curves(runs, tmp_path / "c.svg", env="point")
    words = texts(tmp_path / "c.svg")
    assert {"DISk", "1 seed", "0 seeds", "environment steps", "not logged"} <= set(words)
    reward, terms, entropy, speed = captured().axes[:4]
    steps = np.asarray(reward.lines[0].get_xdata())
    assert list(steps[~np.isnan(np.asarray(reward.lines[0].get_ydata()))]) == [100 * i for i in range(1, 16)]
    assert len(terms.lines) == 2
    assert not entropy.lines
    assert np.nanmax(np.asarray(speed.lines[0].get_ydata())) == 5.0
    curves({}, tmp_path / "none.svg", env="point")
    assert "no runs" in texts(tmp_path / "none.svg")


def test_downstream_has_a_panel_a_world_with_means_over_runs(tmp_path: Path, captured: Captured) -> None:
    rates = [3000.0, 4000.0, 5000.0]
    noise = learned(1e9).assign(normalised_distance=math.nan)
    curves = {
        "ant": {"disk": [learned(rate) for rate in rates], "random": [learned(1e9)], "dads": [noise]},
        "ant_broken": {"disk": [learned(3000.0, rows=5), learned(4000.0)]},
        "ant_blocks_even": {},
    }
    downstream(curves, tmp_path / "d.svg", title="Goals")
    words = texts(tmp_path / "d.svg")
    assert {"Goals", "ant broken", "DISk (2–3 runs)", "Random (1 run)", "no runs", "no nearer"} <= set(words)
    axes = captured().axes[0]
    mean = next(line for line in axes.lines if line.get_color() == style.method_colour("disk"))
    expected = np.mean([learned(rate)["normalised_distance"].iloc[-1] for rate in rates])
    assert float(np.asarray(mean.get_ydata())[-1]) == pytest.approx(expected)
    assert len(axes.collections) == 1, "an interval where there is more than one run"
    downstream({}, tmp_path / "none.svg", title="Goals")
    assert "no runs" in texts(tmp_path / "none.svg")


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        order(fan(3), tmp_path / f"order_{name}.svg", title="t", one_dimensional=False, drawn=2)
        runs = {"nominal": [("disk", fan(3)), ("disk", fan(3, speed=2.0))]}
        consistency(runs, tmp_path / f"consistency_{name}.svg", env="point")
    for figure in ("order", "consistency"):
        assert (tmp_path / f"{figure}_a.svg").read_bytes() == (tmp_path / f"{figure}_b.svg").read_bytes()
