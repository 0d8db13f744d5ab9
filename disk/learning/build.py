"""Build the parts of a training: of one skill of a chain, or of skills that are learned together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disk.config import Incremental, JointJob, SkillJob
from disk.config.objectives import name_of
from disk.envs import Projected, make
from disk.evaluation.rollout import visits
from disk.learning.artefacts import describe, read_visits
from disk.learning.awareness import Watch
from disk.learning.convergence import Settling, Spending, cap_of
from disk.learning.normaliser import Normaliser, prepare
from disk.learning.normaliser import read as read_normaliser
from disk.learning.objectives import Objective, Setting, kinds
from disk.learning.objectives.diayn import DiaynObjective
from disk.learning.objectives.incremental import IncrementalObjective, Paid, farthest, inverse_mean
from disk.learning.objectives.parallel import ParallelObjective
from disk.learning.parts import Parts
from disk.learning.projection import LearnedProjection
from disk.learning.replay import Replay, inherit
from disk.learning.sac import SAC
from disk.learning.schedules import GrowingSkills, One, Prior, RoundRobin, Schedule, Uniform
from disk.seeds import EpisodeSeeds, seed_of
from disk.skills import bundle, load
from disk.storage.layout import POLICY, REPLAY
from disk.storage.manifest import read_stats
from disk.storage.replay import Columns


def skill_parts(job: SkillJob, earlier: Sequence[Path], device: torch.device) -> Parts:
    """Build the next skill of a chain, after the `earlier` ones."""
    env = make(job.world, job.start_step or 0)
    watch = None if job.aware is None else Watch(job, earlier, env.sigma_size)
    start = watch.start if watch else job.start_step or 0
    seen = env.sigma_size if job.sac.critic_sees else 0
    columns = Columns(env.observation_size, env.action_size, env.sigma_size, sigma_before=seen)
    agent = _agent(job, columns, 0, job.skill, device)
    meta = {**describe(env, job), "skill": job.skill}
    normaliser = _normaliser(job, earlier, meta)
    projection = _projection(job, columns.sigma, device, job.skill)
    objective, collected = _incremental(job, earlier, env, agent.generator, device, projection, watch)
    if job.warm is not None:
        model = load(_model_skill(job, earlier, objective.past) / POLICY).actor.state_dict()
        agent.actor.load_state_dict(model if normaliser is None else normaliser.unfolded(model))
    stats = [read_stats(folder) for folder in earlier] if job.budget else []
    steps = (
        cap_of(job.budget, job.steps, job.planned or 0, [each["steps"] for each in stats]) if job.budget else job.steps
    )
    steps = watch.steps if watch else steps
    replay = _replay(job, earlier, steps, columns, agent.generator, device)

    def another(attempt: int) -> tuple[SAC, Objective]:
        learner = _agent(job, columns, 0, job.skill, device, attempt)
        return learner, _incremental(job, earlier, env, learner.generator, device, projection)[0]

    parts = Parts(
        label=f"{job.env} seed {job.seed} skill {job.skill:02d}",
        seed=job.seed,
        steps=steps,
        start=start,
        sac=job.sac,
        envs=[env, *(make(job.world, start) for _ in range(1, job.sac.environments or 1))],
        agents=[agent],
        replays=[replay],
        objective=objective,
        schedule=One(job.skill),
        meta=meta,
        latents=torch.zeros(1, 0, device=device),
        inherited=[replay.added],
        own=None if job.own_share is None else round(job.own_share * job.sac.batch_size),
        collected=collected,
        watch=watch,
        normaliser=normaliser,
        projection=projection,
        settling=None if job.adaptive is None else Settling(job.adaptive, job.steps, device),
        attempt=another,
    )
    if job.budget:
        others = [each["own_diversity"] for each in stats if each.get("own_diversity") is not None]
        parts.settling = Spending(job.budget, job.steps, steps, job.sac.seed_steps, others, partial(_own_terms, parts))
    return parts


def _own_terms(parts: Parts, sigma: Tensor) -> Tensor:
    """Return r_c and r_d (2, N) of states that the skill visits, under its current objective."""
    objective = parts.objective
    assert isinstance(objective, IncrementalObjective)
    sigma = sigma.to(parts.latents.device)
    sigma = sigma if parts.projection is None else parts.projection(sigma)
    consistency = objective.consistency(sigma)
    diversity = torch.zeros_like(consistency) if objective.past is None else objective.diversity(sigma)
    return torch.stack((consistency, diversity))


def _normaliser(job: SkillJob, earlier: Sequence[Path], meta: Mapping[str, Any]) -> Normaliser | None:
    """Return the chain's one normaliser. It is the first skill's: later ones inherit its transitions."""
    if job.normaliser is None:
        return None
    if earlier:
        return read_normaliser(read_stats(earlier[-1]), earlier[-1])
    return prepare(job.normaliser, job.world, job.seed, meta)


def _projection(
    job: SkillJob | JointJob, sigma_size: int, device: torch.device, *skill: int
) -> LearnedProjection | None:
    """Return φ, still to be learned, where σ is learned."""
    if job.projection is None:
        return None
    return LearnedProjection(job.projection, sigma_size // 2, seed_of("projection", job.seed, *skill), device)


def _incremental(
    job: SkillJob,
    earlier: Sequence[Path],
    env: Projected,
    generator: torch.Generator,
    device: torch.device,
    projection: LearnedProjection | None,
    watch: Watch | None = None,
) -> tuple[IncrementalObjective, int]:
    """Return the objective, with α and β from the skill before, and the steps that collecting 𝒯 took."""
    config, collected = job.objective, 0
    past: Tensor | None = None
    alpha, bonus = job.first_alpha or 0.0, job.alive_bonus or 0.0
    beta: float | None = 0.0
    paid: Paid | None = None
    if earlier:
        states, collected = (watch.past, 0) if watch else _past(job, earlier, env.sigma_size)
        past = torch.from_numpy(np.concatenate(states))
        before = read_stats(earlier[-1])
        alpha = config.alpha * inverse_mean(before["mean_consistency"], config.mean_floor)
        if config.normaliser == "running" or config.shape == "log":
            alpha, beta = config.alpha, config.beta
        elif config.normaliser == "released":
            paid = Paid(**before["paid"])
            of_consistency, of_diversity = paid.weights(config.mean_floor)
            alpha, beta = config.alpha * of_consistency, config.beta * of_diversity
        elif before["mean_diversity"] is not None:
            beta = config.beta * inverse_mean(before["mean_diversity"], config.mean_floor)
        else:
            beta = config.beta if config.second_beta == "one" else None  # None: measured at the first update
    sizes = config, env.sigma_size
    objective = IncrementalObjective(*sizes, past, alpha, beta, bonus, generator, device, paid, projection)
    return objective, collected


def _past(job: SkillJob, earlier: Sequence[Path], sigma_size: int) -> tuple[list[np.ndarray], int]:
    """Return 𝒯, states of each earlier skill: stored with it in a static world, collected now in a changing one."""
    if job.start_step is None:
        return [read_visits(folder, sigma_size) for folder in earlier], 0
    skills = bundle([folder / POLICY for folder in earlier])
    seeds = [EpisodeSeeds("visits", job.seed, job.skill, skill) for skill in range(len(earlier))]
    return visits(skills, job.world, job.objective.past_states, seeds, job.start_step)


def _model_skill(job: SkillJob, earlier: Sequence[Path], past: Tensor | None) -> Path:
    """Return the earlier skill whose policy a new one starts from. `past` are all their states, 𝒯."""
    if job.warm == "last":
        return earlier[-1]
    if job.warm == "recall" and past is not None:
        return earlier[farthest(list(past.view(len(earlier), -1, past.shape[1])), job.objective.neighbours)]
    return max(earlier, key=lambda folder: read_stats(folder)["mean_diversity"] or 0.0)


def _replay(
    job: SkillJob,
    earlier: Sequence[Path],
    steps: int,
    columns: Columns,
    generator: torch.Generator,
    device: torch.device,
) -> Replay:
    """Return a replay with room for `steps` more transitions, filled with the earlier skills'."""
    keep = job.replay_keep
    shards = [] if keep is None else [folder / REPLAY for folder in earlier]
    room = sum(read_stats(folder)["steps"] for folder in earlier) if shards else 0
    replay = Replay(min(job.replay_capacity, room + steps), columns, device)
    inherit(replay, shards, 1.0 if keep is None else keep, generator)
    return replay


