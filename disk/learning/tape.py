"""Gradients of networks by hand. A tape keeps the activations of a batch in memory that it reuses.

`Tape` is for plain networks. `LayerNormTape` adds layer normalisation. `BatchNormTape` is the joint pass of
CrossQ (Bhatt et al., 2024): two halves of a batch go through batch normalisation together, and the loss
has gradients by the first half's values only.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from disk.networks import MLP, BatchNormMLP, LayerNormMLP, Packed

MOMENTUM = 0.01
"""Share of a batch's mean and variance that the running ones take over."""


class Tape:
    """The activations of networks of one shape on a batch, kept for their gradients in reused memory.

    Networks of the same shape (a critic and its target) may share one, each until the next `forward`.
    """

    def __init__(self, mlp: MLP, batch: int) -> None:
        self.batch = batch
        first, last = mlp.layers[0][0], mlp.layers[-1][0]
        widths = [weight.shape[1] for weight, _ in mlp.layers]
        self._copies = len(first)
        self._input = _Rows(first, 1, batch, widths[0])
        self._known_places: dict[tuple[int, ...], Sequence[Tensor]] = {}
        self._hidden = [_Rows(first, self._copies, batch, width) for width in widths[1:]]
        self._deltas = [_Rows(first, self._copies, batch, width) for width in widths[1:]]
        self._output: Tensor = first.new_empty(self._copies, batch, last.shape[2])
        self._outputs = list(self._output)

    def forward(self, network: Packed, *inputs: Tensor) -> Tensor:
        """Inputs (B, …), side by side, the same for all copies → (C, B, out), overwritten by the next call."""
        for place, part in zip(self._places(tuple(part.shape[1] for part in inputs)), inputs, strict=True):
            place.copy_(part)
        x = self._input.and_one * self._copies
        for i, hidden in enumerate(self._hidden):
            _products(x, network.layers[i], hidden.values)
            self._activate(network, i)
            x = hidden.and_one
        _products(x, network.layers[-1], self._outputs)
        return self._output

    def _activate(self, network: Packed, i: int) -> None:
        self._hidden[i].whole.relu_()  # of the 1 too, which stays what it is

    def _places(self, widths: tuple[int, ...]) -> Sequence[Tensor]:
        """Where inputs of these widths go."""
        if widths not in self._known_places:
            self._known_places[widths] = torch.split_with_sizes(self._input.values[0], widths, dim=1)
        return self._known_places[widths]

    def backward(self, network: Packed, by_output: Tensor, gradients: Packed | None) -> list[Tensor]:
        """From the loss' gradient by the output (C, B, out): those by the parameters into `gradients`, if these are
        wanted, and as the result those by what the first layer's product puts out, (B, hidden) a copy."""
        delta = list(by_output)
        for i in reversed(range(len(network.layers))):
            if gradients is not None:
                x = self._hidden[i - 1].transposed if i else self._input.transposed * self._copies
                _products(x, delta, gradients.layers[i])
            if i:
                before = self._deltas[i - 1]
                _products(delta, network.transposed[i], before.values)
                self._activate_backward(network, i - 1, gradients)
                delta = before.values
        return delta

    def _activate_backward(self, network: Packed, i: int, gradients: Packed | None) -> None:
        delta = self._deltas[i].whole
        _relu_backward(delta, self._hidden[i].whole, 0.0, grad_input=delta)


class LayerNormTape(Tape):
    """A tape for networks that normalise each row of a hidden layer before its ReLU."""

    def __init__(self, mlp: LayerNormMLP, batch: int) -> None:
        super().__init__(mlp, batch)
        self._widths, self._epsilon = mlp.widths, mlp.EPSILON
        self._products = [mlp.scales.new_empty(self._copies, batch, width) for width in self._widths]
        self._rows: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        """By layer and copy: mean and inverse deviation of each row."""

    def _activate(self, network: Packed, i: int) -> None:
        scales, shifts = (torch.split_with_sizes(norm, self._widths, 1)[i] for norm in network.norms)
        for c, hidden in enumerate(self._hidden[i].values):
            product = self._products[i][c].copy_(hidden)
            shape = [self._widths[i]]
            normal, mean, inverse = torch.native_layer_norm(product, shape, scales[c], shifts[c], self._epsilon)
            self._rows[i, c] = mean, inverse
            torch.clamp_min(normal, 0.0, out=hidden)

    def _activate_backward(self, network: Packed, i: int, gradients: Packed | None) -> None:
        super()._activate_backward(network, i, gradients)
        scales, shifts = (torch.split_with_sizes(norm, self._widths, 1)[i] for norm in network.norms)
        wanted = [True, gradients is not None, gradients is not None]
        for c, delta in enumerate(self._deltas[i].values):
            by_product, *by_norm = torch.ops.aten.native_layer_norm_backward(
                delta, self._products[i][c], [self._widths[i]], *self._rows[i, c], scales[c], shifts[c], wanted
            )
            delta.copy_(by_product)
            if gradients is not None:
                for norm, gradient in zip(gradients.norms, by_norm, strict=True):
                    torch.split_with_sizes(norm, self._widths, 1)[i][c].copy_(gradient)


