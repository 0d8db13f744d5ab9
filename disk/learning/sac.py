"""Soft actor-critic: twin critics, a tanh-Gaussian actor, a learned temperature.

`SAC.update` is one step of the algorithm in the paper's appendix: critics on the soft Bellman residual,
every second time the actor and the temperature, every second time the critics' target. It takes a batch
and its rewards, wherever these come from, and returns metrics as detached tensors. Gradients are written
out: each loss stands beside its derivative, and `Tape` carries it through the network. `sac.critic` chooses
the kind of critics (disk/learning/critics.py). Nothing in here waits for the device. Shapes and memory stay the same
from update to update, so that a GPU replays recordings of them (disk/learning/graphs.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from disk.config import Sac
from disk.learning.critics import make_critics
from disk.learning.graphs import Graphs
from disk.learning.replay import Batch
from disk.learning.tape import Tape, products_for
from disk.networks import Actor, Adam, Drawn, Packed
from disk.storage.checkpoint import below


class SAC:
    def __init__(
        self,
        observations: int,
        actions: int,
        config: Sac,
        generator: torch.Generator,
        device: torch.device,
        sigma: int = 0,
    ) -> None:
        """`sigma`: width of σ, which critics see behind the observation; 0: they do not see it."""
        self.config, self.generator, self.device = config, generator, device
        clips = config.log_std == "clip"
        # Initial weights are drawn on the CPU, so that they are the same on every device.
        initial = torch.Generator().manual_seed(generator.initial_seed())
        sizes = (observations, actions, config.hidden, config.log_std_bounds)
        self.actor = Actor(*sizes, generator=initial, clips=clips).to(device)
        self._critics = make_critics(observations + sigma, actions, config, initial, device)
        self.critic, self.target = self._critics.network, self._critics.target
        self._networks: dict[str, nn.Module] = {"actor": self.actor, "critic": self.critic}
        if self.target is not None:
            self._networks["target"] = self.target
        self.log_temperature = torch.tensor(config.temperature, device=device).log()
        per_action = -1.0 if config.entropy_per_action is None else config.entropy_per_action
        self.target_entropy = per_action * actions if config.target_entropy is None else config.target_entropy

        self._actions = actions
        self._actor = Packed(self.actor.mlp)
        self._actor_gradients = Packed(self.actor.mlp, torch.zeros_like(self._actor.values))
        self._temperature = self.log_temperature.exp()
        self._temperature_gradient = torch.zeros_like(self.log_temperature)
        beta1 = 0.9 if config.adam_beta1 is None else config.adam_beta1
        self._adam = {
            name: Adam(values, gradient, config.learning_rate, beta1)
            for name, values, gradient in (
                ("critic", self._critics.packed.values, self._critics.gradients.values),
                ("actor", self._actor.values, self._actor_gradients.values),
                ("temperature", self.log_temperature, self._temperature_gradient),
            )
        }
        self._resize(config.batch_size)
        self._take = Graphs(self._step) if device.type == "cuda" else self._step
        self.updates = 0
        names = ("critic_loss", "actor_loss", "ent_coef_loss", "ent_coef", "entropy")
        self._metrics = {f"train/{name}": torch.zeros((), device=device) for name in names}

    def _resize(self, batch: int) -> None:
        self._actor_tape = Tape(self.actor.mlp, batch, products_for(self.config.precision, self.device))

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> np.ndarray:
        """Sample an action in [-1, 1] for one observation."""
        batch = torch.from_numpy(obs.astype(np.float32)).to(self.device)[None, None]
        return self.actor.act(batch, self.generator)[0, 0].cpu().numpy()

    @torch.inference_mode()
    def act_on_record(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sample an action; return it with its value before the tanh and its log-probability (A + 1)."""
        batch = torch.from_numpy(obs.astype(np.float32)).to(self.device)[None, None]
        before, log_prob = self.actor.draw(batch, self.generator)
        return before.tanh()[0, 0].cpu().numpy(), torch.cat((before, log_prob), dim=-1)[0, 0].cpu().numpy()

    def update(self, batch: Batch, reward: Tensor) -> Mapping[str, Tensor]:
        """Take one gradient step on a batch labelled with rewards (B,)."""
        draws = 2 if self.updates % self.config.actor_every == 0 else 1
        size = len(reward), self._actions
        noise = [torch.randn(size, generator=self.generator, device=self.device) for _ in range(draws)]
        return self.improve(batch, reward, noise)

    def improve(self, batch: Batch, reward: Tensor, noise: Sequence[Tensor]) -> Mapping[str, Tensor]:
        """Take a gradient step with given noise (B, A): for the next actions, and for the actor's if it is its turn."""
        if len(reward) != self._actor_tape.batch:
            self._resize(len(reward))
            self._critics.resize(len(reward))
        follows = self.updates % self.config.target_every == 0
        with torch.inference_mode():  # cheaper than no_grad; memory that lives on is made outside
            self._metrics |= self._take(batch, reward, noise, follows)
        self.updates += 1
        return self._metrics

    def _step(self, batch: Batch, reward: Tensor, noise: Sequence[Tensor], follows: bool) -> dict[str, Tensor]:
        metrics = {"train/critic_loss": self._update_critic(batch, reward, noise[0])}
        if len(noise) > 1:
            metrics |= self._update_actor_and_temperature(batch, noise[1])
        if follows:
            self._critics.follow(self.config.target_momentum)
        return metrics

    def _draw(self, obs: Tensor, noise: Tensor) -> Drawn:
        return self.actor.explore(self._actor_tape.forward(self._actor, obs)[0], noise)

    def _update_critic(self, batch: Batch, reward: Tensor, noise: Tensor) -> Tensor:
        drawn = self._draw(batch.next_obs, noise)
        next_value = self._critics.next_values(batch, drawn.action).amin(dim=0)  # (B, 1)
        soft_value = torch.addcmul(next_value, self._temperature, drawn.surprise)
        # A time limit is no end of the world: only `terminated` stops the bootstrap.
        goal = torch.addcmul(reward[:, None], 1.0 - batch.terminated, soft_value, value=self.config.discount)

        error = self._critics.values(batch) - goal  # (2, B, 1)
        flat = error.view(-1)
        loss = torch.dot(flat, flat) / len(goal)  # the sum of both mean squared errors
        self._critics.backward(error.mul_(2.0 / len(goal)))
        self._adam["critic"].step()
        return loss

    def _update_actor_and_temperature(self, batch: Batch, noise: Tensor) -> dict[str, Tensor]:
        drawn = self._draw(batch.obs, noise)
        values = self._critics.evaluate(batch.critic_obs, drawn.action)  # (2, B, 1)
        value, lower = values.min(dim=0, keepdim=True)
        temperature, share = self._temperature, 1.0 / len(batch.obs)
        by_value = torch.zeros_like(values).scatter_(0, lower, -share)  # only the lower of the two counts
        by_action = self._critics.by_action(by_value)
        by_output = self.actor.explore_backward(drawn, by_action, temperature * -share)
        self._actor_tape.backward(self._actor, by_output[None], self._actor_gradients)
        self._adam["actor"].step()

        entropy = drawn.surprise.mean()
        # By the temperature's logarithm, the gradient of temperature · (entropy - target) is that product itself.
        temperature_loss = torch.mul(temperature, entropy - self.target_entropy, out=self._temperature_gradient)
        self._adam["temperature"].step()
        metrics = {
            "train/actor_loss": -torch.addcmul(value.mean(), temperature, entropy),
            "train/ent_coef_loss": temperature_loss.clone(),
            "train/ent_coef": temperature.clone(),
            "train/entropy": entropy,
        }
        torch.exp(self.log_temperature, out=temperature)
        return metrics

    def state(self) -> dict[str, Tensor]:
        """Return everything that a resumed training needs, as named tensors."""
        state = {"updates": torch.tensor(self.updates), "log_temperature": self.log_temperature}
        for name, network in self._networks.items():
            state |= {f"{name}.{key}": value for key, value in network.state_dict().items()}
        for name, adam in self._adam.items():
            state |= {f"adam.{name}.{key}": value for key, value in adam.state().items()}
        state |= {f"metrics.{name}": value for name, value in self._metrics.items()}
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.updates = int(state["updates"])
        self.log_temperature.copy_(state["log_temperature"])
        torch.exp(self.log_temperature, out=self._temperature)
        for name, network in self._networks.items():
            network.load_state_dict(below(state, f"{name}."))
        for name, adam in self._adam.items():
            for key, value in adam.state().items():
                value.copy_(state[f"adam.{name}.{key}"])
        metrics = below(state, "metrics.")
        self._metrics = {name: metrics[name].to(self.device) for name in self._metrics}
