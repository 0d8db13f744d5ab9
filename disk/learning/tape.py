"""Gradients of networks by hand. A tape keeps the activations of a batch in memory that it reuses.

`Tape` is for plain networks. `LayerNormTape` adds layer normalisation. Batch normalisation is in `batch_norm.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from disk.errors import ConfigError
from disk.networks import MLP, LayerNormMLP, Packed

THIN = 64
"""Products with fewer rows, columns or terms than this stay in float32 in bf16 too."""
Products = Callable[..., None]


def products(left: Sequence[Tensor], right: Sequence[Tensor], out: Sequence[Tensor], add: bool = False) -> None:
    """Write each left · right into `out`, or add it to what is there."""
    for a, b, c in zip(left, right, out, strict=True):  # faster than one batched product of two
        if add:
            c.addmm_(a, b)
        else:
            torch.mm(a, b, out=c)


def thin(a: Tensor, b: Tensor) -> bool:
    """Return True if rounding the factors of a · b would save little."""
    rows, terms = a.shape
    return min(rows, terms, b.shape[1]) < THIN


def products_in_bf16(left: Sequence[Tensor], right: Sequence[Tensor], out: Sequence[Tensor], add: bool = False) -> None:
    """Do the same with factors and results rounded to bfloat16. The sums inside a product are in float32."""
    for a, b, c in zip(left, right, out, strict=True):
        if thin(a, b):
            products([a], [b], [c], add)
            continue
        product = torch.mm(a.bfloat16(), b.bfloat16())
        if add:
            c.add_(product)
        else:
            c.copy_(product)


class _OneDNN:
    """Inside it products are by oneDNN instead of MKL: in float32, or with factors in bfloat16 where there is AMX."""

    def __enter__(self) -> None:
        # torch asks oneDNN only if rounding to bfloat16 is allowed. oneDNN rounds on processors with AMX alone.
        torch.set_float32_matmul_precision("medium")

    def __exit__(self, *error: object) -> None:
        torch.set_float32_matmul_precision("highest")


BY_ONEDNN = _OneDNN()


def products_by_onednn(
    left: Sequence[Tensor], right: Sequence[Tensor], out: Sequence[Tensor], add: bool = False
) -> None:
    """Do the same in float32 by oneDNN."""
    with BY_ONEDNN:
        products(left, right, out, add)


def products_by_amx(left: Sequence[Tensor], right: Sequence[Tensor], out: Sequence[Tensor], add: bool = False) -> None:
    """Do the same with factors rounded to bfloat16 by AMX. Sums and results are in float32."""
    for a, b, c in zip(left, right, out, strict=True):
        (products if thin(a, b) else products_by_onednn)([a], [b], [c], add)


def products_for(precision: str | None, device: torch.device) -> Products:
    """Return the products of a `sac.precision`. Refuse one that this device would only emulate, or round."""
    if precision is None:
        return products
    if precision == "onednn":
        if device.type != "cpu" or torch.cpu._is_amx_tile_supported():
            raise ConfigError(
                f"sac.precision: {precision}: {'a GPU' if device.type != 'cpu' else 'AMX'} would round to bfloat16: "
                "expected null or bf16"
            )
        return products_by_onednn
    if device.type == "cpu" and torch.cpu._is_amx_tile_supported():
        return products_by_amx
    if device.type == "cpu" and not torch.cpu._is_avx512_bf16_supported():
        raise ConfigError(
            f"sac.precision: {precision}: this processor has neither AVX512-BF16 nor AMX: expected null, or a GPU"
        )
    return products_in_bf16


class Tape:
    """The activations of networks of one shape on a batch, kept for their gradients in reused memory.

    Networks of the same shape (a critic and its target) may share one, each until the next `forward`.
    """

    def __init__(self, mlp: MLP, batch: int, multiply: Products = products) -> None:
        self.batch, self._multiply = batch, multiply
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
            self._multiply(x, network.layers[i], hidden.values)
            self._activate(network, i)
            x = hidden.and_one
        self._multiply(x, network.layers[-1], self._outputs)
        return self._output

    def _activate(self, network: Packed, i: int) -> None:
        self._hidden[i].whole.relu_()  # of the 1 too, which stays what it is

    def _places(self, widths: tuple[int, ...]) -> Sequence[Tensor]:
        """Where inputs of these widths go."""
        if widths not in self._known_places:
            self._known_places[widths] = torch.split_with_sizes(self._input.values[0], widths, dim=1)
        return self._known_places[widths]

    def backward(self, network: Packed, by_output: Tensor, gradients: Packed | None) -> list[Tensor]:
        """Carry the loss' gradient by the output (C, B, out) back through the network.

        Write the gradients by the parameters into `gradients`, unless it is None. Return those by the first layer's
        product, (B, hidden) for each copy.
        """
        delta = list(by_output)
        for i in reversed(range(len(network.layers))):
            if gradients is not None:
                x = self._hidden[i - 1].transposed if i else self._input.transposed * self._copies
                self._multiply(x, delta, gradients.layers[i])
            if i:
                before = self._deltas[i - 1]
                self._multiply(delta, network.transposed[i], before.values)
                self._activate_backward(network, i - 1, gradients)
                delta = before.values
        return delta

    def _activate_backward(self, network: Packed, i: int, gradients: Packed | None) -> None:
        delta = self._deltas[i].whole
        relu_backward(delta, self._hidden[i].whole, 0.0, grad_input=delta)


class LayerNormTape(Tape):
    """A tape for networks that normalise each row of a hidden layer before its ReLU."""

    def __init__(self, mlp: LayerNormMLP, batch: int, multiply: Products = products) -> None:
        super().__init__(mlp, batch, multiply)
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


class _Rows:
    """Memory for (C, B, width) numbers, a 1 behind each row, and views of it by copy."""

    def __init__(self, like: Tensor, copies: int, batch: int, width: int) -> None:
        self.whole = like.new_zeros(copies, batch, padded(width))
        self.whole[:, :, width] = 1.0
        self.values = list(self.whole[:, :, :width])
        self.and_one = list(self.whole[:, :, : width + 1])
        self.transposed = list(self.whole[:, :, : width + 1].mT)


def padded(width: int) -> int:
    """Numbers in a row of this width and a 1, so that every row begins at a multiple of 64 bytes."""
    return -(-(width + 1) // 16) * 16


relu_backward = torch.ops.aten.threshold_backward.grad_input  # gradient where ReLU let through, else 0
