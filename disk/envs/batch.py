"""Many copies of a world, stepped together by policies that do not learn: for 𝒯, evaluation, recall and probes.

`lanes` returns a `Batch` where it can: one call of `mujoco.batch` steps all simulations. Positions and observations
equal Gymnasium's bit for bit. Any other environment is a `Loop` over Gymnasium's own, with the same results.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import mujoco
import numpy as np
from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv
from gymnasium.envs.mujoco.hopper_v5 import HopperEnv
from gymnasium.envs.mujoco.swimmer_v5 import SwimmerEnv
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from disk.config import World
from disk.envs import Projected, make
from disk.envs.blocks import BlockedAntEnv, BlockedPointEnv
from disk.envs.evolution import Evolving
from disk.envs.point import PointEnv


class Seen(NamedTuple):
    """States of several simulations."""

    obs: np.ndarray  # (N, D)
    position: np.ndarray  # (N, P)
    sigma: np.ndarray  # (N, S)
    over: np.ndarray
    """True for episodes that ended with this state (N,)."""


class Loop:
    """Gymnasium's environments, one after another."""

    def __init__(self, world: World, horizon: int) -> None:
        self.world, self.horizon = world, horizon
        self._envs: list[Projected] = []

    def begin(self, steps: Sequence[int], seeds: Sequence[int]) -> Seen:
        """Start an episode from each seed, in the world of each global step."""
        self._envs += [make(self.world, horizon=self.horizon) for _ in range(len(seeds) - len(self._envs))]
        first = []
        for env, step, seed in zip(self._envs, steps, seeds, strict=False):
            env.at(step)
            first.append((*env.reset(seed=seed), False))
        return _stack(first)

    def step(self, running: np.ndarray, actions: np.ndarray) -> Seen:
        """Step the episodes with these numbers (N,), ascending, by actions (N, A) in [-1, 1]."""
        found = []
        for index, action in zip(running, actions, strict=True):
            env = self._envs[index]
            obs, _, terminated, truncated, info = env.step(env.to_native(action))
            found.append((obs, info, terminated or truncated))
        return _stack(found)

    def close(self) -> None:
        for env in self._envs:
            env.close()


def _stack(found: Sequence[tuple[np.ndarray, dict[str, Any], bool]]) -> Seen:
    obs, info, over = zip(*found, strict=True)
    position, sigma = (np.array([each[key] for each in info]) for key in ("position", "sigma"))
    return Seen(np.array(obs), position, sigma, np.array(over))


class Batch:
    """Simulations of one Gymnasium environment, which resets them. `mujoco.batch` steps them in one thread."""

    def __init__(self, env: Projected) -> None:
        self.env, self.world, self._robot = env, env.world, env.unwrapped
        sources = {getattr(each, "source", each) for each in (env.world.position, env.world.sigma)}
        # After a step, positions of bodies lag a substep behind qpos: compute them again where they are read.
        self._stage = mujoco.mjtStage.mjSTAGE_POS if "com" in sources else mujoco.mjtStage.mjSTAGE_NONE

    def begin(self, steps: Sequence[int], seeds: Sequence[int]) -> Seen:
        """Start an episode from each seed, in the world of each global step."""
        from mujoco.batch import Batch as Simulations

        env, model, data = self.env, self._robot.model, self._robot.data  # type: ignore[attr-defined]
        evolving = env.env if isinstance(env.env, Evolving) else None
        models: dict[int, mujoco.MjModel] = {}
        self._simulations = Simulations(model, len(seeds), nthread=1)
        self._scale = np.ones((len(seeds), model.nu))
        first = []
        for row, step, seed in zip(range(len(seeds)), steps, seeds, strict=False):
            env.at(step)
            first.append((*env.reset(seed=seed), False))
            mujoco.mj_getState(model, data, self._simulations.state[row], mujoco.mjtState.mjSTATE_INTEGRATION)
            if evolving:
                self._scale[row] = evolving.control_scale
                models.setdefault(step, copy.copy(model))
        if evolving:
            self._simulations.set_models([models[step] for step, _ in zip(steps, seeds, strict=False)])
        seen = _stack(first)
        self._trail = deque([seen.position], maxlen=1 + (self.world.sigma_steps or 1))
        self._qpos, self._qvel, self._ctrl = (self._simulations.bind(name) for name in ("qpos", "qvel", "ctrl"))
        self._com = self._simulations.bind("subtree_com") if self._stage != mujoco.mjtStage.mjSTAGE_NONE else None
        return seen

    def step(self, running: np.ndarray, actions: np.ndarray) -> Seen:
        """Step the episodes with these numbers (N,), ascending, by actions (N, A) in [-1, 1]."""
        robot = self._robot
        native = self.env.to_native(actions)
        self._ctrl[running] = native * self._scale[running] if isinstance(self.env.env, Evolving) else native
        self._simulations.step(running, nstep=robot.frame_skip, stage=self._stage)  # type: ignore[attr-defined]
        qpos, qvel = self._qpos[running], self._qvel[running]
        observe, fallen = ROBOTS[type(robot)]
        obs = observe(robot, qpos, qvel)
        position = self._read(self.world.position, running, obs)
        whole = np.full_like(self._trail[-1], np.nan)
        whole[running] = position
        self._trail.append(whole)
        if self.world.sigma == "velocity":
            sigma = (position - self._trail[0][running]) / ((len(self._trail) - 1) * self.env.dt)
        else:
            sigma = self._read(self.world.sigma, running, obs)
        return Seen(obs, position, sigma, fallen(robot, qpos, qvel))

    def _read(self, coordinates: Any, running: np.ndarray, obs: np.ndarray) -> np.ndarray:
        entries = coordinates.entries
        if coordinates.source == "qpos":
            return np.asarray(self._qpos[running][:, entries])
        if coordinates.source == "observation":
            return np.asarray(obs[:, entries])
        assert self._com is not None
        return np.asarray(self._com[running][:, 1, ["xyz".index(axis) for axis in entries]])

    def close(self) -> None:
        self.env.close()


