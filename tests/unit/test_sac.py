"""SAC against a plain reference, term by term, and on tasks whose answer is known."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import CPU, batch_of
from torch import Tensor, nn
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution
from torch.utils._python_dispatch import TorchDispatchMode

from disk.config import Sac, load
from disk.learning.replay import Batch
from disk.learning.sac import SAC
from disk.learning.tape import Tape
from disk.networks import MLP, Actor, Adam, Packed

OBS, ACTIONS, BATCH = 3, 2, 16


def settings(**changes: Any) -> Sac:
    return Sac.model_validate({**load().sac.model_dump(), "hidden": [8, 8], "batch_size": BATCH, **changes})


def make(seed: int = 1, obs: int = OBS, actions: int = ACTIONS, seen: int = 0, **changes: Any) -> SAC:
    """`seen`: width of σ, where critics see it."""
    return SAC(obs, actions, settings(**changes), torch.Generator().manual_seed(seed), CPU, seen)


def random_batch(seed: int, terminated: float = 0.3, seen: int = 0) -> tuple[Batch, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    ends = (torch.rand(BATCH, generator=generator) < terminated).to(torch.get_default_dtype())
    parts = draw(BATCH, OBS), draw(BATCH, ACTIONS).tanh(), draw(BATCH, OBS), draw(BATCH, seen or 1), ends
    return batch_of(*parts, draw(BATCH, seen)), draw(BATCH)


@pytest.fixture
def double() -> Iterator[None]:
    """Twice the digits, so that a real difference cannot hide behind rounding."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


