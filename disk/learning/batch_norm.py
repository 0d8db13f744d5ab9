"""Batch normalisation by hand, for the joint pass of CrossQ (Bhatt et al., 2024).

Two halves of a batch go through the network together, normalised by the statistics of both. The loss has gradients by
the first half's values only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from disk.learning.tape import Products, padded, products, relu_backward
from disk.networks import BatchNormMLP, Packed

MOMENTUM = 0.01
"""Share of a batch's mean and variance that the running ones take over."""
LARGE = 2**15
"""Weights of at least this many numbers a copy are handled copy by copy, so that they stay in the cache."""


class Folded(Packed):
    """Batch normalisation folded into the product behind it, so that a plain product of raw inputs does both.

    For statistics m, v of the input x, scale γ and shift β, with slope a = γ/√(v + ε) and offset c = β - a·m:
    (a·x + c)·W + b = x·(a·W) + (c·W + b). Only weights are touched, never rows of a batch.
    """

    def __init__(self, mlp: BatchNormMLP, network: Packed) -> None:
        super().__init__(mlp, torch.zeros_like(network.values))
        self.network, self.widths, self.epsilon = network, mlp.widths, network.values.new_tensor(mlp.EPSILON)
        self.scales, self.shifts = (torch.split_with_sizes(norm, mlp.widths, 1) for norm in network.norms)
        self.running = [Running(mlp, i) for i in range(len(mlp.widths))]
        self.last = [Statistics(mlp, i) for i in range(len(mlp.widths))]
        """Of the statistics folded last: their mean, and 1/√(v + ε) as the spread."""
        self.slopes, self.offsets = ([torch.zeros_like(x) for x in self.scales] for _ in range(2))  # (C, width) a layer
        self.columns = [
            (slope[:, :, None], offset[:, :, None]) for slope, offset in zip(self.slopes, self.offsets, strict=True)
        ]
        self._rows = [
            list(zip(network.biases[i], offset[:, None], network.weights[i], self.biases[i], strict=True))
            for i, offset in enumerate(self.offsets)
        ]

    def fold(self, i: int, mean: Tensor, variance: Tensor) -> None:
        """Fold layer `i`'s normalisation by these statistics, rows of `Statistics`."""
        last, slope, offset = self.last[i], self.slopes[i], self.offsets[i]
        last.mean.copy_(mean)
        torch.add(variance, self.epsilon, out=last.spread).rsqrt_()
        torch.mul(self.scales[i], last.spread_of, out=slope)
        torch.addcmul(self.shifts[i], slope, last.mean_of, value=-1.0, out=offset)
        torch.mul(self.network.weights[i], self.columns[i][0], out=self.weights[i])
        for bias, row, weight, folded in self._rows[i]:  # copy by copy: a batched product takes ten times as long
            torch.addmm(bias, row, weight, out=folded)

    def evaluate(self) -> Folded:
        """Fold every layer by the running statistics."""
        for i, running in enumerate(self.running):
            self.fold(i, running.mean, running.spread)
        return self


class Statistics:
    """Mean and spread of one layer's input, in memory as wide as `_Beside`'s rows, and views of it, (C, width)."""

    def __init__(self, mlp: BatchNormMLP, i: int) -> None:
        copies, width = mlp.get_buffer(f"mean{i}").shape  # one copy of the input, which is the same for all
        memory = mlp.scales.new_zeros(2, copies, padded(width))
        self.mean, self.spread = memory.view(2, -1)
        self.views = memory[:, :, :width]
        self.mean_of, self.spread_of = self.views.expand(-1, len(mlp.scales), -1)


class Running(Statistics):
    """The running mean and variance of one layer. The MLP's own become views of them."""

    def __init__(self, mlp: BatchNormMLP, i: int) -> None:
        super().__init__(mlp, i)
        for name, view in zip((f"mean{i}", f"variance{i}"), self.views, strict=True):
            view.copy_(mlp.get_buffer(name))
            setattr(mlp, name, view)


