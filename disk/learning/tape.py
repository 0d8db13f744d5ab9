"""Gradients of networks by hand: what a batch computes is kept, in memory that is used again.

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
    """What networks of one shape compute on a batch, kept for their gradients, in memory that is used again.

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
        self.scales, self.shifts = (
            torch.split_with_sizes(norm, mlp.widths, 1) for norm in network.norms
        )  # (C, width) a layer
        self.running = (mlp.means, mlp.variances)

    def fold(self, i: int, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fold layer `i`'s normalisation by these statistics (C or 1, width); its 1/√(v + ε), slope and offset."""
        inverse = (variance + self.epsilon).rsqrt_()
        slope = self.scales[i] * inverse
        offset = torch.addcmul(self.shifts[i], slope, mean, value=-1.0)
        torch.mul(self.network.weights[i], slope[:, :, None], out=self.weights[i])
        for c, row in enumerate(offset[:, None]):  # copy by copy: a batched product takes ten times as long
            bias, weight = self.network.biases[i][c], self.network.weights[i][c]
            torch.addmm(bias, row, weight, out=self.biases[i][c])
        return inverse, slope, offset

    def evaluate(self) -> Folded:
        """Fold every layer by the running statistics."""
        statistics = (torch.split_with_sizes(statistic, self.widths, 1) for statistic in self.running)
        for i, (mean, variance) in enumerate(zip(*statistics, strict=True)):
            self.fold(i, mean, variance)
        return self


class BatchNormTape(Tape):
    """A tape for batch normalisation in training mode: statistics are those of the rows of both halves together."""

    def __init__(self, mlp: BatchNormMLP, batch: int) -> None:
        super().__init__(mlp, 2 * batch)
        self._half = batch
        self._statistics = [torch.zeros_like(mlp.means), torch.zeros_like(mlp.variances)]
        means, variances = (torch.split_with_sizes(statistic, mlp.widths, 1) for statistic in self._statistics)
        self._means, self._variances = means, variances  # of this batch, (C, width) a layer
        self._slopes: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward_both(self, folded: Folded, first: Sequence[Tensor], second: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Two lots of inputs (B, …) through one pass → values (C, B, out) of each. Moves the running statistics."""
        for half, parts in ((slice(None, self._half), first), (slice(self._half, None), second)):
            widths = tuple(part.shape[1] for part in parts)
            for place, part in zip(self._places(widths), parts, strict=True):
                place[half].copy_(part)
        self._slopes.clear()
        rows, outputs = [self._input, *self._hidden], [*(hidden.values for hidden in self._hidden), self._outputs]
        for i, (x, output) in enumerate(zip(rows, outputs, strict=True)):
            self._measure(i, x)
            self._slopes.append(folded.fold(i, self._means[i], self._variances[i]))
            _products(x.and_one * (self._copies // len(x.and_one)), folded.layers[i], output)
            if i < len(self._hidden):
                self._activate(folded, i)
        rows_count = self.batch
        unbiased = rows_count / (rows_count - 1)
        means, variances = folded.running
        means.lerp_(self._statistics[0], MOMENTUM)
        variances.lerp_(self._statistics[1] * unbiased, MOMENTUM)  # as torch has it
        return self._output[:, : self._half], self._output[:, self._half :]

    def _measure(self, i: int, x: _Rows) -> None:
        """Mean and variance of each column; those of the input are the same for all copies."""
        width = self._means[i].shape[1]
        for c, rows in enumerate(x.whole):  # whole rows: the kernel is fast on contiguous memory only
            mean, variance = torch.batch_norm_update_stats(rows, None, None, 0.0)
            here = slice(c, c + 1) if len(x.whole) > 1 else slice(None)
            self._means[i][here].copy_(mean[:width])
            self._variances[i][here].copy_(variance[:width])

    def backward_first(self, folded: Folded, by_first: Tensor, gradients: Packed) -> None:
        """From the loss' gradient by the first half's values (C, B, out), those by the parameters into `gradients`."""
        delta = list(by_first)
        for i in reversed(range(len(folded.layers))):
            x = self._hidden[i - 1].transposed if i else self._input.transposed * self._copies
            _products([rows[:, : len(by)] for rows, by in zip(x, delta, strict=True)], delta, gradients.layers[i])
            constant, linear = self._unfold(folded, i, gradients)
            if i:
                # Through its part in the statistics, every row's x has the gradient constant + linear · x, too.
                x_whole, before = self._hidden[i - 1], self._deltas[i - 1]
                for c, rows in enumerate(before.values):
                    torch.addcmul(constant[c], x_whole.values[c], linear[c], out=rows)
                    rows[: len(delta[c])].addmm_(delta[c], folded.transposed[i][c])
                self._activate_backward(folded, i - 1, None)
                delta = before.values

    def _unfold(self, folded: Folded, i: int, gradients: Packed) -> tuple[Tensor, Tensor]:
        """Turn gradients by the folded weights into those by weights, scales and shifts, in place.

        The rest of the chain goes through the batch's mean and variance, back to the layer's input x (N rows):
        the result are the (C, width) coefficients of its gradient, constant + linear · x.
        """
        inverse, slope, offset = self._slopes[i]
        weights, by_weights, by_biases = folded.network.weights[i], gradients.weights[i], gradients.biases[i]
        by_slope = (weights * by_weights).sum(2)
        by_offset = torch.cat([torch.mm(by, weight.mT) for by, weight in zip(by_biases, weights, strict=True)])
        by_weights.mul_(slope[:, :, None]).addcmul_(offset[:, :, None], by_biases)
        by_scale = torch.addcmul(by_slope, self._means[i], by_offset, value=-1.0).mul_(inverse)
        for norm, gradient in zip(gradients.norms, (by_scale, by_offset), strict=True):
            torch.split_with_sizes(norm, folded.widths, 1)[i].copy_(gradient)
        share = slope * (-1.0 / self.batch)
        linear = share * inverse * by_scale
        return torch.addcmul(share * by_offset, linear, self._means[i], value=-1.0), linear


class _Rows:
    """Memory for (C, B, width) numbers, a 1 behind each row, and views of it by copy."""

    def __init__(self, like: Tensor, copies: int, batch: int, width: int) -> None:
        padded = -(-(width + 1) // 16) * 16  # every row begins at a multiple of 64 bytes
        self.whole = like.new_zeros(copies, batch, padded)
        self.whole[:, :, width] = 1.0
        self.values = list(self.whole[:, :, :width])
        self.and_one = list(self.whole[:, :, : width + 1])
        self.transposed = list(self.whole[:, :, : width + 1].mT)


def _products(left: Sequence[Tensor], right: Sequence[Tensor], out: Sequence[Tensor]) -> None:
    for a, b, c in zip(left, right, out, strict=True):  # faster than one batched product of two
        torch.mm(a, b, out=c)


_relu_backward = torch.ops.aten.threshold_backward.grad_input  # gradient where ReLU let through, else 0
