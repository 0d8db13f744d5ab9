"""Figures from synthetic rollouts: what they say, that they are the same bytes each time, and what may be missing."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from disk import config
from disk.config import MeasureJob
from disk.evaluation import metrics
from disk.figures import style
from disk.figures.hausdorff import hausdorff
from disk.figures.trajectories import trajectories

Captured = Callable[[], Figure]


def fan(skills: int, episodes: int = 3, steps: int = 20, speed: float = 1.0) -> pd.DataFrame:
    """Rollouts of skills that leave the origin in all directions."""
    rng = np.random.default_rng(skills)
    frames = []
    for skill in range(skills):
        angle = 2 * np.pi * skill / skills
        for episode in range(episodes):
            move = speed * np.array([np.cos(angle), np.sin(angle)]) + rng.normal(0, 0.02, (steps, 2))
            path = np.concatenate([np.zeros((1, 2)), np.cumsum(move, axis=0)])
            numbers = {"skill": skill, "episode": episode, "step": np.arange(steps + 1)}
            frames.append(pd.DataFrame({**numbers, "x": path[:, 0], "y": path[:, 1], "vx": 0.0, "vy": 0.0}))
    return pd.concat(frames, ignore_index=True)


def line(skills: int) -> pd.DataFrame:
    return fan(skills).assign(y=0.0)


def run(method: str, seed: int, condition: str = "nominal", speed: float = 1.0) -> metrics.MeasuredRun:
    return method, seed, metrics.measure(fan(4, speed=speed + 0.1 * seed)).assign(condition=condition)


def texts(path: Path) -> list[str]:
    return ["".join(element.itertext()) for element in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def images(path: Path) -> int:
    return len(list(ET.parse(path).iter("{http://www.w3.org/2000/svg}image")))


def draw(path: Path, runs: dict[str, pd.DataFrame], *, one_dimensional: bool = False, drawn: int = 2) -> list[str]:
    trajectories(runs, path, title="ant", one_dimensional=one_dimensional, drawn=drawn)
    return texts(path)


def bars(path: Path, runs: list[metrics.MeasuredRun], env: str = "point") -> list[str]:
    hausdorff(metrics.hausdorff_table(runs), metrics.summarise(runs), path, env=env)
    return texts(path)


def test_trajectories_have_a_panel_a_method_and_a_key(tmp_path: Path) -> None:
    out = tmp_path / "new" / "trajectories.svg"
    words = draw(out, {"disk": fan(8), "dads": fan(8, speed=0.1), "diayn_sigma": fan(3)})
    assert {"ant", "DISk", "Off-DADS", "DIAYN sigma", "x (m)", "y (m)"} <= set(words)
    assert {str(skill) for skill in range(1, 9)} <= set(words)
    assert any(word.startswith("skill") for word in words)
    assert images(out) == 3  # the paths of each panel are one picture
    assert out.stat().st_size < 1_000_000
    assert [path.name for path in out.parent.iterdir()] == ["trajectories.svg"]  # no temporary file is left


def test_panels_share_one_scale_on_equal_axes(tmp_path: Path, captured: Captured) -> None:
    draw(tmp_path / "t.svg", {"disk": fan(8, speed=5.0), "random": fan(8, speed=0.01)})
    first, second = captured().axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim() == second.get_ylim()
    assert first.get_aspect() == second.get_aspect() == 1
    assert first.get_xlim()[0] < -100 < 100 < first.get_xlim()[1]


def test_as_many_episodes_are_drawn_as_asked_for(tmp_path: Path, captured: Captured) -> None:
    draw(tmp_path / "t.svg", {"disk": fan(4, episodes=5)}, drawn=2)
    paths = [path for path in captured().axes[0].lines if len(np.asarray(path.get_xdata())) > 1]
    assert len(paths) == 4 * 2
    assert all(path.get_rasterized() for path in paths)


def test_fifty_skills_all_look_different() -> None:
    looks = {(look["color"], str(look["linestyle"]), look["marker"]) for look in map(style.look, range(50))}
    assert len(looks) == 50


def test_neighbouring_colours_differ_in_lightness() -> None:
    encoded = np.array([matplotlib.colors.to_rgb(colour) for colour in style.PALETTE])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16  # CIE L*
    assert min(abs(np.diff(lightness))) > 6


def oklab(colour: str) -> np.ndarray:
    """Björn Ottosson's OKLab, in which distances are about what an eye sees."""
    encoded = np.array(matplotlib.colors.to_rgb(colour))
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    opponents = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return np.asarray(opponents @ np.cbrt(cones @ linear))