class BatchNormTape:
    """A tape for batch normalisation in training mode: statistics are those of the rows of both halves together.

    The loss has gradients by the first half's values. Through the statistics it has some by every row's activations.
    """

    def __init__(
        self, mlp: BatchNormMLP, folded: Folded, gradients: Packed, batch: int, multiply: Products = products
    ) -> None:
        self._folded, self._gradients, self._half, self._multiply = folded, gradients, batch, multiply
        first, last = mlp.layers[0][0], mlp.layers[-1][0]
        self._copies, self._rows = len(first), 2 * batch
        self._share = first.new_tensor(-1.0 / self._rows)  # a tensor: a Python number is converted in every operation
        self._inputs = [_Beside(first, 1, self._rows, mlp.widths[0])]
        self._inputs += [_Beside(first, self._copies, self._rows, width) for width in mlp.widths[1:]]
        self._deltas = [self._room_for_deltas(first, i) for i in range(1, len(mlp.widths))]
        output = first.new_empty(self._copies, self._rows, last.shape[2])
        self._outputs = [*(x.values for x in self._inputs[1:]), list(output)]
        self._halves = output[:, :batch], output[:, batch:]
        self._places: dict[tuple[int, ...], list[Tensor]] = {}
        self._by_scales, self._by_shifts = (torch.split_with_sizes(norm, mlp.widths, 1) for norm in gradients.norms)
        self._by_slopes = [torch.zeros_like(scale) for scale in self._by_scales]
        self._into_slopes, self._into_shifts = [], []
        for i, (by_slope, by_shift) in enumerate(zip(self._by_slopes, self._by_shifts, strict=True)):
            weights, by_weights = folded.network.weights[i], gradients.weights[i]
            both, scratch = (weights, by_weights, by_slope), torch.zeros_like(weights)
            large = weights[0].numel() >= LARGE
            self._into_slopes.append(
                [(*one, scratch[0]) for one in zip(*both, strict=True)] if large else [(*both, scratch)]
            )
            self._into_shifts.append(list(zip(gradients.biases[i], weights.mT, by_shift[:, None], strict=True)))

    def _room_for_deltas(self, like: Tensor, i: int) -> _Beside:
        """The next layer's input where it fits: its gradient needs it no more, and it is still in the cache."""
        width, later = self._inputs[i].width, self._inputs[i + 1 :]
        fits = later and later[0].width == width
        return later[0] if fits else _Beside(like, self._copies, self._rows, width)

    def forward(self, first: Sequence[Tensor], second: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Two lots of inputs (B, …) through one pass → values (C, B, out) of each. Moves the running statistics."""
        for half, parts in ((0, first), (1, second)):
            for place, part in zip(self._places_of(half, parts), parts, strict=True):
                place.copy_(part)
        folded = self._folded
        for i, (x, output) in enumerate(zip(self._inputs, self._outputs, strict=True)):
            running = folded.running[i]
            # Returns the biased variance, moves the running one by the unbiased variance, and wants whole rows.
            folded.fold(i, *torch.batch_norm_update_stats(x.whole, running.mean, running.spread, MOMENTUM))
            self._multiply(x.and_one if i else x.and_one * self._copies, folded.layers[i], output)
            if i + 1 < len(self._inputs):
                self._inputs[i + 1].whole.relu_()
        return self._halves

    def _places_of(self, half: int, parts: Sequence[Tensor]) -> list[Tensor]:
        """Where these inputs of one half go."""
        key = (half, *(part.shape[1] for part in parts))
        if key not in self._places:
            rows = self._inputs[0].values[0][half * self._half : (half + 1) * self._half]
            self._places[key] = list(torch.split_with_sizes(rows, key[1:], dim=1))
        return self._places[key]

    def backward(self, by_first: Tensor) -> None:
        """Gradients by the parameters, from the loss' gradient by the first half's values (C, B, out)."""
        folded, delta = self._folded, list(by_first)
        for i in reversed(range(len(folded.layers))):
            x, output = self._inputs[i], i + 1 == len(folded.layers)
            rows = x.first_half if output else x.transposed  # of the output's, the second half has no gradient
            self._multiply(rows if i else rows * self._copies, delta, self._gradients.layers[i])
            self._unfold(i)
            if i:
                before = self._deltas[i - 1]
                # Through its part in the statistics, each x has the gradient constant + linear · x.
                torch.addcmul(before.constant, x.whole, before.linear, out=before.whole)
                self._multiply(delta, folded.transposed[i], before.upper if output else before.values, add=True)
                relu_backward(before.whole, x.whole, 0.0, grad_input=before.whole)
                delta = before.values

    def _unfold(self, i: int) -> None:
        """Turn gradients by the folded weights of layer `i` into those by weights, scales and shifts, in place.

        The rest goes through the batch's mean and variance to the layer's input: its coefficients go to `_deltas`.
        """
        folded, gradients = self._folded, self._gradients
        by_weights, by_biases = gradients.weights[i], gradients.biases[i]
        by_slope, by_scale, by_shift = self._by_slopes[i], self._by_scales[i], self._by_shifts[i]
        for weight, by_weight, to_slope, scratch in self._into_slopes[i]:
            torch.sum(torch.mul(weight, by_weight, out=scratch), -1, out=to_slope)
        for by_bias, transposed, to_shift in self._into_shifts[i]:
            torch.mm(by_bias, transposed, out=to_shift)
        slopes, offsets = folded.columns[i]
        by_weights.mul_(slopes).addcmul_(offsets, by_biases)
        slope, inverse, mean = folded.slopes[i], folded.last[i].spread_of, folded.last[i].mean_of
        torch.addcmul(by_slope, mean, by_shift, value=-1.0, out=by_scale).mul_(inverse)
        if i:
            before = self._deltas[i - 1]
            share = torch.mul(slope, self._share)
            linear = torch.mul(share, inverse, out=before.linear_of).mul_(by_scale)
            torch.addcmul(share.mul_(by_shift), linear, mean, value=-1.0, out=before.constant_of)


class _Beside:
    """Memory for (N, C, width) numbers, copies beside each other, a 1 behind each; and views of it by copy.

    One operation on whole rows then serves all copies.
    """

    def __init__(self, like: Tensor, copies: int, rows: int, width: int) -> None:
        span = padded(width)
        self.width, self.whole = width, like.new_zeros(rows, copies * span)
        by_copy = self.whole.view(rows, copies, span).transpose(0, 1)  # (C, N, span)
        by_copy[:, :, width] = 1.0
        self.values = list(by_copy[:, :, :width])
        self.upper = list(by_copy[:, : rows // 2, :width])
        self.and_one = list(by_copy[:, :, : width + 1])
        self.transposed = list(by_copy[:, :, : width + 1].mT)
        self.first_half = list(by_copy[:, : rows // 2, : width + 1].mT)
        vectors = like.new_zeros(2, copies, span)
        vectors[0, :, width] = 1.0  # constant + linear · 1 is 1
        self.constant, self.linear = vectors.view(2, -1)
        self.constant_of, self.linear_of = vectors[:, :, :width]  # (C, width)
