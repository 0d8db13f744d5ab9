"""The two networks of SAC, as batched products.

An `MLP` holds `copies` networks side by side, weights (C, in, out), so that twin critics, or the actors
of all skills of a run, are one product a layer. Initial weights are orthogonal and biases zero, as in
the pytorch_sac code that the paper builds on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LOG_2 = math.log(2.0)
HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


class MLP(nn.Module):
    """ReLU networks that share a shape and nothing else."""

    def __init__(self, sizes: Sequence[int], copies: int = 1, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for inputs, outputs in pairwise(sizes):
            weight = torch.empty(copies, inputs, outputs)
            for copy in weight:
                nn.init.orthogonal_(copy, generator=generator)
            self.weights.append(weight)
            self.biases.append(torch.zeros(copies, 1, outputs))
        self._layers = list(zip(self.weights, self.biases, strict=True))  # indexing a ParameterList is slow

    def forward(self, x: Tensor) -> Tensor:  # (C or 1, B, in) → (C, B, out)
        last = len(self._layers) - 1
        x = x.expand(self._layers[0][0].shape[0], -1, -1)
        for i, (weight, bias) in enumerate(self._layers):
            x = torch.baddbmm(bias, x, weight)
            if i < last:
                x = F.relu(x, inplace=True)
        return x


class Actor(nn.Module):
    """A tanh-Gaussian policy: a = tanh(μ(s) + std(s)·ε). `copies` of them for a batch of skills."""

    def __init__(
        self,
        inputs: int,
        actions: int,
        hidden: Sequence[int],
        log_std_bounds: Sequence[float],
        copies: int = 1,
        generator: torch.Generator | None = None,
        clips: bool = False,
    ) -> None:
        """`clips`: the log standard deviation is cut off at its bounds, instead of mapped into them."""
        super().__init__()
        self.mlp = MLP([inputs, *hidden, 2 * actions], copies, generator)
        self.log_std_bounds, self.clips = log_std_bounds, clips

    def mode(self, obs: Tensor) -> Tensor:  # (C or 1, B, in) → (C, B, A)
        mean: Tensor = self.mlp(obs).chunk(2, dim=-1)[0]
        return mean.tanh()

    def sample(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Actions (C, B, A) and their log-probabilities (C, B, 1), differentiable in the parameters."""
        mean, raw = self.mlp(obs).chunk(2, dim=-1)
        log_std = self._log_std(raw)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        before = torch.addcmul(mean, log_std.exp(), noise)
        gaussian = -0.5 * noise.square() - log_std - HALF_LOG_2PI
        # log(1 - tanh(u)²) in the form that does not lose small numbers
        squash = 2.0 * (LOG_2 - before - F.softplus(-2.0 * before))
        return before.tanh(), (gaussian - squash).sum(-1, keepdim=True)

    def draw(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Like `sample`, but actions as they are before the tanh, which a saturated one cannot be taken back to."""
        mean, raw = self.mlp(obs).chunk(2, dim=-1)
        log_std = self._log_std(raw)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        before = torch.addcmul(mean, log_std.exp(), noise)
        return before, _log_prob(mean, log_std, before)

    def log_prob(self, obs: Tensor, before: Tensor) -> Tensor:
        """Log-probabilities (C, B, 1) of actions (C, B, A) that are given as they were before the tanh."""
        mean, raw = self.mlp(obs).chunk(2, dim=-1)
        return _log_prob(mean, self._log_std(raw), before)

    def _log_std(self, raw: Tensor) -> Tensor:
        low, high = self.log_std_bounds
        return raw.clamp(low, high) if self.clips else low + 0.5 * (high - low) * (raw.tanh() + 1.0)


def _log_prob(mean: Tensor, log_std: Tensor, before: Tensor) -> Tensor:
    gaussian = -0.5 * ((before - mean) * (-log_std).exp()).square() - log_std - HALF_LOG_2PI
    squash = 2.0 * (LOG_2 - before - F.softplus(-2.0 * before))
    return (gaussian - squash).sum(-1, keepdim=True)