def joint_parts(job: JointJob, device: torch.device) -> Parts:
    """Build skills that are learned together."""
    assert job.steps is not None
    assert job.objective is not None
    assert job.replay_capacity is not None
    env, shared, settings = make(job.world), job.policies == "shared", job.objective
    kind = kinds().get(name_of(settings))
    sigma_size = env.sigma_size if job.projection is None else job.projection.width  # as the objective sees it
    prior = kind.prior(settings, sigma_size) if kind and kind.prior else None
    meta = describe(env, job, _latent_size(job, prior), kind is not None and kind.sees_position)
    columns = Columns(
        obs=meta["observation_size"],
        action=env.action_size,
        sigma=env.sigma_size,
        label=1 if prior is None else prior.size,
        origin=env.action_size + 1 if kind and kind.weighs_actions else 0,
        sigma_before=env.sigma_size if job.sac.critic_sees else 0,
    )
    policies = range(1 if shared else job.skills)
    agents = [_agent(job, columns, meta["latent_size"], policy, device) for policy in policies]
    seed, projection = seed_of("objective", job.seed), _projection(job, columns.sigma, device)
    if isinstance(settings, Incremental):
        generator = torch.Generator(device).manual_seed(seed)
        objective: Objective = ParallelObjective(settings, columns.sigma, job.skills, generator, device, projection)
    else:
        assert kind is not None
        seen = replace(columns, sigma=sigma_size)
        objective = kind.make(settings, Setting(job, env, seen, agents, seed, device))
    schedule = _schedule(job, prior, objective)
    latents = torch.eye(job.skills) if shared else torch.zeros(job.skills, 0)
    return Parts(
        label=f"{job.env} seed {job.seed}, {job.skills} skills together",
        seed=job.seed,
        steps=job.steps,
        start=0,
        sac=job.sac,
        envs=[env, *(make(job.world) for _ in range(1, max(schedule.lanes, job.sac.environments or 1)))],
        agents=agents,
        replays=[Replay(min(job.replay_capacity, job.steps), columns, device) for _ in policies],
        objective=objective,
        schedule=schedule,
        meta=meta,
        latents=(latents if prior is None else prior.evaluated(job.skills)).to(device),
        inherited=[0 for _ in policies],
        prior=prior,
        snapshots=job.snapshots or [],
        normaliser=None if job.normaliser is None else prepare(job.normaliser, job.world, job.seed, meta),
        projection=projection,
        relabel=getattr(settings, "relabel", None),
    )


def _latent_size(job: JointJob, prior: Prior | None) -> int:
    if prior is not None:
        return prior.size
    return job.skills if job.policies == "shared" else 0


def _schedule(job: JointJob, prior: Prior | None, objective: Objective) -> Schedule:
    if prior is not None:
        return One(0)
    if job.schedule == "round_robin":
        return RoundRobin(job.skills)
    if job.curriculum is not None and isinstance(objective, DiaynObjective):
        return GrowingSkills(job.curriculum, job.seed, job.skills, objective)
    return Uniform(job.seed, job.skills)


def _agent(
    job: SkillJob | JointJob, columns: Columns, latent: int, policy: int, device: torch.device, *attempt: int
) -> SAC:
    """Return a learner with its own random stream, which its initial weights come from too."""
    generator = torch.Generator(device).manual_seed(seed_of("learner", job.seed, policy, *attempt))
    return SAC(columns.obs + latent, columns.action, job.sac, generator, device, columns.sigma_before)


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
