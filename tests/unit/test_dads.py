"""Off-DADS' reward, weights and skill dynamics: by hand, by their bounds, and on movements that z decides."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import CPU, tiny_config
from hypothesis import given
from hypothesis import strategies as st

from disk.config import Config, Sac
from disk.errors import ConfigError
from disk.learning.build import joint_parts
from disk.learning.loop import updates_after
from disk.learning.objectives.dads import EPSILON, DadsObjective
from disk.learning.parts import Parts
from disk.learning.replay import Batch
from disk.storage.replay import Columns

COLUMNS = Columns(obs=3, action=2, sigma=2, label=2, origin=3)
SMALL = {"hidden": [16], "learning_rate": 0.01, "momentum": 0.1}


def as_collected(batch: Batch) -> torch.Tensor:
    """The log-probabilities of a policy that has not changed."""
    return batch.origin[:, -1]


def objective(
    log_prob: Callable[[Batch], torch.Tensor] = as_collected, dt: float = 0.5, **changes: Any
) -> DadsObjective:
    settings = tiny_config({"dads": {**SMALL, **changes}}).dads
    return DadsObjective(settings, COLUMNS, dt, log_prob, seed=1, device=CPU)


def batch(count: int, latent: torch.Tensor | None = None, sigma: torch.Tensor | None = None) -> Batch:
    rows = torch.randn(count, COLUMNS.width)
    rows[:, COLUMNS.parts["label"]] = 2.0 * torch.rand(count, 2) - 1.0 if latent is None else latent
    if sigma is not None:
        rows[:, COLUMNS.parts["sigma"]] = sigma
    return Batch(rows, COLUMNS)


def information(found: DadsObjective, given: Batch) -> torch.Tensor:
    return found.reward(given, progress=0.0)[0] / found.config.reward_scale


def test_dynamics_that_ignore_z_pay_nothing():
    found = objective()
    with torch.no_grad():
        found.dynamics.weights[0].zero_()  # z goes nowhere
        found.dynamics.biases[-1].copy_(torch.randn(1, 1, 12))
    assert information(found, batch(50)).abs().max() < 1e-5


def test_a_movement_that_only_the_own_latent_explains_pays_the_logarithm_of_101():
    """By hand: one Gaussian in use, its mean 100 times z; Δ is where the own z says, far from where others say."""
    found = objective(hidden=[], momentum=1.0)
    with torch.no_grad():
        found.dynamics.weights[0].zero_()
        found.dynamics.biases[0].zero_()
        found.dynamics.biases[0][0, 0, 0] = 50.0
        found.dynamics.weights[0][0, 0, 4] = found.dynamics.weights[0][0, 1, 5] = 100.0  # means of the first component
    latent = torch.tensor([[5.0, 5.0], [-7.0, 3.0]])  # outside the cube, so that no other latent comes near
    given = batch(2, latent, sigma=100.0 * latent / 0.5 * math.sqrt(1.0 + EPSILON))
    assert information(found, given).tolist() == pytest.approx([math.log(101.0)] * 2, abs=1e-4)


def test_the_reward_by_hand():
    """Two prior latents, one Gaussian: r = log 3 - log(1 + Σ exp(log q(Δ|zᵢ) - log q(Δ|z)))."""
    found = objective(hidden=[], components=1, prior_latents=2)
    with torch.no_grad():
        found.dynamics.biases[0].zero_()
        found.dynamics.weights[0].copy_(torch.tensor([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]))  # the mean is z
    given, state = batch(1, torch.tensor([[0.5, -0.5]]), torch.tensor([[2.0, 1.0]])), found.generator.get_state()
    others = 2.0 * torch.rand(2, 2, generator=torch.Generator().manual_seed(0).set_state(state)) - 1.0
    target = torch.tensor([1.0, 0.5]) / math.sqrt(1.0 + EPSILON)  # σ·dt, with the running mean 0 and variance 1

    def log_q(z: torch.Tensor) -> float:
        return -0.5 * float((target - z).square().sum())

    own = log_q(given.label[0])
    expected = math.log(3.0) - math.log(1.0 + sum(math.exp(log_q(z) - own) for z in others))
    reward, metrics = found.reward(given, progress=0.0)
    assert reward.tolist() == pytest.approx([10.0 * expected], rel=1e-4)
    assert float(metrics["reward/mean"]) == pytest.approx(10.0 * expected, rel=1e-4)


@given(st.floats(0.1, 1e6), st.integers(1, 8), st.integers(1, 100))
def test_the_reward_is_never_above_the_logarithm_of_one_more_than_the_latents(scale: float, count: int, latents: int):
    found = objective(prior_latents=latents)
    with torch.no_grad():
        found.dynamics.weights[-1].mul_(scale)
    reward = information(found, batch(count))
    assert reward.shape == (count,)
    assert torch.isfinite(reward).all()
    assert float(reward.max()) <= math.log(latents + 1) + 1e-4
    assert float(reward.min()) >= math.log(latents + 1) - math.log(1 + latents * math.exp(50.0)) - 1e-4


def test_weights_are_one_on_policy_and_clipped_off_it():
    assert (objective().weights(batch(20)) == 1.0).all()
    for factor, expected in ((2.0, 2.0), (0.5, 0.5), (50.0, 10.0), (1e-9, 0.1)):
        found = objective(lambda given, factor=factor: given.origin[:, -1] + math.log(factor))
        assert found.weights(batch(3)).tolist() == pytest.approx([expected] * 3)


def test_weights_count_in_the_loss_of_the_dynamics():
    given = batch(30)
    losses = {}
    for factor in (1.0, 3.0):
        found = objective(lambda given, factor=factor: given.origin[:, -1] + math.log(factor))
        losses[factor] = float(found.update(lambda: given)["train/dynamics_loss"])
    assert losses[3.0] == pytest.approx(3.0 * losses[1.0], rel=1e-4)


def test_targets_are_normalised_by_the_batch_in_training_and_by_running_means_for_the_reward():
    found, given = objective(dt=0.5, momentum=0.25), batch(64)
    change = 0.5 * given.sigma
    found.update(lambda: given)
    assert found.mean.tolist() == pytest.approx((0.25 * change.mean(0)).tolist(), abs=1e-6)
    assert found.variance.tolist() == pytest.approx((0.75 + 0.25 * change.var(0)).tolist(), rel=1e-5)
    before = found.variance.clone()
    found.reward(given, progress=0.0)
    assert torch.equal(found.variance, before)


def test_dynamics_learn_what_z_decides_and_only_that_is_paid():
    decided, ignored = objective(), objective()
    for _ in range(400):
        z = 2.0 * torch.rand(128, 2) - 1.0
        told, noise = batch(128, z, sigma=z + 0.1 * torch.randn(128, 2)), batch(128, z)
        decided.update(lambda: told)  # noqa: B023
        ignored.update(lambda: noise)  # noqa: B023
    z = 2.0 * torch.rand(500, 2) - 1.0
    assert float(information(decided, batch(500, z, sigma=z)).mean()) > 0.5
    assert float(information(decided, batch(500, z, sigma=-z)).mean()) < -0.5
    assert abs(float(information(ignored, batch(500, z)).mean())) < 0.1


def test_it_goes_on_from_its_state():
    one, other = objective(), objective()
    batches = [batch(20) for _ in range(6)]
    for each in batches[:3]:
        one.update(lambda: each)  # noqa: B023
        one.reward(each, 0.0)
    other.load_state({name: value.clone() for name, value in one.state().items()})
    for each in batches[3:]:
        for found in (one, other):
            found.update(lambda: each)  # noqa: B023
        assert torch.equal(one.reward(each, 0.0)[0], other.reward(each, 0.0)[0])
    assert all(torch.equal(value, other.state()[name]) for name, value in one.state().items())


def test_a_mixture_by_hand():
    """Weights 1/4 and 3/4, means (0, 0) and (1, 0): at (1, 0) it is log(e^-0.5 / 4 + 3 / 4) = -0.103548."""
    outputs = torch.tensor([[0.0, math.log(3.0), 0.0, 0.0, 1.0, 0.0]])
    found = objective(components=2)._log_likelihood(outputs, torch.tensor([[1.0, 0.0]]))
    assert found.tolist() == pytest.approx([-0.103548], abs=1e-5)


def test_the_loss_of_the_dynamics_by_hand():
    """One Gaussian at 0, two transitions whose normalised Δ is ±1 / √(1 + ε) in the first number.

    Each has log q = -0.5 / 1.001 = -0.4995005; with weights 4 and 0.5 the loss is (4 + 0.5) / 2 · 0.4995005 = 1.123876.
    """
    found = objective(lambda given: given.origin[:, -1] + torch.tensor([4.0, 0.5]).log(), hidden=[], components=1)
    with torch.no_grad():
        found.dynamics.weights[0].zero_()
    given = batch(2, torch.zeros(2, 2), sigma=torch.tensor([[2.0, 0.0], [-2.0, 0.0]]))  # Δ = ±1 with dt 0.5
    metrics = found.update(lambda: given)
    assert float(metrics["train/dynamics_loss"]) == pytest.approx(1.123876, abs=1e-5)
    assert float(metrics["train/importance_weight"]) == pytest.approx(2.25)


# ---------------------------------------------------------------- scaled


SCALED = {"target": "velocity", "statistics": "seed_steps"}


def test_started_statistics_by_hand():
    """σ is 1 or 3 in the first number: mean 2, variance 32 / 31 over 16 batches of two.

    3 is then normalised to 1 / √(32/31 + 0.001) = 0.983775, whatever the length of a step.
    """
    found, given = objective(dt=0.008, **SCALED), batch(2, sigma=torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    found.start(lambda: given)
    assert found.mean.tolist() == [2.0, 0.0]
    assert found.variance.tolist() == pytest.approx([32 / 31, 0.0])
    assert found._normalised(given, training=False)[1].tolist() == pytest.approx([0.983775, 0.0], abs=1e-5)
    faithful = objective(dt=0.008)
    faithful.start(lambda: given)
    assert (faithful.mean.tolist(), faithful.variance.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_where_steps_are_short_the_scaled_reward_leaves_zero_and_the_faithful_one_cannot():
    """Hopper's step of 0.008 s at up to 0.7 m/s: Δ² is at most 3e-5, and ε is 1e-3."""
    faithful, scaled = objective(dt=0.008), objective(dt=0.008, **SCALED)

    def moving(count: int) -> Batch:
        z = 2.0 * torch.rand(count, 2) - 1.0
        return batch(count, z, sigma=0.7 * z)

    for found in (faithful, scaled):
        found.start(lambda: moving(128))
        for _ in range(400):
            found.update(lambda: moving(128))
    given = moving(1000)
    assert abs(float(information(faithful, given).mean())) < 0.05
    assert float(information(scaled, given).mean()) > 0.5


