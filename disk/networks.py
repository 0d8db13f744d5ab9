"""The networks of SAC as batched products, and their optimiser.

An `MLP` holds `copies` networks side by side, weights (C, in, out), so that twin critics, or the actors
of all skills of a run, are one product a layer. Initial weights are orthogonal and biases zero, as in
the pytorch_sac code that the paper builds on. `Tape` (disk/learning/tape.py) and `Actor.explore_backward` are the
chain rule by hand: training spends nothing on a graph, and autograd checks them in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

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
        self.layers = list(zip(self.weights, self.biases, strict=True))  # indexing a ParameterList is slow

    def forward(self, x: Tensor) -> Tensor:  # (C or 1, B, in) → (C, B, out)
        last = len(self.layers) - 1
        x = x.expand(self.layers[0][0].shape[0], -1, -1)
        for i, (weight, bias) in enumerate(self.layers):
            x = torch.baddbmm(bias, x, weight)
            if i < last:
                x = F.relu(x, inplace=True)
        return x


class BatchNormMLP(MLP):
    """An MLP with batch normalisation before every product: of the input, and of each hidden layer's ReLU.

    `forward` uses the running statistics (evaluation mode). `BatchNormTape` has the training mode.
    Scales and shifts of all layers lie side by side, (C, sum of the widths). The running mean and variance of layer i
    are the buffers `mean{i}` and `variance{i}`, (C, width). All copies see one input: its statistics are (1, width).
    """

    EPSILON = 1e-3

    def __init__(self, sizes: Sequence[int], copies: int = 1, generator: torch.Generator | None = None) -> None:
        super().__init__(sizes, copies, generator)
        self.widths = list(sizes[:-1])
        self.scales = nn.Parameter(torch.ones(copies, sum(self.widths)))
        self.shifts = nn.Parameter(torch.zeros(copies, sum(self.widths)))
        for i, width in enumerate(self.widths):
            self.register_buffer(f"mean{i}", torch.zeros(copies if i else 1, width))
            self.register_buffer(f"variance{i}", torch.ones(copies if i else 1, width))

    def forward(self, x: Tensor) -> Tensor:  # (C or 1, B, in) → (C, B, out)
        scales, shifts = (torch.split_with_sizes(norm, self.widths, 1) for norm in (self.scales, self.shifts))
        for i, (weight, bias) in enumerate(self.layers):
            x = F.relu(x) if i else x
            mean, variance = self.get_buffer(f"mean{i}"), self.get_buffer(f"variance{i}")
            slope = scales[i] * (variance + self.EPSILON).rsqrt()
            offset = shifts[i] - slope * mean
            x = torch.baddbmm(bias, x * slope[:, None] + offset[:, None], weight)
        return x


class LayerNormMLP(MLP):
    """An MLP with layer normalisation between each hidden layer's product and its ReLU, as in RLPD."""

    EPSILON = 1e-5

    def __init__(self, sizes: Sequence[int], copies: int = 1, generator: torch.Generator | None = None) -> None:
        super().__init__(sizes, copies, generator)
        self.widths = list(sizes[1:-1])
        self.scales = nn.Parameter(torch.ones(copies, sum(self.widths)))
        self.shifts = nn.Parameter(torch.zeros(copies, sum(self.widths)))

    def forward(self, x: Tensor) -> Tensor:  # (C or 1, B, in) → (C, B, out)
        x = x.expand(len(self.scales), -1, -1)
        norms = zip(
            torch.split_with_sizes(self.scales, self.widths, 1),
            torch.split_with_sizes(self.shifts, self.widths, 1),
            strict=True,
        )
        for (scale, shift), (weight, bias) in zip(norms, self.layers, strict=False):
            x = F.layer_norm(torch.baddbmm(bias, x, weight), scale.shape[1:], eps=self.EPSILON)
            x = F.relu(x * scale[:, None] + shift[:, None])
        weight, bias = self.layers[-1]
        return torch.baddbmm(bias, x, weight)


