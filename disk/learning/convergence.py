"""When a skill has converged: its reward's terms have stopped changing.

Algorithm 1 of the paper loops until converged; its experiments have a fixed number of steps. Here a skill may end
early: when the means of r_c and of r_d over a window differ little from those over the window before.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from disk.config import Adaptive

TERMS = ("reward/consistency", "reward/diversity")


class Settling:
    def __init__(self, config: Adaptive, steps: int, device: torch.device) -> None:
        """`steps` are the most that the skill gets."""
        self.tolerance, self.least = config.tolerance, config.least * steps
        self.window = max(1, round(config.window * steps))
        self._sums = torch.zeros(-(-steps // self.window), len(TERMS), dtype=torch.float64, device=device)
        self._counts = [0] * len(self._sums)

    def see(self, step: int, terms: Mapping[str, Tensor]) -> None:
        """The terms of an update after so many steps, the update's own not counted."""
        self._sums[step // self.window] += torch.stack([terms[name] for name in TERMS])
        self._counts[step // self.window] += 1

    def done(self, step: int) -> bool:
        """Whether after so many steps the last two whole windows agree."""
        last = step // self.window - 1
        if step < self.least or last < 1 or not self._counts[last] or not self._counts[last - 1]:
            return False
        now, before = self._sums[last] / self._counts[last], self._sums[last - 1] / self._counts[last - 1]
        return bool(((now - before).abs() <= self.tolerance * before.abs()).all())

    def state(self) -> dict[str, Tensor]:
        return {"sums": self._sums, "counts": torch.tensor(self._counts)}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._sums.copy_(state["sums"])
        self._counts = state["counts"].tolist()