def test_the_scaled_row_has_the_updates_of_disk():
    config = tiny_config()
    job, disk = config.joint_job("point", "dads_scaled", 0), config.sac_of("point", "disk")
    assert job.sac.iteration is None
    for name in ("hidden", "batch_size", "updates_per_step", "temperature", "seed_steps", "actor_every"):
        assert getattr(job.sac, name) == getattr(disk, name), name
    assert job.replay_capacity == config.environment("point").replay_capacity
    assert "target" not in config.dads.canonical()


# ---------------------------------------------------------------- the row


def config_of(**changes: Any) -> Config:
    sac = {"hidden": [16], "seed_steps": 20, "iteration": {"steps": 50, "model_updates": 8, "policy_updates": 64}}
    return tiny_config({"methods": {"dads": {"sac": sac, **changes}}, "dads": SMALL})


def parts_of(**changes: Any) -> Parts:
    return joint_parts(config_of(**changes).joint_job("point", "dads", 0), CPU)


def test_the_row_has_the_official_settings():
    from disk import config

    paper = config.load()
    for env in paper.environments:
        job = paper.joint_job(env, "dads", 0)
        assert job.replay_capacity == 10_000
        if env in ("halfcheetah", "hopper", "swimmer", "ant") or env.startswith("ant_blocks"):
            assert job.steps == 5_000_000
    assert paper.joint_job("ant_broken", "dads", 0).steps == 10_000_000
    sac = paper.sac_of("ant", "dads")
    assert [sac.hidden, sac.target_momentum, sac.target_every, sac.actor_every] == [[512, 512], 0.005, 1, 1]
    assert [sac.learning_rate, sac.discount, sac.batch_size, sac.temperature] == [3e-4, 0.99, 256, 1.0]
    assert [sac.log_std_bounds, sac.log_std, sac.entropy_per_action] == [[-20.0, 2.0], "clip", -0.5]
    agent = joint_parts(paper.joint_job("point", "dads", 0), CPU).agents[0]
    assert agent.target_entropy == -2.0, "half of the point robot's four actions"
    assert agent.log_temperature.item() == 0.0


