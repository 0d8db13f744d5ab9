"""Drawings of worlds that change: blocks left, what is broken and where, the view; and heat maps of forgetting."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from disk.config import Change, Coordinates, Evolution, World, load
from disk.figures.forgetting import forgetting
from disk.figures.legs import legs
from disk.figures.recovery import recovery
from disk.figures.scene import DEAD, PRESENT, REMOVED
from disk.figures.usable import usable
from disk.figures.worlds import worlds

ENVIRONMENTS = load().environments
NOTHING = pd.DataFrame()
COLUMNS = ["method", "seed", "skill", "condition", "distance_after_training", "distance_final"]
Captured = Callable[[], Figure]


def fan(skills: int, episodes: int = 3, steps: int = 20, reach: float = 5.0) -> pd.DataFrame:
    """Rollouts of skills that leave the origin in all directions, each episode of a skill a little further."""
    frames = []
    for skill in range(skills):
        angle = 2 * np.pi * skill / skills
        for episode in range(episodes):
            away = np.linspace(0, reach * (1 + episode / 100), steps + 1)
            place = {"x": away * np.cos(angle), "y": away * np.sin(angle), "vx": 0.0, "vy": 0.0}
            frames.append(pd.DataFrame({"skill": skill, "episode": episode, "step": np.arange(steps + 1), **place}))
    return pd.concat(frames, ignore_index=True)


def matrix(methods: tuple[str, ...], skills: int, conditions: tuple[str, ...], seeds: int = 2) -> pd.DataFrame:
    rows = [
        (method, seed, skill, condition, 1.0 + skill + seed, 0.5 * (skill + seed))
        for method in methods
        for seed in range(seeds)
        for skill in range(skills)
        for condition in conditions
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def texts(path: Path) -> list[str]:
    return ["".join(element.itertext()) for element in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def circles(axes: Axes, state: str) -> list[Circle]:
    return [patch for patch in axes.patches if isinstance(patch, Circle) and patch.get_label() == state]


def crosses(axes: Axes) -> list[tuple[float, float]]:
    """Where something is marked as dead."""
    marks = [line for line in axes.lines if line.get_label() == "dead"]
    return [(float(np.asarray(mark.get_xdata())[0]), float(np.asarray(mark.get_ydata())[0])) for mark in marks]


def cells(axes: Axes) -> np.ma.MaskedArray:
    mesh = next(artist for artist in axes.collections if isinstance(artist, QuadMesh))
    return np.ma.asarray(mesh.get_array())


@pytest.mark.parametrize(
    ("env", "left"),
    [
        ("point_blocks", {0: 16, 3_999: 16, 4_000: 14, 16_000: 8, 32_000: 0}),
        ("ant_blocks_slow", {0: 40, 1_250_000: 30, 2_500_000: 20, 5_000_000: 0}),
    ],
)
def test_blocks_that_are_left_are_drawn_and_those_gone_outlined(
    env: str, left: dict[int, int], tmp_path: Path, captured: Captured
) -> None:
    out = tmp_path / "new" / "worlds.svg"
    worlds(ENVIRONMENTS[env], [(f"at {step}", step, fan(4)) for step in left], out, title=env, drawn=2)
    total = left[0]
    for axes, count in zip(captured().axes, left.values(), strict=True):
        assert len(circles(axes, PRESENT)) == count
        assert len(circles(axes, REMOVED)) == total - count
        assert not crosses(axes)
        for block in circles(axes, PRESENT) + circles(axes, REMOVED):
            (x, y), radius = block.center, block.radius
            assert axes.get_xlim()[0] < x - radius < x + radius < axes.get_xlim()[1]
            assert axes.get_ylim()[0] < y - radius < y + radius < axes.get_ylim()[1]
    words = texts(out)
    assert {env, "at 0", "x (m)", "y (m)", "1", "4"} <= set(words)
    assert f"step 0, {total} of {total} blocks" in words
    assert [path.name for path in out.parent.iterdir()] == ["worlds.svg"]  # no temporary file is left


def test_blocks_are_removed_counter_clockwise_from_the_x_axis(tmp_path: Path, captured: Captured) -> None:
    worlds(ENVIRONMENTS["point_blocks"], [("", 8_000, NOTHING)], tmp_path / "w.svg", title="", drawn=1)
    gone = sorted(float(np.arctan2(*block.center[::-1])) for block in circles(captured().axes[0], REMOVED))
    assert gone == pytest.approx([2 * np.pi * block / 16 for block in range(4)])


def test_the_dead_thruster_is_named_and_crossed(tmp_path: Path, captured: Captured) -> None:
    env, out = ENVIRONMENTS["point_broken"], tmp_path / "w.svg"
    panels = [(name, step, fan(3)) for name, step in env.conditions.items() if isinstance(step, int)]
    worlds(env, panels, out, title="point_broken", drawn=1)
    towards = {"no_east": (1, 0), "no_north": (0, 1), "no_west": (-1, 0), "no_south": (0, -1)}
    for axes, (name, step, _) in zip(captured().axes, panels, strict=True):
        [cross] = crosses(axes)
        assert np.array(cross) / np.hypot(*cross) == pytest.approx(towards[name], abs=1e-9)
        assert f"step {step:,}, {name.removeprefix('no_')} dead" in texts(out)
        assert sum(line.get_color() == DEAD and line.get_linestyle() == "--" for line in axes.lines) == 1


def test_the_broken_leg_is_named_and_crossed_where_the_model_has_it(tmp_path: Path, captured: Captured) -> None:
    env, out = ENVIRONMENTS["ant_broken"], tmp_path / "w.svg"
    panels = [(name, step, NOTHING) for name, step in env.conditions.items() if isinstance(step, int)]
    worlds(env, panels, out, title="ant_broken", drawn=1)
    towards = {"leg1": (1, 1), "leg2": (-1, 1), "leg3": (-1, -1), "leg4": (1, -1)}  # of ant.xml's aux_1 … aux_4
    for axes, (name, step, _) in zip(captured().axes, panels, strict=True):
        [cross] = crosses(axes)
        assert tuple(np.sign(cross)) == towards[name]
        assert f"step {step:,}, leg {name[-1]} dead" in texts(out)


def test_half_a_leg_is_called_by_its_joint_and_other_robots_are_only_described(tmp_path: Path) -> None:
    def dead(env: str, names: list[str]) -> World:
        change = Change(what="actuator", names=names, steps=[0], factors=[0.0])
        return ENVIRONMENTS[env].world().model_copy(update={"evolution": Evolution(total=1, changes=[change])})

    worlds(dead("ant", ["ankle_2"]), [("", 0, NOTHING)], tmp_path / "a.svg", title="", drawn=1)
    assert "step 0, ankle_2 dead" in texts(tmp_path / "a.svg")
    worlds(dead("hopper", ["thigh_joint", "leg_joint"]), [("", 0, fan(2))], tmp_path / "h.svg", title="", drawn=1)
    assert "thigh_joint, leg_joint dead" in " ".join(texts(tmp_path / "h.svg"))


def test_one_coordinate_is_drawn_over_time_and_changes_are_named(tmp_path: Path, captured: Captured) -> None:
    changes = [
        Change(what="gravity", steps=[100, 200], factors=[0.2, 3.0]),
        Change(what="friction", names=["floor"], steps=[200], factors=[1.5]),
        Change(what="actuator", names=["bthigh"], steps=[200], factors=[0.5]),
    ]
    world = ENVIRONMENTS["halfcheetah"].world()
    world = world.model_copy(update={"evolution": Evolution(total=300, changes=changes)})
    paths = fan(2, episodes=1, steps=20)
    shown = [("as it was", 0, paths), ("moon", 100, paths), ("heavy", 200, NOTHING)]
    worlds(world, shown, tmp_path / "w.svg", title="", drawn=1)
    words = " ".join(texts(tmp_path / "w.svg"))
    assert "step 0 " in words
    assert "step 100, gravity × 0.2" in words
    assert "gravity × 3" in words
    assert "friction of floor × 1.5" in words
    assert "bthigh × 0.5" in words
    first, second, third = captured().axes
    line = first.lines[0]
    assert np.asarray(line.get_xdata()).tolist() == list(range(21))
    assert np.asarray(line.get_ydata()) == pytest.approx(paths["x"][:21])
    assert [axes.get_xlabel() for axes in (first, second, third)] == ["step"] * 3
    assert first.get_ylabel() == "x (m)"
    assert "no rollouts" in words

    legs(world, {"moon": 100}, {"DISk": {"moon": paths}}, tmp_path / "l.svg", title="", drawn=1)
    (panel,) = captured().axes
    assert np.asarray(panel.lines[0].get_xdata()).tolist() == list(range(21))
    assert panel.get_ylabel() == "gravity × 0.2\nx (m)"


def test_a_world_without_a_model_shows_its_paths(tmp_path: Path, captured: Captured) -> None:
    world = World(id="Pendulum-v1", position=Coordinates(observation=[0, 1]), horizon=10)
    worlds(world, [("pendulum", 0, fan(2, episodes=1))], tmp_path / "w.svg", title="", drawn=1)
    assert len(captured().axes[0].lines) == 2 * 2 + 1  # paths, their ends, the start


def test_one_runaway_does_not_shrink_all_and_is_owned_up_to(tmp_path: Path, captured: Captured) -> None:
    paths = fan(8, episodes=10)
    paths.loc[(paths["skill"] == 3) & (paths["episode"] == 0), ["x", "y"]] *= 1000
    worlds(ENVIRONMENTS["point_broken"], [("", 0, paths)], tmp_path / "w.svg", title="", drawn=10)
    low, high = captured().axes[0].get_xlim()
    assert low < -5
    assert high > 5
    assert high - low < 200
    assert "1 path beyond the view" in texts(tmp_path / "w.svg")


def test_all_of_an_ordinary_fan_is_in_view_on_one_scale_of_equal_axes(tmp_path: Path, captured: Captured) -> None:
    panels = [("near", 0, fan(8, reach=1.0)), ("far", 8_000, fan(8, reach=30.0))]
    worlds(ENVIRONMENTS["point_broken"], panels, tmp_path / "w.svg", title="", drawn=3)
    near, far = captured().axes
    assert near.get_xlim() == far.get_xlim()
    assert near.get_ylim() == far.get_ylim()
    assert near.get_aspect() == far.get_aspect() == 1
    assert far.get_xlim()[0] < -30.6 < 30.6 < far.get_xlim()[1]
    assert not any("beyond" in word for word in texts(tmp_path / "w.svg"))


def test_missing_rollouts_and_broken_episodes_leave_the_world(tmp_path: Path, captured: Captured) -> None:
    broken = fan(3)
    broken.loc[broken["skill"] == 1, "x"] = np.nan
    panels = [("none", 0, NOTHING), ("no rows", 0, fan(1).iloc[:0]), ("a skill broke down", 0, broken)]
    panels.append(("all broke down", 0, broken.assign(y=np.inf)))
    worlds(ENVIRONMENTS["point_blocks"], panels, tmp_path / "w.svg", title="", drawn=2)
    assert [len(circles(axes, PRESENT)) for axes in captured().axes] == [16] * 4
    assert texts(tmp_path / "w.svg").count("no rollouts") == 3
    worlds(ENVIRONMENTS["point_blocks"], [], tmp_path / "none.svg", title="", drawn=2)
    assert "no worlds" in texts(tmp_path / "none.svg")


def test_more_than_five_drawings_wrap(tmp_path: Path, captured: Captured) -> None:
    panels = [(str(index), 4_000 * index, NOTHING) for index in range(7)]
    worlds(ENVIRONMENTS["point_broken"], panels, tmp_path / "w.svg", title="", drawn=2)
    rows = [axes.get_subplotspec().rowspan.start for axes in captured().axes]  # type: ignore[union-attr]
    assert rows == [0] * 5 + [1] * 2


def test_forgetting_shows_means_over_seeds_and_their_change(tmp_path: Path, captured: Captured) -> None:
    out = tmp_path / "new" / "forgetting.svg"
    forgetting(matrix(("disk", "dads"), 3, ("leg1", "leg2")), out, env="ant_broken")
    after, final, change = captured().axes[:3]
    assert cells(after).tolist() == [[1.5, 1.5], [2.5, 2.5], [3.5, 3.5]]
    assert cells(final).tolist() == [[0.25, 0.25], [0.75, 0.75], [1.25, 1.25]]
    assert cells(change).tolist() == [[-1.25, -1.25], [-1.75, -1.75], [-2.25, -2.25]]
    low, high = change.collections[0].get_clim()
    assert low == -high  # type: ignore[operator]
    assert after.collections[0].get_clim() == final.collections[0].get_clim()
    words = texts(out)
    assert {"right after training", "at the end", "change", "leg1", "leg2", "1.50", "-2.25", "skill"} <= set(words)
    assert {"DISk (2 seeds)", "Off-DADS (2 seeds)", "distance (m)", "change (m)"} <= set(words)
    assert [path.name for path in out.parent.iterdir()] == ["forgetting.svg"]


def test_cells_without_a_value_are_hatched(tmp_path: Path, captured: Captured) -> None:
    table = matrix(("disk",), 3, ("leg1", "leg2"), seeds=1)
    table.loc[(table["skill"] == 1) & (table["condition"] == "leg2"), "distance_after_training"] = np.nan
    table = table[(table["skill"] != 2) | (table["condition"] == "leg1")]
    forgetting(table, tmp_path / "f.svg", env="ant_broken")
    after, final, change = captured().axes[:3]
    assert np.ma.getmaskarray(cells(after)).tolist() == [[False, False], [False, True], [False, True]]
    assert np.ma.getmaskarray(cells(final)).tolist() == [[False, False], [False, False], [False, True]]
    assert np.ma.getmaskarray(cells(change)).tolist() == [[False, False], [False, True], [False, True]]
    assert after.patch.get_hatch()
    assert not any("nan" in word for word in texts(tmp_path / "f.svg"))


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(columns=COLUMNS),
        matrix(("disk",), 2, ("nominal",)).assign(distance_after_training=np.nan, distance_final=np.nan),
        matrix(("disk",), 2, ("nominal",)).assign(distance_after_training=0.0, distance_final=0.0),
        pd.concat([matrix(("disk",), 12, ("leg1",)), matrix(("dads",), 3, ("leg2",))]),
    ],
    ids=["no rows", "all NaN", "all zero", "methods differ"],
)
def test_what_is_missing_breaks_no_heat_map(table: pd.DataFrame, tmp_path: Path) -> None:
    forgetting(table, tmp_path / "f.svg", env="point")
    assert ("no runs" in texts(tmp_path / "f.svg")) == table.empty


def test_many_skills_carry_no_numbers(tmp_path: Path) -> None:
    forgetting(matrix(("disk",), 50, ("nominal", "trained")), tmp_path / "f.svg", env="point")
    assert "1.5" not in texts(tmp_path / "f.svg")
    assert {"1", "5", "50"} <= set(texts(tmp_path / "f.svg"))


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        panels = [("start", 0, fan(4)), ("end", 32_000, NOTHING)]
        worlds(ENVIRONMENTS["point_blocks"], panels, tmp_path / f"{name}.svg", title="w", drawn=2)
        forgetting(matrix(("disk",), 3, ("leg1",)), tmp_path / f"{name}.f.svg", env="point")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.f.svg").read_bytes() == (tmp_path / "b.f.svg").read_bytes()


# ---------------------------------------------------------------- usable skills over training


def test_usable_skills_are_a_line_a_method_with_the_drop_where_the_world_changes(
    tmp_path: Path, captured: Captured
) -> None:
    columns = ["method", "seed", "step", "condition", "movers", "distinct"]
    counted = [(100, "east", 2), (100, "west", 0), (200, "west", 4)]
    lines = [("disk", seed, step, where, n + seed, n) for seed in (0, 2) for step, where, n in counted]
    table = pd.DataFrame([*lines, ("dads", 0, 200, "west", 5, 1)], columns=columns)
    usable(table, tmp_path / "usable.svg", env="point_broken")
    figure = captured()
    movers = figure.axes[0].get_lines()
    assert movers[0].get_xdata().tolist() == [100, 100, 200]
    assert movers[0].get_ydata().tolist() == [3, 1, 5]
    assert movers[0].get_label() == "DISk, 2 seeds"
    assert [line.get_ydata().tolist() for line in movers[1:3]] == [[2, 0, 4], [4, 2, 6]]
    usable(table.iloc[:0], tmp_path / "none.svg", env="point_broken")
    assert "no runs" in texts(tmp_path / "none.svg")


def test_recovery_is_a_line_a_method_from_the_change_on(tmp_path: Path, captured: Captured) -> None:
    columns = ["method", "seed", "change", "measure", "steps", "share"]
    lines = [
        ("disk", seed, 100, "reach", steps, share + seed) for seed in (0, 1) for steps, share in ((0, 0.2), (50, 0.9))
    ]
    table = pd.DataFrame(lines, columns=columns)
    recovery(table, tmp_path / "recovery.svg", env="point_broken")
    _, line = captured().axes[0].get_lines()
    assert line.get_xdata().tolist() == [0, 50]
    assert line.get_ydata().tolist() == pytest.approx([0.7, 1.4])
    recovery(table.iloc[:0], tmp_path / "none.svg", env="point_broken")
    assert "no change" in texts(tmp_path / "none.svg")
