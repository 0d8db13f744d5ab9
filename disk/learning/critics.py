"""SAC's twin critics, one class for each way of normalising, behind the calls that SAC's losses make.

| kind         | normalisation                        | next values from                   |
|--------------|--------------------------------------|------------------------------------|
| `plain`      | none                                 | target networks                    |
| `layer_norm` | of each row, before each hidden ReLU | target networks                    |
| `crossq`     | of the batch, before each product    | the critics, in one joint pass     |
| `batch_norm` | as `crossq`                          | target networks (evaluation mode)  |
| `no_target`  | none                                 | the critics                        |

`batch_norm` and `no_target` are `crossq` with one part taken away. `batch_norm` keeps the joint pass, so that its
statistics are those of `crossq`; its targets follow the critics' running statistics as they follow their weights.

The batch's statistics are those of the replay: with inherited transitions, those of the mixture of all skills so far.
That is the distribution the critics are trained on, so their losses see what they were normalised for. The actor asks
with the running statistics of that mixture, about its own actions in states of the same batch: the price is a
normalisation that is wider than the own skill's states need, and that moves slowly while own transitions come in.
"""

from __future__ import annotations

import torch
from torch import Tensor

from disk.config import Sac
from disk.learning.batch_norm import BatchNormTape, Folded
from disk.learning.replay import Batch
from disk.learning.tape import LayerNormTape, Tape, products_for
from disk.networks import MLP, BatchNormMLP, LayerNormMLP, Packed


class Critics:
    """Critics whose value of a row depends on that row alone: `plain`, `layer_norm`, `no_target`.

    An update asks for `next_values`, then `values`, then `backward`; or for `evaluate`, then `by_action`.
    """

    network: MLP
    target: MLP | None = None

    def __init__(
        self, observations: int, actions: int, config: Sac, initial: torch.Generator, device: torch.device
    ) -> None:
        self._observations, self._multiply = observations, products_for(config.precision, device)
        sizes = [observations + actions, *config.hidden, 1]
        kind = {None: MLP, "no_target": MLP, "layer_norm": LayerNormMLP}.get(config.critic, BatchNormMLP)
        self.network = kind(sizes, copies=2, generator=initial).to(device)
        self.packed = Packed(self.network)
        self.gradients = Packed(self.network, torch.zeros_like(self.packed.values))
        if config.critic not in ("crossq", "no_target"):
            self.target = kind(sizes, copies=2).to(device).requires_grad_(False)
            self.target.load_state_dict(self.network.state_dict())
        self._target = None if self.target is None else Packed(self.target)
        self.resize(config.batch_size)

    def resize(self, batch: int) -> None:
        """Make memory for batches of this size."""
        self.batch = batch
        kind = LayerNormTape if isinstance(self.network, LayerNormMLP) else Tape
        self._tape = kind(self.network, batch, self._multiply)  # type: ignore[arg-type]

    def next_values(self, batch: Batch, action: Tensor) -> Tensor:
        """Return both critics' values (2, B, 1) of these actions in the next states, valid until the next call."""
        source = self.packed if self._target is None else self._target
        return self._tape.forward(source, batch.critic_next_obs, action)

    def values(self, batch: Batch) -> Tensor:
        """Return the values (2, B, 1) of the batch's own actions."""
        return self._tape.forward(self.packed, batch.obs_action)

    def backward(self, by_values: Tensor) -> None:
        """Compute the gradients by the parameters from those by `values`."""
        self._tape.backward(self.packed, by_values, self.gradients)

    def evaluate(self, obs: Tensor, action: Tensor) -> Tensor:
        """Return the values (2, B, 1) for the actor's loss."""
        return self._tape.forward(self.packed, obs, action)

    def by_action(self, by_values: Tensor) -> Tensor:
        """Return the gradient by the action (B, A) from that by the result of `evaluate`."""
        return self._by_action(self.packed, by_values)

    def _by_action(self, network: Packed, by_values: Tensor) -> Tensor:
        first, second = self._tape.backward(network, by_values, None)
        into_first, into_second = (weight[:, self._observations :] for weight in network.transposed[0])
        return torch.mm(first, into_first).addmm_(second, into_second)

    def follow(self, momentum: float) -> None:
        """Move the targets, if there are any, towards the critics."""
        if self._target is not None:
            self._target.values.lerp_(self.packed.values, momentum)


class BatchNormCritics(Critics):
    """Critics that normalise by their batch in training and by running statistics otherwise: `crossq`, `batch_norm`."""

    network: BatchNormMLP
    target: BatchNormMLP | None

    def resize(self, batch: int) -> None:
        self.batch = batch
        self._tape = Tape(self.network, batch, self._multiply)
        self._folded = Folded(self.network, self.packed)
        self._joint = BatchNormTape(self.network, self._folded, self.gradients, batch, self._multiply)
        if self.target is not None and self._target is not None:
            self._folded_target = Folded(self.target, self._target)

    def next_values(self, batch: Batch, action: Tensor) -> Tensor:
        # One pass for (s, a) and (s', a'): both are normalised by the statistics of all 2B rows.
        self._values, next_values = self._joint.forward([batch.obs_action], [batch.critic_next_obs, action])
        if self.target is None:
            return next_values
        return self._tape.forward(self._folded_target.evaluate(), batch.critic_next_obs, action)

    def values(self, batch: Batch) -> Tensor:
        return self._values

    def backward(self, by_values: Tensor) -> None:
        self._joint.backward(by_values)

    def evaluate(self, obs: Tensor, action: Tensor) -> Tensor:
        return self._tape.forward(self._folded.evaluate(), obs, action)

    def by_action(self, by_values: Tensor) -> Tensor:
        return self._by_action(self._folded, by_values)

    def follow(self, momentum: float) -> None:
        super().follow(momentum)
        if self.target is not None:
            for old, new in zip(self.target.buffers(), self.network.buffers(), strict=True):
                old.lerp_(new, momentum)


def make_critics(
    observations: int, actions: int, config: Sac, initial: torch.Generator, device: torch.device
) -> Critics:
    """Return the critics that `config.critic` names, with initial weights from `initial`."""
    kind = BatchNormCritics if config.critic in ("crossq", "batch_norm") else Critics
    return kind(observations, actions, config, initial, device)
