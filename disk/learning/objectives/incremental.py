"""DISk's reward: the lines of Algorithm 1 between sampling a batch and updating the agent.

The M-th skill is paid β·r_d for being far from 𝒯, the projected states of skills 1..M-1, and pays
α·r_c for being far from BUF, its own most recent projected states. Both distances are those to the
k-th nearest neighbour, which is the particle estimate of entropy with ln x ≈ x - 1. The first skill has
nothing to be far from: it gets a constant bonus instead.

Three parts of it have alternatives that are not the paper's: what α and β are normalised by (`normaliser`), how the two
terms make a reward (`shape`), and the first skill's α (`first`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from disk.config import Incremental
from disk.learning.replay import Batch


def kth_distance(points: Tensor, others: Tensor, k: int) -> Tensor:
    """Return the distance (B,) of each of the points (B, D) to its k-th nearest of the others (N, D).

    With fewer than k others, the farthest. A point that is among the others counts as its own neighbour.
    """
    # Differences before squares: expanding the square, as cdist does by default, returns 0 for points 2e-5 apart,
    # which is what a consistent skill looks like.
    first, *further = zip(points[:, :, None].unbind(1), others.unbind(1), strict=True)
    squares = torch.sub(*first).square_()
    for here, there in further:
        difference = torch.sub(here, there)
        squares.addcmul_(difference, difference)
    k = min(k, len(others))
    if squares.is_cpu:  # NumPy sorts all of a row in half the time that torch takes to find its three smallest
        squares.numpy().sort(axis=1)
        return squares[:, k - 1].sqrt()
    return squares.topk(k, dim=1, largest=False, sorted=False).values.amax(dim=1).sqrt()


def farthest(states: Sequence[Tensor], k: int, most: int = 256) -> int:
    """Return the skill that stays farthest from all others, given `most` evenly spaced states of each (N, D)."""
    thin = [own[:: -(-len(own) // most)] for own in states]
    others = [torch.cat(thin[:i] + thin[i + 1 :]) if len(thin) > 1 else thin[i] for i in range(len(thin))]
    return int(torch.stack([kth_distance(*pair, k).mean() for pair in zip(thin, others, strict=True)]).argmax())


ANNEALING: dict[str, Callable[[float], float]] = {
    "tanh": lambda t: 0.5 * (1.0 + math.tanh(4.0 * (2.0 * t - 1.0))),
    "signed": lambda t: math.tanh(4.0 * (2.0 * t - 1.0)),
    "none": lambda t: 1.0,
}
"""Factor of α at the share t of a skill's steps."""


