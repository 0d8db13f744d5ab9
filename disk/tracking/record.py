"""Records: what the files of one run, skill or controller say, in MLflow's terms. Summaries: what was added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A row of a training curve."""

    step: int
    elapsed: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Record:
    """The content of one MLflow run."""

    experiment: str
    key: str
    """Tells the run from all others of its experiment: `quick/point/disk/seed0/skill03`."""
    name: str
    rows: Sequence[Row]
    """The training curve, steps ascending."""
    results: Mapping[str, Mapping[int, float]]
    """Measures taken after training: metric, step, value. A later evaluation may change them."""
    params: Mapping[str, str]
    tags: Mapping[str, str]
    artefacts: Mapping[str, Path]
    """Files to upload, by their path in MLflow."""
    started: int
    """Start of training in milliseconds since the epoch. Used when MLflow does not have the run yet."""
    seconds: float
    """Duration of training so far."""
    finished: bool
    world: str = ""
    """The world that skills were learned in, as JSON; empty: not known."""


@dataclass
class Summary:
    """Counts of what was added to MLflow."""

    runs: int = 0
    points: int = 0
    artefacts: int = 0

    def __str__(self) -> str:
        return f"{self.runs} runs, {self.points} points and {self.artefacts} artefacts added"
