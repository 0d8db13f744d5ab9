"""Worlds on the real simulator: what σ is, that it is the same again, and which rows are refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
from conftest import run_python
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from disk import config
from disk.config import World
from disk.envs import Projected, make
from disk.errors import ConfigError

ROWS = {name: row.world() for name, row in config.load().environments.items()}
FOREIGN = {
    name: World.model_validate({"id": name, "horizon": 30, **row})
    for name, row in {
        "Pendulum-v1": {"position": {"observation": [0, 1]}},
        "InvertedPendulum-v5": {"position": {"qpos": [0]}},
        "Reacher-v5": {"position": {"qpos": [0, 1]}, "sigma": {"observation": [6, 7]}},
        "Walker2d-v5": {"position": {"info": ["x_position"]}},
        "MountainCarContinuous-v0": {"position": {"observation": [0]}},
    }.items()
}
WORLDS = {**ROWS, **FOREIGN}
each_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)


RANDOM = np.random.default_rng(0)


def drawn(env: Projected) -> np.ndarray:
    return env.to_native(RANDOM.uniform(-1.0, 1.0, env.action_size).astype(np.float32))


def walk(env: Projected, steps: int, seed: int = 3) -> list[tuple[Any, ...]]:
    """(obs, position, sigma, terminated, truncated) after a reset and after each of some random steps."""
    rng = np.random.default_rng(seed)
    obs, info = env.reset(seed=seed)
    seen: list[tuple[Any, ...]] = [(obs, info["position"], info["sigma"], False, False)]
    for _ in range(steps):
        action = rng.uniform(-1.0, 1.0, env.action_size).astype(np.float32)
        obs, _, terminated, truncated, info = env.step(env.to_native(action))
        seen.append((np.copy(obs), np.copy(info["position"]), np.copy(info["sigma"]), terminated, truncated))
        if terminated or truncated:
            break
    return seen


@pytest.mark.parametrize("name", ["point", "halfcheetah", "ant"])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_sigma_is_the_velocity_over_so_many_steps_or_since_the_start(name: str, steps: int):
    env = make(ROWS[name].model_copy(update={"sigma_steps": steps}))
    for seed in (3, 4):  # nothing is left of an earlier episode
        seen = walk(env, 12, seed)
        for now in range(1, len(seen)):
            before = max(0, now - steps)
            expected = (seen[now][1] - seen[before][1]) / ((now - before) * env.dt)
            np.testing.assert_allclose(seen[now][2], expected, rtol=1e-9, atol=1e-12)
    again = walk(make(ROWS[name]), 12)
    assert steps > 1 or all(np.array_equal(one[2], two[2]) for one, two in zip(walk(env, 12), again, strict=True))


@each_world
def test_gymnasium_finds_no_fault(world: World):
    env = make(world)
    with warnings.catch_warnings():
        # Said of wrapped environments, unbounded observations and actions beyond [-1, 1]: not ours to choose.
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        warnings.filterwarnings("ignore", message=".*observation space (minimum|maximum) value is")
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space")
        check_env(env, skip_render_check=True)


@each_world
def test_sizes_are_those_of_what_comes_out(world: World):
    env = make(world)
    for obs, position, sigma, *_ in walk(env, 5):
        assert obs.shape == (env.observation_size,)
        assert position.shape == (len(world.position.entries),)
        assert sigma.shape == (env.sigma_size,)
        assert np.isfinite(np.concatenate([obs, position, sigma])).all()


@pytest.mark.parametrize("name", [name for name, world in WORLDS.items() if world.sigma == "velocity"])
def test_sigma_is_the_position_difference_over_the_seconds_of_a_step(name: str):
    env = make(WORLDS[name])
    data = getattr(env.unwrapped, "data", None)
    _, info = env.reset(seed=1)
    positions, sigmas, clock = [info["position"].copy()], [], [data.time if data is not None else 0.0]
    for _ in range(20):
        _, _, over, _, info = env.step(drawn(env))
        positions.append(info["position"].copy())
        sigmas.append(info["sigma"].copy())
        # MuJoCo keeps its own time; the others' step is what their own `dt` says, or one.
        clock.append(data.time if data is not None else clock[-1] + getattr(env.unwrapped, "dt", 1.0))
        if over:
            break
    velocity = np.diff(positions, axis=0) / np.diff(clock)[:, None]
    np.testing.assert_allclose(np.array(sigmas), velocity, rtol=1e-6, atol=1e-9)


@each_world
def test_velocity_starts_from_zero_at_every_reset(world: World):
    env = make(world)
    walk(env, 5)
    _, info = env.reset(seed=4)
    if world.sigma == "velocity":
        assert (info["sigma"] == 0.0).all()
        start = info["position"].copy()
        info = env.step(env.to_native(np.zeros(env.action_size, dtype=np.float32)))[-1]
        np.testing.assert_allclose(info["sigma"], (info["position"] - start) / env.dt)


@pytest.mark.parametrize("name", ["halfcheetah", "hopper", "ant", "point"])
def test_position_is_where_the_root_is_now(name: str):
    env = make(ROWS[name])
    env.reset(seed=0)
    for _ in range(10):
        info = env.step(drawn(env))[-1]
        assert info["position"].tolist() == env.unwrapped.data.qpos[: len(info["position"])].tolist()


def _fresh_centre_of_mass(env: Projected) -> np.ndarray:
    """The mass-weighted mean of the bodies' centres, in a copy of the simulation that is brought up to date."""
    model, data = env.unwrapped.model, mujoco.MjData(env.unwrapped.model)
    data.qpos[:], data.qvel[:] = env.unwrapped.data.qpos, env.unwrapped.data.qvel
    mujoco.mj_forward(model, data)
    return (model.body_mass[1:, None] * data.xipos[1:]).sum(0) / model.body_mass[1:].sum()