class Folded(Packed):
    """Batch normalisation folded into the product behind it, so that a plain product of raw inputs does both.

    For statistics m, v of the input x, scale γ and shift β, with slope a = γ/√(v + ε) and offset c = β - a·m:
    (a·x + c)·W + b = x·(a·W) + (c·W + b). Only weights are touched, never rows of a batch.
    """

    def __init__(self, mlp: BatchNormMLP, network: Packed) -> None:
        super().__init__(mlp, torch.zeros_like(network.values))
        self.network, self.widths, self.epsilon = network, mlp.widths, mlp.EPSILON
        self.scales, self.shifts = (torch.split_with_sizes(norm, mlp.widths, 1) for norm in network.norms)
        self.running = [Running(mlp, i) for i in range(len(mlp.widths))]
        # Of the statistics folded last, (C, width) a layer: 1/√(v + ε), slope and offset.
        self.inverses, self.slopes, self.offsets = ([torch.zeros_like(x) for x in self.scales] for _ in range(3))
        self.columns = [
            (slope[:, :, None], offset[:, :, None]) for slope, offset in zip(self.slopes, self.offsets, strict=True)
        ]
        self._rows = [
            list(zip(network.biases[i], offset[:, None], network.weights[i], self.biases[i], strict=True))
            for i, offset in enumerate(self.offsets)
        ]

    def fold(self, i: int, mean: Tensor, variance: Tensor) -> None:
        """Fold layer `i`'s normalisation by these statistics (C, width)."""
        inverse, slope, offset = self.inverses[i], self.slopes[i], self.offsets[i]
        torch.add(variance, self.epsilon, out=inverse).rsqrt_()
        torch.mul(self.scales[i], inverse, out=slope)
        torch.addcmul(self.shifts[i], slope, mean, value=-1.0, out=offset)
        torch.mul(self.network.weights[i], self.columns[i][0], out=self.weights[i])
        for bias, row, weight, folded in self._rows[i]:  # copy by copy: a batched product takes ten times as long
            torch.addmm(bias, row, weight, out=folded)

    def evaluate(self) -> Folded:
        """Fold every layer by the running statistics."""
        for i, running in enumerate(self.running):
            self.fold(i, *running.views)
        return self


class Running:
    """The running statistics of one layer, in memory as wide as `_Beside`'s rows; the MLP's own become views of it."""

    def __init__(self, mlp: BatchNormMLP, i: int) -> None:
        copies, width = mlp.get_buffer(f"mean{i}").shape
        padded = mlp.scales.new_zeros(2, copies, _padded(width))
        self.mean, self.variance = padded.view(2, -1)
        views = padded[:, :, :width]
        for name, view in zip((f"mean{i}", f"variance{i}"), views, strict=True):
            view.copy_(mlp.get_buffer(name))
            setattr(mlp, name, view)
        self.views = [view.expand(len(mlp.scales), -1) for view in views]  # (C, width)


