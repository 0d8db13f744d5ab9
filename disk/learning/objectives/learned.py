"""A network and its optimiser, with one state to save and resume."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from disk.networks import Adam


class Learned:
    def __init__(self, network: nn.Module, learning_rate: float) -> None:
        self.network = network
        self._parameters = list(network.parameters())
        # torch.optim would import torch's compiler: a CPU-second in each job, for nothing.
        self._adams = [Adam(each.detach(), torch.zeros_like(each), learning_rate) for each in self._parameters]

    def step(self, loss: Tensor) -> None:
        for adam, gradient in zip(self._adams, torch.autograd.grad(loss, self._parameters), strict=True):
            adam.gradient.copy_(gradient)
            adam.step()

    def state(self, name: str) -> dict[str, Tensor]:
        state = {f"{name}.{key}": value for key, value in self.network.state_dict().items()}
        for index, adam in enumerate(self._adams):
            state |= {f"{name}.adam.{index}.{key}": value for key, value in adam.state().items()}
        return state

    def load_state(self, name: str, state: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for key, value in self.state(name).items():
                value.copy_(state[key])