def _joints(env: Any, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    return np.concatenate((qpos[:, env.observation_structure["skipped_qpos"] :], qvel), axis=1)


def _hopper(env: Any, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    return _joints(env, qpos, np.clip(qvel, -10, 10))


def _never(env: Any, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    return np.zeros(len(qpos), dtype=bool)


def _ant_falls(env: Any, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    low, high = env._healthy_z_range
    healthy = np.isfinite(qpos).all(1) & np.isfinite(qvel).all(1) & (low <= qpos[:, 2]) & (qpos[:, 2] <= high)
    return np.asarray(~healthy & env._terminate_when_unhealthy)


def _hopper_falls(env: Any, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    healthy = np.ones(len(qpos), dtype=bool)
    state = np.concatenate((qpos[:, 2:], qvel), axis=1)
    ranges = (env._healthy_state_range, state), (env._healthy_z_range, qpos[:, 1:2])
    for (low, high), values in (*ranges, (env._healthy_angle_range, qpos[:, 2:3])):
        healthy &= ((low < values) & (values < high)).all(1)
    return np.asarray(~healthy & env._terminate_when_unhealthy)


Rows = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]
ROBOTS: dict[type, tuple[Rows, Rows]] = {
    AntEnv: (_joints, _ant_falls),
    BlockedAntEnv: (_joints, _ant_falls),
    HalfCheetahEnv: (_joints, _never),
    HopperEnv: (_hopper, _hopper_falls),
    SwimmerEnv: (_joints, _never),
    PointEnv: (lambda env, qpos, qvel: qvel, _never),
    BlockedPointEnv: (lambda env, qpos, qvel: qvel, _never),
}
"""Observations, and whether an episode ends, as functions of qpos and qvel (N, …)."""


def batchable(env: Projected) -> bool:
    """Return True if every part of an environment is known to depend on qpos and qvel alone."""
    inner: gymnasium.Env[Any, Any] = env
    wrappers = set()
    while isinstance(inner, gymnasium.Wrapper):
        wrappers.add(type(inner))
        inner = inner.env
    sources = {getattr(each, "source", each) for each in (env.world.position, env.world.sigma)}
    forces = getattr(inner, "_include_cfrc_ext_in_observation", False)  # the constraint solver's, not qpos'
    chance = len(getattr(inner, "walks", ())) > 0  # the point robot's distractors have a state of their own
    known = type(inner) in ROBOTS and not chance and wrappers <= {Projected, Evolving, TimeLimit, OrderEnforcing}
    return known and sources <= {"qpos", "com", "observation", "velocity"} and not forces


def lanes(world: World, horizon: int) -> Batch | Loop:
    """Return simulations of a world whose episodes have at most `horizon` steps."""
    env = make(world, horizon=horizon)
    if batchable(env):
        return Batch(env)
    env.close()
    return Loop(world, horizon)
