"""Transitions in files: rows that a checkpoint appends, and the shard of a finished skill.

A row is `obs | action | next_obs | sigma | terminated`, then `label` and `origin` where a method has them. Where
critics see σ, `sigma_before`, which is σ(s), stands behind `obs`. A checkpoint holds raw rows; a shard holds one tensor
for each column.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from disk.errors import ArtefactError
from disk.storage.files import save_tensors

if TYPE_CHECKING:
    from disk.learning.replay import Replay

CHUNK = 1 << 20
"""Bytes that are hashed at a time."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Widths of a row's parts."""

    obs: int
    action: int
    sigma: int
    label: int = 0
    origin: int = 0
    sigma_before: int = 0

    @property
    def width(self) -> int:
        return self.sigma_before + 2 * self.obs + self.action + self.sigma + 1 + self.label + self.origin

    @property
    def parts(self) -> dict[str, slice]:
        start, parts = 0, {}
        widths = {"obs": self.obs, "sigma_before": self.sigma_before, "action": self.action}
        widths |= {"next_obs": self.obs, "sigma": self.sigma, "terminated": 1, "label": self.label}
        for name, width in {**widths, "origin": self.origin}.items():
            if width:
                parts[name] = slice(start, start + width)
            start += width
        return parts


def append_rows(file: BinaryIO, replay: Replay, since: int) -> Iterator[bytes]:
    """Append the rows that were added after the first `since` ones; return the bytes that the file grew by."""
    rows = replay.newest(replay.added - since)
    overwritten = replay.added - since - len(rows)  # nobody reads these again: a hole keeps their place
    hole = 4 * replay.columns.width * overwritten
    end = file.seek(0, 2) + hole
    file.truncate(end)
    file.seek(end)
    data = rows.numpy().tobytes()
    file.write(data)
    return chain((bytes(min(CHUNK, hole - done)) for done in range(0, hole, CHUNK)), (data,))


def read_rows(path: Path, columns: Columns, start: int, count: int) -> Tensor:
    """Return rows start … start + count - 1 of a file that `append_rows` wrote."""
    size = 4 * columns.width
    with path.open("rb") as file:
        file.seek(start * size)
        data = np.fromfile(file, dtype=np.float32, count=count * columns.width)
    if len(data) != count * columns.width:
        raise ArtefactError(f"{path}: holds {len(data) // columns.width} rows, its checkpoint lists {count}")
    return torch.from_numpy(data.reshape(count, columns.width))


def save_shard(path: Path, rows: Tensor, columns: Columns, meta: dict[str, object]) -> None:
    """Write one skill's own transitions, column by column."""
    tensors = {name: rows[:, part].contiguous() for name, part in columns.parts.items()}
    tensors["terminated"] = tensors["terminated"][:, 0].to(torch.uint8)
    save_tensors(path, tensors, meta)


def shard_length(path: Path, columns: Columns) -> int:
    """Return the number of transitions in a shard, after checking its columns."""
    with _opened(path) as file:
        lengths = set()
        for name, part in columns.parts.items():
            length, *width = file.get_slice(name).get_shape()
            if (width or [1]) != [part.stop - part.start]:
                raise ArtefactError(f"{path}: {name} has {width} columns, this world has {part.stop - part.start}")
            lengths.add(length)
        if len(lengths) != 1:
            raise ArtefactError(f"{path}: its columns differ in length; delete it and run the same command again")
        return int(lengths.pop())


def read_shard(path: Path, columns: Columns, wanted: slice | Tensor) -> Tensor:
    """Return some of a shard's transitions as rows (N, width)."""
    with _opened(path) as file:
        parts = [file.get_slice(name)[wanted if isinstance(wanted, slice) else slice(None)] for name in columns.parts]
    rows = torch.cat([part.float().reshape(len(part), -1) for part in parts], dim=1)
    return rows if isinstance(wanted, slice) else rows[wanted]


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise ArtefactError(f"{path}: does not exist") from None
    except (SafetensorError, OSError) as error:
        raise ArtefactError(f"{path}: is damaged ({error}); delete it and run the same command again") from None
