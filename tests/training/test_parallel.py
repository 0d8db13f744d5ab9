"""The parallel ablation: everybody's 𝒯 is what the others do at the moment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, tiny_config

from disk import config as configuration
from disk.errors import ConfigError
from disk.learning.build import joint_parts
from disk.learning.objectives.parallel import ParallelObjective
from disk.learning.replay import Batch
from disk.storage.replay import Columns

COLUMNS = Columns(obs=1, action=1, sigma=1, label=1)


def objective(skills: int = 3, **changes: Any) -> ParallelObjective:
    settings = tiny_config({"disk": {"recent_states": 4, "neighbours": 1, "anneal": "none", **changes}}).disk
    return ParallelObjective(settings, 1, skills, torch.Generator().manual_seed(0), CPU)


def seen(found: ParallelObjective, **states: list[float]) -> None:
    for name, values in states.items():
        for value in values:
            found.observe(int(name[1:]), np.array([value]))


def batch(skill: int, sigma: list[float]) -> Batch:
    rows = torch.zeros(len(sigma), COLUMNS.width)
    rows[:, COLUMNS.parts["sigma"]] = torch.tensor(sigma)[:, None]
    rows[:, COLUMNS.parts["label"]] = skill
    return Batch(rows, COLUMNS)


def test_the_past_of_a_policy_is_the_union_of_the_others_buffers():
    found = objective()
    seen(found, s0=[1.0, 2.0], s1=[10.0, 11.0, 12.0, 13.0, 14.0, 15.0], s2=[20.0])
    assert sorted(found.others(0)[:, 0].tolist()) == [12.0, 13.0, 14.0, 15.0, 20.0], "BUF holds the newest four"
    assert sorted(found.others(1)[:, 0].tolist()) == [1.0, 2.0, 20.0]
    assert sorted(found.others(2)[:, 0].tolist()) == [1.0, 2.0, 12.0, 13.0, 14.0, 15.0]


def test_the_reward_by_hand():
    """r = r_d / mean r_d - r_c / mean r_c, with the running means of this policy's own batches."""
    found = objective(skills=2)
    seen(found, s0=[0.0], s1=[10.0])
    first = found.reward(batch(0, [1.0, 3.0]), 0.0)[0]  # r_c 1, 3 and r_d 9, 7
    assert first.tolist() == pytest.approx([9 / 8 - 1 / 2, 7 / 8 - 3 / 2])
    second, terms = found.reward(batch(0, [4.0, 4.0]), 0.0)  # r_c 4, r_d 6: means (2 + 4)/2 and (8 + 6)/2
    assert second.tolist() == pytest.approx([6 / 7 - 4 / 3] * 2)
    assert [float(terms["reward/consistency"]), float(terms["reward/diversity"])] == pytest.approx([4.0, 6.0])
    other = found.reward(batch(1, [9.0]), 0.0)[0]  # its own means: r_c 1, r_d 9
    assert other.tolist() == pytest.approx([0.0])


def test_alpha_is_annealed_over_the_run_and_weighted():
    rewards = {}
    for anneal, progress in (("tanh", 0.0), ("tanh", 1.0), ("none", 0.0)):
        found = objective(skills=2, anneal=anneal, alpha=2.0, beta=3.0)
        seen(found, s0=[0.0], s1=[10.0])
        rewards[anneal, progress] = float(found.reward(batch(0, [1.0]), progress)[0])
    assert rewards["none", 0.0] == pytest.approx(3.0 - 2.0)
    assert rewards["tanh", 0.0] == pytest.approx(3.0 - 2.0 * 0.5 * (1 + math.tanh(-4)))
    assert rewards["tanh", 1.0] == pytest.approx(3.0 - 2.0 * 0.5 * (1 + math.tanh(4)))


def test_it_goes_on_from_its_state():
    one, other = objective(), objective()
    seen(one, s0=[1.0, 2.0], s1=[3.0], s2=[5.0, 8.0])
    one.reward(batch(1, [0.5, 0.7]), 0.5)
    other.load_state({name: value.clone() for name, value in one.state().items()})
    for found in (one, other):
        seen(found, s1=[7.0])
    assert torch.equal(one.reward(batch(2, [0.1, 9.0]), 0.5)[0], other.reward(batch(2, [0.1, 9.0]), 0.5)[0])


def test_the_row_has_as_many_worlds_as_skills_and_the_schedules_steps():
    paper = configuration.load()
    job = paper.joint_job("ant", "disk_parallel", 0)
    assert [job.skills, job.steps, job.schedule, job.policies] == [10, 5_000_000, "round_robin", "independent"]
    parts = joint_parts(tiny_config().joint_job("point", "disk_parallel", 0), CPU)
    assert isinstance(parts.objective, ParallelObjective)
    assert [len(parts.envs), len(parts.agents), len(parts.replays)] == [3, 3, 3]


@pytest.mark.parametrize("change", [{"skills": {"point": 1}}, {"sac": {"seed_steps": 0}}])
def test_nobody_to_be_far_from_is_refused(change: dict[str, Any]):
    config = tiny_config({"methods": {"disk_parallel": change}})
    with pytest.raises(ConfigError, match="others to be far from"):
        config.joint_job("point", "disk_parallel", 0)
