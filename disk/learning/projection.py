"""Learn φ, the projection of rows with `sigma: learned`, from a replay; docs/projection.md has the reasons.

φ spreads the replay's states as far as it can while a step is at most 1 long:

    maximise  tr Cov[φ(s)]^½   subject to   ‖φ(s') - φ(s)‖² ≤ 1.

The constraint and its dual variable are METRA's. METRA's other half needs a latent, which a chain does not have. The
spread takes its place: the deviations along φ's principal axes, added up. So φ finds what goes far in many steps of
one direction. An axis gets its share of the step's length by how far it goes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from disk import projection
from disk.config import Projection
from disk.learning.objectives.learned import Learned
from disk.learning.replay import Batch

FIRST_BATCHES = 32
"""Batches that states are normalised by."""
SMALLEST = 1e-6
"""Smallest scale of a number in a state, and smallest spread of φ: neither is divided by 0."""


class LearnedProjection:
    """φ, once `learn` was called, and its state in a checkpoint. It never changes after that."""

    def __init__(self, config: Projection, states: int, seed: int, device: torch.device) -> None:
        initial = torch.Generator().manual_seed(seed)
        shape = (states, config.hidden, config.width, config.distance)
        self.config, self.network = config, projection.Projection(*shape, generator=initial).to(device)
        self.learned, self.seconds = False, 0.0

    def __call__(self, moves: Tensor) -> Tensor:
        """Return σ of moves (N, 2F), states before and after a step."""
        if not self.learned:
            raise RuntimeError("φ has not been learned: call learn first")
        sigma: Tensor = self.network(moves)
        return sigma

    def learn(self, sample: Callable[[], Batch]) -> None:
        """Train φ on batches of the replay."""
        started, config, network = time.monotonic(), self.config, self.network
        before, after = torch.cat([sample().sigma for _ in range(FIRST_BATCHES)]).chunk(2, dim=1)
        network.mean.copy_(after.mean(dim=0))
        # In units of its own steps, a number's deviation is how many steps it goes far.
        network.scale.copy_((after - before).std(dim=0).clamp(min=SMALLEST))
        log_dual = torch.nn.ParameterList([torch.tensor(math.log(config.dual), device=network.mean.device)])
        model, dual = Learned(network, config.learning_rate), Learned(log_dual, config.learning_rate)
        for _ in range(config.updates):
            before, after = sample().sigma.chunk(2, dim=1)
            now, then = network.place(torch.cat((after, before))).chunk(2)
            room = (1.0 - (now - then).square().sum(dim=1)).clamp(max=config.slack).mean()
            model.step(-(spread(now) + log_dual[0].detach().exp() * room))
            dual.step(log_dual[0] * room.detach())
        network.requires_grad_(False)
        self.learned, self.seconds = True, time.monotonic() - started

    def state(self) -> dict[str, Tensor]:
        known = {"learned": torch.tensor(self.learned), "seconds": torch.tensor(self.seconds, dtype=torch.float64)}
        return {**known, **{f"network.{key}": value for key, value in self.network.state_dict().items()}}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.learned, self.seconds = bool(state["learned"]), float(state["seconds"])
        self.network.load_state_dict({key: state[f"network.{key}"] for key in self.network.state_dict()})


def spread(places: Tensor) -> Tensor:
    """Return the sum of the deviations of places (N, D) along their principal axes."""
    covariance = torch.cov(places.T).reshape(places.shape[1], -1)
    deviations: Tensor = torch.linalg.eigvalsh(covariance).clamp(min=SMALLEST).sqrt()
    return deviations.sum()
