"""Lanes: the worlds that a training steps in turn, and what is going on in each.

An episode is seeded by its place in the training, so no simulator state needs saving: a lane that was stopped
in the middle of an episode starts it again and takes the same actions, which are in the replay.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from disk.envs import Projected
from disk.learning.progress import must_be_finite
from disk.seeds import seed_of

if TYPE_CHECKING:
    from disk.learning.build import Parts

Stepped = tuple[Any, Any, bool, bool, dict[str, Any]]


class Transition(NamedTuple):
    """One step of a lane."""

    obs: np.ndarray
    action: np.ndarray
    next_obs: np.ndarray
    sigma: np.ndarray
    terminated: bool
    truncated: bool
    origin: np.ndarray | None
    """How the action came about, for objectives that ask."""


@dataclass
class Lane:
    """A world and what is going on in it."""

    env: Projected
    turn: int = 0
    """Its place among the lanes."""
    episode: int = 0
    skill: int = 0
    latent: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    obs: np.ndarray | None = None
    """What the skill sees; None between episodes."""
    length: int = 0
    """Steps of this episode."""
    action: np.ndarray | None = None
    """The action that is under way; None: the next one has not been chosen."""
    origin: np.ndarray | None = None
    outcome: Callable[[], Stepped] | None = None
    """What it leads to."""

    def begin(self, parts: Parts, step: int) -> np.ndarray:
        """A new episode: what the skill sees first."""
        episode = self.episode * len(parts.envs) + self.turn if parts.shared else self.episode
        self.skill, self.length = parts.schedule.next(self.turn, episode), 0
        self.latent = parts.latent(self.skill, episode)
        obs, info = self.env.reset(seed=seed_of("episode", parts.seed, self.skill, episode))
        self.obs = parts.seen(obs, info)
        must_be_finite("first observation", self.obs, step)
        return self.obs

    def set_out(self, action: np.ndarray, origin: np.ndarray | None, pool: Executor | None) -> None:
        """Take an action: in a thread of the pool's, or without one when the outcome is asked for."""
        native = self.env.to_native(action)
        self.action, self.origin = action, origin
        self.outcome = partial(self.env.step, native) if pool is None else pool.submit(self.env.step, native).result

    def arrive(self, parts: Parts, step: int) -> Transition:
        """What the action that is under way has led to."""
        before, action = self.obs, self.action
        assert before is not None
        assert action is not None
        assert self.outcome is not None
        obs, _, terminated, truncated, info = self.outcome()
        self.action = self.outcome = None
        self.obs, self.length = parts.seen(obs, info), self.length + 1
        must_be_finite("observation", self.obs, step)
        must_be_finite("sigma", info["sigma"], step)
        return Transition(before, action, self.obs, info["sigma"], terminated, truncated, self.origin)

    def rejoin(self, parts: Parts, now: int, length: int) -> None:
        """Go back into an episode: the same start, the same actions, in the world as it was at each step."""
        lanes = len(parts.envs)
        last = (now - 1 - self.turn) // lanes * lanes + self.turn  # the last step that was this lane's
        steps = range(parts.start + last - (length - 1) * lanes, parts.start + last + 1, lanes)
        self.env.at(steps[0])
        self.begin(parts, now)
        replay = parts.replays[parts.agent_of(self.skill)]
        # A replay that all lanes share holds their steps by turns, this lane's last one before those of later lanes.
        every, since = (lanes, now - 1 - last) if parts.shared else (1, 0)
        rows = replay.newest((length - 1) * every + 1 + since)[::every]
        actions = rows[:length, replay.columns.parts["action"]].numpy()
        for step, action in zip(steps, actions, strict=True):
            self.env.at(step)
            obs, _, _, _, info = self.env.step(self.env.to_native(action))
            self.obs = parts.seen(obs, info)
        self.length = length