class BatchNormTape:
    """A tape for batch normalisation in training mode: statistics are those of the rows of both halves together.

    The loss has gradients by the first half's values. Through the statistics it has some by every row's activations.
    """

    def __init__(self, mlp: BatchNormMLP, folded: Folded, gradients: Packed, batch: int) -> None:
        self._folded, self._gradients, self._half = folded, gradients, batch
        first, last = mlp.layers[0][0], mlp.layers[-1][0]
        self._copies, self._rows = len(first), 2 * batch
        self._inputs = [_Beside(first, 1, self._rows, mlp.widths[0])]
        self._inputs += [_Beside(first, self._copies, self._rows, width) for width in mlp.widths[1:]]
        self._deltas = [self._room_for_deltas(first, i) for i in range(1, len(mlp.widths))]
        self._output = first.new_empty(self._copies, self._rows, last.shape[2])
        self._outputs = [*(x.values for x in self._inputs[1:]), list(self._output)]
        self._places: dict[tuple[int, ...], list[Tensor]] = {}
        # This batch's statistics, (C, width) a layer; those of the input are the same for all copies.
        self._means = [x.mean_of.expand(self._copies, -1) for x in self._inputs]
        self._variances = [x.variance_of.expand(self._copies, -1) for x in self._inputs]
        self._by_scales, self._by_shifts = (torch.split_with_sizes(norm, mlp.widths, 1) for norm in gradients.norms)
        self._by_slopes = [torch.zeros_like(scale) for scale in self._by_scales]
        self._products = [torch.zeros_like(weight) for weight, _ in mlp.layers]
        self._into_shifts = [
            list(zip(gradients.biases[i], folded.network.weights[i].mT, by_shift[:, None], strict=True))
            for i, by_shift in enumerate(self._by_shifts)
        ]

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
            _statistics(x.whole, running.mean, running.variance, MOMENTUM, out0=x.mean, out1=x.variance)
            folded.fold(i, self._means[i], self._variances[i])
            _products(x.and_one if i else x.and_one * self._copies, folded.layers[i], output)
            if i + 1 < len(self._inputs):
                self._inputs[i + 1].whole.relu_()
        return self._output[:, : self._half], self._output[:, self._half :]

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
            _products(rows if i else rows * self._copies, delta, self._gradients.layers[i])
            self._unfold(i)
            if i:
                before = self._deltas[i - 1]
                # Through its part in the statistics, each x has the gradient constant + linear · x.
                torch.addcmul(before.constant, x.whole, before.linear, out=before.whole)
                for c, into in enumerate(before.upper if output else before.values):
                    into.addmm_(delta[c], folded.transposed[i][c])
                _relu_backward(before.whole, x.whole, 0.0, grad_input=before.whole)
                delta = before.values

    def _unfold(self, i: int) -> None:
        """Turn gradients by the folded weights of layer `i` into those by weights, scales and shifts, in place.

        The rest goes through the batch's mean and variance to the layer's input: its coefficients go to `_deltas`.
        """
        folded, gradients = self._folded, self._gradients
        by_weights, by_biases = gradients.weights[i], gradients.biases[i]
        by_slope, by_scale, by_shift = self._by_slopes[i], self._by_scales[i], self._by_shifts[i]
        torch.sum(torch.mul(folded.network.weights[i], by_weights, out=self._products[i]), 2, out=by_slope)
        for by_bias, weight, out in self._into_shifts[i]:
            torch.mm(by_bias, weight, out=out)
        slopes, offsets = folded.columns[i]
        by_weights.mul_(slopes).addcmul_(offsets, by_biases)
        slope, inverse, mean = folded.slopes[i], folded.inverses[i], self._means[i]
        torch.addcmul(by_slope, mean, by_shift, value=-1.0, out=by_scale).mul_(inverse)
        if i:
            before = self._deltas[i - 1]
            share = torch.mul(slope, -1.0 / self._rows)
            linear = torch.mul(share, inverse, out=before.linear_of).mul_(by_scale)
            torch.addcmul(share.mul_(by_shift), linear, mean, value=-1.0, out=before.constant_of)


class _Beside:
    """Memory for (N, C, width) numbers, copies beside each other, a 1 behind each; and views of it by copy.

    One operation on whole rows then serves all copies.
    """

    def __init__(self, like: Tensor, copies: int, rows: int, width: int) -> None:
        padded = _padded(width)
        self.width, self.whole = width, like.new_zeros(rows, copies * padded)
        by_copy = self.whole.view(rows, copies, padded).transpose(0, 1)  # (C, N, padded)
        by_copy[:, :, width] = 1.0
        self.values = list(by_copy[:, :, :width])
        self.upper = list(by_copy[:, : rows // 2, :width])
        self.and_one = list(by_copy[:, :, : width + 1])
        self.transposed = list(by_copy[:, :, : width + 1].mT)
        self.first_half = list(by_copy[:, : rows // 2, : width + 1].mT)
        vectors = like.new_zeros(4, copies, padded)
        vectors[2, :, width] = 1.0  # constant + linear · 1 is 1
        self.mean, self.variance, self.constant, self.linear = vectors.view(4, -1)
        self.mean_of, self.variance_of, self.constant_of, self.linear_of = vectors[:, :, :width]  # (C, width)


class _Rows:
    """Memory for (C, B, width) numbers, a 1 behind each row, and views of it by copy."""

    def __init__(self, like: Tensor, copies: int, batch: int, width: int) -> None:
        padded = _padded(width)
        self.whole = like.new_zeros(copies, batch, padded)
        self.whole[:, :, width] = 1.0
        self.values = list(self.whole[:, :, :width])
        self.and_one = list(self.whole[:, :, : width + 1])
        self.transposed = list(self.whole[:, :, : width + 1].mT)


def _padded(width: int) -> int:
    """Numbers in a row of this width and a 1, so that every row begins at a multiple of 64 bytes."""
    return -(-(width + 1) // 16) * 16


def _products(left: Sequence[Tensor], right: Sequence[Tensor], out: Sequence[Tensor]) -> None:
    for a, b, c in zip(left, right, out, strict=True):  # faster than one batched product of two
        torch.mm(a, b, out=c)


_relu_backward = torch.ops.aten.threshold_backward.grad_input  # gradient where ReLU let through, else 0
_statistics = torch.ops.aten.batch_norm_update_stats.out  # biased variance, unbiased running one; wants whole rows
