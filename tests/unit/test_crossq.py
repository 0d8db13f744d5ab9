"""Every kind of critic against networks of torch.nn and autograd, their state, and what they leave alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from conftest import batch_of, raw_config, tiny_config
from test_sac import ACTIONS, BATCH, OBS, double, make, random_batch
from torch import Tensor, nn

from disk import config as configuration
from disk.config import Sac
from disk.errors import ConfigError
from disk.learning.batch_norm import BatchNormTape, Folded
from disk.learning.replay import Batch
from disk.learning.sac import SAC
from disk.learning.tape import LayerNormTape
from disk.networks import MLP, BatchNormMLP, LayerNormMLP, Packed

__all__ = ["double"]  # a fixture
KINDS = ["plain", "layer_norm", "crossq", "batch_norm", "no_target"]
BATCH_NORMS = ["crossq", "batch_norm"]
SIZES = [[4, 3], [4, 5, 1], [4, 5, 7, 6, 2], [3, 17, 16, 1], [3, 192, 192, 1]]  # the last has a layer that is LARGE


def plain_network(mlp: MLP, c: int) -> nn.Sequential:
    """Copy `c` of our networks, made of torch's modules."""
    modules: list[nn.Module] = []
    at = 0
    for i, (weight, bias) in enumerate(zip(mlp.weights, mlp.biases, strict=True)):
        width, outputs = weight.shape[1:]
        if isinstance(mlp, BatchNormMLP):
            norm = nn.BatchNorm1d(width, eps=1e-3, momentum=0.01)
            here = (c, slice(at, at + width))
            norm.load_state_dict(
                {
                    "weight": mlp.scales[here],
                    "bias": mlp.shifts[here],
                    "running_mean": mlp.get_buffer(f"mean{i}")[c if i else 0],
                    "running_var": mlp.get_buffer(f"variance{i}")[c if i else 0],
                    "num_batches_tracked": torch.tensor(0),
                }
            )
            modules.append(norm)
            at += width
        linear = nn.Linear(width, outputs)
        linear.load_state_dict({"weight": weight[c].T, "bias": bias[c, 0]})
        modules.append(linear)
        if i + 1 < len(mlp.weights):
            if isinstance(mlp, LayerNormMLP):
                rows = nn.LayerNorm(outputs)
                here = (c, slice(at, at + outputs))
                rows.load_state_dict({"weight": mlp.scales[here], "bias": mlp.shifts[here]})
                modules.append(rows)
                at += outputs
            modules.append(nn.ReLU())
    return nn.Sequential(*modules)


def assert_equal(mlp: MLP, c: int, plain: nn.Sequential, **tolerance: float) -> None:
    """Copy `c` has the parameters and the statistics of a network of torch's modules."""
    linears = [module for module in plain if isinstance(module, nn.Linear)]
    for weight, bias, linear in zip(mlp.weights, mlp.biases, linears, strict=True):
        torch.testing.assert_close(weight[c], linear.weight.T, **tolerance)
        torch.testing.assert_close(bias[c, 0], linear.bias, **tolerance)
    norms: Any = [module for module in plain if isinstance(module, nn.BatchNorm1d | nn.LayerNorm)]
    assert bool(norms) is isinstance(mlp, BatchNormMLP | LayerNormMLP)
    if isinstance(mlp, BatchNormMLP | LayerNormMLP):
        torch.testing.assert_close(mlp.scales[c], torch.cat([norm.weight for norm in norms]), **tolerance)
        torch.testing.assert_close(mlp.shifts[c], torch.cat([norm.bias for norm in norms]), **tolerance)
    if isinstance(mlp, BatchNormMLP):
        for i, norm in enumerate(norms):
            torch.testing.assert_close(mlp.get_buffer(f"mean{i}")[c if i else 0], norm.running_mean, **tolerance)
            torch.testing.assert_close(mlp.get_buffer(f"variance{i}")[c if i else 0], norm.running_var, **tolerance)


def unsettle(mlp: MLP) -> None:
    """Biases, scales, shifts and statistics that are neither 0 nor 1."""
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for bias in mlp.biases:
            bias.normal_(generator=generator)
        if isinstance(mlp, BatchNormMLP | LayerNormMLP):
            mlp.scales.uniform_(0.5, 2.0, generator=generator)
            mlp.shifts.normal_(generator=generator)
        if isinstance(mlp, BatchNormMLP):
            for name, statistic in mlp.named_buffers():
                if name.startswith("mean"):
                    statistic.normal_(generator=generator)
                else:
                    statistic.uniform_(0.5, 2.0, generator=generator)


