"""METRA's reward: a skill is paid for going far along its own direction z of a learned space.

r = (φ(s') - φ(s))ᵀz, and φ is trained to maximise it while one step is at most 1 long in its space,
‖φ(s') - φ(s)‖² ≤ 1, by dual gradient descent: a dual variable grows while steps are longer and shrinks, never
faster than by the slack, while they are shorter. It needs no projection σ; states are obs ⊕ position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from disk.config.settings import Model
from disk.lazy import Lazy
from disk.learning.objectives import Kind, Setting

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

    from disk.learning.replay import Batch
    from disk.learning.schedules import Prior
    from disk.storage.replay import Columns
else:
    torch = Lazy("torch")


class Metra(Model):
    """METRA's reward, (φ(s') - φ(s))ᵀz, and φ, in which a step is at most 1 long."""

    hidden: list[PositiveInt]
    """Widths of φ's hidden layers."""
    learning_rate: PositiveFloat
    """Of φ and the dual variable (Adam)."""
    latent_size: Annotated[int, Field(ge=2)]
    """Dimensions of φ and z; z is on the unit sphere."""
    dual: PositiveFloat
    """The dual variable at the start."""
    slack: NonNegativeFloat
    """How much a step that is shorter than 1 counts at most."""
    relabel: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    """Share of the policy's replayed transitions that get another latent from the prior. Null: none."""


class MetraObjective:
    def __init__(self, config: Metra, columns: Columns, seed: int, device: torch.device) -> None:
        from disk.learning.objectives.learned import Learned
        from disk.networks import MLP

        self.config = config
        initial = torch.Generator().manual_seed(seed)
        self.encoder = MLP([columns.obs, *config.hidden, config.latent_size], generator=initial).to(device)
        self._model = Learned(self.encoder, config.learning_rate)
        self._log_dual = torch.nn.ParameterList([torch.tensor(math.log(config.dual), device=device)])
        self._dual = Learned(self._log_dual, config.learning_rate)

    def observe(self, skill: int, sigma: np.ndarray) -> None: ...

    def start(self, sample: Callable[[], Batch]) -> None: ...

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        batch = sample()
        moved = self.moved(batch)
        short = 1.0 - moved.square().sum(dim=1)  # above 0 where the constraint holds
        room = short.clamp(max=self.config.slack)
        dual = self._log_dual[0]
        self._model.step(-((moved * batch.label).sum(dim=1) + dual.detach().exp() * room).mean())
        self._dual.step(dual * room.detach().mean())
        length = (1.0 - short.detach()).mean()
        return {"train/dual": dual.detach().exp(), "train/squared_length": length}

    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        with torch.no_grad():
            reward = (self.moved(batch) * batch.label).sum(dim=1)
            return reward, {"reward/mean": reward.mean()}

    def moved(self, batch: Batch) -> Tensor:  # (B, latent size)
        """φ(s') - φ(s)."""
        now, then = self.encoder(torch.cat((batch.next_obs, batch.obs))[None])[0].chunk(2)
        difference: Tensor = now - then
        return difference

    def state(self) -> dict[str, Tensor]:
        return {**self._model.state("encoder"), **self._dual.state("dual")}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._model.load_state("encoder", state)
        self._dual.load_state("dual", state)


def make(settings: Metra, given: Setting) -> MetraObjective:
    return MetraObjective(settings, given.columns, given.seed, given.device)


def prior(settings: Metra, sigma_size: int) -> Prior:
    from disk.learning.schedules import Prior

    return Prior("sphere", settings.latent_size)


OBJECTIVE = Kind(Metra, make, prior=prior, sees_position=True)
