"""Worlds for other programs: a row of envs.yaml as a Gymnasium environment, and a wrapper that lets it change.

`disk/AntBroken-v0` and its like are `WorldEnv` with the name of a row (`disk.registration`). docs/gymnasium.md
describes each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from disk import registration
from disk.config import Config, Environment, load
from disk.envs import make as make_world
from disk.errors import ConfigError

Env = gymnasium.Env[np.ndarray, np.ndarray]


class WorldEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A row of envs.yaml, as it is at a global step.

    `at` moves it to another step. Rewards are the robot's own. `info` has `position`, where the agent is, and `sigma`,
    the projection that skills are told apart by. Further arguments go to the robot's constructor.
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012

    def __init__(
        self,
        name: str,
        step: int = 0,
        configfile: Sequence[str | Path] = (),
        render_mode: str | None = None,
        **kwargs: Any,
    ) -> None:
        if render_mode is not None:
            kwargs["render_mode"] = render_mode
        self.world = row_of(name, configfile).world()
        self.env = make_world(self.world, horizon=-1, **kwargs)  # the caller limits the time
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.metadata, self.render_mode = self.env.metadata, render_mode
        self.moment = 0
        """The global step whose world this is."""
        self.at(step)

    def at(self, step: int) -> None:
        """Change the world to its state at a global step. One that stands still is the same at every step."""
        if step < 0:
            raise ConfigError(f"step: {step}: expected 0 or more")
        self.env.at(step)
        self.moment = step

    @property
    def robot(self) -> gymnasium.Env[Any, Any]:
        """The robot's own environment, with MuJoCo's `model` and `data`."""
        return self.env.unwrapped

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        obs, info = self.env.reset(seed=seed, options=options)
        return np.asarray(obs), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(reward), terminated, truncated, info

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


class Evolving(gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray], RecordConstructorArgs):
    """Let a world change while an agent acts in it, also across episodes.

    It starts at the step that the world is at. After every `every` steps, the world moves on by `rate` times as many.
    A `rate` above 1 fits a long change into a short budget. Of n environments side by side, each takes one n-th of all
    steps: give these a `rate` of n.
    """

    def __init__(self, env: Env, every: int = 1, rate: float = 1.0) -> None:
        RecordConstructorArgs.__init__(self, every=every, rate=rate)
        gymnasium.Wrapper.__init__(self, env)
        if every < 1 or not rate > 0:
            raise ValueError(f"every: {every}, rate: {rate}: expected at least 1, and more than 0")
        if not env.has_wrapper_attr("moment"):
            raise ValueError(f"{env}: does not change: expected an environment of disk.make or a disk/…-v0 id")
        self.every, self.rate = every, rate
        self.taken, self.start = 0, int(env.get_wrapper_attr("moment"))

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self.taken += 1
        if self.taken % self.every == 0:
            self.env.get_wrapper_attr("at")(self.start + int(self.rate * self.taken))
        return result


def make(name: str, step: int = 0, configfile: Sequence[str | Path] = (), **kwargs: Any) -> Env:
    """Make any environment of envs.yaml, or of a preset in `configfile`, as it is at a global step.

    An episode has the row's `test_horizon`, unless `max_episode_steps` says otherwise. Further arguments are those of
    `gymnasium.make`, and the robot's own.
    """
    kwargs.setdefault("max_episode_steps", row_of(name, configfile).test_horizon)
    return gymnasium.make(registration.ANY, name=name, step=step, configfile=tuple(map(str, configfile)), **kwargs)


def row_of(name: str, configfile: Sequence[str | Path] = ()) -> Environment:
    return _config(tuple(map(str, configfile))).environment(name)


@cache  # a vector of environments reads the files once
def _config(presets: tuple[str, ...]) -> Config:
    return load(*presets)
