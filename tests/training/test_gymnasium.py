"""Environments for other programs: ids, checks, vectors, worlds that change, and the protocol for any policies."""

from __future__ import annotations

import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pandas as pd
import pytest
import yaml
from conftest import TINY
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_for_sb3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

import disk
from disk.config import load
from disk.registration import ROBOTS, WORLDS

HARMLESS = (
    ".*A Box observation space m..imum value is .*infinity",  # as of every MuJoCo robot of Gymnasium
    ".*Not able to test alternative render modes",
    ".*recommend you to use a symmetric and normalized Box action space",  # thrusters push, they do not pull
)
ANT = "disk:disk/AntBroken-v0"


def dead(env: gymnasium.Env) -> list[int]:
    """Actuators that are dead now."""
    return np.flatnonzero(env.unwrapped.env.env.control_scale == 0.0).tolist()


def test_every_row_has_an_id_with_its_horizon():
    rows = load().environments
    assert {row for row, _ in WORLDS.values()} | {"point"} == set(rows)
    for row, steps in WORLDS.values():
        assert steps == rows[row].test_horizon


@pytest.mark.parametrize("name", [*ROBOTS, *WORLDS])
def test_an_environment_passes_gymnasiums_and_stable_baselines3s_checks(name: str):
    env = gymnasium.make(f"disk:disk/{name}-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for harmless in HARMLESS:
            warnings.filterwarnings("ignore", harmless)
        check_env(env.unwrapped, skip_render_check=True)
        check_for_sb3(env)
    env.close()


def test_a_world_is_as_it_is_at_its_step_and_can_be_moved():
    env = gymnasium.make(ANT, step=2_000_000)
    assert dead(env) == [2, 3], "leg 1"
    env.unwrapped.at(0)
    assert dead(env) == [6, 7], "leg 3"
    assert gymnasium.make(env.spec).unwrapped.moment == 2_000_000
    same = disk.make("ant_broken", step=2_000_000)
    assert dead(same) == [2, 3]
    first, again = (each.reset(seed=3)[0] for each in (env, same))
    np.testing.assert_array_equal(first, again)
    with pytest.raises(ValueError, match="step: -1: expected 0 or more"):
        env.unwrapped.at(-1)


def test_an_episode_ends_at_the_rows_horizon_or_the_callers():
    for env, steps in ((disk.make("point"), 100), (disk.make("point", max_episode_steps=7), 7)):
        env.reset(seed=0)
        taken = 1
        while not env.step(env.action_space.sample())[3]:
            taken += 1
        assert taken == steps


def test_a_row_of_any_file_can_be_made(tmp_path: Path):
    row = yaml.safe_load(Path("config/envs.yaml").read_text())["environments"]["point"]
    changes = [{"what": "damping", "names": "*", "steps": [10], "factors": [0.5]}]
    row |= {"test_horizon": 9, "evolution": {"total": 10, "changes": changes}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"environments": {"slick": row}}))
    env = disk.make("slick", step=10, configfile=[tmp_path / "mine.yaml"])
    assert env.spec.max_episode_steps == 9
    own = disk.make("point").unwrapped.robot.model.dof_damping
    np.testing.assert_array_equal(env.unwrapped.robot.model.dof_damping, own / 2)
    with pytest.raises(ValueError, match="unknown environment 'slick'"):
        disk.make("slick")


