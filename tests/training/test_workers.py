"""Rollouts by several processes: the same numbers, and what is said when one of them fails."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from conftest import HOOKED, tiny_config

from disk.config import Config, load
from disk.errors import DiskError
from disk.evaluation import rollout as rollouts
from disk.evaluation.rollout import Trajectory, rollout
from disk.evaluation.workers import rollout_with
from disk.networks import Actor
from disk.skills import Skills


def untrained(config: Config, env: str, skills: int) -> Skills:
    """Random policies that differ enough for their paths to."""
    from disk.envs import make

    world = make(config.environment(env).world())
    hidden, bounds = [16, 16], [-5.0, 2.0]
    actor = Actor(world.observation_size, world.action_size, hidden, bounds, skills).requires_grad_(False)
    meta: dict[str, Any] = {"observation_size": world.observation_size, "latent_size": 0, "hidden": hidden}
    meta |= {"action_size": world.action_size, "log_std_bounds": bounds, "env": env}
    return Skills(actor, torch.arange(skills), torch.zeros(skills, 0), meta)


def same(ours: list[list[Trajectory]], theirs: list[list[Trajectory]]) -> bool:
    pairs = [(a, b) for own, other in zip(ours, theirs, strict=True) for a, b in zip(own, other, strict=True)]
    return all(np.array_equal(a.position, b.position) and np.array_equal(a.sigma, b.sigma) for a, b in pairs)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 40])
def test_the_numbers_do_not_depend_on_the_number_of_processes(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ants that fall at different times, in groups smaller than the batch."""
    monkeypatch.setattr(rollouts, "LANES", 6)
    config = load()
    skills, world = untrained(config, "ant", 5), config.environment("ant").world()
    seeds = [[10 * skill + episode for episode in range(3)] for skill in range(5)]
    expected = rollout(skills, world, 40, seeds)
    assert same(rollout_with(workers, skills, world, 40, seeds), expected)
    (alone,) = rollout(skills.pick([4]), world, 40, seeds[4:])
    for one, other in zip(alone, expected[4], strict=True):
        assert one.position == pytest.approx(other.position, abs=1e-2)  # the same episode, but for the last bits


def test_each_skill_has_its_own_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts, "LANES", 4)
    config = load()
    skills, world = untrained(config, "point_broken", 3), config.environment("point_broken").world()
    seeds, steps = [[1, 2]] * 3, [0, 9_000, 30_000]
    expected = rollout(skills, world, 20, seeds, steps)
    assert same(rollout_with(2, skills, world, 20, seeds, steps), expected)
    assert not same(rollout_with(2, skills, world, 20, seeds, 0), expected)


def test_an_error_in_a_process_is_the_callers(hooked: Any) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("the world broke")

    config = tiny_config(HOOKED)
    skills, world = untrained(config, "point", 2), config.environment("point").world()
    hooked.on_step = lambda step, result: fail() if step > 30 else result
    with pytest.raises(ValueError, match="the world broke"):
        rollout_with(2, skills, world, 25, [[1, 2]] * 2)


def test_a_process_that_is_killed_is_owned_up_to(hooked: Any) -> None:
    config = tiny_config(HOOKED)
    skills, world = untrained(config, "point", 2), config.environment("point").world()
    parent = os.getpid()
    hooked.on_step = lambda step, result: os._exit(1) if step > 30 and os.getpid() != parent else result
    with pytest.raises(DiskError, match=r"one of 2 rollout processes .* evaluation\.threads"):
        rollout_with(2, skills, world, 25, [[1, 2]] * 2)
