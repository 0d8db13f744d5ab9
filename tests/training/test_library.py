"""A library of skills: what stored skills do in a world as it is, and which are left out or refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import disk
from disk.cli import main
from disk.config import PROJECT, load
from disk.envs import make
from disk.errors import ArtefactError, ConfigError
from disk.evaluation.library import Library
from disk.skills import load as load_skills


def library(small_runs: dict[str, Path], *methods: str, **kwargs: object) -> Library:
    return Library([small_runs[method] for method in methods], "point_broken", episodes=3, **kwargs)  # type: ignore[arg-type]


def ends(run: Path, skill: int, step: int, seeds: list[int]) -> np.ndarray:
    """Where a skill's episodes end: one environment, one action at a time."""
    row = load().environment("point_broken")
    env, act, found = make(row.world(), step, horizon=row.test_horizon), load_skills(run)[skill].act, []
    for seed in seeds:
        obs, info = env.reset(seed=seed)
        over = False
        while not over:
            obs, _, _, over, info = env.step(act(obs))
        found.append(info["position"])
    return np.array(found)


def test_the_table_has_what_a_plain_loop_finds_in_each_world(small_runs: dict[str, Path]) -> None:
    shelf = library(small_runs, "disk", "diayn", at=[0, 16_000])
    assert len(shelf.table) == 2 * (3 + 3)
    for condition in ("0", "16000"):
        for skill in range(3):
            expected = ends(small_runs["disk"], skill, int(condition), shelf.seeds)
            mine = (shelf.table["run"] == str(small_runs["disk"])) & (shelf.table["skill"] == skill)
            row = shelf.table[mine & (shelf.table["condition"] == condition)].iloc[0]
            assert row["distance"] == pytest.approx(np.linalg.norm(expected, axis=1).mean(), rel=1e-3)
            x, y = expected.mean(axis=0)
            assert np.cos(np.radians(row["direction"]) - np.arctan2(y, x)) > 0.9999
            assert row["falls"] == 0.0


def test_the_best_skill_for_a_goal_is_the_nearest_of_all(small_runs: dict[str, Path]) -> None:
    shelf = library(small_runs, "disk", "metra")
    assert list(shelf.conditions) == ["no_east", "no_north", "no_west", "no_south"]
    for goal in ((0.5, 0.0), (-1.0, 1.0)):
        apart = {
            (run, skill): np.mean([np.linalg.norm(path.position - goal, axis=1).min() for path in paths])
            for (run, condition), skills in shelf.paths.items()
            if condition == "no_west"
            for skill, paths in enumerate(skills)
        }
        best = shelf.best_for(goal, "no_west")
        run, skill = min(apart, key=lambda place: apart[place])
        assert (best.run, best.skill.index, best.distance) == (run, skill, apart[run, skill])


def test_a_controller_may_choose_from_a_library(small_runs: dict[str, Path], tmp_path: Path) -> None:
    shelf = library(small_runs, "disk", "random")
    skills = shelf.skills()
    assert len(skills) == 6
    obs = np.array([0.3, -0.2])
    assert np.array_equal(skills[4].act(obs), load_skills(small_runs["random"])[1].act(obs))
    env = disk.SkillEnv(make(load().environment("point").world()), skills, steps=5)
    env.reset(seed=0)
    assert env.step(5)[4]["steps"] == 5
    with pytest.raises(ArtefactError, match=r"latent_size is 3, but .*disk/seed0 has 0"):
        library(small_runs, "disk", "diayn").skills()


def test_skills_of_other_sizes_are_left_out_with_the_reason(
    small_runs: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [str(small_runs["disk"]), str(PROJECT / "pretrained/swimmer")]
    out = tmp_path / "skills.safetensors"
    assert main(["recall", *runs, "--world", "point", "--episodes", "2", "--save", str(out)]) == 0
    said = capsys.readouterr().out
    assert "left out: " in said
    assert "learned in swimmer, with observations of size 8; this environment has observations of size 2" in said
    assert len(load_skills(out)) == 3
    alone = Library([runs[1]], "point")
    assert list(alone.left_out) == [Path(runs[1])]
    assert alone.text().startswith("no skill fits this world\nleft out: ")


def test_unknown_worlds_steps_and_damaged_skills_are_refused(small_runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown environment 'mars'; known: ant"):
        Library([small_runs["disk"]], "mars")
    with pytest.raises(ConfigError, match="--at: 5: expected at most 0"):
        Library([small_runs["disk"]], "point", at=[5])
    damaged = shutil.copytree(small_runs["random"], tmp_path / "point/random/seed0") / "skills.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-8] + b"\1" * 8)
    with pytest.raises(ArtefactError, match=str(damaged.parent)):
        Library([damaged.parent], "point")
    damaged.write_bytes(damaged.read_bytes()[:100])  # torn, and named alone instead of its run
    with pytest.raises(ArtefactError, match=str(damaged)):
        Library([damaged], "point")
    with pytest.raises(ArtefactError, match="nothing"):
        Library([tmp_path / "nothing"], "point")
    with pytest.raises(ArtefactError, match="no skill of the library fits Ant-v5"):
        Library([small_runs["disk"]], "ant").best_for((1.0, 0.0))
