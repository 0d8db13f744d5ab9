"""The curve of a controller: the mean normalised distance to the goal, (1/T) Σ d_t / d_0, over training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from disk.config.jobs import HierarchyJob
from disk.storage.files import save_text

LIVE = "curve.csv"
"""File of a checkpoint: the curve so far."""
HEADER = "decision,low_level_step,normalised_distance"
STREAMS = {"learner": 0, "episode": 1}


class Curve:
    """A row every `job.every` decisions. These are whole episodes, so that a row is a mean over episodes."""

    def __init__(self, job: HierarchyJob, live: Path | None = None) -> None:
        """`live` is a file to keep up to date with the rows so far."""
        self.every, self.steps, self._live = job.every, job.steps, live
        self.rows: list[tuple[int, float]] = []
        self._sum, self._count = 0.0, 0

    def add(self, normalised: float, steps: int = 1) -> None:
        """Add Σ d_t / d_0 over some environment steps."""
        self._sum += normalised
        self._count += steps

    def row(self, decision: int) -> bool:
        """Add a row if one is due. Return True if so."""
        if decision % self.every or not self._count:
            return False
        self.rows.append((decision, self._sum / self._count))
        self._sum, self._count = 0.0, 0
        if self._live:
            save_text(self._live, self.text())
        return True

    def text(self) -> str:
        rows = [f"{decision},{decision * self.steps},{value:.9g}" for decision, value in self.rows]
        return "\n".join([HEADER, *rows]) + "\n"

    def state(self) -> dict[str, Any]:
        return {"rows": [list(row) for row in self.rows], "sum": self._sum, "count": self._count}

    def load_state(self, state: dict[str, Any]) -> None:
        self.rows = [(int(decision), float(value)) for decision, value in state["rows"]]
        self._sum, self._count = state["sum"], state["count"]


def controller_seed(job: HierarchyJob, stream: Literal["learner", "episode"], *parts: int) -> int:
    """Return a seed for a controller, independent of the seeds of its skills' training (disk/seeds.py)."""
    entropy = [100 + STREAMS[stream], job.seed, job.hierarchy_seed, len(parts), *parts]
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])
