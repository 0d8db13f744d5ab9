"""Checkpoints of a training that may be killed at any moment.

A checkpoint is a directory beside the training's outputs. Snakemake does not know of it, because Snakemake deletes the
declared outputs of a failed job.

    lease               locked by the process that trains; holds its name
    state.safetensors   networks, optimisers, generators, counters; written whole
    replay.bin          raw replay rows, only appended to; also replay01.bin, … if each policy has its own replay
    progress.csv        the training curve so far

The state is stamped with a hash of the job and its inputs, and only the same job resumes it. It holds checksums of
itself, of the replay's rows and of the other files it lists.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from disk.errors import ArtefactError, DiskError
from disk.storage.files import checksum, inside, load_tensors, save_tensors, writing
from disk.storage.layout import CHECKPOINT, LEASE, STATE, STATS, checkpoint_beside
from disk.storage.lock import Lease, lock
from disk.storage.replay import CHUNK, append_rows, read_rows

if TYPE_CHECKING:
    from disk.learning.replay import Replay

log = logging.getLogger("disk")
FORMAT = 4
"""Version of the checkpoint's content. Raise it when that changes: a state of another version is not resumed."""


class Checkpoint:
    """The checkpoint of one training. It holds the lease until it is closed or removed."""

    def __init__(self, directory: Path, stamp: str, replays: int = 1) -> None:
        self.stamp = stamp
        self._lease = Lease(directory)
        self.directory = directory
        self._state = self.directory / STATE
        self._rows = [_rows_file(self.directory, index) for index in range(replays)]
        self._forget()

    def _forget(self) -> None:
        """Reset the counters to those before the first save."""
        self._saved = [0] * len(self._rows)  # rows of each replay that the state counts
        self._bytes = [0] * len(self._rows)
        self._digests = [hashlib.sha256() for _ in self._rows]

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | str:
        """Return state and metadata of the last save, or the reason why training starts from step 0."""
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
        """Refuse a state of another job, or one whose files are damaged."""
        if meta.get("stamp") != self.stamp:
            raise ArtefactError(f"{self.directory} was made with other settings or other earlier skills")
        self._digests = verify(self.directory, meta)
        if len(self._digests) != len(self._rows):
            raise ArtefactError(f"{self.directory} has {len(self._digests)} replays, expected {len(self._rows)}")
        self._saved, self._bytes = meta["rows"], meta["bytes"]

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Give the remedy where a whole state does not fit this code: its stamp is of the job, not of the code."""
        try:
            yield
        except (DiskError, torch.OutOfMemoryError):
            raise
        except (LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ArtefactError(
                f"{self.directory}: its state does not fit this code ({type(error).__name__}: "
                f"{shorten(str(error), 200)}); run the same command with the code that saved it, or delete the folder "
                "to train from step 0"
            ) from error

    def load_replays(self, replays: Sequence[Replay]) -> None:
        """Fill the replays with the rows of the last save."""
        for path, saved, replay in zip(self._rows, self._saved, replays, strict=True):
            os.truncate(path, 4 * replay.columns.width * saved)  # drop rows that were appended after the last save
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
        """Append the new replay rows, then write the state with the checksums of the rows and of other `files` here."""
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
        """Remove the checkpoint of a finished training.

        In a SLURM job it stays until `clear_finished`. The job can still be killed before Snakemake knows of its end.
        Snakemake then deletes the outputs and starts the job again; with the checkpoint that costs seconds.
        """
        if "SLURM_JOB_ID" in os.environ:
            self.close()
            return
        self._clear()
        self._lease.path.unlink()
        with suppress(OSError):  # a process that waited has put its own lease there
            self._lease.path.parent.rmdir()
        self._lease.release()

    def close(self) -> None:
        """Release the lease, so that another process can resume from here."""
        self._lease.release()

    def _clear(self) -> None:
        for path in self.directory.iterdir():
            if path.name != LEASE:
                path.unlink()
        self._forget()


class Pace:
    """Decides when to save, so that at most `seconds` pass between two saves.

    A save is only possible at the end of an episode. It is due if the next episode might end too late.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._saved = self._ended = time.monotonic()
        self._episode = self._saving = 0.0

    def due(self) -> bool:
        """Return True if a state must be saved now. Call it at the end of each episode."""
        now = time.monotonic()
        self._episode = max(now - self._ended, 0.9 * self._episode)  # forgets a suspension in time
        self._ended = now
        return now + 2.0 * self._episode + self._saving >= self._saved + self.seconds

    def saved(self) -> None:
        now = time.monotonic()
        self._saving, self._saved, self._ended = now - self._ended, self._ended, now


def verify(directory: Path, meta: Mapping[str, Any]) -> list[Any]:
    """Refuse a checkpoint whose files do not match its state. Return the running hashes of its replays."""
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
    """Return a running hash of a file's first `size` bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (part := file.read(min(size, CHUNK))):
            digest.update(part)
            size -= len(part)
    return digest


def clear_finished(outputs: Path) -> None:
    """Remove the checkpoint that was left beside the finished outputs of a skill, a run or a controller."""
    directory = checkpoint_beside(outputs)
    stats = outputs / STATS if outputs.is_dir() else outputs.with_suffix(".json")
    for state in (directory / STATE, outputs / CHECKPOINT / STATE):
        with suppress(OSError):  # there is none, or another process is removing it
            if state.stat().st_mtime_ns > stats.stat().st_mtime_ns:
                continue  # it belongs to a later training
            lease = lock(state.parent / LEASE, create=False)
            if lease is not None:
                with lease:
                    shutil.rmtree(state.parent)


def below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, such as `objective/`, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def stamp(job: str, inputs: Mapping[str, str]) -> str:
    """Return the identity of a training: a hash of its job and of the checksums of its inputs."""
    return hashlib.sha256(json.dumps([job, dict(inputs)], sort_keys=True).encode()).hexdigest()