def test_every_method_has_a_colour_of_its_own_and_disks_stands_out() -> None:
    methods = [*config.load().methods, config.FLAT]
    assert set(methods) <= set(style.METHOD_COLOURS), "a method of methods.yaml has no entry in METHOD_COLOURS"
    colours = {method: oklab(style.method_colour(method)) for method in methods}
    apart = {(a, b): float(np.linalg.norm(colours[a] - colours[b])) for a, b in combinations(methods, 2)}
    assert min(apart.values()) > 0.1, min(apart, key=lambda pair: apart[pair])
    assert min(distance for pair, distance in apart.items() if "disk" in pair) > 0.15
    chroma = {method: float(np.hypot(*colour[1:])) for method, colour in colours.items()}
    assert max(chroma, key=lambda method: chroma[method]) == "disk"


def test_a_method_that_users_add_has_one_colour_everywhere() -> None:
    added = {style.method_colour(f"mine_{number}") for number in range(20)}
    assert len(added) == 20
    assert not added & set(style.METHOD_COLOURS.values())
    assert style.method_look("mine_1", ["disk", "mine_1"])["color"] == style.method_colour("mine_1")


def test_fifty_skills_stay_small_and_have_their_key(tmp_path: Path) -> None:
    out = tmp_path / "t.svg"
    words = draw(out, {method: fan(50, steps=500) for method in ("disk", "dads", "diayn", "random")}, drawn=5)
    assert {str(skill) for skill in range(1, 51)} <= set(words)
    assert out.stat().st_size < 1_000_000


def test_many_methods_wrap_into_rows(tmp_path: Path, captured: Captured) -> None:
    draw(tmp_path / "t.svg", {f"method{i}": fan(2) for i in range(6)})
    axes = captured().axes
    assert len(axes) == 6
    assert [panel.get_xlabel() for panel in axes] == ["", "", "x (m)", "x (m)", "x (m)", "x (m)"]


@pytest.mark.parametrize("skills", [1, 3, 20, 50])
def test_one_dimension_has_a_row_a_skill(tmp_path: Path, captured: Captured, skills: int) -> None:
    words = draw(tmp_path / "t.svg", {"disk": line(skills), "random": line(skills)}, one_dimensional=True)
    assert {"DISk", "Random", "final x (m)", "skill", "1", "start"} <= set(words)
    low, high = captured().axes[0].get_ylim()
    assert low > skills > 0.5 > high  # the first skill is on top
    assert (tmp_path / "t.svg").stat().st_size < 1_000_000


@pytest.mark.parametrize("one_dimensional", [True, False])
def test_missing_pieces_leave_their_place_empty(tmp_path: Path, one_dimensional: bool) -> None:
    frame = fan(4)
    fell = frame[(frame["skill"] != 0) | (frame["step"] == 0)]
    broken = frame.assign(x=frame["x"].where((frame["skill"] != 1) | (frame["step"] < 3)))
    nothing = frame.assign(x=math.nan)
    runs = {"disk": fell, "diayn": broken, "dads": nothing, "random": frame.iloc[:0]}
    words = draw(tmp_path / "t.svg", runs, one_dimensional=one_dimensional)
    assert {"DISk", "DIAYN", "Off-DADS", "Random"} <= set(words)
    assert words.count("no rollouts") == 2
    assert "no runs" in draw(tmp_path / "none.svg", {}, one_dimensional=one_dimensional)


def test_a_world_in_which_nothing_moves(tmp_path: Path) -> None:
    still = fan(2).assign(x=0.0, y=0.0)
    assert "DISk" in draw(tmp_path / "plane.svg", {"disk": still})
    assert "DISk" in draw(tmp_path / "line.svg", {"disk": still}, one_dimensional=True)