def test_the_swimmers_centre_of_mass_is_todays_not_that_of_the_last_substep():
    env, plain = make(ROWS["swimmer"]), gymnasium.make("Swimmer-v5")
    env.reset(seed=0)
    plain.reset(seed=0)
    lag = []
    for _ in range(30):
        action = drawn(env)
        info = env.step(action)[-1]
        plain.step(action)
        fresh = _fresh_centre_of_mass(env)[:2]
        np.testing.assert_allclose(info["position"], fresh, atol=1e-12)
        lag.append(np.abs(plain.unwrapped.data.subtree_com[1][:2] - fresh).max())
    assert max(lag) > 1e-7, "MuJoCo's own value no longer lags: the extra kinematics can go"


def test_the_swimmers_centre_of_mass_is_not_its_head():
    env = make(ROWS["swimmer"])
    env.reset(seed=0)
    apart = [np.abs(env.step(drawn(env))[-1]["position"] - env.unwrapped.data.qpos[:2]) for _ in range(5)]
    assert np.max(apart) > 0.01


def test_reading_the_centre_of_mass_does_not_disturb_the_simulation():
    with_com = ROWS["swimmer"]
    without = with_com.model_copy(update={"position": config.Coordinates(qpos=[0, 1])})
    for one, other in zip(walk(make(with_com), 50), walk(make(without), 50), strict=True):
        assert (one[0] == other[0]).all()


@each_world
def test_the_same_seed_gives_the_same_trajectory(world: World):
    env = make(world)
    first = walk(env, 20)
    walk(env, 7, seed=9)
    again, elsewhere, other = walk(env, 20), walk(make(world), 20), walk(env, 20, seed=4)
    for one, two, three in zip(first, again, elsewhere, strict=True):
        for a, b, c in zip(one, two, three, strict=True):
            assert np.array_equal(a, b)
            assert np.array_equal(a, c)
    assert not np.array_equal(first[1][0], other[1][0])


@pytest.mark.parametrize("name", ROWS)
def test_an_episode_is_truncated_at_the_horizon_and_not_terminated(name: str):
    healthy = {"terminate_when_unhealthy": False} if ROWS[name].id == "Ant-v5" else {}
    env = make(ROWS[name], **healthy)
    ends = [(over, truncated) for *_, over, truncated in walk(env, 10_000)[1:]]
    assert len(ends) == ROWS[name].horizon
    assert ends[-1] == (False, True)
    assert set(ends[:-1]) == {(False, False)}
    assert len(walk(make(ROWS[name], horizon=7, **healthy), 10_000)) == 8


def test_unhealthy_ants_terminate_and_hoppers_do_not():
    ant, hopper = make(ROWS["ant"]), make(ROWS["hopper"])
    ant.reset(seed=0)
    ant.unwrapped.data.qpos[2] = 5.0
    assert ant.step(np.zeros(8, dtype=np.float32))[2]
    hopper.reset(seed=0)
    hopper.unwrapped.data.qpos[1] = -1.0
    assert not hopper.step(np.zeros(3, dtype=np.float32))[2]


def test_every_ant_sees_27_numbers():
    assert make(ROWS["ant"]).observation_size == 27


# ---------------------------------------------------------------- the point robot


@pytest.mark.parametrize(("thruster", "direction"), [(0, (1, 0)), (1, (-1, 0)), (2, (0, 1)), (3, (0, -1))])
def test_each_thruster_pushes_its_own_way_up_to_one_metre_a_second(thruster: int, direction: tuple[int, int]):
    env = make(ROWS["point"], horizon=200)
    env.reset(seed=0)
    throttle = np.zeros(4, dtype=np.float32)
    throttle[thruster] = 1.0
    for _ in range(60):
        obs, *_, info = env.step(throttle)
    np.testing.assert_allclose(obs, direction, atol=1e-3)
    np.testing.assert_allclose(info["sigma"], direction, atol=1e-3)


def test_the_point_slows_with_a_time_constant_of_half_a_second():
    env = make(ROWS["point"])
    env.reset(seed=0)
    env.unwrapped.data.qvel[:] = (1.0, 0.0)
    for _ in range(5):
        obs = env.step(np.zeros(4, dtype=np.float32))[0]
    assert obs[0] == pytest.approx(np.exp(-1.0), rel=0.06)


# ---------------------------------------------------------------- actions


