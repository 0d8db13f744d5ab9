"""Skills as actions: an environment in which one decision lets a skill act for several steps.

`Performers` computes the skills' deterministic actions in NumPy. For a single observation, torch's overhead is several
times the time of the products. Environments that step together share the calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from disk.envs import Projected
from disk.errors import ArtefactError
from disk.skills import Skills, misfit, must_act_by_modes, shown


class Performers:
    """Skills that act in one or several environments: `choose` a skill for each, then let them `act`."""

    def __init__(self, skills: Skills) -> None:
        must_act_by_modes(skills, "a controller's choice")
        layers = [(weight.numpy(), bias.numpy()) for weight, bias in skills.actor.mlp.layers]
        weight, bias = layers[-1]
        actions = int(skills.meta["action_size"])
        # The first half of the output is the mean. A deterministic action needs no more.
        layers[-1] = np.ascontiguousarray(weight[:, :, :actions]), np.ascontiguousarray(bias[:, :, :actions])
        self._all, self._which = layers, skills.which.numpy()
        self._latents = skills.latent.numpy()
        low, high = (np.asarray(skills.meta[f"action_{side}"], dtype=np.float32) for side in ("low", "high"))
        self._low, self._half_range = low, 0.5 * (high - low)
        self._hidden = layers[:-1]
        self._last = layers[-1]
        self._latent = self._latents[:0, None]

    def choose(self, skills: Sequence[int] | np.ndarray) -> None:
        """Set the skill that acts in each environment."""
        actors = self._which[skills]
        one = slice(actors[0], actors[0] + 1) if len(actors) == 1 else None  # a view: nothing is copied
        chosen = [(w[actors], b[actors]) if one is None else (w[one], b[one]) for w, b in self._all]
        self._hidden, self._last = chosen[:-1], chosen[-1]
        self._latent = self._latents[skills][:, None]

    def act(self, seen: np.ndarray) -> np.ndarray:
        """Return actions (B, A) in the environment's bounds for observations (B, D), one per environment."""
        x = seen[:, None].astype(np.float32)
        if self._latent.shape[2]:
            x = np.concatenate((x, self._latent), axis=2)
        for weight, bias in self._hidden:
            x = np.matmul(x, weight)
            x += bias
            np.maximum(x, 0.0, out=x)
        x = np.matmul(x, self._last[0])
        x += self._last[1]
        np.tanh(x, out=x)
        x += 1.0
        native: np.ndarray = self._low + x[:, 0] * self._half_range
        return native


class SkillEnv(gymnasium.Env[np.ndarray, np.integer[Any]]):
    """An environment whose discrete action picks a skill, which then acts for `steps` steps.

    The reward is the sum over these steps. The end of an episode also ends the decision. `info` is the last step's,
    with `steps`, the number of steps taken. Skills act deterministically. In a `GoalEnv` they do not see the goal.
    """

    metadata = {"render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"]}  # noqa: RUF012

    def __init__(self, env: gymnasium.Env[Any, Any], skills: Skills, steps: int = 10) -> None:
        if steps < 1:
            raise ValueError(f"steps: {steps}: expected at least 1")
        self.env, self.skills, self.steps = with_position(env, skills), skills, steps
        self.metadata, self.render_mode = env.metadata, env.render_mode
        self.observation_space = env.observation_space
        self.action_space = Discrete(len(skills))
        self._seen_size = check_fit(self.env, skills)
        self._performers = Performers(skills)
        self._seen = np.zeros((1, skills.observation_size))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        obs, info = self.env.reset(seed=seed, options=options)
        self._seen[0] = shown(self.skills.meta, obs[: self._seen_size], info)
        return obs, info

    def step(self, action: np.integer[Any] | int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._performers.choose([int(action)])
        total, taken, terminated, truncated = 0.0, 0, False, False
        while taken < self.steps and not (terminated or truncated):
            native = self._performers.act(self._seen)[0]
            obs, reward, terminated, truncated, info = self.env.step(native)
            self._seen[0] = shown(self.skills.meta, obs[: self._seen_size], info)
            total += float(reward)
            taken += 1
        return obs, total, terminated, truncated, {**info, "steps": taken}

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()


def with_position(env: gymnasium.Env[Any, Any], skills: Skills) -> gymnasium.Env[Any, Any]:
    """Wrap an environment that has no positions in its `info`, if the skills need them."""
    known = env.has_wrapper_attr("world") or env.has_wrapper_attr("goal")
    return Projected(env, skills.world) if skills.meta.get("sees_position") and not known else env


def check_fit(env: gymnasium.Env[Any, Any], skills: Skills) -> int:
    """Raise if these skills cannot act in an environment. Return how many numbers of its observation they see."""
    space, actions = env.observation_space, env.action_space
    if not isinstance(space, Box) or len(space.shape) != 1 or not isinstance(actions, Box):
        raise ValueError(f"expected an environment with flat observations and actions, not {space} and {actions}")
    goals = env.has_wrapper_attr("native_size")
    size = int(env.get_wrapper_attr("native_size")) if goals else space.shape[0]
    reason = misfit(skills, size, actions.shape[0])
    if reason:
        raise ArtefactError(reason)
    return size
