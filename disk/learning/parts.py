"""The parts of a training: everything that the loop works with, and how it asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.config import Sac
from disk.envs import Projected
from disk.learning.awareness import Watch
from disk.learning.convergence import Settling, Spending
from disk.learning.normaliser import Normaliser
from disk.learning.objectives import Objective
from disk.learning.objectives.incremental import IncrementalObjective
from disk.learning.projection import LearnedProjection
from disk.learning.replay import Batch, Replay
from disk.learning.sac import SAC
from disk.learning.schedules import Prior, Schedule
from disk.learning.tape import BY_ONEDNN
from disk.skills import Skills, gather, shown


@dataclass
class Parts:
    """Everything that the loop works with."""

    label: str
    seed: int
    steps: int
    start: int
    """Global step of the first step."""
    sac: Sac
    envs: list[Projected]
    """Environments to step in turn: one for each parallel skill, or several for one policy."""
    agents: list[SAC]
    """One, or one for each skill."""
    replays: list[Replay]
    """One for each agent."""
    objective: Objective
    schedule: Schedule
    meta: dict[str, Any]
    """Metadata of the file of skills."""
    latents: Tensor
    """z of each skill (N, L), with L = 0 where every skill has a network of its own."""
    inherited: list[int] = field(default_factory=lambda: [0])
    """Rows that each replay started with."""
    prior: Prior | None = None
    """Distribution of z where skills are points of a continuum. `latents` are then those to evaluate."""
    snapshots: list[int] = field(default_factory=list)
    own: int | None = None
    """Rows of a batch that are a skill's own transitions; None: batches are uniform over the replay."""
    collected: int = 0
    """Steps outside the budget, for 𝒯."""
    settling: Settling | Spending | None = None
    """Says when a skill has converged; None: it takes all its steps."""
    watch: Watch | None = None
    """Looks for changes of the world; None: nobody does."""
    normaliser: Normaliser | None = None
    """Normalises observations; None: they are raw."""
    projection: LearnedProjection | None = None
    """φ, where σ is learned: `sigma` of environments and replays is then what φ projects. None: σ is given."""
    relabel: float | None = None
    """Share of the policy's transitions that get another latent from the prior; None: none."""
    attempt: Callable[[int], tuple[SAC, Objective]] | None = None
    """Another learner and objective for a skill that is tried again, by the number of the attempt."""

    @property
    def shared(self) -> bool:
        """True if one policy acts in several environments."""
        return len(self.envs) > 1 and len(self.agents) == 1

    def progress(self, step: int) -> float:
        """Return the share of the training that is done; rewards are annealed by it."""
        return step / self.steps if self.settling is None else self.settling.progress(step)

    @property
    def _products(self) -> AbstractContextManager[None]:
        """Inside it the objective's networks multiply as the learner's do, except for bf16."""
        return BY_ONEDNN if self.sac.precision == "onednn" else nullcontext()

    def improve_model(self, batch: Batch, agent: int) -> Mapping[str, Tensor]:
        """Take one step with the objective's own model, if it has one."""
        with self._products:
            return self.objective.update(partial(self.sample_all, batch, agent))

    def reward(self, batch: Batch, step: int) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return a batch's rewards (B,), and their terms."""
        with self._products:
            return self.objective.reward(batch, progress=self.progress(step))

    def start_over(self, attempt: int) -> None:
        """Try the skill again, from other weights and on the same replay."""
        assert self.attempt is not None
        self.agents[0], self.objective = self.attempt(attempt)

    def notice(self) -> None:
        """Take over what the watch has found: 𝒯 of the new world, and which transitions are of the old one."""
        watch, replay = self.watch, self.replays[0]
        if watch is None or not watch.fresh:
            return
        assert isinstance(self.objective, IncrementalObjective)
        self.objective.past = torch.from_numpy(np.concatenate(watch.past)).to(self.latents.device)
        since, inherited = watch.since or 0, self.inherited[0]
        # Inherited rows are all transitions before the start, or an even sample of them.
        before = inherited + since - self.start if since >= self.start else round(inherited * since / self.start)
        replay.forget(before, watch.settings.old, self.sac.batch_size)
        self.collected, watch.fresh = watch.collected, False

    def observe(self, skill: int, step: int, sigma: np.ndarray) -> None:
        """Show the objective, and the test of convergence, the state that a step led to."""
        self.objective.observe(skill, sigma)
        if self.settling:
            self.settling.observe(step, sigma)

    def agent_of(self, skill: int) -> int:
        return skill if len(self.agents) > 1 else 0

    def latent(self, skill: int, episode: int) -> np.ndarray:
        """Return z of the skill that acts in an episode."""
        if self.prior is not None:
            return self.prior.of_episode(self.seed, episode)
        return self.latents[skill if self.latents.shape[1] else 0].cpu().numpy()

    def known_by(self, skill: int, latent: np.ndarray) -> float | np.ndarray:
        """Return the label of a skill in the replay: its number, or z."""
        return skill if self.prior is None else latent

    def seen(self, obs: np.ndarray, info: Mapping[str, Any]) -> np.ndarray:
        """Return what the agent and the replay see of a state."""
        raw = shown(self.meta, obs, info)
        return raw if self.normaliser is None else self.normaliser(raw)

    def skills(self) -> Skills:
        """Return the skills as they are now. They act on raw observations."""
        which = [self.agent_of(skill) for skill in range(len(self.latents))]
        skills = gather([agent.actor for agent in self.agents], torch.tensor(which), self.latents.cpu(), self.meta)
        return skills if self.normaliser is None else self.normaliser.fold(skills)

    def draw(self, agent: int) -> Batch:
        """Draw a batch from one agent's replay."""
        return self.replays[agent].sample(self.sac.batch_size, self.agents[agent].generator, self.own)

    def sample(self, agent: int) -> Batch:
        """Draw a batch, with σ as objectives see it. Before the first one φ is learned, and frozen."""
        if self.projection and not self.projection.learned:
            self.projection.learn(partial(self.draw, agent))
        return self.projected(self.draw(agent))

    def projected(self, batch: Batch) -> Batch:
        """Project what a batch holds in place of σ, where σ is learned."""
        if self.projection:
            batch.sigma = self.projection(batch.sigma)
        return batch

    def sample_all(self, drawn: Batch, agent: int) -> Batch:
        """Return a batch of all skills: `drawn` for a shared policy, else as many transitions of each skill."""
        if len(self.replays) == 1:
            return drawn
        filled = [replay for replay in self.replays if len(replay)]
        share = -(-self.sac.batch_size // len(filled))
        parts = [replay.sample(share, self.agents[agent].generator).rows for replay in filled]
        return self.projected(Batch(torch.cat(parts), drawn.columns))

    def relabelled(self, batch: Batch) -> Batch:
        """Give a share of a batch's transitions other latents than those they were taken under."""
        if self.relabel is None or self.prior is None:
            return batch
        generator, count = self.agents[0].generator, len(batch.rows)
        others = torch.rand(count, 1, generator=generator, device=generator.device) < self.relabel
        latents = torch.where(others, self.prior.draw(count, generator), batch.label)
        rows = batch.rows.clone()
        rows[:, batch.columns.parts["label"]] = latents
        return Batch(rows, batch.columns)

    def as_seen(self, batch: Batch) -> Batch:
        """Return a batch as the policy sees it: a shared policy is told the skill."""
        if self.prior is not None:
            return batch.given(batch.label)
        return batch.given(self.latents[batch.label[:, 0].long()]) if self.latents.shape[1] else batch
