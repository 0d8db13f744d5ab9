"""Objectives: how a batch of transitions is labelled with an intrinsic reward.

One file an objective. The training loop knows them only through this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from torch import Tensor

from disk.learning.replay import Batch


class Objective(Protocol):
    def observe(self, skill: int, sigma: np.ndarray) -> None:
        """See the projected state that a skill's action led to."""

    def start(self, sample: Callable[[], Batch]) -> None:
        """Called once for each policy, before its first update, with a way to draw batches from its replay."""

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        """Improve the objective's own model on a batch of all skills' transitions; metrics as detached tensors."""

    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Rewards (B,) of a batch, `progress` being the share of the budget that is done; and metrics."""

    def state(self) -> dict[str, Tensor]:
        """Everything that the objective goes on from, as named tensors."""

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...
