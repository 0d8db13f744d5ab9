"""A controller that reaches goals by choosing skills: SB3's PPO, with its defaults, in a world with goals.

Everything it goes on from after a kill is saved between two of its iterations: weights, Adam's moments, the states of
torch's and NumPy's generators and, of an episode that is running then, its seed and its decisions, which are made
again. SB3's own `save` would pickle, and forget the episode.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Discrete
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor

from disk.config.jobs import HierarchyJob
from disk.config.settings import ROLLOUT, Runtime
from disk.downstream.curve import LIVE, Curve, seed_of
from disk.downstream.goals import GoalEnv
from disk.downstream.skill_env import Performers, check
from disk.errors import ArtefactError, Interrupted, NotFiniteError
from disk.learning.progress import Bar
from disk.learning.run import until_signal
from disk.skills import Skills, shown
from disk.storage.checkpoint import Checkpoint
from disk.storage.files import load_tensors, save_json
from disk.storage.layout import JOB

log = logging.getLogger("disk")


@dataclass
class Lane:
    """A world with a goal, and what is going on in it."""

    env: GoalEnv
    episode: int = -1
    decisions: list[int] = field(default_factory=list)
    """Of this episode: with its seed, they are all that it takes to come back into it."""


class Lanes(VecEnv):
    """SB3's view of several worlds in which skills act at once, so that their actions are computed together."""

    def __init__(self, job: HierarchyJob, skills: Skills) -> None:
        horizon = job.episode * job.steps
        count = job.environments or 1
        self.lanes = [Lane(GoalEnv(job.world, job.size, horizon)) for _ in range(count)]
        self.job, self.skills = job, skills
        self.native = check(self.lanes[0].env, skills)
        self.performers = Performers(skills)
        self.normalised = np.zeros(count)
        """Σ d_t / d_0 over the steps of the last decision."""
        space = self.lanes[0].env.observation_space
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
        infos: list[dict[str, Any]] = [{} for _ in self.lanes]
        for index, lane in enumerate(self.lanes):
            if len(lane.decisions) == self.job.episode:
                dones[index] = True  # by its time limit: PPO bootstraps from what comes last
                infos[index] = {"TimeLimit.truncated": True, "terminal_observation": self._obs[index].copy()}
                self._begin(index, lane.episode + 1)
        return self._obs.copy(), rewards, dones, infos

    def rejoin(self, index: int, episode: int, decisions: Sequence[int]) -> None:
        """Bring a lane back into an episode: the same start, the same decisions."""
        self._begin(index, episode)
        for decision in decisions:
            self._decide([index], np.array([decision]))

    def observations(self) -> np.ndarray:
        return self._obs.copy()

    def _begin(self, index: int, episode: int) -> None:
        lane = self.lanes[index]
        lane.episode, lane.decisions = episode, []
        obs, info = lane.env.reset(seed=seed_of(self.job, "episode", episode * self.num_envs + index))
        self._see(index, obs, info)

    def _decide(self, indices: Sequence[int], skills: np.ndarray) -> np.ndarray:
        """Let a skill run in each of some lanes; the sums of their rewards, about -1 at the start."""
        self.performers.choose(skills)
        rewards = np.zeros(len(indices), dtype=np.float64)
        for place in range(len(indices)):
            self.normalised[indices[place]] = 0.0
        chosen = list(indices)
        for _ in range(self.job.steps):
            native = self.performers.act(self._seen[chosen])
            for place, index in enumerate(chosen):
                obs, reward, _, _, info = self.lanes[index].env.step(native[place])
                rewards[place] += reward
                self.normalised[index] += info["normalised_distance"]
                self._see(index, obs, info)
        for place, index in enumerate(chosen):
            self.lanes[index].decisions.append(int(skills[place]))
        # A constant factor: PPO's value function, which nothing normalises, would take very long to get to thousands.
        return (rewards / (self.job.size * self.job.steps)).astype(np.float32)

    def _see(self, index: int, obs: np.ndarray, info: Mapping[str, Any]) -> None:
        self._obs[index] = obs
        self._seen[index] = shown(self.skills.meta, obs[: self.native], info)

    def close(self) -> None:
        for lane in self.lanes:
            lane.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.lanes[i].env, attr_name) for i in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        for i in self._get_indices(indices):
            setattr(self.lanes[i].env, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        envs = [self.lanes[i].env for i in self._get_indices(indices)]
        return [getattr(env, method_name)(*method_args, **method_kwargs) for env in envs]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


class Control(BaseCallback):
    """What happens around PPO's own loop: the curve, checkpoints, and asking it to stop."""

    def __init__(self, job: HierarchyJob, lanes: Lanes, runtime: Runtime, checkpoint: Checkpoint, label: str) -> None:
        super().__init__()
        self.job, self.lanes, self.runtime, self.checkpoint = job, lanes, runtime, checkpoint
        self.curve = Curve(job, checkpoint.directory / LIVE)
        self.asked_to_stop: Callable[[], int] = lambda: 0
        self.earlier_seconds, self._started = 0.0, time.monotonic()
        self._bar = Bar(label, job.decisions)
        self._saved = time.monotonic()
        self._between: tuple[dict[str, Tensor], dict[str, Any]] = {}, {}

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.monotonic() - self._started

    def resumed(self, seconds: float) -> None:
        self.earlier_seconds = seconds
        self._bar.start(self.model.num_timesteps)

    def _on_rollout_start(self) -> None:
        """Between two iterations: what a later process would go on from."""
        self._between = self._state()
        if time.monotonic() - self._saved >= 60.0 * self.runtime.checkpoint_minutes:
            self._save()

    def _on_step(self) -> bool:
        if signum := self.asked_to_stop():
            self._save()
            step = self._between[1]["step"]
            raise Interrupted(signum, self.checkpoint.directory, step)
        done = self.model.num_timesteps
        self.curve.add(float(self.lanes.normalised.sum()), self.lanes.num_envs * self.job.steps)
        if self.curve.row(done):
            self._bar.note({"curve/distance": self.curve.rows[-1][1]})
        self._bar.show(done)
        return done < self.job.decisions

    def _save(self) -> None:
        tensors, meta = self._between
        for name, tensor in tensors.items():
            if not torch.isfinite(tensor).all():
                raise NotFiniteError(
                    f"{name} is not finite at decision {meta['step']}; the last good checkpoint is kept"
                )
        self.checkpoint.save(tensors, meta, [], [])
        self._saved = time.monotonic()

    def _state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        model = self.model
        tensors = {f"policy/{name}": value.clone() for name, value in model.policy.state_dict().items()}
        for index, moments in model.policy.optimizer.state_dict()["state"].items():
            tensors |= {f"adam/{index}/{name}": value.clone() for name, value in moments.items()}
        _, keys, *counters = _numpy_state()
        tensors |= {
            "generator/torch": torch.get_rng_state(),
            "generator/numpy": torch.from_numpy(keys.view(np.int32).copy()),
        }
        lanes = [[lane.episode, list(lane.decisions)] for lane in self.lanes.lanes]
        meta = {
            "step": model.num_timesteps,
            "lanes": lanes,
            "numpy": counters,
            "curve": self.curve.state(),
            "seconds": self.seconds,
        }
        return tensors, meta

    def close(self) -> None:
        self._bar.close()


def learn_controller(
    job: HierarchyJob, skills: Skills, runtime: Runtime, checkpoint: Checkpoint
) -> tuple[dict[str, Tensor], Curve, float]:
    """Train a controller, from a checkpoint if there is one: its weights, its curve and the seconds it took."""
    lanes = Lanes(job, skills)
    with _own_generators():
        model = PPO("MlpPolicy", lanes, n_steps=ROLLOUT // lanes.num_envs, seed=seed_of(job, "learner"), device="cpu")
        label = f"{job.env} seed {job.seed} hierarchy {job.hierarchy_seed}"
        control = Control(job, lanes, runtime, checkpoint, label)
        control.init_callback(model)
        _resume(model, control)
        save_json(checkpoint.directory / JOB, job.model_dump(mode="json"))  # for whoever watches
        with until_signal() as control.asked_to_stop:
            left = job.decisions - model.num_timesteps
            if left:
                model.learn(left, control, reset_num_timesteps=not model.num_timesteps)
    control.close()
    lanes.close()
    return model.policy.state_dict(), control.curve, control.seconds


def _resume(model: PPO, control: Control) -> None:
    found = control.checkpoint.load()
    if isinstance(found, str):
        if found:
            log.warning(found)
        return
    tensors, meta = found
    _set_weights(model, tensors)
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in _below(tensors, "adam").items():
        index, moment = name.split("/")
        moments.setdefault(int(index), {})[moment] = value.clone()
    optimizer = model.policy.optimizer
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    lanes = control.lanes
    for lane, (episode, decisions) in enumerate(meta["lanes"]):
        lanes.rejoin(lane, episode, decisions)
    model.num_timesteps = meta["step"]
    model._last_obs = lanes.observations()
    model._last_episode_starts = np.array([not lane.decisions for lane in lanes.lanes])
    control.curve.load_state(meta["curve"])
    control.resumed(meta["seconds"])
    torch.set_rng_state(tensors["generator/torch"])
    position, has_gauss, gauss = meta["numpy"]
    keys = tensors["generator/numpy"].numpy().view(np.uint32)
    np.random.set_state(("MT19937", keys, position, has_gauss, gauss))
    log.info("resuming at decision %d of %d (%s)", meta["step"], control.job.decisions, control.checkpoint.directory)


def _numpy_state() -> tuple[str, np.ndarray, int, int, float]:
    return np.random.get_state(legacy=True)  # type: ignore[return-value]


def _set_weights(model: PPO, tensors: Mapping[str, Tensor]) -> None:
    model.policy.load_state_dict(_below(tensors, "policy"))


def _below(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(f"{name}/")}


@contextmanager
def _own_generators() -> Iterator[None]:
    """PPO draws from the generators that everybody draws from: leave them as they were."""
    plain, numpy, torchs = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(plain)
        np.random.set_state(numpy)
        torch.set_rng_state(torchs)


def load_controller(path: Path, env: Any) -> PPO:
    """A trained controller as an SB3 model, for `model.predict(obs)` in an environment like the one it learned in."""
    tensors, meta = load_tensors(path)
    model = PPO("MlpPolicy", env, device="cpu")
    try:
        _set_weights(model, tensors)
    except RuntimeError as error:
        raise ArtefactError(f"{path}: is no controller for this environment ({meta.get('kind')}): {error}") from None
    return model
