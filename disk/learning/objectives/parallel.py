"""DISk's reward for skills that are learned side by side: the paper's parallel ablation.

Every policy has a BUF of its own, and its 𝒯 is the union of the others'. Nobody was there before, so α and β of a
policy are the inverse running means of its own r_c and r_d.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from disk.config import Incremental
from disk.learning.objectives.incremental import ANNEALING, kth_distance
from disk.learning.replay import Batch


class ParallelObjective:
    def __init__(
        self,
        config: Incremental,
        sigma_size: int,
        skills: int,
        generator: torch.Generator,
        device: torch.device,
        project: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """`project`: φ, if σ is learned: `observe` then sees what φ projects."""
        self.config, self.generator, self._project = config, generator, project
        self.recent = torch.zeros(skills, config.recent_states, sigma_size, device=device)  # every policy's BUF
        self.observed = [0] * skills
        self._sums = torch.zeros(skills, 2, device=device)  # of each policy's batch means of r_c, r_d
        self._batches = [0] * skills

    def observe(self, skill: int, sigma: np.ndarray) -> None:
        place = self.observed[skill] % self.recent.shape[1]
        self.recent[skill, place].copy_(torch.from_numpy(sigma))
        self.observed[skill] += 1

    def start(self, sample: Callable[[], Batch]) -> None: ...

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        return {}

    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        skill, config = int(batch.label[0, 0]), self.config  # a policy's replay holds its own steps only
        own, past = self.buffer(skill), self._drawn(self.others(skill))
        own, past = (own, past) if self._project is None else (self._project(own), self._project(past))
        consistency = kth_distance(batch.sigma, own, config.neighbours)
        diversity = kth_distance(batch.sigma, past, config.neighbours)
        means = torch.stack((consistency.mean(), diversity.mean()))
        self._sums[skill] += means
        self._batches[skill] += 1
        inverse = 1.0 / (self._sums[skill] / self._batches[skill]).clamp(min=config.mean_floor)
        factor = ANNEALING[config.anneal](progress)
        reward = config.beta * inverse[1] * diversity - (factor * config.alpha) * inverse[0] * consistency
        return reward, {"reward/mean": reward.mean(), "reward/consistency": means[0], "reward/diversity": means[1]}

    def buffer(self, skill: int) -> Tensor:
        """Return a policy's own most recent states."""
        return self.recent[skill, : min(self.observed[skill], self.recent.shape[1])]

    def others(self, skill: int) -> Tensor:
        """Return 𝒯, the most recent states of all other policies."""
        return torch.cat([self.buffer(other) for other in range(len(self.observed)) if other != skill])

    def _drawn(self, past: Tensor) -> Tensor:
        size = (self.config.past_batch,)
        return past[torch.randint(len(past), size, generator=self.generator, device=past.device)]

    def state(self) -> dict[str, Tensor]:
        counts = {"observed": torch.tensor(self.observed), "batches": torch.tensor(self._batches)}
        return {"recent": self.recent, "sums": self._sums, "generator": self.generator.get_state(), **counts}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.recent.copy_(state["recent"])
        self._sums.copy_(state["sums"])
        self.generator.set_state(state["generator"])
        self.observed, self._batches = state["observed"].tolist(), state["batches"].tolist()
