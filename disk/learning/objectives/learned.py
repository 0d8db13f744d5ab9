"""A network and its optimiser, with one state to save and resume."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class Learned:
    def __init__(self, network: nn.Module, learning_rate: float) -> None:
        self.network = network
        self._parameters = list(network.parameters())
        self._optimizer = torch.optim.Adam(self._parameters, lr=learning_rate, fused=True)

    def step(self, loss: Tensor) -> None:
        for parameter, gradient in zip(self._parameters, torch.autograd.grad(loss, self._parameters), strict=True):
            parameter.grad = gradient
        self._optimizer.step()

    def state(self, name: str) -> dict[str, Tensor]:
        state = {f"{name}.{key}": value for key, value in self.network.state_dict().items()}
        for index, moments in self._optimizer.state_dict()["state"].items():
            state |= {f"{name}.adam.{index}.{key}": value for key, value in moments.items()}
        return state

    def load_state(self, name: str, state: Mapping[str, Tensor]) -> None:
        moments: dict[int, dict[str, Tensor]] = {}
        weights: dict[str, Tensor] = {}
        for key, value in state.items():
            if key.startswith(f"{name}.adam."):
                index, moment = key.removeprefix(f"{name}.adam.").split(".")
                moments.setdefault(int(index), {})[moment] = value.clone()
            elif key.startswith(f"{name}."):
                weights[key.removeprefix(f"{name}.")] = value
        self.network.load_state_dict(weights)
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": moments})
