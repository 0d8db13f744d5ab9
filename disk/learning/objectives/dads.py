"""Off-DADS' reward: a skill is paid for moving in a way that other skills would not have moved.

The skill dynamics q predict the change of position Δ over a step from z alone: with the x-y prior of the official
settings they see no state. The reward compares how likely the step is under the own z and under L latents from the
prior: r = log(L + 1) - log(1 + Σᵢ exp(log q(Δ|zᵢ) - log q(Δ|z))), 0 where q ignores z and never above log(L + 1).
The dynamics learn from steps of older policies too; importance weights make up for that, on their loss only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

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

EPSILON = 1e-3
"""Added to the variance of Δ when it is normalised: the official implementation's, which is TensorFlow's."""
FIRST_BATCHES = 16
"""Batches of the seed steps that the running mean and variance may start from."""
MOST = 50.0
"""Differences of log-likelihoods are clipped here."""


class Dads(Model):
    """Off-DADS' reward, and its skill dynamics q: a mixture of unit Gaussians over the change of position, given z."""

    hidden: list[PositiveInt]
    """Widths of the hidden layers of the skill dynamics."""
    learning_rate: PositiveFloat
    """Of the skill dynamics (Adam)."""
    components: PositiveInt
    """Gaussians in the mixture."""
    prior_latents: PositiveInt
    """L: latents from the prior that an own latent is compared with."""
    reward_scale: PositiveFloat
    """Factor of the reward."""
    most_weight: Annotated[float, Field(ge=1.0)]
    """Importance weights of the dynamics' loss are clipped to this and its inverse."""
    momentum: Annotated[float, Field(gt=0.0, le=1.0)]
    """Share of a batch's mean and variance that the running ones take over, by which targets are normalised."""
    target: Literal["velocity"] | None = None
    """`velocity`: q predicts σ itself, the change divided by the step's length. Null: the change, as officially."""
    statistics: Literal["seed_steps"] | None = None
    """`seed_steps`: the running mean and variance start from the seed steps' data. Null: they start at 0 and 1."""


class DadsObjective:
    def __init__(
        self,
        config: Dads,
        columns: Columns,
        dt: float,
        log_prob: Callable[[Batch], Tensor],
        seed: int,
        device: torch.device,
    ) -> None:
        """σ times `dt` is Δ. `log_prob` returns how likely the current policy takes a batch's actions (B,)."""
        from disk.learning.objectives.learned import Learned
        from disk.networks import MLP

        self.config, self.log_prob, self.latent_size = config, log_prob, columns.label
        self.unit = 1.0 if config.target == "velocity" else dt
        """σ times this is what q predicts."""
        outputs = config.components * (1 + columns.sigma)
        initial = torch.Generator().manual_seed(seed)
        self.dynamics = MLP([columns.label, *config.hidden, outputs], generator=initial).to(device)
        self._model = Learned(self.dynamics, config.learning_rate)
        self.mean, self.variance = torch.zeros(columns.sigma, device=device), torch.ones(columns.sigma, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)

    def observe(self, skill: int, sigma: np.ndarray) -> None: ...

    def start(self, sample: Callable[[], Batch]) -> None:
        """Start the statistics from the seed steps, which are all that the replay holds."""
        if self.config.statistics is None:
            return
        drawn = torch.cat([sample().sigma for _ in range(FIRST_BATCHES)]) * self.unit
        self.mean.copy_(drawn.mean(dim=0))
        self.variance.copy_(drawn.var(dim=0))

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        batch = sample()
        weights = self.weights(batch)
        target = self._normalised(batch, training=True)
        loss = -(weights * self._log_likelihood(self.dynamics(batch.label[None])[0], target)).mean()
        self._model.step(loss)
        return {"train/dynamics_loss": loss.detach(), "train/importance_weight": weights.mean()}

    def weights(self, batch: Batch) -> Tensor:  # (B,)
        """Return how much likelier the actions are now than when they were taken."""
        with torch.no_grad():
            ratio = (self.log_prob(batch) - batch.origin[:, -1]).exp()
            return ratio.clamp(1.0 / self.config.most_weight, self.config.most_weight)

    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        with torch.no_grad():
            count = self.config.prior_latents
            # The batch shares the latents. Since q sees no state, that is one pass for each latent, not for each latent
            # and transition. The official implementation draws others for every transition.
            drawn = torch.rand(count, self.latent_size, generator=self.generator, device=batch.rows.device)
            target = self._normalised(batch, training=False)
            own = self._log_likelihood(self.dynamics(batch.label[None])[0], target)  # (B,)
            others = self._log_likelihood(self.dynamics((2.0 * drawn - 1.0)[None])[0], target[:, None])  # (B, L)
            apart = (others - own[:, None]).clamp(-MOST, MOST)
            # The zero that is put in front is the 1 of the sum.
            information = math.log(count + 1) - torch.nn.functional.pad(apart, (1, 0)).logsumexp(dim=1)
            reward = self.config.reward_scale * information
            return reward, {"reward/mean": reward.mean()}

    def _normalised(self, batch: Batch, training: bool) -> Tensor:  # (B, D)
        change = batch.sigma * self.unit
        return torch.nn.functional.batch_norm(
            change, self.mean, self.variance, None, None, training, self.config.momentum, EPSILON
        )

    def _log_likelihood(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Return the log-likelihood of targets (…, D) under mixtures (N, …) that broadcast, without its constant."""
        count = self.config.components
        logits, means = outputs[..., :count], outputs[..., count:].reshape(len(outputs), count, -1)  # (N, K, D)
        squares = (target.unsqueeze(-2) - means).square().sum(-1)  # (…, N, K)
        return torch.logsumexp(logits.log_softmax(dim=-1) - 0.5 * squares, dim=-1)

    def state(self) -> dict[str, Tensor]:
        own = {"mean": self.mean, "variance": self.variance, "generator": self.generator.get_state()}
        return {**own, **self._model.state("dynamics")}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.mean.copy_(state["mean"])
        self.variance.copy_(state["variance"])
        self.generator.set_state(state["generator"])
        self._model.load_state("dynamics", state)


def make(settings: Dads, given: Setting) -> DadsObjective:
    actor = given.agents[0].actor

    def log_prob(batch: Batch) -> Tensor:
        return actor.log_prob(batch.given(batch.label).obs[None], batch.origin[None, :, :-1])[0, :, 0]

    dt = given.env.dt if given.job.world.sigma == "velocity" else 1.0
    return DadsObjective(settings, given.columns, dt, log_prob, given.seed, given.device)


def prior(settings: Dads, sigma_size: int) -> Prior:
    from disk.learning.schedules import Prior

    return Prior("cube", sigma_size)


OBJECTIVE = Kind(Dads, make, prior=prior, weighs_actions=True)
