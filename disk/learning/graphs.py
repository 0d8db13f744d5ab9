"""SAC's update as CUDA graphs: one launch in place of some hundred. Nobody has run this on a GPU yet.

`python -m disk doctor --device cuda` compares it with the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from disk.learning.replay import Batch

WARM_UP = 3
"""Calls of each kind before it is recorded: libraries allocate their memory in these."""
Step = Callable[[Batch, Tensor, Sequence[Tensor], bool], dict[str, Tensor]]


class Graphs:
    """A step that is recorded once for each kind of update, and then replayed on inputs in fixed memory."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._inputs: tuple[Batch, Tensor, list[Tensor]] | None = None
        self._calls: Counter[tuple[int, bool]] = Counter()
        self._recorded: dict[tuple[int, bool], tuple[torch.cuda.CUDAGraph, dict[str, Tensor]]] = {}

    def __call__(self, batch: Batch, reward: Tensor, noise: Sequence[Tensor], follows: bool) -> dict[str, Tensor]:
        if self._inputs is None or self._inputs[0].rows.shape != batch.rows.shape:
            rows = Batch(torch.empty_like(batch.rows), batch.columns)
            self._inputs = rows, torch.empty_like(reward), [torch.empty_like(noise[0]) for _ in range(2)]
            self._calls.clear()
            self._recorded.clear()
            self._stream = torch.cuda.Stream(batch.rows.device)  # type: ignore[no-untyped-call]
        inputs, rewards, noises = self._inputs
        inputs.rows.copy_(batch.rows)
        rewards.copy_(reward)
        for place, drawn in zip(noises, noise, strict=False):
            place.copy_(drawn)
        kind = len(noise), follows
        arguments = inputs, rewards, noises[: len(noise)], follows
        if kind not in self._recorded:
            self._calls[kind] += 1
            if self._calls[kind] <= WARM_UP:
                return self._beside(*arguments)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self._stream):
                metrics = self._step(*arguments)
            self._recorded[kind] = graph, metrics
        graph, metrics = self._recorded[kind]
        graph.replay()
        return metrics

    def _beside(self, batch: Batch, reward: Tensor, noise: Sequence[Tensor], follows: bool) -> dict[str, Tensor]:
        """Take the step on the stream that will record it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            metrics = self._step(batch, reward, noise, follows)
        torch.cuda.current_stream().wait_stream(self._stream)
        return metrics