@each_world
def test_the_corners_of_what_policies_say_are_the_corners_of_the_action_space(world: World):
    env = make(world)
    ones = np.ones(env.action_size, dtype=np.float32)
    np.testing.assert_array_equal(env.to_native(-ones), env.action_space.low)
    np.testing.assert_array_equal(env.to_native(ones), env.action_space.high)
    np.testing.assert_allclose(env.to_native(0 * ones), (env.action_space.low + env.action_space.high) / 2, atol=1e-7)


POINT = make(ROWS["point"])


def test_an_uneven_action_lands_on_its_own_side():
    native = POINT.to_native(np.array([-1.0, -0.5, 0.5, 1.0], dtype=np.float32))
    np.testing.assert_allclose(native, [0.0, 0.25, 0.75, 1.0])


@given(arrays(np.float32, 4, elements=st.floats(-1, 1, width=32)))
def test_every_action_is_inside_the_space(action: np.ndarray):
    native = POINT.to_native(action)
    assert native.dtype == np.float32
    assert POINT.action_space.contains(native)


# ---------------------------------------------------------------- rows that cannot work


def refused(**row: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        make(World.model_validate({"horizon": 10, **row}))
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": "Antt-v5", "position": {"qpos": [0]}}, ["id", "Antt", "Ant"]),
        ({"id": "Ant-v99", "position": {"qpos": [0]}}, ["id", "Ant-v99", "v5"]),
        ({"id": "Ant-v3", "position": {"qpos": [0]}}, ["id", "Ant-v3"]),
        ({"id": "no_such_module:Thing-v0", "position": {"qpos": [0]}}, ["id", "no_such_module"]),
        ({"id": "Ant-v5", "kwargs": {"legs": 6}, "position": {"qpos": [0]}}, ["kwargs", "legs", "Ant-v5"]),
        ({"id": "Ant-v5", "kwargs": {"xml_file": "no.xml"}, "position": {"qpos": [0]}}, ["kwargs", "no.xml"]),
        ({"id": "Ant-v5", "kwargs": {"healthy_z_range": 3}, "position": {"qpos": [0]}}, ["kwargs", "healthy_z_range"]),
        ({"id": "Ant-v5", "position": {"info": ["x"]}}, ["position.info", "'x'", "x_position", "y_velocity"]),
        ({"id": "Ant-v5", "position": {"qpos": [0, 15]}}, ["position.qpos", "index 15", "15 entries"]),
        ({"id": "Pendulum-v1", "position": {"observation": [3]}}, ["position.observation", "index 3", "3 entries"]),
        ({"id": "Pendulum-v1", "position": {"qpos": [0]}}, ["position.qpos", "not a MuJoCo environment"]),
        ({"id": "Pendulum-v1", "position": {"com": ["x"]}}, ["position.com", "not a MuJoCo environment"]),
        ({"id": "Ant-v5", "position": {"qpos": [0]}, "sigma": {"observation": [105]}}, ["sigma.observation", "105"]),
        ({"id": "Ant-v5", "position": {"qpos": [0]}, "sigma": {"info": ["speed"]}}, ["sigma.info", "x_velocity"]),
        ({"id": "CartPole-v1", "position": {"observation": [0]}}, ["CartPole-v1", "actions", "Discrete"]),
        ({"id": "FrozenLake-v1", "position": {"observation": [0]}}, ["FrozenLake-v1", "observations", "Discrete"]),
        ({"id": "Humanoid-v5", "position": {"info": ["tendon_length"]}}, ["position.info", "tendon_length"]),
    ],
)
def test_a_row_that_cannot_work_is_refused_with_its_key_and_a_way_out(row: dict[str, Any], words: list[str]):
    said = refused(**row)
    assert all(word in said for word in words), said


class LateInfo(gymnasium.Env[np.ndarray, np.ndarray]):
    """Stands at x = 100, then moves by 1 a step; `info` names the place in `step` only, as many environments do."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.x = 100.0
        return np.zeros(1), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.x += 1.0
        return np.zeros(1), 0.0, False, False, {"x": self.x}


gymnasium.register(id="tests/LateInfo-v0", entry_point=LateInfo)


def test_a_place_that_is_first_known_after_a_step_does_not_make_up_a_velocity():
    env = make(World.model_validate({"id": "tests/LateInfo-v0", "position": {"info": ["x"]}, "horizon": 10}))
    env.reset(seed=0)
    sigmas = [float(env.step(np.zeros(1, dtype=np.float32))[-1]["sigma"][0]) for _ in range(3)]
    assert sigmas[1:] == [1.0, 1.0]
    assert abs(sigmas[0]) <= 1.0, "100 m/s from a place that nobody reported"


# ---------------------------------------------------------------- quiet

BUILD = """
from disk import config
from disk.envs import make
for row in config.load().environments.values():
    env = make(row.world())
    env.reset(seed=0)
    for _ in range(3):
        env.step(env.action_space.sample())
"""


def test_building_every_world_says_nothing_and_leaves_no_log_behind(tmp_path: Path):
    process = run_python(BUILD, cwd=tmp_path)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert (out, err) == ("", "")
    assert list(tmp_path.iterdir()) == []