def test_a_world_that_evolves_follows_the_steps_taken_through_every_episode():
    env = disk.Evolving(disk.make("point_broken", step=7_990, max_episode_steps=6), every=5, rate=2.0)
    moments, broken = [], []
    env.reset(seed=0)
    for _ in range(12):
        _, _, _, truncated, _ = env.step(env.action_space.sample())
        moments.append(env.unwrapped.moment)
        broken.append(dead(env))
        if truncated:
            env.reset()
    assert moments == [7_990] * 4 + [8_000] * 5 + [8_010] * 3
    assert broken == [[0]] * 4 + [[2]] * 8, "east until 8,000, then north"
    with pytest.raises(ValueError, match="does not change"):
        disk.Evolving(gymnasium.make("Swimmer-v5"))
    with pytest.raises(ValueError, match="every: 0"):
        disk.Evolving(disk.make("point_broken"), every=0)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors_of_gymnasium_change_their_worlds(mode: str):
    evolving = [lambda env: disk.Evolving(env, every=2, rate=500_000)]
    envs = gymnasium.make_vec(ANT, num_envs=2, vectorization_mode=mode, wrappers=evolving, step=0)
    first, _ = envs.reset(seed=[1, 2])
    assert first.shape == (2, 27)
    for _ in range(4):
        envs.step(envs.action_space.sample())
    assert envs.call("moment") == (2_000_000, 2_000_000)
    envs.call("at", 3_000_000)
    assert envs.call("moment") == (3_000_000, 3_000_000)
    envs.close()


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_vectors_of_stable_baselines3_change_their_worlds(kind: type):
    envs = make_vec_env(ANT, n_envs=2, seed=0, env_kwargs={"step": 1_000_000}, vec_env_cls=kind)
    assert envs.reset().shape == (2, 27)
    envs.env_method("at", 2_000_000)
    envs.step(np.stack([envs.action_space.sample() for _ in range(2)]))
    assert envs.env_method("get_wrapper_attr", "moment") == [2_000_000, 2_000_000]
    envs.close()


def test_a_plain_loop_in_the_style_of_cleanrl_learns_from_whole_episodes():
    def thunk() -> gymnasium.Env:
        return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make(ANT, terminate_when_unhealthy=False))

    envs = gymnasium.vector.SyncVectorEnv([thunk, thunk])
    envs.action_space.seed(0)
    obs, _ = envs.reset(seed=0)
    replay, lengths = [], []
    for _ in range(401):
        actions = envs.action_space.sample()
        following, rewards, terminations, _, infos = envs.step(actions)
        replay.append((obs, actions, rewards, following, terminations))
        if "episode" in infos:
            lengths += infos["episode"]["l"][infos["_episode"]].tolist()
        obs = following
        assert not terminations.any()
    assert lengths == [200] * 4
    assert np.isfinite(np.stack([row[2] for row in replay])).all()
    envs.close()


def test_the_protocol_measures_skills_as_evaluate_does_and_takes_any_policy(
    small_runs: dict[str, Path], tmp_path: Path
):
    preset = tmp_path / "tiny.yaml"
    preset.write_text(yaml.safe_dump({**TINY, "evaluation": {"episodes": 2}}))
    skills = disk.load(small_runs["disk"])
    ours = disk.benchmark(skills, "point", [preset])
    measured = pd.read_csv(small_runs["disk"] / "metrics.csv")
    pd.testing.assert_frame_equal(ours, measured, check_dtype=False, rtol=1e-6)
    theirs = disk.benchmark([skill.act for skill in skills], "point", [preset])
    pd.testing.assert_frame_equal(theirs, measured, check_dtype=False, rtol=1e-3)


def test_the_protocol_looks_at_every_world_of_a_row_and_sees_what_is_broken(tmp_path: Path):
    preset = tmp_path / "few.yaml"
    preset.write_text(yaml.safe_dump({"evaluation": {"episodes": 1, "drawn": 1}}))
    east, west = np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])
    table = disk.benchmark([lambda obs: east, lambda obs: west], "point_broken", [preset])
    distance = table[table["metric"] == "distance"].pivot(index="condition", columns="skill", values="value")
    assert list(distance.index) == ["no_east", "no_north", "no_south", "no_west"]
    assert (distance > 9).to_numpy().tolist() == [[False, True], [True, True], [True, True], [True, False]]
    movers = table[table["metric"] == "movers"].set_index("condition")["value"]
    assert movers.to_dict() == {"no_east": 1, "no_north": 2, "no_west": 1, "no_south": 2}
    assert disk.benchmark([lambda obs: east], "point_blocks", [preset])["condition"].unique().tolist() == ["nominal"]
    with pytest.raises(ValueError, match="policies: none given"):
        disk.benchmark([], "point_broken", [preset])
