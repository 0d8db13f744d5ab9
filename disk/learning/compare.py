"""A device beside the CPU: does it compute the same updates, and does it pay? For `python -m disk doctor --device`."""

from __future__ import annotations

import math
import multiprocessing
import time

import torch

from disk.config import Sac
from disk.errors import ConfigError
from disk.learning.replay import Batch
from disk.learning.sac import SAC
from disk.storage.replay import Columns

SIZES = Columns(obs=27, action=8, sigma=2)
"""Ant's."""
UPDATES = 200
TOLERANCE = 0.02
"""Most that parameters may be apart, as a share of the way they have come. Rounding makes 0.001, bf16 0.09."""


def apart(config: Sac, device: torch.device, updates: int = UPDATES) -> tuple[float, float]:
    """Take the same updates on the CPU and on a device. Return how far losses and parameters are apart.

    Both are relative: to the CPU's mean critic loss, and to the way its parameters have come.
    """
    reference, other = (_learner(config, place) for place in (torch.device("cpu"), device))
    begun = _parameters(reference)
    generator, losses, differences = torch.Generator().manual_seed(1), 0.0, 0.0
    for update in range(updates):
        rows = torch.randn(config.batch_size, SIZES.width, generator=generator)
        rows[:, -1] = 0.0  # nothing terminates
        reward = torch.randn(config.batch_size, generator=generator)
        draws = 2 if update % config.actor_every == 0 else 1
        noise = [torch.randn(config.batch_size, SIZES.action, generator=generator) for _ in range(draws)]
        one, two = (
            learner.improve(
                Batch(rows.to(learner.device), SIZES),
                reward.to(learner.device),
                [each.to(learner.device) for each in noise],
            )["train/critic_loss"].item()
            for learner in (reference, other)
        )
        losses, differences = losses + one, differences + abs(one - two)
    ended = _parameters(reference)
    return differences / losses, float((_parameters(other) - ended).norm() / (ended - begun).norm())


def _learner(config: Sac, device: torch.device) -> SAC:
    return SAC(SIZES.obs, SIZES.action, config, torch.Generator(device).manual_seed(0), device)


def _parameters(learner: SAC) -> torch.Tensor:
    networks = (learner.actor, learner.critic)
    return torch.cat([each.detach().flatten().cpu() for network in networks for each in network.parameters()])


def rate(config: Sac, name: str, seconds: float) -> float:
    """Return the updates a second by the clock, on one thread."""
    torch.set_num_threads(1)
    device = torch.device(name)
    learner, rows = _learner(config, device), torch.randn(config.batch_size, SIZES.width, device=device)
    batch, reward = Batch(rows, SIZES), torch.randn(config.batch_size, device=device)

    def run(updates: int) -> float:
        start = time.perf_counter()
        for _ in range(updates):
            learner.update(batch, reward)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - start

    run(20)
    return (count := max(1, math.ceil(10 * seconds / run(10)))) / run(count)


def report(config: Sac, name: str, jobs: int, seconds: float = 5.0) -> str:
    """Compare a device with the CPU: the numbers of 200 updates, and the speed of one job and of several."""
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"--device {name}: torch {torch.__version__} finds no usable GPU here. Nothing was compared. "
            "The update's CUDA graphs are untested until somebody runs this command on a GPU"
        )
    losses, parameters = apart(config, device)
    same = losses < TOLERANCE and parameters < TOLERANCE
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        together = sum(pool.starmap(rate, [(config, name, seconds)] * jobs, chunksize=1))
    core, alone = rate(config, "cpu", seconds), rate(config, name, seconds)
    return "\n".join(
        (
            f"{name} beside the CPU, {UPDATES} equal updates at Ant's sizes, networks {config.hidden}, batch "
            f"{config.batch_size}:",
            f"  {'same' if same else 'DIFFERENT'}: losses are {losses:.1e} apart, parameters {parameters:.1e} of their "
            f"way (at most {TOLERANCE})",
            f"  updates a second: one CPU core {core:.0f}; {name} {alone:.0f} for one job, {together:.0f} for {jobs}",
            f"  {name} {'pays' if max(alone, together) > core else 'does not pay'}: it is worth "
            f"{max(alone, together) / core:.1f} CPU cores at these sizes",
        )
    )
