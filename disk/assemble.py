"""What a training is put together from: the parts of one skill of a chain, and those of skills learned together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.artefacts import describe, read_stats, read_visits
from disk.config import JointJob, Sac, SkillJob
from disk.envs import Projected, make
from disk.objectives import Objective
from disk.objectives.diayn import DiaynObjective
from disk.objectives.incremental import IncrementalObjective, inverse_mean
from disk.replay import Batch, Columns, Replay, inherit
from disk.rollout import visits
from disk.sac import SAC
from disk.schedules import GrowingSkills, One, RoundRobin, Schedule, Uniform
from disk.seeds import EpisodeSeeds, seed_of
from disk.skills import Skills, bundle, gather


@dataclass
class Parts:
    """All that the loop works with."""

    label: str
    seed: int
    steps: int
    start: int
    """The global step that the first step is."""
    sac: Sac
    envs: list[Projected]
    """One for each of the schedule's lanes."""
    agents: list[SAC]
    """One, or one for each skill."""
    replays: list[Replay]
    """One for each agent."""
    objective: Objective
    schedule: Schedule
    meta: dict[str, Any]
    """What its file of skills says of itself."""
    latents: Tensor
    """z of each skill (N, L), with L = 0 where every skill has a network of its own."""
    inherited: list[int] = field(default_factory=lambda: [0])
    """Rows that each replay began with."""
    snapshots: list[int] = field(default_factory=list)
    collected: int = 0
    """Steps outside the budget, for 𝒯."""

    def agent_of(self, skill: int) -> int:
        return skill if len(self.agents) > 1 else 0

    def skills(self) -> Skills:
        """The skills as they are now."""
        which = [self.agent_of(skill) for skill in range(len(self.latents))]
        return gather([agent.actor for agent in self.agents], torch.tensor(which), self.latents.cpu(), self.meta)

    def sample(self, agent: int) -> Batch:
        """A batch from one agent's replay."""
        return self.replays[agent].sample(self.sac.batch_size, self.agents[agent].generator)

    def sample_all(self, drawn: Batch, agent: int) -> Batch:
        """A batch of all skills: the one that was `drawn` for a shared policy, else as many from each skill."""
        if len(self.replays) == 1:
            return drawn
        filled = [replay for replay in self.replays if len(replay)]
        share = -(-self.sac.batch_size // len(filled))
        parts = [replay.sample(share, self.agents[agent].generator).rows for replay in filled]
        return Batch(torch.cat(parts), drawn.columns)

    def as_seen(self, batch: Batch) -> Batch:
        """A batch as the policy sees it: a shared one is told the skill."""
        return batch.given(self.latents[batch.label[:, 0].long()]) if self.latents.shape[1] else batch


def skill_parts(job: SkillJob, earlier: Sequence[Path], device: torch.device) -> Parts:
    """DISk's next skill, after the `earlier` ones."""
    start = job.start_step or 0
    env = make(job.world, start)
    columns = Columns(env.observation_size, env.action_size, env.sigma_size)
    agent = _agent(job, columns.obs, columns.action, job.skill, device)
    objective, collected = _incremental(job, earlier, env, agent.generator, device)
    replay = _replay(job, earlier, columns, agent.generator, device)
    return Parts(
        label=f"{job.env} seed {job.seed} skill {job.skill:02d}",
        seed=job.seed,
        steps=job.steps,
        start=start,
        sac=job.sac,
        envs=[env],
        agents=[agent],
        replays=[replay],
        objective=objective,
        schedule=One(job.skill),
        meta={**describe(env, job), "skill": job.skill},
        latents=torch.zeros(1, 0, device=device),
        inherited=[replay.added],
        collected=collected,
    )


def _incremental(
    job: SkillJob, earlier: Sequence[Path], env: Projected, generator: torch.Generator, device: torch.device
) -> tuple[IncrementalObjective, int]:
    """The objective, with α and β from the skill before; and the steps that 𝒯 took."""
    config, collected = job.objective, 0
    past: Tensor | None = None
    alpha, bonus = job.first_alpha or 0.0, job.alive_bonus or 0.0
    beta: float | None = 0.0
    if earlier:
        states, collected = _past(job, earlier, env.sigma_size)
        past = torch.from_numpy(np.concatenate(states))
        before = read_stats(earlier[-1])
        alpha = config.alpha * inverse_mean(before["mean_consistency"], config.mean_floor)
        if before["mean_diversity"] is not None:
            beta = config.beta * inverse_mean(before["mean_diversity"], config.mean_floor)
        else:
            beta = config.beta if config.second_beta == "one" else None  # None: measured at the first update
    objective = IncrementalObjective(config, env.sigma_size, past, alpha, beta, bonus, generator, device)
    return objective, collected


def _past(job: SkillJob, earlier: Sequence[Path], sigma_size: int) -> tuple[list[np.ndarray], int]:
    """𝒯: states of each earlier skill. Stored with the skill where the world stands still, else seen anew."""
    if job.start_step is None:
        return [read_visits(folder, sigma_size) for folder in earlier], 0
    skills = bundle([folder / "policy.safetensors" for folder in earlier])
    seeds = [EpisodeSeeds("visits", job.seed, job.skill, skill) for skill in range(len(earlier))]
    return visits(skills, job.world, job.objective.past_states, seeds, job.start_step)


def _replay(
    job: SkillJob, earlier: Sequence[Path], columns: Columns, generator: torch.Generator, device: torch.device
) -> Replay:
    keep = job.replay_keep
    shards = [] if keep is None else [folder / "replay.safetensors" for folder in earlier]
    room = sum(read_stats(folder)["steps"] for folder in earlier) if shards else 0
    replay = Replay(min(job.replay_capacity, room + job.steps), columns, device)
    inherit(replay, shards, 1.0 if keep is None else keep, generator)
    return replay


def joint_parts(job: JointJob, device: torch.device) -> Parts:
    """Skills that are learned together."""
    if job.steps is None or job.objective is None or job.replay_capacity is None:
        raise ValueError("this job learns nothing")
    env = make(job.world)
    columns = Columns(env.observation_size, env.action_size, env.sigma_size, label=1)
    objective = DiaynObjective(job.objective, columns, job.skills, seed_of("objective", job.seed), device)
    schedule: Schedule = Uniform(job.seed, job.skills)
    if job.schedule == "round_robin":
        schedule = RoundRobin(job.skills)
    elif job.curriculum is not None:
        schedule = GrowingSkills(job.curriculum, job.seed, job.skills, objective)
    shared = job.policies == "shared"
    latents = torch.eye(job.skills) if shared else torch.zeros(job.skills, 0)
    policies = range(1 if shared else job.skills)
    capacity = min(job.replay_capacity, job.steps)
    return Parts(
        label=f"{job.env} seed {job.seed}, {job.skills} skills together",
        seed=job.seed,
        steps=job.steps,
        start=0,
        sac=job.sac,
        envs=[env, *(make(job.world) for _ in range(schedule.lanes - 1))],
        agents=[_agent(job, columns.obs + latents.shape[1], columns.action, policy, device) for policy in policies],
        replays=[Replay(capacity, columns, device) for _ in policies],
        objective=objective,
        schedule=schedule,
        meta=describe(env, job, latents.shape[1]),
        latents=latents.to(device),
        inherited=[0 for _ in policies],
        snapshots=job.snapshots or [],
    )


def _agent(job: SkillJob | JointJob, inputs: int, actions: int, policy: int, device: torch.device) -> SAC:
    """A learner with a random stream of its own, from which its first weights come too."""
    generator = torch.Generator(device).manual_seed(seed_of("learner", job.seed, policy))
    return SAC(inputs, actions, job.sac, generator, device)


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