def test_updates_come_in_bouts_after_the_seed_steps():
    sac = config_of().sac_of("point", "dads")
    after = {done: updates_after(done, sac) for done in range(200)}
    assert [done for done, updates in after.items() if updates] == [69, 119, 169]
    assert after[69] == [(True, False)] * 8 + [(False, True)] * 64


@pytest.mark.parametrize(("ratio", "expected"), [(1.0, [1] * 8), (0.5, [0, 1] * 4), (2.5, [2, 3] * 4)])
def test_elsewhere_they_are_spread_over_the_steps(ratio: float, expected: list[int]):
    sac: Sac = config_of().sac.model_copy(update={"updates_per_step": ratio, "seed_steps": 4})
    assert [updates_after(done, sac) for done in range(4)] == [[]] * 4
    assert [updates_after(done, sac) for done in range(4, 12)] == [[(True, True)] * count for count in expected]


def test_an_action_is_kept_with_how_it_came_about_and_weights_are_one_until_the_policy_changes():
    parts = parts_of()
    (agent,), (replay,) = parts.agents, parts.replays
    for episode in range(40):
        latent = parts.latent(0, episode)
        obs = torch.randn(2).numpy()
        action, origin = agent.act_on_record(torch.cat((torch.from_numpy(obs), torch.from_numpy(latent))).numpy())
        assert torch.from_numpy(origin[:-1]).tanh().tolist() == pytest.approx(action.tolist())
        replay.add(obs, action, obs, False, obs, latent, origin)
    assert isinstance(parts.objective, DadsObjective)
    given = parts.sample(0)
    assert parts.objective.weights(given).tolist() == pytest.approx([1.0] * len(given.rows), abs=1e-5)
    agent.update(parts.as_seen(given), torch.randn(len(given.rows)))
    assert not torch.allclose(parts.objective.weights(given), torch.ones(len(given.rows)), atol=1e-5)


def test_the_log_probability_is_that_of_the_sampling():
    actor = parts_of().agents[0].actor
    obs = torch.randn(1, 30, 4)
    action, sampled = actor.sample(obs, torch.Generator().manual_seed(3))
    before, drawn = actor.draw(obs, torch.Generator().manual_seed(3))
    assert torch.allclose(before.tanh(), action)
    assert torch.allclose(drawn, sampled, atol=1e-5)
    assert torch.equal(actor.log_prob(obs, before), drawn)


def test_a_clipped_standard_deviation_is_one_where_the_network_says_zero():
    actor = parts_of().agents[0].actor
    raw = torch.tensor([-30.0, -20.0, 0.0, 1.5, 5.0])
    assert actor._log_std(torch.cat((torch.zeros(5), raw)))[0].tolist() == [-20.0, -20.0, 0.0, 1.5, 2.0]


def test_a_budget_without_a_single_bout_is_refused():
    assert config_of(steps=70).joint_job("point", "dads", 0).steps == 70
    with pytest.raises(ConfigError, match=r"methods\.dads\.steps: 69 in point: expected at least.*20 seed.*50 steps"):
        config_of(steps=69).joint_job("point", "dads", 0)
