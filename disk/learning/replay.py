"""Replay of transitions, without rewards: those are computed anew whenever a batch is drawn.

A transition is one packed row `obs | action | next_obs | sigma | terminated`, so that a batch is one
gather, the critic's input `obs | action` is a view of it, and a checkpoint appends raw rows to a file.
Where skills are learned together, `label` behind it says which skill acted: its number, or z itself where skills
are points of a continuum. `origin` at the end is for objectives that ask how likely an action was when it was taken.
Rows are kept in the order they came; when the capacity is reached the oldest are overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from disk.errors import ArtefactError
from disk.storage.files import save_tensors

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

    @property
    def width(self) -> int:
        return 2 * self.obs + self.action + self.sigma + 1 + self.label + self.origin

    @property
    def parts(self) -> dict[str, slice]:
        start, parts = 0, {}
        widths = {"obs": self.obs, "action": self.action, "next_obs": self.obs, "sigma": self.sigma, "terminated": 1}
        for name, width in {**widths, "label": self.label, "origin": self.origin}.items():
            if width:
                parts[name] = slice(start, start + width)
            start += width
        return parts


class Batch:
    """Views of gathered rows (B, width)."""

    __slots__ = (
        *("action", "columns", "label", "next_obs", "obs", "obs_action", "origin", "own", "rows", "sigma"),
        "terminated",
    )

    def __init__(self, rows: Tensor, columns: Columns, own: int | None = None) -> None:
        """`own`: the first rows, so many, are the skill's own transitions. None: nobody knows which are."""
        self.rows, self.columns, self.own = rows, columns, own
        middle = columns.obs + columns.action
        flag = middle + columns.obs + columns.sigma
        self.obs_action = rows[:, :middle]
        self.obs = rows[:, : columns.obs]
        self.action = rows[:, columns.obs : middle]
        self.next_obs = rows[:, middle : middle + columns.obs]
        self.sigma = rows[:, middle + columns.obs : flag]  # σ(s')
        self.terminated = rows[:, flag : flag + 1]
        self.label = rows[:, flag + 1 : flag + 1 + columns.label]
        self.origin = rows[:, flag + 1 + columns.label :]

    def given(self, latent: Tensor) -> Batch:
        """The batch as a policy sees it that is told its skill: z (B, L) behind both observations."""
        columns, rest = self.columns, self.rows[:, 2 * self.columns.obs + self.columns.action :]
        rows = torch.cat((self.obs, latent, self.action, self.next_obs, latent, rest), dim=1)
        return Batch(rows, replace(columns, obs=columns.obs + latent.shape[1]), self.own)


class Replay:
    def __init__(self, capacity: int, columns: Columns, device: torch.device) -> None:
        self.columns, self.capacity = columns, capacity
        self.rows = torch.empty(capacity, columns.width, device=device)  # touched, so resident, only as it fills
        self.added = 0
        """All rows that were ever added; row i is at i modulo the capacity."""
        self.inherited = 0
        """How many of these came from earlier skills."""
        self._staging = np.empty(columns.width, dtype=np.float32)
        self._parts = columns.parts

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(
        self,
        obs: np.ndarray,
        action: np.ndarray,
        next_obs: np.ndarray,
        terminated: bool,
        sigma: np.ndarray,
        label: float | np.ndarray = 0.0,
        origin: np.ndarray | None = None,
    ) -> None:
        row, parts = self._staging, self._parts
        row[parts["obs"]], row[parts["action"]], row[parts["next_obs"]] = obs, action, next_obs
        row[parts["sigma"]], row[parts["terminated"]] = sigma, terminated
        if "label" in parts:
            row[parts["label"]] = label
        if origin is not None:
            row[parts["origin"]] = origin
        self.rows[self.added % self.capacity].copy_(torch.from_numpy(row))
        self.added += 1

    def extend(self, rows: Tensor) -> None:
        """Add many rows; of more than the capacity only the newest stay."""
        self.added += max(0, len(rows) - self.capacity)
        rows = rows[-self.capacity :]
        start = self.added % self.capacity
        head = min(len(rows), self.capacity - start)
        self.rows[start : start + head].copy_(rows[:head])
        self.rows[: len(rows) - head].copy_(rows[head:])
        self.added += len(rows)

    def sample(self, size: int, generator: torch.Generator, own: int | None = None) -> Batch:
        """Draw rows uniformly; or `own` of the skill's own first and the rest of those that it inherited."""
        if own is None:
            chosen = torch.randint(len(self), (size,), generator=generator, device=self.rows.device)
            return Batch(self.rows.index_select(0, chosen), self.columns)
        oldest = self.added - len(self)
        first = max(self.inherited, oldest)  # of its own
        own = own if first > oldest else size  # nothing was inherited, or all of that has been overwritten
        parts = [(first, self.added, own), (oldest, first, size - own)]
        drawn = [
            torch.randint(low, high, (count,), generator=generator, device=self.rows.device)
            for low, high, count in parts
            if count
        ]
        return Batch(self.rows.index_select(0, torch.cat(drawn) % self.capacity), self.columns, own)

    def newest(self, count: int) -> Tensor:
        """The last `count` rows in the order they came (fewer if they are gone), on the CPU."""
        count = min(count, len(self))
        index = torch.arange(self.added - count, self.added) % self.capacity
        return self.rows[index.to(self.rows.device)].cpu()