class Reference:
    """SAC as the paper's appendix writes it: separate networks, torch.distributions, plain Adam, nothing clever."""

    def __init__(self, sac: SAC) -> None:
        self.config, self.generator = sac.config, torch.Generator()
        self.generator.set_state(sac.generator.get_state())
        self.actor = self.network(sac.actor.mlp, 0)
        self.critics = [self.network(sac.critic, copy) for copy in (0, 1)]
        self.targets = [self.network(sac.target, copy) for copy in (0, 1)]
        self.log_alpha = sac.log_temperature.detach().clone().requires_grad_()
        rate = self.config.learning_rate
        both = [parameter for critic in self.critics for parameter in critic.parameters()]
        self.critic_adam = torch.optim.Adam(both, lr=rate, foreach=False, fused=False)
        self.actor_adam = torch.optim.Adam(self.actor.parameters(), lr=rate, foreach=False, fused=False)
        self.alpha_adam = torch.optim.Adam([self.log_alpha], lr=rate, foreach=False, fused=False)
        self.updates = 0

    @staticmethod
    def network(mlp: MLP, copy: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
            linear = nn.Linear(weight.shape[1], weight.shape[2])
            with torch.no_grad():
                linear.weight.copy_(weight[copy].T)
                linear.bias.copy_(bias[copy, 0])
            layers += [linear, nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def act(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        mean, raw = self.actor(obs).chunk(2, dim=-1)
        low, high = self.config.log_std_bounds
        clipped = self.config.log_std == "clip"
        std = (raw.clamp(low, high) if clipped else low + 0.5 * (high - low) * (raw.tanh() + 1.0)).exp()
        before = mean + std * torch.randn(mean.shape, generator=self.generator)
        law = TransformedDistribution(Independent(Normal(mean, std), 1), [TanhTransform(cache_size=1)])
        action = law.transforms[0](before)
        return action, law.log_prob(action)

    def update(self, batch: Batch, reward: Tensor) -> None:
        config = self.config
        with torch.no_grad():
            next_action, log_prob = self.act(batch.next_obs)
            inputs = torch.cat((batch.next_obs, next_action), dim=1)
            value = torch.minimum(*(target(inputs)[:, 0] for target in self.targets)) - self.log_alpha.exp() * log_prob
            goal = torch.where(batch.terminated[:, 0] == 1.0, reward, reward + config.discount * value)
        inputs = torch.cat((batch.obs, batch.action), dim=1)
        loss = sum(((critic(inputs)[:, 0] - goal) ** 2).mean() for critic in self.critics)
        self.critic_loss = loss.detach()
        self.critic_adam.zero_grad()
        loss.backward()
        self.critic_adam.step()
        if self.updates % config.actor_every == 0:
            action, log_prob = self.act(batch.obs)
            inputs = torch.cat((batch.obs, action), dim=1)
            value = torch.minimum(*(critic(inputs)[:, 0] for critic in self.critics))
            self.actor_adam.zero_grad()
            (self.log_alpha.exp().detach() * log_prob - value).mean().backward()
            self.actor_adam.step()
            target_entropy = -batch.action.shape[1] if config.target_entropy is None else config.target_entropy
            self.alpha_adam.zero_grad()
            (self.log_alpha.exp() * (-log_prob.detach() - target_entropy)).mean().backward()
            self.alpha_adam.step()
        if self.updates % config.target_every == 0:
            for target, critic in zip(self.targets, self.critics, strict=True):
                for old, new in zip(target.parameters(), critic.parameters(), strict=True):
                    old.data = (1.0 - config.target_momentum) * old.data + config.target_momentum * new.data
        self.updates += 1


def _flat(network: nn.Sequential) -> list[Tensor]:
    return [p.T if p.ndim == 2 else p for p in network.parameters()]


def _flat_mlp(mlp: MLP, copy: int) -> list[Tensor]:
    pairs = zip(mlp.weights, mlp.biases, strict=True)
    return [tensor for weight, bias in pairs for tensor in (weight[copy], bias[copy, 0])]


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"actor_every": 1, "target_every": 1},
        {"actor_every": 3, "target_every": 4},
        {"target_entropy": 0.7},
        {"log_std": "clip", "log_std_bounds": [-0.2, 0.2]},
    ],
    ids=str,
)
def test_updates_equal_those_of_a_plain_implementation(changes: dict[str, Any]):
    sac = make(learning_rate=0.01, target_momentum=0.3, **changes)
    reference = Reference(sac)
    before = copy.deepcopy(sac.actor.state_dict())
    for i in range(9):
        batch, reward = random_batch(i)
        metrics = sac.update(batch, reward)
        reference.update(batch, reward)
        torch.testing.assert_close(metrics["train/critic_loss"], reference.critic_loss, rtol=1e-9, atol=1e-9)
        pairs = list(zip(_flat_mlp(sac.actor.mlp, 0), _flat(reference.actor), strict=True))
        for c in (0, 1):
            pairs += zip(_flat_mlp(sac.critic, c), _flat(reference.critics[c]), strict=True)
            pairs += zip(_flat_mlp(sac.target, c), _flat(reference.targets[c]), strict=True)
        pairs.append((sac.log_temperature, reference.log_alpha))
        for ours, plain in pairs:
            torch.testing.assert_close(ours, plain, rtol=1e-7, atol=1e-8, check_dtype=True)
    assert any((before[name] - value).abs().max() > 0.01 for name, value in sac.actor.state_dict().items())


@pytest.mark.usefixtures("double")
def test_the_first_update_trains_actor_and_target_and_the_second_neither():
    sac = make()
    states = [copy.deepcopy(sac.state())]
    for i in range(3):
        sac.update(*random_batch(i))
        states.append(copy.deepcopy(sac.state()))

    def changed(name: str) -> list[bool]:
        return [bool((a[name] != b[name]).any()) for a, b in itertools.pairwise(states)]

    assert changed("critic.weights.0") == [True, True, True]
    assert changed("actor.mlp.weights.0") == [True, False, True]
    assert changed("target.weights.0") == [True, False, True]
    assert changed("log_temperature") == [True, False, True]


