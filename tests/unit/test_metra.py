"""METRA's reward and φ: by hand, under its constraint, and with positions in what its skills see."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import CPU, tiny_config

from disk.cli import main
from disk.config import Config
from disk.envs import make
from disk.evaluation.rollout import rollout
from disk.learning.build import joint_parts
from disk.learning.objectives.metra import MetraObjective
from disk.learning.replay import Batch
from disk.learning.run import learn_jointly
from disk.skills import load
from disk.storage.replay import Columns

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


def test_two_steps_of_phi_and_the_dual_variable_by_hand():
    """φ of the last two numbers, doubled; Δ = (0.5, 0.25), so φ(s') - φ(s) = (1, 0.5) and z = (0.6, 0.8).

    Squared length 1.25, so the constraint is missed by 0.25 and the loss is -(0.6 + 0.4 - 30 · 0.25) = 6.5. By the
    difference its gradient is -z + 60 (1, 0.5) = (59.4, 29.2): all four weights that see Δ fall by Adam's first step,
    the learning rate 0.003, and log λ, whose gradient is -0.25, grows by it. Then the difference is (0.99775, 0.49775),
    its squared length 1.24326, and Adam's second step of log λ is 0.003 · 0.24645 / 0.24665 = 0.0029976.
    """
    found = objective(hidden=[])
    with torch.no_grad():
        found.encoder.weights[0].copy_(torch.tensor([[[0.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]]))
    given = batch(torch.zeros(1, 4), torch.tensor([[0.0, 0.0, 0.5, 0.25]]), torch.tensor([[0.6, 0.8]]))
    first = {name: float(value) for name, value in found.update(lambda: given).items()}
    assert first["train/squared_length"] == pytest.approx(1.25, rel=1e-6)
    assert first["train/dual"] == pytest.approx(30.0 * math.exp(0.003), rel=1e-6)
    expected = [[0.0, 0.0], [0.0, 0.0], [1.997, -0.003], [-0.003, 1.997]]
    assert found.encoder.weights[0][0].tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
    second = {name: float(value) for name, value in found.update(lambda: given).items()}
    assert second["train/squared_length"] == pytest.approx(1.24326, abs=1e-5)
    assert second["train/dual"] == pytest.approx(30.18047, abs=1e-4)


def test_a_short_step_by_hand():
    """Squared length 0.05: the slack, 0.001, is all that counts. φ learns from z alone, log λ falls by 0.003."""
    found = objective(hidden=[])
    with torch.no_grad():
        found.encoder.weights[0].copy_(torch.tensor([[[0.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 2.0]]]))
    given = batch(torch.zeros(1, 4), torch.tensor([[0.0, 0.0, 0.1, 0.05]]), torch.tensor([[0.6, -0.8]]))
    assert float(found.update(lambda: given)["train/dual"]) == pytest.approx(30.0 * math.exp(-0.003), rel=1e-6)
    expected = [[0.0, 0.0], [0.0, 0.0], [2.003, -0.003], [0.003, 1.997]]  # towards z in each of the two columns
    assert found.encoder.weights[0][0].tolist() == [pytest.approx(row, abs=1e-6) for row in expected]


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


def test_the_row_is_as_its_authors_run_it():
    from disk import config

    paper = config.load()
    sac, row = paper.sac_of("halfcheetah", "metra"), paper.method("metra")
    assert row.normalise is True
    assert [sac.target_momentum, sac.target_every, sac.actor_every, sac.batch_size] == [0.005, 1, 1, 256]
    assert [sac.entropy_per_action, sac.temperature, sac.seed_steps] == [-0.5, 0.01, 10_000]
    assert joint_parts(config_of().joint_job("point", "metra", 0), CPU).agents[0].target_entropy == -2.0
    assert paper.joint_job("point", "metra_raw", 0).normaliser is None


# ---------------------------------------------------------------- relabelling


def relabelling(share: float | None) -> Config:
    return tiny_config({"metra": {**SMALL, "relabel": share}, "normaliser": {"steps": 100}})


def test_other_latents_come_from_the_prior_and_nothing_else_changes():
    parts = joint_parts(relabelling(0.5).joint_job("point", "metra", 0), CPU)
    given = Batch(torch.randn(4000, parts.replays[0].columns.width), parts.replays[0].columns)
    before = given.rows.clone()
    found = parts.relabelled(given)
    other = (found.label != given.label).any(dim=1)
    assert 0.45 < float(other.float().mean()) < 0.55
    drawn = found.label[other]
    assert torch.allclose(drawn.norm(dim=1), torch.ones(len(drawn)), atol=1e-5)
    assert float(drawn.mean(0).abs().max()) < 0.1
    assert torch.equal(given.rows, before), "φ learns from the latents that acted"
    label = given.columns.parts["label"]
    assert torch.equal(found.rows[:, : label.start], before[:, : label.start])
    assert torch.equal(parts.as_seen(found).obs[:, -2:], found.label), "the policy is told the other latent"


def test_without_the_option_nothing_is_drawn():
    parts = joint_parts(relabelling(None).joint_job("point", "metra", 0), CPU)
    given = Batch(torch.randn(4, parts.replays[0].columns.width), parts.replays[0].columns)
    before = parts.agents[0].generator.get_state()
    assert parts.relabelled(given) is given
    assert torch.equal(parts.agents[0].generator.get_state(), before)
    assert "relabel" not in relabelling(None).joint_job("point", "metra", 0).canonical()


def test_relabelled_transitions_change_what_is_learned(tmp_path: Path, run: Path):
    config = relabelling(0.5)
    learn_jointly(config.joint_job("point", "metra", 0), tmp_path, config.runtime)
    one, other = load(tmp_path).actor.state_dict(), load(run).actor.state_dict()
    assert not any(torch.equal(value, other[name]) for name, value in one.items())


def test_the_spread_over_random_sets_of_latents_is_reported(run: Path, tmp_path: Path, capsys: Any):
    place = Path(shutil.copytree(run, tmp_path / "point/metra/seed0"))
    before = load(place).latent.clone()
    assert main(["evaluate", str(place), "--latent-sets", "3"]) == 0
    table = pd.read_csv(place / "latent_sets.csv")
    assert list(table.columns) == ["set", "metric", "value"]
    values = table[table["metric"] == "hausdorff"]["value"]
    assert len(values) == 3
    assert values.nunique() == 3
    said = capsys.readouterr().out
    assert f"{values.min():.3f}" in said
    assert "moving skills" in said
    assert torch.equal(load(place).latent, before)
    assert not (place / "metrics.csv").exists(), "the run's own measures are of its even latents"


def test_other_runs_have_no_sets_of_latents(run: Path, tmp_path: Path):
    place = Path(shutil.copytree(run, tmp_path / "point/diayn/seed0"))
    assert main(["evaluate", str(place), "--latent-sets", "3"]) == 1
    assert not (place / "latent_sets.csv").exists()
