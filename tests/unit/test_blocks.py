"""Ants among blocks on the real simulator: walls that hold, gaps that let out, and robots that are Gymnasium's own."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from conftest import raw_config
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from disk import config as configuration
from disk.config import Config, World
from disk.envs import Projected, make
from disk.evaluation.rollout import rollout
from disk.learning.run import learn_skill
from disk.skills import load

RAW = raw_config()
CONFIG = configuration.parse(RAW)
SPEEDS = {"ant_blocks_fast": 1, "ant_blocks_even": 2, "ant_blocks_slow": 10}
TOTAL, BLOCKS = 5_000_000, 40
each_speed = pytest.mark.parametrize(("name", "together"), SPEEDS.items())


def world_of(name: str) -> World:
    return CONFIG.environments[name].world()


def block_heights(env: Projected) -> np.ndarray:
    """z of every block, by name: as the model has it, after making sure that the simulation has it too."""
    model, data = env.unwrapped.model, env.unwrapped.data
    bodies = [model.body(f"block{j:02d}").id for j in range(BLOCKS)]
    assert (model.body_pos[bodies] == data.xpos[bodies]).all()
    return model.body_pos[bodies, 2]


def removed_by_formula(step: int, together: int, total: int = TOTAL, blocks: int = BLOCKS) -> int:
    return together * (blocks * step // (together * total))


# ---------------------------------------------------------------- the ring


@each_speed
def test_forty_spheres_of_radius_three_stand_counter_clockwise_at_distance_ten(name: str, together: int):
    model = make(world_of(name)).unwrapped.model
    named = [model.body(i).name for i in range(model.nbody)]
    assert sum(name.startswith("block") for name in named) == BLOCKS
    for j in range(BLOCKS):
        body, geom = model.body(f"block{j:02d}"), model.geom(f"block{j:02d}")
        angle = np.deg2rad(9.0 * j)
        np.testing.assert_allclose(body.pos, [10.0 * np.cos(angle), 10.0 * np.sin(angle), 0.0], atol=1e-12)
        assert model.geom_bodyid[geom.id] == body.id
        assert geom.type == mujoco.mjtGeom.mjGEOM_SPHERE
        assert geom.size[0] == 3.0
        assert (geom.pos == 0.0).all()
        assert geom.contype == 1
        assert geom.conaffinity == 1, "the default of ant.xml is 0, and the ant would walk through"
        assert body.jntnum == 0
        assert body.parentid == 0


def test_the_ant_among_blocks_is_gymnasiums_ant():
    """Where all blocks are gone it moves as the plain one does, number for number."""
    blocked = make(world_of("ant_blocks_even"), TOTAL)
    plain = make(world_of("ant"), terminate_when_unhealthy=False)
    ant = range(1, plain.unwrapped.model.nbody)
    for quantity in ("body_mass", "body_inertia", "body_invweight0", "body_subtreemass"):
        ours, theirs = (getattr(env.unwrapped.model, quantity)[ant] for env in (blocked, plain))
        np.testing.assert_array_equal(ours, theirs)
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (60, 8))
    np.testing.assert_array_equal(blocked.reset(seed=5)[0], plain.reset(seed=5)[0])
    for action in actions:
        np.testing.assert_array_equal(blocked.step(action)[0], plain.step(action)[0])


def test_blocks_are_not_observed():
    for name in (*SPEEDS, "ant", "ant_broken"):
        env = make(world_of(name))
        assert env.observation_space.shape == env.reset(seed=0)[0].shape == (27,)
    env = make(world_of("ant_blocks_fast"))
    with_blocks, _ = env.reset(seed=1)
    env.at(TOTAL)
    np.testing.assert_array_equal(env.reset(seed=1)[0], with_blocks)


# ---------------------------------------------------------------- physics


def push(env: Projected, angle: float, steps: int = 150) -> tuple[float, set[str]]:
    """Push the torso with ten newtons: how far it gets from the origin, and the blocks that it really touches."""
    env.reset(seed=0)
    model, data = env.unwrapped.model, env.unwrapped.data
    torso, farthest, touched = model.body("torso").id, 0.0, set()
    for _ in range(steps):
        data.xfrc_applied[torso, :2] = 10.0 * np.cos(angle), 10.0 * np.sin(angle)
        env.step(np.zeros(8))
        farthest = max(farthest, float(np.hypot(*data.qpos[:2])))
        touching = data.contact.geom[data.contact.exclude == 0]
        touched |= {model.geom(geom).name for geom in np.unique(touching)}
    return farthest, {name for name in touched if name.startswith("block")}


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_a_gap_of_two_blocks_does_not_let_the_ant_out(removed: int):
    env = make(world_of("ant_blocks_fast"), removed * TOTAL // BLOCKS, horizon=1000)
    before = env.unwrapped.data.xpos.copy()
    farthest, touched = push(env, np.deg2rad(9.0 * (removed - 1) / 2))
    assert 5.0 < farthest <= 7.7
    assert touched, "something must have held it"
    assert not touched & {f"block{j:02d}" for j in range(removed)}, "what is gone touches nothing"
    blocks = [env.unwrapped.model.body(f"block{j:02d}").id for j in range(BLOCKS)]
    np.testing.assert_array_equal(env.unwrapped.data.xpos[blocks], before[blocks], err_msg="blocks do not move")


@pytest.mark.parametrize(("name", "step"), [("ant_blocks_fast", TOTAL // 10), ("ant_blocks_slow", TOTAL // 4)])
def test_a_gap_of_four_blocks_lets_the_ant_out_in_the_middle_and_not_elsewhere(name: str, step: int):
    env = make(world_of(name), step, horizon=1000)
    gone = int((block_heights(env) < 0).sum())
    assert push(env, np.deg2rad(9.0 * (gone - 1) / 2))[0] > 14.0
    assert push(env, np.deg2rad(9.0 * (gone - 1) / 2 + 180.0))[0] <= 7.7


def test_no_block_is_left_in_the_way_at_the_end():
    env = make(world_of("ant_blocks_slow"), TOTAL, horizon=1000)
    for angle in (0.0, 1.8, 3.9):
        farthest, touched = push(env, angle)
        assert farthest > 14.0
        assert not touched


def test_a_block_removed_under_way_opens_the_ring_at_once():
    """The ant leans on the wall, the wall goes, the ant goes on: no reset in between."""
    env = make(world_of("ant_blocks_slow"), 0, horizon=1000)
    assert push(env, np.deg2rad(40.5))[0] <= 7.7
    env.at(TOTAL // 4)
    model, data = env.unwrapped.model, env.unwrapped.data
    for _ in range(150):
        data.xfrc_applied[model.body("torso").id, :2] = 10.0 * np.cos(np.deg2rad(40.5)), 10.0 * np.sin(np.deg2rad(40.5))
        env.step(np.zeros(8))
    assert np.hypot(*data.qpos[:2]) > 14.0


def test_the_points_ring_is_closed_and_opens():
    env = make(world_of("point_blocks"), horizon=1000)
    for step, angle, out in ((0, 0.0, False), (0, 1.0, False), (4_000, np.pi / 16, True), (32_000, 4.0, True)):
        env.at(step)
        env.reset(seed=0)
        x, y = np.cos(angle), np.sin(angle)
        for _ in range(60):
            env.step(np.clip([x, -x, y, -y], 0.0, 1.0))
        assert (np.hypot(*env.unwrapped.data.qpos) > 3.1) == out, (step, angle)


# ---------------------------------------------------------------- how many are left


LONG_LIVED = {name: make(world_of(name)) for name in SPEEDS}


@each_speed
@settings(max_examples=60)
@given(
    step=st.one_of(
        st.integers(0, TOTAL), st.builds(lambda k, d: k * 125_000 + d, st.integers(1, 39), st.integers(-1, 1))
    )
)
def test_the_blocks_that_are_gone_follow_the_formula(name: str, together: int, step: int):
    env = LONG_LIVED[name]
    env.at(step)
    gone = removed_by_formula(step, together)
    expected = np.where(np.arange(BLOCKS) < gone, -4.0, 0.0)
    np.testing.assert_array_equal(block_heights(env), expected)


@each_speed
def test_none_is_gone_at_first_and_all_only_at_last(name: str, together: int):
    env = LONG_LIVED[name]
    left = {}
    for step in (0, 1, TOTAL // BLOCKS * together - 1, TOTAL // BLOCKS * together, TOTAL - 1, TOTAL, TOTAL + 1):
        env.at(step)
        left[step] = int((block_heights(env) == 0.0).sum())
    assert list(left.values()) == [BLOCKS, BLOCKS, BLOCKS, BLOCKS - together, together, 0, 0]


@settings(max_examples=60)
@given(data=st.data(), times=st.integers(1, 6), together=st.integers(1, 6), total=st.integers(1, 1_000))
def test_any_ring_follows_the_formula(data: st.DataObject, times: int, together: int, total: int):
    blocks = times * together
    changes = [{"what": "remove", "names": "block*", "together": together}]
    world = world_of("point_blocks").model_dump() | {
        "kwargs": {"blocks": blocks},
        "evolution": {"total": total, "changes": changes},
    }
    step = data.draw(st.integers(0, total))
    env = make(World.model_validate(world), step)
    model = env.unwrapped.model
    heights = [model.body_pos[model.body(f"block{j:02d}").id, 2] for j in range(blocks)]
    gone = removed_by_formula(step, together, total, blocks)
    assert [height < 0 for height in heights] == [True] * gone + [False] * (blocks - gone)


# ---------------------------------------------------------------- among blocks and without


SMALL = {
    "horizon": 20,
    "steps": 60,
    "skills": 2,
    "sac": {"hidden": [16, 16], "batch_size": 16, "seed_steps": 40},
}


def trained(config: Config, env: str, where: Path) -> Path:
    learn_skill(config.skill_job(env, "disk", 0, 0), [], where / env, config.runtime)
    return where / env / "policy.safetensors"


def test_skills_run_among_blocks_and_without_wherever_they_were_trained(tmp_path: Path):
    small: dict[str, Any] = {
        "runs": [{"envs": ["ant", "ant_blocks_even"], "methods": ["disk"]}],
        "environments": {"ant": SMALL, "ant_blocks_even": SMALL},
        "disk": {"past_states": 40},
        "runtime": {"device": "cpu"},
    }
    config = configuration.parse(configuration.merge(RAW, small))
    for trained_in in ("ant", "ant_blocks_even"):
        skills = load(trained(config, trained_in, tmp_path))
        assert skills.observation_size == 27
        seen = {}
        for name, step in (("ant", 0), ("ant_blocks_even", TOTAL), ("ant_blocks_even", 0)):
            ((path,),) = rollout(skills, config.environments[name].world(), 15, [[7]], step)
            seen[name, step] = path.position
            assert np.isfinite(path.position).all()
        length = min(map(len, seen.values()))
        paths = [path[:length] for path in seen.values()]
        np.testing.assert_allclose(paths[1], paths[0], atol=1e-9, err_msg="far from the wall it makes no difference")
        np.testing.assert_allclose(paths[2], paths[0], atol=1e-9)


# ---------------------------------------------------------------- as Gymnasium environments


@pytest.mark.parametrize("name", ["disk/BlockedAnt-v0", "disk/BlockedPoint-v0"])
@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")
def test_gymnasium_finds_no_fault_in_blocked_robots(name: str):
    check_env(gymnasium.make(name, disable_env_checker=True).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", ["disk/BlockedAnt-v0", "disk/BlockedPoint-v0"])
def test_a_ring_of_other_sizes_is_a_matter_of_arguments(name: str):
    model = gymnasium.make(name, blocks=7, block_radius=0.5, block_distance=4.0).unwrapped.model
    assert [model.body(i).name for i in range(model.nbody)][-7:] == [f"block{j:02d}" for j in range(7)]
    np.testing.assert_allclose(np.linalg.norm(model.body_pos[-7:], axis=1), 4.0)
    assert (model.geom_size[-7:, 0] == 0.5).all()


@pytest.mark.parametrize("name", ["disk/BlockedAnt-v0", "disk/BlockedPoint-v0"])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"])  # noqa: S301
def test_a_blocked_robot_can_be_copied_as_the_plain_one_can(name: str, again: Any):
    twin = again(gymnasium.make(name, blocks=8, block_distance=9.0).unwrapped)
    assert twin.model.nbody == gymnasium.make(name, blocks=8).unwrapped.model.nbody
    np.testing.assert_allclose(np.linalg.norm(twin.model.body_pos[-8:], axis=1), 9.0)
