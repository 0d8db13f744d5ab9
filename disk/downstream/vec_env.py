"""SB3's vectorised environment over skills: several goal environments whose actions are computed together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.spaces import Discrete
from stable_baselines3.common.vec_env import VecEnv

from disk.config.jobs import HierarchyJob
from disk.downstream.curve import controller_seed
from disk.downstream.goals import GoalEnv
from disk.downstream.skill_env import Performers, check_fit
from disk.skills import Skills, shown


@dataclass
class GoalEpisode:
    """The current episode of one environment."""

    env: GoalEnv
    number: int = -1
    decisions: list[int] = field(default_factory=list)
    """Decisions so far. With the episode's seed they are enough to return to this state."""


class SkillVecEnv(VecEnv):
    """Goal environments in which one action is a skill that acts for `job.steps` steps."""

    def __init__(self, job: HierarchyJob, skills: Skills) -> None:
        horizon = job.episode * job.steps
        count = job.environments or 1
        self.episodes = [GoalEpisode(GoalEnv(job.world, job.size, horizon)) for _ in range(count)]
        self.job, self.skills = job, skills
        self.native = check_fit(self.episodes[0].env, skills)
        self.performers = Performers(skills)
        self.normalised = np.zeros(count)
        """Σ d_t / d_0 over the steps of the last decision."""
        space = self.episodes[0].env.observation_space
        self._obs = np.zeros((count, *(space.shape or ())))
        self._seen = np.zeros((count, skills.observation_size))
        self._actions = np.zeros(count, dtype=np.int64)
        super().__init__(count, space, Discrete(len(skills)))

    def reset(self) -> np.ndarray:
        for index in range(self.num_envs):
            self._begin(index, 0)
        return self._obs.copy()

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = np.asarray(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        rewards = self._decide(range(self.num_envs), self._actions)
        dones = np.zeros(self.num_envs, dtype=bool)
        infos: list[dict[str, Any]] = [{} for _ in self.episodes]
        for index, episode in enumerate(self.episodes):
            if len(episode.decisions) == self.job.episode:
                dones[index] = True  # truncated by the time limit: PPO bootstraps from the terminal observation
                infos[index] = {"TimeLimit.truncated": True, "terminal_observation": self._obs[index].copy()}
                self._begin(index, episode.number + 1)
        return self._obs.copy(), rewards, dones, infos

    def rejoin(self, index: int, number: int, decisions: Sequence[int]) -> None:
        """Return environment `index` to a state: the same start, then the same decisions."""
        self._begin(index, number)
        for decision in decisions:
            self._decide([index], np.array([decision]))

    def observations(self) -> np.ndarray:
        return self._obs.copy()

    def _begin(self, index: int, number: int) -> None:
        episode = self.episodes[index]
        episode.number, episode.decisions = number, []
        obs, info = episode.env.reset(seed=controller_seed(self.job, "episode", number * self.num_envs + index))
        self._see(index, obs, info)

    def _decide(self, indices: Sequence[int], skills: np.ndarray) -> np.ndarray:
        """Let one skill act in each of these environments. Return the sums of rewards, about -1 at the start."""
        chosen = list(indices)
        self.performers.choose(skills)
        rewards = np.zeros(len(chosen), dtype=np.float64)
        self.normalised[chosen] = 0.0
        for _ in range(self.job.steps):
            native = self.performers.act(self._seen[chosen])
            for place, index in enumerate(chosen):
                obs, reward, _, _, info = self.episodes[index].env.step(native[place])
                rewards[place] += reward
                self.normalised[index] += info["normalised_distance"]
                self._see(index, obs, info)
        for place, index in enumerate(chosen):
            self.episodes[index].decisions.append(int(skills[place]))
        # A constant scale: PPO's value function is not normalised and would need very long to reach thousands.
        return (rewards / (self.job.size * self.job.steps)).astype(np.float32)

    def _see(self, index: int, obs: np.ndarray, info: Mapping[str, Any]) -> None:
        self._obs[index] = obs
        self._seen[index] = shown(self.skills.meta, obs[: self.native], info)

    def close(self) -> None:
        for episode in self.episodes:
            episode.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(env, attr_name) for env in self._envs(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        for env in self._envs(indices):
            setattr(env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        return [getattr(env, method_name)(*method_args, **method_kwargs) for env in self._envs(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        return [False for _ in self._envs(indices)]

    def _envs(self, indices: Any) -> list[GoalEnv]:
        return [self.episodes[index].env for index in self._get_indices(indices)]
