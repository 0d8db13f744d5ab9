"""Environments: any Gymnasium environment plus its projection σ.

`make` builds the environment a row of envs.yaml describes. Its `info` carries two more entries at every
step: `position`, where the agent is, and `sigma`, the projection that rewards are computed in (by
default the velocity of the position: difference over a step, or several, divided by their length). Where σ is learned,
`sigma` is what φ projects: the states before and after the step, observation ⊕ position each. `velocity` comes along.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np

from disk.config import Coordinates, World
from disk.envs.evolution import Evolving
from disk.errors import ConfigError


def make(world: World, step: int = 0, *, horizon: int | None = None, **kwargs: Any) -> Projected:
    """Build an environment as it is at a global step. `horizon` replaces the length of a training episode."""
    try:
        with _quiet():
            env = gymnasium.make(
                world.id,
                max_episode_steps=horizon or world.horizon,
                disable_env_checker=True,
                **{**world.kwargs, **kwargs},
            )
    except (gymnasium.error.Error, ImportError) as error:
        raise ConfigError(f"id: {world.id!r}: {error}") from None
    except Exception as error:  # whatever an environment's constructor makes of arguments it cannot use
        raise ConfigError(f"kwargs: {world.kwargs}: {world.id} cannot be made with them: {error}") from None
    projected = Projected(env if world.evolution is None else Evolving(env, world.evolution), world)
    projected.at(step)
    return projected


@contextmanager
def _quiet() -> Iterator[None]:
    """Build without Gymnasium's notices of newer versions and MuJoCo's of `settotalmass`.

    MuJoCo would also write MUJOCO_LOG.TXT into the working directory: that stays off for good.
    """
    import mujoco

    log = mujoco.MjLogConfig.get()
    log.logto_file = 0
    console, log.logto_console = log.logto_console, 0
    log.set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            log.logto_console = console
            log.set()


class Projected(
    gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray], gymnasium.utils.RecordConstructorArgs
):
    """Add `position` and `sigma` to `info`, and check early that the environment can provide them."""

    def __init__(self, env: gymnasium.Env[Any, Any], world: World) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, world=world)
        gymnasium.Wrapper.__init__(self, env)
        space, actions = env.observation_space, env.action_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise ConfigError(f"{world.id}: observations must be a flat Box, not {space}")
        if not isinstance(actions, gymnasium.spaces.Box) or not actions.is_bounded() or len(actions.shape) != 1:
            raise ConfigError(f"{world.id}: actions must be a flat, bounded Box, not {actions}")
        self.world = world
        self.observation_size, self.action_size = space.shape[0], actions.shape[0]
        self.action_low = actions.low.astype(np.float32)
        self.action_range = (actions.high - actions.low).astype(np.float32)
        self.dt = float(getattr(env.unwrapped, "dt", 1.0))
        self._trail: deque[np.ndarray] = deque(maxlen=1 + (world.sigma_steps or 1))  # where it was
        self._state = np.zeros(self.observation_size + len(world.position.entries))  # observation ⊕ position
        if world.sigma == "learned":
            self.sigma_size = 2 * len(self._state)
        else:
            self.sigma_size = len((world.position if world.sigma == "velocity" else world.sigma).entries)
        self._try_out()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        # Many environments fill `info` in step only: then the start is not known, and nothing moves at first.
        self._trail.clear()
        start = self._read(self.world.position, obs, info, may_miss=True)
        if start is not None:
            self._trail.append(start)
        position = np.zeros(len(self.world.position.entries)) if start is None else start
        sigma = None
        if self.world.sigma == "learned":
            self._state = np.concatenate((obs, position))
            sigma = np.concatenate((self._state, self._state))
        elif self.world.sigma != "velocity":
            sigma = self._read(self.world.sigma, obs, info, may_miss=True)
        return obs, {**info, "position": position, "sigma": np.zeros(self.sigma_size) if sigma is None else sigma}

    def step(self, action: np.ndarray) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        position = self._read(self.world.position, obs, info)
        self._trail.append(position)
        velocity = (position - self._trail[0]) / (max(len(self._trail) - 1, 1) * self.dt)
        if self.world.sigma == "velocity":
            sigma = velocity
        elif self.world.sigma == "learned":
            before, self._state = self._state, np.concatenate((obs, position))
            sigma, info["velocity"] = np.concatenate((before, self._state)), velocity
        else:
            sigma = self._read(self.world.sigma, obs, info)
        info["position"], info["sigma"] = position, sigma
        return obs, reward, terminated, truncated, info

    def at(self, step: int) -> None:
        """Change the environment to its state at a global step. A static one stays as it is."""
        if isinstance(self.env, Evolving):
            self.env.at(step)

    def to_native(self, action: np.ndarray) -> np.ndarray:
        """Map actions from [-1, 1] to the environment's own bounds."""
        return self.action_low + (action + 1.0) * 0.5 * self.action_range

    def _read(self, source: Any, obs: np.ndarray, info: dict[str, Any], may_miss: bool = False) -> Any:
        coordinates: Coordinates = source
        entries = coordinates.entries
        if coordinates.source == "qpos":
            return np.array(self._data().qpos[entries])
        if coordinates.source == "com":
            return self._centre_of_mass()[["xyz".index(axis) for axis in entries]]
        if coordinates.source == "observation":
            return np.asarray(obs, dtype=np.float64)[entries]
        if may_miss and any(key not in info for key in entries):
            return None
        return np.array([info[key] for key in entries], dtype=np.float64)

    def _centre_of_mass(self) -> np.ndarray:
        # After mj_step positions of bodies lag one substep behind qpos: run the kinematics again first.
        import mujoco

        model, data = self.env.unwrapped.model, self._data()  # type: ignore[attr-defined]
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        return np.array(data.subtree_com[1])  # body 0 is the world, 1 the robot

    def _data(self) -> Any:
        return self.env.unwrapped.data  # type: ignore[attr-defined]

    def _try_out(self) -> None:
        """Take one step, so that a projection that cannot work is refused at once."""
        try:
            self.env.reset(seed=0)
            obs, _, _, _, info = self.env.step(self.action_low + 0.5 * self.action_range)
        except Exception as error:
            raise ConfigError(f"kwargs: {self.world.kwargs}: {self.world.id} cannot run with them: {error}") from None
        for field in ("position", "sigma"):
            coordinates = getattr(self.world, field)
            if isinstance(coordinates, str):
                continue
            self._check(field, coordinates, np.asarray(obs), info)

    def _check(self, field: str, coordinates: Coordinates, obs: np.ndarray, info: dict[str, Any]) -> None:
        where, entries = f"{self.world.id}: {field}.{coordinates.source}", coordinates.entries
        if coordinates.source == "info":
            numbers = [key for key, value in info.items() if np.isscalar(value) and not isinstance(value, str)]
            missing = [key for key in entries if key not in numbers]
            if missing:
                known = ", ".join(sorted(numbers)) or "none"
                raise ConfigError(f"{where}: {missing[0]!r} is no number in the environment's info; there are: {known}")
            return
        if coordinates.source == "observation":
            size = len(obs)
        elif hasattr(self.env.unwrapped, "data"):
            size = len(self._data().qpos)
        else:
            raise ConfigError(f"{where}: {self.world.id} is not a MuJoCo environment; use info or observation")
        outside = [index for index in entries if isinstance(index, int) and index >= size]
        if outside:
            raise ConfigError(f"{where}: index {outside[0]} is too large; there are {size} entries")
