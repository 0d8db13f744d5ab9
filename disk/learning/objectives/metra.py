"""METRA's reward: a skill is paid for going far along its own direction z of a learned space.

r = (φ(s') - φ(s))ᵀz, and φ is trained to maximise it while one step is at most 1 long in its space,
‖φ(s') - φ(s)‖² ≤ 1, by dual gradient descent: a dual variable grows while steps are longer and shrinks, never
faster than by the slack, while they are shorter. It needs no projection σ; states are obs ⊕ position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from disk.config import Metra
from disk.learning.objectives.learned import Learned
from disk.learning.replay import Batch
from disk.networks import MLP
from disk.storage.replay import Columns


class MetraObjective:
    def __init__(self, config: Metra, columns: Columns, seed: int, device: torch.device) -> None:
        self.config = config
        initial = torch.Generator().manual_seed(seed)
        self.encoder = MLP([columns.obs, *config.hidden, config.latent_size], generator=initial).to(device)
        self._model = Learned(self.encoder, config.learning_rate)
        self._log_dual = nn.ParameterList([torch.tensor(math.log(config.dual), device=device)])
        self._dual = Learned(self._log_dual, config.learning_rate)

    def observe(self, skill: int, sigma: np.ndarray) -> None: ...

    def start(self, sample: Callable[[], Batch]) -> None: ...

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        batch = sample()
        moved = self.moved(batch)
        short = 1.0 - moved.square().sum(dim=1)  # above 0 where the constraint holds
        room = short.clamp(max=self.config.slack)
        dual = self._log_dual[0]
        self._model.step(-((moved * batch.label).sum(dim=1) + dual.detach().exp() * room).mean())
        self._dual.step(dual * room.detach().mean())
        length = (1.0 - short.detach()).mean()
        return {"train/dual": dual.detach().exp(), "train/squared_length": length}

    @torch.no_grad()
    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        reward = (self.moved(batch) * batch.label).sum(dim=1)
        return reward, {"reward/mean": reward.mean()}

    def moved(self, batch: Batch) -> Tensor:  # (B, latent size)
        """φ(s') - φ(s)."""
        now, then = self.encoder(torch.cat((batch.next_obs, batch.obs))[None])[0].chunk(2)
        difference: Tensor = now - then
        return difference

    def state(self) -> dict[str, Tensor]:
        return {**self._model.state("encoder"), **self._dual.state("dual")}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._model.load_state("encoder", state)
        self._dual.load_state("dual", state)
