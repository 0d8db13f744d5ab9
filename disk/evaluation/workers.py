"""Rollouts by several processes at once.

Threads are nearly as fast on two cores (`benchmarks/rollouts.py` measures both), but about half of a step is Python,
of which one thread runs at a time: processes go on gaining where there are more cores. They are forked where that is
possible, so that a worker starts at once, with everything that is loaded and registered.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from disk.config import World
from disk.evaluation.rollout import Trajectory, rollout, share
from disk.skills import Skills

_TASK: tuple[Any, ...] = ()
"""What a worker was started for."""


def rollout_with(
    workers: int,
    skills: Skills,
    world: World,
    horizon: int,
    seeds: Sequence[Sequence[int]],
    steps: int | Sequence[int] = 0,
) -> list[list[Trajectory]]:
    """What `rollout` returns, bit for bit, computed by so many processes."""
    episodes = len(seeds[0])
    workers = min(workers, len(skills) * episodes)
    if workers <= 1:
        return rollout(skills, world, horizon, seeds, steps)
    # Given to the workers as they start, so that a fork inherits it and nothing is copied through a pipe.
    task = (skills, world, horizon, [list(own[:episodes]) for own in seeds], steps)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(task,)) as pool:
        shares = [pool.submit(_work, workers, worker) for worker in range(workers)]
        try:
            found = {place: path for each in shares for place, path in each.result().items()}
        except BrokenProcessPool:
            raise RuntimeError(
                f"one of {workers} rollout processes ended without a word, perhaps killed for want of memory: "
                "try evaluation.threads: 1"
            ) from None
    return [[found[skill, episode] for episode in range(episodes)] for skill in range(len(skills))]


def _begin(task: tuple[Any, ...]) -> None:
    global _TASK  # noqa: PLW0603
    import torch

    torch.set_num_threads(1)  # the pool of threads of the process that forked is not in this one
    _TASK = task


def _work(workers: int, mine: int) -> dict[tuple[int, int], Trajectory]:
    return share(*_TASK, of=workers, mine=mine)
