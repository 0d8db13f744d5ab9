"""Asking a training to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stopping:
    """The signal that asked for a stop, 0 if none did."""

    signum = 0


@contextmanager
def until_signal() -> Iterator[Stopping]:
    """Let SIGTERM and SIGINT ask for a stop; a second SIGINT stops at once.

    A second SIGTERM does not: SLURM sends it to every process of a job, and its `srun` passes on another, which
    would end the training in the middle of its last save. Whoever wants it gone at once has SIGKILL.
    """
    stopping = Stopping()
    previous: dict[int, Any] = {}

    def ask(signum: int, frame: FrameType | None) -> None:
        stopping.signum = stopping.signum or signum
        if signal.SIGINT in previous:
            signal.signal(signal.SIGINT, previous[signal.SIGINT])

    try:
        for asked in (signal.SIGTERM, signal.SIGINT):
            previous[asked] = signal.signal(asked, ask)
    except ValueError:  # not in the main thread: whoever embeds us handles signals
        pass
    try:
        yield stopping
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
