"""Normalise observations by a mean and a deviation that stay fixed during training.

A training shows its agent, and stores in its replay, (obs - mean) / deviation. The finished skills see raw observations
all the same: their first layer has the normaliser folded in, W' = W / s and b' = b - (m / s) · W. Rollouts, exports
and controllers therefore know nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.config import Given, Measured, World
from disk.envs import make
from disk.errors import ArtefactError, ConfigError
from disk.seeds import seed_of
from disk.skills import Skills, shown
from disk.storage.layout import STATS

WEIGHT, BIAS = "mlp.weights.0", "mlp.biases.0"
"""An actor's first layer."""


class Normaliser:
    def __init__(self, mean: np.ndarray, deviation: np.ndarray, steps: int = 0) -> None:
        self.mean, self.deviation = np.array(mean, dtype=np.float64), np.array(deviation, dtype=np.float64)  # (D,)
        self.steps = steps
        """Environment steps that it was measured on, outside the budget."""

    def __call__(self, seen: np.ndarray) -> np.ndarray:
        normalised: np.ndarray = (seen - self.mean) / self.deviation
        return normalised

    def fold(self, skills: Skills) -> Skills:
        """Let skills that were trained on normalised observations act on raw ones. Changes the skills."""
        tensors = skills.actor.state_dict()  # views of the weights
        weight, bias = tensors[WEIGHT], tensors[BIAS]  # (C, obs + latent, hidden), (C, 1, hidden)
        scaled = weight[:, : len(self.mean)].double() / self._tensor(self.deviation)[:, None]
        weight[:, : len(self.mean)] = scaled
        bias.copy_(bias.double() - self._tensor(self.mean) @ scaled[:, None])
        return skills

    def unfolded(self, actor: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return weights that act on normalised observations as the folded weights of `actor` act on raw ones."""
        weight, bias = actor[WEIGHT].double(), actor[BIAS].double()
        raw = weight[:, : len(self.mean)]
        bias = bias + self._tensor(self.mean) @ raw[:, None]
        weight = torch.cat((raw * self._tensor(self.deviation)[:, None], weight[:, len(self.mean) :]), dim=1)
        return {**actor, WEIGHT: weight.float(), BIAS: bias.float()}

    def about(self) -> dict[str, Any]:
        """Return the entry for stats.json; `read` is the way back."""
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist(), "steps": self.steps}

    def state(self) -> dict[str, Tensor]:
        return {"mean": self._tensor(self.mean), "deviation": self._tensor(self.deviation)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.mean, self.deviation = state["mean"].numpy(), state["deviation"].numpy()

    @staticmethod
    def _tensor(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values)


def read(stats: Mapping[str, Any], where: object) -> Normaliser:
    """Return the normaliser of a chain from an earlier skill's stats."""
    found = stats.get("normaliser")
    try:
        normaliser = Normaliser(found["mean"], found["deviation"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        raise ArtefactError(
            f"{where}/{STATS}: normaliser is {found!r}, not a mean and a deviation; restore it, or delete it and "
            "run the same command again"
        ) from None
    return normaliser


def prepare(settings: Measured | Given, world: World, seed: int, meta: Mapping[str, Any]) -> Normaliser:
    """Return the normaliser of a run: given in its environment's row, or measured."""
    size = int(meta["observation_size"])
    if isinstance(settings, Measured):
        return measure(world, seed, settings, meta)
    if len(settings.mean) < size:
        raise ConfigError(
            f"environments.{meta['env']}.normaliser: {len(settings.mean)} numbers: expected {size}, one for each "
            "number of the observation and then, for methods that see it, of the position"
        )
    return Normaliser(np.array(settings.mean[:size]), np.array(settings.deviation[:size]))


def measure(world: World, seed: int, settings: Measured, meta: Mapping[str, Any]) -> Normaliser:
    """Measure mean and deviation of observations under uniformly random actions, in the world of step 0."""
    env = make(world)
    random = np.random.default_rng(seed_of("normaliser", seed))
    seen: list[np.ndarray] = []
    episode, over = 0, True
    for step in range(settings.steps):
        if over:
            obs, info = env.reset(seed=seed_of("normaliser", seed, episode))
            seen.append(shown(meta, obs, info))
            episode, began = episode + 1, step
        obs, _, terminated, truncated, info = env.step(env.to_native(random.uniform(-1.0, 1.0, env.action_size)))
        seen.append(shown(meta, obs, info))
        over = terminated or truncated or step + 1 - began == settings.episode
    env.close()
    observations = np.asarray(seen, dtype=np.float64)
    if not np.isfinite(observations).all():
        raise ArtefactError(f"{world.id}: an observation under random actions is not finite: it cannot be normalised")
    return Normaliser(observations.mean(axis=0), observations.std(axis=0).clip(min=settings.floor), settings.steps)
