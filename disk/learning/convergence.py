"""When a skill has converged: its reward's terms have stopped changing.

Algorithm 1 of the paper loops until converged; its experiments have a fixed number of steps. Here a skill may end
early: when the means of r_c and of r_d over a window differ little from those over the window before.

`Settling` looks at batches and saves steps (`adaptive`). `Spending` looks at what the skill itself visits, spends on a
skill what earlier ones have saved, and says when one is to be tried again (`budget`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
import torch
from torch import Tensor

from disk.config import Adaptive, Budget

TERMS = ("reward/consistency", "reward/diversity")


class Settling:
    def __init__(self, config: Adaptive, steps: int, device: torch.device) -> None:
        """`steps` are the most that the skill gets."""
        self.tolerance, self.least = config.tolerance, config.least * steps
        self.window = max(1, round(config.window * steps))
        self._sums = torch.zeros(-(-steps // self.window), len(TERMS), dtype=torch.float64, device=device)
        self._counts = [0] * len(self._sums)

    def progress(self, step: int) -> float:
        """Return the share of the annealing that is done."""
        return min(1.0, step / self.least)

    def observe(self, step: int, sigma: np.ndarray) -> None: ...  # batches are what it looks at

    def see(self, step: int, terms: Mapping[str, Tensor]) -> None:
        """Note the reward terms of the update after step number `step`."""
        self._sums[step // self.window] += torch.stack([terms[name] for name in TERMS])
        self._counts[step // self.window] += 1

    def done(self, step: int) -> bool:
        """Return True if the last two whole windows before `step` agree."""
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


Terms = tuple[float, float]
"""Means of r_c and r_d over a window."""


def cap_of(config: Budget, steps: int, planned: int, used: Sequence[int]) -> int:
    """Return the most steps a skill may take: a multiple of its own, or what earlier skills left of the plan."""
    return min(round(config.most * steps), planned - sum(used))


def verdict(config: Budget, step: int, steps: int, left: int, before: Terms | None, now: Terms | None) -> str | None:
    """Return why an attempt ends after `step` of at most `left` steps, given its last two windows; None: it does not.

    Up to its own `steps` a skill ends when both terms have settled; beyond them it continues while it improves.
    """
    if step >= left:
        return "cap"
    if step < config.least * steps or before is None or now is None:
        return None
    tolerance, (consistency, diversity), (was_consistency, was_diversity) = config.tolerance, now, before
    if step < steps:
        near = (abs(new - old) <= tolerance * abs(old) for new, old in zip(now, before, strict=True))
        return "settled" if all(near) else None
    farther = diversity > (1.0 + tolerance) * was_diversity
    steadier = consistency < (1.0 - tolerance) * was_consistency and diversity >= (1.0 - tolerance) * was_diversity
    return None if farther or steadier else "stalled"


def is_duplicate(config: Budget, diversity: float, others: Sequence[float]) -> bool:
    """Return True if a skill stays far closer to earlier skills than those stayed to the skills before them."""
    return bool(others) and diversity < config.duplicate * median(others)


class Spending:
    """The budget of one skill, over all its attempts."""

    def __init__(
        self,
        config: Budget,
        steps: int,
        cap: int,
        skip: int,
        others: Sequence[float],
        terms: Callable[[Tensor], Tensor],
    ) -> None:
        """`skip`: the first steps, taken at random. `others`: final r_d of earlier skills. `terms`: r_c and r_d (2, N)
        of states (N, D)."""
        self.config, self.steps, self.cap, self.others, self.terms = config, steps, cap, others, terms
        self.window = max(1, round(config.window * steps))
        self.attempt = self.began = 0
        self.ended = ""
        """Why the last attempt did."""
        self._skip = skip
        self._visited: list[np.ndarray] = []
        self._windows: list[int] = []  # of each state that was visited
        self._sums = torch.zeros(2, -(-cap // self.window), dtype=torch.float64)
        self._counts = torch.zeros(self._sums.shape[1], dtype=torch.int64)

    def progress(self, step: int) -> float:
        """Return the share of the annealing that is done. A new attempt restarts it."""
        return min(1.0, (step - self.began) / (self.config.least * self.steps))

    def observe(self, step: int, sigma: np.ndarray) -> None:
        """See the state that a step has led to."""
        if step >= self._skip:
            self._visited.append(sigma)
            self._windows.append((step - self.began) // self.window)

    def see(self, step: int, terms: Mapping[str, Tensor]) -> None: ...  # a batch says little of the skill itself

    def done(self, step: int) -> bool:
        """Return True if the attempt ends at `step`. Call it when an episode ends: it measures the visited states."""
        if self._visited:
            measured = self.terms(torch.from_numpy(np.stack(self._visited)).float()).cpu().double()
            self._sums.index_add_(1, torch.tensor(self._windows), measured)
            self._counts += torch.bincount(torch.tensor(self._windows), minlength=len(self._counts))
            self._visited, self._windows = [], []
        taken = step - self.began
        last = taken // self.window - 1
        before, now = self._mean(last - 1), self._mean(last)
        self.ended = verdict(self.config, taken, self.steps, self.cap - self.began, before, now) or ""
        if not self.ended and taken >= self.steps and self._better_again(step):
            self.ended = "stalled"  # steps that others have saved are for another attempt, not for a duplicate
        return bool(self.ended)

    def again(self, step: int) -> bool:
        """Return True if the skill is to be tried again from other weights, and start the next attempt."""
        if not self._better_again(step):
            return False
        self.attempt, self.began = self.attempt + 1, step
        self._sums.zero_()
        self._counts.zero_()
        return True

    def _better_again(self, step: int) -> bool:
        """Return True if it is a duplicate now, and an attempt and its steps are left."""
        left = self.attempt < self.config.retries and self.cap - step >= self.config.least * self.steps
        return left and is_duplicate(self.config, self.final(step)[1], self.others)

    def final(self, step: int) -> Terms:
        """Return the means over the attempt's last whole window, or over all of it if there is none."""
        terms = self._mean((step - self.began) // self.window - 1)
        if terms is None:
            consistency, diversity = (self._sums.sum(1) / self._counts.sum().clamp(min=1)).tolist()
            terms = consistency, diversity
        return terms

    def _mean(self, window: int) -> Terms | None:
        if window < 0 or not self._counts[window]:
            return None
        consistency, diversity = (self._sums[:, window] / self._counts[window]).tolist()
        return consistency, diversity

    def state(self) -> dict[str, Tensor]:
        return {"sums": self._sums, "counts": self._counts, "attempt": torch.tensor([self.attempt, self.began])}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._sums.copy_(state["sums"])
        self._counts.copy_(state["counts"])
        self.attempt, self.began = state["attempt"].tolist()
