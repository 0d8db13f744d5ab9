"""DIAYN's reward: a skill is paid for being recognised.

A discriminator q learns, from the same replay batches, which skill z a transition came from; the reward is
log q(z|s') - log p(z), with p uniform over the skills in play. It is 0 on average for a q that knows nothing
and log of their number, its upper bound, where skills are told apart with certainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import PositiveFloat, PositiveInt

from disk.config.settings import Model
from disk.lazy import Lazy
from disk.learning.objectives import Kind, Setting

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from disk.learning.replay import Batch
    from disk.storage.replay import Columns
else:
    torch = Lazy("torch")


class Diayn(Model):
    """DIAYN's reward, log q(z|s') - log p(z), and its discriminator q."""

    hidden: list[PositiveInt]
    """Widths of the discriminator's hidden layers."""
    learning_rate: PositiveFloat
    """Of the discriminator (Adam)."""
    sees: Literal["observation_and_sigma", "sigma"]
    """What skills are told apart by: the next observation and σ, or σ alone."""


class DiaynObjective:
    def __init__(self, config: Diayn, columns: Columns, skills: int, seed: int, device: torch.device) -> None:
        from disk.learning.objectives.learned import Learned
        from disk.networks import MLP

        self.config = config
        self.skills_in_play = skills
        inputs = columns.sigma + (0 if config.sees == "sigma" else columns.obs)
        initial = torch.Generator().manual_seed(seed)
        self.discriminator = MLP([inputs, *config.hidden, skills], generator=initial).to(device)
        self._model = Learned(self.discriminator, config.learning_rate)

    def observe(self, skill: int, sigma: np.ndarray) -> None: ...

    def start(self, sample: Callable[[], Batch]) -> None: ...

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        batch = sample()
        logits, skill = self._logits(batch), _skill(batch)
        loss = torch.nn.functional.cross_entropy(logits, skill)
        self._model.step(loss)
        accuracy = (logits.detach().argmax(dim=1) == skill).float().mean()
        return {"train/discriminator_loss": loss.detach(), "train/discriminator_accuracy": accuracy}

    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        with torch.no_grad():
            reward = self._log_probability(batch) + math.log(self.skills_in_play)
            return reward, {"reward/mean": reward.mean()}

    def certainty(self, batch: Batch) -> float:
        """Return the mean probability of the skill that acted."""
        with torch.no_grad():
            return float(self._log_probability(batch).exp().mean())

    def _log_probability(self, batch: Batch) -> Tensor:  # (B,)
        return -torch.nn.functional.cross_entropy(self._logits(batch), _skill(batch), reduction="none")

    def _logits(self, batch: Batch) -> Tensor:  # (B, N)
        seen = batch.sigma if self.config.sees == "sigma" else torch.cat((batch.next_obs, batch.sigma), dim=1)
        logits: Tensor = self.discriminator(seen[None])[0]
        return logits

    def state(self) -> dict[str, Tensor]:
        return self._model.state("discriminator")

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._model.load_state("discriminator", state)


def _skill(batch: Batch) -> Tensor:  # (B,)
    return batch.label[:, 0].long()


def make(settings: Diayn, given: Setting) -> DiaynObjective:
    return DiaynObjective(settings, given.columns, given.job.skills, given.seed, given.device)


OBJECTIVE = Kind(Diayn, make, certain=True)