class IncrementalObjective:
    def __init__(
        self,
        config: Incremental,
        sigma_size: int,
        past: Tensor | None,
        alpha: float,
        beta: float | None,
        bonus: float,
        generator: torch.Generator,
        device: torch.device,
        paid: Paid | None = None,
        project: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        """`past` is 𝒯 (N, D), None for the first skill; `beta` None: to be measured on the replay; `paid`: to the
        skills before, where that is what normalises the reward. Under running means, and in shape `log`, `alpha` and
        `beta` are the bare weights. `project`: φ, if σ is learned: `past` and `observe` then have what φ projects."""
        self.config, self.generator, self._project = config, generator, project
        self.past = None if past is None else past.to(device)
        self.alpha, self.beta, self.bonus = alpha, beta, bonus
        self.recent = torch.zeros(config.recent_states, sigma_size, device=device)  # BUF
        self.observed = 0
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)  # of batch means of r_c, r_d, annealed r_c
        self._batches = 0
        self._paid_before = paid
        self._running = torch.zeros(2, dtype=torch.float64, device=device)  # decaying sums of means of r_c, r_d
        self._terms = torch.zeros(2, dtype=torch.float64, device=device)  # sums of batch means of α·r_c, β·r_d

    def observe(self, skill: int, sigma: np.ndarray) -> None:
        self.recent[self.observed % len(self.recent)].copy_(torch.from_numpy(sigma))
        self.observed += 1

    def start(self, sample: Callable[[], Batch]) -> None:
        """Measure β on ten replay batches where no earlier skill has an r_d.

        A balanced first skill's α is measured the same way: the bonus over the mean r_c.
        """
        if self.beta is None:
            self.beta = self.config.beta * self._inverse_over_ten(sample, self.diversity)
        if self.past is None and self.config.first == "balanced":
            self.alpha = self.bonus * self._inverse_over_ten(sample, self.consistency)

    def _inverse_over_ten(self, sample: Callable[[], Batch], distance: Callable[[Tensor], Tensor]) -> float:
        batches = [sample() for _ in range(10)]
        mean = float(torch.stack([distance(batch.sigma).mean() for batch in batches]).mean())
        return inverse_mean(mean, self.config.mean_floor)

    def update(self, sample: Callable[[], Batch]) -> Mapping[str, Tensor]:
        return {}  # there is no model to train

    def reward(self, batch: Batch, progress: float) -> tuple[Tensor, Mapping[str, Tensor]]:
        consistency = self.consistency(batch.sigma)
        consistency_mean = consistency.mean()
        factor = 1.0
        if self.past is None:
            reward = self.bonus - self.alpha * consistency
            diversity_mean = torch.zeros_like(consistency_mean)
        else:
            if self.beta is None:
                raise RuntimeError("β of the second skill has not been measured: call start first")
            diversity = self.diversity(batch.sigma)
            factor = ANNEALING[self.config.anneal](progress)
            reward = self._combined(consistency, diversity, factor, batch.own)
            diversity_mean = diversity.mean()
        self._sums += torch.stack((consistency_mean, diversity_mean, factor * consistency_mean))
        self._batches += 1
        return reward, {
            "reward/mean": reward.mean(),
            "reward/consistency": consistency_mean,
            "reward/diversity": diversity_mean,
        }

    def _combined(self, consistency: Tensor, diversity: Tensor, factor: float, own: int | None) -> Tensor:
        """Return the reward of a later skill from r_c, r_d and the annealing factor of α."""
        alpha, beta, config = factor * self.alpha, self.beta or 0.0, self.config
        if config.shape == "log":
            floor = config.log_floor or 0.0
            return torch.sub(beta * (diversity + floor).log(), (consistency + floor).log(), alpha=alpha)
        if config.normaliser == "running":
            self._remember(consistency, diversity, own)
            inverse = self._inverse_running(self._batches + 1)
            consistency, diversity = inverse[0] * consistency, inverse[1] * diversity
            self._terms += torch.stack((self.alpha * consistency.mean(), beta * diversity.mean()))
        if config.shape == "gated":
            return beta * diversity * torch.exp(-alpha * consistency)
        return torch.sub(beta * diversity, consistency, alpha=alpha)

    def _remember(self, consistency: Tensor, diversity: Tensor, own: int | None) -> None:
        """Add a batch, or the skill's own transitions in it, to the running means."""
        upto = own if self.config.normaliser_over == "own" else None
        means = torch.stack((consistency[:upto].mean(), diversity[:upto].mean()))
        self._running.lerp_(means.double(), 1.0 / (self.config.normaliser_window or 1))

    def _inverse_running(self, batches: int) -> Tensor:
        """Inverse running means of r_c and r_d. They start at 0, which the division corrects, as Adam does."""
        decay = 1.0 - 1.0 / (self.config.normaliser_window or 1)
        return 1.0 / (self._running / (1.0 - decay**batches)).clamp(min=self.config.mean_floor)

    def weights(self) -> tuple[float, float | None]:
        """Return the current α and β."""
        if self.past is None or self.config.normaliser != "running" or not self._batches:
            return self.alpha, self.beta
        of_consistency, of_diversity = self._inverse_running(self._batches).tolist()
        return self.alpha * of_consistency, (self.beta or 0.0) * of_diversity

    def mean_terms(self) -> list[float]:
        """Return the means of α·r_c and β·r_d over all updates, before annealing."""
        terms: list[float] = (self._terms / max(self._batches, 1)).tolist()
        return terms

    def consistency(self, sigma: Tensor) -> Tensor:
        """Return r_c, the distance to the skill's own recent states."""
        recent = self.recent[: min(self.observed, len(self.recent))]
        return kth_distance(sigma, recent if self._project is None else self._project(recent), self.config.neighbours)

    def diversity(self, sigma: Tensor) -> Tensor:
        """Return r_d, the distance to a fresh sample of the earlier skills' states."""
        assert self.past is not None
        past, size = self.past if self._project is None else self._projected_past, (self.config.past_batch,)
        chosen = torch.randint(len(past), size, generator=self.generator, device=past.device)
        return kth_distance(sigma, past.index_select(0, chosen), self.config.neighbours)

    @cached_property
    def _projected_past(self) -> Tensor:
        """𝒯 as φ sees it. φ is frozen by now; where 𝒯 is gathered again, σ is not learned."""
        assert self.past is not None
        assert self._project is not None
        return self._project(self.past)

    def means(self) -> tuple[float, float]:
        """Return the raw means of r_c and r_d over all updates. The next skill takes its α and β from them."""
        consistency, diversity, _ = (self._sums / max(self._batches, 1)).tolist()
        return consistency, diversity

    def paid(self) -> Paid:
        """Return what this skill and the skills before it were paid, on average over all updates."""
        _, diversity, annealed = (self._sums / max(self._batches, 1)).tolist()
        bonus = self.bonus if self.past is None else (self.beta or 0.0) * diversity
        own = Paid(-self.alpha * annealed, bonus, self._batches)
        return own if self._paid_before is None else self._paid_before.and_then(own)

    def state(self) -> dict[str, Tensor]:
        beta = math.nan if self.beta is None else self.beta
        own: dict[str, Tensor] = {}
        if self.config.normaliser == "running":
            own |= {"running": self._running, "terms": self._terms}
        if self.config.first == "balanced":
            own["alpha"] = torch.tensor(self.alpha, dtype=torch.float64)
        return {
            **own,
            "recent": self.recent,
            "observed": torch.tensor(self.observed),
            "sums": self._sums,
            "batches": torch.tensor(self._batches),
            "beta": torch.tensor(beta, dtype=torch.float64),
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.recent.copy_(state["recent"])
        self._sums.copy_(state["sums"])
        self.observed, self._batches = int(state["observed"]), int(state["batches"])
        beta = float(state["beta"])
        self.beta = None if math.isnan(beta) else beta
        if self.config.normaliser == "running":
            self._running.copy_(state["running"])
            self._terms.copy_(state["terms"])
        if self.config.first == "balanced":
            self.alpha = float(state["alpha"])


class Paid(NamedTuple):
    """Means of what was paid for consistency, which is a penalty and so below 0, and for diversity."""

    consistency: float
    diversity: float
    updates: int

    def and_then(self, later: Paid) -> Paid:
        updates = self.updates + later.updates
        share = later.updates / max(updates, 1)
        consistency = (1.0 - share) * self.consistency + share * later.consistency
        return Paid(consistency, (1.0 - share) * self.diversity + share * later.diversity, updates)

    def weights(self, floor: float) -> tuple[float, float]:
        """Return α and β as the released code computes them: inverse means with their signs. α < 0 where r_c cost."""
        means = self.consistency, self.diversity
        alpha, beta = (math.copysign(1.0 / max(abs(mean), floor), mean) for mean in means)
        return alpha, beta


def inverse_mean(mean: float, floor: float) -> float:
    return 1.0 / max(mean, floor)
