"""Episodes: the environments that a training steps in turn, and the episode under way in each.

An episode is seeded by its place in the training, so no simulator state is saved. A training that was stopped in the
middle of an episode starts it again and takes the same actions, which are in the replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from disk.envs import Projected
from disk.errors import must_be_finite
from disk.seeds import seed_of

if TYPE_CHECKING:
    from disk.learning.parts import Parts


@dataclass
class Episode:
    """An environment and its current episode."""

    env: Projected
    turn: int = 0
    """Its place among the environments that take turns."""
    number: int = 0
    skill: int = 0
    latent: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    obs: np.ndarray | None = None
    """What the agent sees; None between episodes."""
    sigma: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """σ of the current state."""
    length: int = 0
    """Steps taken so far."""

    def begin(self, parts: Parts, step: int) -> np.ndarray:
        """Reset the environment for the skill that acts next; return what its agent sees first."""
        number = self.number * len(parts.envs) + self.turn if parts.shared else self.number
        self.skill, self.length = parts.schedule.next(self.turn, number), 0
        self.latent = parts.latent(self.skill, number)
        obs, info = self.env.reset(seed=seed_of("episode", parts.seed, self.skill, number))
        self.obs, self.sigma = parts.seen(obs, info), info["sigma"]
        must_be_finite("first observation", self.obs, step)
        return self.obs

    def advance(self, obs: np.ndarray, sigma: np.ndarray) -> None:
        """Note what a step led to."""
        self.obs, self.sigma, self.length = obs, sigma, self.length + 1

    def end(self) -> None:
        self.number, self.obs = self.number + 1, None

    def rejoin(self, parts: Parts, now: int, length: int) -> None:
        """Return to an episode: the same start and actions, in the world as it was at each step."""
        turns = len(parts.envs)
        last = (now - 1 - self.turn) // turns * turns + self.turn  # the last step of this environment
        steps = range(parts.start + last - (length - 1) * turns, parts.start + last + 1, turns)
        self.env.at(steps[0])
        self.begin(parts, now)
        replay = parts.replays[parts.agent_of(self.skill)]
        # A shared replay holds the environments' steps in turn: this one's last step, then those of later ones.
        every, since = (turns, now - 1 - last) if parts.shared else (1, 0)
        rows = replay.newest((length - 1) * every + 1 + since)[::every]
        actions = rows[:length, replay.columns.parts["action"]].numpy()
        for step, action in zip(steps, actions, strict=True):
            self.env.at(step)
            obs, _, _, _, info = self.env.step(self.env.to_native(action))
            self.obs, self.sigma = parts.seen(obs, info), info["sigma"]
        self.length = length