def append_rows(file: BinaryIO, replay: Replay, since: int) -> Iterator[bytes]:
    """Write the rows added after the first `since` ones to the end of `file`, and return what it holds now besides."""
    rows = replay.newest(replay.added - since)
    overwritten = replay.added - since - len(rows)  # they are never read again: a hole keeps their place
    hole = 4 * replay.columns.width * overwritten
    end = file.seek(0, 2) + hole
    file.truncate(end)
    file.seek(end)
    data = rows.numpy().tobytes()
    file.write(data)
    return chain((bytes(min(CHUNK, hole - done)) for done in range(0, hole, CHUNK)), (data,))


def read_rows(path: Path, columns: Columns, start: int, count: int) -> Tensor:
    """Rows start … start + count - 1 of a file that `append_rows` wrote."""
    size = 4 * columns.width
    with path.open("rb") as file:
        file.seek(start * size)
        data = np.fromfile(file, dtype=np.float32, count=count * columns.width)
    if len(data) != count * columns.width:
        raise ArtefactError(f"{path}: holds {len(data) // columns.width} of the {count} rows its checkpoint speaks of")
    return torch.from_numpy(data.reshape(count, columns.width))


def save_shard(path: Path, rows: Tensor, columns: Columns, meta: dict[str, object]) -> None:
    """One skill's own transitions, column by column."""
    tensors = {name: rows[:, part].contiguous() for name, part in columns.parts.items()}
    tensors["terminated"] = tensors["terminated"][:, 0].to(torch.uint8)
    save_tensors(path, tensors, meta)


def inherit(replay: Replay, shards: Iterable[Path], keep: float, generator: torch.Generator) -> None:
    """Start a replay with earlier skills' transitions, oldest first; `keep` is the share that is drawn.

    Only the newest that fit the capacity are read.
    """
    sizes = [(path, _shard_length(path, replay.columns)) for path in shards]
    total = sum(size for _, size in sizes)
    chosen = None
    if keep < 1.0:
        draw = torch.randperm(total, generator=generator, device=generator.device).cpu()
        chosen = draw[: round(keep * total)].sort().values
        total_kept = len(chosen)
    else:
        total_kept = total
    skip = max(0, total_kept - replay.capacity)  # the oldest of what is kept
    replay.added = skip
    first = 0  # global index of the shard's first row
    for path, size in sizes:
        if chosen is None:
            wanted: slice | Tensor = slice(min(max(skip - first, 0), size), size)
        else:
            kept = chosen[skip:]
            wanted = kept[(kept >= first) & (kept < first + size)] - first
        if isinstance(wanted, Tensor) or wanted.start < size:
            replay.extend(_read_shard(path, replay.columns, wanted))
        first += size
    replay.inherited = replay.added


def _shard_length(path: Path, columns: Columns) -> int:
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


def _read_shard(path: Path, columns: Columns, wanted: slice | Tensor) -> Tensor:
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
