"""Seeds: which random stream a part of a training draws from.

One seed drives everything. Each use has a stream of its own, named by what it is for, so that episode 7
of skill 3 starts from the same state whether or not the process was interrupted in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

STREAMS = {
    "learner": 0,
    "episode": 1,
    "visits": 2,
    "evaluation": 3,
    "schedule": 4,
    "objective": 5,
    "latent": 6,
    "normaliser": 9,
    "projection": 10,
    "probe": 12,
}
Stream = Literal[
    "learner", "episode", "visits", "evaluation", "schedule", "objective", "latent", "normaliser", "projection", "probe"
]


def seed_of(stream: Stream, *parts: int) -> int:
    """Return a 32-bit seed for (seed, skill, episode, …), independent between streams."""
    return int(np.random.SeedSequence([STREAMS[stream], *parts]).generate_state(1)[0])


class EpisodeSeeds(Sequence[int]):
    """The reset seeds of episode 0, 1, 2, … of a stream."""

    def __init__(self, stream: Stream, *parts: int) -> None:
        self._stream, self._parts = stream, parts

    def __len__(self) -> int:
        return 2**31

    def __getitem__(self, index: int | slice) -> list[int] | int:  # type: ignore[override]
        if isinstance(index, slice):
            return [seed_of(self._stream, *self._parts, i) for i in range(index.start, index.stop)]
        return seed_of(self._stream, *self._parts, index)
