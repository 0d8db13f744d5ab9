"""DIAYN's reward and discriminator: by hand, by their bounds, and on skills that can be told apart."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from conftest import CPU, tiny_config
from hypothesis import given
from hypothesis import strategies as st

from disk.learning.objectives.diayn import DiaynObjective
from disk.learning.replay import Batch
from disk.storage.replay import Columns

COLUMNS = Columns(obs=3, action=2, sigma=2, label=1)
SKILLS = 4


def objective(**changes: Any) -> DiaynObjective:
    settings = tiny_config({"diayn": {"hidden": [8], "learning_rate": 0.02, **changes}}).diayn
    return DiaynObjective(settings, COLUMNS, SKILLS, seed=1, device=CPU)


def batch(skills: list[int], sigma: torch.Tensor | None = None) -> Batch:
    rows = torch.randn(len(skills), COLUMNS.width)
    if sigma is not None:
        rows[:, COLUMNS.parts["sigma"]] = sigma
    rows[:, COLUMNS.parts["label"]] = torch.tensor(skills, dtype=torch.float32)[:, None]
    return Batch(rows, COLUMNS)


def set_logits(found: DiaynObjective, logits: list[float]) -> None:
    """A discriminator that says the same of every state."""
    with torch.no_grad():
        for weight in found.discriminator.weights:
            weight.zero_()
        found.discriminator.biases[-1].copy_(torch.tensor(logits)[None, None])


def test_the_reward_by_hand():
    found = objective()
    set_logits(found, [0.0, math.log(2.0), math.log(3.0), math.log(4.0)])  # probabilities 0.1, 0.2, 0.3, 0.4
    reward, metrics = found.reward(batch([0, 1, 2, 3]), progress=0.0)
    expected = [math.log(p) - math.log(1 / 4) for p in (0.1, 0.2, 0.3, 0.4)]
    assert reward.tolist() == pytest.approx(expected, rel=1e-5)
    assert float(metrics["reward/mean"]) == pytest.approx(sum(expected) / 4, rel=1e-4)
    assert found.certainty(batch([0, 0, 3, 3])) == pytest.approx(0.25)


def test_the_loss_of_the_discriminator_by_hand():
    """-(ln 0.1 + ln 0.2 + ln 0.3 + ln 0.4) / 4 = 1.508072; it guesses the last skill, which is right once in four."""
    found = objective()
    set_logits(found, [0.0, math.log(2.0), math.log(3.0), math.log(4.0)])
    metrics = found.update(lambda: batch([0, 1, 2, 3]))
    assert float(metrics["train/discriminator_loss"]) == pytest.approx(1.508072, abs=1e-5)
    assert float(metrics["train/discriminator_accuracy"]) == 0.25


def test_a_discriminator_that_knows_nothing_pays_nothing():
    found = objective()
    set_logits(found, [5.0] * SKILLS)
    assert found.reward(batch([0, 1, 2, 3]), progress=0.5)[0].abs().max() < 1e-6


def test_perfect_discrimination_pays_the_logarithm_of_the_number_of_skills():
    found = objective()
    set_logits(found, [0.0, 0.0, 200.0, 0.0])
    assert found.reward(batch([2, 2]), progress=0.0)[0].tolist() == pytest.approx([math.log(SKILLS)] * 2)
    found.skills_in_play = 2  # a curriculum's
    assert found.reward(batch([2]), progress=0.0)[0].tolist() == pytest.approx([math.log(2)])


@given(st.lists(st.integers(0, SKILLS - 1), min_size=1, max_size=20), st.floats(0.1, 50.0))
def test_the_reward_never_exceeds_the_logarithm_of_the_number_of_skills(skills: list[int], scale: float):
    found = objective()
    with torch.no_grad():
        found.discriminator.weights[-1].mul_(scale)
    reward, _ = found.reward(batch(skills), progress=0.0)
    assert reward.shape == (len(skills),)
    assert torch.isfinite(reward).all()
    assert float(reward.max()) <= math.log(SKILLS) + 1e-5


def test_it_sees_the_next_observation_and_sigma_or_sigma_alone():
    for sees, parts in (("observation_and_sigma", {"next_obs", "sigma"}), ("sigma", {"sigma"})):
        found, one = objective(sees=sees), batch([0, 1, 2, 3])
        reward = found.reward(one, progress=0.0)[0]
        for part in ("obs", "action", "next_obs", "sigma", "terminated"):
            rows = one.rows.clone()
            rows[:, COLUMNS.parts[part]] += 1.0
            changed = not torch.equal(found.reward(Batch(rows, COLUMNS), progress=0.0)[0], reward)
            assert changed == (part in parts), f"{sees}: {part}"


@pytest.mark.parametrize("sees", ["observation_and_sigma", "sigma"])
def test_skills_that_differ_are_told_apart_and_skills_that_do_not_are_not(sees: str):
    corners = 3.0 * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    apart, alike = objective(sees=sees), objective(sees=sees)
    for _ in range(300):
        skills = torch.randint(SKILLS, (64,))
        told = apart.update(lambda: batch(skills.tolist(), corners[skills] + 0.1 * torch.randn(64, 2)))  # noqa: B023
        guessed = alike.update(lambda: batch(skills.tolist()))  # noqa: B023
    assert float(told["train/discriminator_accuracy"]) > 0.95
    assert float(guessed["train/discriminator_accuracy"]) < 0.6
    skills = torch.arange(SKILLS).repeat(50)
    reward, _ = apart.reward(batch(skills.tolist(), corners[skills]), progress=0.0)
    assert float(reward.mean()) > 0.9 * math.log(SKILLS)
    assert float(alike.reward(batch(skills.tolist()), progress=0.0)[0].mean()) < 0.1


def test_it_goes_on_from_its_state():
    one, other = objective(), objective()
    batches = [batch([0, 1, 2, 3, 3]) for _ in range(6)]
    for each in batches[:3]:
        one.update(lambda: each)  # noqa: B023
    other.load_state({name: value.clone() for name, value in one.state().items()})
    for each in batches[3:]:
        for found in (one, other):
            found.update(lambda: each)  # noqa: B023
    assert torch.equal(one.reward(batches[0], 0.0)[0], other.reward(batches[0], 0.0)[0])
    assert all(torch.equal(value, other.state()[name]) for name, value in one.state().items())
