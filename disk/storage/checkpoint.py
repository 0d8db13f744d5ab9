"""Checkpoints of a training that may be killed at any moment.

A checkpoint is a directory beside the training's outputs that Snakemake does not know of (it deletes
the declared outputs of a failed job):

    lease               locked by the process that trains; names it for whoever comes second
    state.safetensors   networks, optimisers, generators, counters; written whole
    replay.bin          raw replay rows, only ever appended to; replay01.bin, … where policies have replays of their own
    progress.csv        the training curve so far, for whoever wants to watch

It is stamped with a hash of the job and its inputs, and only continued by the very same job. The state holds
checksums of itself, of the replay's rows and of the other files it speaks of.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from disk.errors import ArtefactError
from disk.storage.files import checksum, inside, load_tensors, save_tensors, writing
from disk.storage.layout import CHECKPOINT, LEASE, STATE, STATS, checkpoint_beside
from disk.storage.lock import Lease, lock
from disk.storage.replay import CHUNK, append_rows, read_rows

if TYPE_CHECKING:
    from disk.learning.replay import Replay

log = logging.getLogger("disk")
FORMAT = 4
"""Of what a training saves. To be raised when that changes: a state of another format is not continued."""


class Checkpoint:
    """Saves and restores one training. Hold it open for as long as the training runs."""

    def __init__(self, directory: Path, stamp: str, replays: int = 1) -> None:
        self.stamp = stamp
        self._lease = Lease(directory)
        self.directory = directory
        self._state = self.directory / STATE
        self._rows = [_rows_file(self.directory, index) for index in range(replays)]
        self._forget()

    def _forget(self) -> None:
        """As before the first save."""
        self._saved = [0] * len(self._rows)  # rows in each of them that the state speaks of
        self._bytes = [0] * len(self._rows)
        self._digests = [hashlib.sha256() for _ in self._rows]

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | str:
        """State and metadata of the last save, or why there is nothing to go on from."""
        if not all(path.exists() for path in (self._state, *self._rows)):
            self._clear()
            return ""
        try:
            tensors, meta = load_tensors(self._state)
            self._check(meta)
        except ArtefactError as error:
            self._clear()
            return f"checkpoint ignored: {error}. Training restarts from step 0"
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            self._clear()
            why = f"{self._state} does not fit its other files ({error!r})"
            return f"checkpoint ignored: {why}. Training restarts from step 0"
        return tensors, meta

    def _check(self, meta: Mapping[str, Any]) -> None:
        """Raise unless this very job has saved all that the state speaks of, and it is as it was."""
        if meta.get("stamp") != self.stamp:
            raise ArtefactError(f"{self.directory} was made with other settings or other earlier skills")
        self._digests = verify(self.directory, meta)
        if len(self._digests) != len(self._rows):
            raise ArtefactError(f"{self.directory} has {len(self._digests)} replays, expected {len(self._rows)}")
        self._saved, self._bytes = meta["rows"], meta["bytes"]

    def load_replays(self, replays: Sequence[Replay]) -> None:
        for path, saved, replay in zip(self._rows, self._saved, replays, strict=True):
            os.truncate(path, 4 * replay.columns.width * saved)  # rows that were appended after the last save
            kept = min(saved, replay.capacity)
            replay.added += saved - kept
            replay.extend(read_rows(path, replay.columns, saved - kept, kept))

    def save(
        self,
        tensors: Mapping[str, Tensor],
        meta: Mapping[str, Any],
        replays: Sequence[Replay],
        inherited: Sequence[int],
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Append the new rows, then put the state that speaks of them, and of other files here, in place."""
        sizes, digests = [], []
        for index, (path, replay, before) in enumerate(zip(self._rows, replays, inherited, strict=True)):
            digest = self._digests[index].copy()
            with writing(path), path.open("ab") as file:
                file.truncate(self._bytes[index])
                for part in append_rows(file, replay, before + self._saved[index]):
                    digest.update(part)
                file.flush()
                os.fsync(file.fileno())
                sizes.append(file.tell())
            digests.append(digest)
        own = [replay.added - before for replay, before in zip(replays, inherited, strict=True)]
        sums = {"digests": [digest.hexdigest() for digest in digests], "files": dict(files or {})}
        about = {"format": FORMAT, "stamp": self.stamp, "rows": own, "bytes": sizes, **sums}
        save_tensors(self._state, tensors, {**meta, **about})
        self._saved, self._bytes, self._digests = own, sizes, digests

    def remove(self) -> None:
        """The training is done and its outputs are in place.

        In a SLURM job it stays until `clear_finished`: the job can still be killed before Snakemake knows of its end,
        which then deletes the outputs and starts the job again. With the checkpoint that costs seconds.
        """
        if "SLURM_JOB_ID" in os.environ:
            self.close()
            return
        self._clear()
        self._lease.path.unlink()
        with suppress(OSError):  # somebody who waited has put a lease of its own there
            self._lease.path.parent.rmdir()
        self._lease.release()

    def close(self) -> None:
        """Let go of it, for a process that goes on from here."""
        self._lease.release()

    def _clear(self) -> None:
        for path in self.directory.iterdir():
            if path.name != LEASE:
                path.unlink()
        self._forget()