@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_log_probabilities_are_those_of_a_tanh_gaussian(scale: float):
    actor = Actor(OBS, ACTIONS, [8], (-5.0, 2.0), generator=torch.Generator().manual_seed(0)).double()
    obs = scale * torch.randn(1, 50, OBS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(1, 50, ACTIONS, generator=torch.Generator().manual_seed(2)).double()
    action, log_prob = actor.sample(obs, generator)
    mean, raw = actor.mlp(obs).chunk(2, dim=-1)
    law = Normal(mean, (-5.0 + 3.5 * (raw.tanh() + 1.0)).exp())
    before = law.mean + law.stddev * noise
    jacobian = torch.log1p(-(before.tanh() ** 2))
    torch.testing.assert_close(action, before.tanh())
    sane = (before.abs() < 8.0).all(-1)  # beyond, the plain formula loses its digits
    expected = (law.log_prob(before) - jacobian).sum(-1)
    assert sane.float().mean() > 0.5
    torch.testing.assert_close(log_prob[..., 0][sane], expected[sane], rtol=1e-6, atol=1e-6)
    assert torch.isfinite(log_prob).all()


def test_densities_integrate_to_one():
    """Independent of any formula: the density over (-1, 1), from samples of the policy itself."""
    actor = Actor(1, 1, [4], (-1.0, 0.0), generator=torch.Generator().manual_seed(3))
    obs = torch.full((1, 40_000, 1), 0.5)
    with torch.no_grad():
        action, log_prob = actor.sample(obs, torch.Generator().manual_seed(4))
    # E[1/p · 1(a in I)] is the length of I.
    inside = (action[..., 0] > -0.4) & (action[..., 0] < 0.4)
    length = (torch.exp(-log_prob[..., 0]) * inside).mean()
    assert float(length) == pytest.approx(0.8, rel=0.05)


def test_the_log_std_stays_inside_its_bounds_however_large_the_network_output():
    actor = Actor(1, 1, [2], (-5.0, 2.0))
    with torch.no_grad():
        actor.mlp.weights[-1].zero_()
        for output, expected in ((1e6, 2.0), (-1e6, -5.0), (0.0, -1.5)):
            actor.mlp.biases[-1].copy_(torch.tensor([[[0.0, output]]]))
            noise = torch.randn(1, 1, 1, generator=torch.Generator().manual_seed(0))
            action, _ = actor.sample(torch.zeros(1, 1, 1), torch.Generator().manual_seed(0))
            assert float(action) == pytest.approx(float(torch.tanh(noise * np.exp(expected))), rel=1e-5)


def test_the_mode_is_the_limit_of_little_noise():
    actor = Actor(OBS, ACTIONS, [8], (-20.0, -19.0), generator=torch.Generator().manual_seed(0))
    obs = torch.randn(1, 20, OBS)
    torch.testing.assert_close(actor.sample(obs, torch.Generator())[0], actor.mode(obs), atol=1e-5, rtol=0)


def test_only_termination_stops_the_bootstrap():
    """Two critics trained on zero reward from a target that says 10: the surviving transition is worth 9.9."""
    for terminated, expected in ((1.0, 0.0), (0.0, 9.9)):
        sac = make(learning_rate=0.05, temperature=1e-8, target_every=10_000, actor_every=10_000)
        sac.updates = 1  # no update of target and actor
        with torch.no_grad():
            sac.target.weights[-1].zero_()
            sac.target.biases[-1].fill_(10.0)
        ends = torch.full((BATCH,), terminated)
        batch = batch_of(torch.ones(BATCH, OBS), torch.zeros(BATCH, ACTIONS), terminated=ends)
        for _ in range(300):
            sac.update(batch, torch.zeros(BATCH))
        assert sac.critic(batch.obs_action[None]).mean().item() == pytest.approx(expected, abs=0.1)


def test_the_target_is_the_lower_of_both_critics():
    sac = make(learning_rate=0.05, temperature=1e-8, target_every=10_000, actor_every=10_000)
    sac.updates = 1
    with torch.no_grad():
        sac.target.weights[-1].zero_()
        sac.target.biases[-1].copy_(torch.tensor([-4.0, 10.0]).view(2, 1, 1))
    batch = batch_of(torch.ones(BATCH, OBS), torch.zeros(BATCH, ACTIONS))
    for _ in range(300):
        sac.update(batch, torch.zeros(BATCH))
    torch.testing.assert_close(
        sac.critic(batch.obs_action[None]).mean((1, 2)).detach(), torch.full((2,), 0.99 * -4.0), atol=0.1, rtol=0
    )


@pytest.mark.parametrize(("target", "rises"), [(50.0, True), (-50.0, False)])
def test_the_temperature_rises_when_entropy_is_wanted_and_falls_when_there_is_too_much(target: float, rises: bool):
    sac = make(target_entropy=target)
    assert float(sac.log_temperature.exp().detach()) == pytest.approx(0.1)
    for i in range(10):
        sac.update(*random_batch(i))
    assert (float(sac.log_temperature.exp().detach()) > 0.1) is rises


def test_the_default_target_entropy_is_minus_the_number_of_actions():
    assert make(actions=6).target_entropy == -6.0
    assert make(target_entropy=0.0).target_entropy == 0.0


def test_both_critics_start_different_and_the_target_equal():
    sac = make()
    assert (sac.critic.weights[0][0] != sac.critic.weights[0][1]).any()
    for ours, target in zip(sac.critic.parameters(), sac.target.parameters(), strict=True):
        assert (ours == target).all()


def test_weights_start_orthogonal_and_biases_zero():
    sac = make(obs=20, hidden=[8, 16])
    for weight in (*sac.actor.mlp.weights, *sac.critic.weights):
        for copy_ in weight:
            small = copy_ if copy_.shape[0] <= copy_.shape[1] else copy_.T
            torch.testing.assert_close(small @ small.T, torch.eye(len(small)), atol=1e-5, rtol=0)
    assert all((bias == 0).all() for bias in (*sac.actor.mlp.biases, *sac.critic.biases))


def test_copies_of_a_network_do_not_touch_each_other():
    mlp = MLP([3, 5, 2], copies=3, generator=torch.Generator().manual_seed(0))
    x = torch.randn(3, 7, 3)
    (gradient,) = torch.autograd.grad(mlp(x)[1].sum(), mlp.weights[0])
    assert (gradient[1] != 0).any()
    assert (gradient[[0, 2]] == 0).all()
    for i in range(3):
        torch.testing.assert_close(Reference.network(mlp, i)(x[i]), mlp(x)[i])


# ---------------------------------------------------------------- gradients by hand


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("sizes", [[4, 3], [4, 5, 1], [4, 5, 7, 6, 2], [3, 17, 16, 1]], ids=str)
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_a_tape_gives_the_gradients_that_autograd_gives(sizes: list[int], copies: int):
    generator = torch.Generator().manual_seed(0)
    mlp = MLP(sizes, copies, generator)
    for bias in mlp.biases:
        torch.nn.init.normal_(bias, generator=generator)
    x, by_output = torch.randn(6, sizes[0], generator=generator), torch.randn(copies, 6, sizes[-1], generator=generator)
    plain = copy.deepcopy(mlp)
    packed, tape = Packed(mlp), Tape(mlp, 6)
    gradients = Packed(mlp, torch.zeros_like(packed.values))
    with torch.no_grad():
        for _ in range(2):  # the second time over what the first has left behind
            output = tape.forward(packed, x[:, :1], x[:, 1:])
            by_first = tape.backward(packed, by_output, gradients)
    torch.testing.assert_close(output, plain(x[None]))
    leaf = x.clone().requires_grad_()
    expected = torch.autograd.grad(plain(leaf[None]), [leaf, *plain.parameters()], by_output)
    by_input = sum(delta @ weight for delta, weight in zip(by_first, packed.transposed[0], strict=True))
    torch.testing.assert_close(by_input, expected[0])
    for i, (weight, bias) in enumerate(zip(expected[1 : len(sizes)], expected[len(sizes) :], strict=True)):
        torch.testing.assert_close(torch.stack(gradients.layers[i]), torch.cat((weight, bias), dim=1))


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("clips", [False, True])
def test_a_drawn_action_gives_the_gradients_that_autograd_gives(clips: bool):
    generator = torch.Generator().manual_seed(0)
    actor = Actor(3, 2, [4], (-2.0, 1.0), clips=clips)
    output = (2.0 * torch.randn(50, 4, generator=generator)).requires_grad_()
    noise, by_action = torch.randn(50, 2, generator=generator), torch.randn(50, 2, generator=generator)
    weight = torch.tensor(0.3)
    drawn = actor.explore(output, noise)
    loss = (by_action * drawn.action).sum() + weight * drawn.surprise.sum()
    found = actor.explore_backward(drawn, by_action, weight)
    torch.testing.assert_close(found, torch.autograd.grad(loss, output)[0])


def test_packing_changes_no_parameter_and_ties_them_to_one_piece_of_memory():
    mlp = MLP([3, 5, 2], copies=2, generator=torch.Generator().manual_seed(0))
    before = copy.deepcopy(mlp.state_dict())
    packed = Packed(mlp)
    assert all(torch.equal(before[name], value) for name, value in mlp.state_dict().items())
    packed.values.zero_()
    assert all((value == 0).all() for value in mlp.parameters())
    mlp.load_state_dict(before)
    assert packed.values.abs().sum() > 0


@pytest.mark.parametrize(
    "changes", [{"hidden": [8]}, {"hidden": [5, 9, 4]}, {"hidden": [8, 8], "actor_every": 1}], ids=str
)
def test_networks_of_any_depth_learn(changes: dict[str, Any]):
    sac = make(**changes)
    reference = Reference(sac)
    for i in range(4):
        batch, reward = random_batch(i)
        sac.update(batch, reward)
        reference.update(batch, reward)
    for ours, plain in zip(_flat_mlp(sac.actor.mlp, 0), _flat(reference.actor), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-5)


def test_an_update_asks_nothing_of_the_device_and_keeps_its_shapes():
    """What a CUDA graph needs: no value is read back, and each time the same operations on the same shapes."""

    class Recorder(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[str, tuple[torch.Size, ...]]] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.seen.append((str(func), tuple(value.shape for value in args if isinstance(value, Tensor))))
            return func(*args, **(kwargs or {}))

    sac = make()
    sac.update(*random_batch(0))
    sac.update(*random_batch(1))
    cycles = []
    for first in (2, 4):
        with Recorder() as recorder:
            for i in (first, first + 1):
                sac.update(*random_batch(i))
        cycles.append(recorder.seen)
    assert cycles[0] == cycles[1]
    waits = ("_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "unique")
    update_only = [name for name, _ in cycles[0]]
    assert not [name for name in update_only if any(wait in name for wait in waits)]


# ---------------------------------------------------------------- saving


@pytest.mark.parametrize("updates", [0, 1, 4])
def test_a_restored_learner_goes_on_bit_for_bit(updates: int):
    one = make()
    for i in range(updates):
        one.update(*random_batch(i))
    saved = {name: value.clone() for name, value in one.state().items()}
    noise = one.generator.get_state()
    two = make(seed=99)
    two.load_state(saved)
    two.generator.set_state(noise)
    for i in range(updates, updates + 5):
        metrics_one, metrics_two = dict(one.update(*random_batch(i))), dict(two.update(*random_batch(i)))
        assert list(metrics_one) == list(metrics_two)
        assert {k: float(v) for k, v in metrics_one.items()} == {k: float(v) for k, v in metrics_two.items()}
    state_one, state_two = one.state(), two.state()
    assert state_one.keys() == state_two.keys()
    assert all(torch.equal(state_one[name], state_two[name]) for name in state_one)


def test_metrics_keep_their_order_however_the_saved_names_are_sorted():
    """A curve's columns are told apart by order, and files give tensors back in an order of their own."""
    one, two = make(), make()
    one.update(*random_batch(0))
    two.load_state({name: one.state()[name] for name in sorted(one.state())})
    assert list(two.update(*random_batch(1))) == list(one.update(*random_batch(1)))


def test_a_saved_state_is_not_changed_by_further_updates_of_the_one_it_was_loaded_into():
    one, two = make(), make(seed=2)
    one.update(*random_batch(0))
    saved = {name: value.clone() for name, value in one.state().items()}
    kept = copy.deepcopy(saved)
    two.load_state(saved)
    two.update(*random_batch(1))
    two.update(*random_batch(2))
    assert all(torch.equal(saved[name], kept[name]) for name in saved)


def test_the_same_seed_gives_the_same_learner_and_another_one_another():
    def after(seed: int) -> dict[str, Tensor]:
        sac = make(seed)
        sac.act(np.zeros(OBS))
        for i in range(3):
            sac.update(*random_batch(i))
        return sac.state()

    one, same, other = after(5), after(5), after(6)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["actor.mlp.weights.0"], other["actor.mlp.weights.0"])


def test_actions_are_drawn_inside_minus_one_to_one_and_differ():
    sac = make()
    actions = np.array([sac.act(np.ones(OBS)) for _ in range(50)])
    assert actions.shape == (50, ACTIONS)
    assert (np.abs(actions) <= 1.0).all()
    assert actions.std(0).min() > 0.01


def test_metrics_are_finite_and_detached():
    metrics = make().update(*random_batch(0))
    assert all(value.ndim == 0 and torch.isfinite(value) and not value.requires_grad for value in metrics.values())
    assert {"train/critic_loss", "train/actor_loss", "train/ent_coef", "train/ent_coef_loss"} <= metrics.keys()


# ---------------------------------------------------------------- learning


def test_learns_which_action_an_observation_asks_for():
    """One step, reward -(a - 0.6 sign(o))²: the mode must follow the observation, and not just on average."""
    sac = make(obs=1, actions=1, hidden=[32, 32], learning_rate=1e-2, temperature=0.02, target_entropy=-3.0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(400):
        obs = torch.rand(128, 1, generator=generator).round() * 2.0 - 1.0
        action = torch.rand(128, 1, generator=generator) * 2.0 - 1.0
        batch = batch_of(obs, action, terminated=torch.ones(128))
        sac.update(batch, -((action - 0.6 * obs)[:, 0] ** 2))
    with torch.no_grad():
        mode = sac.actor.mode(torch.tensor([[[-1.0], [1.0]]]))[0, :, 0]
    torch.testing.assert_close(mode, torch.tensor([-0.6, 0.6]), atol=0.15, rtol=0)


def test_values_of_a_world_without_end_are_the_discounted_sum():
    """Reward 1 for ever, discount 0.5, no entropy: every state is worth 2."""
    sac = make(discount=0.5, temperature=1e-8, learning_rate=1e-2, target_momentum=0.2, hidden=[16])
    for i in range(600):
        batch, _ = random_batch(i % 50, terminated=0.0)
        sac.update(batch, torch.ones(BATCH))
    with torch.no_grad():
        values = sac.critic(random_batch(3)[0].obs_action[None])
    assert float(values.mean()) == pytest.approx(2.0, abs=0.2)


def test_a_moment_that_decays_ends_at_zero_and_not_among_slow_denormals() -> None:
    values, gradient = torch.ones(32), torch.full((32,), 1e-30)
    adam = Adam(values, gradient, learning_rate=1e-3)
    adam.step()
    gradient.zero_()
    for _ in range(300):
        adam.step()
    assert torch.equal(adam.mean, torch.zeros(32))  # 1e-31 · 0.9^300 is 2e-45, a denormal
    assert torch.tensor(1e-30) * 1e-10 > 0.0  # and the setting is as before
