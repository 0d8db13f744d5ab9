"""Replay memory. It stores no rewards: the objective computes them whenever a batch is drawn.

A transition is one packed row `obs | action | next_obs | sigma | terminated`. A batch is therefore one gather, and the
critic's input `obs | action` is a view of it. Where critics see σ, σ(s) stands behind `obs` as σ(s') stands behind
`next_obs`, so their inputs are views too. Where skills are learned together, `label` says which skill acted: its
number, or z itself where skills are points of a continuum. `origin` is for objectives that ask how likely an action
was. Rows stay in the order they came; a full replay overwrites the oldest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from disk.storage.replay import Columns, read_shard, shard_length


class Batch:
    """Views of gathered rows (B, width)."""

    __slots__ = (
        *("action", "columns", "critic_next_obs", "critic_obs", "label", "next_obs", "obs", "obs_action"),
        *("origin", "own", "rows", "sigma", "terminated"),
    )

    def __init__(self, rows: Tensor, columns: Columns, own: int | None = None) -> None:
        """`own`: number of rows, at the front, that are the skill's own transitions. None: unknown."""
        self.rows, self.columns, self.own = rows, columns, own
        seen = columns.obs + columns.sigma_before
        middle = seen + columns.action
        flag = middle + columns.obs + columns.sigma
        self.obs_action = rows[:, :middle]  # critic_obs | action
        self.obs, self.critic_obs = rows[:, : columns.obs], rows[:, :seen]
        self.action = rows[:, seen:middle]
        self.next_obs, self.critic_next_obs = rows[:, middle : middle + columns.obs], rows[:, middle : middle + seen]
        self.sigma = rows[:, middle + columns.obs : flag]  # σ(s')
        self.terminated = rows[:, flag : flag + 1]
        self.label = rows[:, flag + 1 : flag + 1 + columns.label]
        self.origin = rows[:, flag + 1 + columns.label :]

    def given(self, latent: Tensor) -> Batch:
        """Return the batch with z (B, L) behind both observations, for a policy that is told its skill."""
        columns, middle = self.columns, self.obs_action.shape[1]
        to_action, rest = self.rows[:, columns.obs : middle], self.rows[:, middle + columns.obs :]
        rows = torch.cat((self.obs, latent, to_action, self.next_obs, latent, rest), dim=1)
        return Batch(rows, replace(columns, obs=columns.obs + latent.shape[1]), self.own)


class Replay:
    def __init__(self, capacity: int, columns: Columns, device: torch.device) -> None:
        self.columns, self.capacity = columns, capacity
        self.rows = torch.empty(capacity, columns.width, device=device)  # touched, so resident, only as it fills
        self.added = 0
        """All rows that were ever added; row i is at i modulo the capacity."""
        self.inherited = 0
        """How many of these came from earlier skills."""
        self.since, self.old = 0, 0.0
        """Rows before number `since` are of an older world; `old` is their share of a batch."""
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
        sigma_before: np.ndarray | None = None,
    ) -> None:
        row, parts = self._staging, self._parts
        row[parts["obs"]], row[parts["action"]], row[parts["next_obs"]] = obs, action, next_obs
        row[parts["sigma"]], row[parts["terminated"]] = sigma, terminated
        if "label" in parts:
            row[parts["label"]] = label
        if origin is not None:
            row[parts["origin"]] = origin
        if "sigma_before" in parts:
            row[parts["sigma_before"]] = sigma_before
        self.rows[self.added % self.capacity].copy_(torch.from_numpy(row))
        self.added += 1

    def extend(self, rows: Tensor) -> None:
        """Add many rows. If they exceed the capacity, keep the newest."""
        self.added += max(0, len(rows) - self.capacity)
        rows = rows[-self.capacity :]
        start = self.added % self.capacity
        head = min(len(rows), self.capacity - start)
        self.rows[start : start + head].copy_(rows[:head])
        self.rows[: len(rows) - head].copy_(rows[head:])
        self.added += len(rows)

    def sample(self, size: int, generator: torch.Generator, own: int | None = None) -> Batch:
        """Draw rows uniformly, or `own` rows of the skill's own, then inherited ones."""
        oldest = self.added - len(self)
        if own is None and self.since <= oldest:
            chosen = torch.randint(len(self), (size,), generator=generator, device=self.rows.device)
            return Batch(self.rows.index_select(0, chosen), self.columns)
        if own is None:
            first, front = self.since, size - round(self.old * size)
        else:
            oldest = max(oldest, self.since)
            first = max(self.inherited, oldest)  # of its own
            own = front = own if first > oldest else size  # nothing was inherited, or it is overwritten or forgotten
        parts = [(first, self.added, front), (oldest, first, size - front)]
        drawn = [
            torch.randint(low, high, (count,), generator=generator, device=self.rows.device)
            for low, high, count in parts
            if count
        ]
        return Batch(self.rows.index_select(0, torch.cat(drawn) % self.capacity), self.columns, own)

    def forget(self, before: int, old: float, least: int) -> None:
        """Leave rows before number `before` out of batches, but for a share `old`. Keep at least `least` rows."""
        self.since, self.old = max(0, min(before, self.added - least)), old

    def newest(self, count: int) -> Tensor:
        """Return the last `count` rows, or fewer if older ones are gone, in order and on the CPU."""
        count = min(count, len(self))
        index = torch.arange(self.added - count, self.added) % self.capacity
        return self.rows[index.to(self.rows.device)].cpu()


def inherit(replay: Replay, shards: Iterable[Path], keep: float, generator: torch.Generator) -> None:
    """Fill a replay with earlier skills' transitions, oldest first. `keep` is the share that is drawn.

    Only the newest that fit the capacity are read.
    """
    sizes = [(path, shard_length(path, replay.columns)) for path in shards]
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
            replay.extend(read_shard(path, replay.columns, wanted))
        first += size
    replay.inherited = replay.added
