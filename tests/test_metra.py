"""METRA's reward and φ: by hand, under its constraint, and with positions in what its skills see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, tiny_config

from disk.config import Config
from disk.envs import make
from disk.evaluation.rollout import rollout
from disk.learning.build import joint_parts
from disk.learning.loop import learn_jointly
from disk.learning.objectives.metra import MetraObjective
from disk.learning.replay import Batch, Columns
from disk.skills import load

COLUMNS = Columns(obs=4, action=2, sigma=2, label=2)
SMALL = {"hidden": [16], "learning_rate": 0.003}


def objective(**changes: Any) -> MetraObjective:
    settings = tiny_config({"metra": {**SMALL, **changes}}).metra
    return MetraObjective(settings, COLUMNS, seed=1, device=CPU)


def batch(obs: torch.Tensor, next_obs: torch.Tensor, latent: torch.Tensor) -> Batch:
    rows = torch.randn(len(obs), COLUMNS.width)
    for name, value in (("obs", obs), ("next_obs", next_obs), ("label", latent)):
        rows[:, COLUMNS.parts[name]] = value
    return Batch(rows, COLUMNS)


def steps(count: int, length: float = 0.3) -> Batch:
    """Transitions of skills that move along their own direction of the plane."""
    angle = 2.0 * torch.pi * torch.rand(count)
    latent = torch.stack((angle.cos(), angle.sin()), dim=1)
    obs = torch.cat((torch.randn(count, 2), 3.0 * torch.randn(count, 2)), dim=1)
    moved = torch.cat((0.2 * torch.randn(count, 2), length * latent), dim=1)
    return batch(obs, obs + moved, latent)


def test_the_reward_by_hand():
    """φ of the last two numbers alone, doubled: r = 2 (Δ₃ z₁ + Δ₄ z₂)."""
    found = objective(hidden=[])
    with torch.no_grad():
        found.encoder.weights[0].copy_(torch.tensor([[[0.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]]))
    obs = torch.tensor([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]])
    next_obs = torch.tensor([[9.0, 9.0, 3.5, 4.25], [0.0, 0.0, 0.0, -1.0]])
    given = batch(obs, next_obs, torch.tensor([[0.6, 0.8], [0.0, 1.0]]))
    reward, metrics = found.reward(given, progress=0.0)
    assert reward.tolist() == pytest.approx([2 * (0.5 * 0.6 + 0.25 * 0.8), -2.0])
    assert float(metrics["reward/mean"]) == pytest.approx((1.0 - 2.0) / 2)


def test_the_dual_variable_grows_while_steps_are_too_long_and_shrinks_while_they_are_short():
    for factor, grows in ((100.0, True), (0.001, False)):
        found = objective(dual=30.0)
        with torch.no_grad():
            found.encoder.weights[-1].mul_(factor)
        after = float(found.update(lambda: steps(64))["train/dual"])
        assert (after > 30.0) == grows
        assert after != 30.0


def test_the_constraint_holds_on_average_after_training_and_the_space_is_used():
    found = objective()
    for _ in range(3000):
        found.update(lambda: steps(64))
    given = steps(2000)
    length = found.moved(given).square().sum(1).mean().item()
    assert 0.3 < length < 1.1
    reward = found.reward(given, 0.0)[0]
    assert float(reward.mean()) > 0.5, "φ looks at where the skills go"
    opposite = batch(given.obs, 2 * given.obs - given.next_obs, given.label)
    assert float(found.reward(opposite, 0.0)[0].mean()) < -0.3


def test_it_goes_on_from_its_state():
    one, other = objective(), objective()
    batches = [steps(16) for _ in range(6)]
    for each in batches[:3]:
        one.update(lambda: each)  # noqa: B023
    other.load_state({name: value.clone() for name, value in one.state().items()})
    for each in batches[3:]:
        for found in (one, other):
            found.update(lambda: each)  # noqa: B023
    assert torch.equal(one.reward(batches[0], 0.0)[0], other.reward(batches[0], 0.0)[0])
    assert all(torch.equal(value, other.state()[name]) for name, value in one.state().items())


# ---------------------------------------------------------------- the row


def config_of() -> Config:
    return tiny_config({"metra": SMALL})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out, config = tmp_path_factory.mktemp("metra"), config_of()
    learn_jointly(config.joint_job("point", "metra", 0), out, config.runtime)
    return out


def test_latents_are_on_the_unit_sphere_and_constant_in_an_episode():
    parts = joint_parts(config_of().joint_job("point", "metra", 0), CPU)
    drawn = np.stack([parts.latent(0, episode) for episode in range(500)])
    assert np.linalg.norm(drawn, axis=1) == pytest.approx(np.ones(500), abs=1e-6)
    assert np.abs(drawn.mean(0)).max() < 0.15
    assert np.array_equal(parts.latent(0, 7), drawn[7])
    assert parts.latents.norm(dim=1).tolist() == pytest.approx([1.0] * 3, abs=1e-6)


def test_replay_actor_and_critic_see_the_position_behind_the_observation(run: Path):
    parts = joint_parts(config_of().joint_job("point", "metra", 0), CPU)
    assert parts.replays[0].columns.obs == 4
    skills = load(run)
    assert [skills.observation_size, skills.meta["sees_position"], skills.meta["latent_size"]] == [4, True, 2]
    with pytest.raises(ValueError, match=r"\(4,\)"):
        skills[0].act(np.zeros(2))


def test_a_rollout_shows_them_where_they_are(run: Path):
    """The same trajectory as when a user appends `info["position"]` by hand."""
    skills, config = load(run), config_of()
    world = config.environment("point").world()
    [[trajectory]] = rollout(skills.pick([1]), world, 20, [[5]])
    env = make(world, horizon=20)
    obs, info = env.reset(seed=5)
    for step in range(20):
        action = skills[1].act(np.concatenate((obs, info["position"])))
        obs, _, _, _, info = env.step(action)
        assert info["position"] == pytest.approx(trajectory.position[step + 1], abs=1e-6)


def test_files_of_other_methods_do_not_speak_of_it(tmp_path: Path):
    config = config_of()
    learn_jointly(config.joint_job("point", "random", 0), tmp_path, config.runtime)
    assert "sees_position" not in load(tmp_path).meta
