"""Other libraries' learners in DISk's loop, for benchmarks/time_to_skill.py only.

A peer has the calls that disk/learning/loop.py makes of our learner. Rewards, replay and environments are ours, so that
only the learner differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from disk.learning.replay import Batch
from disk.learning.sac import SAC


def model_of(name: str, inputs: int, actions: int, config: Any, seed: int) -> Any:
    """A model of Stable-Baselines3's kind with our settings, on an environment that is never stepped."""
    from stable_baselines3.common.logger import configure

    if name == "sb3":
        from stable_baselines3 import SAC as algorithm
    else:
        import sbx

        algorithm = sbx.SAC if name == "sbx" else sbx.CrossQ

    class Sizes(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = Box(-np.inf, np.inf, (inputs,), np.float32)
        action_space = Box(-1.0, 1.0, (actions,), np.float32)

    settings = {
        "learning_rate": config.learning_rate,
        "batch_size": config.batch_size,
        "gamma": config.discount,
        "ent_coef": f"auto_{config.temperature}",
        "policy_kwargs": {"net_arch": list(config.hidden)},
    }
    if name != "sbx_crossq":
        settings["tau"] = config.target_momentum
    if name == "sb3":
        settings["target_update_interval"] = config.target_every  # it updates its actor every time
    else:
        settings["policy_delay"] = config.actor_every
    model = algorithm("MlpPolicy", Sizes(), buffer_size=1, seed=seed, device="cpu", **settings)
    model.set_logger(configure(None, []))
    return model


class Peer:
    """A peer's model behind the calls of our learner. `ours` gives the random stream and the shape of the actor."""

    def __init__(self, name: str, ours: SAC, inputs: int, actions: int, seed: int) -> None:
        self.name, self.actor, self.generator, self.device = name, ours.actor, ours.generator, ours.device
        self.model, self.updates = model_of(name, inputs, actions, ours.config, seed), 0

    def act(self, obs: np.ndarray) -> np.ndarray:
        action: np.ndarray = self.model.predict(obs.astype(np.float32), deterministic=False)[0]
        return action

    def update(self, batch: Batch, reward: Tensor) -> Mapping[str, Tensor]:
        from stable_baselines3.common.buffers import ReplayBufferSamples

        labelled = ReplayBufferSamples(batch.obs, batch.action, batch.next_obs, batch.terminated, reward[:, None])
        self.model.replay_buffer = SimpleNamespace(sample=lambda size, env: labelled)
        self.model.train(gradient_steps=1, batch_size=len(reward))
        self.updates += 1
        return {}

    def state(self) -> dict[str, Tensor]:
        return {}

    @torch.no_grad()
    def export(self) -> None:
        """Write the peer's policy into our actor, from which skills are rolled out."""
        layers = _torch_layers(self.model) if self.name == "sb3" else _flax_layers(self.model)
        (mean, of_mean), (deviation, of_deviation) = layers[-2:]
        last = torch.cat((mean, deviation), dim=1), torch.cat((of_mean, of_deviation))
        for (weight, bias), (its_weight, its_bias) in zip(self.actor.mlp.layers, [*layers[:-2], last], strict=True):
            weight[0].copy_(its_weight)
            bias[0, 0].copy_(its_bias)


def _torch_layers(model: Any) -> list[tuple[Tensor, Tensor]]:
    """Weights (in, out) and biases of the hidden layers, the mean and the log standard deviation."""
    hidden = [module for module in model.actor.latent_pi if isinstance(module, torch.nn.Linear)]
    return [(layer.weight.T, layer.bias) for layer in (*hidden, model.actor.mu, model.actor.log_std)]


def _flax_layers(model: Any) -> list[tuple[Tensor, Tensor]]:
    """The same of SBX. Batch renormalisation of CrossQ's actor goes into the layer behind it."""
    state = model.policy.actor_state
    found, statistics, layers = state.params, getattr(state, "batch_stats", None), []
    names = sorted((name for name in found if name.startswith("Dense")), key=lambda name: int(name.split("_")[1]))
    for i, name in enumerate(names):
        weight, bias = (np.asarray(found[name][part]) for part in ("kernel", "bias"))
        if statistics:
            norm = f"BatchRenorm_{min(i, len(names) - 2)}"  # the last one is before the mean and the deviation
            mean, variance = (np.asarray(statistics[norm][part]) for part in ("mean", "var"))
            scale, shift = (np.asarray(found[norm][part]) for part in ("scale", "bias"))
            slope = scale / np.sqrt(variance + 1e-3)
            bias, weight = bias + (shift - slope * mean) @ weight, slope[:, None] * weight
        layers.append((torch.tensor(weight), torch.tensor(bias)))
    return layers
