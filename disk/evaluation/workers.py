"""Rollouts in several processes at once.

About half of a step is Python code, which runs in one thread at a time. On two cores threads are nearly as fast
(`benchmarks/rollouts.py` measures both); on more cores only processes keep gaining. They are forked where possible, so
that a worker starts at once, with all modules loaded and environments registered.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from disk.config import World
from disk.errors import DiskError
from disk.evaluation.rollout import Trajectory, rollout, share
from disk.skills import Skills

_TASK: tuple[Any, ...] = ()
"""Arguments of `share` in a worker process."""


def rollout_with(
    workers: int,
    skills: Skills,
    world: World,
    horizon: int,
    seeds: Sequence[Sequence[int]],
    steps: int | Sequence[int] = 0,
) -> list[list[Trajectory]]:
    """Return the result of `rollout`, bit for bit, computed by several processes."""
    episodes = len(seeds[0])
    workers = min(workers, len(skills) * episodes)
    if workers <= 1:
        return rollout(skills, world, horizon, seeds, steps)
    # Workers get the task at their start: a fork inherits it, and nothing is copied through a pipe.
    task = (skills, world, horizon, [list(own[:episodes]) for own in seeds], steps)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(task,)) as pool:
        shares = [pool.submit(_work, workers, worker) for worker in range(workers)]
        try:
            found = {place: path for each in shares for place, path in each.result().items()}
        except BrokenProcessPool:
            raise DiskError(
                f"one of {workers} rollout processes was killed, perhaps for lack of memory: give --threads 1, or "
                "evaluation.threads: 1"
            ) from None
    return [[found[skill, episode] for episode in range(episodes)] for skill in range(len(skills))]


def _begin(task: tuple[Any, ...]) -> None:
    global _TASK  # noqa: PLW0603
    import torch

    torch.set_num_threads(1)  # a fork does not inherit the pool of threads
    _TASK = task


def _work(workers: int, mine: int) -> dict[tuple[int, int], Trajectory]:
    return share(*_TASK, of=workers, mine=mine)
