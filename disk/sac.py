"""Soft actor-critic: twin critics, a tanh-Gaussian actor, a learned temperature.

`SAC.update` is one step of the algorithm in the paper's appendix: critics on the soft Bellman residual,
every second time the actor and the temperature, every second time the critics' target. It takes a batch
and its rewards, wherever these come from, and returns metrics as detached tensors; nothing in here waits
for the device.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from disk.config import Sac
from disk.networks import MLP, Actor
from disk.replay import Batch


class SAC:
    def __init__(
        self, observations: int, actions: int, config: Sac, generator: torch.Generator, device: torch.device
    ) -> None:
        self.config, self.generator, self.device = config, generator, device
        bounds = config.log_std_bounds
        # Initial weights are drawn on the CPU, so that they are the same on every device.
        initial = torch.Generator().manual_seed(generator.initial_seed())
        self.actor = Actor(observations, actions, config.hidden, bounds, 1, initial, config.log_std == "clip").to(
            device
        )
        critic_sizes = [observations + actions, *config.hidden, 1]
        self.critic = MLP(critic_sizes, copies=2, generator=initial).to(device)
        self.target = MLP(critic_sizes, copies=2).to(device).requires_grad_(False)
        self.target.load_state_dict(self.critic.state_dict())
        self.log_temperature = torch.tensor(config.temperature, device=device).log().requires_grad_()
        per_action = -1.0 if config.entropy_per_action is None else config.entropy_per_action
        self.target_entropy = per_action * actions if config.target_entropy is None else config.target_entropy

        self._actor_parameters: list[Tensor] = list(self.actor.parameters())
        self._critic_parameters: list[Tensor] = list(self.critic.parameters())
        self._target_parameters: list[Tensor] = list(self.target.parameters())
        self._optimizers = {
            name: torch.optim.Adam(parameters, lr=config.learning_rate, fused=True)
            for name, parameters in (
                ("critic", self._critic_parameters),
                ("actor", self._actor_parameters),
                ("temperature", [self.log_temperature]),
            )
        }
        self.updates = 0
        names = ("critic_loss", "actor_loss", "ent_coef_loss", "ent_coef", "entropy")
        self._metrics = {f"train/{name}": torch.zeros((), device=device) for name in names}

    @torch.inference_mode()
    def act(self, obs: np.ndarray) -> np.ndarray:
        """One sampled action in [-1, 1] for one observation."""
        batch = torch.from_numpy(obs.astype(np.float32)).to(self.device)[None, None]
        action, _ = self.actor.sample(batch, self.generator)
        return action[0, 0].cpu().numpy()

    @torch.inference_mode()
    def act_on_record(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A sampled action, and how it came about (A + 1): its value before the tanh, and its log-probability."""
        batch = torch.from_numpy(obs.astype(np.float32)).to(self.device)[None, None]
        before, log_prob = self.actor.draw(batch, self.generator)
        return before.tanh()[0, 0].cpu().numpy(), torch.cat((before, log_prob), dim=-1)[0, 0].cpu().numpy()

    def update(self, batch: Batch, reward: Tensor) -> Mapping[str, Tensor]:
        """One gradient step on a batch labelled with rewards (B,)."""
        self._update_critic(batch, reward)
        if self.updates % self.config.actor_every == 0:
            self._update_actor_and_temperature(batch)
        if self.updates % self.config.target_every == 0:
            with torch.no_grad():
                torch._foreach_lerp_(self._target_parameters, self._critic_parameters, self.config.target_momentum)
        self.updates += 1
        return self._metrics

    def _update_critic(self, batch: Batch, reward: Tensor) -> None:
        with torch.no_grad():
            next_action, log_prob = self.actor.sample(batch.next_obs[None], self.generator)
            next_values = self.target(torch.cat((batch.next_obs[None], next_action), dim=-1))  # (2, B, 1)
            soft_value = next_values.amin(dim=0) - self.log_temperature.exp() * log_prob[0]  # (B, 1)
            # A time limit is no end of the world: only `terminated` stops the bootstrap.
            goal = reward[:, None] + self.config.discount * (1.0 - batch.terminated) * soft_value
        values = self.critic(batch.obs_action[None])  # (2, B, 1)
        loss = F.mse_loss(values, goal.expand_as(values)) * 2.0  # the sum of both critics' losses
        self._step("critic", loss, self._critic_parameters)
        self._metrics["train/critic_loss"] = loss.detach()

    def _update_actor_and_temperature(self, batch: Batch) -> None:
        obs = batch.obs[None]
        action, log_prob = self.actor.sample(obs, self.generator)
        value = self.critic(torch.cat((obs, action), dim=-1)).amin(dim=0)  # (B, 1)
        temperature = self.log_temperature.exp()
        entropy = -log_prob.detach().mean()
        actor_loss = (temperature.detach() * log_prob[0] - value).mean()
        self._step("actor", actor_loss, self._actor_parameters)
        temperature_loss = temperature * (entropy - self.target_entropy)
        self._step("temperature", temperature_loss, [self.log_temperature])
        self._metrics["train/actor_loss"] = actor_loss.detach()
        self._metrics["train/ent_coef_loss"] = temperature_loss.detach()
        self._metrics["train/ent_coef"] = temperature.detach()
        self._metrics["train/entropy"] = entropy

    def _step(self, name: str, loss: Tensor, parameters: list[Tensor]) -> None:
        # Gradients of exactly these parameters: the actor's loss leaves the critics' gradients alone.
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        self._optimizers[name].step()

    def state(self) -> dict[str, Tensor]:
        """Everything that training goes on from, as named tensors."""
        state = {"updates": torch.tensor(self.updates), "log_temperature": self.log_temperature.detach()}
        for name in ("actor", "critic", "target"):
            state |= {f"{name}.{key}": value for key, value in getattr(self, name).state_dict().items()}
        for name, optimizer in self._optimizers.items():
            for index, moments in optimizer.state_dict()["state"].items():
                state |= {f"adam.{name}.{index}.{key}": value for key, value in moments.items()}
        state |= {f"metrics.{name}": value for name, value in self._metrics.items()}
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.updates = int(state["updates"])
        with torch.no_grad():
            self.log_temperature.copy_(state["log_temperature"])
        for name in ("actor", "critic", "target"):
            getattr(self, name).load_state_dict(_below(state, name))
        for name, optimizer in self._optimizers.items():
            moments: dict[int, dict[str, Tensor]] = {}
            for key, value in _below(state, f"adam.{name}").items():
                index, moment = key.split(".")
                moments.setdefault(int(index), {})[moment] = value.clone()
            optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        metrics = _below(state, "metrics")
        self._metrics = {name: metrics[name].to(self.device) for name in self._metrics}


def _below(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key[len(prefix) + 1 :]: value for key, value in state.items() if key.startswith(f"{prefix}.")}