class Packed:
    """The parameters of an MLP in one piece of memory, and views of it as products want them.

    A bias is the weight of an input that is always 1: it lies below its layer's weights, (C, in + 1, out). The
    MLP's own parameters become views of this memory, unless `values` gives other memory (for their gradients).
    """

    def __init__(self, mlp: MLP, values: Tensor | None = None) -> None:
        layers = [torch.cat((weight, bias), dim=1).detach() for weight, bias in mlp.layers]
        norms = [parameter.detach() for parameter in mlp.parameters(recurse=False)]
        pieces = [*layers, *norms]
        self.values = torch.cat([piece.flatten() for piece in pieces]) if values is None else values
        parts = torch.split_with_sizes(self.values, [piece.numel() for piece in pieces])
        views = [part.view(piece.shape) for part, piece in zip(parts, pieces, strict=True)]
        self.norms, views = views[len(layers) :], views[: len(layers)]  # a normalisation's scales and shifts, if any
        self.weights, self.biases = [view[:, :-1] for view in views], [view[:, -1:] for view in views]
        self.parameters = self.norms + self.weights + self.biases  # in the MLP's order
        if values is None:
            for parameter, view in zip(mlp.parameters(), self.parameters, strict=True):
                parameter.data = view
        self.layers = [list(view) for view in views]  # for each layer and copy (in + 1, out)
        self.transposed = [list(view[:, :-1].mT) for view in views]  # (out, in), without the bias


_tanh_backward = torch.ops.aten.tanh_backward.default  # gradient · (1 - tanh²), given tanh


class Drawn(NamedTuple):
    """Actions a = tanh(u), u = μ + std·ε, and what their gradients need. Shapes (…, A) and (…, 1)."""

    action: Tensor
    surprise: Tensor
    """-log π(a)"""
    std: Tensor
    noise: Tensor
    mapped: Tensor
    """What log std came from: the network's output, or its tanh."""


