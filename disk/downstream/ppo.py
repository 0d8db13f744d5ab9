"""Train a controller that reaches goals by choosing skills: SB3's PPO with its defaults.

A checkpoint is taken between two iterations of PPO. It holds the weights, Adam's moments, the states of torch's and
NumPy's generators, and the seed and decisions of every running episode, which are replayed. SB3's own `save` would use
pickle and lose the episodes.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from disk.config.jobs import HierarchyJob
from disk.config.running import ROLLOUT, Runtime
from disk.downstream.curve import LIVE, Curve, controller_seed
from disk.downstream.vec_env import SkillVecEnv
from disk.errors import ArtefactError, Interrupted, NotFiniteError
from disk.learning.progress import Bar
from disk.learning.run import until_signal
from disk.skills import Skills
from disk.storage.checkpoint import Checkpoint, below
from disk.storage.files import load_tensors, save_json
from disk.storage.layout import JOB

log = logging.getLogger("disk")


class TrainingCallback(BaseCallback):
    """Adds to PPO's loop the curve, the progress bar, checkpoints and stops."""

    def __init__(self, job: HierarchyJob, envs: SkillVecEnv, runtime: Runtime, checkpoint: Checkpoint) -> None:
        super().__init__()
        self.job, self.envs, self.runtime, self.checkpoint = job, envs, runtime, checkpoint
        self.curve = Curve(job, checkpoint.directory / LIVE)
        self.asked_to_stop: Callable[[], int] = lambda: 0
        self.earlier_seconds, self._started = 0.0, time.monotonic()
        self._bar = Bar(f"{job.env} seed {job.seed} hierarchy {job.hierarchy_seed}", job.decisions)
        self._saved = time.monotonic()
        self._between: tuple[dict[str, Tensor], dict[str, Any]] = {}, {}

    @property
    def seconds(self) -> float:
        return self.earlier_seconds + time.monotonic() - self._started

    def resumed(self, seconds: float) -> None:
        self.earlier_seconds = seconds
        self._bar.start(self.model.num_timesteps)

    def _on_rollout_start(self) -> None:
        """Keep the state between two iterations, from which a later process can resume."""
        self._between = self._state()
        if time.monotonic() - self._saved >= 60.0 * self.runtime.checkpoint_minutes:
            self._save()

    def _on_step(self) -> bool:
        if signum := self.asked_to_stop():
            self._save()
            step = self._between[1]["step"]
            raise Interrupted(signum, self.checkpoint.directory, step)
        done = self.model.num_timesteps
        self.curve.add(float(self.envs.normalised.sum()), self.envs.num_envs * self.job.steps)
        if self.curve.row(done):
            self._bar.note({"curve/distance": self.curve.rows[-1][1]})
        self._bar.show(done)
        return done < self.job.decisions

    def _save(self) -> None:
        tensors, meta = self._between
        for name, tensor in tensors.items():
            if not torch.isfinite(tensor).all():
                raise NotFiniteError(f"{name} is not finite at decision {meta['step']}; the last checkpoint is kept")
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
        meta = {
            "step": model.num_timesteps,
            "lanes": [[episode.number, list(episode.decisions)] for episode in self.envs.episodes],
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
    """Train a controller, or resume its checkpoint. Return its weights, its curve and the seconds of training."""
    envs = SkillVecEnv(job, skills)
    with _own_generators():
        model = PPO(
            "MlpPolicy", envs, n_steps=ROLLOUT // envs.num_envs, seed=controller_seed(job, "learner"), device="cpu"
        )
        callback = TrainingCallback(job, envs, runtime, checkpoint)
        callback.init_callback(model)
        _resume(model, callback)
        save_json(checkpoint.directory / JOB, job.model_dump(mode="json"))  # `disk.tracking` reads it
        with until_signal() as callback.asked_to_stop:
            left = job.decisions - model.num_timesteps
            if left:
                model.learn(left, callback, reset_num_timesteps=not model.num_timesteps)
    callback.close()
    envs.close()
    return model.policy.state_dict(), callback.curve, callback.seconds


def _resume(model: PPO, callback: TrainingCallback) -> None:
    """Load the checkpoint, if there is a usable one, into the model, its environments and all generators."""
    found = callback.checkpoint.load()
    if isinstance(found, str):
        if found:
            log.warning(found)
        return
    with callback.checkpoint.restoring():
        _restore(model, callback, *found)
    decision, total = model.num_timesteps, callback.job.decisions
    log.info("resuming at decision %d of %d (%s)", decision, total, callback.checkpoint.directory)


def _restore(model: PPO, callback: TrainingCallback, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
    _set_weights(model, tensors)
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in below(tensors, "adam/").items():
        parameter, moment = name.split("/")
        moments.setdefault(int(parameter), {})[moment] = value.clone()
    optimizer = model.policy.optimizer
    optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
    envs = callback.envs
    for index, (number, decisions) in enumerate(meta["lanes"]):
        envs.rejoin(index, number, decisions)
    model.num_timesteps = meta["step"]
    model._last_obs = envs.observations()
    model._last_episode_starts = np.array([not episode.decisions for episode in envs.episodes])
    callback.curve.load_state(meta["curve"])
    callback.resumed(meta["seconds"])
    torch.set_rng_state(tensors["generator/torch"])
    position, has_gauss, gauss = meta["numpy"]
    keys = tensors["generator/numpy"].numpy().view(np.uint32)
    np.random.set_state(("MT19937", keys, position, has_gauss, gauss))


def _numpy_state() -> tuple[str, np.ndarray, int, int, float]:
    return np.random.get_state(legacy=True)  # type: ignore[return-value]


def _set_weights(model: PPO, tensors: Mapping[str, Tensor]) -> None:
    model.policy.load_state_dict(below(tensors, "policy/"))


@contextmanager
def _own_generators() -> Iterator[None]:
    """Restore the global generators on exit. PPO draws from them, as other code may."""
    of_python, of_numpy, of_torch = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)


def load_controller(path: Path, env: Any) -> PPO:
    """Load a trained controller as an SB3 model. `env` has the observations and skills that it was trained with."""
    tensors, meta = load_tensors(path)
    model = PPO("MlpPolicy", env, device="cpu")
    try:
        _set_weights(model, tensors)
    except RuntimeError as error:
        raise ArtefactError(f"{path}: does not fit this environment ({meta.get('kind')}): {error}") from None
    return model
