"""The training loop: Algorithm 1 of the paper, and the same for skills that are learned together.

One pass of the loop is one environment step: act, step, remember, and then update as often as the settings say. An
update labels a replay batch with the objective's reward and improves the agent on it. `disk.learning.build` makes the
parts, `disk.learning.training` saves and restores them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from disk.config import Sac
from disk.errors import Interrupted, must_be_finite
from disk.learning.episodes import Episode
from disk.learning.parts import Parts
from disk.learning.training import Training


def train(training: Training, asked_to_stop: Callable[[], int]) -> None:
    """Train until the budget is used. `asked_to_stop` returns the number of a signal that asked for it, or 0."""
    parts, progress = training.parts, training.progress
    while training.step < parts.steps:
        step = training.step
        episode = training.episodes[step % len(training.episodes)]  # environments take turns, a step each
        env = episode.env
        env.at(parts.start + step)  # a changing world is a function of the global step
        before = episode.obs if episode.obs is not None else episode.begin(parts, step)
        index = parts.agent_of(episode.skill)
        agent, replay, objective = parts.agents[index], parts.replays[index], parts.objective
        taken = replay.added - parts.inherited[index]  # steps of this policy

        action, origin = act(parts, episode, before, index, taken)
        if not np.isfinite(action).all():
            progress.check()  # a loss that went wrong earlier says more
            must_be_finite("action", action, step)
        obs, _, terminated, truncated, info = env.step(env.to_native(action))
        next_obs, sigma = parts.seen(obs, info), info["sigma"]
        must_be_finite("observation", next_obs, step)
        must_be_finite("sigma", sigma, step)
        label = parts.known_by(episode.skill, episode.latent)
        replay.add(before, action, next_obs, terminated, sigma, label, origin, episode.sigma)
        episode.advance(next_obs, sigma)
        parts.observe(episode.skill, step, sigma)
        progress.observe(info.get("velocity", sigma))  # a learned σ is no speed

        metrics: dict[str, Tensor] = {}
        for of_model, of_policy in updates_after(taken, parts.sac):
            if of_policy and agent.updates == 0:
                objective.start(partial(parts.sample, index))
            batch = parts.sample(index)
            if of_model:
                metrics |= parts.improve_model(batch, index)
            if of_policy:
                batch = parts.relabelled(batch)
                reward, terms = parts.reward(batch, step)
                metrics |= terms
                metrics |= agent.update(parts.as_seen(batch), reward)
                progress.update(step, metrics)
                if parts.settling:
                    parts.settling.see(step, terms)

        training.step += 1
        if training.step in parts.snapshots:
            training.take_snapshot()
        if terminated or truncated or training.step == parts.steps:
            training.end_skill_if_settled()
            training.end(episode)
            stop = asked_to_stop()
            training.save_if_due(now=bool(stop) or training.step == parts.steps)
            if stop:
                raise Interrupted(stop, training.checkpoint.directory, training.step)
    progress.close()


def act(
    parts: Parts, episode: Episode, obs: np.ndarray, index: int, taken: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return an action in [-1, 1] and, for objectives that ask, how likely it was and how it came about."""
    agent = parts.agents[index]
    if taken < parts.sac.seed_steps and parts.sac.seed_actions is None:
        drawn = torch.rand(episode.env.action_size, generator=agent.generator, device=agent.device)
        return (2.0 * drawn - 1.0).cpu().numpy(), None
    seen = np.concatenate((obs, episode.latent))
    if parts.replays[0].columns.origin:
        return agent.act_on_record(seen)
    return agent.act(seen), None


def updates_after(taken: int, sac: Sac) -> list[tuple[bool, bool]]:
    """Return the updates after a policy's step, counted from 0: of the objective's model, of the policy, or both."""
    bout = sac.iteration
    if taken < sac.seed_steps:
        return []
    if bout is None:
        ratio = sac.updates_per_step
        return [(True, True)] * (math.floor((taken + 1) * ratio) - math.floor(taken * ratio))
    if (taken + 1 - sac.seed_steps) % bout.steps:
        return []
    return [(True, False)] * bout.model_updates + [(False, True)] * bout.policy_updates