class Actor(nn.Module):
    """A tanh-Gaussian policy: a = tanh(μ(s) + std(s)·ε). `copies` of them for a batch of skills."""

    _middle: Tensor

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
        """`clips`: clip the log standard deviation at its bounds, instead of mapping it into them."""
        super().__init__()
        self.mlp = MLP([inputs, *hidden, 2 * actions], copies, generator)
        self.low, self.high = log_std_bounds
        self.clips, self._half = clips, 0.5 * (self.high - self.low)
        self.register_buffer("_middle", torch.tensor(0.5 * (self.high + self.low)), persistent=False)

    def mode(self, obs: Tensor) -> Tensor:  # (C or 1, B, in) → (C, B, A)
        mean: Tensor = self.mlp(obs).chunk(2, dim=-1)[0]
        return mean.tanh()

    def act(self, obs: Tensor, generator: torch.Generator) -> Tensor:
        """Sample actions (C, B, A)."""
        output = self.mlp(obs)
        return self._gaussian(output, self._noise(output, generator))[0].tanh_()

    def sample(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sample actions (C, B, A) with log-probabilities (C, B, 1), differentiable in the parameters."""
        output = self.mlp(obs)
        drawn = self.explore(output, self._noise(output, generator))
        return drawn.action, -drawn.surprise

    def draw(self, obs: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sample actions as they are before the tanh, which cannot be inverted where it saturates."""
        output = self.mlp(obs)
        before, log_std, _, _ = self._gaussian(output, self._noise(output, generator))
        return before, _log_prob(output.chunk(2, dim=-1)[0], log_std, before)

    def log_prob(self, obs: Tensor, before: Tensor) -> Tensor:
        """Return the log-probabilities (C, B, 1) of actions (C, B, A) given as they were before the tanh."""
        output = self.mlp(obs)
        return _log_prob(output.chunk(2, dim=-1)[0], self._log_std(output)[0], before)

    def explore(self, output: Tensor, noise: Tensor) -> Drawn:
        """Turn the network's output (…, 2A) and standard normal noise (…, A) into actions."""
        before, log_std, std, mapped = self._gaussian(output, noise)
        # -log N(u; μ, std) and log(1 - tanh(u)²), each without its constant. The latter is -2(u + softplus(-2u)),
        # the form that does not lose small numbers, and softplus with β = -2 is -½ softplus(-2u).
        gaussian = torch.addcmul(log_std, noise, noise, value=0.5)
        squash = torch.sub(before, F.softplus(before, beta=-2.0), alpha=2.0)
        constants = noise.shape[-1] * (HALF_LOG_2PI + 2.0 * LOG_2)
        surprise = torch.sub(gaussian, squash, alpha=2.0).sum(-1, keepdim=True) + constants
        return Drawn(before.tanh(), surprise, std, noise, mapped)

    def explore_backward(self, drawn: Drawn, by_action: Tensor, by_surprise: Tensor) -> Tensor:
        """Return the loss' gradient by the network's output (…, 2A), from those by the actions and the surprise."""
        # ∂surprise/∂u = -2 tanh u, for the Gaussian's own part does not depend on u once ε is fixed.
        by_u = torch.addcmul(_tanh_backward(by_action, drawn.action), by_surprise, drawn.action, value=-2.0)
        by_log_std = torch.addcmul(by_surprise, by_u * drawn.std, drawn.noise)
        if self.clips:
            by_raw = by_log_std * ((drawn.mapped >= self.low) & (drawn.mapped <= self.high))
        else:
            by_raw = _tanh_backward(by_log_std, drawn.mapped) * self._half
        return torch.cat((by_u, by_raw), dim=-1)

    def _gaussian(self, output: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """u = μ + std·ε, log std, std, and what log std came from."""
        log_std, mapped = self._log_std(output)
        std = log_std.exp()
        return torch.addcmul(output[..., : noise.shape[-1]], std, noise), log_std, std, mapped

    def _log_std(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """log std, and what it came from."""
        if self.clips:
            raw = output.chunk(2, dim=-1)[1]
            return raw.clamp(self.low, self.high), raw
        squeezed = output.tanh().chunk(2, dim=-1)[1]  # of all, because a part of each row takes longer
        return torch.add(self._middle, squeezed, alpha=self._half), squeezed

    @staticmethod
    def _noise(output: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randn((*output.shape[:-1], output.shape[-1] // 2), generator=generator, device=output.device)


def _log_prob(mean: Tensor, log_std: Tensor, before: Tensor) -> Tensor:
    gaussian = -0.5 * ((before - mean) * (-log_std).exp()).square() - log_std - HALF_LOG_2PI
    squash = 2.0 * (LOG_2 - before - F.softplus(-2.0 * before))
    return (gaussian - squash).sum(-1, keepdim=True)


class Adam:
    """Adam over parameters that lie in one piece of memory: a step is one kernel.

    The same kernel as `torch.optim.Adam(fused=True)`, without the Python around it.
    """

    def __init__(self, values: Tensor, gradient: Tensor, learning_rate: float, beta1: float = 0.9) -> None:
        self.gradient, self.learning_rate, self.beta1 = gradient, learning_rate, beta1
        self.mean, self.square = torch.zeros_like(values), torch.zeros_like(values)
        self.steps = torch.zeros((), dtype=torch.float32, device=values.device)
        self._tensors = ([values], [gradient], [self.mean], [self.square], list[Tensor](), [self.steps])

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed training needs. Copy into these tensors; do not replace them."""
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    def step(self) -> None:
        """Take one step down the gradient."""
        self.steps += 1.0
        # Moments of units that are never active decay to denormals, on which Intel's processors spend 150 cycles each.
        torch.set_flush_denormal(True)
        torch._fused_adam_(
            *self._tensors,
            lr=self.learning_rate,
            beta1=self.beta1,
            beta2=0.999,
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        torch.set_flush_denormal(False)