def test_bars_name_methods_seeds_and_values(tmp_path: Path) -> None:
    runs = [*(run("disk", seed) for seed in range(5)), run("random", 0, speed=0.1)]
    words = bars(tmp_path / "h.svg", runs)
    assert {"DISk", "Random", "mean Hausdorff distance", "mean isolation", "metres"} <= set(words)
    assert "5 seeds" in words
    assert "1 seed" in words
    mean, low, high = (metrics.summarise(runs).iloc[0][column] for column in ("mean", "ci_low", "ci_high"))
    assert f"{mean:.3g} [{low:.3g}, {high:.3g}]" in words
    fewer = metrics.summarise(runs[1:]).iloc[0]["mean"]
    assert f"{fewer:.3g}" in bars(tmp_path / "four.svg", runs[1:]), "four seeds have a mean, and no interval"
    assert not any("paper" in word for word in words)  # it has no point robot


def test_movers_that_can_be_told_apart_stand_beside_the_distances(tmp_path: Path, captured: Captured) -> None:
    runs = [
        ("disk", seed, metrics.measure(fan(4), MeasureJob(moves=0.1)).assign(condition="nominal")) for seed in range(2)
    ]
    words = bars(tmp_path / "h.svg", runs)
    assert {"distinct movers", "skills", "metres", "mean isolation"} <= set(words)
    assert [axes.get_title() for axes in captured().axes][2] == "distinct movers"
    assert captured().axes[2].patches[0].get_width() == pytest.approx(4)


def test_seeds_are_dots(tmp_path: Path, captured: Captured) -> None:
    runs = [run("disk", seed) for seed in range(3)]
    bars(tmp_path / "h.svg", runs)
    dots = [mark for mark in captured().axes[0].lines if mark.get_marker() == "o"]
    expected = metrics.hausdorff_table(runs).groupby("seed")["hausdorff"].mean()
    assert len(dots) == 1
    assert np.asarray(dots[0].get_xdata()) == pytest.approx(expected.to_numpy())


@pytest.mark.parametrize(("env", "marks"), [("ant", 2), ("point", 0), ("ant_broken", 0)])
def test_the_papers_values_are_marked_for_the_methods_drawn(
    tmp_path: Path, captured: Captured, env: str, marks: int
) -> None:
    words = bars(tmp_path / "h.svg", [run("disk", 0), run("random", 0), run("disk_parallel", 0)], env)
    diamonds = [mark for mark in captured().axes[0].lines if mark.get_marker() == "D"]
    assert len(diamonds) == marks
    assert any("paper (2.5M–5M steps)" in word for word in words) == (marks > 0)
    if marks:
        values = metrics.PAPER_HAUSDORFF[env]
        assert {float(mark.get_xdata()[0]) for mark in diamonds} == {values["disk"].mean, values["random"].mean}


def test_conditions_have_rows_of_their_own_and_snapshots_none(tmp_path: Path, captured: Captured) -> None:
    frames = [run("disk", 0, condition)[2] for condition in ("leg1", "leg2", "leg2@9300000")]
    one_leg = run("disk", 1, "leg1")
    words = bars(tmp_path / "h.svg", [("disk", 0, pd.concat(frames)), one_leg], "ant_broken")
    assert len(captured().axes) == 2 * 2
    assert "mean Hausdorff distance, leg2" in words
    assert not any("@" in word for word in words)
    assert "2 seeds" in words  # under leg 1
    assert "1 seed" in words  # under leg 2


def test_bars_survive_what_is_missing(tmp_path: Path) -> None:
    method, seed, frame = run("dads", 0)
    lost = (method, seed, frame.assign(value=math.nan))
    words = bars(tmp_path / "h.svg", [run("disk", 0), lost], "ant")
    assert "no value" in words
    assert "0 seeds" in words
    assert "no runs" in bars(tmp_path / "none.svg", [], "ant")
    single = metrics.measure(fan(1)).assign(condition="nominal")
    assert "no value" in bars(tmp_path / "single.svg", [("disk", 0, single)])


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    runs = {"disk": fan(12), "random": fan(12, speed=0.1)}
    made = [run("disk", 0), run("disk", 1), run("random", 0)]
    for name in ("a", "b"):
        draw(tmp_path / f"plane_{name}.svg", runs)
        draw(tmp_path / f"line_{name}.svg", runs, one_dimensional=True)
        bars(tmp_path / f"bars_{name}.svg", made, "ant")
    for figure in ("plane", "line", "bars"):
        assert (tmp_path / f"{figure}_a.svg").read_bytes() == (tmp_path / f"{figure}_b.svg").read_bytes()


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    draw(tmp_path / "t.svg", {"disk": fan(2)})
    assert dict(matplotlib.rcParams) == before