class Pace:
    """When to save, so that the next save is in place before so many seconds have passed since the last.

    Saves come at the ends of episodes, so the last one in time is that before an episode which might take too long.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._saved = self._ended = time.monotonic()
        self._episode = self._saving = 0.0

    def due(self) -> bool:
        """Asked at the end of an episode."""
        now = time.monotonic()
        self._episode = max(now - self._ended, 0.9 * self._episode)  # a process that was suspended gets over it
        self._ended = now
        return now + 2.0 * self._episode + self._saving >= self._saved + self.seconds

    def saved(self) -> None:
        now = time.monotonic()
        self._saving, self._saved, self._ended = now - self._ended, self._ended, now


def verify(directory: Path, meta: Mapping[str, Any]) -> list[Any]:
    """Raise unless all that a state speaks of is there as it was; the hashes of its replays, to be gone on with."""
    if meta.get("format") != FORMAT:
        raise ArtefactError(f"{directory} was saved by another version of this program")
    for name, expected in meta["files"].items():
        _same(inside(directory, name), checksum(directory / name), expected)
    digests = []
    for index, (size, expected) in enumerate(zip(meta["bytes"], meta["digests"], strict=True)):
        path = _rows_file(directory, index)
        if path.stat().st_size < size:
            raise ArtefactError(f"{path} is shorter than its checkpoint says")
        digests.append(_digest(path, size))
        _same(path, digests[-1].hexdigest(), expected)
    return digests


def _rows_file(directory: Path, index: int) -> Path:
    return directory / (f"replay{index:02d}.bin" if index else "replay.bin")


def _same(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise ArtefactError(f"{path} is damaged (checksum {found}, expected {expected})")


def _digest(path: Path, size: int) -> Any:
    """The hash of a file's first bytes, to be gone on with."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, CHUNK))):
            digest.update(part)
            size -= len(part)
    return digest


def clear_finished(outputs: Path) -> None:
    """Remove a checkpoint that was left beside outputs known to be finished: of a skill, a run or a controller."""
    directory = checkpoint_beside(outputs)
    stats = outputs / STATS if outputs.is_dir() else outputs.with_suffix(".json")
    for state in (directory / STATE, outputs / CHECKPOINT / STATE):
        with suppress(OSError):  # there is none, or somebody else is removing it
            if state.stat().st_mtime_ns > stats.stat().st_mtime_ns:
                continue  # of a training since
            lease = lock(state.parent / LEASE, create=False)
            if lease is not None:
                with lease:
                    shutil.rmtree(state.parent)


def stamp(job: str, inputs: Mapping[str, str]) -> str:
    """Identity of a training: its job and the checksums of what it reads."""
    return hashlib.sha256(json.dumps([job, dict(inputs)], sort_keys=True).encode()).hexdigest()
