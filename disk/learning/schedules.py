"""Schedules: which skill acts next.

A skill acts for a whole episode, and the draw of it is a pure function of (seed, episode), so that an
interrupted training has nothing to remember. Only the curriculum, which grows with what has been learned,
has a state. Where skills take turns step by step, each has a lane, a world of its own. Skills that are points
of a continuum are drawn from a `Prior`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from disk.config import Curriculum
from disk.learning.objectives.diayn import DiaynObjective
from disk.learning.replay import Batch
from disk.seeds import seed_of


class Schedule(Protocol):
    lanes: int
    """Worlds that are stepped in turn, one step each."""

    def next(self, lane: int, episode: int) -> int:
        """Return the skill that acts in the next episode of an environment."""

    def finished(self, episode: Callable[[], Batch]) -> None:
        """End an episode. `episode` returns its transitions."""

    def state(self) -> dict[str, Tensor]: ...

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...


class _Fixed:
    """A schedule that ignores what the episodes show."""

    lanes: int = 1

    def finished(self, episode: Callable[[], Batch]) -> None: ...

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...


class One(_Fixed):
    """Always the same skill: one link of a chain."""

    def __init__(self, skill: int) -> None:
        self.skill = skill

    def next(self, lane: int, episode: int) -> int:
        return self.skill


class Uniform(_Fixed):
    """A skill drawn uniformly for each episode."""

    def __init__(self, seed: int, skills: int) -> None:
        self.seed, self.skills = seed, skills

    def next(self, lane: int, episode: int) -> int:
        return seed_of("schedule", self.seed, episode) % self.skills


class RoundRobin(_Fixed):
    """Every skill in its own environment, one step each in turn."""

    def __init__(self, skills: int) -> None:
        self.lanes = skills

    def next(self, lane: int, episode: int) -> int:
        return lane


class GrowingSkills:
    """VALOR's curriculum: K skills, which grow to ⌊1.5 K + 1⌋ when the discriminator tells them apart.

    It knows them well enough when its probability of the right skill, on the states of the last episodes
    as they came, is `certainty` on average. The average is over `episodes` and starts anew at each growth.
    """

    lanes = 1

    def __init__(self, config: Curriculum, seed: int, skills: int, objective: DiaynObjective) -> None:
        self.config, self.seed, self.most, self.objective = config, seed, skills, objective
        self._recent: deque[float] = deque(maxlen=config.episodes)
        self._grow_to(min(config.first, skills))

    def next(self, lane: int, episode: int) -> int:
        return seed_of("schedule", self.seed, episode) % self.skills

    def finished(self, episode: Callable[[], Batch]) -> None:
        if self.skills == self.most:
            return
        self._recent.append(self.objective.certainty(episode()))
        full = len(self._recent) == self.config.episodes
        if full and sum(self._recent) / self.config.episodes >= self.config.certainty:
            self._grow_to(min(3 * self.skills // 2 + 1, self.most))

    def _grow_to(self, skills: int) -> None:
        self.skills = self.objective.skills_in_play = skills
        self._recent.clear()

    def state(self) -> dict[str, Tensor]:
        return {"skills": torch.tensor(self.skills), "recent": torch.tensor(list(self._recent), dtype=torch.float64)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._grow_to(int(state["skills"]))
        self._recent.extend(state["recent"].tolist())


@dataclass(frozen=True)
class Prior:
    """Distribution of z: the latent that acts in an episode, and the latents that are evaluated."""

    shape: Literal["cube", "sphere"]
    """U(-1, 1) in every dimension, or uniform on the unit sphere."""
    size: int

    def of_episode(self, seed: int, episode: int) -> np.ndarray:
        z: np.ndarray = self._draw(seed_of("latent", seed, 1 + episode), 1)[0]
        return z

    def evaluated(self, count: int) -> Tensor:
        """Return latents (count, size) that cover the prior evenly, the same in every run.

        On a circle they have equal angles between them, on a line equal gaps. Elsewhere they are the first points of a
        low-discrepancy sequence, which is even for any count; a sphere's are mapped by the normal distribution.
        """
        if self.shape == "sphere" and self.size == 2:
            angles = 2.0 * np.pi * np.arange(count) / count
            return torch.from_numpy(np.column_stack((np.cos(angles), np.sin(angles))).astype(np.float32))
        if self.size == 1:
            shares = (np.arange(count)[:, None] + 0.5) / count
        else:
            ratio = 2.0  # becomes the root of x^(size + 1) = x + 1, a golden ratio: multiples of its powers fill a cube
            for _ in range(64):
                ratio = (1.0 + ratio) ** (1.0 / (self.size + 1))
            shares = (0.5 + np.arange(1, count + 1)[:, None] * ratio ** -np.arange(1.0, self.size + 1.0)) % 1.0
        if self.shape == "cube":
            return torch.from_numpy((2.0 * shares - 1.0).astype(np.float32))
        if self.size == 1:
            return torch.from_numpy(np.where(shares < 0.5, -1.0, 1.0).astype(np.float32))
        return torch.from_numpy(_unit(np.vectorize(NormalDist().inv_cdf)(shares)).astype(np.float32))

    def random_set(self, number: int, count: int) -> Tensor:
        """Return latents (count, size) drawn at random, to compare the even ones with."""
        return torch.from_numpy(self._draw(seed_of("latent", 0, 0, number), count))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw latents (count, size) for relabelled transitions, from a generator that checkpoints keep."""
        shape, device = (count, self.size), generator.device
        if self.shape == "cube":
            return 2.0 * torch.rand(shape, generator=generator, device=device) - 1.0
        return torch.nn.functional.normalize(torch.randn(shape, generator=generator, device=device), dim=1)

    def _draw(self, seed: int, count: int) -> np.ndarray:
        random, shape = np.random.default_rng(seed), (count, self.size)
        if self.shape == "cube":
            return random.uniform(-1.0, 1.0, shape).astype(np.float32)
        return _unit(random.standard_normal(shape)).astype(np.float32)


def _unit(vectors: np.ndarray) -> np.ndarray:
    scaled: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled
