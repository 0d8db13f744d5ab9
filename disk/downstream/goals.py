"""Goal environments: the agent must reach a point, as in the paper's downstream task.

The observation is the environment's, followed by the way to the goal, (goal - position) / size. The reward of a step is
minus the distance to the goal. Episodes end at their time limit only: every step costs, so an early end would pay.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box

from disk.config import World
from disk.config.environments import NEAREST
from disk.envs import make
from disk.errors import ConfigError

HORIZON = 1000
"""Steps of an episode: 100 decisions of 10 steps."""


class GoalEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """An environment with a goal.

    `world` names an environment of config/envs.yaml. Its row (`downstream`) says in which environment its skills are
    used and how far away goals are. A `World` object needs a `size`: goals are drawn from [-size, size].
    `reset(options={"goal": [3.0, 4.0]})` sets the goal.

    `info` adds `goal`, `distance` and `normalised_distance`, the distance as a share of the first one.
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012

    def __init__(
        self, world: str | World, size: float | None = None, horizon: int = HORIZON, render_mode: str | None = None
    ) -> None:
        where, row_size = _look_up(world, size)
        options: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        self.env = make(where, horizon=horizon, **options)
        self.size, self.horizon, self.render_mode = float(row_size), horizon, render_mode
        self.metadata = self.env.metadata
        self.action_space = self.env.action_space
        own = self.env.observation_space
        assert isinstance(own, Box)
        way = len(where.position.entries)
        self.observation_space = Box(
            np.concatenate((own.low, np.full(way, -np.inf))),
            np.concatenate((own.high, np.full(way, np.inf))),
            dtype=np.float64,
        )
        self.native_size = self.env.observation_size
        """Size of the environment's own observation, which skills see."""
        self.goal, self._start = np.zeros(way), 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        options = dict(options or {})
        given = options.pop("goal", None)
        own = int(self.np_random.integers(2**31))  # the seed determines the whole episode
        obs, info = self.env.reset(seed=own, options=options or None)
        drawn = self.np_random.uniform(-self.size, self.size, len(self.goal))
        self.goal = drawn if given is None else np.asarray(given, dtype=np.float64).reshape(self.goal.shape)
        self._start = max(float(np.linalg.norm(self.goal - info["position"])), NEAREST * self.size)
        return self._seen(obs, info), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, _, terminated, truncated, info = self.env.step(action)
        if terminated:
            raise ConfigError(
                f"{self.env.world.id}: ended an episode early, which pays because every step costs; expected kwargs "
                "that prevent it, such as {terminate_when_unhealthy: false}"
            )
        seen = self._seen(obs, info)
        return seen, -info["distance"], False, truncated, info

    def _seen(self, obs: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        way = self.goal - info["position"]
        distance = float(np.sqrt(way @ way))
        info.update(goal=self.goal.copy(), distance=distance, normalised_distance=distance / self._start)
        return np.concatenate((obs, way / self.size))

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def _look_up(world: str | World, size: float | None) -> tuple[World, float]:
    if isinstance(world, str):
        from disk.config import load

        config = load()
        if size is None:
            return config.goals_of(world)
        row = config.environment(world)
        known = row.downstream.env or row.downstream.size
        world = config.goals_of(world)[0] if known else row.world()
    if size is None:
        raise ConfigError(f"{world.id}: a World object needs a `size`, half the side of the square of goals")
    if world.evolution is not None:
        raise ConfigError(f"{world.id}: changes over time; goals need an environment that does not")
    return world, size