def sigmas(batch: Batch) -> tuple[Tensor, Tensor]:
    """σ(s) and σ(s') as critics see them; without columns where they do not."""
    part = batch.columns.parts.get("sigma_before")
    return (batch.obs[:, :0], batch.obs[:, :0]) if part is None else (batch.rows[:, part], batch.sigma)


class Reference:
    """SAC with each kind of critic as its paper has it: torch.nn, autograd, torch.optim.Adam."""

    def __init__(self, sac: SAC, kind: str) -> None:
        self.config, self.kind, self.actor = sac.config, kind, copy.deepcopy(sac.actor)
        self.generator = torch.Generator()
        self.generator.set_state(sac.generator.get_state())
        self.critics = nn.ModuleList(plain_network(sac.critic, c) for c in (0, 1))
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = sac.log_temperature.clone().requires_grad_()
        parameters = (self.critics.parameters(), self.actor.parameters(), [self.log_alpha])
        beta1 = self.config.adam_beta1 if self.config.adam_beta1 is not None else 0.9
        self.adams = [
            torch.optim.Adam(list(some), lr=self.config.learning_rate, betas=(beta1, 0.999), foreach=False, fused=False)
            for some in parameters
        ]
        self.updates = 0

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        action, log_prob = self.actor.sample(obs[None], self.generator)
        return action[0], log_prob[0, :, 0]

    def values(self, batch: Batch, next_action: Tensor) -> tuple[Tensor, Tensor]:
        """Values of the batch and of what follows, (2, B) each, critics in training mode."""
        before, after = sigmas(batch)
        now = torch.cat((batch.obs, before, batch.action), dim=1)
        then = torch.cat((batch.next_obs, after, next_action), dim=1)
        if self.kind in BATCH_NORMS:
            both = torch.stack([critic(torch.cat((now, then)))[:, 0] for critic in self.critics])
            values, next_values = both[:, : len(now)], both[:, len(now) :]
        else:
            values = torch.stack([critic(now)[:, 0] for critic in self.critics])
            next_values = torch.stack([critic(then)[:, 0] for critic in self.critics])
        if self.kind not in ("crossq", "no_target"):
            next_values = torch.stack([target(then)[:, 0] for target in self.targets.eval()])
        return values, next_values.detach()

    def step(self, adam: int, loss: Tensor) -> None:
        self.adams[adam].zero_grad()
        loss.backward()
        self.adams[adam].step()

    def update(self, batch: Batch, reward: Tensor) -> None:
        config = self.config
        with torch.no_grad():
            next_action, log_prob = self.act(batch.next_obs)
        self.critics.train()
        values, next_values = self.values(batch, next_action)
        soft = next_values.amin(0) - self.log_alpha.exp().detach() * log_prob
        goal = reward + (1.0 - batch.terminated[:, 0]) * config.discount * soft
        self.critic_loss = ((values - goal) ** 2).mean(1).sum()
        self.step(0, self.critic_loss)
        if self.updates % config.actor_every == 0:
            self.critics.eval()
            action, log_prob = self.act(batch.obs)
            inputs = torch.cat((batch.obs, sigmas(batch)[0], action), dim=1)
            value = torch.stack([critic(inputs)[:, 0] for critic in self.critics]).amin(0)
            self.step(1, (self.log_alpha.exp().detach() * log_prob - value).mean())
            self.step(2, (self.log_alpha.exp() * (-log_prob.detach() + batch.action.shape[1])).mean())
        if self.updates % config.target_every == 0:
            with torch.no_grad():
                for target, critic in zip(self.targets, self.critics, strict=True):
                    for name, old in target.state_dict().items():
                        if old.is_floating_point():
                            old.lerp_(critic.state_dict()[name], config.target_momentum)
        self.updates += 1


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("changes", [{}, {"actor_every": 3, "adam_beta1": 0.5, "target_every": 1}], ids=str)
@pytest.mark.parametrize("hidden", [[8, 8], [5], [6, 4, 7]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seen", [0, 2])
def test_updates_equal_those_of_torch_modules_under_autograd(
    seen: int, kind: str, hidden: list[int], changes: dict[str, Any]
):
    sac = make(critic=kind, hidden=hidden, learning_rate=0.01, target_momentum=0.3, seen=seen, **changes)
    reference = Reference(sac, kind)
    for i in range(9):
        batch, reward = random_batch(i, seen=seen)
        metrics = sac.update(batch, reward)
        reference.update(batch, reward)
        torch.testing.assert_close(metrics["train/critic_loss"], reference.critic_loss.detach(), rtol=1e-8, atol=1e-8)
        for c in (0, 1):
            assert_equal(sac.critic, c, reference.critics[c], rtol=1e-7, atol=1e-8)
            if sac.target is not None:
                assert_equal(sac.target, c, reference.targets[c], rtol=1e-7, atol=1e-8)
        for ours, plain in zip(sac.actor.parameters(), reference.actor.parameters(), strict=True):
            torch.testing.assert_close(ours, plain, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(sac.log_temperature, reference.log_alpha.detach(), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_stays_near_double(kind: str):
    """Observations far from 0 with a small spread are the hard case for a normalisation folded into weights."""
    sac = make(critic=kind, hidden=[32, 32], adam_beta1=0.5, actor_every=3)
    twin = Reference(sac, kind)
    for i in range(6):
        batch, reward = random_batch(i)
        batch = batch_of(10.0 + 0.1 * batch.obs, batch.action, 10.0 + 0.1 * batch.next_obs)
        sac.update(batch, reward)
        twin.update(batch, reward)
    for c in (0, 1):
        assert_equal(sac.critic, c, twin.critics[c], rtol=1e-3, atol=2e-4)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_a_joint_pass_gives_the_gradients_that_autograd_gives(sizes: list[int], copies: int):
    generator = torch.Generator().manual_seed(0)
    mlp = BatchNormMLP(sizes, copies, generator)
    unsettle(mlp)
    plain = [plain_network(mlp, c) for c in range(copies)]
    x, by_output = (
        torch.randn(12, sizes[0], generator=generator),
        torch.randn(copies, 6, sizes[-1], generator=generator),
    )
    packed = Packed(mlp)
    gradients, folded = Packed(mlp, torch.zeros_like(packed.values)), Folded(mlp, packed)
    tape = BatchNormTape(mlp, folded, gradients, 6)
    with torch.no_grad():
        for _ in range(2):  # the second time over what the first has left behind
            first, second = tape.forward([x[:6, :1], x[:6, 1:]], [x[6:]])
            tape.backward(by_output)
    for c in range(copies):
        plain[c](x)
        output = plain[c](x)  # twice, since statistics move twice
        torch.testing.assert_close(torch.cat((first[c], second[c])), output)
        output[:6].backward(by_output[c])
        linears = [module for module in plain[c] if isinstance(module, nn.Linear)]
        norms: Any = [module for module in plain[c] if isinstance(module, nn.BatchNorm1d)]
        for i, linear in enumerate(linears):
            torch.testing.assert_close(
                gradients.layers[i][c], torch.cat((linear.weight.grad.T, linear.bias.grad[None]))
            )
        torch.testing.assert_close(gradients.norms[0][c], torch.cat([norm.weight.grad for norm in norms]))
        torch.testing.assert_close(gradients.norms[1][c], torch.cat([norm.bias.grad for norm in norms]))
        assert_equal(mlp, c, plain[c])


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("sizes", SIZES[1:], ids=str)  # a hidden layer at least
def test_a_tape_with_layer_normalisation_gives_the_gradients_that_autograd_gives(sizes: list[int]):
    generator = torch.Generator().manual_seed(0)
    mlp = LayerNormMLP(sizes, 2, generator)
    unsettle(mlp)
    plain = copy.deepcopy(mlp)
    x, by_output = torch.randn(6, sizes[0], generator=generator), torch.randn(2, 6, sizes[-1], generator=generator)
    packed, tape = Packed(mlp), LayerNormTape(mlp, 6)
    gradients = Packed(mlp, torch.zeros_like(packed.values))
    with torch.no_grad():
        for _ in range(2):
            output = tape.forward(packed, x)
            by_first = tape.backward(packed, by_output, gradients)
    leaf = x.clone().requires_grad_()
    torch.testing.assert_close(output, plain(leaf[None]))
    expected = torch.autograd.grad(plain(leaf[None]), [leaf, *plain.parameters()], by_output)
    by_input = sum(delta @ weight for delta, weight in zip(by_first, packed.transposed[0], strict=True))
    torch.testing.assert_close(by_input, expected[0])
    for found, gradient in zip(gradients.parameters, expected[1:], strict=True):
        torch.testing.assert_close(found, gradient)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("kind", [BatchNormMLP, LayerNormMLP])
def test_a_network_by_itself_computes_what_torch_modules_compute_in_evaluation_mode(kind: Any):
    mlp = kind([4, 5, 7, 2], 3, torch.Generator().manual_seed(0))
    unsettle(mlp)
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    for c in range(3):
        torch.testing.assert_close(mlp(x[None])[c], plain_network(mlp, c).eval()(x))


def test_what_critics_see_adds_up_by_hand():
    """Weights 1, 10 and 100 of observation, σ and action: which number goes where is read off the value's digits."""
    sac = make(obs=1, actions=1, seen=1, critic="no_target", hidden=[1], batch_size=2)
    with torch.no_grad():
        sac.critic.weights[0].copy_(torch.tensor([[1.0], [10.0], [100.0]]))
        sac.critic.weights[1].fill_(1.0)
    obs, sigma, action = (torch.tensor([[value, 0.0]]).T for value in (1.0, 2.0, 3.0))
    batch = batch_of(obs, action, obs + 3.0, sigma + 3.0, sigma_before=sigma)
    critics, other = sac._critics, torch.tensor([[6.0], [7.0]])
    assert critics.values(batch).tolist() == [[[321.0], [0.0]]] * 2
    assert critics.next_values(batch, other).tolist() == [[[654.0], [733.0]]] * 2
    assert critics.evaluate(batch.critic_obs, other).tolist() == [[[621.0], [700.0]]] * 2
    by_value = torch.tensor([[[1.0], [0.0]], [[0.0], [2.0]]])  # of the first critic one row, of the second the other
    assert critics.by_action(by_value).tolist() == [[100.0], [200.0]]


def test_the_actor_does_not_see_sigma():
    """It starts from the weights that it has without σ, so saved policies have one form."""
    sac, other = make(seen=2), make()
    assert sac.critic.weights[0].shape[1] == other.critic.weights[0].shape[1] + 2
    for ours, theirs in zip(sac.actor.parameters(), other.actor.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("kind", BATCH_NORMS)
def test_the_actor_asks_without_moving_the_statistics(kind: str):
    noise = torch.zeros(BATCH, ACTIONS)
    sac = make(critic=kind)
    sac.update(*random_batch(0))
    before = copy.deepcopy(sac.critic.state_dict())
    sac._update_actor_and_temperature(random_batch(1)[0], noise)
    assert all(torch.equal(value, before[name]) for name, value in sac.critic.state_dict().items())
    sac._update_critic(*random_batch(1), noise)
    assert not torch.equal(sac.critic.state_dict()["mean0"], before["mean0"])


@pytest.mark.parametrize("kind", BATCH_NORMS)
def test_both_critics_see_one_input_and_have_activations_of_their_own(kind: str):
    sac = make(critic=kind)
    sac.update(*random_batch(0))
    state = sac.critic.state_dict()
    assert state["mean0"].shape == (1, OBS + ACTIONS)
    assert (state["mean1"][0] != state["mean1"][1]).any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("updates", [0, 1, 4])
def test_a_restored_learner_goes_on_bit_for_bit(kind: str, updates: int):
    one = make(critic=kind, actor_every=3, adam_beta1=0.5)
    for i in range(updates):
        one.update(*random_batch(i))
    saved = {name: value.clone() for name, value in one.state().items()}
    noise = one.generator.get_state()
    two = make(seed=99, critic=kind, actor_every=3, adam_beta1=0.5)
    two.load_state(saved)
    two.generator.set_state(noise)
    for i in range(updates, updates + 5):
        metrics_one, metrics_two = dict(one.update(*random_batch(i))), dict(two.update(*random_batch(i)))
        assert {k: float(v) for k, v in metrics_one.items()} == {k: float(v) for k, v in metrics_two.items()}
    state_one, state_two = one.state(), two.state()
    assert state_one.keys() == state_two.keys()
    assert all(torch.equal(state_one[name], state_two[name]) for name in state_one)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_holds_targets_and_statistics_where_there_are_any(kind: str):
    names = make(critic=kind).state().keys()
    assert ("target.weights.0" in names) is (kind not in ("crossq", "no_target"))
    assert ({"critic.mean0", "critic.variance2"} <= names) is (kind in BATCH_NORMS)
    assert ({"critic.scales", "adam.critic.mean"} <= names) is (kind not in ("plain", "no_target"))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_may_change_their_size(kind: str):
    sac = make(critic=kind)
    for i, size in enumerate((BATCH, 5, BATCH)):
        batch, reward = random_batch(i)
        sac.update(batch_of(batch.obs[:size], batch.action[:size], batch.next_obs[:size]), reward[:size])
    assert all(torch.isfinite(value).all() for value in sac.state().values())
    sac.load_state(make(critic=kind, seed=1).state())  # memory made between updates can still be written from outside
    sac.update(*random_batch(3))


@pytest.mark.parametrize("kind", KINDS)
def test_learns_which_action_an_observation_asks_for(kind: str):
    """One step, reward -(a - 0.6 sign(o))²: the mode must follow the observation."""
    rest = {"hidden": [32, 32], "learning_rate": 3e-3, "temperature": 0.02, "target_entropy": -3.0}
    sac = make(obs=1, actions=1, critic=kind, actor_every=3, adam_beta1=0.5, **rest)
    generator = torch.Generator().manual_seed(0)
    for _ in range(1000):
        obs = torch.rand(128, 1, generator=generator).round() * 2.0 - 1.0
        action = torch.rand(128, 1, generator=generator) * 2.0 - 1.0
        batch = batch_of(obs, action, terminated=torch.ones(128))
        sac.update(batch, -((action - 0.6 * obs)[:, 0] ** 2))
    with torch.no_grad():
        mode = sac.actor.mode(torch.tensor([[[-1.0], [1.0]]]))[0, :, 0]
    torch.testing.assert_close(mode, torch.tensor([-0.6, 0.6]), atol=0.15, rtol=0)


@pytest.mark.parametrize("kind", ["crossq", "no_target", "layer_norm"])
def test_values_of_a_world_without_end_are_the_discounted_sum(kind: str):
    """Reward 1 for ever, discount 0.5, no entropy: every state is worth 2."""
    sac = make(critic=kind, discount=0.5, temperature=1e-8, learning_rate=1e-2, target_momentum=0.2, hidden=[16])
    for i in range(600):
        batch, _ = random_batch(i % 50, terminated=0.0)
        sac.update(batch, torch.ones(BATCH))
    with torch.no_grad():
        values = sac.critic(random_batch(3)[0].obs_action[None])
    assert float(values.mean()) == pytest.approx(2.0, abs=0.2)


# ---------------------------------------------------------------- settings


def test_a_misspelt_critic_is_refused_with_its_path():
    with pytest.raises(ConfigError, match=r"methods\.disk\.sac\.critic: 'crosq': .*'crossq'"):
        configuration.parse(raw_config({"methods": {"disk": {"sac": {"critic": "crosq"}}}}))


def test_settings_that_ask_for_plain_sac_leave_a_job_as_it_is():
    asked = {"sac": {"critic": "plain", "adam_beta1": None}}
    assert tiny_config(asked).skill_job("point", "disk", 0, 1).canonical() == (
        tiny_config().skill_job("point", "disk", 0, 1).canonical()
    )
    assert '"critic": "crossq"' in tiny_config().skill_job("point", "disk_crossq", 0, 1).canonical()


@pytest.mark.parametrize("beta1", [-0.1, 1.0])
def test_a_decay_that_adam_cannot_have_is_refused(beta1: float):
    with pytest.raises(ValueError, match="adam_beta1"):
        Sac.model_validate({**configuration.load().sac.model_dump(), "adam_beta1": beta1})


def test_every_row_of_the_ablation_parses_and_differs_from_crossq_in_one_part():
    config = configuration.load(configuration.PROJECT / "benchmarks" / "learner.yaml")
    crossq = config.sac_of("hopper", "disk_crossq").model_dump()
    parts = {
        "targets": "critic",
        "no_norm": "critic",
        "slow": "learning_rate",
        "beta09": "adam_beta1",
        "delay2": "actor_every",
    }
    for name, part in parts.items():
        row = config.sac_of("hopper", f"disk_crossq_{name}").model_dump()
        assert [key for key in row if row[key] != crossq[key]] == [part]
